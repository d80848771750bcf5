"""Handles: which node is an array's value now.

A handle owns a node, or it is a view: a base handle and the steps that lead from there.  Writing
gives the base a new node; every view reads through its base and so sees it.  What is settled (see
`tiledarray.core`) gets its node when it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from tiledarray.arrays import views
from tiledarray.arrays.views import Step
from tiledarray.at_one_go import persist
from tiledarray.core import Base, rebind, wrap
from tiledarray.execution import placement
from tiledarray.graph.dtypes import UnsupportedDtypeError, is_numeric, shape_text
from tiledarray.graph.node import Node, is_scalar
from tiledarray.recording import record
from tiledarray.recording.history import check_kept, check_look
from tiledarray.recording.join import stack_nodes
from tiledarray.recording.site import warn
from tiledarray.recording.stretch import local, look, look_here

SCALARS = frozenset((bool, int, float, complex))
_new: Any = Base.__new__


class Handle(Base):
    """The part of `TiledArray` that the operators and the protocols build on."""

    # _base is None for what owns its _node.  A view has in _seen the node that it last read, after
    # the root's that it was read from: one pair, since threads may read a view at the same time.
    # _recorded is the node if there is one, and _array the settled value if there is one.
    __slots__ = ()

    _node: Node
    _recorded: Node | None
    _base: Handle | None
    _steps: tuple[Step, ...]
    _seen: tuple[Node, Node] | Any  # of a deferred array what that stands for: `selections`
    set_writable: Any  # `TiledArray` has it

    @property
    def node(self) -> Node:
        """The node of the array's present value."""
        base = self._base
        if base is None:
            return self._node
        root = (base if base._base is None else self.origin())._node
        seen = self._seen
        if seen is None or seen[0] is not root:
            seen = self._seen = root, views.read(root, self._steps)
            local.recorder.note_reader(self)
        return seen[1]

    def origin(self) -> Handle:
        """Return the array that owns the value: the base of a view, else the array itself."""
        base = self._base
        if base is None:
            return self
        while base._base is not None:  # its shape was assigned to since
            base = self._base = base._base
        return base

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps from the base to this view; none for an array of its own."""
        return () if self._base is None else self._steps

    def is_computed(self) -> bool:
        """Whether there is nothing to compute: of a view, as soon as its base is in memory."""
        return self._array is not None or self.origin()._node.buffer is not None

    def computed(self) -> Node:
        """Compute the value of what this is a view of, or is; return its node."""
        node = self.origin()._node  # another thread may give the array its next value meanwhile
        if node.buffer is None:
            look([node])
        return node

    def evaluated(self) -> Any:
        """Compute the value and return its buffer; of a view, the array in the base's buffer."""
        buffer = self.computed().buffer
        return buffer if self._base is None else views.on_array(buffer.array, self._steps)

    def assign(self, value: Node) -> None:
        """Give the array a new value, which has its dtype and broadcasts to its shape."""
        self._advance(lambda before: views.write(before, self.steps, value))

    def change(self, made: Callable[[Node], Node]) -> None:
        """Give the array a new value that is made of its present one, as `assign` does."""
        self._advance(lambda before: views.write(
            before, self.steps, made(views.read(before, self.steps))))

    def _advance(self, following: Callable[[Node], Node]) -> None:
        """Have the value of the array that owns it followed by another.

        It is made again where another thread has written into the array meanwhile.
        """
        if self._base is not None:
            self._seen = None  # what it last read would be a reader of the old value
        while True:
            root = self.origin()
            before = root._node
            after = following(before)
            if not after.form.kind.shape:
                after = record.without_axes(after)
            place = id(before)  # no other has it while `after` refers to that, or is all new
            del before  # who holds the old value while it is written makes it a copy
            if rebind(root, after, place):
                return

    def store(self, value: Any) -> None:
        """Give the array a new value as ``a[...] = value`` does."""
        node = self.node
        self.assign(fitting(value, node.shape, node.dtype, node.device))


