"""The notation in which ops declare what they contribute to gradients (`ops.op.Op.vjp`).

A rule is one Python expression.  In it ``x, y, z, w`` are the op's inputs as arrays or scalars,
``inputs`` all of them, ``k`` the place of the input that is asked for, ``out`` the result,
``attrs`` what is static about this use of the op, and ``g`` the cotangent of the result.  Functions
are NumPy's, by their names, and those of this file and its neighbours (`names.py`).  All of it is
recorded, so that gradients of gradients need nothing else.

Of an op with several results ``g`` is a dict: the cotangents by the places of those results that
have one.  ``part(place, shape, dtype)`` is such a result.

Cotangents follow JAX's convention: that of ``f`` at ``z = a + ib`` is, for a real ``f``,
``df/da - i df/db``, and for a holomorphic one ``g * f'(z)``.
"""

from __future__ import annotations

import cmath
import functools
import math
from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from tiledarray.api import (
    creation,
    differences,
    indexing,
    joining,
    manipulation,
    pointwise,
    products,
    progressions,
    reductions,
    sorting,
    ufuncs,
)
from tiledarray.arrays import index
from tiledarray.arrays.handle import Handle, as_node, wrap
from tiledarray.core import BEGINS
from tiledarray.graph.node import Node
from tiledarray.ops import indexing as places
from tiledarray.ops import movement
from tiledarray.ops.elementwise import BY_NAME
from tiledarray.ops.op import Update
from tiledarray.recording import record

_MODULES = (
    reductions, manipulation, joining, creation, progressions, products, pointwise, indexing,
    sorting, differences)
_SCALED = BY_NAME["scaled"]

pi = math.pi
ln2, ln10 = math.log(2), math.log(10)


# Factors -----------------------------------------------------------------------------------------


def scaled(factor: Any, value: Any) -> Any:
    """Return the product; where one factor is 0 it is 0, also beside an infinity or a NaN."""
    if not isinstance(factor, Handle):
        return factor * value if factor else zeros_of(value)
    if not isinstance(value, Handle):
        if cmath.isfinite(value):
            return factor * value
        dtype = np.result_type(factor.dtype, value)
        value = wrap(record.full((), dtype.type(value).item(), dtype, factor.node.device))
    left, right = factor.node, value.node
    dtype = left.dtype
    if dtype is right.dtype:
        return wrap(record.binary(_SCALED, left, right))
    dtype = np.result_type(dtype, right.dtype)
    return wrap(record.binary(_SCALED, record.cast(left, dtype), record.cast(right, dtype)))


def inverse(x: Any) -> Any:
    """Return ``1 / x`` as NumPy has it, also of a zero of Python's."""
    if isinstance(x, Handle) or x:
        return 1 / x
    return complex(math.nan, math.nan) if isinstance(x, complex) else math.copysign(math.inf, x)


def one(condition: Any) -> Any:
    """Return the factor 1 where a condition holds, else 0: of the other factor's dtype."""
    return condition


def above(x: Any, y: Any) -> Any:
    """Return 1 where ``x`` is the larger one, one half where they are equal, in their dtype."""
    larger, equal = (x > y).node, (x == y).node
    dtype = np.result_type(*(z.dtype if isinstance(z, Handle) else z for z in (x, y)))
    return wrap(record.cast(larger, dtype)) + 0.5 * wrap(record.cast(equal, dtype))


def where(condition: Any, x: Any, y: Any) -> Any:
    """Return `numpy.where`; of scalars alone a scalar."""
    if not isinstance(condition, Handle):
        return x if condition else y
    if not isinstance(x, Handle) and not isinstance(y, Handle):
        x = wrap(record.full((), float(x), np.dtype(float), condition.node.device))
    return xp.where(condition, x, y)


def zeros_of(x: Any) -> Any:
    """Return zeros of the shape and dtype of an array."""
    node = x.node
    return wrap(record.full(node.shape, node.dtype.type(0).item(), node.dtype, node.device))


# Reductions --------------------------------------------------------------------------------------


def expand(g: Any, x: Any, attrs: Any) -> Any:
    """Return what belongs to the result of a reduction at every element that was reduced."""
    node = record.expand_dims(g.node, attrs[0]) if attrs[0] else g.node
    return wrap(record.broadcast_to(node, x.shape))


