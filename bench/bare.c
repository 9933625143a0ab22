/*
 * bench/bare.c - a responder that parses nothing: the floor.
 *
 * Runs in: a process of its own, one thread.
 *
 *	bare [-c] PORT [BODY]	answers with BODY bytes (64); PORT 0 picks one.
 *				-c: closes behind each answer.
 *
 * What remains of an HTTP server when HTTP is taken out: edge-triggered epoll,
 * one recv and one send for all requests that came together.  A request is an
 * empty line ("\r\n\r\n"), every answer is the same bytes: a head of the size
 * of holdfast's and a body.  No server on this kernel's TCP spends less.
 */
#include "config.h"
#include <sys/epoll.h>
#include <sys/socket.h>
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <err.h>
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FDS		65536
#define COPIES		64u		/* answers that one send can take, where they are small */
#define COPIES_BYTES	(1u << 20)

static struct {
	uint64_t	unsent;		/* bytes of answers not taken by the socket yet */
	uint8_t		matched;	/* bytes of an empty line seen at the end of the last recv */
} peers[FDS];

static char	*answers;		/* the answer, as often as it fits */
static size_t	 answer_len, answers_len;
static char	 in[65536];
static int	 ep;
static bool	 close_behind;

static const char head[] =
    "HTTP/1.1 200 OK\r\n"
    "Date: Mon, 30 Nov 2026 09:30:00 GMT\r\n"
    "Server: holdfast\r\n"
    "Content-Type: application/octet-stream\r\n"
    "ETag: \"00000000000001a7-5f3c9d21\"\r\n"
    "Last-Modified: Mon, 30 Nov 2026 09:29:59 GMT\r\n"
    "Accept-Ranges: bytes\r\n"
    "Cache-Control: no-cache\r\n"
    "X-Content-Type-Options: nosniff\r\n"
    "Content-Security-Policy: sandbox\r\n"
    "Vary: Origin\r\n"
    "Content-Length: %zu\r\n"
    "\r\n";

static void
answers_make(size_t body)
{
	char	buf[sizeof(head) + 32];
	size_t	n, copies;

	n = (size_t)snprintf(buf, sizeof(buf), head, body);
	answer_len = n + body;
	copies = COPIES_BYTES / answer_len;
	copies = copies < 1 ? 1 : copies > COPIES ? COPIES : copies;
	answers_len = copies * answer_len;
	if ((answers = malloc(answers_len)) == NULL)
		err(1, "malloc");
	for (size_t at = 0; at < answers_len; at += answer_len) {
		memcpy(answers + at, buf, n);
		memset(answers + at + n, 'x', body);
	}
}

static void
peer_close(int fd)
{
	peers[fd].unsent = 0;
	peers[fd].matched = 0;
	close(fd);
}

/* The stream of answers repeats, so that what is unsent says where in it we are. */
static bool
peer_send(int fd)
{
	while (peers[fd].unsent > 0) {
		size_t	at = (answer_len - peers[fd].unsent % answer_len) % answer_len;
		size_t	n = answers_len - at;
		ssize_t	sent;

		if (n > peers[fd].unsent)
			n = (size_t)peers[fd].unsent;
		if ((sent = send(fd, answers + at, n, MSG_NOSIGNAL)) == -1)
			return errno == EAGAIN;
		peers[fd].unsent -= (uint64_t)sent;
	}
	return !close_behind;
}

static unsigned
requests(const char *p, size_t n, uint8_t *matched)
{
	static const char	 line[4] = "\r\n\r\n";
	const char		*end = p + n;
	unsigned		 found = 0;

	while (p < end) {
		if (*matched == 0 && (p = memchr(p, '\r', (size_t)(end - p))) == NULL)
			break;
		if (*p == line[*matched])
			++*matched;
		else
			*matched = *p == '\r';
		if (*matched == sizeof(line)) {
			found++;
			*matched = 0;
		}
		p++;
	}
	return found;
}

static void
peer_run(int fd, uint32_t events)
{
	ssize_t	n = 0;

	if ((events & EPOLLIN) != 0)
		do {
			if ((n = recv(fd, in, sizeof(in), 0)) > 0)
				peers[fd].unsent += (uint64_t)requests(in, (size_t)n, &peers[fd].matched) * answer_len;
			else if (n == 0 || errno != EAGAIN)
				events |= EPOLLHUP;
		} while (n == (ssize_t)sizeof(in) || ((events & EPOLLRDHUP) != 0 && n > 0));
	if ((events & (EPOLLHUP | EPOLLERR)) != 0 || (peers[fd].unsent > 0 && !peer_send(fd)))
		peer_close(fd);
}

static void
accept_all(int listener)
{
	struct epoll_event	e = { .events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET };
	int			fd, one = 1;

	while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) != -1) {
		e.data.fd = fd;
		if (fd >= FDS || epoll_ctl(ep, EPOLL_CTL_ADD, fd, &e) == -1) {
			close(fd);
			continue;
		}
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	}
}

static int
listen_on(uint16_t port)
{
	struct sockaddr_in	a = { .sin_family = AF_INET, .sin_port = htons(port) };
	socklen_t		len = sizeof(a);
	int			one = 1, fd;

	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if ((fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)) == -1 ||
	    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) == -1 ||
	    bind(fd, (struct sockaddr *)&a, len) == -1 || listen(fd, 4096) == -1 ||
	    getsockname(fd, (struct sockaddr *)&a, &len) == -1)
		err(1, "port %u", port);
	printf("ready: http 127.0.0.1:%u\n", ntohs(a.sin_port));
	fflush(stdout);
	return fd;
}

static unsigned long
number(const char *s, unsigned long max)
{
	char		*end;
	unsigned long	 n;

	errno = 0;
	n = strtoul(s, &end, 10);
	if (errno != 0 || end == s || *end != '\0' || n > max)
		errx(64, "%s: not a number up to %lu", s, max);
	return n;
}

int
main(int argc, char **argv)
{
	struct epoll_event	events[256], e = { .events = EPOLLIN };
	int			listener, n, c;

	while ((c = getopt(argc, argv, "c")) == 'c')
		close_behind = true;
	argc -= optind;
	argv += optind;
	if (c != -1 || argc < 1 || argc > 2)
		errx(64, "usage: bare [-c] port [body]");
	answers_make(argc == 2 ? number(argv[1], 1ul << 30) : 64);
	listener = listen_on((uint16_t)number(argv[0], 65535));
	e.data.fd = listener;
	if ((ep = epoll_create1(EPOLL_CLOEXEC)) == -1 || epoll_ctl(ep, EPOLL_CTL_ADD, listener, &e) == -1)
		err(1, "epoll");
	for (;;) {
		if ((n = epoll_wait(ep, events, 256, -1)) == -1 && errno != EINTR)
			err(1, "epoll_wait");
		for (int i = 0; i < n; i++) {
			if (events[i].data.fd == listener)
				accept_all(listener);
			else
				peer_run(events[i].data.fd, events[i].events);
		}
	}
}
