/*
 * worker/date.c - HTTP dates: RFC 9110 5.6.7.
 *
 * Runs in: worker.  Pure: no locale, no time zone, no clock.
 */
#include "config.h"
#include <string.h>
#include "worker/cond.h"
#include "worker/fields.h"

#define DAY_S		86400
/* 0000-01-01 and 9999-12-31 23:59:59: what four digits of year can say */
#define EARLIEST	INT64_C(-62167219200)
#define LATEST		INT64_C(253402300799)

static const char weekdays[7][10] = { "Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday" };
static const char months[12][4] = {
	"Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"
};

/*
 * Days since 1970-01-01 and back, in the proleptic Gregorian calendar.  Years
 * are counted from March, so that a leap day is the last day of its year; 400
 * of them have 146097 days.
 */
static int64_t
days_of(int64_t year, unsigned month, unsigned day)
{
	int64_t		y = year + 400 - (month <= 2);	/* not negative, for year >= 0 */
	int64_t		era = y / 400;
	unsigned	yoe = (unsigned)(y % 400);
	unsigned	doy = (153 * (month > 2 ? month - 3 : month + 9) + 2) / 5 + day - 1;

	return (era - 1) * 146097 + yoe * 365 + yoe / 4 - yoe / 100 + doy - 719468;
}

static void
civil_of(int64_t days, unsigned *year, unsigned *month, unsigned *day)
{
	uint64_t	z = (uint64_t)(days + 719468 + 146097);	/* one era up: not negative from year 0 on */
	unsigned	doe = (unsigned)(z % 146097);
	unsigned	yoe = (doe - doe / 1460 + doe / 36524 - doe / 146096) / 365;
	unsigned	doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
	unsigned	m = (5 * doy + 2) / 153;

	*day = doy - (153 * m + 2) / 5 + 1;
	*month = m < 10 ? m + 3 : m - 9;
	*year = yoe + (unsigned)(z / 146097) * 400 - 400 + (*month <= 2);
}

static void
two(char *p, unsigned v)
{
	p[0] = (char)('0' + v / 10);
	p[1] = (char)('0' + v % 10);
}

void
date_format(char *out, int64_t s)
{
	unsigned	year, month, day, sec;
	int64_t		days;

	if (s < EARLIEST)
		s = EARLIEST;
	if (s > LATEST)
		s = LATEST;
	days = s / DAY_S - (s % DAY_S < 0);
	sec = (unsigned)(s - days * DAY_S);
	civil_of(days, &year, &month, &day);
	memcpy(out, "DDD, dd MMM yyyy hh:mm:ss GMT", DATE_LEN);
	memcpy(out, weekdays[(days + 4 + 7 * INT64_C(200000)) % 7], 3);	/* 1970-01-01 was a Thursday */
	two(out + 5, day);
	memcpy(out + 8, months[month - 1], 3);
	two(out + 12, year / 100);
	two(out + 14, year % 100);
	two(out + 17, sec / 3600);
	two(out + 20, sec / 60 % 60);
	two(out + 23, sec % 60);
}

/* --- reading ----------------------------------------------------------------- */

struct moment {
	unsigned	year, month, day, hour, minute, second;
};

/* n digits at p. */
static bool
number(const char *p, unsigned n, unsigned *v)
{
	*v = 0;
	while (n-- > 0) {
		if (!byte_is(*p, B_DIGIT))
			return false;
		*v = *v * 10 + (unsigned)(*p++ - '0');
	}
	return true;
}

static bool
month_name(const char *p, unsigned *month)
{
	for (*month = 1; *month <= 12; ++*month)
		if (memcmp(p, months[*month - 1], 3) == 0)
			return true;
	return false;
}

/* n: how many bytes of the name; 0: all of it. */
static bool
weekday_name(const char *p, size_t n)
{
	unsigned	i;

	for (i = 0; i < 7; i++)
		if (memcmp(p, weekdays[i], n) == 0 && (n == 3 || weekdays[i][n] == '\0'))
			return true;
	return false;
}

/* hh:mm:ss */
static bool
clock_time(const char *p, struct moment *t)
{
	return number(p, 2, &t->hour) && p[2] == ':' && number(p + 3, 2, &t->minute) && p[5] == ':' &&
	    number(p + 6, 2, &t->second);
}

/* Sun, 06 Nov 1994 08:49:37 GMT */
static bool
imf_fixdate(const char *p, size_t len, struct moment *t)
{
	return len == DATE_LEN && weekday_name(p, 3) && p[3] == ',' && p[4] == ' ' && number(p + 5, 2, &t->day) &&
	    p[7] == ' ' && month_name(p + 8, &t->month) && p[11] == ' ' && number(p + 12, 4, &t->year) &&
	    p[16] == ' ' && clock_time(p + 17, t) && memcmp(p + 25, " GMT", 4) == 0;
}

/*
 * Sunday, 06-Nov-94 08:49:37 GMT
 *
 * Two digits of year: RFC 9110 wants the century that is at most 50 years
 * ahead, which takes a clock.  A fixed pivot instead, because nothing here
 * may depend on one that is wrong (boards without a battery): 70 is 1970, 69 is 2069.
 */
static bool
rfc850(const char *p, size_t len, struct moment *t)
{
	const char	*comma = memchr(p, ',', len);
	size_t		 n;

	if (comma == NULL)
		return false;
	n = (size_t)(comma - p);
	if (n > 9 || len != n + 24 || !weekday_name(p, n) || n == 3)
		return false;
	p = comma + 1;
	if (p[0] != ' ' || !number(p + 1, 2, &t->day) || p[3] != '-' || !month_name(p + 4, &t->month) ||
	    p[7] != '-' || !number(p + 8, 2, &t->year) || p[10] != ' ' || !clock_time(p + 11, t) ||
	    memcmp(p + 19, " GMT", 4) != 0)
		return false;
	t->year += t->year < 70 ? 2000 : 1900;
	return true;
}

/* Sun Nov  6 08:49:37 1994 */
static bool
asctime_date(const char *p, size_t len, struct moment *t)
{
	return len == 24 && weekday_name(p, 3) && p[3] == ' ' && month_name(p + 4, &t->month) && p[7] == ' ' &&
	    (p[8] == ' ' ? number(p + 9, 1, &t->day) : number(p + 8, 2, &t->day)) && p[10] == ' ' &&
	    clock_time(p + 11, t) && p[19] == ' ' && number(p + 20, 4, &t->year);
}

static bool
moment_ok(const struct moment *t)
{
	static const uint8_t	days[12] = { 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31 };
	bool			leap = t->year % 4 == 0 && (t->year % 100 != 0 || t->year % 400 == 0);

	return t->day >= 1 && t->day <= days[t->month - 1] + (t->month == 2 && leap ? 1u : 0u) &&
	    t->hour <= 23 && t->minute <= 59 && t->second <= 60;	/* 60: a leap second */
}

/* The day's name must be one, but need not be right: of the two, the date is what counts. */
bool
date_parse(const char *p, size_t len, int64_t *seconds)
{
	struct moment	t;

	if (!imf_fixdate(p, len, &t) && !rfc850(p, len, &t) && !asctime_date(p, len, &t))
		return false;
	if (!moment_ok(&t))
		return false;
	*seconds = days_of(t.year, t.month, t.day) * DAY_S + t.hour * 3600 + t.minute * 60 + t.second;
	return true;
}
