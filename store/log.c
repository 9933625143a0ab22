/*
 * store/log.c - see store/log.h: opening, writing, rolling on, removing.
 *
 * Runs in: committer, tools, tests.
 *
 * What dying leaves: in log_create() and log_room() a log-N.new, or a whole
 * new segment without a batch; in log_write() a torn tail; in log_unlink() a
 * segment that is there or not, and is dropped either way.
 */
#include "config.h"

#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shm/crc32c.h"
#include "shm/proc.h"
#include "store/crashpoint.h"
#include "store/segment.h"

#define WRITERS	(IN_COMMITTER | IN_TOOL | IN_TEST)

/* ------------------------------------------------------------------ opening */

static int
begin(struct log *l, int dirfd, uint64_t segment_size, bool look)
{
	memset(l, 0, sizeof(*l));
	l->dirfd = dirfd;
	l->look = look;
	l->fd = -1;
	l->segment_size = segment_size;
	if (segment_size < 2 * SEGMENT_HEAD || segment_size > SEGMENT_MAX) {
		errno = EINVAL;
		return -1;
	}
	return segment_list(l);
}

void
log_close(struct log *l)
{
	if (l->fd != -1)
		close(l->fd);
	for (unsigned i = 0; i < l->nseg; i++)
		segment_unmap(&l->seg[i]);
	free(l->seg);
	l->seg = NULL;
	l->nseg = l->capseg = 0;
	l->fd = -1;
}

static void
give_up(struct log *l)
{
	int	saved = errno;

	log_close(l);
	errno = saved;
}

/* Random names: nonzero, and the mark never looks like a record's head. */
static int
draw(struct log *l)
{
	uint64_t	r[2];
	uint8_t		kind = REC_COMMIT;

	if (getentropy(r, sizeof(r)) == -1)
		return -1;
	memcpy((uint8_t *)&r[1] + 4, &kind, 1);
	if (l->store_id == 0)
		l->store_id = r[0] | 1;
	if (l->mark == 0)
		l->mark = r[1];
	return 0;
}

int
log_create_from(struct log *l, int dirfd, uint64_t segment_size, const struct segment_head *first)
{
	struct segment_head	 h = *first;
	struct segment		*s;

	RUNS_IN(WRITERS);
	if (begin(l, dirfd, segment_size, false) == -1)
		goto fail;
	if (l->nseg != 0) {
		errno = EEXIST;
		goto fail;
	}
	l->store_id = h.store_id;
	l->mark = h.mark;
	if (draw(l) == -1 || (s = segment_add(l, h.number)) == NULL)
		goto fail;
	h.store_id = l->store_id;
	h.mark = l->mark;
	h.bytes = segment_size;
	if ((l->fd = segment_create(dirfd, &h, NULL)) == -1)
		goto fail;
	s->bytes = h.bytes;
	s->first_seq = h.first_seq;
	s->data = SEGMENT_HEAD;
	l->pos = (struct log_pos){
		.segment = h.number, .chain = h.chain, .offset = SEGMENT_HEAD, .batch = h.first_batch - 1,
	};
	return 0;
fail:
	give_up(l);
	return -1;
}

int
log_create(struct log *l, int dirfd, uint64_t segment_size)
{
	return log_create_from(l, dirfd, segment_size,
	    &(struct segment_head){ .number = 1, .first_seq = 1, .first_batch = 1 });
}

/*
 * What the kernel has of a segment that is not on the disk is written, and the
 * rest forgotten: after a failed sync the cache shows bytes that the disk does
 * not have, and marks them clean (F1).
 */
static int
read_anew(int fd)
{
	if (fdatasync(fd) == -1)
		return -1;
	posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);	/* a wish: not all file systems have it */
	return 0;
}

static int
fail_to_open(struct log *l, const char *what, uint32_t segment)
{
	int	error = errno;

	snprintf(l->what, sizeof(l->what), "%s log-%010u", what, segment);
	return error;
}

