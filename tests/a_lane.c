/* tests/a_lane.c - shm/lane.h: I1, I2, I3, I4, at every point of death. */
#include "config.h"
#include <stdbool.h>
#include "tests/unit.h"
#include "shm/lane.h"
#include "shm/proc.h"

static struct lane *
new_lane(void)
{
	return t_shared(sizeof(struct lane));
}

static uint32_t
payload_of(uint64_t number)
{
	return (uint32_t)(number * 2654435761u) | 1;
}

/* Submits one whose arena offset can be told from its number. */
static uint32_t
submit_one(struct lane_worker *w)
{
	uint64_t	n, expected = lane_peek_number(w);
	uint32_t	slot = lane_submit(w, payload_of(expected), &n);

	if (slot != LANE_NONE)
		assert_int_equal(n, expected);
	return slot;
}

/* Completes one with a result that can be told from its number. */
static bool
complete_one(struct lane_reader *r, uint32_t slot)
{
	uint64_t	n = r->lane->slots[slot].number;

	assert_int_equal(r->lane->slots[slot].submit, payload_of(n));
	return lane_complete(r, slot, OUT_CREATED, n * 3, (uint32_t)n + 1, n * 7);
}

static void
check_result(const struct lane_result *res)
{
	assert_int_equal(res->submit, payload_of(res->number));
	assert_int_equal(res->outcome, OUT_CREATED);
	assert_int_equal(res->seq, res->number * 3);
	assert_int_equal(res->run, (uint32_t)res->number + 1);
	assert_int_equal(res->time_ms, res->number * 7);
}

/* Completes all there is; how many. */
static unsigned
complete_all(struct lane_reader *r)
{
	uint32_t	slot;
	unsigned	n = 0;

	for (; (slot = lane_next(r)) != LANE_NONE; n++)
		complete_one(r, slot);
	assert_false(lane_has_next(r));
	return n;
}

static unsigned
collect_all(struct lane_worker *w)
{
	struct lane_result	res;
	unsigned		n = 0;

	for (; lane_collect(w, &res); n++)
		check_result(&res);
	assert_false(lane_pending_done(w));
	return n;
}

static void
count_orphan(void *arg, unsigned slot)
{
	assert_true(slot < LANE_SLOTS);
	++*(unsigned *)arg;
}

/* --- the way of one, and of many --------------------------------------- */

static void
a_submission_goes_there_and_comes_back(void **state)
{
	struct lane		*lane = new_lane();
	struct lane_worker	 w;
	struct lane_reader	 r;
	struct lane_result	 res;
	uint32_t		 slot;

	(void)state;
	lane_attach(&w, lane, NULL, NULL);
	lane_rescan(&r, lane);
	assert_int_equal(lane_next(&r), LANE_NONE);
	assert_int_equal(lane_peek_number(&w), 1);
	slot = submit_one(&w);
	assert_int_equal(slot, 0);
	assert_true(lane_has_next(&r));
	assert_int_equal(lane_next(&r), slot);
	assert_int_equal(lane_next(&r), LANE_NONE);
	assert_false(lane_collect(&w, &res));
	assert_false(complete_one(&r, slot));
	assert_true(lane_pending_done(&w));
	assert_true(lane_collect(&w, &res));
	check_result(&res);
	assert_int_equal(res.number, 1);
	assert_int_equal(res.slot, slot);
	assert_int_equal(lane->slots[slot].state, SLOT_FREE);
	assert_false(lane_collect(&w, &res));
}

static void
a_full_ring_says_so_and_works_on(void **state)
{
	struct lane		*lane = new_lane();
	struct lane_worker	 w;
	struct lane_reader	 r;
	unsigned		 i, round;

	(void)state;
	lane_attach(&w, lane, NULL, NULL);
	lane_rescan(&r, lane);
	for (round = 0; round < 5; round++) {
		for (i = 0; i < LANE_SLOTS; i++)
			assert_int_not_equal(submit_one(&w), LANE_NONE);
		assert_int_equal(submit_one(&w), LANE_NONE);
		assert_int_equal(complete_all(&r), LANE_SLOTS);
		assert_int_equal(submit_one(&w), LANE_NONE);
		assert_int_equal(collect_all(&w), LANE_SLOTS);
	}
	assert_int_equal(lane_peek_number(&w), 5 * LANE_SLOTS + 1);
}

