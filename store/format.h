/*
 * store/format.h - the bytes on disk.  store/README.md draws them.
 *
 * Runs in: committer, tools; workers see them through store/read.h only.
 *
 * Little-endian, fixed widths, 8-aligned records, every struct padded by hand
 * and pinned by _Static_assert.  A machine of the other endianness refuses to
 * build rather than write another format.
 *
 * DIR/lock               the lock, see master/datadir.h
 * DIR/log-NNNNNNNNNN     segment N (decimal, 10 digits, from 1)
 * DIR/tree-NNNNNNNNNN    checkpoint N; the highest valid one counts
 * DIR/tree-NNNNNNNNNN.tmp  being written; removed at start
 * DIR/spare-log, spare-tree  room for a full disk (store/reserve.h); never read
 */
#ifndef STORE_FORMAT_H
#define STORE_FORMAT_H
#include <stdint.h>
#include "shm/crc32c.h"
#include "shm/submit.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the log is little-endian and is written as it lies in memory"
#endif

#define FORMAT_VERSION	1u

/* --- the log ------------------------------------------------------------- */

#define SEGMENT_MAGIC	0x31474f4c54534648ull	/* "HFSTLOG1" */
#define SEGMENT_HEAD	4096u			/* the first batch starts here */

struct segment_head {		/* at offset 0; the rest of the first 4 KiB is zero */
	uint64_t	magic;
	uint32_t	version;
	uint32_t	head_crc;	/* of this struct with head_crc = 0 */
	uint64_t	store_id;	/* random, one per store: segments of two stores do not mix */
	uint64_t	mark;		/* random, one per store, told to no client: what starts a commit record */
	uint32_t	number;		/* as in the name: a segment copied to another name is found out */
	uint32_t	pad;
	uint64_t	bytes;		/* size of the file */
	uint64_t	first_seq;	/* no record written here first has a lower seq (moved ones may) */
	uint64_t	first_batch;	/* number of the first batch */
	uint32_t	chain;		/* batch_crc of the batch before it, in the segment before */
	uint32_t	prev_number;	/* the segment before; 0: none */
	uint64_t	prev_end;	/* where that one's last batch ends */
	uint64_t	pad2[5];
};
_Static_assert(sizeof(struct segment_head) == 120, "format");

enum rec_kind {
	REC_PUT = 1,		/* path, meta, body */
	REC_DELETE,		/* path */
	REC_DROP_TENANT,	/* path: the tenant's name; every document of `tenant` is gone */
	REC_SEGMENTS,		/* body: u32 numbers of all live segments but this one; first record of a segment */
	REC_DROP_SEGMENT,	/* body: one u32: that segment holds nothing live and is unlinked after this */
	REC_COMMIT = 0xc0,	/* byte 4 of every mark: struct commit_rec instead of rec_head */
};
enum rec_flag {
	REC_MOVED = 1 << 0,	/* rewritten by compaction: seq, time_ms, run are the original's */
};

/*
 * A record: head, path, meta, body, table (see shm/submit.h), zeros up to 8.
 * Tenant 0 is the catalog: its document NAME is the tenant of that name, its
 * body struct tenant_settings (store/read.h).
 */
struct rec_head {
	uint32_t	head_crc;	/* CRC-32C of head from kind on, path and meta */
	uint8_t		kind;
	uint8_t		flags;
	uint16_t	path_len;
	uint32_t	body_len;
	uint16_t	meta_len;
	uint16_t	lane;		/* the submission it came from: lane, number (low half), region in the commit record */
	uint32_t	number;
	uint32_t	tenant;
	uint64_t	seq;
	uint64_t	time_ms;	/* since 1970, never falling */
	uint32_t	run;
	uint32_t	body_crc;	/* shm/submit.h */
};
_Static_assert(sizeof(struct rec_head) == 48 && sizeof(struct rec_head) == SUBMIT_HEADROOM, "format");
#define REC_LANE_NONE	0xffffu		/* not from a lane */

/*
 * Ends a batch.  Starts with the mark so that it can be found again behind
 * damage.  The mark's byte 4 is REC_COMMIT, which is no rec_head's kind: eight
 * bytes tell the two apart.  A client cannot forge one: the mark is random,
 * never told, and a body that held it would need the batch number and CRCs too.
 */
