/*
 * worker/answer.c - see worker/answer.h.
 *
 * Runs in: worker.
 */
#include "config.h"
#include "worker/answer.h"
#include "worker/cond.h"
#include "worker/worker.h"

/* A line is copied with all of its room: a copy of constant length is a few moves. */
#define LINE_ROOM 48u
struct status {
	uint16_t	code;
	uint8_t		len;
	char		line[LINE_ROOM];
};
#define STATUS(code, title) { code, sizeof("HTTP/1.1 " #code " " title "\r\n") - 1, "HTTP/1.1 " #code " " title "\r\n" }
#define TITLE_AT (sizeof("HTTP/1.1 200 ") - 1)

static const struct status statuses[] = {	/* the frequent ones first */
	STATUS(200, "OK"), STATUS(204, "No Content"), STATUS(201, "Created"), STATUS(304, "Not Modified"),
	STATUS(404, "Not Found"), STATUS(412, "Precondition Failed"), STATUS(206, "Partial Content"),
	STATUS(308, "Permanent Redirect"), STATUS(400, "Bad Request"), STATUS(401, "Unauthorized"),
	STATUS(403, "Forbidden"), STATUS(405, "Method Not Allowed"), STATUS(408, "Request Timeout"),
	STATUS(409, "Conflict"), STATUS(411, "Length Required"), STATUS(413, "Content Too Large"),
	STATUS(414, "URI Too Long"), STATUS(416, "Range Not Satisfiable"), STATUS(417, "Expectation Failed"),
	STATUS(429, "Too Many Requests"), STATUS(431, "Request Header Fields Too Large"),
	STATUS(501, "Not Implemented"), STATUS(503, "Service Unavailable"),
	STATUS(505, "HTTP Version Not Supported"), STATUS(507, "Insufficient Storage"),
	STATUS(500, "Internal Server Error"),	/* last: what is not in the table */
};
#define NSTATUSES (sizeof(statuses) / sizeof(statuses[0]))

static const struct status *
status_of(unsigned code)
{
	const struct status	*s;

	for (s = statuses; s < statuses + NSTATUSES - 1; s++)
		if (s->code == code)
			return s;
	return s;
}

/* --- spelling ----------------------------------------------------------- */

char *
put_u64(char *p, uint64_t n)
{
	uint64_t	rest = n;
	char		*end = p;

	do
		end++;
	while ((rest /= 10) > 0);
	p = end;
	do
		*--p = (char)('0' + n % 10);
	while ((n /= 10) > 0);
	return end;
}

char *
put_etag(char *p, const struct tag *tag)
{
	p = PUT_LIT(p, "ETag: ");
	p += etag_format(p, tag);
	return PUT_LIT(p, "\r\n");
}

/* RFC 3986 3.3: unreserved, sub-delims, ':', '@', and the slash between segments. */
static bool
stays(unsigned char c)
{
	if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'))
		return true;
	return c != '\0' && strchr("-._~!$&'()*+,;=:@/", c) != NULL;
}

char *
put_path(char *p, const char *path, size_t n)
{
	static const char	hex[] = "0123456789ABCDEF";
	size_t			i;
	unsigned char		c;

	for (i = 0; i < n; i++) {
		c = (unsigned char)path[i];
		if (stays(c)) {
			*p++ = (char)c;
			continue;
		}
		*p++ = '%';
		*p++ = hex[c >> 4];
		*p++ = hex[c & 15];
	}
	return p;
}

char *
put_json(char *p, const char *from, size_t n)
{
	static const char	hex[] = "0123456789abcdef";
	size_t			i;
	unsigned char		c;

	for (i = 0; i < n; i++) {
		c = (unsigned char)from[i];
		if (c == '"' || c == '\\') {
			*p++ = '\\';
			*p++ = (char)c;
		} else if (c < 0x20) {
			p = PUT_LIT(p, "\\u00");
			*p++ = hex[c >> 4];
			*p++ = hex[c & 15];
		} else
			*p++ = (char)c;
	}
	return p;
}

