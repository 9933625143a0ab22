/*
 * bench/load.c - the load generator: one thread, closed loop, strict.
 *
 * Runs in: a process of its own, one thread.
 *
 *	load [option]... ADDR:PORT
 *
 *	-c, --connections N	1
 *	-p, --depth N		requests sent together; the next ones when all are answered (1)
 *	    --close		a connection per request, "Connection: close"
 *	-m, --put PERCENT	0: GETs only, 100: PUTs only, between: mixed at random (0)
 *	    --if-match		PUTs carry the tag of the answer before; each connection has its own key
 *	-k, --keys N		1;	-r, --random: picked at random, otherwise one after another
 *	-x, --prefix PATH	a key is PATH and seven digits (/bench/k); with --keys 0, PATH is the target
 *	-b, --body N		bytes of a document, sent and expected (64)
 *	    --any-length	GETs may be of any length
 *	-t, --think MS		from an answer to the connection's next request (0)
 *	-w, --warm-up S		answered, not counted (0)
 *	-s, --seconds S		counted (2)
 *	-n, --requests N	ends after N answers instead, all counted
 *	    --ready FD		a byte is written there when every connection has had an answer
 *	    --resp		speaks to Redis: GET is GET, PUT is SET
 *	    --cpu PID,PID...	CPU time and bytes written by these, between the same two moments
 *	    --device FILE	a block device's stat file: bytes it wrote between them
 *
 * Every answer must be whole and what was asked for: status (200 to a GET, 201
 * or 204 to a PUT, 204 to a conditional one), framing by Content-Length alone,
 * a body of exactly the length.  A wrong one, or a connection that ends under
 * way, is counted, the first ones are shown, and the exit code is 1.
 *
 * Prints one JSON object.  Times are in microseconds, from the send of the
 * (first) request to the receipt of the (each) answer, counted in buckets 3 %
 * wide.
 */
#include "config.h"
#include <sys/epoll.h>
#include <sys/queue.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <ctype.h>
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

#define DEPTH_MAX	64u		/* the bits of conn.puts */
#define HEAD_MAX	16384u
#define KEY_DIGITS	7u
#define TAG_MAX		128u
#define CONNECTING_MAX	100u		/* less than any listener's queue */
#define IN_SIZE		(256u << 10)
#define SHOWN_MAX	3u
#define PIDS_MAX	256u

/*
 *	CONNECTING --> ASKING --(all answered)--> THINKING --+
 *	    ^             ^-----------------------------------+
 *	    |             |
 *	    +-- CLOSED <--+--> ENDING (--close: the server closes)
 */
enum state { CLOSED, CONNECTING, ASKING, THINKING, ENDING };

struct conn {
	int		 fd;
	enum state	 state;
	unsigned	 number;
	unsigned	 left;		/* answers to come */
	unsigned	 answered;	/* of this round */
	uint64_t	 puts;		/* bit n: request n of this round is a PUT */
	uint64_t	 sent_ns;
	uint64_t	 body_left;	/* of the answer that is under way */
	char		*held;		/* the start of a head */
	size_t		 held_len;
	char		*unsent;
	size_t		 unsent_at, unsent_len;
	uint64_t	 due_ns;
	bool		 first;		/* had its first answer */
	char		 tag[TAG_MAX];
	STAILQ_ENTRY(conn) link;	/* thinking, closed */
};
STAILQ_HEAD(conns, conn);

/* Buckets: 0-31 ns one each, then 32 to each power of two. */
#define SUB_BITS	5u
#define BUCKETS		((64u - SUB_BITS + 1u) << SUB_BITS)
struct histogram {
	uint64_t	count, sum_ns, max_ns;
	uint64_t	in[BUCKETS];
};

static struct {
	unsigned	 connections, depth, put, keys;
	uint64_t	 body, requests, think_ns;
	double		 seconds, warm_up;
	bool		 close, if_match, random, any_length, resp;
	const char	*prefix, *target;
	int		 ready_fd;
	unsigned	 npids;
	long		 pids[PIDS_MAX];
	const char	*device;
} opt = { .connections = 1, .depth = 1, .keys = 1, .body = 64, .seconds = 2, .prefix = "/bench/k", .ready_fd = -1 };

/* A request but for its key, whose digits are written over. */
static struct template {
	char	*text;
	size_t	 len, digits_at, etag_at;
} get, put;

