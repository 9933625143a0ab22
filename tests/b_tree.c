/* tests/b_tree.c - store/tree.h, store/page.h: T1-T5. */
#include "config.h"
#include "store/leaf.h"
#include "tests/b_model.h"

static void
what_is_newer_stays(void **state)
{
	struct bed	b;
	struct doc_val	val = { .seq = 5, .body_len = 50 }, old;
	struct agg	a;

	(void)state;
	bed_open(&b);
	assert_int_equal(tree_put_newest(&b.w, "k", 1, &val, &old), 0);
	assert_int_equal(old.seq, 0);
	for (unsigned seq = 3; seq < 8; seq++) {	/* the same seq: moved to another place */
		val = (struct doc_val){ .seq = seq, .body_len = 10 * seq, .offset = seq };
		assert_int_equal(tree_put_newest(&b.w, "k", 1, &val, &old), seq < 5);
		assert_int_equal(old.seq, seq <= 5 ? 5 : seq - 1);
		assert_int_equal(tree_get(&b.w.t, "k", 1, &old), 1);
		assert_int_equal(old.offset, seq < 5 ? 0 : seq);
	}
	assert_int_equal(tree_range(&b.w.t, "", 0, NULL, 0, &a), 0);
	assert_true(a.count == 1 && a.bytes == 70 && a.max_seq == 7);
	bed_close(&b);
}

static void
an_empty_tree_has_nothing(void **state)
{
	struct tree	t = { .root = PAGE_NONE };
	struct doc_val	val;
	struct cursor	c;
	struct agg	a, none = { 0 };
	char		err[100];

	(void)state;
	assert_int_equal(tree_get(&t, "a", 1, &val), 0);
	assert_int_equal(tree_range(&t, "", 0, NULL, 0, &a), 0);
	assert_agg(&a, &none);
	assert_int_equal(cursor_seek(&c, &t, "", 0), 0);
	assert_int_equal(cursor_next(&c), 0);
	assert_int_equal(tree_verify(&t, err, sizeof(err)), 0);
}

static void
a_key_is_tenant_then_path(void **state)
{
	uint8_t	a[KEY_MAX], b[KEY_MAX];
	size_t	alen = key_make(a, 255, "z", 1), blen = key_make(b, 256, "a", 1);

	(void)state;
	assert_int_equal(alen, 5);
	assert_int_equal(key_tenant(a), 255);
	assert_int_equal(key_tenant(b), 256);
	assert_true(model_cmp(a, alen, b, blen) < 0);
}

static void
comparing_is_memcmp_then_length(void **state)
{
	uint8_t	a[40], b[40];
	int	want, got;

	(void)state;
	rnd_state = 5;
	for (int i = 0; i < 200000; i++) {
		size_t	alen = rnd(40), blen = rnd(40);

		memset(a, 'a', sizeof(a));
		memset(b, 'a', sizeof(b));
		if (rnd(3) && alen > 0)
			a[rnd(alen)] = (uint8_t)rnd(256);
		if (rnd(3) && blen > 0)
			b[rnd(blen)] = (uint8_t)rnd(256);
		want = model_cmp(a, alen, b, blen);
		got = key_cmp(a, alen, b, blen);
		assert_int_equal((want > 0) - (want < 0), got);
	}
}

static void
random_changes(enum shape shape, unsigned wide, unsigned steps, unsigned batch)
{
	struct bed	b;
	struct model	m = { 0 };
	uint8_t		end[1] = { 0 };

	bed_open(&b);
	for (unsigned i = 1; i <= steps; i++) {
		bed_step(&b, &m, shape, wide);
		if (i % batch == 0)
			bed_publish(&b, PIN_NONE);
		if (i % 1000 == 0) {
			assert_tree_is(&b.w.t, &m);
			assert_tree_answers(&b.w.t, &m, shape, wide, 200);
		}
	}
	bed_remove(&b, &m, end, 0, NULL, 0);
	assert_int_equal(b.w.t.root, PAGE_NONE);
	assert_int_equal(b.o.in_use, 0);	/* nothing leaked on the way */
	model_free(&m);
	bed_close(&b);
}

