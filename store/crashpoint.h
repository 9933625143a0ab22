/*
 * store/crashpoint.h - places where the committer can be made to die, for tests.
 *
 * Runs in: committer (its main, sync and checkpoint threads), with
 *          HOLDFAST_DEBUG (configure --enable-debug, make check-crash) only.
 *          In all other builds each of these is nothing at all.
 * Touches: the control file that $HOLDFAST_CRASH_FILE names, mapped shared.
 *
 * A test arms one point at a time, while the daemon runs, by writing into the
 * control file; whichever committer gets there COUNT times acts, once:
 *
 *	kill	SIGKILL to itself: to the master a kill from outside
 *	abort	abort(3): a crash, which casts suspicion on what was under work
 *	stop	SIGSTOP to itself: all its threads stand still until SIGCONT
 *
 *	   0  u32  armed	W: test last of all (1), the point that fires (0)
 *	   4  u32  left		calls until it fires; W: test before armed, points
 *	   8  u32  fired	W: points
 *	  16  char name[32]	W: test before armed
 *	  48  char action[16]	W: test before armed
 *
 * The names, in the order of what happens, and what has just been done there:
 *
 *	mid-append		half of a batch's bytes are written
 *	after-append		all of them, not synced
 *	after-sync		synced, not published
 *	after-publish		published, nobody was told
 *	mid-complete		some of its writers were told, not all
 *	roll-created		log-N.new is whole and synced, not renamed
 *	roll-renamed		renamed, the directory is not synced
 *	roll-synced		it is; nothing stands in the segment
 *	ck-write		some pages of a checkpoint are written
 *	ck-written		all of it, not synced
 *	ck-synced		synced, not renamed
 *	ck-renamed		renamed, the directory is not synced
 *	ck-dirsynced		it is; the tree still stands on the old one
 *	ck-catchup		the log's tail is partly applied to it
 *	ck-switched		the tree stands on it, the old file is there
 *	ck-tidied		the old file is gone
 *	move-added		compaction has records in the batch, nothing is written
 *	move-written		they are written, not synced
 *	move-synced		synced, not published
 *	drop-added		REC_DROP_SEGMENT is in the batch, nothing is written
 *	drop-written		written, not synced
 *	drop-published		published, the segment is there
 *	drop-unlinked		unlinked, the directory is not synced
 *	recover-scanned		the log was read, its torn tail is there
 *	recover-cut		the tail was cut, what is left is not known to be synced
 *	recover-synced		it is, nothing is published
 */
#ifndef STORE_CRASHPOINT_H
#define STORE_CRASHPOINT_H
#ifdef HOLDFAST_DEBUG
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

/* A document with these bytes in its path makes the committer abort() while it decides it. */
#define CRASH_MARK	"poison-for-the-committer"

/* Maps the control file; without $HOLDFAST_CRASH_FILE no point ever fires. */
void	crash_setup(void);
void	crash_point(const char *name);
/* crash_point() where `when` is true. */
void	crash_point_if(bool when, const char *name);
/* mid-append: where it is armed, half of what is about to be written is written first. */
void	crash_mid_append(int fd, const struct iovec *, int n, uint64_t at);
void	crash_on_mark(const uint8_t *path, size_t len);
#else
#define crash_setup()			((void)0)
#define crash_point(name)		((void)0)
#define crash_point_if(when, name)	((void)0)
#define crash_mid_append(fd, iov, n, at) ((void)0)
#define crash_on_mark(path, len)	((void)0)
#endif
#endif
