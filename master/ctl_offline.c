/*
 * master/ctl_offline.c - holdfastctl check, repair: on a data directory that no daemon uses.
 * Runs in: holdfastctl.
 *
 * Both take the locks a master takes (master/datadir.h), so that none starts meanwhile.
 */
#include "config.h"
#include <sys/file.h>
#include <sys/stat.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "master/ctl.h"
#include "shm/log.h"
#include "shm/proc.h"
#include "store/check.h"
#include "store/guard.h"
#include "store/repair.h"

struct place {
	const char	*dir;
	int		 fd, lock;
};

static int
cannot(const struct place *p, const char *why)
{
	(void)fprintf(stderr, "holdfastctl: %s: %s\n", p->dir, why);
	return -1;
}

/* The lock file; a store that never ran may have none, and a disk that is read-only needs none. */
static int
open_lock(const struct place *p)
{
	struct stat	st;
	int		fd = openat(p->fd, "lock", O_RDWR | O_CLOEXEC | O_NOFOLLOW);

	if (fd != -1 || errno != ENOENT)
		return fd != -1 ? fd : openat(p->fd, "lock", O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if ((fd = openat(p->fd, "lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600)) == -1)
		return -1;
	/* root must not leave one behind that the server's user cannot open */
	if (geteuid() == 0 && fstat(p->fd, &st) == 0 && fchown(fd, st.st_uid, st.st_gid) == -1) {
		close(fd);
		return -1;
	}
	return fd;
}

/* 0: ours.  -1: somebody uses it, who was named. */
static int
take_locks(const struct place *p)
{
	struct flock	l = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	char		why[80];

	/* EBADF: opened for reading only, where nobody can start either */
	if (fcntl(p->lock, F_SETLK, &l) == -1 && errno != EBADF) {
		if ((errno == EAGAIN || errno == EACCES) && fcntl(p->lock, F_GETLK, &l) == 0 && l.l_type != F_UNLCK) {
			(void)snprintf(why, sizeof(why), "in use by holdfastd, pid %d: stop it first", (int)l.l_pid);
			return cannot(p, why);
		}
		return cannot(p, errno == EAGAIN || errno == EACCES ? "in use: try again" : strerror(errno));
	}
	if (flock(p->lock, LOCK_EX | LOCK_NB) == -1)
		return cannot(p, errno == EWOULDBLOCK ?
		    "processes of holdfastd still use it: stop them first" : strerror(errno));
	return 0;
}

static int
place_open(struct place *p, const char *dir, bool write)
{
	*p = (struct place){ .dir = dir, .fd = -1, .lock = -1 };
	if ((p->fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) == -1)
		return cannot(p, strerror(errno));
	if ((p->lock = open_lock(p)) == -1 && (write || (errno != EROFS && errno != EACCES && errno != ENOENT)))
		return cannot(p, strerror(errno));
	return p->lock == -1 ? 0 : take_locks(p);
}

static void
say(void *arg, const char *line)
{
	(void)arg;
	(void)printf("%s\n", line);
	(void)fflush(stdout);
}

/* What the store's own code would log is in what it tells us. */
static void
begin(void)
{
	proc_become(IN_TOOL, 0);
	(void)log_to("/dev/null");
	guard_init(GUARD_FILL);
}

int
ctl_check(const char *socket, int argc, char *argv[])
{
	struct check_result	r;
	struct place		p;

	(void)socket;
	if (argc != 1)
		ctl_usage();
	if (place_open(&p, argv[0], false) == -1)
		return CTL_UNAVAILABLE;
	begin();
	if (check_store(p.fd, p.dir, say, NULL, &r) == -1)
		return CTL_UNAVAILABLE;
	if (check_findings(&r) != 0) {
		(void)printf("%s: %u finding%s; holdfastctl repair accepts the loss\n", p.dir, check_findings(&r),
		    log_s(check_findings(&r)));
		return CTL_REFUSED;
	}
	(void)printf("%s: no damage: %llu document%s, %llu deletion%s, %u log segment%s", p.dir,
	    (unsigned long long)r.documents, log_s(r.documents), (unsigned long long)r.deletions, log_s(r.deletions),
	    r.segments, log_s(r.segments));
	if (r.tree != 0)
		(void)printf(", checkpoint tree-%010u", r.tree);
	(void)printf("\n");
	return CTL_OK;
}

int
ctl_repair(const char *socket, int argc, char *argv[])
{
	struct place	p;

	(void)socket;
	if (argc != 1)
		ctl_usage();
	if (place_open(&p, argv[0], true) == -1)
		return CTL_UNAVAILABLE;
	begin();
	return repair_store(p.fd, p.dir, say, NULL) == 0 ? CTL_OK : CTL_REFUSED;
}
