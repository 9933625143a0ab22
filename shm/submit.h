/*
 * shm/submit.h - a write, as the worker builds it in the arena.
 *
 * Runs in: worker (build), committer (view; patches only its head room).
 * Owns:    the granules of one write until the worker frees them.
 *
 * A submission is a chain of extents (runs of granules), each with a small
 * header.  The first extent holds
 *	struct extent | struct submit | tags | head room | path, meta, body ...
 * and the payload goes on in the next extents.  Path and meta lie in front of
 * the body without a gap, and behind a body of more than one chunk stands the
 * table of its chunks' checksums (u32 little-endian each, 4-aligned), so that
 * the payload is, byte for byte, what the log stores: one copy in from the
 * socket, none in between, pwritev(2) out.  The committer fills its record
 * header into the head room.
 *
 * A body is checksummed while it comes in, in chunks of SUBMIT_CHUNK bytes:
 * one chunk: body_crc is its CRC-32C.  More: body_crc is the CRC-32C of the table.
 * None (empty body): 0.
 *
 * Everything the committer reads from here is checked (submit_view): a worker
 * gone mad can lose its own writes, not the committer.
 */
#ifndef SHM_SUBMIT_H
#define SHM_SUBMIT_H
#include <sys/uio.h>
#include "shm/arena.h"

#define SUBMIT_HEADROOM		48u		/* the log's record header (store/format.h asserts it) */
#define SUBMIT_CHUNK		65536u		/* bytes of body under one checksum */
#define SUBMIT_TAGS_MAX		64u		/* of one condition list */
#define SUBMIT_PATH_MAX		1024u
#define SUBMIT_META_MAX		4096u

/* The identity of one version of one document: what an ETag spells. */
struct tag {
	uint64_t	seq;	/* 0: no version */
	uint32_t	run;	/* random per opening of the store: a restored backup never repeats a tag */
	uint32_t	pad;
};

enum submit_op {
	OP_PUT = 1,		/* path, meta, body; conditions */
	OP_DELETE,		/* path; conditions */
	OP_TENANT_PUT,		/* path: the tenant's name; body: settings (store/read.h struct tenant_settings) */
	OP_TENANT_DROP,		/* path: the tenant's name */
};

enum submit_cond {		/* bits of submit.cond */
	COND_MATCH_ANY	    = 1 << 0,	/* If-Match: * */
	COND_MATCH	    = 1 << 1,	/* If-Match: the first n_match tags (0: matches nothing) */
	COND_NONE_MATCH_ANY = 1 << 2,	/* If-None-Match: * */
	COND_NONE_MATCH	    = 1 << 3,	/* If-None-Match: the next n_none tags */
	COND_UNMODIFIED	    = 1 << 4,	/* If-Unmodified-Since: unmodified_s */
};

struct extent {			/* at the start of each run */
	uint32_t	next;		/* offset of the next extent, ARENA_NONE: last */
	uint16_t	granules;	/* of this run */
	uint16_t	pad;
	uint32_t	used;		/* bytes of this run in use, this header included */
	uint32_t	pad2;
};
_Static_assert(sizeof(struct extent) == 16, "the layout is a protocol");

struct submit {			/* right behind the first extent's header */
	uint32_t	magic;		/* SUBMIT_MAGIC */
	uint8_t		op;		/* enum submit_op */
	uint8_t		cond;		/* enum submit_cond bits */
	uint16_t	path_len;
	uint16_t	meta_len;
	uint16_t	n_match;
	uint16_t	n_none;
	uint16_t	pad;
	uint32_t	tenant;		/* id; 0 for the OP_TENANT_* */
	uint64_t	number;		/* of the lane slot, as a check */
	uint64_t	body_len;
	uint32_t	body_crc;
	uint32_t	table_len;	/* bytes of padding and table behind the body */
	int64_t		unmodified_s;	/* seconds since 1970 */
	uint64_t	reserved;	/* bytes of budget this submission holds: those of its granules (arena_release on free) */
	struct tag	tags[];		/* n_match, then n_none */
};
#define SUBMIT_MAGIC 0x48465342u

/* --- worker: building --------------------------------------------------- */

