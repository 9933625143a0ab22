#!/usr/bin/env python3
"""Power cuts: python3 tests/crash/powercut.py [--images N] [--seed S]

Runs of a few seconds: the daemon writes under load, recorder.c records what it does to its files, and the clients
record what they sent and heard.  Then, for moments of that run, disks are made as a power cut at that moment could have
left them (journal.py), the daemon is started on each, and everything that was answered before that moment must be
there, by the same checks as after a kill (history.py).  It must then take writes, and have all of it after another
restart.  Some images are cut once more while they recover.  README.md says what is assumed.

The exit code is 0 where all of it holds; else the seed, the moment and the image are told, and the image is kept.
"""
import argparse
import bisect
import collections
import contextlib
import itertools
import multiprocessing
import os
import queue
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import holdfast  # noqa: E402
from crash import cut, journal, workload  # noqa: E402
from crash.history import ABSENT, Life, Violation, make_body  # noqa: E402
from crash.journal import Choice, Disk, Journal  # noqa: E402

RUN_IMAGES = 60         # images of one run's journal: then another load
RUN_SECONDS = 1.2       # of load
PER_MOMENT = 3          # images of one moment
NESTED = 0.08           # this share of the images is cut again in its recovery; ...
PER_NESTED = 4          # ... in so many moments
BARE = 0.1              # this share has lost its checkpoints as well: the log alone has everything
ROOM = 1 << 30          # of a journal; it takes what is written
SEGMENT = "1M"
PROCESSES = 2


def memory():
    """Where syncs cost nothing: the durability is the recorder's, not the disk's."""
    return os.environ.get("HOLDFAST_TMP") or ("/dev/shm" if os.access("/dev/shm", os.W_OK) else None)


# --- the load


class KeeperClient(workload.LifeClient):
    """Documents that stay, with long names: the tree has several levels, and compaction has something to move."""

    def __init__(self, round_, number, count):
        super().__init__(round_, number)
        self.all = [Life("s/%d/%s%d" % (number, "long-name-" * 15, n)) for n in range(count)]
        self.todo = list(self.all)
        round_.lives.update((v.key, v) for v in self.all)

    def next(self):
        if self.todo:
            self.life = self.todo.pop()
            self.count += 1
            self.what, self.value, self.wanted = "put", (self.writer, self.count), 201
            return self.ask("PUT", self.life.key, make_body(self.life.key, self.writer, self.count, self.round.size()))
        if self.round.rng.random() < 0.9:
            return 0.01
        self.life = self.round.rng.choice([v for v in self.all if v.known] or [None])
        return super().next()


class Cutter(threading.Thread):
    """Has the committer die in a call of its own choice, again and again."""

    def __init__(self, journal_, rng, pause):
        super().__init__(daemon=True)
        self.journal, self.rng, self.pause, self.done = journal_, rng, pause, threading.Event()

    def run(self):
        kills, wait = 0, 0.0  # the first one soon: the time before there is a checkpoint is short
        while not self.done.wait(wait):
            wait = self.rng.expovariate(1 / self.pause)
            if self.journal.kills() == kills:
                how = self.rng.randint(1, journal.KILLS)
                if kills == 0 and self.rng.random() < 0.5:  # behind the rename of a new segment
                    self.journal.kill_in(self.rng.choice((2, 3)), journal.KILL_BEHIND | journal.KILL_NAMES)
                elif self.rng.random() < 0.5:
                    self.journal.kill_in(self.rng.choice((1, 2, 2, 3)), how | journal.KILL_NAMES)
                else:
                    self.journal.kill_in(self.rng.choice((1, 2, 3, 5, 8, 20, 50)), how)
                kills += 1


def record(daemon, journal_, where):
    """The daemon's environment: recorded, with syncs that take as long as the run says."""
    shims = [holdfast.shim("recorder", where), holdfast.shim("slowsync", where)]
    daemon.env.update({"LD_PRELOAD": ":".join(shims), "HOLDFAST_RECORDER": journal_.path,
                       "HOLDFAST_RECORDER_DIR": os.path.realpath(daemon.data)})


