/*
 * bench/sample.c - a sampling profiler, for machines without perf.
 *
 * Runs in: a process of its own.
 *
 *	sample [-a] [-p PID] [-s SECONDS] [-f HZ] [-n LINES]
 *
 *	-p PID	that process and all below it, also those forked meanwhile; -a: all processes
 *	-s S	for so long (5);  -f HZ: samples a second of CPU time (2000);  -n: lines of each table (40)
 *
 * The CPU clock of every CPU interrupts (perf_event_open); each sample is the
 * place where a process was, in user space or in the kernel, and the chain of
 * its callers.  Names come from ELF symbol tables and from /proc/kallsyms.
 *
 * "self" is time in the function, "total" with all that it calls.  Callers are
 * found by frame pointers: build what is profiled with
 * CFLAGS='-O2 -g -fno-omit-frame-pointer'.  A C library has none, so that the
 * one that called it would be left out of the chain: it is put back, on arm64
 * from the link register, on x86-64 from the first return address on the stack.
 *
 * Needs root or kernel.perf_event_paranoid < 1, and kernel.kptr_restrict 0 (or
 * root) for the kernel's names.  The clock is an interrupt: time with
 * interrupts off shows up where they are allowed again.
 */
#include "config.h"
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <elf.h>
#include <err.h>
#include <errno.h>
#include <dirent.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define RING_PAGES	256u		/* of each CPU's ring; a power of two */
#define CPUS_MAX	256
#define CHAIN_MAX	128u
#define STACK_BYTES	64u		/* of the user's stack: the return address of a frameless leaf is near its top */
#define REREAD_NS	100000000u	/* a process's mappings are looked at again at most so often */

#if defined(__x86_64__)
#define USER_REG	7		/* the stack pointer */
#elif defined(__aarch64__)
#define USER_REG	30		/* the link register */
#else
#error "sample knows x86-64 and arm64"
#endif

struct symbol {
	uint64_t	 at, size;
	const char	*name;
};

/* An ELF file, or the kernel; its function symbols sorted by address. */
struct image {
	char		*path;
	const char	*name;			/* behind the last slash */
	struct symbol	*symbols;
	size_t		 n;
	const uint8_t	*bytes;			/* the file, mapped; NULL: the kernel, vdso, or none to be had */
	size_t		 size;
	struct image	*next;
};

struct mapping {
	uint64_t	 from, to, offset;
	struct image	*image;
};

struct process {
	int		 pid;
	bool		 wanted;
	char		 title[48];
	struct mapping	*maps;
	size_t		 nmaps;
	uint64_t	 read_ns, samples, kernel;
	struct process	*next;
};

/* A function as the report names it. */
struct place {
	const struct image	*image;
	const char		*name;
	uint64_t		 self, total;
	uint64_t		 marked;	/* the last sample that counted it in total */
	struct place		*next;		/* in its chain of the table */
};

/* place was called by caller in so many samples that were in place itself. */
struct edge {
	struct place	*place, *caller;
	uint64_t	 n;
	struct edge	*next;
};

struct ring {
	int				 fd;
	struct perf_event_mmap_page	*page;
	uint64_t			 tail;
};

#define TABLE	16384u
static struct place		*places[TABLE];
static struct edge		*edges[TABLE];
static struct image		*images, kernel = { .name = "kernel" }, nowhere = { .name = "?" };
static struct process		*processes;
static struct ring		 rings[CPUS_MAX];
static int			 nrings;
static bool			 all_processes;
static uint64_t			 nsamples, lost, others;
static volatile sig_atomic_t	 ended;

