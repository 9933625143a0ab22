/*
 * shm/lane.c - see shm/lane.h.
 *
 * Runs in: worker (attach, submit, collect, arm), committer (rescan, next,
 *          complete), master (blame).
 *
 * The rings are hints.  Between two deaths each slot is named at most once, and
 * they cannot run over.  After a death slots are named again; then they might,
 * and the writer never looks whether there is room: the reader finds out.
 */
#include "config.h"
#include <sched.h>
#include <string.h>
#include "shm/lane.h"
#include "shm/proc.h"

_Static_assert((LANE_SLOTS & (LANE_SLOTS - 1)) == 0, "cursors wrap");
_Static_assert(LANE_SLOTS <= UINT16_MAX, "the rings hold 16 bit");

/* Entries may be written while they are read: the compiler's atomics, on memory that is not declared so. */
static void
ring_put(uint16_t *ring, _Atomic(uint32_t) *head, unsigned slot)
{
	uint32_t	h = atomic_load_explicit(head, memory_order_relaxed);

	/* release: the cursor's last move before this entry; pairs with the fence in ring_take() (I2) */
	atomic_thread_fence(memory_order_release);
	__atomic_store_n(&ring[h % LANE_SLOTS], (uint16_t)slot, __ATOMIC_RELAXED);
	/* release: slot and entry before the cursor; pairs with the acquire in ring_take() (I2) */
	atomic_store_explicit(head, h + 1, memory_order_release);
}

/*
 * The next entry; LANE_NONE where there is none.  Where the entry may have been
 * overwritten since, all are thrown away and *scan says to look at each slot.
 */
static uint32_t
ring_take(const uint16_t *ring, const _Atomic(uint32_t) *head, _Atomic(uint32_t) *tail, uint32_t *scan)
{
	uint32_t	slot, t = atomic_load_explicit(tail, memory_order_relaxed);

	/* acquire: pairs with the release store in ring_put() (I2) */
	if (atomic_load_explicit(head, memory_order_acquire) == t)
		return LANE_NONE;
	slot = __atomic_load_n(&ring[t % LANE_SLOTS], __ATOMIC_RELAXED);
	/* the entry before the second look at the cursor: pairs with the fence in ring_put() (I2) */
	atomic_thread_fence(memory_order_acquire);
	if (atomic_load_explicit(head, memory_order_relaxed) - t >= LANE_SLOTS) {
		/* acquire: what the scan does not find was named behind this cursor */
		t = atomic_load_explicit(head, memory_order_acquire) - 1;
		*scan = LANE_SLOTS;
		slot = LANE_NONE;
	}
	/* relaxed: our own cursor, nobody else looks at it */
	atomic_store_explicit(tail, t + 1, memory_order_relaxed);
	return slot;
}

/* acquire: what was stored before the state is there; pairs with the release stores of state (I1) */
static uint32_t
slot_state(const struct lane_slot *s)
{
	return atomic_load_explicit(&s->state, memory_order_acquire);
}

/* --- worker ------------------------------------------------------------ */

void
lane_attach(struct lane_worker *w, struct lane *lane, void (*orphan)(void *, unsigned), void *arg)
{
	uint32_t	state;
	unsigned	i;

	RUNS_IN(IN_WORKER | IN_TEST);
	w->lane = lane;
	w->nfree = 0;
	w->scan = LANE_SLOTS;
	atomic_store_explicit(&lane->worker_sleeps, 0, memory_order_relaxed);
	/* acquire: what was done before is found by the scan, what comes later is in the ring */
	atomic_store_explicit(&lane->done_tail,
	    atomic_load_explicit(&lane->done_head, memory_order_acquire), memory_order_relaxed);
	for (i = LANE_SLOTS; i-- > 0;) {
		if ((state = slot_state(&lane->slots[i])) == SLOT_FREE) {
			w->free[w->nfree++] = (uint16_t)i;	/* slot 0 comes last and is taken first */
			continue;
		}
		if (state == SLOT_SUBMITTED)	/* our predecessor may have died before it did */
			ring_put(lane->sub_ring, &lane->sub_head, i);
		if (orphan != NULL)
			orphan(arg, i);
	}
}

