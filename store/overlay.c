/*
 * store/overlay.c - see store/overlay.h.
 *
 * Runs in: committer, tools.
 *
 *	  alloc            free, gen g           g published, no pin below g
 *	------> in use ------------------> limbo ---------------------------+
 *	   ^       |  free_now                                              |
 *	   |       +------------------------------> free <------------------+
 *	   +----------------------------------------  |  trim
 *	   +------------------------- hole <----------+
 */
#include "config.h"
#include <sys/mman.h>
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include "shm/proc.h"
#include "store/overlay.h"
#include "store/page.h"

#define HALF_PAGES	((uint32_t)(OVERLAY_PAGES / 2))
#define STEP_PAGES	64u	/* allocated at once: little, for an idle server keeps it */
#define TRIM_PAGES	16u	/* shortest run that is worth a hole */

_Static_assert(OVERLAY_BYTES / PAGE_BYTES < PAGE_CHECKPOINT, "page ids");

/* --- memory -------------------------------------------------------------------- */

static int
memory_take(const struct overlay *o, uint32_t page, uint32_t n)
{
	int	rc;

	do {
		rc = fallocate(o->fd, 0, (off_t)page * PAGE_BYTES, (off_t)n * PAGE_BYTES);
	} while (rc == -1 && errno == EINTR);
	if (rc == -1)
		errno = ENOSPC;		/* ENOMEM, EFBIG: the same to us */
	return rc;
}

static int
memory_give(const struct overlay *o, uint32_t page, uint32_t n)
{
	return fallocate(o->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
	    (off_t)page * PAGE_BYTES, (off_t)n * PAGE_BYTES);
}

/* Room for `need` elements in an array of *cap. */
static int
array_grow(void *array, uint32_t *cap, uint32_t need, size_t size)
{
	uint32_t	 n = *cap != 0 ? *cap : 64;
	void		*p;

	if (need <= *cap)
		return 0;
	while (n < need)
		n *= 2;		/* need is a number of pages: far below 2^31 */
	if ((p = realloc(*(void **)array, n * size)) == NULL)
		return -1;
	*(void **)array = p;
	*cap = n;
	return 0;
}

/* --- life ---------------------------------------------------------------------- */

