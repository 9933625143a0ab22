/*
 * worker/loop.c - see worker/loop.h.
 *
 * Runs in: worker.
 */
#include "config.h"
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <errno.h>
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <unistd.h>
#include "shm/log.h"
#include "worker/loop.h"
#include "worker/worker.h"

#define TOLD_EVERY_MS	60000u

/* epoll_data: a connection's address, or what else it is in the lowest bits. */
enum { IS_CONN, IS_LISTENER, IS_WAKE, IS_LIFELINE, IS_TERM, TAGS = 7 };
_Static_assert(_Alignof(struct conn) > TAGS, "the tag has room");

/* --- the set ---------------------------------------------------------------- */

static int
add(struct loop *l, int fd, uint32_t events, uint64_t data)
{
	struct epoll_event	e = { .events = events, .data.u64 = data };

	return epoll_ctl(l->ep, EPOLL_CTL_ADD, fd, &e);
}

int
loop_arm(struct worker *w, struct conn *c)
{
	if (add(&w->loop, c->fd, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, (uintptr_t)c) == -1)
		return -1;
	c->armed = true;
	return 0;
}

/* Sockets that all workers listen on wake one of them (F51). */
static int
add_listener(struct loop *l, unsigned i)
{
	uint32_t	shared = l->listeners[i].kind == LISTEN_HTTP ? 0 : EPOLLEXCLUSIVE;

	return add(l, l->listeners[i].fd, EPOLLIN | shared, (uint64_t)i << 3 | IS_LISTENER);
}

static void
pause_listeners(struct worker *w)
{
	struct loop	*l = &w->loop;
	unsigned	 i;

	for (i = 0; i < l->nlisteners; i++)
		epoll_ctl(l->ep, EPOLL_CTL_DEL, l->listeners[i].fd, NULL);
	l->paused = true;
	l->resume_ms = w->clock.ms + LOOP_PAUSE_MS;
}

static void
resume_listeners(struct worker *w)
{
	struct loop	*l = &w->loop;
	unsigned	 i;

	for (i = 0; i < l->nlisteners; i++)
		if (add_listener(l, i) == -1 && errno != EEXIST) {
			/* no memory in the kernel: the next round tries again */
			l->resume_ms = w->clock.ms + LOOP_PAUSE_MS;
			return;
		}
	l->paused = false;
}

void
loop_resume(struct worker *w)
{
	if (w->loop.paused && !w->draining)
		w->loop.resume_ms = 0;
}

/* TERM comes as an event: a signal that hits just before a sleep would be slept over. */
static int
take_term(void)
{
	sigset_t	set;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	if (sigprocmask(SIG_BLOCK, &set, NULL) == -1)
		return -1;
	return signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
}

int
loop_init(struct worker *w)
{
	const struct boot	*b = w->boot;
	struct loop		*l = &w->loop;
	int			 one = 1;
	unsigned		 i;

	if ((l->ep = epoll_create1(EPOLL_CLOEXEC)) == -1 || (l->term = take_term()) == -1)
		return -1;
	if (add(l, l->term, EPOLLIN, IS_TERM) == -1 || add(l, b->lifeline, EPOLLIN | EPOLLRDHUP, IS_LIFELINE) == -1)
		return -1;
	/* edge-triggered, so it never needs to be read: each write is an edge */
	if (add(l, b->wake[w->lane], EPOLLIN | EPOLLET, IS_WAKE) == -1)
		return -1;
	for (i = 0; i < b->nlisteners && i < BOOT_LISTENERS; i++) {
		l->listeners[i] = (struct listener){ .fd = b->listeners[i].fd, .kind = b->listeners[i].kind, .batch = 1 };
		l->nlisteners++;
		/* what is accepted inherits it; a Unix socket does not know it, nor need it */
		setsockopt(l->listeners[i].fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
		if (add_listener(l, i) == -1)
			return -1;
	}
	return 0;
}

/* --- accepting ----------------------------------------------------------------- */

/* On the control socket the peer's uid is the authority. */
static bool
is_administrator(struct worker *w, int fd)
{
	struct ucred	u;
	socklen_t	len = sizeof(u);

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &u, &len) == -1)
		return false;
	if (u.uid == 0 || u.uid == w->boot->set.uid)
		return true;
	if (w->loop.stranger_ms == 0 || w->clock.ms - w->loop.stranger_ms >= TOLD_EVERY_MS) {
		log_warnx("control socket: uid %u is neither root nor the server's user: closed", (unsigned)u.uid);
		w->loop.stranger_ms = w->clock.ms;
	}
	return false;
}

