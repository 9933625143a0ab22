/*
 * shm/arena.c - see shm/arena.h.
 *
 * Runs in: worker (take, free, reserve), committer (arena_at only).
 *
 * Each lane looks for room from a start of its own, the lowest place first:
 * lanes stay out of each other's cache lines, and only as many pages are ever
 * touched as were in use at once.
 */
#include "config.h"
#include "shm/arena.h"
#include "shm/proc.h"

#define LOOK_AHEAD	512u	/* granules looked through for a whole run before a piece will do */

static uint32_t
bucket(uint32_t tenant)
{
	return tenant % ARENA_TENANTS;
}

/* false: more than the arena could ever hold. */
static bool
granules_for(const struct arena *a, uint64_t bytes, uint32_t *n)
{
	if (bytes > (uint64_t)a->ngranules * ARENA_GRANULE)
		return false;
	*n = (uint32_t)((bytes + ARENA_GRANULE - 1) / ARENA_GRANULE);
	return true;
}

/* --- budget ------------------------------------------------------------ */

uint64_t
arena_reserved(const struct arena *a)
{
	uint64_t	sum = 0;
	unsigned	i;

	/* acquire: pairs with the release in lane_count(); whoever counts bytes as free finds their granules free */
	for (i = 0; i < a->nlanes; i++)
		sum += atomic_load_explicit(&a->lanes[i].reserved, memory_order_acquire);
	return sum;
}

static uint64_t
tenant_granules(const struct arena *a, uint32_t tenant)
{
	uint64_t	sum = 0;
	unsigned	i;

	/* relaxed: a limit, nothing is read on the strength of it; reserve's fence orders it */
	for (i = 0; i < a->nlanes; i++)
		sum += atomic_load_explicit(&a->lanes[i].granules[bucket(tenant)], memory_order_relaxed);
	return sum;
}

/* Adds n granules (may be negative) to the lane's own counters: one writer, so load and store. */
static void
lane_count(struct arena *a, unsigned lane, uint32_t tenant, int64_t n)
{
	struct arena_lane	*l = &a->lanes[lane];
	_Atomic(uint32_t)	*g = &l->granules[bucket(tenant)];
	uint64_t		 bytes;
	uint32_t		 granules;

	granules = atomic_load_explicit(g, memory_order_relaxed);
	atomic_store_explicit(g, granules + (uint32_t)n, memory_order_relaxed);
	bytes = atomic_load_explicit(&l->reserved, memory_order_relaxed);
	/* release: the owner bytes were set to 0 before; pairs with the acquire in arena_reserved() */
	atomic_store_explicit(&l->reserved, bytes + (uint64_t)(n * ARENA_GRANULE), memory_order_release);
}

bool
arena_reserve(struct arena *a, unsigned lane, uint32_t tenant, uint64_t bytes)
{
	uint32_t	n;

	if (!granules_for(a, bytes, &n))
		return false;
	lane_count(a, lane, tenant, n);
	/* our part before the look at the others': pairs with itself in another lane (I6) */
	atomic_thread_fence(memory_order_seq_cst);
	if (arena_reserved(a) <= (uint64_t)a->ngranules * ARENA_GRANULE &&
	    tenant_granules(a, tenant) <= a->ngranules / 2)
		return true;
	lane_count(a, lane, tenant, -(int64_t)n);
	return false;
}

void
arena_release(struct arena *a, unsigned lane, uint32_t tenant, uint64_t bytes)
{
	uint32_t	n;

	if (!granules_for(a, bytes, &n))
		proc_panic(__FILE__, __LINE__, "what is released was reserved");
	lane_count(a, lane, tenant, -(int64_t)n);
}

/* --- granules ---------------------------------------------------------- */

static uint32_t
lane_start(const struct arena *a, unsigned lane)
{
	return (uint32_t)((uint64_t)lane * a->ngranules / a->nlanes);
}

/* The lane's k-th place. */
static uint32_t
place(const struct arena *a, unsigned lane, uint32_t k)
{
	return (lane_start(a, lane) + k) % a->ngranules;
}

static bool
is_free(const struct arena *a, uint32_t i)
{
	/* relaxed: a hint; the compare-and-swap decides */
	return atomic_load_explicit(&a->owner[i], memory_order_relaxed) == 0;
}

/* The first of the lane's places k in [from, to) where `want` granules in a row are free; `to` if none. */
static uint32_t
find(const struct arena *a, unsigned lane, uint32_t from, uint32_t to, unsigned want)
{
	uint32_t	k, first = from, i = place(a, lane, from);

	for (k = from; k < to; k++, i++) {
		if (i == a->ngranules) {
			i = 0;
			first = k;	/* the end of memory ends a run */
		}
		if (!is_free(a, i))
			first = k + 1;
		else if (k + 1 - first >= want)
			return first;
	}
	return to;
}