static struct sockaddr_in	to;
static int			ep;
static struct conn		*all;
static struct conns		closed, thinking;
static unsigned			connecting, warm;	/* warm: conns that had their first answer */
static uint64_t			issued;			/* requests, where they are limited */
static uint64_t			key_next, seed = 88172645463325252u;
static uint64_t			now_ns;
static bool			counting, done;
static struct histogram		of_gets, of_puts;
static uint64_t			wrong, cut, bytes_in, connects;
static char			*batch;
static char			in[HEAD_MAX + IN_SIZE];

static uint64_t
clock_ns(void)
{
	struct timespec	t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint64_t
dice(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return seed;
}

/* --- what is measured ------------------------------------------------------- */

static unsigned
bucket_of(uint64_t ns)
{
	unsigned	shift;

	if (ns < 1u << SUB_BITS)
		return (unsigned)ns;
	shift = 63u - (unsigned)__builtin_clzll(ns) - SUB_BITS;
	return ((shift + 1) << SUB_BITS) + (unsigned)((ns >> shift) - (1u << SUB_BITS));
}

/* The middle of a bucket. */
static double
bucket_us(unsigned b)
{
	unsigned	shift;

	if (b < 1u << SUB_BITS)
		return b / 1000.0;
	shift = (b >> SUB_BITS) - 1;
	return ((double)((b & ((1u << SUB_BITS) - 1)) + (1u << SUB_BITS)) + 0.5) * (double)(1ull << shift) / 1000.0;
}

static void
record(bool is_put, uint64_t ns)
{
	struct histogram	*h = is_put ? &of_puts : &of_gets;

	h->count++;
	h->sum_ns += ns;
	if (ns > h->max_ns)
		h->max_ns = ns;
	h->in[bucket_of(ns)]++;
}

static double
quantile(const struct histogram *h, double q)
{
	uint64_t	want = (uint64_t)(q * (double)h->count), seen = 0;

	for (unsigned b = 0; b < BUCKETS; b++)
		if ((seen += h->in[b]) > want)
			return bucket_us(b) * 1000.0 < (double)h->max_ns ? bucket_us(b) : (double)h->max_ns / 1000.0;
	return (double)h->max_ns / 1000.0;
}

struct usage {
	double		cpu_s;
	uint64_t	written, device;
};

/* "write_bytes: N" of /proc/PID/io; the file is closed to strangers, whose writes count as none. */
static uint64_t
written_by(long pid)
{
	char		 path[64], line[128];
	unsigned long long n = 0;
	FILE		*f;

	snprintf(path, sizeof(path), "/proc/%ld/io", pid);
	if ((f = fopen(path, "re")) == NULL)
		return 0;
	while (fgets(line, sizeof(line), f) != NULL)
		if (sscanf(line, "write_bytes: %llu", &n) == 1)
			break;
	fclose(f);
	return n;
}

/* The seventh number counts sectors written, of 512 bytes whatever the device's are. */
static uint64_t
written_to(const char *device)
{
	unsigned long long	 n = 0;
	FILE			*f;

	if ((f = fopen(device, "re")) == NULL || fscanf(f, "%*u %*u %*u %*u %*u %*u %llu", &n) != 1)
		err(1, "%s", device);
	fclose(f);
	return n * 512;
}

/* User and system time of a process with its threads, and of its children that it has waited for. */
static double
cpu_of(long pid)
{
	unsigned long	 u, s;
	long		 cu, cs;
	char		 path[64], line[1024], *p;
	ssize_t		 n;
	int		 fd;

	snprintf(path, sizeof(path), "/proc/%ld/stat", pid);
	if ((fd = open(path, O_RDONLY | O_CLOEXEC)) == -1)
		err(1, "%s", path);
	n = read(fd, line, sizeof(line) - 1);
	close(fd);
	line[n < 0 ? 0 : n] = '\0';
	if ((p = strrchr(line, ')')) == NULL ||
	    sscanf(p + 2, "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu %ld %ld", &u, &s, &cu, &cs) != 4)
		errx(1, "%s: not as expected", path);
	return (double)(u + s + (unsigned long)cu + (unsigned long)cs) / (double)sysconf(_SC_CLK_TCK);
}

static struct usage
usage_of_server(void)
{
	struct usage	sum = { 0 };

	for (unsigned i = 0; i < opt.npids; i++) {
		sum.cpu_s += cpu_of(opt.pids[i]);
		sum.written += written_by(opt.pids[i]);
	}
	if (opt.device != NULL)
		sum.device = written_to(opt.device);
	return sum;
}

static double
own_cpu_s(void)
{
	struct rusage	r;

	getrusage(RUSAGE_SELF, &r);
	return (double)(r.ru_utime.tv_sec + r.ru_stime.tv_sec) + (double)(r.ru_utime.tv_usec + r.ru_stime.tv_usec) / 1e6;
}

/* --- requests --------------------------------------------------------------- */

static void
template_http(struct template *t, bool is_put)
{
	const char	*host = opt.target, *digits = opt.keys == 0 ? "" : "0000000";
	const char	*last = opt.close ? "Connection: close\r\n" : "";
	size_t		 room = strlen(opt.prefix) + strlen(host) + opt.body + 512;
	int		 n;

	if ((t->text = malloc(room)) == NULL)
		err(1, "malloc");
	if (!is_put) {
		n = snprintf(t->text, room, "GET %s%s HTTP/1.1\r\nHost: %s\r\n%s\r\n", opt.prefix, digits, host, last);
		t->len = (size_t)n;
	} else {
		n = snprintf(t->text, room, "PUT %s%s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/octet-stream\r\n"
		    "Content-Length: %llu\r\n%s", opt.prefix, digits, host, (unsigned long long)opt.body, last);
		t->etag_at = (size_t)n;
		memcpy(t->text + n, "\r\n", 2);
		memset(t->text + n + 2, 'x', opt.body);
		t->len = (size_t)n + 2 + opt.body;
	}
	t->digits_at = 4 + strlen(opt.prefix);
}

static void
template_resp(struct template *t, bool is_put)
{
	size_t	key = strlen(opt.prefix) + (opt.keys == 0 ? 0 : KEY_DIGITS), room = key + opt.body + 256;
	int	n;

	if ((t->text = malloc(room)) == NULL)
		err(1, "malloc");
	n = snprintf(t->text, room, "*%d\r\n$3\r\n%s\r\n$%zu\r\n", is_put ? 3 : 2, is_put ? "SET" : "GET", key);
	t->digits_at = (size_t)n + strlen(opt.prefix);
	n += snprintf(t->text + n, room - (size_t)n, "%s%s\r\n", opt.prefix, opt.keys == 0 ? "" : "0000000");
	if (is_put) {
		n += snprintf(t->text + n, room - (size_t)n, "$%llu\r\n", (unsigned long long)opt.body);
		memset(t->text + n, 'x', opt.body);
		n += (int)opt.body;
		memcpy(t->text + n, "\r\n", 2);
		n += 2;
	}
	t->len = (size_t)n;
}

static uint64_t
key_pick(const struct conn *c)
{
	uint64_t	k;

	if (opt.if_match)
		return c->number;
	if (opt.random)
		return dice() % opt.keys;
	k = key_next;
	key_next = k + 1 == opt.keys ? 0 : k + 1;
	return k;
}

static size_t
request_make(const struct conn *c, bool is_put, char *out)
{
	const struct template	*t = is_put ? &put : &get;
	size_t			 n = t->len, tag = opt.if_match && is_put ? strlen(c->tag) : 0;

	if (tag > 0) {
		memcpy(out, t->text, t->etag_at);
		n = t->etag_at;
		n += (size_t)sprintf(out + n, "If-Match: %s\r\n", c->tag);
		memcpy(out + n, t->text + t->etag_at, t->len - t->etag_at);
		n += t->len - t->etag_at;
	} else
		memcpy(out, t->text, t->len);
	if (opt.keys > 0) {
		uint64_t	 k = key_pick(c);
		char		*p = out + t->digits_at + KEY_DIGITS;

		for (unsigned i = 0; i < KEY_DIGITS; i++, k /= 10)
			*--p = (char)('0' + k % 10);
	}
	return n;
}

/* --- connections ------------------------------------------------------------ */

static void
conn_close(struct conn *c)
{
	if (c->state == CONNECTING)
		connecting--;
	close(c->fd);
	free(c->held);
	free(c->unsent);
	c->fd = -1;
	c->held = c->unsent = NULL;
	c->held_len = c->unsent_at = c->unsent_len = 0;
	c->body_left = 0;
	c->left = 0;
	c->state = CLOSED;
	STAILQ_INSERT_TAIL(&closed, c, link);
}

/* The connection is of no use any more; what was asked and not answered is lost. */
static void
conn_cut(struct conn *c, const char *why)
{
	if (cut++ < SHOWN_MAX)
		warnx("connection %u cut with %u answers to come: %s", c->number, c->left, why);
	c->tag[0] = '\0';
	conn_close(c);
	if (cut > 1000 + opt.connections)
		errx(1, "too many connections cut");
}

static void
conn_wrong(struct conn *c, const char *why, const char *p, size_t n)
{
	if (wrong++ < SHOWN_MAX)
		warnx("connection %u: %s:\n%.*s", c->number, why, (int)(n > 600 ? 600 : n), p);
	c->tag[0] = '\0';
	conn_close(c);
	if (wrong > 1000)
		errx(1, "too many wrong answers");
}

/* Where the target is on the loopback, clients of many addresses: no lack of ports at a connection per request. */
static void
conn_source(int fd)
{
	static unsigned		turn;
	struct sockaddr_in	from = { .sin_family = AF_INET };
	int			one = 1;

	if (ntohl(to.sin_addr.s_addr) >> 24 != 127 || (!opt.close && opt.connections < 20000))
		return;
	from.sin_addr.s_addr = htonl(0x7f000001u + (turn++ % 64));
	setsockopt(fd, SOL_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof(one));
	if (bind(fd, (struct sockaddr *)&from, sizeof(from)) == -1)
		err(1, "bind");
}

static void
conn_open(struct conn *c)
{
	struct epoll_event	e = { .events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data.ptr = c };
	int			one = 1;

	if ((c->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)) == -1)
		err(1, "socket");
	conn_source(c->fd);
	setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	c->state = CONNECTING;
	connecting++;
	connects++;
	if (connect(c->fd, (struct sockaddr *)&to, sizeof(to)) == -1 && errno != EINPROGRESS)
		err(1, "connect");
	if (epoll_ctl(ep, EPOLL_CTL_ADD, c->fd, &e) == -1)
		err(1, "epoll_ctl");
}

