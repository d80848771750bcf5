"""Which dimensions of values follow the axes that a computation is cut along.

A signature as a graph, and what becomes of each operand's dimensions in the result of every op.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

import numpy as np

from tiledarray.ops import elementwise, indexing
from tiledarray.ops.library import BY_NAME
from tiledarray.ops.op import AxisView, Elementwise, Item, Library, Op, Reduction, Reshape, Scan

# What becomes of an operand's dimension: a dimension of the result (not negative), or
WHOLE = -1  # all of it is needed for every element, or nobody knows
ONE = -2  # it has one element
SUMMED = -10  # this and below: it is combined; equal numbers are combined together

# How many axes one problem has in the (first) result of a call, by its form in tiles; of transforms
# the attributes say it.
CORES = {"cholesky": 2, "solve": 2, "solve_by_factor": 2, "solve_symmetric": 2, "inv": 2,
         "inv_of_lower": 2, "det": 0, "slogdet": 0, "qr": 2, "eigh": 1}
EQUATIONS = ("solve", "solve_by_factor", "solve_symmetric")  # a call of two operands

Along = tuple[int | None, ...]  # which dimension of a value follows each of a loop's axes
Sizes = tuple[int, ...]


@dataclass(eq=False, slots=True)
class Entry:
    """One entry of a signature; of a leaf, ``op`` is ``None``."""

    op: Op | None
    attrs: Any
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    refs: tuple[int | None, ...] = ()

    @property
    def nbytes(self) -> int:
        """Bytes of the dense array."""
        return prod(self.shape) * self.dtype.itemsize

    @property
    def values(self) -> list[int]:
        """The operands that are values."""
        return [ref for ref in self.refs if ref is not None and ref >= 0]

    @property
    def parts(self) -> tuple[Any, ...]:
        """The entry as it stands in a signature."""
        if self.op is None:
            return None, self.shape, self.dtype
        return self.op, self.attrs, self.shape, self.dtype, *self.refs


class Looped(NamedTuple):
    """A signature with loops in it.

    Attributes
    ----------
    entries, kinds, outputs
        See `Trace.signature`.
    numbers : sequence of int
        Which entry each was; of a loop with several results, ``~number`` of the product that it is
        for.
    """

    entries: tuple[Any, ...]
    kinds: tuple[Any, ...]
    outputs: tuple[int, ...]
    numbers: Sequence[int]


def looped_of(signature: tuple[Any, ...]) -> Looped:
    """Return a signature in which nothing is a loop yet."""
    if isinstance(signature, Looped):
        return signature
    entries, kinds, outputs = signature
    return Looped(entries, kinds, outputs, range(len(entries)))


@dataclass(eq=False, slots=True)
class Graph:
    """A signature, and who reads what in it."""

    entries: list[Entry]
    kinds: Sequence[Any]
    outputs: frozenset[int]
    users: list[list[int]]
    problems: bool = False

    @classmethod
    def of(cls, looped: Looped, *, problems: bool = False) -> Graph:
        """Return the graph of a signature.

        With ``problems``, calls are known by which of their axes are those of a batch.
        """
        entries = [*map(entry_of, looped.entries)]
        users: list[list[int]] = [[] for _ in entries]
        for number, entry in enumerate(entries):
            for ref in entry.values:
                users[ref].append(number)
        return cls(entries, looped.kinds, frozenset(looped.outputs), users, problems)

    def operands(self, number: int) -> Iterator[tuple[int, tuple[int, ...]]]:
        """The operands of an entry that are values, and what becomes of their dimensions."""
        entry = self.entries[number]
        shapes = [self.entries[ref].shape if ref is not None and ref >= 0 else None
                  for ref in entry.refs]
        for k, ref in enumerate(entry.refs):
            if ref is not None and ref >= 0:
                found = _of_batch(entry, k, shapes, self.entries[ref]) if self.problems else None
                yield ref, found or _relation(entry, k, shapes)


def entry_of(parts: Sequence[Any]) -> Entry:
    """Return an entry, as it stands in a signature."""
    if parts[0] is None:
        return Entry(None, None, parts[1], parts[2])
    op, attrs, shape, dtype, *refs = parts
    return Entry(op, attrs, shape, dtype, tuple(refs))


# ---- relations -----------------------------------------------------------------------------------


def _relation(entry: Entry, k: int, shapes: Sequence[tuple[int, ...] | None]) -> tuple[int, ...]:
    """What becomes of the dimensions of operand ``k``; ``shapes`` are those of all operands."""
    shape, op = shapes[k], entry.op
    assert shape is not None
    if isinstance(op, Elementwise):
        found = _trailing(shape, len(entry.shape))
    elif isinstance(op, Reduction):
        kept = iter(range(len(entry.shape)))
        found = [SUMMED - axis if axis in entry.attrs[0] else next(kept)
                 for axis in range(len(shape))]
    elif isinstance(op, Scan):
        found = [WHOLE if axis == entry.attrs else axis for axis in range(len(shape))]
    elif isinstance(op, AxisView):
        axes, steps = entry.attrs
        found = [axis if axis >= 0 and step == 1 and start is None and axes.count(axis) == 1
                 and n == entry.shape[axis] else WHOLE
                 for axis, step, start, n in zip(axes, steps, entry.refs[1:], shape, strict=True)]
    elif isinstance(op, Reshape):
        found = _kept_in_place(shape, entry.shape)
    elif op in PRODUCTS:
        found = of_product(entry, k, shapes)
    elif op in _ALONG_AN_AXIS:
        axis = _axis_of(entry)
        found = [WHOLE] * len(shape) if axis is None or len(shape) != len(entry.shape) else [
            WHOLE if d == axis % len(shape) else d for d in range(len(shape))]
    else:
        found = [WHOLE] * len(shape)
    return tuple(ONE if n == 1 else to for n, to in zip(shape, found, strict=True))


def _of_batch(
    entry: Entry, k: int, shapes: Sequence[tuple[int, ...] | None], source: Entry
) -> tuple[int, ...] | None:
    """The same of an operand whose leading axes are those of a batch; else ``None``.

    ``source`` is the operand.
    """
    shape, op, rank = shapes[k], entry.op, len(entry.shape)
    assert shape is not None
    if isinstance(op, Item):
        if not isinstance(source.op, Library) or source.op.tile not in CORES:
            return None
        leading = len(shape) - CORES[source.op.tile]
        found = [*range(leading), *(WHOLE for _ in shape[leading:])]
    elif not isinstance(op, Library) or op.tile in ("", "product"):
        return None
    elif op.tile == "fourier":
        along = transformed(entry.attrs, rank)
        found = [WHOLE if d in along else d for d in range(rank)]
    else:
        right = shapes[1] if op.tile in EQUATIONS else None
        core = 2 if right is None or len(right) > 1 else 1
        leading = len(shape) - (core if k else 2)
        kept = rank - (core if op.tile in EQUATIONS else rank - leading)
        found = [*range(kept - leading, kept), *(WHOLE for _ in shape[leading:])]
    return tuple(ONE if n == 1 else to for n, to in zip(shape, found, strict=True))


def transformed(attrs: Any, rank: int) -> tuple[int, ...]:
    """The axes of a Fourier transform; one of real numbers has half of the last one."""
    given = dict(attrs)
    axes = given["axes"] if "axes" in given else (given["axis"],)
    return tuple(axis % rank for axis in axes)


def _trailing(shape: tuple[int, ...], rank: int) -> list[int]:
    return list(range(rank - len(shape), rank))


def _kept_in_place(shape: tuple[int, ...], to: tuple[int, ...]) -> list[int]:
    """The dimensions that a reshape leaves as they are: as long, and as much in front of them."""
    places = {}
    before = 1
    for axis, n in enumerate(to):
        if n != 1:
            places[before, n] = axis
        before *= n
    found, before = [], 1
    for n in shape:
        found.append(places.get((before, n), WHOLE))
        before *= n
    return found


def of_product(entry: Entry, k: int, shapes: Sequence[Any]) -> list[int]:
    """What becomes of the dimensions of a product's operand, those of one element included."""
    op, rank = entry.op, len(entry.shape)
    if op is BY_NAME["einsum"]:
        return _of_einsum(dict(entry.attrs)["subscripts"], k) or [WHOLE] * len(shapes[k])
    ranks = [len(shape) for shape in shapes]
    if (op is BY_NAME["dot"] and max(ranks) > 2) or 0 in ranks:
        return [WHOLE] * ranks[k]
    # How many of its last axes each operand multiplies with, and which of them is summed.
    cores = {"vecdot": (1, 1), "matvec": (2, 1), "vecmat": (1, 2)}.get(
        op.name if op else "", (min(ranks[0], 2), min(ranks[1], 2)))
    kept = sum(cores) - 2
    own = cores[k] - 1
    core = [SUMMED] if not own else [rank - kept, SUMMED] if k == 0 else [SUMMED, rank - 1]
    leading = ranks[k] - cores[k]
    return [*range(rank - kept - leading, rank - kept), *core]


