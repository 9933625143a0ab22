/* tests/c_json.c - worker/json.h, settings.h: RFC 8259, contract 6, F36. */
#include "config.h"
#include <stdio.h>
#include "worker/json.h"
#include "worker/settings.h"
#include "tests/parse.h"

/* The tokens of the text as letters; '!' at the end: not JSON. */
static const char *
tokens(const char *in, size_t len)
{
	static const char	letter[] = { '!', '.', '{', '}', '[', ']', 'n', 's', '#', 't', 'f', '0' };
	static char		out[1024];
	struct json		j;
	enum json_token		t;
	size_t			n = 0;

	json_init(&j, p_guarded(in, len), len);
	do {
		t = json_next(&j);
		assert_true(n < sizeof(out) - 1);
		out[n++] = letter[t];
		if (t == JSON_NAME || t == JSON_STRING || t == JSON_NUMBER)
			assert_true(j.text >= j.end - len && j.text + j.text_len <= j.end);
	} while (t > JSON_END);
	out[n] = '\0';
	/* and it sticks */
	if (t == JSON_BAD) {
		assert_non_null(j.detail);
		assert_int_equal(json_next(&j), JSON_BAD);
	} else
		assert_int_equal(json_next(&j), JSON_END);
	return out;
}

static void
good_json_is_read_token_by_token(void **state)
{
	static const struct { const char *in; const char *want; } rows[] = {
		{ "null", "0." }, { " true ", "t." }, { "\t\n\rfalse", "f." }, { "0", "#." }, { "-0", "#." }, { "10", "#." },
		{ "1.5", "#." }, { "1e5", "#." }, { "1E+5", "#." }, { "-1.25e-10", "#." }, { "0.0", "#." }, { "0e0", "#." },
		{ "\"\"", "s." }, { "\"a\"", "s." }, { "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\"", "s." }, { "\"\\ud83d\\ude00\"", "s." },
		{ "\"\xc3\xa9\xf0\x9f\x98\x80\x7f\"", "s." }, { "[]", "[]." }, { "{}", "{}." }, { "[ ]", "[]." }, { "{ }", "{}." },
		{ "[1,2]", "[##]." }, { "[[],{}]", "[[]{}]." }, { "{\"a\":1}", "{n#}." }, { " { \"a\" : [ 1 , { } ] , \"b\" : null } ", "{n[#{}]n0}." },
		{ "{\"a\":1,\"a\":2}", "{n#n#}." }, { "[true,false,null,\"x\",-1]", "[tf0s#]." }, { "{\"\":{\"\":{}}}", "{n{n{}}}." },
	};
	size_t	i, n;

	(void)state;
	for (i = 0; i < COUNT(rows); i++) {
		assert_string_equal(tokens(rows[i].in, strlen(rows[i].in)), rows[i].want);
		/* no prefix of an object, an array or a string is JSON */
		if (strchr("{[\"", rows[i].in[0]) != NULL)
			for (n = 0; n < strlen(rows[i].in); n++)
				assert_non_null(strchr(tokens(rows[i].in, n), '!'));
	}
}

static void
what_is_not_json_is_refused(void **state)
{
	static const struct { const char *in; size_t len; } rows[] = {
		{ S("") }, { S(" ") }, { S("x") }, { S("nul") }, { S("nulll") }, { S("True") }, { S("NaN") }, { S("Infinity") }, { S("-") },
		{ S("+1") }, { S("01") }, { S("-01") }, { S("00") }, { S("1.") }, { S(".5") }, { S("1e") }, { S("1e+") }, { S("1.e5") }, { S("0x10") },
		{ S("1 2") }, { S("1,") }, { S("\"") }, { S("\"a") }, { S("\"\\\"") }, { S("\"\\x\"") }, { S("\"\\u12\"") }, { S("\"\\u12g4\"") },
		{ S("\"\\ud800\"") }, { S("\"\\udc00\"") }, { S("\"\\ud800\\u0041\"") }, { S("\"\\ud800x\"") }, { S("\"\\ud800\\ud800\"") },
		{ S("\"\\u\"") }, { S("\"\\U0041\"") }, { S("\"\t\"") }, { S("\"\n\"") }, { S("\"\0\"") }, { S("\"\x1f\"") }, { S("\"\x80\"") },
		{ S("\"\xc3\"") }, { S("\"\xc0\xaf\"") }, { S("\"\xed\xa0\x80\"") }, { S("\"\xf4\x90\x80\x80\"") }, { S("'a'") }, { S("[") }, { S("]") },
		{ S("[,]") }, { S("[1,]") }, { S("[,1]") }, { S("[1 2]") }, { S("[1}") }, { S("{1}") }, { S("{") }, { S("}") }, { S("{,}") },
		{ S("{\"a\"}") }, { S("{\"a\":}") }, { S("{\"a\" 1}") }, { S("{\"a\":1,}") }, { S("{a:1}") }, { S("{\"a\":1]") }, { S("{'a':1}") },
		{ S("{\"a\":1 \"b\":2}") }, { S("{\"a\"::1}") }, { S("{\"a\":1}}") }, { S("{}{}") }, { S("[] x") }, { S("\xef\xbb\xbf{}") },
		{ S("/**/1") }, { S("1//") }, { S("\0") }, { S("1\0") }, { S("\v1") }, { S("\xa0" "1") }, { S("[1,\f2]") }, { S("\"\\") }, { S("\"\\u0") },
		{ S("{\"a\"") }, { S("{\"a\":") }, { S("[1") }, { S("[1,") },
	};
	size_t	i;

	(void)state;
	for (i = 0; i < COUNT(rows); i++)
		if (strchr(tokens(rows[i].in, rows[i].len), '!') == NULL)
			fail_msg("accepted: %s", rows[i].in);
}

