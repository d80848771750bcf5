"""Steps of a plan that a library computes: what is known beforehand is worked out once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextvars import ContextVar, copy_context
from typing import Any, NamedTuple

import numpy as np

from tiledarray.devices.device import Device
from tiledarray.devices.storage import Buffer, address_of, memory_of
from tiledarray.devices.threads import host_threads
from tiledarray.execution.shared_calls import Shared, shared_out
from tiledarray.fusion.ir import (
    ONE,
    Access,
    Affine,
    Index,
    Param,
    Value,
    dense_strides,
    evaluated_terms,
    library_operand,
    storage,
    through_views,
    windows_access,
)
from tiledarray.fusion.ir import strides_of as element_strides
from tiledarray.ops.library import is_tf32
from tiledarray.ops.movement import overlapping_view, strided_view
from tiledarray.ops.op import Item, Library, Strided

PRODUCTS = ("matmul", "dot", "matvec", "vecmat", "vecdot")
FLOATS = ("float16", "bfloat16", "float32", "float64", "complex64", "complex128")

Operand = Callable[[dict[Value, Any], Sequence[Any]], Any]


def _silence() -> tuple[ContextVar[Any], Any] | None:
    """Return the variable in which NumPy keeps what it warns of, and its value where of nothing.

    ``None`` if it is kept elsewhere.
    """
    context = copy_context()
    before = dict(context.items())
    context.run(np.seterr, all="ignore")
    changed = [(variable, value) for variable, value in context.items()
               if before.get(variable) is not value]
    return changed[0] if len(changed) == 1 else None


SILENCE = _silence()


def library_call(
    value: Value, memory: Mapping[Value, Value], device: Device, free: Collection[Value] = (),
    compute: Callable[..., Any] | None = None,
) -> Callable[[dict[Value, Any], Sequence[Any]], Any]:
    """Return what has a library compute a value, as a buffer or a tuple of them.

    It takes buffers by the values that they are of, and scalars.

    Parameters
    ----------
    value : Value
    memory : mapping
        The value in whose memory each lies.
    device : Device
    free : collection of Value
        The values in whose memory nobody looks any more once it has been called.
    compute : callable, optional
        What computes it, if not `computing`.
    """
    operands = [operand_of(arg, memory) for arg in value.args]
    base = overwritten(value, memory, free)
    if base is not None:
        assert isinstance(value.op, Library) and value.op.in_place is not None
        return _in_place(value, value.op.in_place, operands, base, device)
    compute = compute or computing(value, device)

    def call(buffers: dict[Value, Any], params: Sequence[Any]) -> Any:
        inputs = [operand(buffers, params) for operand in operands]
        with np.errstate(all="ignore"):
            return compute(*inputs)

    return call


def loop_call(
    value: Value, memory: Mapping[Value, Value], compute: Callable[..., Any]
) -> Callable[[dict[Value, Any], Sequence[Any]], Any]:
    """Return what computes a loop's value from buffers and scalars as `library_call` does.

    ``compute`` is given the buffers of operands that are all of what lies in memory.
    """
    operands = [_whole_of(arg, memory) or operand_of(arg, memory) for arg in value.args]

    def call(buffers: dict[Value, Any], params: Sequence[Any]) -> Any:
        return compute(*[operand(buffers, params) for operand in operands])

    return call


def _whole_of(arg: Any, memory: Mapping[Value, Value]) -> Operand | None:
    """Return what finds the buffer of an operand that is all of what lies in memory."""
    if not isinstance(arg, Value):
        return None
    base, shape, index, *_ = stored(arg, memory)
    if index is not None or base.shape != shape:
        return None
    return lambda buffers, params: buffers[base]


def computing(value: Value, device: Device) -> Callable[..., Any]:
    """Return what computes a value from its operands, as a buffer or a tuple of them.

    It is for the caller to silence NumPy's warnings.
    """
    reference, xp = value.op.reference, device.xp
    attrs, shape, dtype = value.attrs, value.shape, value.dtype
    own = _own_on_host if device.on_host and xp is np else _own
    shared = _shared(value) if device.on_host and xp is np else None
    name, tf32 = value.op.name, is_product(value) and is_tf32(attrs)
    ours = device.kind == "cuda" and is_product(value) and (tf32 or (
        name == "matmul" and len(shape) > 2 <= min(len(arg.shape) for arg in value.args)))
    if shared is not None:
        return _computing_in_parts(shared, value, device)

    def compute(*inputs: Any) -> Any:
        if ours:
            out = device.allocate(shape, dtype)
            if device.backend.product(name, *inputs, out.array, tf32=tf32):
                return out
        result = reference(xp, *inputs, attrs=attrs, shape=shape, dtype=dtype)
        if isinstance(result, tuple):
            return tuple(own(part, inputs, device) for part in result)
        return own(result, inputs, device)

    return compute


def is_product(value: Value) -> bool:
    """Whether a call multiplies matrices or vectors that cuBLAS knows, none of them empty."""
    return (isinstance(value.op, Library) and value.op.name in PRODUCTS
            and value.dtype.name in FLOATS and value.size > 0 and all(
                isinstance(arg, Value) and arg.dtype == value.dtype and arg.size > 0
                for arg in value.args))


def _computing_in_parts(shared: Shared, value: Value, device: Device) -> Callable[..., Any]:
    """Return what has several threads compute a value, in memory of the pool."""
    attrs, shape, dtype = value.attrs, value.shape, value.dtype

    def compute(*inputs: Any) -> Any:
        made: dict[int, Buffer] = {}

        def memory(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
            buffer = device.allocate(shape, dtype)
            array: np.ndarray = buffer.array
            made[id(array)] = buffer
            return array

        def own(array: Any) -> Buffer:
            found = made.get(id(array))
            return _own_on_host(array, inputs, device) if found is None else found

        result = shared(memory, *inputs, attrs=attrs, shape=shape, dtype=dtype)
        return tuple(map(own, result)) if isinstance(result, tuple) else own(result)

    return compute


def _shared(value: Value) -> Shared | None:
    threads = host_threads()
    return shared_out(value.op, value.attrs, value.args, threads)


def is_shared(value: Value) -> bool:
    """Whether several threads compute a value on the host."""
    return _shared(value) is not None


class Stored(NamedTuple):
    """An operand in memory: all of what is stored there, or a strided view of it.

    Attributes
    ----------
    base : Value
        In whose memory it lies.
    stored : tuple of int
        The shape that this memory has here.
    places : tuple of Affine or None
        Where the elements are, for each axis of that; ``None`` if it is all of it.
    shape : tuple of int
    strides : tuple of int or None
        Element strides of the places, if not those of what is stored: of windows.
    """

    base: Value
    stored: tuple[int, ...]
    places: Index | None
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None = None


def stored(arg: Value, memory: Mapping[Value, Value]) -> Stored:
    """Return where an operand lies."""
    value, shape = arg, arg.shape
    index: Index = tuple(Affine(axis) for axis in range(len(shape)))
    value, index = through_views(value, index)
    if isinstance(value.op, Strided):
        access = windows_access(value, index)
        inner = access.value
        return Stored(memory[inner], inner.shape, access.index, shape, access.strides)
    whole = shape == value.shape and _is_whole(index, shape)
    return Stored(memory[value], value.shape, None if whole else index, shape)


def strides_of(operand: Stored) -> tuple[list[int], int, list[tuple[int, int]]]:
    """Return an operand's strides in bytes, and where it begins: bytes, and terms to add."""
    width = operand.base.dtype.itemsize
    strides, total, terms = [0] * len(operand.shape), 0, Counter[int]()
    index = operand.places
    if index is None:  # not of no axes, which others may have been added to
        index = tuple(Affine(axis) for axis in range(len(operand.shape)))
    along = dense_strides(operand.stored) if operand.strides is None else operand.strides
    for place, step in zip(index, along, strict=True):
        stride = step * width
        if place.axis >= 0:
            strides[place.axis] += place.step * stride
        for number, coefficient in place.terms:
            if number == ONE:
                total += stride * coefficient
            else:
                terms[number] += stride * coefficient
    return strides, total, [*terms.items()]


