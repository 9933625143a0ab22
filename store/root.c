/*
 * store/root.c - see store/overlay.h: publishing a generation, and reading one.
 *
 * Runs in: committer (publish), worker (read: its mapping is read-only).
 *
 * A slot is rewritten ROOTS publications later, so a reader checks afterwards
 * that this had not begun.  Fields are copied one by one with relaxed atomics:
 * a torn copy is thrown away, but must not be undefined.
 */
#include "config.h"
#include <assert.h>
#include <string.h>
#include "store/overlay.h"

#define ROOT_FIELDS(F) \
	F(gen) F(max_seq) F(time_ms) F(catalog_seq) F(segments_epoch) \
	F(page) F(checkpoint) F(first_segment) F(last_segment)

void
root_publish(struct roots *r, const struct root *root)
{
	struct root	*slot = &r->ring[root->gen % ROOTS];

	/* relaxed: nobody else stores here, this is our own last value */
	assert(root->gen == atomic_load_explicit(&r->newest, memory_order_relaxed) + 1);
	/*
	 * release: who sees a byte of what follows also sees the `newest` before
	 * it; pairs with the acquire fence in root_read()
	 */
	atomic_thread_fence(memory_order_release);
#define STORE(f)	__atomic_store_n(&slot->f, root->f, __ATOMIC_RELAXED);
	ROOT_FIELDS(STORE)
#undef STORE
	/* release: pairs with the acquire of `newest` in pin_take() and overlay_open() */
	atomic_store_explicit(&r->newest, root->gen, memory_order_release);
}

bool
root_read(const struct roots *r, uint64_t gen, struct root *root)
{
	const struct root	*slot = &r->ring[gen % ROOTS];

	/* relaxed: pin_take() has acquired `newest`, and what is torn is found below */
#define LOAD(f)		root->f = __atomic_load_n(&slot->f, __ATOMIC_RELAXED);
	ROOT_FIELDS(LOAD)
#undef LOAD
	/* acquire: pairs with the release fence in root_publish() */
	atomic_thread_fence(memory_order_acquire);
	/* relaxed: ordered by the fence; the slot is rewritten once newest is gen + ROOTS - 1 */
	if (atomic_load_explicit(&r->newest, memory_order_relaxed) >= gen + ROOTS - 1)
		return false;
	return root->gen == gen;
}
