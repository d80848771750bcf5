"""The core in Python: handles of arrays, and what NumPy does at once.

This is `_core.c` written again, in its order and with its names: the two are one thing, and what is
changed here is changed there.  It takes the place of the extension where that was not built.

A handle is *settled* while its value is a NumPy array on the host (``_array_``): its views hold
NumPy's own views of it, and what is small and settled NumPy computes at once.  Otherwise it is
*recorded*: ``_node_`` says how its value is to be computed, or has it.  A small settled value goes
into the graph as a copy (``_node_``, with ``_copied_`` set), which the next write drops; a large
one by reference: then both have the same memory, and `writable` decides whether it may be written.

Two things are not as in the extension.  NumPy's floating-point warnings of what is computed at once
name the line here that called NumPy, not the user's: NumPy asks for the Python frame that called
it, and nothing says cheaply that it has warned.  And tracebacks have one frame more.

Signal handlers and other threads run where CPython lets them: where a function is entered, has been
called, or jumps back.  So fields that are assigned in one statement change together, a check and a
write right after it are one, and everywhere else each state in between is right.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Iterator
from types import EllipsisType, FunctionType, MethodType, NoneType
from typing import Any
from weakref import ref

import numpy as np
from numpy import ndarray

Function = Callable[..., Any]

DEEPEST = 16  # views without steps of views without steps; see `take_view`
MOST_ARGUMENTS = 16
WRITE_FACTOR = 4  # parts of settled arrays are written at once if no larger by this
LIBRARY_FACTOR = 64  # library calls are at once for arrays larger by at most this

limit = 0  # elements up to which a settled array is small
held = 0  # reasons (traced functions) for which nothing is done at once
most = -1  # the limit; -1 while nothing is done at once
births = False  # whether new arrays are born on the host
library_factor = LIBRARY_FACTOR

# What Python gives `install`.
operator_names = (
    "add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor", "lshift",
    "rshift", "matmul")
comparison_names = ("lt", "le", "eq", "ne", "gt", "ge")
other_names = (
    "__neg__", "__pos__", "__abs__", "__invert__", "__float__", "__int__", "__index__", "__bool__",
    "__hash__", "__len__", "__iter__", "__getitem__", "__setitem__", "assign_shape", "shape",
    "ndim", "size", "dtype", "T", "__array_ufunc__")
callback_names = (
    "leaf", "value", "made", "look", "steps_of", "view_on", "hold_of", "alone")
recorded: dict[str, Function] = {}
callbacks: dict[str, Function] = {}
how_transposed: tuple[Any, ...] = ()

# ---- the two states -----------------------------------------------------------------------------


def size_of(value: Any) -> int:
    """Return the number of elements of an array, or of a scalar."""
    size: int = value.size if isinstance(value, ndarray) else 1
    return size


def at_most(factor: int) -> int:
    """Return up to how many elements something is at once that pays for larger arrays too."""
    return limit * factor if limit > 1 else limit


def root_of(handle: Any) -> Any:
    """Return the array that owns the value."""
    while handle._base_ is not None:
        handle = handle._base_
    return handle


def link_view(root: Any, view: Any) -> None:
    """Add a view to those that are told when their root changes."""
    reference = ref(view)
    views = root._views_
    if not views:
        root._views_, root._room_ = [reference], 64
        return
    views.append(reference)
    if len(views) > root._room_:
        leave_out_the_dead(root)


def note_parts(base: Any, references: Any) -> None:
    """Remember views of an array beside those that are told when it changes."""
    parts = getattr(base, "_parts_", ())
    if len(parts) >= 64:
        parts = [reference for reference in parts if reference() is not None]
    base._parts_ = [*parts, *references]


def leave_out_the_dead(root: Any) -> None:
    """Forget the views that are no more."""
    views = root._views_
    known = len(views)
    live = {id(reference): reference for reference in views[:known] if reference() is not None}
    kept, room = [*live.values()], 64 + 2 * len(live)
    if root._views_ is views:
        root._views_, root._room_ = kept + views[known:], room


def steps_of(view: Any) -> Any:
    """Return the steps of a view."""
    parent, how, steps = view._parent_, view._how_, view._steps_
    if steps is None:
        if parent is None:
            raise SystemError("a view does not know how it lies in its base")
        found = callbacks["steps_of"](parent, how, view._by_index_)
        steps = view._steps_
        if steps is None:  # else asked again meanwhile
            steps = view._steps_ = found
            view._parent_ = view._how_ = None
    return steps


def settle_steps(root: Any) -> None:
    """Let every settled view know its steps, for what it was taken of will change."""
    for reference in root._views_:
        view = reference()
        if view is not None:
            steps_of(view)


def drop_arrays(root: Any, array: Any, node: Any, base: Any = None) -> None:
    """Give an array of its own another value; its views, which know their steps, forget theirs."""
    before = root._array_, root._node_  # what dies with them dies after all is done
    note_parts(root, root._views_)
    while True:
        views = root._views_
        for reference in views:
            view = reference()
            if view is not None:
                view._array_ = None
        if root._views_ is views:
            break
    root._views_, root._array_, root._node_, root._copied_, root._base_ = (
        (), array, node, False, base)
    del before


def is_far(node: Any) -> bool:
    """Whether a node is known to have no value that can settle its array.

    That is asked for every operand of what is recorded.
    """
    size, buffer = node.form.kind.size, node.buffer
    if buffer is None or size == sys.maxsize:
        return bool(size > limit)
    return type(buffer) is not tuple and not buffer.device.on_host


def find_array(handle: Any) -> Any:
    """Return the settled value, found again where it was forgotten; ``None`` if there is none."""
    root = root_of(handle)
    of = root._array_
    if of is None:
        node = root._node_
        if node is None or is_far(node):
            return None
        found = callbacks["value"](node)
        of = root._array_
        if of is None:
            if type(found) is not ndarray and not isinstance(found, np.generic):
                return None
            if root._node_ is not node:
                return None
            root._copied_, root._array_ = False, found
            of = found
    if handle is root:
        return of
    if handle._array_ is None:
        steps = steps_of(handle)
        found = callbacks["view_on"](of, steps)
        if found is None:
            return handle._array_
        link_view(root, handle)
        if root._array_ is of and handle._array_ is None and handle._steps_ is steps:
            handle._array_ = found
    return handle._array_


def settled(handle: Any) -> Any:
    """Return the settled value; ``None`` if it is recorded, or nothing is at once."""
    if most < 0:
        return None
    array = handle._array_
    if array is not None:
        return array
    try:
        return find_array(handle)
    except Exception:  # the recorded way raises it again
        return None


def writable(handle: Any, array: Any) -> bool:
    """Whether ``array``, a settled value, may be written."""
    root = root_of(handle)
    if root._node_ is None:
        return handle._array_ is array
    if root._copied_:
        root._node_, root._copied_ = None, False
        return handle._array_ is array
    for reference in root._views_:
        view = reference()
        if view is not None:
            view._seen = None  # what a view has read refers to the node
    # The array gets a node of its own over the memory.  If the one it had dies, nobody else held
    # that; and if nobody else holds the memory, it is the array's alone.
    before = root._node_
    after = callbacks["hold_of"](before)
    if root._node_ is not before:
        return False
    root._node_ = after
    del before
    if callbacks["alone"](after) and root._node_ is after and handle._array_ is array:
        root._node_ = None
        return True
    return False


# ---- making handles -----------------------------------------------------------------------------

new_object = object.__new__

# Kernels compute with them, so they can be in an array of ours; others stay NumPy's.
KNOWN_TYPES = frozenset(map(np.dtype, "?bhilqBHILQefdFD"))
KNOWN_SCALARS = frozenset(dtype.type for dtype in KNOWN_TYPES) | {
    np.dtype(code).type for code in "lqLQ"}


def new_handle(kind: Any, *_arguments: Any, **_options: Any) -> Any:
    """Make a handle without a value: ``Base.__new__``."""
    handle = new_object(kind)
    handle._array_ = handle._node_ = handle._base_ = handle._steps_ = handle._seen = None
    handle._parent_ = handle._how_ = None
    handle._copied_, handle._views_ = False, ()
    return handle


def own(value: Any) -> Any:
    """Return a handle that owns what NumPy has computed; what is no number stays NumPy's."""
    kind = type(value)
    if kind is ndarray:
        if value.dtype not in KNOWN_TYPES:
            return value
        if not value.flags.carray:
            flags = value.flags
            if not (flags.c_contiguous and flags.aligned):
                value = value.copy()  # owners are row-major
    elif kind not in KNOWN_SCALARS:
        return value
    handle = new_object(handle_class)
    handle._array_ = value
    handle._node_ = handle._base_ = handle._steps_ = handle._seen = None
    handle._parent_ = handle._how_ = None
    handle._copied_, handle._views_ = False, ()
    return handle