/* Out of descriptors or memory: without one that can be closed, wait until there is. */
static bool
out_of_descriptors(struct worker *w)
{
	int		 why = errno;
	struct conn	*spare = conn_spare(w);

	errno = why;
	if (w->loop.told_ms == 0 || w->clock.ms - w->loop.told_ms >= TOLD_EVERY_MS) {
		log_warn("accept: %s", spare != NULL ? "the longest idle connection is closed for the new one" :
		    "new connections wait");
		w->loop.told_ms = w->clock.ms;
	}
	if (spare == NULL)
		return false;
	conn_evict(w, spare);
	return true;
}

/* 1: accepted.  0: nothing there.  -1: cannot take one now. */
static int
accept_one(struct worker *w, const struct listener *l)
{
	struct conn	*spare = NULL, *c;
	int		 fd;

	if (w->nconns >= w->max_conns && (spare = conn_spare(w)) == NULL)
		return -1;
	if ((fd = accept4(l->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) == -1) {
		switch (errno) {
		case EAGAIN:
			return 0;
		case ECONNABORTED:	/* this one's peer is gone; the next may be there */
		case EINTR:
		case EPERM:
		case EPROTO:
			return 1;
		case EMFILE:
		case ENFILE:
		case ENOBUFS:
		case ENOMEM:
			return out_of_descriptors(w) ? 1 : -1;
		default:		/* whatever it is, it will be the same at once: not in a circle */
			return -1;
		}
	}
	if (l->kind == LISTEN_CONTROL && !is_administrator(w, fd)) {
		close(fd);
		return 1;
	}
	if (spare != NULL)
		conn_evict(w, spare);
	if ((c = conn_open(w, fd, l->kind)) != NULL)
		conn_run(w, c);
	return 1;
}

/*
 * Most wake-ups bring one connection; asking for a second just to hear that
 * there is none is a system call.  Where they come in numbers, the batch grows.
 */
static void
accept_some(struct worker *w, struct listener *l)
{
	unsigned	n;
	int		r = 1;

	for (n = 0; n < l->batch && (r = accept_one(w, l)) == 1; n++)
		continue;
	if (r == -1)
		pause_listeners(w);
	else if (r == 0)
		l->batch = n > 1 ? n : 1;
	else if (l->batch < LOOP_ACCEPTS)
		l->batch++;
}

/* --- the end -------------------------------------------------------------------- */

static void
drain(struct worker *w, uint64_t within_ms)
{
	struct loop	*l = &w->loop;
	unsigned	 i;

	if (!w->draining) {
		w->draining = true;
		l->end_ms = UINT64_MAX;
		pause_listeners(w);	/* closing would not do: others have them open, so they would stay in the set */
		for (i = 0; i < l->nlisteners; i++)
			close(l->listeners[i].fd);
		l->nlisteners = 0;
		l->paused = false;
		l->grace_ms = w->clock.ms + LOOP_GRACE_MS;
	}
	if (w->clock.ms + within_ms < l->end_ms)
		l->end_ms = w->clock.ms + within_ms;
}

/* --- events --------------------------------------------------------------------- */

static void
conn_event(struct worker *w, struct conn *c, uint32_t events)
{
	if (c->state == CONN_CLOSED)
		return;		/* closed earlier in this round */
	if (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR))
		c->half = true;
	if (events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR))
		c->readable = true;
	if (events & (EPOLLOUT | EPOLLHUP | EPOLLERR))
		c->writable = true;
	if (c->readable || c->out != NULL)
		conn_run(w, c);
}

static void
term_event(struct worker *w)
{
	struct signalfd_siginfo	si;

	while (read(w->loop.term, &si, sizeof(si)) == sizeof(si))
		boot_stopping = 1;
	if (boot_stopping)
		drain(w, w->boot->set.drain_ms);
}

static void
lifeline_event(struct worker *w)
{
	epoll_ctl(w->loop.ep, EPOLL_CTL_DEL, w->boot->lifeline, NULL);
	log_warnx("the master is gone");
	boot_stopping = 1;
	drain(w, w->boot->set.drain_ms < LOOP_ORPHAN_MS ? w->boot->set.drain_ms : LOOP_ORPHAN_MS);
}

