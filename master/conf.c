/*
 * master/conf.c - see master/conf.h.
 * Runs in: master, tests.
 */
#include "config.h"
#include <arpa/inet.h>
#include <bsd/stdlib.h>
#include <bsd/string.h>
#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "master/conf.h"
#include "master/paths.h"

#define CONF_FILE_MAX	(256u * 1024)	/* a longer file is not a configuration */

#define KiB	(1024ll)
#define MiB	(1024ll * KiB)
#define GiB	(1024ll * MiB)
#define SECOND	(1000ll)
#define HOUR	(3600 * SECOND)
#define DAY	(24 * HOUR)

struct row;
typedef const char *conf_set(const struct row *, void *dst, const char *value);

static conf_set	set_path, set_socket, set_user, set_addr, set_workers, set_count, set_size,
		set_ms, set_s, set_verify, set_off;

/* The table: one row per key. */
struct row {
	const char	*key;
	conf_set	*set;		/* NULL on success, else what is wrong */
	size_t		 off, size;	/* of the value in struct conf */
	const char	*def;		/* NULL: all zero */
	long long	 min, max;
	bool		 restart;	/* a change takes effect at the next start */
	bool		 many;		/* may be given again: one more */
};

#define AT(m)	offsetof(struct conf, m), sizeof(((struct conf *)0)->m)

static const struct row rows[] = {
 { "data-dir",		set_path,	AT(data_dir),		PATH_DATA,	0, 0,		true, false },
 { "listen",		set_addr,	AT(listen),		"127.0.0.1:7480", 0, 65535,	true, true },
 { "listen-metrics",	set_addr,	AT(metrics),		NULL,		0, 65535,	true, true },
 { "control-socket",	set_socket,	AT(control_socket),	PATH_SOCKET,	0, 0,		true, false },
 { "pid-file",		set_path,	AT(pid_file),		PATH_PID,	0, 0,		true, false },
 { "log",		set_path,	AT(log),		PATH_LOG,	0, 0,		true, false },
 { "access-log",	set_off,	0, 0,			"off",		0, 0,		true, false },
 { "user",		set_user,	AT(user),		NULL,		0, 0,		true, false },
 { "workers",		set_workers,	AT(workers),		"auto",		1, REGION_LANES, true, false },
 { "max-connections",	set_count,	AT(set.max_connections), "16384",	16, 1000000,	false, false },
 { "input-budget",	set_size,	AT(set.input_budget),	"64M",		1 * MiB, 2 * GiB, true, false },
 { "max-document",	set_size,	AT(set.max_document),	"16M",		1, 1 * GiB,	false, false },
 { "segment-size",	set_size,	AT(set.segment_size),	"16M",		1 * MiB, 1 * GiB, true, false },
 { "verify-reads",	set_verify,	AT(set.verify_always),	"always",	0, 0,		false, false },
 { "head-timeout",	set_ms,		AT(set.head_ms),	"10s",		100, 1 * HOUR,	false, false },
 { "body-timeout",	set_ms,		AT(set.body_ms),	"30s",		100, 1 * HOUR,	false, false },
 { "idle-timeout",	set_ms,		AT(set.idle_ms),	"60s",		100, 1 * DAY,	false, false },
 { "write-timeout",	set_ms,		AT(set.write_ms),	"30s",		100, 1 * HOUR,	false, false },
 { "drain-timeout",	set_ms,		AT(set.drain_ms),	"30s",		100, 1 * HOUR,	false, false },
 { "tombstone-age",	set_s,		AT(set.tombstone_s),	"30d",		1 * SECOND, 3650 * DAY, false, false },
};
#define NROWS	(sizeof(rows) / sizeof(rows[0]))
_Static_assert(NROWS <= CONF_KEYS, "conf.where has room");
_Static_assert(2 * CONF_ADDRS + 1 <= BOOT_LISTENERS, "a worker has room for every listener");

