/*
 * store/tree_read.c - see store/tree.h: get, range, cursor, verify.
 *
 * Runs in: committer, tools, worker (through store/read.c).
 *
 * Every walk goes down by page_get(), which ends it where a level does not
 * fall: no file can make one loop, or go deeper than TREE_LEVELS (T2).
 */
#include "config.h"
#include <stdarg.h>
#include <stdio.h>
#include "store/leaf.h"

#define HINT_BYTES	1280u	/* a leaf's head and the heads of its keys, some 280 of them */

_Static_assert(TREE_LEVELS == sizeof(((struct cursor *)0)->page) / sizeof(uint32_t), "a cursor reaches the leaf");

size_t
key_make(uint8_t *out, uint32_t tenant, const void *path, size_t path_len)
{
	uint32_t	be = __builtin_bswap32(tenant);

	memcpy(out, &be, sizeof(be));
	if (path_len != 0)	/* path may be NULL then */
		memcpy(out + sizeof(be), path, path_len);
	return sizeof(be) + path_len;
}

uint32_t
key_tenant(const uint8_t *key)
{
	return key_head(key, 4);
}

/* The child of entry i, one level down. */
static inline const struct page *
page_down(const struct tree *t, const struct page *p, unsigned i)
{
	return page_get(t, page_child(p, i), p->level - 1);
}

int
tree_get(const struct tree *t, const void *key, size_t len, struct doc_val *val)
{
	const struct page	*p;
	unsigned		 i;
	bool			 exact;

	if (t->root == PAGE_NONE)
		return 0;
	if ((p = page_get(t, t->root, -1)) == NULL)
		return -1;
	while (p->level != 0)
		if ((p = page_down(t, p, page_child_index(p, key, len))) == NULL)
			return -1;
	i = leaf_search(p, key, len, &exact);
	if (!exact)
		return 0;
	leaf_val(p, i, val);
	return 1;
}

/* A page that tree_get() would not have to check first; NULL. */
static const uint8_t *
page_ready(const struct tree *t, uint32_t id)
{
	uint32_t	n = id & ~PAGE_CHECKPOINT;

	if (n == id && n < OVERLAY_PAGES)
		return t->overlay + (size_t)n * PAGE_BYTES;
	if (n >= t->npages || (t->checked[n >> 3] >> (n & 7) & 1) == 0)
		return NULL;
	return t->checkpoint + (size_t)n * PAGE_BYTES;
}

const void *
tree_hint(const struct tree *t, const void *key, size_t len)
{
	const struct page	*p;
	const uint8_t		*page;
	unsigned		 level;

	if (t->root == PAGE_NONE || (page = page_ready(t, t->root)) == NULL)
		return NULL;
	p = (const struct page *)(const void *)page;
	for (level = p->level; level > 0; level--) {
		page = page_ready(t, page_child(p, page_child_index(p, key, len)));
		p = (const struct page *)(const void *)page;
		/* a leaf is not looked at: that is what takes so long */
		if (page == NULL || (level > 1 && p->level != level - 1))
			return NULL;
	}
	for (unsigned i = 0; i < HINT_BYTES; i += 64)
		__builtin_prefetch(page + i);
	return page;
}

void
tree_hint_entry(const void *leaf, const void *key, size_t len)
{
	const struct page	*p = leaf;
	unsigned		 i;
	bool			 exact;

	if (p == NULL || p->level != 0 || p->count == 0)	/* 0: memory that was given back */
		return;
	i = leaf_search(p, key, len, &exact);
	if (exact)
		__builtin_prefetch(leaf_row(p, i));
}

/* --- ranges ------------------------------------------------------------------ */

/* Adds what is below `p` and, with `upper`, not below key; without, below key. */
static int
range_side(const struct tree *t, const struct page *p, const uint8_t *key, size_t len, bool upper, struct agg *sum)
{
	struct agg	a;
	unsigned	i;
	bool		exact;

	while (p->level != 0) {
		i = page_child_index(p, key, len);
		if (upper)
			page_agg(p, i + 1, p->count, &a);
		else
			page_agg(p, 0, i, &a);
		agg_add(sum, &a);
		if ((p = page_down(t, p, i)) == NULL)
			return -1;
	}
	i = leaf_search(p, key, len, &exact);
	page_agg(p, upper ? i : 0, upper ? p->count : i, &a);
	agg_add(sum, &a);
	return 0;
}

