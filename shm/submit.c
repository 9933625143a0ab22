/*
 * shm/submit.c - see shm/submit.h.
 *
 * Runs in: worker (build, free, adopt), committer (view, iov, copy).
 *
 * The viewing side trusts nothing it reads: each step along a chain loads an
 * extent's header once, checks it, and uses only the copy (run_load).  The
 * building side goes the same way; it costs nothing that could be measured.
 */
#include "config.h"
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "shm/crc32c.h"
#include "shm/log.h"
#include "shm/proc.h"
#include "shm/submit.h"

#define PER_GRANULE	(ARENA_GRANULE - sizeof(struct extent))	/* bytes that one granule surely holds */
#define FIXED		(sizeof(struct submit) + SUBMIT_HEADROOM)
#define COND_ALL	(COND_MATCH_ANY | COND_MATCH | COND_NONE_MATCH_ANY | COND_NONE_MATCH | COND_UNMODIFIED)

_Static_assert(sizeof(struct submit) == 64, "the layout is a protocol");
_Static_assert(sizeof(struct tag) == 16, "the head room stays 8-aligned behind tags");
_Static_assert(sizeof(struct extent) + FIXED + 2 * SUBMIT_TAGS_MAX * sizeof(struct tag) + SUBMIT_PATH_MAX <=
    ARENA_GRANULE, "the path always lies in the first granule");

/* --- the chain --------------------------------------------------------- */

struct run {		/* a checked copy of one extent's header */
	uint32_t	 off, next;
	unsigned	 granules;
	uint32_t	 used;
	uint8_t		*base;
};

/* 0; -1 EINVAL where there is no sound extent at off. */
static int
run_load(const struct arena *a, uint32_t off, struct run *r)
{
	volatile struct extent	*e;	/* volatile: each field is read once, and what is checked is what is used */

	errno = EINVAL;
	if (off % ARENA_GRANULE != 0 || (r->base = arena_at(a, off, ARENA_GRANULE)) == NULL)
		return -1;
	e = (volatile struct extent *)r->base;
	r->off = off;
	r->next = e->next;
	r->granules = e->granules;
	r->used = e->used;
	if (r->granules < 1 || r->granules > ARENA_RUN_MAX ||
	    arena_at(a, off, (size_t)r->granules * ARENA_GRANULE) == NULL)
		return -1;
	if (r->used < sizeof(struct extent) || r->used > r->granules * ARENA_GRANULE)
		return -1;
	return 0;
}

/* Loads the next extent; *total counts granules, so that a loop ends.  1, 0 at the end, -1 EINVAL. */
static int
run_next(const struct arena *a, struct run *r, uint32_t *total)
{
	if (r->next == ARENA_NONE)
		return 0;
	if (run_load(a, r->next, r) == -1)
		return -1;
	*total += r->granules;
	if (*total > a->ngranules) {
		errno = EINVAL;
		return -1;
	}
	return 1;
}

static struct submit *
submit_at(const struct run *r)
{
	return (struct submit *)(void *)(r->base + sizeof(struct extent));
}

int
submit_runs(const struct arena *a, uint32_t off, void (*fn)(void *, uint32_t off, unsigned n), void *arg)
{
	struct run	r;
	uint32_t	total;
	int		more;

	if (run_load(a, off, &r) == -1)
		return -1;
	total = r.granules;
	do {
		/* fn may free the run: what is needed of it has been copied */
		if (fn != NULL)
			fn(arg, r.off, r.granules);
	} while ((more = run_next(a, &r, &total)) == 1);
	return more;
}

/* --- worker: budget and granules --------------------------------------- */

/* Bytes of padding and table behind a body of body_len bytes, `before` bytes of path and meta in front. */
static uint64_t
table_bytes(uint64_t body_len, size_t before)
{
	uint64_t	chunks = (body_len + SUBMIT_CHUNK - 1) / SUBMIT_CHUNK;

	if (chunks <= 1)
		return 0;
	return (0 - (before + body_len)) % 4 + 4 * chunks;
}

/*
 * In granules of their own each byte has room; longer runs need fewer, and
 * submit_finish() gives back what was not taken.
 */