def of_now(out: Any, x: Any, function: Any, axis: Any) -> Any:
    """Return the extrema of ``x`` as it is computed now: ``out``, or the same once more.

    If they have been computed and it has not, it may not come out with the same bits.
    """
    if x.node.buffer is not None or out.node.buffer is None:
        return out
    return function(x, axis)


def ties(x: Any, out: Any, attrs: Any) -> Any:
    """Return which part each element has in the extremum: equal ones the same."""
    same = x == expand(out, x, attrs)
    count = wrap(record.cast(same.node, x.dtype)).sum(axis=attrs[0])
    return same / expand(count, x, attrs)


def deviations(x: Any, attrs: Any) -> Any:
    """Return the differences from the mean."""
    return x - x.mean(axis=attrs[0], keepdims=True)


def product_of_others(x: Any, attrs: Any) -> Any:
    """Return for each element the product of all others that are reduced with it."""
    axes = attrs[0]
    kept = [axis for axis in range(x.ndim) if axis not in axes]
    order = (*kept, *axes)
    rows = x.transpose(order)
    shape = rows.shape
    rows = rows.reshape(*(x.shape[axis] for axis in kept), -1)
    before = xp.cumprod(_shifted(rows), axis=-1)
    behind = xp.cumprod(_shifted(rows[..., ::-1]), axis=-1)[..., ::-1]
    return (before * behind).reshape(shape).transpose(np.argsort(order))


def _shifted(rows: Any) -> Any:
    """Return rows with a one in front and without their last element."""
    shifted = xp.ones_like(rows)
    shifted[..., 1:] = rows[..., :-1]
    return shifted


# Movement ----------------------------------------------------------------------------------------


def unview(g: Any, inputs: Sequence[Any], attrs: Any) -> Any:
    """Return what belongs to an array of which ``g`` belongs to a view, zero elsewhere."""
    x, *starts = inputs
    repeated, inverse, axes = _way_back(*attrs, tuple(starts), g.shape, x.shape)
    if repeated:
        g = g.sum(axis=repeated)
    if inverse is not None:
        return wrap(record.view(g.node, *inverse))
    found = _placed(g, x, starts, axes, attrs[1])
    if _is_diagonal(axes, attrs[1], starts, g.shape, x.shape):
        _diagonals[found.node] = g.node
    return found


def _placed(g: Any, x: Any, starts: Sequence[Any], axes: tuple[int, ...],
            steps: tuple[int, ...]) -> Any:
    """Return an array like ``x`` of zeros but for ``g`` where the view reads."""
    if (rows := _diagonal_of(axes, steps, starts, g.shape, x.shape)) is not None:
        return _on_diagonal(g, x, *rows)
    new = record.cast(g.node, x.dtype)
    return wrap(record.update(zeros_of(x).node, new, axes, steps, starts, g.shape))


# The diagonals of matrices that are zero elsewhere, which need not be multiplied with as such.
_diagonals: WeakKeyDictionary[Node, Node] = WeakKeyDictionary()


def diagonal_alone(x: Any) -> Any:
    """Return the diagonals of matrices that are known to be zero elsewhere, ``None`` of others."""
    found = _diagonals.get(x.node)
    return None if found is None else wrap(found)


def _is_diagonal(axes: tuple[int, ...], steps: tuple[int, ...], starts: Sequence[Any],
                 shape: tuple[int, ...], whole: tuple[int, ...]) -> bool:
    """Whether a view reads the whole diagonals of matrices."""
    rank = len(shape)
    return (axes == (*range(rank), rank - 1) and shape == whole[:-1] == (*whole[:-2], whole[-1])
            and all(step == 1 for step in steps) and all(start == 0 for start in starts))


FEW = 64  # places in windows that are added one by one


