/*
 * store/scrub.c - see store/scrub.h.
 *
 * Runs in: committer, tests.
 * Touches: reads segments and the checkpoint through descriptors of its own.
 *
 *	RESTING --> RECORDS --(last segment)--> PAGES --> RESTING
 *	              |  ^
 *	     a head is broken: SEARCH: where does the next live record stand?
 */
#include "config.h"

#include <sys/mman.h>
#include <sys/random.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shm/crc32c.h"
#include "shm/log.h"
#include "store/page.h"
#include "store/scrub.h"
#include "store/segment.h"
#include "store/store.h"

#define RATE		((uint64_t)1 << 20)		/* bytes per second */
#define IDLE_US		((uint64_t)10 * 1000000)	/* nobody wrote for so long */
#define REST_US		((uint64_t)86400 * 1000000)
#define WINDOW		(128u << 10)			/* bytes of one read */
#define ALIGN		4096u				/* of an O_DIRECT read */
#define HEAD_MAX	(sizeof(struct rec_head) + SUBMIT_PATH_MAX + SUBMIT_META_MAX)
#define SEARCHED	4096u				/* tree entries looked at in a step */
#define TOLD_MAX	1024u				/* damages remembered, so as not to be told again */

enum state { RESTING, RECORDS, SEARCH, PAGES };

struct place {
	uint32_t	file;		/* segment; or checkpoint, with PAGE_CHECKPOINT */
	uint32_t	at;		/* offset; number of the page */
};

struct scrub {
	struct store		*s;
	struct count_block	*counts;
	uint64_t		 rate, idle_us, rest_us;
	enum state		 state;
	uint64_t		 due_us;
	/* the file being read */
	int			 fd;
	bool			 direct;
	uint8_t			*window;	/* WINDOW bytes, mapped during a pass */
	uint64_t		 from;		/* what is in it */
	uint32_t		 have;
	uint64_t		 bytes;		/* read in this step */
	/* RECORDS */
	uint32_t		 first;		/* segment that the pass began with */
	bool			 wrapped;
	uint32_t		 segment, offset;
	bool			 in_body;	/* of the record there: */
	struct rec_head		 h;
	uint8_t			 path[SUBMIT_PATH_MAX];
	uint32_t		 chunk, nchunks;
	uint32_t		*sums;		/* nchunks, where there is a table */
	bool			 again;		/* it failed once: read it anew before it is told */
	/* SEARCH */
	size_t			 keylen;
	uint8_t			 key[KEY_MAX + 1];
	uint32_t		 next;		/* the lowest live offset behind, so far */
	bool			 was_live;
	uint8_t			 lost[KEY_MAX];	/* the key of the one that is broken */
	size_t			 lostlen;
	/* PAGES */
	uint32_t		 checkpoint, page;
	struct place		 told[TOLD_MAX];
	unsigned		 ntold;
};

struct scrub *
scrub_create(struct store *s, struct count_block *counts)
{
	struct scrub	*b = calloc(1, sizeof(*b));
	const char	*rate = getenv("HOLDFAST_SCRUB");

	if (b == NULL)
		return NULL;
	b->s = s;
	b->counts = counts;
	b->fd = -1;
	b->rate = RATE;
	b->idle_us = IDLE_US;
	b->rest_us = REST_US;
	if (rate != NULL && strtoull(rate, NULL, 10) > 0) {
		b->rate = strtoull(rate, NULL, 10);
		b->idle_us = 100000;
		b->rest_us = 100000;
	}
	return b;
}

static void
close_file(struct scrub *b)
{
	if (b->fd != -1)
		close(b->fd);
	b->fd = -1;
	b->have = 0;
}

static void
free_body(struct scrub *b)
{
	free(b->sums);
	b->sums = NULL;
	b->in_body = false;
}

/* A pass is over, or given up: nothing of it stays in memory. */
static void
rest(struct scrub *b)
{
	close_file(b);
	free_body(b);
	if (b->window != NULL)
		munmap(b->window, WINDOW);
	b->window = NULL;
	b->state = RESTING;
}

