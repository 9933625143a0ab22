/*
 * store/checkpoint.h - the immutable tree file.
 *
 * Runs in: committer (write, in its checkpoint thread; open), worker (map),
 *          tools (verify).
 * Owns:    DIR/tree-N.
 *
 * Written sequentially from a pinned generation: full leaves, each interior
 * page behind its children, the segment table, page 0 last; then fsync,
 * rename from .tmp, fsync of the directory.  Only then may what it replaces go.
 */
#ifndef STORE_CHECKPOINT_H
#define STORE_CHECKPOINT_H
#include "store/format.h"
#include "store/tree.h"

struct checkpoint {		/* an opened one */
	struct checkpoint_head	 head;
	uint8_t			*map;		/* whole file, PROT_READ */
	size_t			 maplen;
	uint8_t			*checked;	/* bitmap for struct tree */
	struct checkpoint_segment *segments;	/* head.nsegments, malloc'd copy, checked; NULL in map mode */
};

/*
 * Opens DIR/tree-number, checks head (and segment table if want_table).
 * 0; -1: ENOENT, EILSEQ (damaged or another number inside), other errno.
 */
int	checkpoint_open(struct checkpoint *, int dirfd, uint32_t number, bool want_table);
void	checkpoint_close(struct checkpoint *);

/*
 * Writes tree `t` (immutable while this runs) as checkpoint head->number.
 * The caller fills head's identity and log position; root, npages, bytes, agg
 * and checksums are filled in.  Stops with ECANCELED soon after *cancel
 * becomes nonzero.  pace (may be NULL) is called with the bytes written every
 * 256 KiB: the thread's throttle.  0: durable, renamed.  -1: errno; no file is
 * left but possibly a .tmp.  ESTALE: it was the directory that could not be synced.
 */
int	checkpoint_write(const struct tree *t, int dirfd, struct checkpoint_head *head,
	    const struct checkpoint_segment *segments, const volatile int *cancel,
	    void (*pace)(void *, size_t), void *arg);
/*
 * The same into the file `spare` (store/reserve.h), which is renamed for it: for a
 * disk without room.  NULL: a new one.  Where even that does not do it is renamed back.
 */
int	checkpoint_write_into(const struct tree *t, int dirfd, struct checkpoint_head *head,
	    const struct checkpoint_segment *segments, const volatile int *cancel,
	    void (*pace)(void *, size_t), void *arg, const char *spare);
/* Highest number for which a tree-N file exists below `below` (0: any); 0: none. */
uint32_t checkpoint_newest(int dirfd, uint32_t below);
/* Unlinks all tree files but `keep`, and left-over .tmp; fsyncs the directory.  0 or -1. */
int	checkpoint_tidy(int dirfd, uint32_t keep);
/* Unlinks left-over .tmp only; no sync. */
void	checkpoint_tidy_tmp(int dirfd);

#endif