def _of_einsum(subscripts: str, k: int) -> list[int]:
    """The same of a sum in Einstein's notation; nothing where that leaves letters out."""
    operands, arrow, result = subscripts.replace(" ", "").partition("->")
    if not arrow or "." in subscripts:
        return []
    letters = operands.split(",")[k]
    return [WHOLE if letters.count(letter) > 1 else result.index(letter) if letter in result
            else SUMMED - ord(letter) for letter in letters]


def _axis_of(entry: Entry) -> int | None:
    """Along which axis a library call sorts or takes; ``None``: of the array as a line."""
    if entry.op in (BY_NAME["partition"], BY_NAME["argpartition"], BY_NAME["take_along_axis"]):
        axis: int | None = dict(entry.attrs).get("axis", -1)
        return axis
    axis, _ = entry.attrs
    return axis


PRODUCTS = {BY_NAME[name] for name in ("matmul", "dot", "matvec", "vecmat", "vecdot", "einsum")}


_ALONG_AN_AXIS = {indexing.sort, indexing.argsort, *(
    BY_NAME[name] for name in ("partition", "argpartition", "take_along_axis"))}


def combining_op(entry: Entry) -> tuple[Op, Any] | None:
    """The op by which parts of a reduction or product are combined, and what to begin with."""
    dtype = entry.dtype
    if dtype.kind not in "iufcb" or (dtype.kind in "fc" and dtype.itemsize < 4):
        return None
    if isinstance(entry.op, Reduction):
        name = entry.op.combine
        if name in ("minimum", "maximum"):
            return (elementwise.BY_NAME[name], _bound(dtype, name)) if dtype.kind in "iuf" else None
        starts = {"add": 0, "multiply": 1, "logical_and": True, "logical_or": False}
        return (elementwise.BY_NAME[name], starts[name]) if name in starts else None
    if entry.op in PRODUCTS and dtype.kind != "b":
        return elementwise.BY_NAME["add"], 0
    return None


def _bound(dtype: np.dtype[Any], name: str) -> Any:
    if dtype.kind == "f":
        return np.inf if name == "minimum" else -np.inf
    limits = np.iinfo(dtype)
    return limits.max if name == "minimum" else limits.min


def combines(along: Along) -> bool:
    """Whether a value that is cut like this is combined over its parts."""
    return any(to is not None and to <= SUMMED for to in along)


def operand_along(relation: tuple[int, ...], along: Along) -> Along:
    """How an operand is cut, given how the result is."""
    return tuple(relation.index(to) if to is not None and to in relation else None for to in along)
