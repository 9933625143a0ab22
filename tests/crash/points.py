"""Named crash points: store/crashpoint.h has what they mean and the layout of the control file."""
import mmap
import os
import re
import struct
import time

import holdfast
from holdfast import wait_for

VARIABLE = "HOLDFAST_CRASH_FILE"
MARK = "poison-for-the-committer"  # in a document's path: the committer abort()s while it decides it


def there():
    """Was the daemon built with them (make check-crash, configure --enable-debug)?"""
    try:
        return VARIABLE.encode() in holdfast.read_file(holdfast.HOLDFASTD)
    except OSError:
        return False


def names():
    """In the order of the header: that of what happens."""
    text = open(os.path.join(holdfast.ROOT, "store", "crashpoint.h"), encoding="utf-8").read()
    return re.findall(r"^ \*\t([a-z]+-[a-z]+)\t", text, re.M)


class Points:
    """The control file: one point at a time."""

    def __init__(self, directory):
        self.path = os.path.join(directory, "crash-points")
        with open(self.path, "wb") as f:
            f.write(bytes(mmap.PAGESIZE))
        with open(self.path, "r+b") as f:
            self.map = mmap.mmap(f.fileno(), mmap.PAGESIZE)
        self.env = {VARIABLE: self.path}

    def fired(self):
        return struct.unpack_from("<I", self.map, 8)[0]

    def armed(self):
        return struct.unpack_from("<I", self.map, 0)[0] == 1

    def disarm(self):
        struct.pack_into("<I", self.map, 0, 0)

    def arm(self, name, action="kill", count=1):
        self.disarm()
        self.map[16:64] = name.encode().ljust(32, b"\0") + action.encode().ljust(16, b"\0")
        struct.pack_into("<I", self.map, 4, count)
        self.before = self.fired()
        struct.pack_into("<I", self.map, 0, 1)

    def wait(self, timeout=holdfast.PATIENCE):
        """Has the armed point fired?  Disarmed where it has not."""
        end = time.monotonic() + timeout
        while self.fired() == self.before:
            if time.monotonic() >= end:
                self.disarm()
                time.sleep(0.01)  # somebody may be just at it
                return self.fired() != self.before
            time.sleep(0.001)
        return True

    def hit(self, name, action="kill", count=1):
        self.arm(name, action, count)
        if not self.wait():
            raise holdfast.Failed("the crash point %s is not reached" % name)


def wait_stopped(pid):
    """Or gone."""
    try:
        wait_for("%d stands still" % pid, lambda: (f := holdfast.stat_fields(pid)) is None or f[0] == "T")
    except holdfast.Failed as e:
        raise holdfast.Failed("%s; it is %s" % (e, _doing(pid))) from None


def _doing(pid):
    """Its threads: state, and where in the kernel each is."""
    def text(path):
        try:
            return holdfast.read_file(path).decode(errors="replace").strip()
        except OSError as e:
            return e.strerror
    try:
        tasks = os.listdir("/proc/%d/task" % pid)
    except OSError:
        return "gone"
    return "; ".join("%s: %s, %s, %s" % (t, *(text("/proc/%d/task/%s/%s" % (pid, t, f)) for f in ("stat", "wchan", "syscall"))) for t in tasks)
