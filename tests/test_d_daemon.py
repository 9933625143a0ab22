"""Contract 8: the command, its configuration, its signals, its files."""
import os
import re
import signal
import socket
import stat
import subprocess
import time

import pytest

from holdfast import HOLDFASTCTL, HOLDFASTD, Daemon, Failed, alive, children, read_file, request, title, wait_for


def run(*args, **more):
    return subprocess.run([HOLDFASTD, *args], capture_output=True, text=True, timeout=20, **more)


def conf(tmp_path, text):
    path = tmp_path / "holdfast.conf"
    path.write_text(text)
    return str(path)


def test_V_prints_the_version():
    r = run("-V")
    assert r.returncode == 0 and re.match(r"holdfastd \d+\.\d+", r.stdout)


def test_an_unknown_flag_is_an_error_with_usage():
    for args in (["-x"], ["operand"], ["-o"]):
        r = run(*args)
        assert r.returncode != 0 and "usage" in r.stderr


def test_usage_of_holdfastctl_has_no_socket_where_none_is_taken():
    r = subprocess.run([HOLDFASTCTL], capture_output=True, text=True, timeout=10)
    assert r.returncode == 64 and "holdfastctl [-s socket] status\n" in r.stderr
    for verb in "check", "repair":
        assert "       holdfastctl %s DIR\n" % verb in r.stderr, r.stderr


GOOD = """# a comment
data-dir {0}/d
listen 127.0.0.1:0
listen [::1]:0
control-socket {0}/c
pid-file {0}/p
  # an indented comment

workers 3
max-connections 100
input-budget 64M
max-document 16M
segment-size 1M
verify-reads first
head-timeout 10s
body-timeout 5
idle-timeout 1m
write-timeout 30s
drain-timeout 5s
tombstone-age 30d
"""


def test_n_checks_the_configuration_and_touches_nothing(tmp_path):
    r = run("-n", "-f", conf(tmp_path, GOOD.format(tmp_path)))
    assert r.returncode == 0, r
    assert sorted(os.listdir(tmp_path)) == ["holdfast.conf"]


@pytest.mark.parametrize("line", [
    "no-such-key 1", "workers many", "workers 0", "workers -1", "workers 1x", "max-document 16Q", "max-document -1", "max-document",
    "segment-size 1k", "segment-size 1023K", "head-timeout soon", "head-timeout 10parsecs", "listen 127.0.0.1", "listen 127.0.0.1:99999",
    "listen host:port", "listen [::1:80", "verify-reads sometimes", "max-document 40M", "input-budget 99999999999999999999", "user no-such-user-here",
    "data-dir", "max-connections 0x10",
])
@pytest.mark.parametrize("flag", ["-n", "-d"])
def test_a_bad_line_is_an_error_that_names_file_and_line(tmp_path, line, flag):
    path = conf(tmp_path, "# first\n\ndata-dir %s/d\n%s\n" % (tmp_path, line))
    r = run(flag, "-f", path)
    assert r.returncode != 0
    assert "holdfast.conf" in r.stderr and re.search(r"\b4\b", r.stderr), r.stderr
    assert sorted(os.listdir(tmp_path)) == ["holdfast.conf"]


def test_a_configuration_that_is_not_there_is_an_error_that_names_it(tmp_path):
    r = run("-n", "-f", str(tmp_path / "none.conf"))
    assert r.returncode != 0 and "none.conf" in r.stderr


def test_o_overrides_the_file_and_is_checked_likewise(tmp_path):
    path = conf(tmp_path, "workers many\n")
    assert run("-n", "-f", path).returncode != 0
    path = conf(tmp_path, GOOD.format(tmp_path))
    assert run("-n", "-f", path, "-o", "workers=5").returncode == 0
    for bad in "workers=x", "none=1", "workers", "=1":
        r = run("-n", "-f", path, "-o", bad)
        assert r.returncode != 0 and r.stderr.strip(), bad


