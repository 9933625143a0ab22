/*
 * master/ctl.h - holdfastctl: what its files share.
 *
 * Runs in: holdfastctl, a thin HTTP client of the control socket; check and
 *          repair read a data directory instead, offline.
 *
 * Exit codes: 0 done; 1 the server said no, or something is damaged; 64 wrong
 * usage; 69 no server there, or it did not answer like one; the directory cannot be used.
 */
#ifndef MASTER_CTL_H
#define MASTER_CTL_H
#include <stdbool.h>
#include <stddef.h>

#define CTL_OK		0
#define CTL_REFUSED	1
#define CTL_USAGE	64
#define CTL_UNAVAILABLE	69

/* --- ctl.c --------------------------------------------------------------- */

/* Says how it is used and exits. */
_Noreturn void	ctl_usage(void);

/* --- ctl_http.c ------------------------------------------------------------ */

struct answer {
	int	 status;
	char	*body;		/* NUL-terminated; the caller's to free */
	size_t	 len;
};

/*
 * One request over the socket; body NULL: none.  0; -1 with errno, EPROTO for
 * an answer that is no HTTP or was cut short.
 */
int	ctl_request(const char *socket, const char *method, const char *target, const char *body,
	    struct answer *);

/* --- ctl_json.c ------------------------------------------------------------- */

/*
 * A strict reader of one JSON text, forward only: no tree, no recursion, at
 * most CTL_JSON_DEPTH levels (F36).  The first error sticks: every later call says
 * false, so a caller looks once, at ctl_json_end().
 */
#define CTL_JSON_DEPTH	64u

struct ctl_json {
	const char	*p, *end;
	unsigned	 depth;
	bool		 fresh[CTL_JSON_DEPTH];	/* nothing read yet on this level: no comma due */
	bool		 bad;
};

void	ctl_json_begin(struct ctl_json *, const char *text, size_t len);
/* Goes into the object or array that comes next; false where it is something else. */
bool	ctl_json_enter(struct ctl_json *, char open);
/* The next member's name (cut at cap), or false at the end of the object, which is left then. */
bool	ctl_json_member(struct ctl_json *, char *name, size_t cap);
/* Is there another element?  false at the end of the array, which is left then. */
bool	ctl_json_element(struct ctl_json *);
/* The first byte of the value that comes next; 0 where there is none. */
char	ctl_json_peek(struct ctl_json *);
/* A string, as UTF-8, cut at cap, control characters as '?': it is going to a terminal. */
bool	ctl_json_string(struct ctl_json *, char *out, size_t cap);
/* Any value, as it is written; *text points into the input. */
bool	ctl_json_raw(struct ctl_json *, const char **text, size_t *len);
/* Skips any value. */
bool	ctl_json_skip(struct ctl_json *);
/* All was read and nothing was wrong. */
bool	ctl_json_end(struct ctl_json *);

/* --- ctl_tenant.c, ctl_status.c ----------------------------------------------- */

/* Print what went wrong, where anything did.  The exit code. */
int	ctl_tenant(const char *socket, int argc, char *argv[]);
int	ctl_status(const char *socket, int argc, char *argv[]);
/* --- ctl_offline.c: no socket, a data directory ------------------------------- */

int	ctl_check(const char *socket, int argc, char *argv[]);
int	ctl_repair(const char *socket, int argc, char *argv[]);

/* --- ctl.c again: answers ------------------------------------------------------ */

/* Not a 2xx: prints title and detail of the problem.  CTL_REFUSED. */
int	ctl_refused(const struct answer *);
/* No answer: says why.  CTL_UNAVAILABLE. */
int	ctl_unavailable(const char *socket);

#endif
