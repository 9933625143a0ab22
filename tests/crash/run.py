#!/usr/bin/env python3
"""The crash test on its own: python3 tests/crash/run.py [--seconds N] [--seed S]

Rounds of at most 30 seconds on one store.  In each: clients of all kinds, first
only the committer is killed or stopped (and not one request may fail), then
anything.  A daemon that was built with them (make check-crash) also dies at each
named crash point in turn, and of poisoned writes.
Then the daemon is killed once more and started, every document is read, and the
history is checked.  The exit code is 0 where all of it holds; else the seed and
the history of the document in question are printed, and the store is kept.
"""
import argparse
import collections
import os
import random
import re
import resource
import subprocess
import sys
import time
import traceback

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import holdfast  # noqa: E402
from crash import points, workload  # noqa: E402
from crash.history import Violation  # noqa: E402
from crash.killer import Killer  # noqa: E402

ROUND = 30.0
ONLY_COMMITTER = 0.3  # this share of each round


class Summary:
    def __init__(self, seed):
        self.seed, self.kills, self.starts = seed, collections.Counter(), []
        self.at, self.missed, self.poisoned, self.slow = collections.Counter(), collections.Counter(), 0, 0
        self.torn = 0  # rounds that ended in the middle of a write
        self.rounds = self.writes = self.acknowledged = self.refused = self.unknown = self.reads = self.verified = 0
        self.longest = 0.0

    def add(self, killer, round_, verified, slow, torn):
        self.slow += slow
        self.torn += torn
        self.rounds += 1
        self.kills += killer.kills
        self.starts += killer.starts
        self.at += killer.at
        self.missed += killer.missed
        self.poisoned += killer.poisoned
        self.writes += round_.sent
        self.acknowledged += round_.acknowledged
        self.refused += round_.refused
        self.unknown += round_.unknown
        self.reads += round_.reads
        self.verified += verified
        self.longest = max(self.longest, round_.longest)

    def reached(self):
        """The points that fired."""
        return {name for name, _ in self.at}

    def text(self):
        lines = [
            "crash: seed %s: %d rounds, %d kills and stops: %s" % (
                self.seed, self.rounds, sum(self.kills.values()), ", ".join("%s %d" % k for k in sorted(self.kills.items()))),
            "       writes: %d sent, %d acknowledged, %d refused by their condition, %d without an answer; %d reads, %d slow ones" % (
                self.writes, self.acknowledged, self.refused, self.unknown, self.reads, self.slow),
            "       verified at the ends: %d documents, %d times behind a torn batch; longest answer %.2f s, slowest start %.2f s" % (
                self.verified, self.torn, self.longest, max(self.starts, default=0))]
        if self.at or self.missed:
            what = collections.defaultdict(list)
            for (name, how), n in sorted(self.at.items()):
                what[name].append("%s %d" % (how, n))
            lines += ["       at %-16s %s%s" % (name, ", ".join(what[name]) or "-",
                                                "; not reached %d" % self.missed[name] if self.missed[name] else "")
                      for name in points.names()]
            lines.append("       poisoned writes: %d, each failed after two crashes, nobody else" % self.poisoned)
        return "\n".join(lines)


# what the kill of a committer in the middle of a write may leave (holdfastctl(8)), and nobody had an answer to
TORN = re.compile(r"log-\d+, offset \d+: (an incomplete last batch|in the incomplete batch): .*|.*: 1 finding; holdfastctl repair .*")


def check(daemon):
    """The store at rest, as the kills left it: every checksum, and tree and log agree.  True where its last batch is torn."""
    def ended():
        # a child that the master forked while it was being killed leaves within two seconds
        r = subprocess.run([holdfast.HOLDFASTCTL, "check", daemon.data], capture_output=True, text=True, timeout=60)
        return r if r.returncode != 69 else None
    r = holdfast.wait_for("the last process has left", ended, timeout=10, step=0.1)
    if r.returncode == 1 and all(map(TORN.fullmatch, r.stdout.splitlines())) and "an incomplete last batch" in r.stdout:
        return True
    if r.returncode != 0:
        raise Violation("holdfastctl check says %d: %s%s" % (r.returncode, r.stdout, r.stderr), daemon.data)
    return False


