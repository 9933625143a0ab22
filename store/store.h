/*
 * store/store.h - the write side as one object: log, tree and their agreement.
 *
 * Runs in: committer (one per process), tests.  One thread, but for log_sync()
 *          and checkpoint_write(), which are made to run beside it.
 *
 * A batch goes through these steps, and only the last is visible outside:
 *
 *	batch_add ...   decide each write against the newest state, also of
 *	                batches not yet durable; apply it to the tree
 *	batch_write     append all records and the commit record to the log
 *	log_sync        one fdatasync
 *	batch_publish   the root that includes it becomes the newest generation
 *
 * While batch A is in log_sync, batch B may already be added to: at most one
 * batch is written and not synced (L1), at most one more is being built.
 *
 * S1  The tree that is published reflects exactly the batches that are synced.
 * S2  Applying a record to the tree is one function (index_apply), for a new
 *     write, for recovery and for the catching up after a checkpoint.
 * S3  After a failed write or sync nothing is written or published any more.
 * S4  A segment is unlinked only when nothing published refers to it, a
 *     durable REC_DROP_SEGMENT says so, and the checkpoint starts behind it.
 */
#ifndef STORE_STORE_H
#define STORE_STORE_H
#include <stdbool.h>
#include <sys/uio.h>
#include "shm/lane.h"
#include "store/checkpoint.h"
#include "store/log.h"
#include "store/overlay.h"
#include "store/guard.h"
#include "store/read.h"
#include "store/reserve.h"
#include "store/tree.h"

/* A write to be decided; everything in it is borrowed until batch_publish(). */
struct op {
	enum submit_op	 kind;
	uint8_t		 cond;
	uint16_t	 path_len;
	uint16_t	 meta_len;
	uint16_t	 n_match, n_none;
	uint32_t	 tenant;
	uint64_t	 body_len;
	uint32_t	 body_crc;
	int64_t		 unmodified_s;
	const uint8_t	*path;
	const struct tag *match, *none;
	uint64_t	 payload_len;	/* path, meta, body, table */
	const struct iovec *iov;	/* SUBMIT_HEADROOM bytes, then the payload; in shared memory, copied as far as needed */
	int		 niov;
	uint16_t	 lane;		/* where it came from; REC_LANE_NONE */
	uint32_t	 number;
};

struct result {
	enum outcome	outcome;
	uint64_t	seq;
	uint64_t	time_ms;
	uint32_t	run;
};

/* Set of live tenant ids, from the catalog. */
struct tenant_set {
	uint8_t		*bits;
	uint32_t	 cap;		/* ids */
};

struct batch {			/* being built */
	struct iovec	*iov;
	unsigned	 niov, capiov;
	uint64_t	 bytes;		/* of records so far */
	uint64_t	 staged;	/* of what iov names */
	uint32_t	 count;		/* records */
	uint32_t	 crc;		/* over chain and the records' checksums */
	uint64_t	 moved;		/* bytes that compaction added */
	uint8_t		**owned;	/* records, or their fronts, in our own memory: freed after the write */
	unsigned	 nowned, capowned;
	struct commit_rec commit;
};

struct sealed {			/* written, not yet published */
	bool		 is;
	struct root	 root;
};

/* Why this process must not write any more. */
enum store_error {
	ERR_NONE,
	ERR_SYNC,		/* an I/O error: read-only until a restart of the server */
	ERR_FULL_IN_WRITE,	/* no room in mid-write: a new committer cuts the tail and goes on */
	ERR_TREE,		/* a page of the checkpoint is damaged: a new committer rebuilds from the log */
	ERR_LOG,		/* so is something of the log: a new committer says how much */
};