static uint64_t
clock_ns(void)
{
	struct timespec	t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void *
must(void *p)
{
	if (p == NULL)
		err(1, "malloc");
	return p;
}

/* --- symbols ------------------------------------------------------------------ */

static int
symbol_cmp(const void *a, const void *b)
{
	const struct symbol	*x = a, *y = b;

	return x->at < y->at ? -1 : x->at > y->at;
}

static bool
within(const struct image *im, uint64_t at, uint64_t n)
{
	return at <= im->size && n <= im->size - at;
}

/* The functions of one symbol table section. */
static void
image_symbols(struct image *im, const Elf64_Ehdr *e, const Elf64_Shdr *s)
{
	const Elf64_Sym		*sym = (const void *)(im->bytes + s->sh_offset);
	const Elf64_Shdr	*strings;
	size_t			 n = s->sh_size / sizeof(*sym);

	if (s->sh_link >= e->e_shnum)
		return;
	strings = (const Elf64_Shdr *)(const void *)(im->bytes + e->e_shoff) + s->sh_link;
	if (!within(im, s->sh_offset, s->sh_size) || !within(im, strings->sh_offset, strings->sh_size))
		return;
	im->symbols = must(realloc(im->symbols, (im->n + n + 1) * sizeof(*im->symbols)));
	for (size_t i = 0; i < n; i++) {
		unsigned	type = ELF64_ST_TYPE(sym[i].st_info);

		if ((type == STT_FUNC || type == STT_GNU_IFUNC || type == STT_NOTYPE) && sym[i].st_value != 0 &&
		    sym[i].st_shndx != SHN_UNDEF && sym[i].st_name < strings->sh_size)
			im->symbols[im->n++] = (struct symbol){ .at = sym[i].st_value, .size = sym[i].st_size,
			    .name = (const char *)im->bytes + strings->sh_offset + sym[i].st_name };
	}
}

static void
image_read(struct image *im)
{
	const Elf64_Ehdr	*e;
	const Elf64_Shdr	*s;
	struct stat		 st;
	void			*p;
	int			 fd;

	if ((fd = open(im->path, O_RDONLY | O_CLOEXEC)) == -1)
		return;
	if (fstat(fd, &st) == -1 || st.st_size < (off_t)sizeof(*e) ||
	    (p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0)) == MAP_FAILED) {
		close(fd);
		return;
	}
	close(fd);
	im->bytes = p;
	im->size = (size_t)st.st_size;
	e = p;
	if (memcmp(e->e_ident, ELFMAG, SELFMAG) != 0 || e->e_ident[EI_CLASS] != ELFCLASS64 ||
	    !within(im, e->e_phoff, (uint64_t)e->e_phnum * sizeof(Elf64_Phdr)) ||
	    !within(im, e->e_shoff, (uint64_t)e->e_shnum * sizeof(Elf64_Shdr))) {
		munmap(p, im->size);
		im->bytes = NULL;
		return;
	}
	s = (const void *)(im->bytes + e->e_shoff);
	for (unsigned i = 0; i < e->e_shnum; i++)
		if (s[i].sh_type == SHT_SYMTAB || s[i].sh_type == SHT_DYNSYM)
			image_symbols(im, e, &s[i]);
	if (im->n > 0)
		qsort(im->symbols, im->n, sizeof(*im->symbols), symbol_cmp);
}

static struct image *
image_of(const char *path)
{
	struct image	*im;
	const char	*slash;

	for (im = images; im != NULL; im = im->next)
		if (strcmp(im->path, path) == 0)
			return im;
	im = must(calloc(1, sizeof(*im)));
	im->path = must(strdup(path));
	im->name = (slash = strrchr(im->path, '/')) != NULL ? slash + 1 : im->path;
	im->next = images;
	images = im;
	if (path[0] == '/')
		image_read(im);
	return im;
}

static void
kernel_read(void)
{
	char			 line[512], name[256], type;
	unsigned long long	 at;
	size_t			 room = 0;
	FILE			*f;

	if ((f = fopen("/proc/kallsyms", "re")) == NULL)
		return;
	while (fgets(line, sizeof(line), f) != NULL) {
		if (sscanf(line, "%llx %c %255s", &at, &type, name) != 3 || at == 0 || (type | 0x20) != 't')
			continue;
		if (kernel.n == room)
			kernel.symbols = must(realloc(kernel.symbols, (room = room == 0 ? 65536 : 2 * room) * sizeof(*kernel.symbols)));
		kernel.symbols[kernel.n++] = (struct symbol){ .at = at, .name = must(strdup(name)) };
	}
	fclose(f);
	if (kernel.n > 0)
		qsort(kernel.symbols, kernel.n, sizeof(*kernel.symbols), symbol_cmp);
	else
		warnx("no names for the kernel: kernel.kptr_restrict");
}

