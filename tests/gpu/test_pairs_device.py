"""All pairs on a real CUDA device: values, ragged lanes, exponents, what is rare among them."""

import numpy
import pytest

import tiledarray as np
from tests.test_pairs import density, stretched
from tests.test_short_axes import (
    BODIES,
    CENTRES,
    inputs_of,
    of_features_between,
    points,
    same,
    where_largest,
)

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("compiled_there")]

EXPONENTS = (-1.5, -0.5, 1.5, 2.5, 3, -0.7, -2)


def computed(program, *inputs):
    """The values of a program on the device, and NumPy's in float64."""
    wide = [x.astype("f8") for x in inputs]
    ours = numpy.asarray(np.evaluate(program(np, *map(np.array, inputs))))
    return ours, program(numpy, *wide).astype(ours.dtype)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("n", [3000, 257, 3])
@pytest.mark.parametrize("program", [*CENTRES, *BODIES])
def test_values_are_numpys(program, n, dtype):
    if program is where_largest and dtype == "f4":
        return  # nearly equal ones are found in another order
    inputs = inputs_of(program, n, dtype)
    same(*computed(program, *inputs), 2e-3 if dtype == "f4" else 1e-9)


@pytest.mark.parametrize("n", [1 << 20, (1 << 20) + 1, (1 << 20) + 1023])
@pytest.mark.parametrize("features", [16, 6, 3, 32])
def test_where_lanes_are_enough(n, features):
    x, c = points(n, features, dtype="f4"), points(21, features, dtype="f4", seed=1)
    for program in (CENTRES[0], CENTRES[2], stretched):
        x64, c64 = np.array(x.astype("f8")), np.array(c.astype("f8"))
        wide = numpy.asarray(np.evaluate(program(np, x64, c64)))
        part = slice(n - 3000, n)
        expected = program(numpy, x[part].astype("f8"), c.astype("f8"))
        same(wide[part], expected, 1e-10)
        found = numpy.asarray(np.evaluate(program(np, np.array(x), np.array(c))))
        if found.dtype.kind == "i":
            assert (found != wide).mean() < 1e-4  # of distances that nearly agree
        else:
            same(found.astype("f8"), wide, 1e-4)


@pytest.mark.parametrize("n", [65_536, 5000, 100])
def test_densities(n):
    same(*computed(density, *(points(n, dtype="f4", seed=k)[:n] for k in range(3)))
         if n < 10_000 else _first(n), 1e-4)


def _first(n):
    x, y, z = (points(n, dtype="f4", seed=k) for k in range(3))
    ours = numpy.asarray(np.evaluate(density(np, *map(np.array, (x, y, z)))))
    x, y, z = (a.astype("f8") for a in (x, y, z))
    apart = [a[:64, None] - a for a in (x, y, z)]
    return ours[:64], numpy.exp(-2 * sum(d * d for d in apart)).sum(1).astype("f4")


def powers(exponent):
    return lambda np, x, y: ((x[:, None] - y) ** exponent).max(1)


@pytest.mark.parametrize("exponent", EXPONENTS)
def test_powers_of_what_is_rare(exponent):
    """Zeros, infinities, denormals, negative bases, overflow: a chunk is done once more."""
    special = numpy.array([0.0, -0.0, numpy.inf, -numpy.inf, numpy.nan, 1e-40, -1e-40, 1e-38, 3e38,
                           1e-26, 4e-26, 1e26, -1, 1, 2.5], "f4")
    single = float(numpy.float32(exponent))
    x = numpy.concatenate([special, numpy.linspace(0.5, 90, 300, dtype="f4"), special])
    for y in (numpy.zeros(1, "f4"), numpy.zeros(40, "f4")):
        with numpy.errstate(all="ignore"):
            expected = powers(single)(numpy, x.astype("f8"), y.astype("f8")).astype("f4")
            found = numpy.asarray(np.evaluate(powers(exponent)(np, np.array(x), np.array(y))))
        numpy.testing.assert_allclose(found, expected, rtol=1e-6, atol=2e-45)


def interactions(exponent, softening):
    def program(np, p):
        d = p[None] - p[:, None]
        return (d * ((d * d).sum(-1, keepdims=True) + softening) ** exponent).sum(1)

    return program


@pytest.mark.parametrize("exponent", EXPONENTS)
@pytest.mark.parametrize("scale", [1.0, 1e-12, 1e12])
def test_forces_of_any_exponent(exponent, scale):
    p = points(700, 3, dtype="f4") * numpy.float32(scale)
    softening = numpy.float32(1e-3 * scale * scale)
    with numpy.errstate(all="ignore"):
        ours, theirs = computed(interactions(exponent, softening), p)
        single = interactions(exponent, softening)(numpy, p)  # where its powers do not overflow
    finite = numpy.isfinite(single) & numpy.isfinite(theirs) & (abs(theirs) > 1e-30)
    size = abs(theirs[finite]).max(initial=0)
    numpy.testing.assert_allclose(ours[finite], theirs[finite], rtol=2e-3, atol=2e-5 * size)


def test_bodies_at_one_place_without_softening():
    p = points(300, 3, dtype="f4")
    p[7] = p[200]
    with numpy.errstate(all="ignore"):
        ours, theirs = computed(interactions(-1.5, numpy.float32(0)), p)
    assert numpy.isnan(ours).all()
    assert numpy.isnan(theirs).all()


def test_moving_starts_are_read_where_they_are():
    x, c = points(5000, 24, dtype="f4"), points(30, 24, dtype="f4", seed=1)
    ours, ours_c = np.array(x), np.array(c)
    for start in range(9):
        part = slice(start, start + 8)
        found = numpy.asarray(np.evaluate(CENTRES[1](np, ours[:, part], ours_c[:, part])))
        same(found, CENTRES[1](numpy, x[:, part], c[:, part]), 1e-4)


def test_between_features():
    inputs = inputs_of(of_features_between, 900, "f8")
    same(*computed(of_features_between, *inputs))
