"""configure and make: what they are given arrives, or is refused; what they install names the paths of this build."""
import os
import re
import subprocess

import pytest

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def configure(where, *args):
    return subprocess.run([os.path.join(TOP, "configure"), *args], cwd=where, capture_output=True, text=True, timeout=120)


def make(where, *args):
    env = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")}
    r = subprocess.run(["make", *args], cwd=where, env=env, capture_output=True, text=True, timeout=60)
    assert r.returncode == 0, r.stderr
    return r.stdout


@pytest.mark.parametrize("arg, says", [
    ("CFLAGS=-DX=$HOME", "any of $ #"),
    ("CFLAGS=-O2 # fast", "any of $ #"),
    ("CFLAGS=-DX='a b'", "without quotes"),
    ("CPPFLAGS=-DX=\"a\"", "without quotes"),
    ("LDFLAGS=-L/a\\ b", "any of $ # \\"),
    ("CFLAGS=-O2\n-g", "CFLAGS=-O2\n-g: only words"),
    ("CC=cc; true", "CC=cc; true: only words"),
    ("PYTHON=/usr/bin/python3 -B", "without blanks"),
    ("PYTHON=/not/there", "PYTHON=/not/there: no such program"),
    ("PYTHON=/bin/false", "PYTHON=/bin/false: it does not have pytest"),
    ("--prefix=opt", "--prefix=opt: not an absolute path"),
    ("--prefix=/a b", "--prefix=/a b: a path here is of letters"),
    ("--sysconfdir=/a$b", "--sysconfdir=/a$b: a path"),
    ("--localstatedir=/a'b", "--localstatedir=/a'b: a path"),
    ("--unheard", "--unheard: unknown"),
])
def test_what_a_makefile_cannot_hold_is_refused_with_its_reason(tmp_path, arg, says):
    r = configure(tmp_path, arg)
    assert r.returncode != 0 and says in r.stderr, r.stderr
    assert not os.path.exists(str(tmp_path / "Makefile"))


def test_flags_arrive_and_what_is_installed_names_the_paths_of_this_build(tmp_path):
    flags = "-O1  -g -DX=1,2 -fdebug-prefix-map=/a=/b~c@d+e%f"
    etc, var = "/usr/local/var/etc+1", "/opt/h~1/usr/local/etc"  # replaced once, not again
    r = configure(tmp_path, "CFLAGS=" + flags, "--prefix=/opt/h", "--sysconfdir=" + etc, "--localstatedir=" + var)
    assert r.returncode == 0, r.stderr
    assert " %s " % flags in make(tmp_path, "-n", "build/obj/shm/arena.o")
    make(tmp_path, "docs")
    for name, paths in {
            "holdfastd.8": [etc + "/holdfast.conf", var + "/lib/holdfast", var + "/run/holdfast/holdfast.sock",
                            var + "/run/holdfast/holdfast.pid", var + "/log/holdfast/holdfast.log"],
            "holdfastctl.8": [var + "/run/holdfast/holdfast.sock"],
            "holdfast.conf.5": [var + "/lib/holdfast", var + "/run/holdfast/holdfast.sock",
                                var + "/run/holdfast/holdfast.pid", var + "/log/holdfast/holdfast.log"],
            "holdfast.conf.sample": ["data-dir %s/lib/holdfast" % var, "log %s/log/holdfast/holdfast.log" % var]}.items():
        text = (tmp_path / "build" / name).read_text()
        for path in paths:
            assert path + "\n" in text or path + " .\n" in text, (name, path)
        assert "/usr/local" not in re.sub("%s|%s" % (re.escape(etc), re.escape(var)), "", text), name
