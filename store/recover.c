/*
 * store/recover.c - from what is on disk to a store that can be published.
 *
 * Runs in: committer (at start), tests.
 * Touches: reads everything; cuts a torn tail; syncs before anybody sees it.
 *
 * Newest valid checkpoint, then the log behind it.  Without a valid one the
 * tree is rebuilt from the whole log: slower, nothing lost.
 *
 * What dying leaves: the same again; nothing here depends on being done once.
 */
#include "config.h"

#include <sys/random.h>
#include <bsd/string.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shm/log.h"
#include "shm/proc.h"
#include "store/store.h"

struct recovery {
	struct store	*s;
	uint64_t	 region_id;
	uint32_t	*listed;	/* the newest segment list, what was dropped since taken out */
	uint32_t	 nlisted;
	uint64_t	 records;
};

static void
damage(struct store *s, const char *what)
{
	log_warnx("%s: damage: %s", s->dir, what);
	if (!s->damaged)
		strlcpy(s->reason, what, sizeof(s->reason));
	s->damaged = true;
}

static int
on_batch(void *arg, const struct scan_batch *b)
{
	struct recovery	*r = arg;

	if (b->commit->max_seq > r->s->max_seq)
		r->s->max_seq = b->commit->max_seq;
	if (b->commit->time_ms > r->s->time_ms)
		r->s->time_ms = b->commit->time_ms;
	r->s->tail += b->commit->bytes + sizeof(*b->commit);
	return 0;
}

/* Remembers which other segments there were when this one was begun. */
static int
on_segment_list(struct recovery *r, const struct rec_head *h)
{
	uint32_t	*p;

	if (!rec_body_ok(h) || h->body_len % sizeof(*p) != 0)
		return 0;	/* found damaged when it is needed: by the segments themselves */
	if ((p = malloc(h->body_len + sizeof(*p))) == NULL)
		return -1;
	memcpy(p, rec_body(h), h->body_len);
	free(r->listed);
	r->listed = p;
	r->nlisted = h->body_len / sizeof(*p);
	return 0;
}

static void
on_drop_segment(struct recovery *r, const struct rec_head *h)
{
	struct segment	*g;
	uint32_t	 number;

	if (h->body_len != sizeof(number) || !rec_body_ok(h))
		return;
	memcpy(&number, rec_body(h), sizeof(number));
	for (uint32_t i = 0; i < r->nlisted; i++)
		if (r->listed[i] == number)
			r->listed[i] = r->listed[--r->nlisted];
	/* dead between the drop and the unlink: the unlink is made up for */
	if ((g = log_segment(&r->s->log, number)) != NULL)
		g->dropped = 1;
}

static void
on_found(struct recovery *r, const struct rec_head *h, const struct doc_val *was)
{
	bool		there = was->seq != 0 && (was->flags & DOC_TOMBSTONE) == 0;
	struct result	res = { .seq = h->seq, .time_ms = h->time_ms, .run = h->run };

	if (h->kind == REC_PUT)
		res.outcome = there ? OUT_REPLACED : OUT_CREATED;
	else
		res.outcome = OUT_DELETED;
	r->s->found(r->s->found_arg, h->lane, h->number, &res);
}

static int
on_record(void *arg, const struct scan_batch *b, const struct rec_head *h, uint32_t segment, uint32_t offset)
{
	struct recovery		*r = arg;
	struct index_target	 t = { r->s, &r->s->w, true };
	struct doc_val		 was;

	r->records++;
	if (h->kind == REC_SEGMENTS)
		return on_segment_list(r, h);
	if (h->kind == REC_DROP_SEGMENT) {
		on_drop_segment(r, h);
		return 0;
	}
	if (h->seq > r->s->max_seq)
		r->s->max_seq = h->seq;
	if (index_apply(&t, h, segment, offset, &was) == -1)
		return -1;
	if (r->s->found != NULL && b->commit->region == r->region_id && h->lane != REC_LANE_NONE &&
	    (h->flags & REC_MOVED) == 0)
		on_found(r, h, &was);
	return 0;
}

static void
on_damage(void *arg, uint32_t segment, uint64_t from, uint64_t to, const char *what)
{
	struct recovery	*r = arg;
	char		 line[160];

	snprintf(line, sizeof(line), "log segment %u, offset %llu to %llu: %s", segment,
	    (unsigned long long)from, (unsigned long long)to, what);
	damage(r->s, line);
}

/* ------------------------------------------------------------- checkpoint */