def overlapped(g: Any, inputs: Sequence[Any], attrs: Any) -> Any:
    """Return what belongs to an array of which ``g`` belongs to windows: sums where they overlap.

    Of the axes that a dimension follows the longest is added in one go, place by place of others;
    of many places, all by one sum.
    """
    x, *starts = inputs
    apart: set[int] = set()
    for terms in attrs:
        left = sorted((g.shape[axis], axis) for axis, _ in terms if axis not in apart)
        apart.update(axis for _, axis in left[:-1])
    followed = sorted({axis for terms in attrs for axis, _ in terms})
    repeated = tuple(axis for axis in range(g.ndim) if axis not in followed)
    rows = g.sum(axis=repeated) if repeated else g
    attrs = [[(followed.index(axis), step) for axis, step in terms] for terms in attrs]
    order = sorted(followed.index(axis) for axis in apart)
    many = math.prod(rows.shape[axis] for axis in order) > FEW
    if many and all(len(terms) == 1 or (len(terms) == 2 and all(step == 1 for _, step in terms))
                    for terms in attrs) and sum(map(len, attrs)) == rows.ndim:
        return _overlapped_at_once(rows, x, starts, attrs, order)
    kept = [axis for axis in range(rows.ndim) if axis not in order]
    rows = xp.moveaxis(rows, order, range(len(order)))
    total = zeros_of(x)
    for place in np.ndindex(*rows.shape[:len(order)]):
        at = dict(zip(order, place, strict=True))
        along = [next(((kept.index(axis), step) for axis, step in terms if axis not in at), (-1, 0))
                 for terms in attrs]
        axes, steps = zip(*along, strict=True)
        first = [start + sum(step * at.get(axis, 0) for axis, step in terms)
                 for start, terms in zip(starts, attrs, strict=True)]
        new = rows[place]
        here = wrap(record.view(total.node, axes, steps, first, new.shape))
        total = wrap(record.update(
            total.node, record.cast((here + new).node, x.dtype), axes, steps, first, new.shape))
    return total


def _overlapped_at_once(
    rows: Any, x: Any, starts: Sequence[int], attrs: Sequence[Any], apart: Sequence[int],
) -> Any:
    """Add all places of windows: element i gets those of window i - k at place k.

    They are read askew, from rows with zeros around them.
    """
    apart = [axis for axis in apart if not _is_the_same_along(rows, axis)] + [
        axis for axis in apart if _is_the_same_along(rows, axis)]
    reached: dict[int, Any] = {}
    widths, region, steps = [(0, 0)] * rows.ndim, [], []
    for dimension, terms in enumerate(attrs):
        place = next((axis for axis, _ in terms if axis in apart), None)
        window = next(axis for axis, _ in terms if axis != place)
        along = [(dimension, 1)]
        count = rows.shape[window]
        if place is not None:
            further = rows.shape[place] - 1
            widths[window] = further, further
            count += further
            column = len(attrs) + apart.index(place)
            along.append((column, -1))
            if not _is_the_same_along(rows, place):
                reached[place] = ((column, 1),), 0
        reached[window] = tuple(along), widths[window][0]
        region.append(count)
        steps.append(1 if place is not None else terms[0][1])
    lengths = [rows.shape[axis] for axis in apart]
    rows = rows[tuple([slice(None) if axis in reached else 0 for axis in range(rows.ndim)])]
    padded = xp.pad(rows, [widths[axis] for axis in sorted(reached)])
    terms, first = zip(*[reached[axis] for axis in sorted(reached)], strict=True)
    askew = wrap(record.library(
        movement.windows, (padded.node, *first), terms, (*region, *lengths), padded.dtype))
    total = askew.sum(axis=tuple(range(len(region), askew.ndim)))
    axes = tuple(range(len(region)))
    return wrap(record.update(zeros_of(x).node, record.cast(total.node, x.dtype), axes,
                              tuple(steps), starts, tuple(region)))


def _is_the_same_along(array: Any, axis: int) -> bool:
    """Whether an array was broadcast along an axis."""
    node = array.node
    return node.op is movement.view and node.keeps != BEGINS and axis not in node.attrs[0]


SMALL = 128  # rows of matrices, each a problem of a batch, whose diagonals are chosen


def _diagonal_of(
    axes: tuple[int, ...], steps: tuple[int, ...], starts: Sequence[Any], shape: tuple[int, ...],
    whole: tuple[int, ...],
) -> tuple[int, int] | None:
    """Return which two dimensions a view reads the diagonals of; ``None`` of all other views.

    Of small matrices, many of them, and all of each.
    """
    twice = [d for d, axis in enumerate(axes) if axis >= 0 and axes.count(axis) == 2]
    if len(whole) < 3 or len(twice) != 2 or any(step != 1 for step in steps):
        return None
    first, second = twice
    rest = [axis for d, axis in enumerate(axes) if d != second]
    all_of_each = [shape[axis] for axis in rest] == [n for d, n in enumerate(whole) if d != second]
    if (rest != [*range(len(rest))] or not all_of_each or whole[first] != whole[second]
            or whole[first] > SMALL or any(start != 0 for start in starts)):
        return None
    return first, second


