"""Contract 2 and 7: the input budget, max-connections and the time limits."""
import os
import socket
import time

import pytest

from holdfast import PATIENCE, Failed, request, wait_for

MIB = 1 << 20


def upload(daemon, target, size):
    """A PUT that has its room in the budget (it got its 100) and no byte of body yet; or the refusal."""
    c = daemon.connect()
    c.send(request("PUT", target, None, {"Content-Length": str(size), "Expect": "100-continue"}))
    return c, c.answer("PUT", interim=True)


@pytest.fixture(scope="module")
def narrow():
    import holdfast
    d = holdfast.Daemon(max_document="1M", input_budget="6M")
    with d:
        yield d


def fill(daemon, tenant, size, most=20):
    """Starts uploads until one is refused; the connections that have room, and the refusal."""
    held = []
    for n in range(most):
        c, a = upload(daemon, tenant.path("u%d" % n), size)
        if a.status != 100:
            return held, c, a
        held.append(c)
    raise Failed("%d uploads of %d bytes, and none is refused" % (most, size))


def test_over_the_budget_is_503_and_other_tenants_are_not_disturbed(narrow):
    one, other = narrow.tenant(), narrow.tenant()
    held, c, a = fill(narrow, one, MIB - 100000)
    assert a.status == 503 and a["retry-after"].isdigit()
    assert 2 <= len(held) <= 3  # a half of the budget, no more
    if not a.closes:
        c.send(b"x" * (MIB - 100000))
        c.expect_kept(one.path("none"))
    # a tenant has half of it at most: for the other there is room, several times over
    for n in range(5):
        assert other.ask("PUT", "big%d" % n, b"y" * (MIB - 100000)).status == 201
    # small ones of the first tenant wait for nobody else either, or are told to come again
    assert one.ask("PUT", "small", b"x").status in (201, 503)
    # the uploads that have room end well
    for n, h in enumerate(held):
        h.send(b"z" * (MIB - 100000))
        assert h.answer("PUT").status == 201
    assert one.ask("PUT", "again", b"y" * (MIB - 100000)).status == 201
    for h in [*held, c]:
        h.close()


def test_the_budget_comes_back_however_an_upload_ends(narrow):
    t = narrow.tenant()
    for how in ("close", "reset", "half", "refused", "bad chunk", "done"):
        held, c, a = fill(narrow, t, MIB - 50000)
        assert a.status == 503
        c.close()
        for h in held:
            if how == "close":
                h.send(b"x" * 1000)
                h.close()
            elif how == "reset":
                h.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                h.close()
            elif how == "half":
                h.send(b"x" * 500000)
                h.half_close()
                h.close()
            elif how == "done":
                h.send(b"x" * (MIB - 50000))
                assert h.answer("PUT").status in (201, 204)
                h.close()
            else:
                h.close()

        def room():
            c, a = upload(narrow, t.path("probe"), MIB - 50000)
            c.close()
            return a.status == 100
        wait_for("room again after: " + how, room)


def test_a_chunked_body_over_the_budget_is_503_too(narrow):
    t = narrow.tenant()
    held, c, a = fill(narrow, t, MIB - 100000)
    c.close()
    with narrow.connect() as c:
        c.send(request("PUT", t.path("c"), None, {"Transfer-Encoding": "chunked"}))
        got = None
        try:
            for _ in range(16):
                c.send(b"10000\r\n" + b"x" * 65536 + b"\r\n")
            c.send(b"0\r\n\r\n")
        except (BrokenPipeError, ConnectionResetError):
            raise Failed("cut before the answer could be read") from None
        got = c.answer("PUT")
        assert got.status in (503, 413) and (got.status == 413 or "retry-after" in got)
    for h in held:
        h.close()


def test_a_body_of_exactly_max_document_is_stored(narrow):
    t = narrow.tenant()
    assert t.ask("PUT", "a", b"x" * MIB).status == 201
    assert len(t.get("a").body) == MIB
    a = t.ask("PUT", "a", b"x" * (MIB + 1))
    assert a.status == 413


