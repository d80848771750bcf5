"""Gradients of functions, and of what was recorded."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tiledarray.api.arguments import handle_of
from tiledarray.arrays.handle import Handle, wrap
from tiledarray.arrays.tiledarray import TiledArray
from tiledarray.core import BEGINS
from tiledarray.core import history as history_of
from tiledarray.errors import HistoryLost
from tiledarray.gradients.engine import backward, forward
from tiledarray.gradients.notation import zeros_of
from tiledarray.gradients.trees import flatten, leaves_like, unflatten
from tiledarray.graph.dtypes import shape_text
from tiledarray.graph.node import Node
from tiledarray.recording import record
from tiledarray.recording.history import alias, begin, differentiated, end, hold, is_inside

__all__ = [
    "grad", "hessian", "hvp", "jacobian", "jvp", "stop_gradient", "value_and_grad", "variable",
    "vjp",
]

# What `variable` has made: for each array, by identity, the node with which its history begins.
_begun: dict[int, tuple[Any, Node]] = {}


def variable(x: Any) -> TiledArray:
    """Return a new array of the same values, whose history is kept for gradients.

    What is computed from it, in place too, can be differentiated: ``y.grad(x)``.  The history is
    kept as long as its results are; ``variable(y)`` of a result begins a new one (and goes on with
    the old one in a function that `grad` and its like differentiate).

    Parameters
    ----------
    x : array_like
        Of real or complex numbers.

    Returns
    -------
    TiledArray

    Raises
    ------
    TypeError
        If the elements are integers or bools, which have no derivatives.

    Examples
    --------
    >>> import tiledarray as np
    >>> x = np.variable([1.0, 2.0])
    >>> x *= x
    >>> x.sum().grad(x)
    array([2., 4.])
    """
    array = _inexact(x, "variable")
    if array.node.keeps and is_inside(array.node):
        node = begin(array.node)  # a gradient of gradients: this is a part of what is asked for
    else:
        node = begin(stop_gradient(array).node)
        node.keep(BEGINS)
    found: TiledArray = wrap(node)
    key = id(found)
    _begun[key] = weakref.ref(found, lambda _: _begun.pop(key, None)), node
    return found


def stop_gradient(x: Any) -> Any:
    """Return an array of the same values that counts as a constant in gradients.

    Parameters
    ----------
    x : array_like

    Returns
    -------
    TiledArray
        The array itself if it has no history.

    Examples
    --------
    >>> import tiledarray as np
    >>> np.grad(lambda x: (x * np.stop_gradient(x)).sum())(np.array([3.0]))
    array([3.])
    """
    array = handle_of(x)
    if not array.node.keeps:
        return array
    return wrap(alias(array.node, 0))


def _inexact(x: Any, name: str) -> Any:
    """Return a real or complex array.

    Raises
    ------
    TypeError
        If it is none.
    """
    array = handle_of(x)
    if array.dtype.kind not in "fc" and array.dtype.name != "bfloat16":
        raise TypeError(
            f"{name} takes arrays of real or complex numbers, not of {array.dtype}, which have no "
            "derivatives; convert them: x.astype(float)")
    return array


def gradient_of(self: Any, wrt: Any) -> Any:
    """Return the gradient of this number with respect to arrays that it was computed from.

    Parameters
    ----------
    wrt : TiledArray or sequence of TiledArray
        Made by `variable`, which stands for its values at the beginning whatever was written into
        it since; or computed from one.

    Returns
    -------
    TiledArray or list of TiledArray
        Of the shapes and dtypes of the arrays.  Zeros for a variable that this does not depend on.
        It has a history itself, so that it can be differentiated again.

    Raises
    ------
    ValueError
        If this has more than one element, or was not computed from an array that is no variable.
    HistoryLost
        If no history was kept of an array.
    TypeError
        If this is not of real numbers.

    Examples
    --------
    >>> import tiledarray as np
    >>> x = np.variable(3.0)
    >>> slope = (x ** 3).grad(x)
    >>> float(slope), float(slope.grad(x))
    (27.0, 18.0)
    """
    several = isinstance(wrt, (list, tuple))
    arrays = list(wrt) if several else [wrt]
    _check_number(self, "grad")
    nodes = [_beginning(array) for array in arrays]
    output = self.node
    met = {*history_of([output])} if output.keeps else set()
    for array, node in zip(arrays, nodes, strict=True):
        if node not in met and id(array) not in _begun:
            raise ValueError(
                "this was not computed from the array as it is now; take the gradient with "
                "respect to what it was computed from, a variable")
    found = _filled(backward([output], [_one(output)], nodes), nodes)
    return found if several else found[0]


def _beginning(array: Any) -> Node:
    if not isinstance(array, Handle):
        raise TypeError(
            f"a gradient is taken with respect to arrays of tiledarray, not {type(array).__name__}")
    known = _begun.get(id(array))
    node: Node = array.node if known is None else known[1]
    if not node.keeps:
        raise HistoryLost(
            "no history was kept of what this was computed from",
            remedy="declare it first: x = tiledarray.variable(x); or use tiledarray.grad")
    return node


def _check_number(y: Any, name: str) -> None:
    """Check that a result is one real number.

    Raises
    ------
    TypeError, ValueError
        If it is not.
    """
    if not isinstance(y, Handle):
        raise TypeError(
            f"{name} takes a function that returns an array of tiledarray without axes, not "
            f"{type(y).__name__}")
    if y.shape:
        raise ValueError(
            f"{name} takes the gradient of one number, not of an array of shape "
            f"{shape_text(y.shape)}; sum it first, or use jacobian or vjp")
    if y.dtype.kind == "c":
        raise TypeError(
            f"{name} takes the gradient of a real number, not of {y.dtype}; take its real part "
            "first, or use vjp")
    if y.dtype.kind not in "f" and y.dtype.name != "bfloat16":
        raise TypeError(f"{name} takes the gradient of a real number, not of {y.dtype}")


def _one(node: Node) -> Any:
    return wrap(record.full(node.shape, node.dtype.type(1).item(), node.dtype, node.device))


def _filled(values: Sequence[Any], nodes: Sequence[Node]) -> list[Any]:
    """Return zeros in place of what nothing depends on."""
    return [zeros_of(wrap(node)) if value is None else value
            for value, node in zip(values, nodes, strict=True)]


# Functions of functions ---------------------------------------------------------------------------


class _Run:
    """A function run once, with a history from its arguments to its results."""

    def __init__(
        self, function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any],
        argnums: Sequence[int], name: str, has_aux: bool,
    ) -> None:
        trees = tuple(args[number] for number in argnums)
        leaves, self.structure = flatten(trees)
        self.began = [begin(_inexact(leaf, name).node) for leaf in leaves]
        given = list(args)
        for number, tree in zip(
                argnums, unflatten(self.structure, map(wrap, self.began)),
                strict=True):
            given[number] = tree
        try:
            with differentiated(self.began):
                self.result = function(*given, **kwargs)
        except BaseException:
            end(self.began)
            raise
        self.aux = None
        if has_aux:
            self._take_aux(name)

    def _take_aux(self, name: str) -> None:
        if not isinstance(self.result, tuple) or len(self.result) != 2:
            end(self.began)
            raise TypeError(f"{name} with has_aux=True takes a function that returns a pair: "
                            "the value, and what else is wanted")
        self.result, self.aux = self.result

    def tree(self, values: Sequence[Any]) -> tuple[Any, ...]:
        """Return values in the places of the arguments' arrays, a tree for each argument."""
        found: tuple[Any, ...] = unflatten(self.structure, values)
        return found

    def __enter__(self) -> _Run:
        return self

    def __exit__(self, *_: object) -> None:
        end(self.began)


