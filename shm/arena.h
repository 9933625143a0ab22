/*
 * shm/arena.h - memory for what was received and is not yet committed.
 *
 * Runs in: worker (take, free), committer (reads), master (none).
 * Owns:    the arena part of the region: granules of 4 KiB and one owner byte
 *          for each, and the counters of the input budget.
 *
 * One byte is the whole state of a granule: 0 free, lane + 1 taken.  Taking is
 * one compare-and-swap 0 -> lane + 1, freeing one release store of 0, so a
 * worker that dies at any instruction leaves only whole states; its successor
 * on the lane frees what no pending submission needs (arena_reclaim).  There
 * is no free list that could be left half linked (F37, F40).
 *
 * The budget is separate from the granules: bytes are reserved first (the
 * announced length, rounded up), so that a granule taken under a reservation
 * is always there.  Reserving adds to the lane's own counter with a full fence
 * and then sums all lanes: of two lanes that overshoot together at least one
 * sees it.  One tenant holds half at most; tenants are counted in
 * ARENA_TENANTS buckets by id (two that share one share the half).
 */
#ifndef SHM_ARENA_H
#define SHM_ARENA_H
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ARENA_GRANULE	4096u
#define ARENA_RUN_MAX	16u	/* granules in one run: 64 KiB */
#define ARENA_TENANTS	1024u
#define ARENA_NONE	0u	/* no offset: offset 0 of the region is its header */

struct arena_lane {	/* one per lane, in the region; W: the lane's worker  R: all workers */
	_Alignas(64) _Atomic(uint64_t) reserved;		/* bytes, all tenants */
	_Alignas(64) _Atomic(uint32_t) granules[ARENA_TENANTS];	/* reserved granules by tenant bucket */
};

struct arena {		/* private to each process: where things are */
	uint8_t			*base;		/* the region; offsets count from here */
	uint64_t		 first;		/* offset of granule 0, ARENA_GRANULE aligned */
	uint32_t		 ngranules;
	_Atomic(uint8_t)	*owner;		/* [ngranules] */
	struct arena_lane	*lanes;		/* [nlanes] */
	unsigned		 nlanes;
	uint32_t		 hint;		/* private: where to look next */
};

/*
 * Reserves room for `bytes` (rounded up to granules) for `tenant`.
 * false: the budget or the tenant's half is exhausted; nothing is reserved.
 */
bool		arena_reserve(struct arena *, unsigned lane, uint32_t tenant, uint64_t bytes);
void		arena_release(struct arena *, unsigned lane, uint32_t tenant, uint64_t bytes);
/* Bytes reserved by all lanes. */
uint64_t	arena_reserved(const struct arena *);

/*
 * Takes a run of up to `want` granules (1..ARENA_RUN_MAX), at least one.
 * Returns the offset of the first and stores how many it got, or ARENA_NONE
 * where not one is free (cannot happen under a reservation).
 */
uint32_t	arena_take(struct arena *, unsigned lane, unsigned want, unsigned *got);
void		arena_free(struct arena *, unsigned lane, uint32_t off, unsigned n);

/* NULL if off..off+len is not inside the granules; every offset read from shared memory goes through here. */
void		*arena_at(const struct arena *, uint32_t off, size_t len);

/*
 * A new worker on the lane: frees all granules of the lane for which keep(off)
 * is false.  The lane's reserved bytes become those of the granules kept (in
 * one store: no other lane sees less), its tenant counters 0: submit_adopt()
 * adds each kept submission to its tenant again.
 */
void		arena_reclaim(struct arena *, unsigned lane, bool (*keep)(void *, uint32_t off), void *);
/* For submit_adopt(): counts granules under the tenant, whatever the limits say. */
void		arena_adopt(struct arena *, unsigned lane, uint32_t tenant, uint64_t bytes);

#endif
