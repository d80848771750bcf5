"""What NumPy returns at once that is a view of an argument is a view of ours, several too."""

import numpy
import pytest

import tiledarray as ta
from tiledarray import config
from tiledarray.core import AtOnce


@pytest.fixture(autouse=True)
def _at_once():
    with config.override(at_once=1 << 16):
        yield


CALLS = [
    lambda np, x: np.split(x, 2, axis=-1),
    lambda np, x: np.split(x, [1, 3], axis=1),
    lambda np, x: np.array_split(x, 3, axis=1),
    lambda np, x: np.hsplit(x, 2),
    lambda np, x: np.vsplit(x, 3),
    lambda np, x: np.unstack(x, axis=1),
    lambda np, x: [np.expand_dims(x, axis=1)],
    lambda np, x: [np.expand_dims(x, axis=[0, 2])],
    lambda np, x: [np.squeeze(x[None], axis=0)],
    lambda np, x: [np.moveaxis(x, source=0, destination=1)],
    lambda np, x: [np.flip(x, axis=0)],
    lambda np, x: [np.reshape(x, [4, 3], order="C")],
    lambda np, x: [x.reshape([4, 3])],
    lambda np, x: [x.swapaxes(0, 1)],
    lambda np, x: [x[None].squeeze(axis=0)],
    lambda np, x: [part for half in np.split(x, 2, axis=1) for part in np.split(half, 3)],
]


@pytest.mark.parametrize("call", CALLS)
def test_views_are_written_through_before_and_after_the_array_is_recorded(call):
    theirs, ours = numpy.arange(12.0).reshape(3, 4), ta.arange(12.0).reshape(3, 4)
    expected, found = call(numpy, theirs), call(ta, ours)
    assert len(found) == len(expected)
    for change in (1.0, 2.0):
        for k, (mine, view) in enumerate(zip(found, expected, strict=True)):
            assert mine.shape == view.shape and mine.origin() is ours.origin()
            view += change * k
            mine += change * k
            numpy.testing.assert_array_equal(numpy.asarray(mine), view)
        numpy.testing.assert_array_equal(numpy.asarray(ours), theirs)
        with config.override(at_once=0):  # from here on it is recorded, and so are its views
            theirs *= 3
            ours *= 3


@pytest.mark.parametrize("call", [
    lambda np, x, places: np.split(x, places)[1],
    lambda np, x, places: np.reshape(x, places),
    lambda np, x, places: x.reshape(places),
    lambda np, x, places: np.reshape(x, shape=places),
])
def test_a_list_that_said_how_may_be_changed_afterwards(call):
    array, places = ta.arange(12.0), [3, 4]
    view = call(ta, array, places)
    expected = call(numpy, numpy.arange(12.0), [3, 4])
    places[:] = [4, 3]
    with config.override(at_once=0):
        array += 1
        numpy.testing.assert_array_equal(numpy.asarray(view), expected + 1)


def test_what_is_a_view_is_not_made_a_second_time_by_ours():
    def ours(*args, **kwargs):
        pytest.fail("NumPy's result was there already")

    x = ta.arange(12.0).reshape(3, 4)
    for function, args, kwargs in (
            (numpy.split, (2,), {"axis": 1}), (numpy.split, ([1, 3],), {"axis": -1}),
            (numpy.expand_dims, (), {"axis": 0}), (numpy.unstack, (), {})):
        found = AtOnce(function, ours)(x, *args, **kwargs)
        expected = function(numpy.asarray(x), *args, **kwargs)
        several = isinstance(expected, (list, tuple))
        for mine, view in zip(*((found, expected) if several else ([found], [expected])),
                              strict=True):
            numpy.testing.assert_array_equal(numpy.asarray(mine), view)


def test_parts_without_elements_are_views_as_well():
    x = ta.arange(3.0)
    parts = ta.array_split(x, 5)
    assert [len(part) for part in parts] == [1, 1, 1, 0, 0]
    assert all(part.origin() is x for part in parts)


def test_grids_are_copies():
    x = ta.arange(3.0)
    for grid in ta.meshgrid(x, x, copy=False):
        grid[0] = 7
    assert x.tolist() == [0.0, 1.0, 2.0]


def test_an_axis_that_is_not_there_is_numpys_error():
    with pytest.raises(numpy.exceptions.AxisError):
        ta.expand_dims(ta.arange(3.0), axis=4)
    with pytest.raises(ValueError, match="equal division"):
        ta.split(ta.arange(3.0), 2)
