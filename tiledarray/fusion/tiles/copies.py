"""Which statements copy a whole tile from or to memory, where it lies in the same order."""

from __future__ import annotations

from math import prod

from tiledarray.fusion.ir import Affine, Index, Value, dense_strides
from tiledarray.fusion.tiles.ir import Load, Read, Shape, Statement, Store, Tile


def copied(statement: Statement, *, device: bool) -> Tile | None:
    """Return the tile that a statement copies, and does nothing else; ``None`` if it does not."""
    if isinstance(statement, Load):
        tile = statement.tile
        alike = _is_side_by_side(statement.source, statement.index, tile, everywhere(tile),
                                 tile.shape, device=device)
        return tile if alike else None
    if not isinstance(statement, Store):
        return None
    value = statement.expression
    if not isinstance(value, Read) or not isinstance(value.source, Tile):
        return None
    alike = (value.dtype == statement.target.dtype and prod(statement.domain) > 1
             and _is_side_by_side(statement.target.args[0], statement.index, value.source,
                                  value.index, statement.domain, device=device))
    return value.source if alike else None


def everywhere(tile: Tile) -> Index:
    """The index of a tile's element at a point of its own shape."""
    return tuple(Affine(axis) for axis in range(len(tile.shape)))


def _is_side_by_side(array: Value, index: Index, tile: Tile, here: Index, domain: Shape, *,
                     device: bool) -> bool:
    """Whether the points of a domain, in order, are neighbours in an array and in a tile.

    On a device rows may have gaps between them in the tile.
    """
    on_chip = dense_strides(tile.shape) if device else tile.strides
    for strides, places in ((dense_strides(array.shape), index), (on_chip, here)):
        steps = [0] * len(domain)
        for at, stride in zip(places, strides, strict=True):
            if at.axis >= 0:
                steps[at.axis] += at.step * stride
        dense = dense_strides(domain)
        if any(n > 1 and step != wanted
               for n, step, wanted in zip(domain, steps, dense, strict=True)):
            return False
    return not any(at.terms for at in here) and all(
        n == 1 or at.axis < 0 or not any(number >= 0 for number, _ in at.terms)
        for n, at in zip(array.shape, index, strict=True)) and prod(tile.shape) == prod(domain)
