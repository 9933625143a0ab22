/*
 * tests/fuzz_head.c - worker/head.h under any bytes.
 *
 * Claims: cut anywhere, the answer is the same (in pieces, what is wrong with a
 * line may be said at its end only); slices lie in the head; what
 * is accepted has no bare CR, no bare LF, no NUL, one framing and one Host
 * (counted here anew, in the plainest way); said again, it means the same.
 */
#include "config.h"
#include <strings.h>
#include "worker/head.h"
#include "tests/fuzz.h"

static bool
same_slice(struct slice a, const char *abase, struct slice b, const char *bbase)
{
	return (a.p == NULL) == (b.p == NULL) && a.len == b.len && (a.p == NULL || a.p - abase == b.p - bbase);
}

static void
same(const struct head *a, const char *abase, const struct head *b, const char *bbase)
{
	const struct slice	*s = &a->host, *t = &b->host;
	size_t			 i;

	CLAIM(a->method == b->method && a->minor == b->minor && a->keep_alive == b->keep_alive && a->expect == b->expect);
	CLAIM(a->framing == b->framing && a->length == b->length && a->bytes == b->bytes && a->kept_bytes == b->kept_bytes);
	CLAIM(a->n_if_match == b->n_if_match && a->n_if_none_match == b->n_if_none_match);
	CLAIM(same_slice(a->target, abase, b->target, bbase));
	for (i = 0; &s[i] <= &a->last_event_id; i++)
		CLAIM(same_slice(s[i], abase, t[i], bbase));
	for (i = 0; i < a->n_if_match; i++)
		CLAIM(same_slice(a->if_match[i], abase, b->if_match[i], bbase));
	for (i = 0; i < a->n_if_none_match; i++)
		CLAIM(same_slice(a->if_none_match[i], abase, b->if_none_match[i], bbase));
}

static void
inside(struct slice s, const char *base, uint32_t bytes)
{
	if (s.p != NULL)
		CLAIM(s.p > base && s.p + s.len < base + bytes);
}

/* Lines that start with this name. */
static unsigned
count(const char *p, size_t len, const char *name)
{
	unsigned	n = 0;
	size_t		i, k = strlen(name);

	for (i = 0; i + 1 + k <= len; i++)
		n += p[i] == '\n' && strncasecmp(p + i + 1, name, k) == 0;
	return n;
}

static void
plain_check(const struct head *h, const char *p)
{
	const struct slice	*s;
	size_t			 i, len = h->bytes;
	unsigned		 lengths, codings, hosts;

	CLAIM(len <= HEAD_MAX && len >= 4 && memcmp(p + len - 4, "\r\n\r\n", 4) == 0);
	for (i = 0; i < len; i++) {
		CLAIM(p[i] != '\0');
		if (p[i] == '\n')
			CLAIM(i > 0 && p[i - 1] == '\r');
		if (p[i] == '\r')
			CLAIM(i + 1 < len && p[i + 1] == '\n');
		if (p[i] == '\n' && i + 1 < len)
			CLAIM(p[i + 1] != ' ' && p[i + 1] != '\t');
	}
	lengths = count(p, len, "content-length:");
	codings = count(p, len, "transfer-encoding:");
	hosts = count(p, len, "host:");
	CLAIM(lengths + codings <= 1 && hosts <= 1 && (hosts == 1 || h->minor == 0));
	CLAIM(h->framing == (codings ? BODY_CHUNKED : lengths ? BODY_LENGTH : BODY_NONE));
	CLAIM(h->length <= INT64_MAX);
	CLAIM(h->target.len > 0 && h->target.len <= TARGET_MAX);
	inside(h->target, p, h->bytes);
	for (s = &h->host; s <= &h->last_event_id; s++)
		inside(*s, p, h->bytes);
	for (i = 0; i < h->n_if_match; i++)
		inside(h->if_match[i], p, h->bytes);
	for (i = 0; i < h->n_if_none_match; i++)
		inside(h->if_none_match[i], p, h->bytes);
}

/* What was understood, written down anew, is understood alike. */
static void
say_again(const struct head *h)
{
	static char	out[3 * HEAD_MAX];
	struct head	g;
	struct refusal	r;
	size_t		scanned = 0;
	int		n;

	n = snprintf(out, sizeof(out), "%s %.*s HTTP/1.%d\r\n", h->method == M_OTHER ? "X" : method_name(h->method),
	    (int)h->target.len, h->target.p, h->minor);
	if (h->host.p != NULL)
		n += snprintf(out + n, sizeof(out) - (size_t)n, "hOST:%.*s\r\n", (int)h->host.len, h->host.p);
	if (h->framing == BODY_LENGTH)
		n += snprintf(out + n, sizeof(out) - (size_t)n, "Content-Length: %llu\r\n", (unsigned long long)h->length);
	if (h->framing == BODY_CHUNKED)
		n += snprintf(out + n, sizeof(out) - (size_t)n, "Transfer-Encoding:chunked\r\n");
	if (h->range.p != NULL)
		n += snprintf(out + n, sizeof(out) - (size_t)n, "range: %.*s\t\r\n", (int)h->range.len, h->range.p);
	n += snprintf(out + n, sizeof(out) - (size_t)n, "Connection: %s\r\n\r\n", h->keep_alive ? "keep-alive" : "close");
	if (n > (int)HEAD_MAX)
		return;
	CLAIM(head_parse(out, (size_t)n, &scanned, &g, &r) == PARSE_DONE);
	CLAIM(g.method == h->method && g.minor == h->minor && g.framing == h->framing && g.length == h->length);
	CLAIM(g.keep_alive == h->keep_alive);
	CLAIM(g.target.len == h->target.len && memcmp(g.target.p, h->target.p, g.target.len) == 0);
	CLAIM(g.host.len == h->host.len && g.range.len == h->range.len);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct head	 h, g;
	struct refusal	 r = { 0 }, q = { 0 };
	struct cutter	 cut = f_cutter(data, len);
	char		*whole = f_copy(data, len), *part = f_room(0);
	enum parse	 e, f = PARSE_MORE;
	size_t		 n = 0, scanned = 0;

	memset(&h, 0xa5, sizeof(h));
	e = head_parse(whole, len, &scanned, &h, &r);
	for (scanned = 0; n < len && f == PARSE_MORE; ) {
		n += len < 300 ? 1 : f_cut(&cut, len - n);
		free(part);
		part = f_copy(data, n);
		f = head_parse(part, n, &scanned, &g, &q);
	}
	if (e == PARSE_BAD && f == PARSE_MORE) {
		free(part);
		part = f_room(len + 1);
		memcpy(part, data, len);
		part[len] = '\n';
		f = head_parse(part, len + 1, &scanned, &g, &q);
	}
	CLAIM(e == f);
	if (e == PARSE_DONE) {
		same(&h, whole, &g, part);
		plain_check(&h, whole);
		say_again(&h);
	} else if (e == PARSE_BAD) {
		CLAIM(r.status == q.status && r.keep == q.keep && r.detail == q.detail && h.method == g.method);
		CLAIM(r.status >= 400 && r.status < 600 && r.detail != NULL);
	} else
		CLAIM(len < HEAD_MAX);
	free(whole);
	free(part);
	return 0;
}
