/* tests/a_region.c - shm/region.h and shm/count.h. */
#include "config.h"
#include <sys/stat.h>
#include <errno.h>
#include <fcntl.h>
#include "tests/unit.h"
#include "shm/proc.h"
#include "shm/region.h"
#include "shm/submit.h"

static void
parts_lie_behind_each_other_on_cache_lines_and_pages(void **state)
{
	static const unsigned	lanes[] = { 1, 2, 3, REGION_LANES };
	struct region		r;
	struct region_head	*h;
	unsigned		i;

	(void)state;
	for (i = 0; i < sizeof(lanes) / sizeof(lanes[0]); i++) {
		assert_int_equal(region_create(&r, lanes[i], 1 << 20), 0);
		h = r.head;
		assert_int_equal(h->magic, REGION_MAGIC);
		assert_int_equal(h->version, REGION_VERSION);
		assert_int_equal(h->nlanes, lanes[i]);
		assert_true(h->lanes_off >= sizeof(*h) && h->lanes_off % 64 == 0);
		assert_true(h->pins_off >= h->lanes_off + lanes[i] * sizeof(struct lane) && h->pins_off % 64 == 0);
		assert_true(h->counts_off >= h->pins_off + (lanes[i] + 1) * sizeof(struct pin));
		assert_true(h->arena_lanes_off >= h->counts_off + (lanes[i] + 1) * sizeof(struct count_block));
		assert_true(h->owners_off >= h->arena_lanes_off + lanes[i] * sizeof(struct arena_lane));
		assert_true(h->granules_off >= h->owners_off + h->ngranules);
		assert_int_equal(h->granules_off % ARENA_GRANULE, 0);
		assert_int_equal(h->bytes, h->granules_off + (uint64_t)h->ngranules * ARENA_GRANULE);
		assert_ptr_equal(arena_at(&r.arena, (uint32_t)h->granules_off, ARENA_GRANULE),
		    (uint8_t *)h + h->granules_off);
		assert_int_equal(h->state, STORE_RECOVERING);
		region_destroy(&r);
		assert_int_equal(r.overlay_fd, -1);
	}
}

static void
each_region_has_an_id_of_its_own(void **state)
{
	struct region	a, b;

	(void)state;
	assert_int_equal(region_create(&a, 1, 1 << 20), 0);
	assert_int_equal(region_create(&b, 1, 1 << 20), 0);
	assert_int_not_equal(a.head->id, 0);
	assert_int_not_equal(b.head->id, 0);
	assert_int_not_equal(a.head->id, b.head->id);
	region_destroy(&a);
	region_destroy(&b);
}

static void
sizes_out_of_range_are_refused(void **state)
{
	struct region	r;

	(void)state;
	assert_int_equal(region_create(&r, 0, 1 << 20), -1);
	assert_int_equal(errno, EINVAL);
	assert_int_equal(region_create(&r, REGION_LANES + 1, 1 << 20), -1);
	assert_int_equal(errno, EINVAL);
	assert_int_equal(region_create(&r, 1, 1000), -1);
	assert_int_equal(errno, EINVAL);
	assert_int_equal(region_create(&r, 1, (uint64_t)4 << 30), -1);
	assert_int_equal(errno, EINVAL);
	region_destroy(&r);
	assert_int_equal(region_create(&r, REGION_LANES, (uint64_t)3 << 30), 0);
	assert_true(r.head->bytes <= UINT32_MAX);
	region_destroy(&r);
}

static void
any_budget_has_room_for_a_document_of_its_half(void **state)
{
	static const uint64_t	budgets[] = { 64 << 10, 65537, 1000001, 32 << 20, 64 << 20 };
	static char		path[SUBMIT_PATH_MAX];
	static uint8_t		meta[SUBMIT_META_MAX];
	struct submit_args	args = {
		.op = OP_PUT, .tenant = 1, .path = path, .path_len = sizeof(path), .meta = meta, .meta_len = sizeof(meta),
	};
	struct submit_build	b[2];
	struct region		r;
	unsigned		i;

	(void)state;
	for (i = 0; i < sizeof(budgets) / sizeof(budgets[0]); i++) {
		assert_int_equal(region_create(&r, 2, budgets[i]), 0);
		args.tenant = 1;
		assert_int_equal(submit_begin(&r.arena, 0, &b[0], &args, budgets[i] / 2), 0);
		args.tenant = 2;
		assert_int_equal(submit_begin(&r.arena, 1, &b[1], &args, budgets[i] / 2), 0);
		submit_abort(&r.arena, 0, &b[0]);
		submit_abort(&r.arena, 1, &b[1]);
		region_destroy(&r);
	}
}

static void
the_overlay_is_sparse_and_its_size_is_sealed(void **state)
{
	struct region	r;
	struct stat	st;

	(void)state;
	assert_int_equal(region_create(&r, 1, 1 << 20), 0);
	assert_int_equal(fstat(r.overlay_fd, &st), 0);
	assert_true((uint64_t)st.st_size == OVERLAY_BYTES);
	assert_int_equal(st.st_blocks, 0);
	assert_int_equal(ftruncate(r.overlay_fd, 4096), -1);
	assert_int_equal(fallocate(r.overlay_fd, 0, 4096, 4096), 0);
	assert_int_equal(fallocate(r.overlay_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 4096, 4096), 0);
	assert_true((fcntl(r.overlay_fd, F_GETFD) & FD_CLOEXEC) != 0);
	region_destroy(&r);
}

static void
counters_outlive_who_counted_and_are_summed_over_workers_only(void **state)
{
	struct region	r;
	unsigned	i;

	(void)state;
	assert_int_equal(region_create(&r, 3, 1 << 20), 0);
	for (i = 0; i < 3; i++)
		t_child(count_add(&r.counts[i], CW_GETS, i + 1); t_die());
	count_add(&r.counts[3], (unsigned)CW_GETS, 1000);
	assert_int_equal(region_count(&r, CW_GETS), 6);
	count_add(&r.counts[0], CW_GETS, 10);
	assert_int_equal(region_count(&r, CW_GETS), 16);
	assert_int_equal(region_count(&r, CW_WRITES), 0);
	count_set(&r.counts[1], CW_OPEN, 5);
	assert_int_equal(region_count(&r, CW_OPEN), 5);
	region_destroy(&r);
}

static void
only_who_may_creates_a_region(void **state)
{
	struct region	r;
	int		st;

	(void)state;
	st = t_child(proc_self = IN_WORKER; region_create(&r, 1, 1 << 20));
	assert_true(WIFSIGNALED(st) && WTERMSIG(st) == SIGABRT);
}

int
main(void)
{
	const struct CMUnitTest	tests[] = {
		cmocka_unit_test(parts_lie_behind_each_other_on_cache_lines_and_pages),
		cmocka_unit_test(each_region_has_an_id_of_its_own),
		cmocka_unit_test(sizes_out_of_range_are_refused),
		cmocka_unit_test(any_budget_has_room_for_a_document_of_its_half),
		cmocka_unit_test(the_overlay_is_sparse_and_its_size_is_sealed),
		cmocka_unit_test(counters_outlive_who_counted_and_are_summed_over_workers_only),
		cmocka_unit_test(only_who_may_creates_a_region),
	};

	proc_become(IN_TEST, 0);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
