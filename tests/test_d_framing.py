"""Contract 2 and 7: framing.  What is refused as smuggling, what is kept in order, what early answers leave behind."""
import itertools
import socket

import pytest

from holdfast import Failed, chunked, request, wait_for

HOST = "Host: localhost\r\n"


def put(tenant, fields, body=b"", version="1.1", host=HOST, name="s"):
    """A PUT whose fields are given as they go over the wire, each with its line end."""
    return ("PUT %s HTTP/%s\r\n%s%s\r\n" % (tenant.path(name), version, host, fields)).encode("latin-1") + body


CHUNKED = "Transfer-Encoding: chunked\r\n"
BODY5 = b"5\r\nhello\r\n0\r\n\r\n"

# name: (fields, body); all 400 and close, and what follows is never answered
SMUGGLING = {
    "length and chunked (F70)": ("Content-Length: 15\r\n" + CHUNKED, BODY5),
    "chunked and length": (CHUNKED + "Content-Length: 15\r\n", BODY5),
    "length and another coding": ("Content-Length: 5\r\nTransfer-Encoding: gzip\r\n", b"hello"),
    "length and identity": ("Content-Length: 5\r\nTransfer-Encoding: identity\r\n", b"hello"),
    "length and an empty coding": ("Content-Length: 5\r\nTransfer-Encoding:\r\n", b"hello"),
    "two lengths that differ (F71)": ("Content-Length: 5\r\nContent-Length: 6\r\n", b"hello"),
    "two lengths alike": ("Content-Length: 5\r\nContent-Length: 5\r\n", b"hello"),
    "two lengths, other case": ("Content-Length: 5\r\ncontent-length: 0\r\n", b"hello"),
    "a list of lengths": ("Content-Length: 5, 5\r\n", b"hello"),
    "length with a plus": ("Content-Length: +5\r\n", b"hello"),
    "length with a minus": ("Content-Length: -5\r\n", b"hello"),
    "length minus zero": ("Content-Length: -0\r\n", b""),
    "length in hex": ("Content-Length: 0x5\r\n", b"hello"),
    "length with a blank inside": ("Content-Length: 5 5\r\n", b"hello"),
    "length with an underscore": ("Content-Length: 0_5\r\n", b"hello"),
    "length with a point": ("Content-Length: 5.0\r\n", b"hello"),
    "length with a letter": ("Content-Length: 5a\r\n", b"hello"),
    "length in quotes": ('Content-Length: "5"\r\n', b"hello"),
    "an empty length": ("Content-Length:\r\n", b""),
    "a length of blanks": ("Content-Length:  \t\r\n", b""),
    "chunked in 1.0": (CHUNKED, BODY5),
    "chunked not last": ("Transfer-Encoding: chunked, gzip\r\n", BODY5),
    "chunked, identity": ("Transfer-Encoding: chunked, identity\r\n", BODY5),
    "chunked not last, two fields": (CHUNKED + "Transfer-Encoding: gzip\r\n", BODY5),
    "blank before the colon (F76)": ("Transfer-Encoding : chunked\r\n", BODY5),
    "tab before the colon": ("Content-Length\t: 5\r\n", b"hello"),
    "a folded line": ("X-A: 1\r\n Content-Length: 5\r\n", b"hello"),
    "a folded line with a tab": ("X-A: 1\r\n\tb\r\nContent-Length: 5\r\n", b"hello"),
    "a folded coding": ("Transfer-Encoding:\r\n chunked\r\n", BODY5),
    "a bare LF between fields": ("X-A: 1\nContent-Length: 5\r\n", b"hello"),
    "a bare LF ends the field": ("Content-Length: 5\n", b"hello"),
    "a bare CR in a value": ("X-A: 1\rContent-Length: 5\r\n", b"hello"),
    "a bare CR before CRLF": ("X-A: 1\r\r\nContent-Length: 5\r\n", b"hello"),
    "NUL in a value": ("X-A: a\0b\r\nContent-Length: 5\r\n", b"hello"),
    "NUL in a name": ("X\0A: a\r\nContent-Length: 5\r\n", b"hello"),
    "a control byte in a value": ("X-A: a\x01b\r\nContent-Length: 5\r\n", b"hello"),
    "DEL in a value": ("X-A: a\x7fb\r\nContent-Length: 5\r\n", b"hello"),
    "no name": (": 5\r\nContent-Length: 5\r\n", b"hello"),
    "no colon": ("Content-Length 5\r\n", b""),
    "a blank in a name": ("X A: 5\r\nContent-Length: 5\r\n", b"hello"),
    "a name in brackets": ("X(A): 5\r\nContent-Length: 5\r\n", b"hello"),
    "a name beyond ASCII": ("X\xe9: 5\r\nContent-Length: 5\r\n", b"hello"),
}