def take_view(parent: Any, of: Any, array: Any, by_index: bool, how: Any) -> Any:
    """Return a handle of a view: ``array``, which was taken of the array ``of``."""
    root = parent if parent._base_ is None else root_of(parent)
    view = new_object(handle_class)
    view._array_ = array
    view._node_ = view._steps_ = view._seen = None
    view._base_ = root
    view._parent_ = parent
    view._how_ = how
    view._by_index_ = by_index
    view._copied_, view._views_ = False, ()
    depth = view._depth_ = 0 if parent._parent_ is None else parent._depth_ + 1
    reference = ref(view)
    views = root._views_
    if views:
        views.append(reference)
        if len(views) > root._room_:
            leave_out_the_dead(root)
    else:
        root._views_, root._room_ = [reference], 64
    if depth >= DEEPEST:  # `x = x[1:]` in a loop keeps no more than so many alive
        steps_of(view)
    if parent._array_ is not of:  # another thread has changed the root meanwhile
        view._array_ = None
    return view


# ---- what the recording in Python sees ----------------------------------------------------------


def get_node(handle: Any) -> Any:
    """Return the recorded value; made of the settled one where there is none."""
    node = handle._node_
    if node is not None:
        return node
    array = handle._array_
    if handle._base_ is not None or array is None:
        raise AttributeError("_node")
    small = size_of(array) <= limit
    node = callbacks["leaf"](array, small)
    if handle._node_ is None and handle._array_ is array:
        handle._node_, handle._copied_ = node, small
    return node


def set_node(handle: Any, node: Any = None) -> None:
    """Give an array of its own a recorded value."""
    if handle._base_ is not None:
        handle._node_, handle._copied_ = node, False
        return
    if handle._array_ is not None or handle._views_:
        settle_steps(handle)
        drop_arrays(handle, None, node)
    else:
        handle._node_, handle._copied_ = node, False


def get_recorded(handle: Any) -> Any:
    """Return the node if it is the value, not a copy of it."""
    return None if handle._copied_ else handle._node_


def set_base(handle: Any, base: Any) -> None:
    """Make a handle a view, or one of another base."""
    if base is not None and not isinstance(base, Base):
        raise TypeError("the base of a view is an array")
    if handle._base_ is None:
        settle_steps(handle)
        if base is None:
            drop_arrays(handle, None, handle._node_)
        else:
            drop_arrays(handle, None, None, base)
    elif root_of(handle._base_) is not (None if base is None else root_of(base)):
        handle._array_, handle._base_ = None, base
    else:
        handle._base_ = base
    if base is not None:
        note_parts(base, [ref(handle)])


def get_steps(handle: Any) -> Any:
    """Return the steps of a view; none for an array of its own."""
    return () if handle._base_ is None else steps_of(handle)


def set_steps(handle: Any, steps: Any) -> None:
    """Say how a view lies in its base."""
    if handle._base_ is not None and handle._array_ is not None:  # other views may be of this one
        settle_steps(root_of(handle))
    handle._steps_ = steps
    if handle._base_ is not None:
        handle._array_ = None


def get_array(handle: Any) -> Any:
    """Return the settled value, or ``None``."""
    return settled(handle)


def get_viewed(handle: Any) -> bool:
    """Return whether an array has live views."""
    views = [reference() for reference in (*handle._views_, *getattr(handle, "_parts_", ()))]
    return any(view is not None and view._base_ is handle for view in views)


# Attributes that NumPy's arrays have.


def get_shape(handle: Any) -> Any:
    """Return the lengths of the axes."""
    array = settled(handle)
    return recorded["shape"](handle) if array is None else array.shape


