/*
 * tests/b_check.c - store/check.h, store/repair.h, store/salvage.h, and what recovery does with damage.
 *
 * A small store (several tenants, small documents and one of two chunks, old versions,
 * deletions, a dropped tenant, moved records, a dropped segment, with and without a
 * checkpoint) is kept in memory.  One thing is damaged, everything is looked
 * at: the check, each document through the workers' own reading, the repair.
 * Then it is put back.
 *
 * HOLDFAST_DAMAGE=all (make check-damage): every byte and every length; else a share.
 */
#include "config.h"

#include <sys/stat.h>
#include <bsd/string.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>

#include "shm/crc32c.h"
#include "shm/log.h"
#include "shm/proc.h"
#include "store/check.h"
#include "store/read.h"
#include "store/repair.h"
#include "store/salvage.h"
#include "store/segment.h"
#include "store/store.h"
#include "tests/unit.h"

#define SEGMENT		32768u
#define FILES		32
#define DOCS		24
#define VERSIONS	160

/* ------------------------------------------------------------ the world */

static char		 dir[64];
static int		 dfd;
static struct region	 region;
static struct store	 s;
static int		 overlay = -1;

struct version {		/* of a document, as it was written once */
	uint32_t	tenant;
	char		path[24];
	uint64_t	seq;
	uint32_t	seed, len;
	bool		deleted;
	bool		dropped;	/* with its tenant */
	bool		last;		/* in the last batch */
};
static struct version	versions[VERSIONS];
static unsigned		nversions;
static uint32_t		ids[3];		/* of t0, t1, t2 */

struct file {
	char		 name[256];
	uint8_t		*bytes;
	uint8_t		*used;		/* each byte: does anything vouch for it? */
	size_t		 len;
	uint64_t	 last_batch;	/* of the last segment: where it begins */
};
static struct file	files[FILES];
static unsigned		nfiles;

static bool
all(void)
{
	const char	*e = getenv("HOLDFAST_DAMAGE");

	return e != NULL && strcmp(e, "all") == 0;
}

static void
fill_body(uint8_t *p, uint32_t len, uint32_t seed)
{
	for (uint32_t i = 0; i < len; i++)
		p[i] = (uint8_t)(1 + (seed * 31 + i * 7 + (i >> 8)) % 255);
}

/* The newest version of a name that was written up to number `upto`. */
static const struct version *
newest(uint32_t tenant, const char *path, unsigned upto)
{
	for (unsigned i = upto; i-- > 0;)
		if (versions[i].tenant == tenant && strcmp(versions[i].path, path) == 0)
			return &versions[i];
	return NULL;
}

static bool
is_newest(unsigned i)
{
	return newest(versions[i].tenant, versions[i].path, nversions) == &versions[i];
}

static char	where[160];	/* what was damaged */

__attribute__((format(printf, 1, 2))) static void
place(const char *fmt, ...)
{
	va_list	ap;

	va_start(ap, fmt);
	vsnprintf(where, sizeof(where), fmt, ap);
	va_end(ap);
}

/* ------------------------------------------------------------ opening */

static void
new_overlay(void)
{
	if (overlay != -1)
		close(overlay);
	overlay = memfd_create("overlay", MFD_CLOEXEC);
	assert_int_not_equal(overlay, -1);
	assert_int_equal(ftruncate(overlay, (off_t)OVERLAY_BYTES), 0);
}

static int
try_open(void)
{
	struct store_options	o = { .dir = dir, .segment_size = SEGMENT, .region_id = 7 };

	new_overlay();
	if (store_open(&s, dfd, overlay, &o) == -1)
		return -1;
	store_publish(&s);
	return 0;
}

static void
open_store(void)
{
	if (try_open() == -1)
		fail_msg("open: %s", s.reason);
}

static uint8_t	*borrowed[64];		/* by the batch being built */
static unsigned	 nborrowed;

static void
flush(void)
{
	if (!batch_empty(&s)) {
		assert_int_equal(batch_write(&s), 0);
		assert_int_equal(log_sync(&s.log), 0);
		batch_publish(&s);
	}
	while (nborrowed > 0)
		free(borrowed[--nborrowed]);
}

/* ------------------------------------------------------------ writing */

static struct result
run(enum submit_op kind, uint32_t tenant, const char *path, const void *body, uint32_t len)
{
	const char	*meta = kind == OP_PUT ? "Content-Type: text/plain\r\n" : "";
	size_t		 np = strlen(path), nm = strlen(meta), front = SUBMIT_HEADROOM + np + nm;
	uint64_t	 total = front + len + table_bytes(front, len);
	uint8_t		*buf = calloc(1, total + 8), *t = buf + total - 4 * body_chunks(len);
	uint32_t	 crc = len != 0 ? crc32c(0, body, len) : 0, sum;
	struct result	 r;

	memcpy(buf + SUBMIT_HEADROOM, path, np);
	memcpy(buf + SUBMIT_HEADROOM + np, meta, nm);
	if (len != 0)
		memcpy(buf + front, body, len);
	for (uint32_t i = 0; len > SUBMIT_CHUNK && i < body_chunks(len); i++) {
		uint32_t	left = len - i * SUBMIT_CHUNK;

		sum = crc32c(0, (const uint8_t *)body + i * SUBMIT_CHUNK, left < SUBMIT_CHUNK ? left : SUBMIT_CHUNK);
		memcpy(t + 4 * i, &sum, 4);
	}
	if (len > SUBMIT_CHUNK)
		crc = crc32c(0, t, 4 * body_chunks(len));
	struct iovec	 iov = { buf, total };
	struct op	 op = {
		.kind = kind, .tenant = tenant, .path = buf + SUBMIT_HEADROOM, .path_len = (uint16_t)np,
		.meta_len = (uint16_t)nm, .body_len = len, .body_crc = crc,
		.payload_len = total - SUBMIT_HEADROOM, .iov = &iov, .niov = 1,
		.lane = REC_LANE_NONE,
	};

	while (batch_add(&s, &op, &r, batch_empty(&s)) == ADD_LATER) {
		flush();
		if (s.held_since != 0)
			s.held_since = 1;	/* nobody is going to compact here: it has waited long enough */
	}
	if (nborrowed == sizeof(borrowed) / sizeof(borrowed[0]))
		flush();
	borrowed[nborrowed++] = buf;
	return r;
}

