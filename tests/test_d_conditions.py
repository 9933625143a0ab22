"""Contract 2: conditions, in the order of RFC 9110 13.2.2, decided at commit."""
import pytest

from holdfast import http_date, request, to_date

# {tag} is the current tag, {bare} the same without its quotes, {at} Last-Modified, {before}/{after} an hour around it
TABLE = [  # fields, GET, PUT, DELETE of a document that is there
    ({}, 200, 204, 204),
    ({"If-Match": "{tag}"}, 200, 204, 204),
    ({"If-Match": "*"}, 200, 204, 204),
    ({"If-Match": '"other"'}, 412, 412, 412),
    ({"If-Match": "W/{tag}"}, 412, 412, 412),  # strong comparison
    ({"If-Match": '"a", {tag}'}, 200, 204, 204),
    ({"If-Match": '"a",{tag},"b"'}, 200, 204, 204),
    ({"If-Match": ',, "a" ,\t{tag} , ,'}, 200, 204, 204),
    ({"If-Match": '"a,{bare}", "b"'}, 412, 412, 412),  # a comma inside a tag is no separator
    ({"If-Match": '"a,b", {tag}'}, 200, 204, 204),
    ({"If-Match": 'W/"a", W/{tag}'}, 412, 412, 412),
    ({"If-Match": '""'}, 412, 412, 412),
    ({"If-None-Match": '"other"'}, 200, 204, 204),
    ({"If-None-Match": "{tag}"}, 304, 412, 412),
    ({"If-None-Match": "W/{tag}"}, 304, 412, 412),  # weak comparison
    ({"If-None-Match": "*"}, 304, 412, 412),
    ({"If-None-Match": '"a", W/"b", {tag}'}, 304, 412, 412),
    ({"If-None-Match": '"a", W/"b"'}, 200, 204, 204),
    ({"If-None-Match": '"a,{bare}"'}, 200, 204, 204),
    ({"If-Match": "{tag}", "If-None-Match": "{tag}"}, 304, 412, 412),
    ({"If-Match": '"other"', "If-None-Match": "{tag}"}, 412, 412, 412),  # If-Match comes first
    ({"If-Match": "{tag}", "If-None-Match": '"other"'}, 200, 204, 204),
    ({"If-Modified-Since": "{at}"}, 304, 204, 204),  # GET and HEAD only
    ({"If-Modified-Since": "{after}"}, 304, 204, 204),
    ({"If-Modified-Since": "{before}"}, 200, 204, 204),
    ({"If-Modified-Since": "yesterday"}, 200, 204, 204),
    ({"If-Modified-Since": ""}, 200, 204, 204),
    ({"If-Unmodified-Since": "{at}"}, 200, 204, 204),
    ({"If-Unmodified-Since": "{after}"}, 200, 204, 204),
    ({"If-Unmodified-Since": "{before}"}, 412, 412, 412),
    ({"If-Unmodified-Since": "Mon, 99 Foo 2020 00:00:00 GMT"}, 200, 204, 204),
    ({"If-Unmodified-Since": "Sunday, 06-Nov-94 08:49:37 GMT"}, 412, 412, 412),  # the two old forms count
    ({"If-Unmodified-Since": "Sun Nov  6 08:49:37 1994"}, 412, 412, 412),
    ({"If-Modified-Since": "Sun, 06 Nov 1994 08:49:37 GMT"}, 200, 204, 204),
    ({"If-Match": "{tag}", "If-Unmodified-Since": "{before}"}, 200, 204, 204),  # ignored beside If-Match
    ({"If-None-Match": '"other"', "If-Modified-Since": "{at}"}, 200, 204, 204),  # ignored beside If-None-Match
    ({"If-None-Match": "{tag}", "If-Modified-Since": "{before}"}, 304, 412, 412),
    ({"If-Unmodified-Since": "{before}", "If-None-Match": "{tag}"}, 412, 412, 412),
    ({"If-Unmodified-Since": "{at}", "If-Modified-Since": "{at}"}, 304, 204, 204),
]

