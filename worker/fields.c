/*
 * worker/fields.c - see worker/fields.h.
 *
 * Runs in: worker.  Pure.
 */
#include "config.h"
#include <arpa/inet.h>
#include "worker/fields.h"

#define ALPHA(c)	(((c) >= 'a' && (c) <= 'z') || ((c) >= 'A' && (c) <= 'Z'))
#define DIGIT(c)	((c) >= '0' && (c) <= '9')
#define HEX(c)		(DIGIT(c) || ((c) >= 'a' && (c) <= 'f') || ((c) >= 'A' && (c) <= 'F'))
#define ONE_OF4(c, a, b, d, e)	((c) == (a) || (c) == (b) || (c) == (d) || (c) == (e))
#define TOKEN(c)	(ALPHA(c) || DIGIT(c) || ONE_OF4(c, '!', '#', '$', '%') || ONE_OF4(c, '&', '\'', '*', '+') || \
			    ONE_OF4(c, '-', '.', '^', '_') || ONE_OF4(c, '`', '|', '~', '~'))
/* unreserved and sub-delims; a comma is how a proxy joins two Host fields, so that one stays out */
#define HOST(c)		(ALPHA(c) || DIGIT(c) || ONE_OF4(c, '-', '.', '_', '~') || ONE_OF4(c, '!', '$', '&', '\'') || \
			    ONE_OF4(c, '(', ')', '*', '+') || ONE_OF4(c, ';', '=', ';', '='))
#define PATH(c)		((c) > 0x20 && (c) < 0x7f && !ONE_OF4(c, '%', '?', '#', '\\'))
#define ETAG(c)		((c) == 0x21 || ((c) >= 0x23 && (c) != 0x7f))

#define CLASS(c)	((TOKEN(c) ? B_TOKEN : 0) | (HOST(c) ? B_HOST : 0) | (PATH(c) ? B_PATH : 0) | \
			    (ETAG(c) ? B_ETAG : 0) | (HEX(c) ? B_HEX : 0) | (DIGIT(c) ? B_DIGIT : 0))
#define ROW4(c)		CLASS(c), CLASS((c) + 1), CLASS((c) + 2), CLASS((c) + 3)
#define ROW16(c)	ROW4(c), ROW4((c) + 4), ROW4((c) + 8), ROW4((c) + 12)
#define ROW64(c)	ROW16(c), ROW16((c) + 16), ROW16((c) + 32), ROW16((c) + 48)

const uint8_t byte_classes[256] = { ROW64(0), ROW64(64), ROW64(128), ROW64(192) };

#define IS(lower, id)	(fold_is(p, lower, sizeof(lower) - 1) ? (id) : F_OTHER)

/* Length and first letter leave one candidate at most (two steps: one compare of the whole name follows). */
enum field
field_id(const char *p, size_t len)
{
	switch (len) {
	case 4:
		return IS("host", F_HOST);
	case 5:
		return IS("range", F_RANGE);
	case 6:
		switch (p[0] | 0x20) {
		case 'a':
			return IS("accept", F_ACCEPT);
		case 'e':
			return IS("expect", F_EXPECT);
		default:
			return IS("origin", F_ORIGIN);
		}
	case 8:
		return (p[3] | 0x20) == 'm' ? IS("if-match", F_IF_MATCH) : IS("if-range", F_IF_RANGE);
	case 10:
		return IS("connection", F_CONNECTION);
	case 12:
		return IS("content-type", F_CONTENT_TYPE);
	case 13:
		switch (p[0] | 0x20) {
		case 'a':
			return IS("authorization", F_AUTHORIZATION);
		case 'c':
			return (p[1] | 0x20) == 'a' ? IS("cache-control", F_CACHE_CONTROL) : IS("content-range", F_CONTENT_RANGE);
		case 'i':
			return IS("if-none-match", F_IF_NONE_MATCH);
		default:
			return IS("last-event-id", F_LAST_EVENT_ID);
		}
	case 14:
		return IS("content-length", F_CONTENT_LENGTH);
	case 16:
		return (p[8] | 0x20) == 'e' ? IS("content-encoding", F_CONTENT_ENCODING) :
		    IS("content-language", F_CONTENT_LANGUAGE);
	case 17:
		return (p[0] | 0x20) == 'i' ? IS("if-modified-since", F_IF_MODIFIED_SINCE) :
		    IS("transfer-encoding", F_TRANSFER_ENCODING);
	case 19:
		return (p[0] | 0x20) == 'c' ? IS("content-disposition", F_CONTENT_DISPOSITION) :
		    IS("if-unmodified-since", F_IF_UNMODIFIED_SINCE);
	case 29:
		return IS("access-control-request-method", F_ACCESS_CONTROL_REQUEST_METHOD);
	default:
		return F_OTHER;
	}
}

