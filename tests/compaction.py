"""Load for compaction: writers who know what they wrote, and somebody who watches the disk.

    Writer      one connection that overwrites and deletes documents of its own, at random
    Reader      one that reads them and takes nothing that nobody wrote
    Bulk        many who write as fast as the server takes it, and look at nothing
    Watch       samples the size of the data directory against what contract allows
"""
import collections
import hashlib
import json
import os
import random
import subprocess
import threading
import time

from holdfast import BUILD, Client, Failed, request


def body_of(key, version, size):
    """A body that says what it is; its digest is of all the rest."""
    text = b"%s %d " % (key.encode(), version)
    fill = hashlib.sha256(text).hexdigest().encode()
    rest = (fill * (size // len(fill) + 1))[:max(0, size - len(text) - 17)]
    return hashlib.sha256(text + rest).hexdigest()[:16].encode() + b" " + text + rest


def whole(key, body):
    """Is it one that a Writer made, for this document?"""
    digest, _, text = body.partition(b" ")
    return hashlib.sha256(text).hexdigest()[:16].encode() == digest and text.startswith(key.encode() + b" ")


class Writer(Client):
    """Overwrites `keys` (its own) at random.  sizes: (weight, least, most) each; deletes: share of deletes."""

    def __init__(self, tenant, keys, sizes, deletes=0.0, seed=0):
        self.tenant, self.keys, self.deletes = tenant, keys, deletes
        self.random = random.Random(seed)
        self.sizes, self.weights = [s[1:] for s in sizes], [s[0] for s in sizes]
        self.have = {}  # key -> body, or None where it was deleted
        self.todo = list(keys)  # each once, first
        self.version = self.done = 0

    def next(self):
        key = self.todo.pop() if self.todo else self.random.choice(self.keys)
        if self.have.get(key) is not None and self.random.random() < self.deletes:
            self.under_way = key, None
            return request("DELETE", self.tenant.path(key))
        self.version += 1
        least, most = self.random.choices(self.sizes, self.weights)[0]
        body = body_of(key, self.version, self.random.randint(least, most))
        self.under_way = key, body
        return request("PUT", self.tenant.path(key), body)

    def answer(self, status, head, body):
        key, new = self.under_way
        if status == 503 and b"Retry-After" in head:
            return  # over the input budget: not written, asked again with the next
        if status not in (201, 204):
            raise Failed("%s: %d %r" % (key, status, body[:300]))
        self.have[key] = new
        self.done += 1


class Reader(Client):
    """Reads documents of all writers.  Which version it gets is not its business; half a one is."""

    def __init__(self, tenant, keys, seed=0):
        self.tenant, self.keys, self.random, self.done = tenant, keys, random.Random(seed), 0

    def next(self):
        self.key = self.random.choice(self.keys)
        return request("GET", self.tenant.path(self.key))

    def answer(self, status, head, body):
        if status == 404:
            return
        if status != 200 or not whole(self.key, body):
            raise Failed("GET %s: %d %r" % (self.key, status, body[:300]))
        self.done += 1


def verify(tenant, writers):
    """Every document is as its writer left it."""
    all_of_them = [(key, body) for w in writers for key, body in w.have.items()]
    with tenant.connect() as c:
        while all_of_them:
            some, all_of_them = all_of_them[:50], all_of_them[50:]
            c.send(*[request("GET", tenant.path(key)) for key, _ in some])
            for key, body in some:
                a = c.answer()
                if body is None:
                    if a.status != 404:
                        raise Failed("%s was deleted: %r" % (key, a))
                elif a.status != 200 or a.body != body:
                    raise Failed("%s is not what was written last: %r" % (key, a))


class Bulk:
    """with Bulk(tenant, connections, keys, size): bench/load overwrites `keys` documents, at random, all the while."""

    def __init__(self, tenant, connections, keys, size):
        self.command = [os.path.join(BUILD, "bench", "load"), "-c", str(connections), "-k", str(keys), "-b", str(size),
                        "-m", "100", "-x", tenant.path("k")]
        self.to = "127.0.0.1:%d" % tenant.daemon.port
        self.keys = keys
        self.process = None

    def __enter__(self):
        subprocess.run(self.command + ["-n", str(self.keys), self.to], check=True, stdout=subprocess.DEVNULL)
        self.process = subprocess.Popen(self.command + ["-r", "-s", "100000", self.to], stdout=subprocess.DEVNULL,
                                        stderr=subprocess.PIPE)
        return self

    def __exit__(self, *exc):
        ended = self.process.poll()
        self.process.kill()
        said = self.process.communicate()[1]
        if ended is not None and not exc[0]:
            raise Failed("bench/load ended: %r" % said)


def disk_use(directory):
    """Bytes as du counts them: allocated blocks."""
    total = 0
    for entry in os.scandir(directory):
        try:
            total += entry.stat(follow_symlinks=False).st_blocks * 512
        except FileNotFoundError:
            pass  # unlinked meanwhile
    return total


def status(daemon):
    return json.loads(daemon.ask_admin("GET", "/_status").body)


class Watch:
    """with Watch(daemon, segment_bytes) as w: samples disk use; w.worst is the highest share of what is allowed.

    A document that goes takes 2.5 times its size from what is allowed, at once; its space comes back with the next
    checkpoint. So what was allowed within the last second counts.
    """

    def __init__(self, daemon, segment):
        self.daemon, self.segment = daemon, segment
        self.worst, self.samples, self.at_worst, self.error = 0.0, 0, None, None
        self.recent = collections.deque()  # (when, allowed)
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)

    def allowed(self):
        return 2.5 * status(self.daemon)["live_bytes"] + 4 * self.segment

    def look(self):
        used = disk_use(self.daemon.data)
        now = time.monotonic()
        self.recent.append((now, self.allowed()))
        while self.recent[0][0] < now - 1:
            self.recent.popleft()
        allowed = max(a for _, a in self.recent)
        self.samples += 1
        if used / allowed > self.worst:
            self.worst = used / allowed
            self.at_worst = "%.1f MB used, %.1f MB allowed; %s" % (used / 1e6, allowed / 1e6, " ".join(
                "%s:%.1f" % (e.name, e.stat().st_size / 1e6) for e in sorted(os.scandir(self.daemon.data),
                                                                           key=lambda e: e.name)
                if e.is_file()))

    def run(self):
        while not self.stop.is_set():
            try:
                self.look()
            except FileNotFoundError:
                pass
            except Exception as e:  # told by the one who asks
                self.error = e
                return
            time.sleep(0.005)  # a rate, not a wait

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *exc):
        self.stop.set()
        self.thread.join()
        if self.error and not exc[0]:
            raise self.error