static void
cursors_wrap_around(void **state)
{
	struct lane		*lane = new_lane();
	struct lane_worker	 w;
	struct lane_reader	 r;
	unsigned		 i, n;

	(void)state;
	lane->sub_head = lane->sub_tail = lane->done_head = lane->done_tail = UINT32_MAX - 1500;
	lane_attach(&w, lane, NULL, NULL);
	lane_rescan(&r, lane);
	for (n = 0; n < 5000; n += i) {
		for (i = 0; i < 1 + n % LANE_SLOTS; i++)
			assert_int_not_equal(submit_one(&w), LANE_NONE);
		assert_int_equal(complete_all(&r), i);
		assert_int_equal(collect_all(&w), i);
	}
	assert_true(lane->sub_head < 10000 && lane->done_head < 10000);
}

/* --- after a death ----------------------------------------------------- */

/* A third of the slots in each state, the rings as a dead pair could have left them at worst: empty. */
static unsigned
mixed_states(struct lane *lane, unsigned *done)
{
	struct lane_worker	w;
	struct lane_reader	r;
	uint32_t		slot[LANE_SLOTS];
	unsigned		i, submitted = 0;

	lane_attach(&w, lane, NULL, NULL);
	lane_rescan(&r, lane);
	for (i = 0; i < LANE_SLOTS; i++)
		slot[i] = submit_one(&w);
	*done = 0;
	for (i = 0; i < LANE_SLOTS; i++) {
		if (i % 3 == 0) {
			submitted++;
			continue;
		}
		complete_one(&r, slot[i]);
		if (i % 3 == 1)
			++*done;
		else
			lane->slots[slot[i]].state = SLOT_FREE;
	}
	lane->sub_tail = lane->sub_head;
	lane->done_tail = lane->done_head;
	return submitted;
}

static void
a_new_committer_gets_exactly_the_submitted_and_names_the_done_again(void **state)
{
	struct lane		*lane = new_lane();
	struct lane_worker	 w;
	struct lane_reader	 r;
	unsigned		 submitted, done, i;
	uint32_t		 slot;

	(void)state;
	submitted = mixed_states(lane, &done);
	/* the worker lives: it is where it was, its ring read to the end */
	memset(&w, 0, sizeof(w));
	w.lane = lane;
	lane_rescan(&r, lane);
	for (i = 0; (slot = lane_next(&r)) != LANE_NONE; i++)
		assert_int_equal(lane->slots[slot].state, SLOT_SUBMITTED);
	assert_int_equal(i, submitted);
	assert_int_equal(collect_all(&w), done);
	/* and one more dies: what is under work is found again */
	lane_rescan(&r, lane);
	assert_int_equal(complete_all(&r), submitted);
	assert_int_equal(collect_all(&w), submitted);
}

static void
a_new_worker_is_told_of_the_orphans_and_collects_them_all(void **state)
{
	struct lane		*lane = new_lane();
	struct lane_worker	 w;
	struct lane_reader	 r;
	unsigned		 submitted, done, orphans = 0;
	uint64_t		 next;

	(void)state;
	submitted = mixed_states(lane, &done);
	next = lane->next_number;
	/* the committer lives, and its ring says nothing */
	memset(&r, 0, sizeof(r));
	r.lane = lane;
	lane_attach(&w, lane, count_orphan, &orphans);
	assert_int_equal(orphans, submitted + done);
	assert_int_equal(w.nfree, LANE_SLOTS - orphans);
	assert_int_equal(collect_all(&w), done);
	assert_int_equal(complete_all(&r), submitted);
	assert_int_equal(collect_all(&w), submitted);
	assert_int_equal(w.nfree, LANE_SLOTS);
	assert_int_equal(lane_peek_number(&w), next + 1);
}

