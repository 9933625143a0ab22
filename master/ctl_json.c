/*
 * master/ctl_json.c - the JSON reader of holdfastctl: see master/ctl.h.
 * Runs in: holdfastctl.  Pure.
 */
#include "config.h"
#include <string.h>
#include "master/ctl.h"

static bool
fail(struct ctl_json *j)
{
	j->bad = true;
	j->p = j->end;
	return false;
}

static void
blanks(struct ctl_json *j)
{
	while (j->p < j->end && (*j->p == ' ' || *j->p == '\t' || *j->p == '\n' || *j->p == '\r'))
		j->p++;
}

void
ctl_json_begin(struct ctl_json *j, const char *text, size_t len)
{
	*j = (struct ctl_json){ .p = text, .end = text + len };
}

char
ctl_json_peek(struct ctl_json *j)
{
	blanks(j);
	return j->p < j->end ? *j->p : '\0';
}

static bool
eat(struct ctl_json *j, char c)
{
	if (ctl_json_peek(j) != c || j->p == j->end)
		return false;
	j->p++;
	return true;
}

bool
ctl_json_enter(struct ctl_json *j, char open)
{
	if (j->bad || j->depth == CTL_JSON_DEPTH || !eat(j, open))
		return fail(j);
	j->fresh[j->depth++] = true;
	return true;
}

/* At the start of a member or element: the comma where one is due, or the end. */
static bool
more(struct ctl_json *j, char close)
{
	bool	fresh;

	if (j->bad || j->depth == 0)
		return fail(j);
	fresh = j->fresh[j->depth - 1];
	if (eat(j, close)) {
		j->depth--;
		return false;
	}
	if (!fresh && !eat(j, ','))
		return fail(j);
	j->fresh[j->depth - 1] = false;
	return true;
}

bool
ctl_json_element(struct ctl_json *j)
{
	return more(j, ']');
}

bool
ctl_json_member(struct ctl_json *j, char *name, size_t cap)
{
	if (!more(j, '}'))
		return false;
	return ctl_json_string(j, name, cap) && (eat(j, ':') || fail(j));
}

/* --- strings --------------------------------------------------------------- */

struct out {
	char	*p;
	size_t	 left;	/* the NUL's place not counted */
};

static void
put(struct out *o, const char *bytes, size_t n)
{
	if (o->left < n) {
		o->left = 0;	/* cut: never half a character */
		return;
	}
	memcpy(o->p, bytes, n);
	o->p += n;
	o->left -= n;
}

static void
put_rune(struct out *o, unsigned c)
{
	char	b[4];

	if (c < 0x80) {
		b[0] = c < 0x20 || c == 0x7f ? '?' : (char)c;
		put(o, b, 1);
	} else if (c < 0x800) {
		b[0] = (char)(0xc0 | c >> 6);
		b[1] = (char)(0x80 | (c & 63));
		put(o, c < 0xa0 ? "?" : b, c < 0xa0 ? 1 : 2);	/* C1 controls move cursors, too */
	} else if (c < 0x10000) {
		b[0] = (char)(0xe0 | c >> 12);
		b[1] = (char)(0x80 | (c >> 6 & 63));
		b[2] = (char)(0x80 | (c & 63));
		put(o, b, 3);
	} else {
		b[0] = (char)(0xf0 | c >> 18);
		b[1] = (char)(0x80 | (c >> 12 & 63));
		b[2] = (char)(0x80 | (c >> 6 & 63));
		b[3] = (char)(0x80 | (c & 63));
		put(o, b, 4);
	}
}

static bool
hex4(struct ctl_json *j, unsigned *v)
{
	static const char	digits[] = "0123456789abcdef";

	*v = 0;
	if (j->end - j->p < 4)
		return false;
	for (int i = 0; i < 4; i++, j->p++) {
		char		 c = *j->p >= 'A' && *j->p <= 'F' ? (char)(*j->p + 32) : *j->p;
		const char	*d = c == '\0' ? NULL : strchr(digits, c);

		if (d == NULL)
			return false;
		*v = *v << 4 | (unsigned)(d - digits);
	}
	return true;
}

/* Behind a backslash. */
static bool
escape(struct ctl_json *j, struct out *o)
{
	static const char	from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
	const char		*f;
	unsigned		 hi, lo;
	char			 c;

	if (j->p == j->end)
		return false;
	if ((c = *j->p++) != 'u') {
		if (c == '\0' || (f = strchr(from, c)) == NULL)
			return false;
		put_rune(o, (unsigned char)to[f - from]);
		return true;
	}
	if (!hex4(j, &hi) || (hi >= 0xdc00 && hi < 0xe000))
		return false;
	if (hi >= 0xd800 && hi < 0xdc00) {
		if (j->end - j->p < 2 || j->p[0] != '\\' || j->p[1] != 'u')
			return false;
		j->p += 2;
		if (!hex4(j, &lo) || lo < 0xdc00 || lo >= 0xe000)
			return false;
		hi = 0x10000 + ((hi - 0xd800) << 10) + (lo - 0xdc00);
	}
	put_rune(o, hi);
	return true;
}

