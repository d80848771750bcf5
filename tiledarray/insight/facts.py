"""Facts about a plan, for people: what each step does, where its values come from and go to."""

from __future__ import annotations

import os
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

from tiledarray.execution.executable import Executable, program_name, source_of
from tiledarray.fusion.bodies import Body
from tiledarray.fusion.chains.kernel import ChainKernel
from tiledarray.fusion.ir import (
    READS,
    Cell,
    Group,
    Value,
    library_operand,
    storage,
    value_args,
)
from tiledarray.fusion.order import touched
from tiledarray.fusion.plan import Allocate, Axis, Call, Copy, Kernel, Step
from tiledarray.fusion.schedule.place import inner_axes, passes_needed
from tiledarray.fusion.schedule.work import bytes_read
from tiledarray.fusion.streams.kernel import StreamKernel
from tiledarray.fusion.tiles.kernel import TileKernel
from tiledarray.fusion.time_tiles import TimeTiles
from tiledarray.graph.node import Site, location
from tiledarray.insight.measure import arithmetic_rate, copy_bandwidth
from tiledarray.insight.programs import members, program_of, shared_out, tiles_of
from tiledarray.ops.op import Leaf, Loop, Repeat, Update
from tiledarray.recording.site import INSTALLED

ROLES = {"row": "grid", "step": "step", "lane": "lane"}
_VALUE = re.compile(r"%(\d+):[\w.]+")
_KERNEL = re.compile(r"\bkernel (\d+)")


def place_text(site: Site | None) -> str:
    """``file:line`` of a recording site, the file as seen from the current folder."""
    found = location(site)
    return "" if found is None else line_text(*found)


def line_text(file: str, line: int) -> str:
    """``file:line``, the file as seen from the current folder."""
    cell = re.match(r"<ipython-input-(\d+)", file)
    if cell is not None:
        return f"In[{cell.group(1)}]:{line}"
    if file.startswith("<"):
        return f"{file}:{line}"
    path = Path(file)
    if "ipykernel" in path.parent.name:
        return f"cell:{line}"
    for folder in INSTALLED.intersection(path.parts):
        return f"{file.rpartition(folder)[2].lstrip(os.sep)}:{line}"
    relative = os.path.relpath(path)
    return f"{path.name if relative.startswith('..') else relative}:{line}"


