/*
 * worker/timer.h - time-outs: a queue per class, because each class has one length.
 *
 * Runs in: worker.
 * Owns:    which queue a connection is in, and since when.
 *
 * All connections of a class wait equally long, so a queue is in order when
 * each newcomer goes to its end; there is nothing to search.  A request moves
 * its connection to the end of TIMER_IDLE, which is a handful of stores to
 * neighbours that are about to be served, too; so that queue is always the
 * exact answer to "who is idle for longest".
 */
#ifndef WORKER_TIMER_H
#define WORKER_TIMER_H
#include <bsd/sys/queue.h>
#include <stdbool.h>
#include <stdint.h>

enum timer_class {
	TIMER_NONE,
	TIMER_IDLE,	/* between requests; closes quietly */
	TIMER_HEAD,	/* from a head's first byte to its last: 408 */
	TIMER_BODY,	/* a body's least progress, again and again: 408 */
	TIMER_WRITE,	/* an answer that is not read */
	TIMER_LINGER,	/* reading what a client sends behind the last answer */
	TIMER__N
};

struct conn;
TAILQ_HEAD(timer_queue, conn);

struct timers {
	struct timer_queue	 q[TIMER__N];
	uint64_t		 ms[TIMER__N];
	uint64_t		 next;		/* nothing expires before; UINT64_MAX: nothing at all */
};

void	timers_init(struct timers *, const uint64_t ms[TIMER__N]);
/* Puts c into a queue, at its end, whichever it was in before. */
void	timer_start(struct timers *, struct conn *, enum timer_class, uint64_t now);
void	timer_stop(struct timers *, struct conn *);
/* How long a loop may sleep; -1: for ever. */
int	timers_wait(const struct timers *, uint64_t now);
/*
 * One connection whose time is over, NULL where there is none (left).  It
 * stays in its queue until it is started anew or stopped: do one of the two.
 */
struct conn	*timers_expired(struct timers *, uint64_t now);

#endif
