/*
 * master/ctl_status.c - holdfastctl status: the server's own account of itself.
 * Runs in: holdfastctl.
 */
#include "config.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include "master/ctl.h"

/* JSON, indented; the text was checked before, so brackets pair up. */
static void
print_pretty(const char *p, size_t len)
{
	int	depth = 0;
	bool	string = false;

	for (const char *end = p + len; p < end; p++) {
		if (string) {
			(void)putchar(*p);
			if (*p == '\\' && p + 1 < end)
				(void)putchar(*++p);
			else if (*p == '"')
				string = false;
			continue;
		}
		switch (*p) {
		case ' ': case '\t': case '\r': case '\n':
			break;
		case '{': case '[':
			depth++;
			(void)printf("%c\n%*s", *p, depth * 2, "");
			break;
		case '}': case ']':
			depth--;
			(void)printf("\n%*s%c", depth * 2, "", *p);
			break;
		case ',':
			(void)printf(",\n%*s", depth * 2, "");
			break;
		case ':':
			(void)printf(": ");
			break;
		default:
			string = *p == '"';
			(void)putchar(*p);
		}
	}
	(void)putchar('\n');
}

int
ctl_status(const char *socket, int argc, char *argv[])
{
	struct answer	a;
	struct ctl_json	j;
	int		rc = CTL_OK;

	(void)argv;
	if (argc != 0)
		ctl_usage();
	if (ctl_request(socket, "GET", "/_status", NULL, &a) == -1)
		return ctl_unavailable(socket);
	ctl_json_begin(&j, a.body, a.len);
	if (a.status != 200)
		rc = ctl_refused(&a);
	else if (!ctl_json_skip(&j) || !ctl_json_end(&j)) {
		errno = EPROTO;
		rc = ctl_unavailable(socket);
	} else
		print_pretty(a.body, a.len);
	free(a.body);
	return rc;
}