HOSTS = ["", "Host: a\r\nHost: a\r\n", "Host: a\r\nHost: b\r\n", "Host: a, b\r\n", "Host: a b\r\n", "Host: a/b\r\n", "Host: u@a\r\n",
         "Host: a:b\r\n", "Host: a:1:2\r\n", "Host: a:-1\r\n", "Host: [::1\r\n", "Host: ::1\r\n", "Host: a?b\r\n", "Host: a#b\r\n",
         "Host: a\\b\r\n", "Host: http://a\r\n", "Host: a%zz\r\n", "Host: <a>\r\n", "Host: \x80\r\n", "Host : a\r\n", "Host: [a]b\r\n"]

BAD_CHUNKS = {
    "0x": b"0x5\r\nhello\r\n0\r\n\r\n",
    "plus": b"+5\r\nhello\r\n0\r\n\r\n",
    "minus": b"-5\r\nhello\r\n0\r\n\r\n",
    "minus zero": b"5\r\nhello\r\n-0\r\n\r\n",
    "leading blank": b" 5\r\nhello\r\n0\r\n\r\n",
    "underscore": b"1_0\r\nhellohellohello!\r\n0\r\n\r\n",
    "empty size": b"\r\nhello\r\n0\r\n\r\n",
    "not hex": b"g\r\nhello\r\n0\r\n\r\n",
    "17 digits (F73)": b"00000000000000005\r\nhello\r\n0\r\n\r\n",
    "17 digits, large": b"10000000000000005\r\nhello\r\n0\r\n\r\n",
    "many digits": b"f" * 400 + b"\r\nhello\r\n0\r\n\r\n",
    "h suffix": b"5h\r\nhello\r\n0\r\n\r\n",
    "bare LF behind the size (F75)": b"5\nhello\r\n0\r\n\r\n",
    "bare CR behind the size": b"5\rhello\r\n0\r\n\r\n",
    "bare LF behind the data": b"5\r\nhello\n0\r\n\r\n",
    "data longer than its size (F74)": b"5\r\nhello world\r\n0\r\n\r\n",
    "data shorter than its size": b"8\r\nhello\r\n0\r\n\r\n",
    "two wrong bytes behind the data": b"5\r\nhelloXX0\r\n\r\n",
    "NUL in an extension": b"5;a=\0\r\nhello\r\n0\r\n\r\n",
    "LF in an extension": b"5;a=\nhello\r\n0\r\n\r\n",
    "CR in an extension": b"5;a=\rb\r\nhello\r\n0\r\n\r\n",
    "bare LF at the end": b"5\r\nhello\r\n0\n\n",
    "bare LF behind the last chunk": b"5\r\nhello\r\n0\r\n\n",
    "folded trailer": b"5\r\nhello\r\n0\r\nX: a\r\n b\r\n\r\n",
    "trailer with a blank before its colon": b"5\r\nhello\r\n0\r\nX : a\r\n\r\n",
    "trailer without a colon": b"5\r\nhello\r\n0\r\nX\r\n\r\n",
    "trailer with a bare LF": b"5\r\nhello\r\n0\r\nX: a\n\r\n",
}

GOOD_CHUNKS = {
    "plain": BODY5,
    "upper and lower hex": b"A\r\n0123456789\r\na\r\n0123456789\r\n0\r\n\r\n",
    "leading zeros": b"0000000000000005\r\nhello\r\n0000\r\n\r\n",
    "extensions": b"5;a;b=c;d=\"e f\"\r\nhello\r\n0;last\r\n\r\n",
    "trailers": b"5\r\nhello\r\n0\r\nX: a\r\nContent-Length: 7\r\nTransfer-Encoding: gzip\r\nHost: b\r\n\r\n",
    "one byte each": b"".join(b"1\r\n%c\r\n" % c for c in b"hello") + b"0\r\n\r\n",
}