/* Reads one head.  true: whole.  What cannot be read or is broken: false, *error stays 0 unless it is fatal. */
static bool
read_head(struct log *l, struct segment *s, struct segment_head *h, int *error)
{
	uint64_t	size = 0;
	ssize_t		n;
	bool		newest = s == &l->seg[l->nseg - 1];
	int		fd = segment_open(l->dirfd, s->number, O_RDONLY, &size);

	if (fd == -1) {
		if (errno != EILSEQ)
			*error = fail_to_open(l, "opening", s->number);
		return false;
	}
	if (newest && !l->look && read_anew(fd) == -1)
		*error = fail_to_open(l, "sync of", s->number);
	s->bytes = size < SEGMENT_MAX ? size : SEGMENT_MAX;
	if (newest)
		s->data = segment_data(fd, s->bytes);
	do
		n = pread(fd, h, sizeof(*h), 0);
	while (n == -1 && errno == EINTR);
	close(fd);
	if (n != (ssize_t)sizeof(*h) || !segment_head_ok(h, s->number))
		return false;
	if (h->bytes < s->bytes)
		s->bytes = h->bytes;
	return true;
}

/*
 * Which store this is: what most heads say, so that one stray file does not
 * make strangers of all others; the newest where they are as many.
 */
static void
identify(struct log *l, const struct segment_head *h, unsigned n)
{
	unsigned	best = 0;

	for (unsigned i = n; i-- > 0;) {
		unsigned	same = 0;

		for (unsigned j = 0; j < n; j++)
			same += h[j].store_id == h[i].store_id && h[j].mark == h[i].mark;
		if (same > best) {
			best = same;
			l->store_id = h[i].store_id;
			l->mark = h[i].mark;
		}
		if (best > n / 2)
			return;
	}
}

/* What heads say about segments: first_seq, and of the one in front of it the end. */
static void
take_over(struct log *l, const struct segment_head *h, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		struct segment	*s = log_segment(l, h[i].number), *prev;

		if (h[i].store_id != l->store_id || h[i].mark != l->mark)
			continue;
		s->first_seq = h[i].first_seq;
		prev = log_segment(l, h[i].prev_number);
		if (prev != NULL && h[i].prev_end >= SEGMENT_HEAD && h[i].prev_end <= prev->bytes)
			prev->end = h[i].prev_end;
	}
}

/*
 * No head is whole: the records behind one lead to the first commit record, which
 * says the mark (whatever bodies may pretend).
 */
static bool
mark_of_batches(struct log *l)
{
	const struct rec_head	*h;
	struct commit_rec	 c;
	size_t			 from = offsetof(struct commit_rec, pad);

	for (unsigned i = l->nseg; i-- > 0;) {
		struct segment	*s = &l->seg[i];
		uint64_t	 at = SEGMENT_HEAD;

		if (segment_map(l, s) == NULL)
			continue;
		while ((h = record_at(s->map, s->maplen, at)) != NULL)
			at += rec_bytes(h);
		if (s->maplen - at < sizeof(c))
			continue;
		memcpy(&c, s->map + at, sizeof(c));
		if ((c.mark >> 32 & 0xff) == REC_COMMIT && c.bytes == at - SEGMENT_HEAD &&
		    c.rec_crc == crc32c(0, (const uint8_t *)&c + from, sizeof(c) - from)) {
			l->mark = c.mark;
			return true;
		}
	}
	return false;
}

int
log_open_as(struct log *l, int dirfd, uint64_t segment_size, const struct log_identity *known, bool look)
{
	struct segment_head	*h = NULL;
	unsigned		 n = 0;
	int			 error = 0;

	RUNS_IN(WRITERS);
	if (begin(l, dirfd, segment_size, look) == -1)
		goto fail;
	if (l->nseg == 0) {
		errno = ENOENT;
		goto fail;
	}
	if ((h = reallocarray(NULL, l->nseg, sizeof(*h))) == NULL)
		goto fail;
	for (unsigned i = 0; i < l->nseg && error == 0; i++)
		if (read_head(l, &l->seg[i], &h[n], &error))
			n++;
	if (error != 0) {
		errno = error;
		goto fail;
	}
	if (n != 0)
		identify(l, h, n);
	else if (known != NULL) {
		l->store_id = known->store_id;
		l->mark = known->mark;
	} else if (!mark_of_batches(l)) {
		errno = EILSEQ;
		goto fail;
	}
	take_over(l, h, n);
	free(h);
	return 0;
fail:
	give_up(l);
	free(h);
	return -1;
}

