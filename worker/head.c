/*
 * worker/head.c - see worker/head.h.
 *
 * Runs in: worker.  Pure.
 *
 * Bytes are judged strictly from left to right, and what is refused depends
 * only on the bytes up to the offending one.  So the answer is the same
 * however the bytes came: whole, or one by one.  What depends on fields
 * together (framing, Host) is judged at the end of the head.
 *
 * A field that may come once and comes again (RFC 9110 5.3), by rule:
 *	R_ONE	the request is refused: two readers could believe two things
 *	R_VOID	as if its value were malformed, which is ignored: 13.1.3 and
 *		13.1.4 ask for it for dates; a Range is answered with the whole
 *	R_FIRST	the first counts: Accept is only a wish
 * Lists that are judged as they are read (Connection, Expect,
 * Transfer-Encoding) may come in several fields; If-Match and If-None-Match in four.
 */
#include "config.h"
#include <string.h>
#include "worker/fields.h"
#include "worker/head.h"
#include "worker/scan.h"

#define METHOD_MAX	64u	/* longer than any: 501 without waiting for its end */
#define COND_FIELDS	(sizeof(((struct head *)0)->if_match) / sizeof(struct slice))

enum rule { R_OTHER, R_ONE, R_KEPT, R_VOID, R_FIRST };

static const struct {
	uint16_t	at;	/* of the slice in struct head */
	uint8_t		rule;
} fields[F__N] = {
#define AT(member, rule)	{ offsetof(struct head, member), rule }
	[F_ACCEPT]			  = AT(accept, R_FIRST),
	[F_ACCESS_CONTROL_REQUEST_METHOD] = AT(access_control_request_method, R_ONE),
	[F_AUTHORIZATION]		  = AT(authorization, R_ONE),
	[F_CACHE_CONTROL]		  = AT(cache_control, R_KEPT),
	[F_CONTENT_DISPOSITION]		  = AT(content_disposition, R_KEPT),
	[F_CONTENT_ENCODING]		  = AT(content_encoding, R_KEPT),
	[F_CONTENT_LANGUAGE]		  = AT(content_language, R_KEPT),
	[F_CONTENT_RANGE]		  = AT(content_range, R_ONE),
	[F_CONTENT_TYPE]		  = AT(content_type, R_KEPT),
	[F_HOST]			  = AT(host, R_ONE),
	[F_IF_MODIFIED_SINCE]		  = AT(if_modified_since, R_VOID),
	[F_IF_RANGE]			  = AT(if_range, R_VOID),
	[F_IF_UNMODIFIED_SINCE]		  = AT(if_unmodified_since, R_VOID),
	[F_LAST_EVENT_ID]		  = AT(last_event_id, R_ONE),
	[F_ORIGIN]			  = AT(origin, R_ONE),
	[F_RANGE]			  = AT(range, R_VOID),
#undef AT
};

struct reading {			/* one call of head_parse() */
	const char	*base, *end;
	const char	*p;		/* read up to here */
	struct head	*h;
	struct refusal	*r;
	bool		 close, stay;	/* Connection */
	bool		 length;	/* Content-Length was there */
	bool		 te;		/* Transfer-Encoding was there, ... */
	bool		 te_chunked;	/* ... named chunked, ... */
	bool		 te_behind;	/* ... and something behind it; ... */
	bool		 te_other;	/* ... or something else than just chunked */
};

static enum parse
refuse(struct reading *x, unsigned status, const char *detail)
{
	*x->r = (struct refusal){ .status = (uint16_t)status, .keep = false, .detail = detail };
	return PARSE_BAD;
}

/* The line end at p, which is there: PARSE_DONE: it is CRLF, and p behind it. */
static enum parse
line_end(struct reading *x)
{
	if (*x->p == '\n')
		return refuse(x, 400, "a line of the request head ended with LF alone: end lines with CR LF");
	if (*x->p != '\r')
		return refuse(x, 400, "a control byte in the request head: leave it out or encode it");
	if (x->end - x->p < 2)
		return PARSE_MORE;
	if (x->p[1] != '\n')
		return refuse(x, 400, "a CR without LF in the request head: end lines with CR LF");
	x->p += 2;
	return PARSE_DONE;
}

/* --- the request line -------------------------------------------------------- */