struct store {
	int		 dirfd;
	const char	*dir;		/* for messages */
	uint64_t	 region_id;
	struct log	 log;
	struct overlay	 overlay;
	struct checkpoint ck;		/* current; ck.head.number 0: none */
	struct tree_writer w;
	struct root	 root;		/* newest published */
	uint64_t	 max_seq;	/* given out, also to what is not durable yet */
	uint64_t	 time_ms;	/* newest time given out */
	uint64_t	 catalog_seq;
	uint64_t	 segments_epoch;
	uint32_t	 run;		/* random, of this opening */
	uint32_t	 next_tenant;
	struct tenant_set tenants;
	bool		 tenant_unread;	/* the record of one is damaged: an id that is not alive may be its */
	struct batch	 batch;
	struct sealed	 sealed;
	enum store_error error;		/* S3 */
	bool		 full;		/* the last attempt to begin a segment found no room */
	bool		 damaged;	/* recovery found damage: no writes until repair */
	bool		 open_end;	/* the last batch has records in it: see batch_close() */
	bool		 look;		/* opened by a tool to be looked at: nothing on disk is changed */
	uint64_t	 full_bytes;	/* ... for a record as large as this */
	char		 reason[160];	/* of full, damaged, error */
	struct reserve	 reserve;
	uint64_t	 moving;	/* bytes that compaction still has to move out of its segment */
	uint64_t	 faults;	/* guard_filled() as far as it is known what that means */
	uint64_t	 tree_faults;	/* guard_filled_tree() at opening */
	uint64_t	 tail;		/* log bytes behind the checkpoint */
	uint64_t	 growth;	/* bytes of a new checkpoint that are about documents which ck does not know */
	uint64_t	 died;		/* bytes of records that stopped counting as live: compaction's measure of work */
	uint64_t	 held_since;	/* monotonic us; a new segment waits for space to come free; 0: none does */
	/* recovery: submissions found in the log */
	void		 (*found)(void *, uint16_t lane, uint32_t number, const struct result *);
	void		*found_arg;
};

struct store_options {
	const char	*dir;
	uint64_t	 segment_size;
	uint64_t	 region_id;
	bool		 look;		/* nothing on disk is changed; a checkpoint is taken only if all of it is whole */
	/* Called for each record of the tail that came from a submission of region_id. */
	void		 (*found)(void *, uint16_t lane, uint32_t number, const struct result *);
	void		*arg;
};

/*
 * Opens or creates the store in dirfd and recovers it: newest valid checkpoint,
 * log tail, torn tail cut, everything synced.  Nothing is published yet: call store_publish().
 * Damage in the log: it is open all the same, and `damaged`.  Then the tree knows of
 * documents whose newest record is broken: it refers to that, and never to an older one.
 * 0; -1 with errno and a line in s->reason.
 */
int	store_open(struct store *, int dirfd, int overlay_fd, const struct store_options *);
void	store_close(struct store *);
/* Publishes the recovered tree as the next generation. */
void	store_publish(struct store *);

/* --- batch.c ---------------------------------------------------------------- */

enum add {
	ADD_DONE,		/* *result is final (a refusal) or becomes final with the batch */
	ADD_LATER,		/* does not fit into this batch: write it first, then add again; or
				   compact_holds_back(): after a checkpoint, or some time */
};
/*
 * Decides one write.  A refusal (OUT_CONDITION, OUT_ABSENT ...) adds no record;
 * res->seq etc. are set.  `may_roll`: no batch is written and unsynced, so a
 * new segment may be begun.
 */
enum add	batch_add(struct store *, const struct op *, struct result *, bool may_roll);
/* Adds a record that is not a submission's (segment list, drop).  0; -1 ENOSPC: does not fit now. */
int	batch_add_own(struct store *, enum rec_kind, const void *body, uint32_t len, bool may_roll);
/*
 * Where a segment is still without its first record, the list of the others, adds that:
 * a predecessor died behind the making, or there was no memory.  0; -1 errno.
 */
int	batch_resume(struct store *);
/* Rewrites a live record at the head of the log.  0; -1: ENOSPC no room now; EILSEQ its body is damaged. */
int	batch_add_moved(struct store *, const struct rec_head *, bool may_roll);
enum room {			/* who asks */
	ROOM_WRITE,		/* a client's PUT: has to leave the reserve alone */
	ROOM_MOVE,		/* compaction: may use it, but for the last bit */
	ROOM_DELETE,		/* a delete: all of it, but for what gives space back */
	ROOM_OWN,		/* a record of our own */
};
/*
 * Room for one more record of `bytes`? (rolls if allowed and needed)  Used by the three above.
 * 0; -1: EAGAIN: not in this batch; ENOSPC: none, s->full is set; ENOMEM; other errno: s->error is.
 */
int	batch_room(struct store *, uint64_t bytes, bool may_roll, enum room);
/* On opening: is the disk full?  s->full says it where a write of 64 KiB would find no room. */
void	batch_look(struct store *);
/* Full: is there room again, for what was refused?  s->full says it then.  Between batches only. */
void	batch_probe(struct store *);
/* Bytes that compaction may add to the log at the moment although the disk is full. */
uint64_t batch_room_full(const struct store *);
/*
 * Appends the batch with its commit record.  0: now log_sync(), then
 * batch_publish(), or batch_failed().  -1: s->error is set.
 */
int	batch_write(struct store *);
void	batch_publish(struct store *);
/*
 * Nothing is written for a while: makes the batch that is to be written an empty
 * one, a commit record alone.  Behind the last batch there is nothing that would tell
 * one rotten byte in it from a torn tail, which is cut; this does.  true: now
 * batch_write() and so on.  false: none is due (the last one is empty, or begins a
 * segment, whose head says the same), or possible (an error, damage, a full disk).
 */
