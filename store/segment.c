/*
 * store/segment.c - see store/segment.h.
 *
 * Runs in: committer, tools, tests; segment_name() and record_at() in workers, too.
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
#include "store/crashpoint.h"
#include "store/file.h"
#include "store/segment.h"

_Static_assert(sizeof(off_t) == 8, "segments may be larger than 2 GiB");

#define DIGITS	10

void
segment_name(char name[SEGMENT_NAME], uint32_t number)
{
	snprintf(name, SEGMENT_NAME, "log-%010u", number);
}

/* The number in a name log-NNNNNNNNNN followed by `tail`; 0: another kind of name. */
static uint32_t
number_of(const char *name, const char *tail)
{
	uint64_t	n = 0;

	if (strncmp(name, "log-", 4) != 0)
		return 0;
	name += 4;
	for (int i = 0; i < DIGITS; i++, name++) {
		if (*name < '0' || *name > '9')
			return 0;
		n = n * 10 + (uint64_t)(*name - '0');
	}
	return strcmp(name, tail) == 0 && n <= UINT32_MAX ? (uint32_t)n : 0;
}

/* ------------------------------------------------------------------ making */

static uint32_t
head_crc(const struct segment_head *h)
{
	struct segment_head	copy = *h;

	copy.head_crc = 0;
	return crc32c(0, &copy, sizeof(copy));
}

int
segment_zero(int fd, uint64_t from, uint64_t to)
{
	static const uint8_t	zeros[65536];

	while (from < to) {
		size_t	n = to - from < sizeof(zeros) ? (size_t)(to - from) : sizeof(zeros);

		if (file_write(fd, zeros, n, from) == -1)
			return -1;
		from += n;
	}
	return 0;
}

/* All of its blocks: a later write must neither fail for room nor need new metadata. */
static int
allocate(int fd, uint64_t bytes)
{
	int	e;

	/* glibc writes to each block where the file system has no fallocate(2) */
	do
		e = posix_fallocate(fd, 0, (off_t)bytes);
	while (e == EINTR);
	if (e == 0)
		return 0;
	errno = e;
	return -1;
}

/* The file `temp` with all of its blocks.  -1: it is not there. */
static int
make_file(int dirfd, const char *temp, uint64_t bytes, const char *spare)
{
	struct stat	st;
	int		fd, saved;

	if (unlinkat(dirfd, temp, 0) == -1 && errno != ENOENT)
		return -1;
	if (spare != NULL && renameat(dirfd, spare, dirfd, temp) == -1) {
		if (errno == ENOENT)
			errno = ENOSPC;		/* somebody took it: there is no room, and nothing broke */
		return -1;
	}
	if ((fd = openat(dirfd, temp, O_RDWR | O_CLOEXEC | O_NOFOLLOW | (spare != NULL ? 0 : O_CREAT | O_EXCL),
	    0600)) == -1)
		return -1;
	if (spare == NULL && allocate(fd, bytes) == 0)
		return fd;
	if (spare != NULL && fstat(fd, &st) == 0) {
		if (S_ISREG(st.st_mode) && (uint64_t)st.st_size == bytes)
			return fd;
		errno = ENOSPC;		/* it is not what it was */
	}
	saved = errno;
	close(fd);
	unlinkat(dirfd, temp, 0);
	errno = saved;
	return -1;
}

int
segment_create(int dirfd, struct segment_head *h, const char *spare)
{
	char	name[SEGMENT_NAME], temp[SEGMENT_NAME + 4];
	int	fd, saved;

	segment_name(name, h->number);
	snprintf(temp, sizeof(temp), "%s.new", name);
	h->magic = SEGMENT_MAGIC;
	h->version = FORMAT_VERSION;
	h->head_crc = head_crc(h);

	if ((fd = make_file(dirfd, temp, h->bytes, spare)) == -1)
		return -1;
	if (file_write(fd, h, sizeof(*h), 0) == -1)
		goto fail;
	if (fsync(fd) == -1) {
		errno = EIO;	/* whatever it says: a failed sync is no full disk (F1) */
		goto fail;
	}
	crash_point("roll-created");
	if (renameat(dirfd, temp, dirfd, name) == -1)
		goto fail;
	crash_point("roll-renamed");
	if (fsync(dirfd) == -1) {
		/*
		 * The name may be there after a crash or not.  Both are sound as
		 * long as the segment in front of it gets no more batches, so
		 * this must not pass for a full disk, after which writing goes on.
		 */
		close(fd);
		errno = EIO;
		return -1;
	}
	crash_point("roll-synced");
	return fd;
fail:
	saved = errno;
	close(fd);
	unlinkat(dirfd, temp, 0);
	errno = saved;
	return -1;
}

/* ------------------------------------------------------------------ listing */

int
segment_open(int dirfd, uint32_t number, int flags, uint64_t *size)
{
	char		name[SEGMENT_NAME];
	struct stat	st;
	int		fd;

	segment_name(name, number);
	/* a FIFO of this name must not hold us up */
	if ((fd = openat(dirfd, name, flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)) == -1) {
		if (errno == ELOOP || errno == EISDIR || errno == ENXIO)
			errno = EILSEQ;
		return -1;
	}
	if (fstat(fd, &st) == -1)
		goto fail;
	if (!S_ISREG(st.st_mode)) {
		errno = EILSEQ;
		goto fail;
	}
	*size = (uint64_t)st.st_size;
	return fd;
fail:
	fd_close(fd);
	return -1;
}

