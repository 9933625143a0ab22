"""Damaged bytes: the real daemon and the real tool (contract 8: a damaged byte; damage inside the log).

tests/b_check.c changes every byte of a small store; here the same is seen from outside.
HOLDFAST_SECONDS (make check-damage) makes the random part as long as that.
"""
import os
import random
import re
import shutil
import signal
import subprocess
import threading
import time

import pytest

import holdfast
from compaction import status


def ctl(verb, d):
    """(exit code, what it printed, as lines)"""
    p = subprocess.run([holdfast.HOLDFASTCTL, verb, d.data], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                       timeout=60)
    return p.returncode, p.stdout.decode()


class Store:
    """A daemon with documents of two tenants, some written over, some deleted, in several segments."""

    def __init__(self, fresh, **options):
        options.setdefault("segment_size", "1M")
        self.d = fresh(**options)
        self.there, self.gone, self.etags = {}, set(), {}
        self.a, self.b = self.d.tenant(name="ada"), self.d.tenant(name="bea")
        for i in range(30):
            self.put(self.a if i % 2 else self.b, "notes/n%d" % i, self.body("note %d" % i, 100 + 50 * i))
        for i in range(0, 30, 5):
            self.put(self.a if i % 2 else self.b, "notes/n%d" % i, self.body("again %d" % i, 90))
        for i in range(4):
            self.put(self.a, "large/l%d" % i, self.body("large %d" % i, 700000))
        for i in range(3, 30, 9):
            self.delete(self.a if i % 2 else self.b, "notes/n%d" % i)
        self.put(self.b, "late", self.body("late", 300))
        self.put(self.a, "last", self.body("the last one", 200))

    @staticmethod
    def body(text, size):
        unit = ("<%s>" % text).encode()
        return (unit * (size // len(unit) + 1))[:size]

    def put(self, t, name, body):
        self.etags[t.path(name)] = t.put(name, body).etag
        self.there[t.path(name)] = body

    def delete(self, t, name):
        assert t.ask("DELETE", name).status == 204
        del self.there[t.path(name)]
        self.gone.add(t.path(name))

    # its files

    def path(self, name):
        return os.path.join(self.d.data, name)

    def segments(self):
        return sorted(f for f in os.listdir(self.d.data) if re.match(r"log-\d{10}\Z", f))

    def find(self, text, last=False):
        """(file, offset) of these bytes in the log."""
        for name in self.segments():
            data = holdfast.read_file(self.path(name))
            at = data.rfind(text) if last else data.find(text)
            if at >= 0:
                return name, at
        raise holdfast.Failed("%r is nowhere" % text)

    def poke(self, name, at, data):
        with open(self.path(name), "r+b") as f:
            f.seek(at)
            f.write(data)

    def flip(self, name, at, by=0x41):
        old = holdfast.read_file(self.path(name))[at]
        self.poke(name, at, bytes([old ^ by]))

    # what is served

    def look(self):
        """Reads everything.  The set of names that are answered 500; nothing else may differ."""
        broken = set()
        with self.d.connect() as c:
            for target, body in self.there.items():
                if c.done:
                    c = self.d.connect()
                a = c.ask("GET", target)
                if a.status == 500:
                    broken.add(target)
                else:
                    assert (a.status, a.etag) == (200, self.etags[target]), target
                    assert a.body == body, target
            for target in self.gone:
                if c.done:
                    c = self.d.connect()
                assert c.ask("GET", target).status in (404, 500), target
        return broken

    def ready(self):
        with self.d.connect() as c:
            return c.ask("GET", "/_ready")

    def can_write(self):
        with self.d.connect() as c:
            return c.ask("PUT", "/ada/new", b"x").status

    def restart(self):
        self.d.stop()
        self.d.start()


def test_a_directory_in_use_is_neither_checked_nor_repaired(fresh):
    s = Store(fresh)
    for verb in "check", "repair":
        code, text = ctl(verb, s.d)
        assert code == 69
        assert "in use by holdfastd, pid %d" % s.d.pid in text
    s.d.stop()
    before = {n: holdfast.read_file(s.path(n)) for n in s.segments()}
    code, text = ctl("check", s.d)
    assert code == 0 and "no damage: %d documents, %d deletions" % (len(s.there), len(s.gone)) in text
    code, text = ctl("repair", s.d)
    assert code == 0 and "nothing is damaged" in text
    assert before == {n: holdfast.read_file(s.path(n)) for n in s.segments()}
    s.d.start()
    assert s.look() == set() and s.can_write() == 201


def test_one_is_told_in_the_singular(fresh):
    d = fresh()
    d.tenant(name="ada").put("a", b"x")
    assert d.stop() == 0
    code, text = ctl("check", d)
    assert code == 0 and re.search(r"no damage: 1 document, 0 deletions, 1 log segment\b", text), text


def test_a_damaged_body_costs_its_document_and_the_rest_goes_on(fresh):
    s = Store(fresh)
    s.d.stop()
    name, at = s.find(b"<note 7>")
    s.flip(name, at + 100)
    code, text = ctl("check", s.d)
    assert code == 1
    assert re.search(r"^%s, offset \d+: damaged body of ada/notes/n7$" % name, text, re.M)
    s.d.start()
    assert s.look() == {"/ada/notes/n7"}
    assert s.ready().status == 200 and s.can_write() == 201
    assert s.look() == {"/ada/notes/n7"}
    s.d.stop()
    code, text = ctl("repair", s.d)
    assert code == 0
    assert re.findall(r"^gone: (\S+)", text, re.M) == ["ada/notes/n7"]
    assert ctl("check", s.d)[0] == 0
    s.d.start()
    with s.d.connect() as c:
        assert c.ask("GET", "/ada/notes/n7").status == 404
        made = c.ask("PUT", "/ada/notes/n7", b"new")
        assert made.status == 201 and made.etag != s.etags["/ada/notes/n7"]
    del s.there["/ada/notes/n7"]
    assert s.look() == set()
    assert any(n.startswith("damaged-log-") for n in os.listdir(s.d.data))


def test_a_damaged_tenant_is_damaged_for_writes_too(fresh):
    """Workers that looked before know its id, the committer that comes after does not: 500, not as if it were absent."""
    d = fresh(workers=1)
    zed = d.tenant(name="zed")
    ada, bea = d.tenant(name="ada"), d.tenant(name="bea")
    zed.put("z", b"zed's")
    assert bea.get("x").status == 404  # so the worker has looked her up
    log = os.path.join(d.data, "log-0000000001")
    at = holdfast.read_file(log).find(b"bea")
    with open(log, "r+b") as f:  # bea is the newest, and has no document: nothing else tells her id
        f.seek(at + 3 + 30)
        f.write(b"\x55")
    old = d.committer()
    os.kill(old, 9)
    d.wait_committer(other_than=old)

    def refused():
        for method, target in (("PUT", "/bea/x"), ("DELETE", "/bea/x")):
            with d.connect() as c:
                a = c.ask(method, target, b"x" if method == "PUT" else None)
                assert a.status == 500 and b"what is stored of this tenant is damaged" in a.body, a
        for method, body in (("PUT", b"{}"), ("DELETE", None)):
            a = d.ask_admin(method, "/_tenants/bea", body)
            assert a.status == 500 and b"what is stored of this tenant is damaged" in a.body, a
        zed.put("z", b"zed's")
        ada.put("a", b"ada's")

    refused()
    for t in zed, ada, bea:
        t.conn.close()
    assert d.stop() == 0
    code, text = ctl("check", d)
    assert code == 1 and re.search(r"damaged body of tenant bea$", text, re.M)
    d.start()
    refused()
    with d.connect() as c:
        assert c.ask("GET", "/bea/x").status == 500
        assert c.ask("GET", "/nobody/x").status == 401
    new = d.tenant(name="new")  # another id than bea's
    new.put("n", b"new's")
    d.stop()
    code, text = ctl("repair", d)
    assert code == 0 and "tenant bea: its settings were damaged" in text
    d.start()
    bea = d.tenant(name="bea")
    assert bea.settings()["documents"] == 0 and bea.get("n").status == 404
    bea.put("b", b"bea's")
    for name, document in (("zed", "z"), ("ada", "a"), ("bea", "b"), ("new", "n")):
        with d.connect() as c:
            assert c.ask("GET", "/%s/%s" % (name, document)).body == ("%s's" % name).encode()


def test_a_damaged_chunk_costs_the_ranges_over_it(fresh):
    s = Store(fresh)
    s.d.stop()
    name, at = s.find(b"<large 2>")
    s.flip(name, at + 5 * 65536 + 17)
    s.d.start()
    body = s.there["/ada/large/l2"]
    with s.d.connect() as c:
        for first, last, status in ((0, 65535, 206), (4 * 65536, 5 * 65536 - 1, 206), (6 * 65536, 7 * 65536 - 1, 206),
                                    (5 * 65536, 5 * 65536 + 9, 500), (5 * 65536 - 1, 5 * 65536, 500)):
            if c.done:
                c = s.d.connect()
            a = c.ask("GET", "/ada/large/l2", fields={"Range": "bytes=%d-%d" % (first, last)})
            assert a.status == status, (first, last)
            if status == 206:
                assert a.body == body[first:last + 1]
    # the whole: 500, or cut where the damage begins; never a byte of it
    with s.d.connect() as c:
        c.send(holdfast.request("GET", "/ada/large/l2", fields={"Connection": "close"}))
        data = b""
        while True:
            more = c.sock.recv(1 << 20)
            if not more:
                break
            data += more
    if not data.startswith(b"HTTP/1.1 500"):
        data = data.partition(b"\r\n\r\n")[2]
        assert len(data) <= 5 * 65536 and data == body[:len(data)]
    assert s.ready().status == 200


def test_damage_with_intact_batches_behind_is_read_only_until_repair(fresh):
    s = Store(fresh)
    s.d.stop()
    name, at = s.find(b"<note 13>")
    s.poke(name, at - 60, os.urandom(120))  # the head of its record, and some of the body
    s.d.start()
    for _ in range(2):
        a = s.ready()
        assert a.status == 503
        assert re.search(rb"damaged: %s, offset \d+ to \d+: damaged batch" % name.encode(), a.body)
        s.d.wait_log(r"damage: %s, offset \d+ to \d+" % name)
        assert s.can_write() == 503
        with s.d.connect() as c:
            assert c.ask("DELETE", "/ada/last").status == 503
            assert c.ask("GET", "/ada/notes/n13").status in (404, 500)
            for target in s.there:
                if target != "/ada/notes/n13":
                    assert c.ask("GET", target).body == s.there[target], target
        s.restart()
    s.d.stop()
    code, text = ctl("check", s.d)
    assert code == 1 and name in text
    code, text = ctl("repair", s.d)
    assert code == 0
    s.d.start()
    assert s.ready().status == 200 and s.can_write() == 201
    del s.there["/ada/notes/n13"]
    assert s.look() == set()


def test_a_changed_byte_in_a_record_head_never_brings_an_older_version_back(fresh):
    s = Store(fresh)
    s.d.stop()
    name, at = s.find(b"<again 15>")
    s.flip(name, at - 40)  # in path or meta
    s.d.start()
    assert s.ready().status == 503
    assert s.look() == {"/ada/notes/n15"}
    s.d.stop()
    code, text = ctl("check", s.d)
    assert code == 1 and "damaged record of ada/notes/n15" in text
    code, text = ctl("repair", s.d)
    assert code == 0 and re.findall(r"^gone: (\S+)", text, re.M) == ["ada/notes/n15"]
    s.d.start()
    with s.d.connect() as c:
        assert c.ask("GET", "/ada/notes/n15").status == 404
    del s.there["/ada/notes/n15"]
    assert s.look() == set()


def test_a_torn_tail_is_cut_with_one_line_and_nothing_else(fresh):
    s = Store(fresh)
    s.d.stop()
    name = s.segments()[-1]
    data = holdfast.read_file(s.path(name))
    end = (len(data.rstrip(b"\0")) + 7) // 8 * 8
    s.poke(name, end, os.urandom(500))
    code, text = ctl("check", s.d)
    assert code == 1 and "an incomplete last batch" in text
    s.d.start()
    assert len([line for line in s.d.log[s.d.run_start:] if "incomplete last batch" in line]) == 1
    assert s.look() == set() and s.ready().status == 200 and s.can_write() == 201
    s.d.stop()
    assert ctl("check", s.d)[0] == 0


def rots(s, size=50):
    """Bytes of the last record, one after another changed: what was acknowledged is never just gone."""
    name, at = s.find(b"last<the last one>", last=True)
    at += 4
    for where in (at - 50, at - 3, at + 200 + 30, at + size):  # head, name, commit record, body
        s.flip(name, where)
        s.d.start()
        assert not [line for line in s.d.log[s.d.run_start:] if "incomplete last batch" in line], where
        assert s.look() <= {"/ada/last"}, where
        assert s.ready().status == (200 if where == at + size else 503), where
        s.d.kill9()
        assert ctl("check", s.d)[0] == 1
        s.flip(name, where)


def test_a_rotten_byte_in_the_last_batch_before_a_shutdown_is_no_torn_tail(fresh):
    s = Store(fresh)
    s.d.stop()
    rots(s)
    for _ in range(3):  # closed once
        files = {n: holdfast.read_file(s.path(n)) for n in s.segments()}
        s.d.start()
        s.d.stop()
        assert files == {n: holdfast.read_file(s.path(n)) for n in s.segments()}
    s.d.start()
    assert s.look() == set() and s.can_write() == 201


def test_a_rotten_byte_in_the_last_batch_of_an_idle_store_is_no_torn_tail(fresh):
    s = Store(fresh)
    s.d.stop()
    s.d.env["HOLDFAST_SCRUB"] = "50000000"  # idle after 100 ms, and as long between passes
    s.d.start()

    def empties():
        """Commit records of no bytes, in the whole log."""
        n = 0
        for name in s.segments():
            data = holdfast.read_file(s.path(name))
            n += len(re.findall(re.escape(data[24:32]) + rb".{40}\0{8}", data[4096:], re.S))
        return n

    def put():
        s.put(s.d.tenant(name="ada"), "last", s.body("the last one", 200))

    def idle():
        """Ten times as long as it waited: so many passes of the scrub, with the rests between them."""
        passes = status(s.d)["scrub_passes_total"]
        holdfast.wait_for("ten passes of the scrub", lambda: status(s.d)["scrub_passes_total"] >= passes + 10)

    assert empties() == 1
    put()
    holdfast.wait_for("an empty batch", lambda: empties() == 2)
    idle()
    assert empties() == 2
    for _ in range(20):  # killed before it was idle: the next one sees that the end is open
        n = empties()
        put()
        s.d.kill9()
        open_end = empties() == n
        s.d.start()
        holdfast.wait_for("an empty batch", lambda: empties() == n + 1)
        if open_end:
            break
    idle()
    assert open_end and empties() == n + 1
    s.d.kill9()
    rots(s)


def test_segments_that_were_swapped_or_copied_lose_nothing(fresh):
    s = Store(fresh)
    s.d.stop()
    first, second = s.segments()[:2]
    os.rename(s.path(first), s.path("x"))
    os.rename(s.path(second), s.path(first))
    os.rename(s.path("x"), s.path(second))
    code, text = ctl("check", s.d)
    assert code == 1 and first in text and second in text
    s.d.start()
    assert s.ready().status == 503
    s.d.stop()
    code, text = ctl("repair", s.d)
    assert code == 0 and "it has its name again" in text and "gone" not in text
    shutil.copy(s.path(first), s.path("log-0000000009"))
    assert ctl("check", s.d)[0] == 1
    code, text = ctl("repair", s.d)
    assert code == 0 and not re.search("^gone:", text, re.M)
    s.d.start()
    assert s.look() == set() and s.can_write() == 201


def test_a_missing_segment_is_missed(fresh):
    s = Store(fresh)
    s.d.stop()
    name = s.find(b"<large 1>")[0]
    lost = {t for t, body in s.there.items() if s.find(body[:40], last=True)[0] == name}
    os.unlink(s.path(name))
    code, text = ctl("check", s.d)
    assert code == 1 and name + ": the segment is missing" in text
    s.d.start()
    a = s.ready()
    assert a.status == 503 and name.encode() in a.body
    s.d.stop()
    assert ctl("repair", s.d)[0] == 0
    s.d.start()
    for t in lost:
        del s.there[t]
    assert s.look() == set() and s.can_write() == 201


def checkpointed(fresh):
    """A store whose tree is a checkpoint that no worker has looked into; (it, tenant, its names, that file's name)."""
    s = Store(fresh, segment_size="4M", workers=1)
    t = s.d.tenant(name="many")
    names = ["d%02d/%04d" % (i % 40, i) for i in range(2500)]
    with s.d.connect() as c:
        for i in range(0, len(names), 50):
            some = names[i:i + 50]
            c.send(b"".join(holdfast.request("PUT", t.path(n), n.encode()) for n in some))
            for _ in some:
                assert c.answer("PUT").status == 201
        for i in range(36):
            assert c.ask("PUT", t.path("big/%d" % (i % 3)), b"b" * (1 << 20)).status in (201, 204)
    holdfast.wait_for("a checkpoint", lambda: [n for n in os.listdir(s.d.data) if re.match(r"tree-\d+\Z", n)])
    s.d.stop()
    s.d.start()
    return s, t, names, [n for n in os.listdir(s.d.data) if re.match(r"tree-\d+\Z", n)][0]


@pytest.mark.parametrize("how", ("changed", "cut", "removed"))
def test_a_damaged_checkpoint_head_that_a_new_worker_meets_is_healed_from_the_log(fresh, how):
    """The committer has the file mapped since it was whole; a worker that opens it now cannot."""
    s, t, names, tree = checkpointed(fresh)
    committer, worker = s.d.committer(), s.d.workers()[0]
    if how == "changed":
        s.flip(tree, 20)
    elif how == "cut":
        os.truncate(s.path(tree), 8192)
    else:
        os.unlink(s.path(tree))
    os.kill(worker, signal.SIGKILL)

    def get(name):
        with s.d.connect() as c:
            return c.ask("GET", t.path(name))

    holdfast.wait_for("another worker", lambda: s.d.workers().get(0) not in (None, worker))
    first = get(names[0])
    assert first.status in (200, 500, 503), first
    s.d.wait_committer(other_than=committer)
    for n in names[::10]:
        a = holdfast.wait_for("%s again" % n, lambda: [a for a in [get(n)] if a.status == 200])[0]
        assert a.body == n.encode()
    assert s.ready().status == 200
    told = [line for line in s.d.log if "damaged head" in line]
    assert 0 < len(told) < 10, told
    s.d.stop()
    assert ctl("check", s.d)[0] == 0


def test_a_damaged_checkpoint_page_that_a_worker_meets_is_healed_from_the_log(fresh):
    s, t, names, tree = checkpointed(fresh)
    pages = holdfast.read_file(s.path(tree))
    leaves = [at for at in range(4096, len(pages) - 4095, 4096) if pages[at + 4] == 1]
    assert len(leaves) > 3  # the first has the tenants, the last has "w": neither is the one
    committer = s.d.committer()
    s.flip(tree, leaves[len(leaves) // 2] + 1000)
    refused = 0
    writer = holdfast.Repeat(holdfast.request("PUT", t.path("w"), b"w"), (201, 204))
    over = threading.Event()
    writing = threading.Thread(target=holdfast.drive, args=(("127.0.0.1", s.d.port), [writer]),
                               kwargs={"stop": over.is_set})
    writing.start()

    def get(target):
        with s.d.connect() as c:
            return c.ask("GET", target)

    for n in names[::3]:
        a = get(t.path(n))
        if a.status == 500:
            refused += 1
            s.d.wait_committer(other_than=committer)
            a = holdfast.wait_for("%s again" % n, lambda: [a for a in [get(t.path(n))] if a.status == 200])[0]
        assert (a.status, a.body) == (200, n.encode()), n
    over.set()
    writing.join()
    assert refused >= 1
    assert writer.count > 0  # and not one of them failed, or drive() would have
    assert not os.path.exists(s.path(tree))
    assert s.ready().status == 200
    s.d.stop()
    assert ctl("check", s.d)[0] == 0


def test_bytes_changed_at_random_are_never_served_wrong(fresh):
    s = Store(fresh)
    s.d.stop()
    seconds = float(os.environ.get("HOLDFAST_SECONDS") or 0)
    seed = int(os.environ.get("HOLDFAST_SEED") or 0) or random.randrange(1 << 32)
    rng = random.Random(seed)
    print("seed %d" % seed)
    keep = s.d.data + ".keep"
    shutil.copytree(s.d.data, keep)
    end = time.monotonic() + seconds
    rounds = 0
    while rounds < 5 or time.monotonic() < end:
        rounds += 1
        shutil.rmtree(s.d.data)
        shutil.copytree(keep, s.d.data)
        name = rng.choice(s.segments())
        data = holdfast.read_file(s.path(name)).rstrip(b"\0")
        at = rng.randrange(4096, len(data) - 1000)  # not in the last batch: that would be a torn one
        s.flip(name, at, rng.randrange(1, 256))
        s.d.start()
        broken = s.look()
        assert len(broken) <= 1, (name, at)
        if s.ready().status == 503:
            assert s.can_write() == 503, (name, at)
        s.d.stop()
        code, text = ctl("check", s.d)
        assert code == 1 or holdfast.read_file(os.path.join(keep, name))[at] == 0, (name, at)
        code, text = ctl("repair", s.d)
        assert code == 0, (name, at, text)
        assert {"/" + n for n in re.findall(r"^gone: (\S+)", text, re.M)} == broken, (name, at, text)
        assert ctl("check", s.d)[0] == 0
    print("%d rounds" % rounds)