struct submit_build {		/* private to the worker, part of a connection */
	uint32_t	 first;		/* offset of the first extent */
	uint32_t	 last;		/* extent being filled */
	uint32_t	 tenant;
	uint64_t	 reserved;	/* bytes reserved in the budget */
	uint32_t	 granules;	/* taken so far; never more than reserved */
	uint64_t	 body_len;	/* received so far */
	uint32_t	 chunk_crc;	/* of the chunk coming in */
	uint32_t	 ntable;
	uint32_t	 captable;
	uint32_t	*table;		/* chunk checksums; malloc'd from the second chunk on */
};

/* What submit_begin() needs to know; pointers are borrowed for the call only. */
struct submit_args {
	enum submit_op	 op;
	uint8_t		 cond;
	uint32_t	 tenant;
	const void	*path;
	uint16_t	 path_len;	/* at most SUBMIT_PATH_MAX */
	const void	*meta;
	uint16_t	 meta_len;	/* at most SUBMIT_META_MAX */
	const struct tag *match;
	uint16_t	 n_match;
	const struct tag *none;
	uint16_t	 n_none;
	int64_t		 unmodified_s;
};

/* What submit_begin() reserves for a body of that length behind `head` bytes of tags, path and meta. */
uint64_t submit_cost(uint64_t body_len, size_t head);

/*
 * Reserves budget for a body of `body_hint` bytes (the announced length; for a
 * chunked body 0, it grows) and for everything else, takes the first extent and
 * lays down all but the body.  0; -1 with ENOSPC: over the budget (503).
 */
int	submit_begin(struct arena *, unsigned lane, struct submit_build *,
	    const struct submit_args *, uint64_t body_hint);
/*
 * Where the next body bytes go: *len is at least 1.  0; -1 ENOSPC (a chunked
 * body that outgrew the budget).
 */
int	submit_space(struct arena *, unsigned lane, struct submit_build *, void **p, size_t *len);
/* n bytes were written there: checksums them. */
int	submit_filled(struct arena *, struct submit_build *, size_t n);
/* Convenience of the two above for bytes already in memory.  0; -1 ENOSPC. */
int	submit_append(struct arena *, unsigned lane, struct submit_build *, const void *, size_t n);
/* The body is complete: lays down the table; the offset to hand to lane_submit().  ARENA_NONE: ENOSPC. */
uint32_t submit_finish(struct arena *, unsigned lane, struct submit_build *);
/* Gives up a build, finished or not (but not submitted). */
void	submit_abort(struct arena *, unsigned lane, struct submit_build *);
/* Frees a collected submission: granules and budget. */
void	submit_free(struct arena *, unsigned lane, uint32_t off);
/* A new worker, after arena_reclaim() kept a predecessor's submission: counts it under its tenant.  -1: broken chain. */
int	submit_adopt(struct arena *, unsigned lane, uint32_t off);
/* Calls fn for each run of a submission: arena_reclaim()'s keep list is made with it.  -1: broken chain. */
int	submit_runs(const struct arena *, uint32_t off, void (*fn)(void *, uint32_t off, unsigned n), void *);
/* Sets the number of the slot into the submission (the worker, before SUBMITTED becomes visible). */
void	submit_number(const struct arena *, uint32_t off, uint64_t number);

/* --- committer: viewing -------------------------------------------------- */

struct submit_view {
	struct submit		*s;		/* in the arena: copy what you decide on, once */
	uint8_t			*head;		/* SUBMIT_HEADROOM bytes to fill, 8-aligned */
	const uint8_t		*path;		/* path_len bytes, contiguous */
	const struct tag	*match, *none;
	uint64_t		 payload_len;	/* path + meta + body + table */
};
/* Checks the whole chain.  0; -1 where it does not hold together (EINVAL). */
int	submit_view(const struct arena *, uint32_t off, struct submit_view *);
/*
 * Fills iov with head room and payload, in order, at most max entries.
 * Returns how many; -1 with E2BIG where more than max are needed (iov holds
 * the first max, *resume says where to go on; start with *resume = 0).
 */
int	submit_iov(const struct arena *, uint32_t off, struct iovec *iov, int max, uint32_t *resume);
/* Copies n bytes of the payload from position pos.  -1: outside. */
int	submit_copy(const struct arena *, uint32_t off, uint64_t pos, void *out, size_t n);

#endif
