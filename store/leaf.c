/*
 * store/leaf.c - see store/leaf.h.
 *
 * Runs in: committer (all), worker (looking at checkpoint pages, searching).
 */
#include "config.h"
#include "store/leaf.h"

/* --- where things are ------------------------------------------------------------- */

static inline uint64_t
load64(const uint8_t *p)
{
	uint64_t	v;

	memcpy(&v, p, sizeof(v));
	return v;
}

static inline uint64_t
mask_of(unsigned width)
{
	return width == 0 ? 0 : UINT64_MAX >> ((64 - 8 * width) & 63);
}

/* Bytes that any value of a column fits into. */
static const uint8_t	width_max[LEAF_COLUMNS] = { 2, 2, 8, 8, 4, 4, 4, 4, 4, 4 };

/* The highest low of a column so wide: whatever a row says then, the sum is a value of its type. */
static inline uint64_t
low_max(unsigned c, unsigned width)
{
	return mask_of(width_max[c]) - mask_of(width);
}

static inline const uint8_t *
widths(const struct page *p)
{
	return (const uint8_t *)p + LEAF_WIDTH;
}

_Static_assert(LEAF_COLUMNS == 10, "row_bytes() adds up ten");

static inline unsigned
row_bytes(const struct page *p)
{
	/* eight bytes are added up by one multiplication: their sum is below 256 in a sound leaf, wrong but small else */
	return (unsigned)(load64(widths(p)) * UINT64_C(0x0101010101010101) >> 56) + widths(p)[8] + widths(p)[9];
}

/* Where the heads begin. */
static inline size_t
heads_at(size_t skip)
{
	return (LEAF_PREFIX + skip + 3) & ~(size_t)3;
}

static inline const uint32_t *
heads(const struct page *p)
{
	return (const uint32_t *)(const void *)((const uint8_t *)p + heads_at(p->skip));
}

static inline size_t
rows_at(const struct page *p)
{
	return heads_at(p->skip) + (size_t)p->count * LEAF_TOLD;
}

const uint8_t *
leaf_row(const struct page *p, unsigned i)
{
	return (const uint8_t *)p + rows_at(p) + (size_t)i * row_bytes(p);
}

size_t
leaf_front(const struct page *p)
{
	return rows_at(p) + (size_t)p->count * row_bytes(p);
}

/* --- columns ---------------------------------------------------------------------- */

/* Bytes of a key that neither the prefix nor its head has. */
static inline size_t
rest_of(size_t len, size_t skip)
{
	return len > skip + LEAF_TOLD ? len - skip - LEAF_TOLD : 0;
}

/* Column c of a row, whose bytes begin at *at, which moves to the next one's. */
static inline uint64_t
column(const struct page *p, unsigned c, const uint8_t **at)
{
	unsigned	w = widths(p)[c];
	uint64_t	v = load64(*at) & mask_of(w);

	*at += w;
	return v + load64((const uint8_t *)p + LEAF_LOW + 8 * c);
}

static void
columns_of(const struct doc_val *v, size_t len, uint64_t col[LEAF_COLUMNS])
{
	col[COL_LEN] = len;
	col[COL_AT] = 0;
	col[COL_SEQ] = v->seq;
	col[COL_TIME] = v->time_ms;
	col[COL_RUN] = v->run;
	col[COL_SEGMENT] = v->segment;
	col[COL_OFFSET] = v->offset;
	col[COL_REC_LEN] = v->rec_len;
	col[COL_BODY_LEN] = v->body_len;
	col[COL_FLAGS] = v->flags;
}

/*
 * Length of key i, and where what its head does not tell is.  A page is looked at once by each
 * process, and its memory may come from the disk again, with other bytes: 0 where what it says
 * is no key in this page.
 */
static inline size_t
key_len(const struct page *p, unsigned i, size_t skip, size_t *rest_at)
{
	size_t		 row = rows_at(p) + (size_t)i * row_bytes(p), len;
	const uint8_t	*at = (const uint8_t *)p + row;

	*rest_at = 0;
	if (i >= p->count || row + widths(p)[COL_LEN] > LEAF_END)
		return 0;
	len = (size_t)column(p, COL_LEN, &at);
	*rest_at = (size_t)column(p, COL_AT, &at);
	if (skip > KEY_MAX || len > KEY_MAX || len < skip || *rest_at > PAGE_BYTES ||
	    *rest_at + rest_of(len, skip) > PAGE_BYTES)
		return 0;
	return len;
}

