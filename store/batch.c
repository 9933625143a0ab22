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
#include "store/crashpoint.h"
#include "store/store.h"

#define LOOK_BYTES	((uint64_t)64 << 10)

/* Room in each segment that only deletes may use: they must work on a full disk. */
static uint64_t
reserve_bytes(const struct store *s)
{
	uint64_t	r = s->log.segment_size / 64;

	return r < 65536 ? r : 65536;
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

/* Takes a record that index.c has applied into the batch: its pieces, then its end.  stage_prepare() made room. */
static void
stage_piece(struct store *s, const struct iovec *iov)
{
	struct batch	*b = &s->batch;

	b->iov[b->niov++] = *iov;
	b->staged += iov->iov_len;
}

static void
stage_end(struct store *s, const struct rec_head *h, uint64_t bytes)
{
	static uint8_t	 zeros[8];
	struct batch	*b = &s->batch;
	uint32_t	 sums[2] = { h->head_crc, h->body_crc };

	if (b->count == 0)
		b->crc = crc32c(0, &s->log.pos.chain, sizeof(s->log.pos.chain));
	b->bytes += bytes;
	if (b->staged < b->bytes)
		stage_piece(s, &(struct iovec){ zeros, b->bytes - b->staged });
	b->crc = crc32c(b->crc, sums, sizeof(sums));
	b->count++;
}

/* Allocates all that staging needs, so that it cannot fail once the tree is changed. */
static int
stage_prepare(struct store *s, int niov)
{
	struct batch	*b = &s->batch;

	if (grow((void **)&b->iov, &b->capiov, b->niov + (unsigned)niov + 3, sizeof(*b->iov)) == -1 ||
	    grow((void **)&b->owned, &b->capowned, b->nowned + 1, sizeof(*b->owned)) == -1)
		return -1;
	return 0;
}

/* ------------------------------------------------------------------ room */

static void
say_full(struct store *s, uint64_t bytes, const char *why)
{
	if (!s->full)
		log_warnx("%s: no room for a new log segment: %s; writes are answered 507 until there is", s->dir, why);
	if (!s->full || bytes > s->full_bytes)
		s->full_bytes = bytes;
	s->full = true;
	snprintf(s->reason, sizeof(s->reason), "no room for a new log segment: %s", why);
}

static void
room_again(struct store *s)
{
	if (s->full)
		log_info("%s: there is room again", s->dir);
	s->full = false;
	s->full_bytes = 0;
}

/* Why there is no point in asking for a file of so many bytes; NULL.  Only this file system is looked at (F29). */
static const char *
disk_problem(struct store *s, uint64_t bytes)
{
	static char	text[96];
	struct statvfs	v;
	uint64_t	left;

	if (fstatvfs(s->dirfd, &v) == -1)
		return NULL;		/* let the attempt itself say why not */
	if (v.f_files != 0 && v.f_favail == 0)
		return "no free inodes (df -i)";	/* F27 */
	left = (uint64_t)v.f_bavail * v.f_frsize;
	if (left >= bytes)
		return NULL;
	snprintf(text, sizeof(text), "%llu KiB are free on the disk, %llu KiB are needed (with the reserve)",
	    (unsigned long long)left / 1024, (unsigned long long)bytes / 1024);
	return text;
}

static int	add_own(struct store *, enum rec_kind, const void *, uint32_t);

/* First record of a segment: which others are live, so that a lost one is missed. */
static int
list_segments(struct store *s)
{
	uint32_t	*n;
	unsigned	 count = 0;
	int		 rc;

	if ((n = calloc(s->log.nseg, sizeof(*n))) == NULL)
		return -1;
	for (unsigned i = 0; i + 1 < s->log.nseg; i++)
		if (!s->log.seg[i].dropped)
			n[count++] = s->log.seg[i].number;
	rc = add_own(s, REC_SEGMENTS, n, count * (uint32_t)sizeof(*n));
	free(n);
	return rc;
}

/*
 * A segment that a predecessor left in front of its first batch, or for whose list
 * we had no memory: nothing goes into it before that.  Without the newest list each
 * segment that was ever dropped would look like one that is lost.
 */
int
batch_resume(struct store *s)
{
	if (s->log.pos.segment <= 1 || s->log.pos.offset != SEGMENT_HEAD || !batch_empty(s))
		return 0;
	return list_segments(s);
}

/* Bytes of the segment that a record of `bytes` needs at least, if it begins one. */
static uint64_t
first_need(const struct store *s, uint64_t bytes)
{
	struct rec_head	h = { .body_len = (s->log.nseg + 1) * (uint32_t)sizeof(uint32_t) };
	uint64_t	list = rec_bytes(&h);

	/* the reserve of the segment being left is of no use to anyone: ask with it */
	return bytes + sizeof(struct commit_rec) + list + reserve_bytes(s);
}

/* A new segment out of free space, beside which the reserve has its room.  0; -1 errno, *why where there is none. */
static int
begin_segment(struct store *s, uint64_t need, const char **why)
{
	uint64_t	size = SEGMENT_HEAD + need, left = log_left(&s->log);
	bool		rolled;

	if (size < s->log.segment_size)
		size = s->log.segment_size;
	if ((*why = disk_problem(s, size + reserve_missing(s))) != NULL) {
		errno = ENOSPC;
		return -1;
	}
	/* more than is left: it is to be a new one in any case */
	if (log_room(&s->log, need > left ? need : left + 1, s->max_seq + 1, &rolled) == 0)
		return 0;
	if (log_is_room_error(errno) && (*why = disk_problem(s, 0)) == NULL)
		*why = strerror(errno);
	return -1;
}

/* Likewise out of the reserve. */
static int
begin_spare(struct store *s, uint64_t need)
{
	uint64_t	size = s->reserve.log_bytes;

	if (size == 0) {
		errno = ENOSPC;
		return -1;
	}
	if (log_room_spare(&s->log, RESERVE_LOG, size, need, s->max_seq + 1) == -1) {
		if (log_is_room_error(errno) && need <= size - SEGMENT_HEAD)
			s->reserve.log_bytes = 0;	/* it is not what it was */
		return -1;
	}
	log_info("%s: the disk is full: log segment %u is the reserve's", s->dir, s->log.pos.segment);
	s->reserve.log_bytes = 0;
	return 0;
}

/* Begins a segment for whoever asks.  -1: ENOSPC, or something broke. */
static int
roll(struct store *s, uint64_t bytes, enum room who)
{
	uint64_t	 need = first_need(s, bytes);
	const char	*why;

	if (begin_segment(s, need, &why) == 0) {
		room_again(s);
		(void)reserve_keep(s);	/* before somebody else takes the room that was seen for it */
	} else {
		if (!log_is_room_error(errno))
			goto broken;
		say_full(s, bytes, why);
		if (who == ROOM_WRITE)
			goto full;
		reserve_look(s);	/* somebody may have removed it: the disk is full */
		if (s->reserve.log_bytes == 0)
			(void)reserve_keep(s);	/* a short one, of the last bit that there is */
		if (begin_spare(s, need) == -1) {
			if (!log_is_room_error(errno))
				goto broken;
			goto full;
		}
	}
	s->segments_epoch = s->w.gen;
	return batch_resume(s);
full:
	errno = who == ROOM_DELETE && compact_brings_space(s) ? EAGAIN : ENOSPC;
	return -1;
broken:
	batch_failed(s, errno);
	errno = EIO;
	return -1;
}

/* What must be left behind a record. */
static uint64_t
keep_for(const struct store *s, enum room who)
{
	switch (who) {
	case ROOM_WRITE:
	case ROOM_MOVE:
		return reserve_bytes(s);
	case ROOM_DELETE:
		/* what compaction has begun to move has to arrive */
		return reserve_bytes(s) / 8 + (reserve_in_use(s) ? s->moving : 0);
	case ROOM_OWN:
		break;
	}
	return 0;
}

/* In the newest segment, without beginning another one. */
static bool
fits(const struct store *s, uint64_t bytes, enum room who)
{
	/* what stands in the reserve is not for those who filled the disk */
	uint64_t	left = who == ROOM_WRITE && reserve_in_use(s) ? 0 : log_left(&s->log);

	return s->batch.bytes + bytes + sizeof(struct commit_rec) + keep_for(s, who) <= left;
}

int
batch_room(struct store *s, uint64_t bytes, bool may_roll, enum room who)
{
	if (batch_resume(s) == -1)
		return -1;
	if (fits(s, bytes, who))
		return 0;
	if (!may_roll || !batch_empty(s)) {
		errno = EAGAIN;
		return -1;
	}
	/* deletes and our own records are what space is won with */
	if ((who == ROOM_WRITE || who == ROOM_MOVE) && !s->full &&
	    compact_holds_back(s, bytes > s->log.segment_size ? bytes : s->log.segment_size, who == ROOM_MOVE)) {
		errno = EAGAIN;
		return -1;
	}
	return roll(s, bytes, who);
}

void
batch_look(struct store *s)
{
	uint64_t	 bytes = s->log.segment_size / 16 < LOOK_BYTES ? s->log.segment_size / 16 : LOOK_BYTES;
	const char	*why;

	if (s->error != ERR_NONE || s->damaged || fits(s, bytes, ROOM_WRITE))
		return;
	if ((why = disk_problem(s, s->log.segment_size + reserve_missing(s))) != NULL)
		say_full(s, bytes, why);
}

void
batch_probe(struct store *s)
{
	if (!s->full || s->error != ERR_NONE || !batch_empty(s) || !reserve_keep(s))
		return;
	/* a document with a segment of its own waits until somebody PUTs it again */
	if (first_need(s, s->full_bytes) > s->log.segment_size - SEGMENT_HEAD) {
		if (disk_problem(s, first_need(s, s->full_bytes)) == NULL)
			room_again(s);
	} else if (batch_room(s, s->full_bytes, true, ROOM_WRITE) == 0)
		room_again(s);
}

uint64_t
batch_room_full(const struct store *s)
{
	uint64_t	left = log_left(&s->log), keep = 2 * reserve_bytes(s) + first_need(s, 0);

	if (s->reserve.log_bytes > left + SEGMENT_HEAD)
		left = s->reserve.log_bytes - SEGMENT_HEAD;
	return left > s->batch.bytes + keep ? left - s->batch.bytes - keep : 0;
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

	uint8_t			*body = (uint8_t *)(h + 1) + op->path_len + op->meta_len;

	if (op->body_len != sizeof(set)) {	/* so the record is ours as a whole */
		errno = EINVAL;
		return -1;
	}
	memcpy(&set, body, sizeof(set));
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
	memcpy(body, &set, sizeof(set));
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
	case EFBIG:		/* a limit of the system's, ulimit -f: too large is refused before */
	case ENOMEM:
		return OUT_FULL;
	case EINVAL:
		return OUT_POISON;
	case EILSEQ:		/* fill_head(): a tenant's record */
		return OUT_DAMAGED;
	default:
		return OUT_READONLY;
	}
}

