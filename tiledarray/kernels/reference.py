"""The op-by-op tier: every node through NumPy (on the host) or CuPy (on a GPU).

It needs no compiler, starts at once, and is the definition of what every kernel must return.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tiledarray.graph import Node


def compute(node: Node, xp: Any, values: Sequence[Any]) -> Any:
    """Return the node's value, dense and row-major, from its inputs' values."""
    with np.errstate(all="ignore"):
        result = node.op.reference(
            xp, *values, attrs=node.attrs, shape=node.shape, dtype=node.dtype
        )
    if isinstance(result, tuple):
        return tuple(xp.ascontiguousarray(part) for part in result)
    return xp.asarray(result)
