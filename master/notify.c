/*
 * master/notify.c - see master/notify.h.
 * Runs in: master.
 */
#include "config.h"
#include <sys/socket.h>
#include <sys/un.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "master/notify.h"

void
notify(const char *fmt, ...)
{
	struct sockaddr_un	 sun = { .sun_family = AF_UNIX };
	const char		*path = getenv("NOTIFY_SOCKET");
	char			 text[512];
	size_t			 n;
	va_list			 ap;
	int			 fd, len;

	if (path == NULL || (path[0] != '/' && path[0] != '@'))
		return;
	if ((n = strlen(path)) < 2 || n >= sizeof(sun.sun_path))
		return;
	memcpy(sun.sun_path, path, n);
	if (path[0] == '@')
		sun.sun_path[0] = '\0';
	va_start(ap, fmt);
	len = vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (len < 0 || (size_t)len >= sizeof(text))
		return;
	if ((fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) == -1)
		return;
	(void)sendto(fd, text, (size_t)len, MSG_NOSIGNAL, (const struct sockaddr *)&sun,
	    (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n));
	close(fd);
}
