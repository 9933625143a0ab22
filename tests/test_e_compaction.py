"""Compaction and checkpoints under load (contract 8: disk use; design.md: compaction), and the scrub.

A few seconds by default; make check-compaction SECONDS=300 spends that long.
"""
import contextlib
import os
import random
import signal
import time

import pytest

import compaction
from compaction import Bulk, Reader, Watch, Writer, status, verify
from holdfast import Conn, Failed, drive, pss_bytes, request, wait_for

LONG = float(os.environ.get("HOLDFAST_SECONDS") or 0)
WRITERS = 64

K, M = 1 << 10, 1 << 20
# segment size; documents and size of bench/load's writers, if there are any; of those who check:
# documents, (weight, least, most) of sizes, deletes; seconds (0: only in a long run), share of a long run
LOADS = {
    "16-B": ("1M", (12000, 16), 600, [(1, 34, 34)], 0.1, 1.5, 0.1),
    "16-B-default": ("16M", (100000, 16), 600, [(1, 34, 34)], 0.1, 0, 0.3),
    "4-KiB": ("1M", (1500, 4096), 300, [(1, 4 * K, 4 * K)], 0.1, 1.5, 0.1),
    "4-KiB-default": ("16M", (6000, 4096), 300, [(1, 4 * K, 4 * K)], 0.1, 0, 0.2),
    "mixed": ("1M", None, 1200, [(600, 30, 2000), (40, 60 * K, 70 * K), (2, M, M + 9)], 0.2, 1, 0.1),
    "mixed-default": ("16M", (3000, 2000), 1200, [(600, 30, 2000), (40, 60 * K, 70 * K), (10, M, M + 9)], 0.2, 0, 0.2),
}