def _assign_each(writes: Sequence[tuple[Any, Node]]) -> None:
    for array, value in writes:
        array.assign(value)


def assign_all(writes: Sequence[tuple[Any, Node]]) -> None:
    """Give arrays new values as `Handle.assign` does: all of them, also if a handler raises."""
    try:
        _assign_each(writes)
    except BaseException:
        persist(partial(_assign_each, writes))
        raise


_handle_class: type[Handle] = Handle


def use_class(handle_class: type[Handle]) -> None:
    """Say which subclass `wrap` makes."""
    global _handle_class
    _handle_class = handle_class


def without_value() -> Any:
    """Return an array of its own that has no value yet."""
    made = _new(_handle_class)
    made._base = None
    return made


def view_of(handle: Handle, step: Step) -> Any:
    """Return the view of an array that one more step leads to.

    NumPy's scalars cannot be written, and what NumPy makes of one is new: so is what is made here
    of an array that stands for one.
    """
    return part_of(wrap(handle.node) if stands_for_scalar(handle) else handle, step)


def part_of(handle: Handle, step: Step) -> Any:
    """Return the view of an array that one more step leads to, to be written."""
    result = _new(_handle_class)
    if handle._base is None:
        result._base = handle
        result._steps = (step,)
    else:
        result._base = handle.origin()
        result._steps = views.extend(handle._steps, step)
    return result


def follow(handle: Handle, steps: Sequence[Step]) -> Any:
    """Return the view of an array that some more steps lead to; itself if there are none."""
    for step in steps:
        handle = view_of(handle, step)
    return handle


def host_array(handle: Handle, what: str = "a function of NumPy's") -> np.ndarray[Any, Any]:
    """Return the evaluated value as a NumPy array; on the host it shares the buffer.

    Raises
    ------
    HistoryLost
        If the value has a history, which ``what`` would lose.
    """
    if handle._array is None:
        check_kept(handle.node, what)
    return shown(handle)


def taken_out(handle: Handle, what: str) -> np.ndarray[Any, Any]:
    """Return the evaluated value as `host_array` does, where the user asks for just that.

    Raises
    ------
    HistoryLost
        If the value has a history, in a function whose gradient is wanted.
    """
    if handle._array is None:
        check_look(handle.node, what)
    return shown(handle)


def shown(handle: Handle) -> np.ndarray[Any, Any]:
    """Return the evaluated value as `host_array` does; history does not matter."""
    array = handle._array
    if array is not None:
        return array if type(array) is np.ndarray else np.asarray(array)
    if handle._base is None and handle._node.buffer is None:
        look_here(handle._node)
    node = handle.computed()
    if node.device.kind == "auto":
        if handle._base is None:
            placement.bring_home(node)
        else:
            placement.comes_home(node)
    buffer = node.buffer
    array = buffer.array
    if handle._base is not None:
        array = views.on_array(array, handle._steps)
    device = buffer.device
    if device.on_host:
        return array
    device.tell_outcomes()
    return np.asarray(device.xp.asnumpy(array))


def same_bytes(left: np.ndarray[Any, Any], right: np.ndarray[Any, Any]) -> bool:
    """Whether two arrays have the same shape and dtype, and the same elements to the bit."""
    if left.shape != right.shape or left.dtype != right.dtype:
        return False
    if left.dtype.hasobject:
        return left.tobytes() == right.tobytes()
    size = left.dtype.itemsize
    unit = next(unit for unit in (8, 4, 2, 1) if size % unit == 0)
    left, right = (np.ascontiguousarray(x).reshape(-1).view(f"u{unit}") for x in (left, right))
    return bool((left == right).all())  # `array_equal` would catch what a handler raises


def same_elements(left: np.ndarray[Any, Any], right: np.ndarray[Any, Any]) -> Any:
    """Say of each element whether it is the same to the bit."""
    size = left.dtype.itemsize
    unit = size if size in (1, 2, 4, 8) else 1
    left, right = (np.ascontiguousarray(x).reshape(*x.shape, 1).view(f"u{unit}")
                   for x in (left, right))
    return (left == right).all(axis=-1)