def set_shape(handle: Any, shape: Any) -> None:
    """Reshape in place."""
    recorded["assign_shape"](handle, shape)


def delete_shape(handle: Any) -> None:
    """Refuse, as NumPy does."""
    raise AttributeError("Cannot delete array shape")


def get_ndim(handle: Any) -> Any:
    """Return the number of axes."""
    array = settled(handle)
    return recorded["ndim"](handle) if array is None else array.ndim


def get_size(handle: Any) -> Any:
    """Return the number of elements."""
    array = settled(handle)
    return recorded["size"](handle) if array is None else array.size


def get_dtype(handle: Any) -> Any:
    """Return the data type of the elements."""
    array = settled(handle)
    return recorded["dtype"](handle) if array is None else array.dtype


def get_transposed(handle: Any) -> Any:
    """Return the view with the axes in reverse order."""
    array = settled(handle)
    if not isinstance(array, ndarray):
        return recorded["T"](handle)
    return take_view(handle, array, array.T, False, how_transposed)


# ---- operands -----------------------------------------------------------------------------------

PLAIN = frozenset((float, int, bool, complex))
NUMBERS = (np.number, np.bool_)


def operand(x: Any) -> Any:
    """Return what NumPy computes with at once; ``None`` for the recorded way."""
    if isinstance(x, Base):
        array = settled(x)
        return array if array is not None and size_of(array) <= most else None
    if most < 0:
        return None
    if type(x) in PLAIN or isinstance(x, NUMBERS) or (type(x) is ndarray and x.size <= most):
        return x
    return None


def fit(x: Any, y: Any) -> bool:
    """Whether what two operands broadcast to is small too."""
    if not isinstance(x, ndarray) or not isinstance(y, ndarray):
        return True
    if x.size * y.size <= most and x.size and y.size:
        return True
    left, right = x.shape, y.shape
    if left == right:
        return True
    size, extra = 1, len(left) - len(right)
    left, right = (1,) * -extra + left, (1,) * extra + right
    for a, b in zip(left, right, strict=True):
        size *= a if a > b else b
    return size <= most


class Arguments:
    """Arguments as NumPy takes them."""

    __slots__ = ("values", "first", "product", "total", "handles", "arrays")

    def __init__(self) -> None:
        self.values: list[Any] = []
        self.first: Any = None  # the first array
        self.product = 1
        self.total = 0
        self.handles = self.arrays = False  # whether there are any, and what makes an array


def plain_sequence(arguments: Arguments, x: Any, bound: int, depth: int) -> Any:
    """Return a list or a tuple with NumPy's arrays in place of ours; ``None`` if they are not."""
    found = []
    for part in x:
        value = None
        if isinstance(part, Base):
            value = settled(part)
            arguments.handles = True
        elif type(part) in PLAIN or isinstance(part, np.number) or type(part) is ndarray:
            value = part
        elif depth and type(part) in (list, tuple):
            value = plain_sequence(arguments, part, bound, depth - 1)
        if value is not None and type(value) not in (list, tuple):
            arguments.total += size_of(value)
        if value is None or arguments.total > bound:
            return None
        found.append(value)
    arguments.arrays = True
    return tuple(found) if type(x) is tuple else found  # a tuple is an index, perhaps


# ---- operators ----------------------------------------------------------------------------------

numpys = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "truediv": operator.truediv,
    "floordiv": operator.floordiv, "mod": operator.mod, "pow": operator.pow, "and": operator.and_,
    "or": operator.or_, "xor": operator.xor, "lshift": operator.lshift, "rshift": operator.rshift,
    "matmul": operator.matmul}
numpys_in_place = {
    name: getattr(operator, "i" + function.__name__.strip("_")) for name, function in
    numpys.items()}


def named(name: str, function: Function) -> Function:
    """Give a function the name of a method."""
    function.__name__ = name
    function.__qualname__ = f"Base.{name}"
    return function


def binary(op: str) -> tuple[Function, Function]:
    """Make ``x + y``, and ``y + x`` for another ``y``."""
    compute, forward, reflected = numpys[op], f"__{op}__", f"__r{op}__"

    def method(x: Any, y: Any) -> Any:
        left = x._array_
        if left is None or left.size > most:
            left = operand(x)
        if left is not None:
            kind = type(y)
            if kind is handle_class:
                right = y._array_
                if right is None or right.size > most:
                    right = operand(y)
                if right is not None and (
                    (left.size * right.size <= most and left.size and right.size)
                    or fit(left, right)
                ):
                    return own(compute(left, right))
            elif kind is float or kind is int:
                return own(compute(left, y))
            else:
                right = operand(y)
                if right is not None and fit(left, right):
                    return own(compute(left, right))
        return recorded[forward](x, y)

    def swapped(y: Any, x: Any) -> Any:
        left = operand(x)
        right = None if left is None else operand(y)
        if right is not None and fit(left, right):
            return own(compute(left, right))
        return recorded[reflected](y, x)

    return named(forward, method), named(reflected, swapped)


def update(op: str) -> Function:
    """Make ``x += y``."""
    compute, compute_in_place, in_place = numpys[op], numpys_in_place[op], f"__i{op}__"

    def method(x: Any, y: Any) -> Any:
        left = operand(x)
        right = None if left is None else operand(y)
        if right is not None and fit(left, right):
            if type(left) is not ndarray:  # NumPy's scalars are immutable
                return own(compute(left, right))
            root = root_of(x)
            may = root._node_ is None or writable(x, left)
            if may and root._node_ is None and x._array_ is left:
                result = compute_in_place(left, right)
                return x if result is left else own(result)
        return recorded[in_place](x, y)

    return named(in_place, method)


def factor(x: Any) -> Any:
    """Return what a product takes: settled, and of almost any size."""
    if isinstance(x, Base):
        array = settled(x)
    else:
        array = x if most >= 0 else None
    return array if type(array) is ndarray and array.size <= at_most(library_factor) else None


def n_matmul(x: Any, y: Any) -> Any:
    """Multiply matrices."""
    left = factor(x)
    right = None if left is None else factor(y)
    return recorded["__matmul__"](x, y) if right is None else own(left @ right)


def r_matmul(y: Any, x: Any) -> Any:
    """Multiply matrices; the first is no array of ours."""
    left = factor(x)
    right = None if left is None else factor(y)
    return recorded["__rmatmul__"](y, x) if right is None else own(left @ right)


