/*
 * worker/json.h - reading JSON: RFC 8259, strict, one token after another.
 *
 * Runs in: worker.  Pure: allocates nothing, does not recurse, never reads
 *          past len.
 *
 *	json_init(&j, body, len);
 *	while ((t = json_next(&j)) > JSON_END) ...
 *
 * The reader checks the grammar (commas, colons, nesting up to JSON_DEPTH,
 * UTF-8, escapes, no lone surrogate); what a name means, and whether it came
 * twice, is the caller's to judge.  A value that does not matter: json_skip().
 */
#ifndef WORKER_JSON_H
#define WORKER_JSON_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define JSON_DEPTH 64u

enum json_token {
	JSON_BAD,		/* not JSON: json.detail says what; sticks */
	JSON_END,		/* one value was read, nothing but white space behind it */
	JSON_OBJECT, JSON_OBJECT_END,
	JSON_ARRAY, JSON_ARRAY_END,
	JSON_NAME,		/* of a member; its value comes next */
	JSON_STRING, JSON_NUMBER, JSON_TRUE, JSON_FALSE, JSON_NULL
};

struct json {
	const char	*p, *end;
	const char	*text;		/* NAME, STRING: between the quotes, escapes as they are; NUMBER: as written */
	size_t		 text_len;
	const char	*detail;	/* static text */
	uint64_t	 objects;	/* bit n: level n is an object, else an array */
	uint8_t		 depth;
	uint8_t		 expect;
};

void		json_init(struct json *, const char *p, size_t len);
enum json_token	json_next(struct json *);
/* Reads on to the end of the value that `t`, just returned, starts.  false: JSON_BAD. */
bool		json_skip(struct json *, enum json_token t);

/* Of the NAME or STRING just read: is it this text, once decoded? */
bool		json_is(const struct json *, const char *text);
/* ... decoded into out, without a NUL; its length; -1: longer than cap. */
ptrdiff_t	json_text(const struct json *, char *out, size_t cap);
/* Of the NUMBER just read: exactly this integer.  false: negative, a fraction, an exponent, over 64 bits. */
bool		json_u64(const struct json *, uint64_t *);

#endif
