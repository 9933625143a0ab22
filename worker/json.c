/*
 * worker/json.c - see worker/json.h.
 *
 * Runs in: worker.  Pure.
 */
#include "config.h"
#include <string.h>
#include "worker/fields.h"
#include "worker/json.h"
#include "worker/utf8.h"

/* What may come next. */
enum json_expect {
	E_VALUE,		/* at the start, behind ':' or a ',' of an array */
	E_VALUE_OR_END,		/* behind '[' */
	E_NAME,			/* behind a ',' of an object */
	E_NAME_OR_END,		/* behind '{' */
	E_COMMA_OR_END,		/* behind a value, inside something */
	E_NOTHING,		/* behind the outermost value */
	E_FAILED
};

static enum json_token
bad(struct json *j, const char *detail)
{
	j->expect = E_FAILED;
	j->detail = detail;
	return JSON_BAD;
}

void
json_init(struct json *j, const char *p, size_t len)
{
	*j = (struct json){ .p = p, .end = p + len, .expect = E_VALUE };
}

static bool
in_object(const struct json *j)
{
	return j->depth > 0 && (j->objects >> (j->depth - 1) & 1) != 0;
}

/* A value ended here. */
static enum json_token
value_done(struct json *j, enum json_token t)
{
	j->expect = j->depth > 0 ? E_COMMA_OR_END : E_NOTHING;
	return t;
}

static enum json_token
open_level(struct json *j, bool object)
{
	if (j->depth == JSON_DEPTH)
		return bad(j, "the JSON is nested over 64 levels deep");
	j->objects &= ~(UINT64_C(1) << j->depth);
	j->objects |= (uint64_t)object << j->depth;
	j->depth++;
	j->p++;
	j->expect = object ? E_NAME_OR_END : E_VALUE_OR_END;
	return object ? JSON_OBJECT : JSON_ARRAY;
}

static enum json_token
close_level(struct json *j)
{
	enum json_token	t = in_object(j) ? JSON_OBJECT_END : JSON_ARRAY_END;

	j->p++;
	j->depth--;
	return value_done(j, t);
}

/* Four hex digits at p; false: there are none. */
static bool
four_hex(const char *p, const char *end, unsigned *v)
{
	unsigned	i;

	if (end - p < 4)
		return false;
	for (*v = 0, i = 0; i < 4; i++) {
		if (!byte_is(p[i], B_HEX))
			return false;
		*v = *v << 4 | hex_value(p[i]);
	}
	return true;
}

/*
 * The escape behind the backslash at p: its code point, *n: bytes with the
 * backslash.  false: not an escape, or half a surrogate pair.
 */
static bool
escape(const char *p, const char *end, unsigned *code, size_t *n)
{
	static const char	from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
	const char		*at;
	unsigned		 low;

	if (end - p < 2)
		return false;
	*n = 2;
	if (p[1] != 'u') {
		if (p[1] == '\0' || (at = strchr(from, p[1])) == NULL)
			return false;
		*code = (unsigned char)to[at - from];
		return true;
	}
	if (!four_hex(p + 2, end, code))
		return false;
	*n = 6;
	if (*code < 0xd800 || *code > 0xdfff)
		return true;
	if (*code > 0xdbff || end - p < 12 || p[6] != '\\' || p[7] != 'u' || !four_hex(p + 8, end, &low) ||
	    low < 0xdc00 || low > 0xdfff)
		return false;
	*n = 12;
	*code = 0x10000 + ((*code - 0xd800) << 10 | (low - 0xdc00));
	return true;
}

/* The string whose quote is at p: sets text. */
static enum json_token
string(struct json *j, enum json_token t)
{
	const char	*p = j->p + 1;
	unsigned	 code;
	size_t		 n;

	for (j->text = p; p < j->end && *p != '"'; p += n) {
		if (*p == '\\') {
			if (!escape(p, j->end, &code, &n))
				return bad(j, "the JSON has a string with a broken escape");
		} else if ((unsigned char)*p < 0x20)
			return bad(j, "the JSON has a string with a control byte: escape it");
		else if ((n = utf8_len(p, (size_t)(j->end - p))) == 0)
			return bad(j, "the JSON has a string that is not UTF-8");
	}
	if (p == j->end)
		return bad(j, "the JSON ends inside a string");
	j->text_len = (size_t)(p - j->text);
	j->p = p + 1;
	return t;
}

static const char *
digits(const char *p, const char *end)
{
	while (p < end && byte_is(*p, B_DIGIT))
		p++;
	return p;
}

static enum json_token
number(struct json *j)
{
	static const char	detail[] = "the JSON has a malformed number";
	const char		*p = j->p, *q;

	j->text = p;
	p += *p == '-';
	q = digits(p, j->end);
	if (q == p || (*p == '0' && q > p + 1))
		return bad(j, detail);
	p = q;
	if (p < j->end && *p == '.') {
		if ((q = digits(p + 1, j->end)) == p + 1)
			return bad(j, detail);
		p = q;
	}
	if (p < j->end && (*p == 'e' || *p == 'E')) {
		p++;
		p += p < j->end && (*p == '+' || *p == '-');
		if ((q = digits(p, j->end)) == p)
			return bad(j, detail);
		p = q;
	}
	j->text_len = (size_t)(p - j->text);
	j->p = p;
	return value_done(j, JSON_NUMBER);
}

