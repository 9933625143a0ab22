/*
 * store/log.h - the log: segments, batches, and reading them back.
 *
 * Runs in: committer (write, recover), tools (read).  Never in a worker.
 * Owns:    DIR/log-N, all writes and syncs of them.
 *
 * All disk writes of the store go through log_write() and log_sync(), or
 * through checkpoint_write(); an error of either is final for this process
 * (F1-F4): nothing is retried, short writes alone are continued.
 *
 * L1  At most one batch is written and not yet synced.
 * L2  A batch lies in one segment; behind the last batch everything is zero.
 * L3  A batch's commit record names the batch before it (chain).
 */
#ifndef STORE_LOG_H
#define STORE_LOG_H
#include <sys/uio.h>
#include <errno.h>
#include <stdbool.h>
#include "store/format.h"

struct log_pos {		/* between two batches */
	uint32_t	segment;	/* 0: nothing yet */
	uint32_t	chain;		/* batch_crc of the batch that ends here */
	uint64_t	offset;
	uint64_t	batch;		/* its number */
};

struct segment {		/* one live segment file */
	uint32_t	number;
	uint64_t	bytes;		/* usable size: the head's, or the file's where that is shorter */
	uint64_t	end;		/* behind its last batch */
	uint64_t	live;		/* bytes of records something refers to: kept by store.c */
	uint64_t	first_seq;
	const uint8_t	*map;		/* PROT_READ mapping of `maplen` bytes, made on first use; NULL */
	uint64_t	maplen;
	uint64_t	data;		/* when opened or created, of the newest: behind this it is all unwritten; else 0 */
	uint8_t		stays;		/* damaged: compaction leaves it alone (store.c) */
	uint8_t		told;		/* it could not be unlinked (compact.c), ... */
	uint64_t	unlink_at;	/* ... and is tried again then: monotonic us */
	uint8_t		dropped;	/* its REC_DROP_SEGMENT is in the batch of ... */
	uint64_t	dropped_gen;	/* ... this generation */
};

struct log_identity {		/* which store it is */
	uint64_t	store_id;	/* 0: not known, where only batches tell */
	uint64_t	mark;
};

struct log {
	int		 dirfd;		/* borrowed */
	bool		 look;		/* opened to be looked at: nothing is removed or written */
	int		 fd;		/* the newest segment, for writing; -1: not opened yet.  Not in seg[]:
					   that may move while the sync thread uses this */
	_Atomic(int)	 failed;	/* errno of the write or sync that failed: nothing is written after it */
	char		 what[48];	/* ... and which that was; W: before failed */
	uint64_t	 store_id, mark;
	uint64_t	 segment_size;
	struct segment	*seg;		/* sorted by number; the last is being written */
	unsigned	 nseg, capseg;
	struct log_pos	 pos;		/* end of the last written batch */
	uint32_t	 ahead_segment;	/* blocks of this one ... */
	uint64_t	 ahead;		/* ... are written up to here, as far as is known: log_ahead() */
};

/*
 * Creates the first segment of a new store: store_id and mark drawn.  The
 * directory is synced.  0; -1: EEXIST where segments are there, other errno.
 */
int	log_create(struct log *, int dirfd, uint64_t segment_size);
/*
 * Opens an existing one: lists segments, checks their heads (store_id and mark
 * are those of most valid heads, the newest where they are as many), removes
 * what a segment's creation left behind.  A broken head is told by log_scan().
 * The newest segment is written out, then dropped from the kernel's cache: what
 * is read is what the disk has, also after a sync that failed.
 * 0; -1: ENOENT (no segment: a fresh store, log_create() it), EILSEQ (no valid head), other errno.
 */
int	log_open(struct log *, int dirfd, uint64_t segment_size);
/*
 * The same.  Where no head is whole it is the store `known` (NULL: nobody knows),
 * else the one whose commit records stand behind the first records of a segment.
 * look: changes nothing in the directory.
 */
int	log_open_as(struct log *, int dirfd, uint64_t segment_size, const struct log_identity *known, bool look);
/*
 * Begins a log anew, in an empty directory, with the segment that `first` says
 * (all but magic, version, head_crc, bytes; a store_id or mark of 0 is drawn): repair.
 */
int	log_create_from(struct log *, int dirfd, uint64_t segment_size, const struct segment_head *first);
void	log_close(struct log *);

struct segment *log_segment(const struct log *, uint32_t number);	/* NULL: not live */
/* Record at a place, checked against the segment's bounds and its head_crc; NULL with errno EILSEQ, ENOENT. */
const struct rec_head *log_record(struct log *, uint32_t segment, uint32_t offset);

/*
 * The record at or behind a place in one segment whose batches are whole
 * (recovered or written by us): commit records are stepped over.  1: *rec, and
 * *offset is where it stands (go on at *offset + rec_bytes()); 0: end of the
 * segment's batches; -1: EILSEQ, damaged.  (walk.c)
 */
int	log_next(struct log *, uint32_t segment, uint32_t *offset, const struct rec_head **rec);

/* --- writing ---------------------------------------------------------------- */

/*
 * Makes sure the newest segment has room for `bytes` more (records and commit
 * record): else creates the next (preallocated, head written, file and
 * directory synced; larger than segment_size where one batch needs it) and
 * closes the old one.  Never while a batch is written and not synced: the new
 * head says where the old segment ends.  next_seq for its head.
 * 0; -1: no room, of whatever kind (log_is_room_error(): nothing changed); other: fatal for writes.
 * *rolled tells that a new segment was begun.
 */
