/*
 * tests/b_store.c - store/store.h: the whole write side against a map in memory.
 *
 * Random writes of several tenants, in batches, with checkpoints, compaction and re-opening
 * (with and without a shutdown) in between; after each opening everything is
 * compared: values, bodies, aggregates, structure of the tree.
 */
#include "config.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>

#include "shm/crc32c.h"
#include "shm/proc.h"
#include "store/store.h"
#include "tests/unit.h"

#define SEGMENT		(1u << 20)
#define NAMES		400
#define TENANTS		3

/* ------------------------------------------------------------ memory that runs out */

static bool	no_calloc;

void	*__real_calloc(size_t, size_t);
void	*__wrap_calloc(size_t, size_t);

void *
__wrap_calloc(size_t n, size_t size)
{
	if (no_calloc) {
		errno = ENOMEM;
		return NULL;
	}
	return __real_calloc(n, size);
}

/* ------------------------------------------------------------ the world */

static struct fixture {
	char		 dir[64];
	int		 dirfd;
	int		 overlay;
	struct store	 s;
	struct pin	*pin;
	struct checkpointer *ck;
	struct compaction compaction;
	uint64_t	 ms;
	unsigned	 checkpoints, unlinked;
} f;

struct entry {			/* what the model holds for a name */
	bool		 live;
	uint64_t	 seq;
	uint32_t	 run;
	uint32_t	 len;
	uint32_t	 seed;
	uint64_t	 time_ms;
};
static struct entry	model[TENANTS][NAMES];
static uint32_t		tenant_id[TENANTS];

static uint64_t	rng = 1;

static uint32_t
rnd(uint32_t n)
{
	rng ^= rng << 13;
	rng ^= rng >> 7;
	rng ^= rng << 17;
	return (uint32_t)(rng >> 20) % n;
}

static void
fill_body(uint8_t *p, uint32_t len, uint32_t seed)
{
	for (uint32_t i = 0; i < len; i++)
		p[i] = (uint8_t)((seed + i) * 2654435761u >> 24);
}

static void
nobody(void *arg)
{
	(void)arg;
}

static int
new_overlay(void)
{
	int	fd = memfd_create("overlay", MFD_CLOEXEC);

	assert_int_not_equal(fd, -1);
	assert_int_equal(ftruncate(fd, (off_t)OVERLAY_BYTES), 0);
	return fd;
}

static void
open_store(bool same_overlay)
{
	struct store_options	o = { .dir = f.dir, .segment_size = SEGMENT, .region_id = 7 };

	if (!same_overlay) {
		if (f.overlay != -1)
			close(f.overlay);
		f.overlay = new_overlay();
	}
	if (store_open(&f.s, f.dirfd, f.overlay, &o) == -1)
		fail_msg("open: %s", f.s.reason);
	assert_false(f.s.damaged);
	store_publish(&f.s);
	f.ck = checkpointer_create(&f.s, f.pin, nobody, NULL);
	memset(&f.compaction, 0, sizeof(f.compaction));
}

static void
close_store(void)
{
	if (f.ck == NULL)
		return;
	checkpointer_destroy(f.ck);
	f.ck = NULL;
	store_close(&f.s);
}