int
log_open(struct log *l, int dirfd, uint64_t segment_size)
{
	return log_open_as(l, dirfd, segment_size, NULL, false);
}

/* ------------------------------------------------------------------ looking */

struct segment *
log_segment(const struct log *l, uint32_t number)
{
	unsigned	lo = 0, hi = l->nseg;

	while (lo < hi) {
		unsigned	mid = lo + (hi - lo) / 2;

		if (l->seg[mid].number == number)
			return &l->seg[mid];
		if (l->seg[mid].number < number)
			lo = mid + 1;
		else
			hi = mid;
	}
	return NULL;
}

const struct rec_head *
log_record(struct log *l, uint32_t segment, uint32_t offset)
{
	struct segment		*s = log_segment(l, segment);
	const struct rec_head	*h;

	if (s == NULL) {
		errno = ENOENT;
		return NULL;
	}
	if (segment_map(l, s) == NULL)
		return NULL;
	if ((h = record_at(s->map, s->maplen, offset)) == NULL)
		errno = EILSEQ;
	return h;
}

/* ------------------------------------------------------------------ writing */

/* A failed write or sync is the last one (F1): whoever tries again hears the same. */
static int
fail_for_good(struct log *l, int error, const char *what, uint32_t segment)
{
	snprintf(l->what, sizeof(l->what), "%s log-%010u", what, segment);
	/* relaxed: the sync thread's word comes back to the committer through its own hand-over */
	atomic_store_explicit(&l->failed, error, memory_order_relaxed);
	errno = error;
	return -1;
}

/* The newest segment's descriptor; after log_open() it is opened with the first write or sync. */
static int
writable(struct log *l)
{
	uint64_t	size;
	int		error = atomic_load_explicit(&l->failed, memory_order_relaxed);

	if (error != 0) {
		errno = error;
		return -1;
	}
	if (l->fd == -1) {
		if (l->nseg == 0 || l->pos.segment != l->seg[l->nseg - 1].number) {
			errno = EINVAL;		/* log_cut() first */
			return -1;
		}
		l->fd = segment_open(l->dirfd, l->pos.segment, O_RDWR, &size);
	}
	return l->fd == -1 ? -1 : 0;
}

uint64_t
log_left(const struct log *l)
{
	const struct segment	*s;

	if (l->nseg == 0)
		return 0;
	s = &l->seg[l->nseg - 1];
	return l->pos.segment == s->number && l->pos.offset < s->bytes ? s->bytes - l->pos.offset : 0;
}

/* Creates the segment behind the newest. */
static int
roll(struct log *l, uint64_t bytes, uint64_t next_seq, const char *spare)
{
	const struct segment	*old = &l->seg[l->nseg - 1];
	struct segment		*s;
	struct segment_head	 h = {
		.store_id = l->store_id, .mark = l->mark, .number = old->number + 1,
		.bytes = bytes, .first_seq = next_seq, .first_batch = l->pos.batch + 1,
		.chain = l->pos.chain, .prev_number = l->pos.segment, .prev_end = l->pos.offset,
	};
	int			 fd;

	if (old->number == UINT32_MAX) {
		errno = EOVERFLOW;
		return -1;
	}
	/* before anything is changed: this may move the array */
	if ((s = segment_add(l, h.number)) == NULL)
		return -1;
	s->bytes = h.bytes;
	s->first_seq = h.first_seq;
	if ((fd = segment_create(l->dirfd, &h, spare)) == -1) {
		l->nseg--;
		return log_is_room_error(errno) ? -1 : fail_for_good(l, errno, "creation of", h.number);
	}
	if (l->fd != -1)
		close(l->fd);
	l->fd = fd;
	l->pos.segment = h.number;
	l->pos.offset = SEGMENT_HEAD;
	return 0;
}

