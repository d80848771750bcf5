"""Arrays put together from others: each is stored straight from the kernel that computes it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tiledarray import core
from tiledarray.graph.node import Node
from tiledarray.recording import at_once, record


def put_block(old: Node, new: Node, starts: Sequence[int]) -> Node:
    """Record ``old`` with ``new`` in the block that begins at ``starts``."""
    if 0 in new.shape:
        return old
    ndim = len(old.shape)
    return record.update(old, new, tuple(range(ndim)), (1,) * ndim, tuple(starts), new.shape,
                         of_large=old.form.kind.size > core.small())


def join_nodes(parts: Sequence[Node], axis: int, dtype: Any, device: Any) -> Node:
    """Record a concatenation; the shapes have been checked."""
    made = at_once.joined(parts, lambda xp, arrays: xp.concatenate(arrays, axis), dtype)
    return _recorded_join(parts, axis, dtype, device) if made is None else made


def _recorded_join(parts: Sequence[Node], axis: int, dtype: Any, device: Any) -> Node:
    if len(parts) == 1:
        return record.cast(parts[0], dtype)
    shape = list(parts[0].shape)
    shape[axis] = sum(part.shape[axis] for part in parts)
    result = record.empty(tuple(shape), dtype, device)
    starts = [0] * len(shape)
    for part in parts:
        result = put_block(result, record.cast(part, dtype), starts)
        starts[axis] += part.shape[axis]
    return result


def stack_nodes(parts: Sequence[Node], axis: int, dtype: Any, device: Any) -> Node:
    """Record a stack along a new axis; shapes that differ raise as NumPy's ``array`` does.

    Raises
    ------
    ValueError
        If the shapes differ.
    """
    if any(part.shape != parts[0].shape for part in parts):
        raise ValueError(
            "setting an array element with a sequence. The requested array has an inhomogeneous "
            f"shape after 1 dimensions. The detected shape was ({len(parts)},) + inhomogeneous "
            "part."
        )
    made = at_once.joined(parts, lambda xp, arrays: xp.stack(arrays, axis), dtype)
    if made is not None:
        return made
    rows = [record.expand_dims(part, (axis,)) for part in parts]
    return _recorded_join(rows, axis, dtype, device)
