"""The recorded graph: immutable nodes, one op each.

A node is a value that may not have been computed yet.  Its inputs are other nodes and Python
scalars; a scalar is a *run-time parameter* of the plan, never part of its signature, so that
``x -= lr * g`` with a new ``lr`` recompiles nothing.  Everything that does shape the plan (axes,
steps, loop dtypes) is in ``attrs``.

Once a node has been computed it holds a ``buffer`` and forgets its inputs: it has become a leaf.
"""

from __future__ import annotations

import math
import sys
from types import CodeType
from typing import TYPE_CHECKING, Any

from tiledarray.ops.op import AxisView, Op

if TYPE_CHECKING:
    import numpy as np

type_of_scalar = (bool, int, float, complex)
Scalar = bool | int | float | complex
Site = tuple[CodeType, int]

ADDRESS_SPACE = 1 << 47  # bytes that a process of x86-64 or arm64 can address
INTERNED = 1 << 15  # kinds and forms remembered; forgetting one only costs a plan


class Kind:
    """Shape, dtype and device of a value.  Interned: compared by identity.

    ``size`` is the number of elements where it is on the host, at least 1; elsewhere no number is
    larger.  ``element`` is the form of one of its elements, once asked for.
    """

    __slots__ = ("shape", "dtype", "device", "size", "element")

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any], device: Any) -> None:
        self.shape = shape
        self.dtype = dtype
        self.device = device
        self.size = max(1, math.prod(shape)) if device.on_host else sys.maxsize
        self.element: Form | None = None


class Form:
    """Everything about a node but its operands: what a plan depends on.

    Interned, so that signatures hold identities, which are quick to hash and to compare.

    Attributes
    ----------
    op : Op
        What computes the value.  Compared by identity.
    attrs : hashable
        Everything static about this use of the op; its meaning belongs to the op's class.
    kind : Kind
        Of the result.
    arity : int
        Number of inputs.
    call : callable or None
        How it is computed at once, if it has been (see `immediate`).
    """

    __slots__ = ("op", "attrs", "kind", "arity", "call")

    def __init__(self, op: Op, attrs: Any, kind: Kind, arity: int) -> None:
        self.op = op
        self.attrs = attrs
        self.kind = kind
        self.arity = arity
        self.call: Any = None


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
        kind = _kinds.setdefault(key, Kind(tuple(map(int, shape)), dtype, device))
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
        form = _forms.setdefault(key, Form(op, attrs, kind, arity))
    return form


class Node:
    """One recorded operation and, once computed, its value.

    Attributes
    ----------
    form : Form
        Op, attrs and kind of the result; ``op``, ``attrs``, ``shape``, ``dtype`` and ``device``
        are read through it.
    inputs : tuple of Node or scalar
        Operands.  Python scalars are run-time parameters.
    site : (code, instruction offset) or None
        Where in the user's program the op was recorded.
    buffer : Buffer or tuple of Buffer or None
        The computed value: dense, row-major.  ``None`` while pending.
    """

    __slots__ = ("form", "inputs", "site", "buffer", "__weakref__")

    def __init__(
        self, form: Form, inputs: tuple[Any, ...], site: Site | None = None, buffer: Any = None
    ) -> None:
        self.form = form
        self.inputs = inputs
        self.site = site
        self.buffer = buffer

    @property
    def op(self) -> Op:
        """What computes the value."""
        return self.form.op

    @property
    def attrs(self) -> Any:
        """What is static about this use of the op."""
        return self.form.attrs

    @property
    def shape(self) -> tuple[int, ...]:
        """Lengths of the axes."""
        return self.form.kind.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Data type of the elements."""
        return self.form.kind.dtype

    @property
    def device(self) -> Any:
        """Where the value lives."""
        return self.form.kind.device

    @property
    def pending(self) -> bool:
        """Whether the value is still to be computed."""
        return self.buffer is None

    def __repr__(self) -> str:
        state = "pending" if self.buffer is None else "computed"
        return f"<Node {self.op.name} {self.dtype}{list(self.shape)} {state}>"


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