n_pow_of_two, r_pow_of_two = binary("pow")


def n_pow(x: Any, y: Any, modulus: Any = None) -> Any:
    """Raise to a power."""
    return n_pow_of_two(x, y) if modulus is None else NotImplemented


def r_pow(y: Any, x: Any, modulus: Any = None) -> Any:
    """Raise to a power; the base is no array of ours."""
    return r_pow_of_two(y, x) if modulus is None else NotImplemented


def unary(name: str, compute: Function) -> Function:
    """Make ``-x``."""
    def method(x: Any) -> Any:
        value = operand(x)
        return recorded[name](x) if value is None else own(compute(value))

    return named(name, method)


def converted(name: str, compute: Function) -> Function:
    """Make what reads the one element: of a settled array of any size, for NumPy refuses others."""
    def method(x: Any) -> Any:
        value = settled(x)
        return recorded[name](x) if value is None else compute(value)

    return named(name, method)


def compare(name: str) -> Function:
    """Make ``x < y``."""
    compute = getattr(operator, name.strip("_"))

    def method(x: Any, y: Any) -> Any:
        left = operand(x)
        right = None if left is None else operand(y)
        if right is not None and fit(left, right):
            return own(compute(left, right))
        return recorded[name](x, y)

    return named(name, method)


def handle_hash(x: Any) -> int:
    """Return the hash of what stands for a scalar."""
    value = settled(x)
    if value is not None and not isinstance(value, ndarray):
        return hash(value)
    found: int = recorded["__hash__"](x)
    return found


# ---- indexing -----------------------------------------------------------------------------------


def is_bound(x: Any) -> bool:
    """Whether it is an end or the step of a basic slice."""
    return x is None or type(x) is int or isinstance(x, np.integer)


def basic_part(key: Any) -> int:
    """Part of a basic index: 1 an int, 2 what leaves an axis, 0 something else."""
    kind = type(key)
    if kind is int or isinstance(key, np.integer):
        return 1
    if kind is slice:
        return 2 if is_bound(key.start) and is_bound(key.stop) and is_bound(key.step) else 0
    return 2 if key is None or kind is EllipsisType else 0


def basic_index(key: Any) -> int:
    """Return 1 for an index of ints alone, 2 for a basic one, 0 for another."""
    if type(key) is not tuple:
        return basic_part(key)
    whole = 1
    for item in key:
        if type(item) is not int:
            part = basic_part(item)
            if not part:
                return 0
            if part > whole:
                whole = part
    return whole


def plain_bound(x: Any) -> tuple[Any, ...]:
    """Return a bound of a slice, or an index in a list, in a tuple; an empty one if not there."""
    if is_bound(x) or type(x) is bool:
        return (x,)
    value = settled(x) if isinstance(x, Base) else None
    return (value,) if isinstance(value, np.integer) else ()


def plain_slice(key: slice) -> Any:
    """Return a slice as NumPy takes it, in a tuple; else ``None``."""
    bounds = plain_bound(key.start) + plain_bound(key.stop) + plain_bound(key.step)
    return (slice(*bounds),) if len(bounds) == 3 else None


def plain_list(key: list[Any]) -> Any:
    """Return a list of indices as NumPy takes it, in a tuple; else ``None``."""
    found: list[Any] = []
    for item in key:
        plain = plain_bound(item)
        if not plain or item is None:
            return None
        found += plain
    return (found,)


def most_named() -> int:
    """Return how many elements index arrays may name for NumPy to read or write them at once."""
    return at_most(min(WRITE_FACTOR, library_factor))


def is_taken(value: Any) -> bool:
    """Whether an index's array is taken as it is: a mask always, its values decide on the shape."""
    return bool(size_of(value) <= most_named() or (limit > 1 and is_mask(value)))


def plain_item(item: Any) -> Any:
    """Return an item of an index as NumPy takes it, in a tuple; else ``None``: the recorded way."""
    if isinstance(item, Base):
        value = settled(item)
        # An array without axes is no scalar: by it an index is not basic.
        if value is None or not is_taken(value) or (
            isinstance(value, ndarray) and not value.ndim
        ):
            return None
        return (value,)
    if basic_part(item) or (type(item) is ndarray and is_taken(item)):
        return (item,)
    if type(item) is slice:
        return plain_slice(item)
    return plain_list(item) if type(item) is list and len(item) <= limit else None


def plain_index(key: Any) -> Any:
    """Return an index as NumPy takes it, in a tuple; else ``None``."""
    if type(key) is not tuple:
        return plain_item(key)
    plain: tuple[Any, ...] = ()
    for item in key:
        found = plain_item(item)
        if found is None:
            return None
        plain += found
    return (plain,)


def named_elements(array: Any, key: Any) -> float:
    """How many elements a plain index with arrays names, at most; a huge number if not known."""
    items = key if type(key) is tuple else (key,)
    axis, ndim = 0, array.ndim
    covered = ndim - sum(item is not None and item is not Ellipsis for item in items)
    kept = named = 1.0
    flat = True  # all have one axis
    for item in items:
        if item is None:
            continue
        if item is Ellipsis:
            for _ in range(covered):
                kept *= array.shape[axis] if axis < ndim else 1
                axis += 1
            covered = 0
            continue
        if axis >= ndim or (type(item) is ndarray and item.dtype.char == "?"):
            return HUGE
        if type(item) is slice:
            kept *= array.shape[axis]
        elif type(item) is ndarray or type(item) is list:
            if type(item) is list and item and type(item[0]) is list:
                return HUGE
            rank, size = (item.ndim, item.size) if type(item) is ndarray else (1, len(item))
            flat = flat and rank == 1
            named = named if flat and size == named else named * size  # broadcast together
        axis += 1
    for length in array.shape[axis:]:
        kept *= length
    return kept * named


def has_mask(key: Any) -> bool:
    """Whether a plain index has a mask."""
    return any(map(is_mask, key)) if type(key) is tuple else is_mask(key)


def is_index_at_once(array: Any, key: Any, has_axes: bool) -> bool:
    """Whether reading by a plain index that is not basic is done at once, or writing what has axes.

    By a mask NumPy does it, whatever the size: no plan is found again that depends on the length.
    """
    return array.size <= at_most(WRITE_FACTOR) or (
        limit > 1 and ((has_axes and has_mask(key)) or named_elements(array, key) <= most_named()))


