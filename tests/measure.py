#!/usr/bin/env python3
"""The figures of "It must show", each with its goal: python3 tests/measure.py [NAME...]

They depend on the machine and on what else runs there, so they are no part of
make check (pytest marker: measure).  Exit code 0 where every goal is met.
"""
import json
import multiprocessing
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import holdfast  # noqa: E402
from holdfast import BUILD, Daemon, pss_bytes, wait_for  # noqa: E402

MEASURES = {}


def measure(f):
    MEASURES[f.__name__] = f
    return f


class Figure:
    def __init__(self, what, value, unit, goal, ok):
        self.what, self.value, self.unit, self.goal, self.ok = what, value, unit, goal, ok

    def __str__(self):
        return "%-58s %12.2f %-10s goal %-12s %s" % (self.what, self.value, self.unit, self.goal, "ok" if self.ok else "MISSED")


# --- the load: bench's generator, strict about every answer


LOAD = os.path.join(BUILD, "bench", "load")
BARE = os.path.join(BUILD, "bench", "bare")


def load(port, *args, cpu=(), prefix=()):
    """What bench/load says, as a dict."""
    cmd = [*prefix, LOAD, *map(str, args)] + (["--cpu", ",".join(map(str, cpu))] if cpu else []) + ["127.0.0.1:%d" % port]
    r = subprocess.run(cmd, capture_output=True, text=True, timeout=120)
    if r.returncode != 0:
        raise holdfast.Failed("%s: %s" % (" ".join(cmd), r.stderr[-500:]))
    return json.loads(r.stdout)


# --- the figures


def pin(pids, cpus):
    for pid in pids:
        for task in os.listdir("/proc/%d/task" % pid):
            os.sched_setaffinity(int(task), cpus)


def apart(pids):
    """Server on one CPU, load on another: a virtual machine's kernel may pack whoever wakes whom on one, and leave the other idle.
    What the load is to be started with."""
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) == 1:
        return []
    pin(pids, {cpus[-1]})
    return ["taskset", "-c", str(cpus[0])]


@measure
def slow_disk():
    """3 ms added to each sync: 0.8 x connections / 3 ms, in memory and on the disk, whose own sync comes on top."""
    if not os.access(LOAD, os.X_OK):
        return
    shim = holdfast.shim("slowsync")
    places = [("in memory", "/dev/shm")] if os.access("/dev/shm", os.W_OK) else []
    for name, where in [*places, ("on disk", os.environ.get("HOLDFAST_TMP") or tempfile.gettempdir())]:
        with Daemon(where=where, preload=shim, env={"HOLDFAST_SLOWSYNC_US": "3000"}) as d:
            t = d.tenant()
            prefix = apart(d.pids())
            for connections in 64, 8, 1:
                before = _status(d)
                rates = sorted(load(d.port, "-m", 100, "-c", connections, "-k", 1000, "-x", t.path("k"), "-b", 16, "-w", 0.5, "-s", 2,
                                    prefix=prefix)["per_s"] for _ in range(5))
                rate, goal, after = rates[2], 0.8 * connections / 0.003, _status(d)
                syncs, us = (after[k] - before[k] for k in ("syncs_total", "sync_microseconds_total"))
                yield Figure("a sync %s, 3 ms among it, mean" % name, us / syncs / 1000, "ms", "", True)
                yield Figure("PUT/s %s, 3 ms added to a sync, %d connections" % (name, connections), rate, "/s", ">= %.0f" % goal, rate >= goal)


