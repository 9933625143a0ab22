/*
 * store/salvage.c - see store/salvage.h.
 *
 * Runs in: committer (recovery), tools, tests.
 * Touches: reads segments through their mapping.
 */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "shm/crc32c.h"
#include "store/salvage.h"
#include "store/segment.h"

/* ------------------------------------------------------------------ one byte */

/*
 * A CRC is linear: what a changed byte does to it depends on the change and on
 * the number of bytes behind, and a step over one byte can be taken back.
 * delta is what the checksum is off by; counting back from the end, the byte is where
 * the register holds nothing but a change of eight bits.
 */
struct undo {
	uint32_t	step[256];	/* what byte b does to a register of zeros */
	uint8_t		by[256];	/* the b whose step has this top byte: they all differ */
};

static void
undo_init(struct undo *u)
{
	uint8_t	zero = 0, b;

	for (unsigned i = 0; i < 256; i++) {
		b = (uint8_t)i;
		u->step[i] = crc32c(0, &b, 1) ^ crc32c(0, &zero, 1);
		u->by[u->step[i] >> 24] = b;
	}
}

/* Looks on from `back` bytes before the end (delta moves along); how many, and *change.  0: there is none in n bytes. */
static size_t
undo_find(const struct undo *u, uint32_t *delta, size_t back, size_t n, uint8_t *change)
{
	while (back < n) {
		uint8_t	b = u->by[*delta >> 24];

		*delta = (*delta ^ u->step[b]) << 8 | b;
		back++;
		if (*delta != 0 && *delta < 256) {
			*change = (uint8_t)*delta;
			return back;
		}
	}
	return 0;
}

bool
salvage_body(uint8_t *body, uint32_t len, uint32_t body_crc)
{
	struct undo	u;
	uint32_t	delta;
	size_t		back;
	uint8_t		change, other;

	if (len == 0 || len > SUBMIT_CHUNK || (delta = crc32c(0, body, len) ^ body_crc) == 0)
		return false;
	undo_init(&u);
	if ((back = undo_find(&u, &delta, 0, len, &change)) == 0 ||
	    undo_find(&u, &delta, back, len, &other) != 0)
		return false;
	body[len - back] ^= change;
	return true;
}

/* ------------------------------------------------------------------ one head */

#define CRC_FROM	offsetof(struct rec_head, kind)

struct guess {			/* a head that may have been there */
	struct rec_head	head;
	size_t		at;		/* of the changed byte, from the record's first */
	uint8_t		change;
	unsigned	n;		/* how many were found: one is an answer */
};

static bool
head_fits(const struct rec_head *h, uint64_t room)
{
	return h->kind >= REC_PUT && h->kind <= REC_DROP_SEGMENT && h->path_len <= SUBMIT_PATH_MAX &&
	    h->meta_len <= SUBMIT_META_MAX && rec_bytes(h) <= room;
}

static size_t
summed(const struct rec_head *h)
{
	return sizeof(*h) - CRC_FROM + h->path_len + h->meta_len;
}

/* The record as it would be with that byte changed: does it fit, and is its checksum right? */
static void
try_byte(struct guess *g, const uint8_t *rec, uint64_t room, size_t at, uint8_t change)
{
	struct rec_head	h;
	uint8_t		head[sizeof(h)], byte;
	uint32_t	crc;
	size_t		n, in;

	memcpy(head, rec, sizeof(head));
	if (at < sizeof(head))
		head[at] ^= change;
	memcpy(&h, head, sizeof(h));
	if (!head_fits(&h, room))
		return;
	crc = crc32c(0, head + CRC_FROM, sizeof(head) - CRC_FROM);
	n = summed(&h) - (sizeof(head) - CRC_FROM);
	if (at < sizeof(head))
		crc = crc32c(crc, rec + sizeof(head), n);
	else {
		in = at - sizeof(head);
		byte = rec[at] ^ change;
		crc = crc32c(crc, rec + sizeof(head), in);
		crc = crc32c(crc, &byte, 1);
		crc = crc32c(crc, rec + at + 1, n - in - 1);
	}
	if (crc != h.head_crc)
		return;
	g->head = h;
	g->at = at;
	g->change = change;
	g->n++;
}

