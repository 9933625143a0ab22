"""Contract 6, the part of the first issues: tenants over the control socket."""
import json
import os
import subprocess
import threading

import pytest

from holdfast import HOLDFASTCTL, request


def names(daemon):
    a = daemon.ask_admin("GET", "/_tenants/")
    assert a.status == 200
    assert a["content-type"].startswith("application/json")
    return [t["name"] for t in json.loads(a.body)["tenants"]]


def test_no_tenant_exists_in_a_fresh_store(fresh):
    assert names(fresh()) == []


def test_a_tenant_is_made_shown_changed_listed_and_dropped(daemon):
    with daemon.admin() as c:
        assert c.ask("PUT", "/_tenants/shop", b'{"public":"read"}').status == 201
        a = c.ask("GET", "/_tenants/shop")
        assert a.status == 200
        shown = json.loads(a.body)
        assert shown["public"] == "read" and shown["documents"] == 0 and shown["bytes"] == 0
        assert c.ask("PUT", "/_tenants/shop", b'{"public":"write"}').status == 204
        assert json.loads(c.ask("GET", "/_tenants/shop").body)["public"] == "write"
        assert c.ask("PUT", "/_tenants/shop", b"{}").status == 204  # absent: the default
        assert json.loads(c.ask("GET", "/_tenants/shop").body)["public"] == "none"
        assert "shop" in names(daemon)
        assert c.ask("DELETE", "/_tenants/shop").status == 204
        assert "shop" not in names(daemon)
        assert c.ask("GET", "/_tenants/shop").status == 404
        assert c.ask("DELETE", "/_tenants/shop").status == 404


def test_the_list_is_sorted_and_whole(daemon):
    made = ["list-%03d" % n for n in range(150)]
    for n in reversed(made):
        daemon.tenant("none", n)
    assert [n for n in names(daemon) if n.startswith("list-")] == made
    for n in made:
        assert daemon.ask_admin("DELETE", "/_tenants/" + n).status == 204


@pytest.mark.parametrize("body", [b"", b"x", b"{", b"[]", b"null", b'"a"', b'{"public":"all"}', b'{"public":1}', b'{"public":null}', b'{"unknown":1}',
                                  b'{"public":"read"} x', b'{"public":"read",}', b"{'public':'read'}", b'{"public" "read"}', b"\xff",
                                  b"[" * 100000, b'{"a":' * 20000, b'{"public":"read"}{"public":"read"}', b'{"public":"re\\u0000ad"}'])
def test_settings_that_are_not_right_are_400(daemon, body):
    a = daemon.ask_admin("PUT", "/_tenants/bad", body)
    assert a.status == 400
    assert "bad" not in names(daemon)


def test_documents_and_bytes_are_counted(tenant):
    def counted():
        s = tenant.settings()
        return s["documents"], s["bytes"]
    assert counted() == (0, 0)
    for n in range(10):
        tenant.put("d%d" % n, b"x" * 100)
    assert counted() == (10, 1000)
    tenant.put("d0", b"x" * 50)
    tenant.put("d1", b"x" * 70000)
    assert counted() == (10, 8 * 100 + 50 + 70000)
    assert tenant.ask("PUT", "d0", b"y" * 999, {"If-Match": '"x"'}).status == 412
    tenant.ask("DELETE", "d0")
    assert counted() == (9, 8 * 100 + 70000)
    tenant.put("d0", b"")
    assert counted() == (10, 8 * 100 + 70000)


def test_a_public_tenant_can_be_read_or_written_without_a_token(daemon):
    t = daemon.tenant("read")
    with daemon.admin() as c:  # the administrator writes everywhere
        assert c.ask("PUT", t.path("a"), b"x").status == 201
    assert t.get("a").body == b"x"
    assert t.ask("HEAD", "a").status == 200
    for method, body in (("PUT", b"y"), ("DELETE", None)):
        a = t.ask(method, "a", body)
        assert a.status == 401 and "www-authenticate" in a
        t.after(a, t.path("a"))
    assert t.get("a").body == b"x"


def test_an_absent_and_a_private_tenant_are_answered_alike(daemon):
    t = daemon.tenant("none", "private")
    with daemon.admin() as c:
        assert c.ask("PUT", t.path("a"), b"x").status == 201
        assert c.ask("GET", t.path("a")).body == b"x"
    for method, body in (("GET", None), ("HEAD", None), ("PUT", b"y"), ("DELETE", None), ("POST", b"x"), ("OPTIONS", None)):
        for rest, fields in (("a", {}), ("absent", {}), ("a", {"If-Match": '"x"'}), ("a", {"Authorization": "Bearer " + "x" * 43}),
                             ("a", {"Authorization": "Basic eDp5"}), ("a", {"Authorization": "nonsense"}), ("a//b", {}), ("_x", {}),
                             ("", {}), ("a?token=x", {})):
            got = []
            for name in "private", "absent1":
                with daemon.connect() as c:
                    got.append(c.ask(method, "/%s/%s" % (name, rest), body, fields))
            one, other = got
            assert one.status == other.status, (method, rest, fields)
            drop = ("date",)
            assert [f for f in one.fields if f[0] not in drop] == [f for f in other.fields if f[0] not in drop]
            assert one.body.replace(b"private", b"absent1") == other.body
            if method in ("GET", "PUT", "DELETE") and rest == "a":
                assert one.status == 401


def test_tenants_are_separate(daemon):
    a, b = daemon.tenant(), daemon.tenant()
    a.put("x", b"a")
    assert b.get("x").status == 404
    b.put("x", b"b")
    assert a.get("x").body == b"a" and b.get("x").body == b"b"
    a.ask("DELETE", "x")
    assert b.get("x").body == b"b"


