/* tests/c_cond.c - worker/cond.h, etag.h: RFC 9110 8.8.3, 13; F88, F89. */
#include "config.h"
#include <stdio.h>
#include "worker/cond.h"
#include "worker/etag.h"
#include "tests/parse.h"

static const struct tag	now = { .seq = 0x3f2a, .run = 0x1b2c3d4e };
#define NOW	"\"3f2a-1b2c3d4e\""
#define NOW_S	784111777	/* Sun, 06 Nov 1994 08:49:37 GMT */

static struct slice
slice(const char *s)
{
	return s == NULL ? (struct slice){ NULL, 0 } : (struct slice){ s, (uint32_t)strlen(s) };
}

static struct head
head_of(const char *match, const char *none, const char *modified, const char *unmodified)
{
	struct head	h = { .method = M_GET };

	if (match != NULL)
		h.if_match[h.n_if_match++] = slice(match);
	if (none != NULL)
		h.if_none_match[h.n_if_none_match++] = slice(none);
	h.if_modified_since = slice(modified);
	h.if_unmodified_since = slice(unmodified);
	return h;
}

static void
tags_come_back_as_they_were(void **state)
{
	static const struct { struct tag t; const char *text; } rows[] = {
		{ { 1, 0, 0 }, "\"1-00000000\"" },
		{ { 0xf, 1, 0 }, "\"f-00000001\"" },
		{ { 0x10, 0xffffffff, 0 }, "\"10-ffffffff\"" },
		{ { 0x3f2a, 0x1b2c3d4e, 0 }, NOW },
		{ { UINT64_MAX, 0xabcdef01, 0 }, "\"ffffffffffffffff-abcdef01\"" },
		{ { UINT64_C(1) << 63, 0x12345678, 0 }, "\"8000000000000000-12345678\"" },
		{ { 0, 7, 0 }, "\"0-00000007\"" },
	};
	struct etag	e;
	char		out[ETAG_MAX + 1];
	const char	*p;
	size_t		i, n;

	(void)state;
	for (i = 0; i < COUNT(rows); i++) {
		memset(out, 'x', sizeof(out));
		n = etag_format(out, &rows[i].t);
		assert_true(n <= ETAG_MAX);
		assert_int_equal(n, strlen(rows[i].text));
		assert_memory_equal(out, rows[i].text, n);
		p = p_guarded(out, n);
		assert_ptr_equal(etag_read(p, p + n, &e), p + n);
		assert_false(e.weak);
		/* no version has no tag to match */
		assert_int_equal(e.ours, rows[i].t.seq != 0);
		if (e.ours)
			assert_true(tag_same(&e.tag, &rows[i].t));
	}
}

static void
a_tag_of_ours_has_one_spelling(void **state)
{
	static const char *const	others[] = {
		"\"03f2a-1b2c3d4e\"", "\"3F2A-1b2c3d4e\"", "\"3f2a-1B2c3d4e\"", "\"3f2a-b2c3d4e\"", "\"3f2a-01b2c3d4e\"", "\"3f2a1b2c3d4e\"",
		"\"3f2a-1b2c3d4e-\"", "\"-1b2c3d4e\"", "\"\"", "\"3f2a\"", "\"11112222333344445-1b2c3d4e\"", "\"3f2g-1b2c3d4e\"",
		"\"3f2a-1b2c3d4g\"", "\"3f2a,1b2c3d4e\"", "\"3f-a-1b2c3d4e\"", "\"3f2a-1b2c-d4e\"", "\"W/3f2a-1b2c3d4e\"", "\"\xff\"",
	};
	struct etag	e;
	const char	*p;
	size_t		i, n;

	(void)state;
	for (i = 0; i < COUNT(others); i++) {
		n = strlen(others[i]);
		p = p_guarded(others[i], n);
		assert_ptr_equal(etag_read(p, p + n, &e), p + n);
		assert_false(e.ours);
	}
}

