"""The verifier: what must hold of every plan."""

from __future__ import annotations

from collections.abc import Collection

from tiledarray.fusion.plan import Kernel, Plan
from tiledarray.fusion.races import found_races


class InvalidPlan(AssertionError):
    """A pass produced a plan that cannot be run."""


def verify(plan: Plan, donated: Collection[int]) -> None:
    """Check a plan that may overwrite the leaves of those numbers.

    Raises
    ------
    InvalidPlan
        If it reads what is not there, leaves an output out, or has two values in one memory where
        it does not say so.
    """
    for kernel in plan.kernels:
        for part in kernel.parts:
            _verify_kernel(part)
    for complaint in found_races(plan, donated):
        raise InvalidPlan(complaint)


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
