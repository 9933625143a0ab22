/* tests/c_answer.c - worker/answer.h, document.h, tenant.h, clock.h, timer.h, out.h: what needs no socket. */
#include "config.h"
#include "tests/unit.h"
#include "worker/answer.h"
#include "worker/document.h"
#include "worker/worker.h"

static void
put_is(const char *end, const char *out, const char *want)
{
	assert_int_equal(end - out, strlen(want));
	assert_memory_equal(out, want, strlen(want));
}

static void
numbers_are_spelled_without_leading_zeros(void **state)
{
	static const struct {
		uint64_t	 n;
		const char	*want;
	} cases[] = {
		{ 0, "0" }, { 1, "1" }, { 9, "9" }, { 10, "10" }, { 99, "99" }, { 100, "100" }, { 65536, "65536" },
		{ 1000000007, "1000000007" }, { UINT64_MAX, "18446744073709551615" },
		{ UINT64_MAX - 6, "18446744073709551609" }, { 10000000000000000000u, "10000000000000000000" },
	};
	char	out[24];
	size_t	i;

	(void)state;
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		put_is(put_u64(out, cases[i].n), out, cases[i].want);
}

static void
an_etag_line_is_the_tag_in_quotes(void **state)
{
	struct tag	tag = { .seq = 0x1a7, .run = 0x5f3c9d21 };
	char		out[ETAG_MAX + 16];

	(void)state;
	put_is(put_etag(out, &tag), out, "ETag: \"1a7-5f3c9d21\"\r\n");
	tag.seq = UINT64_MAX;
	tag.run = 0;
	put_is(put_etag(out, &tag), out, "ETag: \"ffffffffffffffff-00000000\"\r\n");
}

static void
a_location_escapes_all_that_a_path_may_not_hold(void **state)
{
	char	out[3 * 64];

	(void)state;
	put_is(put_path(out, "a/b.json", 8), out, "a/b.json");
	put_is(put_path(out, "a b%?#", 6), out, "a%20b%25%3F%23");
	put_is(put_path(out, "\xc3\xa9\"<>\\^`{|}", 11), out, "%C3%A9%22%3C%3E%5C%5E%60%7B%7C%7D");
	put_is(put_path(out, "-._~!$&'()*+,;=:@", 17), out, "-._~!$&'()*+,;=:@");
	put_is(put_path(out, "a\0b", 3), out, "a%00b");
}

static void
a_json_string_cannot_be_left(void **state)
{
	char	out[6 * 32];

	(void)state;
	put_is(put_json(out, "plain", 5), out, "plain");
	put_is(put_json(out, "\"\\\n\x01\xc3\xa9", 6), out, "\\\"\\\\\\u000a\\u0001\xc3\xa9");
}

static void
meta_tells_which_defaults_a_get_adds(void **state)
{
	static const struct {
		const char	*meta;
		uint32_t	 cache_len;
		bool		 typed;
	} cases[] = {
		{ "", 0, false },
		{ "Content-Type: a/b\r\n", 0, true },
		{ "Content-Encoding: gzip\r\n", 0, false },
		{ "Cache-Control: no-store\r\n", 25, false },
		{ "Cache-Control: max-age=5\r\nContent-Type: a/b\r\n", 26, true },
		{ "Cache-Control: \r\nContent-Language: de\r\n", 17, false },
		{ "Content-Type: Cache-Control\r\n", 0, true },
		{ "Cache-Control", 0, false },		/* no line end: whoever wrote it, it is no line */
	};
	struct meta_view	v;
	size_t			i;

	(void)state;
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		v = document_meta(cases[i].meta, (uint32_t)strlen(cases[i].meta));
		assert_int_equal(v.cache_len, cases[i].cache_len);
		assert_int_equal(v.typed, cases[i].typed);
	}
}

static void
a_tenant_is_a_dns_label(void **state)
{
	char	longest[TENANT_NAME_MAX + 1];

	(void)state;
	memset(longest, 'a', sizeof(longest));
	assert_true(tenant_name_ok("a", 1));
	assert_true(tenant_name_ok("0-", 2));
	assert_true(tenant_name_ok("a--9", 4));
	assert_true(tenant_name_ok(longest, TENANT_NAME_MAX));
	assert_false(tenant_name_ok(longest, TENANT_NAME_MAX + 1));
	assert_false(tenant_name_ok("", 0));
	assert_false(tenant_name_ok("-a", 2));
	assert_false(tenant_name_ok("A", 1));
	assert_false(tenant_name_ok("a_b", 3));
	assert_false(tenant_name_ok("a.b", 3));
	assert_false(tenant_name_ok("a\0", 2));
}

static void
windows_of_a_body_end_where_checksums_do_and_cover_it(void **state)
{
	static const uint32_t	ends[] = { 1, 65536, OUT_WINDOW - 1, OUT_WINDOW, OUT_WINDOW + 1, 5 * OUT_WINDOW + 7 };
	static const uint32_t	starts[] = { 0, 1, 65535, OUT_WINDOW - 1, OUT_WINDOW, OUT_WINDOW + 5 };
	uint32_t		at, next;
	size_t			i, k;

	(void)state;
	for (i = 0; i < sizeof(ends) / sizeof(ends[0]); i++)
		for (k = 0; k < sizeof(starts) / sizeof(starts[0]) && starts[k] < ends[i]; k++)
			for (at = starts[k]; at < ends[i]; at = next) {
				next = out_first(at, ends[i]);
				assert_true(next > at && next <= ends[i] && next - at <= OUT_WINDOW);
				assert_true(next == ends[i] || next % SUBMIT_CHUNK == 0);
			}
}

