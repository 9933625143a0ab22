/*
 * tests/a_config.c - master/conf.h: holdfast.conf and -o.
 * Runs in: test.
 */
#include "config.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>
#include "master/conf.h"

static struct conf	c;
static char		err[CONF_ERR];

/* Parses text that ends at a guard page: reading past it is a crash. */
static int
parse(const char *text, char *const *o, unsigned n)
{
	size_t	 page = (size_t)sysconf(_SC_PAGESIZE), len = strlen(text);
	size_t	 room = (len + page) / page * page;
	char	*map = mmap(NULL, room + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int	 rc;

	assert_ptr_not_equal(map, MAP_FAILED);
	assert_int_equal(mprotect(map + room, page, PROT_NONE), 0);
	memcpy(map + room - len, text, len);
	err[0] = '\0';
	rc = conf_parse(&c, "x.conf", map + room - len, len, o, n, err, sizeof(err));
	assert_int_equal(munmap(map, room + page), 0);
	return rc;
}

static void
takes(const char *text)
{
	if (parse(text, NULL, 0) == -1)
		fail_msg("%s: %s", text, err);
}

static void
refuses(const char *text, const char *why)
{
	assert_int_equal(parse(text, NULL, 0), -1);
	if (strstr(err, why) == NULL)
		fail_msg("\"%s\": said \"%s\", not \"%s\"", text, err, why);
}

static void
an_empty_file_is_all_defaults(void **state)
{
	char	text[64];

	(void)state;
	takes("");
	assert_int_equal(c.listen.n, 1);
	assert_string_equal(conf_addr_text(&c.listen.a[0], text, sizeof(text)), "127.0.0.1:7480");
	assert_int_equal(c.metrics.n, 0);
	assert_int_equal(c.workers, 0);
	assert_int_equal(c.set.input_budget, 64 << 20);
	assert_int_equal(c.set.max_document, 16 << 20);
	assert_int_equal(c.set.segment_size, 16 << 20);
	assert_int_equal(c.set.max_connections, 16384);
	assert_true(c.set.verify_always);
	assert_int_equal(c.set.head_ms, 10000);
	assert_int_equal(c.set.body_ms, 30000);
	assert_int_equal(c.set.idle_ms, 60000);
	assert_int_equal(c.set.write_ms, 30000);
	assert_int_equal(c.set.drain_ms, 30000);
	assert_int_equal(c.set.tombstone_s, 30 * 86400);
	assert_string_equal(c.user, "");
}

static void
every_key_of_the_contract_is_taken(void **state)
{
	(void)state;
	takes("data-dir /d\nlisten 0.0.0.0:80\nlisten-metrics [::1]:81\ncontrol-socket /s\npid-file /p\n"
	    "user nobody\nworkers 3\nmax-connections 100\ninput-budget 8M\nmax-document 4M\n"
	    "segment-size 1M\nverify-reads first\nlog /l\naccess-log off\nhead-timeout 1s\n"
	    "body-timeout 500ms\nidle-timeout 2m\nwrite-timeout 7\ndrain-timeout 1h\ntombstone-age 2d");
	assert_string_equal(c.data_dir, "/d");
	assert_string_equal(c.control_socket, "/s");
	assert_string_equal(c.pid_file, "/p");
	assert_string_equal(c.log, "/l");
	assert_string_equal(c.user, "nobody");
	assert_int_equal(c.workers, 3);
	assert_int_equal(c.set.max_connections, 100);
	assert_int_equal(c.set.input_budget, 8 << 20);
	assert_int_equal(c.set.max_document, 4 << 20);
	assert_int_equal(c.set.segment_size, 1 << 20);
	assert_false(c.set.verify_always);
	assert_int_equal(c.set.head_ms, 1000);
	assert_int_equal(c.set.body_ms, 500);
	assert_int_equal(c.set.idle_ms, 120000);
	assert_int_equal(c.set.write_ms, 7000);
	assert_int_equal(c.set.drain_ms, 3600000);
	assert_int_equal(c.set.tombstone_s, 2 * 86400);
}

static void
comments_blanks_and_carriage_returns_do_not_matter(void **state)
{
	(void)state;
	takes("# a comment\n\n   \t\n  workers \t 4  \r\n\t# another\n");
	assert_int_equal(c.workers, 4);
	takes("data-dir /a dir # not a comment\n");
	assert_string_equal(c.data_dir, "/a dir # not a comment");
}

static void
addresses_repeat_in_order(void **state)
{
	char	text[64];

	(void)state;
	takes("listen 127.0.0.1:1\nlisten [2001:db8::1]:65535\nlisten 127.0.0.1:0\nlisten 127.0.0.1:0\n");
	assert_int_equal(c.listen.n, 4);
	assert_string_equal(conf_addr_text(&c.listen.a[0], text, sizeof(text)), "127.0.0.1:1");
	assert_string_equal(conf_addr_text(&c.listen.a[1], text, sizeof(text)), "[2001:db8::1]:65535");
}

static void
an_error_names_file_and_line(void **state)
{
	(void)state;
	refuses("\n# x\nnonsense 1\n", "x.conf:3: unknown key \"nonsense\"");
	refuses("workers 1\nworkers 2\n", "x.conf:2: workers: already set in line 1");
	refuses("workers\n", "x.conf:1: workers: \"\" has no value");
	refuses("Workers 1\n", "x.conf:1: unknown key");
	refuses("workers=1\n", "x.conf:1: unknown key");
	refuses("workers 1 2\n", "x.conf:1: workers: \"1 2\" has an unknown unit");
}

static void
numbers_are_strict(void **state)
{
	static const char *const	bad[] = { "0", "-1", "+1", "0x1", "1.5", "65", "99999999999999999999",
		"18446744073709551617", "1M", "many" };
	char				text[64];

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		(void)snprintf(text, sizeof(text), "\nworkers %s\n", bad[i]);
		refuses(text, "x.conf:2: workers: ");
	}
	takes("workers 64\n");
	takes("workers auto\n");
	refuses("max-connections auto\n", "is not a number");
}

