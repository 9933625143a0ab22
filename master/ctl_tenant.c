/*
 * master/ctl_tenant.c - holdfastctl tenant: add, set, show, remove, list.
 * Runs in: holdfastctl.
 */
#include "config.h"
#include <bsd/string.h>
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "master/ctl.h"

/* A setting: the option, and the member of the JSON that it becomes. */
static const struct setting {
	const char	*option, *member;
	const char	*values;	/* allowed ones, between bars */
} settings[] = {
	{ "public", "public", "|none|read|write|" },
};
#define NSETTINGS	(sizeof(settings) / sizeof(settings[0]))
#define VALUE_MAX	64u

struct values {
	bool	set[NSETTINGS];
	char	text[NSETTINGS][VALUE_MAX];	/* as JSON */
};

/* The rule of names, so that a target never has to be escaped. */
static bool
name_ok(const char *name)
{
	size_t	n = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-");

	return n >= 1 && n <= 63 && name[n] == '\0' && name[0] != '-';
}

static const char *
target(const char *name, char *buf, size_t len)
{
	if (!name_ok(name)) {
		(void)fprintf(stderr, "holdfastctl: \"%s\" is no name for a tenant: a-z, 0-9 and -, "
		    "not - first, at most 63\n", name);
		exit(CTL_USAGE);
	}
	(void)snprintf(buf, len, "/_tenants/%s", name);
	return buf;
}

static bool
allowed(const struct setting *s, const char *value)
{
	char	barred[VALUE_MAX];

	return strchr(value, '|') == NULL &&
	    (size_t)snprintf(barred, sizeof(barred), "|%s|", value) < sizeof(barred) &&
	    strstr(s->values, barred) != NULL;
}

/* Options before or behind the name; returns the name. */
static const char *
parse_options(int argc, char *argv[], struct values *v)
{
	struct option	opts[NSETTINGS + 1] = { 0 };
	int		i;

	for (size_t k = 0; k < NSETTINGS; k++)
		opts[k] = (struct option){ settings[k].option, required_argument, NULL, (int)k };
	*v = (struct values){ 0 };
	optind = 0;	/* GNU: start over, this is another vector */
	opterr = 0;
	while ((i = getopt_long(argc, argv, "", opts, NULL)) != -1) {
		if (i == '?')
			break;
		if (!allowed(&settings[i], optarg)) {
			(void)fprintf(stderr, "holdfastctl: --%s cannot be \"%s\"\n", settings[i].option, optarg);
			exit(CTL_USAGE);
		}
		v->set[i] = true;
		(void)snprintf(v->text[i], VALUE_MAX, "\"%s\"", optarg);
	}
	if (i == '?' || optind != argc - 1)
		ctl_usage();
	return argv[optind];
}

/* An answer that is not what was agreed on. */
static int
nonsense(const char *socket)
{
	errno = EPROTO;
	return ctl_unavailable(socket);
}

/* 0 with the answer, else the exit code. */
static int
ask(const char *socket, const char *method, const char *where, const char *body, struct answer *a)
{
	int	rc;

	if (ctl_request(socket, method, where, body, a) == -1)
		return ctl_unavailable(socket);
	if (a->status >= 200 && a->status < 300)
		return 0;
	rc = ctl_refused(a);
	free(a->body);
	return rc;
}

/* The tenant's present settings, where no option has set them anew. */
static bool
merge(const struct answer *a, struct values *v)
{
	char		 name[32];
	const char	*raw;
	size_t		 len;
	struct ctl_json	 j;

	ctl_json_begin(&j, a->body, a->len);
	if (ctl_json_enter(&j, '{'))
		while (ctl_json_member(&j, name, sizeof(name))) {
			if (!ctl_json_raw(&j, &raw, &len))
				break;
			for (size_t i = 0; i < NSETTINGS; i++)
				if (!v->set[i] && strcmp(settings[i].member, name) == 0 && len < VALUE_MAX) {
					memcpy(v->text[i], raw, len);
					v->text[i][len] = '\0';
					v->set[i] = true;
				}
		}
	return ctl_json_end(&j);
}

static int
put(const char *socket, const char *where, const struct values *v)
{
	char		body[NSETTINGS * (VALUE_MAX + 32) + 3] = "{";
	struct answer	a;
	int		rc;

	for (size_t i = 0; i < NSETTINGS; i++)
		if (v->set[i]) {
			size_t	n = strlen(body);

			(void)snprintf(body + n, sizeof(body) - n, "%s\"%s\":%s", n > 1 ? "," : "",
			    settings[i].member, v->text[i]);
		}
	(void)strlcat(body, "}", sizeof(body));
	if ((rc = ask(socket, "PUT", where, body, &a)) == 0)
		free(a.body);
	return rc;
}

