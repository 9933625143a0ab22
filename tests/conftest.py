"""Fixtures: one daemon per module where state allows, a fresh tenant per test."""
import os
import sys

import pytest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import holdfast  # noqa: E402


@pytest.fixture(scope="session")
def shims(tmp_path_factory):
    """shims(name): the path of an LD_PRELOAD shim of this directory, built where make has not."""
    return lambda name: holdfast.shim(name, str(tmp_path_factory.getbasetemp()))


@pytest.fixture(scope="module")
def daemon(request):
    """The module's daemon; a module asks for options with OPTIONS = {...}."""
    d = holdfast.Daemon(**getattr(request.module, "OPTIONS", {}))
    with d:
        yield d


@pytest.fixture
def tenant(daemon):
    t = daemon.tenant()
    yield t
    if t._conn:
        t._conn.close()


@pytest.fixture
def fresh():
    """Daemons of a test's own: fresh(key=value) starts one."""
    made = []

    def make(started=True, **options):
        d = holdfast.Daemon(**options)
        made.append(d)
        return d.start() if started else d
    yield make
    for d in made:
        d.close()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """A failing test shows the log of the daemons it used."""
    outcome = yield
    report = outcome.get_result()
    if report.when == "call" and report.failed:
        for name in ("daemon", "fresh"):
            d = item.funcargs.get(name)
            if isinstance(d, holdfast.Daemon):
                report.sections.append(("log of the daemon", d.log_text()))