ABSENT = [  # the same for one that is not there
    ({"If-Match": '"x"'}, 404, 412, 404),
    ({"If-Match": "*"}, 404, 412, 404),
    ({"If-None-Match": "*"}, 404, 201, 404),
    ({"If-None-Match": '"x"'}, 404, 201, 404),
    ({"If-Modified-Since": "{at}"}, 404, 201, 404),
    ({"If-Match": '"x"', "If-None-Match": "*"}, 404, 412, 404),
]

MALFORMED = [
    "x", "'x'", '"x', 'x"', "W/", "W/x", 'w/"x"', 'W "x"', '"a" "b"', '"a"b', '"a";"b"', '*, "x"', '"x", *', "**", '"a b"',
    '"a", x', '{tag}, x', 'x, {tag}', '{tag} x', 'W/W/"x"', '"a"\t"b"', '{bare}',
]


def filled(fields, tag, at):
    stamps = {"tag": tag, "bare": tag[1:-1], "at": to_date(at), "before": to_date(at - 3600), "after": to_date(at + 3600)}
    return {n: v.format(**stamps) for n, v in fields.items()}


def made(tenant, name):
    tag = tenant.put(name, b"old").etag
    return tag, http_date(tenant.get(name)["last-modified"])


@pytest.mark.parametrize("fields, get, put, delete", TABLE)
def test_a_document_that_is_there(tenant, fields, get, put, delete):
    tag, at = made(tenant, "a")
    sent = filled(fields, tag, at)
    for method, wanted in (("GET", get), ("HEAD", get)):
        a = tenant.ask(method, "a", None, sent)
        assert a.status == wanted, (method, sent, a)
        if wanted in (200, 304, 412):
            assert a.etag == tag
        if wanted == 304:
            assert a["cache-control"] == "no-cache"
    a = tenant.ask("PUT", "a", b"new", sent)
    assert a.status == put, (sent, a)
    if put == 412:
        assert a.etag == tag and tenant.get("a").body == b"old"
    else:
        assert a.etag != tag and tenant.get("a").body == b"new"
    tag, at = made(tenant, "b")
    a = tenant.ask("DELETE", "b", None, filled(fields, tag, at))
    assert a.status == delete, (sent, a)
    if delete == 412:
        assert a.etag == tag
    assert tenant.get("b").status == (200 if delete == 412 else 404)


@pytest.mark.parametrize("fields, get, put, delete", ABSENT)
def test_a_document_that_is_not_there(tenant, fields, get, put, delete):
    sent = filled(fields, '"x"', 1.6e9)
    assert tenant.get("a", sent).status == get
    assert tenant.ask("HEAD", "a", None, sent).status == get
    assert tenant.ask("DELETE", "a", None, sent).status == delete
    a = tenant.ask("PUT", "a", b"new", sent)
    assert a.status == put
    if put == 412:
        assert "etag" not in a
    assert tenant.get("a").status == (404 if put == 412 else 200)


def test_a_deleted_document_is_absent_for_conditions(tenant):
    old = tenant.put("a", b"1").etag
    tenant.ask("DELETE", "a")
    assert tenant.ask("PUT", "a", b"2", {"If-Match": old}).status == 412
    assert tenant.ask("PUT", "a", b"2", {"If-Match": "*"}).status == 412
    assert tenant.ask("PUT", "a", b"2", {"If-None-Match": "*"}).status == 201
    assert tenant.ask("PUT", "a", b"3", {"If-Match": old}).status == 412


@pytest.mark.parametrize("value", MALFORMED)
@pytest.mark.parametrize("name", ["If-Match", "If-None-Match"])
def test_a_malformed_tag_is_400(tenant, name, value):
    tag, at = made(tenant, "a")
    sent = filled({name: value}, tag, at)
    for method, body in (("GET", None), ("PUT", b"new"), ("DELETE", None)):
        a = tenant.ask(method, "a", body, sent)
        assert a.status == 400, (method, sent, a)
        tenant.after(a, tenant.path("a"))
    assert tenant.get("a").body == b"old"


def test_two_fields_of_a_name_are_one_list(tenant):
    tag = tenant.put("a", b"x").etag
    assert tenant.get("a", [("If-None-Match", '"q"'), ("If-None-Match", tag)]).status == 304
    assert tenant.get("a", [("If-None-Match", tag), ("if-none-match", '"q"')]).status == 304
    assert tenant.ask("PUT", "a", b"y", [("If-Match", '"q"'), ("If-Match", tag)]).status == 204


