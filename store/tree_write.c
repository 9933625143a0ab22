/*
 * store/tree_write.c - see store/tree.h: put and remove.
 *
 * Runs in: committer, tools.
 *
 * All that can fail comes first: of each page on the way down that is not ours
 * to change there is a copy made, a checkpoint page's copy is looked at, and only
 * then do the copies take their places: a page of a file may change at any time,
 * and what is changed must be what was looked at.  A put then reserves as many
 * pages as it can need.  From there on nothing fails, so a change happens whole
 * or not at all (the copies may stay).  A put whose leaf is to be cut first takes
 * a round of this for each cut: where a later one cannot be had, the tree is cut
 * otherwise than it was, and whole, and its documents are what they were.
 */
#include "config.h"
#include <assert.h>
#include "shm/proc.h"
#include "store/overlay.h"
#include "store/leaf.h"

static struct page *
page_mine(const struct tree_writer *w, uint32_t id)
{
	return (struct page *)(w->overlay->base + (size_t)id * PAGE_BYTES);
}

/* T5: true where this page is part of nothing published. */
static bool
page_is_new(const struct tree_writer *w, uint32_t id)
{
	return (id & PAGE_CHECKPOINT) == 0 && page_mine(w, id)->gen == w->gen;
}

/*
 * The tree being built no longer reaches `id`.  Without memory for the note the
 * page is lost until this process ends; nothing else is wrong then.
 */
static void
page_release(struct tree_writer *w, uint32_t id)
{
	if ((id & PAGE_CHECKPOINT) != 0)
		return;
	if (page_is_new(w, id))
		(void)overlay_free_now(w->overlay, id);
	else
		(void)overlay_free(w->overlay, id, w->gen);
}

/* A page out of those reserved. */
static uint32_t
page_new(struct tree_writer *w, unsigned level)
{
	uint32_t	id = overlay_alloc(w->overlay);

	assert(id != PAGE_NONE);
	page_init(page_mine(w, id), level, w->gen, w->base);
	return id;
}

/* The page to change instead of `id`: itself where it is new, else a copy, which nothing refers to yet.  PAGE_NONE: errno. */
static uint32_t
page_own(struct tree_writer *w, uint32_t id)
{
	struct page	*to;
	uint32_t	 mine;

	if (page_is_new(w, id))
		return id;
	if ((mine = overlay_alloc(w->overlay)) == PAGE_NONE)
		return PAGE_NONE;
	to = page_mine(w, mine);
	if ((id & PAGE_CHECKPOINT) == 0)
		page_copy(to, page_mine(w, id));
	else if (!page_copy_whole(to, &w->t, id)) {
		(void)overlay_free_now(w->overlay, mine);
		(void)page_bad(id);
		return PAGE_NONE;
	}
	to->crc = 0;
	to->gen = w->gen;
	to->base = w->base;
	return mine;
}

/* --- the way down ---------------------------------------------------------------- */

struct path {			/* from the root (0) to a leaf, all of it ours to change */
	uint32_t	id[TREE_LEVELS];
	unsigned	index[TREE_LEVELS];
	int		depth;
	bool		exact;		/* the leaf's entry is the key */
};

/* The copies take the places of what they are copies of: was[], from the root to the leaf. */
static void
path_link(struct tree_writer *w, const struct path *path, const uint32_t *was)
{
	for (int i = 0; i < path->depth; i++) {
		if (path->id[i] == was[i])
			continue;
		if (i == 0)
			w->t.root = path->id[i];
		else
			page_child_set(page_mine(w, path->id[i - 1]), path->index[i - 1], path->id[i]);
		page_release(w, was[i]);
	}
}

static int
path_undo(struct tree_writer *w, const struct path *path, const uint32_t *was)
{
	int	saved = errno;

	for (int i = 0; i < path->depth; i++)
		if (path->id[i] != was[i])
			(void)overlay_free_now(w->overlay, path->id[i]);
	errno = saved;
	return -1;
}

