/* tests/c_range.c - worker/cond.h: Range and If-Range, F91, F92. */
#include "config.h"
#include "worker/cond.h"
#include "tests/parse.h"

static const struct tag	now = { .seq = 0x3f2a, .run = 0x1b2c3d4e };
#define NOW	"\"3f2a-1b2c3d4e\""
#define NOW_S	784111777	/* Sun, 06 Nov 1994 08:49:37 GMT */
#define BIG	"18446744073709551616"	/* 2^64 */
#define LONG	"99999999999999999999999999999999999999999999999999999999999999999999999999999999"

static enum range_kind
range(const char *value, const char *if_range, uint64_t size, uint64_t *first, uint64_t *last)
{
	struct head	h = { .method = M_GET };

	h.range = (struct slice){ p_guarded(value, strlen(value)), (uint32_t)strlen(value) };
	if (if_range != NULL)
		h.if_range = (struct slice){ if_range, (uint32_t)strlen(if_range) };
	*first = *last = 77;
	return range_parse(&h, size, &now, NOW_S, first, last);
}

static void
of_ten_bytes(void **state)
{
	static const struct { const char *value; enum range_kind kind; uint64_t first, last; } rows[] = {
		{ "bytes=0-0", RANGE_ONE, 0, 0 },
		{ "bytes=0-9", RANGE_ONE, 0, 9 },
		{ "bytes=9-9", RANGE_ONE, 9, 9 },
		{ "bytes=2-5", RANGE_ONE, 2, 5 },
		{ "bytes=0-", RANGE_ONE, 0, 9 },
		{ "bytes=9-", RANGE_ONE, 9, 9 },
		{ "bytes=-1", RANGE_ONE, 9, 9 },
		{ "bytes=-5", RANGE_ONE, 5, 9 },
		{ "bytes=-10", RANGE_ONE, 0, 9 },
		{ "bytes=-11", RANGE_ONE, 0, 9 },
		{ "bytes=-1000", RANGE_ONE, 0, 9 },
		{ "bytes=5-1000", RANGE_ONE, 5, 9 },
		{ "bytes=0-" BIG, RANGE_ONE, 0, 9 },
		{ "bytes=0-" LONG, RANGE_ONE, 0, 9 },
		{ "bytes=-" BIG, RANGE_ONE, 0, 9 },
		{ "bytes=-" LONG, RANGE_ONE, 0, 9 },
		{ "bytes=-18446744073709551615", RANGE_ONE, 0, 9 },
		{ "bytes=000-00005", RANGE_ONE, 0, 5 },
		{ "Bytes=1-2", RANGE_ONE, 1, 2 },
		{ "bytes=1-2,", RANGE_ONE, 1, 2 },
		{ "bytes=, \t1-2 ,", RANGE_ONE, 1, 2 },
		{ "bytes=-0", RANGE_UNSATISFIABLE, 0, 0 },
		{ "bytes=-00", RANGE_UNSATISFIABLE, 0, 0 },
		{ "bytes=10-", RANGE_UNSATISFIABLE, 0, 0 },
		{ "bytes=10-20", RANGE_UNSATISFIABLE, 0, 0 },
		{ "bytes=" BIG "-", RANGE_UNSATISFIABLE, 0, 0 },
		{ "bytes=" BIG "-" BIG, RANGE_UNSATISFIABLE, 0, 0 },
		{ "bytes=" LONG "-", RANGE_UNSATISFIABLE, 0, 0 },
		{ "bytes=18446744073709551615-", RANGE_UNSATISFIABLE, 0, 0 },
		{ "bytes=9223372036854775808-", RANGE_UNSATISFIABLE, 0, 0 },
		{ "bytes=5-2", RANGE_NONE, 0, 0 },
		{ "bytes=" BIG "-1", RANGE_NONE, 0, 0 },
		{ "bytes=", RANGE_NONE, 0, 0 },
		{ "bytes=-", RANGE_NONE, 0, 0 },
		{ "bytes=,", RANGE_NONE, 0, 0 },
		{ "bytes=a-b", RANGE_NONE, 0, 0 },
		{ "bytes=1", RANGE_NONE, 0, 0 },
		{ "bytes=1-2-3", RANGE_NONE, 0, 0 },
		{ "bytes=--1", RANGE_NONE, 0, 0 },
		{ "bytes=+1-2", RANGE_NONE, 0, 0 },
		{ "bytes=0x1-2", RANGE_NONE, 0, 0 },
		{ "bytes=1 -2", RANGE_NONE, 0, 0 },
		{ "bytes=1- 2", RANGE_NONE, 0, 0 },
		{ "bytes 1-2", RANGE_NONE, 0, 0 },
		{ "bytes =1-2", RANGE_NONE, 0, 0 },
		{ "bytes", RANGE_NONE, 0, 0 },
		{ "byte", RANGE_NONE, 0, 0 },
		{ "", RANGE_NONE, 0, 0 },
		{ "items=0-1", RANGE_NONE, 0, 0 },
		{ "bytesx=0-1", RANGE_NONE, 0, 0 },
		{ "bytes=0-1,3-4", RANGE_NONE, 0, 0 },
		{ "bytes=0-0,-1", RANGE_NONE, 0, 0 },
		{ "bytes=100-200,300-400", RANGE_NONE, 0, 0 },
		{ "bytes=0-1,x", RANGE_NONE, 0, 0 },
	};
	uint64_t	first, last;
	size_t		i;

	(void)state;
	for (i = 0; i < COUNT(rows); i++) {
		if (range(rows[i].value, NULL, 10, &first, &last) != rows[i].kind)
			fail_msg("%s", rows[i].value);
		assert_true(first == rows[i].first && last == rows[i].last);
	}
}

