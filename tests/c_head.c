/* tests/c_head.c - worker/head.h: contract 7, F70, F71, F76-F78, F81. */
#include "config.h"
#include <stdio.h>
#include "worker/head.h"
#include "worker/fields.h"
#include "tests/parse.h"

struct result {
	enum parse	e;
	struct head	h;
	struct refusal	r;
	const char	*base;
};

static struct result
parse(const char *in, size_t len, size_t *scanned)
{
	struct result	x;

	memset(&x, 0xa5, sizeof(x));	/* nothing may be left unset */
	x.base = p_guarded(in, len);
	x.e = head_parse(x.base, len, scanned, &x.h, &x.r);
	return x;
}

static void
same_slice(const struct result *a, struct slice s, const struct result *b, struct slice t)
{
	assert_int_equal(s.p == NULL, t.p == NULL);
	assert_int_equal(s.len, t.len);
	if (s.p != NULL)
		assert_int_equal(s.p - a->base, t.p - b->base);
}

static void
same(const struct result *a, const struct result *b)
{
	const struct slice	*s = &a->h.host, *t = &b->h.host;
	unsigned		 i;

	assert_int_equal(a->e, b->e);
	if (a->e == PARSE_BAD) {
		assert_int_equal(a->r.status, b->r.status);
		assert_ptr_equal(a->r.detail, b->r.detail);
		assert_int_equal(a->h.method, b->h.method);
		return;
	}
	assert_int_equal(a->h.method, b->h.method);
	assert_int_equal(a->h.minor, b->h.minor);
	assert_int_equal(a->h.keep_alive, b->h.keep_alive);
	assert_int_equal(a->h.expect, b->h.expect);
	assert_int_equal(a->h.framing, b->h.framing);
	assert_int_equal(a->h.length, b->h.length);
	assert_int_equal(a->h.kept_bytes, b->h.kept_bytes);
	assert_int_equal(a->h.bytes, b->h.bytes);
	assert_int_equal(a->h.n_if_match, b->h.n_if_match);
	assert_int_equal(a->h.n_if_none_match, b->h.n_if_none_match);
	same_slice(a, a->h.target, b, b->h.target);
	for (i = 0; &s[i] <= &a->h.last_event_id; i++)
		same_slice(a, s[i], b, t[i]);
	for (i = 0; i < a->h.n_if_match; i++)
		same_slice(a, a->h.if_match[i], b, b->h.if_match[i]);
	for (i = 0; i < a->h.n_if_none_match; i++)
		same_slice(a, a->h.if_none_match[i], b, b->h.if_none_match[i]);
}

/* In one piece, byte by byte, and cut in two anywhere: always the same. */
static struct result
parse_all_ways(const char *in, size_t len)
{
	struct result	whole, part = { 0 };
	size_t		n, scanned = 0, fresh;

	whole = parse(in, len, &scanned);
	if (len == 0)
		return whole;
	for (n = 1, scanned = 0; n <= len; n++) {
		part = parse(in, n, &scanned);
		if (part.e != PARSE_MORE)
			break;
	}
	if (whole.e == PARSE_DONE)
		assert_int_equal(n, whole.h.bytes);
	if (whole.e != PARSE_MORE)
		same(&whole, &part);
	for (n = 0; n <= len && len < 2048; n++) {
		fresh = 0;
		part = parse(in, n, &fresh);
		if (part.e == PARSE_MORE)
			part = parse(in, len, &fresh);
		assert_int_equal(part.e, whole.e);
		if (whole.e != PARSE_MORE)
			same(&whole, &part);
	}
	/* the last look left the input where the slices point */
	scanned = 0;
	return parse(in, len, &scanned);
}

static void
is(struct slice s, const char *text)
{
	if (text == NULL) {
		assert_null(s.p);
		return;
	}
	assert_non_null(s.p);
	assert_int_equal(s.len, strlen(text));
	assert_memory_equal(s.p, text, s.len);
}

#define H	"Host: a\r\n"
#define GET	"GET / HTTP/1.1\r\n"
#define PUT	"PUT /t/x HTTP/1.1\r\n" H

