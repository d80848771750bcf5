"""Loops over time: a body that is recorded once, and its plan run again and again."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tiledarray.arrays.handle import Handle, as_node, stands_for_scalar, wrap
from tiledarray.arrays.tracing import HasHistory, StepScope, is_tracing, make_placeholder, traced
from tiledarray.devices.device import current
from tiledarray.graph.dtypes import UnsupportedDtypeError, is_numeric, shape_text
from tiledarray.graph.node import Kind, Node, is_scalar, kind_of
from tiledarray.graph.program import trace
from tiledarray.ops.loop import Step, Steps, repeat
from tiledarray.recording import record
from tiledarray.recording.bring import brought
from tiledarray.recording.history import alias
from tiledarray.recording.stretch import local
from tiledarray.transforms.trees import named_leaves, unflatten
from tiledarray.transforms.variables import variables_of

__all__ = ["fori_loop", "while_loop"]

_COUNT = np.dtype(np.int64)


def fori_loop(n: Any, body: Callable[[Any, Any], Any], state: Any) -> Any:
    """Do ``for i in range(n): state = body(i, state)``, and return the state.

    The body is recorded once, and its plan run ``n`` times: nothing is recorded or looked up from
    step to step.

    Parameters
    ----------
    n : int, range, or integer array without axes
        How many steps; none if it is negative.  ``i`` goes through a `range` as `for` does.  Of an
        array, an argument of a jitted function for instance, the number is looked at when the loop
        is computed.
    body : callable
        ``body(i, state)`` returns the next state: nested alike, of the same shapes and dtypes.  It
        is NumPy code and may write into the state's arrays, which are its own and lie in row-major
        order.  What is a number at the first step is one at all steps, and an array without axes
        is an array (of which ``x += 1`` changes what has other names, too).  ``i`` is an array
        without axes, of int64: an index (``u[i]``, ``u[i] = x``), or an operand that has the dtype
        of NumPy's ``int64``.
    state : array_like or nested
        Arrays and numbers, in dicts, lists, tuples and dataclasses.  A number is one of NumPy's to
        the body, of NumPy's dtype for it, so it is no weak operand any more: ``float32 * state``
        needs ``np.float32`` there.

    Returns
    -------
    TiledArray or nested
        As ``state``.  What was given is left as it is.

    Raises
    ------
    TypeError
        The body returns something else than a state like that which it gets, which is told by its
        place; looks at a value (``if u.max() > 1``, ``u[:i]``), since what it does next would
        depend on that value; draws random numbers, which would be the same at every step; stores an
        array where it outlives the step; or binds a name to another array or number.

    Notes
    -----
    What the body finds by a name it may read, and write into, as in a loop of Python's.

    Where a gradient is wanted (`grad`, `vjp`, `jvp`, a `variable`), the steps are recorded one by
    one, as those of a loop of Python's are: memory is bounded by ``config.grad_memory``, or by a
    `checkpoint` in the body, and ``n`` has to be known.  Under `vmap` the samples go through one
    loop.

    Examples
    --------
    >>> import tiledarray as np
    >>> def step(i, u):
    ...     u[1:-1] += 0.25 * (u[2:] - 2 * u[1:-1] + u[:-2])
    ...     return u
    >>> np.fori_loop(2, step, np.array([0.0, 0.0, 16.0, 0.0, 0.0]))
    array([0., 4., 6., 4., 0.])
    >>> found = np.fori_loop(range(1, 6), lambda i, s: {"n!": s["n!"] * i}, {"n!": 1})
    >>> int(found["n!"])
    120
    """
    return _Loop("fori_loop", None, body, state).run(_Count(n))


def while_loop(
    condition: Callable[[Any], Any], body: Callable[[Any], Any], state: Any
) -> Any:
    """Do ``while condition(state): state = body(state)``, and return the state.

    Condition and body are recorded once, and their plan is run until the condition does not hold.

    Parameters
    ----------
    condition : callable
        ``condition(state)`` returns a bool, or a number: an array of one element.  What it writes
        into the state the body does not see.
    body : callable
        ``body(state)`` returns the next state, as that of `fori_loop` does.
    state : array_like or nested
        As that of `fori_loop`.

    Returns
    -------
    TiledArray or nested
        As ``state``.  What was given is left as it is.

    Raises
    ------
    TypeError
        As by `fori_loop`; or the condition returns more than one element.

    Notes
    -----
    It may be used under `jit`, where a loop of Python's cannot look at the condition.  Under `vmap`
    each sample goes on until its own condition does not hold; the steps are done for all as long as
    one goes on.

    How many steps there are depends on values.  So where a gradient is wanted, the condition is
    looked at and the steps are recorded one by one, as those of a loop of Python's are; that cannot
    be under `jit`.

    Examples
    --------
    >>> import tiledarray as np
    >>> def newton(state):
    ...     x, error = state
    ...     ahead = 0.5 * (x + 2 / x)
    ...     return ahead, abs(ahead - x)
    >>> root, _ = np.while_loop(lambda state: state[1] > 1e-12, newton, (2.0, 1.0))
    >>> print(root)
    1.414213562373095
    """
    return _Loop("while_loop", condition, body, state).run(None)


class _Count:
    """How many steps there are, the number of the first, and by what it grows."""

    def __init__(self, n: Any) -> None:
        self.first, self.by = 0, 1
        self.of: Any
        if isinstance(n, range):
            self.of, self.first, self.by = len(n), n.start, n.step
            return
        if isinstance(n, Handle):
            if n.shape or n.dtype.kind not in "iu":
                raise TypeError("fori_loop takes for n an int, a range, or an array of integers "
                                f"without axes, not one of {n.dtype} of shape {n.shape}")
            self.of = n
            return
        try:
            self.of = max(0, operator.index(n))
        except TypeError:
            raise TypeError("fori_loop takes for n an int, a range, or an array of integers "
                            f"without axes, not a {type(n).__name__}") from None

    def numbers(self) -> range:
        """Return the numbers of the steps, one by one.

        Raises
        ------
        TypeError
            They are not known.
        """
        if not isinstance(self.of, Handle):
            return range(self.first, self.first + self.of * self.by, self.by)
        if is_tracing():
            raise TypeError("fori_loop in a gradient takes a number of steps that is known: the "
                            "steps are recorded one by one. Make n an int")
        return range(int(self.of))

    def nodes(self) -> tuple[Any, int, int]:
        """Return the inputs that say so: a node of int64, or an int, and two ints."""
        of = record.cast(self.of.node, _COUNT) if isinstance(self.of, Handle) else self.of
        return of, self.first, self.by


class _Loop:
    """A loop, of whichever kind."""

    def __init__(self, name: str, condition: Callable[[Any], Any] | None,
                 body: Callable[..., Any], state: Any) -> None:
        self.name, self.condition, self.body = name, condition, body
        leaves, self.names, self.structure = named_leaves(state, "state")
        nodes = [self._part(leaf, leaf_name)
                 for leaf, leaf_name in zip(leaves, self.names, strict=True)]
        placed = [node.device for node in nodes if node.device.kind != "auto"]
        self.device = placed[0] if placed else nodes[0].device if nodes else current()
        self.state = [brought(node, self.device) for node in nodes]
        self.kinds = [node.form.kind for node in self.state]

    def run(self, count: _Count | None) -> Any:
        """Do it: record it as one operation, or where that has no derivative step by step."""
        scope = local.recorder.scope
        if any(node.keeps if scope is None else scope.wants(node) for node in self.state):
            return self._one_by_one(count)
        try:
            return self._recorded(count)
        except HasHistory:
            return self._one_by_one(count)

    def _one_by_one(self, count: _Count | None) -> Any:
        state = self._nested(self.state)
        if count is not None:
            for number in count.numbers():
                i = wrap(record.full((), number, _COUNT, self.device))
                state = self._nested(self._checked(self.body(i, state)))
            return state
        assert self.condition is not None
        while bool(wrap(self._decision(self.condition(state)))):
            state = self._nested(self._checked(self.body(state)))
        return state

    def _recorded(self, count: _Count | None) -> Any:
        names = [variables_of(function, once=True) for function in (self.body, self.condition)]
        with traced(lambda: StepScope(self.name)) as scope:
            try:
                recording, handles = self._traced(scope, counts=count is not None)
            finally:
                changed = [name for found in names for name in found.changed()[0]]
                if changed:
                    for found in names:
                        found.restore()
            scope.check_looks()
            if scope.leaked():
                raise TypeError(
                    f"a function under tiledarray.{self.name} stored an array where it outlives "
                    "the step (a global name, an attribute, a list); that would happen once, not "
                    "at every step. Make it a part of the state, or write into it with x[...] =")
        if changed:
            raise TypeError(
                f"a function under tiledarray.{self.name} binds {', '.join(changed)} to another "
                "array or number, or takes something out; that would happen once, not at every "
                "step. Make it a part of the state")
        nodes = recording.recorded(() if count is None else count.nodes())
        for place, node in enumerate(recording.after[:len(self.state)]):
            if not node.shape and not is_scalar(node):
                nodes[place] = alias(nodes[place], 0, scalar=False)
        for handle, node in zip(handles, nodes[len(self.state):], strict=True):
            handle.assign(node)
        return self._nested(nodes[:len(self.state)])

    def _traced(self, scope: StepScope, *, counts: bool) -> tuple[Recording, list[Handle]]:
        """Run condition and body once; return that, and the arrays from outside that they write."""
        counter = make_placeholder(kind_of((), _COUNT, self.device))
        state = [make_placeholder(node.form.kind, scalar=is_scalar(node)) for node in self.state]
        goes = decision = None
        if self.condition is not None:
            goes = self._decision(self.condition(self._nested(state)))
        after = self._checked(self.body(*([wrap(counter)] if counts else []), self._nested(state)))
        if self.condition is not None:
            decision = self._decision(self.condition(self._nested(after)))
        written = scope.written()
        recording = Recording(self.name, counter, self.device)
        recording.goes, recording.decision = goes, decision
        for place, (_, stand_in) in enumerate(scope.outside):
            if place not in written:
                recording.constants[stand_in] = scope.before[place]
        recording.state = [*state, *(scope.outside[place][1] for place in written)]
        recording.values = [*self.state, *(scope.before[place] for place in written)]
        recording.after = [*after, *written.values()]
        return recording, [scope.outside[place][0] for place in written]

    def _nested(self, nodes: Sequence[Node]) -> Any:
        """Return new arrays of these values, nested as the state."""
        return unflatten(self.structure, [*map(wrap, nodes)])

    # ---- what is given, and returned -----------------------------------------------------

    def _part(self, leaf: Any, name: str) -> Node:
        """Return a node of a part of a state, without axes a scalar or an array as that is."""
        node, scalar = self._node(leaf, name), stands_for_scalar(leaf)
        if node.shape or is_scalar(node) is scalar:
            return node
        return alias(node, node.keeps, scalar=scalar)

    def _node(self, leaf: Any, name: str) -> Node:
        try:
            if not isinstance(leaf, Handle) or is_numeric(leaf.dtype):
                return as_node(leaf, current())
        except UnsupportedDtypeError:
            pass
        what = f"an array of {leaf.dtype}" if hasattr(leaf, "dtype") else f"a {type(leaf).__name__}"
        raise TypeError(f"{self.name}: {name} is {what}; there are arrays and numbers in a state, "
                        "of dtypes that kernels compute with")

    def _checked(self, result: Any) -> list[Node]:
        """Return the nodes of what the body returns.

        Raises
        ------
        TypeError
            If it is no state like the one that it was given.
        """
        if result is None and self.kinds:
            raise TypeError(f"{self.name}: the body returns None; it has to return the next state, "
                            "also where it has written into the state's arrays")
        leaves, names, structure = named_leaves(result, "state")
        if structure != self.structure:
            raise TypeError(f"{self.name}: the body returns a state that is nested otherwise than "
                            f"what it is given: {_told(names)}, not {_told(self.names)}")
        nodes = []
        for leaf, name, kind in zip(leaves, names, self.kinds, strict=True):
            node = brought(self._part(leaf, name), self.device)
            if node.shape != kind.shape or node.dtype != kind.dtype:
                raise TypeError(f"{self.name}: {name} is {_kind_text(kind)} before the body, and "
                                f"{_kind_text(node.form.kind)} behind it; a state stays of one "
                                f"shape and dtype{_remedy(kind, node.form.kind)}")
            nodes.append(node)
        return nodes

    def _decision(self, result: Any) -> Node:
        """Return the node of what the condition says, without axes."""
        node = self._node(result, "what the condition returns")
        if any(n != 1 for n in node.shape):
            raise TypeError(f"{self.name}: the condition returns one bool or number, not an array "
                            f"of shape {shape_text(node.shape)}; use any() or all()")
        return record.reshape(brought(node, self.device), ())


def _told(names: Sequence[str]) -> str:
    return ", ".join(names) or "nothing"


def _kind_text(kind: Kind) -> str:
    shape = f"of shape {shape_text(kind.shape)}" if kind.shape else "without axes"
    return f"{kind.dtype} {shape}"


def _remedy(before: Kind, after: Kind) -> str:
    if before.shape != after.shape:
        return ""
    return f". Return it .astype({before.dtype}), or begin with {after.dtype}"


class Recording:
    """A step of a loop as it was recorded.

    Attributes
    ----------
    name : str
        Of the loop.
    counter : Node
        Stands for the number of the step.
    constants : dict
        What stands for arrays that stay the same, with their values.
    state, values, after : list of Node
        What stands for the state's arrays, their first values, and those after the step.
    goes, decision : Node or None
        What the condition says before the first step, and after one.
    """

    def __init__(self, name: str, counter: Node, device: Any) -> None:
        self.name, self.counter, self.device = name, counter, device
        self.constants: dict[Node, Node] = {}
        self.state: list[Node] = []
        self.values: list[Node] = []
        self.after: list[Node] = []
        self.goes: Node | None = None
        self.decision: Node | None = None

    def recorded(self, header: tuple[Any, ...]) -> list[Node]:
        """Record the loop; return the nodes of the state in the end.

        ``header`` is how many steps there are, the number of the first and by what it grows, of
        which the first may be a node; nothing where a condition decides.
        """
        if not self.state:
            return []
        decision = [] if self.decision is None else [self.decision]
        recordings = [self._traced([*self.after, *decision])]
        if self.goes is not None:
            recordings.append(self._traced([self.goes]))
        places = {node: place for place, node in enumerate(
            [self.counter, *self.constants, *self.state])}
        made = [found.step(places) for found in recordings]
        steps = Steps(made[0], made[1] if len(made) > 1 else None, 1 + len(self.constants),
                      tuple((node.shape, node.dtype) for node in self.state))
        scalars = [x for found, step in zip(recordings, made, strict=True)
                   for x, known in zip(found.params, step.params, strict=True) if known is None]
        inputs = (*header, *scalars, *self.constants.values(), *self.values)
        kinds = steps.kinds
        node = record.library(repeat(self.name, len(kinds)), inputs, steps, *kinds[0], self.device)
        if len(kinds) == 1:
            return [node]
        return [record.item(node, place, *kind) for place, kind in enumerate(kinds)]

    def _traced(self, wanted: list[Node]) -> _Traced:
        """Trace what a step gives; arrays that it has of itself become constants."""
        own = {self.counter, *self.constants, *self.state}
        found = _Traced(wanted, own)
        for node in found.leaves:
            if node not in own:
                self.constants[node] = node
        return found


class _Traced:
    """What a step gives, traced."""

    def __init__(self, wanted: list[Node], known: set[Node]) -> None:
        self._wanted = wanted
        self._targets = list(dict.fromkeys(
            node for node in wanted if node.buffer is None and node not in known))
        found = trace(self._targets)
        self.params, self._signature = found.params, found.signature
        self._sites = tuple(node.site for node in found.nodes)
        self._leaves = [node for node, entry in zip(
            found.nodes, self._signature[0], strict=True) if entry[0] is None]
        self.leaves = [*self._leaves, *(node for node in wanted if node.buffer is not None)]

    def step(self, places: dict[Node, int]) -> Step:
        """Return it as a `Step`, given which array of a step each node is."""
        outputs = {node: place for place, node in enumerate(self._targets)}
        return Step(
            self._signature, tuple(places[node] for node in self._leaves),
            tuple(x if type(x) is int else None for x in self.params),
            tuple((True, outputs[node]) if node in outputs else (False, places[node])
                  for node in self._wanted), self._sites)
