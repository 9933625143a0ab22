/*
 * store/tree.h - the document tree: a copy-on-write B+tree with aggregates.
 *
 * Runs in: committer (all), worker (the reading half, through store/read.c).
 *
 * Pages are PAGE_BYTES long and live in two places: the checkpoint file
 * (id & PAGE_CHECKPOINT, immutable, mapped read-only, each page checksummed and
 * checked when this process first looks at it) and the overlay (shared
 * memory, written by the committer only).  A page that a published root can
 * reach is never changed: a change copies the path from the leaf to the root.
 *
 * Leaf entry: key, struct doc_val (packed: store/leaf.h).  Interior entry: lowest key, child id,
 * aggregate of the child's subtree.  So count, bytes and highest seq of any key
 * range cost two descents.
 */
#ifndef STORE_TREE_H
#define STORE_TREE_H
#include <stdbool.h>
#include <stddef.h>
#include "store/format.h"

/* --- reading: both processes ---------------------------------------------- */

/* A root and where its pages are.  By value; valid while the pages are (pin, map). */
struct tree {
	const uint8_t	*overlay;	/* base of the overlay mapping: page id * PAGE_BYTES */
	const uint8_t	*checkpoint;	/* base of the mapped checkpoint file, or NULL */
	uint64_t	 npages;	/* of the checkpoint */
	uint8_t		*checked;	/* one bit per checkpoint page, private to this process */
	uint32_t	 root;
};

/*
 * All reading functions return -1 with errno EILSEQ where a checkpoint page is
 * damaged: nothing of it was used, tree_bad_page names it (a checkpoint page, by
 * number; of this thread, the checkpoint's does not mix with the committer's).
 */
extern _Thread_local uint64_t	tree_bad_page;

/* 1 found (tombstones too), 0 not there, -1 damaged. */
int	tree_get(const struct tree *, const void *key, size_t len, struct doc_val *);
/*
 * Asks for the memory that a tree_get() of this key will look at, so that it comes while
 * others are worked on: the leaf's slots, and, given what that returned some time later, the entry.
 * The leaf may have been replaced meanwhile: it is a hint.  Not across a publication.
 */
const void *tree_hint(const struct tree *, const void *key, size_t len);
void	tree_hint_entry(const void *leaf, const void *key, size_t len);
/* Aggregate over lo <= key < hi; hi NULL: to the end. 0 or -1. */
int	tree_range(const struct tree *, const void *lo, size_t lolen, const void *hi, size_t hilen, struct agg *);

struct cursor {			/* a place in the tree; by value, no clean-up */
	const struct tree *tree;
	int		 depth;
	uint32_t	 page[24];
	uint16_t	 index[24];
	uint8_t		 key[KEY_MAX];	/* of cursor_entry() */
};
/* Moves to the first entry with key >= the given one.  1 there, 0 end, -1 damaged. */
int	cursor_seek(struct cursor *, const struct tree *, const void *key, size_t len);
int	cursor_next(struct cursor *);
/* The entry: key points into the cursor, until its next use. */
void	cursor_entry(struct cursor *, const uint8_t **key, size_t *len, struct doc_val *);

/* Builds a key; returns its length.  out has KEY_MAX bytes. */
size_t	key_make(uint8_t *out, uint32_t tenant, const void *path, size_t path_len);
uint32_t key_tenant(const uint8_t *key);

/* --- writing: committer (and tests) ---------------------------------------- */

struct overlay;			/* store/overlay.h: allocates pages */

struct tree_writer {
	struct tree	 t;		/* t.root: newest, not yet published */
	struct overlay	*overlay;
	uint64_t	 gen;		/* generation being built: pages of it are changed in place */
	uint32_t	 base;		/* number of the checkpoint it stands on (page header `base`) */
};

/*
 * Sets key to val; *old gets the value before (old->seq == 0: none).
 * 0; -1 with errno: ENOSPC (the overlay is full), EILSEQ (damaged page).  Then the
 * documents are unchanged; t.root may be another one, with pages copied or leaves cut in two.
 */
int	tree_put(struct tree_writer *, const void *key, size_t len, const struct doc_val *, struct doc_val *old);
/* The same, but a value of a higher seq stays: 1, and *old is that one.  It is looked for in pages that were looked at (T7). */
int	tree_put_newest(struct tree_writer *, const void *key, size_t len, const struct doc_val *, struct doc_val *old);
/*
 * Removes all entries lo <= key < hi (tombstones too), calling each(arg, key,
 * len, val) for every one.  0 or -1 as above (then nothing was removed, though each may
 * have been called).
 */
int	tree_remove(struct tree_writer *, const void *lo, size_t lolen, const void *hi, size_t hilen,
	    void (*each)(void *, const uint8_t *, size_t, const struct doc_val *), void *);

/*
 * Verifies a page's structure (offsets inside, keys ascending, counts): used once per checkpoint
 * page after its checksum, and by tests on overlay pages.
 */
bool	page_sound(const uint8_t *page);
/* Walks everything: order, aggregates of each interior entry, page structure.  0; -1 with a line in err. */
int	tree_verify(const struct tree *, char *err, size_t errlen);

#endif