def test_processes_have_titles(daemon):
    assert title(daemon.pid).startswith("holdfastd: master")
    wait_for("both workers' titles", lambda: sorted(daemon.workers()) == [0, 1])
    assert daemon.committer()
    assert len(children(daemon.pid)) == 3


def test_ready_names_every_address_and_port_0_is_a_free_one(fresh):
    d = fresh(started=False)
    cmd = d.command("-d")
    d.command = lambda *flags: cmd + ["-o", "listen=[::1]:0"]
    if not _has_ipv6():
        pytest.skip("no IPv6 here")
    d.spawn()
    line = d.wait_log(r"ready: (.*)").group(1)
    ports = [int(p) for p in re.findall(r"(?:\d|\]):(\d+)", line)]
    assert len(ports) >= 1 and all(ports)
    d.wait_ready()
    for m in re.finditer(r"(127\.0\.0\.1|\[::1\]):(\d+)", line):
        with socket.create_connection((m.group(1).strip("[]"), int(m.group(2))), 5) as s:
            s.sendall(request("GET", "/_health", None, {"Connection": "close"}))
            assert s.recv(100).startswith(b"HTTP/1.1 20")


def _has_ipv6():
    try:
        with socket.socket(socket.AF_INET6) as s:
            s.bind(("::1", 0))
        return True
    except OSError:
        return False


def test_the_pid_file_is_there_and_goes(fresh):
    d = fresh()
    assert int(read_file(d.pid_file)) == d.pid
    assert d.stop() == 0
    assert not os.path.exists(d.pid_file)


def test_a_stale_pid_file_or_socket_stops_nobody(fresh):
    """F56."""
    d = fresh()
    t = d.tenant()
    t.put("a", b"x")
    d.kill9()
    assert os.path.exists(d.pid_file) and os.path.exists(d.control)
    with open(d.pid_file, "w") as f:
        f.write("%d\n" % os.getpid())  # somebody alive, and not holdfastd
    d.start()
    assert int(read_file(d.pid_file)) == d.pid
    with d.connect() as c:
        assert c.ask("GET", t.path("a")).body == b"x"


def test_a_second_start_refuses_and_names_directory_and_pid(fresh):
    d = fresh()
    started = time.monotonic()
    other = dict(control_socket=d.control + "2", pid_file=d.pid_file + "2")
    r = subprocess.run(d.command("-d", **other), capture_output=True, text=True, timeout=20)
    assert time.monotonic() - started < 2
    assert r.returncode != 0
    assert d.data in r.stderr and re.search(r"\b%d\b" % d.pid, r.stderr), r.stderr
    # also where it would share everything
    r = subprocess.run(d.command("-d"), capture_output=True, text=True, timeout=20)
    assert r.returncode != 0 and d.data in r.stderr
    # the first does not notice
    t = d.tenant()
    t.put("a", b"x")
    assert t.get("a").body == b"x"
    assert int(read_file(d.pid_file)) == d.pid


def test_a_port_in_use_is_an_error_that_names_it(fresh):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen()
        port = s.getsockname()[1]
        d = fresh(started=False, listen="127.0.0.1:%d" % port)
        r = subprocess.run(d.command("-d"), capture_output=True, text=True, timeout=20)
        assert r.returncode != 0 and str(port) in r.stderr


def test_a_data_directory_that_cannot_be_is_an_error_that_names_it(fresh):
    for data in "/dev/null/data", "/proc/data":
        d = fresh(started=False, data_dir=data)
        r = subprocess.run(d.command("-d"), capture_output=True, text=True, timeout=20)
        assert r.returncode != 0 and data in r.stderr


