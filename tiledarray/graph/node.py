"""The recorded graph: immutable nodes, one op each.

A node is a value that may not have been computed yet.  Its inputs are other nodes and Python
scalars; a scalar is a *run-time parameter* of the plan, never part of its signature, so that
``x -= lr * g`` with a new ``lr`` recompiles nothing.  Everything that does shape the plan (axes,
steps, loop dtypes) is in ``attrs``.

Once a node has been computed it holds a ``buffer`` and forgets its inputs: it has become a leaf.

The types are the core's.  A `Kind` has the ``shape``, ``dtype`` and ``device`` of a value; ``size``
is the number of elements where it is on the host, at least 1; elsewhere no number is larger.

A `Form` is everything about a node but its operands, what a plan depends on: ``op`` (compared by
identity) computes the value, ``attrs`` is everything static about this use of it, whose meaning
belongs to the op's class, ``kind`` is the result's and ``arity`` the number of operands.  ``call``
computes it at once, once that was asked for.

A `Node` has a ``form``, through which ``op``, ``attrs``, ``shape``, ``dtype`` and ``device`` are
read; its operands are ``inputs``, ``site`` is where in the user's program it was recorded (the code
and an offset in it, or ``None``), and ``buffer`` is the computed value, dense and row-major: a
`Buffer`, a tuple of them, or ``None`` while it is pending.
"""

from __future__ import annotations

import math
import sys
from types import CodeType
from typing import TYPE_CHECKING, Any, TypeVar

from tiledarray.core import CONSTANT, MOVES, SMOOTH, UPDATES, Form, Kind, Node
from tiledarray.graph.dtypes import canonical
from tiledarray.ops.movement import AN_ARRAY, full, leaf
from tiledarray.ops.op import AxisView, Library, Op, Source, Update

if TYPE_CHECKING:
    import numpy as np

__all__ = ["Form", "Kind", "Node", "Scalar", "Site", "form_of", "kind_of", "location",
           "told_where"]

_Error = TypeVar("_Error", bound=BaseException)

type_of_scalar = (bool, int, float, complex)
Scalar = bool | int | float | complex
Site = tuple[CodeType, int]

ADDRESS_SPACE = 1 << 47  # bytes that a process of x86-64 or arm64 can address
INTERNED = 1 << 15  # kinds and forms remembered; forgetting one only costs a plan


_kinds: dict[Any, Kind] = {}
_forms: dict[Any, Form] = {}


def _check_size(shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    """Raise where NumPy does: an array that no address space holds.  Smaller ones may be lazy."""
    if max(shape, default=0) > sys.maxsize:
        raise ValueError("Maximum allowed dimension exceeded")
    if math.prod(filter(None, shape)) * dtype.itemsize > sys.maxsize:
        raise ValueError("array is too big; `arr.size * arr.dtype.itemsize` is larger than the "
                         "maximum possible size.")


def _check_memory(kind: Kind) -> None:
    """Raise where NumPy does: an array of more bytes than a process can have."""
    nbytes = math.prod(kind.shape) * kind.dtype.itemsize
    if nbytes > ADDRESS_SPACE:
        raise MemoryError(
            f"Unable to allocate {_size_text(nbytes)} for an array with shape {kind.shape} and "
            f"data type {kind.dtype}"
        )


def _size_text(nbytes: int) -> str:
    """Return a size as NumPy's message writes it: three digits and a unit."""
    power = (nbytes.bit_length() - 1) // 10
    number = nbytes / (1 << 10 * power)
    if round(number) == 1024:
        power, number = power + 1, number / 1024
    text = f"{number:#.3g}" if round(number) < 1000 else f"{number:#.0f}"
    return f"{text} {('bytes', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB', 'EiB')[power]}"


def kind_of(shape: tuple[int, ...], dtype: np.dtype[Any], device: Any) -> Kind:
    """Return the kind of these parts."""
    key = (shape, dtype, dtype.num, device)  # the number, for NumPy has equal dtypes of two names
    kind = _kinds.get(key)
    if kind is None:
        _check_size(shape, dtype)
        if len(_kinds) >= INTERNED:
            _kinds.clear()
        size = max(1, math.prod(shape)) if device.on_host else sys.maxsize
        kind = _kinds.setdefault(
            key, Kind(tuple(map(int, shape)), canonical(dtype), device, int(size)))
    return kind


def form_of(op: Op, attrs: Any, kind: Kind, arity: int) -> Form:
    """Return the form of these parts.

    Raises
    ------
    MemoryError
        NumPy's, for an array that no process can hold.  What is smaller, but too large for this
        machine, may still be recorded: it need not come to lie in memory.
    """
    key = (op, attrs, kind, arity)
    form = _forms.get(key)
    if form is None:
        if not isinstance(op, AxisView):  # a view takes no memory: NumPy broadcasts to any shape
            _check_memory(kind)
        if len(_forms) >= INTERNED:
            _forms.clear()
        form = _forms.setdefault(key, Form(op, attrs, kind, arity, _roles_of(op, kind)))
    return form


def is_scalar(node: Node) -> bool:
    """Whether a value without axes is what NumPy would have a scalar for."""
    form = node.form
    return not form.kind.shape and form.op is not full and form.attrs is not AN_ARRAY


def leaf_form(node: Node, *, scalar: bool | None = None) -> Form:
    """Return the form of the value of a node; without axes it is a scalar where the node was.

    Unless it is said: a view of an array without axes has a node like a scalar's.
    """
    if scalar is None:
        scalar = is_scalar(node)
    attrs = None if node.form.kind.shape or scalar else AN_ARRAY
    return form_of(leaf, attrs, node.form.kind, 0)


def _roles_of(op: Op, kind: Kind) -> int:
    """What the core looks at in place of the op."""
    several = isinstance(op, Library) and op.outputs > 1  # of which some may have derivatives
    return (
        (MOVES if op.moves else 0) | (UPDATES if type(op) is Update else 0)
        | (CONSTANT if type(op) is Source else 0)
        | (SMOOTH if several or kind.dtype.kind in "fc" or kind.dtype.name == "bfloat16" else 0)
    )


def location(site: Site | None) -> tuple[str, int] | None:
    """File name and line of a recording site."""
    if site is None:
        return None
    code, offset = site
    line = code.co_firstlineno
    for start, end, number in code.co_lines():
        if start <= offset < end and number is not None:
            line = number
    return code.co_filename, line


def told_where(error: _Error, node: Node) -> _Error:
    """The error, with a note of the line that recorded the node."""
    place = location(node.site)
    if place is not None:
        error.add_note(f"while computing {node.op.name}, recorded at {place[0]}:{place[1]}")
    return error
