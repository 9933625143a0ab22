/*
 * shm/log.c - see shm/log.h.
 *
 * Runs in: every process, any thread; log_reopen_soon() in signal handlers too.
 */
#include "config.h"
#include <sys/socket.h>
#include <sys/stat.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "shm/fd.h"
#include "shm/log.h"

#define LINE_MAX_BYTES	2048	/* below PIPE_BUF: a pipe takes a line whole or not at all */
#define LINE_ROOM	(LINE_MAX_BYTES - 1)	/* the newline's place is kept */
_Static_assert(LINE_MAX_BYTES <= PIPE_BUF, "lines of several processes must not mix");

struct line {
	char	buf[LINE_MAX_BYTES];
	size_t	len;
};

/* Written by log_to() before there are threads; afterwards the number stays and dup3(2) moves what it names. */
static int	log_fd = STDERR_FILENO;
static bool	log_fd_is_socket;
static char	*log_path;
static char	log_word[32];
static int	log_verbose;

static volatile sig_atomic_t	log_stale;	/* W: signal handler (1), log_poll() (0) */
static atomic_ulong		log_lost;	/* lines dropped, ever */
static atomic_ulong		log_told;	/* of these, how many a later line told of */
static atomic_bool		log_torn;	/* the last line was cut by a full disk */

/*
 * A description of its own for what fd 2 names: O_NONBLOCK and O_APPEND there
 * would otherwise be set for the shell that started us as well.  Where that is
 * not possible (a socket) fd 2 itself is used.
 */
static int
open_stderr(void)
{
	int	fd = open("/proc/self/fd/2", O_WRONLY | O_APPEND | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);

	return fd == -1 ? STDERR_FILENO : fd;
}

/* O_RDWR: opening a FIFO for writing without waiting fails where nobody reads yet. */
static int
open_path(const char *path)
{
	struct stat	st;
	int		how = O_WRONLY;

	if (stat(path, &st) == 0 && S_ISFIFO(st.st_mode))
		how = O_RDWR;
	return open(path, how | O_APPEND | O_CREAT | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0640);
}

int
log_to(const char *path)
{
	struct stat	 st;
	char		*copy = NULL;
	int		 fd;

	if (path == NULL)
		fd = open_stderr();
	else if ((copy = strdup(path)) == NULL || (fd = open_path(path)) == -1) {
		free(copy);
		return -1;
	}
	if (log_fd != STDERR_FILENO)
		close(log_fd);
	free(log_path);
	log_path = copy;
	log_fd = fd;
	log_fd_is_socket = fstat(fd, &st) == 0 && S_ISSOCK(st.st_mode);
	return 0;
}

int
log_reopen(void)
{
	int	fd;

	if (log_path == NULL)
		return 0;
	if ((fd = open_path(log_path)) == -1)
		return -1;
	/* a thread that is writing a line sees the old file or the new one, never a closed number */
	if (dup3(fd, log_fd, O_CLOEXEC) == -1) {
		fd_close(fd);
		return -1;
	}
	close(fd);
	return 0;
}

void
log_reopen_soon(void)
{
	log_stale = 1;
}

/* The flag goes first: a signal that comes during the work is work again. */
void
log_poll(void)
{
	if (!log_stale)
		return;
	log_stale = 0;
	if (log_reopen() == -1)
		log_warn("log: cannot open %s again, going on with the old file", log_path);
}

int
log_descriptor(void)
{
	return log_fd;
}

void
log_debug_set(int on)
{
	log_verbose = on;
}

void
log_tag(const char *tag)
{
	snprintf(log_word, sizeof(log_word), "%s", tag);
}

unsigned long
log_dropped(void)
{
	return atomic_load_explicit(&log_lost, memory_order_relaxed);
}

/* Appends text, control bytes as \xNN, up to `room` bytes in the line; the rest is left out. */
static void
line_add(struct line *l, size_t room, const char *text)
{
	static const char	hex[] = "0123456789abcdef";
	unsigned char		c;

	for (; (c = (unsigned char)*text) != '\0'; text++) {
		bool	 plain = c >= 0x20 && c != 0x7f;

		if (l->len + (plain ? 1 : 4) > room)
			return;
		if (plain) {
			l->buf[l->len++] = (char)c;
			continue;
		}
		l->buf[l->len++] = '\\';
		l->buf[l->len++] = 'x';
		l->buf[l->len++] = hex[c >> 4];
		l->buf[l->len++] = hex[c & 15];
	}
}

