/*
 * store/check.c - see store/check.h.
 *
 * Runs in: tools, tests.
 *
 *	look_open	the tree, as a start would build it: checkpoint, log behind it
 *	log_scan	all of the log once more, from its first segment on: bytes, and each
 *			record against the tree
 *	checkpoint	page by page, where it was found to be no good
 *	entries		each entry of the tree against its record
 */
#include "config.h"

#include <sys/mman.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shm/log.h"
#include "shm/proc.h"
#include "store/check.h"
#include "store/guard.h"
#include "store/look.h"
#include "store/page.h"
#include "store/salvage.h"
#include "store/segment.h"

/* A stretch of the log that the scan could not go through; and a broken record in one that was named. */
struct place {
	uint32_t	segment;
	uint64_t	from, to;
};
struct places {
	struct place	*p;
	size_t		 n, cap;
};

struct check {
	struct store		 s;
	struct names		 names;
	void			(*say)(void *, const char *);
	void			*arg;
	struct check_result	*r;
	int			 error;		/* errno that ended it */
	/* the scan */
	struct places		 holes, named;
	bool			 in_tail;	/* telling of an incomplete last batch */
	bool			 ck_found;	/* a batch ends where the checkpoint says */
	uint64_t		 seq;		/* of the last change that was found */
	struct place		 hole;		/* not settled yet; segment 0: none */
	uint64_t		 hole_seq, hole_found;
	bool			 hole_dark;	/* not all in it was accounted for */
	/* records whose key is not in the tree: the newest of each */
	struct overlay		 absent_pages;
	struct tree_writer	 absent;
};

__attribute__((format(printf, 3, 4))) static void
tell(struct check *c, unsigned *kind, const char *fmt, ...)
{
	char	line[LOOK_NAME + 256];
	va_list	ap;

	if (kind != NULL)
		++*kind;
	if (c->say == NULL)
		return;
	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	c->say(c->arg, line);
}

static int
places_add(struct places *s, uint32_t segment, uint64_t from, uint64_t to)
{
	if (s->n == s->cap) {
		size_t		 cap = s->cap != 0 ? 2 * s->cap : 64;
		struct place	*p = reallocarray(s->p, cap, sizeof(*p));

		if (p == NULL)
			return -1;
		s->p = p;
		s->cap = cap;
	}
	s->p[s->n++] = (struct place){ segment, from, to };
	return 0;
}

static bool
places_have(const struct places *s, uint32_t segment, uint64_t at)
{
	for (size_t i = 0; i < s->n; i++)
		if (s->p[i].segment == segment && at >= s->p[i].from && at < s->p[i].to)
			return true;
	return false;
}

/* ------------------------------------------------------------------ records */

static bool
is_change(const struct rec_head *h)
{
	return h->kind == REC_PUT || h->kind == REC_DELETE || h->kind == REC_DROP_TENANT;
}

/* The tenant whose key it has: a tenant's drop is an entry of the catalog. */
static uint32_t
owner_of(const struct rec_head *h)
{
	return h->kind == REC_DROP_TENANT ? 0 : h->tenant;
}

/* Whose it is, for people. */
static const char *
whose(struct check *c, const struct rec_head *h, char name[LOOK_NAME])
{
	if (is_change(h))
		return look_name(&c->names, owner_of(h), rec_path(h), h->path_len, name);
	return h->kind == REC_SEGMENTS ? "the log's own list of segments" : "the log's own note of a dropped segment";
}

/* Is it what the tree refers to?  1, 0 (something newer), -1: the tree should have it, -2: the key is not there. */
static int
compare(struct check *c, const struct rec_head *h, uint32_t segment, uint32_t offset)
{
	struct doc_val	v;
	uint8_t		key[KEY_MAX];

	switch (tree_get(&c->s.w.t, key, key_make(key, owner_of(h), rec_path(h), h->path_len), &v)) {
	case 1:
		if (v.seq == h->seq)
			return v.segment == segment && v.offset == offset;
		return v.seq > h->seq ? 0 : -1;
	case 0:
		return -2;
	}
	return 0;	/* that page is told of by itself */
}