def _on_diagonal(g: Any, x: Any, first: int, second: int) -> Any:
    """Return arrays like `x` with ``g`` on the diagonals, as elementwise work, which fuses."""
    sides = [n if d in (first, second) else 1 for d, n in enumerate(x.shape)]
    chosen = xp.eye(x.shape[first], dtype=bool, device=x.device).reshape(sides)
    shape = [n if d != second else 1 for d, n in enumerate(x.shape)]
    return where(chosen, wrap(record.cast(g.node, x.dtype)).reshape(shape), 0)


PART = 8  # of this many, a region is added where it is; larger ones are summed in pieces


def added(before: Any, value: Any) -> Any:
    """Return the sum of what belongs to an array, where one part of it may be of a small region."""
    node = value.node
    if before.dtype == value.dtype:
        if _is_of_places(node) and _is_zero(node.inputs[0]):
            return _added_at_places(before, node)
        old = before.node.inputs[0] if _is_of_places(before.node) else None
        if old is not None and not _is_of_places(old) and not _is_of_places(node):
            # Where it is of places, every addition would go through all of them again.
            return _added_at_places(value if _is_zero(old) else wrap(old) + value, before.node)
    if type(node.op) is Update and node.buffer is None:
        old, new, *starts = node.inputs
        axes, steps, region = node.attrs
        if PART * math.prod(region) <= math.prod(node.shape) and _is_zero(old):
            here = wrap(record.view(before.node, axes, steps, starts, region))
            return wrap(
                record.update(before.node, (here + wrap(new)).node, axes, steps, starts, region))
    return before + value


def _is_of_places(node: Node) -> bool:
    """Whether values were added at places, and neither is computed yet."""
    return node.op is places.add_at and node.buffer is None


def _is_zero(node: Node) -> bool:
    return node.op is movement.full and not node.keeps and node.inputs[0] == 0


def _added_at_places(whole: Any, part: Node) -> Any:
    """Return an array with what another has at its places added there, after all else.

    So zeros are never made for it, and what is dense is computed in one go.
    """
    return wrap(record.library(
        places.add_at, (whole.node, *part.inputs[1:]), part.attrs, part.shape, part.dtype))


@functools.lru_cache(maxsize=4096)
def _way_back(
    axes: tuple[int, ...], steps: tuple[int, ...], starts: tuple[int, ...], shape: tuple[int, ...],
    whole: tuple[int, ...],
) -> tuple[tuple[int, ...], Any, tuple[int, ...]]:
    """Return over which axes of a view to sum, the view that undoes the rest, and its axes.

    Instead of the view ``None`` if it does not read every element once.
    """
    read = {axis for axis, step in zip(axes, steps, strict=True) if axis >= 0 and step}
    repeated = tuple(axis for axis in range(len(shape)) if axis not in read)  # broadcast
    numbers = {axis: k for k, axis in enumerate(sorted(read))}
    axes = tuple(numbers.get(axis, -1) if step else -1
                 for axis, step in zip(axes, steps, strict=True))
    kept = tuple(shape[axis] for axis in sorted(read))
    return repeated, _turned_back(axes, steps, starts, kept, whole), axes


def _turned_back(
    axes: tuple[int, ...], steps: tuple[int, ...], starts: Sequence[int], shape: tuple[int, ...],
    whole: tuple[int, ...],
) -> Any:
    """Return the view that undoes one that reads every element once; ``None`` of others."""
    if sorted(axis for axis in axes if axis >= 0) != [*range(len(shape))]:  # diagonals read two
        return None
    places, back, first = [0] * len(shape), [1] * len(shape), [0] * len(shape)
    for dimension, (axis, step, start, size) in enumerate(
            zip(axes, steps, starts, whole, strict=True)):
        if axis < 0:
            if size != 1:
                return None
            continue
        if shape[axis] != size or (size > 1 and abs(step) != 1):
            return None
        places[axis] = dimension
        back[axis] = step if size > 1 else 1
        first[axis] = start if size > 1 and step < 0 else 0
    return tuple(places), tuple(back), tuple(first), whole


