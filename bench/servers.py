"""The servers that bench/run measures: how each is started, and what it can do.

A server is started with a directory of its own and pinned to the server's
cores.  What it promises for a write is said with it, and printed with results:
"durable" (synced before it is acknowledged, whole or not at all after a crash),
"not crash-safe" (synced, but a crash may leave half a document), "not synced".
"""
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
SLOW_US = 3000


class Skip(Exception):
    """The server, or the workload with it, is not to be had here; the text says why."""


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def read(path):
    with open(path, "rb") as f:
        return f.read()


def tree(pid):
    """The process and all below it that are alive."""
    parents = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                stat = read("/proc/%s/stat" % name)
            except OSError:
                continue
            parents.setdefault(int(stat.rsplit(b")", 1)[1].split()[1]), []).append(int(name))
    found = [pid]
    for p in found:
        found += parents.get(p, [])
    return found


def pss_kib(pids, part=b"Pss"):
    """Of all together; part Pss_File: what of it are mapped files, which the kernel can drop and read again."""
    total = 0
    for pid in pids:
        m = re.search(rb"^" + part + rb":\s+(\d+) kB", read("/proc/%d/smaps_rollup" % pid), re.M)
        total += int(m.group(1)) if m else 0
    return total


def wait(what, state, seconds=30):
    deadline = time.monotonic() + seconds
    while not state():
        if time.monotonic() > deadline:
            raise Skip("waited %d s: %s" % (seconds, what))
        time.sleep(0.002)


def status(pids, field):
    """A field of /proc/PID/status, of every thread."""
    values = []
    for path in ("/proc/%d/task/%s/status" % (pid, task) for pid in pids for task in os.listdir("/proc/%d/task" % pid)):
        try:
            values.append(re.search(rb"^" + field + rb":\t(.*)$", read(path), re.M).group(1))
        except FileNotFoundError:  # it has just ended
            pass
    return values


def are_traced(pids):
    return b"0" not in status(pids, b"TracerPid")


def at_rest(pids, looks=20):
    """Every thread sleeps, and has not been woken between looks."""
    woken = status(pids, b"voluntary_ctxt_switches")
    for _ in range(looks):
        time.sleep(0.002)
        if not all(s.startswith(b"S") for s in status(pids, b"State")) or status(pids, b"voluntary_ctxt_switches") != woken:
            return False
    return True


class Server:
    name = ""
    durability = "durable"
    resp = False        # speaks Redis's protocol
    if_match = True
    puts = True
    listing = False
    slowable = True     # syncs are calls that a preloaded library sees

    def __init__(self, build, cores):
        self.build, self.cores, self.process, self.port, self.dir, self.settled_kib = build, cores, None, None, None, None

    def check(self):
        """Raises Skip where it cannot run here."""

    def version(self):
        return ""

    def command(self, workload):
        """The command line; self.dir and self.port are set."""
        raise NotImplementedError

    def environment(self):
        return {}

    def log_path(self):
        return os.path.join(self.dir, "log")

    def make_dir(self, base):
        self.dir = tempfile.mkdtemp(prefix="holdfast-bench-", dir=base)
        os.chmod(self.dir, 0o755)

    def start(self, workload, slow=False):
        """Starts it in self.dir and waits until it answers; seconds that it took."""
        self.port = free_port()
        env = dict(os.environ, **self.environment())
        if slow:
            env.update(LD_PRELOAD=os.path.join(self.build, "tests", "slowsync.so"), HOLDFAST_SLOWSYNC_US=str(SLOW_US),
                       HOLDFAST_SLOWSYNC_MERGE="1")
        command = ["taskset", "-c", self.cores] + self.command(workload)
        self.settled_kib = None
        begin = time.monotonic()
        with open(self.log_path(), "ab") as log:
            self.process = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.dir)
        try:
            self.wait_ready(begin + 60)
        except Exception:
            self.stop()
            raise
        return time.monotonic() - begin

    def wait_ready(self, deadline):
        ask = b"PING\r\n" if self.resp else b"GET /ready HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
        want = b"+PONG" if self.resp else b"HTTP/1.1 "
        while True:
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise Skip("does not start: " + self.log_tail())
            try:
                if not self.find_port():
                    raise OSError
                with socket.create_connection(("127.0.0.1", self.port), 1) as s:
                    s.sendall(ask)
                    if s.recv(64).startswith(want):
                        return
            except OSError:
                pass
            time.sleep(0.002)

    def find_port(self):
        """False while it is not known yet."""
        return True

    def prepare(self):
        """After the start, before documents are laid."""

    def log_tail(self):
        return read(self.log_path())[-600:].decode("utf-8", "replace").strip()

    def pids(self):
        return tree(self.process.pid)

    def is_connected(self):
        """A connection to it is open at its end."""
        for line in read("/proc/net/tcp").splitlines()[1:]:
            _, local, _, state = line.split()[:4]
            if local.endswith(b":%04X" % self.port) and state in (b"01", b"08"):  # established, the client has closed
                return True
        return False

    def stop(self, how=signal.SIGTERM):
        if self.process is None:
            return
        pids = self.pids()
        for pid in pids if how == signal.SIGKILL else pids[:1]:
            try:
                os.kill(pid, how)
            except ProcessLookupError:
                pass
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            for pid in pids:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            self.process.wait()
        self.process = None

    def remove(self):
        self.stop()
        if self.dir is not None:
            shutil.rmtree(self.dir, ignore_errors=True)
            self.dir = None


