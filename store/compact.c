/*
 * store/compact.c - giving back the disk space of what was overwritten.
 *
 * Runs in: committer, tests.
 * Touches: reads old segments, adds moved records to the batch, unlinks.
 *
 * The disk may hold 2.5 x the live bytes + four segments (contract 8).  Of that,
 * two checkpoints are set aside, the present one and its successor while that is written; what is
 * left over the live bytes is the room that dead ones may take.  When half of it is
 * gone, compaction begins: the emptiest segment first, since it costs the least
 * copying per byte won, and in proportion to what clients let die: little
 * where little is needed, four bytes for one where the end is near.  So nobody
 * waits for it, and its share of each batch follows the load.  Segments come free with the
 * next checkpoint; one is asked for when there is no room for another segment while it is
 * written.  Where all that came too late, a new segment waits, for a bounded time.
 *
 * A record that cannot be moved because it is damaged keeps its segment (and
 * is reported): nothing that somebody might still rescue is thrown away.
 *
 * What dying leaves: moved records whose originals are still there (the next
 * start counts the originals as dead), or a dropped segment not yet unlinked
 * (the next start unlinks it).
 */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "shm/log.h"
#include "store/crashpoint.h"
#include "store/store.h"
#include "store/syncer.h"

#define STEP_US		1000			/* records of a few bytes cost time, not space */
#define LOOK_RECORDS	32u			/* between two looks at the clock */
#define IDLE_MOVE	((uint64_t)128 << 10)	/* per batch without a client's write: a few ms of a slow card */
#define URGENT_MOVE	((uint64_t)1 << 20)	/* full disk, the reserve is in use */
#define ANYTHING	512u			/* beyond all pressure: see is_worth() */
#define OWED_MAX	((int64_t)8 << 20)	/* per batch: twice of what clients may add */
#define UNLINK_AGAIN_US	5000000u
#define HOLD_US		2000000			/* a new segment waits no longer for space */

struct space {
	uint64_t	log;		/* file bytes of all segments */
	uint64_t	empty;		/* of those that hold nothing live: they go with the next checkpoint */
	uint64_t	slack;		/* what the log may have over the live bytes */
	int64_t		left;		/* of it */
	uint64_t	unused;		/* of the newest segment */
};

/* Nothing in it is referred to, and it is neither kept nor written to. */
static bool
is_empty(const struct store *s, const struct segment *g)
{
	return g->live == 0 && !g->stays && g != &s->log.seg[s->log.nseg - 1];
}

static void
look(const struct store *s, struct space *p)
{
	uint64_t	live = 0, trees, least, may, room;
	uint64_t	next = store_next_tree(s);

	*p = (struct space){ 0 };
	for (unsigned i = 0; i < s->log.nseg; i++) {
		const struct segment	*g = &s->log.seg[i];

		p->log += g->bytes;
		live += g->dropped ? 0 : g->live;
		if (!g->told && (g->dropped || is_empty(s, g)))	/* nobody waits for one that cannot be removed */
			p->empty += g->bytes;
	}
	/* the next checkpoint's file is the reserve for it, where there is one, until it is whole */
	trees = s->reserve.tree_out ? s->reserve.out_bytes : s->reserve.tree_bytes;
	if (next > trees)
		trees = next;
	trees += s->ck.head.bytes + s->reserve.log_bytes;
	/* a quarter of a segment aside: small files, blocks' rounding, what dies before this is looked at again */
	may = 2 * live + live / 2 + 4 * s->log.segment_size - s->log.segment_size / 4;
	/*
	 * Of documents of a few bytes two checkpoints may take all that there is.
	 * Compaction would then copy without end to win next to nothing: an
	 * eighth is left to it whatever is promised.
	 */
	least = live / 8 + s->log.segment_size;
	room = may > trees ? (may - trees) / s->log.segment_size * s->log.segment_size : 0;
	p->slack = room > live + least ? room - live : least;
	p->left = (int64_t)(live + p->slack) - (int64_t)p->log;
	p->unused = log_left(&s->log);
}

/*
 * How near the end is, in 1/256: 0: nothing to do; 256: there is no space for another
 * segment when this one is full, leaving aside what will come free by itself.
 */
static unsigned
pressure(const struct store *s, const struct space *p)
{
	int64_t	segment = (int64_t)s->log.segment_size, slack = (int64_t)p->slack;
	int64_t	left = p->left + (int64_t)(p->empty + p->unused) - segment;
	int64_t	begin = slack > segment + segment / 2 ? (slack - segment) / 2 : segment / 4;

	if (left >= begin)
		return 0;
	return left <= 0 ? 256 : (unsigned)(256 - left * 256 / begin);
}

/* Is it worth rewriting?  From half live to seven eighths; for a reserve on a full disk any (and what fits). */
static bool
is_worth(const struct segment *g, unsigned near)
{
	return !g->stays && !g->dropped && g->live < g->bytes / 2 + g->bytes / 8 * 3 / 256 * near;
}