int
overlay_open(struct overlay *o, int fd)
{
	const struct roots	*roots;
	uint64_t		 newest;
	uint32_t		 page = PAGE_NONE;
	bool			 upper;

	RUNS_IN(IN_COMMITTER | IN_TOOL | IN_TEST);
	memset(o, 0, sizeof(*o));
	o->fd = fd;
	if (memory_take(o, 0, 1) == -1)		/* struct roots */
		return -1;
	o->base = mmap(NULL, OVERLAY_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
	if (o->base == MAP_FAILED) {
		o->base = NULL;
		return -1;
	}
	roots = overlay_roots(o);
	/* acquire: pairs with the release in root_publish(), of the committer before us */
	newest = atomic_load_explicit(&roots->newest, memory_order_acquire);
	if (newest != 0)
		page = roots->ring[newest % ROOTS].page;
	upper = page != PAGE_NONE && page < HALF_PAGES;
	o->first = o->next = o->allocated = upper ? HALF_PAGES : 1;
	o->end = upper ? 2 * HALF_PAGES : HALF_PAGES;
	o->first_gen = newest + 1;
	o->other_half = newest != 0;
	/* what a committer left that died before it published; keeping it costs memory only */
	(void)memory_give(o, o->first, o->end - o->first);
	return 0;
}

void
overlay_close(struct overlay *o)
{
	if (o->base != NULL)
		munmap(o->base, OVERLAY_BYTES);
	free(o->free);
	free(o->limbo);
	free(o->holes);
	memset(o, 0, sizeof(*o));
}

void
overlay_forget(struct overlay *o)
{
	if (o->allocated != o->first)
		(void)memory_give(o, o->first, o->end - o->first);
	o->next = o->allocated = o->first;
	o->in_use = o->nfree = o->nlimbo = o->limbo_head = o->nholes = 0;
}

struct roots *
overlay_roots(struct overlay *o)
{
	return (struct roots *)o->base;
}

/* --- allocation ------------------------------------------------------------------ */

/* Memory for some more pages: of a hole, else behind the last. */
static int
overlay_grow(struct overlay *o)
{
	struct run	*hole;
	uint32_t	 n;

	if (o->nholes == 0) {
		n = o->end - o->allocated < STEP_PAGES ? o->end - o->allocated : STEP_PAGES;
		if (n == 0) {
			errno = ENOSPC;
			return -1;
		}
		if (memory_take(o, o->allocated, n) == -1)
			return -1;
		o->allocated += n;
		return 0;
	}
	hole = &o->holes[o->nholes - 1];
	n = hole->n < STEP_PAGES ? hole->n : STEP_PAGES;
	if (array_grow(&o->free, &o->capfree, o->nfree + n, sizeof(*o->free)) == -1) {
		errno = ENOSPC;
		return -1;
	}
	if (memory_take(o, hole->page, n) == -1)
		return -1;
	for (uint32_t i = n; i > 0; i--)
		o->free[o->nfree++] = hole->page + i - 1;
	hole->page += n;
	hole->n -= n;
	if (hole->n == 0)
		o->nholes--;
	return 0;
}

int
overlay_reserve(struct overlay *o, unsigned n)
{
	while (o->nfree + (o->allocated - o->next) < n)
		if (overlay_grow(o) == -1)
			return -1;
	return 0;
}

uint32_t
overlay_alloc(struct overlay *o)
{
	if (overlay_reserve(o, 1) == -1)
		return PAGE_NONE;
	o->in_use++;
	return o->nfree > 0 ? o->free[--o->nfree] : o->next++;
}

int
overlay_free_now(struct overlay *o, uint32_t page)
{
	assert(page >= o->first && page < o->next && o->in_use > 0);
	if (array_grow(&o->free, &o->capfree, o->nfree + 1, sizeof(*o->free)) == -1)
		return -1;
	o->free[o->nfree++] = page;
	o->in_use--;
	return 0;
}

/* A ring that is full is straightened, so that it goes on behind its old end. */
static int
limbo_grow(struct overlay *o)
{
	uint32_t	 cap = o->caplimbo != 0 ? 2 * o->caplimbo : 64;
	struct limbo	*ring;

	if (o->nlimbo < o->caplimbo)
		return 0;
	if ((ring = malloc(cap * sizeof(*ring))) == NULL)
		return -1;
	for (uint32_t i = 0; i < o->nlimbo; i++)
		ring[i] = o->limbo[(o->limbo_head + i) % o->caplimbo];
	free(o->limbo);
	o->limbo = ring;
	o->limbo_head = 0;
	o->caplimbo = cap;
	return 0;
}

int
overlay_free(struct overlay *o, uint32_t page, uint64_t gen)
{
	assert(page >= o->first && page < o->next && o->in_use > 0);
	if (limbo_grow(o) == -1)
		return -1;
	o->limbo[(o->limbo_head + o->nlimbo) % o->caplimbo] = (struct limbo){ page, gen };
	o->nlimbo++;
	o->in_use--;
	return 0;
}

/* The dead committer's tree: nobody can be in it once all look at ours. */
static void
overlay_drop_other(struct overlay *o)
{
	uint32_t	other = o->first == 1 ? HALF_PAGES : 1;

	/* where it fails the memory is lost until the next committer: no reason to stop */
	(void)memory_give(o, other, other == 1 ? HALF_PAGES - 1 : HALF_PAGES);
	o->other_half = false;
}

void
overlay_reclaim(struct overlay *o, uint64_t oldest, uint64_t published)
{
	const struct limbo	*l;

	while (o->nlimbo > 0) {
		l = &o->limbo[o->limbo_head];
		if (l->gen > published || l->gen > oldest)
			break;
		if (array_grow(&o->free, &o->capfree, o->nfree + 1, sizeof(*o->free)) == -1)
			break;		/* they wait */
		o->free[o->nfree++] = l->page;
		o->limbo_head = (o->limbo_head + 1) % o->caplimbo;
		o->nlimbo--;
	}
	if (o->other_half && published >= o->first_gen && oldest >= o->first_gen)
		overlay_drop_other(o);
}

/* --- giving back ----------------------------------------------------------------- */

/* A run of free pages becomes a hole.  false: it stays as it is. */
static bool
trim_run(struct overlay *o, uint32_t page, uint32_t n)
{
	if (n < TRIM_PAGES || array_grow(&o->holes, &o->capholes, o->nholes + 1, sizeof(*o->holes)) == -1)
		return false;
	if (memory_give(o, page, n) == -1)
		return false;
	o->holes[o->nholes++] = (struct run){ page, n };
	return true;
}

/* Holes at the very end need no entry: they were never used, so to say. */
static void
trim_end(struct overlay *o)
{
	for (uint32_t i = 0; i < o->nholes; ) {
		if (o->holes[i].page + o->holes[i].n != o->next) {
			i++;
			continue;
		}
		if (o->allocated > o->next && memory_give(o, o->next, o->allocated - o->next) == -1)
			return;
		o->next = o->allocated = o->holes[i].page;
		o->holes[i] = o->holes[--o->nholes];
		i = 0;
	}
}

/* One bit per page of our half up to `next`: 0. */
static uint8_t *
bits_make(const struct overlay *o)
{
	return calloc((o->next - o->first) / 8 + 1, 1);
}

static bool
bit_is(const uint8_t *bits, uint32_t n)
{
	return (bits[n / 8] >> n % 8 & 1) != 0;
}

static void
bit_set(uint8_t *bits, uint32_t n)
{
	bits[n / 8] |= (uint8_t)(1 << n % 8);
}

/* What the free pages of these bits become: holes, at first up to `most` pages of them, then the list again. */
static bool
trim_bits(struct overlay *o, const uint8_t *bits, uint32_t most)
{
	uint32_t	kept = 0, given = 0, n;
	bool		more = false;

	/* descending: what is left is then handed out from the low end, and the high end empties */
	for (uint32_t id = o->next; id > o->first; id -= n) {
		if (!bit_is(bits, id - 1 - o->first)) {
			n = 1;
			continue;
		}
		for (n = 1; id - n > o->first && bit_is(bits, id - n - 1 - o->first); n++)
			;
		if (given < most && trim_run(o, id - n, n)) {
			given += n;
			continue;
		}
		more |= given >= most && n >= TRIM_PAGES;
		for (uint32_t i = 1; i <= n; i++)
			o->free[kept++] = id - i;
	}
	o->nfree = kept;
	return more;
}

bool
overlay_trim_some(struct overlay *o, uint32_t most)
{
	uint8_t	*bits;
	bool	 more;

	if (o->nfree == 0 || (bits = bits_make(o)) == NULL)
		return false;
	for (uint32_t i = 0; i < o->nfree; i++)
		bit_set(bits, o->free[i] - o->first);
	more = trim_bits(o, bits, most);
	free(bits);
	trim_end(o);
	return more;
}

void
overlay_trim(struct overlay *o)
{
	(void)overlay_trim_some(o, UINT32_MAX);
}

/* --- a tree that nobody builds on any more --------------------------------------- */

/* The bits of pages in use. */
static uint8_t *
overlay_used(const struct overlay *o)
{
	uint32_t	 n = o->next - o->first, p;
	uint8_t		*bits = bits_make(o);

	if (bits == NULL)
		return NULL;
	memset(bits, 0xff, n / 8 + 1);
#define UNUSED(page) do { p = (page) - o->first; bits[p / 8] &= (uint8_t)~(1 << p % 8); } while (0)
	for (uint32_t i = 0; i < o->nfree; i++)
		UNUSED(o->free[i]);
	for (uint32_t i = 0; i < o->nlimbo; i++)
		UNUSED(o->limbo[(o->limbo_head + i) % o->caplimbo].page);
	for (uint32_t i = 0; i < o->nholes; i++)
		for (uint32_t j = 0; j < o->holes[i].n; j++)
			UNUSED(o->holes[i].page + j);
#undef UNUSED
	return bits;
}

int
overlay_sweep_begin(const struct overlay *o, struct sweep *w, uint32_t base)
{
	*w = (struct sweep){ overlay_used(o), o->first, o->first, o->next, base };
	return w->used == NULL ? -1 : 0;
}

void
overlay_sweep_end(struct sweep *w)
{
	free(w->used);
	*w = (struct sweep){ 0 };
}

bool
overlay_sweep(struct overlay *o, struct sweep *w, uint64_t gen, uint32_t n)
{
	const struct page	*p;

	/* what was trimmed off the end since is free */
	for (; n > 0 && w->at < w->end && w->at < o->next; n--, w->at++) {
		if (!bit_is(w->used, w->at - w->first))
			continue;
		p = (const struct page *)(o->base + (size_t)w->at * PAGE_BYTES);
		/* without memory for the note the page is lost until this process ends */
		if (p->base == w->base)
			(void)overlay_free(o, w->at, gen);
	}
	return w->at < w->end && w->at < o->next;
}

int
overlay_free_base(struct overlay *o, uint32_t base, uint64_t gen)
{
	struct sweep	w;

	if (overlay_sweep_begin(o, &w, base) == -1)
		return -1;
	(void)overlay_sweep(o, &w, gen, UINT32_MAX);
	overlay_sweep_end(&w);
	return 0;
}
