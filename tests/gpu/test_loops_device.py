"""What goes block by block, and NumPy's calls in traces, on a CUDA device.  Run with ``-m gpu``."""

from dataclasses import replace

import numpy
import pytest

import tiledarray as np
from tests.plans import plan_of
from tests.test_calls_in_traces import OPERANDS, compared
from tests.test_calls_in_traces import PROGRAMS as CALLS
from tests.test_loops import PROGRAMS, all_of, drawn, loops_of, operands_of, played
from tiledarray import config
from tiledarray.fusion import limits, loops
from tiledarray.recording.stretch import local

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def on_device(a_device, monkeypatch):
    monkeypatch.setattr(
        limits, "GPU", replace(limits.GPU, loop_least=1 << 7, loop_bytes=1 << 13))
    monkeypatch.setattr(loops, "LEAST_ROWS", 2)
    local.recorder.reset()
    with config.override(device="cuda"):
        yield
    local.recorder.reset()


@pytest.mark.parametrize("dtype", ["f8", "f4"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_values(program, dtype, monkeypatch):
    if dtype == "f4":  # else one block has all
        monkeypatch.setattr(limits, "GPU", replace(limits.GPU, loop_bytes=1 << 12))
    operands = operands_of(program, 61, dtype)
    expected = all_of(program(numpy, *operands))
    found = all_of(program(np, *map(np.array, operands)))
    np.evaluate(*found)
    tolerance = 1e-10 if dtype == "f8" else 1e-3
    for mine, theirs in zip(found, expected, strict=True):
        numpy.testing.assert_allclose(mine.numpy(), theirs, rtol=tolerance, atol=tolerance)
    assert loops_of(plan_of(found[0]))


def test_random_programs(monkeypatch):
    monkeypatch.setattr(limits, "GPU", replace(limits.GPU, loop_bytes=200))
    for seed in range(2000, 2020):
        played(seed)


def test_under_jit():
    q, k, v = drawn(43, 5), drawn(61, 5, seed=1), drawn(61, 4, seed=2)
    jitted = np.jit(lambda q, k, v: PROGRAMS[0](np, q, k, v))
    for shift in range(4):
        found = jitted(np.array(q + shift), np.array(k), np.array(v))
        numpy.testing.assert_allclose(
            found.numpy(), PROGRAMS[0](numpy, q + shift, k, v), rtol=1e-10)


@pytest.mark.parametrize("name", ["bincount", "histogram", "maximum.at", "put", "lstsq", "choose"])
def test_calls_of_numpys_in_traces(name):
    jitted = np.jit(lambda *operands: CALLS[name](np, *operands))
    for turned in (False, True):
        operands = [x[::-1].copy() if turned else x for x in OPERANDS]
        compared(jitted(*map(np.array, operands)), CALLS[name](numpy, *operands))
