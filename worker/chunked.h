/*
 * worker/chunked.h - chunked request bodies, RFC 9112 7.1, strict.
 *
 * Runs in: worker.  Pure; state survives any split of the input.
 *
 * A size is 1-16 hex digits (nothing before or after but an extension behind
 * ';', bounded, whose bytes are checked and ignored); CRLF after it and after
 * the data is verified; trailers are read with the head's field rules, bounded
 * (HEAD_MAX), and forgotten.
 */
#ifndef WORKER_CHUNKED_H
#define WORKER_CHUNKED_H
#include "worker/head.h"

struct chunked {		/* all zero: start */
	uint8_t		state;
	uint8_t		digits;
	uint32_t	line;		/* bytes of this line, of all trailers: bounds */
	uint64_t	left;		/* of the chunk's data */
};

#define CHUNK_LINE_MAX 1024u	/* of a size line, extensions included */

/*
 * Looks at buf: *data / *ndata: body bytes found there (may be 0), *used: bytes
 * consumed up to the end of those data.  Call again with the rest; PARSE_MORE
 * with *ndata 0 means that there is none.  A size may be as large as 64 bits
 * go: compare before you add.
 * PARSE_DONE: the body is complete with what *used covers.  PARSE_BAD: 400, close.
 */
enum parse	chunked_next(struct chunked *, const char *buf, size_t len, size_t *used,
		    const char **data, size_t *ndata, struct refusal *);
/* Bytes of data the current chunk still brings: they may be received elsewhere directly... */
uint64_t	chunked_left(const struct chunked *);
/* ... and are told here (n <= chunked_left()). */
void		chunked_took(struct chunked *, uint64_t n);

#endif
