"""Reads at computed places on a real CUDA device: values, errors, and that they are in kernels."""

import numpy
import pytest

import tiledarray as np
from tests.plans import forget_plans, kinds, plan_of
from tests.test_gathers import PROGRAMS, compare_all, gathers, places, table
from tiledarray import config
from tiledarray.recording.stretch import local

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def on_device(a_device, monkeypatch):
    local.recorder.reset()
    forget_plans(monkeypatch)
    with np.device("cuda"), config.override(compile="wait", verify=True, at_once=0):
        yield
    local.recorder.reset()


def compare(program, w, i):
    found = program(np, np.array(w), np.array(i))
    np.evaluate(found)
    values = numpy.asarray(found)
    wanted = program(numpy, w, i)
    exact = program(numpy, w.astype("f8"), i)
    assert (values.dtype, values.shape) == (wanted.dtype, wanted.shape)
    if values.dtype.kind == "i":
        numpy.testing.assert_array_equal(values, wanted)
    else:  # NumPy adds one after the other, the device in a tree, and both round
        unit = numpy.finfo(values.dtype).eps * abs(exact).max(initial=0)
        off = abs(wanted - exact).max(initial=0)
        assert abs(values - exact).max(initial=0) <= 2 * off + 1024 * unit
    return plan_of(found)


@pytest.mark.parametrize("shape", [(40,), (9, 5), (3, 2, 4), (1,), (5000,)], ids=str)
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("dtype", ["f8", "f4"])
def test_values(name, shape, dtype):
    compare(PROGRAMS[name], table(11, 20, dtype=dtype), places(11, *shape))


@pytest.mark.parametrize("columns", [16, 33, 64, 130, 1000])
@pytest.mark.parametrize("dtype", ["i8", "i4", "i2", "u1", "u8"])
def test_rows(columns, dtype):
    w, i = table(100, columns, dtype="f4"), places(100, 3000, 4, dtype=dtype)
    plan = compare(lambda np, w, i: w[i].sum(1) * 2, w, i)
    assert kinds(plan) == ["call", "map"] and gathers(plan) == 4
    compare(lambda np, w, i: np.exp(w[i[:, 0]] / 99).sum(-1), w, i)
    compare(lambda np, w, i: (w[i] * 2).sum((0, 1)), w, i)


@pytest.mark.parametrize("wrong", [11, -12, 2**40])
def test_a_place_that_is_beyond(wrong):
    w, i = table(11, 20), places(11, 4000)
    i[3999] = wrong
    for _ in range(4):
        taken = np.array(w)[np.array(i) + 0] * 2
        with pytest.raises(IndexError, match=f"index {wrong} is out of bounds for axis 0 with"):
            taken.tolist()


def test_again_and_again():
    w, i = table(3000, 64, dtype="f4"), places(3000, 2000, 8)
    pooled = np.jit(lambda w, i: w[i].sum(1) * 2)
    for k in range(8):
        compare_all(numpy.asarray(pooled(np.array(w + k), np.array(i))), (w + k)[i].sum(1) * 2)
        compare(lambda np, w, i: w[i].sum(1) * 2, w + numpy.float32(k), i)
