/* tests/a_log.c - shm/log.h and shm/proc.h: whole lines, none forged, none that stops us. */
#include "config.h"
#include <sys/stat.h>
#include <fcntl.h>
#include <limits.h>
#include <regex.h>
#include <stdio.h>
#include "tests/unit.h"
#include "shm/log.h"
#include "shm/proc.h"

static char	dir[] = "/tmp/a_log.XXXXXX";
static char	file[64], other[64], text[1 << 20];

static int
make_dir(void **state)
{
	(void)state;
	if (mkdtemp(dir) == NULL)
		return -1;
	snprintf(file, sizeof(file), "%s/log", dir);
	snprintf(other, sizeof(other), "%s/log.1", dir);
	return 0;
}

static int
remove_dir(void **state)
{
	(void)state;
	unlink(file);
	unlink(other);
	return rmdir(dir);
}

static const char *
contents(const char *path)
{
	int	fd = open(path, O_RDONLY);
	ssize_t	n;

	assert_int_not_equal(fd, -1);
	n = read(fd, text, sizeof(text) - 1);
	assert_true(n >= 0);
	text[n] = '\0';
	close(fd);
	return text;
}

static void
matches(const char *line, const char *pattern)
{
	regex_t	re;
	int	rc;

	assert_int_equal(regcomp(&re, pattern, REG_EXTENDED | REG_NOSUB), 0);
	rc = regexec(&re, line, 0, NULL, 0);
	regfree(&re);
	if (rc != 0)
		fail_msg("no match: %s", line);
}

#define HEAD "^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\\.[0-9]{3}Z holdfastd\\[[0-9]+\\]"

static void
a_line_has_time_pid_tag_and_text(void **state)
{
	(void)state;
	unlink(file);
	assert_int_equal(log_to(file), 0);
	log_info("hello %d", 5);
	matches(contents(file), HEAD " test: hello 5\n$");
	proc_become(IN_WORKER, 3);
	log_warnx("x");
	proc_become(IN_TEST, 0);
	assert_non_null(strstr(contents(file), "worker 3: x\n"));
	log_debug("not asked for");
	assert_null(strstr(contents(file), "not asked for"));
	log_debug_set(1);
	log_debug("asked for");
	log_debug_set(0);
	assert_non_null(strstr(contents(file), "asked for\n"));
}

static void
a_client_cannot_forge_a_line(void **state)
{
	const char	*p;
	unsigned	 lines = 0;

	(void)state;
	unlink(file);
	assert_int_equal(log_to(file), 0);
	log_info("path %s", "a\r\n2026-01-01T00:00:00.000Z holdfastd[1] master: ready\x1b[2J\x7f\t\xc3\xa4");
	for (p = contents(file); (p = strchr(p, '\n')) != NULL; p++)
		lines++;
	assert_int_equal(lines, 1);
	assert_non_null(strstr(text, "a\\x0d\\x0a2026"));
	assert_non_null(strstr(text, "\\x1b[2J\\x7f\\x09\xc3\xa4\n"));
}

static void
the_reason_stands_behind_even_the_longest_text_and_errno_is_kept(void **state)
{
	static char	longest[9000];

	(void)state;
	unlink(file);
	assert_int_equal(log_to(file), 0);
	memset(longest, '\x01', sizeof(longest) - 1);
	errno = ENOSPC;
	log_warn("%s", longest);
	assert_int_equal(errno, ENOSPC);
	contents(file);
	assert_true(strlen(text) <= PIPE_BUF);
	assert_non_null(strstr(text, ": No space left on device\n"));
}

static void
a_pipe_that_nobody_reads_does_not_stop_us_and_the_loss_is_told(void **state)
{
	char		 fifo[64], buf[65536];
	unsigned long	 before = log_dropped(), lost;
	unsigned	 i;
	int		 fd;

	(void)state;
	snprintf(fifo, sizeof(fifo), "%s/fifo", dir);
	assert_int_equal(mkfifo(fifo, 0600), 0);
	assert_int_equal(log_to(fifo), 0);
	for (i = 0; i < 3000; i++)
		log_info("line %u, %0100d", i, 0);
	lost = log_dropped() - before;
	assert_true(lost > 0 && lost < 3000);
	fd = open(fifo, O_RDONLY | O_NONBLOCK);
	while (read(fd, buf, sizeof(buf)) > 0)
		;
	log_info("room again");
	memset(buf, 0, sizeof(buf));
	assert_true(read(fd, buf, sizeof(buf) - 1) > 0);
	snprintf(text, sizeof(text), "room again \\[%lu lines before this were dropped\\]\n$", lost);
	matches(buf, text);
	log_info("and on");
	memset(buf, 0, sizeof(buf));
	assert_true(read(fd, buf, sizeof(buf) - 1) > 0);
	matches(buf, "and on\n$");
	close(fd);
	unlink(fifo);
}

