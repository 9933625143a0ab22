/*
 * tests/fuzz_target.c - worker/target.h under any bytes.
 *
 * Claims: names lie in the buffer and follow contract 1 (checked here anew);
 * a name, encoded whole and sent, is the same name.
 */
#include "config.h"
#include "worker/target.h"
#include "tests/fuzz.h"

static void
segment(const char *p, size_t n)
{
	size_t	i;

	CLAIM(n >= 1 && n <= 255);
	CLAIM(!(n == 1 && p[0] == '.') && !(n == 2 && p[0] == '.' && p[1] == '.'));
	for (i = 0; i < n; i++)
		CLAIM((unsigned char)p[i] >= 0x20 && p[i] != 0x7f && p[i] != '\\' && p[i] != '/');
}

static void
path(const char *p, size_t n)
{
	const char	*end = p + n, *slash;

	CLAIM(n <= 1024);
	for (; p < end; p = slash + 1) {
		if ((slash = memchr(p, '/', (size_t)(end - p))) == NULL)
			slash = end;
		segment(p, (size_t)(slash - p));
	}
	CLAIM(n == 0 || end[-1] != '/');
}

static size_t
encode(char *out, const char *p, size_t n)
{
	size_t	i;

	for (i = 0; i < n; i++)
		sprintf(out + 3 * i, "%%%02X", (unsigned char)p[i]);
	return 3 * n;
}

/* The name of t, each of its bytes encoded, slashes too. */
static void
again(const struct target *t)
{
	static char	out[4 * TARGET_MAX], buf[TARGET_MAX];
	struct head	h = { .method = M_GET };
	struct refusal	r;
	struct target	u;
	size_t		n = 0;

	out[n++] = '/';
	n += encode(out + n, t->tenant, t->tenant_len);
	if (t->tenant_len > 0 && t->kind != T_TENANT)
		n += encode(out + n, "/", 1);
	n += encode(out + n, t->path, t->path_len);
	if (t->slash && t->path_len > 0)
		n += encode(out + n, "/", 1);
	if (n > TARGET_MAX)
		return;
	h.target = (struct slice){ out, (uint32_t)n };
	CLAIM(target_parse(&h, buf, &u, &r));
	CLAIM(u.kind == t->kind && u.tenant_ok == t->tenant_ok && u.slash == t->slash);
	CLAIM(u.tenant_len == t->tenant_len && memcmp(u.tenant, t->tenant, t->tenant_len) == 0);
	CLAIM(u.path_len == t->path_len && memcmp(u.path, t->path, t->path_len) == 0);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct head	 h = { .method = len > 0 && data[0] == '*' ? M_OPTIONS : M_GET };
	struct refusal	 r = { 0 };
	struct target	 t;
	char		*in, *buf;

	if (len > TARGET_MAX)
		return 0;
	in = f_copy(data, len);
	buf = f_room(TARGET_MAX);
	h.target = (struct slice){ in, (uint32_t)len };
	if (target_parse(&h, buf, &t, &r)) {
		CLAIM(t.tenant >= buf && t.tenant + t.tenant_len <= buf + TARGET_MAX);
		CLAIM(t.path >= buf && t.path + t.path_len <= buf + TARGET_MAX);
		path(t.path, t.path_len);
		if (t.tenant_len > 0 && t.tenant_len <= 255)
			segment(t.tenant, t.tenant_len);
		CLAIM((t.kind == T_RESERVED || t.kind == T_TENANT_RESERVED) == (t.path_len > 0 && t.path[0] == '_'));
		CLAIM((t.kind == T_ROOT || t.kind == T_STAR || t.kind == T_RESERVED) == (t.tenant_len == 0));
		CLAIM(t.kind != T_DOCUMENT || (t.path_len > 0 && !t.slash));
		CLAIM(!t.tenant_ok || (t.tenant_len <= 63 && t.tenant[0] != '-'));
		CLAIM(t.query.p == NULL || t.query.p + t.query.len == in + len);
		if (t.kind != T_STAR)
			again(&t);
	} else
		CLAIM((r.status == 400 || r.status == 414) && r.keep && r.detail != NULL);
	free(in);
	free(buf);
	return 0;
}
