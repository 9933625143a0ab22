"""Figures that depend on the machine (marker measure): python3 -m pytest tests -m measure, or tests/measure.py."""
import pytest

import measure


@pytest.mark.measure
@pytest.mark.parametrize("name", measure.MEASURES)
def test_figure(name):
    figures = list(measure.MEASURES[name]())
    if not figures:
        pytest.skip("what it needs is not here")
    missed = [str(f) for f in figures if not f.ok]
    print("\n".join(map(str, figures)))
    assert not missed, "\n".join(missed)
