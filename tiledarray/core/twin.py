"""The core in Python: handles of arrays, and what NumPy does at once.

This is the extension written again: the two do the same, what is changed here is changed there.  It
takes the place of the extension where that was not built.  Its parts are `twin_state.py` (the two
states of a handle: `state.c`), `twin_operators.py`, `twin_sequences.py`, `twin_calls.py`,
`twin_at_once.py` and `twin_block.py` (files of the same names in C), and `twin_index.py`
(`index.c`, `assign.c`, `elements.c`); here is the class of handles (`handle.c`), and what Python
tells the core.

A handle is *settled* while its value is a NumPy array on the host (``_array_``): its views hold
NumPy's own views of it, and what is small and settled NumPy computes at once.  Otherwise it is
*recorded*: ``_node_`` says how its value is to be computed, or has it.  A small settled value goes
into the graph as a copy (``_node_``, with ``_copied_`` set), which the next write drops; a large
one by reference: then both have the same memory, and `writable` decides whether it may be written.

Seven things differ from the extension.  NumPy's floating-point warnings of what is computed at once
name the line here that called NumPy, not the user's: NumPy asks for the Python frame that called
it, and nothing says cheaply that it has warned.  Tracebacks have one frame more.  A root does not
tell its views that its value is another: they look, and hold the memory that it had until they are
used again or die.  Methods of arrays are functions of Python's own, which it binds soonest.  The
class is called for each handle, so that `TiledArray()` is refused only with arguments.  A ufunc
that writes into an output goes by way of Python.  And a handler that raises where a `Block` begins
to end leaves that as it is inside.

Signal handlers and other threads run where CPython lets them: where a function is entered, has been
called, or jumps back.  So fields that are assigned in one statement change together, a check and a
write right after it are one, and everywhere else each state in between is right.  A part that is
written recorded is written upon the value that it was computed from (`twin_record.rebind`), or upon
the next one: what threads or handlers write into other parts meanwhile is kept.  As in the
extension that is not so where the whole value is computed anew, which is no single step in NumPy
either: ``x += y``, ``x[[1, 2]] = y``.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable
from typing import Any

from numpy import ndarray

from tiledarray.core import twin_state as state
from tiledarray.core.twin_at_once import (
    AtOnce,
    empty,
    empty_like,
    handle_array_ufunc,
    zeros_like,
)
from tiledarray.core.twin_block import Block
from tiledarray.core.twin_calls import (
    ALIKE,
    ANY_SIZE,
    BOUND,
    COSTLY,
    DRAWS,
    LIBRARY,
    LOOKS,
    METHOD,
    OF_COUNT,
    OF_DATA,
    OF_RANGE,
    OF_SHAPE,
    OF_SQUARE,
    OUTER,
    PRODUCT,
    READS,
    RECORDS,
    SHARED,
    STATIC,
    UFUNC,
    VIEWS,
    WRITES,
)
from tiledarray.core.twin_index import (
    handle_delitem,
    handle_getitem,
    handle_iter,
    handle_length,
    handle_setitem,
)
from tiledarray.core.twin_loans import is_lent, lend, move_below
from tiledarray.core.twin_operators import (
    binary,
    compare,
    converted,
    handle_hash,
    n_matmul,
    n_pow,
    named,
    r_matmul,
    r_pow,
    unary,
    update,
)
from tiledarray.core.twin_state import (
    AT_ONCE,
    FIELDS,
    LIBRARY_FACTOR,
    SMALL_ELEMENTS,
    callbacks,
    delete_dtype,
    delete_shape,
    get_dtype,
    get_ndim,
    get_node,
    get_recorded,
    get_shape,
    get_size,
    get_steps,
    get_transposed,
    get_viewed,
    recorded,
    say_most,
    set_base,
    set_dtype,
    set_node,
    set_shape,
    set_steps,
    settled,
)

__all__ = [
    "AtOnce", "Base", "Block", "AT_ONCE", "hold", "install", "set_births", "set_beside_gpu",
    "set_least", "set_limit", "set_most_with_history", "set_pace", "pace", "paced", "small",
    "wait_for_place", "METHOD", "WRITES", "READS", "LIBRARY", "UFUNC", "OUTER", "DRAWS", "LOOKS",
    "BOUND", "RECORDS", "PRODUCT", "SHARED", "COSTLY", "ALIKE", "VIEWS", "STATIC", "ANY_SIZE",
    "OF_SHAPE", "OF_RANGE", "OF_COUNT", "OF_SQUARE", "OF_DATA", "is_lent", "lend", "move_below",
    "empty", "empty_like", "zeros_like",
]

# What Python gives `install`.
operator_names = (
    "add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor", "lshift",
    "rshift", "matmul")
comparison_names = ("lt", "le", "eq", "ne", "gt", "ge")
other_names = (
    "__neg__", "__pos__", "__abs__", "__invert__", "__float__", "__int__", "__index__", "__bool__",
    "__hash__", "__len__", "__iter__", "__getitem__", "__setitem__", "assign_shape",
    "assign_dtype", "shape", "ndim", "size", "dtype", "T", "__array_ufunc__",
    "buffer")
callback_names = (
    "leaf", "value", "made", "look", "steps_of", "view_on", "hold_of", "alone", "is_outside",
    "resolve", "copied", "give")


def get_class(handle: Any) -> type:
    """Return what `isinstance` asks: the class, but NumPy's for some packages."""
    package, _, _ = sys._getframe(1).f_globals.get("__name__", "").partition(".")
    return ndarray if package in state.as_numpys else type(handle)


