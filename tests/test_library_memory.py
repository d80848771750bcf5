"""What library calls write into: an operand's memory that nobody needs, or memory of its own."""

from collections import OrderedDict

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tiledarray as np
from tests.plans import filled
from tiledarray import config
from tiledarray.execution import known, library_calls

PLACES = numpy.array([3, 1, 3, -1])


@pytest.fixture(autouse=True)
def compiled():
    with config.override(compile="wait"):
        yield


@pytest.fixture
def written_into(monkeypatch):
    """Names of the calls that wrote into an operand."""
    found = []
    in_place = library_calls._in_place

    def noted(value, *others):
        call = in_place(value, *others)
        return lambda *given: (found.append(value.op.name), call(*given))[1]

    monkeypatch.setattr(library_calls, "_in_place", noted)
    monkeypatch.setattr(known, "executables", OrderedDict())
    return found


def computed(np, x):
    y = np.sin(x)
    y[PLACES] = 2.0
    return y


def twice(np, x):
    y = np.sin(x)
    y[PLACES] = x[:4] * 3
    y[PLACES + 1 - 4] = -1.0
    return y


def also_before(np, x):
    y = np.sin(x)
    z = y.copy()
    y[PLACES] = 2.0
    return y, z * 1


def from_itself(np, x):
    y = np.sin(x)
    y[PLACES] = y[::-1][:4]
    return y


def summed_before(np, x):
    y = np.sin(x)
    total = y.sum()
    y[PLACES] = total
    return y, total


def seen_through(np, x):
    y = np.sin(x).reshape(2, -1).T
    y[PLACES % 4] = 2.0
    return y


def given_away(np, x):
    x = x * 1
    y = x
    y[PLACES] = 5.0
    return x, y[1:]


PROGRAMS = {computed: 1, twice: 2, also_before: None, from_itself: 0, summed_before: 1,
            seen_through: None, given_away: 1}


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_values_are_right_wherever_they_are_written(program, written_into):
    x = filled(8)
    before = numpy.array(x)
    found, wanted = program(np, x), program(numpy, before.copy())
    for ours, theirs in zip(*((part if isinstance(part, tuple) else (part,))
                              for part in (found, wanted)), strict=True):
        numpy.testing.assert_allclose(numpy.asarray(ours), theirs, rtol=1e-15)
    assert numpy.array_equal(numpy.asarray(x), before)
    count = PROGRAMS[program]
    assert count is None or written_into.count("put") == count, written_into


def test_an_array_given_is_left_alone(written_into):
    x = filled(8)
    wanted = numpy.array(x)
    y = x.copy()
    y[PLACES] = np.cos(x[:4])
    np.evaluate(y)
    assert numpy.array_equal(numpy.asarray(x), wanted) and "put" not in written_into


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(-6, 5), min_size=1, max_size=4), min_size=1, max_size=4))
def test_a_gradient_of_gathers(rows):
    """Zeros are not made for every gather: values are added to what is there."""
    x = filled(6)

    def loss(np, x):
        return sum((x[row] * x[row] * (k + 1)).sum() for k, row in enumerate(rows)) + (x**2).sum()

    wanted = 2 * numpy.array(x)
    for k, row in enumerate(rows):
        numpy.add.at(wanted, row, 2 * (k + 1) * numpy.array(x)[row])
    numpy.testing.assert_allclose(np.grad(lambda x: loss(np, x))(x), wanted, rtol=1e-13)


def test_a_failed_call_leaves_what_it_would_have_overwritten(written_into):
    x = filled(6)
    y = np.sin(x)
    places = np.argsort(x) + 1  # known to be too large only when it is computed
    y[places] = 1.0
    with pytest.raises(IndexError, match="index 6 is out of bounds for axis 0 with size 6"):
        np.evaluate(y)
    numpy.testing.assert_allclose(numpy.asarray(np.sin(x)), numpy.sin(numpy.asarray(x)))