/* --- heads -------------------------------------------------------------- */

static void
count_status(struct worker *w, unsigned code)
{
	count_add(w->count, code < 300 ? CW_2XX : code < 400 ? CW_3XX : code < 500 ? CW_4XX : CW_5XX, 1);
}

char *
answer_begin(struct worker *w, struct conn *c, unsigned code, size_t extra)
{
	const struct status	*s = status_of(code);
	char			*p;

	if (c->body)
		in_refuse_body(w, c);
	count_status(w, code);
	p = out_room(w, c, ANSWER_HEAD + extra);
	memcpy(p, s->line, LINE_ROOM);
	p += s->len;
	p = put_bytes(p, w->clock.lines, CLOCK_LINES);
	if (c->close)
		p = PUT_LIT(p, "Connection: close\r\n");
	else if (c->http10)
		p = PUT_LIT(p, "Connection: keep-alive\r\n");
	if (w->req.below_tenant)
		p = PUT_LIT(p, "Vary: Origin\r\n");
	return p;
}

void
answer_end(struct worker *w, char *p)
{
	out_put(&w->out, PUT_LIT(p, "\r\n"));
}

/* --- whole answers ------------------------------------------------------ */

/* {"type":"about:blank","status":404,"title":"Not Found","detail":"..."} */
static char *
put_problem(char *p, const struct status *s, const char *detail, size_t len)
{
	p = PUT_LIT(p, "{\"type\":\"about:blank\",\"status\":");
	p = put_u64(p, s->code);
	p = PUT_LIT(p, ",\"title\":\"");
	p = put_bytes(p, s->line + TITLE_AT, s->len - TITLE_AT - 2);
	p = PUT_LIT(p, "\",\"detail\":\"");
	p = put_json(p, detail, len);
	return PUT_LIT(p, "\"}\n");
}

#define DETAIL_MAX	512u
#define PROBLEM_MAX	(6 * DETAIL_MAX + 256)

void
answer_problem_with(struct worker *w, struct conn *c, unsigned code, const char *detail,
    const char *fields, size_t len)
{
	char	problem[PROBLEM_MAX], *p;
	size_t	n;

	n = (size_t)(put_problem(problem, status_of(code), detail, strnlen(detail, DETAIL_MAX)) - problem);
	p = answer_begin(w, c, code, len + n);
	p = put_bytes(p, fields, len);
	p = PUT_LIT(p, "Content-Type: application/problem+json\r\nContent-Length: ");
	p = put_u64(p, n);
	p = PUT_LIT(p, "\r\n\r\n");
	if (w->req.head.method != M_HEAD)
		p = put_bytes(p, problem, n);
	out_put(&w->out, p);
	conn_answered(c);
}

void
answer_problem(struct worker *w, struct conn *c, unsigned code, const char *detail)
{
	answer_problem_with(w, c, code, detail, "", 0);
}

void
answer_no_content(struct worker *w, struct conn *c, const char *fields, size_t len)
{
	char	*p = answer_begin(w, c, 204, len);

	answer_end(w, put_bytes(p, fields, len));
	conn_answered(c);
}

void
answer_text(struct worker *w, struct conn *c, const char *type, const char *body, size_t len)
{
	size_t	 n = strlen(type);
	char	*p = answer_begin(w, c, 200, n);

	p = PUT_LIT(p, "Content-Type: ");
	p = put_bytes(p, type, n);
	p = PUT_LIT(p, "\r\nContent-Length: ");
	p = put_u64(p, len);
	p = PUT_LIT(p, "\r\nCache-Control: no-store\r\n");
	answer_end(w, p);
	if (w->req.head.method != M_HEAD)
		out_bytes(w, c, body, len);
	conn_answered(c);
}

void
answer_refusal(struct worker *w, struct conn *c, const struct refusal *r)
{
	answer_problem(w, c, r->status, r->detail);
}
