/* tests/a_submit.c - shm/submit.h: what was built is what is viewed, and a broken chain is refused. */
#include "config.h"
#include "tests/unit.h"
#include "shm/crc32c.h"
#include "shm/proc.h"
#include "shm/region.h"
#include "shm/submit.h"

#define BODY_MAX	(3u << 20)

static uint8_t	body[BODY_MAX];
static uint8_t	meta[SUBMIT_META_MAX];
static char	path[SUBMIT_PATH_MAX];

static int
fill(void **state)
{
	uint32_t	x = 1;
	size_t		i;

	(void)state;
	for (i = 0; i < sizeof(body); i++) {
		x = x * 1664525 + 1013904223;
		body[i] = (uint8_t)(x >> 24);
	}
	for (i = 0; i < sizeof(meta); i++)
		meta[i] = (uint8_t)(i * 7);
	for (i = 0; i < sizeof(path); i++)
		path[i] = (char)('a' + i % 26);
	return 0;
}

static struct region
new_region(uint64_t budget)
{
	struct region	r;

	assert_int_equal(region_create(&r, 2, budget), 0);
	return r;
}

static struct submit_args
args_of(uint16_t path_len, uint16_t meta_len)
{
	return (struct submit_args){
		.op = OP_PUT, .tenant = 5, .path = path, .path_len = path_len, .meta = meta, .meta_len = meta_len,
	};
}

static unsigned
taken(const struct arena *a)
{
	unsigned	i, n = 0;

	for (i = 0; i < a->ngranules; i++)
		n += a->owner[i] != 0;
	return n;
}

static void
assert_all_free(const struct arena *a)
{
	unsigned	lane, i;

	assert_int_equal(taken(a), 0);
	assert_int_equal(arena_reserved(a), 0);
	for (lane = 0; lane < a->nlanes; lane++)
		for (i = 0; i < ARENA_TENANTS; i++)
			assert_int_equal(a->lanes[lane].granules[i], 0);
}

/* Builds a whole submission in pieces of up to `piece` bytes. */
static uint32_t
build(struct arena *a, const struct submit_args *args, size_t len, size_t piece, bool announced)
{
	struct submit_build	b;
	size_t			done, n;
	uint32_t		off;

	assert_int_equal(submit_begin(a, 0, &b, args, announced ? len : 0), 0);
	for (done = 0; done < len; done += n) {
		n = len - done < piece ? len - done : piece;
		assert_int_equal(submit_append(a, 0, &b, body + done, n), 0);
	}
	off = submit_finish(a, 0, &b);
	assert_int_not_equal(off, ARENA_NONE);
	assert_int_equal(b.reserved, (uint64_t)b.granules * ARENA_GRANULE);
	assert_null(b.table);
	return off;
}

/* What the log is to store, put together without submit.c; returns its length. */
static size_t
expected_payload(uint8_t *out, const struct submit_args *args, size_t len, uint32_t *body_crc)
{
	uint8_t		*p = out, *table;
	uint32_t	 crc;
	size_t		 pos, n;

	p = (uint8_t *)mempcpy(p, args->path, args->path_len);
	p = (uint8_t *)mempcpy(p, args->meta, args->meta_len);
	p = (uint8_t *)mempcpy(p, body, len);
	*body_crc = crc32c_soft(0, body, len);
	if (len <= SUBMIT_CHUNK)
		return (size_t)(p - out);
	while ((p - out) % 4 != 0)
		*p++ = 0;
	table = p;
	for (pos = 0; pos < len; pos += n) {
		n = len - pos < SUBMIT_CHUNK ? len - pos : SUBMIT_CHUNK;
		crc = crc32c_soft(0, body + pos, n);
		*p++ = (uint8_t)crc;
		*p++ = (uint8_t)(crc >> 8);
		*p++ = (uint8_t)(crc >> 16);
		*p++ = (uint8_t)(crc >> 24);
	}
	*body_crc = crc32c_soft(0, table, (size_t)(p - table));
	return (size_t)(p - out);
}

