/*
 * store/page.h - one page of the document tree: its layout, searched and changed.
 *
 * Runs in: committer (all), worker (the reading half, through store/tree.h).
 *
 * Leaves are another matter, see store/leaf.h; they share the header's first
 * 29 bytes.  An interior page is a header of 64 bytes, an array of slots in
 * order of key, free space, and the heap of entries, which grows down from the
 * end.  An entry is its payload (child id and struct agg), then its key, with no
 * alignment.  store/README.md draws both.
 *
 * A lookup reads slots, not entries: `skip` leading bytes are common to all
 * keys of the page (a copy of the first ones stands in the header), and each
 * slot holds the next four bytes of its key as a number (`head`).  Only keys
 * that are the same up to there are compared in the heap.
 *
 * T1  Keys ascend strictly.  The key of an interior page's first entry is
 *     never compared (its child takes all that is below the second) and is
 *     stored empty; skip, prefix and head do not count it.
 * T2  All leaves are on level 0, and a child is one level below its parent.
 * T3  No page is empty; an empty tree has no page.
 * T4  The aggregate of an interior entry is exact.
 * T5  A page is changed only while its gen is the one being built.
 * T6  A checkpoint page refers to pages before it in the same file only.
 * T7  Such a page may be other bytes than those that were looked at: reading
 *     stays within PAGE_REACH, and what is changed is a copy that was looked at.
 */
#ifndef STORE_PAGE_H
#define STORE_PAGE_H
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include "store/format.h"
#include "store/overlay.h"
#include "store/tree.h"

#define TREE_LEVELS	24	/* as struct cursor: a root's level is below it */

enum page_kind {		/* 0, what zeroed memory says, is no page */
	PAGE_LEAF = 1,
	PAGE_INTERIOR = 2,
};

struct page_slot {
	uint32_t	head;		/* key bytes skip .. skip + 3, big-endian, zeros behind the key's end */
	uint16_t	at;		/* of the entry in the page */
	uint16_t	len;		/* of its key */
};

struct page {
	uint32_t	crc;		/* checkpoint: CRC-32C of the page with crc = 0; overlay: 0 */
	uint8_t		kind;		/* enum page_kind */
	uint8_t		level;		/* 0: leaf */
	uint16_t	count;		/* slots */
	uint64_t	gen;		/* generation that wrote it; checkpoint: 0 */
	uint32_t	base;		/* number of the checkpoint its tree stands on (or, in one, its own) */
	uint16_t	heap;		/* lowest byte in use by entries */
	uint16_t	dead;		/* bytes from there on that no entry uses */
	uint16_t	skip;		/* leading bytes that all keys have in common, or fewer */
	uint16_t	next;		/* slot behind the last insert: recognises ascending keys */
	uint8_t		run;		/* inserts so far that came each behind the one before */
	uint8_t		prefix[35];	/* interior: the first of these skip bytes */
	struct page_slot slot[];
};
_Static_assert(sizeof(struct page_slot) == 8 && sizeof(struct page) == 64, "format");

#define CHILD_BYTES	(4u + sizeof(struct agg))	/* payload of an interior entry: id, aggregate */
#define RUN_ASCENDING	4	/* inserts in a row that make us expect more */
#define PAGE_ROOM	(PAGE_BYTES - sizeof(struct page))
_Static_assert(3 * (sizeof(struct page_slot) + CHILD_BYTES + KEY_MAX) <= PAGE_ROOM,
    "a split needs three entries of any size to fit");

/*
 * A checkpoint's page is looked at once, and may come from the disk again with
 * other bytes.  Of a leaf nothing is read outside of it, whatever it says
 * (leaf.c); the slots and entries of an interior page are believed: 65,535 of
 * 8 bytes, and 64 KiB.  Behind the last page there is as much to read, and a
 * child is looked for where there are pages.
 */
#define PAGE_REACH	((size_t)1 << 20)

union page_buf {		/* a page built in private memory */
	struct page	page;
	uint8_t		bytes[PAGE_BYTES];
};

/* --- reading ---------------------------------------------------------------- */

