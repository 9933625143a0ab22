"""Contract 2 and 7: documents, their fields and the manners of every answer."""
import re

import pytest

from holdfast import Failed, chunked, http_date, request

KEPT = {
    "Content-Type": "text/html; charset=utf-8; x=\"a;b\"",
    "Content-Encoding": "gzip",
    "Content-Language": "de, en",
    "Content-Disposition": "attachment; filename=\"a b.txt\"; filename*=UTF-8''%e2%82%ac",
    "Cache-Control": "max-age=60, private",
}


def allowed(a):
    return {m.strip() for m in a["allow"].split(",")}


def test_a_put_creates_with_201_and_replaces_with_204(tenant):
    a = tenant.ask("PUT", "a", b"one", {"Host": "evil.example"})
    assert a.status == 201 and a["location"] == tenant.path("a")
    b = tenant.ask("PUT", "a", b"two")
    assert b.status == 204 and "location" not in b
    assert a.etag != b.etag
    c = tenant.get("a")
    assert (c.status, c.body, c.etag) == (200, b"two", b.etag)


def test_get_says_all_that_a_document_has(tenant):
    tag = tenant.put("a", b"12345").etag
    a = tenant.get("a")
    assert a.status == 200 and a.etag == tag
    assert a["content-type"] == "application/octet-stream"
    assert a["content-length"] == "5"
    assert a["accept-ranges"] == "bytes"
    assert http_date(a["last-modified"]) <= http_date(a["date"])
    assert a["cache-control"] == "no-cache"
    assert a["x-content-type-options"] == "nosniff"
    assert a["content-security-policy"] == "sandbox"


def test_every_kept_field_comes_back_as_it_was_sent(tenant):
    tenant.put("a", b"x", KEPT)
    for a in tenant.get("a"), tenant.ask("HEAD", "a"), tenant.get("a", {"Range": "bytes=0-0"}):
        for name, value in KEPT.items():
            assert a[name] == value
    assert tenant.get("a")["x-content-type-options"] == "nosniff"
    assert tenant.get("a")["content-security-policy"] == "sandbox"


def test_a_replacement_keeps_no_field_of_the_version_before(tenant):
    tenant.put("a", b"x", KEPT)
    tenant.put("a", b"y")
    a = tenant.get("a")
    assert a["content-type"] == "application/octet-stream" and a["cache-control"] == "no-cache"
    for name in "content-encoding", "content-language", "content-disposition":
        assert name not in a


def test_no_other_field_is_kept(tenant):
    tenant.put("a", b"x", {"X-Mine": "1", "Set-Cookie": "a=b", "Content-Location": "/x", "Access-Control-Allow-Origin": "*",
                           "Content-Security-Policy": "default-src *", "Server": "other", "Link": "<x>"})
    a = tenant.get("a")
    for name in "x-mine", "set-cookie", "content-location", "access-control-allow-origin", "link":
        assert name not in a
    assert a["content-security-policy"] == "sandbox"


def test_kept_fields_of_4_kib_are_room_enough_and_more_is_431(tenant):
    assert tenant.ask("PUT", "a", b"x", {"Content-Type": "text/" + "x" * 3900}).status == 201
    assert tenant.get("a")["content-type"] == "text/" + "x" * 3900
    a = tenant.ask("PUT", "b", b"x", {"Content-Type": "text/" + "x" * 4100})
    assert a.status == 431
    tenant.after(a, tenant.path("a"))
    a = tenant.ask("PUT", "b", b"x", {n: "x" * 1100 for n in KEPT if n != "Cache-Control"})
    assert a.status == 431
    assert tenant.get("b").status == 404


def test_head_is_get_without_its_body(tenant):
    tenant.put("a", b"x" * 1000, KEPT)
    for target, fields in (("a", {}), ("none", {}), ("a", {"If-None-Match": "*"}), ("a", {"If-Match": '"z"'}), ("a//", {})):
        head, get = tenant.ask("HEAD", target, None, fields), tenant.get(target, fields)
        assert head.status == get.status
        drop = {"date"}
        assert [f for f in head.fields if f[0] not in drop] == [f for f in get.fields if f[0] not in drop]


def test_delete_is_204_then_404(tenant):
    tenant.put("a", b"x")
    a = tenant.ask("DELETE", "a")
    assert a.status == 204 and a.body == b""
    assert tenant.get("a").status == 404
    assert tenant.ask("DELETE", "a").status == 404
    assert tenant.ask("HEAD", "a").status == 404


def test_a_delete_with_a_body_does_not_poison_the_connection(tenant):
    tenant.put("a", b"x")
    a = tenant.ask("DELETE", "a", b"GET /evil HTTP/1.1\r\n\r\n")
    assert a.status in (204, 400)
    tenant.after(a, tenant.path("b"))


def test_options_names_the_methods(tenant):
    tenant.put("a", b"x")
    for target in tenant.path("a"), tenant.path("absent"), "*":
        a = tenant.conn.ask("OPTIONS", target)
        assert a.status == 204
        assert allowed(a) >= {"GET", "HEAD", "PUT", "DELETE", "OPTIONS"}


@pytest.mark.parametrize("method", ["POST", "PATCH"])
def test_known_methods_that_a_document_does_not_have_are_405(tenant, method):
    tenant.put("a", b"x")
    a = tenant.ask(method, "a", b"body")
    assert a.status == 405
    assert allowed(a) >= {"GET", "HEAD", "PUT", "DELETE", "OPTIONS"} and method not in allowed(a)
    tenant.after(a, tenant.path("a"))


