/*
 * shm/crc32c.h - CRC-32C (Castagnoli, RFC 3720 B.4), the checksum of everything.
 *
 * Runs in: any process.  Pure.
 *
 * Hardware instructions where the CPU has them (SSE4.2, ARMv8 CRC), three
 * streams interleaved for long input; a table otherwise.
 * crc32c(0, "123456789", 9) == 0xe3069283, and
 * crc32c(crc32c(0, a, n), b, m) is the CRC of a followed by b.
 */
#ifndef SHM_CRC32C_H
#define SHM_CRC32C_H
#include <stddef.h>
#include <stdint.h>

uint32_t	crc32c(uint32_t crc, const void *buf, size_t len);
/* The table version, for tests: the same values. */
uint32_t	crc32c_soft(uint32_t crc, const void *buf, size_t len);

#endif
