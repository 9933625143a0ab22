/*
 * store/page.c - see store/page.h.
 *
 * Runs in: committer (all), worker (looking at checkpoint pages).
 */
#include "config.h"
#include <assert.h>
#include <stdlib.h>
#include "shm/crc32c.h"
#include "store/leaf.h"

_Thread_local uint64_t	tree_bad_page;

const struct page *
page_bad(uint32_t id)
{
	tree_bad_page = id & ~PAGE_CHECKPOINT;
	errno = EILSEQ;
	return NULL;
}

uint32_t
page_crc(const struct page *p)
{
	static const uint32_t	zero;
	const uint8_t		*b = (const uint8_t *)p + sizeof(p->crc);

	return crc32c(crc32c(0, &zero, sizeof(zero)), b, PAGE_BYTES - sizeof(p->crc));
}

/* T6: without it two files' pages, or a loop, could be reached. */
static bool
children_sound(const struct page *p, uint32_t self)
{
	if (p->level == 0)
		return true;
	for (unsigned i = 0; i < p->count; i++) {
		uint32_t	id = page_child(p, i), n = id & ~PAGE_CHECKPOINT;

		if (n == id || n == 0 || n >= self)
			return false;
	}
	return true;
}

static bool
is_whole(const struct page *p, uint32_t number)
{
	return p->crc == page_crc(p) && page_sound((const uint8_t *)p) && children_sound(p, number);
}

/* Where checkpoint page `id` is; NULL: there is none. */
static const struct page *
page_in_file(const struct tree *t, uint32_t id)
{
	uint32_t	n = id & ~PAGE_CHECKPOINT;

	return n == id || n == 0 || n >= t->npages ? NULL :
	    (const struct page *)(t->checkpoint + (size_t)n * PAGE_BYTES);
}

bool
page_whole(const struct tree *t, uint32_t id)
{
	const struct page	*p = page_in_file(t, id);

	return p != NULL && is_whole(p, id & ~PAGE_CHECKPOINT);
}

bool
page_copy_whole(struct page *to, const struct tree *t, uint32_t id)
{
	const struct page	*p = page_in_file(t, id);

	if (p == NULL)
		return false;
	memcpy(to, p, PAGE_BYTES);
	return is_whole(to, id & ~PAGE_CHECKPOINT);
}

const struct page *
page_first_look(const struct tree *t, uint32_t id)
{
	uint32_t	n = id & ~PAGE_CHECKPOINT;

	if (!page_whole(t, id))
		return page_bad(id);
	t->checked[n >> 3] |= (uint8_t)(1 << (n & 7));
	return (const struct page *)(t->checkpoint + (size_t)n * PAGE_BYTES);
}

/* Entries inside the heap and no more of them than it has bytes: page_compact() relies on it. */
static bool
heap_sound(const struct page *p)
{
	size_t	slots = sizeof(*p) + (size_t)p->count * sizeof(p->slot[0]), used = 0;

	if (p->heap < slots || p->heap > PAGE_BYTES)
		return false;
	for (unsigned i = 0; i < p->count; i++) {
		size_t	n = CHILD_BYTES + p->slot[i].len;

		if (p->slot[i].len > KEY_MAX || p->slot[i].at < p->heap || p->slot[i].at + n > PAGE_BYTES)
			return false;
		used += n;
	}
	return used + p->dead == (size_t)(PAGE_BYTES - p->heap);
}

static bool
keys_sound(const struct page *p)
{
	size_t	copied = p->skip < sizeof(p->prefix) ? p->skip : sizeof(p->prefix);

	if (p->slot[0].len != 0)
		return false;
	for (unsigned i = 1; i < p->count; i++) {
		const uint8_t	*key = page_key(p, i);
		size_t		 len = p->slot[i].len;

		if (len == 0 || len < p->skip || memcmp(key, p->prefix, copied) != 0 ||
		    memcmp(key, page_key(p, 1), p->skip) != 0 ||
		    p->slot[i].head != key_head(key + p->skip, len - p->skip))
			return false;
		if (i > 1 && key_cmp(page_key(p, i - 1), p->slot[i - 1].len, key, len) >= 0)
			return false;
	}
	return true;
}

bool
page_sound(const uint8_t *page)
{
	const struct page	*p = (const struct page *)page;

	if (p->level >= TREE_LEVELS || p->kind != (p->level != 0 ? PAGE_INTERIOR : PAGE_LEAF))
		return false;
	if (p->count == 0)
		return false;
	return p->level == 0 ? leaf_sound(p) : heap_sound(p) && keys_sound(p);
}

void
page_agg(const struct page *p, unsigned from, unsigned to, struct agg *sum)
{
	struct agg	a;

	if (p->level == 0) {
		leaf_agg(p, from, to, sum);
		return;
	}
	memset(sum, 0, sizeof(*sum));
	for (unsigned i = from; i < to; i++) {
		page_child_agg(p, i, &a);
		agg_add(sum, &a);
	}
}

