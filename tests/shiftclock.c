/*
 * tests/shiftclock.c - a wrong clock: shifts the time of day, while the program runs.
 *
 * Runs in: any process, through LD_PRELOAD.
 *
 *	HOLDFAST_SHIFTCLOCK=FILE	a file of 8 bytes that is mapped shared: nanoseconds
 *					added to the time of day (little-endian, signed);
 *					a test writes it at any time
 *
 * clock_gettime(2) of the real-time clocks, gettimeofday(2) and time(2) are
 * shifted; what comes out before 1970 is 1970.  Monotonic clocks are not: no
 * adjustment of a clock moves them.
 */
#define _GNU_SOURCE 1
#include <sys/mman.h>
#include <sys/time.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define SECOND	INT64_C(1000000000)

static _Atomic(int64_t)	*shift;

__attribute__((constructor))
static void
setup(void)
{
	const char	*name = getenv("HOLDFAST_SHIFTCLOCK");
	void		*p;
	int		 fd;

	if (name == NULL || (fd = open(name, O_RDWR | O_CLOEXEC)) == -1)
		return;
	p = mmap(NULL, sizeof(*shift), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (p != MAP_FAILED)
		shift = p;
}

static void
shifted(struct timespec *t)
{
	int64_t	ns = (int64_t)t->tv_sec * SECOND + t->tv_nsec;

	/* relaxed: a number, nothing hangs on it */
	if (shift == NULL)
		return;
	ns += atomic_load_explicit(shift, memory_order_relaxed);
	if (ns < 0)
		ns = 0;
	t->tv_sec = (time_t)(ns / SECOND);
	t->tv_nsec = (long)(ns % SECOND);
}

int
clock_gettime(clockid_t clock, struct timespec *t)
{
	static __typeof__(&clock_gettime)	real;
	int					rc;

	if (real == NULL)
		*(void **)&real = dlsym(RTLD_NEXT, "clock_gettime");
	rc = real(clock, t);
	if (rc == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE || clock == CLOCK_TAI))
		shifted(t);
	return rc;
}

int
gettimeofday(struct timeval *restrict tv, void *restrict zone)
{
	struct timespec	t;

	(void)zone;
	if (clock_gettime(CLOCK_REALTIME, &t) == -1)
		return -1;
	*tv = (struct timeval){ .tv_sec = t.tv_sec, .tv_usec = t.tv_nsec / 1000 };
	return 0;
}

time_t
time(time_t *out)
{
	struct timespec	t = { 0 };

	(void)clock_gettime(CLOCK_REALTIME_COARSE, &t);
	if (out != NULL)
		*out = t.tv_sec;
	return t.tv_sec;
}
