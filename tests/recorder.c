/*
 * tests/recorder.c - what was done to the files of a directory, and in which order.
 *
 * Runs in: any process, through LD_PRELOAD.
 *
 *	HOLDFAST_RECORDER=FILE		the journal: made beforehand, of the size that it may
 *					grow to, zeros but for MAGIC; mapped shared
 *	HOLDFAST_RECORDER_DIR=DIR	its files are recorded: an absolute path without links
 *
 * The journal: struct head, then records, each a struct record, the names (each
 * ended by a NUL), the data, zeros up to 8.  A record's size is stored last, so
 * that the first of size 0 is the end, whoever was killed in mid-record.
 *
 * Order.  A call that changes something is made, and recorded, under one lock:
 * the journal has these in the order in which they took place.  A sync has two
 * records, one before the call and one behind it, and is made without the lock.
 * So whatever stands in front of a sync's first record was there before it
 * began.  The stamp of a record is taken in the call that it is of, after the
 * real call: whoever was told something because of this call was told it later.
 *
 * Death.  A SIGKILL from outside may fall between a call and its record, and
 * then the kernel has something that the journal has not.  So the recorder
 * kills, where the journal's head asks for it: under the lock, before, in or
 * behind a call.  A write that is killed in its middle is recorded as far as it went.
 *
 * What it cannot follow (a writable shared mapping, O_SYNC, a fallocate() of
 * another kind ...) is recorded as UNKNOWN: the test then fails.
 */
#define _GNU_SOURCE 1
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MAGIC	0x31434552u	/* "REC1" */

enum op {			/* as crash/journal.py has them */
	UNKNOWN = 1,		/* name: what it was */
	CREATE,			/* name; ino: the new file */
	WRITE,			/* ino, off, data */
	SIZE,			/* ino, off: the new size */
	ALLOCATE,		/* ino, off: the least size */
	RENAME,			/* name, name2 */
	UNLINK,			/* name */
	LINK,			/* name, name2 */
	MKDIR,			/* name */
	RMDIR,			/* name */
	SYNC_BEGIN,		/* ino; off: enum what */
	SYNC_END,		/* ino; off: enum what; of: offset of its SYNC_BEGIN; result */
	KILLED,			/* name: where */
};
enum what { SYNC_FILE, SYNC_DIR, SYNC_ALL };
enum kill {
	KILL_BEFORE = 1, KILL_IN, KILL_BEHIND,	/* a write, or another change */
	KILL_SYNC, KILL_SYNCED,			/* with its first record made; with the last */
	KILL_NAMES = 16,			/* a flag: only creates, renames, unlinks are counted */
};

struct head {
	uint32_t		magic, pad;
	_Atomic(uint64_t)	end;		/* where the next record goes */
	_Atomic(int64_t)	kill_in;	/* calls from now on; 0: nobody */
	_Atomic(uint32_t)	kill_how;	/* enum kill */
	_Atomic(uint32_t)	kills;
	uint64_t		pad2[4];
};
struct record {
	_Atomic(uint32_t)	size;
	uint16_t		op;
	uint16_t		nnames;		/* bytes of the names */
	uint64_t		stamp_ns;	/* CLOCK_MONOTONIC */
	uint64_t		ino, off, of;
	uint32_t		ndata;
	int32_t			result;
};
_Static_assert(sizeof(struct head) == 64 && sizeof(struct record) == 48, "crash/journal.py reads these");

static struct head	*journal;
static uint64_t		 room;
static char		 dir[PATH_MAX];
static size_t		 dirlen;
static pthread_mutex_t	 lock = PTHREAD_MUTEX_INITIALIZER;

