/*
 * shm/lane.h - the lane: how a worker hands writes to the committer.
 *
 * Runs in: worker (submit, collect: its own lane), committer (next, complete).
 * Owns:    LANE_SLOTS slots and two rings of slot numbers in the region, per lane.
 *
 *	FREE --submit--> SUBMITTED --complete--> DONE --collect--> FREE
 *	 worker           worker    committer            worker
 *
 * The slot's state word is the truth, one atomic store moves it, and whoever
 * dies in between leaves the old state or the new.  The rings only say where
 * to look.  A new committer throws the submission ring away and scans the
 * slots (lane_rescan), a new worker does the same with the other (lane_attach);
 * both name to the other side again what their predecessor may have left
 * unnamed.  A slot that was being filled is FREE: a torn submission does not
 * exist.  A number that is named twice is taken once; a ring that runs over
 * because of such names is noticed by its reader, which scans the slots.
 *
 * Numbers count up for ever on a lane, over worker and committer deaths: the
 * log names (region id, lane, number), and that is how a new committer knows
 * what its predecessor had already made durable.
 *
 * Sequence: worker: fill, state = SUBMITTED (release), ring it.  committer:
 * read the ring (acquire), read the slot.  The way back is the mirror image.
 */
#ifndef SHM_LANE_H
#define SHM_LANE_H
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define LANE_SLOTS	1024u	/* writes under way per worker; a power of two */
#define LANE_NONE	UINT32_MAX

enum slot_state { SLOT_FREE = 0, SLOT_SUBMITTED = 1, SLOT_DONE = 2 };

/* How a write ended; what HTTP makes of it is the worker's business. */
enum outcome {
	OUT_NONE = 0,
	OUT_CREATED,		/* durable; seq, run, time_ms are the new version's */
	OUT_REPLACED,		/* durable; likewise */
	OUT_DELETED,		/* durable */
	OUT_ABSENT,		/* nothing there to delete (or: no such tenant) */
	OUT_CONDITION,		/* a condition failed; seq, run: the current version, seq 0: none */
	OUT_CONFLICT,		/* would make a name both document and folder */
	OUT_NO_TENANT,		/* the tenant is gone since the worker looked */
	OUT_FULL,		/* no room on the disk; nothing was written */
	OUT_QUOTA,		/* reserved: over the tenant's quota */
	OUT_READONLY,		/* the store takes no writes (damaged, sync failed); nothing was written */
	OUT_UNKNOWN,		/* could not be made durable: happened whole or not at all */
	OUT_POISON,		/* two committers crashed on it: not tried again */
	OUT_TOO_LARGE,		/* the record does not fit the store's limits */
	OUT_DAMAGED,		/* what is stored of the tenant is damaged; nothing was written */
};

struct lane_slot {
	_Alignas(64) _Atomic(uint32_t) state;	/* W: as above  R: both */
	uint32_t	number_lo;	/* W: worker */
	uint64_t	number;		/* W: worker; 1.. on this lane */
	uint32_t	submit;		/* W: worker; offset of its struct submit in the arena */
	_Atomic(uint32_t) suspect;	/* W: committer, master: committer crashes while this was under work */
	_Atomic(uint32_t) working;	/* W: committer: under work now */
	uint32_t	outcome;	/* W: committer, before DONE */
	uint64_t	seq;		/* W: committer, before DONE */
	uint64_t	time_ms;	/* W: committer, before DONE */
	uint32_t	run;		/* W: committer, before DONE */
	uint32_t	pad;
};
_Static_assert(sizeof(struct lane_slot) == 64, "a slot is a cache line");

struct lane {		/* in the region, one per worker */
	_Alignas(64) _Atomic(uint32_t) sub_head;	/* W: worker  R: committer */
	_Atomic(uint64_t) next_number;			/* W: worker; survives it */
	_Alignas(64) _Atomic(uint32_t) sub_tail;	/* W: committer */
	_Alignas(64) _Atomic(uint32_t) done_head;	/* W: committer  R: worker */
	_Alignas(64) _Atomic(uint32_t) done_tail;	/* W: worker */
	_Alignas(64) _Atomic(uint32_t) worker_sleeps;	/* W: worker: 1 around its epoll_wait  R: committer */
	_Atomic(uint32_t) worker_cpu;			/* W: worker: where it went to sleep  R: committer */
	_Alignas(64) uint16_t	 sub_ring[LANE_SLOTS];	/* W: worker */
	uint16_t		 done_ring[LANE_SLOTS];	/* W: committer */
	struct lane_slot	 slots[LANE_SLOTS];
};