static void
forget(struct store *s)
{
	for (unsigned i = 0; i < s->log.nseg; i++)
		s->log.seg[i].live = 0;
	free(s->tenants.bits);
	s->tenants = (struct tenant_set){ NULL, 0 };
	if (s->ck.map != NULL)
		checkpoint_close(&s->ck);
	memset(&s->ck, 0, sizeof(s->ck));
	s->w.t.checkpoint = NULL;
	s->w.t.checked = NULL;
	s->w.t.npages = 0;
	s->w.t.root = PAGE_NONE;
	s->w.base = 0;
	s->max_seq = s->time_ms = s->catalog_seq = s->tail = 0;
	s->next_tenant = 1;
}

/* The tenants that are in the checkpoint; those behind it come with the log. */
static int
load_tenants(struct store *s)
{
	struct cursor	c;
	struct doc_val	v;
	struct agg	a;
	uint8_t		lo[KEY_MAX], hi[KEY_MAX];
	const uint8_t	*key;
	size_t		nlo = key_make(lo, 0, NULL, 0), nhi = key_make(hi, 1, NULL, 0), len;
	int		n;

	if (tree_range(&s->w.t, lo, nlo, hi, nhi, &a) == -1)
		return -1;
	s->catalog_seq = a.max_seq;
	for (n = cursor_seek(&c, &s->w.t, lo, nlo); n == 1; n = cursor_next(&c)) {
		const struct rec_head	*h;
		struct tenant_settings	 set;

		cursor_entry(&c, &key, &len, &v);
		if (key_tenant(key) != 0)
			return 0;
		/* its segment is gone: the record was moved in the tail, or look_for_missing() says it */
		if ((v.flags & DOC_TOMBSTONE) || log_segment(&s->log, v.segment) == NULL)
			continue;
		if ((h = log_record(&s->log, v.segment, v.offset)) == NULL || h->body_len != sizeof(set) ||
		    !rec_body_ok(h)) {
			/* the tenant may have been replaced in the tail: then its new record tells the id */
			log_warnx("%s: log segment %u, offset %u: damaged record of a tenant", s->dir, v.segment, v.offset);
			continue;
		}
		memcpy(&set, rec_body(h), sizeof(set));
		if (tenant_set(s, set.id, true) == -1)
			return -1;
	}
	return n;
}

static int
adopt_checkpoint(struct store *s, uint32_t number)
{
	const struct checkpoint_head	*h = &s->ck.head;

	if (checkpoint_open(&s->ck, s->dirfd, number, true) == -1)
		return -1;
	if (h->store_id != s->log.store_id || log_segment(&s->log, h->segment) == NULL) {
		errno = EILSEQ;
		return -1;
	}
	s->w.t.checkpoint = s->ck.map;
	s->w.t.checked = s->ck.checked;
	s->w.t.npages = h->npages;
	s->w.t.root = h->root;
	s->w.base = h->number;
	s->max_seq = h->max_seq;
	s->time_ms = h->time_ms;
	s->next_tenant = h->next_tenant > 1 ? h->next_tenant : 1;
	for (uint32_t i = 0; i < h->nsegments; i++) {
		struct segment	*g = log_segment(&s->log, s->ck.segments[i].number);

		if (g != NULL) {
			g->live = s->ck.segments[i].live;
			/* what the scan starts behind; it moves the end of the segment it starts in */
			if (g->number <= h->segment)
				g->end = s->ck.segments[i].end;
		}
	}
	return load_tenants(s);
}

/* ------------------------------------------------------------- the whole */

static const struct scan_callbacks callbacks = { on_batch, on_record, on_damage };

/* Segments that somebody listed as live and that are not there any more. */
static void
look_for_missing(struct recovery *r)
{
	char	line[160];

	for (uint32_t i = 0; i < r->nlisted; i++)
		if (log_segment(&r->s->log, r->listed[i]) == NULL) {
			snprintf(line, sizeof(line), "log segment %u is missing", r->listed[i]);
			damage(r->s, line);
		}
}

/* Reads the log from the checkpoint (or the very beginning) on.  -1 EILSEQ: the checkpoint is no good. */
static int
replay(struct store *s, struct recovery *r)
{
	struct log_pos	from = { 0 }, end;

	if (s->ck.head.number != 0)
		from = (struct log_pos){ s->ck.head.segment, s->ck.head.chain, s->ck.head.offset, s->ck.head.batch };
	switch (log_scan(&s->log, &from, &callbacks, r, &end)) {
	case SCAN_ERROR:
		return -1;
	case SCAN_DAMAGED:
		damage(s, "log: broken bytes in front of intact batches");
		s->log.pos = end;
		return 0;
	case SCAN_TORN:
		log_info("%s: log segment %u: an incomplete last batch at offset %llu was cut off",
		    s->dir, end.segment, (unsigned long long)end.offset);
		break;
	case SCAN_END:
		break;
	}
	if (s->damaged) {
		s->log.pos = end;
		return 0;
	}
	return log_cut(&s->log, &end);
}

