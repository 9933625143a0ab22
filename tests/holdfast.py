"""The test harness: starts holdfastd, speaks HTTP to it, looks at its processes.

Python 3 standard library only.  Three parts, in reading order:

    Daemon          one holdfastd in the foreground, with its log and its processes
    Conn, Answer    one connection; strict about every byte that comes back
    Client, drive() many connections from one thread, for load

Nothing here sleeps as a wait: wait_for() looks again and again until a state
is there or a deadline has passed, and then says what it was waiting for.
"""
import contextlib
import email.utils
import json
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.path.abspath(os.environ.get("HOLDFAST_BUILD", os.path.join(ROOT, "build")))
HOLDFASTD = os.path.join(BUILD, "holdfastd")
HOLDFASTCTL = os.path.join(BUILD, "holdfastctl")

PATIENCE = 15.0  # seconds; the deadline of everything that has no tighter one


class Failed(AssertionError):
    """What the daemon did is not what the contract says."""


def wait_for(what, state, timeout=PATIENCE, step=0.002):
    """Returns the first true value of state(); fails after `timeout` seconds."""
    end = time.monotonic() + timeout
    while True:
        value = state()
        if value:
            return value
        if time.monotonic() >= end:
            raise Failed("not within %.1f s: %s" % (timeout, what))
        time.sleep(step)


def free_port():
    """A port nobody uses, below the range that outgoing connections take theirs from,
    so that it is still free when a daemon comes back to it."""
    for _ in range(200):
        port = 20000 + int.from_bytes(os.urandom(2), "big") % 12000
        with socket.socket() as s:
            with contextlib.suppress(OSError):
                s.bind(("127.0.0.1", port))
                return port
    raise Failed("no free port")


def shim(name, where=None):
    """The path of the LD_PRELOAD shim tests/NAME.c: make's, or one built now below `where`."""
    source = os.path.join(ROOT, "tests", name + ".c")
    made = os.path.join(BUILD, "tests", name + ".so")
    if not os.path.exists(made) or os.path.getmtime(made) < os.path.getmtime(source):
        made = os.path.join(where or tempfile.gettempdir(), "%s-%d.so" % (name, os.getpid()))
        if not os.path.exists(made):
            subprocess.run([os.environ.get("CC", "cc"), "-std=gnu17", "-O2", "-Wall", "-Wextra", "-shared", "-fPIC",
                            "-o", made, source, "-ldl", "-lpthread"], check=True)
    return made


# --- processes ---------------------------------------------------------------


def read_file(path):
    with open(path, "rb") as f:
        return f.read()


def title(pid):
    """The process title as ps shows it; "" when it is gone or a zombie."""
    try:
        return read_file("/proc/%d/cmdline" % pid).replace(b"\0", b" ").decode("latin-1").strip()
    except OSError:
        return ""


def stat_fields(pid):
    """(state, ppid, utime + stime in seconds), or None when the process is gone."""
    try:
        rest = read_file("/proc/%d/stat" % pid).rpartition(b")")[2].split()
    except OSError:
        return None
    ticks = int(rest[11]) + int(rest[12])
    return rest[0].decode(), int(rest[1]), ticks / os.sysconf("SC_CLK_TCK")


def alive(pid):
    fields = stat_fields(pid)
    return fields is not None and fields[0] not in "ZX"


PF_EXITING = 4  # include/linux/sched.h; in proc(5)'s stat, flags


def exiting(pid):
    """In its exit, or gone: it does nothing any more, but may still have files open, and memory to free after that."""
    try:
        return int(read_file("/proc/%d/stat" % pid).rpartition(b")")[2].split()[6]) & PF_EXITING != 0
    except OSError:
        return True


def children(pid):
    try:
        listed = read_file("/proc/%d/task/%d/children" % (pid, pid)).split()
        return [n for n in map(int, listed) if alive(n)]
    except FileNotFoundError:
        pass  # gone, or a kernel without that list
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            fields = stat_fields(int(name))
            if fields and fields[1] == pid and fields[0] not in "ZX":
                found.append(int(name))
    return found