/* Down to where the two bounds part, then along each of them. */
int
tree_range(const struct tree *t, const void *lo, size_t lolen, const void *hi, size_t hilen, struct agg *sum)
{
	const struct page	*p, *left, *right;
	unsigned		 i, j;
	struct agg		 a;
	bool			 exact;

	memset(sum, 0, sizeof(*sum));
	if (t->root == PAGE_NONE || (hi != NULL && key_cmp(lo, lolen, hi, hilen) >= 0))
		return 0;
	if ((p = page_get(t, t->root, -1)) == NULL)
		return -1;
	if (hi == NULL)
		return range_side(t, p, lo, lolen, true, sum);
	while (p->level != 0) {
		i = page_child_index(p, lo, lolen);
		j = page_child_index(p, hi, hilen);
		if (i != j) {
			page_agg(p, i + 1, j, &a);
			agg_add(sum, &a);
			if ((left = page_down(t, p, i)) == NULL || (right = page_down(t, p, j)) == NULL)
				return -1;
			if (range_side(t, left, lo, lolen, true, sum) == -1)
				return -1;
			return range_side(t, right, hi, hilen, false, sum);
		}
		if ((p = page_down(t, p, i)) == NULL)
			return -1;
	}
	page_agg(p, leaf_search(p, lo, lolen, &exact), leaf_search(p, hi, hilen, &exact), sum);
	return 0;
}

/* --- cursor ------------------------------------------------------------------ */

/* One page down, at entry i.  A tree that was looked at is no deeper than that, but may be another by now (T7). */
static int
cursor_push(struct cursor *c, uint32_t id, unsigned i)
{
	if (c->depth == TREE_LEVELS) {
		(void)page_bad(id);
		return -1;
	}
	c->page[c->depth] = id;
	c->index[c->depth++] = (uint16_t)i;
	return 0;
}

/* Pushes `id` and, below it, the first entry of each page down to the leaf. */
static int
cursor_first(struct cursor *c, uint32_t id, int level)
{
	const struct page	*p;

	for (;;) {
		if ((p = page_get(c->tree, id, level)) == NULL || cursor_push(c, id, 0) == -1)
			return -1;
		if (p->level == 0)
			return 1;
		id = page_child(p, 0);
		level = p->level - 1;
	}
}

/* From behind the last entry of a leaf to the next leaf. */
static int
cursor_climb(struct cursor *c)
{
	const struct page	*p;

	for (c->depth--; c->depth > 0; c->depth--) {
		int	up = c->depth - 1;

		if ((p = page_get(c->tree, c->page[up], -1)) == NULL)
			return -1;
		if (c->index[up] + 1u < p->count)
			return cursor_first(c, page_child(p, ++c->index[up]), p->level - 1);
	}
	return 0;
}

int
cursor_seek(struct cursor *c, const struct tree *t, const void *key, size_t len)
{
	const struct page	*p;
	uint32_t		 id = t->root;
	int			 level = -1;
	unsigned		 i;
	bool			 exact;

	c->tree = t;
	c->depth = 0;
	if (id == PAGE_NONE)
		return 0;
	for (;;) {
		if ((p = page_get(t, id, level)) == NULL)
			return -1;
		i = p->level != 0 ? page_child_index(p, key, len) : leaf_search(p, key, len, &exact);
		if (cursor_push(c, id, i) == -1)
			return -1;
		if (p->level == 0)
			return i < p->count ? 1 : cursor_climb(c);
		id = page_child(p, i);
		level = p->level - 1;
	}
}

int
cursor_next(struct cursor *c)
{
	const struct page	*p;

	if (c->depth == 0)
		return 0;
	if ((p = page_get(c->tree, c->page[c->depth - 1], 0)) == NULL)
		return -1;
	if (++c->index[c->depth - 1] < p->count)
		return 1;
	return cursor_climb(c);
}