struct commit_rec {
	uint64_t	mark;		/* the store's */
	uint32_t	rec_crc;	/* of the fields after this one */
	uint32_t	pad;
	uint64_t	batch;		/* number, one more than the last */
	uint64_t	region;		/* the region id of its submissions */
	uint64_t	max_seq;	/* highest seq given out so far */
	uint64_t	time_ms;	/* newest time given out so far */
	uint32_t	bytes;		/* from the batch's first byte to this record's first */
	uint32_t	count;		/* records */
	uint32_t	chain;		/* batch_crc of the batch before */
	uint32_t	batch_crc;	/* CRC-32C over chain and the head_crc and body_crc of each record, in order */
};
_Static_assert(sizeof(struct commit_rec) == 64, "format");

static inline uint64_t
body_chunks(uint64_t body_len)
{
	return (body_len + SUBMIT_CHUNK - 1) / SUBMIT_CHUNK;
}

/* Bytes behind the body that belong to its table, padding in front included. */
static inline uint64_t
table_bytes(uint64_t at, uint64_t body_len)
{
	if (body_len <= SUBMIT_CHUNK)
		return 0;
	return ((4 - (at + body_len) % 4) % 4) + 4 * body_chunks(body_len);
}

/* Whole length of a record, a multiple of 8. */
static inline uint64_t
rec_bytes(const struct rec_head *h)
{
	uint64_t	front = sizeof(*h) + (uint64_t)h->path_len + h->meta_len;
	uint64_t	n = front + h->body_len + table_bytes(front, h->body_len);

	return (n + 7) & ~(uint64_t)7;
}

/* Of the head from kind on, the path and the meta behind it, which must be there. */
static inline uint32_t
rec_head_crc(const struct rec_head *h)
{
	return crc32c(0, &h->kind, sizeof(*h) - sizeof(h->head_crc) + h->path_len + h->meta_len);
}

/* A document larger than a segment gets one of its own, but offsets stay 32 bit. */
#define SEGMENT_MAX	((uint64_t)4 << 30)

/* --- the tree ------------------------------------------------------------ */

#define PAGE_BYTES	4096u
#define PAGE_CHECKPOINT	0x80000000u	/* page id bit: in the checkpoint file, not in the overlay */
#define PAGE_NONE	0u		/* no page: page 0 is a header in both places */

/* Value of a document in a leaf.  A tombstone keeps seq, run, time and the place of its delete record. */
struct doc_val {
	uint64_t	seq;
	uint64_t	time_ms;
	uint32_t	run;
	uint32_t	segment;
	uint32_t	offset;		/* of the record's head in the segment */
	uint32_t	rec_len;	/* rec_bytes(): what compaction counts as live */
	uint32_t	body_len;
	uint32_t	flags;		/* enum doc_flag */
};
_Static_assert(sizeof(struct doc_val) == 40, "format");
enum doc_flag { DOC_TOMBSTONE = 1 << 0 };

/* Of a subtree or a range; tombstones count for max_seq only. */
struct agg {
	uint64_t	count;		/* live documents */
	uint64_t	bytes;		/* of their bodies */
	uint64_t	max_seq;	/* of documents and tombstones */
};

/*
 * A key: tenant (big-endian, so that bytes order as numbers), then the path.
 */
#define KEY_MAX		(4u + SUBMIT_PATH_MAX)

#define CHECKPOINT_VERSION 2u		/* 1: documents of a leaf not packed */
#define CHECKPOINT_MAGIC 0x3145455254534648ull	/* "HFSTREE1" */
struct checkpoint_head {	/* page 0 of a tree-N file; the segment table follows the pages */
	uint64_t	magic;
	uint32_t	version;
	uint32_t	head_crc;	/* of this struct with head_crc = 0 */
	uint64_t	store_id;
	uint64_t	mark;
	uint32_t	number;
	uint32_t	root;		/* page id with PAGE_CHECKPOINT, or PAGE_NONE: empty tree */
	uint64_t	npages;		/* page 0 included */
	uint64_t	bytes;		/* of the file */
	/* where the log goes on */
	uint32_t	segment;
	uint32_t	chain;		/* batch_crc of the last batch in the tree */
	uint64_t	offset;
	uint64_t	batch;		/* its number */
	uint64_t	max_seq;
	uint64_t	time_ms;
	uint32_t	next_tenant;
	uint32_t	nsegments;	/* entries of the segment table */
	uint32_t	table_crc;
	uint32_t	pad;
	struct agg	agg;
};
_Static_assert(sizeof(struct checkpoint_head) == 136, "format");
struct checkpoint_segment {
	uint32_t	number;
	uint32_t	pad;
	uint64_t	bytes;		/* file size */
	uint64_t	end;		/* of its last batch */
	uint64_t	live;		/* bytes of records something refers to */
	uint64_t	first_seq;
};

#endif