static void
names_given_again_and_again_overrun_no_ring(void **state)
{
	struct lane		*lane = new_lane();
	struct lane_worker	 w;
	struct lane_reader	 r, live;
	unsigned		 i, round;

	(void)state;
	lane_attach(&w, lane, NULL, NULL);
	lane_rescan(&r, lane);
	for (round = 0; round < 3; round++) {
		for (i = 0; i < LANE_SLOTS; i++)
			submit_one(&w);
		/* workers die one after the other while the committer is at a long batch */
		live = r;
		for (i = 0; i < 5; i++)
			lane_attach(&w, lane, NULL, NULL);
		assert_int_equal(complete_all(&live), LANE_SLOTS);
		/* and committers while the worker looks elsewhere */
		for (i = 0; i < 5; i++)
			lane_rescan(&r, lane);
		assert_int_equal(complete_all(&r), 0);
		assert_int_equal(collect_all(&w), LANE_SLOTS);
	}
}

static void
what_is_named_twice_while_it_is_under_work_is_taken_once(void **state)
{
	struct lane		*lane = new_lane();
	struct lane_worker	 w;
	struct lane_reader	 r;
	uint32_t		 slot[LANE_SLOTS];
	unsigned		 i, n;

	(void)state;
	lane_attach(&w, lane, NULL, NULL);
	lane_rescan(&r, lane);
	for (i = 0; i < 10; i++)
		submit_one(&w);
	for (n = 0; (slot[n] = lane_next(&r)) != LANE_NONE; n++)
		;
	assert_int_equal(n, 10);
	/* a new worker names them again in the middle of the batch */
	lane_attach(&w, lane, NULL, NULL);
	assert_true(lane_has_next(&r));
	assert_int_equal(lane_next(&r), LANE_NONE);
	for (i = 0; i < n; i++)
		complete_one(&r, slot[i]);
	assert_int_equal(collect_all(&w), 10);
}

/* --- every point of death ---------------------------------------------- */

struct steps {
	struct lane		*lane, *copy, *last;
	struct lane_worker	 w;	/* as it was before the first step */
	struct lane_reader	 r;
	uint32_t		 slot;
	unsigned		 looks;
};

static struct steps *
new_steps(void)
{
	struct steps	*s = t_shared(sizeof(*s));

	s->lane = new_lane();
	s->copy = new_lane();
	s->last = new_lane();
	lane_attach(&s->w, s->lane, NULL, NULL);
	lane_rescan(&s->r, s->lane);
	complete_all(&s->r);
	collect_all(&s->w);
	return s;
}

/* False where nothing in the lane changed with this step; else *copy is what the dead leave. */
static bool
changed(struct steps *s)
{
	if (s->looks > 0 && memcmp(s->lane, s->last, sizeof(*s->lane)) == 0)
		return false;
	s->looks++;
	memcpy(s->last, s->lane, sizeof(*s->lane));
	memcpy(s->copy, s->lane, sizeof(*s->lane));
	return true;
}

static unsigned
in_state(const struct lane *lane, enum slot_state st)
{
	unsigned	i, n = 0;

	for (i = 0; i < LANE_SLOTS; i++)
		n += lane->slots[i].state == st;
	return n;
}

/*
 * The lane as it stands, with a new worker, a new committer or both (else the
 * ones that lived through it): each submission comes back once, no number is
 * given twice, and all slots are of use.
 */
static void
lives_on(struct steps *s, bool new_worker, bool new_committer)
{
	struct lane		*lane = s->copy;
	struct lane_worker	 w = s->w;
	struct lane_reader	 r = s->r;
	unsigned		 i, orphans = 0, pending, done;
	uint64_t		 highest = 0;

	memcpy(lane, s->last, sizeof(*lane));
	w.lane = r.lane = lane;
	pending = in_state(lane, SLOT_SUBMITTED);
	done = in_state(lane, SLOT_DONE);
	for (i = 0; i < LANE_SLOTS; i++)
		if (lane->slots[i].state != SLOT_FREE && lane->slots[i].number > highest)
			highest = lane->slots[i].number;
	if (new_worker) {
		lane_attach(&w, lane, count_orphan, &orphans);
		assert_int_equal(orphans, pending + done);
	}
	if (new_committer)
		lane_rescan(&r, lane);
	assert_int_equal(complete_all(&r), pending);
	assert_int_equal(collect_all(&w), pending + done);
	assert_true(lane_peek_number(&w) > highest);
	while (submit_one(&w) != LANE_NONE)
		;
	assert_int_equal(complete_all(&r), LANE_SLOTS);
	assert_int_equal(collect_all(&w), LANE_SLOTS);
	assert_int_equal(in_state(lane, SLOT_FREE), LANE_SLOTS);
}