/* The last symbol at or before an address; one with a size must reach it. */
static const char *
symbol_at(const struct image *im, uint64_t at)
{
	size_t	lo = 0, hi = im->n;

	while (lo < hi) {
		size_t	mid = lo + (hi - lo) / 2;

		if (im->symbols[mid].at <= at)
			lo = mid + 1;
		else
			hi = mid;
	}
	for (size_t back = 0; lo > 0 && back < 8; lo--, back++) {
		const struct symbol	*s = &im->symbols[lo - 1];

		if ((s->size == 0 || at < s->at + s->size) && s->name[0] != '\0' && s->name[0] != '$')
			return s->name;
	}
	return NULL;
}

/* --- processes ---------------------------------------------------------------- */

static void
maps_read(struct process *p)
{
	char			 path[64], line[4400], file[4200], perms[8];
	unsigned long long	 from, to, offset;
	size_t			 room = 0;
	FILE			*f;

	p->read_ns = clock_ns();
	snprintf(path, sizeof(path), "/proc/%d/maps", p->pid);
	if ((f = fopen(path, "re")) == NULL)
		return;			/* it is gone: what was read before stays */
	free(p->maps);
	p->maps = NULL;
	p->nmaps = 0;
	while (fgets(line, sizeof(line), f) != NULL) {
		file[0] = '\0';
		if (sscanf(line, "%llx-%llx %7s %llx %*s %*s %4199[^\n]", &from, &to, perms, &offset, file) < 4 || perms[2] != 'x')
			continue;
		if (p->nmaps == room)
			p->maps = must(realloc(p->maps, (room = room == 0 ? 16 : 2 * room) * sizeof(*p->maps)));
		p->maps[p->nmaps++] = (struct mapping){ .from = from, .to = to, .offset = offset,
		    .image = file[0] == '\0' ? &nowhere : image_of(file) };
	}
	fclose(f);
}

/* What it calls itself: its first argument, without folders. */
static void
title_read(struct process *p)
{
	char	 path[64], line[256], *name;
	ssize_t	 n = -1;
	int	 fd;

	snprintf(path, sizeof(path), "/proc/%d/cmdline", p->pid);
	if ((fd = open(path, O_RDONLY | O_CLOEXEC)) != -1) {
		n = read(fd, line, sizeof(line) - 1);
		close(fd);
	}
	line[n > 0 ? n : 0] = '\0';
	name = line[0] == '/' && strrchr(line, '/') != NULL ? strrchr(line, '/') + 1 : line;
	snprintf(p->title, sizeof(p->title), "%.39s", name[0] != '\0' ? name : "(kernel)");
}

static int
parent_of(int pid)
{
	char	 path[64], line[512], *end;
	ssize_t	 n;
	int	 fd, parent = 0;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	if ((fd = open(path, O_RDONLY | O_CLOEXEC)) == -1)
		return 0;
	n = read(fd, line, sizeof(line) - 1);
	close(fd);
	line[n > 0 ? n : 0] = '\0';
	if ((end = strrchr(line, ')')) == NULL || sscanf(end + 1, " %*c %d", &parent) != 1)
		return 0;
	return parent;
}

static struct process *
process_find(int pid)
{
	struct process	*p;

	for (p = processes; p != NULL && p->pid != pid; p = p->next)
		;
	return p;
}

static struct process *
process_add(int pid, bool wanted)
{
	struct process	*p = must(calloc(1, sizeof(*p)));

	p->pid = pid;
	p->wanted = wanted;
	p->next = processes;
	processes = p;
	if (wanted) {
		title_read(p);
		maps_read(p);
	}
	return p;
}

/* Is one of its ancestors wanted? */
static bool
below_wanted(int pid)
{
	for (int depth = 0; pid > 1 && depth < 64; depth++, pid = parent_of(pid)) {
		const struct process	*p = process_find(pid);

		if (p != NULL && p->wanted)
			return true;
	}
	return false;
}

static struct process *
process_get(int pid)
{
	struct process	*p = process_find(pid);

	return p != NULL ? p : process_add(pid, all_processes || below_wanted(pid));
}

/* The child has its parent's mappings; it may end before we could read them. */
static void
process_forked(int pid, int parent)
{
	struct process	*from = process_find(parent), *p;

	if (pid == parent || from == NULL || !from->wanted || process_find(pid) != NULL)
		return;
	p = process_add(pid, true);
	if (p->nmaps > 0 || from->nmaps == 0)
		return;
	memcpy(p->title, from->title, sizeof(p->title));
	p->maps = must(malloc(from->nmaps * sizeof(*p->maps)));
	memcpy(p->maps, from->maps, from->nmaps * sizeof(*p->maps));
	p->nmaps = from->nmaps;
}