uint64_t
submit_cost(uint64_t body_len, size_t head)
{
	uint64_t	bytes;

	if (body_len > UINT64_MAX / 2)
		return UINT64_MAX;
	/* 3: padding, whatever the lengths of path and meta */
	bytes = FIXED + head + body_len + table_bytes(body_len, 0) + 3;
	return (bytes + PER_GRANULE - 1) / PER_GRANULE * ARENA_GRANULE;
}

static int
reserve_more(struct arena *a, unsigned lane, struct submit_build *b, uint64_t bytes)
{
	if (!arena_reserve(a, lane, b->tenant, bytes)) {
		errno = ENOSPC;
		return -1;
	}
	b->reserved += bytes;
	return 0;
}

/* A chunked body grows: by as much as it has, up to a whole run. */
static int
grow(struct arena *a, unsigned lane, struct submit_build *b)
{
	uint64_t	n = b->granules < ARENA_RUN_MAX ? b->granules : ARENA_RUN_MAX;

	if (n > 1 && reserve_more(a, lane, b, n * ARENA_GRANULE) == 0)
		return 0;
	return reserve_more(a, lane, b, ARENA_GRANULE);
}

/* Takes one more run under the reservation and puts it at the end of the chain. */
static int
take_run(struct arena *a, unsigned lane, struct submit_build *b)
{
	struct extent	*e;
	uint64_t	 left;
	uint32_t	 off;
	unsigned	 got;

	if (b->reserved / ARENA_GRANULE == b->granules && grow(a, lane, b) == -1)
		return -1;
	left = b->reserved / ARENA_GRANULE - b->granules;
	off = arena_take(a, lane, left < ARENA_RUN_MAX ? (unsigned)left : ARENA_RUN_MAX, &got);
	if (off == ARENA_NONE) {
		errno = ENOSPC;
		return -1;
	}
	b->granules += got;
	e = arena_at(a, off, ARENA_GRANULE);
	memset(e, 0, sizeof(*e));
	e->next = ARENA_NONE;
	e->granules = (uint16_t)got;
	e->used = sizeof(*e);
	/* linked when it is whole: a walk never meets half an extent */
	if (b->last != ARENA_NONE)
		((struct extent *)arena_at(a, b->last, sizeof(*e)))->next = off;
	else
		b->first = off;
	b->last = off;
	return 0;
}

/* Where the next bytes of the stream go, at least one. */
static int
room(struct arena *a, unsigned lane, struct submit_build *b, uint8_t **p, size_t *len)
{
	struct extent	*e;
	size_t		 size;

	for (;;) {
		e = arena_at(a, b->last, sizeof(*e));
		size = (size_t)e->granules * ARENA_GRANULE;
		if (e->used < size)
			break;
		if (take_run(a, lane, b) == -1)
			return -1;
	}
	*p = (uint8_t *)e + e->used;
	*len = size - e->used;
	return 0;
}

static void
advance(struct arena *a, struct submit_build *b, size_t n)
{
	((struct extent *)arena_at(a, b->last, sizeof(struct extent)))->used += (uint32_t)n;
}

/* Appends bytes that are not body. */
static int
put(struct arena *a, unsigned lane, struct submit_build *b, const void *data, size_t n)
{
	const uint8_t	*from = data;
	uint8_t		*p;
	size_t		 len;

	while (n > 0) {
		if (room(a, lane, b, &p, &len) == -1)
			return -1;
		if (len > n)
			len = n;
		memcpy(p, from, len);
		advance(a, b, len);
		from += len;
		n -= len;
	}
	return 0;
}

/* --- worker: building -------------------------------------------------- */

static size_t
tags_bytes(unsigned n_match, unsigned n_none)
{
	return (n_match + (size_t)n_none) * sizeof(struct tag);
}

/* The first granule has room for all of this but the meta's end. */
static int
put_head(struct arena *a, unsigned lane, struct submit_build *b, const struct submit_args *args)
{
	static const uint8_t	headroom[SUBMIT_HEADROOM];
	struct submit		s = {
		.magic = SUBMIT_MAGIC,
		.op = (uint8_t)args->op,
		.cond = args->cond,
		.path_len = args->path_len,
		.meta_len = args->meta_len,
		.n_match = args->n_match,
		.n_none = args->n_none,
		.tenant = args->tenant,
		.unmodified_s = args->unmodified_s,
	};

	if (put(a, lane, b, &s, sizeof(s)) == -1 ||
	    put(a, lane, b, args->match, tags_bytes(args->n_match, 0)) == -1 ||
	    put(a, lane, b, args->none, tags_bytes(0, args->n_none)) == -1 ||
	    put(a, lane, b, headroom, sizeof(headroom)) == -1 ||
	    put(a, lane, b, args->path, args->path_len) == -1)
		return -1;
	return put(a, lane, b, args->meta, args->meta_len);
}