static void
do_submit(void *arg)
{
	submit_one(&((struct steps *)arg)->w);
}

static void
worker_dead(void *arg)
{
	struct steps	*s = arg;

	if (!changed(s))
		return;
	lives_on(s, true, false);
	lives_on(s, true, true);
}

static void
committer_dead(void *arg)
{
	struct steps	*s = arg;

	if (!changed(s))
		return;
	lives_on(s, false, true);
	lives_on(s, true, true);
}

static void
a_worker_may_die_at_any_instruction_of_a_submission(void **state)
{
	struct steps	*s = new_steps();

	(void)state;
	if (t_steps(do_submit, worker_dead, s) == -1)
		t_not_here("single-stepping a child");
	assert_true(s->looks > 4);
	assert_int_equal(in_state(s->lane, SLOT_SUBMITTED), 1);
}

static void
do_collect(void *arg)
{
	struct lane_result	res;

	assert_true(lane_collect(&((struct steps *)arg)->w, &res));
}

static void
a_worker_may_die_at_any_instruction_of_a_collect(void **state)
{
	struct steps	*s = new_steps();

	(void)state;
	submit_one(&s->w);
	submit_one(&s->w);
	assert_int_equal(complete_all(&s->r), 2);
	if (t_steps(do_collect, worker_dead, s) == -1)
		t_not_here("single-stepping a child");
	assert_true(s->looks > 2);
	assert_int_equal(in_state(s->lane, SLOT_DONE), 1);
}

static void
do_complete(void *arg)
{
	struct steps	*s = arg;

	complete_one(&s->r, s->slot);
}

static void
a_committer_may_die_at_any_instruction_of_a_complete(void **state)
{
	struct steps	*s = new_steps();

	(void)state;
	submit_one(&s->w);
	submit_one(&s->w);
	s->slot = lane_next(&s->r);
	assert_int_not_equal(s->slot, LANE_NONE);
	if (t_steps(do_complete, committer_dead, s) == -1)
		t_not_here("single-stepping a child");
	assert_true(s->looks > 4);
	assert_int_equal(in_state(s->lane, SLOT_DONE), 1);
}

static void
do_rescan_and_next(void *arg)
{
	struct steps	*s = arg;

	lane_rescan(&s->r, s->lane);
	lane_next(&s->r);
}

static void
a_committer_may_die_at_any_instruction_of_its_start(void **state)
{
	struct steps	*s = new_steps();
	unsigned	 i;

	(void)state;
	for (i = 0; i < 6; i++)
		submit_one(&s->w);
	for (i = 0; i < 3; i++)
		complete_one(&s->r, lane_next(&s->r));
	lane_next(&s->r);
	if (t_steps(do_rescan_and_next, committer_dead, s) == -1)
		t_not_here("single-stepping a child");
	assert_true(s->looks > 3);
}

static void
do_attach(void *arg)
{
	struct steps	*s = arg;

	lane_attach(&s->w, s->lane, NULL, NULL);
}

static void
a_worker_may_die_at_any_instruction_of_its_start(void **state)
{
	struct steps	*s = new_steps();
	unsigned	 i;

	(void)state;
	for (i = 0; i < 6; i++)
		submit_one(&s->w);
	for (i = 0; i < 3; i++)
		complete_one(&s->r, lane_next(&s->r));
	if (t_steps(do_attach, worker_dead, s) == -1)
		t_not_here("single-stepping a child");
	assert_true(s->looks > 2);
}

/* --- two processes ----------------------------------------------------- */