uint64_t
lane_peek_number(const struct lane_worker *w)
{
	/* relaxed: one writer, ourselves (a predecessor's stores came before the fork) */
	return atomic_load_explicit(&w->lane->next_number, memory_order_relaxed) + 1;
}

uint32_t
lane_submit(struct lane_worker *w, uint32_t submit_off, uint64_t *number)
{
	struct lane_slot	*s;
	unsigned		 slot;
	uint64_t		 n;

	RUNS_IN(IN_WORKER | IN_TEST);
	if (w->nfree == 0)
		return LANE_NONE;
	slot = w->free[--w->nfree];
	s = &w->lane->slots[slot];
	n = lane_peek_number(w);
	/* the number is used up before anybody sees it: death in between skips one, never repeats one (I3) */
	atomic_store_explicit(&w->lane->next_number, n, memory_order_relaxed);
	s->number = n;
	s->number_lo = (uint32_t)n;
	s->submit = submit_off;
	s->outcome = OUT_NONE;
	s->seq = s->time_ms = 0;
	s->run = 0;
	atomic_store_explicit(&s->suspect, 0, memory_order_relaxed);
	atomic_store_explicit(&s->working, 0, memory_order_relaxed);
	/* release: slot and arena are filled; pairs with slot_state() in the committer (I1) */
	atomic_store_explicit(&s->state, SLOT_SUBMITTED, memory_order_release);
	ring_put(w->lane->sub_ring, &w->lane->sub_head, slot);
	*number = n;
	return slot;
}

/* Takes the result out of a slot that has one. */
static bool
take_result(struct lane_worker *w, unsigned slot, struct lane_result *r)
{
	struct lane_slot	*s;

	if (slot >= LANE_SLOTS || w->nfree == LANE_SLOTS)
		return false;
	s = &w->lane->slots[slot];
	if (slot_state(s) != SLOT_DONE)
		return false;
	*r = (struct lane_result){
		.slot = slot,
		.number = s->number,
		.submit = s->submit,
		.outcome = (enum outcome)s->outcome,
		.seq = s->seq,
		.time_ms = s->time_ms,
		.run = s->run,
	};
	/* release: the result was read; pairs with slot_state() of a successor (I1) */
	atomic_store_explicit(&s->state, SLOT_FREE, memory_order_release);
	w->free[w->nfree++] = (uint16_t)slot;
	return true;
}

bool
lane_collect(struct lane_worker *w, struct lane_result *r)
{
	struct lane	*lane = w->lane;
	uint32_t	 slot;

	RUNS_IN(IN_WORKER | IN_TEST);
	for (;;) {
		slot = ring_take(lane->done_ring, &lane->done_head, &lane->done_tail, &w->scan);
		if (slot == LANE_NONE) {
			if (w->scan == 0)
				return false;
			slot = --w->scan;
		}
		if (take_result(w, slot, r))
			return true;
	}
}

bool
lane_pending_done(const struct lane_worker *w)
{
	/* acquire: pairs with the release in ring_put() (I2) */
	return w->scan > 0 || atomic_load_explicit(&w->lane->done_head, memory_order_acquire) !=
	    atomic_load_explicit(&w->lane->done_tail, memory_order_relaxed);
}

bool
lane_arm(struct lane_worker *w)
{
	/* relaxed: a hint */
	atomic_store_explicit(&w->lane->worker_cpu, (uint32_t)sched_getcpu(), memory_order_relaxed);
	atomic_store_explicit(&w->lane->worker_sleeps, 1, memory_order_relaxed);
	/* the announcement before the look for work: pairs with the fence in lane_complete() (I4) */
	atomic_thread_fence(memory_order_seq_cst);
	return !lane_pending_done(w);
}

void
lane_disarm(struct lane_worker *w)
{
	/* relaxed: a committer that still sees 1 writes the eventfd once too often */
	atomic_store_explicit(&w->lane->worker_sleeps, 0, memory_order_relaxed);
}

/* --- committer --------------------------------------------------------- */