static void
line_begin(struct line *l)
{
	char		 head[96];
	struct timespec	 ts = { 0, 0 };
	struct tm	 tm = { 0 };
	size_t		 n;

	l->len = 0;
	/* behind half a line a new one starts on a line of its own */
	if (atomic_exchange_explicit(&log_torn, false, memory_order_relaxed))
		l->buf[l->len++] = '\n';
	clock_gettime(CLOCK_REALTIME, &ts);
	gmtime_r(&ts.tv_sec, &tm);
	n = strftime(head, sizeof(head), "%Y-%m-%dT%H:%M:%S", &tm);
	snprintf(head + n, sizeof(head) - n, ".%03ldZ holdfastd[%ld]%s%s: ", ts.tv_nsec / 1000000,
	    (long)getpid(), log_word[0] != '\0' ? " " : "", log_word);
	line_add(l, LINE_ROOM, head);
}

static void
line_write(struct line *l)
{
	ssize_t	n;

	l->buf[l->len++] = '\n';
	do {
		if (log_fd_is_socket)
			n = send(log_fd, l->buf, l->len, MSG_DONTWAIT | MSG_NOSIGNAL);
		else
			n = write(log_fd, l->buf, l->len);
	} while (n == -1 && errno == EINTR);
	if (n == (ssize_t)l->len)
		return;
	if (n > 0)
		atomic_store_explicit(&log_torn, true, memory_order_relaxed);
	atomic_fetch_add_explicit(&log_lost, 1, memory_order_relaxed);
}

/* One line.  errno as it was at the call is told where `error` says so, and is kept in any case. */
static void __attribute__((format(printf, 2, 0)))
log_line(bool error, const char *fmt, va_list ap)
{
	struct line	 l;
	char		 text[LINE_MAX_BYTES], note[64];
	int		 saved = errno;
	unsigned long	 lost, told;

	log_poll();
	line_begin(&l);
	vsnprintf(text, sizeof(text), fmt, ap);
	/* room is left for the reason and the note behind it: they are what an operator looks for */
	line_add(&l, LINE_ROOM - 256, text);
	if (error) {
		line_add(&l, LINE_ROOM, ": ");
		line_add(&l, LINE_ROOM, strerror_r(saved, text, sizeof(text)));
	}
	/* relaxed: counters that publish nothing; a line that tells too late tells with the next */
	lost = atomic_load_explicit(&log_lost, memory_order_relaxed);
	told = atomic_load_explicit(&log_told, memory_order_relaxed);
	if (lost != told) {
		snprintf(note, sizeof(note), " [%lu line%s before this %s dropped]", lost - told,
		    log_s(lost - told), lost - told == 1 ? "was" : "were");
		line_add(&l, LINE_ROOM, note);
	}
	line_write(&l);
	if (atomic_load_explicit(&log_lost, memory_order_relaxed) == lost)
		atomic_store_explicit(&log_told, lost, memory_order_relaxed);
	errno = saved;
}

void
log_info(const char *fmt, ...)
{
	va_list	ap;

	va_start(ap, fmt);
	log_line(false, fmt, ap);
	va_end(ap);
}

void
log_warnx(const char *fmt, ...)
{
	va_list	ap;

	va_start(ap, fmt);
	log_line(false, fmt, ap);
	va_end(ap);
}

void
log_warn(const char *fmt, ...)
{
	va_list	ap;

	va_start(ap, fmt);
	log_line(true, fmt, ap);
	va_end(ap);
}

void
log_debug(const char *fmt, ...)
{
	va_list	ap;

	if (!log_verbose)
		return;
	va_start(ap, fmt);
	log_line(false, fmt, ap);
	va_end(ap);
}

void
fatal(const char *fmt, ...)
{
	va_list	ap;

	va_start(ap, fmt);
	log_line(true, fmt, ap);
	va_end(ap);
	exit(1);
}

void
fatalx(const char *fmt, ...)
{
	va_list	ap;

	va_start(ap, fmt);
	log_line(false, fmt, ap);
	va_end(ap);
	exit(1);
}
