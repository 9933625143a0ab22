/*
 * shm/log.h - one line per event, to stderr or to the log file.
 *
 * Runs in: every process.
 * Owns:    the log descriptor of this process.
 *
 * One write(2) of one whole line per call, O_APPEND, so that lines of several
 * processes do not mix.  The descriptor of a log file is non-blocking where it
 * can be (a pipe nobody reads must not stop a commit): a line that does not
 * fit is dropped and counted, and the count is told with the next line.
 * Control bytes in arguments are written as \xNN: a client must not be able
 * to forge a line.  Format: "2026-11-30T09:30:00.123Z holdfastd[PID] TAG: text".
 */
#ifndef SHM_LOG_H
#define SHM_LOG_H

/* path NULL: stderr.  0, or -1 with errno.  Before the fork: children inherit. */
int	log_to(const char *path);
/* Opens the same path anew (SIGUSR1).  -1 with errno: the old one stays. */
int	log_reopen(void);
/* From a signal handler: reopen at the next line, or at log_poll() in a process that logs nothing. */
void	log_reopen_soon(void);
void	log_poll(void);
/* The descriptor that lines go to: boot_child() keeps it open. */
int	log_descriptor(void);
/* log_debug() writes nothing unless this was set. */
void	log_debug_set(int on);
/* For proc_become(): the word in front of each line. */
void	log_tag(const char *tag);
/* Number of lines dropped so far in this process. */
unsigned long	log_dropped(void);

/* What stands behind a counted word: "%u line%s", n, log_s(n). */
static inline const char *
log_s(unsigned long long n)
{
	return n == 1 ? "" : "s";
}

void	log_info(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void	log_warnx(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* with ": strerror(errno)" behind it; keeps errno */
void	log_warn(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void	log_debug(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Start-up only: log, then exit(1).  fatal() adds strerror(errno). */
_Noreturn void	fatal(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
_Noreturn void	fatalx(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#endif
