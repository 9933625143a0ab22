/*
 * tests/slowsync.c - a slow disk: adds time to every sync.
 *
 * Runs in: any process, through LD_PRELOAD.
 *
 *	HOLDFAST_SLOWSYNC_US=3000	microseconds added to each fsync, fdatasync, syncfs,
 *					sync_file_range, msync, and to a pwritev2 with RWF_SYNC or RWF_DSYNC
 *	HOLDFAST_SLOWSYNC_MERGE=1	calls that wait at the same time share the
 *					next delay, as they share a journal's next
 *					commit; without it each call has its own
 *
 * The real call is made first, the time is added behind it.  A sync asked for
 * through io_uring, or by a file opened O_SYNC, is not seen here.
 */
#define _GNU_SOURCE 1
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static long		delay_us;
static bool		merge;

static pthread_mutex_t	lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t	ended = PTHREAD_COND_INITIALIZER;
static uint64_t		started, finished;	/* delays, counted */
static bool		running;

__attribute__((constructor))
static void
setup(void)
{
	const char	*us = getenv("HOLDFAST_SLOWSYNC_US");
	const char	*m = getenv("HOLDFAST_SLOWSYNC_MERGE");

	delay_us = us != NULL ? strtol(us, NULL, 10) : 0;
	merge = m != NULL && m[0] == '1';
}

static void
wait_once(void)
{
	struct timespec	until;

	/* the default slack of 50 us would be a visible part of a short delay */
	prctl(PR_SET_TIMERSLACK, 1000UL, 0UL, 0UL, 0UL);
	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_nsec += (delay_us % 1000000) * 1000;
	until.tv_sec += delay_us / 1000000 + until.tv_nsec / 1000000000;
	until.tv_nsec %= 1000000000;
	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR)
		;
}

/* Whoever comes while a delay runs waits for the next one, together with all others who came. */
static void
wait_merged(void)
{
	uint64_t	mine;

	pthread_mutex_lock(&lock);
	mine = started + 1;
	while (finished < mine) {
		if (running) {
			pthread_cond_wait(&ended, &lock);
			continue;
		}
		running = true;
		started++;
		pthread_mutex_unlock(&lock);
		wait_once();
		pthread_mutex_lock(&lock);
		running = false;
		finished = started;
		pthread_cond_broadcast(&ended);
	}
	pthread_mutex_unlock(&lock);
}

static void
slow(void)
{
	int	saved = errno;

	if (delay_us > 0) {
		if (merge)
			wait_merged();
		else
			wait_once();
	}
	errno = saved;
}

/* The next definition of a function; the cast goes through memory, as POSIX shows it. */
#define REAL(name)							\
	static __typeof__(&name) real;					\
	if (real == NULL)						\
		*(void **)&real = dlsym(RTLD_NEXT, #name)

int
fsync(int fd)
{
	REAL(fsync);
	int	rc = real(fd);

	slow();
	return rc;
}

int
fdatasync(int fd)
{
	REAL(fdatasync);
	int	rc = real(fd);

	slow();
	return rc;
}

int
syncfs(int fd)
{
	REAL(syncfs);
	int	rc = real(fd);

	slow();
	return rc;
}

int
sync_file_range(int fd, off64_t off, off64_t n, unsigned flags)
{
	REAL(sync_file_range);
	int	rc = real(fd, off, n, flags);

	slow();
	return rc;
}

int
msync(void *p, size_t n, int flags)
{
	REAL(msync);
	int	rc = real(p, n, flags);

	slow();
	return rc;
}

ssize_t
pwritev2(int fd, const struct iovec *iov, int n, off_t off, int flags)
{
	REAL(pwritev2);
	ssize_t	rc = real(fd, iov, n, off, flags);

	if ((flags & (RWF_SYNC | RWF_DSYNC)) != 0)
		slow();
	return rc;
}

ssize_t
pwritev64v2(int fd, const struct iovec *iov, int n, off64_t off, int flags)
{
	return pwritev2(fd, iov, n, off, flags);
}
