"""Indices: what ``a[...]`` means, and its errors in NumPy's words.

Basic indices (ints, slices, ``...``, ``None``) become an affine view step.  An index with arrays
becomes a view for its slices, then a `take` or `put` for the rest.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tiledarray.arrays.handle import Handle, stands_for_scalar
from tiledarray.arrays.views import Affine
from tiledarray.errors import LeaveToNumPy
from tiledarray.graph.dtypes import Shape, shape_text
from tiledarray.graph.node import Kind, Node
from tiledarray.ops import indexing as ops
from tiledarray.ops.indexing import beyond, fault_of
from tiledarray.recording import record
from tiledarray.recording.stretch import local

BAD = (
    "only integers, slices (`:`), ellipsis (`...`), numpy.newaxis (`None`) and integer or boolean "
    "arrays are valid indices"
)
STEPS_REMEMBERED = 4096
MOST_AXES = 64  # NPY_MAXDIMS
LARGEST = sys.maxsize  # place
COPIED = ("what an index names that has no value while the function is recorded is a copy here, a "
          "view in NumPy; instead of x[i] += y write x[i] = x[i] + y")
AsNode = Callable[[Any], Node]


class Places(NamedTuple):
    """An index with arrays, after its slices have been taken out as a view.

    Attributes
    ----------
    before : Affine
        The view that the slices make.
    template : tuple of str
        See `ops.indexing`.
    inputs : tuple of Node or int
        For each ``"at"`` of the template.
    shape : tuple of int
        Of the result.
    fault : IndexError or None
        The first index beyond its axis: NumPy tells it after shapes that do not fit.
    """

    before: Affine
    template: tuple[str, ...]
    inputs: tuple[Any, ...]
    shape: Shape
    fault: IndexError | None = None


def is_full_integer(key: tuple[Any, ...], ndim: int) -> bool:
    """Whether the basic index names one element, which NumPy returns as a scalar."""
    return len(key) == ndim and not any(
        item is None or item is Ellipsis or type(item) is slice for item in key
    )


def check_element(key: tuple[Any, ...], kind: Kind, value: Any) -> None:
    """Raise NumPy's error if what is written to one element is a sequence.

    Raises
    ------
    ValueError, TypeError
        In that case.
    """
    if is_full_integer(key, len(kind.shape)):
        if np.ndim(value):  # a boolean element takes the truth of a single one, NumPy says
            alike = value
            if hasattr(value, "dtype"):
                alike = np.broadcast_to(np.zeros((), value.dtype), value.shape)
            np.zeros(1, kind.dtype)[0] = alike
    elif isinstance(value, (list, tuple)):
        raise ValueError(
            "setting an array element with a sequence. The requested array would exceed the "
            "maximum number of dimension of 0."
        )


def check_values(key: tuple[Any, ...], places: Shape, shape: Shape, values: Shape) -> None:
    """Raise NumPy's error if values do not fit the places that an index with arrays names.

    Raises
    ------
    ValueError, TypeError
        In that case.
    """
    if values and not places:
        raise ValueError("setting an array element with a sequence.")
    if len(key) == 1 and is_mask(key[0]) and len(key[0].shape) == len(shape) and len(values) > 1:
        raise TypeError(
            "NumPy boolean array indexing assignment requires a 0 or 1-dimensional input, input "
            f"has {len(values)} dimensions"
        )
    excess = max(len(values) - len(places), 0)
    leading, values_there = values[:excess], values[excess:]
    by_arrays = any(isinstance(part, list) or getattr(part, "shape", ()) for part in key)
    if record.broadcastable(values_there, places) and (
            set(leading) <= {1} or (by_arrays and 0 in values_there)):  # then NumPy does not ask
        return
    if len(key) == 1 and is_mask(key[0]) and len(key[0].shape) == len(shape) and len(values) == 1:
        raise ValueError(
            f"NumPy boolean array indexing assignment cannot assign {values[0]} input values to "
            f"the {places[0]} output values where the mask is true"
        )
    raise ValueError(
        f"shape mismatch: value array of shape {shape_text(values)} could not be broadcast to "
        f"indexing result of shape {shape_text(places)}"
    )


def is_basic(key: tuple[Any, ...]) -> bool:
    """Whether the index makes a view that can be told now: of ints that are known, and slices."""
    return names_view(key) and not any(map(_is_unknown, key))


def names_view(key: tuple[Any, ...]) -> bool:
    """Whether no array, list or bool is in the index: what it names is a view with NumPy."""
    for item in key:
        kind = type(item)
        if kind is int or kind is slice or item is None or item is Ellipsis:
            continue
        if kind is bool or kind is list or isinstance(item, np.bool_):
            return False
        if getattr(item, "ndim", 0) or not hasattr(item, "__index__"):
            return False
        if is_mask(item) or _is_array(item):
            return False
    return True


def _is_array(item: Any) -> bool:
    """Whether an integer is an array without axes, and no scalar: it gives no view."""
    if isinstance(item, Handle):
        return not stands_for_scalar(item)
    return isinstance(item, np.ndarray)


def _is_unknown(item: Any) -> bool:
    """Whether an integer has no value while this thread traces: it is an index as arrays are."""
    scope = local.recorder.scope
    if scope is None or not isinstance(item, Handle):
        return False
    node = item.node
    kind = node.form.kind
    return (not kind.shape and kind.dtype.kind in "iu" and node.buffer is None
            and not scope.knows([node]))


_PLAIN = frozenset((int, type(None)))
_AS_THEY_ARE = frozenset((int, slice))
_remembered: dict[Any, Affine] = {}


def step_of(key: tuple[Any, ...], shape: Shape) -> Affine | None:
    """Return the view step of a basic index, remembered; ``None`` for an index with arrays."""
    parts: list[Any] = [shape]
    for item in key:
        kind = type(item)
        if kind is slice:
            start, stop, step = item.start, item.stop, item.step
            # Of these types only are equal parts the same: 1.0 equals 1, and is refused.
            if type(start) not in _PLAIN or type(stop) not in _PLAIN or type(step) not in _PLAIN:
                break
            parts.append((start, stop, step))
        elif kind in _PLAIN or item is Ellipsis:
            parts.append(item)
        else:
            break
    else:
        place = tuple(parts)
        found = _remembered.get(place)
        if found is None:
            if len(_remembered) >= STEPS_REMEMBERED:
                _remembered.clear()
            found = _remembered[place] = basic(key, shape)
        return found
    return basic(key, shape) if is_basic(key) else None


def basic(key: tuple[Any, ...], shape: Shape) -> Affine:
    """Return the view step of a basic index.

    Raises
    ------
    IndexError
        If it names too many axes, an element that there is not, or no element.
    """
    if any(type(item) is int and not -LARGEST <= item + (item < 0) <= LARGEST for item in key):
        raise IndexError(BAD)  # so NumPy says, before it counts the axes
    if any(item is Ellipsis for item in key):
        key = _expand(key, len(shape))
    elif len(key) - sum(item is None for item in key) > len(shape):
        raise too_many(len(shape), sum(_dimensions(item) for item in key))
    axes: list[int] = []
    steps: list[int] = []
    starts: list[int] = []
    result: list[int] = []
    for item in key:
        if item is None:
            result.append(1)
            continue
        size = shape[len(axes)]
        if type(item) is slice:
            start, stop, step = item.indices(size)
            axes.append(len(result))
            length = len(range(start, stop, step))
            steps.append(step if length > 1 else 1)
            starts.append(start if length else 0)
            result.append(length)
        else:
            starts.append(_position(item, len(axes), size))
            axes.append(-1)
            steps.append(0)
    for size in shape[len(axes):]:
        axes.append(len(result))
        steps.append(1)
        starts.append(0)
        result.append(size)
    if len(result) > MOST_AXES:
        raise IndexError(
            f"number of dimensions must be within [0, {MOST_AXES}], indexing result would have "
            f"{len(result)}"
        )
    return Affine(tuple(axes), tuple(steps), tuple(starts), tuple(result))


def _position(item: Any, axis: int, size: int) -> int:
    position = _integer(item)
    fault = _beyond(position, axis, size)
    if fault is not None:
        raise fault
    return position + size if position < 0 else position


def _integer(item: Any) -> int:
    try:
        return operator.index(item)
    except TypeError:
        raise IndexError(BAD) from None


def _beyond(position: int, axis: int, size: int) -> IndexError | None:
    return None if -size <= position < size else beyond(position, axis, size)


def is_mask(item: Any) -> bool:
    """Whether an item of an index is a boolean array."""
    dtype = getattr(item, "dtype", None)
    return dtype is not None and dtype.kind == "b"


def lone_mask(key: tuple[Any, ...], ndim: int) -> tuple[Any, int] | None:
    """Return the mask that an index is made of, and the axis it begins at.

    ``None`` if there is more in the index than all of other axes.

    Raises
    ------
    IndexError
        It has more axes than the array.
    """
    masks = [place for place, item in enumerate(key) if is_mask(item)]
    others = [item for item in key if not is_mask(item)]
    if len(masks) != 1 or any(item is not Ellipsis and (
            type(item) is not slice or item != slice(None)) for item in others):
        return None
    (place,) = masks
    mask, ahead, after = key[place], key[:place], key[place + 1:]
    if ahead.count(Ellipsis) + after.count(Ellipsis) > 1 or (others and not mask.ndim):
        return None
    if mask.ndim + sum(item is not Ellipsis for item in others) > ndim:
        raise too_many(ndim, mask.ndim + sum(item is not Ellipsis for item in others))
    return mask, ndim - mask.ndim - len(after) if Ellipsis in ahead else place


def _dimensions(item: Any) -> int:
    """Return how many axes an item of an index uses up."""
    if item is None:
        return 0
    return int(item.ndim) if is_mask(item) else 1


def _expand(key: tuple[Any, ...], ndim: int) -> tuple[Any, ...]:
    """Replace the ellipsis by slices."""
    found = [place for place, item in enumerate(key) if item is Ellipsis]
    if len(found) > 1:
        raise IndexError("an index can only have a single ellipsis ('...')")
    used = sum(_dimensions(item) for item in key if item is not Ellipsis)
    if used > ndim:
        raise too_many(ndim, used)
    place = found[0]
    return (*key[:place], *(slice(None),) * (ndim - used), *key[place + 1:])


def too_many(ndim: int, used: int) -> IndexError:
    """Return NumPy's error for an index of too many items."""
    return IndexError(
        f"too many indices for array: array is {ndim}-dimensional, but {used} were indexed"
    )


