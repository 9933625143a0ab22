/*
 * tests/parse.h - what the parsers' tests share: input that ends at a guard page.
 *
 * Runs in: tests only.
 */
#ifndef TESTS_PARSE_H
#define TESTS_PARSE_H
#include "tests/unit.h"

#define COUNT(a)	(sizeof(a) / sizeof((a)[0]))
#define S(literal)	(literal), sizeof(literal) - 1	/* NULs inside count */

#define P_ROOM		131072u

/* The bytes, moved so that their last one is the last before a page nobody may touch.  One input at a time. */
static inline const char *
p_guarded(const void *data, size_t len)
{
	static char	*end;
	char		*zero;

	assert_true(len <= P_ROOM);
	if (end == NULL) {
		zero = calloc(1, P_ROOM);
		assert_non_null(zero);
		end = (char *)t_at_guard(zero, P_ROOM) + P_ROOM;
		free(zero);
	}
	if (len > 0)
		memcpy(end - len, data, len);
	return end - len;
}

#endif