#define STRESS	300000u
#define KILLS	60u
#define LEASH	30000u	/* numbers that may be used between two kills, however late the killer is */

struct stress {
	struct lane		*lane;
	_Atomic(uint64_t)	 limit;		/* the highest number to submit so far */
	_Atomic(uint32_t)	 enough;	/* of submitting */
	_Atomic(uint32_t)	 stop;
	_Alignas(64) _Atomic(uint64_t) completed;
	_Alignas(64) _Atomic(uint64_t) collected;
	_Alignas(64) _Atomic(uint8_t) times[KILLS * LEASH + 1];	/* a number was collected */
};

static struct stress *
new_stress(void)
{
	struct stress	*s = t_shared(sizeof(*s));

	_Static_assert(STRESS <= KILLS * LEASH, "times[] has room for each number");
	s->lane = new_lane();
	return s;
}

static void
stress_committer(struct stress *s)
{
	static struct lane_reader	r;
	uint32_t			slot;
	uint64_t			n;

	lane_rescan(&r, s->lane);
	while (!atomic_load_explicit(&s->stop, memory_order_acquire)) {
		if ((slot = lane_next(&r)) == LANE_NONE) {
			sched_yield();
			continue;
		}
		complete_one(&r, slot);
		n = atomic_load_explicit(&s->completed, memory_order_relaxed);
		atomic_store_explicit(&s->completed, n + 1, memory_order_relaxed);
	}
}

static void
collect_some(struct stress *s, struct lane_worker *w)
{
	struct lane_result	res;

	while (lane_collect(w, &res)) {
		check_result(&res);
		if (res.number >= sizeof(s->times) ||
		    atomic_fetch_add_explicit(&s->times[res.number], 1, memory_order_relaxed) != 0)
			abort();
		atomic_fetch_add_explicit(&s->collected, 1, memory_order_relaxed);
	}
}

/* Submits until it is enough, and collects until none is under way. */
static void
stress_worker(struct stress *s)
{
	static struct lane_worker	w;

	lane_attach(&w, s->lane, NULL, NULL);
	while (!s->enough || w.nfree < LANE_SLOTS) {
		if (s->enough || lane_peek_number(&w) > s->limit || submit_one(&w) == LANE_NONE)
			sched_yield();
		collect_some(s, &w);
	}
	atomic_store_explicit(&s->stop, 1, memory_order_release);
}

static void
of_hundreds_of_thousands_each_is_completed_exactly_once(void **state)
{
	struct stress	*s = new_stress();
	pid_t		 c, w;
	unsigned	 i;

	(void)state;
	s->limit = STRESS;
	c = t_fork(stress_committer(s));
	w = t_fork(stress_worker(s));
	while (s->collected < STRESS)
		sched_yield();
	s->enough = 1;
	assert_int_equal(t_wait(w), 0);
	assert_int_equal(t_wait(c), 0);
	assert_int_equal(s->completed, STRESS);
	for (i = 1; i <= STRESS; i++)
		assert_int_equal(s->times[i], 1);
}

/*
 * Kills the child when `word` has moved by `by`.  How far it gets until we have
 * noticed is the scheduler's to say: up to the limit, where it waits for us.
 */
static void
kill_after(struct stress *s, _Atomic(uint64_t) *word, uint64_t by, pid_t pid)
{
	uint64_t	from = *word;
	int		st;

	s->limit += LEASH;
	while (*word < from + by)
		sched_yield();
	kill(pid, SIGKILL);
	st = t_wait(pid);
	/* it ends by itself only after a failed assertion */
	assert_true(WIFSIGNALED(st) && WTERMSIG(st) == SIGKILL);
}

static void
committers_are_killed_and_still_each_is_collected_exactly_once(void **state)
{
	struct stress	*s = new_stress();
	pid_t		 c, w;

	(void)state;
	w = t_fork(stress_worker(s));
	c = t_fork(stress_committer(s));
	for (unsigned kills = 0; kills < KILLS; kills++) {
		kill_after(s, &s->completed, STRESS / 100 + kills, c);
		c = t_fork(stress_committer(s));
	}
	s->enough = 1;
	assert_int_equal(t_wait(w), 0);
	assert_int_equal(t_wait(c), 0);
	assert_true(s->lane->next_number > KILLS * (STRESS / 100));
	for (uint64_t i = 1; i <= s->lane->next_number; i++)
		assert_int_equal(s->times[i], 1);
}

