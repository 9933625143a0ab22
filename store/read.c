/*
 * store/read.c - see store/read.h.
 *
 * Runs in: worker.
 * Touches: overlay, checkpoint and segments through PROT_READ mappings; its
 *          own pin.  No lock; no system call but for what is met first, and to send.
 */
#include "config.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shm/crc32c.h"
#include "shm/fd.h"
#include "shm/log.h"
#include "shm/proc.h"
#include "store/checkpoint.h"
#include "store/guard.h"
#include "store/overlay.h"
#include "store/read.h"
#include "store/segment.h"
#include "store/tree.h"

#define MAP_BUCKETS	256u	/* a power of two */
#define SEND_FDS	128u	/* descriptors of segments that are sent from, at most (worker.c, FDS_ASIDE): ... */
#define SEND_SHARE	32u	/* ... one of so many that there are */
#define SEND_TURNS	16u	/* where all are in use, each sixteenth that has none gets another's */
#define CHECK_GRAIN	32u	/* bytes per bit of a segment's checked map: shorter than any record */

struct mapping {		/* one segment */
	struct mapping	*next;		/* of its bucket */
	uint32_t	 number;
	uint32_t	 holds;		/* sends that need it beyond a pin */
	bool		 gone;		/* unlinked: goes when nobody holds it */
	const uint8_t	*base;
	size_t		 len;
	uint8_t		*checked;	/* verify-reads first: chunks that were right once */
	dev_t		 dev;
	ino_t		 ino;		/* the file that is mapped: its name may be another's by now */
	int		 fd;		/* doc_send(): -1: not open */
	unsigned	 place;		/* ... in the reader's sending[] */
	bool		 no_send;	/* it cannot be sent from */
};

struct reader {
	uint8_t			*overlay;	/* PROT_READ */
	struct pin		*pin;
	struct region_head	*region;
	int			 dirfd;
	bool			 verify_always;
	bool			 pinned;
	struct root		 root;		/* the pinned generation */
	struct tree		 tree;
	struct checkpoint	 ck;
	struct mapping		*last;		/* met most recently */
	struct mapping		*maps[MAP_BUCKETS];
	struct mapping		*sending[SEND_FDS];	/* with an open descriptor */
	unsigned		 send_fds;	/* as many of them; 0: nothing is sent from a descriptor */
	unsigned		 turn;		/* whose place is the next one's */
	unsigned		 wanting;	/* were wanted while all were in use */
	uint64_t		 page_told;	/* the last damaged page in the log: checkpoint << 32 | page */
	uint64_t		 floor_seen;	/* region mapped_floor at the last trim */
	uint8_t			 meta[SUBMIT_META_MAX];	/* of the document read last */
};

static const struct roots *
roots_of(const struct reader *r)
{
	return (const struct roots *)(const void *)r->overlay;
}

/*
 * They spare a copy, and no more: where descriptors are few, connections and
 * mappings have them (worker/worker.c leaves half aside there, for both).
 */
static unsigned
count_send_fds(void)
{
	struct rlimit	rl;

	if (getrlimit(RLIMIT_NOFILE, &rl) == -1)
		return 0;
	return rl.rlim_cur / SEND_SHARE < SEND_FDS ? (unsigned)(rl.rlim_cur / SEND_SHARE) : SEND_FDS;
}

struct reader *
read_open(const struct boot *b)
{
	struct reader	*r = calloc(1, sizeof(*r));

	RUNS_IN(IN_WORKER | IN_TEST);
	if (r == NULL)
		return NULL;
	guard_init(GUARD_JUMP);
	r->overlay = mmap(NULL, OVERLAY_BYTES, PROT_READ, MAP_SHARED | MAP_NORESERVE, b->region.overlay_fd, 0);
	if (r->overlay == MAP_FAILED) {
		free(r);
		return NULL;
	}
	/* without the descriptor it cannot be mapped for writing any more */
	close(b->region.overlay_fd);
	r->pin = &b->region.pins[b->lane];
	r->region = b->region.head;
	r->dirfd = b->dir_fd;
	r->verify_always = b->set.verify_always;
	r->tree.overlay = r->overlay;
	r->send_fds = count_send_fds();
	return r;
}

