/*
 * shm/fd.h - letting go of a descriptor on the way out after a failure.
 *
 * Runs in: every process.
 */
#ifndef SHM_FD_H
#define SHM_FD_H
#include <errno.h>
#include <unistd.h>

/* close(2), but errno still says what failed before it.  -1: there is nothing to close. */
static inline void
fd_close(int fd)
{
	int	saved = errno;

	if (fd != -1)
		(void)close(fd);
	errno = saved;
}

#endif