# Indices with arrays ----------------------------------------------------------------------------


def _arrays(key: tuple[Any, ...]) -> tuple[Any, ...]:
    """Make arrays of what is in an index but is neither basic nor an array."""
    return tuple(
        item if item is None or item is Ellipsis or type(item) in _AS_THEY_ARE
        or hasattr(item, "ndim") or (hasattr(item, "__index__") and type(item) is not bool)
        else _array(item)
        for item in key
    )


def _array(item: Any) -> np.ndarray[Any, Any]:
    """Return a list, a range or whatever else NumPy makes an array of as an index array."""
    array = np.asarray(item)
    if array.size == 0:
        return array.astype(np.intp)
    if array.dtype.kind not in "biu":
        raise IndexError(BAD)
    return array


def places(
    key: tuple[Any, ...], shape: Shape, as_node: AsNode, nonzero: Callable[[Any], Sequence[Any]]
) -> Places:
    """Return what an index with arrays means for an array of this shape.

    Parameters
    ----------
    key : tuple
    shape : tuple of int
    as_node : callable
        Makes a node of an integer array.
    nonzero : callable
        Makes integer arrays of a boolean array, which it evaluates.

    Raises
    ------
    IndexError
        If it is no index of the array; an index beyond its axis is told by `take` and `put`.
    """
    key = _arrays(key)
    parted = _is_parted(key)
    if any(item is Ellipsis for item in key):
        key = _expand(key, len(shape))
    used = sum(_dimensions(item) for item in key)
    if used > len(shape):
        raise too_many(len(shape), used)
    key = (*key, *(slice(None),) * (len(shape) - used))
    items = _without_masks(key, shape, nonzero)
    order = [*range(len(shape))]
    if parted:  # their axes go in front, also where the ellipsis stands for no axis between them
        items, order = _in_front(items)
    slices = {axis: item if type(item) is slice else slice(None)
              for axis, item in zip(order, filter(_uses_axis, items), strict=True)}
    before = basic(tuple(slices[axis] for axis in range(len(shape))), shape)
    before = Affine(tuple(order.index(axis) for axis in before.axes), before.steps, before.starts,
                    tuple(before.shape[axis] for axis in order))
    return _places(items, before, shape, order, as_node)


