/*
 * worker/range.c - Range and If-Range: RFC 9110 13.1.5, 14.
 *
 * Runs in: worker.  Pure.
 *
 * A server may always answer with the whole, so whatever is not one clear
 * range of bytes is ignored; only one that lies outside is said to.
 */
#include "config.h"
#include "worker/cond.h"
#include "worker/etag.h"
#include "worker/fields.h"

/* True: the client has this version, so a part of it is what it wants. */
static bool
same_version(struct slice s, const struct tag *now, int64_t modified_s)
{
	struct etag	e;
	int64_t		date;

	if (s.len > 0 && (s.p[0] == '"' || s.p[0] == 'W'))
		if (etag_read(s.p, s.p + s.len, &e) == s.p + s.len)
			return e.ours && !e.weak && tag_same(&e.tag, now);
	return date_parse(s.p, s.len, &date) && date == modified_s;
}

/* Digits at p; what is beyond 64 bits is beyond any document, so it sticks at the largest. */
static const char *
position(const char *p, const char *end, uint64_t *v)
{
	uint64_t	d;

	for (*v = 0; p < end && byte_is(*p, B_DIGIT); p++) {
		d = (uint64_t)(*p - '0');
		*v = *v > (UINT64_MAX - d) / 10 ? UINT64_MAX : *v * 10 + d;
	}
	return p;
}

static enum range_kind
one_range(struct slice s, uint64_t size, uint64_t *first, uint64_t *last)
{
	const char	*p = s.p, *end = s.p + s.len, *q;
	uint64_t	 a, b;

	q = position(p, end, &a);
	if (q == end || *q != '-')
		return RANGE_NONE;
	p = position(q + 1, end, &b);
	if (p != end)
		return RANGE_NONE;
	if (q == s.p) {				/* "-N": the last N */
		if (p == q + 1)
			return RANGE_NONE;
		if (b == 0 || size == 0)
			return RANGE_UNSATISFIABLE;
		*first = b < size ? size - b : 0;
		*last = size - 1;
		return RANGE_ONE;
	}
	if (p == q + 1)				/* "N-" */
		b = UINT64_MAX;
	if (b < a)
		return RANGE_NONE;
	if (a >= size)
		return RANGE_UNSATISFIABLE;
	*first = a;
	*last = b < size ? b : size - 1;
	return RANGE_ONE;
}

enum range_kind
range_parse(const struct head *h, uint64_t size, const struct tag *now, int64_t modified_s,
    uint64_t *first, uint64_t *last)
{
	struct slice	rest, unit, one, s = { NULL, 0 };
	unsigned	n = 0;

	*first = *last = 0;
	if (h->range.p == NULL || h->method != M_GET)
		return RANGE_NONE;
	if (h->if_range.p != NULL && !same_version(h->if_range, now, modified_s))
		return RANGE_NONE;
	unit = (struct slice){ h->range.p, 5 };
	if (h->range.len < 6 || h->range.p[5] != '=' || !slice_is(unit, "bytes"))
		return RANGE_NONE;
	rest = (struct slice){ h->range.p + 6, h->range.len - 6 };
	while (list_next(&rest, &one)) {
		if (one.len == 0)
			continue;
		if (++n > 1)
			return RANGE_NONE;
		s = one;
	}
	return n == 1 ? one_range(s, size, first, last) : RANGE_NONE;
}
