/*
 * master/listen.c - see master/listen.h.
 * Runs in: master.
 */
#include "config.h"
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <netinet/tcp.h>
#include <bsd/string.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "master/listen.h"
#include "master/priv.h"
#include "shm/fd.h"
#include "shm/log.h"

#define BACKLOG		4096	/* the kernel caps it at somaxconn */
/*
 * The last process of a dead generation lets go of the lock a moment before
 * it lets go of its sockets; for that long an address may seem taken.
 */
#define RETRY_MS	500
#define RETRY_STEP_MS	10

static void
pause_step(void)
{
	(void)nanosleep(&(struct timespec){ .tv_nsec = RETRY_STEP_MS * 1000000l }, NULL);
}

static socklen_t
addr_len(const union conf_addr *a)
{
	return a->sa.sa_family == AF_INET6 ? sizeof(a->in6) : sizeof(a->in);
}

static int
on(int fd, int level, int name)
{
	return setsockopt(fd, level, name, &(int){ 1 }, sizeof(int));
}

/* A bound socket, not listening yet.  -1 with errno. */
static int
bind_one(const union conf_addr *a, bool share)
{
	int	fd;

	fd = socket(a->sa.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd == -1)
		return -1;
	if (on(fd, SOL_SOCKET, SO_REUSEADDR) == -1 ||
	    (share && on(fd, SOL_SOCKET, SO_REUSEPORT) == -1) ||
	    (a->sa.sa_family == AF_INET6 && on(fd, IPPROTO_IPV6, IPV6_V6ONLY) == -1) ||
	    on(fd, IPPROTO_TCP, TCP_NODELAY) == -1 ||	/* accepted sockets inherit it */
	    bind(fd, &a->sa, addr_len(a)) == -1) {
		fd_close(fd);
		return -1;
	}
	return fd;
}

/* The first of an address: refuses where anybody listens there, SO_REUSEPORT or not. */
static int
bind_first(union conf_addr *a, bool share)
{
	socklen_t	len = sizeof(*a);
	int		fd;

	for (int waited = 0; (fd = bind_one(a, false)) == -1; waited += RETRY_STEP_MS) {
		if (errno != EADDRINUSE || waited >= RETRY_MS)
			return -1;
		pause_step();
	}
	if (getsockname(fd, &a->sa, &len) == -1 || (share && on(fd, SOL_SOCKET, SO_REUSEPORT) == -1)) {
		fd_close(fd);
		return -1;
	}
	return fd;
}

static int
open_http(struct listeners *l, unsigned i)
{
	union conf_addr	*a = &l->http.a[i];

	if ((l->http_fd[0][i] = bind_first(a, true)) == -1)
		return -1;
	for (unsigned lane = 1; lane < l->nlanes; lane++)
		if ((l->http_fd[lane][i] = bind_one(a, true)) == -1)
			return -1;
	/* all are bound before one listens: no connection lands with half of the workers */
	for (unsigned lane = 0; lane < l->nlanes; lane++)
		if (listen(l->http_fd[lane][i], BACKLOG) == -1)
			return -1;
	return 0;
}

static int
open_tcp(struct listeners *l, char *err, size_t errlen)
{
	char	text[64];

	for (unsigned i = 0; i < l->http.n; i++)
		if (open_http(l, i) == -1)
			return conf_fail(err, errlen, "listen %s: %s",
			    conf_addr_text(&l->http.a[i], text, sizeof(text)), strerror(errno));
	for (unsigned i = 0; i < l->metrics.n; i++)
		if ((l->metrics_fd[i] = bind_first(&l->metrics.a[i], false)) == -1 ||
		    listen(l->metrics_fd[i], BACKLOG) == -1)
			return conf_fail(err, errlen, "listen-metrics %s: %s",
			    conf_addr_text(&l->metrics.a[i], text, sizeof(text)), strerror(errno));
	return 0;
}

/* 1: somebody answers there.  0: nobody (any more).  -1 with errno. */
static int
control_alive(const char *path)
{
	struct sockaddr_un	sun = { .sun_family = AF_UNIX };
	struct stat		st;
	int			fd, rc;

	if (lstat(path, &st) == -1)
		return errno == ENOENT ? 0 : -1;
	if (!S_ISSOCK(st.st_mode)) {
		errno = EEXIST;		/* somebody's file: not ours to replace */
		return -1;
	}
	(void)strlcpy(sun.sun_path, path, sizeof(sun.sun_path));
	if ((fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) == -1)
		return -1;
	rc = connect(fd, (const struct sockaddr *)&sun, sizeof(sun));
	fd_close(fd);
	if (rc == 0 || errno == EAGAIN)		/* EAGAIN: it lives, its queue is full */
		return 1;
	return errno == ECONNREFUSED || errno == ENOENT ? 0 : -1;
}

