/*
 * store/file.c - see store/file.h.
 *
 * Runs in: committer, tools, tests.
 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "shm/fd.h"
#include "store/file.h"

int
file_write(int fd, const void *buf, size_t n, uint64_t at)
{
	const uint8_t	*p = buf;
	ssize_t		 w;

	while (n > 0) {
		w = pwrite(fd, p, n, (off_t)at);
		if (w == -1 && errno == EINTR)
			continue;
		if (w <= 0) {
			if (w == 0)
				errno = EIO;
			return -1;
		}
		p += w;
		n -= (size_t)w;
		at += (uint64_t)w;
	}
	return 0;
}

DIR *
file_dir(int dirfd)
{
	int	 fd = openat(dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR	*d;

	if (fd == -1)
		return NULL;
	if ((d = fdopendir(fd)) == NULL)
		fd_close(fd);
	return d;
}
