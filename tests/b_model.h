/*
 * tests/b_model.h - what a document tree is compared with: a sorted array.
 *
 * Runs in: b_tree, b_overlay, b_checkpoint.
 */
#ifndef TESTS_B_MODEL_H
#define TESTS_B_MODEL_H
#include <sys/mman.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "shm/proc.h"
#include "store/overlay.h"
#include "store/page.h"
#include "store/tree.h"

/* --- random ---------------------------------------------------------------------- */

static uint64_t	rnd_state;

static inline uint64_t
rnd(uint64_t n)			/* 0 .. n - 1 */
{
	rnd_state ^= rnd_state << 13;
	rnd_state ^= rnd_state >> 7;
	rnd_state ^= rnd_state << 17;
	return rnd_state * 0x2545f4914f6cdd1dull % n;
}

enum shape {			/* of keys */
	SHAPE_DOCS,		/* like documents: few tenants, common folders */
	SHAPE_TINY,		/* 1 to 3 bytes out of few, 0x00 and 0xff among them */
	SHAPE_LONG,		/* up to KEY_MAX, long common parts */
	SHAPE_ZEROS,		/* differ in trailing zeros only */
	SHAPES
};

static inline size_t
rnd_key(uint8_t *key, enum shape shape, unsigned wide)
{
	static const uint8_t	few[] = { 0x00, 0x01, 'a', 0x7f, 0x80, 0xff };
	char			path[64];
	size_t			len;

	switch (shape) {
	case SHAPE_DOCS:
		len = (size_t)snprintf(path, sizeof(path), "%s%llu", rnd(3) ? "notes/2026/" : "a/", (unsigned long long)rnd(wide));
		return key_make(key, (uint32_t)rnd(3), path, len);
	case SHAPE_TINY:
		len = 1 + rnd(3);
		for (size_t i = 0; i < len; i++)
			key[i] = few[rnd(sizeof(few))];
		return len;
	case SHAPE_LONG:
		len = rnd(2) ? KEY_MAX : 900 + rnd(KEY_MAX - 900 + 1);
		memset(key, 'x', len);
		for (size_t n = rnd(wide), i = rnd(3) ? len : 40; n > 0; n /= 10)
			key[--i] = (uint8_t)('0' + n % 10);
		return len;
	default:
		len = 1 + rnd(300);
		memset(key, 0, len);
		key[0] = few[rnd(2)];
		return len;
	}
}

/* --- model ----------------------------------------------------------------------- */

struct model_entry {
	uint8_t		*key;
	size_t		 len;
	struct doc_val	 val;
};

struct model {
	struct model_entry	*e;
	size_t			 n, cap;
};

static inline int
model_cmp(const uint8_t *a, size_t alen, const uint8_t *b, size_t blen)
{
	int	c = memcmp(a, b, alen < blen ? alen : blen);

	return c != 0 ? c : alen < blen ? -1 : alen > blen;
}