/* Sends, and keeps a copy of what the socket did not take.  false: the connection is gone. */
static bool
conn_send(struct conn *c, const char *p, size_t n)
{
	ssize_t	sent = send(c->fd, p, n, MSG_NOSIGNAL);

	if (sent == -1) {
		if (errno != EAGAIN) {
			conn_cut(c, strerror(errno));
			return false;
		}
		sent = 0;
	}
	if ((size_t)sent == n)
		return true;
	c->unsent_at = 0;
	c->unsent_len = n - (size_t)sent;
	if ((c->unsent = malloc(c->unsent_len)) == NULL)
		err(1, "malloc");
	memcpy(c->unsent, p + sent, c->unsent_len);
	return true;
}

static bool
conn_send_rest(struct conn *c)
{
	while (c->unsent_at < c->unsent_len) {
		ssize_t	sent = send(c->fd, c->unsent + c->unsent_at, c->unsent_len - c->unsent_at, MSG_NOSIGNAL);

		if (sent == -1) {
			if (errno == EAGAIN)
				return true;
			conn_cut(c, strerror(errno));
			return false;
		}
		c->unsent_at += (size_t)sent;
	}
	free(c->unsent);
	c->unsent = NULL;
	return true;
}

/* A round of requests. */
static void
conn_ask(struct conn *c)
{
	unsigned	n = opt.depth;
	size_t		len = 0;

	if (opt.requests > 0 && opt.requests - issued < n)
		n = (unsigned)(opt.requests - issued);
	c->state = ASKING;
	c->answered = 0;
	c->puts = 0;
	if ((c->left = n) == 0)
		return;
	issued += n;
	for (unsigned i = 0; i < n; i++) {
		bool	is_put = opt.put == 100 || (opt.put > 0 && dice() % 100 < opt.put);

		c->puts |= (uint64_t)is_put << i;
		len += request_make(c, is_put, batch + len);
	}
	c->sent_ns = now_ns;
	conn_send(c, batch, len);
}