def _is_advanced(item: Any) -> bool:
    """Whether an item is an index array, or a number beside one."""
    return item is not None and item is not Ellipsis and type(item) is not slice


def _is_parted(key: tuple[Any, ...]) -> bool:
    """Whether there are index arrays on both sides of an ellipsis."""
    place = next((place for place, item in enumerate(key) if item is Ellipsis), len(key))
    return any(map(_is_advanced, key[:place])) and any(map(_is_advanced, key[place:]))


def _uses_axis(item: Any) -> bool:
    return item is not None and type(item) is not _Lone


def _in_front(items: list[Any]) -> tuple[list[Any], list[int]]:
    """Return the items with index arrays first, and which axes of the array they are for."""
    axes = iter(range(len(items)))
    placed = [(item, next(axes) if _uses_axis(item) else None) for item in items]
    placed.sort(key=lambda each: not _is_advanced(each[0]))
    return [item for item, _ in placed], [axis for _, axis in placed if axis is not None]


def _without_masks(key: tuple[Any, ...], shape: Shape, nonzero: Any) -> list[Any]:
    """Replace boolean arrays by the places where they hold."""
    items: list[Any] = []
    axis = 0
    for item in key:
        if is_mask(item):
            if item.ndim:
                check_mask(item.shape, shape, axis)
                items.extend(nonzero(item))
                axis += item.ndim
            else:
                items.append(_Lone(bool(item)))
            continue
        dtype = getattr(item, "dtype", None)
        if dtype is not None and dtype.kind not in "iu" and item.ndim:
            raise IndexError("arrays used as indices must be of integer (or boolean) type")
        items.append(item)
        axis += item is not None
    return items


