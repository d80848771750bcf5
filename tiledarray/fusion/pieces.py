"""What is computed from joined arrays is computed part by part.

``np.roll(u, 1) + np.roll(u, -1)`` reads two arrays that are views of ``u`` put together.  Cut where
either is cut, every piece of the sum reads views, so neither array needs to exist: the pieces are
updates of one array, which share a launch.  So it is with arrays that hold something in a box and
one value elsewhere: sums of them are what the gradient of a stencil is.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise, product
from math import prod
from typing import Any

from tiledarray.fusion.ir import Terms, Value, add_terms, value_args
from tiledarray.fusion.regions import Regions
from tiledarray.fusion.rewrite import Builder
from tiledarray.ops import movement
from tiledarray.ops.op import Elementwise, Update

MOST_PIECES = 27  # a stencil of rolls in three dimensions
Box = tuple[tuple[int, ...], tuple[int, ...]]  # where it begins, and its shape


@dataclass(slots=True)
class Join:
    """An array put together from boxes; what they do not cover is filled with one value.

    Or it is what a stored array has there: then it is worth cutting only where others are cut.
    """

    boxes: list[tuple[Box, Value]]
    filling: Value

    @property
    def is_new(self) -> bool:
        """Whether no array lies under the boxes."""
        return self.filling.op in (movement.empty, movement.full)

    def cuts(self, axis: int) -> set[int]:
        """Where boxes begin and end along an axis."""
        return {place for (starts, shape), _ in self.boxes
                for place in (starts[axis], starts[axis] + shape[axis])}

    def part(self, wanted: Box) -> tuple[Box, Value] | None:
        """The box that another lies in, if it is in one."""
        return next(((box, new) for box, new in self.boxes if _inside(wanted, box)), None)

    def has_seam(self, wanted: Box) -> bool:
        """Whether a box is neither in one of these nor outside all of them."""
        return self.part(wanted) is None and any(_overlap(wanted, box) for box, _ in self.boxes)


def cut(builder: Builder, outputs: list[Value], regions: Regions) -> list[Value]:
    """Compute what is made of joined arrays in pieces; return the outputs."""
    if regions.params is None or not any(isinstance(v.op, Update) for v in builder.values):
        return outputs
    return _Cutter(builder, outputs, regions).run()


class _Cutter:
    def __init__(self, builder: Builder, outputs: list[Value], regions: Regions) -> None:
        self.builder = builder
        self.expensive = builder.target.limits.expensive
        self.outputs = outputs
        self.regions = regions
        self.users: defaultdict[Value, list[Value]] = defaultdict(list)
        for value in builder.values:
            for arg in value_args(value):
                self.users[arg].append(value)
        self.joins: dict[Value, Join] = {}
        self.made: dict[Value, Value] = {}
        self._restricted: dict[tuple[Value, Box], Value] = {}
        self._cost: dict[Value, int] = {}
        for value in builder.values:
            below = value_args(value) if isinstance(value.op, Elementwise) else []
            self._cost[value] = min(
                self.expensive,
                getattr(value.op, "cost", 0) + sum(self._cost[arg] for arg in below))

    def run(self) -> list[Value]:
        values = [*self.builder.values]
        for value in values:
            if isinstance(value.op, Update) and self._only_computed_with(value):
                self._find_join(value)
        for value in values if self.joins else ():
            if isinstance(value.op, Elementwise) and not self._only_computed_with(value):
                self._in_pieces(value)
        if not self.made:
            return self.outputs
        for value in values:
            if isinstance(value.op, Update) and _in_order(value) and value.attrs[2] == (
                    value.shape) == value.args[1].shape and value.args[1] in self.made:
                self.made[value] = self.made[value.args[1]]  # it overwrites the whole array
        for value in values:
            value.args = tuple(map(self._now, value.args))
        outputs = [self._now(value) for value in self.outputs]
        renumber(self.builder, outputs)
        return outputs

    def _now(self, arg: Any) -> Any:
        return self.made.get(arg, arg) if isinstance(arg, Value) else arg

    def _only_computed_with(self, value: Value) -> bool:
        """Whether every reader is elementwise, so that the value itself need not exist."""
        return value not in self.outputs and all(
            isinstance(user.op, Elementwise) for user in self.users[value])

    # ---- joined arrays -------------------------------------------------------------------

    def _find_join(self, top: Value) -> None:
        """Remember the boxes of an array that updates put together, if none lies on another."""
        boxes: list[tuple[Box, Value, list[Terms]]] = []
        value = top
        while isinstance(value.op, Update):
            if not _in_order(value) or len(boxes) == MOST_PIECES:
                return
            shape = value.attrs[2]
            places = [add_terms((), 1, start) for start in value.args[2:]]
            starts = tuple(self.regions.value(terms) for terms in places)
            boxes.append(((starts, shape), value.args[1], places))
            value = value.args[0]
        covered = sum(prod(shape) for (_, shape), _, _ in boxes)
        if value.op is movement.empty:
            if covered != top.size:
                return
        elif 2 * covered < top.size:
            return
        if any(_overlap(one, other) for k, (one, _, _) in enumerate(boxes)
               for other, _, _ in boxes[:k]):
            return
        if len(self.users[top]) > 1 and any(
                self._cost[new] >= self.expensive for _, new, _ in boxes):
            return
        for _, _, places in boxes:
            for terms in places:
                self.regions.fix(terms)
        self.joins[top] = Join([(box, new) for box, new, _ in boxes], value)

    # ---- pieces --------------------------------------------------------------------------

    def _in_pieces(self, root: Value) -> None:
        found = self._joins_below(root)
        joins = [*found.values()]
        new = [join for join in joins if join.is_new]
        if not new:
            return
        spans = _spans(root, joins)
        if prod(map(len, spans)) > MOST_PIECES:
            self.joins = {value: join for value, join in self.joins.items()
                          if join.is_new or value not in found}
            spans = _spans(root, new)
        if prod(map(len, spans)) > MOST_PIECES:
            return
        axes = tuple(range(len(root.shape)))
        made = self._make(movement.empty, None, (), root.shape, root)
        for parts in product(*spans):
            starts, shape = tuple(at for at, _ in parts), tuple(n for _, n in parts)
            piece = self._compute(root, starts, shape)
            made = self._make(movement.update, (axes, (1,) * len(axes), shape),
                              (made, piece, *(at or None for at in starts)), root.shape, root)
        self.builder.fired["computed_in_pieces"] += 1
        self.made[root] = made

    def _joins_below(self, root: Value) -> dict[Value, Join]:
        found: dict[Value, Join] = {}
        seen: set[Value] = set()
        stack = value_args(root)
        while stack:
            value = stack.pop()
            if value in seen:
                continue
            seen.add(value)
            if value in self.joins and value.shape == root.shape:
                found[value] = self.joins[value]
            elif isinstance(value.op, Elementwise) and self._only_computed_with(value):
                stack.extend(value_args(value))
        return found

    def _compute(self, value: Value, starts: tuple[int, ...], shape: tuple[int, ...]) -> Value:
        """The box of a computed value: of all that is computed below it, inputs first."""
        cone = [value]
        seen = {value}
        for user in cone:
            for arg in value_args(user):
                if arg not in seen and isinstance(arg.op, Elementwise) and (
                        self._only_computed_with(arg)):
                    seen.add(arg)
                    cone.append(arg)
        for each in sorted(cone, key=lambda v: v.number):
            box = _part_of(each.shape, starts, shape)
            if (each, box) not in self._restricted:
                args = [self._restrict(arg, *box) if isinstance(arg, Value) else arg
                        for arg in each.args]
                self._restricted[each, box] = self._make(each.op, each.attrs, args, box[1], each)
        return self._restricted[value, _part_of(value.shape, starts, shape)]

    def _restrict(self, value: Value, starts: tuple[int, ...], shape: tuple[int, ...]) -> Value:
        """The box of an operand that a box of the result needs."""
        box = starts, shape = _part_of(value.shape, starts, shape)
        if (value, box) in self._restricted and value not in self.made:
            return self._restricted[value, box]
        if value in self.joins and not self.joins[value].has_seam(box):
            join = self.joins[value]
            found = join.part(box)
            if found is None and not join.is_new:
                return self._restrict(join.filling, starts, shape)
            if found is None:
                return self._make(movement.full, None, join.filling.args, shape, value)
            (begin, _), new = found
            return self._restrict(
                new, tuple(at - b for at, b in zip(starts, begin, strict=True)), shape)
        if shape == value.shape:
            return self.made.get(value, value)
        if isinstance(value.op, Elementwise) and self._only_computed_with(value):
            return self._compute(value, starts, shape)
        view = tuple(range(len(shape))), (1,) * len(shape)
        places = (at or None for at in starts)
        return self._make(movement.view, view, (self.made.get(value, value), *places), shape, value)

    def _make(self, op: Any, attrs: Any, args: Any, shape: tuple[int, ...], like: Value) -> Value:
        made = self.builder.make(op, attrs, args, shape, like.dtype)
        self.builder.origin.setdefault(made, self.builder.origin[like])
        return made


def _spans(root: Value, joins: list[Join]) -> list[list[tuple[int, int]]]:
    """Along each axis where the pieces of an array begin, and their lengths."""
    spans = []
    for axis, n in enumerate(root.shape):
        cuts = sorted({0, n}.union(*(join.cuts(axis) for join in joins)))
        spans.append([(begin, end - begin) for begin, end in pairwise(cuts)])
    return spans


def _in_order(update: Value) -> bool:
    """Whether an update writes a box of the array, its elements in the array's own order."""
    axes, steps, shape = update.attrs
    return axes == tuple(range(len(shape))) and len(shape) == len(update.shape) and all(
        step == 1 for step in steps)


def _inside(one: Box, other: Box) -> bool:
    return all(b <= a and a + n <= b + m for a, n, b, m in zip(*one, *other, strict=True))


def _overlap(one: Box, other: Box) -> bool:
    return all(a < b + m and b < a + n for a, n, b, m in zip(*one, *other, strict=True))


def _part_of(shape: tuple[int, ...], starts: tuple[int, ...], part: tuple[int, ...]) -> Box:
    """The box of an operand that broadcasts against a box of the result."""
    own = len(part) - len(shape)
    return (tuple(0 if n == 1 else at for n, at in zip(shape, starts[own:], strict=True)),
            tuple(1 if n == 1 else m for n, m in zip(shape, part[own:], strict=True)))


def renumber(builder: Builder, outputs: list[Value]) -> None:
    """Put the values that the outputs need in order again, inputs first."""
    numbers: dict[Value, int] = {}
    path = list(reversed(outputs))
    while path:
        value = path[-1]
        waiting = next((arg for arg in value_args(value) if arg not in numbers), None)
        if waiting is not None:
            path.append(waiting)
            continue
        path.pop()
        if value not in numbers:
            value.number = numbers[value] = len(numbers)
    builder.values[:] = numbers