/* --- writing ---------------------------------------------------------------- */

void
page_init(struct page *p, unsigned level, uint64_t gen, uint32_t base)
{
	memset(p, 0, level != 0 ? sizeof(*p) : LEAF_PREFIX);
	p->kind = level != 0 ? PAGE_INTERIOR : PAGE_LEAF;
	p->level = (uint8_t)level;
	p->gen = gen;
	p->base = base;
	p->heap = level != 0 ? PAGE_BYTES : LEAF_END;
}

void
page_copy(struct page *to, const struct page *from)
{
	size_t	front = from->level != 0 ? sizeof(*from) + from->count * sizeof(from->slot[0]) : leaf_front(from);

	memcpy(to, from, front);
	memcpy((uint8_t *)to + from->heap, (const uint8_t *)from + from->heap, PAGE_BYTES - from->heap);
}

void
page_child_pack(uint8_t out[CHILD_BYTES], uint32_t id, const struct agg *a)
{
	memcpy(out, &id, sizeof(id));
	memcpy(out + sizeof(id), a, sizeof(*a));
}

size_t
page_cost(const struct page *p, size_t len)
{
	return sizeof(p->slot[0]) + CHILD_BYTES + len;
}

static size_t
page_gap(const struct page *p)
{
	return p->heap - sizeof(*p) - (size_t)p->count * sizeof(p->slot[0]);
}

size_t
page_room(const struct page *p)
{
	return page_gap(p) + p->dead;
}

size_t
key_common(const uint8_t *a, const uint8_t *b, size_t max)
{
	size_t	n = 0;

	while (n < max && a[n] == b[n])
		n++;
	return n;
}

size_t
key_between(const uint8_t *a, size_t alen, const uint8_t *b, size_t blen)
{
	size_t	n = key_common(a, b, alen < blen ? alen : blen);

	return n < blen ? n + 1 : blen;		/* of a forged tree the order may not hold */
}

static void
page_set_skip(struct page *p, size_t skip)
{
	p->skip = (uint16_t)skip;
	if (p->count <= 1)
		return;
	memcpy(p->prefix, page_key(p, 1), skip < sizeof(p->prefix) ? skip : sizeof(p->prefix));
	for (unsigned i = 1; i < p->count; i++)
		p->slot[i].head = key_head(page_key(p, i) + skip, p->slot[i].len - skip);
}

/* Over all keys, not the outer two: a forged page may have got here whose order does not hold. */
void
page_finish(struct page *p)
{
	size_t	skip = p->count > 1 ? p->slot[1].len : 0, len;

	for (unsigned i = 2; i < p->count; i++) {
		len = p->slot[i].len;
		skip = key_common(page_key(p, 1), page_key(p, i), len < skip ? len : skip);
	}
	page_set_skip(p, skip);
}

/* Lays an entry down at the low end of the heap.  The slot is the caller's. */
static struct page_slot
page_lay(struct page *p, const uint8_t *key, size_t len, const void *payload)
{
	p->heap = (uint16_t)(p->heap - CHILD_BYTES - len);
	memcpy((uint8_t *)p + p->heap, payload, CHILD_BYTES);
	memcpy((uint8_t *)p + p->heap + CHILD_BYTES, key, len);
	return (struct page_slot){ .head = 0, .at = p->heap, .len = (uint16_t)len };
}

void
page_append(struct page *p, const uint8_t *key, size_t len, const void *payload)
{
	if (p->count == 0)
		len = 0;	/* T1 */
	assert(page_gap(p) >= page_cost(p, len));
	p->slot[p->count] = page_lay(p, key, len, payload);
	p->count++;
}

/* Closes the holes in the heap. */
static void
page_compact(struct page *p)
{
	union page_buf	old;
	size_t		n = CHILD_BYTES, heap = PAGE_BYTES;

	memcpy(&old, p, PAGE_BYTES);
	for (unsigned i = 0; i < p->count; i++) {
		heap -= n + p->slot[i].len;
		memcpy((uint8_t *)p + heap, page_entry(&old.page, i), n + p->slot[i].len);
		p->slot[i].at = (uint16_t)heap;
	}
	p->heap = (uint16_t)heap;
	p->dead = 0;
}

/* Makes skip true for one more key. */
static void
page_admit(struct page *p, const uint8_t *key, size_t len)
{
	size_t	common;

	if (p->count <= 1) {	/* alone so far: all of it is common */
		p->skip = (uint16_t)len;
		memcpy(p->prefix, key, len < sizeof(p->prefix) ? len : sizeof(p->prefix));
		return;
	}
	common = key_common(key, page_key(p, 1), len < p->skip ? len : p->skip);
	if (common < p->skip)
		page_set_skip(p, common);
}

