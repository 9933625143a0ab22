/* tests/a_bell.c - shm/bell.h: I4. */
#include "config.h"
#include <time.h>
#include <stdbool.h>
#include "tests/unit.h"
#include "shm/bell.h"
#include "shm/proc.h"

#define ROUNDS	40000u

struct two {
	struct bell		there, back;
	_Alignas(64) _Atomic(uint32_t) ping, pong;
};

/* Waits without a limit: a wake-up that is lost is a hang, and the deadline makes it a failure. */
static void
wait_for(struct bell *b, _Atomic(uint32_t) *word, uint32_t value)
{
	uint32_t	t;

	while (atomic_load_explicit(word, memory_order_acquire) != value) {
		t = bell_arm(b);
		if (atomic_load_explicit(word, memory_order_acquire) == value)
			bell_disarm(b);
		else
			bell_sleep(b, t, -1);
	}
}

static void
echo(struct two *s)
{
	uint32_t	i;

	for (i = 1; i <= ROUNDS; i++) {
		wait_for(&s->there, &s->ping, i);
		atomic_store_explicit(&s->pong, i, memory_order_relaxed);
		bell_ring(&s->back);
	}
}

static void
call(struct two *s)
{
	uint32_t	i;

	for (i = 1; i <= ROUNDS; i++) {
		atomic_store_explicit(&s->ping, i, memory_order_relaxed);
		bell_ring(&s->there);
		wait_for(&s->back, &s->pong, i);
	}
}

static void
no_wake_up_is_lost_between_two_processes(void **state)
{
	struct two	*s = t_shared(sizeof(*s));
	pid_t		 a, b;

	(void)state;
	a = t_fork(echo(s));
	b = t_fork(call(s));
	assert_int_equal(t_wait(b), 0);
	assert_int_equal(t_wait(a), 0);
	assert_int_equal(s->pong, ROUNDS);
}

struct crossing {
	struct bell		bell;
	_Alignas(64) _Atomic(uint32_t) work;
	_Alignas(64) _Atomic(uint32_t) at[2];
	uint32_t		missed;
};

/* Work is set and a sleeper lies down in the same moment: one of them must see the other. */
static void
cross(struct crossing *c, unsigned me)
{
	uint32_t	round, ticket, at = 0;
	bool		seen;

	for (round = 1; round <= ROUNDS; round++) {
		t_meet(&c->at[me], &c->at[!me], ++at);
		t_jitter(2 * round + me);
		if (me == 0) {
			atomic_store_explicit(&c->work, round, memory_order_relaxed);
			bell_ring(&c->bell);
			t_meet(&c->at[me], &c->at[!me], ++at);
			continue;
		}
		ticket = bell_arm(&c->bell);
		seen = atomic_load_explicit(&c->work, memory_order_relaxed) == round;
		t_meet(&c->at[me], &c->at[!me], ++at);
		if (!seen && c->bell.rings == ticket)
			c->missed++;
		bell_disarm(&c->bell);
	}
}

static void
work_and_sleep_that_cross_are_seen_by_one_of_them(void **state)
{
	struct crossing	*c = t_shared(sizeof(*c));
	pid_t		 a, b;

	(void)state;
	a = t_fork(cross(c, 0));
	b = t_fork(cross(c, 1));
	assert_int_equal(t_wait(a), 0);
	assert_int_equal(t_wait(b), 0);
	assert_int_equal(c->missed, 0);
}

static void
a_ring_between_arm_and_sleep_is_not_slept_over(void **state)
{
	struct bell	*b = t_shared(sizeof(*b));
	uint32_t	 t = bell_arm(b);

	(void)state;
	bell_ring(b);
	bell_sleep(b, t, -1);
	assert_int_equal(b->sleepers, 0);
}

static void
nobody_asleep_means_the_word_stays_and_no_system_call_is_made(void **state)
{
	struct bell	*b = t_shared(sizeof(*b));

	(void)state;
	bell_ring(b);
	assert_int_equal(b->rings, 0);
	bell_arm(b);
	bell_ring(b);
	assert_int_equal(b->rings, 1);
	bell_disarm(b);
	bell_ring(b);
	assert_int_equal(b->rings, 1);
}

