"""`numpy.fft`: transforms through pocketfft or cuFFT, kept in the precision of their input."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from tiledarray.api.arguments import (
    TiledArray,
    check_with_numpy,
    give_alike,
    handle_of,
    normalize_axis_index,
    refuse,
)
from tiledarray.api.creation import filled
from tiledarray.api.manipulation import roll
from tiledarray.api.namespace import namespace_getattr
from tiledarray.api.progressions import arange
from tiledarray.api.registry import implements
from tiledarray.arrays.handle import wrap
from tiledarray.devices.device import resolve
from tiledarray.graph.dtypes import Shape
from tiledarray.ops.library import BY_NAME as LIBRARY
from tiledarray.ops.library import options
from tiledarray.recording import record

_numpy = np.fft
__getattr__ = namespace_getattr(np.fft, __name__, globals())

_NORMS = (None, "backward", "ortho", "forward")
# Length along the (last) axis: of the input by default, of the output for a transform of n.
_HALF = frozenset(("rfft", "ihfft", "rfftn"))
_FORWARD = frozenset(("fft", "rfft", "fftn", "rfftn"))
_FROM_HALF = frozenset(("irfft", "hfft", "irfftn"))


@lru_cache(maxsize=256)
def _dtype(name: str, dtype: np.dtype[Any], odd: bool) -> np.dtype[Any]:
    """Return the dtype of a transform; errors name the loop for such lengths."""
    length = 3 if odd else 2
    sample = np.zeros(length if not name.endswith("n") else (length, length), dtype)
    return getattr(_numpy, name)(sample).dtype


def _check(name: str, norm: Any, sizes: Sequence[int]) -> None:
    if norm not in _NORMS:
        gap = "" if name in _FORWARD else " "  # as NumPy has it
        raise ValueError(
            f'Invalid norm value {norm}; should be "backward",{gap}"ortho" or "forward".')
    for size in sizes:
        if size < 1:
            raise ValueError(f"Invalid number of FFT data points ({size}) specified.")


def _record(name: str, array: TiledArray, shape: Shape, **keywords: Any) -> TiledArray:
    last = keywords["n"] if "n" in keywords else keywords["s"][-1]
    dtype = _dtype(name, array.dtype, last % 2 == 1)
    node = record.library(
        LIBRARY[f"fft.{name}"], (array.node,), options(**keywords), shape, dtype
    )
    return wrap(node)


def _widened(array: TiledArray, name: str, norm: Any, out: Any) -> TiledArray:
    """The input in the precision that NumPy's loop has: ``out=`` may ask for more than its own."""
    dtype = getattr(out, "dtype", None)
    if isinstance(dtype, np.dtype) and dtype.char in "dD" and array.dtype.char in "efF":
        scaled = norm not in ((None, "backward") if name in _FORWARD else ("forward",))
        refuse(scaled, "out= of a precision that the scale has not")
        return array.astype("D" if array.dtype.kind == "c" else "d")
    return array


def _given(result: TiledArray, out: Any) -> TiledArray:
    """Store a result in ``out=``, of whatever precision; NumPy says what is wrong with another."""
    dtype = getattr(out, "dtype", result.dtype)
    if isinstance(dtype, np.dtype) and dtype.char in "fdFD" and (
            np.can_cast(result.dtype, dtype, "same_kind")):
        result = result.astype(dtype)
    return give_alike(result, out)


def _along_one(name: str) -> Callable[..., Any]:
    original = getattr(_numpy, name)

    def ours(
        a: Any, n: Any = None, axis: int = -1, norm: Any = None, out: Any = None
    ) -> TiledArray:
        array = _widened(handle_of(a), name, norm, out)
        if not -array.ndim <= axis < array.ndim:
            check_with_numpy(original, array, axis=axis)
        axis = normalize_axis_index(axis, array.ndim)
        size = array.shape[axis]
        if n is None:
            count = 2 * (size - 1) if name in _FROM_HALF else size
        else:
            refuse(isinstance(n, (bool, np.bool_)), "a length that is no number")
            count = operator.index(n)
        _check(name, norm, (count,))
        length = count // 2 + 1 if name in _HALF else count
        shape = (*array.shape[:axis], length, *array.shape[axis + 1:])
        return _given(_record(name, array, shape, n=count, axis=axis, norm=norm), out)

    return implements(original, "library")(ours)