void
page_note_run(struct page *p, unsigned i)
{
	p->run = i == p->next && p->run < UINT8_MAX ? p->run + 1 : 0;
	p->next = (uint16_t)(i + 1);
}

void
page_insert(struct page *p, unsigned i, const uint8_t *key, size_t len, const void *payload)
{
	if (i == 0)
		len = 0;	/* T1 */
	assert(i <= p->count && page_room(p) >= page_cost(p, len));
	if (page_gap(p) < page_cost(p, len))
		page_compact(p);
	if (i != 0)
		page_admit(p, key, len);
	memmove(&p->slot[i + 1], &p->slot[i], (p->count - i) * sizeof(p->slot[0]));
	p->slot[i] = page_lay(p, key, len, payload);
	p->count++;
	if (i != 0)
		p->slot[i].head = key_head(key + p->skip, len - p->skip);
	page_note_run(p, i);
}

void
page_erase(struct page *p, unsigned i, unsigned n)
{
	for (unsigned j = i; j < i + n; j++)
		p->dead = (uint16_t)(p->dead + CHILD_BYTES + p->slot[j].len);
	memmove(&p->slot[i], &p->slot[i + n], (p->count - i - n) * sizeof(p->slot[0]));
	p->count = (uint16_t)(p->count - n);
	p->next = p->run = 0;
	if (i == 0 && p->count != 0) {		/* T1 */
		p->dead = (uint16_t)(p->dead + p->slot[0].len);
		p->slot[0].len = 0;
		p->slot[0].head = 0;
	}
}

void
page_set(struct page *p, unsigned i, const void *payload)
{
	memcpy((uint8_t *)p + p->slot[i].at, payload, CHILD_BYTES);
}

/* --- splitting: the page's entries with a new one at place i ------------------- */

struct wide {
	const struct page	*page;
	unsigned		 i;
	const uint8_t		*key;
	size_t			 len;
	const void		*payload;
};

static const uint8_t *
wide_get(const struct wide *w, unsigned j, size_t *len, const void **payload)
{
	if (j == w->i) {
		*len = w->len;
		*payload = w->payload;
		return w->key;
	}
	if (j > w->i)
		j--;
	*len = w->page->slot[j].len;
	*payload = page_entry(w->page, j);
	return page_key(w->page, j);
}

/*
 * How many entries stay on the left.  Keys that come in order go on behind the
 * new one, so what is in front of it stays packed; otherwise half and half,
 * by bytes.  With entries of at most a third of a page one cut always fits.
 */
static unsigned
wide_cut(const struct wide *w)
{
	const struct page	*p = w->page;
	size_t			 total = page_cost(p, w->len), left = 0, right, best = SIZE_MAX, len;
	unsigned		 cut = 0;
	const void		*payload;
	bool			 ascending;

	ascending = w->i == p->count || (w->i == p->next && w->i != 0 && p->run >= RUN_ASCENDING);
	for (unsigned j = 0; j < p->count; j++)
		total += page_cost(p, p->slot[j].len);
	for (unsigned j = 0; j < p->count; j++) {	/* entries 0 .. j to the left */
		wide_get(w, j, &len, &payload);
		left += page_cost(p, len);
		right = total - left;
		if (left > PAGE_ROOM || right > PAGE_ROOM)
			continue;
		if (ascending && j + 1 == w->i)
			return w->i;
		if ((left > right ? left - right : right - left) < best) {
			best = left > right ? left - right : right - left;
			cut = j + 1;
		}
	}
	assert(cut != 0);
	return cut;
}

void
page_split(struct page *p, struct page *right, unsigned i, const uint8_t *key, size_t len,
    const void *payload, uint8_t sep[KEY_MAX], size_t *seplen)
{
	struct wide	 w = { p, i, key, len, payload };
	unsigned	 cut = wide_cut(&w), total = p->count + 1u;
	union page_buf	 left;
	const uint8_t	*k;
	size_t		 n;
	const void	*pay;

	k = wide_get(&w, cut, &n, &pay);
	*seplen = n;
	memcpy(sep, k, *seplen);

	for (unsigned j = cut; j < total; j++) {
		k = wide_get(&w, j, &n, &pay);
		page_append(right, k, n, pay);
	}
	page_finish(right);
	if (i >= cut) {
		right->next = (uint16_t)(i - cut + 1);
		right->run = p->run;
	}
	if (cut == p->count && i == cut) {	/* nothing but the new one moved */
		p->next = p->run = 0;
		return;
	}
	page_init(&left.page, p->level, p->gen, p->base);
	for (unsigned j = 0; j < cut; j++) {
		k = wide_get(&w, j, &n, &pay);
		page_append(&left.page, k, n, pay);
	}
	page_finish(&left.page);
	page_copy(p, &left.page);
}