/* Takes what is free of the `want` granules from i on; how many. */
static unsigned
claim(struct arena *a, unsigned lane, uint32_t i, unsigned want)
{
	uint8_t		expected;
	unsigned	n;

	for (n = 0; n < want && i + n < a->ngranules; n++) {
		expected = 0;
		/* acquire: pairs with the release in arena_free(); the last owner is done with the bytes */
		if (!atomic_compare_exchange_strong_explicit(&a->owner[i + n], &expected, (uint8_t)(lane + 1),
		    memory_order_acquire, memory_order_relaxed))
			break;
	}
	return n;
}

/* Finds and takes; tries again behind a place that another lane took first. */
static unsigned
find_and_claim(struct arena *a, unsigned lane, uint32_t from, uint32_t to, unsigned want, unsigned run, uint32_t *k)
{
	unsigned	n;

	for (*k = from; (*k = find(a, lane, *k, to, run)) < to; ++*k)
		if ((n = claim(a, lane, place(a, lane, *k), want)) > 0)
			return n;
	return 0;
}

/*
 * hint: below it, in the lane's order, everything was taken when we looked.
 * A whole run is preferred where there is one near.
 */
uint32_t
arena_take(struct arena *a, unsigned lane, unsigned want, unsigned *got)
{
	uint32_t	k, near;
	unsigned	n;

	if (want < 1 || want > ARENA_RUN_MAX)
		proc_panic(__FILE__, __LINE__, "1 <= want <= ARENA_RUN_MAX");
	near = a->ngranules - a->hint < LOOK_AHEAD ? a->ngranules : a->hint + LOOK_AHEAD;
	n = find_and_claim(a, lane, a->hint, near, want, want, &k);
	if (n == 0) {
		n = find_and_claim(a, lane, a->hint, a->ngranules, want, 1, &k);
		if (n == 0)
			n = find_and_claim(a, lane, 0, a->hint, want, 1, &k);
		if (n == 0) {
			*got = 0;
			return ARENA_NONE;
		}
		a->hint = k + n;
	} else if (k == a->hint)
		a->hint = k + n;
	if (a->hint >= a->ngranules)
		a->hint = 0;
	*got = n;
	return (uint32_t)(a->first + (uint64_t)place(a, lane, k) * ARENA_GRANULE);
}

void
arena_free(struct arena *a, unsigned lane, uint32_t off, unsigned n)
{
	uint32_t	i, k;
	unsigned	j;

	if (n == 0 || off % ARENA_GRANULE != 0 || arena_at(a, off, (size_t)n * ARENA_GRANULE) == NULL)
		proc_panic(__FILE__, __LINE__, "what is freed are granules");
	i = (uint32_t)((off - a->first) / ARENA_GRANULE);
	for (j = 0; j < n; j++) {
		if (atomic_load_explicit(&a->owner[i + j], memory_order_relaxed) != lane + 1)
			proc_panic(__FILE__, __LINE__, "what is freed is the lane's own");
		/* release: we are done with the bytes; pairs with the acquire in claim() */
		atomic_store_explicit(&a->owner[i + j], 0, memory_order_release);
	}
	k = (i + a->ngranules - lane_start(a, lane)) % a->ngranules;
	if (k < a->hint)
		a->hint = k;
}

void *
arena_at(const struct arena *a, uint32_t off, size_t len)
{
	uint64_t	size = (uint64_t)a->ngranules * ARENA_GRANULE;

	if (off < a->first || off - a->first > size || len > size - (off - a->first))
		return NULL;
	return a->base + off;
}

/* --- after a death ----------------------------------------------------- */

void
arena_reclaim(struct arena *a, unsigned lane, bool (*keep)(void *, uint32_t off), void *arg)
{
	uint64_t	kept = 0;
	uint32_t	i;

	RUNS_IN(IN_WORKER | IN_TEST);
	for (i = 0; i < a->ngranules; i++) {
		if (atomic_load_explicit(&a->owner[i], memory_order_relaxed) != lane + 1)
			continue;
		if (keep != NULL && keep(arg, (uint32_t)(a->first + (uint64_t)i * ARENA_GRANULE)))
			kept++;
		else	/* release: as in arena_free() */
			atomic_store_explicit(&a->owner[i], 0, memory_order_release);
	}
	/* relaxed: our own lane's counters, ordered by the store behind them */
	for (i = 0; i < ARENA_TENANTS; i++)
		atomic_store_explicit(&a->lanes[lane].granules[i], 0, memory_order_relaxed);
	/* release: pairs with the acquire in arena_reserved() */
	atomic_store_explicit(&a->lanes[lane].reserved, kept * ARENA_GRANULE, memory_order_release);
	a->hint = 0;
}

void
arena_adopt(struct arena *a, unsigned lane, uint32_t tenant, uint64_t bytes)
{
	_Atomic(uint32_t)	*g = &a->lanes[lane].granules[bucket(tenant)];
	uint32_t		 n;

	if (!granules_for(a, bytes, &n))
		proc_panic(__FILE__, __LINE__, "what is adopted was reserved");
	/* relaxed: one writer; the bytes were counted by arena_reclaim() */
	n += atomic_load_explicit(g, memory_order_relaxed);
	atomic_store_explicit(g, n, memory_order_relaxed);
}
