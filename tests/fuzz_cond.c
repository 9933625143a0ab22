/*
 * tests/fuzz_cond.c - worker/cond.h under any bytes.
 *
 * Input: fields, one a line; the first byte of a line says which.
 * Claims: bounds hold; a range lies in the document; a tag or date that is
 * understood, written down anew, is the same tag or date.
 */
#include "config.h"
#include "worker/cond.h"
#include "worker/etag.h"
#include "tests/fuzz.h"

static void
date_again(struct slice s)
{
	char	out[DATE_LEN];
	int64_t	a, b;

	if (s.p == NULL || !date_parse(s.p, s.len, &a) || a > INT64_C(253402300799))	/* a leap second behind the last year */
		return;
	date_format(out, a);
	CLAIM(date_parse(out, DATE_LEN, &b) && a == b);
}

static void
tags_again(const struct tag *t, unsigned n)
{
	char		out[ETAG_MAX];
	struct etag	e;
	size_t		len;

	for (; n-- > 0; t++) {
		len = etag_format(out, t);
		CLAIM(len <= ETAG_MAX && t->seq != 0);
		CLAIM(etag_read(out, out + len, &e) == out + len && e.ours && !e.weak && tag_same(&e.tag, t));
	}
}

static void
field(struct head *h, char which, struct slice s)
{
	switch (which) {
	case 'm':
		if (h->n_if_match < 4)
			h->if_match[h->n_if_match++] = s;
		break;
	case 'n':
		if (h->n_if_none_match < 4)
			h->if_none_match[h->n_if_none_match++] = s;
		break;
	case 's':
		h->if_modified_since = s;
		break;
	case 'u':
		h->if_unmodified_since = s;
		break;
	case 'i':
		h->if_range = s;
		break;
	case 'r':
		h->range = s;
		break;
	}
}

static void
ranges(const struct head *h)
{
	static const uint64_t	sizes[] = { 0, 1, 10, 65536, UINT64_MAX };
	struct tag		now = { .seq = 0x3f2a, .run = 0x1b2c3d4e };
	uint64_t		first, last;
	size_t			i;

	for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		switch (range_parse(h, sizes[i], &now, 784111777, &first, &last)) {
		case RANGE_ONE:
			CLAIM(first <= last && last < sizes[i]);
			break;
		case RANGE_UNSATISFIABLE:
		case RANGE_NONE:
			break;
		}
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct head		 h = { .method = M_GET };
	struct conditions	 c;
	struct refusal		 r = { 0 };
	struct tag		 now = { .seq = 0x3f2a, .run = 0x1b2c3d4e };
	char			*in[16];
	const uint8_t		*end = data + len, *stop;
	size_t			 n = 0;

	while (data < end && n < 16) {
		if ((stop = memchr(data, '\n', (size_t)(end - data))) == NULL)
			stop = end;
		if (stop > data) {
			in[n] = f_copy(data + 1, (size_t)(stop - data - 1));
			field(&h, (char)data[0], (struct slice){ in[n], (uint32_t)(stop - data - 1) });
			n++;
		}
		data = stop < end ? stop + 1 : end;
	}
	memset(&c, 0xa5, sizeof(c));
	if (cond_parse(&h, &c, &r)) {
		CLAIM(c.n_match <= SUBMIT_TAGS_MAX && c.n_none <= SUBMIT_TAGS_MAX);
		CLAIM(!(c.cond & COND_UNMODIFIED) || h.n_if_match == 0);
		tags_again(c.match, c.n_match);
		tags_again(c.none, c.n_none);
		CLAIM(cond_read(&c, &now, 784111777) <= V_FAILED);
	} else
		CLAIM(r.status == 400 && r.keep && r.detail != NULL);
	ranges(&h);
	date_again(h.if_modified_since);
	date_again(h.if_unmodified_since);
	while (n-- > 0)
		free(in[n]);
	return 0;
}