class Recording:
    """One run under load: its records, and the Round that the clients saw."""

    def __init__(self, seed, where, seconds=RUN_SECONDS):
        rng = random.Random(seed)
        self.seed = seed
        # a sync that is too fast to be overtaken hides an answer that is given before it
        self.sync_us = rng.choice((400, 2000, 3000, 3000, 8000))
        self.pause = rng.choice((None, 0.1, 0.1, 0.4))
        self.journal = Journal(os.path.join(where, "journal"), ROOM)
        self.daemon = holdfast.Daemon(where=where, segment_size=SEGMENT, workers="2")
        try:
            record(self.daemon, self.journal, where)
            self.daemon.env["HOLDFAST_SLOWSYNC_US"] = str(self.sync_us)
            self.daemon.start()
            self.tenant_from = time.monotonic()
            self.tenant = self.daemon.tenant(name="power").name
            self.tenant_at = time.monotonic()
            self.round = workload.Round(self.tenant, random.Random(rng.random()))
            clients = self.round.clients()
            clients += [KeeperClient(self.round, 900 + n, 60) for n in range(3)]
            cutter = Cutter(self.journal, rng, self.pause) if self.pause else None
            if cutter:
                cutter.start()
            try:
                holdfast.drive(("127.0.0.1", self.daemon.port), clients, seconds=seconds, patience=30)
            finally:
                if cutter:
                    cutter.done.set()
                    cutter.join()
                    self.journal.kill_in(0, 0)
            self.daemon.kill9()
            self.records = self.journal.records()
            self.kills = self.journal.kills()
            ends = sum(bool(re.search(r"committer .*(was ended|exit)", line)) for line in self.daemon.log)
            if ends > self.kills:  # it died of something else, perhaps between a call and its record
                raise holdfast.Failed("%d ends of the committer, and %d kills" % (ends, self.kills))
        except BaseException:
            print("--- the daemon's log, run seed %s" % seed, *self.daemon.log[-100:], sep="\n")
            self.close()
            raise
        self.moments = moments(self.records)

    def disk(self):
        return Disk(self.records)

    def close(self):
        self.daemon.close()
        with contextlib.suppress(OSError):
            self.journal.close()

    def text(self):
        kinds = collections.Counter(r.op for r in self.records)
        return "%d records, %.1f MiB, %d syncs of %d us, %d names, %d kills, %d writes acknowledged" % (
            len(self.records), self.journal.used() / 2**20, kinds[journal.SYNC_END], self.sync_us,
            sum(kinds[k] for k in journal.NAMES), self.kills, self.round.acknowledged)


def moments(records):
    """moments[k]: when the cut was, at the latest, if records 0 to k-1 had taken place and record k had not.
    An answer that was there before then was given in a world in which the disk may look like that."""
    found = [float("inf")] * (len(records) + 1)
    for k in range(len(records) - 1, -1, -1):
        found[k] = min(found[k + 1], records[k].stamp)
    return found


def relied_on(records, first):
    """Where a sync of the log ended that began when a rename was there and not synced."""
    found, begun, renamed = [], {}, None
    for k, r in enumerate(records):
        if r.op == journal.RENAME:
            renamed = k
        elif r.op == journal.SYNC_BEGIN:
            begun[r.at] = k
        elif r.op == journal.SYNC_END and renamed is not None and begun[r.of] > renamed:
            if r.off == journal.SYNC_DIR:
                renamed = None
            elif r.names[-1].startswith("log-") and k >= first:
                found.append(k)
    return found