int
submit_begin(struct arena *a, unsigned lane, struct submit_build *b,
    const struct submit_args *args, uint64_t body_hint)
{
	size_t	head;

	RUNS_IN(IN_WORKER | IN_TEST);
	memset(b, 0, sizeof(*b));
	if (args->path_len > SUBMIT_PATH_MAX || args->meta_len > SUBMIT_META_MAX ||
	    args->n_match > SUBMIT_TAGS_MAX || args->n_none > SUBMIT_TAGS_MAX) {
		errno = EINVAL;
		return -1;
	}
	b->first = b->last = ARENA_NONE;
	b->tenant = args->tenant;
	head = tags_bytes(args->n_match, args->n_none) + args->path_len + args->meta_len;
	if (reserve_more(a, lane, b, submit_cost(body_hint, head)) == -1)
		return -1;
	if (take_run(a, lane, b) == -1 || put_head(a, lane, b, args) == -1) {
		submit_abort(a, lane, b);
		errno = ENOSPC;
		return -1;
	}
	return 0;
}

int
submit_space(struct arena *a, unsigned lane, struct submit_build *b, void **p, size_t *len)
{
	uint8_t	*at;

	if (room(a, lane, b, &at, len) == -1)
		return -1;
	*p = at;
	return 0;
}

static int
push_chunk(struct submit_build *b, uint32_t crc)
{
	uint32_t	*t, cap;

	if (b->ntable == b->captable) {
		cap = b->captable == 0 ? 16 : b->captable * 2;
		if ((t = reallocarray(b->table, cap, sizeof(*t))) == NULL)
			return -1;
		b->table = t;
		b->captable = cap;
	}
	b->table[b->ntable++] = htole32(crc);
	return 0;
}

/* A chunk's checksum goes into the table when the next chunk begins: a body of one chunk needs no table. */
int
submit_filled(struct arena *a, struct submit_build *b, size_t n)
{
	struct extent	*e = arena_at(a, b->last, sizeof(*e));
	const uint8_t	*p = (const uint8_t *)e + e->used;
	size_t		 in_chunk, len, left;

	if (n > (size_t)e->granules * ARENA_GRANULE - e->used)
		proc_panic(__FILE__, __LINE__, "no more is filled than there was space");
	for (left = n; left > 0; left -= len) {
		in_chunk = b->body_len % SUBMIT_CHUNK;
		if (in_chunk == 0 && b->body_len > 0) {
			if (push_chunk(b, b->chunk_crc) == -1)
				return -1;
			b->chunk_crc = 0;
		}
		len = SUBMIT_CHUNK - in_chunk < left ? SUBMIT_CHUNK - in_chunk : left;
		b->chunk_crc = crc32c(b->chunk_crc, p, len);
		b->body_len += len;
		p += len;
	}
	advance(a, b, n);
	return 0;
}

int
submit_append(struct arena *a, unsigned lane, struct submit_build *b, const void *data, size_t n)
{
	const uint8_t	*from = data;
	void		*p;
	size_t		 len;

	while (n > 0) {
		if (submit_space(a, lane, b, &p, &len) == -1)
			return -1;
		if (len > n)
			len = n;
		memcpy(p, from, len);
		if (submit_filled(a, b, len) == -1)
			return -1;
		from += len;
		n -= len;
	}
	return 0;
}

/* Pads and lays down the table; its checksum is the body's. */
static int
put_table(struct arena *a, unsigned lane, struct submit_build *b, struct submit *s)
{
	static const uint8_t	zero[4];
	size_t			pad, bytes;

	if (push_chunk(b, b->chunk_crc) == -1)
		return -1;
	bytes = b->ntable * sizeof(b->table[0]);
	pad = (0 - (s->path_len + s->meta_len + b->body_len)) % 4;
	if (put(a, lane, b, zero, pad) == -1 || put(a, lane, b, b->table, bytes) == -1)
		return -1;
	s->body_crc = crc32c(0, b->table, bytes);
	s->table_len = (uint32_t)(pad + bytes);
	return 0;
}

