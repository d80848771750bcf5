"""`vmap`: a function of one sample as a function of many."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tiledarray.api.arguments import handle_of, normalize_axis_index
from tiledarray.api.manipulation import moveaxis
from tiledarray.arrays.handle import Handle, wrap
from tiledarray.arrays.tracing import SampleScope, make_placeholder, traced
from tiledarray.core import BEGINS
from tiledarray.errors import LeaveToNumPy
from tiledarray.gradients.batching import Value, batched
from tiledarray.graph.dtypes import shape_text
from tiledarray.graph.node import Node, kind_of
from tiledarray.recording import record
from tiledarray.recording.history import end
from tiledarray.transforms.trees import flatten, named_leaves, prefixes, unflatten

__all__ = ["vmap"]

_SAME_FOR_ALL = "pass what is the same for all by position, with None in in_axes"


def vmap(function: Callable[..., Any], in_axes: Any = 0, out_axes: Any = 0) -> Callable[..., Any]:
    """Return a function that does for many samples what ``function`` does for one.

    The function is recorded once, for one sample, and that again with an axis of the samples in
    every value: the work of all of them is done by the same few kernels as that of one.

    Parameters
    ----------
    function : callable
        Takes and returns arrays, numbers, or nested dicts, lists, tuples and dataclasses of them.
        It may write into its arguments, which are its own and lie in row-major order, and into
        arrays that it makes.
    in_axes : int, None or nested, default 0
        Along which axis of the arguments the samples lie: one for all, or a tuple or list with one
        for each argument by position, which may be nested as the argument is.  None where an
        argument is the same for all samples.  Arguments by name have them along axis 0.
    out_axes : int, None or nested, default 0
        Where to put the samples' axis in the results.  None of a result that is the same for all.

    Returns
    -------
    callable

    Raises
    ------
    ValueError
        By the call, if arguments have other numbers of samples or no such axis, if none has
        samples, if ``in_axes`` or ``out_axes`` is nested otherwise than the arguments or results,
        or if a result differs from sample to sample where ``out_axes`` is None.
    TypeError
        By the call: the function looks at a value that differs (``if x > 0``, ``float(x)``), since
        what it does next would depend on that value; draws random numbers, which would be the same
        for all samples; writes into an array from outside; or stores one where it outlives the
        call.

    Notes
    -----
    It composes with `grad` and its like, with `jit` and with itself.

    Examples
    --------
    >>> import tiledarray as np
    >>> def loss(w, x, y):
    ...     return (w @ x - y) ** 2
    >>> w, x, y = np.array([1.0, 2.0]), np.eye(2), np.array([0.0, 1.0])
    >>> np.vmap(np.grad(loss), in_axes=(None, 0, 0))(w, x, y)
    array([[2., 0.],
           [0., 2.]])
    """

    @functools.wraps(function)
    def mapped(*args: Any, **kwargs: Any) -> Any:
        leaves = _leaves_of(function, args, kwargs, in_axes)
        count = _count_of(leaves)
        every = [None if leaf.axis is None else moveaxis(leaf.array, leaf.axis, 0).node
                 for leaf in leaves]
        structure = flatten((args, kwargs))[1]
        given: dict[Node, Node] = {}
        try:
            nodes, result = _recorded(function, structure, leaves, every, given)
        finally:
            end([node for node in given if node.keeps == BEGINS])
        values = batched(nodes, given, count)
        axes = _out_axes(out_axes, result, len(values))
        return unflatten(result, [
            _result(value, axis, count) for value, axis in zip(values, axes, strict=True)])

    return mapped


class _Leaf(NamedTuple):
    """What is given, what to call it, and along which axis its samples lie."""

    value: Any
    name: str
    axis: int | None

    @property
    def array(self) -> Any:
        """The array of all samples."""
        return handle_of(self.value)


# ---- arguments -----------------------------------------------------------------------------------


def _leaves_of(
    function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], in_axes: Any
) -> list[_Leaf]:
    """Return the arrays and numbers among the arguments.

    Raises
    ------
    ValueError
        If the axes do not fit them.
    TypeError
        If the axes are no numbers.
    """
    if isinstance(in_axes, (tuple, list)) and len(in_axes) != len(args):
        raise ValueError(
            f"vmap with in_axes for {len(in_axes)} arguments takes as many by position, not "
            f"{len(args)}")
    names = _names(function, len(args))
    found = []
    for k, (name, argument) in enumerate(zip(names, args, strict=True)):
        prefix = in_axes[k] if isinstance(in_axes, (tuple, list)) else in_axes
        found += _said(name, argument, prefix)
    for name in sorted(kwargs):
        found += _said(name, kwargs[name], 0)
    return found


def _names(function: Any, count: int) -> list[str]:
    try:
        parameters = [*inspect.signature(function).parameters.values()]
    except (TypeError, ValueError):
        parameters = []
    named = [x.name for x in parameters
             if x.kind in (x.POSITIONAL_ONLY, x.POSITIONAL_OR_KEYWORD)][:count]
    return named + [f"argument {k}" for k in range(len(named), count)]


def _said(name: str, argument: Any, prefix: Any) -> list[_Leaf]:
    leaves, names, _ = named_leaves(argument, name)
    try:
        axes = prefixes(prefix, argument)
    except ValueError as error:
        raise ValueError(f"vmap: in_axes is nested otherwise than {name}: {error}") from None
    found = []
    for leaf, own, axis in zip(leaves, names, axes, strict=True):
        if axis is not None:
            axis = _axis_of(_samples(leaf, own).shape, own, axis)
        found.append(_Leaf(leaf, own, axis))
    return found


def _samples(leaf: Any, name: str) -> Any:
    try:
        return handle_of(leaf)
    except LeaveToNumPy:
        if hasattr(leaf, "dtype"):
            raise
        raise TypeError(f"vmap: {name} is a {type(leaf).__name__}, which has no samples; "
                        f"{_SAME_FOR_ALL}") from None


def _axis_of(shape: tuple[int, ...], name: str, axis: Any) -> int:
    if isinstance(axis, bool) or not isinstance(axis, int):
        raise TypeError(f"vmap: the axes of samples are ints or None, not {axis!r}")
    if not -len(shape) <= axis < len(shape):
        told = f"; {_SAME_FOR_ALL}" if not shape else ""
        raise ValueError(
            f"vmap: {name} of shape {shape_text(shape)} has no axis {axis} of samples{told}")
    found: int = normalize_axis_index(axis, len(shape))
    return found


def _count_of(leaves: Sequence[_Leaf]) -> int:
    """Return how many samples there are.

    Raises
    ------
    ValueError
        If there are none, or not the same number everywhere.
    """
    shapes = [(leaf, leaf.array.shape) for leaf in leaves if leaf.axis is not None]
    if not shapes:
        raise ValueError("vmap takes at least one argument with an axis of samples: in_axes says "
                         "None of all")
    sizes = {shape[leaf.axis] for leaf, shape in shapes}
    if len(sizes) > 1:
        told = "; ".join(f"{leaf.name} of shape {shape_text(shape)} has {shape[leaf.axis]} along "
                         f"axis {leaf.axis}" for leaf, shape in shapes)
        raise ValueError(f"vmap takes arguments of one number of samples: {told}")
    (count,) = sizes
    return int(count)


# ---- recording -----------------------------------------------------------------------------------


def _recorded(
    function: Any, structure: Any, leaves: Sequence[_Leaf], every: Sequence[Node | None],
    given: dict[Node, Node],
) -> tuple[list[Node], Any]:
    """Run the function for one sample; return the nodes of its results, and how they are nested.

    What stands for the samples goes into ``given``.
    """
    kept = any(node.keeps for node in every if node is not None)
    with traced(lambda: SampleScope(history=kept)) as scope:
        nodes, nested = _run(function, structure, leaves, every, given)
        scope.check_looks()
        if scope.leaked():
            raise TypeError(
                "a function under tiledarray.vmap stored an array where it outlives the call (a "
                "global name, an attribute, a list); it would be that of one sample. Return it")
    return nodes, nested


def _run(
    function: Any, structure: Any, leaves: Sequence[_Leaf], every: Sequence[Node | None],
    given: dict[Node, Node],
) -> tuple[list[Node], Any]:
    arguments: list[Any] = []
    for leaf, node in zip(leaves, every, strict=True):
        if node is None:  # an array of the function's own, of the same value
            own = isinstance(leaf.value, Handle)
            arguments.append(wrap(leaf.value.node) if own else leaf.value)
            continue
        sample = make_placeholder(kind_of(node.shape[1:], node.dtype, node.device))
        sample.keep(BEGINS)
        given[sample] = node
        arguments.append(wrap(sample))
    args, kwargs = unflatten(structure, arguments)
    results, nested = flatten(function(*args, **kwargs))
    return [_returned(result).node for result in results], nested


def _returned(result: Any) -> Any:
    try:
        return handle_of(result)
    except LeaveToNumPy:
        if hasattr(result, "dtype"):
            raise
        raise TypeError("vmap takes a function that returns arrays, numbers, or nested dicts, "
                        f"lists and tuples of them, not a {type(result).__name__}") from None


# ---- results -------------------------------------------------------------------------------------


def _out_axes(out_axes: Any, structure: Any, count: int) -> list[Any]:
    """Return where to put the axis of samples in each result."""
    try:
        return prefixes(out_axes, unflatten(structure, range(count)))
    except ValueError as error:
        raise ValueError(
            f"vmap: out_axes is nested otherwise than what the function returns: {error}"
        ) from None


def _result(value: Value, axis: Any, count: int) -> Any:
    node = value.node
    if axis is None:
        if value.mapped:
            raise ValueError("vmap: a result differs from sample to sample, so that out_axes has "
                             "to say where their axis is, not None")
        return wrap(node)
    if not value.mapped:
        node = record.broadcast_to(node, (count, *node.shape))
    return moveaxis(wrap(node), 0, _axis_of(node.shape, "a result", axis))