def as_operand(value: Any, device: Any) -> Any:
    """Return a node, or the Python scalar itself.

    NumPy scalars and 0-d arrays keep their dtype; NumPy arrays are copied.

    Raises
    ------
    UnsupportedDtypeError
        If no kernel computes with the value's dtype.
    """
    if isinstance(value, Handle):
        return value.node
    if type(value) in SCALARS or type(value) is Node:
        return value
    if type(value) in (list, tuple) and is_recorded(value):
        parts = [as_node(part, device) for part in value]
        return stack_nodes(parts, 0, np.result_type(*{part.dtype for part in parts}), device)
    try:
        array = np.asarray(value)
    except ValueError as error:
        given = by_protocol(value, error)
        if given is None:
            raise
        return as_operand(given, device)
    if not is_numeric(array.dtype):
        raise UnsupportedDtypeError(f"no kernel for dtype {array.dtype}")
    if array.ndim == 0:
        return record.full((), array.item(), array.dtype, device)
    return record.leaf(device.wrap(array, copy=True))


def by_protocol(values: Any, error: Exception) -> Any:
    """Return nested values with arrays of ours in place of objects whose ``__array__`` gives one.

    ``None`` if there are none, or the error is not that by which NumPy refuses these.
    """
    found: list[Handle] = []

    def given(value: Any) -> Any:
        if type(value) in (list, tuple):
            return type(value)(map(given, value))
        if type(value) is dict:
            return {name: given(part) for name, part in value.items()}
        if isinstance(value, (Handle, np.ndarray, np.generic)) or not hasattr(value, "__array__"):
            return value
        array = value.__array__()
        if not isinstance(array, Handle):
            return value
        found.append(array)
        return array

    if str(error) != "object __array__ method not producing an array":
        return None
    result = given(values)
    return result if found else None


_ATOMS = frozenset((int, float, bool, complex))


def any_keeps(values: Sequence[Any]) -> bool:
    """Whether the history of some array in nested lists is wanted."""
    return _any_of(values, _keeps)


def is_recorded(values: Sequence[Any]) -> bool:
    """Whether some array in nested lists has a history that is wanted, or no values here."""
    scope = local.recorder.scope
    if scope is None:
        return _any_of(values, _keeps)
    return _any_of(values, lambda handle: _keeps(handle) or not scope.knows([handle.node]))


def _keeps(handle: Handle) -> bool:
    return handle._array is None and bool(handle.node.keeps)


def _any_of(values: Sequence[Any], holds: Callable[[Handle], bool]) -> bool:
    if _ATOMS.issuperset(map(type, values)):  # quick for long ones
        return False
    for value in values:
        if isinstance(value, Handle):
            if holds(value):
                return True
        elif type(value) in (list, tuple) and _any_of(value, holds):
            return True
    return False


def as_node(value: Any, device: Any) -> Node:
    """Return a node of the value; Python scalars get NumPy's default dtypes."""
    found = as_operand(value, device)
    if type(found) is Node:
        return found
    return record.full((), found, np.asarray(found).dtype, device)


def as_dtype(dtype: Any) -> np.dtype[Any]:
    """Return the dtype that a caller names.

    Raises
    ------
    TypeError
        It is none; an array has one, and stands for none.
    """
    if isinstance(dtype, Handle):
        raise TypeError("Cannot construct a dtype from an array")
    return np.dtype(dtype)


def stands_for_scalar(handle: Any) -> bool:
    """Whether NumPy has a scalar where this is: a number, an element, a full reduction."""
    if not isinstance(handle, Handle):
        return not isinstance(handle, np.ndarray)
    if handle._base is not None:
        return False
    array = handle._array
    if array is not None:
        return isinstance(array, np.generic)
    return is_scalar(handle._node)