def is_mask(x: Any) -> bool:
    """Whether it is an array of truth values."""
    return type(x) is ndarray and x.dtype.char == "?" and x.ndim > 0


def handle_getitem(handle: Any, key: Any) -> Any:
    """Return ``x[key]``."""
    array = handle._array_
    if array is None or most < 0:
        array = settled(handle)
    if array is None and basic_index(key) != 2:
        array = make_constant(handle)  # elements are read: they will be written too
    if array is None:
        array = looked_at_element(handle, key)
    if type(array) is not ndarray:
        return recorded["__getitem__"](handle, key)
    if not basic_index(key):
        return taken(handle, array, key)
    result = array[key]
    return take_view(handle, array, result, True, key) if type(result) is ndarray else own(result)


def taken(handle: Any, array: Any, key: Any) -> Any:
    """Return the elements that an index other than a plain basic one names."""
    plain = None
    if isinstance(key, Base) and array.size > limit:
        mask = settled(key)  # the result's shape depends on it, so it is read
        plain = (mask,) if is_mask(mask) else None
    plain = plain_index(key) if plain is None else plain
    if plain is None:
        return recorded["__getitem__"](handle, key)
    basic = basic_index(plain[0])
    if not basic and not is_mask(plain[0]) and not is_index_at_once(array, plain[0], True):
        return recorded["__getitem__"](handle, key)
    result = array[plain[0]]
    if type(result) is ndarray and basic:
        return take_view(handle, array, result, True, plain[0])
    return own(result)  # a new array, though NumPy may give it as a view of one that nobody has


def is_written_back(handle: Any, key: Any, value: Any) -> bool:
    """Whether this is the second half of ``a[key] += b``: its view is written already."""
    if not isinstance(value, Base) or value._array_ is None or value._parent_ is not handle:
        return False
    if not value._by_index_ or not value._array_.flags.writeable:
        return False
    return value._how_ is key or bool(value._how_ == key)


def make_constant(handle: Any) -> Any:
    """Make what is recorded as a constant (`zeros`), for it is written into; as `settled`."""
    root = root_of(handle)
    node = root._node_
    if most <= 1 or root._array_ is not None or node is None:
        return None
    array = callbacks["made"](node)
    if type(array) is ndarray and root._node_ is node and root._array_ is None:
        root._array_, root._node_, root._copied_ = array, None, False
    return settled(handle) if type(array) is ndarray else None


def looked_at(handle: Any) -> Any:
    """Compute what is recorded; as `settled`."""
    if most < 0:
        return None
    callbacks["look"](handle)
    return settled(handle)


def looked_at_element(handle: Any, key: Any) -> Any:
    """Compute a large array on the host, for one of its elements is read or written; as `settled`.

    More will be, and each would be recorded.  ``None`` for another index.
    """
    node = handle._node_
    if most <= 1 or handle._base_ is not None or node is None or node.buffer is not None:
        return None
    kind = node.form.kind
    count = len(key) if type(key) is tuple else 1
    if kind.size <= limit or count != len(kind.shape) or basic_index(key) != 1:
        return None
    return looked_at(handle) if kind.device.kind == "cpu" else None


def new_values(value: Any) -> Any:
    """Return what is written, as NumPy takes it; else ``None``."""
    if type(value) in PLAIN:
        return value
    if type(value) in (list, tuple):
        return plain_sequence(Arguments(), value, limit, 3)
    return operand(value)


def to_be_written(handle: Any, key: Any, value: Any) -> Any:
    """Return the settled value, computed if it is known to pay; ``None`` if it is recorded."""
    array = settled(handle)
    if array is None and (
        type(value) in PLAIN or (isinstance(value, Base) and settled(value) is not None)
    ):
        array = make_constant(handle)
    return looked_at_element(handle, key) if array is None else array


def put_at_once(handle: Any, key: Any, value: Any) -> bool:
    """Write at once; ``False`` for the recorded way."""
    array = handle._array_
    if array is None or most < 0:
        array = to_be_written(handle, key, value)
    if type(array) is not ndarray:
        return False
    basic = basic_index(key)
    if basic and type(value) not in PLAIN and is_written_back(handle, key, value):
        return True
    new = new_values(value)
    if new is None:
        return False
    if not basic:
        plain = plain_index(key)
        if plain is None:
            return False
        key = plain[0]
        basic = basic_index(key)
        has_axes = type(new) is ndarray and new.ndim > 0
        if not basic and not is_index_at_once(array, key, has_axes):
            return False
    if basic == 2 and array.size > limit and size_of(array[key]) > at_most(WRITE_FACTOR):
        return False  # a small part alone of a large array
    root = root_of(handle)
    if root._node_ is not None and not writable(handle, array):
        return False
    if root._node_ is None and handle._array_ is array:
        array[key] = new
        return True
    return False


def handle_setitem(handle: Any, key: Any, value: Any) -> None:
    """Do ``x[key] = value``."""
    if not put_at_once(handle, key, value):
        recorded["__setitem__"](handle, key, value)


def handle_delitem(handle: Any, key: Any) -> None:
    """Refuse, as NumPy does."""
    raise ValueError("cannot delete array elements")


def handle_length(handle: Any) -> int:
    """Return the length of the first axis."""
    array = settled(handle)
    if isinstance(array, ndarray) and array.ndim:
        return len(array)
    found: int = recorded["__len__"](handle)
    return found


def recorded_element(handle: Any, place: int) -> Any:
    """Return the element of an array with one axis that has become recorded."""
    element = handle_getitem(handle, place)
    return element.__array__()[()] if isinstance(element, Base) else element


def scalars(handle: Any) -> Iterator[Any]:
    """Yield the elements of an array with one axis, as NumPy's scalars, as each is by then."""
    place = 0
    while True:
        array = handle._array_
        if array is None or most < 0:
            array = settled(handle)
        if place >= (handle_length(handle) if array is None or not array.ndim else len(array)):
            return
        place += 1
        if array is None:
            yield recorded_element(handle, place - 1)
        elif type(array) is not ndarray or array.ndim != 1:
            yield handle_getitem(handle, place - 1)
        else:
            yield array[place - 1]


