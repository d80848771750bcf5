"""Finds products whose rows are used up as they are made."""

from __future__ import annotations

from tiledarray.fusion.along import Graph, Looped
from tiledarray.fusion.bodies import Made, cut_out, made_of
from tiledarray.fusion.streams.kernel import programmed
from tiledarray.fusion.streams.region import StreamRegion, is_seed
from tiledarray.fusion.target import Target
from tiledarray.fusion.tiles.build import NoTile
from tiledarray.fusion.tiles.find import Found

MOST = 16  # kernels of a plan


def in_streams(found: Found, target: Target) -> Found:
    """Have what is worth it computed row by row, as products are made, on a GPU's tensor cores.

    Parameters
    ----------
    found : Found
        What tiles have left, and why there are no more of them.
    target : Target
    """
    looped, refusals = found.looped, [*found.refusals]
    in_vain: set[int] = set()
    for _ in range(MOST):
        seeds = [place for place, entry in enumerate(looped.entries)
                 if is_seed(entry) and place not in looped.outputs
                 and looped.numbers[place] not in in_vain]
        if not seeds:
            break
        graph = Graph.of(looped)
        try:
            region, made = _found(graph, seeds[0], looped, target)
        except NoTile as refusal:
            in_vain.add(looped.numbers[seeds[0]])
            refusals.append(f"no stream of a product's rows: {refusal}")
            continue
        looped = cut_out(region, looped, made)
    return Found(looped, refusals)


def _found(graph: Graph, seed: int, looped: Looped, target: Target) -> tuple[StreamRegion, Made]:
    """What is computed for the sake of a product, with the loop that does it.

    Its columns may be its rows in memory, too.

    Raises
    ------
    NoTile
    """
    last = len(graph.entries[seed].shape) - 1
    try:
        return _along(graph, seed, last, looped, target)
    except NoTile as refusal:
        try:
            return _along(graph, seed, last - 1, looped, target)
        except NoTile:
            raise refusal from None


def _along(graph: Graph, seed: int, columns: int, looped: Looped,
           target: Target) -> tuple[StreamRegion, Made]:
    """The same where that axis are the columns.

    Raises
    ------
    NoTile
    """
    shape = graph.entries[seed].shape
    axes = tuple(axis for axis, n in enumerate(shape) if n > 1 and axis != columns)
    region = StreamRegion(graph, seed, axes, target)
    if any(region.levels.get(number) not in ("row", "out") for number in region.results):
        raise NoTile("what has the product's columns is asked for")
    if not region.results:
        raise NoTile("nothing is made of it")
    made = made_of(region, looped, (1,) * len(axes))
    return region, Made(programmed(made.body, target), made.refs)