static const struct {
	unsigned	 status;
	const char	*in;
	size_t		 len;
} refused[] = {
	/* the request line */
	{ 400, S("GET /\r\n" H "\r\n") },
	{ 400, S("GET  / HTTP/1.1\r\n" H "\r\n") },
	{ 400, S("GET /  HTTP/1.1\r\n" H "\r\n") },
	{ 400, S("GET / HTTP/1.1 \r\n" H "\r\n") },
	{ 400, S(" GET / HTTP/1.1\r\n" H "\r\n") },
	{ 400, S("GET\t/ HTTP/1.1\r\n" H "\r\n") },
	{ 400, S("GET /\tHTTP/1.1\r\n" H "\r\n") },
	{ 400, S("GET / http/1.1\r\n" H "\r\n") },
	{ 400, S("GET / HTTP/1.1x\r\n" H "\r\n") },
	{ 400, S("GET / HTTP/11\r\n" H "\r\n") },
	{ 400, S("GET / HTTP/1.\r\n" H "\r\n") },
	{ 400, S("GET / HTTP/1\r\n" H "\r\n") },
	{ 400, S("GET / HTTP/01.1\r\n" H "\r\n") },
	{ 400, S("GET / HTTP/1.11\r\n" H "\r\n") },
	{ 400, S("GET / HTTP/+1.1\r\n" H "\r\n") },
	{ 400, S("GET / HTT/1.1\r\n" H "\r\n") },
	{ 400, S("GET / x HTTP/1.1\r\n" H "\r\n") },
	{ 400, S("GET / HTTP/1.1\n" H "\r\n") },
	{ 400, S("GET / HTTP/1.1\r" H "\r\n") },
	{ 400, S("GET / HTTP/1.1\r\r\n" H "\r\n") },
	{ 400, S("GET\r\n\r\n") },
	{ 400, S("GET HTTP/1.1\r\n" H "\r\n") },
	{ 400, S("/ HTTP/1.1\r\n" H "\r\n") },
	{ 400, S("G@T / HTTP/1.1\r\n" H "\r\n") },
	{ 400, S("G\0T / HTTP/1.1\r\n" H "\r\n") },
	{ 400, S("GET /\0 HTTP/1.1\r\n" H "\r\n") },
	{ 400, S("GET /\x01 HTTP/1.1\r\n" H "\r\n") },
	{ 400, S("GET /\x7f HTTP/1.1\r\n" H "\r\n") },
	{ 400, S("\0") },
	{ 400, S("\n" GET H "\r\n") },
	{ 400, S("\rGET / HTTP/1.1\r\n" H "\r\n") },
	{ 400, S("\r\n\r\n" GET H "\r\n") },
	{ 400, S("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03") },	/* somebody speaks TLS */
	{ 505, S("GET / HTTP/2.0\r\n" H "\r\n") },
	{ 505, S("GET / HTTP/0.9\r\n" H "\r\n") },
	{ 505, S("GET / HTTP/3.0\r\nnonsense\n") },
	{ 505, S("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n") },
	/* line ends (F75 in the head), NUL and controls */
	{ 400, S(GET "Host: a\n\r\n") },
	{ 400, S(GET "X: 1\nHost: a\r\n\r\n") },
	{ 400, S(GET H "\n") },
	{ 400, S(GET H "\r\r\n") },
	{ 400, S(GET "X: 1\rY: 2\r\n" H "\r\n") },
	{ 400, S(GET "X: 1\r\r\n" H "\r\n") },
	{ 400, S(GET "X: a\0b\r\n" H "\r\n") },
	{ 400, S(GET "X\0Y: a\r\n" H "\r\n") },
	{ 400, S(GET "X: a\x01" "b\r\n" H "\r\n") },
	{ 400, S(GET "X: a\x0b" "b\r\n" H "\r\n") },
	{ 400, S(GET "X: a\x1f\r\n" H "\r\n") },
	{ 400, S(GET "X: a\x7f" "b\r\n" H "\r\n") },
	{ 400, S(GET "X: 0123456789abcdef\0" "0123456789abcdef\r\n" H "\r\n") },
	/* names (F76) */
	{ 400, S(GET "Host : a\r\n\r\n") },
	{ 400, S(GET "Host\t: a\r\n\r\n") },
	{ 400, S(GET " Host: a\r\n\r\n") },
	{ 400, S(GET "\tHost: a\r\n\r\n") },
	{ 400, S(GET H "X: 1\r\n 2\r\n\r\n") },
	{ 400, S(GET H "X: 1\r\n\t2\r\n\r\n") },
	{ 400, S(GET H "X:\r\n 2\r\n\r\n") },
	{ 400, S(GET H ": 1\r\n\r\n") },
	{ 400, S(GET H "X\r\n\r\n") },
	{ 400, S(GET H "X Y: 1\r\n\r\n") },
	{ 400, S(GET H "X(Y): 1\r\n\r\n") },
	{ 400, S(GET H "X\xe9: 1\r\n\r\n") },
	{ 400, S(GET H "X/Y: 1\r\n\r\n") },
	{ 400, S(GET H "X@Y: 1\r\n\r\n") },
	{ 400, S(GET H "X[Y: 1\r\n\r\n") },
	/* Host (F78) */
	{ 400, S(GET "\r\n") },
	{ 400, S(GET H H "\r\n") },
	{ 400, S(GET H "host: b\r\n\r\n") },
	{ 400, S("GET / HTTP/1.0\r\n" H H "\r\n") },
	{ 400, S("GET / HTTP/1.0\r\nHost: a b\r\n\r\n") },
	{ 400, S("GET http://a/ HTTP/1.1\r\n\r\n") },
	/* lengths (F70, F71) */
	{ 400, S(PUT "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n") },
	{ 400, S(PUT "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n") },
	{ 400, S(PUT "Transfer-Encoding: gzip\r\nContent-Length: 5\r\n\r\n") },
	{ 400, S(PUT "Transfer-Encoding:\r\nContent-Length: 5\r\n\r\n") },
	{ 400, S(PUT "Content-Length: 5\r\nContent-Length: 5\r\n\r\n") },
	{ 400, S(PUT "Content-Length: 5\r\ncontent-length: 6\r\n\r\n") },
	{ 400, S(PUT "Content-Length: 5, 5\r\n\r\n") },
	{ 400, S(PUT "Content-Length: +5\r\n\r\n") },
	{ 400, S(PUT "Content-Length: -5\r\n\r\n") },
	{ 400, S(PUT "Content-Length: -0\r\n\r\n") },
	{ 400, S(PUT "Content-Length: 0x5\r\n\r\n") },
	{ 400, S(PUT "Content-Length: 5 5\r\n\r\n") },
	{ 400, S(PUT "Content-Length: 5_0\r\n\r\n") },
	{ 400, S(PUT "Content-Length: 5.0\r\n\r\n") },
	{ 400, S(PUT "Content-Length: \"5\"\r\n\r\n") },
	{ 400, S(PUT "Content-Length:\r\n\r\n") },
	{ 400, S(PUT "Content-Length: \t \r\n\r\n") },
	{ 400, S(PUT "Content-Length: 9223372036854775808\r\n\r\n") },
	{ 400, S(PUT "Content-Length: 18446744073709551616\r\n\r\n") },
	{ 400, S(PUT "Content-Length: 18446744073709551621\r\n\r\n") },
	{ 400, S(PUT "Content-Length: 99999999999999999999999999999999999999\r\n\r\n") },
	/* codings (F77) */
	{ 400, S("PUT / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n") },
	{ 400, S("PUT / HTTP/1.0\r\nTransfer-Encoding: gzip\r\n\r\n") },
	{ 400, S(PUT "Transfer-Encoding: chunked, gzip\r\n\r\n") },
	{ 400, S(PUT "Transfer-Encoding: chunked, identity\r\n\r\n") },
	{ 400, S(PUT "Transfer-Encoding: chunked, chunked\r\n\r\n") },
	{ 400, S(PUT "Transfer-Encoding: gzip, chunked, chunked\r\n\r\n") },
	{ 400, S(PUT "Transfer-Encoding: chunked,\r\n\r\n") },
	{ 400, S(PUT "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n") },
	{ 400, S(PUT "Transfer-Encoding: chunked\r\nTransfer-Encoding: gzip\r\n\r\n") },
	{ 400, S(PUT "Transfer-Encoding: \x0b" "chunked\r\n\r\n") },
	{ 400, S(PUT "Transfer-Encoding : chunked\r\n\r\n") },
	{ 400, S(PUT "Transfer-Encoding:\r\n chunked\r\n\r\n") },
	{ 501, S(PUT "Transfer-Encoding: gzip\r\n\r\n") },
	{ 501, S(PUT "Transfer-Encoding: identity\r\n\r\n") },
	{ 501, S(PUT "Transfer-Encoding: gzip, chunked\r\n\r\n") },
	{ 501, S(PUT "Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n") },
	{ 501, S(PUT "Transfer-Encoding: xchunked\r\n\r\n") },
	{ 501, S(PUT "Transfer-Encoding: chunkedx\r\n\r\n") },
	{ 501, S(PUT "Transfer-Encoding: chunked;q=1\r\n\r\n") },
	{ 501, S(PUT "Transfer-Encoding: \"chunked\"\r\n\r\n") },
	{ 501, S(PUT "Transfer-Encoding:\r\n\r\n") },
	{ 501, S(PUT "Transfer-Encoding: ,chunked\r\n\r\n") },
	/* fields that may come once */
	{ 400, S(PUT "Content-Type: a/b\r\nContent-Type: a/b\r\n\r\n") },
	{ 400, S(PUT "Content-Encoding: gzip\r\ncontent-encoding: br\r\n\r\n") },
	{ 400, S(PUT "Content-Language: de\r\nContent-Language: en\r\n\r\n") },
	{ 400, S(PUT "Content-Disposition: a\r\nContent-Disposition: a\r\n\r\n") },
	{ 400, S(PUT "Cache-Control: a\r\nCache-Control: b\r\n\r\n") },
	{ 400, S(PUT "Content-Range: a\r\nContent-Range: b\r\n\r\n") },
	{ 400, S(GET H "Authorization: Bearer a\r\nAuthorization: Bearer b\r\n\r\n") },
	{ 400, S(GET H "Origin: a\r\nOrigin: b\r\n\r\n") },
	{ 400, S(GET H "Last-Event-ID: a\r\nLast-Event-ID: b\r\n\r\n") },
	{ 400, S(GET H "Access-Control-Request-Method: PUT\r\nAccess-Control-Request-Method: GET\r\n\r\n") },
	{ 400, S(GET H "If-Match: *\r\nIf-Match: *\r\nIf-Match: *\r\nIf-Match: *\r\nIf-Match: *\r\n\r\n") },
};