static int
setup(void **state)
{
	(void)state;
	proc_become(IN_TEST, 0);
	strcpy(f.dir, "/tmp/b_store.XXXXXX");
	assert_non_null(mkdtemp(f.dir));
	f.dirfd = open(f.dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	f.overlay = -1;
	f.pin = calloc(1, 128);
	f.ms = 1;
	f.checkpoints = f.unlinked = 0;
	memset(model, 0, sizeof(model));
	open_store(false);
	return 0;
}

static int
teardown(void **state)
{
	(void)state;
	close_store();
	close(f.overlay);
	close(f.dirfd);
	free(f.pin);
	t_remove_tree(f.dir);
	return 0;
}

/* ------------------------------------------------------------ writing */

struct write {			/* an op and its memory */
	struct op	 op;
	struct iovec	 iov;
	uint8_t		*buf;
	struct tag	 tag;
};

static void
make_write(struct write *w, enum submit_op kind, uint32_t tenant, const char *path, const void *body, uint32_t len)
{
	const char	*meta = kind == OP_PUT ? "Content-Type: text/plain\r\n" : "";
	size_t		 np = strlen(path), nm = strlen(meta), front = SUBMIT_HEADROOM + np + nm;
	uint64_t	 table = table_bytes(front, len), total = front + len + table;
	uint32_t	 crc = 0;

	w->buf = calloc(1, total + 8);
	memcpy(w->buf + SUBMIT_HEADROOM, path, np);
	memcpy(w->buf + SUBMIT_HEADROOM + np, meta, nm);
	if (len != 0)
		memcpy(w->buf + front, body, len);
	if (len > SUBMIT_CHUNK) {
		uint8_t	*t = w->buf + total - 4 * body_chunks(len);

		for (uint64_t i = 0; i < body_chunks(len); i++) {
			uint64_t	left = len - i * SUBMIT_CHUNK;
			uint32_t	sum = crc32c(0, w->buf + front + i * SUBMIT_CHUNK,
			    left < SUBMIT_CHUNK ? left : SUBMIT_CHUNK);

			memcpy(t + 4 * i, &sum, 4);
		}
		crc = crc32c(0, t, 4 * body_chunks(len));
	} else if (len != 0)
		crc = crc32c(0, body, len);
	w->iov = (struct iovec){ w->buf, total };
	w->op = (struct op){
		.kind = kind, .tenant = tenant, .path = w->buf + SUBMIT_HEADROOM, .path_len = (uint16_t)np,
		.meta_len = (uint16_t)nm, .body_len = len, .body_crc = crc,
		.payload_len = total - SUBMIT_HEADROOM, .iov = &w->iov, .niov = 1,
		.lane = REC_LANE_NONE,
	};
}

static struct write	pending[64];
static unsigned		npending;

static void
flush(void)
{
	if (!batch_empty(&f.s)) {
		assert_int_equal(batch_write(&f.s), 0);
		assert_int_equal(log_sync(&f.s.log), 0);
		batch_publish(&f.s);
	}
	while (npending > 0)
		free(pending[--npending].buf);
	overlay_reclaim(&f.s.overlay, pin_oldest(f.pin, 1), f.s.root.gen);
	f.unlinked += compact_unlink(&f.s, pin_oldest(f.pin, 1));
}

static void	housekeep(void);

static struct result
run(struct write w)
{
	struct result	r;

	if (npending == 64)
		flush();
	if (batch_add(&f.s, &w.op, &r, batch_empty(&f.s)) == ADD_LATER) {
		flush();
		/* once more: a new segment may have to wait until a checkpoint has made room for it */
		while (batch_add(&f.s, &w.op, &r, true) == ADD_LATER) {
			assert_int_equal(f.s.error, ERR_NONE);
			housekeep();
		}
	}
	pending[npending++] = w;
	return r;
}

static void
name_of(char *out, unsigned i)
{
	sprintf(out, "d%u/n%u", i % 7, i);
}

static void
put(unsigned t, unsigned i, uint32_t len)
{
	struct entry	*e = &model[t][i];
	struct result	 r;
	struct write	 w;
	char		 name[32];
	uint8_t		*body = malloc(len + 1);
	uint32_t	 seed = rnd(1u << 30);

	name_of(name, i);
	fill_body(body, len, seed);
	make_write(&w, OP_PUT, tenant_id[t], name, body, len);
	free(body);
	r = run(w);
	assert_int_equal(r.outcome, e->live ? OUT_REPLACED : OUT_CREATED);
	assert_true(r.seq > e->seq);
	assert_true(r.time_ms >= e->time_ms);
	*e = (struct entry){ true, r.seq, r.run, len, seed, r.time_ms };
}

static void
del(unsigned t, unsigned i)
{
	struct entry	*e = &model[t][i];
	struct result	 r;
	struct write	 w;
	char		 name[32];

	name_of(name, i);
	make_write(&w, OP_DELETE, tenant_id[t], name, NULL, 0);
	r = run(w);
	assert_int_equal(r.outcome, e->live ? OUT_DELETED : OUT_ABSENT);
	if (e->live)
		*e = (struct entry){ .seq = r.seq };
}

static void
make_tenant(unsigned t)
{
	struct tenant_settings	set = { .public = PUBLIC_WRITE };
	struct rec_head	const	*h;
	struct doc_val		 v;
	struct write		 w;
	uint8_t			 key[KEY_MAX];
	char			 name[16];

	sprintf(name, "t%u", t);
	make_write(&w, OP_TENANT_PUT, 0, name, &set, sizeof(set));
	run(w);
	flush();
	assert_int_equal(tree_get(&f.s.w.t, key, key_make(key, 0, name, strlen(name)), &v), 1);
	h = log_record(&f.s.log, v.segment, v.offset);
	assert_non_null(h);
	memcpy(&set, rec_body(h), sizeof(set));
	tenant_id[t] = set.id;
	assert_true(tenant_alive(&f.s, set.id));
}

static void
drop_tenant(unsigned t)
{
	struct write	w;
	char		name[16];

	sprintf(name, "t%u", t);
	make_write(&w, OP_TENANT_DROP, 0, name, NULL, 0);
	assert_int_equal(run(w).outcome, OUT_DELETED);
	flush();
	assert_false(tenant_alive(&f.s, tenant_id[t]));
	for (unsigned i = 0; i < NAMES; i++)
		model[t][i] = (struct entry){ 0 };
}

/* ------------------------------------------------------------ comparing */

static void
compare_one(unsigned t, unsigned i)
{
	struct entry		*e = &model[t][i];
	const struct rec_head	*h;
	struct doc_val		 v;
	uint8_t			 key[KEY_MAX], *body;
	char			 name[32];
	int			 n;

	name_of(name, i);
	n = tree_get(&f.s.w.t, key, key_make(key, tenant_id[t], name, strlen(name)), &v);
	assert_int_not_equal(n, -1);
	if (n == 0 || (v.flags & DOC_TOMBSTONE)) {
		assert_false(e->live);
		return;
	}
	assert_true(e->live);
	assert_int_equal(v.seq, e->seq);
	assert_int_equal(v.run, e->run);
	assert_int_equal(v.body_len, e->len);
	assert_int_equal(v.time_ms, e->time_ms);
	h = log_record(&f.s.log, v.segment, v.offset);
	assert_non_null(h);
	assert_true(rec_body_ok(h));
	assert_int_equal(h->body_len, e->len);
	body = malloc(e->len + 1);
	fill_body(body, e->len, e->seed);
	assert_memory_equal(rec_body(h), body, e->len);
	free(body);
}

static void
compare(void)
{
	char	err[128];

	flush();
	if (tree_verify(&f.s.w.t, err, sizeof(err)) == -1)
		fail_msg("%s", err);
	for (unsigned t = 0; t < TENANTS; t++) {
		uint8_t		lo[KEY_MAX], hi[KEY_MAX];
		uint64_t	count = 0, bytes = 0;
		struct agg	a;

		for (unsigned i = 0; i < NAMES; i++) {
			compare_one(t, i);
			count += model[t][i].live;
			bytes += model[t][i].len;
		}
		assert_int_equal(tree_range(&f.s.w.t, lo, key_make(lo, tenant_id[t], NULL, 0),
		    hi, key_make(hi, tenant_id[t] + 1, NULL, 0), &a), 0);
		assert_int_equal(a.count, count);
		assert_int_equal(a.bytes, bytes);
	}
}

/* Live bytes per segment, counted anew from the tree. */
static void
compare_live(void)
{
	struct cursor	c;
	uint64_t	*live = calloc(f.s.log.nseg, sizeof(*live));
	int		 n;

	flush();
	for (n = cursor_seek(&c, &f.s.w.t, "", 0); n == 1; n = cursor_next(&c)) {
		const uint8_t	*key;
		struct doc_val	 v;
		size_t		 len;

		cursor_entry(&c, &key, &len, &v);
		assert_non_null(log_segment(&f.s.log, v.segment));
		live[log_segment(&f.s.log, v.segment) - f.s.log.seg] += v.rec_len;
	}
	assert_int_equal(n, 0);
	for (unsigned i = 0; i < f.s.log.nseg; i++)
		assert_int_equal(f.s.log.seg[i].live, live[i]);
	free(live);
}

/* Lets checkpoint and compaction do what they would between batches. */
static void
housekeep(void)
{
	for (int i = 0; i < 200; i++) {
		enum checkpoint_event	e;

		flush();
		e = checkpointer_step(f.ck, true, pin_oldest(f.pin, 1), f.ms += 50);
		if (e == CHECKPOINT_SWITCHED)
			f.checkpoints++;
		compact_drop(&f.s, true);
		compact_step(&f.s, &f.compaction, 64 << 10, true);
		if (e == CHECKPOINT_NOTHING && batch_empty(&f.s) && i > 100)
			break;
		sched_yield();	/* the checkpoint thread's turn */
	}
	flush();
}

static void
random_step(void)
{
	unsigned	t = rnd(TENANTS), i = rnd(NAMES);
	uint32_t	what = rnd(1000);

	if (what < 700)
		put(t, i, rnd(2000));
	else if (what < 720)
		put(t, i, 60000 + rnd(10000));
	else if (what < 725)
		put(t, i, 65536 * (1 + rnd(4)) + rnd(3) - 1);
	else if (what < 900)
		del(t, i);
	else if (what < 980)
		flush();
	else
		housekeep();
}

/* ------------------------------------------------------------ claims */

static void
a_fresh_store_is_empty_and_opens_again(void **state)
{
	(void)state;
	assert_int_equal(f.s.log.nseg, 1);
	close_store();
	open_store(true);
	assert_int_equal(f.s.w.t.root, PAGE_NONE);
}

static void
what_is_written_is_there_after_opening_again(void **state)
{
	(void)state;
	for (unsigned t = 0; t < TENANTS; t++)
		make_tenant(t);
	for (unsigned i = 0; i < NAMES; i++)
		put(i % TENANTS, i, i);
	compare();
	close_store();
	open_store(false);
	compare();
	compare_live();
}

static void
an_unwritten_batch_leaves_no_trace(void **state)
{
	struct write	w;
	struct result	r;

	(void)state;
	for (unsigned t = 0; t < TENANTS; t++)
		make_tenant(t);
	put(0, 1, 100);
	flush();
	make_write(&w, OP_PUT, tenant_id[0], "never", "x", 1);
	assert_int_equal(batch_add(&f.s, &w.op, &r, true), ADD_DONE);
	assert_int_equal(r.outcome, OUT_CREATED);
	close_store();
	free(w.buf);
	open_store(true);
	compare();
}

/* An empty batch behind the last one: once, until there is another; not where it cannot be. */
static void
an_idle_log_is_closed_once(void **state)
{
	uint64_t	end;

	(void)state;
	assert_false(batch_close(&f.s));	/* nothing was ever written */
	make_tenant(0);
	for (unsigned i = 0; i < 3; i++) {
		put(0, i, 100);
		assert_false(batch_close(&f.s));	/* something is to be written */
		flush();
		f.s.full = true;
		assert_false(batch_close(&f.s));
		f.s.full = false;
		if (i == 1) {			/* not closed when it was left: that is seen */
			close_store();
			open_store(true);
		}
		end = f.s.log.pos.offset;
		assert_true(batch_close(&f.s));
		assert_int_equal(batch_write(&f.s), 0);
		assert_false(batch_close(&f.s));	/* it is not public yet */
		assert_int_equal(log_sync(&f.s.log), 0);
		batch_publish(&f.s);
		assert_int_equal(f.s.log.pos.offset, end + sizeof(struct commit_rec));
		assert_false(batch_close(&f.s));
		close_store();
		open_store(i == 0);
		assert_false(batch_close(&f.s));
		assert_int_equal(f.s.log.pos.offset, end + sizeof(struct commit_rec));
		compare();
		compare_live();
	}
	/* the next segment's head says what an empty batch would */
	put(0, 3, 100);
	flush();
	put(0, 4, (uint32_t)log_left(&f.s.log));
	flush();
	assert_int_equal(f.s.log.pos.segment, 2);
	assert_true(batch_close(&f.s));
	close_store();
	open_store(false);
	compare();
}

static void
conditions_are_decided_one_after_another(void **state)
{
	struct write	w;
	struct result	first, r;
	struct tag	tag;

	(void)state;
	make_tenant(0);
	make_write(&w, OP_PUT, tenant_id[0], "a", "1", 1);
	first = run(w);
	tag = (struct tag){ .seq = first.seq, .run = first.run };
	for (int i = 0; i < 64; i++) {
		make_write(&w, OP_PUT, tenant_id[0], "a", "2", 1);
		w.op.cond = COND_MATCH;
		w.op.n_match = 1;
		w.op.match = &tag;
		r = run(w);
		assert_int_equal(r.outcome, i == 0 ? OUT_REPLACED : OUT_CONDITION);
		assert_true(r.seq > first.seq);
	}
	make_write(&w, OP_PUT, tenant_id[0], "a", "3", 1);
	w.op.cond = COND_NONE_MATCH_ANY;
	assert_int_equal(run(w).outcome, OUT_CONDITION);
	make_write(&w, OP_PUT, tenant_id[0], "b", "3", 1);
	w.op.cond = COND_MATCH_ANY;
	assert_int_equal(run(w).outcome, OUT_CONDITION);
	make_write(&w, OP_DELETE, tenant_id[0], "b", NULL, 0);
	w.op.cond = COND_MATCH_ANY;
	assert_int_equal(run(w).outcome, OUT_ABSENT);
	flush();
}

static void
a_name_is_a_document_or_a_folder(void **state)
{
	static const struct { const char *path; enum submit_op op; enum outcome want; } rows[] = {
		{ "a/b/c", OP_PUT, OUT_CREATED },
		{ "a", OP_PUT, OUT_CONFLICT },
		{ "a/b", OP_PUT, OUT_CONFLICT },
		{ "a/b/c/d", OP_PUT, OUT_CONFLICT },
		{ "a/b.", OP_PUT, OUT_CREATED },	/* '.' sorts before '/', '0' behind */
		{ "a/b0", OP_PUT, OUT_CREATED },
		{ "a/b/c", OP_DELETE, OUT_DELETED },
		{ "a/b", OP_PUT, OUT_CREATED },
		{ "a/b/c", OP_PUT, OUT_CONFLICT },
	};

	(void)state;
	make_tenant(0);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct write	w;

		make_write(&w, rows[i].op, tenant_id[0], rows[i].path, "x", rows[i].op == OP_PUT);
		assert_int_equal(run(w).outcome, rows[i].want);
	}
	make_write(&pending[npending], OP_PUT, tenant_id[0] + 9, "a", "x", 1);
	assert_int_equal(run(pending[npending]).outcome, OUT_NO_TENANT);
	flush();
}