def one_round(daemon, rng, seconds, number, summary, points_, order):
    tenant = daemon.tenant(name="round%d" % number)
    round_ = workload.Round(tenant.name, random.Random(rng.random()))
    clients = round_.clients()
    address = lambda: ("127.0.0.1", daemon.port)  # noqa: E731
    with Killer(daemon, random.Random(rng.random()), round_, points_, order) as killer, workload.SlowReader(round_, address) as slow:
        killer.start([(seconds * ONLY_COMMITTER, Killer.HARMLESS), (seconds * (1 - ONLY_COMMITTER), Killer.WEIGHTS)])
        holdfast.drive(address, clients, stop=lambda: killer.done, patience=30)
    # what nobody has looked at since it was written must be there, too
    daemon.kill9()
    torn = check(daemon)
    killer._start()
    found, keys = {}, workload.keys_of(round_)
    readers = [workload.Reader(round_, keys[n::8], found) for n in range(8)]
    holdfast.drive(("127.0.0.1", daemon.port), readers)
    verified = workload.verify(round_, found, daemon.settings(tenant.name))
    summary.add(killer, round_, verified, slow.bodies, torn)
    return {round_.path(k): (f[0], f[1]) for k, f in random.Random(number).sample(sorted(found.items()), min(200, len(found)))}


def check_old(daemon, old):
    """Documents of earlier rounds are still what they were when their round ended."""
    with daemon.connect() as c:
        for path, (status, tag) in old.items():
            a = c.ask("GET", path)
            if (a.status, a.get("etag")) != (status, tag):
                raise Violation("was %s %s at the end of its round and is %r" % (status, tag, a), path)


def run(seconds, seed, say=print, **options):
    """A Summary; a Violation or Failed where the promise does not hold."""
    workload.self_check()
    rng, summary, old = random.Random(seed), Summary(seed), {}
    port = holdfast.free_port()
    daemon = holdfast.Daemon(**{"segment_size": "1M", "listen": "127.0.0.1:%d" % port, **options})
    points_, order = None, collections.deque()
    if points.there():
        points_ = points.Points(daemon.dir)
        daemon.env.update(points_.env)
    keep = False
    try:
        daemon.start()
        end = time.monotonic() + seconds
        number = 0
        while number == 0 or time.monotonic() < end - 5:
            number += 1
            old.update(one_round(daemon, rng, min(ROUND, max(5.0, end - time.monotonic())), number, summary, points_, order))
            check_old(daemon, old)
            if seconds > ROUND:
                say(summary.text())
    except BaseException as e:
        keep = isinstance(e, (Violation, holdfast.Failed))
        say("crash: FAILED with seed %s; the store is kept in %s" % (seed, daemon.data) if keep else "crash: ended, seed %s" % seed)
        if isinstance(e, Violation):
            say(e.text())
        say("--- the daemon's log\n" + daemon.log_text())
        raise
    finally:
        if keep:
            if daemon.process and daemon.process.poll() is None:
                daemon.kill9()
        else:
            daemon.close()
    return summary


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--seconds", type=float, default=float(os.environ.get("HOLDFAST_SECONDS") or 60))
    p.add_argument("--seed", default=os.environ.get("HOLDFAST_SEED") or str(int.from_bytes(os.urandom(4), "big")))
    args = p.parse_args()
    print("crash: seed %s, %.0f s" % (args.seed, args.seconds), flush=True)
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))  # crashes are meant
    try:
        summary = run(args.seconds, args.seed, lambda text: print(text, flush=True))
    except (Violation, holdfast.Failed):
        traceback.print_exc()
        return 1
    print(summary.text())
    return 0


if __name__ == "__main__":
    sys.exit(main())