# --- connections


def test_over_max_connections_the_longest_idle_one_is_closed(fresh):
    d = fresh(workers=1, max_connections=16)
    t = d.tenant()
    t.put("a", b"x")
    t.conn.close()
    busy = d.connect()  # the oldest of all, but not idle
    busy.send(request("PUT", t.path("b"), None, {"Content-Length": "2"}) + b"1")
    held = []
    for n in range(12):
        held.append(d.connect())
        assert held[-1].ask("GET", t.path("a")).body == b"x"
    time.sleep(0.2)  # idle times that differ: the server may take them for equal within a moment
    assert held[0].ask("GET", t.path("a")).body == b"x"  # now held[1] has been idle for longest
    more = []

    def closed(c):
        c.sock.setblocking(False)
        try:
            return c.sock.recv(1, socket.MSG_PEEK) == b""
        except BlockingIOError:
            return False
        finally:
            c.sock.settimeout(PATIENCE)
    while not any(map(closed, held)):
        more.append(d.connect())
        assert more[-1].ask("GET", t.path("a")).body == b"x"
        assert len(more) <= 16
    assert closed(held[1])
    for c in held[2:] + held[:1]:
        if not closed(c):
            assert c.ask("GET", t.path("a")).body == b"x"
    assert sum(map(closed, held)) <= len(more)
    busy.send(b"2")
    assert busy.answer("PUT").status == 201
    for c in [busy, *held, *more]:
        c.close()


def test_a_hundred_connections_more_than_there_is_room_for_are_all_served(fresh):
    d = fresh(workers=1, max_connections=20)
    t = d.tenant()
    t.put("a", b"x")
    conns = []
    for _ in range(120):
        c = d.connect()
        assert c.ask("GET", t.path("a")).body == b"x"
        conns.append(c)
    assert t.connect().ask("GET", t.path("a")).status == 200
    for c in conns:
        c.close()


# --- time


@pytest.fixture(scope="module")
def hasty():
    import holdfast
    d = holdfast.Daemon(head_timeout="1s", body_timeout="1s", idle_timeout="2s", write_timeout="1s")
    with d:
        yield d


def end_of(c, timeout=6):
    """(answers, seconds) until the other end closes."""
    start = time.monotonic()
    c.sock.settimeout(timeout)
    answers = []
    while c.buf or c.sock.recv(1, socket.MSG_PEEK):
        answers.append(c.answer())
    return answers, time.monotonic() - start


def test_time_limits(hasty):
    """All at once, so that the waits overlap."""
    t = hasty.tenant()
    t.put("a", b"x")
    t.put("large", b"y" * (16 << 20))
    conns = {}

    def open_one(name, data):
        conns[name] = c = hasty.connect()
        c.send(data)
    open_one("half a line", b"GET /x")
    open_one("half a head", b"GET /x HTTP/1.1\r\nHost: a\r\n")
    open_one("half a body", request("PUT", t.path("b"), None, {"Content-Length": "10"}) + b"12345")
    open_one("half a chunk", request("PUT", t.path("b"), None, {"Transfer-Encoding": "chunked"}) + b"5\r\n12")
    open_one("no body at all", request("PUT", t.path("b"), None, {"Content-Length": "10"}))
    open_one("idle", request("GET", t.path("a")))
    assert conns["idle"].answer().body == b"x"
    open_one("half a second head", request("GET", t.path("a")) + b"GET /x HTTP/1.1\r\n")
    assert conns["half a second head"].answer().body == b"x"
    conns["silent"] = hasty.connect()
    started = time.monotonic()
    # one byte at a time is no progress of a head (F69)
    drip, dripped = hasty.connect(), 0
    try:
        while time.monotonic() < started + 4:
            drip.sock.send(b"GET /aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"[dripped % 60:][:1])
            dripped += 1
            drip.sock.settimeout(0.1)
            try:
                if drip.sock.recv(1, socket.MSG_PEEK):
                    break
                raise Failed("closed without a 408")
            except TimeoutError:
                pass
    except (BrokenPipeError, ConnectionResetError):
        raise Failed("reset, not answered") from None
    assert drip.answer().status == 408
    assert time.monotonic() - started < 3.5
    for name in ("half a line", "half a head", "half a body", "half a chunk", "no body at all", "half a second head"):
        answers, _ = end_of(conns[name])
        assert [a.status for a in answers] == [408], name
        assert answers[0].closes
    for name in "idle", "silent":
        answers, _ = end_of(conns[name])
        assert answers == [], name
    assert time.monotonic() - started < 6
    with hasty.connect() as c:
        assert c.ask("GET", t.path("b")).status == 404
    for c in conns.values():
        c.close()