/* --- from an address to a name ------------------------------------------------- */

static const struct mapping *
mapping_of(struct process *p, uint64_t ip)
{
	for (int twice = 0; twice < 2; twice++) {
		for (size_t i = 0; i < p->nmaps; i++)
			if (ip >= p->maps[i].from && ip < p->maps[i].to)
				return &p->maps[i];
		if (clock_ns() - p->read_ns < REREAD_NS)
			break;
		maps_read(p);
	}
	return NULL;
}

/* Where the linker put what lies at an offset of the file. */
static uint64_t
linked_at(const struct image *im, uint64_t offset)
{
	const Elf64_Ehdr	*e = (const void *)im->bytes;
	const Elf64_Phdr	*p;

	if (e == NULL)
		return offset;
	p = (const void *)(im->bytes + e->e_phoff);
	for (unsigned i = 0; i < e->e_phnum; i++)
		if (p[i].p_type == PT_LOAD && offset >= p[i].p_offset && offset < p[i].p_offset + p[i].p_filesz)
			return offset - p[i].p_offset + p[i].p_vaddr;
	return offset;
}

static struct place *
place_get(const struct image *im, const char *name)
{
	uintptr_t	 h = ((uintptr_t)im >> 4) * 31 ^ ((uintptr_t)name * 2654435761u >> 7);
	struct place	*p;

	for (p = places[h % TABLE]; p != NULL; p = p->next)
		if (p->image == im && p->name == name)
			return p;
	p = must(calloc(1, sizeof(*p)));
	p->image = im;
	p->name = name;
	p->next = places[h % TABLE];
	places[h % TABLE] = p;
	return p;
}

static struct place *
place_of(struct process *p, uint64_t ip, bool in_kernel)
{
	static const char	 unknown[] = "(no symbol)";
	const struct mapping	*m;
	const char		*name;

	if (in_kernel)
		return place_get(&kernel, (name = symbol_at(&kernel, ip)) != NULL ? name : unknown);
	if ((m = mapping_of(p, ip)) == NULL)
		return place_get(&nowhere, unknown);
	name = symbol_at(m->image, linked_at(m->image, ip - m->from + m->offset));
	return place_get(m->image, name != NULL ? name : unknown);
}

static void
edge_count(struct place *place, struct place *caller)
{
	uintptr_t	 h = ((uintptr_t)place >> 4) * 31 ^ (uintptr_t)caller >> 4;
	struct edge	*e;

	for (e = edges[h % TABLE]; e != NULL && (e->place != place || e->caller != caller); e = e->next)
		;
	if (e == NULL) {
		e = must(calloc(1, sizeof(*e)));
		e->place = place;
		e->caller = caller;
		e->next = edges[h % TABLE];
		edges[h % TABLE] = e;
	}
	e->n++;
}

/* --- samples ------------------------------------------------------------------- */

struct sample {
	int		 pid;
	bool		 has_user;
	uint64_t	 n;
	const uint64_t	*chain;
	uint64_t	 reg;		/* USER_REG */
	const uint64_t	*stack;
	uint64_t	 stack_bytes;
};

/* The record's parts in the order that the kernel writes them: see perf_event_open(2). */
static bool
sample_parse(struct sample *s, const uint64_t *p, const uint64_t *end)
{
	*s = (struct sample){ 0 };
	if (end - p < 3)
		return false;
	p++;					/* IP: the chain has it too */
	s->pid = (int)(uint32_t)*p++;		/* TID */
	s->n = *p++;
	if (s->n > (uint64_t)(end - p))
		return false;
	s->chain = p;
	p += s->n;
	if (p == end)
		return true;
	if (*p++ != PERF_SAMPLE_REGS_ABI_NONE) {
		if (p == end)
			return true;
		s->reg = *p++;
		s->has_user = true;
	}
#if defined(__x86_64__)
	if (p == end)
		return true;
	s->stack_bytes = *p++;
	if (s->stack_bytes / 8 >= (uint64_t)(end - p))
		s->stack_bytes = 0;		/* no "size that was there" behind it: not as announced */
	s->stack = p;
	p += s->stack_bytes / 8;
	if (s->stack_bytes > 0 && *p < s->stack_bytes)
		s->stack_bytes = *p;
#endif
	return true;
}

