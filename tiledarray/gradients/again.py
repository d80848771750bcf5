"""Gradients of a function that is differentiated again and again: one plan for both passes.

A function that has been differentiated for a while is recorded as a whole, small arrays too, and
the graph is looked up.  The same operations on arrays of the same shapes, with the same numbers in
them, have the same gradient: it is worked out once, on placeholders, as a plan whose inputs are
the arrays that the graph begins with.  So every call is recorded, since its control flow and its
writes may differ; its backward pass is not.  Where a graph is no function of its inputs alone
(parts are computed already, others want its history, a rule is the user's) or is another at every
call, all goes on as without.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from operator import is_not
from time import perf_counter
from typing import TYPE_CHECKING, Any

from tiledarray import config, execution
from tiledarray.arrays.handle import wrap
from tiledarray.arrays.tracing import is_tracing, make_placeholder, traced
from tiledarray.block import Block
from tiledarray.core import BEGINS, KEEPS, MOST_WITH_HISTORY, set_most_with_history
from tiledarray.core import history as history_of
from tiledarray.devices.storage import Buffer
from tiledarray.errors import NOT_COMPILED, of_a_handler, raised_outside
from tiledarray.execution import placement
from tiledarray.fork import hold_at_fork
from tiledarray.gradients.engine import backward
from tiledarray.gradients.variables import filled, one_like
from tiledarray.graph.node import Node, leaf_form
from tiledarray.graph.program import Trace, trace
from tiledarray.ops.op import Library, Source
from tiledarray.recording.at_once import constant
from tiledarray.recording.history import end
from tiledarray.recording.stretch import Recorder, local, look

if TYPE_CHECKING:
    from tiledarray.execution.direct import Run
    from tiledarray.execution.executable import Executable

# Seconds that go into a function's gradients for each node of its graph before that is planned:
# about what planning takes, so that never more than twice the least is spent; compiling is done
# elsewhere.
PATIENCE = 0.003
FEWEST, MOST_NODES = 16, 2000
MOST_MISSES = 4  # graphs of one function that had no plan, ...
HITS_A_MISS = 16  # ... and one more for so many that had one
MOST_FUNCTIONS = 256
MOST_PLANS = 128


class _Plan:
    """The value and the gradients of a graph, from the arrays that it begins with."""

    def __init__(self, graph: Trace, began: Sequence[Node]) -> None:
        with traced():
            inputs, results = _transposed(graph, began)
        self._targets = list(dict.fromkeys(
            x for x in results if x is not None and x.buffer is None and x not in inputs.values()))
        again = trace(self._targets)
        home = graph.nodes[graph.outputs[0]].device
        device = execution.evaluate.place_of(again, self._targets, home, again=True)
        self.executable, self._params = execution.plans.bound_to(again, device)
        self.executable.kept = True
        self._run: Run | None = None  # once it is compiled
        numbers = {node: number for number, node in inputs.items()}
        self._leaves: list[int | Buffer] = [
            numbers.get(again.nodes[number], again.nodes[number].buffer)
            for _, number in self.executable.leaves]
        self._results = [None if x is None else numbers.get(x, x) for x in results]

    def __call__(self, graph: Trace) -> list[Any]:
        """Return the value and the gradients; ``None`` for those that it does not depend on."""
        nodes = graph.nodes
        device = self.executable.device
        leaves: list[Any] = [
            nodes[at].buffer if isinstance(at, int) else at for at in self._leaves]
        for place, buffer in enumerate(leaves):
            if buffer.device is not device:
                leaves[place] = placement.on_one_side(buffer, device)
        with execution.known.lock, device.active() if device.kind == "cuda" else nullcontext():
            if self._run is None:
                self._run = execution.direct.runner(self.executable, self._params)
            buffers = self._run(leaves)
        for buffer in buffers:
            buffer.plan = self.executable
        made = dict(zip(self._targets, buffers, strict=True))
        return [None if x is None else self._array(x, made, nodes) for x in self._results]

    def _array(self, result: Any, made: dict[Node, Buffer], nodes: list[Node]) -> Any:
        if isinstance(result, int):
            result = nodes[result]
            buffer = result.buffer.another()
        else:
            buffer = made.get(result) or result.buffer.another()
        return wrap(Node(leaf_form(result), (), None, buffer))


def _transposed(graph: Trace, began: Sequence[Node]) -> tuple[dict[int, Node], list[Node | None]]:
    """Make a graph again on placeholders, with its gradients.

    Returns the placeholders by the numbers of what they stand for, and the value and the gradients.
    """
    made: dict[Node, Node] = {}
    inputs: dict[int, Node] = {}
    starts = {*began}
    for number, node in enumerate(graph.nodes):
        if node.buffer is not None:
            made[node] = inputs[number] = make_placeholder(node.form.kind)
        else:
            parts = tuple(made[x] if type(x) is Node else x for x in node.inputs)
            made[node] = Node(node.form, parts, node.site)
            made[node].keep(node.keeps)
        if node in starts:
            made[node].keep(BEGINS)
    value = made[graph.nodes[graph.outputs[0]]]
    wanted = [made[node] for node in began if node in made]
    slopes = iter(filled(backward([value], [one_like(value)], wanted), wanted))
    results = [value, *(next(slopes).node if node in made else None for node in began)]
    end(wanted)
    return inputs, results


_plans: OrderedDict[Any, _Plan | None] = OrderedDict()  # None: there can be none
_lock = threading.RLock()
hold_at_fork(_lock)


def _remembered(table: OrderedDict[Any, Any], key: Any, make: Callable[[], Any], most: int) -> Any:
    """Return the entry of a table, made if there is none; what was not used for long goes."""
    with _lock:
        if key in table:
            table.move_to_end(key)
            return table[key]
    made = make()
    with _lock:
        table[key] = made
        while len(table) > most:
            table.popitem(last=False)
    return made


def _graph_of(output: Node, began: Sequence[Node]) -> Trace | None:
    """Return what was recorded for a value; ``None`` if that is not all that it depends on."""
    if output.buffer is not None:
        return None
    graph, beginning = trace([output]), frozenset(began)
    if any(node.keeps == KEEPS and node not in beginning
           for node in map(graph.nodes.__getitem__, graph.leaves)):
        graph = trace([_pending_again(output, beginning)])
    for number in graph.leaves:
        node = graph.nodes[number]
        if (node.keeps and node not in beginning) or type(node.buffer) is tuple or (
                node.buffer is None):
            return None
    return graph


def _pending_again(output: Node, began: frozenset[Node]) -> Node:
    """Return a node whose graph is that of the output, with nothing computed on the way.

    A factorization is computed where it is called, for its errors; and so is what was looked at.
    """
    made: dict[Any, Node] = {}
    for node in history_of([output]):
        if node in began or node.keeps != KEEPS:
            continue
        inputs = tuple(made.get(x, x) if type(x) is Node else x for x in node.inputs)
        if node.buffer is not None or any(map(is_not, inputs, node.inputs)):
            made[node] = Node(node.form, inputs, node.site)
            made[node].keep(KEEPS)
    return made.get(output, output)


def _key(graph: Trace, began: Sequence[Node]) -> Any:
    places = {node: number for number, node in enumerate(graph.nodes)}
    kept = bytes([node.keeps for node in graph.nodes])  # not what `stop_gradient` has returned
    return (graph.key, kept, *map(repr, graph.params), *(places.get(node) for node in began),
            config.contract, config.threads)


# ---- functions ----------------------------------------------------------------------------------


class _Function:
    """What is known of a function that is differentiated.

    Attributes
    ----------
    seconds : float
        That have gone into its gradients.
    nodes : int
        Of the history of its value.
    hits, misses : int
        Graphs that had a plan, and that had none.
    whole : bool
        Whether it is recorded as a whole.
    waiting : Executable or None
        What is being compiled for it.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self.hits = self.misses = 0
        self.whole = False
        self.nodes = FEWEST
        self.waiting: Executable | None = None

    def missed(self) -> None:
        """Its graph had no plan."""
        self.misses += 1
        self.whole = False

    def plan_for(self, graph: Trace, began: Sequence[Node]) -> _Plan | None:
        """Make the plan of a graph that was not met before; ``None`` if there can be none."""
        self.missed()
        if any(isinstance(node.op, Library) and node.op.calls_back for node in graph.nodes):
            return None  # a rule of the user's may do something else every time
        try:
            return _Plan(graph, began)
        except Exception as error:
            if raised_outside(error):
                raise
            return None  # whatever it is, the usual way will say it, at the user's line

    def is_due(self) -> bool:
        """Whether the next call is recorded as a whole."""
        if self.waiting is not None:
            if self.waiting.trouble.standing() is not None:
                self.misses = self.hits + MOST_MISSES  # no more
            if not self.waiting.ready:
                return False
            self.waiting, self.whole = None, True
        enough = self.nodes <= MOST_NODES and self.seconds >= PATIENCE * self.nodes
        few = self.misses < MOST_MISSES + self.hits // HITS_A_MISS
        return few and (self.whole or enough)