def test_a_slow_but_steady_body_is_progress(hasty):
    t = hasty.tenant()
    with hasty.connect() as c:
        c.send(request("PUT", t.path("slow"), None, {"Content-Length": "12000"}))
        for n in range(6):
            c.send(b"%d" % n * 2000)  # 5 KB/s; a few bytes now and then are no progress (F69)
            c.sock.settimeout(0.4)
            if n < 5:
                with pytest.raises(TimeoutError):
                    c.sock.recv(1, socket.MSG_PEEK)
        c.sock.settimeout(PATIENCE)
        assert c.answer("PUT").status == 201
    assert t.get("slow").body == b"".join(b"%d" % n * 2000 for n in range(6))


def sockets(daemon):
    n = 0
    for pid in daemon.workers().values():
        for fd in os.listdir("/proc/%d/fd" % pid):
            try:
                n += os.readlink("/proc/%d/fd/%s" % (pid, fd)).startswith("socket:")
            except OSError:
                pass
    return n


def test_a_stalled_reader_is_cut_and_disturbs_nobody(hasty):
    import holdfast
    t = hasty.tenant()
    t.put("large", b"y" * (16 << 20))
    t.put("a", b"x")
    t.conn.close()
    before = wait_for("only listening sockets are left", lambda: sockets(hasty), 10)
    c = holdfast.Conn(("127.0.0.1", hasty.port), rcvbuf=65536)
    c.send(request("GET", t.path("large")))
    c.sock.recv(1, socket.MSG_PEEK)
    with hasty.connect() as quick:
        assert quick.ask("GET", t.path("a")).body == b"x"
        assert quick.ask("PUT", t.path("large"), b"z").status == 204
    assert sockets(hasty) > 0 and before
    wait_for("the stalled connection is dropped", lambda: ended(hasty, c), 8)
    c.close()


def ended(daemon, c):
    """No worker has the other end of c any more: no established connection from the daemon's port to ours."""
    mine = c.sock.getsockname()[1]
    for line in open("/proc/net/tcp").read().splitlines()[1:]:
        part = line.split()
        local, remote, state = part[1], part[2], part[3]
        if int(local.split(":")[1], 16) == daemon.port and int(remote.split(":")[1], 16) == mine and state == "01":
            return False
    return True


def test_a_slow_but_steady_reader_gets_everything(hasty):
    import holdfast
    t = hasty.tenant()
    body = bytes(range(256)) * 16384  # 4 MiB
    t.put("large", body)
    c = holdfast.Conn(("127.0.0.1", hasty.port), rcvbuf=32768)
    c.send(request("GET", t.path("large")))
    head = c.head()
    got = [c.buf]
    have, start = len(c.buf), time.monotonic()
    while have < len(body):
        data = c.sock.recv(16384)
        assert data, "cut after %d bytes" % have
        got.append(data)
        have += len(data)
        # about 2.5 s in all, so that the limit of one second passes twice
        lag = start + 2.5 * have / len(body) - time.monotonic()
        if lag > 0:
            time.sleep(lag)
    assert b"".join(got) == body and int(head["content-length"]) == len(body)
    c.close()