/* Keeps the newest record of a key that the tree does not know. */
static int
note_absent(struct check *c, const struct rec_head *h, uint32_t segment, uint32_t offset)
{
	struct doc_val	v = {
		.seq = h->seq, .segment = segment, .offset = offset, .rec_len = (uint32_t)rec_bytes(h),
		.flags = h->kind == REC_PUT ? 0 : DOC_TOMBSTONE,
	}, old;
	uint8_t		key[KEY_MAX];
	size_t		len = key_make(key, owner_of(h), rec_path(h), h->path_len);
	int		fd;

	/* whose tenant is gone went with it */
	if (owner_of(h) != 0 && !tenant_alive(&c->s, owner_of(h)))
		return 0;
	if (c->absent_pages.base == NULL) {
		if ((fd = memfd_create("absent", MFD_CLOEXEC)) == -1)
			return -1;
		if (ftruncate(fd, (off_t)OVERLAY_BYTES) == -1 || overlay_open(&c->absent_pages, fd) == -1) {
			close(fd);
			return -1;
		}
		c->absent = (struct tree_writer){
			.t.overlay = c->absent_pages.base, .overlay = &c->absent_pages, .gen = c->absent_pages.first_gen,
		};
	}
	if (tree_get(&c->absent.t, key, len, &old) == 1 && old.seq > v.seq)
		return 0;
	return tree_put(&c->absent, key, len, &v, &old);
}

static int
check_record(struct check *c, const struct rec_head *h, uint32_t segment, uint32_t offset)
{
	char	name[LOOK_NAME];
	int	is = is_change(h) ? compare(c, h, segment, offset) : 1;

	if (!rec_body_ok(h))
		tell(c, &c->r->log, "log-%010u, offset %u: damaged body of %s%s", segment, offset,
		    is == 1 ? "" : "an old version of ", whose(c, h, name));
	if (is == -1)
		tell(c, &c->r->log, "log-%010u, offset %u: the tree has an older version of %s than this",
		    segment, offset, whose(c, h, name));
	if (is == -2 && note_absent(c, h, segment, offset) == -1) {
		c->error = errno;
		return -1;
	}
	return 0;
}

static int
on_record(void *arg, const struct scan_batch *b, const struct rec_head *h, uint32_t segment, uint32_t offset)
{
	struct check	*c = arg;

	(void)b;
	if (is_change(h) && (h->flags & REC_MOVED) == 0 && h->seq > c->seq)
		c->seq = h->seq;
	return check_record(c, h, segment, offset);
}

/* ------------------------------------------------------------------ damage */

static int
on_salvaged(void *arg, const struct rec_head *h, uint32_t segment, uint32_t offset)
{
	struct check	*c = arg;
	char		 name[LOOK_NAME];

	if (c->in_tail) {
		tell(c, NULL, "log-%010u, offset %u: in the incomplete batch: %s", segment, offset, whose(c, h, name));
		return 0;
	}
	c->hole_found += is_change(h) && (h->flags & REC_MOVED) == 0;
	return on_record(c, NULL, h, segment, offset);
}

static int
on_broken(void *arg, const struct rec_head *said, bool commit, uint32_t segment, uint64_t from, uint64_t to)
{
	struct check		*c = arg;
	unsigned		*kind = c->in_tail ? NULL : &c->r->log;
	unsigned long long	 at = from, end = to;
	char			 name[LOOK_NAME];

	if (commit)
		tell(c, kind, "log-%010u, offset %llu: damaged commit record", segment, at);
	else if (said == NULL)
		tell(c, kind, "log-%010u, offset %llu to %llu: damaged; what it was cannot be told", segment, at, end);
	else
		tell(c, kind, "log-%010u, offset %llu: damaged record of %s", segment, at, whose(c, said, name));
	if (said == NULL && !commit)
		c->hole_dark = true;
	if (said == NULL || !is_change(said) || c->in_tail)
		return 0;
	c->hole_found += (said->flags & REC_MOVED) == 0;
	return places_add(&c->named, segment, from, to);
}

