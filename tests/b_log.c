/* tests/b_log.c - store/log.h: creating, opening, writing, rolling on; L1, L2, F1, F7, F8, F9, F14. */
#include "config.h"

#include <sys/resource.h>
#include <limits.h>
#include "tests/b_batch.h"

static void
a_new_store_is_one_whole_segment_and_nothing_else(void **state)
{
	struct stat	st;

	(void)state;
	assert_int_equal(fstatat(t_dirfd, t_name(1), &st, 0), 0);
	assert_int_equal(st.st_size, T_SEGMENT);
	assert_int_equal(st.st_mode & 0777, 0600);
	assert_true(st.st_blocks * 512 >= T_SEGMENT);		/* preallocated */
	assert_false(t_exists("log-0000000001.new"));
	assert_int_equal(((uint8_t *)&t_log.mark)[4], REC_COMMIT);
	assert_int_equal(log_left(&t_log), T_SEGMENT - SEGMENT_HEAD);
	t_reopen();
	assert_int_equal(t_log.nseg, 1);
}

static void
creating_over_an_existing_store_is_refused(void **state)
{
	struct log	other;

	(void)state;
	assert_int_equal(log_create(&other, t_dirfd, T_SEGMENT), -1);
	assert_int_equal(errno, EEXIST);
	t_reopen();
}

static void
a_crash_in_the_first_creation_leaves_a_fresh_store(void **state)
{
	static const size_t	sizes[] = { 0, 1, 119, 120, T_SEGMENT };

	(void)state;
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		int	fd;

		log_close(&t_log);
		t_remove(t_name(1));
		fd = openat(t_dirfd, "log-0000000001.new", O_CREAT | O_WRONLY, 0600);
		assert_int_equal(ftruncate(fd, (off_t)sizes[i]), 0);
		close(fd);
		assert_int_equal(log_open(&t_log, t_dirfd, T_SEGMENT), -1);
		assert_int_equal(errno, ENOENT);
		assert_false(t_exists("log-0000000001.new"));
		assert_int_equal(log_create(&t_log, t_dirfd, T_SEGMENT), 0);
	}
}

static void
a_left_over_temporary_name_of_a_live_segment_does_it_no_harm(void **state)
{
	struct t_seen	seen;
	struct log_pos	end;

	(void)state;
	t_write(1, 100);
	assert_int_equal(linkat(t_dirfd, t_name(1), t_dirfd, "log-0000000002.new", 0), 0);
	t_fill_to(2);		/* makes log-2 while that name is there */
	assert_int_equal(linkat(t_dirfd, t_name(1), t_dirfd, "log-0000000003.new", 0), 0);
	t_reopen();
	assert_false(t_exists("log-0000000003.new"));
	assert_int_equal(t_scan(NULL, &seen, &end), SCAN_END);
	t_all_but(&seen, 0, 0);
}

static void
other_names_are_left_alone(void **state)
{
	static const char	*names[] = { "log-1", "log-00000000002", "log-0000000000", "log-9999999999",
				    "log-0000000002.tmp", "log-000000000a", "tree-0000000001", "lock" };

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		close(openat(t_dirfd, names[i], O_CREAT | O_WRONLY, 0600));
	t_reopen();
	assert_int_equal(t_log.nseg, 1);
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		assert_true(t_exists(names[i]));
}

static void
what_is_no_file_under_a_segments_name_is_damage_and_holds_nobody_up(void **state)
{
	struct t_seen	seen;
	struct log_pos	end;

	(void)state;
	t_write(1, 100);
	assert_int_equal(mkfifoat(t_dirfd, t_name(2), 0600), 0);
	t_reopen();
	assert_int_equal(t_scan(NULL, &seen, &end), SCAN_DAMAGED);
	assert_int_equal(seen.segment, 2);
	t_all_but(&seen, 0, 0);
}

static void
nothing_readable_is_eilseq(void **state)
{
	(void)state;
	t_flip(1, 3);
	log_close(&t_log);
	assert_int_equal(log_open(&t_log, t_dirfd, T_SEGMENT), -1);
	assert_int_equal(errno, EILSEQ);
	close(openat(t_dirfd, t_name(1), O_WRONLY | O_TRUNC));
	assert_int_equal(log_open(&t_log, t_dirfd, T_SEGMENT), -1);
	assert_int_equal(errno, EILSEQ);
}

