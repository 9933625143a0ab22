/*
 * store/scan.c - see store/log.h: log_scan(), rec_body_ok().
 *
 * Runs in: committer (recovery), tools, tests.
 *
 * Three ends are told apart (F13).  Behind the last good batch stand
 *	zeros				a clean end
 *	something, nothing intact	a torn tail: the batch under way at a crash
 *	something, then an intact batch	damage: that batch was begun only after
 *					all in front of it was synced (L1)
 * A segment is begun only after all batches in front of it were synced, too,
 * and its head says where they end: so the head of the next segment turns
 * what looks like a torn tail into damage, or confirms that nothing is
 * missing.
 *
 * One batch is held back: only what follows it says whether it was synced.
 */
#include "config.h"

#include <sys/mman.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "shm/crc32c.h"
#include "shm/proc.h"
#include "store/segment.h"

/* What the log itself says about which segments are live. */
struct live {
	uint32_t	*n;
	size_t		 count;
	uint32_t	 owner;		/* the segment with the list; 0: there is none */
	bool		 looked;
};

struct scan {
	struct log			*l;
	const struct scan_callbacks	*cb;
	void				*arg;
	struct log_pos			 pos;		/* behind the last good batch */
	bool				 linked;	/* the next batch must name pos.chain and pos.batch + 1 */
	bool				 damaged, torn;
	struct scan_batch		 held;		/* good, not told yet; commit NULL: none */
	struct log_pos			 before;	/* pos in front of it */
	const char			*doubt;		/* what stands between pos and ... */
	uint64_t			 doubt_to;	/* ... here in its segment, until something decides */
	bool				 cut_short;	/* ... is that the file ends */
	struct live			 live;
};

/* ------------------------------------------------------------------ bytes */

static bool
all_zero(const uint8_t *p, uint64_t n)
{
	uint64_t	first;

	if (n < sizeof(first)) {
		for (uint64_t i = 0; i < n; i++)
			if (p[i] != 0)
				return false;
		return true;
	}
	memcpy(&first, p, sizeof(first));
	/* each byte equals the one eight further on: memcmp(3) is the fastest loop there is */
	return first == 0 && memcmp(p, p + sizeof(first), n - sizeof(first)) == 0;
}

const struct commit_rec *
commit_at(const struct log *l, const uint8_t *base, uint64_t limit, uint64_t at)
{
	const struct commit_rec	*c;
	size_t			 front = offsetof(struct commit_rec, pad);

	if (at > limit || limit - at < sizeof(*c) || memcmp(base + at, &l->mark, sizeof(l->mark)) != 0)
		return NULL;
	c = (const struct commit_rec *)(const void *)(base + at);
	return c->rec_crc == crc32c(0, &c->pad, sizeof(*c) - front) ? c : NULL;
}

/*
 * The commit record of the batch that begins at `first`, if all of it is
 * whole and it goes on from `chain`; NULL.
 */
static const struct commit_rec *
batch_at(const struct log *l, const uint8_t *base, uint64_t limit, uint64_t first, uint32_t chain)
{
	const struct commit_rec	*c;
	const struct rec_head	*h;
	uint32_t		 crc = crc32c(0, &chain, sizeof(chain)), count = 0;
	uint64_t		 at = first;

	for (; (c = commit_at(l, base, limit, at)) == NULL; at += rec_bytes(h), count++) {
		if ((h = record_at(base, limit, at)) == NULL)
			return NULL;
		crc = crc32c(crc, &h->head_crc, sizeof(h->head_crc));
		crc = crc32c(crc, &h->body_crc, sizeof(h->body_crc));
	}
	if (c->bytes != at - first || c->count != count || c->chain != chain || c->batch_crc != crc)
		return NULL;
	return c;
}

/*
 * The first intact batch that lies wholly behind `from` and is later than
 * batch number `after`; *first gets its place.
 */
