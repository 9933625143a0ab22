/*
 * tests/a_bury.c - master/bury.h: what the master does for the dead.
 * Runs in: test.
 */
#include "config.h"
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "master/bury.h"
#include "shm/proc.h"

static struct region	r;

static int
setup(void **state)
{
	(void)state;
	proc_become(IN_TEST, 0);
	return region_create(&r, 2, 8 << 20);
}

static int
teardown(void **state)
{
	(void)state;
	region_destroy(&r);
	return 0;
}

static void
a_dead_worker_pins_nothing(void **state)
{
	(void)state;
	atomic_store(&r.pins[0].gen, 5);
	atomic_store(&r.pins[1].gen, 3);
	bury_worker(&r, 1);
	assert_int_equal(pin_oldest(r.pins, 3), 5);
	bury_worker(&r, 0);
	assert_true(pin_oldest(r.pins, 3) == PIN_NONE);
}

static void
a_killed_committer_casts_no_suspicion(void **state)
{
	(void)state;
	atomic_store(&r.head->state, STORE_READY);
	atomic_store(&r.pins[2].gen, 9);
	atomic_store(&r.lanes[1].slots[7].working, 1);
	bury_committer(&r, false);
	assert_int_equal(atomic_load(&r.head->state), STORE_RECOVERING);
	assert_int_equal(atomic_load(&r.head->committer_crashes), 0);
	assert_int_equal(atomic_load(&r.lanes[1].slots[7].suspect), 0);
	assert_int_equal(atomic_load(&r.lanes[1].slots[7].working), 1);
	assert_true(pin_oldest(r.pins, 3) == PIN_NONE);
}

static void
a_crash_makes_suspects_of_what_was_under_work_once(void **state)
{
	(void)state;
	atomic_store(&r.head->state, STORE_FULL);
	atomic_store(&r.lanes[0].slots[0].state, SLOT_SUBMITTED);
	atomic_store(&r.lanes[0].slots[0].working, 1);
	atomic_store(&r.lanes[1].slots[LANE_SLOTS - 1].state, SLOT_SUBMITTED);
	atomic_store(&r.lanes[1].slots[LANE_SLOTS - 1].working, 1);
	bury_committer(&r, true);
	bury_committer(&r, true);	/* the next one died before it took anything */
	assert_int_equal(atomic_load(&r.lanes[0].slots[0].suspect), 1);
	assert_int_equal(atomic_load(&r.lanes[1].slots[LANE_SLOTS - 1].suspect), 1);
	assert_int_equal(atomic_load(&r.lanes[0].slots[1].suspect), 0);
	assert_int_equal(atomic_load(&r.head->committer_crashes), 2);
	assert_int_equal(atomic_load(&r.head->state), STORE_RECOVERING);
}

static void
a_failed_sync_and_damage_outlive_the_committer(void **state)
{
	(void)state;
	atomic_store(&r.head->state, STORE_SYNC_FAILED);
	atomic_store(&r.lanes[0].slots[0].state, SLOT_SUBMITTED);
	atomic_store(&r.lanes[0].slots[0].working, 1);
	bury_committer(&r, true);
	assert_int_equal(atomic_load(&r.lanes[0].slots[0].working), 1);	/* its fate is unknown, still */
	assert_int_equal(atomic_load(&r.head->state), STORE_SYNC_FAILED);
	atomic_store(&r.head->state, STORE_DAMAGED);
	bury_committer(&r, true);
	assert_int_equal(atomic_load(&r.head->state), STORE_DAMAGED);
}

static void
only_its_own_doing_is_a_crash(void **state)
{
	(void)state;
	assert_true(bury_is_crash(SIGSEGV));
	assert_true(bury_is_crash(SIGABRT));
	assert_true(bury_is_crash(SIGBUS | 0x80));	/* with a core */
	assert_true(bury_is_crash(SIGILL));
	assert_true(bury_is_crash(SIGFPE));
	assert_false(bury_is_crash(SIGKILL));
	assert_false(bury_is_crash(SIGTERM));
	assert_false(bury_is_crash(1 << 8));
	assert_false(bury_is_crash(0));
}

int
main(void)
{
	const struct CMUnitTest	tests[] = {
		cmocka_unit_test_setup_teardown(a_dead_worker_pins_nothing, setup, teardown),
		cmocka_unit_test_setup_teardown(a_killed_committer_casts_no_suspicion, setup, teardown),
		cmocka_unit_test_setup_teardown(a_crash_makes_suspects_of_what_was_under_work_once, setup, teardown),
		cmocka_unit_test_setup_teardown(a_failed_sync_and_damage_outlive_the_committer, setup, teardown),
		cmocka_unit_test(only_its_own_doing_is_a_crash),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
