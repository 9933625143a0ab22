/*
 * bench/peers/sqlite/sqlite.c - what one writes on a weekend: documents in
 * SQLite behind a small server, one thread.
 *
 *	sqlite FORM PORT DIR	full:  a transaction per PUT
 *				group: one for all PUTs of a round of epoll
 *	sqlite			prints SQLite's version
 *
 * WAL, synchronous=FULL: a commit is synced before it is answered.  As much of
 * HTTP as the comparison needs: GET and PUT, Content-Length, keep-alive and
 * Connection: close, pipelining, ETag, If-Match.
 */
#include <sys/epoll.h>
#include <sys/socket.h>
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <err.h>
#include <errno.h>
#include <sqlite3.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

struct buffer {
	char	*p;
	size_t	 at, n, room;
};

struct conn {
	int		 fd;
	struct buffer	 in, out;
	bool		 close, dirty;
	struct conn	*next;		/* answered in this round */
};

struct request {
	bool		 is_put;
	const char	*path, *match, *body;
	size_t		 path_len, match_len, body_len;
};

static sqlite3		*db;
static sqlite3_stmt	*select_doc, *select_tag, *upsert, *begin, *commit;
static struct conn	*answered;
static int64_t		 last_tag;
static int		 ep;
static bool		 group, in_transaction;
static char		 date[64];

static void
sql(int rc)
{
	if (rc != SQLITE_OK && rc != SQLITE_DONE && rc != SQLITE_ROW)
		errx(1, "sqlite: %s", sqlite3_errmsg(db));
}

static void
step(sqlite3_stmt *s)
{
	sql(sqlite3_step(s));
	sql(sqlite3_reset(s));
}

static void
buffer_room(struct buffer *b, size_t more)
{
	if (b->n + more <= b->room)
		return;
	b->room = 2 * (b->n + more);
	if ((b->p = realloc(b->p, b->room)) == NULL)
		err(1, "realloc");
}

static void
buffer_add(struct buffer *b, const void *p, size_t n)
{
	buffer_room(b, n);
	memcpy(b->p + b->n, p, n);
	b->n += n;
}

static void
conn_close(struct conn *c)
{
	close(c->fd);
	free(c->in.p);
	free(c->out.p);
	free(c);
}

static void
answer(struct conn *c, const char *status, int64_t tag, const char *fields, const void *body, size_t n)
{
	char	head[512], etag[64] = "";
	int	len;

	if (tag > 0)
		snprintf(etag, sizeof(etag), "ETag: \"%lld\"\r\n", (long long)tag);
	len = snprintf(head, sizeof(head), "HTTP/1.1 %s\r\nDate: %s\r\n%s%s%sContent-Length: %zu\r\n\r\n", status, date, etag, fields,
	    c->close ? "Connection: close\r\n" : "", n);
	if (strncmp(status, "204", 3) == 0)
		len = snprintf(head, sizeof(head), "HTTP/1.1 %s\r\nDate: %s\r\n%s%s\r\n", status, date, etag,
		    c->close ? "Connection: close\r\n" : "");
	buffer_add(&c->out, head, (size_t)len);
	if (n > 0)
		buffer_add(&c->out, body, n);
}

static void
document_get(struct conn *c, const struct request *r)
{
	sql(sqlite3_bind_text(select_doc, 1, r->path, (int)r->path_len, SQLITE_STATIC));
	if (sqlite3_step(select_doc) == SQLITE_ROW)
		answer(c, "200 OK", sqlite3_column_int64(select_doc, 0), "Content-Type: application/octet-stream\r\n",
		    sqlite3_column_blob(select_doc, 1), (size_t)sqlite3_column_bytes(select_doc, 1));
	else
		answer(c, "404 Not Found", 0, "", "", 0);
	sql(sqlite3_reset(select_doc));
}

