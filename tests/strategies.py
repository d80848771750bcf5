"""Arrays of every dtype and layout, and the comparison of a call with NumPy's."""

from __future__ import annotations

import warnings
from typing import Any

import numpy
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import tiledarray

BOOL = ["?"]
INTEGERS = list("bBhHiIlL")
FLOATS = ["e", "f", "d"]
COMPLEXES = ["F", "D"]
DTYPES = BOOL + INTEGERS + FLOATS + COMPLEXES
REAL = BOOL + INTEGERS + FLOATS

SPECIAL = [0.0, -0.0, 1.0, -1.5, 2.25, 1e-3, 1e4, numpy.inf, -numpy.inf, numpy.nan]


def elements(dtype: numpy.dtype, *, finite: bool = False) -> st.SearchStrategy:
    """Elements which say more when they go wrong than arbitrary bit patterns do."""
    if dtype.kind == "b":
        return st.booleans()
    if dtype.kind in "iu":
        info = numpy.iinfo(dtype)
        return st.integers(0, 100) | st.integers(int(info.min), int(info.max))
    if dtype.kind == "f":
        known = [x for x in SPECIAL if numpy.isfinite(x)] if finite else SPECIAL
        return st.integers(-8, 8).map(lambda x: x / 4) | st.sampled_from(known)
    part = elements(numpy.dtype("d"), finite=finite)
    return st.builds(complex, part, part)


def shapes(min_dims: int = 0, max_dims: int = 3, min_side: int = 0) -> st.SearchStrategy:
    """Shapes, 0-d and empty ones among them."""
    return hnp.array_shapes(
        min_dims=max(min_dims, 1), max_dims=max_dims, min_side=min_side, max_side=4
    ) | (st.just(()) if min_dims == 0 else st.nothing())


@st.composite
def arrays(
    draw: Any, dtypes: Any = tuple(DTYPES), shape: Any = None, *, finite: bool = False,
    min_dims: int = 0, max_dims: int = 3, min_side: int = 0,
) -> numpy.ndarray:
    """A NumPy array: dense, transposed, strided, reversed or broadcast."""
    dtype = numpy.dtype(draw(st.sampled_from(list(dtypes))))
    if shape is None:
        shape = draw(shapes(min_dims, max_dims, min_side))
    elif not isinstance(shape, tuple):
        shape = draw(shape)
    layout = draw(st.sampled_from(["dense", "dense", "transposed", "strided", "reversed"]))
    values = elements(dtype, finite=finite)
    if layout == "transposed":
        return draw(hnp.arrays(dtype, shape[::-1], elements=values)).T
    if layout == "strided" and shape:
        wide = (*shape[:-1], 2 * shape[-1])
        return draw(hnp.arrays(dtype, wide, elements=values))[..., ::2]
    array = draw(hnp.arrays(dtype, shape, elements=values))
    if layout == "reversed" and shape:
        return array[::-1]
    return array


def tiled(value: Any) -> Any:
    """The same arguments with arrays of ours, in the same layout."""
    if isinstance(value, numpy.ndarray):
        return _same_layout(value)
    if type(value) in (list, tuple):
        return type(value)(tiled(part) for part in value)
    if type(value) is dict:
        return {name: tiled(part) for name, part in value.items()}
    return value


def _same_layout(array: numpy.ndarray) -> Any:
    if array.ndim > 1 and array.flags.f_contiguous and not array.flags.c_contiguous:
        return tiledarray.array(array.T.copy()).T
    if array.ndim and any(stride < 0 for stride in array.strides):
        return tiledarray.array(array[::-1].copy())[::-1]
    return tiledarray.array(array)


def outcome(function: Any, *args: Any, **kwargs: Any) -> tuple[str, Any]:
    """What a call gives, looked at: ``("value", it)`` or ``("error", the exception)``."""
    with warnings.catch_warnings(), numpy.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            return "value", looked(function(*args, **kwargs))
        except Exception as error:
            return "error", error


def looked(value: Any) -> Any:
    """The value with NumPy arrays in place of arrays of ours."""
    if isinstance(value, tiledarray.TiledArray):
        return numpy.asarray(value)
    if isinstance(value, (list, tuple)):
        return [looked(part) for part in value]
    return value


def same(ours: Any, theirs: Any, *, ulps: int = 0) -> None:
    """Assert equal values, dtypes and shapes; floats within that many ulp."""
    if isinstance(theirs, (list, tuple)):
        assert isinstance(ours, (list, tuple)), (ours, theirs)
        assert len(ours) == len(theirs)
        for left, right in zip(ours, theirs, strict=True):
            same(left, right, ulps=ulps)
        return
    if not isinstance(theirs, (numpy.ndarray, numpy.generic)):
        assert ours == theirs or ours is theirs or (ours != ours and theirs != theirs)
        return
    ours, theirs = numpy.asarray(ours), numpy.asarray(theirs)
    assert ours.dtype == theirs.dtype, (ours.dtype, theirs.dtype)
    assert ours.shape == theirs.shape, (ours.shape, theirs.shape)
    if ulps == 0 or theirs.dtype.kind not in "fc":
        numpy.testing.assert_array_equal(ours, theirs)
        return
    real = theirs.dtype.type(0).real.dtype
    size = numpy.abs(theirs)
    with numpy.errstate(all="ignore"):
        scale = float(numpy.max(size, initial=0, where=numpy.isfinite(size)))
    epsilon = float(numpy.finfo(real).eps)
    numpy.testing.assert_allclose(
        ours, theirs, rtol=ulps * epsilon, atol=ulps * epsilon * min(scale, 1e300)
    )


def agree(name: str, *args: Any, ulps: int = 0, **kwargs: Any) -> None:
    """Assert that a function of the namespace does what NumPy's does, errors included."""
    theirs_function, ours_function = numpy, tiledarray
    for part in name.split("."):
        theirs_function = getattr(theirs_function, part)
        ours_function = getattr(ours_function, part)
    theirs = outcome(theirs_function, *args, **kwargs)
    ours = outcome(ours_function, *tiled(args), **tiled(kwargs))
    same_outcome(ours, theirs, ulps=ulps)


def same_outcome(ours: tuple[str, Any], theirs: tuple[str, Any], *, ulps: int = 0) -> None:
    """Assert that two outcomes are both values, the same, or errors of one type."""
    if theirs[0] == "error":
        assert ours[0] == "error", f"NumPy raises {theirs[1]!r}, ours gives {ours[1]!r}"
        assert isinstance(ours[1], type(theirs[1])), (ours[1], theirs[1])
        return
    if ours[0] == "error":
        raise AssertionError(f"ours raises {ours[1]!r}, NumPy gives {theirs[1]!r}") from ours[1]
    same(ours[1], theirs[1], ulps=ulps)


def agree_on(expression: str, *, ulps: int = 0, **values: Any) -> None:
    """Assert that an expression in ``np`` and the named arrays means the same in both."""
    theirs = outcome(lambda: eval(expression, {"np": numpy, **values}))
    ours = outcome(lambda: eval(
        expression, {"np": tiledarray, **{name: tiled(value) for name, value in values.items()}}
    ))
    same_outcome(ours, theirs, ulps=ulps)
