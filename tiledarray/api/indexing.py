"""Choosing, gathering and writing elements."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tiledarray.api import placing, ufuncs
from tiledarray.api.arguments import (
    TiledArray,
    arrays_of,
    device_of,
    give,
    handle_of,
    host,
    is_ours,
    node_of,
    normalize_axis_index,
    refuse,
)
from tiledarray.api.creation import asarray
from tiledarray.api.joining import concatenate
from tiledarray.api.progressions import arange
from tiledarray.api.registry import implements
from tiledarray.arrays import by_numpy, by_places, immediate, looking
from tiledarray.arrays.handle import (
    SCALARS,
    Handle,
    array_of,
    as_operand,
    is_recorded,
    stands_for_scalar,
    taken_out,
    view_of,
    wrap,
)
from tiledarray.arrays.selections import of_each
from tiledarray.arrays.tracing import is_tracing, may_look
from tiledarray.arrays.views import Affine, overlaps
from tiledarray.devices.device import resolve
from tiledarray.graph.node import Node
from tiledarray.ops.elementwise import BY_NAME
from tiledarray.ops.library import BY_NAME as LIBRARY
from tiledarray.ops.library import options
from tiledarray.recording import record

__all__ = [
    "tril_indices_from", "triu_indices_from",
    "put", "place", "put_along_axis",
    "where", "nonzero", "flatnonzero", "argwhere", "select", "choose", "piecewise", "take",
    "take_along_axis", "compress", "extract", "copyto", "putmask", "fill_diagonal", "ix_",
    "diag_indices", "diag_indices_from", "tril_indices", "triu_indices", "unravel_index", "r_",
    "c_",
]

_U = ufuncs.BY_NAME
_WHERE = BY_NAME["where"]


def _operand(value: Any, device: Any) -> Any:
    return node_of(value, device) if isinstance(value, (list, tuple)) else as_operand(value, device)


@implements(np.where)
@of_each
def where(condition: Any, *choices: Any) -> Any:
    if not choices:
        return nonzero(condition)
    if len(choices) != 2:
        raise ValueError("either both or neither of x and y should be given")
    device = condition.node.device if is_ours(condition) else device_of(condition, choices)
    mask = handle_of(condition, device)
    # A foreign choice may write into ours as it becomes an array.
    given = [value if is_ours(value) else _operand(value, device) for value in choices]
    first, second = (value.node if is_ours(value) else value for value in given)
    return array_of(record.elementwise(_WHERE, mask.node, first, second))


@implements(np.nonzero)
def nonzero(a: Any) -> tuple[TiledArray, ...]:
    array = handle_of(a)
    if array.ndim == 0:
        np.nonzero(np.float64(0))  # raises
    return looking.nonzero(array)


@implements(np.flatnonzero)
def flatnonzero(a: Any) -> TiledArray:
    return nonzero(handle_of(a).reshape(-1))[0]


@implements(np.argwhere)
def argwhere(a: Any) -> TiledArray:
    array = handle_of(a)
    refuse(array.ndim == 0, "an array without axes")
    return np.stack(nonzero(array), axis=-1)


@implements(np.select)
def select(condlist: Sequence[Any], choicelist: Sequence[Any], default: Any = 0) -> TiledArray:
    if len(condlist) != len(choicelist):
        raise ValueError("list of cases must be same length as list of conditions")
    if not condlist:
        raise ValueError("select with an empty condition list is not possible")
    device = device_of(condlist, choicelist, default)
    masks = [handle_of(condition, device) for condition in condlist]
    for place, mask in enumerate(masks):
        if mask.dtype != bool:
            raise TypeError(
                f"invalid entry {place} in condlist: should be boolean ndarray"
            )
    values = [_operand(value, device) for value in (*choicelist, default)]
    dtype = np.result_type(*(getattr(value, "dtype", value) for value in values))
    refuse(dtype.kind not in "biufc", "strings, times or objects")
    axes = min(1, max(len(getattr(value, "shape", ())) for value in values))
    result = _as_choice(values[-1], dtype, axes, "unsafe", device)
    for mask, value in zip(reversed(masks), reversed(values[:-1]), strict=True):
        choice = _as_choice(value, dtype, axes, "same_kind", device)
        result = record.elementwise(_WHERE, mask.node, choice, result)
    return array_of(result)


def _as_choice(value: Any, dtype: np.dtype[Any], axes: int, casting: Any, device: Any) -> Node:
    """Return a choice as a node of the result's dtype; NumPy says whether a scalar may be cast."""
    if type(value) is Node:
        return record.cast(value, dtype)
    sample = np.empty((1,) * axes, dtype)
    np.copyto(sample, np.asarray(value).reshape(sample.shape), casting)
    return record.full((), sample.item(), dtype, device)


