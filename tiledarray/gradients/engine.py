"""Reverse and forward mode over the recorded graph.  No op is named here."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from tiledarray.arrays.handle import wrap
from tiledarray.core import BEGINS, KEEPS, history
from tiledarray.gradients import rules
from tiledarray.gradients.notation import added, zeros_of
from tiledarray.graph.node import Node
from tiledarray.ops.op import Elementwise, Item
from tiledarray.recording import segments
from tiledarray.recording.history import alias, end
from tiledarray.recording.stretch import local


def _active(order: Sequence[Node], roots: Sequence[Node]) -> dict[Node, list[int]]:
    """Return which of the nodes depend on the roots, each with the places of inputs that do."""
    found: dict[Node, list[int]] = {node: [] for node in roots}
    for node in order:
        places = [place for place, x in enumerate(node.inputs) if type(x) is Node and x in found]
        if places:
            found[node] = places
    return found


def _results(order: Sequence[Node]) -> dict[Node, dict[int, Node]]:
    """Return the results of operations that have several, by their places."""
    found: dict[Node, dict[int, Node]] = {}
    for node in order:
        if type(node.op) is Item:
            found.setdefault(node.inputs[0], {})[node.attrs] = node
    return found


class _LettingGo:
    """Lets go of the history of what a backward pass has recorded, once that is computed.

    It would be kept as that of all that is computed from kept values; but only an outer gradient
    asks for it, and where there is none nobody does.

    Parameters
    ----------
    order : sequence of Node
        What the pass goes through.
    wanted : sequence of Node
        With which its history begins.
    """

    EVERY = 256  # nodes; where nothing is evaluated meanwhile, for all is computed at once

    def __init__(self, order: Sequence[Node], wanted: Sequence[Node]) -> None:
        begun = {node for node in wanted if node.keeps == BEGINS}
        self._places = {node: place for place, node in enumerate(order)}
        self._since: Node | None = None
        if order and local.recorder.scope is None and all(
                node in begun for node in order if node.keeps and not _kept_inputs(node)):
            self._since = alias(order[-1], KEEPS)  # the newest
        self._count = local.recorder.count
        self._steps = 0
        self._place = len(order)  # of the node before: what it recorded may still be pending

    def passing(self) -> AbstractContextManager[None]:
        """Say that the pass is under way."""
        return nullcontext() if self._since is None else segments.passing()

    def step(self, node: Node) -> None:
        """Look whether something was computed since; the pass has come to a node."""
        if self._since is None:
            return
        before, self._count = self._count, local.recorder.count
        self._steps += 1
        if self._count < before or self._steps % self.EVERY == 0:
            self._let_go()
            segments.passed(lambda other: self._places.get(other, 0) > self._place)
        self._place = self._places[node]

    def _let_go(self) -> None:
        assert self._since is not None
        own = {*self._places}
        for node in self._since.kept_since():
            if node.keeps == KEEPS and own.issuperset(_kept_inputs(node)):
                own.add(node)
                if node.buffer is not None:
                    node.keep(0)
                    node.forget_inputs()


def _kept_inputs(node: Node) -> list[Node]:
    return [] if node.keeps == BEGINS else [
        x for x in node.inputs if type(x) is Node and x.keeps]


def backward(
    outputs: Sequence[Node], cotangents: Sequence[Any], wanted: Sequence[Node],
    *, last: bool = False,
) -> list[Any]:
    """Return the cotangents of nodes, given those of outputs that were computed from them.

    Parameters
    ----------
    outputs : sequence of Node
    cotangents : sequence of TiledArray
        Of the outputs' shapes and dtypes.
    wanted : sequence of Node
    last : bool
        Whether nobody asks for derivatives of what is found but an outer gradient.

    Returns
    -------
    list of TiledArray or None
        ``None`` where no output depends on the node.

    Raises
    ------
    NoDerivative
        If an operation between them has no rule.
    """
    order = history(list(dict.fromkeys(outputs)))
    active = _active(order, wanted)
    results = _results(order)
    sums: dict[Node, Any] = {}
    parts: dict[Node, dict[int, Any]] = {}  # of operations with several results
    kept = {*wanted}
    for output, given in zip(outputs, cotangents, strict=True):
        if output in active:
            _add(sums, output, given)
    found: dict[Node, Any] = {}
    letting_go = _LettingGo(order if last else (), wanted)
    with letting_go.passing():
        for node in reversed(order):
            places = active.get(node)
            if places is None:
                continue
            letting_go.step(node)
            g: Any = parts.pop(node, None) or sums.pop(node, None)
            if g is None:
                continue
            if node in kept:
                found[node] = g
            if type(node.op) is Item:
                _add(parts.setdefault(node.inputs[0], {}), node.attrs, g)
                continue
            values = rules.pull(node, g, places, results.get(node))
            for place, value in zip(places, values, strict=True):
                if value is not None:
                    _add(sums, node.inputs[place], value)
    return [found.get(node) for node in wanted]


def _add(sums: dict[Any, Any], key: Any, value: Any) -> None:
    before = sums.get(key)
    sums[key] = value if before is None else added(before, value)


def forward(
    inputs: Sequence[Node], tangents: Sequence[Any], outputs: Sequence[Node]
) -> list[Any]:
    """Return the tangents of outputs, given those of what they were computed from.

    Parameters
    ----------
    inputs : sequence of Node
    tangents : sequence of TiledArray
        Of the inputs' shapes and dtypes.
    outputs : sequence of Node

    Returns
    -------
    list of TiledArray or None
        ``None`` where the output depends on no input.

    Raises
    ------
    NoDerivative
        If an operation between them has no rule.
    """
    order = history(list(dict.fromkeys(outputs)))
    several = _results(order)
    known: dict[Node, Any] = dict(zip(inputs, tangents, strict=True))
    parts: dict[Node, dict[int, Any]] = {}  # of operations with several results
    for node in order:
        if node in known:
            continue
        if type(node.op) is Item:
            tangent = parts.get(node.inputs[0], {}).get(node.attrs)
        else:
            moving = {place: known[x] for place, x in enumerate(node.inputs)
                      if type(x) is Node and x in known}
            if not moving:
                continue
            results = several.get(node)
            if results is not None:
                found = _transposed(node, moving, results)
                parts[node] = dict(zip(results, found, strict=True))
                continue
            tangent = _pushed(node, moving)
        if tangent is not None:
            known[node] = tangent
    return [known.get(node) for node in outputs]


def _pushed(node: Node, moving: dict[int, Any]) -> Any:
    op = node.op
    if isinstance(op, Elementwise) and not op.vjp:
        return rules.push(node, moving)
    (found,) = _transposed(node, moving, None)
    return found


def _transposed(
    node: Node, moving: dict[int, Any], results: dict[int, Node] | None
) -> list[Any]:
    """Return tangents by the rule for cotangents: that is linear, and this its transpose.

    Of an operation with several results one for each of them, else one.
    """
    outputs = [node] if results is None else [*results.values()]
    dummies = [zeros_of(wrap(output)).node for output in outputs]
    for dummy in dummies:
        dummy.keep(BEGINS)
    g = wrap(dummies[0]) if results is None else dict(zip(results, map(wrap, dummies), strict=True))
    places = [*moving]
    values = rules.pull(node, g, places, results)
    pairs = [(value.node, moving[place]) for place, value in zip(places, values, strict=True)
             if value is not None]
    found = backward([value for value, _ in pairs], [t for _, t in pairs], dummies)
    end(dummies)
    return found
