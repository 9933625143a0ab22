/*
 * worker/target.c - see worker/target.h.
 *
 * Runs in: worker.  Pure.
 *
 * Form first, length second: what is malformed is 400 whatever its length.
 */
#include "config.h"
#include "worker/fields.h"
#include "worker/target.h"
#include "worker/utf8.h"

#define SEGMENT_MAX	255u
#define TENANT_MAX	63u	/* store/read.h TENANT_NAME_MAX: a DNS label */

static bool
refuse(struct refusal *r, unsigned status, const char *detail)
{
	*r = (struct refusal){ .status = (uint16_t)status, .keep = true, .detail = detail };
	return false;
}

/* --- the forms of a target (RFC 9112 3.2) ------------------------------------------ */

/* Takes scheme and authority off an absolute-form target.  false: it has none, or no valid one. */
static bool
absolute_form(struct slice *t)
{
	const char	*p = t->p, *end = t->p + t->len, *host;
	size_t		 n;

	for (n = 0; n < t->len && n < 6 && p[n] != ':'; n++)
		;
	if (!slice_is((struct slice){ p, (uint32_t)n }, "http") && !slice_is((struct slice){ p, (uint32_t)n }, "https"))
		return false;
	if (t->len < n + 3 || memcmp(p + n, "://", 3) != 0)
		return false;
	for (p = host = p + n + 3; p < end && *p != '/' && *p != '?' && *p != '#'; p++)
		;
	if (!host_ok(host, (size_t)(p - host)))
		return false;
	*t = (struct slice){ p, (uint32_t)(end - p) };
	return true;
}

/* --- query ---------------------------------------------------------------------------- */

/* Is the name of the parameter at p "token", percent-decoded?  It ends at '=', '&' or end. */
static bool
named_token(const char *p, const char *end)
{
	static const char	name[] = "token";
	unsigned		i;
	char			c;

	for (i = 0; p < end && *p != '=' && *p != '&'; i++) {
		c = *p++;
		if (c == '%' && end - p >= 2 && byte_is(p[0], B_HEX) && byte_is(p[1], B_HEX)) {
			c = (char)(hex_value(p[0]) << 4 | hex_value(p[1]));
			p += 2;
		}
		if (i >= sizeof(name) - 1 || c != name[i])
			return false;
	}
	return i == sizeof(name) - 1;
}

static bool
query(struct target *t, const char *p, const char *end, struct refusal *r)
{
	const char	*q;

	t->query = (struct slice){ p, (uint32_t)(end - p) };
	for (q = p; q < end; q++)
		if ((unsigned char)*q <= 0x20 || (unsigned char)*q >= 0x7f || *q == '#')
			return refuse(r, 400, "a byte in the query that must be percent-encoded");
	for (; p != NULL; p = memchr(p, '&', (size_t)(end - p)), p = p == NULL ? NULL : p + 1)
		if (named_token(p, end)) {
			t->has_token = true;
			break;
		}
	return true;
}

/* --- path ----------------------------------------------------------------------------- */

/* Decodes p..end behind `out`; *stop: the '?' or the end.  The length; -1: refused. */
static int
decode(const char *p, const char *end, char *out, const char **stop, struct refusal *r)
{
	char		*o = out;
	unsigned char	 c, high = 0;

	for (; p < end; p++) {
		if (byte_is(*p, B_PATH)) {
			*o++ = *p;
			continue;
		}
		if (*p == '?')
			break;
		if (*p != '%') {
			refuse(r, 400, *p == '\\' ? "no path has a backslash: segments are divided by /" :
			    "a byte in the path that must be percent-encoded");
			return -1;
		}
		if (end - p < 3 || !byte_is(p[1], B_HEX) || !byte_is(p[2], B_HEX)) {
			refuse(r, 400, "a % in the path without two hex digits behind it: encode % as %25");
			return -1;
		}
		c = (unsigned char)(hex_value(p[1]) << 4 | hex_value(p[2]));
		if (c < 0x20 || c == 0x7f || c == '\\') {
			refuse(r, 400, "no path has control bytes or a backslash, encoded or not");
			return -1;
		}
		high |= c;
		*o++ = (char)c;
		p += 2;
	}
	*stop = p;
	if (high >= 0x80 && !utf8_ok(out, (size_t)(o - out))) {
		refuse(r, 400, "the path is not UTF-8 once decoded");
		return -1;
	}
	return (int)(o - out);
}

/*
 * Judges the segments of p..end, without a slash in front or behind: 400 for
 * form; the length of the longest.  -1: refused.
 */
