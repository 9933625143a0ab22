/* tests/b_overlay.c - store/overlay.h: pages and roots. */
#include "config.h"
#include <sys/stat.h>
#include <sys/wait.h>
#include "tests/b_model.h"

#define HALF	((uint32_t)(OVERLAY_BYTES / 2 / PAGE_BYTES))

static uint64_t
memory_of(const struct bed *b)
{
	struct stat	st;

	assert_int_equal(fstat(b->fd, &st), 0);
	return (uint64_t)st.st_blocks * 512;
}

static uint32_t
page_take(struct bed *b, uint32_t base)
{
	uint32_t	id = overlay_alloc(&b->o);

	assert_int_not_equal(id, PAGE_NONE);
	page_init((struct page *)(b->o.base + (size_t)id * PAGE_BYTES), 0, b->w.gen, base);
	return id;
}

static void
little_memory_is_allocated_ahead(void **state)
{
	struct bed	b;

	(void)state;
	bed_open(&b);
	assert_int_equal(memory_of(&b), PAGE_BYTES);
	assert_int_equal(page_take(&b, 0), 1);
	assert_int_equal(memory_of(&b), PAGE_BYTES + 256 * 1024);
	bed_close(&b);
}

static void
a_freed_page_waits_for_publication_and_for_pins(void **state)
{
	struct bed	b;
	uint32_t	p;

	(void)state;
	bed_open(&b);
	p = page_take(&b, 0);
	bed_publish(&b, PIN_NONE);			/* 1 reaches it */
	assert_int_equal(overlay_free(&b.o, p, 2), 0);	/* 2 does not */
	overlay_reclaim(&b.o, PIN_NONE, 1);		/* not published */
	assert_int_equal(b.o.nfree, 0);
	bed_publish(&b, 1);				/* published, but somebody is in 1 */
	assert_int_equal(b.o.nfree, 0);
	overlay_reclaim(&b.o, 2, 2);
	assert_int_equal(b.o.nfree, 1);
	assert_int_equal(page_take(&b, 0), p);
	bed_close(&b);
}

static void
a_page_nobody_saw_is_reused_at_once(void **state)
{
	struct bed	b;
	uint32_t	p;

	(void)state;
	bed_open(&b);
	p = page_take(&b, 0);
	assert_int_equal(b.o.in_use, 1);
	assert_int_equal(overlay_free_now(&b.o, p), 0);
	assert_int_equal(b.o.in_use, 0);
	assert_int_equal(page_take(&b, 0), p);
	bed_close(&b);
}

/* The ring, against an array, through several turns and growths. */
static void
limbo_keeps_its_order(void **state)
{
	struct bed	b;
	uint32_t	freed[64], n;
	uint64_t	total = 0;

	(void)state;
	rnd_state = 11;
	bed_open(&b);
	for (unsigned i = 0; i < 2000; i++) {
		n = (uint32_t)rnd(64);
		for (uint32_t j = 0; j < n; j++)
			freed[j] = page_take(&b, 0);
		for (uint32_t j = 0; j < n; j++)
			assert_int_equal(overlay_free(&b.o, freed[j], b.w.gen), 0);
		total += n;
		bed_publish(&b, b.w.gen > 40 ? b.w.gen - rnd(40) : 1);
		assert_int_equal(b.o.nfree + b.o.nlimbo, b.o.next - b.o.first);
	}
	assert_true(total > 20 * (uint64_t)(b.o.next - b.o.first));
	overlay_reclaim(&b.o, PIN_NONE, b.w.gen);
	assert_int_equal(b.o.nlimbo, 0);
	assert_int_equal(b.o.in_use, 0);
	bed_close(&b);
}

static void
a_full_overlay_says_so_and_recovers(void **state)
{
	struct bed	b;
	uint32_t	p;

	(void)state;
	bed_open(&b);
	b.o.end = b.o.first + 100;
	for (unsigned i = 0; i < 100; i++)
		p = page_take(&b, 0);
	errno = 0;
	assert_int_equal(overlay_alloc(&b.o), PAGE_NONE);
	assert_int_equal(errno, ENOSPC);
	assert_int_equal(overlay_free_now(&b.o, p), 0);
	assert_int_equal(overlay_reserve(&b.o, 2), -1);
	assert_int_equal(overlay_reserve(&b.o, 1), 0);
	assert_int_equal(page_take(&b, 0), p);
	bed_close(&b);
}

