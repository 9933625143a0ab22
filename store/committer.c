/*
 * store/committer.c - the committer: the only writer of log and tree.
 *
 * Runs in: committer (committer_main), and its sync and checkpoint threads.
 * Touches: all of the store; lanes (takes submissions, publishes results).
 *
 *	lanes --collect--> queue --fill--> batch --write--> log --sync--> publish
 *	  ^                                                                  |
 *	  +--------------------------- complete -----------------------------+
 *
 * While batch A is being synced, batch B is filled.  Nothing of B is written
 * before A is durable (L1), nothing of either is visible before.
 *
 * What dying leaves: submissions that are still SUBMITTED in their lanes.  The
 * next committer finds in the log which of them were written, makes that
 * durable, answers those, and decides the others as if they had just come in.
 */
#include "config.h"

#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <bsd/string.h>
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shm/boot.h"
#include "shm/log.h"
#include "shm/proc.h"
#include "store/crashpoint.h"
#include "store/gather.h"
#include "store/page.h"
#include "store/pinwatch.h"
#include "store/queue.h"
#include "store/scrub.h"
#include "store/store.h"
#include "store/syncer.h"

#define BATCH_BYTES	((uint64_t)4 << 20)	/* of one batch, unless a single write is larger */
#define BATCH_WRITES	4096u
#define MOVE_US		10000			/* between two batches of compaction alone */
#define HOLD_US		1000			/* a new segment waits for space: looks again */
#define IDLE_US		1000000			/* looks after the lifeline at least this often */
#define LEAVE_US	1500000			/* the master is dead: the workers finish, then so do we */
#define LOOK_US		1000000
#define STUCK_LOOKS	60u			/* a worker stands still with a pin: so many seconds ... */
#define STUCK_BYTES	((uint64_t)64 << 20)	/* ... and so much memory, or a segment, waits for it */
#define STUCK_OPENING	10u			/* ... or all writes do */
#define POISON		2u			/* committer crashes that a submission may cause */

/* A write that is in the batch being built or being synced. */
struct member {
	uint16_t	lane;
	uint16_t	slot;
	struct result	res;
};

struct members {
	struct member	*m;
	unsigned	 n, cap;
};

struct committer {
	const struct boot	*boot;
	struct region		*region;
	struct count_block	*counts;
	struct store		 store;
	struct lane_reader	*lanes;		/* [nlanes] */
	struct queue		*queue;
	uint8_t			*taken;		/* [nlanes * LANE_SLOTS]: in the queue or in a batch */
	struct syncer		*syncer;
	struct checkpointer	*checkpointer;
	struct scrub		*scrub;
	unsigned		 patience;	/* submissions to come before it is worth to wake us, where we wait in any case */
	uint64_t		 written_at;	/* a client's write was last in a batch */
	uint64_t		 logged_at;	/* anything was */
	struct compaction	 compaction;
	struct gather		 gather;
	struct members		 filling;	/* batch being built */
	struct members		 syncing;	/* batch written, being synced */
	struct iovec		*iov;		/* of the write being decided */
	int			 capiov;
	uint8_t			 wake[REGION_LANES];	/* lanes to wake after completing */
	bool			 opened;	/* the store; false: it must not be touched (sync failed before) */
	bool			 alone;		/* a suspect is under work: nothing else beside it, until it is answered */
	pid_t			 master;	/* our parent at the start */
	struct pinwatch		 pinwatch;
	unsigned		 stuck_looks, stuck_opening;
	uint64_t		 stuck_bytes;
	uint64_t		 stuck_told;	/* the pin of the last worker that was told of */
	uint64_t		 move_at;	/* when compaction may have a batch of its own again */
	uint64_t		 look_at;	/* when to look after the disk again */
	uint64_t		 lifeline_at;	/* when to look for the master again */
	uint64_t		 leave_at;	/* it is dead: leave then */
};

static struct committer	c;	/* one per process */

static size_t
bytes_of(const struct iovec *iov, int n)
{
	size_t	sum = 0;

	for (int i = 0; i < n; i++)
		sum += iov[i].iov_len;
	return sum;
}

/* Both threads: there is something to look at. */
static void
wake_main(void *arg)
{
	bell_ring(arg);
}

/* ------------------------------------------------------------- state for others */

/* Sync thread or main: from now on no successor touches the log.  The reason follows in tell_state(). */
static void
sync_failed(void)
{
	/* release: pairs with the acquire in committer_main() and in the workers' /_ready */
	atomic_store_explicit(&c.region->head->state, STORE_SYNC_FAILED, memory_order_release);
}

static void
tell_state(void)
{
	struct store		*s = &c.store;
	enum store_state	 state = STORE_READY;

	if (s->error == ERR_SYNC)
		state = STORE_SYNC_FAILED;
	else if (s->damaged)
		state = STORE_DAMAGED;
	else if (s->full)
		state = STORE_FULL;
	if (atomic_load_explicit(&c.region->head->state, memory_order_relaxed) == state &&
	    (state == STORE_READY || strcmp(c.region->head->reason, s->reason) == 0))
		return;
	strlcpy(c.region->head->reason, state == STORE_READY ? "" : s->reason, sizeof(c.region->head->reason));
	/* release: the reason; pairs with the acquire in the workers' /_ready */
	atomic_store_explicit(&c.region->head->state, state, memory_order_release);
}