static void
random_changes_of_documents_match_the_model(void **state)
{
	(void)state;
	rnd_state = 1;
	random_changes(SHAPE_DOCS, 5000, 20000, 1);
	random_changes(SHAPE_DOCS, 1000000, 20000, 64);
}

static void
random_changes_of_tiny_keys_match_the_model(void **state)
{
	(void)state;
	rnd_state = 2;
	random_changes(SHAPE_TINY, 0, 20000, 7);
}

static void
random_changes_of_long_keys_match_the_model(void **state)
{
	(void)state;
	rnd_state = 3;
	random_changes(SHAPE_LONG, 3000, 10000, 16);
	random_changes(SHAPE_ZEROS, 0, 10000, 16);
}

/* Old generations, held by a pin, stay what they were while the writer reuses pages. */
static void
a_pinned_generation_never_changes(void **state)
{
	enum { PINS = 6 };
	struct held { struct root root; struct model m; } held[PINS] = { 0 };
	struct bed	b;
	struct model	m = { 0 };
	struct tree	t;
	uint64_t	oldest;

	(void)state;
	rnd_state = 4;
	bed_open(&b);
	for (unsigned i = 0; i < 600; i++) {
		struct held	*h = &held[rnd(PINS)];
		uint64_t	 gen = b.w.gen;

		for (unsigned j = rnd(30); j > 0; j--)
			bed_step(&b, &m, SHAPE_DOCS, 3000);
		oldest = PIN_NONE;
		for (unsigned j = 0; j < PINS; j++)
			if (held[j].root.gen != 0 && held[j].root.gen < oldest)
				oldest = held[j].root.gen;
		struct root	r = bed_publish(&b, oldest);

		assert_int_equal(r.gen, gen);
		if (h->root.gen != 0) {		/* let go, after a last look */
			t = b.w.t;
			t.root = h->root.page;
			assert_tree_is(&t, &h->m);
			assert_tree_answers(&t, &h->m, SHAPE_DOCS, 3000, 20);
			model_free(&h->m);
			h->root.gen = 0;
		} else {
			h->root = r;
			model_copy(&h->m, &m);
		}
	}
	for (unsigned j = 0; j < PINS; j++)
		model_free(&held[j].m);
	model_free(&m);
	bed_close(&b);
}

static double
load_ordered(unsigned n)
{
	struct bed	b;
	struct doc_val	val = { 0 }, old;
	struct agg	a;
	uint8_t		key[KEY_MAX];
	char		path[32], err[200];
	size_t		len, bytes = 0;
	double		fill;

	bed_open(&b);
	for (unsigned i = 0; i < n; i++) {
		len = (size_t)snprintf(path, sizeof(path), "doc-%06u", i);
		len = key_make(key, 1, path, len);
		val.seq = ++b.seq;
		assert_int_equal(tree_put(&b.w, key, len, &val, &old), 0);
		bytes += 8 + sizeof(val) + len;
		if (i % 64 == 0)
			bed_publish(&b, PIN_NONE);
	}
	assert_int_equal(tree_verify(&b.w.t, err, sizeof(err)), 0);
	assert_int_equal(tree_range(&b.w.t, "", 0, NULL, 0, &a), 0);
	assert_int_equal(a.count, n);
	fill = (double)bytes / ((double)b.o.in_use * PAGE_ROOM);
	bed_close(&b);
	return fill;
}

static void
keys_in_order_fill_their_pages(void **state)
{
	double	fill = load_ordered(100000);

	(void)state;
	assert_true(fill > 0.97);	/* interior pages are what is missing */
}