/* Gathers through submit_iov, `max` entries at a time; the length. */
static size_t
gather(const struct arena *a, uint32_t off, int max, uint8_t *out, size_t cap)
{
	struct iovec	iov[64];
	uint32_t	resume = 0;
	size_t		len = 0;
	int		n, i;

	do {
		errno = 0;
		n = submit_iov(a, off, iov, max, &resume);
		if (n == -1)
			assert_int_equal(errno, E2BIG);
		for (i = 0; i < (n == -1 ? max : n); i++) {
			assert_true(iov[i].iov_len > 0 && len + iov[i].iov_len <= cap);
			memcpy(out + len, iov[i].iov_base, iov[i].iov_len);
			len += iov[i].iov_len;
		}
	} while (n == -1);
	assert_int_equal(resume, 0);
	return len;
}

static void
check(const struct arena *a, uint32_t off, const struct submit_args *args, size_t len)
{
	static uint8_t		want[BODY_MAX + 65536], got[BODY_MAX + 65536];
	static const int	maxes[] = { 1, 2, 64 };
	struct submit_view	v;
	uint32_t		crc;
	size_t			n, i, pos, part;

	n = expected_payload(want + SUBMIT_HEADROOM, args, len, &crc);
	assert_int_equal(submit_view(a, off, &v), 0);
	assert_int_equal(v.payload_len, n);
	assert_int_equal(v.s->body_len, len);
	assert_int_equal(v.s->body_crc, crc);
	assert_int_equal((uintptr_t)v.head % 8, 0);
	assert_memory_equal(v.path, args->path, args->path_len);
	assert_int_equal(submit_copy(a, off, 0, got, n), 0);
	assert_memory_equal(got, want + SUBMIT_HEADROOM, n);
	assert_int_equal(submit_copy(a, off, n, got, 1), -1);
	assert_int_equal(submit_copy(a, off, n, got, 0), 0);
	for (pos = 0; pos < n; pos += 1 + n / 50) {
		part = n - pos < 5000 ? n - pos : 5000;
		assert_int_equal(submit_copy(a, off, pos, got, part), 0);
		assert_memory_equal(got, want + SUBMIT_HEADROOM + pos, part);
	}
	memset(v.head, 0xab, SUBMIT_HEADROOM);
	memset(want, 0xab, SUBMIT_HEADROOM);
	for (i = 0; i < 3; i++) {
		assert_int_equal(gather(a, off, maxes[i], got, sizeof(got)), SUBMIT_HEADROOM + n);
		assert_memory_equal(got, want, SUBMIT_HEADROOM + n);
	}
}

/* --- what goes in comes out -------------------------------------------- */

static const size_t	sizes[] = {
	0, 1, 2, 3, 100, 3900, 3990, 4080, 4095, 4096, 4097, 8160, 65535, 65536, 65537, 65536 + 4096, 131071, 131072,
	131073, 1000003, 1 << 20, (1 << 20) + 1,
};
#define NSIZES	(sizeof(sizes) / sizeof(sizes[0]))

static void
bodies_of_every_size_come_out_with_the_right_table_and_checksum(void **state)
{
	struct region		r = new_region(8 << 20);
	struct submit_args	args;
	uint32_t		off;
	size_t			i;

	(void)state;
	for (i = 0; i < NSIZES; i++) {
		args = args_of((uint16_t)(1 + i % 7), (uint16_t)(i * 13 % 40));
		off = build(&r.arena, &args, sizes[i], SIZE_MAX, i % 2 == 0);
		check(&r.arena, off, &args, sizes[i]);
		submit_free(&r.arena, 0, off);
		assert_all_free(&r.arena);
	}
	region_destroy(&r);
}

static void
sizes_around_the_end_of_the_first_granules_come_out(void **state)
{
	struct region		r = new_region(1 << 20);
	struct submit_args	args = args_of(10, 20);
	size_t			k, len, one = ARENA_GRANULE - sizeof(struct extent);
	size_t			fixed = sizeof(struct submit) + SUBMIT_HEADROOM + 30;
	uint32_t		off;

	(void)state;
	for (k = 1; k <= 3; k++) {
		for (len = k * one - fixed - 2; len <= k * one - fixed + 2; len++) {
			off = build(&r.arena, &args, len, 1000, true);
			check(&r.arena, off, &args, len);
			submit_free(&r.arena, 0, off);
		}
	}
	/* exactly what fits one granule takes one, announced or not */
	off = build(&r.arena, &args, one - fixed, SIZE_MAX, false);
	assert_int_equal(taken(&r.arena), 1);
	submit_free(&r.arena, 0, off);
	assert_all_free(&r.arena);
	region_destroy(&r);
}