@implements(np.choose)
def choose(a: Any, choices: Any, out: Any = None, mode: str = "raise") -> TiledArray:
    places = handle_of(a)
    refuse(out is not None, "out= is cast unsafely")
    refuse(isinstance(choices, (Handle, np.ndarray)) or not len(choices), "choices in one array")
    refuse(places.dtype.kind not in "biu" or places.dtype == np.uint64, "not signed integers")
    options_given = arrays_of(*choices)
    count = len(options_given)
    places = places.astype(np.intp)
    if mode == "raise" and not may_look([places]):
        refuse(not by_places.any_keeps(*options_given), "the places have no values here")
        places = by_numpy.call("choose", np.choose, (places, [*range(count)]))  # it checks them
    elif mode == "raise":
        if bool(((places < 0) | (places >= count)).any()):
            raise ValueError("invalid entry in choice array")
    elif mode == "wrap":
        places = places % count
    elif mode == "clip":
        places = np.clip(places, 0, count - 1)
    else:
        refuse(True, "an unknown mode")
    dtype = np.result_type(*(
        option if type(option) in SCALARS else ours.dtype
        for option, ours in zip(choices, options_given, strict=True)
    ))
    result = options_given[-1].astype(dtype)
    for place, option in reversed(list(enumerate(options_given[:-1]))):
        mask = (places == place).node
        option = option.astype(dtype)
        result = wrap(record.elementwise(_WHERE, mask, option.node, result.node))
    shape = np.broadcast_shapes(places.shape, result.shape)
    return wrap(record.broadcast_to(result.node, shape))


@implements(np.piecewise)
def piecewise(x: Any, condlist: Any, funclist: Any, *args: Any, **kw: Any) -> TiledArray:
    array = handle_of(x)
    if hasattr(condlist, "ndim") and condlist.ndim <= 1 and array.ndim:
        condlist = [condlist]
    refuse(
        not isinstance(condlist, (list, tuple)) or not condlist,
        "conditions in something else than a list",
    )
    if np.isscalar(condlist[0]) or (isinstance(condlist[0], list) and array.ndim):
        refuse(True, "one condition as a scalar or a list")
    masks = [handle_of(mask, array.device).astype(bool) for mask in condlist]
    if len(funclist) == len(masks) + 1:
        others = masks[0]
        for mask in masks[1:]:
            others = others | mask
        masks.append(~others)
    elif len(funclist) != len(masks):
        raise ValueError(
            f"with {len(masks)} condition(s), either {len(masks)} or {len(masks) + 1} functions "
            "are expected"
        )
    # Functions get only the elements of their part, so the masks are looked at.
    result = wrap(record.full(array.shape, 0, array.dtype, array.device))
    for mask, function in zip(masks, funclist, strict=True):
        if not callable(function):
            result[mask] = function
        else:
            chosen = array[mask]
            if chosen.size:
                result[mask] = function(chosen, *args, **kw)
    return result


# Gathering --------------------------------------------------------------------------------------


