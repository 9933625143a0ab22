/*
 * worker/fields.h - the small grammar that all parsers share: field names,
 * lists, tokens, hosts.  RFC 9110 5.
 *
 * Runs in: worker.  Pure.
 */
#ifndef WORKER_FIELDS_H
#define WORKER_FIELDS_H
#include <string.h>
#include "worker/head.h"

/* Classes of bytes. */
enum byte_class {
	B_TOKEN	 = 1 << 0,	/* tchar */
	B_HOST	 = 1 << 1,	/* of a reg-name, without '%' and ',' */
	B_PATH	 = 1 << 2,	/* of a path: stands for itself, '/' too */
	B_ETAG	 = 1 << 3,	/* etagc */
	B_HEX	 = 1 << 4,
	B_DIGIT	 = 1 << 5,
};
extern const uint8_t byte_classes[256];

static inline bool
byte_is(char c, unsigned set)
{
	return (byte_classes[(unsigned char)c] & set) != 0;
}

/* Of a byte that is B_HEX. */
static inline unsigned
hex_value(char c)
{
	return ((unsigned)c & 0xf) + (c >= 'A' ? 9u : 0u);
}

/* The fields the server knows. */
enum field {
	F_OTHER,
	F_HOST, F_CONNECTION, F_CONTENT_LENGTH, F_TRANSFER_ENCODING, F_EXPECT,	/* judged while they are read */
	F_IF_MATCH, F_IF_NONE_MATCH,
	F_ACCEPT, F_ACCESS_CONTROL_REQUEST_METHOD, F_AUTHORIZATION, F_CACHE_CONTROL,
	F_CONTENT_DISPOSITION, F_CONTENT_ENCODING, F_CONTENT_LANGUAGE, F_CONTENT_RANGE, F_CONTENT_TYPE,
	F_IF_MODIFIED_SINCE, F_IF_RANGE, F_IF_UNMODIFIED_SINCE, F_LAST_EVENT_ID, F_ORIGIN, F_RANGE,
	F__N
};
/* name: tokens only, any case. */
enum field	field_id(const char *name, size_t len);

/*
 * True where the n bytes are `lower` in any case.  `lower` consists of small
 * letters and '-'; the bytes must be tchars: among those nothing else folds to them.
 */
static inline __attribute__((always_inline)) bool
fold_is(const char *p, const char *lower, size_t n)
{
	const uint64_t	ones = UINT64_C(0x2020202020202020);
	uint64_t	a, b;
	uint32_t	c, d;
	size_t		i;

	if (n >= 8) {
		for (i = 0; i + 8 < n; i += 8) {
			memcpy(&a, p + i, 8);
			memcpy(&b, lower + i, 8);
			if ((a | ones) != b)
				return false;
		}
		memcpy(&a, p + (n - 8), 8);
		memcpy(&b, lower + (n - 8), 8);
		return (a | ones) == b;
	}
	if (n >= 4) {
		memcpy(&c, p, 4);
		memcpy(&d, lower, 4);
		if ((c | (uint32_t)ones) != d)
			return false;
		memcpy(&c, p + (n - 4), 4);
		memcpy(&d, lower + (n - 4), 4);
		return (c | (uint32_t)ones) == d;
	}
	for (i = 0; i < n; i++)
		if ((p[i] | 0x20) != lower[i])
			return false;
	return true;
}

/* True where the slice is the word `lower` (small letters, digits, '-') in any case; any bytes. */
bool		slice_is(struct slice, const char *lower);

/*
 * Takes the next element off a comma-separated list, without the blanks
 * around it; it may be empty.  false: there is none left (start with the whole
 * value: an empty value is one empty element).
 */
bool		list_next(struct slice *rest, struct slice *element);

/* Host, or an authority without user: RFC 3986 3.2.2 with an optional port up to 65535; never empty. */
bool		host_ok(const char *p, size_t len);

#endif
