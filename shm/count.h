/*
 * shm/count.h - counters that outlive the process that counted.
 *
 * Runs in: worker and committer (their own block), any process (sums).
 * Owns:    one block per lane and one for the committer, in the region.
 *
 * One writer per block, so an increment is a plain relaxed load and store.
 * Blocks are never reset while the region lives: every sum is monotonic over
 * deaths and respawns (F123).  Labelled by lane, not by pid (F124).
 */
#ifndef SHM_COUNT_H
#define SHM_COUNT_H
#include <stdatomic.h>
#include <stdint.h>

enum count_worker {
	CW_CONNECTIONS, CW_OPEN, CW_REQUESTS, CW_2XX, CW_3XX, CW_4XX, CW_5XX,
	CW_BYTES_IN, CW_BYTES_OUT, CW_GETS, CW_WRITES, CW_BUDGET_REFUSED, CW_CLOSED_FOR_ROOM,
	CW_DAMAGED_READS, CW__N
};
enum count_committer {
	CC_BATCHES, CC_WRITES, CC_REFUSED, CC_SYNCS, CC_SYNC_US, CC_SYNC_LAST_US, CC_BYTES_LOGGED, CC_BYTES_MOVED,
	CC_CHECKPOINTS, CC_SEGMENTS, CC_SEGMENT_BYTES, CC_LIVE_BYTES, CC_DOCUMENTS, CC_BYTES, CC_OVERLAY_PAGES,
	CC_SEQ, CC_RECOVERY_US, CC_STARTS, CC_DAMAGED, CC_DISK_FREE, CC_INODES_FREE,
	CC_SCRUB_PASSES, CC_SCRUB_BYTES, CC_SCRUB_DAMAGED, CC__N
};

struct count_block {
	_Alignas(64) _Atomic(uint64_t) v[32];	/* W: its process  R: any */
};
_Static_assert(CW__N <= 32 && CC__N <= 32, "the block has room");
_Static_assert(sizeof(struct count_block) == 256, "the layout is a protocol");

/* Relaxed: a counter publishes nothing but itself, and has one writer. */
static inline void
count_add(struct count_block *b, unsigned i, uint64_t n)
{
	uint64_t	v = atomic_load_explicit(&b->v[i], memory_order_relaxed);

	atomic_store_explicit(&b->v[i], v + n, memory_order_relaxed);
}

static inline void
count_set(struct count_block *b, unsigned i, uint64_t n)
{
	atomic_store_explicit(&b->v[i], n, memory_order_relaxed);
}

static inline uint64_t
count_get(const struct count_block *b, unsigned i)
{
	return atomic_load_explicit(&b->v[i], memory_order_relaxed);
}
#endif