static void
close_sending(struct reader *r, struct mapping *m)
{
	if (m->fd == -1)
		return;
	fd_close(m->fd);
	m->fd = -1;
	r->sending[m->place] = NULL;
}

static void
unmap(struct reader *r, struct mapping *m)
{
	close_sending(r, m);
	munmap((void *)(uintptr_t)m->base, m->len);
	free(m->checked);
	free(m);
}

void
read_close(struct reader *r)
{
	pin_drop(r->pin);
	for (unsigned i = 0; i < MAP_BUCKETS; i++)
		while (r->maps[i] != NULL) {
			struct mapping	*m = r->maps[i];

			r->maps[i] = m->next;
			unmap(r, m);
		}
	if (r->ck.map != NULL)
		checkpoint_close(&r->ck);
	munmap(r->overlay, OVERLAY_BYTES);
	free(r);
}

/* ------------------------------------------------------------- generations */

/* Makes the pinned root's checkpoint the mapped one.  0; errno: it cannot be had, nothing is mapped then. */
static int
map_checkpoint(struct reader *r)
{
	struct checkpoint	ck;

	if (r->root.checkpoint == (r->ck.map != NULL ? r->ck.head.number : 0))
		return 0;
	if (r->ck.map != NULL)
		checkpoint_close(&r->ck);
	memset(&r->ck, 0, sizeof(r->ck));
	r->tree.checkpoint = NULL;
	r->tree.checked = NULL;
	r->tree.npages = 0;
	if (r->root.checkpoint == 0)
		return 0;
	if (checkpoint_open(&ck, r->dirfd, r->root.checkpoint, false) == -1)
		return errno;
	r->ck = ck;
	r->tree.checkpoint = ck.map;
	r->tree.checked = ck.checked;
	r->tree.npages = ck.head.npages;
	return 0;
}

/*
 * A page of the checkpoint is no good; page 0: its head, or the whole file.  The
 * committer may never come by it: it is told, and has the tree rebuilt from the
 * log (store/committer.c).  Who is told: the log once, the committer each time.
 */
static void
tell_page(struct reader *r, uint64_t page)
{
	uint64_t	what = (uint64_t)r->root.checkpoint << 32 | (page & UINT32_MAX);

	if (what != r->page_told)
		log_warnx("checkpoint tree-%010u, offset %llu: damaged %s; what is below it is not served until the tree "
		    "is rebuilt", r->root.checkpoint, (unsigned long long)page * PAGE_BYTES, page == 0 ? "head, or no such file" : "page");
	r->page_told = what;
	/* relaxed: the word is all that is said; the bell orders it before the committer's look */
	atomic_store_explicit(&r->region->bad_page, what, memory_order_relaxed);
	bell_ring(&r->region->committer_bell);
}

static bool
is_shortage(int error)
{
	return error == EMFILE || error == ENFILE || error == ENOMEM || error == EAGAIN;
}

/*
 * Pins and copies the newest root.  One whose checkpoint is damaged serves what
 * its overlay holds.  false: there is none yet, or none that can be had for now.
 */
static bool
pin_newest(struct reader *r)
{
	int	error = 0;

	for (int tries = 0; tries < 8; tries++) {
		uint64_t	gen = pin_take(r->pin, &roots_of(r)->newest);

		if (gen == 0)
			return false;
		r->pinned = true;
		if (!root_read(roots_of(r), gen, &r->root))
			continue;
		if ((error = map_checkpoint(r)) != ENOENT)
			break;		/* else it is gone: a newer root must exist */
	}
	if (is_shortage(error)) {
		log_warnx("checkpoint tree-%010u: %s; tried again with the next request", r->root.checkpoint, strerror(error));
		pin_drop(r->pin);
		r->pinned = false;
		return false;
	}
	if (error != 0)
		tell_page(r, 0);
	r->tree.root = r->root.page;
	return true;
}

