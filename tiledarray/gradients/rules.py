"""What one recorded operation contributes: its op's rules, evaluated."""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from types import CodeType
from typing import Any

import numpy as np

from tiledarray.arrays.handle import Handle, wrap
from tiledarray.errors import NoDerivative
from tiledarray.gradients.names import name_of
from tiledarray.gradients.notation import scaled
from tiledarray.graph.node import Node, location
from tiledarray.ops import reduction
from tiledarray.ops.elementwise import BY_NAME
from tiledarray.ops.movement import opaque
from tiledarray.ops.op import Elementwise
from tiledarray.recording import record

_OPERANDS = {"x": 0, "y": 1, "z": 2, "w": 3}
_REAL = BY_NAME["real"]
_FOLDER = os.path.join(os.path.dirname(__file__), "")


class _Scope(dict[str, Any]):
    """The names of a rule; what it does not use is not made."""

    def __init__(self, node: Node, g: Any = None, results: dict[int, Node] | None = None) -> None:
        super().__init__(attrs=node.attrs, g=g)
        self._node = node
        self._results = {} if results is None else results

    def __missing__(self, name: str) -> Any:
        if name in _OPERANDS:
            found = _operand(self._node.inputs[_OPERANDS[name]])
        elif name == "inputs":
            found = [_operand(x) for x in self._node.inputs]
        elif name == "own":
            found = self["attrs"].own(self["g"], self["inputs"])
        elif name == "out":
            found = wrap(self._node)
        elif name == "part":
            found = self._part
        else:
            found = name_of(name)
        self[name] = found
        return found

    def _part(self, place: int, shape: Any, dtype: Any) -> Any:
        """Return one of several results; it is computed again if nothing else holds it."""
        found = self._results.get(place)
        return wrap(record.item(self._node, place, shape, dtype) if found is None else found)


def _operand(x: Any) -> Any:
    return wrap(x) if type(x) is Node else x


@functools.lru_cache(maxsize=4096)
def _compiled(text: str, name: str) -> CodeType:
    return compile(text, f"{_FOLDER}derivative of {name}", "eval")  # no user's line


def _text(rules: Any, node: Node, place: int) -> str:
    if place < len(rules):
        rule = rules[place]
        if type(rule) is str:
            return rule
    return _other_text(rules, node, place)


def _other_text(rules: Any, node: Node, place: int) -> str:
    """Return the rule for one input.

    Raises
    ------
    NoDerivative
        If there is none.
    """
    rule = rules[min(place, len(rules) - 1)] if rules else None
    if isinstance(rule, dict):
        kind = node.inputs[place].dtype.kind
        rule = rule.get(kind if kind in "fc" else "f")
    if rule is None:
        raise NoDerivative(_refusal(node), remedy=(
            "write what it does with functions that have a derivative, or say that it is a "
            "constant: stop_gradient(x)"))
    found: str = rule
    return found


def _refusal(node: Node) -> str:
    name = node.attrs if node.op is opaque else node.op.name
    place = location(node.site)
    where = f" (line {place[1]} of {place[0]})" if place else ""
    of_dtype = f" of {node.dtype}" if node.op is not opaque and (
        node.op.vjp or getattr(node.op, "derivatives", ())) else ""
    return f"{name}{of_dtype} has no derivative here{where}"


def pull(
    node: Node, g: Any, places: Sequence[int], results: dict[int, Node] | None = None
) -> list[Any]:
    """Return what a cotangent of a node's value contributes to those of some of its inputs.

    Parameters
    ----------
    node : Node
    g : TiledArray or dict
        Of an operation with several results those that have a cotangent, by their places.
    places : sequence of int
        Of the inputs.
    results : dict, optional
        The nodes of several results that are there, by their places.

    Returns
    -------
    list
        For each place an array of the input's shape and dtype, or ``None``.

    Raises
    ------
    NoDerivative
        If the op has no rule for it.
    """
    op = node.op
    scope = _Scope(node, g, results)
    found: list[Any] = []
    for place in places:
        if 0 in node.inputs[place].shape:  # nothing belongs to no elements, whatever is computed
            found.append(None)
            continue
        scope["k"] = place
        if isinstance(op, Elementwise) and not op.vjp:
            value = _times(g, _text(op.derivatives, node, place), scope, op.name)
        else:
            text = _text(op.vjp, node, place)
            value = eval(_compiled(text, op.name), {}, scope) if text else None
        found.append(None if value is None else fitted(value, node.inputs[place]))
    return found


def push(node: Node, tangents: dict[int, Any]) -> Any:
    """Return the tangent of a node's value, given those of some inputs; ``None`` if it is zero.

    For operations that have partial derivatives; see `forward` for the others.
    """
    op = node.op
    scope = _Scope(node)
    total = None
    for place, tangent in tangents.items():
        value = _times(tangent, _text(op.derivatives, node, place), scope, op.name)
        if value is not None:
            value = fitted(value, node)
            total = value if total is None else total + value
    return total


def _times(factor: Any, text: str, scope: _Scope, name: str) -> Any:
    if text in ("", "0"):
        return None
    if text == "1":
        return factor
    if text == "-1":
        return -factor
    return scaled(factor, eval(_compiled(text, name), {}, scope))


def fitted(value: Any, like: Node) -> Any:
    """Return a contribution with the shape and the dtype of what it is for."""
    if isinstance(value, Handle):
        node = value._node if value._base is None else value.node
        if node.form.kind is like.form.kind:
            return value
    else:
        node = record.full((), value, np.asarray(value).dtype, like.device)
    if node.dtype.kind == "c" and like.dtype.kind != "c":
        node = record.unary(_REAL, node)
    shape = like.shape
    if node.shape != shape:
        ahead = len(node.shape) - len(shape)
        axes = [axis for axis, size in enumerate(node.shape)
                if axis < ahead or (shape[axis - ahead] == 1 and size != 1)]
        if axes:
            node = record.reduce(reduction.sum, node, axes)
            node = record.reshape(node, tuple(
                1 if axis + ahead in axes else size for axis, size in enumerate(shape)))
        node = record.broadcast_to(node, shape)
    return wrap(record.cast(node, like.dtype))
