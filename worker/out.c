/*
 * worker/out.c - see worker/out.h.
 *
 * Runs in: worker.
 */
#include "config.h"
#include <sys/socket.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "worker/out.h"
#include "worker/worker.h"

struct piece {			/* of what a socket did not take */
	struct piece	*next;
	bool		 is_doc, held;
	struct part	 part;		/* is_doc */
	size_t		 at, len;	/* otherwise: of bytes */
	char		 bytes[];
};

#define BYTES OUT_PARTS		/* part_of an iovec of the buffer */

int
out_init(struct out *o)
{
	memset(o, 0, sizeof(*o));
	return (o->buf = malloc(OUT_BYTES)) == NULL ? -1 : 0;
}

void
out_forget(struct out *o)
{
	o->used = 0;
	o->niov = o->nparts = 0;
}

/* --- gathering --------------------------------------------------------- */

char *
out_room(struct worker *w, struct conn *c, size_t n)
{
	struct out	*o = &w->out;

	if (OUT_BYTES - o->used < n || o->niov == OUT_IOV)
		out_flush(w, c);
	return o->buf + o->used;
}

void
out_put(struct out *o, char *end)
{
	struct iovec	*v = &o->iov[o->niov];
	size_t		 n = (size_t)(end - (o->buf + o->used));

	if (o->niov > 0 && o->part_of[o->niov - 1] == BYTES)
		v[-1].iov_len += n;	/* right behind it: the buffer is filled in order */
	else {
		*v = (struct iovec){ .iov_base = o->buf + o->used, .iov_len = n };
		o->part_of[o->niov++] = BYTES;
	}
	o->used += n;
}

void
out_bytes(struct worker *w, struct conn *c, const void *from, size_t n)
{
	const char	*p = from;
	size_t		 len;

	while (n > 0) {
		len = n < OUT_BYTES ? n : OUT_BYTES;
		out_put(&w->out, (char *)memcpy(out_room(w, c, len), p, len) + len);
		p += len;
		n -= len;
	}
}

uint32_t
out_first(uint32_t from, uint32_t to)
{
	/* windows end where checksums do */
	uint32_t	end = (from / OUT_WINDOW + 1) * OUT_WINDOW;

	return to - from <= OUT_WINDOW || end > to ? to : end;
}

void
out_doc(struct worker *w, struct conn *c, const struct doc *d, uint32_t from, uint32_t to)
{
	struct out	*o = &w->out;
	struct part	*p;

	if (from == to)
		return;
	if (o->niov == OUT_IOV || o->nparts == OUT_PARTS)
		out_flush(w, c);
	p = &o->parts[o->nparts];
	*p = (struct part){ .doc = *d, .pos = from, .checked = out_first(from, to), .end = to };
	o->iov[o->niov] = (struct iovec){ .iov_base = (char *)(uintptr_t)d->body + from, .iov_len = p->checked - from };
	o->part_of[o->niov++] = (uint8_t)o->nparts++;
	if (p->checked < to || p->checked - from >= OUT_SENDFILE)
		out_flush(w, c);	/* what follows such a body starts a new list */
}

/* --- sending ----------------------------------------------------------- */

#define NEAR_BYTES	(128u << 10)	/* more than the kernel copies in one go */

/*
 * A send fell short, or said EFAULT: is it that the mapping lost a page?  The
 * kernel then stops in front of the piece with that page, and no event would
 * ever tell us to go on.
 */
static bool
rest_there(struct worker *w, const struct iovec *iov, unsigned n, size_t sent)
{
	size_t	left = NEAR_BYTES, k;

	for (; n > 0 && left > 0; iov++, n--) {
		if (sent >= iov->iov_len) {
			sent -= iov->iov_len;
			continue;
		}
		k = iov->iov_len - sent < left ? iov->iov_len - sent : left;
		if (!doc_there(w->reader, (const char *)iov->iov_base + sent, k)) {
			count_add(w->count, CW_DAMAGED_READS, 1);
			return false;
		}
		left -= k;
		sent = 0;
	}
	return true;
}

static size_t
bytes_of(const struct iovec *iov, unsigned n)
{
	size_t	sum = 0;

	while (n-- > 0)
		sum += iov[n].iov_len;
	return sum;
}

/* What came of a send, or its errno. */
static ssize_t
took(struct worker *w, struct conn *c, ssize_t r)
{
	if (r >= 0) {
		count_add(w->count, CW_BYTES_OUT, (uint64_t)r);
		c->progress = true;
	} else if (errno == EAGAIN)
		c->writable = false;
	else
		c->broken = true;
	return r;
}

