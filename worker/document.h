/*
 * worker/document.h - GET, HEAD, PUT, DELETE and OPTIONS of documents.
 *
 * Runs in: worker.
 *
 * A document's meta, as stored, are ready-made header lines in this order:
 * Cache-Control, Content-Type, Content-Encoding, Content-Language,
 * Content-Disposition; each only if the PUT had it.  So a GET copies them, and
 * sees from their first bytes which defaults to add.
 */
#ifndef WORKER_DOCUMENT_H
#define WORKER_DOCUMENT_H
#include "worker/conn.h"

#define DOCUMENT_ALLOW	"GET, HEAD, PUT, DELETE, OPTIONS"

/* The request in w->req is for a document of that tenant, and admitted. */
void	document_get(struct worker *, struct conn *, uint32_t tenant);
void	document_put(struct worker *, struct conn *, uint32_t tenant);
void	document_delete(struct worker *, struct conn *, uint32_t tenant);

/* Where the fields of a meta begin and end that a GET must know of. */
struct meta_view {
	uint32_t	cache_len;	/* of the Cache-Control line, with its CRLF; 0: there is none */
	bool		typed;		/* there is a Content-Type */
};
struct meta_view	document_meta(const char *meta, uint32_t len);

#endif
