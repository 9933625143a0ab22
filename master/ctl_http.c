/*
 * master/ctl_http.c - one HTTP request over the control socket.
 * Runs in: holdfastctl.
 *
 * HTTP/1.0 on purpose: the server closes at the end and never chunks, so the
 * answer is what comes until then, checked against Content-Length.
 */
#include "config.h"
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <bsd/stdlib.h>
#include <bsd/string.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>
#include "master/ctl.h"
#include "shm/fd.h"

#define ANSWER_MAX	(256u << 20)
#define ANSWER_SECONDS	60

static int
dial(const char *path)
{
	struct sockaddr_un	sun = { .sun_family = AF_UNIX };
	struct timeval		tv = { .tv_sec = ANSWER_SECONDS };
	int			fd;

	if (strlcpy(sun.sun_path, path, sizeof(sun.sun_path)) >= sizeof(sun.sun_path)) {
		errno = ENAMETOOLONG;
		return -1;
	}
	if ((fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) == -1)
		return -1;
	if (setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv)) == -1 ||
	    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof(tv)) == -1 ||
	    connect(fd, (const struct sockaddr *)&sun, sizeof(sun)) == -1) {
		fd_close(fd);
		return -1;
	}
	return fd;
}

static int
send_all(int fd, const char *p, size_t n)
{
	ssize_t	w;

	for (; n > 0; p += w, n -= (size_t)w)
		if ((w = send(fd, p, n, MSG_NOSIGNAL)) == -1) {
			if (errno != EINTR)
				return -1;
			w = 0;
		}
	return 0;
}

/* Everything until the server closes, NUL-terminated. */
static char *
read_all(int fd, size_t *len)
{
	char	*buf = NULL, *grown;
	size_t	 cap = 0;
	ssize_t	 n = 1;

	*len = 0;
	while (n != 0) {
		if (cap - *len < 2) {
			if (cap >= ANSWER_MAX) {
				errno = EFBIG;
				goto fail;
			}
			cap = cap == 0 ? 16384 : cap * 2;
			if ((grown = realloc(buf, cap)) == NULL)
				goto fail;
			buf = grown;
		}
		if ((n = recv(fd, buf + *len, cap - *len - 1, 0)) == -1) {
			if (errno == EINTR)
				continue;
			if (errno == EAGAIN)
				errno = ETIMEDOUT;
			goto fail;
		}
		*len += (size_t)n;
	}
	buf[*len] = '\0';
	return buf;
fail:
	free(buf);
	return NULL;
}

/* The value of Content-Length in the head that ends at `end`; -1: none, or no number. */
static long long
content_length(const char *head, const char *end)
{
	static const char	name[] = "\r\nContent-Length:";
	const char		*bad;
	char			 digits[24];
	size_t			 n;

	for (; head < end; head++)
		if (strncasecmp(head, name, sizeof(name) - 1) == 0) {
			head += sizeof(name) - 1;
			head += strspn(head, " \t");
			n = strspn(head, "0123456789");
			if (n == 0 || n >= sizeof(digits))
				return -1;
			memcpy(digits, head, n);
			digits[n] = '\0';
			return strtonum(digits, 0, ANSWER_MAX, &bad);
		}
	return -1;
}

/* Splits what was read; takes `text` over on success. */
static int
answer_parse(struct answer *a, char *text, size_t len)
{
	const char	*head_end = memmem(text, len, "\r\n\r\n", 4);
	long long	 want;
	size_t		 body;

	if (head_end == NULL || strncmp(text, "HTTP/1.", 7) != 0 || text[8] != ' ' ||
	    strspn(text + 9, "0123456789") != 3)
		return -1;
	a->status = atoi(text + 9);
	want = content_length(text, head_end);
	body = len - (size_t)(head_end + 4 - text);
	if (a->status == 204)
		body = 0;
	else if (want >= 0 && (size_t)want > body)
		return -1;
	else if (want >= 0)
		body = (size_t)want;
	memmove(text, head_end + 4, body);
	text[body] = '\0';
	a->body = text;
	a->len = body;
	return 0;
}

int
ctl_request(const char *socket, const char *method, const char *target, const char *body,
    struct answer *a)
{
	char	 head[1024], *text = NULL;
	size_t	 len, nbody = body == NULL ? 0 : strlen(body);
	int	 fd = -1, n, saved;

	if (body == NULL)
		n = snprintf(head, sizeof(head), "%s %s HTTP/1.0\r\nHost: localhost\r\n\r\n", method, target);
	else
		n = snprintf(head, sizeof(head), "%s %s HTTP/1.0\r\nHost: localhost\r\n"
		    "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n", method, target, nbody);
	if (n < 0 || (size_t)n >= sizeof(head)) {
		errno = ENAMETOOLONG;
		goto fail;
	}
	if ((fd = dial(socket)) == -1)
		goto fail;
	/* a server that refuses early has answered all the same: read before giving up */
	if ((send_all(fd, head, (size_t)n) == -1 || (body != NULL && send_all(fd, body, nbody) == -1)) &&
	    errno != EPIPE)
		goto fail;
	if ((text = read_all(fd, &len)) == NULL)
		goto fail;
	if (answer_parse(a, text, len) == -1) {
		errno = EPROTO;
		goto fail;
	}
	close(fd);
	return 0;
fail:
	saved = errno;
	if (fd != -1)
		close(fd);
	free(text);
	errno = saved;
	return -1;
}
