/*
 * worker/write.c - see worker/write.h.
 *
 * Runs in: worker.
 */
#include "config.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "shm/bell.h"
#include "shm/log.h"
#include "worker/answer.h"
#include "worker/health.h"
#include "worker/worker.h"

#define CONTINUE	"HTTP/1.1 100 Continue\r\n\r\n"
#define RETRY_AFTER	"Retry-After: 1\r\n"
#define BUDGET		"the server holds as much unwritten input as it may; send the request again in a second"
#define TOO_LARGE	"the body is over the limit of this server (max-document)"

/* --- struct write ---------------------------------------------------------- */

static struct write *
take(struct worker *w)
{
	struct write	*x = SLIST_FIRST(&w->writes.spares);

	if (x == NULL)
		return calloc(1, sizeof(*x));
	SLIST_REMOVE_HEAD(&w->writes.spares, spare);
	w->writes.nspares--;
	memset(x, 0, sizeof(*x));
	return x;
}

static void
give_back(struct worker *w, struct conn *c)
{
	struct write	*x = c->write;

	c->write = NULL;
	free(x->text);
	if (w->writes.nspares == WRITE_SPARE) {
		free(x);
		return;
	}
	SLIST_INSERT_HEAD(&w->writes.spares, x, spare);
	w->writes.nspares++;
}

void
write_abandon(struct worker *w, struct conn *c)
{
	struct write	*x = c->write;

	if (x == NULL)
		return;
	if (c->state == CONN_WAIT)
		w->writes.waiting[x->slot] = NULL;
	else if (c->state == CONN_QUEUE)
		TAILQ_REMOVE(&w->writes.queue, c, queued);
	else if (c->state == CONN_ANSWER)
		submit_free(&w->region.arena, w->lane, x->result.submit);
	if (x->built)
		submit_abort(&w->region.arena, w->lane, &x->build);
	give_back(w, c);
}

/* --- no room ----------------------------------------------------------------- */

/* Nothing of the write is there yet: the connection goes on. */
static void
no_budget(struct worker *w, struct conn *c)
{
	count_add(w->count, CW_BUDGET_REFUSED, 1);
	answer_problem_with(w, c, 503, BUDGET, RETRY_AFTER, sizeof(RETRY_AFTER) - 1);
}

/* It has begun: what was taken is given back, and the connection ends. */
static void
out_of_budget(struct worker *w, struct conn *c)
{
	count_add(w->count, CW_BUDGET_REFUSED, 1);
	conn_refuse(w, c, 503, BUDGET, RETRY_AFTER, sizeof(RETRY_AFTER) - 1);
}

/* --- handing over ----------------------------------------------------------- */

/* There is a free slot. */
static void
submit(struct worker *w, struct conn *c)
{
	struct writes	*ws = &w->writes;
	struct write	*x = c->write;

	submit_number(&w->region.arena, x->submit, lane_peek_number(&ws->lane));
	x->slot = lane_submit(&ws->lane, x->submit, &x->number);
	x->built = false;	/* the lane's now: freed when it is collected */
	ws->waiting[x->slot] = c;
	ws->under_way++;
	ws->ring++;
	conn_to(c, CONN_WAIT);
}

static void
hand_over(struct worker *w, struct conn *c)
{
	struct writes	*ws = &w->writes;
	struct write	*x = c->write;

	x->submit = submit_finish(&w->region.arena, w->lane, &x->build);
	if (x->submit == ARENA_NONE) {
		out_of_budget(w, c);
		return;
	}
	if (TAILQ_EMPTY(&ws->queue) && ws->lane.nfree > 0) {
		submit(w, c);
		return;
	}
	conn_to(c, CONN_QUEUE);
	TAILQ_INSERT_TAIL(&ws->queue, c, queued);
}

enum step
write_step_queue(struct worker *w, struct conn *c)
{
	(void)w;
	(void)c;
	return STEP_WAKE;
}

