"""`numpy.linalg`: norms and products recorded, factorizations through LAPACK or cuSOLVER.

What can fail for its values (a singular matrix) is computed when it is called, so that the error
comes where NumPy raises it, unless `config.linalg_errors` is "deferred": then it comes where the
result is looked at.  In a function under `jit` it comes with the call.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from tiledarray import config
from tiledarray.api import ufuncs
from tiledarray.api.arguments import (
    TiledArray,
    arrays_of,
    check_with_numpy,
    handle_of,
    normalize_axis_index,
    refuse,
)
from tiledarray.api.creation import eye
from tiledarray.api.differences import cross as general_cross
from tiledarray.api.manipulation import broadcast_to, expand_dims, moveaxis
from tiledarray.api.namespace import namespace_getattr
from tiledarray.api.products import (
    inexact,
    matmul_of,
    matrix_norm_of,
    squares,
    vector_norm_of,
)
from tiledarray.api.products import outer as general_outer
from tiledarray.api.registry import implements
from tiledarray.arrays import reducing
from tiledarray.arrays.handle import wrap
from tiledarray.graph.dtypes import Shape
from tiledarray.graph.node import Node
from tiledarray.ops.library import BY_NAME as LIBRARY
from tiledarray.ops.library import options
from tiledarray.recording import record
from tiledarray.recording.stretch import check

_numpy = np.linalg
__getattr__ = namespace_getattr(np.linalg, __name__, globals())


def _matrices(a: Any, original: Callable[..., Any], *, square: bool = False) -> TiledArray:
    """Return an argument as matrices; a wrong shape raises NumPy's error."""
    array = handle_of(a)
    if array.ndim < 2 or (square and array.shape[-1] != array.shape[-2]):
        check_with_numpy(original, array)
    refuse(array.ndim < 2, "not matrices")
    return array


@lru_cache(maxsize=256)
def _sample(name: str, dtype: np.dtype[Any]) -> Any:
    """Return what NumPy gives for a matrix of one element: its types are what is asked."""
    return getattr(_numpy, name)(np.ones((1, 1), dtype))


def _record(name: str, nodes: Any, shape: Shape, dtype: Any, **keywords: Any) -> Node:
    return record.library(LIBRARY[f"linalg.{name}"], nodes, options(**keywords), shape, dtype)


def _now(node: Node) -> TiledArray:
    """Return the array, computed where there are values: they may be an error."""
    _check([node])
    return wrap(node)


def _check(nodes: list[Node]) -> None:
    if config.linalg_errors == "raise":
        check(nodes)


def _square(name: str, rank: int, *, fails: bool) -> Callable[..., Any]:
    """Make a function of square matrices whose result keeps ``rank`` of their axes."""
    original = getattr(_numpy, name)

    def ours(a: Any) -> TiledArray:
        array = _matrices(a, original, square=True)
        shape = array.shape[: array.ndim - 2 + rank]
        dtype = np.asarray(_sample(name, array.dtype)).dtype
        node = _record(name, (array.node,), shape, dtype)
        return _now(node) if fails else wrap(node)

    return implements(original, "library")(ours)


inv = _square("inv", 2, fails=True)
det = _square("det", 0, fails=False)


@implements(_numpy.cholesky, "library")
def cholesky(a: Any, /, *, upper: bool = False) -> TiledArray:
    array = _matrices(a, _numpy.cholesky, square=True)
    dtype = _sample("cholesky", array.dtype).dtype
    if upper:  # the lower triangle of what is read then is the upper one of this
        array = array.swapaxes(-1, -2).conj()
    result = _now(_record("cholesky", (array.node,), array.shape, dtype))
    return result.swapaxes(-1, -2).conj() if upper else result


@implements(_numpy.solve, "library")
def solve(a: Any, b: Any) -> TiledArray:
    left, right = arrays_of(a, b)
    core = 1 if right.ndim == 1 else 2
    fits = (
        left.ndim >= 2 and right.ndim >= 1 and left.shape[-1] == left.shape[-2]
        and right.shape[-core] == left.shape[-1]
    )
    try:
        batch = np.broadcast_shapes(left.shape[:-2], right.shape[:-core])
    except ValueError:
        fits = False
    if not fits:
        check_with_numpy(_numpy.solve, left, right)
    shape = (*batch, *right.shape[-core:])
    dtype = _numpy.solve(np.ones((1, 1), left.dtype), np.ones(1, right.dtype)).dtype
    return _now(_record("solve", (left.node, right.node), shape, dtype))


def _parts(
    name: str, array: TiledArray, shapes: list[Shape], *, fails: bool, **keywords: Any
) -> Any:
    """Return the several results of a factorization, as NumPy's named tuple."""
    sample = _sample(name, array.dtype)
    node = _record(name, (array.node,), shapes[0], sample[0].dtype, **keywords)
    items = [
        record.item(node, place, shape, part.dtype)
        for place, (shape, part) in enumerate(zip(shapes, sample, strict=True))
    ]
    if fails:
        _check(items)
    return type(sample)(*map(wrap, items))