static const struct salvage_callbacks	pieces = { on_salvaged, on_broken };

static void
on_damage(void *arg, uint32_t segment, uint64_t from, uint64_t to, const char *what)
{
	struct check	*c = arg;
	struct segment	*g;

	if (from == 0 && to == 0)
		tell(c, &c->r->log, "log-%010u: %s", segment, what);
	else
		tell(c, &c->r->log, "log-%010u, offset %llu to %llu: %s", segment,
		    (unsigned long long)from, (unsigned long long)to, what);
	if (to == SEGMENT_HEAD)
		return;		/* a head holds no change */
	if (c->hole.segment == 0) {
		c->hole = (struct place){ segment, from, to };
		c->hole_seq = c->seq;
		c->hole_found = 0;
		c->hole_dark = false;
	}
	/* nothing of the file there to walk through */
	if (from == 0 || (g = log_segment(&c->s.log, segment)) == NULL || (from < to && to > g->maplen))
		c->hole_dark = true;
	if (places_add(&c->holes, segment, from, to) == -1 ||
	    salvage(&c->s.log, segment, from, to, &pieces, c) == -1)
		c->error = errno;
}

/* Changes with numbers of their own in a batch. */
static uint64_t
changes_in(struct check *c, const struct scan_batch *b)
{
	const uint8_t	*base = log_segment(&c->s.log, b->segment)->map;
	uint64_t	 n = 0;

	for (uint64_t at = b->first; at < b->first + (uint64_t)b->commit->bytes;) {
		const struct rec_head	*h = (const struct rec_head *)(const void *)(base + at);

		n += is_change(h) && (h->flags & REC_MOVED) == 0;
		at += rec_bytes(h);
	}
	return n;
}

/* Segments between the two that were dropped: their numbers of changes are nobody's loss. */
static bool
dropped_between(struct check *c, uint32_t from, uint32_t to)
{
	for (uint32_t n = from + 1; n < to; n++) {
		bool	told = log_segment(&c->s.log, n) != NULL;

		for (size_t i = 0; i < c->holes.n && !told; i++)
			told = c->holes.p[i].segment == n;
		if (!told)
			return true;
	}
	return false;
}

/* Numbers are given out without a gap: so many as are missing in front of this batch are lost. */
static void
settle_hole(struct check *c, const struct scan_batch *b)
{
	uint64_t	first = b->commit->max_seq - changes_in(c, b), known = c->hole_seq + c->hole_found;
	char		many[128] = "changes";

	if (c->hole.segment == 0)
		return;
	/* the checkpoint knows better what there was */
	if (c->hole_dark && (c->s.ck.head.number == 0 || b->commit->batch > c->s.ck.head.batch)) {
		if (c->hole_seq != 0 && first > known && !dropped_between(c, c->hole.segment, b->segment))
			snprintf(many, sizeof(many), "%llu of the changes with seq %llu to %llu", (unsigned long long)(first - known),
			    (unsigned long long)c->hole_seq + 1, (unsigned long long)first);
		if (c->hole_seq == 0 || first > known)
			tell(c, NULL, "log-%010u, offset %llu: %s cannot be read, nor what they changed: such a document may be "
			    "gone, or back as it was before", c->hole.segment, (unsigned long long)c->hole.from, many);
	}
	c->hole.segment = 0;
}

static int
on_batch(void *arg, const struct scan_batch *b)
{
	struct check			*c = arg;
	const struct checkpoint_head	*k = &c->s.ck.head;
	uint64_t			 end = b->first + (uint64_t)b->commit->bytes + sizeof(*b->commit);

	settle_hole(c, b);
	if (b->commit->max_seq > c->seq)
		c->seq = b->commit->max_seq;
	if (b->segment == k->segment && end == k->offset)
		c->ck_found = b->commit->batch == k->batch && b->commit->batch_crc == k->chain;
	return c->error != 0 ? -1 : 0;
}

/* ------------------------------------------------------------------ the log */

static bool
lies_behind(const struct checkpoint_head *k, const struct log_pos *end)
{
	return k->number != 0 && (k->segment > end->segment || (k->segment == end->segment && k->offset > end->offset));
}

