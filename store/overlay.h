/*
 * store/overlay.h - tree pages in shared memory: allocation and reuse.
 *
 * Runs in: committer (all).  Workers map the same memfd read-only.
 * Owns:    one half of the overlay memfd, and the roots page.
 *
 * The memfd has two halves.  A committer builds in the half that the published
 * root does not use, so that readers of a dead committer's tree are not
 * disturbed; once its own first root is published and no pin looks at an older
 * generation, the other half's memory is given back (hole punched).
 *
 * Page 0 of the memfd (of the first half) is struct roots, shared by all.
 *
 * A page freed while generation g is being built was reachable up to g - 1; it
 * is reused when no pin is older than g and g is published.  Memory is
 * allocated (fallocate) in steps before it is written: out of memory is
 * ENOSPC here and a 507 outside, not a SIGBUS.
 */
#ifndef STORE_OVERLAY_H
#define STORE_OVERLAY_H
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include "shm/region.h"
#include "store/format.h"

#define OVERLAY_PAGES	(OVERLAY_BYTES / PAGE_BYTES)

/* What a published generation is.  Copied by the reader; see root_read(). */
struct root {
	uint64_t	gen;
	uint64_t	max_seq;	/* highest seq that is durable */
	uint64_t	time_ms;	/* newest time made durable: floor for Date */
	uint64_t	catalog_seq;	/* seq of the newest change to tenant 0: caches of tenants compare it */
	uint64_t	segments_epoch;	/* grows when a segment was created or removed */
	uint32_t	page;		/* of the tree */
	uint32_t	checkpoint;	/* number of the checkpoint file its PAGE_CHECKPOINT ids mean; 0: none */
	uint32_t	first_segment;	/* lowest live segment number */
	uint32_t	last_segment;	/* the one being written */
};
_Static_assert(sizeof(struct root) == 56, "the layout is a protocol");

#define ROOTS	32u		/* a reader has this many publications to copy one */
struct roots {			/* page 0 of the overlay */
	_Alignas(64) _Atomic(uint64_t)	newest;	/* W: committer  R: workers; generation, 0: none */
	uint64_t			store_id;
	_Alignas(64) struct root	ring[ROOTS];	/* [gen % ROOTS] */
};
_Static_assert(sizeof(struct roots) <= PAGE_BYTES, "page 0");

/* Committer: writes ring[gen % ROOTS], then newest (release).  gen must be newest + 1. */
void	root_publish(struct roots *, const struct root *);
/*
 * Copies the root of a generation just pinned (pin_take).  false where it was
 * overwritten meanwhile (a reader stopped for 32 publications): pin again.
 */
bool	root_read(const struct roots *, uint64_t gen, struct root *);

struct overlay {		/* private to the committer */
	uint8_t		*base;		/* whole memfd mapped, OVERLAY_BYTES */
	int		 fd;
	uint32_t	 first, end;	/* page ids of our half: first .. end - 1 */
	uint32_t	 next;		/* never used so far */
	uint32_t	 allocated;	/* page id up to which memory is allocated */
	uint32_t	*free;		/* stack of reusable pages */
	uint32_t	 nfree, capfree;
	struct limbo { uint32_t page; uint64_t gen; } *limbo;	/* ring in order of gen */
	uint32_t	 limbo_head, nlimbo, caplimbo;
	struct run { uint32_t page, n; } *holes;	/* free pages whose memory was given back */
	uint32_t	 nholes, capholes;
	uint32_t	 in_use;	/* pages neither free nor in limbo */
	uint64_t	 first_gen;	/* the first generation we can publish */
	bool		 other_half;	/* still to be given back */
};

/*
 * Maps fd (which stays the caller's) and chooses the half: the one that
 * roots.newest's root does not live in.  What was there is dropped, so no pin
 * may be older than roots.newest: the caller waits for that (a generation before it may
 * be the half's).  For tests fd may be any memfd of OVERLAY_BYTES.  0 or -1.
 */
int		 overlay_open(struct overlay *, int fd);
void		 overlay_close(struct overlay *);
/* Nothing of what was allocated here has been published, and nobody refers to it any more: all is given back. */
void		 overlay_forget(struct overlay *);
struct roots	*overlay_roots(struct overlay *);
/* Makes sure that the next n allocations succeed.  0; -1 with errno ENOSPC. */
int		 overlay_reserve(struct overlay *, unsigned n);
/* A page for the writer, who fills it: it holds anything.  PAGE_NONE with errno ENOSPC. */
uint32_t	 overlay_alloc(struct overlay *);
/* A published page that generation `gen` (being built) no longer reaches.  0; -1: ENOMEM, the page is lost. */
int		 overlay_free(struct overlay *, uint32_t page, uint64_t gen);
/* A page that no published root ever reached: reusable at once.  As above. */
int		 overlay_free_now(struct overlay *, uint32_t page);
/* Moves pages out of limbo: `oldest` is pin_oldest(), `published` the newest published generation. */
void		 overlay_reclaim(struct overlay *, uint64_t oldest, uint64_t published);
/* Gives memory of long runs of free pages back to the system; after a checkpoint. */
void		 overlay_trim(struct overlay *);
/* The same in steps of about n pages.  true: there is more. */
bool		 overlay_trim_some(struct overlay *, uint32_t n);
/* Frees into limbo all pages in use whose header says they stand on checkpoint `base`. */
int		 overlay_free_base(struct overlay *, uint32_t base, uint64_t gen);

/*
 * The same in steps: no page of `base` may be allocated or freed between them
 * by anybody else, that is, no tree that stands on it is changed any more.
 */
struct sweep {
	uint8_t		*used;		/* a bit per page from first on; NULL: none under way */
	uint32_t	 first, at, end;
	uint32_t	 base;
};
/* 0; -1: ENOMEM. */
int		 overlay_sweep_begin(const struct overlay *, struct sweep *, uint32_t base);
/* Looks at n pages; what it finds was reachable up to gen - 1.  true: there is more. */
bool		 overlay_sweep(struct overlay *, struct sweep *, uint64_t gen, uint32_t n);
void		 overlay_sweep_end(struct sweep *);

#endif
