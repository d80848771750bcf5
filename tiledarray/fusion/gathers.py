"""Reads at computed places are part of the kernels that use them.

A library call that reads what one index array names along an axis becomes a `Gather`: kernels load
the place, and then what stands there.  That no place is beyond the axis is looked at before, by a
call that reads the places alone and raises NumPy's error.  So are windows, wherever they are read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from math import prod

import numpy as np

from tiledarray.fusion.ir import Value, value_args
from tiledarray.fusion.pieces import renumber
from tiledarray.fusion.rewrite import Builder
from tiledarray.ops.indexing import check_places, gather, take
from tiledarray.ops.library import BY_NAME
from tiledarray.ops.movement import strided, windows
from tiledarray.ops.op import AxisView, Elementwise, Reduction

_ALONG = BY_NAME["take_along_axis"]
WIDER = 2  # times an element may be used in one place
SHORT = 16  # elements in a row at a place: fewer are no lanes for a kernel, and more than one
SHORT_SUMS = 64  # of rows that are all reduced to one, each a loop of its own


def fuse_gathers(builder: Builder, outputs: Sequence[Value]) -> None:
    """Make gathers of the calls whose results only kernels read, and views of windows."""
    users: defaultdict[Value, list[Value]] = defaultdict(list)
    for value in builder.values:
        if value.op is windows:
            value.op = strided
            builder.fired["windows_in_kernels"] += 1
        for arg in value_args(value):
            users[arg].append(value)
    kept = set(outputs)
    found = [value for value in builder.values
             if _reads_places(value) and value not in kept and _is_fused(value, users, kept)]
    for value in found:
        array, places = value.args
        axis, along = _axis(value)
        checked = builder.make(
            check_places, (axis, array.shape[axis]), (places,), (), np.dtype(bool))
        builder.origin.setdefault(checked, builder.origin[value])
        value.op, value.attrs, value.args = gather, (axis, along), (array, places, checked)
        builder.fired["gather_in_kernels"] += 1
    if found:
        renumber(builder, [*outputs])


def _reads_places(value: Value) -> bool:
    """Whether a value is what one index array names along an axis."""
    if not value.size or len(value.args) != 2 or not all(
            isinstance(arg, Value) for arg in value.args):
        return False
    if value.op is _ALONG:
        return True
    if value.op is not take or "new" in value.attrs:
        return False
    row = _row(value)
    return row >= SHORT or (row == 1 and prod(value.args[0].shape[:_axis(value)[0]]) == 1)


def _axis(value: Value) -> tuple[int, bool]:
    """The axis that the places are along, and whether each names an element of its own line."""
    if value.op is _ALONG:
        return dict(value.attrs)["axis"], True
    return value.attrs.index("at"), False


def _row(value: Value) -> int:
    """How many elements lie side by side at a place."""
    axis, along = _axis(value)
    return 1 if along else prod(value.args[0].shape[axis + 1:])


def _is_fused(value: Value, users: dict[Value, list[Value]], kept: set[Value]) -> bool:
    """Whether kernels alone read a value, and nearly each element once."""
    if 1 < _row(value) < SHORT_SUMS and _is_summed_whole(value, users):
        return False
    read, waiting = 0, [*users[value]]
    while waiting:
        user = waiting.pop()
        if isinstance(user.op, AxisView):
            if user in kept:
                return False
            waiting += users[user]
        elif isinstance(user.op, Reduction):
            read += user.args[0].size
        elif isinstance(user.op, Elementwise):
            read += user.size
        else:
            return False
    return 0 < read <= WIDER * value.size


def _is_summed_whole(value: Value, users: dict[Value, list[Value]]) -> bool:
    """Whether what is computed of it is reduced along its last axis and others together."""
    seen = {value}
    waiting = [value]
    while waiting:
        for user in users[waiting.pop()]:
            if isinstance(user.op, Reduction):
                axes = user.attrs[0]
                if len(axes) > 1 and len(user.args[0].shape) - 1 in axes:
                    return True
            elif isinstance(user.op, Elementwise) and user.shape == value.shape and (
                    user not in seen):
                seen.add(user)
                waiting.append(user)
    return False
