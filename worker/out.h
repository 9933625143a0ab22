/*
 * worker/out.h - sending: answers of one run are gathered and sent at once.
 *
 * Runs in: worker.
 * Owns:    the send buffer and the list of what to send, shared by all
 *          connections; the queue of what a socket did not take (c->out).
 *
 * Heads and small bodies are copied into the buffer one behind the other, so
 * that pipelined answers leave in one send(2).  Larger bodies go straight from
 * the store's mapping, large ones out of the page cache (sendfile(2)), behind
 * a head that waits for them in the kernel (MSG_MORE).  A body over OUT_WINDOW
 * is checked and sent window by window, each right after its check, while it is
 * in the cache; memory and latency do not grow with it.
 *
 * What the socket does not take is kept: bytes of the buffer are copied, bodies
 * are held (doc_hold).  Held documents whose segment is gone are copied out, up
 * to OUT_COPIED bytes per worker; beyond that the reader is too slow for us.
 */
#ifndef WORKER_OUT_H
#define WORKER_OUT_H
#include <sys/uio.h>
#include <stddef.h>
#include <stdint.h>
#include "store/read.h"
#include "worker/conn.h"

#define OUT_BYTES	32768u
#define OUT_IOV		32u
#define OUT_PARTS	16u
#define OUT_SMALL	4096u		/* bodies up to this are copied beside their head */
#define OUT_SENDFILE	(32u << 10)	/* from here on out of the page cache, without a copy; below it is no gain (bench/README.md) */
#define OUT_WINDOW	(1u << 20)	/* a multiple of SUBMIT_CHUNK; smaller ones cost a send and a wake-up each */
#define OUT_TURN	(1u << 20)	/* sent to one connection before the others get their turn */
#define OUT_COPIED	(64u << 20)

struct part {			/* of a document: bytes pos..end are to be sent, up to `checked` they may be */
	struct doc	doc;
	uint32_t	pos, checked, end;
};

struct out {
	char		*buf;		/* OUT_BYTES */
	size_t		 used;
	unsigned	 niov, nparts;
	uint64_t	 copied;	/* bytes in memory for readers of segments that are gone */
	struct iovec	 iov[OUT_IOV];
	uint8_t		 part_of[OUT_IOV];	/* index into parts, OUT_PARTS: bytes of buf */
	struct part	 parts[OUT_PARTS];
};

int	out_init(struct out *);
/*
 * Room for n bytes (at most OUT_BYTES) to be written in place; never NULL.
 * May send what was gathered so far.  out_put() says where they end.
 */
char	*out_room(struct worker *, struct conn *, size_t n);
void	 out_put(struct out *, char *end);
/* Any number of bytes, copied. */
void	 out_bytes(struct worker *, struct conn *, const void *, size_t);
/* Body bytes from..to; the caller has checked them up to out_first(from, to).  The document stays the reader's. */
void	 out_doc(struct worker *, struct conn *, const struct doc *, uint32_t from, uint32_t to);
/* The end of the first window of from..to. */
uint32_t out_first(uint32_t from, uint32_t to);
/* Sends what was gathered.  What is left is in c->out. */
void	 out_flush(struct worker *, struct conn *);
/*
 * The same, of what is to be the last on the connection: the end of the bytes
 * waits for the close or shutdown that the caller makes if all was taken, and
 * the FIN leaves in their segment (send(2), MSG_MORE).
 */
void	 out_flush_last(struct worker *, struct conn *);
/* Forgets what was gathered for a connection that is closed. */
void	 out_forget(struct out *);
/* The socket has room again: sends from c->out. */
void	 out_resume(struct worker *, struct conn *);
/* Frees c->out. */
void	 out_drop(struct worker *, struct conn *);
/* Lets go of segments that are gone, by copying; cuts the connection where that is too much. */
void	 out_let_go(struct worker *, struct conn *);

#endif
