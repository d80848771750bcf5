"""Rows of products that are used up as they are made, on a real CUDA device."""

import numpy
import pytest

import tiledarray as np
from tests import stream_cases as cases
from tests.plans import forget_plans, plan_of
from tests.tiles import stream_kernels
from tiledarray import config
from tiledarray.fusion.streams import kernel as shapes
from tiledarray.recording.stretch import local

pytestmark = pytest.mark.gpu

SIZES = [((), 130, 100, 64, 64), ((2, 3), 64, 257, 40, 24), ((3,), 300, 64, 128, 128),
         ((2,), 100, 1000, 100, 130), ((), 1000, 70, 16, 256), ((2,), 65, 500, 256, 200),
         ((1, 2), 20, 33, 3, 2), ((2,), 200, 1024, 64, 64), ((), 333, 777, 128, 100)]


@pytest.fixture(autouse=True)
def on_device(a_device, monkeypatch):
    local.recorder.reset()
    forget_plans(monkeypatch)
    monkeypatch.setattr(shapes, "BUSY_BLOCKS", 0)
    with (np.device("cuda"), numpy.errstate(all="ignore"),
          config.override(compile="wait", verify=True, at_once=0)):
        yield
    local.recorder.reset()


def agree(program, arguments):
    found = program(np, *map(np.array, arguments))
    results = found if isinstance(found, tuple) else (found,)
    np.evaluate(*results)
    exact = cases.exact(program, arguments)
    single = arguments[0].dtype == numpy.float32
    theirs = cases.numpys(program, arguments) if single else [None] * len(exact)
    for mine, want, numpys in zip(results, exact, theirs, strict=True):
        cases.assert_close(mine.numpy(), want, arguments[0].dtype, numpys)
    return results


KINDS = [*(("bf16", sizes) for sizes in SIZES), *(("f2", sizes) for sizes in SIZES[:3]),
         *(("f4", sizes) for sizes in SIZES if max(sizes[-2:]) <= 128)]


@pytest.mark.parametrize("dtype, sizes", KINDS)
@pytest.mark.parametrize("program", cases.CASES)
def test_values(program, sizes, dtype):
    results = agree(program, cases.inputs(*sizes, dtype))
    # Two sums of so many columns are more than registers hold.
    twice = program in (cases.two_products, cases.from_keys)
    most = 256 if dtype in cases.HALVES else 128
    wide = 0 if program in cases.OF_NUMBERS else sizes[-1] * (1 + twice)
    beyond = max(sizes[-2], wide) > most
    without = program is cases.unscaled and dtype == "f4"
    assert bool(stream_kernels(plan_of(results[0]))) != (beyond or without)


@pytest.mark.parametrize("dtype, columns", [("bf16", 64), ("bf16", 100), ("bf16", 130), ("f4", 64)])
@pytest.mark.parametrize("program", [cases.attention, cases.layers, cases.with_statistics,
                                     cases.by_weights])
def test_operands_that_stay_on_chip(program, dtype, columns):
    results = agree(program, cases.inputs((), 110_037, columns, 64, 64, dtype))
    (kernel,) = stream_kernels(plan_of(results[0]))
    assert kernel.stays


@pytest.mark.parametrize("dtype, seeds", [("", 60), ("f4", 40)])
def test_random_programs(dtype, seeds):
    for seed in range(seeds):
        made = cases.Made(seed, dtype)
        agree(made, made.inputs)


@pytest.mark.parametrize("program", [cases.attention, cases.by_weights])
def test_products_of_tf32_where_asked_for(program):
    arguments = cases.inputs((), 700, 1300, 64, 64, "f4")[:3]
    (want,) = cases.exact(program, arguments)

    def off():
        found = program(np, *map(np.array, arguments))
        np.evaluate(found)
        assert stream_kernels(plan_of(found))
        return abs(found.numpy() - want).max() / abs(want).max()

    assert off() < 2e-6
    with config.override(tf32=True):
        assert 2e-5 < off() < 2e-3


@pytest.mark.parametrize("dtype", ["bf16", "f4"])
def test_what_is_not_finite(dtype):
    q, k, v, bias = cases.inputs((), 200, 300, 16, 16, dtype)
    bias[:] = 0
    bias[0], bias[1, ::2], bias[2, 5], bias[3, 7] = -numpy.inf, -numpy.inf, numpy.inf, numpy.nan
    bias[4, :200] = -numpy.inf
    v[0, 3], v[69, 4], q[5], k[6] = numpy.inf, numpy.nan, numpy.inf, numpy.nan

    def program(np, q, k, v, bias):
        return cases.softmax(np, cases.scaled(np, q, k) + bias) @ v

    agree(program, [q, k, v, bias])


@pytest.mark.parametrize("view", [
    lambda x: x[::-1], lambda x: x[:, ::-1], lambda x: x.T.copy().T, lambda x: x[1:, 3:],
    lambda x: x[:, ::2]])
@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("dtype", ["bf16", "f4"])
def test_views(view, place, dtype):
    sizes = (130, 200, 48, 48)
    arguments = cases.inputs((), *sizes, dtype)[:3]
    shape = arguments[place].shape
    arguments[place] = numpy.random.default_rng(3).normal(
        size=(shape[0] + 1, 2 * shape[1] + 3)).astype(arguments[0].dtype)

    def program(np, *given):
        given = [*given]
        given[place] = view(given[place])[:shape[0], :shape[1]]
        return cases.attention(np, *given)

    agree(program, arguments)


@pytest.mark.parametrize("depth, extent", [(20, 12), (24, 40), (7, 9)])
@pytest.mark.parametrize("columns", [96, 100, 300])
@pytest.mark.parametrize("dtype", ["bf16", "f4"])
def test_what_lies_behind_rows(columns, depth, extent, dtype):
    """Places in shared memory that no column of an operand fills are zero."""
    q, k, v = cases.inputs((), 40, columns, 32, 48, dtype)[:3]

    def program(np, q, k, v):
        return cases.attention(np, q[:, :depth], k[:, :depth], v[:, :extent])

    agree(program, [q, k, v])

    def turned(np, q, k, v):
        return cases.attention(np, q[:, :depth], k[:depth].T, v[:extent].T)

    agree(turned, [q, k.T.copy(), v.T.copy()])


def test_jit_and_long_rows():
    """The same again with other arrays, and more columns than any tile has."""
    f = np.jit(lambda q, k, v: cases.attention(np, q, k, v))
    for seed in range(4):
        arguments = cases.inputs((2,), 256, 5000, 64, 64, "bf16", seed)[:3]
        (want,) = cases.exact(cases.attention, arguments)
        cases.assert_close(f(*map(np.array, arguments)).numpy(), want, arguments[0].dtype)


@pytest.mark.parametrize("dtype", ["bf16", "f4"])
def test_memory_is_linear(dtype):
    """Scores of 65,536 rows would take 8 GB, or 16."""
    arguments = cases.inputs((), 65536, 65536, 64, 64, dtype)[:3]
    q, k, v = map(np.array, arguments)
    np.evaluate(q, k, v)
    found = cases.attention(np, q, k, v)
    np.evaluate(found)
    assert stream_kernels(plan_of(found))
    rows = slice(0, 65536, 9001)
    (want,) = cases.exact(cases.attention, [arguments[0][rows], *arguments[1:]])
    cases.assert_close(found.numpy()[rows], want, arguments[0].dtype)
