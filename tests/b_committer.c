/*
 * tests/b_committer.c - store/committer.c: a real committer process, driven
 * through real lanes, killed at any moment.
 *
 * The test is master and both workers.  Each of WRITERS documents is a chain:
 * its next PUT carries If-Match of the last acknowledged version.  If a
 * committer's death made a write happen twice, or lost one that was
 * acknowledged, the next link of the chain gets 412 and the test fails.
 */
#include "config.h"

#include <sys/eventfd.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>

#include "shm/boot.h"
#include "shm/log.h"
#include "shm/proc.h"
#include "store/pinwatch.h"
#include "store/read.h"
#include "tests/unit.h"

#define LANES	2
#define WRITERS	24

static struct boot	boot;
static char		dir[64];
static int		life[2];
static pid_t		committer;
static struct lane_worker lanes[LANES];

struct writer {
	unsigned	 lane;
	uint64_t	 number;	/* under way; 0: none */
	uint32_t	 body_seed;
	struct tag	 tag;		/* last acknowledged; seq 0: none yet */
	unsigned	 acknowledged;
};
static struct writer	writers[WRITERS];

static uint64_t	rng = 88172645463325252ull;

static uint32_t
rnd(uint32_t n)
{
	rng ^= rng << 13;
	rng ^= rng >> 7;
	rng ^= rng << 17;
	return (uint32_t)(rng >> 20) % n;
}

/* What it tells when it has published: to be read, and closed. */
static int
start_and_go_on(void)
{
	int	ready[2];

	assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
	boot.ready_fd = ready[1];
	committer = fork();
	assert_int_not_equal(committer, -1);
	if (committer == 0) {
		close(life[1]);
		close(ready[0]);
		committer_main(&boot);
	}
	close(ready[1]);
	return ready[0];
}

static void
wait_ready(int ready)
{
	char	byte;

	assert_int_equal(read(ready, &byte, 1), 1);
	close(ready);
}

static void
start(void)
{
	wait_ready(start_and_go_on());
}

/* As the master does it: what an outside kill leaves is not the submissions' fault, a crash is. */
static int
reap(void)
{
	int	st = t_wait(committer);

	pin_drop(&boot.region.pins[LANES]);
	if (WIFSIGNALED(st) && WTERMSIG(st) != SIGKILL)
		for (unsigned l = 0; l < LANES; l++)
			for (unsigned i = 0; i < LANE_SLOTS; i++)
				if (atomic_load(&boot.region.lanes[l].slots[i].working) != 0)
					atomic_fetch_add(&boot.region.lanes[l].slots[i].suspect, 1);
	return st;
}

static void
stop(void)
{
	kill(committer, SIGTERM);
	assert_int_equal(reap(), 0);
}

static void
no_orphan(void *arg, unsigned slot)
{
	(void)arg;
	(void)slot;
	fail_msg("an orphan on a fresh lane");
}

static int
setup(void **state)
{
	(void)state;
	proc_become(IN_TEST, 0);
	strcpy(dir, "/tmp/b_committer.XXXXXX");
	assert_non_null(mkdtemp(dir));
	memset(&boot, 0, sizeof(boot));
	assert_int_equal(region_create(&boot.region, LANES, 16 << 20), 0);
	boot.set = (struct settings){ .max_document = 4 << 20, .segment_size = 1 << 20, .verify_always = true };
	boot.dir = dir;
	boot.dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	boot.lock_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	assert_int_equal(pipe2(life, O_CLOEXEC), 0);
	boot.lifeline = life[0];
	boot.nlanes = LANES;
	for (unsigned i = 0; i < LANES; i++) {
		boot.wake[i] = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
		lane_attach(&lanes[i], &boot.region.lanes[i], no_orphan, NULL);
	}
	memset(writers, 0, sizeof(writers));
	start();
	return 0;
}

static int
teardown(void **state)
{
	(void)state;
	stop();
	for (unsigned i = 0; i < LANES; i++)
		close(boot.wake[i]);
	close(boot.dir_fd);
	close(boot.lock_fd);
	close(life[0]);
	close(life[1]);
	region_destroy(&boot.region);
	t_remove_tree(dir);
	return 0;
}

/* ------------------------------------------------------------ the worker's side */

