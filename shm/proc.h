/*
 * shm/proc.h - which process this is, and what runs only where.
 *
 * Runs in: every process.
 * Owns:    one per-process constant, the title, the lifeline to the master.
 *
 * RUNS_IN(set) is an assert on that constant.  It documents, and it stays on
 * in release builds: code that touches the store's files must never run in a
 * worker, whatever a later change calls from where.
 */
#ifndef SHM_PROC_H
#define SHM_PROC_H

enum proc_kind {
	IN_NONE      = 0,
	IN_MASTER    = 1 << 0,
	IN_WORKER    = 1 << 1,
	IN_COMMITTER = 1 << 2,
	IN_TOOL      = 1 << 3,	/* holdfastctl: offline, no other process */
	IN_TEST      = 1 << 4,
};

extern enum proc_kind proc_self;	/* written by proc_become() only */

#define RUNS_IN(set) do {						\
	if ((proc_self & (set)) == 0)					\
		proc_panic(__FILE__, __LINE__, #set);			\
} while (0)

/*
 * Says what this process is from now on: sets the constant and the log tag;
 * for master, worker and committer also the title "holdfastd: master",
 * "holdfastd: worker N", "holdfastd: committer" (setproctitle(3bsd); the
 * master calls setproctitle_init() first).  `lane` counts for a worker only.
 */
void	proc_become(enum proc_kind, unsigned lane);

/*
 * The start is over: lets go of the pages of code and constants, the program's and the
 * libraries', that it used; what is needed again comes back from the page cache, 64 KiB at
 * a touch.  Parsing options, linking and recovery are most of what an idle process has mapped.
 */
void	proc_settled(void);

/* An invariant broke: log it and abort(3) before more is written. */
_Noreturn void	proc_panic(const char *file, int line, const char *what);

#endif
