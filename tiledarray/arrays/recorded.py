"""What arrays do that cannot be done at once: operators, indices and attributes, recorded.

The core (`tiledarray.core`) calls these by the names in `FUNCTIONS`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from tiledarray import config, core
from tiledarray.arrays import (
    by_numpy,
    by_places,
    index,
    lending,
    looking,
    operators,
    protocols,
    selections,
    shaping,
    views,
)
from tiledarray.arrays.handle import (
    SCALARS,
    Handle,
    as_dtype,
    as_node,
    fitting,
    host_array,
    is_recorded,
    part_of,
    view_of,
    wrap,
)
from tiledarray.arrays.tracing import check_own
from tiledarray.errors import LeaveToNumPy, raised_outside
from tiledarray.execution import placement
from tiledarray.graph.dtypes import is_numeric
from tiledarray.graph.node import Form, Kind
from tiledarray.ops.elementwise import BY_NAME
from tiledarray.ops.selection import where as where_op
from tiledarray.recording import record, stretch

# Attributes --------------------------------------------------------------------------------------


def shape(self: Any) -> tuple[int, ...]:
    """Lengths of the axes."""
    node = self._node if self._base is None else self.node
    found: tuple[int, ...] = node.form.kind.shape
    return found


def assign_shape(self: Any, shape: Any) -> None:
    """Reshape in place.

    Raises
    ------
    AttributeError
        If that needs a copy.
    """
    wanted = views.new_shape(self.shape, _lengths(shape))
    check_own(self)
    if self._base is not None and views.reshaped_strides(
        self.shape, self.strides, self.itemsize, wanted
    ) is None:
        raise AttributeError(
            "Incompatible shape for in-place modification. Use `.reshape()` to make a copy "
            "with the desired shape."
        )
    _look_otherwise(self, views.Reshaped(wanted))


def _look_otherwise(array: Any, step: views.Step) -> None:
    """Have an array be what a step makes of it, of the same memory."""
    if array._base is None:
        array.become_view()
    array._steps = views.extend(array._steps, step)
    array._seen = None


def assign_dtype(self: Any, dtype: Any) -> None:
    """Read the same memory as another dtype, in place.

    Raises
    ------
    ValueError
        If its elements do not fill the last axis.
    TypeError
        If there is no such dtype.
    """
    try:
        wanted = as_dtype(dtype)
    except TypeError:
        raise TypeError("invalid data-type for array") from None
    if wanted == self.dtype:
        return
    shape = shaping.shape_as(self, wanted)
    check_own(self)
    _look_otherwise(self, views.Reinterpreted(shape, wanted))


def _lengths(shape: Any) -> tuple[int, ...]:
    return tuple(map(int, shape)) if np.ndim(shape) else (int(shape),)


def dtype(self: Any) -> np.dtype[Any]:
    """Data type of the elements."""
    chosen = selections.of_array(self)
    if chosen is not None:
        return chosen.full.dtype
    node = self._node if self._base is None else self.node
    found: np.dtype[Any] = node.form.kind.dtype
    return found


def ndim(self: Any) -> int:
    """Number of axes."""
    chosen = selections.of_array(self)
    return len(self.shape) if chosen is None else chosen.ndim


def size(self: Any) -> int:
    """Number of elements."""
    return math.prod(self.shape)


def transposed(self: Any) -> Any:
    """View with the axes in reverse order."""
    return self.transpose()


# Elements ----------------------------------------------------------------------------------------


def length(self: Any) -> int:
    """Return the length of the first axis."""
    if not self.shape:
        raise TypeError("len() of unsized object")
    found: int = self.shape[0]
    return found


def elements(self: Any) -> Iterator[Any]:
    """Yield the views along the first axis; of an array with one axis, NumPy's scalars.

    Where there are none, under `jit`, or they would lose their history, they are arrays of ours.
    What is large with small parts is evaluated once, and then iterated as any evaluated array.

    Raises
    ------
    TypeError
        If the array has no axes.
    """
    if not self.shape:
        raise TypeError("iteration over a 0-d array")
    node, ndim = self.node, self.ndim
    if not node.keeps and stretch.local.recorder.scope is None:
        if ndim == 1 or (self.size <= self.shape[0] * core.small() and node.device.on_host):
            host_array(self)
        if self._array is not None:
            return iter(self)
        if ndim == 1:
            return _scalars(self)
    return (self[place] for place in range(self.shape[0]))


def _scalars(self: Any) -> Iterator[Any]:
    """Yield NumPy's scalars; each is what it is by then, as in NumPy."""
    root, node = self.origin(), None
    for place in range(self.shape[0]):
        if root._recorded is None or root._recorded is not node:
            array = host_array(self)
            root = self.origin()
            node = root._recorded
        yield array[place]


