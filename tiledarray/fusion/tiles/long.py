"""Transforms too long for a tile, in two steps of short ones: as many kernels, with what is around.

With ``n = C r + c`` and ``m = s + R d`` for ``N = R C``, the transform of ``x`` is

    X[s + R d] = sum over c of w_C^(c d) w_N^(c s) sum over r of w_R^(r s) x[C r + c],

transforms along the rows of an array and along its columns, with a factor between (Gentleman and
Sande, Fast Fourier transforms for fun and profit, 1966: what is called the four-step method).  Its
result is split the other way round than its argument; an inverse transform that follows goes back,
and what is done to the elements in between is done to them where they are.
"""

from __future__ import annotations

from collections.abc import Collection
from math import isqrt
from typing import Any, NamedTuple

import numpy as np

from tiledarray.fusion.along import Entry, Graph, Looped
from tiledarray.fusion.bodies import exchanged
from tiledarray.fusion.target import Target
from tiledarray.fusion.tiles.beside import LINE
from tiledarray.fusion.tiles.teams import refusal
from tiledarray.ops import arithmetic, movement, selection
from tiledarray.ops.library import BY_NAME
from tiledarray.ops.op import Elementwise, Reduction
from tiledarray.ops.spectra import options_of, root_of_one

_FORWARD, _INVERSE = BY_NAME["fft.fft"], BY_NAME["fft.ifft"]
LONGEST = 1024  # of both factors; beyond, blocks have fewer columns than memory has lines for
DEEPEST = 64  # operations before a transform that are done with its first step
_INDEX = np.dtype(np.int64)