void
scrub_destroy(struct scrub *b)
{
	if (b == NULL)
		return;
	rest(b);
	free(b);
}

/* ------------------------------------------------------------------ reading */

static int
open_file(struct scrub *b, const char *name)
{
	int	flags = O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;

	close_file(b);
	b->direct = true;
	if ((b->fd = openat(b->s->dirfd, name, flags | O_DIRECT)) == -1 && errno == EINVAL) {
		b->direct = false;	/* a file system without: the cache is asked to forget instead */
		b->fd = openat(b->s->dirfd, name, flags);
	}
	return b->fd == -1 ? -1 : 0;
}

/* Bytes at..at + len of the file, len <= WINDOW - ALIGN; NULL with errno: EILSEQ: it ends before, EIO ... */
static const uint8_t *
fetch(struct scrub *b, uint64_t at, uint32_t len)
{
	ssize_t	n;

	if (at >= b->from && at + len <= b->from + b->have)
		return b->window + (at - b->from);
	b->have = 0;
	b->from = at / ALIGN * ALIGN;
	if (!b->direct)
		posix_fadvise(b->fd, (off_t)b->from, WINDOW, POSIX_FADV_DONTNEED);
	do
		n = pread(b->fd, b->window, WINDOW, (off_t)b->from);
	while (n == -1 && errno == EINTR);
	if (!b->direct)
		posix_fadvise(b->fd, (off_t)b->from, WINDOW, POSIX_FADV_DONTNEED);
	if (n == -1)
		return NULL;
	b->have = (uint32_t)n;
	b->bytes += (uint64_t)n;
	if (at + len > b->from + b->have) {
		errno = EILSEQ;
		return NULL;
	}
	return b->window + (at - b->from);
}

/* ------------------------------------------------------------------ telling */

/* The first time at this place? */
static bool
remember(struct scrub *b, uint32_t file, uint32_t at)
{
	for (unsigned i = 0; i < b->ntold; i++)
		if (b->told[i].file == file && b->told[i].at == at)
			return false;
	if (b->ntold < TOLD_MAX)
		b->told[b->ntold++] = (struct place){ file, at };
	count_add(b->counts, CC_SCRUB_DAMAGED, 1);
	return true;
}

/* The name of a tenant, from the catalog. */
static void
tenant_name(struct scrub *b, uint32_t id, char *out, size_t size)
{
	struct cursor		 c;
	struct doc_val		 v;
	struct tenant_settings	 set;
	const struct rec_head	*h;
	const uint8_t		*key;
	size_t			 len;
	int			 n;

	for (n = cursor_seek(&c, &b->s->w.t, "\0\0\0\0", 4); n == 1; n = cursor_next(&c)) {
		cursor_entry(&c, &key, &len, &v);
		if (len < 4 || key_tenant(key) != 0)
			break;
		if ((v.flags & DOC_TOMBSTONE) != 0 || (h = log_record(&b->s->log, v.segment, v.offset)) == NULL ||
		    h->body_len != sizeof(set) || !rec_body_ok(h))
			continue;
		memcpy(&set, rec_body(h), sizeof(set));
		if (set.id == id) {
			snprintf(out, size, "%.*s", (int)(len - 4), (const char *)key + 4);
			return;
		}
	}
	snprintf(out, size, "(tenant %" PRIu32 ")", id);
}

static void
tell_record(struct scrub *b, uint32_t tenant, const uint8_t *path, size_t len, const char *what)
{
	char	name[80];

	if (!remember(b, b->segment, b->offset))
		return;
	if (tenant == 0)
		snprintf(name, sizeof(name), "_tenants");
	else
		tenant_name(b, tenant, name, sizeof(name));
	log_warnx("%s: scrub: log-%010" PRIu32 ", offset %" PRIu32 ": damaged %s of document /%s/%.*s",
	    b->s->dir, b->segment, b->offset, what, name, (int)len, (const char *)path);
}

/* ------------------------------------------------------------------ going through records */

