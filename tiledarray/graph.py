"""The recorded graph: immutable nodes, one op each.

A node is a value that may not have been computed yet.  Its inputs are other nodes and Python
scalars; a scalar is a *run-time parameter* of the plan, never part of its signature, so that
``x -= lr * g`` with a new ``lr`` recompiles nothing.  Everything that does shape the plan (axes,
steps, loop dtypes) is in ``attrs``.

Once a node has been computed it holds a ``buffer`` and forgets its inputs: it has become a leaf.
"""

from __future__ import annotations

from types import CodeType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    from tiledarray.ops.op import Op

type_of_scalar = (bool, int, float, complex)
Scalar = bool | int | float | complex
Site = tuple[CodeType, int]


class Node:
    """One recorded operation and, once computed, its value.

    Attributes
    ----------
    op : Op
        What computes the value.  Compared by identity.
    inputs : tuple of Node or scalar
        Operands.  Python scalars are run-time parameters.
    attrs : hashable
        Everything static about this use of the op; its meaning belongs to the op's class.
    shape : tuple of int
    dtype : numpy.dtype
    device : Device
    buffer : Buffer or tuple of Buffer or None
        The computed value: dense, row-major.  ``None`` while pending.
    site : (code, instruction offset) or None
        Where in the user's program the op was recorded.
    """

    __slots__ = (
        "op", "inputs", "attrs", "shape", "dtype", "device", "buffer", "site", "__weakref__",
    )

    def __init__(
        self,
        op: Op,
        inputs: tuple[Any, ...],
        attrs: Any,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        device: Any,
        site: Site | None = None,
        buffer: Any = None,
    ) -> None:
        self.op = op
        self.inputs = inputs
        self.attrs = attrs
        self.shape = shape
        self.dtype = dtype
        self.device = device
        self.site = site
        self.buffer = buffer

    @property
    def pending(self) -> bool:
        """Whether the value is still to be computed."""
        return self.buffer is None

    def __repr__(self) -> str:
        state = "pending" if self.buffer is None else "computed"
        return f"<Node {self.op.name} {self.dtype}{list(self.shape)} {state}>"


def location(site: Site | None) -> tuple[str, int] | None:
    """File name and line of a recording site."""
    if site is None:
        return None
    code, offset = site
    line = code.co_firstlineno
    for start, end, number in code.co_lines():
        if start <= offset < end and number is not None:
            line = number
    return code.co_filename, line
