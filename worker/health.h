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

#endif
