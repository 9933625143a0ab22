/*
 * store/file.h - writing to a file, wholly or not at all successfully; reading a directory.
 *
 * Runs in: committer (main and checkpoint thread), tools, tests.
 */
#ifndef STORE_FILE_H
#define STORE_FILE_H
#include <dirent.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Writes all n bytes at `at`: short writes are continued, nothing is tried
 * again (F1-F4).  0; -1 with errno, how much is written then is unknown.
 */
int	file_write(int fd, const void *buf, size_t n, uint64_t at);

/* The directory anew, from its first entry: dirfd's own position is not ours to move.  NULL with errno. */
DIR	*file_dir(int dirfd);

#endif
