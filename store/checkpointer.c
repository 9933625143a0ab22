/*
 * store/checkpointer.c - when a checkpoint is written and how it takes over.
 *
 * Runs in: committer: the steps in its main thread, the writing in a thread.
 * Touches: the published tree (read, pinned), a new tree-N file, then the
 *          store's tree.
 *
 *	IDLE --due, quiet--> WRITING --done--> CATCHUP --quiet--> TIDY --> IDLE
 *	                        |                                   ^
 *	                        +--- failed: try again later -------+
 *
 * WRITING reads generation G, which its pin keeps.  Meanwhile commits go on,
 * on top of the old checkpoint.  CATCHUP applies to a second tree, which stands on
 * the new file, what the log holds behind G: the same code as a recovery, in
 * slices of a millisecond or so.  When it has arrived at the end it becomes
 * the tree (S2), and all overlay pages of the old one are free.
 *
 * What dying leaves: a .tmp file, or a newer tree file: both are what a start
 * expects.
 */
#include "config.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "shm/log.h"
#include "store/store.h"

#define TAIL_MAX	((uint64_t)32 << 20)	/* half of what must be read back within a second */
#define OVERLAY_MAX	((uint64_t)64 << 20)	/* bytes of overlay pages, beside the size of the checkpoint */
#define SLICE		512			/* records caught up with in one step */
#define RETRY_MS	10000
#define STAMP		((uint64_t)1 << 63)	/* page generation of the tree catching up: no root's */

enum state { IDLE, WRITING, CATCHUP, TIDY };

struct checkpointer {
	struct store		*s;
	struct pin		*pin;
	void			(*wake)(void *);
	void			*wake_arg;
	enum state		 state;
	uint64_t		 retry_at;
	/* WRITING: the thread's until done is set (release; acquired by the step) */
	pthread_t		 thread;
	atomic_bool		 done;
	volatile int		 cancel;
	int			 error;
	struct tree		 from;
	struct checkpoint_head	 head;
	struct checkpoint_segment *segments;
	uint64_t		 tail_then;
	/* CATCHUP */
	struct checkpoint	 ck;
	struct tree_writer	 w;
	uint32_t		 segment, offset;
	/* TIDY */
	uint64_t		 switched;	/* generation */
};

struct checkpointer *
checkpointer_create(struct store *s, struct pin *own, void (*wake)(void *), void *arg)
{
	struct checkpointer	*c = calloc(1, sizeof(*c));

	if (c == NULL)
		return NULL;
	c->s = s;
	c->pin = own;
	c->wake = wake;
	c->wake_arg = arg;
	return c;
}

static void
drop_work(struct checkpointer *c)
{
	pin_drop(c->pin);
	free(c->segments);
	c->segments = NULL;
	if (c->ck.map != NULL)
		checkpoint_close(&c->ck);
	memset(&c->ck, 0, sizeof(c->ck));
}

void
checkpointer_destroy(struct checkpointer *c)
{
	if (c == NULL)
		return;
	if (c->state == WRITING) {
		c->cancel = 1;
		pthread_join(c->thread, NULL);
	}
	drop_work(c);
	free(c);
}

/* ------------------------------------------------------------------ IDLE */

static bool
is_due(const struct checkpointer *c, uint64_t now_ms)
{
	const struct store	*s = c->s;
	uint64_t		 overlay = (uint64_t)s->overlay.in_use * PAGE_BYTES;

	if (s->error != ERR_NONE || s->damaged || s->root.page == PAGE_NONE || now_ms < c->retry_at)
		return false;
	return s->tail >= TAIL_MAX || overlay >= OVERLAY_MAX + s->ck.head.bytes || compact_wants_checkpoint(s);
}

static void *
writer_main(void *arg)
{
	struct checkpointer	*c = arg;

	c->error = 0;
	if (checkpoint_write(&c->from, c->s->dirfd, &c->head, c->segments, &c->cancel, NULL, NULL) == -1)
		c->error = errno;
	/* release: error and head; pairs with the acquire in step_writing() */
	atomic_store_explicit(&c->done, true, memory_order_release);
	c->wake(c->wake_arg);
	return NULL;
}

