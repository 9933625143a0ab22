/*
 * store/gather.c - see store/gather.h.
 *
 * Runs in: committer, tests.
 */
#include "config.h"

#include "store/gather.h"

void
gather_answered(struct gather *g, unsigned answered, unsigned waiting, uint64_t sync_us, uint64_t now_us)
{
	uint64_t	third = sync_us / 3;

	g->expect = answered + waiting;
	g->until_us = sync_us < GATHER_FAST_US ? 0 : now_us + (third < GATHER_MOST_US ? third : GATHER_MOST_US);
}

bool
gather_all(const struct gather *g, unsigned here)
{
	return here >= g->expect;
}

unsigned
gather_more(const struct gather *g, unsigned here)
{
	unsigned	missing = gather_all(g, here) ? 1 : g->expect - here;

	return missing > GATHER_FEW ? missing / 2 : missing;
}

int64_t
gather_wait(const struct gather *g, unsigned here, uint64_t now_us)
{
	if (gather_all(g, here) || now_us >= g->until_us)
		return 0;
	return (int64_t)(g->until_us - now_us);
}
