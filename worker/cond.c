/*
 * worker/cond.c - preconditions: RFC 9110 13.
 *
 * Runs in: worker.  Pure.
 *
 * What the fields say is parsed once into bits and tags.  For a GET they are
 * judged here (cond_read), for a write by the committer, at commit.
 */
#include "config.h"
#include "worker/cond.h"
#include "worker/etag.h"

static bool
refuse(struct refusal *r, const char *detail)
{
	*r = (struct refusal){ .status = 400, .keep = true, .detail = detail };
	return false;
}

static bool
blank(char c)
{
	return c == ' ' || c == '\t';
}

/* One list of tags, over all its fields. */
struct list {
	struct tag	*tags;
	uint16_t	 n;
	bool		 any;		/* "*" */
	bool		 some;		/* a tag, ours or not */
	bool		 strong;	/* compare strongly: weak ones never match */
};

/* 1: well formed.  0: not.  -1: too many. */
static int
list_field(struct list *l, struct slice s)
{
	const char	*p = s.p, *end = s.p + s.len;
	struct etag	 e;

	for (;;) {
		/* empty elements are allowed (RFC 9110 5.6.1.2) */
		while (p < end && (blank(*p) || *p == ','))
			p++;
		if (p == end)
			return 1;
		if (*p == '*') {
			if (l->any || l->some)
				return 0;
			l->any = true;
			p++;
		} else {
			if (l->any || (p = etag_read(p, end, &e)) == NULL)
				return 0;
			l->some = true;
			if (e.ours && !(e.weak && l->strong)) {
				if (l->n == SUBMIT_TAGS_MAX)
					return -1;
				l->tags[l->n++] = e.tag;
			}
		}
		while (p < end && blank(*p))
			p++;
		if (p < end && *p != ',')
			return 0;
	}
}

static bool
list_parse(struct list *l, const struct slice *fields, unsigned n, struct refusal *r)
{
	unsigned	i;

	for (i = 0; i < n; i++) {
		switch (list_field(l, fields[i])) {
		case 1:
			break;
		case 0:
			return refuse(r, "If-Match and If-None-Match take * alone, or entity tags in double quotes "
			    "with commas between, just as the ETag field gave them");
		default:
			return refuse(r, "at most 64 entity tags in If-Match or If-None-Match");
		}
	}
	if (!l->any && !l->some)
		return refuse(r, "If-Match and If-None-Match must not be empty: give *, or the entity tag of an ETag field");
	return true;
}

bool
cond_parse(const struct head *h, struct conditions *c, struct refusal *r)
{
	struct list	match = { .tags = c->match, .strong = true };
	struct list	none = { .tags = c->none };

	/* not the tags: two kilobytes that mostly nobody needs */
	c->cond = 0;
	c->n_match = c->n_none = 0;
	c->has_modified = false;
	c->modified_s = c->unmodified_s = 0;
	if (h->n_if_match != 0) {
		if (!list_parse(&match, h->if_match, h->n_if_match, r))
			return false;
		c->cond |= match.any ? COND_MATCH_ANY : COND_MATCH;
		c->n_match = match.n;
	} else if (h->if_unmodified_since.p != NULL &&
	    date_parse(h->if_unmodified_since.p, h->if_unmodified_since.len, &c->unmodified_s))
		c->cond |= COND_UNMODIFIED;
	if (h->n_if_none_match != 0) {
		if (!list_parse(&none, h->if_none_match, h->n_if_none_match, r))
			return false;
		c->cond |= none.any ? COND_NONE_MATCH_ANY : COND_NONE_MATCH;
		c->n_none = none.n;
	} else if (h->if_modified_since.p != NULL)
		c->has_modified = date_parse(h->if_modified_since.p, h->if_modified_since.len, &c->modified_s);
	return true;
}

static bool
among(const struct tag *now, const struct tag *tags, unsigned n)
{
	unsigned	i;

	for (i = 0; i < n; i++)
		if (tag_same(now, &tags[i]))
			return true;
	return false;
}

enum verdict
cond_read(const struct conditions *c, const struct tag *now, int64_t modified_s)
{
	/* steps 1 and 2: cond_parse() left If-Unmodified-Since out beside If-Match */
	if ((c->cond & COND_MATCH) && !among(now, c->match, c->n_match))
		return V_FAILED;
	if ((c->cond & COND_UNMODIFIED) && modified_s > c->unmodified_s)
		return V_FAILED;
	/* steps 3 and 4: likewise If-Modified-Since beside If-None-Match */
	if (c->cond & COND_NONE_MATCH_ANY)
		return V_NOT_MODIFIED;
	if ((c->cond & COND_NONE_MATCH) && among(now, c->none, c->n_none))
		return V_NOT_MODIFIED;
	if (c->has_modified && modified_s <= c->modified_s)
		return V_NOT_MODIFIED;
	return V_OK;
}