int
conf_fail(char *err, size_t errlen, const char *fmt, ...)
{
	va_list	ap;

	va_start(ap, fmt);
	(void)vsnprintf(err, errlen, fmt, ap);
	va_end(ap);
	return -1;
}

/* --- values ------------------------------------------------------------- */

/* What a number may be followed by; the first is for none. */
struct unit { const char *name; long long factor; };

static const struct unit u_none[] = { { "", 1 }, { NULL, 0 } };
static const struct unit u_size[] = {
	{ "", 1 }, { "K", KiB }, { "k", KiB }, { "M", MiB }, { "m", MiB }, { "G", GiB }, { "g", GiB }, { NULL, 0 }
};
static const struct unit u_time[] = {	/* in ms; a bare number is seconds */
	{ "", SECOND }, { "ms", 1 }, { "s", SECOND }, { "m", 60 * SECOND }, { "h", HOUR }, { "d", DAY }, { NULL, 0 }
};

/* As somebody would write it: in the largest unit that has no remainder. */
static const char *
number_text(long long v, const struct unit *units, char *buf, size_t len)
{
	const struct unit	*best = NULL;

	for (; units->name != NULL; units++)
		if (v % units->factor == 0 && (best == NULL || units->factor > best->factor ||
		    (units->factor == best->factor && best->name[0] == '\0')))
			best = units;
	if (best != NULL)
		(void)snprintf(buf, len, "%lld%s", v / best->factor, best->name);
	return buf;
}

/* Digits only, then the name of a unit.  NULL, or what is wrong and what is expected of this key. */
static const char *
number(const struct row *r, const char *value, const struct unit *units, long long *out)
{
	static char		 why[160];
	const struct unit	*u = units;
	const char		*bad, *wrong;
	char			 digits[20], min[24], max[24];
	size_t			 n = strspn(value, "0123456789");
	long long		 v = 0;

	wrong = value[0] == '\0' ? "has no value" : n == 0 || n >= sizeof(digits) ? "is not a number" : NULL;
	while (wrong == NULL && u->name != NULL && strcmp(u->name, value + n) != 0)
		u++;
	if (wrong == NULL && u->name == NULL)
		wrong = "has an unknown unit";
	if (wrong == NULL) {
		memcpy(digits, value, n);
		digits[n] = '\0';
		v = strtonum(digits, 0, r->max / u->factor, &bad);
		if (bad != NULL || v * u->factor < r->min)
			wrong = bad != NULL && strcmp(bad, "too large") == 0 ? "is too large" : "is too small";
	}
	if (wrong == NULL) {
		*out = v * u->factor;
		return NULL;
	}
	(void)snprintf(why, sizeof(why), "%s: %s from %s to %s is expected%s", wrong,
	    units == u_size ? "a size" : units == u_time ? "a time" : "a number",
	    number_text(r->min, units, min, sizeof(min)), number_text(r->max, units, max, sizeof(max)),
	    r->set == set_workers ? ", or auto" : "");
	return why;
}

static const char *
set_u64(const struct row *r, void *dst, const char *value, const struct unit *units)
{
	const char	*why;
	long long	 v;

	if ((why = number(r, value, units, &v)) == NULL)
		*(uint64_t *)dst = (uint64_t)v;
	return why;
}

static const char *
set_size(const struct row *r, void *dst, const char *value)
{
	return set_u64(r, dst, value, u_size);
}

static const char *
set_ms(const struct row *r, void *dst, const char *value)
{
	return set_u64(r, dst, value, u_time);
}

static const char *
set_s(const struct row *r, void *dst, const char *value)
{
	const char	*why;

	if ((why = set_u64(r, dst, value, u_time)) == NULL)
		*(uint64_t *)dst /= SECOND;
	return why;
}

static const char *
set_count(const struct row *r, void *dst, const char *value)
{
	const char	*why;
	long long	 v;

	if ((why = number(r, value, u_none, &v)) == NULL)
		*(uint32_t *)dst = (uint32_t)v;
	return why;
}

