"""Medians of few elements, computed on a device."""

import numpy
import pytest

import tiledarray as ta
from tests.test_networks import by_windows, filtered, numbers

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore::RuntimeWarning")]


@pytest.mark.parametrize("way", ["recorded", "jit"])
@pytest.mark.parametrize("program", [filtered, by_windows])
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i4", "u1"])
def test_filters(dtype, program, way):
    image = numbers(200, 333, dtype=dtype)
    given = ta.array(image, device="cuda")
    f = ta.jit(lambda x: program(ta, x)) if way == "jit" else lambda x: program(ta, x)
    expected = program(numpy, image)
    for _ in range(3):
        found = f(given)
        assert found.dtype == expected.dtype
        numpy.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("shape, axis", [((25, 500), 0), ((500, 16), 1), ((4, 90, 5), (0, 2))],
                         ids=str)
def test_medians(shape, axis):
    x = numbers(*shape)
    numpy.testing.assert_array_equal(
        ta.median(ta.array(x, device="cuda"), axis), numpy.median(x, axis))
