/*
 * worker/timer.c - see worker/timer.h.
 *
 * Runs in: worker.
 */
#include "config.h"
#include <limits.h>
#include "worker/conn.h"
#include "worker/timer.h"

void
timers_init(struct timers *t, const uint64_t ms[TIMER__N])
{
	unsigned	i;

	for (i = 0; i < TIMER__N; i++) {
		TAILQ_INIT(&t->q[i]);
		t->ms[i] = ms[i];
	}
	t->next = UINT64_MAX;
}

void
timer_stop(struct timers *t, struct conn *c)
{
	if (c->timer != TIMER_NONE)
		TAILQ_REMOVE(&t->q[c->timer], c, timed);
	c->timer = TIMER_NONE;
}

void
timer_start(struct timers *t, struct conn *c, enum timer_class class, uint64_t now)
{
	timer_stop(t, c);
	if (class == TIMER_NONE)
		return;
	c->timer = (uint8_t)class;
	c->since = now;
	TAILQ_INSERT_TAIL(&t->q[class], c, timed);
	if (now + t->ms[class] < t->next)
		t->next = now + t->ms[class];
}

int
timers_wait(const struct timers *t, uint64_t now)
{
	if (t->next == UINT64_MAX)
		return -1;
	if (t->next <= now)
		return 0;
	return t->next - now > INT_MAX ? INT_MAX : (int)(t->next - now);
}

struct conn *
timers_expired(struct timers *t, uint64_t now)
{
	struct conn	*c;
	uint64_t	 next = UINT64_MAX;
	unsigned	 i;

	if (now < t->next)
		return NULL;
	for (i = TIMER_NONE + 1; i < TIMER__N; i++) {
		if ((c = TAILQ_FIRST(&t->q[i])) == NULL)
			continue;
		if (now >= c->since + t->ms[i])
			return c;
		if (c->since + t->ms[i] < next)
			next = c->since + t->ms[i];
	}
	t->next = next;
	return NULL;
}