def test_a_long_list_of_tags_is_searched_to_its_end(tenant):
    tag = tenant.put("a", b"x").etag
    many = ", ".join('"%016x-%08x"' % (n, n) for n in range(300))
    assert tenant.get("a", {"If-None-Match": many}).status == 200
    assert tenant.get("a", {"If-None-Match": many + ", " + tag}).status == 304
    some = ", ".join('"%016x-%08x"' % (n, n) for n in range(60))
    assert tenant.ask("PUT", "a", b"y", {"If-Match": some + ", " + tag}).status == 204


def test_304_carries_what_200_would(tenant):
    tenant.put("a", b"x", {"Cache-Control": "max-age=5", "Content-Type": "text/plain"})
    full = tenant.get("a")
    a = tenant.get("a", {"If-None-Match": full.etag})
    assert a.status == 304 and a.body == b""
    for name in "etag", "cache-control":
        assert a[name] == full[name]


def test_a_put_never_gets_304_and_a_range_condition_comes_last(tenant):
    tag = tenant.put("a", b"0123456789").etag
    assert tenant.ask("PUT", "a", b"0123456789", {"If-None-Match": "*", "If-Modified-Since": to_date(2e9)}).status == 412
    assert tenant.get("a", {"If-None-Match": tag, "Range": "bytes=0-1"}).status == 304
    assert tenant.get("a", {"If-Match": '"x"', "Range": "bytes=0-1"}).status == 412
    assert tenant.get("a", {"If-Match": '"x"', "Range": "bytes=100-"}).status == 412


@pytest.mark.parametrize("method", ["PUT", "DELETE"])
def test_of_64_clients_with_one_if_match_exactly_one_wins(daemon, tenant, method):
    conns = [daemon.connect() for _ in range(64)]
    for n in range(12):
        name = "a%d" % (n % 3)
        tag = tenant.put(name, b"start").etag
        for i, c in enumerate(conns):
            c.send(request(method, tenant.path(name), b"%d" % i if method == "PUT" else None, {"If-Match": tag}))
        answers = [c.answer(method) for c in conns]
        statuses = [a.status for a in answers]
        assert statuses.count(204) == 1
        if method == "PUT":
            assert statuses.count(412) == 63
            winner = statuses.index(204)
            now = tenant.get(name)
            assert now.body == b"%d" % winner and now.etag == answers[winner].etag
            assert {a.etag for a in answers} == {now.etag}
        else:  # the loser of a DELETE finds nothing there
            assert statuses.count(404) == 63
    for c in conns:
        c.close()


def test_of_64_clients_that_create_exactly_one_wins(daemon, tenant):
    conns = [daemon.connect() for _ in range(64)]
    for n in range(8):
        for i, c in enumerate(conns):
            c.send(request("PUT", tenant.path("n%d" % n), b"%d" % i, {"If-None-Match": "*"}))
        statuses = [c.answer("PUT").status for c in conns]
        assert statuses.count(201) == 1 and statuses.count(412) == 63
        assert tenant.get("n%d" % n).body == b"%d" % statuses.index(201)
    for c in conns:
        c.close()


def test_a_chain_of_conditions_on_one_connection_is_decided_one_after_another(tenant):
    """Pipelined: each later one sees what the earlier one decided, also where it was refused."""
    tag = tenant.put("a", b"0").etag
    c = tenant.connect()
    c.send(request("PUT", tenant.path("a"), b"1", {"If-Match": tag}), request("PUT", tenant.path("a"), b"2", {"If-Match": tag}),
           request("DELETE", tenant.path("a"), None, {"If-None-Match": tag}), request("PUT", tenant.path("a"), b"3", {"If-None-Match": "*"}),
           request("PUT", tenant.path("a"), b"4", {"If-Match": "*"}), request("GET", tenant.path("a")))
    got = [c.answer(m).status for m in ("PUT", "PUT", "DELETE", "PUT", "PUT")]
    assert got == [204, 412, 204, 201, 204]
    assert c.answer().body == b"4"
    c.close()
