/* tests/a_arena.c - shm/arena.h: I6, and whole states at every point of death. */
#include "config.h"
#include "tests/unit.h"
#include "shm/arena.h"
#include "shm/proc.h"

#define LANES	3u

/* An arena of n granules, shared; each process that forks off has its own struct arena over it. */
static struct arena
new_arena(uint32_t n)
{
	uint8_t	*base = t_shared((size_t)(n + 1) * ARENA_GRANULE);

	return (struct arena){
		.base = base,
		.first = ARENA_GRANULE,
		.ngranules = n,
		.owner = t_shared(n),
		.lanes = t_shared(LANES * sizeof(struct arena_lane)),
		.nlanes = LANES,
	};
}

static unsigned
owned(const struct arena *a, unsigned lane)
{
	unsigned	i, n = 0;

	for (i = 0; i < a->ngranules; i++)
		n += a->owner[i] == lane + 1;
	return n;
}

static bool
keep_none(void *arg, uint32_t off)
{
	(void)arg;
	(void)off;
	return false;
}

/* --- granules ---------------------------------------------------------- */

static void
an_offset_outside_the_granules_is_null(void **state)
{
	struct arena	a = new_arena(4);

	(void)state;
	assert_ptr_equal(arena_at(&a, ARENA_GRANULE, 1), a.base + ARENA_GRANULE);
	assert_ptr_equal(arena_at(&a, ARENA_GRANULE, 4 * ARENA_GRANULE), a.base + ARENA_GRANULE);
	assert_ptr_equal(arena_at(&a, 5 * ARENA_GRANULE, 0), a.base + 5 * ARENA_GRANULE);
	assert_null(arena_at(&a, ARENA_NONE, 0));
	assert_null(arena_at(&a, ARENA_GRANULE - 1, 1));
	assert_null(arena_at(&a, ARENA_GRANULE, 4 * ARENA_GRANULE + 1));
	assert_null(arena_at(&a, 5 * ARENA_GRANULE - 1, 2));
	assert_null(arena_at(&a, 5 * ARENA_GRANULE + 1, 0));
	assert_null(arena_at(&a, UINT32_MAX, 1));
	assert_null(arena_at(&a, ARENA_GRANULE, SIZE_MAX));
}

static void
a_run_is_taken_whole_where_there_is_one_and_in_pieces_where_not(void **state)
{
	struct arena	a = new_arena(64);
	uint32_t	off[64], run;
	unsigned	got, i;

	(void)state;
	run = arena_take(&a, 0, 16, &got);
	assert_int_equal(got, 16);
	assert_int_equal(run, ARENA_GRANULE);
	arena_free(&a, 0, run, 16);
	for (i = 0; i < 64; i++) {
		off[i] = arena_take(&a, 0, 1, &got);
		assert_int_equal(got, 1);
	}
	assert_int_equal(arena_take(&a, 1, 16, &got), ARENA_NONE);
	assert_int_equal(got, 0);
	for (i = 0; i < 64; i += 2)
		arena_free(&a, 0, off[i], 1);
	for (i = 0; i < 32; i++) {
		assert_int_not_equal(arena_take(&a, i % LANES, 16, &got), ARENA_NONE);
		assert_int_equal(got, 1);
	}
	assert_int_equal(arena_take(&a, 2, 1, &got), ARENA_NONE);
	assert_int_equal(owned(&a, 0) + owned(&a, 1) + owned(&a, 2), 64);
}

static void
a_small_hole_does_not_break_up_a_large_run(void **state)
{
	struct arena	a = new_arena(64);
	uint32_t	first, run;
	unsigned	got;

	(void)state;
	first = arena_take(&a, 0, 1, &got);
	arena_take(&a, 0, 1, &got);
	arena_free(&a, 0, first, 1);
	run = arena_take(&a, 0, 16, &got);
	assert_int_equal(got, 16);
	assert_int_equal(run, first + 2 * ARENA_GRANULE);
	assert_int_equal(arena_take(&a, 0, 1, &got), first);
}

static void
a_run_does_not_wrap_around_the_end(void **state)
{
	struct arena	a = new_arena(30);
	uint32_t	off;
	unsigned	got, sum = 0;

	(void)state;
	/* lane 2 starts at 20 */
	while ((off = arena_take(&a, 2, 16, &got)) != ARENA_NONE) {
		assert_non_null(arena_at(&a, off, (size_t)got * ARENA_GRANULE));
		sum += got;
	}
	assert_int_equal(sum, 30);
}