static const struct commit_rec *
batch_find(const struct log *l, const uint8_t *base, uint64_t limit, uint64_t from, uint64_t after, uint64_t *first)
{
	const struct commit_rec	*c;
	uint64_t		 at, word;

	for (at = from; at + sizeof(*c) <= limit; at += 8) {
		memcpy(&word, base + at, sizeof(word));
		if (word != l->mark || (c = commit_at(l, base, limit, at)) == NULL)
			continue;
		if (c->batch <= after || c->bytes > at - from || c->bytes % 8 != 0)
			continue;
		*first = at - c->bytes;
		if (batch_at(l, base, limit, *first, c->chain) == c)
			return c;
	}
	return NULL;
}

bool
rec_body_ok(const struct rec_head *h)
{
	uint64_t	 front = sizeof(*h) + (uint64_t)h->path_len + h->meta_len;
	const uint8_t	*body = (const uint8_t *)h + front, *table;
	uint32_t	 left = h->body_len, crc;

	if (h->body_len == 0)
		return h->body_crc == 0;
	if (h->body_len <= SUBMIT_CHUNK)
		return h->body_crc == crc32c(0, body, h->body_len);
	table = body + h->body_len + table_bytes(front, h->body_len) - 4 * body_chunks(h->body_len);
	if (h->body_crc != crc32c(0, table, 4 * body_chunks(h->body_len)))
		return false;
	for (; left > 0; table += sizeof(crc)) {
		uint32_t	n = left < SUBMIT_CHUNK ? left : SUBMIT_CHUNK;

		memcpy(&crc, table, sizeof(crc));
		if (crc != crc32c(0, body, n))
			return false;
		body += n;
		left -= n;
	}
	return true;
}

void
rec_body_sum(struct rec_head *h)
{
	uint64_t	 front = sizeof(*h) + (uint64_t)h->path_len + h->meta_len;
	uint8_t		*body = (uint8_t *)h + front, *table;
	uint32_t	 crc;

	h->body_crc = h->body_len != 0 ? crc32c(0, body, h->body_len) : 0;
	if (h->body_len <= SUBMIT_CHUNK)
		return;
	table = body + h->body_len + table_bytes(front, h->body_len) - 4 * body_chunks(h->body_len);
	for (uint32_t at = 0, n; at < h->body_len; at += n) {
		n = h->body_len - at < SUBMIT_CHUNK ? h->body_len - at : SUBMIT_CHUNK;
		crc = crc32c(0, body + at, n);
		memcpy(table + 4 * (at / SUBMIT_CHUNK), &crc, sizeof(crc));
	}
	h->body_crc = crc32c(0, table, 4 * body_chunks(h->body_len));
}

/* ------------------------------------------------------------------ telling */

/* Calls fn for each record of a good batch, until it returns nonzero. */
static int
each_record(struct log *l, const struct scan_batch *b,
    int (*fn)(void *, const struct scan_batch *, const struct rec_head *, uint32_t, uint32_t), void *arg)
{
	const uint8_t	*base = log_segment(l, b->segment)->map;
	uint64_t	 at = b->first, end = at + b->commit->bytes;

	while (at < end) {
		const struct rec_head	*h = (const struct rec_head *)(const void *)(base + at);
		int			 rc = fn(arg, b, h, b->segment, (uint32_t)at);

		if (rc != 0)
			return rc;
		at += rec_bytes(h);
	}
	return 0;
}

/* The batch held back is good, as what follows it shows. */
static int
tell_held(struct scan *sc)
{
	struct scan_batch	b = sc->held;

	sc->held.commit = NULL;
	if (b.commit == NULL)
		return 0;
	if (sc->cb->batch != NULL && sc->cb->batch(sc->arg, &b) != 0)
		return -1;
	if (sc->cb->record != NULL && each_record(sc->l, &b, sc->cb->record, sc->arg) != 0)
		return -1;
	return 0;
}

static int
tell_damage(struct scan *sc, uint32_t segment, uint64_t from, uint64_t to, const char *what)
{
	if (tell_held(sc) == -1)
		return -1;
	sc->damaged = true;
	if (sc->cb->damage != NULL)
		sc->cb->damage(sc->arg, segment, from, to, what);
	return 0;
}