static void
document_put(struct conn *c, const struct request *r)
{
	int64_t	was = 0;
	char	tag[64];

	if (!in_transaction) {
		step(begin);
		in_transaction = true;
	}
	sql(sqlite3_bind_text(select_tag, 1, r->path, (int)r->path_len, SQLITE_STATIC));
	if (sqlite3_step(select_tag) == SQLITE_ROW)
		was = sqlite3_column_int64(select_tag, 0);
	sql(sqlite3_reset(select_tag));
	snprintf(tag, sizeof(tag), "\"%lld\"", (long long)was);
	if (r->match != NULL && (strlen(tag) != r->match_len || memcmp(tag, r->match, r->match_len) != 0)) {
		answer(c, "412 Precondition Failed", was, "", "", 0);
		return;
	}
	sql(sqlite3_bind_text(upsert, 1, r->path, (int)r->path_len, SQLITE_STATIC));
	sql(sqlite3_bind_int64(upsert, 2, ++last_tag));
	sql(sqlite3_bind_blob(upsert, 3, r->body_len > 0 ? r->body : "", (int)r->body_len, SQLITE_STATIC));
	step(upsert);
	if (!group) {
		step(commit);
		in_transaction = false;
	}
	answer(c, was > 0 ? "204 No Content" : "201 Created", last_tag, "", "", 0);
}

/* Bytes of a whole request at p; 0: not whole; -1: not one. */
static ssize_t
request_parse(struct conn *c, struct request *r, const char *p, size_t n)
{
	const char	*end = memmem(p, n, "\r\n\r\n", 4), *line, *eol, *space;

	*r = (struct request){ 0 };
	if (end == NULL)
		return n > 16384 ? -1 : 0;
	r->is_put = strncmp(p, "PUT ", 4) == 0;
	if (!r->is_put && strncmp(p, "GET ", 4) != 0)
		return -1;
	r->path = p + 4;
	if ((space = memchr(r->path, ' ', (size_t)(end - r->path))) == NULL)
		return -1;
	r->path_len = (size_t)(space - r->path);
	c->close = false;
	for (line = memchr(space, '\n', (size_t)(end + 2 - space)); line != NULL && ++line < end; line = eol) {
		eol = memchr(line, '\n', (size_t)(end + 2 - line));
		if (strncasecmp(line, "content-length:", 15) == 0)
			r->body_len = strtoul(line + 15, NULL, 10);
		else if (strncasecmp(line, "if-match: ", 10) == 0) {
			r->match = line + 10;
			r->match_len = (size_t)(eol - 1 - r->match);
		} else if (strncasecmp(line, "connection: close", 17) == 0)
			c->close = true;
	}
	r->body = end + 4;
	if (n - (size_t)(r->body - p) < r->body_len)
		return 0;
	return r->body + r->body_len - p;
}

/* What is no request ends the connection, behind the answers to those before it. */
static void
conn_requests(struct conn *c)
{
	struct request	r;
	ssize_t		used;

	while (c->in.at < c->in.n && !c->close) {
		if ((used = request_parse(c, &r, c->in.p + c->in.at, c->in.n - c->in.at)) == 0)
			break;
		if (used == -1) {
			c->close = true;
			used = 0;
		} else
			(r.is_put ? document_put : document_get)(c, &r);
		c->in.at += (size_t)used;
		if (!c->dirty) {
			c->dirty = true;
			c->next = answered;
			answered = c;
		}
	}
	memmove(c->in.p, c->in.p + c->in.at, c->in.n - c->in.at);
	c->in.n -= c->in.at;
	c->in.at = 0;
}

static bool
conn_send(struct conn *c)
{
	while (c->out.at < c->out.n) {
		ssize_t	n = send(c->fd, c->out.p + c->out.at, c->out.n - c->out.at, MSG_NOSIGNAL);

		if (n == -1)
			return errno == EAGAIN;
		c->out.at += (size_t)n;
	}
	c->out.at = c->out.n = 0;
	return !c->close;
}