void
leaf_val(const struct page *p, unsigned i, struct doc_val *v)
{
	size_t		 bytes = row_bytes(p), row = rows_at(p) + i * bytes;
	const uint8_t	*at = (const uint8_t *)p + row + widths(p)[COL_LEN] + widths(p)[COL_AT];

	if (row + bytes > LEAF_END) {	/* see key_len(): a record that says this there is not */
		memset(v, 0, sizeof(*v));
		return;
	}
	v->seq = column(p, COL_SEQ, &at);
	v->time_ms = column(p, COL_TIME, &at);
	v->run = (uint32_t)column(p, COL_RUN, &at);
	v->segment = (uint32_t)column(p, COL_SEGMENT, &at);
	v->offset = (uint32_t)column(p, COL_OFFSET, &at);
	v->rec_len = (uint32_t)column(p, COL_REC_LEN, &at);
	v->body_len = (uint32_t)column(p, COL_BODY_LEN, &at);
	v->flags = (uint32_t)column(p, COL_FLAGS, &at);
}

size_t
leaf_key(const struct page *p, unsigned i, uint8_t *out)
{
	const size_t	skip = p->skip;
	size_t		rest, len = key_len(p, i, skip, &rest), n = len - skip;
	uint32_t	be;

	if (len == 0)
		return 0;
	be = __builtin_bswap32(heads(p)[i]);
	memcpy(out, (const uint8_t *)p + LEAF_PREFIX, skip);
	memcpy(out + skip, &be, n < LEAF_TOLD ? n : LEAF_TOLD);
	if (n > LEAF_TOLD)
		memcpy(out + skip + LEAF_TOLD, (const uint8_t *)p + rest, n - LEAF_TOLD);
	return len;
}

void
leaf_agg(const struct page *p, unsigned from, unsigned to, struct agg *sum)
{
	struct doc_val	v;
	struct agg	a;

	memset(sum, 0, sizeof(*sum));
	for (unsigned i = from; i < to; i++) {
		leaf_val(p, i, &v);
		agg_of_val(&a, &v);
		agg_add(sum, &a);
	}
}

/* --- searching --------------------------------------------------------------------- */

/* Compares `key`, of which skip bytes and the head are those of entry i, with that. */
static inline int
cmp_tied(const struct page *p, unsigned i, const uint8_t *key, size_t len)
{
	size_t	rest, n = key_len(p, i, p->skip, &rest), told = p->skip + LEAF_TOLD;

	if (len <= told || n <= told)	/* the head says all but the length */
		return len < n ? -1 : len > n;
	return key_cmp(key + told, len - told, (const uint8_t *)p + rest, n - told);
}

unsigned
leaf_search(const struct page *p, const uint8_t *key, size_t len, bool *exact)
{
	const unsigned	count = p->count;
	int		c;

	*exact = false;
	if (heads_at(p->skip) + (size_t)count * LEAF_TOLD > LEAF_END)	/* see key_len() */
		return 0;
	c = key_cmp(key, len < p->skip ? len : p->skip, (const uint8_t *)p + LEAF_PREFIX, p->skip);
	if (c != 0 || count == 0)
		return c < 0 ? 0 : count;
	return page_find(p, heads(p), LEAF_TOLD, 0, count, key, len, cmp_tied, exact);
}

/* --- looking at what a file says ------------------------------------------------------ */

static bool
widths_sound(const struct page *p)
{
	for (unsigned c = 0; c < LEAF_COLUMNS; c++) {
		unsigned	w = widths(p)[c];

		/* where a sum wrapped, the entries would not fit into the page that they come from */
		if (w > width_max[c] || load64((const uint8_t *)p + LEAF_LOW + 8 * c) > low_max(c, w))
			return false;
	}
	return widths(p)[COL_AT] != 1 && load64((const uint8_t *)p + LEAF_LOW + 8 * COL_AT) == 0;
}

/* Entry i inside the page, its head as long as its key; *used grows by what it has in the heap. */
static bool
entry_sound(const struct page *p, unsigned i, size_t *used)
{
	size_t	at, len = key_len(p, i, p->skip, &at), n = len - p->skip;

	if (len == 0)
		return false;
	if (n < LEAF_TOLD)
		return (heads(p)[i] & (UINT32_MAX >> (8 * n))) == 0;
	if (n == LEAF_TOLD)
		return true;
	*used += n - LEAF_TOLD;
	return at >= p->heap && at + n - LEAF_TOLD <= LEAF_END;
}