#define OWN_WHOLE	8192u	/* a record up to this size is copied whole */

/* Copies the first n bytes of what iov names. */
static void
gather_front(uint8_t *out, const struct iovec *iov, size_t n)
{
	for (; n > 0; iov++) {
		size_t	k = iov->iov_len < n ? iov->iov_len : n;

		memcpy(out, iov->iov_base, k);
		out += k;
		n -= k;
	}
}

/*
 * The record in memory of the committer's own: a worker can write to the arena
 * at any time, and a head, a name or a small body that changed between its
 * checksum and the write would spoil the batch, with the writes of others in
 * it.  What is not copied of a large body can only make that body wrong, which
 * its checksum tells.  given (malloc'd); NULL with errno: EINVAL where the body
 * is not what its checksum says.
 */
static uint8_t *
own_record(const struct op *op, uint64_t bytes, size_t *len)
{
	size_t	 front = SUBMIT_HEADROOM + (size_t)op->path_len + op->meta_len;
	uint8_t	*buf;

	if (front + op->body_len > SUBMIT_HEADROOM + op->payload_len) {
		errno = EINVAL;
		return NULL;
	}
	*len = bytes <= OWN_WHOLE ? (size_t)bytes : front;
	if ((buf = calloc(1, *len)) == NULL)
		return NULL;
	gather_front(buf, op->iov, *len < SUBMIT_HEADROOM + op->payload_len ? *len : SUBMIT_HEADROOM + op->payload_len);
	/* the name that was decided on */
	memcpy(buf + SUBMIT_HEADROOM, op->path, op->path_len);
	if (*len == bytes && op->body_len != 0 && crc32c(0, buf + front, op->body_len) != op->body_crc) {
		free(buf);
		errno = EINVAL;
		return NULL;
	}
	return buf;
}