/* --- worker ------------------------------------------------------------ */

struct lane_worker {	/* private to the worker */
	struct lane	*lane;
	uint16_t	 free[LANE_SLOTS];	/* LIFO: few slots are touched */
	unsigned	 nfree;
	uint32_t	 scan;			/* slots still to be looked at after a start */
	int		 committer_wakes;	/* eventfd the committer writes */
};

/*
 * Attaches to the lane, also after a predecessor died.  For each slot the
 * predecessor left SUBMITTED or DONE calls orphan(arg, slot index): it will
 * come out of lane_collect() like any other, number unknown to this worker.
 * SUBMITTED ones are named to the committer again: ring its bell afterwards.
 */
void	lane_attach(struct lane_worker *, struct lane *, void (*orphan)(void *, unsigned), void *arg);

/*
 * Hands over a submission built in the arena.  Returns the slot index and
 * stores the number, or LANE_NONE where all slots are under way (try again
 * after a collect).  The caller rings the committer's bell once per loop round.
 */
uint32_t	lane_submit(struct lane_worker *, uint32_t submit_off, uint64_t *number);

/* The number the next lane_submit() will give: submit_number() wants it before. */
uint64_t	lane_peek_number(const struct lane_worker *);

struct lane_result {
	unsigned	slot;
	uint64_t	number;
	uint32_t	submit;
	enum outcome	outcome;
	uint64_t	seq;
	uint64_t	time_ms;
	uint32_t	run;
};
/*
 * Next finished submission: copies the result, frees the slot, true.  The
 * arena part is the caller's to free afterwards.  A slot that a dying
 * committer named twice is returned once.
 */
bool	lane_collect(struct lane_worker *, struct lane_result *);
/* True where lane_collect() would find something: looked at before sleeping. */
bool	lane_pending_done(const struct lane_worker *);
/*
 * Around epoll_wait: lane_arm() announces the sleep (full fence) and looks
 * once more: false where there is something to collect, so do not sleep.
 * lane_disarm() in either case afterwards.
 */
bool	lane_arm(struct lane_worker *);
void	lane_disarm(struct lane_worker *);

/* --- committer --------------------------------------------------------- */

/* The CPU that the lane's worker last went to sleep on: a hint, it may wake elsewhere. */
static inline unsigned
lane_worker_cpu(const struct lane *l)
{
	/* relaxed: a hint */
	return atomic_load_explicit(&l->worker_cpu, memory_order_relaxed);
}

/*
 * Master, while no committer lives: its predecessor crashed, so each slot that
 * was under work gets one more `suspect` and is under work no longer.
 */
void		lane_blame(struct lane *);

struct lane_reader {	/* private to the committer */
	struct lane	*lane;
	uint64_t	 seen[LANE_SLOTS];	/* number last taken from this slot: never taken twice */
	uint32_t	 scan;			/* slots still to be looked at after a start */
};

/*
 * A new committer: forgets the ring, will return every SUBMITTED slot once,
 * in no particular order (sort by number where that matters), and names every
 * DONE one to the worker again: wake it afterwards.
 */
void		lane_rescan(struct lane_reader *, struct lane *);
/* Next submission not seen yet: slot index, or LANE_NONE. */
uint32_t	lane_next(struct lane_reader *);
bool		lane_has_next(const struct lane_reader *);
/*
 * Publishes the result: outcome, seq, run, time_ms are stored, then the state
 * (release), then the slot number goes into the done ring.  Returns true where
 * the worker sleeps and must be woken by its eventfd (the caller does that once
 * per batch and lane).
 */
bool		lane_complete(struct lane_reader *, unsigned slot, enum outcome,
		    uint64_t seq, uint32_t run, uint64_t time_ms);

#endif
