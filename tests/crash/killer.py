"""Who dies, or stands still, and when: a table of actions, a method each."""
import collections
import os
import signal
import threading
import time

from holdfast import Failed, alive, exiting, request, wait_for

from . import points


class Killer:
    """Acts at random moments from a thread of its own while the load runs in the main one."""

    REACH = 2.0  # seconds; a point that nobody comes by within them is missed this time

    def __init__(self, daemon, rng, round_, points_=None, order=None):
        self.daemon, self.rng, self.round, self.points = daemon, rng, round_, points_
        self.order = order if order is not None else collections.deque()  # points in turn, over all rounds
        self.kills = collections.Counter()   # kind -> number
        self.at = collections.Counter()      # (point, what) -> number
        self.missed = collections.Counter()  # point -> number
        self.poisoned = 0
        self.starts = []  # seconds from start to ready
        self.done = False
        self.failure = None
        self.thread = None

    # kills

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
        self._rest(self.rng.choice((0, 0, 0.1, 0.5)))
        self._start(left)

    def everything(self):
        self.daemon.kill9()
        self._start()

    # stops: whoever stands still is late, and nothing else

    def stop(self):
        who = self.rng.choice(("committer", "committer", "worker", "master"))
        pid = {"committer": self.daemon.wait_committer, "master": lambda: self.daemon.pid,
               "worker": lambda: self.rng.choice(sorted(wait_for("a worker", self.daemon.workers).values()))}[who]()
        self._signal(pid, signal.SIGSTOP)
        self._rest(self.rng.uniform(0, 0.4))
        if who == "master" and self.rng.random() < 0.7:
            self._kill(self.daemon.committer() or 0)  # nobody brings it back before the master wakes up
            self._rest(self.rng.uniform(0, 0.3))
        self._signal(pid, signal.SIGCONT)

    def stop_and_kill_master(self):
        """The next start ends the one that stands still, unless that wakes up before; either way there is one writer."""
        pid = self._stopped_committer() if self.points else self.daemon.wait_committer()
        self._signal(pid, signal.SIGSTOP)
        left = self.daemon.kill9_master()
        wake = threading.Timer(self.rng.choice((0.0, 0.3, 1.0, 2.4, 60)), self._signal, (pid, signal.SIGCONT))
        wake.start()
        try:
            self._start(left)
        finally:
            wake.cancel()

    # named points

    def point(self):
        """One after another, so that each has its turn."""
        name = self._next_point()
        what = self.rng.choices(("kill", "abort", "stop"), (6, 2, 2))[0]
        if not self._reach(name, what):
            self.missed[name] += 1
            return
        if what == "stop":
            pid = self.daemon.wait_committer()
            points.wait_stopped(pid)
            self._rest(self.rng.uniform(0, 0.2))
            if self.rng.random() < 0.5:
                self._kill(pid)
                what = "stop, kill"
            self._signal(pid, signal.SIGCONT)
        elif what == "abort":
            self._settle()
        self.at[name, what] += 1

    def poison(self):
        """A write that two committers crash on is failed; kills from outside in between change nothing."""
        path = self.round.path("poison/%s/%d" % (points.MARK, self.poisoned))
        with self.daemon.connect(60) as c:
            c.send(request("PUT", path, b"x"))
            if self.rng.random() < 0.5:
                self._rest(self.rng.uniform(0, 0.05))
                self._kill(self.daemon.committer() or 0)
            a = c.answer("PUT")
            if a.status != 500:
                raise Failed("the poison got %r" % a)
        self.poisoned += 1
        self._settle()

    # what only the committer's absence is part of: not one request may fail
    HARMLESS = {"committer": 5, "stop": 1, "point": 8, "poison": 1}
    WEIGHTS = {"committer": 4, "worker": 5, "worker_and_committer": 3, "master": 2, "everything": 3, "stop": 2,
               "stop_and_kill_master": 0.7, "point": 6, "poison": 0.5}
    NEED_POINTS = {"point", "poison"}

    # the thread

    def _next_point(self):
        if not self.order:
            names = points.names()
            self.rng.shuffle(names)
            self.order.extend(names)
        return self.order.popleft()

    def _reach(self, name, what):
        """Has it fired?"""
        rare = name.startswith(("ck-", "roll-", "drop-", "move-", "recover-"))
        self.points.arm(name, what, 1 if rare else self.rng.randrange(1, 40))
        if name.startswith("recover-"):
            self._kill(self.daemon.wait_committer())
        return self.points.wait(self.REACH)

    def _stopped_committer(self):
        name = self._next_point()
        if not self._reach(name, "stop"):
            self.missed[name] += 1
            return self.daemon.wait_committer()
        self.at[name, "stop, master killed"] += 1
        pid = self.daemon.wait_committer()
        points.wait_stopped(pid)
        return pid

    def _settle(self):
        """After a crash: waits until all that was under work then is answered, so that the next crash is
        not the second one of a write that did nothing.  Of one tenant writes are decided in order."""
        with self.daemon.connect(60) as c:
            for _ in range(2):  # the first one sees that all lanes were looked through
                a = c.ask("PUT", self.round.path("l/nothing"), b"", {"If-Match": '"wrong"'})
                if a.status != 412:
                    raise Failed("a write that cannot happen got %r" % a)

    def _signal(self, pid, sig):
        try:
            os.kill(pid, sig)
        except ProcessLookupError:
            pass

    def _kill(self, pid):
        if pid > 0:
            self._signal(pid, signal.SIGKILL)

    def _rest(self, seconds):
        time.sleep(seconds)  # the moment is part of the case

    def _start(self, left=()):
        started = time.monotonic()
        self.daemon.start()
        self.starts.append(time.monotonic() - started)
        # their files are closed, or the lock were not free; freeing their memory may take longer
        stay = [p for p in left if alive(p) and not exiting(p)]
        if stay:
            raise Failed("children of the dead master are there beside the new one: %s" % stay)

    def pause(self):
        """Sometimes right behind each other, mostly after some work was done."""
        end = time.monotonic() + min(0.8, 0.01 + self.rng.expovariate(1 / 0.15))
        while time.monotonic() < end and not self.done:
            time.sleep(0.005)

    def run(self, phases):
        """phases: (seconds, {action: weight}) one after another; strict while only the committer is absent."""
        try:
            for seconds, weights in phases:
                weights = {k: w for k, w in weights.items() if self.points or k not in self.NEED_POINTS}
                if not set(weights) <= set(self.HARMLESS):
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
        if self.points:
            self.points.disarm()
        if self.failure and exc[0] is None:
            raise self.failure