def pss_bytes(pid):
    for line in read_file("/proc/%d/smaps_rollup" % pid).splitlines():
        if line.startswith(b"Pss:"):
            return int(line.split()[1]) * 1024
    raise Failed("no Pss of %d" % pid)


# --- the daemon ----------------------------------------------------------------


class Daemon:
    """One holdfastd -d.  Options are configuration keys with _ for -: max_document="1M".

    where: the directory to make its own in.  It (data, control socket, pid file) outlives stop() and kill9(), so
    that start() comes back to the same store; close() removes it.
    """

    def __init__(self, preload=None, env=None, where=None, **options):
        self.dir = tempfile.mkdtemp(prefix="hf-", dir=where or os.environ.get("HOLDFAST_TMP") or None)
        self.data = os.path.join(self.dir, "data")
        self.control = os.path.join(self.dir, "ctl")
        self.pid_file = os.path.join(self.dir, "pid")
        self.options = {
            "data-dir": self.data,
            "listen": "127.0.0.1:0",
            "control-socket": self.control,
            "pid-file": self.pid_file,
            "workers": "2",
        }
        if os.getuid() == 0:
            self.options["user"] = "root"  # the directory is ours
        for key, value in options.items():
            self.options[key.replace("_", "-")] = str(value)
        self.env = dict(os.environ)
        self.env.pop("NOTIFY_SOCKET", None)
        self.env.update(env or {})
        if preload:
            self.env["LD_PRELOAD"] = preload
        self.process = None
        self.port = None
        self.log = []  # lines of all runs
        self.run_start = 0  # where this run's lines begin
        self.more = threading.Condition()
        self.tenants = 0
        os.mkdir(self.data)
        with open(os.path.join(self.dir, "conf"), "w"):
            pass  # empty: the machine's own configuration must not count

    def command(self, *flags, **extra):
        options = dict(self.options)
        for key, value in extra.items():
            options[key.replace("_", "-")] = str(value)
        cmd = [HOLDFASTD, *flags, "-f", os.path.join(self.dir, "conf")]
        for key, value in options.items():
            cmd += ["-o", "%s=%s" % (key, value)]
        return cmd

    def spawn(self):
        """Starts it and does not wait."""
        if not os.access(HOLDFASTD, os.X_OK):
            raise Failed("%s is not there: make first, or set HOLDFAST_BUILD" % HOLDFASTD)
        self.run_start = len(self.log)
        self.process = subprocess.Popen(
            self.command("-d"), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE, env=self.env)
        threading.Thread(target=self._read_log, args=(self.process,), daemon=True).start()
        return self

    def start(self, timeout=PATIENCE):
        self.spawn()
        return self.wait_ready(timeout)

    def _read_log(self, process):
        for line in process.stderr:
            with self.more:
                self.log.append(line.decode("utf-8", "replace").rstrip("\n"))
                self.more.notify_all()
        with self.more:
            self.more.notify_all()
        process.stderr.close()

    def wait_log(self, pattern, timeout=PATIENCE):
        """The first line of this run that matches; a match object."""
        regex, at, end = re.compile(pattern), self.run_start, time.monotonic() + timeout
        with self.more:
            while True:
                while at < len(self.log):
                    found = regex.search(self.log[at])
                    at += 1
                    if found:
                        return found
                left = end - time.monotonic()
                if left <= 0 or (self.process.poll() is not None and not self.more.wait(0.2)
                                 and at == len(self.log)):
                    raise Failed("no log line matches %r (exit %s):\n%s" % (
                        pattern, self.process.poll(), self.log_text()))
                self.more.wait(min(left, 0.2))

    def wait_ready(self, timeout=PATIENCE):
        ready = self.wait_log(r"ready: .*?http 127\.0\.0\.1:(\d+)", timeout)
        self.port = int(ready.group(1))
        return self

    def log_text(self):
        return "\n".join(self.log[self.run_start:][-60:])

    # processes

    @property
    def pid(self):
        return self.process.pid

    def workers(self):
        """{number: pid} of the workers that are there now."""
        found = {}
        for pid in children(self.pid):
            m = re.match(r"holdfastd: worker (\d+)", title(pid))
            if m:
                found[int(m.group(1))] = pid
        return found

    def committer(self):
        """Its pid, or None while there is none."""
        for pid in children(self.pid):
            if title(pid).startswith("holdfastd: committer"):
                return pid
        return None

    def wait_committer(self, other_than=None, timeout=PATIENCE):
        return wait_for("a (new) committer", lambda: next(
            (p for p in [self.committer()] if p and p != other_than), None), timeout)

    def pids(self):
        return [self.pid, *children(self.pid)]

    def cpu_seconds(self):
        return sum(f[2] for f in map(stat_fields, self.pids()) if f)

    # ends

    def kill9(self):
        """Everything at once, as the kernel would see a power cut; returns the pids."""
        pids = self.pids()
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()
        wait_for("all killed", lambda: not any(map(alive, pids)), 10)
        return pids

    def kill9_master(self):
        """The master alone; returns the children it leaves behind."""
        left = children(self.pid)
        self.process.kill()
        self.process.wait()
        return left

    def stop(self, timeout=PATIENCE):
        """TERM; returns the exit code."""
        self.process.terminate()
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise Failed("no exit %.1f s after TERM:\n%s" % (timeout, self.log_text())) from None

    def close(self):
        if self.process and self.process.poll() is None:
            self.kill9()
        shutil.rmtree(self.dir, ignore_errors=True)

    def __enter__(self):
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(self, *exc):
        if exc[0] is not None:
            print("--- the daemon's log\n" + self.log_text(), file=sys.stderr)
        self.close()

    # talking to it

    def connect(self, timeout=PATIENCE):
        return Conn(("127.0.0.1", self.port), timeout)

    def admin(self, timeout=PATIENCE):
        return Conn(self.control, timeout)

    def ask_admin(self, method, target, body=None, fields=()):
        with self.admin() as c:
            return c.ask(method, target, body, fields)

    def tenant(self, public="write", name=None):
        """A fresh tenant."""
        if name is None:
            self.tenants += 1
            name = "t%d" % self.tenants
        a = self.ask_admin("PUT", "/_tenants/" + name, json.dumps({"public": public}).encode())
        if a.status not in (201, 204):
            raise Failed("tenant %s: %r" % (name, a))
        return Tenant(self, name)

    def settings(self, name):
        a = self.ask_admin("GET", "/_tenants/" + name)
        if a.status != 200:
            raise Failed("tenant %s: %r" % (name, a))
        return json.loads(a.body)


