/*
 * shm/bell.c - see shm/bell.h.
 *
 * Runs in: worker (ring), committer and its threads (ring, wait).
 */
#include "config.h"
#include <sys/syscall.h>
#include <linux/futex.h>
#include <limits.h>
#include <stdbool.h>
#include <time.h>
#include <unistd.h>
#include "shm/bell.h"

_Static_assert(sizeof(time_t) == sizeof(long), "SYS_futex takes a struct timespec of the kernel's");

/*
 * The ring counter moves before the wake-up, so a sleeper that is on its way
 * into the kernel finds another value than its ticket and comes back.
 */
static void
wake(struct bell *b)
{
	/* release: pairs with the acquire in bell_arm_for() */
	atomic_fetch_add_explicit(&b->rings, 1, memory_order_release);
	syscall(SYS_futex, &b->rings, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static bool
asleep(struct bell *b)
{
	/* the caller's work before the look at the sleeper: pairs with the fence in bell_arm_for() (I4) */
	atomic_thread_fence(memory_order_seq_cst);
	/* acquire: its patience; pairs with the release in bell_arm_for() */
	return atomic_load_explicit(&b->sleepers, memory_order_acquire) != 0;
}

void
bell_ring(struct bell *b)
{
	if (asleep(b))
		wake(b);
}

void
bell_add(struct bell *b, unsigned n)
{
	/*
	 * relaxed: a number, it publishes nothing, and comes behind the sleeper's own
	 * store (asleep()).  Whoever goes to sleep has looked and found nothing, so all that comes
	 * is counted here; what is counted and was found wakes the next sleep too early.
	 */
	if (asleep(b) && atomic_fetch_sub_explicit(&b->patience, (int32_t)n, memory_order_relaxed) <= (int32_t)n)
		wake(b);
}

uint32_t
bell_arm(struct bell *b)
{
	return bell_arm_for(b, 1);
}

uint32_t
bell_arm_for(struct bell *b, unsigned n)
{
	uint32_t	ticket;

	atomic_store_explicit(&b->patience, (int32_t)n, memory_order_relaxed);
	/*
	 * a store, not an addition: what a sleeper killed in its sleep left behind is put right here.
	 * release: patience; pairs with the acquire in asleep()
	 */
	atomic_store_explicit(&b->sleepers, 1, memory_order_release);
	/* acquire: whoever moved it before had set work, and the caller's look must find that */
	ticket = atomic_load_explicit(&b->rings, memory_order_acquire);
	/* the announcement before the look for work: pairs with the fence in asleep() (I4) */
	atomic_thread_fence(memory_order_seq_cst);
	return ticket;
}

void
bell_disarm(struct bell *b)
{
	/* relaxed: a ringer that still sees 1 makes one system call too many */
	atomic_store_explicit(&b->sleepers, 0, memory_order_relaxed);
}

void
bell_sleep(struct bell *b, uint32_t ticket, int64_t timeout_us)
{
	struct timespec	ts = { timeout_us / 1000000, timeout_us % 1000000 * 1000 };

	/* not FUTEX_PRIVATE: the ringer is another process */
	syscall(SYS_futex, &b->rings, FUTEX_WAIT, ticket, timeout_us < 0 ? NULL : &ts, NULL, 0);
	bell_disarm(b);
}
