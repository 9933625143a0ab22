"""Contract 8: I/O errors, and a data directory that is taken away (F1 to F4, F28, F34).

faultio (LD_PRELOAD) makes chosen calls on chosen files fail while the daemon runs;
files are cut beneath its mappings; file systems of their own (tests/disk.py) break.
"""
import errno
import json
import os
import pwd
import re
import resource
import shutil
import signal
import subprocess
import threading
import time

import pytest

from disk import Disk, Faults
from holdfast import Client, Daemon, Failed, drive, read_file, request, wait_for

EIO, ENOSPC, EROFS = 5, 28, 30
OUT_SENDFILE = 32 << 10  # worker/out.h


@pytest.fixture
def faults(tmp_path):
    return Faults(str(tmp_path / "faults"))


@pytest.fixture
def d(shims, faults):
    with Daemon(preload=shims("faultio"), env={"HOLDFAST_FAULTIO": faults.path}, segment_size="1M") as made:
        yield made


def ready(d):
    with d.connect() as c:
        a = c.ask("GET", "/_ready")
        return a.status, (json.loads(a.body).get("detail", "") if a.status != 200 else "")


def read_only(d, t, known, because):
    """Nothing is acknowledged any more, reads go on, and everybody is told."""
    with d.connect() as c:
        for _ in range(3):
            assert c.ask("PUT", t.path("later"), b"x").status == 503
            assert c.ask("DELETE", t.path(known)).status == 503
            assert c.ask("GET", t.path(known)).status == 200
        assert c.ask("GET", t.path("later")).status == 404
    status, why = ready(d)
    assert status == 503 and because in why, why
    assert [line for line in d.log if "NO WRITE IS ACKNOWLEDGED" in line and because in line], d.log_text()


def is_there(d, t, names):
    with d.connect() as c:
        for name in names:
            assert c.ask("GET", t.path(name)).status == 200, name


# --- the log ------------------------------------------------------------------------


@pytest.mark.parametrize("op, error, text", [
    ("write", EIO, "write to log-0000000001: Input/output error"),
    ("write", EROFS, "write to log-0000000001: Read-only file system"),
    ("sync", EIO, "sync of log-0000000001: Input/output error"),
    ("sync", ENOSPC, "sync of log-0000000001: No space left on device"),
])
def test_after_a_failed_write_or_sync_of_the_log_nothing_is_acknowledged(d, faults, op, error, text):
    """The batch in question 500, all later ones 503; never tried again as if nothing had been (F1, F2)."""
    t = d.tenant()
    for n in range(5):
        t.put("a%d" % n, b"x" * 100)
    faults.set("%s %d 0 1 *log-0*" % (op, error), "sync 5 0 0 *log-0*")  # the first; a second would succeed
    a = t.ask("PUT", "b", b"y")
    assert a.status == 500 and b"whole or not at all" in a.body
    read_only(d, t, "a0", text)
    # whoever replaces the committer touches nothing, either
    old = d.committer()
    os.kill(old, 9)
    d.wait_committer(other_than=old)
    wait_for("the new one refuses", lambda: t.ask("PUT", "later", b"x").status == 503)
    assert ready(d)[0] == 503
    counts = faults.counts()
    assert counts[0] == 1 and counts[1] == 0, counts
    faults.set()
    t.conn.close()
    assert d.stop() == 0
    d.start()
    is_there(d, t, ["a%d" % n for n in range(5)])
    a = t.get("b")
    assert a.status == 404 or a.body == b"y"  # whole or not at all
    assert t.ask("PUT", "b", b"z").status in (201, 204)


