"""Contract 8, design: what a worker can reach, and what a request costs in system calls."""
import os
import re
import shutil
import subprocess
import tempfile
import time

import pytest

from holdfast import Repeat, children, drive, read_file, request, title, wait_for


@pytest.fixture(scope="module")
def filled(daemon):
    t = daemon.tenant()
    for n in range(50):
        t.put("d%d" % n, b"x" * (100 + n * 3000))
    for n in range(50):
        assert t.get("d%d" % n).status == 200
    return t


def mappings(pid):
    for line in read_file("/proc/%d/maps" % pid).decode("latin-1").splitlines():
        part = line.split(None, 5)
        yield part[1], part[5] if len(part) > 5 else ""


def open_files(pid):
    for fd in os.listdir("/proc/%d/fd" % pid):
        try:
            name = os.readlink("/proc/%d/fd/%s" % (pid, fd))
            flags = int(re.search(rb"flags:\s*(\d+)", read_file("/proc/%d/fdinfo/%s" % (pid, fd))).group(1), 8)
        except OSError:
            continue
        yield name, flags & os.O_ACCMODE


def check_worker(daemon, pid):
    for mode, name in mappings(pid):
        assert not (name.startswith(daemon.data) and "w" in mode), (mode, name)
        assert not ("w" in mode and "x" in mode), (mode, name)
    for name, access in open_files(pid):
        if name.startswith(daemon.data) and os.path.basename(name) != "lock":
            assert access == os.O_RDONLY, name


def test_workers_have_no_file_of_the_store_open_for_writing_and_no_writable_mapping(daemon, filled):
    for pid in daemon.workers().values():
        check_worker(daemon, pid)
        # the lock file names processes and holds no document; nothing of the store but it may be there
        overlay = [(m, n) for m, n in mappings(pid) if "overlay" in n]
        assert not any("w" in m for m, n in overlay), overlay


def test_a_replaced_worker_has_none_either(daemon, filled):
    old = daemon.workers()
    os.kill(old[0], 9)
    new = wait_for("the replacement", lambda: (w := daemon.workers()).get(0) not in (None, old[0]) and w)
    with daemon.connect() as c:
        for n in range(50):
            c.ask("GET", filled.path("d%d" % n))
    check_worker(daemon, new[0])


def test_the_master_has_no_file_of_the_store_open(daemon, filled):
    for name, access in open_files(daemon.pid):
        if name.startswith(daemon.data + "/") and os.path.basename(name) != "lock":
            raise AssertionError(name)


def test_no_process_can_write_code(daemon, filled):
    for pid in [daemon.pid, *children(daemon.pid)]:
        assert not [m for m, n in mappings(pid) if "w" in m and "x" in m], title(pid)


# --- system calls

needs_strace = pytest.mark.skipif(shutil.which("strace") is None, reason="no strace")


class Strace:
    """strace on running processes; calls() is {name: count} of what happened inside `with`."""

    def __init__(self, *pids):
        self.out = tempfile.NamedTemporaryFile(prefix="hf-strace-")
        cmd = ["strace", "-f", "-qq", "-o", self.out.name]
        for pid in pids:
            cmd += ["-p", str(pid)]
        self.process = subprocess.Popen(cmd, stderr=subprocess.PIPE)
        self.pids = pids

    def __enter__(self):
        for pid in self.pids:
            for task in os.listdir("/proc/%d/task" % pid):
                wait_for("strace sits on %s" % task, lambda: re.search(
                    rb"TracerPid:\s*[1-9]", read_file("/proc/%d/task/%s/status" % (pid, task))))
        return self

    def __exit__(self, *exc):
        self.process.send_signal(2)
        self.process.wait(10)
        self.process.stderr.close()

    def lines(self):
        return read_file(self.out.name).decode("latin-1").splitlines()

    def calls(self):
        found = {}
        for line in self.lines():
            m = re.match(r"\d+\s+(?:<\.\.\. )?(\w+)(?:\(| resumed)", line)
            if m and "resumed>" not in line:
                found[m.group(1)] = found.get(m.group(1), 0) + 1
        return found


