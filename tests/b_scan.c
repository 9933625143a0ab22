/* tests/b_scan.c - store/log.h: log_scan(), log_cut(); L2, L3, F13. */
#include "config.h"

#define T_TMP	"/dev/shm"
#include "tests/b_batch.h"

static struct t_seen	seen;
static struct log_pos	end;

/* The file of the newest segment behind `from` is zero to its last byte, and has its size (L2). */
static void
assert_zero_behind(uint32_t number, uint64_t from)
{
	struct stat	 st;
	uint8_t		*p;

	assert_int_equal(fstatat(t_dirfd, t_name(number), &st, 0), 0);
	assert_int_equal(st.st_size, T_SEGMENT);
	p = malloc(T_SEGMENT);
	t_peek(number, 0, p, T_SEGMENT);
	for (uint64_t at = from; at < T_SEGMENT; at++)
		assert_int_equal(p[at], 0);
	free(p);
}

static void
truncate_segment(uint32_t number, uint64_t to)
{
	int	fd = openat(t_dirfd, t_name(number), O_WRONLY);

	assert_int_equal(ftruncate(fd, (off_t)to), 0);
	close(fd);
}

static void
copy_segment(uint32_t from, uint32_t to)
{
	uint8_t	*p = malloc(T_SEGMENT);

	t_peek(from, 0, p, T_SEGMENT);
	t_poke(to, 0, p, T_SEGMENT);
	free(p);
}

/* --- whole logs -------------------------------------------------------------------- */

static void
an_empty_log_ends_where_it_begins(void **state)
{
	(void)state;
	assert_int_equal(t_scan(NULL, &seen, &end), SCAN_END);
	assert_memory_equal(&end, &t_log.pos, sizeof(end));
	t_reopen();
	assert_int_equal(t_scan(NULL, &seen, &end), SCAN_END);
	assert_int_equal(end.segment, 1);
	assert_int_equal(end.offset, SEGMENT_HEAD);
	assert_int_equal(end.batch, 0);
}

static void
every_batch_of_several_segments_comes_back_after_reopening(void **state)
{
	struct log_pos	was;

	(void)state;
	for (int round = 0; round < 4; round++) {
		unsigned	records = 0;

		t_lists = round % 2 != 0;
		t_fill_to(t_log.pos.segment + 1);
		was = t_log.pos;
		t_reopen();
		assert_int_equal(t_scan(NULL, &seen, &end), SCAN_END);
		t_all_but(&seen, 0, 0);
		assert_memory_equal(&end, &was, sizeof(end));
		for (unsigned i = 0; i < t_nwritten; i++)
			records += log_segment(&t_log, t_written[i].segment)->end >= t_written[i].end;
		assert_int_equal(records, t_nwritten);
		assert_int_equal(seen.damages, 0);
		assert_int_equal(log_cut(&t_log, &end), 0);
	}
}

static void
a_scan_can_begin_behind_any_batch(void **state)
{
	struct log_pos	from[T_BATCHES];

	(void)state;
	for (unsigned i = 0; i < 20; i++) {
		t_write(2, 900);
		from[i] = t_log.pos;
	}
	assert_true(t_log.pos.segment > 2);
	t_reopen();
	for (unsigned i = 0; i < 20; i++) {
		assert_int_equal(t_scan(&from[i], &seen, &end), SCAN_END);
		assert_int_equal(seen.n, 19 - i);
		assert_int_equal(seen.records, 2 * (19 - i));
		assert_memory_equal(&end, &from[19], sizeof(end));
	}
}

static void
a_scan_from_a_place_that_is_none_is_refused_or_damage(void **state)
{
	struct log_pos	from;

	(void)state;
	t_fill_to(2);
	from = (struct log_pos){ .segment = 1, .offset = SEGMENT_HEAD + 4 };
	assert_int_equal(t_scan(&from, &seen, &end), SCAN_ERROR);
	from.offset = 8;
	assert_int_equal(t_scan(&from, &seen, &end), SCAN_ERROR);
	from.offset = (uint64_t)T_SEGMENT * 4;
	assert_int_equal(t_scan(&from, &seen, &end), SCAN_DAMAGED);
	from = (struct log_pos){ .segment = 9, .offset = SEGMENT_HEAD };
	assert_int_equal(t_scan(&from, &seen, &end), SCAN_DAMAGED);
	assert_int_equal(seen.segment, 9);
}

static void
a_batch_that_goes_on_from_another_one_is_not_taken_for_the_next(void **state)
{
	struct log_pos	from;

	(void)state;
	t_write(1, 100);
	from = t_log.pos;
	from.chain ^= 1;
	t_write(1, 100);
	assert_int_equal(t_scan(&from, &seen, &end), SCAN_DAMAGED);
	from.chain ^= 1;
	from.batch--;
	assert_int_equal(t_scan(&from, &seen, &end), SCAN_DAMAGED);
	from.batch += 9;		/* the log is behind the checkpoint: nothing there is newer */
	assert_int_equal(t_scan(&from, &seen, &end), SCAN_TORN);
	assert_int_equal(seen.n, 0);
}