static const char *
set_workers(const struct row *r, void *dst, const char *value)
{
	if (strcmp(value, "auto") != 0)
		return set_count(r, dst, value);
	*(unsigned *)dst = 0;
	return NULL;
}

static const char *
set_verify(const struct row *r, void *dst, const char *value)
{
	(void)r;
	if (strcmp(value, "always") != 0 && strcmp(value, "first") != 0)
		return "must be always or first";
	*(bool *)dst = strcmp(value, "always") == 0;
	return NULL;
}

static const char *
set_off(const struct row *r, void *dst, const char *value)
{
	(void)r;
	(void)dst;
	return strcmp(value, "off") == 0 ? NULL : "can only be off in this version";
}

static const char *
set_path(const struct row *r, void *dst, const char *value)
{
	if (value[0] == '\0')
		return "has no value";
	return strlcpy(dst, value, r->size) >= r->size ? "is too long" : NULL;
}

/* sun_path has 108 bytes, and the socket is made under a longer, temporary name. */
static const char *
set_socket(const struct row *r, void *dst, const char *value)
{
	if (strlen(value) > 90)
		return "is too long for a socket (90 bytes)";
	return set_path(r, dst, value);
}

static const char *
set_user(const struct row *r, void *dst, const char *value)
{
	return set_path(r, dst, value);
}

/* ADDR:PORT or [ADDR6]:PORT, numbers only: a name could mean another address tomorrow. */
static const char *
addr_parse(const struct row *r, union conf_addr *a, const char *value)
{
	char		 host[INET6_ADDRSTRLEN];
	const char	*colon = strrchr(value, ':');
	size_t		 n;
	long long	 port;
	bool		 six = value[0] == '[';

	if (colon == NULL || (six && (colon < value + 2 || colon[-1] != ']')))
		return "is not ADDR:PORT or [ADDR6]:PORT";
	n = (size_t)(colon - value) - (six ? 2 : 0);
	if (n >= sizeof(host))
		return "is not a numeric address";
	memcpy(host, value + six, n);
	host[n] = '\0';
	if (number(r, colon + 1, u_none, &port) != NULL)
		return "has no port from 0 to 65535";
	memset(a, 0, sizeof(*a));
	if (six) {
		a->in6.sin6_family = AF_INET6;
		a->in6.sin6_port = htons((uint16_t)port);
		return inet_pton(AF_INET6, host, &a->in6.sin6_addr) == 1 ? NULL : "is not a numeric IPv6 address";
	}
	a->in.sin_family = AF_INET;
	a->in.sin_port = htons((uint16_t)port);
	return inet_pton(AF_INET, host, &a->in.sin_addr) == 1 ? NULL : "is not a numeric address ([] around IPv6)";
}

static const char *
set_addr(const struct row *r, void *dst, const char *value)
{
	struct conf_addrs	*l = dst;
	const char		*why;

	if (l->n == CONF_ADDRS)
		return "is one address too many";
	if ((why = addr_parse(r, &l->a[l->n], value)) == NULL)
		l->n++;
	return why;
}

const char *
conf_addr_text(const union conf_addr *a, char *buf, size_t len)
{
	char	host[INET6_ADDRSTRLEN] = "?";

	if (a->sa.sa_family == AF_INET6) {
		(void)inet_ntop(AF_INET6, &a->in6.sin6_addr, host, sizeof(host));
		(void)snprintf(buf, len, "[%s]:%u", host, ntohs(a->in6.sin6_port));
	} else {
		(void)inet_ntop(AF_INET, &a->in.sin_addr, host, sizeof(host));
		(void)snprintf(buf, len, "%s:%u", host, ntohs(a->in.sin_port));
	}
	return buf;
}

/* --- lines ---------------------------------------------------------------- */

static const struct row *
row_find(const char *key)
{
	for (size_t i = 0; i < NROWS; i++)
		if (strcmp(rows[i].key, key) == 0)
			return &rows[i];
	return NULL;
}

static void *
row_value(struct conf *c, const struct row *r)
{
	return (char *)c + r->off;
}

