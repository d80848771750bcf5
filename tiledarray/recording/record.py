"""Recording: every function here checks its operands, and returns a new pending `Node`.

This is the hot path of Python: what NumPy would say about dtypes and shapes is remembered in
`signatures`, and nothing here touches an array.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tiledarray import core
from tiledarray.core import record
from tiledarray.errors import raised_outside
from tiledarray.graph.dtypes import (
    Shape,
    UnsupportedDtypeError,
    broadcast,
    compares_beyond,
    shape_text,
    signature,
)
from tiledarray.graph.node import INTERNED, Form, Kind, Node, form_of, is_scalar, kind_of
from tiledarray.ops import indexing, movement, selection
from tiledarray.ops.elementwise import BY_NAME, BY_UFUNC
from tiledarray.ops.library import BY_NAME as LIBRARY
from tiledarray.ops.op import Elementwise, Library, Op, Reduction, Scan
from tiledarray.recording import at_once
from tiledarray.recording.bring import Apart, brought, together
from tiledarray.recording.site import user_site
from tiledarray.recording.stretch import (
    check,
    fallbacks,
    live_pending,
    local,
    look,
    note_fallback,
)

__all__ = [
    "Operand", "UnsupportedDtypeError", "binary", "broadcast", "broadcast_to", "broadcastable",
    "brought", "cast", "elementwise", "empty", "expand_dims", "fallbacks", "flush", "full",
    "iota", "item", "leaf", "library", "live_pending", "local", "look", "note_fallback",
    "places", "reduce", "reinterpret", "reshape", "scan", "shape_text", "signature", "transpose",
    "unary", "update", "user_site", "view", "without_axes",
]

Operand = Any  # Node, or a Python scalar


def _one_device(nodes: Sequence[Node]) -> Any:
    device = nodes[0].device
    for node in nodes:
        if node.device is not device:
            raise Apart(device, node.device)
    return device


# Elementwise -----------------------------------------------------------------------------------


_POWER = LIBRARY["power_of_integers"]
_calls: dict[Any, tuple[Form, tuple[Any, ...]]] = {}
_find_call = _calls.get


def _call(op: Elementwise, *operands: Operand) -> tuple[Form, tuple[Any, ...]]:
    """Return the form of an elementwise op of these operands, and how to convert its scalars."""
    asked = op
    entry = signature(op, *[x.dtype if type(x) is Node else type(x) for x in operands])
    nodes = [x for x in operands if type(x) is Node]
    shape = broadcast(*[x.shape if type(x) is Node else () for x in operands])
    kind = kind_of(shape, entry.dtype, _one_device(nodes))
    converters = entry.converters
    if op.constant is not None and all(
        type(x) is not Node or x.form.kind.size == 1 for x in operands[1:]
    ):
        op = op.constant
    if 0 in shape and op.exponent:
        converters = tuple(map(_not_computed, converters))
    form = form_of(op, entry.loop, kind, len(operands))
    if op.exponent and entry.loop[1].kind == "i" and type(operands[1]) is Node:
        form = form_of(_POWER, (), kind, len(operands))
    found = form, converters
    if len(_calls) >= INTERNED:
        _calls.clear()
    _calls[(asked, *[x.form.kind if type(x) is Node else type(x) for x in operands])] = found
    return found


def _not_computed(convert: Any) -> Any:
    """Return the conversion of a scalar whose value NumPy would refuse only when computing."""

    def converted(value: Any) -> Any:
        try:
            return convert(value)
        except ValueError:
            return abs(value)

    return None if convert is None else converted


def _form_of_call(op: Elementwise, *operands: Operand) -> tuple[Any, ...] | None:
    """Return what `_call` does, and whether the op's second operand is an exponent.

    ``None`` where there is no such op, or what is recorded has to be looked at: that goes the long
    way, which says why.
    """
    try:
        form, converters = _call(op, *operands)
    except Exception as error:
        if raised_outside(error):
            raise
        return None
    return None if form.op is _POWER else (form, converters, op.exponent)


def unary(op: Elementwise, node: Node) -> Node:
    """Record an elementwise op of one node."""
    form, _ = _find_call((op, node.form.kind)) or _call(op, node)
    return record(form, (node,))


def binary(op: Elementwise, left: Operand, right: Operand) -> Node:
    """Record an elementwise op of two operands, at least one of them a node."""
    key: tuple[Any, ...]
    if type(left) is Node:
        if type(right) is Node:
            key = (op, left.form.kind, right.form.kind)
            try:
                form, _ = _find_call(key) or _call(op, left, right)
            except Apart:
                return binary(op, *together((left, right)))
        else:
            key = (op, left.form.kind, type(right))
            form, converters = _find_call(key) or _call(op, left, right)
            try:
                right = converters[1](right)
            except OverflowError as error:
                return _compare_beyond(op, left, right, error, reflected=False)
    elif type(right) is Node:
        key = (op, type(left), right.form.kind)
        form, converters = _find_call(key) or _call(op, left, right)
        try:
            left = converters[0](left)
        except OverflowError as error:
            return _compare_beyond(op, right, left, error, reflected=True)
    else:
        raise TypeError(f"{op.name}: one operand must be an array")
    node = record(form, (left, right))
    if form.op is _POWER:  # NumPy refuses negative ones before it writes anything
        check([node])
    return node


def _compare_beyond(
    op: Elementwise, node: Node, value: Any, error: OverflowError, *, reflected: bool
) -> Node:
    answer = compares_beyond(op, value, node.dtype, reflected=reflected)
    if answer is None:
        raise error
    return full(node.shape, answer, np.dtype(bool), node.device)


def elementwise(op: Elementwise, *operands: Operand) -> Node:
    """Record an elementwise op.

    Parameters
    ----------
    op : Elementwise
    *operands : Node or Python scalar
        Broadcast together; at least one is a node.  Python scalars are weak.

    Raises
    ------
    TypeError, ValueError, OverflowError
        NumPy's, where it has no such loop, the shapes do not match or a Python int does not fit.
    UnsupportedDtypeError
        Where NumPy could compute this but no kernel can.
    """
    if len(operands) == 2:
        return binary(op, *operands)
    if len(operands) == 1:
        return unary(op, *operands)
    keys = [x.form.kind if type(x) is Node else type(x) for x in operands]
    try:
        form, converters = _find_call((op, *keys)) or _call(op, *operands)
    except Apart:
        return elementwise(op, *together(operands))
    inputs = tuple(
        x if convert is None else convert(x)
        for x, convert in zip(operands, converters, strict=True)
    )
    return record(form, inputs)


def cast(node: Node, dtype: Any) -> Node:
    """Return the node with another dtype; itself if it has that already."""
    if node.dtype == dtype:
        return node
    return _new(selection.cast, (node,), (node.dtype,), node.shape, dtype, node.device)


def reinterpret(node: Node, shape: Shape, dtype: Any) -> Node:
    """Return what the memory of a dense array of the node's value is as one of another dtype."""
    if shape == node.shape and selection.has_bits(node.dtype, np.dtype(dtype)):
        return _new(selection.bits, (node,), (node.dtype,), shape, dtype, node.device)
    return library(indexing.reinterpret, (node,), None, shape, dtype)