def test_of_64_writers_in_a_batch_that_fails_none_is_acknowledged(shims, faults):
    """The sync of the 50th batch, by when all of them are under way; a sync takes so long that a batch has many of them."""

    class One(Client):
        def __init__(self, n):
            self.path, self.asked, self.acknowledged, self.failed = t.path("k%d" % n), 0, 0, None

        def next(self):
            if self.failed is not None:
                return None
            self.asked += 1
            return request("PUT", self.path, b"%-1000d" % self.asked)

        def answer(self, status, head, body):
            if status in (201, 204):
                self.acknowledged = self.asked
            else:
                self.failed = status

    # no segment is full before that, so that each sync of this one is a batch's (log-N.new is not meant)
    env = {"HOLDFAST_FAULTIO": faults.path, "HOLDFAST_SLOWSYNC_US": "20000"}
    with Daemon(preload=shims("faultio") + ":" + shims("slowsync"), env=env, segment_size="64M") as d:
        t = d.tenant()
        t.put("a", b"x")
        clients = [One(n) for n in range(64)]
        faults.set("sync 5 49 0 */log-??????????")
        drive(("127.0.0.1", d.port), clients, seconds=60)
        assert faults.counts()[0] == 50, faults.counts()
        told = [c.failed for c in clients]
        assert min(c.acknowledged for c in clients) >= 10
        assert told.count(500) + told.count(503) == 64 and told.count(500) >= 32, told
        read_only(d, t, "a", "sync of log-0000000001: Input/output error")
        d.kill9()
        faults.set()
        d.start()
        with d.connect() as c:
            for client in clients:
                have = int(c.ask("GET", client.path).body)
                assert client.acknowledged <= have <= client.asked


def test_short_writes_are_continued(d, faults):
    t = d.tenant()
    faults.set("short 0 0 20 *log-0*")
    for n in range(10):
        t.put("a%d" % n, b"%d" % n * 3000)
    assert faults.counts()[0] >= 20
    d.kill9()
    faults.set()
    d.start()
    with d.connect() as c:
        for n in range(10):
            assert c.ask("GET", t.path("a%d" % n)).body == b"%d" % n * 3000


def test_no_room_in_mid_write_is_a_507_and_passes(d, faults):
    """A file system that does not keep what fallocate(2) promised."""
    t = d.tenant()
    t.put("a", b"x")
    faults.set("write %d 0 3 *log-0*" % ENOSPC)
    for _ in range(3):
        assert t.ask("PUT", "b", b"y" * 1000).status == 507
        assert t.get("a").status == 200
    assert t.ask("PUT", "b", b"y" * 1000).status == 201
    faults.set("short 0 0 1 *log-0*", "write %d 0 1 *log-0*" % ENOSPC)
    d.kill9()
    d.start()
    is_there(d, t, ["a", "b"])


# --- each other file (F4) ------------------------------------------------------------


def roll(t, until, n=40):
    """PUTs of 300 KB: a new segment every third; the first answer that is no 2xx."""
    for k in range(n):
        a = t.ask("PUT", "big%d" % (k % 2), b"r" * 300000)
        if a.status not in (201, 204) or until():
            return a
    raise Failed("it never came to it")


@pytest.mark.parametrize("rule, text", [
    ("sync 5 0 1 *log-*.new", "creation of log-"),
    ("write 5 0 1 *log-*.new", "creation of log-"),
    ("alloc 5 0 1 *log-*.new", "creation of log-"),
    ("sync 5 0 1 */data", "creation of log-"),
])
def test_a_segment_that_cannot_be_made_for_an_io_error_is_the_end_of_writing(d, faults, rule, text):
    """The directory counts: a name that is not on the disk takes its file with it (F6)."""
    t = d.tenant()
    t.put("a", b"x")
    faults.set(rule)
    a = roll(t, lambda: False)
    assert a.status == 503  # it was never written, so its fate is known
    read_only(d, t, "a", text)
    faults.set()
    t.conn.close()
    d.stop()
    d.start()
    is_there(d, t, ["a"])
    t.put("later", b"x")


