/*
 * master/datadir.c - see master/datadir.h.
 * Runs in: master.
 */
#include "config.h"
#include <sys/file.h>
#include <sys/pidfd.h>
#include <sys/stat.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "master/conf.h"
#include "master/datadir.h"
#include "master/priv.h"
#include "shm/log.h"

#define WAIT_MS		5000
#define KILL_MS		2500
#define POLL_MS		10
#define RECORD_BYTES	4096u	/* one page: written whole or not at all, and reserved before the disk is full */
#define BOOT_ID		37u

static size_t
slurp(const char *path, char *buf, size_t cap)
{
	ssize_t	n = -1;
	int	fd;

	if ((fd = open(path, O_RDONLY | O_CLOEXEC)) != -1) {
		n = read(fd, buf, cap - 1);
		close(fd);
	}
	buf[n < 0 ? 0 : n] = '\0';
	return n < 0 ? 0 : (size_t)n;
}

/* Clock ticks from boot to the start of a process; 0: there is none. */
static uint64_t
start_time(pid_t pid)
{
	char	 path[32], stat[1024], *p;

	(void)snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	if (slurp(path, stat, sizeof(stat)) == 0 || (p = strrchr(stat, ')')) == NULL)
		return 0;	/* the name may hold blanks and brackets: count from its end */
	for (int field = 2; field < 22; field++)
		if ((p = strchr(p + 1, ' ')) == NULL)
			return 0;
	return strtoull(p + 1, NULL, 10);
}

static void
boot_id(char id[BOOT_ID])
{
	(void)slurp("/proc/sys/kernel/random/boot_id", id, BOOT_ID);
}

void
datadir_record(const struct datadir *d, const pid_t *pids, unsigned n)
{
	static bool	 told;
	char		 text[RECORD_BYTES] = "", id[BOOT_ID];
	size_t		 used;

	boot_id(id);
	used = (size_t)snprintf(text, sizeof(text), "holdfast 1 %s\n", id);
	for (unsigned i = 0; i < n && used < sizeof(text) - 48; i++)
		if (pids[i] > 0)
			used += (size_t)snprintf(text + used, sizeof(text) - used, "%d %" PRIu64 "\n",
			    (int)pids[i], start_time(pids[i]));
	/* in place and not synced: it is about processes, and those do not survive a power cut */
	if (pwrite(d->lock_fd, text, sizeof(text), 0) != (ssize_t)sizeof(text) && !told) {
		told = true;
		log_warn("cannot list the children in the lock file");
	}
}

/* Ends the process if it is still the one that was listed. */
static void
end_straggler(pid_t pid, uint64_t started)
{
	int	fd;

	/* the descriptor holds the identity while we look: between look and kill no pid can be reused */
	fd = pidfd_open(pid, 0);
	if (fd == -1 && errno == ESRCH)
		return;
	if (started == 0 || start_time(pid) != started)
		goto out;
	log_warnx("ending process %d, left behind by a dead master", (int)pid);
	if (fd != -1)
		(void)pidfd_send_signal(fd, SIGKILL, NULL, 0);
	else
		(void)kill(pid, SIGKILL);	/* a kernel before 5.3 */
out:
	if (fd != -1)
		close(fd);
}

static void
end_stragglers(int lock_fd)
{
	char	 text[RECORD_BYTES + 1], id[BOOT_ID], want[64], *p;
	ssize_t	 n;

	if ((n = pread(lock_fd, text, RECORD_BYTES, 0)) <= 0)
		return;
	text[n] = '\0';
	boot_id(id);
	(void)snprintf(want, sizeof(want), "holdfast 1 %s\n", id);
	if (strncmp(text, want, strlen(want)) != 0)
		return;		/* pids of another boot mean nothing */
	for (p = text + strlen(want); *p >= '0' && *p <= '9'; p++) {
		intmax_t	 pid = strtoimax(p, &p, 10);
		uint64_t	 started = strtoull(p, &p, 10);

		if (*p != '\n' || pid <= 1 || pid > INT32_MAX)
			return;
		end_straggler((pid_t)pid, started);
	}
}

/* 0: ours.  -1: a living master's, *holder is its pid (0 where we cannot see it), or errno. */
static int
lock_master(int fd, pid_t *holder)
{
	struct flock	l;

	for (int tries = 0; tries < 10; tries++) {
		l = (struct flock){ .l_type = F_WRLCK, .l_whence = SEEK_SET };
		if (fcntl(fd, F_SETLK, &l) == 0)
			return 0;
		if (errno != EAGAIN && errno != EACCES)
			return -1;
		if (fcntl(fd, F_GETLK, &l) == -1)
			return -1;
		if (l.l_type != F_UNLCK) {
			*holder = l.l_pid > 0 ? l.l_pid : 0;
			errno = EBUSY;
			return -1;
		}		/* released in between: again */
	}
	errno = EBUSY;
	return -1;
}

static int
lock_generation(int fd)
{
	bool	killed = false;

	for (int waited = 0; flock(fd, LOCK_EX | LOCK_NB) == -1; waited += POLL_MS) {
		if (errno != EWOULDBLOCK && errno != EINTR)
			return -1;
		if (waited == 0)
			log_info("waiting for the processes of a dead master to leave");
		if (waited >= WAIT_MS) {
			errno = EBUSY;
			return -1;
		}
		if (waited >= KILL_MS && !killed) {
			killed = true;
			end_stragglers(fd);
		}
		(void)nanosleep(&(struct timespec){ .tv_nsec = POLL_MS * 1000000l }, NULL);
	}
	return 0;
}

static int
lock_both(int fd, const char *dir, char *err, size_t errlen)
{
	pid_t	holder = 0;

	if (lock_master(fd, &holder) == -1) {
		if (errno != EBUSY)
			return conf_fail(err, errlen, "data directory %s: cannot lock: %s", dir, strerror(errno));
		if (holder == 0)
			return conf_fail(err, errlen, "data directory %s is in use by another holdfastd", dir);
		return conf_fail(err, errlen, "data directory %s is in use by holdfastd, pid %d", dir, (int)holder);
	}
	if (lock_generation(fd) == -1)
		return conf_fail(err, errlen, "data directory %s: %s", dir, errno == EBUSY ?
		    "processes of a dead holdfastd still use it and do not leave" : strerror(errno));
	return 0;
}

int
datadir_open(struct datadir *d, const char *dir, char *err, size_t errlen)
{
	struct stat	st;

	d->dir_fd = d->lock_fd = -1;
	/* the last component only: a missing parent is more likely a disk that is not mounted */
	if (priv_mkdir(dir, 0700, false) == -1 ||
	    (d->dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) == -1 || fstat(d->dir_fd, &st) == -1) {
		(void)conf_fail(err, errlen, "data directory %s: %s", dir, strerror(errno));
		goto bad;
	}
	if (st.st_uid != geteuid() && geteuid() == 0)
		log_warnx("data directory %s belongs to uid %u, and we run as root: its files will be root's",
		    dir, (unsigned)st.st_uid);
	d->lock_fd = openat(d->dir_fd, "lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (d->lock_fd == -1) {
		(void)conf_fail(err, errlen, "data directory %s: lock: %s", dir, strerror(errno));
		goto bad;
	}
	if (lock_both(d->lock_fd, dir, err, errlen) == -1)
		goto bad;
	datadir_record(d, NULL, 0);
	return 0;
bad:
	if (d->lock_fd != -1)
		close(d->lock_fd);
	if (d->dir_fd != -1)
		close(d->dir_fd);
	return -1;
}