static void
a_new_segment_says_where_the_old_one_ends(void **state)
{
	struct segment_head	h;
	uint64_t		end = 0;
	uint32_t		chain = 0;
	uint64_t		batch = 0;

	(void)state;
	while (t_log.pos.segment == 1) {
		end = t_log.pos.offset;
		chain = t_log.pos.chain;
		batch = t_log.pos.batch;
		t_write(3, 1000);
	}
	t_peek(2, 0, &h, sizeof(h));
	assert_int_equal(h.number, 2);
	assert_int_equal(h.prev_number, 1);
	assert_int_equal(h.prev_end, end);
	assert_int_equal(h.chain, chain);
	assert_int_equal(h.first_batch, batch + 1);
	assert_int_equal(h.bytes, T_SEGMENT);
	t_reopen();
	assert_int_equal(log_segment(&t_log, 1)->end, end);
}

static void
a_batch_larger_than_a_segment_gets_one_of_its_own(void **state)
{
	struct t_seen	seen;
	struct log_pos	end;
	struct stat	st;

	(void)state;
	t_write(1, 100);
	t_write(1, 200000);
	t_write(1, 100);
	assert_int_equal(fstatat(t_dirfd, t_name(2), &st, 0), 0);
	assert_true(st.st_size > 200000);
	assert_int_equal(st.st_size % 4096, 0);
	t_reopen();
	assert_int_equal(t_scan(NULL, &seen, &end), SCAN_END);
	t_all_but(&seen, 0, 0);
	for (unsigned i = 0; i < t_nwritten; i++)
		assert_true(rec_body_ok(log_record(&t_log, t_written[i].segment, (uint32_t)t_written[i].first)));
}

static void
a_batch_larger_than_any_segment_is_efbig_and_changes_nothing(void **state)
{
	bool	rolled;

	(void)state;
	assert_int_equal(log_room(&t_log, SEGMENT_MAX - SEGMENT_HEAD + 1, 1, &rolled), -1);
	assert_int_equal(errno, EFBIG);
	assert_int_equal(log_room(&t_log, UINT64_MAX, 1, &rolled), -1);
	assert_int_equal(errno, EFBIG);
	assert_false(rolled);
	assert_int_equal(t_log.nseg, 1);
	t_write(1, 100);
}

static void
room_is_exact_to_the_byte(void **state)
{
	bool	rolled;

	(void)state;
	assert_int_equal(log_room(&t_log, T_SEGMENT - SEGMENT_HEAD, 1, &rolled), 0);
	assert_false(rolled);
	assert_int_equal(log_room(&t_log, T_SEGMENT - SEGMENT_HEAD + 1, 1, &rolled), 0);
	assert_true(rolled);
	assert_int_equal(log_left(&t_log), T_SEGMENT);		/* a page more: one batch must fit */
}

static void
more_pieces_than_one_call_takes_are_written_in_several(void **state)
{
	enum { N = 3 * IOV_MAX + 7 };
	static struct iovec	iov[N];
	static uint8_t		want[2 * N], got[2 * N];

	(void)state;
	for (int i = 0; i < N; i++) {
		want[2 * i] = (uint8_t)(i + 1);
		want[2 * i + 1] = (uint8_t)(i >> 8);
		iov[i] = (struct iovec){ &want[2 * i], 2 };
	}
	iov[N / 2].iov_len = 0;		/* an empty piece is no end */
	memmove(&want[N / 2 * 2], &want[N / 2 * 2 + 2], sizeof(want) - (N / 2 * 2 + 2));
	for (int i = N / 2 + 1; i < N; i++)
		iov[i].iov_base = &want[2 * i - 2];
	assert_int_equal(log_write(&t_log, 16, iov, N), 0);
	t_peek(1, SEGMENT_HEAD + 16, got, sizeof(got) - 2);
	assert_memory_equal(got, want, sizeof(got) - 2);
}