static void
a_dropped_tenant_is_gone_for_good(void **state)
{
	uint32_t	old;

	(void)state;
	for (unsigned t = 0; t < TENANTS; t++)
		make_tenant(t);
	for (unsigned i = 0; i < NAMES; i++)
		put(i % TENANTS, i, 300);
	old = tenant_id[1];
	drop_tenant(1);
	compare();
	make_tenant(1);
	assert_int_not_equal(tenant_id[1], old);
	put(1, 4, 10);
	flush();
	for (int same = 0; same < 2; same++) {
		close_store();
		open_store(same);
		compare();
		compare_live();
		assert_false(tenant_alive(&f.s, old));
		assert_true(tenant_alive(&f.s, tenant_id[1]));
	}
}

static void
a_random_life_with_reopening_is_the_model(void **state)
{
	(void)state;
	for (unsigned t = 0; t < TENANTS; t++)
		make_tenant(t);
	for (int round = 0; round < 12; round++) {
		for (int i = 0; i < 1500; i++)
			random_step();
		compare();
		compare_live();
		flush();
		if (round % 4 == 3) {
			drop_tenant(round % TENANTS);
			make_tenant(round % TENANTS);
		}
		close_store();
		open_store(round % 2 == 0);
		compare();
		compare_live();
	}
	assert_true(f.checkpoints > 0);
	assert_true(f.unlinked > 0);
}