/* Slow half of page_get(): bounds, checksum, structure of a checkpoint page.  NULL: EILSEQ. */
const struct page	*page_first_look(const struct tree *, uint32_t id);
/* Looks at checkpoint page `id` again, whoever looked before: true where all of it is right. */
bool			 page_whole(const struct tree *, uint32_t id);
/* Copies checkpoint page `id` to where it may be changed, and looks at the copy, whoever looked before.  false: damaged. */
bool			 page_copy_whole(struct page *to, const struct tree *, uint32_t id);
/* Notes and returns the damage: NULL, errno EILSEQ. */
const struct page	*page_bad(uint32_t id);
/* CRC-32C as stored in crc. */
uint32_t		 page_crc(const struct page *);
/* Sum over the entries from .. to - 1, of either kind of page. */
void			 page_agg(const struct page *, unsigned from, unsigned to, struct agg *);

static inline const uint8_t *
page_entry(const struct page *p, unsigned i)
{
	return (const uint8_t *)p + p->slot[i].at;
}

static inline const uint8_t *
page_key(const struct page *p, unsigned i)
{
	return page_entry(p, i) + CHILD_BYTES;
}

static inline uint32_t
page_child(const struct page *p, unsigned i)
{
	uint32_t	id;

	memcpy(&id, page_entry(p, i), sizeof(id));
	return id;
}

static inline void
page_child_set(struct page *p, unsigned i, uint32_t id)
{
	memcpy((uint8_t *)p + p->slot[i].at, &id, sizeof(id));
}

static inline void
page_child_agg(const struct page *p, unsigned i, struct agg *a)
{
	memcpy(a, page_entry(p, i) + 4, sizeof(*a));
}

/*
 * The page `id`, which must be on `level` (-1: any).  A checkpoint page is
 * trusted once its bit in `checked` is set, and then only as far as its own
 * bytes: that levels fall by one on each edge is looked at every time, and ends
 * every walk, whatever a file says.
 */
static inline const struct page *
page_get(const struct tree *t, uint32_t id, int level)
{
	const struct page	*p;
	uint32_t		 n = id & ~PAGE_CHECKPOINT;

	if (n == id && n < OVERLAY_PAGES)
		p = (const struct page *)(t->overlay + (size_t)n * PAGE_BYTES);
	else if (n < t->npages && (t->checked[n >> 3] >> (n & 7) & 1) != 0)
		p = (const struct page *)(t->checkpoint + (size_t)n * PAGE_BYTES);
	else if ((p = page_first_look(t, id)) == NULL)
		return NULL;
	if (level != -1 && p->level != level)
		return page_bad(id);
	return p;
}

/* memcmp(3) order, a prefix before what it begins. */
static inline int
key_cmp(const uint8_t *a, size_t alen, const uint8_t *b, size_t blen)
{
	size_t		n = alen < blen ? alen : blen, i = 0;
	uint64_t	x, y;
	uint32_t	v, w;

	for (; i + 8 <= n; i += 8) {
		memcpy(&x, a + i, 8);
		memcpy(&y, b + i, 8);
		if (x != y)
			return __builtin_bswap64(x) < __builtin_bswap64(y) ? -1 : 1;
	}
	if ((n & 4) != 0) {
		memcpy(&v, a + i, 4);
		memcpy(&w, b + i, 4);
		if (v != w)
			return __builtin_bswap32(v) < __builtin_bswap32(w) ? -1 : 1;
		i += 4;
	}
	for (; i < n; i++)
		if (a[i] != b[i])
			return a[i] < b[i] ? -1 : 1;
	return alen < blen ? -1 : alen > blen;
}

static inline uint32_t
key_head(const uint8_t *key, size_t len)
{
	uint32_t	h = 0;

	if (len >= 4) {
		memcpy(&h, key, 4);
		return __builtin_bswap32(h);
	}
	for (size_t i = 0; i < len; i++)
		h |= (uint32_t)key[i] << (24 - 8 * i);
	return h;
}

/* Compares `key` with the key of slot i, whose prefix and head are the same. */
static inline int
page_cmp_tied(const struct page *p, unsigned i, const uint8_t *key, size_t len)
{
	size_t	n = p->slot[i].len, told = p->skip + 4u;

	if (len <= told && n <= told)	/* the head says all but the length */
		return len < n ? -1 : len > n;
	return key_cmp(key + p->skip, len - p->skip, page_key(p, i) + p->skip, n - p->skip);
}

/*
 * The first of entries from .. count - 1, one at least, whose key is not below
 * `key`, which has the page's prefix; *exact: it is `key`.  Heads are numbers of
 * four bytes, `stride` apart; tied() compares `key` with a key of the same head.
 * Always inline: stride and tied() are constants, and this is what a GET does most.
 */