@pytest.mark.parametrize("rule", ["write 5 0 0 *tree-*", "sync 5 0 0 *tree-*", "write 28 0 0 *tree-*"])
def test_a_checkpoint_that_fails_is_given_up_and_writes_go_on(d, faults, rule):
    t = d.tenant()
    t.put("a", b"x")
    faults.set(rule)
    said = []
    a = roll(t, lambda: said.extend(line for line in d.log if "cannot be written" in line) or said)
    assert a.status in (201, 204) and "tree-0000000001" in said[0], said
    assert ready(d)[0] == 200
    t.put("b", b"y")
    faults.set()
    if "28" in rule:  # tried again after 2 s, otherwise after 5
        wait_for("another one", lambda: any(
            n.startswith("tree-") and not n.endswith(".tmp") and n != "tree-0000000001"
            for n in os.listdir(d.data)), 8)
    assert "tree-0000000001" not in os.listdir(d.data)
    d.kill9()
    d.start()
    is_there(d, t, ["a", "b", "big0"])


def segments(d):
    return {n for n in os.listdir(d.data) if n.startswith("log-") and not n.endswith(".new")}


def test_a_dropped_segment_that_cannot_be_removed_stays_and_is_tried_again(d, faults):
    t = d.tenant()
    t.put("a", b"x")
    first = "log-0000000001"
    faults.set("unlink 13 0 0 */" + first, "unlink 13 0 0 *log-??????????")
    said = lambda: [line for line in d.log if "cannot be removed" in line]
    a = roll(t, lambda: len(said()) >= 3, n=5000)
    assert a.status in (201, 204) and ready(d)[0] == 200
    for _ in range(300):  # no round of the loop tries, or says it, again
        t.put("b", b"y")
    lines = said()
    assert len(lines) == len({line.split("log segment ")[1] for line in lines}), lines
    assert all("Permission denied" in line for line in lines)
    assert sum(faults.counts()) <= 3 * len(lines), faults.counts()
    stuck = {"log-%010d" % int(line.split("log segment ")[1].split(",")[0]) for line in lines}
    assert stuck <= segments(d)
    # only one of them is in the way: the others go
    faults.set("unlink 13 0 0 */" + max(stuck))
    wait_for("the others are gone", lambda: segments(d) & stuck == {max(stuck)}, 10)
    t.conn.close()
    for stop in d.kill9, d.stop:
        stop()
        d.start()
        is_there(d, t, ["a", "b", "big0"])
        assert max(stuck) in segments(d)
    faults.set()
    wait_for("it is gone", lambda: not segments(d) & stuck, 10)
    is_there(d, t, ["a", "b", "big0"])


def test_an_old_checkpoint_that_cannot_be_removed_goes_with_the_next(d, faults):
    t = d.tenant()
    t.put("a", b"x")
    faults.set("unlink 13 0 0 *tree-??????????")
    said = lambda: [line for line in d.log if "old checkpoints cannot be removed: Permission denied" in line]
    trees = lambda: {n for n in os.listdir(d.data) if n.startswith("tree-") and not n.endswith(".tmp")}
    a = roll(t, lambda: len(said()) >= 2, n=5000)
    assert a.status in (201, 204) and ready(d)[0] == 200
    assert len(trees()) >= 3 and len(said()) < len(trees()) + 1
    for stop in d.kill9, d.stop:
        t.conn.close()
        stop()
        d.start()
        is_there(d, t, ["a", "big0"])
    faults.set()
    roll(t, lambda: len(trees()) == 1, n=5000)
    is_there(d, t, ["a", "big0"])


@pytest.mark.parametrize("rule, text", [
    ("unlink 5 0 0 *log-??????????", "removal of log-"),
    ("unlink 5 0 0 *tree-??????????", "removal of old checkpoints: Input/output error"),
])
def test_a_directory_that_gives_an_io_error_for_a_removal_is_the_end_of_writing(d, faults, rule, text):
    t = d.tenant()
    t.put("a", b"x")
    faults.set(rule)
    a = roll(t, lambda: False, n=5000)
    assert a.status in (500, 503)
    read_only(d, t, "a", text)
    count = faults.counts()[0]
    for _ in range(50):  # each one a round of the committer
        assert t.ask("PUT", "a", b"y").status == 503
    assert faults.counts()[0] == count <= 2
    faults.set()
    t.conn.close()
    d.stop()
    d.start()
    is_there(d, t, ["a"])
    t.put("later", b"x")


