/*
 * shm/bell.h - wake somebody who may be asleep, without a system call if not.
 *
 * Runs in: worker (ring), committer and its threads (ring, wait).
 * Owns:    one cache line of the region per bell.
 *
 * The rule (Dekker): the sleeper announces itself, then looks for work once
 * more, then sleeps; the ringer sets the work, then looks for a sleeper.
 * Both have a full fence between their two steps, so one of them sees the
 * other.  A ringer that dies in between has set no work or set it whole; the
 * sleeper's time-out (callers pass one) is the last resort.
 */
#ifndef SHM_BELL_H
#define SHM_BELL_H
#include <stdatomic.h>
#include <stdint.h>

struct bell {
	_Alignas(64) _Atomic(uint32_t) rings;	/* W: anyone  R: the sleeper; the futex word */
	_Atomic(uint32_t) sleepers;		/* W: the sleeper  R: anyone */
};
_Static_assert(sizeof(struct bell) == 64, "the layout is a protocol");

/* Work was set before this call: wake whoever sleeps.  No system call if nobody does. */
void	bell_ring(struct bell *);

/*
 * Sleeping is three steps:
 *	uint32_t t = bell_arm(b);	announce
 *	if (there is work) bell_disarm(b);
 *	else bell_sleep(b, t, ms);	sleeps, disarms; ms < 0: no limit
 * bell_sleep returns early on a ring, a signal or a spurious wake-up: look again.
 */
uint32_t	bell_arm(struct bell *);
void		bell_disarm(struct bell *);
void		bell_sleep(struct bell *, uint32_t ticket, int64_t timeout_us);

#endif
