/*
 * shm/region.h - the shared region: what it holds and where.
 *
 * Runs in: master (create, before the fork), every process (its parts).
 * Owns:    one anonymous shared mapping, and the overlay's memfd.
 *
 * Anonymous: nothing is left behind by kill -9, nothing has a name that a
 * session manager could remove (F46, F47).  Offsets, never pointers; fixed
 * widths; a magic and a version first.  Two mappings with different rights:
 *
 *	region   read-write in all: header, lanes, pins, counters, arena
 *	overlay  read-write in the committer, READ-ONLY in the workers: the
 *	         published roots and the tree pages not yet in a checkpoint
 *
 * The overlay is a sparse memfd; the committer allocates what it uses
 * (fallocate) before it writes there, so that memory running out is an error
 * and not a SIGBUS (F21).
 */
#ifndef SHM_REGION_H
#define SHM_REGION_H
#include "shm/arena.h"
#include "shm/bell.h"
#include "shm/count.h"
#include "shm/lane.h"
#include "shm/pin.h"

#define REGION_MAGIC	0x5446484cu	/* "LHFT" */
#define REGION_VERSION	1u
#define REGION_LANES	64u		/* workers at most */

#define REGION_STUCK_SHIFT 56u		/* generations stay below: one a microsecond for 2,000 years */

enum store_state {		/* region_head.state */
	STORE_RECOVERING = 0,	/* no committer has published in this region yet, or one is starting */
	STORE_READY,		/* reads and writes */
	STORE_FULL,		/* no room: writes 507 */
	STORE_SYNC_FAILED,	/* a write or sync failed: read-only until a restart */
	STORE_DAMAGED,		/* damage in the log: read-only until repair */
};

struct region_head {
	_Alignas(64) uint32_t magic;	/* W: master, before the fork; all of this line */
	uint32_t	 version;
	uint64_t	 id;		/* random: names this region in the log (exactly once) */
	uint64_t	 bytes;		/* of the whole region */
	uint32_t	 nlanes;
	uint32_t	 ngranules;
	uint64_t	 lanes_off, pins_off, counts_off, arena_lanes_off, owners_off, granules_off;

	_Alignas(64) _Atomic(uint32_t) state;		/* W: committer, master when that is dead  R: any; enum store_state */
	_Atomic(uint32_t)	 committer_crashes;	/* W: master: SIGSEGV, SIGABRT, SIGBUS, SIGILL, SIGFPE only */
	_Atomic(uint64_t)	 published;		/* W: committer: starts that got as far as publishing */
	_Atomic(uint64_t)	 mapped_floor;		/* W: committer: epoch of segment removals; workers drop mappings when it moves */
	struct bell		 committer_bell;
	_Alignas(64) char	 reason[192];		/* W: committer before state: why not READY, one line, NUL-terminated */
	_Alignas(64) _Atomic(uint64_t) bad_page;	/* W: workers (checkpoint number << 32 | page), committer (0): a page
							   that a worker found damaged; the committer looks for itself */
	_Atomic(uint64_t) stuck;			/* W: committer (lane + 1 << REGION_STUCK_SHIFT | the generation it has
							   pinned), master (0), who looks at the pin for itself */
};

struct region {			/* private to each process: pointers into the mapping */
	struct region_head	*head;
	struct lane		*lanes;		/* [nlanes] */
	struct pin		*pins;		/* [nlanes + 1]: the last is the committer's own (checkpoint) */
	struct count_block	*counts;	/* [nlanes + 1]: the last is the committer's */
	struct arena		 arena;
	unsigned		 nlanes;
	int			 overlay_fd;	/* memfd of OVERLAY_BYTES, sparse; workers close it after mapping */
};

/* Both halves (store/overlay.h); address space, not memory. */
#ifndef OVERLAY_BYTES
#define OVERLAY_BYTES	((uint64_t)8 << 30)
#endif

/*
 * Master: creates region and overlay for nlanes workers and an input budget
 * of `budget` bytes.  0; -1 with errno (EINVAL: nlanes or budget out of range;
 * ENOMEM).  All memory is zero.  Pages are touched when used.
 */
int	region_create(struct region *, unsigned nlanes, uint64_t budget);
void	region_destroy(struct region *);
/* Sum over all worker blocks. */
uint64_t region_count(const struct region *, enum count_worker);

#endif
