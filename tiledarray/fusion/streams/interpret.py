"""Stream programs run by NumPy: all rows at once, tile after tile of their columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tiledarray.fusion.ir import Affine, Value
from tiledarray.fusion.streams.ir import COLUMN, Growth, Mask, Operand, StreamProgram, Total
from tiledarray.fusion.tiles.interpret import Places
from tiledarray.fusion.tiles.ir import Expression, Read, Shape, Tile

EMPTY = {"Max": -np.inf, "Min": np.inf, "Sum": 0.0}
COMBINE = {"Max": np.maximum, "Min": np.minimum, "Sum": np.add}


def interpret(program: StreamProgram, arrays: Mapping[Value, Any], params: Sequence[Any],
              columns: int) -> None:
    """Run a program on arrays, those that it writes among them.

    Parameters
    ----------
    program : StreamProgram
    arrays : mapping
        The array of each leaf, and of what stores write (`Store.target`).
    params : sequence of scalar
    columns : int
        Of a tile.
    """
    with np.errstate(all="ignore"):
        _Run(program, arrays, params).run(columns)


class _Run(Places):
    """What rows have by now: numbers, sums of rows, and the scores of the tile at hand."""

    program: StreamProgram

    def __init__(self, program: StreamProgram, arrays: Mapping[Value, Any],
                 params: Sequence[Any]) -> None:
        Places.__init__(self, program, arrays, params)
        self.first = 0  # column of the tile
        self.known: dict[Tile, Any] = {}  # by row, column, extent, and depth
        self.totals: dict[Tile, Any] = {}

    def run(self, columns: int) -> None:
        program, rows = self.program, self.program.problems
        for total in program.totals:
            self.totals[total.tile] = np.full((rows, 1, 1, 1), EMPTY[total.kind], np.float32)
        for product in program.products:
            self.totals[product.tile] = np.zeros((rows, 1, product.extent, 1), np.float32)
        for self.first in range(0, program.columns, columns):
            self.combine(min(columns, program.columns - self.first))
        for each in program.added:
            if each.growth is not None:
                total = self.total_of(each.growth.extremum)
                nothing = self.totals[total.tile] == EMPTY[total.kind]
                self.totals[each.tile] = np.where(nothing, np.nan, self.totals[each.tile])
        self.known, self.first = self.totals, 0
        for store in program.stores:
            domain = (1, store.domain[1], 1)
            value = self.value(store.expression, domain)
            self.arrays[store.target][self.memory_index(store.index, domain)] = value

    def combine(self, columns: int) -> None:
        """Combine a tile with what there is."""
        program, domain = self.program, (columns, 1, 1)
        if program.mask is not None and self.leaves_out(program.mask, domain):
            return
        self.known = {program.scores: self.product(columns)}
        added = {}
        for total in program.extrema:
            found = COMBINE[total.kind].reduce(
                self.all_of(total.expression, domain), axis=1, keepdims=True)
            before, empty = self.totals[total.tile], EMPTY[total.kind]
            now = COMBINE[total.kind](before, found)
            added[total.tile] = np.where((before == empty) | (before == now), np.float32(0),
                                         now - before)
            self.totals[total.tile] = now
        grown = {growth: self.grown(growth, added) for growth in dict.fromkeys(
            each.growth for each in program.added)}
        for total in program.extrema:
            now = self.totals[total.tile]
            self.known[total.tile] = np.where(now == EMPTY[total.kind], np.float32(0), now)
        for total in program.sums:
            found = self.all_of(total.expression, domain).sum(1, keepdims=True, dtype=np.float32)
            self.totals[total.tile] = self.totals[total.tile] * grown[total.growth] + found
        for product in program.products:
            weights = self.all_of(product.weights, domain)[..., 0, 0].astype(program.dtype)
            right = self.operand(product.right, (columns, product.extent, 1))[..., 0]
            found = np.einsum("rc,rce->re", weights.astype(np.float32), right.astype(np.float32))
            self.totals[product.tile] = (
                self.totals[product.tile] * grown[product.growth] + found[:, None, :, None])

    def leaves_out(self, mask: Mask, domain: Shape) -> bool:
        """Whether no row has scores in a tile."""
        (total,) = self.program.extrema
        if self.value(mask.other, domain) != EMPTY[total.kind]:
            return False
        taken = self.all_of(mask.condition, domain)
        return not (taken if mask.taken else ~taken).any()

    def grown(self, growth: Growth | None, added: Mapping[Tile, Any]) -> Any:
        """By what to multiply what depends on an extremum."""
        if growth is None:
            return np.float32(1)
        self.known[growth.extremum] = added[growth.extremum]
        return self.value(growth.factor, (1, 1, 1))

    def product(self, columns: int) -> Any:
        """Scores of a tile."""
        depth = self.program.depth
        left = self.operand(self.program.left, (1, 1, depth))[:, 0, 0]
        right = self.operand(self.program.right, (columns, 1, depth))[:, :, 0]
        return np.einsum("rd,rcd->rc", left.astype(np.float32),
                         right.astype(np.float32))[..., None, None]

    def operand(self, operand: Operand, domain: Shape) -> Any:
        """What rows see of a matrix."""
        return self.array(operand.value, operand.index, domain)

    def all_of(self, expression: Expression, domain: Shape) -> Any:
        """An expression for each row and column of a tile."""
        return np.broadcast_to(self.value(expression, domain),
                               (self.program.problems, *domain))

    def total_of(self, tile: Tile) -> Total:
        return next(total for total in self.program.totals if total.tile is tile)

    def at(self, at: Affine, domain: Shape) -> Any:
        found = Places.at(self, at, domain)
        return found + at.step * self.first if at.axis == COLUMN else found

    def on_chip(self, read: Read, domain: Shape) -> Any:
        assert isinstance(read.source, Tile)
        return self.known[read.source]