def _along_many(name: str, public: str, default: Any) -> Callable[..., Any]:
    original = getattr(_numpy, public)

    def ours(
        a: Any, s: Any = None, axes: Any = default, norm: Any = None, out: Any = None
    ) -> TiledArray:
        array = handle_of(a)
        refuse(s is not None and (axes is None or any(size in (-1, None) for size in s)),
               "s= without axes=, or with -1 or None")
        if axes is None:
            axes = tuple(range(array.ndim))
        places = tuple(operator.index(axis) for axis in axes)
        if s is not None and len(s) != len(places):
            raise ValueError("Shape and axes have different lengths.")
        if any(not -array.ndim <= place < array.ndim for place in places):
            check_with_numpy(original, array, axes=places)
        refuse(
            not places or len({place % max(array.ndim, 1) for place in places}) < len(places),
            "no axes, or one given twice",
        )
        sizes = [array.shape[normalize_axis_index(place, array.ndim)] for place in places]
        if s is None:
            if name in _FROM_HALF:
                sizes[-1] = 2 * (sizes[-1] - 1)
        else:
            sizes = [operator.index(size) for size in s]
        _check(name, norm, sizes)
        shape = list(array.shape)
        for place, size in zip(places, sizes, strict=True):
            shape[place] = size
        if name in _HALF:
            shape[places[-1]] = sizes[-1] // 2 + 1
        result = _record(name, array, tuple(shape), s=tuple(sizes), axes=places, norm=norm)
        return give_alike(result, out)

    return implements(original, "library")(ours)


fft = _along_one("fft")
ifft = _along_one("ifft")
rfft = _along_one("rfft")
irfft = _along_one("irfft")
hfft = _along_one("hfft")
ihfft = _along_one("ihfft")
fftn = _along_many("fftn", "fftn", None)
ifftn = _along_many("ifftn", "ifftn", None)
rfftn = _along_many("rfftn", "rfftn", None)
irfftn = _along_many("irfftn", "irfftn", None)
fft2 = _along_many("fftn", "fft2", (-2, -1))
ifft2 = _along_many("ifftn", "ifft2", (-2, -1))
rfft2 = _along_many("rfftn", "rfft2", (-2, -1))
irfft2 = _along_many("irfftn", "irfft2", (-2, -1))


def _shift(original: Callable[..., Any], sign: int) -> Callable[..., Any]:
    def ours(x: Any, axes: Any = None) -> TiledArray:
        array = handle_of(x)
        refuse(axes is None and not array.ndim, "no axes")
        if axes is None:
            axes = tuple(range(array.ndim))
        elif not isinstance(axes, (tuple, list)):
            axes = (axes,)
        shifts = [
            array.shape[axis] // 2 if sign > 0 else -(array.shape[axis] // 2) for axis in axes
        ]
        return roll(array, shifts, tuple(axes)) if shifts else array.copy()

    return implements(original)(ours)


fftshift = _shift(_numpy.fftshift, 1)
ifftshift = _shift(_numpy.ifftshift, -1)


@implements(_numpy.fftfreq)
def fftfreq(n: Any, d: Any = 1.0, device: Any = None) -> TiledArray:
    if not isinstance(n, (int, np.integer)):
        raise ValueError("n should be an integer")
    refuse(n < 1, "a transform of no points")
    target = resolve(device)
    positive = (n - 1) // 2 + 1
    results = filled((n,), 0, int, target)
    results[:positive] = arange(0, positive, dtype=int, device=target)
    results[positive:] = arange(-(n // 2), 0, dtype=int, device=target)
    return results * (1.0 / (n * d))


@implements(_numpy.rfftfreq)
def rfftfreq(n: Any, d: Any = 1.0, device: Any = None) -> TiledArray:
    if not isinstance(n, (int, np.integer)):
        raise ValueError("n should be an integer")
    return arange(0, n // 2 + 1, dtype=int, device=device) * (1.0 / (n * d))


def __dir__() -> list[str]:
    return dir(_numpy)
