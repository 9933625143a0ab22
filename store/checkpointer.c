/*
 * store/checkpointer.c - when a checkpoint is written and how it takes over.
 *
 * Runs in: committer: the steps in its main thread, the writing in a thread.
 * Touches: the published tree (read, pinned), a new tree-N file, then the
 *          store's tree.
 *
 *	IDLE --due, quiet--> WRITING --done--> CATCHUP --quiet--> SWEEP --> TIDY --> TRIM --> IDLE
 *	                        |                |
 *	                        +----------------+--- failed: IDLE, tried again later
 *
 * WRITING reads generation G, which its pin keeps.  Meanwhile commits go on,
 * on top of the old checkpoint.  CATCHUP applies to a second tree, which stands on
 * the new file, what the log holds behind G: the same code as a recovery.  When it
 * has arrived at the end it becomes the tree (S2).  SWEEP frees the overlay pages of
 * the old one; TIDY removes its file: a reader that is in it has it mapped, one that
 * does not find it takes the newest root.  TRIM gives memory back.
 *
 * Nobody waits for any of it: a thread writes, and removes; CATCHUP, SWEEP and TRIM are
 * slices of SLICE_US, also while a batch is being synced; the switch itself is a
 * moment between two batches.
 *
 * What dying leaves: a .tmp file, or a newer tree file: both are what a start
 * expects.
 */
#include "config.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "shm/log.h"
#include "store/crashpoint.h"
#include "store/store.h"
#include "store/syncer.h"

#define TAIL_MAX	((uint64_t)48 << 20)	/* what comes while it is written makes it 64 MiB at most */
#define OVERLAY_MAX	((uint64_t)64 << 20)	/* bytes of overlay pages, beside the size of the checkpoint */
#define SLICE_US	1000
#define SLICE_RECORDS	32u			/* between two looks at the clock */
#define SLICE_PAGES	4096u			/* looked at by SWEEP, given back by TRIM in a slice */
#define PACE_US		100000			/* the longest rest after a write */
#define RETRY_MS	5000
#define RETRY_ROOM_MS	2000	/* where there was no room: it is what gives room */
#define STAMP		((uint64_t)1 << 63)	/* page generation of the tree catching up: no root's */

enum state { IDLE, WRITING, CATCHUP, SWEEP, TIDY, TRIM };

struct checkpointer {
	struct store		*s;
	struct pin		*pin;
	void			(*wake)(void *);
	void			*wake_arg;
	enum state		 state;
	uint64_t		 retry_at;
	uint32_t		 last;		/* number of the last one tried: none is used twice */
	bool			 no_room;	/* that one found none */
	const char		*spare;		/* what the file is made of; NULL: it is new */
	/* WRITING: the thread's until done is set (release; acquired by the step) */
	pthread_t		 thread;
	atomic_bool		 done;
	volatile int		 cancel;
	int			 error;
	struct tree		 from;
	struct checkpoint_head	 head;
	struct checkpoint_segment *segments;
	uint64_t		 tail_then;
	uint64_t		 growth_then;
	atomic_bool		 hurry;		/* disk space waits for it: no rests.  Relaxed: it is a hint */
	uint64_t		 paced_at;
	uint64_t		 during;	/* bytes logged while the last one was written */
	/* CATCHUP */
	struct checkpoint	 ck;
	struct tree_writer	 w;
	uint32_t		 segment, offset;
	uint64_t		 tail_seen;	/* s->tail at the last slice */
	/* SWEEP and behind */
	struct sweep		 sweep;
	struct checkpoint	 old;		/* TIDY: the thread's */
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
	overlay_sweep_end(&c->sweep);
	if (c->old.map != NULL)
		checkpoint_close(&c->old);
}

