/*
 * shm/pin.c - see shm/pin.h.
 *
 * Runs in: worker (take, drop), committer (oldest), master (drop for the dead).
 */
#include "config.h"
#include "shm/pin.h"

uint64_t
pin_take(struct pin *p, const _Atomic(uint64_t) *newest)
{
	uint64_t	gen, now;

	/* acquire: pairs with the release that published it; the last one read in the loop is the one that counts */
	gen = atomic_load_explicit(newest, memory_order_acquire);
	if (gen == 0)
		return 0;
	for (;;) {
		/* relaxed: the fence orders it */
		atomic_store_explicit(&p->gen, gen, memory_order_relaxed);
		/* the pin before the look at the newest: pairs with the fence in pin_oldest() (I5) */
		atomic_thread_fence(memory_order_seq_cst);
		now = atomic_load_explicit(newest, memory_order_acquire);
		if (now == gen)
			return gen;
		gen = now;
	}
}

void
pin_drop(struct pin *p)
{
	/* release: what was read under the pin was read before; pairs with the acquire in pin_oldest() */
	atomic_store_explicit(&p->gen, 0, memory_order_release);
}

uint64_t
pin_oldest(const struct pin *pins, unsigned n)
{
	uint64_t	gen, oldest = PIN_NONE;
	unsigned	i;

	/* the caller's publishing before the look at the pins: pairs with the fence in pin_take() (I5) */
	atomic_thread_fence(memory_order_seq_cst);
	for (i = 0; i < n; i++) {
		/* acquire: pairs with the release in pin_drop(); pages may be written once nobody reads them */
		gen = atomic_load_explicit(&pins[i].gen, memory_order_acquire);
		if (gen != 0 && gen < oldest)
			oldest = gen;
	}
	return oldest;
}