bool
read_refresh(struct reader *r)
{
	/* acquire: what was published before an answer was sent is seen by who asks after it */
	uint64_t	newest = atomic_load_explicit(&roots_of(r)->newest, memory_order_acquire);

	if (r->pinned && newest == r->root.gen)
		return true;
	return pin_newest(r);
}

uint64_t
read_time_floor(const struct reader *r)
{
	return r->root.time_ms;
}

uint64_t
read_catalog_seq(const struct reader *r)
{
	return r->root.catalog_seq;
}

uint64_t
read_generation(const struct reader *r)
{
	return r->root.gen;
}

/* ------------------------------------------------------------- segments */

static struct mapping *
map_segment(struct reader *r, uint32_t number)
{
	struct mapping	*m;
	struct stat	 st;
	char		 name[SEGMENT_NAME];
	void		*base;
	int		 fd;

	segment_name(name, number);
	if ((fd = openat(r->dirfd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW)) == -1)
		return NULL;
	base = MAP_FAILED;
	if (fstat(fd, &st) == 0 && st.st_size > 0)
		base = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
	fd_close(fd);
	if (base == MAP_FAILED)
		return NULL;
	if ((m = calloc(1, sizeof(*m))) == NULL) {
		munmap(base, (size_t)st.st_size);
		return NULL;
	}
	m->number = number;
	m->base = base;
	m->len = (size_t)st.st_size;
	m->dev = st.st_dev;
	m->ino = st.st_ino;
	m->fd = -1;
	m->next = r->maps[number % MAP_BUCKETS];
	r->maps[number % MAP_BUCKETS] = m;
	return m;
}

static struct mapping *
segment_of(struct reader *r, uint32_t number)
{
	struct mapping	*m = r->last;

	if (m != NULL && m->number == number)
		return m;
	for (m = r->maps[number % MAP_BUCKETS]; m != NULL; m = m->next)
		if (m->number == number)
			break;
	if (m == NULL)
		m = map_segment(r, number);
	r->last = m;
	return m;
}

static void
drop_gone(struct reader *r)
{
	char		name[SEGMENT_NAME];
	struct stat	st;

	for (unsigned i = 0; i < MAP_BUCKETS; i++)
		for (struct mapping **p = &r->maps[i], *m; (m = *p) != NULL;) {
			segment_name(name, m->number);
			if (!m->gone && fstatat(r->dirfd, name, &st, AT_SYMLINK_NOFOLLOW) == -1 && errno == ENOENT)
				m->gone = true;
			if (!m->gone || m->holds != 0) {
				p = &m->next;
				continue;
			}
			*p = m->next;
			unmap(r, m);
		}
	r->last = NULL;
}

void
read_idle(struct reader *r)
{
	/* acquire: pairs with the committer's release after it unlinked */
	uint64_t	floor = atomic_load_explicit(&r->region->mapped_floor, memory_order_acquire);

	if (r->pinned) {
		pin_drop(r->pin);
		r->pinned = false;
	}
	if (floor != r->floor_seen) {
		r->floor_seen = floor;
		drop_gone(r);
	}
}

/* ------------------------------------------------------------- documents */

static int
damaged(uint32_t segment, uint32_t offset, const char *what)
{
	log_warnx("log segment %u, offset %u: %s; the document is not served", segment, offset, what);
	errno = EILSEQ;
	return -1;
}

/* Without a checkpoint in the mapping it is the checkpoint that is damaged, whichever page was looked for. */
static int
page_damaged(struct reader *r, uint64_t page)
{
	tell_page(r, r->ck.map != NULL ? page : 0);
	errno = EILSEQ;
	return -1;
}

/*
 * A page of a mapping was not there: the disk failed, or somebody cut the file.
 * Says which one.  Reads go on: the next one of that place fails the same way.
 */