def test_term_finishes_what_is_under_way_and_exits_0(fresh):
    d = fresh()
    t = d.tenant()
    t.put("a", b"x")
    idle, busy = d.connect(), d.connect()
    assert idle.ask("GET", t.path("a")).body == b"x"
    busy.send(request("PUT", t.path("b"), None, {"Content-Length": "10", "Expect": "100-continue"}))
    assert busy.answer("PUT", interim=True).status == 100
    busy.send(b"12345")
    pids = d.pids()
    d.process.terminate()
    idle.expect_eof()  # an idle one is closed at once
    idle.close()
    wait_for("nobody listens", lambda: refused(d.port))
    busy.send(b"67890")
    a = busy.answer("PUT")
    assert a.status == 201 and a.closes
    busy.expect_eof()
    busy.close()
    assert d.process.wait(10) == 0
    assert not any(map(alive, pids))
    d.start()
    with d.connect() as c:
        assert c.ask("GET", t.path("b")).body == b"1234567890"


def refused(port):
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except ConnectionRefusedError:
        return True
    except OSError:
        pass
    return False


def test_term_waits_drain_timeout_at_most(fresh):
    d = fresh(drain_timeout="1s")
    t = d.tenant()
    c = d.connect()
    c.send(request("PUT", t.path("b"), None, {"Content-Length": "10", "Expect": "100-continue"}))
    assert c.answer("PUT", interim=True).status == 100
    started = time.monotonic()
    assert d.stop() == 0
    assert 0.5 < time.monotonic() - started < 4


def test_int_stops_too(fresh):
    d = fresh()
    d.process.send_signal(signal.SIGINT)
    assert d.process.wait(10) == 0


def test_term_with_writes_under_way_loses_none_that_was_answered(fresh):
    d = fresh()
    t = d.tenant()
    conns = [d.connect() for _ in range(16)]
    for n, c in enumerate(conns):
        c.send(*[request("PUT", t.path("k%d-%d" % (n, i)), b"x") for i in range(50)])
    assert all(c.answer("PUT").status == 201 for c in conns)
    d.process.terminate()
    acknowledged = []
    for n, c in enumerate(conns):
        i = 1
        while True:
            try:
                a = c.answer("PUT")
            except (AssertionError, ConnectionResetError):
                break
            if a.status == 201:
                acknowledged.append("k%d-%d" % (n, i))
            i += 1
            if a.closes:
                break
        c.close()
    assert d.process.wait(15) == 0
    d.start()
    with d.connect() as c:
        for name in acknowledged:
            assert c.ask("GET", t.path(name)).body == b"x"


def test_hup_keeps_it_serving(fresh):
    """That no kept connection is cut by it is a later issue; that it goes on serving is not."""
    d = fresh()
    t = d.tenant()
    t.put("a", b"x")
    for n in range(3):
        d.process.send_signal(signal.SIGHUP)

        def served():
            try:
                with d.connect() as c:
                    return c.ask("GET", t.path("a")).body == b"x" and c.ask("PUT", t.path("a"), b"x").status == 204
            except (OSError, Failed):
                return False
        wait_for("it serves after HUP", served, 5)
    assert d.process.poll() is None


@pytest.fixture
def background(fresh):
    """background(d, log): starts d without -d; the master's pid."""
    pids = []

    def start(d, log):
        # files, not pipes: a daemon that keeps them must fail a test, not hang it
        with open(os.path.join(d.dir, "out"), "w+") as out:
            r = subprocess.run(d.command(log=log), stdin=subprocess.DEVNULL, stdout=out, stderr=out, timeout=20, env=d.env)
            out.seek(0)
            assert r.returncode == 0, out.read()
        pids.append(int(read_file(d.pid_file)))
        return pids[-1]
    yield start
    for pid in pids:
        if alive(pid):
            os.kill(pid, signal.SIGTERM)
            wait_for("the end of %d" % pid, lambda: not alive(pid))


def test_usr1_reopens_the_log(fresh, background):
    d = fresh(started=False)
    log = os.path.join(d.dir, "log")
    pid = background(d, log)
    assert b"ready" in read_file(log)
    os.rename(log, log + ".1")
    os.kill(pid, signal.SIGUSR1)
    wait_for("a new log", lambda: os.path.exists(log))
    worker = next(p for p in children(pid) if title(p).startswith("holdfastd: worker"))
    os.kill(worker, signal.SIGKILL)
    wait_for("the next line goes to the new log", lambda: b"worker" in read_file(log))