/* Binds `tmp`, sets its mode, renames it to where it belongs. */
static int
control_bind(struct listeners *l)
{
	struct sockaddr_un	sun = { .sun_family = AF_UNIX };
	struct stat		st;
	char			tmp[CONF_PATH + 16];
	int			saved;

	if ((size_t)snprintf(tmp, sizeof(tmp), "%s.%d", l->control, (int)getpid()) >= sizeof(sun.sun_path)) {
		errno = ENAMETOOLONG;
		return -1;
	}
	(void)strlcpy(sun.sun_path, tmp, sizeof(sun.sun_path));
	(void)unlink(tmp);	/* of a predecessor with our pid that died half-way */
	if ((l->control_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) == -1)
		return -1;
	if (bind(l->control_fd, (const struct sockaddr *)&sun, sizeof(sun)) == -1)
		return -1;
	if (chmod(tmp, 0660) == -1 || listen(l->control_fd, BACKLOG) == -1 || lstat(tmp, &st) == -1 ||
	    rename(tmp, l->control) == -1) {
		saved = errno;
		(void)unlink(tmp);
		errno = saved;
		return -1;
	}
	l->dev = st.st_dev;
	l->ino = st.st_ino;
	return 0;
}

static int
open_control(struct listeners *l, char *err, size_t errlen)
{
	int	alive;

	if (priv_mkdir_of(l->control) == -1)
		return conf_fail(err, errlen, "control-socket %s: cannot make its directory: %s",
		    l->control, strerror(errno));
	for (int waited = 0; (alive = control_alive(l->control)) == 1; waited += RETRY_STEP_MS) {
		if (waited >= RETRY_MS)
			return conf_fail(err, errlen, "control-socket %s: another server answers there", l->control);
		pause_step();
	}
	if (alive == -1 || control_bind(l) == -1)
		return conf_fail(err, errlen, "control-socket %s: %s", l->control,
		    errno == EEXIST ? "exists and is not a socket" : strerror(errno));
	return 0;
}

int
listen_open(struct listeners *l, const struct conf *c, unsigned nlanes, char *err, size_t errlen)
{
	int	rc;

	*l = (struct listeners){ .nlanes = nlanes, .http = c->listen, .metrics = c->metrics, .control_fd = -1 };
	memset(l->http_fd, -1, sizeof(l->http_fd));
	memset(l->metrics_fd, -1, sizeof(l->metrics_fd));
	(void)strlcpy(l->control, c->control_socket, sizeof(l->control));
	if (priv_raise() == -1)
		rc = conf_fail(err, errlen, "cannot become root to bind: %s", strerror(errno));
	else
		rc = open_tcp(l, err, errlen);
	if (priv_lower() == -1)
		rc = conf_fail(err, errlen, "cannot become the user: %s", strerror(errno));
	if (rc == 0)
		rc = open_control(l, err, errlen);
	if (rc == -1)
		listen_close(l);
	return rc;
}

unsigned
listen_lane(const struct listeners *l, unsigned lane, struct boot_listener *out)
{
	unsigned	n = 0;

	for (unsigned i = 0; i < l->http.n; i++)
		out[n++] = (struct boot_listener){ LISTEN_HTTP, l->http_fd[lane][i] };
	for (unsigned i = 0; i < l->metrics.n; i++)
		out[n++] = (struct boot_listener){ LISTEN_METRICS, l->metrics_fd[i] };
	out[n++] = (struct boot_listener){ LISTEN_CONTROL, l->control_fd };
	return n;
}

void
listen_text(const struct listeners *l, char *buf, size_t len)
{
	char	text[64];

	buf[0] = '\0';
	for (unsigned i = 0; i < l->http.n + l->metrics.n; i++) {
		bool	http = i < l->http.n;

		(void)strlcat(buf, http ? "http " : "metrics ", len);
		(void)strlcat(buf, conf_addr_text(http ? &l->http.a[i] : &l->metrics.a[i - l->http.n],
		    text, sizeof(text)), len);
		(void)strlcat(buf, ", ", len);
	}
	(void)strlcat(buf, "control ", len);
	(void)strlcat(buf, l->control, len);
}

static void
shut(int *fd)
{
	if (*fd != -1)
		close(*fd);
	*fd = -1;
}

void
listen_close(struct listeners *l)
{
	struct stat	st;

	for (unsigned i = 0; i < CONF_ADDRS; i++) {
		for (unsigned lane = 0; lane < l->nlanes; lane++)
			shut(&l->http_fd[lane][i]);
		shut(&l->metrics_fd[i]);
	}
	shut(&l->control_fd);
	if (l->ino != 0 && lstat(l->control, &st) == 0 && st.st_dev == l->dev && st.st_ino == l->ino &&
	    unlink(l->control) == -1)
		log_warn("cannot remove %s", l->control);
	l->ino = 0;
}
