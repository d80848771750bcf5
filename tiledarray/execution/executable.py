"""Running a plan: compiled kernels, bound to the buffers and scalars of one evaluation."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

from tiledarray import config
from tiledarray.at_one_go import at_one_go, persist
from tiledarray.core import forget_program, install_running
from tiledarray.devices.device import Device
from tiledarray.devices.storage import Buffer
from tiledarray.errors import of_a_handler, suppress_own
from tiledarray.execution import known
from tiledarray.execution.arguments import Binding
from tiledarray.execution.background import Trouble, background, everywhere, passing
from tiledarray.execution.laps import Laps
from tiledarray.execution.launches import CudaKernel, CudaLaunch, HostLaunch, Launch
from tiledarray.execution.library_calls import (
    SILENCE,
    computing,
    is_product,
    library_call,
    loop_call,
)
from tiledarray.execution.loaded import Loaded
from tiledarray.execution.looping import looping
from tiledarray.execution.outcomes import Outcome
from tiledarray.execution.repeating import ALL, Several, Tiled, by_plan, repeating
from tiledarray.execution.spans import Spending, counters
from tiledarray.execution.tiled_steps import TiledSteps, can_be_tiled
from tiledarray.fusion.group import storage
from tiledarray.fusion.ir import Value
from tiledarray.fusion.order import written
from tiledarray.fusion.plan import Call, Copy, Kernel, Plan, Step
from tiledarray.fusion.target import Target
from tiledarray.fusion.time_tiles import TimeTiles
from tiledarray.graph.node import Site
from tiledarray.kernels.compile import cuda, host
from tiledarray.kernels.compile.host import HostKernel
from tiledarray.kernels.text.program import Program, print_kernel
from tiledarray.ops.loop import Steps
from tiledarray.ops.op import Item, Leaf, Loop, Repeat

if TYPE_CHECKING:
    from tiledarray.execution.tuning import Tuning

Marks = Callable[[Value, Any], Sequence[Callable[[], None]]]
Settle = Callable[[list[Any]], None]
Action = Callable[[dict[Value, Any], Sequence[Any], list[Kernel]], Any]

observers: list[Callable[[Executable, Step, float], None]] = []  # told the time of every step
_reported = [0.0]  # seconds that they have been told of



def _lost(executable: Executable, status: int, leaves: list[Any]) -> None:
    """Raise what a launch of a program failed with, once others had overwritten some leaves.

    They have no values any more; on a device that is lost nothing has.
    """
    for leaf in leaves:
        leaf.buffer = None
    try:
        next(iter(executable.launches.values())).check(status)
    except Exception as error:
        error.add_note("what the plan writes in place had been overwritten in part, and is lost")
        raise


# What the core runs programs with: each is of an executable.
install_running({
    "lock": known.lock, "device": Device("cpu"), "observers": observers, "counters": counters,
    "buffer": Buffer, "silence": SILENCE, "lost": _lost,
})


def program_name(kernel: Kernel) -> str:
    """Name a kernel after what it computes."""
    names = [name for part in kernel.parts for name in part.names]
    parts = [kernel.form, *dict.fromkeys(names)]
    return "ta_" + "_".join(parts)[:48]


def source_of(kernel: Kernel, program: Program) -> str:
    """The program's text under the kernel's name."""
    return program.text.replace("NAME", program_name(kernel))


_compiled = Loaded()


class Executable:
    """A plan for one device, and its kernels once compiled.

    Attributes
    ----------
    plan : Plan
    device : Device
    launches : dict
        The compiled form of each `Kernel`; empty until `compile` has run.
    contract : bool
        Whether the compiler may round a product and a sum once; settled when the plan was made.
    trouble : Trouble
        Why it does not compile, and until when that stands.
    leaves : list
        Each leaf of the plan, with its number in the signature.
    programs, names : dict
        The text of each kernel with its arguments, and what it is called.
    sites, params : list
        Where the entries of the signature were recorded and the scalars, at the first evaluation.
    releases, places : list
        After each step what nobody needs any more, and where the outputs are.
    for_core, told : bool, set
        Whether the core might run it (`instructions.program_of`), as far as is known; and the keys
        by which it was told to.
    bodies : dict
        For each loop what it does with a block, by the sizes of the block; for each loop over time
        what it does in a step.
    parts : dict
        Of each call of several results those that the plan asks for.
    replay : callable or None
        Runs all steps with one launch; on a GPU, once the plan has been met a few times.
    runs : int
        How often it has run.
    failed : Step or None
        What failed when it failed last.
    planned : callable
        Plans the same for a target, unless this is part of a plan.
    again : Target or None
        For what to plan it again to know all of the plan, where ``plan`` came from disk and says
        only how to run it.
    tuning : Tuning or None
        What finds out whether another plan is faster, or has found it.
    tuned : str
        What an earlier run has found of such work, in words.
    """

    def __init__(self, plan: Plan, device: Device, contract: bool | None = None,
                 programs: dict[Kernel, Program] | None = None,
                 names: dict[Kernel, str] | None = None) -> None:
        self.plan = plan
        self.device = device
        self.contract = config.contract is True if contract is None else contract
        self.programs = programs or {
            kernel: print_kernel(kernel, device=device.kind == "cuda") for kernel in plan.kernels
        }
        self.names = names or {kernel: program_name(kernel) for kernel in plan.kernels}
        self.planned: Callable[[Target], Executable] = _part_of_a_plan
        self.again: Target | None = None
        self.tuning: Tuning | None = None
        self.tuned = ""
        self.launches: dict[Kernel, Launch] = {}
        self.sites: list[Site | None] = []
        self.params: list[Any] = []
        self.bodies = {
            value: {key: Executable(body, device, self.contract) for key, body in found.items()}
            for value, found in plan.bodies.items()
        }
        self.ready = not self.sources()
        self.trouble = Trouble()
        self.wanted = self.queued = self.kept = False
        self.met = self.looks = self.runs = 0
        self.failed: Step | None = None
        self.replay: Action | None = None
        self.leaves: list[tuple[Value, int]] = [
            (value, value.attrs) for value in plan.values if isinstance(value.op, Leaf)
        ]
        self.parts = _parts(plan)
        self.releases = _releases(plan)
        self._outcomes: list[Outcome] | None = [] if self._are_told_late() else None
        self._steps = [(self._action(step, free), free)
                       for step, free in zip(plan.steps, self.releases, strict=True)]
        self.places = _places(plan)
        self.for_core = True
        self.told: set[Any] = set()

    # ---- compiling -----------------------------------------------------------------------

    def sources(self) -> list[tuple[str, str]]:
        """Source text and name of every kernel, those in loops included."""
        own = [(self._source(kernel), self.names[kernel]) for kernel in self.programs]
        return [*own, *(pair for body in self._of_loops() for pair in body.sources())]

    def _of_loops(self) -> list[Executable]:
        """What loops do with blocks, of any size."""
        return [body for found in self.bodies.values() for body in found.values()]

    def _source(self, kernel: Kernel) -> str:
        return self.programs[kernel].text.replace("NAME", self.names[kernel])

    def whole(self) -> Executable:
        """Return one that knows how its plan came about: itself, or the same planned again."""
        if self.again is None:
            return self
        made = self.planned(self.again)
        made.sites, made.params, made.trouble = self.sites, self.params, self.trouble
        made.tuning, made.tuned = self.tuning, self.tuned
        if self.ready and made.plan.kernels:
            made.compile()
        return made

    def used(self) -> Executable:
        """Return what runs instead of this since it was found to be faster, or itself."""
        return self if self.tuning is None else self.tuning.best

    def tuning_text(self) -> str:
        """What was found by timing other plans of the same, in words; nothing if none was."""
        found = None if self.tuning is None else self.tuning.found
        return self.tuned if found is None else found.text()

    @property
    def failure(self) -> Exception | None:
        """What went wrong when it was compiled last."""
        return self.trouble.error

    def missing(self) -> list[tuple[str, str]]:
        """Sources that this process has not compiled or loaded yet."""
        return [pair for pair in dict.fromkeys(self.sources())
                if self._key(pair[0]) not in _compiled]

    def _key(self, source: str) -> tuple[str, bool, str]:
        """What a loaded kernel is known by: the source, and all else that shapes it."""
        return str(self.device), self.contract, source

    def compile(self) -> None:
        """Compile what is missing, and prepare the launches.

        Raises
        ------
        CompilerError, OSError
            It does not compile, or did not lately: the same error is raised until it is time to
            try again.
        """
        standing = self.trouble.standing()
        if standing is None and self.missing():
            standing = everywhere.standing()
        if standing is not None:
            raise standing.with_traceback(None)
        started = perf_counter()
        try:
            self._prepare()
        except Exception as error:
            if isinstance(error, RecursionError) or of_a_handler(error):
                raise  # of the caller's stack, or the program's own
            self.trouble.note(error, perf_counter() - started)
            if passing(error):
                everywhere.note(error, perf_counter() - started)
            raise
        self.trouble.clear()
        self.ready = True

    def _prepare(self) -> None:
        sources = list(dict.fromkeys(self.sources()))
        kernels = {source: _compiled.get(self._key(source)) for source, _ in sources}
        missing = [pair for pair in sources if kernels[pair[0]] is None]
        if missing:
            with Spending("compiling"):
                for (source, _), loaded in zip(missing, self._compile(missing), strict=True):
                    kernels[source] = _compiled[self._key(source)] = loaded
            counters["kernels compiled"] += len(missing)
            everywhere.clear()
        for kernel, program in self.programs.items():
            compiled = kernels[self._source(kernel)]
            self.launches[kernel] = self._launch(kernel, program, compiled)
        for body in self._of_loops():
            body.compile()

    def _compile(self, missing: list[tuple[str, str]]) -> Sequence[HostKernel | CudaKernel]:
        if self.device.kind != "cuda":
            return host.compile_many(missing, contract=self.contract)
        binaries = cuda.compile_many(
            missing, self.device.properties.arch, contract=self.contract)
        return [CudaKernel(self.device.load(binary, name), binary.reports.get(name))
                for (_, name), binary in zip(missing, binaries, strict=True)]

    def compile_in_background(self) -> None:
        """Queue the plan for the compiling thread, unless it is no use now."""
        if self.queued or self.trouble.standing() is not None or everywhere.standing() is not None:
            return
        self.queued = True
        background.compile(self)

    def left(self) -> list[tuple[str, str, bool]]:
        """Return what another process may compile, should this one end."""
        missing = self.missing() if self.device.kind != "cuda" else ()
        return [(source, name, self.contract) for source, name in missing]

    def at_hand(self) -> bool:
        """Whether all that is missing has been compiled before, and lies on disk."""
        if self.device.kind != "cuda":
            with suppress_own(OSError):  # another time there may be files to be had
                return host.on_disk(self.missing(), contract=self.contract)
        return False

    def let_go(self) -> None:
        """Drop the kernels: it will not run again, though some array remembers what made it."""
        while self.told:
            forget_program(self.told.pop())
        if not self.kept:
            self.ready = not self.sources()
            self.replay = None
            self.launches.clear()
            if self.tuning is not None:
                self.tuning.let_go(self)
            for body in self._of_loops():
                body.let_go()

    def _launch(self, kernel: Kernel, program: Program, compiled: Any) -> Launch:
        binding = Binding.of(program.slots, self.plan.memory)
        if self.device.kind == "cuda":
            if program.shared_limit:
                compiled.function.limit_shared(
                    program.shared_limit, self.device.properties.shared_bytes_per_multiprocessor)
            return CudaLaunch(program, binding, self.device, compiled)
        grain = max(1, program.blocks // (8 * host.pool().threads))
        small = max(kernel.bytes_moved, kernel.flops) < SERIAL
        grain = program.blocks if small else grain
        return HostLaunch(program, binding, compiled, grain)

    # ---- running -------------------------------------------------------------------------

    def run(self, leaves: dict[Value, Buffer], params: Sequence[Any],
            marks: Marks = lambda value, buffer: (), settle: Settle = lambda outputs: None,
            *, jitted: bool = False) -> list[Any]:
        """Run the steps; return the outputs' buffers.

        Parameters
        ----------
        leaves : dict
            The plan's inputs; used up.
        params : sequence of scalar
        marks : callable
            ``marks(value, buffer)`` returns what notes that a value has been computed.  It is
            called where a step fails: for every update of a leaf that was done in place, so that
            nothing is applied twice, and for whatever else is in memory by then, since what it was
            made of may have been overwritten.
        settle : callable
            Takes the outputs' buffers; if it is interrupted, that counts as a failed step.
        jitted : bool
            Whether errors of problems of a batch may come later, if the user allows it.
        """
        buffers: dict[Value, Any] = leaves
        overwritten: list[Kernel] = []  # noted in one go with the launches
        done, sound = 0, True
        self.runs += 1
        try:
            if self.replay is not None and not observers:
                self.replay(buffers, params, overwritten)
                done = len(self.plan.steps)
            for action, releases in self._steps[done:]:
                if observers:
                    started, inside = perf_counter(), _reported[0]
                    action(buffers, params, overwritten)
                    self._report(self.plan.steps[done], started, inside)
                else:
                    action(buffers, params, overwritten)
                done += 1
                for value in releases:
                    buffers.pop(value, None)
            outputs = self.outputs(buffers)
            if self._outcomes:
                sound = False
                self._tell(later=jitted)
                sound = True
            settle(outputs)
        except BaseException:
            try:
                if sound:
                    self.failed = self.plan.steps[done] if done < len(self._steps) else None
                    persist(lambda: self._keep(done, overwritten, buffers, marks))
            finally:
                while self._outcomes:
                    self._outcomes.pop().drop()
            raise
        counters["launches"] += len(self.launches)
        return outputs

    def _are_told_late(self) -> bool:
        """Whether how problems of a batch went can be asked behind the last step.

        Nothing that a failure would leave lost is overwritten by then, and no call before has
        looked at what came of it.
        """
        return (self.device.kind == "cuda" and not self.plan.writes_inputs() and all(
            isinstance(step.value.op, Loop) or is_product(step.value)
            for step in self.plan.steps if isinstance(step, Call)))

    def _tell(self, *, later: bool) -> None:
        """Raise the error of problems that failed in this run, or perhaps later."""
        while self._outcomes:
            outcome = self._outcomes.pop(0)
            try:
                if later:
                    outcome.told_or_kept()
                else:
                    outcome.told()
            except BaseException:
                self.failed = next(step for step in self.plan.steps
                                   if isinstance(step, Call) and step.value is outcome.value)
                raise

    def run_one_step(self, leaves: dict[Value, Buffer], params: Sequence[Any]) -> None:
        """Run a plan of one step, whose results lie in its leaves, the quickest way."""
        if observers:
            self.run(leaves, params)
            return
        ((action, _),) = self._steps
        action(leaves, params, [])
        self.runs += 1
        counters["launches"] += len(self.launches)

    def _keep(self, steps: int, overwritten: Sequence[Kernel], buffers: dict[Value, Any],
              marks: Marks) -> None:
        """Note the values that are in memory after so many steps, and after these launches."""
        memory = self.plan.memory
        held = {memory[value]: value for step in (*self.plan.steps[:steps], *overwritten)
                for value in written(step)}
        for value in (*held.values(), *self.plan.outputs):
            base = memory.get(storage(value))
            if base is None or base not in buffers or held.get(base) is not storage(value):
                continue
            found = buffers[base]
            again = (tuple(part.another() for part in found) if isinstance(found, tuple)
                     else found.another(value.shape))
            for mark in marks(value, again):
                mark()

    def outputs(self, buffers: dict[Value, Any]) -> list[Any]:
        """Return the outputs' buffers, each with a hold of its own on the memory of the values."""
        found = []
        for base, number, shape, alone in self.places:
            buffer = buffers[base] if number is None else buffers[base][number]
            found.append(buffer if alone else buffer.another(shape))
        return found

    def _action(self, step: Step, free: Collection[Value]) -> Action:
        """What running the step means: a function of the buffers, the scalars and ``done``.

        After it nobody needs what is in the memory of ``free``.
        """
        if isinstance(step, Kernel):
            return self._kernel_action(step)
        if isinstance(step, Call):
            return self._call_action(step, free)
        if isinstance(step, Copy):
            return lambda buffers, params, overwritten: self._copy(step, buffers)
        return lambda buffers, params, overwritten: self._allocate(step.value, buffers)

    def _report(self, step: Step, started: float, inside: float) -> None:
        """Tell the time of a step: of a loop, what its body's steps have not told yet."""
        self.device.synchronize()
        elapsed = perf_counter() - started - (_reported[0] - inside)
        _reported[0] += elapsed
        for observer in observers:
            observer(self, step, elapsed)

    def _allocate(self, value: Value, buffers: dict[Value, Any]) -> Buffer:
        base = self.plan.memory[value]
        buffer = buffers.get(base)
        if buffer is None:
            buffer = buffers[base] = self.device.allocate(base.shape, base.dtype)
        return buffer

    def _kernel_action(self, kernel: Kernel) -> Action:
        memory, launches, allocate = self.plan.memory, self.launches, self.device.allocate
        stored = [store.access.value for part in kernel.parts for store in part.stores]
        bases = [(base, base.shape, base.dtype)
                 for base in dict.fromkeys(memory[value] for value in stored)]
        in_place = any(memory[value] is not value and isinstance(memory[value].op, Leaf)
                       for value in stored)
        empty, device = not self.programs[kernel].blocks, self.device

        def action(buffers: dict[Value, Any], params: Sequence[Any],
                   overwritten: list[Kernel]) -> None:
            for base, shape, dtype in bases:
                if base not in buffers:
                    buffers[base] = allocate(shape, dtype)
            if empty:
                return
            launch = launches[kernel]
            start, kept = launch.bound(device, buffers, params)
            status = at_one_go(start, (partial(overwritten.append, kernel),)) if in_place else (
                start())
            launch.free(kept)
            if status:
                launch.check(status)

        return action

    def _copy(self, step: Copy, buffers: dict[Value, Any]) -> None:
        target = self._allocate(step.target, buffers)
        source = buffers[self.plan.memory[step.source]]
        target.array.reshape(-1)[...] = source.array.reshape(-1)

    def computing(self, value: Value) -> Callable[..., Any]:
        """Return what computes the value of a library call, or of a loop, from its operands."""
        if isinstance(value.op, Loop):
            return looping(value, self.bodies[value], self.device, self._outcomes)
        if isinstance(value.op, Repeat):
            return repeating(value.attrs, self.device,
                             lambda step: by_plan(step, self.bodies[value][step]),
                             self._tiled(value))
        return computing(value, self.device)

    def _tiled(self, value: Value) -> Tiled | None:
        """Return how several steps of a loop over time are done at once, if that is planned."""
        if self.device.kind == "cuda":
            return self._laps(value.attrs, self.bodies[value])
        tiles = next((key for key in self.bodies[value] if isinstance(key, TimeTiles)), None)
        if tiles is None:
            return None
        body, first = self.bodies[value][tiles], value.attrs.first

        def bind(scalars: Sequence[Any], steps: int) -> TiledSteps | None:
            if observers or not can_be_tiled(body):
                return None
            return TiledSteps(tiles, body, first, scalars, steps)

        return Tiled(tiles.depth, bind)

    def _laps(self, steps: Steps, bodies: Mapping[Any, Executable]) -> Tiled | None:
        """Return how a GPU does many steps at once."""
        if steps.body not in bodies or steps.goes is not None:
            return None
        made: list[Laps] = []  # once it runs: by then it is compiled

        def bind(scalars: Sequence[Any], count: int) -> Several | None:
            if observers:
                return None
            if not made:
                made.append(Laps(steps.body, bodies[steps.body], steps.first, steps.kinds))
            return made[0].bind(scalars, count)

        return Tiled(ALL, bind)

    def _call_action(self, step: Call, free: Collection[Value]) -> Action:
        value, parts = step.value, self.parts.get(step.value, ())
        compute = self.computing(value)
        if isinstance(value.op, Loop):
            call = loop_call(value, self.plan.memory, compute)
        else:
            call = library_call(value, self.plan.memory, self.device, free, compute)

        def action(buffers: dict[Value, Any], params: Sequence[Any],
                   overwritten: list[Kernel]) -> None:
            whole = buffers[value] = call(buffers, params)
            for item in parts:
                buffers[item] = whole[item.attrs]
            counters["library calls"] += 1

        return action


