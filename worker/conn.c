/*
 * worker/conn.c - see worker/conn.h.
 *
 * Runs in: worker.
 */
#include "config.h"
#include <sys/socket.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "worker/answer.h"
#include "worker/conn.h"
#include "worker/route.h"
#include "worker/worker.h"

#define FILLS		4u		/* receives per run: then it is the others' turn */
#define SLAB		64u		/* connections allocated at a time */
#define LOOK		8u		/* idle ones looked at for one that can be closed */
#define LINGER_BYTES	((uint64_t)64 << 20)
#define BODY_LEAST	500u		/* bytes per second ... */
#define BODY_GRACE	4u		/* ... but for so many time-outs, in which a byte is progress enough (F69) */

static enum step	step_wait(struct worker *, struct conn *);
static enum step	step_closed(struct worker *, struct conn *);

static enum step (*const steps[])(struct worker *, struct conn *) = {
	[CONN_HEAD] = route_step_head,
	[CONN_BODY] = write_step_body,
	[CONN_QUEUE] = write_step_queue,
	[CONN_WAIT] = step_wait,
	[CONN_ANSWER] = write_step_answer,
	[CONN_SKIP] = in_step_skip,
	[CONN_LINGER] = in_step_linger,
	[CONN_CLOSED] = step_closed,
};
_Static_assert(sizeof(steps) / sizeof(steps[0]) == CONN__N, "every state has a step");

static enum step
step_wait(struct worker *w, struct conn *c)
{
	(void)w;
	(void)c;
	return STEP_WAKE;
}

static enum step
step_closed(struct worker *w, struct conn *c)
{
	(void)w;
	(void)c;
	return STEP_CLOSE;
}

void
conn_to(struct conn *c, enum conn_state state)
{
	/* these start their time-out anew, whatever ran before */
	if (state == CONN_BODY || state == CONN_SKIP || state == CONN_LINGER)
		c->fresh = true;
	c->state = (uint8_t)state;
}

/* --- opening and closing ------------------------------------------------ */

/* Slots come in slabs and are never given back: what was needed once will be again. */
static struct conn *
slot_take(struct worker *w)
{
	struct conn	*slab, *c;
	unsigned	 i;

	if (TAILQ_EMPTY(&w->free)) {
		if ((slab = aligned_alloc(_Alignof(struct conn), SLAB * sizeof(*slab))) == NULL)
			return NULL;
		for (i = 0; i < SLAB; i++)
			TAILQ_INSERT_TAIL(&w->free, &slab[i], queued);
	}
	c = TAILQ_FIRST(&w->free);
	TAILQ_REMOVE(&w->free, c, queued);
	return c;
}

static void
again(struct worker *w, struct conn *c)
{
	if (c->again)
		return;
	c->again = true;
	STAILQ_INSERT_TAIL(&w->again, c, link);
}

struct conn *
conn_open(struct worker *w, int fd, int kind)
{
	struct conn	*c;

	if ((c = slot_take(w)) == NULL) {
		close(fd);
		return NULL;
	}
	memset(c, 0, sizeof(*c));
	c->fd = fd;
	c->kind = (uint8_t)kind;
	/* the request often is there already: look before asking epoll */
	c->readable = c->writable = true;
	w->nconns++;
	count_add(w->count, CW_CONNECTIONS, 1);
	count_set(w->count, CW_OPEN, w->nconns);
	return c;
}

void
conn_close(struct worker *w, struct conn *c)
{
	if (c->state == CONN_CLOSED)
		return;
	write_abandon(w, c);
	conn_to(c, CONN_CLOSED);
	timer_stop(&w->timers, c);
	out_drop(w, c);
	free(c->held);
	c->held = NULL;
	/* out of the epoll set with its last descriptor: nobody else has it */
	close(c->fd);
	c->fd = -1;
	if (!c->again)		/* else conn_run_again() buries it, out of its list */
		TAILQ_INSERT_TAIL(&w->dead, c, queued);
	w->nconns--;
	count_set(w->count, CW_OPEN, w->nconns);
	loop_resume(w);
}