def refused(tenant, data, statuses=(400,)):
    """One answer of that kind, close, and not a word about the request behind it."""
    with tenant.connect() as c:
        evil = request("DELETE", tenant.path("evil"))
        c.send(data, evil, evil)
        a = c.answer("PUT")
        assert a.status in statuses, a
        assert a.closes
        c.expect_eof()
    assert tenant.get("evil").status == 200
    assert tenant.get("s").status == 404
    return a


@pytest.fixture
def target(tenant):
    tenant.put("evil", b"still there")
    return tenant


@pytest.mark.parametrize("name", SMUGGLING)
def test_smuggling_is_400_and_close(target, name):
    fields, body = SMUGGLING[name]
    refused(target, put(target, fields, body, "1.0" if "1.0" in name else "1.1"))


@pytest.mark.parametrize("name", SMUGGLING)
def test_smuggling_is_400_for_a_get_too(target, name):
    fields, body = SMUGGLING[name]
    data = put(target, fields, body, "1.0" if "1.0" in name else "1.1").replace(b"PUT", b"GET", 1)
    refused(target, data)


@pytest.mark.parametrize("host", HOSTS)
def test_a_missing_repeated_or_invalid_host_is_400_and_close(target, host):
    """F78."""
    refused(target, put(target, "Content-Length: 5\r\n", b"hello", host=host))


@pytest.mark.parametrize("host", ["a", "a:80", "a.b-c.example:65535", "[::1]", "[::1]:80", "127.0.0.1:7480", "xn--e1afmkfd.example", "a_b"])
def test_a_valid_host_is_fine(tenant, host):
    assert tenant.conn.ask("GET", tenant.path("none"), host=host).status == 404


@pytest.mark.parametrize("value", ["18446744073709551616", "18446744073709551621", "9" * 40, "9223372036854775808", "99999999999"])
def test_an_absurd_length_is_refused_before_the_body(target, value):
    refused(target, put(target, "Content-Length: %s\r\n" % value, b"hello"), (400, 413))


@pytest.mark.parametrize("value", ["gzip", "identity", "xchunked", "chunkedx", "gzip, chunked", "chunked;q=1", '"chunked"', "deflate", "x"])
def test_other_codings_are_501_and_close(target, value):
    refused(target, put(target, "Transfer-Encoding: %s\r\n" % value, BODY5), (501,))


@pytest.mark.parametrize("fields", ["Transfer-Encoding: chunked, chunked\r\n", CHUNKED + CHUNKED, "Transfer-Encoding: , chunked\r\n",
                                    "Transfer-Encoding: chunked,\r\n", "Transfer-Encoding:\r\n", "Transfer-Encoding: chun\x0bked\r\n",
                                    "Transfer-Encoding: \x0bchunked\r\n"])
def test_odd_codings_are_refused_in_either_way(target, fields):
    refused(target, put(target, fields, BODY5), (400, 501))


@pytest.mark.parametrize("value", ["chunked", "Chunked", "CHUNKED", "chunked\t", "chunked  ", "\tchunked", "  \t chunked \t "])
def test_chunked_is_chunked_however_it_is_spelled(tenant, value):
    """F77: blanks around a value are not part of it."""
    c = tenant.connect()
    c.send(put(tenant, "Transfer-Encoding:%s\r\n" % value, BODY5), request("GET", tenant.path("s")))
    assert c.answer("PUT").status == 201
    assert c.answer().body == b"hello"
    c.close()


@pytest.mark.parametrize("name", BAD_CHUNKS)
def test_bad_chunks_are_400_and_close(target, name):
    refused(target, put(target, CHUNKED, BAD_CHUNKS[name]))


@pytest.mark.parametrize("name", GOOD_CHUNKS)
def test_good_chunks_are_the_body(tenant, name):
    c = tenant.connect()
    c.send(put(tenant, CHUNKED, GOOD_CHUNKS[name]), request("GET", tenant.path("s")))
    assert c.answer("PUT").status == 201
    assert c.answer().body in (b"hello", b"0123456789" * 2)
    c.close()


