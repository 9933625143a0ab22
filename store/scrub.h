/*
 * store/scrub.h - live records are read again in idle time: cards rot.
 *
 * Runs in: committer, tests.
 *
 * A pass reads each segment from its first byte to its last batch and checks each
 * record that the tree refers to, head, body and table of checksums, then each page of
 * the checkpoint.  It goes past the kernel's cache (O_DIRECT), so what is checked is
 * what the card gives, and no memory is filled with what nobody asked for.
 *
 * At most a MiB a second, only when nobody has written for a while, one read of
 * 128 KiB at a time.  When a pass is done it rests for a day.  It begins at a random
 * segment: where the machine is switched off every night all get their turn.
 *
 * What it finds is told once: a line in the log that names segment, offset and
 * document, CC_SCRUB_DAMAGED.  Nothing is changed: a reader of that document gets
 * his 500 as before.
 */
#ifndef STORE_SCRUB_H
#define STORE_SCRUB_H
#include <stdbool.h>
#include <stdint.h>
#include "shm/count.h"

struct scrub;
struct store;

/*
 * $HOLDFAST_SCRUB (tests): bytes per second instead; then it begins after 100 ms
 * without a write, and rests for as long.
 */
struct scrub	*scrub_create(struct store *, struct count_block *);
void		 scrub_destroy(struct scrub *);
/*
 * Called when nothing else is to be done, and nothing is applied that is not public.
 * `written_us`: when a client's write was last seen.  Returns for how many
 * microseconds it needs no call.
 */
int64_t		 scrub_step(struct scrub *, uint64_t now_us, uint64_t written_us);
/* Without a write for so long the store counts as idle, microseconds. */
uint64_t	 scrub_idle(const struct scrub *);

#endif