def rows(handle: Any) -> Iterator[Any]:
    """Yield the views along the first axis, as each is by then."""
    place = 0
    while place < handle_length(handle):
        place += 1
        yield handle_getitem(handle, place - 1)


def handle_iter(handle: Any) -> Any:
    """Return an iterator along the first axis."""
    array = settled(handle)
    if type(array) is not ndarray or not array.ndim:
        return recorded["__iter__"](handle)
    return scalars(handle) if array.ndim == 1 else rows(handle)


# ---- functions that NumPy computes at once if all their arguments are small and settled ---------

METHOD = 1  # a method of arrays: `target` is its name
WRITES = 2  # changes its first argument
READS = 4  # returns no array: at once whatever the size
LIBRARY = 8  # fuses with nothing: at once for larger arrays too
UFUNC = 16  # of scalars alone it returns NumPy's scalar
OUTER = 32  # the result's size is the product of those of the arguments
DRAWS = 64  # draws random numbers: what it makes is born like any array
LOOKS = 256  # computes what is recorded, for only NumPy does it
BOUND = 128  # the first argument is an object of NumPy's own
ANY_SIZE, OF_SHAPE, OF_RANGE, OF_COUNT, OF_SQUARE, OF_DATA = range(6)  # what creation looks at


def is_bare(x: Any, depth: int) -> bool:
    """Whether a value has no arrays in it, nor anything that NumPy would ask for one."""
    kind = type(x)
    if kind in PLAIN or x is None or kind is str or isinstance(x, (type, *NUMBERS, np.dtype)):
        return True
    if x is Ellipsis:
        return True
    return depth > 0 and kind in (tuple, list) and all(is_bare(part, depth - 1) for part in x)


def take_array(arguments: Arguments, array: Any, bound: int, broadcasts: bool) -> bool:
    """Count an array among the arguments; ``False`` if that is too much."""
    size = size_of(array)
    arguments.arrays = True
    if size > bound:
        return False
    arguments.product *= size
    if isinstance(array, ndarray):
        if arguments.first is None:
            arguments.first = array
        elif broadcasts and not fit(arguments.first, array):
            return False
    return True


def take_argument(arguments: Arguments, x: Any, kind: int, bound: int) -> bool:
    """Add one argument; ``False`` if the call has to go the recorded way."""
    value = x
    if isinstance(x, Base):
        value = settled(x)
        if value is None and kind & WRITES and not arguments.values:
            value = make_constant(x)
        if value is None and kind & LOOKS:
            value = looked_at(x)
        if value is None:
            return False
        arguments.handles = True
        if not take_array(arguments, value, bound, not kind & LIBRARY):
            return False
    elif type(x) is ndarray:
        if not take_array(arguments, x, bound, not kind & LIBRARY):
            return False
    elif not is_bare(x, 0):
        if type(x) not in (tuple, list) or len(x) > limit:
            return False
        if is_bare(x, 3):
            arguments.arrays = arguments.arrays or type(x) is list
        else:
            value = plain_sequence(arguments, x, max(bound, at_most(WRITE_FACTOR)), 3)
            if value is None:
                return False
    arguments.values.append(value)
    return True


HUGE = 1e300


def number_or(x: Any, otherwise: float) -> float:
    """Return a number as a float; else what is given."""
    if type(x) in (int, float) or isinstance(x, np.number):
        try:
            return float(x)
        except Exception:
            return otherwise
    return otherwise


def created_size(size: int, values: tuple[Any, ...], names: dict[str, Any]) -> float:
    """Return the elements of the array that a function creates; a huge number if not known."""
    if size in (ANY_SIZE, OF_DATA):
        return 0
    if not values:
        return HUGE
    first = values[0]
    if size == OF_SHAPE:
        if type(first) not in (tuple, list):
            return number_or(first, HUGE)
        found = 1.0
        for length in first:
            found *= number_or(length, HUGE)
        return found
    if size == OF_SQUARE:
        side = number_or(first, HUGE)
        return side * (number_or(values[1], side) if len(values) > 1 else side)
    if size == OF_COUNT:
        count = number_or(values[2], HUGE) if len(values) > 2 else 50
        return number_or(names["num"], HUGE) if "num" in names else count
    return range_size(values, names)


def range_size(values: tuple[Any, ...], names: dict[str, Any]) -> float:
    """Return the elements of the array that `numpy.arange` creates."""
    if names.keys() - {"dtype"}:
        return HUGE  # start=, stop=, step=
    numbers = [number_or(value, HUGE) for value in values]
    start, stop = numbers[:2] if len(numbers) > 1 else (0.0, numbers[0])
    step = numbers[2] if len(numbers) > 2 else 1.0
    return (stop - start) / step if step else HUGE


OURS = frozenset(("device", "like"))  # names of arguments by which a call is ours


def overlap(x: Any, y: Any) -> bool:
    """Whether the ends of the memory of two arrays overlap."""
    if not isinstance(x, ndarray) or not isinstance(y, ndarray):
        return False
    return np.may_share_memory(x, y)


def shares(value: Any, result: Any) -> bool:
    """Whether an argument, or one in it, is the result or shares memory with it."""
    if type(value) in (list, tuple):
        return any(shares(part, result) for part in value)
    return value is result or (result.base is not None and overlap(value, result))


def is_related(array: Any, arguments: Arguments) -> bool:
    """Whether a result shares its memory with an argument."""
    if not array.size:
        return False  # there are no elements to share
    if array.base is not None and not array.flags.writeable:
        return True
    return any(shares(value, array) for value in arguments.values)


class Related(Exception):
    """A result has to be had the recorded way."""


def give(result: Any, arguments: Arguments) -> Any:
    """Return a result with handles in it; raise `Related` if it shares an argument's memory."""
    if type(result) is ndarray:
        if is_related(result, arguments):
            raise Related
        return own(result)
    if isinstance(result, tuple) or type(result) is list:
        made: dict[int, Any] = {}  # the same array again is one of ours
        for part in result:
            if id(part) not in made:
                made[id(part)] = give(part, arguments)
        parts = [made[id(part)] for part in result]
        kind = type(result)
        return kind(parts) if kind in (tuple, list) else kind(*parts)  # with names
    if is_bare(result, 0):
        return own(result)
    raise Related  # it may hold an argument