static void
a_patient_sleeper_is_woken_with_enough_or_by_a_ring(void **state)
{
	struct bell	*b = t_shared(sizeof(*b));

	(void)state;
	bell_arm_for(b, 10);
	bell_add(b, 4);
	bell_add(b, 5);
	assert_int_equal(b->rings, 0);
	bell_add(b, 1);
	assert_int_equal(b->rings, 1);
	bell_add(b, 1);
	assert_int_equal(b->rings, 2);
	bell_arm_for(b, 10);
	bell_add(b, 200);
	assert_int_equal(b->rings, 3);
	bell_arm_for(b, 10);
	bell_ring(b);
	assert_int_equal(b->rings, 4);
	bell_arm(b);		/* nothing is left of another's patience */
	bell_add(b, 1);
	assert_int_equal(b->rings, 5);
	bell_disarm(b);
	bell_add(b, 1);
	assert_int_equal(b->rings, 5);
}

struct counted {
	struct bell		bell;
	_Atomic(uint32_t)	work;
};

/* `pieces` of work in groups of a few, from one of two. */
static void
count_in(struct counted *c, unsigned pieces, unsigned seed)
{
	while (pieces > 0) {
		unsigned	n = 1 + (seed = seed * 1103515245 + 12345) / 65536 % 3;

		n = n < pieces ? n : pieces;
		atomic_fetch_add_explicit(&c->work, n, memory_order_release);
		bell_add(&c->bell, n);
		pieces -= n;
	}
}

/* However the work comes, a sleeper without a limit is woken for it: none of what it waits for is lost. */
static void
all_that_a_patient_sleeper_waits_for_is_counted(void **state)
{
	struct counted	*c = t_shared(sizeof(*c));

	(void)state;
	for (unsigned round = 0; round < 300; round++) {
		pid_t		a, b;
		uint32_t	ticket;

		atomic_store(&c->work, 0);
		ticket = bell_arm_for(&c->bell, 200);
		assert_int_equal(atomic_load(&c->work), 0);
		a = t_fork(count_in(c, 100, round));
		b = t_fork(count_in(c, 100, ~round));
		bell_sleep(&c->bell, ticket, -1);
		assert_int_equal(atomic_load(&c->work), 200);
		assert_int_equal(t_wait(a), 0);
		assert_int_equal(t_wait(b), 0);
	}
}

static void
a_sleep_ends_at_its_limit(void **state)
{
	struct bell	*b = t_shared(sizeof(*b));
	struct timespec	 t0, t1;

	(void)state;
	clock_gettime(CLOCK_MONOTONIC, &t0);
	bell_sleep(b, bell_arm(b), 2000);
	clock_gettime(CLOCK_MONOTONIC, &t1);
	assert_true((t1.tv_sec - t0.tv_sec) * 1000000000L + t1.tv_nsec - t0.tv_nsec >= 2000000L);
	assert_int_equal(b->sleepers, 0);
}

static void
what_a_sleeper_killed_in_its_sleep_leaves_is_put_right_by_the_next(void **state)
{
	struct bell	*b = t_shared(sizeof(*b));

	(void)state;
	t_child(bell_arm(b); t_die());
	assert_int_equal(b->sleepers, 1);
	bell_arm(b);
	bell_disarm(b);
	assert_int_equal(b->sleepers, 0);
}

int
main(void)
{
	const struct CMUnitTest	tests[] = {
		cmocka_unit_test(nobody_asleep_means_the_word_stays_and_no_system_call_is_made),
		cmocka_unit_test(a_ring_between_arm_and_sleep_is_not_slept_over),
		cmocka_unit_test(a_patient_sleeper_is_woken_with_enough_or_by_a_ring),
		cmocka_unit_test(all_that_a_patient_sleeper_waits_for_is_counted),
		cmocka_unit_test(a_sleep_ends_at_its_limit),
		cmocka_unit_test(what_a_sleeper_killed_in_its_sleep_leaves_is_put_right_by_the_next),
		cmocka_unit_test(work_and_sleep_that_cross_are_seen_by_one_of_them),
		cmocka_unit_test(no_wake_up_is_lost_between_two_processes),
	};

	proc_become(IN_TEST, 0);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