bool
slice_is(struct slice s, const char *lower)
{
	uint32_t	i;

	for (i = 0; i < s.len && lower[i] != '\0'; i++) {
		char c = s.p[i];

		if (c >= 'A' && c <= 'Z')
			c |= 0x20;
		if (c != lower[i])
			return false;
	}
	return i == s.len && lower[i] == '\0';
}

static bool
blank(char c)
{
	return c == ' ' || c == '\t';
}

bool
list_next(struct slice *rest, struct slice *element)
{
	const char	*p = rest->p, *end, *comma;

	if (p == NULL)
		return false;
	end = p + rest->len;
	if ((comma = memchr(p, ',', rest->len)) != NULL)
		*rest = (struct slice){ comma + 1, (uint32_t)(end - comma - 1) };
	else {
		comma = end;
		*rest = (struct slice){ NULL, 0 };
	}
	while (p < comma && blank(*p))
		p++;
	while (comma > p && blank(comma[-1]))
		comma--;
	*element = (struct slice){ p, (uint32_t)(comma - p) };
	return true;
}

/* "[" (IPv6address / IPvFuture) "]"; returns the byte behind it, NULL: none. */
static const char *
ip_literal(const char *p, const char *end)
{
	char		 text[INET6_ADDRSTRLEN];
	struct in6_addr	 addr;
	const char	*close, *s;
	size_t		 n;

	if ((close = memchr(p, ']', (size_t)(end - p))) == NULL)
		return NULL;
	p++;
	n = (size_t)(close - p);
	if (n > 0 && (p[0] | 0x20) == 'v') {
		for (s = p + 1; s < close && byte_is(*s, B_HEX); s++)
			;
		if (s == p + 1 || s >= close || *s++ != '.' || s == close)
			return NULL;
		for (; s < close; s++)
			if (!byte_is(*s, B_HOST) && *s != ':')
				return NULL;
		return close + 1;
	}
	if (n >= sizeof(text) || memchr(p, '\0', n) != NULL)
		return NULL;
	memcpy(text, p, n);
	text[n] = '\0';
	return inet_pton(AF_INET6, text, &addr) == 1 ? close + 1 : NULL;
}

static const char *
reg_name(const char *p, const char *end)
{
	const char	*start = p;

	while (p < end) {
		if (byte_is(*p, B_HOST))
			p++;
		else if (*p == '%' && end - p >= 3 && byte_is(p[1], B_HEX) && byte_is(p[2], B_HEX))
			p += 3;
		else
			break;
	}
	return p == start ? NULL : p;
}

bool
host_ok(const char *p, size_t len)
{
	const char	*end = p + len;
	unsigned	 port = 0;

	if (len == 0)
		return false;
	if ((p = *p == '[' ? ip_literal(p, end) : reg_name(p, end)) == NULL)
		return false;
	if (p == end)
		return true;
	if (*p++ != ':')
		return false;
	/* an empty port is the default one (RFC 3986 3.2.3) */
	for (; p < end; p++) {
		if (!byte_is(*p, B_DIGIT) || (port = port * 10 + (unsigned)(*p - '0')) > 65535)
			return false;
	}
	return true;
}
