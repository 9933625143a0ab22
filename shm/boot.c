/*
 * shm/boot.c - see shm/boot.h.
 *
 * Runs in: worker and committer, once, right behind the fork.
 */
#include "config.h"
#include <sys/prctl.h>
#include <sys/resource.h>
#include <errno.h>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>
#include "shm/boot.h"
#include "shm/log.h"
#include "shm/proc.h"

#define KEEP_MAX	256u	/* listeners, a wake-up per lane, and a handful more */

volatile int	boot_stopping;

static void
on_term(int sig)
{
	(void)sig;
	boot_stopping = 1;
}

static void
on_usr1(int sig)
{
	(void)sig;
	log_reopen_soon();
}

static void
handle(int sig, void (*fn)(int), int flags)
{
	struct sigaction	sa = { .sa_handler = fn, .sa_flags = flags };

	sigemptyset(&sa.sa_mask);
	if (sigaction(sig, &sa, NULL) == -1)
		fatal("sigaction(%d)", sig);
}

/* TERM without SA_RESTART: whoever sleeps comes back and looks at the flag. */
static void
set_signals(void)
{
	handle(SIGTERM, on_term, 0);
	handle(SIGUSR1, on_usr1, SA_RESTART);
	handle(SIGHUP, SIG_IGN, 0);
	handle(SIGINT, SIG_IGN, 0);
	handle(SIGPIPE, SIG_IGN, 0);
	handle(SIGCHLD, SIG_DFL, 0);
	handle(SIGALRM, SIG_DFL, 0);
	handle(SIGUSR2, SIG_DFL, 0);
}

/* Groups first: afterwards we may not.  That the way back is shut is asked, not assumed. */
static void
drop_privileges(const struct settings *set)
{
	if (!set->drop)
		return;
	if (setgroups(1, &set->gid) == -1 || setresgid(set->gid, set->gid, set->gid) == -1 ||
	    setresuid(set->uid, set->uid, set->uid) == -1)
		fatal("cannot become uid %u, gid %u", (unsigned)set->uid, (unsigned)set->gid);
	if (set->uid != 0 && setuid(0) != -1)
		fatalx("uid 0 can be had back after dropping it");
}

/* close_range(2) is of Linux 5.9; before it, one by one. */
static void
close_between(unsigned first, unsigned last)
{
	struct rlimit	rl;
	unsigned	fd;

	if (first > last || close_range(first, last, 0) == 0)
		return;
	if (getrlimit(RLIMIT_NOFILE, &rl) == 0 && last >= rl.rlim_cur)
		last = (unsigned)rl.rlim_cur;
	for (fd = first; fd <= last; fd++)
		close((int)fd);
}

static int
by_number(const void *a, const void *b)
{
	int	x = *(const int *)a, y = *(const int *)b;

	return (x > y) - (x < y);
}

static void
close_others(const int *keep, unsigned nkeep)
{
	int		fds[KEEP_MAX + 1];
	unsigned	i, n = 0, next = STDERR_FILENO + 1;

	if (nkeep > KEEP_MAX)
		fatalx("%u descriptors to keep, at most %u", nkeep, KEEP_MAX);
	while (n < nkeep && n < KEEP_MAX) {
		fds[n] = keep[n];
		n++;
	}
	fds[n++] = log_descriptor();
	qsort(fds, n, sizeof(fds[0]), by_number);
	for (i = 0; i < n; i++) {
		if (fds[i] < (int)next)
			continue;	/* 0-2, one named twice, or -1: none */
		close_between(next, (unsigned)fds[i] - 1);
		next = (unsigned)fds[i] + 1;
	}
	close_between(next, ~0u);
}

/* It may have died before PDEATHSIG was set, and then nothing is sent any more. */
static bool
master_is_gone(const struct boot *b)
{
	struct pollfd	p = { .fd = b->lifeline, .events = POLLIN };

	if (b->master != 0 && getppid() != b->master)
		return true;
	return b->lifeline >= 0 && poll(&p, 1, 0) == 1 && (p.revents & (POLLHUP | POLLIN)) != 0;
}

void
boot_child(const struct boot *b, const int *keep, unsigned nkeep)
{
	sigset_t	none;

	RUNS_IN(IN_WORKER | IN_COMMITTER | IN_TEST);
	set_signals();
	close_others(keep, nkeep);
	drop_privileges(&b->set);
	if (prctl(PR_SET_PDEATHSIG, SIGTERM) == -1)
		fatal("prctl(PR_SET_PDEATHSIG)");
	if (master_is_gone(b))
		boot_stopping = 1;
	sigemptyset(&none);
	if (sigprocmask(SIG_SETMASK, &none, NULL) == -1)
		fatal("sigprocmask");
}