static void
keys_in_order_in_one_folder_of_many_fill_their_pages(void **state)
{
	struct bed	b;
	struct doc_val	val = { .seq = 1 }, old;
	uint8_t		key[KEY_MAX];
	char		path[32];
	size_t		len;
	uint32_t	before;

	(void)state;
	rnd_state = 6;
	bed_open(&b);
	for (unsigned i = 0; i < 1000; i++) {	/* neighbours on both sides */
		len = (size_t)snprintf(path, sizeof(path), "%06u", (unsigned)rnd(1000000));
		len = key_make(key, i % 2 ? 1 : 3, path, len);
		assert_int_equal(tree_put(&b.w, key, len, &val, &old), 0);
	}
	before = b.o.in_use;
	for (unsigned i = 0; i < 20000; i++) {
		len = (size_t)snprintf(path, sizeof(path), "%06u", i);
		len = key_make(key, 2, path, len);
		assert_int_equal(tree_put(&b.w, key, len, &val, &old), 0);
	}
	assert_true(20000.0 * (8 + 40 + 10) / ((double)(b.o.in_use - before) * PAGE_ROOM) > 0.95);
	bed_close(&b);
}

static void
the_highest_seq_is_exact_when_a_lower_one_replaces_it(void **state)
{
	struct bed	b;
	struct doc_val	val = { 0 }, old;
	struct agg	a;
	uint8_t		key[KEY_MAX];
	char		path[32];

	(void)state;
	bed_open(&b);
	for (unsigned i = 0; i < 5000; i++) {
		val.seq = 10 + (i == 2500 ? 1000 : 0);
		size_t	len = key_make(key, 1, path, (size_t)snprintf(path, sizeof(path), "%05u", i));
		assert_int_equal(tree_put(&b.w, key, len, &val, &old), 0);
	}
	bed_publish(&b, PIN_NONE);
	tree_range(&b.w.t, "", 0, NULL, 0, &a);
	assert_int_equal(a.max_seq, 1010);
	val.seq = 9;
	assert_int_equal(tree_put(&b.w, key, key_make(key, 1, "02500", 5), &val, &old), 0);
	assert_int_equal(old.seq, 1010);
	tree_range(&b.w.t, "", 0, NULL, 0, &a);
	assert_int_equal(a.max_seq, 10);
	bed_close(&b);
}

/* Documents of one moment, in few wide leaves: a put of another one cuts such a leaf four times. */
static void
bed_moment(struct bed *b, struct model *m, unsigned n)
{
	uint8_t	key[KEY_MAX];
	char	path[32];

	for (unsigned i = 0; i < n; i++) {
		struct doc_val	val = { .seq = ++b->seq, .time_ms = 5, .segment = 1, .offset = 8 }, old;
		size_t		len = key_make(key, 1, path, (size_t)snprintf(path, sizeof(path), "%05u", i));

		assert_int_equal(tree_put(&b->w, key, len, &val, &old), 0);
		model_put(m, key, len, &val, &old);
	}
	bed_publish(b, PIN_NONE);
}

/* Rows of three bytes become rows of 36: a leaf has to be cut more than once. */
static void
documents_of_one_moment_make_room_for_those_of_another(void **state)
{
	struct bed	b;
	struct model	m = { 0 };
	uint8_t		key[KEY_MAX];
	char		path[32];
	size_t		len;

	(void)state;
	rnd_state = 11;
	bed_open(&b);
	bed_moment(&b, &m, 3000);
	assert_true(b.o.in_use < 9);
	for (unsigned i = 0; i < 300; i++) {
		struct doc_val	val, old, want;

		rnd_val(&val, UINT64_MAX - rnd(1000));
		len = key_make(key, 1, path, (size_t)snprintf(path, sizeof(path), "%05u%s", (unsigned)rnd(3000),
		    rnd(2) ? "" : "-and-more"));
		assert_int_equal(tree_put(&b.w, key, len, &val, &old), 0);
		model_put(&m, key, len, &val, &want);
		assert_val(&old, &want);
		assert_tree_is(&b.w.t, &m);
	}
	model_free(&m);
	bed_close(&b);
}