class Base:
    """An array's handle: settled, or recorded."""

    __slots__ = FIELDS

    __class__: Any = property(
        get_class, None, None, "The class; NumPy's, for packages that ask for that.")
    _node: Any = property(get_node, set_node, set_node, "The recorded value of what is no view.")
    _recorded: Any = property(get_recorded, None, None, "The same; None while it is settled.")
    _base: Any = property(
        operator.attrgetter("_base_"), set_base, None, "What a view is a view of, else None.")
    _steps: Any = property(get_steps, set_steps, None, "The steps from there to the view.")
    _array: Any = property(settled, None, None, "The settled value, else None.")
    _viewed: Any = property(get_viewed, None, None, "Whether an array has live views.")
    shape: Any = property(
        get_shape, set_shape, delete_shape,
        "Lengths of the axes.  Assigning reshapes in place where that needs no copy.")
    ndim: Any = property(get_ndim, None, None, "Number of axes.")
    size: Any = property(get_size, None, None, "Number of elements.")
    dtype: Any = property(
        get_dtype, set_dtype, delete_dtype,
        "Data type of the elements.  Assigning reads the same memory as another one.")
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

    def __buffer__(self, flags: int, /) -> memoryview:
        """Return the memory of the elements, of which Python asks from 3.12 on."""
        return memoryview(recorded["buffer"](self, flags))


state.base_class = state.handle_class = Base

# ---- the module ---------------------------------------------------------------------------------


def install(kind: type, functions: dict[str, Any], how: dict[str, Any]) -> None:
    """Say which class arrays have, and what does what cannot be done at once."""
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
    state.how_transposed, state.as_numpys = how["transposed"], how["as_numpys"]
    state.handle_class = kind
    for name, function in vars(kind).items():
        if hasattr(function, "fallback"):
            function.__module__, function.__qualname__ = kind.__module__, f"{kind.__name__}.{name}"


def set_limit(value: int) -> None:
    """Elements up to which a settled array is small."""
    state.at_once = min(operator.index(value), sys.maxsize // LIBRARY_FACTOR)
    _say_limit()


def _say_limit() -> None:
    beside_gpu = state.library_factor == 1
    state.limit = min(state.at_once, SMALL_ELEMENTS) if beside_gpu else state.at_once
    say_most()


def set_least(value: int) -> None:
    """Elements down to which the limit falls: it does not here."""
    operator.index(value)


def set_pace(turn: Callable[[], None], raises: Callable[[], bool], errors: Any) -> None:
    """Say what weighs how fast arrays go: nobody does here."""


def pace(level: int, due: float, within: float) -> None:
    """Say how far the limit has fallen: it never does here."""


def wait_for_place(within: float) -> None:
    """Ask when recording can begin where it began before: it never begins here."""


def paced() -> float:
    """Elements of middle-sized results until now: they are not counted."""
    return 0.0


def small() -> int:
    """Elements up to which a node's value is computed at once now."""
    return state.of_nodes()


def set_most_with_history(value: int) -> None:
    """Elements up to which what has a history is computed at once."""
    state.most_with_history = operator.index(value)


def hold(change: int) -> None:
    """Change the count of reasons to do nothing at once."""
    state.held += change
    try:
        say_most()
    except BaseException:  # a signal handler's: undone, as if it had come before
        state.held -= change
        say_most()
        raise


def set_births(value: bool) -> None:
    """Whether new arrays are born on the host."""
    state.births = value is True


def set_beside_gpu(value: bool) -> None:
    """Whether a GPU does what is large: then less is done at once."""
    state.library_factor = 1 if value is True else LIBRARY_FACTOR
    _say_limit()
