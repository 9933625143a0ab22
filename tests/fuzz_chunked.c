/*
 * tests/fuzz_chunked.c - worker/chunked.h under any bytes.
 *
 * Claims: cut anywhere, body and end are the same; data lie in the input; a
 * body decoded and chunked anew decodes to itself; what is accepted ends in CR LF.
 */
#include "config.h"
#include "worker/chunked.h"
#include "tests/fuzz.h"

struct body {
	enum parse	 e;
	const char	*detail;
	size_t		 used, len;
	char		*bytes;
};

/* step 0: pieces of sizes the input decides. */
static struct body
decode(const uint8_t *in, size_t len, size_t step)
{
	struct body	 b = { .e = PARSE_MORE, .bytes = f_room(len) };
	struct cutter	 cut = f_cutter(in, len);
	struct chunked	 c = { 0 };
	struct refusal	 r = { 0 };
	const char	*data;
	char		*piece;
	size_t		 at, n, pos, used, ndata;

	for (at = 0; at < len && b.e == PARSE_MORE; at += n) {
		n = step == 0 ? f_cut(&cut, len - at) : step < len - at ? step : len - at;
		piece = f_copy(in + at, n);
		pos = 0;
		do {
			b.e = chunked_next(&c, piece + pos, n - pos, &used, &data, &ndata, &r);
			CLAIM(used <= n - pos);
			if (ndata > 0) {
				CLAIM(data >= piece + pos && data + ndata == piece + pos + used);
				memcpy(b.bytes + b.len, data, ndata);
				b.len += ndata;
			}
			pos += used;
		} while (b.e == PARSE_MORE && ndata > 0);
		CLAIM(b.e != PARSE_MORE || pos == n);
		b.used += pos;
		free(piece);
	}
	CLAIM(b.e != PARSE_BAD || (r.status == 400 && !r.keep && r.detail != NULL));
	b.detail = r.detail;
	return b;
}

static void
same(const struct body *a, const struct body *b)
{
	CLAIM(a->e == b->e && a->used == b->used && a->detail == b->detail && a->len == b->len);
	CLAIM(memcmp(a->bytes, b->bytes, a->len) == 0);
}

static void
again(const struct body *b)
{
	char		*out = f_room(2 * b->len + 64);
	struct body	 c;
	int		 n = 0;
	size_t		 half = b->len / 2;

	if (half > 0) {
		n = sprintf(out, "%zx;x\r\n", half);
		memcpy(out + n, b->bytes, half);
		n += (int)half;
		n += sprintf(out + n, "\r\n");
	}
	if (b->len > half) {
		n += sprintf(out + n, "%016zX\r\n", b->len - half);
		memcpy(out + n, b->bytes + half, b->len - half);
		n += (int)(b->len - half);
		n += sprintf(out + n, "\r\n");
	}
	n += sprintf(out + n, "0\r\nT: x\r\n\r\n");
	c = decode((const uint8_t *)out, (size_t)n, 0);
	CLAIM(c.e == PARSE_DONE && c.used == (size_t)n && c.len == b->len && memcmp(c.bytes, b->bytes, b->len) == 0);
	free(c.bytes);
	free(out);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct body	whole, cut, single;

	whole = decode(data, len, len > 0 ? len : 1);
	cut = decode(data, len, 0);
	same(&whole, &cut);
	if (len < 4096) {
		single = decode(data, len, 1);
		same(&whole, &single);
		free(single.bytes);
	}
	if (whole.e == PARSE_DONE) {
		CLAIM(whole.used >= 5 && memcmp(data + whole.used - 4, "\r\n\r\n", 4) == 0);
		again(&whole);
	}
	free(whole.bytes);
	free(cut.bytes);
	return 0;
}