/* The answers of a round are there. */
static void
conn_next(struct conn *c)
{
	if (opt.close) {
		c->state = ENDING;
	} else if (opt.think_ns > 0) {
		c->state = THINKING;
		c->due_ns = now_ns + opt.think_ns;
		STAILQ_INSERT_TAIL(&thinking, c, link);
	} else if (!done)
		conn_ask(c);
}

/* --- answers ---------------------------------------------------------------- */

static void
ready_tell(void)
{
	if (opt.ready_fd != -1 && write(opt.ready_fd, "r", 1) != 1)
		err(1, "--ready");
}

static void
answer_done(struct conn *c)
{
	bool	is_put = (c->puts >> c->answered & 1) != 0;

	c->answered++;
	c->left--;
	if (counting)
		record(is_put, now_ns - c->sent_ns);
	if (!c->first) {
		c->first = true;
		if (++warm == opt.connections)
			ready_tell();
	}
}

enum found { WHOLE, PARTIAL, WRONG };

struct answer {
	unsigned	 status;
	bool		 has_length;
	uint64_t	 length;
	size_t		 head;
	const char	*why;
};

static bool
is_field(const char *p, const char *end, const char *name, size_t n)
{
	return (size_t)(end - p) > n && p[n] == ':' && strncasecmp(p, name, n) == 0;
}

