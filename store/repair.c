/*
 * store/repair.c - see store/repair.h.
 *
 * Runs in: tools, tests; repair_interrupted() in the committer too.
 */
#include "config.h"

#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shm/log.h"
#include "shm/proc.h"
#include "store/check.h"
#include "store/file.h"
#include "store/look.h"
#include "store/repair.h"
#include "store/rewrite.h"
#include "store/segment.h"

#define NEW_DIR		"repair.new"
#define SEGMENT_BYTES	((uint64_t)16 << 20)	/* where no old segment says how large they are */
#define NUMBER_MAX	4000000000u		/* no new segment is given a higher one */

struct repair {
	int			 dirfd;
	const char		*dir;
	void			(*say)(void *, const char *);
	void			*arg;
	struct store		 s;		/* the damaged one */
	bool			 open;
	struct names		 names;
	struct rewrite		 w;
	uint32_t		 first;		/* segment of the new log */
	uint64_t		 segment_size;
	uint32_t		 orphans;	/* id that a lost-ID tenant was made for last */
	uint64_t		 kept, deletions, gone;
};

__attribute__((format(printf, 2, 3))) static void
say(struct repair *r, const char *fmt, ...)
{
	char	line[LOOK_NAME + 256];
	va_list	ap;

	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	r->say(r->arg, line);
}

static int
failed(struct repair *r, const char *what)
{
	int	saved = errno;

	say(r, "%s: %s: %s; nothing was changed", r->dir, what, strerror(saved));
	errno = saved;
	return -1;
}

/* ------------------------------------------------------------------ directories */

/* Calls fn for each name; nonzero from it ends that.  0; -1 errno. */
static int
each_name(int dirfd, int (*fn)(void *, int dirfd, const char *), void *arg)
{
	const struct dirent	*e;
	DIR			*d;
	int			 rc = 0, saved;

	if ((d = file_dir(dirfd)) == NULL)
		return -1;
	while (rc == 0 && (errno = 0, e = readdir(d)) != NULL)
		if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
			rc = fn(arg, dirfd, e->d_name);
	saved = errno;
	closedir(d);
	errno = saved;
	return rc != 0 || saved != 0 ? -1 : 0;
}

/* The number of PREFIX-NNNNNNNNNN; 0: another kind of name. */
static uint32_t
number_of(const char *name, const char *prefix)
{
	size_t		n = strlen(prefix);
	uint64_t	number = 0;

	if (strncmp(name, prefix, n) != 0 || strlen(name + n) != 10)
		return 0;
	for (name += n; *name != '\0'; name++) {
		if (*name < '0' || *name > '9')
			return 0;
		number = number * 10 + (uint64_t)(*name - '0');
	}
	return number <= UINT32_MAX ? (uint32_t)number : 0;
}

static int
remove_one(void *arg, int dirfd, const char *name)
{
	(void)arg;
	return unlinkat(dirfd, name, 0);
}

static int
remove_dir(int dirfd, const char *name)
{
	int	fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), rc;

	if (fd == -1)
		return errno == ENOENT ? 0 : -1;
	rc = each_name(fd, remove_one, NULL);
	close(fd);
	return rc == -1 ? -1 : unlinkat(dirfd, name, AT_REMOVEDIR);
}

/* repair-FIRST-COUNT: what it says of itself. */
static bool
is_ready_name(const char *name, uint32_t *first, uint32_t *count)
{
	unsigned	f, n;
	int		len = -1;

	if (sscanf(name, "repair-%10u-%10u%n", &f, &n, &len) != 2 || len < 0 || name[len] != '\0' || f == 0 || n == 0)
		return false;
	*first = f;
	*count = n;
	return true;
}

static void
ready_name(char name[40], uint32_t first, uint32_t count)
{
	snprintf(name, 40, "repair-%u-%u", first, count);
}

struct ready {
	uint32_t	first, count;
};

static int
find_ready(void *arg, int dirfd, const char *name)
{
	struct ready	*r = arg;

	(void)dirfd;
	return is_ready_name(name, &r->first, &r->count);
}

bool
repair_interrupted(int dirfd, uint32_t *first, uint32_t *count)
{
	struct ready	r = { 0, 0 };

	(void)each_name(dirfd, find_ready, &r);
	if (first != NULL)
		*first = r.first;
	if (count != NULL)
		*count = r.count;
	return r.first != 0;
}

/* ------------------------------------------------------------------ the new log takes over */

struct retire {
	struct repair	*r;
	struct ready	 keep;
	unsigned	 n;
};

