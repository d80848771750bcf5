"""Views: the steps that lead from a base to a view, read forwards and written backwards.

A step says how the next array is made of the one before.  Reading goes along the steps; writing is
a lens: to write through steps, write what the first step gives, then put that back.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from tiledarray.graph.dtypes import Shape, shape_text
from tiledarray.graph.node import Node
from tiledarray.ops import elementwise, indexing, movement
from tiledarray.recording import record
from tiledarray.recording.history import check_kept
from tiledarray.recording.join import join_nodes


class Affine(NamedTuple):
    """An `AxisView`: slices, transposes, new axes, broadcasts, diagonals."""

    axes: tuple[int, ...]
    steps: tuple[int, ...]
    starts: tuple[int, ...]
    shape: Shape


class Overlapping(NamedTuple):
    """Windows: an affine view whose dimensions follow several axes each (`movement.windows`)."""

    terms: movement.Terms
    starts: tuple[int, ...]
    shape: Shape


class Reshaped(NamedTuple):
    """A row-major reshape."""

    shape: Shape


class Part(NamedTuple):
    """The real (0) or imaginary (1) part of a complex array."""

    which: int


class Reinterpreted(NamedTuple):
    """The same bytes as elements of another dtype."""

    shape: Shape
    dtype: np.dtype[Any]


class Frozen(NamedTuple):
    """No change, but what comes after is read-only, as NumPy's ``broadcast_to`` is.

    ``why`` is told where NumPy would let it be written.
    """

    why: str = ""


class Lying(NamedTuple):
    """No change, but what comes after is taken to lie in memory with these strides, in bytes."""

    strides: tuple[int, ...]


Step = Affine | Overlapping | Reshaped | Part | Reinterpreted | Frozen | Lying
_PARTS = (elementwise.BY_NAME["real"], elementwise.BY_NAME["imag"])
_MAKE_COMPLEX = elementwise.BY_NAME["make_complex"]


def identity(shape: Shape) -> Affine:
    """Return the step to a view of everything."""
    ndim = len(shape)
    return Affine(tuple(range(ndim)), (1,) * ndim, (0,) * ndim, shape)


def permutation(shape: Shape, order: Sequence[int]) -> Affine:
    """Return the step to a transpose: axis ``k`` of the view is axis ``order[k]``."""
    ndim = len(shape)
    axes = [0] * ndim
    for position, axis in enumerate(order):
        axes[axis] = position
    return Affine(
        tuple(axes), (1,) * ndim, (0,) * ndim, tuple(shape[axis] for axis in order)
    )


def diagonal(shape: Shape, offset: int, first: int, second: int) -> Affine:
    """Return the step to a diagonal of two axes, which becomes the last axis."""
    ndim = len(shape)
    rows, columns = shape[first] - max(-offset, 0), shape[second] - max(offset, 0)
    rest = [axis for axis in range(ndim) if axis not in (first, second)]
    axes = [rest.index(axis) if axis in rest else ndim - 2 for axis in range(ndim)]
    starts = [0] * ndim
    starts[first], starts[second] = max(-offset, 0), max(offset, 0)
    length = max(0, min(rows, columns))
    return Affine(
        tuple(axes), (1,) * ndim, tuple(starts), (*(shape[axis] for axis in rest), length)
    )


def broadcast(old: Shape, new: Shape) -> Affine:
    """Return the step to a broadcast of ``old`` to ``new``."""
    ahead = len(new) - len(old)
    axes = tuple(
        -1 if size == 1 and new[ahead + axis] != 1 else ahead + axis
        for axis, size in enumerate(old)
    )
    return Affine(axes, tuple(int(axis >= 0) for axis in axes), (0,) * len(old), new)


def sliding(old: Shape, new: Shape, along: Sequence[int]) -> Overlapping:
    """Return the step to windows along some axes: where they begin, then where in the window."""
    terms = [[(axis, 1)] for axis in range(len(old))]
    for place, axis in enumerate(along):
        terms[axis].append((len(old) + place, 1))
    return Overlapping(tuple(map(tuple, terms)), (0,) * len(old), new)


@lru_cache(maxsize=1024)
def strided(size: int, start: int, shape: Shape, strides: tuple[int, ...]) -> tuple[Step, ...]:
    """Return the steps to a view of a vector: from ``start`` on, ``strides`` elements an axis."""
    long = sorted((axis for axis, length in enumerate(shape) if length > 1),
                  key=lambda axis: -strides[axis])
    if not long:
        return (Affine((-1,), (0,), (start,), shape),)
    if len(long) == 1 and strides[long[0]]:
        return (Affine((long[0],), (strides[long[0]],), (start,), shape),)
    found = _digits(size, start, shape, strides, long)
    if found is not None:
        return found
    terms = tuple((axis, strides[axis]) for axis in sorted(long) if strides[axis])
    return (Overlapping((terms,), (start,), shape),)


def _digits(
    size: int, start: int, shape: Shape, strides: Sequence[int], axes: Sequence[int]
) -> tuple[Step, ...] | None:
    """Return the steps of `strided` where each axis of several is an axis of a reshaped vector."""
    along = [strides[axis] for axis in axes]
    if not along or along[-1] <= 0:
        return None
    radices, first = [size // along[0]], []
    for stride, inner in zip(along, [*along[1:], 1], strict=True):
        if stride % inner:
            return None
        radices.append(stride // inner)
        first.append(start // stride)
        start %= stride
    lengths = [shape[axis] for axis in axes]
    if any(begin + length > radix for begin, length, radix in zip(
            first, lengths, radices, strict=False)):
        return None
    whole = radices[0] * along[0]
    steps: list[Step] = [] if whole == size else [Affine((0,), (1,), (0,), (whole,))]
    if radices[-1] == 1:
        radices.pop()
        places = tuple(axes)
    else:
        places = (*axes, -1)
        first.append(start)
    ones = tuple(int(axis >= 0) for axis in places)
    return (*steps, Reshaped(tuple(radices)), Affine(places, ones, tuple(first), shape))


def _after(first: Affine | Overlapping, second: Affine | Overlapping) -> Affine | Overlapping:
    """Return one step for two of which some overlap; what then does not is an affine step."""
    terms, starts = [], []
    reached = _terms_of(second)
    for dimension, start in zip(_terms_of(first), first.starts, strict=True):
        found: dict[int, int] = {}
        for axis, step in dimension:
            start += step * second.starts[axis]
            for further, factor in reached[axis]:
                found[further] = found.get(further, 0) + step * factor
        terms.append(tuple((axis, step) for axis, step in sorted(found.items()) if step))
        starts.append(start)
    followed = {axis for dimension in terms for axis, _ in dimension}
    if any(len(dimension) > 1 for dimension in terms) or any(
            length > 1 and axis not in followed for axis, length in enumerate(second.shape)):
        return Overlapping(tuple(terms), tuple(starts), second.shape)
    axes, steps = zip(*(dimension[0] if dimension else (-1, 0) for dimension in terms), strict=True)
    return Affine(axes, steps, tuple(starts), second.shape)


def _terms_of(step: Affine | Overlapping) -> movement.Terms:
    if isinstance(step, Overlapping):
        return step.terms
    return tuple(((axis, step),) if axis >= 0 else () for axis, step in zip(
        step.axes, step.steps, strict=True))


def _compose(first: Affine, second: Affine) -> Affine:
    axes, steps, starts = [], [], []
    for axis, step, start in zip(first.axes, first.steps, first.starts, strict=True):
        if axis < 0:
            axes.append(-1)
            steps.append(0)
            starts.append(start)
        else:
            axes.append(second.axes[axis])
            steps.append(step * second.steps[axis])
            starts.append(start + step * second.starts[axis])
    return Affine(tuple(axes), tuple(steps), tuple(starts), second.shape)


def extend(steps: tuple[Step, ...], step: Step) -> tuple[Step, ...]:
    """Return the steps with one more, merged with the last where they are of one kind."""
    if steps:
        last = steps[-1]
        if type(step) is Affine and type(last) is Affine:
            return (*steps[:-1], _compose(last, step))
        if isinstance(step, Affine | Overlapping) and isinstance(last, Affine | Overlapping):
            return (*steps[:-1], _after(last, step))
        if type(step) is Reshaped and type(last) is Reshaped:
            return (*steps[:-1], step)
        if type(step) is Frozen and (type(last) is Frozen or (step in steps and not step.why)):
            return steps
    return (*steps, step)


def _apply(node: Node, step: Step) -> Node:
    if type(step) is Affine:
        return record.view(node, *step)
    if type(step) is Overlapping:
        return record.library(movement.windows, (node, *step.starts), step.terms, step.shape,
                              node.dtype)
    if type(step) is Reshaped:
        return record.reshape(node, step.shape)
    if type(step) is Part:
        return record.unary(_PARTS[step.which], node)
    if type(step) is Reinterpreted:
        return record.reinterpret(node, *step)
    return node


def read(node: Node, steps: tuple[Step, ...]) -> Node:
    """Return the value of the view that these steps lead to."""
    for step in steps:
        node = record.view(node, *step) if type(step) is Affine else _apply(node, step)
    return node


def _fitting(value: Node, shape: Shape) -> Node:
    """Return a value that broadcasts to a shape, as was seen before.

    Raises
    ------
    ValueError
        If another thread has given the array another shape meanwhile.
    """
    if value.shape != shape and not record.broadcastable(value.shape, shape):
        raise ValueError(f"could not broadcast input array from shape {shape_text(value.shape)} "
                         f"into shape {shape_text(shape)}")
    return value


def _spread(value: Node, shape: Shape) -> Node:
    return record.broadcast_to(_fitting(value, shape), shape)


def write(node: Node, steps: tuple[Step, ...], value: Node) -> Node:
    """Return the base's value after ``value`` was written to what the steps lead to.

    ``value`` has the dtype of the view and broadcasts to its shape.
    """
    if not steps:
        return _spread(value, node.shape)
    step, rest = steps[0], steps[1:]
    if type(step) is Overlapping:
        return _write_windows(node, steps, value)
    if rest:
        value = write(_apply(node, step), rest, value)
    if type(step) is Affine:
        return _put(node, step, value)
    if type(step) is Reshaped:
        return record.reshape(_spread(value, step.shape), node.shape)
    if type(step) is Part:
        value = _spread(value, node.shape)
        other = record.unary(_PARTS[1 - step.which], node)
        parts = (other, value) if step.which else (value, other)
        return record.binary(_MAKE_COMPLEX, *parts)
    if type(step) is Reinterpreted:
        if node.dtype.kind in "fc" and step.dtype.kind not in "fc":
            check_kept(node, f"what is written into a view as {step.dtype}")
        return record.reinterpret(
            _spread(value, step.shape), node.shape, node.dtype)
    if type(step) is Lying:
        return _spread(value, node.shape)
    raise ValueError(refusal("assignment destination is read-only", (step,)))


def _write_windows(node: Node, steps: tuple[Step, ...], value: Node) -> Node:
    """Write at the places of the elements; of those that are the same NumPy says which counts.

    It goes along memory, so that need not be the last one.
    """
    if is_frozen(steps):
        raise ValueError(refusal("assignment destination is read-only", steps))
    parts = tuple(step for step in steps if type(step) is Part)
    moves = tuple(step for step in steps if type(step) is not Part)
    if Reinterpreted in map(type, moves):
        raise NotImplementedError("windows of other dtypes than their array's are read-only")
    size = node.form.kind.size
    places = np.arange(size).reshape(node.shape)
    windows = on_array(places, moves)
    flat = record.reshape(node, (size,))
    if parts:
        value = write(_taken(flat, windows.copy()), parts, value)
    windows[...] = size + np.arange(windows.size).reshape(windows.shape)
    value = record.reshape(record.broadcast_to(value, windows.shape), (windows.size,))
    return _taken(join_nodes([flat, value], 0, node.dtype, node.device), places)


def _taken(flat: Node, places: np.ndarray[Any, Any]) -> Node:
    inputs = (flat, record.leaf(flat.device.wrap(places, copy=True)))
    return record.library(indexing.take, inputs, ("at",), places.shape, flat.dtype)


def _put(node: Node, step: Affine, value: Node) -> Node:
    region = _region(step, node.form.kind.shape)
    if region == "part":
        return record.update(node, _fitting(value, step.shape), *step)
    return node if region == "nothing" else _spread(value, node.shape)


@lru_cache(maxsize=4096)
def _region(step: Affine, shape: Shape) -> str:
    """How much of an array of this shape is written through the step."""
    if any(size > 1 and axis not in step.axes for axis, size in enumerate(step.shape)):
        raise ValueError("assignment destination is read-only")
    if 0 in step.shape:
        return "nothing"
    return "everything" if step == identity(shape) else "part"


def is_part(steps: tuple[Step, ...], shape: Shape) -> bool:
    """Whether the steps are one, to a part of an array of this shape that may be written."""
    return len(steps) == 1 and type(steps[0]) is Affine and _region(steps[0], shape) == "part"


def overlaps(steps: tuple[Step, ...]) -> bool:
    """Whether elements of what the steps lead to may be the same: what is written in one is in all.

    Who writes some of them may not write the others as they were.
    """
    return Overlapping in map(type, steps)


def is_frozen(steps: tuple[Step, ...]) -> bool:
    """Whether writing through the steps is refused."""
    return Frozen in map(type, steps)


def handed_out(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """Return the steps without those that only refuse what NumPy would write elsewhere."""
    return tuple([step for step in steps if not (type(step) is Frozen and step.why)])


def refusal(words: str, steps: tuple[Step, ...]) -> str:
    """Return NumPy's words for what is read-only, and why it is if NumPy's would not be."""
    why = next((step.why for step in steps if type(step) is Frozen and step.why), "")
    return f"{words}: {why}" if why else words


def on_array(array: Any, steps: tuple[Step, ...]) -> Any:
    """Return the view of a dense array that the steps lead to."""
    for step in steps:
        if type(step) is Affine:
            array = movement.strided_view(array, step.axes, step.steps, step.starts, step.shape)
        elif type(step) is Overlapping:
            array = movement.overlapping_view(array, step.terms, step.starts, step.shape)
        elif type(step) is Reshaped:
            array = array.reshape(step.shape)
        elif type(step) is Part:
            array = array.imag if step.which else array.real
        elif type(step) is Reinterpreted:
            array = indexing.reinterpret.reference(
                np, array, attrs=None, shape=step.shape, dtype=step.dtype)
    return array


# Strides as NumPy would have them ---------------------------------------------------------------


@lru_cache(maxsize=4096)
def dense_strides(shape: Shape, itemsize: int) -> tuple[int, ...]:
    """Return the strides of a row-major array, in bytes."""
    strides = []
    stride = itemsize
    for size in reversed(shape):
        strides.append(stride)
        stride *= max(size, 1)
    return tuple(reversed(strides))


def strides_of(shape: Shape, itemsize: int, steps: tuple[Step, ...]) -> tuple[int, ...]:
    """Return the strides that NumPy's view would have, for a dense base of this shape."""
    strides = (0,) * len(shape) if 0 in shape else dense_strides(shape, itemsize)
    for step in steps:
        if type(step) is Affine:
            reached = [0] * len(step.shape)
            for axis, factor, stride in zip(step.axes, step.steps, strides, strict=True):
                if axis >= 0:
                    reached[axis] += factor * stride
            strides, shape = tuple(reached), step.shape
        elif type(step) is Overlapping:
            strides = movement.strides_along(step.terms, strides, len(step.shape))
            shape = step.shape
        elif type(step) is Reshaped:
            found = reshaped_strides(shape, strides, itemsize, step.shape)
            strides = dense_strides(step.shape, itemsize) if found is None else found
            shape = step.shape
        elif type(step) is Reinterpreted:
            if step.dtype.itemsize != itemsize:
                strides, itemsize = (*strides[:-1], step.dtype.itemsize), step.dtype.itemsize
            shape = step.shape
        elif type(step) is Lying:
            strides = step.strides
    return strides


