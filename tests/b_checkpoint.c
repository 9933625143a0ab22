/* tests/b_checkpoint.c - store/checkpoint.h: T6, and what a damaged file may do. */
#include "config.h"
#include <sys/stat.h>
#include <fcntl.h>
#include "store/checkpoint.h"
#include "store/leaf.h"
#include "tests/b_model.h"

/* --- a directory -------------------------------------------------------------------- */

static int	dir = -1;
static char	dir_name[] = "/tmp/b_checkpoint.XXXXXX";

static int
dir_make(void **state)
{
	(void)state;
	if (mkdtemp(dir_name) == NULL)
		return -1;
	dir = open(dir_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return dir == -1 ? -1 : 0;
}

static int
dir_drop(void **state)
{
	(void)state;
	unlinkat(dir, "other", 0);
	checkpoint_tidy(dir, 0);
	close(dir);
	return rmdir(dir_name);
}

static bool
file_there(const char *name)
{
	return faccessat(dir, name, F_OK, 0) == 0;
}

/* Writes bytes as checkpoint `number`. */
static void
file_put(uint32_t number, const uint8_t *bytes, size_t n)
{
	char	name[32];
	int	fd;

	snprintf(name, sizeof(name), "tree-%010u", number);
	fd = openat(dir, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	assert_int_not_equal(fd, -1);
	assert_int_equal(write(fd, bytes, n), (ssize_t)n);
	close(fd);
}

/* Opens checkpoint `number` to damage it in place. */
static int
file_open(uint32_t number)
{
	char	name[32];
	int	fd;

	snprintf(name, sizeof(name), "tree-%010u", number);
	fd = openat(dir, name, O_RDWR | O_CLOEXEC);
	assert_int_not_equal(fd, -1);
	return fd;
}

static uint8_t *
file_get(uint32_t number, size_t *n)
{
	struct stat	 st;
	uint8_t		*bytes;
	int		 fd = file_open(number);

	assert_int_equal(fstat(fd, &st), 0);
	*n = (size_t)st.st_size;
	bytes = malloc(*n);
	assert_int_equal(read(fd, bytes, *n), st.st_size);
	close(fd);
	return bytes;
}

/* --- checkpoints ------------------------------------------------------------------------ */

static const volatile int	go_on;

static void
write_as(const struct tree *t, uint32_t number)
{
	struct checkpoint_head	head = { .store_id = 77, .number = number, .segment = 5, .offset = 4096, .nsegments = 2 };
	struct checkpoint_segment segs[2] = { { .number = 4, .bytes = 1 << 20 }, { .number = 5, .live = 99 } };

	assert_int_equal(checkpoint_write(t, dir, &head, segs, &go_on, NULL, NULL), 0);
}

static struct tree
tree_of(const struct checkpoint *c)
{
	return (struct tree){ .checkpoint = c->map, .npages = c->head.npages, .checked = c->checked, .root = c->head.root };
}

static void
check_roundtrip(enum shape shape, unsigned wide, size_t n)
{
	struct bed		b;
	struct model		m = { 0 };
	struct checkpoint	c;
	struct tree		t;
	struct agg		a;

	bed_open(&b);
	bed_fill(&b, &m, shape, wide, n);
	write_as(&b.w.t, 3);
	assert_int_equal(checkpoint_open(&c, dir, 3, true), 0);
	assert_int_equal(c.head.store_id, 77);
	assert_int_equal(c.head.segment, 5);
	assert_int_equal(c.head.nsegments, 2);
	assert_int_equal(c.segments[0].number, 4);
	assert_int_equal(c.segments[1].live, 99);
	t = tree_of(&c);
	model_agg(&m, 0, m.n, &a);
	assert_agg(&c.head.agg, &a);
	assert_tree_is(&t, &m);
	assert_tree_answers(&t, &m, shape, wide, 300);
	checkpoint_close(&c);
	model_free(&m);
	bed_close(&b);
}

static void
what_was_written_is_read(void **state)
{
	(void)state;
	rnd_state = 20;
	check_roundtrip(SHAPE_DOCS, 1000, 0);
	check_roundtrip(SHAPE_DOCS, 1000, 1);
	check_roundtrip(SHAPE_DOCS, 1000000, 20000);
	check_roundtrip(SHAPE_TINY, 0, 100);
	check_roundtrip(SHAPE_LONG, 3000, 1500);
	check_roundtrip(SHAPE_ZEROS, 0, 400);
}

/* As documents are: written in a row by one server, then overwritten at random, one a millisecond. */
static void
bed_documents(struct bed *b, unsigned n, unsigned overwrites)
{
	struct doc_val	val = { .time_ms = 1764500000000, .run = 0x12345678, .segment = 7, .rec_len = 72, .body_len = 16 };
	struct doc_val	old;
	uint8_t		key[KEY_MAX];
	char		path[32];
	size_t		len;

	for (unsigned i = 0; i < n + overwrites; i++) {
		len = (size_t)snprintf(path, sizeof(path), "k%07u", i < n ? i : (unsigned)rnd(n));
		len = key_make(key, 1, path, len);
		val.seq = ++b->seq;
		val.time_ms++;
		val.offset += 72;
		assert_int_equal(tree_put(&b->w, key, len, &val, &old), 0);
		if (val.offset > 16000000) {
			val.offset = 0;
			val.segment++;
		}
	}
}

static void
a_document_takes_sixteen_bytes_of_a_checkpoint(void **state)
{
	enum { N = 100000 };
	struct bed		b;
	struct checkpoint	c;

	(void)state;
	rnd_state = 21;
	bed_open(&b);
	bed_documents(&b, N, 0);
	write_as(&b.w.t, 3);
	assert_int_equal(checkpoint_open(&c, dir, 3, false), 0);
	assert_true(c.head.bytes < 13 * (uint64_t)N);
	checkpoint_close(&c);
	bed_documents(&b, N, 3 * N);
	write_as(&b.w.t, 4);
	assert_int_equal(checkpoint_open(&c, dir, 4, false), 0);
	assert_true(c.head.bytes < 16 * (uint64_t)N);
	checkpoint_close(&c);
	bed_close(&b);
}

/* The committer's life: changes, a checkpoint, a tree on top of it, more changes. */
static void
changes_on_top_of_checkpoints_match_the_model(void **state)
{
	struct bed		b;
	struct model		m = { 0 };
	struct checkpoint	c = { 0 }, next;
	uint8_t			end[1];

	(void)state;
	rnd_state = 22;
	for (enum shape shape = 0; shape < SHAPES; shape++) {
		bed_open(&b);
		for (uint32_t n = 1; n <= 12; n++) {
			for (unsigned i = 0; i < 1500; i++) {
				bed_step(&b, &m, shape, 6000);
				if (i % 20 == 0)
					bed_publish(&b, PIN_NONE);
			}
			assert_tree_is(&b.w.t, &m);
			assert_tree_answers(&b.w.t, &m, shape, 6000, 100);
			write_as(&b.w.t, n);
			assert_int_equal(checkpoint_open(&next, dir, n, true), 0);
			b.w.base = n;
			b.w.t = tree_of(&next);
			b.w.t.overlay = b.o.base;
			assert_int_equal(overlay_free_base(&b.o, n - 1, b.w.gen), 0);
			bed_publish(&b, PIN_NONE);
			overlay_trim(&b.o);
			checkpoint_close(&c);		/* nobody is in the old one */
			c = next;
			assert_int_equal(checkpoint_tidy(dir, n), 0);
			assert_int_equal(b.o.in_use, 0);
			assert_tree_is(&b.w.t, &m);
		}
		bed_remove(&b, &m, end, 0, NULL, 0);
		assert_int_equal(b.w.t.root, PAGE_NONE);
		checkpoint_close(&c);
		model_free(&m);
		bed_close(&b);
	}
}

/* --- names ------------------------------------------------------------------------------ */

static void
the_newest_below_a_number_is_found(void **state)
{
	(void)state;
	assert_int_equal(checkpoint_tidy(dir, 0), 0);
	assert_int_equal(checkpoint_newest(dir, 0), 0);
	file_put(7, (const uint8_t *)"", 0);
	file_put(12, (const uint8_t *)"", 0);
	file_put(4294967295, (const uint8_t *)"", 0);
	close(openat(dir, "tree-0000000099.tmp", O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
	close(openat(dir, "tree-00000000999", O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
	close(openat(dir, "tree-4294967296", O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
	assert_int_equal(checkpoint_newest(dir, 0), 4294967295);
	assert_int_equal(checkpoint_newest(dir, 4294967295), 12);
	assert_int_equal(checkpoint_newest(dir, 12), 7);
	assert_int_equal(checkpoint_newest(dir, 7), 0);
	unlinkat(dir, "tree-00000000999", 0);
	unlinkat(dir, "tree-4294967296", 0);
}

static void
tidying_keeps_one_and_what_is_not_ours(void **state)
{
	(void)state;
	file_put(1, (const uint8_t *)"", 0);
	file_put(2, (const uint8_t *)"", 0);
	close(openat(dir, "tree-0000000002.tmp", O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
	close(openat(dir, "other", O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
	assert_int_equal(checkpoint_tidy(dir, 2), 0);
	assert_false(file_there("tree-0000000001"));
	assert_true(file_there("tree-0000000002"));
	assert_false(file_there("tree-0000000002.tmp"));
	assert_true(file_there("other"));
}

static void
a_left_over_tmp_is_not_written_into(void **state)
{
	struct bed		b;
	struct model		m = { 0 };
	struct checkpoint	c;
	struct tree		t;
	struct stat		st;

	(void)state;
	rnd_state = 23;
	assert_int_equal(symlinkat("other", dir, "tree-0000000009.tmp"), 0);
	close(openat(dir, "other", O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
	bed_open(&b);
	bed_fill(&b, &m, SHAPE_DOCS, 1000, 100);
	write_as(&b.w.t, 9);
	assert_int_equal(fstatat(dir, "other", &st, 0), 0);
	assert_int_equal(st.st_size, 0);
	assert_int_equal(checkpoint_open(&c, dir, 9, true), 0);
	t = tree_of(&c);
	assert_tree_is(&t, &m);
	checkpoint_close(&c);
	model_free(&m);
	bed_close(&b);
}

struct paced {
	volatile int	cancel;
	size_t		bytes;
	unsigned	calls;
};

static void
pace_and_cancel(void *arg, size_t n)
{
	struct paced	*p = arg;

	p->bytes += n;
	if (++p->calls == 2)
		p->cancel = 1;
}

static void
a_cancelled_one_leaves_nothing(void **state)
{
	struct bed		b;
	struct model		m = { 0 };
	struct checkpoint_head	head = { .number = 8 };
	struct paced		p = { 0 };

	(void)state;
	rnd_state = 24;
	bed_open(&b);
	bed_fill(&b, &m, SHAPE_DOCS, 10000000, 20000);
	errno = 0;
	assert_int_equal(checkpoint_write(&b.w.t, dir, &head, NULL, &p.cancel, pace_and_cancel, &p), -1);
	assert_int_equal(errno, ECANCELED);
	assert_int_equal(p.calls, 2);
	assert_int_equal(p.bytes, 2 * 256 * 1024);
	assert_false(file_there("tree-0000000008"));
	assert_false(file_there("tree-0000000008.tmp"));
	model_free(&m);
	bed_close(&b);
}

static void
another_name_is_found_out(void **state)
{
	struct tree		t = { .root = PAGE_NONE };
	struct checkpoint	c;
	uint8_t			*bytes;
	size_t			 n;

	(void)state;
	write_as(&t, 3);
	bytes = file_get(3, &n);
	file_put(4, bytes, n);
	assert_int_equal(checkpoint_open(&c, dir, 4, true), -1);
	assert_int_equal(errno, EILSEQ);
	assert_int_equal(checkpoint_open(&c, dir, 5, true), -1);
	assert_int_equal(errno, ENOENT);
	free(bytes);
}

/* --- damage ------------------------------------------------------------------------------- */

/* A small file of three levels' worth of variety: long keys, so that few entries make many pages. */
static uint8_t *
small_file(enum shape shape, unsigned docs, struct model *m, size_t *n)
{
	struct bed	b;

	rnd_state = 25;
	bed_open(&b);
	bed_fill(&b, m, shape, 3000, docs);
	write_as(&b.w.t, 3);
	bed_close(&b);
	return file_get(3, n);
}

/* Every key: right, or refused.  Returns how many were refused. */
static size_t
read_all(const struct tree *t, const struct model *m)
{
	struct doc_val	val;
	struct agg	a, want;
	size_t		bad = 0;

	for (size_t i = 0; i < m->n; i++) {
		errno = 0;
		switch (tree_get(t, m->e[i].key, m->e[i].len, &val)) {
		case 1:
			assert_val(&val, &m->e[i].val);
			break;
		case -1:
			assert_int_equal(errno, EILSEQ);
			assert_true(tree_bad_page > 0 && tree_bad_page < t->npages);
			bad++;
			break;
		default:
			fail_msg("a document is not there");
		}
	}
	if (tree_range(t, m->e[3].key, m->e[3].len, m->e[9].key, m->e[9].len, &a) == 0) {
		model_agg(m, 3, 9, &want);
		assert_agg(&a, &want);
	}
	return bad;
}

static void
no_flipped_bit_gives_a_wrong_answer(void **state)
{
	struct checkpoint	c;
	struct model		m = { 0 };
	struct tree		t;
	uint8_t			*bytes;
	size_t			 n, bad = 0, refused = 0;
	int			 fd;

	(void)state;
	bytes = small_file(SHAPE_LONG, 20, &m, &n);
	fd = file_open(3);
	for (size_t i = 0; i < n; i++) {
		uint8_t	flipped = bytes[i] ^ (uint8_t)(1 << rnd(8));

		if (i > 0)
			assert_int_equal(pwrite(fd, &bytes[i - 1], 1, (off_t)i - 1), 1);
		assert_int_equal(pwrite(fd, &flipped, 1, (off_t)i), 1);
		errno = 0;
		if (checkpoint_open(&c, dir, 3, true) == -1) {
			assert_int_equal(errno, EILSEQ);
			assert_true(i < sizeof(struct checkpoint_head) || i >= n - 2 * sizeof(struct checkpoint_segment));
			refused++;
			continue;
		}
		t = tree_of(&c);
		bad += read_all(&t, &m) > 0;
		checkpoint_close(&c);
	}
	assert_int_equal(refused, sizeof(struct checkpoint_head) + 2 * sizeof(struct checkpoint_segment));
	assert_int_equal(bad, n - refused - (PAGE_BYTES - sizeof(struct checkpoint_head)));
	close(fd);
	model_free(&m);
	free(bytes);
}

static void
a_file_of_another_length_is_refused(void **state)
{
	struct checkpoint	c;
	struct model		m = { 0 };
	uint8_t			*bytes;
	size_t			 n;
	int			 fd;

	(void)state;
	bytes = small_file(SHAPE_LONG, 20, &m, &n);
	fd = file_open(3);
	assert_int_equal(checkpoint_open(&c, dir, 3, true), 0);
	checkpoint_close(&c);
	for (size_t i = n + 2; i-- > 0; ) {
		if (i == n)
			continue;
		assert_int_equal(ftruncate(fd, (off_t)i), 0);
		errno = 0;
		assert_int_equal(checkpoint_open(&c, dir, 3, true), -1);
		assert_int_equal(errno, EILSEQ);
	}
	close(fd);
	model_free(&m);
	free(bytes);
}

/* The same of documents that take few bytes each, so that a changed head says much of many. */
static uint8_t *
narrow_file(unsigned docs, struct model *m, size_t *n)
{
	struct bed	b;
	struct doc_val	old;
	uint8_t		key[KEY_MAX];
	char		path[16];
	size_t		len;

	rnd_state = 26;
	bed_open(&b);
	for (unsigned i = 0; i < docs; i++) {
		uint32_t	v = 1000 + (uint32_t)rnd(256);
		struct doc_val	val = { v, v, v, v, v, v, v, v };

		len = key_make(key, 1, path, (size_t)snprintf(path, sizeof(path), "k%03u", i));
		assert_int_equal(tree_put(&b.w, key, len, &val, &old), 0);
		model_put(m, key, len, &val, &old);
	}
	write_as(&b.w.t, 3);
	bed_close(&b);
	return file_get(3, n);
}

/* Somewhere from byte `from` to before `to`. */
static void
poke(uint8_t *page, size_t from, size_t to)
{
	if (from < to)
		page[from + rnd(to - from)] = (uint8_t)(rnd(2) ? rnd(256) : rnd(8));
}

/* Mostly header, slots and the fronts of entries. */
static void
poke_interior(uint8_t *page, const struct page *was)
{
	size_t	at = was->slot[rnd(was->count)].at;

	switch (rnd(8)) {
	case 0:
		poke(page, 0, PAGE_BYTES);
		return;
	case 1:
		poke(page, at, at + 32);
		return;
	default:
		poke(page, 0, 200);
		return;
	}
}

/* Lows of several columns, many at the end of a type. */
static void
poke_lows(uint8_t *page)
{
	uint64_t	low;

	for (unsigned c = COL_SEQ; c < LEAF_COLUMNS; c++) {
		low = rnd(4) == 0 ? rnd(UINT64_MAX) : (rnd(2) ? UINT64_MAX : UINT32_MAX) - rnd(1000);
		if (rnd(2))
			memcpy(page + LEAF_LOW + 8 * c, &low, sizeof(low));
	}
}

/* A column takes bytes of another one's: rows stay as long as they are. */
static void
poke_widths(uint8_t *page)
{
	uint8_t	*a = page + LEAF_WIDTH + COL_SEQ + rnd(LEAF_COLUMNS - COL_SEQ);
	uint8_t	*b = page + LEAF_WIDTH + COL_SEQ + rnd(LEAF_COLUMNS - COL_SEQ), n = (uint8_t)(1 + rnd(4));

	if (*b < n)
		return;
	*b = (uint8_t)(*b - n);
	*a = (uint8_t)(*a + n);
}

/* `was` says where things are, for `page` may not any more. */
static void
poke_leaf(uint8_t *page, const struct page *was)
{
	size_t	rows = (size_t)(leaf_row(was, 0) - (const uint8_t *)was), front = leaf_front(was);

	switch (rnd(8)) {
	case 0:
		poke(page, 0, LEAF_WIDTH);
		return;
	case 1:
		poke(page, LEAF_WIDTH, LEAF_PREFIX);
		return;
	case 2:
		poke(page, LEAF_PREFIX, rows);
		return;
	case 3:
		for (unsigned n = 0; n < 20; n++)
			poke(page, rows, front);
		return;
	case 4:
		for (size_t i = rows; i < front; i++)
			page[i] = rnd(2) ? 0xff : 0;
		return;
	case 5:
		poke(page, was->heap, LEAF_END);
		return;
	case 6:
		poke_widths(page);
		return;
	default:
		poke_lows(page);
		return;
	}
}

/* And one that is changed, as far as it lets itself.  How often it did. */
static unsigned
forged_put(struct bed *b, const struct tree *t, const struct model *m)
{
	struct doc_val	val, old;
	uint8_t		key[KEY_MAX];
	unsigned	done = 0;

	b->w.t = *t;
	b->w.t.overlay = b->o.base;
	for (unsigned i = 0; i < 40; i++) {
		const struct model_entry	*e = &m->e[rnd(m->n)];

		rnd_val(&val, 1 + rnd(1000000));
		memcpy(key, e->key, e->len);
		key[rnd(e->len)] ^= (uint8_t)(rnd(3) == 0);
		done += tree_put(&b->w, key, e->len, &val, &old) == 0;
	}
	(void)tree_remove(&b->w, m->e[3].key, m->e[3].len, m->e[9].key, m->e[9].len, NULL, NULL);
	b->w.t.root = PAGE_NONE;
	assert_int_equal(overlay_free_base(&b->o, b->w.base, b->w.gen), 0);
	bed_publish(b, PIN_NONE);
	return done;
}

static void
forged_read(const struct tree *t, const struct model *m, unsigned *refused)
{
	struct cursor	 cur;
	struct doc_val	 val;
	struct agg	 a;
	const uint8_t	*key;
	size_t		 len;
	unsigned	 steps = 0;
	char		 err[100];

	for (size_t j = 0; j < m->n; j++)
		*refused += tree_get(t, m->e[j].key, m->e[j].len, &val) == -1;
	(void)tree_range(t, m->e[2].key, m->e[2].len, m->e[15].key, m->e[15].len, &a);
	for (int f = cursor_seek(&cur, t, "", 0); f == 1; f = cursor_next(&cur)) {
		cursor_entry(&cur, &key, &len, &val);
		assert_true(++steps < 10000);
	}
	(void)tree_verify(t, err, sizeof(err));
}

/*
 * Pages somebody forged, with the right checksum: any answer, but no crash and no end of it.
 * Takes the bytes and the model.
 */
static void
forge(uint8_t *bytes, size_t n, struct model *m, unsigned times)
{
	struct checkpoint	 c;
	struct bed		 b;
	struct tree		 t;
	uint8_t			*copy = malloc(n);
	size_t			 at;
	unsigned		 refused = 0, reached = 0, done = 0, puts;
	int			 fd = file_open(3);

	memcpy(copy, bytes, n);
	bed_open(&b);
	for (unsigned i = 0; i < times; i++) {
		at = (1 + rnd(n / PAGE_BYTES - 1)) * PAGE_BYTES;

		struct page	*p = (struct page *)(copy + at), *was = (struct page *)(bytes + at);
		bool		 sound;

		for (uint64_t j = rnd(3) + 1; j > 0; j--)
			(was->level != 0 ? poke_interior : poke_leaf)(copy + at, was);
		p->crc = page_crc(p);
		sound = was->level == 0 && page_sound(copy + at);
		assert_int_equal(pwrite(fd, p, PAGE_BYTES, (off_t)at), PAGE_BYTES);
		assert_int_equal(checkpoint_open(&c, dir, 3, true), 0);
		t = tree_of(&c);
		forged_read(&t, m, &refused);
		if (rnd(sound ? 2 : 100) == 0) {
			puts = forged_put(&b, &t, m);
			reached += sound;
			done += sound ? puts : 0;
		}
		checkpoint_close(&c);
		memcpy(p, was, PAGE_BYTES);
		assert_int_equal(pwrite(fd, p, PAGE_BYTES, (off_t)at), PAGE_BYTES);
	}
	assert_true(refused > 0);
	assert_true(reached > times / 50 && done > 10 * reached);	/* forged leaves, and puts that did not fail */
	close(fd);
	bed_close(&b);
	free(copy);
	free(bytes);
	model_free(m);
}

static void
a_forged_page_does_no_harm(void **state)
{
	struct model	 m = { 0 };
	uint8_t		*bytes;
	size_t		 n;

	(void)state;
	bytes = small_file(SHAPE_LONG, 20, &m, &n);
	forge(bytes, n, &m, 20000);
	bytes = small_file(SHAPE_DOCS, 200, &m, &n);
	forge(bytes, n, &m, 4000);
	bytes = narrow_file(700, &m, &n);
	forge(bytes, n, &m, 2000);
}

/* --- columns at the ends of their types ---------------------------------------------- */

enum { WRAPS = 320 };		/* entries of a page whose columns are one byte wide each */

static size_t
wrap_key(uint8_t *key, unsigned i)
{
	char	path[16];

	return key_make(key, 1, path, (size_t)snprintf(path, sizeof(path), "k%03u", i));
}

/* Checkpoint 3: one leaf, each of its columns `low` and, of every other entry, `above` more. */
static void
wrap_file(uint64_t low64, uint32_t low32, unsigned above)
{
	struct bed	b;
	struct doc_val	old;
	uint8_t		key[KEY_MAX];

	bed_open(&b);
	for (unsigned i = 0; i < WRAPS; i++) {
		unsigned	more = i % 2 * above;
		struct doc_val	val = {
			.seq = low64 + more, .time_ms = low64 + more, .run = low32 + more, .segment = low32 + more,
			.offset = low32 + more, .rec_len = low32 + more, .body_len = low32 + more, .flags = low32 + more,
		};

		assert_int_equal(tree_put(&b.w, key, wrap_key(key, i), &val, &old), 0);
	}
	write_as(&b.w.t, 3);
	bed_close(&b);
}

static void
values_at_the_ends_of_their_types_are_read(void **state)
{
	struct checkpoint	c;
	struct tree		t;
	struct doc_val		val;
	uint8_t			key[KEY_MAX];
	char			err[100];

	(void)state;
	for (unsigned above = 0; above < 256; above += 17) {
		wrap_file(UINT64_MAX - above, UINT32_MAX - above, above);
		assert_int_equal(checkpoint_open(&c, dir, 3, true), 0);
		assert_int_equal(c.head.npages, 2);
		t = tree_of(&c);
		assert_int_equal(tree_verify(&t, err, sizeof(err)), 0);
		for (unsigned i = 0; i < WRAPS; i++) {
			assert_int_equal(tree_get(&t, key, wrap_key(key, i), &val), 1);
			assert_int_equal(val.seq, UINT64_MAX - (i % 2 ? 0 : above));
			assert_int_equal(val.flags, UINT32_MAX - (i % 2 ? 0 : above));
		}
		checkpoint_close(&c);
	}
}

/* What such a page says takes more than a page once it is taken apart, and more than two. */
static void
a_forged_page_whose_sums_wrap_is_refused(void **state)
{
	static const uint64_t	low[3][2] = {
		{ UINT64_MAX - 127, 1000 }, { 1000, 0xffffff80 }, { UINT64_MAX - 127, 0xffffff80 }
	};
	struct checkpoint	c;
	struct doc_val		val = { .seq = 7, .time_ms = 8, .run = 9 }, old;
	struct bed		b;
	struct page		*p;
	uint8_t			*bytes, key[KEY_MAX];
	size_t			 n;

	(void)state;
	for (unsigned j = 0; j < 3; j++) {
		wrap_file(1000, 1000, 255);
		bytes = file_get(3, &n);
		p = (struct page *)(bytes + PAGE_BYTES);
		assert_int_equal(p->count, WRAPS);
		for (unsigned col = COL_SEQ; col < LEAF_COLUMNS; col++) {
			assert_int_equal(((uint8_t *)p)[LEAF_WIDTH + col], 1);
			memcpy((uint8_t *)p + LEAF_LOW + 8 * col, &low[j][col > COL_TIME], 8);
		}
		p->crc = page_crc(p);
		file_put(3, bytes, n);
		assert_int_equal(checkpoint_open(&c, dir, 3, true), 0);
		bed_open(&b);
		b.w.t = tree_of(&c);
		b.w.t.overlay = b.o.base;
		errno = 0;
		assert_int_equal(tree_put(&b.w, key, wrap_key(key, 100), &val, &old), -1);
		assert_int_equal(errno, EILSEQ);
		assert_int_equal(tree_bad_page, 1);
		assert_int_equal(b.w.t.root, c.head.root);
		bed_close(&b);
		checkpoint_close(&c);
		free(bytes);
	}
}

/* The same, come into being under a page that had been looked at, its checksum right: it is not taken apart. */
static void
a_leaf_that_is_no_sound_one_any_more_fails_the_put(void **state)
{
	struct doc_val	val = { .seq = 7, .time_ms = 8, .run = 9 }, old;
	union page_buf	pages[2] = { 0 };
	struct leaf_items *items = malloc(sizeof(*items));
	uint8_t		key[KEY_MAX], checked = 2;
	uint64_t	low = UINT64_MAX - 127;
	struct bed	b;

	(void)state;
	leaf_items_clear(items);
	for (unsigned i = 0; i < WRAPS; i++) {
		uint32_t	v = 1000 + i % 2 * 255;

		assert_true(leaf_items_add(items, key, wrap_key(key, i), &(struct doc_val){ v, v, v, v, v, v, v, v }));
	}
	page_init(&pages[1].page, 0, 0, 1);
	assert_true(leaf_pack(&pages[1].page, items, 0, WRAPS));
	for (unsigned col = COL_SEQ; col < LEAF_COLUMNS; col++)
		memcpy(pages[1].bytes + LEAF_LOW + 8 * col, &low, 8);
	pages[1].page.crc = page_crc(&pages[1].page);
	assert_false(page_sound(pages[1].bytes));
	bed_open(&b);
	b.w.t = (struct tree){ b.o.base, pages[0].bytes, 2, &checked, PAGE_CHECKPOINT | 1 };
	for (unsigned i = 0; i < 3; i++) {
		errno = 0;
		assert_int_equal(tree_put(&b.w, key, wrap_key(key, 100), &val, &old), -1);
		assert_int_equal(errno, EILSEQ);
		assert_int_equal(tree_bad_page, 1);
		assert_int_equal(b.o.in_use, 0);
		assert_int_equal(tree_get(&b.w.t, key, wrap_key(key, 101), &old), 1);
		assert_int_equal(old.seq, 127);
	}
	bed_close(&b);
	free(items);
}

/* Checkpoint 3, all of it looked at, and its bytes, to be changed beneath. */
struct looked_at {
	struct checkpoint	 c;
	struct model		 m;
	struct bed		 b;
	struct tree		 t;
	uint8_t			*bytes;
	int			 fd;
};

static void
looked_open(struct looked_at *l)
{
	size_t	n;

	memset(l, 0, sizeof(*l));
	l->bytes = small_file(SHAPE_LONG, 400, &l->m, &n);
	l->fd = file_open(3);
	assert_int_equal(checkpoint_open(&l->c, dir, 3, true), 0);
	bed_open(&l->b);
	l->t = tree_of(&l->c);
	l->t.overlay = l->b.o.base;
	assert_tree_is(&l->t, &l->m);
}

static void
looked_close(struct looked_at *l)
{
	bed_close(&l->b);
	checkpoint_close(&l->c);
	close(l->fd);
	model_free(&l->m);
	free(l->bytes);
}

static struct page *
looked_page(struct looked_at *l, size_t n)
{
	return (struct page *)(void *)(l->bytes + n * PAGE_BYTES);
}

/* Page n is from now on what it is in `bytes`. */
static void
looked_change(struct looked_at *l, size_t n)
{
	assert_int_equal(pwrite(l->fd, looked_page(l, n), PAGE_BYTES, (off_t)(n * PAGE_BYTES)), PAGE_BYTES);
}

/*
 * Bytes that change on the card under pages that had been looked at: any answer, or none,
 * but nothing is read that is not there, nor is any other page written.
 */
static void
a_page_that_changes_once_it_was_looked_at_does_no_harm(void **state)
{
	struct looked_at	l;
	struct doc_val		val;
	struct agg		a;
	struct cursor		cur;

	(void)state;
	looked_open(&l);
	assert_true(l.c.head.npages > 4);
	/* what an interior page may lead to behind the last one */
	for (size_t i = 0; i < PAGE_REACH; i++)
		assert_int_equal(l.c.map[l.c.maplen + i], 0);
	for (unsigned turn = 0; turn < 3000; turn++) {
		const struct model_entry *first = &l.m.e[3], *last = &l.m.e[l.m.n - 3];
		uint32_t	 page = 1 + (turn % 3 == 0 ? (uint32_t)l.c.head.npages - 2 : (uint32_t)rnd(l.c.head.npages - 1));
		uint8_t		*p = (uint8_t *)looked_page(&l, page), was[PAGE_BYTES];
		size_t		 from = rnd(3) ? 0 : rnd(PAGE_BYTES), len = rnd(2) ? PAGE_BYTES - from : 1 + rnd(PAGE_BYTES - from);

		memcpy(was, p, PAGE_BYTES);
		for (size_t i = from; i < from + len; i++)
			p[i] = (uint8_t)(turn % 2 ? 0xff : rnd(256));
		if (rnd(4))			/* or nothing behind kind and level would be reached */
			memcpy(p + offsetof(struct page, kind), was + offsetof(struct page, kind), 2);
		looked_change(&l, page);
		for (unsigned i = 0; i < 20; i++) {
			const struct model_entry	*e = &l.m.e[rnd(l.m.n)];

			(void)tree_get(&l.t, e->key, e->len, &val);
			tree_hint_entry(tree_hint(&l.t, e->key, e->len), e->key, e->len);
		}
		(void)tree_range(&l.t, first->key, first->len, last->key, last->len, &a);
		for (int rc = cursor_seek(&cur, &l.t, "", 0), steps = 0; rc == 1 && steps < 500; steps++)
			rc = cursor_next(&cur);
		forged_put(&l.b, &l.t, &l.m);
		memcpy(p, was, PAGE_BYTES);
		looked_change(&l, page);
	}
	assert_tree_is(&l.t, &l.m);
	looked_close(&l);
}

/* Each page but the first stands above the one before it: a tree as deep as the file is long. */
static void
chain_pages(struct looked_at *l, size_t npages)
{
	for (size_t n = 1; n < npages; n++) {
		struct page	*p = looked_page(l, n);

		p->level = (uint8_t)(n - 1);
		p->count = 1;
		if (n > 1) {
			p->slot[0].at = PAGE_BYTES / 2;
			page_child_set(p, 0, PAGE_CHECKPOINT | (uint32_t)(n - 1));
		}
		looked_change(l, n);
	}
}

/* What random bytes hardly ever say (above). */
static void
no_entries_a_leaf_that_is_none_and_a_tree_too_deep_do_no_harm_later(void **state)
{
	struct looked_at	l;
	struct doc_val		val;
	struct agg		a;
	struct cursor		cur;
	const uint8_t		*key;
	uint16_t		count;
	size_t			len, last;

	(void)state;
	looked_open(&l);
	last = (size_t)l.c.head.npages - 1;
	assert_true(last > TREE_LEVELS + 4 && last < 200);

	count = looked_page(&l, last)->count;
	looked_page(&l, last)->count = 0;
	looked_change(&l, last);
	for (size_t i = 0; i < l.m.n; i++) {
		const struct model_entry	*e = &l.m.e[i];

		(void)tree_get(&l.t, e->key, e->len, &val);
		(void)tree_hint(&l.t, e->key, e->len);
		(void)tree_range(&l.t, l.m.e[0].key, l.m.e[0].len, e->key, e->len, &a);
		(void)cursor_seek(&cur, &l.t, e->key, e->len);
	}
	looked_page(&l, last)->count = count;
	looked_change(&l, last);

	assert_int_equal(cursor_seek(&cur, &l.t, "", 0), 1);
	looked_page(&l, 1)->level = 1;		/* the first leaf */
	looked_change(&l, 1);
	cursor_entry(&cur, &key, &len, &val);
	assert_int_equal(len, 0);
	assert_int_equal(cursor_next(&cur), -1);

	chain_pages(&l, last + 1);
	errno = 0;
	assert_int_equal(cursor_seek(&cur, &l.t, "", 0), -1);
	assert_int_equal(errno, EILSEQ);
	assert_int_equal(cursor_seek(&cur, &l.t, l.m.e[9].key, l.m.e[9].len), -1);
	looked_close(&l);
}

/* It says later that it has one child: that is not made the root instead of it. */
static void
a_root_is_not_taken_for_what_a_page_says_later(void **state)
{
	struct looked_at	 l;
	const struct page	*root;
	struct page		*left;
	uint8_t			 sep[KEY_MAX];
	uint16_t		 count;
	size_t			 at, len;

	(void)state;
	looked_open(&l);
	l.b.w.t = l.t;
	root = looked_page(&l, l.c.head.npages - 1);
	assert_true(root->level >= 2 && root->count >= 2);
	at = page_child(root, 0) & ~PAGE_CHECKPOINT;
	len = root->slot[1].len;
	memcpy(sep, page_key(root, 1), len);
	left = looked_page(&l, at);
	count = left->count;
	assert_true(count > 1);

	left->count = 1;
	looked_change(&l, at);
	assert_int_equal(tree_remove(&l.b.w, sep, len, NULL, 0, NULL, NULL), 0);
	left->count = count;
	looked_change(&l, at);
	model_remove(&l.m, model_find(&l.m, sep, len), l.m.n);
	assert_tree_is(&l.b.w.t, &l.m);
	looked_close(&l);
}

static void
a_damaged_page_is_not_copied_and_leaves_a_change_undone(void **state)
{
	struct bed		b;
	struct checkpoint	c;
	struct model		m = { 0 };
	struct checkpoint_head	head = { .number = 4 };
	struct doc_val		val = { .seq = 1 }, old;
	uint8_t			*bytes;
	size_t			 n;
	unsigned		 bad = 0;

	(void)state;
	bytes = small_file(SHAPE_LONG, 20, &m, &n);
	bytes[2 * PAGE_BYTES + 100] ^= 1;
	file_put(3, bytes, n);
	bed_open(&b);
	assert_int_equal(checkpoint_open(&c, dir, 3, true), 0);
	b.w.t = tree_of(&c);
	b.w.t.overlay = b.o.base;
	errno = 0;
	assert_int_equal(checkpoint_write(&b.w.t, dir, &head, NULL, &go_on, NULL, NULL), -1);
	assert_int_equal(errno, EILSEQ);
	assert_int_equal(tree_bad_page, 2);
	assert_false(file_there("tree-0000000004.tmp"));
	errno = 0;
	assert_int_equal(tree_remove(&b.w, "", 0, NULL, 0, NULL, NULL), -1);
	assert_int_equal(errno, EILSEQ);
	assert_int_equal(b.w.t.root, c.head.root);
	for (size_t i = 0; i < m.n; i++) {
		uint32_t	root = b.w.t.root;

		if (tree_put(&b.w, m.e[i].key, m.e[i].len, &val, &old) == 0) {
			assert_val(&old, &m.e[i].val);
			continue;
		}
		assert_int_equal(errno, EILSEQ);
		assert_int_equal(b.w.t.root, root);
		bad++;
	}
	assert_true(bad > 0 && bad < 4);	/* one leaf of long keys */
	checkpoint_close(&c);
	bed_close(&b);
	model_free(&m);
	free(bytes);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_was_written_is_read),
		cmocka_unit_test(a_document_takes_sixteen_bytes_of_a_checkpoint),
		cmocka_unit_test(changes_on_top_of_checkpoints_match_the_model),
		cmocka_unit_test(the_newest_below_a_number_is_found),
		cmocka_unit_test(tidying_keeps_one_and_what_is_not_ours),
		cmocka_unit_test(a_left_over_tmp_is_not_written_into),
		cmocka_unit_test(a_cancelled_one_leaves_nothing),
		cmocka_unit_test(another_name_is_found_out),
		cmocka_unit_test(no_flipped_bit_gives_a_wrong_answer),
		cmocka_unit_test(a_file_of_another_length_is_refused),
		cmocka_unit_test(a_forged_page_does_no_harm),
		cmocka_unit_test(values_at_the_ends_of_their_types_are_read),
		cmocka_unit_test(a_forged_page_whose_sums_wrap_is_refused),
		cmocka_unit_test(a_leaf_that_is_no_sound_one_any_more_fails_the_put),
		cmocka_unit_test(a_page_that_changes_once_it_was_looked_at_does_no_harm),
		cmocka_unit_test(no_entries_a_leaf_that_is_none_and_a_tree_too_deep_do_no_harm_later),
		cmocka_unit_test(a_root_is_not_taken_for_what_a_page_says_later),
		cmocka_unit_test(a_damaged_page_is_not_copied_and_leaves_a_change_undone),
	};

	proc_become(IN_TEST, 0);
	return cmocka_run_group_tests(tests, dir_make, dir_drop);
}