/*
 * On a full disk only what fits into the reserve can be moved, and what lies in front of
 * the checkpoint goes first: it can be dropped at once.
 */
static bool
is_better(const struct store *s, const struct segment *g, const struct segment *best)
{
	bool	old = g->number < s->ck.head.segment;

	if (best == NULL)
		return true;
	if (s->full && old != (best->number < s->ck.head.segment))
		return old;
	return g->live * best->bytes < best->live * g->bytes;
}

static struct segment *
victim(const struct store *s, unsigned near)
{
	struct segment	*best = NULL;
	uint64_t	 room = s->full ? batch_room_full(s) : UINT64_MAX;

	for (unsigned i = 0; i + 1 < s->log.nseg; i++) {
		struct segment	*g = &s->log.seg[i];

		/* an empty one needs no moving, only a checkpoint behind it */
		if (is_worth(g, near) && g->live != 0 && g->live < room && is_better(s, g, best))
			best = g;
	}
	return best;
}

bool
compact_is_short(const struct store *s)
{
	struct space	p;

	look(s, &p);
	return s->full || s->held_since != 0 || p.left < (int64_t)s->log.segment_size;
}

bool
compact_wants_checkpoint(const struct store *s, uint64_t during)
{
	uint64_t	waiting = 0, lead = s->log.segment_size;
	struct space	p;

	if (s->log.nseg == 0)
		return false;
	for (unsigned i = 0; i + 1 < s->log.nseg; i++) {
		const struct segment	*g = &s->log.seg[i];

		if (g->number >= s->ck.head.segment && is_empty(s, g) && !g->dropped)
			waiting += g->bytes;
	}
	if (waiting == 0)
		return false;
	if (s->full)
		return true;
	if (lead < 2 * during)
		lead = 2 * during;
	if (lead < s->log.seg[s->log.nseg - 1].bytes)	/* a large document's: the next may be one, too */
		lead = s->log.seg[s->log.nseg - 1].bytes;
	look(s, &p);
	return s->held_since != 0 || p.left < (int64_t)lead;
}

/* Space is on its way: is somebody still to wait for it? */
static bool
hold(struct store *s)
{
	uint64_t	now = monotonic_us();

	if (s->held_since == 0)
		s->held_since = now;
	if (now - s->held_since < HOLD_US)
		return true;
	s->held_since = 0;
	return false;
}

bool
compact_holds_back(struct store *s, uint64_t bytes, bool moving)
{
	struct space	p;

	look(s, &p);
	if (p.left < (int64_t)bytes && (p.empty != 0 || (!moving && victim(s, 256) != NULL)))
		return hold(s);
	s->held_since = 0;
	return false;
}

bool
compact_brings_space(struct store *s)
{
	struct space	p;

	look(s, &p);
	if (p.empty != 0 || s->moving != 0)
		return hold(s);
	s->held_since = 0;
	return false;
}

uint64_t
compact_budget(struct store *s, struct compaction *c, bool idle)
{
	struct space	p;
	unsigned	near;
	uint64_t	died = s->died < (uint64_t)OWED_MAX ? s->died : (uint64_t)OWED_MAX;

	s->died = 0;
	if (s->full)		/* without a spare deletes wait for it */
		return s->reserve.log_bytes != 0 ? IDLE_MOVE : URGENT_MOVE;
	look(s, &p);
	if ((near = pressure(s, &p)) == 0) {
		c->owed = 0;
		return 0;
	}
	/* a byte for one that died at half of the way, four at its end */
	c->owed += (int64_t)(near < 128 ? died * near / 128 : died + died * 3 * (near - 128) / 128);
	if (c->owed > OWED_MAX)
		c->owed = OWED_MAX;
	/* each segment gets emptier by itself: beforehand is done only what time may not be left for */
	if (idle && near >= 128 && c->owed < (int64_t)IDLE_MOVE)
		return IDLE_MOVE;
	return c->owed > 0 ? (uint64_t)c->owed : 0;
}

/* Does the tree refer to this very record?  1, 0, -1. */
static int
is_referred_to(struct store *s, const struct rec_head *h, uint32_t segment, uint32_t offset)
{
	uint8_t		key[KEY_MAX];
	struct doc_val	v;
	int		n;

	if (h->kind != REC_PUT && h->kind != REC_DELETE && h->kind != REC_DROP_TENANT)
		return 0;
	n = tree_get(&s->w.t, key,
	    key_make(key, h->kind == REC_DROP_TENANT ? 0 : h->tenant, rec_path(h), h->path_len), &v);
	if (n != 1)
		return n;
	return v.segment == segment && v.offset == offset;
}

static void
leave_alone(struct segment *g, uint32_t offset, const char *what)
{
	log_warnx("log segment %u: offset %u: %s; the segment is kept as it is", g->number, offset, what);
	g->stays = 1;
}

