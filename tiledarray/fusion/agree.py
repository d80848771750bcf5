"""Values that must come out alike wherever they are computed.

Kernels compute a value again rather than store it.  Where a function of the C library is in it, the
bits may be others then: but on x86 with g++ (`kernels/headers/library.h`), a loop's vector function
rounds otherwise than the scalar one that its last elements take; a quick text on a GPU does so
otherwise than the exact one.  That is an ulp, as between NumPy
and a kernel; but an element is then not equal to the maximum of all, or lies above it, so that a
gradient vanishes or a root is NaN.  What extrema are taken of, and what is compared, is therefore
stored if it would be computed in several places.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Iterable

from tiledarray.fusion.along import Entry
from tiledarray.fusion.ir import Cell, Value, value_args
from tiledarray.fusion.plan import Kernel, Step
from tiledarray.fusion.schedule.place import passes_needed
from tiledarray.fusion.target import Target
from tiledarray.ops import arithmetic, transcendental
from tiledarray.ops.op import AxisView, Elementwise, Reduction, Reshape, Scan
from tiledarray.ops.selection import cast

# Functions that are rounded as the compiler finds them: `math.h` takes them from the C library.
_OF_LIBRARY = re.compile(
    r"\bm_(exp|log|cbrt|sin|cos|tan|arc|erf|hypot|power|abs|sqrt|gamma|lgamma)\w*\(")
_EXACT_IF_REAL = re.compile(r"\bm_(abs|sqrt)\(")
# Quick texts that are not right to the bit.
_NEAR = (arithmetic.power, arithmetic.power_constant, transcendental.log)
_SUDDEN = frozenset((arithmetic.sign, arithmetic.remainder, arithmetic.fmod))
_EXTREMA = frozenset(("min", "max", "argmin", "argmax", "running_min", "running_max"))


def computed_apart(values: Iterable[Value], steps: Iterable[Step], target: Target) -> set[Value]:
    """Return the values that have to be stored so that they are computed in one place."""
    meant = _meant(values, target)
    if not meant:
        return set()
    places: Counter[Value] = Counter()
    for step in steps:
        if not isinstance(step, Kernel):
            continue
        cells = [cell for cell in step.cells if cell.kind == "apply" and cell.value in meant]
        needed = passes_needed(step) if cells and step.group.phases > 1 else {}
        for cell in cells:
            places[cell.value] += _times(cell, needed)
    return {value for value, count in places.items() if count > 1}


def _times(cell: Cell, needed: dict[Cell, set[int]]) -> int:
    """In how many passes of a kernel a cell is computed."""
    return 1 if cell.held else max(1, len(needed.get(cell, ())))


def _meant(values: Iterable[Value], target: Target) -> set[Value]:
    """Values that are rounded otherwise elsewhere, where something depends on their very bits."""
    ordered = [*values]
    if not any(_is_near(value, target) for value in ordered):
        return set()
    marked: set[Value] = set()
    for value in sorted(ordered, key=lambda value: -value.number):
        if is_sudden(value) or (
                value in marked and isinstance(value.op, (Elementwise, AxisView, Reshape))):
            marked.update(value_args(value))
    return {value for value in marked if value.size > 1 and _is_near(value, target)}


def _is_near(value: Value, target: Target) -> bool:
    """Whether two kernels may compute the value with other bits."""
    op = value.op
    if not isinstance(op, Elementwise):
        return False
    if target.kind == "cuda":
        return op in _NEAR and op.has_quick(value.attrs)
    kinds = {loop.kind for loop in value.attrs}
    return not kinds <= set("biu") and _is_of_library(op, "c" in kinds)


@functools.cache
def _is_of_library(op: Elementwise, is_complex: bool) -> bool:
    """Whether the text of an op calls a function of the C library that may round either way."""
    expression = op.expression
    text = expression if isinstance(expression, str) else " ".join(expression.values())
    if not is_complex and _EXACT_IF_REAL.search(text):
        return False
    return bool(_OF_LIBRARY.search(text))


def is_sudden(value: Value | Entry) -> bool:
    """Whether an ulp in an operand may change all of the result."""
    op = value.op
    if isinstance(op, (Reduction, Scan)):
        return op.name in _EXTREMA
    if not isinstance(op, Elementwise):
        return False
    if op is cast:
        return value.dtype.kind in "biu"
    compares = op.beyond is not None
    flat = bool(op.derivatives) and all(rule == "0" for rule in op.derivatives)
    return compares or flat or op in _SUDDEN
