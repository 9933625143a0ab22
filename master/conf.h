/*
 * master/conf.h - the configuration: holdfast.conf and -o, checked.
 *
 * Runs in: master, tests.  Pure: parses buffers, opens nothing but in
 *          conf_load(), asks the system nothing but in conf_user().
 * Owns:    nothing; a struct conf is plain data and can be copied.
 *
 * One table row per key (conf.c) holds its type, default, bounds and whether a
 * change needs a restart.  Every error is one line that names where the value
 * came from ("holdfast.conf:7" or "-o workers=0") and what is wrong with it.
 *
 * Named conf and not config: in this folder "config.h" must stay what
 * configure writes.
 */
#ifndef MASTER_CONF_H
#define MASTER_CONF_H
#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include "shm/boot.h"

#define CONF_PATH	1024u	/* bytes of a path, NUL included */
#define CONF_ADDRS	12u	/* addresses per kind: two kinds and the control socket fit BOOT_LISTENERS */
#define CONF_KEYS	24u
#define CONF_ERR	1536u

union conf_addr {
	struct sockaddr		sa;
	struct sockaddr_in	in;
	struct sockaddr_in6	in6;
};

struct conf_addrs {
	unsigned	n;
	union conf_addr	a[CONF_ADDRS];
};

struct conf {
	char		  data_dir[CONF_PATH];
	char		  control_socket[CONF_PATH];
	char		  pid_file[CONF_PATH];
	char		  log[CONF_PATH];
	char		  user[64];		/* empty: stay who we are */
	struct conf_addrs listen, metrics;
	unsigned	  workers;		/* 0: auto, one per core */
	struct settings	  set;			/* uid, gid, drop: not from the file */
	/* where each value came from: 0 default, > 0 line of the file, < 0 the -(n)th -o */
	int		  where[CONF_KEYS];
	char		  name[CONF_PATH];	/* of the file, for messages */
};

/*
 * Reads the text of a file named `name` (for messages), then n overrides
 * "key=value", then fills in defaults and makes the cross checks.  `buf` need
 * not end in NUL.  0; -1 with one line in err.
 */
int	conf_parse(struct conf *, const char *name, const char *buf, size_t len,
	    char *const *overrides, unsigned n, char *err, size_t errlen);
/*
 * The same for a file on disk.  name NULL: the default file, whose absence
 * means that there is nothing in it.  Relative paths in it become absolute
 * ones, from the directory this process was in at the first call.
 */
int	conf_load(struct conf *, const char *name, char *const *overrides, unsigned n,
	    char *err, size_t errlen);
/*
 * SIGHUP: takes over from `next` what can change while running; for a changed
 * key that needs a restart calls later(key) and keeps the value.  -1 with err
 * where the mixture fails the cross checks: then *cur is as it was.
 */
int	conf_take(struct conf *cur, const struct conf *next, void (*later)(const char *key),
	    char *err, size_t errlen);
/*
 * Looks up `user`: sets set.uid and set.gid to who the server will run as, and
 * set.drop where that is not who we are now.  -1 with err: no such user, or we
 * may not become it.
 */
int	conf_user(struct conf *, char *err, size_t errlen);
/* Formats into err, for whoever reports a failed start in one line.  Returns -1. */
int	conf_fail(char *err, size_t errlen, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* "127.0.0.1:80" or "[::1]:80"; returns buf. */
const char *conf_addr_text(const union conf_addr *, char *buf, size_t len);

#endif
