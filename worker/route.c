/*
 * worker/route.c - see worker/route.h.
 *
 * Runs in: worker.
 *
 * A request is judged in this order, and the first that fails answers:
 * framing (400, 431, 505), method (501, 405), target (400, 414), tenant and
 * right (401, 404), the body's framing (411, 413, 400, 417), conditions (400),
 * and then the work itself.
 */
#include "config.h"
#include "worker/answer.h"
#include "worker/document.h"
#include "worker/health.h"
#include "worker/route.h"
#include "worker/worker.h"

#define READ_ALLOW	"GET, HEAD, OPTIONS"
#define ALLOW(methods)	"Allow: " methods "\r\n"

typedef void handler(struct worker *, struct conn *, uint32_t tenant);

/* --- small answers ------------------------------------------------------ */

static void
not_found(struct worker *w, struct conn *c, uint32_t tenant)
{
	(void)tenant;
	answer_problem(w, c, 404, "there is nothing of that name; documents are at /TENANT/PATH");
}

static void
folder(struct worker *w, struct conn *c, uint32_t tenant)
{
	(void)tenant;
	answer_problem(w, c, 404, "folders are not listed by this version; ask for a document, without a slash at the end");
}

static void
star_options(struct worker *w, struct conn *c, uint32_t tenant)
{
	(void)tenant;
	answer_no_content(w, c, ALLOW(DOCUMENT_ALLOW), sizeof(ALLOW(DOCUMENT_ALLOW)) - 1);
}

static void
document_options(struct worker *w, struct conn *c, uint32_t tenant)
{
	star_options(w, c, tenant);
}

static void
read_options(struct worker *w, struct conn *c, uint32_t tenant)
{
	(void)tenant;
	answer_no_content(w, c, ALLOW(READ_ALLOW), sizeof(ALLOW(READ_ALLOW)) - 1);
}

/* Relative to this server, never built from Host (F79). */
static void
redirect(struct worker *w, struct conn *c, uint32_t tenant)
{
	const struct target	*t = &w->req.target;
	char			*p;

	(void)tenant;
	p = answer_begin(w, c, 308, 3 * (size_t)t->tenant_len);
	p = PUT_LIT(p, "Location: /");
	p = put_path(p, t->tenant, t->tenant_len);
	p = PUT_LIT(p, "/\r\nContent-Length: 0\r\n");
	answer_end(w, p);
	conn_answered(c);
}

/* --- reserved names ------------------------------------------------------ */

enum { ON_HTTP = 1 << LISTEN_HTTP, ON_METRICS = 1 << LISTEN_METRICS, ON_CONTROL = 1 << LISTEN_CONTROL };

static const struct reserved {
	const char	*name;
	unsigned	 on;		/* which listeners */
	void		(*get)(struct worker *, struct conn *);
} reserved[] = {
	{ "_health", ON_HTTP | ON_METRICS | ON_CONTROL, health_alive },
	{ "_ready", ON_HTTP | ON_METRICS | ON_CONTROL, health_ready },
	{ "_status", ON_METRICS | ON_CONTROL, health_status },
	{ "_metrics", ON_METRICS | ON_CONTROL, health_metrics },
};

static bool
is_tenants(const struct target *t)
{
	static const char	name[] = "_tenants";
	size_t			n = sizeof(name) - 1;

	return t->path_len >= n && memcmp(t->path, name, n) == 0 &&
	    (t->path_len == n ? t->slash : t->path[n] == '/');
}

static void
reserved_name(struct worker *w, struct conn *c, uint32_t tenant)
{
	const struct target	*t = &w->req.target;
	const struct reserved	*r;
	enum method		 m = w->req.head.method;
	size_t			 i;

	if (c->kind == LISTEN_CONTROL && is_tenants(t)) {
		tenant_admin(w, c);
		return;
	}
	for (i = 0; i < sizeof(reserved) / sizeof(reserved[0]); i++) {
		r = &reserved[i];
		if ((r->on & 1u << c->kind) == 0 || t->slash || t->path_len != strlen(r->name) ||
		    memcmp(t->path, r->name, t->path_len) != 0)
			continue;
		if (m == M_GET || m == M_HEAD)
			r->get(w, c);
		else if (m == M_OPTIONS)
			read_options(w, c, tenant);
		else
			answer_problem_with(w, c, 405, "this can only be read: use GET",
			    ALLOW(READ_ALLOW), sizeof(ALLOW(READ_ALLOW)) - 1);
		return;
	}
	not_found(w, c, tenant);
}

/* --- the table ----------------------------------------------------------- */

#define ALL(h) { [M_GET] = h, [M_HEAD] = h, [M_PUT] = h, [M_DELETE] = h, [M_OPTIONS] = h, [M_POST] = h, [M_PATCH] = h }

