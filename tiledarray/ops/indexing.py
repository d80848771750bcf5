"""Indexing by arrays, sorting, running totals: library calls.

``attrs`` of `take` and `put` is a template of the index: ``":"`` for a whole axis, ``"new"`` for a
new axis, ``"at"`` for the next of the index inputs (an array, or an int).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tiledarray.ops.op import Library


def _index(template: Sequence[str], places: Sequence[Any]) -> tuple[Any, ...]:
    """Return the index tuple of a template and its index inputs."""
    remaining = iter(places)
    parts: dict[str, Any] = {":": slice(None), "new": None}
    return tuple(next(remaining) if part == "at" else parts[part] for part in template)


def _take(xp: Any, array: Any, *places: Any, attrs: Any, shape: Any, dtype: Any) -> Any:
    return array[_index(attrs, places)]


def _put(xp: Any, old: Any, new: Any, *places: Any, attrs: Any, shape: Any, dtype: Any) -> Any:
    result = xp.array(old, copy=True)
    result[_index(attrs, places)] = new
    return result


def _sort(xp: Any, array: Any, *, attrs: Any, shape: Any, dtype: Any) -> Any:
    axis, kind = attrs
    return xp.sort(array, axis=axis, kind=kind)


def _argsort(xp: Any, array: Any, *, attrs: Any, shape: Any, dtype: Any) -> Any:
    axis, kind = attrs
    return xp.argsort(array, axis=axis, kind=kind)


def _running(name: str) -> Any:
    def reference(xp: Any, array: Any, *, attrs: Any, shape: Any, dtype: Any) -> Any:
        return getattr(xp, name)(array, axis=attrs, dtype=dtype)

    return reference


def _reinterpret(xp: Any, array: Any, *, attrs: Any, shape: Any, dtype: Any) -> Any:
    return xp.ascontiguousarray(array).view(dtype).reshape(shape)


def _add_at(xp: Any, old: Any, new: Any, *places: Any, attrs: Any, shape: Any, dtype: Any) -> Any:
    result = xp.array(old, copy=True)
    xp.add.at(result, _index(attrs, places), new)
    return result


take = Library("take", _take, vjp=("add_at(zeros_of(x), g, inputs[1:], attrs)",),
               batch="taken(call)")
# Where a place is written twice, the last value counts.
put = Library("put", _put, vjp=(
    "put(g, 0, inputs[2:], attrs)", "taken_last(g, x, y, inputs[2:], attrs)"),
    batch="written(call)")
# `put` that adds, at repeated places too.
add_at = Library("add_at", _add_at, vjp=("g", "take(g, inputs[2:], attrs)"),
                 batch="written(call)")
sort = Library("sort", _sort, vjp=("unsorted(g, argsort(x, attrs[0], attrs[1]), attrs[0])",),
               batch="call.again((shifted(attrs[0]), attrs[1]))")
argsort = Library("argsort", _argsort, batch="call.again((shifted(attrs[0]), attrs[1]))")
cumsum = Library("cumsum", _running("cumsum"), vjp=("sums_from(g, attrs)",),
                 batch="call.again(shifted(attrs))")
cumprod = Library("cumprod", _running("cumprod"), vjp=("products_from(g, x, attrs)",),
                  batch="call.again(shifted(attrs))")
reinterpret = Library("reinterpret", _reinterpret, vjp=("reinterpreted(g, x)",),
                      batch="call.again()")