class _Lone(NamedTuple):
    """A 0-d boolean: it adds an axis of length one or zero, and uses up none."""

    value: bool


def check_mask(mask: Shape, shape: Shape, axis: int) -> None:
    """Raise NumPy's error if the mask does not fit the array from ``axis`` on.

    Raises
    ------
    IndexError
        In that case.
    """
    for offset, size in enumerate(mask):
        if size and size != shape[axis + offset]:  # NumPy takes an empty mask for any axis
            raise IndexError(
                f"boolean index did not match indexed array along axis {axis + offset}; size of "
                f"axis is {shape[axis + offset]} but size of corresponding boolean axis is {size}"
            )


def _places(items: list[Any], before: Affine, shape: Shape, order: list[int],
            as_node: AsNode) -> Places:
    template: list[str] = []
    inputs: list[Any] = []
    shapes: list[Shape] = []
    result: list[int] = []
    fault: IndexError | None = None
    alone: IndexError | None = None  # of an index that is a number
    first: int | None = None  # where the broadcast index goes in the result
    apart = False
    axis = 0
    previous = False
    for item in items:
        if not _is_advanced(item):
            template.append("new" if item is None else ":")
            result.append(1 if item is None else before.shape[axis])
            axis += item is not None
            previous = False
            continue
        if first is None:
            first = len(result)
        elif not previous:
            apart = True
        previous = True
        if type(item) is _Lone:
            raise LeaveToNumPy("a boolean index without axes")
        template.append("at")
        if getattr(item, "ndim", 0) or _is_unknown(item):
            known = _known(item) if fault is None else None
            fault = fault if known is None else fault_of(known, order[axis], shape[order[axis]])
            node = as_node(item)
            shapes.append(node.shape)
            inputs.append(node)
        else:
            position = _integer(item)
            alone = alone or _beyond(position, order[axis], shape[order[axis]])
            fault = fault or alone
            inputs.append(position)
        axis += 1
    try:
        index_shape = np.broadcast_shapes(*shapes)
    except ValueError:
        text = "".join(f"{shape_text(part)} " for part in shapes)
        raise IndexError(
            f"shape mismatch: indexing arrays could not be broadcast together with shapes {text}"
        ) from None
    if 0 in index_shape:
        fault = alone  # no array's index is followed
    place = 0 if apart or first is None else first
    full = (*result[:place], *index_shape, *result[place:])
    return Places(before, tuple(template), tuple(inputs), full, fault)


def _known(item: Any) -> Any:
    """Return the values of an index array, ``None`` if they would have to be computed first."""
    buffer = getattr(getattr(item, "node", None), "buffer", None)
    if buffer is not None:
        return buffer.array
    return item if isinstance(item, np.ndarray) else None


def take(node: Node, found: Places) -> Node:
    """Record reading through an index with arrays; ``node`` is after the slices.

    Raises
    ------
    IndexError
        If an index is beyond its axis.
    """
    if found.fault is not None:
        raise found.fault
    return record.library(
        ops.take, (node, *found.inputs), found.template, found.shape, node.dtype
    )


def put(node: Node, found: Places, value: Node) -> Node:
    """Record writing through an index with arrays; ``node`` is after the slices.

    Raises
    ------
    IndexError
        If an index is beyond its axis.
    """
    if found.fault is not None:
        raise found.fault
    return record.library(
        ops.put, (node, value, *found.inputs), found.template, node.shape, node.dtype
    )