static void
every_malformed_head_is_refused_and_closes(void **state)
{
	struct result	x;
	size_t		i;

	(void)state;
	for (i = 0; i < COUNT(refused); i++) {
		x = parse_all_ways(refused[i].in, refused[i].len);
		if (x.e != PARSE_BAD || x.r.status != refused[i].status)
			fail_msg("row %zu: %.*s: %d %u", i, (int)refused[i].len, refused[i].in, x.e, x.r.status);
		assert_false(x.r.keep);
		assert_non_null(x.r.detail);
	}
}

static void
every_prefix_of_a_good_head_wants_more(void **state)
{
	static const char	in[] = "\r\nPUT /t/x?y=1 HTTP/1.1\r\nHost: [::1]:80\r\nContent-Length: 7\r\nIf-Match: \"a\"\r\n\r\nrest";
	struct result		x;
	size_t			n, end = sizeof(in) - 1 - 4, scanned;

	(void)state;
	for (n = 0; n < end; n++) {
		scanned = 0;
		assert_int_equal(parse(in, n, &scanned).e, PARSE_MORE);
		assert_int_equal(scanned, n);
	}
	x = parse_all_ways(in, sizeof(in) - 1);
	assert_int_equal(x.e, PARSE_DONE);
	assert_int_equal(x.h.bytes, end);
	is(x.h.target, "/t/x?y=1");
	is(x.h.host, "[::1]:80");
	assert_int_equal(x.h.length, 7);
	assert_int_equal(x.h.framing, BODY_LENGTH);
}