static int
refuse(void *arg, const struct scan_batch *b)
{
	(void)arg, (void)b;
	errno = ENOMEM;
	return -1;
}

static void
a_callback_can_stop_the_scan(void **state)
{
	const struct scan_callbacks	cb = { .batch = refuse };
	const struct log_pos		start = { 0 };

	(void)state;
	t_write(1, 100);
	t_write(1, 100);
	assert_int_equal(log_scan(&t_log, &start, &cb, NULL, &end), SCAN_ERROR);
	assert_int_equal(errno, ENOMEM);
}

/* --- the end of the log -------------------------------------------------------------- */

/* Lays down the first n bytes of the last batch, and `behind` after them; what the scan makes of it. */
static enum scan_end
torn_at(const uint8_t *whole, uint64_t n, const uint8_t *behind, size_t behind_len)
{
	const struct t_batch	*w = &t_written[t_nwritten - 1];
	uint8_t			 buf[4096] = { 0 };

	memcpy(buf, whole, n);
	memcpy(buf + n, behind, behind_len);
	t_poke(w->segment, w->first, buf, sizeof(buf));
	return t_scan(NULL, &seen, &end);
}

static void
assert_torn_tail_is_cut(const struct log_pos *before, bool cut)
{
	t_all_but(&seen, t_written[t_nwritten - 1].batch, UINT64_MAX);
	assert_int_equal(seen.damages, 0);
	assert_memory_equal(&end, before, sizeof(end));
	if (!cut)
		return;
	assert_int_equal(log_cut(&t_log, &end), 0);
	assert_zero_behind(end.segment, end.offset);
	assert_int_equal(t_scan(NULL, &seen, &end), SCAN_END);
	assert_memory_equal(&end, before, sizeof(end));
}

static void
a_last_batch_torn_at_any_byte_is_cut_and_nothing_else(void **state)
{
	static uint8_t	whole[2048], garbage[300], zero[2048];
	struct log_pos	before;
	struct t_batch	w;
	uint64_t	len;

	(void)state;
	memset(garbage, 0xa5, sizeof(garbage));
	t_fill_to(2);
	before = t_log.pos;
	t_write(3, 200);
	w = t_written[t_nwritten - 1];
	len = w.end - w.first;
	assert_int_equal(w.segment, 2);
	assert_true(len < sizeof(whole));
	t_peek(2, w.first, whole, len);
	t_reopen();
	for (uint64_t n = 0; n < len; n++) {
		enum scan_end	e = torn_at(whole, n, zero, 0);

		if (memcmp(whole + n, zero, len - n) == 0)
			assert_int_equal(e, SCAN_END);		/* what is missing were zeros: it is whole */
		else {
			assert_int_equal(e, n == 0 ? SCAN_END : SCAN_TORN);
			assert_torn_tail_is_cut(&before, n % 61 == 3);
		}
		assert_int_equal(torn_at(whole, n, garbage, sizeof(garbage)), SCAN_TORN);
		assert_torn_tail_is_cut(&before, n % 61 == 5);
	}
	/* a sector in the middle that did not make it */
	for (uint64_t n = 0; n + 64 < len; n++) {
		uint8_t	hole[2048];

		memcpy(hole, whole, len);
		memset(hole + n, 0, 64);
		assert_int_equal(torn_at(hole, len, zero, 0), SCAN_TORN);
		assert_torn_tail_is_cut(&before, false);
	}
	assert_int_equal(torn_at(whole, len, zero, 0), SCAN_END);
	t_all_but(&seen, 0, 0);
}

static void
bytes_of_an_older_longer_write_behind_the_end_are_no_batch(void **state)
{
	static uint8_t	old[4096];
	struct log_pos	before, after;
	uint64_t	len;

	(void)state;
	t_fill_to(2);
	before = t_log.pos;
	/* the older, longer one: the same batch number, going on from the same batch */
	t_write(6, 300);
	len = t_written[t_nwritten - 1].end - before.offset;
	t_peek(2, before.offset, old, len);
	t_nwritten--;
	/* as if nobody had cut it */
	t_log.pos = before;
	t_write(1, 40);
	after = t_log.pos;
	t_poke(2, after.offset, old + (after.offset - before.offset), len - (after.offset - before.offset));
	t_reopen();
	assert_int_equal(t_scan(NULL, &seen, &end), SCAN_TORN);
	t_all_but(&seen, 0, 0);
	assert_memory_equal(&end, &after, sizeof(end));
	assert_int_equal(log_cut(&t_log, &end), 0);
	assert_zero_behind(2, after.offset);
	/* and a whole one, directly behind: it does not go on from here */
	t_poke(2, after.offset, old, len);
	t_reopen();
	assert_int_equal(t_scan(NULL, &seen, &end), SCAN_TORN);
	t_all_but(&seen, 0, 0);
	assert_memory_equal(&end, &after, sizeof(end));
}