static void
sizes_and_durations_have_units_and_bounds(void **state)
{
	(void)state;
	takes("segment-size 1024K\n");
	assert_int_equal(c.set.segment_size, 1 << 20);
	takes("segment-size 1048576\n");
	takes("segment-size 1G\n");
	refuses("segment-size 1023K\n", "is too small");
	refuses("segment-size 2G\n", "is too large");
	refuses("segment-size 18014398509481985K\n", "is too large");
	refuses("segment-size 16MB\n", "has an unknown unit");
	refuses("segment-size 16 M\n", "has an unknown unit");
	refuses("segment-size M\n", "is not a number");
	takes("head-timeout 100ms\n");
	refuses("head-timeout 99ms\n", "is too small");
	refuses("head-timeout 0\n", "is too small");
	refuses("head-timeout 1d\n", "is too large");
	refuses("head-timeout 1w\n", "has an unknown unit");
	takes("tombstone-age 1\n");
	assert_int_equal(c.set.tombstone_s, 1);
	refuses("tombstone-age 999ms\n", "is too small");
}

static void
addresses_are_numbers_only(void **state)
{
	static const char *const	bad[] = { "80", ":80", "localhost:80", "127.0.0.1", "127.0.0.1:", "::1:80",
		"[::1]80", "[::1:80", "::1]:80", "[127.0.0.1]:80", "127.0.0.1:65536", "127.0.0.1:-1", "*:80",
		"127.0.0.1:8 0", "[]:80", "[:80", "]:80", "1.2.3:4", "[fe80::1%lo]:80" };
	char				text[80];

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		(void)snprintf(text, sizeof(text), "listen %s\n", bad[i]);
		refuses(text, "x.conf:1: listen: ");
	}
	refuses("listen 127.0.0.1:80\nlisten 127.0.0.1:80\n", "127.0.0.1:80 is given twice");
	refuses("listen [::1]:80\nlisten-metrics [::1]:80\n", "[::1]:80 is given twice");
}

