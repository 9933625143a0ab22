/*
 * store/syncer.h - one fdatasync at a time, beside the main thread or in it.
 *
 * Runs in: committer.
 *
 * Where a sync takes long, a thread does it and the next batch is built
 * meanwhile; where it is fast, handing it over would cost more than it takes, and
 * it is done in place.  The limit is measured, not configured: the last syncs' time.
 * In place too where all who write are in the batch (gather.h): whoever comes
 * nevertheless loses only the microseconds of being decided.
 */
#ifndef STORE_SYNCER_H
#define STORE_SYNCER_H
#include <stdbool.h>
#include <stdint.h>
#include "store/log.h"

struct syncer;

/*
 * `failed` is called by whoever made the sync, at once, before anybody else can
 * know that it failed: a process that dies right after must not leave a
 * successor who syncs again and hears nothing (F1).
 */
struct syncer	*syncer_create(struct log *, void (*wake)(void *), void *arg, void (*failed)(void));
/* Waits for a sync under way. */
void		 syncer_destroy(struct syncer *);
/*
 * Starts one (none may be under way).  `all_here`: nobody is expected to come
 * meanwhile, so that there is nothing to be done beside it: in place then as
 * well.  true: it is done already, see syncer_result().
 */
bool		 syncer_start(struct syncer *, bool all_here);
/* A sync was started and its result not yet taken. */
bool		 syncer_busy(const struct syncer *);
/* It has ended: syncer_result() will have it. */
bool		 syncer_done(const struct syncer *);
/* True once when a started sync has ended: *error is 0 or its errno, *us how long it took. */
bool		 syncer_result(struct syncer *, int *error, uint64_t *us);

uint64_t	 monotonic_us(void);

#endif
