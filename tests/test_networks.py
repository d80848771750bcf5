"""Medians of few elements by networks, and arrays that are put together only to be taken apart."""

import random
import shutil

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tiledarray as ta
from tests.emulation import emulated
from tests.plans import DEVICE, moved, planned
from tiledarray import config
from tiledarray.fusion.networks import MOST, comparisons
from tiledarray.kernels.compile import cuda
from tiledarray.kernels.text.program import print_kernel

with_gxx = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ to emulate with")
DTYPES = ["f2", "f4", "f8", "i1", "i4", "i8", "u1", "u8"]


def numbers(*shape, dtype="f8", seed=0):
    rng = numpy.random.default_rng(seed)
    if numpy.dtype(dtype).kind in "iu":
        return rng.integers(0, 100, shape).astype(dtype)
    x = (rng.standard_normal(shape) * 50).astype(dtype)
    x.flat[::37], x.flat[5::91], x.flat[7::53] = numpy.nan, numpy.inf, -0.0
    return x


def neighbours(np, image, reach=1):
    """The 3x3 that every element is in the middle of, one behind the other."""
    h, w = image.shape[0] - 2 * reach, image.shape[1] - 2 * reach
    places = range(2 * reach + 1)
    return np.array([image[i:i + h, j:j + w] for i in places for j in places])


def filtered(np, image):
    return np.median(neighbours(np, image), axis=0)


def by_windows(np, image):
    windows = np.lib.stride_tricks.sliding_window_view(image, (3, 3))
    return np.median(windows, axis=(2, 3))


@given(st.integers(2, MOST), st.data())
def test_comparisons_leave_what_sorting_does(count, data):
    wanted = tuple(data.draw(st.sets(st.integers(0, count - 1), min_size=1)))
    values = data.draw(st.lists(st.integers(0, 9), min_size=count, max_size=count))
    wires = [*values]
    for low, high, left in comparisons(count, wanted):
        pair = sorted((wires[low], wires[high]))
        wires[low] = pair[0] if low in left else None
        wires[high] = pair[1] if high in left else None
    assert [wires[k] for k in wanted] == [sorted(values)[k] for k in wanted]


def test_comparisons_are_few():
    """As Batcher's network has: of 9 elements 28, and for the middle 40 minima and maxima."""
    assert len(comparisons(9, tuple(range(9)))) == 28
    assert sum(len(left) for *_, left in comparisons(9, (4,))) == 40


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape, axis", [
    ((9, 20, 12), 0), ((30, 40, 4), -1), ((5, 20, 30, 5), (0, 3)), ((100, 25), 1), ((2, 99), 0),
    ((3, 70), None), ((100, 26), 1), ((7, 60), 0),
], ids=str)
def test_values_are_numpys(shape, axis, dtype, keepdims):
    x = numbers(*shape, dtype=dtype)
    with numpy.errstate(all="ignore"):
        expected = numpy.median(x, axis, keepdims=keepdims)
    found = numpy.asarray(ta.median(ta.array(x), axis, keepdims=keepdims))
    assert found.dtype == expected.dtype
    numpy.testing.assert_array_equal(found, expected)


def test_a_filter_is_one_kernel(program=by_windows):
    image = numbers(80, 70)
    given = ta.array(image)
    result = program(ta, given)
    plan = planned(result)
    assert len(plan.steps) == len(plan.kernels) == 1
    assert moved(plan) == image.nbytes + result.nbytes
    numpy.testing.assert_array_equal(result, program(numpy, image))


@with_gxx
@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "f2"])
def test_on_a_device(tmp_path, dtype):
    image = numbers(40, 33, dtype=dtype)
    for program in (filtered, by_windows):
        plan, (found,) = emulated(program, image, folder=tmp_path)
        assert len(plan.kernels) == (1 if program is by_windows else 2)
        numpy.testing.assert_array_equal(found, program(numpy, image))


