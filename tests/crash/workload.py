"""The clients.  Each is one connection; what it sees goes into the round's history."""
import itertools
import json
import socket
import threading
import time

from holdfast import Client, Conn, Failed, field, request

from . import history
from .history import ABSENT, Counter, Life, Register, Tags, Violation, make_body, read_body


class Round:
    """What all clients of one round share."""

    def __init__(self, tenant, rng):
        self.tenant, self.rng = tenant, rng
        self.tags = Tags()
        self.registers = {}
        self.large = {}  # registers of hundreds of KiB
        self.counters = {}
        self.lives = {}
        self.strict = True  # not one request may fail
        self.sent = self.acknowledged = self.reads = self.refused = self.unknown = self.cuts = 0
        self.longest = 0.0

    def path(self, key):
        return "/%s/%s" % (self.tenant, key)

    def size(self):
        r = self.rng.random()
        if r < 0.80:
            return self.rng.randrange(0, 300)
        if r < 0.97:
            return self.rng.randrange(300, 20000)
        return self.rng.randrange(20000, 250000)

    def clients(self, registers=10, counters=8, lives=6):
        numbers = itertools.count(1)
        keys = ["r/%d" % n for n in range(registers * 3)]
        self.registers = {k: Register(k) for k in keys}
        self.large = {k: Register(k) for k in ["b/%d" % n for n in range(3)]}
        self.counters = {k: Counter(k) for k in ["c/%d" % n for n in range(max(1, counters // 3))]}
        made = [RegisterClient(self, next(numbers)) for _ in range(registers)]
        made += [CounterClient(self, next(numbers)) for _ in range(counters)]
        made += [LifeClient(self, next(numbers)) for _ in range(lives)]
        made += [LargeClient(self, next(numbers))]
        return made


class Worker(Client):
    def __init__(self, round_, number):
        self.round, self.writer, self.count, self.started, self.write = round_, number, 0, 0.0, False

    def ask(self, method, key, body=None, fields=()):
        self.method, self.key = method, key
        self.write = method != "GET"
        if self.write:
            self.round.sent += 1
        data = request(method, self.round.path(key), body, fields)
        self.started = time.monotonic()
        return data

    def expect(self, status, head, body, *wanted):
        now = time.monotonic()
        self.round.longest = max(self.round.longest, now - self.started)
        if status not in wanted:
            raise Violation("%s got %d, wanted %s: %r %r" % (self.method, status, wanted, head, body[:300]), self.key)
        if self.write:
            if status in (201, 204):
                self.round.acknowledged += 1
            else:
                self.round.refused += 1
        else:
            self.round.reads += 1
        return now

    def cut(self, why):
        if self.round.strict:
            raise Failed("a request failed (%s) while only the committer was killed: %s %s, after %.3f s" % (
                why, self.method, self.key, time.monotonic() - self.started))
        self.round.cuts += 1
        if self.write:
            self.round.unknown += 1
        self.lost()
        return True

    def lost(self):
        """The request has no answer."""


def tag_of(head):
    tag = field(head, b"etag")
    return tag.decode("latin-1") if tag else None


def value_of(key, body):
    head = read_body(key, body)
    return (head["writer"], head["number"]), head


class RegisterClient(Worker):
    """Writes and reads documents that everybody writes and reads."""

    def next(self):
        rng = self.round.rng
        self.register = self.round.registers[rng.choice(list(self.round.registers))]
        if rng.random() < 0.4:
            return self.ask("GET", self.register.key)
        self.count += 1
        self.value = (self.writer, self.count)
        return self.ask("PUT", self.register.key, make_body(self.register.key, self.writer, self.count, self.round.size()))

    def answer(self, status, head, body):
        if self.write:
            now = self.expect(status, head, body, 201, 204)
            self.round.tags.saw(self.key, tag_of(head), self.value)
            self.register.wrote(self.value, self.started, now)
            return
        now = self.expect(status, head, body, 200, 404)
        value = ABSENT
        if status == 200:
            value, _ = value_of(self.key, body)
            self.round.tags.saw(self.key, tag_of(head), value)
        self.register.read(value, self.started, now)

    def lost(self):
        if self.write:
            self.register.wrote(self.value, self.started, None)


class LargeClient(RegisterClient):
    """Replaces large documents, some a second; SlowReader reads them."""

    rests = True

    def next(self):
        rng = self.round.rng
        self.rests = not self.rests
        if not self.rests:
            return rng.uniform(0.02, 0.2)
        self.register = self.round.large[rng.choice(list(self.round.large))]
        self.count += 1
        self.value = (self.writer, self.count)
        return self.ask("PUT", self.register.key, make_body(self.register.key, self.writer, self.count, rng.randrange(300000, 1000000)))


class SlowReader(threading.Thread):
    """Reads large documents so slowly that they are replaced, and their segments compacted, meanwhile: what it looks at
    must stay as it is.  A connection may be cut, a body that came whole must be whole."""

    def __init__(self, round_, address):
        super().__init__(daemon=True)
        self.round, self.address, self.done, self.failure, self.bodies = round_, address, threading.Event(), None, 0

    def run(self):
        try:
            while not self.done.is_set():
                self.read_one(self.round.rng.choice(list(self.round.large)))
        except Exception as e:
            self.failure = e

    def read_one(self, key):
        start = time.monotonic()
        try:
            with Conn(self.address(), rcvbuf=8192) as c:
                c.send(request("GET", self.round.path(key)))
                a = c.head()
                left, parts = int(a["content-length"]), [c.buf]
                left -= len(c.buf)
                while left > 0 and not self.done.wait(0.004 if a.status == 200 else 0):
                    data = c.sock.recv(min(left, 8192))
                    if not data:
                        return
                    parts.append(data)
                    left -= len(data)
        except (OSError, Failed, socket.timeout):
            self.done.wait(0.05)
            return
        if left > 0:
            return
        if a.status not in (200, 404):
            raise Violation("a slow reader got %r: %r" % (a, b"".join(parts)[:300]), key)
        value = ABSENT
        if a.status == 200:
            value, _ = value_of(key, b"".join(parts))
            self.round.tags.saw(key, a["etag"], value)
        self.round.large[key].read(value, start, time.monotonic())
        self.bodies += 1

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *exc):
        self.done.set()
        self.join(30)
        if self.failure and exc[0] is None:
            raise self.failure


class CounterClient(Worker):
    """Adds one, by If-Match on what it saw, to a document to which others add, too."""

    state = None  # (number, tag) that the next PUT goes out from

    def next(self):
        rng = self.round.rng
        if self.state is None:
            self.counter = self.round.counters[rng.choice(list(self.round.counters))]
            return self.ask("GET", self.counter.key)
        number, tag = self.state
        self.count += 1
        self.op, self.number, self.parent = "%d.%d" % (self.writer, self.count), number + 1, tag
        body = make_body(self.counter.key, self.writer, self.count, self.round.size() % 2000, counter=self.number, parent=tag)
        return self.ask("PUT", self.counter.key, body, {"If-Match": tag} if tag else {"If-None-Match": "*"})

    def answer(self, status, head, body):
        c = self.counter
        if not self.write:
            now = self.expect(status, head, body, 200, 404)
            if status == 404:
                c.saw_absent(self.started, now)
                self.state = (0, None)
            else:
                value, h = value_of(c.key, body)
                self.round.tags.saw(c.key, tag_of(head), value)
                c.saw(h["counter"], "%d.%d" % value, h["parent"], tag_of(head), self.started, now)
                self.state = (h["counter"], tag_of(head))
            return
        now = self.expect(status, head, body, 204 if self.parent else 201, 412)
        if status == 412:
            if not tag_of(head):
                raise Violation("a 412 without the current ETag", c.key, c.events)
            c.lost(self.number, self.op, self.started, now)
            self.state = None
            return
        tag = tag_of(head)
        self.round.tags.saw(c.key, tag, (self.writer, self.count))
        c.won(self.number, self.op, self.parent, tag, self.started, now)
        self.state = (self.number, tag) if self.round.rng.random() < 0.7 else None

    def lost(self):
        if self.write:
            self.counter.no_answer(self.number, self.op, self.parent, self.started)
        self.state = None


class LifeClient(Worker):
    """Creates, replaces, reads and deletes documents of its own; knows every answer before it comes."""

    life = None
    generation = 0

    def next(self):
        rng = self.round.rng
        if self.life is None or not self.life.known or rng.random() < 0.01:
            self.generation += 1
            key = "l/%d/%d" % (self.writer, self.generation)
            self.life = self.round.lives[key] = Life(key)
        life, there = self.life, self.life.value != ABSENT
        fields, self.wanted = {}, None
        what = rng.choice(("put", "put", "put", "delete", "get", "wrong"))
        if what == "get":
            self.what = "get"
            return self.ask("GET", life.key)
        if what == "wrong":  # a condition that does not hold: nothing happens
            self.wanted = 412
            fields = {"If-None-Match": "*"} if there and rng.random() < 0.5 else {"If-Match": '"wrong"'}
            what = "put"
        elif rng.random() < 0.6:
            fields = {"If-Match": life.tag} if there else {"If-None-Match": "*"} if what == "put" else {}
        self.what = what
        if what == "delete":
            self.value, self.wanted = ABSENT, 204 if there else 404
            return self.ask("DELETE", life.key, None, fields)
        self.count += 1
        self.value = (self.writer, self.count)
        self.wanted = self.wanted or (204 if there else 201)
        return self.ask("PUT", life.key, make_body(life.key, self.writer, self.count, self.round.size()), fields)

    def answer(self, status, head, body):
        life = self.life
        if self.what == "get":
            now = self.expect(status, head, body, 200, 404)
            value = value_of(life.key, body)[0] if status == 200 else ABSENT
            life.saw(value, tag_of(head), self.started, now)
            return
        try:
            now = self.expect(status, head, body, self.wanted)
        except Violation as v:
            raise Violation(v.what, v.key, life.events) from None
        if status in (412, 404):
            return
        tag = tag_of(head) if self.what == "put" else None
        if tag:
            self.round.tags.saw(life.key, tag, self.value)
        life.did(self.what, self.value, tag, self.started, now)

    def lost(self):
        if self.what == "get":
            return
        # one that would do nothing now must not meet another state later: it may still be under way
        self.life.no_answer(self.what, self.value if self.wanted not in (412, 404) else self.life.value, self.started)


# --- the end of a round


class Reader(Client):
    """Reads every key once, when nobody writes any more."""

    def __init__(self, round_, keys, found):
        self.round, self.keys, self.found = round_, iter(keys), found

    def next(self):
        self.key = next(self.keys, None)
        if self.key is None:
            return None
        self.started = time.monotonic()
        return request("GET", self.round.path(self.key))

    def answer(self, status, head, body):
        if status not in (200, 404):
            raise Violation("GET got %d: %r" % (status, body[:300]), self.key)
        self.found[self.key] = (status, tag_of(head), body, self.started, time.monotonic())


def verify(round_, found, settings):
    """found: what Reader saw of every key.  Number of documents that were verified."""
    documents = size = 0
    for key, (status, tag, body, start, end) in found.items():
        value, head = value_of(key, body) if status == 200 else (ABSENT, None)
        if status == 200:
            documents, size = documents + 1, size + len(body)
            round_.tags.saw(key, tag, value)
        register = round_.registers.get(key) or round_.large.get(key)
        if register:
            register.read(value, start, end)
            register.check()
        elif key in round_.counters:
            counter = round_.counters[key]
            if head:
                counter.saw(head["counter"], "%d.%d" % value, head["parent"], tag, start, end)
            counter.check(head["counter"] if head else 0)
        else:
            round_.lives[key].saw(value, tag, start, end)
    told = (settings["documents"], settings["bytes"])
    if told != (documents, size):
        raise Violation("it counts %d documents and %d bytes, and there are %d and %d" % (*told, documents, size), round_.tenant)
    return documents


def keys_of(round_):
    return [*round_.registers, *round_.large, *round_.counters, *round_.lives]


def self_check():
    """The checker itself: histories that cannot be are refused, one that can be is not."""
    def refuses(make, cls, *args):
        thing = cls("k")
        make(thing)
        try:
            thing.check(*args)
        except Violation:
            return
        raise AssertionError("the checker accepts %s" % make.__name__)

    def lost_write(r):
        r.wrote((1, 1), 0, 1), r.wrote((1, 2), 2, 3), r.read((1, 1), 4, 5)

    def lost_first_write(r):
        r.wrote((1, 1), 0, 1), r.read(ABSENT, 2, 3)

    def seen_then_taken_back(r):
        r.wrote((1, 1), 0, 1), r.wrote((1, 2), 2, None), r.read((1, 2), 3, 4), r.read((1, 1), 5, 6)

    def from_nowhere(r):
        r.read((9, 9), 0, 1)
    for make in lost_write, lost_first_write, seen_then_taken_back, from_nowhere:
        refuses(make, Register)
    fine = Register("k")
    fine.wrote((1, 1), 0, 1), fine.wrote((1, 2), 2, None), fine.read((1, 1), 3, 4), fine.read((1, 2), 3.5, 6)
    fine.wrote((1, 3), 5, 9), fine.wrote((1, 4), 5, 8), fine.read((1, 4), 8.5, 10), fine.read((1, 3), 10, 11), fine.wrote((1, 5), 12, None)
    fine.read((1, 3), 13, 14)
    fine.check()

    def lost_increment(c):
        c.won(1, "a", None, "t1", 0, 1), c.won(2, "b", "t1", "t2", 2, 3)
    refuses(lost_increment, Counter, 1)

    def counted_twice(c):
        c.won(1, "a", None, "t1", 0, 1)
    refuses(counted_twice, Counter, 2)

    def refused_and_done(c):
        c.won(1, "a", None, "t1", 0, 1), c.lost(2, "b", 1, 2), c.saw(2, "b", "t1", "t2", 3, 4)
    refuses(refused_and_done, Counter, 2)

    def went_back(c):
        c.won(1, "a", None, "t1", 0, 1), c.won(2, "b", "t1", "t2", 2, 3), c.saw(1, "a", None, "t1", 4, 5)
    refuses(went_back, Counter, 2)
    return json.dumps(history.ABSENT)
