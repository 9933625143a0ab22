"""Contract 1: names.  What is refused, what is reserved, and that every other name comes back as it was."""
import re
import urllib.parse

import pytest

from holdfast import request

REFUSED = [  # never normalised: 400, and the connection goes on
    "a//b", "//a", "a//", "/a", "a/./b", "./a", "a/.", "a/..", "../a", "a/../b", "..", ".",
    "%2e", "%2E%2e", "a/%2e%2E/b", "a/.%2e/b", "..%2fa", "a%2f..%2fb", "%2e%2e%2fa", "a%2F%2Fb", "%2Fa", "a%2F/b",
    "a%00b", "%00", "a%01b", "a%0ab", "a%0db", "a%1fb", "a%7fb", "a%09b",
    "%ff", "%fe%fe", "a%80", "%c3", "%c3%28", "%e2%82", "%c0%af", "%c1%bf", "%e0%80%af", "%ed%a0%80", "%f4%90%80%80",
    "%f8%88%80%80%80",
    "a%", "a%2", "a%zz", "%%41", "a%4", "%u0041", "a%-1b", "a%+1b",
    "a\\b", "a%5Cb", "..%5c..%5ca", "\\",
]

ROUND_TRIP = [
    "a", "A", "a.json", "2026/11/30/x", "a%20b", "a+b", "a%2Bb", "a%25b", "%25", "%2525", "%252e%252e", "%252F", "a%2Fb/c",
    "trailing.", "...", "..a", ".hidden", "a/...", "~", "a~b", "%7E", "a:b", "a@b", "a=b&c", "a;b", "a,b", "a!b", "a$b",
    "(a)", "*", "'", "%22", "%3F", "a%3Fb%3Dc", "%23", "%3C%3E", "%5B%5D", "%7B%7C%7D", "%5E%60", "-", "a/_", "a/_b", "a/_changes",
    "%C3%A9", "e%CC%81", "%E2%82%AC", "%F0%9F%98%80", "%E6%97%A5%E6%9C%AC/%E8%AA%9E", "%EF%BB%BF", "%F4%8F%BF%BF", "%C2%A0",
    "x" * 255, "%41" * 255, "%F0%9F%98%80" * 63, "a/" * 100 + "b", "/".join(["y" * 255] * 4),
    "z" * 254 + "/" + "z" * 255 + "/" + "z" * 255 + "/" + "z" * 255 + "/q",
]


def decoded(target):
    return urllib.parse.unquote_to_bytes(target)


@pytest.mark.parametrize("name", REFUSED)
def test_is_refused_with_400_and_the_connection_goes_on(tenant, name):
    for method, body in (("PUT", b"x"), ("GET", None), ("DELETE", None), ("HEAD", None)):
        a = tenant.ask(method, name, body)
        assert a.status == 400, (method, a)
        assert not a.closes
    tenant.conn.expect_kept(tenant.path("nothing"))
    assert tenant.settings()["documents"] == 0


@pytest.mark.parametrize("name", ROUND_TRIP)
def test_comes_back_under_the_name_it_was_put_under(tenant, name):
    body = name.encode()
    a = tenant.ask("PUT", name, body)
    assert a.status == 201
    where = a["location"]
    assert where.startswith("/%s/" % tenant.name) and re.match(r"[!-~]+\Z", where)
    assert decoded(where) == decoded(tenant.path(name))
    assert tenant.conn.ask("GET", where).body == body
    assert tenant.get(name).body == body
    again = tenant.ask("PUT", name, body + b"2")
    assert again.status == 204
    assert tenant.get(name).body == body + b"2"
    assert tenant.ask("DELETE", name).status == 204
    assert tenant.get(name).status == 404


@pytest.mark.parametrize("one, other", [("A", "%41"), ("a/b", "a%2Fb"), ("a/b", "a%2fb"), ("%C3%A9", "%c3%a9"), ("~", "%7E"),
                                        ("x%20y", "%78%20%79")])
def test_two_spellings_of_the_same_bytes_are_one_document(tenant, one, other):
    tag = tenant.put(one, b"same").etag
    a = tenant.get(other)
    assert (a.status, a.body, a.etag) == (200, b"same", tag)
    assert tenant.ask("PUT", other, b"more").status == 204
    assert tenant.settings()["documents"] == 1


@pytest.mark.parametrize("one, other", [("a", "A"), ("e%CC%81", "%C3%A9"), ("a+b", "a%20b"), ("%2525", "%25"), ("a", "a."), ("a%252Fb", "a%2Fb")])
def test_different_bytes_are_different_documents(tenant, one, other):
    tenant.put(one, b"one")
    assert tenant.get(other).status == 404
    assert tenant.ask("PUT", other, b"other").status == 201
    assert tenant.get(one).body == b"one"


@pytest.mark.parametrize("name", ["x" * 256, "%41" * 256, "a/" + "x" * 256, "a/" * 512 + "b", "/".join(["y" * 255] * 4) + "/q",
                                  "%C3%A9" * 128])
def test_over_255_bytes_a_segment_or_1024_in_all_is_414(tenant, name):
    for method, body in (("PUT", b"x"), ("GET", None), ("DELETE", None)):
        a = tenant.ask(method, name, body)
        assert a.status == 414, (method, a)
        tenant.after(a, tenant.path("nothing"))


def test_exactly_1024_bytes_are_a_name(tenant):
    name = "/".join(["y" * 255] * 4)
    assert len(name) == 1023
    tenant.put("1/" + name[:1022], b"x")
    assert tenant.get("1/" + name[:1022]).body == b"x"


@pytest.mark.parametrize("target", ["/", "/_nothing", "/_nothing/x", "/_metrics", "/_status", "/_tenants/", "/_tenants/x",
                                    "/_tenants", "/_console/", "/__", "/_"])
