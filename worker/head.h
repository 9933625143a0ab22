/*
 * worker/head.h - the request head: RFC 9112 framing, strict.
 *
 * Runs in: worker.  Pure: takes (buf, len), allocates nothing, does no I/O,
 *          can be fed a byte at a time, never reads past len.
 *
 * Everything smuggling lives on is refused, not repaired (contract 7).  One
 * pass finds the end, the line ends and the fields the server knows; what it
 * does not know is checked for form and forgotten.
 */
#ifndef WORKER_HEAD_H
#define WORKER_HEAD_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HEAD_MAX	16384u	/* bytes of the whole head: 431 over it */
#define HEAD_FIELDS	100u	/* 431 over it */
#define TARGET_MAX	8192u	/* 414 over it */

struct slice {			/* borrowed bytes; p NULL: the field was not there */
	const char	*p;
	uint32_t	 len;
};

enum method { M_NONE, M_GET, M_HEAD, M_PUT, M_DELETE, M_OPTIONS, M_POST, M_PATCH, M_OTHER };
enum expect { EXPECT_NONE, EXPECT_CONTINUE, EXPECT_OTHER };
enum framing { BODY_NONE, BODY_LENGTH, BODY_CHUNKED };

struct head {			/* slices point into the buffer given */
	enum method	 method;
	uint8_t		 minor;		/* HTTP/1.minor: 0, or 1 for 1.1 and above */
	bool		 keep_alive;	/* after Connection and version */
	enum expect	 expect;	/* ignored (NONE) in HTTP/1.0 */
	enum framing	 framing;
	uint64_t	 length;	/* of the body, BODY_LENGTH */
	struct slice	 target;	/* as sent; "*" for OPTIONS * */
	uint32_t	 kept_bytes;	/* the five kept fields as lines ("Name: value" CR LF): 431 over 4 KiB, the caller's to say */
	uint32_t	 bytes;		/* of the whole head: the body starts here */
	/* fields, values without white space around.  One that came again: see the rules in head.c */
	struct slice	 host, range, if_range, authorization, origin;
	struct slice	 content_type, content_encoding, content_language, content_disposition, cache_control;	/* kept */
	struct slice	 content_range, if_modified_since, if_unmodified_since, accept;
	struct slice	 access_control_request_method, last_event_id;
	/* If-Match and If-None-Match may come several times: a list in one, in field order; set up to their number only */
	uint8_t		 n_if_match, n_if_none_match;
	struct slice	 if_match[4], if_none_match[4];
};

enum parse { PARSE_MORE, PARSE_DONE, PARSE_BAD };

struct refusal {		/* PARSE_BAD: what to answer; the connection is closed unless keep */
	uint16_t	 status;
	bool		 keep;		/* the framing was sound: the connection may go on */
	const char	*detail;	/* static text, says what to do */
};

/*
 * Parses a head at buf.  PARSE_MORE: not complete (and not yet wrong, and not yet too long);
 * give the same bytes and more (*scanned remembers how far the end was looked for; 0 at first).
 * A leading CRLF before the request line is skipped (RFC 9112 2.2) and counts in bytes.
 * On PARSE_BAD the method is set if it was readable, so that an answer to HEAD has no body.
 */
enum parse	head_parse(const char *buf, size_t len, size_t *scanned, struct head *, struct refusal *);

/* As sent; "other" for M_OTHER, "-" for M_NONE: for logs and counters. */
const char	*method_name(enum method);

#endif
