/*
 * master/datadir.h - the data directory is ours alone.
 *
 * Runs in: master.
 * Owns:    DIR/lock and two locks on it, which say different things:
 *
 *	a POSIX record lock, the master's own (fork does not pass it on): held
 *	means that a master lives, and F_GETLK names its pid;
 *
 *	a flock on the descriptor that every child inherits: held means that
 *	somebody of a generation lives, master or not.
 *
 *	record lock  flock	a start ...
 *	held         -		refuses at once and names the holder
 *	free         held	waits: the children of a dead master are leaving
 *	free         free	goes on
 *
 * The file also lists the children (pid and start time, and the boot they
 * belong to), so that one that does not leave, because somebody stopped it,
 * can be told from a stranger with the same pid and be ended (F56).
 *
 * The record lock is lost with any close of the file in this process (F49):
 * nobody here opens DIR/lock a second time.
 */
#ifndef MASTER_DATADIR_H
#define MASTER_DATADIR_H
#include <sys/types.h>
#include <stddef.h>

struct datadir {
	int	dir_fd;		/* O_RDONLY | O_DIRECTORY */
	int	lock_fd;	/* children keep it open and never touch it */
};

/*
 * Opens the directory, makes it (0700) where it is absent, and takes both
 * locks; waits up to 5 s for children of a dead master, ending those that have
 * not left after half of that.  Called in the process that will be the master:
 * a record lock does not survive a fork.  0; -1 with one line in err.
 */
int	datadir_open(struct datadir *, const char *dir, char *err, size_t errlen);
/* Lists the living children in the lock file, after each fork. */
void	datadir_record(const struct datadir *, const pid_t *pids, unsigned n);

#endif