/* A name that nothing has: an earlier rescue is not overwritten. */
static int
set_aside(int dirfd, const char *name)
{
	char	to[64];

	for (unsigned i = 0; i < 1000; i++) {
		snprintf(to, sizeof(to), i == 0 ? "damaged-%s" : "damaged-%s.%u", name, i);
		if (renameat2(dirfd, name, dirfd, to, RENAME_NOREPLACE) == 0)
			return 0;
		if (errno == EINVAL && faccessat(dirfd, to, F_OK, AT_SYMLINK_NOFOLLOW) == -1)
			return renameat(dirfd, name, dirfd, to);	/* not every file system has that flag */
		if (errno != EEXIST && errno != EINVAL)
			return -1;
	}
	return -1;
}

static int
retire_one(void *arg, int dirfd, const char *name)
{
	struct retire	*t = arg;
	uint32_t	 n = number_of(name, "log-");

	if (n == 0 && number_of(name, "tree-") == 0)
		return 0;
	if (n != 0 && n >= t->keep.first && n - t->keep.first < t->keep.count)
		return 0;
	t->n++;
	return set_aside(dirfd, name);
}

static int
move_in(void *arg, int subfd, const char *name)
{
	struct retire	*t = arg;

	t->n++;
	return renameat(subfd, name, t->r->dirfd, name);
}

/* Until nothing is left to do: a directory that changes while it is read may hide a name for once. */
static int
each_until_none(int dirfd, int (*fn)(void *, int, const char *), struct retire *t)
{
	do {
		t->n = 0;
		if (each_name(dirfd, fn, t) == -1)
			return -1;
	} while (t->n != 0);
	return 0;
}

