/*
 * store/check.h - is everything in a data directory what it was when it was written?
 *
 * Runs in: tools, offline, with the data directory locked; tests.
 *
 * Reads every byte that something vouches for: the heads of segments, each batch
 * and the chain of them, each record's head and body, those of old versions too,
 * each page of the checkpoint.  Then the tree, as a daemon would build it, is
 * compared with the log both ways, its sums are added up anew, and the live bytes
 * of each segment.  Changes nothing.
 */
#ifndef STORE_CHECK_H
#define STORE_CHECK_H
#include <stdint.h>

struct check_result {
	unsigned	log;		/* findings in the log that a repair must write anew */
	unsigned	torn;		/* an incomplete last batch: a start cuts it off */
	unsigned	checkpoint;	/* findings in the tree's file: it can be done without */
	uint64_t	documents, deletions;
	unsigned	segments;
	uint32_t	tree;		/* number of the checkpoint; 0: none that counts */
};
static inline unsigned
check_findings(const struct check_result *r)
{
	return r->log + r->torn + r->checkpoint;
}

/*
 * Tells each finding in a line: file, offset, what it is, and whose (tenant/path)
 * where that can be known.  say NULL: only counts.
 * 0; -1: it could not be looked at (errno; the last line says why; ENOENT: there is no store).
 */
int	check_store(int dirfd, const char *dir, void (*say)(void *, const char *), void *arg, struct check_result *);

#endif
