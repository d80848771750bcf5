"""Steps of a plan that go block by block."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tiledarray.devices.device import Device
from tiledarray.devices.storage import Buffer
from tiledarray.fusion.loops import Body, Result, Sizes

if TYPE_CHECKING:
    from tiledarray.execution.executable import Executable


def looping(
    body: Body, executables: Mapping[Sizes, Executable], device: Device
) -> Callable[..., Any]:
    """Return what computes a loop's results from its operands, as a buffer or a tuple of them.

    Parameters
    ----------
    body : Body
    executables : mapping
        What is done with a block, by its sizes.
    device : Device
    """
    blocks = [*body.blocks()]

    def compute(*operands: Any) -> Any:
        scalars = operands[body.inputs:]
        results = [begun(result, device) for result in body.results]
        inputs = [device.wrap(array, copy=False, given=True) for array in operands[:body.inputs]]
        leaves = [*results, *inputs]
        for starts, sizes in blocks:
            executable = executables[sizes]
            executable.run({value: leaves[number] for value, number in executable.leaves},
                           (*scalars, *starts))
        return results[0] if len(results) == 1 else tuple(results)

    return compute


def begun(result: Result, device: Device) -> Buffer:
    """Memory for a result; what blocks add their parts to is what that begins with."""
    buffer = device.allocate(result.shape, result.dtype)
    if result.start is not None:
        buffer.array[...] = result.start
    return buffer