static void
a_store_without_its_checkpoint_is_rebuilt(void **state)
{
	char	name[32];

	(void)state;
	for (unsigned t = 0; t < TENANTS; t++)
		make_tenant(t);
	while (f.checkpoints < 2 || f.unlinked < 2)
		random_step();
	compare();
	for (int damage = 0; damage < 2; damage++) {
		sprintf(name, "tree-%010u", f.s.ck.head.number);
		flush();
		close_store();
		if (damage) {
			int	fd = openat(f.dirfd, name, O_WRONLY);

			if (fd != -1) {
				assert_int_equal(pwrite(fd, "damaged", 7, 40), 7);
				close(fd);
			}
		} else
			assert_int_equal(unlinkat(f.dirfd, name, 0), 0);
		open_store(false);
		assert_int_equal(f.s.ck.head.number, 0);
		compare();
		compare_live();
		while (f.s.ck.head.number == 0)
			random_step();
	}
}

/*
 * A committer died between renaming a checkpoint and switching to it.  Until
 * its successor has published, a worker that is born now finds the old root
 * and opens the old file.
 */
static void
the_published_checkpoint_stays_until_the_next_root_is_public(void **state)
{
	struct store_options	o = { .dir = f.dir, .segment_size = SEGMENT, .region_id = 7 };
	uint32_t		old, new;
	char			name[32];

	(void)state;
	for (unsigned t = 0; t < TENANTS; t++)
		make_tenant(t);
	while (f.checkpoints < 1)
		random_step();
	housekeep();
	old = f.s.ck.head.number;
	while ((new = checkpoint_newest(f.dirfd, 0)) == old) {
		for (unsigned i = 0; i < 100; i++)
			put(i % TENANTS, rnd(NAMES), 2000);
		flush();
		/* begins one when it is due; never called again, so the switch does not happen */
		checkpointer_step(f.ck, true, pin_oldest(f.pin, 1), f.ms += 50);
		sched_yield();
		if (f.s.ck.head.number != old)
			old = f.s.ck.head.number;
	}
	flush();
	close_store();
	assert_int_equal(store_open(&f.s, f.dirfd, f.overlay, &o), 0);
	f.ck = checkpointer_create(&f.s, f.pin, nobody, NULL);
	assert_int_equal(f.s.ck.head.number, new);
	sprintf(name, "tree-%010u", old);
	assert_int_equal(faccessat(f.dirfd, name, R_OK, 0), 0);
	store_publish(&f.s);
	assert_int_equal(faccessat(f.dirfd, name, R_OK, 0), -1);
	compare();
}