static void
lists_are_read_to_their_end(void **state)
{
	static const struct { const char *field; bool any; uint16_t match, none; } rows[] = {
		{ NOW, false, 1, 1 },
		{ "*", true, 0, 0 },
		{ "W/" NOW, false, 0, 1 },		/* weak never matches strongly */
		{ "\"other\"", false, 0, 0 },
		{ "\"\"", false, 0, 0 },
		{ "\"a\", " NOW, false, 1, 1 },
		{ "\"a\"," NOW ",\"b\"", false, 1, 1 },
		{ ",, \"a\" ,\t" NOW " , ,", false, 1, 1 },
		{ "\"a,3f2a-1b2c3d4e\"", false, 0, 0 },	/* a comma inside */
		{ "\"a\",W/\"b\" , W/" NOW "," NOW, false, 1, 2 },
		{ "\"2-00000001\",\"3-00000001\"", false, 2, 2 },
		{ "\"W/\"", false, 0, 0 },
		{ "W/\"W/\"", false, 0, 0 },
		{ "\"\\\"", false, 0, 0 },		/* a backslash escapes nothing */
	};
	struct conditions	c;
	struct refusal		r;
	struct head		h;
	const char		*p;
	size_t			i;

	(void)state;
	for (i = 0; i < COUNT(rows); i++) {
		p = p_guarded(rows[i].field, strlen(rows[i].field));
		h = head_of(NULL, NULL, NULL, NULL);
		h.n_if_match = h.n_if_none_match = 1;
		h.if_match[0] = h.if_none_match[0] = (struct slice){ p, (uint32_t)strlen(rows[i].field) };
		memset(&c, 0xa5, sizeof(c));
		assert_true(cond_parse(&h, &c, &r));
		assert_int_equal(c.cond, rows[i].any ? COND_MATCH_ANY | COND_NONE_MATCH_ANY : COND_MATCH | COND_NONE_MATCH);
		assert_int_equal(c.n_match, rows[i].match);
		assert_int_equal(c.n_none, rows[i].none);
	}
}

static void
malformed_lists_are_400_and_the_connection_goes_on(void **state)
{
	static const char *const	bad[] = {
		"x", "'x'", "\"x", "x\"", "W/", "W/x", "w/\"x\"", "W \"x\"", "W/ \"x\"", "\"a\" \"b\"", "\"a\"b", "\"a\";\"b\"", "*, \"x\"",
		"\"x\", *", "**", "*,*", "\"a b\"", "\"a\", x", NOW ", x", "x, " NOW, NOW " x", "W/W/\"x\"", "\"a\"\t\"b\"", "3f2a-1b2c3d4e",
		"\"a,3f2a-1b2c3d4e", "\"", "\"\"\"", "W", "\"a\x7f\"", "\"a\tb\"", "", " ", ",", " , ,", "*x", "* *", "\"a," NOW,
	};
	struct conditions	c;
	struct refusal		r;
	struct head		h;
	const char		*p;
	size_t			i, way;

	(void)state;
	for (i = 0; i < COUNT(bad); i++)
		for (way = 0; way < 2; way++) {
			p = p_guarded(bad[i], strlen(bad[i]));
			h = head_of(NULL, NULL, NULL, NULL);
			if (way == 0)
				h.if_match[h.n_if_match++] = (struct slice){ p, (uint32_t)strlen(bad[i]) };
			else
				h.if_none_match[h.n_if_none_match++] = (struct slice){ p, (uint32_t)strlen(bad[i]) };
			if (cond_parse(&h, &c, &r))
				fail_msg("accepted: %s", bad[i]);
			assert_int_equal(r.status, 400);
			assert_true(r.keep);
			assert_non_null(r.detail);
		}
}

static void
several_fields_are_one_list(void **state)
{
	struct conditions	c;
	struct refusal		r;
	struct head		h = head_of("\"a\"", "\"b\"", NULL, NULL);

	(void)state;
	h.if_match[h.n_if_match++] = slice(NOW);
	h.if_none_match[h.n_if_none_match++] = slice("W/" NOW);
	assert_true(cond_parse(&h, &c, &r));
	assert_int_equal(c.n_match, 1);
	assert_int_equal(c.n_none, 1);
	/* an empty field adds nothing; a star and a tag do not go together over fields either */
	h.if_match[h.n_if_match++] = slice("");
	assert_true(cond_parse(&h, &c, &r));
	h.if_match[h.n_if_match++] = slice("*");
	assert_false(cond_parse(&h, &c, &r));
}

static void
sixty_four_tags_of_ours_are_enough(void **state)
{
	struct conditions	c;
	struct refusal		r;
	struct head		h;
	char			in[8192];
	size_t			len;
	unsigned		n, k;

	(void)state;
	for (n = 64; n <= 65; n++) {
		for (len = 0, k = 1; k <= n; k++)
			len += (size_t)snprintf(in + len, sizeof(in) - len, "\"%x-00000001\", \"not-ours\",", k);
		h = head_of(in, NULL, NULL, NULL);
		assert_int_equal(cond_parse(&h, &c, &r), n == 64);
		if (n == 64)
			assert_int_equal(c.n_match, 64);
		else
			assert_int_equal(r.status, 400);
		h = head_of(NULL, in, NULL, NULL);
		assert_int_equal(cond_parse(&h, &c, &r), n == 64);
	}
}