static int
copy_segments(struct checkpointer *c)
{
	const struct store	*s = c->s;
	unsigned		 n = 0;

	if ((c->segments = calloc(s->log.nseg, sizeof(*c->segments))) == NULL)
		return -1;
	for (unsigned i = 0; i < s->log.nseg; i++) {
		const struct segment	*g = &s->log.seg[i];

		if (g->dropped)
			continue;
		c->segments[n++] = (struct checkpoint_segment){
			.number = g->number, .bytes = g->bytes, .end = g->end,
			.live = g->live, .first_seq = g->first_seq,
		};
	}
	c->head.nsegments = n;
	return 0;
}

/* All signals are the main thread's. */
static int
start_thread(struct checkpointer *c)
{
	sigset_t	all, old;
	int		rc;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	rc = pthread_create(&c->thread, NULL, writer_main, c);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return rc;
}

static void
start(struct checkpointer *c, uint64_t now_ms)
{
	struct store	*s = c->s;
	uint32_t	 newest = checkpoint_newest(s->dirfd, 0);

	c->head = (struct checkpoint_head){
		.store_id = s->log.store_id, .mark = s->log.mark,
		.number = (newest > s->ck.head.number ? newest : s->ck.head.number) + 1,
		.segment = s->log.pos.segment, .chain = s->log.pos.chain,
		.offset = s->log.pos.offset, .batch = s->log.pos.batch,
		.max_seq = s->max_seq, .time_ms = s->time_ms, .next_tenant = s->next_tenant,
	};
	if (copy_segments(c) == -1) {
		c->retry_at = now_ms + RETRY_MS;
		return;
	}
	pin_take(c->pin, &overlay_roots(&s->overlay)->newest);
	c->from = s->w.t;	/* quiet: the newest tree is the published one */
	c->tail_then = s->tail;
	c->segment = s->log.pos.segment;
	c->offset = (uint32_t)s->log.pos.offset;
	c->cancel = 0;
	atomic_store_explicit(&c->done, false, memory_order_relaxed);
	if (start_thread(c) != 0) {
		drop_work(c);
		c->retry_at = now_ms + RETRY_MS;
		return;
	}
	c->state = WRITING;
}

/* ------------------------------------------------------------------ WRITING */

static void
failed(struct checkpointer *c, int error, uint64_t now_ms)
{
	log_warnx("%s: checkpoint tree-%010u: %s; tried again in %d s", c->s->dir, c->head.number,
	    strerror(error), RETRY_MS / 1000);
	drop_work(c);
	c->retry_at = now_ms + RETRY_MS;
	c->state = IDLE;
}

static void
step_writing(struct checkpointer *c, uint64_t now_ms)
{
	struct store	*s = c->s;

	if (!atomic_load_explicit(&c->done, memory_order_acquire))
		return;
	pthread_join(c->thread, NULL);
	pin_drop(c->pin);
	if (c->error == 0 && checkpoint_open(&c->ck, s->dirfd, c->head.number, false) == -1)
		c->error = errno;
	if (c->error != 0) {
		failed(c, c->error, now_ms);
		return;
	}
	c->w = (struct tree_writer){
		.t = {
			.overlay = s->overlay.base, .checkpoint = c->ck.map, .npages = c->ck.head.npages,
			.checked = c->ck.checked, .root = c->ck.head.root,
		},
		.overlay = &s->overlay,
		.gen = STAMP | c->head.number,
		.base = c->head.number,
	};
	c->state = CATCHUP;
}

/* ------------------------------------------------------------------ CATCHUP */

static bool
arrived(const struct checkpointer *c)
{
	return c->segment == c->s->log.pos.segment && c->offset >= c->s->log.pos.offset;
}