void
conn_bury(struct worker *w)
{
	if (TAILQ_EMPTY(&w->dead))
		return;
	/* the one used last is the one in the cache: front */
	TAILQ_CONCAT(&w->dead, &w->free, queued);
	TAILQ_SWAP(&w->dead, &w->free, conn, queued);
}

static void
linger(struct worker *w, struct conn *c)
{
	shutdown(c->fd, SHUT_WR);
	in_take(&w->in, w->in.n);
	c->left = LINGER_BYTES;
	conn_to(c, CONN_LINGER);
	if (c->readable)
		again(w, c);
}

/* --- a run -------------------------------------------------------------- */

/* The client has said all it will say, and we want more. */
static enum step
ended(struct worker *w, struct conn *c)
{
	switch (c->state) {
	case CONN_HEAD:
	case CONN_SKIP:		/* was answered already */
		in_take(&w->in, w->in.n);
		c->left = 0;
		c->close = true;
		conn_to(c, CONN_HEAD);
		return STEP_WRITE;
	case CONN_BODY:
		write_cut_short(w, c);
		return STEP_AGAIN;
	default:
		return STEP_CLOSE;
	}
}

/* Its time-out, by what it waits for now. */
static void
set_timer(struct worker *w, struct conn *c)
{
	enum timer_class	class = TIMER_NONE;
	bool			fresh = c->fresh;

	if (c->out != NULL) {
		class = TIMER_WRITE;
		fresh = c->progress;
	} else if (c->state == CONN_HEAD && w->in.n == 0) {
		class = TIMER_IDLE;
		fresh = true;
	} else if (c->state == CONN_HEAD)
		class = TIMER_HEAD;
	else if (c->state == CONN_BODY || c->state == CONN_SKIP)
		class = TIMER_BODY;
	else if (c->state == CONN_LINGER)
		class = TIMER_LINGER;
	if (c->timer != class || fresh) {
		timer_start(&w->timers, c, class, w->clock.ms);
		if (class == TIMER_BODY)
			c->got = c->slow = 0;
	}
	c->fresh = c->progress = false;
}

/* Sends what the run gathered, and leaves the connection as it must be until the next one. */
static void
settle(struct worker *w, struct conn *c, enum step step)
{
	if (c->close && c->state == CONN_HEAD)
		out_flush_last(w, c);
	else
		out_flush(w, c);
	if (c->broken || step == STEP_CLOSE) {
		conn_close(w, c);
		return;
	}
	if (c->close && c->state == CONN_HEAD && c->out == NULL) {
		if (c->eof || (!c->unread && w->in.n == 0 && !c->readable)) {
			/* what comes now makes close() reset the connection, with all that has not left: it leaves first */
			if (!c->eof)
				shutdown(c->fd, SHUT_WR);
			conn_close(w, c);
			return;
		}
		/* closing over bytes not read would reset the connection, and the answer with it */
		linger(w, c);
	}
	if (in_close(&w->in, c) == -1 || (!c->armed && loop_arm(w, c) == -1)) {
		conn_close(w, c);
		return;
	}
	if (c->out != NULL && c->writable)
		again(w, c);	/* had its turn */
	set_timer(w, c);
}

void
conn_run(struct worker *w, struct conn *c)
{
	unsigned	fills = FILLS;
	enum step	step = STEP_AGAIN;

	in_open(&w->in, c);
	if (c->out != NULL && c->writable)
		out_resume(w, c);
	while (!c->broken) {
		if ((step = steps[c->state](w, c)) == STEP_AGAIN)
			continue;
		if (step != STEP_READ)
			break;
		if (c->eof) {
			if ((step = ended(w, c)) == STEP_AGAIN)
				continue;
			break;
		}
		if (!c->readable)
			break;
		if (w->out.niov > 0) {
			/* what is answered leaves before we look for more, which may be refused until it has */
			out_flush(w, c);
			continue;
		}
		if (fills-- == 0) {
			again(w, c);
			break;
		}
		in_fill(w, c);
	}
	settle(w, c, step);
}