def array_of(node: Node) -> Any:
    """Return an array of a value; where it has no axes, one that can be written as NumPy's can."""
    return wrap(node if node.form.kind.shape else record.without_axes(node))


def scalar(value: Any, device: Any) -> Any:
    """Return one of NumPy's scalars as an array that stands for it."""
    return wrap(record.leaf(device.wrap(np.asarray(value), copy=True)))


def _known_scalar(value: Any) -> Any:
    """Return the value of what stands for a scalar, if it is there; else what was given."""
    if isinstance(value, Handle) and stands_for_scalar(value):
        if value._array is not None:
            return value._array
        array = getattr(value._node.buffer, "array", None)
        if isinstance(array, np.ndarray) and not value._node.keeps:
            return array[()]
    return value


def fitting(
    value: Any, shape: tuple[int, ...], dtype: np.dtype[Any], device: Any, *, checked: bool = True
) -> Node:
    """Return the value as something to be written into an array of this shape and dtype.

    Parameters
    ----------
    value : array_like
    shape, dtype, device
        Of what is written.
    checked : bool
        Whether NumPy checks that a scalar of its own fits the dtype, as a Python number always
        is; it does so for basic indices.

    Raises
    ------
    ValueError
        If it does not broadcast to the shape, or is no number that an integer can be.
    OverflowError
        If an int does not fit the dtype.
    """
    if checked and dtype.kind in "iu":
        value = _known_scalar(value)
    if checked and isinstance(value, np.generic):
        sample = np.empty((), dtype)
        sample[()] = value
        return record.full((), sample.item(), dtype, device)
    if type(value) in SCALARS:
        # NumPy checks the scalar; a run-time parameter is left as it is.
        return record.full((), np.array(value, dtype).item(), dtype, device)
    nested = type(value) in (list, tuple)
    if nested and not is_recorded(value):
        value = _of_list(value, shape, dtype, checked=checked)
    node = as_operand(value, device)
    if nested and checked and len(node.shape) > len(shape) > 0:
        raise ValueError(_TOO_DEEP.format(len(shape)))
    if node.device is not device:
        if "auto" not in (node.device.kind, device.kind):
            raise ValueError(
                f"cannot write an array on {node.device} into one on {device}; "
                f"move it first with x.to({str(device)!r})"
            )
        node = record.brought(node, device)
    if node.shape != shape:
        node = _squeezed(node, shape)
        if not record.broadcastable(node.shape, shape):
            raise ValueError(
                f"could not broadcast input array from shape {shape_text(node.shape)} "
                f"into shape {shape_text(shape)}"
            )
    return converted(node, dtype)


_TOO_DEEP = ("setting an array element with a sequence. "
             "The requested array would exceed the maximum number of dimension of {}.")


def _of_list(
    value: Any, shape: tuple[int, ...], dtype: np.dtype[Any], *, checked: bool
) -> np.ndarray[Any, Any]:
    """Return a list of numbers as an array; NumPy checks every one of them."""
    try:
        return np.array(value, dtype)
    except ValueError:  # what it says depends on how deep the list may be
        if checked and shape:
            np.lib.stride_tricks.as_strided(
                np.empty((), dtype), shape, (0,) * len(shape))[...] = value
        raise


def converted(node: Node, dtype: np.dtype[Any]) -> Node:
    """Return the node with another dtype, as a user asks for it: NumPy's warning included."""
    if node.dtype.kind == "c" and dtype.kind not in "cb":
        warn(
            "Casting complex values to real discards the imaginary part",
            np.exceptions.ComplexWarning,
        )
    return record.cast(node, dtype)


def _squeezed(node: Node, shape: tuple[int, ...]) -> Node:
    """Drop leading axes of length one, as NumPy does in an assignment."""
    excess = len(node.shape) - len(shape)
    if excess > 0 and all(size == 1 for size in node.shape[:excess]):
        return record.reshape(node, node.shape[excess:])
    return node