static void
tell_counts(void)
{
	struct store	*s = &c.store;
	uint64_t	 bytes = 0, live = 0;

	struct agg	 all;
	uint8_t		 lo[KEY_MAX];

	for (unsigned i = 0; i < s->log.nseg; i++) {
		bytes += s->log.seg[i].bytes;
		live += s->log.seg[i].live;
	}
	/* tenant 0 is the catalog */
	if (tree_range(&s->w.t, lo, key_make(lo, 1, NULL, 0), NULL, 0, &all) == 0) {
		count_set(c.counts, CC_DOCUMENTS, all.count);
		count_set(c.counts, CC_BYTES, all.bytes);
	}
	count_set(c.counts, CC_SEGMENTS, s->log.nseg);
	count_set(c.counts, CC_SEGMENT_BYTES, bytes);
	count_set(c.counts, CC_LIVE_BYTES, live);
	count_set(c.counts, CC_OVERLAY_PAGES, s->overlay.in_use);
	count_set(c.counts, CC_SEQ, s->root.max_seq);
}

/* ------------------------------------------------------------- completing */

static void
complete(uint16_t lane, uint16_t slot, const struct result *r)
{
	struct lane_slot	*sl = &c.region->lanes[lane].slots[slot];

	c.taken[lane * LANE_SLOTS + slot] = 0;
	/* relaxed: read by the master only after our death, which orders everything */
	atomic_store_explicit(&sl->working, 0, memory_order_relaxed);
	if (lane_complete(&c.lanes[lane], slot, r->outcome, r->seq, r->run, r->time_ms))
		c.wake[lane] = 1;
	count_add(c.counts, r->outcome <= OUT_DELETED ? CC_WRITES : CC_REFUSED, 1);
}

static void
wake_worker(unsigned i)
{
	uint64_t	one = 1;

	c.wake[i] = 0;
	/* EAGAIN: it is awake many times over */
	if (write(c.boot->wake[i], &one, sizeof(one)) == -1 && errno != EAGAIN)
		log_warn("waking worker %u", i);
}

/*
 * Those that sleep on other CPUs first: one that wakes up on ours may take it
 * from us at once, and the others would sleep on beside an idle CPU.
 */
static void
wake_workers(void)
{
	unsigned	here = (unsigned)sched_getcpu();

	for (unsigned i = 0; i < c.region->nlanes; i++)
		if (c.wake[i] && lane_worker_cpu(&c.region->lanes[i]) != here)
			wake_worker(i);
	for (unsigned i = 0; i < c.region->nlanes; i++)
		if (c.wake[i])
			wake_worker(i);
}

static int
members_add(struct members *m, uint16_t lane, uint16_t slot, const struct result *r)
{
	if (m->n == m->cap) {
		unsigned	 cap = m->cap != 0 ? 2 * m->cap : 256;
		struct member	*p = realloc(m->m, cap * sizeof(*p));

		if (p == NULL)
			return -1;
		m->m = p;
		m->cap = cap;
	}
	m->m[m->n++] = (struct member){ lane, slot, *r };
	return 0;
}

static void
complete_members(struct members *m, enum outcome instead)
{
	for (unsigned i = 0; i < m->n; i++) {
		struct result	r = m->m[i].res;

		/* a refusal may have seen what now never becomes public (S6) */
		if (instead != OUT_NONE)
			r = (struct result){ .outcome = r.outcome <= OUT_DELETED ? instead : OUT_READONLY };
		complete(m->m[i].lane, m->m[i].slot, &r);
		crash_point_if(i + 1 < m->n, "mid-complete");
	}
	m->n = 0;
	c.alone = false;
	wake_workers();
}

/* ------------------------------------------------------------- collecting */

static void
collect_one(uint16_t lane, uint16_t slot)
{
	uint8_t			*taken = &c.taken[lane * LANE_SLOTS + slot];
	struct lane_slot	*sl = &c.region->lanes[lane].slots[slot];
	struct submit_view	 v;
	struct queued		 q = { .lane = lane, .slot = slot };
	struct result		 r = { .outcome = OUT_POISON };

	if (*taken) {
		log_warnx("lane %u: slot %u was submitted again before it was answered; ignored", lane, slot);
		return;
	}
	if (atomic_load_explicit(&sl->suspect, memory_order_acquire) >= POISON) {
		log_warnx("lane %u, submission %llu: under work when %u committers crashed; it is failed",
		    lane, (unsigned long long)sl->number, POISON);
		complete(lane, slot, &r);
		return;
	}
	/* relaxed: for the master after our death; what is looked at may be what we die of */
	atomic_store_explicit(&sl->working, 1, memory_order_relaxed);
	if (submit_view(&c.region->arena, sl->submit, &v) == -1 || v.s->number != sl->number) {
		log_warnx("lane %u, submission %llu: does not hold together; it is failed", lane,
		    (unsigned long long)sl->number);
		complete(lane, slot, &r);
		return;
	}
	q.tenant = v.s->tenant;
	q.cost = v.payload_len + SUBMIT_HEADROOM;
	atomic_store_explicit(&sl->working, 0, memory_order_relaxed);
	*taken = 1;
	queue_add(c.queue, &q);
}

static bool
lanes_have_more(void)
{
	for (unsigned i = 0; i < c.region->nlanes; i++)
		if (lane_has_next(&c.lanes[i]))
			return true;
	return false;
}