def _new(
    op: Op, inputs: tuple[Any, ...], attrs: Any, shape: Shape, dtype: Any, device: Any
) -> Node:
    kind = kind_of(shape, np.dtype(dtype), device)
    return record(form_of(op, attrs, kind, len(inputs)), inputs)


_moves: dict[Any, Form] = {}


def _move_form(op: Op, kind: Kind, attrs: Any, shape: Shape, arity: int) -> Form:
    """Return the form of an op whose result has the dtype and the device of its first input."""
    key = (op, attrs, shape, kind)
    form = _moves.get(key)
    if form is None:
        if len(_moves) >= INTERNED:
            _moves.clear()
        result = kind_of(shape, kind.dtype, kind.device)
        form = _moves[key] = form_of(op, attrs, result, arity)
    return form


def _move(
    op: Op, inputs: tuple[Any, ...], attrs: Any, shape: Shape, pending: bool = False
) -> Node:
    """Record such an op."""
    form = _move_form(op, inputs[0].form.kind, attrs, shape, len(inputs))
    return record(form, inputs, pending)


# Reductions ------------------------------------------------------------------------------------


def reduce(
    op: Reduction, node: Node, axes: Sequence[int], accumulate: Any = None, dtype: Any = None
) -> Node:
    """Record a reduction.

    Parameters
    ----------
    op : Reduction
    node : Node
    axes : sequence of int
        Distinct, non-negative; they vanish from the shape.
    accumulate : dtype, optional
        In which to accumulate; by default the one NumPy takes, float32 for float16.
    dtype : dtype, optional
        Of the result; by default NumPy's.
    """
    kind = node.form.kind
    key = (op, tuple(axes), accumulate, dtype, kind)
    form = _reductions.get(key)
    if form is None:
        if len(_reductions) >= INTERNED:
            _reductions.clear()
        form = _reductions[key] = _reduction_form(op, kind, axes, accumulate, dtype)
    return record(form, (node,))


