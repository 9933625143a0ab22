/*
 * shm/proc.c - see shm/proc.h.
 *
 * Runs in: every process.
 */
#include "config.h"
#include <sys/mman.h>
#include <bsd/unistd.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "shm/log.h"
#include "shm/proc.h"

enum proc_kind	proc_self = IN_NONE;

/* The leading '-' keeps libbsd from putting the program's file name in front. */
void
proc_become(enum proc_kind kind, unsigned lane)
{
	char	tag[32];

	proc_self = kind;
	switch (kind) {
	case IN_MASTER:
		log_tag("master");
		setproctitle("-holdfastd: master");
		break;
	case IN_WORKER:
		snprintf(tag, sizeof(tag), "worker %u", lane);
		log_tag(tag);
		setproctitle("-holdfastd: %s", tag);
		break;
	case IN_COMMITTER:
		log_tag("committer");
		setproctitle("-holdfastd: committer");
		break;
	case IN_TOOL:
		log_tag("tool");
		break;
	case IN_TEST:
		log_tag("test");
		break;
	case IN_NONE:
		log_tag("");
		break;
	}
}

/* Segments that nothing writes to, not even the linker: those with relocations are loaded writable. */
static int
let_go(struct dl_phdr_info *info, size_t size, void *arg)
{
	uintptr_t	page = (uintptr_t)sysconf(_SC_PAGESIZE);

	(void)size;
	(void)arg;
	if (strncmp(info->dlpi_name, "linux-vdso", strlen("linux-vdso")) == 0)
		return 0;	/* the kernel's, not a file's */
	for (unsigned i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr)	*h = &info->dlpi_phdr[i];
		uintptr_t		 from = (info->dlpi_addr + h->p_vaddr) / page * page;
		uintptr_t		 to = info->dlpi_addr + h->p_vaddr + h->p_memsz;

		/* an error changes nothing: the pages stay */
		if (h->p_type == PT_LOAD && (h->p_flags & PF_W) == 0)
			(void)madvise((void *)from, to - from, MADV_DONTNEED);
	}
	return 0;
}

void
proc_settled(void)
{
	(void)dl_iterate_phdr(let_go, NULL);
}

void
proc_panic(const char *file, int line, const char *what)
{
	log_warnx("panic: %s:%d: not true here: %s", file, line, what);
	abort();
}