def test_a_dropped_tenant_is_gone_with_everything_also_when_it_comes_back(daemon):
    t = daemon.tenant(name="gone")
    tags = {t.put("d%d" % n, b"x" * 1000).etag for n in range(100)}
    assert daemon.ask_admin("DELETE", "/_tenants/gone").status == 204
    assert t.get("d1").status == 401
    assert t.ask("PUT", "d1", b"x").status == 401
    t = daemon.tenant(name="gone")
    assert t.get("d1").status == 404
    assert t.settings()["documents"] == 0 and t.settings()["bytes"] == 0
    for n in range(100):
        assert t.put("d%d" % n, b"x" * 1000).etag not in tags


def test_settings_take_effect_at_once_in_all_workers(daemon):
    conns = [daemon.connect() for _ in range(16)]
    for n in range(10):
        daemon.tenant("write", "flip")
        assert {c.ask("GET", "/flip/x").status for c in conns} == {404}
        daemon.tenant("none", "flip")
        assert {c.ask("GET", "/flip/x").status for c in conns} == {401}
    for c in conns:
        c.close()


def test_dropping_a_tenant_under_writes_leaves_no_half(daemon):
    """A write that comes through after the drop would be counted in the one that comes back."""
    for n in range(10):
        t = daemon.tenant(name="race")
        stop = threading.Event()
        seen = set()

        def write():
            with t.connect() as c:
                k = 0
                while not stop.is_set():
                    a = c.ask("PUT", t.path("k%d" % k), b"x")
                    seen.add(a.status)
                    if a.status == 401:
                        break
                    k += 1
        threads = [threading.Thread(target=write) for _ in range(4)]
        for th in threads:
            th.start()
        t.put("mine", b"x")
        assert daemon.ask_admin("DELETE", "/_tenants/race").status == 204
        for th in threads:
            th.join(15)
        stop.set()
        assert seen <= {201, 204, 401}  # 204: all four write the same names
        again = daemon.tenant(name="race")
        assert again.settings()["documents"] == 0
        assert daemon.ask_admin("DELETE", "/_tenants/race").status == 204


def test_tenants_survive_a_restart(fresh):
    d = fresh()
    d.tenant("read", "one").conn.close()
    d.tenant("write", "two").put("a", b"x")
    d.tenant("none", "three")
    d.ask_admin("DELETE", "/_tenants/three")
    d.kill9()
    d.start()
    assert names(d) == ["one", "two"]
    assert d.settings("one")["public"] == "read"
    assert d.settings("two")["documents"] == 1
    with d.connect() as c:
        assert c.ask("GET", "/two/a").body == b"x"


def test_the_control_socket_is_not_for_everybody(daemon):
    mode = os.stat(daemon.control).st_mode & 0o777
    assert mode & 0o002 == 0 or os.getuid() != 0 or _asks_as_nobody(daemon)


def _asks_as_nobody(daemon):
    """Where anybody may connect, the peer's uid must be what counts."""
    os.chmod(daemon.dir, 0o755)
    code = ("import os, socket, sys; os.setgid(65534); os.setuid(65534); s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]);"
            "s.sendall(b'GET /_tenants/ HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n'); sys.stdout.buffer.write(s.recv(4096))")
    out = subprocess.run(["/usr/bin/python3", "-c", code, daemon.control], capture_output=True).stdout
    os.chmod(daemon.dir, 0o700)
    return out[9:12] in (b"", b"401", b"403", b"404")


def test_the_control_socket_pipelines_like_any_other(daemon):
    with daemon.admin() as c:
        c.send(request("PUT", "/_tenants/pipe", b'{"public":"write"}'), request("PUT", "/pipe/a", b"x"), request("GET", "/pipe/a"),
               request("GET", "/_tenants/pipe"), request("DELETE", "/_tenants/pipe"), request("GET", "/_tenants/pipe"))
        assert c.answer("PUT").status == 201
        assert c.answer("PUT").status == 201
        assert c.answer().body == b"x"
        assert json.loads(c.answer().body)["documents"] == 1
        assert c.answer("DELETE").status == 204
        assert c.answer().status == 404


# --- holdfastctl


def ctl(daemon, *args):
    return subprocess.run([HOLDFASTCTL, "-s", daemon.control, *args], capture_output=True, text=True, timeout=15)


def test_holdfastctl_adds_lists_and_removes(daemon):
    r = ctl(daemon, "tenant", "add", "byctl", "--public", "write")
    assert r.returncode == 0, r
    assert daemon.settings("byctl")["public"] == "write"
    r = ctl(daemon, "tenant", "list")
    assert r.returncode == 0 and "byctl" in r.stdout
    r = ctl(daemon, "tenant", "remove", "byctl")
    assert r.returncode == 0
    assert "byctl" not in ctl(daemon, "tenant", "list").stdout


def test_holdfastctl_says_what_went_wrong(daemon):
    for args in (("tenant", "remove", "not-there"), ("tenant", "add", "Bad_Name"), ("tenant", "add", "x", "--public", "all"), ("nonsense",), ()):
        r = ctl(daemon, *args)
        assert r.returncode != 0 and r.stderr.strip(), args
    r = subprocess.run([HOLDFASTCTL, "-s", daemon.control + "-none", "status"], capture_output=True, text=True, timeout=15)
    assert r.returncode != 0 and daemon.control + "-none" in r.stderr


def test_holdfastctl_status_tells_something(daemon):
    r = ctl(daemon, "status")
    assert r.returncode == 0 and r.stdout.strip()