def test_reserved_first_segments_are_404_on_tcp(tenant, target):
    for method, body in (("GET", None), ("PUT", b"{}"), ("DELETE", None), ("HEAD", None)):
        a = tenant.conn.ask(method, target, body)
        assert a.status == 404, (method, a)
        tenant.after(a, tenant.path("nothing"))


@pytest.mark.parametrize("name", ["_x", "_unknown/a", "_", "%5Fx", "_views/", "__a"])
def test_nothing_is_stored_under_a_reserved_segment_of_a_tenant(tenant, name):
    for method, body in (("PUT", b"x"), ("GET", None), ("DELETE", None)):
        a = tenant.ask(method, name, body)
        assert a.status == 404, (method, a)
        tenant.after(a, tenant.path("nothing"))
    assert tenant.settings()["documents"] == 0


@pytest.mark.parametrize("public", ["write", "none", None])
def test_a_tenant_without_its_slash_redirects_whether_it_exists_or_not(daemon, public):
    name = daemon.tenant(public).name if public else "not-there"
    with daemon.connect() as c:
        for method in "GET", "HEAD":
            a = c.ask(method, "/" + name, fields={"Host": "elsewhere.example"})
            assert (a.status, a["location"]) == (308, "/%s/" % name)
            c.after(a, "/nothing-here/x")


def test_a_put_to_a_trailing_slash_is_405(tenant):
    for name in "", "a/", "a/b/":
        a = tenant.ask("PUT", name, b"x")
        assert a.status == 405 and "allow" in a
        assert "PUT" not in [m.strip() for m in a["allow"].split(",")]
        tenant.after(a, tenant.path("nothing"))


def test_a_folder_without_its_slash_is_404(tenant):
    tenant.put("folder/a", b"x")
    assert tenant.get("folder").status == 404
    assert tenant.ask("DELETE", "folder").status == 404


def test_a_name_is_a_document_or_a_folder_never_both(tenant):
    tenant.put("a/b/c", b"deep")
    for above in "a", "a/b":
        assert tenant.ask("PUT", above, b"x").status == 409
        # RFC 9110 13.2.1: a condition does not count where the answer without it is an error
        assert tenant.ask("PUT", above, b"x", {"If-Match": '"x"'}).status == 409
    tenant.put("d", b"flat")
    for below in "d/e", "d/e/f", "d%2Fg":
        assert tenant.ask("PUT", below, b"x").status == 409
    # neighbours in byte order are nobody's parents
    for near in "a/b/c.d", "a/b-c", "a/b!", "a.b", "d.e", "d!", "d0", "a-/x":
        assert tenant.ask("PUT", near, b"x").status == 201, near
    assert tenant.get("a/b/c").body == b"deep"
    assert tenant.ask("DELETE", "d").status == 204
    assert tenant.ask("PUT", "d/e", b"x").status == 201
    assert tenant.ask("PUT", "d", b"x").status == 409
    assert tenant.ask("DELETE", "d/e").status == 204
    assert tenant.ask("PUT", "d", b"x").status == 201


def test_both_kinds_at_once_of_one_name_never_both_win(tenant):
    """Decided at commit, like a condition: PUT x and PUT x/y in one batch."""
    for n in range(30):
        with tenant.connect() as one, tenant.connect() as other:
            one.send(request("PUT", tenant.path("r%d" % n), b"1"))
            other.send(request("PUT", tenant.path("r%d/y" % n), b"2"))
            assert sorted([one.answer().status, other.answer().status]) == [201, 409]


@pytest.mark.parametrize("query", ["?", "?x=1", "?limit=abc&&=", "?tokens=1", "?a=token", "?x=%zz"])
def test_a_query_on_a_document_is_ignored(tenant, query):
    tenant.put("q", b"x")
    assert tenant.get("q" + query).body == b"x"
    assert tenant.ask("PUT", "q" + query, b"y").status == 204
    assert tenant.get("q").body == b"y"


@pytest.mark.parametrize("query", ["?token=abc", "?token=", "?a=1&token=abc", "?token=abc&a=1"])
def test_a_token_in_the_query_is_refused_with_an_explanation(tenant, query):
    tenant.put("q", b"x")
    for method, body in (("GET", None), ("PUT", b"y"), ("DELETE", None)):
        a = tenant.ask(method, "q" + query, body)
        assert a.status == 400 and b"Authorization" in a.body
        assert b"abc" not in a.body
    assert tenant.get("q").body == b"x"


@pytest.mark.parametrize("name", ["-a", "A", "aB", "a.b", "a_b", "a" * 64, "%C3%A9", "a%20b", "*", "a:b", "~a"])
def test_an_impossible_tenant_is_answered_like_an_absent_one(daemon, name):
    with daemon.connect() as c:
        absent = c.ask("GET", "/absent/x")
        a = c.ask("GET", "/%s/x" % name)
        assert a.status == absent.status == 401
        assert a["www-authenticate"] == absent["www-authenticate"]
        assert a.body == absent.body
        assert c.ask("PUT", "/%s/x" % name, b"x").status == 401
    for bad in (name,):
        assert daemon.ask_admin("PUT", "/_tenants/" + bad, b"{}").status == 400


@pytest.mark.parametrize("name", ["a", "0", "a-", "0-0", "a" * 63, "a--b"])
def test_every_dns_label_is_a_tenant(daemon, name):
    t = daemon.tenant(name=name)
    t.put("x", b"1")
    assert t.get("x").body == b"1"
    t.conn.close()
    assert daemon.ask_admin("DELETE", "/_tenants/" + name).status == 204