static void
memory_in_pieces_of_one_granule_does_as_well(void **state)
{
	struct region		r = new_region(6 << 20);
	struct arena		*a = &r.arena;
	struct submit_args	args = args_of(1000, 4096);
	uint32_t		off;
	unsigned		i, got;

	(void)state;
	/* every second granule is somebody else's, without any budget */
	for (i = 0; i < a->ngranules; i++)
		assert_int_not_equal(arena_take(a, 1, 1, &got), ARENA_NONE);
	for (i = 0; i < a->ngranules; i += 2)
		arena_free(a, 1, (uint32_t)a->first + i * ARENA_GRANULE, 1);
	for (i = 0; i < NSIZES; i++) {
		off = build(a, &args, sizes[i], 70000, i % 2 == 1);
		check(a, off, &args, sizes[i]);
		submit_free(a, 0, off);
		assert_int_equal(arena_reserved(a), 0);
	}
	region_destroy(&r);
}

static void
pieces_of_any_size_make_the_same_submission(void **state)
{
	static const size_t	pieces[] = { 1, 7, 1460, 4096, 65536, 65537 };
	struct region		r = new_region(2 << 20);
	struct submit_args	args = args_of(3, 0);
	uint32_t		off;
	size_t			i;

	(void)state;
	for (i = 0; i < sizeof(pieces) / sizeof(pieces[0]); i++) {
		off = build(&r.arena, &args, 140000, pieces[i], i % 2 == 0);
		check(&r.arena, off, &args, 140000);
		submit_free(&r.arena, 0, off);
	}
	assert_all_free(&r.arena);
	region_destroy(&r);
}

static void
the_largest_head_fits_and_its_tags_come_out(void **state)
{
	struct region		r = new_region(1 << 20);
	struct submit_args	args = args_of(SUBMIT_PATH_MAX, SUBMIT_META_MAX);
	struct tag		match[SUBMIT_TAGS_MAX], none[SUBMIT_TAGS_MAX];
	struct submit_view	v;
	struct submit_build	b;
	uint32_t		off;
	unsigned		i;

	(void)state;
	for (i = 0; i < SUBMIT_TAGS_MAX; i++) {
		match[i] = (struct tag){ .seq = i + 1, .run = i * 3 };
		none[i] = (struct tag){ .seq = i + 1000, .run = i * 5 };
	}
	args.cond = COND_MATCH | COND_NONE_MATCH | COND_UNMODIFIED;
	args.match = match;
	args.n_match = SUBMIT_TAGS_MAX;
	args.none = none;
	args.n_none = SUBMIT_TAGS_MAX;
	args.unmodified_s = -12345;
	off = build(&r.arena, &args, 100, SIZE_MAX, true);
	check(&r.arena, off, &args, 100);
	submit_number(&r.arena, off, 77);
	assert_int_equal(submit_view(&r.arena, off, &v), 0);
	assert_memory_equal(v.match, match, sizeof(match));
	assert_memory_equal(v.none, none, sizeof(none));
	assert_int_equal(v.s->cond, args.cond);
	assert_int_equal(v.s->unmodified_s, -12345);
	assert_int_equal(v.s->number, 77);
	assert_int_equal(v.s->tenant, 5);
	submit_free(&r.arena, 0, off);
	args.n_none++;
	assert_int_equal(submit_begin(&r.arena, 0, &b, &args, 0), -1);
	assert_int_equal(errno, EINVAL);
	assert_all_free(&r.arena);
	region_destroy(&r);
}

/* --- budget ------------------------------------------------------------ */

static void
a_document_of_half_the_budget_can_be_taken_in_and_one_byte_over_the_rest_cannot(void **state)
{
	struct region		r = new_region(4 << 20);
	struct arena		*a = &r.arena;
	struct submit_args	args = args_of(SUBMIT_PATH_MAX, SUBMIT_META_MAX);
	struct submit_build	b;
	uint32_t		off;

	(void)state;
	off = build(a, &args, 2 << 20, SIZE_MAX, true);
	assert_int_equal(submit_begin(a, 0, &b, &args, 2 << 20), -1);
	assert_int_equal(errno, ENOSPC);
	args.tenant = 6;
	assert_int_equal(submit_begin(a, 1, &b, &args, 2 << 20), 0);
	submit_abort(a, 1, &b);
	submit_free(a, 0, off);
	assert_int_equal(submit_begin(a, 0, &b, &args, 4 << 20), -1);
	assert_int_equal(errno, ENOSPC);
	assert_int_equal(submit_begin(a, 0, &b, &args, UINT64_MAX), -1);
	assert_int_equal(errno, ENOSPC);
	assert_all_free(a);
	region_destroy(&r);
}