/*
 * The way to where `key` is or would be, for changing.  The documents are what
 * they were.  0; -1: EILSEQ, ENOSPC, and nothing was changed.
 */
static int
path_own(struct tree_writer *w, const uint8_t *key, size_t len, struct path *path)
{
	uint32_t	 was[TREE_LEVELS], id = w->t.root;
	struct page	*p;
	int		 level = -1, i;

	path->depth = 0;
	path->exact = false;
	while (id != PAGE_NONE) {
		if (page_get(&w->t, id, level) == NULL)
			return path_undo(w, path, was);
		i = path->depth;
		was[i] = id;
		if ((path->id[i] = page_own(w, id)) == PAGE_NONE)
			return path_undo(w, path, was);
		path->depth++;
		p = page_mine(w, path->id[i]);
		if (level != -1 && p->level != level) {
			(void)page_bad(id);
			return path_undo(w, path, was);
		}
		if (p->level == 0) {
			path->index[i] = leaf_search(p, key, len, &path->exact);
			break;
		}
		path->index[i] = page_child_index(p, key, len);
		id = page_child(p, path->index[i]);
		level = p->level - 1;
	}
	path_link(w, path, was);
	return 0;
}

/* --- put ----------------------------------------------------------------------- */

struct put {			/* what one level of the path tells the one above */
	uint32_t	id;		/* the page, after the change */
	struct agg	agg;		/* of it, where `recount` */
	bool		recount;
	bool		split;		/* and there is a new one to its right: */
	uint32_t	right;
	struct agg	right_agg;
	size_t		seplen;
	uint8_t		sep[KEY_MAX];
};

/* Inserts as entry i of our page `id`, splitting it where it is full. */
static void
put_insert(struct tree_writer *w, uint32_t id, unsigned i, const uint8_t *key, size_t len, const void *payload,
    struct put *up)
{
	struct page	*p = page_mine(w, id), *right;

	if (page_room(p) >= page_cost(p, len)) {
		page_insert(p, i, key, len, payload);
		return;
	}
	up->split = true;
	up->right = page_new(w, p->level);
	right = page_mine(w, up->right);
	page_split(p, right, i, key, len, payload, up->sep, &up->seplen);
	page_agg(right, 0, right->count, &up->right_agg);
	up->recount = true;
}

/* How far a round of a put came. */
enum round {
	ROUND_MADE,
	ROUND_CUT,		/* the leaf was cut in two, its documents are what they were: another round */
};

/* A new leaf to the right, with this entry, where keys come in order, or else the upper half. */
static enum round
put_leaf_right(struct tree_writer *w, const struct path *path, const uint8_t *key, size_t len,
    const struct doc_val *val, struct put *up)
{
	unsigned	 i = path->index[path->depth - 1];
	struct page	*p = page_mine(w, up->id), *right;
	uint8_t		 last[KEY_MAX];
	size_t		 n;
	bool		 behind = i == p->count && !path->exact;

	up->recount = true;
	up->right = page_new(w, 0);
	right = page_mine(w, up->right);
	if (behind) {
		n = leaf_key(p, i - 1, last);
		up->seplen = key_between(last, n, key, len);
		memcpy(up->sep, key, up->seplen);
		(void)leaf_put(right, 0, false, key, len, val);
		p->next = p->run = 0;
	} else if (!leaf_cut(p, right, i, up->sep, &up->seplen))
		proc_panic(__FILE__, __LINE__, "a leaf that was sound can be cut");
	up->split = true;
	page_agg(right, 0, right->count, &up->right_agg);
	return behind ? ROUND_MADE : ROUND_CUT;
}

static enum round
put_leaf(struct tree_writer *w, const struct path *path, const uint8_t *key, size_t len, const struct doc_val *val,
    struct put *up)
{
	int		 leaf = path->depth - 1;
	struct page	*p;
	enum round	 made = ROUND_MADE;

