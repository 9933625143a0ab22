/*
 * master/supervise.c - see master/supervise.h.
 * Runs in: master.
 *
 * Handlers only set flags, and only inside ppoll(2): everywhere else the
 * signals are blocked.  The loop is a list of `if (flag)` in order of urgency.
 */
#include "config.h"
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "master/bury.h"
#include "master/notify.h"
#include "master/probe.h"
#include "master/supervise.h"
#include "shm/log.h"
#include "shm/proc.h"

#define QUICK_MS	1000	/* who lives shorter than this ... */
#define QUICK_MANY	10	/* ... so many times in a row ... */
#define BACKOFF_MS	5000	/* ... is started again only after this long (F44) */
#define OUTSIDE_MS	20	/* a worker's where it was SIGKILL, which is nobody's fault here */
#define FORK_RETRY_MS	500	/* fork(2) failed: others go on serving meanwhile (F35) */
#define DRAIN_GRACE_MS	500	/* on top of drain-timeout, which a worker keeps by itself */
#define CLOSE_MS	10000	/* for the committer's last words */
#define WARM_MS		30000	/* for the first answer of a worker */
#define CRASHES_AT_START 3	/* of the first committer: then the start has failed */
#define EXTEND_MS	5000	/* how often a service manager is told that we still work (F59) */
#define PROBE_MS	20	/* between two probes that found nobody */

enum phase { RECOVER, WARM, RUN, DRAIN, CLOSE };

struct child {
	pid_t		pid;		/* 0: not there */
	uint64_t	born;		/* all times: monotonic ms */
	uint64_t	again;		/* not to be forked before */
	uint64_t	kill_at;	/* SIGKILL then; 0: never */
	unsigned	quick;		/* deaths in a row within QUICK_MS, of its own doing */
	unsigned	kills;		/* likewise, by SIGKILL from outside */
	bool		leaving;	/* was sent TERM by us: no surprise */
	bool		stale;		/* runs with old settings: to be replaced */
};

struct state {
	struct master	*m;
	enum phase	 phase;
	struct child	 child[REGION_LANES + 1];	/* by lane; the last is the committer */
	unsigned	 nlanes;
	int		 life_w;	/* the lifeline's end that only we hold */
	int		 ready_r;	/* RECOVER: the committer's byte; -1 later */
	int		 probe;		/* WARM: the question to a worker; -1: none */
	uint64_t	 probe_at;	/* when to ask (again) */
	uint64_t	 warm_until;
	uint64_t	 extend_at;
	unsigned	 crashes;	/* of the committer before it was ready */
	bool		 failed;
	char		*err;
	size_t		 errlen;
};

static volatile sig_atomic_t	got_chld, got_term, got_hup, got_usr1, got_usr2;
static sigset_t			outside;	/* the mask we were started with */

/* --- signals -------------------------------------------------------------- */

static void
on_signal(int sig)
{
	switch (sig) {
	case SIGCHLD:
		got_chld = 1;
		break;
	case SIGHUP:
		got_hup = 1;
		break;
	case SIGUSR1:
		got_usr1 = 1;
		break;
	case SIGUSR2:
		got_usr2 = 1;
		break;
	default:
		got_term = 1;
	}
}

static const int	caught[] = { SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2 };
#define NCAUGHT (sizeof(caught) / sizeof(caught[0]))

void
supervise_signals(void)
{
	struct sigaction	sa = { .sa_handler = on_signal };
	sigset_t		set;

	(void)sigemptyset(&set);
	(void)sigemptyset(&sa.sa_mask);
	for (size_t i = 0; i < NCAUGHT; i++) {
		(void)sigaddset(&set, caught[i]);
		(void)sigaction(caught[i], &sa, NULL);
	}
	(void)sigprocmask(SIG_BLOCK, &set, &outside);
	for (size_t i = 0; i < NCAUGHT; i++)	/* whatever our parent thought of them */
		(void)sigdelset(&outside, caught[i]);
	(void)signal(SIGPIPE, SIG_IGN);
	(void)signal(SIGXFSZ, SIG_IGN);		/* a file size limit is an error of write(2), no death (F14) */
}

/* --- children ------------------------------------------------------------- */