static void
a_chunked_body_grows_until_the_budget_ends_and_gives_all_back(void **state)
{
	struct region		r = new_region(1 << 20);
	struct submit_args	args = args_of(5, 5);
	struct submit_build	b;
	int			rc;

	(void)state;
	assert_int_equal(submit_begin(&r.arena, 0, &b, &args, 0), 0);
	do {
		rc = submit_append(&r.arena, 0, &b, body, 10000);
	} while (rc == 0);
	assert_int_equal(errno, ENOSPC);
	assert_true(b.body_len > (512 << 10) - 10000);
	assert_true(b.reserved <= (uint64_t)r.arena.ngranules / 2 * ARENA_GRANULE);
	submit_abort(&r.arena, 0, &b);
	submit_abort(&r.arena, 0, &b);
	assert_all_free(&r.arena);
	region_destroy(&r);
}

static void
a_build_can_be_given_up_at_any_time(void **state)
{
	struct region		r = new_region(2 << 20);
	struct submit_args	args = args_of(5, 5);
	struct submit_build	b;
	size_t			len;

	(void)state;
	for (len = 0; len < 300000; len += 33333) {
		assert_int_equal(submit_begin(&r.arena, 0, &b, &args, len % 2 ? 300000 : 0), 0);
		assert_int_equal(submit_append(&r.arena, 0, &b, body, len), 0);
		if (len % 3 == 0)
			assert_int_not_equal(submit_finish(&r.arena, 0, &b), ARENA_NONE);
		submit_abort(&r.arena, 0, &b);
		assert_all_free(&r.arena);
	}
	region_destroy(&r);
}

/* --- after a death ----------------------------------------------------- */

struct kept {
	const struct arena	*a;
	uint8_t			*bits;	/* [ngranules] */
};

static void
mark(void *arg, uint32_t off, unsigned n)
{
	struct kept	*k = arg;

	memset(k->bits + (off - k->a->first) / ARENA_GRANULE, 1, n);
}

static bool
is_marked(void *arg, uint32_t off)
{
	struct kept	*k = arg;

	return k->bits[(off - k->a->first) / ARENA_GRANULE] != 0;
}

static void
a_successor_keeps_what_is_pending_and_frees_what_was_being_built(void **state)
{
	struct region		 r = new_region(2 << 20);
	struct arena		*a = &r.arena;
	struct submit_args	 args = args_of(9, 9);
	struct submit_build	 b;
	uint32_t		*off = t_shared(2 * sizeof(*off));
	struct kept		 k = { a, t_shared(a->ngranules) };
	unsigned		 i;

	(void)state;
	t_child(
		off[0] = build(a, &args, 200000, SIZE_MAX, false);
		submit_begin(a, 0, &b, &args, 300000);
		submit_append(a, 0, &b, body, 100000);
		args.tenant = 8;
		off[1] = build(a, &args, 10, SIZE_MAX, true);
		t_die()
	);
	for (i = 0; i < 2; i++)
		assert_int_equal(submit_runs(a, off[i], mark, &k), 0);
	arena_reclaim(a, 0, is_marked, &k);
	assert_int_equal(arena_reserved(a), (uint64_t)taken(a) * ARENA_GRANULE);
	assert_int_equal(submit_adopt(a, 0, off[0]), 0);
	assert_int_equal(submit_adopt(a, 0, off[1]), 0);
	assert_int_equal(a->lanes[0].granules[8], 1);
	args.tenant = 5;
	check(a, off[0], &args, 200000);
	args.tenant = 8;
	check(a, off[1], &args, 10);
	submit_free(a, 0, off[0]);
	submit_free(a, 0, off[1]);
	assert_all_free(a);
	region_destroy(&r);
}

/* --- hostile chains ---------------------------------------------------- */

struct victim {
	struct region	 r;
	struct arena	*a;
	uint32_t	 off;
	struct extent	*e[3];	/* the first three extents */
	struct submit	*s;
};

