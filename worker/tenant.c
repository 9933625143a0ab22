/*
 * worker/tenant.c - see worker/tenant.h.
 *
 * Runs in: worker.
 */
#include "config.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "worker/answer.h"
#include "worker/settings.h"
#include "worker/worker.h"

#define CHALLENGE	"WWW-Authenticate: Bearer realm=\"holdfast\", Basic realm=\"holdfast\"\r\n"
#define LIST_ALLOW	"Allow: GET, HEAD, OPTIONS\r\n"
#define TENANT_ALLOW	"Allow: GET, HEAD, PUT, DELETE, OPTIONS\r\n"

/* --- who may -------------------------------------------------------------- */

static unsigned
name_hash(const char *p, size_t n)
{
	uint32_t	h = 2166136261u;	/* FNV-1a: a cache, nobody's collision hurts anybody */
	size_t		i;

	for (i = 0; i < n; i++)
		h = (h ^ (unsigned char)p[i]) * 16777619u;
	return (h ^ h >> 16) % TENANT_CACHE;
}

/* NULL: the catalog is damaged there. */
static const struct tenant_known *
look_up(struct worker *w, const char *name, size_t len)
{
	struct tenant_known	*k = &w->tenants.known[name_hash(name, len)];
	struct tenant_settings	 s;
	uint64_t		 seq = read_catalog_seq(w->reader);
	int			 r;

	if (k->seq == seq && k->len == len && k->len > 0 && memcmp(k->name, name, len) == 0)
		return k;
	if ((r = read_tenant(w->reader, name, len, &s)) == -1)
		return NULL;
	k->seq = seq;
	k->len = (uint8_t)len;
	memcpy(k->name, name, len);
	k->found = r == 1;
	k->id = k->found ? s.id : 0;
	k->public = k->found ? s.public : PUBLIC_NONE;
	return k;
}

void
tenant_absent(struct worker *w, struct conn *c)
{
	if (c->kind == LISTEN_CONTROL)
		answer_problem(w, c, 404, "there is no such tenant; PUT /_tenants/NAME makes one");
	else
		answer_problem_with(w, c, 401, "this needs a token of the tenant: send Authorization: Bearer TOKEN",
		    CHALLENGE, sizeof(CHALLENGE) - 1);
}

static bool
may(const struct conn *c, const struct tenant_known *k, enum method m)
{
	if (c->kind == LISTEN_CONTROL || k->public == PUBLIC_WRITE)
		return true;
	return k->public == PUBLIC_READ && (m == M_GET || m == M_HEAD || m == M_OPTIONS);
}

static bool
refreshed(struct worker *w, struct conn *c)
{
	if (read_refresh(w->reader))
		return true;
	answer_problem_with(w, c, 503, "the store is being recovered; try again in a second",
	    "Retry-After: 1\r\n", sizeof("Retry-After: 1\r\n") - 1);
	return false;
}

bool
tenant_admit(struct worker *w, struct conn *c, uint32_t *id)
{
	const struct target		*t = &w->req.target;
	const struct tenant_known	*k;

	w->req.below_tenant = true;
	if (!refreshed(w, c))
		return false;
	/* no token is valid in this version: one that is sent is wrong, wherever */
	if (!t->tenant_ok || (c->kind != LISTEN_CONTROL && w->req.head.authorization.p != NULL)) {
		tenant_absent(w, c);
		return false;
	}
	if ((k = look_up(w, t->tenant, t->tenant_len)) == NULL) {
		answer_problem(w, c, 500, TENANT_DAMAGED);
		return false;
	}
	if (!k->found || !may(c, k, w->req.head.method)) {
		tenant_absent(w, c);
		return false;
	}
	*id = k->id;
	return true;
}

/* --- administration --------------------------------------------------------- */

bool
tenant_name_ok(const char *p, size_t n)
{
	size_t	i;

	if (n < 1 || n > TENANT_NAME_MAX || p[0] == '-')
		return false;
	for (i = 0; i < n; i++)
		if (!((p[i] >= 'a' && p[i] <= 'z') || (p[i] >= '0' && p[i] <= '9') || p[i] == '-'))
			return false;
	return true;
}

/* {"name":"shop","public":"read","documents":12,"bytes":3456}  -1: damaged. */
static int
print_tenant(struct worker *w, FILE *f, const char *name, size_t len, const struct tenant_settings *s)
{
	uint64_t	documents, bytes;

	if (read_usage(w->reader, s->id, &documents, &bytes) == -1)
		return -1;
	fprintf(f, "{\"name\":\"%.*s\",\"public\":\"%s\",\"documents\":%" PRIu64 ",\"bytes\":%" PRIu64 "}",
	    (int)len, name, settings_public_name(s->public), documents, bytes);
	return 0;
}

