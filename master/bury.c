/*
 * master/bury.c - see master/bury.h.
 * Runs in: master.
 */
#include "config.h"
#include <sys/wait.h>
#include <signal.h>
#include "master/bury.h"
#include "shm/proc.h"

void
bury_worker(struct region *r, unsigned lane)
{
	RUNS_IN(IN_MASTER | IN_TEST);
	pin_drop(&r->pins[lane]);
}

void
bury_committer(struct region *r, bool crashed)
{
	uint32_t	state;

	RUNS_IN(IN_MASTER | IN_TEST);
	pin_drop(&r->pins[r->nlanes]);
	/* relaxed: its only writer is dead, and waitpid(2) ordered us behind it */
	state = atomic_load_explicit(&r->head->state, memory_order_relaxed);
	if (state == STORE_READY || state == STORE_FULL)
		/* release: pairs with the workers' acquire of state; no other writer lives */
		atomic_store_explicit(&r->head->state, STORE_RECOVERING, memory_order_release);
	if (!crashed)
		return;
	/* relaxed: the next committer is forked behind this */
	atomic_fetch_add_explicit(&r->head->committer_crashes, 1, memory_order_relaxed);
	/* after a failed sync nothing is tried again, and `working` says whose fate is unknown */
	if (state != STORE_SYNC_FAILED)
		for (unsigned i = 0; i < r->nlanes; i++)
			lane_blame(&r->lanes[i]);
}

bool
bury_is_crash(int status)
{
	if (!WIFSIGNALED(status))
		return false;
	switch (WTERMSIG(status)) {
	case SIGSEGV:
	case SIGABRT:
	case SIGBUS:
	case SIGILL:
	case SIGFPE:
		return true;
	default:
		return false;
	}
}