#define AT	"Sun, 06 Nov 1994 08:49:37 GMT"
#define BEFORE	"Sun, 06 Nov 1994 08:49:36 GMT"
#define AFTER	"Sun, 06 Nov 1994 08:49:38 GMT"

static void
conditions_are_judged_in_order(void **state)
{
	static const struct { const char *match, *none, *modified, *unmodified; enum verdict v; } rows[] = {
		{ NULL, NULL, NULL, NULL, V_OK },
		{ NOW, NULL, NULL, NULL, V_OK },
		{ "*", NULL, NULL, NULL, V_OK },
		{ "\"other\"", NULL, NULL, NULL, V_FAILED },
		{ "W/" NOW, NULL, NULL, NULL, V_FAILED },
		{ "\"3f2b-1b2c3d4e\", \"3f2a-1b2c3d4f\"", NULL, NULL, NULL, V_FAILED },
		{ "\"a\", " NOW, NULL, NULL, NULL, V_OK },
		{ NULL, NOW, NULL, NULL, V_NOT_MODIFIED },
		{ NULL, "W/" NOW, NULL, NULL, V_NOT_MODIFIED },
		{ NULL, "*", NULL, NULL, V_NOT_MODIFIED },
		{ NULL, "\"other\"", NULL, NULL, V_OK },
		{ NULL, "\"3f2b-1b2c3d4e\", \"3f2a-1b2c3d4f\"", NULL, NULL, V_OK },
		{ NOW, NOW, NULL, NULL, V_NOT_MODIFIED },
		{ "\"other\"", NOW, NULL, NULL, V_FAILED },
		{ NOW, "\"other\"", NULL, NULL, V_OK },
		{ NULL, NULL, AT, NULL, V_NOT_MODIFIED },
		{ NULL, NULL, AFTER, NULL, V_NOT_MODIFIED },
		{ NULL, NULL, BEFORE, NULL, V_OK },
		{ NULL, NULL, "yesterday", NULL, V_OK },
		{ NULL, NULL, "", NULL, V_OK },
		{ NULL, NULL, NULL, AT, V_OK },
		{ NULL, NULL, NULL, AFTER, V_OK },
		{ NULL, NULL, NULL, BEFORE, V_FAILED },
		{ NULL, NULL, NULL, "Mon, 99 Foo 2020 00:00:00 GMT", V_OK },
		{ NULL, NULL, NULL, "", V_OK },
		{ NOW, NULL, NULL, BEFORE, V_OK },		/* beside If-Match it does not count */
		{ NULL, "\"other\"", AT, NULL, V_OK },		/* beside If-None-Match neither */
		{ NULL, NOW, BEFORE, NULL, V_NOT_MODIFIED },
		{ NULL, NOW, NULL, BEFORE, V_FAILED },
		{ NULL, NULL, AT, AT, V_NOT_MODIFIED },
	};
	struct conditions	c;
	struct refusal		r;
	struct head		h;
	size_t			i;

	(void)state;
	for (i = 0; i < COUNT(rows); i++) {
		h = head_of(rows[i].match, rows[i].none, rows[i].modified, rows[i].unmodified);
		memset(&c, 0xa5, sizeof(c));
		assert_true(cond_parse(&h, &c, &r));
		if (cond_read(&c, &now, NOW_S) != rows[i].v)
			fail_msg("row %zu", i);
		if (rows[i].unmodified != NULL)
			assert_int_equal((c.cond & COND_UNMODIFIED) != 0, rows[i].match == NULL && strlen(rows[i].unmodified) == 29 &&
			    rows[i].unmodified[0] == 'S');
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(tags_come_back_as_they_were),
		cmocka_unit_test(a_tag_of_ours_has_one_spelling),
		cmocka_unit_test(lists_are_read_to_their_end),
		cmocka_unit_test(malformed_lists_are_400_and_the_connection_goes_on),
		cmocka_unit_test(several_fields_are_one_list),
		cmocka_unit_test(sixty_four_tags_of_ours_are_enough),
		cmocka_unit_test(conditions_are_judged_in_order),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