@implements(np.take, "library")
def take(a: Any, indices: Any, axis: Any = None, out: Any = None, mode: str = "raise") -> Any:
    device = device_of(a, indices)
    array = handle_of(a, device)
    if axis is None or array.ndim == 0:
        array, axis = array.reshape(-1), 0 if axis is None else axis
    axis = normalize_axis_index(axis, array.ndim)
    places = indices if is_ours(indices) else np.asarray(indices)
    if places.dtype.kind not in "iu":
        refuse(places.dtype.kind != "b" and places.size != 0, "indices are not integers")
        places = places.astype(np.intp)
    size = array.shape[axis]
    refuse(
        (size == 0 and places.size != 0) or mode not in ("raise", "wrap", "clip"),
        "nothing to take from, or an unknown mode",
    )
    refuse(
        out is not None and getattr(out, "dtype", None) != array.dtype, "out= of another dtype"
    )
    if mode != "raise" and places.dtype.itemsize < np.dtype(np.intp).itemsize:
        places = places.astype(np.intp)  # the axis may be longer than theirs holds
    if mode == "clip":
        places = np.clip(places, 0, size - 1)
    elif mode == "wrap":
        places = places % size
    key = (*(slice(None),) * axis, places)
    return give(array[key], out)


@implements(np.take_along_axis, "library")
def take_along_axis(arr: Any, indices: Any, axis: Any = -1) -> TiledArray:
    array, places = arrays_of(arr, indices)
    if axis is None:
        if places.ndim != 1:
            raise ValueError("when axis=None, `indices` must have a single dimension.")
        array, axis = array.reshape(-1), 0
    if places.dtype.kind not in "iu":
        raise IndexError("`indices` must be an integer array")
    axis = normalize_axis_index(axis, array.ndim)
    if array.ndim != places.ndim:
        raise ValueError("`indices` and `arr` must have the same number of dimensions")
    sizes = [list(array.shape), list(places.shape)]
    sizes[0][axis] = sizes[1][axis] = 1
    shape = list(np.broadcast_shapes(*map(tuple, sizes)))
    shape[axis] = places.shape[axis]
    nodes = (array.node, places.node)
    return wrap(record.library(
        LIBRARY["take_along_axis"], nodes, options(axis=axis), tuple(shape), array.dtype
    ))


@implements(np.compress)
def compress(condition: Any, a: Any, axis: Any = None, out: Any = None) -> TiledArray:
    mask = np.asarray(host(condition))
    if mask.ndim != 1:
        raise ValueError("condition must be a 1-d array")
    return take(a, np.flatnonzero(mask), axis, out)


@implements(np.extract)
def extract(condition: Any, arr: Any) -> TiledArray:
    return take(handle_of(arr).reshape(-1), flatnonzero(condition))


# Writing ------------------------------------------------------------------------------------------


def _changing(
    original: Callable[..., Any], recorded: Callable[..., Any]
) -> Callable[..., Any]:
    """Make a function that changes its first argument on the host.

    ``recorded`` does so by operations, where a history is wanted and the places have no values.
    """

    def ours(*args: Any, **kwargs: Any) -> Any:
        if len(args) > 2 and is_ours(args[0]) and by_places.any_keeps(
                args[0], *by_numpy.handles_in(args[2])):
            if not may_look(by_numpy.handles_in(args[1])):
                recorded(*args, **kwargs)
                return
            function = functools.partial(_with_rest, original, args[3:], kwargs)
            by_places.change(function, args[0], args[1:3])
            return
        refuse(True, "writes at places that depend on values")

    return implements(original, "fallback")(ours)


def _with_rest(original: Callable[..., Any], rest: Any, kwargs: Any, *args: Any) -> None:
    original(*args, *rest, **kwargs)


put = _changing(np.put, placing.put)
place = _changing(np.place, placing.place)
put_along_axis = _changing(np.put_along_axis, placing.put_along_axis)