static void
disk_use_is_bounded_when_the_same_names_are_written_for_ever(void **state)
{
	(void)state;
	make_tenant(0);
	for (int round = 0; round < 60; round++) {
		uint64_t	bytes = 0, live = 0;

		for (unsigned i = 0; i < NAMES; i++)
			put(0, i, 1500 + rnd(3000));
		housekeep();
		for (unsigned i = 0; i < f.s.log.nseg; i++) {
			bytes += f.s.log.seg[i].bytes;
			live += f.s.log.seg[i].live;
		}
		assert_true(bytes <= live * 5 / 2 + 4 * SEGMENT);
	}
	compare();
	compare_live();
}

/* What compaction may move for `died` bytes that died since. */
static uint64_t
budget(uint64_t died, bool idle)
{
	struct compaction	c = { 0 };

	f.s.died = died;
	return compact_budget(&f.s, &c, idle);
}

static void
compaction_moves_unasked_only_where_space_is_half_way_to_its_end(void **state)
{
	unsigned	early = 0, late = 0;

	(void)state;
	make_tenant(0);
	for (unsigned i = 0; late == 0 && i < 20000; i++) {
		put(0, i < NAMES ? i : rnd(NAMES), 4000);
		flush();

		uint64_t	may = budget(1 << 20, false);

		assert_true(budget(0, true) == (may < 1 << 20 ? 0 : 128 << 10));
		early += may != 0 && may < 1 << 20;
		late += may >= 1 << 20;
	}
	assert_true(early > 0 && late > 0);
}

