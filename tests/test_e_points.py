"""Issue 3, 1 and 3: the committer dies at each named point, and of what it was given.  Needs a build that has the points:
make check-crash."""
import contextlib
import os
import random
import signal
import threading

import pytest

from crash import points, workload
from crash.killer import Killer
from holdfast import Client, alive, drive, request, wait_for

pytestmark = pytest.mark.skipif(not points.there(), reason="the daemon was built without crash points: make check-crash")

DEADLINE = 20.0
# nine: who crashes ten times in a row within a second of its start is started again only after five
SOME = ["mid-append", "after-append", "after-sync", "after-publish", "mid-complete", "roll-renamed", "ck-written", "move-written", "recover-cut"]


@pytest.fixture
def armed(fresh):
    """armed(key=value): a daemon of small segments whose points can be armed: d.points."""
    def make(**options):
        d = fresh(started=False, **{"segment_size": "1M", **options})
        d.points = points.Points(d.dir)
        d.env.update(d.points.env)
        return d.start()
    return make


def crashes(d):
    return sum("was ended by signal 6" in line for line in d.log)


def failed_as_poison(d):
    return sum("committers crashed; it is failed" in line for line in d.log)


class Load:
    """The clients of the crash test on one fresh tenant, from a thread, until close(); then the check of what they saw.
    strict: not one request may fail."""

    def __init__(self, d, strict=True):
        self.d, self.tenant = d, d.tenant()
        self.round = workload.Round(self.tenant.name, random.Random(11))
        self.round.strict = strict
        self.done, self.failure = threading.Event(), None
        self.thread = threading.Thread(target=self.run, daemon=True)

    def run(self):
        try:
            clients = self.round.clients()
            with workload.SlowReader(self.round, lambda: ("127.0.0.1", self.d.port)):
                drive(lambda: ("127.0.0.1", self.d.port), clients, stop=self.done.is_set, patience=30)
        except BaseException as e:
            self.failure = e

    def __enter__(self):
        self.thread.start()
        wait_for("some writes", lambda: self.round.acknowledged > 300 or self.failure)
        return self

    def __exit__(self, *exc):
        self.d.points.disarm()
        self.done.set()
        self.thread.join(60)
        if self.failure:
            raise self.failure
        if exc[0] is None:
            found, keys = {}, workload.keys_of(self.round)
            drive(("127.0.0.1", self.d.port), [workload.Reader(self.round, keys[n::4], found) for n in range(4)])
            assert workload.verify(self.round, found, self.d.settings(self.tenant.name)) > 10


@pytest.mark.parametrize("action", ["kill", "abort", "stop"])
def test_at_each_point_in_turn_and_not_one_request_fails(armed, action):
    d = armed()
    with Load(d) as load:
        killer = Killer(d, random.Random(1), load.round, d.points)
        names = SOME if action == "abort" else points.names()
        for name in names:
            pid = d.wait_committer()
            d.points.arm(name, action)
            if name.startswith("recover-"):
                os.kill(pid, signal.SIGKILL)
            assert d.points.wait(DEADLINE), "nobody came by %s: %s" % (name, load.failure)
            if action == "stop":
                pid = d.wait_committer()
                points.wait_stopped(pid)
                os.kill(pid, signal.SIGCONT)
            else:
                wait_for("the next one", lambda: d.committer() not in (None, pid))
            if action == "abort":
                killer._settle()
            assert load.failure is None
    if action == "abort":
        assert crashes(d) == len(names) and failed_as_poison(d) == 0


def test_everything_dies_at_each_point_in_turn(armed):
    """The committer stands still there, and then all are killed: what a restart finds was not made by a dying process."""
    d = armed()
    with Load(d, strict=False) as load:
        for name in points.names():
            pid = d.wait_committer()
            d.points.arm(name, "stop")
            if name.startswith("recover-"):
                os.kill(pid, signal.SIGKILL)
            assert d.points.wait(DEADLINE), "nobody came by %s: %s" % (name, load.failure)
            d.kill9()
            d.start()
            assert load.failure is None


def test_a_poisoned_write_is_failed_after_two_crashes_and_nobody_else(armed, shims):
    """Two of them at a time, beside writers whose batches they are in (each sync takes 4 ms, so batches are large and
    the next one is built meanwhile), and beside refusals that ride along."""
    d = armed()
    d.kill9()
    d.env.update(LD_PRELOAD=shims("slowsync"), HOLDFAST_SLOWSYNC_US="4000")
    d.start()
    statuses = []
    with Load(d) as load:
        def poison(n):
            with d.connect(60) as c:
                statuses.append(c.ask("PUT", load.tenant.path("%d/%s" % (n, points.MARK)), b"x").status)
        for turn in range(2):
            before = crashes(d)
            pair = [threading.Thread(target=poison, args=(turn * 2 + n,)) for n in range(2)]
            for p in pair:
                p.start()
            for p in pair:
                p.join(60)
            assert statuses == [500] * (2 * turn + 2)
            wait_for("its line in the log", lambda: failed_as_poison(d) == 2 * turn + 2)
            assert crashes(d) - before == 4
    with d.connect() as c:
        for n in range(4):
            assert c.ask("GET", load.tenant.path("%d/%s" % (n, points.MARK))).status == 404