/* One character of UTF-8, well formed. */
static bool
utf8(struct ctl_json *j, struct out *o)
{
	static const unsigned	least[] = { 0, 0, 0x80, 0x800, 0x10000 };
	unsigned char		c = (unsigned char)*j->p;
	int			n = c < 0x80 ? 1 : c >= 0xc2 && c < 0xe0 ? 2 : c >= 0xe0 && c < 0xf0 ? 3 :
				    c >= 0xf0 && c < 0xf5 ? 4 : 0;
	unsigned		v = n == 1 ? c : c & (0x7fu >> n);

	if (n == 0 || j->end - j->p < n)
		return false;
	for (int i = 1; i < n; i++) {
		if (((unsigned char)j->p[i] & 0xc0) != 0x80)
			return false;
		v = v << 6 | ((unsigned char)j->p[i] & 63);
	}
	if (v < least[n] || v > 0x10ffff || (v >= 0xd800 && v < 0xe000))
		return false;
	j->p += n;
	put_rune(o, v);
	return true;
}

bool
ctl_json_string(struct ctl_json *j, char *out, size_t cap)
{
	struct out	o = { out, cap - 1 };

	if (j->bad || !eat(j, '"'))
		return fail(j);
	while (j->p < j->end && *j->p != '"') {
		if ((unsigned char)*j->p < 0x20)
			return fail(j);
		if (*j->p == '\\') {
			j->p++;
			if (!escape(j, &o))
				return fail(j);
		} else if (!utf8(j, &o))
			return fail(j);
	}
	*o.p = '\0';
	return eat(j, '"') || fail(j);
}

/* --- other values ------------------------------------------------------------ */

static size_t
digits(struct ctl_json *j)
{
	size_t	n = 0;

	for (; j->p < j->end && *j->p >= '0' && *j->p <= '9'; j->p++)
		n++;
	return n;
}

static bool
number(struct ctl_json *j)
{
	if (j->p < j->end && *j->p == '-')
		j->p++;
	if (j->p < j->end && *j->p == '0')
		j->p++;
	else if (digits(j) == 0)
		return false;
	if (j->p < j->end && *j->p == '.') {
		j->p++;
		if (digits(j) == 0)
			return false;
	}
	if (j->p < j->end && (*j->p == 'e' || *j->p == 'E')) {
		j->p++;
		if (j->p < j->end && (*j->p == '+' || *j->p == '-'))
			j->p++;
		if (digits(j) == 0)
			return false;
	}
	return true;
}

static bool
word(struct ctl_json *j, const char *w)
{
	size_t	n = strlen(w);

	if ((size_t)(j->end - j->p) < n || memcmp(j->p, w, n) != 0)
		return false;
	j->p += n;
	return true;
}

/* A value that is not an object or array. */
static bool
scalar(struct ctl_json *j)
{
	char	none[1];
	bool	ok;

	switch (ctl_json_peek(j)) {
	case '"':
		return ctl_json_string(j, none, sizeof(none));
	case 't':
		ok = word(j, "true");
		break;
	case 'f':
		ok = word(j, "false");
		break;
	case 'n':
		ok = word(j, "null");
		break;
	default:
		ok = number(j);
	}
	return ok || fail(j);
}

/* One value or opening bracket, without following where it leads. */
static bool
step_in(struct ctl_json *j, bool object[CTL_JSON_DEPTH])
{
	char	c = ctl_json_peek(j);

	if (c != '{' && c != '[')
		return scalar(j);
	if (!ctl_json_enter(j, c))
		return false;
	object[j->depth - 1] = c == '{';
	return true;
}

bool
ctl_json_skip(struct ctl_json *j)
{
	bool		object[CTL_JSON_DEPTH];
	char		none[1];
	unsigned	base = j->depth;

	if (j->bad || !step_in(j, object))
		return false;
	while (!j->bad && j->depth > base)
		if (object[j->depth - 1] ? ctl_json_member(j, none, sizeof(none)) : ctl_json_element(j))
			(void)step_in(j, object);
	return !j->bad;
}

bool
ctl_json_raw(struct ctl_json *j, const char **text, size_t *len)
{
	(void)ctl_json_peek(j);
	*text = j->p;
	if (!ctl_json_skip(j))
		return false;
	*len = (size_t)(j->p - *text);
	return true;
}

bool
ctl_json_end(struct ctl_json *j)
{
	return !j->bad && j->depth == 0 && ctl_json_peek(j) == '\0' && j->p == j->end;
}
