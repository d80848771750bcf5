"""Values that were written into an array are read from there by kernels that read around them."""

from __future__ import annotations

from typing import Any

import numpy
import pytest

import tiledarray as ta
from benchmarks.workloads import conjugate_gradient
from benchmarks.workloads.conjugate_gradient import program
from tests.plans import TARGETS, fresh_recorder, planned
from tiledarray.fusion.plan import Kernel
from tiledarray.ops.op import Update

clean = fresh_recorder(at_once=0)


@pytest.fixture(autouse=True)
def of_few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conjugate_gradient, "ITERATIONS", 3)


def reads(kernel: Kernel) -> set[Any]:
    return {cell.access.value for cell in kernel.loads if cell.access is not None}


@pytest.mark.parametrize("target", TARGETS)
def test_a_stencil_reads_the_padded_array_alone(target: str) -> None:
    b = ta.array(numpy.random.default_rng(0).random((300, 200)))
    plan = planned(program(ta, b), target=TARGETS[target])
    stencils = [kernel for kernel in plan.kernels
                if any(isinstance(value.op, Update) for value in reads(kernel))]
    assert len(stencils) == 3
    for kernel in stencils:
        assert len({value.shape for value in reads(kernel) if value.size > 1}) == 1


@pytest.mark.compiler
@pytest.mark.parametrize("compile", ["wait", "never"])
def test_values(compile: str) -> None:
    b = numpy.random.default_rng(1).random((70, 50))
    with ta.config.override(compile=compile):
        found = program(ta, ta.array(b))
        numpy.testing.assert_allclose(found, program(numpy, b), rtol=1e-10)


def parts(np: Any, p: Any, kind: str, step: int, shift: int, again: bool) -> Any:
    """A part of an array is overwritten by what is read again, beside the array."""
    rows, columns = p.shape
    padded = np.zeros((rows + 6, columns + 6), kind)
    value = p * 2 + 1
    padded[2:2 + rows, 1:1 + columns] = value[::step]
    total = value.sum()
    moved = padded[2:2 + rows, 3 + shift:3 + shift + columns]
    result = total * value - padded[2:2 + rows, 1:1 + columns] + 3 * moved
    if again:
        padded[2:2 + rows, 1:1 + columns] += result
    return result, padded.copy(), value


@pytest.mark.compiler
@pytest.mark.parametrize(("kind", "step", "shift", "again"), [
    ("f8", 1, 0, False), ("f8", 1, -3, True), ("f8", 1, 2, True), ("f4", 1, 0, True),
    ("f8", -1, 1, True)])
def test_parts_are_read_from_where_they_are(kind: str, step: int, shift: int, again: bool) -> None:
    p = numpy.random.default_rng(2).integers(-9, 9, (13, 21)).astype("f8")
    with ta.config.override(compile="wait"):
        found = parts(ta, ta.array(p), kind, step, shift, again)
        ta.evaluate(*found)
    for ours, theirs in zip(found, parts(numpy, p, kind, step, shift, again), strict=True):
        numpy.testing.assert_array_equal(numpy.asarray(ours), theirs)