/* Bytes of the segment that are batches; 0: there is no such segment any more. */
static uint64_t
segment_end(const struct scrub *b)
{
	const struct segment	*g = log_segment(&b->s->log, b->segment);

	return g != NULL && !g->dropped ? g->end : 0;
}

/* Goes on with the segment behind, round the end.  false: that was the last. */
static bool
next_segment(struct scrub *b)
{
	const struct log	*l = &b->s->log;
	uint32_t		 n = 0;
	char			 name[SEGMENT_NAME];

	close_file(b);
	free_body(b);
	for (unsigned i = 0; i < l->nseg && n == 0; i++)
		if (l->seg[i].number > b->segment)
			n = l->seg[i].number;
	if (n == 0 && !b->wrapped && l->nseg != 0) {
		b->wrapped = true;
		n = l->seg[0].number;
	}
	if (n == 0 || (b->wrapped && n >= b->first))
		return false;
	b->segment = n;
	b->offset = SEGMENT_HEAD;
	segment_name(name, n);
	if (open_file(b, name) == -1)
		log_warn("%s: scrub: %s", b->s->dir, name);	/* fetch() finds nothing: then the next */
	return true;
}

/* Does the tree refer to the record at the place?  1, 0, -1. */
static int
is_live(struct scrub *b)
{
	uint8_t		key[KEY_MAX];
	struct doc_val	v;
	int		n;

	if (b->h.kind != REC_PUT && b->h.kind != REC_DELETE && b->h.kind != REC_DROP_TENANT)
		return 0;
	n = tree_get(&b->s->w.t, key,
	    key_make(key, b->h.kind == REC_DROP_TENANT ? 0 : b->h.tenant, b->path, b->h.path_len), &v);
	if (n != 1)
		return n;
	return v.segment == b->segment && v.offset == b->offset;
}

static void
step_over(struct scrub *b)
{
	b->offset += (uint32_t)rec_bytes(&b->h);
	b->again = false;
	free_body(b);
}

/* The record's bytes are not what they were.  Once more from the card, before anybody is alarmed. */
static void
body_failed(struct scrub *b, const char *what)
{
	if (!b->again) {
		b->again = true;
		b->have = 0;
		free_body(b);
		return;
	}
	if (is_live(b) == 1)
		tell_record(b, b->h.kind == REC_DROP_TENANT ? 0 : b->h.tenant, b->path, b->h.path_len, what);
	step_over(b);
}

static void
head_failed(struct scrub *b)
{
	if (!b->again) {
		b->again = true;
		b->have = 0;
		return;
	}
	b->again = false;
	b->state = SEARCH;
	b->keylen = 0;
	b->next = UINT32_MAX;
	b->was_live = false;
}

/* The head, with path and meta, at the offset.  false: broken. */
static bool
read_head(struct scrub *b, uint64_t end)
{
	uint64_t	 left = end - b->offset;
	uint32_t	 n = left < HEAD_MAX ? (uint32_t)left : (uint32_t)HEAD_MAX;
	const uint8_t	*p;

	if (n < sizeof(b->h) || (p = fetch(b, b->offset, n)) == NULL)
		return false;
	memcpy(&b->h, p, sizeof(b->h));
	if (b->h.kind < REC_PUT || b->h.kind > REC_DROP_SEGMENT || b->h.path_len > SUBMIT_PATH_MAX ||
	    b->h.meta_len > SUBMIT_META_MAX || rec_bytes(&b->h) > left ||
	    sizeof(b->h) + b->h.path_len + b->h.meta_len > n)
		return false;
	if (b->h.head_crc != crc32c(0, p + sizeof(b->h.head_crc),
	    sizeof(b->h) - sizeof(b->h.head_crc) + b->h.path_len + b->h.meta_len))
		return false;
	memcpy(b->path, p + sizeof(b->h), b->h.path_len);
	return true;
}

/* Is there a commit record at the offset?  Nothing refers to those. */
static bool
at_commit(struct scrub *b, uint64_t end)
{
	const uint8_t	*p;

	if (end - b->offset < sizeof(struct commit_rec))
		return false;
	p = fetch(b, b->offset, sizeof(struct commit_rec));
	return p != NULL && memcmp(p, &b->s->log.mark, sizeof(b->s->log.mark)) == 0;
}