#define REAL(name)							\
	static __typeof__(&name) real;					\
	if (real == NULL)						\
		*(void **)&real = dlsym(RTLD_NEXT, #name)

static _Noreturn void
give_up(const char *why)
{
	char	line[160];
	int	n = snprintf(line, sizeof(line), "recorder: %s\n", why);

	if (write(2, line, (size_t)n) == -1)
		_exit(99);
	_exit(99);
}

__attribute__((constructor))
static void
setup(void)
{
	const char	*name = getenv("HOLDFAST_RECORDER"), *d = getenv("HOLDFAST_RECORDER_DIR");
	struct stat	 st;
	int		 fd;

	if (name == NULL || d == NULL)
		return;
	dirlen = strlen(d);
	if (dirlen == 0 || dirlen >= sizeof(dir))
		give_up("HOLDFAST_RECORDER_DIR");
	memcpy(dir, d, dirlen);
	if ((fd = open(name, O_RDWR | O_CLOEXEC)) == -1 || fstat(fd, &st) == -1)
		give_up("cannot open the journal");
	room = (uint64_t)st.st_size;
	journal = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (journal == MAP_FAILED || journal->magic != MAGIC)
		give_up("cannot map the journal");
}

/* ------------------------------------------------------------------ the journal */

static uint64_t
now_ns(void)
{
	struct timespec	ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

struct note {
	enum op			 op;
	uint64_t		 ino, off, of;
	const char		*name, *name2;
	const struct iovec	*iov;
	size_t			 ndata;
	int			 result;
};

/* Returns the record's offset. */
static uint64_t
put(const struct note *n)
{
	size_t		 len1 = n->name != NULL ? strlen(n->name) + 1 : 0;
	size_t		 len2 = n->name2 != NULL ? strlen(n->name2) + 1 : 0, left = n->ndata;
	uint64_t	 size = (sizeof(struct record) + len1 + len2 + n->ndata + 7) & ~(uint64_t)7;
	/* relaxed: only room is taken; the size, stored last, publishes */
	uint64_t	 at = atomic_fetch_add_explicit(&journal->end, size, memory_order_relaxed);
	struct record	*r = (struct record *)(void *)((char *)journal + at);
	char		*p = (char *)(r + 1);

	if (at + size + sizeof(*r) > room || size > UINT32_MAX)
		give_up("the journal is full");
	r->op = (uint16_t)n->op;
	r->nnames = (uint16_t)(len1 + len2);
	r->stamp_ns = now_ns();
	r->ino = n->ino;
	r->off = n->off;
	r->of = n->of;
	r->ndata = (uint32_t)n->ndata;
	r->result = n->result;
	if (len1 != 0)
		memcpy(p, n->name, len1);
	if (len2 != 0)
		memcpy(p + len1, n->name2, len2);
	p += len1 + len2;
	for (const struct iovec *v = n->iov; left > 0; v++) {
		size_t	k = v->iov_len < left ? v->iov_len : left;

		memcpy(p, v->iov_base, k);
		p += k;
		left -= k;
	}
	/* release: all of the record; the reader comes when everybody is dead, or looks for size 0 */
	atomic_store_explicit(&r->size, (uint32_t)size, memory_order_release);
	return at;
}

static void
unknown(const char *what)
{
	put(&(struct note){ .op = UNKNOWN, .name = what });
}

/* ------------------------------------------------------------------ which files */

/* The part of an absolute path below DIR; "" is DIR itself; NULL: not ours. */
static const char *
below(const char *path)
{
	if (strncmp(path, dir, dirlen) != 0 || (path[dirlen] != '/' && path[dirlen] != '\0'))
		return NULL;
	path += dirlen;
	while (*path == '/')
		path++;
	return path;
}

static const char *
of_fd(int fd, char buf[PATH_MAX])
{
	char	link[32];
	ssize_t	n;
	int	saved = errno;

	if (journal == NULL)
		return NULL;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, buf, PATH_MAX - 1);
	errno = saved;
	if (n <= 0)
		return NULL;
	buf[n] = '\0';
	return below(buf);
}

/* A path argument below DIR, relative to it; NULL: not ours. */
static const char *
of_path(int dirfd, const char *path, char buf[PATH_MAX])
{
	char		top[PATH_MAX];
	const char	*d;

	if (journal == NULL)
		return NULL;
	if (path[0] == '/') {
		snprintf(buf, PATH_MAX, "%s", path);
		return below(buf);
	}
	if (dirfd == AT_FDCWD) {
		if (getcwd(top, sizeof(top)) == NULL || (d = below(top)) == NULL)
			return NULL;
	} else if ((d = of_fd(dirfd, top)) == NULL)
		return NULL;
	if (snprintf(buf, PATH_MAX, "%s%s%s", d, *d != '\0' ? "/" : "", path) >= PATH_MAX)
		give_up("a path is too long");
	if (strcmp(path, ".") == 0)
		return d[0] == '\0' ? "" : "?";
	return buf;
}

static uint64_t
inode(int fd)
{
	struct stat	st;
	int		saved = errno;

	if (fstat(fd, &st) == -1)
		give_up("fstat");
	errno = saved;
	return st.st_ino;
}

/* ------------------------------------------------------------------ killing */

static _Noreturn void
die(const char *where)
{
	put(&(struct note){ .op = KILLED, .name = where });
	atomic_fetch_add_explicit(&journal->kills, 1, memory_order_relaxed);
	for (;;)
		kill(getpid(), SIGKILL);
}

/* Counts a call on one of the store's files.  0, or how to die now. */
static unsigned
countdown(const char *name, bool is_name)
{
	/* relaxed: one process counts, under the lock, or in a sync: where it does not matter who dies */
	uint32_t	how = atomic_load_explicit(&journal->kill_how, memory_order_relaxed);
	int64_t		left;

	if ((how & KILL_NAMES) != 0 && !is_name)
		return 0;
	if (strncmp(name, "log-", 4) != 0 && strncmp(name, "tree-", 5) != 0 && name[0] != '\0')
		return 0;
	left = atomic_load_explicit(&journal->kill_in, memory_order_relaxed);
	if (left <= 0)
		return 0;
	atomic_store_explicit(&journal->kill_in, left - 1, memory_order_relaxed);
	return left == 1 ? how & ~(uint32_t)KILL_NAMES : 0;
}

/* Before a change that is no write. */
static unsigned
begin(const char *name, bool is_name)
{
	unsigned	how;

	pthread_mutex_lock(&lock);
	if ((how = countdown(name, is_name)) == KILL_BEFORE || how == KILL_IN)
		die("before");
	return how;
}

static void
end(unsigned how)
{
	if (how != 0)
		die("behind");
	pthread_mutex_unlock(&lock);
}

/* ------------------------------------------------------------------ writes */

static ssize_t
write_real(int fd, const struct iovec *iov, int n, off_t off)
{
	REAL(pwritev);
	return real(fd, iov, n, off);
}

/* The first half of a write: what a process may die in. */
static void
write_half(int fd, const struct iovec *iov, int n, off_t off)
{
	size_t		total = 0, half;
	ssize_t		done;
	struct iovec	cut[IOV_MAX];
	int		k = 0;

	for (int i = 0; i < n; i++)
		total += iov[i].iov_len;
	half = total - total / 3;
	for (size_t left = half; left > 0; k++) {
		cut[k] = iov[k];
		if (cut[k].iov_len > left)
			cut[k].iov_len = left;
		left -= cut[k].iov_len;
	}
	done = k > 0 ? write_real(fd, cut, k, off) : 0;
	if (done > 0)
		put(&(struct note){ .op = WRITE, .ino = inode(fd), .off = (uint64_t)off, .iov = cut, .ndata = (size_t)done });
}

static ssize_t
write_at(int fd, const char *name, const struct iovec *iov, int n, off_t off)
{
	ssize_t		done;
	unsigned	how;
	int		saved;

	if (n > IOV_MAX) {
		errno = EINVAL;
		return -1;
	}
	pthread_mutex_lock(&lock);
	if ((how = countdown(name, false)) == KILL_BEFORE)
		die("before a write");
	if (how == KILL_IN) {
		write_half(fd, iov, n, off);
		die("in a write");
	}
	done = write_real(fd, iov, n, off);
	saved = errno;
	if (done > 0)
		put(&(struct note){ .op = WRITE, .ino = inode(fd), .off = (uint64_t)off, .iov = iov, .ndata = (size_t)done });
	errno = saved;
	end(how);
	return done;
}

/* write(2) and writev(2): at the descriptor's place. */
static ssize_t
write_here(int fd, const char *name, const struct iovec *iov, int n)
{
	off_t	at = lseek(fd, 0, SEEK_CUR);
	ssize_t	done;

	if (fcntl(fd, F_GETFL) & O_APPEND)
		at = lseek(fd, 0, SEEK_END);
	if (at == -1)
		give_up("lseek");
	done = write_at(fd, name, iov, n, at);
	if (done > 0)
		(void)lseek(fd, at + done, SEEK_SET);
	return done;
}

ssize_t
write(int fd, const void *p, size_t n)
{
	REAL(write);
	char		 buf[PATH_MAX];
	const char	*name = of_fd(fd, buf);
	struct iovec	 v = { (void *)(uintptr_t)p, n };

	return name == NULL ? real(fd, p, n) : write_here(fd, name, &v, 1);
}

ssize_t
writev(int fd, const struct iovec *iov, int n)
{
	REAL(writev);
	char		 buf[PATH_MAX];
	const char	*name = of_fd(fd, buf);

	return name == NULL ? real(fd, iov, n) : write_here(fd, name, iov, n);
}

ssize_t
pwrite(int fd, const void *p, size_t n, off_t off)
{
	REAL(pwrite);
	char		 buf[PATH_MAX];
	const char	*name = of_fd(fd, buf);
	struct iovec	 v = { (void *)(uintptr_t)p, n };

	return name == NULL ? real(fd, p, n, off) : write_at(fd, name, &v, 1, off);
}

ssize_t
pwrite64(int fd, const void *p, size_t n, off64_t off)
{
	return pwrite(fd, p, n, off);
}

ssize_t
pwritev(int fd, const struct iovec *iov, int n, off_t off)
{
	REAL(pwritev);
	char		 buf[PATH_MAX];
	const char	*name = of_fd(fd, buf);

	return name == NULL ? real(fd, iov, n, off) : write_at(fd, name, iov, n, off);
}

ssize_t
pwritev64(int fd, const struct iovec *iov, int n, off64_t off)
{
	return pwritev(fd, iov, n, off);
}

ssize_t
pwritev2(int fd, const struct iovec *iov, int n, off_t off, int flags)
{
	REAL(pwritev2);
	char		 buf[PATH_MAX];
	const char	*name = of_fd(fd, buf);

	if (name != NULL && flags == 0 && off >= 0)
		return write_at(fd, name, iov, n, off);
	if (name != NULL)
		unknown("pwritev2");
	return real(fd, iov, n, off, flags);
}

ssize_t
pwritev64v2(int fd, const struct iovec *iov, int n, off64_t off, int flags)
{
	return pwritev2(fd, iov, n, off, flags);
}

/* What was copied is read back: it is what the file has now. */
ssize_t
copy_file_range(int from, off64_t *poff, int to, off64_t *qoff, size_t n, unsigned flags)
{
	REAL(copy_file_range);
	char		 buf[PATH_MAX];
	const char	*name = of_fd(to, buf);
	off_t		 at;
	ssize_t		 done;
	unsigned	 how;
	struct iovec	 v;

	if (name == NULL)
		return real(from, poff, to, qoff, n, flags);
	how = begin(name, false);
	at = qoff != NULL ? *qoff : lseek(to, 0, SEEK_CUR);
	if ((done = real(from, poff, to, qoff, n, flags)) > 0) {
		if ((v.iov_base = malloc((size_t)done)) == NULL || pread(to, v.iov_base, (size_t)done, at) != done)
			give_up("copy_file_range");
		put(&(struct note){ .op = WRITE, .ino = inode(to), .off = (uint64_t)at, .iov = &v, .ndata = (size_t)done });
		free(v.iov_base);
	}
	end(how);
	return done;
}

/* ------------------------------------------------------------------ sizes */

int
ftruncate(int fd, off_t n)
{
	REAL(ftruncate);
	char		 buf[PATH_MAX];
	const char	*name = of_fd(fd, buf);
	unsigned	 how;
	int		 rc;

	if (name == NULL)
		return real(fd, n);
	how = begin(name, false);
	if ((rc = real(fd, n)) == 0)
		put(&(struct note){ .op = SIZE, .ino = inode(fd), .off = (uint64_t)n });
	end(how);
	return rc;
}

int
ftruncate64(int fd, off64_t n)
{
	return ftruncate(fd, n);
}

static int
allocated(int fd, const char *name, int (*call)(int, off_t, off_t), off_t off, off_t n)
{
	unsigned	how = begin(name, false);
	int		rc = call(fd, off, n);

	if (rc == 0)
		put(&(struct note){ .op = ALLOCATE, .ino = inode(fd), .off = (uint64_t)(off + n) });
	end(how);
	return rc;
}

static int
plain_fallocate(int fd, off_t off, off_t n)
{
	REAL(fallocate);
	return real(fd, 0, off, n);
}

int
fallocate(int fd, int mode, off_t off, off_t n)
{
	REAL(fallocate);
	char		 buf[PATH_MAX];
	const char	*name = of_fd(fd, buf);

	if (name != NULL && mode == 0)
		return allocated(fd, name, plain_fallocate, off, n);
	/* blocks behind the end of the file are nobody's content */
	if (name != NULL && mode != FALLOC_FL_KEEP_SIZE)
		unknown("fallocate");
	return real(fd, mode, off, n);
}

int
fallocate64(int fd, int mode, off64_t off, off64_t n)
{
	return fallocate(fd, mode, off, n);
}

int
posix_fallocate(int fd, off_t off, off_t n)
{
	REAL(posix_fallocate);
	char		 buf[PATH_MAX];
	const char	*name = of_fd(fd, buf);

	return name == NULL ? real(fd, off, n) : allocated(fd, name, real, off, n);
}

int
posix_fallocate64(int fd, off64_t off, off64_t n)
{
	return posix_fallocate(fd, off, n);
}

/* ------------------------------------------------------------------ names */

static int
open_real(int dirfd, const char *path, int flags, mode_t mode)
{
	REAL(openat);
	return real(dirfd, path, flags, mode);
}

static int
open_any(int dirfd, const char *path, int flags, mode_t mode)
{
	char		 buf[PATH_MAX];
	const char	*name = (flags & (O_CREAT | O_TRUNC | O_SYNC | O_DSYNC)) != 0 ? of_path(dirfd, path, buf) : NULL;
	struct stat	 st;
	bool		 there;
	unsigned	 how;
	int		 fd, saved;

	if (name == NULL)
		return open_real(dirfd, path, flags, mode);
	if ((flags & (O_SYNC | O_DSYNC)) != 0)
		unknown("O_SYNC");
	how = begin(name, true);
	saved = errno;
	there = fstatat(dirfd, path, &st, AT_SYMLINK_NOFOLLOW) == 0;
	errno = saved;
	fd = open_real(dirfd, path, flags, mode);
	if (fd != -1 && !there)
		put(&(struct note){ .op = CREATE, .ino = inode(fd), .name = name });
	else if (fd != -1 && (flags & O_TRUNC) != 0)
		put(&(struct note){ .op = SIZE, .ino = inode(fd) });
	end(how);
	return fd;
}

#define MODE(flags, mode) do {						\
	if (((flags) & (O_CREAT | O_TMPFILE)) != 0) {			\
		va_list ap;						\
		va_start(ap, flags);					\
		mode = (mode_t)va_arg(ap, int);				\
		va_end(ap);						\
	}								\
} while (0)

