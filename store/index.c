/*
 * store/index.c - from a log record to the tree (S2, store/store.h).
 *
 * Runs in: committer, tools, tests.
 * Touches: the tree being built, live bytes of segments, the set of tenants.
 */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "store/salvage.h"
#include "store/store.h"

/* What an entry takes in a checkpoint at most, as a rule: most of a row, and its key (store/leaf.h). */
#define ENTRY_BYTES(keylen)	(32 + (keylen))

/*
 * Rows get wider where documents of one kind and time come to be of several (a
 * restart, hours later): measured 11 bytes at least, 22 at most.
 */
uint64_t
store_next_tree(const struct store *s)
{
	return 2 * s->ck.head.bytes + s->growth;
}

const uint8_t *
rec_path(const struct rec_head *h)
{
	return (const uint8_t *)(h + 1);
}

const uint8_t *
rec_body(const struct rec_head *h)
{
	return (const uint8_t *)(h + 1) + h->path_len + h->meta_len;
}

bool
tenant_alive(const struct store *s, uint32_t id)
{
	return id < s->tenants.cap && (s->tenants.bits[id / 8] & (1u << (id % 8))) != 0;
}

int
tenant_set(struct store *s, uint32_t id, bool alive)
{
	if (id >= s->tenants.cap) {
		uint32_t	 cap = s->tenants.cap != 0 ? s->tenants.cap : 1024;
		uint8_t		*bits;

		if (!alive)
			return 0;
		while (cap <= id && cap < UINT32_MAX / 2)
			cap *= 2;
		if (cap <= id || (bits = realloc(s->tenants.bits, cap / 8)) == NULL) {
			errno = ENOMEM;
			return -1;
		}
		memset(bits + s->tenants.cap / 8, 0, (cap - s->tenants.cap) / 8);
		s->tenants.bits = bits;
		s->tenants.cap = cap;
	}
	if (alive)
		s->tenants.bits[id / 8] |= (uint8_t)(1u << (id % 8));
	else
		s->tenants.bits[id / 8] &= (uint8_t)~(1u << (id % 8));
	return 0;
}

static void
live_add(struct store *s, uint32_t segment, uint64_t bytes)
{
	struct segment	*g = log_segment(&s->log, segment);

	if (g != NULL)
		g->live += bytes;
}

/* A segment that is gone already is not asked for: recovery may replay what referred to it. */
static void
live_sub(struct store *s, uint32_t segment, uint64_t bytes)
{
	struct segment	*g = log_segment(&s->log, segment);

	if (g != NULL)
		g->live -= bytes < g->live ? bytes : g->live;
}

/* Sets key to what the record says, unless something newer is there. */
static int
put_value(const struct index_target *t, const uint8_t *key, size_t len, const struct rec_head *h,
    uint32_t segment, uint32_t offset, struct doc_val *was)
{
	struct doc_val	val = {
		.seq = h->seq, .time_ms = h->time_ms, .run = h->run,
		.segment = segment, .offset = offset,
		.rec_len = (uint32_t)rec_bytes(h),
		.body_len = h->kind == REC_PUT ? h->body_len : 0,
		.flags = h->kind == REC_PUT ? 0 : DOC_TOMBSTONE,
	};
	struct doc_val	old;
	int		rc;

	if ((rc = tree_put_newest(t->w, key, len, &val, &old)) == -1)
		return -1;
	if (was != NULL)
		*was = old;
	if (rc == 0 && t->account) {
		if (old.seq == 0)
			t->s->growth += ENTRY_BYTES(len);
		else
			live_sub(t->s, old.segment, old.rec_len);
		if (old.seq != h->seq)		/* else it was moved */
			t->s->died += old.rec_len;
		live_add(t->s, segment, val.rec_len);
	}
	return 0;
}

static void
document_removed(void *arg, const uint8_t *key, size_t len, const struct doc_val *v)
{
	const struct index_target *t = arg;

	(void)key;
	(void)len;
	if (!t->account)
		return;
	live_sub(t->s, v->segment, v->rec_len);
	t->s->died += v->rec_len;
}

static int
drop_tenant(const struct index_target *t, const struct rec_head *h)
{
	uint8_t		lo[KEY_MAX], hi[KEY_MAX];
	size_t		nlo, nhi;

	nlo = key_make(lo, h->tenant, NULL, 0);
	nhi = key_make(hi, h->tenant + 1, NULL, 0);
	if (tree_remove(t->w, lo, nlo, hi, nhi, document_removed, (void *)(uintptr_t)t) == -1)
		return -1;
	if (t->account)
		tenant_set(t->s, h->tenant, false);
	return 0;
}

/*
 * The settings of a tenant are damaged.  Its id must not be given away again: one
 * changed byte is known, else it was the next one, or one that is known.
 */
static void
tenant_unread(struct store *s, const struct rec_head *h)
{
	struct tenant_settings	set;
	uint32_t		id = s->next_tenant;

	s->tenant_unread = true;
	if (h->body_len == sizeof(set)) {
		memcpy(&set, rec_body(h), sizeof(set));
		if (salvage_body((uint8_t *)&set, sizeof(set), h->body_crc))
			id = set.id;
	}
	if (id >= s->next_tenant)
		s->next_tenant = id + 1;
}

/* What a catalog record tells beyond its value. */
static int
catalog_changed(const struct index_target *t, const struct rec_head *h)
{
	struct tenant_settings	set;

	if (!t->account)
		return 0;
	if (h->seq > t->s->catalog_seq)
		t->s->catalog_seq = h->seq;
	if (h->kind != REC_PUT)
		return 0;
	/* an id that was damaged would be another tenant's, or beyond all bounds */
	if (h->body_len != sizeof(set) || !rec_body_ok(h)) {
		tenant_unread(t->s, h);
		return 0;
	}
	memcpy(&set, rec_body(h), sizeof(set));
	if (set.id >= t->s->next_tenant)
		t->s->next_tenant = set.id + 1;
	return tenant_set(t->s, set.id, true);
}

int
index_apply(const struct index_target *t, const struct rec_head *h, uint32_t segment, uint32_t offset,
    struct doc_val *was)
{
	uint8_t		 key[KEY_MAX];
	struct doc_val	 before;
	size_t		 len;
	uint32_t	 owner = h->tenant;

	memset(&before, 0, sizeof(before));
	if (was != NULL)
		*was = before;
	if (h->kind != REC_PUT && h->kind != REC_DELETE && h->kind != REC_DROP_TENANT)
		return 0;
	if (h->path_len > SUBMIT_PATH_MAX || (h->kind == REC_DROP_TENANT && h->tenant == 0)) {
		errno = EILSEQ;
		return -1;
	}
	if (t->account && h->tenant >= t->s->next_tenant)
		t->s->next_tenant = h->tenant + 1;
	if (h->kind == REC_DROP_TENANT) {
		if (drop_tenant(t, h) == -1)
			return -1;
		owner = 0;
	}
	len = key_make(key, owner, rec_path(h), h->path_len);
	if (put_value(t, key, len, h, segment, offset, &before) == -1)
		return -1;
	if (was != NULL)
		*was = before;
	if (owner == 0 && before.seq <= h->seq)
		return catalog_changed(t, h);
	return 0;
}
