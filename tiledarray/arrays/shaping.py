"""Methods of `TiledArray` that give views, or copies where NumPy's would be copies."""

from __future__ import annotations

import builtins
import operator
from typing import Any

import numpy as np

from tiledarray.arrays import reducing, views
from tiledarray.arrays.handle import Handle, as_dtype, stands_for_scalar, view_of, wrap
from tiledarray.graph.node import Node
from tiledarray.recording import record
from tiledarray.recording.stretch import local


def place_of(axis: Any, ndim: int, name: str | None = None) -> int:
    """Return an axis, counted from the front.

    Raises
    ------
    numpy.exceptions.AxisError
        If there is no such axis.
    """
    number = operator.index(axis)
    if not -ndim <= number < ndim:
        raise np.exceptions.AxisError(number, ndim, name)
    return number % ndim


def lengths_of(arguments: tuple[Any, ...]) -> tuple[int, ...]:
    """Return ints given one by one or as a sequence."""
    if len(arguments) == 1:
        (given,) = arguments
        if isinstance(given, (tuple, list)) or (type(given) is not int and np.ndim(given) > 0):
            arguments = tuple(given)
    return tuple(operator.index(length) for length in arguments)


def is_dense(array: Any) -> bool:
    """Whether NumPy's array would be contiguous in row-major order."""
    expected = views.dense_strides(array.shape, array.itemsize)
    return 0 in array.shape or all(
        size == 1 or stride == dense
        for size, stride, dense in zip(array.shape, array.strides, expected, strict=True)
    )


def lying_as(array: Any, node: Node) -> Any:
    """Return an array of its own of this value, taken to lie in memory as another array does.

    What NumPy copies of that one, for its elements do not follow one another, is copied of this.
    """
    made = wrap(node)
    if isinstance(array, np.ndarray):
        return made if array.flags.c_contiguous else view_of(made, views.Lying(array.strides))
    base = array._base if isinstance(array, Handle) else None
    if base is None:
        return made
    scope = local.recorder.scope
    if scope is not None and id(array.origin()) in scope.sparse:
        scope.sparse.add(id(made))  # how that one lies is not known, nor asked yet
        return view_of(made, views.identity(node.shape))
    return made if is_dense(array) else view_of(made, views.Lying(array.strides))


def reshape(self: Any, *shape: Any, order: str = "C", copy: bool | None = None) -> Any:
    """Return the elements in another shape: a view where NumPy would give one.

    Raises
    ------
    ValueError
        If the size would change, the order is unknown, or ``copy=False`` and it takes a copy.
    """
    lengths = lengths_of(shape)
    wanted = views.new_shape(self.shape, lengths)
    if order == "A":
        order = "F" if self.flags.fnc else "C"
    if order == "F":
        return self.T.reshape(wanted[::-1], copy=copy).T
    if order != "C":
        raise ValueError(f"order must be one of 'C', 'F', 'A' (got {order!r})")
    fits = self._base is None or views.reshaped_strides(
        self.shape, self.strides, self.itemsize, wanted
    ) is not None
    if not fits and copy is False:
        raise ValueError("Unable to avoid creating a copy while reshaping.")
    if not fits or copy:
        return wrap(record.reshape(self.node, wanted))
    return _view(self, views.Reshaped(wanted))


def _view(array: Any, step: views.Step) -> Any:
    """Return the view that a step leads to; of NumPy's scalars without axes it is no array."""
    view = view_of(array, step)
    return wrap(view.node) if not view.shape and stands_for_scalar(array) else view


def ravel(self: Any, order: str = "C") -> Any:
    """Return the elements along one axis: a view where NumPy would give one."""
    if order == "K":
        strides = self.strides
        places = sorted(range(self.ndim), key=lambda axis: -abs(strides[axis]))
        return self.transpose(places).ravel()
    if order == "A":
        order = "F" if self.flags.fnc else "C"
    if order == "F":
        return self.T.ravel()
    return self.reshape(-1, copy=not is_dense(self), order=order)


def flatten(self: Any, order: str = "C") -> Any:
    """Return a copy of the elements along one axis."""
    return self.ravel(order).copy()