int
open(const char *path, int flags, ...)
{
	mode_t	mode = 0;

	MODE(flags, mode);
	return open_any(AT_FDCWD, path, flags, mode);
}

int
open64(const char *path, int flags, ...)
{
	mode_t	mode = 0;

	MODE(flags, mode);
	return open_any(AT_FDCWD, path, flags, mode);
}

int
openat(int dirfd, const char *path, int flags, ...)
{
	mode_t	mode = 0;

	MODE(flags, mode);
	return open_any(dirfd, path, flags, mode);
}

int
openat64(int dirfd, const char *path, int flags, ...)
{
	mode_t	mode = 0;

	MODE(flags, mode);
	return open_any(dirfd, path, flags, mode);
}

int
creat(const char *path, mode_t mode)
{
	return open_any(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode);
}

int
renameat2(int d, const char *from, int e, const char *to, unsigned flags)
{
	REAL(renameat2);
	char		 buf[PATH_MAX], buf2[PATH_MAX];
	const char	*name = of_path(d, from, buf), *name2 = of_path(e, to, buf2);
	unsigned	 how;
	int		 rc;

	if (name == NULL && name2 == NULL)
		return real(d, from, e, to, flags);
	if (name == NULL || name2 == NULL || (flags & ~(unsigned)RENAME_NOREPLACE) != 0) {
		unknown("rename");
		return real(d, from, e, to, flags);
	}
	how = begin(name, true);
	if ((rc = real(d, from, e, to, flags)) == 0)
		put(&(struct note){ .op = RENAME, .name = name, .name2 = name2 });
	end(how);
	return rc;
}