def _numbers(argnums: Any, count: int, name: str) -> tuple[int, ...]:
    """Return which arguments are meant.

    Raises
    ------
    TypeError, ValueError
        If there is none of that number.
    """
    numbers = (argnums,) if isinstance(argnums, int) else tuple(argnums)
    for number in numbers:
        if not -count <= number < count:
            raise ValueError(
                f"{name} with argnums={argnums} takes at least {max(numbers) + 1} arguments by "
                f"position, not {count}")
    found = tuple(number % count for number in numbers)
    if len({*found}) < len(found):
        raise ValueError(f"{name} with argnums={argnums} names an argument twice")
    return found


def value_and_grad(
    function: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """Return a function that returns the value of ``function``, and its gradient.

    Parameters
    ----------
    function : callable
        Returns one real number: an array without axes.  It is ordinary NumPy code, which may write
        into arrays and branch on values.
    argnums : int or sequence of int, default 0
        By which arguments: arrays, numbers, or nested dicts, lists and tuples of them.
    has_aux : bool, default False
        Whether the function returns a pair, whose second part is passed through.

    Returns
    -------
    callable
        Takes what ``function`` takes.  Returns ``(value, gradient)``, or ``((value, aux),
        gradient)``; the gradient is as the argument is, or a tuple for several ``argnums``.

    Raises
    ------
    TypeError
        By the call, if an argument or the result is not of real (an argument may be complex)
        numbers.
    ValueError
        By the call, if the result has axes.
    HistoryLost
        By the call, if the function takes a number out of the recording: ``float(x)``.
    NoDerivative
        By the call, if what it does has no derivative.

    Notes
    -----
    The gradient by a complex argument ``a + ib`` is ``df/da - i df/db``, as in JAX; what the result
    does not depend on has zeros.

    Examples
    --------
    >>> import tiledarray as np
    >>> value, slope = np.value_and_grad(lambda x: (x ** 2).sum())(np.array([1.0, 2.0]))
    >>> float(value), slope
    (5.0, array([2., 4.]))
    """

    @functools.wraps(function)
    def differentiating(*args: Any, **kwargs: Any) -> Any:
        numbers = _numbers(argnums, len(args), "grad")
        with _Run(function, args, kwargs, numbers, "grad", has_aux) as run:
            _check_number(run.result, "grad")
            output = run.result.node
            values = _filled(backward([output], [_one(output)], run.began), run.began)
        trees = run.tree(values)
        gradient = trees[0] if isinstance(argnums, int) else trees
        return ((run.result, run.aux) if has_aux else run.result), gradient

    return differentiating


def grad(
    function: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """Return a function that returns the gradient of ``function``.

    Parameters
    ----------
    function, argnums, has_aux
        As for `value_and_grad`.

    Returns
    -------
    callable
        Returns the gradient, or ``(gradient, aux)``.

    Raises
    ------
    TypeError, ValueError, HistoryLost, NoDerivative
        By the call, as for `value_and_grad`.

    Examples
    --------
    >>> import tiledarray as np
    >>> def energy(u):
    ...     u = u.copy()
    ...     u[1:-1] += 0.5 * (u[2:] - 2 * u[1:-1] + u[:-2])
    ...     return (u ** 2).sum()
    >>> np.grad(energy)(np.array([0.0, 1.0, 0.0, 2.0]))
    array([0. , 1.5, 0. , 5.5])
    """
    both = value_and_grad(function, argnums, has_aux)

    @functools.wraps(function)
    def differentiating(*args: Any, **kwargs: Any) -> Any:
        value, gradient = both(*args, **kwargs)
        return (gradient, value[1]) if has_aux else gradient

    return differentiating


def _outputs(run: _Run) -> tuple[list[Any], Any]:
    """Return the arrays of a result, and how they are nested."""
    leaves, structure = flatten(run.result)
    for leaf in leaves:
        if not isinstance(leaf, Handle):
            raise TypeError(
                f"the function returns {type(leaf).__name__}, not an array of tiledarray")
    return leaves, structure


def vjp(function: Callable[..., Any], *args: Any) -> tuple[Any, Callable[..., Any]]:
    """Return the value of a function, and what takes cotangents of it to those of the arguments.

    Parameters
    ----------
    function : callable
        Returns an array, or nested dicts, lists and tuples of arrays.
    *args : array_like or nested
        Its arguments.

    Returns
    -------
    value : object
    pull : callable
        Takes a cotangent, nested as the value, and returns a tuple: one for each argument.

    Raises
    ------
    TypeError
        If an argument or a result is not of real or complex numbers.
    HistoryLost, NoDerivative
        As `value_and_grad`.

    Examples
    --------
    >>> import tiledarray as np
    >>> value, pull = np.vjp(np.sin, np.array([0.0, 1.0]))
    >>> pull(np.array([1.0, 0.0]))
    (array([1., 0.]),)
    """
    run = _Run(function, args, {}, range(len(args)), "vjp", has_aux=False)
    try:
        outputs, structure = _outputs(run)
    except TypeError:
        end(run.began)
        raise
    nodes = [output.node for output in outputs]  # what is written into them later is no part of it

    def pull(cotangent: Any) -> tuple[Any, ...]:
        leaves = leaves_like(structure, cotangent)
        given = [_shaped(leaf, node, "cotangent") for leaf, node in zip(leaves, nodes, strict=True)]
        return run.tree(_filled(backward(nodes, given, run.began), run.began))

    hold(run.began, pull)
    return run.result, pull


def _shaped(value: Any, node: Node, name: str) -> Any:
    """Return a tangent or cotangent as an array of what it belongs to.

    Raises
    ------
    ValueError
        If its shape is another.
    TypeError
        If it is complex and what it belongs to is not.
    """
    array = handle_of(value)
    if array.shape != node.shape:
        raise ValueError(f"a {name} has the shape of what it belongs to, {shape_text(node.shape)}, "
                         f"not {shape_text(array.shape)}")
    if not np.can_cast(array.dtype, node.dtype, "same_kind"):
        raise TypeError(f"a {name} of {array.dtype} for what is of {node.dtype}")
    return wrap(record.cast(array.node, node.dtype)) if array.dtype != node.dtype else array


def jvp(
    function: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any]
) -> tuple[Any, Any]:
    """Return the value of a function, and its derivative along a direction.

    Parameters
    ----------
    function : callable
    primals, tangents : sequence
        Its arguments, and the direction of each: nested alike.

    Returns
    -------
    value, tangent : object
        Nested alike.

    Raises
    ------
    TypeError
        If an argument or a result is not of real or complex numbers.
    ValueError
        If a tangent has another shape than its argument.
    HistoryLost, NoDerivative
        As `value_and_grad`.

    Examples
    --------
    >>> import tiledarray as np
    >>> np.jvp(lambda x: x * x, [np.array([3.0])], [np.array([1.0])])
    (array([9.]), array([6.]))
    """
    with _Run(function, tuple(primals), {}, range(len(primals)), "jvp", has_aux=False) as run:
        given = leaves_like(run.structure, tuple(tangents))
        directions = [_shaped(t, node, "tangent") for t, node in zip(given, run.began, strict=True)]
        outputs, structure = _outputs(run)
        nodes = [output.node for output in outputs]
        found = _filled(forward(run.began, directions, nodes), nodes)
    return run.result, unflatten(structure, found)


def jacobian(
    function: Callable[..., Any], argnum: int = 0, mode: str = "auto"
) -> Callable[..., Any]:
    """Return a function that returns all derivatives of an array by another.

    Parameters
    ----------
    function : callable
        Returns one array.
    argnum : int, default 0
        By which argument, an array.
    mode : {"auto", "reverse", "forward"}
        Row by row, or column by column; by default what there are fewer of.

    Returns
    -------
    callable
        Returns an array whose shape is that of the result, followed by that of the argument.

    Raises
    ------
    TypeError, HistoryLost, NoDerivative
        By the call, as for `vjp`.
    ValueError
        If the mode is another.

    Examples
    --------
    >>> import tiledarray as np
    >>> np.jacobian(lambda x: x[1:] * x[:-1])(np.array([1.0, 2.0, 3.0]))
    array([[2., 1., 0.],
           [0., 3., 2.]])
    """
    if mode not in ("auto", "reverse", "forward"):
        raise ValueError(f'mode is "auto", "reverse" or "forward", not {mode!r}')

    @functools.wraps(function)
    def differentiating(*args: Any, **kwargs: Any) -> Any:
        numbers = _numbers(argnum, len(args), "jacobian")
        with _Run(function, args, kwargs, numbers, "jacobian", has_aux=False) as run:
            outputs, _ = _outputs(run)
            if len(run.began) != 1 or len(outputs) != 1:
                raise TypeError(
                    "jacobian takes a function of one array that returns one array, not of "
                    f"{len(run.began)} that returns {len(outputs)}")
            (begun,), (output,) = run.began, outputs
            node = output.node
            by_rows = mode == "reverse" or (mode == "auto" and output.size <= wrap(begun).size)
            if by_rows:
                found = _rows(node, begun)
            else:
                found = np.moveaxis(_columns(node, begun), 0, -1)
            return found.reshape((*node.shape, *begun.shape))

    return differentiating


def _unit(node: Node, place: int) -> Any:
    """Return an array like a node's with a 1 at one place."""
    unit = zeros_of(wrap(node))
    unit.reshape(-1)[place] = 1
    return unit


def _rows(output: Node, begun: Node) -> Any:
    rows = [_filled(backward([output], [_unit(output, k)], [begun]), [begun])[0].reshape(-1)
            for k in range(wrap(output).size)]
    return np.stack(rows) if rows else np.zeros(
        (0, wrap(begun).size), begun.dtype, like=wrap(begun))


def _columns(output: Node, begun: Node) -> Any:
    columns = [_filled(forward([begun], [_unit(begun, k)], [output]), [output])[0].reshape(-1)
               for k in range(wrap(begun).size)]
    return np.stack(columns) if columns else np.zeros(
        (0, wrap(output).size), output.dtype, like=wrap(begun))


def hessian(function: Callable[..., Any], argnum: int = 0) -> Callable[..., Any]:
    """Return a function that returns the second derivatives of a number by an array.

    Parameters
    ----------
    function : callable
        Returns one real number.
    argnum : int, default 0
        By which argument, an array.

    Returns
    -------
    callable
        Returns an array whose shape is that of the argument, twice.

    Raises
    ------
    TypeError, ValueError, HistoryLost, NoDerivative
        By the call, as for `value_and_grad`.

    Examples
    --------
    >>> import tiledarray as np
    >>> np.hessian(lambda x: x[0] ** 2 * x[1])(np.array([3.0, 5.0]))
    array([[10.,  6.],
           [ 6.,  0.]])
    """
    return jacobian(grad(function, argnum), argnum, mode="forward")


def hvp(function: Callable[..., Any], x: Any, v: Any) -> Any:
    """Return the product of the second derivatives of a number by a vector.

    Parameters
    ----------
    function : callable
        Of one argument; returns one real number.
    x : array_like or nested
    v : array_like or nested
        As ``x``.

    Returns
    -------
    TiledArray or nested
        As ``x``.

    Raises
    ------
    TypeError, ValueError, HistoryLost, NoDerivative
        As `value_and_grad`.

    Examples
    --------
    >>> import tiledarray as np
    >>> np.hvp(lambda x: (x ** 3).sum(), np.array([1.0, 2.0]), np.array([1.0, 0.0]))
    array([6., 0.])
    """
    return jvp(grad(function), (x,), (v,))[1]


# The class knows nothing of gradients, which are made of its methods.
setattr(TiledArray, "grad", gradient_of)  # noqa: B010  mypy takes an assignment for a mistake