/* The first entry not below key. */
static inline size_t
model_find(const struct model *m, const void *key, size_t len)
{
	size_t	lo = 0, hi = m->n;

	while (lo < hi) {
		size_t	mid = (lo + hi) / 2;

		if (model_cmp(m->e[mid].key, m->e[mid].len, key, len) < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

static inline bool
model_has(const struct model *m, const void *key, size_t len, size_t *at)
{
	*at = model_find(m, key, len);
	return *at < m->n && model_cmp(m->e[*at].key, m->e[*at].len, key, len) == 0;
}

static inline void
model_put(struct model *m, const void *key, size_t len, const struct doc_val *val, struct doc_val *old)
{
	size_t	at;

	memset(old, 0, sizeof(*old));
	if (model_has(m, key, len, &at)) {
		*old = m->e[at].val;
		m->e[at].val = *val;
		return;
	}
	if (m->n == m->cap) {
		m->cap = m->cap != 0 ? 2 * m->cap : 64;
		m->e = realloc(m->e, m->cap * sizeof(*m->e));
		assert_non_null(m->e);
	}
	memmove(&m->e[at + 1], &m->e[at], (m->n - at) * sizeof(*m->e));
	m->e[at].key = malloc(len);
	memcpy(m->e[at].key, key, len);
	m->e[at].len = len;
	m->e[at].val = *val;
	m->n++;
}

static inline void
model_remove(struct model *m, size_t from, size_t to)
{
	for (size_t i = from; i < to; i++)
		free(m->e[i].key);
	if (to < m->n)
		memmove(&m->e[from], &m->e[to], (m->n - to) * sizeof(*m->e));
	m->n -= to - from;
}

static inline void
model_free(struct model *m)
{
	if (m->n > 0)
		model_remove(m, 0, m->n);
	free(m->e);
	memset(m, 0, sizeof(*m));
}

static inline void
model_copy(struct model *to, const struct model *m)
{
	struct doc_val	old;

	memset(to, 0, sizeof(*to));
	for (size_t i = 0; i < m->n; i++)
		model_put(to, m->e[i].key, m->e[i].len, &m->e[i].val, &old);
}

static inline void
model_agg(const struct model *m, size_t from, size_t to, struct agg *a)
{
	memset(a, 0, sizeof(*a));
	for (size_t i = from; i < to; i++) {
		if ((m->e[i].val.flags & DOC_TOMBSTONE) == 0) {
			a->count++;
			a->bytes += m->e[i].val.body_len;
		}
		if (m->e[i].val.seq > a->max_seq)
			a->max_seq = m->e[i].val.seq;
	}
}

static inline void
rnd_val(struct doc_val *v, uint64_t seq)
{
	memset(v, 0, sizeof(*v));
	v->seq = seq;
	v->time_ms = rnd(UINT64_MAX);
	v->run = (uint32_t)rnd(UINT32_MAX);
	v->segment = 1 + (uint32_t)rnd(9);
	v->offset = (uint32_t)rnd(UINT32_MAX);
	v->rec_len = 64;
	v->body_len = (uint32_t)rnd(100000);
	if (rnd(5) == 0) {
		v->flags = DOC_TOMBSTONE;
		v->body_len = (uint32_t)rnd(2) * 7;	/* must not count, whatever it is */
	}
}

/* --- comparing --------------------------------------------------------------------- */

static inline void
assert_val(const struct doc_val *a, const struct doc_val *b)
{
	assert_memory_equal(a, b, sizeof(*a));
}

static inline void
assert_agg(const struct agg *a, const struct agg *b)
{
	assert_int_equal(a->count, b->count);
	assert_int_equal(a->bytes, b->bytes);
	assert_int_equal(a->max_seq, b->max_seq);
}

/* Every entry, in order, and nothing else. */
static inline void
assert_tree_is(const struct tree *t, const struct model *m)
{
	struct cursor	 c;
	struct doc_val	 val;
	const uint8_t	*key;
	size_t		 len, i = 0;
	int		 found;
	char		 err[200];

	if (tree_verify(t, err, sizeof(err)) == -1)
		fail_msg("tree_verify: %s", err);
	for (found = cursor_seek(&c, t, "", 0); found == 1; found = cursor_next(&c), i++) {
		cursor_entry(&c, &key, &len, &val);
		assert_true(i < m->n);
		assert_int_equal(len, m->e[i].len);
		assert_memory_equal(key, m->e[i].key, len);
		assert_val(&val, &m->e[i].val);
	}
	assert_int_equal(found, 0);
	assert_int_equal(i, m->n);
	assert_int_equal(cursor_next(&c), 0);
}

/* Some keys, there or not; some ranges; some places of a cursor. */
static inline void
assert_tree_answers(const struct tree *t, const struct model *m, enum shape shape, unsigned wide, unsigned times)
{
	uint8_t		 lo[KEY_MAX], hi[KEY_MAX];
	const uint8_t	*key;
	size_t		 lolen, hilen, at, from, to, len;
	struct doc_val	 val;
	struct agg	 a, b;
	struct cursor	 c;
	bool		 has;

	while (times-- > 0) {
		lolen = rnd_key(lo, shape, wide);
		hilen = rnd_key(hi, shape, wide);
		has = model_has(m, lo, lolen, &at);
		assert_int_equal(tree_get(t, lo, lolen, &val), has);
		if (has)
			assert_val(&val, &m->e[at].val);
		assert_int_equal(cursor_seek(&c, t, lo, lolen), at < m->n);
		if (at < m->n) {
			cursor_entry(&c, &key, &len, &val);
			assert_int_equal(model_cmp(key, len, m->e[at].key, m->e[at].len), 0);
		}
		from = rnd(10) ? at : 0;
		to = rnd(10) ? model_find(m, hi, hilen) : m->n;
		assert_int_equal(tree_range(t, lo, from == at ? lolen : 0, to == m->n ? NULL : hi, hilen, &a), 0);
		model_agg(m, from, to, &b);
		assert_agg(&a, &b);
	}
}

/* --- a tree in an overlay of its own --------------------------------------------------- */

struct bed {
	int			fd;
	struct overlay		o;
	struct tree_writer	w;
	uint64_t		seq;
};

static inline void
bed_open(struct bed *b)
{
	memset(b, 0, sizeof(*b));
	b->fd = memfd_create("overlay", MFD_CLOEXEC);
	assert_int_not_equal(b->fd, -1);
	assert_int_equal(ftruncate(b->fd, (off_t)OVERLAY_BYTES), 0);
	assert_int_equal(overlay_open(&b->o, b->fd), 0);
	b->w.overlay = &b->o;
	b->w.t.overlay = b->o.base;
	b->w.gen = b->o.first_gen;
}

static inline void
bed_close(struct bed *b)
{
	overlay_close(&b->o);
	close(b->fd);
}

/* Publishes what was built, as the committer does, and starts the next generation. */
static inline struct root
bed_publish(struct bed *b, uint64_t oldest_pin)
{
	struct root	r = { .gen = b->w.gen, .max_seq = b->seq, .page = b->w.t.root, .checkpoint = b->w.base };

	root_publish(overlay_roots(&b->o), &r);
	b->w.gen++;
	overlay_reclaim(&b->o, oldest_pin, r.gen);
	return r;
}

static inline void
bed_put(struct bed *b, struct model *m, const uint8_t *key, size_t len)
{
	struct doc_val	val, old, model_old;

	rnd_val(&val, ++b->seq);
	if (rnd(8) == 0)	/* compaction and recovery bring old ones, too */
		val.seq = 1 + rnd(b->seq);
	assert_int_equal(tree_put(&b->w, key, len, &val, &old), 0);
	model_put(m, key, len, &val, &model_old);
	assert_val(&old, &model_old);
}

struct told {			/* what each() of tree_remove() must say */
	const struct model	*m;
	size_t			 next;
};

static inline void
bed_told(void *arg, const uint8_t *key, size_t len, const struct doc_val *val)
{
	struct told			*t = arg;
	const struct model_entry	*e = &t->m->e[t->next++];

	assert_int_equal(model_cmp(key, len, e->key, e->len), 0);
	assert_val(val, &e->val);
}

/* Removes lo <= key < hi (hi NULL: to the end). */
static inline void
bed_remove(struct bed *b, struct model *m, const uint8_t *lo, size_t lolen, const uint8_t *hi, size_t hilen)
{
	size_t		from = model_find(m, lo, lolen), to = hi != NULL ? model_find(m, hi, hilen) : m->n;
	struct told	told = { m, from };

	assert_int_equal(tree_remove(&b->w, lo, lolen, hi, hilen, bed_told, &told), 0);
	if (to < from)
		to = from;
	assert_int_equal(told.next, to);
	model_remove(m, from, to);
}

/* Puts until there are n. */
static inline void
bed_fill(struct bed *b, struct model *m, enum shape shape, unsigned wide, size_t n)
{
	uint8_t	key[KEY_MAX];

	while (m->n < n)
		bed_put(b, m, key, rnd_key(key, shape, wide));
}

/* One random change. */
static inline void
bed_step(struct bed *b, struct model *m, enum shape shape, unsigned wide)
{
	uint8_t	lo[KEY_MAX + 1], hi[KEY_MAX];
	size_t	lolen = rnd_key(lo, shape, wide), hilen;

	if (rnd(150) != 0) {
		bed_put(b, m, lo, lolen);
		return;
	}
	switch (rnd(6)) {
	case 0:			/* a wide range, sometimes to the end, rarely all */
		hilen = rnd_key(hi, shape, wide);
		if (rnd(4) == 0)
			bed_remove(b, m, lo, rnd(4) ? lolen : 0, rnd(4) ? hi : NULL, hilen);
		break;
	default:		/* this key, and what it begins up to the next but `n` */
		hilen = model_find(m, lo, lolen) + rnd(rnd(4) ? 10 : 200);
		if (hilen < m->n)
			bed_remove(b, m, lo, lolen, m->e[hilen].key, m->e[hilen].len);
		break;
	}
}

#endif
