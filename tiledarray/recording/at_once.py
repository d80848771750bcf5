"""What is computed as soon as it is recorded: a few elements, of values that are there.

To record such an operation, find its plan and run that costs more than the operation.  So where
the operands of a small one have been evaluated and lie on the host, NumPy computes it at once.  A
loop over elements then costs a few Python calls an operation, and neither plans nor compiles.
Under `jit` everything is recorded.
"""

from __future__ import annotations

import contextvars
import math
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

import numpy as np

from tiledarray import config, core
from tiledarray.devices.storage import HostValue
from tiledarray.errors import raised_outside
from tiledarray.execution.placement import bring_home
from tiledarray.graph.node import Form, Node, form_of, kind_of
from tiledarray.ops.movement import leaf
from tiledarray.ops.op import AxisView, Elementwise, Repeat, Source
from tiledarray.recording import segments
from tiledarray.recording.stretch import local, look

MANY_PARTS = 32
PART_OF_MANY = 1 << 12  # elements; longer parts are stored by the kernels that compute them
ALL_OF_FEW = 1 << 10  # elements, of fewer parts than that

_INTS = {int}
_Call = Callable[..., np.ndarray]
# With `out=...` a ufunc returns an array where it would return a scalar.
_KNOWS_OUT = np.lib.NumpyVersion(np.__version__) >= "2.3.0"


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
        Its result has at most ``core.small()`` elements, on the host.
    inputs : tuple of Node or scalar
    """
    recorder = local.recorder
    # A constant is better seen by a plan, and a loop over time is run by one.
    if not recorder.immediate or type(form.op) is Source or type(form.op) is Repeat:
        return None
    limit = sys.maxsize if type(form.op) is AxisView else core.small()
    weak = False
    values = []
    for x in inputs:
        if type(x) is Node:
            buffer = x.buffer
            if x.form.kind.size > limit:
                return None
            if buffer is None:
                buffer = _found_again(x)
                if buffer is None:
                    recorder.note_small()
                    return None
            elif type(buffer) is tuple or not buffer.device.on_host:
                return None
            values.append(buffer.array)
        else:
            weak = True
            values.append(x)
    if weak and type(form.op) is Elementwise:  # the scalar is the loop's, not the other operand's
        values = [
            x.astype(loop) if type(x) is np.ndarray and x.dtype is not loop else x
            for x, loop in zip(values, form.attrs, strict=True)
        ]
    try:
        array = _quiet.run(form.call or _call_of(form), *values)
    except (ArithmeticError, NotImplementedError, TypeError, ValueError) as error:
        if raised_outside(error):
            raise
        return None  # once recorded, it is told where someone looks, as for every other size
    if config.grad_memory is not None:
        _note(form, inputs, array)
    return HostValue(array, form.kind.device)


def _found_again(node: Node) -> Any:
    """Return the value of a pending node that is a constant, or was let go; ``None`` of another."""
    if node.keeps and config.grad_memory is not None:
        return segments.value_again(node)
    return constant(node)


def _note(form: Form, inputs: tuple[Any, ...], array: np.ndarray[Any, Any]) -> None:
    if any(type(x) is Node and x.keeps for x in inputs):
        segments.note_small(form, array.nbytes, compute)


def array_of(node: Node) -> np.ndarray[Any, Any] | None:
    """Return the value of a small node if it is there on the host, or is a constant."""
    buffer = node.buffer if node.buffer is not None else constant(node)
    return buffer.array if buffer is not None and buffer.device.on_host else None


def constant(node: Node) -> Any:
    """Return the value of a small pending constant, which keeps it; ``None`` of another node."""
    form = node.form
    if type(form.op) is not Source or form.kind.size > core.small():
        return None
    found = HostValue(_call_of(form)(*node.inputs), form.kind.device)
    if node.buffer is None:  # else another thread was as quick: there is one value
        node.buffer = found
    return node.buffer


def _call_of(form: Form) -> _Call:
    """Return what computes the form from arrays and scalars: a new dense array."""
    if form.call is None:
        op: Any = form.op
        if type(op) is AxisView and not form.kind.shape:
            form.call = _element
        elif type(op) is Elementwise and _loop_gives(op.ufunc, form):
            form.call = _of_ufunc(op.ufunc)
        elif getattr(op, "outputs", 1) > 1:
            form.call = _refuse
        else:
            form.call = _of_reference(op.reference, form)
    return form.call


def made(node: Node) -> np.ndarray:
    """Return the value of a pending constant as a new array."""
    array: np.ndarray = _quiet.run(_call_of(node.form), *node.inputs)
    return array


def _refuse(*operands: Any) -> np.ndarray:
    raise NotImplementedError("an operation with several results")


def _element(array: Any, *starts: int) -> np.ndarray:
    element: np.ndarray = array[(*starts, ...)].copy()
    return element


def _loop_gives(ufunc: Any, form: Form) -> bool:
    """Whether the ufunc's loop returns the form's result."""
    return (
        ufunc is not None and ufunc.nout == 1
        and ufunc.resolve_dtypes((*form.attrs, None))[-1] is form.kind.dtype
    )


def _of_ufunc(ufunc: Any) -> _Call:
    """Call the ufunc itself: operands of these dtypes lead it to the form's loop."""
    return partial(ufunc, out=...) if _KNOWS_OUT else lambda *operands: np.asarray(ufunc(*operands))


def _of_reference(reference: Callable[..., Any], form: Form) -> _Call:
    attrs, shape, dtype = form.attrs, form.kind.shape, form.kind.dtype

    def call(*operands: Any) -> np.ndarray:
        array = np.asarray(reference(np, *operands, attrs=attrs, shape=shape, dtype=dtype))
        own = array.base is None and not any(array is x for x in operands)
        return array if own and array.flags.c_contiguous else array.copy()

    return call


# Joining ----------------------------------------------------------------------------------------


def joined(parts: Sequence[Node], join: Callable[[Any, list[Any]], Any], dtype: Any) -> Node | None:
    """Join small arrays at once; ``None`` where a kernel had better store them.

    Many parts are evaluated first: an operation for each would take longer to plan than all to
    compute.  A few are joined if they have been.

    Parameters
    ----------
    parts : sequence of Node
        On one device.
    join : callable
        Makes an array of the module ``xp`` and the parts' arrays.
    dtype : numpy.dtype
        Of the result.
    """
    sizes = [math.prod(part.form.kind.shape) for part in parts]
    most = PART_OF_MANY if len(parts) >= MANY_PARTS else ALL_OF_FEW // len(parts)
    if max(sizes) > most or not config.at_once or not local.recorder.immediate or any(
            part.keeps for part in parts):
        return None
    if len(parts) >= MANY_PARTS:
        look([part for part in parts if part.buffer is None])
    elif any(part.form.kind.size == sys.maxsize or array_of(part) is None for part in parts):
        return None
    device = parts[0].form.kind.device
    if device.kind == "auto":
        for part in parts:
            bring_home(part)
    arrays = [part.buffer.array for part in parts]
    with device.active() if device.kind == "cuda" else nullcontext():
        array = _quiet.run(join, device.xp, arrays)
        buffer = device.wrap(array.astype(dtype, copy=False), copy=False, given=True)
    return Node(form_of(leaf, None, kind_of(array.shape, dtype, device), 0), (), None, buffer)
