"""Regions of arrays: which elements they hold, when they are apart, when they cover an array."""

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tiledarray as np
from tests.plans import TARGETS, planned
from tiledarray import config
from tiledarray.fusion.ir import Affine
from tiledarray.fusion.regions import Regions, region_of
from tiledarray.recording.stretch import local


@pytest.fixture(autouse=True)
def clean():
    """Nothing pending from elsewhere; kernels are waited for, however small the arrays."""
    local.recorder.reset()
    with config.override(compile="wait", cut=400, at_once=0):
        yield
    local.recorder.reset()


# ---- regions against sets of elements ----------------------------------------------------------

STEPS = st.sampled_from([1, 1, 2, 3, -1, -2])


@st.composite
def reached(draw, shape, params):
    """A region of an array of that shape, and the set of its elements.

    Dimensions follow axes of the domain, several the same (a diagonal) or none, in any order.
    """
    domain = draw(st.lists(st.integers(1, max(shape)), min_size=1, max_size=len(shape)))
    index, firsts = [], []
    for n in shape:
        axis = draw(st.integers(-1, len(domain) - 1))
        step = draw(STEPS)
        if axis >= 0 and abs(step) * (domain[axis] - 1) >= n:
            axis = -1
        reach = abs(step) * (domain[axis] - 1) if axis >= 0 else 0
        first = draw(st.integers(0, n - 1 - reach)) + (reach if step < 0 else 0)
        params.append(first)
        index.append(Affine(axis, step if axis >= 0 else 0, ((len(params) - 1, 1),)))
        firsts.append(first)
    elements = {
        tuple(first + (position.step * point[position.axis] if position.axis >= 0 else 0)
              for first, position in zip(firsts, index, strict=True))
        for point in numpy.ndindex(*domain)
    }
    return region_of(shape, tuple(index), tuple(domain)), elements


@given(st.data())
def test_regions_are_what_they_say(data):
    shape = data.draw(st.sampled_from([(5,), (12,), (3, 3), (4, 4), (2, 5), (2, 2, 2), (3, 2, 3)]))
    params = []
    found = [data.draw(reached(shape, params)) for _ in range(data.draw(st.integers(1, 4)))]
    for region, elements in found:
        assert region.size == len(elements)
    regions = Regions(params)
    for k, (one, first) in enumerate(found):
        for other, second in found[:k]:
            if regions.apart(one, other):
                assert not first & second
    if regions.cover([region for region, _ in found]):
        assert set.union(*(elements for _, elements in found)) == set(numpy.ndindex(*shape))


@pytest.mark.parametrize("n", [1, 2, 7])
def test_a_diagonal_covers_its_own_elements_alone(n):
    region = region_of((n, n), (Affine(0), Affine(0)), (n,))
    assert region.size == n
    assert Regions(()).cover([region]) == (n == 1)
    assert Regions(()).cover([region_of((n, n), (Affine(0), Affine(1)), (n, n))])


# ---- diagonals written into filled arrays -------------------------------------------------------


def fill_diagonal(np, x):
    out = np.zeros((x.size, x.size))
    np.fill_diagonal(out, 3.5)
    return out


def fill_tall(np, x):
    out = np.full((3 * x.size, x.size), 0.25)
    np.fill_diagonal(out, 7.0, wrap=True)
    return out


def fill_cube(np, x):
    out = np.ones((x.size,) * 3)
    np.fill_diagonal(out, x)
    return out


def diagonal_and_rest(np, x):
    out = np.zeros((2, 2))
    np.fill_diagonal(out, x[:2])
    out[0, 1] = 5.0
    out[1, 0] = 6.0
    return out


DIAGONALS = {
    "diag": lambda np, x: np.diag(x * 2),
    "diag above": lambda np, x: np.diag(x * 2, 3),
    "diag below": lambda np, x: np.diag(x + 1, -2),
    "diagflat": lambda np, x: np.diagflat(x.reshape(4, -1) + 1),
    "fill_diagonal": fill_diagonal,
    "fill_diagonal of a tall array": fill_tall,
    "fill_diagonal of a cube": fill_cube,
    "diagonal and rest": diagonal_and_rest,
}


@pytest.mark.parametrize("name", DIAGONALS)
def test_what_is_off_a_diagonal_keeps_its_fill(name):
    program = DIAGONALS[name]
    x = numpy.arange(24.0) + 1
    for _ in range(2):  # memory that is used again is not zero by chance
        np.evaluate(*(np.array(x) + 1e300 for _ in range(8)))
        numpy.testing.assert_array_equal(program(np, np.array(x)).numpy(), program(numpy, x))


@pytest.mark.parametrize("target", TARGETS)
def test_only_what_is_covered_begins_uninitialised(target):
    x = np.evaluate(np.arange(24.0) + 1)
    assert "filled_for_nothing" not in planned(np.diag(x * 2), target=TARGETS[target]).fired
    local.recorder.reset()
    halves = np.zeros((2, 24))
    halves[0] = x * 2
    halves[1] = x + 1
    assert planned(halves, target=TARGETS[target]).fired["filled_for_nothing"] == 1


def test_an_array_written_through_a_view_with_more_axes_is_read():
    with config.override(compile="never", at_once=1):
        values = np.zeros(16, "b1")
        values[:, None][...] = 1.5
        for _ in range(40):
            values = values % 5 + 1
        assert values.tolist() == [1] * 16


@pytest.mark.parametrize("key", [
    numpy.s_[::-1], numpy.s_[:, ::-1], numpy.s_[::-1, ::-1], numpy.s_[::2], numpy.s_[1:-1]])
def test_what_a_part_becomes_is_written_where_it_was_read(key):
    """Turned round from end to end as well, whatever the start is called there."""
    wanted = numpy.arange(24_000.0).reshape(120, 200) + 1.0
    x = np.array(numpy.arange(24_000.0).reshape(120, 200)) + 1.0
    for factor in (0.5, 3.0):
        float(x[0, 0])  # nobody else holds what is there now
        x[key] *= factor
        wanted[key] *= factor
        plan = planned(x)
        assert len(plan.kernels) == 1 and [how for how, _ in plan.updates.values()] == ["in place"]
        numpy.testing.assert_array_equal(numpy.asarray(x), wanted)