def test_a_checkpoint_whose_directory_cannot_be_synced_is_the_end_of_writing(d, faults):
    t = d.tenant()
    t.put("a", b"x")
    # all but the directory's syncs for new segments, which come first: those are counted
    faults.set("sync 5 0 0 *nothing*")
    seen = []

    def watch():
        while not seen:
            if any(n.startswith("tree-") and n.endswith(".tmp") for n in os.listdir(d.data)):
                faults.set("sync 5 0 0 */data")
                seen.append(1)
    th = threading.Thread(target=watch)
    th.start()
    try:
        a = roll(t, lambda: not [1 for _ in [0] if ready(d)[0] == 200], n=200)
    finally:
        seen.append(1)
        th.join()
    assert ready(d)[0] == 503 or a.status in (500, 503)
    read_only(d, t, "a", "Input/output error")
    faults.set()
    t.conn.close()
    d.stop()
    d.start()
    is_there(d, t, ["a"])


def test_what_was_under_way_when_a_directory_could_not_be_synced_is_there_or_was_not_acknowledged(shims, faults):
    """The batch being synced and the one being filled: neither is answered 2xx without being in the log."""
    env = {"HOLDFAST_FAULTIO": faults.path, "HOLDFAST_SLOWSYNC_US": "8000"}
    with Daemon(preload=shims("faultio") + ":" + shims("slowsync"), env=env, segment_size="256M") as d:
        t = d.tenant()
        acknowledged, unknown, failed = {}, {}, threading.Event()

        def write(k):
            with d.connect() as c:
                for n in range(10000):
                    name, body = "k%d-%d" % (k, n % 5), (b"%06d" % n) * 8000
                    a = c.ask("PUT", t.path(name), body)
                    if a.status not in (201, 204):
                        if a.status == 500:
                            unknown[name] = body
                        failed.set()
                        return
                    acknowledged[name] = body
        threads = [threading.Thread(target=write, args=(k,)) for k in range(100)]
        for th in threads:
            th.start()
        wait_for("a checkpoint begins", lambda: any(n.startswith("tree-") for n in os.listdir(d.data)), 60, step=0.0005)
        faults.set("sync 5 0 0 */data")
        assert failed.wait(30)
        for th in threads:
            th.join()
        faults.set()
        t.conn.close()
        d.stop()
        d.start()
        with d.connect() as c:
            for name, body in acknowledged.items():
                a = c.ask("GET", t.path(name))
                assert a.status == 200 and a.body in (body, unknown.get(name)), name


# --- reads -----------------------------------------------------------------------------


def test_a_segment_cut_under_load_fails_only_what_was_in_it(fresh):
    """F34: 500 for the missing part; no process dies, and the log names file and offset."""
    d = fresh(segment_size="1M")
    t = d.tenant()
    for n in range(600):
        t.put("k%d" % n, b"%d " % n * 800)
    t.put("last", b"x" * 5000)
    before, committer = d.workers(), d.committer()
    counts = {200: 0, 500: 0}

    class Reads(Client):
        def __init__(self, n):
            self.n = n

        def next(self):
            self.n = (self.n + 7) % 600
            return request("GET", t.path("k%d" % self.n))

        def answer(self, status, head, body):
            counts[status] += 1
            assert status == 500 or body == b"%d " % self.n * 800
    done = threading.Event()

    def cut():
        done.wait(0.2)
        os.truncate(os.path.join(d.data, "log-0000000001"), 400000)
    th = threading.Thread(target=cut)
    th.start()
    drive(("127.0.0.1", d.port), [Reads(n) for n in range(32)], seconds=0.8)
    th.join()
    assert counts[200] > 500 and counts[500] > 20, counts
    assert d.workers() == before
    assert [line for line in d.log if "log segment 1, offset" in line and "does not give this page" in line]
    assert t.get("last").status == 200
    assert t.ask("PUT", "new", b"y").status == 201
    assert d.committer() == committer
    # overwriting what is lost heals it, and compaction leaves the damaged segment alone
    for n in range(600):
        t.put("k%d" % n, b"new")
    assert t.get("k3").body == b"new"
    wait_for("a committer", d.committer)


