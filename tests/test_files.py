"""Arrays written to files and pickled: without copies that nobody needs."""

import io
import pickle

import numpy as np
import pytest

import tiledarray as ta
from tiledarray.arrays import looking


def large():
    x = ta.asarray(np.arange(300_000.0)) * 2
    return x.reshape(2, -1).T


@pytest.mark.parametrize("made", [large, lambda: ta.arange(5), lambda: large().sum(),
                                  lambda: ta.array(["a", "b"]), lambda: large()[::3]])
@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_pickled_values_are_equal_and_apart(made, protocol):
    x = made()
    other = ta.asarray(x)
    text = pickle.dumps((x, other), protocol)
    first, second = pickle.loads(text)
    np.testing.assert_array_equal(np.asarray(first), np.asarray(x))
    if x.shape and x.dtype.kind in "fi":
        same = first is second  # as `other` was `x`
        first[...] = 7
        assert bool((second == 7).all()) is same
        assert not (x == 7).all()


def test_two_arrays_of_one_value_are_two_when_unpickled():
    x = large()
    y = x.copy()
    first, second = pickle.loads(pickle.dumps((x, y)))
    first[0] = -1
    np.testing.assert_array_equal(np.asarray(second), np.asarray(y))


def test_what_is_read_back_keeps_its_memory():
    value = pickle.loads(pickle.dumps(np.arange(1000.0), 4))
    assert looking._restore(value).node.buffer.array.ctypes.data == value.ctypes.data


def test_saving_copies_nothing(monkeypatch):
    seen = []
    monkeypatch.setattr(np, "save", lambda file, array: seen.append(array))
    x = ta.asarray(np.arange(300_000.0)) + 1
    ta.save(io.BytesIO(), x)
    assert type(seen[0]) is np.ndarray
    assert seen[0].ctypes.data == x.node.buffer.array.ctypes.data


def test_what_is_saved_is_loaded():
    for x in (large(), large() > 3, ta.arange(3)):
        file = io.BytesIO()
        ta.save(file, x)
        file.seek(0)
        np.testing.assert_array_equal(np.asarray(ta.load(file)), np.asarray(x))
