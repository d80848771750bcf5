"""Injecting faults of the compiler: scripts in its place, programs that meet them."""

import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
EMPTY = 'extern "C" long k() { return 1; }'
VERSION = 'case "$*" in *--version*) echo fake 1; exit 0;; esac\n'


def begin(code, folder, first="", pass_fds=(), **environment):
    """Start a Python program with a cache of its own; ``first`` is what it does before all else."""
    names = {"PYTHONPATH": str(ROOT), "TILEDARRAY_CACHE_DIR": str(folder),
             "TILEDARRAY_DEVICE": "cpu", **environment}
    return subprocess.Popen(
        [sys.executable, "-c", first + PRELUDE + textwrap.dedent(code)],
        cwd=folder.parent, text=True,
        env={**os.environ, **names}, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        pass_fds=pass_fds,
    )  # fmt: skip


def ended(child, seconds=60):
    """Wait for a program; return its exit status, output and messages."""
    try:
        out, messages = child.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        child.kill()
        child.communicate()
        raise
    return child.returncode, out, messages


def wait_until(true, seconds=15):
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


PRELUDE = """
import os, signal, sys, threading, time, warnings
warnings.filterwarnings("ignore", ".*multi-threaded", DeprecationWarning)  # Python's, of forks
import numpy
import tiledarray as np
from tiledarray import config

def check(k=1.0):
    x = np.array(numpy.arange(5000.0))
    found = float((np.sqrt(x) * k + 1).sum())
    assert abs(found - (numpy.sqrt(numpy.arange(5000.0)) * k + 1).sum()) < 1e-6 * abs(found), found

"""


def begun(tmp_path):
    """Processes of the compilers that were started."""
    found = tmp_path / "begun"
    return [int(line) for line in found.read_text().split()] if found.exists() else []


def gone(process):
    """Whether nothing of a process group is left (but what nobody has waited for)."""
    try:
        os.killpg(process, 0)
    except ProcessLookupError:
        return True
    states = subprocess.run(["ps", "-o", "stat=", "-g", str(process)], capture_output=True,
                            text=True, check=False).stdout.split()  # fmt: skip
    return all(state.startswith("Z") for state in states)