static void
collect(void)
{
	uint32_t	slot;

	for (unsigned i = 0; i < c.region->nlanes; i++)
		while ((slot = lane_next(&c.lanes[i])) != LANE_NONE)
			collect_one((uint16_t)i, (uint16_t)slot);
	wake_workers();
}

/* ------------------------------------------------------------- filling a batch */

/* All pieces of a submission, however many extents it has.  Number, or -1. */
static int
pieces(uint32_t off)
{
	for (;;) {
		uint32_t	 resume = 0;
		struct iovec	*p;
		int		 n = c.capiov == 0 ? -1 : submit_iov(&c.region->arena, off, c.iov, c.capiov, &resume);

		if (n != -1)
			return n;
		if (c.capiov != 0 && errno != E2BIG)
			return -1;
		if ((p = reallocarray(c.iov, (size_t)c.capiov * 2 + 64, sizeof(*p))) == NULL)
			return -1;
		c.iov = p;
		c.capiov = c.capiov * 2 + 64;
	}
}

/* Copies what is decided on out of shared memory, once: it cannot change under us then. */
static int
make_op(struct op *op, const struct queued *q, const struct lane_slot *sl)
{
	struct submit_view	 v;
	struct submit		 s;
	static uint8_t		 path[SUBMIT_PATH_MAX];
	static struct tag	 tags[2 * SUBMIT_TAGS_MAX];
	int			 n;

	if (submit_view(&c.region->arena, sl->submit, &v) == -1 || (n = pieces(sl->submit)) == -1)
		return -1;
	s = *v.s;
	if (s.path_len > sizeof(path) || s.n_match > SUBMIT_TAGS_MAX || s.n_none > SUBMIT_TAGS_MAX ||
	    s.op < OP_PUT || s.op > OP_TENANT_DROP || s.tenant != q->tenant ||
	    /* a chain that was scribbled on since it was viewed */
	    bytes_of(c.iov, n) != SUBMIT_HEADROOM + v.payload_len) {
		errno = EINVAL;
		return -1;
	}
	memcpy(path, v.path, s.path_len);
	memcpy(tags, v.match, s.n_match * sizeof(*tags));
	memcpy(tags + s.n_match, v.none, s.n_none * sizeof(*tags));
	*op = (struct op){
		.kind = s.op, .cond = s.cond, .path_len = s.path_len, .meta_len = s.meta_len,
		.n_match = s.n_match, .n_none = s.n_none, .tenant = s.tenant,
		.body_len = s.body_len, .body_crc = s.body_crc, .unmodified_s = s.unmodified_s,
		.path = path, .match = tags, .none = tags + s.n_match,
		.payload_len = v.payload_len, .iov = c.iov, .niov = n,
		.lane = q->lane, .number = (uint32_t)sl->number,
	};
	return 0;
}

static bool
is_quiet(void)
{
	return batch_empty(&c.store) && c.filling.n == 0 && !c.store.sealed.is && !syncer_busy(c.syncer);
}

/*
 * Decides the write whose turn it is.  false: it waits for the next batch.
 *
 * A suspect is under work alone from here until it is answered: were anybody
 * beside it in this batch, or still in the one being synced, the next crash
 * would be theirs as well, and two crashes that are two others' doing would
 * fail a write that did nothing.
 */
static bool
fill_one(const struct queued *q, bool may_roll)
{
	struct lane_slot	*sl = &c.region->lanes[q->lane].slots[q->slot];
	struct result		 r = { .outcome = OUT_POISON };
	bool			 suspect = atomic_load_explicit(&sl->suspect, memory_order_relaxed) != 0;
	bool			 before = !batch_empty(&c.store);
	struct op		 op;

	if (suspect && !is_quiet())
		return false;
	c.alone = suspect;
	/* relaxed: for the master after our death */
	atomic_store_explicit(&sl->working, 1, memory_order_relaxed);
	if (make_op(&op, q, sl) == 0) {
		crash_on_mark(op.path, op.path_len);
		if (batch_add(&c.store, &op, &r, may_roll) == ADD_LATER) {
			atomic_store_explicit(&sl->working, 0, memory_order_relaxed);
			c.alone = false;
			/* a tenant half dropped in memory: nothing of it is in the log */
			if (c.store.error != ERR_FULL_IN_WRITE)
				return false;
			r.outcome = OUT_FULL;
			complete(q->lane, q->slot, &r);
			wake_workers();
			return false;
		}
	}
	if (r.outcome == OUT_FULL)
		tell_state();	/* the answer says why */
	/*
	 * A refusal speaks of the newest state.  If that is already public it is
	 * told at once; if not, it waits until what it saw is durable.
	 */
	if (r.outcome > OUT_DELETED && !before && !c.store.sealed.is && c.syncing.n == 0) {
		complete(q->lane, q->slot, &r);
		c.alone = false;
	} else if (members_add(&c.filling, q->lane, q->slot, &r) == -1)
		proc_panic(__FILE__, __LINE__, "no memory for a batch's members");
	return true;
}

static void
fill(bool may_roll)
{
	const struct queued	*q;

	while (!c.alone && c.store.batch.bytes < BATCH_BYTES && c.filling.n < BATCH_WRITES &&
	    (q = queue_peek(c.queue)) != NULL) {
		if (!fill_one(q, may_roll))
			break;
		queue_take(c.queue);
		/* behind a failed sync all that wait are refused, now */
		if (c.store.error != ERR_NONE && c.store.error != ERR_SYNC)
			break;
	}
	wake_workers();
}