/* A page that was sound when it was looked at may not be when it is read again.  Nothing lies behind it. */
static void
keys_of_a_leaf_gone_bad_stay_within_it(void **state)
{
	struct leaf_items *items = malloc(sizeof(*items));
	union page_buf	 good;
	uint8_t		*map, *key = malloc(KEY_MAX), *out = malloc(KEY_MAX);	/* no byte more */
	struct page	*p;
	size_t		 len, none = 0;
	bool		 exact;

	(void)state;
	rnd_state = 14;
	map = mmap(NULL, 2 * PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(map, MAP_FAILED);
	assert_int_equal(mprotect(map + PAGE_BYTES, PAGE_BYTES, PROT_NONE), 0);
	p = (struct page *)map;
	leaf_items_clear(items);
	for (unsigned i = 100; i < 140; i++) {
		struct doc_val	val;

		rnd_val(&val, i);
		len = (size_t)snprintf((char *)key, KEY_MAX, "folder/%u-%.*s", i / 3, (int)(i % 3 * 9), "123456789012345678");
		assert_true(leaf_items_add(items, key, len, &val));
	}
	memset(&good, 0, sizeof(good));
	page_init(&good.page, 0, 1, 0);
	assert_true(leaf_pack(&good.page, items, 0, items->n));
	assert_true(page_sound(good.bytes));
	for (unsigned i = 0; i < 200000; i++) {
		memcpy(map, &good, PAGE_BYTES);
		for (uint64_t n = 1 + rnd(3); n > 0; n--)
			map[rnd(8) ? rnd(LEAF_PREFIX) : rnd(PAGE_BYTES)] = (uint8_t)(rnd(2) ? rnd(256) : rnd(3));
		for (unsigned j = 0; j < 40; j += 1 + (unsigned)rnd(9)) {
			len = leaf_key(p, j, out);
			assert_true(len <= KEY_MAX);
			none += len == 0;
		}
		len = (size_t)snprintf((char *)key, KEY_MAX, "folder/%u-%.*s", 33 + (unsigned)rnd(13), (int)rnd(19),
		    "123456789012345678");
		(void)leaf_search(p, key, len, &exact);
	}
	assert_true(none > 0);
	munmap(map, 2 * PAGE_BYTES);
	free(out);
	free(key);
	free(items);
}

/* The overlay ends here: nothing can be allocated beyond what is. */
static void
bed_exhaust(struct bed *b)
{
	b->o.end = b->o.allocated = b->o.next;
}

static void
a_put_without_room_changes_nothing(void **state)
{
	struct bed	b;
	struct model	m = { 0 };
	struct doc_val	val = { .seq = 1 }, old;
	uint8_t		key[KEY_MAX];
	size_t		len;
	unsigned	refused = 0;

	(void)state;
	rnd_state = 7;
	bed_open(&b);
	for (unsigned i = 0; i < 3000; i++)
		bed_step(&b, &m, SHAPE_LONG, 3000);
	bed_publish(&b, PIN_NONE);
	bed_exhaust(&b);
	for (unsigned i = 0; i < 2000; i++) {
		uint32_t	root = b.w.t.root, in_use = b.o.in_use;

		len = rnd_key(key, SHAPE_LONG, 3000);
		errno = 0;
		if (tree_put(&b.w, key, len, &val, &old) == 0) {
			model_put(&m, key, len, &val, &old);
			continue;
		}
		assert_int_equal(errno, ENOSPC);
		assert_int_equal(root, b.w.t.root);
		assert_int_equal(in_use, b.o.in_use);
		refused++;
	}
	assert_true(refused > 0);
	assert_tree_is(&b.w.t, &m);
	model_free(&m);
	bed_close(&b);
}

static void
a_put_that_ends_between_two_cuts_leaves_the_documents(void **state)
{
	struct bed	b;
	struct model	m = { 0 };
	struct doc_val	val, old;
	uint8_t		key[KEY_MAX];
	size_t		len = key_make(key, 1, "00150", 5);
	unsigned	cut = 0;
	uint32_t	root, end;

	(void)state;
	rnd_state = 12;
	for (unsigned pages = 0; ; pages++) {
		bed_open(&b);
		bed_moment(&b, &m, 2000);
		b.o.nfree = 0;
		end = b.o.end;
		b.o.end = b.o.allocated = b.o.next + pages;
		root = b.w.t.root;
		rnd_val(&val, UINT64_MAX - 1);
		errno = 0;
		if (tree_put(&b.w, key, len, &val, &old) == 0)
			break;
		assert_int_equal(errno, ENOSPC);
		cut += b.w.t.root != root;
		assert_tree_is(&b.w.t, &m);
		b.o.end = end;
		bed_remove(&b, &m, m.e[0].key, 0, NULL, 0);
		assert_int_equal(b.o.in_use, 0);
		model_free(&m);
		bed_close(&b);
	}
	assert_true(cut > 2);
	model_put(&m, key, len, &val, &old);
	assert_tree_is(&b.w.t, &m);
	model_free(&m);
	bed_close(&b);
}

static void
cutting_a_leaf_takes_no_memory_that_it_does_not_need(void **state)
{
	struct bed	b;
	struct model	m = { 0 };
	struct doc_val	val, old;
	uint8_t		key[KEY_MAX];
	uint32_t	allocated;

	(void)state;
	rnd_state = 13;
	bed_open(&b);
	bed_moment(&b, &m, 300);
	assert_int_equal(b.o.in_use, 1);
	allocated = b.o.allocated;
	rnd_val(&val, UINT64_MAX - 1);
	assert_int_equal(tree_put(&b.w, key, key_make(key, 1, "00150", 5), &val, &old), 0);
	assert_true(b.o.in_use > 2);
	assert_int_equal(b.o.allocated, allocated);
	model_free(&m);
	bed_close(&b);
}

static void
a_remove_without_room_changes_nothing(void **state)
{
	struct bed	b;
	struct model	m = { 0 };
	size_t		from = 100, to;

	(void)state;
	rnd_state = 8;
	bed_open(&b);
	bed_fill(&b, &m, SHAPE_DOCS, 1000000, 1000);
	bed_publish(&b, PIN_NONE);
	to = m.n - 100;
	b.o.nfree = 0;
	bed_exhaust(&b);
	errno = 0;
	assert_int_equal(tree_remove(&b.w, m.e[from].key, m.e[from].len, m.e[to].key, m.e[to].len, NULL, NULL), -1);
	assert_int_equal(errno, ENOSPC);
	assert_tree_is(&b.w.t, &m);
	model_free(&m);
	bed_close(&b);
}

/* Leaves n pages to be had. */
static void
bed_leave(struct bed *b, unsigned n)
{
	b->o.nfree = 0;
	b->o.end = b->o.allocated = b->o.next + n;
}

/* However many there are: the ways down are copied whole, or the documents are what they were and no page is lost. */
static void
a_change_that_runs_out_of_room_on_the_way_down_loses_nothing(void **state)
{
	struct doc_val	val = { .seq = 1 }, old;
	struct bed	b;
	struct model	m = { 0 };
	size_t		from = 20, to;
	unsigned	room, depth;
	uint32_t	in_use, root;

	(void)state;
	rnd_state = 9;
	bed_open(&b);
	bed_fill(&b, &m, SHAPE_LONG, 1000000, 400);
	to = m.n - 20;
	bed_publish(&b, 0);		/* nothing is ours to change as it is, and nothing comes free */
	root = b.w.t.root;
	depth = page_get(&b.w.t, root, -1)->level + 1u;
	assert_true(depth >= 3);
	in_use = b.o.in_use;
	for (room = 0; room <= depth; room++) {
		bed_leave(&b, room);
		errno = 0;
		assert_int_equal(tree_put(&b.w, m.e[0].key, m.e[0].len, &val, &old), -1);
		assert_int_equal(errno, ENOSPC);
		assert_int_equal(b.o.in_use, in_use);
		assert_int_equal(b.w.t.root != root, room >= depth);	/* copied, all of it or nothing */
		assert_tree_is(&b.w.t, &m);
	}
	for (room = 0; room < 2 * depth; room++) {
		bed_publish(&b, 0);
		bed_leave(&b, room);
		in_use = b.o.in_use;
		errno = 0;
		if (tree_remove(&b.w, m.e[from].key, m.e[from].len, m.e[to].key, m.e[to].len, NULL, NULL) == 0)
			break;
		assert_int_equal(errno, ENOSPC);
		assert_int_equal(b.o.in_use, in_use);
		assert_tree_is(&b.w.t, &m);
	}
	assert_int_equal(room, 2 * depth - 1);	/* the root is on both ways */
	model_remove(&m, from, to);
	assert_tree_is(&b.w.t, &m);
	model_free(&m);
	bed_close(&b);
}

static void
removing_keeps_no_empty_page_and_no_tall_root(void **state)
{
	struct bed	b;
	struct model	m = { 0 };

	(void)state;
	rnd_state = 9;
	bed_open(&b);
	bed_fill(&b, &m, SHAPE_DOCS, 1000000, 5000);
	bed_publish(&b, PIN_NONE);
	bed_remove(&b, &m, m.e[2].key, m.e[2].len, NULL, 0);
	assert_int_equal(m.n, 2);
	assert_tree_is(&b.w.t, &m);
	assert_int_equal(b.o.in_use, 1);
	bed_remove(&b, &m, m.e[0].key, m.e[0].len, m.e[1].key, m.e[1].len);
	bed_remove(&b, &m, m.e[0].key, m.e[0].len, NULL, 0);
	assert_int_equal(b.w.t.root, PAGE_NONE);
	assert_int_equal(b.o.in_use, 0);
	model_free(&m);
	bed_close(&b);
}

/* T5, from below: what was published is, byte for byte, what it was. */
static void
a_published_page_is_never_written(void **state)
{
	struct bed	b;
	struct model	m = { 0 };
	uint8_t		*copy;
	size_t		 from, n;

	(void)state;
	rnd_state = 10;
	bed_open(&b);
	bed_fill(&b, &m, SHAPE_DOCS, 5000, 2000);
	uint64_t	gen = bed_publish(&b, PIN_NONE).gen;

	overlay_trim(&b.o);
	b.o.nfree = 0;		/* so that new pages lie behind */
	b.o.nholes = 0;
	from = (size_t)b.o.first * PAGE_BYTES;
	n = (size_t)(b.o.next - b.o.first) * PAGE_BYTES;
	copy = malloc(n);
	memcpy(copy, b.o.base + from, n);
	for (unsigned i = 0; i < 2000; i++) {
		bed_step(&b, &m, SHAPE_DOCS, 5000);
		if (i % 10 == 0)
			bed_publish(&b, gen);
	}
	assert_memory_equal(copy, b.o.base + from, n);
	free(copy);
	model_free(&m);
	bed_close(&b);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_key_is_tenant_then_path),
		cmocka_unit_test(comparing_is_memcmp_then_length),
		cmocka_unit_test(an_empty_tree_has_nothing),
		cmocka_unit_test(what_is_newer_stays),
		cmocka_unit_test(random_changes_of_documents_match_the_model),
		cmocka_unit_test(random_changes_of_tiny_keys_match_the_model),
		cmocka_unit_test(random_changes_of_long_keys_match_the_model),
		cmocka_unit_test(the_highest_seq_is_exact_when_a_lower_one_replaces_it),
		cmocka_unit_test(removing_keeps_no_empty_page_and_no_tall_root),
		cmocka_unit_test(a_published_page_is_never_written),
		cmocka_unit_test(a_pinned_generation_never_changes),
		cmocka_unit_test(keys_in_order_fill_their_pages),
		cmocka_unit_test(keys_in_order_in_one_folder_of_many_fill_their_pages),
		cmocka_unit_test(documents_of_one_moment_make_room_for_those_of_another),
		cmocka_unit_test(keys_of_a_leaf_gone_bad_stay_within_it),
		cmocka_unit_test(a_put_without_room_changes_nothing),
		cmocka_unit_test(a_put_that_ends_between_two_cuts_leaves_the_documents),
		cmocka_unit_test(cutting_a_leaf_takes_no_memory_that_it_does_not_need),
		cmocka_unit_test(a_remove_without_room_changes_nothing),
		cmocka_unit_test(a_change_that_runs_out_of_room_on_the_way_down_loses_nothing),
	};

	proc_become(IN_TEST, 0);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