@implements(_numpy.slogdet, "library")
def slogdet(a: Any) -> Any:
    array = _matrices(a, _numpy.slogdet, square=True)
    return _parts("slogdet", array, [array.shape[:-2]] * 2, fails=False)


@implements(_numpy.eigh, "library")
def eigh(a: Any, UPLO: str = "L") -> Any:  # noqa: N803  NumPy's name
    array = _matrices(a, _numpy.eigh, square=True)
    return _parts(
        "eigh", array, [array.shape[:-1], array.shape], fails=True, UPLO=_triangle(UPLO))


def _triangle(name: str) -> str:
    """Return which triangle of Hermitian matrices is read, ``"L"`` or ``"U"``."""
    if name.upper() not in ("L", "U"):
        raise ValueError("UPLO argument must be 'L' or 'U'")
    return name.upper()


@implements(_numpy.eigvalsh, "library")
def eigvalsh(a: Any, UPLO: str = "L") -> TiledArray:  # noqa: N803  NumPy's name
    array = _matrices(a, _numpy.eigvalsh, square=True)
    dtype = _sample("eigvalsh", array.dtype).dtype
    return _now(_record("eigvalsh", (array.node,), array.shape[:-1], dtype, UPLO=_triangle(UPLO)))


@implements(_numpy.svd, "library")
def svd(
    a: Any, full_matrices: bool = True, compute_uv: bool = True, hermitian: bool = False
) -> Any:
    array = _matrices(a, _numpy.svd)
    refuse(hermitian, "hermitian= is given")
    *batch, rows, columns = array.shape
    short = min(rows, columns)
    if not compute_uv:
        return svdvals(array)
    left, right = (rows, columns) if full_matrices else (short, short)
    shapes = [(*batch, rows, left), (*batch, short), (*batch, right, columns)]
    return _parts("svd", array, shapes, fails=True, full_matrices=bool(full_matrices))


@implements(_numpy.svdvals, "library")
def svdvals(x: Any, /) -> TiledArray:
    array = _matrices(x, _numpy.svdvals)
    dtype = _sample("svdvals", array.dtype).dtype
    shape = (*array.shape[:-2], min(array.shape[-2:]))
    return _now(_record("svdvals", (array.node,), shape, dtype))


@implements(_numpy.qr, "library")
def qr(a: Any, mode: str = "reduced") -> Any:
    array = _matrices(a, _numpy.qr)
    refuse(mode not in ("reduced", "complete", "r"), "mode= is neither reduced, complete nor r")
    *batch, rows, columns = array.shape
    inner = rows if mode == "complete" else min(rows, columns)
    shapes = [(*batch, rows, inner), (*batch, inner, columns)]
    if mode == "r":
        dtype = _sample("qr", array.dtype).R.dtype
        return wrap(_record("qr_r", (array.node,), shapes[1], dtype, mode=mode))
    return _parts("qr", array, shapes, fails=False, mode=mode)


@implements(_numpy.pinv, "library")
def pinv(a: Any, rcond: Any = None, hermitian: bool = False, *, rtol: Any = np._NoValue) -> Any:
    array = _matrices(a, _numpy.pinv)
    if rtol is not np._NoValue and rcond is None:
        rcond = max(array.shape[-2:]) * np.finfo(array.dtype).eps if rtol is None else rtol
        rtol = np._NoValue
    given = {} if rcond is None else {"rcond": rcond}
    refuse(
        hermitian or rtol is not np._NoValue
        or not isinstance(rcond, (int, float, np.floating, type(None))), "options are given")
    dtype = _sample("pinv", array.dtype).dtype
    shape = (*array.shape[:-2], *array.shape[:-3:-1])
    return _now(_record("pinv", (array.node,), shape, dtype, **given))


@implements(_numpy.matrix_power)
def matrix_power(a: Any, n: Any) -> TiledArray:
    array = _matrices(a, lambda sample: _numpy.matrix_power(sample, 1), square=True)
    try:
        power = operator.index(n)
    except TypeError as error:
        raise TypeError("exponent must be an integer") from error
    if power < 0:
        array, power = inv(array), -power
    if power == 0:
        return broadcast_to(
            eye(array.shape[-1], dtype=array.dtype, device=array.device), array.shape).copy()
    result: Any = None
    while power:
        power, bit = divmod(power, 2)
        if bit:
            result = array if result is None else matmul_of(result, array)
        if power:
            array = matmul_of(array, array)
    return result.copy() if result is array else result


# Norms and what the array API has here -----------------------------------------------------------