_reductions: dict[Any, Form] = {}


def _reduction_form(
    op: Reduction, kind: Kind, axes: Sequence[int], accumulate: Any, dtype: Any
) -> Form:
    reduced = tuple(sorted(axes))
    shape = tuple(size for axis, size in enumerate(kind.shape) if axis not in reduced)
    if accumulate is None:
        accumulate = op.accumulator_of(kind.dtype, None if dtype is None else np.dtype(dtype))
    if dtype is None:
        dtype = op.result_of(kind.dtype)
    result = kind_of(shape, np.dtype(dtype), kind.device)
    return form_of(op, (reduced, np.dtype(accumulate)), result, 1)


def scan(op: Scan, node: Node, axis: int, dtype: np.dtype[Any]) -> Node:
    """Record running totals along an axis, computed in their own dtype."""
    kind = node.form.kind
    return record(form_of(op, axis, kind_of(kind.shape, dtype, kind.device), 1), (node,))


# Views and updates -----------------------------------------------------------------------------


def view(
    node: Node, axes: Shape, steps: Shape, starts: Sequence[int], shape: Shape,
    pending: bool = False,
) -> Node:
    """Record an affine view (see `AxisView`); the node itself if nothing changes.

    What is to be ``pending`` is not computed at once, however small.
    """
    if shape == node.form.kind.shape and not any(starts) and _is_identity(axes, steps):
        return node
    return _move(movement.view, (node, *starts), (axes, steps), shape, pending)


def view_form(
    kind: Kind, axes: Shape, steps: Shape, starts: Sequence[int], shape: Shape
) -> Form | None:
    """Return the form of a view of what is of this kind; ``None`` if nothing changes."""
    if shape == kind.shape and not any(starts) and _is_identity(axes, steps):
        return None
    return _move_form(movement.view, kind, (axes, steps), shape, 1 + len(starts))


def update_form(
    kind: Kind, axes: Shape, steps: Shape, starts: Sequence[int], region: Shape
) -> Form:
    """Return the form of writing one region of what is of this kind."""
    return _move_form(movement.update, kind, (axes, steps, region), kind.shape, 2 + len(starts))


def full_form(kind: Kind) -> Form:
    """Return the form of one number, to be written into an array of this kind."""
    return form_of(movement.full, None, kind_of((), kind.dtype, kind.device), 1)


def _is_identity(axes: Shape, steps: Shape) -> bool:
    return axes == tuple(range(len(axes))) and all(step == 1 for step in steps)


def reshape(node: Node, shape: Shape) -> Node:
    """Record a row-major reshape to a shape of the same size."""
    if shape == node.shape:
        return node
    return _move(movement.reshape, (node,), None, shape)


def without_axes(node: Node) -> Node:
    """Record a value without axes that is an array: NumPy's scalars cannot be written."""
    if node.form.op is movement.full or node.form.attrs is movement.AN_ARRAY:
        return node
    return _move(movement.reshape, (node,), movement.AN_ARRAY, ())


def as_scalar(node: Node) -> Node:
    """Return a value without axes as one that stands for a scalar of NumPy's."""
    return node if is_scalar(node) else _move(movement.reshape, (node,), None, ())


def update(
    old: Node, new: Node, axes: Shape, steps: Shape, starts: Sequence[int], region: Shape,
    of_large: bool = False,
) -> Node:
    """Record ``old`` with one region overwritten by ``new`` (see `Update`).

    As one of the parts that a large array is put together of it does not count as small.
    """
    if new.form.kind.device is not old.form.kind.device:
        new = brought(new, old.form.kind.device)
    if not of_large and new.form.kind.size <= core.small():
        local.recorder.note_small()
    return _move(movement.update, (old, new, *starts), (axes, steps, region), old.form.kind.shape)


