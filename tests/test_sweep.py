"""Random calls over the namespace, against NumPy: values, dtypes, shapes, and whether they raise.

Dtypes, empty arrays, arrays without axes, broadcasts, negative strides, NaN and infinities, `out=`,
`where=`, keepdims, tuples of axes, indices, operators in place on views.
"""

from __future__ import annotations

import operator
import random
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy
import pytest

import tiledarray
from tests.strategies import outcome, same
from tiledarray import config

CALLS = 250
DTYPES = "?bBhHiIlLefdFD"
SHAPES = [(), (0,), (1,), (3,), (5,), (2, 3), (3, 1), (1, 3), (0, 3), (3, 0), (2, 0, 2), (2, 3, 4)]
LAYOUTS = ["dense"] * 3 + ["reversed", "transposed", "every second", "broadcast", "numpy"]
SCALARS = [0, 1, 2, -1, 3, True, 1.5, -0.5, 2j, numpy.float32(1.5), numpy.int8(3), numpy.nan, 300]
# NumPy's comparisons of integers with an int beyond their dtype crash with an output.
COMPARISONS = {"less", "less_equal", "greater", "greater_equal", "equal", "not_equal"}
UFUNCS = [name for name, found in vars(numpy).items()
          if isinstance(found, numpy.ufunc) and found.signature is None and name != "isnat"]
IN_PLACE = [getattr(operator, name) for name in (
    "iadd", "isub", "imul", "itruediv", "ifloordiv", "imod", "ipow", "iand", "ior", "ixor")]


class Recipe(NamedTuple):
    """An array that can be made of either kind."""

    value: numpy.ndarray
    layout: str

    def made(self, np: Any) -> Any:
        value, layout = self
        if layout == "reversed" and value.ndim:
            return np.array(numpy.ascontiguousarray(value[::-1]))[::-1]
        if layout == "transposed" and value.ndim > 1:
            return np.array(numpy.ascontiguousarray(value.T)).T
        if layout == "every second" and value.size and value.ndim:
            return np.array(numpy.repeat(value, 2, axis=-1))[..., ::2]
        if layout == "broadcast" and value.ndim > 1 and value.shape[0]:
            return np.broadcast_to(np.array(value[:1]), value.shape)
        return numpy.array(value) if layout == "numpy" else np.array(value)


def made(given: Any, np: Any) -> Any:
    if isinstance(given, Recipe):
        return given.made(np)
    if isinstance(given, dict):
        return {name: made(part, np) for name, part in given.items()}
    return [made(part, np) for part in given] if type(given) is list else given


