/*
 * store/compact.c - giving back the disk space of what was overwritten.
 *
 * Runs in: committer, tests.
 * Touches: reads old segments, adds moved records to the batch, unlinks.
 *
 * A segment is rewritten when less than half of it is live and the store as a
 * whole is larger than it should be; the emptiest goes first, since it costs
 * the least copying per byte won.  A step moves a bounded number of bytes in
 * a batch of the clients' or of its own.  A record that cannot be moved
 * because it is damaged keeps its segment (and is reported): nothing that
 * somebody might still rescue is thrown away.
 *
 * What dying leaves: moved records whose originals are still there (the next
 * start counts the originals as dead), or a dropped segment not yet unlinked
 * (the next start unlinks it).
 */
#include "config.h"

#include <errno.h>
#include <string.h>

#include "shm/log.h"
#include "store/store.h"

/* File bytes of all segments, and the live ones in them. */
static void
usage(const struct store *s, uint64_t *bytes, uint64_t *live)
{
	*bytes = *live = 0;
	for (unsigned i = 0; i < s->log.nseg; i++) {
		if (s->log.seg[i].dropped)
			continue;
		*bytes += s->log.seg[i].bytes;
		*live += s->log.seg[i].live;
	}
}

/*
 * The contract allows 2.5 x live + 4 segments.  Begin at 1.75 x + 2: the rest is for
 * what is being moved, for segments that wait for a checkpoint, and for the
 * checkpoint files.
 */
static bool
too_large(const struct store *s)
{
	uint64_t	bytes, live;

	usage(s, &bytes, &live);
	return bytes > live + live / 2 + live / 4 + 2 * s->log.segment_size;
}

static bool
half_empty(const struct segment *g)
{
	return !g->stays && !g->dropped && g->live < g->bytes / 2;
}

static struct segment *
victim(const struct store *s)
{
	struct segment	*best = NULL;

	for (unsigned i = 0; i + 1 < s->log.nseg; i++) {
		struct segment	*g = &s->log.seg[i];

		/* an empty one needs no moving, only a checkpoint behind it */
		if (!half_empty(g) || g->live == 0)
			continue;
		if (best == NULL || g->live * best->bytes < best->live * g->bytes)
			best = g;
	}
	return best;
}

bool
compact_wants_checkpoint(const struct store *s)
{
	uint64_t	waiting = 0;

	for (unsigned i = 0; i + 1 < s->log.nseg; i++) {
		const struct segment	*g = &s->log.seg[i];

		if (g->number >= s->ck.head.segment && half_empty(g) && g->live == 0)
			waiting += g->bytes;
	}
	return waiting >= s->log.segment_size && too_large(s);
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
	uint64_t	 start = s->batch.moved, looked = 0;

	if (s->error != ERR_NONE || s->damaged || s->full)
		return false;
	if (c->segment != 0 && ((g = log_segment(&s->log, c->segment)) == NULL || !half_empty(g)))
		c->segment = 0;
	if (c->segment == 0) {
		if (!too_large(s) || (g = victim(s)) == NULL)
			return false;
		*c = (struct compaction){ g->number, SEGMENT_HEAD };
	}
	g = log_segment(&s->log, c->segment);
	while (s->batch.moved - start < budget && looked < 16 * budget) {
		const struct rec_head	*h;
		uint64_t		 n;
		int			 there, live;

		/* what is still live at the end is a matter for the next round */
		there = g->live == 0 ? 0 : log_next(&s->log, c->segment, &c->offset, &h);
		if (there != 1) {
			if (there == -1)
				leave_alone(g, c->offset, "damaged record");
			c->segment = 0;
			break;
		}
		n = rec_bytes(h);
		if ((live = is_referred_to(s, h, c->segment, c->offset)) == -1)
			return false;
		if (live == 1 && batch_add_moved(s, h, c->segment, c->offset, may_roll) == -1) {
			if (errno != EILSEQ)
				return s->batch.moved != start;
			leave_alone(g, c->offset, "damaged body");
			c->segment = 0;
			break;
		}
		/* a roll moves the array of segments */
		g = log_segment(&s->log, c->segment);
		c->offset += (uint32_t)n;
		looked += n;
	}
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
	return n;
}

unsigned
compact_unlink(struct store *s, uint64_t oldest_pin)
{
	unsigned	n = 0;

	for (unsigned i = 0; i + 1 < s->log.nseg;) {
		struct segment	*g = &s->log.seg[i];

		if (!g->dropped || s->root.gen < g->dropped_gen || oldest_pin < g->dropped_gen) {
			i++;
			continue;
		}
		if (log_unlink(&s->log, g->number) == -1) {
			log_warn("%s: log segment %u cannot be removed", s->dir, g->number);
			break;
		}
		s->segments_epoch = s->w.gen;
		n++;
	}
	return n;
}
