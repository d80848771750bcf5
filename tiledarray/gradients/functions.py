"""Gradients of functions."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np

from tiledarray.api.arguments import handle_of
from tiledarray.arrays.handle import Handle, stands_for_scalar, wrap
from tiledarray.arrays.shaping import lying_as
from tiledarray.arrays.tracing import is_tracing
from tiledarray.gradients.again import Turn, give_values
from tiledarray.gradients.engine import backward, forward
from tiledarray.gradients.notation import zeros_of
from tiledarray.gradients.variables import check_number, filled, inexact, one_like
from tiledarray.graph.dtypes import shape_text
from tiledarray.graph.node import Node
from tiledarray.recording import record
from tiledarray.recording.history import begin, differentiated, end, hold
from tiledarray.transforms.trees import flatten, leaves_like, unflatten

__all__ = ["grad", "hessian", "hvp", "jacobian", "jvp", "value_and_grad", "vjp"]


class _Run:
    """A function run once, with a history from its arguments to its results."""

    def __init__(
        self, function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any],
        argnums: Sequence[int], name: str, has_aux: bool, turn: Turn | None = None,
    ) -> None:
        trees = tuple(args[number] for number in argnums)
        self.leaves, self.structure = flatten(trees)
        nodes = [inexact(leaf, name).node for leaf in self.leaves]
        if turn is not None and turn.whole:
            give_values(nodes)
        self.began = [begin(node, scalar=stands_for_scalar(leaf))
                      for node, leaf in zip(nodes, self.leaves, strict=True)]
        given = list(args)
        for number, tree in zip(
                argnums, unflatten(self.structure, map(lying_as, self.leaves, self.began)),
                strict=True):
            given[number] = tree
        try:
            with differentiated(self.began), turn.recording() if turn else nullcontext():
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


def _as_given(values: Sequence[Any], leaves: Sequence[Any]) -> list[Any]:
    """Return derivatives by NumPy's arrays as NumPy's: the C code of optimizers takes no other.

    What has a history, or no values yet under `jit`, stays as it is.
    """
    return [value.numpy() if isinstance(leaf, np.ndarray) and not is_tracing()
            and not value.node.keeps else value
            for value, leaf in zip(values, leaves, strict=True)]


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
        gradient)``; the gradient is as the argument is (NumPy's arrays for NumPy's, as optimizers
        want it), or a tuple for several ``argnums``.

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
        turn = Turn(function)
        with _Run(function, args, kwargs, numbers, "grad", has_aux, turn) as run:
            check_number(run.result, "grad")
            output, result = run.result.node, run.result
            found = turn.results(output, run.began)
            if found is None:
                values = backward([output], [one_like(output)], run.began, last=True)
            else:
                result, *values = found
            values = filled(values, run.began)
        turn.end()
        trees = run.tree(_as_given(values, run.leaves))
        gradient = trees[0] if isinstance(argnums, int) else trees
        return ((result, run.aux) if has_aux else result), gradient

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
        return run.tree(filled(backward(nodes, given, run.began, last=True), run.began))

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
        found = filled(forward(run.began, directions, nodes), nodes)
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
            found = found.reshape((*node.shape, *begun.shape))
        return _as_given([found], run.leaves)[0]

    return differentiating


def _unit(node: Node, place: int) -> Any:
    """Return an array like a node's with a 1 at one place."""
    unit = zeros_of(wrap(node))
    unit.reshape(-1)[place] = 1
    return unit


def _rows(output: Node, begun: Node) -> Any:
    rows = []
    for k in range(wrap(output).size):
        (row,) = filled(backward([output], [_unit(output, k)], [begun], last=True), [begun])
        rows.append(row.reshape(-1))
    return np.stack(rows) if rows else np.zeros(
        (0, wrap(begun).size), begun.dtype, like=wrap(begun))


def _columns(output: Node, begun: Node) -> Any:
    columns = [filled(forward([begun], [_unit(begun, k)], [output]), [output])[0].reshape(-1)
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
    leaves, structure = flatten(x)
    found = leaves_like(structure, jvp(grad(function), (x,), (v,))[1])
    return unflatten(structure, _as_given(found, leaves))
