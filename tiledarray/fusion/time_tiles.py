"""Several steps of a stencil at once, a tile of the arrays at a time.

A loop over time that only reads a few places around each element goes through memory once for each
step, though a tile of the arrays would stay in a core's cache for several.  So a tile is copied
there with a halo, goes through `depth` steps as if it was all of the arrays, and its core is copied
out.  At an edge of the tile that is none of the arrays' the elements get wrong from step to step,
`halo` further in by each; the core begins behind that.  At the arrays' own edges a tile ends like
they do.  Every tile has the same shape, so one plan does for all, and every element is computed as
it would be step by step, to the bit.

That holds if all a step does moves along with the edges: views from a few elements behind one edge
to a few before the other, and rows a few elements from an edge.  Nothing may be summed, or go from
one edge to the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from math import prod
from typing import Any, NamedTuple

from tiledarray.fusion.along import Entry, entry_of
from tiledarray.fusion.target import Target
from tiledarray.graph.node import Node, form_of, kind_of
from tiledarray.graph.program import instantiated, trace
from tiledarray.ops import movement
from tiledarray.ops.loop import Step, Steps
from tiledarray.ops.op import AxisView, Elementwise, Update

NEAR = 8  # elements that "a few" is at most
DEPTHS = (2, 4, 8, 12)


class Refused(Exception):
    """Steps cannot be done tile by tile, or that is not worth it."""


@dataclass(frozen=True)
class TimeTiles:
    """How several steps are done at once.

    Attributes
    ----------
    step : Step
        Of a tile.
    picks : tuple of int
        Which of the loop's scalars are those of the step.
    shape, tile, halo : tuple of int
        Of the arrays, of a tile, and by how much a step goes further in from its edges.
    depth : int
        How many steps are done at once.
    """

    step: Step
    picks: tuple[int, ...]
    shape: tuple[int, ...]
    tile: tuple[int, ...]
    halo: tuple[int, ...]
    depth: int

    def places(self) -> list[tuple[tuple[int, int, int], ...]]:
        """Return for each tile where it begins and where its core does and ends, by axis."""
        axes = []
        for n, size, halo in zip(self.shape, self.tile, self.halo, strict=True):
            margin = self.depth * halo
            count = 1 if size == n else -(-n // (size - 2 * margin))
            cuts = [k * n // count for k in range(count + 1)]
            axes.append([(min(max(0, begin - margin), n - size), begin, end)
                         for begin, end in pairwise(cuts)])
        return [*product(*axes)]


class _Axis(NamedTuple):
    """Where the elements of a value lie along an axis of the arrays.

    ``edge`` is "both" if they go from ``start`` on to as many before the end as there are, "low" or
    "high" if they are a few near one edge; ``start`` counts from the end then, and is negative.
    """

    edge: str
    start: int


@dataclass(eq=False, slots=True)
class _Place:
    """Where the elements of a value lie in the arrays, and how far away it reads.

    ``axes`` says which axis of the arrays each of its own is.  The others are by axis of the
    arrays: ``reach`` is the furthest before an element and behind it; so near to an edge of a tile
    that is none of the arrays' as ``wrong`` says it may be another value than that of the arrays,
    though all were right that the step began with, for there a step does what belongs to an edge.
    """

    along: tuple[_Axis, ...]
    axes: tuple[int, ...]
    reach: tuple[tuple[int, int], ...]
    wrong: tuple[tuple[int, int], ...]


def found(steps: Steps, target: Target, tile: Sequence[int] | None = None,
          depth: int | None = None) -> TimeTiles:
    """Return how several steps of a loop are done at once.

    Parameters
    ----------
    steps : Steps
    target : Target
    tile, depth
        Chosen otherwise than by what it costs.

    Raises
    ------
    Refused
    """
    if target.kind != "cpu":
        raise Refused("they are on a GPU")
    if steps.goes is not None:
        raise Refused("a condition decides after each step")
    look = _Look(steps)
    halo = look.halo()
    if tile is None or depth is None:
        tile, depth = _chosen(look, halo, target)
    step, picks = look.of_tile(tile)
    return TimeTiles(step, picks, look.shape, tuple(tile), halo, depth)


class _Look:
    """A step, looked at."""

    def __init__(self, steps: Steps) -> None:
        self.steps, self.step = steps, steps.body
        shapes = {shape for shape, _ in steps.kinds}
        if len(shapes) > 1 or not 1 <= len(self.shape_of(steps)) <= 3:
            raise Refused("the state is not of arrays of one shape, of one to three axes")
        self.shape = self.shape_of(steps)
        if min(self.shape) < 8 * NEAR:
            raise Refused("the arrays are too small")
        self.entries: list[Entry] = [entry_of(parts) for parts in self.step.signature[0]]
        self.places: list[_Place | None] = []  # None: the same everywhere
        leaves = iter(self.step.leaves)
        for number, entry in enumerate(self.entries):
            if entry.op is None:
                self.places.append(self._leaf(entry, next(leaves)))
            else:
                self.places.append(self._place(number, entry))
        outputs = self.step.signature[2]
        for computed, place in self.step.results:
            where = self.places[outputs[place]] if computed else (
                self._whole if place >= steps.first else None)
            if where is None or where.along != self._whole.along or (
                    where.axes != self._whole.axes):
                raise Refused("the state does not become arrays that are computed")

    @staticmethod
    def shape_of(steps: Steps) -> tuple[int, ...]:
        """Shape of the state's arrays."""
        return steps.kinds[0][0]

    @property
    def _whole(self) -> _Place:
        rank = len(self.shape)
        return _Place((_Axis("both", 0),) * rank, tuple(range(rank)), ((0, 0),) * rank,
                      ((0, 0),) * rank)

    def halo(self) -> tuple[int, ...]:
        """By how much a step goes further in from the edges of a tile."""
        whole = [place for place in self.places if place is not None and (
            place.along == self._whole.along and place.axes == self._whole.axes)]
        return tuple(max(max(*place.wrong[d], *map(abs, place.reach[d])) for place in whole)
                     for d in range(len(self.shape)))

    def flops(self) -> float:
        """Flops for each element."""
        return sum(entry.op.cost * prod(entry.shape) for entry in self.entries
                   if isinstance(entry.op, Elementwise)) / prod(self.shape)

    def bytes_of(self, places: range) -> int:
        """Bytes of an element of each of the step's arrays that have the state's shape."""
        entries = [entry for entry in self.entries if entry.op is None]
        return sum(entry.dtype.itemsize for entry, place in zip(
            entries, self.step.leaves, strict=True) if entry.shape and place in places)

    # ---- where values lie ----------------------------------------------------------------

    def _leaf(self, entry: Entry, place: int) -> _Place | None:
        if not entry.shape:
            return None
        if entry.shape != self.shape:
            raise Refused(f"it reads an array of shape {entry.shape}")
        return self._whole

    def _place(self, number: int, entry: Entry) -> _Place | None:
        op = entry.op
        if isinstance(op, Elementwise):
            return self._elementwise(entry)
        if isinstance(op, AxisView):
            return self._view(entry)
        if isinstance(op, Update):
            return self._update(entry)
        if op is movement.full:
            return self._leaf(entry, -1)
        assert op is not None
        raise Refused(f"{op.name} is not done element by element")

    def _start(self, ref: int | None) -> int:
        if ref is None:
            return 0
        known = self.step.params[~ref]
        if known is None:
            raise Refused("where a view begins is not known")
        return known

    def _elementwise(self, entry: Entry) -> _Place | None:
        placed = [self.places[ref] for ref in entry.values]
        given = [place for place in placed if place is not None]
        if not given:
            return None if not entry.shape else self._leaf(entry, -1)
        for ref, place in zip(entry.values, placed, strict=True):
            if place is not None and self.entries[ref].shape != entry.shape:
                raise Refused("it broadcasts along an axis of the arrays")
        return _joined(given[0], given)

    def _axis(self, d: int, before: _Axis, start: int, length: int) -> _Axis:
        """Where elements lie along axis ``d``, of which so many were taken of others."""
        n = self.shape[d]
        if before.edge != "both":
            return _Axis(before.edge, before.start + start)
        begin = before.start + start
        if begin <= NEAR and n - begin - length <= NEAR:
            return _Axis("both", begin)
        if begin + length <= NEAR:
            return _Axis("low", begin)
        if n - begin <= NEAR:
            return _Axis("high", begin - n)
        raise Refused("it has a view of a part of the arrays that does not go along with an edge")

    def _view(self, entry: Entry) -> _Place | None:
        inner, (axes, steps) = self.places[entry.refs[0] or 0], entry.attrs
        if inner is None:
            if entry.shape:
                raise Refused("it broadcasts a number")
            return None
        shown = [axis for axis in axes if axis >= 0]
        if shown != [*range(len(entry.shape))]:
            raise Refused("it has a view with other axes")
        along, own = [*inner.along], []
        for k, (axis, step) in enumerate(zip(axes, steps, strict=True)):
            if axis >= 0 and step != 1:
                raise Refused("it has a view with a step")
            d, start = inner.axes[k], self._start(entry.refs[1 + k])
            along[d] = self._axis(d, along[d], start, entry.shape[axis] if axis >= 0 else 1)
            if axis >= 0:
                own.append(d)
        return _Place(tuple(along), tuple(own), inner.reach, inner.wrong)

    def _update(self, entry: Entry) -> _Place | None:
        old, new = (self.places[ref] for ref in entry.values[:2])
        axes, steps, region = entry.attrs
        if old is None or old.along != self._whole.along or old.axes != self._whole.axes:
            raise Refused("it writes into a part of an array that is computed")
        if any(axis >= 0 and step != 1 for axis, step in zip(axes, steps, strict=True)):
            raise Refused("it writes with a step")
        if [axis for axis in axes if axis >= 0] != [*range(len(region))]:
            raise Refused("it writes along other axes")
        along, own, rings = [], [], []
        for d, axis in enumerate(axes):
            start = self._start(entry.refs[2 + d])
            length = region[axis] if axis >= 0 else 1
            to = self._axis(d, old.along[d], start, length)
            along.append(to)
            if axis >= 0:
                own.append(d)
            behind = self.shape[d] - start - length
            rings.append({"both": (start, behind), "low": (start + length, 0),
                          "high": (0, behind + length)}[to.edge])
        wrong = _furthest(old.wrong, rings)
        if new is None:
            return _Place(old.along, old.axes, old.reach, wrong)
        if self.entries[entry.values[1]].shape != region:
            raise Refused("it writes what is broadcast")
        there = _Place(tuple(along), tuple(own), ((0, 0),) * len(along),
                       ((0, 0),) * len(along))
        written = _joined(there, [there, new])
        return _Place(old.along, old.axes, tuple(
            (min(a, c), max(b, d)) for (a, b), (c, d) in zip(
                old.reach, written.reach, strict=True)), _furthest(wrong, written.wrong))

    # ---- the same of a tile --------------------------------------------------------------

    def of_tile(self, tile: Sequence[int]) -> tuple[Step, tuple[int, ...]]:
        """Return the step of a tile, and which scalars it is given."""
        fewer = [n - size for n, size in zip(self.shape, tile, strict=True)]
        params, dummies = self._params()
        parts = [self._of_tile(number, entry, fewer) for number, entry in enumerate(self.entries)]
        return self._traced(parts, params, dummies)

    def _params(self) -> tuple[list[Any], list[Any]]:
        """The scalars, with other numbers in place of those that are not known."""
        params: list[Any] = []
        dummies: list[Any] = []
        for kind, known in zip(self.step.signature[1], self.step.params, strict=True):
            if known is None:
                if kind not in (float, complex):
                    raise Refused("it has scalars of other kinds")
                known = kind(0.125 + len(dummies))
                dummies.append(known)
            params.append(known)
        return params, dummies

    def _shape(self, number: int, fewer: Sequence[int]) -> tuple[int, ...]:
        place, shape = self.places[number], self.entries[number].shape
        if place is None:
            return shape
        return tuple(n - fewer[d] if place.along[d].edge == "both" else n
                     for n, d in zip(shape, place.axes, strict=True))

    def _of_tile(self, number: int, entry: Entry, fewer: Sequence[int]) -> tuple[Any, ...]:
        """The entry, with starts themselves in place of references to them."""
        shape = self._shape(number, fewer)
        if entry.op is None:
            return None, shape, entry.dtype
        attrs, refs = entry.attrs, list[Any](entry.refs)
        if isinstance(entry.op, AxisView) and self.places[number] is not None:
            inner, place = self.places[entry.values[0]], self.places[number]
            assert inner is not None and place is not None
            for k, d in enumerate(inner.axes):
                moved = place.along[d].edge == "high" and inner.along[d].edge == "both"
                refs[1 + k] = _Start(self._start(entry.refs[1 + k]) - moved * fewer[d])
        elif isinstance(entry.op, Update):
            axes, steps, region = attrs
            own = [*region]
            for d, axis in enumerate(axes):
                start = self._start(entry.refs[2 + d])
                length = region[axis] if axis >= 0 else 1
                edge = self._axis(d, _Axis("both", 0), start, length).edge
                refs[2 + d] = _Start(start - (edge == "high") * fewer[d])
                if axis >= 0 and edge == "both":
                    own[axis] -= fewer[d]
            attrs = axes, steps, tuple(own)
        return entry.op, attrs, shape, entry.dtype, *refs

    def _traced(self, parts: Sequence[tuple[Any, ...]], params: Sequence[Any],
                dummies: Sequence[Any]) -> tuple[Step, tuple[int, ...]]:
        values = [*params]
        entries = []
        for op, *rest in parts:
            moved = []
            for x in rest:
                if isinstance(x, _Start):
                    values.append(x.value)
                    x = ~(len(values) - 1)
                moved.append(x)
            entries.append((op, *moved))
        leaves = [Node(form_of(movement.placeholder, None, kind_of(shape, dtype, _HOST), 0), ())
                  for op, shape, dtype, *_ in entries if op is None]
        nodes = instantiated(entries, leaves, values, _HOST, self.step.sites)
        targets = [nodes[number] for number in self.step.signature[2]]
        again = trace(targets)
        places = dict(zip(leaves, self.step.leaves, strict=True))
        numbers = {number: k for k, number in enumerate(dummies)}
        step = Step(
            again.signature,
            tuple(places[node] for node, entry in zip(
                again.nodes, again.signature[0], strict=True) if entry[0] is None),
            tuple(x if type(x) is int else None for x in again.params),
            self.step.results, tuple(node.site for node in again.nodes))
        return step, tuple(numbers[x] for x in again.params if type(x) is not int)


