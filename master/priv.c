/*
 * master/priv.c - see master/priv.h.
 * Runs in: master.
 */
#include "config.h"
#include <sys/stat.h>
#include <bsd/string.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <string.h>
#include <unistd.h>
#include "master/priv.h"

static bool	dropping;
static uid_t	uid;
static gid_t	gid;

int
priv_begin(const struct conf *c)
{
	dropping = c->set.drop;
	uid = c->set.uid;
	gid = c->set.gid;
	if (!dropping)
		return 0;
	return initgroups(c->user, gid) == -1 || setegid(gid) == -1 ? -1 : priv_lower();
}

int
priv_raise(void)
{
	return dropping ? seteuid(0) : 0;
}

int
priv_lower(void)
{
	return dropping ? seteuid(uid) : 0;
}

int
priv_drop(void)
{
	if (!dropping)
		return 0;
	if (seteuid(0) == -1 || setgid(gid) == -1 || setuid(uid) == -1)
		return -1;
	dropping = false;
	if (setuid(0) == 0 || seteuid(0) == 0) {
		errno = EPERM;
		return -1;
	}
	return 0;
}

/* Only a directory that we just made changes hands, and never through a link. */
static int
make_one(const char *path, mode_t mode, bool theirs)
{
	int	fd, rc, saved;

	if (mkdir(path, mode) == -1)
		return -1;
	if ((fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)) == -1)
		return -1;
	rc = fchmod(fd, mode);		/* whatever the umask was */
	if (rc == 0 && theirs && dropping)
		rc = fchown(fd, uid, gid);
	saved = errno;
	close(fd);
	errno = saved;
	return rc;
}

static int
make_parents(const char *path)
{
	char	part[CONF_PATH];

	for (const char *p = strchr(path + 1, '/'); p != NULL; p = strchr(p + 1, '/')) {
		if ((size_t)(p - path) >= sizeof(part)) {
			errno = ENAMETOOLONG;
			return -1;
		}
		memcpy(part, path, (size_t)(p - path));
		part[p - path] = '\0';
		if (access(part, F_OK) == -1 && make_one(part, 0755, false) == -1 && errno != EEXIST)
			return -1;
	}
	return 0;
}

int
priv_mkdir(const char *path, mode_t mode, bool parents)
{
	int	rc = 0, saved;

	if (access(path, F_OK) == 0)
		return 0;
	if (priv_raise() == -1)
		return -1;
	if (parents)
		rc = make_parents(path);
	if (rc == 0 && make_one(path, mode, true) == -1 && errno != EEXIST)
		rc = -1;
	saved = errno;
	if (priv_lower() == -1)
		return -1;
	errno = saved;
	return rc;
}

int
priv_mkdir_of(const char *file)
{
	char	dir[CONF_PATH], *slash;

	if (strlcpy(dir, file, sizeof(dir)) >= sizeof(dir)) {
		errno = ENAMETOOLONG;
		return -1;
	}
	if ((slash = strrchr(dir, '/')) == NULL || slash == dir)
		return 0;
	*slash = '\0';
	return priv_mkdir(dir, 0755, true);
}