uint32_t
submit_finish(struct arena *a, unsigned lane, struct submit_build *b)
{
	struct submit	*s = arena_at(a, b->first + (uint32_t)sizeof(struct extent), sizeof(*s));
	uint64_t	 taken = (uint64_t)b->granules * ARENA_GRANULE;

	RUNS_IN(IN_WORKER | IN_TEST);
	s->body_len = b->body_len;
	s->body_crc = b->chunk_crc;
	if (b->body_len > SUBMIT_CHUNK) {
		if (put_table(a, lane, b, s) == -1)
			return ARENA_NONE;
		taken = (uint64_t)b->granules * ARENA_GRANULE;
	}
	free(b->table);
	b->table = NULL;
	/* from here on the budget holds exactly the granules: arena_reclaim() counts on it (I7) */
	arena_release(a, lane, b->tenant, b->reserved - taken);
	b->reserved = taken;
	s->reserved = taken;
	return b->first;
}

/* --- worker: the end of a submission ----------------------------------- */

struct owner {
	struct arena	*arena;
	unsigned	 lane;
	uint64_t	 granules;
};

static void
free_run(void *arg, uint32_t off, unsigned n)
{
	struct owner	*o = arg;

	arena_free(o->arena, o->lane, off, n);
}

static void
count_run(void *arg, uint32_t off, unsigned n)
{
	(void)off;
	((struct owner *)arg)->granules += n;
}

void
submit_abort(struct arena *a, unsigned lane, struct submit_build *b)
{
	struct owner	o = { .arena = a, .lane = lane };

	if (b->first != ARENA_NONE && submit_runs(a, b->first, free_run, &o) == -1)
		proc_panic(__FILE__, __LINE__, "a build's chain is whole");
	if (b->reserved > 0)
		arena_release(a, lane, b->tenant, b->reserved);
	free(b->table);
	memset(b, 0, sizeof(*b));
}

/* Granules and tenant of a whole submission; -1 EINVAL. */
static int
holds(struct arena *a, unsigned lane, uint32_t off, struct owner *o, uint32_t *tenant)
{
	struct run	r;

	*o = (struct owner){ .arena = a, .lane = lane };
	if (submit_runs(a, off, count_run, o) == -1 || run_load(a, off, &r) == -1)
		return -1;
	*tenant = submit_at(&r)->tenant;
	return 0;
}

void
submit_free(struct arena *a, unsigned lane, uint32_t off)
{
	struct owner	o;
	uint32_t	tenant;

	RUNS_IN(IN_WORKER | IN_TEST);
	if (holds(a, lane, off, &o, &tenant) == -1) {
		/* scribbled on: its granules come back with the lane's next worker */
		log_warnx("lane %u: submission at %u does not hold together, its memory stays taken", lane, off);
		return;
	}
	submit_runs(a, off, free_run, &o);
	arena_release(a, lane, tenant, o.granules * ARENA_GRANULE);
}

int
submit_adopt(struct arena *a, unsigned lane, uint32_t off)
{
	struct owner	o;
	uint32_t	tenant;

	RUNS_IN(IN_WORKER | IN_TEST);
	if (holds(a, lane, off, &o, &tenant) == -1)
		return -1;
	arena_adopt(a, lane, tenant, o.granules * ARENA_GRANULE);
	return 0;
}

void
submit_number(const struct arena *a, uint32_t off, uint64_t number)
{
	struct run	r;

	if (run_load(a, off, &r) == -1)
		proc_panic(__FILE__, __LINE__, "a submission that is numbered is whole");
	submit_at(&r)->number = number;
}

/* --- committer: viewing ------------------------------------------------ */

/* Bytes of the stream behind the extents' headers.  -1 EINVAL where the chain is broken. */
static int
stream_bytes(const struct arena *a, struct run r, uint64_t *sum)
{
	uint32_t	total = r.granules;
	int		more;

	*sum = 0;
	do {
		*sum += r.used - sizeof(struct extent);
	} while ((more = run_next(a, &r, &total)) == 1);
	return more;
}

/*
 * The first extent and a copy of its struct submit, checked as far as to say
 * where the head room starts.  0; -1 EINVAL.
 */
