"""Library calls by several threads, part by part; NumPy makes them in one.

A part is what NumPy would have computed of it, so values are NumPy's to the bit.  Parts are written
where they belong; only calls of several results are put together afterwards.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from tiledarray.devices.threads import in_turns
from tiledarray.errors import raised_outside
from tiledarray.ops.op import Library, Op, Parts

Shape = tuple[int, ...]
Memory = Callable[[Shape, np.dtype[Any]], np.ndarray]
Shared = Callable[..., Any]

SMALL = 128  # rows and columns up to which BLAS and LAPACK leave a matrix to one thread
WORTH_NANOSECONDS = 1.2e6  # as NumPy takes them; to wake a thread, and wait for it, takes 0.1 ms
EACH = 4e5  # nanoseconds that are worth another thread
TURNS = 3  # parts a thread: one that the machine has no time for does fewer
LINE = 8  # elements of a cache line: threads that write the last axis share none


@dataclass(frozen=True, slots=True)
class Cut:
    """How a call is cut into parts.

    Attributes
    ----------
    length : int
        Of the axis that is cut.
    inputs : tuple of int
        Which axis of each input that is; -1 for what every part is given whole.
    result : int
        Which axis of the result it is.
    threads : int
        That take part; each does several parts, as it comes to them.
    """

    length: int
    inputs: tuple[int, ...]
    result: int
    threads: int

    def parts_of(self, inputs: Sequence[Any], span: slice) -> list[Any]:
        """Return what a thread is given of the inputs."""
        return [_part(x, axis, span) for x, axis in zip(inputs, self.inputs, strict=True)]

    def spans(self, *, in_lines: bool = False) -> list[slice]:
        """Return the parts of the axis; ``in_lines``: it is the last in memory."""
        count = min(self.length, TURNS * self.threads) if self.threads > 1 else 1
        unit = LINE if in_lines and self.length >= 2 * LINE * count else 1
        places = [self.length * k // count // unit * unit for k in range(count)]
        return [slice(*pair) for pair in itertools.pairwise([*places, self.length])]


def shared_out(op: Op, attrs: Any, operands: Sequence[Any], threads: int) -> Shared | None:
    """Return what computes the same by several threads; ``None`` where that does not pay.

    Parameters
    ----------
    op : Op
    attrs : Any
        Of the node.
    operands : sequence
        What has a shape and a dtype; a scalar among them is one thread's.
    threads : int
        At most so many take part.

    Returns
    -------
    callable or None
        ``shared(memory, *inputs, attrs, shape, dtype)``; ``memory(shape, dtype)`` is where the
        result is put.  NumPy's warnings are silent.
    """
    if threads < 2 or type(op) is not Library or op.parts is None or not operands or not all(
            hasattr(x, "shape") for x in operands):
        return None
    if op.parts.turns is not None:
        return _axis_by_axis(op, attrs, operands[0], threads)
    cut = _CUTS[op.parts.by](op.parts, attrs, operands, threads)
    return None if cut is None else _sharing(op, op.parts, cut)


def _sharing(op: Library, parts: Parts, cut: Cut) -> Shared:
    """Return what computes a call that is cut so."""

    def shared(memory: Memory, *inputs: Any, **others: Any) -> Any:
        if _holds(parts, others["attrs"], *inputs):
            try:
                if op.outputs > 1:
                    return _put_together(op, cut, memory, inputs, **others)
                return _put_in_place(op, parts, cut, memory, inputs, **others)
            except Exception as error:
                if raised_outside(error):
                    raise
        return op.reference(np, *inputs, **others)  # it fails in NumPy's way

    return shared


def _put_in_place(op: Library, parts: Parts, cut: Cut, memory: Memory, inputs: Sequence[Any], *,
                  attrs: Any, shape: Shape, dtype: Any) -> Any:
    """Return one result, of which each thread has written a part."""
    result = memory(shape, dtype)
    spans = cut.spans(in_lines=cut.result == len(shape) - 1)

    def compute(span: slice) -> None:
        out, given = _part(result, cut.result, span), cut.parts_of(inputs, span)
        if parts.into is not None:
            parts.into(out, *given, attrs=attrs)
        else:
            out[...] = op.reference(np, *given, attrs=attrs, shape=out.shape, dtype=dtype)

    _each(compute, spans, cut.threads)
    return result


def _holds(parts: Parts, attrs: Any, *inputs: Any) -> bool:
    return parts.holds is None or parts.holds(attrs, *inputs)


def _put_together(op: Library, cut: Cut, memory: Memory, inputs: Sequence[Any],
                  **others: Any) -> Any:
    """Return several results, whose shapes are known once the parts are there."""
    spans = cut.spans()
    found: dict[int, tuple[Any, ...]] = {}

    def compute(span: slice) -> None:
        found[span.start] = op.reference(np, *cut.parts_of(inputs, span), **others)

    _each(compute, spans, cut.threads)
    results = tuple(memory((cut.length, *part.shape[1:]), part.dtype) for part in found[0])

    def put(span: slice) -> None:
        for result, part in zip(results, found[span.start], strict=True):
            result[span] = part

    _each(put, spans, cut.threads)
    return results


def _each(compute: Callable[[slice], None], spans: Sequence[slice], threads: int) -> None:
    """Compute each part, in any of the threads."""
    def silently(span: slice) -> None:
        with np.errstate(all="ignore"):  # each thread has its own
            compute(span)

    in_turns(silently, spans, threads)


def _part(array: Any, axis: int, span: slice) -> Any:
    return array if axis < 0 else array[(slice(None),) * axis + (span,)]


# ---- how calls are cut -----------------------------------------------------------------------


def _worth(parts: Parts, operands: Sequence[Any], elements: int, line: int, threads: int) -> int:
    """Return into how many parts a call is worth cutting: 1 if it is not."""
    nanoseconds = elements * parts.nanoseconds * max(x.dtype.itemsize for x in operands) / 8
    if parts.logarithmic:
        nanoseconds *= math.log2(max(line, 2))
    return min(threads, int(nanoseconds / EACH)) if nanoseconds >= WORTH_NANOSECONDS else 1


def _longest(shape: Shape, axes: Sequence[int], count: int) -> int | None:
    """Return which of the axes is cut: the outermost that does for all parts, else the longest."""
    ample = [axis for axis in axes if shape[axis] >= 4 * count]
    found = ample[0] if ample else max(axes, key=lambda axis: shape[axis], default=None)
    return None if found is None or shape[found] < 2 else found


def _lines(parts: Parts, attrs: Any, operands: Sequence[Any], threads: int) -> Cut | None:
    """Cut a call along some axes across another."""
    shapes = [x.shape for x in operands]
    rank, own = len(shapes[0]), parts.axis(attrs)
    if own is None:
        return None
    taken = {axis % rank for axis in (own if isinstance(own, tuple) else (own,))}
    whole = tuple(map(max, *shapes)) if len(shapes) > 1 else shapes[0]
    elements, line = math.prod(whole), math.prod(whole[axis] for axis in taken)
    if not all(map(math.prod, shapes)):
        return None
    count = _worth(parts, operands, elements, line, threads)
    cut = _longest(whole, [axis for axis in range(rank) if axis not in taken], count)
    if cut is None or count < 2:
        return None
    inputs = tuple(cut if shape[cut] == whole[cut] else -1 for shape in shapes)
    return Cut(whole[cut], inputs, parts.result(attrs, cut), min(count, whole[cut]))


def _elements(parts: Parts, attrs: Any, operands: Sequence[Any], threads: int) -> Cut | None:
    """Cut a call of each element of one input."""
    shape = operands[parts.of].shape
    line = max((math.prod(x.shape) for k, x in enumerate(operands) if k != parts.of), default=2)
    count = _worth(parts, operands, math.prod(shape), line, threads)
    cut = _longest(shape, range(len(shape)), count)
    if cut is None or count < 2:
        return None
    inputs = tuple(cut if k == parts.of else -1 for k in range(len(operands)))
    return Cut(shape[cut], inputs, cut, min(count, shape[cut]))


def _places(parts: Parts, template: Any, operands: Sequence[Any], threads: int) -> Cut | None:
    """Cut what one index array reads across an axis of that."""
    if len(operands) != 2 or "new" in template:
        return None
    array, places = (x.shape for x in operands)
    axis = template.index("at")
    if not array[axis]:
        return None  # an error
    elements = math.prod(array) // array[axis] * math.prod(places)
    count = _worth(parts, operands[:1], elements, 2, threads)
    cut = _longest(places, range(len(places)), count)
    if cut is None or count < 2:
        return None
    return Cut(places[cut], (-1, cut), axis + cut, min(count, places[cut]))


def _matrices(parts: Parts, attrs: Any, operands: Sequence[Any], threads: int) -> Cut | None:
    """Cut a call of many matrices across their leading axis."""
    shapes = [x.shape for x in operands]
    rank = max(map(len, shapes))
    length = max(shape[0] for shape in shapes if len(shape) == rank) if rank > 2 else 0
    if not length or any(max(shape[-2:]) > SMALL for shape in shapes if len(shape) > 1):
        return None
    count = min(length, _worth(parts, operands, max(map(math.prod, shapes)), 2, threads))
    inputs = tuple(
        0 if len(shape) == rank and shape[0] == length else -1 for shape in shapes)
    return Cut(length, inputs, 0, count) if count > 1 else None


_CUTS = {"lines": _lines, "elements": _elements, "places": _places, "matrices": _matrices}


# ---- one axis after another ------------------------------------------------------------------


def _axis_by_axis(op: Library, attrs: Any, operand: Any, threads: int) -> Shared | None:
    """Return what makes the calls along one axis after another that NumPy makes."""
    assert op.parts is not None and op.parts.turns is not None
    turns: list[tuple[Library, Any, Cut | None, Shape]] = []
    turned = operand
    for one, given, shape in op.parts.turns(attrs, operand.shape):
        assert one.parts is not None
        turns.append((one, given, _lines(one.parts, given, [turned], threads), shape))
        turned = _Like(shape, np.result_type(operand.dtype, 1j))
    if all(cut is None for _, _, cut, _ in turns) or not _holds(op.parts, attrs, operand):
        return None

    def shared(memory: Memory, x: Any, *, attrs: Any, shape: Shape, dtype: Any) -> Any:
        array, spare = x, None
        between = np.result_type(x.dtype, 1j)
        for number, (one, given, cut, made) in enumerate(turns, 1):
            kind = dtype if number == len(turns) else between
            fits = spare is not None and spare.shape == made and spare.dtype == kind
            reused = (lambda shape, dtype, spare=spare: spare) if fits else memory
            result = _turned(one, given, cut, reused, array, made, kind)
            array, spare = result, None if array is x else array
        return array

    return shared


def _turned(one: Library, attrs: Any, cut: Cut | None, memory: Memory, array: np.ndarray,
            shape: Shape, dtype: Any) -> Any:
    """Return the result of one call along an axis, in parts or, where it is not cut, whole."""
    assert one.parts is not None
    cut = cut or Cut(1, (-1,), -1, 1)
    return _sharing(one, one.parts, cut)(memory, array, attrs=attrs, shape=shape, dtype=dtype)


class _Like(NamedTuple):
    """What a call is cut by."""

    shape: Shape
    dtype: np.dtype[Any]