int
log_room(struct log *l, uint64_t bytes, uint64_t next_seq, bool *rolled)
{
	uint64_t	size = l->segment_size;

	RUNS_IN(WRITERS);
	*rolled = false;
	if (writable(l) == -1)
		return -1;
	if (bytes <= log_left(l))
		return 0;
	if (bytes > SEGMENT_MAX - SEGMENT_HEAD) {
		errno = EFBIG;
		return -1;
	}
	if (bytes > size - SEGMENT_HEAD)
		size = (SEGMENT_HEAD + bytes + SEGMENT_HEAD - 1) / SEGMENT_HEAD * SEGMENT_HEAD;
	if (roll(l, size, next_seq, NULL) == -1)
		return -1;
	*rolled = true;
	return 0;
}

int
log_room_spare(struct log *l, const char *spare, uint64_t size, uint64_t bytes, uint64_t next_seq)
{
	RUNS_IN(WRITERS);
	if (writable(l) == -1)
		return -1;
	if (size < SEGMENT_HEAD || bytes > size - SEGMENT_HEAD) {
		errno = ENOSPC;
		return -1;
	}
	return roll(l, size, next_seq, spare);
}

/* Takes n written bytes out of the front of iov. */
static void
skip(struct iovec **iov, int *n, size_t done)
{
	while (*n > 0 && done >= (*iov)->iov_len) {
		done -= (*iov)->iov_len;
		(*iov)++;
		(*n)--;
	}
	if (*n > 0) {
		(*iov)->iov_base = (uint8_t *)(*iov)->iov_base + done;
		(*iov)->iov_len -= done;
	}
}

int
log_write(struct log *l, uint64_t off, struct iovec *iov, int n)
{
	uint64_t	left = log_left(l), at;
	ssize_t		done;

	RUNS_IN(WRITERS);
	if (writable(l) == -1)
		return -1;
	if (off > left)
		goto too_much;
	left -= off;
	for (int i = 0; i < n; i++) {
		if (iov[i].iov_len > left)
			goto too_much;
		left -= iov[i].iov_len;
	}
	at = l->pos.offset + off;
	crash_mid_append(l->fd, iov, n, at);
	for (skip(&iov, &n, 0); n > 0; skip(&iov, &n, (size_t)done)) {
		done = pwritev(l->fd, iov, n < IOV_MAX ? n : IOV_MAX, (off_t)at);
		if (done == -1 && errno == EINTR)
			done = 0;
		else if (done <= 0)
			return fail_for_good(l, done == 0 ? EIO : errno, "write to", l->pos.segment);
		at += (uint64_t)done;
	}
	return 0;
too_much:
	errno = EINVAL;		/* log_room() would have said so: nothing is written */
	return -1;
}

/*
 * A batch that is larger than what is written ahead has its data to sync, in any
 * case: nothing is gained.  A page at a time: what is written at once becomes one
 * large folio, and each batch in it would count as that many dirty bytes.
 */
int
log_ahead(struct log *l, uint64_t bytes)
{
	uint64_t	end = l->pos.offset + bytes, limit = l->pos.offset + log_left(l), to, next;

	RUNS_IN(WRITERS);
	if (l->ahead_segment == l->pos.segment && l->ahead >= end)
		return 0;
	l->ahead_segment = l->pos.segment;
	l->ahead = end;
	if (bytes >= LOG_AHEAD)
		return 0;
	to = end + LOG_AHEAD < limit ? end + LOG_AHEAD : limit;
	for (; l->ahead < to; l->ahead = next) {
		next = (l->ahead / PAGE_BYTES + 1) * PAGE_BYTES;
		if (segment_zero(l->fd, l->ahead, next < to ? next : to) == -1)
			/* no room, where a file system copies what is written: the batch is there, this is not needed */
			return log_is_room_error(errno) ? 0 : fail_for_good(l, errno, "write to", l->pos.segment);
	}
	l->ahead = to;
	return 0;
}

/* Does the newest segment still have a name?  Somebody may have removed it beneath us. */
int
log_still_there(struct log *l)
{
	struct stat	st;

	if (l->fd == -1 || (fstat(l->fd, &st) == 0 && st.st_nlink != 0))
		return 0;
	return fail_for_good(l, ENOENT, "somebody removed", l->pos.segment);
}