static void
memory_in_use_stays_where_it_was_touched_before(void **state)
{
	struct arena	a = new_arena(1000);
	uint32_t	off;
	unsigned	got, i;

	(void)state;
	for (i = 0; i < 5000; i++) {
		off = arena_take(&a, 1, 1 + i % 16, &got);
		assert_true(off < ARENA_GRANULE * (1 + 1000 / LANES + 16));
		arena_free(&a, 1, off, got);
	}
}

static void
what_is_not_the_lanes_own_cannot_be_freed(void **state)
{
	struct arena	a = new_arena(8);
	uint32_t	off;
	unsigned	got;
	int		st;

	(void)state;
	off = arena_take(&a, 0, 1, &got);
	st = t_child(arena_free(&a, 1, off, 1));
	assert_true(WIFSIGNALED(st) && WTERMSIG(st) == SIGABRT);
	st = t_child(arena_free(&a, 0, off + 1, 1));
	assert_true(WIFSIGNALED(st) && WTERMSIG(st) == SIGABRT);
	st = t_child(arena_free(&a, 0, ARENA_NONE, 1));
	assert_true(WIFSIGNALED(st) && WTERMSIG(st) == SIGABRT);
	assert_int_equal(owned(&a, 0), 1);
	arena_free(&a, 0, off, 1);
	st = t_child(arena_free(&a, 0, off, 1));
	assert_true(WIFSIGNALED(st) && WTERMSIG(st) == SIGABRT);
}

/* --- budget ------------------------------------------------------------ */

static void
the_budget_ends_where_the_granules_end(void **state)
{
	struct arena	a = new_arena(10);

	(void)state;
	assert_true(arena_reserve(&a, 0, 1, 1));
	assert_true(arena_reserve(&a, 1, 2, 5 * ARENA_GRANULE));
	assert_true(arena_reserve(&a, 2, 3, 4 * ARENA_GRANULE));
	assert_int_equal(arena_reserved(&a), 10 * ARENA_GRANULE);
	assert_false(arena_reserve(&a, 0, 4, 1));
	assert_int_equal(arena_reserved(&a), 10 * ARENA_GRANULE);
	arena_release(&a, 0, 1, 1);
	assert_true(arena_reserve(&a, 1, 4, ARENA_GRANULE));
	assert_true(arena_reserve(&a, 1, 4, 0));
	assert_false(arena_reserve(&a, 1, 4, UINT64_MAX));
	assert_false(arena_reserve(&a, 1, 4, UINT64_MAX - ARENA_GRANULE));
	assert_int_equal(arena_reserved(&a), 10 * ARENA_GRANULE);
}

static void
one_tenant_gets_half_over_all_lanes_and_the_others_the_rest(void **state)
{
	struct arena	a = new_arena(20);

	(void)state;
	assert_true(arena_reserve(&a, 0, 7, 6 * ARENA_GRANULE));
	assert_true(arena_reserve(&a, 1, 7, 4 * ARENA_GRANULE));
	assert_false(arena_reserve(&a, 2, 7, 1));
	assert_false(arena_reserve(&a, 2, 7 + ARENA_TENANTS, 1));
	assert_true(arena_reserve(&a, 2, 8, 10 * ARENA_GRANULE));
	arena_release(&a, 1, 7, ARENA_GRANULE);
	assert_true(arena_reserve(&a, 0, 7, ARENA_GRANULE));
}

#define TRIES	200000u

struct held {
	_Atomic(uint32_t)	all, tenant[2];
	_Atomic(uint32_t)	successes;
};

/* Reserves and releases at random; what all hold together is counted beside the arena. */
static void
reserver(struct arena *a, unsigned lane, struct held *h)
{
	uint32_t	x = lane + 1, n, t, i, mine[2] = { 0, 0 };

	for (i = 0; i < TRIES; i++) {
		x = x * 1664525 + 1013904223;
		n = 1 + (x >> 16) % 12;
		t = x >> 31;
		if (x >> 30 & 1) {
			if (!arena_reserve(a, lane, t, (uint64_t)n * ARENA_GRANULE))
				continue;
			mine[t] += n;
			atomic_fetch_add(&h->successes, 1);
			if (atomic_fetch_add(&h->all, n) + n > a->ngranules ||
			    atomic_fetch_add(&h->tenant[t], n) + n > a->ngranules / 2)
				abort();
		} else if (mine[t] >= n) {
			atomic_fetch_sub(&h->tenant[t], n);
			atomic_fetch_sub(&h->all, n);
			mine[t] -= n;
			arena_release(a, lane, t, (uint64_t)n * ARENA_GRANULE);
		}
	}
	for (t = 0; t < 2; t++) {
		atomic_fetch_sub(&h->tenant[t], mine[t]);
		atomic_fetch_sub(&h->all, mine[t]);
		arena_release(a, lane, t, (uint64_t)mine[t] * ARENA_GRANULE);
	}
}