static void
nesting_is_limited_and_costs_no_stack(void **state)
{
	static char	in[120000];
	struct json	j;
	unsigned	n;
	size_t		i;

	(void)state;
	for (n = JSON_DEPTH; n <= JSON_DEPTH + 1; n++) {
		memset(in, '[', n);
		memset(in + n, ']', n);
		assert_int_equal(strchr(tokens(in, 2 * n), '!') != NULL, n > JSON_DEPTH);
	}
	memset(in, '[', sizeof(in));
	assert_non_null(strchr(tokens(in, 100000), '!'));
	for (i = 0; i + 5 <= sizeof(in); i += 5)
		memcpy(in + i, "{\"a\":", 5);
	assert_non_null(strchr(tokens(in, 100000), '!'));
	json_init(&j, in, 100000);
	assert_false(json_skip(&j, json_next(&j)));
}

static void
values_are_skipped_whole(void **state)
{
	static const char	in[] = "{\"a\":{\"b\":[1,{\"c\":[]}],\"d\":2},\"e\":[[[]]],\"f\":3,\"g\":\"x\"}";
	struct json		j;
	unsigned		names = 0;

	(void)state;
	json_init(&j, in, sizeof(in) - 1);
	assert_int_equal(json_next(&j), JSON_OBJECT);
	while (json_next(&j) == JSON_NAME) {
		names++;
		assert_true(json_skip(&j, json_next(&j)));
	}
	assert_int_equal(names, 4);
	assert_int_equal(json_next(&j), JSON_END);
}

static void
texts_are_decoded(void **state)
{
	static const struct { const char *in; const char *text; size_t len; } rows[] = {
		{ "\"\"", S("") },
		{ "\"abc\"", S("abc") },
		{ "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"", S("\"\\/\b\f\n\r\t") },
		{ "\"\\u0041\\u00e9\\u20AC\\ud83d\\uDE00\"", S("A\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80") },
		{ "\"\\udbff\\udfff\"", S("\xf4\x8f\xbf\xbf") },
		{ "\"\xe2\x82\xac\"", S("\xe2\x82\xac") },
		{ "\"a\\u0000b\"", S("a\0b") },
	};
	struct json	j;
	char		out[64];
	size_t		i;

	(void)state;
	for (i = 0; i < COUNT(rows); i++) {
		json_init(&j, rows[i].in, strlen(rows[i].in));
		assert_int_equal(json_next(&j), JSON_STRING);
		assert_int_equal(json_text(&j, out, sizeof(out)), rows[i].len);
		assert_memory_equal(out, rows[i].text, rows[i].len);
		assert_int_equal(json_text(&j, out, rows[i].len), rows[i].len);
		if (rows[i].len > 0)
			assert_int_equal(json_text(&j, out, rows[i].len - 1), -1);
		assert_int_equal(json_is(&j, rows[i].text), strlen(rows[i].text) == rows[i].len);
		assert_false(json_is(&j, "abcd"));
		assert_false(json_is(&j, "ab"));
	}
	json_init(&j, "\"pub\\u006cic\"", 13);
	assert_int_equal(json_next(&j), JSON_STRING);
	assert_true(json_is(&j, "public"));
}

static void
integers_are_exact_up_to_64_bits(void **state)
{
	static const struct { const char *in; bool ok; uint64_t v; } rows[] = {
		{ "0", true, 0 }, { "1", true, 1 }, { "18446744073709551615", true, UINT64_MAX }, { "9007199254740993", true, 9007199254740993 },
		{ "18446744073709551616", false, 0 }, { "99999999999999999999999", false, 0 }, { "-1", false, 0 }, { "-0", false, 0 },
		{ "1.0", false, 0 }, { "1e2", false, 0 },
	};
	struct json	j;
	uint64_t	v;
	size_t		i;

	(void)state;
	for (i = 0; i < COUNT(rows); i++) {
		json_init(&j, rows[i].in, strlen(rows[i].in));
		assert_int_equal(json_next(&j), JSON_NUMBER);
		assert_int_equal(json_u64(&j, &v), rows[i].ok);
		if (rows[i].ok)
			assert_true(v == rows[i].v);
	}
}

