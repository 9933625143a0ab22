/*
 * store/checkpoint_write.c - see store/checkpoint.h: writing.
 *
 * Runs in: committer (its checkpoint thread), tools.
 *
 * The tree is read in order of key, and one page per level is being filled.  A
 * full one gets the next page number, goes to the file, and becomes an entry of
 * the page one level up.  So a page stands behind all it refers to, and memory
 * is one page per level, whatever the tree's size.
 */
#include "config.h"
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "shm/crc32c.h"
#include "shm/proc.h"
#include "store/checkpoint.h"
#include "store/crashpoint.h"
#include "store/file.h"
#include "store/leaf.h"

#define WRITE_BYTES	(256u * 1024)

struct builder_level {		/* the page being filled on this level */
	size_t		lowlen;
	uint8_t		low[KEY_MAX];	/* lower bound of its keys */
	union page_buf	buf;
};

struct writer {
	int			 dirfd, fd;
	const char		*spare;		/* what becomes the file; NULL: it is made */
	char			 name[32], tmp[40];
	const volatile int	*cancel;
	void			(*pace)(void *, size_t);
	void			*arg;
	uint32_t		 number;	/* of the checkpoint: what its pages stand on */
	uint32_t		 npages;	/* numbers given out */
	uint64_t		 at;		/* where buf goes in the file */
	size_t			 last;		/* bytes written just in front of it */
	size_t			 used;
	uint8_t			*buf;		/* WRITE_BYTES */
	struct builder_level	*level;		/* TREE_LEVELS, touched as far as the tree is high */
	struct leaf_items	*leaf;		/* what level 0 is to be made of */
	unsigned		 height;	/* levels in use */
};

/* --- bytes to the file ----------------------------------------------------------- */

