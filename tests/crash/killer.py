"""Who is killed, and when.  A table of actions: later ones (crash points, stops) are rows."""
import collections
import os
import signal
import threading
import time

from holdfast import Failed, alive, wait_for


class Killer:
    """Kills at random moments from a thread of its own while the load runs in the main one."""

    def __init__(self, daemon, rng, round_):
        self.daemon, self.rng, self.round = daemon, rng, round_
        self.kills = collections.Counter()
        self.starts = []  # seconds from start to ready
        self.done = False
        self.failure = None
        self.thread = None

    # actions

    def committer(self):
        pid = self.daemon.wait_committer()
        self._kill(pid)

    def worker(self):
        workers = wait_for("a worker", self.daemon.workers)
        self._kill(self.rng.choice(sorted(workers.values())))

    def worker_and_committer(self):
        workers = wait_for("a worker", self.daemon.workers)
        pids = [self.daemon.wait_committer(), self.rng.choice(sorted(workers.values()))]
        self.rng.shuffle(pids)
        for pid in pids:
            self._kill(pid)

    def master(self):
        """The next start comes at once, or a moment later; it waits for what the dead one left behind."""
        left = self.daemon.kill9_master()
        time.sleep(self.rng.choice((0, 0, 0.1, 0.5)))  # the moment is part of the case
        self._start()
        stay = [p for p in left if alive(p)]
        if stay:
            raise Failed("children of the dead master are there beside the new one: %s" % stay)

    def everything(self):
        self.daemon.kill9()
        self._start()

    WEIGHTS = {"committer": 6, "worker": 5, "worker_and_committer": 3, "master": 2, "everything": 3}

    # the thread

    def _kill(self, pid):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass

    def _start(self):
        started = time.monotonic()
        self.daemon.start()
        self.starts.append(time.monotonic() - started)

    def pause(self):
        """Sometimes right behind each other, mostly after some work was done."""
        end = time.monotonic() + min(0.8, 0.01 + self.rng.expovariate(1 / 0.15))
        while time.monotonic() < end and not self.done:
            time.sleep(0.005)

    def run(self, phases):
        """phases: (seconds, {action: weight}) one after another; strict while only the committer dies."""
        try:
            for seconds, weights in phases:
                strict = set(weights) == {"committer"}
                if not strict:
                    self.round.strict = False
                end = time.monotonic() + seconds
                while time.monotonic() < end and not self.done:
                    self.pause()
                    action = self.rng.choices(list(weights), list(weights.values()))[0]
                    getattr(self, action)()
                    self.kills[action] += 1
        except BaseException as e:  # the main thread raises it again
            self.failure = e
        finally:
            self.done = True

    def __enter__(self):
        return self

    def start(self, phases):
        self.thread = threading.Thread(target=self.run, args=(phases,), daemon=True)
        self.thread.start()

    def __exit__(self, *exc):
        self.done = True
        if self.thread:
            self.thread.join(60)
        if self.failure and exc[0] is None:
            raise self.failure