static enum method
method_of(const char *p, size_t len)
{
	switch (len) {
	case 3:
		return memcmp(p, "GET", 3) == 0 ? M_GET : memcmp(p, "PUT", 3) == 0 ? M_PUT : M_OTHER;
	case 4:
		return memcmp(p, "HEAD", 4) == 0 ? M_HEAD : memcmp(p, "POST", 4) == 0 ? M_POST : M_OTHER;
	case 5:
		return memcmp(p, "PATCH", 5) == 0 ? M_PATCH : M_OTHER;
	case 6:
		return memcmp(p, "DELETE", 6) == 0 ? M_DELETE : M_OTHER;
	case 7:
		return memcmp(p, "OPTIONS", 7) == 0 ? M_OPTIONS : M_OTHER;
	default:
		return M_OTHER;
	}
}

static enum parse
method(struct reading *x)
{
	const char	*start = x->p;
	size_t		 n;

	while (x->p < x->end && byte_is(*x->p, B_TOKEN))
		x->p++;
	n = (size_t)(x->p - start);
	if (n > METHOD_MAX)
		return refuse(x, 501, "no method has a name this long: use GET, HEAD, PUT, DELETE or OPTIONS");
	if (x->p == x->end)
		return PARSE_MORE;
	if (*x->p != ' ' || n == 0)
		return refuse(x, 400, "the request line must be METHOD SP TARGET SP HTTP/1.1, with one blank between");
	x->h->method = method_of(start, n);
	x->p++;
	return PARSE_DONE;
}

static enum parse
target(struct reading *x)
{
	const char	*start = x->p;
	size_t		 n;

	x->p = scan_target(x->base, x->p, x->end);
	n = (size_t)(x->p - start);
	if (n > TARGET_MAX)
		return refuse(x, 414, "the request target is over 8 KiB: use a shorter path or query");
	if (x->p == x->end)
		return PARSE_MORE;
	if (*x->p != ' ' || n == 0)
		return refuse(x, 400, "the request line must be METHOD SP TARGET SP HTTP/1.1, with one blank between");
	x->h->target = (struct slice){ start, (uint32_t)n };
	x->p++;
	return PARSE_DONE;
}

static enum parse
version(struct reading *x)
{
	static const char	form[] = "HTTP/#.#\r\n";
	size_t			i, n = (size_t)(x->end - x->p);

	if (n >= 10 && memcmp(x->p, "HTTP/1.1\r\n", 10) == 0) {
		x->h->minor = 1;
		x->p += 10;
		return PARSE_DONE;
	}
	for (i = 0; i < 10 && i < n; i++)
		if (form[i] == '#' ? !byte_is(x->p[i], B_DIGIT) : x->p[i] != form[i])
			return refuse(x, 400, "the request line must end with HTTP/1.1 and CR LF");
	if (n < 10)
		return PARSE_MORE;
	if (x->p[5] != '1')
		return refuse(x, 505, "only HTTP/1.1 and HTTP/1.0 are spoken here");
	x->h->minor = x->p[7] != '0';
	x->p += 10;
	return PARSE_DONE;
}

static enum parse
request_line(struct reading *x)
{
	enum parse	e;

	if (x->p == x->end)
		return PARSE_MORE;
	/* one empty line in front is what some clients send behind a body (RFC 9112 2.2) */
	if (*x->p == '\r' && (e = line_end(x)) != PARSE_DONE)
		return e;
	if ((e = method(x)) != PARSE_DONE || (e = target(x)) != PARSE_DONE)
		return e;
	return version(x);
}

/* --- fields -------------------------------------------------------------------- */

static enum parse
content_length(struct reading *x, struct slice v)
{
	uint64_t	n = 0, d;
	uint32_t	i;

	if (x->length)
		return refuse(x, 400, "Content-Length came twice: send it once");
	for (i = 0; i < v.len; i++) {
		d = (uint64_t)(v.p[i] - '0');
		if (!byte_is(v.p[i], B_DIGIT) || n > (INT64_MAX - d) / 10)
			break;
		n = n * 10 + d;
	}
	if (i < v.len || v.len == 0)
		return refuse(x, 400, "Content-Length must be one number of decimal digits, below 2^63");
	x->length = true;
	x->h->length = n;
	return PARSE_DONE;
}