/* The first override of a list replaces what the file says, the next ones add to it. */
static const char *
row_set(struct conf *c, const struct row *r, const char *value, int where)
{
	int	*w = &c->where[r - rows];

	if (where < 0 && *w >= 0)
		memset(row_value(c, r), 0, r->size);
	*w = where;
	return r->set(r, row_value(c, r), value);
}

/* One line without its newline.  Writes into it. */
static int
line_parse(struct conf *c, char *line, int lineno, char *err, size_t errlen)
{
	const struct row	*r;
	const char		*why;
	char			*value, *end = line + strlen(line);

	while (end > line && (end[-1] == ' ' || end[-1] == '\t' || end[-1] == '\r'))
		*--end = '\0';
	line += strspn(line, " \t");
	if (*line == '\0' || *line == '#')
		return 0;
	for (const char *p = line; *p != '\0'; p++)
		if (((unsigned char)*p < ' ' && *p != '\t') || *p == 0x7f)
			return conf_fail(err, errlen, "%s:%d: control character", c->name, lineno);
	value = line + strcspn(line, " \t");
	if (*value != '\0')
		*value++ = '\0';
	value += strspn(value, " \t");
	if ((r = row_find(line)) == NULL)
		return conf_fail(err, errlen, "%s:%d: unknown key \"%.64s\"; holdfast.conf(5) lists the keys",
		    c->name, lineno, line);
	if (!r->many && c->where[r - rows] > 0)
		return conf_fail(err, errlen, "%s:%d: %s: already set in line %d", c->name, lineno,
		    r->key, c->where[r - rows]);
	if ((why = row_set(c, r, value, lineno)) != NULL)
		return conf_fail(err, errlen, "%s:%d: %s: \"%.128s\" %s", c->name, lineno, r->key, value, why);
	return 0;
}

static int
text_parse(struct conf *c, const char *buf, size_t len, char *err, size_t errlen)
{
	char		 line[CONF_PATH + 128];
	const char	*nl;
	size_t		 n;

	for (int lineno = 1; len > 0; lineno++) {
		nl = memchr(buf, '\n', len);
		n = nl == NULL ? len : (size_t)(nl - buf);
		if (n >= sizeof(line))
			return conf_fail(err, errlen, "%s:%d: line too long", c->name, lineno);
		if (memchr(buf, '\0', n) != NULL)
			return conf_fail(err, errlen, "%s:%d: control character", c->name, lineno);
		memcpy(line, buf, n);
		line[n] = '\0';
		if (line_parse(c, line, lineno, err, errlen) == -1)
			return -1;
		n += nl != NULL;
		buf += n;
		len -= n;
	}
	return 0;
}

static int
override_parse(struct conf *c, const char *text, int which, char *err, size_t errlen)
{
	const struct row	*r;
	const char		*eq = strchr(text, '='), *why;
	char			 key[32];
	size_t			 n;

	if (eq == NULL)
		return conf_fail(err, errlen, "-o %.128s: no \"=\": -o key=value is expected, as in -o workers=2", text);
	n = (size_t)(eq - text);
	if (n >= sizeof(key))
		n = sizeof(key) - 1;	/* no key is that long */
	memcpy(key, text, n);
	key[n] = '\0';
	if ((r = row_find(key)) == NULL)
		return conf_fail(err, errlen, "-o %.128s: unknown key \"%s\"; holdfast.conf(5) lists the keys", text, key);
	for (const char *p = eq; *p != '\0'; p++)
		if ((unsigned char)*p < ' ' || *p == 0x7f)
			return conf_fail(err, errlen, "-o %s: control character", key);
	if ((why = row_set(c, r, eq + 1, -which)) != NULL)
		return conf_fail(err, errlen, "-o %.128s: %s: \"%.128s\" %s", text, r->key, eq + 1, why);
	return 0;
}

/* --- cross checks --------------------------------------------------------- */