/* Something intact stands behind what was in doubt: it was damage. */
static int
tell_doubt(struct scan *sc)
{
	const char	*what = sc->doubt;

	sc->doubt = NULL;
	sc->cut_short = false;
	return what == NULL ? 0 : tell_damage(sc, sc->pos.segment, sc->pos.offset, sc->doubt_to, what);
}

static int
body_broken(void *arg, const struct scan_batch *b, const struct rec_head *h, uint32_t segment, uint32_t offset)
{
	(void)arg, (void)b, (void)segment, (void)offset;
	return !rec_body_ok(h);
}

/* ------------------------------------------------------------------ missing segments */

static int
take_list(struct live *v, const struct rec_head *h, uint32_t owner)
{
	const uint8_t	*body = (const uint8_t *)(h + 1) + h->path_len + h->meta_len;

	if ((v->n = malloc((size_t)h->body_len + 1)) == NULL)
		return -1;
	memcpy(v->n, body, h->body_len);
	v->count = h->body_len / sizeof(*v->n);
	v->owner = owner;
	return 0;
}

static int
take_drop(void *arg, const struct scan_batch *b, const struct rec_head *h, uint32_t segment, uint32_t offset)
{
	struct live	*v = arg;
	uint32_t	 number;

	(void)b, (void)segment, (void)offset;
	if (h->kind != REC_DROP_SEGMENT || h->body_len != sizeof(number) || !rec_body_ok(h))
		return 0;
	memcpy(&number, (const uint8_t *)(h + 1) + h->path_len + h->meta_len, sizeof(number));
	for (size_t i = 0; i < v->count; i++)
		if (v->n[i] == number)
			v->n[i--] = v->n[--v->count];
	return 0;
}

/*
 * Looks for the newest list of live segments and takes out what was dropped
 * behind it.  A list that cannot be found makes each hole damage: rather one
 * warning too many.
 */
static int
find_live(struct scan *sc)
{
	struct log	*l = sc->l;
	struct live	*v = &sc->live;

	if (v->looked)
		return 0;
	v->looked = true;
	for (unsigned i = l->nseg; i-- > 0;) {
		struct segment			*s = &l->seg[i];
		const struct segment_head	*h = segment_head(l, s);
		const struct rec_head		*r;
		struct scan_batch		 b = { .segment = s->number, .first = SEGMENT_HEAD };
		uint32_t			 chain;

		if (h == NULL || (r = record_at(s->map, s->maplen, SEGMENT_HEAD)) == NULL ||
		    (b.commit = batch_at(l, s->map, s->maplen, b.first, h->chain)) == NULL)
			continue;
		if (r->kind != REC_SEGMENTS || r->body_len % sizeof(*v->n) != 0 || !rec_body_ok(r))
			return 0;
		if (take_list(v, r, s->number) == -1)
			return -1;
		while (b.commit != NULL) {
			each_record(l, &b, take_drop, v);
			chain = b.commit->batch_crc;
			b.first += b.commit->bytes + (uint32_t)sizeof(*b.commit);
			b.commit = batch_at(l, s->map, s->maplen, b.first, chain);
		}
		return 0;
	}
	return 0;
}

/* No file of the numbers lo to hi is there: which of them should be? */
static int
tell_missing(struct scan *sc, uint32_t lo, uint32_t hi)
{
	static const char	 what[] = "the segment is missing";
	const struct live	*v = &sc->live;

	if (find_live(sc) == -1)
		return -1;
	if (hi >= v->owner && tell_damage(sc, hi, 0, 0, what) == -1)
		return -1;
	for (size_t i = 0; i < v->count; i++)
		if (v->n[i] >= lo && v->n[i] < hi + (hi < v->owner) && tell_damage(sc, v->n[i], 0, 0, what) == -1)
			return -1;
	return 0;
}

/* ------------------------------------------------------------------ scanning */

/* A good batch: the one before it is told, this one held back. */
static int
take_batch(struct scan *sc, struct segment *s, const struct commit_rec *c, uint64_t first)
{
	if (tell_held(sc) == -1)
		return -1;
	sc->held = (struct scan_batch){ .commit = c, .segment = s->number, .first = (uint32_t)first };
	sc->before = sc->pos;
	sc->pos = (struct log_pos){
		.segment = s->number, .chain = c->batch_crc,
		.offset = first + c->bytes + sizeof(*c), .batch = c->batch,
	};
	sc->linked = true;
	return 0;
}