/* Notes what is there; judged at the end, together with Content-Length. */
static void
transfer_encoding(struct reading *x, struct slice rest)
{
	struct slice	one, name;

	x->te = true;
	while (list_next(&rest, &one)) {
		for (name = (struct slice){ one.p, 0 }; name.len < one.len; name.len++)
			if (!byte_is(one.p[name.len], B_TOKEN))
				break;
		x->te_behind |= x->te_chunked;
		x->te_chunked |= slice_is(name, "chunked");
		x->te_other |= !slice_is(one, "chunked");
	}
}

static void
connection(struct reading *x, struct slice rest)
{
	struct slice	one;

	while (list_next(&rest, &one)) {
		x->close |= slice_is(one, "close");
		x->stay |= slice_is(one, "keep-alive");
	}
}

static void
expectation(struct reading *x, struct slice rest)
{
	struct slice	one;

	while (list_next(&rest, &one)) {
		if (one.len == 0)
			continue;
		if (!slice_is(one, "100-continue"))
			x->h->expect = EXPECT_OTHER;
		else if (x->h->expect == EXPECT_NONE)
			x->h->expect = EXPECT_CONTINUE;
	}
}

static enum parse
condition(struct reading *x, struct slice *list, uint8_t *n, struct slice v)
{
	if (*n == COND_FIELDS)
		return refuse(x, 400, "at most four If-Match or If-None-Match fields: put the tags into one, with commas");
	list[(*n)++] = v;
	return PARSE_DONE;
}

static enum parse
plain_field(struct reading *x, enum field id, uint32_t name_len, struct slice v)
{
	struct slice	*s = (struct slice *)(void *)((char *)x->h + fields[id].at);

	if (s->p == NULL) {
		*s = v;
		if (fields[id].rule == R_KEPT)
			x->h->kept_bytes += name_len + v.len + 4;
		return PARSE_DONE;
	}
	switch (fields[id].rule) {
	case R_VOID:
		*s = (struct slice){ v.p, 0 };
		return PARSE_DONE;
	case R_FIRST:
		return PARSE_DONE;
	default:
		return refuse(x, 400, id == F_HOST ? "Host came twice: send it once" :
		    "a field that may come once came twice: send it once");
	}
}

static enum parse
known_field(struct reading *x, enum field id, uint32_t name_len, struct slice v)
{
	switch (id) {
	case F_CONTENT_LENGTH:
		return content_length(x, v);
	case F_TRANSFER_ENCODING:
		transfer_encoding(x, v);
		return PARSE_DONE;
	case F_CONNECTION:
		connection(x, v);
		return PARSE_DONE;
	case F_EXPECT:
		expectation(x, v);
		return PARSE_DONE;
	case F_IF_MATCH:
		return condition(x, x->h->if_match, &x->h->n_if_match, v);
	case F_IF_NONE_MATCH:
		return condition(x, x->h->if_none_match, &x->h->n_if_none_match, v);
	default:
		return plain_field(x, id, name_len, v);
	}
}

/* What stands where a field's name should go on or end. */
static enum parse
bad_name(struct reading *x, bool empty)
{
	if (*x->p == '\n' && empty)
		return line_end(x);
	if (*x->p == ' ' || *x->p == '\t')
		return refuse(x, 400, empty ? "a field's value goes on in the next line: put it into one line" :
		    "white space in front of a field's colon: leave it out");
	return refuse(x, 400, "a line of the request head is not NAME: VALUE");
}

/* One field line, up to behind its CRLF. */
static enum parse
field(struct reading *x)
{
	const char	*name = x->p, *value, *stop;
	uint32_t	 name_len;
	enum field	 id;
	enum parse	 e;

	x->p = scan_name(x->base, x->p, x->end);
	while (x->p < x->end && byte_is(*x->p, B_TOKEN))
		x->p++;
	if (x->p == x->end)
		return PARSE_MORE;
	name_len = (uint32_t)(x->p - name);
	if (*x->p != ':' || name_len == 0)
		return bad_name(x, name_len == 0);
	for (value = x->p + 1; value < x->end && (*value == ' ' || *value == '\t'); value++)
		;
	x->p = stop = scan_value(x->base, value, x->end);
	if (x->p == x->end)
		return PARSE_MORE;
	if ((e = line_end(x)) != PARSE_DONE)
		return e;
	if ((id = field_id(name, name_len)) == F_OTHER)
		return PARSE_DONE;
	while (stop > value && (stop[-1] == ' ' || stop[-1] == '\t'))
		stop--;
	return known_field(x, id, name_len, (struct slice){ value, (uint32_t)(stop - value) });
}