static bool
order_sound(const struct page *p, unsigned i)
{
	uint8_t	key[KEY_MAX];

	if (heads(p)[i - 1] != heads(p)[i])
		return heads(p)[i - 1] < heads(p)[i];
	return cmp_tied(p, i - 1, key, leaf_key(p, i, key)) > 0;
}

bool
leaf_sound(const struct page *p)
{
	size_t	used = 0;

	if (p->count == 0 || p->count > LEAF_MAX || p->skip > KEY_MAX || !widths_sound(p) ||
	    p->heap > LEAF_END || leaf_front(p) > p->heap)
		return false;
	for (unsigned i = 0; i < p->count; i++)
		if (!entry_sound(p, i, &used) || (i > 0 && !order_sound(p, i)))
			return false;
	return used + p->dead == LEAF_END - (size_t)p->heap;
}

/* --- entries on their way -------------------------------------------------------------- */

/* Entry j, the next one behind the s->n that are counted. */
static void
stat_add(struct leaf_stat *s, const struct leaf_items *t, unsigned j)
{
	const struct leaf_item	*e = &t->item[j], *first = e - s->n;
	uint64_t		 col[LEAF_COLUMNS];
	size_t			 skip;

	columns_of(&e->val, e->len, col);
	if (s->n++ == 0) {
		s->skip = e->len;
		s->rest = 0;
		memcpy(s->low, col, sizeof(col));
		memcpy(s->high, col, sizeof(col));
		return;
	}
	for (unsigned c = 0; c < LEAF_COLUMNS; c++) {
		s->low[c] = col[c] < s->low[c] ? col[c] : s->low[c];
		s->high[c] = col[c] > s->high[c] ? col[c] : s->high[c];
	}
	/* with the first, not the one before: of a forged tree the order may not hold */
	skip = key_common(t->keys + first->key, t->keys + e->key, e->len < s->skip ? e->len : s->skip);
	if (skip == s->skip) {
		s->rest += rest_of(e->len, skip);
		return;
	}
	s->skip = skip;
	s->rest = 0;
	for (const struct leaf_item *f = first; f <= e; f++)
		s->rest += rest_of(f->len, skip);
}

/*
 * Width of column c, and its low: 0 where that costs nothing, for there may be lower ones to
 * come, and never above low_max().
 */
static unsigned
stat_width(const struct leaf_stat *s, unsigned c, uint64_t *low)
{
	unsigned	w = 0;

	*low = s->low[c];
	if (c == COL_AT)
		return s->rest != 0 ? 2 : 0;
	while ((s->high[c] - s->low[c]) > mask_of(w))
		w++;
	if (w != 0 && s->high[c] <= mask_of(w))
		*low = 0;
	if (*low > low_max(c, w))
		*low = low_max(c, w);
	return w;
}

static size_t
stat_bytes(const struct leaf_stat *s)
{
	uint64_t	low;
	size_t		row = LEAF_TOLD;

	for (unsigned c = 0; c < LEAF_COLUMNS; c++)
		row += stat_width(s, c, &low);
	return heads_at(s->skip) + s->n * row + s->rest;
}

void
leaf_items_clear(struct leaf_items *t)
{
	t->n = 0;
	t->used = 0;
	t->stat.n = 0;
}

static void
items_append(struct leaf_items *t, const uint8_t *key, size_t len, const struct doc_val *val)
{
	t->item[t->n++] = (struct leaf_item){ *val, t->used, (uint32_t)len };
	memcpy(t->keys + t->used, key, len);
	t->used += (uint32_t)len;
}

bool
leaf_items_add(struct leaf_items *t, const uint8_t *key, size_t len, const struct doc_val *val)
{
	struct leaf_stat	before = t->stat;

	if (t->n == LEAF_MAX)
		return false;
	items_append(t, key, len, val);
	stat_add(&t->stat, t, t->n - 1);
	if (stat_bytes(&t->stat) <= LEAF_END)
		return true;
	t->stat = before;
	t->n--;
	t->used -= (uint32_t)len;
	return false;
}