static void
date_has_a_floor_and_never_runs_backwards_below_it(void **state)
{
	static const char	future[] = "Date: Fri, 31 Dec 2100 00:00:00 GMT\r\nServer: holdfast\r\n";
	const int64_t		s = 4133894400;
	struct clock		c;

	(void)state;
	clock_init(&c);
	clock_tick(&c, (uint64_t)s * 1000 + 999);
	assert_memory_equal(c.lines, future, CLOCK_LINES);
	clock_tick(&c, 0);
	assert_memory_equal(c.lines, future, CLOCK_LINES);
	clock_floor(&c, s - 10);
	assert_memory_equal(c.lines, future, CLOCK_LINES);
}

static void
remembered_dates_are_not_mixed_up(void **state)
{
	struct clock	c;
	char		out[DATE_LEN], want[DATE_LEN];
	int64_t		s;
	int		round;

	(void)state;
	clock_init(&c);
	for (round = 0; round < 2; round++)
		for (s = 0; s < 10 * (int64_t)CLOCK_DATES; s += 7) {
			assert_ptr_equal(clock_spell(&c, out, s), out + DATE_LEN);
			date_format(want, s);
			assert_memory_equal(out, want, DATE_LEN);
		}
}

/* --- timers -------------------------------------------------------------- */

static const uint64_t	ms[TIMER__N] = {
	[TIMER_IDLE] = 1000, [TIMER_HEAD] = 100, [TIMER_BODY] = 100, [TIMER_WRITE] = 300, [TIMER_LINGER] = 50
};

static void
the_one_idle_for_longest_is_first_and_expires_first(void **state)
{
	struct timers	t;
	struct conn	c[3] = { 0 };

	(void)state;
	timers_init(&t, ms);
	assert_int_equal(timers_wait(&t, 0), -1);
	timer_start(&t, &c[0], TIMER_IDLE, 0);
	timer_start(&t, &c[1], TIMER_IDLE, 10);
	timer_start(&t, &c[2], TIMER_IDLE, 20);
	timer_start(&t, &c[0], TIMER_IDLE, 20);	/* had a request: to the end, in the same millisecond */
	assert_ptr_equal(TAILQ_FIRST(&t.q[TIMER_IDLE]), &c[1]);
	assert_ptr_equal(TAILQ_LAST(&t.q[TIMER_IDLE], timer_queue), &c[0]);
	assert_null(timers_expired(&t, 1009));
	assert_ptr_equal(timers_expired(&t, 1010), &c[1]);
	timer_stop(&t, &c[1]);
	assert_null(timers_expired(&t, 1010));
	assert_int_equal(timers_wait(&t, 1010), 10);
	assert_ptr_equal(timers_expired(&t, 1020), &c[2]);
}

static void
each_class_has_its_own_length(void **state)
{
	struct timers	t;
	struct conn	c[2] = { 0 };

	(void)state;
	timers_init(&t, ms);
	timer_start(&t, &c[0], TIMER_IDLE, 0);
	timer_start(&t, &c[1], TIMER_HEAD, 500);
	assert_int_equal(timers_wait(&t, 500), 100);
	assert_ptr_equal(timers_expired(&t, 600), &c[1]);
	timer_start(&t, &c[1], TIMER_LINGER, 600);
	assert_null(timers_expired(&t, 649));
	assert_ptr_equal(timers_expired(&t, 650), &c[1]);
	timer_stop(&t, &c[1]);
	timer_stop(&t, &c[1]);
	assert_null(timers_expired(&t, 999));
	assert_int_equal(timers_wait(&t, 999), 1);
	timer_start(&t, &c[0], TIMER_NONE, 999);
	assert_null(timers_expired(&t, 5000));
	assert_int_equal(timers_wait(&t, 5000), -1);
}

int
main(void)
{
	const struct CMUnitTest	tests[] = {
		cmocka_unit_test(numbers_are_spelled_without_leading_zeros),
		cmocka_unit_test(an_etag_line_is_the_tag_in_quotes),
		cmocka_unit_test(a_location_escapes_all_that_a_path_may_not_hold),
		cmocka_unit_test(a_json_string_cannot_be_left),
		cmocka_unit_test(meta_tells_which_defaults_a_get_adds),
		cmocka_unit_test(a_tenant_is_a_dns_label),
		cmocka_unit_test(windows_of_a_body_end_where_checksums_do_and_cover_it),
		cmocka_unit_test(date_has_a_floor_and_never_runs_backwards_below_it),
		cmocka_unit_test(remembered_dates_are_not_mixed_up),
		cmocka_unit_test(the_one_idle_for_longest_is_first_and_expires_first),
		cmocka_unit_test(each_class_has_its_own_length),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
