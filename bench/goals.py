"""The measures that holdfast holds itself to, each with its goal, from what bench/run measured.

A ratio is taken round by round, between slices that lie seconds apart, and the
median of these is what counts: absolute figures of a machine drift, ratios do not.
"""
import statistics


class Results:
    def __init__(self, doc):
        self.by = {(r["workload"], r["server"]): r for r in doc["results"]}

    def servers(self, workload, prefix):
        """Those measured whose name begins so; a peer in several forms counts with each."""
        return [s for w, s in self.by if w == workload and s.startswith(prefix)]

    def http_peers(self, workload):
        """Servers to compare reads with: without Redis, whose protocol is another; of a peer's forms the one in memory, where measured."""
        names = sorted({s for w, s in self.by if w == workload} - {"bare", "redis"})
        names = [n for n in names if not n.startswith("holdfast")]
        return [n for n in names if n.endswith("-memory") or n.rsplit("-", 1)[0] + "-memory" not in names]

    def value(self, workload, server, key):
        r = self.by.get((workload, server))
        return r["median"].get(key) if r else None

    def mean(self, workload, server, key):
        """Of what comes seldom, and then much of it, as a checkpoint does."""
        r = self.by.get((workload, server))
        return statistics.fmean(x[key] for x in r["rounds"]) if r else None

    def ratio(self, workload, one, other, key):
        a, b = self.by.get((workload, one)), self.by.get((workload, other))
        if a is None or b is None:
            return None
        pairs = [(x.get(key), y.get(key)) for x, y in zip(a["rounds"], b["rounds"])]
        pairs = [x / y for x, y in pairs if x is not None and y]
        return statistics.median(pairs) if pairs else None


class Row:
    def __init__(self, measure, goal, value, ok):
        self.measure, self.goal, self.value, self.ok = measure, goal, value, ok

    def verdict(self):
        return "not measured" if self.ok is None else "met" if self.ok else "missed"


def at_least(measure, value, bound, show="%.2f x"):
    return Row(measure, ">= " + show % bound, "-" if value is None else show % value, None if value is None else value >= bound)


def at_most(measure, value, bound, show, strict=False):
    ok = None if value is None else value < bound if strict else value <= bound
    return Row(measure, ("< " if strict else "<= ") + show % bound, "-" if value is None else show % value, ok)


def against(r, workload, key, goals, what, one="holdfast"):
    """A row for each server measured whose name begins with one of the goals' prefixes."""
    for prefix, bound in goals:
        others = r.servers(workload, prefix) or [prefix]
        others = [o for o in others if o.endswith("-memory") or o.rsplit("-", 1)[0] + "-memory" not in others]
        for other in others:
            yield at_least("%s: of %s's" % (what, other), r.ratio(workload, one, other, key), bound)


def small_gets(r):
    yield from against(r, "get-64", "per_cpu_s", [("bare", 0.9), ("axum", 1.5), ("hyper", 1.5), ("nginx", 1.5), ("drogon", 2)],
                       "small GET per CPU second")
    for peer in r.http_peers("get-64"):
        ratio = r.ratio("get-64", "holdfast", peer, "p99_us")
        yield at_most("small GET, p99: of %s's" % peer, ratio, 1, "%.2f x")


def other_gets(r):
    yield from against(r, "pipe-16", "per_cpu_s", [("bare", 0.5)], "pipelined 16 per CPU second")
    for peer in r.http_peers("pipe-16"):
        yield from against(r, "pipe-16", "per_cpu_s", [(peer, 5)], "pipelined 16 per CPU second")
    yield from against(r, "conn", "per_cpu_s", [("nginx", 1.1)], "connection per request, per CPU second")
    yield from against(r, "get-1m", "per_cpu_s", [("axum", 1.3), ("nginx", 1.3)], "1 MiB GET per CPU second, verify-reads first", "holdfast-first")
    yield from against(r, "get-1m", "per_cpu_s", [("axum", 0.9), ("nginx", 0.9)], "1 MiB GET per CPU second, every read checked")


def writes(r):
    for n in 64, 8:
        yield at_least("PUT/s, %d connections, 3 ms per sync" % n, r.value("put-%d~slow" % n, "holdfast", "per_s"), 0.85 * n / 0.003, "%.0f/s")
    yield from against(r, "put-64~slow", "per_s", [("redis", 1.8)], "PUT/s, 64 connections, 3 ms per sync")
    for files in [s for w, s in r.by if w == "put-64~slow" and s.endswith("-files")]:
        yield at_least("PUT/s, 64 connections, 3 ms per sync: of %s's" % files, r.ratio("put-64~slow", "holdfast", files, "per_s"), 100)
    yield from against(r, "put-64", "per_cpu_s", [("redis", 1), ("drogon-log", 1.3)], "PUT per CPU second, 64 connections, fast disk")
    yield at_most("bytes written per 16 B PUT, a million keys, 3 ms per sync", r.mean("put-million~slow", "holdfast", "written"), 300, "%.0f B", True)
    yield from against(r, "mix", "per_cpu_s", [("axum-log", 1.4)], "90/10 mix per CPU second")


def memory(r):
    def mib(workload, server, key):
        kib = r.value(workload, server, key)
        return None if kib is None else kib / 1024

    yield at_most("PSS of all processes, idle, two workers", mib("idle", "holdfast-2", "pss_kib"), 1.4, "%.2f MiB")
    yield at_most("10,000 idle connections, more", mib("idle-10k", "holdfast", "more_kib"), 10, "%.1f MiB", True)
    million = r.by.get(("get-million", "holdfast"), {})
    kib = million.get("loaded_kib")
    yield at_most("a million 64 B documents, PSS", None if kib is None else kib / 1024, 150, "%.0f MiB", True)
    for how, text in ("TERM", "restart with them"), ("KILL", "restart with them after kill -9"):
        yield at_most(text, million.get("restart_s", {}).get(how), 1, "%.2f s", True)
    yield at_most("CPU per GET while 64 write: of that without", r.value("get-writers~slow", "holdfast", "ratio"), 1.15, "%.2f x", True)


def rows(doc):
    r = Results(doc)
    return [row for part in (small_gets, other_gets, writes, memory) for row in part(r)]