static void
a_broken_body_in_a_last_batch_that_nothing_follows_makes_it_torn(void **state)
{
	struct log_pos	before;
	struct t_batch	w;

	(void)state;
	t_write(1, 100);
	before = t_log.pos;
	t_write(3, 500);
	w = t_written[t_nwritten - 1];
	t_flip(1, w.end - sizeof(struct commit_rec) - 100);
	assert_int_equal(t_scan(NULL, &seen, &end), SCAN_TORN);
	assert_int_equal(log_segment(&t_log, 1)->end, before.offset);
	assert_torn_tail_is_cut(&before, true);
}

static void
a_broken_body_in_a_batch_that_was_synced_costs_only_its_document(void **state)
{
	struct t_batch	w, next;
	uint8_t		zero[8] = { 0 };

	(void)state;
	t_write(1, 100);
	t_write(3, 500);
	w = t_written[t_nwritten - 1];
	t_write(1, 100);
	next = t_written[t_nwritten - 1];
	t_flip(1, w.end - sizeof(struct commit_rec) - 100);
	assert_int_equal(t_scan(NULL, &seen, &end), SCAN_END);
	t_all_but(&seen, 0, 0);
	/* its successor was only begun: that it was begun says that ours was synced (L1) */
	t_poke(1, next.end - sizeof(zero), zero, sizeof(zero));
	assert_int_equal(t_scan(NULL, &seen, &end), SCAN_TORN);
	t_all_but(&seen, next.batch, next.batch);
	assert_int_equal(end.offset, next.first);
}

static void
a_broken_body_in_front_of_a_new_segment_costs_only_its_document(void **state)
{
	struct t_batch	w;
	bool		rolled;

	(void)state;
	t_write(3, 500);
	w = t_written[t_nwritten - 1];
	assert_int_equal(log_room(&t_log, T_SEGMENT - SEGMENT_HEAD, 1, &rolled), 0);
	assert_true(rolled);
	t_flip(1, w.end - sizeof(struct commit_rec) - 100);
	t_reopen();
	assert_int_equal(t_scan(NULL, &seen, &end), SCAN_END);
	t_all_but(&seen, 0, 0);
	assert_int_equal(end.segment, 2);
	assert_int_equal(end.offset, SEGMENT_HEAD);
}

static void
a_segment_filled_to_its_last_byte_ends_cleanly(void **state)
{
	static uint8_t	body[T_SEGMENT], p[T_SEGMENT];
	uint64_t	need = T_SEGMENT - SEGMENT_HEAD - sizeof(struct commit_rec);
	uint32_t	len = (uint32_t)need - 200;

	(void)state;
	memset(body, 'x', sizeof(body));
	while (t_record(p, REC_PUT, 1, body, len) < need)
		len++;
	assert_int_equal(t_record(p, REC_PUT, 1, body, len), need);
	t_write_records(p, need);
	assert_int_equal(log_left(&t_log), 0);
	t_reopen();
	assert_int_equal(t_scan(NULL, &seen, &end), SCAN_END);
	t_all_but(&seen, 0, 0);
	assert_int_equal(end.offset, T_SEGMENT);
	assert_int_equal(log_cut(&t_log, &end), 0);
	t_write(1, 100);
	assert_int_equal(t_log.pos.segment, 2);
	t_reopen();
	assert_int_equal(t_scan(NULL, &seen, &end), SCAN_END);
	t_all_but(&seen, 0, 0);
}

static void
rubbish_in_the_unused_end_of_a_left_segment_is_nobodys_loss(void **state)
{
	(void)state;
	t_fill_to(2);
	assert_true(log_segment(&t_log, 1)->end < T_SEGMENT);
	t_flip(1, T_SEGMENT - 1);
	t_flip(1, log_segment(&t_log, 1)->end);
	assert_int_equal(t_scan(NULL, &seen, &end), SCAN_END);
	t_all_but(&seen, 0, 0);
}

/* --- damage ---------------------------------------------------------------------------- */

/* Is this byte of a batch under a checksum that a scan looks at: not body, table, padding. */
static bool
is_checked(const struct t_batch *w, uint64_t at)
{
	uint64_t	rec = w->first;

	while (rec + sizeof(struct commit_rec) < w->end) {
		const struct rec_head	*h = log_record(&t_log, w->segment, (uint32_t)rec);

		if (at < rec + rec_bytes(h))
			return at < rec + sizeof(*h) + h->path_len + h->meta_len;
		rec += rec_bytes(h);
	}
	return true;
}

