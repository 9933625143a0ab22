/*
 * master/ctl.c - holdfastctl: the command line.
 * Runs in: holdfastctl.
 */
#include "config.h"
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "master/ctl.h"
#include "master/paths.h"

static const struct command {
	const char	*name;
	int		(*run)(const char *socket, int argc, char *argv[]);
	const char	*usage;
} commands[] = {
	{ "status", ctl_status, "[-s socket] status" },
	{ "tenant", ctl_tenant, "[-s socket] tenant add NAME [--public none|read|write]\n"
	    "       holdfastctl [-s socket] tenant set NAME [--public none|read|write]\n"
	    "       holdfastctl [-s socket] tenant show NAME\n"
	    "       holdfastctl [-s socket] tenant remove NAME\n"
	    "       holdfastctl [-s socket] tenant list" },
	{ "check", ctl_check, "check DIR" },
	{ "repair", ctl_repair, "repair DIR" },
};
#define NCOMMANDS (sizeof(commands) / sizeof(commands[0]))

void
ctl_usage(void)
{
	for (size_t i = 0; i < NCOMMANDS; i++)
		(void)fprintf(stderr, "%s holdfastctl %s\n", i == 0 ? "usage:" : "      ",
		    commands[i].usage);
	(void)fprintf(stderr, "       holdfastctl -V\n");
	exit(CTL_USAGE);
}

int
ctl_unavailable(const char *socket)
{
	(void)fprintf(stderr, "holdfastctl: %s: %s%s\n", socket, strerror(errno),
	    errno == ENOENT || errno == ECONNREFUSED ? "; is holdfastd running, and is this its control-socket?" : "");
	return CTL_UNAVAILABLE;
}

int
ctl_refused(const struct answer *a)
{
	char		name[16], title[128] = "", detail[512] = "";
	struct ctl_json	j;

	ctl_json_begin(&j, a->body, a->len);
	if (ctl_json_enter(&j, '{'))
		while (ctl_json_member(&j, name, sizeof(name))) {
			if (strcmp(name, "title") == 0 && ctl_json_peek(&j) == '"')
				(void)ctl_json_string(&j, title, sizeof(title));
			else if (strcmp(name, "detail") == 0 && ctl_json_peek(&j) == '"')
				(void)ctl_json_string(&j, detail, sizeof(detail));
			else
				(void)ctl_json_skip(&j);
		}
	if (!ctl_json_end(&j))
		title[0] = detail[0] = '\0';
	(void)fprintf(stderr, "holdfastctl: %d%s%s%s%s\n", a->status, title[0] != '\0' ? " " : "", title,
	    detail[0] != '\0' ? ": " : "", detail);
	return CTL_REFUSED;
}

int
main(int argc, char *argv[])
{
	const char	*socket = PATH_SOCKET;
	int		 ch, rc;

	(void)signal(SIGPIPE, SIG_IGN);
	while ((ch = getopt(argc, argv, "+s:V")) != -1)
		switch (ch) {
		case 's':
			socket = optarg;
			break;
		case 'V':
			(void)printf("holdfastctl %s\n", VERSION);
			return CTL_OK;
		default:
			ctl_usage();
		}
	argc -= optind;
	argv += optind;
	if (argc == 0)
		ctl_usage();
	for (size_t i = 0; i < NCOMMANDS; i++) {
		if (strcmp(argv[0], commands[i].name) != 0)
			continue;
		rc = commands[i].run(socket, argc - 1, argv + 1);
		if (fflush(stdout) == EOF || ferror(stdout)) {
			(void)fprintf(stderr, "holdfastctl: standard output: %s\n", strerror(errno));
			return CTL_REFUSED;
		}
		return rc;
	}
	ctl_usage();
}
