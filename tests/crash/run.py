#!/usr/bin/env python3
"""The crash test on its own: python3 tests/crash/run.py [--seconds N] [--seed S]

Rounds of at most 30 seconds on one store.  In each: clients of all kinds, first
only the committer is killed (and not one request may fail), then anything.
Then the daemon is killed once more and started, every document is read, and the
history is checked.  The exit code is 0 where all of it holds; else the seed and
the history of the document in question are printed, and the store is kept.
"""
import argparse
import collections
import os
import random
import sys
import time
import traceback

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import holdfast  # noqa: E402
from crash import workload  # noqa: E402
from crash.history import Violation  # noqa: E402
from crash.killer import Killer  # noqa: E402

ROUND = 30.0
ONLY_COMMITTER = 0.3  # this share of each round


class Summary:
    def __init__(self, seed):
        self.seed, self.kills, self.starts = seed, collections.Counter(), []
        self.rounds = self.writes = self.acknowledged = self.refused = self.unknown = self.reads = self.verified = 0
        self.longest = 0.0

    def add(self, killer, round_, verified):
        self.rounds += 1
        self.kills += killer.kills
        self.starts += killer.starts
        self.writes += round_.sent
        self.acknowledged += round_.acknowledged
        self.refused += round_.refused
        self.unknown += round_.unknown
        self.reads += round_.reads
        self.verified += verified
        self.longest = max(self.longest, round_.longest)

    def text(self):
        return ("crash: seed %s: %d rounds, %d kills (%s), writes: %d sent, %d acknowledged, %d refused by their condition, %d without an answer; "
                "%d reads; %d documents verified at the ends; longest answer %.2f s, slowest start %.2f s") % (
            self.seed, self.rounds, sum(self.kills.values()), ", ".join("%s %d" % k for k in sorted(self.kills.items())),
            self.writes, self.acknowledged, self.refused, self.unknown, self.reads, self.verified, self.longest, max(self.starts, default=0))


def one_round(daemon, rng, seconds, number, summary):
    tenant = daemon.tenant(name="round%d" % number)
    round_ = workload.Round(tenant.name, random.Random(rng.random()))
    clients = round_.clients()
    with Killer(daemon, random.Random(rng.random()), round_) as killer:
        killer.start([(seconds * ONLY_COMMITTER, {"committer": 1}), (seconds * (1 - ONLY_COMMITTER), Killer.WEIGHTS)])
        holdfast.drive(lambda: ("127.0.0.1", daemon.port), clients, stop=lambda: killer.done, patience=30)
    # what nobody has looked at since it was written must be there, too
    daemon.kill9()
    killer._start()
    found, keys = {}, workload.keys_of(round_)
    readers = [workload.Reader(round_, keys[n::8], found) for n in range(8)]
    holdfast.drive(("127.0.0.1", daemon.port), readers)
    verified = workload.verify(round_, found, daemon.settings(tenant.name))
    summary.add(killer, round_, verified)
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
    keep = False
    try:
        daemon.start()
        end = time.monotonic() + seconds
        number = 0
        while number == 0 or time.monotonic() < end - 5:
            number += 1
            old.update(one_round(daemon, rng, min(ROUND, max(5.0, end - time.monotonic())), number, summary))
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
    try:
        summary = run(args.seconds, args.seed, lambda text: print(text, flush=True))
    except (Violation, holdfast.Failed):
        traceback.print_exc()
        return 1
    print(summary.text())
    return 0


if __name__ == "__main__":
    sys.exit(main())