static bool
goes_on(const struct scan *sc, const struct segment_head *h)
{
	return sc->linked && h->prev_number == sc->pos.segment && h->prev_end == sc->pos.offset &&
	    h->chain == sc->pos.chain && h->first_batch == sc->pos.batch + 1;
}

/* A segment whose head is whole: does it begin where the one in front ended? */
static int
follow_head(struct scan *sc, const struct segment *s, const struct segment_head *h)
{
	if (goes_on(sc, h)) {
		/* whatever stood behind that end is no batch: they were all synced, and told */
		sc->doubt = NULL;
		sc->cut_short = false;
		if (tell_held(sc) == -1)
			return -1;
	} else if (sc->linked && h->prev_number == sc->pos.segment) {
		sc->doubt = NULL;
		sc->cut_short = false;
		if (tell_damage(sc, sc->pos.segment, sc->pos.offset,
		    h->prev_end > sc->pos.offset ? h->prev_end : sc->pos.offset,
		    "the last batches of the segment are missing") == -1)
			return -1;
	} else if (tell_doubt(sc) == -1 || tell_held(sc) == -1)
		return -1;
	if (h->first_batch <= sc->pos.batch)
		return tell_damage(sc, s->number, 0, SEGMENT_HEAD, "the segment is older than those in front of it");
	sc->pos = (struct log_pos){
		.segment = s->number, .chain = h->chain, .offset = SEGMENT_HEAD, .batch = h->first_batch - 1,
	};
	sc->linked = true;
	return 0;
}

/* Behind `at` there is no batch that goes on: is there another one?  1 taken, 0 none, -1. */
static int
resync(struct scan *sc, struct segment *s, uint64_t at)
{
	const struct commit_rec	*c;
	uint64_t		 first;

	if ((c = batch_find(sc->l, s->map, segment_extent(s), at, sc->pos.batch, &first)) == NULL)
		return 0;
	if (tell_doubt(sc) == -1)
		return -1;
	/* where the segment's own head is broken too, its first batch need not be known to be in its place */
	if ((sc->linked || first != at) &&
	    tell_damage(sc, s->number, at, first, first > at ? "damaged batch" : "batches in front are missing") == -1)
		return -1;
	return take_batch(sc, s, c, first) == -1 ? -1 : 1;
}

static int
scan_batches(struct scan *sc, struct segment *s, uint64_t at)
{
	const struct commit_rec	*c;
	int			 rc;

	for (;; at = sc->pos.offset) {
		s->end = at;
		if (at >= segment_extent(s) || all_zero(s->map + at, segment_extent(s) - at))
			return 0;
		c = sc->linked ? batch_at(sc->l, s->map, s->maplen, at, sc->pos.chain) : NULL;
		if (c != NULL && c->batch == sc->pos.batch + 1) {
			sc->doubt = NULL;	/* it goes on from pos, so nothing is missing there */
			sc->cut_short = false;
			if (take_batch(sc, s, c, at) == -1)
				return -1;
			continue;
		}
		if ((rc = resync(sc, s, at)) == -1)
			return -1;
		if (rc == 0)
			break;
	}
	if (sc->pos.segment != s->number)
		return tell_damage(sc, s->number, at, s->maplen, "no intact batch");
	sc->doubt = "damaged bytes";
	sc->doubt_to = s->maplen;
	return 0;
}

/* A head that is whole, but another segment's: its batches have their place elsewhere in the order. */
static bool
is_stray(const struct segment *s)
{
	const struct segment_head	*h = (const struct segment_head *)(const void *)s->map;

	return s->map != NULL && segment_head_ok(h, h->number);
}