/* Where the value of `key` was given; of two keys the one that somebody wrote. */
static const char *
where_text(const struct conf *c, const char *key, const char *other, char *buf, size_t len)
{
	int	w = c->where[row_find(key) - rows];

	if (w == 0 && other != NULL)
		w = c->where[row_find(other) - rows];
	if (w > 0)
		(void)snprintf(buf, len, "%s:%d", c->name, w);
	else if (w < 0)
		(void)snprintf(buf, len, "command line, -o number %d", -w);
	else
		(void)snprintf(buf, len, "%s", c->name);
	return buf;
}

static bool
addr_same(const union conf_addr *a, const union conf_addr *b)
{
	if (a->sa.sa_family != b->sa.sa_family || a->in.sin_port == 0 || a->in.sin_port != b->in.sin_port)
		return false;	/* sin_port and sin6_port are the same bytes */
	if (a->sa.sa_family == AF_INET6)
		return memcmp(&a->in6.sin6_addr, &b->in6.sin6_addr, sizeof(a->in6.sin6_addr)) == 0;
	return a->in.sin_addr.s_addr == b->in.sin_addr.s_addr;
}
_Static_assert(offsetof(struct sockaddr_in, sin_port) == offsetof(struct sockaddr_in6, sin6_port), "one port");

static int
check_addrs(const struct conf *c, char *err, size_t errlen)
{
	const union conf_addr	*all[2 * CONF_ADDRS];
	char			 where[CONF_PATH + 16], text[64];
	unsigned		 n = 0;

	for (unsigned i = 0; i < c->listen.n; i++)
		all[n++] = &c->listen.a[i];
	for (unsigned i = 0; i < c->metrics.n; i++)
		all[n++] = &c->metrics.a[i];
	for (unsigned i = 0; i < n; i++)
		for (unsigned j = 0; j < i; j++)
			if (addr_same(all[i], all[j]))
				return conf_fail(err, errlen, "%s: %s is given twice",
				    where_text(c, i < c->listen.n ? "listen" : "listen-metrics", NULL,
				    where, sizeof(where)), conf_addr_text(all[i], text, sizeof(text)));
	return 0;
}

static int
check(const struct conf *c, char *err, size_t errlen)
{
	char	where[CONF_PATH + 32];

	if (c->set.max_document > c->set.input_budget / 2)
		return conf_fail(err, errlen, "%s: max-document (%llu) is more than half of input-budget (%llu)",
		    where_text(c, "max-document", "input-budget", where, sizeof(where)),
		    (unsigned long long)c->set.max_document, (unsigned long long)c->set.input_budget);
	return check_addrs(c, err, errlen);
}

int
conf_parse(struct conf *c, const char *name, const char *buf, size_t len,
    char *const *overrides, unsigned n, char *err, size_t errlen)
{
	const char	*why;

	memset(c, 0, sizeof(*c));
	(void)strlcpy(c->name, name, sizeof(c->name));
	if (text_parse(c, buf, len, err, errlen) == -1)
		return -1;
	for (unsigned i = 0; i < n; i++)
		if (override_parse(c, overrides[i], (int)i + 1, err, errlen) == -1)
			return -1;
	for (size_t i = 0; i < NROWS; i++)
		if (c->where[i] == 0 && rows[i].def != NULL &&
		    (why = rows[i].set(&rows[i], row_value(c, &rows[i]), rows[i].def)) != NULL)
			return conf_fail(err, errlen, "%s: default \"%s\" %s", rows[i].key, rows[i].def, why);
	return check(c, err, errlen);
}

int
conf_take(struct conf *cur, const struct conf *next, void (*later)(const char *),
    char *err, size_t errlen)
{
	struct conf	mix = *cur;

	(void)strlcpy(mix.name, next->name, sizeof(mix.name));
	for (size_t i = 0; i < NROWS; i++)
		if (!rows[i].restart) {
			memcpy((char *)&mix + rows[i].off, (const char *)next + rows[i].off, rows[i].size);
			mix.where[i] = next->where[i];
		}
	if (check(&mix, err, errlen) == -1)
		return -1;
	for (size_t i = 0; i < NROWS; i++)
		if (rows[i].restart && memcmp((const char *)cur + rows[i].off,
		    (const char *)next + rows[i].off, rows[i].size) != 0)
			later(rows[i].key);
	*cur = mix;
	return 0;
}