SERIAL = 1 << 17


class Place(NamedTuple):
    """Where an output is found.

    Attributes
    ----------
    base : Value
        The value whose memory it has.
    number : int or None
        Which part of a library call's results.
    shape : tuple of int
    alone : bool
        Whether the buffer found there becomes its own; else another value holds it as well.
    """

    base: Value
    number: int | None
    shape: tuple[int, ...]
    alone: bool


def _part_of_a_plan(target: Target) -> Executable:
    raise LookupError(f"what a loop does is planned for {target} with the loop")


def _parts(plan: Plan) -> dict[Value, list[Value]]:
    """Return for each call of several results those that the plan asks for."""
    found: dict[Value, list[Value]] = {}
    for value in plan.values:
        if isinstance(value.op, Item):
            found.setdefault(value.args[0], []).append(value)
    return found


def _places(plan: Plan) -> list[Place]:
    """Return where the outputs are; of those in the same memory the first takes its buffer."""
    places, taken = [], set()
    for value in plan.outputs:
        stored = storage(value)
        if isinstance(stored.op, Item):
            base, number, shape = stored.args[0], stored.attrs, stored.shape
        else:
            base, number, shape = plan.memory[stored], None, plan.memory[stored].shape
        alone = (shape == value.shape and (base, number) not in taken
                 and not isinstance(stored.op, Leaf))
        taken.add((base, number))
        places.append(Place(base, number, value.shape, alone))
    return places


def _releases(plan: Plan) -> list[list[Value]]:
    """After each step, the values whose memory nobody needs any more."""
    kept = {plan.memory.get(storage(value), storage(value)) for value in plan.outputs}
    kept |= {storage(v).args[0] for v in plan.outputs if isinstance(storage(v).op, Item)}
    kept |= {v.args[0] for v in plan.values if isinstance(v.op, Item)}
    result: list[list[Value]] = [[] for _ in plan.steps]
    for value, number in plan.last_use.items():
        if value not in kept and not isinstance(value.op, Leaf):
            result[number].append(value)
    return result