/* From the rename of the new directory on: can be gone through any number of times. */
static int
take_over(struct repair *r, uint32_t first, uint32_t count)
{
	struct retire	t = { .r = r, .keep = { first, count } };
	char		name[40];
	int		sub, rc = -1;

	ready_name(name, first, count);
	if ((sub = openat(r->dirfd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) == -1)
		goto out;
	/* all old names are gone, and that is on the disk, before the first new one is there */
	if (each_until_none(r->dirfd, retire_one, &t) == -1 || fsync(r->dirfd) == -1)
		goto out;
	if (each_until_none(sub, move_in, &t) == -1 || fsync(r->dirfd) == -1 || fsync(sub) == -1)
		goto out;
	rc = unlinkat(r->dirfd, name, AT_REMOVEDIR) == -1 || fsync(r->dirfd) == -1 ? -1 : 0;
out:
	if (sub != -1)
		close(sub);
	if (rc == -1)
		say(r, "%s: taking the new log over: %s; run repair again", r->dir, strerror(errno));
	else
		say(r, "the old files are kept: %s/damaged-log-*, %s/damaged-tree-*; nothing needs them any more",
		    r->dir, r->dir);
	return rc;
}

/* ------------------------------------------------------------------ names of segments */

/* The head of a file as it is; false: it is no segment of this store. */
static bool
read_head(const struct log *l, uint32_t number, struct segment_head *h)
{
	uint64_t	size;
	int		fd = segment_open(l->dirfd, number, O_RDONLY, &size);
	ssize_t		n;

	if (fd == -1)
		return false;
	n = pread(fd, h, sizeof(*h), 0);
	close(fd);
	return n == (ssize_t)sizeof(*h) && segment_head_ok(h, h->number) && h->store_id == l->store_id &&
	    h->mark == l->mark;
}

/* One file that has another's name gets its own, if that is not taken by a good one.  1, 0: there is none, -1. */
static int
put_one_right(struct repair *r, const struct log *l)
{
	struct segment_head	 h, other;
	char			 from[SEGMENT_NAME], to[SEGMENT_NAME];
	bool			 taken;

	for (unsigned i = 0; i < l->nseg; i++) {
		if (!read_head(l, l->seg[i].number, &h) || h.number == l->seg[i].number)
			continue;
		taken = log_segment(l, h.number) != NULL;
		if (taken && read_head(l, h.number, &other) && other.number == h.number)
			continue;	/* a copy */
		segment_name(from, l->seg[i].number);
		segment_name(to, h.number);
		if (renameat2(l->dirfd, from, l->dirfd, to, taken ? RENAME_EXCHANGE : RENAME_NOREPLACE) == -1)
			return -1;
		say(r, "%s was %s: it has its name again", from, to);
		return 1;
	}
	return 0;
}

static int
put_names_right(struct repair *r)
{
	struct log	l;
	int		rc = 0, any = 0;

	do {
		if (log_open_as(&l, r->dirfd, SEGMENT_BYTES, NULL, true) == -1)
			break;		/* the check says why */
		rc = put_one_right(r, &l);
		log_close(&l);
		any |= rc;
	} while (rc == 1);
	if (rc == -1)
		return failed(r, "giving segments their names back");
	return any != 0 && fsync(r->dirfd) == -1 ? -1 : 0;
}

/* ------------------------------------------------------------------ copying */

/* In place of what is lost.  A new version: so that followers hear of it, and no ETag comes again. */
static int
bury(struct repair *r, const uint8_t *key, size_t len)
{
	struct rec_head	h = {
		.kind = REC_DELETE, .path_len = (uint16_t)(len - sizeof(uint32_t)), .tenant = key_tenant(key),
		.seq = ++r->w.max_seq, .time_ms = r->w.time_ms, .run = r->w.run,
	};

	r->deletions++;
	return rewrite_make(&r->w, &h, key + sizeof(uint32_t), NULL);
}

/* All that a deletion says is in the tree. */
static int
copy_deletion(struct repair *r, const uint8_t *key, size_t len, const struct doc_val *v)
{
	const struct rec_head	*h = look_record(&r->s, key, len, v);
	struct rec_head		 again = {
		.kind = REC_DELETE, .path_len = (uint16_t)(len - sizeof(uint32_t)), .tenant = key_tenant(key),
		.seq = v->seq, .time_ms = v->time_ms, .run = v->run,
	};

	if (again.tenant != 0 && names_find(&r->names, again.tenant) == NULL)
		return 0;
	r->deletions++;
	if (h != NULL && rec_body_ok(h))
		return rewrite_add(&r->w, h);
	return rewrite_make(&r->w, &again, key + sizeof(uint32_t), NULL);
}

static int
make_tenant(struct repair *r, const void *name, size_t len, uint32_t id)
{
	struct tenant_settings	set = { .version = TENANT_VERSION, .id = id, .public = PUBLIC_NONE };
	struct rec_head		h = {
		.kind = REC_PUT, .path_len = (uint16_t)len, .body_len = sizeof(set),
		.seq = ++r->w.max_seq, .time_ms = r->w.time_ms, .run = r->w.run,
	};

	return rewrite_make(&r->w, &h, name, &set);
}

static int
copy_tenant(struct repair *r, const uint8_t *key, size_t len, const struct doc_val *v)
{
	bool		whole;
	uint32_t	id = look_tenant_id(&r->s, key, len, v, &whole);
	char		name[LOOK_NAME];

	if (whole && id != 0)
		return rewrite_add(&r->w, look_record(&r->s, key, len, v));
	look_name(&r->names, 0, key + sizeof(uint32_t), len - sizeof(uint32_t), name);
	if (id != 0) {
		say(r, "%s: its settings were damaged; it is private now, and without limits; its documents are kept", name);
		return make_tenant(r, key + sizeof(uint32_t), len - sizeof(uint32_t), id);
	}
	say(r, "gone: %s (log-%010u, offset %u); documents that were its are kept below a tenant lost-ID, if there are any",
	    name, v->segment, v->offset);
	r->gone++;
	return bury(r, key, len);
}

/* Documents whose tenant is lost get one: lost-ID, private. */
static int
adopt_orphans(struct repair *r, uint32_t id)
{
	char		name[TENANT_NAME_MAX + 1];
	uint8_t		key[KEY_MAX];
	struct doc_val	v;
	int		n;

	if (r->orphans == id)
		return 0;
	r->orphans = id;
	n = snprintf(name, sizeof(name), "lost-%u", id);
	for (unsigned i = 2; tree_get(&r->s.w.t, key, key_make(key, 0, name, (size_t)n), &v) == 1; i++)
		n = snprintf(name, sizeof(name), "lost-%u-%u", id, i);
	say(r, "tenant %s: made for documents whose tenant is lost; it is private", name);
	return make_tenant(r, name, (size_t)n, id);
}

static int
copy_document(struct repair *r, const uint8_t *key, size_t len, const struct doc_val *v)
{
	const struct rec_head	*h = look_record(&r->s, key, len, v);
	bool			 orphan = names_find(&r->names, key_tenant(key)) == NULL;
	char			 name[LOOK_NAME];

	if (h == NULL || !rec_body_ok(h)) {
		say(r, "gone: %s (log-%010u, offset %u)", look_name(&r->names, key_tenant(key), key + sizeof(uint32_t),
		    len - sizeof(uint32_t), name), v->segment, v->offset);
		r->gone++;
		return orphan ? 0 : bury(r, key, len);
	}
	if (orphan && adopt_orphans(r, key_tenant(key)) == -1)
		return -1;
	r->kept++;
	return rewrite_add(&r->w, h);
}

static int
copy_all(struct repair *r)
{
	struct cursor	 c;
	struct doc_val	 v;
	const uint8_t	*key;
	size_t		 len;
	int		 n, rc;

	for (n = cursor_seek(&c, &r->s.w.t, "", 0); n == 1; n = cursor_next(&c)) {
		cursor_entry(&c, &key, &len, &v);
		if (v.flags & DOC_TOMBSTONE)
			rc = copy_deletion(r, key, len, &v);
		else if (key_tenant(key) == 0)
			rc = copy_tenant(r, key, len, &v);
		else
			rc = copy_document(r, key, len, &v);
		if (rc == -1)
			return -1;
	}
	return n == -1 ? -1 : rewrite_end(&r->w);
}

/* ------------------------------------------------------------------ the new log */

static int
highest(void *arg, int dirfd, const char *name)
{
	uint32_t	*max = arg, n = number_of(name, "log-");

	(void)dirfd;
	if (n == 0)
		n = number_of(name, "damaged-log-");
	if (n > *max)
		*max = n;
	return 0;
}

/* The size that most old segments have: what the configuration said. */
static void
find_size(struct repair *r)
{
	struct segment_head	h, other;
	unsigned		best = 0;

	r->segment_size = SEGMENT_BYTES;
	for (unsigned i = 0; r->open && i < r->s.log.nseg; i++) {
		unsigned	same = 0;

		if (!read_head(&r->s.log, r->s.log.seg[i].number, &h))
			continue;
		for (unsigned j = 0; j < r->s.log.nseg; j++)
			same += read_head(&r->s.log, r->s.log.seg[j].number, &other) && other.bytes == h.bytes;
		if (same >= best) {
			best = same;
			r->segment_size = h.bytes;
		}
		if (best > r->s.log.nseg / 2)
			break;
	}
}

struct owner {
	uid_t	uid;
	gid_t	gid;
};

/* Files that root makes here are for whom the directory belongs to. */
static int
give_one(void *arg, int dirfd, const char *name)
{
	const struct owner	*o = arg;

	return fchownat(dirfd, name, o->uid, o->gid, AT_SYMLINK_NOFOLLOW);
}

static int
give_away(struct repair *r, int sub)
{
	struct stat	st;
	struct owner	o;

	if (geteuid() != 0)
		return 0;
	if (fstat(r->dirfd, &st) == -1)
		return -1;
	o = (struct owner){ st.st_uid, st.st_gid };
	return fchown(sub, o.uid, o.gid) == -1 ? -1 : each_name(sub, give_one, &o);
}

/* Writes it below sub.  0; -1. */
static int
write_log(struct repair *r, int sub)
{
	struct segment_head	first = {
		.number = r->first, .first_batch = 1, .first_seq = 1,
	};
	int			rc;

	memset(&r->w, 0, sizeof(r->w));
	r->w.log.fd = -1;
	if (getrandom(&r->w.run, sizeof(r->w.run), 0) != sizeof(r->w.run))
		return -1;
	if (r->open) {
		first.store_id = r->s.log.store_id;
		first.mark = r->s.log.mark;
		first.first_batch = r->s.log.pos.batch + 1;
		first.first_seq = r->s.max_seq + 1;
		r->w.max_seq = r->s.max_seq;
		r->w.time_ms = r->s.time_ms;
	}
	rc = rewrite_open(&r->w, sub, r->segment_size, &first);
	if (rc == 0)
		rc = r->open ? copy_all(r) : rewrite_end(&r->w);
	return rc;
}

/* All of it is there and whole, before anything old is touched. */
static int
prove(struct repair *r, int sub)
{
	struct check_result	c;

	if (check_store(sub, r->dir, NULL, NULL, &c) == -1)
		return -1;
	if (check_findings(&c) == 0 && c.documents == r->kept)
		return 0;
	errno = EIO;
	return -1;
}

static int
build(struct repair *r, uint32_t *count)
{
	uint32_t	max = 0;
	int		sub = -1, rc = -1, saved;

	if (each_name(r->dirfd, highest, &max) == -1)
		goto out;
	if (max >= NUMBER_MAX) {
		errno = EOVERFLOW;
		goto out;
	}
	r->first = max + 1;
	find_size(r);
	if (remove_dir(r->dirfd, NEW_DIR) == -1 || mkdirat(r->dirfd, NEW_DIR, 0700) == -1 ||
	    (sub = openat(r->dirfd, NEW_DIR, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) == -1)
		goto out;
	if (write_log(r, sub) == -1 || give_away(r, sub) == -1 || fsync(sub) == -1)
		goto out;
	*count = r->w.log.nseg;
	rc = prove(r, sub);
out:
	saved = errno;
	rewrite_close(&r->w);
	if (sub != -1)
		close(sub);
	if (rc == -1)
		(void)remove_dir(r->dirfd, NEW_DIR);	/* gives the room back; the next repair does it otherwise */
	errno = saved;
	return rc == -1 ? failed(r, "writing a new log") : 0;
}

static int
write_anew(struct repair *r)
{
	uint32_t	count;
	char		name[40];
	int		rc;

	r->w.log.fd = -1;
	/* where nothing can be read the store begins anew: the check has said why */
	r->open = look_open(&r->s, r->dirfd, r->dir) == 0;
	if (!r->open && errno != EILSEQ)
		return failed(r, r->s.reason[0] != '\0' ? r->s.reason : "reading the log");
	rc = r->open ? names_load(&r->names, &r->s) : 0;
	if (rc == -1)
		(void)failed(r, "reading the tenants");
	else
		rc = build(r, &count);
	names_free(&r->names);
	if (r->open)
		look_close(&r->s);
	if (rc == -1)
		return -1;
	ready_name(name, r->first, count);
	/* the point of no return: one rename */
	if (fsync(r->dirfd) == -1 || renameat(r->dirfd, NEW_DIR, r->dirfd, name) == -1 || fsync(r->dirfd) == -1)
		return failed(r, name);
	say(r, "%llu document%s and %llu deletion%s are kept, %llu %s gone",
	    (unsigned long long)r->kept, log_s(r->kept), (unsigned long long)r->deletions, log_s(r->deletions),
	    (unsigned long long)r->gone, r->gone == 1 ? "document or tenant is" : "documents and tenants are");
	return take_over(r, r->first, count);
}

/* ------------------------------------------------------------------ the whole */

/* What a start does: the torn tail is cut, and that is synced. */
static int
cut_tail(struct repair *r)
{
	struct store_options	o = { .dir = r->dir, .segment_size = SEGMENT_BYTES };
	int			fd = memfd_create("overlay", MFD_CLOEXEC), rc = -1;

	if (fd == -1)
		return failed(r, "memory for the tree");
	if (ftruncate(fd, (off_t)OVERLAY_BYTES) == 0 && store_open(&r->s, r->dirfd, fd, &o) == 0) {
		store_close(&r->s);
		say(r, "the incomplete last batch was cut off");
		rc = 0;
	}
	close(fd);
	return rc == 0 ? 0 : failed(r, "cutting off the last batch");
}

static int
drop_checkpoints(struct repair *r)
{
	if (checkpoint_tidy(r->dirfd, 0) == -1)
		return failed(r, "removing the checkpoint");
	say(r, "the checkpoint was dropped; the next start reads the whole log, which has all that was in it");
	return 0;
}

int
repair_store(int dirfd, const char *dir, void (*fn)(void *, const char *), void *arg)
{
	struct repair		r = { .dirfd = dirfd, .dir = dir, .say = fn, .arg = arg };
	struct check_result	c;
	uint32_t		first, count;

	RUNS_IN(IN_TOOL | IN_TEST);
	if (repair_interrupted(dirfd, &first, &count)) {
		say(&r, "%s: a repair was interrupted; it goes on", dir);
		if (take_over(&r, first, count) == -1)
			return -1;
	}
	if (put_names_right(&r) == -1 || check_store(dirfd, dir, fn, arg, &c) == -1)
		return -1;
	if (check_findings(&c) == 0) {
		say(&r, "%s: nothing is damaged", dir);
		return remove_dir(dirfd, NEW_DIR) == -1 ? failed(&r, NEW_DIR) : 0;
	}
	if (c.log != 0) {
		if (write_anew(&r) == -1)
			return -1;
	} else if ((c.checkpoint != 0 && drop_checkpoints(&r) == -1) || (c.torn != 0 && cut_tail(&r) == -1))
		return -1;
	if (check_store(dirfd, dir, fn, arg, &c) == -1)
		return -1;
	if (check_findings(&c) == 0)
		return 0;
	say(&r, "%s: this is still damaged", dir);
	errno = EILSEQ;
	return -1;
}