static void
methods_are_known_by_case(void **state)
{
	static const struct { const char *name; enum method m; } rows[] = {
		{ "GET", M_GET }, { "HEAD", M_HEAD }, { "PUT", M_PUT }, { "DELETE", M_DELETE }, { "OPTIONS", M_OPTIONS },
		{ "POST", M_POST }, { "PATCH", M_PATCH },
		{ "get", M_OTHER }, { "Get", M_OTHER }, { "TRACE", M_OTHER }, { "CONNECT", M_OTHER }, { "GETT", M_OTHER },
		{ "GE", M_OTHER }, { "X", M_OTHER }, { "PROPFIND", M_OTHER }, { "!#$%&'*+-.^_`|~09azAZ", M_OTHER },
	};
	struct result	x;
	char		in[256];
	size_t		i;

	(void)state;
	for (i = 0; i < COUNT(rows); i++) {
		snprintf(in, sizeof(in), "%s / HTTP/1.1\r\n" H "\r\n", rows[i].name);
		x = parse_all_ways(in, strlen(in));
		assert_int_equal(x.e, PARSE_DONE);
		assert_int_equal(x.h.method, rows[i].m);
		if (rows[i].m != M_OTHER)
			assert_string_equal(method_name(rows[i].m), rows[i].name);
	}
	assert_string_equal(method_name(M_OTHER), "other");
	assert_string_equal(method_name(M_NONE), "-");
	/* a target of any form: what CONNECT names is not a path (F81) */
	x = parse_all_ways(S("CONNECT host:443 HTTP/1.1\r\n" H "\r\n"));
	assert_int_equal(x.e, PARSE_DONE);
	is(x.h.target, "host:443");
}

static void
a_refusal_still_knows_the_method(void **state)
{
	struct result	x;

	(void)state;
	x = parse_all_ways(S("HEAD / HTTP/1.1\r\nX : 1\r\n\r\n"));
	assert_int_equal(x.e, PARSE_BAD);
	assert_int_equal(x.h.method, M_HEAD);
	x = parse_all_ways(S("HEAD / HTTP/7.1\r\n\r\n"));
	assert_int_equal(x.h.method, M_HEAD);
	x = parse_all_ways(S("\x01HEAD / HTTP/7.1\r\n\r\n"));
	assert_int_equal(x.h.method, M_NONE);
}

