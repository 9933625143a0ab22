/*
 * store/pinwatch.h - workers that stand still with a pin.
 *
 * Runs in: committer, tests.
 *
 * A pin lasts for one round of a worker's loop, microseconds.  One that stays is
 * of a process that was stopped, or hangs, and while it stays no page of the
 * overlay and no segment that it may be looking at comes free: without a bound
 * the memory would grow for ever.
 *
 * Time is counted in looks, a second apart at least, of a committer that runs: a
 * machine that was suspended has had one look, however long it slept.  A pin
 * that is older than the newest generation, and the same at the next look, was not
 * dropped in between: whoever pins, pins the newest.
 */
#ifndef STORE_PINWATCH_H
#define STORE_PINWATCH_H
#include <stdbool.h>
#include <stdint.h>
#include "shm/region.h"

struct pinwatch {		/* all zero: nothing seen yet */
	uint64_t	look_at;		/* monotonic us: not before */
	uint64_t	gen[REGION_LANES];	/* the pin that was seen; 0: none, or of the newest */
	unsigned	looks[REGION_LANES];	/* ... in a row */
};

/* A look, where it is time for one (true).  `newest`: the generation published last. */
bool	pinwatch_look(struct pinwatch *, const struct pin *, unsigned nlanes, uint64_t newest, uint64_t now_us);

#endif