static void
trimmed_pages_cost_no_memory_and_can_be_used_again(void **state)
{
	enum { N = 1000 };
	struct bed	b;
	uint32_t	p[N], again;
	uint64_t	before;

	(void)state;
	bed_open(&b);
	for (unsigned i = 0; i < N; i++)
		p[i] = page_take(&b, 0);
	before = memory_of(&b);
	for (unsigned i = 0; i < N; i++)	/* 300 .. 399 stay, and one in eight below 100 */
		if ((i < 300 || i > 399) && (i > 100 || i % 8 != 0))
			assert_int_equal(overlay_free_now(&b.o, p[i]), 0);
	overlay_trim(&b.o);
	assert_true(memory_of(&b) < before - 700 * PAGE_BYTES);
	assert_int_equal(b.o.next, p[399] + 1);	/* the end came down */
	for (unsigned i = 300; i < 400; i++)
		assert_int_equal(*(uint8_t *)(b.o.base + (size_t)p[i] * PAGE_BYTES + 4), PAGE_LEAF);

	uint8_t	*seen = calloc(1, 4 * N);

	for (unsigned i = 300; i < 400; i++)
		seen[p[i]] = 1;
	for (unsigned i = 0; i <= 100; i += 8)
		seen[p[i]] = 1;
	for (unsigned i = 0; i < N; i++) {	/* none is given twice, all have memory */
		again = page_take(&b, 0);
		assert_true(again < 4 * N);
		assert_int_equal(seen[again], 0);
		seen[again] = 1;
	}
	assert_true(memory_of(&b) >= (b.o.next - 1) * (uint64_t)PAGE_BYTES);
	free(seen);
	bed_close(&b);
}

static void
pages_of_a_base_go_into_limbo_and_no_others(void **state)
{
	struct bed	b;
	uint32_t	old[50], new[50];

	(void)state;
	bed_open(&b);
	for (unsigned i = 0; i < 50; i++) {
		old[i] = page_take(&b, 7);
		new[i] = page_take(&b, 8);
	}
	assert_int_equal(overlay_free_now(&b.o, old[0]), 0);	/* free already */
	assert_int_equal(overlay_free(&b.o, old[1], 1), 0);	/* in limbo already */
	bed_publish(&b, 0);
	assert_int_equal(overlay_free_base(&b.o, 7, 2), 0);
	assert_int_equal(b.o.in_use, 50);
	assert_int_equal(b.o.nlimbo, 49);
	bed_publish(&b, PIN_NONE);
	assert_int_equal(b.o.nlimbo, 0);
	assert_int_equal(b.o.nfree, 50);
	for (unsigned i = 0; i < b.o.nfree; i++)
		for (unsigned j = 0; j < 50; j++)
			assert_int_not_equal(b.o.free[i], new[j]);
	bed_close(&b);
}

/* --- one committer after another -------------------------------------------------- */

/* The next committer on the same memory. */
static void
bed_succeed(struct bed *b, struct bed *old)
{
	memset(b, 0, sizeof(*b));
	b->fd = old->fd;
	assert_int_equal(overlay_open(&b->o, b->fd), 0);
	b->w.overlay = &b->o;
	b->w.t.overlay = b->o.base;
	b->w.gen = b->o.first_gen;
}

static void
a_successor_builds_in_the_other_half_and_gives_the_old_one_back(void **state)
{
	struct bed	a, b, c;
	struct model	m = { 0 }, m2 = { 0 };
	struct tree	old;
	struct root	r;
	uint64_t	before;

	(void)state;
	rnd_state = 12;
	bed_open(&a);
	bed_fill(&a, &m, SHAPE_DOCS, 100000, 3000);
	r = bed_publish(&a, PIN_NONE);
	assert_int_equal(a.o.first, 1);
	old = a.w.t;

	bed_succeed(&b, &a);			/* a died */
	assert_int_equal(b.o.first, HALF);
	assert_int_equal(b.w.gen, r.gen + 1);
	bed_fill(&b, &m2, SHAPE_DOCS, 100000, 100);
	assert_tree_is(&old, &m);		/* readers are still in it */
	bed_publish(&b, r.gen);
	assert_true(b.o.other_half);
	assert_tree_is(&old, &m);
	before = memory_of(&b);
	bed_publish(&b, r.gen + 1);		/* nobody is any more */
	assert_false(b.o.other_half);
	assert_true(memory_of(&b) < before - 2000 * 64);
	assert_tree_is(&b.w.t, &m2);

	bed_succeed(&c, &b);
	assert_int_equal(c.o.first, 1);
	assert_tree_is(&b.w.t, &m2);
	overlay_close(&c.o);
	overlay_close(&b.o);
	model_free(&m);
	model_free(&m2);
	bed_close(&a);
}