static bool
value_number(const char *p, const char *end, uint64_t *out)
{
	uint64_t	n = 0;
	unsigned	digits = 0;

	while (p < end && (*p == ' ' || *p == '\t'))
		p++;
	for (; p < end && isdigit((unsigned char)*p) && digits < 18; p++, digits++)
		n = n * 10 + (uint64_t)(*p - '0');
	while (p < end && (*p == ' ' || *p == '\t'))
		p++;
	*out = n;
	return digits > 0 && p == end;
}

static void
tag_keep(struct conn *c, const char *p, const char *end)
{
	size_t	n;

	while (p < end && *p == ' ')
		p++;
	n = (size_t)(end - p);
	if (n < TAG_MAX) {
		memcpy(c->tag, p, n);
		c->tag[n] = '\0';
	}
}

/* One field line, without its CRLF. */
static enum found
answer_field(struct conn *c, struct answer *a, const char *p, const char *end)
{
	switch (*p | 0x20) {
	case 'c':
		if (!is_field(p, end, "content-length", 14))
			break;
		if (a->has_length || !value_number(p + 15, end, &a->length)) {
			a->why = "Content-Length twice, or not a number";
			return WRONG;
		}
		a->has_length = true;
		break;
	case 't':
		if (is_field(p, end, "transfer-encoding", 17)) {
			a->why = "Transfer-Encoding";
			return WRONG;
		}
		break;
	case 'e':
		if (opt.if_match && is_field(p, end, "etag", 4))
			tag_keep(c, p + 5, end);
		break;
	}
	return WHOLE;
}

static enum found
answer_head(struct conn *c, struct answer *a, const char *p, size_t n)
{
	const char	*start = p, *end = p + n, *eol;

	if (n < 16)
		return PARTIAL;
	if (memcmp(p, "HTTP/1.1 ", 9) != 0 || !isdigit((unsigned char)p[9]) || !isdigit((unsigned char)p[10]) ||
	    !isdigit((unsigned char)p[11])) {
		a->why = "not a status line";
		return WRONG;
	}
	a->status = (unsigned)((p[9] - '0') * 100 + (p[10] - '0') * 10 + (p[11] - '0'));
	for (bool first = true; (eol = memchr(p, '\n', (size_t)(end - p))) != NULL; p = eol + 1, first = false) {
		if (eol == p || eol[-1] != '\r') {
			a->why = "a bare line feed in the head";
			return WRONG;
		}
		if (eol - 1 == p) {
			a->head = (size_t)(eol + 1 - start);
			return WHOLE;
		}
		if (!first && answer_field(c, a, p, eol - 1) == WRONG)
			return WRONG;
	}
	if (n < HEAD_MAX)
		return PARTIAL;
	a->why = "the head does not end";
	return WRONG;
}

/* Is it the answer to the connection's next request? */
static bool
answer_fits(const struct conn *c, struct answer *a)
{
	bool	is_put = (c->puts >> c->answered & 1) != 0;

	if (is_put)
		a->why = opt.if_match && c->first ? (a->status == 204 ? NULL : "not 204 to a PUT with If-Match") :
		    a->status == 204 || a->status == 201 ? NULL : "neither 201 nor 204 to a PUT";
	else
		a->why = a->status == 200 ? NULL : "not 200 to a GET";
	if (a->why != NULL)
		return false;
	if (a->status == 204) {
		if (a->has_length && a->length != 0)
			a->why = "a 204 with a length";
	} else if (!a->has_length)
		a->why = "no Content-Length";
	else if (!is_put && !opt.any_length && a->length != opt.body)
		a->why = "not the length of the document";
	if (is_put && opt.if_match && c->tag[0] == '\0')
		a->why = "no ETag";
	return a->why == NULL;
}

static enum found
answer_http(struct conn *c, struct answer *a, const char *p, size_t n)
{
	enum found	f = answer_head(c, a, p, n);

	return f == WHOLE && !answer_fits(c, a) ? WRONG : f;
}

/* "+OK", or "$N" and N bytes behind it (its CRLF counts as body). */
static enum found
answer_resp(struct conn *c, struct answer *a, const char *p, size_t n)
{
	bool		 is_put = (c->puts >> c->answered & 1) != 0;
	const char	*eol = memchr(p, '\n', n);

	if (eol == NULL)
		return PARTIAL;
	a->head = (size_t)(eol + 1 - p);
	if (is_put && a->head == 5 && memcmp(p, "+OK\r\n", 5) == 0)
		return WHOLE;
	if (!is_put && *p == '$' && value_number(p + 1, eol - 1, &a->length) && (opt.any_length || a->length == opt.body)) {
		a->length += 2;
		return WHOLE;
	}
	a->why = "not the answer";
	return WRONG;
}