static void
versions_decide_host_and_keep_alive(void **state)
{
	static const struct { const char *line; const char *fields; uint8_t minor; bool keep; } rows[] = {
		{ "HTTP/1.1", H, 1, true },
		{ "HTTP/1.2", H, 1, true },
		{ "HTTP/1.9", H, 1, true },
		{ "HTTP/1.0", "", 0, false },
		{ "HTTP/1.0", H, 0, false },
		{ "HTTP/1.0", "Connection: keep-alive\r\n", 0, true },
		{ "HTTP/1.0", "Connection: Keep-Alive\r\n", 0, true },
		{ "HTTP/1.0", "Connection: keep-alive, close\r\n", 0, false },
		{ "HTTP/1.1", H "Connection: close\r\n", 1, false },
		{ "HTTP/1.1", H "connection: CLOSE\r\n", 1, false },
		{ "HTTP/1.1", H "Connection: keep-alive\r\n", 1, true },
		{ "HTTP/1.1", H "Connection: keep-alive,close\r\n", 1, false },
		{ "HTTP/1.1", H "Connection: close\r\nConnection: keep-alive\r\n", 1, false },
		{ "HTTP/1.1", H "Connection: upgrade\r\nConnection:\tclose \r\n", 1, false },
		{ "HTTP/1.1", H "Connection: , ,close, te\r\n", 1, false },
		{ "HTTP/1.1", H "Connection: closed, \"close\", close;q=1\r\n", 1, true },
		{ "HTTP/1.1", H "Connection:\r\n", 1, true },
	};
	struct result	x;
	char		in[256];
	size_t		i;

	(void)state;
	for (i = 0; i < COUNT(rows); i++) {
		snprintf(in, sizeof(in), "GET / %s\r\n%s\r\n", rows[i].line, rows[i].fields);
		x = parse_all_ways(in, strlen(in));
		assert_int_equal(x.e, PARSE_DONE);
		assert_int_equal(x.h.minor, rows[i].minor);
		assert_int_equal(x.h.keep_alive, rows[i].keep);
	}
}

static void
framing_is_what_the_fields_say(void **state)
{
	static const struct { const char *fields; enum framing f; uint64_t length; } rows[] = {
		{ "", BODY_NONE, 0 },
		{ "Content-Length: 0\r\n", BODY_LENGTH, 0 },
		{ "Content-Length: 5\r\n", BODY_LENGTH, 5 },
		{ "content-length:\t 007 \t\r\n", BODY_LENGTH, 7 },
		{ "CONTENT-LENGTH:9223372036854775807\r\n", BODY_LENGTH, INT64_MAX },
		{ "Transfer-Encoding: chunked\r\n", BODY_CHUNKED, 0 },
		{ "Transfer-Encoding:Chunked\r\n", BODY_CHUNKED, 0 },
		{ "Transfer-Encoding: CHUNKED\t\r\n", BODY_CHUNKED, 0 },
		{ "transfer-encoding: \t chunked \t \r\n", BODY_CHUNKED, 0 },
		{ "Content_Length: 5\r\n", BODY_NONE, 0 },
		{ "Content-Lengt: 5\r\nContent-Lengthh: 5\r\nXontent-Length: 5\r\n", BODY_NONE, 0 },
	};
	struct result	x;
	char		in[256];
	size_t		i;

	(void)state;
	for (i = 0; i < COUNT(rows); i++) {
		snprintf(in, sizeof(in), "PUT /t/x HTTP/1.1\r\n" H "%s\r\n", rows[i].fields);
		x = parse_all_ways(in, strlen(in));
		assert_int_equal(x.e, PARSE_DONE);
		assert_int_equal(x.h.framing, rows[i].f);
		assert_true(x.h.length == rows[i].length);
	}
}

static void
expectations_are_a_list_and_not_for_1_0(void **state)
{
	static const struct { const char *fields; const char *version; enum expect e; } rows[] = {
		{ "", "1.1", EXPECT_NONE },
		{ "Expect: 100-continue\r\n", "1.1", EXPECT_CONTINUE },
		{ "expect: 100-Continue \r\n", "1.1", EXPECT_CONTINUE },
		{ "Expect: 100-continue, 100-continue\r\n", "1.1", EXPECT_CONTINUE },
		{ "Expect: 100-continue\r\nExpect: 100-continue\r\n", "1.1", EXPECT_CONTINUE },
		{ "Expect:\r\n", "1.1", EXPECT_NONE },
		{ "Expect: x\r\n", "1.1", EXPECT_OTHER },
		{ "Expect: 100-continue, x\r\n", "1.1", EXPECT_OTHER },
		{ "Expect: x\r\nExpect: 100-continue\r\n", "1.1", EXPECT_OTHER },
		{ "Expect: 100-continue=1\r\n", "1.1", EXPECT_OTHER },
		{ "Expect: 100-continuex\r\n", "1.1", EXPECT_OTHER },
		{ "Expect: 100\r\n", "1.1", EXPECT_OTHER },
		{ "Expect: 100-continue\r\n", "1.0", EXPECT_NONE },
		{ "Expect: x\r\n", "1.0", EXPECT_NONE },
	};
	struct result	x;
	char		in[256];
	size_t		i;

	(void)state;
	for (i = 0; i < COUNT(rows); i++) {
		snprintf(in, sizeof(in), "PUT / HTTP/%s\r\n" H "%s\r\n", rows[i].version, rows[i].fields);
		x = parse_all_ways(in, strlen(in));
		assert_int_equal(x.e, PARSE_DONE);
		assert_int_equal(x.h.expect, rows[i].e);
	}
}

