/*
 * store/gather.h - how long a batch waits for more writers before its sync.
 *
 * Runs in: committer, tests.  Pure: times are given, none are read.
 *
 * Plain group commit serves half of the waiting writers per sync: while one
 * half is being synced the other half's next writes are on their way.  So the
 * batch waits for the writers that were just answered: a third of the last
 * sync, counted from the answer, and where they are many then a sixth at a time
 * for as long as they keep coming at a rate that pays, no longer than a sync in
 * all, nor than GATHER_MOST_US.  Not for a lone writer: whoever was answered alone
 * is not waited for by anybody else than those who are here already.
 *
 * Where syncs are fast, few are not waited for, and many for what a batch costs
 * beside its sync, some ten writes' work: then a sync at a time, three in all.
 */
#ifndef STORE_GATHER_H
#define STORE_GATHER_H
#include <stdbool.h>
#include <stdint.h>

#define GATHER_FEW	16u	/* writers that are not worth a wake-up of their own, nor more than a third of a sync */
#define GATHER_MOST_US	20000	/* waited at most: one sync that took seconds says nothing about the next */
#define GATHER_FAST_US	300	/* shorter syncs are fast: only many are waited for */
#define GATHER_LEAST_US	20	/* shorter ones are not waited for at all */
#define GATHER_FAST_SYNCS 3u	/* waited for at most, where they are fast ... */
#define GATHER_FAST_PART 8u	/* ... while in each one of so many of those who are here comes */

struct gather {			/* all zero: start */
	unsigned	expect;		/* writers that are probably about: answered, and already waiting then */
	unsigned	seen;		/* of them here when the stage began */
	bool		fast;		/* the last sync was */
	uint64_t	sync_us;	/* it; 0: nobody is waited for */
	uint64_t	stage_us;	/* length of this stage */
	uint64_t	until_us;	/* monotonic; when it ends */
	uint64_t	latest_us;	/* wait no longer, whoever comes */
	uint64_t	moved;		/* committer: bytes compaction moved in the batch being synced */
};

/* A batch was answered: `answered` writers; `waiting` others were there already. */
void	gather_answered(struct gather *, unsigned answered, unsigned waiting, uint64_t sync_us, uint64_t now_us);
/* All who are probably about are among the `here` writers of the batch. */
bool	gather_all(const struct gather *, unsigned here);
/*
 * With how many more it pays to wake up while waiting: each wake-up is worth
 * some twenty writes' work, often on the CPU that the workers need.  Half of
 * those who are missing, so that most are worked on while the others come.
 */
unsigned gather_more(const struct gather *, unsigned here);
/* Microseconds to wait on with `here` writers in the batch; 0: sync now.  Begins the next stage where one ends. */
int64_t	gather_wait(struct gather *, unsigned here, uint64_t now_us);

#endif