static const struct entry {
	bool		 admit;		/* below a tenant: who may is asked first */
	const char	*allow;
	handler		*by[M_OTHER];	/* NULL: 405 */
} table[] = {
	[T_ROOT] = { .by = ALL(not_found) },
	[T_STAR] = { .allow = ALLOW(DOCUMENT_ALLOW), .by = { [M_OPTIONS] = star_options } },
	[T_RESERVED] = { .by = ALL(reserved_name) },
	[T_TENANT] = { .allow = ALLOW(READ_ALLOW), .by = {
		[M_GET] = redirect, [M_HEAD] = redirect, [M_PUT] = redirect, [M_DELETE] = redirect,
		[M_OPTIONS] = read_options } },
	[T_FOLDER] = { .admit = true, .allow = ALLOW(READ_ALLOW), .by = {
		[M_GET] = folder, [M_HEAD] = folder, [M_OPTIONS] = read_options } },
	[T_DOCUMENT] = { .admit = true, .allow = ALLOW(DOCUMENT_ALLOW), .by = {
		[M_GET] = document_get, [M_HEAD] = document_get, [M_PUT] = document_put,
		[M_DELETE] = document_delete, [M_OPTIONS] = document_options } },
	[T_TENANT_RESERVED] = { .admit = true, .allow = ALLOW(READ_ALLOW), .by = {
		[M_GET] = not_found, [M_HEAD] = not_found, [M_PUT] = not_found, [M_DELETE] = not_found,
		[M_OPTIONS] = not_found } },
};

static void
not_allowed(struct worker *w, struct conn *c, const char *allow)
{
	answer_problem_with(w, c, 405, "this method is not for this kind of name; Allow says which are",
	    allow, strlen(allow));
}

void
route(struct worker *w, struct conn *c)
{
	struct request		*r = &w->req;
	const struct entry	*e;
	handler			*h;
	uint32_t		 tenant = 0;
	bool			 good;

	if (r->head.method == M_NONE || r->head.method == M_OTHER) {
		answer_problem(w, c, 501, "this server does not know the method; methods are in upper case");
		return;
	}
	good = target_parse(&r->head, r->path, &r->target, &r->refusal);
	e = &table[good ? r->target.kind : T_DOCUMENT];
	if ((h = e->by[r->head.method]) == NULL) {
		r->below_tenant = e->admit;
		not_allowed(w, c, e->allow);
		return;
	}
	if (!good) {
		answer_refusal(w, c, &r->refusal);
		return;
	}
	if (c->kind == LISTEN_METRICS && r->target.kind != T_RESERVED) {
		not_found(w, c, 0);
		return;
	}
	if (r->target.has_token) {
		r->below_tenant = e->admit;
		answer_problem(w, c, 400, "a token in a URL ends up in logs and histories: send it as Authorization: Bearer TOKEN");
		return;
	}
	if (e->admit && !tenant_admit(w, c, &tenant))
		return;
	if (r->head.expect == EXPECT_OTHER && r->head.method != M_PUT) {
		answer_problem(w, c, 417, "the only expectation known here is 100-continue");
		return;
	}
	h(w, c, tenant);
}

/* --- heads --------------------------------------------------------------- */

static void
begin_request(struct worker *w, struct conn *c, const struct head *h)
{
	c->scanned = 0;
	c->left = 0;
	c->close = !h->keep_alive || w->draining;
	c->unread = false;
	c->http10 = h->minor == 0;
	c->body = h->framing == BODY_CHUNKED || (h->framing == BODY_LENGTH && h->length > 0);
	c->fresh |= c->timer == TIMER_HEAD;
	w->req.below_tenant = false;
	in_take(&w->in, h->bytes);
}

enum step
route_step_head(struct worker *w, struct conn *c)
{
	struct request	*r = &w->req;
	size_t		 scanned = c->scanned;

	if (c->out != NULL || c->close)
		return STEP_WRITE;
	if (w->in.n == 0)
		return STEP_READ;
	switch (head_parse(w->in.p, w->in.n, &scanned, &r->head, &r->refusal)) {
	case PARSE_MORE:
		c->scanned = (uint32_t)scanned;
		return STEP_READ;
	case PARSE_DONE:
		count_add(w->count, CW_REQUESTS, 1);
		begin_request(w, c, &r->head);
		route(w, c);
		return STEP_AGAIN;
	case PARSE_BAD:
		break;
	}
	count_add(w->count, CW_REQUESTS, 1);
	r->below_tenant = false;
	in_take(&w->in, w->in.n);
	c->scanned = 0;
	c->left = 0;
	c->body = false;
	c->close = c->unread = true;
	answer_refusal(w, c, &r->refusal);
	return STEP_AGAIN;
}
