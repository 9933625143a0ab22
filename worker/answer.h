/*
 * worker/answer.h - heads and problems.
 *
 * Runs in: worker.
 *
 * An answer's head is written in place: status line, Date, Server, Connection
 * come from here, then the caller's fields, then answer_end().  All of it is
 * copying; nothing is formatted but numbers, tags and dates.
 *
 * answer_begin() settles the request's body first (worker/in.h): the head has
 * to say whether the connection goes on.
 */
#ifndef WORKER_ANSWER_H
#define WORKER_ANSWER_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include "shm/submit.h"
#include "worker/conn.h"
#include "worker/head.h"

#define ANSWER_HEAD	1024u	/* room for what is not the caller's: status, dates, tag, fixed fields */

#define PUT_LIT(p, lit)	((char *)memcpy((p), (lit), sizeof(lit) - 1) + sizeof(lit) - 1)

static inline char *
put_bytes(char *p, const void *from, size_t n)
{
	memcpy(p, from, n);
	return p + n;
}

/* Decimal digits, no NUL. */
char	*put_u64(char *, uint64_t);
/* "ETag: ...\r\n" */
char	*put_etag(char *, const struct tag *);
/* A path, percent-encoded where it must be (slashes stay): at most 3 * n bytes. */
char	*put_path(char *, const char *path, size_t n);
/* A JSON string without its quotes: at most 6 * n bytes. */
char	*put_json(char *, const char *, size_t n);

/* Room for ANSWER_HEAD + extra bytes, the common lines written. */
char	*answer_begin(struct worker *, struct conn *, unsigned status, size_t extra);
/* The empty line; the head is ready. */
void	 answer_end(struct worker *, char *p);

/* A problem without a field of its own; detail says what to do. */
void	answer_problem(struct worker *, struct conn *, unsigned status, const char *detail);
/* The same with field lines ("Allow: GET\r\n"). */
void	answer_problem_with(struct worker *, struct conn *, unsigned status, const char *detail,
	    const char *fields, size_t len);
/* 204 with field lines. */
void	answer_no_content(struct worker *, struct conn *, const char *fields, size_t len);
/* 200 with a whole body of ours (JSON, text), copied. */
void	answer_text(struct worker *, struct conn *, const char *type, const char *body, size_t len);
/* What the parser refused. */
void	answer_refusal(struct worker *, struct conn *, const struct refusal *);

#endif