class Tenant:
    """A name for a tenant, and one connection for those who need no more."""

    def __init__(self, daemon, name):
        self.daemon, self.name, self._conn = daemon, name, None

    def path(self, document):
        return "/%s/%s" % (self.name, document)

    def connect(self, timeout=PATIENCE):
        return self.daemon.connect(timeout)

    @property
    def conn(self):
        if self._conn is None or self._conn.done:
            self._conn = self.connect()
        return self._conn

    def ask(self, method, document, body=None, fields=()):
        return self.conn.ask(method, self.path(document), body, fields)

    def after(self, a, target):
        """Conn.after() on the connection of the last ask()."""
        self._conn.after(a, target)

    def put(self, document, body=b"", fields=()):
        a = self.ask("PUT", document, body, fields)
        if a.status not in (201, 204):
            raise Failed("PUT %s: %r" % (document, a))
        return a

    def get(self, document, fields=()):
        return self.ask("GET", document, None, fields)

    def settings(self):
        return self.daemon.settings(self.name)


# --- one connection, strict ------------------------------------------------------

TOKEN = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
STATUS_LINE = re.compile(rb"HTTP/1\.1 ([1-5][0-9][0-9]) [ -~]*\Z")
FIELD_LINE = re.compile((r"(%s):[ \t]*((?:[!-~\x80-\xff](?:[ -~\t\x80-\xff]*[!-~\x80-\xff])?)?)[ \t]*\Z"
                         % TOKEN).encode("latin-1"))