static void
damage_in_any_byte_of_a_middle_batch_loses_that_batch_alone(void **state)
{
	static bool	checked[2048];
	struct t_batch	w;
	struct log_pos	was;
	bool		two_flips;

	(void)state;
	t_fill_to(2);
	t_write(3, 100);
	w = t_written[t_nwritten - 1];
	t_write(2, 100);
	t_fill_to(3);
	was = t_log.pos;
	t_reopen();
	assert_int_equal(w.segment, 2);
	for (uint64_t at = w.first; at < w.end; at++)
		checked[at - w.first] = is_checked(&w, at);
	for (uint64_t at = w.first; at < w.end; at++) {
		t_flip(2, at);
		two_flips = at + 40 < w.end && at % 3 == 0;
		if (two_flips)
			t_flip(2, at + 40);
		if (checked[at - w.first] || (two_flips && checked[at + 40 - w.first])) {
			assert_int_equal(t_scan(NULL, &seen, &end), SCAN_DAMAGED);
			t_all_but(&seen, w.batch, w.batch);
			assert_int_equal(seen.damages, 1);
			assert_int_equal(seen.segment, 2);
			assert_int_equal(seen.from, w.first);
			assert_int_equal(seen.to, w.end);
		} else {
			assert_int_equal(t_scan(NULL, &seen, &end), SCAN_END);
			t_all_but(&seen, 0, 0);
		}
		assert_memory_equal(&end, &was, sizeof(end));
		t_flip(2, at);
		if (two_flips)
			t_flip(2, at + 40);
	}
	assert_int_equal(t_scan(NULL, &seen, &end), SCAN_END);
}

static void
zeros_in_place_of_any_middle_batch_lose_that_batch_alone(void **state)
{
	static uint8_t	zero[T_SEGMENT], save[T_SEGMENT];

	(void)state;
	t_fill_to(4);
	t_reopen();
	for (unsigned i = 0; i + 1 < t_nwritten; i++) {
		struct t_batch	w = t_written[i];

		t_peek(w.segment, w.first, save, w.end - w.first);
		t_poke(w.segment, w.first, zero, w.end - w.first);
		assert_int_equal(t_scan(NULL, &seen, &end), SCAN_DAMAGED);
		t_all_but(&seen, w.batch, w.batch);
		assert_int_equal(seen.damages, 1);
		assert_int_equal(seen.segment, w.segment);
		assert_int_equal(seen.from, w.first);
		assert_int_equal(seen.to, w.end);
		t_poke(w.segment, w.first, save, w.end - w.first);
	}
}

static void
two_damaged_places_are_told_apart(void **state)
{
	(void)state;
	t_fill_to(3);
	t_flip(t_nth(2)->segment, t_nth(2)->first);
	t_flip(t_nth(5)->segment, t_nth(5)->first);
	assert_int_equal(t_scan(NULL, &seen, &end), SCAN_DAMAGED);
	assert_int_equal(seen.damages, 2);
	assert_int_equal(seen.n, t_nwritten - 2);
	assert_false(t_has(&seen, 2));
	assert_false(t_has(&seen, 5));
}

static void
a_damaged_batch_at_the_end_of_a_left_segment_is_no_torn_tail(void **state)
{
	uint64_t	last = 0;
	bool		rolled;

	(void)state;
	t_write(2, 100);
	t_write(2, 100);
	last = t_log.pos.batch;
	assert_int_equal(log_room(&t_log, T_SEGMENT - SEGMENT_HEAD, 1, &rolled), 0);
	t_flip(1, t_nth(last)->first);
	/* the new segment is empty: its head alone says that the batch was whole once */
	t_reopen();
	assert_int_equal(t_scan(NULL, &seen, &end), SCAN_DAMAGED);
	t_all_but(&seen, last, last);
	assert_int_equal(seen.from, t_nth(last)->first);
	assert_int_equal(seen.to, t_nth(last)->end);
	assert_int_equal(end.segment, 2);
}

static void
damage_and_a_torn_tail_together_are_damage_and_the_tail_is_still_cut(void **state)
{
	struct log_pos	before;

	(void)state;
	t_fill_to(2);
	before = t_log.pos;
	t_write(2, 100);
	t_flip(1, t_nth(1)->first);
	t_flip(2, t_written[t_nwritten - 1].first);
	assert_int_equal(t_scan(NULL, &seen, &end), SCAN_DAMAGED);
	assert_int_equal(seen.n, t_nwritten - 2);
	assert_memory_equal(&end, &before, sizeof(end));
	assert_int_equal(log_cut(&t_log, &end), 0);
	assert_zero_behind(2, before.offset);
}

