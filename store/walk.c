/*
 * store/walk.c - going through records that are known to be whole.
 *
 * Runs in: committer (compaction, catching up), tools, tests.
 * Touches: reads segments through their mapping.
 */
#include "config.h"

#include <errno.h>
#include <string.h>

#include "store/log.h"

static bool
is_commit(const struct log *log, const struct segment *g, uint32_t offset)
{
	return g->map != NULL && g->end >= sizeof(log->mark) && offset <= g->end - sizeof(log->mark) &&
	    offset + sizeof(log->mark) <= g->maplen &&
	    memcmp(g->map + offset, &log->mark, sizeof(log->mark)) == 0;
}

int
log_next(struct log *log, uint32_t segment, uint32_t *offset, const struct rec_head **rec)
{
	struct segment	*g;

	for (;;) {
		if ((g = log_segment(log, segment)) == NULL) {
			errno = ENOENT;
			return -1;
		}
		if (*offset >= g->end)
			return 0;
		if (!is_commit(log, g, *offset))
			break;
		*offset += sizeof(struct commit_rec);
	}
	/* maps the segment where that is still to be done; a mark is no record, so look again */
	if ((*rec = log_record(log, segment, *offset)) == NULL) {
		if ((g = log_segment(log, segment)) == NULL || !is_commit(log, g, *offset))
			return -1;
		return log_next(log, segment, offset, rec);
	}
	return 1;
}
