/* tests/c_chunked.c - worker/chunked.h: contract 7, F72-F75. */
#include "config.h"
#include <stdio.h>
#include "worker/chunked.h"
#include "tests/parse.h"

struct body {
	enum parse	e;
	struct refusal	r;
	size_t		used;		/* of the input */
	size_t		len;
	char		bytes[65536];
};

/* The input in pieces of `step` bytes, each with its end at the guard page. */
static void
run(const char *in, size_t len, size_t step, struct body *b)
{
	struct chunked	 c = { 0 };
	const char	*p, *data;
	size_t		 at, n, used, ndata;

	b->e = PARSE_MORE;
	b->used = b->len = 0;
	b->r = (struct refusal){ 0 };
	for (at = 0; at < len && b->e == PARSE_MORE; at += step) {
		n = len - at < step ? len - at : step;
		p = p_guarded(in + at, n);
		do {
			b->e = chunked_next(&c, p, n, &used, &data, &ndata, &b->r);
			assert_true(used <= n);
			if (ndata > 0) {
				assert_true(data >= p && data + ndata == p + used);
				memcpy(b->bytes + b->len, data, ndata);
				b->len += ndata;
			}
			b->used += used;
			p += used;
			n -= used;
		} while (b->e == PARSE_MORE && ndata > 0);
		if (b->e == PARSE_MORE)
			assert_int_equal(n, 0);
	}
}

static void
run_all_ways(const char *in, size_t len, struct body *b)
{
	static struct body	other;
	size_t			step;

	run(in, len, len, b);
	for (step = 1; step < len; step++) {
		run(in, len, step, &other);
		assert_int_equal(other.e, b->e);
		assert_int_equal(other.used, b->used);
		assert_int_equal(other.len, b->len);
		assert_memory_equal(other.bytes, b->bytes, b->len);
		assert_ptr_equal(other.r.detail, b->r.detail);
		if (len > 2000)
			step += step * 3;
	}
}

static struct body	b;

static void
good_chunks_are_the_body(void **state)
{
	static const struct { const char *in; size_t len; const char *body; size_t behind; } rows[] = {
		{ S("5\r\nhello\r\n0\r\n\r\n"), "hello", 0 },
		{ S("0\r\n\r\n"), "", 0 },
		{ S("000000000000000\r\n\r\n"), "", 0 },
		{ S("A\r\n0123456789\r\na\r\n0123456789\r\n0\r\n\r\n"), "01234567890123456789", 0 },
		{ S("0000000000000005\r\nhello\r\n0000\r\n\r\n"), "hello", 0 },
		{ S("5;a;b=c;d=\"e f\"\r\nhello\r\n0;last\r\n\r\n"), "hello", 0 },
		{ S("5;\thigh\xff\r\nhello\r\n0\r\n\r\n"), "hello", 0 },
		{ S("5\r\nhello\r\n0\r\nX: a\r\nContent-Length: 7\r\nHost:\r\n\r\n"), "hello", 0 },
		{ S("1\r\nh\r\n1\r\ne\r\n3\r\nllo\r\n0\r\n\r\n"), "hello", 0 },
		{ S("5\r\n\r\n0\r\n\r\n0\r\n\r\n"), "\r\n0\r\n", 0 },
		{ S("5\r\nhello\r\n0\r\n\r\nGET / HTTP/1.1\r\n"), "hello", 16 },
	};
	size_t	i;

	(void)state;
	for (i = 0; i < COUNT(rows); i++) {
		run_all_ways(rows[i].in, rows[i].len, &b);
		assert_int_equal(b.e, PARSE_DONE);
		assert_int_equal(b.used, rows[i].len - rows[i].behind);
		assert_int_equal(b.len, strlen(rows[i].body));
		assert_memory_equal(b.bytes, rows[i].body, b.len);
	}
}

static void
bad_chunks_are_400_and_close(void **state)
{
	static const struct { const char *in; size_t len; } rows[] = {
		{ S("0x5\r\nhello\r\n0\r\n\r\n") },
		{ S("+5\r\nhello\r\n0\r\n\r\n") },
		{ S("-5\r\nhello\r\n0\r\n\r\n") },
		{ S("5\r\nhello\r\n-0\r\n\r\n") },
		{ S(" 5\r\nhello\r\n0\r\n\r\n") },
		{ S("\t5\r\nhello\r\n0\r\n\r\n") },
		{ S("5 \r\nhello\r\n0\r\n\r\n") },
		{ S("5 ;a\r\nhello\r\n0\r\n\r\n") },
		{ S("1_0\r\n0123456789abcdef\r\n0\r\n\r\n") },
		{ S("\r\nhello\r\n0\r\n\r\n") },
		{ S(";a\r\nhello\r\n0\r\n\r\n") },
		{ S("g\r\nhello\r\n0\r\n\r\n") },
		{ S("5h\r\nhello\r\n0\r\n\r\n") },
		{ S("00000000000000005\r\nhello\r\n0\r\n\r\n") },
		{ S("10000000000000005\r\nhello\r\n0\r\n\r\n") },
		{ S("fffffffffffffffff") },
		{ S("5\nhello\r\n0\r\n\r\n") },
		{ S("5\rhello\r\n0\r\n\r\n") },
		{ S("5\r\r\nhello\r\n0\r\n\r\n") },
		{ S("5\r\nhello\n0\r\n\r\n") },
		{ S("5\r\nhello0\r\n\r\n") },
		{ S("5\r\nhello world\r\n0\r\n\r\n") },
		{ S("8\r\nhello\r\n0\r\n\r\n") },
		{ S("5\r\nhelloXX0\r\n\r\n") },
		{ S("5\r\nhello\rX0\r\n\r\n") },
		{ S("5;a=\0\r\nhello\r\n0\r\n\r\n") },
		{ S("5;a=\x1f\r\nhello\r\n0\r\n\r\n") },
		{ S("5;a=\x7f\r\nhello\r\n0\r\n\r\n") },
		{ S("5;a=\nhello\r\n0\r\n\r\n") },
		{ S("5;a=\rb\r\nhello\r\n0\r\n\r\n") },
		{ S("5\0\r\nhello\r\n0\r\n\r\n") },
		{ S("0\n\n") },
		{ S("0\r\n\n") },
		{ S("0\r\n\rX") },
		{ S("0\r\nX: a\r\n b\r\n\r\n") },
		{ S("0\r\nX : a\r\n\r\n") },
		{ S("0\r\n X: a\r\n\r\n") },
		{ S("0\r\nX\r\n\r\n") },
		{ S("0\r\n: a\r\n\r\n") },
		{ S("0\r\nX: a\n\r\n") },
		{ S("0\r\nX: a\rb\r\n\r\n") },
		{ S("0\r\nX: a\0\r\n\r\n") },
		{ S("0\r\nX\xe9: a\r\n\r\n") },
	};
	size_t	i;

	(void)state;
	for (i = 0; i < COUNT(rows); i++) {
		run_all_ways(rows[i].in, rows[i].len, &b);
		if (b.e != PARSE_BAD)
			fail_msg("row %zu: %s: %d", i, rows[i].in, b.e);
		assert_int_equal(b.r.status, 400);
		assert_false(b.r.keep);
		assert_non_null(b.r.detail);
	}
}

