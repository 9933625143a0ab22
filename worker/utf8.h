/*
 * worker/utf8.h - is this UTF-8?
 *
 * Runs in: worker.  Pure.
 */
#ifndef WORKER_UTF8_H
#define WORKER_UTF8_H
#include <stdbool.h>
#include <stddef.h>

/*
 * Length of the well-formed sequence at p (1-4), 0 where there is none: no
 * overlong form, no surrogate, nothing above U+10FFFF.
 */
size_t	utf8_len(const char *p, size_t len);
bool	utf8_ok(const char *p, size_t len);

#endif
