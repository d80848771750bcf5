"""Reductions: an accumulator each, combined in any order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tiledarray.ops.op import Reduction


def _through(name: str, *, with_dtype: bool = True) -> Callable[..., Any]:
    """Return the reference that calls the array module's function of that name."""

    def reference(xp: Any, array: Any, *, attrs: Any, shape: Any, dtype: Any) -> Any:
        axes, accumulate = attrs
        options = {"dtype": accumulate} if with_dtype else {}
        result = getattr(xp, name)(array, axis=axes, **options)
        return xp.asarray(result).astype(dtype, copy=False).reshape(shape)

    return reference


def _arg(name: str) -> Callable[..., Any]:
    """Return the reference of an index reduction, over several axes in row-major order."""

    def reference(xp: Any, array: Any, *, attrs: Any, shape: Any, dtype: Any) -> Any:
        axes, _ = attrs
        if len(axes) == 1:
            found = getattr(xp, name)(array, axis=axes[0])
            return xp.asarray(found).astype(dtype, copy=False).reshape(shape)
        kept = tuple(axis for axis in range(array.ndim) if axis not in axes)
        rows = array.transpose(kept + axes).reshape(*shape, -1)
        return xp.asarray(getattr(xp, name)(rows, axis=-1)).astype(dtype, copy=False)

    return reference


def _widest_integer(elements: np.dtype[Any]) -> np.dtype[Any]:
    if elements.kind in "bi":
        return elements if elements.itemsize > np.dtype(int).itemsize else np.dtype(int)
    return np.dtype(np.uint) if elements.kind == "u" else elements


def _truth(elements: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype(bool)


def _inexact(elements: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype(float) if elements.kind in "biu" else elements


def _places(elements: np.dtype[Any], accumulator: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype(np.intp)


def _real(elements: np.dtype[Any], accumulator: np.dtype[Any]) -> np.dtype[Any]:
    return elements.type(0).real.dtype if elements.kind == "c" else accumulator


# The accumulate dtype is the one the ufunc or NumPy's mean/var would use (float32 for a float16
# mean); the node's dtype is that of the result.
sum = Reduction(
    "sum", _through("sum"), "Sum", combine="add", accumulates=_widest_integer, widens=True,
    vjp=("expand(g, x, attrs)",),
)
prod = Reduction(
    "prod", _through("prod"), "Prod", combine="multiply", accumulates=_widest_integer, widens=True,
    vjp=("scaled(expand(g, x, attrs), product_of_others(x, attrs))",),
)
# Of equal extrema each gets the same part.
min = Reduction("min", _through("min", with_dtype=False), "Min", combine="minimum",
                vjp=("scaled(expand(g, x, attrs), "
                     "ties(x, of_now(out, x, amin, attrs[0]), attrs))",))
max = Reduction("max", _through("max", with_dtype=False), "Max", combine="maximum",
                vjp=("scaled(expand(g, x, attrs), "
                     "ties(x, of_now(out, x, amax, attrs[0]), attrs))",))
all = Reduction(
    "all", _through("all", with_dtype=False), "All", combine="logical_and", accumulates=_truth
)
any = Reduction(
    "any", _through("any", with_dtype=False), "Any", combine="logical_or", accumulates=_truth
)
argmin = Reduction("argmin", _arg("argmin"), "ArgMin", gives=_places,
                   positions=True, lanes="heavy")
argmax = Reduction("argmax", _arg("argmax"), "ArgMax", gives=_places,
                   positions=True, lanes="heavy")
# Sum of squared absolute deviations from the mean, by Chan, Golub and LeVeque's merge (1979).
deviation = Reduction("deviation", lambda xp, array, *, attrs, shape, dtype: _deviation(
    xp, array, attrs, shape, dtype), "Deviation", accumulates=_inexact, gives=_real, widens=True,
    lanes="heavy", vjp=("scaled(2 * expand(g, x, attrs), conj(deviations(x, attrs)))",))


def _deviation(xp: Any, array: Any, attrs: Any, shape: Any, dtype: Any) -> Any:
    axes, accumulate = attrs
    centred = array - xp.mean(array, axis=axes, dtype=accumulate, keepdims=True)
    if centred.dtype.kind == "c":
        centred = abs(centred)
    centred *= centred
    total = xp.sum(centred, axis=axes)
    return xp.asarray(total).astype(dtype, copy=False).reshape(shape)


def _selected_deviation(xp: Any, array: Any, *, attrs: Any, shape: Any, dtype: Any) -> Any:
    axes, _ = attrs
    inside = array.imag != 0
    count = xp.maximum(inside.sum(axis=axes, keepdims=True), 1)
    mean = xp.where(inside, array.real, 0).sum(axis=axes, keepdims=True) / count
    apart = xp.where(inside, array.real - mean, 0)
    found = xp.empty(shape, dtype)
    found.real = xp.sum(apart * apart, axis=axes).reshape(shape)
    found.imag = mean.reshape(shape)
    return found


# That of the real parts of those elements whose imaginary part is not 0, of what a mask selects;
# the result's imaginary part is their mean.
selected_deviation = Reduction(
    "selected_deviation", _selected_deviation, "SelectedDeviation", lanes="heavy")


def _exponentials(xp: Any, array: Any, *, attrs: Any, shape: Any, dtype: Any) -> Any:
    axes, _ = attrs
    powers = xp.exp(array - xp.max(array, axis=axes, keepdims=True))
    return xp.asarray(xp.sum(powers, axis=axes)).astype(dtype, copy=False).reshape(shape)


# Sum of exp(x - max(x)), the maximum carried along (Milakov and Gimelshein 2018).
exponentials = Reduction("exponentials", _exponentials, "Exponentials")