/* One send.  Fewer than all, or -1: the socket takes no more now (writable false), or is broken. */
static ssize_t
send_list(struct worker *w, struct conn *c, struct iovec *iov, unsigned n, int flags)
{
	struct msghdr	m;
	ssize_t		r;

	do {
		if (n == 1)
			r = send(c->fd, iov->iov_base, iov->iov_len, MSG_NOSIGNAL | flags);
		else {
			m = (struct msghdr){ .msg_iov = iov, .msg_iovlen = n };
			r = sendmsg(c->fd, &m, MSG_NOSIGNAL | flags);
		}
	} while (r == -1 && errno == EINTR);
	if (took(w, c, r) == -1) {
		if (errno == EFAULT)
			(void)rest_there(w, iov, n, 0);	/* says where */
	} else if ((size_t)r < bytes_of(iov, n)) {
		c->writable = false;
		if (!rest_there(w, iov, n, (size_t)r))
			c->broken = true;
	}
	return r;
}

/* The next window of a part, checked.  false: damaged, the head is gone already: cut. */
static bool
next_window(struct worker *w, struct conn *c, struct part *p)
{
	uint32_t	end = out_first(p->checked, p->end);

	if (!doc_check(w->reader, &p->doc, p->checked, end)) {
		count_add(w->count, CW_DAMAGED_READS, 1);	/* the store has logged where */
		c->broken = true;
		return false;
	}
	p->checked = end;
	return true;
}

static struct iovec
part_iov(const struct part *p)
{
	return (struct iovec){ .iov_base = (char *)(uintptr_t)p->doc.body + p->pos, .iov_len = p->checked - p->pos };
}

/* What may be sent of a part.  false: the socket takes no more now (writable false), or is broken. */
static bool
send_part(struct worker *w, struct conn *c, struct part *p)
{
	struct iovec	v;
	ssize_t		r;

	while (p->pos < p->checked && c->writable && !c->broken) {
		v = part_iov(p);
		if (v.iov_len < OUT_SENDFILE ||
		    ((r = doc_send(w->reader, &p->doc, c->fd, p->pos, p->checked)) == -1 && errno == ENOTSUP))
			r = send_list(w, c, &v, 1, 0);
		else if (took(w, c, r) == -1 && errno == EIO)
			count_add(w->count, CW_DAMAGED_READS, 1);
		if (r > 0)
			p->pos += (uint32_t)r;
	}
	return p->pos == p->checked;
}

/* --- keeping ----------------------------------------------------------- */

static void
append(struct conn *c, struct piece *p)
{
	p->next = NULL;
	if (c->out == NULL)
		c->out = p;
	else
		*c->out_end = p;
	c->out_end = &p->next;
}

static int
keep_bytes(struct conn *c, const void *from, size_t n)
{
	struct piece	*p;

	if ((p = malloc(sizeof(*p) + n)) == NULL)
		return -1;
	*p = (struct piece){ .len = n };
	memcpy(p->bytes, from, n);
	append(c, p);
	return 0;
}

static int
keep_part(struct worker *w, struct conn *c, const struct part *part)
{
	struct piece	*p;

	if ((p = malloc(sizeof(*p))) == NULL)
		return -1;
	*p = (struct piece){ .is_doc = true, .held = true, .part = *part };
	doc_hold(w->reader, &p->part.doc);
	append(c, p);
	return 0;
}

/* Moves iovecs i.. of the list into c->out. */
static void
keep_rest(struct worker *w, struct conn *c, unsigned i)
{
	struct out	*o = &w->out;
	int		 r;

	for (; i < o->niov && !c->broken; i++) {
		if (o->part_of[i] == BYTES)
			r = keep_bytes(c, o->iov[i].iov_base, o->iov[i].iov_len);
		else
			r = keep_part(w, c, &o->parts[o->part_of[i]]);
		if (r == -1)
			c->broken = true;
	}
}

/* Takes n sent bytes off the front of the list, which starts at *i. */
static void
advance(struct out *o, unsigned *i, size_t n)
{
	struct iovec	*v;
	size_t		 k;

	while (*i < o->niov) {
		v = &o->iov[*i];
		k = n < v->iov_len ? n : v->iov_len;
		if (o->part_of[*i] != BYTES)
			o->parts[o->part_of[*i]].pos += (uint32_t)k;
		v->iov_base = (char *)v->iov_base + k;
		v->iov_len -= k;
		n -= k;
		if (v->iov_len > 0)
			return;
		++*i;
	}
}

/* The list is sent; if it ended with a body's first window, goes on with the next ones. */
static void
send_windows(struct worker *w, struct conn *c, struct part *p, size_t turn)
{
	uint32_t	from;

	while (p->pos < p->end && !c->broken) {
		if (turn >= OUT_TURN) {
			if (keep_part(w, c, p) == -1)
				c->broken = true;
			return;
		}
		if (p->pos == p->checked && !next_window(w, c, p))
			return;
		from = p->pos;
		if (!send_part(w, c, p)) {
			if (!c->broken && keep_part(w, c, p) == -1)
				c->broken = true;
			return;
		}
		turn += p->pos - from;
	}
}

