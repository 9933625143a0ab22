/*
 * tests/b_guard.c - store/guard.h: pages that are not there.
 */
#include "config.h"

#include "tests/unit.h"

#include <fcntl.h>
#include <stdio.h>

#include "shm/log.h"
#include "store/guard.h"

#define PAGES	4u

static char	dir[] = "/tmp/b_guard-XXXXXX";
static size_t	page;

/* A mapping of `name`, all 7, whose pages from `keep` on are gone. */
static const volatile uint8_t *
t_map(const char *name, size_t keep)
{
	char		 path[sizeof(dir) + 32];
	uint8_t		 buf[65536];
	const uint8_t	*p;
	int		 fd;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	memset(buf, 7, sizeof(buf));
	for (size_t i = 0; i < PAGES; i++)
		assert_int_equal(pwrite(fd, buf, page, (off_t)(i * page)), page);
	p = mmap(NULL, PAGES * page, PROT_READ, MAP_SHARED, fd, 0);
	assert_true(p != MAP_FAILED);
	assert_int_equal(ftruncate(fd, (off_t)(keep * page)), 0);
	close(fd);
	unlink(path);
	return p;
}

static int
t_read(const volatile uint8_t *p, size_t i)
{
	int	v;

	if (guard_enter())
		return -1;
	v = p[i];
	guard_leave();
	return v;
}

static void
a_jump_comes_out_of_guard_enter_with_the_address_again_and_again(void **state)
{
	(void)state;
	assert_int_equal(t_child({
		const volatile uint8_t	*p = t_map("log-0000000001", 2);

		guard_init(GUARD_JUMP);
		for (int i = 0; i < 1000; i++) {
			assert_int_equal(t_read(p, page), 7);
			assert_int_equal(t_read(p, 2 * page + 5), -1);
			assert_ptr_equal(guard_address(), p + 2 * page + 5);
			assert_int_equal(guard_armed, 0);
		}
		assert_int_equal(guard_filled(), 0);
	}), 0);
}

static void
a_jump_that_is_not_armed_ends_the_process(void **state)
{
	(void)state;
	assert_int_equal(0x7f & t_child({
		const volatile uint8_t	*p = t_map("log-0000000001", 2);

		guard_init(GUARD_JUMP);
		(void)t_read(p, 0);
		(void)p[3 * page];
	}), SIGBUS);
}

static void
a_filled_page_is_zero_counted_by_kind_and_costs_one_fault(void **state)
{
	(void)state;
	assert_int_equal(t_child({
		const volatile uint8_t	*log = t_map("log-0000000001", 1);
		const volatile uint8_t	*tree = t_map("tree-0000000001", 3);

		guard_init(GUARD_FILL);
		assert_int_equal(log[page - 1], 7);
		assert_int_equal(log[page], 0);
		assert_int_equal(guard_filled(), 1);
		assert_int_equal(guard_filled_tree(), 0);
		assert_int_equal(log[page + 1], 0);
		assert_int_equal(guard_filled(), 1);
		assert_int_equal(log[3 * page + 9], 0);
		assert_int_equal(tree[3 * page], 0);
		assert_int_equal(tree[2 * page], 7);
		assert_int_equal(guard_filled(), 3);
		assert_int_equal(guard_filled_tree(), 1);
	}), 0);
}

static void
only_files_of_the_store_are_filled(void **state)
{
	(void)state;
	assert_int_equal(0x7f & t_child({
		const volatile uint8_t	*p = t_map("some-other-file", 1);

		guard_init(GUARD_FILL);
		(void)p[page];
	}), SIGBUS);
}

static void
a_signal_that_was_sent_ends_the_process_armed_or_not(void **state)
{
	(void)state;
	for (int armed = 0; armed < 2; armed++)
		assert_int_equal(0x7f & t_child({
			guard_init(armed ? GUARD_JUMP : GUARD_FILL);
			if (armed && guard_enter())
				_exit(99);
			raise(SIGBUS);
		}), SIGBUS);
}

int
main(void)
{
	const struct CMUnitTest	tests[] = {
		cmocka_unit_test(a_jump_comes_out_of_guard_enter_with_the_address_again_and_again),
		cmocka_unit_test(a_jump_that_is_not_armed_ends_the_process),
		cmocka_unit_test(a_filled_page_is_zero_counted_by_kind_and_costs_one_fault),
		cmocka_unit_test(only_files_of_the_store_are_filled),
		cmocka_unit_test(a_signal_that_was_sent_ends_the_process_armed_or_not),
	};
	int	rc;

	page = (size_t)sysconf(_SC_PAGESIZE);
	if (mkdtemp(dir) == NULL)
		return 1;
	rc = cmocka_run_group_tests(tests, NULL, NULL);
	rmdir(dir);
	return rc;
}
