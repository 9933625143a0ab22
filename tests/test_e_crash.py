"""Issue 2, 8: the first crash test, bounded; long runs: make check-crash SECONDS=... SEED=..."""
import os
import re
import time

import pytest

from crash import run, workload
from holdfast import Daemon, request, wait_for

SECONDS = float(os.environ.get("HOLDFAST_SECONDS") or 18)


def test_the_checker_refuses_what_cannot_be():
    workload.self_check()


@pytest.mark.crash
def test_no_acknowledged_write_is_lost_whoever_is_killed(capsys):
    seed = os.environ.get("HOLDFAST_SEED") or str(int.from_bytes(os.urandom(4), "big"))
    summary = run.run(SECONDS, seed)
    with capsys.disabled():
        print("\n" + summary.text())
    assert summary.acknowledged > 100 and summary.verified > 10
    assert summary.kills["committer"] >= 5


def test_nobody_sees_a_write_before_its_sync_is_over(shims):
    """Nor anybody's refusal that speaks of it: a crash could take both back."""
    with Daemon(preload=shims("slowsync"), env={"HOLDFAST_SLOWSYNC_US": "250000"}) as d:
        t = d.tenant()
        old = t.put("a", b"old").etag
        for n in range(3):
            with d.connect() as c, d.connect() as other, d.connect() as reader:
                c.send(request("PUT", t.path("a"), b"new%d" % n))
                sent = time.monotonic()
                other.send(request("PUT", t.path("a"), b"never", {"If-Match": old}))
                while time.monotonic() - sent < 0.2:
                    a = reader.ask("GET", t.path("a"))
                    assert time.monotonic() - sent > 0.25 or a.etag == old, "a write was seen before it was durable"
                new = c.answer("PUT").etag
                assert time.monotonic() - sent > 0.24
                a = other.answer("PUT")  # it was decided before the other, or saw what is durable by now
                assert a.status == 412 and a.etag == new or a.status == 204 and time.monotonic() - sent > 0.24
                old = reader.ask("GET", t.path("a")).etag


def test_a_segment_that_is_given_up_is_unlinked_and_never_overwritten():
    """Pages of it may be in a socket's queue, or in the hands of a reader that is late: whoever has it open sees what was there."""
    with Daemon(segment_size="1M") as d:
        t = d.tenant()
        for n in range(400):  # three segments and more, all live
            t.put("k%d" % n, b"%d" % n * 2000)
        names = sorted(n for n in os.listdir(d.data) if re.match(r"log-\d+\Z", n))[:-1]  # the last one is still written to
        held = [open(os.path.join(d.data, n), "rb") for n in names]
        try:
            was = [f.read() for f in held]
            assert len(held) >= 2
            for n in range(2400):  # 2.5 times what is live, and four segments, may stay
                t.put("k%d" % (n % 400), b"x" * 8000)
            gone = wait_for("one is unlinked", lambda: [n for n, f in enumerate(held) if os.fstat(f.fileno()).st_nlink == 0])
            for n in gone:
                held[n].seek(0)
                assert held[n].read() == was[n], names[n]
        finally:
            for f in held:
                f.close()
