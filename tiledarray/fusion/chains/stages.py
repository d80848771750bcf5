"""A launch as a stage of a chain: kernels that compute each element from some at fixed distances.

What a stage computes anew may be overwritten in part by later stages of the same chain; an array
that was there before is not, for other blocks may still read it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from math import prod
from typing import Any

from tiledarray.fusion.ir import Access, Affine, Cell, Index, Value, storage
from tiledarray.fusion.plan import Kernel, Store
from tiledarray.fusion.regions import Assumption, Regions, region_of
from tiledarray.ops.op import Elementwise

MOST_AXES = 3

Places = tuple[int, ...]  # one a dimension of the arrays


@dataclass(eq=False, slots=True)
class Part:
    """A kernel of a stage.

    Attributes
    ----------
    kernel : Kernel
    axes : tuple of int
        The axis of its domain that each dimension of the arrays follows; -1 for none.
    extents : tuple of int
        The box that it computes.
    reads : dict
        For each load at a fixed distance, where in the array the box begins.
    writes : list of tuple of int
        The same of each store.
    near : dict
        By array (its memory), the least and the most of such places.
    """

    kernel: Kernel
    axes: Places
    extents: Places
    reads: dict[Cell, Places]
    writes: list[Places]
    near: dict[Value, tuple[Places, Places]]


@dataclass(eq=False, slots=True)
class Stage:
    """A launch as a part of a chain.

    Attributes
    ----------
    kernel : Kernel
    parts : list of Part
    made : set of Value
        Arrays (by memory) of which it computes every element.
    changed : set of Value
        Those of which it overwrites a part.
    near : set of Value
        Arrays that are read at fixed distances.
    afar : set of Value
        Arrays that are read at other places.
    cycles : float
        Of a multiprocessor, for a point on chip.
    operations : float
        Instructions for a point, but for what reads and writes it.
    around : frozenset of int
        Dimensions along which the arrays are rings: beyond one end lies the other.
    assumed : collection of Assumption
        What must hold of the run-time parameters for all that.
    text : tuple
        Of each part what decides its text: equal ones share what they are compiled to.
    """

    kernel: Kernel
    parts: list[Part]
    made: set[Value] = field(default_factory=set)
    changed: set[Value] = field(default_factory=set)
    near: set[Value] = field(default_factory=set)
    afar: set[Value] = field(default_factory=set)
    cycles: float = 0.0
    operations: float = 0.0
    around: frozenset[int] = frozenset()
    assumed: Collection[Assumption] = ()
    text: tuple[Any, ...] = ()

    @property
    def written(self) -> set[Value]:
        """Arrays that it writes into."""
        return self.made | self.changed

    @property
    def rank(self) -> int:
        """Dimensions of its arrays."""
        return len(self.parts[0].extents)

    @property
    def does(self) -> tuple[Any, ...]:
        """Equal for stages that do the same in the same places, of other arrays."""
        return (self.text, *((part.extents, *part.writes) for part in self.parts))


class _Unsuited(Exception):
    """A launch that is no stage."""


def stage_of(kernel: Kernel, memory: dict[Value, Value], regions: Regions) -> Stage | None:
    """Return a launch as a stage; ``None`` where it is none."""
    if regions.params is None:
        return None
    own = Regions(regions.params)  # not what others assume: it is added if this becomes a chain
    try:
        stage = Stage(kernel, [_part(part, memory, own) for part in kernel.parts])
        if len({len(part.extents) for part in stage.parts}) != 1:
            return None
        _look_at_writes(stage, memory, own)
    except _Unsuited:
        return None
    _join_rings(stage, memory)
    _look_at_reads(stage, memory)
    stage.assumed = own.assumed
    stage.text = tuple(map(_text_of, stage.parts))
    return stage


def _part(kernel: Kernel, memory: dict[Value, Value], regions: Regions) -> Part:
    group, domain = kernel.group, kernel.group.shape
    if (kernel.schedule.form != "map" or group.library is not None or group.reduced
            or any(store.sink.level != "full" for store in kernel.stores)
            or not all(map(_is_plain, group.cells))):
        raise _Unsuited
    indices = [store.sink.index for store in kernel.stores]
    followed = {_axes(index, domain) for index in indices}
    if len(followed) != 1:
        raise _Unsuited
    (axes,) = followed
    used = [axis for axis in axes if axis >= 0]
    if not 0 < len(axes) <= MOST_AXES or len({*used}) != len(used) or (
            prod(domain) != prod(domain[axis] for axis in used)
            or not all(map(_steps_by_one, indices))):
        raise _Unsuited
    part = Part(kernel, axes, tuple(domain[axis] if axis >= 0 else 1 for axis in axes), {},
                [_begin(index, regions) for index in indices], {})
    places: dict[Value, list[Places]] = {}
    for cell in group.cells:
        access = cell.access
        if cell.kind == "load" and access is not None and _is_as_it_lies(access, memory) and (
                _axes(access.index, domain) == axes and _steps_by_one(access.index)):
            at = part.reads[cell] = _begin(access.index, regions)
            places.setdefault(memory[storage(access.value)], []).append(at)
    border = kernel.border
    if border is not None and border.fill is None:
        if not memory[border.old].shape == border.old.shape == border.sizes:
            raise _Unsuited
        places.setdefault(memory[border.old], []).append(part.writes[0])
    part.near = {base: _spanned(found) for base, found in places.items()}
    return part


def _spanned(places: list[Places]) -> tuple[Places, Places]:
    """The least and the most along each dimension."""
    return (tuple(map(min, zip(*places, strict=True))),
            tuple(map(max, zip(*places, strict=True))))


def _is_as_it_lies(access: Access, memory: dict[Value, Value]) -> bool:
    """Whether what is read has the shape of what is in memory: it may be reshaped, or windows."""
    return access.strides is None and (
        memory[storage(access.value)].shape == access.value.shape)


def _is_plain(cell: Cell) -> bool:
    return cell.kind in ("load", "param") or (
        cell.kind == "apply" and (isinstance(cell.value.op, Elementwise) or len(cell.args) == 1))


def _follows(at: Affine, domain: Places) -> int:
    """The axis that an index follows along one dimension; -1 if it is at one place there."""
    return at.axis if at.step and at.axis >= 0 and domain[at.axis] > 1 else -1


def _axes(index: Index, domain: Places) -> Places:
    return tuple(_follows(at, domain) for at in index)


def _steps_by_one(index: Index) -> bool:
    return all(at.step == 1 for at in index if at.axis >= 0 and at.step)


def _begin(index: Index, regions: Regions) -> Places:
    for at in index:
        regions.fix(at.terms)
    return tuple(regions.value(at.terms) for at in index)


def _look_at_writes(stage: Stage, memory: dict[Value, Value], regions: Regions) -> None:
    """Find which arrays a stage computes all of."""
    by_base: dict[Value, list[tuple[Kernel, Store]]] = {}
    for part in stage.parts:
        for store in part.kernel.stores:
            value = store.access.value
            if memory[value].shape != value.shape:
                raise _Unsuited
            by_base.setdefault(memory[value], []).append((part.kernel, store))
    for base, stores in by_base.items():
        if any(kernel.border is not None for kernel, _ in stores):
            whole = len(stores) == 1
        else:
            whole = regions.cover([region_of(base.shape, store.sink.index, kernel.group.shape)
                                   for kernel, store in stores])
        (stage.made if whole else stage.changed).add(base)


def _join_rings(stage: Stage, memory: dict[Value, Value]) -> None:
    """Take parts that do the same on rings for one: what `roll` is made of.

    ``0.5 * (np.roll(u, 1) + np.roll(u, -1))`` is three parts, of which the first reads ``u[-1]``
    below ``u[0]``; where beyond one end lies the other, all of them read one below and one above.
    """
    by_base: dict[Value, list[Part]] = {}
    for part in stage.parts:
        for store in part.kernel.stores:
            by_base.setdefault(memory[store.access.value], []).append(part)
    if stage.changed or len(stage.parts) == len(by_base) or any(
            len(part.writes) != 1 for part in stage.parts):
        return
    found: list[Part] = []
    around = frozenset[int]()
    for base, parts in by_base.items():
        if len(parts) == 1:
            found += parts
            continue
        own = frozenset(d for d, n in enumerate(base.shape)
                        if max(part.extents[d] for part in parts) < n)
        ring = _ring(parts, base.shape, own, memory)
        if ring is None:
            return
        found.append(ring)
        around |= own
    stage.parts, stage.around = found, around


def _ring(parts: list[Part], shape: Places, around: frozenset[int],
          memory: dict[Value, Value]) -> Part | None:
    """Parts that compute all of an array as one, if they do the same on rings along these axes."""
    main = max(parts, key=lambda part: prod(part.extents))
    if -1 in main.axes or any(other.shape != shape for other in main.near) or any(
            part.kernel.border is not None or not _is_alike(part, main, shape, memory)
            for part in parts):
        return None
    reads = {cell: _shift(main, cell) for cell in main.reads}
    # Along others nothing beyond an end is there to be read.
    if any(shift[d] for shift in reads.values() for d in range(len(shape)) if d not in around):
        return None
    near: dict[Value, list[Places]] = {}
    for cell, shift in reads.items():
        assert cell.access is not None
        near.setdefault(memory[storage(cell.access.value)], []).append(shift)
    return Part(main.kernel, main.axes, shape, reads, [(0,) * len(shape)],
                {other: _spanned(places) for other, places in near.items()})


def _shift(part: Part, cell: Cell) -> Places:
    return tuple(a - b for a, b in zip(part.reads[cell], part.writes[0], strict=True))


def _is_alike(part: Part, main: Part, shape: Places, memory: dict[Value, Value]) -> bool:
    """Whether a part computes the same as another one, on rings."""
    cells, others = part.kernel.cells, main.kernel.cells
    if len(cells) != len(others) or len(part.writes) != 1:
        return False
    numbers = {cell: k for k, cell in enumerate(cells)}
    numbers_of_main = {cell: k for k, cell in enumerate(others)}
    for one, other in zip(cells, others, strict=True):
        if one.kind != other.kind or one.dtype != other.dtype or (
                [*map(numbers.get, one.args)] != [*map(numbers_of_main.get, other.args)]):
            return False
        if one.kind == "param" and one.value != other.value:
            return False
        if one.kind == "apply" and (one.value.op, one.value.attrs) != (
                other.value.op, other.value.attrs):
            return False
        if one.kind == "load" and not _reads_alike(part, one, main, other, shape, memory):
            return False
    return numbers[part.kernel.stores[0].sink.cell] == (
        numbers_of_main[main.kernel.stores[0].sink.cell])


def _reads_alike(part: Part, cell: Cell, main: Part, other: Cell, shape: Places,
                 memory: dict[Value, Value]) -> bool:
    if cell not in part.reads or other not in main.reads:
        return False
    assert cell.access is not None and other.access is not None
    return (memory[storage(cell.access.value)] is memory[storage(other.access.value)]
            and all((a - b) % n == 0 for a, b, n in zip(
                _shift(part, cell), _shift(main, other), shape, strict=True)))


def _look_at_reads(stage: Stage, memory: dict[Value, Value]) -> None:
    """Find what a stage reads, and how long a point takes."""
    size = max(prod(base.shape) for base in stage.written)
    accesses = 0.0
    for part in stage.parts:
        stage.near.update(part.near)
        stage.afar.update(
            memory[storage(cell.access.value)] for cell in part.kernel.cells
            if cell.kind == "load" and cell.access is not None and cell not in part.reads)
        # Rows that a thread has together share what they read.
        reads = sum(1.0 if at[-1] != part.writes[0][-1] else 0.5 for at in part.reads.values())
        accesses += (reads + len(part.kernel.stores)) * prod(part.extents) / size
    stage.operations = 0.8 * stage.kernel.flops / size + 2
    stage.cycles = max(accesses / 32, (accesses + stage.operations) / 96)


def _text_of(part: Part) -> tuple[Any, ...]:
    """What decides the text of a part, but for names."""
    numbers = {cell: k for k, cell in enumerate(part.kernel.cells)}
    origin = part.writes[0]
    found = []
    for cell in numbers:
        op = cell.value.op if cell.kind == "apply" else None
        shift = tuple(a - b for a, b in zip(part.reads[cell], origin, strict=True)) if (
            cell in part.reads) else None
        found.append((cell.kind, op, cell.dtype, shift, *map(numbers.get, cell.args)))
    return tuple(found)