int
renameat(int d, const char *from, int e, const char *to)
{
	return renameat2(d, from, e, to, 0);
}

int
rename(const char *from, const char *to)
{
	return renameat2(AT_FDCWD, from, AT_FDCWD, to, 0);
}

int
linkat(int d, const char *from, int e, const char *to, int flags)
{
	REAL(linkat);
	char		 buf[PATH_MAX], buf2[PATH_MAX];
	const char	*name = of_path(d, from, buf), *name2 = of_path(e, to, buf2);
	unsigned	 how;
	int		 rc;

	if (name2 == NULL)
		return real(d, from, e, to, flags);
	if (name == NULL) {
		unknown("link");
		return real(d, from, e, to, flags);
	}
	how = begin(name2, true);
	if ((rc = real(d, from, e, to, flags)) == 0)
		put(&(struct note){ .op = LINK, .name = name, .name2 = name2 });
	end(how);
	return rc;
}

int
link(const char *from, const char *to)
{
	return linkat(AT_FDCWD, from, AT_FDCWD, to, 0);
}

int
unlinkat(int dirfd, const char *path, int flags)
{
	REAL(unlinkat);
	char		 buf[PATH_MAX];
	const char	*name = of_path(dirfd, path, buf);
	unsigned	 how;
	int		 rc;

	if (name == NULL)
		return real(dirfd, path, flags);
	how = begin(name, true);
	if ((rc = real(dirfd, path, flags)) == 0)
		put(&(struct note){ .op = (flags & AT_REMOVEDIR) != 0 ? RMDIR : UNLINK, .name = name });
	end(how);
	return rc;
}