class Form(NamedTuple):
    """How an array's last axis is split: rows of columns, which may have changed places."""

    rows: int
    columns: int
    swapped: bool

    def shape(self, leading: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of an array whose other axes have those lengths."""
        last = (self.columns, self.rows) if self.swapped else (self.rows, self.columns)
        return (*leading, *last)


def in_steps(looped: Looped, target: Target) -> Looped:
    """Have transforms that are too long for a tile done in two steps, where that pays."""
    if target.kind != "cuda" or not any(
            entry[0] in (_FORWARD, _INVERSE) for entry in looped.entries):
        return looped
    graph = Graph.of(looped)
    long = {number: found for number, entry in enumerate(graph.entries)
            if (found := _form_of(entry, graph)) is not None}
    forms = {number: form for number, form in long.items() if _saves(graph, number, long)}
    if not forms or _have_halves(graph, forms):
        return looped
    return _Split(graph, looped, forms).looped()


def _form_of(entry: Entry, graph: Graph) -> Form | None:
    """How the argument of a long transform is split; ``None`` of anything else."""
    if entry.op not in (_FORWARD, _INVERSE):
        return None
    (length,), (axis,), _ = options_of(entry.attrs, len(entry.shape))
    source, width = graph.entries[entry.values[0]], entry.dtype.itemsize
    if axis != len(entry.shape) - 1 or 0 in entry.shape or source.shape != entry.shape or (
            entry.dtype.char not in "FD" or source.dtype.char not in "fdFD"):
        return None
    if refusal("fourier", (length,), width, device=True) is None:
        return None
    line = LINE // width
    for columns in range(isqrt(length) // line * line, 0, -line):
        rows = length // columns
        if length % columns == 0 and rows % line == 0 and rows <= LONGEST and all(
                refusal("fourier", (n,), width, device=True) is None for n in (rows, columns)):
            return Form(rows, columns, swapped=False)
    return None


def _saves(graph: Graph, number: int, long: Collection[int]) -> bool:
    """Whether something beside a transform is done with it; alone, cuFFT is faster."""
    source = graph.entries[number].values[0]
    beside = [*graph.users[number]]
    if len(graph.users[source]) == 1 and source not in graph.outputs:
        beside.append(source)
    return any(other in long or (isinstance(graph.entries[other].op, Elementwise)
                                  and graph.entries[other].shape == graph.entries[number].shape)
               for other in beside)


def _have_halves(graph: Graph, forms: Collection[int]) -> bool:
    """Whether libraries would need but half of the spectra: see `fusion.spectra`."""
    real = any(graph.entries[ref].dtype.kind == "f"
               for number in forms for ref in graph.entries[number].values)
    return real and any(graph.entries[user].op is selection.real
                        for number in forms for user in graph.users[number])


class _Split:
    """Long transforms, and what is done to their elements, on arrays whose last axis is split.

    Attributes
    ----------
    graph : Graph
    before : Looped
    made : dict
        The entries that are, and how.
    """

    def __init__(self, graph: Graph, looped: Looped, forms: dict[int, Form]) -> None:
        self.graph = graph
        self.before = looped
        self.made: dict[int, tuple[int, Form]] = {}
        self._more: list[tuple[Entry, int]] = []
        self._split: dict[tuple[int, Form], int] = {}
        self._number = 0  # which entry it is done for
        for number, entry in enumerate(graph.entries):
            self._number = looped.numbers[number]
            if number in forms:
                self.made[number] = self._transformed(entry, forms[number])
            elif (form := self._form_for(entry)) is not None:
                self.made[number] = self._elementwise(entry, form), form

    def looped(self) -> Looped:
        """The signature in which they are joined again where others ask for them."""
        instead = {}
        for number, (ref, form) in self.made.items():
            self._number = self.before.numbers[number]
            entry = self.graph.entries[number]
            if form.swapped:
                ref = self._swapped(ref)
                swapped = self._entry(ref)
                # An operation, so that it is stored like this and not turned once more.
                ref = self._add(selection.cast, (entry.dtype,), swapped.shape, entry.dtype, ref)
            instead[number] = Entry(movement.reshape, None, entry.shape, entry.dtype, (ref,))
        return exchanged(self.graph, self.before, instead, self._more)

    def _add(self, op: Any, attrs: Any, shape: tuple[int, ...], dtype: Any,
             *refs: int | None) -> int:
        self._more.append((Entry(op, attrs, shape, np.dtype(dtype), refs), self._number))
        return len(self.graph.entries) + len(self._more) - 1

    def _entry(self, ref: int) -> Entry:
        count = len(self.graph.entries)
        return self.graph.entries[ref] if ref < count else self._more[ref - count][0]

    def _form_for(self, entry: Entry) -> Form | None:
        """How an entry is split if it is made element by element of one that is."""
        found = None
        for ref in entry.values:
            if ref in self.made and found is None:
                shape, op = self.graph.entries[ref].shape, entry.op
                alike = isinstance(op, Elementwise) and entry.shape == shape
                kept = isinstance(op, Reduction) and not op.positions and (
                    len(shape) - 1 not in entry.attrs[0])
                found = self.made[ref][1] if alike or kept else None
        return found

    def _elementwise(self, entry: Entry, form: Form) -> int:
        refs = [self._operand(ref, form) if ref is not None and ref >= 0 else ref
                for ref in entry.refs]
        return self._add(entry.op, entry.attrs, form.shape(entry.shape[:-1]), entry.dtype, *refs)

    def _operand(self, number: int, form: Form, depth: int = 0) -> int:
        """An entry, split that way, or broadcast to what is."""
        if number in self.made and self.made[number][1] == form:
            return self.made[number][0]
        if (number, form) not in self._split:
            self._split[number, form] = self._as_split(number, form, depth)
        return self._split[number, form]

    def _as_split(self, number: int, form: Form, depth: int) -> int:
        entry = self.graph.entries[number]
        if not entry.shape:
            return number
        leading = entry.shape[:-1]
        if entry.shape[-1] == 1:
            return self._add(movement.reshape, None, (*leading, 1, 1), entry.dtype, number)
        mine = len(self.graph.users[number]) == 1 and number not in self.graph.outputs
        if mine and isinstance(entry.op, Elementwise) and depth < DEEPEST and (
                number not in self.made):
            refs = [self._operand(ref, form, depth + 1) if ref is not None and ref >= 0 else ref
                    for ref in entry.refs]
            return self._add(entry.op, entry.attrs, form.shape(leading), entry.dtype, *refs)
        shape = form._replace(swapped=False).shape(leading)
        ref = self._add(movement.reshape, None, shape, entry.dtype, number)
        return self._swapped(ref) if form.swapped else ref

    def _swapped(self, ref: int) -> int:
        """An array with its last two axes exchanged."""
        entry = self._entry(ref)
        rank = len(entry.shape)
        shape = (*entry.shape[:-2], entry.shape[-1], entry.shape[-2])
        return self._add(movement.view, ((*range(rank - 2), rank - 1, rank - 2), (1,) * rank),
                         shape, entry.dtype, ref, *(None,) * rank)

    def _transformed(self, entry: Entry, form: Form) -> tuple[int, Form]:
        """Both steps of a transform, and how its result is split."""
        (source,) = entry.values
        if source in self.made:
            ref, form = self.made[source]
        else:
            ref = self._operand(source, form)
        rank, shape = len(entry.shape) + 1, form.shape(entry.shape[:-1])
        row, column = (rank - 1, rank - 2) if form.swapped else (rank - 2, rank - 1)
        norm = dict(entry.attrs)["norm"]
        for axis in (row, column):
            attrs = (("axis", axis), ("n", shape[axis]), ("norm", norm))
            ref = self._add(entry.op, attrs, shape, entry.dtype, ref)
            if axis == row:
                ref = self._add(arithmetic.multiply, (entry.dtype, entry.dtype), shape, entry.dtype,
                                ref, self._factors(entry, form))
        return ref, Form(form.columns, form.rows, not form.swapped)

    def _factors(self, entry: Entry, form: Form) -> int:
        """What stands between both steps."""
        row, column = (self._add(movement.iota, (_INDEX,), (length,), _INDEX)
                       for length in (form.rows, form.columns))
        row = self._add(movement.reshape, None, (form.rows, 1), _INDEX, row)
        op = root_of_one(form.rows * form.columns, -1 if entry.op is _FORWARD else 1)
        ref = self._add(op, (_INDEX, _INDEX), (form.rows, form.columns), entry.dtype, row, column)
        return self._swapped(ref) if form.swapped else ref
