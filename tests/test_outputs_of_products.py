"""What products of matrices are stored into: NumPy broadcasts stacks of them, not the matrices."""

import numpy
import pytest

import tiledarray as np
from tiledarray import config

CASES = [
    ((4, 4), (4, 1), (4, 4)), ((4, 4), (4,), (4, 4)), ((4, 4), (4, 4), (2, 4, 4)),
    ((4, 4), (4, 4), (4,)), ((4,), (4, 4), (3, 4)), ((4,), (4, 1), (4,)), ((4,), (4,), (5,)),
    ((2, 2, 4), (4, 1), (2, 2, 4)), ((2, 4, 4), (4, 4), (3, 2, 4, 4)), ((1, 4), (4, 4), (4, 4)),
    ((4, 1), (1, 1), (4, 3)), ((3, 1, 4, 4), (2, 4, 1), (3, 2, 4, 1)),
]


def outcome(namespace, function, left, right, target):
    try:
        found = function(namespace, left, right, target)
    except ValueError as error:
        return type(error), str(error)[:40]
    return found.tolist()


def into(namespace, left, right, target):
    return namespace.matmul(left, right, out=target)


def in_place(namespace, left, right, target):
    left = left * 1.5
    left @= right
    return left


@pytest.mark.parametrize("way", ["default", "recorded", "jit"])
@pytest.mark.parametrize("function", [into, in_place])
@pytest.mark.parametrize(("left", "right", "target"), CASES)
def test_products_into_arrays(way, function, left, right, target):
    rng = numpy.random.default_rng(1)
    values = [rng.random(shape) for shape in (left, right, target)]
    wanted = outcome(numpy, function, *(v.copy() for v in values))
    traced = np.jit(lambda *arrays: function(np, *arrays))
    with config.override(at_once=65_536 if way == "default" else 0):
        arrays = map(np.array, values)
        if way == "jit":
            found = outcome(np, lambda _, *given: traced(*given), *arrays)
        else:
            found = outcome(np, function, *arrays)
    if isinstance(wanted, tuple):
        assert found == wanted
    else:
        numpy.testing.assert_allclose(found, wanted, rtol=1e-12)


def called(name):
    return lambda namespace, left, right, out: getattr(namespace, name)(left, right, out=out)


@pytest.mark.parametrize("name", ["matvec", "vecmat", "vecdot"])
def test_other_products_into_arrays(name):
    if not hasattr(numpy, name):
        pytest.skip("NumPy has none")
    shapes = {"matvec": [(3, 4), (4,)], "vecmat": [(4,), (4, 3)], "vecdot": [(2, 4), (4,)]}[name]
    values = [numpy.ones(shape) for shape in shapes]
    for target in [(3,), (1,), (2,), (5, 3), (5, 2), (3, 1), ()]:
        wanted = outcome(numpy, called(name), *values, numpy.zeros(target))
        with config.override(at_once=0):
            found = outcome(np, called(name), *map(np.array, values), np.zeros(target))
        assert found == wanted, target


@pytest.mark.parametrize("target", ["f4", "f8", "f2"])
@pytest.mark.parametrize("source", ["f4", "f8", "f2"])
@pytest.mark.parametrize("decimals", [0, 1, 3, -1])
def test_rounding_into_another_dtype(source, target, decimals):
    values = (numpy.random.default_rng(2).random(500) * 40 - 20).astype(source)
    wanted, found = numpy.zeros(500, target), np.zeros(500, target)
    numpy.round(values, decimals, out=wanted)
    with config.override(at_once=0):
        np.round(np.array(values), decimals, out=found)
    numpy.testing.assert_array_equal(found.numpy(), wanted)
