/*
 * tests/b_queue.c - store/queue.h and store/gather.h.
 */
#include "config.h"

#include "shm/proc.h"
#include "store/gather.h"
#include "store/queue.h"
#include "tests/unit.h"

static void
add(struct queue *q, uint32_t tenant, uint16_t slot, uint64_t cost)
{
	struct queued	item = { .tenant = tenant, .slot = slot, .cost = cost };

	queue_add(q, &item);
}

static struct queued
take(struct queue *q)
{
	const struct queued	*p = queue_peek(q);
	struct queued		 item;

	assert_non_null(p);
	assert_ptr_equal(p, queue_peek(q));	/* looking twice does not change whose turn it is */
	item = *p;
	queue_take(q);
	return item;
}

static void
one_tenant_is_served_in_order(void **state)
{
	struct queue	*q = queue_create(100);

	(void)state;
	assert_null(queue_peek(q));
	for (uint16_t i = 0; i < 100; i++)
		add(q, 7, i, 1 << (i % 20));
	for (uint16_t i = 0; i < 100; i++)
		assert_int_equal(take(q).slot, i);
	assert_null(queue_peek(q));
	assert_int_equal(queue_length(q), 0);
	queue_destroy(q);
}

static void
a_flood_of_one_tenant_does_not_hold_up_another(void **state)
{
	struct queue	*q = queue_create(1000);
	uint64_t	 before = 0;

	(void)state;
	for (uint16_t i = 0; i < 900; i++)
		add(q, 1, i, 60000);
	add(q, 2, 0, 100);
	for (;;) {
		struct queued	item = take(q);

		if (item.tenant == 2)
			break;
		before += item.cost;
	}
	assert_true(before <= 2 * 65536);	/* a quantum or two, not 54 MB */
	queue_destroy(q);
}

static void
two_tenants_share_by_bytes_and_not_by_number(void **state)
{
	struct queue	*q = queue_create(2000);
	uint64_t	 bytes[3] = { 0 };

	(void)state;
	for (uint16_t i = 0; i < 100; i++)
		add(q, 1, i, 100000);
	for (uint16_t i = 0; i < 1000; i++)
		add(q, 2, i, 10000);
	for (int i = 0; i < 500; i++) {
		struct queued	item = take(q);

		bytes[item.tenant] += item.cost;
	}
	assert_true(bytes[1] > 0 && bytes[2] > 0);
	assert_true(bytes[1] < bytes[2] + 3 * 100000 && bytes[2] < bytes[1] + 3 * 100000);
	queue_destroy(q);
}

static void
many_tenants_come_and_go_and_each_write_comes_out_once(void **state)
{
	struct queue	*q = queue_create(4096);
	uint8_t		 seen[4096];

	(void)state;
	for (unsigned round = 0; round < 3; round++) {
		memset(seen, 0, sizeof(seen));
		for (uint16_t i = 0; i < 4096; i++)
			add(q, (i * 2654435761u) >> (8 + round), i, i);
		for (unsigned i = 0; i < 4096; i++)
			assert_int_equal(seen[take(q).slot]++, 0);
		assert_null(queue_peek(q));
	}
	queue_destroy(q);
}

static void
a_lone_writer_waits_for_nobody(void **state)
{
	struct gather	g = { 0 };

	(void)state;
	assert_int_equal(gather_wait(&g, 1, 1000), 0);
	gather_answered(&g, 1, 0, 3000, 10000);
	assert_int_equal(gather_wait(&g, 1, 10100), 0);
}

static void
writers_just_answered_are_waited_for_a_third_of_a_sync(void **state)
{
	struct gather	g = { 0 };

	(void)state;
	gather_answered(&g, 32, 32, 3000, 10000);
	assert_int_equal(gather_wait(&g, 32, 10000), 1000);
	assert_int_equal(gather_wait(&g, 63, 10600), 400);
	assert_int_equal(gather_wait(&g, 64, 10600), 0);
	assert_int_equal(gather_more(&g, 0), 32);
	assert_int_equal(gather_more(&g, 40), 12);
	assert_int_equal(gather_more(&g, 48), 16);
	assert_int_equal(gather_more(&g, 63), 1);
	assert_int_equal(gather_more(&g, 64), 1);
	assert_false(gather_all(&g, 63));
	assert_true(gather_all(&g, 64));
	assert_int_equal(gather_wait(&g, 40, 11000), 0);
	/* one of two went away: waited for once, then not any more */
	gather_answered(&g, 2, 0, 8000000, 12000);	/* the disk stood still for once */
	assert_int_equal(gather_wait(&g, 1, 12000), GATHER_MOST_US);
	assert_int_equal(gather_wait(&g, 1, 12000 + GATHER_MOST_US), 0);
	gather_answered(&g, 1, 1, 3000, 20000);
	assert_int_equal(gather_wait(&g, 1, 20000), 1000);
	gather_answered(&g, 1, 0, 3000, 24000);
	assert_int_equal(gather_wait(&g, 1, 24000), 0);
}

