"""The op-by-op tier: every node through NumPy (on the host) or CuPy (on a GPU).

It needs no compiler, starts at once, and is the definition of what every kernel must return.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tiledarray.graph import Node
from tiledarray.ops.elementwise import has_kernel
from tiledarray.ops.op import Elementwise
from tiledarray.ops.ufunc import in_loop_dtypes
from tiledarray.runtime.buffer import host_pool

LARGE = 1 << 20


def compute(node: Node, xp: Any, values: Sequence[Any]) -> Any:
    """Return the node's value, dense and row-major, from its inputs' values."""
    if xp is np and _wants_pooled_memory(node):
        return _pooled(node, values)
    with np.errstate(all="ignore"):
        result = node.op.reference(
            xp, *values, attrs=node.attrs, shape=node.shape, dtype=node.dtype
        )
    if isinstance(result, tuple):
        return tuple(xp.ascontiguousarray(part) for part in result)
    return xp.asarray(result)


def _wants_pooled_memory(node: Node) -> bool:
    """Whether a ufunc's result is so large that fresh pages would cost as much as computing it."""
    op = node.op
    return (
        isinstance(op, Elementwise) and op.ufunc is not None and op.ufunc.nout == 1
        and math.prod(node.shape) * node.dtype.itemsize >= LARGE and has_kernel(node.dtype)
    )


def _pooled(node: Node, values: Sequence[Any]) -> np.ndarray:
    """Compute a ufunc into memory that an earlier temporary has left."""
    ufunc: Any = node.op.ufunc  # type: ignore[attr-defined]
    out, _ = host_pool.array(node.shape, node.dtype)
    with np.errstate(all="ignore"):
        ufunc(*in_loop_dtypes(np, tuple(values), node.attrs), out=out, casting="unsafe")
    return out