void
write_ring(struct worker *w)
{
	if (w->writes.ring == 0)
		return;
	bell_add(&w->region.head->committer_bell, w->writes.ring);
	w->writes.ring = 0;
}

/* --- beginning -------------------------------------------------------------- */

bool
write_framing(struct worker *w, struct conn *c, uint64_t limit)
{
	const struct head	*h = &w->req.head;

	if (h->framing == BODY_NONE)
		answer_problem(w, c, 411, "say how long the body is: Content-Length, or Transfer-Encoding: chunked");
	else if (h->framing == BODY_LENGTH && h->length > limit)
		answer_problem(w, c, 413, TOO_LARGE);
	else if (h->content_range.p != NULL)
		answer_problem(w, c, 400, "a part of a document cannot be PUT; send it whole, without Content-Range");
	else if (h->expect == EXPECT_OTHER)
		answer_problem(w, c, 417, "the only expectation known here is 100-continue");
	else
		return true;
	return false;
}

/* The request is acceptable: its body may come. */
static void
expect_body(struct worker *w, struct conn *c, uint64_t limit)
{
	const struct head	*h = &w->req.head;
	struct write		*x = c->write;

	x->chunked = h->framing == BODY_CHUNKED;
	x->limit = limit;
	c->left = x->chunked ? 0 : h->length;
	if (h->expect == EXPECT_CONTINUE && c->body && w->in.n == 0)
		out_bytes(w, c, CONTINUE, sizeof(CONTINUE) - 1);
	c->body = false;
	conn_to(c, CONN_BODY);
}

static void
remember_name(struct write *x, const char *name, size_t len)
{
	x->name_len = (uint8_t)(len < sizeof(x->name) ? len : sizeof(x->name));
	memcpy(x->name, name, x->name_len);
}

void
write_begin(struct worker *w, struct conn *c, const struct submit_args *a)
{
	const struct head	*h = &w->req.head;
	struct write		*x;
	bool			 body = a->op == OP_PUT;

	if (!body && c->body)
		in_refuse_body(w, c);	/* of a DELETE: read past once it is answered */
	if ((x = c->write = take(w)) == NULL) {
		no_budget(w, c);
		return;
	}
	if (submit_begin(&w->region.arena, w->lane, &x->build, a,
	    body && h->framing == BODY_LENGTH ? h->length : 0) == -1) {
		give_back(w, c);
		no_budget(w, c);
		return;
	}
	x->op = (uint8_t)a->op;
	x->built = true;
	if (a->op == OP_PUT || a->op == OP_DELETE)
		remember_name(x, w->req.target.tenant, w->req.target.tenant_len);
	else
		remember_name(x, a->path, a->path_len);
	count_add(w->count, CW_WRITES, 1);
	if (body)
		expect_body(w, c, w->boot->set.max_document);
	else
		hand_over(w, c);
}

void
write_begin_text(struct worker *w, struct conn *c)
{
	struct write	*x;

	if ((x = c->write = take(w)) == NULL || (x->text = malloc(x->text_size = 1024)) == NULL) {
		if (x != NULL)
			give_back(w, c);
		no_budget(w, c);
		return;
	}
	x->op = OP_TENANT_PUT;
	expect_body(w, c, WRITE_TEXT_MAX);
}

void
write_text_done(struct worker *w, struct conn *c, const struct submit_args *a, const void *body, size_t len)
{
	struct write	*x = c->write;
	struct arena	*arena = &w->region.arena;

	if (submit_begin(arena, w->lane, &x->build, a, len) == -1) {
		out_of_budget(w, c);
		return;
	}
	x->built = true;
	/* cannot fail: its length was announced */
	submit_append(arena, w->lane, &x->build, body, len);
	count_add(w->count, CW_WRITES, 1);
	hand_over(w, c);
}

/* --- the body ----------------------------------------------------------------- */