static int
unreadable(struct reader *r, const void *where)
{
	const uint8_t	*p = where;

	for (unsigned i = 0; i < MAP_BUCKETS; i++)
		for (const struct mapping *m = r->maps[i]; m != NULL; m = m->next)
			if (p >= m->base && p < m->base + m->len) {
				log_warnx("log segment %u, offset %llu: the disk does not give this page "
				    "(I/O error, or the file was cut short); the document is not served",
				    m->number, (unsigned long long)(p - m->base));
				errno = EIO;
				return -1;
			}
	if (r->ck.map != NULL && p >= r->ck.map && p < r->ck.map + r->ck.maplen) {
		log_warnx("checkpoint tree-%010u, offset %llu: the disk does not give this page (I/O error, or the "
		    "file was cut short)", r->ck.head.number, (unsigned long long)(p - r->ck.map));
		page_damaged(r, (uint64_t)(p - r->ck.map) / PAGE_BYTES);
	} else
		log_warnx("a page of the store cannot be read");
	errno = EIO;
	return -1;
}

/* The record at its place, checked: bounds, head checksum, and that it is the one the tree means. */
static const struct rec_head *
record_of(struct reader *r, const struct doc_val *v, uint32_t tenant, const void *path, size_t len, struct mapping **mp)
{
	struct mapping		*m = segment_of(r, v->segment);
	const struct rec_head	*h;

	if (m == NULL) {
		log_warn("log segment %u cannot be opened", v->segment);
		return NULL;
	}
	if (v->offset + sizeof(*h) > m->len) {
		damaged(v->segment, v->offset, "behind the end of the file");
		return NULL;
	}
	h = record_at(m->base, m->len, v->offset);
	if (h == NULL || rec_bytes(h) != v->rec_len || h->kind != REC_PUT || h->tenant != tenant ||
	    h->seq != v->seq || h->path_len != len || memcmp(h + 1, path, len) != 0) {
		damaged(v->segment, v->offset, "damaged record");
		return NULL;
	}
	*mp = m;
	return h;
}

/* Of what is guarded: in a function of its own, so that nothing of it lives on over the jump. */
#define GUARDED	__attribute__((noinline)) static

GUARDED int
find_doc(struct reader *r, uint32_t tenant, const void *path, size_t len, struct doc *d)
{
	const struct rec_head	*h;
	struct mapping		*m;
	struct doc_val		 v;
	uint8_t			 key[KEY_MAX];
	int			 n;

	if (len > SUBMIT_PATH_MAX)
		return 0;
	if ((n = tree_get(&r->tree, key, key_make(key, tenant, path, len), &v)) == -1)
		return page_damaged(r, tree_bad_page);
	if (n == 0 || (v.flags & DOC_TOMBSTONE) != 0)
		return 0;
	if ((h = record_of(r, &v, tenant, path, len, &m)) == NULL)
		return -1;
	d->tag = (struct tag){ .seq = h->seq, .run = h->run };
	d->time_ms = h->time_ms;
	d->meta = memcpy(r->meta, (const uint8_t *)(h + 1) + len, h->meta_len);
	d->meta_len = h->meta_len;
	d->body = (const uint8_t *)(h + 1) + len + h->meta_len;
	d->body_len = h->body_len;
	d->body_crc = h->body_crc;
	d->table = d->body + h->body_len +
	    table_bytes(sizeof(*h) + len + h->meta_len, h->body_len) - 4 * body_chunks(h->body_len);
	d->segment = v.segment;
	d->offset = v.offset;
	d->mapping = m;
	return 1;
}

int
read_doc(struct reader *r, uint32_t tenant, const void *path, size_t len, struct doc *d)
{
	int	n;

	if (guard_enter())
		return unreadable(r, guard_address());
	n = find_doc(r, tenant, path, len, d);
	guard_leave();
	return n;
}

/* verify-reads first: was this chunk right before? */
static bool
was_checked(const struct mapping *m, const uint8_t *chunk)
{
	size_t	bit = (size_t)(chunk - m->base) / CHECK_GRAIN;

	return m->checked != NULL && (m->checked[bit / 8] & (1u << (bit % 8))) != 0;
}

static void
set_checked(struct mapping *m, const uint8_t *chunk)
{
	size_t	bit = (size_t)(chunk - m->base) / CHECK_GRAIN;

	if (m->checked == NULL && (m->checked = calloc(1, m->len / CHECK_GRAIN / 8 + 1)) == NULL)
		return;
	m->checked[bit / 8] |= (uint8_t)(1u << (bit % 8));
}