def test_sixteen_digits_of_chunk_are_too_much_and_nothing_worse(target):
    refused(target, put(target, CHUNKED, b"FFFFFFFFFFFFFFFF\r\nhello\r\n0\r\n\r\n"), (400, 413))
    refused(target, put(target, CHUNKED, b"5\r\nhello\r\nFFFFFFFFFFFFFFFB\r\nhello"), (400, 413))


@pytest.mark.parametrize("line", [
    "GET {p}\r\n", "GET  {p} HTTP/1.1\r\n", "GET {p}  HTTP/1.1\r\n", "GET {p} HTTP/1.1 \r\n", " GET {p} HTTP/1.1\r\n", "GET\t{p} HTTP/1.1\r\n",
    "GET {p} http/1.1\r\n", "GET {p} HTTP/1.1x\r\n", "GET {p} HTTP/11\r\n", "GET {p} HTTP/1.\r\n", "GET {p} HTTP/1\r\n", "GET {p} HTTP/01.1\r\n",
    "GET {p} HTTP/1.1\n", "GET {p} HTTP/1.1\r\r\n", "GET {p} HTT/1.1\r\n", "GET {p} x HTTP/1.1\r\n", "G\0T {p} HTTP/1.1\r\n", "G@T {p} HTTP/1.1\r\n",
    "G(T {p} HTTP/1.1\r\n", "GET {p}\0 HTTP/1.1\r\n", "GET {p}\x01 HTTP/1.1\r\n", "GET {p}\x7f HTTP/1.1\r\n", "GET\r\n", "\0\r\n",
    "{p} HTTP/1.1\r\n", "GET HTTP/1.1\r\n", "GET tenant/x HTTP/1.1\r\n", "GET * HTTP/1.1\r\n", "GET ? HTTP/1.1\r\n", "GET {p} HTTP/1.11\r\n",
])
def test_a_bad_request_line_is_400(target, line):
    with target.connect() as c:
        c.send(line.format(p=target.path("evil")).encode("latin-1") + HOST.encode() + b"\r\n" + request("DELETE", target.path("evil")))
        a = c.answer()
        assert a.status == 400
        if a.closes:
            c.expect_eof()
        else:  # framing was sound (a target of an odd form): then the next request counts
            assert line.startswith("GET ") and line.endswith(" HTTP/1.1\r\n")


@pytest.mark.parametrize("version", ["2.0", "3.0", "0.9", "9.9"])
def test_another_major_version_is_505_and_close(target, version):
    with target.connect() as c:
        c.send(request("GET", target.path("evil"), version=version), request("DELETE", target.path("evil")))
        a = c.answer()
        assert a.status == 505 and a.closes
        c.expect_eof()
    assert target.get("evil").status == 200


def test_the_http2_preface_gets_505(daemon):
    with daemon.connect() as c:
        c.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        a = c.answer()
        assert a.status in (400, 505) and a.closes
        c.expect_eof()


def test_a_tls_hello_gets_an_end(daemon):
    with daemon.connect() as c:
        c.send(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100) + b"\r\n\r\n")
        a = c.answer()
        assert a.status == 400 and a.closes
        c.expect_eof()


def test_a_higher_minor_version_is_1_1(tenant):
    tenant.put("a", b"x")
    a = tenant.conn.ask("GET", tenant.path("a"), version="1.2")
    assert a.status == 200 and not a.closes


def test_an_empty_line_before_a_request_is_ignored(tenant):
    """RFC 9112 2.2."""
    tenant.put("a", b"x")
    c = tenant.connect()
    c.send(b"\r\n", request("GET", tenant.path("a")), b"\r\n", request("GET", tenant.path("a")))
    assert c.answer().body == c.answer().body == b"x"
    c.close()


# --- limits of a head


def test_a_hundred_fields_are_enough_and_one_more_is_431(tenant):
    tenant.put("a", b"x")
    fields = [("X-%d" % n, "1") for n in range(99)]  # and Host
    assert tenant.get("a", fields).status == 200
    a = tenant.get("a", fields + [("X-Last", "1")])
    assert a.status == 431
    tenant.after(a, tenant.path("a"))


def test_a_head_over_16_kib_is_431(tenant):
    tenant.put("a", b"x")
    for extra, wanted in ((16000, 200), (16384, 431), (60000, 431)):
        a = tenant.get("a", {"X-A": "x" * extra})
        assert a.status == wanted, extra
        tenant.after(a, tenant.path("a"))