def kept_by(g: Any, inputs: Sequence[Any], attrs: Any) -> Any:
    """Return what belongs to the array before a region of it was overwritten."""
    axes, steps, region = attrs
    node = g.node
    zero = record.full((), node.dtype.type(0).item(), node.dtype, node.device)
    return wrap(record.update(node, zero, axes, steps, tuple(inputs[2:]), region))


def view_of(g: Any, inputs: Sequence[Any], attrs: Any) -> Any:
    """Return what belongs to the region that was written."""
    axes, steps, region = attrs
    return wrap(record.view(g.node, axes, steps, tuple(inputs[2:]), region))


# Indices -----------------------------------------------------------------------------------------


def _inputs(values: Sequence[Any]) -> list[Any]:
    return [x.node if isinstance(x, Handle) else x for x in values]


def take(x: Any, at: Sequence[Any], attrs: Any) -> Any:
    """Return the elements at the places of an index."""
    node = x.node
    template = [slice(None) if part == ":" else None if part == "new" else part for part in attrs]
    values = iter(at)
    key = tuple(next(values) if part == "at" else part for part in template)
    found = index.places(key, node.shape, lambda array: as_node(array, node.device), _no_masks)
    return wrap(index.take(node, found))


def _no_masks(mask: Any) -> Any:
    raise AssertionError("the masks of a recorded index are places")


def add_at(x: Any, new: Any, at: Sequence[Any], attrs: Any) -> Any:
    """Return the array with values added at the places of an index, repeated ones too."""
    inputs = (x.node, record.cast(new.node, x.dtype), *_inputs(at))
    return wrap(record.library(places.add_at, inputs, attrs, x.shape, x.dtype))


def put(x: Any, new: Any, at: Sequence[Any], attrs: Any) -> Any:
    """Return the array with values written at the places of an index."""
    value = new.node if isinstance(new, Handle) else record.full(
        (), x.dtype.type(new).item(), x.dtype, x.node.device)
    inputs = (x.node, record.cast(value, x.dtype), *_inputs(at))
    return wrap(record.library(places.put, inputs, attrs, x.shape, x.dtype))


def taken_last(g: Any, x: Any, new: Any, at: Sequence[Any], attrs: Any) -> Any:
    """Return what belongs to written values: nothing where a later one was written over it."""
    found = take(g, at, attrs)
    numbers = xp.arange(found.size, device=g.device).reshape(found.shape)
    before = wrap(record.full(x.shape, -1, numbers.dtype, g.node.device))
    winners = take(put(before, numbers, at, attrs), at, attrs)
    return xp.where(winners == numbers, found, 0)


def unsorted(g: Any, order: Any, axis: int) -> Any:
    """Return what belongs to an array that was read in an order along an axis."""
    back = xp.argsort(order, axis=axis)
    return xp.take_along_axis(g, back, axis=axis)


def sums_from(g: Any, axis: int | None) -> Any:
    """Return running sums from the end."""
    turned = xp.flip(g, axis)
    return xp.flip(xp.cumsum(turned, axis=axis), axis)


def products_from(g: Any, x: Any, axis: int) -> Any:
    """Return the cotangent of running products, exact where some factors are 0.

    With ``s[k] = g[k] + x[k + 1] * s[k + 1]`` it is ``s[k]`` times the product before ``k``; the
    recurrence is solved by doubling (Hillis and Steele 1986).
    """
    rows = xp.moveaxis(x, axis, -1)
    total = xp.moveaxis(g, axis, -1)
    length = rows.shape[-1]
    before = xp.cumprod(_shifted(rows), axis=-1)
    factor = xp.zeros_like(rows)
    factor[..., :-1] = rows[..., 1:]
    width = 1
    while width < length:
        ahead, product = xp.zeros_like(total), xp.zeros_like(factor)
        ahead[..., :-width] = total[..., width:]
        product[..., :-width] = factor[..., width:]
        total = total + factor * ahead
        factor = factor * product
        width *= 2
    return xp.moveaxis(total * before, -1, axis)


# Names -------------------------------------------------------------------------------------------


class _Functions:
    """NumPy's functions of this package, as attributes."""

    def __getattr__(self, name: str) -> Any:
        found = ufuncs.BY_NAME.get(name)
        for module in _MODULES:
            if found is None and name in getattr(module, "__all__", ()):
                found = vars(module)[name]
        if found is None:
            raise AttributeError(name)
        setattr(self, name, found)
        return found


xp: Any = _Functions()