static void
put(unsigned t, const char *path, uint32_t len)
{
	struct version	*v = &versions[nversions++];
	uint8_t		*body = malloc(len + 1);

	assert_true(nversions <= VERSIONS);
	*v = (struct version){ .tenant = ids[t], .seed = nversions, .len = len };
	snprintf(v->path, sizeof(v->path), "%s", path);
	fill_body(body, len, v->seed);
	v->seq = run(OP_PUT, ids[t], path, body, len).seq;
	assert_int_not_equal(v->seq, 0);
	free(body);
}

static void
del(unsigned t, const char *path)
{
	struct version	*v = &versions[nversions++];
	struct result	 r = run(OP_DELETE, ids[t], path, NULL, 0);

	assert_int_equal(r.outcome, OUT_DELETED);
	*v = (struct version){ .tenant = ids[t], .seq = r.seq, .deleted = true };
	snprintf(v->path, sizeof(v->path), "%s", path);
}

static void
tenant(unsigned t, const char *name)
{
	struct tenant_settings	set = { .public = PUBLIC_WRITE };

	run(OP_TENANT_PUT, 0, name, &set, sizeof(set));
	flush();
	ids[t] = s.next_tenant - 1;
}

/* Moves what is live in a segment, as compaction does. */
static void
move_all(uint32_t segment)
{
	const struct rec_head	*h;
	uint32_t		 offset = SEGMENT_HEAD;
	uint8_t			 key[KEY_MAX];
	struct doc_val		 v;

	while (log_next(&s.log, segment, &offset, &h) == 1) {
		uint32_t	owner = h->kind == REC_DROP_TENANT ? 0 : h->tenant, at = offset;

		offset += (uint32_t)rec_bytes(h);
		if (h->kind > REC_DROP_TENANT ||
		    tree_get(&s.w.t, key, key_make(key, owner, rec_path(h), h->path_len), &v) != 1 ||
		    v.segment != segment || v.offset != at)
			continue;
		while (batch_add_moved(&s, h, batch_empty(&s)) == -1) {
			assert_int_equal(errno, EAGAIN);
			flush();
			if (s.held_since != 0)
				s.held_since = 1;
		}
	}
	flush();
}

static void
checkpoint(void)
{
	static const int		never;
	struct checkpoint_segment	seg[FILES];
	struct checkpoint_head		h = {
		.store_id = s.log.store_id, .mark = s.log.mark, .number = s.ck.head.number + 1,
		.segment = s.log.pos.segment, .chain = s.log.pos.chain, .offset = s.log.pos.offset,
		.batch = s.log.pos.batch, .max_seq = s.max_seq, .time_ms = s.time_ms, .next_tenant = s.next_tenant,
	};

	for (unsigned i = 0; i < s.log.nseg; i++)
		if (!s.log.seg[i].dropped)
			seg[h.nsegments++] = (struct checkpoint_segment){
				.number = s.log.seg[i].number, .bytes = s.log.seg[i].bytes, .end = s.log.seg[i].end,
				.live = s.log.seg[i].live, .first_seq = s.log.seg[i].first_seq,
			};
	assert_int_equal(checkpoint_write(&s.w.t, dfd, &h, seg, &never, NULL, NULL), 0);
	store_close(&s);
	open_store();
	assert_int_equal(s.ck.head.number, h.number);
}

/* ------------------------------------------------------------ the store that is damaged */

static void
some_life(void)
{
	char	path[24];

	for (unsigned i = 0; i < DOCS; i++) {
		snprintf(path, sizeof(path), "d%u/n%u", i % 3, i);
		put(i % 2, path, 40 + 97 * i);
		if (i % 5 == 4)
			flush();
	}
	flush();
	for (unsigned i = 0; i < DOCS; i += 4) {
		snprintf(path, sizeof(path), "d%u/n%u", i % 3, i);
		put(i % 2, path, 30 + 11 * i);
	}
	flush();
	for (unsigned i = 3; i < DOCS; i += 6) {
		snprintf(path, sizeof(path), "d%u/n%u", i % 3, i);
		del(i % 2, path);
	}
	put(1, "empty", 0);
	flush();
}

static void
take_file(const char *name)
{
	struct file	*f = &files[nfiles++];
	struct stat	 st;
	int		 fd = openat(dfd, name, O_RDONLY);

	assert_true(nfiles <= FILES && fd != -1);
	assert_int_equal(fstat(fd, &st), 0);
	strlcpy(f->name, name, sizeof(f->name));
	f->len = (size_t)st.st_size;
	f->bytes = malloc(f->len);
	f->used = calloc(1, f->len);
	assert_int_equal(read(fd, f->bytes, f->len), f->len);
	close(fd);
}

static void
use(struct file *f, uint64_t from, uint64_t len)
{
	memset(f->used + from, 1, len);
}

