/*
 * store/rewrite.h - records, one after another, into a log of their own.
 *
 * Runs in: tools (repair).
 *
 * Batches, segments and their lists are as the committer would make them; every
 * record is marked as moved.  Nothing is decided here, and nobody reads it yet.
 */
#ifndef STORE_REWRITE_H
#define STORE_REWRITE_H
#include "store/log.h"

struct rewrite {
	struct log	 log;
	uint8_t		*buf;		/* the batch */
	uint64_t	 used, cap;
	uint64_t	 max_seq, time_ms;	/* given out so far: the commit records say so */
	uint32_t	 run;		/* of records that are new */
};

/*
 * Begins in an empty directory: `first` as for log_create_from().  0; -1 errno.
 * rewrite_close() is due in either case.
 */
int	rewrite_open(struct rewrite *, int dirfd, uint64_t segment_size, const struct segment_head *first);
/* Adds a copy of a record with an intact body.  0; -1 errno, for good. */
int	rewrite_add(struct rewrite *, const struct rec_head *);
/* The same for a record that is made here: all but checksums is in `h`; body up to SUBMIT_CHUNK bytes. */
int	rewrite_make(struct rewrite *, const struct rec_head *h, const void *path, const void *body);
/* All that was added is on the disk. */
int	rewrite_end(struct rewrite *);
void	rewrite_close(struct rewrite *);

#endif