static void
one_address_too_many_is_an_error(void **state)
{
	char	text[4096] = "";

	(void)state;
	for (unsigned i = 0; i <= CONF_ADDRS; i++)
		(void)snprintf(text + strlen(text), sizeof(text) - strlen(text), "listen 127.0.0.1:%u\n", 1000 + i);
	refuses(text, "is one address too many");
	*strstr(text, "listen 127.0.0.1:1000") = '#';
	takes(text);
	assert_int_equal(c.listen.n, CONF_ADDRS);
}

static void
other_values_are_checked(void **state)
{
	char	text[2048];

	(void)state;
	refuses("verify-reads never\n", "x.conf:1: verify-reads: \"never\" must be always or first");
	refuses("access-log /var/log/a\n", "can only be off");
	(void)snprintf(text, sizeof(text), "control-socket /%0100d\n", 0);
	refuses(text, "too long for a socket");
	(void)snprintf(text, sizeof(text), "user %0100d\n", 0);
	refuses(text, "is too long");
	(void)snprintf(text, sizeof(text), "data-dir /%01100d\n", 0);
	refuses(text, "is too long");
	(void)snprintf(text, sizeof(text), "data-dir /%01500d\n", 0);
	refuses(text, "line too long");
	refuses("data-dir /a\033[1m\n", "x.conf:1: control character");
}

static void
a_nul_is_an_error(void **state)
{
	(void)state;
	assert_int_equal(conf_parse(&c, "x.conf", "workers 1\nuser a\0b\n", 19, NULL, 0, err, sizeof(err)), -1);
	assert_string_equal(err, "x.conf:2: control character");
}

static void
a_document_is_at_most_half_of_the_budget(void **state)
{
	(void)state;
	takes("input-budget 32M\nmax-document 16M\n");
	refuses("\ninput-budget 32M\nmax-document 16385K\n", "x.conf:3: max-document");
	refuses("\ninput-budget 8M\n", "x.conf:2: max-document");
	takes("max-document 1\ninput-budget 1M\n");
}

static void
overrides_win_and_lists_are_replaced(void **state)
{
	char	*o[] = { (char []){ "workers=7" }, (char []){ "listen=127.0.0.1:9" }, (char []){ "listen=[::]:9" },
		    (char []){ "data-dir=/a=b" }, (char []){ "workers=8" } };

	(void)state;
	assert_int_equal(parse("workers 1\nlisten 127.0.0.1:1\nlisten 127.0.0.1:2\n", o, 5), 0);
	assert_int_equal(c.workers, 8);
	assert_int_equal(c.listen.n, 2);
	assert_int_equal(ntohs(c.listen.a[0].in.sin_port), 9);
	assert_string_equal(c.data_dir, "/a=b");
}

static void
bad_overrides_name_themselves(void **state)
{
	static const struct { const char *o, *says; } bad[] = {
		{ "workers", "-o workers: no \"=\": -o key=value is expected" },
		{ "x=1", "-o x=1: unknown key \"x\"; holdfast.conf(5) lists the keys" },
		{ "=1", "-o =1: unknown key \"\"" },
		{ "a-key-that-is-much-longer-than-any-key-is=1", "unknown key \"a-key-that" },
		{ "workers=", "-o workers=: workers: \"\" has no value: a number from 1 to 64 is expected, or auto" },
		{ "workers=0", "\"0\" is too small: a number from 1 to 64 is expected, or auto" },
		{ "max-connections=1K", "has an unknown unit: a number from 16 to 1000000 is expected" },
		{ "input-budget=3G", "is too large: a size from 1M to 2G is expected" },
		{ "max-document=x", "is not a number: a size from 1 to 1G is expected" },
		{ "head-timeout=1w", "has an unknown unit: a time from 100ms to 1h is expected" },
		{ "tombstone-age=0", "is too small: a time from 1s to 3650d is expected" },
		{ "verify-reads=", "must be always or first" },
		{ "listen=", "is not ADDR:PORT or [ADDR6]:PORT" },
		{ "data-dir=", "-o data-dir=: data-dir: \"\" has no value" },
		{ "user=", "has no value" },
		{ "data-dir=/a\nb", "-o data-dir: control character" },
		{ "max-document=1G", "-o number 1: max-document" },
	};
	char	*o, text[80];

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		o = strcpy(text, bad[i].o);
		assert_int_equal(parse("", &o, 1), -1);
		if (strstr(err, bad[i].says) == NULL)
			fail_msg("-o %s: said \"%s\", not \"%s\"", bad[i].o, err, bad[i].says);
	}
}

