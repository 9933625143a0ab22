/*
 * store/salvage.h - what can still be told of a damaged stretch of the log.
 *
 * Runs in: committer (recovery), tools.
 *
 * Where log_scan() gives a batch up, single records of it are whole, and count:
 * an intact batch behind them shows that they were synced (L1), and so that
 * somebody was told that they are safe.  A broken one counts too, as a loss:
 * the document it belongs to must not come back as what it was before.
 *
 * Bodies are the clients' bytes and may hold what looks like records.  So
 * nothing is searched for: a walk begins where a batch is known to begin
 * (where the last good one ends, or beside a commit record: the mark is told to no
 * client), and goes from one record to the next by their lengths.
 *
 * One changed byte in a record's head, path or meta is seen through: which byte
 * it was follows from the checksum.  What comes of that is used to know whose
 * record it was and where the next one begins, never to serve it.
 */
#ifndef STORE_SALVAGE_H
#define STORE_SALVAGE_H
#include "store/log.h"

/* Each returns 0 to go on, else salvage() stops with -1. */
struct salvage_callbacks {
	/* A record whose head is whole; its body may be broken. */
	int	(*record)(void *, const struct rec_head *, uint32_t segment, uint32_t offset);
	/*
	 * A broken piece.  said: a copy of the whole record with the changed byte put
	 * right, borrowed for the call; NULL: nobody can tell what it was, or how many
	 * (commit: a broken commit record, which takes nothing with it).
	 */
	int	(*broken)(void *, const struct rec_head *said, bool commit, uint32_t segment, uint64_t from, uint64_t to);
};

/*
 * Goes through from .. to of a segment, as log_scan() told them to its damage callback.
 * What is not in the file, or no record's place (a head), is passed over in silence.
 */
int	salvage(struct log *, uint32_t segment, uint64_t from, uint64_t to,
	    const struct salvage_callbacks *, void *arg);

/*
 * A copy of the record that was at `at`, where one changed byte explains why its
 * head is broken; the caller's to free.  NULL: errno EILSEQ, ENOENT, ENOMEM.
 */
struct rec_head *salvage_head(struct log *, uint32_t segment, uint64_t at);
/* Puts the one changed byte of a body of up to SUBMIT_CHUNK bytes right.  false: it is not one byte. */
bool	salvage_body(uint8_t *body, uint32_t len, uint32_t body_crc);

#endif