/* As batch_write() does behind a batch of `bytes`: how many zeros it wrote over the letters that were there. */
static size_t
ahead_of(uint64_t bytes)
{
	static uint8_t	x[2 * LOG_AHEAD], y[sizeof(x)];
	uint64_t	end = t_log.pos.offset + bytes, n = log_left(&t_log) - bytes;
	size_t		zeros = 0;

	memset(x, 'x', sizeof(x));
	n = n < sizeof(x) ? n : sizeof(x);
	assert_int_equal(pwrite(t_log.fd, x, n, (off_t)end), n);
	assert_int_equal(log_ahead(&t_log, bytes), 0);
	assert_int_equal(pread(t_log.fd, y, n, (off_t)end), n);
	while (zeros < n && y[zeros] == 0)
		zeros++;
	for (size_t i = zeros; i < n; i++)
		assert_int_equal(y[i], 'x');
	t_log.pos.offset += bytes;
	return zeros;
}

static void
blocks_are_written_ahead_once_and_never_over_the_end(void **state)
{
	uint64_t	left;
	bool		rolled;

	(void)state;
	assert_int_equal(log_room(&t_log, 6 * LOG_AHEAD, 1, &rolled), 0);
	assert_int_equal(ahead_of(4096), LOG_AHEAD);
	for (unsigned n = 0; n < LOG_AHEAD / 4096; n++)
		assert_int_equal(ahead_of(4096), 0);
	assert_int_equal(ahead_of(1), LOG_AHEAD);
	/* one that has as much to sync itself gains nothing; what is behind it is not written then */
	assert_int_equal(ahead_of(LOG_AHEAD), 0);
	assert_int_equal(ahead_of(8), LOG_AHEAD);
	left = log_left(&t_log);
	assert_true(left > LOG_AHEAD);
	t_log.pos.offset += left - 100;
	assert_int_equal(ahead_of(40), 60);
	assert_int_equal(ahead_of(40), 0);
	/* of another segment nothing is known */
	assert_int_equal(log_room(&t_log, 1000, 1, &rolled), 0);
	assert_true(rolled);
	assert_int_equal(ahead_of(1000), T_SEGMENT - SEGMENT_HEAD - 1000);
}

static void
a_write_over_the_end_of_the_segment_is_refused_whole(void **state)
{
	static uint8_t	big[T_SEGMENT], got[64], zero[64];
	struct iovec	iov[2] = { { big, 64 }, { big, sizeof(big) } };

	(void)state;
	memset(big, 1, sizeof(big));
	assert_int_equal(log_write(&t_log, 0, iov, 2), -1);
	assert_int_equal(errno, EINVAL);
	assert_int_equal(log_write(&t_log, UINT64_MAX - 8, iov, 1), -1);
	assert_int_equal(errno, EINVAL);
	t_peek(1, SEGMENT_HEAD, got, sizeof(got));
	assert_memory_equal(got, zero, sizeof(got));
}

/* --- failing calls, in a child: the limit is the process's ------------------------ */

static void
limit(rlim_t bytes)
{
	struct rlimit	r = { bytes, RLIM_INFINITY };

	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &r), 0);
}

static void
no_room_for_a_segment_changes_nothing_and_later_there_is(void **state)
{
	(void)state;
	assert_int_equal(t_child({
		struct log_pos	before;
		struct t_seen	seen;
		struct log_pos	end;
		bool		rolled = true;

		t_write(3, 1000);
		before = t_log.pos;
		limit(T_SEGMENT - 1);
		assert_int_equal(log_room(&t_log, T_SEGMENT, 1, &rolled), -1);
		assert_int_equal(errno, EFBIG);
		assert_false(rolled);
		assert_memory_equal(&before, &t_log.pos, sizeof(before));
		assert_int_equal(t_log.nseg, 1);
		assert_false(t_exists("log-0000000002"));
		assert_false(t_exists("log-0000000002.new"));
		t_write(1, 100);		/* what fits goes on */
		limit(RLIM_INFINITY);
		t_fill_to(2);
		t_reopen();
		assert_int_equal(t_scan(NULL, &seen, &end), SCAN_END);
		t_all_but(&seen, 0, 0);
	}), 0);
}