IMF_FIXDATE = re.compile(r"(Mon|Tue|Wed|Thu|Fri|Sat|Sun), \d\d (Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
                         r" \d{4} \d\d:\d\d:\d\d GMT\Z")
STRONG_TAG = re.compile(r'"[!#-~\x80-\xff]*"\Z')
SINGLE = {  # fields an answer may carry once at most
    "date", "server", "etag", "last-modified", "content-type", "content-length", "content-range", "location",
    "accept-ranges", "connection", "retry-after", "transfer-encoding", "cache-control", "content-encoding",
    "content-language", "content-disposition", "x-content-type-options", "content-security-policy", "allow",
    "www-authenticate",
}


def http_date(text):
    """Seconds since 1970 of an IMF-fixdate; fails on any other form."""
    if not IMF_FIXDATE.match(text):
        raise Failed("not an IMF-fixdate: %r" % text)
    return email.utils.parsedate_to_datetime(text).timestamp()


def to_date(seconds):
    return email.utils.formatdate(seconds, usegmt=True)


class Answer:
    def __init__(self, status, fields, body=b""):
        self.status, self.fields, self.body = status, fields, body

    def get(self, name, default=None):
        values = [v for n, v in self.fields if n == name.lower()]
        return ", ".join(values) if values else default

    def __getitem__(self, name):
        value = self.get(name)
        if value is None:
            raise Failed("no %s in %r" % (name, self))
        return value

    def __contains__(self, name):
        return self.get(name) is not None

    @property
    def etag(self):
        tag = self["etag"]
        if not STRONG_TAG.match(tag):
            raise Failed("not a strong tag: %r" % tag)
        return tag

    @property
    def closes(self):
        return "close" in [t.strip().lower() for t in self.get("connection", "").split(",")]

    def __repr__(self):
        return "<%d %s %r>" % (self.status, dict(self.fields), self.body[:200])


def request(method, target, body=None, fields=(), version="1.1", host="localhost"):
    """The bytes of a request.  A bytes body gets a Content-Length, None neither length nor body.
    fields: a dict or pairs; Host and Content-Length are added where they are not among them."""
    pairs = list(fields.items() if isinstance(fields, dict) else fields)
    have = {n.lower() for n, _ in pairs}
    head = ["%s %s HTTP/%s" % (method, target, version)]
    if host is not None and "host" not in have:
        head.append("Host: " + host)
    if body is not None and not have & {"content-length", "transfer-encoding"}:
        head.append("Content-Length: %d" % len(body))
    head += ["%s: %s" % p for p in pairs]
    return "\r\n".join(head).encode("latin-1") + b"\r\n\r\n" + (body or b"")


def chunked(*chunks, trailers=b""):
    return b"".join(b"%x\r\n%s\r\n" % (len(c), c) for c in chunks) + b"0\r\n" + trailers + b"\r\n"