def test_without_d_it_returns_when_requests_are_answered(fresh, background):
    d = fresh(started=False)
    pid = background(d, os.path.join(d.dir, "log"))
    with d.admin() as c:
        assert c.ask("GET", "/_ready").status in (200, 204)
    assert title(pid).startswith("holdfastd: master")
    assert os.readlink("/proc/%d/cwd" % pid) == "/"


def test_nobody_keeps_the_callers_terminal(fresh, background):
    """Or `holdfastd | cat`, and every ssh session that it was started from, would never end."""
    d = fresh(started=False)
    pid = background(d, os.path.join(d.dir, "log"))
    for p in [pid, *children(pid)]:
        for fd in "0", "1", "2":
            name = os.readlink("/proc/%d/fd/%s" % (p, fd))
            assert name in ("/dev/null", os.path.join(d.dir, "log")), (title(p), fd, name)


def test_without_d_a_start_that_fails_returns_the_reason(fresh):
    """F58."""
    d = fresh()
    r = subprocess.run(d.command(control_socket=d.control + "2", log=os.path.join(d.dir, "log")), capture_output=True, text=True, timeout=20)
    assert r.returncode != 0 and d.data in r.stderr


def test_notify_socket_is_told(fresh):
    d = fresh(started=False)
    path = os.path.join(d.dir, "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
        s.bind(path)
        s.settimeout(15)
        d.env["NOTIFY_SOCKET"] = path
        d.start()
        told = b""
        while b"READY=1" not in told:
            told = s.recv(4096)
        d.process.terminate()
        while b"STOPPING=1" not in told:
            told = s.recv(4096)
        assert d.process.wait(10) == 0


def test_the_files_of_the_store_are_nobody_elses(fresh):
    d = fresh()
    d.tenant().put("a", b"x")
    for name in os.listdir(d.data):
        mode = stat.S_IMODE(os.stat(os.path.join(d.data, name)).st_mode)
        assert mode & 0o077 == 0, (name, oct(mode))


def test_it_runs_as_another_user(fresh):
    if os.getuid() != 0:
        pytest.skip("only root can become another user")
    d = fresh(started=False)
    os.chmod(d.dir, 0o777)
    os.chown(d.data, 65534, 65534)
    d.options["user"] = "nobody"
    d.start()
    for pid in d.pids():
        status = read_file("/proc/%d/status" % pid).decode()
        assert re.search(r"^Uid:\s+65534\s+65534\s+65534\s+65534$", status, re.M), title(pid)
    t = d.tenant()
    t.put("a", b"x")
    d.kill9()
    d.start()
    with d.connect() as c:
        assert c.ask("GET", t.path("a")).body == b"x"


def test_nothing_of_the_callers_files_stays_open(tmp_path):
    """F50."""
    r, w = os.pipe()
    os.set_inheritable(w, True)
    d = Daemon()
    spawn = subprocess.Popen
    try:
        d.process = spawn(d.command("-d"), stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, env=d.env, close_fds=False)
        os.close(w)
        import threading
        threading.Thread(target=d._read_log, args=(d.process,), daemon=True).start()
        d.wait_ready()
        assert os.read(r, 1) == b""  # nobody holds the other end
    finally:
        d.close()
        os.close(r)


def test_a_data_directory_of_another_kind_is_left_alone(fresh):
    """What is not ours is not touched: a file where the directory should be, a directory with foreign files."""
    d = fresh(started=False)
    for n in "notes.txt", "x.tmp", "segment", "checkpoint.bak":
        with open(os.path.join(d.data, n), "w") as f:
            f.write("mine")
    d.start()
    d.tenant().put("a", b"x")
    d.kill9()
    d.start()
    for n in "notes.txt", "x.tmp", "segment", "checkpoint.bak":
        assert read_file(os.path.join(d.data, n)) == b"mine"