static bool
text_append(struct write *x, const char *p, size_t n)
{
	char	*text;
	size_t	 size = x->text_size;

	while (size - x->text_len < n)
		size *= 2;	/* n and text_len are within WRITE_TEXT_MAX and a window */
	if (size != x->text_size) {
		if ((text = realloc(x->text, size)) == NULL)
			return false;
		x->text = text;
		x->text_size = size;
	}
	memcpy(x->text + x->text_len, p, n);
	x->text_len += n;
	return true;
}

static uint64_t
so_far(const struct write *x)
{
	return x->text != NULL ? x->text_len : x->build.body_len;
}

/* `more` bytes will come: do they still fit?  false: refused. */
static bool
within_limit(struct worker *w, struct conn *c, uint64_t more)
{
	if (more <= c->write->limit - so_far(c->write))
		return true;
	conn_refuse(w, c, 413, TOO_LARGE, "", 0);
	return false;
}

/* Body bytes that are in the window.  false: refused. */
static bool
sink(struct worker *w, struct conn *c, const char *p, size_t n)
{
	struct write	*x = c->write;

	if (n == 0)
		return true;
	if (!within_limit(w, c, n))
		return false;
	if (x->text != NULL ? text_append(x, p, n) :
	    submit_append(&w->region.arena, w->lane, &x->build, p, n) == 0)
		return true;
	out_of_budget(w, c);
	return false;
}

/* PARSE_DONE: the body is whole.  PARSE_BAD: refused. */
static enum parse
take_chunked(struct worker *w, struct conn *c)
{
	struct write	*x = c->write;
	struct refusal	 refusal;
	const char	*data;
	size_t		 used, n;
	enum parse	 e;

	for (;;) {
		e = chunked_next(&x->parse, w->in.p, w->in.n, &used, &data, &n, &refusal);
		if (e == PARSE_BAD) {
			conn_refuse(w, c, refusal.status, refusal.detail, "", 0);
			return PARSE_BAD;
		}
		if (!sink(w, c, data, n))
			return PARSE_BAD;
		in_take(&w->in, used);
		if (e == PARSE_DONE)
			return PARSE_DONE;
		/* a chunk too long is refused by its size, not when its last byte came */
		if (!within_limit(w, c, chunked_left(&x->parse)))
			return PARSE_BAD;
		if (w->in.n == 0 || used == 0)
			return PARSE_MORE;
	}
}

static enum parse
take_length(struct worker *w, struct conn *c)
{
	size_t	n = w->in.n < c->left ? w->in.n : (size_t)c->left;

	if (!sink(w, c, w->in.p, n))
		return PARSE_BAD;
	in_take(&w->in, n);
	c->left -= n;
	return c->left == 0 ? PARSE_DONE : PARSE_MORE;
}

enum step
write_step_body(struct worker *w, struct conn *c)
{
	switch (c->write->chunked ? take_chunked(w, c) : take_length(w, c)) {
	case PARSE_MORE:
		return STEP_READ;
	case PARSE_DONE:
		if (c->write->text != NULL)
			tenant_put_text(w, c);
		else
			hand_over(w, c);
		break;
	case PARSE_BAD:
		break;
	}
	return STEP_AGAIN;
}

bool
write_space(struct worker *w, struct conn *c, void **p, size_t *len)
{
	struct write	*x = c->write;
	uint64_t	 left = x->chunked ? chunked_left(&x->parse) : c->left;

	if (x->text != NULL || left == 0)
		return false;
	if (submit_space(&w->region.arena, w->lane, &x->build, p, len) == -1) {
		out_of_budget(w, c);
		return false;
	}
	if (*len > left)
		*len = (size_t)left;
	return true;
}

void
write_received(struct worker *w, struct conn *c, size_t n)
{
	struct write	*x = c->write;

	if (submit_filled(&w->region.arena, &x->build, n) == -1) {
		out_of_budget(w, c);
		return;
	}
	if (x->chunked)
		chunked_took(&x->parse, n);
	else
		c->left -= n;
}