/* The list to begin with: what was live when the checkpoint was taken. */
static int
list_from_checkpoint(struct recovery *r)
{
	const struct checkpoint	*ck = &r->s->ck;

	if ((r->listed = malloc((ck->head.nsegments + 1) * sizeof(*r->listed))) == NULL)
		return -1;
	for (uint32_t i = 0; i < ck->head.nsegments; i++)
		r->listed[r->nlisted++] = ck->segments[i].number;
	return 0;
}

static int
recover_with(struct store *s, uint32_t number, uint64_t region_id)
{
	struct recovery	r = { .s = s, .region_id = region_id };
	int		rc, saved;

	forget(s);
	s->damaged = false;
	if (number != 0 && (adopt_checkpoint(s, number) == -1 || list_from_checkpoint(&r) == -1))
		return -1;
	if ((rc = replay(s, &r)) == 0)
		look_for_missing(&r);
	saved = errno;
	free(r.listed);
	errno = saved;
	return rc;
}

static int
recover(struct store *s, const struct store_options *o)
{
	uint32_t	n = 0;

	while ((n = checkpoint_newest(s->dirfd, n)) != 0) {
		if (recover_with(s, n, o->region_id) == 0)
			return 0;
		if (errno != EILSEQ && errno != ENOENT)
			return -1;
		log_warnx("%s: checkpoint tree-%010u is damaged (%s); trying without it", s->dir, n, strerror(errno));
	}
	return recover_with(s, 0, o->region_id);
}

static int
open_log(struct store *s, uint64_t segment_size)
{
	if (log_open(&s->log, s->dirfd, segment_size) == 0)
		return 0;
	if (errno != ENOENT)
		return -1;
	/* a first start has neither; a tree without a log is what is left of a store */
	if (checkpoint_newest(s->dirfd, 0) != 0) {
		snprintf(s->reason, sizeof(s->reason), "there is a checkpoint but no log segment: the log is lost; "
		    "restore it, or move the directory away to begin anew");
		errno = EILSEQ;
		return -1;
	}
	return log_create(&s->log, s->dirfd, segment_size);
}

int
store_open(struct store *s, int dirfd, int overlay_fd, const struct store_options *o)
{
	struct roots	*roots;

	RUNS_IN(IN_COMMITTER | IN_TEST);
	memset(s, 0, sizeof(*s));
	s->dirfd = dirfd;
	s->dir = o->dir;
	s->region_id = o->region_id;
	s->found = o->found;
	s->found_arg = o->arg;
	if (overlay_open(&s->overlay, overlay_fd) == -1) {
		snprintf(s->reason, sizeof(s->reason), "overlay: %s", strerror(errno));
		return -1;
	}
	roots = overlay_roots(&s->overlay);
	s->root.gen = atomic_load_explicit(&roots->newest, memory_order_acquire);
	s->w = (struct tree_writer){
		.t.overlay = s->overlay.base, .overlay = &s->overlay, .gen = s->root.gen + 1,
	};
	if (getrandom(&s->run, sizeof(s->run), 0) != sizeof(s->run) ||
	    open_log(s, o->segment_size) == -1 || recover(s, o) == -1 ||
	    (!s->damaged && log_sync(&s->log) == -1)) {
		if (s->reason[0] == '\0')
			snprintf(s->reason, sizeof(s->reason), "recovery: %s", strerror(errno));
		return -1;
	}
	roots->store_id = s->log.store_id;
	if (s->ck.head.number != 0 && !s->damaged)
		checkpoint_tidy(s->dirfd, s->ck.head.number);
	return 0;
}

void
store_publish(struct store *s)
{
	s->root = (struct root){
		.gen = s->root.gen + 1,
		.max_seq = s->max_seq,
		.time_ms = s->time_ms,
		.catalog_seq = s->catalog_seq,
		.segments_epoch = s->root.gen + 1,
		.page = s->w.t.root,
		.checkpoint = s->ck.head.number,
		.first_segment = s->log.nseg != 0 ? s->log.seg[0].number : 0,
		.last_segment = s->log.pos.segment,
	};
	root_publish(overlay_roots(&s->overlay), &s->root);
	s->w.gen = s->root.gen + 1;
}

void
store_close(struct store *s)
{
	if (s->ck.map != NULL)
		checkpoint_close(&s->ck);
	log_close(&s->log);
	overlay_close(&s->overlay);
	free(s->tenants.bits);
	free(s->batch.iov);
	free(s->batch.owned);
	memset(s, 0, sizeof(*s));
}