@lru_cache(maxsize=4096)
def reshaped_strides(
    shape: Shape, strides: tuple[int, ...], itemsize: int, new: Shape
) -> tuple[int, ...] | None:
    """Return the strides after a reshape that copies nothing, ``None`` if there are none."""
    # Nothing reads the elements of this array, which has none.
    stand_in = np.lib.stride_tricks.as_strided(np.empty(1, f"V{itemsize}"), shape, strides)
    try:
        return np.reshape(stand_in, new, copy=False).strides
    except ValueError:
        return None


def new_shape(shape: Shape, wanted: Sequence[int]) -> Shape:
    """Return the shape that a reshape to ``wanted``, which may have one -1, leads to."""
    size = math.prod(shape)
    known = 1
    unknown = None
    for axis, length in enumerate(wanted):
        if length < 0:
            if unknown is not None:
                raise ValueError("can only specify one unknown dimension")
            unknown = axis
        else:
            known *= length
    result = list(wanted)
    if unknown is not None:
        if known == 0 or size % known:
            raise _bad_reshape(size, wanted)
        result[unknown] = size // known
    elif known != size:
        raise _bad_reshape(size, wanted)
    return tuple(result)


def _bad_reshape(size: int, wanted: Sequence[int]) -> ValueError:
    # NumPy's text drops an unknown length at the beginning and writes "newaxis" elsewhere.
    words = [str(length) if length >= 0 else "newaxis" for length in wanted]
    while words and words[0] == "newaxis":
        del words[0]
    text = ",".join(words) + ("," if len(wanted) == 1 and words else "")
    return ValueError(f"cannot reshape array of size {size} into shape ({text})")