static char	later[256];

static void
note(const char *key)
{
	(void)snprintf(later + strlen(later), sizeof(later) - strlen(later), "%s ", key);
}

static void
a_reload_takes_what_can_change_and_names_the_rest(void **state)
{
	struct conf	cur;

	(void)state;
	takes("workers 1\ndata-dir /a\nidle-timeout 1s\n");
	cur = c;
	cur.set.uid = 77;
	takes("workers 2\ndata-dir /b\nlisten 127.0.0.1:1\nidle-timeout 2s\nverify-reads first\nmax-document 1M\n");
	later[0] = '\0';
	assert_int_equal(conf_take(&cur, &c, note, err, sizeof(err)), 0);
	assert_string_equal(later, "data-dir listen workers ");
	assert_int_equal(cur.workers, 1);
	assert_string_equal(cur.data_dir, "/a");
	assert_int_equal(cur.set.idle_ms, 2000);
	assert_int_equal(cur.set.max_document, 1 << 20);
	assert_false(cur.set.verify_always);
	assert_int_equal(cur.set.uid, 77);
}

static void
a_reload_that_does_not_fit_changes_nothing(void **state)
{
	struct conf	cur, was;

	(void)state;
	takes("input-budget 8M\nmax-document 4M\n");
	cur = was = c;
	/* good by itself, but the budget stays what it is until a restart */
	takes("input-budget 64M\nmax-document 16M\nidle-timeout 1s\n");
	assert_int_equal(conf_take(&cur, &c, note, err, sizeof(err)), -1);
	assert_non_null(strstr(err, "x.conf:2: max-document"));
	assert_memory_equal(&cur, &was, sizeof(cur));
}

static void
any_byte_anywhere_is_an_error_or_a_value(void **state)
{
	static const char	base[] = "workers 2\nlisten [::1]:80\nmax-document 1M\nhead-timeout 10s\n# c\nuser x\n";
	char			text[sizeof(base)];

	(void)state;
	for (size_t i = 0; i < sizeof(base) - 1; i++)
		for (int b = 1; b < 256; b++) {
			memcpy(text, base, sizeof(base));
			text[i] = (char)b;
			if (parse(text, NULL, 0) == -1)
				assert_non_null(strstr(err, "x.conf"));
		}
}

int
main(void)
{
	const struct CMUnitTest	tests[] = {
		cmocka_unit_test(an_empty_file_is_all_defaults),
		cmocka_unit_test(every_key_of_the_contract_is_taken),
		cmocka_unit_test(comments_blanks_and_carriage_returns_do_not_matter),
		cmocka_unit_test(addresses_repeat_in_order),
		cmocka_unit_test(an_error_names_file_and_line),
		cmocka_unit_test(numbers_are_strict),
		cmocka_unit_test(sizes_and_durations_have_units_and_bounds),
		cmocka_unit_test(addresses_are_numbers_only),
		cmocka_unit_test(one_address_too_many_is_an_error),
		cmocka_unit_test(other_values_are_checked),
		cmocka_unit_test(a_nul_is_an_error),
		cmocka_unit_test(a_document_is_at_most_half_of_the_budget),
		cmocka_unit_test(overrides_win_and_lists_are_replaced),
		cmocka_unit_test(bad_overrides_name_themselves),
		cmocka_unit_test(a_reload_takes_what_can_change_and_names_the_rest),
		cmocka_unit_test(a_reload_that_does_not_fit_changes_nothing),
		cmocka_unit_test(any_byte_anywhere_is_an_error_or_a_value),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