static void
new_victim(struct victim *v)
{
	struct submit_args	args = args_of(9, 9);
	unsigned		i;

	v->r = new_region(2 << 20);
	v->a = &v->r.arena;
	v->off = build(v->a, &args, 200000, SIZE_MAX, true);
	v->e[0] = arena_at(v->a, v->off, sizeof(struct extent));
	for (i = 1; i < 3; i++)
		v->e[i] = arena_at(v->a, v->e[i - 1]->next, sizeof(struct extent));
	v->s = (void *)(v->e[0] + 1);
}

#define REFUSED(v, lvalue, value) do {						\
	struct submit_view	view_;						\
	__typeof__(lvalue)	old_ = (lvalue);				\
										\
	assert_int_equal(submit_view((v)->a, (v)->off, &view_), 0);		\
	(lvalue) = (__typeof__(lvalue))(value);					\
	errno = 0;								\
	assert_int_equal(submit_view((v)->a, (v)->off, &view_), -1);		\
	assert_int_equal(errno, EINVAL);					\
	(lvalue) = old_;							\
} while (0)

static void
a_chain_that_does_not_hold_together_is_refused(void **state)
{
	struct victim		v;
	struct submit_view	view;
	struct extent		*last;
	uint32_t		off;

	(void)state;
	new_victim(&v);
	off = v.off;
	for (last = v.e[0]; last->next != ARENA_NONE;)
		last = arena_at(v.a, last->next, sizeof(*last));
	/* loops */
	REFUSED(&v, v.e[0]->next, off);
	REFUSED(&v, v.e[1]->next, v.e[0]->next);
	REFUSED(&v, v.e[2]->next, off);
	/* offsets outside, at odd places, at granules that hold no extent */
	REFUSED(&v, v.e[0]->next, off + 1);
	REFUSED(&v, v.e[0]->next, ARENA_GRANULE / 2);
	REFUSED(&v, v.e[1]->next, UINT32_MAX);
	REFUSED(&v, v.e[1]->next, UINT32_MAX - ARENA_GRANULE + 1);
	REFUSED(&v, v.e[1]->next, v.a->first + (uint64_t)v.a->ngranules * ARENA_GRANULE);
	REFUSED(&v, v.e[1]->next, v.a->first + (uint64_t)(v.a->ngranules - 1) * ARENA_GRANULE);
	REFUSED(&v, v.e[1]->next, ARENA_NONE);
	/* lengths */
	REFUSED(&v, v.e[0]->granules, 0);
	REFUSED(&v, v.e[1]->granules, ARENA_RUN_MAX + 1);
	REFUSED(&v, v.e[1]->granules, UINT16_MAX);
	REFUSED(&v, v.e[0]->used, 0);
	REFUSED(&v, v.e[0]->used, sizeof(struct extent) + sizeof(struct submit) - 1);
	REFUSED(&v, v.e[0]->used, 150);
	REFUSED(&v, v.e[1]->used, v.e[1]->used - 1);
	REFUSED(&v, v.e[1]->used, v.e[1]->used + 1);
	REFUSED(&v, v.e[1]->used, UINT32_MAX);
	REFUSED(&v, v.s->magic, 0);
	REFUSED(&v, v.s->op, 0);
	REFUSED(&v, v.s->op, OP_TENANT_DROP + 1);
	REFUSED(&v, v.s->cond, 0x80);
	REFUSED(&v, v.s->path_len, 10);
	REFUSED(&v, v.s->path_len, SUBMIT_PATH_MAX + 1);
	REFUSED(&v, v.s->meta_len, 8);
	REFUSED(&v, v.s->meta_len, UINT16_MAX);
	REFUSED(&v, v.s->n_match, 1);
	REFUSED(&v, v.s->n_none, SUBMIT_TAGS_MAX + 1);
	REFUSED(&v, v.s->n_none, UINT16_MAX);
	REFUSED(&v, v.s->body_len, 199999);
	REFUSED(&v, v.s->body_len, 200004);
	REFUSED(&v, v.s->body_len, UINT64_MAX);
	REFUSED(&v, v.s->body_len, UINT64_MAX - 3);
	REFUSED(&v, v.s->table_len, 0);
	REFUSED(&v, v.s->table_len, UINT32_MAX);
	/* more in the chain than its head says; body and table that only fit together */
	REFUSED(&v, last->used, last->used + 4);
	v.s->body_len -= 4;
	v.s->table_len += 4;
	assert_int_equal(submit_view(v.a, off, &view), -1);
	v.s->body_len += 4;
	v.s->table_len -= 4;
	/* a run that says it holds more than it has is refused by all who walk */
	v.e[1]->used++;
	assert_int_equal(submit_runs(v.a, off, NULL, NULL), -1);
	v.e[1]->used--;
	assert_int_equal(submit_runs(v.a, off, NULL, NULL), 0);
	/* offsets handed in */
	assert_int_equal(submit_view(v.a, ARENA_NONE, &view), -1);
	assert_int_equal(submit_view(v.a, off + 16, &view), -1);
	assert_int_equal(submit_view(v.a, UINT32_MAX, &view), -1);
	assert_int_equal(submit_view(v.a, v.e[0]->next, &view), -1);
	region_destroy(&v.r);
}

