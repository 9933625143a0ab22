"""Contract 2: Range and If-Range (F91, F92)."""
import pytest

from holdfast import http_date, to_date

BIG = str(1 << 64)
DOC = b"0123456789"

# the field, then the answer on ten bytes: (206, first, last), 200, 416, or a set of what is right
CASES = [
    ("bytes=0-0", (206, 0, 0)),
    ("bytes=0-9", (206, 0, 9)),
    ("bytes=9-9", (206, 9, 9)),
    ("bytes=2-5", (206, 2, 5)),
    ("bytes=0-", (206, 0, 9)),
    ("bytes=9-", (206, 9, 9)),
    ("bytes=-1", (206, 9, 9)),
    ("bytes=-5", (206, 5, 9)),
    ("bytes=-10", (206, 0, 9)),
    ("bytes=-1000", (206, 0, 9)),  # longer than the document: the whole
    ("bytes=5-1000", (206, 5, 9)),
    ("bytes=0-" + BIG, (206, 0, 9)),
    ("bytes=0-" + "9" * 200, (206, 0, 9)),
    ("bytes=-" + BIG, (206, 0, 9)),
    ("bytes=-" + "9" * 200, (206, 0, 9)),
    ("bytes=000-00005", (206, 0, 5)),
    ("bytes=-0", 416),
    ("bytes=-00", 416),
    ("bytes=10-", 416),
    ("bytes=10-20", 416),
    ("bytes=" + BIG + "-", 416),
    ("bytes=" + BIG + "-" + BIG, 416),
    ("bytes=18446744073709551615-", 416),
    ("bytes=9223372036854775808-", 416),
    ("bytes=5-2", 200),  # invalid: ignored
    ("bytes=" + BIG + "-1", 200),
    ("bytes=", 200),
    ("bytes=-", 200),
    ("bytes=a-b", 200),
    ("bytes=1", 200),
    ("bytes=1-2-3", 200),
    ("bytes=--1", 200),
    ("bytes=+1-2", 200),
    ("bytes=0x1-2", 200),
    ("bytes=1 -2", 200),
    ("bytes 1-2", 200),
    ("bytes", 200),
    ("", 200),
    ("items=0-1", 200),  # unknown unit
    ("bytesx=0-1", 200),
    ("bytes=0-1,3-4", 200),  # several: the whole
    ("bytes=0-0,-1", 200),
    ("bytes=" + ",".join("%d-%d" % (n % 10, n % 10) for n in range(1000)), 200),
    ("bytes=" + ",".join(["0-"] * 1000), 200),
    ("bytes=100-200,300-400", {200, 416}),
    ("Bytes=1-2", {200, 206}),
    ("bytes=1-2,", {200, 206}),
]

EMPTY = [("bytes=0-", 416), ("bytes=0-0", 416), ("bytes=-5", 416), ("bytes=-0", 416), ("bytes=5-2", 200), ("bytes=1-", 416), ("items=0-1", 200)]


@pytest.fixture(scope="module")
def document(daemon):
    t = daemon.tenant()
    t.put("d", DOC)
    t.put("empty", b"")
    yield t
    t.conn.close()


@pytest.mark.parametrize("value, wanted", CASES)
def test_of_ten_bytes(document, value, wanted):
    a = document.get("d", {"Range": value})
    if isinstance(wanted, set):
        assert a.status in wanted
        return
    if isinstance(wanted, tuple):
        _, first, last = wanted
        assert a.status == 206
        assert a.body == DOC[first:last + 1]
        assert a["content-range"] == "bytes %d-%d/10" % (first, last)
        assert a.etag == document.get("d").etag
        assert a["content-type"] == "application/octet-stream" and a["x-content-type-options"] == "nosniff"
        assert "last-modified" in a and a["cache-control"] == "no-cache"
    elif wanted == 416:
        assert a.status == 416 and a["content-range"] == "bytes */10"
        document.after(a, document.path("d"))
    else:
        assert (a.status, a.body) == (200, DOC) and "content-range" not in a
    head = document.ask("HEAD", "d", None, {"Range": value})
    assert head.status == 200 and head["content-length"] == "10" and "content-range" not in head


@pytest.mark.parametrize("value, wanted", EMPTY)
def test_of_an_empty_document(document, value, wanted):
    a = document.get("empty", {"Range": value})
    assert a.status == wanted
    if wanted == 416:
        assert a["content-range"] == "bytes */0"


def test_of_a_document_that_is_not_there(document):
    assert document.get("none", {"Range": "bytes=0-1"}).status == 404


def test_if_range(document):
    """F92: anything but an exact match gives the whole."""
    full = document.get("d")
    tag, at = full.etag, full["last-modified"]
    want = {"Range": "bytes=2-3"}
    a = document.get("d", {"If-Range": tag, **want})
    assert (a.status, a.body) == (206, DOC[2:4])
    for value in ("W/" + tag, '"stale"', tag[:-1], tag[1:], "", "*", tag + ', "x"', '"x", ' + tag, "W/", "yesterday",
                  to_date(http_date(at) - 3600), to_date(http_date(at) + 3600), to_date(0)):
        a = document.get("d", {"If-Range": value, **want})
        assert (a.status, a.body) == (200, DOC), value
    a = document.get("d", {"If-Range": at, **want})
    assert a.status in (200, 206)
    a = document.get("d", {"If-Range": tag})
    assert (a.status, a.body) == (200, DOC)
    # a range that cannot be had, of another version: the whole, not 416
    assert document.get("d", {"If-Range": '"stale"', "Range": "bytes=100-"}).status == 200
    assert document.get("d", {"If-Range": tag, "Range": "bytes=100-"}).status == 416


def test_of_a_large_document_around_its_chunks(document):
    body = bytes((n * 7 + (n >> 8) * 13 + (n >> 16) * 29) & 255 for n in range(200000))
    document.put("big", body)
    for first, last in ((0, 0), (0, 65535), (65535, 65536), (65536, 65536), (65537, 131071), (131071, 131073), (4095, 4096),
                        (100, 199999), (199999, 199999), (131072, 199999), (70000, 70001), (1, 199998)):
        a = document.get("big", {"Range": "bytes=%d-%d" % (first, last)})
        assert a.status == 206 and a.body == body[first:last + 1]
        assert a["content-range"] == "bytes %d-%d/200000" % (first, last)
    assert document.get("big", {"Range": "bytes=-65536"}).body == body[-65536:]