/* What checksums vouch for: all but padding, and what nobody has written yet. */
static void
find_used(struct file *f)
{
	struct checkpoint_head	 ck;
	struct rec_head		 h;
	uint64_t		 at = SEGMENT_HEAD, first = at, table;

	if (strncmp(f->name, "tree-", 5) == 0) {
		memcpy(&ck, f->bytes, sizeof(ck));
		use(f, 0, sizeof(ck));
		use(f, PAGE_BYTES, f->len - PAGE_BYTES);
		return;
	}
	use(f, 0, sizeof(struct segment_head));
	while (at + sizeof(h) <= f->len) {
		if (memcmp(f->bytes + at, &s.log.mark, sizeof(s.log.mark)) == 0) {
			use(f, at, sizeof(struct commit_rec));
			f->last_batch = first;
			first = at += sizeof(struct commit_rec);
			continue;
		}
		memcpy(&h, f->bytes + at, sizeof(h));
		if (h.kind == 0)
			break;
		use(f, at, sizeof(h) + h.path_len + h.meta_len + h.body_len);
		table = 4 * body_chunks(h.body_len);
		if (h.body_len > SUBMIT_CHUNK)
			use(f, at + sizeof(h) + h.path_len + h.meta_len + h.body_len +
			    table_bytes(sizeof(h) + (uint64_t)h.path_len + h.meta_len, h.body_len) - table, table);
		at += rec_bytes(&h);
	}
}

static void
take_files(void)
{
	DIR		*d = opendir(dir);
	struct dirent	*e;

	while ((e = readdir(d)) != NULL)
		if (strncmp(e->d_name, "log-", 4) == 0 || strncmp(e->d_name, "tree-", 5) == 0)
			take_file(e->d_name);
	closedir(d);
	for (unsigned i = 0; i < nfiles; i++)
		find_used(&files[i]);
}

static struct file *
file(const char *name)
{
	for (unsigned i = 0; i < nfiles; i++)
		if (strcmp(files[i].name, name) == 0)
			return &files[i];
	fail_msg("%s", name);
	return NULL;
}

static struct file *
segment_file(uint32_t number)
{
	char	name[SEGMENT_NAME];

	segment_name(name, number);
	return file(name);
}

static uint32_t	last_segment;
static uint64_t	last_records;		/* where the last batch that has any begins, and ... */
static bool	closed;			/* ... an empty one is behind it */

static void
close_log(void)
{
	assert_true(batch_close(&s));
	assert_int_equal(batch_write(&s), 0);
	assert_int_equal(log_sync(&s.log), 0);
	batch_publish(&s);
	assert_false(batch_close(&s));
}

static void
make_dir(void)
{
	proc_become(IN_TEST, 0);
	log_to("/dev/null");
	strcpy(dir, "/dev/shm/b_check.XXXXXX");
	if (mkdtemp(dir) == NULL) {
		strcpy(dir, "/tmp/b_check.XXXXXX");
		assert_non_null(mkdtemp(dir));
	}
	dfd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_int_equal(region_create(&region, 1, 16 << 20), 0);
	nversions = nfiles = 0;
}

static void
make(bool with_checkpoint)
{
	struct version	*v;

	make_dir();
	open_store();
	tenant(0, "alice");
	tenant(1, "bob");
	tenant(2, "carol");
	put(2, "never", 100);
	put(2, "again", 1000);
	flush();
	run(OP_TENANT_DROP, 0, "carol", NULL, 0);
	flush();
	for (unsigned i = 0; i < nversions; i++)
		versions[i].dropped = true;
	some_life();
	put(0, "large", SUBMIT_CHUNK + 100);
	flush();
	move_all(1);
	if (with_checkpoint) {
		checkpoint();
		assert_int_equal(compact_drop(&s, true), 1);
		flush();
		assert_int_equal(compact_unlink(&s, PIN_NONE), 1);
	}
	put(0, "d1/n10", 77);
	put(1, "d2/late", 700);
	flush();
	put(1, "d0/n9", 20);
	del(0, "d2/n2");
	flush();
	last_records = s.log.pos.offset;
	put(0, "d1/n10", 120);
	v = &versions[nversions];
	put(1, "last", 33);
	flush();
	v[-1].last = v[0].last = !closed;
	if (closed)
		close_log();
	last_segment = s.log.pos.segment;
	take_files();
	store_close(&s);
}

static int
setup_log(void **state)
{
	(void)state;
	make(false);
	return 0;
}

static int
setup_checkpoint(void **state)
{
	(void)state;
	make(true);
	return 0;
}

static int
setup_closed(void **state)
{
	(void)state;
	closed = true;
	make(true);
	return 0;
}

static int
teardown(void **state)
{
	(void)state;
	close(dfd);
	t_remove_tree(dir);
	for (unsigned i = 0; i < nfiles; i++) {
		free(files[i].bytes);
		free(files[i].used);
	}
	region_destroy(&region);
	closed = false;
	return 0;
}

/* ------------------------------------------------------------ damaging, putting back */

static void
poke(const char *name, uint64_t at, const void *buf, size_t len)
{
	int	fd = openat(dfd, name, O_WRONLY);

	assert_int_equal(pwrite(fd, buf, len, (off_t)at), len);
	close(fd);
}

static void
cut(const struct file *f, uint64_t len)
{
	int	fd = openat(dfd, f->name, O_WRONLY);

	assert_int_equal(ftruncate(fd, (off_t)len), 0);
	close(fd);
}

static void
flip(const struct file *f, uint64_t at)
{
	static unsigned	turn;
	uint8_t		b = f->bytes[at] ^ (uint8_t)(1 + turn++ * 37 % 255);

	poke(f->name, at, &b, 1);
}

static bool
is_ours(const char *name)
{
	for (unsigned i = 0; i < nfiles; i++)
		if (strcmp(files[i].name, name) == 0)
			return true;
	return false;
}