static void
after_a_reopen_lines_go_to_the_new_file(void **state)
{
	int	fd;

	(void)state;
	unlink(file);
	assert_int_equal(log_to(file), 0);
	fd = log_descriptor();
	log_info("old");
	assert_int_equal(rename(file, other), 0);
	log_info("still old");
	log_reopen_soon();
	log_info("new");
	assert_non_null(strstr(contents(other), "still old\n"));
	assert_null(strstr(text, "new\n"));
	assert_non_null(strstr(contents(file), "new\n"));
	assert_int_equal(log_descriptor(), fd);
	unlink(file);
	log_reopen_soon();
	log_poll();
	assert_int_equal(access(file, F_OK), 0);
	unlink(other);
}

static void
where_the_file_cannot_be_opened_again_the_old_one_stays(void **state)
{
	(void)state;
	unlink(file);
	assert_int_equal(log_to(file), 0);
	assert_int_equal(rename(file, other), 0);
	assert_int_equal(mkdir(file, 0700), 0);
	log_reopen_soon();
	log_info("here");
	assert_int_equal(rmdir(file), 0);
	contents(other);
	assert_non_null(strstr(text, "cannot open"));
	assert_non_null(strstr(text, "here\n"));
	unlink(other);
	assert_int_equal(log_to("/nonexistent/log"), -1);
	assert_int_equal(errno, ENOENT);
}

static void
many_lines(char c)
{
	char	word[200];
	int	i;

	memset(word, c, sizeof(word) - 1);
	word[sizeof(word) - 1] = '\0';
	for (i = 0; i < 2000; i++)
		log_info("<%s>", word);
}

static void
lines_of_several_processes_do_not_mix(void **state)
{
	pid_t		 a, b;
	char		*line, *next, *p;
	unsigned	 n = 0;

	(void)state;
	unlink(file);
	assert_int_equal(log_to(file), 0);
	a = t_fork(many_lines('a'));
	b = t_fork(many_lines('b'));
	assert_int_equal(t_wait(a), 0);
	assert_int_equal(t_wait(b), 0);
	contents(file);
	for (line = text; (next = strchr(line, '\n')) != NULL; line = next + 1, n++) {
		p = strchr(line, '<');
		assert_true(p != NULL && p < next && next - p == 201 && next[-1] == '>');
		assert_int_equal(strspn(p + 1, p[1] == 'a' ? "a" : "b"), 199);
	}
	assert_true(n == 4000 || strlen(text) == sizeof(text) - 1);
}

static void
fatal_logs_and_exits_1(void **state)
{
	int	st;

	(void)state;
	unlink(file);
	assert_int_equal(log_to(file), 0);
	st = t_child(errno = EACCES; fatal("no way in"));
	assert_true(WIFEXITED(st) && WEXITSTATUS(st) == 1);
	st = t_child(fatalx("line %d: what?", 7));
	assert_true(WIFEXITED(st) && WEXITSTATUS(st) == 1);
	contents(file);
	assert_non_null(strstr(text, "no way in: Permission denied\n"));
	assert_non_null(strstr(text, "line 7: what?\n"));
}

static void
code_that_runs_where_it_must_not_aborts_and_says_where(void **state)
{
	int	st;

	(void)state;
	unlink(file);
	assert_int_equal(log_to(file), 0);
	RUNS_IN(IN_TEST | IN_COMMITTER);
	st = t_child(RUNS_IN(IN_COMMITTER | IN_TOOL));
	assert_true(WIFSIGNALED(st) && WTERMSIG(st) == SIGABRT);
	assert_non_null(strstr(contents(file), "panic: "));
	assert_non_null(strstr(text, "a_log.c:"));
	assert_non_null(strstr(text, "IN_COMMITTER | IN_TOOL\n"));
}

int
main(void)
{
	const struct CMUnitTest	tests[] = {
		cmocka_unit_test(a_line_has_time_pid_tag_and_text),
		cmocka_unit_test(a_client_cannot_forge_a_line),
		cmocka_unit_test(the_reason_stands_behind_even_the_longest_text_and_errno_is_kept),
		cmocka_unit_test(a_pipe_that_nobody_reads_does_not_stop_us_and_the_loss_is_told),
		cmocka_unit_test(after_a_reopen_lines_go_to_the_new_file),
		cmocka_unit_test(where_the_file_cannot_be_opened_again_the_old_one_stays),
		cmocka_unit_test(lines_of_several_processes_do_not_mix),
		cmocka_unit_test(fatal_logs_and_exits_1),
		cmocka_unit_test(code_that_runs_where_it_must_not_aborts_and_says_where),
	};

	proc_become(IN_TEST, 0);
	return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
