"""What was sent and answered, when, and whether that can be: per document, exactly.

Times are this process's monotonic clock, taken before the first byte was sent
and after the last byte of the answer was there, so every interval is a little
longer than the truth: a violation found here is one.

An operation without an answer has an unknown end: it happened whole, at any
later time, or not at all.
"""
import bisect
import json
import math
import zlib

ABSENT = ("absent", 0)  # the value of a document that is not there

POOL = b"".join(zlib.crc32(b"%d" % n).to_bytes(4, "little") for n in range(1 << 19))  # 2 MiB of no pattern


class Violation(Exception):
    """The history cannot be: (what, the document's events)."""

    def __init__(self, what, key, events=()):
        super().__init__("%s: %s" % (key, what))
        self.what, self.key, self.events = what, key, list(events)

    def text(self):
        lines = ["VIOLATION: %s: %s" % (self.key, self.what)]
        lines += ["  %s" % (e,) for e in self.events[-200:]]
        return "\n".join(lines)


# --- bodies that know who wrote them


def make_body(key, writer, number, size, **more):
    """A body of about `size` bytes that names its key, writer and number, and carries its checksum."""
    start = (writer * 7919 + number * 104729) % (len(POOL) // 2)
    fill = POOL[start:start + min(size, len(POOL) // 2)]
    head = {"key": key, "writer": writer, "number": number, "fill": len(fill), "crc": zlib.crc32(fill), **more}
    return json.dumps(head).encode() + b"\n" + fill


def read_body(key, body):
    """What make_body() was given; a Violation where it is not whole or not of this document."""
    line, _, fill = body.partition(b"\n")
    try:
        head = json.loads(line)
    except ValueError:
        raise Violation("not a body of ours: %r..." % body[:80], key) from None
    if head["key"] != key:
        raise Violation("the body of another document: %r" % head, key)
    if len(fill) != head["fill"] or zlib.crc32(fill) != head["crc"]:
        raise Violation("half a body: %d of %d bytes, checksum %08x: %r" % (len(fill), head["fill"], zlib.crc32(fill), head), key)
    return head


# --- entity tags


class Tags:
    """A tag of a document names one version of it, for ever."""

    def __init__(self):
        self.seen = {}

    def saw(self, key, tag, value):
        if not tag:
            raise Violation("no ETag beside %r" % (value,), key)
        known = self.seen.setdefault((key, tag), value)
        if known != value:
            raise Violation("ETag %s repeats: %r and %r" % (tag, known, value), key)


# --- registers: anybody writes, anybody reads


class Register:
    """One document under unconditional writes, each of a value of its own."""

    def __init__(self, key):
        self.key, self.events = key, []

    def wrote(self, value, start, end):
        """end None: no answer."""
        self.events.append(("write" if end is not None else "write?", value, start, end))

    def read(self, value, start, end):
        self.events.append(("read", value, start, end))

    def acknowledged(self):
        return sum(e[0] == "write" for e in self.events)

    def check(self):
        """Linearizable?  Values are written once each, so the theorem of Gibbons and Korach ("Testing shared
        memories", 1997) decides it: the zones of the values must not overlap in the forbidden ways."""
        def bad(what):
            raise Violation(what, self.key, sorted(self.events, key=lambda e: e[2]))
        write_start = {ABSENT: -math.inf}
        finish, start = {ABSENT: -math.inf}, {ABSENT: -math.inf}  # of all that touch a value: earliest end, latest start
        for kind, value, s, e in self.events:
            if kind != "read":
                if value in write_start:
                    bad("the test wrote %r twice" % (value,))
                write_start[value], start[value], finish[value] = s, s, math.inf if e is None else e
        seen = {value for kind, value, _, e in self.events if kind == "write"} | {ABSENT}
        for kind, value, s, e in self.events:
            if kind == "read":
                if value not in write_start:
                    bad("%r was read and never written" % (value,))
                if e < write_start[value]:
                    bad("%r was read before it was written" % (value,))
                seen.add(value)
                finish[value], start[value] = min(finish[value], e), max(start[value], s)
        forward = sorted((finish[v], start[v], v) for v in seen if finish[v] < start[v])
        for (_, end, v), (begin, _, w) in zip(forward, forward[1:]):
            if begin < end:
                bad("%r was seen before and after %r" % (v, w))
        begins = [f[0] for f in forward]
        for v in seen:
            if finish[v] >= start[v]:
                i = bisect.bisect_left(begins, start[v]) - 1
                if i >= 0 and forward[i][0] < start[v] and finish[v] < forward[i][1]:
                    bad("the acknowledged %r is lost: %r was seen before and after it" % (v, forward[i][2]))


# --- counters: chains of If-Match


class Counter:
    """One document whose every version is one more than the version that its If-Match named."""

    def __init__(self, key):
        self.key = key
        self.acknowledged, self.unknown, self.refused = {}, {}, set()  # number -> (op, parent, tag); op -> (number, parent)
        self.versions = {}  # number -> (op, parent): every one that was seen
        self.tags = {}      # number -> tag
        self.seen = []      # (start, end, number)
        self.events = []

    def bad(self, what):
        raise Violation(what, self.key, self.events)

    def saw(self, number, op, parent, tag, start, end):
        self.events.append(("read", number, op, parent, tag, start, end))
        self.know(number, op, parent, tag)
        self.seen.append((start, end, number))

    def saw_absent(self, start, end):
        self.events.append(("absent", start, end))
        self.seen.append((start, end, 0))

    def know(self, number, op, parent, tag):
        if self.versions.setdefault(number, (op, parent)) != (op, parent):
            self.bad("two versions %d: %r and %r" % (number, self.versions[number], (op, parent)))
        if self.tags.setdefault(number, tag) != tag:
            self.bad("two tags of version %d: %s and %s" % (number, self.tags[number], tag))

    def won(self, number, op, parent, tag, start, end):
        self.events.append(("won", number, op, parent, tag, start, end))
        if number in self.acknowledged:
            self.bad("two winners of %d: %r and %r" % (number, self.acknowledged[number], (op, parent, tag)))
        self.acknowledged[number] = (op, parent, tag)
        self.know(number, op, parent, tag)
        self.seen.append((start, end, number))

    def lost(self, number, op, start, end):
        self.events.append(("412", number, op, start, end))
        self.refused.add(op)

    def no_answer(self, number, op, parent, start):
        self.events.append(("won?", number, op, parent, start))
        self.unknown[op] = (number, parent)

    def check(self, final):
        """final: the number at the end (0: absent), after everything was answered or dead."""
        for number in self.acknowledged:
            if number > final:
                self.bad("the acknowledged version %d is lost: the last is %d" % (number, final))
        unknown = {}
        for number, parent in self.unknown.values():
            unknown.setdefault(number, set()).add(parent)
        for number in range(1, final + 1):
            if number not in self.acknowledged and number not in unknown:
                self.bad("version %d was made by nobody (an increment counted twice?)" % number)
        for number, (op, parent) in self.versions.items():
            if op in self.refused:
                self.bad("version %d is of an operation that was refused with 412: %r" % (number, op))
            if number not in self.acknowledged and self.unknown.get(op) != (number, parent):
                self.bad("version %d is of an operation that was never sent so: %r" % (number, op))
            if number > 1 and number - 1 in self.tags and self.tags[number - 1] != parent:
                self.bad("version %d follows %s, but version %d was %s" % (number, parent, number - 1, self.tags[number - 1]))
        # what was seen never goes back in real time
        by_end = sorted((end, number) for _, end, number in self.seen)
        most, i = 0, 0
        for start, _, number in sorted(self.seen):
            while i < len(by_end) and by_end[i][0] < start:
                most = max(most, by_end[i][1])
                i += 1
            if number < most:
                self.bad("version %d was seen after version %d" % (number, most))


# --- life cycles: one owner, every answer known in advance


class Life:
    """One document of one client: created, replaced, deleted, created again.  Its state is known exactly
    until an operation has no answer; then it is one of two, and nobody touches it again."""

    def __init__(self, key):
        self.key = key
        self.states = [(ABSENT, None)]  # (value, tag); two of them: unknown which; a tag that was never told is None
        self.events = []

    def bad(self, what):
        raise Violation(what, self.key, self.events)

    @property
    def value(self):
        return self.states[0][0]

    @property
    def tag(self):
        return self.states[0][1]

    @property
    def known(self):
        return len(self.states) == 1

    def did(self, what, value, tag, start, end):
        self.events.append((what, value, tag, start, end))
        self.states = [(value, tag)]

    def no_answer(self, what, value, start):
        self.events.append((what + "?", value, start))
        self.states.append((value, None))

    def saw(self, value, tag, start=None, end=None):
        self.events.append(("read", value, tag, start, end))
        for v, t in self.states:
            if v == value and (t is None or t == tag):
                return
        self.bad("%r %s was read where it must be %s" % (value, tag, " or ".join(map(repr, self.states))))
