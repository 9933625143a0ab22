/*
 * tests/faultio.c - a broken or full disk: makes chosen calls on chosen files fail.
 *
 * Runs in: any process, through LD_PRELOAD.
 *
 *	HOLDFAST_FAULTIO=FILE	a control file of CONTROL_BYTES bytes that is
 *				mapped shared: a test writes into it at any time
 *
 * Text from the first byte on, ended by a NUL:
 *
 *	GENERATION\n			exactly 8 digits; a new number makes every process read again
 *	OP ERRNO AFTER TIMES PATTERN\n	up to RULES rules, the first that matches counts
 *
 *	OP	read (read, pread, preadv), write (write, writev, pwrite, pwritev,
 *		pwritev2), short (the same, but half of it is written and no error given), sync (fsync, fdatasync,
 *		syncfs, sync_file_range, msync has no file: not here), alloc (fallocate, ftruncate),
 *		unlink (unlink, unlinkat), send (sendfile, of the file that is sent)
 *	ERRNO	a number (5 is EIO, 28 ENOSPC)
 *	AFTER	calls that still succeed, counted over all processes from the new generation on
 *	TIMES	calls that then fail; 0: all from then on
 *	PATTERN	fnmatch(3) on the absolute path of the file
 *
 * At COUNTS_AT stand RULES 64-bit counters: calls that matched the rule, over
 * all processes; the test zeroes them before it sets the generation.
 *
 * The file is written last to first: counters, rules, generation.  Without
 * rules a call costs one load.
 */
#define _GNU_SOURCE 1
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CONTROL_BYTES	4096
#define COUNTS_AT	3840
#define RULES		16

struct rule {
	char	op[8];
	int	error;
	long	after, times;
	char	pattern[256];
};

static char		*control;
static pthread_mutex_t	 lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic(uint64_t) generation;	/* the one that rules[] is of */
static struct rule	 rules[RULES];
static unsigned		 nrules;

__attribute__((constructor))
static void
setup(void)
{
	const char	*name = getenv("HOLDFAST_FAULTIO");
	int		 fd;

	if (name == NULL || (fd = open(name, O_RDWR | O_CLOEXEC)) == -1)
		return;
	control = mmap(NULL, CONTROL_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (control == MAP_FAILED) {
		static const char	text[] = "faultio: cannot map the control file\n";

		if (write(2, text, sizeof(text) - 1) == -1)
			_exit(99);
		_exit(99);
	}
}

/* acquire: the rules were written before the generation. */
static uint64_t
current(void)
{
	return atomic_load_explicit((_Atomic(uint64_t) *)(void *)control, memory_order_acquire);
}

static void
read_rules(uint64_t now)
{
	char	 text[COUNTS_AT + 1], *line, *save = NULL;

	memcpy(text, control, COUNTS_AT);
	text[COUNTS_AT] = '\0';
	nrules = 0;
	(void)strtok_r(text, "\n", &save);
	while (nrules < RULES && (line = strtok_r(NULL, "\n", &save)) != NULL) {
		struct rule	*r = &rules[nrules];

		if (sscanf(line, "%7s %d %ld %ld %255s", r->op, &r->error, &r->after, &r->times, r->pattern) == 5)
			nrules++;
	}
	atomic_store_explicit(&generation, now, memory_order_release);
}

static bool
armed(void)
{
	return control != NULL && current() != 0;
}

/* The absolute path of an open file.  false: it has none. */
static bool
path_of(int fd, char path[PATH_MAX])
{
	char	link[32];
	ssize_t	n;
	int	saved = errno;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, path, PATH_MAX - 1);
	path[n == -1 ? 0 : n] = '\0';
	errno = saved;
	return n != -1;
}