def output(*command):
    p = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return p.stdout.strip()


class Holdfast(Server):
    name = "holdfast"
    listing = True
    workers = 1
    verify = None

    def check(self):
        for program in "holdfastd", "holdfastctl":
            if not os.access(os.path.join(self.build, program), os.X_OK):
                raise Skip("%s is not built" % program)

    def version(self):
        commit = output("git", "-C", HERE, "describe", "--always", "--dirty")
        return commit if re.fullmatch(r"[\w.-]+", commit) else ""

    def command(self, workload):
        d = self.dir
        options = ["data-dir=%s/data" % d, "listen=127.0.0.1:0", "control-socket=%s/ctl" % d, "pid-file=%s/pid" % d,
                   "workers=%d" % self.workers]
        if self.verify:
            options.append("verify-reads=" + self.verify)
        os.makedirs(os.path.join(d, "data"), exist_ok=True)
        try:
            os.unlink(self.log_path())
        except FileNotFoundError:
            pass
        return [os.path.join(self.build, "holdfastd"), "-d", "-f", "/dev/null"] + [x for o in options for x in ("-o", o)]

    def find_port(self):
        m = re.search(rb"ready: .*?http 127\.0\.0\.1:(\d+)", read(self.log_path()))
        if m:
            self.port = int(m.group(1))
        return m is not None

    def prepare(self):
        p = subprocess.run([os.path.join(self.build, "holdfastctl"), "-s", self.dir + "/ctl", "tenant", "add", "bench", "--public",
                            "write"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if p.returncode != 0:
            raise Skip("holdfastctl: " + p.stdout)


class HoldfastFirst(Holdfast):
    name = "holdfast-first"
    verify = "first"


class HoldfastTwo(Holdfast):
    name = "holdfast-2"
    workers = 2


class Bare(Server):
    name = "bare"
    puts = False
    durability = "none"
    slowable = False

    def check(self):
        if not os.access(os.path.join(self.build, "bench", "bare"), os.X_OK):
            raise Skip("bench/bare is not built (make bench)")

    def command(self, workload):
        return [os.path.join(self.build, "bench", "bare")] + (["-c"] if workload.close else []) + [str(self.port), str(workload.body)]


NGINX = """
daemon off;
%(user)s
worker_processes 1;
pid %(dir)s/nginx.pid;
error_log %(dir)s/error.log;
events { worker_connections %(connections)d; }
http {
	access_log off;
	sendfile on;
	tcp_nopush on;
	keepalive_requests 1000000000;
	keepalive_timeout 1h;
	default_type application/octet-stream;
	client_max_body_size 64m;
	client_body_buffer_size 1m;
	client_body_temp_path %(dir)s/body;
	proxy_temp_path %(dir)s/proxy;
	fastcgi_temp_path %(dir)s/fastcgi;
	uwsgi_temp_path %(dir)s/uwsgi;
	scgi_temp_path %(dir)s/scgi;
	open_file_cache max=10000 inactive=1h;
	open_file_cache_valid 1s;
	server {
		listen 127.0.0.1:%(port)d reuseport backlog=4096;
		root %(dir)s/www;
		location /bench/ {
			dav_methods PUT DELETE;
			create_full_put_path on;
		}
	}
}
"""


class Nginx(Server):
    """Static files; PUT by its dav module: a temporary file and a rename, nothing synced."""
    name = "nginx"
    durability = "not synced"
    if_match = False
    slowable = False

    def check(self):
        self.binary = shutil.which("nginx", path=os.environ.get("PATH", "") + ":/usr/sbin")
        if self.binary is None:
            raise Skip("nginx is not here (Debian package nginx-light)")

    def version(self):
        return output(self.binary, "-v").rsplit("/", 1)[-1]

    def command(self, workload):
        os.makedirs(os.path.join(self.dir, "www", "bench"), exist_ok=True)
        conf = os.path.join(self.dir, "nginx.conf")
        with open(conf, "w") as f:
            f.write(NGINX % {"dir": self.dir, "port": self.port, "connections": workload.connections + 100, "user": "user root;" if os.geteuid() == 0 else ""})
        return [self.binary, "-p", self.dir, "-e", self.dir + "/error.log", "-c", conf]


class Redis(Server):
    name = "redis"
    resp = True
    if_match = False

    def check(self):
        self.binary = shutil.which("redis-server")
        if self.binary is None:
            raise Skip("redis-server is not here (Debian package redis-server)")

    def version(self):
        m = re.search(r"v=(\S+)", output(self.binary, "--version"))
        return m.group(1) if m else ""

    def command(self, workload):
        return [self.binary, "--port", str(self.port), "--bind", "127.0.0.1", "--dir", self.dir, "--save", "", "--appendonly", "yes",
                "--appendfsync", "always", "--maxclients", "15000", "--daemonize", "no"]


class Peer(Server):
    """bench/peers/NAME/peer: a program with `forms`, `build OUT`, `version OUT`, `serve OUT FORM PORT DIR`."""

    def __init__(self, build, cores, program, form, durability, slowable):
        super().__init__(build, cores)
        self.program, self.form, self.durability = program, form, durability
        self.peer = os.path.basename(os.path.dirname(program))
        self.name = "%s-%s" % (self.peer, form)
        self.slowable = slowable
        self.out = os.path.join(build, "bench", "peers", self.peer)

    def check(self):
        os.makedirs(self.out, exist_ok=True)
        p = subprocess.run([self.program, "build", self.out], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if p.returncode != 0:
            lines = p.stdout.strip().splitlines()
            raise Skip(lines[-1] if lines else "does not build")

    def version(self):
        return output(self.program, "version", self.out)

    def command(self, workload):
        os.makedirs(os.path.join(self.dir, "data"), exist_ok=True)
        return [self.program, "serve", self.out, self.form, str(self.port), os.path.join(self.dir, "data")]


def peers(build, cores):
    base = os.path.join(HERE, "peers")
    for peer in sorted(os.listdir(base)) if os.path.isdir(base) else []:
        program = os.path.join(base, peer, "peer")
        if not os.access(program, os.X_OK):
            continue
        # a line per form: its name, whether its syncs can be slowed, what it promises
        for line in output(program, "forms").splitlines():
            form, slowable, durability = line.split(None, 2)
            yield Peer(build, cores, program, form, durability, slowable == "slowable")


def every(build, cores):
    return [c(build, cores) for c in (Holdfast, HoldfastFirst, HoldfastTwo, Bare, Nginx, Redis)] + list(peers(build, cores))
