"""Steps of a plan that go block by block."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tiledarray.devices.device import Device
from tiledarray.devices.storage import Buffer
from tiledarray.execution.outcomes import Failures, Outcome
from tiledarray.fusion.along import Sizes
from tiledarray.fusion.bodies import Body, Result
from tiledarray.fusion.ir import Value

if TYPE_CHECKING:
    from tiledarray.execution.executable import Executable


def looping(
    value: Value, executables: Mapping[Sizes, Executable], device: Device,
    outcomes: list[Outcome] | None = None,
) -> Callable[..., Any]:
    """Return what computes a loop's results from its operands, as a buffer or a tuple of them.

    Operands are arrays or, where all of one lies in memory, buffers.

    Parameters
    ----------
    value : Value
        What the loop computes; its ``attrs`` are the `Body`.
    executables : mapping
        What is done with a block, by its sizes.
    device : Device
    outcomes : list of Outcome, optional
        Where it is left how problems of a batch went; without it that is waited for.
    """
    body: Body = value.attrs
    if body.program is not None:
        return _problems(value, executables[body.block], device, outcomes)
    blocks = [*body.blocks()]

    def compute(*operands: Any) -> Any:
        scalars = operands[body.inputs:]
        results = [begun(result, device) for result in body.results]
        inputs = [_borrowed(x, device) for x in operands[:body.inputs]]
        leaves = [*results, *inputs]
        for starts, sizes in blocks:
            executable = executables[sizes]
            executable.run({value: leaves[number] for value, number in executable.leaves},
                           (*scalars, *starts))
        return results[0] if len(results) == 1 else tuple(results)

    return compute


def _problems(value: Value, executable: Executable, device: Device,
              outcomes: list[Outcome] | None) -> Callable[..., Any]:
    """Return what computes a loop's results by one kernel, of all problems of a batch.

    Raises `numpy.linalg.LinAlgError` where NumPy does, with the first problem's index, or leaves
    it to ``outcomes``.
    """
    body: Body = value.attrs
    failures = Failures(value, body, device) if body.program.failures else None
    origins = (0,) * len(body.lengths)

    def compute(*operands: Any) -> Any:
        scalars = operands[body.inputs:]
        results = [device.allocate(result.shape, result.dtype) for result in body.results]
        inputs = [_borrowed(x, device) for x in operands[:body.inputs]]
        leaves = [*results, *inputs]
        if failures is None:
            run(leaves, scalars)
        else:
            _, outcome = failures.noting(lambda noted: run([*leaves, noted], scalars))
            if outcomes is None:
                outcome.told()
            else:
                outcomes.append(outcome)
        return results[0] if len(results) == 1 else tuple(results)

    def run(leaves: Sequence[Buffer], scalars: Sequence[Any]) -> None:
        executable.run_one_step(
            {value: leaves[number] for value, number in executable.leaves}, (*scalars, *origins))

    return compute


def _borrowed(operand: Any, device: Device) -> Buffer:
    """An operand's buffer, which it may be already."""
    return operand if isinstance(operand, Buffer) else device.borrow(operand)


def begun(result: Result, device: Device) -> Buffer:
    """Memory for a result; what blocks add their parts to is what that begins with."""
    buffer = device.allocate(result.shape, result.dtype)
    if result.start is not None:
        buffer.array[...] = result.start
    return buffer
