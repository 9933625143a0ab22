/*
 * worker/document.c - see worker/document.h.
 *
 * Runs in: worker.
 */
#include "config.h"
#include "worker/answer.h"
#include "worker/document.h"
#include "worker/worker.h"

#define DEFAULT_TYPE	"application/octet-stream"
#define FIXED_FIELDS	"Accept-Ranges: bytes\r\nX-Content-Type-Options: nosniff\r\nContent-Security-Policy: sandbox\r\n"
#define NO_CACHE	"Cache-Control: no-cache\r\n"
#define DAMAGED		"what is stored of this document is damaged and was not sent; restore it from a backup, or PUT it again"
#define KEPT_MAX	4096u

/* --- meta ---------------------------------------------------------------- */

static bool
starts(const char *p, size_t len, const char *with, size_t n)
{
	return len >= n && memcmp(p, with, n) == 0;
}

#define STARTS(p, len, lit) starts((p), (len), (lit), sizeof(lit) - 1)

struct meta_view
document_meta(const char *meta, uint32_t len)
{
	struct meta_view	 v = { 0 };
	const char		*nl;

	if (STARTS(meta, len, "Cache-Control") && (nl = memchr(meta, '\n', len)) != NULL)
		v.cache_len = (uint32_t)(nl + 1 - meta);
	v.typed = STARTS(meta + v.cache_len, len - v.cache_len, "Content-Type");
	return v;
}

static bool
is_default_type(const struct slice *type)
{
	return type->len == sizeof(DEFAULT_TYPE) - 1 && memcmp(type->p, DEFAULT_TYPE, type->len) == 0;
}

/* The five fields that are kept, as lines.  Returns the length; over max: it does not fit. */
static size_t
make_meta(const struct head *h, char *out, size_t max)
{
	const struct {
		const char		*name;
		const struct slice	*value;
	} kept[] = {
		{ "Cache-Control: ", &h->cache_control },
		{ "Content-Type: ", &h->content_type },
		{ "Content-Encoding: ", &h->content_encoding },
		{ "Content-Language: ", &h->content_language },
		{ "Content-Disposition: ", &h->content_disposition },
	};
	size_t	i, n = 0, name;

	for (i = 0; i < sizeof(kept) / sizeof(kept[0]); i++) {
		if (kept[i].value->p == NULL)
			continue;
		/* what is answered where there is none: 40 bytes less in each such record */
		if (kept[i].value == &h->content_type && is_default_type(kept[i].value))
			continue;
		name = strlen(kept[i].name);
		if (name + kept[i].value->len + 2 > max - n)
			return max + 1;
		memcpy(out + n, kept[i].name, name);
		memcpy(out + n + name, kept[i].value->p, kept[i].value->len);
		n += name + kept[i].value->len;
		out[n++] = '\r';
		out[n++] = '\n';
	}
	return n;
}

/* --- conditions ---------------------------------------------------------- */

static bool
has_conditions(const struct head *h)
{
	return h->n_if_match > 0 || h->n_if_none_match > 0 || h->if_modified_since.p != NULL ||
	    h->if_unmodified_since.p != NULL;
}

/* Parses what is there; false: refused. */
static bool
conditions(struct worker *w, struct conn *c)
{
	struct request	*r = &w->req;

	if (!has_conditions(&r->head)) {
		r->cond.cond = 0;
		r->cond.n_match = r->cond.n_none = 0;
		r->cond.has_modified = false;
		return true;
	}
	if (cond_parse(&r->head, &r->cond, &r->refusal))
		return true;
	answer_refusal(w, c, &r->refusal);
	return false;
}

/* --- GET and HEAD --------------------------------------------------------- */

static void
damaged(struct worker *w, struct conn *c)
{
	count_add(w->count, CW_DAMAGED_READS, 1);	/* the store has logged where */
	answer_problem(w, c, 500, DAMAGED);
}

static void
not_modified(struct worker *w, struct conn *c, const struct doc *d)
{
	struct meta_view	 v = document_meta((const char *)d->meta, d->meta_len);
	char			*p;

	p = answer_begin(w, c, 304, v.cache_len);
	p = put_etag(p, &d->tag);
	p = v.cache_len > 0 ? put_bytes(p, d->meta, v.cache_len) : PUT_LIT(p, NO_CACHE);
	answer_end(w, p);
	conn_answered(c);
}

static void
failed(struct worker *w, struct conn *c, const struct doc *d)
{
	char	etag[ETAG_MAX + 16], *end;

	end = put_etag(etag, &d->tag);
	answer_problem_with(w, c, 412, "a condition of the request does not hold for the document as it is now; ETag names it",
	    etag, (size_t)(end - etag));
}

static void
unsatisfiable(struct worker *w, struct conn *c, const struct doc *d)
{
	char	fields[64], *p;

	p = PUT_LIT(fields, "Content-Range: bytes */");
	p = put_u64(p, d->body_len);
	p = PUT_LIT(p, "\r\n");
	answer_problem_with(w, c, 416, "the range lies behind the end of the document; Content-Range says how long it is",
	    fields, (size_t)(p - fields));
}

struct part_asked {		/* bytes from..to */
	uint32_t	from, to;
	bool		range;		/* a range was asked for: 206, also where it is the whole */
};

