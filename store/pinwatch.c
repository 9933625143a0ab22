/*
 * store/pinwatch.c - see store/pinwatch.h.
 *
 * Runs in: committer, tests.
 */
#include "config.h"

#include "store/pinwatch.h"

#define LOOK_US	1000000

bool
pinwatch_look(struct pinwatch *w, const struct pin *pins, unsigned nlanes, uint64_t newest, uint64_t now_us)
{
	uint64_t	gen;

	if (now_us < w->look_at)
		return false;
	w->look_at = now_us + LOOK_US;
	for (unsigned i = 0; i < nlanes; i++) {
		/* relaxed: compared, nothing is read or reused for it */
		gen = atomic_load_explicit(&pins[i].gen, memory_order_relaxed);
		if (gen >= newest)
			gen = 0;
		w->looks[i] = gen == 0 ? 0 : gen == w->gen[i] ? w->looks[i] + 1 : 1;
		w->gen[i] = gen;
	}
	return true;
}