static void
workers_are_killed_and_still_none_is_collected_twice_and_no_slot_is_lost(void **state)
{
	struct stress	*s = new_stress();
	pid_t		 c, w;
	unsigned	 missing = 0;

	(void)state;
	c = t_fork(stress_committer(s));
	w = t_fork(stress_worker(s));
	for (unsigned kills = 0; kills < KILLS; kills++) {
		kill_after(s, &s->collected, STRESS / 100 + kills, w);
		w = t_fork(stress_worker(s));
	}
	s->enough = 1;
	assert_int_equal(t_wait(w), 0);
	assert_int_equal(t_wait(c), 0);
	assert_true(s->lane->next_number > KILLS * (STRESS / 100));
	assert_int_equal(in_state(s->lane, SLOT_FREE), LANE_SLOTS);
	for (uint64_t i = 1; i <= s->lane->next_number; i++)
		missing += s->times[i] == 0;
	/* each death can take one number that was not handed over and one result that was not marked */
	assert_true(missing <= 2 * KILLS);
}

/* --- sleeping, blame, madness ------------------------------------------ */

static void
a_worker_that_sleeps_is_to_be_woken_and_does_not_sleep_over_a_result(void **state)
{
	struct lane		*lane = new_lane();
	struct lane_worker	 w;
	struct lane_reader	 r;

	(void)state;
	lane_attach(&w, lane, NULL, NULL);
	lane_rescan(&r, lane);
	assert_int_equal(collect_all(&w), 0);
	submit_one(&w);
	submit_one(&w);
	assert_false(complete_one(&r, lane_next(&r)));
	assert_false(lane_arm(&w));
	lane_disarm(&w);
	assert_int_equal(collect_all(&w), 1);
	assert_true(lane_arm(&w));
	assert_true(complete_one(&r, lane_next(&r)));
	lane_disarm(&w);
	assert_int_equal(collect_all(&w), 1);
}

#define ROUNDS	100000u

struct crossing {
	struct lane		lane;
	_Alignas(64) _Atomic(uint32_t) at[2];
	bool			woken[ROUNDS + 1], slept[ROUNDS + 1];
};

/* Lies down in the moment in which its write is completed. */
static void
sleeper(struct crossing *c)
{
	static struct lane_worker	w;
	uint32_t			round, at = 0;

	lane_attach(&w, &c->lane, NULL, NULL);
	for (round = 1; round <= ROUNDS; round++) {
		collect_all(&w);
		submit_one(&w);
		t_meet(&c->at[0], &c->at[1], ++at);
		t_jitter(2 * round);
		c->slept[round] = lane_arm(&w);
		t_meet(&c->at[0], &c->at[1], ++at);
		lane_disarm(&w);
	}
}

static void
waker(struct crossing *c)
{
	static struct lane_reader	r;
	uint32_t			round, slot, at = 0;

	lane_rescan(&r, &c->lane);
	for (round = 1; round <= ROUNDS; round++) {
		while ((slot = lane_next(&r)) == LANE_NONE)
			sched_yield();
		t_meet(&c->at[1], &c->at[0], ++at);
		t_jitter(2 * round + 1);
		c->woken[round] = complete_one(&r, slot);
		t_meet(&c->at[1], &c->at[0], ++at);
	}
}

static void
a_result_and_a_sleep_that_cross_are_seen_by_one_of_them(void **state)
{
	struct crossing	*c = t_shared(sizeof(*c));
	pid_t		 a, b;
	uint32_t	 round;

	(void)state;
	a = t_fork(sleeper(c));
	b = t_fork(waker(c));
	assert_int_equal(t_wait(a), 0);
	assert_int_equal(t_wait(b), 0);
	for (round = 1; round <= ROUNDS; round++)
		assert_true(c->woken[round] || !c->slept[round]);
}

