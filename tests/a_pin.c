/* tests/a_pin.c - shm/pin.h: I5. */
#include "config.h"
#include "tests/unit.h"
#include "shm/pin.h"
#include "shm/proc.h"

#define PAGES		64u
#define GENERATIONS	1000000u
#define READERS		2u

struct world {
	struct pin		pins[READERS];
	_Alignas(64) _Atomic(uint64_t) newest;
	_Atomic(uint32_t)	done;
	_Alignas(64) _Atomic(uint64_t) page[PAGES];	/* page[g % PAGES] holds g while g may be read, else 0 */
	_Atomic(uint64_t)	reads;
	_Atomic(uint32_t)	stale;	/* a reader saw a page that was reused */
};

static void
a_pin_holds_the_newest_generation_until_it_is_dropped(void **state)
{
	struct world	*w = t_shared(sizeof(*w));

	(void)state;
	assert_int_equal(pin_take(&w->pins[0], &w->newest), 0);
	assert_int_equal(w->pins[0].gen, 0);
	assert_true(pin_oldest(w->pins, READERS) == PIN_NONE);
	w->newest = 7;
	assert_int_equal(pin_take(&w->pins[1], &w->newest), 7);
	w->newest = 9;
	assert_int_equal(pin_take(&w->pins[0], &w->newest), 9);
	assert_int_equal(pin_oldest(w->pins, READERS), 7);
	pin_drop(&w->pins[1]);
	assert_int_equal(pin_oldest(w->pins, READERS), 9);
	pin_drop(&w->pins[0]);
	assert_true(pin_oldest(w->pins, READERS) == PIN_NONE);
}

static void
a_dead_readers_pin_stays_until_somebody_clears_it(void **state)
{
	struct world	*w = t_shared(sizeof(*w));

	(void)state;
	w->newest = 3;
	t_child(pin_take(&w->pins[0], &w->newest); t_die());
	assert_int_equal(pin_oldest(w->pins, READERS), 3);
	pin_drop(&w->pins[0]);
	assert_true(pin_oldest(w->pins, READERS) == PIN_NONE);
}

static void
reader(struct world *w, struct pin *p)
{
	uint64_t	g;
	unsigned	i;

	while (!atomic_load_explicit(&w->done, memory_order_acquire)) {
		g = pin_take(p, &w->newest);
		for (i = 0; g != 0 && i < 4; i++)
			if (atomic_load_explicit(&w->page[g % PAGES], memory_order_relaxed) != g)
				w->stale = 1;
		pin_drop(p);
		atomic_fetch_add_explicit(&w->reads, 1, memory_order_relaxed);
	}
}

/* Publishes generation after generation and wipes what no pin can reach. */
static void
writer(struct world *w)
{
	uint64_t	g, oldest, wiped = 1;

	for (g = 1; g <= GENERATIONS && !w->stale; g++) {
		atomic_store_explicit(&w->page[g % PAGES], g, memory_order_relaxed);
		atomic_store_explicit(&w->newest, g, memory_order_release);
		for (;;) {
			oldest = pin_oldest(w->pins, READERS);
			if (oldest > g)
				oldest = g;
			for (; wiped < oldest; wiped++)
				atomic_store_explicit(&w->page[wiped % PAGES], 0, memory_order_relaxed);
			if (g - wiped < PAGES - 1)
				break;
			sched_yield();	/* the next generation's page is still pinned */
		}
	}
	atomic_store_explicit(&w->done, 1, memory_order_release);
}

static void
no_reader_ever_sees_a_page_that_was_reused(void **state)
{
	struct world	*w = t_shared(sizeof(*w));
	pid_t		 pid[READERS], wr;
	unsigned	 i;

	(void)state;
	for (i = 0; i < READERS; i++)
		pid[i] = t_fork(reader(w, &w->pins[i]));
	wr = t_fork(writer(w));
	assert_int_equal(t_wait(wr), 0);
	for (i = 0; i < READERS; i++)
		assert_int_equal(t_wait(pid[i]), 0);
	assert_int_equal(w->stale, 0);
	assert_true(w->reads > 0);
}

#define ROUNDS	100000u

struct crossing {
	struct pin		pin;
	_Alignas(64) _Atomic(uint64_t) newest;
	_Alignas(64) _Atomic(uint32_t) at[2];
	uint64_t		pinned[ROUNDS + 2], oldest[ROUNDS + 2];
};

/* Side 0 publishes and looks at the pins, side 1 pins, in the same moment. */
static void
cross(struct crossing *c, unsigned me)
{
	uint32_t	round, at = 0;

	for (round = 2; round <= ROUNDS; round++) {
		t_meet(&c->at[me], &c->at[!me], ++at);
		t_jitter(2 * round + me);
		if (me == 0) {
			atomic_store_explicit(&c->newest, round, memory_order_release);
			c->oldest[round] = pin_oldest(&c->pin, 1);
		} else
			c->pinned[round] = pin_take(&c->pin, &c->newest);
		t_meet(&c->at[me], &c->at[!me], ++at);
		if (me == 1)
			pin_drop(&c->pin);
	}
}

static void
a_pin_of_the_old_and_a_publishing_that_cross_are_seen_by_one_of_them(void **state)
{
	struct crossing	*c = t_shared(sizeof(*c));
	uint32_t	 round;
	pid_t		 a, b;

	(void)state;
	c->newest = 1;
	a = t_fork(cross(c, 0));
	b = t_fork(cross(c, 1));
	assert_int_equal(t_wait(a), 0);
	assert_int_equal(t_wait(b), 0);
	for (round = 2; round <= ROUNDS; round++)
		assert_true(c->pinned[round] == round || c->oldest[round] < round);
}

int
main(void)
{
	const struct CMUnitTest	tests[] = {
		cmocka_unit_test(a_pin_holds_the_newest_generation_until_it_is_dropped),
		cmocka_unit_test(a_dead_readers_pin_stays_until_somebody_clears_it),
		cmocka_unit_test(a_pin_of_the_old_and_a_publishing_that_cross_are_seen_by_one_of_them),
		cmocka_unit_test(no_reader_ever_sees_a_page_that_was_reused),
	};

	proc_become(IN_TEST, 0);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