static uint64_t
submit(unsigned lane, const struct submit_args *a, const void *body, size_t len)
{
	struct submit_build	b;
	uint64_t		number;
	uint32_t		off;

	assert_int_equal(submit_begin(&boot.region.arena, lane, &b, a, len), 0);
	assert_int_equal(submit_append(&boot.region.arena, lane, &b, body, len), 0);
	off = submit_finish(&boot.region.arena, lane, &b);
	assert_int_not_equal(off, ARENA_NONE);
	submit_number(&boot.region.arena, off, atomic_load(&boot.region.lanes[lane].next_number) + 1);
	assert_int_not_equal(lane_submit(&lanes[lane], off, &number), LANE_NONE);
	bell_ring(&boot.region.head->committer_bell);
	return number;
}

/* Waits for the next result on any lane. */
static unsigned
wait_result(struct lane_result *r)
{
	for (int idle = 0;;) {
		struct pollfd	p[LANES];
		uint64_t	n;

		for (unsigned i = 0; i < LANES; i++) {
			atomic_store(&boot.region.lanes[i].worker_sleeps, 1);
			p[i] = (struct pollfd){ .fd = boot.wake[i], .events = POLLIN };
		}
		for (unsigned i = 0; i < LANES; i++)
			if (lane_collect(&lanes[i], r)) {
				submit_free(&boot.region.arena, i, r->submit);
				return i;
			}
		if (poll(p, LANES, 1000) == 0 && ++idle == 20)
			fail_msg("no result in 20 s");
		for (unsigned i = 0; i < LANES; i++)
			if (p[i].revents != 0)
				assert_int_equal(read(boot.wake[i], &n, sizeof(n)), sizeof(n));
	}
}

static struct lane_result
write_one(unsigned lane, const struct submit_args *a, const void *body, size_t len)
{
	struct lane_result	r;
	uint64_t		number = submit(lane, a, body, len);

	wait_result(&r);
	assert_int_equal(r.number, number);
	return r;
}

/* The first tenant's id is 1. */
static void
make_tenant(void)
{
	struct tenant_settings	set = { .public = PUBLIC_WRITE };
	struct submit_args	a = { .op = OP_TENANT_PUT, .path = "demo", .path_len = 4 };

	assert_int_equal(write_one(0, &a, &set, sizeof(set)).outcome, OUT_CREATED);
}

static void
fill_body(uint8_t *p, size_t len, uint32_t seed)
{
	for (size_t i = 0; i < len; i++)
		p[i] = (uint8_t)((seed + i) * 2654435761u >> 24);
}

static size_t
body_len(uint32_t seed)
{
	return seed % 50 == 0 ? 70000 + seed % 70000 : seed % 3000;
}

static void
next_link(unsigned i)
{
	static uint8_t		 body[150000];
	struct writer		*w = &writers[i];
	char			 name[16];
	struct submit_args	 a = {
		.op = OP_PUT, .tenant = 1, .path = name,
		.cond = w->tag.seq != 0 ? COND_MATCH : COND_NONE_MATCH_ANY,
		.match = &w->tag, .n_match = w->tag.seq != 0,
	};
	size_t			 len;

	a.path_len = (uint16_t)sprintf(name, "chain/%u", i);
	w->lane = rnd(LANES);
	w->body_seed = rnd(1 << 20);
	len = body_len(w->body_seed);
	fill_body(body, len, w->body_seed);
	w->number = submit(w->lane, &a, body, len);
}

static void
acknowledged(unsigned lane, const struct lane_result *r)
{
	for (unsigned i = 0; i < WRITERS; i++) {
		struct writer	*w = &writers[i];

		if (w->number != r->number || w->lane != lane)
			continue;
		assert_int_equal(r->outcome, w->tag.seq == 0 ? OUT_CREATED : OUT_REPLACED);
		assert_true(r->seq > w->tag.seq);
		w->tag = (struct tag){ .seq = r->seq, .run = r->run };
		w->number = 0;
		w->acknowledged++;
		return;
	}
	fail_msg("a result nobody waits for");
}

