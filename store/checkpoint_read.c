/*
 * store/checkpoint_read.c - see store/checkpoint.h: opening and finding.
 *
 * Runs in: committer, tools, worker (open and close).
 *
 * The head is checked here, pages when they are first looked at
 * (page_first_look): opening costs the same for any size.
 */
#include "config.h"
#include <sys/mman.h>
#include <sys/stat.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "shm/crc32c.h"
#include "shm/fd.h"
#include "shm/proc.h"
#include "store/checkpoint.h"
#include "store/file.h"
#include "store/page.h"

static int
damaged(void)
{
	errno = EILSEQ;
	return -1;
}

/* All that the head says, against itself, the name and the file's size. */
static int
head_check(const struct checkpoint_head *head, uint32_t number, uint64_t size)
{
	struct checkpoint_head	h = *head;
	uint32_t		root = h.root & ~PAGE_CHECKPOINT;

	h.head_crc = 0;
	if (h.magic != CHECKPOINT_MAGIC || h.version != CHECKPOINT_VERSION ||
	    head->head_crc != crc32c(0, &h, sizeof(h)) || h.number != number)
		return damaged();
	if (h.npages == 0 || h.npages > PAGE_CHECKPOINT || h.bytes != size ||
	    h.bytes != h.npages * PAGE_BYTES + (uint64_t)h.nsegments * sizeof(struct checkpoint_segment))
		return damaged();
	if (h.root == PAGE_NONE)
		return h.npages == 1 ? 0 : damaged();
	if (root == h.root || root == 0 || root >= h.npages)
		return damaged();
	return 0;
}

/* All n bytes at `at`: read, not looked at through the mapping, so that a bad sector is an errno. */
static int
read_all(int fd, void *buf, size_t n, uint64_t at)
{
	uint8_t	*p = buf;
	ssize_t	 r;

	while (n > 0) {
		if ((r = pread(fd, p, n, (off_t)at)) == -1) {
			if (errno == EINTR)
				continue;
			return -1;
		}
		if (r == 0)
			return damaged();	/* shorter than a moment ago */
		p += r;
		n -= (size_t)r;
		at += (uint64_t)r;
	}
	return 0;
}

static int
table_load(struct checkpoint *c, int fd)
{
	size_t	n = (size_t)c->head.nsegments * sizeof(*c->segments);

	if ((c->segments = malloc(n != 0 ? n : 1)) == NULL ||
	    read_all(fd, c->segments, n, c->head.npages * PAGE_BYTES) == -1)
		return -1;
	if (crc32c(0, c->segments, n) != c->head.table_crc)
		return damaged();
	return 0;
}

static int
file_open(struct checkpoint *c, int dirfd, uint32_t number)
{
	char		 name[32];
	struct stat	 st;
	int		 fd;

	snprintf(name, sizeof(name), "tree-%010u", number);
	if ((fd = openat(dirfd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW)) == -1)
		return -1;
	if (fstat(fd, &st) == -1)
		goto fail;
	if (!S_ISREG(st.st_mode) || st.st_size < (off_t)PAGE_BYTES) {
		errno = EILSEQ;
		goto fail;
	}
	c->maplen = (size_t)st.st_size;
	return fd;
fail:
	fd_close(fd);
	return -1;
}

/* With PAGE_REACH bytes of zero pages behind it, which are no memory. */
static uint8_t *
file_map(size_t len, int fd)
{
	uint8_t	*map = mmap(NULL, len + PAGE_REACH, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (map == MAP_FAILED)
		return NULL;
	if (mmap(map, len, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
		munmap(map, len + PAGE_REACH);
		return NULL;
	}
	return map;
}

int
checkpoint_open(struct checkpoint *c, int dirfd, uint32_t number, bool want_table)
{
	int	fd, saved;

	memset(c, 0, sizeof(*c));
	if ((fd = file_open(c, dirfd, number)) == -1)
		return -1;
	if (read_all(fd, &c->head, sizeof(c->head), 0) == -1 || head_check(&c->head, number, c->maplen) == -1)
		goto fail;
	if (want_table && table_load(c, fd) == -1)
		goto fail;
	if ((c->checked = calloc(c->head.npages / 8 + 1, 1)) == NULL)
		goto fail;
	if ((c->map = file_map(c->maplen, fd)) == NULL)
		goto fail;
	close(fd);	/* the mapping needs it no more */
	return 0;
fail:
	saved = errno;
	close(fd);
	checkpoint_close(c);
	errno = saved;
	return -1;
}

void
checkpoint_close(struct checkpoint *c)
{
	if (c->map != NULL)
		munmap(c->map, c->maplen + PAGE_REACH);
	free(c->checked);
	free(c->segments);
	memset(c, 0, sizeof(*c));
}

/* --- names ----------------------------------------------------------------------- */

/* The number in "tree-NNNNNNNNNN"; 0 where it is another name.  *tmp: it ends in .tmp. */
static uint32_t
name_number(const char *name, bool *tmp)
{
	uint64_t	n = 0;
	size_t		i;

	*tmp = false;
	if (strncmp(name, "tree-", 5) != 0)
		return 0;
	for (i = 5; i < 15; i++) {
		if (name[i] < '0' || name[i] > '9')
			return 0;
		n = n * 10 + (uint64_t)(name[i] - '0');
	}
	*tmp = strcmp(name + i, ".tmp") == 0;
	if ((name[i] != '\0' && !*tmp) || n > UINT32_MAX)
		return 0;
	return (uint32_t)n;
}

uint32_t
checkpoint_newest(int dirfd, uint32_t below)
{
	const struct dirent	*e;
	uint32_t		 n, newest = 0;
	DIR			*dir;
	bool			 tmp;

	if ((dir = file_dir(dirfd)) == NULL)
		return 0;
	while ((e = readdir(dir)) != NULL) {
		n = name_number(e->d_name, &tmp);
		if (!tmp && n > newest && (below == 0 || n < below))
			newest = n;
	}
	closedir(dir);
	return newest;
}

void
checkpoint_tidy_tmp(int dirfd)
{
	const struct dirent	*e;
	DIR			*dir;
	bool			 tmp;

	RUNS_IN(IN_COMMITTER | IN_TOOL | IN_TEST);
	if ((dir = file_dir(dirfd)) == NULL)
		return;
	while ((e = readdir(dir)) != NULL)
		if (name_number(e->d_name, &tmp) != 0 && tmp)
			(void)unlinkat(dirfd, e->d_name, 0);	/* else it is in the way of nobody */
	closedir(dir);
}

int
checkpoint_tidy(int dirfd, uint32_t keep)
{
	const struct dirent	*e;
	uint32_t		 n;
	DIR			*dir;
	bool			 tmp;
	int			 rc = 0, saved = 0;

	RUNS_IN(IN_COMMITTER | IN_TOOL | IN_TEST);
	if ((dir = file_dir(dirfd)) == NULL)
		return -1;
	while ((e = readdir(dir)) != NULL) {
		n = name_number(e->d_name, &tmp);
		if (n == 0 || (n == keep && !tmp))
			continue;
		if (unlinkat(dirfd, e->d_name, 0) == -1 && errno != ENOENT) {
			saved = errno;
			rc = -1;
		}
	}
	closedir(dir);
	if (rc == -1)
		errno = saved;
	else
		rc = fsync(dirfd);
	return rc;
}
