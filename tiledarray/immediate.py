"""What is computed as soon as it is recorded: a few elements, of values that are there.

To record such an operation, find its plan and run that costs more than the operation.  So where
the operands of a small one have been evaluated and lie on the host, NumPy computes it at once.  A
loop over elements then costs a small multiple of what it costs in NumPy, and neither plans nor
compiles.  Under `jit` everything is recorded.
"""

from __future__ import annotations

import contextvars
import sys
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from tiledarray import config
from tiledarray.graph import Form, Node
from tiledarray.ops.op import AxisView, Elementwise, Source
from tiledarray.recorder import local
from tiledarray.runtime.buffer import HostValue

_references = sys.getrefcount
_Call = Callable[..., np.ndarray]
# With `out=...` (since NumPy 2.3) a ufunc returns an array where it would return a scalar.
_AN_ARRAY: dict[str, Any] = (
    {"out": ...} if np.lib.NumpyVersion(np.__version__) >= "2.3.0" else {})


class _Quiet(threading.local):
    """A context of each thread in which NumPy's arithmetic does not warn: entering is quick."""

    def __init__(self) -> None:
        context = contextvars.Context()
        context.run(np.seterr, all="ignore")
        self.run = context.run


_quiet = _Quiet()


# Operations -------------------------------------------------------------------------------------


def compute(form: Form, inputs: tuple[Any, ...]) -> HostValue | None:
    """Return the value of a small operation; ``None`` if it has to be recorded.

    Parameters
    ----------
    form : Form
        Its result has at most ``config.at_once`` elements, on the host.
    inputs : tuple of Node or scalar
    """
    recorder = local.recorder
    if not recorder.immediate or type(form.op) is Source:  # a constant is better seen by a plan
        return None
    values = []
    for x in inputs:
        if type(x) is Node:
            buffer = x.buffer
            if x.form.kind.size > config.at_once and type(form.op) is not AxisView:
                return None
            if buffer is None:
                buffer = _constant(x)
                if buffer is None:
                    recorder.note_small()
                    return None
            elif type(buffer) is tuple:
                return None
            values.append(buffer.array)
        else:
            values.append(x)
    try:
        array = _quiet.run(form.call or _call_of(form), *values)
    except Exception:
        return None  # once recorded, it is told where someone looks, as for every other size
    return HostValue(array, form.kind.device)


def array_of(node: Node) -> np.ndarray[Any, Any] | None:
    """Return the value of a small node if it is there, or is a constant."""
    buffer = node.buffer if node.buffer is not None else _constant(node)
    return None if buffer is None else buffer.array


def _constant(node: Node) -> Any:
    """Return the value of a small pending constant, which keeps it; ``None`` of another node."""
    form = node.form
    if type(form.op) is not Source or form.kind.size > config.at_once:
        return None
    node.buffer = HostValue(_call_of(form)(*node.inputs), form.kind.device)
    return node.buffer


def _call_of(form: Form) -> _Call:
    """Return what computes the form from arrays and scalars: a new dense array."""
    if form.call is None:
        op: Any = form.op
        if type(op) is AxisView and not form.kind.shape:
            form.call = _element
        elif type(op) is Elementwise and op.ufunc is not None and op.ufunc.nout == 1:
            form.call = _of_ufunc(op.ufunc, form)
        elif getattr(op, "outputs", 1) > 1:
            form.call = _refuse
        else:
            form.call = _of_reference(op.reference, form)
    return form.call


def _refuse(*operands: Any) -> np.ndarray:
    raise NotImplementedError("an operation with several results")


def _element(array: np.ndarray, *starts: int) -> np.ndarray:
    return array[(*starts, ...)].copy()


def _of_ufunc(ufunc: np.ufunc, form: Form) -> _Call:
    """Call the ufunc itself: operands of these dtypes lead it to the form's loop."""
    dtype = form.kind.dtype

    def call(*operands: Any) -> np.ndarray:
        array = ufunc(*operands, **_AN_ARRAY)
        return array if array.dtype is dtype else np.asarray(array, dtype)

    return call


def _of_reference(reference: Callable[..., Any], form: Form) -> _Call:
    attrs, shape, dtype = form.attrs, form.kind.shape, form.kind.dtype

    def call(*operands: Any) -> np.ndarray:
        array = np.asarray(reference(np, *operands, attrs=attrs, shape=shape, dtype=dtype))
        own = array.base is None and not any(array is x for x in operands)
        return array if own and array.flags.c_contiguous else array.copy()

    return call


# Writing ----------------------------------------------------------------------------------------


def own_array(holder: Any) -> np.ndarray[Any, Any] | None:
    """Return the evaluated host array of a handle if nothing else refers to its value."""
    node = holder._node
    if node.buffer is None or node.form.kind.device.kind != "cpu" or not local.recorder.immediate:
        return None
    del node
    if _references_to_value(holder) != _ALONE or not holder._node.buffer.exclusive():
        return None
    array: np.ndarray = holder._node.buffer.array
    return array


def _references_to_value(holder: Any) -> tuple[int, int]:
    return _references(holder._node), _references(holder._node.buffer)


def _references_when_alone() -> tuple[int, int]:
    """Count what a handle alone counts as: it depends on the interpreter."""
    holder = SimpleNamespace(_node=Node(None, (), None, HostValue(np.empty(0), None)))  # type: ignore[arg-type]
    return _references_to_value(holder)


_ALONE = _references_when_alone()