@implements(np.copyto)
def copyto(dst: Any, src: Any, casting: Any = "same_kind", where: Any = True) -> None:
    if type(dst) is np.ndarray and not is_tracing():
        values, mask = (taken_out(each, "copyto()") if is_ours(each) else each
                        for each in (src, where))
        np.copyto(dst, values, casting, mask)
        return
    refuse(not is_ours(dst), "writes into an array of NumPy's")
    source: Any = src if type(src) in (bool, int, float, complex) else handle_of(src, dst.device)
    if not is_ours(source):
        source, plain = np.empty((), dst.dtype), source
        np.copyto(source, plain, casting)  # NumPy says whether it may be written
        source = handle_of(source, dst.device)
    elif not np.can_cast(source.dtype, dst.dtype, casting):
        what = "array data" if source.ndim else "scalar"
        raise TypeError(
            f"Cannot cast {what} from {source.dtype!r} to {dst.dtype!r} according to the rule "
            f"'{casting}'"
        )
    if where is True and source is not dst:
        dst[...] = source
        return
    mask = handle_of(where, dst.device)
    if mask.dtype.kind != "b" and hasattr(where, "dtype"):
        raise TypeError(
            f"Cannot cast array data from {mask.dtype!r} to dtype('bool') according to the rule "
            "'safe'"
        )
    if source is dst:  # nothing to do, and no error where it may not be written
        return
    if overlaps(dst.steps):  # `putmask` and `place` write a copy, and that back
        by_places.change(lambda places, mask, values: np.copyto(places, values, where=mask),
                         dst, (mask, source))
        return
    placing.write_where(dst, mask, source.astype(dst.dtype))


@implements(np.putmask)
def putmask(a: Any, mask: Any, values: Any) -> None:
    several = isinstance(values, (list, tuple)) or np.ndim(values) != 0
    if several and is_ours(a) and by_places.any_keeps(a, *by_numpy.handles_in(values)):
        if may_look(by_numpy.handles_in(mask)):
            by_places.change(np.putmask, a, (mask, values))
        else:
            placing.putmask(a, mask, values)
        return
    refuse(not is_ours(a) or several, "several values")
    holds = handle_of(mask, a.device)
    if holds.size != a.size:
        raise ValueError("putmask: mask and data must be the same size")
    if not np.can_cast(getattr(values, "dtype", a.dtype), a.dtype, "safe") and not (
        stands_for_scalar(values) if is_ours(values) else isinstance(values, np.generic)
    ):
        raise TypeError(
            f"Cannot cast scalar from {values.dtype!r} to {a.dtype!r} according to the rule 'safe'"
        )
    if type(values) in SCALARS:
        values = np.array(values, a.dtype)
    holds = holds.reshape(a.shape).astype(bool, copy=False)
    placing.write_where(a, holds, handle_of(values, a.device).astype(a.dtype))


@implements(np.fill_diagonal)
def fill_diagonal(a: Any, val: Any, wrap: bool = False) -> None:
    several = isinstance(val, (list, tuple)) or np.ndim(val) != 0
    if (several or wrap) and is_ours(a) and is_recorded([a, val]):
        by_places.change(
            functools.partial(np.fill_diagonal, wrap=wrap), a, (handle_of(val, a.device),))
        return
    refuse(not is_ours(a) or wrap or several, "several values, or wrap=")
    if a.ndim < 2:
        raise ValueError("array must be at least 2-d")
    shape = a.shape
    if a.ndim > 2 and len(set(shape)) != 1:
        raise ValueError("All dimensions of input must be of equal length")
    length = min(shape)
    step = Affine((0,) * a.ndim, (1,) * a.ndim, (0,) * a.ndim, (length,))
    view_of(a, step)[...] = val


# Index arrays -----------------------------------------------------------------------------------