static void
a_segment_that_was_begun_and_left_gets_its_list_first(void **state)
{
	const struct rec_head	*h;
	uint32_t		 at = SEGMENT_HEAD;
	bool			 rolled;

	(void)state;
	make_tenant(0);
	put(0, 1, 100);
	flush();
	assert_int_equal(log_room(&f.s.log, log_left(&f.s.log) + 1, f.s.max_seq + 1, &rolled), 0);
	assert_true(rolled);
	close_store();
	open_store(false);
	assert_int_equal(f.s.log.pos.segment, 2);
	put(0, 2, 100);
	flush();
	assert_int_equal(log_next(&f.s.log, 2, &at, &h), 1);
	assert_int_equal(h->kind, REC_SEGMENTS);
	close_store();
	open_store(false);
	assert_true(batch_empty(&f.s));
	compare();
}

/* Without it a segment that was dropped looks like one that is lost. */
static void
a_segment_without_memory_for_its_list_gets_it_with_the_next_write(void **state)
{
	const struct rec_head	*h;
	struct result		 r;
	struct write		 w;
	uint32_t		 at = SEGMENT_HEAD;
	uint8_t			*body = malloc(SEGMENT);
	uint32_t		 len = SEGMENT / 2;

	(void)state;
	make_tenant(0);
	put(0, 1, len);
	flush();
	fill_body(body, len, 3);
	for (int i = 0; i < 3; i++) {
		make_write(&w, OP_PUT, tenant_id[0], "x", body, len);
		no_calloc = true;
		assert_int_equal(batch_add(&f.s, &w.op, &r, true), ADD_DONE);
		no_calloc = false;
		assert_int_equal(r.outcome, OUT_FULL);
		free(w.buf);
		assert_int_equal(f.s.log.pos.segment, 2);
		assert_true(batch_empty(&f.s));
		assert_false(f.s.full);
		assert_int_equal(f.s.error, ERR_NONE);
	}
	put(0, 2, len);
	flush();
	assert_int_equal(log_next(&f.s.log, 2, &at, &h), 1);
	assert_int_equal(h->kind, REC_SEGMENTS);
	close_store();
	open_store(false);
	compare();
	free(body);
}