int	log_room(struct log *, uint64_t bytes, uint64_t next_seq, bool *rolled);
/*
 * The same where the disk has none: the next segment is the file `spare`, whose
 * `size` bytes are allocated.  -1: ENOSPC where that is less than `bytes`.
 */
int	log_room_spare(struct log *, const char *spare, uint64_t size, uint64_t bytes, uint64_t next_seq);
static inline bool
log_is_room_error(int error)
{
	return error == ENOSPC || error == EDQUOT || error == EFBIG || error == ENOMEM ||
	    error == EMFILE || error == ENFILE;
}
/* Room left in the newest segment, for records and commit record. */
uint64_t log_left(const struct log *);
/*
 * Appends at pos (no sync): writes iov wholly, continuing short writes.
 * `off` is relative to pos.offset: a batch may be written in several calls.
 */
int	log_write(struct log *, uint64_t off, struct iovec *iov, int n);
/*
 * Behind a batch of `bytes` at pos that was written: zeros, where none are yet.
 * Segments are allocated, but a file system with unwritten extents (ext4, xfs)
 * notes the first write to a block in its journal, and the sync has to write and
 * flush that as well (store/README.md has what it costs).  Zeros written ahead,
 * LOG_AHEAD bytes at a time, make it one sync in many.  0, also where there is no room; -1 as log_write().
 */
#define LOG_AHEAD	65536u
int	log_ahead(struct log *, uint64_t bytes);
/*
 * One fdatasync of the newest segment; safe from the sync thread while nothing is written (L1).
 * ENOENT: the file has no name any more: what is in it will be nowhere.
 */
int	log_sync(struct log *);
/* 0; -1: ENOENT, as log_sync() says it. */
int	log_still_there(struct log *);
/* The batch of `bytes` in front of its commit record has been written: pos moves behind it. */
void	log_advance(struct log *, uint64_t bytes, uint32_t batch_crc);
/*
 * Takes a segment out of the list and unlinks it; the caller has made the
 * REC_DROP_SEGMENT durable.  Not the newest (EINVAL); ENOENT: not live.
 */
int	log_unlink(struct log *, uint32_t number);

/* --- reading back ------------------------------------------------------------ */

enum scan_end {
	SCAN_END,		/* zeros: a clean end */
	SCAN_TORN,		/* an incomplete last batch, nothing intact behind it */
	SCAN_DAMAGED,		/* broken bytes with intact batches behind them */
	SCAN_ERROR,		/* errno */
};
struct scan_batch {
	const struct commit_rec	*commit;
	uint32_t		 segment;
	uint32_t		 first;		/* offset of its first record */
};
struct scan_callbacks {
	/* Each whole batch, in order, before its records. */
	int	(*batch)(void *, const struct scan_batch *);
	/* Each record.  Nonzero stops the scan with SCAN_ERROR. */
	int	(*record)(void *, const struct scan_batch *, const struct rec_head *, uint32_t segment, uint32_t offset);
	/* A piece that could not be read: told before going on behind it.  from == to == 0: the whole segment is missing. */
	void	(*damage)(void *, uint32_t segment, uint64_t from, uint64_t to, const char *what);
};
/*
 * Reads batches from `from` (segment 0: from the very first live segment) to
 * the end.  Heads are checked, and the batch checksums.  Bodies are checked in
 * the last batch only, and only where zeros follow it: any other was synced
 * before its successor or the next segment was begun (L1), so that a broken
 * body there is one damaged document, found when it is read, and cutting its
 * batch would lose others that were acknowledged.  A broken body in a last
 * batch that nothing follows makes that batch torn: none of it is told.
 *
 * A segment that is missing is damage, unless the newest list of segments in
 * the log says that it was dropped.  So is a file that is shorter than its head
 * says, and a segment that ends before the place that its successor's head
 * names.  After damage the scan goes on at the next intact batch (found by
 * the mark, later number) so that nothing behind is lost.
 *
 * *end gets the position behind the last good batch, and segments get their
 * `end`.  Callbacks may be NULL.  They may use log_record() and the like, but
 * not what changes the list of segments.
 * The caller then makes it the place to append: log_cut(), for SCAN_END too.
 */
enum scan_end log_scan(struct log *, const struct log_pos *from, const struct scan_callbacks *, void *arg, struct log_pos *end);
/*
 * Makes `end` the place to append, after a scan: zeroes what stands behind it in that
 * segment (torn tail), gives a file that was cut short its size again, syncs.
 * Segments behind it, which hold no batch, are unlinked; the directory is synced
 * in any case, as what is there may be a predecessor's that did not come to it.
 * 0; -1: EINVAL: a later segment does hold batches; EILSEQ: the head of that segment
 * is broken, so it cannot be appended to; other errno: fatal for writes.
 */
int	log_cut(struct log *, const struct log_pos *end);

/* True where all chunks of the record's body match their checksums. */
bool	rec_body_ok(const struct rec_head *);
/* Gives a record of our own, rec_bytes() of zeroed memory with head and body in it, its body's checksums. */
void	rec_body_sum(struct rec_head *);

#endif