static void
every_known_field_is_found_in_any_case(void **state)
{
	static const struct { const char *name; size_t at; } rows[] = {
#define ROW(name, member) { name, offsetof(struct head, member) }
		ROW("host", host), ROW("range", range), ROW("if-range", if_range), ROW("authorization", authorization),
		ROW("origin", origin), ROW("content-type", content_type), ROW("content-encoding", content_encoding),
		ROW("content-language", content_language), ROW("content-disposition", content_disposition),
		ROW("cache-control", cache_control), ROW("content-range", content_range),
		ROW("if-modified-since", if_modified_since), ROW("if-unmodified-since", if_unmodified_since),
		ROW("accept", accept), ROW("access-control-request-method", access_control_request_method),
		ROW("last-event-id", last_event_id), ROW("if-match", if_match), ROW("if-none-match", if_none_match),
#undef ROW
	};
	struct result	x;
	struct slice	got;
	char		name[64], in[256];
	size_t		i, k, way;

	(void)state;
	for (i = 0; i < COUNT(rows); i++)
		for (way = 0; way < 3; way++) {
			strcpy(name, rows[i].name);
			for (k = 0; name[k] != '\0'; k++)
				if (name[k] >= 'a' && name[k] <= 'z' && (way == 1 || (way == 2 && k % 3 != 1)))
					name[k] -= 32;
			snprintf(in, sizeof(in), "GET / HTTP/1.0\r\nX: y\r\n%s: \t va:lue\xff \t \r\nY:z\r\n\r\n", name);
			if (i == 0)
				snprintf(in, sizeof(in), "GET / HTTP/1.0\r\n%s:value\r\n\r\n", name);
			x = parse_all_ways(in, strlen(in));
			assert_int_equal(x.e, PARSE_DONE);
			memcpy(&got, (char *)&x.h + rows[i].at, sizeof(got));
			is(got, i == 0 ? "value" : "va:lue\xff");
			/* one letter off: not known */
			for (k = 0; name[k] != '\0'; k++) {
				name[k] ^= 1;
				if (byte_is(name[k], B_TOKEN))
					assert_int_equal(field_id(name, strlen(name)), F_OTHER);
				name[k] ^= 1;
			}
		}
}

static void
a_field_that_comes_again_follows_its_rule(void **state)
{
	struct result	x;

	(void)state;
	x = parse_all_ways(S(GET H "Range: bytes=0-1\r\nIf-Range: \"a\"\r\nRange: bytes=2-3\r\nIf-Range: \"b\"\r\n"
	    "If-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT\r\nIf-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT\r\n"
	    "If-Unmodified-Since: Sun, 06 Nov 1994 08:49:37 GMT\r\nIf-Unmodified-Since: x\r\n"
	    "Accept: a/b\r\nAccept: c/d\r\n\r\n"));
	assert_int_equal(x.e, PARSE_DONE);
	is(x.h.range, "");
	is(x.h.if_range, "");
	is(x.h.if_modified_since, "");
	is(x.h.if_unmodified_since, "");
	is(x.h.accept, "a/b");
	x = parse_all_ways(S(GET H "If-Match: \"a\"\r\nIf-None-Match: *\r\nIf-Match: \"b\", \"c\"\r\nX: y\r\nIf-Match:\r\n\r\n"));
	assert_int_equal(x.e, PARSE_DONE);
	assert_int_equal(x.h.n_if_match, 3);
	assert_int_equal(x.h.n_if_none_match, 1);
	is(x.h.if_match[0], "\"a\"");
	is(x.h.if_match[1], "\"b\", \"c\"");
	is(x.h.if_match[2], "");
	is(x.h.if_none_match[0], "*");
}

static void
kept_fields_are_counted_as_lines(void **state)
{
	struct result	x;

	(void)state;
	x = parse_all_ways(S(PUT "Content-Type: a/b\r\ncache-control:no-store \r\nX-Other: xxxxxxxxxx\r\n\r\n"));
	assert_int_equal(x.h.kept_bytes, strlen("Content-Type: a/b\r\ncache-control: no-store\r\n"));
	x = parse_all_ways(S(PUT "\r\n"));
	assert_int_equal(x.h.kept_bytes, 0);
}

