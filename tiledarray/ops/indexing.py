"""Indexing by arrays, sorting: library calls.

``attrs`` of `take` and `put` is a template of the index: ``":"`` for a whole axis, ``"new"`` for a
new axis, ``"at"`` for the next of the index inputs (an array, or an int).
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from tiledarray import config
from tiledarray.ops.op import Gather, Library, Parts
from tiledarray.ops.parts import ARGSORTS, SORTS

BLOCK = 1 << 15  # places that are looked at together


def beyond(position: int, axis: int, size: int) -> IndexError:
    """Return NumPy's error of an index that is beyond its axis."""
    return IndexError(f"index {position} is out of bounds for axis {axis} with size {size}")


def fault_of(places: Any, axis: int, size: int) -> IndexError | None:
    """Return the error of an index array, if one of its elements is beyond the axis."""
    places = _signed(places)
    if type(places) is not np.ndarray and not _some_beyond([(places, size)]):
        return None
    if places.size:
        low, high = _extent(places)
        if low < -size or high >= size:
            return beyond(int(places[(places < -size) | (places >= size)][0]), axis, size)
    return None


def _signed(places: Any) -> Any:
    """Return places as NumPy reads them: it takes the largest ones for negative ones."""
    return places.view(np.int64) if places.dtype == np.uint64 else places


def _extent(places: Any) -> tuple[int, int]:
    """Return the least and the largest of some places."""
    if type(places) is not np.ndarray or places.size <= BLOCK or not places.flags.c_contiguous:
        return int(places.min()), int(places.max())
    flat = places.reshape(-1)
    parts = [flat[at:at + BLOCK] for at in range(0, flat.size, BLOCK)]  # in the cache for both
    extents = [(int(part.min()), int(part.max())) for part in parts]
    return min(low for low, _ in extents), max(high for _, high in extents)


def _index(
    xp: Any, shape: Sequence[int], template: Sequence[str], places: Sequence[Any]
) -> tuple[Any, ...]:
    """Return the index tuple of a template and its index inputs.

    NumPy looks for what is beyond its axis; CuPy takes it from the axis' other end.
    """
    remaining = iter(places)
    parts: dict[str, Any] = {":": slice(None), "new": None}
    index = tuple(next(remaining) if part == "at" else parts[part] for part in template)
    if xp is not np and 0 not in _index_shape(places):
        sizes = zip((part for part in index if part is not None), shape, strict=False)
        arrays = [(axis, part, size) for axis, (part, size) in enumerate(sizes)
                  if hasattr(part, "min")]
        if _some_beyond([(_signed(part), size) for _, part, size in arrays]):
            faults = (fault_of(part, axis, size) for axis, part, size in arrays)
            fault = next(filter(None, faults), None)
            if fault is not None:
                raise fault
    return index


class _Note(threading.local):
    """Memory of the host in which kernels of this thread note that a place is beyond its axis."""

    def __init__(self) -> None:
        self._by_device: dict[int, tuple[Any, Any]] = {}

    def on(self, xp: Any) -> tuple[Any, Any]:
        """Return it as an array of NumPy's and as one of the current device's."""
        device = xp.cuda.runtime.getDevice()
        if device not in self._by_device:
            pinned = xp.cuda.alloc_pinned_memory(np.dtype(np.int32).itemsize)
            there = xp.cuda.MemoryPointer(
                xp.cuda.UnownedMemory(pinned.ptr, pinned.size(), pinned, device), 0)
            self._by_device[device] = (
                np.frombuffer(pinned, np.int32, 1), xp.ndarray((1,), np.int32, there))
        return self._by_device[device]


_note = _Note()


def _some_beyond(checked: Sequence[tuple[Any, int]]) -> bool:
    """Whether some of the places are beyond the axes of these lengths.

    On a GPU a kernel for each array notes it where the host reads it: this waits for the device
    once.  What a kernel notes for whom a signal kept from waiting is taken for a note of the next;
    whoever is told so looks again.
    """
    if not all(hasattr(places, "__cuda_array_interface__") for places, _ in checked):
        return any(bool(((places < -size) | (places >= size)).any()) for places, size in checked)
    import cupy as xp  # the places are its arrays

    noted, there = _note.on(xp)
    noted[0] = 0
    look = _look_at_places(xp)
    for places, size in checked:
        if places.size:
            look(places, size, there)
    xp.cuda.get_current_stream().synchronize()
    return bool(noted[0])