static void
a_copy_of_a_commit_record_in_a_body_is_no_batch(void **state)
{
	static uint8_t	body[2048], p[4096];
	struct t_batch	older;
	uint64_t	n;

	(void)state;
	t_write(2, 100);
	older = t_written[t_nwritten - 1];
	/* 8-aligned in the file at every place that counts: the search looks there */
	t_write(1, 40);
	for (int shift = 0; shift < 8; shift++) {
		memset(body, 0, sizeof(body));
		t_peek(1, older.first, body + shift, older.end - older.first);
		memset(p, 0, sizeof(p));
		n = t_record(p, REC_PUT, 7, body, sizeof(body));
		t_write_records(p, n);
		if (t_log.pos.offset + 4096 > T_SEGMENT)
			break;
	}
	assert_int_equal(t_scan(NULL, &seen, &end), SCAN_END);
	t_all_but(&seen, 0, 0);
	/* and when the search does walk over the body */
	t_flip(1, t_nth(3)->first);
	assert_int_equal(t_scan(NULL, &seen, &end), SCAN_DAMAGED);
	t_all_but(&seen, 3, 3);
	t_flip(1, t_nth(3)->first);
	t_flip(1, t_written[t_nwritten - 1].first);
	assert_int_equal(t_scan(NULL, &seen, &end), SCAN_TORN);
	t_all_but(&seen, t_nwritten, t_nwritten);
}

/* A commit record whose own checksum is right but whose batch is not there. */
static void
a_forged_commit_record_leads_nowhere(void **state)
{
	static const uint32_t	bytes[] = { 0, 8, 48, 4096, 65536, UINT32_MAX, UINT32_MAX - 7, 13 };

	(void)state;
	t_write(2, 100);
	for (size_t i = 0; i < sizeof(bytes) / sizeof(bytes[0]); i++) {
		struct commit_rec	c = {
			.mark = t_log.mark, .batch = 99, .bytes = bytes[i], .count = 1,
		};
		uint64_t		at = t_log.pos.offset;

		c.rec_crc = crc32c(0, &c.pad, sizeof(c) - 12);
		t_poke(1, at, &c, sizeof(c));
		t_reopen();	/* what others wrote is looked for then */
		assert_int_equal(t_scan(NULL, &seen, &end), SCAN_TORN);
		t_poke(1, at + 512, &c, sizeof(c));
		t_reopen();
		assert_int_equal(t_scan(NULL, &seen, &end), SCAN_TORN);
		assert_int_equal(seen.n, 1);
		assert_int_equal(log_cut(&t_log, &end), 0);
	}
}

/* A sector of another write, itself whole, in the middle of a batch; counts that do not fit what is there. */
static void
a_batch_of_the_wrong_records_is_none(void **state)
{
	static uint8_t		p[512], save[512], body[100];
	struct t_batch		w;
	struct commit_rec	c, whole;
	uint64_t		n;

	(void)state;
	t_write(1, 100);
	t_write(3, 100);
	w = t_written[t_nwritten - 1];
	t_write(1, 100);
	n = rec_bytes(log_record(&t_log, 1, (uint32_t)w.first));
	memset(body, 'z', sizeof(body));
	assert_int_equal(t_record(p, REC_PUT, 102, body, sizeof(body)), n);
	t_peek(1, w.first + n, save, n);
	t_poke(1, w.first + n, p, n);		/* in place of the second of the three */
	assert_non_null(log_record(&t_log, 1, (uint32_t)(w.first + n)));
	assert_int_equal(t_scan(NULL, &seen, &end), SCAN_DAMAGED);
	t_all_but(&seen, w.batch, w.batch);
	t_poke(1, w.first + n, save, n);

	w = t_written[t_nwritten - 1];
	t_peek(1, w.end - sizeof(c), &whole, sizeof(whole));
	for (int i = 0; i < 3; i++) {
		c = whole;
		c.bytes += i == 0 ? 8 : 0;
		c.count += i == 1;
		c.chain += i == 2;
		c.rec_crc = crc32c(0, &c.pad, sizeof(c) - 12);
		t_poke(1, w.end - sizeof(c), &c, sizeof(c));
		assert_int_equal(t_scan(NULL, &seen, &end), SCAN_TORN);
		t_all_but(&seen, w.batch, w.batch);
		assert_int_equal(end.offset, w.first);
	}
}

/* --- heads and whole files --------------------------------------------------------------- */