def transpose(node: Node, order: Sequence[int]) -> Node:
    """Record a permutation of the axes: axis ``k`` of the result is axis ``order[k]``."""
    axes = [0] * len(order)
    for position, axis in enumerate(order):
        axes[axis] = position
    shape = tuple(node.shape[axis] for axis in order)
    return view(node, tuple(axes), (1,) * len(axes), (0,) * len(axes), shape)


def expand_dims(node: Node, new_axes: Sequence[int]) -> Node:
    """Record new axes of length one, at these places of the result."""
    ndim = len(node.shape) + len(new_axes)
    kept = tuple(axis for axis in range(ndim) if axis not in new_axes)
    sizes = iter(node.shape)
    shape = tuple(1 if axis in new_axes else next(sizes) for axis in range(ndim))
    return view(node, kept, (1,) * len(kept), (0,) * len(kept), shape)


def broadcast_to(node: Node, shape: Shape) -> Node:
    """Record a broadcast; the shapes have been checked."""
    if node.shape == shape:
        return node
    ahead = len(shape) - len(node.shape)
    axes = tuple(
        -1 if size == 1 and shape[ahead + axis] != 1 else ahead + axis
        for axis, size in enumerate(node.shape)
    )
    zeros = (0,) * len(axes)
    return view(node, axes, tuple(int(axis >= 0) for axis in axes), zeros, shape)


def broadcastable(shape: Shape, wanted: Shape) -> bool:
    """Whether an array of one shape broadcasts to exactly the other."""
    ahead = len(wanted) - len(shape)
    return ahead >= 0 and all(
        size in (1, wanted[ahead + axis]) for axis, size in enumerate(shape)
    )


# Sources, leaves and library calls -------------------------------------------------------------


def full(shape: Shape, value: Any, dtype: Any, device: Any) -> Node:
    """Record an array of one Python scalar."""
    return _new(movement.full, (value,), None, shape, dtype, device)


def empty(shape: Shape, dtype: Any, device: Any) -> Node:
    """Record an array of any old content: every element must be written before it is read."""
    return _new(movement.empty, (), None, shape, dtype, device)


def places(n: int, device: Any) -> Node:
    """Record ``k`` for ``k < n``, as int64."""
    kind = np.dtype(np.int64)
    return _new(movement.iota, (), (kind,), (n,), kind, device)


def iota(n: int, start: Any, step: Any, loop: Any, dtype: Any, device: Any) -> Node:
    """Record ``start + k * step`` for ``k < n``, computed in ``loop``."""
    return _new(movement.iota, (start, step), (np.dtype(loop),), (n,), dtype, device)


def library(
    op: Library, inputs: Sequence[Operand], attrs: Any, shape: Shape, dtype: Any,
    device: Any = None,
) -> Node:
    """Record a call that is a kernel of its own; without input nodes, on ``device``."""
    nodes = [x for x in inputs if type(x) is Node]
    if nodes:
        try:
            device = _one_device(nodes)
        except Apart:
            inputs = together(inputs)
            device = next(x.device for x in inputs if type(x) is Node)
    return _new(op, tuple(inputs), attrs, shape, dtype, device)


def item(node: Node, k: int, shape: Shape, dtype: Any) -> Node:
    """Record output ``k`` of a library node with several outputs."""
    return _new(movement.item, (node,), k, shape, dtype, node.device)


def leaf(buffer: Any, device: Any = None) -> Node:
    """Return the node of a buffer; ``device`` is where the array is said to be, if not there."""
    array = buffer.array
    kind = kind_of(array.shape, array.dtype, buffer.device if device is None else device)
    return Node(form_of(movement.leaf, None, kind, 0), (), None, buffer)


core.install_recording({
    "compute": at_once.compute, "form_of_call": _form_of_call, "float64": np.float64,
    "unary_ufuncs": {ufunc: op for ufunc, op in BY_UFUNC.items() if ufunc.nin == 1},
    "binary_ufuncs": {ufunc: op for ufunc, op in BY_UFUNC.items() if ufunc.nin == 2},
    **{name: BY_NAME[name] for name in ("square", "positive", "reciprocal", "sqrt", "multiply")},
})


def flush() -> None:
    """Evaluate all that this thread has pending and someone can still see."""
    local.recorder.flush()
