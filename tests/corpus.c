/*
 * tests/corpus.c - runs a fuzz target over files, without libFuzzer.
 *
 * Runs in: build/corpus/fuzz_* (make check-san).  Arguments are files and
 * directories; what once broke a parser is kept in tests/corpus/NAME/ and
 * goes through it again here, with any compiler.  The input lies against the
 * end of an allocation of its own, so that a sanitizer sees one byte too many.
 */
#include "config.h"
#include <sys/stat.h>
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
	free(buf);
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

int
main(int argc, char **argv)
{
	struct stat st;

	for (int i = 1; i < argc; i++) {
		if (stat(argv[i], &st) == -1)
			err(1, "%s", argv[i]);
		if (S_ISDIR(st.st_mode))
			run_dir(argv[i]);
		else
			run_file(AT_FDCWD, argv[i]);
	}
	(void)LLVMFuzzerTestOneInput((const uint8_t *)"", 0);
	printf("%lu inputs\n", nrun);
	return 0;
}
