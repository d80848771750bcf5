"""Steps of a plan that a library computes: what is known beforehand is worked out once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from tiledarray import config
from tiledarray.devices.device import Device
from tiledarray.devices.storage import Buffer, address_of, memory_of
from tiledarray.execution.shared_calls import shared_out
from tiledarray.fusion.ir import (
    Affine,
    Index,
    Param,
    Value,
    evaluated_terms,
    library_operand,
    storage,
    through_view,
)
from tiledarray.kernels.compile.host import available_cpus_remembered
from tiledarray.ops.movement import strided_view
from tiledarray.ops.op import AxisView, Item, Library

Operand = Callable[[dict[Value, Any], Sequence[Any]], Any]


def library_call(
    value: Value, memory: Mapping[Value, Value], device: Device, free: Collection[Value] = ()
) -> Callable[[dict[Value, Any], Sequence[Any]], Any]:
    """Return what computes a value from buffers and scalars, as a buffer or a tuple of them.

    Parameters
    ----------
    value : Value
    memory : mapping
        The value in whose memory each lies.
    device : Device
    free : collection of Value
        The values in whose memory nobody looks any more once it has been called.
    """
    operands = [_operand(arg, memory) for arg in value.args]
    reference, xp = value.op.reference, device.xp
    own = _own_on_host if device.on_host and xp is np else _own
    if device.on_host and xp is np and all(isinstance(arg, Value) for arg in value.args):
        shapes = [arg.shape for arg in value.args]
        reference = shared_out(
            value.op, reference, shapes, config.threads or available_cpus_remembered())
    base = _overwritten(value, memory, free)
    if base is not None:
        assert isinstance(value.op, Library) and value.op.into is not None
        return _in_place(value, value.op.into, operands, base, device)

    def call(buffers: dict[Value, Any], params: Sequence[Any]) -> Any:
        inputs = [operand(buffers, params) for operand in operands]
        with np.errstate(all="ignore"):
            result = reference(
                xp, *inputs, attrs=value.attrs, shape=value.shape, dtype=value.dtype
            )
        if isinstance(result, tuple):
            return tuple(own(part, inputs, device) for part in result)
        return own(result, inputs, device)

    return call


def _overwritten(
    value: Value, memory: Mapping[Value, Value], free: Collection[Value]
) -> Value | None:
    """Return the value whose memory takes the result; ``None`` if another is needed."""
    if not isinstance(value.op, Library) or value.op.into is None:
        return None
    first, *others = value.args
    if not isinstance(first, Value) or first not in memory:
        return None
    base = memory[first]
    read = [memory.get(storage(library_operand(arg))) for arg in others if isinstance(arg, Value)]
    alone = base in free and base not in read and not isinstance(storage(first).op, Item)
    return base if alone and base.shape == value.shape else None


def _in_place(
    value: Value, into: Callable[..., None], operands: Sequence[Operand], base: Value,
    device: Device,
) -> Callable[[dict[Value, Any], Sequence[Any]], Any]:
    """Return what leaves the result in the memory of the first operand."""
    attrs, xp = value.attrs, device.xp

    def call(buffers: dict[Value, Any], params: Sequence[Any]) -> Any:
        inputs = [operand(buffers, params) for operand in operands]
        with np.errstate(all="ignore"):
            into(xp, *inputs, attrs=attrs)
        return buffers[base].another(value.shape)

    return call


def _operand(arg: Any, memory: Mapping[Value, Value]) -> Operand:
    """Return what finds an operand: a scalar, or a strided view of a stored value."""
    if isinstance(arg, Param):
        number = arg.index
        return lambda buffers, params: params[number]
    if not isinstance(arg, Value):
        return lambda buffers, params: arg or 0
    stored, shape = arg, arg.shape
    index: Index = tuple(Affine(axis) for axis in range(len(shape)))
    while isinstance(stored.op, AxisView):
        index, stored = through_view(stored, index), stored.args[0]
    find = _stored(stored, memory)
    if shape == stored.shape and _is_whole(index, shape):
        return lambda buffers, params: find(buffers)
    axes, steps = tuple(p.axis for p in index), tuple(p.step for p in index)
    if not any(number >= 0 for p in index for number, _ in p.terms):
        starts = tuple(evaluated_terms(p.terms, ()) for p in index)
        return lambda buffers, params: strided_view(find(buffers), axes, steps, starts, shape)
    return lambda buffers, params: strided_view(
        find(buffers), axes, steps, tuple(evaluated_terms(p.terms, params) for p in index), shape)


def _stored(value: Value, memory: Mapping[Value, Value]) -> Callable[[dict[Value, Any]], Any]:
    """Return what finds the array of a value that is in memory."""
    shape = value.shape
    if isinstance(value.op, Item):
        whole, number = value.args[0], value.attrs
        return lambda buffers: buffers[whole][number].array
    base = memory[value]
    if base.shape == shape:
        return lambda buffers: buffers[base].array
    return lambda buffers: buffers[base].array.reshape(shape)


def _is_whole(index: Index, shape: tuple[int, ...]) -> bool:
    return all((p.axis == d and p.step == 1 and not p.terms) or n == 1
               for d, (p, n) in enumerate(zip(index, shape, strict=True)))


def _own(array: Any, inputs: Sequence[Any], device: Device) -> Buffer:
    """Return a buffer of a result, which may be in the memory of an operand."""
    fresh = array.base is None and memory_of(array) not in {
        memory_of(x) for x in inputs if hasattr(x, "base")}
    return device.wrap(array, copy=not fresh, given=True)


def _own_on_host(array: Any, inputs: Sequence[Any], device: Device) -> Buffer:
    if type(array) is np.ndarray and array.base is None:
        flags, dtype = array.flags, array.dtype
        if flags.c_contiguous and dtype.isnative and not dtype.hasobject and not any(
                x is array or getattr(x, "base", None) is array for x in inputs):
            return Buffer(array, address_of(array), device)
    return _own(array, inputs, device)