static void
of_nothing_and_of_the_largest(void **state)
{
	uint64_t	first, last;

	(void)state;
	assert_int_equal(range("bytes=0-", NULL, 0, &first, &last), RANGE_UNSATISFIABLE);
	assert_int_equal(range("bytes=0-0", NULL, 0, &first, &last), RANGE_UNSATISFIABLE);
	assert_int_equal(range("bytes=-5", NULL, 0, &first, &last), RANGE_UNSATISFIABLE);
	assert_int_equal(range("bytes=-0", NULL, 0, &first, &last), RANGE_UNSATISFIABLE);
	assert_int_equal(range("bytes=-" LONG, NULL, 0, &first, &last), RANGE_UNSATISFIABLE);
	assert_int_equal(range("bytes=5-2", NULL, 0, &first, &last), RANGE_NONE);
	assert_int_equal(range("items=0-1", NULL, 0, &first, &last), RANGE_NONE);
	assert_int_equal(range("bytes=18446744073709551614-", NULL, UINT64_MAX, &first, &last), RANGE_ONE);
	assert_true(first == UINT64_MAX - 1 && last == UINT64_MAX - 1);
	assert_int_equal(range("bytes=-1", NULL, UINT64_MAX, &first, &last), RANGE_ONE);
	assert_true(first == UINT64_MAX - 1 && last == UINT64_MAX - 1);
}

static void
a_thousand_ranges_are_the_whole(void **state)
{
	char		value[8192];
	uint64_t	first, last;
	size_t		i;

	(void)state;
	strcpy(value, "bytes=");
	for (i = 0; i < 1000; i++)
		strcat(value, "0-,");
	assert_int_equal(range(value, NULL, 10, &first, &last), RANGE_NONE);
}

static void
only_get_has_ranges(void **state)
{
	static const enum method	others[] = { M_HEAD, M_PUT, M_DELETE, M_POST, M_OPTIONS };
	struct head			h = { .range = { "bytes=0-1", 9 } };
	uint64_t			first, last;
	size_t				i;

	(void)state;
	for (i = 0; i < COUNT(others); i++) {
		h.method = others[i];
		assert_int_equal(range_parse(&h, 10, &now, NOW_S, &first, &last), RANGE_NONE);
	}
	h = (struct head){ .method = M_GET };
	assert_int_equal(range_parse(&h, 10, &now, NOW_S, &first, &last), RANGE_NONE);
}

static void
if_range_wants_an_exact_match(void **state)
{
	static const char *const	same[] = { NOW, "Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT",
		"Sun Nov  6 08:49:37 1994" };
	static const char *const	other[] = {
		"W/" NOW, "\"stale\"", "\"3f2a-1b2c3d4f\"", "\"3f2b-1b2c3d4e\"", "\"3F2A-1B2C3D4E\"", "3f2a-1b2c3d4e", "\"3f2a-1b2c3d4e",
		"3f2a-1b2c3d4e\"", "", "*", NOW ", \"x\"", "\"x\", " NOW, NOW " ", "W/", "W", "\"", "yesterday",
		"Sun, 06 Nov 1994 08:49:36 GMT", "Sun, 06 Nov 1994 08:49:38 GMT", "Wed, 01 Jan 2020 00:00:00 GMT",
	};
	uint64_t	first, last;
	size_t		i;

	(void)state;
	for (i = 0; i < COUNT(same); i++) {
		assert_int_equal(range("bytes=2-3", same[i], 10, &first, &last), RANGE_ONE);
		assert_int_equal(range("bytes=10-", same[i], 10, &first, &last), RANGE_UNSATISFIABLE);
	}
	for (i = 0; i < COUNT(other); i++) {
		assert_int_equal(range("bytes=2-3", other[i], 10, &first, &last), RANGE_NONE);
		/* of another version: the whole, not 416 */
		assert_int_equal(range("bytes=10-", other[i], 10, &first, &last), RANGE_NONE);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(of_ten_bytes),
		cmocka_unit_test(of_nothing_and_of_the_largest),
		cmocka_unit_test(a_thousand_ranges_are_the_whole),
		cmocka_unit_test(only_get_has_ranges),
		cmocka_unit_test(if_range_wants_an_exact_match),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