/* Stages a record that own_record() made: its own part, then what is left of the body in the arena. */
static void
stage_op(struct store *s, const struct op *op, uint8_t *buf, size_t len, uint64_t bytes)
{
	struct iovec	 own = { buf, len };
	size_t		 skip = len;
	int		 i = 0;

	stage_piece(s, &own);
	for (; i < op->niov && skip >= op->iov[i].iov_len; i++)
		skip -= op->iov[i].iov_len;
	for (; i < op->niov; i++, skip = 0) {
		struct iovec	rest = { (uint8_t *)op->iov[i].iov_base + skip, op->iov[i].iov_len - skip };

		stage_piece(s, &rest);
	}
	stage_end(s, (const struct rec_head *)(const void *)buf, bytes);
	s->batch.owned[s->batch.nowned++] = buf;
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
	struct rec_head	*h;
	struct doc_val	 now;
	enum outcome	 o;
	enum add	 add = ADD_DONE;
	uint8_t		*buf;
	size_t		 len;
	uint64_t	 bytes = (sizeof(*h) + op->payload_len + 7) & ~(uint64_t)7;

	RUNS_IN(IN_COMMITTER | IN_TEST);
	if (s->error != ERR_NONE || s->damaged)
		return refuse(res, OUT_READONLY, NULL);
	if (bytes > SEGMENT_MAX / 2 || op->body_len > UINT32_MAX)
		return refuse(res, OUT_TOO_LARGE, NULL);
	o = decide(s, op, &now);
	if (store_faulted(s))
		return ADD_LATER;
	if (o == OUT_READONLY) {	/* a damaged page: whoever comes next decides it */
		s->error = ERR_TREE;
		return ADD_LATER;
	}
	if (o != OUT_CREATED && o != OUT_REPLACED && o != OUT_DELETED)
		return refuse(res, o, &now);
	if (batch_room(s, bytes, may_roll, o == OUT_DELETED ? ROOM_DELETE : ROOM_WRITE) == -1) {
		if (errno == EAGAIN)
			return ADD_LATER;
		return refuse(res, outcome_of_errno(errno), NULL);
	}
	if (stage_prepare(s, op->niov) == -1 || (buf = own_record(op, bytes, &len)) == NULL)
		return refuse(res, outcome_of_errno(errno), NULL);
	h = (struct rec_head *)(void *)buf;
	if (fill_head(s, op, &now, h) == -1) {
		s->faults = guard_filled();	/* at most its tenant's record */
		refuse(res, outcome_of_errno(errno), NULL);
		goto refused;
	}
	if (rec_bytes(h) != bytes) {
		refuse(res, OUT_POISON, NULL);
		goto refused;
	}
	h->head_crc = rec_head_crc(h);
	if (apply(s, h) == -1) {
		add = not_applied(s, op, res);
		goto refused;
	}
	s->max_seq = h->seq;
	*res = (struct result){ .outcome = o, .seq = h->seq, .time_ms = h->time_ms, .run = h->run };
	stage_op(s, op, buf, len, bytes);
	return ADD_DONE;
refused:
	free(buf);
	return add;
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
	stage_piece(s, &iov);
	stage_end(s, h, bytes);
	s->batch.owned[s->batch.nowned++] = buf;
	return 0;
}