static void
a_write_that_failed_was_the_last_one(void **state)
{
	(void)state;
	assert_int_equal(t_child({
		static uint8_t	buf[600];
		struct iovec	iov = { buf, sizeof(buf) };
		struct iovec	again = { buf, 8 };
		uint8_t		got[600];
		struct t_seen	seen;
		struct log_pos	end;
		bool		rolled;

		t_write(1, 100);
		memset(buf, 7, sizeof(buf));
		limit(t_log.pos.offset + 100);	/* a short write, then the error */
		assert_int_equal(log_write(&t_log, 0, &iov, 1), -1);
		assert_int_equal(errno, EFBIG);
		t_peek(1, t_log.pos.offset, got, sizeof(got));
		assert_int_equal(got[99], 7);
		assert_int_equal(got[100], 0);
		limit(RLIM_INFINITY);
		assert_int_equal(log_write(&t_log, 0, &again, 1), -1);
		assert_int_equal(errno, EFBIG);
		assert_int_equal(log_sync(&t_log), -1);
		assert_int_equal(log_room(&t_log, 8, 1, &rolled), -1);
		assert_int_equal(log_room(&t_log, T_SEGMENT, 1, &rolled), -1);
		end = t_log.pos;
		assert_int_equal(log_cut(&t_log, &end), -1);
		/* a restart cuts what was half written, and goes on */
		t_reopen();
		assert_int_equal(t_scan(NULL, &seen, &end), SCAN_TORN);
		t_all_but(&seen, 0, 0);
		assert_int_equal(log_cut(&t_log, &end), 0);
		t_write(1, 100);
		assert_int_equal(t_scan(NULL, &seen, &end), SCAN_END);
		t_all_but(&seen, 0, 0);
	}), 0);
}

static void
a_failed_sync_is_not_tried_again(void **state)
{
	int	fd, pipes[2];

	(void)state;
	t_write(1, 100);
	assert_int_equal(pipe(pipes), 0);
	fd = dup(t_log.fd);
	assert_int_equal(dup2(pipes[1], t_log.fd), t_log.fd);	/* cannot be synced */
	assert_int_equal(log_sync(&t_log), -1);
	assert_int_equal(errno, EINVAL);
	assert_int_equal(dup2(fd, t_log.fd), t_log.fd);
	assert_int_equal(log_sync(&t_log), -1);
	close(fd);
	close(pipes[0]);
	close(pipes[1]);
}

/* --- places, removal ----------------------------------------------------------------- */

static void
a_record_is_only_given_out_whole_and_from_inside(void **state)
{
	const struct t_batch	*w;
	uint32_t		 first;

	(void)state;
	t_write(2, 100);
	w = t_nth(1);
	first = (uint32_t)w->first;
	assert_non_null(log_record(&t_log, 1, first));
	assert_null(log_record(&t_log, 2, first));
	assert_int_equal(errno, ENOENT);
	for (uint32_t at = 0; at < T_SEGMENT + 64; at++)
		if (at != first && log_record(&t_log, 1, at) != NULL)
			assert_int_equal(at, first + rec_bytes(log_record(&t_log, 1, first)));
	assert_null(log_record(&t_log, 1, UINT32_MAX));
	assert_null(log_record(&t_log, 1, UINT32_MAX - 7));
	for (uint32_t at = 0; at < sizeof(struct rec_head) + 3; at++) {	/* head and path */
		t_flip(1, first + at);
		assert_null(log_record(&t_log, 1, first));
		assert_int_equal(errno, EILSEQ);
		t_flip(1, first + at);
	}
}

static void
lengths_that_lead_outside_are_refused(void **state)
{
	static const uint32_t	lens[] = { UINT32_MAX, UINT32_MAX - 64, T_SEGMENT, 1u << 31 };
	struct rec_head		h;

	(void)state;
	for (size_t i = 0; i < sizeof(lens) / sizeof(lens[0]); i++) {
		h = (struct rec_head){ .kind = REC_PUT, .body_len = lens[i] };
		h.head_crc = crc32c(0, &h.kind, sizeof(h) - 4);
		t_poke(1, SEGMENT_HEAD, &h, sizeof(h));
		assert_null(log_record(&t_log, 1, SEGMENT_HEAD));
		t_poke(1, T_SEGMENT - sizeof(h), &h, sizeof(h));
		assert_null(log_record(&t_log, 1, T_SEGMENT - sizeof(h)));
	}
}