void
checkpointer_destroy(struct checkpointer *c)
{
	if (c == NULL)
		return;
	if (c->state == WRITING || c->state == TIDY) {
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
	return s->tail >= TAIL_MAX || overlay >= OVERLAY_MAX + s->ck.head.bytes ||
	    compact_wants_checkpoint(s, c->during);
}

/*
 * The disk is the writers': what was written is out before more follows, and the
 * thread rests for as long as that took, unless space runs short.
 */
static void
pace(void *arg, size_t n)
{
	struct checkpointer	*c = arg;
	uint64_t		 now = monotonic_us(), took = now > c->paced_at ? now - c->paced_at : 0;
	struct timespec		 t = { 0 };

	(void)n;
	if (!atomic_load_explicit(&c->hurry, memory_order_relaxed)) {
		t.tv_nsec = (long)(took < PACE_US ? took : PACE_US) * 1000;
		nanosleep(&t, NULL);
	}
	c->paced_at = monotonic_us();
}

static void *
writer_main(void *arg)
{
	struct checkpointer	*c = arg;

	c->error = 0;
	c->paced_at = monotonic_us();
	if (checkpoint_write_into(&c->from, c->s->dirfd, &c->head, c->segments, &c->cancel, pace, c, c->spare) == -1)
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
start_thread(struct checkpointer *c, void *(*entry)(void *))
{
	sigset_t	all, old;
	int		rc;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	/* relaxed: the thread's creation orders it */
	atomic_store_explicit(&c->done, false, memory_order_relaxed);
	rc = pthread_create(&c->thread, NULL, entry, c);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return rc;
}

static void
start(struct checkpointer *c, uint64_t now_ms)
{
	struct store	*s = c->s;
	uint32_t	 newest = checkpoint_newest(s->dirfd, 0);

	if (c->last < s->ck.head.number)
		c->last = s->ck.head.number;
	c->head = (struct checkpoint_head){
		.store_id = s->log.store_id, .mark = s->log.mark,
		.number = (newest > c->last ? newest : c->last) + 1,
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
	c->growth_then = s->growth;
	c->segment = s->log.pos.segment;
	c->offset = (uint32_t)s->log.pos.offset;
	c->cancel = 0;
	c->last = c->head.number;
	c->spare = reserve_for_tree(s);
	atomic_store_explicit(&c->hurry, false, memory_order_relaxed);
	if (start_thread(c, writer_main) != 0) {
		drop_work(c);
		s->reserve.tree_out = false;
		c->retry_at = now_ms + RETRY_MS;
		return;
	}
	c->state = WRITING;
}

/* ------------------------------------------------------------------ WRITING */

/*
 * The log is as good as before, so writes go on, and another one is tried later: a
 * new file, for of this one nobody knows what the disk has (F1).
 */
static void
failed(struct checkpointer *c, int error, uint64_t now_ms)
{
	struct store	*s = c->s;
	uint64_t	 wait;

	c->no_room = error == ENOSPC || error == EDQUOT;
	reserve_tree_back(s);
	wait = c->no_room ? RETRY_ROOM_MS : RETRY_MS;
	if (s->error == ERR_NONE)
		log_warnx("%s: checkpoint tree-%010u cannot be written: %s; tried again in %llu s as another one, "
		    "writes go on", s->dir, c->head.number, strerror(error), (unsigned long long)wait / 1000);
	drop_work(c);
	s->reserve.tree_out = false;
	c->retry_at = now_ms + wait;
	c->state = IDLE;
}

/* An error in the directory is one of the log, whose segments are names in it. */
static void
directory_failed(struct checkpointer *c, const char *what)
{
	snprintf(c->s->log.what, sizeof(c->s->log.what), "%s", what);
	batch_failed(c->s, EIO);
}

static void
step_writing(struct checkpointer *c, uint64_t now_ms)
{
	struct store	*s = c->s;

	if (!atomic_load_explicit(&c->done, memory_order_acquire)) {
		atomic_store_explicit(&c->hurry, compact_is_short(s), memory_order_relaxed);
		return;
	}
	pthread_join(c->thread, NULL);
	pin_drop(c->pin);
	c->during = s->tail > c->tail_then ? s->tail - c->tail_then : 0;
	if (c->error == 0 && checkpoint_open(&c->ck, s->dirfd, c->head.number, false) == -1)
		c->error = errno;
	if (c->error == ESTALE)
		directory_failed(c, "sync of the directory");
	if (c->error == EILSEQ && s->error == ERR_NONE)
		s->error = ERR_TREE;	/* the old one is damaged: no new one can be made of it */
	if (c->error != 0 || s->error != ERR_NONE) {
		failed(c, c->error != 0 ? c->error : ECANCELED, now_ms);
		return;
	}
	c->no_room = false;
	c->w = (struct tree_writer){
		.t = {
			.overlay = s->overlay.base, .checkpoint = c->ck.map, .npages = c->ck.head.npages,
			.checked = c->ck.checked, .root = c->ck.head.root,
		},
		.overlay = &s->overlay,
		.gen = STAMP | c->head.number,
		.base = c->head.number,
	};
	c->tail_seen = s->tail;
	c->state = CATCHUP;
	crash_point("ck-dirsynced");
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

/*
 * Applies records for about SLICE_US, but at least twice what was logged since
 * the last slice: under whatever load, the end comes nearer.  0; -1 errno.
 */
static int
catch_up(struct checkpointer *c)
{
	struct index_target	 t = { c->s, &c->w, false };
	const struct rec_head	*h;
	uint64_t		 end = monotonic_us() + SLICE_US, least = 2 * (c->s->tail - c->tail_seen), done = 0;
	unsigned		 n = 0;

	c->tail_seen = c->s->tail;
	while (!arrived(c)) {
		if (++n % SLICE_RECORDS == 0 && done >= least && monotonic_us() >= end)
			return 0;
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
		done += rec_bytes(h);
		crash_point("ck-catchup");
	}
	return 0;
}

static void
switch_over(struct checkpointer *c)
{
	struct store		*s = c->s;
	uint64_t		 gen = s->root.gen + 1;

	c->old = s->ck;
	s->ck = c->ck;
	memset(&c->ck, 0, sizeof(c->ck));
	s->w = c->w;
	s->w.gen = gen + 1;
	s->tail -= c->tail_then < s->tail ? c->tail_then : s->tail;
	s->growth -= c->growth_then;
	s->root.gen = gen;
	s->root.page = s->w.t.root;
	s->root.checkpoint = s->ck.head.number;
	s->root.segments_epoch = s->segments_epoch = gen;
	root_publish(overlay_roots(&s->overlay), &s->root);
	/* the old tree's pages; without memory for it they are lost until this process ends */
	(void)overlay_sweep_begin(&s->overlay, &c->sweep, c->old.head.number);
	free(c->segments);
	c->segments = NULL;
	c->state = SWEEP;
	crash_point("ck-switched");
}

static void
step_catchup(struct checkpointer *c, bool quiet, uint64_t now_ms)
{
	if (c->s->error != ERR_NONE || catch_up(c) == -1 || store_faulted(c->s)) {
		int	e = c->s->error != ERR_NONE ? ECANCELED : errno;

		if (e == EILSEQ)	/* of what was written since: a new start says how much is damaged */
			c->s->error = ERR_LOG;

		/* pages of the abandoned tree */
		overlay_free_base(&c->s->overlay, c->w.base, c->s->w.gen);
		failed(c, e, now_ms);
		return;
	}
	if (arrived(c) && quiet)
		switch_over(c);
}

/* ------------------------------------------------------------------ what the old one leaves */

/* Unmapping and unlinking a large file takes milliseconds, the directory's sync may take many. */
static void *
tidier_main(void *arg)
{
	struct checkpointer	*c = arg;

	if (c->old.map != NULL)
		checkpoint_close(&c->old);
	c->error = checkpoint_tidy(c->s->dirfd, c->head.number) == -1 ? errno : 0;
	/* release: error; pairs with the acquire in step_tidy() */
	atomic_store_explicit(&c->done, true, memory_order_release);
	c->wake(c->wake_arg);
	return NULL;
}

static void
step_sweep(struct checkpointer *c)
{
	/* reachable up to the generation before the switch; the newest keeps the limbo in order */
	if (c->sweep.used != NULL && overlay_sweep(&c->s->overlay, &c->sweep, c->s->w.gen, SLICE_PAGES))
		return;
	overlay_sweep_end(&c->sweep);
	if (start_thread(c, tidier_main) == 0)
		c->state = TIDY;	/* else tried again with the next round */
}

static void
step_tidy(struct checkpointer *c)
{
	if (!atomic_load_explicit(&c->done, memory_order_acquire))
		return;
	pthread_join(c->thread, NULL);
	if (c->error != 0)
		log_warnx("%s: old checkpoints cannot be removed: %s", c->s->dir, strerror(c->error));
	if (c->error == EIO && c->s->error == ERR_NONE)
		directory_failed(c, "removal of old checkpoints");
	crash_point("ck-tidied");
	c->s->reserve.tree_out = false;
	c->state = TRIM;
}

static void
step_trim(struct checkpointer *c, uint64_t oldest)
{
	overlay_reclaim(&c->s->overlay, oldest, c->s->root.gen);
	if (!overlay_trim_some(&c->s->overlay, SLICE_PAGES))
		c->state = IDLE;
}

bool
checkpointer_done(const struct checkpointer *c)
{
	/* relaxed: the step acquires it */
	return (c->state == WRITING || c->state == TIDY) && atomic_load_explicit(&c->done, memory_order_relaxed);
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
	case SWEEP:
		step_sweep(c);
		break;
	case TIDY:
		step_tidy(c);
		break;
	case TRIM:
		step_trim(c, oldest_pin);
		break;
	}
	if (was == CATCHUP && c->state == SWEEP)
		return CHECKPOINT_SWITCHED;
	if (c->state == CATCHUP && arrived(c) && !quiet)
		return CHECKPOINT_NOTHING;	/* a quiet moment comes with the end of a sync */
	if (c->state == CATCHUP || c->state == SWEEP || c->state == TRIM)
		return CHECKPOINT_BUSY;
	return CHECKPOINT_NOTHING;
}
