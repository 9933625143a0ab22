"""Contract 8, disk full: writes 507, reads and deletes go on, recovers by itself within 5 s (F22 to F27).

Each test has a small ext4 of its own (tests/disk.py); skipped where that cannot be mounted.
"""
import contextlib
import json
import os
import random
import subprocess
import threading
import time

import pytest

from disk import Disk
from holdfast import Client, Daemon, Failed, drive, field, request, wait_for

SOON = 5.0  # the contract's


@pytest.fixture
def disk(tmp_path):
    with Disk(tmp_path) as made:
        yield made


@pytest.fixture
def d(disk):
    with Daemon(where=disk.dir, segment_size="1M", workers=2) as made:
        yield made


def ready(d):
    with d.connect() as c:
        return c.ask("GET", "/_ready")


def detail(a):
    return json.loads(a.body)["detail"]


class Writes(Client):
    """PUTs of bodies that name their number, up to a refusal or `count`; knows what was acknowledged."""

    def __init__(self, t, names, size, count=None, stop_at=(507,)):
        self.t, self.names, self.size, self.left, self.stop_at = t, names, size, count, stop_at
        self.n, self.acked, self.refused, self.over = 0, {}, 0, False

    def body(self, name, n):
        return (b"%s %d " % (name.encode(), n)).ljust(self.size, b".")

    def next(self):
        if self.over or self.left == 0:
            return None
        if self.left is not None:
            self.left -= 1
        self.n += 1
        self.name = next(self.names)
        return request("PUT", self.t.path(self.name), self.body(self.name, self.n))

    def answer(self, status, head, body):
        if status in (201, 204):
            self.acked[self.name] = self.n
        elif status == 507:
            self.refused += 1
            self.over = 507 in self.stop_at
        else:
            raise Failed("%d %r %r" % (status, head, body[:300]))

    def verify(self, gone=()):
        """Everything acknowledged is there, whole."""
        items = list(self.acked.items())
        with self.t.connect() as c:
            for at in range(0, len(items), 50):
                c.send(*[request("GET", self.t.path(name)) for name, n in items[at:at + 50]])
                for name, n in items[at:at + 50]:
                    a = c.answer("GET")
                    if name in gone:
                        assert a.status == 404, (name, a)
                    else:
                        assert a.status == 200 and a.body == self.body(name, n), (name, n, a)


def counted(prefix):
    n = 0
    while True:
        yield "%s%d" % (prefix, n)
        n += 1


def where(d):
    return "127.0.0.1", d.port


def fill_up(d, t, prefix="f", size=4000):
    """Writes until there is a 507, by 16 clients; all that was acknowledged, as one of them."""
    load = [Writes(t, counted("%s%d-" % (prefix, k)), size) for k in range(16)]
    drive(where(d), load, seconds=20)
    assert all(w.refused == 1 for w in load)
    for w in load[1:]:
        load[0].acked.update(w.acked)
    return load[0]