class Draw:
    """What a sweep chooses."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.numbers = numpy.random.default_rng(seed)

    def one(self, choices: Any) -> Any:
        return self.chance.choice(choices)

    def array(self, shape: Any = None, dtype: str = "", layouts: Any = LAYOUTS) -> Recipe:
        shape = self.one(SHAPES) if shape is None else shape
        kind = numpy.dtype(dtype := dtype or self.one(DTYPES)).kind
        if kind in "biu":
            low, high = {"b": (0, 2), "u": (0, 6), "i": (-5, 6)}[kind]
            value = self.numbers.integers(low, high, shape)
        else:
            value = numpy.asarray(self.numbers.integers(-8, 9, shape) / 4.0)
            if value.size and self.chance.random() < 0.3:
                value.flat[self.chance.randrange(value.size)] = self.one(
                    [numpy.nan, numpy.inf, -numpy.inf, -0.0])
        return Recipe(numpy.asarray(value).astype(dtype), self.one(layouts))

    def operand(self, shape: Any) -> Any:
        return self.one(SCALARS) if self.chance.random() < 0.25 else self.array(shape)

    def like(self, shape: Any) -> Any:
        return self.one([shape, shape, shape[-1:], (), (*shape[:-1], 1) if shape else ()])

    def key(self, shape: Any) -> Any:
        """An index of an array of this shape, often one with an error."""
        chosen = [self._item(size) for size in shape[: self.chance.randint(0, len(shape))]]
        return chosen[0] if len(chosen) == 1 else tuple(chosen)

    def _item(self, size: int) -> Any:
        places = [self.chance.randint(-size, max(size - 1, 0)) for _ in range(2)]
        parts = [None, None, 0, 1, -1, size, 9]
        return self.one([
            self.chance.randint(-size - 1, size),
            *(slice(self.one(parts), self.one(parts), self.one([None, 1, 2, -1, -2]))
              for _ in range(3)),
            None, Ellipsis, places, numpy.array(places), numpy.array([[place] for place in places]),
            numpy.array(places[0]), self.numbers.integers(0, 2, size).astype(bool), range(2),
        ])


Call = Callable[[Any], Any]


def ufunc_call(draw: Draw) -> Call:
    name = draw.one(UFUNCS)
    function = getattr(numpy, name)
    shape = draw.one(SHAPES)
    given: list[Any] = [draw.array(draw.like(shape))]
    given += [draw.operand(draw.like(shape)) for _ in range(function.nin - 1)]
    options: dict[str, Any] = {}
    if draw.chance.random() < 0.15:
        options["dtype"] = draw.one("fdlieDB?")
    if function.nout == 1 and name not in COMPARISONS and draw.chance.random() < 0.3:
        options["out"] = draw.array(draw.one([shape, shape, (2, *shape)]), layouts=LAYOUTS[:6])
        if draw.chance.random() < 0.5:
            options["where"] = draw.array(draw.one([shape, (), (3,)]), "?")
    return lambda np: _with_output(getattr(np, name), given, options, np)


REDUCTIONS = {
    **dict.fromkeys(("sum", "prod"), ("dtype", "where", "initial", "out")),
    **dict.fromkeys(("min", "max"), ("where", "initial", "out")),
    **dict.fromkeys(("mean", "nanmean"), ("dtype", "where", "out")),
    **dict.fromkeys(("var", "std"), ("dtype", "where", "ddof", "out")),
    **dict.fromkeys(("nanvar", "nanstd", "nansum", "nanprod"), ("dtype", "out")),
    **dict.fromkeys(("all", "any", "nanmin", "nanmax", "ptp", "median", "count_nonzero"), ()),
    **dict.fromkeys(("argmin", "argmax", "cumsum", "cumprod", "nanargmin", "nancumsum"), ("one",)),
}


def reduction_call(draw: Draw) -> Call:
    name = draw.one(list(REDUCTIONS))
    knows = REDUCTIONS[name]
    array = draw.array()
    ndim, shape = array.value.ndim, array.value.shape
    axes = [None, 0, -1, 1, ndim]
    options: dict[str, Any] = {"axis": draw.one(
        axes if "one" in knows else [*axes, tuple(range(ndim)), (0,), (), (0, -1)])}
    if "cum" not in name and draw.chance.random() < 0.3:
        options["keepdims"] = True
    possible = {
        "dtype": lambda: draw.one("fdlieDB?"), "initial": lambda: draw.one([0, 1, -3, 2.5, 300]),
        "where": lambda: draw.array(draw.one([shape, (), (3,)]), "?"),
        "ddof": lambda: draw.one([1, 0.5, 5]), "out": lambda: draw.array(shape[1:]),
    }
    for option in knows:
        if option in possible and draw.chance.random() < 0.2:
            options[option] = possible[option]()
    return lambda np: _with_output(getattr(np, name), [array], options, np)


def _with_output(function: Any, given: Any, options: Any, np: Any) -> Any:
    keywords = made(options, np)
    result = function(*made(given, np), **keywords)
    return [result, keywords["out"]] if "out" in keywords else result


def index_call(draw: Draw) -> Call:
    array = draw.array(layouts=LAYOUTS[:6])
    shape = array.value.shape
    key, value = draw.key(shape), draw.operand(draw.like(shape))
    way, change = draw.one(["read", "write", "in place"]), draw.one(IN_PLACE)

    def call(np: Any) -> Any:
        source, given = made(array, np), made(value, np)
        if way == "write":
            source[key] = given
            return source
        found = source[key]
        if way == "read" or numpy.ndim(found) == 0:  # NumPy's scalars do not change
            return found
        return [change(found, given), source]

    return call


@pytest.mark.sampled(6)
@pytest.mark.parametrize("kind", [ufunc_call, reduction_call, index_call])
@pytest.mark.parametrize("seed", range(8))
def test_calls_are_numpys(kind: Callable[[Draw], Call], seed: int) -> None:
    draw = Draw(seed)
    with config.override(at_once=0):
        for _ in range(CALLS):
            call = kind(draw)
            how, expected = outcome(call, numpy)
            found, result = outcome(call, tiledarray)
            assert found == how, (result, expected)
            if how == "value":
                same(result, expected, ulps=64)
            elif kind is not index_call:  # of an index's errors now one, now another is the first
                assert isinstance(result, type(expected)) or isinstance(expected, type(result))
