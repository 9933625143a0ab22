/*
 * shm/boot.h - what a child inherits from the master: one struct.
 *
 * Runs in: master (fills it), worker and committer (borrow it for life).
 * Owns:    nothing; descriptors belong to the process that got them by fork.
 */
#ifndef SHM_BOOT_H
#define SHM_BOOT_H
#include <sys/types.h>
#include <stdbool.h>
#include <stdint.h>
#include "shm/region.h"

enum listen_kind { LISTEN_HTTP, LISTEN_METRICS, LISTEN_CONTROL };

struct boot_listener {
	enum listen_kind kind;
	int		 fd;		/* HTTP: this lane's own SO_REUSEPORT socket; others shared by all workers */
};
#define BOOT_LISTENERS 32

struct settings {		/* the configuration, as far as children need it; checked by the master */
	uint64_t	max_document;	/* bytes */
	uint64_t	segment_size;	/* bytes */
	uint64_t	input_budget;	/* bytes */
	uint32_t	max_connections;/* per worker */
	bool		verify_always;	/* verify-reads always (default) or first */
	uint64_t	head_ms, body_ms, idle_ms, write_ms, drain_ms;
	uint64_t	tombstone_s;
	uid_t		uid;		/* who the server runs as; a control peer with this uid or 0 is the administrator */
	gid_t		gid;
	bool		drop;		/* uid/gid must be changed to (we are root) */
};

struct boot {
	struct region	 region;
	struct settings	 set;
	int		 dir_fd;	/* the data directory, O_RDONLY|O_DIRECTORY|O_CLOEXEC */
	const char	*dir;		/* its name, for messages */
	int		 lifeline;	/* read end: end of file when the master is gone */
	int		 lock_fd;	/* the data directory's lock, shared by all: keep it open, never touch it */
	int		 wake[REGION_LANES];	/* eventfd per lane, EFD_NONBLOCK: the committer wakes the worker */
	unsigned	 nlanes;
	/* a worker's own: */
	unsigned	 lane;
	struct boot_listener listeners[BOOT_LISTENERS];
	unsigned	 nlisteners;
	/* told to the master when the committer has published once: one byte written here */
	int		 ready_fd;
	pid_t		 master;	/* getpid() of the master before the fork; 0: boot_child() does not compare */
};

/* Each process's main (worker/worker.c, store/committer.c). */
_Noreturn void	worker_main(const struct boot *);
_Noreturn void	committer_main(const struct boot *);

/*
 * What every child does first: the master's death and TERM become a flag that
 * ends loops (never an exit in a handler); HUP, INT and PIPE are ignored, USR1
 * reopens the log at the next log line or log_poll(); privileges dropped
 * (set.drop: setgroups, setgid, setuid), then PDEATHSIG (SIGTERM, prctl(2); a
 * change of uid would clear it); all descriptors but 0-2, the log's and keep[]
 * closed.  The master forks with signals blocked, so that none is lost to its
 * own handlers in between; they are unblocked here.
 *
 * TERM interrupts system calls, but may come just before one: a loop sleeps
 * with a limit, or polls boot->lifeline as well.
 */
void	boot_child(const struct boot *, const int *keep, unsigned nkeep);
/* TERM was received or the master is gone: finish, then leave. */
extern volatile int boot_stopping;

#endif
