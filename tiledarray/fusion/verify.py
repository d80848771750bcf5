"""The verifier: what must hold of every plan."""

from __future__ import annotations

from tiledarray.fusion.group import storage
from tiledarray.fusion.ir import Value
from tiledarray.fusion.order import touched
from tiledarray.fusion.plan import Copy, Kernel, Plan, Step
from tiledarray.ops.movement import empty
from tiledarray.ops.op import Item, Leaf


class InvalidPlan(AssertionError):
    """A pass produced a plan that cannot be run."""


def verify(plan: Plan) -> None:
    """Raise `InvalidPlan` unless every step reads only what exists and outputs are produced."""
    known = {value for value in plan.values if isinstance(value.op, Leaf) or value.op is empty}
    for step in plan.steps:
        written = _written(step)
        for value in touched(step):
            base = storage(value)
            base = base.args[0] if isinstance(base.op, Item) else base
            if base not in known and base not in written:
                raise InvalidPlan(f"{value} is read before anything computes it")
        if isinstance(step, Kernel):
            for part in step.parts:
                _verify_kernel(part)
        known |= written
    for value in plan.outputs:
        base = storage(value)
        base = base.args[0] if isinstance(base.op, Item) else base
        if base not in known:
            raise InvalidPlan(f"output {value} is never computed")


def _written(step: Step) -> set[Value]:
    if isinstance(step, Kernel):
        return {store.sink.value for part in step.parts for store in part.stores}
    if isinstance(step, Copy):
        return {step.target}
    return {step.value}


def _verify_kernel(kernel: Kernel) -> None:
    seen = set()
    for cell in kernel.cells:
        for arg in cell.args:
            if arg not in seen:
                raise InvalidPlan(f"cell {cell.number} uses cell {arg.number} before it exists")
            if arg.phase > cell.phase:
                raise InvalidPlan(f"cell {cell.number} needs a later pass")
        seen.add(cell)
    names = [axis for part in kernel.schedule.axes for axis in part.domain]
    if len(names) != len(set(names)):
        raise InvalidPlan("an axis appears twice in the loop nest")
    if not kernel.stores:
        raise InvalidPlan("a kernel writes nothing")