/* Takes what was received.  false: the connection is closed. */
static bool
conn_took(struct conn *c, const char *p, size_t n)
{
	for (;;) {
		struct answer	a = { 0 };
		size_t		body = n < c->body_left ? n : (size_t)c->body_left;

		p += body;
		n -= body;
		if (body > 0 && (c->body_left -= body) == 0)
			answer_done(c);
		if (n == 0 || c->body_left > 0)
			return true;
		if (c->left == 0) {
			conn_wrong(c, "bytes that nobody asked for", p, n);
			return false;
		}
		switch (opt.resp ? answer_resp(c, &a, p, n) : answer_http(c, &a, p, n)) {
		case WRONG:
			conn_wrong(c, a.why, p, n);
			return false;
		case PARTIAL:
			if ((c->held = malloc(n)) == NULL)
				err(1, "malloc");
			memcpy(c->held, p, n);
			c->held_len = n;
			return true;
		case WHOLE:
			p += a.head;
			n -= a.head;
			if ((c->body_left = a.length) == 0)
				answer_done(c);
		}
	}
}

/* Receives until the socket is empty.  false: the connection is closed. */
static bool
conn_receive(struct conn *c, bool to_the_end)
{
	for (;;) {
		char	*p = in + HEAD_MAX;
		ssize_t	 n = recv(c->fd, p, IN_SIZE, 0);

		if (n <= 0) {
			if (n == -1 && errno == EAGAIN)
				return true;
			if (n == 0 && c->left == 0)
				conn_close(c);
			else
				conn_cut(c, n == 0 ? "end of file" : strerror(errno));
			return false;
		}
		bytes_in += (uint64_t)n;
		if (c->held != NULL) {
			p -= c->held_len;
			memcpy(p, c->held, c->held_len);
			n += (ssize_t)c->held_len;
			free(c->held);
			c->held = NULL;
			c->held_len = 0;
		}
		if (!conn_took(c, p, (size_t)n))
			return false;
		if (p + n < in + sizeof(in) && !to_the_end)
			return true;
	}
}

