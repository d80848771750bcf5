"""Rules of the user's own, and histories that are recorded again instead of kept."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tiledarray.api.arguments import handle_of
from tiledarray.arrays.handle import Handle, wrap
from tiledarray.arrays.tracing import is_tracing
from tiledarray.core import BEGINS, KEEPS
from tiledarray.errors import HistoryLost
from tiledarray.gradients.engine import backward
from tiledarray.gradients.functions import vjp
from tiledarray.gradients.notation import zeros_of
from tiledarray.gradients.vmap import vmap
from tiledarray.graph.dtypes import is_numeric, shape_text
from tiledarray.graph.node import Node
from tiledarray.ops.op import Library
from tiledarray.recording import record
from tiledarray.recording.history import alias, end
from tiledarray.recording.stretch import look
from tiledarray.transforms.trees import flatten, leaves_like, unflatten

__all__ = ["checkpoint", "custom_jvp", "custom_vjp"]


def _first(xp: Any, value: Any, *others: Any, attrs: Any, shape: Any, dtype: Any) -> Any:
    return xp.array(value, copy=True)


# The value of a function, its arguments, and what its rule keeps.  `attrs` is a `_Call`.
_custom = Library("custom", _first, vjp=("", "own[k - 1]"),
                  batch="call.again(attrs.of(call.mapped))", calls_back=True)


class _UnderWay(threading.local):
    def __init__(self) -> None:
        self.rules: list[Any] = []  # whose values are being computed


_under_way = _UnderWay()


class _Fixed:
    """An argument that is no array, which equals one of the same type and value."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Fixed) and type(self.value) is type(other.value) and (
            self.value is other.value or (hash(self) == hash(other) and self.value == other.value))

    def __hash__(self) -> int:
        try:
            return hash((type(self.value), self.value))
        except TypeError:
            return id(self.value)


@dataclass(frozen=True)
class _Nesting:
    """How arrays are nested, and what is no array among them: a leaf is that or ``None``."""

    structure: Any
    leaves: tuple[_Fixed | None, ...]

    @property
    def count(self) -> int:
        """How many arrays there are."""
        return self.leaves.count(None)

    def filled(self, arrays: Iterable[Any], *, alone: bool = False) -> Any:
        """Return arrays nested like that, beside them what is no array, or ``None``."""
        rest = iter(arrays)
        return unflatten(self.structure, [
            next(rest) if leaf is None else None if alone else leaf.value for leaf in self.leaves])

    def arrays_of(self, tree: Any) -> list[Any]:
        """Return what another structure like that has in the places of the arrays."""
        found = leaves_like(self.structure, tree)
        return [each for each, leaf in zip(found, self.leaves, strict=True) if leaf is None]


def _taken_apart(tree: Any, numbers: tuple[type, ...]) -> tuple[list[Any], _Nesting]:
    """Return the arrays in a nested structure, and how they are nested.

    Numbers of these types are arrays, too.
    """
    leaves, structure = flatten(tree)
    fixed = tuple([None if _is_array(leaf, numbers) else _Fixed(leaf) for leaf in leaves])
    arrays = [leaf for leaf, other in zip(leaves, fixed, strict=True) if other is None]
    return arrays, _Nesting(structure, fixed)


def _is_array(leaf: Any, numbers: tuple[type, ...]) -> bool:
    dtype = getattr(leaf, "dtype", None)
    if isinstance(dtype, np.dtype):
        return is_numeric(dtype)
    return type(leaf) in numbers or hasattr(leaf, "__array__")


@dataclass(frozen=True)
class _Call:
    """A use of a function with a rule: how its arguments and what the rule keeps are nested."""

    rule: Callable[..., Any]
    arguments: _Nesting
    kept: _Nesting
    name: str

    def own(self, g: Any, inputs: Sequence[Any]) -> list[Any]:
        """Return what a cotangent contributes to the arrays among the arguments, then ``None``."""
        given, others = inputs[1:1 + self.arguments.count], inputs[1 + self.arguments.count:]
        found = self.arguments.arrays_of(
            self.rule(self.arguments.filled(given), self.kept.filled(others), g))
        own = [self._fitting(value, array) for value, array in zip(found, given, strict=True)]
        return [*own, *(None for _ in others)]

    def _fitting(self, value: Any, array: Any) -> Any:
        """Return what the rule gives for an array, ``None`` for nothing or a zero of Python's."""
        if value is None or (type(value) in (int, float) and value == 0):
            return None
        what = f"the rule of {self.name} gives a cotangent"
        return _shaped_as(value, handle_of(array).shape, what)

    def of(self, mapped: tuple[bool, ...]) -> _CallOfSamples:
        """Return what it is for many samples."""
        return _CallOfSamples(self, mapped)


def _shaped_as(value: Any, shape: tuple[int, ...], what: str) -> Any:
    found = handle_of(value)
    if found.shape != shape:
        raise ValueError(f"{what} of the shape of what it belongs to, {shape_text(shape)}, not "
                         f"{shape_text(found.shape)}")
    return found


