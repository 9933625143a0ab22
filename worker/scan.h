/*
 * worker/scan.h - finding the byte that ends something, many bytes at a time.
 *
 * Runs in: worker.  Pure; never reads outside base..end.
 *
 * A block is 16 bytes (SSE2, NEON) or 8 (a plain word).  Where fewer are left
 * the last whole block before `end` is loaded instead, if the buffer has one,
 * and what lies before `p` is shifted out: no byte loop at the end of a head.
 */
#ifndef WORKER_SCAN_H
#define WORKER_SCAN_H
#include <endian.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* scan_block_*(): a mask, 1 << SCAN_SHIFT bits per byte, lowest first; set: the byte ends the span. */
#if defined(__SSE2__) && !defined(SCAN_PORTABLE)
#include <emmintrin.h>
#define SCAN_BLOCK	16
#define SCAN_SHIFT	0
typedef uint32_t scan_mask;

static inline __m128i
scan_upto(__m128i v, uint8_t most)
{
	return _mm_cmpeq_epi8(_mm_min_epu8(v, _mm_set1_epi8((char)most)), v);
}

static inline __m128i
scan_is(__m128i v, char c)
{
	return _mm_cmpeq_epi8(v, _mm_set1_epi8(c));
}

/* controls other than HT, and DEL */
static inline scan_mask
scan_block_value(const char *p)
{
	__m128i	v = _mm_loadu_si128((const __m128i *)p);

	return (uint32_t)_mm_movemask_epi8(_mm_or_si128(
	    _mm_andnot_si128(scan_is(v, '\t'), scan_upto(v, 0x1f)), scan_is(v, 0x7f)));
}

/* blank, controls, DEL */
static inline scan_mask
scan_block_target(const char *p)
{
	__m128i	v = _mm_loadu_si128((const __m128i *)p);

	return (uint32_t)_mm_movemask_epi8(_mm_or_si128(scan_upto(v, ' '), scan_is(v, 0x7f)));
}

/* all but letters, digits and '-' */
static inline scan_mask
scan_block_name(const char *p)
{
	__m128i	v = _mm_loadu_si128((const __m128i *)p);
	__m128i	letter = scan_upto(_mm_sub_epi8(_mm_or_si128(v, _mm_set1_epi8(0x20)), _mm_set1_epi8('a')), 25);
	__m128i	digit = scan_upto(_mm_sub_epi8(v, _mm_set1_epi8('0')), 9);

	return 0xffffu ^ (uint32_t)_mm_movemask_epi8(_mm_or_si128(_mm_or_si128(letter, digit), scan_is(v, '-')));
}

#elif defined(__aarch64__) && !defined(SCAN_PORTABLE)
#include <arm_neon.h>
#define SCAN_BLOCK	16
#define SCAN_SHIFT	2
typedef uint64_t scan_mask;

/* 16 bytes of 0 or ff to 16 nibbles */
static inline scan_mask
scan_narrow(uint8x16_t m)
{
	return vget_lane_u64(vreinterpret_u64_u8(vshrn_n_u16(vreinterpretq_u16_u8(m), 4)), 0);
}

static inline scan_mask
scan_block_value(const char *p)
{
	uint8x16_t	v = vld1q_u8((const uint8_t *)p);

	return scan_narrow(vorrq_u8(vbicq_u8(vcleq_u8(v, vdupq_n_u8(0x1f)), vceqq_u8(v, vdupq_n_u8('\t'))),
	    vceqq_u8(v, vdupq_n_u8(0x7f))));
}

static inline scan_mask
scan_block_target(const char *p)
{
	uint8x16_t	v = vld1q_u8((const uint8_t *)p);

	return scan_narrow(vorrq_u8(vcleq_u8(v, vdupq_n_u8(' ')), vceqq_u8(v, vdupq_n_u8(0x7f))));
}

static inline scan_mask
scan_block_name(const char *p)
{
	uint8x16_t	v = vld1q_u8((const uint8_t *)p);
	uint8x16_t	letter = vcleq_u8(vsubq_u8(vorrq_u8(v, vdupq_n_u8(0x20)), vdupq_n_u8('a')), vdupq_n_u8(25));
	uint8x16_t	digit = vcleq_u8(vsubq_u8(v, vdupq_n_u8('0')), vdupq_n_u8(9));

	return ~scan_narrow(vorrq_u8(vorrq_u8(letter, digit), vceqq_u8(v, vdupq_n_u8('-'))));
}

