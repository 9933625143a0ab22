/* tests/a_boot.c - shm/boot.h: what a child is like when its loop begins. */
#include "config.h"
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <sys/prctl.h>
#include "tests/unit.h"
#include "shm/boot.h"
#include "shm/log.h"
#include "shm/proc.h"

struct lines {
	struct boot	b;
	int		write_end;	/* of the lifeline: the master's */
};

static struct lines
new_boot(void)
{
	struct lines	l = { .b = { .master = getpid() } };
	int		p[2];

	assert_int_equal(pipe2(p, O_CLOEXEC), 0);
	l.b.lifeline = p[0];
	l.write_end = p[1];
	return l;
}

static void
end_boot(struct lines *l)
{
	close(l->b.lifeline);
	close(l->write_end);
}

static bool
is_open(int fd)
{
	return fcntl(fd, F_GETFD) != -1;
}

static void
look_at_descriptors(const struct lines *l, int kept, int other)
{
	const int	keep[] = { -1, kept, l->b.lifeline, kept, 1 };

	boot_child(&l->b, keep, 5);
	assert_true(is_open(0) && is_open(1) && is_open(2));
	assert_true(is_open(kept) && is_open(l->b.lifeline) && is_open(log_descriptor()));
	assert_false(is_open(other));
	assert_false(is_open(l->write_end));
	assert_false(is_open(200));
	assert_int_equal(boot_stopping, 0);
}

static void
only_what_is_kept_stays_open(void **state)
{
	struct lines	l = new_boot();
	int		a = open("/dev/null", O_RDWR), b = open("/dev/null", O_RDWR);

	(void)state;
	assert_int_equal(dup2(b, 200), 200);
	assert_int_equal(t_child(look_at_descriptors(&l, a, b)), 0);
	assert_int_equal(t_child(look_at_descriptors(&l, b, a)), 0);
	close(a);
	close(b);
	close(200);
	end_boot(&l);
}

static void
look_at_signals(const struct lines *l)
{
	sigset_t	all, now;

	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, NULL);
	raise(SIGTERM);		/* while they are blocked, as between fork and boot_child() */
	boot_child(&l->b, &l->b.lifeline, 1);
	sigprocmask(SIG_SETMASK, NULL, &now);
	assert_int_equal(sigismember(&now, SIGTERM), 0);
	assert_int_equal(boot_stopping, 1);
	raise(SIGHUP);
	raise(SIGINT);
	raise(SIGPIPE);
	raise(SIGUSR1);
	raise(SIGTERM);
}

static void
term_is_a_flag_and_the_rest_harms_nobody(void **state)
{
	struct lines	l = new_boot();

	(void)state;
	assert_int_equal(t_child(look_at_signals(&l)), 0);
	end_boot(&l);
}

/* Waits for the flag as a loop does, and says so in shared memory. */
static void
child_of_the_dead(const struct lines *l, _Atomic(int) *said)
{
	struct pollfd	p = { .fd = l->b.lifeline, .events = POLLIN };
	int		sig = 0;

	boot_child(&l->b, &l->b.lifeline, 1);
	prctl(PR_GET_PDEATHSIG, &sig);
	assert_int_equal(sig, SIGTERM);
	*said = 1;
	while (!boot_stopping)
		if (poll(&p, 1, 10000) == 1)
			break;
	*said = 2;
}

static void
master_that_dies(struct lines *l, _Atomic(int) *said)
{
	l->b.master = getpid();
	t_fork(close(l->write_end); child_of_the_dead(l, said));
	close(l->b.lifeline);
	while (*said == 0)
		usleep(100);
	t_die();
}

static void
the_masters_death_ends_the_loop(void **state)
{
	struct lines	 l = new_boot();
	_Atomic(int)	*said = t_shared(sizeof(*said));
	struct pollfd	 p;
	int		 done[2];

	(void)state;
	/* the grandchild is not ours to wait for: its end is the end of this pipe */
	assert_int_equal(pipe(done), 0);
	t_child(dup2(done[1], 1); close(done[0]); close(done[1]); master_that_dies(&l, said));
	close(done[1]);
	p = (struct pollfd){ .fd = done[0], .events = POLLIN };
	assert_int_equal(poll(&p, 1, 20000), 1);
	assert_int_equal(*said, 2);
	close(done[0]);
	end_boot(&l);
}

static void
look_at_a_late_start(const struct lines *l)
{
	boot_child(&l->b, &l->b.lifeline, 1);
	assert_int_equal(boot_stopping, 1);
}

static void
a_master_that_died_before_is_noticed_at_once(void **state)
{
	struct lines	l = new_boot();

	(void)state;
	/* by its pid */
	l.b.master = 1 << 30;
	assert_int_equal(t_child(look_at_a_late_start(&l)), 0);
	/* by the lifeline */
	l.b.master = 0;
	close(l.write_end);
	assert_int_equal(t_child(look_at_a_late_start(&l)), 0);
	close(l.b.lifeline);
}

static void
look_at_ids(struct lines *l)
{
	gid_t	groups[4];
	uid_t	r, e, s;
	int	sig = 0;

	l->b.set.drop = true;
	l->b.set.uid = 65534;
	l->b.set.gid = 65533;
	boot_child(&l->b, &l->b.lifeline, 1);
	assert_int_equal(getresuid(&r, &e, &s), 0);
	assert_true(r == 65534 && e == 65534 && s == 65534);
	assert_int_equal(getegid(), 65533);
	assert_int_equal(getgroups(4, groups), 1);
	assert_int_equal(groups[0], 65533);
	prctl(PR_GET_PDEATHSIG, &sig);
	assert_int_equal(sig, SIGTERM);
}

static void
privileges_are_gone_for_good(void **state)
{
	struct lines	l = new_boot();

	(void)state;
	if (geteuid() == 0)
		assert_int_equal(t_child(look_at_ids(&l)), 0);
	end_boot(&l);
	if (geteuid() != 0)
		t_not_here("dropping privileges needs root");
}

int
main(void)
{
	const struct CMUnitTest	tests[] = {
		cmocka_unit_test(only_what_is_kept_stays_open),
		cmocka_unit_test(term_is_a_flag_and_the_rest_harms_nobody),
		cmocka_unit_test(a_master_that_died_before_is_noticed_at_once),
		cmocka_unit_test(the_masters_death_ends_the_loop),
		cmocka_unit_test(privileges_are_gone_for_good),
	};

	proc_become(IN_TEST, 0);
	if (log_to(NULL) == -1)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
