"""Products of matrices that are part of a launch graph: recorded on a stream, in memory that stays.

cuBLAS's launches are not ours to change, so a call in a graph always reads and writes the same
places.  What it reads of a plan's inputs is copied there first, and what it makes of the outputs is
copied out last, all of it by one launch each.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tiledarray import config
from tiledarray.devices.storage import Buffer
from tiledarray.execution.library_calls import is_product, operand_of
from tiledarray.fusion.ir import Param, Value, library_operand, storage
from tiledarray.fusion.order import touched
from tiledarray.fusion.plan import Allocate, Call, Kernel
from tiledarray.kernels.compile import cuda
from tiledarray.ops.library import is_tf32
from tiledarray.ops.op import Item, Leaf, Strided

if TYPE_CHECKING:
    from tiledarray.devices.device import Device
    from tiledarray.execution.executable import Executable

MOST_BYTES = 1 << 22  # copied in and out at each run; where more is, its calls take longer to run
MOST_COPIES = 64  # of a launch
PARTS = 16  # blocks for each array
THREADS = 256

_SOURCE = f"""
struct Args {{
    const char* from[{MOST_COPIES}];
    char* to[{MOST_COPIES}];
    long long bytes[{MOST_COPIES}];
}};

// Copies several arrays, each by {PARTS} blocks: in lines of 16 bytes, if they lie so.
extern "C" __global__ void __launch_bounds__({THREADS}) ta_copies(const Args a)
{{
    const int which = blockIdx.x / {PARTS};
    const char* const from = a.from[which];
    char* const to = a.to[which];
    const long long bytes = a.bytes[which];
    const long long lines = ((size_t)from | (size_t)to) & 15 ? 0 : bytes / 16;
    const long long first = (long long)(blockIdx.x % {PARTS}) * {THREADS} + threadIdx.x;
    #pragma unroll 1
    for (long long k = first; k < lines; k += {PARTS} * {THREADS})
        ((int4*)to)[k] = ((const int4*)from)[k];
    #pragma unroll 1
    for (long long k = 16 * lines + first; k < bytes; k += {PARTS} * {THREADS})
        to[k] = from[k];
}}
"""


def can_be_captured(executable: Executable) -> bool:
    """Whether a plan is of kernels and of calls that a launch graph can hold, on small arrays."""
    plan = executable.plan
    calls = [step for step in plan.steps if isinstance(step, Call)]
    if executable.device.kind != "cuda" or not all(
            isinstance(step, (Kernel, Allocate, Call)) for step in plan.steps):
        return False
    bases = static_bases(executable)
    updated = {plan.memory[store.access.value] for kernel in plan.kernels
               for part in kernel.parts for store in part.stores}
    return (all(map(_is_steady, calls)) and sum(base.nbytes for base in bases) <= MOST_BYTES
            and not any(isinstance(base.op, Leaf) and base in updated for base in bases))


def _is_steady(call: Call) -> bool:
    """Whether a call launches the same each time, without looking at a value or a scalar."""
    return is_product(call.value) and all(map(_lies_still, call.value.args))


def _lies_still(arg: Value) -> bool:
    """Whether an operand is part of a stored array, always the same."""
    while arg is not library_operand(arg):
        if any(isinstance(start, Param) for start in arg.args[1:]):
            return False
        if isinstance(arg.op, Strided):  # cuBLAS takes no rows that overlap
            return False
        arg = arg.args[0]
    return not isinstance(arg.op, Item)


def static_bases(executable: Executable) -> list[Value]:
    """Inputs and outputs of a plan that calls read or write."""
    plan = executable.plan
    outputs = {plan.memory[storage(value)] for value in plan.outputs
               if storage(value) in plan.memory}
    bases = dict.fromkeys(
        plan.memory[value] for step in plan.steps if isinstance(step, Call)
        for value in touched(step) if value in plan.memory)
    return [base for base in bases if isinstance(base.op, Leaf) or base in outputs]


def captured(call: Call, memory: Mapping[Value, Value], found: Mapping[Value, Buffer],
             device: Device) -> Any:
    """Return the launches of a call in this memory, which stays where it is.

    Raises
    ------
    DeviceError
        If it cannot be recorded.
    """
    value = call.value
    operands = [operand_of(arg, memory) for arg in value.args]
    buffers: dict[Value, Any] = {
        base: _as_array(found[base], base) for base in map(memory.__getitem__, touched(call))}
    backend = device.backend
    with backend.active():
        left, right = (operand(buffers, ()) for operand in operands)
        out = buffers[memory[value]].array
        return backend.recorded_product(value.op.name, left, right, out.reshape(value.shape),
                                        tf32=is_tf32(value.attrs))


class _Array(NamedTuple):
    """A buffer of bytes as an array of a value's shape and dtype; no hold on its memory."""

    array: Any


def _as_array(buffer: Buffer, base: Value) -> _Array:
    array = buffer.array.reshape(-1).view(np.uint8)[:base.nbytes].view(base.dtype)
    return _Array(array.reshape(base.shape))


class Copies:
    """A launch that copies arrays; where they lie may change from run to run."""

    def __init__(self, sizes: Sequence[int], device: Device) -> None:
        assert 0 < len(sizes) <= MOST_COPIES
        binary = cuda.compile_source(_SOURCE, "ta_copies", device.properties.arch,
                                     contract=config.contract is True)
        self.function = device.load(binary, "ta_copies")
        self.blocks, self.threads, self.shared_bytes = PARTS * len(sizes), THREADS, 0
        self._sizes = (*sizes, *[0] * (MOST_COPIES - len(sizes)))

    def packed(self, sources: Sequence[int], targets: Sequence[int]) -> bytes:
        """Return the arguments for these addresses."""
        rest = [0] * (MOST_COPIES - len(sources))
        return struct.pack(f"{3 * MOST_COPIES}q", *sources, *rest, *targets, *rest, *self._sizes)