#else
#define SCAN_BLOCK	8
#define SCAN_SHIFT	3
typedef uint64_t scan_mask;

#define SCAN_ALL(c)	(UINT64_C(0x0101010101010101) * (c))
#define SCAN_HIGH	SCAN_ALL(0x80)

static inline uint64_t
scan_load(const char *p)
{
	uint64_t	v;

	memcpy(&v, p, sizeof(v));
	return le64toh(v);
}

/* The high bit of each byte that is at least n (n <= 0x80).  Exact: nothing carries from byte to byte. */
static inline uint64_t
scan_least(uint64_t v, uint8_t n)
{
	return (((v & ~SCAN_HIGH) + SCAN_ALL(0x80u - n)) | v) & SCAN_HIGH;
}

static inline uint64_t
scan_is(uint64_t v, uint8_t c)
{
	return scan_least(v ^ SCAN_ALL(c), 1) ^ SCAN_HIGH;
}

/* between a and b, both ASCII */
static inline uint64_t
scan_range(uint64_t v, uint8_t a, uint8_t b)
{
	return scan_least(v, a) & ~scan_least(v, (uint8_t)(b + 1)) & ~v & SCAN_HIGH;
}

static inline scan_mask
scan_block_value(const char *p)
{
	uint64_t	v = scan_load(p);

	return ((scan_least(v, 0x20) ^ SCAN_HIGH) & ~scan_is(v, '\t')) | scan_is(v, 0x7f);
}

static inline scan_mask
scan_block_target(const char *p)
{
	uint64_t	v = scan_load(p);

	return (scan_least(v, 0x21) ^ SCAN_HIGH) | scan_is(v, 0x7f);
}

static inline scan_mask
scan_block_name(const char *p)
{
	uint64_t	v = scan_load(p);

	return (scan_range(v, 'a', 'z') | scan_range(v, 'A', 'Z') | scan_range(v, '0', '9') | scan_is(v, '-')) ^ SCAN_HIGH;
}
#endif

/* Where in p..end the first byte is that `block` marks; `slow` judges where the buffer is smaller than a block. */
static inline __attribute__((always_inline)) const char *
scan(const char *base, const char *p, const char *end, scan_mask (*block)(const char *), bool (*slow)(unsigned char))
{
	scan_mask	m;

	for (; end - p >= SCAN_BLOCK; p += SCAN_BLOCK)
		if ((m = block(p)) != 0)
			return p + (__builtin_ctzll(m) >> SCAN_SHIFT);
	if (p < end && end - base >= SCAN_BLOCK) {
		m = block(end - SCAN_BLOCK) >> ((unsigned)(SCAN_BLOCK - (end - p)) << SCAN_SHIFT);
		return m == 0 ? end : p + (__builtin_ctzll(m) >> SCAN_SHIFT);
	}
	while (p < end && !slow((unsigned char)*p))
		p++;
	return p;
}

static inline bool
scan_slow_value(unsigned char c)
{
	return (c < 0x20 && c != '\t') || c == 0x7f;
}

static inline bool
scan_slow_target(unsigned char c)
{
	return c <= 0x20 || c == 0x7f;
}

static inline bool
scan_slow_name(unsigned char c)
{
	return !((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-');
}

/* The first byte that no field value has: a control other than HT, DEL. */
static inline const char *
scan_value(const char *base, const char *p, const char *end)
{
	return scan(base, p, end, scan_block_value, scan_slow_value);
}

/* The first byte that no request target has: a blank, a control, DEL. */
static inline const char *
scan_target(const char *base, const char *p, const char *end)
{
	return scan(base, p, end, scan_block_target, scan_slow_target);
}

/* The first byte that is no letter, digit or '-': the end of most field names. */
static inline const char *
scan_name(const char *base, const char *p, const char *end)
{
	return scan(base, p, end, scan_block_name, scan_slow_name);
}

#endif
