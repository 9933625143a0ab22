/*
 * shm/crc32c.c - see shm/crc32c.h.
 *
 * Runs in: any process.
 *
 * A CRC instruction gives its result after three cycles but takes a new input
 * every cycle: one stream uses a third of it.  Long input is cut into three
 * equal blocks that are run through side by side; the first two results are
 * then shifted over the blocks behind them, which is a multiplication by
 * x^(8 * block) in GF(2)[x]/P, four table look-ups for a fixed block length.
 */
#include "config.h"
#include <stdbool.h>
#include <string.h>
#include "shm/crc32c.h"

#if defined(__x86_64__)
# include <nmmintrin.h>
# define HAVE_CRC	__builtin_cpu_supports("sse4.2")
# define TARGET_CRC	__attribute__((target("sse4.2")))
# define CRC8(c, v)	((uint32_t)_mm_crc32_u64((c), (v)))
# define CRC4(c, v)	_mm_crc32_u32((c), (v))
# define CRC2(c, v)	_mm_crc32_u16((c), (v))
# define CRC1(c, v)	_mm_crc32_u8((c), (v))
#elif defined(__aarch64__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
# include <sys/auxv.h>
# include <asm/hwcap.h>
# define HAVE_CRC	((getauxval(AT_HWCAP) & HWCAP_CRC32) != 0)
# if defined(__clang__)
#  define TARGET_CRC	__attribute__((target("crc")))
#  define CRC8(c, v)	__builtin_arm_crc32cd((c), (v))
#  define CRC4(c, v)	__builtin_arm_crc32cw((c), (v))
#  define CRC2(c, v)	__builtin_arm_crc32ch((c), (v))
#  define CRC1(c, v)	__builtin_arm_crc32cb((c), (v))
# else
#  define TARGET_CRC	__attribute__((target("+crc")))
#  define CRC8(c, v)	__builtin_aarch64_crc32cx((c), (v))
#  define CRC4(c, v)	__builtin_aarch64_crc32cw((c), (v))
#  define CRC2(c, v)	__builtin_aarch64_crc32ch((c), (v))
#  define CRC1(c, v)	__builtin_aarch64_crc32cb((c), (v))
# endif
#endif

#define POLY		0x82f63b78u	/* reflected: bit 31 is x^0 */
#define SHORT_LOG2	8		/* three blocks of 256 bytes, */
#define LONG_LOG2	13		/* or of 8 KiB */
#define SHORT		((size_t)1 << SHORT_LOG2)
#define LONG		((size_t)1 << LONG_LOG2)

/* Built before main(), never written again: children share the pages. */
static uint32_t	bytes_table[8][256];	/* [k][b]: byte b, then k bytes of zero */
static uint32_t	short_table[4][256];	/* [k][b]: b in byte k of the CRC, then SHORT bytes of zero */
static uint32_t	long_table[4][256];
static bool	have_crc;

static uint64_t
load8(const uint8_t *p)
{
	uint64_t	v;

	memcpy(&v, p, sizeof(v));
	return v;
}

static uint32_t
load4(const uint8_t *p)
{
	uint32_t	v;

	memcpy(&v, p, sizeof(v));
	return v;
}

/* a * b mod P */
static uint32_t
multiply(uint32_t a, uint32_t b)
{
	uint32_t	bit, product = 0;

	for (bit = 1u << 31; bit != 0; bit >>= 1) {
		if (a & bit)
			product ^= b;
		b = b & 1 ? (b >> 1) ^ POLY : b >> 1;
	}
	return product;
}

/* The table that shifts a CRC over 2^log2 bytes of zero. */
static void
build_shift(uint32_t table[4][256], unsigned log2)
{
	uint32_t	factor = 1u << 30;	/* x^1, then squared: x^(8 * 2^log2) */
	unsigned	i, k, b;

	for (i = 0; i < log2 + 3; i++)
		factor = multiply(factor, factor);
	for (k = 0; k < 4; k++) {
		table[k][0] = 0;
		for (b = 1; b < 256; b++) {
			if ((b & (b - 1)) == 0)
				table[k][b] = multiply(factor, (uint32_t)b << 8 * k);
			else	/* linear: the sum of its lowest bit and the rest */
				table[k][b] = table[k][b & (b - 1)] ^ table[k][b & -b];
		}
	}
}