@pytest.mark.parametrize("how", ["sendfile", "send"])
def test_a_page_lost_in_mid_answer_cuts_the_connection_and_the_worker_lives(d, faults, how):
    """The file ends for sendfile(2), or the kernel's own copy fails with EFAULT: the reader sees a short body, never a wrong one."""
    t = d.tenant()
    body = bytes(range(256)) * 40000  # 10 MB, a segment of its own
    t.put("small", b"x")
    t.put("big", body)
    before = d.workers()
    if how == "send":
        faults.set("send %d 0 0 *log-0*" % errno.EINVAL)
    conns = []
    for _ in range(4):
        c = d.connect()
        c.send(request("GET", t.path("big")))
        got = c.sock.recv(65536)
        assert b" 200 OK" in got[:20]
        conns.append((c, got))
    big = max(os.listdir(d.data), key=lambda n: os.path.getsize(os.path.join(d.data, n)))
    os.truncate(os.path.join(d.data, big), 2 << 20)
    for c, got in conns:
        began = time.monotonic()
        data = [got]
        try:
            while True:
                more = c.sock.recv(1 << 20)
                if not more:
                    break
                data.append(more)
        except ConnectionResetError:
            pass
        got = b"".join(data).partition(b"\r\n\r\n")[2]
        assert len(got) < len(body) and body.startswith(got)
        assert time.monotonic() - began < 10  # not left to a timeout
        c.close()
    with d.connect() as c:
        assert c.ask("GET", t.path("big")).status == 500
        assert c.ask("GET", t.path("small")).body == b"x"
        assert c.ask("GET", t.path("big"), fields={"Range": "bytes=0-99"}).status in (206, 500)
    assert d.workers() == before
    assert any("does not give this page" in line for line in d.log)


SIZES = (OUT_SENDFILE - 1, OUT_SENDFILE, OUT_SENDFILE + 1, 1 << 20, (1 << 20) + 1, 3 << 20)


def of_size(n):
    return b"%d " % n + os.urandom(n - 8) + b"."


@pytest.mark.parametrize("error, times", [(errno.EINVAL, 0), (errno.ENOSYS, 1), (errno.ENOMEM, 1)])
def test_where_a_file_cannot_be_sent_from_the_mapping_is(d, faults, error, times):
    """A file system without sendfile(2): nobody notices, whatever comes in front of or behind a body, more than the socket takes at once."""
    t = d.tenant()
    bodies = {n: of_size(n) for n in SIZES}
    for n, body in bodies.items():
        t.put("s%d" % n, body)
    faults.set("send %d 0 %d *log-0*" % (error, times))
    with d.connect() as c:
        for _ in range(2):
            c.send(*[request("GET", t.path("s%d" % n)) for n in SIZES])
            for n in SIZES:
                assert c.answer("GET").body == bodies[n], n
    assert faults.counts()[0] > 0


def test_a_file_that_fails_while_it_is_sent_cuts_the_connection(d, faults):
    t = d.tenant()
    body = of_size(300000)
    t.put("a", body)
    before = d.workers()
    assert t.get("a").body == body
    faults.set("send %d 0 1 *log-0*" % EIO)
    with d.connect() as c:
        c.send(request("GET", t.path("a")))
        head = c.head()
        assert head.status == 200
        c.expect_eof()
    assert [line for line in d.log if "does not give this page" in line]
    assert t.get("a").body == body  # the next one finds it again
    assert d.workers() == before