static void
they_are_waited_for_on_while_they_keep_coming(void **state)
{
	struct gather	g = { 0 };

	(void)state;
	/* a third of a sync for those who are here has to spare as many others a whole one */
	gather_answered(&g, 64, 0, 3000, 10000);
	assert_int_equal(gather_wait(&g, 30, 11000), 500);
	assert_int_equal(gather_wait(&g, 33, 11400), 100);	/* within a stage nothing is decided */
	assert_int_equal(gather_wait(&g, 36, 11500), 500);	/* 6 in a sixth of a sync, for 36 */
	assert_int_equal(gather_wait(&g, 41, 12000), 0);	/* 5, for 41 */
	/* nobody came in the first stage */
	gather_answered(&g, 32, 32, 3000, 10000);
	assert_int_equal(gather_wait(&g, 32, 11000), 0);
	/* no longer than a sync in all, whoever comes */
	gather_answered(&g, 5000, 0, 3000, 10000);
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(gather_wait(&g, 500 << i, 11000 + 500 * i), 500);
	assert_int_equal(gather_wait(&g, 4999, 13000), 0);
	/* with slow syncs no longer than GATHER_MOST_US */
	gather_answered(&g, 4000, 0, 30000, 10000);
	assert_int_equal(gather_wait(&g, 2000, 20000), 5000);
	assert_int_equal(gather_wait(&g, 3000, 25000), 5000);
	assert_int_equal(gather_wait(&g, 3999, 30000), 0);
}

/* Two of different speeds, or four of one and four of others: a third of a sync, as ever. */
static void
few_of_different_speeds_are_not_waited_for_on(void **state)
{
	struct gather	g = { 0 };

	(void)state;
	gather_answered(&g, 2, 0, 3000, 10000);
	assert_int_equal(gather_wait(&g, 1, 10050), 950);
	assert_int_equal(gather_wait(&g, 1, 11000), 0);
	gather_answered(&g, 8, 0, 3000, 20000);
	assert_int_equal(gather_wait(&g, 4, 20050), 950);
	assert_int_equal(gather_wait(&g, 5, 21000), 0);
	gather_answered(&g, GATHER_FEW, 0, 3000, 30000);
	assert_int_equal(gather_wait(&g, GATHER_FEW - 1, 31000), 0);
	gather_answered(&g, GATHER_FEW, 1, 3000, 40000);
	assert_int_equal(gather_wait(&g, GATHER_FEW, 41000), 500);
}

static void
few_are_not_waited_for_fast_syncs(void **state)
{
	struct gather	g = { 0 };

	(void)state;
	gather_answered(&g, GATHER_FEW, 0, GATHER_FAST_US - 1, 10000);
	assert_int_equal(gather_wait(&g, 1, 10000), 0);
	gather_answered(&g, 4000, 0, GATHER_LEAST_US - 1, 10000);
	assert_int_equal(gather_wait(&g, 1, 10000), 0);
}

static void
many_are_waited_for_fast_syncs_while_they_keep_coming(void **state)
{
	struct gather	g = { 0 };

	(void)state;
	gather_answered(&g, 60, 4, 150, 10000);
	assert_int_equal(gather_wait(&g, 4, 10000), 50);
	assert_int_equal(gather_wait(&g, 64, 10001), 0);	/* all are here */
	assert_int_equal(gather_wait(&g, 20, 10050), 150);
	assert_int_equal(gather_wait(&g, 24, 10200), 150);	/* 4 came, for 24 */
	assert_int_equal(gather_wait(&g, 26, 10350), 0);	/* 2, for 26 */
	/* three syncs in all, whoever comes */
	gather_answered(&g, 4000, 0, 150, 10000);
	assert_int_equal(gather_wait(&g, 500, 10050), 150);
	assert_int_equal(gather_wait(&g, 1000, 10200), 150);
	assert_int_equal(gather_wait(&g, 2000, 10350), 100);
	assert_int_equal(gather_wait(&g, 3999, 10450), 0);
	/* nobody comes: a third of one */
	gather_answered(&g, 64, 0, 150, 10000);
	assert_int_equal(gather_wait(&g, 0, 10050), 0);
}

int
main(void)
{
	static const struct CMUnitTest	tests[] = {
		cmocka_unit_test(one_tenant_is_served_in_order),
		cmocka_unit_test(a_flood_of_one_tenant_does_not_hold_up_another),
		cmocka_unit_test(two_tenants_share_by_bytes_and_not_by_number),
		cmocka_unit_test(many_tenants_come_and_go_and_each_write_comes_out_once),
		cmocka_unit_test(a_lone_writer_waits_for_nobody),
		cmocka_unit_test(writers_just_answered_are_waited_for_a_third_of_a_sync),
		cmocka_unit_test(they_are_waited_for_on_while_they_keep_coming),
		cmocka_unit_test(few_of_different_speeds_are_not_waited_for_on),
		cmocka_unit_test(few_are_not_waited_for_fast_syncs),
		cmocka_unit_test(many_are_waited_for_fast_syncs_while_they_keep_coming),
	};

	proc_become(IN_TEST, 0);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