	up->id = path->id[leaf];
	p = page_mine(w, up->id);
	if (!leaf_put(p, path->index[leaf], path->exact, key, len, val))
		made = put_leaf_right(w, path, key, len, val, up);
	if (up->recount)
		page_agg(p, 0, p->count, &up->agg);
	return made;
}

/*
 * One level up: the child's new id and sums, and its new neighbour.  `change` is what the put
 * added; where it did not, or the leaf was cut, everything is counted again.
 */
static void
put_interior(struct tree_writer *w, const struct path *path, int level, const struct agg *change, struct put *up)
{
	unsigned	 i = path->index[level];
	uint32_t	 id = path->id[level];
	struct page	*p = page_mine(w, id);
	uint8_t		 payload[CHILD_BYTES], sep[KEY_MAX];
	struct agg	 a = up->agg;

	if (!up->recount) {
		page_child_agg(p, i, &a);
		agg_add(&a, change);
	}
	page_child_pack(payload, up->id, &a);
	page_set(p, i, payload);
	up->id = id;
	if (up->split) {
		page_child_pack(payload, up->right, &up->right_agg);
		memcpy(sep, up->sep, up->seplen);
		up->split = false;
		put_insert(w, id, i + 1, sep, up->seplen, payload, up);
	}
	if (up->recount)
		page_agg(p, 0, p->count, &up->agg);
}

static void
put_root(struct tree_writer *w, const struct put *up)
{
	uint8_t		 payload[CHILD_BYTES];
	struct page	*p = page_mine(w, up->id);
	unsigned	 level = p->level + 1u;
	uint32_t	 id;

	w->t.root = up->id;
	if (!up->split)
		return;
	id = page_new(w, level);
	p = page_mine(w, id);
	page_child_pack(payload, up->id, &up->agg);
	page_insert(p, 0, up->sep, 0, payload);
	page_child_pack(payload, up->right, &up->right_agg);
	page_insert(p, 1, up->sep, up->seplen, payload);
	w->t.root = id;
}

/* What the sums gain, modulo 2^64.  max_seq of the old value may be lost only by counting again. */
static bool
put_change(const struct doc_val *old, const struct doc_val *val, struct agg *change)
{
	struct agg	was;

	agg_of_val(&was, old);
	agg_of_val(change, val);
	change->count -= was.count;
	change->bytes -= was.bytes;
	return was.max_seq <= change->max_seq;
}

/*
 * A leaf may have to be cut more than once until there is room for what makes the rows
 * of all its entries wider; each cut takes half of its bytes away.
 */
#define CUTS_MAX	15u

/* Pages for one round: of each level a new one, and a root. */
static int
put_reserve(struct tree_writer *w, const struct path *path)
{
	if (path->depth >= TREE_LEVELS) {	/* the next checkpoint makes it flat again */
		errno = ENOSPC;
		return -1;
	}
	return overlay_reserve(w->overlay, (unsigned)path->depth + 2);
}

/* One round, from the leaf to the root.  The tree is whole after it, whatever it says. */
static enum round
put_along(struct tree_writer *w, const struct path *path, const uint8_t *key, size_t len, const struct doc_val *val,
    const struct agg *change, bool recount)
{
	struct put	 up;
	enum round	 made;

	up.split = false;
	up.recount = recount;
	made = put_leaf(w, path, key, len, val, &up);
	for (int i = path->depth - 2; i >= 0; i--)
		put_interior(w, path, i, change, &up);
	put_root(w, &up);
	return made;
}