static void
any_bytes_at_all_are_looked_at_without_harm(void **state)
{
	static uint8_t		buf[BODY_MAX + 65536];
	struct victim		v;
	struct submit_view	view;
	struct iovec		iov[64];
	uint8_t			saved[4][128], *at[4];
	uint32_t		x = 12345, round, resume;
	unsigned		i, accepted = 0;
	int			k;

	(void)state;
	new_victim(&v);
	for (i = 0; i < 3; i++)
		at[i] = (uint8_t *)v.e[i];
	at[3] = arena_at(v.a, v.e[2]->next, 128);
	for (i = 0; i < 4; i++)
		memcpy(saved[i], at[i], 128);
	for (round = 0; round < 100000; round++) {
		for (i = 0; i < 1 + round % 4; i++) {
			x = x * 1664525 + 1013904223;
			at[x >> 30][(x >> 16) % (x & 1 ? 16 : 80)] = (uint8_t)(x >> 5);
		}
		if (submit_view(v.a, v.off, &view) == 0) {
			accepted++;
			assert_true(view.payload_len <= sizeof(buf));
			assert_int_equal(submit_copy(v.a, v.off, 0, buf, view.payload_len), 0);
		}
		submit_copy(v.a, v.off, x % 300000, buf, x % 70000);
		submit_runs(v.a, v.off, NULL, NULL);
		for (k = 0, resume = 0; k < 8; k++)
			if (submit_iov(v.a, v.off, iov, 1 + (int)(x % 3), &resume) != -1 || errno != E2BIG)
				break;
		for (i = 0; i < 4; i++)
			memcpy(at[i], saved[i], 128);
	}
	assert_true(accepted > 0 && accepted < round);
	region_destroy(&v.r);
}

static void
a_scribbled_chain_is_not_freed_in_part(void **state)
{
	struct victim	v;
	unsigned	before;

	(void)state;
	new_victim(&v);
	before = taken(v.a);
	v.e[1]->next = v.off;
	assert_int_equal(submit_adopt(v.a, 0, v.off), -1);
	submit_free(v.a, 0, v.off);
	assert_int_equal(taken(v.a), before);
	arena_reclaim(v.a, 0, NULL, NULL);
	assert_all_free(v.a);
	region_destroy(&v.r);
}

int
main(void)
{
	const struct CMUnitTest	tests[] = {
		cmocka_unit_test(bodies_of_every_size_come_out_with_the_right_table_and_checksum),
		cmocka_unit_test(sizes_around_the_end_of_the_first_granules_come_out),
		cmocka_unit_test(memory_in_pieces_of_one_granule_does_as_well),
		cmocka_unit_test(pieces_of_any_size_make_the_same_submission),
		cmocka_unit_test(the_largest_head_fits_and_its_tags_come_out),
		cmocka_unit_test(a_document_of_half_the_budget_can_be_taken_in_and_one_byte_over_the_rest_cannot),
		cmocka_unit_test(a_chunked_body_grows_until_the_budget_ends_and_gives_all_back),
		cmocka_unit_test(a_build_can_be_given_up_at_any_time),
		cmocka_unit_test(a_successor_keeps_what_is_pending_and_frees_what_was_being_built),
		cmocka_unit_test(a_chain_that_does_not_hold_together_is_refused),
		cmocka_unit_test(any_bytes_at_all_are_looked_at_without_harm),
		cmocka_unit_test(a_scribbled_chain_is_not_freed_in_part),
	};

	proc_become(IN_TEST, 0);
	return cmocka_run_group_tests(tests, fill, NULL);
}