@implements(np.ix_)
def ix_(*args: Any) -> tuple[TiledArray, ...]:
    results = []
    for place, sequence in enumerate(args):
        part = handle_of(sequence if isinstance(sequence, Handle) else asarray(sequence))
        if part.ndim != 1:
            raise ValueError("Cross index must be 1 dimensional")
        if part.size == 0 and not isinstance(sequence, (Handle, np.ndarray)):
            part = part.astype(np.intp)
        if part.dtype.kind == "b":
            (part,) = nonzero(part)
        shape = [1] * len(args)
        shape[place] = part.shape[0]
        results.append(part.reshape(shape))
    return tuple(results)


@implements(np.diag_indices)
def diag_indices(n: Any, ndim: int = 2) -> tuple[TiledArray, ...]:
    return (arange(operator.index(n)),) * ndim


@implements(np.diag_indices_from)
def diag_indices_from(arr: Any) -> tuple[TiledArray, ...]:
    array = handle_of(arr)
    if array.ndim < 2:
        raise ValueError("input array must be at least 2-d")
    if len(set(array.shape)) != 1:
        raise ValueError("All dimensions of input must be of equal length")
    return diag_indices(array.shape[0], array.ndim)


def _triangle_indices(original: Callable[..., Any]) -> Callable[..., Any]:
    def ours(n: Any, k: int = 0, m: Any = None) -> tuple[TiledArray, ...]:
        device = resolve()
        return tuple(
            wrap(record.leaf(device.wrap(part, copy=True))) for part in original(n, k, m)
        )

    return implements(original, "host")(ours)


tril_indices = _triangle_indices(np.tril_indices)
triu_indices = _triangle_indices(np.triu_indices)


def _triangle_indices_from(original: Callable[..., Any], indices: Any) -> Callable[..., Any]:
    def ours(arr: Any, k: int = 0) -> tuple[TiledArray, ...]:
        array = handle_of(arr)
        if array.ndim != 2:
            raise ValueError("input array must be 2-d")
        return indices(array.shape[0], k=k, m=array.shape[1])

    return implements(original, "host")(ours)


tril_indices_from = _triangle_indices_from(np.tril_indices_from, tril_indices)
triu_indices_from = _triangle_indices_from(np.triu_indices_from, triu_indices)


@implements(np.unravel_index)
def unravel_index(indices: Any, shape: Any, order: str = "C") -> Any:
    refuse(
        order != "C" or not is_ours(indices) or indices.ndim == 0,
        "order= is given, or not an array of ours",
    )
    sizes = tuple(int(size) for size in (shape if isinstance(shape, (tuple, list)) else (shape,)))
    refuse(indices.dtype.kind not in "iu" or 0 in sizes, "not integers, or an axis of length 0")
    total = int(np.prod(sizes, dtype=object))
    refuse(not may_look([indices]), "the indices have no values here")
    if bool(((indices < 0) | (indices >= total)).any()):
        np.unravel_index(host(indices), sizes)  # raises, naming the index
    rest = indices.astype(np.intp)
    results = []
    for size in reversed(sizes[1:]):
        results.append(rest % size)
        rest = rest // size
    return (rest, *reversed(results))


class _Joiner:
    """`numpy.r_` and `numpy.c_`: NumPy's rules for the slices, arrays of ours as the result."""

    def __init__(self, original: Any, column: bool) -> None:
        self._original = original
        self._column = column
        self._at_once = immediate.item(original, self._joined)

    def __getitem__(self, key: Any) -> Any:
        """Return the joined array."""
        return self._at_once(key)

    def _joined(self, key: Any) -> Any:
        items = key if isinstance(key, tuple) else (key,)
        if not self._column and all(is_ours(item) and item.ndim == 1 for item in items):
            return concatenate(items)
        if self._column and all(is_ours(item) and item.ndim == 1 for item in items):
            return concatenate([item[:, None] for item in items], 1)
        name = "c_" if self._column else "r_"
        return by_numpy.call(name, self._original.__getitem__, (key,))


r_ = _Joiner(np.r_, column=False)
c_ = _Joiner(np.c_, column=True)