@pytest.mark.skipif(cuda.available() is not None, reason="no CUDA compiler")
@pytest.mark.parametrize("reach", [1, 2])
def test_nothing_spills(reach):
    image = ta.array(numbers(200, 300, dtype="f4"))
    plan = planned(ta.median(neighbours(ta, image, reach), axis=0), target=DEVICE)
    kernel = plan.kernels[-1]
    source = print_kernel(kernel, device=True).text.replace("NAME", "filtered")
    for architecture in ("sm_80", "sm_90"):
        built = cuda.compile_source(source, "filtered", architecture)
        assert built.reports["filtered"].local_bytes == 0


def test_a_gradient_goes_to_the_element_in_the_middle():
    x = numpy.random.default_rng(1).standard_normal((9, 80))
    slope = ta.grad(lambda x: (ta.median(x, axis=0) ** 2).sum())(ta.array(x))
    middle = numpy.median(x, axis=0)
    numpy.testing.assert_allclose(slope, 2 * middle * (x == middle), rtol=1e-14)


# ---- read from parts -----------------------------------------------------------------------------


def several(np, x):
    """Views of a joined array in each of its parts."""
    parts = np.stack([x[1:] * 2, x[:-1], x[1:] - x[:-1]])
    return parts.max(0) + parts[2] * parts[0, ::-1]


def across(np, x):
    """A view that begins in one part and ends in another."""
    n = x.shape[0] // 2
    joined = np.empty_like(x)
    joined[:n] = x[n:2 * n] * 3
    joined[n:] = x[n:] + 1
    return joined[1:-1] * joined[2:], joined[:n] + 1


def written_twice(np, x):
    joined = np.zeros((3, *x.shape))
    joined[0] = x
    joined[1:] = x * 2
    joined[1] = x * 5
    return joined[0] + joined[1] * joined[2]


def written_afterwards(np, x):
    joined = np.empty((2, *x.shape), x.dtype)
    joined[0] = x
    joined[1] = -x
    total = joined[0] * 2 + joined[1]
    x[3:] = 7
    joined[0, :5] = 1
    return total, joined.sum(0), x


def other_dtypes(np, x):
    joined = np.zeros((2, x.size), "i4")
    joined[0] = x.ravel() * 10
    joined[1] = 3
    return joined[0] + joined[1], joined.max(0)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("program", [several, across, written_twice, written_afterwards,
                                     other_dtypes])
@pytest.mark.parametrize("way", ["recorded", "jit"])
def test_parts_of_joined_arrays(program, way):
    x = numpy.random.default_rng(3).standard_normal((12, 25))
    ours, theirs = ta.array(x), x.copy()
    f = ta.jit(lambda x: program(ta, x)) if way == "jit" else lambda x: program(ta, x)
    for found, expected in zip(_all(f(ours)), _all(program(numpy, theirs)), strict=True):
        numpy.testing.assert_array_equal(found, expected)
    numpy.testing.assert_array_equal(ours, theirs)


def _all(results):
    return results if isinstance(results, tuple) else (results,)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", range(40))
def test_random_parts(seed):
    """Boxes written into a new array one after the other, then views of it, added up."""
    rng = random.Random(seed)

    def span(n):
        begin = rng.randrange(n)
        return slice(begin, rng.randrange(begin, n) + 1, rng.choice((1, 1, 1, 2)))

    shape = (rng.randint(1, 6), rng.randint(1, 9))
    writes = [(rng.randrange(shape[0]) if rng.random() < 0.7 else span(shape[0]),
               slice(None) if rng.random() < 0.7 else span(shape[1]), rng.random())
              for _ in range(rng.randint(1, 6))]
    reads = [(rng.randrange(shape[0]), slice(None, None, rng.choice((1, -1))))
             for _ in range(rng.randint(1, 5))]

    def program(np, row):
        array = np.full(shape, 0.5)
        for at, along, factor in writes:
            array[at, along] = row[along] * factor
        return sum(array[read] * k for k, read in enumerate(reads, 1))

    row = numpy.random.default_rng(seed).standard_normal(shape[1])
    expected = program(numpy, row)
    with config.override(at_once=0):
        numpy.testing.assert_array_equal(program(ta, ta.array(row)), expected)