/* Head and row of an entry; what they do not hold of its key is at p->heap. */
static uint8_t *
pack_item(struct page *p, uint32_t *head, uint8_t *at, const struct doc_val *val, const uint8_t *key, size_t len)
{
	size_t		rest = rest_of(len, p->skip);
	uint64_t	col[LEAF_COLUMNS], v;

	columns_of(val, len, col);
	if (rest != 0) {
		p->heap = (uint16_t)(p->heap - rest);
		memcpy((uint8_t *)p + p->heap, key + p->skip + LEAF_TOLD, rest);
		col[COL_AT] = p->heap;
	}
	*head = key_head(key + p->skip, len - p->skip);
	for (unsigned c = 0; c < LEAF_COLUMNS; c++) {
		v = col[c] - load64((const uint8_t *)p + LEAF_LOW + 8 * c);
		for (unsigned w = widths(p)[c]; w > 0; w--, v >>= 8)
			*at++ = (uint8_t)v;
	}
	return at;
}

bool
leaf_pack(struct page *p, const struct leaf_items *t, unsigned from, unsigned to)
{
	const struct leaf_item	*e;
	struct leaf_stat	 s = { .n = 0 };
	uint8_t			*b = (uint8_t *)p, *row;
	uint64_t		 low;

	for (unsigned j = from; j < to; j++)
		stat_add(&s, t, j);
	if (s.n > LEAF_MAX || stat_bytes(&s) > LEAF_END)
		return false;
	p->count = (uint16_t)s.n;
	p->skip = (uint16_t)s.skip;
	for (unsigned c = 0; c < LEAF_COLUMNS; c++) {
		b[LEAF_WIDTH + c] = (uint8_t)stat_width(&s, c, &low);
		memcpy(b + LEAF_LOW + 8 * c, &low, sizeof(low));
	}
	memset(b + LEAF_PREFIX + s.skip, 0, heads_at(s.skip) - LEAF_PREFIX - s.skip);
	memcpy(b + LEAF_PREFIX, t->keys + t->item[from].key, s.skip);
	memset(b + LEAF_END, 0, PAGE_BYTES - LEAF_END);
	row = b + rows_at(p);
	for (unsigned j = from; j < to; j++) {
		e = &t->item[j];
		row = pack_item(p, (uint32_t *)(void *)(b + heads_at(s.skip)) + (j - from), row, &e->val,
		    t->keys + e->key, e->len);
	}
	return true;
}

/* --- changes ------------------------------------------------------------------------- */

static struct leaf_items	scratch;	/* of the one thread that changes trees */

static void
unpack(const struct page *p, unsigned from, unsigned to)
{
	struct doc_val	v;
	uint8_t		key[KEY_MAX];

	for (unsigned i = from; i < to; i++) {
		leaf_val(p, i, &v);
		items_append(&scratch, key, leaf_key(p, i, key), &v);
	}
}

/* Does every column have room for what it is to hold?  But COL_AT. */
static bool
fits_columns(const struct page *p, const uint64_t col[LEAF_COLUMNS])
{
	for (unsigned c = 0; c < LEAF_COLUMNS; c++) {
		uint64_t	low = load64((const uint8_t *)p + LEAF_LOW + 8 * c);

		if (c != COL_AT && (col[c] < low || col[c] - low > mask_of(widths(p)[c])))
			return false;
	}
	return true;
}

/* Can the page hold it as it is? */
static bool
fits_as_is(const struct page *p, bool exact, const uint8_t *key, size_t len, const struct doc_val *val)
{
	size_t		rest = rest_of(len, p->skip);
	uint64_t	col[LEAF_COLUMNS];

	columns_of(val, len, col);
	if (p->count == 0 || !fits_columns(p, col))
		return false;
	return exact || (p->count < LEAF_MAX && len >= p->skip &&
	    memcmp(key, (const uint8_t *)p + LEAF_PREFIX, p->skip) == 0 && (rest == 0 || widths(p)[COL_AT] != 0) &&
	    leaf_front(p) + LEAF_TOLD + row_bytes(p) + rest <= p->heap);
}

static void
set_row(struct page *p, unsigned i, size_t len, const struct doc_val *val)
{
	uint64_t	 col[LEAF_COLUMNS], v;
	uint8_t		*at = (uint8_t *)p + (leaf_row(p, i) - (const uint8_t *)p);

	columns_of(val, len, col);
	at += widths(p)[COL_LEN] + widths(p)[COL_AT];
	for (unsigned c = COL_SEQ; c < LEAF_COLUMNS; c++) {
		v = col[c] - load64((const uint8_t *)p + LEAF_LOW + 8 * c);
		for (unsigned w = widths(p)[c]; w > 0; w--, v >>= 8)
			*at++ = (uint8_t)v;
	}
}