static void
conn_run(struct conn *c, uint32_t events)
{
	if ((events & EPOLLOUT) != 0 && !c->dirty && !conn_send(c)) {
		conn_close(c);
		return;
	}
	for (;;) {
		ssize_t	n, room;

		buffer_room(&c->in, 16384);
		room = (ssize_t)(c->in.room - c->in.n);
		if ((n = recv(c->fd, c->in.p + c->in.n, (size_t)room, 0)) <= 0) {
			if (n == -1 && errno == EAGAIN)
				break;
			conn_close(c);
			return;
		}
		c->in.n += (size_t)n;
		if (n < room && (events & EPOLLRDHUP) == 0)
			break;
	}
	conn_requests(c);
}

static void
round_end(void)
{
	if (in_transaction) {
		step(commit);
		in_transaction = false;
	}
	for (struct conn *c; (c = answered) != NULL;) {
		answered = c->next;
		c->dirty = false;
		if (!conn_send(c))
			conn_close(c);
	}
}

static void
accept_all(int listener)
{
	struct conn	*c;
	int		 fd, one = 1;

	while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) != -1) {
		struct epoll_event	e = { .events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET };

		if ((c = calloc(1, sizeof(*c))) == NULL)
			err(1, "calloc");
		c->fd = fd;
		e.data.ptr = c;
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
		if (epoll_ctl(ep, EPOLL_CTL_ADD, fd, &e) == -1)
			err(1, "epoll_ctl");
	}
}

static sqlite3_stmt *
prepared(const char *text)
{
	sqlite3_stmt	*s;

	sql(sqlite3_prepare_v3(db, text, -1, SQLITE_PREPARE_PERSISTENT, &s, NULL));
	return s;
}

static void
database_open(const char *dir)
{
	char	path[4096];

	snprintf(path, sizeof(path), "%s/documents.db", dir);
	sql(sqlite3_open(path, &db));
	sql(sqlite3_exec(db, "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA locking_mode=EXCLUSIVE;"
	    "CREATE TABLE IF NOT EXISTS doc (path TEXT PRIMARY KEY, tag INTEGER, body BLOB) WITHOUT ROWID;", NULL, NULL, NULL));
	select_doc = prepared("SELECT tag, body FROM doc WHERE path = ?1");
	select_tag = prepared("SELECT tag FROM doc WHERE path = ?1");
	upsert = prepared("INSERT INTO doc VALUES (?1, ?2, ?3) ON CONFLICT (path) DO UPDATE SET tag = excluded.tag, body = excluded.body");
	begin = prepared("BEGIN IMMEDIATE");
	commit = prepared("COMMIT");
	last_tag = (int64_t)time(NULL) << 24;	/* tags go on after a restart */
}

static int
listen_on(int port)
{
	struct sockaddr_in	a = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
	struct epoll_event	e = { .events = EPOLLIN };
	int			one = 1, fd;

	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if ((fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)) == -1 ||
	    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) == -1 ||
	    bind(fd, (struct sockaddr *)&a, sizeof(a)) == -1 || listen(fd, 4096) == -1 ||
	    (ep = epoll_create1(EPOLL_CLOEXEC)) == -1 || epoll_ctl(ep, EPOLL_CTL_ADD, fd, &e) == -1)
		err(1, "port %d", port);
	return fd;
}

int
main(int argc, char **argv)
{
	struct epoll_event	events[256];
	int			listener, n;
	time_t			spelled = 0, now;

	if (argc == 1)
		return puts(sqlite3_libversion()) == EOF;
	if (argc != 4)
		errx(64, "usage: sqlite full|group port dir");
	group = strcmp(argv[1], "group") == 0;
	database_open(argv[3]);
	listener = listen_on(atoi(argv[2]));
	for (;;) {
		if ((n = epoll_wait(ep, events, 256, -1)) == -1 && errno != EINTR)
			err(1, "epoll_wait");
		if ((now = time(NULL)) != spelled) {
			spelled = now;
			strftime(date, sizeof(date), "%a, %d %b %Y %H:%M:%S GMT", gmtime(&now));
		}
		for (int i = 0; i < n; i++) {
			if (events[i].data.ptr == NULL)
				accept_all(listener);
			else
				conn_run(events[i].data.ptr, events[i].events);
		}
		round_end();
	}
}
