/*
 * tests/corpus.c - runs a fuzz target over files, without libFuzzer.
 *
 * Runs in: build/corpus/fuzz_* (make check-san).  Arguments are files and
 * directories; what once broke a parser is kept in tests/corpus/NAME/ and
 * goes through it again here, with any compiler.  The input lies against the
 * end of an allocation of its own, so that a sanitizer sees one byte too many.
 *
 *	fuzz_NAME [-n mutations] [-s seed] path ...
 *
 * Then come mutations of the files, the same for the same seed, in a child:
 * where one breaks something, its parent says which.
 */
#include "config.h"
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <dirent.h>
#include <err.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int	LLVMFuzzerTestOneInput(const uint8_t *, size_t);

static unsigned long	nrun;

static struct input {
	uint8_t	*p;
	size_t	 len;
}	*inputs;
static size_t	ninputs;

static void
keep(uint8_t *p, size_t len)
{
	if ((inputs = realloc(inputs, (ninputs + 1) * sizeof(*inputs))) == NULL)
		err(1, NULL);
	inputs[ninputs++] = (struct input){ p, len };
}

static void
run_file(int dirfd, const char *name)
{
	struct stat	 st;
	uint8_t		*buf;
	ssize_t		 n;
	size_t		 len = 0;
	int		 fd;

	if ((fd = openat(dirfd, name, O_RDONLY | O_CLOEXEC)) == -1 || fstat(fd, &st) == -1)
		err(1, "%s", name);
	if (!S_ISREG(st.st_mode)) {
		close(fd);
		return;
	}
	if ((buf = malloc((size_t)st.st_size)) == NULL && st.st_size != 0)
		err(1, "%s: %lld bytes", name, (long long)st.st_size);
	while (len < (size_t)st.st_size) {
		if ((n = read(fd, buf + len, (size_t)st.st_size - len)) <= 0)
			err(1, "%s: read", name);
		len += (size_t)n;
	}
	close(fd);
	(void)LLVMFuzzerTestOneInput(buf, len);
	keep(buf, len);
	nrun++;
}

static void
run_dir(const char *path)
{
	struct dirent	*e;
	DIR		*d;

	if ((d = opendir(path)) == NULL)
		err(1, "%s", path);
	while ((e = readdir(d)) != NULL)
		if (e->d_name[0] != '.')
			run_file(dirfd(d), e->d_name);
	closedir(d);
}

/* --- mutations ---------------------------------------------------------------- */

static uint64_t	state;

/* A number below n (splitmix64). */
static size_t
below(size_t n)
{
	uint64_t	z = state += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return n == 0 ? 0 : (size_t)((z ^ z >> 31) % n);
}

/* Changes len bytes at p, which has room for twice as many and 64; the new length. */
static size_t
mutate(uint8_t *p, size_t len)
{
	static const char	bytes[] = "\r\n\t \0:;,=%/.\\\"*-_09afAFZ\x7f\x80\xc3\xed\xff[]{}";
	const struct input	*other = &inputs[below(ninputs)];
	size_t			 at = below(len + 1), n, from;

	switch (below(6)) {
	case 0:			/* another byte */
		if (at < len)
			p[at] = (uint8_t)(below(2) ? below(256) : (uint8_t)bytes[below(sizeof(bytes) - 1)]);
		return len;
	case 1:			/* one more */
		memmove(p + at + 1, p + at, len - at);
		p[at] = (uint8_t)bytes[below(sizeof(bytes) - 1)];
		return len + 1;
	case 2:			/* some less */
		n = below(len - at < 8 ? len - at + 1 : 8);
		memmove(p + at, p + at + n, len - at - n);
		return len - n;
	case 3:			/* a part twice */
		n = below(len - at < 64 ? len - at + 1 : 64);
		memmove(p + at + n, p + at, len - at);
		return len + n;
	case 4:			/* a part of another */
		from = below(other->len + 1);
		n = other->len - from < len - at ? other->len - from : len - at;
		if (n > 0)
			memcpy(p + at, other->p + from, n);
		return len;
	default:		/* cut short */
		return below(8) == 0 ? at : len;
	}
}

static void
one_mutation(void)
{
	const struct input	*in = &inputs[below(ninputs)];
	uint8_t			*work, *exact;
	size_t			 len = in->len, k = 1 + below(5);

	if ((work = malloc((len + 64) << k)) == NULL)
		err(1, NULL);
	if (len > 0)
		memcpy(work, in->p, len);
	while (k-- > 0)
		len = mutate(work, len);
	if ((exact = malloc(len)) == NULL && len > 0)
		err(1, NULL);
	if (len > 0)
		memcpy(exact, work, len);
	(void)LLVMFuzzerTestOneInput(exact, len);
	free(exact);
	free(work);
}

static void
mutations(unsigned long n, unsigned long seed)
{
	unsigned long	*at;
	int		 st;
	pid_t		 pid;

	at = mmap(NULL, sizeof(*at), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (at == MAP_FAILED || (pid = fork()) == -1)
		err(1, NULL);
	if (pid == 0) {
		for (; *at < n; ++*at) {
			state = (uint64_t)seed << 32 | *at;
			one_mutation();
		}
		_exit(0);
	}
	if (waitpid(pid, &st, 0) == -1)
		err(1, NULL);
	if (st != 0)
		errx(1, "mutation %lu broke something: again with -s %lu -n %lu", *at, seed, *at + 1);
}

int
main(int argc, char **argv)
{
	unsigned long	n = 5000, seed = 1;
	struct stat	st;
	int		c;

	while ((c = getopt(argc, argv, "n:s:")) != -1)
		switch (c) {
		case 'n':
			n = strtoul(optarg, NULL, 10);
			break;
		case 's':
			seed = strtoul(optarg, NULL, 10);
			break;
		default:
			errx(64, "usage: [-n mutations] [-s seed] path ...");
		}
	for (int i = optind; i < argc; i++) {
		if (stat(argv[i], &st) == -1)
			err(1, "%s", argv[i]);
		if (S_ISDIR(st.st_mode))
			run_dir(argv[i]);
		else
			run_file(AT_FDCWD, argv[i]);
	}
	(void)LLVMFuzzerTestOneInput((const uint8_t *)"", 0);
	if (ninputs > 0)
		mutations(n, seed);
	printf("%lu inputs, %lu mutations\n", nrun, ninputs > 0 ? n : 0);
	while (ninputs > 0)
		free(inputs[--ninputs].p);
	free(inputs);
	return 0;
}