/* --- the system ------------------------------------------------------------ */

/* Relative paths mean where we were started, also after chdir(2) and on SIGHUP. */
static int
absolute(char *path, const char *cwd)
{
	char	tmp[CONF_PATH];

	if (path[0] == '/')
		return 0;
	if ((size_t)snprintf(tmp, sizeof(tmp), "%s/%s", cwd, path) >= sizeof(tmp))
		return -1;
	(void)strlcpy(path, tmp, CONF_PATH);
	return 0;
}

static int
file_read(const char *name, char *buf, size_t cap, size_t *len)
{
	ssize_t	n;
	int	fd, saved;

	if ((fd = open(name, O_RDONLY | O_CLOEXEC | O_NOCTTY)) == -1)
		return -1;
	for (*len = 0; *len < cap; *len += (size_t)n)
		if ((n = read(fd, buf + *len, cap - *len)) <= 0)
			break;
	saved = n == -1 ? errno : *len == cap ? EFBIG : 0;
	close(fd);
	errno = saved;
	return saved == 0 ? 0 : -1;
}

int
conf_load(struct conf *c, const char *name, char *const *overrides, unsigned n,
    char *err, size_t errlen)
{
	const char	*file = name != NULL ? name : PATH_CONF;
	static char	 cwd[CONF_PATH];	/* kept: SIGHUP comes after chdir("/") */
	char		*buf;
	size_t		 len = 0;
	int		 rc = -1;

	if ((buf = malloc(CONF_FILE_MAX)) == NULL || (cwd[0] == '\0' && getcwd(cwd, sizeof(cwd)) == NULL)) {
		(void)conf_fail(err, errlen, "%s: %s", file, strerror(errno));
		goto out;
	}
	if (file_read(file, buf, CONF_FILE_MAX, &len) == -1 && (name != NULL || errno != ENOENT)) {
		(void)conf_fail(err, errlen, "%s: %s", file, strerror(errno));
		goto out;
	}
	if (conf_parse(c, file, buf, len, overrides, n, err, errlen) == -1)
		goto out;
	if (absolute(c->data_dir, cwd) == -1 || absolute(c->control_socket, cwd) == -1 ||
	    absolute(c->pid_file, cwd) == -1 || absolute(c->log, cwd) == -1) {
		(void)conf_fail(err, errlen, "%s: a path is too long below %s", file, cwd);
		goto out;
	}
	rc = strlen(c->control_socket) > 90 ?
	    conf_fail(err, errlen, "%s: control-socket: \"%s\" is too long for a socket (90 bytes)", file,
	    c->control_socket) : 0;
out:
	free(buf);
	return rc;
}

int
conf_user(struct conf *c, char *err, size_t errlen)
{
	const struct passwd	*pw;
	char			 where[CONF_PATH + 32];

	c->set.uid = geteuid();
	c->set.gid = getegid();
	c->set.drop = false;
	if (c->user[0] == '\0')
		return 0;
	(void)where_text(c, "user", NULL, where, sizeof(where));
	errno = 0;
	if ((pw = getpwnam(c->user)) == NULL)
		return conf_fail(err, errlen, "%s: user: \"%s\": %s", where, c->user,
		    errno == 0 ? "no such user" : strerror(errno));
	if (c->set.uid != 0 && pw->pw_uid != c->set.uid)
		return conf_fail(err, errlen, "%s: user: only root can become \"%s\"", where, c->user);
	if (c->set.uid == 0) {
		c->set.uid = pw->pw_uid;
		c->set.gid = pw->pw_gid;
		c->set.drop = pw->pw_uid != 0;
	}
	return 0;
}