static void
a_damaged_head_costs_no_batch(void **state)
{
	(void)state;
	t_fill_to(3);
	for (uint32_t number = 1; number <= 3; number++)
		for (uint64_t at = 0; at < sizeof(struct segment_head); at++) {
			t_flip(number, at);
			if (at % 16 == 0)
				t_reopen();
			assert_int_equal(t_scan(NULL, &seen, &end), SCAN_DAMAGED);
			assert_int_equal(seen.damages, 1);
			assert_int_equal(seen.segment, number);
			assert_int_equal(seen.from, 0);
			t_all_but(&seen, 0, 0);
			t_flip(number, at);
		}
	t_reopen();
	assert_int_equal(t_scan(NULL, &seen, &end), SCAN_END);
}

static void
a_damaged_head_of_an_empty_last_segment_is_damage_that_a_cut_heals(void **state)
{
	struct log_pos	before;
	bool		rolled;

	(void)state;
	t_write(2, 100);
	before = t_log.pos;
	assert_int_equal(log_room(&t_log, T_SEGMENT - SEGMENT_HEAD, 1, &rolled), 0);
	t_flip(2, 20);
	t_reopen();
	assert_int_equal(t_scan(NULL, &seen, &end), SCAN_DAMAGED);
	t_all_but(&seen, 0, 0);
	assert_memory_equal(&end, &before, sizeof(end));
	/* that there is a second one says that the first was synced: a broken body is no torn batch there, ... */
	t_flip(1, before.offset - sizeof(struct commit_rec) - 50);
	assert_int_equal(t_scan(NULL, &seen, &end), SCAN_DAMAGED);
	assert_int_equal(seen.damages, 1);
	t_all_but(&seen, 0, 0);
	t_flip(1, before.offset - sizeof(struct commit_rec) - 50);
	/* ... and rubbish no torn tail */
	t_flip(1, before.offset);
	assert_int_equal(t_scan(NULL, &seen, &end), SCAN_DAMAGED);
	assert_int_equal(seen.damages, 2);
	t_all_but(&seen, 0, 0);
	assert_memory_equal(&end, &before, sizeof(end));
	assert_int_equal(log_cut(&t_log, &end), 0);
	assert_false(t_exists(t_name(2)));
	t_fill_to(2);
	assert_int_equal(t_scan(NULL, &seen, &end), SCAN_END);
	t_all_but(&seen, 0, 0);
}

static void
a_cut_never_throws_batches_away(void **state)
{
	struct log_pos	half;

	(void)state;
	t_write(2, 100);
	half = t_log.pos;
	t_fill_to(2);
	t_reopen();
	assert_int_equal(t_scan(NULL, &seen, &end), SCAN_END);
	assert_int_equal(log_cut(&t_log, &half), -1);
	assert_int_equal(errno, EINVAL);
	assert_true(t_exists(t_name(2)));
	assert_int_equal(t_scan(NULL, &seen, &end), SCAN_END);
	t_all_but(&seen, 0, 0);
}

/* Batches of segments other than a and b are told, no others. */
static void
assert_lost(uint32_t a, uint32_t b)
{
	for (unsigned i = 0; i < t_nwritten; i++)
		assert_int_equal(t_has(&seen, t_written[i].batch), t_written[i].segment != a && t_written[i].segment != b);
}

static void
swapped_segments_are_found_out(void **state)
{
	static uint8_t	two[T_SEGMENT];

	(void)state;
	t_fill_to(4);
	t_peek(2, 0, two, sizeof(two));
	copy_segment(3, 2);
	t_poke(3, 0, two, sizeof(two));
	t_reopen();
	assert_int_equal(t_scan(NULL, &seen, &end), SCAN_DAMAGED);
	assert_int_equal(seen.damages, 2);
	assert_lost(2, 3);
	copy_segment(2, 3);
	t_poke(2, 0, two, sizeof(two));
	t_reopen();
	assert_int_equal(t_scan(NULL, &seen, &end), SCAN_END);
}

static void
a_duplicated_segment_is_found_out_wherever_it_lies(void **state)
{
	static uint8_t	save[T_SEGMENT];

	(void)state;
	t_fill_to(4);
	for (uint32_t from = 1; from <= 4; from++)
		for (uint32_t to = 1; to <= 4; to++) {
			if (from == to)
				continue;
			t_peek(to, 0, save, sizeof(save));
			copy_segment(from, to);
			t_reopen();
			assert_int_equal(t_scan(NULL, &seen, &end), SCAN_DAMAGED);
			assert_int_equal(seen.segment, to);
			assert_lost(to, 0);
			t_poke(to, 0, save, sizeof(save));
		}
	/* one behind the last */
	assert_int_equal(linkat(t_dirfd, t_name(2), t_dirfd, t_name(5), 0), 0);
	t_reopen();
	assert_int_equal(t_scan(NULL, &seen, &end), SCAN_DAMAGED);
	t_all_but(&seen, 0, 0);
}