static void
hosts_are_names_or_addresses_with_a_port(void **state)
{
	static const char *const	good[] = {
		"a", "A.b-c.example", "a_b", "127.0.0.1", "127.0.0.1:7480", "a:", "a:0", "a:65535", "[::1]", "[::1]:80",
		"[2001:db8::ffff:192.0.2.1]", "[v1.a:b]", "xn--e1afmkfd.example", "%41", "a.", "a~!$&'()*+;=b",
	};
	static const char *const	bad[] = {
		"", ":80", "a b", "a,b", "a/", "u@a", "a:b", "a:1:2", "a:-1", "a:65536", "a:99999999999999999999", "[::1", "::1",
		"[::1]b", "[]", "[a]", "[::1%25eth0]", "[:::1]", "[v1.]", "[v.a]", "[v1]", "[vg.a]", "[v1.a/]", "a?b", "a#b", "a\\b", "<a>", "%zz",
		"%4", "a%", "\x80", "http://a", "a\"", "[1:2:3:4:5:6:7:8:9:1:2:3:4:5:6:7:8:9:1:2:3:4:5:6:7:8]",
	};
	size_t	i;

	(void)state;
	for (i = 0; i < COUNT(good); i++)
		if (!host_ok(p_guarded(good[i], strlen(good[i])), strlen(good[i])))
			fail_msg("refused: %s", good[i]);
	for (i = 0; i < COUNT(bad); i++)
		if (host_ok(p_guarded(bad[i], strlen(bad[i])), strlen(bad[i])))
			fail_msg("accepted: %s", bad[i]);
	assert_false(host_ok(p_guarded(S("[::1\0]")), 6));
	assert_false(host_ok(p_guarded(S("a\0b")), 3));
}

/* --- limits ------------------------------------------------------------------- */

/* prefix, n times c, suffix */
static char *
built(const char *prefix, size_t n, char c, const char *suffix, size_t *len)
{
	size_t	 a = strlen(prefix), b = strlen(suffix);
	char	*s = malloc(a + n + b + 1);

	assert_non_null(s);
	memcpy(s, prefix, a);
	memset(s + a, c, n);
	memcpy(s + a + n, suffix, b + 1);
	*len = a + n + b;
	return s;
}

static struct result
parse_built(const char *prefix, size_t n, char c, const char *suffix)
{
	size_t		 len;
	char		*s = built(prefix, n, c, suffix, &len);
	struct result	 x = parse_all_ways(s, len);

	free(s);
	return x;
}

static void
a_head_of_16_kib_is_enough_and_one_byte_more_is_431(void **state)
{
	size_t		fixed = strlen(GET H "X: \r\n\r\n");
	struct result	x;

	(void)state;
	x = parse_built(GET H "X: ", HEAD_MAX - fixed, 'x', "\r\n\r\n");
	assert_int_equal(x.e, PARSE_DONE);
	assert_int_equal(x.h.bytes, HEAD_MAX);
	x = parse_built(GET H "X: ", HEAD_MAX - fixed + 1, 'x', "\r\n\r\n");
	assert_int_equal(x.e, PARSE_BAD);
	assert_int_equal(x.r.status, 431);
	/* a body behind it does not count */
	x = parse_built(GET H "X: ", HEAD_MAX - fixed, 'x', "\r\n\r\nbody");
	assert_int_equal(x.e, PARSE_DONE);
	/* without an end, or in a name, or in white space: as soon as the limit is reached */
	x = parse_built(GET H "X: ", 40000, 'x', "");
	assert_int_equal(x.r.status, 431);
	x = parse_built(GET H, 40000, 'x', "");
	assert_int_equal(x.r.status, 431);
	x = parse_built(GET H "X:", 40000, ' ', "\r\n");
	assert_int_equal(x.r.status, 431);
	/* what was wrong before the limit comes first */
	x = parse_built(GET H "X : ", 40000, 'x', "");
	assert_int_equal(x.r.status, 400);
}

static void
a_target_of_8_kib_is_enough_and_one_byte_more_is_414_without_waiting(void **state)
{
	struct result	x;
	size_t		scanned = 0, n, len;
	char		*s;

	(void)state;
	x = parse_built("GET /", TARGET_MAX - 1, 'x', " HTTP/1.1\r\n" H "\r\n");
	assert_int_equal(x.e, PARSE_DONE);
	assert_int_equal(x.h.target.len, TARGET_MAX);
	x = parse_built("GET /", TARGET_MAX, 'x', " HTTP/1.1\r\n" H "\r\n");
	assert_int_equal(x.r.status, 414);
	x = parse_built("\r\nGET /", 40000, 'x', "");
	assert_int_equal(x.r.status, 414);
	x = parse_built("GET /", 40000, 'x', " HTTP/1.1\r\n" H "\r\n");
	assert_int_equal(x.r.status, 414);
	s = built("GET /", TARGET_MAX, 'x', "", &len);
	for (n = 1; n < len; n++)
		assert_int_equal(parse(s, n, &scanned).e, PARSE_MORE);
	x = parse(s, len, &scanned);
	assert_int_equal(x.e, PARSE_BAD);
	assert_int_equal(x.r.status, 414);
	free(s);
}