/* An incomplete last batch; where a checkpoint has it, it was whole once. */
static void
check_tail(struct check *c, const struct log_pos *end)
{
	struct segment	*g = log_segment(&c->s.log, end->segment);
	uint64_t	 to = g != NULL ? g->maplen : 0;

	if (lies_behind(&c->s.ck.head, end)) {
		if (c->s.ck.head.segment == end->segment)
			to = c->s.ck.head.offset;
		on_damage(c, end->segment, end->offset, to, "damaged batch");
		return;
	}
	tell(c, &c->r->torn, "log-%010u, offset %llu: an incomplete last batch: a crash leaves that, and the next start cuts "
	    "it off; if the server was stopped in order, it is damage", end->segment, (unsigned long long)end->offset);
	c->in_tail = true;
	if (salvage(&c->s.log, end->segment, end->offset, to, &pieces, c) == -1)
		c->error = errno;
	c->in_tail = false;
}

/* Cut short where nothing stood: a scan has no reason to mind. */
static void
check_sizes(struct check *c)
{
	const struct segment_head	*h;

	for (unsigned i = 0; i < c->s.log.nseg; i++) {
		struct segment	*g = &c->s.log.seg[i];
		bool		 told = false;

		for (size_t k = 0; k < c->holes.n; k++)
			told |= c->holes.p[k].segment == g->number;
		if (!told && (h = segment_head(&c->s.log, g)) != NULL && g->maplen < h->bytes)
			tell(c, &c->r->log, "log-%010u, offset %llu to %llu: the file is shorter than its head says; no record stood "
			    "there", g->number, (unsigned long long)g->maplen, (unsigned long long)h->bytes);
	}
}

static void
check_log(struct check *c)
{
	static const struct scan_callbacks	 cb = { on_batch, on_record, on_damage };
	struct log_pos				 from = { 0 }, end;

	switch (log_scan(&c->s.log, &from, &cb, c, &end)) {
	case SCAN_ERROR:
		if (c->error == 0)
			c->error = errno;
		return;
	case SCAN_TORN:
		check_tail(c, &end);
		break;
	case SCAN_DAMAGED:
	case SCAN_END:
		break;
	}
	check_sizes(c);
	if (c->hole.segment != 0 && c->hole_dark && !lies_behind(&c->s.ck.head, &end))
		tell(c, NULL, "log-%010u, offset %llu: changes cannot be read, nor what they changed: such a document may be "
		    "gone, or back as it was before", c->hole.segment, (unsigned long long)c->hole.from);
}

/* ------------------------------------------------------------------ the checkpoint */

/* Which part of a file that was not taken is the reason. */
static void
check_broken_checkpoint(struct check *c, uint32_t number)
{
	struct checkpoint	ck;
	struct tree		t;
	unsigned		before = c->r->checkpoint;
	char			err[160] = "it does not belong to this log";

	if (checkpoint_open(&ck, c->s.dirfd, number, false) == -1) {
		tell(c, &c->r->checkpoint, "tree-%010u, offset 0: %s", number, errno == EILSEQ ?
		    "damaged head, or not its whole length" : strerror(errno));
		return;
	}
	t = (struct tree){
		.checkpoint = ck.map, .npages = ck.head.npages, .checked = ck.checked, .root = ck.head.root,
	};
	for (uint64_t n = 1; n < ck.head.npages; n++)
		if (!page_whole(&t, (uint32_t)n | PAGE_CHECKPOINT))
			tell(c, &c->r->checkpoint, "tree-%010u, offset %llu: damaged page", number,
			    (unsigned long long)n * PAGE_BYTES);
	if (before == c->r->checkpoint && ck.head.store_id == c->s.log.store_id &&
	    tree_verify(&t, err, sizeof(err)) == 0)
		snprintf(err, sizeof(err), "damaged table of segments");
	if (before == c->r->checkpoint)
		tell(c, &c->r->checkpoint, "tree-%010u, offset %llu: %s", number,
		    (unsigned long long)ck.head.npages * PAGE_BYTES, err);
	checkpoint_close(&ck);
}