/* Moves to the segment behind; live ones only: a dropped one held nothing. */
static bool
next_segment(struct checkpointer *c)
{
	for (unsigned i = 0; i < c->s->log.nseg; i++)
		if (c->s->log.seg[i].number > c->segment) {
			c->segment = c->s->log.seg[i].number;
			c->offset = SEGMENT_HEAD;
			return true;
		}
	return false;
}

/* Applies up to n records.  0; -1 errno. */
static int
catch_up(struct checkpointer *c, unsigned n)
{
	struct index_target	 t = { c->s, &c->w, false };
	const struct rec_head	*h;

	while (n > 0 && !arrived(c)) {
		switch (log_next(&c->s->log, c->segment, &c->offset, &h)) {
		case -1:
			return -1;
		case 0:
			if (!next_segment(c))
				return 0;
			continue;
		}
		if (index_apply(&t, h, c->segment, c->offset, NULL) == -1)
			return -1;
		c->offset += (uint32_t)rec_bytes(h);
		n--;
	}
	return 0;
}

static void
switch_over(struct checkpointer *c)
{
	struct store		*s = c->s;
	struct checkpoint	 old = s->ck;
	uint64_t		 gen = s->root.gen + 1;

	s->ck = c->ck;
	memset(&c->ck, 0, sizeof(c->ck));
	s->w = c->w;
	s->w.gen = gen + 1;
	s->tail -= c->tail_then < s->tail ? c->tail_then : s->tail;
	s->root.gen = gen;
	s->root.page = s->w.t.root;
	s->root.checkpoint = s->ck.head.number;
	s->root.segments_epoch = s->segments_epoch = gen;
	root_publish(overlay_roots(&s->overlay), &s->root);
	/* the old tree's pages: reachable up to the generation before this one */
	overlay_free_base(&s->overlay, old.head.number, gen);
	if (old.map != NULL)
		checkpoint_close(&old);
	free(c->segments);
	c->segments = NULL;
	c->switched = gen;
	c->state = TIDY;
}

static void
step_catchup(struct checkpointer *c, bool quiet, uint64_t now_ms)
{
	if (catch_up(c, quiet ? 4 * SLICE : SLICE) == -1) {
		int	e = errno;

		/* pages of the abandoned tree */
		overlay_free_base(&c->s->overlay, c->w.base, c->s->w.gen);
		failed(c, e, now_ms);
		return;
	}
	if (arrived(c) && quiet)
		switch_over(c);
}

/* ------------------------------------------------------------------ TIDY */

static void
step_tidy(struct checkpointer *c, uint64_t oldest)
{
	struct store	*s = c->s;

	if (oldest < c->switched)
		return;
	if (checkpoint_tidy(s->dirfd, s->ck.head.number) == -1)
		log_warn("%s: old checkpoints cannot be removed", s->dir);
	overlay_reclaim(&s->overlay, oldest, s->root.gen);
	overlay_trim(&s->overlay);
	c->state = IDLE;
}

bool
checkpointer_wants_quiet(const struct checkpointer *c, uint64_t now_ms)
{
	return c->state == CATCHUP ? arrived(c) : c->state == IDLE && is_due(c, now_ms);
}

enum checkpoint_event
checkpointer_step(struct checkpointer *c, bool quiet, uint64_t oldest_pin, uint64_t now_ms)
{
	enum state	was = c->state;

	switch (c->state) {
	case IDLE:
		if (quiet && is_due(c, now_ms))
			start(c, now_ms);
		break;
	case WRITING:
		step_writing(c, now_ms);
		break;
	case CATCHUP:
		step_catchup(c, quiet, now_ms);
		break;
	case TIDY:
		step_tidy(c, oldest_pin);
		break;
	}
	if (was == CATCHUP && c->state == TIDY)
		return CHECKPOINT_SWITCHED;
	return c->state == CATCHUP ? CHECKPOINT_BUSY : c->state == TIDY ? CHECKPOINT_WAITS : CHECKPOINT_NOTHING;
}