static void
a_successor_of_one_that_never_published_drops_its_pages(void **state)
{
	struct bed	a, b;
	struct model	m = { 0 };

	(void)state;
	rnd_state = 13;
	bed_open(&a);
	bed_fill(&a, &m, SHAPE_DOCS, 100000, 3000);
	bed_succeed(&b, &a);
	assert_int_equal(b.o.first, 1);
	assert_int_equal(memory_of(&b), PAGE_BYTES);
	overlay_close(&b.o);
	model_free(&m);
	bed_close(&a);
}

/* --- roots ------------------------------------------------------------------------ */

static struct root
root_of(uint64_t gen)
{
	return (struct root){ .gen = gen, .max_seq = gen * 3, .time_ms = ~gen, .catalog_seq = gen ^ 0x5555,
	    .segments_epoch = gen / 2, .page = (uint32_t)gen, .checkpoint = (uint32_t)~gen,
	    .first_segment = (uint32_t)gen + 1, .last_segment = (uint32_t)gen + 2 };
}

static void
a_root_can_be_read_until_its_slot_is_due_again(void **state)
{
	struct bed		 b;
	const struct roots	*readonly;
	struct root		 r, want;

	(void)state;
	bed_open(&b);
	readonly = mmap(NULL, PAGE_BYTES, PROT_READ, MAP_SHARED, b.fd, 0);
	assert_ptr_not_equal(readonly, MAP_FAILED);
	assert_false(root_read(readonly, 1, &r));
	for (uint64_t gen = 1; gen <= 100; gen++) {
		want = root_of(gen);
		root_publish(overlay_roots(&b.o), &want);
		for (uint64_t old = 1; old <= gen; old++) {
			want = root_of(old);
			if (root_read(readonly, old, &r))
				assert_memory_equal(&r, &want, sizeof(r));
			else
				assert_true(old + ROOTS - 1 <= gen);
		}
	}
	munmap((void *)(uintptr_t)readonly, PAGE_BYTES);
	bed_close(&b);
}

#define PUBLICATIONS	300000u

static void
a_root_is_never_read_torn(void **state)
{
	struct bed	 b;
	struct roots	*roots;
	struct root	 r, want;
	uint64_t	 gen, good = 0;
	pid_t		 child;
	int		 status;

	(void)state;
	bed_open(&b);
	roots = overlay_roots(&b.o);
	child = fork();
	assert_int_not_equal(child, -1);
	if (child == 0) {
		for (gen = 1; gen <= PUBLICATIONS; gen++) {
			r = root_of(gen);
			root_publish(roots, &r);
		}
		_exit(0);
	}
	do {
		gen = atomic_load_explicit(&roots->newest, memory_order_acquire);
		if (gen == 0 || !root_read(roots, gen, &r))
			continue;
		want = root_of(gen);
		assert_memory_equal(&r, &want, sizeof(r));
		good++;
	} while (gen < PUBLICATIONS);
	assert_true(good > 0);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	bed_close(&b);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(little_memory_is_allocated_ahead),
		cmocka_unit_test(a_page_nobody_saw_is_reused_at_once),
		cmocka_unit_test(a_freed_page_waits_for_publication_and_for_pins),
		cmocka_unit_test(limbo_keeps_its_order),
		cmocka_unit_test(a_full_overlay_says_so_and_recovers),
		cmocka_unit_test(trimmed_pages_cost_no_memory_and_can_be_used_again),
		cmocka_unit_test(pages_of_a_base_go_into_limbo_and_no_others),
		cmocka_unit_test(a_successor_builds_in_the_other_half_and_gives_the_old_one_back),
		cmocka_unit_test(a_successor_of_one_that_never_published_drops_its_pages),
		cmocka_unit_test(a_root_can_be_read_until_its_slot_is_due_again),
		cmocka_unit_test(a_root_is_never_read_torn),
	};

	proc_become(IN_TEST, 0);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