@implements(_numpy.norm)
def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> TiledArray:
    array = inexact(handle_of(x))
    refuse(array.dtype == np.float16 and axis is None, "a norm of float16")
    if axis is None:
        if ord is None or (ord in ("f", "fro") and array.ndim == 2) or (
            ord == 2 and array.ndim == 1
        ):
            result = ufuncs.BY_NAME["sqrt"](reducing.sum(squares(array)))
            return result.reshape((1,) * array.ndim) if keepdims else result
        axis = tuple(range(array.ndim))
    elif not isinstance(axis, tuple):
        try:
            axis = (int(axis),)
        except TypeError as error:
            raise TypeError(
                "'axis' must be None, an integer or a tuple of integers"
            ) from error
    if len(axis) == 1:
        return vector_norm_of(array, ord, axis, keepdims)
    if len(axis) == 2:
        if ord not in (None, "fro", "f", "nuc", 1, -1, 2, -2, np.inf, -np.inf):
            raise ValueError("Invalid norm order for matrices.")
        if ord in ("nuc", 2, -2):
            return _norm_of_singular_values(array, ord, axis, keepdims)
        return matrix_norm_of(array, ord, axis, keepdims)
    raise ValueError("Improper number of dimensions to norm.")


def _norm_of_singular_values(
    array: TiledArray, order: Any, axis: tuple[int, int], keepdims: bool
) -> TiledArray:
    row, column = (normalize_axis_index(place, array.ndim) for place in axis)
    if row == column:
        raise ValueError("Duplicate axes given.")
    values = svdvals(moveaxis(array, (row, column), (-2, -1)))
    if order == "nuc":
        result = reducing.sum(values, axis=-1)
    elif order == 2 and not values.shape[-1]:
        result = reducing.max(values, axis=-1, initial=0)
    else:
        result = (reducing.max if order == 2 else reducing.min)(values, axis=-1)
    return expand_dims(result, tuple(sorted((row, column)))) if keepdims else result


@implements(_numpy.vector_norm)
def vector_norm(
    x: Any, /, *, axis: Any = None, keepdims: bool = False, ord: Any = 2
) -> TiledArray:
    array = inexact(handle_of(x))
    axes = tuple(range(array.ndim)) if axis is None else axis
    return vector_norm_of(array, ord, axes, keepdims)


@implements(_numpy.matrix_norm)
def matrix_norm(x: Any, /, *, keepdims: bool = False, ord: Any = "fro") -> TiledArray:
    return norm(x, ord, (-2, -1), keepdims)


@implements(_numpy.outer)
def outer(x1: Any, x2: Any, /) -> TiledArray:
    left, right = arrays_of(x1, x2)
    if left.ndim != 1 or right.ndim != 1:
        raise ValueError(
            "Input arrays must be one-dimensional, but they are "
            f"x1.ndim={left.ndim} and x2.ndim={right.ndim}."
        )
    return general_outer(left, right)


@implements(_numpy.cross)
def cross(x1: Any, x2: Any, /, *, axis: int = -1) -> TiledArray:
    left, right = arrays_of(x1, x2)
    if left.shape[axis] != 3 or right.shape[axis] != 3:
        raise ValueError(
            "Both input arrays must be (arrays of) 3-dimensional vectors, but they are "
            f"{left.shape[axis]} and {right.shape[axis]} dimensional instead."
        )
    return general_cross(left, right, axis=axis)


@implements(_numpy.diagonal)
def diagonal(x: Any, /, *, offset: int = 0) -> TiledArray:
    return handle_of(x).diagonal(offset, -2, -1)


@implements(_numpy.trace)
def trace(x: Any, /, *, offset: int = 0, dtype: Any = None) -> TiledArray:
    return handle_of(x).trace(offset, -2, -1, dtype)


@implements(_numpy.matrix_transpose)
def matrix_transpose(x: Any, /) -> TiledArray:
    array = handle_of(x)
    if array.ndim < 2:
        raise ValueError(
            f"Input array must be at least 2-dimensional, but it is {array.ndim}"
        )
    return array.swapaxes(-1, -2)


@implements(_numpy.matmul, "library")
def matmul(x1: Any, x2: Any, /) -> TiledArray:
    return ufuncs.BY_NAME["matmul"](x1, x2)


@implements(_numpy.vecdot, "library")
def vecdot(x1: Any, x2: Any, /, *, axis: int = -1) -> TiledArray:
    left, right = (x if axis == -1 else moveaxis(x, axis, -1) for x in (x1, x2))
    return ufuncs.BY_NAME["vecdot"](left, right)


@implements(_numpy.tensordot, "library")
def tensordot(x1: Any, x2: Any, /, *, axes: Any = 2) -> TiledArray:
    return np.tensordot(handle_of(x1), x2, axes)


def __dir__() -> list[str]:
    return dir(_numpy)
