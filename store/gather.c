/*
 * store/gather.c - see store/gather.h.
 *
 * Runs in: committer, tests.
 */
#include "config.h"

#include "store/gather.h"

static uint64_t
at_most(uint64_t us)
{
	return us < GATHER_MOST_US ? us : GATHER_MOST_US;
}

void
gather_answered(struct gather *g, unsigned answered, unsigned waiting, uint64_t sync_us, uint64_t now_us)
{
	g->expect = answered + waiting;
	g->seen = waiting;
	g->fast = sync_us < GATHER_FAST_US;
	if (sync_us < GATHER_LEAST_US || (g->fast && g->expect <= GATHER_FEW))
		sync_us = 0;
	g->sync_us = sync_us;
	g->stage_us = at_most(sync_us / 3);
	g->until_us = now_us + g->stage_us;
	g->latest_us = now_us + at_most(g->fast ? GATHER_FAST_SYNCS * sync_us : sync_us);
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

/*
 * A stage is over.  Those who are here wait for the others as long as a stage
 * takes; whoever comes within it is spared a sync.  Where syncs are fast it is
 * the work of a batch that is spared, and the others use the time: they come as
 * fast as there is a CPU for them.  Of few writers a turn is short: those who
 * are not here by now are slow ones, and whoever came at once says nothing about them.
 */
static bool
still_coming(const struct gather *g, unsigned here)
{
	if (g->expect <= GATHER_FEW || here <= g->seen)
		return false;
	if (g->fast)
		return (here - g->seen) * GATHER_FAST_PART >= here;
	return (here - g->seen) * g->sync_us >= here * g->stage_us;
}

int64_t
gather_wait(struct gather *g, unsigned here, uint64_t now_us)
{
	if (gather_all(g, here))
		return 0;
	if (now_us >= g->until_us) {
		if (now_us >= g->latest_us || !still_coming(g, here))
			return 0;
		g->seen = here;
		g->stage_us = at_most(g->fast ? g->sync_us : g->sync_us / 6);
		g->until_us = now_us + g->stage_us;
		if (g->until_us > g->latest_us)
			g->until_us = g->latest_us;
	}
	return (int64_t)(g->until_us - now_us);
}