@cache
def _look_at_places(xp: Any) -> Any:
    return xp.ElementwiseKernel(
        "T place, int64 size", "raw int32 noted",
        "if ((long long)place < -size || (long long)place >= size) noted[0] = 1;",
        "ta_look_at_places")


def _index_shape(places: Sequence[Any]) -> tuple[int, ...]:
    return np.broadcast_shapes(*(getattr(part, "shape", ()) for part in places))


def _take(xp: Any, array: Any, *places: Any, attrs: Any, shape: Any, dtype: Any) -> Any:
    if xp is np and len(places) == 1 and hasattr(places[0], "dtype") and "new" not in attrs:
        axis = attrs.index("at")
        if fault_of(places[0], axis, array.shape[axis]) is None:
            return array.take(places[0].astype(np.intp, copy=False), axis)  # twice as quick
    return array[_index(xp, array.shape, attrs, places)]


def _take_into(out: Any, array: Any, places: Any, *, attrs: Any) -> None:
    axis = attrs.index("at")
    fault = fault_of(places, axis, array.shape[axis])
    if fault is not None:
        raise fault
    array.take(places.astype(np.intp, copy=False), axis, out=out, mode="wrap")


def _check_places(xp: Any, places: Any, *, attrs: Any, shape: Any, dtype: Any) -> Any:
    """Raise NumPy's error where an index array is beyond an axis of a length."""
    axis, size = attrs
    fault = fault_of(places, axis, size)
    if fault is None:
        return xp.zeros(shape, dtype)
    if xp is np:  # NumPy says which of them it is that it met
        np.broadcast_to(False, (*(1,) * axis, size))[(slice(None),) * axis + (places,)]
    raise fault


def _gathered(xp: Any, array: Any, places: Any, checked: Any, *, attrs: Any, shape: Any,
              dtype: Any) -> Any:
    axis, along = attrs
    function = xp.take_along_axis if along else xp.take
    return function(array, places.astype(np.intp, copy=False), axis=axis)


def _put_into(xp: Any, old: Any, new: Any, *places: Any, attrs: Any) -> None:
    index = _index(xp, old.shape, attrs, places)
    if xp is not np and getattr(new, "size", 1) > 1:
        new = _last_of_each(xp, old.shape, index, new)
    old[index] = new


def _copied(into: Callable[..., None]) -> Callable[..., Any]:
    """Return what does the same in a copy of its first input."""
    def reference(xp: Any, old: Any, *inputs: Any, attrs: Any, shape: Any, dtype: Any) -> Any:
        result = xp.array(old, copy=True)
        into(xp, result, *inputs, attrs=attrs)
        return result

    return reference


def _last_of_each(xp: Any, shape: Sequence[int], index: tuple[Any, ...], values: Any) -> Any:
    """Return the values with the last one wherever a place comes again.

    A GPU writes what goes to one place in any order, so it is given one value for each place.
    """
    axes = [axis for axis, part in enumerate(part for part in index if part is not None)
            if type(part) is not slice]
    arrays = [part for part in index if part is not None and type(part) is not slice]
    among = _index_shape(arrays)
    flat = xp.zeros(among, np.int64)
    for axis, part in zip(axes, arrays, strict=True):
        flat = flat * shape[axis] + part % shape[axis]
    flat = flat.reshape(-1)
    order = xp.arange(flat.size, dtype=np.uint64)
    last = xp.zeros(math.prod(shape[axis] for axis in axes), np.uint64)
    xp.maximum.at(last, flat, order)
    winners = last[flat]
    if bool((winners == order).all()):
        return values
    before, after = _around(shape, index)
    whole = xp.broadcast_to(values, (*before, *among, *after))
    whole = whole.reshape(*before, flat.size, *after)
    return xp.take(whole, winners.astype(np.int64), axis=len(before)).reshape(
        *before, *among, *after)


