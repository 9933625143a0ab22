/*
 * worker/chunked.c - see worker/chunked.h.
 *
 * Runs in: worker.  Pure.
 *
 *     +------------------------------------------------------------+
 *     v                                                            |
 *  SIZE --;--> EXT                                                 |
 *     |         |                                                  |
 *     +--- CR --+--> SIZE_LF --- size > 0 ---> DATA --> DATA_CR --> DATA_LF
 *                       |
 *                       +------- size 0 -----> LINE <-- CR LF -- VALUE
 *                                              |  |               ^
 *                                              |  +-- NAME --:----+
 *                                              +- CR --> LAST_LF --> END
 *
 * One byte moves the state at most once, so a body may be split anywhere.
 */
#include "config.h"
#include "worker/chunked.h"
#include "worker/fields.h"

enum chunked_state {
	C_SIZE, C_EXT, C_SIZE_LF, C_DATA, C_DATA_CR, C_DATA_LF,
	C_LINE, C_NAME, C_VALUE, C_VALUE_LF, C_LAST_LF, C_END
};

static enum parse
refuse(struct refusal *r, const char *detail)
{
	*r = (struct refusal){ .status = 400, .keep = false, .detail = detail };
	return PARSE_BAD;
}

/* No control byte but HT. */
static bool
text(char c)
{
	return (unsigned char)c >= 0x20 ? c != 0x7f : c == '\t';
}

/* A byte of a size line in front of its LF. */
static enum parse
size_byte(struct chunked *c, char b, struct refusal *r)
{
	if (++c->line > CHUNK_LINE_MAX)
		return refuse(r, "a chunk's size line is over 1 KiB: send no chunk extensions");
	if (c->state == C_SIZE && byte_is(b, B_HEX)) {
		if (c->digits++ == 16)
			return refuse(r, "a chunk's size has over 16 hex digits");
		c->left = c->left << 4 | hex_value(b);
		return PARSE_MORE;
	}
	if (c->digits == 0 || (c->state == C_SIZE ? b != ';' && b != '\r' : !text(b) && b != '\r'))
		return refuse(r, "a chunk's size must be 1 to 16 hex digits and CR LF");
	c->state = b == '\r' ? C_SIZE_LF : C_EXT;
	return PARSE_MORE;
}

static enum parse
trailer_byte(struct chunked *c, char b, struct refusal *r)
{
	if (++c->line > HEAD_MAX)
		return refuse(r, "the trailers are over 16 KiB: send fewer");
	switch (c->state) {
	case C_LINE:
		if (b == '\r')
			c->state = C_LAST_LF;
		else if (byte_is(b, B_TOKEN))
			c->state = C_NAME;
		else
			break;
		return PARSE_MORE;
	case C_NAME:
		if (b == ':')
			c->state = C_VALUE;
		else if (!byte_is(b, B_TOKEN))
			break;
		return PARSE_MORE;
	default:
		if (b == '\r')
			c->state = C_VALUE_LF;
		else if (!text(b))
			break;
		return PARSE_MORE;
	}
	return refuse(r, "a trailer is not NAME: VALUE in one line ended by CR LF");
}

/* The byte that must follow: CR behind data, LF behind CR. */
static enum parse
fixed_byte(struct chunked *c, char b, struct refusal *r)
{
	if (b != (c->state == C_DATA_CR ? '\r' : '\n'))
		return refuse(r, c->state == C_DATA_CR ? "a chunk's data do not end where its size said" :
		    "a CR without LF in a chunked body: end lines with CR LF");
	switch (c->state) {
	case C_DATA_CR:
		c->state = C_DATA_LF;
		return PARSE_MORE;
	case C_DATA_LF:
		c->state = C_SIZE;
		c->digits = 0;
		c->line = 0;
		return PARSE_MORE;
	case C_SIZE_LF:
		c->state = c->left > 0 ? C_DATA : C_LINE;
		c->line = 0;
		return PARSE_MORE;
	case C_VALUE_LF:
		c->line++;
		c->state = C_LINE;
		return PARSE_MORE;
	default:
		c->state = C_END;
		return PARSE_DONE;
	}
}

static enum parse
one_byte(struct chunked *c, char b, struct refusal *r)
{
	switch (c->state) {
	case C_SIZE:
	case C_EXT:
		return size_byte(c, b, r);
	case C_LINE:
	case C_NAME:
	case C_VALUE:
		return trailer_byte(c, b, r);
	default:
		return fixed_byte(c, b, r);
	}
}

enum parse
chunked_next(struct chunked *c, const char *buf, size_t len, size_t *used, const char **data, size_t *ndata,
    struct refusal *r)
{
	enum parse	e;
	size_t		i = 0;

	*data = NULL;
	*ndata = 0;
	*used = 0;
	if (c->state == C_END)
		return PARSE_DONE;
	while (i < len && c->state != C_DATA)
		if ((e = one_byte(c, buf[i++], r)) != PARSE_MORE) {
			*used = i;
			return e;
		}
	if (i < len) {
		*data = buf + i;
		*ndata = c->left < len - i ? (size_t)c->left : len - i;
		i += *ndata;
		chunked_took(c, *ndata);
	}
	*used = i;
	return PARSE_MORE;
}

uint64_t
chunked_left(const struct chunked *c)
{
	return c->state == C_DATA ? c->left : 0;
}

void
chunked_took(struct chunked *c, uint64_t n)
{
	c->left -= n;
	if (c->left == 0)
		c->state = C_DATA_CR;
}
