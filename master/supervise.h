/*
 * master/supervise.h - forks, watches, restarts, stops.
 *
 * Runs in: master.
 * Owns:    the children and the phase the server is in.
 *
 *	RECOVER --published--> WARM --answered--> RUN
 *	   |                     |                 |
 *	   +------ TERM, INT, or it cannot start --+
 *	                         v
 *	                       DRAIN --workers gone--> CLOSE --committer gone--> exit
 *
 *	           committer  workers
 *	RECOVER    kept up    none     the first committer opens the store
 *	WARM       kept up    kept up  the first workers start
 *	RUN        kept up    kept up  SIGHUP replaces one worker after another
 *	DRAIN      kept up    leaving  writes under way need the committer
 *	CLOSE      leaving    none
 */
#ifndef MASTER_SUPERVISE_H
#define MASTER_SUPERVISE_H
#include "master/conf.h"
#include "master/datadir.h"
#include "master/listen.h"

struct master {			/* all that main.c has set up */
	struct conf	 conf;
	struct boot	 boot;		/* what all children get; lane and listeners are filled in at the fork */
	struct datadir	 dir;
	struct listeners listeners;
	const char	*conf_name;	/* for SIGHUP: -f, or NULL */
	char *const	*overrides;
	unsigned	 noverrides;
	void		(*ready)(void);	/* called once, when requests are being answered */
};

/*
 * First of all: from here on TERM, INT, HUP and USR1 wait until supervise()
 * looks at them.
 */
void	supervise_signals(void);
/* 0: ran and was asked to stop.  -1 with one line in err: never became ready. */
int	supervise(struct master *, char *err, size_t errlen);

#endif