/* Sends the part under a 200 or a 206; it has been checked as far as its first window goes. */
static void
send_doc(struct worker *w, struct conn *c, const struct doc *d, const struct part_asked *part)
{
	uint32_t		 from = part->from, to = part->to;
	bool			 body = w->req.head.method == M_GET && to > from;
	bool			 small = body && to - from <= OUT_SMALL;
	struct meta_view	 v = document_meta((const char *)d->meta, d->meta_len);
	char			*p;

	p = answer_begin(w, c, part->range ? 206 : 200, (size_t)d->meta_len + (small ? to - from : 0));
	p = put_etag(p, &d->tag);
	p = PUT_LIT(p, "Last-Modified: ");
	p = clock_spell(&w->clock, p, (int64_t)(d->time_ms / 1000));
	p = PUT_LIT(p, "\r\nContent-Length: ");
	p = put_u64(p, to - from);
	p = PUT_LIT(p, "\r\n");
	if (part->range) {
		p = PUT_LIT(p, "Content-Range: bytes ");
		p = put_u64(p, from);
		*p++ = '-';
		p = put_u64(p, to - 1);
		*p++ = '/';
		p = put_u64(p, d->body_len);
		p = PUT_LIT(p, "\r\n");
	}
	if (v.cache_len == 0)
		p = PUT_LIT(p, NO_CACHE);
	if (!v.typed)
		p = PUT_LIT(p, "Content-Type: " DEFAULT_TYPE "\r\n");
	p = put_bytes(p, d->meta, d->meta_len);
	p = PUT_LIT(p, FIXED_FIELDS "\r\n");
	if (small) {
		if (!doc_copy(w->reader, p, d->body + from, to - from)) {
			damaged(w, c);	/* what was spelled so far is spelled over */
			return;
		}
		p += to - from;
	}
	out_put(&w->out, p);
	if (body && !small)
		out_doc(w, c, d, from, to);
	conn_answered(c);
}

/* What of the body is asked for.  false: answered (416). */
static bool
choose_part(struct worker *w, struct conn *c, const struct doc *d, int64_t modified_s, struct part_asked *part)
{
	const struct head	*h = &w->req.head;
	uint64_t		 first, last;

	*part = (struct part_asked){ .to = d->body_len };
	if (h->range.p == NULL || h->method != M_GET)
		return true;
	switch (range_parse(h, d->body_len, &d->tag, modified_s, &first, &last)) {
	case RANGE_NONE:
		return true;
	case RANGE_ONE:
		*part = (struct part_asked){ .from = (uint32_t)first, .to = (uint32_t)last + 1, .range = true };
		return true;
	case RANGE_UNSATISFIABLE:
		break;
	}
	unsatisfiable(w, c, d);
	return false;
}

static void
answer_doc(struct worker *w, struct conn *c, const struct doc *d)
{
	int64_t			modified_s = (int64_t)(d->time_ms / 1000);
	struct part_asked	part;

	if (modified_s > w->clock.date_s)
		clock_floor(&w->clock, modified_s);
	if (has_conditions(&w->req.head)) {
		switch (cond_read(&w->req.cond, &d->tag, modified_s)) {
		case V_NOT_MODIFIED:
			not_modified(w, c, d);
			return;
		case V_FAILED:
			failed(w, c, d);
			return;
		case V_OK:
			break;
		}
	}
	if (!choose_part(w, c, d, modified_s, &part))
		return;
	if (w->req.head.method == M_GET && part.to > part.from &&
	    !doc_check(w->reader, d, part.from, out_first(part.from, part.to)))
		damaged(w, c);
	else
		send_doc(w, c, d, &part);
}

void
document_get(struct worker *w, struct conn *c, uint32_t tenant)
{
	const struct target	*t = &w->req.target;
	struct doc		 d;

	if (!conditions(w, c))
		return;
	count_add(w->count, CW_GETS, 1);
	switch (read_doc(w->reader, tenant, t->path, t->path_len, &d)) {
	case 1:
		answer_doc(w, c, &d);
		return;
	case 0:
		answer_problem(w, c, 404, "there is no document of that name");
		return;
	default:
		damaged(w, c);
	}
}

/* --- PUT and DELETE ------------------------------------------------------- */

static void
write_args(const struct worker *w, struct submit_args *a, enum submit_op op, uint32_t tenant)
{
	const struct request	*r = &w->req;

	*a = (struct submit_args){
		.op = op,
		.cond = r->cond.cond,
		.tenant = tenant,
		.path = r->target.path,
		.path_len = (uint16_t)r->target.path_len,
		.match = r->cond.match,
		.n_match = r->cond.n_match,
		.none = r->cond.none,
		.n_none = r->cond.n_none,
		.unmodified_s = r->cond.unmodified_s,
	};
}

void
document_put(struct worker *w, struct conn *c, uint32_t tenant)
{
	struct submit_args	a;
	char			meta[SUBMIT_META_MAX];
	size_t			n;

	if (!write_framing(w, c, w->boot->set.max_document))
		return;
	n = make_meta(&w->req.head, meta, sizeof(meta));
	if (w->req.head.kept_bytes > KEPT_MAX || n > sizeof(meta)) {
		answer_problem(w, c, 431, "the fields kept with a document (Content-Type and the like) are over 4 KiB together");
		return;
	}
	if (!conditions(w, c))
		return;
	write_args(w, &a, OP_PUT, tenant);
	a.meta = meta;
	a.meta_len = (uint16_t)n;
	write_begin(w, c, &a);
}

void
document_delete(struct worker *w, struct conn *c, uint32_t tenant)
{
	struct submit_args	a;

	if (!conditions(w, c))
		return;
	write_args(w, &a, OP_DELETE, tenant);
	write_begin(w, c, &a);
}
