"""Other plans of the same work: with other limits, where those of the kind of device only guess.

What limits should be hangs on a kernel's registers, on what else reads a line of memory, and on the
machine; no model here knows all of that.  So a few plans are made and timed (`execution.tuning`).
"""

from __future__ import annotations

from collections.abc import Mapping

from tiledarray.fusion.chains.kernel import ChainKernel
from tiledarray.fusion.plan import Kernel, Plan
from tiledarray.fusion.target import Choice, Target

# By what a kernel's form hangs on, other values on both sides of the usual one.  On two cores of a
# host none gained anything that came again; docs/decisions.md has what was measured.
BY_FORM: dict[str, Mapping[str, Mapping[str, tuple[int, ...]]]] = {
    "cpu": {},
    "cuda": {
        "map": {"map_tile": (1 << 11, 1 << 13), "halo_lanes": (1 << 6, 1 << 8)},
        "row": {"held_elements": (16, 8, 64), "split_blocks": (4, 16), "row_elements": (1 << 13,)},
        "column": {"column_blocks": (8, 4, 32), "column_threads": (64,), "staged_blocks": (1, 4),
                   "pair_blocks": (32, 16, 128), "pair_steps": (16, 256), "pair_threads": (512,),
                   "mirror_blocks": (0, 1)},
        "scan": {"scanned_columns": (16,), "scanned_lanes": (1 << 11, 1 << 13),
                 "shared_lanes": (1 << 12,)},
        "chain": {"chain_stages": (1, 4, 8), "chain_rounds": (1,)},
    },
}


def choices(plan: Plan, target: Target) -> list[Choice]:
    """Return what else the limits might be for the plan's kernels, one value a choice."""
    forms = dict.fromkeys(part.form for kernel in plan.kernels
                          if type(kernel) in (Kernel, ChainKernel) for part in kernel.parts)
    by_form = BY_FORM[target.kind]
    return [((name, value),) for form in forms if form in by_form
            for name, values in by_form[form].items() for value in values]


def joined(winners: list[Choice]) -> Choice:
    """Return the choice of all these, of which the first decides where two differ."""
    return tuple(sorted({name: value for choice in reversed(winners)
                         for name, value in choice}.items()))


def choice_text(choice: Choice) -> str:
    """A choice in words."""
    return ", ".join(f"{name} = {value:,}" for name, value in choice) or "as planned"
