"""The shims that other tests lean on do what their heads say."""
import os
import subprocess
import time

import pytest

from disk import Faults

PY = "/usr/bin/python3"


def run(shim, code, **env):
    started = time.monotonic()
    r = subprocess.run([PY, "-c", "import os, sys, threading\n" + code], env={**os.environ, "LD_PRELOAD": shim, **env},
                       capture_output=True, text=True, timeout=30)
    assert r.returncode == 0, r.stderr
    return r.stdout.strip(), time.monotonic() - started


SYNC = "import tempfile; t = tempfile.TemporaryFile(); f = t.fileno()\n"
THREADS = SYNC + """
import time
t = [threading.Thread(target=os.fdatasync, args=(f,)) for _ in range(8)]
s = time.monotonic(); [x.start() for x in t]; [x.join() for x in t]; print(time.monotonic() - s)
"""


def test_slowsync_adds_its_time_to_each_sync(shims):
    code = SYNC + "import time; s = time.monotonic(); [os.fdatasync(f) for _ in range(5)]; os.fsync(f); print(time.monotonic() - s)"
    out, _ = run(shims("slowsync"), code, HOLDFAST_SLOWSYNC_US="20000")
    assert 0.12 <= float(out) < 1
    out, _ = run(shims("slowsync"), code, HOLDFAST_SLOWSYNC_US="0")
    assert float(out) < 0.12


def test_slowsync_merges_only_where_asked(shims):
    out, _ = run(shims("slowsync"), THREADS, HOLDFAST_SLOWSYNC_US="50000")
    assert 0.05 <= float(out) < 0.15  # each its own, all at once
    out, _ = run(shims("slowsync"), THREADS, HOLDFAST_SLOWSYNC_US="50000", HOLDFAST_SLOWSYNC_MERGE="1")
    assert 0.05 <= float(out) < 0.26  # one or two delays in a row, not eight


@pytest.mark.parametrize("rule, code, wanted", [
    ("write 5 0 0 *victim*", "os.write(f, b'x')", "5"),
    ("write 28 1 1 *victim*", "os.write(f, b'x'); os.pwrite(f, b'x', 9)", "28"),
    ("write 28 1 1 *victim*", "os.write(f, b'x')", "0"),
    ("write 28 0 1 *other*", "os.write(f, b'x')", "0"),
    ("read 5 0 1 *victim*", "os.pread(f, 1, 0)", "5"),
    ("sync 5 0 1 *victim*", "os.fdatasync(f)", "5"),
    ("sync 5 0 1 *victim*", "os.write(f, b'x'); os.pwritev(f, [b'x', b'y'], 0)", "0"),
    ("alloc 28 0 0 *victim*", "os.posix_fallocate(f, 0, 4096)", "28"),
    ("alloc 28 0 0 *victim*", "os.ftruncate(f, 4096)", "28"),
    ("send 22 0 0 *victim*", "os.sendfile(os.open('/dev/null', os.O_WRONLY), f, 0, 1)", "22"),
    ("short 0 0 1 *victim*", "n = os.pwritev(f, [b'123', b'456', b'789x'], 0); sys.exit(0 if n == 5 else 1)", "0"),
])
def test_faultio_fails_what_it_is_told_to(shims, tmp_path, rule, code, wanted):
    faults = Faults(str(tmp_path / "control"))
    faults.set(rule)
    prefix = "f = os.open(%r, os.O_RDWR | os.O_CREAT)\ntry:\n    " % str(tmp_path / "victim")
    out, _ = run(shims("faultio"), prefix + code + "; print(0)\nexcept OSError as e:\n    print(e.errno)\nexcept SystemExit as e:\n    print(e.code)",
                 HOLDFAST_FAULTIO=faults.path)
    assert out == wanted


def test_faultio_can_be_switched_while_it_runs(shims, tmp_path):
    faults = Faults(str(tmp_path / "control"))
    code = ("f = os.open(%r, os.O_RDWR | os.O_CREAT)\nfor line in sys.stdin:\n    try:\n        os.write(f, b'x'); print(0, flush=True)\n"
            "    except OSError as e:\n        print(e.errno, flush=True)\n") % str(tmp_path / "victim")
    p = subprocess.Popen([PY, "-c", "import os, sys\n" + code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                         env={**os.environ, "LD_PRELOAD": shims("faultio"), "HOLDFAST_FAULTIO": faults.path})

    def once():
        p.stdin.write("\n")
        p.stdin.flush()
        return int(p.stdout.readline())
    assert once() == 0
    faults.set("write 5 1 2 *victim*")
    assert [once() for _ in range(4)] == [0, 5, 5, 0]
    assert faults.counts()[0] == 4
    faults.set("write 28 0 0 *victim*")
    assert [once() for _ in range(2)] == [28, 28]
    faults.set()
    assert once() == 0
    p.stdin.close()
    p.wait(5)
    p.stdout.close()