static uint64_t
now_ms(void)
{
	struct timespec	ts;

	(void)clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

static struct child *
committer(struct state *s)
{
	return &s->child[s->nlanes];
}

static const char *
child_name(const struct state *s, const struct child *c, char *buf, size_t len)
{
	if (c == &s->child[s->nlanes])
		(void)snprintf(buf, len, "committer");
	else
		(void)snprintf(buf, len, "worker %u", (unsigned)(c - s->child));
	return buf;
}

/* Does the phase want it to be there? */
static bool
wanted(const struct state *s, const struct child *c)
{
	if (c == &s->child[s->nlanes])
		return s->phase != CLOSE && !s->failed;
	return s->phase == WARM || s->phase == RUN;
}

static _Noreturn void
child_run(struct state *s, struct child *c)
{
	struct boot	*b = &s->m->boot;

	/* or the lifeline would never break: only the master holds this end */
	close(s->life_w);
	(void)signal(SIGCHLD, SIG_DFL);		/* the rest stays blocked until boot_child() has its own handlers */
	if (c == committer(s))
		committer_main(b);
	b->ready_fd = -1;
	b->lane = (unsigned)(c - s->child);
	b->nlisteners = listen_lane(&s->m->listeners, b->lane, b->listeners);
	worker_main(b);
}

static void
child_fork(struct state *s, struct child *c, uint64_t now)
{
	char	name[24];
	pid_t	pid;

	if ((pid = fork()) == 0)
		child_run(s, c);
	if (pid == -1) {
		log_warn("cannot fork %s", child_name(s, c, name, sizeof(name)));
		c->again = now + FORK_RETRY_MS;
		return;
	}
	*c = (struct child){ .pid = pid, .born = now, .quick = c->quick, .kills = c->kills };
	log_debug("%s is pid %d", child_name(s, c, name, sizeof(name)), (int)pid);
}

static void
child_signal(struct child *c, int sig)
{
	if (c->pid != 0)
		(void)kill(c->pid, sig);	/* not reaped yet, so the pid is still its own */
}

/* Asks it to finish and leave, within so many ms. */
static void
child_leave(struct child *c, uint64_t now, uint64_t within)
{
	if (c->pid == 0)
		return;
	c->leaving = true;
	c->kill_at = now + within;
	child_signal(c, SIGTERM);
}

/* Forks who should be there and is not; ends who has outstayed. */
static void
tend(struct state *s, uint64_t now)
{
	pid_t		pids[REGION_LANES + 1];
	char		name[24];
	bool		forked = false;

	for (unsigned i = 0; i <= s->nlanes; i++) {
		struct child	*c = &s->child[i];

		if (c->pid == 0 && wanted(s, c) && now >= c->again) {
			child_fork(s, c, now);
			forked = true;
		}
		if (c->pid != 0 && c->kill_at != 0 && now >= c->kill_at) {
			log_warnx("%s does not leave: killing it", child_name(s, c, name, sizeof(name)));
			c->kill_at = 0;
			child_signal(c, SIGKILL);
		}
		pids[i] = c->pid;
	}
	if (forked)
		datadir_record(&s->m->dir, pids, s->nlanes + 1);
}

/* --- start and stop --------------------------------------------------------- */

static void
stop(struct state *s, uint64_t now)
{
	uint64_t	within = s->m->conf.set.drain_ms + DRAIN_GRACE_MS;

	notify("STOPPING=1\nSTATUS=finishing what is under way\nEXTEND_TIMEOUT_USEC=%" PRIu64,
	    (within + CLOSE_MS) * 1000);
	if (!s->failed)
		log_info("stopping");
	s->phase = DRAIN;
	/* ours first: a new connection is refused rather than left in a queue */
	listen_close(&s->m->listeners);
	for (unsigned i = 0; i < s->nlanes; i++)
		child_leave(&s->child[i], now, within);
}

/* The start has failed: say why, and take down what is already there. */
static __attribute__((format(printf, 3, 4))) void
give_up(struct state *s, uint64_t now, const char *fmt, ...)
{
	va_list	ap;

	if (s->failed || s->phase == DRAIN || s->phase == CLOSE)
		return;
	va_start(ap, fmt);
	(void)vsnprintf(s->err, s->errlen, fmt, ap);
	va_end(ap);
	s->failed = true;
	stop(s, now);
}

/* Asked a second time: no more waiting for clients; the committer still may finish. */
static void
hurry(struct state *s, uint64_t now)
{
	for (unsigned i = 0; i < s->nlanes; i++)
		if (s->child[i].pid != 0)
			s->child[i].kill_at = now;
}

static void
committer_ready(struct state *s, uint64_t now)
{
	char	byte;

	if (read(s->ready_r, &byte, 1) != 1)
		return;
	close(s->ready_r);
	close(s->m->boot.ready_fd);
	s->ready_r = s->m->boot.ready_fd = -1;
	s->phase = WARM;
	s->warm_until = now + WARM_MS;
	s->probe_at = now;
}

static void
probe_drop(struct state *s)
{
	if (s->probe != -1)
		close(s->probe);
	s->probe = -1;
}

/* WARM: asks until a worker answers. */
static void
warm(struct state *s, uint64_t now, bool readable)
{
	char	addrs[2048];

	if (readable && probe_read(s->probe)) {
		probe_drop(s);
		s->phase = RUN;
		listen_text(&s->m->listeners, addrs, sizeof(addrs));
		log_info("ready: %s", addrs);
		notify("READY=1\nMAINPID=%d\nSTATUS=ready", (int)getpid());
		s->m->ready();
		proc_settled();
		return;
	}
	if (readable) {
		probe_drop(s);
		s->probe_at = now + PROBE_MS;
	}
	if (s->probe == -1 && now >= s->probe_at && (s->probe = probe_open(s->m->listeners.control)) == -1)
		s->probe_at = now + PROBE_MS;
	if (now >= s->warm_until)
		give_up(s, now, "no worker answers within %d s; see the log", WARM_MS / 1000);
}

/* From one phase to the next where what it waited for is true. */
static void
advance(struct state *s, uint64_t now)
{
	if (s->phase == DRAIN) {
		for (unsigned i = 0; i < s->nlanes; i++)
			if (s->child[i].pid != 0)
				return;
		s->phase = CLOSE;
		child_leave(committer(s), now, CLOSE_MS);
	}
	if (s->phase != RUN && now >= s->extend_at) {
		s->extend_at = now + EXTEND_MS;
		notify("EXTEND_TIMEOUT_USEC=30000000%s",
		    s->phase == RECOVER ? "\nSTATUS=opening the store" : "");
	}
}

/* --- deaths ------------------------------------------------------------------ */

static void
log_end(const struct state *s, const struct child *c, int status)
{
	char	name[24];

	(void)child_name(s, c, name, sizeof(name));
	if (WIFSIGNALED(status))
		log_warnx("%s (pid %d) was ended by signal %d (%s)%s", name, (int)c->pid, WTERMSIG(status),
		    strsignal(WTERMSIG(status)),
		    WTERMSIG(status) == SIGKILL && c->kill_at == 0 && !c->leaving ?
		    ": not by us; out of memory?" : "");
	else if (WEXITSTATUS(status) != 0 || !c->leaving)
		log_warnx("%s (pid %d) exited with status %d", name, (int)c->pid, WEXITSTATUS(status));
}

/* When to start it again. */
static void
back_off(struct state *s, struct child *c, int status, uint64_t now)
{
	bool	outside_kill = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
	char	name[24];

	c->again = 0;
	if (c->leaving || now - c->born >= QUICK_MS) {
		c->quick = c->kills = 0;
		return;
	}
	if (outside_kill) {
		/* no test of patience for clients, just a bound on the log */
		if (++c->kills >= QUICK_MANY && c != committer(s))
			c->again = now + OUTSIDE_MS;
		return;
	}
	if (++c->quick < QUICK_MANY)
		return;
	c->again = now + BACKOFF_MS;
	log_warnx("%s keeps dying: next try in %d s", child_name(s, c, name, sizeof(name)), BACKOFF_MS / 1000);
	notify("STATUS=%s keeps dying", name);
}

static void
committer_ended(struct state *s, int status, uint64_t now)
{
	struct region	*r = &s->m->boot.region;
	bool		 crash = bury_is_crash(status);

	bury_committer(r, crash);
	if (s->phase != RECOVER)
		return;
	s->crashes += crash;
	r->head->reason[sizeof(r->head->reason) - 1] = '\0';	/* its writer is dead */
	if (WIFEXITED(status) || s->crashes >= CRASHES_AT_START)
		give_up(s, now, "the store in %s cannot be opened%s%s; the log says more (%s)",
		    s->m->conf.data_dir, r->head->reason[0] != '\0' ? ": " : "", r->head->reason,
		    s->m->conf.log);
}

static void
child_ended(struct state *s, struct child *c, int status, uint64_t now)
{
	log_end(s, c, status);
	back_off(s, c, status, now);
	c->pid = 0;
	c->kill_at = 0;
	c->leaving = false;
	if (c == committer(s)) {
		committer_ended(s, status, now);
		return;
	}
	bury_worker(&s->m->boot.region, (unsigned)(c - s->child));
	if (s->phase == WARM && c->quick >= QUICK_MANY)
		give_up(s, now, "worker %u dies at start; the log says more (%s)",
		    (unsigned)(c - s->child), s->m->conf.log);
}

static void
reap(struct state *s, uint64_t now)
{
	pid_t	pid;
	int	status;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
		for (unsigned i = 0; i <= s->nlanes; i++)
			if (s->child[i].pid == pid) {
				child_ended(s, &s->child[i], status, now);
				break;
			}
}

/*
 * The committer says that a worker stands still with a pin, for which memory or disk
 * space waits (store/pinwatch.h).  We look for ourselves: it may have moved.
 */
static void
end_stuck(struct state *s)
{
	struct region	*r = &s->m->boot.region;
	/* acquire: pairs with the committer's release */
	uint64_t	 told = atomic_exchange_explicit(&r->head->stuck, 0, memory_order_acquire);
	uint64_t	 lane = (told >> REGION_STUCK_SHIFT) - 1;
	struct child	*c;

	if (told == 0 || lane >= s->nlanes)
		return;
	c = &s->child[lane];
	/* relaxed: whose pin it is, nothing that it points to */
	if (c->pid == 0 || c->leaving || atomic_load_explicit(&r->pins[lane].gen, memory_order_relaxed) !=
	    (told & ((UINT64_C(1) << REGION_STUCK_SHIFT) - 1)))
		return;
	log_warnx("worker %u (pid %d) stands still, and others wait for what it looks at: killing it", (unsigned)lane,
	    (int)c->pid);
	c->leaving = true;
	child_signal(c, SIGKILL);
}

/* --- SIGHUP, SIGUSR1 ----------------------------------------------------------- */

static void
needs_restart(const char *key)
{
	log_warnx("%s: takes effect at the next start", key);
}

static void
reload(struct state *s)
{
	struct master	*m = s->m;
	struct settings	 was = m->conf.set;
	struct conf	*next;
	char		 err[CONF_ERR];

	notify("STATUS=reading the configuration again");
	if ((next = malloc(sizeof(*next))) == NULL) {
		log_warn("configuration not read again");
		return;
	}
	if (conf_load(next, m->conf_name, m->overrides, m->noverrides, err, sizeof(err)) == -1 ||
	    conf_take(&m->conf, next, needs_restart, err, sizeof(err)) == -1) {
		log_warnx("configuration not changed: %s", err);
		notify("STATUS=ready; the new configuration is bad and was not taken");
	} else {
		log_info("configuration read again: replacing the workers");
		m->boot.set = m->conf.set;
		for (unsigned i = 0; i < s->nlanes; i++)
			s->child[i].stale = true;
		/* of what can change, this is all that the committer looks at */
		committer(s)->stale = was.tombstone_s != m->conf.set.tombstone_s ||
		    was.max_document != m->conf.set.max_document;
		notify("STATUS=ready");
	}
	free(next);
}

/* One after another: the others serve meanwhile, and the sockets stay open here. */
static void
roll(struct state *s, uint64_t now)
{
	struct child	*next = NULL;

	if (s->phase != RUN)
		return;
	for (unsigned i = 0; i <= s->nlanes; i++) {
		struct child	*c = &s->child[i];

		if (c->leaving)
			return;
		if (next == NULL && c->stale && c->pid != 0)
			next = c;
	}
	if (next != NULL)
		child_leave(next, now, next == committer(s) ? CLOSE_MS :
		    s->m->conf.set.drain_ms + DRAIN_GRACE_MS);
}

static void
reopen(struct state *s)
{
	if (log_reopen() == -1)
		log_warn("cannot reopen the log; the old one goes on");
	for (unsigned i = 0; i <= s->nlanes; i++)
		child_signal(&s->child[i], SIGUSR1);
}

/* --- the loop ------------------------------------------------------------------ */

static uint64_t
earlier(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* When the next thing is due; UINT64_MAX: nothing is. */
static uint64_t
due(const struct state *s)
{
	uint64_t	t = s->phase == RUN ? UINT64_MAX : s->extend_at;

	if (s->phase == WARM)
		t = earlier(t, s->probe == -1 ? earlier(s->probe_at, s->warm_until) : s->warm_until);
	for (unsigned i = 0; i <= s->nlanes; i++) {
		const struct child	*c = &s->child[i];

		if (c->pid == 0 && wanted(s, c))
			t = earlier(t, c->again);
		if (c->pid != 0 && c->kill_at != 0)
			t = earlier(t, c->kill_at);
	}
	return t;
}

/* Sleeps until a signal, the committer's byte, a worker's answer or something due. */
static void
rest(const struct state *s, struct pollfd p[2])
{
	uint64_t	now = now_ms(), t = due(s);
	struct timespec	ts = { 0 };

	if (t > now)
		ts = (struct timespec){ .tv_sec = (time_t)((t - now) / 1000),
		    .tv_nsec = (long)((t - now) % 1000) * 1000000 };
	p[0] = (struct pollfd){ .fd = s->phase == RECOVER ? s->ready_r : -1, .events = POLLIN };
	p[1] = (struct pollfd){ .fd = s->phase == WARM ? s->probe : -1, .events = POLLIN };
	if (ppoll(p, 2, t == UINT64_MAX ? NULL : &ts, &outside) == -1)
		p[0].revents = p[1].revents = 0;
}

static void
round_once(struct state *s)
{
	struct pollfd	p[2];
	uint64_t	now;

	rest(s, p);
	now = now_ms();
	if (got_chld) {
		got_chld = 0;
		reap(s, now);
	}
	if (got_usr2) {		/* the committer's alone */
		got_usr2 = 0;
		end_stuck(s);
	}
	if (got_term) {
		got_term = 0;
		if (s->phase == DRAIN || s->phase == CLOSE)
			hurry(s, now);
		else
			stop(s, now);
	}
	if (got_hup && s->phase == RUN) {	/* earlier ones wait until there is something to reload */
		got_hup = 0;
		reload(s);
	}
	if (got_usr1) {
		got_usr1 = 0;
		reopen(s);
	}
	if (s->phase == RECOVER && p[0].revents != 0)
		committer_ready(s, now);
	if (s->phase == WARM)
		warm(s, now, p[1].revents != 0);
	roll(s, now);
	tend(s, now);
	advance(s, now);
}

/* Pipes and eventfds that the children get. */
static int
wire(struct state *s)
{
	struct boot	*b = &s->m->boot;
	int		 p[2];

	if (pipe2(p, O_CLOEXEC | O_NONBLOCK) == -1)
		return -1;
	b->lifeline = p[0];
	s->life_w = p[1];
	if (pipe2(p, O_CLOEXEC | O_NONBLOCK) == -1)
		return -1;
	s->ready_r = p[0];
	b->ready_fd = p[1];
	for (unsigned i = 0; i < s->nlanes; i++)
		if ((b->wake[i] = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) == -1)
			return -1;
	return 0;
}

int
supervise(struct master *m, char *err, size_t errlen)
{
	static struct state	state;
	struct state		*s = &state;

	RUNS_IN(IN_MASTER);
	*s = (struct state){ .m = m, .nlanes = m->boot.nlanes, .probe = -1, .err = err, .errlen = errlen,
	    .extend_at = now_ms() + EXTEND_MS };
	if (wire(s) == -1)
		return conf_fail(err, errlen, "no pipes for the children: %s", strerror(errno));
	do
		round_once(s);
	while (s->phase != CLOSE || committer(s)->pid != 0);
	probe_drop(s);
	return s->failed ? -1 : 0;
}
