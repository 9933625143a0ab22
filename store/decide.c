/*
 * store/decide.c - whether a write may happen, decided at commit.
 *
 * Runs in: committer, tests.
 * Touches: reads the newest tree, published or not; changes nothing.
 *
 * Order (contract 1 and 2; RFC 9110 13.2.1, 13.2.2): what would be refused
 * without any condition is refused for that reason; then If-Match, else
 * If-Unmodified-Since; then If-None-Match.
 */
#include "config.h"

#include <errno.h>
#include <string.h>

#include "store/store.h"

static bool
is_live(const struct doc_val *v)
{
	return v->seq != 0 && (v->flags & DOC_TOMBSTONE) == 0;
}

static bool
tag_in(const struct tag *tags, unsigned n, const struct doc_val *v)
{
	for (unsigned i = 0; i < n; i++)
		if (tags[i].seq == v->seq && tags[i].run == v->run)
			return true;
	return false;
}

/* RFC 9110 13.2.2 for methods other than GET and HEAD. */
static bool
conditions_hold(const struct op *op, const struct doc_val *now)
{
	bool	there = is_live(now);

	if (op->cond & COND_MATCH_ANY) {
		if (!there)
			return false;
	} else if (op->cond & COND_MATCH) {
		if (!there || !tag_in(op->match, op->n_match, now))
			return false;
	} else if (op->cond & COND_UNMODIFIED) {
		if (there && (int64_t)(now->time_ms / 1000) > op->unmodified_s)
			return false;
	}
	if (op->cond & COND_NONE_MATCH_ANY) {
		if (there)
			return false;
	} else if (op->cond & COND_NONE_MATCH) {
		if (there && tag_in(op->none, op->n_none, now))
			return false;
	}
	return true;
}

/* Is one of the folders above the name a document?  1, 0, -1. */
static int
ancestor_is_document(struct store *s, const struct op *op)
{
	uint8_t		key[KEY_MAX];
	struct doc_val	v;

	for (size_t i = 1; i < op->path_len; i++) {
		if (op->path[i] != '/')
			continue;
		switch (tree_get(&s->w.t, key, key_make(key, op->tenant, op->path, i), &v)) {
		case -1:
			return -1;
		case 1:
			if (is_live(&v))
				return 1;
			break;
		}
	}
	return 0;
}

/* Is a document below the name, so that it is a folder?  1, 0, -1. */
static int
is_folder(struct store *s, const struct op *op)
{
	uint8_t		lo[KEY_MAX + 1], hi[KEY_MAX + 1];
	struct agg	a;
	size_t		len;

	len = key_make(lo, op->tenant, op->path, op->path_len);
	memcpy(hi, lo, len);
	lo[len] = '/';
	hi[len] = '/' + 1;	/* behind every name that begins with path + "/" */
	if (tree_range(&s->w.t, lo, len + 1, hi, len + 1, &a) == -1)
		return -1;
	return a.count != 0;
}

static enum outcome
decide_put(struct store *s, const struct op *op, const struct doc_val *now)
{
	int	n;

	if (!is_live(now)) {
		if ((n = ancestor_is_document(s, op)) == 0)
			n = is_folder(s, op);
		if (n != 0)
			return n == 1 ? OUT_CONFLICT : OUT_READONLY;
	}
	if (!conditions_hold(op, now))
		return OUT_CONDITION;
	return is_live(now) ? OUT_REPLACED : OUT_CREATED;
}

enum outcome
decide(struct store *s, const struct op *op, struct doc_val *now)
{
	uint8_t	key[KEY_MAX];
	bool	catalog = op->kind == OP_TENANT_PUT || op->kind == OP_TENANT_DROP;
	int	n;

	memset(now, 0, sizeof(*now));
	if (!catalog && !tenant_alive(s, op->tenant))
		return s->tenant_unread ? OUT_DAMAGED : OUT_NO_TENANT;
	n = tree_get(&s->w.t, key, key_make(key, catalog ? 0 : op->tenant, op->path, op->path_len), now);
	if (n == -1)
		return OUT_READONLY;
	switch (op->kind) {
	case OP_PUT:
		return decide_put(s, op, now);
	case OP_TENANT_PUT:
		if (!conditions_hold(op, now))
			return OUT_CONDITION;
		return is_live(now) ? OUT_REPLACED : OUT_CREATED;
	case OP_DELETE:
	case OP_TENANT_DROP:
		if (!is_live(now))
			return OUT_ABSENT;
		return conditions_hold(op, now) ? OUT_DELETED : OUT_CONDITION;
	}
	return OUT_UNKNOWN;
}
