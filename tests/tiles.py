"""Tile kernels of ordinary code: planned, run by the interpreter, on the host, or emulated."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy
import pytest

import tiledarray as ta
from tests import emulation
from tests.plans import HOST
from tiledarray import config
from tiledarray.devices import device
from tiledarray.execution.executable import Executable
from tiledarray.fusion import limits, passes
from tiledarray.fusion.bodies import Body
from tiledarray.fusion.plan import Plan
from tiledarray.fusion.streams import interpret as streams
from tiledarray.fusion.streams.find import in_streams
from tiledarray.fusion.streams.ir import StreamProgram
from tiledarray.fusion.streams.kernel import StreamKernel
from tiledarray.fusion.streams.kernel import body_plan as stream_plan
from tiledarray.fusion.target import Target
from tiledarray.fusion.tiles import find
from tiledarray.fusion.tiles.find import in_tiles
from tiledarray.fusion.tiles.interpret import interpret
from tiledarray.fusion.tiles.ir import Store
from tiledarray.fusion.tiles.kernel import TileKernel, body_plan
from tiledarray.graph.program import Trace, trace
from tiledarray.ops.op import Leaf, Loop
from tiledarray.recording.stretch import local

Function = Callable[..., Any]
STREAMED = 16  # columns of a tile of a stream, to the interpreter


def few_are_worth_it() -> Any:
    """A fixture of a module: batches of a few problems are worth a kernel, on either device."""
    @pytest.fixture(autouse=True)
    def few(monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(find, "_gain", lambda region: 1)
        for kind in ("HOST", "GPU"):
            usual = getattr(limits, kind)
            monkeypatch.setattr(limits, kind, replace(usual, problems=2, problem_flops=1))

    return few


@contextmanager
def recording() -> Iterator[None]:
    """Nothing is computed inside but what is looked at: it does not add to a long recording."""
    local.recorder.flush()
    with config.override(linalg_errors="deferred", at_once=0):
        yield


def traced_of(program: Function, *inputs: Any) -> Trace:
    """The recording of a program."""
    with recording():
        result = program(ta, *(ta.array(x) if isinstance(x, numpy.ndarray) else x for x in inputs))
        outputs = result if isinstance(result, tuple) else (result,)
        return trace([array.node for array in outputs])


def planned_for(traced: Trace, target: Target) -> Plan:
    """Its plan, checked."""
    return passes.plan(traced.signature, frozenset(), target, params=traced.params, check=True)


def stream_kernels(plan: Plan) -> list[StreamKernel]:
    """The kernels of streams in a plan."""
    found = (kernel for bodies in plan.bodies.values() for body in bodies.values()
             for kernel in body.kernels)
    return [kernel for kernel in found if isinstance(kernel, StreamKernel)]


def kernels(plan: Plan) -> list[TileKernel]:
    """The kernels of tiles in a plan."""
    found = (kernel for bodies in plan.bodies.values() for body in bodies.values()
             for kernel in body.kernels)
    return [kernel for kernel in found if isinstance(kernel, TileKernel)]


def interpreted(traced: Trace, target: Target) -> list[numpy.ndarray]:
    """What a recording gives if NumPy computes it, and the interpreter what goes by tiles."""
    found = in_tiles(traced.signature, target)
    looped = (in_streams(found, target) if target.kind == "cuda" else found).looped
    values: list[Any] = []
    for place, (op, *entry) in enumerate(looped.entries):
        if op is None:
            values.append(numpy.asarray(traced.nodes[looped.numbers[place]].buffer.array))
            continue
        attrs, shape, dtype, *refs = entry
        operands = [0 if ref is None else values[ref] if ref >= 0 else traced.params[~ref]
                    for ref in refs]
        if isinstance(op, Loop):
            values.append(_by_problems(attrs, operands, target))
            continue
        with numpy.errstate(all="ignore"):
            found = op.reference(numpy, *operands, attrs=attrs, shape=shape, dtype=dtype)
        values.append(found)
    return [numpy.asarray(values[number]) for number in looped.outputs]


def _by_problems(body: Body, operands: list[Any], target: Target) -> Any:
    stream = isinstance(body.program, StreamProgram)
    plan = (stream_plan if stream else body_plan)(body, target, check=True)
    (kernel,) = plan.kernels
    assert isinstance(kernel, TileKernel | StreamKernel)
    leaves = [numpy.full(result.shape, 77, result.dtype) for result in body.results]
    leaves += [numpy.ascontiguousarray(array) for array in operands[:body.inputs]]
    arrays = {value: leaves[value.attrs] for value in plan.values
              if isinstance(value.op, Leaf) and value is not getattr(kernel, "status", None)}
    params = (*operands[body.inputs:], *(0 for _ in body.lengths))
    if isinstance(kernel, StreamKernel):
        arrays.update((store.target, arrays[store.target.args[0]])
                      for store in kernel.program.stores)
        streams.interpret(kernel.program, arrays, params, STREAMED)
    else:
        arrays.update((statement.target, arrays[statement.target.args[0]])
                      for statement in kernel.program.singly() if isinstance(statement, Store))
        interpret(kernel.program, arrays, params)
    results = leaves[:len(body.results)]
    return results[0] if len(results) == 1 else tuple(results)


def run(plan: Plan, traced: Trace, *, folder: Path | None = None) -> list[numpy.ndarray]:
    """Run a plan here: compiled, or with ``folder`` as the text for a GPU emulated."""
    executable = Executable(plan, device.resolve("cpu"))
    if folder is None:
        executable.compile()
    else:
        emulation.emulate(executable, folder)
    leaves = {value: traced.nodes[value.attrs].buffer for value in plan.values
              if isinstance(value.op, Leaf)}
    return [numpy.asarray(buffer.array).reshape(traced.nodes[number].shape) for buffer, number in
            zip(executable.run(leaves, traced.params), traced.outputs, strict=True)]


def through(tier: str, program: Function, *inputs: Any, target: Target = HOST,
            folder: Path | None = None) -> tuple[Plan, list[Any]]:
    """Plan a program for a target and run it in a tier; return the plan and the results."""
    traced = traced_of(program, *inputs)
    plan = planned_for(traced, target)
    if tier == "interpreter":
        return plan, interpreted(traced, target)
    return plan, run(plan, traced, folder=folder if tier == "emulated" else None)