class Conn:
    """One connection, TCP (host, port) or Unix (path).  Every answer is checked for its
    framing and for what the contract wants on each: Date, Server, problem+json."""

    def __init__(self, address, timeout=PATIENCE, rcvbuf=None):
        family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
        self.sock = socket.socket(family, socket.SOCK_STREAM)
        self.sock.settimeout(timeout)
        if rcvbuf:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, rcvbuf)
        self.sock.connect(address)
        if family == socket.AF_INET:
            self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buf = b""
        self.done = False  # the last answer said close, or the other end closed

    def close(self):
        self.done = True
        self.sock.close()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()

    def send(self, *parts):
        self.sock.sendall(b"".join(parts))

    def half_close(self):
        self.sock.shutdown(socket.SHUT_WR)

    def _more(self):
        data = self.sock.recv(1 << 18)
        if not data:
            self.done = True
            raise Failed("the connection ended inside an answer: %r" % self.buf[:300])
        self.buf += data

    def _line(self):
        while b"\r\n" not in self.buf:
            if len(self.buf) > 65536:
                raise Failed("endless line: %r" % self.buf[:200])
            self._more()
        line, _, self.buf = self.buf.partition(b"\r\n")
        return line

    def _exactly(self, n):
        parts, have = [self.buf[:n]], min(n, len(self.buf))
        self.buf = self.buf[n:]
        while have < n:
            data = self.sock.recv(min(n - have, 1 << 20))
            if not data:
                self.done = True
                raise Failed("the body ended after %d of %d bytes" % (have, n))
            parts.append(data)
            have += len(data)
        return b"".join(parts)

    def head(self):
        """Status and fields of the next answer, interim ones too."""
        line = self._line()
        m = STATUS_LINE.match(line)
        if not m:
            raise Failed("not a status line: %r" % (line + b"\r\n" + self.buf)[:300])
        fields = []
        while True:
            line = self._line()
            if not line:
                break
            f = FIELD_LINE.match(line)
            if not f:
                raise Failed("not a field line: %r" % line[:300])
            fields.append((f.group(1).decode("latin-1").lower(), f.group(2).decode("latin-1")))
        names = [n for n, _ in fields]
        for name in SINGLE:
            if names.count(name) > 1:
                raise Failed("%s appears %d times: %r" % (name, names.count(name), fields))
        return Answer(int(m.group(1)), fields)

    def answer(self, method="GET", interim=False):
        """The next answer to a request with that method.  interim: 1xx ones are returned, else they fail."""
        a = self.head()
        if a.status < 200:
            if "content-length" in a or "transfer-encoding" in a:
                raise Failed("an interim answer with a body: %r" % a)
            if interim:
                return a
            raise Failed("an interim answer nobody asked for: %r" % a)
        http_date(a["date"])
        if a["server"] != "holdfast":
            raise Failed("Server: %r" % a["server"])
        length = a.get("content-length")
        if length is not None and not re.match(r"(0|[1-9]\d*)\Z", length):
            raise Failed("Content-Length: %r" % length)
        if a.status == 204 and (length is not None or "transfer-encoding" in a):
            raise Failed("a 204 with framing: %r" % a)
        if method == "HEAD" or a.status in (204, 304):
            pass
        elif "transfer-encoding" in a:
            if length is not None or a["transfer-encoding"] != "chunked":
                raise Failed("odd framing: %r" % a)
            a.body = self._chunks()
        elif length is not None:
            a.body = self._exactly(int(length))
        else:
            raise Failed("no framing: %r" % a)
        if a.status >= 400 and method != "HEAD":
            check_problem(a)
        if a.closes:
            self.done = True
        return a

    def _chunks(self):
        parts = []
        while True:
            size = self._line()
            if not re.match(rb"[0-9A-Fa-f]{1,16}\Z", size):
                raise Failed("chunk size %r" % size)
            n = int(size, 16)
            if n == 0:
                break
            parts.append(self._exactly(n))
            if self._exactly(2) != b"\r\n":
                raise Failed("a chunk does not end where it said")
        while self._line():
            pass
        return b"".join(parts)

    def ask(self, method, target, body=None, fields=(), **how):
        self.send(request(method, target, body, fields, **how))
        return self.answer(method)

    def expect_eof(self, timeout=6.0):
        """The other end closes now, in order (no reset), and says nothing more."""
        self.sock.settimeout(timeout)
        rest = self.buf or self.sock.recv(4096)
        if rest:
            raise Failed("bytes behind the last answer: %r" % rest[:300])
        self.done = True

    def expect_kept(self, target):
        """The connection is in order: a request on it is answered, and its answer is the next thing there."""
        a = self.ask("GET", target)
        if a.status not in (200, 401, 404):
            raise Failed("the connection is not in order: %r" % a)

    def after(self, a, target):
        """Whatever an answer promised about the connection holds."""
        if a.closes:
            self.expect_eof()
        else:
            self.expect_kept(target)