/* In the checksum itself, or in what it covers, where the two lengths in it are right. */
static void
try_covered(struct guess *g, const uint8_t *rec, uint64_t room)
{
	struct rec_head	h;
	struct undo	u;
	uint32_t	delta;
	size_t		n, back = 0;
	uint8_t		change;

	memcpy(&h, rec, sizeof(h));
	if (h.path_len > SUBMIT_PATH_MAX || h.meta_len > SUBMIT_META_MAX || CRC_FROM + summed(&h) > room)
		return;
	n = summed(&h);
	if ((delta = crc32c(0, rec + CRC_FROM, n) ^ h.head_crc) == 0)
		return;
	for (unsigned i = 0; i < sizeof(h.head_crc); i++)
		if ((delta & ~((uint32_t)0xff << 8 * i)) == 0)
			try_byte(g, rec, room, i, (uint8_t)(delta >> 8 * i));
	undo_init(&u);
	while ((back = undo_find(&u, &delta, back, n, &change)) != 0)
		try_byte(g, rec, room, CRC_FROM + n - back, change);
}

/* In one of the two lengths that say how much is covered. */
static void
try_lengths(struct guess *g, const uint8_t *rec, uint64_t room)
{
	static const size_t	at[] = {
		offsetof(struct rec_head, path_len), offsetof(struct rec_head, path_len) + 1,
		offsetof(struct rec_head, meta_len), offsetof(struct rec_head, meta_len) + 1,
	};

	for (size_t i = 0; i < sizeof(at) / sizeof(at[0]); i++)
		for (unsigned change = 1; change < 256; change++)
			try_byte(g, rec, room, at[i], (uint8_t)change);
}

static struct rec_head *
head_at(const uint8_t *base, uint64_t limit, uint64_t at)
{
	struct guess	 g = { .n = 0 };
	uint8_t		*copy;

	if (at < SEGMENT_HEAD || at % 8 != 0 || at > limit || limit - at < sizeof(struct rec_head)) {
		errno = EILSEQ;
		return NULL;
	}
	try_covered(&g, base + at, limit - at);
	try_lengths(&g, base + at, limit - at);
	if (g.n != 1) {
		errno = EILSEQ;
		return NULL;
	}
	if ((copy = malloc(rec_bytes(&g.head))) == NULL)
		return NULL;
	memcpy(copy, base + at, rec_bytes(&g.head));
	copy[g.at] ^= g.change;
	return (struct rec_head *)(void *)copy;
}

struct rec_head *
salvage_head(struct log *l, uint32_t segment, uint64_t at)
{
	struct segment	*s = log_segment(l, segment);

	if (s == NULL) {
		errno = ENOENT;
		return NULL;
	}
	return segment_map(l, s) == NULL ? NULL : head_at(s->map, s->maplen, at);
}

/* ------------------------------------------------------------------ the walk */

struct walk {
	const struct log		*l;
	const uint8_t			*base;
	uint32_t			 segment;
	uint64_t			 at, to;
	uint64_t			 end;		/* of what is not zero: behind it there never was anything */
	uint64_t			 first;		/* where the batch began that is being walked */
	uint32_t			 count;		/* records of it so far */
	const struct salvage_callbacks	*cb;
	void				*arg;
};

/* A commit record that is not whole: by its mark, or by all but one byte of that. */
static bool
is_broken_commit(const struct walk *w)
{
	struct commit_rec	c;
	size_t			from = offsetof(struct commit_rec, pad);
	unsigned		off = 0;

	if (w->to - w->at < sizeof(c))
		return false;
	memcpy(&c, w->base + w->at, sizeof(c));
	for (size_t i = 0; i < sizeof(c.mark); i++)
		off += w->base[w->at + i] != ((const uint8_t *)&w->l->mark)[i];
	return off == 0 || (off == 1 && crc32c(0, (const uint8_t *)&c + from, sizeof(c) - from) == c.rec_crc);
}

