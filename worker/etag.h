/*
 * worker/etag.h - reading entity tags: for conditions and If-Range.
 *
 * Runs in: worker.  Pure.
 */
#ifndef WORKER_ETAG_H
#define WORKER_ETAG_H
#include <stdbool.h>
#include "shm/submit.h"

struct etag {
	bool		weak;	/* W/ in front */
	bool		ours;	/* spelled as etag_format() does: tag is set */
	struct tag	tag;
};

/* Reads the entity tag at p (RFC 9110 8.8.3): the byte behind it; NULL: malformed. */
const char	*etag_read(const char *p, const char *end, struct etag *);

static inline bool
tag_same(const struct tag *a, const struct tag *b)
{
	return a->seq == b->seq && a->run == b->run;
}

#endif