def check_problem(a):
    if a["content-type"] != "application/problem+json":
        raise Failed("not a problem+json: %r" % a)
    problem = json.loads(a.body)
    if problem.get("status") != a.status:
        raise Failed("problem says %r: %r" % (problem.get("status"), a))
    for member in ("title", "detail"):
        if not isinstance(problem.get(member), str) or not problem[member]:
            raise Failed("problem without %s: %r" % (member, a))


# --- many connections, fast --------------------------------------------------------


class Client:
    """One connection of a load.  Override next() and answer(); cut() where cuts are part of the test.

    next() gives the bytes of the next request, or None to end this client, or a number: seconds of rest.
    """

    def next(self):
        return None

    def answer(self, status, head, body):
        """head is everything up to the empty line, as bytes."""

    def cut(self, why):
        """The connection ended while a request was under way (or could not be made).
        True: connect again and go on with next()."""
        raise Failed("connection cut: %s" % why)


class _Link:
    __slots__ = ("client", "sock", "out", "buf", "waiting", "connecting", "mask", "due", "need")

    def __init__(self, client):
        self.client, self.sock, self.out, self.buf = client, None, b"", b""
        self.waiting, self.connecting, self.mask, self.due, self.need = False, False, 0, 0.0, 0


LENGTH = re.compile(rb"\r\n[Cc]ontent-[Ll]ength: *(\d+)")