class _Start(NamedTuple):
    value: int


class _Host:
    """The device of a tile's nodes, which are never computed."""

    kind, on_host = "cpu", True


_HOST: Any = _Host()


_Pairs = Sequence[tuple[int, int]]


def _furthest(one: _Pairs, other: _Pairs) -> tuple[tuple[int, int], ...]:
    return tuple((max(a, c), max(b, d)) for (a, b), (c, d) in zip(one, other, strict=True))


def _joined(first: _Place, given: Sequence[_Place]) -> _Place:
    """Return the place of what is computed, at the first's, from values at the same index.

    Raises
    ------
    Refused
        If they lie at other edges.
    """
    reach, wrong = [*first.reach], [*first.wrong]
    for place in given:
        if place.axes != first.axes:
            raise Refused("it joins values with other axes")
        for d, (one, other) in enumerate(zip(first.along, place.along, strict=True)):
            if one.edge != other.edge:
                raise Refused("it goes from one edge to another")
            shift = other.start - one.start
            (low, high), (before, behind) = reach[d], place.reach[d]
            reach[d] = min(low, shift + before), max(high, shift + behind)
            near, far = place.wrong[d]
            wrong[d] = (max(wrong[d][0], near and near - shift),
                        max(wrong[d][1], far and far + shift))
    return _Place(first.along, first.axes, tuple(reach), tuple(wrong))