static void
a_segment_of_another_store_is_found_out(void **state)
{
	struct segment_head	h;

	(void)state;
	t_fill_to(4);
	for (uint32_t number = 1; number <= 4; number++) {
		struct segment_head	other;

		t_peek(number, 0, &h, sizeof(h));
		other = h;
		other.store_id ^= 0x100;
		other.head_crc = 0;
		other.head_crc = crc32c(0, &other, sizeof(other));
		t_poke(number, 0, &other, sizeof(other));
		t_reopen();
		assert_int_equal(t_log.store_id, h.store_id);
		assert_int_equal(t_scan(NULL, &seen, &end), SCAN_DAMAGED);
		assert_int_equal(seen.segment, number);
		assert_lost(number, 0);
		t_poke(number, 0, &h, sizeof(h));
	}
}

static void
a_missing_segment_is_damage(void **state)
{
	struct log_pos	from;

	(void)state;
	for (int lists = 0; lists < 2; lists++)
		for (uint32_t number = 1; number <= 3; number++) {
			t_teardown(state);
			t_setup(state);
			t_lists = lists;
			t_write(1, 100);
			from = t_log.pos;
			t_fill_to(4);
			t_remove(t_name(number));
			t_reopen();
			assert_int_equal(t_scan(NULL, &seen, &end), SCAN_DAMAGED);
			assert_int_equal(seen.damages, 1);
			assert_int_equal(seen.segment, number);
			assert_int_equal(seen.to, 0);
			assert_lost(number, 0);
			assert_int_equal(t_scan(&from, &seen, &end), SCAN_DAMAGED);
			assert_int_equal(seen.segment, number);
		}
}

static void
a_segment_that_was_dropped_is_not_missed(void **state)
{
	static uint8_t	p[256];
	uint32_t	number = 2;

	(void)state;
	t_lists = true;
	t_fill_to(4);
	memset(p, 0, sizeof(p));
	t_write_records(p, t_record(p, REC_DROP_SEGMENT, 1, &number, sizeof(number)));
	assert_int_equal(log_unlink(&t_log, 2), 0);
	t_reopen();
	assert_int_equal(t_scan(NULL, &seen, &end), SCAN_END);
	assert_lost(2, 0);
	/* the next list does not have it any more */
	assert_int_equal(log_cut(&t_log, &end), 0);
	t_fill_to(5);
	number = 1;
	memset(p, 0, sizeof(p));
	t_write_records(p, t_record(p, REC_DROP_SEGMENT, 1, &number, sizeof(number)));
	assert_int_equal(log_unlink(&t_log, 1), 0);
	t_reopen();
	assert_int_equal(t_scan(NULL, &seen, &end), SCAN_END);
	assert_lost(2, 1);
	/* but one that is on it is */
	t_remove(t_name(3));
	t_reopen();
	assert_int_equal(t_scan(NULL, &seen, &end), SCAN_DAMAGED);
	assert_int_equal(seen.segment, 3);
}

static void
a_truncated_file_never_passes_for_a_whole_one(void **state)
{
	static uint8_t	save[2][T_SEGMENT];
	struct log_pos	was;
	uint64_t	end1;

	(void)state;
	t_fill_to(2);
	was = t_log.pos;
	end1 = log_segment(&t_log, 1)->end;
	for (uint32_t number = 1; number <= 2; number++)
		t_peek(number, 0, save[number - 1], T_SEGMENT);
	for (uint32_t number = 1; number <= 2; number++)
		for (uint64_t to = 0; to < T_SEGMENT; to += to < sizeof(struct segment_head) + 8 ? 1 : 29) {
			truncate_segment(number, to);
			t_reopen();
			/* the unused end of a left segment may go: its successor knows that it was unused */
			if (number == 1 && to >= end1)
				assert_int_equal(t_scan(NULL, &seen, &end), SCAN_END);
			else
				assert_int_equal(t_scan(NULL, &seen, &end), SCAN_DAMAGED);
			for (unsigned i = 0; i < t_nwritten; i++)
				if (t_written[i].segment != number || (to >= SEGMENT_HEAD && t_written[i].end <= to))
					assert_true(t_has(&seen, t_written[i].batch));
			if (number == 2 && to >= SEGMENT_HEAD && to % 5 == 0) {
				/* accepted (repair): the file gets its size again */
				assert_int_equal(log_cut(&t_log, &end), 0);
				assert_zero_behind(2, end.offset);
				t_log.pos = end;
				assert_int_equal(t_scan(NULL, &seen, &end), SCAN_END);
			}
			log_close(&t_log);
			truncate_segment(number, 0);
			t_poke(number, 0, save[number - 1], T_SEGMENT);
			t_reopen();
		}
	assert_int_equal(t_scan(NULL, &seen, &end), SCAN_END);
	assert_memory_equal(&end, &was, sizeof(end));
}