@measure
def get_against_bare():
    """Answers per server CPU second, one worker, against a responder that parses nothing, in alternating slices."""
    if not os.access(LOAD, os.X_OK) or not os.access(BARE, os.X_OK):
        return
    port = holdfast.free_port()
    bare = subprocess.Popen([BARE, str(port)], stdout=subprocess.DEVNULL)
    try:
        wait_for("bench/bare", lambda: _listens(port))
        with Daemon(workers=1) as d:
            t = d.tenant()
            t.put("a", b"x" * 64)
            prefix = apart([bare.pid, *d.pids()])
            servers = {"holdfast": (d.pids(), d.port), "bare": ([bare.pid], port)}
            rates = {name: [] for name in servers}
            for _ in range(7):
                for name, (pids, to) in servers.items():
                    r = load(to, "-c", 64, "-k", 0, "-x", t.path("a"), "-w", 0.2, "-s", 1, cpu=pids, prefix=prefix)
                    rates[name].append(r["answers"] / r["server_cpu_s"])
        # pairs of slices right behind each other: what else the machine does moves both
        ratios = sorted(h / b for h, b in zip(rates["holdfast"], rates["bare"]))
        for name, r in rates.items():
            yield Figure("GET answers per CPU second, 64 connections: %s" % name, sorted(r)[len(r) // 2], "/s", "", True)
        ratio = ratios[len(ratios) // 2]
        yield Figure("holdfast of bare, median (%.0f to %.0f %%)" % (ratios[0] * 100, ratios[-1] * 100), ratio * 100, "%", ">= 70", ratio >= 0.7)
    finally:
        bare.terminate()
        bare.wait()


def _listens(port):
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
        return True
    except OSError:
        return False


@measure
def idle_memory():
    with Daemon() as d:
        t = d.tenant()
        t.conn.close()
        pss = sum(pss_bytes(p) for p in d.pids()) / (1 << 20)
        yield Figure("PSS of all processes, idle, two workers", pss, "MiB", "< 2", pss < 2)
        t.put("a", b"x" * 100)
        t.get("a")
        t.conn.close()
        pss = sum(pss_bytes(p) for p in d.pids()) / (1 << 20)
        yield Figure("the same after a PUT and a GET", pss, "MiB", "< 2", pss < 2)


def _load(address, paths, window, out, status=201):
    """PUTs 64 bytes to every path, `window` in the air on one connection."""
    s = socket.create_connection(address)
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    done = 0
    for at in range(0, len(paths), window):
        batch = paths[at:at + window]
        s.sendall(b"".join(b"PUT %s HTTP/1.1\r\nHost: a\r\nContent-Length: 64\r\n\r\n%-64s" % (p, p) for p in batch))
        tail, have = b"", 0
        while have < len(batch):
            data = s.recv(262144)
            if not data:
                raise holdfast.Failed("cut after %d" % done)
            data = tail + data
            have += data.count(b"HTTP/1.1 %d " % status)
            cut = data.rfind(b"\n")
            tail = data[cut + 1:]
            if b"HTTP/1.1 4" in data or b"HTTP/1.1 5" in data:
                raise holdfast.Failed("%r" % data[:500])
        done += len(batch)
    s.close()
    out.put(done)


def _load_all(port, paths, status):
    out = multiprocessing.Queue()
    ps = [multiprocessing.Process(target=_load, args=(("127.0.0.1", port), paths[n::4], 128, out, status)) for n in range(4)]
    for p in ps:
        p.start()
    done = sum(out.get(timeout=600) for _ in ps)
    for p in ps:
        p.join()
    return done


@measure
def a_million_documents(count=1000000):
    with Daemon() as d:
        t = d.tenant()
        paths = [b"/%s/f%03d/d%06d" % (t.name.encode(), n % 997, n) for n in range(count)]
        started = time.monotonic()
        done = _load_all(d.port, paths, 201)
        yield Figure("documents of 64 B loaded per second", done / (time.monotonic() - started), "/s", "", True)
        s = t.settings()
        yield Figure("documents counted", s["documents"], "", "= %d" % count, s["documents"] == count)
        yield Figure("bytes counted", s["bytes"], "", "= %d" % (64 * count), s["bytes"] == 64 * count)
        rss = sum(pss_bytes(p) for p in d.pids()) / (1 << 20)
        yield Figure("PSS with them", rss, "MiB", "< 150", rss < 150)
        for how in "kill -9", "TERM":
            if how == "TERM":
                d.stop(60)
            else:
                d.kill9()
            started = time.monotonic()
            d.start(60)
            took = time.monotonic() - started
            yield Figure("restart after %s" % how, took, "s", "< 1", took < 1)
            s = d.settings(t.name)
            yield Figure("documents counted after it", s["documents"], "", "= %d" % count, s["documents"] == count and s["bytes"] == 64 * count)
        with d.connect() as c:
            for n in range(0, count, count // 500):
                a = c.ask("GET", paths[n].decode())
                if a.body != b"%-64s" % paths[n]:
                    raise holdfast.Failed("%r: %r" % (paths[n], a))


CHECKPOINT_EACH = 48 << 20  # store/checkpointer.c


def _tail(d):
    """Bytes behind the checkpoint that the last start found, and the milliseconds it took for them."""
    m = d.wait_log(r"recovered in (\d+) ms: .*?(\d+) bytes of log behind checkpoint (\d+)")
    return int(m.group(2)), int(m.group(1)), int(m.group(3))


def _status(d):
    return json.loads(d.ask_admin("GET", "/_status").body)


def _kill_with_tail(d, paths, tail):
    """PUTs over documents at random until `tail` bytes of log, compaction's share included, are behind the checkpoint: kill -9."""
    have, begin, out = _tail(d)[0], _status(d)["logged_bytes_total"], multiprocessing.Queue()
    ps = [multiprocessing.Process(target=_load, args=(("127.0.0.1", d.port), paths[n::4] * 9, 128, out, 204)) for n in range(4)]
    for p in ps:
        p.start()
    try:
        wait_for("the tail", lambda: have + _status(d)["logged_bytes_total"] - begin >= tail, 600, step=0.005)
    finally:
        for p in ps:
            p.terminate()
        d.kill9()
        for p in ps:
            p.join()


@measure
def a_long_tail(count=1000000):
    """kill -9 of everything with 64 MiB of log behind the checkpoint, of the smallest records there are.  So that there are
    as many, checkpoints fail meanwhile, as on a disk that has no room for them (tests/faultio.c)."""
    with tempfile.TemporaryDirectory() as where:
        control = os.path.join(where, "faults")
        with open(control, "wb") as f:
            f.write(bytes(4096))
        with Daemon(preload=holdfast.shim("faultio"), env={"HOLDFAST_FAULTIO": control}) as d:
            t = d.tenant()
            paths = [b"/%s/f%03d/d%06d" % (t.name.encode(), n % 997, n) for n in range(count)]
            _load_all(d.port, paths, 201)
            d.kill9()
            d.start(60)
            if _tail(d)[0] >= CHECKPOINT_EACH:
                wait_for("one that is due", lambda: _status(d)["checkpoints_total"] > 0, 60)
            with open(control, "r+b") as f:
                f.write(b"%08d\nwrite 5 0 0 */tree-*\n" % 1)
            d.kill9()
            d.start(60)
            _kill_with_tail(d, [paths[n * 7919 % count] for n in range(count)], 64 << 20)
            d.env.pop("LD_PRELOAD")
            for how in "kill -9", "kill -9, pages of the files not in memory":
                if how != "kill -9":
                    d.kill9()
                    for name in os.listdir(d.data):
                        with open(os.path.join(d.data, name), "rb") as f:
                            os.fsync(f.fileno())
                            os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                started = time.monotonic()
                d.start(60)
                took = time.monotonic() - started
                size, ms, number = _tail(d)
                if how == "kill -9":
                    yield Figure("log behind checkpoint %d" % number, size / (1 << 20), "MiB", "64 to 70", number > 0 and 64 <= size / (1 << 20) <= 70)
                    yield Figure("restart after %s (%d ms of it recovery)" % (how, ms), took, "s", "< 1", took < 1)
                else:
                    yield Figure("restart after %s (%.0f MiB)" % (how, size / (1 << 20)), took, "s", "", True)
                s = d.settings(t.name)
                yield Figure("documents counted after it", s["documents"], "", "= %d" % count, s["documents"] == count and s["bytes"] == 64 * count)


@measure
def worker_replacement():
    with Daemon() as d:
        t = d.tenant()
        t.put("a", b"x")
        times = []
        for n in range(15):
            old = d.workers()[n % 2]
            killed = time.monotonic()
            os.kill(old, signal.SIGKILL)
            served = 0
            while served < 16:
                with d.connect() as c:
                    try:
                        served += c.ask("GET", t.path("a")).status == 200
                    except (OSError, holdfast.Failed):
                        pass
            times.append((time.monotonic() - killed) * 1000)
            wait_for("both", lambda: len(d.workers()) == 2)
            time.sleep(0.2)  # rest between two deaths is part of the measurement
        times.sort()
        yield Figure("killed worker replaced and serving, median", times[7], "ms", "< 100", times[7] < 100)
        yield Figure("the same, worst of 15", times[-1], "ms", "", True)


@measure
def syscalls_of_a_get():
    if shutil.which("strace") is None:
        return
    with Daemon(workers=1) as d:
        t = d.tenant()
        t.put("a", b"x" * 64)
        pid = d.workers()[0]
        out = os.path.join(d.dir, "strace")
        with d.connect() as c:
            for _ in range(100):
                c.ask("GET", t.path("a"))
            p = subprocess.Popen(["strace", "-f", "-c", "-qq", "-o", out, "-p", str(pid)], stderr=subprocess.DEVNULL)
            wait_for("strace", lambda: b"TracerPid:\t0" not in holdfast.read_file("/proc/%d/status" % pid))
            for _ in range(1000):
                c.ask("GET", t.path("a"))
            p.send_signal(signal.SIGINT)
            p.wait(10)
        calls = {}
        for line in open(out):
            part = line.split()
            if len(part) >= 5 and part[0][0].isdigit() and part[-1] != "total":
                calls[part[-1]] = int(part[3])
        waits = sum(n for k, n in calls.items() if k.startswith("epoll_"))
        rest = sum(calls.values()) - waits
        yield Figure("system calls per GET beside epoll_wait (%s)" % ", ".join("%s %d" % k for k in sorted(calls.items())), rest / 1000, "",
                     "<= 2.01", rest <= 2010)


def main():
    names = sys.argv[1:] or list(MEASURES)
    missed = 0
    busy = os.getloadavg()[0]
    if busy > 0.5:
        print("the machine is not quiet (load %.1f before this began): rates, and what depends on batching, are of it as well" % busy)
    for name in names:
        print("-- " + name, flush=True)
        none = True
        for figure in MEASURES[name]():
            none = False
            print(figure, flush=True)
            missed += not figure.ok
        if none:
            print("skipped: what it needs is not here")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