def given_view(function: Any, result: Any, arguments: Arguments, args: Any, names: Any) -> Any:
    """Return what is a view of the first argument; ``None`` if it is none."""
    fallback, kind = function[1], function[2]
    if type(result) is not ndarray or not args or not isinstance(args[0], Base):
        return None
    if kind & (WRITES | BOUND):
        return None
    of = arguments.values[0]
    if result is of:
        return args[0]
    if names or result.base is None or not overlap(result, of):
        return None
    rest = args[1:]
    if not all(is_bare(argument, 2) for argument in rest):
        return None
    return take_view(args[0], of, result, False, (fallback, rest))


RECORDED = object()  # what `call_numpy` returns for the recorded way


def taken_arguments(function: Any, args: tuple[Any, ...], names: dict[str, Any]) -> Any:
    """Return the arguments as NumPy takes them; ``None`` for the recorded way."""
    _, _, kind, size, furthest, _ = function
    count = len(args)
    if most < 0 or count + len(names) > MOST_ARGUMENTS or count > furthest:
        return None
    ours = names and not (OURS.isdisjoint(names) and isinstance(names.get("out"), (Base, NoneType)))
    if ours or (
        not births and (size != ANY_SIZE or kind & DRAWS)
    ):
        return None
    bound = limit
    if kind & READS:
        bound = sys.maxsize
    elif kind & LOOKS:
        bound = at_most(LIBRARY_FACTOR)  # NumPy does it anyway
    elif kind & LIBRARY:
        bound = at_most(library_factor)
    arguments = Arguments()
    if kind & BOUND and args:
        arguments.values.append(args[0])
    for x in (*args[len(arguments.values):], *names.values()):
        if not take_argument(arguments, x, kind, bound):
            return None
    if created_size(size, args, names) > limit:
        return None
    of_ours = arguments.handles or (kind & UFUNC and not arguments.arrays) or births
    if (size == ANY_SIZE and not of_ours) or (kind & OUTER and arguments.product > limit):
        return None
    return arguments


def may_be_written(x: Any, array: Any) -> bool:
    """Whether NumPy may write into an argument."""
    if not isinstance(x, Base) or type(array) is not ndarray:
        return False
    return writable(x, array) and root_of(x)._node_ is None


def call_numpy(function: Any, args: tuple[Any, ...], names: dict[str, Any]) -> Any:
    """Call NumPy; return `RECORDED` for the recorded way."""
    arguments = taken_arguments(function, args, names)
    if arguments is None:
        return RECORDED
    target, _, kind, _, _, _ = function
    values = arguments.values
    options = dict(zip(names, values[len(args):], strict=True)) if names else names
    values = values[:len(args)] if names else values
    if kind & METHOD:
        target, values = getattr(values[0], target), values[1:]
    if kind & WRITES:
        at = 1 if kind & BOUND else 0
        if len(args) <= at or not may_be_written(args[at], arguments.values[at]):
            return RECORDED
    out = names.get("out") if names else None
    if out is not None and not may_be_written(out, options["out"]):
        return RECORDED
    result = target(*values, **options)
    if out is not None and result is options["out"]:
        return out
    scalar = not isinstance(result, (ndarray, tuple))
    if kind & READS or (
        scalar and (kind & DRAWS or (kind & UFUNC and not arguments.arrays))
    ):
        return result
    found = given_view(function, result, arguments, args, names)
    if found is not None:
        return found
    if out is not None or kind & WRITES:  # it has been written: not again, by the recorded way
        return own(result.copy()) if type(result) is ndarray else result
    try:
        return give(result, arguments)
    except Related:
        return RECORDED


def at_once_call(self: Any, /, *args: Any, **names: Any) -> Any:
    """Call NumPy's function, or ours."""
    function = parts_of(self)
    result = call_numpy(function, args, names)
    return function[1](*args, **names) if result is RECORDED else result


class AtOnce:
    """A function of NumPy's, called at once where all arguments are small and settled."""

    # target: NumPy's function, or the name of its arrays' method; fallback: ours; kind; size;
    # furthest: arguments by position, one more may be what NumPy writes to; attributes: a dict,
    # other attributes are those of `fallback`.
    __slots__ = ("parts",)

    def __init__(
        self, target: Any, fallback: Any, kind: int = 0, size: int = ANY_SIZE,
        most: int = MOST_ARGUMENTS, attributes: dict[str, Any] | None = None,
    ) -> None:
        set_parts(self, (target, fallback, kind, size, most, attributes or {}))

    __call__ = at_once_call

    def __getattribute__(self, name: str) -> Any:
        parts = parts_of(self)
        if name in parts[5]:
            return parts[5][name]
        if name == "fallback":
            return parts[1]
        if name in OWN_ATTRIBUTES:
            return object.__getattribute__(self, name)
        return getattr(parts[1], name)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None or parts_of(self)[2] & (UFUNC | BOUND) == UFUNC:
            return self
        return MethodType(self, instance)

    def __reduce_ex__(self, protocol: Any) -> Any:
        target, fallback, kind, *_ = parts_of(self)
        if kind & METHOD:
            return getattr, (handle_class, target)
        if type(fallback) is FunctionType:
            return fallback.__name__
        return fallback.__reduce_ex__(protocol)

    def __repr__(self) -> str:
        return repr(parts_of(self)[1])

    def __eq__(self, other: object) -> Any:
        if self is other:
            return True
        fallback = parts_of(other)[1] if type(other) is AtOnce else other
        return parts_of(self)[1] == fallback

    def __hash__(self) -> int:
        return hash(parts_of(self)[1])


_parts: Any = vars(AtOnce)["parts"]
parts_of, set_parts = _parts.__get__, _parts.__set__
OWN_ATTRIBUTES = frozenset(("__class__", "__call__", "__get__", "__reduce_ex__"))


def handle_array_ufunc(handle: Any, ufunc: Any, method: str, /, *args: Any, **names: Any) -> Any:
    """Apply one of NumPy's ufuncs."""
    if not names and 0 < len(args) < 4 and method == "__call__":
        arguments = Arguments()
        first = None
        for x in args:
            value = operand(x)
            if value is None:
                break
            if isinstance(value, ndarray):
                if first is not None and not fit(first, value):
                    break
                first = value
            arguments.values.append(value)
        else:
            result = ufunc(*arguments.values)
            arguments.values.clear()
            try:
                return give(result, arguments)
            except Related:
                pass
    return recorded["__array_ufunc__"](handle, ufunc, method, *args, **names)