struct segment *
segment_add(struct log *l, uint32_t number)
{
	if (l->nseg == l->capseg) {
		unsigned	 cap = l->capseg != 0 ? 2 * l->capseg : 16;
		struct segment	*p = reallocarray(l->seg, cap, sizeof(*p));

		if (p == NULL)
			return NULL;
		l->seg = p;
		l->capseg = cap;
	}
	l->seg[l->nseg] = (struct segment){ .number = number, .end = SEGMENT_HEAD };
	return &l->seg[l->nseg++];
}

void
segment_remove(struct log *l, struct segment *s)
{
	segment_unmap(s);
	memmove(s, s + 1, (size_t)(&l->seg[--l->nseg] - s) * sizeof(*s));
}

static int
by_number(const void *a, const void *b)
{
	const struct segment	*x = a, *y = b;

	return (x->number > y->number) - (x->number < y->number);
}

int
segment_list(struct log *l)
{
	struct dirent	*e;
	DIR		*d;
	int		 saved;

	if ((d = file_dir(l->dirfd)) == NULL)
		return -1;
	while (errno = 0, (e = readdir(d)) != NULL) {
		uint32_t	n;

		/* one that cannot be removed is in nobody's way but segment_create()'s, which tells */
		if (number_of(e->d_name, ".new") != 0) {
			if (!l->look)
				unlinkat(l->dirfd, e->d_name, 0);
		} else if ((n = number_of(e->d_name, "")) != 0 && segment_add(l, n) == NULL)
			goto fail;
	}
	if (errno != 0)
		goto fail;
	closedir(d);
	if (l->nseg > 0)
		qsort(l->seg, l->nseg, sizeof(*l->seg), by_number);
	return 0;
fail:
	saved = errno;
	closedir(d);
	errno = saved;
	return -1;
}

/* ------------------------------------------------------------------ looking */

bool
segment_head_ok(const struct segment_head *h, uint32_t number)
{
	return h->magic == SEGMENT_MAGIC && h->version == FORMAT_VERSION && h->head_crc == head_crc(h) &&
	    h->number == number && h->bytes > SEGMENT_HEAD && h->bytes <= SEGMENT_MAX &&
	    h->first_batch != 0 && h->prev_number < number;
}

const uint8_t *
segment_map(const struct log *l, struct segment *s)
{
	uint64_t	 size;
	void		*p;
	int		 fd;

	if (s->map != NULL)
		return s->map;
	if ((fd = segment_open(l->dirfd, s->number, O_RDONLY, &size)) == -1)
		return NULL;
	/* never more than the file has: behind its end a read is a SIGBUS */
	if (size < s->bytes)
		s->bytes = size;
	if (s->bytes < SEGMENT_HEAD) {
		close(fd);
		errno = EILSEQ;
		return NULL;
	}
	p = mmap(NULL, s->bytes, PROT_READ, MAP_SHARED, fd, 0);
	fd_close(fd);
	if (p == MAP_FAILED)
		return NULL;
	s->map = p;
	s->maplen = s->bytes;
	return s->map;
}

void
segment_unmap(struct segment *s)
{
	if (s->map != NULL)
		munmap((void *)(uintptr_t)s->map, s->maplen);
	s->map = NULL;
	s->maplen = 0;
}

/* lseek(2): SEEK_DATA and SEEK_HOLE; preallocated blocks that nobody wrote to are a hole. */
uint64_t
segment_data(int fd, uint64_t size)
{
	off_t	end = 0, at = 0;

	while ((uint64_t)at < size) {
		if ((at = lseek(fd, at, SEEK_DATA)) == -1)
			return errno == ENXIO ? (uint64_t)end : size;
		if ((at = lseek(fd, at, SEEK_HOLE)) == -1)
			return size;
		end = at;
	}
	return size;
}

uint64_t
segment_extent(const struct segment *s)
{
	return s->data != 0 && s->data < s->maplen ? s->data : s->maplen;
}

const struct segment_head *
segment_head(const struct log *l, struct segment *s)
{
	const struct segment_head	*h;

	if (segment_map(l, s) == NULL)
		return NULL;
	h = (const struct segment_head *)(const void *)s->map;
	return segment_head_ok(h, s->number) && h->store_id == l->store_id && h->mark == l->mark ? h : NULL;
}

const struct rec_head *
record_at(const uint8_t *base, uint64_t limit, uint64_t at)
{
	const struct rec_head	*h;

	if (at < SEGMENT_HEAD || at % 8 != 0 || at > limit || limit - at < sizeof(*h))
		return NULL;
	h = (const struct rec_head *)(const void *)(base + at);
	if (h->kind < REC_PUT || h->kind > REC_DROP_SEGMENT ||
	    h->path_len > SUBMIT_PATH_MAX || h->meta_len > SUBMIT_META_MAX)
		return NULL;
	if (rec_bytes(h) > limit - at)
		return NULL;
	if (h->head_crc != rec_head_crc(h))
		return NULL;
	return h;
}