/* ------------------------------------------------------------- one batch to the disk */

/* A process that cannot go on: its successor recovers, and finds the pending submissions in their lanes. */
static _Noreturn void
start_over(const char *why)
{
	log_warnx("%s: %s; the committer starts over", c.boot->dir, why);
	if (c.store.error == ERR_TREE) {
		char	name[32];

		snprintf(name, sizeof(name), "tree-%010u", c.store.ck.head.number);
		if (unlinkat(c.boot->dir_fd, name, 0) == -1)
			log_warn("%s: %s", c.boot->dir, name);
	}
	exit(1);
}

/* Of a batch that cannot be in the log: its writes are refused.  The rest is decided again, by a successor. */
static void
refuse_full(struct members *m)
{
	struct result	full = { .outcome = OUT_FULL };

	tell_state();
	for (unsigned i = 0; i < m->n; i++)
		if (m->m[i].res.outcome <= OUT_DELETED)
			complete(m->m[i].lane, m->m[i].slot, &full);
	m->n = 0;
	wake_workers();
}

/* A batch could not be written or synced, or must not be. */
static void
on_error(void)
{
	switch (c.store.error) {
	case ERR_FULL_IN_WRITE:
		/* a tenant's drop failed while another batch is being synced: that one is in the log */
		if (!syncer_busy(c.syncer))
			refuse_full(&c.syncing);
		start_over(c.store.reason);
	case ERR_TREE:
		start_over("a page of the checkpoint is damaged");
	case ERR_LOG:
		start_over("part of the log is damaged");
	default:
		tell_state();
		complete_members(&c.syncing, OUT_UNKNOWN);
		complete_members(&c.filling, OUT_READONLY);
	}
}

/* Segments that hold nothing any more; the workers are told to let their mappings go. */
static void
unlink_dropped(uint64_t oldest_pin)
{
	if (compact_unlink(&c.store, oldest_pin) == 0)
		return;
	c.look_at = 0;		/* there is room for the reserve, perhaps for more */
	/* release: the names are gone before the number moves; pairs with read_idle() */
	atomic_fetch_add_explicit(&c.region->head->mapped_floor, 1, memory_order_release);
	memset(c.wake, 1, c.region->nlanes);
	wake_workers();
}

static void
after_publish(void)
{
	uint64_t	oldest = pin_oldest(c.region->pins, c.region->nlanes + 1);

	overlay_reclaim(&c.store.overlay, oldest, c.store.root.gen);
	unlink_dropped(oldest);
	tell_counts();
}

static void
finish_sync(void)
{
	uint64_t	us, moved = c.gather.moved;
	int		error;

	if (!syncer_result(c.syncer, &error, &us))
		return;
	count_add(c.counts, CC_SYNCS, 1);
	count_add(c.counts, CC_SYNC_US, us);
	count_set(c.counts, CC_SYNC_LAST_US, us);
	if (error != 0)
		batch_failed(&c.store, error);
	if (c.store.error != ERR_NONE) {	/* also one of the directory meanwhile (S3) */
		on_error();
		return;
	}
	crash_point("after-sync");
	crash_point_if(moved != 0, "move-synced");
	batch_publish(&c.store);
	crash_point("after-publish");
	count_add(c.counts, CC_BATCHES, 1);
	count_add(c.counts, CC_BYTES_MOVED, moved);
	gather_answered(&c.gather, c.syncing.n, c.filling.n + queue_length(c.queue), us, monotonic_us());
	complete_members(&c.syncing, OUT_NONE);
	after_publish();
}

/* Writes the batch and starts its sync; in place it is over when this returns. */
static void
write_batch(void)
{
	struct members	m = c.syncing;

	count_add(c.counts, CC_BYTES_LOGGED, c.store.batch.bytes);
	c.gather.moved = c.store.batch.moved;
	c.syncing = c.filling;
	c.filling = m;
	if (!batch_empty(&c.store))
		c.logged_at = monotonic_us();
	if (c.syncing.n != 0)
		c.written_at = c.logged_at;
	if (batch_write(&c.store) == -1) {
		on_error();
		return;
	}
	if (!syncer_start(c.syncer, gather_all(&c.gather, c.syncing.n + queue_length(c.queue))))
		return;
	collect();	/* who came meanwhile is somebody to gather for */
	finish_sync();
}

/*
 * Refusals that waited for a batch which has become public, while none of their own was written.
 * Where batch_failed() has thrown the batch away meanwhile (an error of the directory's), the
 * writes in it are refused like all others: they were never in the log.
 */
static void
settle_refusals(void)
{
	if (!batch_empty(&c.store) || c.store.sealed.is)
		return;
	if (c.filling.n != 0)
		complete_members(&c.filling, c.store.error == ERR_NONE ? OUT_NONE : OUT_READONLY);
}

/* ------------------------------------------------------------- housekeeping */

static void
tell_disk(void)
{
	struct statvfs	v;

	/* only this file system (F29) */
	if (fstatvfs(c.boot->dir_fd, &v) == -1)
		return;
	count_set(c.counts, CC_DISK_FREE, (uint64_t)v.f_bavail * v.f_frsize);
	count_set(c.counts, CC_INODES_FREE, v.f_favail);
}