static bool
chunk_ok(struct reader *r, const struct doc *d, uint64_t i)
{
	const uint8_t	*p = d->body + i * SUBMIT_CHUNK;
	uint64_t	 left = d->body_len - i * SUBMIT_CHUNK;
	uint32_t	 want = d->body_crc;

	if (!r->verify_always && was_checked(d->mapping, p))
		return true;
	if (d->body_len > SUBMIT_CHUNK)
		memcpy(&want, d->table + 4 * i, sizeof(want));
	if (crc32c(0, p, left < SUBMIT_CHUNK ? left : SUBMIT_CHUNK) != want)
		return false;
	if (!r->verify_always)
		set_checked(d->mapping, p);
	return true;
}

GUARDED bool
check_chunks(struct reader *r, const struct doc *d, uint32_t from, uint32_t to)
{
	if (to > d->body_len || from >= to)
		return from == to;
	if (d->body_len > SUBMIT_CHUNK &&
	    crc32c(0, d->table, 4 * body_chunks(d->body_len)) != d->body_crc) {
		damaged(d->segment, d->offset, "damaged table of checksums");
		return false;
	}
	for (uint64_t i = from / SUBMIT_CHUNK; i <= (to - 1) / SUBMIT_CHUNK; i++)
		if (!chunk_ok(r, d, i)) {
			damaged(d->segment, d->offset, "damaged body");
			return false;
		}
	return true;
}

bool
doc_check(struct reader *r, const struct doc *d, uint32_t from, uint32_t to)
{
	bool	ok;

	if (guard_enter()) {
		unreadable(r, guard_address());
		return false;
	}
	ok = check_chunks(r, d, from, to);
	guard_leave();
	return ok;
}

bool
doc_copy(struct reader *r, void *to, const void *from, size_t n)
{
	if (guard_enter()) {
		unreadable(r, guard_address());
		return false;
	}
	memcpy(to, from, n);
	guard_leave();
	return true;
}

/* One load of each page; the value is of no interest. */
GUARDED void
touch(const volatile uint8_t *p, size_t n)
{
	for (size_t i = 0; i < n; i += PAGE_BYTES)
		(void)p[i];
	if (n > 0)
		(void)p[n - 1];
}

bool
doc_there(struct reader *r, const void *from, size_t n)
{
	if (guard_enter()) {
		unreadable(r, guard_address());
		return false;
	}
	touch(from, n);
	guard_leave();
	return true;
}

/*
 * Opens a segment to send from; the one opened longest ago makes room.  -1: not
 * now.  What was checked is the mapping: another file of that name must not go out for it.
 */
static int
open_sending(struct reader *r, struct mapping *m)
{
	unsigned	place = r->turn;
	struct stat	st;
	char		name[SEGMENT_NAME];
	int		fd;

	if (r->send_fds == 0)
		return -1;
	/* of many that are read at random opening one each time would cost what it saves */
	if (r->sending[place] != NULL && ++r->wanting % SEND_TURNS != 0)
		return -1;
	segment_name(name, m->number);
	if ((fd = openat(r->dirfd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW)) == -1)
		return -1;
	if (fstat(fd, &st) == -1 || st.st_dev != m->dev || st.st_ino != m->ino) {
		m->no_send = true;
		fd_close(fd);
		return -1;
	}
	if (r->sending[place] != NULL)
		close_sending(r, r->sending[place]);
	r->sending[place] = m;
	r->turn = (place + 1) % r->send_fds;
	m->place = place;
	return m->fd = fd;
}