static void
only_what_was_under_work_gets_the_blame(void **state)
{
	struct lane		*lane = new_lane();
	struct lane_worker	 w;
	struct lane_reader	 r;
	uint32_t		 a, b;

	(void)state;
	lane_attach(&w, lane, NULL, NULL);
	lane_rescan(&r, lane);
	a = submit_one(&w);
	b = submit_one(&w);
	lane->slots[a].working = 1;
	lane_blame(lane);
	assert_int_equal(lane->slots[a].suspect, 1);
	assert_int_equal(lane->slots[b].suspect, 0);
	lane_blame(lane);
	assert_int_equal(lane->slots[a].suspect, 1);
	lane->slots[a].working = 1;
	lane->slots[b].working = 1;
	lane->slots[b].working = 0;
	lane_blame(lane);
	assert_int_equal(lane->slots[a].suspect, 2);
	assert_int_equal(lane->slots[b].suspect, 0);
	/* the next submission in that slot is innocent */
	assert_int_equal(complete_all(&r), 2);
	assert_int_equal(collect_all(&w), 2);
	submit_one(&w);
	submit_one(&w);
	assert_int_equal(lane->slots[a].suspect, 0);
}

static void
a_worker_gone_mad_cannot_hang_or_mislead_the_committer(void **state)
{
	struct lane		*lane = new_lane();
	struct lane_reader	 r;
	uint32_t		 x = 1, slot;
	unsigned		 round, i, n;

	(void)state;
	for (round = 0; round < 200; round++) {
		lane_rescan(&r, lane);
		for (i = 0; i < LANE_SLOTS; i++) {
			x = x * 1664525 + 1013904223;
			lane->sub_ring[i] = (uint16_t)(x >> 16);
			lane->slots[i].state = (x >> 8) % 5;
			lane->slots[i].number = x >> 28;
		}
		lane->sub_head = round % 2 ? x : lane->sub_tail + round;
		lane->done_tail = x * 3;
		for (n = 0; n < 4 * LANE_SLOTS && (slot = lane_next(&r)) != LANE_NONE; n++)
			assert_true(slot < LANE_SLOTS && lane->slots[slot].state == SLOT_SUBMITTED);
		assert_true(n <= LANE_SLOTS);
	}
}

int
main(void)
{
	const struct CMUnitTest	tests[] = {
		cmocka_unit_test(a_submission_goes_there_and_comes_back),
		cmocka_unit_test(a_full_ring_says_so_and_works_on),
		cmocka_unit_test(cursors_wrap_around),
		cmocka_unit_test(a_new_committer_gets_exactly_the_submitted_and_names_the_done_again),
		cmocka_unit_test(a_new_worker_is_told_of_the_orphans_and_collects_them_all),
		cmocka_unit_test(names_given_again_and_again_overrun_no_ring),
		cmocka_unit_test(what_is_named_twice_while_it_is_under_work_is_taken_once),
		cmocka_unit_test(a_worker_that_sleeps_is_to_be_woken_and_does_not_sleep_over_a_result),
		cmocka_unit_test(only_what_was_under_work_gets_the_blame),
		cmocka_unit_test(a_worker_gone_mad_cannot_hang_or_mislead_the_committer),
		cmocka_unit_test(a_worker_may_die_at_any_instruction_of_a_submission),
		cmocka_unit_test(a_worker_may_die_at_any_instruction_of_a_collect),
		cmocka_unit_test(a_worker_may_die_at_any_instruction_of_its_start),
		cmocka_unit_test(a_committer_may_die_at_any_instruction_of_a_complete),
		cmocka_unit_test(a_committer_may_die_at_any_instruction_of_its_start),
		cmocka_unit_test(a_result_and_a_sleep_that_cross_are_seen_by_one_of_them),
		cmocka_unit_test(of_hundreds_of_thousands_each_is_completed_exactly_once),
		cmocka_unit_test(committers_are_killed_and_still_each_is_collected_exactly_once),
		cmocka_unit_test(workers_are_killed_and_still_none_is_collected_twice_and_no_slot_is_lost),
	};

	proc_become(IN_TEST, 0);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
