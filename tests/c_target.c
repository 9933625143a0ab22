/* tests/c_target.c - worker/target.h: contract 1, F78, F81, F83, F84. */
#include "config.h"
#include <stdio.h>
#include "worker/target.h"
#include "worker/utf8.h"
#include "tests/parse.h"

static char		buf[TARGET_MAX];
static struct target	t;
static struct refusal	r;

/* Both ends guarded: the target, and what it is decoded into. */
static bool
parse_as(enum method m, const char *in, size_t len)
{
	struct head	h = { .method = m, .target = { p_guarded(in, len), (uint32_t)len } };
	static char	*out;

	if (out == NULL)
		out = t_at_guard(buf, sizeof(buf));
	memset(&t, 0xa5, sizeof(t));
	memset(out, 0xa5, sizeof(buf));
	r = (struct refusal){ 0 };
	return target_parse(&h, out, &t, &r);
}

static bool
parse(const char *in)
{
	return parse_as(M_GET, in, strlen(in));
}

static void
is(const char *p, size_t len, const char *text)
{
	assert_int_equal(len, strlen(text));
	assert_memory_equal(p, text, len);
}

static void
targets_are_split_into_tenant_and_path(void **state)
{
	static const struct {
		const char	*in;
		enum target_kind kind;
		const char	*tenant, *path;
		bool		 slash;
	} rows[] = {
		{ "/", T_ROOT, "", "", false },
		{ "/?x", T_ROOT, "", "", false },
		{ "/t", T_TENANT, "t", "", false },
		{ "/t?x=1", T_TENANT, "t", "", false },
		{ "/t/", T_FOLDER, "t", "", true },
		{ "/t%2F", T_FOLDER, "t", "", true },
		{ "/t/a", T_DOCUMENT, "t", "a", false },
		{ "/t/a/", T_FOLDER, "t", "a", true },
		{ "/t/a/b/", T_FOLDER, "t", "a/b", true },
		{ "/t/a/b.json", T_DOCUMENT, "t", "a/b.json", false },
		{ "/t%2fa%2Fb", T_DOCUMENT, "t", "a/b", false },
		{ "/%74/%41", T_DOCUMENT, "t", "A", false },
		{ "/t/a?b/c", T_DOCUMENT, "t", "a", false },
		{ "/t/?limit=1", T_FOLDER, "t", "", true },
		{ "/t/a%3Fb", T_DOCUMENT, "t", "a?b", false },
		{ "/t/a%23b", T_DOCUMENT, "t", "a#b", false },
		{ "/t/a%25b", T_DOCUMENT, "t", "a%b", false },
		{ "/t/%252e%252e", T_DOCUMENT, "t", "%2e%2e", false },
		{ "/t/a+b", T_DOCUMENT, "t", "a+b", false },
		{ "/t/a%20b", T_DOCUMENT, "t", "a b", false },
		{ "/t/...", T_DOCUMENT, "t", "...", false },
		{ "/t/..a/.b/c./d..", T_DOCUMENT, "t", "..a/.b/c./d..", false },
		{ "/t/%C3%A9", T_DOCUMENT, "t", "\xc3\xa9", false },
		{ "/t/%F4%8F%BF%BF", T_DOCUMENT, "t", "\xf4\x8f\xbf\xbf", false },
		{ "/t/%EF%BB%BF", T_DOCUMENT, "t", "\xef\xbb\xbf", false },
		{ "/t/(a)!$&'*,;=:@~-_|{}^`\"<>[]", T_DOCUMENT, "t", "(a)!$&'*,;=:@~-_|{}^`\"<>[]", false },
		{ "/t/a/_b", T_DOCUMENT, "t", "a/_b", false },
		{ "/_health", T_RESERVED, "", "_health", false },
		{ "/%5Fhealth", T_RESERVED, "", "_health", false },
		{ "/_", T_RESERVED, "", "_", false },
		{ "/_tenants/", T_RESERVED, "", "_tenants", true },
		{ "/_tenants/x", T_RESERVED, "", "_tenants/x", false },
		{ "/_tenants%2fx/", T_RESERVED, "", "_tenants/x", true },
		{ "/t/_changes", T_TENANT_RESERVED, "t", "_changes", false },
		{ "/t/%5fchanges?since=1", T_TENANT_RESERVED, "t", "_changes", false },
		{ "/t/_x/y/", T_TENANT_RESERVED, "t", "_x/y", true },
		{ "/A.b/x", T_DOCUMENT, "A.b", "x", false },
		{ "http://host/t/a", T_DOCUMENT, "t", "a", false },
		{ "HTTPS://host:443/t/a/?q", T_FOLDER, "t", "a", true },
		{ "http://[::1]:80/t", T_TENANT, "t", "", false },
		{ "http://host", T_ROOT, "", "", false },
		{ "http://host/", T_ROOT, "", "", false },
		{ "http://host?q", T_ROOT, "", "", false },
	};
	size_t	i;

	(void)state;
	for (i = 0; i < COUNT(rows); i++) {
		if (!parse(rows[i].in))
			fail_msg("refused: %s: %s", rows[i].in, r.detail);
		assert_int_equal(t.kind, rows[i].kind);
		is(t.tenant, t.tenant_len, rows[i].tenant);
		is(t.path, t.path_len, rows[i].path);
		assert_int_equal(t.slash, rows[i].slash);
		assert_false(t.has_token);
	}
}

