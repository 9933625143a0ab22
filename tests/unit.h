/*
 * tests/unit.h - what the unit tests share: memory, directories, children, guard pages.
 *
 * Runs in: tests only.  Include it instead of <cmocka.h>.
 */
#ifndef TESTS_UNIT_H
#define TESTS_UNIT_H
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <errno.h>
#include <ftw.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define T_DEADLINE_S	120	/* a child that hangs is ended by SIGALRM, and its test fails */

/* Zero-filled memory that children share; lives until the program ends. */
static inline void *
t_shared(size_t size)
{
	void	*p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	assert_true(p != MAP_FAILED);
	return p;
}

/* A copy of len bytes whose last byte is the last before a page nobody may touch. */
static inline void *
t_at_guard(const void *data, size_t len)
{
	size_t	 page = (size_t)sysconf(_SC_PAGESIZE), whole = (len + page - 1) / page * page;
	char	*p = mmap(NULL, whole + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_true(p != MAP_FAILED);
	assert_int_equal(mprotect(p + whole, page, PROT_NONE), 0);
	if (len > 0)
		memcpy(p + whole - len, data, len);
	return p + whole - len;
}

static inline int
t_remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
	(void)st;
	(void)flag;
	(void)ftw;
	return remove(path);
}

/* A file, or a directory with all that is in it. */
static inline void
t_remove_tree(const char *path)
{
	assert_int_equal(nftw(path, t_remove_one, 8, FTW_DEPTH | FTW_PHYS), 0);
}

/* Child's side of t_fork(): cmocka's assertions and signal handlers must not jump into the parent's test list. */
static inline void
t_child_begin(void)
{
	static const int	sigs[] = { SIGSEGV, SIGILL, SIGFPE, SIGBUS, SIGSYS, SIGABRT, SIGTERM, SIGALRM };
	size_t			i;

	for (i = 0; i < sizeof(sigs) / sizeof(sigs[0]); i++)
		signal(sigs[i], SIG_DFL);
	setenv("CMOCKA_TEST_ABORT", "1", 1);	/* a failed assertion is abort(3) */
	alarm(T_DEADLINE_S);
}

/* Waits for a child; its status as waitpid(2) gives it. */
static inline int
t_wait(pid_t pid)
{
	int	st;

	while (waitpid(pid, &st, 0) == -1)
		assert_int_equal(errno, EINTR);
	return st;
}

/* Runs the statements in a child, at the same time; its pid. */
#define t_fork(...) ({				\
	pid_t	t_pid_ = fork();		\
						\
	assert_true(t_pid_ != -1);		\
	if (t_pid_ == 0) {			\
		t_child_begin();		\
		__VA_ARGS__;			\
		_exit(0);			\
	}					\
	t_pid_;					\
})

/* Runs the statements in a child and waits for its end, however it ends; the status. */
#define t_child(...)	t_wait(t_fork(__VA_ARGS__))

/* Instead of skip(): cmocka 1.1.5 says "not ok ... SKIP" in TAP, which prove(1) takes for a failure. */
#define t_not_here(why) do {				\
	print_message("# not possible here: %s\n", why);	\
	return;						\
} while (0)

/* Dies as under kill -9: no handler, no cleanup, nothing after this instruction. */
static inline void
t_die(void)
{
	raise(SIGKILL);
}

/*
 * Two processes at the same place: each calls it once per round, 1, 2, 3, ...,
 * on its own word and the other's.  For races whose window is a few cycles.
 */
static inline void
t_meet(_Atomic(uint32_t) *mine, const _Atomic(uint32_t) *other, uint32_t round)
{
	unsigned	spins = 0;

	atomic_store_explicit(mine, round, memory_order_release);
	while (atomic_load_explicit(other, memory_order_acquire) < round)
		if (++spins % 4096 == 0)
			sched_yield();
}

/* Up to 127 turns, mostly few, other ones each round: so that each way to cross comes up. */
static inline void
t_jitter(uint32_t seed)
{
	uint32_t		hash = (seed ^ seed >> 7) * 2654435761u;
	volatile uint32_t	turns = hash >> 25 >> (hash >> 8 & 7);

	while (turns > 0)
		turns--;
}

/*
 * Every point of death: runs body(arg) in a child, one machine instruction at
 * a time, and calls look(arg) after each.  What the child has stored in shared
 * memory by then is what it would leave if it were killed there.  Returns the
 * number of instructions, -1 where this is not possible (under qemu): skip().
 */
static inline long
t_steps(void (*body)(void *), void (*look)(void *), void *arg)
{
	long	steps = 0;
	int	st;
	pid_t	pid = fork();

	assert_true(pid != -1);
	if (pid == 0) {
		t_child_begin();
		if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) == -1)
			_exit(77);
		raise(SIGSTOP);
		body(arg);
		_exit(0);
	}
	for (;;) {
		st = t_wait(pid);
		if (WIFEXITED(st) && WEXITSTATUS(st) == 77 && steps == 0)
			return -1;
		if (!WIFSTOPPED(st))
			break;
		if (steps++ > 0)
			look(arg);
		assert_int_equal(ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL), 0);
	}
	assert_true(WIFEXITED(st) && WEXITSTATUS(st) == 0);
	look(arg);
	return steps;
}

#endif