static enum json_token
word(struct json *j, const char *w, enum json_token t)
{
	size_t	n = strlen(w);

	if ((size_t)(j->end - j->p) < n || memcmp(j->p, w, n) != 0)
		return bad(j, "the JSON has a word that is not true, false or null");
	j->p += n;
	return value_done(j, t);
}

static enum json_token
value(struct json *j)
{
	switch (*j->p) {
	case '{':
		return open_level(j, true);
	case '[':
		return open_level(j, false);
	case '"':
		return string(j, JSON_STRING) == JSON_BAD ? JSON_BAD : value_done(j, JSON_STRING);
	case 't':
		return word(j, "true", JSON_TRUE);
	case 'f':
		return word(j, "false", JSON_FALSE);
	case 'n':
		return word(j, "null", JSON_NULL);
	case '-': case '0': case '1': case '2': case '3': case '4': case '5': case '6': case '7': case '8': case '9':
		return number(j);
	default:
		return bad(j, "the JSON lacks a value, or has something that is none");
	}
}

static void
blanks(struct json *j)
{
	while (j->p < j->end && (*j->p == ' ' || *j->p == '\t' || *j->p == '\n' || *j->p == '\r'))
		j->p++;
}

static enum json_token
name(struct json *j)
{
	if (*j->p != '"')
		return bad(j, "the JSON lacks a member's name in double quotes");
	if (string(j, JSON_NAME) == JSON_BAD)
		return JSON_BAD;
	blanks(j);
	if (j->p == j->end || *j->p != ':')
		return bad(j, "the JSON lacks a colon behind a member's name");
	j->p++;
	j->expect = E_VALUE;
	return JSON_NAME;
}

enum json_token
json_next(struct json *j)
{
	if (j->expect == E_FAILED)
		return JSON_BAD;
	blanks(j);
	if (j->p == j->end)
		return j->expect == E_NOTHING ? JSON_END : bad(j, "the JSON is not complete");
	if (j->expect == E_NOTHING)
		return bad(j, "something follows the JSON");
	if (j->expect == E_COMMA_OR_END) {
		if (*j->p == (in_object(j) ? '}' : ']'))
			return close_level(j);
		if (*j->p != ',')
			return bad(j, "the JSON lacks a comma or a closing bracket");
		j->p++;
		j->expect = in_object(j) ? E_NAME : E_VALUE;
		blanks(j);
		if (j->p == j->end)
			return bad(j, "the JSON is not complete");
	}
	if ((j->expect == E_NAME_OR_END && *j->p == '}') || (j->expect == E_VALUE_OR_END && *j->p == ']'))
		return close_level(j);
	return j->expect == E_NAME || j->expect == E_NAME_OR_END ? name(j) : value(j);
}

bool
json_skip(struct json *j, enum json_token t)
{
	unsigned	level = 0;

	for (;; t = json_next(j)) {
		if (t == JSON_BAD)
			return false;
		if (t == JSON_OBJECT || t == JSON_ARRAY)
			level++;
		else if (t == JSON_OBJECT_END || t == JSON_ARRAY_END)
			level--;
		if (level == 0)
			return true;
	}
}

/* One code point as UTF-8; its length. */
static size_t
utf8_put(char *o, unsigned c)
{
	if (c < 0x80) {
		o[0] = (char)c;
		return 1;
	}
	if (c < 0x800) {
		o[0] = (char)(0xc0 | c >> 6);
		o[1] = (char)(0x80 | (c & 0x3f));
		return 2;
	}
	if (c < 0x10000) {
		o[0] = (char)(0xe0 | c >> 12);
		o[1] = (char)(0x80 | (c >> 6 & 0x3f));
		o[2] = (char)(0x80 | (c & 0x3f));
		return 3;
	}
	o[0] = (char)(0xf0 | c >> 18);
	o[1] = (char)(0x80 | (c >> 12 & 0x3f));
	o[2] = (char)(0x80 | (c >> 6 & 0x3f));
	o[3] = (char)(0x80 | (c & 0x3f));
	return 4;
}

/* Takes one code point off p..end, which string() has checked: its bytes in o, their number. */
static size_t
text_step(const char **p, const char *end, char *o)
{
	unsigned	code;
	size_t		n;

	if (**p != '\\' || !escape(*p, end, &code, &n)) {
		*o = *(*p)++;
		return 1;
	}
	*p += n;
	return utf8_put(o, code);
}

ptrdiff_t
json_text(const struct json *j, char *out, size_t cap)
{
	const char	*p = j->text, *end = j->text + j->text_len;
	char		 one[4];
	size_t		 n, len = 0;

	while (p < end) {
		n = text_step(&p, end, one);
		if (cap - len < n)
			return -1;
		memcpy(out + len, one, n);
		len += n;
	}
	return (ptrdiff_t)len;
}

bool
json_is(const struct json *j, const char *text)
{
	const char	*p = j->text, *end = j->text + j->text_len;
	char		 one[4];
	size_t		 n;

	while (p < end) {
		n = text_step(&p, end, one);
		if (strncmp(text, one, n) != 0 || memchr(one, '\0', n) != NULL)
			return false;
		text += n;
	}
	return *text == '\0';
}

bool
json_u64(const struct json *j, uint64_t *v)
{
	uint64_t	d;
	size_t		i;

	for (*v = 0, i = 0; i < j->text_len; i++) {
		if (!byte_is(j->text[i], B_DIGIT))
			return false;
		d = (uint64_t)(j->text[i] - '0');
		if (*v > (UINT64_MAX - d) / 10)
			return false;
		*v = *v * 10 + d;
	}
	return j->text_len > 0;
}