static enum parse
field_lines(struct reading *x)
{
	unsigned	n;
	enum parse	e;

	for (n = 0; ; n++) {
		if (x->p == x->end)
			return PARSE_MORE;
		if (*x->p == '\r')
			return line_end(x);
		if (n == HEAD_FIELDS && byte_is(*x->p, B_TOKEN))
			return refuse(x, 431, "over 100 fields in the request head: send fewer");
		if ((e = field(x)) != PARSE_DONE)
			return e;
	}
}

/* --- all of it ------------------------------------------------------------------- */

static enum parse
framing(struct reading *x)
{
	if (x->te && x->length)
		return refuse(x, 400, "Content-Length and Transfer-Encoding together: send one of them");
	if (x->te && x->h->minor == 0)
		return refuse(x, 400, "HTTP/1.0 has no Transfer-Encoding: send Content-Length");
	if (x->te_behind)
		return refuse(x, 400, "Transfer-Encoding: chunked must come last, and once");
	if (x->te_other)
		return refuse(x, 501, "of transfer codings only chunked is known here: send Transfer-Encoding: chunked");
	x->h->framing = x->te ? BODY_CHUNKED : x->length ? BODY_LENGTH : BODY_NONE;
	return PARSE_DONE;
}

static enum parse
finish(struct reading *x)
{
	struct head	*h = x->h;

	h->bytes = (uint32_t)(x->p - x->base);
	if (h->host.p == NULL && h->minor != 0)
		return refuse(x, 400, "HTTP/1.1 asks for a Host field: send one");
	if (h->host.p != NULL && !host_ok(h->host.p, h->host.len))
		return refuse(x, 400, "the Host field is not a host name or address with an optional port");
	h->keep_alive = !x->close && (h->minor != 0 || x->stay);
	if (h->minor == 0)
		h->expect = EXPECT_NONE;
	return framing(x);
}

/*
 * Is it worth reading from the start again?  Yes where a line may have ended
 * or something is wrong, or where a limit may be passed; else a client that
 * sends single bytes would have us read its head once for each.  So what is
 * wrong inside a line may be said at its end only.
 */
static bool
worth_reading(const char *buf, size_t len, size_t seen)
{
	size_t	lead = len >= 2 && buf[0] == '\r' && buf[1] == '\n' ? 2 : 0;

	return seen == 0 || seen > len || len >= HEAD_MAX || scan_value(buf, buf + seen, buf + len) != buf + len ||
	    (len > TARGET_MAX && memchr(buf + lead, '\n', len - lead) == NULL) || buf[seen - 1] == '\r';
}

enum parse
head_parse(const char *buf, size_t len, size_t *scanned, struct head *h, struct refusal *r)
{
	struct reading	x = { .base = buf, .p = buf, .h = h, .r = r };
	enum parse	e;

	if (!worth_reading(buf, len, *scanned)) {
		*scanned = len;
		return PARSE_MORE;
	}
	*scanned = len;
	x.end = buf + (len < HEAD_MAX ? len : HEAD_MAX);
	memset(h, 0, offsetof(struct head, if_match));
	if ((e = request_line(&x)) == PARSE_DONE && (e = field_lines(&x)) == PARSE_DONE)
		e = finish(&x);
	if (e == PARSE_MORE && len >= HEAD_MAX)
		return refuse(&x, 431, "the request head is over 16 KiB: send fewer or shorter fields");
	return e;
}

const char *
method_name(enum method m)
{
	static const char	names[][8] = {
		[M_NONE] = "-", [M_GET] = "GET", [M_HEAD] = "HEAD", [M_PUT] = "PUT", [M_DELETE] = "DELETE",
		[M_OPTIONS] = "OPTIONS", [M_POST] = "POST", [M_PATCH] = "PATCH", [M_OTHER] = "other",
	};

	return (size_t)m < sizeof(names) / sizeof(names[0]) ? names[m] : "other";
}