# Of a handle, as in the struct of `_core.c`.
FIELDS = (
    "_array_",  # the settled value: an array, or a scalar of NumPy's
    "_node_",  # of an array of its own: the recorded value
    "_base_",  # of a view: the array that owns the value
    "_steps_",  # of a view: how it lies in its base; None until that is asked
    "_seen",  # of a view: what it last read (see arrays/handle.py)
    "_parent_",  # of a view without steps: what it was taken of, ...
    "_how_",  # ... and how: a basic index, or (function, arguments)
    "_views_",  # of an array of its own: weak references to its settled views, ...
    "_parts_",  # weak references to views that are not settled, if there ever were some
    "_room_",  # ... and how many there may be until the dead are left out
    "_depth_",  # of a view without steps: of how many it was taken in turn
    "_by_index_",  # `_how_` is an index
    "_copied_",  # `_node_` is a copy of `_array_`, which is the value
    "__weakref__",
)


class Base:
    """An array's handle: settled, or recorded."""

    __slots__ = FIELDS

    __new__ = new_handle

    _node: Any = property(get_node, set_node, set_node, "The recorded value of what is no view.")
    _recorded: Any = property(get_recorded, None, None, "The same; None while it is settled.")
    _base: Any = property(
        operator.attrgetter("_base_"), set_base, None, "What a view is a view of, else None.")
    _steps: Any = property(get_steps, set_steps, None, "The steps from there to the view.")
    _array: Any = property(get_array, None, None, "The settled value, else None.")
    _viewed: Any = property(get_viewed, None, None, "Whether an array has live views.")
    shape: Any = property(
        get_shape, set_shape, delete_shape,
        "Lengths of the axes.  Assigning reshapes in place where that needs no copy.")
    ndim: Any = property(get_ndim, None, None, "Number of axes.")
    size: Any = property(get_size, None, None, "Number of elements.")
    dtype: Any = property(get_dtype, None, None, "Data type of the elements.")
    T: Any = property(get_transposed, None, None, "View with the axes in reverse order.")

    __add__, __radd__ = binary("add")
    __sub__, __rsub__ = binary("sub")
    __mul__, __rmul__ = binary("mul")
    __truediv__, __rtruediv__ = binary("truediv")
    __floordiv__, __rfloordiv__ = binary("floordiv")
    __mod__, __rmod__ = binary("mod")
    __pow__, __rpow__ = named("__pow__", n_pow), named("__rpow__", r_pow)
    __and__, __rand__ = binary("and")
    __or__, __ror__ = binary("or")
    __xor__, __rxor__ = binary("xor")
    __lshift__, __rlshift__ = binary("lshift")
    __rshift__, __rrshift__ = binary("rshift")
    __matmul__, __rmatmul__ = named("__matmul__", n_matmul), named("__rmatmul__", r_matmul)
    __iadd__, __isub__, __imul__ = update("add"), update("sub"), update("mul")
    __itruediv__, __ifloordiv__ = update("truediv"), update("floordiv")
    __imod__, __ipow__ = update("mod"), update("pow")
    __iand__, __ior__, __ixor__ = update("and"), update("or"), update("xor")
    __ilshift__, __irshift__ = update("lshift"), update("rshift")
    __imatmul__ = update("matmul")
    __neg__, __pos__ = unary("__neg__", operator.neg), unary("__pos__", operator.pos)
    __abs__, __invert__ = unary("__abs__", abs), unary("__invert__", operator.invert)
    __bool__, __float__ = converted("__bool__", bool), converted("__float__", float)
    __int__, __index__ = converted("__int__", int), converted("__index__", operator.index)
    __lt__, __le__, __gt__ = compare("__lt__"), compare("__le__"), compare("__gt__")
    __ge__, __eq__, __ne__ = compare("__ge__"), compare("__eq__"), compare("__ne__")
    __hash__ = named("__hash__", handle_hash)

    __getitem__ = named("__getitem__", handle_getitem)
    __setitem__ = named("__setitem__", handle_setitem)
    __delitem__ = named("__delitem__", handle_delitem)
    __len__, __iter__ = named("__len__", handle_length), named("__iter__", handle_iter)
    __array_ufunc__ = named("__array_ufunc__", handle_array_ufunc)


handle_class: Any = Base  # what is made: the Python class below it

# ---- the module ---------------------------------------------------------------------------------


def install(kind: type, functions: dict[str, Any], how: tuple[Any, ...]) -> None:
    """Say which class arrays have, and what does what cannot be done at once."""
    global handle_class, how_transposed
    if not issubclass(kind, Base) or "__dict__" in dir(kind) or any(
        vars(base).get("__slots__") for base in kind.__mro__[:kind.__mro__.index(Base)]
    ):
        raise TypeError("the class of arrays has slots of its own")
    for name in operator_names:
        for prefix in ("", "r", "i"):
            recorded[f"__{prefix}{name}__"] = functions[f"__{prefix}{name}__"]
    for name in comparison_names:
        recorded[f"__{name}__"] = functions[f"__{name}__"]
    for name in other_names:
        recorded[name] = functions[name]
    for name in callback_names:
        callbacks[name] = functions[name]
    how_transposed = how
    handle_class = kind


def _say_most() -> None:
    global most
    most = -1 if held or not limit else limit


def set_limit(value: int) -> None:
    """Elements up to which a settled array is small."""
    global limit
    limit = min(operator.index(value), sys.maxsize // LIBRARY_FACTOR)
    _say_most()


def hold(change: int) -> None:
    """Change the count of reasons to do nothing at once."""
    global held
    held += change
    _say_most()


def set_births(value: bool) -> None:
    """Whether new arrays are born on the host."""
    global births
    births = value is True


def set_library_factor(value: int) -> None:
    """For how many times larger arrays than others library calls are at once."""
    global library_factor
    if not 1 <= operator.index(value) <= LIBRARY_FACTOR:
        raise ValueError("the factor is 1 to LIBRARY_FACTOR")
    library_factor = operator.index(value)