static void
malformed_targets_are_400_and_the_connection_goes_on(void **state)
{
	static const char *const	paths[] = {
		"//", "//t", "///", "/t//", "/t//a", "/t/a//b", "/t/a//", "/%2F", "/%2Ft", "/t%2F%2Fa", "/t/a%2F/b", "/t/%2fa",
		"/.", "/..", "/./", "/../", "/t/.", "/t/..", "/t/./", "/t/../", "/t/./b", "/t/../b", "/t/a/.", "/t/a/..", "/t/a/../b",
		"/%2e", "/%2E%2e", "/t/%2e", "/t/%2e%2E/", "/t/a/%2e%2e/b", "/t/.%2e/b", "/t/%2e./b", "/t/..%2fb", "/t/a%2f..%2fb",
		"/t/%2e%2e%2fa", "/_tenants/..", "/_tenants//x",
		"/t/a%00b", "/t/%01", "/t/%09", "/t/%0a", "/t/%0D", "/t/%1f", "/t/%7f", "/%00",
		"/t/%ff", "/t/%fe%fe", "/t/%80", "/t/%c3", "/t/%c3%28", "/t/%c3/%a9", "/t/%e2%82", "/t/%c0%af", "/t/%c1%bf",
		"/t/%e0%80%af", "/t/%e0%9f%bf", "/t/%ed%a0%80", "/t/%ed%bf%bf", "/t/%f0%8f%bf%bf", "/t/%f4%90%80%80",
		"/t/%f5%80%80%80", "/t/%f8%88%80%80%80", "/%ff/x",
		"/t/%", "/t/%4", "/t/a%", "/t/%zz", "/t/%4z", "/t/%%41", "/t/%u0041", "/t/%-1", "/t/%+1", "/t/% 1", "/%",
		"/t/a\\b", "/t/\\", "/t/a%5Cb", "/t/..%5c..", "\\t",
		"/t/a#b", "/t/a?b#c", "/t/\xc3\xa9", "/t/a?\xc3\xa9", "/t/a b", "/t/a?b c", "/t/\x01", "/t/\x7f",
		"", "*", "t", "t/a", "?", "host:443", "host", "http:", "http:/", "http://", "http:///t", "http://?x", "http://a b/t",
		"http://u@host/t", "http://host:x/t", "http://a,b/", "http//host/t", "ftp://host/t", "httpx://host/", "://host/",
		"http://host#/t", "http:host/t", "**", "*/t",
	};
	size_t	i;

	(void)state;
	for (i = 0; i < COUNT(paths); i++) {
		if (parse(paths[i]))
			fail_msg("accepted: %s", paths[i]);
		if (r.status != 400)
			fail_msg("%u: %s", r.status, paths[i]);
		assert_true(r.keep);
		assert_non_null(r.detail);
	}
	assert_false(parse_as(M_GET, S("/t/a\0b")));
}

static void
a_star_goes_with_options_only(void **state)
{
	(void)state;
	assert_true(parse_as(M_OPTIONS, S("*")));
	assert_int_equal(t.kind, T_STAR);
	assert_true(parse_as(M_OPTIONS, S("http://host")));
	assert_int_equal(t.kind, T_STAR);
	assert_true(parse_as(M_OPTIONS, S("http://host/")));
	assert_int_equal(t.kind, T_ROOT);
	assert_false(parse_as(M_PUT, S("*")));
	assert_false(parse_as(M_OPTIONS, S("*?x")));
	assert_false(parse_as(M_OTHER, S("host:443")));
}

