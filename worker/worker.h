/*
 * worker/worker.h - one worker: everything it has.
 *
 * Runs in: worker.
 *
 * There is one per process; it is passed along and not global so that what a
 * function touches can be read off its arguments.
 */
#ifndef WORKER_WORKER_H
#define WORKER_WORKER_H
#include "shm/boot.h"
#include "store/read.h"
#include "worker/clock.h"
#include "worker/cond.h"
#include "worker/conn.h"
#include "worker/head.h"
#include "worker/in.h"
#include "worker/loop.h"
#include "worker/out.h"
#include "worker/target.h"
#include "worker/tenant.h"
#include "worker/timer.h"
#include "worker/write.h"

struct request {		/* the one being parsed; nothing of it outlives the run of its connection */
	struct head		 head;
	struct target		 target;
	struct conditions	 cond;
	struct refusal		 refusal;
	bool			 below_tenant;	/* answers carry Vary: Origin */
	char			 path[TARGET_MAX];
};

struct worker {
	const struct boot	*boot;
	struct region		 region;	/* ours: the arena's hint is written */
	unsigned		 lane;
	struct reader		*reader;
	struct count_block	*count;
	struct clock		 clock;
	struct timers		 timers;
	struct loop		 loop;
	struct in		 in;
	struct out		 out;
	struct writes		 writes;
	struct tenants		 tenants;
	struct request		 req;

	struct conn_list	 again;		/* to be run in the next round */
	struct conn_queue	 dead;		/* closed in this round */
	struct conn_queue	 free;
	unsigned		 nconns, max_conns;
	bool			 draining;
	uint64_t		 mapped_floor;	/* seen last, for out_let_go() */
};

#endif
