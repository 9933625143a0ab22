/*
 * store/segment.h - one segment file: made whole or not at all, mapped, listed.
 *
 * Runs in: committer, tools.  For the files of store/ that read or make segments; segment_name() and
 * record_at() in workers, too.
 *
 * A file has the name log-N only after its size, its zeros and its head are on
 * disk: it is made as log-N.new, synced, renamed, and the directory synced (F6,
 * F7, F9).  What a crash leaves is a log-N.new, which nobody ever opens: it is
 * unlinked, not truncated, for it may be a second name of something else (F8).
 */
#ifndef STORE_SEGMENT_H
#define STORE_SEGMENT_H
#include "store/log.h"

#define SEGMENT_NAME	32	/* bytes for a name */

void	segment_name(char name[SEGMENT_NAME], uint32_t number);
/*
 * Makes the file; h holds all but magic, version and head_crc.  spare: of this file, which has
 * h->bytes allocated that nobody wrote to (store/reserve.h); NULL: anew.  The descriptor, open for
 * writing; -1: EIO: something may have changed; any other errno: nothing has.
 */
int	segment_create(int dirfd, struct segment_head *h, const char *spare);
/* Opens an existing one and looks that it is a plain file.  -1: EILSEQ: it is not; other errno. */
int	segment_open(int dirfd, uint32_t number, int flags, uint64_t *size);
/*
 * Fills l->seg with what is in the directory, sorted, and removes left-over
 * log-N.new.  first_seq, bytes and end are taken from heads later.  0 or -1.
 */
int	segment_list(struct log *l);
/* Adds one behind the last. */
struct segment *segment_add(struct log *l, uint32_t number);
void	segment_remove(struct log *l, struct segment *s);

/* True for a whole head of segment `number`, of whatever store. */
bool	segment_head_ok(const struct segment_head *, uint32_t number);
/* Maps s->bytes of it.  NULL with errno: EILSEQ where there is not even room for a head. */
const uint8_t *segment_map(const struct log *l, struct segment *s);
void	segment_unmap(struct segment *s);
/* The head in the mapping; NULL where it is broken or another store's. */
const struct segment_head *segment_head(const struct log *l, struct segment *s);

/* Where the file system says that written blocks end; the size where it does not know. */
uint64_t segment_data(int fd, uint64_t size);
/* Of a mapped one: what may differ from zero ends here.  Looking further would only fill memory with zeros. */
uint64_t segment_extent(const struct segment *);
/* Zeros to offset `to`: 0 or -1. */
int	segment_zero(int fd, uint64_t from, uint64_t to);

/* A record at `at`, wholly in front of `limit`, its head intact; NULL. */
const struct rec_head *record_at(const uint8_t *base, uint64_t limit, uint64_t at);
/* A commit record likewise, by its mark and its own checksum; NULL.  (scan.c) */
const struct commit_rec *commit_at(const struct log *l, const uint8_t *base, uint64_t limit, uint64_t at);

#endif
