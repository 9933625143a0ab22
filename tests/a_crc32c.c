/*
 * tests/a_crc32c.c - shm/crc32c.h: known values, and both versions against one
 * bit at a time.
 */
#include "config.h"
#include "tests/unit.h"
#include "shm/crc32c.h"

#define LONGEST (3 * 65536 + 100)

static uint8_t	data[LONGEST + 16];

static uint32_t
by_bits(uint32_t crc, const uint8_t *p, size_t len)
{
	int	k;

	crc = ~crc;
	while (len-- > 0) {
		crc ^= *p++;
		for (k = 0; k < 8; k++)
			crc = crc & 1 ? (crc >> 1) ^ 0x82f63b78u : crc >> 1;
	}
	return ~crc;
}

static int
fill(void **state)
{
	uint32_t	x = 1;
	size_t		i;

	(void)state;
	for (i = 0; i < sizeof(data); i++) {
		x = x * 1664525 + 1013904223;
		data[i] = (uint8_t)(x >> 24);
	}
	return 0;
}

static void
the_known_values_come_out(void **state)
{
	/* the check value, and RFC 3720 B.4 */
	static const uint8_t	read_command[48] = {
		0x01, 0xc0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x14, 0, 0, 0, 0, 0, 0x04, 0,
		0, 0, 0, 0x14, 0, 0, 0, 0x18, 0x28, 0, 0, 0, 0, 0, 0, 0, 0x02, 0, 0, 0, 0, 0, 0, 0,
	};
	uint32_t		(*const versions[])(uint32_t, const void *, size_t) = { crc32c, crc32c_soft };
	uint8_t			b[32];
	unsigned		v, i;

	(void)state;
	for (v = 0; v < 2; v++) {
		assert_int_equal(versions[v](0, "123456789", 9), 0xe3069283);
		assert_int_equal(versions[v](0, "", 0), 0);
		assert_int_equal(versions[v](0x1234, NULL, 0), 0x1234);
		memset(b, 0, sizeof(b));
		assert_int_equal(versions[v](0, b, 32), 0x8a9136aa);
		memset(b, 0xff, sizeof(b));
		assert_int_equal(versions[v](0, b, 32), 0x62a8ab43);
		for (i = 0; i < 32; i++)
			b[i] = (uint8_t)i;
		assert_int_equal(versions[v](0, b, 32), 0x46dd794e);
		for (i = 0; i < 32; i++)
			b[i] = (uint8_t)(31 - i);
		assert_int_equal(versions[v](0, b, 32), 0x113fdb5c);
		assert_int_equal(versions[v](0, read_command, 48), 0xd9963a56);
	}
}

static void
short_input_is_right_at_every_alignment(void **state)
{
	uint32_t	right;
	size_t		len, off;

	(void)state;
	for (len = 0; len <= 130; len++) {
		for (off = 0; off < 16; off++) {
			right = by_bits(7, data + off, len);
			assert_int_equal(crc32c(7, data + off, len), right);
			assert_int_equal(crc32c_soft(7, data + off, len), right);
		}
	}
}

/* One running CRC gives the right value of each prefix, so every length is cheap. */
static void
every_length_up_to_four_kib_is_right(void **state)
{
	uint32_t	right[17] = { 0 };
	size_t		len, off;

	(void)state;
	for (len = 0; len <= 4096; len++) {
		for (off = 0; off < 16; off += 5) {
			assert_int_equal(crc32c(0, data + off, len), right[off]);
			assert_int_equal(crc32c_soft(0, data + off, len), right[off]);
			right[off] = by_bits(right[off], data + off + len, 1);
		}
	}
}

static void
long_input_is_right_around_the_block_sizes(void **state)
{
	static const size_t	at[] = { 768, 1024, 1536, 8192, 24576, 2 * 24576, 65536, 3 * 65536 };
	uint32_t		right;
	size_t			i, off, len;

	(void)state;
	for (i = 0; i < sizeof(at) / sizeof(at[0]); i++) {
		for (len = at[i] - 9; len <= at[i] + 9; len++) {
			off = len % 16;
			right = by_bits(0, data + off, len);
			assert_int_equal(crc32c(0, data + off, len), right);
			assert_int_equal(crc32c_soft(0, data + off, len), right);
		}
	}
}

static void
parts_chain(void **state)
{
	uint32_t	whole = by_bits(0, data, 40000);
	size_t		cut;

	(void)state;
	for (cut = 0; cut <= 40000; cut += 997) {
		assert_int_equal(crc32c(crc32c(0, data, cut), data + cut, 40000 - cut), whole);
		assert_int_equal(crc32c(crc32c_soft(0, data, cut), data + cut, 40000 - cut), whole);
	}
}

static void
nothing_is_read_beyond_the_end(void **state)
{
	static const size_t	lens[] = { 0, 1, 2, 3, 7, 8, 9, 63, 767, 1023, 1024, 1031, 24575, 24576, 24583 };
	size_t			i;

	(void)state;
	for (i = 0; i < sizeof(lens) / sizeof(lens[0]); i++) {
		uint8_t	*p = t_at_guard(data, lens[i]);

		assert_int_equal(crc32c(0, p, lens[i]), crc32c_soft(0, p, lens[i]));
	}
}

int
main(void)
{
	const struct CMUnitTest	tests[] = {
		cmocka_unit_test(the_known_values_come_out),
		cmocka_unit_test(short_input_is_right_at_every_alignment),
		cmocka_unit_test(every_length_up_to_four_kib_is_right),
		cmocka_unit_test(long_input_is_right_around_the_block_sizes),
		cmocka_unit_test(parts_chain),
		cmocka_unit_test(nothing_is_read_beyond_the_end),
	};

	return cmocka_run_group_tests(tests, fill, NULL);
}
