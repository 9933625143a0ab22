/*
 * worker/write.h - a write from its head to its answer.
 *
 * Runs in: worker.
 * Owns:    struct write: what a connection has only while a write is under
 *          way; which connection waits for which slot of the lane.
 *
 * The body goes into the arena as it comes in.  When it is whole it is handed
 * to the committer, who decides its conditions; the answer is made of the
 * outcome.  A connection that ends meanwhile leaves its submission behind: the
 * write may still happen, and its result is collected by nobody.
 */
#ifndef WORKER_WRITE_H
#define WORKER_WRITE_H
#include <bsd/sys/queue.h>
#include "shm/lane.h"
#include "shm/submit.h"
#include "worker/chunked.h"
#include "worker/conn.h"
#include "worker/head.h"

#define WRITE_TEXT_MAX	(256u << 10)	/* of a body that we interpret ourselves (settings) */
#define WRITE_SPARE	64u		/* structs kept for the next write */

struct write {
	uint8_t			 op;		/* enum submit_op */
	bool			 chunked;
	bool			 built;		/* `build` holds budget and granules */
	uint8_t			 name_len;
	char			 name[64];	/* the tenant's */
	uint32_t		 submit;	/* QUEUE: what to hand over */
	uint64_t		 limit;		/* of the body: 413 over it */
	struct submit_build	 build;
	struct chunked		 parse;
	char			*text;		/* OP_TENANT_PUT: the body, before it is settings */
	size_t			 text_len, text_size;
	unsigned		 slot;		/* WAIT */
	uint64_t		 number;
	struct lane_result	 result;	/* ANSWER */
	SLIST_ENTRY(write)	 spare;
};

struct writes {
	struct lane_worker	 lane;
	struct conn		*waiting[LANE_SLOTS];	/* by slot; NULL: nobody (an orphan, a closed connection) */
	unsigned		 under_way;		/* submitted and not collected, orphans too */
	unsigned		 ring;			/* submissions of this round */
	struct conn_queue	 queue;			/* connections in QUEUE, in order */
	SLIST_HEAD(write_list, write) spares;
	unsigned		 nspares;
};

/* Attaches to the lane; takes care of what a predecessor left. */
void		write_attach(struct worker *);
/*
 * Begins a write for the request in w->req; `args` is borrowed.  A PUT's body
 * follows; without one it is handed over at once.  Refuses by itself what
 * cannot begin (503).
 */
void		write_begin(struct worker *, struct conn *, const struct submit_args *);
/* A body that is kept as text until tenant_put_text() has made a write of it (write_text_done()). */
void		write_begin_text(struct worker *, struct conn *);
/* Is the request's framing fit for a body of at most `limit` bytes?  false: refused (411, 413, 400, 417). */
bool		write_framing(struct worker *, struct conn *, uint64_t limit);
/* For OP_TENANT_PUT, once the text is known: the body is `settings`. */
void		write_text_done(struct worker *, struct conn *, const struct submit_args *, const void *body, size_t len);
/* Where the next body bytes may be received directly; false: through the window (chunk lines, text). */
bool		write_space(struct worker *, struct conn *, void **, size_t *);
/* n bytes were received there. */
void		write_received(struct worker *, struct conn *, size_t n);
/* The client's end came before the body's. */
void		write_cut_short(struct worker *, struct conn *);
/* Lets go of the connection's write, whatever its state. */
void		write_abandon(struct worker *, struct conn *);
/* Collects all results that are there. */
void		write_collect(struct worker *);
/* Wakes the committer if there is something new for it: once per round. */
void		write_ring(struct worker *);

enum step	write_step_body(struct worker *, struct conn *);
enum step	write_step_queue(struct worker *, struct conn *);
enum step	write_step_answer(struct worker *, struct conn *);

#endif