def cuts(records, first, count, rng):
    """Positions to cut at, sorted: near each kind of step alike, however rare it is, and some anywhere."""
    kinds = {}
    for k in range(first, len(records)):
        r = records[k]
        if r.op in (journal.WRITE, journal.SYNC_BEGIN):
            continue
        kinds.setdefault((r.op, r.off if r.op == journal.SYNC_END else 0, r.names[-1][:4] if r.names else ""), []).append(k)
    # what a successor answers must be durable by its own sync, not by the next client's
    kills = [k for k in range(first, len(records)) if records[k].op == journal.KILLED]
    if kills:
        syncs = [k for k in range(first, len(records)) if records[k].op == journal.SYNC_END]
        behind = [k for n in kills for k in syncs[bisect.bisect(syncs, n):][:5]]
        kinds.update({"behind a kill": behind} if behind else {})
    bold = relied_on(records, first)
    kinds.update({"relied on a name": bold} if bold else {})
    found = {len(records)}
    while len(found) < min(count, len(records) - first):
        r = rng.random()
        if r < 0.85 and kinds:
            # the end of a log's sync is when most is at stake
            of = (journal.SYNC_END, journal.SYNC_FILE, "log-")
            kind = of if r < 0.25 and of in kinds else rng.choice(list(kinds))
            k = rng.choice(kinds[kind]) + rng.choice((-2, -1, 0, 0, 0, 1, 1, 1, 2, 3))
            if kind[0] == journal.KILLED:  # what the next committer takes for granted
                k += rng.choice((0, 5, 10, 20, 40))
        else:
            k = rng.randrange(first, len(records))
        found.add(max(first, min(len(records), k)))
    return sorted(found)


# --- one image


class Broken(Exception):
    """An image that does not hold what was promised."""