def overwritten(
    value: Value, memory: Mapping[Value, Value], free: Collection[Value]
) -> Value | None:
    """Return the value whose memory takes the result; ``None`` if another is needed."""
    if not isinstance(value.op, Library) or value.op.in_place is None:
        return None
    first, *others = value.args
    if not isinstance(first, Value) or first not in memory:
        return None
    base = memory[first]
    read = [memory.get(storage(library_operand(arg))) for arg in others if isinstance(arg, Value)]
    alone = base in free and base not in read and not isinstance(storage(first).op, Item)
    return base if alone and base.shape == value.shape else None


def _in_place(
    value: Value, in_place: Callable[..., None], operands: Sequence[Operand], base: Value,
    device: Device,
) -> Callable[[dict[Value, Any], Sequence[Any]], Any]:
    """Return what leaves the result in the memory of the first operand."""
    attrs, xp = value.attrs, device.xp

    def call(buffers: dict[Value, Any], params: Sequence[Any]) -> Any:
        inputs = [operand(buffers, params) for operand in operands]
        with np.errstate(all="ignore"):
            in_place(xp, *inputs, attrs=attrs)
        return buffers[base].another(value.shape)

    return call


def operand_of(arg: Any, memory: Mapping[Value, Value]) -> Operand:
    """Return what finds an operand: a scalar, or a strided view of a stored value."""
    if isinstance(arg, Param):
        number = arg.index
        return lambda buffers, params: params[number]
    if not isinstance(arg, Value):
        return lambda buffers, params: arg or 0
    base, stored_shape, index, shape, strides = stored(arg, memory)
    find = _finding(base, stored_shape)
    if index is None:
        return lambda buffers, params: find(buffers)
    if strides is not None:
        line = _finding(base, (base.size,))
        along, offset = element_strides(Access(base, index, strides), len(shape))
        terms = (tuple(enumerate(along)),)
        return lambda buffers, params: overlapping_view(
            line(buffers), terms, (evaluated_terms(offset, params),), shape)
    axes, steps = tuple(p.axis for p in index), tuple(p.step for p in index)
    if not any(number >= 0 for p in index for number, _ in p.terms):
        starts = tuple(evaluated_terms(p.terms, ()) for p in index)
        return lambda buffers, params: strided_view(find(buffers), axes, steps, starts, shape)
    return lambda buffers, params: strided_view(
        find(buffers), axes, steps, tuple(evaluated_terms(p.terms, params) for p in index), shape)


def _finding(base: Value, shape: tuple[int, ...]) -> Callable[[dict[Value, Any]], Any]:
    """Return what finds the array of a value that is in memory."""
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
