"""Scans on a real CUDA device: tiles, look-back over blocks, columns, every dtype, many times."""

import numpy
import pytest

import tiledarray as np
from tests.plans import plan_of
from tests.test_scans import DTYPES, PROGRAMS, SCANS, drawn, with_specials
from tiledarray import config
from tiledarray.recording.stretch import local

pytestmark = pytest.mark.gpu

WIDE = {"e": "f8", "f": "f8", "F": "c16"}
EPSILON = {"e": 2e-2, "f": 2e-5, "F": 2e-5, "d": 1e-11, "D": 1e-11}
SHAPES = [(1, 1 << 20), (2, 1 << 20), (1, 1_200_001), (3, 300_001), (700, 1000), (5000, 7),
          (40, 30_000), (9, 31)]


@pytest.fixture(autouse=True)
def on_device(a_device):
    local.recorder.reset()
    with (np.device("cuda"), config.override(compile="wait", verify=True, at_once=0),
          numpy.errstate(all="ignore")):
        yield
    local.recorder.reset()


def agrees(function, *arrays):
    """The device's values are NumPy's in a wider dtype; return the forms of its kernels."""
    wanted = function(numpy, *(x.astype(WIDE.get(x.dtype.char, x.dtype)) for x in arrays))
    ours = function(np, *map(np.array, arrays))
    results = ours if isinstance(ours, tuple) else (ours,)
    np.evaluate(*results)
    for found, expected in zip(
            results, wanted if isinstance(wanted, tuple) else (wanted,), strict=True):
        values = numpy.asarray(found)
        assert values.shape == expected.shape
        epsilon = EPSILON.get(values.dtype.char, 0)
        scale = numpy.max(numpy.abs(expected), initial=0, where=numpy.isfinite(expected))
        numpy.testing.assert_allclose(
            values, expected.astype(values.dtype), rtol=epsilon, atol=epsilon * float(scale))
    return [kernel.schedule.form for kernel in plan_of(results[0]).kernels]


@pytest.mark.parametrize("name, dtype", [
    (name, dtype) for name in SCANS for dtype in DTYPES
    if not (name.startswith("bitwise") and numpy.dtype(dtype).kind in "fc")
    and not (name == "cumprod" and dtype == "f2")])
def test_every_scan_of_every_dtype(name, dtype):
    shapes = [(9, 300), (2, 400)] if dtype == "f2" else [(9, 3000), (2, 100_000)]  # it rounds
    for k, shape in enumerate(shapes):
        x = drawn(shape, dtype, k)
        x = x / numpy.abs(x) if name == "cumprod" and x.dtype.kind in "fc" else x
        x = x.astype(dtype)
        for axis in (0, 1):
            forms = agrees(lambda np, x, axis=axis: SCANS[name](np, x, axis), x)
            assert "scan" in forms or "column" in forms


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("axis", [0, 1])
def test_any_shape(shape, axis):
    x = drawn(shape, "f8", 3)
    agrees(lambda np, x: np.cumsum(x, axis), x)
    x = with_specials(drawn(shape, "f8", 4), 5)
    agrees(lambda np, x: np.maximum.accumulate(x, axis), x)


@pytest.mark.parametrize("shape", [(10, 300), (1, 200_000), (70, 64), (300, 9000)])
@pytest.mark.parametrize("program", PROGRAMS)
def test_with_what_stands_around_them(program, shape):
    x, w = drawn(shape, "f8", 1), drawn(shape, "f8", 2)
    agrees(PROGRAMS[program], numpy.abs(x) + 1, numpy.abs(w) + 1)


def test_again_and_again():
    """Look-back finds its counters as the launch before left them, also when replayed."""
    random = numpy.random.default_rng(7)
    jitted = np.jit(lambda x: np.cumsum(np.cumsum(x, -1) * 0.5, -1))
    for turn in range(200):
        x = random.integers(0, 9, (3, 100_000 + turn % 2)).astype("f8")
        wanted = numpy.cumsum(numpy.cumsum(x, -1) * 0.5, -1)
        numpy.testing.assert_array_equal(jitted(np.array(x)).numpy(), wanted)
        y = np.array(x)
        numpy.testing.assert_array_equal(
            np.cumsum(np.cumsum(y, -1) * 0.5, -1).numpy(), wanted)


@pytest.mark.parametrize("dtype, length", [
    ("f4", 1 << 15), ("f4", 20_001), ("f2", 1 << 15), ("f2", 30_011), ("f8", 1 << 14)])
@pytest.mark.parametrize("rows", [3, 300])
def test_rows_that_fill_the_registers_of_a_block(dtype, length, rows):
    def standardised(np, x):
        away = x - x.max(axis=-1, keepdims=True)
        return away / np.sqrt((away * away).mean(axis=-1, keepdims=True))

    x = numpy.random.default_rng(length).standard_normal((rows, length)).astype(dtype)
    assert agrees(standardised, x) == ["row"]
