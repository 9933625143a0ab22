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
#include "store/crashpoint.h"
#include "store/repair.h"
#include "store/salvage.h"
#include "store/store.h"

#define AHEAD	16u

struct ahead {			/* a record that was read and is not yet applied */
	const struct rec_head	*h;
	uint32_t		 segment, offset;
	const void		*leaf;	/* where it probably belongs */
	bool			 ours;	/* of a submission that may be waiting for its answer */
};

struct recovery {
	struct store	*s;
	uint64_t	 region_id;
	uint32_t	*listed;	/* the newest segment list, what was dropped since taken out */
	uint32_t	 nlisted;
	struct ahead	 ahead[AHEAD];
	uint64_t	 records, applied;
	int		 failed;	/* errno of a salvage that could not go on */
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
	r->s->open_end = b->commit->count != 0;
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
	if ((g = log_segment(&r->s->log, number)) == NULL)
		return;
	g->dropped = 1;
	/* readers may be at the root that a predecessor published before the drop (S5) */
	g->dropped_gen = r->s->w.gen;
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
apply_one(struct recovery *r)
{
	struct index_target	 t = { r->s, &r->s->w, true };
	struct ahead		*a = &r->ahead[r->applied++ % AHEAD];
	struct doc_val		 was;

	if (index_apply(&t, a->h, a->segment, a->offset, &was) == -1)
		return -1;
	if (a->ours)
		on_found(r, a->h, &was);
	return 0;
}

static int
apply_all(struct recovery *r)
{
	while (r->applied != r->records)
		if (apply_one(r) == -1)
			return -1;
	return 0;
}

static void
hint(struct recovery *r, uint64_t i, bool entry)
{
	struct ahead		*a = &r->ahead[i % AHEAD];
	const struct rec_head	*h = a->h;
	uint8_t			 key[KEY_MAX];
	size_t			 len;

	if (h->kind == REC_DROP_TENANT || h->path_len > SUBMIT_PATH_MAX || (entry && a->leaf == NULL))
		return;
	len = key_make(key, h->tenant, rec_path(h), h->path_len);
	if (entry)
		tree_hint_entry(a->leaf, key, len);
	else
		a->leaf = tree_hint(&r->s->w.t, key, len);
}

/*
 * At random among a million documents nearly all the time would go into waiting
 * for a leaf to come from memory: so each is asked for while those in front are applied.
 */
static int
on_record(void *arg, const struct scan_batch *b, const struct rec_head *h, uint32_t segment, uint32_t offset)
{
	struct recovery	*r = arg;

	if (h->kind == REC_SEGMENTS)
		return on_segment_list(r, h);
	if (h->kind == REC_DROP_SEGMENT) {
		on_drop_segment(r, h);
		return 0;
	}
	if (h->seq > r->s->max_seq)
		r->s->max_seq = h->seq;
	if (r->records - r->applied == AHEAD && apply_one(r) == -1)
		return -1;
	r->ahead[r->records % AHEAD] = (struct ahead){
		.h = h, .segment = segment, .offset = offset,
		.ours = r->s->found != NULL && b->commit->region == r->region_id && h->lane != REC_LANE_NONE &&
		    (h->flags & REC_MOVED) == 0,
	};
	hint(r, r->records++, false);
	if (r->records - r->applied > AHEAD / 2)
		hint(r, r->records - AHEAD / 2, true);
	return 0;
}

/* A record of a batch that is not whole.  No submission is answered from it. */
static int
on_salvaged(void *arg, const struct rec_head *h, uint32_t segment, uint32_t offset)
{
	static const struct commit_rec	none;
	struct scan_batch		b = { .commit = &none, .segment = segment };

	/* at once: it may be a copy that is gone when we return */
	return on_record(arg, &b, h, segment, offset) == -1 ? -1 : apply_all(arg);
}

/*
 * One that is broken, but said whose it was: the tree gets the place of the broken
 * record.  So the document is damaged, instead of being what it was before.
 */
static int
on_broken(void *arg, const struct rec_head *said, bool commit, uint32_t segment, uint64_t from, uint64_t to)
{
	struct recovery	*r = arg;

	(void)commit;
	(void)to;
	if (said == NULL)
		return 0;
	/* it is gone when we return: applied at once, behind those that were read before it */
	return on_salvaged(r, said, segment, (uint32_t)from) == -1 ? -1 : apply_all(r);
}

static void
on_damage(void *arg, uint32_t segment, uint64_t from, uint64_t to, const char *what)
{
	static const struct salvage_callbacks	cb = { on_salvaged, on_broken };
	struct recovery				*r = arg;
	char					 line[160];

	snprintf(line, sizeof(line), "log-%010u, offset %llu to %llu: %s", segment,
	    (unsigned long long)from, (unsigned long long)to, what);
	damage(r->s, line);
	if (r->failed == 0 && salvage(&r->s->log, segment, from, to, &cb, r) == -1)
		r->failed = errno;
}

/* ------------------------------------------------------------- checkpoint */

static void
forget(struct store *s)
{
	for (unsigned i = 0; i < s->log.nseg; i++)
		s->log.seg[i].live = 0;
	free(s->tenants.bits);
	s->tenants = (struct tenant_set){ NULL, 0 };
	s->tenant_unread = false;
	if (s->ck.map != NULL)
		checkpoint_close(&s->ck);
	memset(&s->ck, 0, sizeof(s->ck));
	s->w.t.checkpoint = NULL;
	s->w.t.checked = NULL;
	s->w.t.npages = 0;
	s->w.t.root = PAGE_NONE;
	s->w.base = 0;
	overlay_forget(&s->overlay);
	s->max_seq = s->time_ms = s->catalog_seq = s->tail = 0;
	s->growth = 0;
	s->open_end = false;	/* what stands in front of a checkpoint is never taken for a tail */
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
			s->tenant_unread = true;
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
	char				 err[128];

	if (checkpoint_open(&s->ck, s->dirfd, number, true) == -1)
		return -1;
	if (s->log.store_id == 0 && h->mark == s->log.mark)
		s->log.store_id = h->store_id;	/* no head of a segment could say it */
	/*
	 * The segment where the log goes on is missing: where this is the newest, that is
	 * damage, which the scan tells (S4), and without the tree what is lost would
	 * come back as it was before.  In front of another it may have been dropped.
	 */
	if (h->store_id != s->log.store_id || h->mark != s->log.mark ||
	    (log_segment(&s->log, h->segment) == NULL && number != checkpoint_newest(s->dirfd, 0))) {
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
	if (s->look && tree_verify(&s->w.t, err, sizeof(err)) == -1) {
		errno = EILSEQ;
		return -1;
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
			snprintf(line, sizeof(line), "log-%010u is missing", r->listed[i]);
			damage(r->s, line);
		}
}

/* Reads the log from the checkpoint (or the very beginning) on.  -1 EILSEQ: the checkpoint is no good. */
static int
replay(struct store *s, struct recovery *r)
{
	struct log_pos	from = { 0 }, end;
	uint64_t	faults;

	if (s->ck.head.number != 0)
		from = (struct log_pos){ s->ck.head.segment, s->ck.head.chain, s->ck.head.offset, s->ck.head.batch };
	faults = guard_filled() - guard_filled_tree();
	switch (log_scan(&s->log, &from, &callbacks, r, &end)) {
	case SCAN_ERROR:
		return -1;
	case SCAN_TORN:
		if (!s->look && !s->damaged)
			log_info("%s: log-%010u: an incomplete last batch at offset %llu was cut off",
			    s->dir, end.segment, (unsigned long long)end.offset);
		break;
	case SCAN_DAMAGED:
	case SCAN_END:
		break;
	}
	if (apply_all(r) == -1)
		return -1;
	if (r->failed != 0) {
		errno = r->failed;
		return -1;
	}
	/* a page that cannot be read is no end of the log, whatever stands or does not stand behind it */
	if (guard_filled() - guard_filled_tree() != faults)
		damage(s, "log: pages that the disk does not give");
	if (s->damaged || s->look) {
		s->log.pos = end;
		return 0;
	}
	crash_point("recover-scanned");
	if (log_cut(&s->log, &end) == -1)
		return -1;
	crash_point("recover-cut");
	return 0;
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
	uint64_t	faults = guard_filled_tree();
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
	if (rc == 0 && guard_filled_tree() != faults) {
		errno = EILSEQ;		/* what was read instead may have looked like an empty page */
		return -1;
	}
	return rc;
}

static int
recover(struct store *s, const struct store_options *o)
{
	uint32_t	n = 0;

	while ((n = checkpoint_newest(s->dirfd, n)) != 0) {
		if (recover_with(s, n, o->region_id) == 0)
			return 0;
		/* a log that cannot be written is nobody's checkpoint's fault (relaxed: no other thread yet) */
		if ((errno != EILSEQ && errno != ENOENT && errno != EIO) ||
		    atomic_load_explicit(&s->log.failed, memory_order_relaxed) != 0)
			return -1;
		log_warnx("%s: checkpoint tree-%010u is damaged (%s); trying without it", s->dir, n,
		    errno == EILSEQ ? "checksum or structure" : strerror(errno));
	}
	return recover_with(s, 0, o->region_id);
}

/* No head of a segment is whole: a checkpoint may say which store this is. */
static int
open_by_checkpoint(struct store *s, uint64_t segment_size)
{
	struct checkpoint	ck;
	struct log_identity	known;
	uint32_t		n = 0;

	while ((n = checkpoint_newest(s->dirfd, n)) != 0) {
		if (checkpoint_open(&ck, s->dirfd, n, false) == -1)
			continue;
		known = (struct log_identity){ ck.head.store_id, ck.head.mark };
		checkpoint_close(&ck);
		return log_open_as(&s->log, s->dirfd, segment_size, &known, s->look);
	}
	snprintf(s->reason, sizeof(s->reason), "no log segment has a whole head or first batch: nothing in it can be read");
	errno = EILSEQ;
	return -1;
}

static int
open_log(struct store *s, uint64_t segment_size)
{
	if (repair_interrupted(s->dirfd, NULL, NULL)) {
		snprintf(s->reason, sizeof(s->reason), "a repair was interrupted: run holdfastctl repair again");
		errno = EILSEQ;
		return -1;
	}
	if (log_open_as(&s->log, s->dirfd, segment_size, NULL, s->look) == 0)
		return 0;
	if (errno == EILSEQ)
		return open_by_checkpoint(s, segment_size);
	if (errno != ENOENT)
		return -1;
	/* a first start has neither; a tree without a log is what is left of a store */
	if (checkpoint_newest(s->dirfd, 0) != 0) {
		snprintf(s->reason, sizeof(s->reason), "there is a checkpoint but no log segment: the log is lost; "
		    "restore it, or move the directory away to begin anew");
		errno = EILSEQ;
		return -1;
	}
	if (s->look) {
		snprintf(s->reason, sizeof(s->reason), "there is no store here");
		errno = ENOENT;
		return -1;
	}
	if (log_create(&s->log, s->dirfd, segment_size) == 0)
		return 0;
	snprintf(s->reason, sizeof(s->reason), "the first log segment, of %llu KiB, cannot be made: %s",
	    (unsigned long long)segment_size / 1024, strerror(errno));
	return -1;
}

int
store_open(struct store *s, int dirfd, int overlay_fd, const struct store_options *o)
{
	struct roots	*roots;

	RUNS_IN(IN_COMMITTER | IN_TOOL | IN_TEST);
	memset(s, 0, sizeof(*s));
	s->dirfd = dirfd;
	s->log.fd = -1;
	s->dir = o->dir;
	s->look = o->look;
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
	    (!s->damaged && !s->look && log_sync(&s->log) == -1)) {
		if (s->reason[0] == '\0')
			snprintf(s->reason, sizeof(s->reason), "%s: %s",
			    s->log.what[0] != '\0' ? s->log.what : "recovery", strerror(errno));
		return -1;
	}
	crash_point("recover-synced");
	roots->store_id = s->log.store_id;
	s->faults = guard_filled();	/* each was taken for damage */
	s->tree_faults = guard_filled_tree();
	if (s->damaged || s->look)
		return 0;
	checkpoint_tidy_tmp(s->dirfd);
	reserve_open(s);
	(void)batch_resume(s);	/* without memory: in front of the first record */
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
	/* not before: a worker that has not met the predecessor's checkpoint yet would look for it (S5) */
	if (s->ck.head.number != 0 && !s->damaged && !s->look)
		checkpoint_tidy(s->dirfd, s->ck.head.number);
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
	for (unsigned i = 0; i < s->batch.nowned; i++)	/* of a batch that was never written */
		free(s->batch.owned[i]);
	free(s->batch.owned);
	memset(s, 0, sizeof(*s));
}
