/*
 * master/bury.h - what the master does in shared memory when a child is dead.
 *
 * Runs in: master, with the child reaped: nobody else writes these words now.
 * Owns:    nothing for longer than that.
 *
 * The rest of what a dead process leaves is its successor's to take over:
 * lane_attach() and arena_reclaim() in the worker, lane_rescan() in the
 * committer.  The master stays out of rings and granules.
 */
#ifndef MASTER_BURY_H
#define MASTER_BURY_H
#include <stdbool.h>
#include "shm/region.h"

/* Clears the pin: a dead reader must not hold back pages and segments (F32). */
void	bury_worker(struct region *, unsigned lane);
/*
 * Clears the committer's own pin; READY and FULL become RECOVERING (a failed
 * sync or damage stays what it is for everyone who comes after).  crashed: by
 * its own doing, so what it had under work is suspect (lane_blame).
 */
void	bury_committer(struct region *, bool crashed);
/* SIGSEGV, SIGABRT, SIGBUS, SIGILL, SIGFPE: a kill from outside is no crash. */
bool	bury_is_crash(int wait_status);

#endif
