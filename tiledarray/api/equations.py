"""`numpy.linalg`: what is made of its other functions.

NumPy does this work itself where no gradient wants it: its result is the same.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from tiledarray.api import linalg
from tiledarray.api.arguments import TiledArray, arrays_of, handle_of, refuse
from tiledarray.api.products import einsum, inexact
from tiledarray.api.registry import implements
from tiledarray.arrays import reducing
from tiledarray.arrays.handle import shown, wrap
from tiledarray.arrays.tracing import may_look
from tiledarray.ops.library import BY_NAME as LIBRARY
from tiledarray.recording import record
from tiledarray.recording.stretch import check, look

_numpy = np.linalg
_EIG: Any = type(_numpy.eig(np.eye(1)))
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def _refuse_constants(*arrays: TiledArray) -> None:
    refuse(not any(array.node.keeps for array in arrays),
           "NumPy's own work where no gradient is wanted")


@implements(_numpy.cond, "fallback")
def cond(x: Any, p: Any = None) -> TiledArray:
    array = inexact(handle_of(x))
    _refuse_constants(array)
    refuse(array.ndim < 2 or 0 in array.shape[-2:], "no matrices, or empty ones")
    if p is None or p in (2, -2):
        s = linalg.svdvals(array)
        found = s[..., -1] / s[..., 0] if p == -2 else s[..., 0] / s[..., -1]
    else:
        refuse(array.shape[-1] != array.shape[-2], "not square")
        try:
            inverse = linalg.inv(array)
            check([inverse.node])
        except np.linalg.LinAlgError:
            inverse = None
        refuse(inverse is None, "singular")
        found = linalg.norm(array, p, (-2, -1)) * linalg.norm(inverse, p, (-2, -1))
    unknown = np.isnan(found) & ~np.isnan(array).any(axis=(-2, -1))
    return np.where(unknown, np.inf, found)


@implements(_numpy.tensorinv, "fallback")
def tensorinv(a: Any, ind: int = 2) -> TiledArray:
    array = handle_of(a)
    _refuse_constants(array)
    refuse(ind <= 0, "ind= is not positive")
    shape = array.shape[ind:] + array.shape[:ind]
    size = math.prod(array.shape[ind:])
    refuse(size * size != array.size, "not square")
    return linalg.inv(array.reshape(size, size)).reshape(shape)


@implements(_numpy.tensorsolve, "fallback")
def tensorsolve(a: Any, b: Any, axes: Any = None) -> TiledArray:
    left, right = arrays_of(a, b)
    _refuse_constants(left, right)
    for axis in axes or ():
        left = np.moveaxis(left, axis, -1)
    shape = left.shape[right.ndim:]
    size = math.prod(shape)
    refuse(left.ndim <= right.ndim or left.size != size * size, "not square")
    return linalg.solve(left.reshape(size, size), right.reshape(-1)).reshape(shape)


@implements(_numpy.multi_dot, "fallback")
def multi_dot(arrays: Sequence[Any], *, out: Any = None) -> TiledArray:
    parts = arrays_of(*arrays)
    _refuse_constants(*parts)
    ndims = [part.ndim for part in parts]
    refuse(
        out is not None or not 2 <= len(parts) < len(_LETTERS) or ndims[0] not in (1, 2)
        or ndims[-1] not in (1, 2) or any(ndim != 2 for ndim in ndims[1:-1])
        or any(x.shape[-1] != y.shape[0] for x, y in pairwise(parts)),
        "out= is given, or not a chain of matrices")
    first = 1 if ndims[0] == 1 else 0
    terms = [_LETTERS[k:k + 2] for k in range(len(parts))]
    terms[0], terms[-1] = terms[0][first:], terms[-1][:ndims[-1]]
    result = terms[0][:ndims[0] - 1] + terms[-1][1:]
    return einsum(f"{','.join(terms)}->{result}", *parts, optimize="optimal")


@implements(_numpy.lstsq, "fallback")
def lstsq(a: Any, b: Any, rcond: Any = None) -> tuple[Any, ...]:
    left, right = (inexact(array) for array in arrays_of(a, b))
    _refuse_constants(left, right)
    refuse(not may_look([left, right]), "the rank is not known here")
    x, residuals, s, limit = least_squares(left, right, rcond)
    values = shown(s)
    rank = int((values > limit * values[0]).sum())
    rows, columns = left.shape
    if not rank == columns < rows:
        residuals = handle_of(np.empty(0, s.dtype))
    return x, residuals, np.int32(rank), s


def least_squares(left: TiledArray, right: TiledArray, rcond: Any) -> tuple[Any, ...]:
    """Solve by the pseudoinverse, whose derivative holds while the rank stays as it is.

    Parameters
    ----------
    left, right : TiledArray
    rcond : float or None
        As `numpy.linalg.lstsq` takes it.

    Returns
    -------
    tuple
        The solution; the residuals, as they are where the rank is full; the singular values; and
        what these are compared with, for one of 1.
    """
    refuse(
        left.ndim != 2 or right.ndim not in (1, 2) or left.shape[0] != right.shape[0]
        or 0 in (*left.shape, *right.shape), "not a matrix and right sides")
    precision = float(np.finfo(np.result_type(left.dtype, right.dtype)).eps)
    limit = precision * (max(left.shape) if rcond is None else 1)
    if rcond is not None and rcond >= 0:
        limit = float(rcond)
    x = linalg.pinv(left, limit) @ right
    sides = right if right.ndim == 2 else right[:, None]
    gaps = abs(sides - left @ (x if x.ndim == 2 else x[:, None])) ** 2
    return x, reducing.sum(gaps, axis=0), linalg.svdvals(left), limit


@implements(_numpy.eigvals, "fallback")
def eigvals(a: Any) -> TiledArray:
    array = _square_of_history(a)
    dtype = np.result_type(array.dtype, np.complex64)
    w = record.library(LIBRARY["linalg.eigvals"], (array.node,), (), array.shape[:-1], dtype)
    look([w])
    found = wrap(w)
    return found.real if _are_real(array, found) else found


@implements(_numpy.eig, "fallback")
def eig(a: Any) -> Any:
    array = _square_of_history(a)
    dtype = np.result_type(array.dtype, np.complex64)
    node = record.library(LIBRARY["linalg.eig"], (array.node,), (), array.shape[:-1], dtype)
    items = [record.item(node, k, shape, dtype)
             for k, shape in enumerate((array.shape[:-1], array.shape))]
    look(items)
    w, v = map(wrap, items)
    real = _are_real(array, w)
    return _EIG(w.real, v.real) if real else _EIG(w, v)


def _square_of_history(a: Any) -> TiledArray:
    array = inexact(handle_of(a))
    _refuse_constants(array)
    refuse(array.ndim < 2 or array.shape[-1] != array.shape[-2], "not square")
    return array


def _are_real(array: TiledArray, w: Any) -> bool:
    """Whether NumPy gives the eigenvalues of a matrix as real numbers."""
    return array.dtype.kind != "c" and _gives_real() and not shown(w).imag.any()


@functools.cache
def _gives_real() -> bool:
    """Whether this NumPy gives real eigenvalues as such, as it did before 2.5."""
    return np.linalg.eigvals(np.eye(1)).dtype.kind == "f"
