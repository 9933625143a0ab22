/*
 * store/read.h - the read side: all that a worker knows of the store.
 *
 * Runs in: worker.  Nothing here writes: every mapping is PROT_READ, every
 *          file is opened O_RDONLY.
 * Owns:    this process's mappings of overlay, checkpoint and segments; its pin.
 *
 * No system call per read: a segment or checkpoint is opened and mapped when
 * it is first met, then kept until the committer says it is gone.  doc_send()
 * opens a segment again where it has sent from too many others since: 2 to 3 us.
 *
 * Use, once per request:
 *	read_refresh(r);		newest generation, pinned
 *	read_doc(r, ...);		found: pointers into the mapping
 *	doc_check(...); send;
 * and read_idle(r) before the loop sleeps.  Pointers of a struct doc stay good
 * until read_idle() or, if the document was held (doc_hold), until doc_release().
 */
#ifndef STORE_READ_H
#define STORE_READ_H
#include <sys/types.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "shm/boot.h"
#include "shm/submit.h"

struct reader;

/*
 * Maps the overlay read-only and closes its descriptor in this process.
 * dirfd stays the caller's.  NULL with errno.  verify_always: see doc_check().
 */
struct reader	*read_open(const struct boot *);
void		 read_close(struct reader *);

/*
 * Pins the newest generation: what was answered before this call is seen.
 * Cheap when nothing was published since.  false: nothing has ever been published.
 */
bool		 read_refresh(struct reader *);
/* Lets the pin go; drops mappings of segments that are gone and not held. */
void		 read_idle(struct reader *);
/* Floor for Date and Last-Modified: the newest time made durable, ms. */
uint64_t	 read_time_floor(const struct reader *);
/* Changes whenever a tenant was made, changed or dropped. */
uint64_t	 read_catalog_seq(const struct reader *);
/* The newest generation pinned: grows with each commit. */
uint64_t	 read_generation(const struct reader *);

/* A stored document, as one generation has it. */
struct doc {
	struct tag	 tag;		/* its ETag */
	uint64_t	 time_ms;	/* modified */
	const uint8_t	*meta;		/* header lines as the worker gave them; a copy, until the next read_doc() */
	const uint8_t	*body;
	uint32_t	 meta_len;
	uint32_t	 body_len;
	uint32_t	 body_crc;
	const uint8_t	*table;		/* chunk checksums, where body_len > SUBMIT_CHUNK */
	uint32_t	 segment, offset;	/* for messages: where a damage is */
	void		*mapping;	/* for doc_hold() */
};

/*
 * 1: found.  0: not there.  -1: EILSEQ: damaged (errno; the log was told), or
 * EIO and the like.
 */
int		 read_doc(struct reader *, uint32_t tenant, const void *path, size_t len, struct doc *);
/*
 * Checks the chunks that cover body bytes from..to (to excluded, to <= body_len).
 * true: all match (or `verify-reads first` and they did before).
 */
bool		 doc_check(struct reader *, const struct doc *, uint32_t from, uint32_t to);
/*
 * Copies bytes of a body out.  A page may be gone although it was there when it
 * was checked: nothing else may load from d->body.  send(2) may: it says EFAULT; doc_send() does not.
 * false: gone, the log was told.
 */
bool		 doc_copy(struct reader *, void *to, const void *from, size_t n);
/* Are all pages of it there?  After a send that fell short: was it the socket, or us? */
bool		 doc_there(struct reader *, const void *from, size_t n);
/*
 * Sends body bytes from..to (to excluded), which were checked, to a socket out
 * of the page cache, without a copy: sendfile(2).  How many it took, at least
 * one: fewer than asked for says nothing, ask on until EAGAIN.  -1: ENOTSUP: send
 * from d->body instead; EIO: the file does not give them, the log was told; else the socket's error.
 */
ssize_t		 doc_send(struct reader *, const struct doc *, int sock, uint32_t from, uint32_t to);
/* Keeps the document's bytes mapped beyond read_idle(): a send that takes several rounds. */
void		 doc_hold(struct reader *, const struct doc *);
void		 doc_release(struct reader *, const struct doc *);
/* True where the segment of a held document is unlinked: its disk space waits for us (copy the rest out, let go). */
bool		 doc_gone(const struct reader *, const struct doc *);

/* --- tenants ----------------------------------------------------------------- */

enum tenant_public { PUBLIC_NONE = 0, PUBLIC_READ = 1, PUBLIC_WRITE = 2 };

/* Body of a tenant's catalog document, as stored.  Zero: default, no limit. */
struct tenant_settings {
	uint32_t	version;	/* TENANT_VERSION */
	uint32_t	id;		/* given by the committer at creation, kept over replacement; 0 in a submission */
	uint8_t		public;		/* enum tenant_public */
	uint8_t		pad[7];
	uint64_t	quota_bytes;	/* the following are for a later issue: 0 */
	uint64_t	quota_documents;
	uint64_t	rate_milli;
	uint64_t	burst;
};
#define TENANT_VERSION 1u
_Static_assert(sizeof(struct tenant_settings) == 48, "format");

#define TENANT_NAME_MAX 63u

/* 1 found, 0 no such tenant, -1 damaged. */
int	read_tenant(struct reader *, const char *name, size_t len, struct tenant_settings *);
/* Exact at this generation.  0, -1 damaged. */
int	read_usage(struct reader *, uint32_t tenant, uint64_t *documents, uint64_t *bytes);
/*
 * Tenants in order of name: the first one whose name is greater than `after`
 * (len 0: the first).  name has TENANT_NAME_MAX + 1 bytes, gets a NUL.  1, 0 end, -1.
 */
int	read_tenants(struct reader *, const char *after, size_t len, char *name, struct tenant_settings *);

#endif