static int
add_own(struct store *s, enum rec_kind kind, const void *body, uint32_t len)
{
	struct rec_head	 head = {
		.kind = (uint8_t)kind, .body_len = len, .lane = REC_LANE_NONE,
		.seq = s->max_seq, .time_ms = s->time_ms, .run = s->run,
	};
	uint64_t	 bytes = rec_bytes(&head);
	uint8_t		*buf = calloc(1, bytes);
	struct rec_head	*h = (struct rec_head *)(void *)buf;

	if (buf == NULL)
		return -1;
	*h = head;
	if (len != 0)
		memcpy(h + 1, body, len);
	rec_body_sum(h);
	h->head_crc = rec_head_crc(h);
	return add_buffer(s, buf, bytes);
}

int
batch_add_own(struct store *s, enum rec_kind kind, const void *body, uint32_t len, bool may_roll)
{
	struct rec_head	h = { .body_len = len };

	if (batch_room(s, rec_bytes(&h), may_roll, ROOM_OWN) == -1)
		return -1;
	return add_own(s, kind, body, len);
}

int
batch_add_moved(struct store *s, const struct rec_head *old, bool may_roll)
{
	uint64_t	 bytes = rec_bytes(old);
	struct rec_head	*h;
	uint8_t		*buf;

	if (batch_room(s, bytes, may_roll, ROOM_MOVE) == -1)
		return -1;
	/* a copy: the record must not change between its checksum and the write */
	if ((buf = malloc(bytes)) == NULL)
		return -1;
	memcpy(buf, old, bytes);
	h = (struct rec_head *)(void *)buf;
	if (guard_filled() != s->faults || h->head_crc != rec_head_crc(h) || !rec_body_ok(h)) {
		free(buf);
		errno = EILSEQ;
		return -1;
	}
	h->flags |= REC_MOVED;
	h->lane = REC_LANE_NONE;
	h->number = 0;
	h->head_crc = rec_head_crc(h);
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
	b->bytes = b->staged = b->moved = 0;
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

#ifdef HOLDFAST_DEBUG
/* The batch is written: what is in it, beside clients' writes? */
static void
written_points(const struct batch *b)
{
	bool	drops = false;

	for (unsigned i = 0; i < b->nowned; i++)
		drops |= ((const struct rec_head *)(const void *)b->owned[i])->kind == REC_DROP_SEGMENT;
	crash_point("after-append");
	crash_point_if(b->moved != 0, "move-written");
	crash_point_if(drops, "drop-written");
}
#else
#define written_points(b) ((void)0)
#endif

/* A file system that has no room even for blocks that it promised: nothing was acknowledged. */
static void
full_in_write(struct store *s)
{
	s->error = ERR_FULL_IN_WRITE;
	s->full = true;
	snprintf(s->reason, sizeof(s->reason), "%s: %s", s->log.what, strerror(ENOSPC));
	batch_reset(&s->batch);
}

int
batch_write(struct store *s)
{
	struct batch		*b = &s->batch;
	struct commit_rec	*c = &b->commit;

	RUNS_IN(IN_COMMITTER | IN_TEST);
	if (store_faulted(s))
		return -1;
	*c = (struct commit_rec){
		.mark = s->log.mark, .batch = s->log.pos.batch + 1, .region = s->region_id,
		.max_seq = s->max_seq, .time_ms = s->time_ms,
		.bytes = (uint32_t)b->bytes, .count = b->count,
		.chain = s->log.pos.chain, .batch_crc = b->crc,
	};
	c->rec_crc = crc32c(0, (const uint8_t *)c + 12, sizeof(*c) - 12);
	b->iov[b->niov++] = (struct iovec){ c, sizeof(*c) };
	if (log_write(&s->log, 0, b->iov, (int)b->niov) == -1 || log_ahead(&s->log, b->bytes + sizeof(*c)) == -1) {
		if (errno == ENOSPC || errno == EDQUOT)
			full_in_write(s);
		else
			batch_failed(s, errno);
		return -1;
	}
	written_points(b);
	log_advance(&s->log, b->bytes, b->crc);
	s->open_end = b->count != 0;
	s->tail += b->bytes + sizeof(*c);
	batch_reset(b);
	seal(s);
	return 0;
}

bool
batch_close(struct store *s)
{
	if (!s->open_end || s->error != ERR_NONE || s->damaged || s->full || !batch_empty(s) || s->sealed.is ||
	    s->log.pos.offset == SEGMENT_HEAD || log_left(&s->log) < sizeof(struct commit_rec) ||
	    stage_prepare(s, 0) == -1)
		return false;
	s->batch.crc = crc32c(0, &s->log.pos.chain, sizeof(s->log.pos.chain));
	return true;
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
	s->error = ERR_SYNC;
	snprintf(s->reason, sizeof(s->reason), "%s: %s",
	    s->log.what[0] != '\0' ? s->log.what : "write or sync of the log", strerror(error));
	log_warnx("%s: %s; NO WRITE IS ACKNOWLEDGED FROM HERE ON, until holdfast is restarted", s->dir, s->reason);
	batch_reset(&s->batch);
	s->sealed.is = false;	/* it never becomes public */
}

bool
store_faulted(struct store *s)
{
	if (guard_filled() == s->faults)
		return false;
	if (s->error == ERR_NONE)
		s->error = guard_filled_tree() != s->tree_faults ? ERR_TREE : ERR_LOG;
	return true;
}
