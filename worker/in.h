/*
 * worker/in.h - receiving: the window of bytes that is being parsed.
 *
 * Runs in: worker.
 * Owns:    the receive scratch, shared by all connections of the worker.
 *
 * While a connection runs, its unparsed bytes are the window.  They are in the
 * scratch as the socket gave them, or in the buffer the connection held them
 * in; only what cannot be parsed yet is copied there when the run ends.  So a
 * connection whose requests come whole never has a buffer.
 *
 * A receive that brought less than asked for has emptied the socket: it is not
 * asked again before epoll says so.  Bodies of writes are received where they
 * are written from (shm/submit.h).
 */
#ifndef WORKER_IN_H
#define WORKER_IN_H
#include <stddef.h>
#include <stdint.h>
#include "worker/conn.h"
#include "worker/head.h"

#define IN_RECV		16384u			/* at most per receive; bounds what a connection can make us hold */
#define IN_SCRATCH	(HEAD_MAX + IN_RECV)	/* a partial head in front of it */

struct in {
	char	*p;		/* the window */
	size_t	 n;
	char	*scratch;	/* IN_SCRATCH bytes */
};

int	in_init(struct in *);
/* A run of c begins and ends.  in_close() -1: no memory to hold the rest. */
void	in_open(struct in *, struct conn *);
int	in_close(struct in *, struct conn *);
/* n bytes of the window are done with. */
static inline void
in_take(struct in *in, size_t n)
{
	in->p += n;
	in->n -= n;
}

/*
 * Receives into the window (HEAD, BODY, SKIP), into the arena (BODY with an
 * empty window), or into nothing (LINGER).  Sets eof, broken, readable.
 */
void	in_fill(struct worker *, struct conn *);
/*
 * The request's body will not be used: decides whether it is read past
 * (c->left) or the connection closes behind the answer (c->close, c->unread).
 * Before the answer's head is made, which says so.
 */
void	in_refuse_body(struct worker *, struct conn *);

enum step	in_step_skip(struct worker *, struct conn *);
enum step	in_step_linger(struct worker *, struct conn *);

#endif
