"""Which values are computed row by row as a product is made."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import Any

from tiledarray.fusion.along import PRODUCTS, Along, Entry, operand_along
from tiledarray.fusion.tiles.region import TileRegion
from tiledarray.ops.op import AxisView, Elementwise, Reduction, Reshape, Source

COMBINED = ("Sum", "Max", "Min")
WIDEST = 256  # columns of what rows are multiplied with, and length of what is summed
SPREAD = 16  # times that what is computed in here is larger than what it is made of
MULTIPLIED = ("float16", "bfloat16", "float32")


def is_seed(entry: Any) -> bool:
    """Whether an entry of a signature is a product for tensor cores, of enough rows and columns."""
    op, shape = entry[0], entry[2] if entry[0] is not None else ()
    return (op is not None and op in PRODUCTS and len(shape) >= 2
            and entry[3].name in MULTIPLIED and min(shape[-2:]) > 1 and 0 not in shape)


@dataclass(eq=False, slots=True)
class StreamRegion(TileRegion):
    """What would be computed along with the rows of a product; ``axes`` are all but its columns.

    Attributes
    ----------
    levels : dict
        Of what is made of the product: ``"scores"`` has its columns, ``"row"`` is one number a
        row, ``"out"`` has the columns of what rows were multiplied with.
    """

    levels: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.levels[self.seed] = "scores"
        TileRegion.__post_init__(self)

    @property
    def columns(self) -> int:
        """Of the product."""
        return prod(self.graph.entries[self.seed].shape) // prod(self.lengths())

    def _fits(self, number: int, along: Along) -> bool:
        """Whether an entry has a form for streams."""
        entry = self.graph.entries[number]
        if number in self.barred or (entry.dtype.char not in "?bBhHiIlLqQefdE" and (
                entry.dtype.name != "bfloat16")):
            return False
        own = entry.nbytes // entry.dtype.itemsize // max(1, prod(
            entry.shape[d] for d in along if d is not None))
        below = {self.levels[ref] for ref in entry.values if ref in self.levels}
        if not below:  # what others inside are made of
            return isinstance(entry.op, Elementwise | AxisView) and own in (1, self.columns)
        level = self._level(entry, below, own)
        if level is not None:
            self.levels[number] = level
        return level is not None

    def _level(self, entry: Entry, below: set[str], own: int) -> str | None:
        op = entry.op
        if isinstance(op, Elementwise | AxisView | Reshape):
            if len(below - {"row"}) > 1:
                return None
            (level,) = below - {"row"} or {"row"}
            if level == "row":
                return level if own == 1 else None
            if level == "scores":
                return level if own == self.columns else None
            return level if own in self._extents(entry) else None
        if isinstance(op, Reduction):
            whole = below == {"scores"} and own == 1 and op.accumulator in COMBINED
            return "row" if whole and not op.positions else None
        if op in PRODUCTS:
            weights = [ref for ref in entry.values if ref in self.levels]
            return "out" if below == {"scores"} and len(weights) == 1 and own <= WIDEST and (
                entry.dtype.name in MULTIPLIED) else None
        return None

    def _extents(self, entry: Entry) -> set[int]:
        return {prod(self.graph.entries[ref].shape) // prod(self.lengths())
                for ref in entry.values if self.levels.get(ref) == "out"}

    def _backward(self, number: int) -> Along | None:
        """How those inside cut an entry; what is cheap to make may lack axes of the batch."""
        graph = self.graph
        entry = graph.entries[number]
        users = graph.users[number]
        if isinstance(entry.op, Source | Reshape) or any(
                user not in self.inside or self.levels.get(user) not in (None, "scores")
                or graph.entries[user].op in PRODUCTS for user in users):
            return None
        found = {operand_along(relation, self.inside[user])
                 for user in users for ref, relation in graph.operands(user) if ref == number}
        if len(found) != 1:
            return None
        (along,) = found
        if all(d is None for d in along):
            return None  # the same for all rows
        if isinstance(entry.op, AxisView) and not self._may_be_cut(number, tuple(
                d for d in along if d is not None)):
            return None
        if self._is_free(number) or self._spreads(number):
            return along
        return self._agreed(number, along) if isinstance(entry.op, Elementwise) else None

    def _spreads(self, number: int) -> bool:
        """Whether it is made at little cost of what is much smaller."""
        entry = self.graph.entries[number]
        small = prod(entry.shape) // SPREAD
        return isinstance(entry.op, Elementwise) and entry.op.cost <= 2 and all(
            prod(self.graph.entries[ref].shape) <= small for ref in entry.values)