def _field(self: Any, name: str) -> Any:
    """Return a field of what numbers are viewed as (``x.view("f8, f8")["f0"]``): a view.

    Raises
    ------
    IndexError
        If there are no fields, or its elements are arrays.
    ValueError
        If it is another name.
    """
    kind = self.dtype
    if kind.names is None:
        raise IndexError(index.BAD)
    if name not in kind.names:
        raise ValueError(f"no field of name {name}")
    field, offset = kind.fields[name][:2]
    if not field.subdtype and (kind.itemsize % field.itemsize or offset % field.itemsize):
        octets = self[..., None].view(np.uint8)[..., offset:offset + field.itemsize]
        return octets.view(field)[..., 0]
    if field.subdtype:
        raise IndexError(f"{name!r} has arrays in it; x.numpy()[{name!r}] is NumPy's, a copy")
    return self[..., None].view(field)[..., offset // field.itemsize]


def getitem(self: Any, key: Any) -> Any:
    """`x[key]`."""
    if isinstance(key, str):
        return _field(self, key)
    if not isinstance(key, tuple):
        key = (key,)
    deferred = selections.select(self, key)
    if deferred is not None:
        return deferred
    node = self._node if self._base is None else self.node
    shape = node.form.kind.shape
    step = index.step_of(key, shape)
    if step is None:
        return _take(self, key)
    if node.form.kind.device.kind == "auto" and math.prod(step.shape) <= core.small() and (
            not node.keeps and placement.comes_home(self.origin()._node)):
        return self[key]
    if not step.shape and index.is_full_integer(key, len(shape)):
        element = record.view(self.node, *step)  # an `__index__` may have written into it
        return wrap(record.as_scalar(element))
    return view_of(self, step)


def setitem(self: Any, key: Any, value: Any) -> None:
    """`x[key] = value`."""
    if isinstance(key, str):
        _field(self, key)[...] = value
        return
    if not isinstance(key, tuple):
        key = (key,)
    if selections.write(self, key, value):
        return
    # The kind only: who holds the value itself while it is written makes it a copy.
    kind = (self._node if self._base is None else self.node).form.kind
    step = index.step_of(key, kind.shape)
    if step is None:
        _put(self, key, value)
        return
    if not step.shape and type(value) not in SCALARS:
        index.check_element(key, kind, value)
    root = self.origin()
    steps = views.extend(self.steps, step)
    if isinstance(value, Handle) and value.origin() is root and value.steps == steps:
        if views.is_frozen(steps):
            raise ValueError(views.refusal("assignment destination is read-only", steps))
        return  # the second half of `a[key] += b`: written already
    if not is_numeric(kind.dtype):
        _put_by_numpy(self, key, value, f"no kernel knows {kind.dtype}")
        return
    try:
        new = fitting(value, step.shape, kind.dtype, kind.device)
    except LeaveToNumPy as error:
        _put_by_numpy(self, key, value, error.reason)
        return
    part_of(self, step).assign(new)


def _take(self: Any, key: tuple[Any, ...]) -> Any:
    node = self.node
    if _computed_for_masks(self, key):
        return self[key]
    try:
        found = index.places(
            key, node.shape, lambda array: as_node(array, node.device), _nonzero
        )
    except LeaveToNumPy as error:
        reason = error.reason
        return by_numpy.call("getitem", np.ndarray.__getitem__, (self, key), reason=reason)
    taken = wrap(index.take(record.view(node, *found.before), found))
    copied = found.shape and index.names_view(key)
    return view_of(taken, views.Frozen(index.COPIED)) if copied else taken


def resolve(self: Any) -> None:
    """Give a deferred array its value: somebody asks for it."""
    while type(chosen := self._seen) is selections.Selection:  # until it has one, by any thread
        found = chosen.value(lambda array, mask: _take(array, (mask,)))
        selections.give_value(self, chosen, found.node)


_AT_HOME = ("cpu", "auto")  # kinds of devices whose arrays may be NumPy's


def _computed_for_masks(self: Any, key: tuple[Any, ...], *values: Any) -> bool:
    """Compute what is pending of an array on the host, and of the masks that it is read by.

    What they choose has a shape that depends on data.  So NumPy chooses it, and at once: a plan
    that begins with it would hardly ever be found again.  With `values`, what is written there.

    Returns
    -------
    bool
        Whether something was pending, and nothing is any more.  It may lie on a GPU now.
    """
    if config.at_once <= 1 or self.origin()._node.device.kind not in _AT_HOME or (
            not stretch.local.recorder.immediate):
        return False
    if not any(index.is_mask(item) and item.ndim for item in key):
        return False
    wanted = [
        each.origin()._node for each in (self, *key, *values) if isinstance(each, Handle)]
    pending = [node for node in wanted if node.buffer is None]
    if not pending or any(node.device.kind not in _AT_HOME or node.keeps for node in wanted):
        return False
    stretch.look(pending, here=any(node.device.kind == "auto" for node in pending))
    return True


def _put(self: Any, key: tuple[Any, ...], value: Any) -> None:
    if type(value) in (list, tuple) and is_recorded(value):
        value = wrap(as_node(value, self.node.device))
    if np.ndim(value) and _computed_for_masks(self, key, value):
        self[key] = value
        return
    node = self.node
    try:
        if views.overlaps(self.steps):
            _put_in_windows(self, key, value)
            return
        if _put_by_mask(self, key, value):
            return
        found = index.places(
            key, node.shape, lambda array: as_node(array, node.device), _nonzero
        )
        if type(value) not in SCALARS:
            shape = np.shape(value)
            index.check_values(key, found.shape, node.shape, shape)
            if 0 in shape:
                value = 0  # nothing is written, and leading axes may have any length
        new = fitting(value, found.shape, node.dtype, node.device, checked=False)
    except LeaveToNumPy as error:
        _put_by_numpy(self, key, value, error.reason)
        return
    part_of(self, found.before).change(lambda old: index.put(old, found, new))


def _put_in_windows(self: Any, key: tuple[Any, ...], value: Any) -> None:
    """Write where elements may be the same one: that has the last of what is written."""
    def assign(places: Any, key: Any, values: Any) -> None:
        places[key] = values

    by_places.change(assign, self, (key, value))


def _put_by_mask(self: Any, key: tuple[Any, ...], value: Any) -> bool:
    """Write one value where a mask over neighbouring axes holds, as a `where`."""
    if type(value) not in SCALARS and np.ndim(value) != 0:
        return False
    found = index.lone_mask(key, self.ndim)
    if found is None:
        return False
    node, (mask, axis) = self.node, found
    index.check_mask(mask.shape, node.shape, axis)
    new = fitting(value, (), node.dtype, node.device, checked=False)
    if 0 in mask.shape:
        self.change(lambda old: old)  # which may not be
        return True
    condition = selections.along_rest(as_node(mask, node.device), self.ndim - axis)
    self.change(lambda old: record.elementwise(where_op, condition, new, old))
    return True


def _put_by_numpy(self: Any, key: tuple[Any, ...], value: Any, reason: str) -> None:
    by_numpy.call("setitem", np.ndarray.__setitem__, (self, key, value), reason=reason)


def _nonzero(mask: Any) -> tuple[Any, ...]:
    """Return the places where a mask holds; it is evaluated."""
    return looking.nonzero(mask) if isinstance(mask, Handle) else np.nonzero(mask)


# What the core asks where it records slices itself ------------------------------------------------


def _step_of(key: Any, shape: tuple[int, ...]) -> Any:
    """Return the step of a basic index; ``None`` of another, or where Python has to tell why."""
    try:
        return index.step_of(key if type(key) is tuple else (key,), shape)
    except Exception as error:
        if raised_outside(error):
            raise
        return None


def _view_form(step: views.Affine, kind: Kind) -> Form | None:
    return record.view_form(kind, *step)


def _update_form(step: views.Affine, kind: Kind) -> Form | None:
    try:
        part = views.is_part((step,), kind.shape)
    except ValueError:  # read-only: `setitem` tells
        return None
    return record.update_form(kind, *step) if part else None


def _full_form(kind: Kind, _: None) -> Form | None:
    return record.full_form(kind) if kind.dtype == np.float64 else None


core.install_slices({
    "step_of": _step_of, "extend": views.extend, "view_form": _view_form,
    "update_form": _update_form, "full_form": _full_form, "affine": views.Affine,
})


# The table --------------------------------------------------------------------------------------


# Each operator and the op that it records.
_ARITHMETIC = {
    "add": "add", "sub": "subtract", "mul": "multiply", "truediv": "divide",
    "floordiv": "floor_divide", "mod": "remainder", "and": "bitwise_and", "or": "bitwise_or",
    "xor": "bitwise_xor", "lshift": "left_shift", "rshift": "right_shift",
}
_COMPARISONS = {
    "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal", "eq": "equal",
    "ne": "not_equal",
}
_UNARY = {"neg": "negative", "pos": "positive", "abs": "absolute", "invert": "invert"}
_OPS = {
    f"__{short}__": BY_NAME[name]
    for short, name in (_ARITHMETIC | _COMPARISONS | _UNARY | {"pow": "power"}).items()
}


def _operators() -> dict[str, Any]:
    """Return what each operator does once recorded, by its method's name."""
    found: dict[str, Any] = {}
    for short, name in _ARITHMETIC.items():
        found |= _three(short, operators.arithmetic(short, name))
    found |= _three("pow", operators.powers())
    found |= _three("matmul", operators.matrix_products())
    for short, name in _COMPARISONS.items():
        found[f"__{short}__"] = operators.comparison(short, name)
    for short, name in _UNARY.items():
        found[f"__{short}__"] = operators.unary_operator(short, name)
    return found


def _three(short: str, methods: tuple[Any, ...]) -> dict[str, Any]:
    names = (f"__{short}__", f"__r{short}__", f"__i{short}__")
    return dict(zip(names, methods, strict=True))


FUNCTIONS: dict[str, Any] = {
    "ops": _OPS, **_operators(),
    "__float__": looking.to_float, "__int__": looking.to_int, "__index__": looking.to_index,
    "__bool__": looking.to_bool, "__hash__": looking.to_hash,  # of one element; others have none
    "__len__": length, "__iter__": elements, "__getitem__": getitem, "__setitem__": setitem,
    "assign_shape": assign_shape, "assign_dtype": assign_dtype, "shape": shape, "ndim": ndim,
    "size": size, "dtype": dtype, "T": transposed,
    "__array_ufunc__": protocols.array_ufunc, "resolve": resolve,
    "buffer": lending.buffer,
}
