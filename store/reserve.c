/*
 * store/reserve.c - see store/reserve.h.
 *
 * Runs in: committer.
 * Touches: the spare files, by name; the data directory.
 *
 * What dying leaves: the spares, or a log-N.new or tree-N.tmp that was one.  The
 * next start removes those and makes new spares.
 */
#include "config.h"

#include <sys/stat.h>
#include <sys/statvfs.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "shm/log.h"
#include "store/reserve.h"
#include "store/store.h"

#define TREE_MIN	((uint64_t)64 << 10)
#define TREE_MAX	((uint64_t)16 << 20)	/* of a larger tree most segments lie in front of the last checkpoint,
						   and go without a new one */

static uint64_t
up_to_page(uint64_t n)
{
	return (n + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
}

static uint64_t
log_want(const struct store *s)
{
	return up_to_page(s->log.segment_size) - PAGE_BYTES;	/* less: that is how one is known */
}

uint64_t
reserve_tree_want(const struct store *s)
{
	uint64_t	want = store_next_tree(s);

	if (s->reserve.tree_out)
		return 0;
	want += s->log.nseg * sizeof(struct checkpoint_segment) + 4 * PAGE_BYTES;	/* and interior pages */
	return up_to_page(want < TREE_MIN ? TREE_MIN : want > TREE_MAX ? TREE_MAX : want);
}

static uint64_t
size_of(const struct store *s, const char *name)
{
	struct stat	st;

	if (fstatat(s->dirfd, name, &st, AT_SYMLINK_NOFOLLOW) == -1 || !S_ISREG(st.st_mode))
		return 0;
	/* a file that was copied here may be all hole */
	return (uint64_t)st.st_blocks * 512 >= (uint64_t)st.st_size ? (uint64_t)st.st_size : 0;
}

void
reserve_tree_back(struct store *s)
{
	s->reserve.tree_bytes = size_of(s, RESERVE_TREE);
}

void
reserve_look(struct store *s)
{
	s->reserve.log_bytes = size_of(s, RESERVE_LOG);
	s->reserve.tree_bytes = size_of(s, RESERVE_TREE);
	/* of another segment size: made anew */
	if (s->reserve.log_bytes > log_want(s))
		s->reserve.log_bytes = 0;
}

void
reserve_open(struct store *s)
{
	s->reserve = (struct reserve){ 0 };
	reserve_look(s);
}

uint64_t
reserve_missing(const struct store *s)
{
	uint64_t	want = reserve_tree_want(s);

	return log_want(s) - s->reserve.log_bytes +
	    (s->reserve.tree_bytes < want ? want - s->reserve.tree_bytes : 0);
}

bool
reserve_in_use(const struct store *s)
{
	return s->log.nseg != 0 && s->log.seg[s->log.nseg - 1].bytes < s->log.segment_size;
}

const char *
reserve_for_tree(struct store *s)
{
	if (s->reserve.tree_bytes == 0)
		return NULL;
	s->reserve.out_bytes = s->reserve.tree_bytes;
	s->reserve.tree_bytes = 0;
	s->reserve.tree_out = true;
	return RESERVE_TREE;
}

/* The file, with `bytes` allocated; its size is always all of that or what it was. */
static int
allocate(struct store *s, const char *name, uint64_t bytes, int how)
{
	int	fd, e;

	if ((fd = openat(s->dirfd, name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | how, 0600)) == -1)
		return -1;
	do
		e = posix_fallocate(fd, 0, (off_t)bytes);
	while (e == EINTR);
	close(fd);
	errno = e;
	return e == 0 ? 0 : -1;
}

/* What can be had of it: a shorter one than is wanted still takes what is left in a half empty segment. */
static uint64_t
log_can(const struct store *s)
{
	struct statvfs	v;
	uint64_t	left, want = log_want(s);

	if (fstatvfs(s->dirfd, &v) == -1)
		return want;
	left = (uint64_t)v.f_bavail * v.f_frsize + s->reserve.log_bytes;
	left -= left / 64 < left ? left / 64 : 0;	/* the file system's own blocks for it */
	left = left / PAGE_BYTES * PAGE_BYTES;
	return left < want ? left : want;
}

static int
make_log(struct store *s)
{
	uint64_t	bytes = log_can(s);

	if (bytes < s->log.segment_size / 8 || bytes <= s->reserve.log_bytes) {
		errno = ENOSPC;
		return -1;
	}
	/* it must be all zeros: whatever is there under that name and not ours is not to be trusted */
	if (s->reserve.log_bytes == 0 && unlinkat(s->dirfd, RESERVE_LOG, 0) == -1 && errno != ENOENT)
		return -1;
	if (allocate(s, RESERVE_LOG, bytes, s->reserve.log_bytes == 0 ? O_EXCL : 0) == -1) {
		(void)unlinkat(s->dirfd, RESERVE_LOG, 0);
		s->reserve.log_bytes = 0;
		errno = ENOSPC;
		return -1;
	}
	s->reserve.log_bytes = bytes;
	return bytes == log_want(s) ? 0 : -1;
}

/* A bit more than is wanted now, so that this is seldom. */
static int
grow_tree(struct store *s, uint64_t want)
{
	uint64_t	most = want + want / 32 < TREE_MAX ? want + want / 32 : TREE_MAX;

	if (allocate(s, RESERVE_TREE, most, 0) == 0) {
		s->reserve.tree_bytes = most;
		return 0;
	}
	s->reserve.tree_bytes = size_of(s, RESERVE_TREE);
	return -1;
}

bool
reserve_keep(struct store *s)
{
	struct reserve	*r = &s->reserve;
	uint64_t	 want = reserve_tree_want(s);
	bool		 whole = true;

	if (s->error != ERR_NONE || s->damaged || (r->log_bytes == log_want(s) && r->tree_bytes >= want))
		return true;
	/* the smaller one first: it is what lets a larger one come free */
	if (r->tree_bytes < want && grow_tree(s, want) == -1)
		whole = false;
	if (r->log_bytes < log_want(s) && make_log(s) == -1)
		whole = false;
	if (!whole && !r->told)
		log_warnx("%s: no room for all of the reserve (%s, %s), which deletes need on a full disk", s->dir,
		    RESERVE_LOG, RESERVE_TREE);
	r->told = !whole;
	return whole;
}
