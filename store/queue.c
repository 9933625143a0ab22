/*
 * store/queue.c - see store/queue.h.
 *
 * Runs in: committer, tests.
 */
#include "config.h"

#include <sys/queue.h>
#include <stdlib.h>

#include "shm/proc.h"
#include "store/queue.h"

#define QUANTUM		65536	/* bytes a tenant may add per turn */
#define BUCKETS		256

struct node {
	struct queued		q;
	STAILQ_ENTRY(node)	next;
};

STAILQ_HEAD(nodes, node);

struct flow {			/* a tenant with something in the queue */
	uint32_t		tenant;
	uint64_t		deficit;
	struct nodes		nodes;
	TAILQ_ENTRY(flow)	turn;
	LIST_ENTRY(flow)	bucket;
};

LIST_HEAD(flow_list, flow);
TAILQ_HEAD(flows, flow);

struct queue {
	struct node		*pool;
	struct nodes		 unused;
	unsigned		 fresh, max;	/* nodes of the pool not used so far: untouched memory */
	unsigned		 length;
	struct flows		 turns;		/* the first one's turn it is */
	struct flow_list	 buckets[BUCKETS];
	struct flow_list	 idle;		/* empty flows kept for reuse */
};

struct queue *
queue_create(unsigned max)
{
	struct queue	*q = calloc(1, sizeof(*q));

	if (q == NULL)
		return NULL;
	if ((q->pool = calloc(max, sizeof(*q->pool))) == NULL) {
		free(q);
		return NULL;
	}
	q->max = max;
	STAILQ_INIT(&q->unused);
	TAILQ_INIT(&q->turns);
	for (unsigned i = 0; i < BUCKETS; i++)
		LIST_INIT(&q->buckets[i]);
	LIST_INIT(&q->idle);
	return q;
}

void
queue_destroy(struct queue *q)
{
	struct flow	*f;

	if (q == NULL)
		return;
	while ((f = TAILQ_FIRST(&q->turns)) != NULL) {
		TAILQ_REMOVE(&q->turns, f, turn);
		free(f);
	}
	while ((f = LIST_FIRST(&q->idle)) != NULL) {
		LIST_REMOVE(f, bucket);
		free(f);
	}
	free(q->pool);
	free(q);
}

static struct flow *
flow_of(struct queue *q, uint32_t tenant)
{
	struct flow	*f;

	LIST_FOREACH(f, &q->buckets[tenant % BUCKETS], bucket)
		if (f->tenant == tenant)
			return f;
	if ((f = LIST_FIRST(&q->idle)) != NULL)
		LIST_REMOVE(f, bucket);
	else if ((f = malloc(sizeof(*f))) == NULL)
		return TAILQ_FIRST(&q->turns);	/* no memory: served with another tenant's, or not at all */
	f->tenant = tenant;
	f->deficit = 0;
	STAILQ_INIT(&f->nodes);
	LIST_INSERT_HEAD(&q->buckets[tenant % BUCKETS], f, bucket);
	TAILQ_INSERT_TAIL(&q->turns, f, turn);
	return f;
}

void
queue_add(struct queue *q, const struct queued *item)
{
	struct flow	*f = flow_of(q, item->tenant);
	struct node	*n;

	if ((n = STAILQ_FIRST(&q->unused)) != NULL)
		STAILQ_REMOVE_HEAD(&q->unused, next);
	else if (q->fresh < q->max)
		n = &q->pool[q->fresh++];
	/* a slot is queued once, and there are max slots */
	if (f != NULL && n != NULL) {
		n->q = *item;
		STAILQ_INSERT_TAIL(&f->nodes, n, next);
		q->length++;
		return;
	}
	proc_panic(__FILE__, __LINE__, "the queue of submissions has no room");
}

const struct queued *
queue_peek(struct queue *q)
{
	struct flow	*f;

	while ((f = TAILQ_FIRST(&q->turns)) != NULL) {
		struct node	*n = STAILQ_FIRST(&f->nodes);

		/* alone, or within its share */
		if (TAILQ_NEXT(f, turn) == NULL || n->q.cost <= f->deficit)
			return &n->q;
		f->deficit += QUANTUM;
		TAILQ_REMOVE(&q->turns, f, turn);
		TAILQ_INSERT_TAIL(&q->turns, f, turn);
	}
	return NULL;
}

void
queue_take(struct queue *q)
{
	struct flow	*f = TAILQ_FIRST(&q->turns);
	struct node	*n = STAILQ_FIRST(&f->nodes);

	f->deficit -= n->q.cost < f->deficit ? n->q.cost : f->deficit;
	STAILQ_REMOVE_HEAD(&f->nodes, next);
	STAILQ_INSERT_HEAD(&q->unused, n, next);
	q->length--;
	if (STAILQ_EMPTY(&f->nodes)) {
		TAILQ_REMOVE(&q->turns, f, turn);
		LIST_REMOVE(f, bucket);
		LIST_INSERT_HEAD(&q->idle, f, bucket);
	}
}

unsigned
queue_length(const struct queue *q)
{
	return q->length;
}
