"""Functions of each element alone that are no ufuncs: recorded as a few ops, fused like one."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from tiledarray.api import ufuncs
from tiledarray.api.arguments import (
    TiledArray,
    arrays_of,
    device_of,
    give,
    handle_of,
    host,
    is_ours,
    node_of,
    refuse,
)
from tiledarray.api.registry import implements
from tiledarray.arrays import copying
from tiledarray.arrays.handle import SCALARS, any_keeps, as_operand, scalar, wrap
from tiledarray.arrays.selections import of_each
from tiledarray.devices.device import resolve
from tiledarray.errors import LeaveToNumPy
from tiledarray.graph.dtypes import broadcast
from tiledarray.ops.elementwise import BY_NAME
from tiledarray.recording import record

__all__ = [
    "polyval",
    "round", "around", "fix", "clip", "nan_to_num", "real", "imag", "angle", "isreal",
    "iscomplex", "isrealobj", "iscomplexobj", "real_if_close", "isposinf", "isneginf", "sinc",
    "isclose", "allclose", "array_equal", "array_equiv",
]

_U = ufuncs.BY_NAME
_NO_VALUE = np._NoValue


# Rounding and limits ----------------------------------------------------------------------------


def _round(a: Any, decimals: Any = 0, out: Any = None) -> TiledArray:
    array = handle_of(a)
    decimals = operator.index(decimals)
    kind = array.dtype.kind
    if kind == "b":
        refuse(decimals != 0, "decimals of integers")
        return give(array.astype(np.float16), out)
    if kind in "iu":
        refuse(decimals < 0, "decimals of integers")
        return give(array.copy(), out)
    if decimals == 0:
        return give(_U["rint"](array), out)
    # NumPy scales by a power of ten held as float64 and rounds to the array's dtype each time.
    refuse(kind == "c" or abs(decimals) > 22, "complex numbers or many decimals")
    factor = 10.0 ** abs(decimals)
    scaled = array * factor if decimals > 0 else array / factor
    dtype = getattr(out, "dtype", array.dtype)
    if dtype != array.dtype and dtype.kind == "f":  # all further results are stored there
        scaled = scaled.astype(dtype)
    whole = _U["rint"](scaled)
    return give(whole / factor if decimals > 0 else whole * factor, out)


round = implements(np.round)(_round)
around = implements(np.around)(_round)


@implements(np.fix)
def fix(x: Any, out: Any = None) -> TiledArray:
    return _U["trunc"](handle_of(x), out=out)


@implements(np.clip)
@of_each
def clip(
    a: Any, a_min: Any = _NO_VALUE, a_max: Any = _NO_VALUE, out: Any = None, *,
    min: Any = _NO_VALUE, max: Any = _NO_VALUE, **kwargs: Any,
) -> TiledArray:
    if a_min is _NO_VALUE and a_max is _NO_VALUE:
        a_min = None if min is _NO_VALUE else min
        a_max = None if max is _NO_VALUE else max
    elif a_min is _NO_VALUE or a_max is _NO_VALUE:
        missing = "a_min" if a_min is _NO_VALUE else "a_max"
        raise TypeError(f"clip() missing 1 required positional argument: '{missing}'")
    elif min is not _NO_VALUE or max is not _NO_VALUE:
        raise ValueError(
            "Passing `min` or `max` keyword argument when `a_min` and `a_max` are provided is "
            "forbidden."
        )
    device = device_of(a, a_min, a_max)
    array = handle_of(a, device)
    low, high = copying.limits_of(array.dtype, a_min, a_max)
    if out is not None or kwargs or array.dtype.kind == "V":
        return copying.clip(array, low, high, out, **kwargs)
    if low is None and high is None:
        return wrap(record.unary(BY_NAME["positive"], array.node))
    if low is None:
        return wrap(record.binary(BY_NAME["minimum"], array.node, _limit(high, device)))
    if high is None:
        return wrap(record.binary(BY_NAME["maximum"], array.node, _limit(low, device)))
    low, high = _limit(low, device), _limit(high, device)
    return wrap(record.elementwise(BY_NAME["clip"], array.node, low, high))


def _limit(value: Any, device: Any) -> Any:
    return node_of(value, device) if isinstance(value, (list, tuple)) else as_operand(value, device)


@implements(np.nan_to_num)
def nan_to_num(
    x: Any, copy: bool = True, nan: Any = 0.0, posinf: Any = None, neginf: Any = None
) -> TiledArray:
    array = handle_of(x)
    if array.dtype.kind == "c":
        refuse(not copy, "copy=False of this array")
        parts = (nan_to_num(part, True, nan, posinf, neginf) for part in (array.real, array.imag))
        return wrap(record.binary(BY_NAME["make_complex"], *(part.node for part in parts)))
    if array.dtype.kind == "f":
        limits = np.finfo(array.dtype)
        high = limits.max if posinf is None else posinf
        low = limits.min if neginf is None else neginf
        dtype = array.dtype
        result = _choose(array != array, nan, array, dtype)
        result = _choose(array == np.inf, high, result, dtype)
        result = _choose(array == -np.inf, low, result, dtype)
    else:
        result = array.copy()
    if copy:
        return result
    array.store(result)
    return array


def _choose(condition: TiledArray, first: Any, second: TiledArray, dtype: Any) -> TiledArray:
    """Return ``first`` where the condition holds; of the dtype of ``second``."""
    if not is_ours(first):
        given = host(first)
        typed = np.empty(np.shape(given), dtype)
        np.copyto(typed, given)  # NumPy says whether it may be cast
        first = wrap(node_of(typed, second.device))
    return wrap(record.elementwise(
        BY_NAME["where"], condition.node, first.astype(dtype).node, second.node
    ))


# Parts of complex numbers -----------------------------------------------------------------------


@implements(np.real)
def real(val: Any) -> TiledArray:
    return _own_part(val, "real")


@implements(np.imag)
def imag(val: Any) -> TiledArray:
    return _own_part(val, "imag")


def _own_part(val: Any, part: str) -> Any:
    """A part of a number, which numbers have themselves, or of an array."""
    if isinstance(val, (int, float, complex)) and not isinstance(val, np.generic):
        return getattr(val, part)
    if isinstance(val, np.generic):
        return scalar(getattr(val, part), resolve())
    return getattr(handle_of(val), part)


@implements(np.angle)
def angle(z: Any, deg: bool = False) -> TiledArray:
    array = handle_of(z)
    if array.dtype.kind == "c":
        result = _U["arctan2"](array.imag, array.real)
    else:
        refuse(array.dtype.kind == "b", "booleans")
        zero = wrap(record.full((), 0, array.dtype, array.device))
        result = _U["arctan2"](zero, array)
    return result * (180 / np.pi) if deg else result


@implements(np.isreal)
def isreal(x: Any) -> TiledArray:
    return handle_of(x).imag == 0


@implements(np.iscomplex)
def iscomplex(x: Any) -> TiledArray:
    return handle_of(x).imag != 0


@implements(np.isrealobj)
def isrealobj(x: Any) -> bool:
    return not iscomplexobj(x)


@implements(np.iscomplexobj)
def iscomplexobj(x: Any) -> bool:
    return bool(x.dtype.kind == "c") if is_ours(x) else np.iscomplexobj(host(x))


@implements(np.real_if_close)
def real_if_close(a: Any, tol: float = 100) -> TiledArray:
    array = handle_of(a)
    if array.dtype.kind != "c":
        return array
    bound = tol * np.finfo(array.dtype).eps if tol > 1 else tol
    return array.real if bool((abs(array.imag) < bound).all()) else array


def _infinite(original: Callable[..., Any], bound: float) -> Callable[..., Any]:
    def ours(x: Any, out: Any = None) -> TiledArray:
        array = handle_of(x)
        if array.dtype.kind == "c":
            raise TypeError(
                f"This operation is not supported for {array.dtype} values because it would be "
                "ambiguous."
            )
        infinite, sign = _U["isinf"](array), _U["signbit"](array)
        return _U["logical_and"](infinite, sign if bound < 0 else ~sign, out=out)

    return implements(original)(ours)


isposinf = _infinite(np.isposinf, np.inf)
isneginf = _infinite(np.isneginf, -np.inf)


# Special functions --------------------------------------------------------------------------------


@implements(np.sinc)
def sinc(x: Any) -> TiledArray:
    array = handle_of(x)
    y = np.pi * array
    if any_keeps([array]):
        return _sinc_by_series(y)
    # As NumPy: zero is replaced by something so small that sin(y) / y is one.
    tiny = np.finfo(y.dtype).eps if y.dtype.kind in "fc" else 1e-20
    y = wrap(record.elementwise(BY_NAME["where"], y.node, y.node, as_operand(
        y.dtype.type(tiny), y.device)))
    return _U["sin"](y) / y


def _sinc_by_series(y: Any) -> TiledArray:
    """Return ``sin(y) / y`` with derivatives near 0, where those of the quotient cancel."""
    near = abs(y) < 0.1
    square = y * y
    series = 1 - square / 6 * (1 - square / 20 * (1 - square / 42 * (1 - square / 72)))
    far = np.where(near, 1.0, y)
    result: TiledArray = np.where(near, series, np.sin(far) / far)
    return result


@implements(np.polyval)
def polyval(p: Any, x: Any) -> TiledArray:
    refuse(isinstance(p, np.poly1d) or isinstance(x, np.poly1d), "a poly1d")
    coefficients, places = handle_of(p, device_of(p, x)), handle_of(x, device_of(p, x))
    values = p if isinstance(p, (list, tuple)) else [
        coefficients[place] for place in range(len(coefficients))
    ]
    kind = coefficients.dtype.type
    # A degree below a thousand, so that Horner's rule is one chain of ops.
    refuse(
        coefficients.ndim != 1 or len(values) > 1000,
        "coefficients in a table, or too many points",
    )
    result = wrap(record.full(places.shape, 0, places.dtype, places.device))
    for value in values:
        result = result * places + (value if is_ours(value) else kind(value))
    return result


# Comparisons with a tolerance -----------------------------------------------------------------


def _inexact(value: Any) -> Any:
    """Return integers as floats: abs(the least int) and unsigned differences come out right."""
    if type(value) in (bool, int):
        return float(value)
    if is_ours(value) and value.dtype.kind in "iub":
        return value.astype(np.result_type(value.dtype, 1.0))
    return value


@implements(np.isclose)
def isclose(
    a: Any, b: Any, rtol: Any = 1e-05, atol: Any = 1e-08, equal_nan: bool = False
) -> TiledArray:
    x = a if type(a) in SCALARS else handle_of(a, device_of(a, b))
    y = b if type(b) in SCALARS else handle_of(b, device_of(a, b))
    if not is_ours(x):
        x, y = arrays_of(x, y)
    y = _inexact(y)
    close = _U["less_equal"](abs(x - y), atol + rtol * abs(y))
    result = close & _U["isfinite"](y) | _U["equal"](x, y)
    if equal_nan:
        result = result | (_U["isnan"](x) & _U["isnan"](y))
    return result


@implements(np.allclose)
def allclose(
    a: Any, b: Any, rtol: Any = 1e-05, atol: Any = 1e-08, equal_nan: bool = False
) -> bool:
    return bool(isclose(a, b, rtol, atol, equal_nan).all())


@implements(np.array_equal)
def array_equal(a1: Any, a2: Any, equal_nan: bool = False) -> bool:
    try:
        x, y = arrays_of(a1, a2)
    except LeaveToNumPy:
        raise  # NumPy can compare them
    except (ValueError, TypeError):
        return False
    if x.shape != y.shape:
        return False
    same = x == y
    if equal_nan:
        same = same | ((x != x) & (y != y))
    return bool(same.all())


@implements(np.array_equiv)
def array_equiv(a1: Any, a2: Any) -> bool:
    try:
        x, y = arrays_of(a1, a2)
        broadcast(x.shape, y.shape)
    except LeaveToNumPy:
        raise
    except (ValueError, TypeError):
        return False
    return bool((x == y).all())