def transpose(self: Any, *axes: Any) -> Any:
    """Return a view with the axes in another order, by default reversed.

    Raises
    ------
    ValueError
        If the axes are not each of the array's once.
    """
    ndim = self.ndim
    if not axes or (len(axes) == 1 and axes[0] is None):
        places: tuple[int, ...] = tuple(reversed(range(ndim)))
    else:
        given = lengths_of(axes)
        if len(given) != ndim:
            raise ValueError("axes don't match array")
        places = tuple(place_of(axis, ndim) for axis in given)
        if len(set(places)) != ndim:
            raise ValueError("repeated axis in transpose")
    return _view(self, views.permutation(self.shape, places))


def swapaxes(self: Any, axis1: int, axis2: int) -> Any:
    """Return a view with two axes exchanged."""
    places = list(range(self.ndim))
    first, second = place_of(axis1, self.ndim, "axis1"), place_of(axis2, self.ndim, "axis2")
    places[first], places[second] = second, first
    return view_of(self, views.permutation(self.shape, places))


def squeeze(self: Any, axis: Any = None) -> Any:
    """Return a view without axes of length one; the array itself if there are none.

    Raises
    ------
    ValueError
        If an axis that is named is longer than one.
    numpy.exceptions.AxisError
        If there is no such axis.
    """
    shape = self.shape
    if axis is None:
        dropped = {place for place, size in enumerate(shape) if size == 1}
    else:
        dropped = set(reducing.axes_of(axis, len(shape)))
        if any(shape[place] != 1 for place in dropped):
            raise ValueError(
                "cannot select an axis to squeeze out which has size not equal to one"
            )
    if not dropped:
        return self
    key = tuple(0 if place in dropped else slice(None) for place in range(len(shape)))
    return self[(..., *key)]


def diagonal(self: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    """Return a read-only view of a diagonal.

    Raises
    ------
    ValueError
        If there are fewer than two axes, or both are the same.
    numpy.exceptions.AxisError
        If there is no such axis.
    """
    if self.ndim < 2:
        raise ValueError("diag requires an array of at least two dimensions")
    first, second = place_of(axis1, self.ndim, "axis1"), place_of(axis2, self.ndim, "axis2")
    if first == second:
        raise ValueError("axis1 and axis2 cannot be the same")
    step = views.diagonal(self.shape, offset, first, second)
    return view_of(view_of(self, step), views.Frozen())


def trace(
    self: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None,
    out: Any = None,
) -> Any:
    """Return the sum along a diagonal."""
    if out is not None and not isinstance(out, (Handle, np.ndarray)):
        raise TypeError("output must be an array")
    return self.diagonal(offset, axis1, axis2).sum(axis=-1, dtype=dtype, out=out)


def view(self: Any, dtype: Any = None, type: Any = None) -> Any:
    """Return a view of the same elements or bytes; of a subclass of NumPy's that is NumPy's.

    Raises
    ------
    ValueError
        If the elements of the other dtype do not fill the last axis.
    """
    if isinstance(dtype, builtins.type) and issubclass(dtype, (np.ndarray, Handle)):
        dtype, type = None, dtype
    if not (type in (None, np.ndarray) or issubclass(builtins.type(self), type)):
        array = np.asarray(self)
        return array.view(type=type) if dtype is None else array.view(dtype, type)
    if dtype is None or (isinstance(dtype, np.dtype) and dtype == self.dtype):
        return _view(self, views.identity(self.shape))
    wanted = as_dtype(dtype)
    return _view(self, views.Reinterpreted(shape_as(self, wanted), wanted))


def shape_as(array: Any, dtype: np.dtype[Any]) -> tuple[int, ...]:
    """Return the shape of an array's memory as elements of another dtype.

    Raises
    ------
    ValueError
        If they do not fill the last axis, in NumPy's words.
    """
    # Nothing reads the elements of this one.
    stand_in = np.lib.stride_tricks.as_strided(
        np.empty(1, array.dtype), array.shape, array.strides)
    return stand_in.view(dtype).shape