/* A place between two batches?  Right behind the head of a segment no batch ends in it. */
static bool
ck_fits(struct check *c)
{
	const struct checkpoint_head	*k = &c->s.ck.head;
	const struct rec_head		*h;

	if (c->ck_found)
		return true;
	/* nothing may stand there yet, or the next batch begins there */
	return k->offset == SEGMENT_HEAD && log_segment(&c->s.log, k->segment) != NULL &&
	    ((h = log_record(&c->s.log, k->segment, SEGMENT_HEAD)) != NULL || errno == EILSEQ);
}

static void
check_checkpoint(struct check *c)
{
	const struct checkpoint_head	*k = &c->s.ck.head;
	uint32_t			 newest = checkpoint_newest(c->s.dirfd, 0);
	struct tree			 t = c->s.w.t;
	struct agg			 a;

	if (newest != k->number)
		check_broken_checkpoint(c, newest);
	if (k->number == 0)
		return;
	if (c->r->log == 0 && c->r->torn == 0 && !ck_fits(c))
		tell(c, &c->r->checkpoint, "tree-%010u: the log goes on at log-%010u, offset %llu, and no batch ends there",
		    k->number, k->segment, (unsigned long long)k->offset);
	t.root = k->root;
	if (tree_range(&t, "", 0, NULL, 0, &a) == -1 || memcmp(&a, &k->agg, sizeof(a)) != 0)
		tell(c, &c->r->checkpoint, "tree-%010u, offset 0: the sums in its head are not those of the tree", k->number);
}

/* ------------------------------------------------------------------ the tree's entries */

static void
check_entry(struct check *c, const uint8_t *key, size_t len, const struct doc_val *v)
{
	const struct rec_head	*h = look_record(&c->s, key, len, v);
	bool			 missing = h == NULL && errno == ENOENT, whole;
	uint32_t		 tenant = key_tenant(key);
	char			 name[LOOK_NAME];

	if (v->flags & DOC_TOMBSTONE)
		c->r->deletions++;
	else
		c->r->documents += tenant != 0;
	look_name(&c->names, tenant, key + sizeof(tenant), len - sizeof(tenant), name);
	if (missing)
		tell(c, &c->r->log, "log-%010u, offset %u: not there: %s", v->segment, v->offset, name);
	else if (h == NULL && !places_have(&c->named, v->segment, v->offset))
		tell(c, &c->r->log, "log-%010u, offset %u: damaged record of %s", v->segment, v->offset, name);
	/* the scan came by all others */
	else if (h != NULL && places_have(&c->holes, v->segment, v->offset) && !rec_body_ok(h))
		tell(c, &c->r->log, "log-%010u, offset %u: damaged body of %s", v->segment, v->offset, name);
	else if (h != NULL && tenant == 0 && (v->flags & DOC_TOMBSTONE) == 0 &&
	    look_tenant_id(&c->s, key, len, v, &whole) == 0 && whole)
		tell(c, &c->r->log, "log-%010u, offset %u: these are no settings: %s", v->segment, v->offset, name);
}

/* Documents whose tenant is not there any more: whoever goes on to the next tenant tells. */
static void
check_orphans(struct check *c, uint32_t tenant, uint64_t n)
{
	if (n != 0)
		tell(c, &c->r->log, "%llu document%s of tenant id %u, which is no tenant's", (unsigned long long)n, log_s(n),
		    tenant);
}

static void
check_live(struct check *c, const uint64_t *live)
{
	for (unsigned i = 0; i < c->s.log.nseg; i++)
		if (c->s.log.seg[i].live != live[i])
			tell(c, c->s.ck.head.number != 0 ? &c->r->checkpoint : &c->r->log,
			    "log-%010u: %llu bytes of it are live, and the tree's table says %llu", c->s.log.seg[i].number,
			    (unsigned long long)live[i], (unsigned long long)c->s.log.seg[i].live);
}