/* Is there a call before this address?  Then it may be one that a call returns to. */
#if defined(__x86_64__)
static bool
returns_to(struct process *p, uint64_t ip)
{
	const struct mapping	*m = mapping_of(p, ip);
	const uint8_t		*b;
	uint64_t		 at;

	if (m == NULL || m->image->bytes == NULL)
		return false;
	at = ip - m->from + m->offset;
	if (at < 7 || at > m->image->size)
		return false;
	b = m->image->bytes + at;
	return b[-5] == 0xe8 || (b[-6] == 0xff && b[-5] == 0x15) || (b[-2] == 0xff && (b[-1] & 0x38) == 0x10) ||
	    (b[-3] == 0xff && (b[-2] & 0x38) == 0x10);
}
#endif

/* Who called the C library, which keeps no frame of its own; 0: nobody knows. */
static uint64_t
leaf_caller(struct process *p, const struct sample *s, uint64_t ip)
{
	const struct mapping	*m = mapping_of(p, ip);

	if (!s->has_user || m == NULL || strncmp(m->image->name, "libc", 4) != 0)
		return 0;
#if defined(__x86_64__)
	for (uint64_t i = 0; i < s->stack_bytes / 8; i++) {
		const struct mapping	*to = mapping_of(p, s->stack[i]);

		if (to != NULL && to->image != m->image && returns_to(p, s->stack[i]))
			return s->stack[i];
	}
	return 0;
#else
	return s->reg;
#endif
}

/* The sample's functions from the inside out. */
static unsigned
chain_places(struct process *p, const struct sample *s, struct place **out)
{
	bool		in_kernel = true, first_user = true;
	unsigned	n = 0;

	for (uint64_t i = 0; i < s->n && n + 1 < CHAIN_MAX; i++) {
		uint64_t	ip = s->chain[i], leaf;

		if (ip >= (uint64_t)PERF_CONTEXT_MAX) {
			in_kernel = ip == (uint64_t)PERF_CONTEXT_KERNEL;
			continue;
		}
		/* a return address may be behind the last instruction of the one that called */
		out[n] = place_of(p, n == 0 || (!in_kernel && first_user) ? ip : ip - 1, in_kernel);
		n++;
		if (!in_kernel && first_user) {
			first_user = false;
			if ((leaf = leaf_caller(p, s, ip)) != 0)
				out[n++] = place_of(p, leaf - 1, false);
		}
	}
	return n;
}

static void
sample_take(const uint64_t *from, const uint64_t *end)
{
	static struct place	*chain[CHAIN_MAX];
	struct process		*p;
	struct sample		 s;
	unsigned		 n;

	if (!sample_parse(&s, from, end))
		return;
	if (s.pid <= 0 || s.pid == getpid() || !(p = process_get(s.pid))->wanted) {
		others++;
		return;
	}
	if ((n = chain_places(p, &s, chain)) == 0)
		return;
	nsamples++;
	p->samples++;
	p->kernel += chain[0]->image == &kernel;
	chain[0]->self++;
	for (unsigned i = 0; i < n; i++)
		if (chain[i]->marked != nsamples) {
			chain[i]->marked = nsamples;
			chain[i]->total++;
		}
	if (n > 1)
		edge_count(chain[0], chain[1]);
}

static void
record_take(const struct perf_event_header *h)
{
	const uint64_t	*p = (const void *)(h + 1), *end = (const void *)((const char *)h + h->size);
	const uint32_t	*w = (const void *)(h + 1);

	if (h->type == PERF_RECORD_SAMPLE)
		sample_take(p, end);
	else if (h->type == PERF_RECORD_FORK)
		process_forked((int)w[0], (int)w[1]);
	else if (h->type == PERF_RECORD_LOST)
		lost += p[1];
}

/* --- rings --------------------------------------------------------------------- */