/* Every document is its last acknowledged version, read as a worker reads. */
static void
compare(void)
{
	static uint8_t	body[150000];
	struct boot	b = boot;
	struct reader	*r;
	uint64_t	docs, bytes, sum = 0;
	unsigned	there = 0;

	b.region.overlay_fd = dup(boot.region.overlay_fd);
	assert_non_null(r = read_open(&b));
	assert_true(read_refresh(r));
	for (unsigned i = 0; i < WRITERS; i++) {
		struct writer	*w = &writers[i];
		struct doc	 d;
		char		 name[16];
		int		 n = sprintf(name, "chain/%u", i);

		if (w->tag.seq == 0) {
			assert_int_equal(read_doc(r, 1, name, (size_t)n, &d), 0);
			continue;
		}
		there++;
		assert_int_equal(read_doc(r, 1, name, (size_t)n, &d), 1);
		assert_int_equal(d.tag.seq, w->tag.seq);
		assert_int_equal(d.tag.run, w->tag.run);
		assert_int_equal(d.body_len, body_len(w->body_seed));
		assert_true(doc_check(r, &d, 0, d.body_len));
		fill_body(body, d.body_len, w->body_seed);
		assert_memory_equal(d.body, body, d.body_len);
		sum += d.body_len;
	}
	assert_int_equal(read_usage(r, 1, &docs, &bytes), 0);
	assert_int_equal(docs, there);
	assert_int_equal(bytes, sum);
	read_close(r);
}

static void
drain(void)
{
	struct lane_result	r;
	unsigned		waiting = 0, lane;

	for (unsigned i = 0; i < WRITERS; i++)
		waiting += writers[i].number != 0;
	while (waiting-- > 0) {
		lane = wait_result(&r);
		acknowledged(lane, &r);
	}
}

/* ------------------------------------------------------------ claims */

static void
writes_are_answered_with_what_became_of_them(void **state)
{
	struct submit_args	put = { .op = OP_PUT, .tenant = 1, .path = "a", .path_len = 1 };
	struct submit_args	del = { .op = OP_DELETE, .tenant = 1, .path = "a", .path_len = 1 };
	struct submit_args	drop = { .op = OP_TENANT_DROP, .path = "demo", .path_len = 4 };

	(void)state;
	assert_int_equal(write_one(0, &put, "x", 1).outcome, OUT_NO_TENANT);
	make_tenant();
	assert_int_equal(write_one(0, &put, "x", 1).outcome, OUT_CREATED);
	assert_int_equal(write_one(1, &put, "y", 1).outcome, OUT_REPLACED);
	put.cond = COND_NONE_MATCH_ANY;
	assert_int_equal(write_one(1, &put, "y", 1).outcome, OUT_CONDITION);
	put.cond = 0;
	put.path = "a/b";
	put.path_len = 3;
	assert_int_equal(write_one(1, &put, "y", 1).outcome, OUT_CONFLICT);
	assert_int_equal(write_one(0, &del, NULL, 0).outcome, OUT_DELETED);
	assert_int_equal(write_one(0, &del, NULL, 0).outcome, OUT_ABSENT);
	assert_int_equal(write_one(1, &put, "y", 1).outcome, OUT_CREATED);
	assert_int_equal(write_one(0, &drop, NULL, 0).outcome, OUT_DELETED);
	assert_int_equal(write_one(1, &put, "y", 1).outcome, OUT_NO_TENANT);
}

static void
a_committer_killed_at_any_moment_loses_and_repeats_nothing(void **state)
{
	unsigned	kills = 0, until_kill = 50;

	(void)state;
	make_tenant();
	for (unsigned i = 0; i < WRITERS; i++)
		next_link(i);
	while (kills < 60) {
		struct lane_result	r;
		unsigned		lane = wait_result(&r);

		acknowledged(lane, &r);
		for (unsigned i = 0; i < WRITERS; i++)
			if (writers[i].number == 0)
				next_link(i);
		if (--until_kill > 0)
			continue;
		kill(committer, SIGKILL);
		reap();
		start();
		kills++;
		until_kill = 1 + rnd(400);
	}
	drain();
	compare();
	stop();
	start();
	compare();
}

static void
what_two_committers_crashed_on_is_failed_and_the_rest_goes_on(void **state)
{
	struct submit_args	put = { .op = OP_PUT, .tenant = 1, .path = "poison", .path_len = 6 };
	struct lane_slot	*sl;
	struct lane_result	r;
	uint64_t		number;

	(void)state;
	make_tenant();
	kill(committer, SIGSTOP);
	number = submit(0, &put, "x", 1);
	sl = NULL;
	for (unsigned i = 0; i < LANE_SLOTS; i++)
		if (boot.region.lanes[0].slots[i].number == number)
			sl = &boot.region.lanes[0].slots[i];
	assert_non_null(sl);
	/* what two crashes would have left */
	atomic_store(&sl->working, 1);
	kill(committer, SIGABRT);
	kill(committer, SIGCONT);
	reap();
	assert_int_equal(atomic_load(&sl->suspect), 1);
	atomic_store(&sl->suspect, 2);
	start();
	wait_result(&r);
	assert_int_equal(r.number, number);
	assert_int_equal(r.outcome, OUT_POISON);
	assert_int_equal(write_one(1, &put, "x", 1).outcome, OUT_CREATED);
}