def test_a_head_that_never_ends_is_431_too(tenant):
    with tenant.connect() as c:
        c.send(b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 40000)
        a = c.answer()
        assert a.status == 431 and a.closes
        c.expect_eof()


def test_a_target_over_8_kib_is_414(tenant):
    tenant.put("a", b"x")
    base = tenant.path("a") + "?"
    for size, wanted in ((8192, 200), (8193, 414), (15000, 414)):
        a = tenant.conn.ask("GET", base + "q" * (size - len(base)))
        assert a.status == wanted, size
        tenant.after(a, tenant.path("a"))


def test_a_request_line_that_never_ends_is_414(tenant):
    with tenant.connect() as c:
        c.send(b"GET /" + b"x" * 40000)
        a = c.answer()
        assert a.status in (414, 431) and a.closes
        c.expect_eof()


# --- order and pieces


def test_pipelined_answers_come_in_order(daemon, tenant):
    names = ["n%d" % n for n in range(50)]
    for n in names:
        tenant.put(n, n.encode() * 10)
    with daemon.connect() as c:
        c.send(*[request("GET", tenant.path(n)) for n in names * 8])
        for n in names * 8:
            assert c.answer().body == n.encode() * 10


def test_a_pipelined_get_sees_the_put_before_it(daemon, tenant):
    with daemon.connect() as c:
        for n in range(30):
            steps = [request("PUT", tenant.path("p"), b"%d" % n), request("GET", tenant.path("p")),
                     request("PUT", tenant.path("p"), b"x%d" % n), request("HEAD", tenant.path("p")), request("GET", tenant.path("p")),
                     request("DELETE", tenant.path("p")), request("GET", tenant.path("p"))]
            c.send(*steps)
            assert c.answer("PUT").status == 201
            assert c.answer().body == b"%d" % n
            tag = c.answer("PUT").etag
            assert c.answer("HEAD").etag == tag
            assert c.answer().body == b"x%d" % n
            assert c.answer("DELETE").status == 204
            assert c.answer().status == 404


def test_many_pipelined_puts_are_answered_in_order(daemon, tenant):
    with daemon.connect() as c:
        c.send(*[request("PUT", tenant.path("m%d" % (n % 40)), b"%d" % n) for n in range(400)])
        got = [c.answer("PUT").status for _ in range(400)]
        assert got == [201] * 40 + [204] * 360
    for n in range(40):
        assert tenant.get("m%d" % n).body == b"%d" % (360 + n)


def test_a_request_may_come_byte_by_byte(tenant):
    data = (request("PUT", tenant.path("b"), b"hello\r\n\r\n") + put(tenant, CHUNKED, b"3;x=y\r\nhel\r\n2\r\nlo\r\n0\r\nT: r\r\n\r\n", name="b")
            + request("GET", tenant.path("b")))
    with tenant.connect() as c:
        for n in range(len(data)):
            c.send(data[n:n + 1])
        assert c.answer("PUT").status == 201
        assert c.answer("PUT").status == 204
        assert c.answer().body == b"hello"


def test_requests_may_be_cut_anywhere(tenant):
    data = request("PUT", tenant.path("b"), b"x" * 20) + put(tenant, CHUNKED, BODY5, name="b") + request("GET", tenant.path("b"))
    with tenant.connect() as c:
        for cut in range(1, len(data)):
            c.send(data[:cut])
            c.send(data[cut:])
            assert c.answer("PUT").status in (201, 204)
            assert c.answer("PUT").status == 204
            assert c.answer().body == b"hello"


# --- every status, then a second request (F86)


