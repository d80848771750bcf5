"""An element of each row, at a place that another array names: ``x[np.arange(len(x)), labels]``.

Two index arrays say so, of which the first only counts.  To read such elements is to go along the
rows, which kernels do; to add to them is to choose in each row where its place is the column's.
So the gradient of a cross-entropy is one kernel, and the table of shares is not gone through again.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tiledarray.fusion.ir import Size, Value
from tiledarray.ops import arithmetic, comparison, indexing, movement, selection
from tiledarray.ops.library import BY_NAME, options
from tiledarray.ops.op import Elementwise

_TWO_PLACES = ("at", "at")
_BOOL, _INT = np.dtype(bool), np.dtype(np.int32)
MOST_COLUMNS = np.iinfo(_INT).max // 2  # so that their numbers are computed with quickly


def _column_of_each(args: tuple[Any, ...], whole: tuple[int, ...]) -> Value | None:
    """Return the places along rows of a matrix, if the rows' own numbers are beside them."""
    rows, columns = args
    if not isinstance(rows, Value) or not isinstance(columns, Value) or len(whole) != 2 or (
            whole[1] > MOST_COLUMNS):
        return None
    if rows.op is not movement.iota or rows.args or not (
            rows.shape == columns.shape == whole[:1]) or columns.dtype.kind not in "iu" or (
            columns.dtype == np.uint64):
        return None
    return columns


def taken_from_each_row(builder: Any, op: Any, attrs: Any, args: Any, shape: tuple[int, ...],
                        dtype: Any) -> Value | None:
    """An element of each row is taken along the rows."""
    if op is not indexing.take or attrs != _TWO_PLACES or builder.target.kind != "cuda":
        return None
    array, *index = args
    columns = _column_of_each(tuple(index), array.shape)
    if columns is None:
        return None
    column = (columns.size, 1)
    at = builder.make(movement.reshape, None, (columns,), column, columns.dtype)
    taken = builder.make(BY_NAME["take_along_axis"], options(axis=1), (array, at), column, dtype)
    return builder.make(movement.reshape, None, (taken,), shape, dtype)


def added_to_each_row(builder: Any, op: Any, attrs: Any, args: Any, shape: tuple[int, ...],
                      dtype: Any) -> Value | None:
    """What is added to an element of each row is, where that row is computed anyway."""
    if op is not indexing.add_at or attrs != _TWO_PLACES or builder.target.kind != "cuda":
        return None
    old, new, *index = args
    columns = _column_of_each(tuple(index), shape)
    if columns is None or not isinstance(new, Value) or new.dtype != dtype or (
            dtype.kind not in "fc") or new.shape not in ((), columns.shape):
        return None
    if not (isinstance(old.op, Elementwise) or old.op is movement.full) or (
            old.number in builder.shared):
        return None  # it is stored: to add to a few elements of it is less than to go through all
    wide = shape[1]
    # A place that is none of these numbers is beyond its row, which is looked at first.
    at = builder.make(selection.cast, (columns.dtype,), (columns,), columns.shape, _INT)
    zero = builder.make(movement.full, None, (0,), (), _INT)
    length = builder.make(movement.full, None, (Size(wide),), (), _INT)
    negative = builder.make(comparison.less, (_INT, _INT), (at, zero), at.shape, _BOOL)
    turned = builder.make(arithmetic.add, (_INT, _INT), (at, length), at.shape, _INT)
    at = builder.make(selection.where, (_BOOL, _INT, _INT), (negative, turned, at), at.shape, _INT)
    column = (columns.size, 1)
    at = builder.make(movement.reshape, None, (at,), column, _INT)
    each = builder.make(movement.iota, (_INT,), (), (wide,), _INT)
    each = builder.make(movement.reshape, None, (each,), (1, wide), _INT)
    here = builder.make(comparison.equal, (_INT, _INT), (each, at), shape, _BOOL)
    # Nothing is beyond its row once this has been looked at: it raises, and is false.
    places = builder.make(movement.reshape, None, (columns,), column, columns.dtype)
    checked = builder.make(indexing.check_places, (1, wide), (places,), (), _BOOL)
    here = builder.make(comparison.logical_or, (_BOOL, _BOOL), (here, checked), shape, _BOOL)
    if new.shape:
        new = builder.make(movement.reshape, None, (new,), column, dtype)
    more = builder.make(arithmetic.add, (dtype, dtype), (old, new), shape, dtype)
    return builder.make(selection.where, (_BOOL, dtype, dtype), (here, more, old), shape, dtype)