@dataclass(frozen=True)
class _CallOfSamples:
    """A use of a function with a rule for many samples: which inputs differ, and for one."""

    one: Any
    mapped: tuple[bool, ...]

    def own(self, g: Any, inputs: Sequence[Any]) -> list[Any]:
        """Return what `_Call.own` does; where an input is one for all, of each sample."""
        axes = [0 if each else None for each in self.mapped]
        found: list[Any] = vmap(self.one.own, (0, axes))(g, [*inputs])
        return found

    def of(self, mapped: tuple[bool, ...]) -> _CallOfSamples:
        """Return what it is for many of those many."""
        return _CallOfSamples(self, mapped)


class _Arguments:
    """The arguments of a function with a rule, and the arrays that it is given in their places."""

    def __init__(self, arguments: tuple[Any, ...], keeps: int,
                 numbers: tuple[type, ...] = (int, float, complex)) -> None:
        leaves, self.nesting = _taken_apart(arguments, numbers)
        self.nodes = [handle_of(leaf).node for leaf in leaves]
        self._leaves = [wrap(alias(node, keeps)) if node.keeps else leaf
                        for leaf, node in zip(leaves, self.nodes, strict=True)]
        self._given = [(leaf, leaf.node) for leaf in self._leaves if isinstance(leaf, Handle)]

    @property
    def given(self) -> Any:
        """The arguments as the function gets them: it can be told whether it uses these."""
        return self.nesting.filled(self._leaves)

    def recorded(self, rule: Callable[..., Any], value: Any, kept: Any, name: str) -> Any:
        """Return the function's value as one that has the rule.

        Raises
        ------
        TypeError
            If it is no array.
        HistoryLost
            If it was computed from something else with a history, or the function has written
            into an argument.
        """
        if not isinstance(value, Handle):
            raise TypeError(f"{name} takes a function that returns one array, not "
                            f"{type(value).__name__}")
        node = value.node
        if any(leaf.node is not before for leaf, before in self._given):
            raise HistoryLost(f"a function under {name} writes into an argument",
                              remedy="write into a copy: x = x.copy()")
        if _reaches_beyond(node, {given for _, given in self._given}):
            raise HistoryLost(
                f"a function under {name} uses an array with a history that is no argument of it",
                remedy="pass it as an argument, or say that it is a constant: stop_gradient(x)")
        others, nested = _taken_apart(kept, (int, float, complex))
        nodes = [*self.nodes, *(handle_of(leaf).node for leaf in others)]
        call = _Call(rule, self.nesting, nested, name)
        return wrap(record.library(_custom, (node, *nodes), call, node.shape, node.dtype))


def _reaches_beyond(value: Node, arguments: set[Node]) -> bool:
    """Whether a value has a history that is not that of the arguments."""
    waiting, seen = [value] if value.keeps else [], {value}
    while waiting:
        node = waiting.pop()
        if node in arguments:
            continue
        above = [] if node.keeps == BEGINS else [
            x for x in node.inputs if type(x) is Node and x.keeps]
        if not above:
            return True
        waiting += [x for x in above if x not in seen]
        seen.update(above)
    return False


