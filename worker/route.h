/*
 * worker/route.h - which code answers a request: method x target.
 *
 * Runs in: worker.
 */
#ifndef WORKER_ROUTE_H
#define WORKER_ROUTE_H
#include "worker/conn.h"

/* The head in w->req is complete: answers it, or begins its write. */
void	route(struct worker *, struct conn *);
/* CONN_HEAD's step. */
enum step	route_step_head(struct worker *, struct conn *);

#endif