def one_write_under_way(d, t, name):
    """A connection on which one PUT was sent and not answered."""
    c = d.connect(60)
    c.send(request("PUT", t.path(name), b"under way"))
    return c


def end_at(d, point, sig, then):
    """Waits until the committer stands still at the point; arms the one where its successor shall; ends it."""
    assert d.points.wait(DEADLINE), "nobody came by %s" % point
    pid = d.wait_committer()
    points.wait_stopped(pid)
    if then:
        d.points.arm(then, "stop")
    os.kill(pid, sig)
    with contextlib.suppress(ProcessLookupError):  # SIGKILL does not wait for it
        os.kill(pid, signal.SIGCONT)


def test_a_kill_from_outside_never_counts(armed):
    """One write, under work when each of twelve committers is killed."""
    d = armed()
    t = d.tenant()
    d.points.arm("mid-append", "stop")
    with one_write_under_way(d, t, "a") as c:
        for left in range(11, -1, -1):
            end_at(d, "mid-append", signal.SIGKILL, "mid-append" if left else None)
        assert c.answer("PUT").status == 201
    assert failed_as_poison(d) == 0


def test_two_crashes_that_are_others_doing_fail_nothing(armed):
    """A write is under work at a crash, is so again when its committer is killed from outside, and the next one crashes
    before it has looked at any: that is one crash, not two."""
    d = armed()
    t = d.tenant()
    d.points.arm("mid-append", "stop")
    with one_write_under_way(d, t, "a") as c:
        end_at(d, "mid-append", signal.SIGABRT, "mid-append")
        end_at(d, "mid-append", signal.SIGKILL, "recover-scanned")
        end_at(d, "recover-scanned", signal.SIGABRT, None)
        assert c.answer("PUT").status == 201
    assert crashes(d) == 2 and failed_as_poison(d) == 0


def test_two_crashes_of_its_own_fail_a_write(armed):
    """The other side of it: under work at both, even where nothing of it was at fault."""
    d = armed()
    t = d.tenant()
    d.points.arm("mid-append", "stop")
    with one_write_under_way(d, t, "a") as c:
        end_at(d, "mid-append", signal.SIGABRT, "mid-append")
        end_at(d, "mid-append", signal.SIGABRT, None)
        assert c.answer("PUT").status == 500
    wait_for("its line in the log", lambda: failed_as_poison(d) == 1)
    assert t.get("a").status == 404


def test_committers_that_crash_while_they_recover_blame_nobody(armed):
    d = armed()
    with Load(d):
        for n in range(6):
            pid = d.wait_committer()
            d.points.arm("recover-cut" if n % 2 else "recover-scanned", "abort")
            os.kill(pid, signal.SIGKILL)
            assert d.points.wait(DEADLINE)
    assert failed_as_poison(d) == 0


@pytest.mark.parametrize("point, wakes", [("mid-append", None), ("after-sync", None), ("ck-synced", None), ("mid-append", 1.0)])
def test_an_old_committer_that_wakes_late_writes_nothing(armed, point, wakes):
    """It stands still when its master is killed.  The next start waits for it and ends it; where it wakes up before that
    it finishes and leaves.  When requests are answered again it is gone."""
    d = armed()

    class Writer(Client):
        n, answered = 0, 0

        def next(self):
            self.n += 1
            return request("PUT", t.path("k%d" % (self.n % 40)), b"%d" % self.n * 20000)

        def answer(self, status, head, body):
            assert status in (201, 204)
            self.answered = self.n

        def cut(self, why):
            return False
    t = d.tenant()
    d.points.arm(point, "stop", 20 if point != "ck-synced" else 1)
    w = Writer()
    th = threading.Thread(target=drive, args=(("127.0.0.1", d.port), [w]), kwargs={"patience": 30}, daemon=True)
    th.start()
    assert d.points.wait(DEADLINE)
    old = d.wait_committer()
    points.wait_stopped(old)
    d.kill9_master()
    th.join(10)
    late = threading.Timer(wakes, os.kill, (old, signal.SIGCONT)) if wakes else None
    if late:
        late.start()
    d.start(10)
    assert not alive(old)
    with d.connect() as c:
        got = c.ask("GET", t.path("k%d" % (w.answered % 40))).body
        assert got in (b"%d" % w.answered * 20000, b"%d" % w.n * 20000)