static int
segments(const char *p, const char *end, struct refusal *r)
{
	const char	*slash;
	size_t		 n, most = 0;

	for (;; p = slash + 1) {
		if ((slash = memchr(p, '/', (size_t)(end - p))) == NULL)
			slash = end;
		n = (size_t)(slash - p);
		if (n == 0) {
			refuse(r, 400, "an empty segment in the path: write one / between segments");
			return -1;
		}
		if (p[0] == '.' && (n == 1 || (n == 2 && p[1] == '.'))) {
			refuse(r, 400, "a segment . or .. in the path: paths are not resolved here, send the whole name");
			return -1;
		}
		if (n > most)
			most = n;
		if (slash == end)
			return (int)most;
	}
}

static bool
tenant_name_ok(const char *p, size_t n)
{
	size_t	i;

	if (n == 0 || n > TENANT_MAX || p[0] == '-')
		return false;
	for (i = 0; i < n; i++)
		if (!((p[i] >= 'a' && p[i] <= 'z') || (p[i] >= '0' && p[i] <= '9') || p[i] == '-'))
			return false;
	return true;
}

/* The decoded path, without its first slash, becomes kind, tenant and path.  slash: it ended with one. */
static bool
split(struct target *t, char *p, size_t n, bool slash, struct refusal *r)
{
	char	*cut = memchr(p, '/', n);
	int	 most;

	/* the whole for its form; below the tenant for its lengths */
	if ((most = segments(p, p + n, r)) == -1)
		return false;
	if (p[0] == '_') {
		t->kind = T_RESERVED;
		t->path = p;
	} else {
		t->tenant = p;
		t->tenant_len = (uint32_t)(cut == NULL ? n : (size_t)(cut - p));
		t->tenant_ok = tenant_name_ok(p, t->tenant_len);
		t->path = cut == NULL ? p + n : cut + 1;
		if (cut == NULL)
			t->kind = slash ? T_FOLDER : T_TENANT;
		else
			t->kind = cut[1] == '_' ? T_TENANT_RESERVED : slash ? T_FOLDER : T_DOCUMENT;
	}
	t->slash = slash;
	t->path_len = (uint32_t)(p + n - t->path);
	if (t->path_len == 0 || (most <= (int)SEGMENT_MAX && t->path_len <= SUBMIT_PATH_MAX))
		return true;
	/* the long one may be the tenant's, which is then like an absent one; form was judged above */
	if (segments(t->path, t->path + t->path_len, r) > (int)SEGMENT_MAX)
		return refuse(r, 414, "a segment of the path is over 255 bytes: shorten it");
	if (t->path_len > SUBMIT_PATH_MAX)
		return refuse(r, 414, "the path is over 1024 bytes: shorten it");
	return true;
}

/* --- all of it ---------------------------------------------------------------------------- */

bool
target_parse(const struct head *h, char *buf, struct target *t, struct refusal *r)
{
	struct slice	 s = h->target;
	const char	*end, *stop;
	bool		 slash, whole = false;
	int		 n;

	*t = (struct target){ .kind = T_ROOT, .tenant = buf, .path = buf };
	if (s.len == 0 || s.len > TARGET_MAX)
		return refuse(r, 400, "the request has no target: send a path that starts with /");
	if (s.p[0] != '/' && !(s.len == 1 && s.p[0] == '*')) {
		if (!absolute_form(&s))
			return refuse(r, 400, "the target must be a path that starts with /, or an http or https address");
		whole = s.len == 0;
	}
	if (s.len == 1 && s.p[0] == '*')
		whole = true;
	if (whole && h->method == M_OPTIONS) {
		t->kind = T_STAR;
		return true;
	}
	if (s.len == 1 && s.p[0] == '*')
		return refuse(r, 400, "the target * goes with OPTIONS only");

	end = s.p + s.len;
	if ((n = decode(s.p, end, buf, &stop, r)) == -1)
		return false;
	t->raw_path = (struct slice){ s.p, (uint32_t)(stop - s.p) };
	if (stop < end && !query(t, stop + 1, end, r))
		return false;
	if (n == 0) {			/* http://host, http://host?query: RFC 9110 4.2.3 */
		t->raw_path = (struct slice){ "/", 1 };
		return true;
	}
	if (n == 1)			/* "/": all forms start with it, where they have a path */
		return true;
	slash = buf[n - 1] == '/';
	return split(t, buf + 1, (size_t)n - 1 - slash, slash, r);
}
