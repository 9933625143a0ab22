"""Issue 2, 8: the first crash test, bounded; long runs: make check-crash SECONDS=... SEED=..."""
import os

import pytest

from crash import run, workload

SECONDS = float(os.environ.get("HOLDFAST_SECONDS") or 18)


def test_the_checker_refuses_what_cannot_be():
    workload.self_check()


@pytest.mark.crash
def test_no_acknowledged_write_is_lost_whoever_is_killed(capsys):
    seed = os.environ.get("HOLDFAST_SEED") or str(int.from_bytes(os.urandom(4), "big"))
    summary = run.run(SECONDS, seed)
    with capsys.disabled():
        print("\n" + summary.text())
    assert summary.acknowledged > 100 and summary.verified > 10
    assert summary.kills["committer"] >= 5
