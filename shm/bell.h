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
	_Atomic(int32_t) patience;		/* W: the sleeper, then bell_add()  R: bell_add() */
};
_Static_assert(sizeof(struct bell) == 64, "the layout is a protocol");

/* Work was set before this call: wake whoever sleeps.  No system call if nobody does. */
void	bell_ring(struct bell *);
/*
 * The same for n pieces of the work that is let come together: wakes a sleeper
 * of bell_arm_for() only when as many as it waits for have come.
 */
void	bell_add(struct bell *, unsigned n);

/*
 * Sleeping is three steps:
 *	uint32_t t = bell_arm(b);	announce
 *	if (there is work) bell_disarm(b);
 *	else bell_sleep(b, t, us);	sleeps, disarms; us < 0: no limit
 * bell_sleep returns early on a ring, a signal or a spurious wake-up: look again.
 */
uint32_t	bell_arm(struct bell *);
/*
 * The same, but to be woken by bell_add() only once n pieces have come, 1 and up
 * (the look before the sleep is for any).  For a sleep that ends in time anyway, by its limit or by another's
 * bell_ring(): who dies between its work and bell_add() has not counted it.
 */
uint32_t	bell_arm_for(struct bell *, unsigned n);
void		bell_disarm(struct bell *);
void		bell_sleep(struct bell *, uint32_t ticket, int64_t timeout_us);

#endif