class Image:
    """A daemon on one image."""

    def __init__(self, where, stats):
        self.stats = stats
        self.daemon = holdfast.Daemon(where=where, segment_size=SEGMENT, workers="1")

    def start(self, checkpoint=0):
        """checkpoint: the number of one that is durable; that or a newer one must be found."""
        d = self.daemon
        d.start()
        log = d.log_text()
        if "damage" in log:
            raise Broken("it says that something is damaged")
        used = int(re.search(r"behind checkpoint (\d+),", log).group(1))
        if used < checkpoint:
            raise Broken("it recovered with checkpoint %d where %d was durable" % (used, checkpoint))
        a = d.ask_admin("GET", "/_ready")
        if a.status != 200:
            raise Broken("not ready: %r" % a)
        self.stats["torn tails cut"] += "incomplete last batch" in log
        self.stats["recovered with a checkpoint"] += used != 0

    def read(self, round_):
        found, keys = {}, workload.keys_of(round_)
        readers = [workload.Reader(round_, keys[n::4], found) for n in range(4)]
        holdfast.drive(("127.0.0.1", self.daemon.port), readers)
        return found

    def has_tenant(self, name):
        return self.daemon.ask_admin("GET", "/_tenants/" + name).status == 200

    def write(self, round_, found):
        """What a client does next: all of it must work, and change nothing else.  found is what is there then."""
        there = sorted(k for k, f in found.items() if f[0] == 200)
        chosen = [k for k in there[::max(1, len(there) // 6)]]
        with self.daemon.connect() as c:
            for n, key in enumerate(chosen + ["new/1", "new/2"]):
                tag = found[key][1] if key in found else None
                if tag and n % 3 == 2:
                    a = c.ask("DELETE", round_.path(key), None, {"If-Match": tag})
                    wanted, now = 204, (404, None, None)
                else:
                    body = make_body(key, 999, n, 3000 * (n % 2))
                    a = c.ask("PUT", round_.path(key), body, {"If-Match": tag} if tag else {"If-None-Match": "*"})
                    wanted, now = 204 if tag else 201, (200, a.get("etag"), body)
                    if (key, now[1]) in round_.tags.seen:
                        raise Broken("the ETag %s of %s was given before" % (now[1], key))
                if a.status != wanted:
                    raise Broken("a write to the image got %d, not %d: %s %r" % (a.status, wanted, key, a))
                found[key] = now

    def compare(self, round_, found):
        with self.daemon.connect() as c:
            for key in ("new/1", "new/2"):
                a = c.ask("GET", round_.path(key))
                if (a.status, a.get("etag"), a.body) != found[key]:
                    raise Broken("%s is %r after the restart, and was %r" % (key, a, found[key][:2]))
        now = self.read(round_)
        for key, f in now.items():
            if f[0] != found[key][0] or (f[0] == 200 and f[1:3] != found[key][1:3]):
                raise Broken("%s is %r after the restart, and was %r" % (key, f[:2], found[key][:2]))
        there = [f[2] for f in found.values() if f[0] == 200]
        settings = self.daemon.settings(round_.tenant)
        if (settings["documents"], settings["bytes"]) != (len(there), sum(map(len, there))):
            raise Broken("it counts %d documents and %d bytes, and there are %d and %d" % (
                settings["documents"], settings["bytes"], len(there), sum(map(len, there))))

    def check_offline(self):
        """holdfastctl check says the same, where there is one."""
        if CHECK:
            p = subprocess.run([holdfast.HOLDFASTCTL, "check", self.daemon.data], capture_output=True, text=True)
            if p.returncode != 0:
                raise Broken("holdfastctl check exits with %d:\n%s%s" % (p.returncode, p.stdout, p.stderr))
            self.stats["checked by holdfastctl"] += 1

    def examine(self, round_, sure, checkpoint):
        """sure: the tenant was there before the cut."""
        self.start(checkpoint)
        if not self.has_tenant(round_.tenant):
            if sure:
                raise Broken("the tenant is gone")
            self.daemon.tenant(name=round_.tenant)
        found = self.read(round_)
        workload.verify(round_, found, self.daemon.settings(round_.tenant))
        found = {k: f[:3] for k, f in found.items()}
        self.write(round_, found)
        if self.stats["images"] % 2:
            self.daemon.kill9()
        else:
            self.daemon.stop()
        self.start()
        self.compare(round_, found)
        self.daemon.stop()
        self.check_offline()
        self.stats["acknowledged writes verified"] += round_.acknowledged


def has_check():
    """Is there a holdfastctl check?  It says so about a directory that is none."""
    with contextlib.suppress(OSError):
        p = subprocess.run([holdfast.HOLDFASTCTL, "check", "/nonexistent/store"], capture_output=True, text=True)
        return "/nonexistent/store" in p.stdout + p.stderr
    return False


CHECK = False


def start_files(directory):
    """{name: (inode, bytes)} of an image, for Disk."""
    found = {}
    for name in os.listdir(directory):
        path = os.path.join(directory, name)
        found[name] = (os.stat(path).st_ino, holdfast.read_file(path))
    return found


def forget_checkpoints(directory):
    """Number of those that were there."""
    names = [n for n in os.listdir(directory) if n.startswith("tree-")]
    for n in names:
        os.unlink(os.path.join(directory, n))
    return len(names)


class Examiner:
    """One of the processes: takes every n-th moment of a recording, makes its images and looks at them."""

    def __init__(self, recording, where, todo, tell):
        self.recording, self.where, self.tell = recording, where, tell
        self.todo = todo  # [(position, [seed of each image])]
        self.stats = collections.Counter()
        self.moment_of = recording.moments
        self.what = ""

    def run(self):
        disk = self.recording.disk()
        for position, seeds in self.todo:
            disk.go_to(position)
            moment = self.moment_of[position]
            for seed in seeds:
                self.one(disk, position, moment, seed)
            self.stats["cut points"] += 1
        return self.stats

    def one(self, disk, position, moment, seed):
        rng = random.Random(seed)
        round_ = cut.at(self.recording.round, moment)
        sure = self.recording.tenant_at < moment
        nested = sure and rng.random() < NESTED
        bare = not nested and rng.random() < BARE
        choice = Choice(rng, position)
        flight = rng.choice((None, None, 1.0, rng.random()))
        self.what = "cut at record %d of %d (%.6f), %s, call under way %s, image seed %s%s" % (
            position, len(disk.records), moment, choice.text(), flight, seed,
            ", cut again" if nested else ", without checkpoints" if bare else "")
        image = Image(self.where, self.stats)
        state = rng.getstate()
        try:
            disk.image(image.daemon.data, choice, flight)
            if nested:
                self.again(image, round_, rng)
            else:
                self.stats["images"] += 1
                if bare:
                    self.stats["without their checkpoints"] += bool(forget_checkpoints(image.daemon.data))
                image.examine(round_, sure, 0 if bare else disk.newest("tree-"))
        except (Violation, Broken, holdfast.Failed, ValueError) as e:
            self.keep(image, disk, e, lambda where: (rng.setstate(state), disk.image(where, choice, flight)))
            raise Broken(self.what) from e
        finally:
            image.daemon.close()

    def again(self, image, round_, rng):
        """Starts on the image under the recorder, works a little, and cuts that."""
        d = image.daemon
        start = start_files(d.data)
        path = os.path.join(self.where, "journal-%d" % os.getpid())
        j = Journal(path, ROOM >> 3)
        try:
            record(d, j, self.where)
            d.env["HOLDFAST_SLOWSYNC_US"] = "2000"
            d.start()
            found = image.read(round_)
            workload.verify(round_, found, d.settings(round_.tenant))
            for key, life in round_.lives.items():  # one of two states: from now on it is known which
                status, tag, body, begin, end = found[key]
                life.did("found", workload.value_of(key, body)[0] if status == 200 else ABSENT, tag, begin, end)
            round_.rng = rng
            numbers = itertools.count(2000)
            clients = [workload.RegisterClient(round_, next(numbers)) for _ in range(3)]
            clients += [workload.CounterClient(round_, next(numbers)) for _ in range(2)]
            clients += [workload.LifeClient(round_, next(numbers)) for _ in range(2)]
            holdfast.drive(("127.0.0.1", d.port), clients, seconds=0.15)
            d.kill9()
            records = j.records()
        finally:
            j.close()
        when, disk = moments(records), Disk(records, start)
        what = self.what
        # half of them in the recovery, which is the shorter part
        early = [k for k, r in enumerate(records) if r.stamp <= min(f[3] for f in found.values())]
        for position in sorted(rng.choice(early) if early and n % 2 else rng.randrange(len(records) + 1) for n in range(PER_NESTED)):
            disk.go_to(position)
            choice = Choice(rng, position)
            flight = rng.choice((None, 1.0))
            self.what = "%s; then at record %d of %d (%.6f), %s, call under way %s" % (
                what, position, len(records), when[position], choice.text(), flight)
            self.stats["images"] += 1
            self.stats["of them cut twice"] += 1
            now = Image(self.where, self.stats)
            state = rng.getstate()
            try:
                disk.image(now.daemon.data, choice, flight)
                now.examine(cut.at(round_, when[position]), True, disk.newest("tree-"))
            except (Violation, Broken, holdfast.Failed, ValueError) as e:
                self.keep(now, disk, e, lambda where: (rng.setstate(state), disk.image(where, choice, flight)))
                raise Broken(self.what) from e
            finally:
                now.daemon.close()

    def keep(self, image, disk, error, make):
        """The image as it was, and as the daemon left it, and what was recorded around the cut."""
        if "kept" in self.stats:
            return
        self.stats["kept"] += 1
        with contextlib.suppress(Exception):
            image.daemon.kill9()
        where = tempfile.mkdtemp(prefix="holdfast-power-")
        os.mkdir(os.path.join(where, "image"))
        make(os.path.join(where, "image"))
        shutil.copytree(image.daemon.data, os.path.join(where, "after"))
        with open(os.path.join(where, "why"), "w") as f:
            print(self.what, file=f)
            print(error.text() if isinstance(error, Violation) else "%s: %s" % (type(error).__name__, error), file=f)
            print("--- the daemon's log, both starts", *image.daemon.log, sep="\n", file=f)
        with open(os.path.join(where, "calls"), "w") as f:
            for k, r in enumerate(disk.records):
                print("%s%d %s" % ("> " if k == disk.position else "  ", k, r.text()), file=f)
        self.tell("power: FAILED: %s\n%s\nkept in %s (image, after, why, calls)" % (
            self.what, error.text()[:3000] if isinstance(error, Violation) else error, where))


def examine(recording, where, todo, results):
    """In a process of its own."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    e = Examiner(recording, where, todo, lambda text: print(text, flush=True))
    try:
        results.put((e.run(), None))
    except Broken as b:
        results.put((e.stats, str(b)))
    except BaseException:
        traceback.print_exc()
        results.put((e.stats, "the test itself failed: " + e.what))


# --- runs


class Summary:
    def __init__(self, seed):
        self.seed, self.runs, self.stats, self.failed = seed, 0, collections.Counter(), []
        self.began = time.monotonic()

    def text(self):
        s = self.stats
        return "power: seed %s: %d runs, %d images of %d cut points%s in %.0f s" % (
            self.seed, self.runs, s["images"], s["cut points"],
            "".join(", %d %s" % (s[k], k) for k in sorted(s) if k not in ("images", "cut points", "kept")), time.monotonic() - self.began)


def spread(recording, images, rng):
    """[(position, [seed of each image])], in as many parts as there are processes."""
    after = bisect.bisect_right(recording.moments, recording.tenant_at)
    positions = cuts(recording.records, after, max(2, images // PER_MOMENT), rng)
    # and a few of the beginning: an empty directory, a store without tenants
    positions += cuts(recording.records[:after], 0, max(1, images // 60), rng)[:-1]
    todo = [(p, [rng.getrandbits(48) for _ in range(PER_MOMENT)]) for p in sorted(set(positions))]
    return [todo[n::PROCESSES] for n in range(PROCESSES)]


def one_run(seed, images, where, summary, seconds, say):
    recording = Recording(seed, where, seconds)
    try:
        if say:
            say("power: run %d: %s" % (summary.runs + 1, recording.text()))
        parts = spread(recording, images, random.Random(seed))
        fork = multiprocessing.get_context("fork")
        results = fork.Queue()
        processes = [fork.Process(target=examine, args=(recording, where, part, results)) for part in parts]
        for p in processes:
            p.start()
        for _ in processes:
            while True:
                try:
                    stats, error = results.get(timeout=5)
                    break
                except queue.Empty:
                    if not any(p.is_alive() for p in processes):
                        raise Broken("a process of the test died") from None
            summary.stats.update(stats)
            if error:
                summary.failed.append("%s: run seed %s: %s" % (summary.seed, seed, error))
        for p in processes:
            p.join()
        summary.stats["committer kills"] += recording.kills
        summary.stats["records"] += len(recording.records)
        summary.runs += 1
    finally:
        recording.close()


def run(images, seed, say=print, seconds=RUN_SECONDS, per_run=RUN_IMAGES):
    """A Summary; its failed is empty where the promise holds."""
    global CHECK
    CHECK = has_check()
    rng, summary = random.Random(seed), Summary(seed)
    where = tempfile.mkdtemp(prefix="hf-power-", dir=memory())
    try:
        while summary.stats["images"] < images and not summary.failed:
            left = images - summary.stats["images"]
            one_run("%s/%d" % (seed, rng.getrandbits(32)), min(per_run, left), where, summary, seconds, say)
            if say and images > per_run:
                say(summary.text())
    finally:
        shutil.rmtree(where, ignore_errors=True)
    return summary


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--images", type=int, default=int(os.environ.get("HOLDFAST_IMAGES") or 1000))
    p.add_argument("--seed", default=os.environ.get("HOLDFAST_SEED") or str(int.from_bytes(os.urandom(4), "big")))
    args = p.parse_args()
    print("power: seed %s, %d images" % (args.seed, args.images), flush=True)
    summary = run(args.images, args.seed, lambda text: print(text, flush=True))
    for text in summary.failed:
        print("power: FAILED: seed " + text)
    print(summary.text())
    return 1 if summary.failed else 0


if __name__ == "__main__":
    sys.exit(main())