def bytes_text(count: float) -> str:
    """A number of bytes with a unit."""
    for unit in ("B", "KB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}" if unit != "B" else f"{count:.0f} B"
        count /= 1000
    return f"{count:.3g} TB"


def count_text(count: int, what: str) -> str:
    """So many of something: ``1 plan``, ``2 plans``."""
    return f"{count:,} {what}{'s' * (count != 1)}"


def time_text(seconds: float) -> str:
    """A time with a unit."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds * 1e9:.0f} ns"


@dataclass(slots=True)
class ArrayUse:
    """An array that a step reads or writes; ``nbytes`` of it are touched."""

    label: str
    kind: str
    nbytes: int
    place: str
    note: str = ""
    value: Value | None = field(default=None, repr=False)


@dataclass(slots=True)
class StepReport:
    """One step of a plan.

    Attributes
    ----------
    number : int
        From 1, in the order of running.
    kind : {"kernel", "library call", "loop", "copy", "allocation"}
    name : str
    fused : list of (place, ops)
        The member ops by the line that recorded them, in order.
    reads, writes : list of ArrayUse
    bytes_moved : int
        Each array's touched part once.
    flops : int
    predicted, measured : float or None
        Seconds.
    notes : dict
        Further facts by heading: domain, tile, values, update, device.
    program : str
        What a kernel, or a loop, does: loops, tiles, what is loaded, computed and stored.
    source : str
        Generated source of a kernel.
    """

    number: int
    kind: str
    name: str
    form: str = ""
    fused: list[tuple[str, list[str]]] = field(default_factory=list)
    reads: list[ArrayUse] = field(default_factory=list)
    writes: list[ArrayUse] = field(default_factory=list)
    bytes_moved: int = 0
    flops: int = 0
    predicted: float | None = None
    bound: str = ""
    measured: float | None = None
    notes: dict[str, str] = field(default_factory=dict)
    program: str = ""
    source: str = ""

    @property
    def ops(self) -> list[str]:
        """Names of the member ops in order."""
        return [name for _, names in self.fused for name in names]


@dataclass(slots=True)
class PlanReport:
    """Everything that `explain` tells about a plan."""

    device: str
    state: str
    steps: list[StepReport]
    outputs: list[ArrayUse]
    least_bytes: int
    refusals: list[str]
    rules: dict[str, int]
    tuned: str = ""

    @property
    def kernels(self) -> list[StepReport]:
        """The generated kernels among the steps."""
        return [step for step in self.steps if step.kind == "kernel"]

    @property
    def calls(self) -> list[StepReport]:
        """The library calls among the steps."""
        return [step for step in self.steps if step.kind == "library call"]

    @property
    def bytes_moved(self) -> int:
        """Bytes that all steps move together."""
        return sum(step.bytes_moved for step in self.steps)


def _by(sizes: Sequence[int]) -> str:
    return " x ".join(f"{n:,}" for n in sizes)


def _names(executable: Executable) -> list[str]:
    """Return what the kernels and calls of a plan are called."""
    return [program_name(step) if isinstance(step, Kernel) else step.value.op.name
            for step in executable.plan.steps if isinstance(step, Kernel | Call)]


class Reporter:
    """Collects the facts of one plan.

    Parameters
    ----------
    executable : Executable
    sites : sequence of Site
        Where each entry of the signature was recorded.
    names : mapping
        Names of variables by entry number, where they are known.
    outputs : sequence of int, optional
        Entry numbers of the outputs.
    measured : mapping, optional
        Seconds by step.
    """

    def __init__(
        self, executable: Executable, sites: Sequence[Site | None],
        names: Mapping[int, str] | None = None, outputs: Sequence[int] = (),
        measured: Mapping[Step, float] | None = None,
    ) -> None:
        self.executable = executable
        self.plan = executable.plan
        self.sites = sites
        self.names = names or {}
        self.measured = measured or {}
        self._places: dict[Site | None, str] = {}
        self.numbers = {step: number for number, step in enumerate(self.plan.steps, 1)}
        self.outputs = {storage(value): value for value in self.plan.outputs}
        self.output_names = {storage(value): self.names.get(number) for value, number
                             in zip(self.plan.outputs, outputs, strict=False)}
        self.labels = self._labels()
        self.by_number = {value.number: value for value in self.plan.values}
        self.by_group = {group.number: number for step, number in self.numbers.items()
                         for group in _groups(step)}
        self.readers: defaultdict[Value, list[int]] = defaultdict(list)
        for step, number in self.numbers.items():
            for value in _read_arrays(step):
                self.readers[value].append(number)

    def run(self) -> PlanReport:
        """Return the report."""
        steps = [self._step(step) for step in self.plan.steps]
        return PlanReport(
            device=str(self.executable.device), state=self._state(), steps=steps,
            outputs=[self._use(value, value.nbytes) for value in self.outputs],
            least_bytes=self._least(steps), rules=dict(self.plan.fired),
            refusals=list(dict.fromkeys(map(self._readable, self.plan.refusals))),
            tuned=self.executable.tuning_text(),
        )

    def _state(self) -> str:
        executable = self.executable
        if executable.failure is not None:
            reason = str(executable.failure).splitlines()[0]
            return f"its kernels do not compile, so it runs op by op: {reason}"
        if executable.ready or not executable.missing():
            return "compiled"
        return "not compiled: a first run goes op by op unless that is slower than compiling"

    # ---- names and places ----------------------------------------------------------------

    def entry(self, value: Value) -> int | None:
        """Number of the signature's entry that a value was made for."""
        while value not in self.plan.origin and value.args and isinstance(value.args[0], Value):
            value = value.args[0]
        return self.plan.origin.get(value)

    def place(self, value: Value) -> str:
        """``file:line`` where a value was recorded."""
        number = self.entry(value)
        if number is None or number >= len(self.sites):
            return ""
        site = self.sites[number]
        if site not in self._places:
            self._places[site] = place_text(site)
        return self._places[site]

    def label(self, value: Value) -> str:
        """What an array is called."""
        return self.labels.get(storage(value), value.op.name)

    def _labels(self) -> dict[Value, str]:
        labels: dict[Value, str] = {}
        places = {value: place for place, value in enumerate(self.outputs, 1)}
        leaves = intermediates = 0
        found = dict.fromkeys(value for step in self.plan.steps for value in _arrays(step))
        for value in [*found, *self.outputs]:
            if value in labels:
                continue
            if isinstance(value.op, Leaf):
                leaves += 1
                labels[value] = self.names.get(value.attrs, f"in{leaves}")
            elif value in self.outputs:
                labels[value] = self.output_names.get(value) or f"out{places[value]}"
            else:
                intermediates += 1
                labels[value] = f"t{intermediates}"
        return labels

    def _use(
        self, value: Value, nbytes: int, note: str = "", base: Value | None = None
    ) -> ArrayUse:
        base = base or storage(value)
        shape = ", ".join(map(str, value.shape))
        return ArrayUse(self.label(base), f"{value.dtype}[{shape}]", nbytes, self.place(value),
                        note, base)

    def _readable(self, refusal: str) -> str:
        """A refusal with ops and lines in place of the planner's numbers."""
        def value_text(found: re.Match[str]) -> str:
            value = self.by_number.get(int(found.group(1)))
            place = self.place(value) if value is not None else ""
            return found.group(0).partition(":")[2] + (f" ({place})" if place else "")

        def kernel_text(found: re.Match[str]) -> str:
            number = self.by_group.get(int(found.group(1)))
            return f"step {number}" if number is not None else "another kernel"

        return _VALUE.sub(value_text, _KERNEL.sub(kernel_text, refusal))

    # ---- steps ---------------------------------------------------------------------------

    def _step(self, step: Step) -> StepReport:
        number = self.numbers[step]
        if isinstance(step, Kernel):
            report = self._kernel(step, number)
        elif isinstance(step, Call):
            report = self._call(step, number)
        elif isinstance(step, Copy):
            size = step.target.nbytes
            report = StepReport(number, "copy", f"copy of {self.labels[step.source]}",
                                reads=[self._use(step.source, size)],
                                writes=[self._use(step.target, size)], bytes_moved=2 * size)
            report.notes["why"] = self.plan.updates[step.target][1]
        else:
            assert isinstance(step, Allocate)
            report = StepReport(number, "allocation", "uninitialised array",
                                writes=[self._use(step.value, 0)])
        report.measured = self.measured.get(step)
        return report

    def _call(self, step: Call, number: int) -> StepReport:
        value = step.value
        operands = {library_operand(arg): arg for arg in reversed(value_args(value))}
        reads = [self._use(arg, min(arg.nbytes, base.nbytes), base=base)
                 for base, arg in reversed(operands.items())]
        writes = [self._use(result, result.nbytes, self._destination(result, number))
                  for result in self.executable.parts.get(value, (value,))]
        moved = sum(use.nbytes for use in [*reads, *writes])
        if isinstance(value.op, Loop):
            return self._loop(value, StepReport(
                number, "loop", "", reads=reads, writes=writes, bytes_moved=moved))
        report = StepReport(number, "library call", value.op.name,
                            fused=self.fused(step), reads=reads, writes=writes, bytes_moved=moved)
        if isinstance(value.op, Repeat):
            report.kind = "loop"
            bodies = self.executable.bodies[value]
            report.notes["each"] = ", ".join(
                name for step in value.attrs.recordings[:1] for name in _names(bodies[step])
            ) or "nothing is computed"
            report.notes["steps"] = self._steps(bodies)
        return report

    def _steps(self, bodies: dict[Any, Executable]) -> str:
        """How many steps are done at once, or why they are not."""
        for key, body in bodies.items():
            if isinstance(key, TimeTiles):
                halo = [0 if size == n else key.depth * far
                        for n, size, far in zip(key.shape, key.tile, key.halo, strict=True)]
                return (f"{key.depth} at once, in tiles of {_by(key.tile)} with a halo of "
                        f"{_by(halo)}")
            for refusal in body.plan.refusals:
                if refusal.startswith("steps are done"):
                    return refusal.removeprefix("steps are done ")
        return "one by one"

    def _loop(self, value: Value, report: StepReport) -> StepReport:
        """What is done block by block, and what for each block."""
        body: Body = value.attrs
        executable = self.executable.bodies[value][body.block]
        (kernel,) = executable.plan.kernels if body.program is not None else (None,)
        if isinstance(kernel, TileKernel | StreamKernel):
            return self._problems(kernel, executable, body, report)
        report.name = f"over {count_text(body.count, 'block')}"
        report.notes["blocks"] = " x ".join(
            f"{size:,} of {n:,}" for n, size in zip(body.lengths, body.block, strict=True))
        report.notes["each"] = ", ".join(_names(executable))
        of_body = Reporter(executable, [self.sites[number] if 0 <= number < len(self.sites) else
                                        None for number in body.numbers])
        lines: dict[str, list[str]] = {}
        for step in executable.plan.steps:
            for place, names in of_body.fused(step):
                lines.setdefault(place, []).extend(names)
        report.fused = list(lines.items())
        report.program = "\n".join(
            program_of(step, of_body.label) if isinstance(step, Kernel) else
            f"call {step.value.op.name}"
            for step in executable.plan.steps if isinstance(step, Kernel | Call))
        return report

    def _problems(self, kernel: TileKernel | StreamKernel, executable: Executable, body: Body,
                  report: StepReport) -> StepReport:
        """What one kernel does for each problem of a batch."""
        device = self.executable.device
        report.kind, report.name, report.form = "kernel", program_name(kernel), kernel.form
        moving = kernel.bytes_moved / copy_bandwidth(device)
        computing = kernel.flops / arithmetic_rate(device)
        report.notes["blocks"] = shared_out(kernel, device.kind)
        of_body = Reporter(executable, [self.sites[number] if 0 <= number < len(self.sites) else
                                        None for number in body.numbers])
        report.fused = of_body.fused(kernel)
        report.bytes_moved, report.flops = kernel.bytes_moved, kernel.flops
        report.predicted = max(moving, computing)
        report.bound = "memory" if moving >= computing else "arithmetic"
        report.program = program_of(kernel, of_body.label)
        report.source = source_of(kernel, executable.programs[kernel])
        return report

    def _kernel(self, kernel: Kernel, number: int) -> StepReport:
        device = self.executable.device
        moving = kernel.bytes_moved / copy_bandwidth(device)
        computing = kernel.flops / arithmetic_rate(device)
        return StepReport(
            number, "kernel", program_name(kernel), form=kernel.form,
            fused=self._fused(kernel),
            reads=[use for part in kernel.parts for use in self._reads(part)],
            writes=[use for part in kernel.parts for use in self._writes(part, number)],
            bytes_moved=kernel.bytes_moved, flops=kernel.flops,
            predicted=max(moving, computing),
            bound="memory" if moving >= computing else "arithmetic",
            notes=self._notes(kernel),
            program=program_of(kernel, self.label),
            source=source_of(kernel, self.executable.programs[kernel]),
        )

    def fused(self, step: Step) -> list[tuple[str, list[str]]]:
        """Member ops of a step by the line that recorded them, in order."""
        if isinstance(step, Kernel):
            return self._fused(step)
        value = step.value if isinstance(step, (Call, Allocate)) else step.target
        return [(self.place(value), [value.op.name])]

    def _fused(self, kernel: Kernel) -> list[tuple[str, list[str]]]:
        lines: dict[str, list[str]] = {}
        for part in members(kernel):
            for cell in part.cells:
                if cell.kind in ("apply", "reduce", "across", "scan", "iota", "gather"):
                    lines.setdefault(self.place(cell.value), []).append(_op_text(cell))
            for store in part.stores:
                if isinstance(store.sink.value.op, Update):
                    lines.setdefault(self.place(store.sink.value), []).append("update")
        return list(lines.items())

    def _reads(self, kernel: Kernel) -> list[ArrayUse]:
        if isinstance(kernel, ChainKernel):
            return [self._use(cell.value, cell.value.nbytes) for cell in kernel.group.loads]
        uses: dict[Value, ArrayUse] = {}
        for read, size in bytes_read(kernel).items():
            value = storage(read)
            if value in uses:
                uses[value].nbytes = max(uses[value].nbytes, size)
            else:
                uses[value] = self._use(read, size)
        for value, use in uses.items():
            cells = [cell for cell, access in kernel.loads.items()
                     if cell.kind in READS and storage(access.value) is value]
            if any(cell.kind == "gather" for cell in cells):
                use.note = "at places that are computed"
            elif len(cells) > 1:
                use.note = f"at {len(cells)} places"
        return list(uses.values())

    def _writes(self, kernel: Kernel, number: int) -> list[ArrayUse]:
        uses: dict[Value, ArrayUse] = {}
        for store in kernel.stores:  # the components of one value are one array
            value, size = store.access.value, touched_bytes(kernel, store.access)
            if value in uses:
                uses[value].nbytes += size
            else:
                uses[value] = self._use(value, size, self._destination(value, number))
        return list(uses.values())

    def _destination(self, value: Value, own: int) -> str:
        """Why a value is written to memory by that step."""
        readers = [number for number in self.readers[storage(value)] if number != own]
        notes = []
        if storage(value) in self.outputs:
            notes.append("kept: a live array holds it" if readers else "a live array holds it")
        if readers:
            steps = ", ".join(map(str, readers[:6])) + (", ..." if len(readers) > 6 else "")
            notes.append(f"read by step{'s' if len(readers) > 1 else ''} {steps}")
        return "; ".join(notes)

    # ---- notes ---------------------------------------------------------------------------

    def _notes(self, kernel: Kernel) -> dict[str, str]:
        notes = {"domain": " · ".join(map(_axis_text, kernel.schedule.axes))}
        if isinstance(kernel, ChainKernel):
            notes["tile"] = tiles_of(kernel)
        else:
            notes |= {"tile": self._tile(kernel), "values": self._placement(kernel)}
        if kernel.beside:
            notes["beside"] = "; ".join(
                " · ".join(map(_axis_text, part.schedule.axes)) for part in kernel.beside
            )
        for store in (store for part in kernel.parts for store in part.stores):
            choice = self.plan.updates.get(store.sink.value)
            if choice is not None:
                how = {"in place": "in place", "border": "the rest is copied beside the region",
                       "fill": "the rest is filled beside the region",
                       "copy": "into a copy"}[choice[0]]
                notes["update"] = f"{how}: {choice[1]}"
        report = getattr(self.executable.launches.get(kernel), "report", None)
        if report is not None:
            spills = f"{report.spill_stores + report.spill_loads} B spilled" if (
                report.spill_stores or report.spill_loads) else "nothing spilled"
            notes["device"] = (f"{report.registers} registers a thread, "
                               f"{bytes_text(report.shared_bytes)} shared memory, {spills}")
        return notes

    def _tile(self, kernel: Kernel) -> str:
        schedule = kernel.schedule
        program = self.executable.programs[kernel]
        lanes = "whole lanes" if schedule.lane.reduced else (
            f"{min(schedule.lane_tile, schedule.lane.size)} lanes")
        rows = schedule.row_tile * (schedule.unroll if schedule.plane else 1)
        rows = min(rows, schedule.rows)
        parts = [f"{rows} row{'s' * (rows > 1)} x {lanes}",
                 f"{program.blocks} block{'s' * (program.blocks > 1)}"]
        if self.executable.device.kind == "cuda":
            tx, ty = schedule.threads
            parts.append(f"{tx} x {ty} threads")
            parts.append(f"{schedule.width} lanes a thread")
        else:
            parts.append(f"vectors of {schedule.width}")
        if schedule.unroll > 1:
            parts.append(f"{schedule.unroll} rows together")
        if schedule.chunks > 1 and self.executable.device.kind == "cuda":
            parts.append(f"{schedule.chunks} chunks a thread")
        if kernel.mirrors:
            parts.append("each pair of points once, for both")
        elif schedule.splits > 1:
            what = "row scanned" if schedule.form == "scan" else "reduction shared"
            parts.append(f"each {what} by {schedule.splits} blocks")
        return ", ".join(parts)

    def _placement(self, kernel: Kernel) -> str:
        """Where the values between the reads and the writes live."""
        needed, inner = passes_needed(kernel), inner_axes(kernel)
        computed = [cell for cell in kernel.cells
                    if cell.kind in ("apply", "reduce", "across", "scan", "iota")]
        held = [cell for cell in kernel.cells if cell.held]
        again = [cell for cell in kernel.cells if not cell.held and cell not in kernel.staged
                 and len(needed[cell]) > 1 and cell.axes & inner]
        parts = [f"{len(computed) - sum(cell in held for cell in computed)} in registers"]
        if held:
            where = "registers" if self.executable.device.kind == "cuda" else (
                f"scratch ({bytes_text(kernel.schedule.scratch_bytes)} a core)")
            parts.append(f"held in {where} between passes: {self._names(held)}")
        if kernel.staged:
            ahead = (f"{kernel.schedule.stages - 1} steps ahead" if kernel.schedule.stages
                     else "once for all passes")
            parts.append(f"copied into shared memory {ahead} "
                         f"({bytes_text(kernel.schedule.shared_bytes)} a block): "
                         f"{self._names(list(kernel.staged))}")
        if kernel.turned:
            where = "shared memory" if self.executable.device.kind == "cuda" else "the cache"
            parts.append(f"turned in tiles in {where}: {self._names(kernel.turned)}")
        loads = [cell for cell in again if cell.kind == "load"]
        if loads:
            parts.append(f"read again in each pass: {self._names(loads)}")
        recomputed = [cell for cell in again if cell.kind in ("apply", "scan")]
        if recomputed:
            parts.append(f"computed again in each pass: {self._names(recomputed)}")
        scratch = sum(slot.number for slot in self.executable.programs[kernel].slots
                      if slot.kind == "scratch")
        if scratch:
            parts.append(f"partial results in global scratch ({bytes_text(scratch)})")
        return "; ".join(parts)

    def _names(self, cells: Sequence[Cell]) -> str:
        names = dict.fromkeys(
            self.labels.get(storage(cell.value), cell.value.op.name) if cell.kind == "load"
            else cell.value.op.name for cell in cells
        )
        return ", ".join(list(names)[:6]) + (", ..." if len(names) > 6 else "")

    # ---- totals --------------------------------------------------------------------------

    def _least(self, steps: Sequence[StepReport]) -> int:
        """Bytes that cannot be saved: each input's touched part and each output, once."""
        read: dict[Value, int] = {}
        written: dict[Value, int] = {}
        for step in steps:
            for use in step.reads:
                if use.value is not None and isinstance(use.value.op, Leaf):
                    read[use.value] = max(read.get(use.value, 0), use.nbytes)
            for use in step.writes:
                if use.value in self.outputs and step.kind != "copy":
                    in_place = self.plan.updates.get(use.value, ("", ""))[0] == "in place"
                    written[use.value] = use.nbytes if in_place else use.value.nbytes
        return sum(read.values()) + sum(written.values())


def touched_bytes(kernel: Kernel, access: Any) -> int:
    """Bytes of an array that a kernel touches through one access."""
    part = prod(axis.size for axis, stride in
                zip(kernel.schedule.axes, access.strides, strict=True) if stride)
    return min(part, int(access.value.size)) * int(access.value.dtype.itemsize)


def _read_arrays(step: Step) -> set[Value]:
    if isinstance(step, Kernel):
        own = {store.access.value for part in step.parts for store in part.stores}
        olds = {storage(v.args[0]) for v in own if isinstance(v.op, Update)}
        return (set(touched(step)) - own) | olds
    if isinstance(step, Call):
        return set(touched(step)) - {step.value}
    return {step.source} if isinstance(step, Copy) else set()


def _groups(step: Step) -> list[Group]:
    if isinstance(step, Kernel):
        return [part.group for part in step.parts]
    return [step.group] if isinstance(step, Call) else []


def _arrays(step: Step) -> list[Value]:
    return [storage(value) for value in touched(step)]


def _axis_text(axis: Axis) -> str:
    name = "*".join(f"i{a}" for a in axis.domain) or "i"
    role = ROLES[axis.role] + (
        ", scanned" if axis.scanned else ", reduced" if axis.reduced else "")
    return f"{name} = {axis.size} ({role})"


def _op_text(cell: Cell) -> str:
    name = cell.value.op.name
    return f"to {cell.value.dtype}" if name == "cast" else name


def counted(names: Sequence[str]) -> str:
    """Names with repetitions counted: ``add x2, exp``."""
    return ", ".join(f"{name} x{count}" if count > 1 else name
                     for name, count in Counter(names).items())