static bool
master_is_gone(void)
{
	struct pollfd	p = { .fd = c.boot->lifeline, .events = POLLIN };

	return poll(&p, 1, 0) == 1;
}

/* The master is asked to end a worker, since only it knows which process that is.  Again with each look, until it has. */
static void
ask_to_end(unsigned lane, const char *what)
{
	uint64_t	gen = c.pinwatch.gen[lane];

	if (c.stuck_told != gen)
		log_warnx("worker %u has been looking at one generation for %u s, so it is stopped or hangs; %s: "
		    "the master is asked to end it", lane, c.pinwatch.looks[lane], what);
	c.stuck_told = gen;
	/* release: pairs with the master's acquire; the signal says that it is there */
	atomic_store_explicit(&c.region->head->stuck, (uint64_t)(lane + 1) << REGION_STUCK_SHIFT | gen, memory_order_release);
	if (getppid() == c.master && !master_is_gone() && kill(c.master, SIGUSR2) == -1)
		log_warn("asking the master to end worker %u", lane);
}

/* What cannot come free while a generation is pinned; NULL: nothing that matters. */
static const char *
waits_for(uint64_t gen)
{
	const struct store	*s = &c.store;

	if ((uint64_t)s->overlay.nlimbo * PAGE_BYTES > c.stuck_bytes)
		return "memory of the tree cannot come free";
	if (s->overlay.other_half && gen < s->overlay.first_gen)
		return "the memory of the committer before this one cannot come free";
	for (unsigned i = 0; i < s->log.nseg; i++)
		if (s->log.seg[i].dropped && s->root.gen >= s->log.seg[i].dropped_gen && gen < s->log.seg[i].dropped_gen)
			return "disk space cannot come free";
	return NULL;
}

static void
look_at_pins(uint64_t now)
{
	struct pinwatch	*w = &c.pinwatch;
	const char	*what;

	if (!pinwatch_look(w, c.region->pins, c.region->nlanes, c.store.root.gen, now))
		return;
	for (unsigned i = 0; i < c.region->nlanes; i++)
		if (w->looks[i] >= c.stuck_looks && (what = waits_for(w->gen[i])) != NULL)
			ask_to_end(i, what);
}

/* Once a second: is the log still there, is there room again, is the reserve whole? */
static void
look_around(uint64_t now)
{
	struct store	*s = &c.store;

	if (now < c.look_at || s->error != ERR_NONE)
		return;
	c.look_at = now + LOOK_US;
	tell_disk();
	if (s->damaged)
		return;
	if (is_quiet() && log_still_there(&s->log) == -1)
		batch_failed(s, errno);
	if (s->full && batch_empty(s) && !syncer_busy(c.syncer))
		batch_probe(s);
	else if (!s->full)
		reserve_keep(s);
}

/*
 * Adds to a batch what is not a client's.  In a client's batch compaction goes
 * along; batches of its own it has at a bounded rate.
 */
static void
housekeep(uint64_t now)
{
	struct store	*s = &c.store;
	bool		 idle = c.filling.n == 0;
	uint64_t	 bytes;

	if (s->error != ERR_NONE || s->damaged)
		return;
	compact_drop(s, true);
	if (s->batch.moved != 0 || (idle && now < c.move_at && s->held_since == 0))
		return;
	if ((bytes = compact_budget(s, &c.compaction, idle)) == 0)
		return;
	compact_step(s, &c.compaction, bytes, true);
	if (idle && s->batch.moved != 0)
		c.move_at = now + MOVE_US;
}

/* Idle for a while: an empty batch behind the last one, once.  True: it is being written. */
static bool
close_log(uint64_t now)
{
	if (now < c.logged_at + scrub_idle(c.scrub) || !is_quiet() || !batch_close(&c.store))
		return false;
	write_batch();
	return true;
}

/* Nothing is to be written now: for how long, if nothing rings? */
static int64_t
pause_us(enum checkpoint_event e, uint64_t now)
{
	int64_t	us;

	if (e != CHECKPOINT_NOTHING)
		return 0;
	if (c.store.held_since != 0)
		return HOLD_US;
	if (now < c.move_at)
		return (int64_t)(c.move_at - now);
	if (!is_quiet())
		return IDLE_US;
	us = scrub_step(c.scrub, now, c.written_at);
	return us < IDLE_US ? us : IDLE_US;
}

/* Page 0 is the head: read anew, a worker that opens the file now needs it.  Our own mapping may be older. */
static bool
checkpoint_page_ok(struct store *s, uint32_t page)
{
	struct checkpoint	ck;

	if (page != 0)
		return page_whole(&s->w.t, page | PAGE_CHECKPOINT);
	if (checkpoint_open(&ck, s->dirfd, s->ck.head.number, false) == 0) {
		checkpoint_close(&ck);
		return true;
	}
	return errno != EILSEQ && errno != ENOENT && errno != EIO;
}

/*
 * A worker says that a page of the checkpoint is damaged.  It may be mad: we look.
 * With damage in the log the tree is all that knows what was there, and stays.
 */
static void
look_at_page(void)
{
	struct store		*s = &c.store;
	_Atomic(uint64_t)	*word = &c.region->head->bad_page;
	uint64_t		 told;

	/* relaxed: the word is all there is; what it names is in the file */
	if (atomic_load_explicit(word, memory_order_relaxed) == 0)
		return;
	told = atomic_exchange_explicit(word, 0, memory_order_relaxed);
	if (told >> 32 == s->ck.head.number && !s->damaged && s->error == ERR_NONE &&
	    !checkpoint_page_ok(s, (uint32_t)told))
		s->error = ERR_TREE;
}