/* The list of 20,000 segments has a table of checksums, as any body beyond 64 KiB. */
static void
a_record_of_our_own_may_be_as_large_as_a_list_gets(void **state)
{
	const struct rec_head	*h;
	uint32_t		 at = SEGMENT_HEAD, end, len = 20000 * sizeof(uint32_t);
	uint8_t			*body = malloc(len);

	(void)state;
	fill_body(body, len, 9);
	make_tenant(0);
	put(0, 1, 100);
	/* of a kind that recovery passes over where its length is odd */
	assert_int_equal(batch_add_own(&f.s, REC_DROP_SEGMENT, body, len, false), 0);
	put(0, 2, 100);
	flush();
	close_store();
	open_store(false);
	compare();
	end = (uint32_t)f.s.log.pos.offset;
	for (h = NULL; at < end && (h == NULL || h->body_len != len); at += (uint32_t)rec_bytes(h))
		assert_int_equal(log_next(&f.s.log, 1, &at, &h), 1);
	assert_true(rec_body_ok(h));
	assert_memory_equal(rec_body(h), body, len);
	free(body);
}

/* The tree that was begun on a damaged checkpoint takes no memory beside the one that counts. */
static void
what_was_built_on_a_damaged_checkpoint_is_given_back(void **state)
{
	char		name[32];
	uint8_t		b;
	uint64_t	at;
	uint32_t	pages[2];
	int		fd;

	(void)state;
	for (unsigned t = 0; t < TENANTS; t++)
		make_tenant(t);
	while (f.checkpoints < 2 || f.s.ck.head.npages < 5)
		random_step();
	for (unsigned i = 0; i < NAMES; i += 7)
		put(0, i, 100);
	put(2, 97, 100);	/* in the last leaf */
	flush();
	sprintf(name, "tree-%010u", f.s.ck.head.number);
	at = (f.s.ck.head.npages - 2) * PAGE_BYTES + 2000;
	close_store();
	assert_int_not_equal(fd = openat(f.dirfd, name, O_RDWR), -1);
	assert_int_equal(pread(fd, &b, 1, (off_t)at), 1);
	b ^= 1;
	assert_int_equal(pwrite(fd, &b, 1, (off_t)at), 1);
	close(fd);
	open_store(false);
	assert_int_equal(f.s.ck.head.number, 0);
	compare();
	pages[0] = f.s.overlay.next;
	close_store();
	(void)unlinkat(f.dirfd, name, 0);
	open_store(false);
	pages[1] = f.s.overlay.next;
	assert_int_equal(pages[0], pages[1]);
	compare();
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
int
main(void)
{
	static const struct CMUnitTest	tests[] = {
		T(a_fresh_store_is_empty_and_opens_again),
		T(what_is_written_is_there_after_opening_again),
		T(an_unwritten_batch_leaves_no_trace),
		T(an_idle_log_is_closed_once),
		T(conditions_are_decided_one_after_another),
		T(a_name_is_a_document_or_a_folder),
		T(a_dropped_tenant_is_gone_for_good),
		T(a_random_life_with_reopening_is_the_model),
		T(a_store_without_its_checkpoint_is_rebuilt),
		T(the_published_checkpoint_stays_until_the_next_root_is_public),
		T(disk_use_is_bounded_when_the_same_names_are_written_for_ever),
		T(compaction_moves_unasked_only_where_space_is_half_way_to_its_end),
		T(a_segment_that_was_begun_and_left_gets_its_list_first),
		T(a_segment_without_memory_for_its_list_gets_it_with_the_next_write),
		T(a_record_of_our_own_may_be_as_large_as_a_list_gets),
		T(what_was_built_on_a_damaged_checkpoint_is_given_back),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