/* The rule that a call on this path falls under and that fires now, copied to *out. */
static bool
fires_on(const char *path, const char *op, const char *op2, struct rule *out)
{
	uint64_t	 now = current();
	bool		 yes = false;
	int		 saved = errno;

	pthread_mutex_lock(&lock);
	if (now != atomic_load_explicit(&generation, memory_order_acquire))
		read_rules(now);
	for (unsigned i = 0; i < nrules; i++) {
		struct rule	*r = &rules[i];
		_Atomic(uint64_t) *counts = (_Atomic(uint64_t) *)(void *)(control + COUNTS_AT);
		long		 nth;

		if (strcmp(r->op, op) != 0 && (op2 == NULL || strcmp(r->op, op2) != 0))
			continue;
		if (fnmatch(r->pattern, path, 0) != 0)
			continue;
		/* relaxed: only counted */
		nth = (long)atomic_fetch_add_explicit(&counts[i], 1, memory_order_relaxed);
		if (nth >= r->after && (r->times == 0 || nth < r->after + r->times)) {
			*out = *r;
			yes = true;
		}
		break;
	}
	pthread_mutex_unlock(&lock);
	errno = saved;
	return yes;
}

static bool
fires(int fd, const char *op, const char *op2, struct rule *out)
{
	char	path[PATH_MAX];

	return armed() && path_of(fd, path) && fires_on(path, op, op2, out);
}