void
write_cut_short(struct worker *w, struct conn *c)
{
	conn_refuse(w, c, 400, "the body ended before its announced end; nothing was stored", "", 0);
}

/* --- the answer ----------------------------------------------------------------- */

/* "Location: ...\r\n" of what was created; its path still stands in the submission. */
static char *
put_location(struct worker *w, const struct write *x, char *p)
{
	struct submit_view	v;

	p = PUT_LIT(p, "Location: /");
	if (x->op == OP_TENANT_PUT)
		p = PUT_LIT(p, "_tenants/");
	p = put_bytes(p, x->name, x->name_len);
	if (x->op == OP_PUT && submit_view(&w->region.arena, x->result.submit, &v) == 0) {
		*p++ = '/';
		p = put_path(p, (const char *)v.path, v.s->path_len);
	}
	return PUT_LIT(p, "\r\n");
}

static void
created(struct worker *w, struct conn *c, const char *etag, size_t len)
{
	struct write	*x = c->write;
	char		*p;

	p = answer_begin(w, c, 201, 3 * (SUBMIT_PATH_MAX + sizeof(x->name)) + len);
	p = put_location(w, x, p);
	p = put_bytes(p, etag, len);
	p = PUT_LIT(p, "Content-Length: 0\r\n");
	answer_end(w, p);
	conn_answered(c);
}

static void
problem_full(struct worker *w, struct conn *c)
{
	char	why[HEALTH_REASON], detail[HEALTH_REASON + 128];

	health_reason(w, why);
	snprintf(detail, sizeof(detail), "the disk is full; nothing was stored. Delete something, or ask the "
	    "administrator%s%s%s", why[0] != '\0' ? " (" : "", why, why[0] != '\0' ? ")" : "");
	answer_problem(w, c, 507, detail);
}

static void
problem_of(struct worker *w, struct conn *c, enum outcome o, const char *etag, size_t len)
{
	switch (o) {
	case OUT_ABSENT:
		answer_problem(w, c, 404, "there is nothing of that name to delete");
		break;
	case OUT_CONDITION:
		answer_problem_with(w, c, 412, "a condition of the request does not hold for the document as it is now; "
		    "ETag names it, where there is one", etag, len);
		break;
	case OUT_CONFLICT:
		answer_problem(w, c, 409, "a name is a document or a folder, not both: there is one of the other kind");
		break;
	case OUT_NO_TENANT:
		tenant_absent(w, c);
		break;
	case OUT_FULL:
		problem_full(w, c);
		break;
	case OUT_QUOTA:
		answer_problem(w, c, 507, "the tenant is over its quota; nothing was stored. Delete something first");
		break;
	case OUT_READONLY:
		answer_problem(w, c, 503, "the store takes no writes now; nothing was stored. /_ready says why");
		break;
	case OUT_TOO_LARGE:
		answer_problem(w, c, 413, TOO_LARGE);
		break;
	case OUT_DAMAGED:
		answer_problem(w, c, 500, TENANT_DAMAGED "; nothing was stored");
		break;
	case OUT_UNKNOWN:
		answer_problem(w, c, 500, "the write could not be made durable: it happened whole or not at all. "
		    "Read the document to see which");
		break;
	default:
		answer_problem(w, c, 500, "the write failed inside the server: it happened whole or not at all. "
		    "Read the document to see which");
		break;
	}
}