static void
insert_row(struct page *p, unsigned i, const uint8_t *key, size_t len, const struct doc_val *val)
{
	size_t		 row = row_bytes(p), at = rows_at(p);
	uint8_t		*b = (uint8_t *)p;

	memmove(b + at + LEAF_TOLD + (i + 1) * row, b + at + i * row, (p->count - i) * row);
	memmove(b + at + LEAF_TOLD, b + at, i * row);
	memmove(b + heads_at(p->skip) + (i + 1) * LEAF_TOLD, b + heads_at(p->skip) + i * LEAF_TOLD,
	    (p->count - i) * LEAF_TOLD);
	p->count++;
	pack_item(p, (uint32_t *)(void *)(b + heads_at(p->skip)) + i, b + rows_at(p) + i * row, val, key, len);
	page_note_run(p, i);
}

/* All entries with the change. */
static void
unpack_with(const struct page *p, unsigned i, bool exact, const uint8_t *key, size_t len, const struct doc_val *val)
{
	leaf_items_clear(&scratch);
	unpack(p, 0, i);
	items_append(&scratch, key, len, val);
	unpack(p, i + exact, p->count);
}

bool
leaf_put(struct page *p, unsigned i, bool exact, const uint8_t *key, size_t len, const struct doc_val *val)
{
	union page_buf	new;

	if (fits_as_is(p, exact, key, len, val)) {
		if (exact)
			set_row(p, i, len, val);
		else
			insert_row(p, i, key, len, val);
		return true;
	}
	unpack_with(p, i, exact, key, len, val);
	page_init(&new.page, 0, p->gen, p->base);
	if (!leaf_pack(&new.page, &scratch, 0, scratch.n))
		return false;
	new.page.next = p->next;
	new.page.run = p->run;
	if (!exact)
		page_note_run(&new.page, i);
	page_copy(p, &new.page);
	return true;
}

void
leaf_erase(struct page *p, unsigned i, unsigned n)
{
	size_t		 row = row_bytes(p), at = rows_at(p), to = at - (size_t)n * LEAF_TOLD, rest;
	uint8_t		*b = (uint8_t *)p;

	for (unsigned j = i; j < i + n; j++)
		p->dead = (uint16_t)(p->dead + rest_of(key_len(p, j, p->skip, &rest), p->skip));
	memmove(b + heads_at(p->skip) + i * LEAF_TOLD, b + heads_at(p->skip) + (i + n) * LEAF_TOLD,
	    (p->count - i - n) * LEAF_TOLD);
	memmove(b + to, b + at, i * row);
	memmove(b + to + i * row, b + at + (i + n) * row, (p->count - i - n) * row);
	p->count = (uint16_t)(p->count - n);
	p->next = p->run = 0;
}

/* How many entries stay on the left. */
static unsigned
cut_at(const struct page *p, unsigned i)
{
	size_t		row = row_bytes(p) + LEAF_TOLD, total = 0, left = 0, rest;
	unsigned	j;

	if (i != 0 && i < p->count && i == p->next && p->run >= RUN_ASCENDING)
		return i;
	for (j = 0; j < p->count; j++)
		total += row + rest_of(key_len(p, j, p->skip, &rest), p->skip);
	for (j = 0; j + 1 < p->count && 2 * left < total; j++)
		left += row + rest_of(key_len(p, j, p->skip, &rest), p->skip);
	return j != 0 ? j : 1;
}

bool
leaf_cut(struct page *p, struct page *right, unsigned i, uint8_t sep[KEY_MAX], size_t *seplen)
{
	unsigned	cut = cut_at(p, i), n = p->count, next = p->next, run = p->run;
	union page_buf	left;
	uint8_t		before[KEY_MAX];
	size_t		nbefore, len;

	leaf_items_clear(&scratch);
	unpack(p, 0, n);
	page_init(&left.page, 0, p->gen, p->base);
	/* of a sound page both fit: a longer prefix takes no more than the head of the entry that left */
	if (!leaf_pack(&left.page, &scratch, 0, cut) || !leaf_pack(right, &scratch, cut, n))
		return false;
	nbefore = leaf_key(p, cut - 1, before);
	len = leaf_key(p, cut, sep);
	*seplen = key_between(before, nbefore, sep, len);
	page_copy(p, &left.page);
	if (next > cut) {
		right->next = (uint16_t)(next - cut);
		right->run = (uint8_t)run;
	} else {
		p->next = (uint16_t)next;
		p->run = (uint8_t)run;
	}
	return true;
}