/*
 * One round: what can be done now is done.  Returns for how long the loop may
 * sleep if nothing rings: microseconds, 0: not at all.
 */
static int64_t
round_once(void)
{
	struct store		*s = &c.store;
	uint64_t		 now, oldest;
	enum checkpoint_event	 e;
	int64_t			 wait;
	unsigned		 here;
	bool			 held;

	c.patience = 1;
	collect();		/* who came while a sync ran is somebody to gather for: before its result is taken */
	finish_sync();
	settle_refusals();	/* before a suspect is looked at: it wants nothing beside it */
	look_at_page();
	now = monotonic_us();
	look_around(now);
	look_at_pins(now);
	oldest = pin_oldest(c.region->pins, c.region->nlanes + 1);
	e = checkpointer_step(c.checkpointer, is_quiet(), oldest, now / 1000);
	if (e == CHECKPOINT_SWITCHED) {
		count_add(c.counts, CC_CHECKPOINTS, 1);
		after_publish();
	}
	/* before anybody is refused for it; a sync may take its time */
	if (s->error == ERR_SYNC)
		tell_state();
	else if (s->error != ERR_NONE)
		on_error();
	/* someone waits for a moment with nothing applied that is not public */
	held = checkpointer_wants_quiet(c.checkpointer, now / 1000) && (s->sealed.is || syncer_busy(c.syncer));
	if (!held)
		fill(!syncer_busy(c.syncer));
	if (s->error != ERR_NONE && s->error != ERR_SYNC)
		on_error();
	unlink_dropped(oldest);
	if (syncer_busy(c.syncer)) {
		c.patience = GATHER_FEW;	/* its end rings */
		return e == CHECKPOINT_NOTHING ? IDLE_US : 0;
	}
	if (!held && !c.alone)
		housekeep(now);
	if (s->error != ERR_NONE && s->error != ERR_SYNC)
		on_error();
	tell_state();
	if (batch_empty(s)) {
		if (!close_log(now))
			return pause_us(e, now);
		return 0;
	}
	here = c.filling.n + queue_length(c.queue);
	wait = c.alone ? 0 : gather_wait(&c.gather, here, monotonic_us());
	if (wait > 0) {
		c.patience = gather_more(&c.gather, here);
		return wait;
	}
	write_batch();
	return 0;
}

/* ------------------------------------------------------------- starting, leaving */

/*
 * Lowest number that is pending on each lane: most records of a tail were answered long ago.
 * And nothing is under work yet: a predecessor that was killed from outside may
 * have left it said so, and a crash of ours must not be laid to those.
 */
static uint64_t	oldest_pending[REGION_LANES];

static void
note_pending(void)
{
	for (unsigned i = 0; i < c.region->nlanes; i++) {
		oldest_pending[i] = UINT64_MAX;
		for (unsigned k = 0; k < LANE_SLOTS; k++) {
			struct lane_slot	*sl = &c.region->lanes[i].slots[k];

			/* acquire: pairs with lane_submit()'s release of state */
			if (atomic_load_explicit(&sl->state, memory_order_acquire) != SLOT_SUBMITTED)
				continue;
			/* relaxed: for the master after our death */
			atomic_store_explicit(&sl->working, 0, memory_order_relaxed);
			if (sl->number < oldest_pending[i])
				oldest_pending[i] = sl->number;
		}
	}
}

static bool
is_found(uint16_t lane, unsigned slot)
{
	for (unsigned i = 0; i < c.syncing.n; i++)
		if (c.syncing.m[i].lane == lane && c.syncing.m[i].slot == slot)
			return true;
	return false;
}

/* Recovery tells of a submission that a predecessor wrote. */
static void
on_found(void *arg, uint16_t lane, uint32_t number, const struct result *r)
{
	(void)arg;
	if (lane >= c.region->nlanes || oldest_pending[lane] == UINT64_MAX ||
	    (int32_t)(number - (uint32_t)oldest_pending[lane]) < 0)
		return;
	for (unsigned i = 0; i < LANE_SLOTS; i++) {
		struct lane_slot	*sl = &c.region->lanes[lane].slots[i];

		if (atomic_load_explicit(&sl->state, memory_order_acquire) != SLOT_SUBMITTED ||
		    (uint32_t)sl->number != number || is_found(lane, i))
			continue;
		if (members_add(&c.syncing, lane, (uint16_t)i, r) == -1)
			proc_panic(__FILE__, __LINE__, "no memory for recovered submissions");
		return;
	}
}

/* Those found are answered from the log; all others come out of the lanes as new. */
static void
answer_found(void)
{
	for (unsigned i = 0; i < c.region->nlanes; i++)
		lane_rescan(&c.lanes[i], &c.region->lanes[i]);
	for (unsigned i = 0; i < c.syncing.n; i++) {
		const struct member	*m = &c.syncing.m[i];

		/* taken: lane_next() does not return it again */
		c.lanes[m->lane].seen[m->slot] = c.region->lanes[m->lane].slots[m->slot].number;
	}
	if (c.syncing.n != 0)
		log_info("%u pending write%s found in the log", c.syncing.n, c.syncing.n == 1 ? " was" : "s were");
	complete_members(&c.syncing, OUT_NONE);
	memset(c.wake, 1, c.region->nlanes);	/* a predecessor may have died before it woke them */
	wake_workers();
}

