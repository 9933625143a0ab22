/*
 * worker/health.h - /_health, /_ready, /_status, /_metrics.
 *
 * Runs in: worker.
 *
 * Everything comes from the region's counters, summed over workers alive and
 * dead, so whichever worker answers says the same (F123).
 */
#ifndef WORKER_HEALTH_H
#define WORKER_HEALTH_H
#include "worker/conn.h"

void	health_alive(struct worker *, struct conn *);
void	health_ready(struct worker *, struct conn *);
void	health_status(struct worker *, struct conn *);
void	health_metrics(struct worker *, struct conn *);

/* What keeps the store from taking writes, as the committer said it; "" where nothing does. */
#define HEALTH_REASON	192u
void	health_reason(const struct worker *, char out[HEALTH_REASON]);

#endif
