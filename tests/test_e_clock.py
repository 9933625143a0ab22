"""Contract 8: the clock jumps, or there is none (F65, F66, F67).

Timeouts and ETags do not care; Date and Last-Modified have a floor, the newest
time ever made durable.  The daemon runs with tests/shiftclock.c, which moves its
time of day, and its alone.
"""
import struct
import time

import pytest

from holdfast import Daemon, Failed, http_date, request, wait_for

HOUR = 3600


class Clock:
    """The daemon's, as seconds beside the real one."""

    def __init__(self, path):
        self.path = path
        self.set(0)

    def set(self, seconds):
        with open(self.path, "r+b" if self.exists() else "wb") as f:
            f.write(struct.pack("<q", int(seconds * 1e9)))

    def exists(self):
        try:
            open(self.path).close()
            return True
        except FileNotFoundError:
            return False

    def to_1970(self):
        self.set(100 - time.time())


@pytest.fixture
def clock(tmp_path):
    return Clock(str(tmp_path / "clock"))


@pytest.fixture
def d(fresh, shims, clock):
    def make(**options):
        return fresh(started=False, preload=shims("shiftclock"), env={"HOLDFAST_SHIFTCLOCK": clock.path}, **options)
    return make


def date_of(a):
    return http_date(a["date"])


def modified(t, name):
    a = t.get(name)
    assert a.status == 200
    lm = http_date(a["last-modified"])
    assert lm <= date_of(a), (a["last-modified"], a["date"])
    return lm


def test_the_shim_moves_the_daemons_clock(d, clock):
    clock.to_1970()
    t = d().start().tenant()
    assert date_of(t.put("a", b"x")) < 10000
    clock.set(HOUR)
    wait_for("an hour ahead", lambda: abs(date_of(t.get("a")) - time.time() - HOUR) < 5)


def test_started_in_1970_it_works_and_the_right_time_is_taken_when_it_comes(d, clock):
    clock.to_1970()
    t = d().start().tenant()
    first = t.put("a", b"1").etag
    early = modified(t, "a")
    assert early < 10000
    clock.set(0)
    second = t.put("a", b"2").etag
    assert second != first
    assert abs(modified(t, "a") - time.time()) < 5
    assert t.ask("PUT", "a", b"3", {"If-Match": first}).status == 412
    assert t.ask("PUT", "a", b"3", {"If-Match": second}).status == 204


def test_last_modified_never_runs_backwards_and_date_is_never_before_it(d, clock):
    """An hour forward, an hour back, two back, 1970, forward: documents are dated in the order of their writes."""
    t = d().start().tenant()
    seen, tags, last = [], set(), 0
    for shift in 0, HOUR, 0, -HOUR, -2 * HOUR, 100 - time.time(), 30, 2 * HOUR, 0:
        clock.set(shift)
        for name in "a", "b%d" % len(seen):
            a = t.put(name, b"%d" % len(seen))
            assert a.etag not in tags
            tags.add(a.etag)
            lm = modified(t, name)
            assert lm >= last, (shift, lm, last)
            assert date_of(a) >= int(last)
            last = lm
        seen.append(last)
    # the floor is the newest time made durable, and no more than that
    assert abs(last - time.time() - 2 * HOUR) < 10


def test_the_floor_outlives_a_restart_with_a_clock_in_1970(d, clock):
    dm = d().start()
    t = dm.tenant()
    tag = t.put("a", b"x").etag
    was = modified(t, "a")
    t.conn.close()
    for how in dm.stop, dm.kill9:
        how()
        clock.to_1970()
        dm.start()
        with dm.connect() as c:
            a = c.ask("GET", t.path("a"))
            assert a.etag == tag and http_date(a["last-modified"]) == was
            assert date_of(a) >= was
            b = c.ask("PUT", t.path("b"), b"y")
            assert b.etag != tag and date_of(b) >= was
            assert http_date(c.ask("GET", t.path("b"))["last-modified"]) >= was
            assert c.ask("GET", t.path("a"), fields={"If-Modified-Since": a["last-modified"]}).status == 304
            assert c.ask("PUT", t.path("a"), b"x", {"If-Unmodified-Since": a["last-modified"]}).status == 204
            tag = c.ask("GET", t.path("a")).etag
            was = http_date(c.ask("GET", t.path("a"))["last-modified"])


def test_timeouts_do_not_care_about_jumps(d, clock):
    """A connection is not closed early by a jump forward, and not kept for ever after one back (F66)."""
    dm = d(idle_timeout="1s", head_timeout="1s", body_timeout="1s").start()
    t = dm.tenant()
    t.put("a", b"x")
    with dm.connect() as idle, dm.connect() as half, dm.connect() as body:
        assert idle.ask("GET", t.path("a")).status == 200
        half.send(b"GET ")
        body.send(request("PUT", t.path("u"), None, {"Content-Length": "10"}) + b"123")
        began = time.monotonic()
        for shift in HOUR, -HOUR, 100 - time.time(), 2 * HOUR:
            clock.set(shift)
            assert idle.ask("GET", t.path("a")).status == 200  # an hour has not passed
        assert half.answer("GET").status == 408
        assert body.answer("PUT").status == 408
        took = time.monotonic() - began
        assert 0.8 <= took < 4, took
        idle.expect_eof()
    assert dm.stop() == 0


def test_writers_go_on_while_the_clock_jumps_about(d, clock):
    """The committer gathers, syncs, wakes and sleeps by the monotonic clock."""
    dm = d().start()
    t = dm.tenant()
    tags = set()
    for n in range(60):
        clock.set((n * 7919 % 200 - 100) * HOUR)
        began = time.monotonic()
        tags.add(t.put("a", b"%d" % n).etag)
        assert time.monotonic() - began < 1
    assert len(tags) == 60
    assert [line for line in dm.log if "clock" in line] == []
    clock.set(0)
    dm.kill9()
    dm.start()
    with dm.connect() as c:
        assert c.ask("GET", t.path("a")).body == b"59"
