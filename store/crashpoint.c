/*
 * store/crashpoint.c - see store/crashpoint.h.
 *
 * Runs in: committer, with HOLDFAST_DEBUG only; else this file is empty.
 */
#include "config.h"

#include "store/crashpoint.h"

#ifdef HOLDFAST_DEBUG
#include <sys/mman.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shm/log.h"

struct control {
	_Atomic(uint32_t) armed, left, fired;
	uint32_t	 pad;
	char		 name[32], action[16];
};
_Static_assert(sizeof(struct control) == 64, "tests write this by offset");

static struct control	*control;	/* NULL: no test is there */

void
crash_setup(void)
{
	const char	*path = getenv("HOLDFAST_CRASH_FILE");
	void		*p;
	int		 fd;

	if (path == NULL)
		return;
	if ((fd = open(path, O_RDWR | O_CLOEXEC)) == -1)
		fatal("%s", path);
	p = mmap(NULL, sizeof(*control), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (p == MAP_FAILED)
		fatal("%s", path);
	control = p;
}

static bool
is_armed(const char *name)
{
	/* acquire: name, action and count; pairs with the test's writing `armed` last */
	return control != NULL && atomic_load_explicit(&control->armed, memory_order_acquire) == 1 &&
	    strncmp(control->name, name, sizeof(control->name)) == 0;
}

/* One of all threads and processes that get here sees the count end. */
static bool
is_due(const char *name)
{
	if (!is_armed(name) || atomic_fetch_sub_explicit(&control->left, 1, memory_order_relaxed) != 1)
		return false;
	atomic_store_explicit(&control->armed, 0, memory_order_relaxed);
	/* release: the point is disarmed before the test hears that it fired */
	atomic_fetch_add_explicit(&control->fired, 1, memory_order_release);
	return true;
}

static void
act(void)
{
	if (strcmp(control->action, "abort") == 0)
		abort();
	kill(getpid(), strcmp(control->action, "stop") == 0 ? SIGSTOP : SIGKILL);
}

void
crash_point(const char *name)
{
	if (is_due(name))
		act();
}

void
crash_point_if(bool when, const char *name)
{
	if (when)
		crash_point(name);
}

void
crash_mid_append(int fd, const struct iovec *iov, int n, uint64_t at)
{
	size_t		 half = 0, len;
	ssize_t		 w = 0;

	if (!is_due("mid-append"))
		return;
	for (int i = 0; i < n; i++)
		half += iov[i].iov_len;
	half /= 2;
	for (int i = 0; i < n && half > 0 && w != -1; i++, half -= len, at += len) {
		len = iov[i].iov_len < half ? iov[i].iov_len : half;
		w = pwrite(fd, iov[i].iov_base, len, (off_t)at);
	}
	act();
}

void
crash_on_mark(const uint8_t *path, size_t len)
{
	if (memmem(path, len, CRASH_MARK, strlen(CRASH_MARK)) != NULL)
		abort();
}
#endif