static void
remove_others(void)
{
	DIR		*d = opendir(dir);
	struct dirent	*e;
	char		 path[400];

	assert_non_null(d);
	while ((e = readdir(d)) != NULL)
		if (e->d_name[0] != '.' && !is_ours(e->d_name)) {
			snprintf(path, sizeof(path), "%s/%s", dir, e->d_name);
			t_remove_tree(path);
		}
	closedir(d);
}

static void
write_file(const struct file *f, const char *name)
{
	int	fd = openat(dfd, name, O_WRONLY | O_CREAT | O_TRUNC, 0600);

	assert_int_equal(write(fd, f->bytes, f->len), f->len);
	close(fd);
}

static bool
is_as_it_was(const struct file *f)
{
	static uint8_t	buf[1 << 18];
	int		fd = openat(dfd, f->name, O_RDONLY);
	bool		same;

	assert_true(f->len < sizeof(buf));
	if (fd == -1)
		return false;
	same = read(fd, buf, sizeof(buf)) == (ssize_t)f->len && memcmp(buf, f->bytes, f->len) == 0;
	close(fd);
	return same;
}

static void
put_back(void)
{
	remove_others();
	for (unsigned i = 0; i < nfiles; i++)
		if (!is_as_it_was(&files[i])) {
			(void)unlinkat(dfd, files[i].name, 0);
			write_file(&files[i], files[i].name);
		}
}

/* ------------------------------------------------------------ looking */

#define LINES	200
static char	lines[LINES][256];
static unsigned	nlines;

static void
hear(void *arg, const char *line)
{
	(void)arg;
	if (nlines < LINES)
		snprintf(lines[nlines++], sizeof(lines[0]), "%s", line);
}

static bool
heard(const char *what)
{
	for (unsigned i = 0; i < nlines; i++)
		if (strstr(lines[i], what) != NULL)
			return true;
	return false;
}

static unsigned
heard_times(const char *what)
{
	unsigned	n = 0;

	for (unsigned i = 0; i < nlines; i++)
		n += strncmp(lines[i], what, strlen(what)) == 0;
	return n;
}

static _Noreturn void
complain(const char *what)
{
	for (unsigned i = 0; i < nlines; i++)
		print_error("  %s\n", lines[i]);
	fail_msg("%s: %s", where, what);
	abort();
}

static unsigned
check(void)
{
	struct check_result	r;

	nlines = 0;
	assert_int_equal(check_store(dfd, dir, hear, NULL, &r), 0);
	return check_findings(&r);
}

enum seen { SEEN_RIGHT, SEEN_ABSENT, SEEN_DAMAGED, SEEN_OLD };

/* Reads a document as a worker does.  Any other bytes than one of its versions': the test fails. */
static enum seen
look(struct reader *r, const struct version *v)
{
	static uint8_t	body[SUBMIT_CHUNK + 200];
	struct doc	d;

	switch (read_doc(r, v->tenant, v->path, strlen(v->path), &d)) {
	case 0:
		return v->deleted ? SEEN_RIGHT : SEEN_ABSENT;
	case -1:
		return SEEN_DAMAGED;
	}
	for (unsigned i = 0; i < nversions; i++) {
		const struct version	*w = &versions[i];

		if (w->tenant != v->tenant || strcmp(w->path, v->path) != 0 || w->seq != d.tag.seq)
			continue;
		if (d.body_len != w->len)
			complain("another length");
		if (!doc_check(r, &d, 0, d.body_len))
			return SEEN_DAMAGED;
		fill_body(body, w->len, w->seed);
		if (memcmp(d.body, body, w->len) != 0)
			complain("WRONG BYTES");
		return w == v ? SEEN_RIGHT : SEEN_OLD;
	}
	complain("a version that nobody wrote");
}

static struct reader *
open_reader(void)
{
	struct boot	b = { .region = region, .dir_fd = dfd, .set = { .verify_always = true }, .lane = 0 };
	struct reader	*r;

	b.region.overlay_fd = dup(overlay);
	r = read_open(&b);
	assert_non_null(r);
	assert_true(read_refresh(r));
	return r;
}

static enum seen	seen[VERSIONS];

/* All documents, through the store that is open; how many are not right. */
static unsigned
look_at_all(void)
{
	struct reader		*r = open_reader();
	struct tenant_settings	 set;
	unsigned		 off = 0;

	for (unsigned i = 0; i < nversions; i++) {
		if (!is_newest(i) || versions[i].dropped)
			continue;
		seen[i] = look(r, &versions[i]);
		off += seen[i] != SEEN_RIGHT;
	}
	for (unsigned t = 0; t < 2; t++)
		if (read_tenant(r, t == 0 ? "alice" : "bob", t == 0 ? 5 : 3, &set) == 1 &&
		    (set.id != ids[t] || set.public > PUBLIC_WRITE))
			complain("WRONG SETTINGS");
	read_close(r);
	return off;
}

static bool
can_write(void)
{
	struct result	r = run(OP_PUT, ids[0], "new", "x", 1);

	flush();
	return r.outcome == OUT_CREATED || r.outcome == OUT_REPLACED;
}

/* ------------------------------------------------------------ one case */

struct expect {
	bool		found;		/* the check must say something */
	bool		torn;		/* the last batch may be taken for one that was never whole */
	unsigned	off;		/* documents that may be damaged at most */
	bool		lost;		/* parts may be gone: absent or old is all right for these */
	bool		repair;		/* and repair it */
};

