/*
 * worker/in.c - see worker/in.h.
 *
 * Runs in: worker.
 */
#include "config.h"
#include <sys/socket.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "worker/chunked.h"
#include "worker/in.h"
#include "worker/worker.h"

#define HELD_LEAST	512u
#define SKIP_MOST	65536u		/* an announced body that is rather read past than the connection closed */

int
in_init(struct in *in)
{
	in->p = NULL;
	in->n = 0;
	/* pages of it are touched as far as requests reach */
	return (in->scratch = malloc(IN_SCRATCH)) == NULL ? -1 : 0;
}

static void
release_held(struct conn *c)
{
	free(c->held);
	c->held = NULL;
	c->held_at = c->held_end = c->held_size = 0;
}

void
in_open(struct in *in, struct conn *c)
{
	if (c->held != NULL) {
		in->p = c->held + c->held_at;
		in->n = c->held_end - c->held_at;
	} else {
		in->p = in->scratch;
		in->n = 0;
	}
}

static bool
in_scratch(const struct in *in)
{
	return in->p >= in->scratch && in->p <= in->scratch + IN_SCRATCH;
}

int
in_close(struct in *in, struct conn *c)
{
	size_t	size;

	if (in->n == 0) {
		if (c->held != NULL)
			release_held(c);
		return 0;
	}
	if (!in_scratch(in)) {
		c->held_at = (uint32_t)(in->p - c->held);
		c->held_end = c->held_at + (uint32_t)in->n;
		return 0;
	}
	if (c->held_size < in->n) {
		release_held(c);
		/* a client that sends byte by byte must not make us allocate for each */
		for (size = HELD_LEAST; size < in->n; size *= 2)
			continue;
		if ((c->held = malloc(size)) == NULL)
			return -1;
		c->held_size = (uint32_t)size;
	}
	memcpy(c->held, in->p, in->n);
	c->held_at = 0;
	c->held_end = (uint32_t)in->n;
	return 0;
}

/* What a receive brought; false: nothing (for now, or ever). */
static bool
received(struct worker *w, struct conn *c, ssize_t r, size_t asked)
{
	if (r > 0) {
		count_add(w->count, CW_BYTES_IN, (uint64_t)r);
		c->got += (uint32_t)r;
		/* short: the socket is empty; but where the end was announced, go on to it */
		if ((size_t)r < asked && !c->half)
			c->readable = false;
		return true;
	}
	if (r == 0) {
		c->eof = true;
		c->readable = false;
	} else if (errno == EAGAIN)
		c->readable = false;
	else if (errno != EINTR)
		c->broken = true;
	return false;
}

static void
fill_window(struct worker *w, struct conn *c)
{
	struct in	*in = &w->in;
	ssize_t		 r;

	/* what is there moves to the front of the scratch: a partial head stays in one piece */
	if (in->n > 0 && in->p != in->scratch)
		memmove(in->scratch, in->p, in->n);
	in->p = in->scratch;
	r = recv(c->fd, in->p + in->n, IN_RECV, 0);
	if (received(w, c, r, IN_RECV))
		in->n += (size_t)r;
}

static void
fill_arena(struct worker *w, struct conn *c, void *p, size_t len)
{
	ssize_t	r;

	r = recv(c->fd, p, len, 0);
	if (received(w, c, r, len))
		write_received(w, c, (size_t)r);
}

/* TCP throws away without copying; a Unix socket does not know how. */
static void
discard(struct worker *w, struct conn *c)
{
	ssize_t	r;

	r = recv(c->fd, w->in.scratch, IN_SCRATCH, c->kind == LISTEN_CONTROL ? 0 : MSG_TRUNC);
	if (received(w, c, r, IN_SCRATCH))
		c->left -= (uint64_t)r < c->left ? (uint64_t)r : c->left;
}

void
in_fill(struct worker *w, struct conn *c)
{
	unsigned	 was = c->state;
	void		*p;
	size_t		 len;

	if (was == CONN_LINGER)
		discard(w, c);
	else if (was == CONN_BODY && w->in.n == 0 && write_space(w, c, &p, &len))
		fill_arena(w, c, p, len);
	else if (c->state == was)	/* write_space() may have found the budget exhausted, and answered */
		fill_window(w, c);
}

/* Bytes up to the end of a chunked body that lies whole in the window; 0: it does not. */
static size_t
chunked_at_hand(const struct in *in)
{
	struct chunked	 parse = { 0 };
	struct refusal	 refusal;
	const char	*data;
	size_t		 at = 0, used, ndata;
	enum parse	 e;

	while (at < in->n) {
		e = chunked_next(&parse, in->p + at, in->n - at, &used, &data, &ndata, &refusal);
		if (e == PARSE_BAD)
			return 0;
		at += used;
		if (e == PARSE_DONE)
			return at;
		if (used == 0)
			break;
	}
	return 0;
}

/*
 * A client that asked for 100-continue may send the body or not: what comes
 * next could be either, unless the whole body is here already (F82, F85).
 */
void
in_refuse_body(struct worker *w, struct conn *c)
{
	const struct head	*h = &w->req.head;
	uint64_t		 n;

	c->body = false;
	if (h->framing == BODY_CHUNKED)
		n = chunked_at_hand(&w->in);
	else if (h->length <= w->in.n || (h->length <= SKIP_MOST && h->expect == EXPECT_NONE))
		n = h->length;
	else
		n = 0;
	if (n == 0)
		c->close = c->unread = true;
	else
		c->left = n;
}

enum step
in_step_skip(struct worker *w, struct conn *c)
{
	size_t	n = w->in.n < c->left ? w->in.n : (size_t)c->left;

	in_take(&w->in, n);
	c->left -= n;
	if (c->left > 0)
		return STEP_READ;
	conn_to(c, CONN_HEAD);
	return STEP_AGAIN;
}

enum step
in_step_linger(struct worker *w, struct conn *c)
{
	in_take(&w->in, w->in.n);
	return c->left == 0 || c->eof ? STEP_CLOSE : STEP_READ;
}