ssize_t
doc_send(struct reader *r, const struct doc *d, int sock, uint32_t from, uint32_t to)
{
	struct mapping	*m = d->mapping;
	off_t		 at = d->body + from - m->base;
	ssize_t		 n;

	if (m->no_send || m->gone || (m->fd == -1 && open_sending(r, m) == -1)) {
		errno = ENOTSUP;
		return -1;
	}
	while ((n = sendfile(sock, m->fd, &at, to - from)) == -1 && errno == EINTR)
		continue;
	if (n == 0 || (n == -1 && errno == EIO))
		return unreadable(r, d->body + from);
	/* a file system without it, or no memory for its pipe: the mapping is there */
	if (n == -1 && (errno == EINVAL || errno == ENOSYS || errno == EOVERFLOW || errno == ENOMEM)) {
		m->no_send = errno != ENOMEM;
		errno = ENOTSUP;
	}
	return n;
}

void
doc_hold(struct reader *r, const struct doc *d)
{
	(void)r;
	((struct mapping *)d->mapping)->holds++;
}

void
doc_release(struct reader *r, const struct doc *d)
{
	struct mapping	*m = d->mapping;

	if (--m->holds == 0 && m->gone)
		r->floor_seen--;	/* the next read_idle() looks again */
}

bool
doc_gone(const struct reader *r, const struct doc *d)
{
	(void)r;
	return ((const struct mapping *)d->mapping)->gone;
}

/* ------------------------------------------------------------- tenants */

int
read_tenant(struct reader *r, const char *name, size_t len, struct tenant_settings *out)
{
	struct doc	d;
	int		n;

	if (len == 0 || len > TENANT_NAME_MAX)
		return 0;
	if ((n = read_doc(r, 0, name, len, &d)) != 1)
		return n;
	if (d.body_len != sizeof(*out) || !doc_check(r, &d, 0, d.body_len)) {
		errno = EILSEQ;
		return -1;
	}
	return doc_copy(r, out, d.body, sizeof(*out)) ? 1 : -1;
}

GUARDED int
find_usage(struct reader *r, uint32_t tenant, uint64_t *documents, uint64_t *bytes)
{
	uint8_t		lo[KEY_MAX], hi[KEY_MAX];
	struct agg	a;
	size_t		nlo = key_make(lo, tenant, NULL, 0), nhi = key_make(hi, tenant + 1, NULL, 0);

	if (tree_range(&r->tree, lo, nlo, hi, nhi, &a) == -1)
		return page_damaged(r, tree_bad_page);
	*documents = a.count;
	*bytes = a.bytes;
	return 0;
}

int
read_usage(struct reader *r, uint32_t tenant, uint64_t *documents, uint64_t *bytes)
{
	int	n;

	if (guard_enter())
		return unreadable(r, guard_address());
	n = find_usage(r, tenant, documents, bytes);
	guard_leave();
	return n;
}

/* The name of the first tenant behind `after`.  1: its length is in *n. */
GUARDED int
find_tenant_behind(struct reader *r, const char *after, size_t len, char *name, size_t *out)
{
	struct cursor	 c;
	struct doc_val	 v;
	const uint8_t	*key;
	uint8_t		 from[KEY_MAX];
	size_t		 n = key_make(from, 0, after, len);
	int		 rc;

	from[n++] = '\0';	/* behind the name itself, before all that continue it */
	for (rc = cursor_seek(&c, &r->tree, from, n); rc == 1; rc = cursor_next(&c)) {
		cursor_entry(&c, &key, &n, &v);
		if (key_tenant(key) != 0)
			return 0;
		n -= sizeof(uint32_t);
		if ((v.flags & DOC_TOMBSTONE) != 0 || n == 0 || n > TENANT_NAME_MAX)
			continue;
		memcpy(name, key + sizeof(uint32_t), n);
		name[n] = '\0';
		*out = n;
		return 1;
	}
	return rc == -1 ? page_damaged(r, tree_bad_page) : rc;
}

int
read_tenants(struct reader *r, const char *after, size_t len, char *name, struct tenant_settings *set)
{
	size_t	n;
	int	rc;

	if (len > TENANT_NAME_MAX)
		return 0;
	if (guard_enter())
		return unreadable(r, guard_address());
	rc = find_tenant_behind(r, after, len, name, &n);
	guard_leave();
	return rc == 1 ? read_tenant(r, name, n, set) : rc;
}