static void
every_prefix_wants_more(void **state)
{
	static const char	in[] = "5;a=b\r\nhello\r\n0;c\r\nX: y\r\nZ:\r\n\r\n";
	size_t			n;

	(void)state;
	for (n = 1; n < sizeof(in) - 1; n++) {
		run_all_ways(in, n, &b);
		assert_int_equal(b.e, PARSE_MORE);
		assert_int_equal(b.used, n);
	}
}

static void
lines_and_trailers_are_bounded(void **state)
{
	static char	in[P_ROOM];
	size_t		n;

	(void)state;
	memset(in, 'x', sizeof(in));
	memcpy(in, "5;", 2);
	/* the size line: all in front of its LF counts */
	memcpy(in + CHUNK_LINE_MAX - 1, "\r\nhello\r\n0\r\n\r\n", 14);
	run_all_ways(in, CHUNK_LINE_MAX + 13, &b);
	assert_int_equal(b.e, PARSE_DONE);
	memset(in + 2, 'x', CHUNK_LINE_MAX);
	run_all_ways(in, 40000, &b);
	assert_int_equal(b.e, PARSE_BAD);
	assert_int_equal(b.used, CHUNK_LINE_MAX + 1);
	/* trailers */
	memcpy(in, "0\r\nX:", 5);
	memset(in + 5, 'x', HEAD_MAX);
	run_all_ways(in, 40000, &b);
	assert_int_equal(b.e, PARSE_BAD);
	assert_true(b.used <= HEAD_MAX + 4);
	for (n = 3; n + 4 < 40000; n += 4)
		memcpy(in + n, "X:\r\n", 4);
	run_all_ways(in, 40000, &b);
	assert_int_equal(b.e, PARSE_BAD);
	assert_true(b.used <= HEAD_MAX + 4);
}

static void
data_may_be_received_elsewhere(void **state)
{
	struct chunked	 c = { 0 };
	struct refusal	 r;
	const char	*data;
	size_t		 used, ndata;

	(void)state;
	assert_int_equal(chunked_left(&c), 0);
	assert_int_equal(chunked_next(&c, S("a"), &used, &data, &ndata, &r), PARSE_MORE);
	assert_int_equal(chunked_left(&c), 0);	/* not before the line is whole */
	assert_int_equal(chunked_next(&c, S("0\r\n"), &used, &data, &ndata, &r), PARSE_MORE);
	assert_int_equal(used, 3);
	assert_int_equal(ndata, 0);
	assert_int_equal(chunked_left(&c), 0xa0);
	chunked_took(&c, 0x9f);
	assert_int_equal(chunked_left(&c), 1);
	chunked_took(&c, 1);
	assert_int_equal(chunked_left(&c), 0);
	assert_int_equal(chunked_next(&c, S("\r\n0\r\n\r\nX"), &used, &data, &ndata, &r), PARSE_DONE);
	assert_int_equal(used, 7);
	/* and stays done */
	assert_int_equal(chunked_next(&c, S("X"), &used, &data, &ndata, &r), PARSE_DONE);
	assert_int_equal(used, 0);
}

static void
the_largest_size_overflows_nothing(void **state)
{
	struct chunked	 c = { 0 };
	struct refusal	 r;
	const char	*data;
	size_t		 used, ndata;

	(void)state;
	assert_int_equal(chunked_next(&c, S("FFFFFFFFffffffff\r\nhello"), &used, &data, &ndata, &r), PARSE_MORE);
	assert_int_equal(ndata, 5);
	assert_true(chunked_left(&c) == UINT64_MAX - 5);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(good_chunks_are_the_body),
		cmocka_unit_test(bad_chunks_are_400_and_close),
		cmocka_unit_test(every_prefix_wants_more),
		cmocka_unit_test(lines_and_trailers_are_bounded),
		cmocka_unit_test(data_may_be_received_elsewhere),
		cmocka_unit_test(the_largest_size_overflows_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