/* The next commit record that is whole, behind `at`. */
static const struct commit_rec *
next_commit(const struct walk *w, uint64_t *place)
{
	const struct commit_rec	*c;

	for (uint64_t at = w->at + 8; at < w->end; at += 8)
		if ((c = commit_at(w->l, w->base, w->to, at)) != NULL) {
			*place = at;
			return c;
		}
	return NULL;
}

/* From p, exactly n whole records lead to `end`. */
static bool
leads_to(const struct walk *w, uint64_t p, uint64_t end, uint32_t n)
{
	const struct rec_head	*h;

	for (; n > 0 && p < end; n--) {
		if ((h = record_at(w->base, end, p)) == NULL)
			return false;
		p += rec_bytes(h);
	}
	return n == 0 && p == end;
}

/*
 * Behind a record that nobody can tell the length of.  Where it is the only one
 * of its batch that is missing, by the commit record's count, those behind it
 * are found: what a body pretends to be would be one too many.
 */
static uint64_t
go_on_at(struct walk *w)
{
	const struct commit_rec	*c;
	uint64_t		 end, p;

	if ((c = next_commit(w, &end)) == NULL)
		return w->end;
	if (c->bytes == end - w->first && c->count > w->count)
		for (p = w->at + 8; p <= end; p += 8)
			if (leads_to(w, p, end, c->count - w->count - 1)) {
				w->count++;
				return p;
			}
	p = c->bytes < end && end - c->bytes > w->at ? end - c->bytes : end + sizeof(*c);
	w->first = p;
	w->count = 0;
	return p;
}

static int
step_broken(struct walk *w)
{
	uint64_t	 from = w->at;
	struct rec_head	*said;
	int		 rc;

	if (is_broken_commit(w)) {
		w->at = w->first = from + sizeof(struct commit_rec);
		w->count = 0;
		return w->cb->broken(w->arg, NULL, true, w->segment, from, w->at);
	}
	if ((said = head_at(w->base, w->to, from)) == NULL) {
		if (errno == ENOMEM)
			return -1;
		w->at = go_on_at(w);
		return w->cb->broken(w->arg, NULL, false, w->segment, from, w->at);
	}
	w->at += rec_bytes(said);
	w->count++;
	rc = w->cb->broken(w->arg, said, false, w->segment, from, w->at);
	free(said);
	return rc;
}

static uint64_t
written_end(const uint8_t *base, uint64_t from, uint64_t to)
{
	while (to > from && base[to - 1] == 0)
		to--;
	return (to + 7) & ~(uint64_t)7;
}

int
salvage(struct log *l, uint32_t segment, uint64_t from, uint64_t to, const struct salvage_callbacks *cb, void *arg)
{
	struct segment		*s = log_segment(l, segment);
	const struct rec_head	*h;
	struct walk		 w = { .l = l, .segment = segment, .at = from, .first = from, .cb = cb, .arg = arg };

	if (s == NULL || from < SEGMENT_HEAD || from % 8 != 0 || segment_map(l, s) == NULL)
		return 0;
	if (to > s->maplen)
		to = s->maplen;
	if (from >= to)
		return 0;
	w.base = s->map;
	w.to = to;
	w.end = written_end(s->map, from, to);
	if (w.end > to)
		w.end = to;
	while (w.at < w.end) {
		int	rc = 0;

		if (commit_at(l, w.base, w.to, w.at) != NULL) {
			w.at = w.first = w.at + sizeof(struct commit_rec);
			w.count = 0;
		} else if ((h = record_at(w.base, w.to, w.at)) != NULL) {
			rc = cb->record(arg, h, segment, (uint32_t)w.at);
			w.at += rec_bytes(h);
			w.count++;
		} else
			rc = step_broken(&w);
		if (rc != 0)
			return -1;
	}
	return 0;
}