static int
put(struct tree_writer *w, const uint8_t *key, size_t len, const struct doc_val *val, struct doc_val *old, bool unless_newer)
{
	static const struct doc_val	 none = { .flags = DOC_TOMBSTONE };
	struct path			 path;
	struct agg			 change;
	bool				 recount, exact;

	assert(len > 0 && len <= KEY_MAX);
	if (path_own(w, key, len, &path) == -1)
		return -1;
	*old = none;
	exact = path.exact;
	if (exact)
		leaf_val(page_mine(w, path.id[path.depth - 1]), path.index[path.depth - 1], old);
	if (unless_newer && exact && old->seq > val->seq)
		return 1;
	if (put_reserve(w, &path) == -1)
		return -1;
	if (path.depth == 0) {
		w->t.root = path.id[0] = page_new(w, 0);
		path.index[0] = 0;
		path.depth = 1;
	}
	recount = !put_change(old, val, &change);
	for (unsigned cuts = 0; put_along(w, &path, key, len, val, &change, recount) != ROUND_MADE;) {
		if (++cuts > CUTS_MAX) {	/* a forged tree may lead to another leaf each time */
			errno = EILSEQ;
			return -1;
		}
		if (path_own(w, key, len, &path) == -1 || put_reserve(w, &path) == -1)
			return -1;
	}
	if (!exact)
		memset(old, 0, sizeof(*old));
	return 0;
}

int
tree_put(struct tree_writer *w, const void *key, size_t len, const struct doc_val *val, struct doc_val *old)
{
	RUNS_IN(IN_COMMITTER | IN_TOOL | IN_TEST);
	return put(w, key, len, val, old, false);
}

int
tree_put_newest(struct tree_writer *w, const void *key, size_t len, const struct doc_val *val, struct doc_val *old)
{
	RUNS_IN(IN_COMMITTER | IN_TOOL | IN_TEST);
	return put(w, key, len, val, old, true);
}

/* --- remove -------------------------------------------------------------------- */

struct removal {
	struct tree_writer	*w;
	const uint8_t		*lo, *hi;	/* hi NULL: to the end */
	size_t			 lolen, hilen;
};

/* Calls each() for the range. */
static int
remove_tell(const struct removal *r, void (*each)(void *, const uint8_t *, size_t, const struct doc_val *), void *arg,
    bool *any)
{
	const uint8_t	*key;
	struct cursor	 c;
	struct doc_val	 val;
	size_t		 len;
	int		 found;

	*any = false;
	for (found = cursor_seek(&c, &r->w->t, r->lo, r->lolen); found == 1; found = cursor_next(&c)) {
		cursor_entry(&c, &key, &len, &val);
		if (r->hi != NULL && key_cmp(key, len, r->hi, r->hilen) >= 0)
			return 0;
		*any = true;
		if (each != NULL)
			each(arg, key, len, &val);
	}
	return found;
}

/* A whole subtree.  Below a checkpoint page there are only such (T6), and they stay where they are. */
static void
remove_subtree(struct tree_writer *w, uint32_t id)
{
	const struct page	*p;

	if ((id & PAGE_CHECKPOINT) != 0)
		return;
	p = page_mine(w, id);
	if (p->level != 0)
		for (unsigned i = 0; i < p->count; i++)
			remove_subtree(w, page_child(p, i));
	page_release(w, id);
}

/* Takes entries i .. i + n - 1 out of our page `id`; returns what is there instead. */
static uint32_t
remove_entries(struct tree_writer *w, uint32_t id, unsigned i, unsigned n)
{
	struct page	*p = page_mine(w, id);

	if (n == p->count) {
		page_release(w, id);
		return PAGE_NONE;
	}
	if (n != 0 && p->level == 0)
		leaf_erase(p, i, n);
	else if (n != 0)
		page_erase(p, i, n);
	return id;
}

static uint32_t	remove_below(const struct removal *, uint32_t, bool, bool, struct agg *);

/* Removes within the child of entry i; true: the child is gone. */
static bool
remove_child(const struct removal *r, uint32_t id, unsigned i, bool lo, bool hi)
{
	struct page	*p = page_mine(r->w, id);
	uint8_t		 payload[CHILD_BYTES];
	struct agg	 agg;
	uint32_t	 child = remove_below(r, page_child(p, i), lo, hi, &agg);

	if (child == PAGE_NONE)
		return true;
	page_child_pack(payload, child, &agg);
	page_set(p, i, payload);
	return false;
}

