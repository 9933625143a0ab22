"""Issue 2: every size around the boundaries comes back byte for byte, also after kill -9 and after compaction."""
import random

import pytest

from holdfast import chunked, request

KIB, MIB = 1 << 10, 1 << 20


def around(*points, by=2):
    return sorted({max(0, p + d) for p in points for d in range(-by, by + 1)})


# nothing, inline candidates, pages of 4 KiB, granules less their headers, chunks of 64 KiB, segments of 1 MiB
SMALL = around(0, 1, 16, 64, 128, 256, 512, 1024, 2048, 3072, by=1) + around(4096, 8192, 12288, by=70)[::3]
MIDDLE = around(16384, 32768, 65536, 65536 * 2, 65536 * 3, by=3) + around(65536 - 48, 65536 - 1024, 65536 - 128, by=2)
LARGE = around(MIB, MIB - 64, MIB - 4096, MIB - 65536, MIB // 2, 2 * MIB, by=2) + [16 * MIB - 1, 16 * MIB]

POOL = random.Random(7).randbytes(17 * MIB)


def body(size, turn=0):
    return POOL[turn * 4099:turn * 4099 + size]


@pytest.fixture(scope="module")
def store():
    import holdfast
    d = holdfast.Daemon(segment_size="1M")
    with d:
        yield d


def put_all(t, sizes, turn=0):
    with t.connect() as c:
        for n in sizes:
            a = c.ask("PUT", t.path("s%d" % n), body(n, turn))
            assert a.status in (201, 204), (n, a)


def check_all(daemon, t, sizes, turn=0):
    with daemon.connect() as c:
        for n in sizes:
            a = c.ask("GET", t.path("s%d" % n))
            assert a.status == 200 and len(a.body) == n and a.body == body(n, turn), n
    s = daemon.settings(t.name)
    assert (s["documents"], s["bytes"]) == (len(set(sizes)), sum(set(sizes)))


def test_every_size_comes_back_also_after_kill_9_and_compaction(store):
    t = store.tenant()
    sizes = sorted(set(SMALL + MIDDLE + LARGE))
    put_all(t, sizes)
    check_all(store, t, sizes)
    store.kill9()
    store.start()
    check_all(store, t, sizes)
    # overwriting makes the old segments garbage: compaction has to move what is still alive
    some = [n for n in sizes if n <= 2 * MIB]
    for turn in range(1, 4):
        put_all(t, some, turn)
    check_mixed(store, t, sizes, some, 3)
    store.kill9()
    store.start()
    check_mixed(store, t, sizes, some, 3)


def check_mixed(daemon, t, sizes, some, turn):
    with daemon.connect() as c:
        for n in sizes:
            a = c.ask("GET", t.path("s%d" % n))
            assert a.status == 200 and a.body == body(n, turn if n in some else 0), n


@pytest.mark.parametrize("lead", [1, 7, 8, 9, 100, 255])
def test_the_length_of_the_name_shifts_every_boundary(store, lead):
    """Path, meta and body lie behind one another in the arena and in the log."""
    t = store.tenant()
    name = "n" * lead
    with t.connect() as c:
        for n in around(4096 - lead, 65536 - lead - 64, 65536 - 16, by=20)[::4]:
            for fields in {}, {"Content-Type": "x" * (lead * 3 + 1)}:
                assert c.ask("PUT", t.path(name), body(n), fields).status in (201, 204)
                assert c.ask("GET", t.path(name)).body == body(n)


def test_chunked_bodies_of_odd_pieces(store):
    t = store.tenant()
    rng = random.Random(3)
    with t.connect() as c:
        for n in (1, 4095, 4096, 65535, 65536, 65537, 200001, 3 * MIB):
            whole, parts, at = body(n), [], 0
            while at < n:
                step = min(n - at, rng.choice((1, 2, 100, 4096, 65536, 70001)))
                parts.append(whole[at:at + step])
                at += step
                if len(parts) > 300:
                    parts.append(whole[at:])
                    at = n
            parts = [p for p in parts if p]
            c.send(request("PUT", t.path("c%d" % n), None, {"Transfer-Encoding": "chunked"}), chunked(*parts))
            assert c.answer("PUT").status == 201
            assert c.ask("GET", t.path("c%d" % n)).body == whole


def test_disk_use_is_bounded_while_the_same_documents_are_overwritten(store):
    """F25.  2.5 x live bytes + four segments, and the checkpoints' own."""
    import os
    from holdfast import wait_for
    t = store.tenant()
    with t.connect() as c:
        for turn in range(60):
            c.send(*[request("PUT", t.path("o%d" % n), body(20000, turn % 30)) for n in range(50)])
            for _ in range(50):
                assert c.answer("PUT").status in (201, 204)

    def live():
        import json
        a = store.ask_admin("GET", "/_tenants/")
        return sum(x["bytes"] for x in json.loads(a.body)["tenants"])

    def used():
        n = 0
        for name in os.listdir(store.data):
            try:
                n += os.stat(os.path.join(store.data, name)).st_blocks * 512
            except FileNotFoundError:
                pass
        return n
    limit = 2.5 * live() + 4 * MIB + 8 * MIB
    wait_for("disk use under %.0f (%.0f live)" % (limit, live()), lambda: used() <= limit, 20, 0.05)
    with store.connect() as c:
        for n in range(50):
            assert c.ask("GET", t.path("o%d" % n)).body == body(20000, 29)


def test_the_default_segments_do_as_well(fresh):
    d = fresh()
    t = d.tenant()
    sizes = [0, 1, 64 * KIB, 16 * MIB]
    put_all(t, sizes)
    check_all(d, t, sizes)
    d.kill9()
    d.start()
    check_all(d, t, sizes)