def outcomes(t):
    """(request bytes, method, status) of every kind of answer that a worker has."""
    tag = t.put("there", b"0123456789").etag
    t.put("folder/x", b"x")
    p = t.path
    rows = []

    def row(status, method, name, body=None, fields=(), **how):
        rows.append((request(method, p(name) if not how.get("raw") else name, body, fields), method, status))
    for m in "GET", "HEAD":
        row(200, m, "there")
        row(404, m, "none")
        row(304, m, "there", None, {"If-None-Match": tag})
        row(412, m, "there", None, {"If-Match": '"x"'})
        row(400, m, "a//b")
        row(400, m, "there", None, {"If-Match": "x"})
        row(417, m, "there", None, {"Expect": "x"})
        row(401, m, "/absent/x", raw=True)
        row(308, m, "/" + t.name, raw=True)
        row(404, m, "/_none", raw=True)
        row(414, m, "x" * 300)
    row(206, "GET", "there", None, {"Range": "bytes=1-2"})
    row(416, "GET", "there", None, {"Range": "bytes=10-"})
    row(200, "GET", "there", b"a body", {})
    row(200, "HEAD", "there", b"a body", {})
    row(201, "PUT", "new", b"x")
    row(204, "PUT", "there2", b"x")
    row(412, "PUT", "there", b"0\r\n\r\n", {"If-Match": '"x"'})
    row(400, "PUT", "a//b", b"x")
    row(400, "PUT", "there", b"x", {"If-Match": "x"})
    row(401, "PUT", "/absent/x", b"GET / HTTP/1.1\r\n\r\n", raw=True)
    row(404, "PUT", "_x", b"GET / HTTP/1.1\r\n\r\n")
    row(405, "PUT", "folder/", b"GET / HTTP/1.1\r\n\r\n")
    row(409, "PUT", "folder", b"x")
    row(411, "PUT", "new2")
    row(413, "PUT", "big", None, {"Content-Length": str(1 << 30)})
    row(414, "PUT", "x" * 300, b"x")
    row(417, "PUT", "new3", b"x", {"Expect": "x"})
    row(431, "PUT", "new4", b"x", {"Content-Type": "x" * 5000})
    row(404, "DELETE", "none")
    row(404, "DELETE", "none", b"a body")
    row(412, "DELETE", "there", None, {"If-Match": '"x"'})
    row(204, "DELETE", "there3")
    row(401, "DELETE", "/absent/x", raw=True)
    row(204, "OPTIONS", "there")
    row(204, "OPTIONS", "*", raw=True)
    row(204, "OPTIONS", "there", b"a body")
    row(405, "POST", "there", b"GET / HTTP/1.1\r\n\r\n")
    row(405, "PATCH", "there", b"x")
    row(501, "TRACE", "there")
    row(501, "XYZ", "there", b"GET / HTTP/1.1\r\n\r\n")
    return rows


def test_every_status_leaves_the_connection_as_it_says(tenant):
    for data, method, status in outcomes(tenant):
        tenant.put("there2", b"x")
        tenant.put("there3", b"x")
        tenant.put("second", b"the second")
        with tenant.connect() as c:
            c.send(data, request("GET", tenant.path("second")))
            a = c.answer(method)
            assert a.status == status, (data[:200], a)
            if a.closes:
                c.expect_eof()
            else:
                assert c.answer().body == b"the second", data[:200]
        if status == 201:
            assert tenant.ask("DELETE", "new").status == 204


def test_pairs_of_outcomes_on_one_connection(tenant):
    rows = [r for r in outcomes(tenant) if r[2] not in (201, 413)]
    for one, two in itertools.islice(itertools.product(rows, rows), 0, None, 7):
        tenant.put("there2", b"x")
        tenant.put("there3", b"x")
        with tenant.connect() as c:
            c.send(one[0], two[0])
            a = c.answer(one[1])
            assert a.status == one[2]
            if a.closes:
                c.expect_eof()
                continue
            b = c.answer(two[1])
            # the one outcome that changes what a second one finds
            assert b.status in (two[2], 404 if two[1] == "DELETE" and two[2] == 204 else two[2])


# --- the end of a connection


def test_a_half_closed_client_gets_all_its_answers(tenant):
    tenant.put("a", b"y" * 100000)
    with tenant.connect() as c:
        c.send(*[request("GET", tenant.path("a"))] * 20, request("PUT", tenant.path("b"), b"x"), request("GET", tenant.path("b")))
        c.half_close()
        for _ in range(20):
            assert len(c.answer().body) == 100000
        assert c.answer("PUT").status == 201
        assert c.answer().body == b"x"
        c.expect_eof()


def test_a_half_closed_client_with_half_a_request_gets_the_answers_before_it(tenant):
    tenant.put("a", b"x")
    with tenant.connect() as c:
        c.send(request("GET", tenant.path("a")), b"GET /half HTTP/1.1\r\nHost: ")
        c.half_close()
        assert c.answer().body == b"x"
        if c.sock.recv(1, socket.MSG_PEEK):  # a 400 about the rest is allowed, silence as well
            assert c.answer().status in (400, 408)
        c.expect_eof()