static void
flush(struct worker *w, struct conn *c, int flags)
{
	struct out	*o = &w->out;
	struct part	*last;
	size_t		 total;
	ssize_t		 r = 0;
	unsigned	 i = 0, n = o->niov;

	if (n == 0)
		return;
	if (c->broken)
		goto done;
	if (c->out != NULL) {
		keep_rest(w, c, 0);	/* in order behind what waits already */
		goto done;
	}
	last = o->part_of[n - 1] == BYTES ? NULL : &o->parts[o->part_of[n - 1]];
	if (last != NULL && o->iov[n - 1].iov_len >= OUT_SENDFILE) {
		n--;		/* goes by itself */
		flags = MSG_MORE;
	}
	total = bytes_of(o->iov, n);
	if (n > 0)
		r = send_list(w, c, o->iov, n, flags);
	if (r == (ssize_t)total) {
		if (last != NULL && n == o->niov)
			last->pos = last->checked;
		if (last != NULL)
			send_windows(w, c, last, total);
	} else if (!c->broken) {
		if (r > 0)
			advance(o, &i, (size_t)r);
		keep_rest(w, c, i);
	}
done:
	out_forget(o);
}

void
out_flush(struct worker *w, struct conn *c)
{
	flush(w, c, 0);
}

void
out_flush_last(struct worker *w, struct conn *c)
{
	flush(w, c, MSG_MORE);
}

/* --- resuming ---------------------------------------------------------- */

static void
drop_first(struct worker *w, struct conn *c)
{
	struct piece	*p = c->out;

	c->out = p->next;
	if (p->is_doc) {
		if (p->held)
			doc_release(w->reader, &p->part.doc);
		else	/* copied out: the bytes are ours */
			w->out.copied -= p->len;
	}
	free(p);
}

void
out_drop(struct worker *w, struct conn *c)
{
	while (c->out != NULL)
		drop_first(w, c);
}

static bool
is_held(const struct piece *p)
{
	return p->is_doc && p->held;
}

/* What the socket takes of a piece, a window of a document at most.  Bytes of it; 0: none, or it is broken. */
static size_t
send_piece(struct worker *w, struct conn *c, struct piece *p)
{
	struct iovec	v = { .iov_base = p->bytes + p->at, .iov_len = p->len - p->at };
	uint32_t	from = p->part.pos;
	ssize_t		r;

	if (is_held(p)) {
		if (from < p->part.checked || next_window(w, c, &p->part))
			(void)send_part(w, c, &p->part);
		return p->part.pos - from;
	}
	if ((r = send_list(w, c, &v, 1, 0)) > 0)
		p->at += (size_t)r;
	return r > 0 ? (size_t)r : 0;
}

static bool
is_sent(const struct piece *p)
{
	return is_held(p) ? p->part.pos == p->part.end : p->at == p->len;
}

void
out_resume(struct worker *w, struct conn *c)
{
	size_t	turn = 0;

	while (c->out != NULL && c->writable && !c->broken && turn < OUT_TURN) {
		turn += send_piece(w, c, c->out);
		if (!c->broken && is_sent(c->out))
			drop_first(w, c);
	}
}

/* --- letting go -------------------------------------------------------- */

/* A copy of what is left of a held document, checked; NULL: damaged, no memory, or too much of it. */
static struct piece *
copy_out(struct worker *w, struct conn *c, struct piece *p)
{
	size_t		 n = p->part.end - p->part.pos;
	struct piece	*copy;

	if (w->out.copied + n > OUT_COPIED)
		return NULL;
	while (p->part.checked < p->part.end)
		if (!next_window(w, c, &p->part))
			return NULL;
	if ((copy = malloc(sizeof(*copy) + n)) == NULL)
		return NULL;
	*copy = (struct piece){ .is_doc = true, .next = p->next, .len = n };
	if (!doc_copy(w->reader, copy->bytes, p->part.doc.body + p->part.pos, n)) {
		free(copy);
		return NULL;
	}
	w->out.copied += n;
	return copy;
}

void
out_let_go(struct worker *w, struct conn *c)
{
	struct piece	**at, *p, *copy;

	for (at = &c->out; (p = *at) != NULL; at = &(*at)->next) {
		if (!p->is_doc || !p->held || !doc_gone(w->reader, &p->part.doc))
			continue;
		if ((copy = copy_out(w, c, p)) == NULL) {
			c->broken = true;
			return;
		}
		*at = copy;
		if (copy->next == NULL)
			c->out_end = &copy->next;
		doc_release(w->reader, &p->part.doc);
		free(p);
	}
}
