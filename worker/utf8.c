/*
 * worker/utf8.c - see worker/utf8.h.
 *
 * Runs in: worker.
 */
#include "config.h"
#include "worker/utf8.h"

/* RFC 3629 4, and table 3-7 of the Unicode standard: only the second byte's range depends on the first. */
size_t
utf8_len(const char *p, size_t len)
{
	const unsigned char	*s = (const unsigned char *)p;
	unsigned char		 low = 0x80, high = 0xbf;
	size_t			 i, n;

	if (len == 0)
		return 0;
	if (s[0] < 0x80)
		return 1;
	if (s[0] < 0xc2 || s[0] > 0xf4)
		return 0;
	n = s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;
	switch (s[0]) {
	case 0xe0:
		low = 0xa0;	/* below: overlong */
		break;
	case 0xed:
		high = 0x9f;	/* above: surrogates */
		break;
	case 0xf0:
		low = 0x90;	/* below: overlong */
		break;
	case 0xf4:
		high = 0x8f;	/* above: beyond U+10FFFF */
		break;
	}
	if (len < n || s[1] < low || s[1] > high)
		return 0;
	for (i = 2; i < n; i++)
		if (s[i] < 0x80 || s[i] > 0xbf)
			return 0;
	return n;
}

bool
utf8_ok(const char *p, size_t len)
{
	size_t	n;

	for (; len > 0; p += n, len -= n)
		if ((n = utf8_len(p, len)) == 0)
			return false;
	return true;
}