def test_connection_close_is_obeyed(tenant):
    tenant.put("a", b"x")
    for value in "close", "Close", "x, close", "keep-alive, close", "close, TE":
        with tenant.connect() as c:
            c.send(request("GET", tenant.path("a"), None, {"Connection": value}), request("GET", tenant.path("a")))
            a = c.answer()
            assert a.body == b"x" and a.closes
            c.expect_eof()


def test_http_1_0_closes_unless_asked(tenant):
    tenant.put("a", b"x")
    for host in "localhost", None:
        with tenant.connect() as c:
            c.send(request("GET", tenant.path("a"), version="1.0", host=host), request("GET", tenant.path("a")))
            a = c.answer()
            assert a.body == b"x" and "transfer-encoding" not in a
            c.expect_eof()
    with tenant.connect() as c:
        for _ in range(3):
            a = c.ask("GET", tenant.path("a"), None, {"Connection": "keep-alive"}, version="1.0")
            assert a.body == b"x" and not a.closes and a["connection"].lower() == "keep-alive"
        a = c.ask("PUT", tenant.path("a"), b"y", version="1.0")
        assert a.status == 204
        c.expect_eof()


def test_the_absolute_form_is_a_target(tenant):
    tenant.put("a", b"x")
    for target in "http://localhost" + tenant.path("a"), "http://localhost:80%s?q" % tenant.path("a"), "HTTP://LOCALHOST" + tenant.path("a"):
        a = tenant.conn.ask("GET", target)
        assert (a.status, a.body) == (200, b"x"), target
    a = tenant.conn.ask("PUT", "http://localhost" + tenant.path("b"), b"y", {"Host": "localhost"})
    assert a.status == 201 and a["location"] == tenant.path("b")
    assert tenant.conn.ask("GET", "http://localhost").status == 404  # the root
    for target in "http:/x", "http://", "http:///a/b", "http://a b/", "http://u@h/a/b":
        with tenant.connect() as c:
            assert c.ask("GET", target).status == 400, target


def test_an_announced_body_over_the_limit_is_413_before_it_is_read(tenant):
    size = (16 << 20) + 1
    with tenant.connect() as c:
        c.send(request("PUT", tenant.path("big"), None, {"Content-Length": str(size)}))
        a = c.answer("PUT")
        assert a.status == 413
        if a.closes:
            c.expect_eof()
    # and a client that writes on can read it: the close lingers
    with tenant.connect() as c:
        c.send(request("PUT", tenant.path("big"), None, {"Content-Length": str(size)}))
        sent = 0
        try:
            while sent < 4 << 20:
                sent += c.sock.send(b"x" * 65536)
        except (BrokenPipeError, ConnectionResetError):
            raise Failed("reset after %d bytes, before the 413 could be read" % sent) from None
        assert c.answer("PUT").status == 413
    assert tenant.get("big").status == 404


def test_a_chunked_body_over_the_limit_is_413(tenant):
    with tenant.connect() as c:
        c.send(request("PUT", tenant.path("big"), None, {"Transfer-Encoding": "chunked"}))
        piece = b"100000\r\n" + b"x" * (1 << 20) + b"\r\n"
        for _ in range(17):
            c.send(piece)
        a = c.answer("PUT")
        assert a.status == 413 and a.closes
        c.expect_eof()
    assert tenant.get("big").status == 404


def test_a_400_can_be_read_by_a_client_that_writes_on(target):
    with target.connect() as c:
        c.send(put(target, "Content-Length: 5\r\nContent-Length: 6\r\n"))
        for _ in range(32):
            c.send(b"x" * 32768)
        assert c.answer("PUT").status == 400
        c.expect_eof()


# --- Expect


def test_expect_is_answered_100_and_then_the_answer(tenant):
    """F85."""
    for value in "100-continue", "100-Continue":
        with tenant.connect() as c:
            c.send(request("PUT", tenant.path("e"), None, {"Content-Length": "5", "Expect": value}))
            assert c.answer("PUT", interim=True).status == 100
            c.send(b"hello")
            assert c.answer("PUT").status in (201, 204)
            c.expect_kept(tenant.path("e"))
    with tenant.connect() as c:
        c.send(request("PUT", tenant.path("e"), None, {"Transfer-Encoding": "chunked", "Expect": "100-continue"}))
        assert c.answer("PUT", interim=True).status == 100
        c.send(BODY5)
        assert c.answer("PUT").status == 204


