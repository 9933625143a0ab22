/*
 * store/guard.h - reading a mapped file whose pages the disk does not give.
 *
 * Runs in: worker, committer, tools, tests.
 *
 * A load from a mapping is a SIGBUS where the disk fails, or where the file has
 * become shorter beneath it (F34).  There are two answers to it:
 *
 * GUARD_JUMP, the worker's: what reads a mapping does it between guard_enter()
 * and guard_leave(), and comes out of guard_enter() a second time if a page is
 * not there.  Nothing that must be undone may be begun in between.  One thread.
 *
 *	if (guard_enter())
 *		return unreadable(guard_address());
 *	...					(in a function of its own: setjmp(3)
 *	guard_leave();				 and local variables do not mix)
 *
 * GUARD_FILL, the committer's, which must not leave a change half made: zeros
 * are mapped in place of the page, the log is told file and offset, and the
 * count grows.  A checksum over it then fails by itself.  Who draws any other
 * conclusion from what was read (it is absent, it ends here) asks first
 * whether the count has moved since.  Any thread.
 *
 * Only files named log-* and tree-* are treated so: a SIGBUS elsewhere, or one
 * that was sent, ends the process as always.
 */
#ifndef STORE_GUARD_H
#define STORE_GUARD_H
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum guard_mode { GUARD_JUMP, GUARD_FILL };

/* For good.  GUARD_FILL reads /proc/self/maps, at each page: without /proc such a page ends the process. */
void	guard_init(enum guard_mode);

/* --- GUARD_JUMP ---------------------------------------------------------------- */

extern sigjmp_buf		guard_env;
extern volatile sig_atomic_t	guard_armed;

/* false: go on, guarded.  true, later: a page was not there. */
#define guard_enter()	(guard_armed = 1, sigsetjmp(guard_env, 0) != 0)

static inline void
guard_leave(void)
{
	/* no load may sink below this */
	atomic_signal_fence(memory_order_seq_cst);
	guard_armed = 0;
}

/* Where, after guard_enter() returned true. */
const void	*guard_address(void);

/* --- GUARD_FILL ---------------------------------------------------------------- */

/* Pages replaced so far, by all threads. */
uint64_t	 guard_filled(void);
/* How many of these were of a checkpoint (tree-*); the others are the log's. */
uint64_t	 guard_filled_tree(void);

#endif
