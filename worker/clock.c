/*
 * worker/clock.c - see worker/clock.h.
 *
 * Runs in: worker.
 *
 * The coarse clocks are a load from a page of the kernel's; they are a few
 * milliseconds behind, which no timeout here minds.
 */
#include "config.h"
#include <string.h>
#include <time.h>
#include "worker/clock.h"

#define DATE_AT	(sizeof("Date: ") - 1)

static void
spell_lines(struct clock *c, int64_t second)
{
	c->date_s = second;
	date_format(c->lines + DATE_AT, second);
}

void
clock_init(struct clock *c)
{
	unsigned	i;

	memset(c, 0, sizeof(*c));
	memcpy(c->lines, "Date: Thu, 01 Jan 1970 00:00:00 GMT\r\nServer: holdfast\r\n", CLOCK_LINES);
	for (i = 0; i < CLOCK_DATES; i++)
		c->spelled_s[i] = INT64_MIN;
	clock_tick(c, 0);
}

void
clock_tick(struct clock *c, uint64_t floor_ms)
{
	struct timespec	t;
	uint64_t	ms;
	int64_t		second;

	/* neither can fail with these arguments */
	clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
	ms = (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
	if (ms > c->ms)
		c->ms = ms;
	clock_gettime(CLOCK_REALTIME_COARSE, &t);
	second = (int64_t)(floor_ms / 1000);
	if (second > c->floor_s)
		c->floor_s = second;
	second = t.tv_sec > c->floor_s ? t.tv_sec : c->floor_s;
	if (second != c->date_s)
		spell_lines(c, second);
}

void
clock_floor(struct clock *c, int64_t second)
{
	if (second > c->floor_s)
		c->floor_s = second;
	if (second > c->date_s)
		spell_lines(c, second);
}

char *
clock_spell(struct clock *c, char *out, int64_t second)
{
	unsigned	i = (uint64_t)second % CLOCK_DATES;

	if (c->spelled_s[i] != second) {
		date_format(c->spelled[i], second);
		c->spelled_s[i] = second;
	}
	memcpy(out, c->spelled[i], DATE_LEN);
	return out + DATE_LEN;
}