_functions: OrderedDict[Any, _Function] = OrderedDict()


def _named(function: Any) -> Any:
    """Return what is the same of a function that is defined anew at every turn of a loop."""
    inner = function
    while hasattr(inner, "__wrapped__"):
        inner = inner.__wrapped__
    return tuple(getattr(f, "__code__", None) or f"{type(f)}" for f in (function, inner))


def give_values(nodes: Sequence[Node]) -> None:
    """Compute what is to be computed of arguments: a number is an input of the plan, as others."""
    constants = [node for node in nodes if node.buffer is None and type(node.op) is Source]
    on_devices = [node for node in constants if not node.device.on_host or constant(node) is None]
    if on_devices:
        look(on_devices)


class Turn:
    """One differentiation of a function.

    Attributes
    ----------
    whole : bool
        Whether the function is recorded as a whole.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._known = _remembered(_functions, _named(function), _Function, MOST_FUNCTIONS)
        self.whole = self._known.is_due() and not is_tracing() and (
            config.compile != "never" and config.grad_memory is None
            and not config.deterministic)
        self._started = perf_counter()
        self._recorder: Recorder | None = None
        self._output: Node | None = None

    def recording(self) -> AbstractContextManager[None]:
        """Have this thread record all that has a history, small arrays too, as one piece."""
        if not self.whole:
            return nullcontext()
        self._recorder = _Whole()
        return _Wholly(self._recorder)

    def results(self, output: Node, began: Sequence[Node]) -> list[Any] | None:
        """Return value and gradients, if there is a plan for what was recorded."""
        known, self._output = self._known, output
        if not self.whole:
            known.nodes = max(FEWEST, len(history_of([output])))
            return None
        graph = _graph_of(output, began)
        if graph is None:
            known.missed()
            return None
        plan = _remembered(
            _plans, _key(graph, began), lambda: known.plan_for(graph, began), MOST_PLANS)
        if plan is None:
            known.missed()
            return None
        if not plan.executable.ready:
            if config.compile != "wait":
                plan.executable.compile_in_background()
                known.waiting, known.whole = plan.executable, False
                return None
            try:
                plan.executable.compile()
            except NOT_COMPILED as error:
                if of_a_handler(error):
                    raise
                execution.doing_without.do_without(error)
                known.missed()
                return None
        known.whole = True
        known.hits += 1
        found: list[Any] = plan(graph)
        return found

    def end(self) -> None:
        """Count the time, and evaluate what the function has put aside: nobody else would."""
        if self._recorder is not None:
            aside = [node for node in self._recorder.pending() if node is not self._output]
            if aside:
                look(aside)
        self._known.seconds += perf_counter() - self._started


class _Whole(Recorder):
    """A recorder of all that a function does."""

    __slots__ = ()

    def __init__(self) -> None:
        self.cuts = False
        self.reset()


_wholes: set[_Whole] = set()


class _Wholly(Block):
    """Have this thread record with such a recorder."""

    def __init__(self, recorder: _Whole) -> None:
        self._recorder, self._outer = recorder, local.recorder

    def begin(self) -> None:
        local.recorder = self._recorder
        _set_whole(_wholes.add, self._recorder)

    def end(self) -> None:
        local.recorder = self._outer
        _set_whole(_wholes.discard, self._recorder)


def _set_whole(change: Callable[[_Whole], None], recorder: _Whole) -> None:
    """Threads that record nothing as a whole meanwhile record more than they might, no less."""
    with _lock:
        change(recorder)
        set_most_with_history(0 if _wholes else MOST_WITH_HISTORY)