static void
a_body_is_checked_in_all_its_chunks(void **state)
{
	static const uint32_t	lens[] = { 0, 1, 65535, 65536, 65537, 131072, 131073, 200000 };

	(void)state;
	for (size_t i = 0; i < sizeof(lens) / sizeof(lens[0]); i++) {
		uint8_t		*p = calloc(1, lens[i] + 256), *body = malloc(lens[i] + 1);
		struct rec_head	*h = (struct rec_head *)(void *)p;
		uint64_t	 front, whole;

		memset(body, 'b', lens[i] + 1);
		whole = t_record(p, REC_PUT, 4711, body, lens[i]);
		front = sizeof(*h) + h->path_len + h->meta_len;
		assert_true(rec_body_ok(h));
		for (uint64_t at = front; at < front + lens[i]; at += 32767) {
			p[at] ^= 1;
			assert_false(rec_body_ok(h));
			p[at] ^= 1;
		}
		if (lens[i] > SUBMIT_CHUNK) {
			uint64_t	table = front + lens[i] + table_bytes(front, lens[i]) - 4 * body_chunks(lens[i]);

			assert_true(table % 4 == 0 && table + 4 * body_chunks(lens[i]) <= whole);
			p[table + 4] ^= 1;
			assert_false(rec_body_ok(h));
		}
		free(body);
		free(p);
	}
}

static void
an_unlinked_segment_is_gone_from_list_and_directory(void **state)
{
	(void)state;
	t_fill_to(4);
	assert_int_equal(log_unlink(&t_log, 2), 0);
	assert_null(log_segment(&t_log, 2));
	assert_non_null(log_segment(&t_log, 3));
	assert_false(t_exists(t_name(2)));
	assert_int_equal(log_unlink(&t_log, 2), -1);
	assert_int_equal(errno, ENOENT);
	assert_int_equal(log_unlink(&t_log, 4), -1);		/* the newest */
	assert_int_equal(errno, EINVAL);
	t_write(1, 100);
	t_reopen();
	assert_int_equal(t_log.nseg, 3);
}

static void
an_opened_log_takes_no_write_before_it_was_cut(void **state)
{
	uint8_t		b[8] = { 0 };
	struct iovec	iov = { b, sizeof(b) };
	bool		rolled;

	(void)state;
	t_write(1, 100);
	t_reopen();
	assert_int_equal(log_write(&t_log, 0, &iov, 1), -1);
	assert_int_equal(log_room(&t_log, 8, 1, &rolled), -1);
	assert_int_equal(log_left(&t_log), 0);
}

#define T(f)	cmocka_unit_test_setup_teardown(f, t_setup, t_teardown)

int
main(void)
{
	const struct CMUnitTest	tests[] = {
		T(a_new_store_is_one_whole_segment_and_nothing_else),
		T(creating_over_an_existing_store_is_refused),
		T(a_crash_in_the_first_creation_leaves_a_fresh_store),
		T(a_left_over_temporary_name_of_a_live_segment_does_it_no_harm),
		T(other_names_are_left_alone),
		T(what_is_no_file_under_a_segments_name_is_damage_and_holds_nobody_up),
		T(nothing_readable_is_eilseq),
		T(a_new_segment_says_where_the_old_one_ends),
		T(a_batch_larger_than_a_segment_gets_one_of_its_own),
		T(a_batch_larger_than_any_segment_is_efbig_and_changes_nothing),
		T(room_is_exact_to_the_byte),
		T(more_pieces_than_one_call_takes_are_written_in_several),
		T(blocks_are_written_ahead_once_and_never_over_the_end),
		T(a_write_over_the_end_of_the_segment_is_refused_whole),
		T(no_room_for_a_segment_changes_nothing_and_later_there_is),
		T(a_write_that_failed_was_the_last_one),
		T(a_failed_sync_is_not_tried_again),
		T(a_record_is_only_given_out_whole_and_from_inside),
		T(lengths_that_lead_outside_are_refused),
		T(a_body_is_checked_in_all_its_chunks),
		T(an_unlinked_segment_is_gone_from_list_and_directory),
		T(an_opened_log_takes_no_write_before_it_was_cut),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
