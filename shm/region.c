/*
 * shm/region.c - see shm/region.h.
 *
 * Runs in: master (create, destroy), any process (count).
 */
#include "config.h"
#include <sys/mman.h>
#include <sys/random.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>
#include "shm/fd.h"
#include "shm/proc.h"
#include "shm/region.h"
#include "shm/submit.h"

#define BUDGET_MIN	((uint64_t)64 << 10)
#define BUDGET_MAX	((uint64_t)3 << 30)	/* offsets are 32 bit */
#define HEAD_MAX	(2 * SUBMIT_TAGS_MAX * sizeof(struct tag) + SUBMIT_PATH_MAX + SUBMIT_META_MAX)

_Static_assert(ATOMIC_CHAR_LOCK_FREE == 2 && ATOMIC_INT_LOCK_FREE == 2 && ATOMIC_LONG_LOCK_FREE == 2 &&
    ATOMIC_LLONG_LOCK_FREE == 2, "a locked atomic would not span processes");
_Static_assert(sizeof(struct region_head) % 64 == 0, "parts start on cache lines");
_Static_assert(ARENA_NONE == 0, "offset 0 is the header's");

/* Room for `bytes` at the next multiple of `align`; its offset. */
static uint64_t
part(uint64_t *end, uint64_t bytes, uint64_t align)
{
	uint64_t	off = (*end + align - 1) / align * align;

	*end = off + bytes;
	return off;
}

/*
 * The budget counts bytes of documents.  Each half must hold a document of
 * half the budget with all that goes around it, or the largest document that
 * the configuration allows could never be taken in.
 */
static uint32_t
granules_of(uint64_t budget)
{
	return (uint32_t)(2 * (submit_cost((budget + 1) / 2, HEAD_MAX) / ARENA_GRANULE));
}

static void
lay_out(struct region_head *h, unsigned nlanes, uint64_t budget)
{
	uint64_t	end = sizeof(struct region_head);

	h->version = REGION_VERSION;
	h->nlanes = nlanes;
	h->ngranules = granules_of(budget);
	h->lanes_off = part(&end, nlanes * sizeof(struct lane), 64);
	h->pins_off = part(&end, (nlanes + 1) * sizeof(struct pin), 64);
	h->counts_off = part(&end, (nlanes + 1) * sizeof(struct count_block), 64);
	h->arena_lanes_off = part(&end, nlanes * sizeof(struct arena_lane), 64);
	h->owners_off = part(&end, h->ngranules, 64);
	h->granules_off = part(&end, (uint64_t)h->ngranules * ARENA_GRANULE, ARENA_GRANULE);
	h->bytes = end;
}

static void
set_pointers(struct region *r, void *base)
{
	struct region_head	*h = base;
	uint8_t			*b = base;

	r->head = h;
	r->nlanes = h->nlanes;
	r->lanes = (void *)(b + h->lanes_off);
	r->pins = (void *)(b + h->pins_off);
	r->counts = (void *)(b + h->counts_off);
	r->arena = (struct arena){
		.base = b,
		.first = h->granules_off,
		.ngranules = h->ngranules,
		.owner = (void *)(b + h->owners_off),
		.lanes = (void *)(b + h->arena_lanes_off),
		.nlanes = h->nlanes,
	};
}

/* Its size is sealed: nobody's mapping can be cut off under it. */
static int
overlay_create(void)
{
	int	fd;

	if ((fd = memfd_create("holdfast-overlay", MFD_CLOEXEC | MFD_ALLOW_SEALING)) == -1)
		return -1;
	if (ftruncate(fd, (off_t)OVERLAY_BYTES) == -1 ||
	    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == -1) {
		fd_close(fd);
		return -1;
	}
	return fd;
}

/* 0 names no region. */
static int
random_id(uint64_t *id)
{
	do {
		if (getrandom(id, sizeof(*id), 0) != sizeof(*id))
			return -1;
	} while (*id == 0);
	return 0;
}

int
region_create(struct region *r, unsigned nlanes, uint64_t budget)
{
	struct region_head	 head = { 0 };
	void			*base = MAP_FAILED;
	int			 fd = -1, saved;

	RUNS_IN(IN_MASTER | IN_TEST);
	memset(r, 0, sizeof(*r));
	r->overlay_fd = -1;
	if (nlanes < 1 || nlanes > REGION_LANES || budget < BUDGET_MIN || budget > BUDGET_MAX) {
		errno = EINVAL;
		return -1;
	}
	lay_out(&head, nlanes, budget);
	base = mmap(NULL, head.bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (base == MAP_FAILED || (fd = overlay_create()) == -1 || random_id(&head.id) == -1)
		goto fail;
	memcpy(base, &head, sizeof(head));
	((struct region_head *)base)->magic = REGION_MAGIC;
	set_pointers(r, base);
	r->overlay_fd = fd;
	return 0;
fail:
	saved = errno;
	if (fd != -1)
		close(fd);
	if (base != MAP_FAILED)
		munmap(base, head.bytes);
	errno = saved;
	return -1;
}

void
region_destroy(struct region *r)
{
	if (r->head != NULL)
		munmap(r->head, r->head->bytes);
	if (r->overlay_fd != -1)
		close(r->overlay_fd);
	memset(r, 0, sizeof(*r));
	r->overlay_fd = -1;
}

uint64_t
region_count(const struct region *r, enum count_worker i)
{
	uint64_t	sum = 0;
	unsigned	lane;

	for (lane = 0; lane < r->nlanes; lane++)
		sum += count_get(&r->counts[lane], i);
	return sum;
}