static void
build_bytes(void)
{
	uint32_t	c;
	unsigned	b, k;

	for (b = 0; b < 256; b++) {
		c = b;
		for (k = 0; k < 8; k++)
			c = c & 1 ? (c >> 1) ^ POLY : c >> 1;
		bytes_table[0][b] = c;
	}
	for (b = 0; b < 256; b++) {
		c = bytes_table[0][b];
		for (k = 1; k < 8; k++) {
			c = (c >> 8) ^ bytes_table[0][c & 255];
			bytes_table[k][b] = c;
		}
	}
}

static void __attribute__((constructor))
build(void)
{
	build_bytes();
	build_shift(short_table, SHORT_LOG2);
	build_shift(long_table, LONG_LOG2);
#ifdef HAVE_CRC
	have_crc = HAVE_CRC;
#endif
}

uint32_t
crc32c_soft(uint32_t crc, const void *buf, size_t len)
{
	const uint8_t	*p = buf;
	uint32_t	 c = ~crc;

	for (; len >= 8; p += 8, len -= 8) {
		/* by bytes: the same on either byte order */
		c ^= p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
		c = bytes_table[7][c & 255] ^ bytes_table[6][c >> 8 & 255] ^
		    bytes_table[5][c >> 16 & 255] ^ bytes_table[4][c >> 24] ^
		    bytes_table[3][p[4]] ^ bytes_table[2][p[5]] ^
		    bytes_table[1][p[6]] ^ bytes_table[0][p[7]];
	}
	for (; len > 0; p++, len--)
		c = (c >> 8) ^ bytes_table[0][(c ^ *p) & 255];
	return ~c;
}

#ifdef HAVE_CRC
static uint32_t
shift(uint32_t table[4][256], uint32_t c)
{
	return table[0][c & 255] ^ table[1][c >> 8 & 255] ^ table[2][c >> 16 & 255] ^ table[3][c >> 24];
}

/* Three blocks of `block` bytes at p; c is the CRC so far, not inverted. */
TARGET_CRC static inline uint32_t
three_blocks(uint32_t table[4][256], size_t block, uint32_t c, const uint8_t *p)
{
	const uint8_t	*end = p + block;
	uint32_t	 c1 = 0, c2 = 0;

	for (; p < end; p += 8) {
		c = CRC8(c, load8(p));
		c1 = CRC8(c1, load8(p + block));
		c2 = CRC8(c2, load8(p + 2 * block));
	}
	return shift(table, shift(table, c) ^ c1) ^ c2;
}

/* As much of the input as goes three abreast; *p and *len move on. */
TARGET_CRC static uint32_t __attribute__((noinline))
crc_long(uint32_t c, const uint8_t **p, size_t *len)
{
	for (; *len >= 3 * LONG; *p += 3 * LONG, *len -= 3 * LONG)
		c = three_blocks(long_table, LONG, c, *p);
	for (; *len >= 3 * SHORT; *p += 3 * SHORT, *len -= 3 * SHORT)
		c = three_blocks(short_table, SHORT, c, *p);
	return c;
}

TARGET_CRC static uint32_t
crc_hard(uint32_t crc, const uint8_t *p, size_t len)
{
	uint32_t	c = ~crc;
	uint16_t	half;

	if (len >= 3 * SHORT)
		c = crc_long(c, &p, &len);
	for (; len >= 8; p += 8, len -= 8)
		c = CRC8(c, load8(p));
	if (len & 4) {
		c = CRC4(c, load4(p));
		p += 4;
	}
	if (len & 2) {
		memcpy(&half, p, sizeof(half));
		c = CRC2(c, half);
		p += 2;
	}
	if (len & 1)
		c = CRC1(c, *p);
	return ~c;
}
#endif

uint32_t
crc32c(uint32_t crc, const void *buf, size_t len)
{
#ifdef HAVE_CRC
	if (__builtin_expect(have_crc, 1))
		return crc_hard(crc, buf, len);
#endif
	return crc32c_soft(crc, buf, len);
}
