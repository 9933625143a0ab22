/*
 * store/look.c - see store/look.h.
 *
 * Runs in: tools, tests.
 */
#include "config.h"

#include <sys/mman.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "store/look.h"
#include "store/salvage.h"

int
look_open(struct store *s, int dirfd, const char *dir)
{
	/* the size counts for segments that are made, and none is */
	struct store_options	o = { .dir = dir, .segment_size = (uint64_t)1 << 20, .look = true };
	int			fd = -1, saved;

	memset(s, 0, sizeof(*s));
	if ((fd = memfd_create("overlay", MFD_CLOEXEC)) == -1 || ftruncate(fd, (off_t)OVERLAY_BYTES) == -1) {
		snprintf(s->reason, sizeof(s->reason), "memory for the tree: %s", strerror(errno));
		goto fail;
	}
	if (store_open(s, dirfd, fd, &o) == -1)
		goto fail;
	return 0;
fail:
	saved = errno;
	if (s->overlay.base != NULL)
		look_close(s);
	else if (fd != -1)
		close(fd);
	errno = saved;
	return -1;
}

void
look_close(struct store *s)
{
	char	reason[sizeof(s->reason)];
	int	fd = s->overlay.fd;

	memcpy(reason, s->reason, sizeof(reason));
	store_close(s);
	memcpy(s->reason, reason, sizeof(reason));
	close(fd);
}

const struct rec_head *
look_record(struct store *s, const uint8_t *key, size_t len, const struct doc_val *v)
{
	const struct rec_head	*h = log_record(&s->log, v->segment, v->offset);
	bool			 gone = (v->flags & DOC_TOMBSTONE) != 0;
	uint32_t		 tenant = key_tenant(key);

	if (h == NULL)
		return NULL;
	errno = EILSEQ;
	if (h->seq != v->seq || h->run != v->run || h->time_ms != v->time_ms || rec_bytes(h) != v->rec_len ||
	    (h->kind == REC_PUT) == gone || (!gone && h->body_len != v->body_len))
		return NULL;
	/* a dropped tenant is a tombstone in the catalog, whose record names the id */
	if (h->tenant != tenant && !(tenant == 0 && h->kind == REC_DROP_TENANT))
		return NULL;
	if (h->path_len != len - sizeof(tenant) || memcmp(rec_path(h), key + sizeof(tenant), h->path_len) != 0)
		return NULL;
	return h;
}

/* ------------------------------------------------------------------ tenants */

static uint32_t
id_of(const struct rec_head *h, bool *whole)
{
	struct tenant_settings	set;

	if (h->kind != REC_PUT || h->body_len != sizeof(set))
		return 0;
	memcpy(&set, rec_body(h), sizeof(set));
	if (rec_body_ok(h))
		return set.id;
	*whole = false;
	return salvage_body((uint8_t *)&set, sizeof(set), h->body_crc) ? set.id : 0;
}

uint32_t
look_tenant_id(struct store *s, const uint8_t *key, size_t len, const struct doc_val *v, bool *whole)
{
	const struct rec_head	*h = look_record(s, key, len, v);
	struct rec_head		*said;
	uint32_t		 id;

	*whole = h != NULL;
	if (h != NULL)
		return id_of(h, whole);
	if ((said = salvage_head(&s->log, v->segment, v->offset)) == NULL)
		return 0;
	id = said->seq == v->seq && said->tenant == 0 ? id_of(said, whole) : 0;
	free(said);
	return id;
}

static int
names_add(struct names *n, uint32_t id, const uint8_t *name, size_t len)
{
	struct tenant_name	*p;

	if (n->n == n->cap) {
		size_t	cap = n->cap != 0 ? 2 * n->cap : 64;

		if ((p = reallocarray(n->t, cap, sizeof(*p))) == NULL)
			return -1;
		n->t = p;
		n->cap = cap;
	}
	p = &n->t[n->n++];
	memset(p, 0, sizeof(*p));
	p->id = id;
	memcpy(p->name, name, len < TENANT_NAME_MAX ? len : TENANT_NAME_MAX);
	return 0;
}

static int
by_id(const void *a, const void *b)
{
	const struct tenant_name	*x = a, *y = b;

	return (x->id > y->id) - (x->id < y->id);
}

int
names_load(struct names *n, struct store *s)
{
	struct cursor	 c;
	struct doc_val	 v;
	const uint8_t	*key;
	size_t		 len;
	uint32_t	 id;
	bool		 whole;
	int		 rc;

	memset(n, 0, sizeof(*n));
	for (rc = cursor_seek(&c, &s->w.t, "", 0); rc == 1; rc = cursor_next(&c)) {
		cursor_entry(&c, &key, &len, &v);
		if (key_tenant(key) != 0)
			break;
		if ((v.flags & DOC_TOMBSTONE) == 0 && (id = look_tenant_id(s, key, len, &v, &whole)) != 0 &&
		    names_add(n, id, key + sizeof(uint32_t), len - sizeof(uint32_t)) == -1)
			return -1;
	}
	if (n->n != 0)
		qsort(n->t, n->n, sizeof(*n->t), by_id);
	return rc == -1 ? -1 : 0;
}

void
names_free(struct names *n)
{
	free(n->t);
	memset(n, 0, sizeof(*n));
}

const char *
names_find(const struct names *n, uint32_t id)
{
	size_t	lo = 0, hi = n->n;

	while (lo < hi) {
		size_t	mid = lo + (hi - lo) / 2;

		if (n->t[mid].id == id)
			return n->t[mid].name;
		if (n->t[mid].id < id)
			lo = mid + 1;
		else
			hi = mid;
	}
	return NULL;
}

const char *
look_name(const struct names *n, uint32_t tenant, const void *path, size_t len, char out[LOOK_NAME])
{
	const uint8_t	*p = path;
	const char	*name = names_find(n, tenant);
	size_t		 at;

	if (tenant == 0)
		at = (size_t)snprintf(out, LOOK_NAME, "tenant ");
	else if (name != NULL)
		at = (size_t)snprintf(out, LOOK_NAME, "%s/", name);
	else
		at = (size_t)snprintf(out, LOOK_NAME, "(tenant id %u)/", tenant);
	for (size_t i = 0; i < len && at + 4 <= LOOK_NAME; i++) {
		if (p[i] < ' ' || p[i] == '%' || p[i] == 0x7f)
			at += (size_t)snprintf(out + at, LOOK_NAME - at, "%%%02X", p[i]);
		else
			out[at++] = (char)p[i];
	}
	out[at] = '\0';
	return out;
}
