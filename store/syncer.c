/*
 * store/syncer.c - see store/syncer.h.
 *
 * Runs in: committer: its main thread, and the sync thread (syncer_main).
 * Touches: the newest segment's descriptor, fdatasync(2) only.
 */
#include "config.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "store/syncer.h"

/*
 * Syncs shorter than this are done in place: two wake-ups and the second
 * thread's cache misses cost some 20 us, and on such a disk there is little to overlap.
 */
#define IN_PLACE_US	300

struct syncer {
	struct log	*log;
	void		(*wake)(void *);
	void		*wake_arg;
	void		(*failed)(void);
	bool		 busy;		/* main thread: started, result not taken */
	bool		 in_place;	/* ... and it was done at once */
	uint64_t	 typical_us;	/* main thread: decaying maximum of the last syncs */
	bool		 has_thread;
	pthread_t	 thread;
	sem_t		 work;
	atomic_bool	 stop;
	/* The sync thread's until done (release; acquire in syncer_done()). */
	atomic_bool	 done;
	int		 error;
	uint64_t	 us;
};

uint64_t
monotonic_us(void)
{
	struct timespec	ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000 + (uint64_t)ts.tv_nsec / 1000;
}

static void
sync_now(struct syncer *y)
{
	uint64_t	t = monotonic_us(), now;

	y->error = log_sync(y->log) == -1 ? errno : 0;
	if (y->error != 0)
		y->failed();
	now = monotonic_us();
	y->us = now > t ? now - t : 0;	/* a clock that falls back counts as 0 (F67) */
}

static void *
syncer_main(void *arg)
{
	struct syncer	*y = arg;

	for (;;) {
		while (sem_wait(&y->work) == -1)
			;
		if (atomic_load_explicit(&y->stop, memory_order_acquire))
			return NULL;
		sync_now(y);
		atomic_store_explicit(&y->done, true, memory_order_release);
		y->wake(y->wake_arg);
	}
}

struct syncer *
syncer_create(struct log *log, void (*wake)(void *), void *arg, void (*failed)(void))
{
	struct syncer	*y = calloc(1, sizeof(*y));

	if (y == NULL)
		return NULL;
	y->log = log;
	y->wake = wake;
	y->wake_arg = arg;
	y->failed = failed;
	if (sem_init(&y->work, 0, 0) == -1) {
		free(y);
		return NULL;
	}
	return y;
}

void
syncer_destroy(struct syncer *y)
{
	if (y == NULL)
		return;
	if (y->has_thread) {
		atomic_store_explicit(&y->stop, true, memory_order_release);
		sem_post(&y->work);
		pthread_join(y->thread, NULL);
	}
	sem_destroy(&y->work);
	free(y);
}

/* The thread is made when the first slow sync asks for it.  Signals stay the main thread's. */
static bool
have_thread(struct syncer *y)
{
	sigset_t	all, old;

	if (y->has_thread)
		return true;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	y->has_thread = pthread_create(&y->thread, NULL, syncer_main, y) == 0;
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return y->has_thread;
}

bool
syncer_start(struct syncer *y, bool all_here)
{
	y->busy = true;
	y->in_place = all_here || y->typical_us < IN_PLACE_US || !have_thread(y);
	if (y->in_place) {
		sync_now(y);
		return true;
	}
	atomic_store_explicit(&y->done, false, memory_order_relaxed);
	sem_post(&y->work);
	return false;
}

bool
syncer_busy(const struct syncer *y)
{
	return y->busy;
}

bool
syncer_done(const struct syncer *y)
{
	/* acquire: error and us; pairs with the release in syncer_main() */
	return y->busy && (y->in_place || atomic_load_explicit(&y->done, memory_order_acquire));
}

bool
syncer_result(struct syncer *y, int *error, uint64_t *us)
{
	if (!syncer_done(y))
		return false;
	y->busy = false;
	*error = y->error;
	*us = y->us;
	if (y->us > y->typical_us)
		y->typical_us = y->us;
	else
		y->typical_us -= (y->typical_us - y->us) / 8;
	return true;
}
