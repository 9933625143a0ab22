/*
 * worker/worker.c - a worker process: everything that speaks HTTP.
 *
 * Runs in: worker, one process per core, forked by the master.
 *
 * Single-threaded.  What it writes to is the region, and sockets; of the store
 * it has read-only mappings and nothing else.  It may die at any instruction:
 * its successor on the lane collects what it left (write_attach).
 */
#include "config.h"
#include <sys/resource.h>
#include <stdlib.h>
#include "shm/log.h"
#include "shm/proc.h"
#include "worker/worker.h"

#define FDS_ASIDE	256u	/* descriptors that are not connections: segments that are sent from (store/read.c), the log, epoll */
#define LINGER_MS	5000u

static void
become(const struct boot *b)
{
	int		keep[BOOT_LISTENERS + 8];
	unsigned	n = 0, i;

	proc_become(IN_WORKER, b->lane);
	for (i = 0; i < b->nlisteners && i < BOOT_LISTENERS; i++)
		keep[n++] = b->listeners[i].fd;
	keep[n++] = b->dir_fd;
	keep[n++] = b->lifeline;
	keep[n++] = b->lock_fd;
	keep[n++] = b->wake[b->lane];
	keep[n++] = b->region.overlay_fd;
	boot_child(b, keep, n);
}

/* As many connections as configured, if there are descriptors for them. */
static unsigned
connections(const struct settings *set)
{
	struct rlimit	rl;
	rlim_t		most;

	if (getrlimit(RLIMIT_NOFILE, &rl) == -1)
		return set->max_connections;
	if (rl.rlim_cur < rl.rlim_max) {
		rl.rlim_cur = rl.rlim_max;
		if (setrlimit(RLIMIT_NOFILE, &rl) == -1 && getrlimit(RLIMIT_NOFILE, &rl) == -1)
			return set->max_connections;
	}
	most = rl.rlim_cur > 2 * FDS_ASIDE ? rl.rlim_cur - FDS_ASIDE : rl.rlim_cur / 2;
	if (set->max_connections <= most)
		return set->max_connections;
	log_warnx("max-connections %u is more than the %llu descriptors of this process allow: %llu",
	    set->max_connections, (unsigned long long)rl.rlim_cur, (unsigned long long)most);
	return (unsigned)most;
}

static void
init(struct worker *w, const struct boot *b)
{
	const uint64_t	ms[TIMER__N] = {
		[TIMER_IDLE] = b->set.idle_ms,
		[TIMER_HEAD] = b->set.head_ms,
		[TIMER_BODY] = b->set.body_ms,
		[TIMER_WRITE] = b->set.write_ms,
		[TIMER_LINGER] = LINGER_MS,
	};

	w->boot = b;
	w->region = b->region;
	w->lane = b->lane;
	w->count = &w->region.counts[b->lane];
	count_set(w->count, CW_OPEN, 0);	/* the predecessor's died with it */
	w->max_conns = connections(&b->set);
	STAILQ_INIT(&w->again);
	TAILQ_INIT(&w->dead);
	TAILQ_INIT(&w->free);
	timers_init(&w->timers, ms);
	clock_init(&w->clock);
	if (in_init(&w->in) == -1 || out_init(&w->out) == -1)
		fatal("no memory");
	write_attach(w);
	if ((w->reader = read_open(b)) == NULL)
		fatal("cannot read the store in %s", b->dir);
	if (loop_init(w) == -1)
		fatal("event loop");
}

_Noreturn void
worker_main(const struct boot *b)
{
	static struct worker	w;	/* zero pages until they are used */

	become(b);
	init(&w, b);
	proc_settled();
	loop_run(&w);
	exit(0);
}
