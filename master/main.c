/*
 * master/main.c - holdfastd: from the command line to the first fork.
 *
 * Runs in: master.
 *
 * The start, in this order, because each step needs the one before it and the
 * reason for a failure still reaches the caller's stderr:
 *	configuration, data directory and its locks, addresses, shared region,
 *	log, pid file, privileges for good, and then supervise().
 */
#include "config.h"
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <bsd/libutil.h>
#include <bsd/string.h>
#include <bsd/unistd.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "master/paths.h"
#include "master/priv.h"
#include "master/supervise.h"
#include "shm/log.h"
#include "shm/proc.h"

#define OVERRIDES	64u
#define EX_USAGE	64
#define FILES_SPARE	512u	/* descriptors of a worker beside its connections: segments, mostly */

static struct master	 master;
static struct pidfh	*pidfile;
static int		 verdict = -1;	/* to the parent that waits; -1: in the foreground */
static int		 caller = STDERR_FILENO; /* where a failed start is explained; no child gets it */
static bool		 log_is_file;

static _Noreturn void
usage(void)
{
	(void)fprintf(stderr, "usage: holdfastd [-dnV] [-f config] [-o key=value]...\n");
	exit(EX_USAGE);
}

/* The caller's stderr gets the reason, and a log file, too. */
static _Noreturn void
start_failed(const char *why)
{
	(void)dprintf(caller, "holdfastd: %s\n", why);
	if (log_is_file)
		log_warnx("not started: %s", why);
	exit(1);
}

/* --- becoming a daemon ----------------------------------------------------- */

/* The parent: returns to its caller when the child has something to say. */
static _Noreturn void
await_verdict(int fd, pid_t child)
{
	char	byte;
	ssize_t	n;
	int	status;

	while ((n = read(fd, &byte, 1)) == -1 && errno == EINTR)
		continue;
	if (n == 1)
		_exit(0);
	/* it has said why on the stderr we share, unless somebody ended it */
	while (waitpid(child, &status, 0) == -1 && errno == EINTR)
		continue;
	if (WIFSIGNALED(status))
		(void)fprintf(stderr, "holdfastd: ended by signal %d before it was ready\n", WTERMSIG(status));
	else if (WEXITSTATUS(status) == 0)
		(void)fprintf(stderr, "holdfastd: told to stop before it was ready\n");
	_exit(WIFEXITED(status) && WEXITSTATUS(status) != 0 ? WEXITSTATUS(status) : 1);
}

static void
daemonise(void)
{
	int	p[2];
	pid_t	pid;

	if (pipe2(p, O_CLOEXEC) == -1 || (pid = fork()) == -1) {
		(void)fprintf(stderr, "holdfastd: %s\n", strerror(errno));
		exit(1);
	}
	if (pid != 0) {
		close(p[1]);
		await_verdict(p[0], pid);
	}
	close(p[0]);
	verdict = p[1];
	if ((caller = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1)) == -1)
		caller = STDERR_FILENO;
	(void)setsid();
	if (chdir("/") == -1)
		start_failed("cannot change to /");
}

/*
 * The log is open: nothing we or our children print may go to the caller's
 * terminal or pipe any more, or whoever reads that pipe to its end waits for us.
 */
static void
let_go_of_standard(void)
{
	int	fd = open("/dev/null", O_RDWR | O_CLOEXEC);

	if (fd == -1)
		return;
	for (int i = 0; i <= 2; i++)
		(void)dup2(fd, i);
	close(fd);
}

/* Requests are being answered: let the caller go. */
static void
ready(void)
{
	if (verdict == -1)
		return;
	if (write(verdict, "", 1) != 1)
		log_debug("whoever started us did not wait");
	close(verdict);
	verdict = -1;
	if (caller != STDERR_FILENO)
		close(caller);
	caller = STDERR_FILENO;
}

/* --- steps of the start ----------------------------------------------------- */

