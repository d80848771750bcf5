"""Arrays put together from blocks: each is stored straight from the kernel that computes it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from tiledarray import core
from tiledarray.graph.node import Node
from tiledarray.recording import record
from tiledarray.recording.join import put_block

# Beyond this many regions an array is better gathered by an index.
MOST_REGIONS = 64


class Run(NamedTuple):
    """Neighbouring places ``at .. at + length`` that hold elements ``start + k * step``."""

    at: int
    length: int
    start: int
    step: int


def runs_of(index: np.ndarray[Any, Any]) -> list[Run]:
    """Divide an index into runs of constant step."""
    runs: list[Run] = []
    at = 0
    steps = np.diff(index)
    changes = np.flatnonzero(np.diff(steps)) + 1
    while at < len(index):
        later = changes[np.searchsorted(changes, at, side="right"):]
        end = int(later[0]) + 1 if len(later) else len(index)
        step = int(steps[at]) if end - at > 1 else 0
        runs.append(Run(at, end - at, int(index[at]), step))
        at = end
    return runs


def rolled(size: int, shift: int) -> list[Run]:
    """Return the runs of an axis rolled by ``shift``."""
    shift = shift % size if size else 0
    runs = (Run(0, shift, size - shift, 1), Run(shift, size - shift, 0, 1))
    return [run for run in runs if run.length]


def padded(size: int, before: int, after: int, mode: Any) -> list[Run]:
    """Return the runs of an axis padded by elements of its own, as `numpy.pad` does."""
    if max(before, after) >= size:  # several times round: few elements, so that NumPy may say
        return runs_of(np.pad(np.arange(size), (before, after), mode))
    end = before + size
    sides = {
        "edge": (Run(0, before, 0, 0), Run(end, after, size - 1, 0)),
        "wrap": (Run(0, before, size - before, 1), Run(end, after, 0, 1)),
        "reflect": (Run(0, before, before, -1), Run(end, after, size - 2, -1)),
        "symmetric": (Run(0, before, before - 1, -1), Run(end, after, size - 1, -1)),
    }[mode]
    runs = (sides[0], Run(before, size, 0, 1), sides[1])
    return [run for run in runs if run.length]


def without(size: int, place: int) -> list[Run]:
    """Return the runs of an axis with one element left out."""
    runs = (Run(0, place, 0, 1), Run(place, size - place - 1, place + 1, 1))
    return [run for run in runs if run.length]


def count_regions(runs: Sequence[Sequence[Run]]) -> int:
    """Return how many blocks `assemble` would write."""
    return math.prod(len(axis_runs) for axis_runs in runs)


def assemble(node: Node, runs: Sequence[Sequence[Run]]) -> Node:
    """Record an array whose element at each place is the one that the runs of each axis name."""
    shape = tuple(sum(run.length for run in axis_runs) for axis_runs in runs)
    result = _unfilled(shape, node.dtype, node.device)
    large = result.form.kind.size > core.small()
    for regions in product(*runs):
        axes = tuple(-1 if run.step == 0 else axis for axis, run in enumerate(regions))
        size = tuple(run.length for run in regions)
        steps = tuple(run.step for run in regions)
        part = record.view(node, axes, steps, tuple(run.start for run in regions), size, large)
        result = put_block(result, part, tuple(run.at for run in regions))
    return result


def _unfilled(shape: tuple[int, ...], dtype: Any, device: Any) -> Node:
    """Record what blocks that cover it all are put into."""
    if 0 in shape:
        return record.full(shape, 0, dtype, device)
    return record.empty(shape, dtype, device)