static int
print_list(struct worker *w, FILE *f)
{
	struct tenant_settings	s;
	char			name[TENANT_NAME_MAX + 1] = "", after[TENANT_NAME_MAX + 1];
	const char		*comma = "";
	int			r;

	fputs("{\"tenants\":[", f);
	for (;;) {
		memcpy(after, name, sizeof(after));
		if ((r = read_tenants(w->reader, after, strlen(after), name, &s)) != 1)
			break;
		fputs(comma, f);
		if (print_tenant(w, f, name, strlen(name), &s) == -1)
			return -1;
		comma = ",";
	}
	fputs("]}\n", f);
	return r;
}

/* One tenant, or all where s is NULL. */
static void
show(struct worker *w, struct conn *c, const char *name, size_t len, const struct tenant_settings *s)
{
	char	*text = NULL;
	size_t	 n = 0;
	FILE	*f;
	int	 r;

	if ((f = open_memstream(&text, &n)) == NULL) {
		answer_problem(w, c, 503, "the server is short of memory; try again");
		return;
	}
	if (s == NULL)
		r = print_list(w, f);
	else if ((r = print_tenant(w, f, name, len, s)) == 0)
		fputc('\n', f);
	if (fclose(f) == EOF)
		answer_problem(w, c, 503, "the server is short of memory; try again");
	else if (r == -1)
		answer_problem(w, c, 500, "what is stored of a tenant is damaged");
	else
		answer_text(w, c, "application/json", text, n);
	free(text);
}

static void
get(struct worker *w, struct conn *c, const char *name, size_t len)
{
	struct tenant_settings	s;

	switch (tenant_name_ok(name, len) ? read_tenant(w->reader, name, len, &s) : 0) {
	case 1:
		show(w, c, name, len, &s);
		return;
	case 0:
		tenant_absent(w, c);
		return;
	default:
		answer_problem(w, c, 500, TENANT_DAMAGED);
		return;
	}
}

static void
put(struct worker *w, struct conn *c, const char *name, size_t len)
{
	if (!tenant_name_ok(name, len)) {
		answer_problem(w, c, 400, "a tenant's name is 1 to 63 of a-z, 0-9 and -, and does not start with -");
		return;
	}
	if (!write_framing(w, c, WRITE_TEXT_MAX))
		return;
	write_begin_text(w, c);
	if (c->write != NULL) {
		/* fits: the name follows the rule */
		memcpy(c->write->name, name, len);
		c->write->name_len = (uint8_t)len;
	}
}

void
tenant_put_text(struct worker *w, struct conn *c)
{
	struct write		*x = c->write;
	struct tenant_settings	 s;
	const char		*detail = "settings are a JSON object: {\"public\":\"none\"}";
	struct submit_args	 a = { .op = OP_TENANT_PUT, .path = x->name, .path_len = x->name_len };

	if (x->text_len == 0 || !settings_parse(x->text, x->text_len, &s, &detail)) {
		w->req.head.method = M_NONE;
		w->req.below_tenant = false;
		write_abandon(w, c);
		answer_problem(w, c, 400, detail);
		return;
	}
	write_text_done(w, c, &a, &s, sizeof(s));
}

static void
drop(struct worker *w, struct conn *c, const char *name, size_t len)
{
	struct submit_args	a = { .op = OP_TENANT_DROP, .path = name, .path_len = (uint16_t)len };

	if (tenant_name_ok(name, len))
		write_begin(w, c, &a);
	else
		tenant_absent(w, c);
}

static void
methods(struct worker *w, struct conn *c, const char *allow)
{
	if (w->req.head.method == M_OPTIONS)
		answer_no_content(w, c, allow, strlen(allow));
	else
		answer_problem_with(w, c, 405, "this method is not for tenants; Allow says which are", allow, strlen(allow));
}

void
tenant_admin(struct worker *w, struct conn *c)
{
	static const char	 prefix[] = "_tenants/";
	const struct target	*t = &w->req.target;
	size_t			 skip = sizeof(prefix) - 1;
	enum method		 m = w->req.head.method;
	const char		*name = t->path + skip;
	size_t			 len = t->path_len > skip ? t->path_len - skip : 0;

	if (len > 0 && (t->slash || memchr(name, '/', len) != NULL))
		answer_problem(w, c, 404, "there is nothing of that name below a tenant");
	else if (m != M_PUT && m != M_DELETE && m != M_GET && m != M_HEAD)
		methods(w, c, len == 0 ? LIST_ALLOW : TENANT_ALLOW);
	else if (!refreshed(w, c))
		return;
	else if (len == 0 && (m == M_GET || m == M_HEAD))
		show(w, c, NULL, 0, NULL);
	else if (len == 0)
		methods(w, c, LIST_ALLOW);
	else if (m == M_PUT)
		put(w, c, name, len);
	else if (m == M_DELETE)
		drop(w, c, name, len);
	else
		get(w, c, name, len);
}
