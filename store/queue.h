/*
 * store/queue.h - whose write is next: deficit round-robin over tenants.
 *
 * Runs in: committer, tests.
 *
 * A tenant that floods its lane gets its share of each batch, not all of it.
 * One tenant alone pays nothing for this.  Shreedhar and Varghese, "Efficient
 * Fair Queuing Using Deficit Round-Robin", 1996.
 */
#ifndef STORE_QUEUE_H
#define STORE_QUEUE_H
#include <stdbool.h>
#include <stdint.h>

struct queue;

struct queued {			/* a submission that waits for a batch */
	uint16_t	lane;
	uint16_t	slot;
	uint32_t	tenant;
	uint64_t	cost;	/* bytes it adds to the log, about */
};

/* For at most max submissions at a time.  NULL: ENOMEM. */
struct queue	*queue_create(unsigned max);
void		 queue_destroy(struct queue *);
void		 queue_add(struct queue *, const struct queued *);
/* The next one in turn, or NULL; it stays in the queue (and next) until queue_take(). */
const struct queued *queue_peek(struct queue *);
void		 queue_take(struct queue *);
unsigned	 queue_length(const struct queue *);

#endif
