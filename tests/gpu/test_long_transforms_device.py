"""Transforms too long for a tile, and those of columns, on a real CUDA device."""

from dataclasses import replace

import numpy
import pytest

import tiledarray as np
from tests import test_long_transforms as cases
from tests.plans import forget_plans
from tests.test_tiles import drawn
from tiledarray import config
from tiledarray.fusion import limits
from tiledarray.fusion.tiles import teams
from tiledarray.recording.stretch import local

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def on_device(a_device, monkeypatch):
    local.recorder.reset()
    forget_plans(monkeypatch)
    monkeypatch.setattr(limits, "GPU", replace(limits.GPU, problems=2, problem_flops=1))
    with np.device("cuda"), config.override(compile="wait", verify=True, at_once=0):
        yield
    local.recorder.reset()


def agree(program, *inputs):
    exact = program(numpy, *(x.astype(cases.WIDE.get(x.dtype.char, x.dtype)) for x in inputs))
    found = program(np, *map(np.array, inputs))
    several = isinstance(exact, tuple)
    results = found if several else (found,)
    np.evaluate(*results)
    for mine, best in zip(results, exact if several else (exact,), strict=True):
        assert mine.shape == best.shape
        if best.dtype.kind == "b":
            assert (mine.numpy() != best).mean() < 1e-2
            continue
        unit = numpy.finfo(mine.dtype).eps * max(1, abs(best).max())
        assert abs(mine.numpy() - best).max() <= 64 * unit


@pytest.mark.parametrize("dtype", ["F", "D"])
@pytest.mark.parametrize("program", cases.PROGRAMS)
def test_short_ones_taken_for_long(program, dtype, monkeypatch):
    monkeypatch.setattr(teams, "LONGEST_TRANSFORM", 64)
    for shape in cases.SHAPES[dtype]:
        x, h = cases.drawn(*shape, dtype=dtype), cases.drawn(shape[-1], dtype=dtype, seed=1)
        agree(program, x, h, cases.drawn(*shape[:-1], 1, dtype=dtype, seed=2))


@pytest.mark.parametrize(("count", "n", "dtype"), [
    (5, 1 << 14, "F"), (3, 20480, "F"), (1, 48 * 1000, "F"), (2, 1 << 18, "F"), (1, 1 << 20, "F"),
    (3, 1 << 13, "D"), (2, 48 * 1000, "D"), (1, 1 << 18, "D")])
@pytest.mark.parametrize("program", [cases.filtered, cases.spectrum, cases.asked_for_as_well])
def test_long_ones(program, count, n, dtype):
    x, h = cases.drawn(count, n, dtype=dtype), cases.drawn(n, dtype=dtype, seed=1)
    agree(program, x, h, cases.drawn(count, 1, dtype=dtype, seed=2))


@pytest.mark.parametrize("dtype", ["F", "D"])
@pytest.mark.parametrize("program", cases.COLUMNS)
def test_columns(program, dtype):
    for shape in [(16, 32), (12, 23), (2, 30, 50), (9, 64), (512, 320), (1000, 33), (2, 2048, 40)]:
        agree(program, cases.drawn(*shape, dtype=dtype),
              cases.drawn(shape[-2], 1, dtype=dtype, seed=1))


@pytest.mark.parametrize("traced", [False, True])
def test_gradients(traced):
    x, h = drawn(2, 1 << 14, dtype="c8"), drawn(1 << 14, dtype="c8", seed=1)

    def power(x):
        return (abs(np.fft.ifft(np.fft.fft(x) * h)) ** 2).sum()

    gradient = np.grad(power)
    found = (np.jit(gradient) if traced else gradient)(np.array(x))
    # JAX's convention, and a filter's adjoint.
    y = numpy.fft.ifft(numpy.fft.fft(x.astype("D")) * h)
    want = 2 * numpy.conj(numpy.fft.ifft(numpy.fft.fft(y) * numpy.conj(h)))
    assert abs(found.numpy() - want).max() <= 1e-5 * abs(want).max()
