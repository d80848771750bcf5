"""Index arrays in a library that takes what is beyond an axis from its other end, as CuPy does."""

import re

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tiledarray as ta
from tests.sides import two_sides
from tiledarray.devices.device import Device
from tiledarray.ops import indexing


class Far(numpy.ndarray):
    """An array of such a library, which moreover writes in the order that is worst."""

    def _wrapped(self, key):
        sizes = iter(self.shape)
        return tuple(part if part is None else part if type(part) is slice and next(sizes)
                     else numpy.asarray(part) % next(sizes) for part in key)

    def __getitem__(self, key):
        if not isinstance(key, tuple):
            return super().__getitem__(key)
        return super().__getitem__(self._wrapped(key))

    def __setitem__(self, key, values):
        key = self._wrapped(key)
        places = numpy.arange(self.size).reshape(self.shape)[key]
        values = numpy.broadcast_to(values, places.shape).reshape(-1)
        numpy.put(self, places.reshape(-1)[::-1], values[::-1])


class FarModule:
    """The library."""

    def __getattr__(self, name):
        return getattr(numpy, name)

    @staticmethod
    def array(old, copy):
        return numpy.array(old).view(Far)


TEMPLATES = [("at",), ("at", ":"), (":", "at"), ("at", "at"), ("at", ":", "at"), (":", "at", "at"),
             ("new", "at", ":"), ("at", "new", "at"), (":", "at", "new", ":"), (":", "at", ":")]


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_the_last_value_counts(data):
    template = data.draw(st.sampled_from(TEMPLATES))
    shape = tuple(data.draw(st.integers(1, 3)) for part in template if part != "new")
    sizes = iter(shape)
    index, places = [], []
    among = data.draw(st.sampled_from([(4,), (1,), (2, 3), (0,)]))
    for part in template:
        size = None if part == "new" else next(sizes)
        if part == "at":
            wanted = among[data.draw(st.integers(0, len(among) - 1)):]
            place = data.draw(st.one_of(
                st.integers(-size, size - 1),
                st.lists(st.integers(-size, size - 1), min_size=int(numpy.prod(wanted)),
                         max_size=int(numpy.prod(wanted))).map(
                             lambda found, shape=wanted: numpy.array(found, int).reshape(shape))))
            places.append(place)
            index.append(place)
        else:
            index.append(None if part == "new" else slice(None))
    if not any(isinstance(place, numpy.ndarray) for place in places):
        return
    old = numpy.zeros(shape)
    wanted_shape = old[tuple(index)].shape
    cut = data.draw(st.integers(0, len(wanted_shape)))
    new = 1.0 + numpy.arange(numpy.prod(wanted_shape[cut:])).reshape(wanted_shape[cut:])
    wanted = old.copy()
    wanted[tuple(index)] = new
    found = indexing.put.reference(
        FarModule(), old, new, *places, attrs=template, shape=shape, dtype=old.dtype)
    assert numpy.array_equal(numpy.asarray(found), wanted)


@pytest.mark.parametrize("op", ["take", "put", "add_at"])
@pytest.mark.parametrize("template, places, message", [
    (("at",), ([0, 6, -9],), "index 6 is out of bounds for axis 0 with size 3"),
    ((":", "at"), ([[-5]],), "index -5 is out of bounds for axis 1 with size 4"),
    (("new", "at", "at"), ([0, 1], [0, 4]), "index 4 is out of bounds for axis 1 with size 4"),
    (("at", "at"), ([], [9]), None),
])
def test_what_is_beyond_an_axis(op, template, places, message):
    x = numpy.arange(12.0).reshape(3, 4)
    values = () if op == "take" else (1.0,)
    places = [numpy.array(part, int) for part in places]

    def call():
        return getattr(indexing, op).reference(FarModule(), x.view(Far), *values, *places,
                                               attrs=template, shape=x.shape, dtype=x.dtype)

    if message is None:
        call()
        return
    with pytest.raises(IndexError, match=f"^{re.escape(message)}$"):
        call()


def test_an_index_array_on_a_device_is_checked_at_once():
    with two_sides():
        x = ta.array([1.0, 2.0, 3.0], device=Device("far"))
        places = ta.array([0, 5], device=Device("far"))
        ta.evaluate(places)
        with pytest.raises(IndexError, match="index 5 is out of bounds for axis 0 with size 3"):
            x[places]
        with pytest.raises(IndexError, match="index 5 is out of bounds for axis 0 with size 3"):
            x[places] = 1.0
        assert x.tolist() == [1, 2, 3]
