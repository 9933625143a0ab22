/*
 * worker/etag.c - entity tags: what an identity looks like on the wire.
 *
 * Runs in: worker.  Pure.
 *
 * One spelling per tag: small hex digits, no leading zero in the sequence,
 * eight digits of the run.  So comparing identities is comparing bytes.
 */
#include "config.h"
#include "worker/cond.h"
#include "worker/etag.h"
#include "worker/fields.h"

static const char digits[16] = "0123456789abcdef";

size_t
etag_format(char *out, const struct tag *t)
{
	unsigned	n = t->seq == 0 ? 1 : (67u - (unsigned)__builtin_clzll(t->seq)) / 4;
	unsigned	i;
	char		*p = out;

	*p++ = '"';
	for (i = n; i-- > 0; )
		*p++ = digits[(t->seq >> (4 * i)) & 0xf];
	*p++ = '-';
	for (i = 8; i-- > 0; )
		*p++ = digits[(t->run >> (4 * i)) & 0xf];
	*p++ = '"';
	return (size_t)(p - out);
}

/* Small hex digits only: a tag has one spelling. */
static bool
hex_small(char c)
{
	return byte_is(c, B_HEX) && !(c >= 'A' && c <= 'F');
}

/* What is between the quotes.  false: not one of ours. */
static bool
etag_ours(const char *p, size_t len, struct tag *t)
{
	size_t	i, n;

	if (len < 10 || len > 25 || p[len - 9] != '-' || p[0] == '0')
		return false;
	n = len - 9;
	*t = (struct tag){ 0 };
	for (i = 0; i < n; i++) {
		if (!hex_small(p[i]))
			return false;
		t->seq = t->seq << 4 | hex_value(p[i]);
	}
	for (i = n + 1; i < len; i++) {
		if (!hex_small(p[i]))
			return false;
		t->run = t->run << 4 | hex_value(p[i]);
	}
	return true;
}

const char *
etag_read(const char *p, const char *end, struct etag *e)
{
	const char	*start;

	*e = (struct etag){ 0 };
	if (end - p >= 2 && p[0] == 'W' && p[1] == '/') {
		e->weak = true;
		p += 2;
	}
	if (p == end || *p++ != '"')
		return NULL;
	for (start = p; p < end && byte_is(*p, B_ETAG); p++)
		;
	if (p == end || *p != '"')
		return NULL;
	e->ours = etag_ours(start, (size_t)(p - start), &e->tag);
	return p + 1;
}