bool	batch_close(struct store *);
/* A sync failed, or a segment could not be begun (errno): S3. */
void	batch_failed(struct store *, int error);
/* A page of a mapping was missing and nobody has accounted for it: s->error is set. */
bool	store_faulted(struct store *);
static inline bool batch_empty(const struct store *s) { return s->batch.count == 0; }

/* --- index.c: S2 ------------------------------------------------------------ */

struct index_target {
	struct store	*s;
	struct tree_writer *w;
	bool		 account;	/* live bytes, tenants: the store's own tree, not one catching up */
};
/*
 * Applies a record that stands (or will stand) at segment/offset.
 * *was (may be NULL): the document's value before.  0; -1: ENOSPC (overlay), EILSEQ.
 */
int	index_apply(const struct index_target *, const struct rec_head *, uint32_t segment, uint32_t offset,
	    struct doc_val *was);
/* Bytes that the next checkpoint will have at most. */
uint64_t store_next_tree(const struct store *);
/* Path bytes of a record, its body. */
const uint8_t *rec_path(const struct rec_head *);
const uint8_t *rec_body(const struct rec_head *);
bool	tenant_alive(const struct store *, uint32_t id);
int	tenant_set(struct store *, uint32_t id, bool alive);

/* --- decide.c ---------------------------------------------------------------- */

/* What the write would do; OUT_CREATED, OUT_REPLACED, OUT_DELETED: allowed.  *now: the current value (seq 0: none). */
enum outcome	decide(struct store *, const struct op *, struct doc_val *now);

/* --- compact.c ---------------------------------------------------------------- */

struct compaction {
	uint32_t	segment;	/* being rewritten; 0: none */
	uint32_t	offset;
	int64_t		owed;		/* bytes to be moved according to what died, less those that were */
};
/*
 * One step: adds up to `budget` bytes of live records of the victim to the
 * batch.  false: nothing to do (or no room).
 */
bool	compact_step(struct store *, struct compaction *, uint64_t budget, bool may_roll);
/*
 * Bytes to move with the batch being built, in proportion to what died since the
 * last call, and the more the less space is left; `idle`: no client's write is in it.
 */
uint64_t compact_budget(struct store *, struct compaction *, bool idle);
/*
 * A new segment of `bytes` would be too much, and waiting helps: for a checkpoint, or,
 * where it is not compaction that asks (`moving`), for that.  For a bounded time.
 */
bool	compact_holds_back(struct store *, uint64_t bytes, bool moving);
/* On a full disk: is space about to come free?  A delete waits for it then, but not for ever. */
bool	compact_brings_space(struct store *);
/* Logs REC_DROP_SEGMENT for segments that hold nothing live and lie before the checkpoint.  Number of them. */
unsigned compact_drop(struct store *, bool may_roll);
/* Unlinks dropped segments once their drop is published and no pin is older; number of them. */
unsigned compact_unlink(struct store *, uint64_t oldest_pin);
/*
 * Disk use asks for a checkpoint, because only segments in front of one can go.
 * `during`: bytes that will probably be logged while it is written.
 */
bool	compact_wants_checkpoint(const struct store *, uint64_t during);
/* There is less than one segment's space left. */
bool	compact_is_short(const struct store *);

/* --- checkpointer.c ------------------------------------------------------------ */

struct checkpointer;
struct checkpointer *checkpointer_create(struct store *, struct pin *own, void (*wake)(void *), void *arg);
void	checkpointer_destroy(struct checkpointer *);
/*
 * Called once per loop round.  quiet: nothing is applied that is not
 * published, nothing is unsynced.  Starts a checkpoint when one is due (only
 * when quiet), notices its end, catches up in slices, switches over (only when
 * quiet), and removes the old file.
 */
enum checkpoint_event {
	CHECKPOINT_NOTHING,	/* nothing to do now */
	CHECKPOINT_BUSY,	/* call again soon: there is another slice of a millisecond to do */
	CHECKPOINT_SWITCHED,	/* a new generation was published, on the new checkpoint */
};
enum checkpoint_event checkpointer_step(struct checkpointer *, bool quiet, uint64_t oldest_pin, uint64_t now_ms);
/* Its thread has finished and no step has looked at that yet: before sleeping. */
bool	checkpointer_done(const struct checkpointer *);
/* True where it waits for a quiet moment: do not build the next batch while one is being synced. */
bool	checkpointer_wants_quiet(const struct checkpointer *, uint64_t now_ms);

#endif
