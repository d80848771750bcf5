"""Lists of alternatives: each array counts for itself, for it is as large as the result."""

import numpy
import pytest

import tiledarray as np
from tiledarray import config


@pytest.fixture(autouse=True)
def threshold():
    with config.override(at_once=1000):
        yield


def ours(count, size, dtype=bool):
    values = numpy.random.default_rng(0)
    arrays = [(values.random(size) < 0.3).astype(dtype) for _ in range(count)]
    return [np.array(x) for x in arrays], arrays


@pytest.mark.parametrize("size, at_once", [(1000, True), (1001, False)])
def test_select(size, at_once):
    conditions, theirs = ours(8, size)
    choices, chosen = ours(8, size, float)
    found = np.select(conditions, [x * 2 for x in choices], 7.0)
    assert _pending(found) != at_once
    numpy.testing.assert_array_equal(
        found, numpy.select(theirs, [x * 2 for x in chosen], 7.0))


@pytest.mark.parametrize("size, at_once", [(1000, True), (1001, False)])
def test_choose(size, at_once):
    choices, chosen = ours(4, size, float)
    which = numpy.arange(size) % 4
    found = np.choose(np.array(which), choices)
    assert _pending(found) != at_once
    numpy.testing.assert_array_equal(found, numpy.choose(which, chosen))


def test_what_is_joined_counts_together():
    parts, theirs = ours(8, 1000, float)
    found = np.concatenate(parts)
    assert _pending(found)
    numpy.testing.assert_array_equal(found, numpy.concatenate(theirs))


def _pending(array):
    node = array._node
    return node is not None and node.buffer is None
