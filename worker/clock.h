/*
 * worker/clock.h - the time, asked once per loop round, and the lines it makes.
 *
 * Runs in: worker.
 * Owns:    the Date line of every answer, and spelled Last-Modified dates.
 *
 * Intervals are measured with the monotonic clock, which never runs backwards
 * here even where the kernel's does (F67).  Date and Last-Modified have a
 * floor, the newest time ever made durable: a box without a clock of its own
 * never dates an answer before the document in it.
 */
#ifndef WORKER_CLOCK_H
#define WORKER_CLOCK_H
#include <stddef.h>
#include <stdint.h>
#include "worker/cond.h"

#define CLOCK_DATES	64u	/* Last-Modified spellings remembered, by second */
#define CLOCK_LINES	(sizeof("Date: Sun, 06 Nov 1994 08:49:37 GMT\r\nServer: holdfast\r\n") - 1)

struct clock {
	uint64_t	ms;		/* monotonic, of this round */
	int64_t		date_s;		/* the second that `lines` spells */
	int64_t		floor_s;
	char		lines[CLOCK_LINES];	/* "Date: ...\r\nServer: holdfast\r\n" */
	int64_t		spelled_s[CLOCK_DATES];
	char		spelled[CLOCK_DATES][DATE_LEN];
};

void	clock_init(struct clock *);
/* A new round.  floor_ms: read_time_floor(). */
void	clock_tick(struct clock *, uint64_t floor_ms);
/* A document of that second is about to be answered: Date must not be before it. */
void	clock_floor(struct clock *, int64_t second);
/* Spells a date, DATE_LEN bytes; returns what is behind it. */
char	*clock_spell(struct clock *, char *out, int64_t second);

#endif