int
unlink(const char *path)
{
	return unlinkat(AT_FDCWD, path, 0);
}

int
rmdir(const char *path)
{
	return unlinkat(AT_FDCWD, path, AT_REMOVEDIR);
}

int
remove(const char *path)
{
	struct stat	st;

	if (lstat(path, &st) == 0 && S_ISDIR(st.st_mode))
		return rmdir(path);
	return unlink(path);
}

int
mkdirat(int dirfd, const char *path, mode_t mode)
{
	REAL(mkdirat);
	char		 buf[PATH_MAX];
	const char	*name = of_path(dirfd, path, buf);
	unsigned	 how;
	int		 rc;

	if (name == NULL)
		return real(dirfd, path, mode);
	how = begin(name, true);
	if ((rc = real(dirfd, path, mode)) == 0)
		put(&(struct note){ .op = MKDIR, .name = name });
	end(how);
	return rc;
}

int
mkdir(const char *path, mode_t mode)
{
	return mkdirat(AT_FDCWD, path, mode);
}

/* ------------------------------------------------------------------ syncs */

static int
synced(int fd, const char *name, int (*call)(int), bool all)
{
	struct stat	 st;
	struct note	 n = { .op = SYNC_BEGIN };
	unsigned	 how;
	int		 saved;

	if (fstat(fd, &st) == -1)
		give_up("fstat");
	n.ino = st.st_ino;
	n.off = all ? SYNC_ALL : S_ISDIR(st.st_mode) ? SYNC_DIR : SYNC_FILE;
	n.name = name;
	pthread_mutex_lock(&lock);
	if ((how = countdown(name, false)) == KILL_BEFORE)
		die("before a sync");
	n.of = put(&n);
	if (how == KILL_IN || how == KILL_SYNC)
		die("in a sync");
	pthread_mutex_unlock(&lock);
	n.result = call(fd);
	saved = errno;
	pthread_mutex_lock(&lock);
	n.op = SYNC_END;
	put(&n);
	if (how != 0)
		die("behind a sync");
	pthread_mutex_unlock(&lock);
	errno = saved;
	return n.result;
}

