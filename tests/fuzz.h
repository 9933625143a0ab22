/*
 * tests/fuzz.h - what the fuzz targets share.
 *
 * Runs in: tests only.  A claim that does not hold is abort(3), in every build.
 */
#ifndef TESTS_FUZZ_H
#define TESTS_FUZZ_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int	LLVMFuzzerTestOneInput(const uint8_t *, size_t);

#define CLAIM(c) do {							\
	if (!(c)) {							\
		fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #c);	\
		abort();						\
	}								\
} while (0)

/* Room for len bytes and none more: a sanitizer sees one byte too many.  free(3) it. */
static inline char *
f_room(size_t len)
{
	char	*c = malloc(len > 0 ? len : 1);

	CLAIM(c != NULL);
	return c;
}

/* A copy in such room. */
static inline char *
f_copy(const void *p, size_t len)
{
	char	*c = f_room(len);

	if (len > 0)
		memcpy(c, p, len);
	return c;
}

/* Sizes of pieces, decided by the input: the same input is always cut alike. */
struct cutter {
	uint32_t	x;
};

static inline struct cutter
f_cutter(const uint8_t *p, size_t len)
{
	struct cutter	c = { 2166136261u };
	size_t		i;

	for (i = 0; i < len; i++)
		c.x = (c.x ^ p[i]) * 16777619u;
	c.x |= 1;
	return c;
}

static inline size_t
f_cut(struct cutter *c, size_t left)
{
	size_t	n;

	c->x ^= c->x << 13;
	c->x ^= c->x >> 17;
	c->x ^= c->x << 5;
	n = 1 + (c->x >> 8) % ((c->x & 3) == 0 ? 4000 : (c->x & 3) == 1 ? 100 : 5);
	return n < left ? n : left;
}

#endif