static void
tenants_are_dns_labels_and_others_like_absent_ones(void **state)
{
	static const char *const	good[] = { "a", "0", "a-", "0-0", "a--b", "shop1" };
	static const char *const	bad[] = { "-a", "A", "aB", "a.b", "a_b", "%C3%A9", "a%20b", "*", "a:b", "~a" };
	char	in[512];
	size_t	i, n;

	(void)state;
	for (i = 0; i < COUNT(good); i++) {
		snprintf(in, sizeof(in), "/%s/x", good[i]);
		assert_true(parse(in));
		assert_true(t.tenant_ok);
	}
	for (i = 0; i < COUNT(bad); i++) {
		snprintf(in, sizeof(in), "/%s/x", bad[i]);
		assert_true(parse(in));
		assert_false(t.tenant_ok);
	}
	/* any length: its name is no path */
	for (n = 62; n < 400; n += n < 65 ? 1 : 100) {
		memset(in, 'a', sizeof(in));
		in[0] = '/';
		memcpy(in + 1 + n, "/x", 3);
		assert_true(parse(in));
		assert_int_equal(t.tenant_ok, n <= 63);
		assert_int_equal(t.tenant_len, n);
		in[1 + n] = '\0';
		assert_true(parse(in));
		assert_int_equal(t.kind, T_TENANT);
	}
}

/* "/t/" and segments of the lengths given, each byte written as `unit`. */
static char *
long_path(const char *front, const char *unit, const unsigned *lengths, const char *tail)
{
	static char	in[16384];
	size_t		len = (size_t)snprintf(in, sizeof(in), "%s", front);
	unsigned	i, k;

	for (i = 0; lengths[i] != 0; i++) {
		if (i > 0)
			len += (size_t)snprintf(in + len, sizeof(in) - len, "/");
		for (k = 0; k < lengths[i]; k++)
			len += (size_t)snprintf(in + len, sizeof(in) - len, "%s", unit);
	}
	snprintf(in + len, sizeof(in) - len, "%s", tail);
	return in;
}

static void
segments_have_255_bytes_and_paths_1024(void **state)
{
	static const unsigned	s255[] = { 255, 0 }, s256[] = { 256, 0 }, p1023[] = { 255, 255, 255, 255, 0 },
				p1024[] = { 255, 255, 255, 254, 1, 0 }, p1025[] = { 255, 255, 255, 255, 1, 0 };
	size_t			i;
	static const char *const units[] = { "x", "%41" };

	(void)state;
	for (i = 0; i < COUNT(units); i++) {
		assert_true(parse(long_path("/t/", units[i], s255, "")));
		assert_int_equal(t.path_len, 255);
		assert_true(parse(long_path("/t/", units[i], s255, "/")));
		assert_int_equal(t.path_len, 255);
		assert_true(parse(long_path("/t/", units[i], p1023, "")));
		assert_true(parse(long_path("/t/", units[i], p1023, "/")));
		assert_int_equal(t.path_len, 1023);
		assert_true(parse(long_path("/t/", units[i], p1024, "?query")));
		assert_int_equal(t.path_len, 1024);
		assert_false(parse(long_path("/t/", units[i], s256, "")));
		assert_int_equal(r.status, 414);
		assert_true(r.keep);
		assert_false(parse(long_path("/t/", units[i], p1025, "")));
		assert_int_equal(r.status, 414);
		assert_false(parse(long_path("/t/", units[i], p1025, "/")));
		assert_int_equal(r.status, 414);
		assert_false(parse(long_path("/_tenants/", units[i], s256, "")));
		assert_int_equal(r.status, 414);
		/* what is malformed is 400, however long */
		assert_false(parse(long_path("/t/", units[i], p1025, "//")));
		assert_int_equal(r.status, 400);
		assert_false(parse(long_path("/t/", units[i], s256, "/../x")));
		assert_int_equal(r.status, 400);
		assert_false(parse(long_path("/t/", units[i], s256, "%zz")));
		assert_int_equal(r.status, 400);
	}
	assert_true(parse(long_path("/t/", "%C3%A9", (unsigned []){ 127, 0 }, "")));
	assert_false(parse(long_path("/t/", "%C3%A9", (unsigned []){ 128, 0 }, "")));
	assert_int_equal(r.status, 414);
}

