/*
 * tests/fuzz_json.c - worker/json.h and settings.h under any bytes.
 *
 * Claims: texts lie in the input; nesting is bounded; what is read, written
 * down anew without white space and escapes, is the same sequence of tokens.
 */
#include "config.h"
#include "worker/json.h"
#include "worker/settings.h"
#include "worker/utf8.h"
#include "tests/fuzz.h"

struct out {
	char	*p;
	size_t	 n;
};

static void
put(struct out *o, const char *p, size_t n)
{
	memcpy(o->p + o->n, p, n);
	o->n += n;
}

/* Text in quotes, escaped only where it must be. */
static void
put_text(struct out *o, const char *p, size_t n)
{
	char	hex[8];
	size_t	i;

	put(o, "\"", 1);
	for (i = 0; i < n; i++)
		if (p[i] == '"' || p[i] == '\\' || (unsigned char)p[i] < 0x20)
			put(o, hex, (size_t)sprintf(hex, "\\u%04x", (unsigned char)p[i]));
		else
			put(o, p + i, 1);
	put(o, "\"", 1);
}

static bool
opens(enum json_token t)
{
	return t == JSON_NAME || t == JSON_OBJECT || t == JSON_ARRAY;
}

/* Reads all of it; true: it is JSON.  The same again, canonical, in o; a hash of all that was said in *sum. */
static bool
read_all(const char *in, size_t len, struct out *o, uint32_t *sum)
{
	static const char *const	words[] = { [JSON_OBJECT] = "{", [JSON_OBJECT_END] = "}", [JSON_ARRAY] = "[",
		[JSON_ARRAY_END] = "]", [JSON_TRUE] = "true", [JSON_FALSE] = "false", [JSON_NULL] = "null" };
	enum json_token	t, before = JSON_NAME;
	struct json	j;
	char		*text;
	ptrdiff_t	n;

	*sum = 1;
	json_init(&j, in, len);
	while ((t = json_next(&j)) > JSON_END) {
		CLAIM(j.depth <= JSON_DEPTH && j.p <= in + len);
		*sum = *sum * 31 + t;
		if (!opens(before) && t != JSON_OBJECT_END && t != JSON_ARRAY_END)
			put(o, ",", 1);
		before = t;
		if (t != JSON_NAME && t != JSON_STRING && t != JSON_NUMBER) {
			put(o, words[t], strlen(words[t]));
			continue;
		}
		CLAIM(j.text >= in && j.text + j.text_len <= in + len);
		if (t == JSON_NUMBER) {
			put(o, j.text, j.text_len);
			continue;
		}
		text = f_room(j.text_len);
		n = json_text(&j, text, j.text_len);	/* decoded is never longer */
		CLAIM(n >= 0 && utf8_ok(text, (size_t)n));
		for (ptrdiff_t i = 0; i < n; i++)
			*sum = *sum * 31 + (unsigned char)text[i];
		put_text(o, text, (size_t)n);
		free(text);
		if (t == JSON_NAME)
			put(o, ":", 1);
	}
	CLAIM(t == JSON_END || j.detail != NULL);
	return t == JSON_END;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct tenant_settings	 s;
	const char		*detail = NULL;
	char			*in = f_copy(data, len);
	struct out		 a = { .p = f_room(6 * len + 64) }, b;
	uint32_t		 first, second;
	struct json		 j;
	bool			 ok;

	if ((ok = read_all(in, len, &a, &first))) {
		b = (struct out){ .p = f_room(6 * a.n + 64) };
		CLAIM(read_all(a.p, a.n, &b, &second) && first == second);
		CLAIM(a.n == b.n && memcmp(a.p, b.p, a.n) == 0);
		free(b.p);
	}
	json_init(&j, in, len);
	if (json_skip(&j, json_next(&j)))
		CLAIM(!ok || json_next(&j) == JSON_END);
	else
		CLAIM(!ok);
	if (settings_parse(in, len, &s, &detail))
		CLAIM((ok || len == 0) && s.public <= PUBLIC_WRITE && s.version == TENANT_VERSION);
	else
		CLAIM(detail != NULL);
	free(in);
	free(a.p);
	return 0;
}