static int
tenant_add(const char *socket, int argc, char *argv[])
{
	char		where[96];
	struct values	v;
	struct answer	a;
	const char	*name = parse_options(argc, argv, &v);

	(void)target(name, where, sizeof(where));
	if (ctl_request(socket, "GET", where, NULL, &a) == -1)
		return ctl_unavailable(socket);
	free(a.body);
	if (a.status == 200) {
		(void)fprintf(stderr, "holdfastctl: tenant %s exists; change it with: tenant set\n", name);
		return CTL_REFUSED;
	}
	return put(socket, where, &v);
}

/* The server replaces all settings at once; what is not named here stays as it is. */
static int
tenant_set(const char *socket, int argc, char *argv[])
{
	char		where[96];
	struct values	v;
	struct answer	a;
	bool		ok;
	int		rc;

	(void)target(parse_options(argc, argv, &v), where, sizeof(where));
	if ((rc = ask(socket, "GET", where, NULL, &a)) != 0)
		return rc;
	ok = merge(&a, &v);
	free(a.body);
	return ok ? put(socket, where, &v) : nonsense(socket);
}

static int
tenant_show(const char *socket, int argc, char *argv[])
{
	char		 where[96], name[64], text[256];
	const char	*raw;
	size_t		 len;
	struct answer	 a;
	struct ctl_json	 j;
	int		 rc;

	if (argc != 2)
		ctl_usage();
	if ((rc = ask(socket, "GET", target(argv[1], where, sizeof(where)), NULL, &a)) != 0)
		return rc;
	ctl_json_begin(&j, a.body, a.len);
	if (ctl_json_enter(&j, '{'))
		while (ctl_json_member(&j, name, sizeof(name))) {
			if (ctl_json_peek(&j) == '"') {
				if (ctl_json_string(&j, text, sizeof(text)))
					(void)printf("%s: %s\n", name, text);
			} else if (ctl_json_raw(&j, &raw, &len))
				(void)printf("%s: %.*s\n", name, (int)len, raw);
		}
	rc = ctl_json_end(&j) ? CTL_OK : nonsense(socket);
	free(a.body);
	return rc;
}

static int
tenant_remove(const char *socket, int argc, char *argv[])
{
	char		where[96];
	struct answer	a;
	int		rc;

	if (argc != 2)
		ctl_usage();
	if ((rc = ask(socket, "DELETE", target(argv[1], where, sizeof(where)), NULL, &a)) == 0)
		free(a.body);
	return rc;
}

/* One element of the list; false where it is not one. */
static bool
list_row(struct ctl_json *j)
{
	char	member[32], raw[32], name[64] = "?", public[16] = "?", documents[24] = "?", bytes[24] = "?";

	if (!ctl_json_enter(j, '{'))
		return false;
	while (ctl_json_member(j, member, sizeof(member))) {
		const char	*p;
		size_t		 n;

		if (strcmp(member, "name") == 0)
			(void)ctl_json_string(j, name, sizeof(name));
		else if (strcmp(member, "public") == 0)
			(void)ctl_json_string(j, public, sizeof(public));
		else if (ctl_json_raw(j, &p, &n) && n < sizeof(raw)) {
			(void)snprintf(raw, sizeof(raw), "%.*s", (int)n, p);
			if (strcmp(member, "documents") == 0)
				(void)strlcpy(documents, raw, sizeof(documents));
			else if (strcmp(member, "bytes") == 0)
				(void)strlcpy(bytes, raw, sizeof(bytes));
		}
	}
	if (!j->bad)
		(void)printf("%-32s %-6s %12s %16s\n", name, public, documents, bytes);
	return !j->bad;
}

static int
tenant_list(const char *socket, int argc, char *argv[])
{
	char		member[32];
	struct answer	a;
	struct ctl_json	j;
	int		rc;

	(void)argv;
	if (argc != 1)
		ctl_usage();
	if ((rc = ask(socket, "GET", "/_tenants/", NULL, &a)) != 0)
		return rc;
	(void)printf("%-32s %-6s %12s %16s\n", "NAME", "PUBLIC", "DOCUMENTS", "BYTES");
	ctl_json_begin(&j, a.body, a.len);
	if (ctl_json_enter(&j, '{'))
		while (ctl_json_member(&j, member, sizeof(member))) {
			if (strcmp(member, "tenants") != 0) {
				(void)ctl_json_skip(&j);
				continue;
			}
			if (ctl_json_enter(&j, '['))
				while (ctl_json_element(&j) && list_row(&j))
					continue;
		}
	rc = ctl_json_end(&j) ? CTL_OK : nonsense(socket);
	free(a.body);
	return rc;
}

static const struct {
	const char	*name;
	int		(*run)(const char *socket, int argc, char *argv[]);
} verbs[] = {
	{ "add", tenant_add }, { "set", tenant_set }, { "show", tenant_show },
	{ "remove", tenant_remove }, { "list", tenant_list },
};

int
ctl_tenant(const char *socket, int argc, char *argv[])
{
	for (size_t i = 0; argc > 0 && i < sizeof(verbs) / sizeof(verbs[0]); i++)
		if (strcmp(argv[0], verbs[i].name) == 0)
			return verbs[i].run(socket, argc, argv);	/* argv[0]: the verb, as getopt wants it */
	ctl_usage();
}