def test_filled_by_us_and_emptied_by_deletes_it_recovers(disk, d):
    """Thousands of deletes on a disk that stays full of other things (F26); what they free comes back by itself."""
    t = d.tenant()
    w = fill_up(d, t)
    assert len(w.acked) > 2000
    disk.fill()
    assert disk.free() < 100000
    a = t.ask("PUT", "more", b"x" * 4000)
    assert a.status == 507 and "log segment" in detail(a)
    a = ready(d)
    assert a.status == 503 and "disk full" in detail(a)
    w.verify()
    names = list(w.acked)
    random.Random(7).shuffle(names)  # no segment dies as a whole: compaction must move what is left
    gone = set(names[:len(names) * 9 // 10])

    class Deletes(Client):
        def __init__(self, names):
            self.names = names

        def next(self):
            return request("DELETE", t.path(self.names.pop())) if self.names else None

        def answer(self, status, head, body):
            assert status == 204, (status, body)
    each = list(gone)
    drive(where(d), [Deletes(each[k::8]) for k in range(8)], seconds=20)
    wait_for("a PUT is taken again", lambda: t.ask("PUT", "more", b"x" * 4000).status == 201, SOON, 0.1)
    wait_for("ready", lambda: ready(d).status == 200, SOON, 0.1)
    more = Writes(t, counted("g"), 4000, count=500)
    drive(where(d), [more], seconds=20)
    assert more.refused == 0
    assert d.settings(t.name)["documents"] == len(names) - len(gone) + 501
    for again in False, True:
        if again:
            t.conn.close()
            d.kill9()
            d.start()
        w.verify(gone)
        more.verify()


def test_filled_from_outside_it_recovers_within_5_s(disk, d):
    t = d.tenant()
    w = Writes(t, counted("a"), 4000, count=100)
    drive(where(d), [w])
    disk.fill()
    w2 = fill_up(d, t, "b")
    assert ready(d).status == 503
    with d.connect() as c:
        for _ in range(50):
            assert c.ask("PUT", t.path("c"), b"x" * 4000).status == 507
            assert c.ask("GET", t.path("a0")).status == 200
    assert t.ask("DELETE", "a0").status == 204
    disk.release()
    began = time.monotonic()
    # the state says so without anybody trying
    wait_for("ready", lambda: ready(d).status == 200, SOON, 0.1)
    assert t.ask("PUT", "c", b"x" * 4000).status == 201
    assert time.monotonic() - began < SOON
    w.verify({"a0"})
    w2.verify()
    assert len([line for line in d.log if "no room for a new log segment" in line]) <= 2  # said, not flooded


def test_full_and_not_full_under_load_nothing_is_lost(disk, d):
    """Overwrites, so that checkpoints and compaction run all the time, while the disk fills and empties (F24)."""
    t = d.tenant()
    rng = random.Random(int(os.environ.get("HOLDFAST_SEED") or 3))
    load = [Writes(t, iter(lambda k=k: "k%d-%d" % (k, rng.randrange(20)), None), rng.choice((500, 9000, 70000)),
                   stop_at=()) for k in range(8)]
    done = threading.Event()

    def toggle():
        while not done.wait(rng.random() * 0.4):
            disk.fill(leave=rng.choice((0, 200000, 1 << 20)))
            if done.wait(rng.random() * 0.5):
                break
            disk.release()
        disk.release()
    th = threading.Thread(target=toggle)
    th.start()
    try:
        drive(where(d), load, seconds=float(os.environ.get("HOLDFAST_SECONDS") or 2))
    finally:
        done.set()
        th.join()
    status = json.loads(d.ask_admin("GET", "/_status").body)
    assert sum(w.refused for w in load) > 0 and sum(w.n for w in load) > 200
    assert status["checkpoints_total"] >= 1 and status["moved_bytes_total"] > 0, status
    wait_for("a PUT is taken again", lambda: t.ask("PUT", "z", b"x" * 4000).status in (201, 204), SOON, 0.1)
    for w in load:
        w.verify()
    t.conn.close()
    d.kill9()
    d.start()
    for w in load:
        w.verify()


def test_a_restart_on_a_full_disk_serves_and_deletes(disk, d):
    t = d.tenant()
    disk.fill(leave=6 << 20)
    w = fill_up(d, t)
    t.conn.close()
    for stop in d.kill9, d.stop:
        stop()
        d.start()
        # known at once, not with the first write that is refused
        a = ready(d)
        assert a.status == 503 and "disk full" in detail(a), a
        w.verify()
        name = next(iter(w.acked))
        assert t.ask("DELETE", name).status == 204
        del w.acked[name]
        assert t.ask("PUT", "more", b"x" * 100000).status == 507
        t.conn.close()
    disk.release()
    wait_for("a PUT is taken again", lambda: t.ask("PUT", "more", b"x" * 100000).status == 201, SOON, 0.1)


def test_who_removes_the_reserve_on_a_full_disk_breaks_nothing(disk, d):
    """It looks like something to delete.  The room is taken for it again, and deletes go on."""
    t = d.tenant()
    w = fill_up(d, t)
    disk.fill()
    names = list(w.acked)
    for spare in "spare-log", "spare-tree":
        os.unlink(os.path.join(d.data, spare))
    for n, name in enumerate(names[:len(names) * 3 // 4]):
        if n == 50:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(d.data, "spare-log"))
        wait_for("a delete", lambda: t.ask("DELETE", name).status in (204, 404), SOON)
        del w.acked[name]
    assert not [line for line in d.log if "NO WRITE" in line]
    disk.release()
    wait_for("a PUT is taken again", lambda: t.ask("PUT", "more", b"x" * 4000).status == 201, SOON, 0.1)
    w.verify()


def start_fails(d):
    d.spawn()
    code = d.process.wait(15)
    wait_for("its last words", lambda: any("holdfastd: " in line for line in d.log))
    return code, "\n".join(d.log[d.run_start:])


@pytest.mark.parametrize("leave", [0, 300000])
def test_full_at_the_very_first_start(disk, leave):
    """A clear message and an exit code; nothing left that the next start would stumble over (F9, F21)."""
    d = Daemon(where=disk.dir, segment_size="1M")
    try:
        disk.fill(leave)
        code, said = start_fails(d)
        assert code not in (0, None) and code > 0
        assert d.data in said and "No space left on device" in said, said
        # without -d the reason is on stderr
        r = subprocess.run(d.command(), capture_output=True, text=True, env=d.env, timeout=15)
        assert r.returncode == code and "No space left on device" in r.stderr, r.stderr
        disk.release()
        d.start()
        d.tenant().put("a", b"x")
    finally:
        d.close()


def test_out_of_inodes_says_inodes(disk, d):
    """F27: df shows room, and yet there is none."""
    t = d.tenant()
    w = Writes(t, counted("a"), 4000, count=20)
    drive(where(d), [w])
    made = []
    try:
        while True:
            made.append(os.path.join(disk.dir, "i%d" % len(made)))
            open(made[-1], "x").close()
    except OSError:
        pass
    w2 = fill_up(d, t, "b")
    a = t.ask("PUT", "c", b"x" * 4000)
    assert a.status == 507 and "inodes" in detail(a), a
    assert "inodes" in detail(ready(d))
    wait_for("the metric", lambda: b"\nholdfast_disk_free_inodes 0\n" in d.ask_admin("GET", "/_metrics").body, 3)
    assert t.ask("DELETE", "a0").status == 204
    for name in made[:-1]:
        os.unlink(name)
    wait_for("a PUT is taken again", lambda: t.ask("PUT", "c", b"x" * 4000).status == 201, SOON, 0.1)
    w.verify({"a0"})
    w2.verify()