/* Returns which listeners are ready, one bit each: accepting comes last, it may close connections. */
static uint32_t
dispatch(struct worker *w, const struct epoll_event *e, int n)
{
	uint32_t	ready = 0;
	uint64_t	data;
	int		i;

	for (i = 0; i < n; i++) {
		data = e[i].data.u64;
		switch (data & TAGS) {
		case IS_CONN:
			conn_event(w, (struct conn *)(uintptr_t)data, e[i].events);
			break;
		case IS_LISTENER:
			ready |= (uint32_t)1 << (data >> 3);
			break;
		case IS_LIFELINE:
			lifeline_event(w);
			break;
		case IS_TERM:
			term_event(w);
			break;
		default:	/* IS_WAKE: results are looked for in any case */
			break;
		}
	}
	return ready;
}
_Static_assert(BOOT_LISTENERS <= 32, "a bit each");

/* --- rounds ----------------------------------------------------------------------- */

static int
sooner(int timeout, uint64_t at, uint64_t now)
{
	uint64_t	left = at > now ? at - now : 0;

	if (timeout >= 0 && (uint64_t)timeout <= left)
		return timeout;
	return left > INT_MAX ? INT_MAX : (int)left;
}

static int
sleep_ms(const struct worker *w)
{
	int	timeout = timers_wait(&w->timers, w->clock.ms);

	if (!STAILQ_EMPTY(&w->again))
		return 0;
	if (w->loop.paused)
		timeout = sooner(timeout, w->loop.resume_ms, w->clock.ms);
	if (w->draining) {
		timeout = sooner(timeout, w->loop.end_ms, w->clock.ms);
		if (!TAILQ_EMPTY(&w->timers.q[TIMER_IDLE]))
			timeout = sooner(timeout, w->loop.grace_ms, w->clock.ms);
	}
	return timeout;
}

/*
 * Lets the pin go.  Where segments were unlinked meanwhile: who still sends
 * from one copies the rest, so that its disk space comes free.
 */
static void
let_go(struct worker *w)
{
	struct conn	*c, *next;
	uint64_t	 floor;

	/* relaxed: read_idle() acquires a value at least as new, and finds what is gone */
	floor = atomic_load_explicit(&w->region.head->mapped_floor, memory_order_relaxed);
	read_idle(w->reader);
	if (floor == w->mapped_floor)
		return;
	w->mapped_floor = floor;
	for (c = TAILQ_FIRST(&w->timers.q[TIMER_WRITE]); c != NULL; c = next) {
		next = TAILQ_NEXT(c, timed);
		out_let_go(w, c);
		if (c->broken)
			conn_close(w, c);
	}
}

static int
wait_events(struct worker *w, struct epoll_event *e)
{
	int	n, timeout = sleep_ms(w);
	bool	armed = w->writes.under_way > 0;

	write_ring(w);
	let_go(w);
	/* the committer writes the eventfd only to those who sleep */
	if (armed && !lane_arm(&w->writes.lane))
		timeout = 0;
	if ((n = epoll_wait(w->loop.ep, e, LOOP_EVENTS, timeout)) == -1) {
		if (errno != EINTR)
			fatal("epoll_wait");
		n = 0;
	}
	log_poll();	/* USR1 may have come */
	if (armed)
		lane_disarm(&w->writes.lane);
	return n;
}

static void
loop_once(struct worker *w)
{
	struct epoll_event	 e[LOOP_EVENTS];
	struct loop		*l = &w->loop;
	struct conn		*c;
	uint32_t		 ready;
	unsigned		 i;
	int			 n;

	n = wait_events(w, e);
	clock_tick(&w->clock, read_time_floor(w->reader));
	ready = dispatch(w, e, n);
	write_collect(w);
	conn_run_again(w);
	while ((c = timers_expired(&w->timers, w->clock.ms)) != NULL)
		conn_expired(w, c);
	for (i = 0; i < l->nlisteners && !l->paused; i++)
		if (ready & (uint32_t)1 << i)
			accept_some(w, &l->listeners[i]);
	if (l->paused && (w->clock.ms >= l->resume_ms || !TAILQ_EMPTY(&w->timers.q[TIMER_IDLE])))
		resume_listeners(w);
	/* again and again: some become idle with an answer that still promised to keep the connection */
	if (w->draining && w->clock.ms >= l->grace_ms)
		conn_close_idle(w);
	conn_bury(w);
}

void
loop_run(struct worker *w)
{
	if (boot_stopping)
		drain(w, w->boot->set.drain_ms);
	while (!w->draining || (w->nconns > 0 && w->clock.ms < w->loop.end_ms))
		loop_once(w);
}
