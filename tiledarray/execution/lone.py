"""A plan that is one loop with one kernel in it: that kernel's launch, with nothing around it.

Problems of a batch on chip, rows of a product by tiles: to a plan such is a library call, which
finds its operands and what it computes them by anew at each run.  Here all that stays is written
once, and a run writes the addresses of inputs and outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tiledarray.core import run_program
from tiledarray.devices.storage import Buffer
from tiledarray.execution.instructions import Lone, program_of_launch
from tiledarray.execution.library_calls import operand_of, stored
from tiledarray.execution.outcomes import Failures
from tiledarray.execution.spans import counters
from tiledarray.fusion.ir import Value, evaluated_terms
from tiledarray.fusion.plan import Call, Kernel
from tiledarray.ops.op import Leaf, Loop

if TYPE_CHECKING:
    from tiledarray.execution.executable import Executable


def lone_launch(executable: Executable, params: Sequence[Any]) -> Callable[[Any], Any] | None:
    """Return what runs a compiled plan on its leaves' buffers by one launch; else ``None``.

    It is for one thread at a time.
    """
    if len(executable.plan.steps) != 1:
        return None
    (step,) = executable.plan.steps
    if not isinstance(step, Call) or not isinstance(step.value.op, Loop) or (
            step.value.attrs.program is None):
        return None
    value: Value = step.value
    lone = _found(executable, value, params)
    if lone is None:
        return None
    device, arguments = executable.device, lone.arguments()
    program = program_of_launch(executable, lone)
    failures = Failures(value, value.attrs, device) if lone.notes else None
    leaf_values = [leaf for leaf, _ in executable.leaves]

    def by_python(buffers: list[Buffer]) -> list[Any]:
        made = [device.allocate(shape, dtype) for shape, dtype in lone.results]
        given = [*buffers, *made]
        for place, number, offset in lone.places:
            arguments.slots[place] = given[number].pointer + offset
        lone.launch.start(arguments)
        counters["library calls"] += 1
        return executable.outputs({
            **dict(zip(leaf_values, buffers, strict=False)),
            value: made[0] if len(made) == 1 else tuple(made),
            **{item: made[item.attrs] for item in executable.parts.get(value, ())}})

    def start(buffers: list[Buffer]) -> list[Any]:
        found = None if program is None else run_program(program, buffers, [])
        return by_python(buffers) if found is None else found

    def run(leaves: list[Buffer]) -> list[Any]:
        executable.runs += 1
        if failures is None:
            return start(leaves)
        found, outcome = failures.noting(lambda noted: start([*leaves, noted]))
        outcome.told_or_kept()
        return found

    return run


def _found(executable: Executable, value: Value, params: Sequence[Any]) -> Lone | None:
    """Return the launch that computes a loop's value, if it is all there is of it."""
    plan, body = executable.plan, value.attrs
    inner = executable.bodies[value][body.block]
    inputs = _numbers(executable, value.args[:body.inputs])
    if inputs is None or len(inner.plan.steps) != 1:
        return None
    (kernel,) = inner.plan.steps
    launch: Any = inner.launches.get(kernel) if isinstance(kernel, Kernel) else None
    if launch is None or launch.binding.scratch or launch.binding.counters:
        return None
    scalars = (*(operand_of(arg, plan.memory)({}, params) for arg in value.args[body.inputs:]),
               *(0,) * len(body.lengths))
    notes, leaves = bool(body.program.failures), len(executable.leaves)
    among = [*(leaves + notes + k for k in range(len(body.results))), *inputs, leaves]
    numbers = {inner.plan.memory[leaf]: among[number] for leaf, number in inner.leaves}
    produced = {item: item.attrs for item in executable.parts.get(value, ())}
    if len(body.results) == 1:
        produced[value] = 0
    return Lone(
        launch, scalars,
        [(place, numbers[base], fixed + evaluated_terms(terms, scalars))
         for place, base, fixed, terms in launch.binding.addresses],
        [(result.shape, result.dtype) for result in body.results], produced, notes)


def _numbers(executable: Executable, args: Sequence[Any]) -> list[int] | None:
    """Which leaves the operands are, if each is all of one."""
    places = {leaf: k for k, (leaf, _) in enumerate(executable.leaves)}
    found = []
    for arg in args:
        if not isinstance(arg, Value):
            return None
        base, _, index, *_ = stored(arg, executable.plan.memory)
        if index is not None or not isinstance(base.op, Leaf):
            return None
        found.append(places[base])
    return found
