/*
 * shm/proc.c - see shm/proc.h.
 *
 * Runs in: every process.
 */
#include "config.h"
#include <bsd/unistd.h>
#include <stdio.h>
#include <stdlib.h>
#include "shm/log.h"
#include "shm/proc.h"

enum proc_kind	proc_self = IN_NONE;

/* The leading '-' keeps libbsd from putting the program's file name in front. */
void
proc_become(enum proc_kind kind, unsigned lane)
{
	char	tag[32];

	proc_self = kind;
	switch (kind) {
	case IN_MASTER:
		log_tag("master");
		setproctitle("-holdfastd: master");
		break;
	case IN_WORKER:
		snprintf(tag, sizeof(tag), "worker %u", lane);
		log_tag(tag);
		setproctitle("-holdfastd: %s", tag);
		break;
	case IN_COMMITTER:
		log_tag("committer");
		setproctitle("-holdfastd: committer");
		break;
	case IN_TOOL:
		log_tag("tool");
		break;
	case IN_TEST:
		log_tag("test");
		break;
	case IN_NONE:
		log_tag("");
		break;
	}
}

void
proc_panic(const char *file, int line, const char *what)
{
	log_warnx("panic: %s:%d: not true here: %s", file, line, what);
	abort();
}
