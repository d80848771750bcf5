"""What a kernel reads of an array around each place, it need not read of a part of that as well.

A stencil on `np.pad(p, 1)` reads neighbours from the padded array, and often ``p`` itself, which
was written into that: the same number, from other memory.
"""

from __future__ import annotations

from dataclasses import replace

from tiledarray.fusion.ir import ONE, Access, Affine, Cell, Group, placed
from tiledarray.ops.op import Update

NEAR = 8  # elements along each axis, within which what is read lies in a cache


def read_where_placed(groups: list[Group]) -> None:
    """Have values that were written into an array read from there, where that is read nearby."""
    for group in groups:
        around = [cell for cell in group.loads if _is_of_update(cell)]
        for cell in group.loads if around else ():
            found = _elsewhere(cell, around)
            if found is not None:
                cell.access = found


def _is_of_update(cell: Cell) -> bool:
    access = cell.access
    return cell.kind == "load" and access is not None and access.strides is None and (
        isinstance(access.value.op, Update))


def _elsewhere(cell: Cell, around: list[Cell]) -> Access | None:
    """Return another access to what a cell loads, near to what is loaded around it."""
    read = cell.access
    if cell.kind != "load" or read is None or read.strides is not None:
        return None
    for other in around:
        assert other.access is not None
        update, near = other.access.value, other.access.index
        _, new, *starts = update.args
        axes, steps, region = update.attrs
        if new is read.value and new.shape == region and new.dtype == update.dtype:
            index = placed(update.shape, axes, steps, starts, read.index)
            if all(map(_is_near, index, near)):
                return replace(read, value=update, index=index)
    return None


def _is_near(one: Affine, other: Affine) -> bool:
    ones, others = dict(one.terms), dict(other.terms)
    return (one.axis, one.step) == (other.axis, other.step) and (
        abs(ones.pop(ONE, 0) - others.pop(ONE, 0)) <= NEAR and ones == others)