/* 0, 1 and 2 must be open, or a socket gets a number that somebody prints to. */
static void
open_standard(void)
{
	int	fd;

	while ((fd = open("/dev/null", O_RDWR)) != -1 && fd <= 2)
		continue;
	if (fd > 2)
		close(fd);
	closefrom(3);		/* the caller's files are not ours to keep open (F50) */
}

static unsigned
count_lanes(const struct conf *c)
{
	cpu_set_t	set;
	int		n = 1;

	if (c->workers != 0)
		return c->workers;
	if (sched_getaffinity(0, sizeof(set), &set) == 0)
		n = CPU_COUNT(&set);
	return n > (int)REGION_LANES ? REGION_LANES : n < 1 ? 1 : (unsigned)n;
}

/* Room for max-connections; fewer connections where the system does not give it. */
static void
limit_files(struct conf *c)
{
	struct rlimit	rl;
	rlim_t		need = (rlim_t)c->set.max_connections + FILES_SPARE;

	if (getrlimit(RLIMIT_NOFILE, &rl) == -1 || rl.rlim_cur >= need)
		return;
	if (rl.rlim_max < need) {
		(void)priv_raise();
		(void)setrlimit(RLIMIT_NOFILE, &(struct rlimit){ need, need });	/* root may */
		(void)priv_lower();
		(void)getrlimit(RLIMIT_NOFILE, &rl);
	}
	rl.rlim_cur = rl.rlim_max < need ? rl.rlim_max : need;
	(void)setrlimit(RLIMIT_NOFILE, &rl);
	if (rl.rlim_cur < need)
		log_warnx("max-connections is %u, but only %llu files may be open at once",
		    c->set.max_connections, (unsigned long long)rl.rlim_cur);
}

static int
start_log(const struct conf *c, char *err, size_t errlen)
{
	if (verdict == -1)
		return 0;	/* in the foreground stderr is the log */
	if (priv_mkdir_of(c->log) == -1 || log_to(c->log) == -1)
		return conf_fail(err, errlen, "log %s: %s", c->log, strerror(errno));
	log_is_file = true;
	let_go_of_standard();
	return 0;
}

/* Information only: whatever is wrong with it, the lock on the data directory is ours. */
static void
open_pidfile(const struct conf *c)
{
	pid_t	other = 0;

	if (priv_mkdir_of(c->pid_file) == -1 || (pidfile = pidfile_open(c->pid_file, 0644, &other)) == NULL) {
		if (errno == EEXIST)
			log_warnx("pid file %s is locked by pid %d: none written", c->pid_file, (int)other);
		else
			log_warn("pid file %s: none written", c->pid_file);
		return;
	}
	(void)fchmod(pidfile_fileno(pidfile), 0644);	/* for init scripts, whatever the umask */
	if (pidfile_write(pidfile) == -1)
		log_warn("pid file %s", c->pid_file);
}

static void
remove_pidfile(const struct conf *c)
{
	if (pidfile == NULL)
		return;
	/* where its directory does not let us remove it, an empty file names nobody */
	if (ftruncate(pidfile_fileno(pidfile), 0) == -1 || pidfile_remove(pidfile) == -1)
		log_warn("cannot remove pid file %s", c->pid_file);
	pidfile = NULL;
}

static int
prepare(struct master *m, char *err, size_t errlen)
{
	struct conf	*c = &m->conf;
	struct boot	*b = &m->boot;

	b->nlanes = count_lanes(c);
	if (priv_begin(c) == -1)
		return conf_fail(err, errlen, "cannot become user %s: %s", c->user, strerror(errno));
	if (datadir_open(&m->dir, c->data_dir, err, errlen) == -1 ||
	    listen_open(&m->listeners, c, b->nlanes, err, errlen) == -1)
		return -1;
	if (region_create(&b->region, b->nlanes, c->set.input_budget) == -1) {
		(void)conf_fail(err, errlen, "cannot create the shared region (%u worker%s, input-budget %llu): %s",
		    b->nlanes, log_s(b->nlanes), (unsigned long long)c->set.input_budget, strerror(errno));
		goto unlisten;
	}
	if (start_log(c, err, errlen) == -1)
		goto unlisten;
	limit_files(c);
	open_pidfile(c);
	if (priv_drop() == -1) {
		(void)conf_fail(err, errlen, "cannot become user %s for good: %s", c->user, strerror(errno));
		goto unlisten;
	}
	c->set.drop = false;	/* the children are born as that user */
	b->set = c->set;
	b->master = getpid();
	b->dir = c->data_dir;
	b->dir_fd = m->dir.dir_fd;
	b->lock_fd = m->dir.lock_fd;
	return 0;
unlisten:
	listen_close(&m->listeners);
	return -1;
}