static void
a_parameter_named_token_is_seen(void **state)
{
	static const char *const	with[] = { "?token=abc", "?token=", "?token", "?a=1&token=x", "?token=x&a=1", "?&token", "?a&&token=1",
		"?%74oken=x", "?tok%65n", "?%74%6F%6b%65%6E=1" };
	static const char *const	without[] = { "", "?", "?x=1", "?tokens=1", "?toke=1", "?a=token", "?Token=1", "?xtoken=1", "?a=&b",
		"?%zz=1", "?to%6", "?a;token=1", "?token%00=1", "?%2574oken=1", "?=token" };
	char	in[128];
	size_t	i;

	(void)state;
	for (i = 0; i < COUNT(with); i++) {
		snprintf(in, sizeof(in), "/t/a%s", with[i]);
		assert_true(parse(in));
		if (!t.has_token)
			fail_msg("not seen: %s", in);
	}
	for (i = 0; i < COUNT(without); i++) {
		snprintf(in, sizeof(in), "/t/a%s", without[i]);
		assert_true(parse(in));
		if (t.has_token)
			fail_msg("seen: %s", in);
	}
}

static void
the_query_and_the_path_as_sent_are_kept(void **state)
{
	(void)state;
	assert_true(parse("/t/a%2fb"));
	is(t.raw_path.p, t.raw_path.len, "/t/a%2fb");
	assert_null(t.query.p);
	assert_true(parse("/t/a?"));
	assert_non_null(t.query.p);
	assert_int_equal(t.query.len, 0);
	assert_true(parse("https://host:1/t/%61?x=%zz&y?/"));
	is(t.raw_path.p, t.raw_path.len, "/t/%61");
	is(t.query.p, t.query.len, "x=%zz&y?/");
	assert_true(parse("http://host?x"));
	is(t.raw_path.p, t.raw_path.len, "/");
	is(t.query.p, t.query.len, "x");
}

/* Against a decoder that is nothing but the definition: every sequence of up to three bytes, and the edges of four. */
static bool
utf8_by_definition(const unsigned char *s, size_t n)
{
	static const unsigned	least[] = { 0, 0, 0x80, 0x800, 0x10000 };
	unsigned		code;
	size_t			i, k;

	for (; n > 0; s += k, n -= k) {
		k = s[0] < 0x80 ? 1 : (s[0] & 0xe0) == 0xc0 ? 2 : (s[0] & 0xf0) == 0xe0 ? 3 : (s[0] & 0xf8) == 0xf0 ? 4 : 0;
		if (k == 0 || k > n)
			return false;
		code = k == 1 ? s[0] : s[0] & (0x7fu >> k);
		for (i = 1; i < k; i++) {
			if ((s[i] & 0xc0) != 0x80)
				return false;
			code = code << 6 | (s[i] & 0x3f);
		}
		if (code < least[k] || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff))
			return false;
	}
	return true;
}

static void
utf8_is_what_its_definition_says(void **state)
{
	static const unsigned char	edge[] = { 0, 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xc0, 0xff };
	unsigned			v, a, b, c;
	unsigned char			s[4];
	size_t				n;

	(void)state;
	for (v = 0; v < 1u << 24; v += v < 1u << 16 ? 1 : 7) {
		s[0] = (unsigned char)v;
		s[1] = (unsigned char)(v >> 8);
		s[2] = (unsigned char)(v >> 16);
		n = v < 256 ? 1 : v < 65536 ? 2 : 3;
		if (utf8_ok((const char *)s, n) != utf8_by_definition(s, n))
			fail_msg("%02x %02x %02x", s[0], s[1], s[2]);
	}
	for (v = 0xe0; v < 256; v++)
		for (a = 0; a < COUNT(edge); a++)
			for (b = 0; b < COUNT(edge); b++)
				for (c = 0; c < COUNT(edge); c++) {
					s[0] = (unsigned char)v;
					s[1] = edge[a];
					s[2] = edge[b];
					s[3] = edge[c];
					assert_int_equal(utf8_ok((const char *)s, 4), utf8_by_definition(s, 4));
				}
	assert_true(utf8_ok("", 0));
	assert_int_equal(utf8_len(p_guarded("", 0), 0), 0);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(targets_are_split_into_tenant_and_path),
		cmocka_unit_test(malformed_targets_are_400_and_the_connection_goes_on),
		cmocka_unit_test(a_star_goes_with_options_only),
		cmocka_unit_test(tenants_are_dns_labels_and_others_like_absent_ones),
		cmocka_unit_test(segments_have_255_bytes_and_paths_1024),
		cmocka_unit_test(a_parameter_named_token_is_seen),
		cmocka_unit_test(the_query_and_the_path_as_sent_are_kept),
		cmocka_unit_test(utf8_is_what_its_definition_says),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