/* Each document is right, or is said to be damaged; what is absent or old is so for a reason. */
static void
judge(const struct expect *e)
{
	unsigned	off = 0;

	for (unsigned i = 0; i < nversions; i++) {
		if (!is_newest(i) || versions[i].dropped || seen[i] == SEEN_RIGHT)
			continue;
		off++;
		if (seen[i] != SEEN_DAMAGED && !e->lost && !(e->torn && versions[i].last))
			complain(seen[i] == SEEN_OLD ? "an old version came back" : "a document vanished");
	}
	if (off > e->off + (e->torn && !closed ? 2 : 0))
		complain("more is lost than was damaged");
}

/* As a daemon: what a worker finds in the checkpoint makes the committer drop it. */
static bool
start(const struct expect *e)
{
	uint64_t	page;
	char		name[32];

	atomic_store(&region.head->bad_page, 0);
	if (try_open() == -1)
		return false;
	look_at_all();
	page = atomic_load(&region.head->bad_page);
	if (page != 0 && !s.damaged) {
		assert_int_equal(page >> 32, s.ck.head.number);
		snprintf(name, sizeof(name), "tree-%010u", s.ck.head.number);
		store_close(&s);
		assert_int_equal(unlinkat(dfd, name, 0), 0);
		open_store();
		look_at_all();
	}
	judge(e);
	return true;
}

static void
repair(const struct expect *e)
{
	static enum seen	before[VERSIONS];
	unsigned		gone = 0;
	bool			opened = start(e);

	memcpy(before, seen, sizeof(seen));
	if (opened)
		store_close(&s);
	nlines = 0;
	if (repair_store(dfd, dir, hear, NULL) == -1)
		complain("cannot be repaired");
	if (e->found && heard("nothing is damaged") && !e->torn)
		complain("the repair did nothing");
	gone = heard_times("gone: ") - heard_times("gone: tenant ");
	nlines = 0;
	open_store();
	if (s.damaged || check() != 0)
		complain("damaged after the repair");
	if (!heard_times("gone: tenant ") && tenant_alive(&s, ids[0]) && !can_write())
		complain("no writes after the repair");
	look_at_all();
	for (unsigned i = 0; i < nversions; i++) {
		if (!is_newest(i) || versions[i].dropped || !opened)
			continue;
		if (before[i] == SEEN_RIGHT && seen[i] != SEEN_RIGHT)
			complain("the repair lost something");
		if (before[i] == SEEN_DAMAGED && seen[i] != SEEN_ABSENT && !(versions[i].deleted && seen[i] == SEEN_RIGHT))
			complain("something damaged is back after the repair");
		gone -= before[i] == SEEN_DAMAGED && gone != 0;
	}
	if (opened && gone != 0)
		complain("the repair says that more is gone than is");
	store_close(&s);
}

/* The damage is done: looks at it from all sides, and puts everything back. */
static void
examine(const struct expect *e)
{
	unsigned	n = check();

	if (e->found && n == 0)
		complain("not found");
	if (!e->found && n != 0)
		complain("found, and nothing is damaged");
	if (start(e)) {
		if (s.damaged && can_write())
			complain("a write in front of the repair");
		store_close(&s);
	}
	if (e->repair)
		repair(e);
	put_back();
}

/* ------------------------------------------------------------ claims */

static void
a_whole_store_is_found_whole_and_left_alone(void **state)
{
	struct expect	e = { .repair = true };

	(void)state;
	if (check() != 0)
		complain("a finding");
	for (unsigned i = 0; i < nfiles; i++)
		assert_true(is_as_it_was(&files[i]));
	nlines = 0;
	assert_int_equal(repair_store(dfd, dir, hear, NULL), 0);
	assert_true(heard("nothing is damaged"));
	for (unsigned i = 0; i < nfiles; i++)
		assert_true(is_as_it_was(&files[i]));
	place("whole"), examine(&e);
}

static bool
is_last(const struct file *f)
{
	return f == segment_file(last_segment);
}

static void
a_changed_byte_is_found_and_costs_at_most_its_document(void **state)
{
	unsigned	n = 0;

	(void)state;
	for (unsigned i = 0; i < nfiles; i++) {
		const struct file	*f = &files[i];
		bool			 tree = f->name[0] == 't';
		unsigned		 step = all() ? 1 : tree ? 127 : f->len > SUBMIT_CHUNK ? 977 : 29;

		for (uint64_t at = i % step; at < f->len; at += step) {
			struct expect	e = {
				.found = f->used[at], .off = !tree,
				.torn = is_last(f) && at >= f->last_batch,
				.repair = f->used[at] && (all() || n % 7 == 0),
			};

			/* the first bytes of what is not in use are as good as the rest */
			if (!f->used[at] && at % 64 != 0 && step == 1)
				continue;
			place("%s, offset %llu", f->name, (unsigned long long)at);
			flip(f, at);
			/* rubbish behind the last batch is what a crash may leave */
			if (is_last(f) && at >= f->last_batch && !f->used[at])
				e.found = true;
			if (!f->used[at] && !e.torn)
				e.off = 0;
			if (e.found || !tree)
				examine(&e);
			else
				put_back();
			n++;
		}
	}
	print_message("%u bytes changed\n", n);
}

/* Where nothing was written for a while, or the server was shut down: see batch_close(). */
static void
a_changed_byte_in_the_last_batch_of_a_closed_log_costs_at_most_its_document(void **state)
{
	const struct file	*f = segment_file(last_segment);
	unsigned		 n = 0;

	(void)state;
	place("closed"), examine(&(struct expect){ .repair = true });
	for (uint64_t at = last_records; at < f->last_batch + sizeof(struct commit_rec); at += all() ? 1 : 3) {
		/* of a broken empty batch nobody can tell that it was there: it is cut, and was empty */
		struct expect	e = {
			.found = f->used[at], .off = at < f->last_batch, .torn = at >= f->last_batch,
			.repair = n++ % 4 == 0,
		};

		place("%s, offset %llu", f->name, (unsigned long long)at);
		flip(f, at);
		examine(&e);
	}
	print_message("%u bytes changed\n", n);
}