#define REAL(name)							\
	static __typeof__(&name) real;					\
	if (real == NULL)						\
		*(void **)&real = dlsym(RTLD_NEXT, #name)

/* What a firing rule does to a plain write of n bytes: -1 it fails, else how many to write. */
static ssize_t
spoil(int fd, size_t n)
{
	struct rule	r;

	if (!fires(fd, "write", "short", &r))
		return (ssize_t)n;
	if (strcmp(r.op, "short") == 0)
		return (ssize_t)(n > 1 ? n / 2 : n);
	errno = r.error;
	return -1;
}

/* The same for a vector: a short one is cut to what is left, in a copy. */
static int
spoil_v(int fd, const struct iovec *iov, int n, struct iovec *cut)
{
	size_t	total = 0;
	ssize_t	left;
	int	i;

	for (i = 0; i < n; i++) {
		total += iov[i].iov_len;
		cut[i] = iov[i];
	}
	if ((left = spoil(fd, total)) == -1)
		return -1;
	for (i = 0; i < n; i++) {
		if ((size_t)left <= cut[i].iov_len) {
			cut[i].iov_len = (size_t)left;
			return i + 1;
		}
		left -= (ssize_t)cut[i].iov_len;
	}
	return n;
}

ssize_t
write(int fd, const void *p, size_t n)
{
	REAL(write);
	ssize_t	m = spoil(fd, n);

	return m == -1 ? -1 : real(fd, p, (size_t)m);
}

ssize_t
pwrite(int fd, const void *p, size_t n, off_t off)
{
	REAL(pwrite);
	ssize_t	m = spoil(fd, n);

	return m == -1 ? -1 : real(fd, p, (size_t)m, off);
}

ssize_t
pwrite64(int fd, const void *p, size_t n, off64_t off)
{
	return pwrite(fd, p, n, off);
}

ssize_t
writev(int fd, const struct iovec *iov, int n)
{
	REAL(writev);
	struct iovec	cut[IOV_MAX];
	int		m;

	if (n < 0 || n > IOV_MAX)
		return real(fd, iov, n);
	m = spoil_v(fd, iov, n, cut);
	return m == -1 ? -1 : real(fd, cut, m);
}

ssize_t
pwritev(int fd, const struct iovec *iov, int n, off_t off)
{
	REAL(pwritev);
	struct iovec	cut[IOV_MAX];
	int		m;

	if (n < 0 || n > IOV_MAX)
		return real(fd, iov, n, off);
	m = spoil_v(fd, iov, n, cut);
	return m == -1 ? -1 : real(fd, cut, m, off);
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
	struct iovec	cut[IOV_MAX];
	int		m;

	if (n < 0 || n > IOV_MAX)
		return real(fd, iov, n, off, flags);
	m = spoil_v(fd, iov, n, cut);
	return m == -1 ? -1 : real(fd, cut, m, off, flags);
}

ssize_t
pwritev64v2(int fd, const struct iovec *iov, int n, off64_t off, int flags)
{
	return pwritev2(fd, iov, n, off, flags);
}

/* True with errno set where a rule for `op` fires. */
static bool
refused(int fd, const char *op)
{
	struct rule	r;

	if (!fires(fd, op, NULL, &r))
		return false;
	errno = r.error;
	return true;
}

ssize_t
read(int fd, void *p, size_t n)
{
	REAL(read);
	return refused(fd, "read") ? -1 : real(fd, p, n);
}

ssize_t
pread(int fd, void *p, size_t n, off_t off)
{
	REAL(pread);
	return refused(fd, "read") ? -1 : real(fd, p, n, off);
}

ssize_t
pread64(int fd, void *p, size_t n, off64_t off)
{
	return pread(fd, p, n, off);
}

ssize_t
preadv(int fd, const struct iovec *iov, int n, off_t off)
{
	REAL(preadv);
	return refused(fd, "read") ? -1 : real(fd, iov, n, off);
}

ssize_t
preadv64(int fd, const struct iovec *iov, int n, off64_t off)
{
	return preadv(fd, iov, n, off);
}

int
fsync(int fd)
{
	REAL(fsync);
	return refused(fd, "sync") ? -1 : real(fd);
}

int
fdatasync(int fd)
{
	REAL(fdatasync);
	return refused(fd, "sync") ? -1 : real(fd);
}

int
syncfs(int fd)
{
	REAL(syncfs);
	return refused(fd, "sync") ? -1 : real(fd);
}

int
sync_file_range(int fd, off64_t off, off64_t n, unsigned flags)
{
	REAL(sync_file_range);
	return refused(fd, "sync") ? -1 : real(fd, off, n, flags);
}

ssize_t
sendfile(int out, int in, off_t *off, size_t n)
{
	REAL(sendfile);
	return refused(in, "send") ? -1 : real(out, in, off, n);
}

ssize_t
sendfile64(int out, int in, off64_t *off, size_t n)
{
	return sendfile(out, in, off, n);
}

int
fallocate(int fd, int mode, off_t off, off_t n)
{
	REAL(fallocate);
	return refused(fd, "alloc") ? -1 : real(fd, mode, off, n);
}

int
fallocate64(int fd, int mode, off64_t off, off64_t n)
{
	return fallocate(fd, mode, off, n);
}

/* Returns its error, and leaves errno alone. */
int
posix_fallocate(int fd, off_t off, off_t n)
{
	REAL(posix_fallocate);
	int	saved = errno;

	if (refused(fd, "alloc")) {
		int	error = errno;

		errno = saved;
		return error;
	}
	return real(fd, off, n);
}

int
posix_fallocate64(int fd, off64_t off, off64_t n)
{
	return posix_fallocate(fd, off, n);
}

int
ftruncate(int fd, off_t n)
{
	REAL(ftruncate);
	return refused(fd, "alloc") ? -1 : real(fd, n);
}

int
ftruncate64(int fd, off64_t n)
{
	return ftruncate(fd, n);
}

/* A name below an open directory, or below the working one. */
static bool
refused_name(int dirfd, const char *name)
{
	char		path[PATH_MAX], whole[2 * PATH_MAX];
	struct rule	r;

	if (!armed())
		return false;
	if (name[0] == '/')
		snprintf(whole, sizeof(whole), "%s", name);
	else if (dirfd == AT_FDCWD ? getcwd(path, sizeof(path)) != NULL : path_of(dirfd, path))
		snprintf(whole, sizeof(whole), "%s/%s", path, name);
	else
		return false;
	if (!fires_on(whole, "unlink", NULL, &r))
		return false;
	errno = r.error;
	return true;
}

int
unlinkat(int dirfd, const char *name, int flags)
{
	REAL(unlinkat);
	return refused_name(dirfd, name) ? -1 : real(dirfd, name, flags);
}

int
unlink(const char *name)
{
	REAL(unlink);
	return refused_name(AT_FDCWD, name) ? -1 : real(name);
}