def drive(address, clients, seconds=None, stop=None, patience=PATIENCE):
    """Runs clients, one connection each, until all ended, or `seconds` are over, or stop() is true;
    then every answer still due is waited for (`patience`), so that no request has an unknown end
    for this side's reasons.  address: (host, port), a path, or a function that gives either."""
    where = address if callable(address) else lambda: address
    poll = select.epoll()
    links, live, resting = {}, set(), set()
    end = time.monotonic() + seconds if seconds is not None else None
    ending = False

    def drop(link):
        if link.sock is not None:
            links.pop(link.sock.fileno(), None)
            link.sock.close()  # leaves the epoll set with it
        link.sock, link.out, link.buf, link.waiting, link.connecting, link.need = None, b"", b"", False, False, 0

    def rest(link, delay):
        link.due = time.monotonic() + delay
        resting.add(link)

    def arm(link, mask):
        if link.mask != mask:
            poll.modify(link.sock.fileno(), mask)
            link.mask = mask

    def broken(link, why):
        drop(link)
        if link.client.cut(why) and not ending:
            rest(link, 0.005)
        else:
            live.discard(link)

    def connect(link):
        try:
            to = where()
            if isinstance(to, str):
                link.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                link.sock.connect(to)
                link.sock.setblocking(False)
            else:
                link.sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
                link.sock.setblocking(False)
                link.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                try:
                    link.sock.connect(to)
                except BlockingIOError:
                    link.connecting = True
        except OSError as e:
            drop(link)
            rest(link, 0.01)
            return e
        link.mask = select.EPOLLIN | (select.EPOLLOUT if link.connecting else 0)
        poll.register(link.sock.fileno(), link.mask)
        links[link.sock.fileno()] = link
        if not link.connecting:
            go(link)
        return None

    def flush(link):
        try:
            while link.out:
                n = link.sock.send(link.out)
                link.out = link.out[n:] if n < len(link.out) else b""
        except BlockingIOError:
            pass
        except OSError as e:
            # what was answered before the cut is still there to be read
            return e
        arm(link, select.EPOLLIN | (select.EPOLLOUT if link.out else 0))
        return None

    def go(link):
        if ending:
            drop(link)
            live.discard(link)
            return
        data = link.client.next()
        if data is None:
            drop(link)
            live.discard(link)
        elif isinstance(data, (int, float)):
            rest(link, data)
        else:
            link.out = memoryview(data) if len(data) > 65536 else data
            link.waiting = True
            if flush(link) is not None:
                link.out = b""

    def readable(link):
        try:
            data = link.sock.recv(262144)
        except BlockingIOError:
            return
        except OSError as e:
            data, why = b"", str(e)
        else:
            why = "end of file"
        if not data:
            if link.waiting:
                broken(link, why)
            else:  # an idle connection may be closed: nobody is hurt
                drop(link)
                if link not in resting:
                    rest(link, 0)
            return
        buf = link.buf + data if link.buf else data
        while True:
            if not link.waiting:
                raise Failed("bytes nobody asked for: %r" % buf[:300])
            if len(buf) < link.need:
                link.buf = buf
                return
            at = buf.find(b"\r\n\r\n")
            if at < 0:
                link.buf = buf
                return
            if not buf.startswith(b"HTTP/1.1 "):
                raise Failed("not a status line: %r" % buf[:300])
            status = int(buf[9:12])
            if status == 204 or status == 304:
                size = at + 4
            else:
                m = LENGTH.search(buf, 0, at)
                if not m:
                    raise Failed("no framing: %r" % buf[:at])
                size = at + 4 + int(m.group(1))
                if len(buf) < size:
                    link.need, link.buf = size, buf
                    return
            head, body, rest_of = buf[:at], buf[at + 4:size], buf[size:]
            link.need, link.buf, link.waiting = 0, b"", False
            link.client.answer(status, head, body)
            if b"\r\nConnection: close" in head:
                drop(link)
                rest(link, 0)
                return
            go(link)
            if not rest_of or link.sock is None:
                return
            buf = rest_of

    for client in clients:
        link = _Link(client)
        live.add(link)
        connect(link)
    try:
        while live:
            now = time.monotonic()
            if not ending and ((end is not None and now >= end) or (stop and stop())):
                ending = True
                patient = now + patience
                for link in [k for k in live if not k.waiting]:
                    drop(link)
                    live.discard(link)
                    resting.discard(link)
            if ending and live and now >= patient:
                raise Failed("%d requests without an answer after %.0f s" % (len(live), patience))
            if resting:
                for link in [k for k in resting if k.due <= now]:
                    resting.discard(link)
                    if link.sock is None:
                        connect(link)
                    else:
                        go(link)
            timeout = 0.2
            if resting:
                timeout = max(0.0, min(min(k.due for k in resting) - now, 0.2))
            if end is not None and not ending:
                timeout = max(0.0, min(timeout, end - now))
            for fd, mask in poll.poll(timeout):
                link = links.get(fd)
                if link is None:
                    continue
                if link.connecting:
                    error = link.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                    if error:
                        drop(link)
                        rest(link, 0.01)
                        continue
                    if mask & select.EPOLLOUT:
                        link.connecting = False
                        arm(link, select.EPOLLIN)
                        go(link)
                    continue
                if mask & select.EPOLLOUT and link.out:
                    if flush(link) is not None:
                        link.out = b""
                if mask & ~select.EPOLLOUT:
                    readable(link)
    finally:
        for link in list(links.values()):
            link.sock.close()
        poll.close()


def field(head, name):
    """One field of a head as drive() gives it, or None."""
    m = re.search(rb"\r\n" + name + rb": *([^\r]*)", head, re.I)
    return m.group(1) if m else None


class Repeat(Client):
    """Sends the same request over and over and counts the answers that begin as they should."""

    def __init__(self, data, status, count=None):
        self.data, self.status, self.left, self.count = data, status, count, 0

    def next(self):
        if self.left is not None:
            if self.left == 0:
                return None
            self.left -= 1
        return self.data

    def answer(self, status, head, body):
        if status not in self.status:
            raise Failed("%d: %r %r" % (status, head, body[:300]))
        self.count += 1