def test_what_was_checked_is_what_is_sent(fresh):
    """Another file under a segment's name, as a careless restore leaves it: the mapping is what counts."""
    d = fresh(segment_size="1M", workers=1)
    t = d.tenant()
    small, large = of_size(1000), of_size(100000)
    t.put("small", small)
    t.put("large", large)
    assert t.get("small").body == small  # mapped
    name = os.path.join(d.data, "log-0000000001")
    with open(name, "rb") as f:
        data = bytearray(f.read())
    at = data.index(large)
    data[at + 50000] ^= 1
    with open(name + ".new", "wb") as f:
        f.write(data)
    os.rename(name + ".new", name)
    assert t.get("large").body == large


def test_segments_that_are_sent_from_take_a_bounded_number_of_descriptors(fresh):
    d = fresh(segment_size="1M", max_document="2M", workers=1)
    t = d.tenant()
    bodies = [of_size(900000 + n) for n in range(150)]  # a segment each

    def opened():
        pid = d.workers()[0]
        links = []
        for fd in os.listdir("/proc/%d/fd" % pid):
            try:
                links.append(os.readlink("/proc/%d/fd/%s" % (pid, fd)))
            except FileNotFoundError:
                pass
        return [link for link in links if "/log-" in link]
    for n, body in enumerate(bodies):
        t.put("b%d" % n, body)
    for _ in range(2):
        for n, body in enumerate(bodies):
            assert t.get("b%d" % n).body == body
        most = int(re.search(rb"open files +(\d+)", read_file("/proc/%d/limits" % d.workers()[0])).group(1))
        assert len(opened()) == min(128, most // 32)  # store/read.c, SEND_FDS
    for n in range(len(bodies)):
        t.put("b%d" % n, b"new")
    # none is kept of those that compaction unlinks: their disk space is to come free
    wait_for("segments to go", lambda: t.get("b0").body == b"new" and not [f for f in opened() if f.endswith(" (deleted)")] and
             len([f for f in os.listdir(d.data) if f.startswith("log-")]) < 80)


def test_where_descriptors_are_few_connections_have_them_not_segments(fresh):
    """What a worker says it has room for it keeps, however many segments it sends from."""
    d = fresh(segment_size="1M", workers=1)
    t = d.tenant()
    bodies = [of_size(900000 + n) for n in range(40)]  # a segment each
    for n, body in enumerate(bodies):
        t.put("b%d" % n, body)
    t.conn.close()
    resource.prlimit(d.pid, resource.RLIMIT_NOFILE, (48, 48))
    os.kill(d.workers()[0], signal.SIGKILL)  # the next one inherits it
    most = int(d.wait_log(r"max-connections .* 48 descriptors .*: (\d+)").group(1))
    conns = [d.connect() for _ in range(most)]
    for turn in range(2):
        for n, body in enumerate(bodies):
            assert conns[n % most].ask("GET", t.path("b%d" % n)).body == body, (turn, n)
    assert not [line for line in d.log if "accept:" in line]
    for c in conns:
        c.close()


def test_a_checkpoint_cut_beneath_all_is_rebuilt_from_the_log(fresh):
    """Workers answer 500 until the committer finds it; then everything is there again."""
    d = fresh(segment_size="1M")
    t = d.tenant()
    for n in range(300):
        t.put("k%d" % n, b"%d" % n)
    for n in range(40):
        t.ask("PUT", "big", b"r" * 300000)
    tree = wait_for("a checkpoint", lambda: [
        n for n in os.listdir(d.data) if n.startswith("tree-") and not n.endswith(".tmp")])
    before = d.workers()
    os.truncate(os.path.join(d.data, max(tree)), 4096)
    with d.connect() as c:
        for n in range(300):
            assert c.ask("GET", t.path("k%d" % n)).status in (200, 500)
    for n in range(300):  # the committer looks at each leaf
        assert t.ask("PUT", "k%d" % n, b"new%d" % n).status == 204
    with d.connect() as c:
        for n in range(300):
            a = c.ask("GET", t.path("k%d" % n))
            assert a.status == 200 and a.body == b"new%d" % n
    assert d.workers() == before
    assert ready(d)[0] == 200
    assert d.settings(t.name)["documents"] == 301


def test_a_checkpoint_that_cannot_be_read_at_start_is_done_without(d, faults):
    t = d.tenant()
    t.put("a", b"x")
    for n in range(40):
        t.ask("PUT", "big", b"r" * 300000)
    wait_for("a checkpoint", lambda: [n for n in os.listdir(d.data) if n.startswith("tree-") and len(n) == 15])
    t.conn.close()
    d.kill9()
    faults.set("read 5 0 0 *tree-*")
    d.start()
    assert faults.counts()[0] > 0 and any("is damaged (Input/output error)" in line for line in d.log)
    is_there(d, t, ["a", "big"])
    t.put("b", b"y")
    d.kill9()
    faults.set()
    d.start()
    is_there(d, t, ["a", "b", "big"])


def test_a_disk_that_does_not_give_a_page_at_start_is_damage_and_no_end_of_the_log(tmp_path):
    """Real read errors, from the middle of the newest segment on.  Nothing is cut off for that, and nothing lost."""
    with Disk(tmp_path, room=6, journal=False) as disk, Daemon(where=disk.dir, segment_size="2M") as d:
        t = d.tenant()
        for n in range(300):
            t.put("k%d" % n, b"%d " % n * 800)
        t.conn.close()
        d.kill9()
        name = os.path.join(d.data, "log-0000000001")
        disk.break_from(disk.place(name, 500000))
        fd = os.open(name, os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)
        d.start()
        with d.connect() as c:
            a = [c.ask("GET", t.path("k%d" % n)).status for n in range(300)]
        assert a[:100] == [200] * 100 and a[-1] != 200 and set(a) <= {200, 404, 500}
        status, why = ready(d)
        assert status == 503 and "damaged" in why
        with d.connect() as c:
            assert c.ask("PUT", t.path("k0"), b"x").status == 503
        assert any("log-0000000001, offset" in line and "does not give this page" in line for line in d.log)
        d.kill9()
        disk.mend()
        d.start()
        with d.connect() as c:
            for n in range(300):
                assert c.ask("GET", t.path("k%d" % n)).body == b"%d " % n * 800
            assert c.ask("PUT", t.path("k0"), b"x").status == 204


# --- what is taken away -------------------------------------------------------------------


def not_acknowledged(d, t, *because):
    """The next write that needs what is gone is no 2xx, and the log says what, where and why."""
    a = t.ask("PUT", "b", b"y" * 300000)
    for _ in range(5):
        if a.status not in (201, 204):
            break
        a = t.ask("PUT", "b", b"y" * 300000)
    assert a.status in (500, 503), a
    assert t.ask("PUT", "c", b"y").status == 503
    assert ready(d)[0] == 503
    for text in because:
        assert any(text in line for line in d.log), d.log_text()
    return a


def test_a_data_directory_that_is_removed(fresh):
    d = fresh(segment_size="1M")
    t = d.tenant()
    t.put("a", b"x")
    shutil.rmtree(d.data)
    a = t.ask("PUT", "b", b"y")  # there would be room for it, in a file without a name
    assert a.status in (500, 503), a
    not_acknowledged(d, t, "somebody removed log-0000000001: No such file or directory")
    assert t.get("a").status == 200
    assert d.stop() == 0


def test_a_removed_directory_is_noticed_without_a_write(fresh):
    d = fresh()
    t = d.tenant()
    t.put("a", b"x")
    shutil.rmtree(d.data)
    wait_for("not ready", lambda: ready(d)[0] == 503, 5, 0.05)
    assert "somebody removed" in ready(d)[1]


def test_a_file_system_that_turns_read_only(tmp_path):
    """ext4's errors=remount-ro (F28)."""
    with Disk(tmp_path, options="errors=remount-ro") as disk, Daemon(where=disk.dir, segment_size="1M") as d:
        t = d.tenant()
        t.put("a", b"x")
        trigger = "/sys/fs/ext4/%s/trigger_fs_error" % disk.device()
        if not os.path.exists(trigger):
            pytest.skip("no " + trigger)
        with open(trigger, "w") as f:
            f.write("a test")
        not_acknowledged(d, t, "log-000000")
        assert any("Read-only file system" in line or "Input/output error" in line for line in d.log), d.log_text()
        assert t.get("a").status == 200
        d.kill9()
        r = subprocess.run(d.command(), capture_output=True, text=True, env=d.env, timeout=15)
        assert r.returncode > 0 and ("Read-only" in r.stderr or "Input/output" in r.stderr), r.stderr


def test_started_on_a_read_only_file_system(tmp_path):
    with Disk(tmp_path) as disk, Daemon(where=disk.dir, segment_size="1M") as d:
        d.tenant().put("a", b"x")
        assert d.stop() == 0
        disk.unmount()
        disk.mount("ro")
        r = subprocess.run(d.command(), capture_output=True, text=True, env=d.env, timeout=15)
        assert r.returncode > 0 and "Read-only file system" in r.stderr and d.data in r.stderr, r.stderr
        disk.unmount()
        disk.mount()
        d.start()


def test_permissions_that_are_missing(fresh):
    if os.getuid() != 0:
        pytest.skip("needs root, to be somebody else")
    nobody = pwd.getpwnam("nobody")
    d = fresh(started=False, user="nobody", segment_size="1M")
    os.chmod(d.dir, 0o755)
    r = subprocess.run(d.command(), capture_output=True, text=True, env=d.env, timeout=15)
    assert r.returncode > 0 and "Permission denied" in r.stderr and d.data in r.stderr, r.stderr
    os.chown(d.data, nobody.pw_uid, nobody.pw_gid)
    os.chown(d.dir, nobody.pw_uid, nobody.pw_gid)
    d.start()
    t = d.tenant()
    t.put("a", b"x")
    os.chown(d.data, 0, 0)  # from now on no file can be made in it
    os.chmod(d.data, 0o555)
    not_acknowledged(d, t, "creation of log-0000000002: Permission denied")
    assert t.get("a").status == 200


def limit(pid, n):
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (n, resource.RLIM_INFINITY))


def test_a_limit_on_the_size_of_files(fresh):
    """ulimit -f: EFBIG, not SIGXFSZ.  No file of that size: 507; a write beyond it: an error like any other."""
    d = fresh(segment_size="1M")
    t = d.tenant()
    t.put("a", b"x")
    committer = d.committer()
    limit(committer, 2 << 20)
    a = t.ask("PUT", "big", b"x" * (3 << 20))
    assert a.status == 507 and b"File too large" in a.body, a
    assert t.ask("PUT", "b", b"x").status == 201
    limit(committer, resource.RLIM_INFINITY)
    wait_for("there is room", lambda: ready(d)[0] == 200, 5, 0.05)
    assert t.ask("PUT", "big", b"x" * (3 << 20)).status == 201
    limit(committer, 1)
    assert t.ask("PUT", "c", b"x").status == 500
    read_only(d, t, "a", "File too large")
    assert d.committer() == committer


def test_a_limit_on_the_size_of_files_at_start(fresh):
    d = fresh(started=False)
    r = subprocess.run(d.command(), capture_output=True, text=True, env=d.env, timeout=15,
                       preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20)))
    assert r.returncode > 0 and "File too large" in r.stderr, (r.returncode, r.stderr)