class custom_vjp:  # noqa: N801  a decorator
    """A function with a rule of its own for reverse mode.

    Parameters
    ----------
    function : callable
        Returns one array; its arguments are arrays, nested dicts, lists and tuples of them, or
        anything else, which has no cotangent and no tangent: ``None`` stands there.

    Notes
    -----
    Forward mode takes the transpose of the rule, which is linear in the cotangent.

    Examples
    --------
    >>> import tiledarray as np
    >>> @np.custom_vjp
    ... def step(x):
    ...     return np.where(x > 0, 1.0, 0.0)
    >>> step.defvjp(lambda x: (step(x), x), lambda x, g: (g * np.exp(-x * x),))
    >>> np.grad(lambda x: step(x).sum())(np.array([0.0]))
    array([1.])
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        functools.update_wrapper(self, function)
        self._function = function
        self._forward: Callable[..., Any] | None = None
        self._backward: Callable[..., Any] | None = None

    def defvjp(self, forward: Callable[..., Any], backward: Callable[..., Any]) -> None:
        """Say what the rule is.

        Parameters
        ----------
        forward : callable
            Takes what the function takes; returns its value, and what the rule needs: nested
            arrays.
        backward : callable
            Takes what the rule needs and a cotangent of the value; returns a tuple: the cotangent
            of each argument, nested as it is and of its shape; ``None`` or 0 where there is none.
        """
        self._forward, self._backward = forward, backward

    def __call__(self, *args: Any) -> Any:
        """Call the function; what a gradient asks of it is the rule."""
        if self._forward is None or self in _under_way.rules or not _has_history(args):
            return self._function(*args)
        arguments = _Arguments(args, KEEPS)
        _under_way.rules.append(self)  # which may call the function itself
        try:
            value, kept = self._forward(*arguments.given)
        finally:
            _under_way.rules.remove(self)
        return arguments.recorded(self._rule, value, kept, "custom_vjp")

    def _rule(self, arguments: tuple[Any, ...], kept: Any, g: Any) -> Any:
        assert self._backward is not None
        found = self._backward(kept, g)
        if not isinstance(found, tuple) or len(found) != len(arguments):
            raise TypeError("the rule of custom_vjp returns a tuple of a cotangent for each of "
                            f"{len(arguments)} arguments")
        return found


class custom_jvp:  # noqa: N801  a decorator
    """A function with a rule of its own for its derivative along a direction.

    Parameters
    ----------
    function : callable
        Returns one array; its arguments are arrays, nested dicts, lists and tuples of them, or
        anything else, which has no cotangent and no tangent: ``None`` stands there.

    Notes
    -----
    Reverse mode takes the transpose of the rule, which has to be linear in the tangents.

    Examples
    --------
    >>> import tiledarray as np
    >>> @np.custom_jvp
    ... def softplus(x):
    ...     return np.logaddexp(x, 0.0)
    >>> softplus.defjvp(lambda x, v: (softplus(*x), v[0] / (1 + np.exp(-x[0]))))
    >>> np.grad(lambda x: softplus(x).sum())(np.array([0.0]))
    array([0.5])
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        functools.update_wrapper(self, function)
        self._function = function
        self._derivative: Callable[..., Any] | None = None

    def defjvp(self, derivative: Callable[..., Any]) -> None:
        """Say what the rule is.

        Parameters
        ----------
        derivative : callable
            Takes the arguments and the tangents of each, two tuples; returns the value and its
            tangent.
        """
        self._derivative = derivative

    def __call__(self, *args: Any) -> Any:
        """Call the function; what a gradient asks of it is the rule."""
        if self._derivative is None or not _has_history(args):
            return self._function(*args)
        arguments = _Arguments(args, 0)
        value = self._function(*arguments.given)
        return arguments.recorded(self._rule, value, (), "custom_jvp")

    def _rule(self, arguments: tuple[Any, ...], kept: Any, g: Any) -> Any:
        assert self._derivative is not None
        arrays, nesting = _taken_apart(arguments, (int, float, complex))
        dummies = [zeros_of(handle_of(array)).node for array in arrays]
        for node in dummies:
            node.keep(BEGINS)
        _, tangent = self._derivative(arguments, nesting.filled(map(wrap, dummies), alone=True))
        output: Node = _shaped_as(tangent, g.shape, "the rule of custom_jvp gives a tangent").node
        found = backward([output], [g], dummies)
        values = [zeros_of(wrap(node)) if value is None else value
                  for value, node in zip(found, dummies, strict=True)]
        end(dummies)
        return nesting.filled(values, alone=True)


def _has_history(args: Any) -> bool:
    return any(isinstance(leaf, Handle) and leaf.node.keeps for leaf in flatten(args)[0])


def checkpoint(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function whose history is not kept: a gradient records it again.

    What a gradient needs of it is its arguments, and the time to compute it once more.

    Parameters
    ----------
    function : callable
        Returns one array; its arguments are arrays, nested dicts, lists and tuples of them, or
        anything else, which it gets as it is.  Called again it does the same: it draws no random
        numbers, reads nothing that changes, and writes into nothing but arrays of its own.

    Returns
    -------
    callable

    Examples
    --------
    >>> import tiledarray as np
    >>> def steps(u):
    ...     for _ in range(100):
    ...         u = u + 0.01 * np.sin(u)
    ...     return u
    >>> def end(u):
    ...     for _ in range(10):
    ...         u = np.checkpoint(steps)(u)
    ...     return u.sum()
    >>> np.grad(end)(np.array([0.0])).shape
    (1,)
    """

    @functools.wraps(function)
    def checkpointed(*args: Any, **kwargs: Any) -> Any:
        if not _has_history((args, kwargs)):
            return function(*args, **kwargs)
        arguments = _Arguments((args, kwargs), 0, (float, complex))  # an int says how often, or so
        args, kwargs = arguments.given
        value = function(*args, **kwargs)
        if isinstance(value, Handle) and not is_tracing():
            look([value.node])  # or what it is computed from would be kept until it is asked for
        return arguments.recorded(rule, value, (), "checkpoint")

    def rule(arguments: tuple[Any, ...], kept: Any, g: Any) -> Any:
        leaves, structure = flatten(arguments)
        places = [place for place, leaf in enumerate(leaves)
                  if isinstance(leaf, Handle) and leaf.dtype.kind in "fc"]

        def nested(others: Sequence[Any], values: Sequence[Any]) -> Any:
            by_place = dict(zip(places, values, strict=True))
            return unflatten(structure, [
                by_place.get(place, other) for place, other in enumerate(others)])

        def again(*values: Any) -> Any:
            args, kwargs = nested(leaves, values)
            return function(*args, **kwargs)

        found = vjp(again, *(leaves[place] for place in places))[1](g)
        return nested([None] * len(leaves), found)

    return checkpointed
