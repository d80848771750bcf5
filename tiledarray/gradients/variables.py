"""Arrays whose history is kept, and the gradients of what was computed from them."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

from tiledarray.api.arguments import handle_of
from tiledarray.arrays.handle import Handle, wrap
from tiledarray.arrays.tiledarray import TiledArray
from tiledarray.core import BEGINS
from tiledarray.core import history as history_of
from tiledarray.errors import HistoryLost
from tiledarray.gradients.engine import backward
from tiledarray.gradients.notation import zeros_of
from tiledarray.graph.dtypes import UnsupportedDtypeError, shape_text
from tiledarray.graph.node import Node
from tiledarray.recording import record
from tiledarray.recording.history import alias, begin, is_inside

__all__ = ["stop_gradient", "variable"]

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
    array = inexact(x, "variable")
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


def inexact(x: Any, name: str) -> Any:
    """Return a real or complex array.

    Raises
    ------
    TypeError
        If it is none.
    """
    try:
        array = handle_of(x)
    except UnsupportedDtypeError as error:
        raise TypeError(
            f"{name} takes arrays of real or complex numbers, not {type(x).__name__}; what is no "
            "array is an argument of its own, or a field of a dataclass that is fixed") from error
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
    check_number(self, "grad")
    nodes = [_beginning(array) for array in arrays]
    output = self.node
    met = {*history_of([output])} if output.keeps else set()
    for array, node in zip(arrays, nodes, strict=True):
        if node not in met and id(array) not in _begun:
            raise ValueError(
                "this was not computed from the array as it is now; take the gradient with "
                "respect to what it was computed from, a variable")
    found = filled(backward([output], [one_like(output)], nodes), nodes)
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


def check_number(y: Any, name: str) -> None:
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


def one_like(node: Node) -> Any:
    """Return ones of the shape and dtype of a value: the cotangent of what is differentiated."""
    return wrap(record.full(node.shape, node.dtype.type(1).item(), node.dtype, node.device))


def filled(values: Sequence[Any], nodes: Sequence[Node]) -> list[Any]:
    """Return zeros in place of what nothing depends on."""
    return [zeros_of(wrap(node)) if value is None else value
            for value, node in zip(values, nodes, strict=True)]


# In the place of what has imported this (`tiledarray.__init__`).
setattr(TiledArray, "grad", gradient_of)  # noqa: B010  mypy takes an assignment for a mistake