static void
a_method_longer_than_any_is_501(void **state)
{
	struct result	x;

	(void)state;
	x = parse_built("", 64, 'X', " / HTTP/1.1\r\n" H "\r\n");
	assert_int_equal(x.e, PARSE_DONE);
	assert_int_equal(x.h.method, M_OTHER);
	x = parse_built("", 65, 'X', " / HTTP/1.1\r\n" H "\r\n");
	assert_int_equal(x.r.status, 501);
	x = parse_built("", 40000, 'X', "");
	assert_int_equal(x.r.status, 501);
}

static void
a_hundred_fields_are_enough_and_one_more_is_431(void **state)
{
	struct result	x;
	char		in[2048];
	unsigned	n, k;
	size_t		len;

	(void)state;
	for (n = 99; n <= 101; n++) {
		len = (size_t)snprintf(in, sizeof(in), GET H);
		for (k = 1; k < n; k++)
			len += (size_t)snprintf(in + len, sizeof(in) - len, "X%u: y\r\n", k);
		len += (size_t)snprintf(in + len, sizeof(in) - len, "\r\n");
		x = parse_all_ways(in, len);
		if (n <= HEAD_FIELDS)
			assert_int_equal(x.e, PARSE_DONE);
		else
			assert_int_equal(x.r.status, 431);
	}
}

/* Every byte at every place of a value and of a name, around the blocks that are scanned at once. */
static void
each_byte_is_judged_alike_wherever_it_stands(void **state)
{
	char		in[128];
	unsigned	c, at;
	size_t		len, scanned;
	struct result	x;
	bool		good;

	(void)state;
	for (at = 0; at < 40; at++)
		for (c = 0; c < 256; c++) {
			len = (size_t)snprintf(in, sizeof(in), "GET / HTTP/1.0\r\nX: v%.*s@%.*s\r\n\r\n", (int)at,
			    "0123456789012345678901234567890123456789", 40 - (int)at, "0123456789012345678901234567890123456789");
			*strchr(in, '@') = (char)c;
			scanned = 0;
			x = parse(in, len, &scanned);
			good = c == '\t' || (c >= 0x20 && c != 0x7f);
			assert_int_equal(x.e, good ? PARSE_DONE : PARSE_BAD);

			len = (size_t)snprintf(in, sizeof(in), "GET / HTTP/1.0\r\nn%.*s@%.*s:\r\n\r\n", (int)at,
			    "0123456789012345678901234567890123456789", 40 - (int)at, "0123456789012345678901234567890123456789");
			*strchr(in, '@') = (char)c;
			scanned = 0;
			x = parse(in, len, &scanned);
			good = c == ':' || (c != 0 && strchr("!#$%&'*+-.^_`|~", (int)c) != NULL) ||
			    (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
			assert_int_equal(x.e, good ? PARSE_DONE : PARSE_BAD);

			len = (size_t)snprintf(in, sizeof(in), "GET /%.*s@%.*s HTTP/1.0\r\n\r\n", (int)at,
			    "0123456789012345678901234567890123456789", 40 - (int)at, "0123456789012345678901234567890123456789");
			*strchr(in, '@') = (char)c;
			scanned = 0;
			x = parse(in, len, &scanned);
			assert_int_equal(x.e, c > 0x20 && c != 0x7f ? PARSE_DONE : PARSE_BAD);
		}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_malformed_head_is_refused_and_closes),
		cmocka_unit_test(every_prefix_of_a_good_head_wants_more),
		cmocka_unit_test(methods_are_known_by_case),
		cmocka_unit_test(a_refusal_still_knows_the_method),
		cmocka_unit_test(versions_decide_host_and_keep_alive),
		cmocka_unit_test(framing_is_what_the_fields_say),
		cmocka_unit_test(expectations_are_a_list_and_not_for_1_0),
		cmocka_unit_test(every_known_field_is_found_in_any_case),
		cmocka_unit_test(a_field_that_comes_again_follows_its_rule),
		cmocka_unit_test(kept_fields_are_counted_as_lines),
		cmocka_unit_test(hosts_are_names_or_addresses_with_a_port),
		cmocka_unit_test(a_head_of_16_kib_is_enough_and_one_byte_more_is_431),
		cmocka_unit_test(a_target_of_8_kib_is_enough_and_one_byte_more_is_414_without_waiting),
		cmocka_unit_test(a_method_longer_than_any_is_501),
		cmocka_unit_test(a_hundred_fields_are_enough_and_one_more_is_431),
		cmocka_unit_test(each_byte_is_judged_alike_wherever_it_stands),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
