/*
 * store/look.h - a store opened to be looked at, and the names in it.
 *
 * Runs in: tools, tests.
 *
 * Nothing on disk is changed.  A checkpoint counts only if all of it is whole.
 */
#ifndef STORE_LOOK_H
#define STORE_LOOK_H
#include "store/store.h"

/* As store_open(): 0; -1 with errno and a line in s->reason. */
int	look_open(struct store *, int dirfd, const char *dir);
void	look_close(struct store *);

/* The record of a tree entry, if it is there with a whole head and is the one meant; NULL: ENOENT, EILSEQ. */
const struct rec_head *look_record(struct store *, const uint8_t *key, size_t len, const struct doc_val *);

/* Which tenant an entry of the catalog is, from its record or from what can be told of a broken one.  0: unknown. */
uint32_t look_tenant_id(struct store *, const uint8_t *key, size_t len, const struct doc_val *, bool *whole);

struct tenant_name {
	uint32_t	id;
	char		name[TENANT_NAME_MAX + 1];
};
struct names {			/* sorted by id */
	struct tenant_name	*t;
	size_t			 n, cap;
};
int	names_load(struct names *, struct store *);
void	names_free(struct names *);
const char *names_find(const struct names *, uint32_t id);	/* NULL: nobody has it */

#define LOOK_NAME	(TENANT_NAME_MAX + 1 + 3 * SUBMIT_PATH_MAX + 8)
/* "tenant/path", or "tenant NAME" for an entry of the catalog; control bytes and % as %XX: it goes to a terminal. */
const char *look_name(const struct names *, uint32_t tenant, const void *path, size_t len, char out[LOOK_NAME]);

#endif