def test_expect_with_the_body_right_behind_it(tenant):
    with tenant.connect() as c:
        c.send(request("PUT", tenant.path("e"), b"hello", {"Expect": "100-continue"}), request("GET", tenant.path("e")))
        a = c.answer("PUT", interim=True)
        if a.status == 100:
            a = c.answer("PUT")
        assert a.status == 201
        assert c.answer().body == b"hello"


EARLY = [  # an early final answer, and never a 100
    (413, "big", {"Content-Length": str(1 << 30)}),
    (405, "folder/", {"Content-Length": "5"}),
    (400, "a//b", {"Content-Length": "5"}),
    (400, "x", {"Content-Length": "5", "If-Match": "x"}),
    (400, "x", {"Content-Length": "5", "Content-Range": "bytes 0-4/5"}),
    (404, "_x", {"Content-Length": "5"}),
    (431, "x", {"Content-Length": "5", "Content-Type": "x" * 5000}),
]


@pytest.mark.parametrize("status, name, fields", EARLY)
def test_expect_gets_an_early_final_answer(tenant, status, name, fields):
    with tenant.connect() as c:
        c.send(request("PUT", tenant.path(name), None, {"Expect": "100-continue", **fields}))
        a = c.answer("PUT")
        assert a.status == status
        if a.closes:
            c.expect_eof()
        else:
            # kept: the body may still come, or a client that gave up on it sends its next request; only the first is safe
            c.send(b"hello"[:int(fields["Content-Length"])])
            c.expect_kept(tenant.path("none"))


def test_expect_for_an_absent_tenant_gets_401_at_once(daemon):
    with daemon.connect() as c:
        c.send(request("PUT", "/absent/x", None, {"Expect": "100-continue", "Content-Length": "5"}))
        a = c.answer("PUT")
        assert a.status == 401
        if a.closes:
            c.expect_eof()


@pytest.mark.parametrize("value", ["x", "200-ok", "100-continue, x", "100-continuex", "100", "100-continue=1"])
def test_another_expectation_is_417(tenant, value):
    with tenant.connect() as c:
        c.send(request("PUT", tenant.path("e"), b"hello", {"Expect": value}))
        a = c.answer("PUT")
        assert a.status == 417
        c.after(a, tenant.path("none"))
    assert tenant.get("e").status == 404


def test_bad_framing_with_expect_is_one_400(target):
    """F80."""
    for fields in ("Content-Length: 5\r\n" + CHUNKED, "Content-Length: x\r\n", "Transfer-Encoding: chunked, gzip\r\n"):
        refused(target, put(target, "Expect: 100-continue\r\n" + fields, BODY5))


def test_a_body_limit_behind_a_100_is_one_413(target):
    """F80: the 100 has been sent, the final answer follows it and nothing else."""
    with target.connect() as c:
        c.send(put(target, "Expect: 100-continue\r\n" + CHUNKED))
        assert c.answer("PUT", interim=True).status == 100
        c.send(b"FFFFFFFF\r\n")
        a = c.answer("PUT")
        assert a.status == 413 and a.closes
        c.expect_eof()


def test_http_1_0_gets_no_100(tenant):
    with tenant.connect() as c:
        c.send(request("PUT", tenant.path("e"), b"hello", {"Expect": "100-continue"}, version="1.0"))
        assert c.answer("PUT").status == 201


def test_a_client_that_leaves_after_the_100_leaves_nothing(tenant):
    tenant.put("e", b"old")
    with tenant.connect() as c:
        c.send(request("PUT", tenant.path("e"), None, {"Content-Length": "5", "Expect": "100-continue"}))
        assert c.answer("PUT", interim=True).status == 100
        c.send(b"hel")
    assert tenant.get("e").body == b"old"


def test_the_same_workers_after_all_of_this(daemon):
    """Nothing above may have cost a worker its life."""
    assert sorted(daemon.workers()) == [0, 1]
    assert not [line for line in daemon.log if "signal" in line and "worker" in line]
    wait_for("the committer", daemon.committer)