static void
ring_drain(struct ring *r)
{
	static uint64_t	 whole[65536 / 8];	/* a record's size has 16 bits */
	size_t		 page = (size_t)sysconf(_SC_PAGESIZE), size = RING_PAGES * page;
	const char	*data = (const char *)r->page + page;
	/* acquire: pairs with the kernel's release behind the records */
	uint64_t	 head = __atomic_load_n(&r->page->data_head, __ATOMIC_ACQUIRE);

	while (r->tail < head) {
		size_t		 at = r->tail % size, n, first;

		n = ((const struct perf_event_header *)(const void *)(data + at))->size;
		first = n < size - at ? n : size - at;
		memcpy(whole, data + at, first);
		memcpy((char *)whole + first, data, n - first);
		record_take((const void *)whole);
		r->tail += n;
	}
	/* release: pairs with the kernel's acquire before it writes there again */
	__atomic_store_n(&r->page->data_tail, r->tail, __ATOMIC_RELEASE);
}

static bool
ring_open(struct ring *r, int cpu, unsigned hz)
{
	struct perf_event_attr	a = {
		.type = PERF_TYPE_SOFTWARE, .size = sizeof(a), .config = PERF_COUNT_SW_CPU_CLOCK,
		.sample_period = 1000000000u / hz, .exclude_idle = 1, .task = 1, .disabled = 1,
		.sample_type = PERF_SAMPLE_IP | PERF_SAMPLE_TID | PERF_SAMPLE_CALLCHAIN | PERF_SAMPLE_REGS_USER,
		.sample_regs_user = 1ull << USER_REG,
	};
	size_t			page = (size_t)sysconf(_SC_PAGESIZE);

#if defined(__x86_64__)
	a.sample_type |= PERF_SAMPLE_STACK_USER;
	a.sample_stack_user = STACK_BYTES;
#endif
	if ((r->fd = (int)syscall(SYS_perf_event_open, &a, -1, cpu, -1, PERF_FLAG_FD_CLOEXEC)) == -1) {
		if (errno == ENODEV)
			return false;		/* a CPU that is off line */
		err(1, "perf_event_open (root, or kernel.perf_event_paranoid below 1)");
	}
	if ((r->page = mmap(NULL, (RING_PAGES + 1) * page, PROT_READ | PROT_WRITE, MAP_SHARED, r->fd, 0)) == MAP_FAILED)
		err(1, "mmap");
	return true;
}

static void
rings_run(double seconds)
{
	uint64_t	end = clock_ns() + (uint64_t)(seconds * 1e9);

	for (int i = 0; i < nrings; i++)
		ioctl(rings[i].fd, PERF_EVENT_IOC_ENABLE, 0);
	while (!ended && clock_ns() < end) {
		poll(NULL, 0, 20);
		for (int i = 0; i < nrings; i++)
			ring_drain(&rings[i]);
	}
	for (int i = 0; i < nrings; i++) {
		ioctl(rings[i].fd, PERF_EVENT_IOC_DISABLE, 0);
		ring_drain(&rings[i]);
	}
}

/* --- the report ---------------------------------------------------------------- */

static int
by_self(const void *a, const void *b)
{
	const struct place	*x = *(struct place *const *)a, *y = *(struct place *const *)b;

	return x->self > y->self ? -1 : x->self < y->self;
}

static int
by_total(const void *a, const void *b)
{
	const struct place	*x = *(struct place *const *)a, *y = *(struct place *const *)b;

	return x->total > y->total ? -1 : x->total < y->total;
}

static int
by_count(const void *a, const void *b)
{
	const struct edge	*x = *(struct edge *const *)a, *y = *(struct edge *const *)b;

	return x->n > y->n ? -1 : x->n < y->n;
}

static double
percent(uint64_t n, uint64_t of)
{
	return of == 0 ? 0 : 100.0 * (double)n / (double)of;
}

static void
report_processes(void)
{
	printf("%llu samples, %llu lost, %llu of other processes\n\n   share  kernel  process\n", (unsigned long long)nsamples,
	    (unsigned long long)lost, (unsigned long long)others);
	for (const struct process *p = processes; p != NULL; p = p->next)
		if (p->samples > 0)
			printf("%6.1f %%  %5.1f%%  %d %s\n", percent(p->samples, nsamples), percent(p->kernel, p->samples), p->pid, p->title);
}

