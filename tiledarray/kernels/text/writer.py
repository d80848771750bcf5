"""What all texts of kernels are written with: lines, blocks, and fields of ``Args``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from tiledarray.fusion.ir import Cell, Param, Size, Terms
from tiledarray.kernels.text.layout import Slot


class Writer:
    """Writes lines, and names fields of ``Args``.

    Attributes
    ----------
    lines : list of str
        The text so far.
    slots : dict
        The fields of ``Args`` by name, in order.
    params : dict
        Numbers of scalars in the text, as they were met: equal texts compile once.
    """

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.slots: dict[str, Slot] = {}
        self.params: dict[int, int] = {}
        self.depth = 1

    def put(self, line: str) -> None:
        """Add one line at the current depth."""
        self.lines.append("  " * self.depth + line)

    @contextmanager
    def block(self, head: str, tail: str = "}") -> Iterator[None]:
        """Add ``head {``, an indented body, and the closing ``tail``."""
        self.put(f"{head} {{" if head else "{")
        self.depth += 1
        yield
        self.depth -= 1
        self.put(tail)

    def arg(self, slot: Slot) -> str:
        """Name of a field of ``Args`` in the text."""
        self.slots.setdefault(slot.name, slot)
        return f"a.{slot.name}"

    def size(self, name: str, number: int, offset: Terms = ()) -> str:
        """Field for an integer."""
        return self.arg(Slot("size", name, "i64", number=number, offset=offset))

    def scalar(self, cell: Cell, loop: np.dtype[Any]) -> str:
        """Field for a scalar of a kernel, or the number that it always is."""
        param: Any = cell.value
        if isinstance(param, Size):
            return self.size(f"z_{cell.number}", param.count)
        if not isinstance(param, Param):
            return f"i64({param or 0})"
        return self.param(param, loop)

    def param(self, param: Param, loop: np.dtype[Any]) -> str:
        """Field for a scalar, which arrives as the loop's type: the kernel casts nothing."""
        if param.kind is complex:
            kind = "c128"
        elif param.kind is float:
            kind = "f32" if loop.kind in "fV" and loop.itemsize <= 4 else "f64"
        else:
            kind = "i32" if loop.kind == "b" else "f32" if loop == np.float32 else "i64"
        number = self.params.setdefault(param.index, len(self.params))
        return self.arg(Slot("param", f"{kind}_{number}", kind, number=param.index,
                             param=param.kind))
