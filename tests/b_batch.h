/*
 * tests/b_batch.h - a log in a directory of its own, batches for it, and what a scan saw.
 *
 * Runs in: tests only (b_log.c, b_scan.c).
 */
#ifndef TESTS_B_BATCH_H
#define TESTS_B_BATCH_H
#include <sys/stat.h>
#include <fcntl.h>
#include <stdio.h>
#include "shm/crc32c.h"
#include "shm/proc.h"
#include "store/segment.h"
#include "tests/unit.h"

#ifndef T_TMP
#define T_TMP		"/tmp"
#endif
#define T_SEGMENT	16384u
#define T_BATCHES	64

struct t_batch {		/* as written */
	uint64_t	batch;
	uint32_t	segment;
	uint64_t	first, end;
	uint32_t	sum;		/* of all its bytes */
};

static struct log	t_log;
static int		t_dirfd;
static char		t_path[64];
static struct t_batch	t_written[T_BATCHES];
static unsigned		t_nwritten;
static bool		t_lists;	/* begin each segment with REC_SEGMENTS, as the store does */
static bool		t_list_due;

/* --- directory ---------------------------------------------------------------- */

static inline void
t_remove(const char *name)
{
	assert_int_equal(unlinkat(t_dirfd, name, 0), 0);
}

