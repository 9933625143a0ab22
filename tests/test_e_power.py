"""Issue 3, 2: power cuts, bounded; long runs: make check-power IMAGES=1000 SEED=...  The model: crash/README.md."""
import os
import random
import subprocess
import sys

import pytest

from crash import journal, powercut
from crash.journal import Choice, Disk, Journal

IMAGES = int(os.environ.get("HOLDFAST_IMAGES") or 50)

STEPS = """
import os
fd = os.open("a", os.O_RDWR | os.O_CREAT | os.O_EXCL)
os.posix_fallocate(fd, 0, 8192)
os.pwrite(fd, b"1" * 1000, 0)
os.fsync(fd)
dir = os.open(".", os.O_RDONLY)
os.fsync(dir)
os.pwritev(fd, [b"2" * 700, b"2" * 1300], 900)
os.fdatasync(fd)
os.pwrite(fd, b"3" * 2000, 900)
os.rename("a", "b")
other = os.open("c", os.O_RDWR | os.O_CREAT)
os.write(other, b"4" * 600)
os.unlink("c")
"""


@pytest.fixture
def recorded(shims, tmp_path):
    """recorded(program, kill): its records; it runs in an empty directory."""
    def run(program, kill=None):
        where = tmp_path / "dir"
        where.mkdir()
        j = Journal(str(tmp_path / "journal"), 1 << 20)
        if kill:
            j.kill_in(*kill)
        env = {**os.environ, "LD_PRELOAD": shims("recorder"), "HOLDFAST_RECORDER": j.path, "HOLDFAST_RECORDER_DIR": str(where.resolve())}
        p = subprocess.run([sys.executable, "-c", program], cwd=where, env=env)
        assert p.returncode == (-9 if kill else 0)
        return j.records()
    return run


def kinds(records):
    return [r.op for r in records]


def test_the_recorder_has_each_change_in_its_order(recorded):
    j = journal
    records = recorded(STEPS)
    assert kinds(records) == [j.CREATE, j.ALLOCATE, j.WRITE, j.SYNC_BEGIN, j.SYNC_END, j.SYNC_BEGIN, j.SYNC_END, j.WRITE, j.SYNC_BEGIN,
                              j.SYNC_END, j.WRITE, j.RENAME, j.CREATE, j.WRITE, j.UNLINK]
    assert [r.stamp for r in records] == sorted(r.stamp for r in records)
    assert bytes(records[7].data) == b"2" * 2000 and records[7].off == 900
    assert records[11].names == ["a", "b"]
    assert [records[n].off for n in (3, 5, 8)] == [j.SYNC_FILE, j.SYNC_DIR, j.SYNC_FILE]


@pytest.mark.parametrize("how, last", [
    (1, [journal.WRITE, journal.KILLED]), (2, [journal.SYNC_BEGIN, journal.KILLED]), (3, [journal.SYNC_END, journal.KILLED])])
def test_the_recorder_has_all_that_a_killed_process_did(recorded, how, last):
    """Killed in front of, in, and behind the sync of the twos: the seventh of its calls on a file of this name or the directory."""
    assert kinds(recorded(STEPS.replace('"a"', '"log-a"'), kill=(7, how)))[-2:] == last


def test_a_killed_write_is_recorded_as_far_as_it_went(recorded):
    records = recorded("import os\nfd = os.open('log-1', os.O_RDWR | os.O_CREAT)\nos.pwrite(fd, b'x' * 900, 7)\nos.pwrite(fd, b'y', 0)", kill=(2, 2))
    assert kinds(records) == [journal.CREATE, journal.WRITE, journal.KILLED]
    assert bytes(records[1].data) == b"x" * 600  # the first two thirds


def test_a_disk_has_what_was_synced_and_anything_of_the_rest(recorded, tmp_path):
    records = recorded(STEPS)
    seen = {"old": 0, "new": 0, "torn": 0, "a": 0, "b": 0, "c": 0}
    disk = Disk(records)
    disk.go_to(len(records))
    for seed in range(400):
        where = tmp_path / ("image%d" % seed)
        where.mkdir()
        choice = Choice(random.Random(seed), len(records))
        disk.image(str(where), choice)
        names = {n: (where / n).read_bytes() for n in os.listdir(where)}
        if choice.name != "halves":  # a rename is one step
            assert ("a" in names) != ("b" in names), choice.text()
        for n in names:
            seen[n] += 1
            if n == "c":
                assert names[n] in (b"", b"4" * 600, bytes(512) + b"4" * 88, b"4" * 512 + bytes(88), bytes(600)), choice.text()
                continue
            # synced: 900 times 1, then 2000 times 2; not synced: the same place once more, in whole sectors
            assert len(names[n]) == 8192 and names[n][:900] == b"1" * 900 and not any(names[n][2900:])
            cells = [names[n][max(900, s):min(2900, s + 512)] for s in range(512, 2900, 512)]
            assert all(c in (b"2" * len(c), b"3" * len(c)) for c in cells)
            there = sum(c[0] == ord("3") for c in cells)
            seen["old" if there == 0 else "new" if there == len(cells) else "torn"] += 1
    assert all(seen.values()), seen


def test_a_name_and_its_data_are_synced_one_without_the_other(recorded, tmp_path):
    records = recorded("""
import os
fd = os.open("data", os.O_RDWR | os.O_CREAT)
os.write(fd, b"x" * 512)
os.fsync(fd)
other = os.open("name", os.O_RDWR | os.O_CREAT)
os.write(other, b"y" * 512)
dir = os.open(".", os.O_RDONLY)
os.rename("data", "data2")
os.fsync(dir)
os.rename("data2", "data")
""")
    disk = Disk(records)
    disk.go_to(len(records))
    sizes = set()
    for seed in range(200):
        where = tmp_path / ("image%d" % seed)
        where.mkdir()
        disk.image(str(where), Choice(random.Random(seed), len(records)), without=())
        names = {n: (where / n).read_bytes() for n in os.listdir(where)}
        assert "name" in names
        sizes.add(len(names["name"]))
        for n in names.keys() & {"data", "data2"}:
            assert names[n] == b"x" * 512
    assert sizes == {0, 512}


@pytest.mark.crash
def test_no_acknowledged_write_is_lost_in_a_power_cut(capsys):
    seed = os.environ.get("HOLDFAST_SEED") or str(int.from_bytes(os.urandom(4), "big"))
    summary = powercut.run(IMAGES, seed, say=None, seconds=0.8)
    with capsys.disabled():
        print("\n" + summary.text())
    assert not summary.failed, summary.failed
    assert summary.stats["images"] >= IMAGES and summary.stats["acknowledged writes verified"] > 1000
