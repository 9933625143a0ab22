/*
 * worker/tenant.h - who may do what: tenants, and their administration.
 *
 * Runs in: worker.
 * Owns:    the cache of tenants of this worker.
 *
 * A look-up in the catalog is remembered, found or not, until the catalog
 * changes: what an administrator was answered holds for every later request.
 * Absent, impossible and private names take the same way to the same answer.
 */
#ifndef WORKER_TENANT_H
#define WORKER_TENANT_H
#include <stdbool.h>
#include <stdint.h>
#include "store/read.h"
#include "worker/conn.h"

#define TENANT_CACHE 256u
#define TENANT_DAMAGED "what is stored of this tenant is damaged"

struct tenant_known {
	uint64_t	seq;		/* of the catalog; 0: empty */
	uint32_t	id;
	uint8_t		len;
	bool		found;
	uint8_t		public;		/* enum tenant_public */
	char		name[TENANT_NAME_MAX];
};

struct tenants {
	struct tenant_known	known[TENANT_CACHE];
};

/*
 * May the request in w->req go on?  true: *id is the tenant's.  false: it has
 * been answered (401, 404 for the administrator, 500, 503).
 */
bool	tenant_admit(struct worker *, struct conn *, uint32_t *id);
/* The answer where a tenant is not there (any more): what tenant_admit() gives. */
void	tenant_absent(struct worker *, struct conn *);
/* /_tenants/...: the rest of the path behind "_tenants/" is in w->req.target. */
void	tenant_admin(struct worker *, struct conn *);
/* The body of PUT /_tenants/NAME is there, as text. */
void	tenant_put_text(struct worker *, struct conn *);
/* Does it follow the rule? */
bool	tenant_name_ok(const char *, size_t);

#endif