int
fsync(int fd)
{
	REAL(fsync);
	char		 buf[PATH_MAX];
	const char	*name = of_fd(fd, buf);

	return name == NULL ? real(fd) : synced(fd, name, real, false);
}

int
fdatasync(int fd)
{
	REAL(fdatasync);
	char		 buf[PATH_MAX];
	const char	*name = of_fd(fd, buf);

	return name == NULL ? real(fd) : synced(fd, name, real, false);
}

int
syncfs(int fd)
{
	REAL(syncfs);
	char		 buf[PATH_MAX];
	const char	*name = of_fd(fd, buf);

	return name == NULL ? real(fd) : synced(fd, name, real, true);
}

/* sync_file_range(2) promises nothing about a crash, and so it is not recorded. */

/* ------------------------------------------------------------------ what cannot be followed */

void *
mmap(void *at, size_t n, int prot, int flags, int fd, off_t off)
{
	REAL(mmap);
	char	buf[PATH_MAX];

	if (journal != NULL && fd != -1 && (flags & MAP_SHARED) != 0 && (prot & PROT_WRITE) != 0 &&
	    of_fd(fd, buf) != NULL)
		unknown("mmap");
	return real(at, n, prot, flags, fd, off);
}

void *
mmap64(void *at, size_t n, int prot, int flags, int fd, off64_t off)
{
	return mmap(at, n, prot, flags, fd, off);
}
