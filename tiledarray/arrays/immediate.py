"""Which functions and methods NumPy computes at once where their arguments are small and settled.

`tiledarray.core.AtOnce` calls NumPy's or ours; here is what it has to know of NumPy's.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from tiledarray import config, core
from tiledarray.arrays.by_numpy import places_before_out
from tiledarray.ops.failures import name_matrix
from tiledarray.ops.indexing import argsort, sort
from tiledarray.ops.library import BY_NAME as LIBRARY

Function = Callable[..., Any]

_SIZES = {
    "zeros": core.OF_SHAPE, "ones": core.OF_SHAPE, "empty": core.OF_SHAPE, "full": core.OF_SHAPE,
    "arange": core.OF_RANGE, "linspace": core.OF_COUNT, "logspace": core.OF_COUNT,
    "geomspace": core.OF_COUNT, "eye": core.OF_SQUARE, "identity": core.OF_SQUARE,
    "tri": core.OF_SQUARE, "array": core.OF_DATA, "asarray": core.OF_DATA,
    "asanyarray": core.OF_DATA, "ascontiguousarray": core.OF_DATA,
}
_WRITE = frozenset(("copyto", "put", "place", "putmask", "fill_diagonal", "put_along_axis"))
_MULTIPLY = frozenset(("outer", "kron", "meshgrid", "linalg.outer"))
# Products whose result may be much larger than their operands.
_SUM_PRODUCTS = frozenset(("dot", "inner", "einsum"))
_ALIKE = frozenset(("select", "choose"))
# What several threads do, where it is recorded.
_SHARED = {
    op.name: op.parts.nanoseconds
    for op in (*LIBRARY.values(), sort, argsort)
    if op.parts is not None and op.name != "take"  # of lines; NumPy's own is as fast
}
_SHARED.update({f"{name}2": _SHARED[f"{name}n"]
                for name in ("fft.fft", "fft.ifft", "fft.rfft", "fft.irfft")})
COSTLY = 20  # nanoseconds an element
# Of memory that lies row after row they give views.  `trace` reads the diagonal alone.
_VIEWS = frozenset((
    "reshape", "ravel", "transpose", "permute_dims", "matrix_transpose", "swapaxes", "moveaxis",
    "rollaxis", "squeeze", "expand_dims", "atleast_1d", "atleast_2d", "atleast_3d", "diagonal",
    "trace", "view", "flip", "flipud", "fliplr", "rot90",
))
# Done by NumPy, and yet no reason to compute what is recorded: shapes and dtypes are known.
_OF_KINDS = frozenset(("result_type", "common_type", "isscalar"))


_LATER = object()  # no result that handles can hold: the call goes the recorded way


def _naming(original: Function) -> Function:
    """Return a factorization that says which matrix of a batch it fails for."""
    alone = np.linalg.inv if original is np.linalg.solve else original
    records = original not in (np.linalg.eig, np.linalg.eigvals)  # what they give depends on values

    def named(*args: Any, **kwargs: Any) -> Any:
        try:
            return original(*args, **kwargs)
        except np.linalg.LinAlgError as error:
            if records and config.linalg_errors == "deferred":
                return _LATER
            if args:
                rest = args[1:] if alone is original else ()
                name_matrix(error, lambda part: alone(part, *rest, **kwargs), args[0])
            raise

    return named


# There is no uninitialized array, on any way.
_STAND_INS: dict[Any, Any] = {
    np.empty: core.empty, np.empty_like: core.empty_like, np.zeros_like: core.zeros_like}
_STAND_INS.update({original: _naming(original) for original in (
    np.linalg.inv, np.linalg.solve, np.linalg.cholesky, np.linalg.eigh, np.linalg.eigvalsh,
    np.linalg.svd, np.linalg.svdvals, np.linalg.pinv, np.linalg.eig, np.linalg.eigvals)})
# What NumPy's own functions do with an array of ours is not what they do with one of its own.
_NEVER = frozenset((
    "asfortranarray", "from_dlpack", "array_repr", "array_str", "array2string", "save", "savez",
    "savez_compressed", "require", "shares_memory", "may_share_memory", "byte_bounds", "nditer",
    "unique_values", "lib.stride_tricks.as_strided",
    "ix_",  # it returns views of several arguments
    "imag",  # of what is real it is read-only
))
# Ours does nothing but record operations, and which they are depends on shapes, dtypes and on the
# other arguments alone.  (So none that warns, looks or asks for a setting.)
_RECORD = frozenset((
    "sum", "prod", "min", "max", "amin", "amax", "all", "any", "mean", "argmin", "argmax", "where",
    "clip", "astype", "roll", "concatenate", "stack", "vstack", "hstack", "count_nonzero",
    "zeros_like", "ones_like", "full_like",
))
# Drawing functions that take an array to be filled, and how many arguments come before it.
_DRAWN_INTO = {
    "random": 3, "standard_normal": 3, "standard_exponential": 4, "standard_gamma": 4,
}
# What NumPy's functions and methods call in the end, where nothing but an axis is told.
_REDUCE = {
    "sum": np.add.reduce, "prod": np.multiply.reduce, "min": np.minimum.reduce,
    "max": np.maximum.reduce, "amin": np.minimum.reduce, "amax": np.maximum.reduce,
    "any": np.logical_or.reduce, "all": np.logical_and.reduce,
}
_NEVER_IN = ("random.", "testing.", "char.", "strings.", "rec.", "ma.", "ctypeslib.")


def function(name: str, original: Any, ours: Function, how: str) -> Any:
    """Return a function that is NumPy's where that can compute at once, else ours.

    Parameters
    ----------
    name : str
        Its public name below ``numpy.``.
    original, ours : callable
    how : {"native", "library", "host", "fallback"}
        How ours works.  But for the first it fuses with nothing, so that larger arrays too are as
        quick at once; the last two compute what is recorded, since NumPy's does the work.
    """
    if name in _NEVER or name.startswith(_NEVER_IN) or isinstance(original, type):
        return ours
    kind = 0 if how == "native" else core.LIBRARY
    if how in ("host", "fallback") and name not in _OF_KINDS:
        kind |= core.LOOKS
    if name in _SHARED:
        kind |= core.COSTLY if _SHARED[name] >= COSTLY else core.SHARED
    if name in _WRITE:
        kind |= core.WRITES
    if name in _MULTIPLY:
        kind = core.OUTER
    if name in _VIEWS:
        kind |= core.VIEWS
    if name in _ALIKE:
        kind |= core.ALIKE
    if name in _SUM_PRODUCTS:
        kind |= core.PRODUCT
    if name in _RECORD and how == "native":
        kind |= core.RECORDS
    if not hasattr(original, "__get__"):  # builtins, which are no methods of the user's classes
        kind |= core.STATIC
    target = _STAND_INS.get(original, original)
    size = _SIZES.get(name, core.ANY_SIZE)
    return core.AtOnce(
        target, ours, kind, size, places_before_out(original), reduce=_REDUCE.get(name),
        behind=getattr(target, "_implementation", None))


def ufunc(original: np.ufunc, ours: Any) -> Any:
    """Return the ufunc that is NumPy's where that can compute at once, else ours."""
    methods: dict[str, Any] = {}
    if original.signature is None:
        methods["at"] = core.AtOnce(
            original.at, ours.at, core.WRITES | core.LIBRARY | core.LOOKS)
    if original.signature is None and original.nin == 2 and original.nout == 1:
        for name, kind, most in (
            ("reduce", 0, 3), ("accumulate", 0, 3), ("outer", core.OUTER, 2),
            ("reduceat", core.LIBRARY | core.LOOKS, 4),
        ):
            methods[name] = core.AtOnce(
                getattr(original, name), getattr(ours, name), kind, core.ANY_SIZE, most)
    kind = core.UFUNC | core.STATIC
    if original.signature is not None:  # products: they only record
        kind |= core.LIBRARY | core.RECORDS
    if original is np.matmul:
        kind |= core.PRODUCT
    return core.AtOnce(original, ours, kind, core.ANY_SIZE, original.nin, methods)