@pytest.mark.parametrize("method", ["TRACE", "PROPFIND", "get", "Get", "put", "X", "GETS", "M-SEARCH", "LOCK", "BREW", "A" * 40])
def test_all_other_methods_are_501(tenant, method):
    tenant.put("a", b"x")
    a = tenant.ask(method, "a")
    assert a.status == 501
    tenant.after(a, tenant.path("a"))


@pytest.mark.parametrize("target", ["localhost:443", "/", "*", "http://localhost/"])
def test_connect_is_501_whatever_its_target(daemon, target):
    """F81."""
    with daemon.connect() as c:
        a = c.ask("CONNECT", target, host="localhost:443")
        assert a.status == 501
        c.after(a, "/nothing/x")


def test_a_put_without_length_is_411(tenant):
    a = tenant.ask("PUT", "a")
    assert a.status == 411
    assert tenant.get("a").status == 404


def test_a_put_of_a_range_is_400(tenant):
    tenant.put("a", b"old")
    a = tenant.ask("PUT", "a", b"x", {"Content-Range": "bytes 0-0/3"})
    assert a.status == 400
    tenant.after(a, tenant.path("a"))
    assert tenant.get("a").body == b"old"


def test_a_chunked_put_is_stored_whole(tenant):
    parts = [b"a", b"bc" * 5000, b"d" * 70000, b"e"]
    tenant.conn.send(request("PUT", tenant.path("a"), None, {"Transfer-Encoding": "chunked"}), chunked(*parts))
    assert tenant.conn.answer("PUT").status == 201
    a = tenant.get("a")
    assert a.body == b"".join(parts) and a["content-length"] == str(len(a.body))
    tenant.conn.send(request("PUT", tenant.path("a"), None, {"Transfer-Encoding": "chunked"}), chunked())
    assert tenant.conn.answer("PUT").status == 204
    assert tenant.get("a").body == b""


def test_a_body_cut_short_is_not_stored(tenant):
    """F31."""
    tenant.put("a", b"old")
    for body in (request("PUT", tenant.path("a"), None, {"Content-Length": "100"}) + b"x" * 60,
                 request("PUT", tenant.path("a"), None, {"Transfer-Encoding": "chunked"}) + b"64\r\n" + b"x" * 60,
                 request("PUT", tenant.path("a"), None, {"Transfer-Encoding": "chunked"}) + b"3c\r\n" + b"x" * 60 + b"\r\n",
                 request("PUT", tenant.path("a"), None, {"Transfer-Encoding": "chunked"}) + b"3c\r\n" + b"x" * 60 + b"\r\n0\r\n"):
        with tenant.connect() as c:
            c.send(body)
            c.half_close()
            try:
                a = c.answer("PUT")
            except Failed:
                pass  # an end without an answer is one, too
            else:
                assert a.status == 400
    assert tenant.get("a").body == b"old"


def test_etags_never_repeat_for_a_document(tenant):
    seen = set()
    for n in range(20):
        for body in b"same", b"same", b"other":
            seen.add(tenant.put("a", body).etag)
        assert tenant.ask("DELETE", "a").status == 204
    assert len(seen) == 60


def test_last_modified_never_runs_backwards_nor_past_date(tenant):
    last = 0
    for n in range(5):
        tenant.put("a", b"%d" % n)
        a = tenant.get("a")
        assert last <= http_date(a["last-modified"]) <= http_date(a["date"])
        last = http_date(a["last-modified"])


def test_an_answered_write_is_seen_by_every_worker(daemon, tenant):
    conns = [daemon.connect() for _ in range(16)]
    for n in range(50):
        body = b"%d" % n
        assert conns[n % 16].ask("PUT", tenant.path("a"), body).status in (201, 204)
        for c in conns:
            c.send(request("GET", tenant.path("a")))
        assert {c.answer().body for c in conns} == {body}
    for c in conns:
        c.close()


def test_a_get_gives_one_version_from_its_first_byte_to_its_last(daemon, tenant):
    """F87: a slow reader of a large document while it is replaced."""
    size = 4 << 20
    tenant.put("a", b"a" * size)
    with daemon.connect() as slow:
        slow.send(request("GET", tenant.path("a")))
        head = slow.head()
        for letter in b"bcdefgh":
            tenant.put("a", bytes([letter]) * size)
        assert int(head["content-length"]) == size
        assert slow._exactly(size) == b"a" * size
    assert tenant.get("a").body == b"h" * size


def test_errors_are_problem_json_with_something_to_do(tenant):
    """The client checks every error for it; here that the words are there and name no secrets."""
    a = tenant.get("none")
    assert a.status == 404 and a["content-type"] == "application/problem+json"
    a = tenant.ask("PUT", "a")
    assert a.status == 411 and re.search(rb"[Ll]ength", a.body)


@pytest.mark.parametrize("target", ["/_health", "/_ready"])
def test_health_and_ready_answer_everywhere(daemon, target):
    for connect in daemon.connect, daemon.admin:
        with connect() as c:
            for method in "GET", "HEAD":
                a = c.ask(method, target)
                assert a.status in (200, 204)
            a = c.ask("PUT", target, b"x")
            assert a.status == 405
            c.after(a, target)


def test_the_name_of_a_document_in_an_error_cannot_break_the_answer(tenant):
    for name in ("%22%7B%7D", "%C3%A9%22", "a%3Cscript%3E"):
        assert tenant.get(name).status == 404
        assert tenant.ask("PUT", name, b"x", {"If-Match": "*"}).status == 412