static void
a_file_cut_anywhere_is_found_and_nothing_else_is_lost(void **state)
{
	unsigned	n = 0;

	(void)state;
	for (unsigned i = 0; i < nfiles; i++) {
		const struct file	*f = &files[i];
		unsigned		 step = all() ? 1 : f->name[0] == 't' ? 2039 : f->len > SUBMIT_CHUNK ? 8191 : 1021;

		for (uint64_t len = 0; len < f->len; len += step) {
			struct expect	e = {
				.found = true, .off = nversions, .lost = f->name[0] != 't', .torn = is_last(f),
				.repair = n % (all() ? 16 : 8) == 0,
			};

			place("%s, cut at %llu", f->name, (unsigned long long)len);
			cut(f, len);
			if (f->name[0] == 't')
				e.off = 0;
			examine(&e);
			n++;
		}
	}
	print_message("%u lengths\n", n);
}

/* A stretch of zeros or rubbish, as a lost sector leaves it. */
static void
a_lost_sector_is_found_and_what_lies_around_it_is_kept(void **state)
{
	static uint8_t	sector[512];
	unsigned	n = 0;

	(void)state;
	for (unsigned i = 0; i < nfiles; i++) {
		const struct file	*f = &files[i];
		unsigned		 step = all() ? 512 : f->len > SUBMIT_CHUNK ? 8192 : 1536;

		for (uint64_t at = 0; at + sizeof(sector) <= f->len; at += step, n++) {
			struct expect	e = {
				.found = true, .off = nversions, .lost = f->name[0] != 't', .torn = is_last(f), .repair = true,
			};

			memset(sector, n % 2 == 0 ? 0 : 0xa5, sizeof(sector));
			if (memchr(f->used + at, 1, sizeof(sector)) == NULL ||
			    memcmp(f->bytes + at, sector, sizeof(sector)) == 0)
				continue;
			if (f->name[0] == 't')
				e.off = 0;
			place("%s, sector at %llu", f->name, (unsigned long long)at);
			poke(f->name, at, sector, sizeof(sector));
			examine(&e);
		}
	}
}

static void
swapped_segments_get_their_names_back_and_nothing_is_lost(void **state)
{

	(void)state;
	for (unsigned i = 0; i < nfiles; i++)
		for (unsigned j = 0; j < i; j++) {
			struct expect	e = { .found = true, .off = nversions, .lost = true };

			if (files[i].name[0] == 't' || files[j].name[0] == 't')
				continue;
			place("%s and %s swapped", files[i].name, files[j].name);
			write_file(&files[i], files[j].name);
			write_file(&files[j], files[i].name);
			if (check() == 0)
				complain("not found");
			if (start(&e))
				store_close(&s);
			nlines = 0;
			assert_int_equal(repair_store(dfd, dir, hear, NULL), 0);
			assert_true(heard("it has its name again"));
			open_store();
			assert_false(s.damaged);
			if (look_at_all() != 0)
				complain("something is lost");
			store_close(&s);
			put_back();
		}
}

static void
a_copy_of_a_segment_is_found_wherever_it_lies(void **state)
{
	char	name[SEGMENT_NAME];

	(void)state;
	for (unsigned i = 0; i < nfiles; i++) {
		struct expect	e = { .found = true, .repair = true };

		if (files[i].name[0] == 't')
			continue;
		segment_name(name, last_segment + 3);
		place("%s copied to %s", files[i].name, name);
		write_file(&files[i], name);
		examine(&e);
		for (unsigned j = 0; j < nfiles; j++) {
			if (i == j || files[j].name[0] == 't')
				continue;
			e = (struct expect){ .found = true, .off = nversions, .lost = true, .repair = true };
			place("%s copied over %s", files[i].name, files[j].name);
			write_file(&files[i], files[j].name);
			examine(&e);
		}
	}
}

static void
a_missing_file_is_found_and_the_rest_is_kept(void **state)
{

	(void)state;
	for (unsigned i = 0; i < nfiles; i++) {
		struct expect	e = { .found = true, .off = nversions, .lost = true, .repair = true };

		place("%s is missing", files[i].name);
		assert_int_equal(unlinkat(dfd, files[i].name, 0), 0);
		/* all that is in a checkpoint is in the log, and that the last segment was there nobody else says */
		if (files[i].name[0] == 't') {
			e = (struct expect){ .repair = true };
			examine(&e);
			continue;
		}
		if (is_last(&files[i]) && check() == 0)
			e.found = false;
		examine(&e);
	}
}

/* With the checkpoint a document whose record is unreadable is known, and never an older one again. */
static void
what_the_checkpoint_knows_is_named_and_never_older(void **state)
{
	struct expect	 e = { .found = true, .off = 1, .repair = true };
	struct doc_val	 v;
	uint8_t		 key[KEY_MAX], rubbish[96];
	char		 name[SEGMENT_NAME];

	(void)state;
	open_store();
	assert_int_equal(tree_get(&s.w.t, key, key_make(key, ids[0], "d2/n8", 5), &v), 1);
	assert_true(v.segment < s.ck.head.segment || v.offset < s.ck.head.offset);
	store_close(&s);
	memset(rubbish, 0xee, sizeof(rubbish));
	segment_name(name, v.segment);
	poke(name, v.offset, rubbish, 60);
	check();
	assert_true(heard("alice/d2/n8"));
	place("a record before the checkpoint"), examine(&e);
}

