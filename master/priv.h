/*
 * master/priv.h - who the master is: root for as short as possible.
 *
 * Runs in: master, at start.
 * Owns:    the process's identity.
 *
 * A master started by root with `user` set becomes that user at once, for
 * everything that it opens, creates and removes: a symbolic link planted in a
 * directory of that user then leads nowhere the user could not go anyway.  It
 * turns back to root for two things only, binding addresses and making missing
 * directories, and gives that up for good before the first fork, so that no
 * child was ever root.  Where there is nothing to drop all of this does nothing.
 */
#ifndef MASTER_PRIV_H
#define MASTER_PRIV_H
#include <sys/types.h>
#include "master/conf.h"

/* Becomes conf->user for now.  0; -1 with errno. */
int	priv_begin(const struct conf *);
/* Root again, and the user again.  Nothing in between may open what the user names. */
int	priv_raise(void);
int	priv_lower(void);
/* The user for good; -1 with errno, also where root could be had back. */
int	priv_drop(void);

/*
 * Makes a missing directory of mode `mode`, owned by the user.  parents: those
 * too (0755).  0 where it is there, else -1 with errno.
 */
int	priv_mkdir(const char *path, mode_t mode, bool parents);
/* The same for the directory a file is in, parents and all, 0755. */
int	priv_mkdir_of(const char *file);

#endif