static int
run(struct master *m, bool foreground)
{
	char	err[CONF_ERR];
	int	rc;

	if (!foreground)
		daemonise();
	proc_become(IN_MASTER, 0);
	supervise_signals();
	m->ready = ready;
	if (prepare(m, err, sizeof(err)) == -1)
		start_failed(err);
	rc = supervise(m, err, sizeof(err));
	listen_close(&m->listeners);
	remove_pidfile(&m->conf);
	if (rc == -1)
		start_failed(err);
	log_info("stopped");
	return 0;
}

/*
 * libbsd marks a title shorter than argv[0] with a dot where argv[0] ended, and
 * ps(1) shows it.  So argv[0] becomes short and what is left of it an argument
 * of its own, in place: the room for titles stays the same.
 */
static char **
title_init(int argc, char *argv[], char *envp[])
{
	static const char	 name[] = "holdfastd";
	static char		**v;	/* lives as long as argv */
	size_t			 len = strlen(argv[0]);
	char			*rest;

	if (len <= sizeof(name) || (v = calloc((size_t)argc + 2, sizeof(*v))) == NULL) {
		setproctitle_init(argc, argv, envp);
		return argv;
	}
	memset(argv[0], ' ', len);
	memcpy(argv[0], name, sizeof(name));
	v[0] = argv[0];
	v[1] = argv[0] + sizeof(name);
	for (int i = 1; i < argc; i++)
		v[i + 1] = argv[i];
	setproctitle_init(argc + 1, v, envp);	/* copies what it will write over */
	rest = v[1];
	v[1] = v[0];
	v[0] = rest;
	return v + 1;
}

/* SIGHUP opens it again after chdir("/"). */
static const char *
absolute_name(const char *name)
{
	static char	abs[CONF_PATH];
	char		cwd[CONF_PATH];

	if (name == NULL || name[0] == '/' || getcwd(cwd, sizeof(cwd)) == NULL)
		return name;
	if ((size_t)snprintf(abs, sizeof(abs), "%s/%s", cwd, name) >= sizeof(abs))
		return name;
	return abs;
}

int
main(int argc, char *argv[], char *envp[])
{
	static char	*overrides[OVERRIDES];
	char		 err[CONF_ERR];
	bool		 foreground = false, check = false;
	int		 ch;

	argv = title_init(argc, argv, envp);
	(void)umask(077);
	while ((ch = getopt(argc, argv, "df:no:V")) != -1)
		switch (ch) {
		case 'd':
			foreground = true;
			break;
		case 'f':
			master.conf_name = optarg;
			break;
		case 'n':
			check = true;
			break;
		case 'o':
			if (master.noverrides == OVERRIDES)
				usage();
			overrides[master.noverrides++] = optarg;
			break;
		case 'V':
			(void)printf("holdfastd %s\n", VERSION);
			return 0;
		default:
			usage();
		}
	if (optind != argc)
		usage();
	open_standard();
	master.overrides = overrides;
	master.conf_name = absolute_name(master.conf_name);
	(void)log_to(NULL);
	if (conf_load(&master.conf, master.conf_name, overrides, master.noverrides, err, sizeof(err)) == -1 ||
	    conf_user(&master.conf, err, sizeof(err)) == -1)
		start_failed(err);
	if (check) {
		(void)printf("configuration ok\n");
		return 0;
	}
	return run(&master, foreground);
}