static void
report_places(struct place **all, size_t n, size_t lines, const char *what)
{
	printf("\n%s\n    self   total  function\n", what);
	for (size_t i = 0; i < n && i < lines; i++)
		printf("%6.2f %%%6.2f %%  %s  [%s]\n", percent(all[i]->self, nsamples), percent(all[i]->total, nsamples), all[i]->name,
		    all[i]->image->name);
}

static void
report_callers(struct place **all, size_t n, size_t lines)
{
	struct edge	**of = NULL;
	size_t		  m, room = 0;

	printf("\ncallers of what costs most by itself\n");
	for (size_t i = 0; i < n && i < lines / 2; i++) {
		m = 0;
		for (unsigned h = 0; h < TABLE; h++)
			for (struct edge *e = edges[h]; e != NULL; e = e->next)
				if (e->place == all[i]) {
					if (m == room)
						of = must(realloc(of, (room = room == 0 ? 64 : 2 * room) * sizeof(*of)));
					of[m++] = e;
				}
		printf("%6.2f %%  %s  [%s]\n", percent(all[i]->self, nsamples), all[i]->name, all[i]->image->name);
		if (m > 0)
			qsort(of, m, sizeof(*of), by_count);
		for (size_t k = 0; k < m && k < 5; k++)
			printf("            %5.1f %%  from %s  [%s]\n", percent(of[k]->n, all[i]->self), of[k]->caller->name,
			    of[k]->caller->image->name);
	}
	free(of);
}

static void
report(size_t lines)
{
	struct place	**all;
	size_t		  n = 0;

	report_processes();
	if (nsamples == 0)
		return;
	for (unsigned h = 0; h < TABLE; h++)
		for (struct place *p = places[h]; p != NULL; p = p->next)
			n++;
	all = must(malloc((n + 1) * sizeof(*all)));
	n = 0;
	for (unsigned h = 0; h < TABLE; h++)
		for (struct place *p = places[h]; p != NULL; p = p->next)
			all[n++] = p;
	qsort(all, n, sizeof(*all), by_total);
	report_places(all, n, lines, "by time with all that is called");
	qsort(all, n, sizeof(*all), by_self);
	while (n > 0 && all[n - 1]->self == 0)
		n--;
	report_places(all, n, lines, "by time in the function itself");
	report_callers(all, n, lines);
	free(all);
}

/* --- options ------------------------------------------------------------------- */

static void
on_signal(int sig)
{
	(void)sig;
	ended = 1;
}

static double
number(const char *s, double max)
{
	char	*end;
	double	 d = strtod(s, &end);

	if (end == s || *end != '\0' || !(d > 0 && d <= max))
		errx(64, "%s: not a number up to %.0f", s, max);
	return d;
}

/* The process and those below it that are there already. */
static void
want(int pid)
{
	struct dirent	*d;
	DIR		*dir;

	if (kill(pid, 0) == -1 && errno == ESRCH)
		errx(1, "%d: no such process", pid);
	process_add(pid, true);
	if ((dir = opendir("/proc")) == NULL)
		err(1, "/proc");
	while ((d = readdir(dir)) != NULL)
		if (d->d_name[0] >= '1' && d->d_name[0] <= '9')
			process_get(atoi(d->d_name));
	closedir(dir);
}

int
main(int argc, char **argv)
{
	double	seconds = 5, hz = 2000, lines = 40;
	int	pid = 0, c;

	while ((c = getopt(argc, argv, "ap:s:f:n:")) != -1)
		switch (c) {
		case 'a': all_processes = true; break;
		case 'p': pid = (int)number(optarg, 1 << 30); break;
		case 's': seconds = number(optarg, 86400); break;
		case 'f': hz = number(optarg, 50000); break;
		case 'n': lines = number(optarg, 100000); break;
		default: pid = -1;
		}
	if (optind != argc || pid < 0 || (pid == 0) != all_processes)
		errx(64, "usage: sample -a | -p pid [-s seconds] [-f hz] [-n lines]");
	kernel_read();
	if (pid > 0)
		want(pid);
	for (int cpu = 0; cpu < (int)sysconf(_SC_NPROCESSORS_CONF) && cpu < CPUS_MAX; cpu++)
		nrings += ring_open(&rings[nrings], cpu, (unsigned)hz);
	signal(SIGINT, on_signal);
	signal(SIGTERM, on_signal);
	rings_run(seconds);
	report((size_t)lines);
	return 0;
}