static void
reservers_together_never_get_more_than_there_is(void **state)
{
	struct arena	 a = new_arena(40);
	struct held	*h = t_shared(sizeof(*h));
	pid_t		 pid[LANES];
	unsigned	 i;

	(void)state;
	for (i = 0; i < LANES; i++)
		pid[i] = t_fork(reserver(&a, i, h));
	for (i = 0; i < LANES; i++)
		assert_int_equal(t_wait(pid[i]), 0);
	assert_true(h->successes > TRIES / 100);
	assert_int_equal(arena_reserved(&a), 0);
}

#define ROUNDS	100000u

struct duel {
	_Alignas(64) _Atomic(uint32_t) at[2];
	_Alignas(64) _Atomic(uint32_t) got[2][ROUNDS + 1];
};

/* Each wants 5 of 11 at the same moment, and 2 are taken already. */
static void
duel(struct arena *a, unsigned me, struct duel *d)
{
	uint32_t	round, at = 0;

	for (round = 1; round <= ROUNDS; round++) {
		t_meet(&d->at[me], &d->at[!me], ++at);
		d->got[me][round] = arena_reserve(a, me, me, 5 * ARENA_GRANULE);
		t_meet(&d->at[me], &d->at[!me], ++at);
		if (d->got[me][round])
			arena_release(a, me, me, 5 * ARENA_GRANULE);
	}
}

static void
of_two_that_want_the_last_at_once_not_both_get_it(void **state)
{
	struct arena	 a = new_arena(11);
	struct duel	*d = t_shared(sizeof(*d));
	uint32_t	 round;
	pid_t		 p, q;

	(void)state;
	assert_true(arena_reserve(&a, 2, 2, 2 * ARENA_GRANULE));
	p = t_fork(duel(&a, 0, d));
	q = t_fork(duel(&a, 1, d));
	assert_int_equal(t_wait(p), 0);
	assert_int_equal(t_wait(q), 0);
	for (round = 1; round <= ROUNDS; round++)
		assert_true(d->got[0][round] + d->got[1][round] <= 1);
}

/* --- two processes ----------------------------------------------------- */

/* Takes, signs each granule, yields, and finds only its own signature. */
static void
taker(struct arena *a, unsigned lane)
{
	uint32_t	x = lane + 77, off;
	unsigned	got, i, j;

	for (i = 0; i < 60000; i++) {
		x = x * 1664525 + 1013904223;
		if ((off = arena_take(a, lane, 1 + x % ARENA_RUN_MAX, &got)) == ARENA_NONE)
			continue;
		for (j = 0; j < got; j++)
			*(volatile uint32_t *)arena_at(a, off + j * ARENA_GRANULE, 4) = x + j;
		if (i % 16 == 0)
			sched_yield();
		for (j = 0; j < got; j++)
			if (*(volatile uint32_t *)arena_at(a, off + j * ARENA_GRANULE, 4) != x + j)
				abort();
		arena_free(a, lane, off, got);
	}
}

static void
two_processes_never_share_a_granule(void **state)
{
	struct arena	a = new_arena(24);	/* few: they meet all the time */
	pid_t		p, q;

	(void)state;
	p = t_fork(taker(&a, 0));
	q = t_fork(taker(&a, 1));
	assert_int_equal(t_wait(p), 0);
	assert_int_equal(t_wait(q), 0);
	assert_int_equal(owned(&a, 0) + owned(&a, 1), 0);
}

/* --- after a death ----------------------------------------------------- */

static bool
keep_second_run(void *arg, uint32_t off)
{
	uint32_t	first = *(uint32_t *)arg;

	return off >= first && off < first + 4 * ARENA_GRANULE;
}