void
cursor_entry(struct cursor *c, const uint8_t **key, size_t *len, struct doc_val *val)
{
	const struct page	*p = page_get(c->tree, c->page[c->depth - 1], 0);
	unsigned		 i = c->index[c->depth - 1];

	*key = c->key;
	*len = 0;
	memset(val, 0, sizeof(*val));
	if (p == NULL)		/* it was a leaf a moment ago (T7) */
		return;
	*len = leaf_key(p, i, c->key);
	leaf_val(p, i, val);
}

/* --- verify ------------------------------------------------------------------ */

struct bound {			/* an inclusive lower or exclusive upper bound of keys; NULL: none */
	const uint8_t	*key;
	size_t		 len;
};

struct verify {
	const struct tree	*t;
	char			*err;
	size_t			 errlen;
};

__attribute__((format(printf, 3, 4))) static int
verify_fail(struct verify *v, uint32_t id, const char *fmt, ...)
{
	va_list	ap;
	int	n;

	n = snprintf(v->err, v->errlen, "%s page %u: ", (id & PAGE_CHECKPOINT) != 0 ? "checkpoint" : "overlay",
	    id & ~PAGE_CHECKPOINT);
	if (n < 0 || (size_t)n >= v->errlen)
		return -1;
	va_start(ap, fmt);
	vsnprintf(v->err + n, v->errlen - (size_t)n, fmt, ap);
	va_end(ap);
	return -1;
}

static int
verify_bounds(struct verify *v, uint32_t id, const struct page *p, struct bound lo, struct bound hi)
{
	unsigned	 first = p->level != 0, last = p->count - 1u;
	struct bound	 a, b;
	uint8_t		 buf[2][KEY_MAX];

	if (p->count <= first)
		return 0;
	if (p->level != 0) {
		a = (struct bound){ page_key(p, first), p->slot[first].len };
		b = (struct bound){ page_key(p, last), p->slot[last].len };
	} else {
		a = (struct bound){ buf[0], leaf_key(p, first, buf[0]) };
		b = (struct bound){ buf[1], leaf_key(p, last, buf[1]) };
	}
	if (lo.key != NULL && key_cmp(a.key, a.len, lo.key, lo.len) < 0)
		return verify_fail(v, id, "a key is below the bound in its parent");
	if (hi.key != NULL && key_cmp(b.key, b.len, hi.key, hi.len) >= 0)
		return verify_fail(v, id, "a key is above the bound in its parent");
	return 0;
}

/* As deep as the tree, TREE_LEVELS at most. */
static int
verify_page(struct verify *v, uint32_t id, int level, struct bound lo, struct bound hi, struct agg *sum)
{
	const struct page	*p;
	struct bound		 to;
	struct agg		 said, found;

	if ((p = page_get(v->t, id, level)) == NULL)
		return verify_fail(v, id, "damaged");
	if (!page_sound((const uint8_t *)p))
		return verify_fail(v, id, "does not hold together");
	if (verify_bounds(v, id, p, lo, hi) == -1)
		return -1;
	if (p->level == 0) {
		page_agg(p, 0, p->count, sum);
		return 0;
	}
	memset(sum, 0, sizeof(*sum));
	for (unsigned i = 0; i < p->count; i++) {
		to = hi;
		if (i + 1u < p->count)
			to = (struct bound){ page_key(p, i + 1), p->slot[i + 1].len };
		if (i > 0)
			lo = (struct bound){ page_key(p, i), p->slot[i].len };
		if (verify_page(v, page_child(p, i), p->level - 1, lo, to, &found) == -1)
			return -1;
		page_child_agg(p, i, &said);
		if (said.count != found.count || said.bytes != found.bytes || said.max_seq != found.max_seq)
			return verify_fail(v, id, "the sums of entry %u are not those of its child", i);
		agg_add(sum, &found);
	}
	return 0;
}

int
tree_verify(const struct tree *t, char *err, size_t errlen)
{
	struct verify	v = { t, err, errlen };
	struct agg	sum;

	if (errlen != 0)
		err[0] = '\0';
	if (t->root == PAGE_NONE)
		return 0;
	return verify_page(&v, t->root, -1, (struct bound){ 0 }, (struct bound){ 0 }, &sum);
}