static int
writer_flush(struct writer *w)
{
	size_t	n = w->used;

	if (*w->cancel != 0) {
		errno = ECANCELED;
		return -1;
	}
	if (n == 0)
		return 0;
	if (file_write(w->fd, w->buf, n, w->at) == -1)
		return -1;
	/*
	 * The disk begins now, and what went before is out before more follows: a sync of the log
	 * may have to wait for all that is on its way, so that must not be much.  Errors are
	 * told by the sync at the end.
	 */
	(void)sync_file_range(w->fd, (off_t)w->at, (off_t)n, SYNC_FILE_RANGE_WRITE);
	if (w->last != 0)
		(void)sync_file_range(w->fd, (off_t)(w->at - w->last), (off_t)w->last,
		    SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
	w->last = n;
	w->at += n;
	w->used = 0;
	crash_point("ck-write");
	if (w->pace != NULL)
		w->pace(w->arg, n);
	return 0;
}

static int
writer_add(struct writer *w, const void *data, size_t len)
{
	const uint8_t	*p = data;
	size_t		 n;

	while (len > 0) {
		n = len < WRITE_BYTES - w->used ? len : WRITE_BYTES - w->used;
		memcpy(w->buf + w->used, p, n);
		w->used += n;
		p += n;
		len -= n;
		if (w->used == WRITE_BYTES && writer_flush(w) == -1)
			return -1;
	}
	return 0;
}

/* Gives the finished page its number. */
static int
writer_page(struct writer *w, struct page *p, uint32_t *id)
{
	if (w->npages >= PAGE_CHECKPOINT - 1) {
		errno = EFBIG;
		return -1;
	}
	if (p->level != 0)
		page_finish(p);
	p->crc = 0;
	p->crc = page_crc(p);
	*id = w->npages++ | PAGE_CHECKPOINT;
	return writer_add(w, p, PAGE_BYTES);
}

/* --- building ---------------------------------------------------------------------- */

static void
level_start(struct writer *w, unsigned level, const uint8_t *low, size_t len)
{
	struct builder_level	*l = &w->level[level];

	memset(&l->buf, 0, sizeof(l->buf));	/* what no entry uses is zero in the file */
	page_init(&l->buf.page, level, 0, w->number);
	memcpy(l->low, low, len);
	l->lowlen = len;
}

static int	level_add(struct writer *, unsigned, const uint8_t *, size_t, const void *);

static void
leaf_end(struct writer *w)
{
	bool	fits = leaf_pack(&w->level[0].buf.page, w->leaf, 0, w->leaf->n);

	assert(fits);		/* leaf_items_add() saw to it */
	(void)fits;
	leaf_items_clear(w->leaf);
}

/* The page of this level is complete: to the file, and as an entry to the level above. */
static int
level_end(struct writer *w, unsigned level)
{
	struct builder_level	*l = &w->level[level];
	uint8_t			 payload[CHILD_BYTES];
	struct agg		 agg;
	uint32_t		 id;

	if (level == 0)
		leaf_end(w);
	if (writer_page(w, &l->buf.page, &id) == -1)
		return -1;
	page_agg(&l->buf.page, 0, l->buf.page.count, &agg);
	page_child_pack(payload, id, &agg);
	return level_add(w, level + 1, l->low, l->lowlen, payload);
}

/* Adds an entry behind all others of this interior level. */
static int
level_add(struct writer *w, unsigned level, const uint8_t *key, size_t len, const void *payload)
{
	struct page	*p = level < TREE_LEVELS ? &w->level[level].buf.page : NULL;

	if (p == NULL) {
		errno = EFBIG;
		return -1;
	}
	if (level == w->height) {	/* the first one here */
		w->height++;
		level_start(w, level, key, 0);
	} else if (page_room(p) < page_cost(p, len)) {
		if (level_end(w, level) == -1)
			return -1;
		level_start(w, level, key, len);
	}
	page_append(p, key, len, payload);
	return 0;
}

/* Adds a document behind all others.  The bound of a new page is cut to what tells it from the one before. */
static int
leaf_add(struct writer *w, const uint8_t *key, size_t len, const struct doc_val *val)
{
	const struct leaf_item	*last;
	uint8_t			 before[KEY_MAX];
	size_t			 n;

	if (w->height == 0) {
		w->height++;
		level_start(w, 0, key, 0);
	}
	if (leaf_items_add(w->leaf, key, len, val))
		return 0;
	last = &w->leaf->item[w->leaf->n - 1];
	n = last->len;
	memcpy(before, w->leaf->keys + last->key, n);
	if (level_end(w, 0) == -1)
		return -1;
	level_start(w, 0, key, key_between(before, n, key, len));
	(void)leaf_items_add(w->leaf, key, len, val);
	return 0;
}

/* Ends the pages under way from the leaves up; the one of the highest level is the root. */
static int
builder_end(struct writer *w, struct checkpoint_head *head)
{
	struct page	*p;

	head->root = PAGE_NONE;
	memset(&head->agg, 0, sizeof(head->agg));
	if (w->height == 0)
		return 0;
	for (unsigned i = 0; i + 1 < w->height; i++)	/* height may grow: by an entry for this page */
		if (level_end(w, i) == -1)
			return -1;
	p = &w->level[w->height - 1].buf.page;
	if (p->level == 0)
		leaf_end(w);
	page_agg(p, 0, p->count, &head->agg);
	return writer_page(w, p, &head->root);
}

/* All of the tree.  Its pages are checked again: the bitmap of the caller belongs to another thread. */
static int
builder_run(struct writer *w, const struct tree *tree, struct checkpoint_head *head)
{
	struct tree	 t = *tree;
	struct cursor	 c;
	const uint8_t	*key;
	struct doc_val	 val;
	size_t		 len;
	int		 found = -1, saved;

	if ((t.checked = calloc(t.npages / 8 + 1, 1)) == NULL)
		return -1;
	for (found = cursor_seek(&c, &t, "", 0); found == 1; found = cursor_next(&c)) {
		cursor_entry(&c, &key, &len, &val);
		if (leaf_add(w, key, len, &val) == -1) {
			found = -1;
			break;
		}
	}
	if (found == 0)
		found = builder_end(w, head);
	saved = errno;
	free(t.checked);
	errno = saved;
	return found;
}

/* --- the file ---------------------------------------------------------------------- */

static int
writer_open(struct writer *w)
{
	snprintf(w->name, sizeof(w->name), "tree-%010u", w->number);
	snprintf(w->tmp, sizeof(w->tmp), "%s.tmp", w->name);
	if ((w->buf = malloc(WRITE_BYTES)) == NULL)
		return -1;
	if ((w->level = malloc(TREE_LEVELS * sizeof(*w->level))) == NULL)
		return -1;
	if ((w->leaf = malloc(sizeof(*w->leaf))) == NULL)
		return -1;
	leaf_items_clear(w->leaf);
	/* a left-over may be anything, and somebody may have it mapped: never written into */
	if (unlinkat(w->dirfd, w->tmp, 0) == -1 && errno != ENOENT)
		return -1;
	if (w->spare != NULL && renameat(w->dirfd, w->spare, w->dirfd, w->tmp) == -1)
		return -1;
	w->fd = openat(w->dirfd, w->tmp, O_RDWR | O_CLOEXEC | O_NOFOLLOW |
	    (w->spare != NULL ? 0 : O_CREAT | O_EXCL), 0600);
	return w->fd == -1 ? -1 : 0;
}

/* The segment table, then page 0, then all of it to the disk. */
static int
writer_end(struct writer *w, struct checkpoint_head *head, const struct checkpoint_segment *segments)
{
	size_t	n = (size_t)head->nsegments * sizeof(*segments);
	uint8_t	page[PAGE_BYTES] = { 0 };

	head->magic = CHECKPOINT_MAGIC;
	head->version = CHECKPOINT_VERSION;
	head->npages = w->npages;
	head->bytes = head->npages * PAGE_BYTES + n;
	head->table_crc = crc32c(0, segments, n);
	head->pad = 0;
	head->head_crc = 0;
	head->head_crc = crc32c(0, head, sizeof(*head));
	memcpy(page, head, sizeof(*head));
	if (writer_add(w, segments, n) == -1 || writer_flush(w) == -1)
		return -1;
	if (file_write(w->fd, page, sizeof(page), 0) == -1)
		return -1;
	if (w->spare != NULL && ftruncate(w->fd, (off_t)head->bytes) == -1)
		return -1;
	crash_point("ck-written");
	return fsync(w->fd);
}

/* From here on the file has its name; where the directory cannot be synced it loses it again. */
static int
writer_rename(struct writer *w)
{
	crash_point("ck-synced");
	if (renameat(w->dirfd, w->tmp, w->dirfd, w->name) == -1)
		return -1;
	crash_point("ck-renamed");
	if (fsync(w->dirfd) == 0)
		return 0;
	(void)unlinkat(w->dirfd, w->name, 0);
	errno = ESTALE;
	return -1;
}

int
checkpoint_write(const struct tree *t, int dirfd, struct checkpoint_head *head,
    const struct checkpoint_segment *segments, const volatile int *cancel,
    void (*pace)(void *, size_t), void *arg)
{
	return checkpoint_write_into(t, dirfd, head, segments, cancel, pace, arg, NULL);
}

int
checkpoint_write_into(const struct tree *t, int dirfd, struct checkpoint_head *head,
    const struct checkpoint_segment *segments, const volatile int *cancel,
    void (*pace)(void *, size_t), void *arg, const char *spare)
{
	struct writer	w = { .dirfd = dirfd, .fd = -1, .spare = spare, .cancel = cancel, .pace = pace, .arg = arg,
			    .number = head->number, .npages = 1, .at = PAGE_BYTES };
	int		rc = -1, saved;

	RUNS_IN(IN_COMMITTER | IN_TOOL | IN_TEST);
	if (writer_open(&w) == -1)
		goto out;
	if (builder_run(&w, t, head) == -1)
		goto out;
	if (writer_end(&w, head, segments) == -1)
		goto out;
	rc = writer_rename(&w);
out:
	saved = errno;
	if (w.fd != -1) {
		close(w.fd);
		/* room on a full disk; tidy takes it otherwise */
		if (rc == -1 && (spare == NULL || saved != ENOSPC || renameat(dirfd, w.tmp, dirfd, spare) == -1))
			(void)unlinkat(dirfd, w.tmp, 0);
	}
	free(w.buf);
	free(w.level);
	free(w.leaf);
	errno = saved;
	return rc;
}