static void
begin_record(struct scrub *b, uint64_t end)
{
	int	live;

	if (at_commit(b, end)) {
		b->offset += sizeof(struct commit_rec);
		return;
	}
	if (!read_head(b, end)) {
		head_failed(b);
		return;
	}
	if ((live = is_live(b)) != 1 || b->h.body_len == 0) {
		step_over(b);		/* -1: the checkpoint's page is damaged; that comes up with the pages */
		return;
	}
	b->nchunks = (uint32_t)body_chunks(b->h.body_len);
	if (b->h.body_len > SUBMIT_CHUNK && (b->sums = calloc(b->nchunks, sizeof(*b->sums))) == NULL) {
		step_over(b);
		return;
	}
	b->chunk = 0;
	b->in_body = true;
}

static uint64_t
body_at(const struct scrub *b)
{
	return b->offset + sizeof(b->h) + b->h.path_len + b->h.meta_len;
}

/* The table itself, and that it is of the body that was just read. */
static bool
table_ok(struct scrub *b)
{
	uint64_t	 n = 4 * (uint64_t)b->nchunks;
	uint64_t	 at = body_at(b) + b->h.body_len;
	uint32_t	 crc = 0, len;
	const uint8_t	*p;

	at += table_bytes(sizeof(b->h) + b->h.path_len + b->h.meta_len, b->h.body_len) - n;
	for (uint64_t i = 0; i < n; i += len) {
		len = n - i < SUBMIT_CHUNK ? (uint32_t)(n - i) : (uint32_t)SUBMIT_CHUNK;
		if ((p = fetch(b, at + i, len)) == NULL)
			return false;
		crc = crc32c(crc, p, len);
	}
	return crc == b->h.body_crc && crc32c(0, b->sums, n) == crc;
}

static void
next_chunk(struct scrub *b)
{
	uint64_t	 at = (uint64_t)b->chunk * SUBMIT_CHUNK, left = b->h.body_len - at;
	uint32_t	 n = left < SUBMIT_CHUNK ? (uint32_t)left : (uint32_t)SUBMIT_CHUNK, crc;
	const uint8_t	*p = fetch(b, body_at(b) + at, n);

	if (p == NULL) {
		body_failed(b, "body (it cannot be read)");
		return;
	}
	crc = crc32c(0, p, n);
	if (b->sums == NULL) {
		if (crc != b->h.body_crc)
			body_failed(b, "body");
		else
			step_over(b);
		return;
	}
	b->sums[b->chunk++] = crc;
	if (b->chunk < b->nchunks)
		return;
	if (!table_ok(b))
		body_failed(b, "body");
	else
		step_over(b);
}

static void
step_records(struct scrub *b)
{
	uint64_t	end;

	while (b->state == RECORDS && b->bytes < WINDOW) {
		end = b->fd != -1 ? segment_end(b) : 0;
		if (b->offset >= end) {
			if (!next_segment(b)) {
				b->state = PAGES;
				b->checkpoint = b->s->ck.head.number;
				b->page = 0;
			}
			return;
		}
		if (b->in_body)
			next_chunk(b);
		else
			begin_record(b, end);
	}
}

/* ------------------------------------------------------------------ a broken head */

/*
 * Its length is lost with it.  The tree knows whether it was one that counts, and
 * where the next one stands that does.
 */
static void
step_search(struct scrub *b)
{
	struct cursor	 c;
	struct doc_val	 v;
	const uint8_t	*key;
	size_t		 len;
	int		 n;
	unsigned	 i = 0;

	for (n = cursor_seek(&c, &b->s->w.t, b->key, b->keylen); n == 1; n = cursor_next(&c)) {
		cursor_entry(&c, &key, &len, &v);
		if (i++ == SEARCHED) {
			memcpy(b->key, key, len);
			b->keylen = len;
			return;
		}
		if (v.segment != b->segment || v.offset < b->offset)
			continue;
		if (v.offset > b->offset) {
			b->next = v.offset < b->next ? v.offset : b->next;
			continue;
		}
		b->was_live = true;
		memcpy(b->lost, key, len);
		b->lostlen = len;
	}
	if (b->was_live)
		tell_record(b, key_tenant(b->lost), b->lost + 4, b->lostlen - 4, "head");
	b->offset = b->next;
	b->state = RECORDS;
}

