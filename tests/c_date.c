/* tests/c_date.c - worker/cond.h: HTTP dates, RFC 9110 5.6.7. */
#include "config.h"
#include <time.h>
#include "worker/cond.h"
#include "tests/parse.h"

static bool
parse(const char *text, int64_t *s)
{
	return date_parse(p_guarded(text, strlen(text)), strlen(text), s);
}

static void
all_three_forms_are_read(void **state)
{
	static const struct { const char *text; int64_t s; } rows[] = {
		{ "Sun, 06 Nov 1994 08:49:37 GMT", 784111777 },
		{ "Sunday, 06-Nov-94 08:49:37 GMT", 784111777 },
		{ "Sun Nov  6 08:49:37 1994", 784111777 },
		{ "Sun Nov 16 08:49:37 1994", 784111777 + 864000 },
		{ "Sun Nov 06 08:49:37 1994", 784111777 },
		{ "Thu, 01 Jan 1970 00:00:00 GMT", 0 },
		{ "Wed, 31 Dec 1969 23:59:59 GMT", -1 },
		{ "Thu, 29 Feb 2024 23:59:59 GMT", 1709251199 },
		{ "Tue, 29 Feb 2000 00:00:00 GMT", 951782400 },
		{ "Tue, 19 Jan 2038 03:14:08 GMT", 2147483648 },
		{ "Fri, 31 Dec 9999 23:59:59 GMT", 253402300799 },
		{ "Sat, 01 Jan 0000 00:00:00 GMT", -62167219200 },
		{ "Sat, 31 Dec 2016 23:59:60 GMT", 1483228800 },	/* a leap second */
		{ "Mon, 06 Nov 1994 08:49:37 GMT", 784111777 },		/* not a Monday: the date counts */
		{ "Wednesday, 30-Nov-26 00:00:00 GMT", 1795996800 },
		{ "Tuesday, 31-Dec-69 23:59:59 GMT", 3155759999 },	/* the pivot */
		{ "Thursday, 01-Jan-70 00:00:00 GMT", 0 },
	};
	int64_t	s;
	size_t	i;

	(void)state;
	for (i = 0; i < COUNT(rows); i++) {
		s = 77;
		if (!parse(rows[i].text, &s))
			fail_msg("refused: %s", rows[i].text);
		assert_true(s == rows[i].s);
	}
}

static void
anything_else_is_not_a_date(void **state)
{
	static const char *const	bad[] = {
		"", "x", "yesterday", "784111777", "Sun, 06 Nov 1994 08:49:37", "Sun, 06 Nov 1994 08:49:37 UTC", "Sun, 06 Nov 1994 08:49:37 gmt",
		"Sun, 06 Nov 1994 08:49:37 +0000", "sun, 06 Nov 1994 08:49:37 GMT", "Sun, 06 nov 1994 08:49:37 GMT",
		"Sun, 6 Nov 1994 08:49:37 GMT", "Sun,06 Nov 1994 08:49:37 GMT", "Sun  06 Nov 1994 08:49:37 GMT", "Sun, 06 Nov 1994 8:49:37 GMT",
		"Sun, 06 Nov 1994 08-49-37 GMT", "Sun, 06-Nov-1994 08:49:37 GMT", "Sun, 06-Nov-94 08:49:37 GMT", "Sunday, 06 Nov 1994 08:49:37 GMT",
		"Sunday, 06-Nov-1994 08:49:37 GMT", "Sundax, 06-Nov-94 08:49:37 GMT", "Sunda, 06-Nov-94 08:49:37 GMT", ", 06-Nov-94 08:49:37 GMT",
		"Sunday,06-Nov-94 08:49:37 GMTx", "Sun, 00 Nov 1994 08:49:37 GMT", "Sun, 31 Nov 1994 08:49:37 GMT", "Sun, 32 Dec 1994 08:49:37 GMT",
		"Sun, 29 Feb 1900 08:49:37 GMT", "Sun, 29 Feb 2023 08:49:37 GMT", "Sun, 30 Feb 2024 08:49:37 GMT", "Sun, 06 Nov 1994 24:00:00 GMT",
		"Sun, 06 Nov 1994 08:60:37 GMT", "Sun, 06 Nov 1994 08:49:61 GMT", "Sun, 06 Nov -994 08:49:37 GMT", "Mon, 99 Foo 2020 00:00:00 GMT",
		"Sun Nov 6 08:49:37 1994", "Sun Nov  6 08:49:37 1994 ", "Sun Nov  6 08:49:37 94", "Sun Nov 0  08:49:37 1994", "Sun Nov  0 08:49:37 1994",
		"Sun, 06 Nov 1994 08:49:37 GMT, Sun, 06 Nov 1994 08:49:37 GMT", " Sun, 06 Nov 1994 08:49:37 GMT",
	};
	int64_t	s;
	size_t	i, n;

	(void)state;
	for (i = 0; i < COUNT(bad); i++)
		if (parse(bad[i], &s))
			fail_msg("accepted: %s", bad[i]);
	/* every prefix, at the guard page */
	for (n = 0; n < DATE_LEN; n++)
		assert_false(date_parse(p_guarded("Sun, 06 Nov 1994 08:49:37 GMT", n), n, &s));
	for (n = 0; n < 30; n++)
		assert_false(date_parse(p_guarded("Sunday, 06-Nov-94 08:49:37 GMT", n), n, &s));
	for (n = 0; n < 24; n++)
		assert_false(date_parse(p_guarded("Sun Nov  6 08:49:37 1994", n), n, &s));
}

/* Against the C library, over ten thousand years, and there and back. */
static void
dates_are_written_as_the_library_would(void **state)
{
	char		out[DATE_LEN + 1], want[64];
	struct tm	tm;
	int64_t		s, back;
	time_t		t;

	(void)state;
	out[DATE_LEN] = '#';
	for (s = INT64_C(-62167219200); s <= INT64_C(253402300799); s += 2000003 * (s % 5 == 0 ? 1 : 3)) {
		date_format(out, s);
		assert_int_equal(out[DATE_LEN], '#');
		t = (time_t)s;
		assert_non_null(gmtime_r(&t, &tm));
		assert_int_equal(strftime(want, sizeof(want), tm.tm_year + 1900 < 1000 ? "%a, %d %b @@@@ %H:%M:%S GMT" :
		    "%a, %d %b %Y %H:%M:%S GMT", &tm), DATE_LEN);
		if (tm.tm_year + 1900 < 1000) {
			want[12] = '0';
			want[13] = (char)('0' + (tm.tm_year + 1900) / 100);
			want[14] = (char)('0' + (tm.tm_year + 1900) / 10 % 10);
			want[15] = (char)('0' + (tm.tm_year + 1900) % 10);
		}
		assert_memory_equal(out, want, DATE_LEN);
		assert_true(date_parse(out, DATE_LEN, &back));
		assert_true(back == s);
	}
}

static void
what_four_digits_of_year_cannot_say_is_clamped(void **state)
{
	char	out[DATE_LEN];

	(void)state;
	date_format(out, INT64_MAX);
	assert_memory_equal(out, "Fri, 31 Dec 9999 23:59:59 GMT", DATE_LEN);
	date_format(out, INT64_MIN);
	assert_memory_equal(out, "Sat, 01 Jan 0000 00:00:00 GMT", DATE_LEN);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_three_forms_are_read),
		cmocka_unit_test(anything_else_is_not_a_date),
		cmocka_unit_test(dates_are_written_as_the_library_would),
		cmocka_unit_test(what_four_digits_of_year_cannot_say_is_clamped),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
