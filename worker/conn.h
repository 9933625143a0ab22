/*
 * worker/conn.h - one connection: its slot and its state machine.
 *
 * Runs in: worker.
 * Owns:    struct conn; who is open, and what each waits for.
 *
 *	  +---------------------- next request ------------------------+
 *	  v                                                            |
 *	HEAD --> BODY --> QUEUE --> WAIT --> ANSWER --> (SKIP) --------+--> LINGER --> CLOSED
 *	  |        |     (a slot)  (commit)               ^            |       ^
 *	  |        +---- refused ------------------------ | -----------+-------+
 *	  +------------- answered at once ----------------+
 *
 *	HEAD	collects a head, answers whatever needs no write
 *	BODY	receives the body of a write
 *	QUEUE	the write is whole, all lane slots are under way
 *	WAIT	for the committer; nothing further is parsed, so answers keep their order
 *	ANSWER	the result is there
 *	SKIP	reads past the body of a request that was answered without it
 *	LINGER	the last answer is out; reads on so that a client still sending can read it
 *
 * Sending is beside the states: an answer that the socket did not take waits
 * in c->out, and no new head is looked at before it is gone.
 *
 * Only conn_to() writes c->state.  A step does one state's work and says what
 * it waits for.  An idle connection is this struct and nothing else.
 */
#ifndef WORKER_CONN_H
#define WORKER_CONN_H
#include <bsd/sys/queue.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum conn_state {
	CONN_HEAD, CONN_BODY, CONN_QUEUE, CONN_WAIT, CONN_ANSWER, CONN_SKIP, CONN_LINGER, CONN_CLOSED, CONN__N
};

enum step {
	STEP_AGAIN,	/* the state has changed, or there is more to do in it */
	STEP_READ,	/* needs bytes from the socket */
	STEP_WRITE,	/* needs room in the socket */
	STEP_WAKE,	/* waits for the committer */
	STEP_CLOSE,	/* is over */
};

struct write;
struct piece;
struct worker;
struct lane_result;

struct conn {
	_Alignas(64) int fd;
	uint8_t		 state;		/* enum conn_state; W: conn_to() */
	uint8_t		 kind;		/* enum listen_kind */
	uint8_t		 timer;		/* enum timer_class; W: timer.c */
	bool		 readable : 1;	/* the socket may have more than we took */
	bool		 writable : 1;	/* the socket took all we gave */
	bool		 half : 1;	/* the client has said its last: read until the end */
	bool		 eof : 1;	/* and there it was */
	bool		 broken : 1;	/* the socket failed, or memory did: close without a word */
	bool		 armed : 1;	/* in the epoll set */
	bool		 again : 1;	/* in worker.again: to be run without an event */
	bool		 close : 1;	/* this answer is the last one */
	bool		 unread : 1;	/* closes with bytes of the client's under way: linger */
	bool		 body : 1;	/* the request has a body nobody has taken or settled yet */
	bool		 http10 : 1;	/* the request is HTTP/1.0 */
	bool		 fresh : 1;	/* its timer starts anew although the class is the same */
	bool		 progress : 1;	/* something was sent since the timer was looked at */
	uint32_t	 scanned;	/* head_parse()'s memory */

	/* received and not parsed yet, where a head is partial or a write waits */
	char		*held;
	uint32_t	 held_at, held_end, held_size;
	uint32_t	 got;		/* body bytes since the timer was started */
	uint8_t		 slow;		/* time-outs of this body that brought too little, but something */

	uint64_t	 left;		/* bytes of body to come (BODY with a length, SKIP), to discard (LINGER) */
	struct write	*write;		/* BODY to ANSWER */
	struct piece	*out, **out_end;/* unsent */

	uint64_t	 since;		/* of the timer */
	TAILQ_ENTRY(conn) timed;	/* W: timer.c */
	STAILQ_ENTRY(conn) link;	/* worker.again */
	TAILQ_ENTRY(conn) queued;	/* writes.queue, worker.dead, worker.free */
};
_Static_assert(sizeof(struct conn) <= 192, "an idle connection is small");
STAILQ_HEAD(conn_list, conn);
TAILQ_HEAD(conn_queue, conn);

/* A new connection; the descriptor is taken.  NULL: no memory, the descriptor is closed. */
struct conn	*conn_open(struct worker *, int fd, int kind);
/* Closes at once.  The struct stays valid until conn_bury(). */
void		 conn_close(struct worker *, struct conn *);
/* Frees what was closed in this round: no event of the round can name it any more. */
void		 conn_bury(struct worker *);

/* Does all that can be done now: parses, answers, sends. */
void		 conn_run(struct worker *, struct conn *);
void		 conn_to(struct conn *, enum conn_state);
/* Refuses in the middle of a body, or of a head that does not end: answers, and closes behind it. */
void		 conn_refuse(struct worker *, struct conn *, unsigned status, const char *detail,
		    const char *fields, size_t len);
/* Runs those that were not done in their last round. */
void		 conn_run_again(struct worker *);
/* The request has its answer (composed, not necessarily sent): what comes next. */
void		 conn_answered(struct conn *);
/* The committer is done with the connection's write. */
void		 conn_complete(struct worker *, struct conn *, const struct lane_result *);
/* Its time-out is over. */
void		 conn_expired(struct worker *, struct conn *);
/* The connection that can be missed best; NULL: all have a request under way. */
struct conn	*conn_spare(struct worker *);
/* Closes it, to make room. */
void		 conn_evict(struct worker *, struct conn *);
/* Closes all idle ones but those whose next request has just come: they are answered first (F61). */
void		 conn_close_idle(struct worker *);

#endif