static int
first_load(const struct arena *a, uint32_t off, struct run *r, struct submit *s, uint32_t *head)
{
	if (run_load(a, off, r) == -1)
		return -1;
	errno = EINVAL;
	if (r->used < sizeof(struct extent) + sizeof(*s))
		return -1;
	memcpy(s, submit_at(r), sizeof(*s));
	/* what is checked is the copy: the compiler must not read the original again */
	atomic_signal_fence(memory_order_seq_cst);
	if (s->magic != SUBMIT_MAGIC || s->n_match > SUBMIT_TAGS_MAX || s->n_none > SUBMIT_TAGS_MAX ||
	    s->path_len > SUBMIT_PATH_MAX || s->meta_len > SUBMIT_META_MAX)
		return -1;
	*head = (uint32_t)(sizeof(struct extent) + sizeof(*s) + tags_bytes(s->n_match, s->n_none));
	if (r->used < *head + SUBMIT_HEADROOM + s->path_len)
		return -1;
	return 0;
}

/* The chain holds exactly what its head says. */
static int
check_lengths(const struct arena *a, const struct run *r, const struct submit *s)
{
	uint64_t	sum, before = (uint64_t)s->path_len + s->meta_len;

	if (stream_bytes(a, *r, &sum) == -1)
		return -1;
	errno = EINVAL;
	if (s->op < OP_PUT || s->op > OP_TENANT_DROP || (s->cond & ~COND_ALL) != 0)
		return -1;
	if (s->body_len > sum || s->table_len != table_bytes(s->body_len, before))
		return -1;
	if (sum != FIXED + tags_bytes(s->n_match, s->n_none) + before + s->body_len + s->table_len)
		return -1;
	return 0;
}

int
submit_view(const struct arena *a, uint32_t off, struct submit_view *v)
{
	struct run	r;
	struct submit	s;
	uint32_t	head;

	RUNS_IN(IN_COMMITTER | IN_WORKER | IN_TEST);
	if (first_load(a, off, &r, &s, &head) == -1 || check_lengths(a, &r, &s) == -1)
		return -1;
	v->s = submit_at(&r);
	v->head = r.base + head;
	v->path = v->head + SUBMIT_HEADROOM;
	v->match = (const struct tag *)(const void *)(r.base + sizeof(struct extent) + sizeof(s));
	v->none = v->match + s.n_match;
	v->payload_len = (uint64_t)s.path_len + s.meta_len + s.body_len + s.table_len;
	return 0;
}

/*
 * *resume: 0 at the start, else the extent to go on with.  Extents that were
 * taken and not filled give no entry.
 */
int
submit_iov(const struct arena *a, uint32_t off, struct iovec *iov, int max, uint32_t *resume)
{
	struct run	r;
	struct submit	s;
	uint32_t	skip = sizeof(struct extent), total;
	int		n = 0, more = 1;

	if (*resume == ARENA_NONE) {
		if (first_load(a, off, &r, &s, &skip) == -1)
			return -1;
	} else if (run_load(a, *resume, &r) == -1)
		return -1;
	total = r.granules;
	for (; more == 1; more = run_next(a, &r, &total), skip = sizeof(struct extent)) {
		if (r.used == skip)
			continue;
		if (n == max) {
			*resume = r.off;
			errno = E2BIG;
			return -1;
		}
		iov[n].iov_base = r.base + skip;
		iov[n++].iov_len = r.used - skip;
	}
	if (more == -1)
		return -1;
	*resume = ARENA_NONE;
	return n;
}

int
submit_copy(const struct arena *a, uint32_t off, uint64_t pos, void *out, size_t n)
{
	struct run	 r;
	struct submit	 s;
	uint32_t	 skip, total;
	uint8_t		*to = out;
	size_t		 len;
	int		 more = 1;

	if (first_load(a, off, &r, &s, &skip) == -1)
		return -1;
	skip += SUBMIT_HEADROOM;
	total = r.granules;
	for (; n > 0 && more == 1; more = run_next(a, &r, &total), skip = sizeof(struct extent)) {
		len = r.used - skip;
		if (pos >= len) {
			pos -= len;
			continue;
		}
		len = len - pos < n ? len - (size_t)pos : n;
		memcpy(to, r.base + skip + pos, len);
		to += len;
		n -= len;
		pos = 0;
	}
	errno = EINVAL;
	return n == 0 ? 0 : -1;
}