void
lane_rescan(struct lane_reader *r, struct lane *lane)
{
	unsigned	i;

	RUNS_IN(IN_COMMITTER | IN_TEST);
	memset(r, 0, sizeof(*r));
	r->lane = lane;
	r->scan = LANE_SLOTS;
	/* acquire: what was submitted before is found by the scan, what comes later is in the ring */
	atomic_store_explicit(&lane->sub_tail,
	    atomic_load_explicit(&lane->sub_head, memory_order_acquire), memory_order_relaxed);
	for (i = 0; i < LANE_SLOTS; i++)
		if (slot_state(&lane->slots[i]) == SLOT_DONE)
			ring_put(lane->done_ring, &lane->done_head, i);
}

/* True the first time that this submission is met. */
static bool
is_new(struct lane_reader *r, unsigned slot)
{
	const struct lane_slot	*s;
	uint64_t		 number;

	if (slot >= LANE_SLOTS)
		return false;
	s = &r->lane->slots[slot];
	if (slot_state(s) != SLOT_SUBMITTED || (number = s->number) == r->seen[slot])
		return false;
	r->seen[slot] = number;
	return true;
}

uint32_t
lane_next(struct lane_reader *r)
{
	struct lane	*lane = r->lane;
	uint32_t	 slot;
	unsigned	 steps;

	RUNS_IN(IN_COMMITTER | IN_TEST);
	/* no worker in its senses has more to look at; one gone mad is looked at again next time */
	for (steps = 0; steps < 2 * LANE_SLOTS; steps++) {
		slot = ring_take(lane->sub_ring, &lane->sub_head, &lane->sub_tail, &r->scan);
		if (slot == LANE_NONE) {
			if (r->scan == 0)
				break;
			slot = --r->scan;
		}
		if (is_new(r, slot))
			return slot;
	}
	return LANE_NONE;
}

bool
lane_has_next(const struct lane_reader *r)
{
	/* acquire: pairs with the release in ring_put() (I2) */
	return r->scan > 0 || atomic_load_explicit(&r->lane->sub_head, memory_order_acquire) !=
	    atomic_load_explicit(&r->lane->sub_tail, memory_order_relaxed);
}

bool
lane_complete(struct lane_reader *r, unsigned slot, enum outcome outcome,
    uint64_t seq, uint32_t run, uint64_t time_ms)
{
	struct lane		*lane = r->lane;
	struct lane_slot	*s;

	RUNS_IN(IN_COMMITTER | IN_TEST);
	if (slot >= LANE_SLOTS)
		proc_panic(__FILE__, __LINE__, "slot < LANE_SLOTS");
	s = &lane->slots[slot];
	s->outcome = outcome;
	s->seq = seq;
	s->run = run;
	s->time_ms = time_ms;
	atomic_store_explicit(&s->working, 0, memory_order_relaxed);
	/* release: the result is stored; pairs with slot_state() in the worker (I1) */
	atomic_store_explicit(&s->state, SLOT_DONE, memory_order_release);
	ring_put(lane->done_ring, &lane->done_head, slot);
	/* the work before the look at the sleeper: pairs with the fence in lane_arm() (I4) */
	atomic_thread_fence(memory_order_seq_cst);
	return atomic_load_explicit(&lane->worker_sleeps, memory_order_relaxed) != 0;
}

/* --- master ------------------------------------------------------------ */

void
lane_blame(struct lane *lane)
{
	struct lane_slot	*s;
	uint32_t		 n;
	unsigned		 i;

	RUNS_IN(IN_MASTER | IN_TEST);
	for (i = 0; i < LANE_SLOTS; i++) {
		s = &lane->slots[i];
		if (slot_state(s) != SLOT_SUBMITTED || atomic_load_explicit(&s->working, memory_order_relaxed) == 0)
			continue;
		/* relaxed: no committer lives, the next one is forked later */
		n = atomic_load_explicit(&s->suspect, memory_order_relaxed);
		atomic_store_explicit(&s->suspect, n + 1, memory_order_relaxed);
		atomic_store_explicit(&s->working, 0, memory_order_relaxed);
	}
}