static void
a_file_cut_short_after_it_was_opened_is_not_read_behind_its_end(void **state)
{
	(void)state;
	t_fill_to(2);
	t_reopen();
	truncate_segment(1, SEGMENT_HEAD);
	assert_null(log_record(&t_log, 1, SEGMENT_HEAD));
	assert_int_equal(t_scan(NULL, &seen, &end), SCAN_DAMAGED);
	assert_lost(1, 0);
}

static void
a_longer_file_is_read_as_far_as_its_head_says(void **state)
{
	static uint8_t	more[1000];

	(void)state;
	t_write(1, 100);
	memset(more, 0xff, sizeof(more));
	t_poke(1, T_SEGMENT, more, sizeof(more));
	t_reopen();
	assert_int_equal(t_scan(NULL, &seen, &end), SCAN_END);
	t_all_but(&seen, 0, 0);
}

/* Random rubbish over random places of every file: whatever comes of it, no crash and no batch that was not written. */
static void
rubbish_anywhere_is_never_taken_for_a_batch(void **state)
{
	static uint8_t	save[3][T_SEGMENT];
	uint64_t	r = 88172645463325252u;

	(void)state;
	t_fill_to(3);
	for (uint32_t number = 1; number <= 3; number++)
		t_peek(number, 0, save[number - 1], T_SEGMENT);
	for (int round = 0; round < 400; round++) {
		for (int i = 0; i < 6; i++) {
			uint8_t	junk[512];

			for (size_t j = 0; j < sizeof(junk); j++) {
				r ^= r << 13, r ^= r >> 7, r ^= r << 17;
				junk[j] = (uint8_t)(round % 3 == 0 ? 0 : r);
			}
			t_poke((uint32_t)(r % 3 + 1), r / 3 % (T_SEGMENT - sizeof(junk)), junk, 1 + r / 7 % sizeof(junk));
		}
		log_close(&t_log);
		if (log_open(&t_log, t_dirfd, T_SEGMENT) == 0)
			t_scan(NULL, &seen, &end);	/* t_saw_batch() looks at what is told */
		for (uint32_t number = 1; number <= 3; number++)
			t_poke(number, 0, save[number - 1], T_SEGMENT);
		if (t_log.nseg == 0)
			assert_int_equal(log_open(&t_log, t_dirfd, T_SEGMENT), 0);
	}
}

#define T(f)	cmocka_unit_test_setup_teardown(f, t_setup, t_teardown)

int
main(void)
{
	const struct CMUnitTest	tests[] = {
		T(an_empty_log_ends_where_it_begins),
		T(every_batch_of_several_segments_comes_back_after_reopening),
		T(a_scan_can_begin_behind_any_batch),
		T(a_scan_from_a_place_that_is_none_is_refused_or_damage),
		T(a_batch_that_goes_on_from_another_one_is_not_taken_for_the_next),
		T(a_callback_can_stop_the_scan),
		T(a_last_batch_torn_at_any_byte_is_cut_and_nothing_else),
		T(bytes_of_an_older_longer_write_behind_the_end_are_no_batch),
		T(a_broken_body_in_a_last_batch_that_nothing_follows_makes_it_torn),
		T(a_broken_body_in_a_batch_that_was_synced_costs_only_its_document),
		T(a_broken_body_in_front_of_a_new_segment_costs_only_its_document),
		T(a_segment_filled_to_its_last_byte_ends_cleanly),
		T(rubbish_in_the_unused_end_of_a_left_segment_is_nobodys_loss),
		T(damage_in_any_byte_of_a_middle_batch_loses_that_batch_alone),
		T(zeros_in_place_of_any_middle_batch_lose_that_batch_alone),
		T(two_damaged_places_are_told_apart),
		T(a_damaged_batch_at_the_end_of_a_left_segment_is_no_torn_tail),
		T(damage_and_a_torn_tail_together_are_damage_and_the_tail_is_still_cut),
		T(a_copy_of_a_commit_record_in_a_body_is_no_batch),
		T(a_forged_commit_record_leads_nowhere),
		T(a_batch_of_the_wrong_records_is_none),
		T(a_damaged_head_costs_no_batch),
		T(a_damaged_head_of_an_empty_last_segment_is_damage_that_a_cut_heals),
		T(a_cut_never_throws_batches_away),
		T(swapped_segments_are_found_out),
		T(a_duplicated_segment_is_found_out_wherever_it_lies),
		T(a_segment_of_another_store_is_found_out),
		T(a_missing_segment_is_damage),
		T(a_segment_that_was_dropped_is_not_missed),
		T(a_truncated_file_never_passes_for_a_whole_one),
		T(a_file_cut_short_after_it_was_opened_is_not_read_behind_its_end),
		T(a_longer_file_is_read_as_far_as_its_head_says),
		T(rubbish_anywhere_is_never_taken_for_a_batch),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