/* Of an interior page: what hangs between the edges, the children at the edges, then the entries. */
static uint32_t
remove_interior(const struct removal *r, uint32_t id, bool lo, bool hi)
{
	const struct page	*p = page_mine(r->w, id);
	unsigned		 i, j;		/* entries i .. j - 1 go whole */

	i = lo ? page_child_index(p, r->lo, r->lolen) : 0;
	j = hi ? page_child_index(p, r->hi, r->hilen) : p->count;
	if (lo && hi && i == j)
		return remove_entries(r->w, id, i, remove_child(r, id, i, true, true));
	for (unsigned k = lo ? i + 1 : i; k < j; k++)
		remove_subtree(r->w, page_child(p, k));
	if (hi)			/* first, while i and j are right */
		j += remove_child(r, id, j, false, true);
	if (lo)
		i += !remove_child(r, id, i, true, false);
	return remove_entries(r->w, id, i, j > i ? j - i : 0);
}

static uint32_t
remove_leaf(const struct removal *r, uint32_t id, bool lo, bool hi)
{
	const struct page	*p = page_mine(r->w, id);
	bool			 exact;
	unsigned		 i, j;

	i = lo ? leaf_search(p, r->lo, r->lolen, &exact) : 0;
	j = hi ? leaf_search(p, r->hi, r->hilen, &exact) : p->count;
	return remove_entries(r->w, id, i, j - i);
}

/*
 * Removes what is in the range below page `id`; lo, hi: that bound lies within
 * its keys.  Returns the page to have instead, PAGE_NONE: nothing is left.
 * Works along the two edges, whose pages are ours.
 */
static uint32_t
remove_below(const struct removal *r, uint32_t id, bool lo, bool hi, struct agg *agg)
{
	const struct page	*p;

	if (!lo && !hi) {
		remove_subtree(r->w, id);
		return PAGE_NONE;
	}
	id = page_mine(r->w, id)->level != 0 ? remove_interior(r, id, lo, hi) : remove_leaf(r, id, lo, hi);
	if (id != PAGE_NONE) {
		p = page_mine(r->w, id);
		page_agg(p, 0, p->count, agg);
	}
	return id;
}

/*
 * A root with one child is one level too many.  A child that cannot be read keeps its
 * parent, and a page of the file is not believed that it has only one (T7).
 */
static void
remove_collapse(struct tree_writer *w)
{
	const struct page	*p;
	uint32_t		 child;

	while (w->t.root != PAGE_NONE && (w->t.root & PAGE_CHECKPOINT) == 0) {
		p = page_mine(w, w->t.root);
		if (p->level == 0 || p->count != 1)
			return;
		child = page_child(p, 0);
		if (page_get(&w->t, child, p->level - 1) == NULL)
			return;
		page_release(w, w->t.root);
		w->t.root = child;
	}
}

int
tree_remove(struct tree_writer *w, const void *lo, size_t lolen, const void *hi, size_t hilen,
    void (*each)(void *, const uint8_t *, size_t, const struct doc_val *), void *arg)
{
	struct removal	r = { w, lo, hi, lolen, hilen };
	struct path	edge;
	struct agg	agg;
	bool		any;

	RUNS_IN(IN_COMMITTER | IN_TOOL | IN_TEST);
	if (hi != NULL && key_cmp(lo, lolen, hi, hilen) >= 0)
		return 0;
	if (remove_tell(&r, each, arg, &any) == -1)
		return -1;
	if (!any)
		return 0;
	if (path_own(w, lo, lolen, &edge) == -1 || (hi != NULL && path_own(w, hi, hilen, &edge) == -1))
		return -1;
	w->t.root = remove_below(&r, w->t.root, true, hi != NULL, &agg);
	remove_collapse(w);
	return 0;
}