static volatile sig_atomic_t	asked;

static void
on_usr2(int sig)
{
	(void)sig;
	asked = 1;
}

static bool
is_asked_within(int ms)
{
	for (; ms > 0 && !asked; ms -= 10)
		poll(NULL, 0, 10);
	return asked;
}

static void
the_master_is_asked_to_end_who_holds_a_pin_while_memory_waits_for_it(void **state)
{
	struct submit_args	put = { .op = OP_PUT, .tenant = 1, .path = "a", .path_len = 1 };
	struct boot		b;
	struct reader		*r;
	uint64_t		gen;
	int			ready;

	(void)state;
	stop();
	setenv("HOLDFAST_STUCK", "2", 1);
	signal(SIGUSR2, on_usr2);
	asked = 0;
	start();
	make_tenant();
	b = boot;
	b.region.overlay_fd = dup(boot.region.overlay_fd);
	b.lane = 1;
	assert_non_null(r = read_open(&b));
	assert_true(read_refresh(r));
	gen = atomic_load(&boot.region.pins[1].gen);
	assert_int_not_equal(gen, 0);
	/* not for a page or two */
	for (int i = 0; i < 3; i++)
		write_one(0, &put, "x", 1);
	assert_false(is_asked_within(3500));
	for (int i = 0; i < 100; i++)
		write_one(0, &put, "x", 1);
	assert_true(is_asked_within(5000));
	assert_int_equal(atomic_load(&boot.region.head->stuck), (uint64_t)2 << REGION_STUCK_SHIFT | gen);
	/* a successor waits for it with all writes, and asks as well */
	kill(committer, SIGKILL);
	reap();
	atomic_store(&boot.region.head->stuck, 0);
	asked = 0;
	ready = start_and_go_on();
	assert_true(is_asked_within(5000));
	assert_int_equal(atomic_load(&boot.region.head->stuck), (uint64_t)2 << REGION_STUCK_SHIFT | gen);
	read_idle(r);
	wait_ready(ready);
	write_one(0, &put, "x", 1);
	read_close(r);
	unsetenv("HOLDFAST_STUCK");
}

static void
only_looks_count_and_only_at_one_pin(void **state)
{
	struct pin	pins[2] = { { 0 }, { 0 } };
	struct pinwatch	w = { 0 };
	uint64_t	now = 5000000;

	(void)state;
	atomic_store(&pins[1].gen, 7);
	assert_true(pinwatch_look(&w, pins, 2, 7, now));
	assert_int_equal(w.looks[1], 0);		/* the newest holds nothing back */
	assert_false(pinwatch_look(&w, pins, 2, 8, now + 999999));
	for (unsigned n = 1; n <= 5; n++) {
		now += n == 3 ? 3600000000u : 1000000;	/* an hour of sleep is one look */
		assert_true(pinwatch_look(&w, pins, 2, 8, now));
		assert_int_equal(w.looks[0], 0);
		assert_int_equal(w.looks[1], n);
	}
	atomic_store(&pins[1].gen, 8);
	assert_true(pinwatch_look(&w, pins, 2, 9, now += 1000000));
	assert_int_equal(w.looks[1], 1);
	atomic_store(&pins[1].gen, 0);
	assert_true(pinwatch_look(&w, pins, 2, 9, now += 1000000));
	assert_int_equal(w.looks[1], 0);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
int
main(void)
{
	static const struct CMUnitTest	tests[] = {
		T(writes_are_answered_with_what_became_of_them),
		T(a_committer_killed_at_any_moment_loses_and_repeats_nothing),
		T(the_master_is_asked_to_end_who_holds_a_pin_while_memory_waits_for_it),
		cmocka_unit_test(only_looks_count_and_only_at_one_pin),
		T(what_two_committers_crashed_on_is_failed_and_the_rest_goes_on),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
