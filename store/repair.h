/*
 * store/repair.h - accepting a loss: a log that is whole again, of all that is intact.
 *
 * Runs in: tools, offline, with the data directory locked.
 * Owns:    DIR/repair.new, DIR/repair-FIRST-COUNT, DIR/damaged-*.
 *
 * The intact newest records are copied into a new log (as compaction would: seq,
 * time and run stay; same store) whose segments have higher numbers.  A document
 * whose newest record is broken is gone: it gets a tombstone, so that neither an
 * older version nor the same ETag comes back, and followers hear of it.
 *
 *	repair.new/		being written; anybody may remove it
 *	   |  rename, synced	from here on the new log counts
 *	repair-FIRST-COUNT/	the names of its segments: FIRST .. FIRST + COUNT - 1
 *	   |  all other log-*, tree-* become damaged-*; then its segments move
 *	   v  into DIR; then it is removed
 *	done
 *
 * What dying leaves: one of these.  A daemon refuses a directory in the middle one
 * (nothing is served twice or half), and the next repair goes on from there.
 */
#ifndef STORE_REPAIR_H
#define STORE_REPAIR_H
#include <stdbool.h>
#include <stdint.h>

/* In the middle of a repair?  Then first and count (may be NULL) are those of its name. */
bool	repair_interrupted(int dirfd, uint32_t *first, uint32_t *count);
/*
 * Repairs the store in dirfd (dir: its name), telling one line at a time what
 * is damaged, what is gone, and what was done.  0: the store is whole (also where
 * nothing had to be done).  -1: it is as it was; the last line says why.
 */
int	repair_store(int dirfd, const char *dir, void (*say)(void *, const char *), void *arg);

#endif