/* The id of a tenant whose settings are damaged is told by its checksum; it is private until somebody says otherwise. */
static void
a_tenant_with_damaged_settings_keeps_its_documents(void **state)
{
	struct tenant_settings	 set;
	struct reader		*r;
	struct doc_val		 v;
	uint8_t			 key[KEY_MAX], b;
	char			 name[SEGMENT_NAME];
	uint64_t		 at;

	(void)state;
	open_store();
	assert_int_equal(tree_get(&s.w.t, key, key_make(key, 0, "bob", 3), &v), 1);
	store_close(&s);
	segment_name(name, v.segment);
	at = v.offset + sizeof(struct rec_head) + 3 + offsetof(struct tenant_settings, public);
	b = 0x55;
	poke(name, at, &b, 1);
	assert_int_not_equal(check(), 0);
	assert_true(heard("damaged body of tenant bob"));
	nlines = 0;
	assert_int_equal(repair_store(dfd, dir, hear, NULL), 0);
	assert_true(heard("tenant bob: its settings were damaged"));
	open_store();
	assert_int_equal(look_at_all(), 0);
	r = open_reader();
	assert_int_equal(read_tenant(r, "bob", 3, &set), 1);
	assert_int_equal(set.id, ids[1]);
	assert_int_equal(set.public, PUBLIC_NONE);
	read_close(r);
	store_close(&s);
	put_back();
}

static void
documents_of_a_tenant_that_is_lost_get_another_one(void **state)
{
	struct tenant_settings	 set;
	struct reader		*r;
	struct doc_val		 v;
	uint8_t			 key[KEY_MAX], rubbish[48];
	char			 name[SEGMENT_NAME], lost[32];

	(void)state;
	open_store();
	assert_int_equal(tree_get(&s.w.t, key, key_make(key, 0, "bob", 3), &v), 1);
	store_close(&s);
	segment_name(name, v.segment);
	memset(rubbish, 0xee, sizeof(rubbish));
	poke(name, v.offset + sizeof(struct rec_head) + 3, rubbish, sizeof(rubbish));
	nlines = 0;
	assert_int_equal(repair_store(dfd, dir, hear, NULL), 0);
	assert_true(heard("gone: tenant bob"));
	snprintf(lost, sizeof(lost), "lost-%u", ids[1]);
	assert_true(heard(lost));
	open_store();
	assert_int_equal(look_at_all(), 0);
	r = open_reader();
	assert_int_equal(read_tenant(r, lost, strlen(lost), &set), 1);
	assert_int_equal(set.id, ids[1]);
	assert_int_equal(read_tenant(r, "bob", 3, &set), 0);
	read_close(r);
	store_close(&s);
	put_back();
}

/* --- one segment alone ------------------------------------------------------------------ */

/* Nobody but the batches themselves says which store it is. */
static void
the_only_segment_is_read_without_its_head(void **state)
{
	struct expect	e = { .found = true, .repair = true };

	(void)state;
	for (uint64_t at = 0; at < sizeof(struct segment_head); at++) {
		place("the head alone, offset %llu", (unsigned long long)at);
		e.repair = all() || at % 11 == 0;
		flip(&files[0], at);
		examine(&e);
	}
}

static int
setup_one(void **state)
{
	(void)state;
	make_dir();
	open_store();
	tenant(0, "alice");
	tenant(1, "bob");
	for (unsigned i = 0; i < 12; i++) {
		char	path[24];

		snprintf(path, sizeof(path), "one%u", i);
		put(i % 2, path, 50 * i);
		flush();
	}
	last_segment = 1;
	take_files();
	store_close(&s);
	assert_int_equal(nfiles, 1);
	return 0;
}

/* Then there is nothing to tell by: a start refuses, a repair begins anew. */
static void
a_store_of_which_nothing_is_left_is_refused_until_it_is_given_up(void **state)
{
	(void)state;
	cut(&files[0], 50);
	assert_int_not_equal(check(), 0);
	assert_int_equal(try_open(), -1);
	assert_true(strstr(s.reason, "nothing in it can be read") != NULL);
	store_close(&s);
	assert_int_equal(repair_store(dfd, dir, hear, NULL), 0);
	assert_int_equal(check(), 0);
	open_store();
	assert_int_equal(s.w.t.root, PAGE_NONE);
	store_close(&s);
	put_back();
}

/* --- what looks like a record ----------------------------------------------------------- */

/* A body full of records that were never written: the walk through damage must not come by one. */
static void
a_record_inside_a_body_is_never_taken_for_one(void **state)
{
	static uint8_t	 body[64 * 70];
	struct rec_head	*h;
	struct expect	 e = { .found = true, .off = 1, .torn = true };
	struct doc_val	 v;
	uint8_t		 key[KEY_MAX], rubbish[64];
	char		 name[SEGMENT_NAME];

	(void)state;
	open_store();
	for (unsigned i = 0; i < 64; i++) {
		h = (struct rec_head *)(void *)(body + i * 56);
		*h = (struct rec_head){
			.kind = REC_PUT, .path_len = 8, .tenant = ids[1], .seq = s.max_seq + 2 + i, .run = 1,
			.lane = REC_LANE_NONE,
		};
		memcpy(h + 1, "d0/n9\0\0\0", 8);
		h->path_len = 5;
		h->meta_len = 0;
		h->head_crc = crc32c(0, &h->kind, sizeof(*h) - 4 + h->path_len);
	}
	for (unsigned shift = 0; shift < 8; shift++) {
		char	path[16];

		snprintf(path, sizeof(path), "forged%u", shift);
		run(OP_PUT, ids[0], path, body, 64 * 56 - shift);
	}
	flush();
	assert_int_equal(tree_get(&s.w.t, key, key_make(key, ids[0], "forged3", 7), &v), 1);
	run(OP_PUT, ids[0], "behind", "x", 1);
	flush();
	store_close(&s);
	segment_name(name, v.segment);
	memset(rubbish, 0xee, sizeof(rubbish));
	for (unsigned n = 4; n <= sizeof(rubbish); n += 4) {
		poke(name, v.offset, rubbish, n);
		assert_int_not_equal(check(), 0);
		open_store();
		look_at_all();
		assert_true(s.damaged);
		judge(&e);
		store_close(&s);
	}
	put_back();
}

