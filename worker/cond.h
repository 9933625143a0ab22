/*
 * worker/cond.h - entity tags, conditions, dates and ranges: RFC 9110.
 *
 * Runs in: worker.  Pure.
 */
#ifndef WORKER_COND_H
#define WORKER_COND_H
#include "worker/head.h"
#include "shm/submit.h"

/* An ETag: '"' hex(seq) '-' 8 hex(run) '"'.  Writes at most ETAG_MAX bytes, no NUL; returns the length. */
#define ETAG_MAX 28u
size_t	etag_format(char *out, const struct tag *);

struct conditions {		/* parsed once per request */
	uint8_t		cond;		/* enum submit_cond bits */
	uint16_t	n_match, n_none;
	struct tag	match[SUBMIT_TAGS_MAX];	/* strong ones that could be ours; weak ones never match in If-Match */
	struct tag	none[SUBMIT_TAGS_MAX];	/* weak comparison: W/ stripped */
	bool		has_modified;
	int64_t		modified_s;	/* If-Modified-Since; an invalid date: as if absent */
	int64_t		unmodified_s;	/* If-Unmodified-Since, bit COND_UNMODIFIED */
};
/* true; false: malformed entity tag or list (400 keep), more than SUBMIT_TAGS_MAX of ours (400 keep). */
bool	cond_parse(const struct head *, struct conditions *, struct refusal *);

enum verdict { V_OK, V_NOT_MODIFIED, V_FAILED };
/* RFC 9110 13.2.2 for GET and HEAD of a document that is there. */
enum verdict cond_read(const struct conditions *, const struct tag *now, int64_t modified_s);

enum range_kind { RANGE_NONE, RANGE_ONE, RANGE_UNSATISFIABLE };
/*
 * Range and If-Range against a body of `size` bytes.  RANGE_ONE: first..last inclusive.
 * Several ranges, an unknown unit, a malformed one, If-Range that does not match strongly (or a date that is not exactly
 * modified_s, RFC 9110 13.1.5): RANGE_NONE, the whole.  More than one range of which none is satisfiable: also RANGE_NONE.
 */
enum range_kind	range_parse(const struct head *, uint64_t size, const struct tag *now, int64_t modified_s,
		    uint64_t *first, uint64_t *last);

/* HTTP dates: IMF-fixdate out (29 bytes, no NUL); all three forms in.  false: not a date. */
#define DATE_LEN 29u
void	date_format(char *out, int64_t seconds);
bool	date_parse(const char *p, size_t len, int64_t *seconds);

#endif