enum step
write_step_answer(struct worker *w, struct conn *c)
{
	struct write			*x = c->write;
	const struct lane_result	*r = &x->result;
	struct tag			 tag = { .seq = r->seq, .run = r->run };
	bool				 document = x->op == OP_PUT || x->op == OP_DELETE;
	char				 etag[ETAG_MAX + 16];
	size_t				 len = 0;

	/* w->req is another connection's by now */
	w->req.head.method = M_NONE;
	w->req.below_tenant = document;
	c->close |= w->draining;
	if (document && r->seq != 0 && r->outcome != OUT_DELETED)
		len = (size_t)(put_etag(etag, &tag) - etag);
	if (document && (int64_t)(r->time_ms / 1000) > w->clock.date_s)
		clock_floor(&w->clock, (int64_t)(r->time_ms / 1000));
	switch (r->outcome) {
	case OUT_CREATED:
		created(w, c, etag, len);
		break;
	case OUT_REPLACED:
	case OUT_DELETED:
		answer_no_content(w, c, etag, len);
		break;
	default:
		problem_of(w, c, r->outcome, etag, len);
		break;
	}
	submit_free(&w->region.arena, w->lane, r->submit);
	give_back(w, c);
	return STEP_AGAIN;
}

/* --- collecting ------------------------------------------------------------------- */

/* Slots have become free: who waited for one goes first. */
static void
feed(struct worker *w)
{
	struct writes	*ws = &w->writes;
	struct conn	*c;

	while (ws->lane.nfree > 0 && (c = TAILQ_FIRST(&ws->queue)) != NULL) {
		TAILQ_REMOVE(&ws->queue, c, queued);
		submit(w, c);
	}
}

void
write_collect(struct worker *w)
{
	struct writes		*ws = &w->writes;
	struct lane_result	 r;
	struct conn		*c;

	while (ws->under_way > 0 && lane_collect(&ws->lane, &r)) {
		ws->under_way--;
		c = ws->waiting[r.slot];
		ws->waiting[r.slot] = NULL;
		feed(w);
		if (c != NULL && c->write->number == r.number)
			conn_complete(w, c, &r);
		else	/* a predecessor's, or of a connection that is gone */
			submit_free(&w->region.arena, w->lane, r.submit);
	}
}

/* --- after a predecessor's death ---------------------------------------------------- */

struct orphans {
	struct worker	*w;
	uint8_t		*keep;		/* a bit per granule */
	unsigned	 n;
	uint32_t	 submit[LANE_SLOTS];
};

static uint32_t
granule_of(const struct arena *a, uint32_t off)
{
	return (uint32_t)((off - a->first) / ARENA_GRANULE);
}

static void
keep_run(void *arg, uint32_t off, unsigned n)
{
	struct orphans	*o = arg;
	uint32_t	 i = granule_of(&o->w->region.arena, off);

	for (; n > 0; n--, i++)
		o->keep[i / 8] |= (uint8_t)(1u << i % 8);
}

static bool
is_kept(void *arg, uint32_t off)
{
	const struct orphans	*o = arg;
	uint32_t		 i = granule_of(&o->w->region.arena, off);

	return (o->keep[i / 8] >> i % 8 & 1) != 0;
}

static void
orphan(void *arg, unsigned slot)
{
	struct orphans	*o = arg;
	struct worker	*w = o->w;
	uint32_t	 off = w->writes.lane.lane->slots[slot].submit;

	w->writes.under_way++;
	if (submit_runs(&w->region.arena, off, keep_run, o) == 0)
		o->submit[o->n++] = off;
	else
		log_warnx("a submission of the last worker on this lane is broken (slot %u)", slot);
}

void
write_attach(struct worker *w)
{
	struct arena	*arena = &w->region.arena;
	struct orphans	 o = { .w = w };
	unsigned	 i;

	TAILQ_INIT(&w->writes.queue);
	SLIST_INIT(&w->writes.spares);
	if ((o.keep = calloc(1, arena->ngranules / 8 + 1)) == NULL)
		fatal("no memory");
	lane_attach(&w->writes.lane, &w->region.lanes[w->lane], orphan, &o);
	arena_reclaim(arena, w->lane, is_kept, &o);
	for (i = 0; i < o.n; i++)
		submit_adopt(arena, w->lane, o.submit[i]);
	w->writes.ring = o.n;	/* it may have died before it did */
	if (o.n > 0)
		log_info("%u write%s of the last worker on this lane still under way", o.n, log_s(o.n));
	free(o.keep);
}
