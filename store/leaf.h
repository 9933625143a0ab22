/*
 * store/leaf.h - a leaf of the document tree: many documents in one page.
 *
 * Runs in: committer (all), worker (the reading half, through store/tree.h).
 *
 * What the documents of a page have in common stands once, in its head: the
 * first `skip` bytes of their keys, and for each field of struct doc_val (a
 * column) the lowest value and how many bytes what is above that needs.  So
 * neighbours, which are of one kind as a rule, take some 15 bytes each, where
 * key and struct doc_val have 50.  That is what a checkpoint costs the disk.
 *
 *	    0  head (struct page), 29 bytes; its prefix[] begins with
 *	   29  u8 width[LEAF_COLUMNS]: bytes of each column in a row, 0 .. 8
 *	   40  u64 low[LEAF_COLUMNS]: what is added to it; with any bytes of that width, a value of the field
 *	  120  the `skip` bytes; zeros to a multiple of 4
 *	    .  u32 head of each key: its bytes skip .. skip + 3, big-endian, 0 behind its end
 *	    .  a row for each key, in the same order
 *	       free
 *	 heap  what is left of keys longer than skip + 4, in any order
 *	 4088  zeros, so that a column is read eight bytes at once
 *
 * A change that the head allows for is made in place.  For another one the page
 * is taken apart and put together with a new head; where that does not fit, the leaf
 * is cut in two first (tree_write.c).  Widths are whole bytes: what grows (seq,
 * time) outgrows them rarely.
 */
#ifndef STORE_LEAF_H
#define STORE_LEAF_H
#include "store/page.h"

enum leaf_column {
	COL_LEN,		/* of the whole key */
	COL_AT,			/* where the rest of the key is; 2 bytes wide, or 0: no key has one */
	COL_SEQ, COL_TIME, COL_RUN, COL_SEGMENT, COL_OFFSET, COL_REC_LEN, COL_BODY_LEN, COL_FLAGS,
	LEAF_COLUMNS
};

#define LEAF_WIDTH	29u
#define LEAF_LOW	40u
#define LEAF_PREFIX	(LEAF_LOW + 8u * LEAF_COLUMNS)
#define LEAF_END	(PAGE_BYTES - 8u)
#define LEAF_ROOM	(LEAF_END - LEAF_PREFIX - 3u)	/* whatever the prefix's padding */
#define LEAF_TOLD	4u				/* bytes of a key in its head */
#define LEAF_MAX	(LEAF_ROOM / LEAF_TOLD)		/* entries of any page */
#define LEAF_ROW_MAX	(2u + 2u + 8u + 8u + 6u * 4u)
_Static_assert(offsetof(struct page, prefix) == LEAF_WIDTH && LEAF_WIDTH + LEAF_COLUMNS <= LEAF_LOW, "format");
_Static_assert(3 * (LEAF_TOLD + LEAF_ROW_MAX + KEY_MAX) <= LEAF_ROOM, "three entries of any size fit");

/* --- reading ---------------------------------------------------------------- */

/* Inside, in order, and nothing that reading would trip over. */
bool	leaf_sound(const struct page *);
void	leaf_agg(const struct page *, unsigned from, unsigned to, struct agg *);
/*
 * Key i into out, which has KEY_MAX bytes; its length.  0: the page is no sound one (any more);
 * nothing behind it was looked at.
 */
size_t	leaf_key(const struct page *, unsigned i, uint8_t *out);
/* All zero where the page is no sound one (any more). */
void	leaf_val(const struct page *, unsigned i, struct doc_val *);
/* The first entry whose key is not below `key`; *exact: it is `key`. */
unsigned leaf_search(const struct page *, const uint8_t *key, size_t len, bool *exact);
/* Where the row of entry i is, for whoever wants it to be in the cache. */
const uint8_t *leaf_row(const struct page *, unsigned i);
/* Bytes from the page's first that are in use: header, heads, rows. */
size_t	leaf_front(const struct page *);

static inline void
agg_of_val(struct agg *a, const struct doc_val *v)
{
	a->count = (v->flags & DOC_TOMBSTONE) == 0;
	a->bytes = a->count != 0 ? v->body_len : 0;
	a->max_seq = v->seq;
}

/* --- writing ---------------------------------------------------------------- */

/* Entries on their way into pages: taken out of one, or from a walk of the tree. */
struct leaf_item {
	struct doc_val	val;
	uint32_t	key;		/* where in keys */
	uint32_t	len;
};

struct leaf_stat {		/* what the head of a page of some of them would say */
	unsigned	n;
	size_t		skip;
	size_t		rest;		/* bytes of keys behind skip + 4 */
	uint64_t	low[LEAF_COLUMNS], high[LEAF_COLUMNS];
};

struct leaf_items {		/* large, touched as far as it is used */
	unsigned	 n;
	uint32_t	 used;		/* of keys */
	struct leaf_stat stat;		/* of all, by leaf_items_add() */
	struct leaf_item item[LEAF_MAX + 1];
	uint8_t		 keys[(LEAF_MAX + 1) * KEY_MAX];
};

void	leaf_items_clear(struct leaf_items *);
/* Adds one behind the others; false: these would not fit into one page any more, and it is not added. */
bool	leaf_items_add(struct leaf_items *, const uint8_t *key, size_t len, const struct doc_val *);
/* Makes a page (page_init()) of entries from .. to - 1.  false: they do not fit. */
bool	leaf_pack(struct page *, const struct leaf_items *, unsigned from, unsigned to);

/* Sets the value of entry i, or inserts it as that.  false: it takes more than a page, which is unchanged. */
bool	leaf_put(struct page *, unsigned i, bool exact, const uint8_t *key, size_t len, const struct doc_val *);
void	leaf_erase(struct page *, unsigned i, unsigned n);
/*
 * Cuts a leaf of two entries or more: in halves, but where keys come in order, in front of entry i,
 * which the next one is to become.  The upper entries move to `right` (as in
 * page_split()).  false: it is no sound page and stays what it is; `right` holds anything.
 */
bool	leaf_cut(struct page *, struct page *right, unsigned i, uint8_t sep[KEY_MAX], size_t *seplen);

#endif