/* As many as there are now: one that needs another turn goes to the end of the list. */
void
conn_run_again(struct worker *w)
{
	struct conn	*c, *last = STAILQ_LAST(&w->again, conn, link);
	bool		 more = last != NULL;

	while (more) {
		c = STAILQ_FIRST(&w->again);
		more = c != last;
		STAILQ_REMOVE_HEAD(&w->again, link);
		c->again = false;
		if (c->state == CONN_CLOSED)
			TAILQ_INSERT_TAIL(&w->dead, c, queued);
		else
			conn_run(w, c);
	}
}

void
conn_answered(struct conn *c)
{
	if (c->close && c->left > 0) {
		c->left = 0;
		c->unread = true;
	}
	conn_to(c, c->left > 0 ? CONN_SKIP : CONN_HEAD);
}

void
conn_complete(struct worker *w, struct conn *c, const struct lane_result *r)
{
	c->write->result = *r;
	conn_to(c, CONN_ANSWER);
	conn_run(w, c);
}

/* --- time-outs ---------------------------------------------------------- */

void
conn_refuse(struct worker *w, struct conn *c, unsigned status, const char *detail,
    const char *fields, size_t len)
{
	/* w->req may be another connection's by now */
	w->req.head.method = M_NONE;
	w->req.below_tenant = c->write != NULL && c->write->op == OP_PUT;
	write_abandon(w, c);
	in_take(&w->in, w->in.n);
	c->body = false;
	c->left = 0;
	c->close = c->unread = true;
	answer_problem_with(w, c, status, detail, fields, len);
}

static void
too_slow(struct worker *w, struct conn *c, const char *detail)
{
	in_open(&w->in, c);
	conn_refuse(w, c, 408, detail, "", 0);
	settle(w, c, STEP_WRITE);
}

/* A whole body time-out has passed: did enough come for another one? */
static bool
body_goes_on(struct worker *w, struct conn *c)
{
	uint64_t	least = BODY_LEAST * w->boot->set.body_ms / 1000;

	if (c->got == 0 || (c->got < least && c->slow++ == BODY_GRACE))
		return false;
	c->got = 0;
	timer_start(&w->timers, c, TIMER_BODY, w->clock.ms);
	return true;
}

void
conn_expired(struct worker *w, struct conn *c)
{
	if (c->timer == TIMER_HEAD)
		too_slow(w, c, "the request head did not come in time; send it at once");
	else if (c->timer != TIMER_BODY)
		conn_close(w, c);
	else if (body_goes_on(w, c))
		return;
	else if (c->state == CONN_BODY)
		too_slow(w, c, "the request body came too slowly or stopped; nothing was stored, send it again");
	else
		conn_close(w, c);
}

/* --- making room -------------------------------------------------------- */

/* A request may have arrived that epoll has not told us of yet: it must not be reset (F61). */
static bool
has_input(const struct conn *c)
{
	char	byte;

	return c->readable || recv(c->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
}

/* One between requests, the longest first; else one whose last answer is out. */
struct conn *
conn_spare(struct worker *w)
{
	struct conn	*c;
	unsigned	 looked = 0;

	for (c = TAILQ_FIRST(&w->timers.q[TIMER_IDLE]); c != NULL; c = TAILQ_NEXT(c, timed)) {
		if (!has_input(c))
			return c;
		if (++looked == LOOK)
			break;
	}
	return TAILQ_FIRST(&w->timers.q[TIMER_LINGER]);
}

void
conn_evict(struct worker *w, struct conn *c)
{
	count_add(w->count, CW_CLOSED_FOR_ROOM, 1);
	conn_close(w, c);
}

void
conn_close_idle(struct worker *w)
{
	struct conn	*c, *next;

	for (c = TAILQ_FIRST(&w->timers.q[TIMER_IDLE]); c != NULL; c = next) {
		next = TAILQ_NEXT(c, timed);
		if (has_input(c)) {
			c->readable = true;
			again(w, c);
		} else
			conn_close(w, c);
	}
}