/*
 * Opening builds in the half of the overlay that the newest root does not use.
 * After two deaths in a row somebody may still be reading an older root there: a
 * pin lasts microseconds, unless its worker is stopped: then that is ended.
 */
static void
wait_for_old_pins(void)
{
	const struct roots	*roots;
	struct pinwatch		*w = &c.pinwatch;
	uint64_t		 newest, since = monotonic_us();
	bool			 told = false;

	/* a predecessor's, of its checkpoint */
	pin_drop(&c.region->pins[c.region->nlanes]);
	roots = mmap(NULL, PAGE_BYTES, PROT_READ, MAP_SHARED, c.boot->region.overlay_fd, 0);
	if (roots == MAP_FAILED)
		fatal("overlay");
	/* acquire: as any reader of it */
	newest = atomic_load_explicit(&roots->newest, memory_order_acquire);
	munmap((void *)(uintptr_t)roots, PAGE_BYTES);
	while (pin_oldest(c.region->pins, c.region->nlanes) < newest) {
		if (boot_stopping)
			exit(0);
		if (!told && monotonic_us() - since > IDLE_US) {
			log_warnx("a worker has been looking at one generation for a second; writes wait for it");
			told = true;
		}
		if (pinwatch_look(w, c.region->pins, c.region->nlanes, newest, monotonic_us()))
			for (unsigned i = 0; i < c.region->nlanes; i++)
				if (w->looks[i] >= c.stuck_opening)
					ask_to_end(i, "all writes wait for it");
		poll(NULL, 0, 1);
	}
}

static bool
is_io_error(int e)
{
	return e != EILSEQ && e != ENOMEM && e != EMFILE && e != ENFILE && e != EAGAIN;
}

/*
 * The log could not be synced or read by a successor: what its predecessor had
 * under way may be on the disk or not, and a later sync that succeeds would
 * prove nothing (F1).  Read-only until the whole server is started anew.
 */
static void
give_up_log(void)
{
	for (unsigned i = 0; i < c.region->nlanes; i++)
		for (unsigned k = 0; k < LANE_SLOTS; k++) {
			struct lane_slot	*sl = &c.region->lanes[i].slots[k];

			/* acquire: pairs with lane_submit()'s release of state; relaxed: read after our death */
			if (atomic_load_explicit(&sl->state, memory_order_acquire) == SLOT_SUBMITTED)
				atomic_store_explicit(&sl->working, 1, memory_order_relaxed);
		}
	sync_failed();
}

static void
open_store(void)
{
	struct store_options	o = {
		.dir = c.boot->dir, .segment_size = c.boot->set.segment_size,
		.region_id = c.region->head->id, .found = on_found,
	};
	uint64_t		t = monotonic_us();

	wait_for_old_pins();
	note_pending();
	if (store_open(&c.store, c.boot->dir_fd, c.boot->region.overlay_fd, &o) == -1) {
		int	errno_open = errno;

		if (c.store.reason[0] == '\0')
			strlcpy(c.store.reason, strerror(errno), sizeof(c.store.reason));
		/* the master tells it whoever started us */
		strlcpy(c.region->head->reason, c.store.reason, sizeof(c.region->head->reason));
		if (is_io_error(errno_open) &&
		    atomic_load_explicit(&c.region->head->published, memory_order_relaxed) != 0)
			give_up_log();
		fatalx("%s: %s", c.boot->dir, c.store.reason);
	}
	store_publish(&c.store);
	batch_look(&c.store);	/* before anybody is told that we are ready */
	c.opened = true;
	count_set(c.counts, CC_RECOVERY_US, monotonic_us() - t);
	log_info("%s: recovered in %llu ms: %u segment%s, %llu bytes of log behind checkpoint %u, seq %llu", c.boot->dir,
	    (unsigned long long)(monotonic_us() - t) / 1000, c.store.log.nseg, log_s(c.store.log.nseg),
	    (unsigned long long)c.store.tail, c.store.ck.head.number, (unsigned long long)c.store.max_seq);
}

/* $HOLDFAST_STUCK (tests): seconds, and hardly any memory. */
static void
setup_pinwatch(void)
{
	const char	*looks = getenv("HOLDFAST_STUCK");

	c.master = getppid();
	c.stuck_looks = STUCK_LOOKS;
	c.stuck_opening = STUCK_OPENING;
	c.stuck_bytes = STUCK_BYTES;
	if (looks != NULL && atoi(looks) > 0) {
		c.stuck_looks = c.stuck_opening = (unsigned)atoi(looks);
		c.stuck_bytes = 128 << 10;
	}
}