int
log_sync(struct log *l)
{
	if (writable(l) == -1)
		return -1;
	if (fdatasync(l->fd) == -1)
		return fail_for_good(l, errno, "sync of", l->pos.segment);
	return log_still_there(l);
}

void
log_advance(struct log *l, uint64_t bytes, uint32_t batch_crc)
{
	l->pos.offset += bytes + sizeof(struct commit_rec);
	l->pos.chain = batch_crc;
	l->pos.batch++;
	l->seg[l->nseg - 1].end = l->pos.offset;
	if (l->seg[l->nseg - 1].data != 0 && l->seg[l->nseg - 1].data < l->pos.offset)
		l->seg[l->nseg - 1].data = l->pos.offset;
}

int
log_unlink(struct log *l, uint32_t number)
{
	struct segment	*s = log_segment(l, number);
	char		 name[SEGMENT_NAME];

	RUNS_IN(WRITERS);
	if (s == NULL) {
		errno = ENOENT;
		return -1;
	}
	if (s == &l->seg[l->nseg - 1]) {
		errno = EINVAL;
		return -1;
	}
	segment_name(name, number);
	if (unlinkat(l->dirfd, name, 0) == -1 && errno != ENOENT)
		return -1;
	segment_remove(l, s);
	/* no sync of the directory, which takes a journal's commit: if the name comes back, it is dropped all the same */
	crash_point("drop-unlinked");
	return 0;
}

/* ------------------------------------------------------------------ cutting */

/* End of what is not zero behind `from`. */
static uint64_t
dirty_end(const struct segment *s, uint64_t from)
{
	uint64_t	to = segment_extent(s);

	while (to > from && s->map[to - 1] == 0)
		to--;
	return to;
}

/*
 * The directory is synced in any case: the names of the segment that we go on in,
 * or of a checkpoint, may be there only because a predecessor died in front of its sync.
 */
static int
unlink_behind(struct log *l, uint32_t number)
{
	char	name[SEGMENT_NAME];

	while (l->nseg > 0 && l->seg[l->nseg - 1].number > number) {
		segment_name(name, l->seg[l->nseg - 1].number);
		if (unlinkat(l->dirfd, name, 0) == -1 && errno != ENOENT)
			return -1;
		segment_remove(l, &l->seg[l->nseg - 1]);
	}
	return fsync(l->dirfd);
}

/* Zeros behind `from`, and the size that the head says; synced. */
static int
clean_tail(struct log *l, struct segment *s, uint64_t from)
{
	uint64_t	to = dirty_end(s, from), want;

	want = segment_head(l, s)->bytes;
	if (s->bytes == want && to == from)
		return 0;
	if (s->bytes < want && (errno = posix_fallocate(l->fd, 0, (off_t)want)) != 0)
		return -1;
	if (segment_zero(l->fd, from, to) == -1 || fsync(l->fd) == -1)
		return -1;
	if (s->bytes < want)
		segment_unmap(s);	/* the mapping has the old length */
	s->bytes = want;
	return 0;
}

int
log_cut(struct log *l, const struct log_pos *end)
{
	struct segment	*s = log_segment(l, end->segment);
	uint64_t	 size;
	int		 error;

	RUNS_IN(WRITERS);
	if ((error = atomic_load_explicit(&l->failed, memory_order_relaxed)) != 0) {
		errno = error;
		return -1;
	}
	if (s == NULL || end->offset < SEGMENT_HEAD || end->offset % 8 != 0 || end->offset > s->bytes) {
		errno = EINVAL;
		return -1;
	}
	for (unsigned i = 0; i < l->nseg; i++)
		if (l->seg[i].number > end->segment && l->seg[i].end > SEGMENT_HEAD) {
			errno = EINVAL;
			return -1;
		}
	if (segment_head(l, s) == NULL) {
		errno = EILSEQ;
		return -1;
	}
	if (l->fd != -1)
		close(l->fd);
	if ((l->fd = segment_open(l->dirfd, s->number, O_RDWR, &size)) == -1)
		return -1;
	if (clean_tail(l, s, end->offset) == -1 || unlink_behind(l, end->segment) == -1)
		return fail_for_good(l, errno, "cutting the tail of", s->number);
	l->pos = *end;
	s->end = end->offset;
	return 0;
}