bool
compact_step(struct store *s, struct compaction *c, uint64_t budget, bool may_roll)
{
	struct segment	*g;
	uint64_t	 start = s->batch.moved, end = monotonic_us() + STEP_US;
	unsigned	 looked = 0;
	struct space	 p;
	unsigned	 near;

	if (s->error != ERR_NONE || s->damaged)
		return false;
	look(s, &p);
	near = !s->full ? pressure(s, &p) : s->reserve.log_bytes != 0 ? 256 : ANYTHING;
	s->moving = 0;
	if (c->segment != 0 && ((g = log_segment(&s->log, c->segment)) == NULL || !is_worth(g, near)))
		c->segment = 0;
	if (c->segment == 0) {
		/* on a full disk what is empty already is waited for first */
		if (near == 0 || (s->full && p.empty != 0) || (g = victim(s, near)) == NULL)
			return false;
		*c = (struct compaction){ g->number, SEGMENT_HEAD, c->owed };
	}
	g = log_segment(&s->log, c->segment);
	while (s->batch.moved - start < budget && (++looked % LOOK_RECORDS != 0 || monotonic_us() < end)) {
		const struct rec_head	*h;
		uint64_t		 n;
		int			 there, live;

		/* what is still live at the end is a matter for the next round */
		there = g->live == 0 ? 0 : log_next(&s->log, c->segment, &c->offset, &h);
		if (there != 1) {
			if (there == -1) {
				leave_alone(g, c->offset, "damaged record");
				s->faults = guard_filled();
			}
			c->segment = 0;
			break;
		}
		n = rec_bytes(h);
		if ((live = is_referred_to(s, h, c->segment, c->offset)) == -1) {
			s->error = ERR_TREE;
			return false;
		}
		if (live == 1 && batch_add_moved(s, h, may_roll) == -1) {
			if (errno != EILSEQ)
				break;
			g = log_segment(&s->log, c->segment);	/* it may have rolled all the same */
			leave_alone(g, c->offset, "damaged body");
			s->faults = guard_filled();
			c->segment = 0;
			break;
		}
		/* a roll moves the array of segments */
		g = log_segment(&s->log, c->segment);
		c->offset += (uint32_t)n;
	}
	if (c->segment != 0 && (g = log_segment(&s->log, c->segment)) != NULL)
		s->moving = g->live;
	c->owed -= (int64_t)(s->batch.moved - start);
	crash_point_if(s->batch.moved != start, "move-added");
	return true;
}

unsigned
compact_drop(struct store *s, bool may_roll)
{
	unsigned	n = 0;

	if (s->error != ERR_NONE || s->damaged)
		return 0;
	for (unsigned i = 0; i + 1 < s->log.nseg; i++) {
		uint32_t	number = s->log.seg[i].number;

		if (s->log.seg[i].live != 0 || s->log.seg[i].stays || s->log.seg[i].dropped ||
		    number >= s->ck.head.segment)
			continue;
		if (batch_add_own(s, REC_DROP_SEGMENT, &number, sizeof(number), may_roll) == -1)
			break;
		log_segment(&s->log, number)->dropped = 1;
		log_segment(&s->log, number)->dropped_gen = s->w.gen;
		n++;
	}
	crash_point_if(n > 0, "drop-added");
	return n;
}

/* Told once for each segment, tried again after a while: until then it takes the space that it takes. */
static void
unlink_failed(struct store *s, struct segment *g)
{
	int	error = errno;

	if (!g->told)
		log_warn("%s: log segment %u, which holds nothing any more, cannot be removed; tried again each %u s",
		    s->dir, g->number, UNLINK_AGAIN_US / 1000000);
	g->told = 1;
	g->unlink_at = monotonic_us() + UNLINK_AGAIN_US;
	if (error == EIO) {	/* the directory: an error of the log's (F4) */
		snprintf(s->log.what, sizeof(s->log.what), "removal of log-%010u", g->number);
		batch_failed(s, error);
	}
}

unsigned
compact_unlink(struct store *s, uint64_t oldest_pin)
{
	unsigned	n = 0;

	if (s->error != ERR_NONE)
		return 0;
	for (unsigned i = 0; i + 1 < s->log.nseg;) {
		struct segment	*g = &s->log.seg[i];

		if (!g->dropped || s->root.gen < g->dropped_gen || oldest_pin < g->dropped_gen ||
		    (g->told && monotonic_us() < g->unlink_at)) {
			i++;
			continue;
		}
		crash_point("drop-published");
		if (log_unlink(&s->log, g->number) == -1) {
			unlink_failed(s, g);
			if (s->error != ERR_NONE)
				break;
			i++;
			continue;
		}
		s->segments_epoch = s->w.gen;
		n++;
	}
	return n;
}
