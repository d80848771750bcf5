"""Derivatives against differences: what the tests of gradients share."""

import numpy
import pytest

import tiledarray as np

STEP = 1e-3


def differences(function, x, v, h=STEP):
    """The derivative along a direction, by differences of fourth order."""
    def along(t):
        return numpy.asarray(function(x + t * v), dtype=complex)

    return (8 * (along(h) - along(-h)) - (along(2 * h) - along(-2 * h))) / (12 * h)


def check(function, *arrays, second=True, tolerance=1e-7):
    """Both modes agree with differences along random directions; and so do second derivatives."""
    random = numpy.random.default_rng(0)
    for k, array in enumerate(arrays):
        def by_one(x, k=k):
            return function(*arrays[:k], x, *arrays[k + 1:])

        def by_numpy(x, by_one=by_one):
            return numpy.asarray(by_one(np.array(x)))

        v = random.normal(size=array.shape).astype(array.dtype)
        if array.dtype.kind == "c":
            v = v + 1j * random.normal(size=array.shape)
        wanted = differences(by_numpy, array, v)
        value, tangent = np.jvp(by_one, (array,), (v,))
        scale = 1 + abs(wanted).max(initial=0)
        assert abs(numpy.asarray(tangent) - wanted).max(initial=0) < tolerance * scale
        c = random.normal(size=value.shape)
        if value.dtype.kind == "c":
            c = c + 1j * random.normal(size=value.shape)
        _, pull = np.vjp(by_one, array)
        (found,) = pull(c)
        assert found.shape == array.shape and found.dtype == array.dtype
        left = (numpy.asarray(c) * wanted).sum().real
        right = (numpy.asarray(found) * v).sum().real
        assert left == pytest.approx(right, rel=tolerance, abs=tolerance * scale)
        if second:
            def along(x, c=c, v=v, by_one=by_one):
                _, pull = np.vjp(by_one, x)
                return (pull(c)[0] * v).real.sum()

            check(along, array, second=False, tolerance=30 * tolerance)


def real(*shape, low=0.3, high=0.9, seed=0):
    return numpy.random.default_rng(seed).uniform(low, high, shape)


def whole(*shape, seed=0):
    """Complex numbers."""
    return real(*shape, seed=seed) * 2 - 1.2 + 1j * (real(*shape, seed=seed + 1) * 2 - 1.2)