/* One segment, whatever state it is in.  `from` != 0: a place in it is known already. */
static int
scan_segment(struct scan *sc, unsigned i, uint64_t from)
{
	struct segment			*s = &sc->l->seg[i];
	const struct segment_head	*h = segment_head(sc->l, s);
	int				 error = errno;

	if (s->map == NULL && error != EILSEQ && error != ENOENT) {
		errno = error;
		return -1;
	}
	if (h == NULL && (s->map == NULL || is_stray(s))) {
		s->end = SEGMENT_HEAD;
		return tell_damage(sc, s->number, 0, s->bytes, s->map == NULL ?
		    "the file is too short, or no file" : "another segment's file under this name");
	}
	if (h == NULL && tell_damage(sc, s->number, 0, SEGMENT_HEAD, "damaged head of the segment") == -1)
		return -1;
	if (h != NULL && from == 0 && follow_head(sc, s, h) == -1)
		return -1;
	if (scan_batches(sc, s, from != 0 ? from : SEGMENT_HEAD) == -1)
		return -1;
	if (h == NULL || s->maplen >= h->bytes)
		return 0;
	if (sc->pos.segment != s->number)
		return tell_damage(sc, s->number, s->maplen, h->bytes, "the file is shorter than its head says");
	sc->doubt = "the file is shorter than its head says";
	sc->doubt_to = h->bytes;
	sc->cut_short = true;
	return 0;
}

/* Behind the last segment: what stood in doubt, and the batch held back. */
static int
finish(struct scan *sc)
{
	struct segment	*last = &sc->l->seg[sc->l->nseg - 1];

	if (sc->doubt != NULL && !sc->cut_short && sc->pos.segment == last->number)
		sc->torn = true;		/* so the batch in front of it was synced (L1) */
	else if (sc->doubt != NULL) {
		if (tell_doubt(sc) == -1)
			return -1;
	} else if (sc->held.commit != NULL && each_record(sc->l, &sc->held, body_broken, NULL) != 0) {
		/* it lies in the last segment: another one behind it would have had it told */
		last->end = sc->held.first;
		sc->held.commit = NULL;
		sc->pos = sc->before;
		sc->torn = true;
	}
	return tell_held(sc);
}

static int
scan_all(struct scan *sc, const struct log_pos *from)
{
	struct log	*l = sc->l;
	uint32_t	 next = 1;	/* the number that the next segment should have */

	if (from->segment == 0 && l->nseg > 0 && l->seg[0].number > 1 && tell_missing(sc, 1, l->seg[0].number - 1) == -1)
		return -1;
	if (from->segment == 0)
		next = l->seg[0].number;
	else {
		if (from->offset < SEGMENT_HEAD || from->offset % 8 != 0) {
			errno = EINVAL;
			return -1;
		}
		sc->pos = *from;
		sc->linked = true;
		next = from->segment;
	}
	for (unsigned i = 0; i < l->nseg; i++) {
		uint32_t	number = l->seg[i].number;

		if (number < next)
			continue;
		if (number > next && tell_missing(sc, next, number - 1) == -1)
			return -1;
		if (scan_segment(sc, i, number == from->segment ? from->offset : 0) == -1)
			return -1;
		next = number + 1;
		if (next == 0)
			break;
	}
	if (next == from->segment && tell_missing(sc, next, next) == -1)
		return -1;
	return finish(sc);
}

enum scan_end
log_scan(struct log *l, const struct log_pos *from, const struct scan_callbacks *cb, void *arg, struct log_pos *end)
{
	struct scan	sc = { .l = l, .cb = cb, .arg = arg };
	int		rc;

	RUNS_IN(IN_COMMITTER | IN_TOOL | IN_TEST);
	rc = scan_all(&sc, from);
	free(sc.live.n);
	/* what was read stays in the kernel's cache, but does not count as ours any more */
	for (unsigned i = 0; i < l->nseg; i++)
		if (l->seg[i].map != NULL)
			madvise((void *)(uintptr_t)l->seg[i].map, l->seg[i].maplen, MADV_DONTNEED);
	*end = sc.pos;
	if (rc == -1)
		return SCAN_ERROR;
	return sc.damaged ? SCAN_DAMAGED : sc.torn ? SCAN_TORN : SCAN_END;
}