static void
conn_run(struct conn *c, uint32_t events)
{
	now_ns = clock_ns();
	if (c->state == CONNECTING) {
		if ((events & (EPOLLERR | EPOLLHUP)) != 0)
			errx(1, "%s: connection refused", opt.target);
		if ((events & EPOLLOUT) == 0)
			return;
		connecting--;
		if (!done)
			conn_ask(c);
		else
			c->state = ASKING;
		if ((events & EPOLLIN) == 0)
			return;
	}
	if (c->unsent != NULL && (events & EPOLLOUT) != 0 && !conn_send_rest(c))
		return;
	if ((events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) == 0)
		return;
	if (conn_receive(c, (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) && c->state == ASKING && c->left == 0)
		conn_next(c);
}

/* --- the loop ---------------------------------------------------------------- */

static void
open_some(void)
{
	struct conn	*c;

	while (connecting < CONNECTING_MAX && (c = STAILQ_FIRST(&closed)) != NULL) {
		STAILQ_REMOVE_HEAD(&closed, link);
		conn_open(c);
	}
}

/* Wakes those that have thought; milliseconds until the next does. */
static int
think(int most)
{
	struct conn	*c;

	while ((c = STAILQ_FIRST(&thinking)) != NULL && c->due_ns <= now_ns) {
		STAILQ_REMOVE_HEAD(&thinking, link);
		conn_ask(c);
	}
	if (c == NULL || c->due_ns - now_ns > (uint64_t)most * 1000000u)
		return most;
	return (int)((c->due_ns - now_ns + 999999u) / 1000000u);
}

static uint64_t
counted(void)
{
	return of_gets.count + of_puts.count;
}

struct moment {
	uint64_t	ns, bytes_in;
	double		own_s;
	struct usage	server;
};

static void
moment_take(struct moment *m)
{
	m->server = usage_of_server();
	m->own_s = own_cpu_s();
	m->bytes_in = bytes_in;
	m->ns = clock_ns();
}

/*
 * Counting begins when all are connected and the warm-up is over.  With
 * --requests it begins at once.
 */
static void
loop(struct moment *begin, struct moment *end)
{
	struct epoll_event	events[256];
	uint64_t		warm_ns = 0;
	int			n;

	for (;;) {
		now_ns = clock_ns();
		open_some();
		if (warm_ns == 0 && (warm == opt.connections || opt.requests > 0))
			warm_ns = now_ns;
		if (!counting && warm_ns != 0 &&
		    (opt.requests > 0 || (double)(now_ns - warm_ns) / 1e9 >= opt.warm_up)) {
			moment_take(begin);
			now_ns = begin->ns;
			counting = true;
		}
		if (counting && (opt.requests > 0 ? counted() + wrong + cut >= opt.requests :
		    (double)(now_ns - begin->ns) / 1e9 >= opt.seconds))
			break;
		if ((n = epoll_wait(ep, events, 256, think(20))) == -1 && errno != EINTR)
			err(1, "epoll_wait");
		for (int i = 0; i < n; i++)
			conn_run(events[i].data.ptr, events[i].events);
	}
	done = true;
	moment_take(end);
}

/* --- the report --------------------------------------------------------------- */

static void
report_histogram(const char *name, const struct histogram *h)
{
	const char	*comma = "";

	printf(",\n\"%s\":{\"count\":%llu,\"mean_us\":%.2f,\"p50_us\":%.2f,\"p90_us\":%.2f,\"p99_us\":%.2f,\"p99_9_us\":%.2f,"
	    "\"max_us\":%.2f,\"buckets\":[", name, (unsigned long long)h->count,
	    h->count == 0 ? 0 : (double)h->sum_ns / (double)h->count / 1000.0, quantile(h, 0.5), quantile(h, 0.9),
	    quantile(h, 0.99), quantile(h, 0.999), (double)h->max_ns / 1000.0);
	for (unsigned b = 0; b < BUCKETS; b++)
		if (h->in[b] > 0) {
			printf("%s[%.3f,%llu]", comma, bucket_us(b), (unsigned long long)h->in[b]);
			comma = ",";
		}
	printf("]}");
}

static void
report(const struct moment *begin, const struct moment *end)
{
	static struct histogram	both;
	double			seconds = (double)(end->ns - begin->ns) / 1e9;
	uint64_t		n = counted();

	both = of_gets;
	both.count += of_puts.count;
	both.sum_ns += of_puts.sum_ns;
	both.max_ns = of_puts.max_ns > of_gets.max_ns ? of_puts.max_ns : of_gets.max_ns;
	for (unsigned b = 0; b < BUCKETS; b++)
		both.in[b] += of_puts.in[b];
	printf("{\"answers\":%llu,\"seconds\":%.6f,\"per_s\":%.1f,\"wrong\":%llu,\"cut\":%llu,\"connects\":%llu,"
	    "\"bytes_in\":%llu,\"load_cpu_s\":%.3f", (unsigned long long)n, seconds, (double)n / seconds,
	    (unsigned long long)wrong, (unsigned long long)cut, (unsigned long long)connects,
	    (unsigned long long)(end->bytes_in - begin->bytes_in), end->own_s - begin->own_s);
	if (opt.npids > 0)
		printf(",\"server_cpu_s\":%.3f,\"server_written\":%llu", end->server.cpu_s - begin->server.cpu_s,
		    (unsigned long long)(end->server.written - begin->server.written));
	if (opt.device != NULL)
		printf(",\"device_written\":%llu", (unsigned long long)(end->server.device - begin->server.device));
	report_histogram("latency", &both);
	if (opt.put > 0 && opt.put < 100) {
		report_histogram("gets", &of_gets);
		report_histogram("puts", &of_puts);
	}
	printf("}\n");
}

/* --- options ------------------------------------------------------------------ */

static uint64_t
number(const char *s, uint64_t max)
{
	char			*end;
	unsigned long long	 n;

	errno = 0;
	n = strtoull(s, &end, 10);
	if (errno != 0 || end == s || *end != '\0' || n > max || *s == '-')
		errx(64, "%s: not a number up to %llu", s, (unsigned long long)max);
	return n;
}

static double
real(const char *s)
{
	char	*end;
	double	 d = strtod(s, &end);

	if (end == s || *end != '\0' || !(d >= 0 && d <= 1e6))
		errx(64, "%s: not a number of seconds", s);
	return d;
}

static void
pids_parse(char *s)
{
	for (char *p; (p = strsep(&s, ",")) != NULL; opt.pids[opt.npids++] = (long)number(p, 1u << 30))
		if (opt.npids == PIDS_MAX)
			errx(64, "--cpu: too many");
}

static void
target_parse(const char *s)
{
	char	addr[64];
	const char *colon = strrchr(s, ':');

	if (colon == NULL || (size_t)(colon - s) >= sizeof(addr))
		errx(64, "%s: not ADDR:PORT", s);
	memcpy(addr, s, (size_t)(colon - s));
	addr[colon - s] = '\0';
	to.sin_family = AF_INET;
	to.sin_port = htons((uint16_t)number(colon + 1, 65535));
	if (inet_pton(AF_INET, addr, &to.sin_addr) != 1)
		errx(64, "%s: not an IPv4 address", addr);
	opt.target = s;
}

enum { O_CLOSE = 256, O_IF_MATCH, O_ANY_LENGTH, O_READY, O_RESP, O_CPU, O_DEVICE };
static const struct option options[] = {
	{ "connections", 1, NULL, 'c' }, { "depth", 1, NULL, 'p' }, { "close", 0, NULL, O_CLOSE },
	{ "put", 1, NULL, 'm' }, { "if-match", 0, NULL, O_IF_MATCH }, { "keys", 1, NULL, 'k' },
	{ "random", 0, NULL, 'r' }, { "prefix", 1, NULL, 'x' }, { "body", 1, NULL, 'b' },
	{ "any-length", 0, NULL, O_ANY_LENGTH }, { "think", 1, NULL, 't' }, { "warm-up", 1, NULL, 'w' },
	{ "seconds", 1, NULL, 's' }, { "requests", 1, NULL, 'n' }, { "ready", 1, NULL, O_READY },
	{ "resp", 0, NULL, O_RESP }, { "cpu", 1, NULL, O_CPU },
	{ "device", 1, NULL, O_DEVICE }, { NULL, 0, NULL, 0 },
};

static void
option_take(int c)
{
	switch (c) {
	case 'c': opt.connections = (unsigned)number(optarg, 1000000); break;
	case 'p': opt.depth = (unsigned)number(optarg, DEPTH_MAX); break;
	case 'm': opt.put = (unsigned)number(optarg, 100); break;
	case 'k': opt.keys = (unsigned)number(optarg, 10000000); break;
	case 'r': opt.random = true; break;
	case 'x': opt.prefix = optarg; break;
	case 'b': opt.body = number(optarg, 1u << 30); break;
	case 't': opt.think_ns = number(optarg, 1u << 30) * 1000000u; break;
	case 'w': opt.warm_up = real(optarg); break;
	case 's': opt.seconds = real(optarg); break;
	case 'n': opt.requests = number(optarg, UINT64_MAX); break;
	case O_CLOSE: opt.close = true; break;
	case O_IF_MATCH: opt.if_match = true; break;
	case O_ANY_LENGTH: opt.any_length = true; break;
	case O_READY: opt.ready_fd = (int)number(optarg, 1u << 20); break;
	case O_RESP: opt.resp = true; break;
	case O_DEVICE: opt.device = optarg; break;
	case O_CPU: pids_parse(optarg); break;
	default: errx(64, "usage: load [option]... addr:port (its source names the options)");
	}
}

static void
options_check(void)
{
	if (opt.connections == 0 || opt.depth == 0)
		errx(64, "connections and depth are at least 1");
	if (opt.if_match && (opt.depth > 1 || opt.put < 100 || opt.keys < opt.connections || opt.resp))
		errx(64, "--if-match: depth 1, PUTs only, a key for each connection");
	if (opt.close && (opt.depth > 1 || opt.resp))
		errx(64, "--close: depth 1, HTTP only");
	if (opt.requests > 0 && opt.connections > opt.requests)
		opt.connections = (unsigned)opt.requests;
}

int
main(int argc, char **argv)
{
	static struct moment	begin, end;
	struct rlimit		files;

	for (int c; (c = getopt_long(argc, argv, "c:p:m:k:rx:b:t:w:s:n:", options, NULL)) != -1;)
		option_take(c);
	if (optind + 1 != argc)
		option_take('?');
	target_parse(argv[optind]);
	options_check();
	if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
		files.rlim_cur = files.rlim_max;
		setrlimit(RLIMIT_NOFILE, &files);
	}
	(opt.resp ? template_resp : template_http)(&get, false);
	(opt.resp ? template_resp : template_http)(&put, true);
	if ((batch = malloc((put.len + get.len + TAG_MAX + 32) * opt.depth)) == NULL ||
	    (all = calloc(opt.connections, sizeof(*all))) == NULL)
		err(1, "malloc");
	STAILQ_INIT(&closed);
	STAILQ_INIT(&thinking);
	for (unsigned i = 0; i < opt.connections; i++) {
		all[i].number = i;
		all[i].fd = -1;
		STAILQ_INSERT_TAIL(&closed, &all[i], link);
	}
	if ((ep = epoll_create1(EPOLL_CLOEXEC)) == -1)
		err(1, "epoll");
	loop(&begin, &end);
	report(&begin, &end);
	return wrong + cut > 0;
}
