/*
 * store/guard.c - see store/guard.h.
 *
 * Runs in: worker, committer, tools, tests.
 *
 * The handler may do more than signal handlers may in general: the signal comes
 * out of a load from a mapping, never out of the middle of a library call that
 * this one could collide with.
 */
#include "config.h"

#include <sys/mman.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shm/log.h"
#include "store/guard.h"

#define TOLD	16u	/* pages told to the log; a file that is gone has thousands */

sigjmp_buf			 guard_env;
volatile sig_atomic_t		 guard_armed;

static enum guard_mode		 mode;
static uintptr_t		 page_bytes;
static const void *volatile	 address;
static atomic_uint_least64_t	 filled;
static atomic_uint_least64_t	 filled_tree;

struct map {			/* a line of /proc/self/maps */
	uint64_t	lo, hi, offset;
	char		name[48];	/* the last component of its path, cut */
};

/* ------------------------------------------------------------- whose page is it */

struct reader {			/* of /proc/self/maps, a byte at a time */
	int	fd;
	char	buf[1024];
	ssize_t	n, at;
};

static int
next_byte(struct reader *r)
{
	if (r->at == r->n) {
		r->n = read(r->fd, r->buf, sizeof(r->buf));
		r->at = 0;
		if (r->n <= 0) {
			r->n = 0;
			return -1;
		}
	}
	return (unsigned char)r->buf[r->at++];
}

/* Hexadecimal up to the byte that is no digit, which is left in *c. */
static uint64_t
next_number(struct reader *r, int *c)
{
	uint64_t	v = 0;

	for (;;) {
		*c = next_byte(r);
		if (*c >= '0' && *c <= '9')
			v = v << 4 | (uint64_t)(*c - '0');
		else if (*c >= 'a' && *c <= 'f')
			v = v << 4 | (uint64_t)(*c - 'a' + 10);
		else
			return v;
	}
}

/* lo-hi rwxp offset dev inode   /a/path.  false: the end. */
static bool
next_map(struct reader *r, struct map *m)
{
	size_t	n = 0;
	int	c;

	m->lo = next_number(r, &c);
	m->hi = next_number(r, &c);
	while ((c = next_byte(r)) != ' ' && c != -1)
		;
	m->offset = next_number(r, &c);
	while (c != '\n' && c != -1) {
		if (c == '/')
			n = 0;
		else if (n < sizeof(m->name) - 1)
			m->name[n++] = (char)c;
		c = next_byte(r);
	}
	m->name[n] = '\0';
	return c != -1;
}

static bool
find_map(uintptr_t at, struct map *m)
{
	struct reader	r = { .fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC) };
	bool		found = false;

	if (r.fd == -1)
		return false;
	while (!found && next_map(&r, m))
		found = at >= m->lo && at < m->hi;
	close(r.fd);
	return found;
}

/* ------------------------------------------------------------- the signal */

static bool
fill(const void *where)
{
	uintptr_t	at = (uintptr_t)where / page_bytes * page_bytes;
	struct map	m;
	bool		tree;

	if (!find_map(at, &m))
		return false;
	tree = strncmp(m.name, "tree-", 5) == 0;
	if (!tree && strncmp(m.name, "log-", 4) != 0)
		return false;
	if (mmap((void *)at, page_bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
		return false;
	atomic_fetch_add_explicit(&filled_tree, tree, memory_order_relaxed);
	/* release: filled_tree; pairs with the acquire in guard_filled() */
	if (atomic_fetch_add_explicit(&filled, 1, memory_order_release) < TOLD)
		log_warnx("%s, offset %llu: the disk does not give this page (I/O error, or the file was cut short)",
		    m.name, (unsigned long long)(m.offset + (at - m.lo)));
	return true;
}

static void
on_bus(int sig, siginfo_t *info, void *context)
{
	int	saved = errno;

	(void)context;
	/* a code above 0 is the kernel's: no page there; else somebody sent it */
	if (info->si_code > 0) {
		if (guard_armed) {
			guard_armed = 0;
			address = info->si_addr;
			siglongjmp(guard_env, 1);
		}
		if (mode == GUARD_FILL && fill(info->si_addr)) {
			errno = saved;
			return;
		}
	}
	signal(sig, SIG_DFL);
	if (info->si_code <= 0)
		raise(sig);
	errno = saved;	/* and the load is tried again, for the last time */
}

void
guard_init(enum guard_mode how)
{
	struct sigaction	sa = { .sa_sigaction = on_bus, .sa_flags = SA_SIGINFO | SA_NODEFER };

	mode = how;
	page_bytes = (uintptr_t)sysconf(_SC_PAGESIZE);
	sigemptyset(&sa.sa_mask);
	if (sigaction(SIGBUS, &sa, NULL) == -1)
		fatal("sigaction(SIGBUS)");
}

const void *
guard_address(void)
{
	return address;
}

uint64_t
guard_filled(void)
{
	/* acquire: pairs with the release in fill() */
	return atomic_load_explicit(&filled, memory_order_acquire);
}

uint64_t
guard_filled_tree(void)
{
	return atomic_load_explicit(&filled_tree, memory_order_relaxed);
}
