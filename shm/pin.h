/*
 * shm/pin.h - reader slots: which generation a worker is looking at.
 *
 * Runs in: worker (take, drop: its own slot), committer (oldest), master
 *          (clear a dead worker's).
 * Owns:    one cache line of the region per lane.
 *
 * A worker stores the generation it is about to follow, then checks that it
 * is still the newest; the committer publishes a newer one, then reads all
 * slots.  With a full fence on both sides either the worker sees the newer
 * generation and tries again, or the committer sees the pin (I5).  What only
 * generations older than pin_oldest() can reach may be reused.
 *
 * A pin is short: for the walk through the tree and the mapping of a segment,
 * never for a send.  Bytes in a send are held by the worker's own mapping.
 */
#ifndef SHM_PIN_H
#define SHM_PIN_H
#include <stdatomic.h>
#include <stdint.h>

struct pin {
	_Alignas(64) _Atomic(uint64_t) gen;	/* W: its worker, master when it is dead  R: committer; 0: none */
};
_Static_assert(sizeof(struct pin) == 64, "the layout is a protocol");

#define PIN_NONE UINT64_MAX

/*
 * Pins the newest generation and returns it.  `newest` is the published word;
 * its value is acquired, so all that the generation reaches is visible.
 * 0 where nothing has been published yet (nothing is pinned then).
 */
uint64_t	pin_take(struct pin *, const _Atomic(uint64_t) *newest);
void		pin_drop(struct pin *);
/* The oldest generation anyone of n pins looks at; PIN_NONE if nobody does. */
uint64_t	pin_oldest(const struct pin *pins, unsigned n);

#endif
