"""`config.deterministic`: a program gives the same bits in every run, whatever takes how long."""

import os
import subprocess
import sys

import numpy
import pytest

import tiledarray as np
from tiledarray import config, jit
from tiledarray.execution.executable import Executable
from tiledarray.execution.spans import counters

pytestmark = pytest.mark.compiler

PROGRAM = """
import hashlib
import numpy
import tiledarray as np

def digest(*arrays):
    return hashlib.sha256(b"".join(numpy.asarray(x).tobytes() for x in arrays)).hexdigest()[:16]

rng = numpy.random.default_rng(1)
x = np.array(rng.random((1100, 700)))
w = np.array(0.01 * rng.random((700, 40)))

# The same again and again, on its way from the first time to a compiled kernel.
sums = {float(np.exp(-x * 3.0).sum()) for _ in range(30)}
print(len(sums), *sums)
rows = {digest((np.sin(x) / np.sqrt(1 + x * x)).mean(axis=1)) for _ in range(30)}
print(len(rows), *rows)

# A loop over arrays of middle size, long enough for its speed to be measured.
u = np.zeros((260, 260)) + np.array(rng.random((260, 260)))
for _ in range(400):
    u[1:-1, 1:-1] += 0.1 * (u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2]
                            - 4 * u[1:-1, 1:-1])
    u *= 1.0 / np.abs(u).sum()
    u *= 1e4
print(digest(u))

# Gradients that are asked for again and again.
def loss(w):
    h = np.tanh(x @ w)
    return ((h - h.mean(axis=0)) ** 2).sum()

slope = np.grad(loss)
for _ in range(30):
    w = w - 1e-4 * slope(w)
print(digest(w), float(loss(w)))

# Sums over equal places, scans, sorts, factorizations.
places = np.array(rng.integers(0, 50, 100_000))
counts = np.zeros(50)
np.add.at(counts, places, np.array(rng.random(100_000)))
a = np.array(rng.random((120, 120)))
print(digest(counts, np.cumsum(x, axis=0), np.sort(x, axis=1),
             np.linalg.solve(a @ a.T + np.eye(120), a), np.fft.fft(a)))
"""


def run(folder, **environment):
    found = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=300,
        env={**os.environ, "TILEDARRAY_AT_ONCE": "65536", "TILEDARRAY_FIRST_SECONDS": "0.02",
             "TILEDARRAY_CACHE_DIR": str(folder), **environment})
    assert found.returncode == 0, found.stderr
    return found.stdout


def test_a_program_gives_the_same_bits_in_every_run(tmp_path):
    cold = run(tmp_path / "one", TILEDARRAY_DETERMINISTIC="1")
    assert [line.split()[0] for line in cold.splitlines()[:2]] == ["1", "1"]
    assert run(tmp_path / "one", TILEDARRAY_DETERMINISTIC="1") == cold  # warm
    assert run(tmp_path / "two", TILEDARRAY_DETERMINISTIC="1") == cold


def test_a_jitted_function_that_went_op_by_op_waits_from_then_on(tmp_path, monkeypatch):
    x = np.array(numpy.random.default_rng(0).random(300_000))
    function = jit(lambda x: (np.cos(x) * x).sum())
    with config.override(cache_dir=tmp_path, compile="background", first_seconds=0.2, at_once=1,
                         device="cpu"):
        monkeypatch.setattr(Executable, "compile_in_background", lambda executable: None)
        first = float(function(x)), float(function(x))
        assert first[0] == first[1]
        with config.override(deterministic=True):
            before = counters["op by op"]
            inside = {float(function(x)) for _ in range(3)}
            assert inside == {float((np.cos(x) * x).sum())}
            assert counters["op by op"] == before
        assert {float(function(x))} == inside