def _around(
    shape: Sequence[int], index: tuple[Any, ...]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the result's axes before and after those of the index arrays, as NumPy lays it out."""
    sizes = iter(shape)
    kept: list[int] = []
    runs: list[int] = []  # how many axes were kept before each of the arrays
    for part in index:
        if part is None:
            kept.append(1)
            continue
        size = next(sizes)
        if type(part) is slice:
            kept.append(size)
        else:
            runs.append(len(kept))
    place = runs[0] if len(set(runs)) == 1 else 0
    return tuple(kept[:place]), tuple(kept[place:])


def _sort(xp: Any, array: Any, *, attrs: Any, shape: Any, dtype: Any) -> Any:
    axis, kind = attrs
    return xp.sort(array, axis=axis, kind=kind)


def _argsort(xp: Any, array: Any, *, attrs: Any, shape: Any, dtype: Any) -> Any:
    axis, kind = attrs
    return xp.argsort(array, axis=axis, kind=kind)


def _reinterpret(xp: Any, array: Any, *, attrs: Any, shape: Any, dtype: Any) -> Any:
    if xp is np and (array.dtype.itemsize == dtype.itemsize
                     or (array.ndim and array.strides[-1] == array.dtype.itemsize)):
        return array.view(dtype).reshape(shape)
    dense = array if array.flags.c_contiguous else array.copy(order="C")
    return dense.view(dtype).reshape(shape)


def _add_at_into(xp: Any, old: Any, new: Any, *places: Any, attrs: Any) -> None:
    index = _index(xp, old.shape, attrs, places)
    if xp is np:
        np.add.at(old, index, new)
    else:
        _add_at_far(xp, old, new, index)


def _add_at_far(xp: Any, old: Any, new: Any, index: tuple[Any, ...]) -> None:
    """Add where CuPy knows no complex numbers, and of integers only wide ones."""
    dtype = old.dtype
    if dtype.kind == "c":
        new = xp.asarray(new)
        re, im = xp.array(old.real, copy=True), xp.array(old.imag, copy=True)
        _add_at_far(xp, re, new.real, index)
        _add_at_far(xp, im, new.imag, index)
        old.real, old.imag = re, im
    elif dtype.kind in "biu" and dtype.itemsize < 4:
        wide = old.astype(np.int32)
        xp.add.at(wide, index, xp.asarray(new).astype(np.int32))
        old[...] = wide.astype(dtype)
    elif dtype.kind == "f" and config.deterministic:
        _add_in_order(xp, old, new, index)
    else:
        xp.add.at(old, index, new)


def _add_in_order(xp: Any, old: Any, new: Any, index: tuple[Any, ...]) -> None:
    """Add what comes to each place one after the other, as NumPy does; CuPy in any order."""
    places = xp.arange(old.size).reshape(old.shape)[index]
    values = xp.broadcast_to(xp.asarray(new), places.shape).ravel().astype(old.dtype)
    order = xp.argsort(places.ravel(), kind="stable")
    places = places.ravel()[order]
    if not places.size:
        return
    begins = xp.flatnonzero(xp.concatenate([xp.ones(1, bool), places[1:] != places[:-1]]))
    ends = xp.concatenate([begins[1:], xp.full(1, places.size)])
    total = xp.ElementwiseKernel(
        "T before, int64 begin, int64 end, raw int64 order, raw T values", "T total",
        "total = before; for (long long k = begin; k < end; ++k) total += values[order[k]];",
        "ta_add_in_order")
    where = xp.unravel_index(places[begins], old.shape)
    old[where] = total(old[where], begins, ends, order, values)


take = Library("take", _take, vjp=("add_at(zeros_of(x), g, inputs[1:], attrs)",),
               batch="taken(call)", parts=Parts("places", into=_take_into))
gather = Gather("gather", _gathered)
check_places = Library("check_places", _check_places)
# Where a place is written twice, the last value counts.
put = Library("put", _copied(_put_into), in_place=_put_into, vjp=(
    "put(g, 0, inputs[2:], attrs)", "taken_last(g, x, y, inputs[2:], attrs)"),
    batch="written(call)")
# `put` that adds, at repeated places too.
add_at = Library("add_at", _copied(_add_at_into), in_place=_add_at_into,
                 vjp=("g", "take(g, inputs[2:], attrs)"), batch="written(call)")
sort = Library("sort", _sort, vjp=("unsorted(g, argsort(x, attrs[0], attrs[1]), attrs[0])",),
               batch="call.again((shifted(attrs[0]), attrs[1]))", parts=SORTS)
argsort = Library("argsort", _argsort, batch="call.again((shifted(attrs[0]), attrs[1]))",
                  parts=ARGSORTS)
reinterpret = Library("reinterpret", _reinterpret, vjp=("reinterpreted(g, x)",),
                      batch="call.again()")