static int
check_entries(struct check *c)
{
	uint64_t	*live = calloc(c->s.log.nseg, sizeof(*live)), orphans = 0;
	uint32_t	 tenant = 0;
	struct cursor	 cur;
	struct doc_val	 v;
	const uint8_t	*key;
	size_t		 len;
	struct segment	*g;
	int		 n;

	if (live == NULL)
		return -1;
	for (n = cursor_seek(&cur, &c->s.w.t, "", 0); n == 1; n = cursor_next(&cur)) {
		cursor_entry(&cur, &key, &len, &v);
		check_entry(c, key, len, &v);
		if ((g = log_segment(&c->s.log, v.segment)) != NULL)
			live[g - c->s.log.seg] += v.rec_len;
		if (key_tenant(key) != tenant) {
			check_orphans(c, tenant, orphans);
			tenant = key_tenant(key);
			orphans = 0;
		}
		orphans += tenant != 0 && names_find(&c->names, tenant) == NULL && (v.flags & DOC_TOMBSTONE) == 0;
	}
	check_orphans(c, tenant, orphans);
	if (n == 0)
		check_live(c, live);
	free(live);
	return n;
}

static int
check_absent(struct check *c)
{
	struct cursor	 cur;
	struct doc_val	 v;
	const uint8_t	*key;
	size_t		 len;
	char		 name[LOOK_NAME];
	int		 n = 0;

	if (c->absent_pages.base == NULL)
		return 0;
	for (n = cursor_seek(&cur, &c->absent.t, "", 0); n == 1; n = cursor_next(&cur)) {
		cursor_entry(&cur, &key, &len, &v);
		/* a deletion may have been forgotten, and all before it with it */
		if (v.flags & DOC_TOMBSTONE)
			continue;
		look_name(&c->names, key_tenant(key), key + sizeof(uint32_t), len - sizeof(uint32_t), name);
		tell(c, &c->r->log, "log-%010u, offset %u: the tree does not have %s", v.segment, v.offset, name);
	}
	return n;
}

/* ------------------------------------------------------------------ the whole */

static int
check_all(struct check *c)
{
	char	err[160];

	check_log(c);
	if (c->error != 0) {
		errno = c->error;
		return -1;
	}
	check_checkpoint(c);
	if (tree_verify(&c->s.w.t, err, sizeof(err)) == -1)
		tell(c, &c->r->log, "the tree: %s", err);
	if (check_entries(c) == -1 || check_absent(c) == -1)
		return -1;
	c->r->segments = c->s.log.nseg;
	c->r->tree = c->s.ck.head.number;
	return 0;
}

static void
close_all(struct check *c)
{
	int	fd = c->absent_pages.base != NULL ? c->absent_pages.fd : -1;

	if (fd != -1) {
		overlay_close(&c->absent_pages);
		close(fd);
	}
	names_free(&c->names);
	free(c->holes.p);
	free(c->named.p);
	look_close(&c->s);
}

int
check_store(int dirfd, const char *dir, void (*say)(void *, const char *), void *arg, struct check_result *r)
{
	struct check	c = { .say = say, .arg = arg, .r = r };
	uint64_t	unread = guard_filled();
	int		rc, saved;

	RUNS_IN(IN_TOOL | IN_TEST);
	memset(r, 0, sizeof(*r));
	if (look_open(&c.s, dirfd, dir) == -1) {
		saved = errno;
		/* there is something, and nothing of it can be read: that is a finding */
		tell(&c, saved == EILSEQ ? &r->log : NULL, "%s: %s", dir, c.s.reason);
		errno = saved;
		return saved == EILSEQ ? 0 : -1;
	}
	if ((rc = names_load(&c.names, &c.s)) == 0)
		rc = check_all(&c);
	saved = errno;
	if (rc == -1)
		tell(&c, NULL, "%s: %s", dir, strerror(saved));
	if (guard_filled() != unread)
		tell(&c, &r->log, "%s: %llu page%s could not be read from the disk; %s among what is damaged",
		    dir, (unsigned long long)(guard_filled() - unread), log_s(guard_filled() - unread),
		    guard_filled() - unread == 1 ? "it is" : "they are");
	close_all(&c);
	errno = saved;
	return rc;
}
