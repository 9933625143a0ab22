/*
 * store/batch.c - from decided writes to one appended batch.
 *
 * Runs in: committer, tests.
 * Touches: the log (append), the tree (through index.c), the published root.
 *
 * What dying leaves: before batch_write() nothing; within it a torn tail that
 * the next start cuts; after it a whole batch that the next start syncs and
 * publishes, whether or not this process synced it.
 */
#include "config.h"

#include <sys/statvfs.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "shm/crc32c.h"
#include "shm/log.h"
#include "shm/proc.h"
#include "store/store.h"

/* Room in each segment that only deletes may use: they must work on a full disk. */
static uint64_t
reserve_bytes(const struct store *s)
{
	uint64_t	r = s->log.segment_size / 64;

	return r < 65536 ? r : 65536;
}

static uint32_t
head_crc(const struct rec_head *h)
{
	return crc32c(0, &h->kind, sizeof(*h) - sizeof(h->head_crc) + h->path_len + h->meta_len);
}

/* Newest time: the clock, but never behind what was given out (no RTC, contract 8). */
static uint64_t
next_time(struct store *s)
{
	struct timespec	ts;
	uint64_t	now = 0;

	if (clock_gettime(CLOCK_REALTIME, &ts) == 0 && ts.tv_sec > 0)
		now = (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
	if (now > s->time_ms)
		s->time_ms = now;
	return s->time_ms;
}

static int
grow(void **p, unsigned *cap, unsigned need, size_t size)
{
	unsigned	 n = *cap != 0 ? *cap : 64;
	void		*q;

	if (need <= *cap)
		return 0;
	while (n < need)
		n *= 2;
	if ((q = realloc(*p, n * size)) == NULL)
		return -1;
	*p = q;
	*cap = n;
	return 0;
}

/* Takes a record that index.c has applied into the batch.  Room for it was made by stage_prepare(). */
static void
stage(struct store *s, const struct rec_head *h, const struct iovec *iov, int niov, uint64_t bytes)
{
	static uint8_t	 zeros[8];
	struct batch	*b = &s->batch;
	uint32_t	 sums[2] = { h->head_crc, h->body_crc };
	uint64_t	 len = 0;

	if (b->count == 0)
		b->crc = crc32c(0, &s->log.pos.chain, sizeof(s->log.pos.chain));
	for (int i = 0; i < niov; i++) {
		b->iov[b->niov++] = iov[i];
		len += iov[i].iov_len;
	}
	if (len < bytes)
		b->iov[b->niov++] = (struct iovec){ zeros, bytes - len };
	b->crc = crc32c(b->crc, sums, sizeof(sums));
	b->bytes += bytes;
	b->count++;
}

/* Allocates all that stage() needs, so that it cannot fail once the tree is changed. */
static int
stage_prepare(struct store *s, int niov)
{
	struct batch	*b = &s->batch;

	if (grow((void **)&b->iov, &b->capiov, b->niov + (unsigned)niov + 2, sizeof(*b->iov)) == -1 ||
	    grow((void **)&b->owned, &b->capowned, b->nowned + 1, sizeof(*b->owned)) == -1)
		return -1;
	return 0;
}

/* ------------------------------------------------------------------ room */

static void
say_full(struct store *s, const char *what, int error)
{
	if (!s->full)
		log_warnx("%s: %s: %s; writes are answered 507 until there is room", s->dir, what, strerror(error));
	s->full = true;
	snprintf(s->reason, sizeof(s->reason), "no room for a new log segment: %s", strerror(error));
}

/* Is there any point in asking for another segment?  Only this file system is looked at (F29). */
static bool
disk_has_room(struct store *s, uint64_t bytes)
{
	struct statvfs	v;

	if (fstatvfs(s->dirfd, &v) == -1)
		return true;		/* let the attempt itself say why not */
	return (uint64_t)v.f_bavail * v.f_frsize >= bytes;
}

/* First record of a segment: which others are live, so that a lost one is missed. */
static int
list_segments(struct store *s)
{
	uint32_t	*n;
	unsigned	 count = 0;
	int		 rc;

	if ((n = malloc(s->log.nseg * sizeof(*n))) == NULL)
		return -1;
	for (unsigned i = 0; i + 1 < s->log.nseg; i++)
		if (!s->log.seg[i].dropped)
			n[count++] = s->log.seg[i].number;
	rc = batch_add_own(s, REC_SEGMENTS, n, count * sizeof(*n), false);
	free(n);
	return rc;
}

int
batch_room(struct store *s, uint64_t bytes, bool may_roll, bool reserve)
{
	uint64_t	left = log_left(&s->log), keep = reserve ? 0 : reserve_bytes(s);
	uint64_t	need = bytes + sizeof(struct commit_rec);
	uint64_t	list = sizeof(struct rec_head) + 8 + (s->log.nseg + 1) * sizeof(uint32_t);
	bool		rolled = false;

	if (s->batch.bytes + need + keep <= left)
		return 0;
	if (!may_roll || !batch_empty(s)) {
		errno = EAGAIN;
		return -1;
	}
	/* the reserve of the segment being left is of no use to anyone: ask with it */
	need += list + reserve_bytes(s);
	if (!disk_has_room(s, need > s->log.segment_size ? need : s->log.segment_size)) {
		say_full(s, "log", ENOSPC);
		errno = ENOSPC;
		return -1;
	}
	if (log_room(&s->log, need, s->max_seq + 1, &rolled) == -1) {
		if (errno == ENOSPC || errno == EDQUOT)
			say_full(s, "log", errno);
		return -1;
	}
	if (s->full)
		log_info("%s: there is room again", s->dir);
	s->full = false;
	if (!rolled)
		return 0;
	s->segments_epoch = s->w.gen;
	return list_segments(s);
}

/* ------------------------------------------------------------------ adding */

static int
apply(struct store *s, const struct rec_head *h)
{
	struct index_target	t = { s, &s->w, true };

	return index_apply(&t, h, s->log.pos.segment, (uint32_t)(s->log.pos.offset + s->batch.bytes), NULL);
}

/* The tenant's id goes into its settings: kept over a replacement, else a new one. */
static int
fill_tenant(struct store *s, const struct op *op, const struct doc_val *now, struct rec_head *h)
{
	struct tenant_settings	 set, old;
	const struct rec_head	*r;

	if (op->body == NULL || op->body_len != sizeof(set)) {
		errno = EINVAL;
		return -1;
	}
	memcpy(&set, op->body, sizeof(set));
	set.version = TENANT_VERSION;
	set.id = s->next_tenant;
	if (now->seq != 0 && (now->flags & DOC_TOMBSTONE) == 0) {
		if ((r = log_record(&s->log, now->segment, now->offset)) == NULL)
			return -1;
		if (r->body_len != sizeof(old) || !rec_body_ok(r)) {
			errno = EILSEQ;
			return -1;
		}
		memcpy(&old, rec_body(r), sizeof(old));
		set.id = old.id;
	}
	memcpy(op->body, &set, sizeof(set));
	h->body_crc = crc32c(0, &set, sizeof(set));
	return 0;
}

/* The id of the tenant that is to be dropped; 0 where its record cannot be read. */
static uint32_t
tenant_of(struct store *s, const struct doc_val *now)
{
	const struct rec_head	*r = log_record(&s->log, now->segment, now->offset);
	struct tenant_settings	 set;

	if (r == NULL || r->body_len != sizeof(set) || !rec_body_ok(r))
		return 0;
	memcpy(&set, rec_body(r), sizeof(set));
	return set.id;
}

static int
fill_head(struct store *s, const struct op *op, const struct doc_val *now, struct rec_head *h)
{
	static const uint8_t	kinds[] = {
		[OP_PUT] = REC_PUT, [OP_DELETE] = REC_DELETE,
		[OP_TENANT_PUT] = REC_PUT, [OP_TENANT_DROP] = REC_DROP_TENANT,
	};

	*h = (struct rec_head){
		.kind = kinds[op->kind], .path_len = op->path_len, .meta_len = op->meta_len,
		.body_len = (uint32_t)op->body_len, .body_crc = op->body_crc,
		.lane = op->lane, .number = op->number, .tenant = op->tenant,
		.seq = s->max_seq + 1, .time_ms = next_time(s), .run = s->run,
	};
	if (op->kind == OP_TENANT_PUT) {
		h->tenant = 0;
		return fill_tenant(s, op, now, h);
	}
	if (op->kind == OP_TENANT_DROP && (h->tenant = tenant_of(s, now)) == 0) {
		errno = EILSEQ;
		return -1;
	}
	return 0;
}

static enum add
refuse(struct result *res, enum outcome o, const struct doc_val *now)
{
	bool	there = now != NULL && now->seq != 0 && (now->flags & DOC_TOMBSTONE) == 0;

	*res = (struct result){ .outcome = o };
	if (there) {
		res->seq = now->seq;
		res->run = now->run;
		res->time_ms = now->time_ms;
	}
	return ADD_DONE;
}

static enum outcome
outcome_of_errno(int e)
{
	switch (e) {
	case ENOSPC:
	case EDQUOT:
	case ENOMEM:
		return OUT_FULL;
	case EFBIG:
		return OUT_TOO_LARGE;
	case EINVAL:
		return OUT_POISON;
	default:
		return OUT_READONLY;
	}
}

/*
 * Without memory for tree pages a write is refused like one without disk.
 * Dropping a tenant may be half done then, and a damaged page spoils any
 * change: neither is written, a new committer starts from the log.
 */
static enum add
not_applied(struct store *s, const struct op *op, struct result *res)
{
	if (errno == EILSEQ)
		s->error = ERR_TREE;
	else if (op->kind == OP_TENANT_DROP)
		s->error = ERR_FULL_IN_WRITE;
	else
		return refuse(res, outcome_of_errno(errno), NULL);
	return ADD_LATER;
}

enum add
batch_add(struct store *s, const struct op *op, struct result *res, bool may_roll)
{
	struct rec_head	*h = (struct rec_head *)(void *)op->head;
	struct doc_val	 now;
	enum outcome	 o;
	uint64_t	 bytes = (sizeof(*h) + op->payload_len + 7) & ~(uint64_t)7;

	RUNS_IN(IN_COMMITTER | IN_TEST);
	if (s->error != ERR_NONE || s->damaged)
		return refuse(res, OUT_READONLY, NULL);
	if (bytes > SEGMENT_MAX / 2 || op->body_len > UINT32_MAX)
		return refuse(res, OUT_TOO_LARGE, NULL);
	o = decide(s, op, &now);
	if (o == OUT_READONLY) {	/* a damaged page: whoever comes next decides it */
		s->error = ERR_TREE;
		return ADD_LATER;
	}
	if (o != OUT_CREATED && o != OUT_REPLACED && o != OUT_DELETED)
		return refuse(res, o, &now);
	if (batch_room(s, bytes, may_roll, o == OUT_DELETED) == -1) {
		if (errno == EAGAIN)
			return ADD_LATER;
		if (o != OUT_DELETED || s->batch.bytes + bytes + sizeof(struct commit_rec) > log_left(&s->log))
			return refuse(res, outcome_of_errno(errno), NULL);
	}
	if (stage_prepare(s, op->niov) == -1)
		return refuse(res, OUT_FULL, NULL);
	if (fill_head(s, op, &now, h) == -1)
		return refuse(res, outcome_of_errno(errno), NULL);
	if (rec_bytes(h) != bytes)
		return refuse(res, OUT_POISON, NULL);
	h->head_crc = head_crc(h);
	if (apply(s, h) == -1)
		return not_applied(s, op, res);
	s->max_seq = h->seq;
	stage(s, h, op->iov, op->niov, bytes);
	*res = (struct result){ .outcome = o, .seq = h->seq, .time_ms = h->time_ms, .run = h->run };
	return ADD_DONE;
}

/* A record of our own: head and body in one buffer that the batch owns. */
static int
add_buffer(struct store *s, uint8_t *buf, uint64_t bytes)
{
	struct rec_head	*h = (struct rec_head *)(void *)buf;
	struct iovec	 iov = { buf, bytes };

	if (stage_prepare(s, 1) == -1 || apply(s, h) == -1) {
		free(buf);
		return -1;
	}
	stage(s, h, &iov, 1, bytes);
	s->batch.owned[s->batch.nowned++] = buf;
	return 0;
}

int
batch_add_own(struct store *s, enum rec_kind kind, const void *body, uint32_t len, bool may_roll)
{
	struct rec_head	 h = {
		.kind = (uint8_t)kind, .body_len = len, .lane = REC_LANE_NONE,
		.seq = s->max_seq, .time_ms = s->time_ms, .run = s->run,
	};
	uint64_t	 bytes = rec_bytes(&h);
	uint8_t		*buf;

	if (len > SUBMIT_CHUNK) {	/* one checksum, no table: 16,384 segments */
		errno = EFBIG;
		return -1;
	}
	if (batch_room(s, bytes, may_roll, true) == -1 || (buf = calloc(1, bytes)) == NULL)
		return -1;
	h.body_crc = len != 0 ? crc32c(0, body, len) : 0;
	memcpy(buf, &h, sizeof(h));
	if (len != 0)
		memcpy(buf + sizeof(h), body, len);
	((struct rec_head *)(void *)buf)->head_crc = head_crc(&h);
	return add_buffer(s, buf, bytes);
}

int
batch_add_moved(struct store *s, const struct rec_head *old, uint32_t segment, uint32_t offset, bool may_roll)
{
	uint64_t	 bytes = rec_bytes(old);
	struct rec_head	*h;
	uint8_t		*buf;

	(void)segment;
	(void)offset;
	if (!rec_body_ok(old)) {
		errno = EILSEQ;
		return -1;
	}
	if (batch_room(s, bytes, may_roll, false) == -1)
		return -1;
	/* a copy: the record must not change between its checksum and the write */
	if ((buf = malloc(bytes)) == NULL)
		return -1;
	memcpy(buf, old, bytes);
	h = (struct rec_head *)(void *)buf;
	h->flags |= REC_MOVED;
	h->lane = REC_LANE_NONE;
	h->number = 0;
	h->head_crc = head_crc(h);
	if (add_buffer(s, buf, bytes) == -1)
		return -1;
	s->batch.moved += bytes;
	return 0;
}

/* ------------------------------------------------------------------ writing */

static void
batch_reset(struct batch *b)
{
	for (unsigned i = 0; i < b->nowned; i++)
		free(b->owned[i]);
	b->nowned = b->niov = 0;
	b->bytes = b->moved = 0;
	b->count = 0;
}

static void
seal(struct store *s)
{
	s->sealed.root = (struct root){
		.gen = s->root.gen + 1,
		.max_seq = s->max_seq,
		.time_ms = s->time_ms,
		.catalog_seq = s->catalog_seq,
		.segments_epoch = s->segments_epoch,
		.page = s->w.t.root,
		.checkpoint = s->ck.head.number,
		.first_segment = s->log.seg[0].number,
		.last_segment = s->log.pos.segment,
	};
	s->sealed.is = true;
	/* pages of the sealed generation are not changed in place any more */
	s->w.gen = s->sealed.root.gen + 1;
}

int
batch_write(struct store *s)
{
	struct batch		*b = &s->batch;
	struct commit_rec	*c = &b->commit;

	RUNS_IN(IN_COMMITTER | IN_TEST);
	*c = (struct commit_rec){
		.mark = s->log.mark, .batch = s->log.pos.batch + 1, .region = s->region_id,
		.max_seq = s->max_seq, .time_ms = s->time_ms,
		.bytes = (uint32_t)b->bytes, .count = b->count,
		.chain = s->log.pos.chain, .batch_crc = b->crc,
	};
	c->rec_crc = crc32c(0, (const uint8_t *)c + 12, sizeof(*c) - 12);
	b->iov[b->niov++] = (struct iovec){ c, sizeof(*c) };
	if (log_write(&s->log, 0, b->iov, (int)b->niov) == -1) {
		batch_failed(s, errno);
		return -1;
	}
	log_advance(&s->log, b->bytes, b->crc);
	s->tail += b->bytes + sizeof(*c);
	batch_reset(b);
	seal(s);
	return 0;
}

void
batch_publish(struct store *s)
{
	s->root = s->sealed.root;
	s->sealed.is = false;
	root_publish(overlay_roots(&s->overlay), &s->root);
}

void
batch_failed(struct store *s, int error)
{
	/* A full disk at write time: nothing was acknowledged, the tail is cut by the next committer. */
	s->error = error == ENOSPC || error == EDQUOT ? ERR_FULL_IN_WRITE : ERR_SYNC;
	snprintf(s->reason, sizeof(s->reason), "log segment %u: write or sync failed: %s",
	    s->log.pos.segment, strerror(error));
	log_warnx("%s: %s; no write is acknowledged from here on", s->dir, s->reason);
	batch_reset(&s->batch);
}
