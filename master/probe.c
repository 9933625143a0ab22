/*
 * master/probe.c - see master/probe.h.
 * Runs in: master.
 */
#include "config.h"
#include <sys/socket.h>
#include <sys/un.h>
#include <bsd/string.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>
#include "master/probe.h"
#include "shm/fd.h"

int
probe_open(const char *path)
{
	static const char	ask[] = "GET /_health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
	struct sockaddr_un	sun = { .sun_family = AF_UNIX };
	int			fd;

	if (strlcpy(sun.sun_path, path, sizeof(sun.sun_path)) >= sizeof(sun.sun_path)) {
		errno = ENAMETOOLONG;
		return -1;
	}
	if ((fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) == -1)
		return -1;
	if (connect(fd, (const struct sockaddr *)&sun, sizeof(sun)) == 0 &&
	    send(fd, ask, sizeof(ask) - 1, MSG_NOSIGNAL) == (ssize_t)sizeof(ask) - 1)
		return fd;
	fd_close(fd);
	return -1;
}

int
probe_read(int fd)
{
	char	buf[7];

	/* a worker sends its head in one piece, and seven bytes do not arrive in two */
	return recv(fd, buf, sizeof(buf), MSG_DONTWAIT) == (ssize_t)sizeof(buf) &&
	    memcmp(buf, "HTTP/1.", sizeof(buf)) == 0;
}