static void
a_successor_frees_what_the_killed_held_and_keeps_what_is_pending(void **state)
{
	struct arena	 a = new_arena(40);
	uint32_t	*pending = t_shared(sizeof(*pending));
	unsigned	 got, i;

	(void)state;
	assert_true(arena_reserve(&a, 1, 5, 3 * ARENA_GRANULE));
	assert_int_not_equal(arena_take(&a, 1, 3, &got), ARENA_NONE);
	t_child(
		arena_reserve(&a, 0, 5, 8 * ARENA_GRANULE);
		arena_take(&a, 0, 2, &got);
		*pending = arena_take(&a, 0, 4, &got);
		t_die()
	);
	assert_int_equal(owned(&a, 0), 6);
	arena_reclaim(&a, 0, keep_second_run, pending);
	assert_int_equal(owned(&a, 0), 4);
	assert_int_equal(owned(&a, 1), 3);
	assert_int_equal(arena_reserved(&a), 7 * ARENA_GRANULE);
	arena_adopt(&a, 0, 5, 4 * ARENA_GRANULE);
	assert_int_equal(a.lanes[0].granules[5], 4);
	arena_free(&a, 0, *pending, 4);
	arena_release(&a, 0, 5, 4 * ARENA_GRANULE);
	assert_int_equal(arena_reserved(&a), 3 * ARENA_GRANULE);
	for (i = 0; i < ARENA_TENANTS; i++)
		assert_int_equal(a.lanes[0].granules[i], 0);
}

struct steps {
	struct arena	a, copy;
	unsigned	looks;
};

static void
use_it(void *arg)
{
	struct arena	*a = &((struct steps *)arg)->a;
	uint32_t	 off;
	unsigned	 got;

	arena_reserve(a, 0, 9, 3 * ARENA_GRANULE);
	off = arena_take(a, 0, 3, &got);
	arena_free(a, 0, off, got);
	arena_release(a, 0, 9, 3 * ARENA_GRANULE);
}

static void
reclaim_leaves_nothing(void *arg)
{
	struct steps	*s = arg;
	unsigned	 i;

	memcpy((void *)s->copy.owner, (void *)s->a.owner, s->a.ngranules);
	memcpy(s->copy.lanes, s->a.lanes, LANES * sizeof(struct arena_lane));
	for (i = 0; i < s->a.ngranules; i++)
		assert_true(s->copy.owner[i] <= 2);
	arena_reclaim(&s->copy, 0, keep_none, NULL);
	assert_int_equal(owned(&s->copy, 0), 0);
	assert_int_equal(owned(&s->copy, 1), 2);
	assert_int_equal(arena_reserved(&s->copy), 2 * ARENA_GRANULE);
	for (i = 0; i < ARENA_TENANTS; i++)
		assert_int_equal(s->copy.lanes[0].granules[i], 0);
	s->looks++;
}

static void
a_worker_may_die_at_any_instruction_of_take_and_free(void **state)
{
	struct steps	*s = t_shared(sizeof(*s));
	unsigned	 got;

	(void)state;
	s->a = new_arena(12);
	s->copy = new_arena(12);
	arena_reserve(&s->a, 1, 9, 2 * ARENA_GRANULE);
	arena_take(&s->a, 1, 2, &got);
	if (t_steps(use_it, reclaim_leaves_nothing, s) == -1)
		t_not_here("single-stepping a child");
	assert_true(s->looks > 100);
}

int
main(void)
{
	const struct CMUnitTest	tests[] = {
		cmocka_unit_test(an_offset_outside_the_granules_is_null),
		cmocka_unit_test(a_run_is_taken_whole_where_there_is_one_and_in_pieces_where_not),
		cmocka_unit_test(a_small_hole_does_not_break_up_a_large_run),
		cmocka_unit_test(a_run_does_not_wrap_around_the_end),
		cmocka_unit_test(memory_in_use_stays_where_it_was_touched_before),
		cmocka_unit_test(what_is_not_the_lanes_own_cannot_be_freed),
		cmocka_unit_test(the_budget_ends_where_the_granules_end),
		cmocka_unit_test(one_tenant_gets_half_over_all_lanes_and_the_others_the_rest),
		cmocka_unit_test(a_successor_frees_what_the_killed_held_and_keeps_what_is_pending),
		cmocka_unit_test(a_worker_may_die_at_any_instruction_of_take_and_free),
		cmocka_unit_test(of_two_that_want_the_last_at_once_not_both_get_it),
		cmocka_unit_test(reservers_together_never_get_more_than_there_is),
		cmocka_unit_test(two_processes_never_share_a_granule),
	};

	proc_become(IN_TEST, 0);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
