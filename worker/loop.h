/*
 * worker/loop.h - the event loop: epoll, listeners, rounds.
 *
 * Runs in: worker.
 * Owns:    the epoll set and the listening sockets of this process.
 *
 * Connections are in the set edge-triggered, for everything, from their first
 * round to their end: no call per request.  Listeners are level-triggered:
 * what one round does not accept, the next one is told of.  A worker that
 * cannot take another connection takes its listeners out of the set until one
 * is closed or LOOP_PAUSE_MS have passed; it never spins (F68).
 */
#ifndef WORKER_LOOP_H
#define WORKER_LOOP_H
#include <stdbool.h>
#include <stdint.h>
#include "shm/boot.h"

#define LOOP_EVENTS	128
#define LOOP_ACCEPTS	64u	/* per listener and round */
#define LOOP_PAUSE_MS	500u
#define LOOP_GRACE_MS	500u	/* draining: for requests that are on their way over an idle connection (F61) */
#define LOOP_ORPHAN_MS	1500u	/* the master is gone: end within this */

struct conn;
struct worker;

struct listener {
	int		fd;
	int		kind;		/* enum listen_kind */
	unsigned	batch;		/* how many to accept per wake-up: as many as came lately */
};

struct loop {
	int		ep;
	int		term;		/* signalfd: SIGTERM */
	struct listener	listeners[BOOT_LISTENERS];
	unsigned	nlisteners;
	bool		paused;		/* the listeners are out of the set */
	uint64_t	resume_ms;	/* when to try again at the latest */
	uint64_t	told_ms;	/* when running out of descriptors was last logged */
	uint64_t	stranger_ms;	/* and a peer on the control socket that has no business there */
	uint64_t	end_ms;		/* draining: leave at the latest */
	uint64_t	grace_ms;	/* draining: from then on idle connections are closed */
};

int	loop_init(struct worker *);
/* Until the server ends and the last connection with it. */
void	loop_run(struct worker *);
/* Puts a connection into the set.  -1: cannot. */
int	loop_arm(struct worker *, struct conn *);
/* A descriptor has become free. */
void	loop_resume(struct worker *);

#endif
