"""Values of kernels that round products with their sums, or try quick texts, on a CUDA device."""

from fractions import Fraction

import numpy
import pytest

import tiledarray as np
from tests.test_elementwise_kernels import random_values, special_values, ulps_apart
from tiledarray import config

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("compiled_there")]

SINGLE = numpy.dtype("f4")


def quotients_and_roots(np, x, y):
    return np.sqrt(x), np.log(x), x / y, 1 / y, np.sqrt(x / y)


@pytest.mark.parametrize("length", [4096, 4099])
@pytest.mark.parametrize("specials", [False, True])
def test_values_and_specials_are_numpys(length, specials):
    random = numpy.random.default_rng(length)
    x, y = (random_values(SINGLE, length, random) for _ in range(2))
    if specials:  # at some places, so that chunks are mixed; every pair of them somewhere
        chosen = special_values(SINGLE)
        pairs = numpy.array(numpy.meshgrid(chosen, chosen)).reshape(2, -1)
        places = random.permutation(length)[:pairs.shape[1]]
        x[places], y[places] = pairs
    with numpy.errstate(all="ignore"):
        expected = quotients_and_roots(numpy, x, y)
        found = [numpy.asarray(part)
                 for part in quotients_and_roots(np, np.array(x), np.array(y))]
        for ours, theirs in zip(found, expected, strict=True):
            assert ulps_apart(ours, theirs).max() <= 4
            both = (ours == 0) & (theirs == 0)
            assert (numpy.signbit(ours) == numpy.signbit(theirs))[both].all()


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_what_cancels_in_numpy_cancels(dtype):
    random = numpy.random.default_rng(1)
    x, y, z = (random.normal(size=10_001).astype(dtype) for _ in range(3))
    a, b, c = np.array(x), np.array(y), np.array(z)
    a2, b2 = np.array(x), np.array(y)
    square = (a + 1j * b) * (a - 1j * b)
    # Not within an assertion, which would keep the products alive, and so rounded.
    for zero in [a * b - b2 * a2, a * b + (-a2) * b2, a * a - a2 * a2, square.imag]:
        found = numpy.asarray(zero)
        assert not found.any()
    product = a * b
    numpy.testing.assert_array_equal(numpy.asarray(product - product + c), z)


def rounded_once(found, exact):
    """Whether floats are within half a unit of the last place of what fractions are."""
    return all(abs(Fraction(float(x)) - y) <= Fraction(float(numpy.spacing(abs(x)))) / 2
               for x, y in zip(found, exact, strict=True))


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_a_product_and_a_sum_are_rounded_once(dtype):
    random = numpy.random.default_rng(2)
    x, y, z = (random.normal(size=4001).astype(dtype) for _ in range(3))
    products = [Fraction(float(left)) * Fraction(float(right))
                for left, right in zip(x, y, strict=True)]
    addends = [Fraction(float(part)) for part in z]
    pairs = list(zip(products, addends, strict=True))
    a, b, c = np.array(x), np.array(y), np.array(z)
    for found, exact in [(a * b + c, [p + q for p, q in pairs]),
                         (a * b - c, [p - q for p, q in pairs]),
                         (c - a * b, [q - p for p, q in pairs])]:
        assert rounded_once(numpy.asarray(found), exact)
    with config.override(contract=False):
        found = a * b + c
        numpy.testing.assert_array_equal(numpy.asarray(found), x * y + z)
