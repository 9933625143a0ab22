"""What bench/run asks of the servers: one table."""


MILLION = 1000000


class Workload:
    """keys documents of fill bytes are laid before it starts (0 keys: none); load() are the generator's options."""

    def __init__(self, name, what, connections, body=64, keys=100, put=0, fill=None, depth=1, close=False, random=False, if_match=False,
                 only=(), kind="rate", slow=False, path=None, long=1):
        self.name, self.what, self.connections, self.body, self.keys, self.put = name, what, connections, body, keys, put
        self.fill = body if fill is None else fill
        self.depth, self.close, self.random, self.if_match, self.kind, self.slow = depth, close, random, if_match, kind, slow
        self.only, self.path = only, path
        self.long = long  # slices of holdfast are so many times as long: what comes once in a while is to be in them

    def load(self):
        options = ["-c", str(self.connections), "-b", str(self.body), "-m", str(self.put), "-p", str(self.depth)]
        options += ["--close"] if self.close else []
        options += ["--random"] if self.random else []
        options += ["--if-match"] if self.if_match else []
        if self.path:
            return options + ["-k", "0", "-x", self.path, "--any-length"]
        return options + ["-k", str(self.keys)]

    def slowed(self):
        w = Workload.__new__(Workload)
        w.__dict__.update(self.__dict__, name=self.name + "~slow", what=self.what + ", 3 ms per sync", slow=True)
        return w

    def refuses(self, server):
        """Why the server has no part in it, or None."""
        if self.only and server.name not in self.only:
            return "is measured with %s only" % ", ".join(self.only)
        if not self.only and server.name in ("holdfast-first", "holdfast-2"):
            return "a form of holdfast for other workloads"
        if self.put and not server.puts:
            return "takes no writes"
        if self.if_match and not server.if_match:
            return "has no If-Match for writes"
        if self.path and not server.listing:
            return "has no listing"
        if self.close and server.resp:
            return "has no HTTP"
        if self.slow and not server.slowable:
            return "does not sync"
        if self.keys >= MILLION and (server.name in ("bare", "nginx") or server.name.endswith("-files")):
            return "would take too long to fill, or has nothing to fill"
        return None


class Large(Workload):
    """holdfast also with `verify-reads first`."""

    def refuses(self, server):
        return None if server.name == "holdfast-first" else super().refuses(server)


class Idle(Workload):
    """Memory, also of holdfast with two workers."""

    def refuses(self, server):
        return None if server.name == "holdfast-2" else super().refuses(server)


def every():
    gets = [
        Workload("get-1", "GET 64 B, 1 connection", 1),
        Workload("get-64", "GET 64 B, 64 connections", 64),
        Workload("get-1000", "GET 64 B, 1,000 connections", 1000),
        Workload("pipe-16", "GET 64 B, 64 connections, 16 at once", 64, depth=16),
        Workload("conn", "GET 64 B, a connection per request, 64 at once", 64, close=True),
        Large("get-1m", "GET 1 MiB, 8 connections", 8, body=1 << 20, keys=8),
        Workload("list-20", "a listing page of 20, 64 connections", 64, path="/bench/?limit=20"),
        Workload("get-million", "GET 64 B, 64 connections, random among a million", 64, keys=MILLION, random=True),
    ]
    puts = [Workload("put-%d" % n, "PUT 16 B, %d connection%s" % (n, "s" if n > 1 else ""), n, body=16, keys=1000, put=100)
            for n in (1, 8, 64, 256)]
    puts += [Workload("put-%d-match" % n, "PUT 16 B with If-Match, %d connection%s" % (n, "s" if n > 1 else ""), n, body=16, keys=n, put=100,
                      if_match=True) for n in (1, 8, 64, 256)]
    puts += [
        Workload("put-64k", "PUT 64 KiB, 64 connections", 64, body=65536, keys=1000, put=100),
        Workload("mix", "90 % GET, 10 % PUT, 64 B, 64 connections", 64, keys=10000, put=10, random=True),
        Workload("put-million", "PUT 16 B, 64 connections, random among a million", 64, body=16, keys=MILLION, put=100, random=True, long=15),
    ]
    rest = [
        Workload("get-writers", "GET 64 B, 64 connections, while 64 others PUT", 64, kind="writers", only=("holdfast",)).slowed(),
        Idle("idle", "memory, nothing to do", 0, kind="idle"),
        Idle("idle-10k", "memory with 10,000 idle connections", 10000, kind="idle"),
    ]
    return gets + [x for w in puts for x in (w, w.slowed())] + rest