static void
setup(const struct boot *b)
{
	struct bell	*bell = &b->region.head->committer_bell;
	int		 keep[REGION_LANES + 8];
	unsigned	 n = 0;

	keep[n++] = b->dir_fd;
	keep[n++] = b->lifeline;
	keep[n++] = b->lock_fd;
	keep[n++] = b->region.overlay_fd;
	if (b->ready_fd != -1)
		keep[n++] = b->ready_fd;
	for (unsigned i = 0; i < b->nlanes; i++)
		keep[n++] = b->wake[i];
	proc_become(IN_COMMITTER, 0);
	crash_setup();
	boot_child(b, keep, n);
	guard_init(GUARD_FILL);
	c.boot = b;
	c.region = (struct region *)(uintptr_t)&b->region;
	c.counts = &b->region.counts[b->nlanes];
	c.lanes = calloc(b->nlanes, sizeof(*c.lanes));
	c.queue = queue_create(b->nlanes * LANE_SLOTS);
	c.taken = calloc(b->nlanes, LANE_SLOTS);
	c.syncer = syncer_create(&c.store.log, wake_main, bell, sync_failed);
	c.checkpointer = checkpointer_create(&c.store, &b->region.pins[b->nlanes], wake_main, bell);
	c.scrub = scrub_create(&c.store, c.counts);
	c.written_at = c.logged_at = monotonic_us();
	setup_pinwatch();
	if (c.lanes == NULL || c.queue == NULL || c.taken == NULL || c.syncer == NULL || c.checkpointer == NULL || c.scrub == NULL)
		fatal("committer");
	count_add(c.counts, CC_STARTS, 1);
}

static void
tell_ready(void)
{
	/* relaxed: counts for people, publishes nothing */
	atomic_fetch_add_explicit(&c.region->head->published, 1, memory_order_relaxed);
	if (c.boot->ready_fd == -1)
		return;
	if (write(c.boot->ready_fd, "", 1) == -1 && errno != EPIPE)
		log_warn("telling the master");
	close(c.boot->ready_fd);
}

/* TERM: the workers are gone, finish what they left.  Master dead: the workers have a moment to finish. */
static bool
may_leave(void)
{
	uint64_t	now = monotonic_us();

	/* PDEATHSIG tells at once; asking now and then is for the case that it does not come */
	if (c.leave_at == 0 && (boot_stopping || now >= c.lifeline_at)) {
		c.lifeline_at = now + IDLE_US / 2;
		if (master_is_gone())
			c.leave_at = now + LEAVE_US;
	}
	if (c.leave_at != 0 ? now < c.leave_at : !boot_stopping)
		return false;
	return is_quiet() && queue_length(c.queue) == 0 && !lanes_have_more();
}

/*
 * The same as close_log(), now: the next start is to know that the log's end is its
 * end.  Not behind a dead master: who waits for our leaving is not to wait for a sync as well.
 */
static void
leave_closed(void)
{
	if (c.leave_at != 0 || !batch_close(&c.store))
		return;
	for (write_batch(); syncer_busy(c.syncer); finish_sync())
		if (!syncer_done(c.syncer))
			poll(NULL, 0, 1);
}

/* It may have been in the batch that failed: nobody knows its fate.  Relaxed: written by processes that are dead. */
static bool
was_under_work(struct lane_slot *sl)
{
	return atomic_load_explicit(&sl->working, memory_order_relaxed) != 0 ||
	    atomic_load_explicit(&sl->suspect, memory_order_relaxed) != 0;
}

/* After a failed sync, until the server is started anew: reads go on from what is published, writes are refused. */
static _Noreturn void
refuse_everything(void)
{
	struct result	unknown = { .outcome = OUT_UNKNOWN }, refused = { .outcome = OUT_READONLY };

	log_warnx("%s: read-only after a failed write or sync; restart holdfast to recover", c.boot->dir);
	for (unsigned i = 0; i < c.region->nlanes; i++)
		lane_rescan(&c.lanes[i], &c.region->lanes[i]);
	for (;;) {
		uint32_t	t = bell_arm(&c.region->head->committer_bell), slot;

		for (unsigned i = 0; i < c.region->nlanes; i++)
			while ((slot = lane_next(&c.lanes[i])) != LANE_NONE) {
				complete((uint16_t)i, (uint16_t)slot,
				    was_under_work(&c.region->lanes[i].slots[slot]) ? &unknown : &refused);
			}
		wake_workers();
		if (boot_stopping || master_is_gone())
			exit(0);
		bell_sleep(&c.region->head->committer_bell, t, IDLE_US);
	}
}

static void
sleep_for(int64_t us)
{
	struct bell	*b = &c.region->head->committer_bell;
	uint32_t	 ticket = bell_arm_for(b, c.patience);
	bool		 left;

	/* the master is gone: TERM has come and stays, only the time is waited for */
	if (c.leave_at != 0 && us > LEAVE_US / 10)
		us = LEAVE_US / 10;

	/* look once more: rings before bell_arm() woke nobody */
	left = lanes_have_more() || atomic_load_explicit(&c.region->head->bad_page, memory_order_relaxed) != 0 ||
	    (boot_stopping && c.leave_at == 0) ||
	    (syncer_busy(c.syncer) && syncer_done(c.syncer)) || checkpointer_done(c.checkpointer);
	if (left)
		bell_disarm(b);
	else
		bell_sleep(b, ticket, us);
}

void
committer_main(const struct boot *b)
{
	setup(b);
	if (atomic_load_explicit(&c.region->head->state, memory_order_acquire) == STORE_SYNC_FAILED)
		refuse_everything();
	open_store();
	answer_found();
	tell_state();
	tell_counts();
	tell_ready();
	after_publish();
	proc_settled();
	while (!may_leave()) {
		int64_t	us = round_once();

		if (us != 0)
			sleep_for(us);
	}
	leave_closed();
	scrub_destroy(c.scrub);
	checkpointer_destroy(c.checkpointer);
	syncer_destroy(c.syncer);
	store_close(&c.store);
	exit(0);
}