static void
settings_are_read(void **state)
{
	static const struct { const char *in; unsigned public; } rows[] = {
		{ "", PUBLIC_NONE }, { "{}", PUBLIC_NONE }, { " { } ", PUBLIC_NONE }, { "{\"public\":\"none\"}", PUBLIC_NONE },
		{ "{\"public\":\"read\"}", PUBLIC_READ }, { "{\"public\":\"write\"}\r\n", PUBLIC_WRITE },
		{ "{\"p\\u0075blic\":\"re\\u0061d\"}", PUBLIC_READ },
	};
	struct tenant_settings	s;
	const char		*detail;
	size_t			i;

	(void)state;
	for (i = 0; i < COUNT(rows); i++) {
		memset(&s, 0xa5, sizeof(s));
		assert_true(settings_parse(p_guarded(rows[i].in, strlen(rows[i].in)), strlen(rows[i].in), &s, &detail));
		assert_int_equal(s.version, TENANT_VERSION);
		assert_int_equal(s.id, 0);
		assert_int_equal(s.public, rows[i].public);
		assert_true(s.quota_bytes == 0 && s.quota_documents == 0 && s.rate_milli == 0 && s.burst == 0);
	}
	assert_string_equal(settings_public_name(PUBLIC_NONE), "none");
	assert_string_equal(settings_public_name(PUBLIC_READ), "read");
	assert_string_equal(settings_public_name(PUBLIC_WRITE), "write");
	assert_string_equal(settings_public_name(255), "none");
}

static void
settings_that_are_not_right_say_why(void **state)
{
	static const struct { const char *in; const char *why; } rows[] = {
		{ "x", "JSON" }, { "{", "JSON" }, { " ", "JSON" }, { "[]", "object" }, { "null", "object" }, { "\"a\"", "object" },
		{ "{\"public\":\"all\"}", "must be" }, { "{\"public\":\"\"}", "must be" }, { "{\"public\":\"Read\"}", "must be" },
		{ "{\"public\":1}", "must be" }, { "{\"public\":null}", "must be" }, { "{\"public\":true}", "must be" },
		{ "{\"public\":{}}", "must be" }, { "{\"public\":[\"read\"]}", "must be" }, { "{\"public\":\"re\\u0000ad\"}", "must be" },
		{ "{\"public\":\"read\\u0000\"}", "must be" }, { "{\"public\":}", "JSON" },
		{ "{\"unknown\":1}", "unknown" }, { "{\"Public\":\"read\"}", "unknown" }, { "{\"\":1}", "unknown" }, { "{\"public\\u0000\":\"read\"}", "unknown" },
		{ "{\"public\":\"read\",\"public\":\"read\"}", "twice" }, { "{\"public\":\"read\",\"p\\u0075blic\":\"none\"}", "twice" },
		{ "{\"quota_bytes\":1}", "this version" }, { "{\"quota_documents\":1}", "this version" }, { "{\"rate\":1}", "this version" },
		{ "{\"burst\":1}", "this version" }, { "{\"public\":\"read\",\"cors\":[]}", "this version" },
		{ "{\"public\":\"read\"} x", "follows" }, { "{\"public\":\"read\"}{}", "follows" }, { "{\"public\":\"read\",}", "JSON" },
		{ "{'public':'read'}", "JSON" }, { "{\"public\" \"read\"}", "JSON" }, { "\xff", "JSON" }, { "\xef\xbb\xbf{}", "JSON" },
	};
	struct tenant_settings	s;
	const char		*detail;
	size_t			i;

	(void)state;
	for (i = 0; i < COUNT(rows); i++) {
		detail = NULL;
		if (settings_parse(p_guarded(rows[i].in, strlen(rows[i].in)), strlen(rows[i].in), &s, &detail))
			fail_msg("accepted: %s", rows[i].in);
		assert_non_null(detail);
		if (strstr(detail, rows[i].why) == NULL)
			fail_msg("%s: %s", rows[i].in, detail);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(good_json_is_read_token_by_token),
		cmocka_unit_test(what_is_not_json_is_refused),
		cmocka_unit_test(nesting_is_limited_and_costs_no_stack),
		cmocka_unit_test(values_are_skipped_whole),
		cmocka_unit_test(texts_are_decoded),
		cmocka_unit_test(integers_are_exact_up_to_64_bits),
		cmocka_unit_test(settings_are_read),
		cmocka_unit_test(settings_that_are_not_right_say_why),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
