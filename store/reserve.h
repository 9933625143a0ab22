/*
 * store/reserve.h - disk space kept back for what gives disk space back.
 *
 * Runs in: committer.
 * Owns:    DIR/spare-log and DIR/spare-tree, files with blocks and nothing in them.
 *
 * On a full disk deletes must work (F26), and what they free must come back: for
 * that, compaction and checkpoints need room before they give any (F24).  So
 *
 *	spare-log	becomes the next log segment, for deletes, records of our own
 *			and compaction; no client's PUT gets into it.  It is nearly as
 *			large as others: so it takes what is live in any segment in
 *			which anything is dead, and there is another spare then.
 *	spare-tree	becomes the file of the next checkpoint.
 *
 * They are given over by rename(2): no moment in which somebody else can take
 * the blocks.  They are made again as soon as there is room, before a PUT may
 * begin a segment.  Nothing in them is ever read, so none of it is synced.
 */
#ifndef STORE_RESERVE_H
#define STORE_RESERVE_H
#include <stdbool.h>
#include <stdint.h>

struct store;

#define RESERVE_LOG	"spare-log"
#define RESERVE_TREE	"spare-tree"

struct reserve {
	uint64_t	log_bytes;	/* of spare-log; 0: it is not there */
	uint64_t	tree_bytes;
	uint64_t	out_bytes;	/* what it had ... */
	bool		tree_out;	/* ... when it became the file of the checkpoint under way */
	bool		told;		/* that there is no room for it */
};

/* Looks what is there.  At opening. */
void		reserve_open(struct store *);
/* Looks again, in front of its use: files with nothing in them may have been removed on a full disk. */
void		reserve_look(struct store *);
/*
 * Makes what is missing, makes spare-tree larger where the tree is.  Cheap where
 * there is nothing to do.  false: there is no room for all of it.
 */
bool		reserve_keep(struct store *);
/* Bytes that reserve_keep() would take. */
uint64_t	reserve_missing(const struct store *);
/* What the next checkpoint may take, at most (and up to a bound of the spare's size). */
uint64_t	reserve_tree_want(const struct store *);

/*
 * The file for a checkpoint that begins now: spare-tree, where it is there; NULL.  Always:
 * so disk use never counts it beside a checkpoint that is being written.  It is
 * made again when tree_out is false: the old checkpoint is gone, or this one failed.
 */
const char	*reserve_for_tree(struct store *);
/* That checkpoint was not written: looks whether it gave the file back. */
void		 reserve_tree_back(struct store *);

/* Is the newest segment one that was the spare? */
bool		reserve_in_use(const struct store *);

#endif