@needs_strace
def test_a_steady_get_is_one_receive_one_send_and_epoll_wait(daemon, filled):
    workers = daemon.workers()
    with daemon.connect() as c:
        for _ in range(20):
            c.ask("GET", filled.path("d0"))
        with Strace(*workers.values()) as s:
            for _ in range(300):
                assert c.ask("GET", filled.path("d0")).status == 200
        calls = s.calls()
    waits = sum(calls.pop(n, 0) for n in ("epoll_wait", "epoll_pwait", "epoll_pwait2"))
    receives = sum(calls.pop(n, 0) for n in ("recvfrom", "read", "recvmsg", "readv"))
    sends = sum(calls.pop(n, 0) for n in ("sendto", "sendmsg", "writev", "write"))
    assert waits <= 330
    assert 300 <= receives <= 310
    assert 300 <= sends <= 310
    # a timer of the loop may fire while this goes on; nothing else is per request
    assert sum(calls.values()) <= 5, calls


@needs_strace
def test_pipelined_answers_share_a_send(daemon, filled):
    with daemon.connect() as c:
        c.ask("GET", filled.path("d0"))
        with Strace(*daemon.workers().values()) as s:
            for _ in range(20):
                c.send(*[request("GET", filled.path("d0"))] * 16)
                for _ in range(16):
                    assert c.answer().status == 200
        calls = s.calls()
    sends = sum(calls.get(n, 0) for n in ("sendto", "sendmsg", "writev", "write"))
    receives = sum(calls.get(n, 0) for n in ("recvfrom", "read", "recvmsg", "readv"))
    assert sends <= 60 and receives <= 60, calls


@needs_strace
def test_64_writers_share_one_sync_per_batch(shims):
    """With a disk that takes 3 ms, so that there is something to share: the writes per fdatasync are many."""
    import holdfast
    d = holdfast.Daemon(preload=shims("slowsync"), env={"HOLDFAST_SLOWSYNC_US": "3000"})
    with d:
        t = d.tenant()
        load = [Repeat(request("PUT", t.path("k%d" % n), b"x" * 16), (201, 204)) for n in range(64)]
        drive(("127.0.0.1", d.port), load, seconds=0.5)
        before = sum(c.count for c in load)
        load = [Repeat(request("PUT", t.path("k%d" % n), b"x" * 16), (204,)) for n in range(64)]
        with Strace(d.committer()) as s:
            drive(("127.0.0.1", d.port), load, seconds=1.5)
        calls = s.calls()
    assert before > 0
    writes = sum(c.count for c in load)
    syncs = sum(calls.get(n, 0) for n in ("fdatasync", "fsync", "sync_file_range", "msync", "syncfs"))
    appends = sum(calls.get(n, 0) for n in ("pwritev", "pwritev2", "writev"))
    zeros = calls.get("pwrite64", 0)  # written ahead, a page at a time (store/README.md)
    assert calls.get("fdatasync", 0) == syncs > 0
    # 64 in the air, about half of them in each sync at least
    assert writes / syncs > 30, (writes, calls)
    # a batch is one write, but for what the log's segments ask for now and then
    assert appends <= syncs + 20, (writes, calls)
    assert zeros <= syncs * 2 + 40, (writes, calls)


def test_an_idle_daemon_sleeps(daemon):
    """No polling: in a second hardly anybody wakes up."""
    def switches():
        n = 0
        for pid in daemon.pids():
            for task in os.listdir("/proc/%d/task" % pid):
                n += int(re.search(rb"\nvoluntary_ctxt_switches:\s*(\d+)", read_file("/proc/%d/task/%s/status" % (pid, task))).group(1))
        return n
    wait_for("calm", lambda: _difference(switches, 0.3) < 20, 10)
    assert _difference(switches, 1.0) < 40


def _difference(count, seconds):
    before = count()
    time.sleep(seconds)  # the length of the measurement, not a wait
    return count() - before