def writers_of(tenant, many, documents, sizes, deletes, seed):
    return [Writer(tenant, ["w%d/d%d" % (i, k) for k in range(documents // many)], sizes, deletes, seed + i)
            for i in range(many)]


@pytest.mark.parametrize("name", LOADS)
def test_disk_use_is_bounded_at_every_moment(fresh, name):
    """64 writers overwrite and delete; 2.5 x live + four segments holds in every sample; all bodies are right after."""
    segment, bulk, documents, sizes, deletes, seconds, share = LOADS[name]
    seconds = LONG * share or seconds
    if not seconds:
        pytest.skip("make check-compaction SECONDS=... has it")
    d = fresh(segment_size=segment)
    t = d.tenant()
    writers = writers_of(t, 12 if bulk else WRITERS, documents, sizes, deletes, 7)
    readers = [Reader(t, [k for w in writers for k in w.keys], i) for i in range(4)]
    with Watch(d, int(segment[:-1]) * M) as watch, \
            Bulk(t, WRITERS - 12, *bulk) if bulk else contextlib.nullcontext():
        drive(("127.0.0.1", d.port), writers + readers, seconds=seconds)
    s = status(d)
    print("%s: %d commits (%d of them checked), %d reads, %d samples, worst %.2f (%s), %.1f MB moved of %.1f, %d checkpoints"
          % (name, s["commits_total"], sum(w.done for w in writers), sum(r.done for r in readers), watch.samples,
             watch.worst, watch.at_worst, s["moved_bytes_total"] / 1e6, s["logged_bytes_total"] / 1e6,
             s["checkpoints_total"]))
    assert watch.worst <= 1, watch.at_worst
    verify(t, writers)
    d.kill9()
    d.start()
    verify(t, writers)


def test_space_comes_back_when_documents_go(fresh):
    """Deletes make the live bytes fewer, nobody writes any more: the rest is rewritten until the bound holds again."""
    d = fresh(segment_size="1M")
    t = d.tenant()
    writers = writers_of(t, WRITERS, 2000, [(1, 4 * K, 4 * K)], 0, 1)
    drive(("127.0.0.1", d.port), writers, stop=lambda: all(not w.todo for w in writers))
    keep = random.Random(5)
    gone = [(w, key) for w in writers for key in w.have if keep.random() < 0.8]
    with t.connect() as c:
        while gone:
            some, gone = gone[:50], gone[50:]
            c.send(*[request("DELETE", t.path(key)) for _, key in some])
            for w, key in some:
                assert c.answer().status == 204
                w.have[key] = None
    watch = Watch(d, M)
    wait_for("disk use within the bound", lambda: compaction.disk_use(d.data) <= watch.allowed())
    verify(t, writers)


def files_mapped(pid, what):
    with open("/proc/%d/maps" % pid) as f:
        return {line.split(None, 5)[5].strip() for line in f if what in line}


def test_a_slow_reader_gets_the_version_it_began_with_and_keeps_no_disk_space(fresh):
    """F87, F69: a body over an old version, read slowly; its segment is unlinked and let go of meanwhile."""
    d = fresh(segment_size="1M", workers=1)
    t = d.tenant()
    old = compaction.body_of("big", 1, 16 * M)
    t.put("big", old)
    with t.connect() as c:
        slow = Conn(("127.0.0.1", d.port), rcvbuf=65536)
        slow.send(request("GET", t.path("big")))
        head = slow.head()
        assert head.status == 200
        got = [slow._exactly(100000)]
        segments = {f for f in os.listdir(d.data) if f.startswith("log-")}
        old_segment = max(segments, key=lambda f: os.stat(os.path.join(d.data, f)).st_size)
        assert c.ask("PUT", t.path("big"), b"new").status == 204

        def churn():
            for i in range(40):
                assert c.ask("PUT", t.path("churn"), b"x" * 200000).status in (201, 204)
            got.append(slow._exactly(1000))  # slow, but it moves
            return old_segment not in os.listdir(d.data)
        wait_for("the old version's segment is unlinked", churn)
        # without the worker's mapping the blocks are free
        wait_for("the worker lets go of it", lambda: churn() and not files_mapped(d.workers()[0], old_segment))
        n = sum(map(len, got))
        got.append(slow._exactly(16 * M - n))
        assert b"".join(got) == old
        assert t.get("big").body == b"new"
        slow.close()


def test_workers_that_stand_still_disturb_nobody_and_read_right(fresh):
    """A worker is stopped at any moment, also with a pin: nothing that it looks at is reused; space comes back after."""
    seconds = LONG * 0.1 or 1.5
    d = fresh(segment_size="1M", workers=2)
    t = d.tenant()
    writers = writers_of(t, WRITERS, 1500, [(9, 30, 4 * K), (1, 60 * K, 70 * K)], 0.1, 3)
    readers = [Reader(t, [k for w in writers for k in w.keys], i) for i in range(16)]
    watch = Watch(d, M)
    end = time.monotonic() + seconds
    state = {"stopped": None, "until": 0.0, "stops": 0}
    rnd = random.Random(9)

    def turn():
        now = time.monotonic()
        if state["stopped"] and now >= state["until"]:
            os.kill(state["stopped"], signal.SIGCONT)
            state["stopped"], state["until"] = None, now + rnd.random() * 0.05
        elif not state["stopped"] and now >= state["until"]:
            state["stopped"], state["until"] = rnd.choice(d.workers()), now + rnd.random() * 0.2
            os.kill(state["stopped"], signal.SIGSTOP)
            state["stops"] += 1
        return now >= end and not state["stopped"]
    try:
        drive(("127.0.0.1", d.port), writers + readers, stop=turn)
    finally:
        if state["stopped"]:
            os.kill(state["stopped"], signal.SIGCONT)
    print("%d stops, %d writes, %d reads" % (state["stops"], sum(w.done for w in writers), sum(r.done for r in readers)))
    assert state["stops"] > 3 and sum(r.done for r in readers) > 100
    verify(t, writers)
    wait_for("disk use within the bound", lambda: compaction.disk_use(d.data) <= watch.allowed())


# --- scrub -------------------------------------------------------------------------


def flip(d, pattern, at=0):
    """Changes a byte of the first place where the log has the pattern; (segment, offset) of that byte."""
    for name in sorted(os.listdir(d.data)):
        if not name.startswith("log-"):
            continue
        path = os.path.join(d.data, name)
        with open(path, "r+b") as f:
            where = f.read().find(pattern)
            if where >= 0:
                f.seek(where + at)
                byte = f.read(1)[0]
                f.seek(where + at)
                f.write(bytes([byte ^ 0x40]))
                os.fsync(f.fileno())
                return int(name[4:]), where + at
    raise Failed("not in the log: %r" % pattern[:40])


def test_the_scrub_finds_what_rots_and_names_it_once(fresh):
    """Bodies, a table of checksums, a head: each found in idle time, while nobody reads; dead records are not looked at."""
    d = fresh(started=False)
    d.env["HOLDFAST_SCRUB"] = "100000000"  # bytes a second
    d.start()
    t = d.tenant(name="alice")
    big = compaction.body_of("big", 1, 300000)
    bodies = {"notes/a%d" % i: compaction.body_of("notes/a%d" % i, 1, 500 + i) for i in range(50)}
    bodies["big"] = big
    t.put("dead", b"nobody refers to this any more")
    t.put("dead", b"but to this")
    for key, body in bodies.items():
        t.put(key, body)
    passes = lambda: status(d)["scrub_passes_total"]
    wait_for("a whole pass", lambda: passes() >= 2)
    s = status(d)
    assert s["scrub_damaged_total"] == 0 and s["scrub_bytes_total"] > 300000
    places = {
        "notes/a7": flip(d, bodies["notes/a7"], 100),
        "big": flip(d, big, 200000),
        "notes/a33": flip(d, b"notes/a33", 2),
    }
    flip(d, b"nobody refers to this any more")
    wait_for("three damages", lambda: status(d)["scrub_damaged_total"] >= 3)
    n = passes()
    wait_for("two passes more", lambda: passes() >= n + 2)
    assert status(d)["scrub_damaged_total"] == 3
    lines = [line for line in d.log if "scrub: " in line]
    assert len(lines) == 3, lines
    for key, (segment, at) in places.items():
        line, = [x for x in lines if x.endswith("document /alice/" + key)]
        assert "log-%010d," % segment in line, line
        offset = int(line.partition("offset ")[2].partition(":")[0])
        assert offset <= at < offset + 400000 and offset % 8 == 0, (line, at)
    assert b"holdfast_scrub_damaged_total 3" in d.ask_admin("GET", "/_metrics").body
    # nothing else changed: what is damaged is refused, the rest is served
    for key, body in bodies.items():
        a = t.get(key)
        if key in places:
            assert a.status == 500 or (key == "big" and a.status == 200), (key, a)
            if key == "big":
                break
        else:
            assert a.body == body


def test_a_scrub_fills_no_memory_and_rests(fresh):
    """What was read does not stay in memory; between passes the committer sleeps."""
    d = fresh(started=False)
    d.env["HOLDFAST_SCRUB"] = "400000000"
    d.start()
    t = d.tenant()
    for i in range(6):
        t.put("d%d" % i, os.urandom(2 * M))
    wait_for("a whole pass", lambda: status(d)["scrub_passes_total"] >= 2)
    assert status(d)["scrub_bytes_total"] > 2 * 12 * M
    before = status(d)["scrub_passes_total"]
    wait_for("the rest after it", lambda: status(d)["scrub_passes_total"] > before)
    assert pss_bytes(d.committer()) < 4 * M