/* ------------------------------------------------------------------ the checkpoint */

/* false: it is another one by now, and what was written today needs no look. */
static bool
open_checkpoint(struct scrub *b)
{
	char	name[32];

	if (b->checkpoint == 0 || b->s->ck.head.number != b->checkpoint)
		return false;
	if (b->fd != -1)
		return true;
	snprintf(name, sizeof(name), "tree-%010" PRIu32, b->checkpoint);
	return open_file(b, name) == 0;
}

static bool
page_ok(struct scrub *b)
{
	const struct page	*p = (const void *)fetch(b, (uint64_t)b->page * PAGE_BYTES, PAGE_BYTES);

	if (p == NULL)
		return false;
	if (b->page != 0)
		return p->crc == page_crc(p);
	return memcmp(p, &b->s->ck.head, sizeof(b->s->ck.head)) == 0;
}

static void
step_pages(struct scrub *b)
{
	if (!open_checkpoint(b) || b->page >= b->s->ck.head.npages) {
		rest(b);
		count_add(b->counts, CC_SCRUB_PASSES, 1);
		return;
	}
	while (b->bytes < WINDOW && b->page < b->s->ck.head.npages) {
		if (!page_ok(b)) {
			b->have = 0;	/* once more from the card */
			if (!page_ok(b) && remember(b, b->checkpoint | PAGE_CHECKPOINT, b->page))
				log_warnx("%s: scrub: checkpoint tree-%010" PRIu32 ": page %" PRIu32 " is damaged",
				    b->s->dir, b->checkpoint, b->page);
		}
		b->page++;
	}
}

/* ------------------------------------------------------------------ when */

/* A random segment's turn is first. */
static int
begin(struct scrub *b)
{
	const struct log	*l = &b->s->log;
	uint32_t		 r = 0;
	void			*p;

	if (l->nseg == 0)
		return -1;
	p = mmap(NULL, WINDOW, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		return -1;
	if (getrandom(&r, sizeof(r), GRND_NONBLOCK) != sizeof(r))
		r = 0;		/* then the first */
	b->window = p;
	b->first = l->seg[r % l->nseg].number;
	b->segment = b->first - 1;
	b->offset = 0;
	b->wrapped = false;
	b->again = false;
	b->state = RECORDS;
	return 0;
}

static void
step(struct scrub *b)
{
	b->bytes = 0;
	switch (b->state) {
	case RESTING:
		if (begin(b) == -1)
			b->due_us += b->rest_us;
		return;
	case RECORDS:
		step_records(b);
		break;
	case SEARCH:
		step_search(b);
		break;
	case PAGES:
		step_pages(b);
		break;
	}
	count_add(b->counts, CC_SCRUB_BYTES, b->bytes);
	/* the tree's pages that were looked at are in the cache if somebody needs them, and not ours to hold */
	if (b->s->ck.map != NULL)
		madvise(b->s->ck.map, b->s->ck.maplen, MADV_DONTNEED);
}

uint64_t
scrub_idle(const struct scrub *b)
{
	return b->idle_us;
}

int64_t
scrub_step(struct scrub *b, uint64_t now_us, uint64_t written_us)
{
	if (b->s->error != ERR_NONE || b->s->damaged)
		return (int64_t)b->rest_us;
	if (now_us < written_us + b->idle_us)
		return (int64_t)(written_us + b->idle_us - now_us);
	if (now_us < b->due_us)
		return (int64_t)(b->due_us - now_us);
	b->due_us = now_us;
	step(b);
	if (b->state == RESTING)
		b->due_us += b->rest_us;
	else
		b->due_us += 1000 + b->bytes * 1000000 / b->rate;
	return (int64_t)(b->due_us - now_us);
}
