/*
 * store/rewrite.c - see store/rewrite.h.
 *
 * Runs in: tools, tests.
 */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "shm/crc32c.h"
#include "shm/proc.h"
#include "store/rewrite.h"

#define BATCH_BYTES	((uint64_t)4 << 20)

static void
sum_head(struct rec_head *h)
{
	h->head_crc = rec_head_crc(h);
}

static int
flush(struct rewrite *w)
{
	struct commit_rec	c = {
		.mark = w->log.mark, .batch = w->log.pos.batch + 1, .max_seq = w->max_seq, .time_ms = w->time_ms,
		.bytes = (uint32_t)w->used, .chain = w->log.pos.chain,
		.batch_crc = crc32c(0, &w->log.pos.chain, sizeof(w->log.pos.chain)),
	};
	struct iovec		iov[2] = { { w->buf, w->used }, { &c, sizeof(c) } };
	size_t			from = offsetof(struct commit_rec, pad);

	if (w->used == 0)
		return 0;
	for (uint64_t at = 0; at < w->used; c.count++) {
		const struct rec_head	*h = (const struct rec_head *)(const void *)(w->buf + at);
		uint32_t		 sums[2] = { h->head_crc, h->body_crc };

		c.batch_crc = crc32c(c.batch_crc, sums, sizeof(sums));
		at += rec_bytes(h);
	}
	c.rec_crc = crc32c(0, (const uint8_t *)&c + from, sizeof(c) - from);
	if (log_write(&w->log, 0, iov, 2) == -1 || log_sync(&w->log) == -1)
		return -1;
	log_advance(&w->log, w->used, c.batch_crc);
	w->used = 0;
	return 0;
}

static int
grow(struct rewrite *w, uint64_t need)
{
	uint64_t	 cap = w->cap != 0 ? w->cap : 65536;
	uint8_t		*p;

	while (cap < need)
		cap *= 2;
	if (cap == w->cap)
		return 0;
	if ((p = realloc(w->buf, cap)) == NULL)
		return -1;
	w->buf = p;
	w->cap = cap;
	return 0;
}

/* Where a record of n bytes goes, zeroed; there is room in its segment. */
static void *
stage(struct rewrite *w, uint64_t n)
{
	void	*p;

	if (grow(w, w->used + n) == -1)
		return NULL;
	p = memset(w->buf + w->used, 0, n);
	w->used += n;
	return p;
}

/* First record of a segment: the others. */
static int
list_segments(struct rewrite *w)
{
	uint32_t	 count = w->log.nseg - 1;
	struct rec_head	 h = {
		.kind = REC_SEGMENTS, .lane = REC_LANE_NONE, .body_len = count * (uint32_t)sizeof(count),
		.seq = w->max_seq, .time_ms = w->time_ms, .run = w->run,
	}, *p;
	uint32_t	*n;

	if ((p = stage(w, rec_bytes(&h))) == NULL)
		return -1;
	*p = h;
	n = (uint32_t *)(void *)(p + 1);
	for (uint32_t i = 0; i < count; i++)
		n[i] = w->log.seg[i].number;
	rec_body_sum(p);
	sum_head(p);
	return 0;
}

/* Room for a record of n bytes in the batch, which may have to go to the disk first. */
static int
room(struct rewrite *w, uint64_t n)
{
	struct rec_head	h = { .body_len = (w->log.nseg + 1) * (uint32_t)sizeof(uint32_t) };
	uint64_t	list = rec_bytes(&h);
	bool		rolled = false;

	if (w->used != 0 && (w->used + n > BATCH_BYTES || w->used + n + sizeof(struct commit_rec) > log_left(&w->log)) &&
	    flush(w) == -1)
		return -1;
	if (w->used != 0 || n + sizeof(struct commit_rec) <= log_left(&w->log))
		return 0;
	if (log_room(&w->log, n + list + sizeof(struct commit_rec), w->max_seq + 1, &rolled) == -1)
		return -1;
	return rolled ? list_segments(w) : 0;
}

int
rewrite_open(struct rewrite *w, int dirfd, uint64_t segment_size, const struct segment_head *first)
{
	RUNS_IN(IN_TOOL | IN_TEST);
	w->buf = NULL;
	w->used = w->cap = 0;
	w->log = (struct log){ .fd = -1 };
	if (log_create_from(&w->log, dirfd, segment_size, first) == -1)
		return -1;
	/* an empty list: those in front are not missed */
	return list_segments(w);
}

int
rewrite_add(struct rewrite *w, const struct rec_head *h)
{
	struct rec_head	*p;

	if (room(w, rec_bytes(h)) == -1 || (p = stage(w, rec_bytes(h))) == NULL)
		return -1;
	memcpy(p, h, rec_bytes(h));
	p->flags |= REC_MOVED;
	p->lane = REC_LANE_NONE;
	p->number = 0;
	sum_head(p);
	return 0;
}

int
rewrite_make(struct rewrite *w, const struct rec_head *h, const void *path, const void *body)
{
	struct rec_head	*p;
	uint8_t		*rest;

	if (h->body_len > SUBMIT_CHUNK) {
		errno = EFBIG;
		return -1;
	}
	if (room(w, rec_bytes(h)) == -1 || (p = stage(w, rec_bytes(h))) == NULL)
		return -1;
	*p = *h;
	p->flags |= REC_MOVED;
	p->lane = REC_LANE_NONE;
	rest = (uint8_t *)(p + 1);
	memcpy(rest, path, h->path_len);
	if (h->body_len != 0)
		memcpy(rest + h->path_len + h->meta_len, body, h->body_len);
	p->body_crc = h->body_len != 0 ? crc32c(0, body, h->body_len) : 0;
	sum_head(p);
	return 0;
}

int
rewrite_end(struct rewrite *w)
{
	return flush(w);
}

void
rewrite_close(struct rewrite *w)
{
	log_close(&w->log);
	free(w->buf);
	w->buf = NULL;
}