# ---- what it costs -------------------------------------------------------------------------------


def _chosen(look: _Look, halo: tuple[int, ...], target: Target) -> tuple[tuple[int, ...], int]:
    """Return the tile and how many steps, where that is worth it."""
    limits, first = target.limits, look.steps.first
    state = sum(dtype.itemsize for _, dtype in look.steps.kinds)
    others = look.bytes_of(range(1, first))
    if state * prod(look.shape) < limits.time_least:
        raise Refused(f"arrays of {state * prod(look.shape):,} bytes stay in the cache "
                      f"(at most {limits.time_least:,})")
    rate, flops = limits.bytes_per_second, look.flops() / (limits.time_flops * target.workers)
    written = sum(look.entries[look.step.signature[2][place]].dtype.itemsize
                  for computed, place in look.step.results if computed)
    moved = state + others + written
    before = moved / rate + flops
    best: tuple[tuple[int, ...], int] | None = None
    gain = 0.0
    room = limits.time_bytes // (2 * state + others + (len(look.steps.kinds) > 1) * written)
    for depth, tile in product(DEPTHS, _tiles(look.shape, room)):
        core = [size if size == n else size - 2 * depth * h
                for n, size, h in zip(look.shape, tile, halo, strict=True)]
        if min(core) <= 0:
            continue
        waste = prod(tile) / prod(core)
        after = waste * (moved / (rate * limits.time_speed) + flops) + (
            waste * (state + others) + state) / (rate * depth)
        if before / after > gain:
            best, gain = (tile, depth), before / after
    if best is None or gain < limits.time_gain:
        raise Refused(f"it would take {1 / max(gain, 1e-9):.2f} of the time")
    return best


def _tiles(shape: tuple[int, ...], room: int) -> list[tuple[int, ...]]:
    """Return shapes of tiles with at most so many elements; long rows are read best."""
    sizes = [{n, *(size for size in (16, 24, 32, 48, 64, 96, 128, 192, 256) if size < n)}
             for n in shape[:-1]]
    sizes.append({shape[-1], *(size for size in (256, 512, 1024, 2048, 1 << 14, 1 << 16)
                               if size < shape[-1])})
    return [tile for tile in product(*map(sorted, sizes)) if room // 4 <= prod(tile) <= room]