__attribute__((always_inline)) static inline unsigned
page_find(const struct page *p, const void *heads, size_t stride, unsigned from, unsigned count, const uint8_t *key,
    size_t len, int (*tied)(const struct page *, unsigned, const uint8_t *, size_t), bool *exact)
{
#define HEAD(i)	(*(const uint32_t *)(const void *)((const uint8_t *)heads + (i) * stride))
	uint32_t	head = key_head(key + p->skip, len - p->skip);
	unsigned	at = from, n = count - from, end;
	int		c;

	for (; n > 1; n -= n / 2)	/* no branch to mispredict */
		at += HEAD(at + n / 2 - 1) < head ? n / 2 : 0;
	at += HEAD(at) < head;
	if (at == count || HEAD(at) != head)
		return at;
	for (end = at + 1; end < count && HEAD(end) == head; end++)
		;
	while (at < end) {		/* the same head in at .. end - 1: by whole keys */
		n = at + (end - at) / 2;
		c = tied(p, n, key, len);
		if (c == 0) {
			*exact = true;
			return n;
		}
		if (c < 0)
			end = n;
		else
			at = n + 1;
	}
	return at;
#undef HEAD
}

/*
 * Interior: the first slot whose key is not below `key`, among those that count (T1),
 * 1 .. count; *exact: it is `key`.  1 also where there is no entry, as a page of the
 * file may say by now (T7).
 */
static inline unsigned
page_search(const struct page *p, const uint8_t *key, size_t len, bool *exact)
{
	const unsigned	 count = p->count;
	const uint8_t	*prefix;
	int		 c;

	*exact = false;
	if (count <= 1)
		return 1;
	prefix = p->skip <= sizeof(p->prefix) ? p->prefix : page_key(p, 1);
	if ((c = key_cmp(key, len < p->skip ? len : p->skip, prefix, p->skip)) != 0)
		return c < 0 ? 1 : count;
	return page_find(p, &p->slot[0].head, sizeof(p->slot[0]), 1, count, key, len, page_cmp_tied, exact);
}

/* The entry of an interior page whose child may hold `key`. */
static inline unsigned
page_child_index(const struct page *p, const uint8_t *key, size_t len)
{
	bool		exact;
	unsigned	i = page_search(p, key, len, &exact);

	return exact ? i : i - 1;
}

static inline void
agg_add(struct agg *a, const struct agg *b)
{
	a->count += b->count;
	a->bytes += b->bytes;
	if (b->max_seq > a->max_seq)
		a->max_seq = b->max_seq;
}

/* --- writing ---------------------------------------------------------------- */

/* An empty one, of either kind. */
void	page_init(struct page *, unsigned level, uint64_t gen, uint32_t base);
/* What of a page is in use, to where there is another one's memory.  Either kind. */
void	page_copy(struct page *, const struct page *from);
/* Notes an insert as entry i in next and run.  Either kind. */
void	page_note_run(struct page *, unsigned i);
/* How many bytes, of max, the two have in common. */
size_t	key_common(const uint8_t *a, const uint8_t *b, size_t max);
/* What follows is about interior pages only.  Puts the payload of an entry together. */
void	page_child_pack(uint8_t out[CHILD_BYTES], uint32_t id, const struct agg *);
/* What one more entry with such a key takes. */
size_t	page_cost(const struct page *, size_t len);
/* What is left, wherever it lies. */
size_t	page_room(const struct page *);
/* Inserts as entry i; there is room. */
void	page_insert(struct page *, unsigned i, const uint8_t *key, size_t len, const void *payload);
void	page_erase(struct page *, unsigned i, unsigned n);
void	page_set(struct page *, unsigned i, const void *payload);
/* Bulk building: entries in order, then page_finish(), before anything searches. */
void	page_append(struct page *, const uint8_t *key, size_t len, const void *payload);
void	page_finish(struct page *);
/* Length of the shortest key k with a < k <= b: the first bytes of b. */
size_t	key_between(const uint8_t *a, size_t alen, const uint8_t *b, size_t blen);
/*
 * Inserts as entry i where there is no room: the upper entries move to `right`
 * (an initialised page of the same level); sep gets the lower bound of those.
 */
void	page_split(struct page *, struct page *right, unsigned i, const uint8_t *key, size_t len,
	    const void *payload, uint8_t sep[KEY_MAX], size_t *seplen);

#endif