/* --- a repair that is killed --------------------------------------------------------------- */

static unsigned	calls, die_at;

/* Every system call that changes something is made through these: see the wraps in main(). */
static void
count_call(void)
{
	if (++calls == die_at)
		t_die();
}

int	__real_renameat(int, const char *, int, const char *);
int	__real_renameat2(int, const char *, int, const char *, unsigned);
int	__real_fsync(int);
int	__real_unlinkat(int, const char *, int);
int	__wrap_renameat(int, const char *, int, const char *);
int	__wrap_renameat2(int, const char *, int, const char *, unsigned);
int	__wrap_fsync(int);
int	__wrap_unlinkat(int, const char *, int);

int
__wrap_renameat(int a, const char *from, int b, const char *to)
{
	count_call();
	return __real_renameat(a, from, b, to);
}

int
__wrap_renameat2(int a, const char *from, int b, const char *to, unsigned flags)
{
	count_call();
	return __real_renameat2(a, from, b, to, flags);
}

int
__wrap_fsync(int fd)
{
	count_call();
	return __real_fsync(fd);
}

int
__wrap_unlinkat(int fd, const char *name, int flags)
{
	count_call();
	return __real_unlinkat(fd, name, flags);
}

static void
a_repair_may_be_killed_at_any_step_and_run_again(void **state)
{
	struct file	*f = segment_file(last_segment);
	unsigned	 steps = 0;
	int		 st;

	(void)state;
	for (unsigned at = 1;; at++) {
		flip(f, SEGMENT_HEAD + 4);	/* the kind of its first record */
		if (die_at == 0)
			assert_int_not_equal(check(), 0);
		st = t_child(die_at = at; calls = 0; repair_store(dfd, dir, hear, NULL));
		if (!WIFSIGNALED(st)) {
			put_back();
			break;
		}
		assert_int_equal(WTERMSIG(st), SIGKILL);
		steps++;
		/* a start in between: as before, refused, or as after; never half */
		if (repair_interrupted(dfd, NULL, NULL)) {
			assert_int_equal(try_open(), -1);
			assert_true(strstr(s.reason, "repair") != NULL);
		}
		nlines = 0;
		assert_int_equal(repair_store(dfd, dir, hear, NULL), 0);
		assert_int_equal(check(), 0);
		open_store();
		assert_false(s.damaged);
		look_at_all();
		for (unsigned i = 0; i < nversions; i++)
			if (is_newest(i) && !versions[i].dropped && seen[i] == SEEN_OLD)
				complain("an old version came back");
		store_close(&s);
		put_back();
	}
	assert_true(steps > 20);
}

#define L(name) { #name " (log only)", name, setup_log, teardown, NULL }
#define C(name) { #name " (checkpoint)", name, setup_checkpoint, teardown, NULL }
int
main(void)
{
	static const struct CMUnitTest	tests[] = {
		L(a_whole_store_is_found_whole_and_left_alone),
		C(a_whole_store_is_found_whole_and_left_alone),
		L(a_changed_byte_is_found_and_costs_at_most_its_document),
		C(a_changed_byte_is_found_and_costs_at_most_its_document),
		{ "a_changed_byte_in_the_last_batch_of_a_closed_log_costs_at_most_its_document",
		    a_changed_byte_in_the_last_batch_of_a_closed_log_costs_at_most_its_document, setup_closed, teardown, NULL },
		L(a_file_cut_anywhere_is_found_and_nothing_else_is_lost),
		C(a_file_cut_anywhere_is_found_and_nothing_else_is_lost),
		L(a_lost_sector_is_found_and_what_lies_around_it_is_kept),
		C(a_lost_sector_is_found_and_what_lies_around_it_is_kept),
		L(swapped_segments_get_their_names_back_and_nothing_is_lost),
		C(swapped_segments_get_their_names_back_and_nothing_is_lost),
		L(a_copy_of_a_segment_is_found_wherever_it_lies),
		C(a_copy_of_a_segment_is_found_wherever_it_lies),
		L(a_missing_file_is_found_and_the_rest_is_kept),
		C(a_missing_file_is_found_and_the_rest_is_kept),
		C(what_the_checkpoint_knows_is_named_and_never_older),
		L(a_tenant_with_damaged_settings_keeps_its_documents),
		C(a_tenant_with_damaged_settings_keeps_its_documents),
		C(documents_of_a_tenant_that_is_lost_get_another_one),
		{ "the_only_segment_is_read_without_its_head", the_only_segment_is_read_without_its_head,
		    setup_one, teardown, NULL },
		{ "a_store_of_which_nothing_is_left_is_refused_until_it_is_given_up",
		    a_store_of_which_nothing_is_left_is_refused_until_it_is_given_up, setup_one, teardown, NULL },
		L(a_record_inside_a_body_is_never_taken_for_one),
		L(a_repair_may_be_killed_at_any_step_and_run_again),
		C(a_repair_may_be_killed_at_any_step_and_run_again),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