static int
t_setup(void **state)
{
	(void)state;
	proc_become(IN_TEST, 0);
	/* thousands of syncs: in memory where there is such a place */
	snprintf(t_path, sizeof(t_path), "%s/holdfast-unit-XXXXXX", T_TMP);
	if (mkdtemp(t_path) == NULL) {
		snprintf(t_path, sizeof(t_path), "/tmp/holdfast-unit-XXXXXX");
		assert_non_null(mkdtemp(t_path));
	}
	t_dirfd = open(t_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_int_not_equal(t_dirfd, -1);
	t_nwritten = 0;
	t_lists = t_list_due = false;
	assert_int_equal(log_create(&t_log, t_dirfd, T_SEGMENT), 0);
	return 0;
}

static int
t_teardown(void **state)
{
	(void)state;
	log_close(&t_log);
	close(t_dirfd);
	t_remove_tree(t_path);
	return 0;
}

static inline void
t_reopen(void)
{
	log_close(&t_log);
	assert_int_equal(log_open(&t_log, t_dirfd, T_SEGMENT), 0);
}

static inline const char *
t_name(uint32_t number)
{
	static char	name[2][SEGMENT_NAME];
	static int	which;

	which = !which;
	segment_name(name[which], number);
	return name[which];
}

static inline bool
t_exists(const char *name)
{
	return faccessat(t_dirfd, name, F_OK, 0) == 0;
}

/* Reads or writes bytes of a segment file behind the log's back. */
static inline void
t_peek(uint32_t number, uint64_t at, void *buf, size_t len)
{
	int	fd = openat(t_dirfd, t_name(number), O_RDONLY);

	assert_int_equal(pread(fd, buf, len, (off_t)at), len);
	close(fd);
}

static inline void
t_poke(uint32_t number, uint64_t at, const void *buf, size_t len)
{
	int	fd = openat(t_dirfd, t_name(number), O_WRONLY);

	assert_int_equal(pwrite(fd, buf, len, (off_t)at), len);
	close(fd);
}

static inline void
t_flip(uint32_t number, uint64_t at)
{
	uint8_t	b;

	t_peek(number, at, &b, 1);
	b ^= 0x10;
	t_poke(number, at, &b, 1);
}

/* --- batches -------------------------------------------------------------------- */

/* Lays a record into p (zeroed, large enough); its length. */
static inline uint64_t
t_record(uint8_t *p, enum rec_kind kind, uint64_t seq, const void *body, uint32_t len)
{
	struct rec_head	*h = (struct rec_head *)(void *)p;
	char		 path[32];
	uint64_t	 front;

	*h = (struct rec_head){
		.kind = (uint8_t)kind, .body_len = len, .lane = REC_LANE_NONE, .seq = seq,
		.path_len = (uint16_t)snprintf(path, sizeof(path), "p/%llu", (unsigned long long)seq),
		.meta_len = (uint16_t)(seq % 5),
	};
	front = sizeof(*h) + h->path_len + h->meta_len;
	memcpy(h + 1, path, h->path_len);
	memset((uint8_t *)(h + 1) + h->path_len, 'm', h->meta_len);
	if (len > 0)
		memcpy(p + front, body, len);
	if (len <= SUBMIT_CHUNK)
		h->body_crc = len > 0 ? crc32c(0, body, len) : 0;
	else {
		uint8_t	*table = p + front + len + table_bytes(front, len) - 4 * body_chunks(len);

		for (uint32_t i = 0; i < body_chunks(len); i++) {
			uint32_t	at = i * SUBMIT_CHUNK, n = len - at < SUBMIT_CHUNK ? len - at : SUBMIT_CHUNK;
			uint32_t	crc = crc32c(0, (const uint8_t *)body + at, n);

			memcpy(table + 4 * i, &crc, sizeof(crc));
		}
		h->body_crc = crc32c(0, table, 4 * body_chunks(len));
	}
	h->head_crc = crc32c(0, &h->kind, sizeof(*h) - 4 + h->path_len + h->meta_len);
	return rec_bytes(h);
}

/* The commit record for `bytes` of records at p, going on from pos. */
static inline struct commit_rec
t_commit(const uint8_t *p, uint64_t bytes, const struct log_pos *pos)
{
	struct commit_rec	c = {
		.mark = t_log.mark, .batch = pos->batch + 1, .bytes = (uint32_t)bytes, .chain = pos->chain,
		.batch_crc = crc32c(0, &pos->chain, 4),
	};

	for (uint64_t at = 0; at < bytes; c.count++) {
		const struct rec_head	*h = (const struct rec_head *)(const void *)(p + at);
		uint32_t		 sums[2] = { h->head_crc, h->body_crc };

		c.batch_crc = crc32c(c.batch_crc, sums, sizeof(sums));
		at += rec_bytes(h);
	}
	c.rec_crc = crc32c(0, &c.pad, sizeof(c) - 12);
	return c;
}

static inline uint64_t
t_list(uint8_t *p)
{
	uint32_t	n[T_BATCHES], count = 0;

	for (unsigned i = 0; i + 1 < t_log.nseg; i++)
		n[count++] = t_log.seg[i].number;
	return t_record(p, REC_SEGMENTS, 0, n, 4 * count);
}

/* Writes one batch of the records in p; not synced. */
static inline void
t_write_records(const uint8_t *p, uint64_t bytes)
{
	struct commit_rec	 c = t_commit(p, bytes, &t_log.pos);
	struct t_batch		*w = &t_written[t_nwritten++];
	struct iovec		 iov[2] = { { (void *)(uintptr_t)p, bytes }, { &c, sizeof(c) } };

	assert_true(t_nwritten <= T_BATCHES);
	*w = (struct t_batch){
		.batch = c.batch, .segment = t_log.pos.segment, .first = t_log.pos.offset,
		.end = t_log.pos.offset + bytes + sizeof(c), .sum = crc32c(crc32c(0, p, bytes), &c, sizeof(c)),
	};
	assert_int_equal(log_write(&t_log, 0, iov, 2), 0);
	log_advance(&t_log, bytes, c.batch_crc);
}

/* Writes a batch of n documents of `len` bytes each, rolling on where it does not fit. */
static inline void
t_write(unsigned n, uint32_t len)
{
	uint64_t	 need = n * (uint64_t)(len + 256 + 4 * (len / SUBMIT_CHUNK)) + 512 + sizeof(struct commit_rec), at = 0;
	uint8_t		*p = calloc(1, need), *body = malloc(len + 1);
	bool		 rolled;

	assert_int_equal(log_room(&t_log, need, t_log.pos.batch * 100, &rolled), 0);
	if (rolled && t_lists)
		at += t_list(p);
	for (unsigned i = 0; i < n; i++) {
		uint64_t	seq = t_log.pos.batch * 100 + i + 1;

		for (uint32_t j = 0; j < len; j++)
			body[j] = (uint8_t)(1 + (seq * 31 + j * 7) % 255);
		at += t_record(p + at, REC_PUT, seq, body, len);
	}
	assert_true(at + sizeof(struct commit_rec) <= need);
	t_write_records(p, at);
	free(body);
	free(p);
}

/* Writes batches until segment `number` is the newest, and two into that. */
static inline void
t_fill_to(uint32_t number)
{
	while (t_log.pos.segment < number)
		t_write(3, 1000);
	t_write(2, 100);
	t_write(2, 100);
	assert_int_equal(log_sync(&t_log), 0);
}

/* --- scanning ---------------------------------------------------------------------- */

struct t_seen {
	uint64_t	batch[T_BATCHES];
	unsigned	n, records, damages;
	uint32_t	segment;	/* of the first damage */
	uint64_t	from, to;
	const char	*what;
};

static inline int
t_saw_batch(void *arg, const struct scan_batch *b)
{
	struct t_seen		*seen = arg;
	const struct t_batch	*w = NULL;
	const uint8_t		*base = log_segment(&t_log, b->segment)->map;

	for (unsigned i = 0; i < t_nwritten; i++)
		if (t_written[i].batch == b->commit->batch)
			w = &t_written[i];
	assert_non_null(w);
	assert_true(seen->n == 0 || seen->batch[seen->n - 1] < w->batch);
	assert_int_equal(b->segment, w->segment);
	assert_int_equal(b->first, w->first);
	assert_ptr_equal(b->commit, base + w->end - sizeof(*b->commit));
	seen->batch[seen->n++] = w->batch;
	return 0;
}

static inline int
t_saw_record(void *arg, const struct scan_batch *b, const struct rec_head *h, uint32_t segment, uint32_t offset)
{
	struct t_seen	*seen = arg;

	assert_int_equal(segment, b->segment);
	assert_ptr_equal(log_record(&t_log, segment, offset), h);
	seen->records++;
	return 0;
}

static inline void
t_saw_damage(void *arg, uint32_t segment, uint64_t from, uint64_t to, const char *what)
{
	struct t_seen	*seen = arg;

	assert_true(from <= to);
	if (seen->damages++ == 0) {
		seen->segment = segment;
		seen->from = from;
		seen->to = to;
		seen->what = what;
	}
}

static const struct scan_callbacks t_callbacks = { t_saw_batch, t_saw_record, t_saw_damage };

static inline enum scan_end
t_scan(const struct log_pos *from, struct t_seen *seen, struct log_pos *end)
{
	static const struct log_pos	start;

	memset(seen, 0, sizeof(*seen));
	return log_scan(&t_log, from != NULL ? from : &start, &t_callbacks, seen, end);
}

static inline bool
t_has(const struct t_seen *seen, uint64_t batch)
{
	for (unsigned i = 0; i < seen->n; i++)
		if (seen->batch[i] == batch)
			return true;
	return false;
}

/* All batches were told, but those from `lost` to `last` (0: none is missing). */
static inline void
t_all_but(const struct t_seen *seen, uint64_t lost, uint64_t last)
{
	for (unsigned i = 0; i < t_nwritten; i++) {
		uint64_t	b = t_written[i].batch;

		if (t_has(seen, b) != (lost == 0 || b < lost || b > last))
			fail_msg("batch %llu", (unsigned long long)b);
	}
}

static inline struct t_batch *
t_nth(uint64_t batch)
{
	for (unsigned i = 0; i < t_nwritten; i++)
		if (t_written[i].batch == batch)
			return &t_written[i];
	fail();
	return NULL;
}

#endif