def drawing(name: str, original: Any, ours: Function, *, bound: bool) -> Any:
    """Return a function that draws random numbers, for arrays that are born on the host NumPy's."""
    kind = core.DRAWS | core.UFUNC | core.LIBRARY
    kind |= core.BOUND if bound else core.STATIC
    if name == "shuffle":
        kind |= core.WRITES
    return core.AtOnce(original, ours, kind, core.ANY_SIZE, _DRAWN_INTO.get(name, 12))


def method(name: str, ours: Function, kind: int = 0) -> Any:
    """Return a method of arrays that is NumPy's where that can compute at once, else ours."""
    original = getattr(np, name, None)
    most = None if original is None else places_before_out(original)
    kind |= core.METHOD | (core.RECORDS if name in _RECORD else 0)
    kind |= core.VIEWS if name in _VIEWS else 0
    return core.AtOnce(name, ours, kind, core.ANY_SIZE, 12 if most is None else most,
                       reduce=_REDUCE.get(name), behind=getattr(np.ndarray, name))


def item(original: Any, ours: Function) -> Any:
    """Return what makes an array of an index: one of NumPy's objects where that can, else ours."""
    return core.AtOnce(original.__getitem__, ours, core.LIBRARY, core.OF_DATA)


def attribute(name: str, ours: Function) -> Any:
    """Return the getter of an attribute that is a view: NumPy's of a settled array, else ours."""
    return core.AtOnce(operator.attrgetter(name), ours, 0, core.ANY_SIZE)
