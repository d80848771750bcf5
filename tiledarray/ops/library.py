"""Calls that NumPy (on the host) or CuPy (on a GPU) makes as a kernel of its own.

``attrs`` of a node: the call's keyword arguments, as sorted pairs.  What CuPy lacks, or refuses, is
done on the host and copied back.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import reduce
from importlib import import_module
from typing import Any

import numpy as np

from tiledarray.ops.failures import FAILURES, name_matrix
from tiledarray.ops.indexing import fault_of
from tiledarray.ops.op import Library, Parts, Rules
from tiledarray.ops.parts import (
    DIGITS,
    INTERPOLATIONS,
    PARTITIONS,
    PRODUCTS,
    QUANTILES,
    SEARCHES,
    lines,
    transforms,
)
from tiledarray.ops.spectra import of_real

Attrs = tuple[tuple[str, Any], ...]


def options(**keywords: Any) -> Attrs:
    """Return keyword arguments as the attrs of a node."""
    return tuple(sorted(keywords.items()))


def _find(xp: Any, path: str) -> Callable[..., Any] | None:
    try:
        function: Callable[..., Any] = reduce(getattr, path.split("."), xp)
    except AttributeError:
        return None
    return function


def _on_host(xp: Any, path: str, inputs: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    function: Any = _find(np, path)
    result = function(*(xp.asnumpy(x) if hasattr(x, "get") else x for x in inputs), **keywords)
    if isinstance(result, tuple):
        return tuple(xp.asarray(part) for part in result)
    return xp.asarray(result)


def _on_device(xp: Any, path: str, inputs: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    """Call CuPy's function; NumPy's on the host where CuPy has none or refuses what it is given."""
    function = _find(xp, path)
    if function is None:
        return _on_host(xp, path, inputs, keywords)
    try:
        with _failures_raised(xp):
            return function(*inputs, **keywords)
    except np.linalg.LinAlgError as error:
        raise np.linalg.LinAlgError(FAILURES.get(path, str(error))) from error
    except (TypeError, ValueError, NotImplementedError):
        return _on_host(xp, path, inputs, keywords)


def _failures_raised(xp: Any) -> AbstractContextManager[Any]:
    """Let CuPy look at what cuSOLVER says of its success; else it returns what there is."""
    if xp.__name__ != "cupy":
        return nullcontext()
    found: AbstractContextManager[Any] = import_module("cupyx").errstate(linalg="raise")
    return found


def _called(xp: Any, path: str, inputs: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    if xp is not np:
        return _on_device(xp, path, inputs, keywords)
    function: Any = _find(np, path)
    return function(*inputs, **keywords)


def _call(path: str) -> Callable[..., Any]:
    # What fails is the matrix, whatever the right sides are.
    alone = "linalg.inv" if path == "linalg.solve" else path

    def reference(xp: Any, *inputs: Any, attrs: Attrs, shape: Any, dtype: Any) -> Any:
        keywords = dict(attrs)
        try:
            result = _called(xp, path, inputs, keywords)
        except np.linalg.LinAlgError as error:
            name_matrix(error, lambda part: _called(xp, alone, (part,), keywords), inputs[0])
            raise
        if isinstance(result, tuple):
            return tuple(xp.asarray(part) for part in result)
        return xp.asarray(result).astype(dtype, copy=False)

    return reference


def _einsum(xp: Any, *inputs: Any, attrs: Attrs, shape: Any, dtype: Any) -> Any:
    keywords = dict(attrs)
    result = xp.einsum(keywords["subscripts"], *inputs, optimize=keywords["optimize"])
    return xp.asarray(result).astype(dtype, copy=False)


def _lexsort(xp: Any, *inputs: Any, attrs: Attrs, shape: Any, dtype: Any) -> Any:
    if xp is np:
        return np.lexsort(inputs, **dict(attrs))
    return xp.asarray(np.lexsort([xp.asnumpy(x) for x in inputs], **dict(attrs)))


def _power(xp: Any, *inputs: Any, attrs: Attrs, shape: Any, dtype: Any) -> Any:
    return xp.asarray(xp.power(*inputs, dtype=dtype))


def _cofactors(xp: Any, array: Any, *, attrs: Attrs, shape: Any, dtype: Any) -> Any:
    """Return the determinants without each row and column, with their signs.

    Those of a product are the products of theirs, and of unitary matrices they are the conjugates
    times the determinant.
    """
    u, s, vh = xp.linalg.svd(array)
    ones = xp.ones((*s.shape[:-1], 1), s.dtype)
    before = xp.cumprod(xp.concatenate([ones, s[..., :-1]], axis=-1), axis=-1)
    behind = xp.cumprod(xp.concatenate([ones, s[..., :0:-1]], axis=-1), axis=-1)[..., ::-1]
    sign = (xp.linalg.det(u) * xp.linalg.det(vh))[..., None, None]
    result = sign * ((u.conj() * (before * behind)[..., None, :]) @ vh.conj())
    return result.astype(dtype, copy=False)


def _solve(xp: Any, left: Any, right: Any, *, attrs: Attrs, shape: Any, dtype: Any) -> Any:
    """Solve equations; CuPy does not broadcast the matrices' leading axes."""
    if xp is not np and (left.ndim > 2 or right.ndim > 2):
        vector = right.ndim == 1
        right = right[:, None] if vector else right
        leading = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
        left, right = (xp.ascontiguousarray(xp.broadcast_to(x, (*leading, *x.shape[-2:])))
                       for x in (left, right))
        found = _SOLVE(xp, left, right, attrs=attrs, shape=shape, dtype=dtype)
        return found[..., 0] if vector else found
    return _SOLVE(xp, left, right, attrs=attrs, shape=shape, dtype=dtype)


_SOLVE = _call("linalg.solve")


def is_tf32(attrs: Attrs) -> bool:
    """Whether a product may be one of factors that are rounded to TF32."""
    return ("tf32", True) in attrs


def _product(path: str, *vjp: Any, **others: Any) -> Library:
    """Declare a product, which but for cuBLAS rounds no factors."""
    whole = _call(path)

    def reference(xp: Any, *inputs: Any, attrs: Attrs, shape: Any, dtype: Any) -> Any:
        return whole(xp, *inputs, attrs=(), shape=shape, dtype=dtype)

    return Library(path, reference, vjp=vjp, **others)


def _solve_by_factor(xp: Any, factor: Any, right: Any, *, attrs: Attrs, shape: Any,
                     dtype: Any) -> Any:
    """Solve equations of symmetric matrices of which the Cholesky factors are given."""
    matrices = factor @ factor.swapaxes(-1, -2)
    return _solve(xp, matrices, right, attrs=attrs, shape=shape, dtype=dtype)


_INV = _call("linalg.inv")


def _inv_of_lower(xp: Any, array: Any, *, attrs: Attrs, shape: Any, dtype: Any) -> Any:
    """Return the inverses of matrices of which the lower triangle is read."""
    return xp.tril(_INV(xp, xp.tril(array), attrs=attrs, shape=shape, dtype=dtype))


def _eig(xp: Any, array: Any, *, attrs: Attrs, shape: Any, dtype: Any) -> Any:
    """Return eigenvalues and vectors, complex whatever they are."""
    w, v = _call("linalg.eig")(xp, array, attrs=attrs, shape=shape, dtype=dtype)
    return w.astype(dtype, copy=False), v.astype(dtype, copy=False)


def _library(
    path: str, *vjp: Any, outputs: int = 1, batch: str = "",
    into: Callable[..., Any] | None = None, parts: Parts | None = None, tile: str = "",
) -> Library:
    rules: Rules = vjp
    return Library(path, _call(path), outputs=outputs, vjp=rules, batch=batch, into=into,
                   parts=parts, tile=tile)


def _take_along_axis(xp: Any, array: Any, places: Any, *, attrs: Any, shape: Any,
                     dtype: Any) -> Any:
    """CuPy takes what is beyond the axis from its other end; NumPy raises."""
    axis = dict(attrs)["axis"]
    fault = None if xp is np else fault_of(places, axis, array.shape[axis])
    if fault is not None:
        raise fault
    return xp.take_along_axis(array, places, axis=axis)


def _of_matrices(path: str, nanoseconds: float, *vjp: Any, **others: Any) -> Library:
    return _library(path, *vjp, parts=Parts("matrices", nanoseconds), **others)


# Where there is one more axis in front: the call is of the last axes, or says of which.
_LAST = "call.again()"
_NAMED = "call.again(behind(attrs, x))"


_FOURIER: dict[str, str] = {
    "fft": "cut(transformed('fft', g, attrs), x)",
    "ifft": "cut(transformed('ifft', g, attrs), x)",
    "rfft": "cut(transformed('fft', g, attrs), x)",
    "irfft": "cut(from_half('rfft', g, attrs, conjugate=True), x)",
    "hfft": "cut(from_half('rfft', g, attrs, conjugate=False), x)",
    "ihfft": "cut(transformed('ifft', g, attrs), x)",
    "fftn": "cut(transformed('fftn', g, attrs), x)",
    "ifftn": "cut(transformed('ifftn', g, attrs), x)",
    "rfftn": "cut(transformed('fftn', g, attrs), x)",
    "irfftn": "cut(from_half('rfftn', g, attrs, conjugate=True), x)",
}


def _fourier(name: str) -> Callable[..., Any]:
    usual = _call(f"fft.{name}")

    def reference(xp: Any, array: Any, *, attrs: Attrs, shape: Any, dtype: Any) -> Any:
        if xp is not np and name in ("fft", "fftn") and array.dtype.kind != "c":
            return of_real(xp, array, attrs).astype(dtype, copy=False)
        return usual(xp, array, attrs=attrs, shape=shape, dtype=dtype)

    return reference


def _transform(name: str) -> Library:
    return BY_NAME[f"fft.{name}"]


_QUANTILES = (
    "median", "quantile", "percentile", "nanmedian", "nanquantile", "nanpercentile",
)


BY_NAME: dict[str, Library] = {
    op.name: op
    for op in (
        # Products
        _product("matmul", "matmul_left(g, x, y)", "matmul_right(g, x, y)",
                 batch="multiplied(call)", into=np.matmul, parts=PRODUCTS, tile="product"),
        _product("vecdot", "conjugated(column(g) * y)", "column(g) * conjugated(x)",
                 batch="aligned(call, 1, 1)", into=np.vecdot),
        _product("matvec", "column(g) * row(y)", "matvec(turned(x), g)",
                 batch="aligned(call, 2, 1)", into=getattr(np, "matvec", None)),
        _product("vecmat", "conjugated(matvec(y, g))", "column(conjugated(x)) * row(g)",
                 batch="aligned(call, 1, 2)", into=getattr(np, "vecmat", None)),
        _product("dot", "dot_left(g, x, y)", "dot_right(g, x, y)", batch="dotted(call, -2)",
                 into=np.dot),
        _product("inner", "inner_left(g, x, y)", "inner_right(g, x, y)", batch="dotted(call, -1)"),
        Library("einsum", _einsum, vjp=("einsum_term(g, inputs, attrs, k)",), batch="summed(call)"),
        # Sorting and searching
        _library("partition", "unpartitioned(g, x, out, attrs)", batch=_NAMED,
                 parts=PARTITIONS),
        _library("argpartition", batch=_NAMED, parts=lines(8.0)),
        _library("digitize", parts=DIGITS),
        _library("searchsorted", batch="call.of_one(0)", parts=SEARCHES),
        Library("lexsort", _lexsort, batch="call.again(behind(attrs, x), call.spread())",
                parts=lines(4.0, logarithmic=True)),
        *(_library(name, f"unranked(g, x, attrs, {name!r})", batch="ranked(call)",
                   parts=None if name.startswith("nan") else QUANTILES)
          for name in _QUANTILES),
        # Of integers, where an exponent may be negative: a kernel could not raise NumPy's error
        Library("power_of_integers", _power, batch="aligned(call, 0, 0)"),
        # Signals
        _library("interp", "interpolated(g, inputs, attrs, k)", batch="call.of_one(1, 2)",
                 parts=INTERPOLATIONS),
        _library("convolve", "slid_left(g, x, y, attrs)", "slid_right(g, x, y, attrs)"),
        _library("correlate", "matched_left(g, x, y, attrs)", "matched_right(g, x, y, attrs)"),
        *(Library(f"fft.{name}", _fourier(name), vjp=(rule,), batch=_NAMED,
                  parts=transforms(name, _transform), tile="fourier")
          for name, rule in _FOURIER.items()),
        # Linear algebra
        _of_matrices("linalg.inv", 30, "uninverted(g, out)", batch=_LAST, tile="inv"),
        Library("linalg.inv_of_lower", _inv_of_lower, vjp=("uninverted_lower(g, out)",),
                batch=_LAST, parts=Parts("matrices", 30), tile="inv_of_lower"),
        _of_matrices("linalg.det", 8, "g[..., None, None] * cofactors(x)", batch=_LAST,
                     tile="det"),
        Library("linalg.cofactors", _cofactors, vjp=("uncofactored(g, x, out)",), batch=_LAST,
                parts=Parts("matrices", 150)),
        _of_matrices("linalg.cholesky", 6, "uncholesky(g, out)", batch=_LAST, tile="cholesky"),
        Library("linalg.solve", _solve, batch="solved(call)",
                vjp=("equations_left(g, x, y, out)", "equations_right(g, x, y)"),
                parts=Parts("matrices", 10), tile="solve"),
        # The planner makes them (`fusion/tiles/definite.py`).
        Library("linalg.solve_by_factor", _solve_by_factor, tile="solve_by_factor"),
        Library("linalg.solve_symmetric", _solve, tile="solve_symmetric"),
        _of_matrices("linalg.pinv", 150, "unpseudoinverted(g, x, out)", batch=_LAST),
        _of_matrices("linalg.eigvalsh", 60, "uneigvalsh(g, x, attrs)", batch=_LAST,
                     tile="eigh"),
        _of_matrices("linalg.svdvals", 100, "unsvdvals(g, x)", batch=_LAST),
        _of_matrices("linalg.eigvals", 200, "uneigvals(g, x)"),
        _library("linalg.matrix_power"), _library("linalg.matrix_rank"), _library("linalg.cond"),
        _of_matrices("linalg.slogdet", 8, "unslogdet(g, x, part)", outputs=2, batch=_LAST,
                     tile="slogdet"),
        Library("linalg.eig", _eig, outputs=2, vjp=("uneig(g, x, part)",),
                parts=Parts("matrices", 200)),
        _of_matrices("linalg.eigh", 80, "uneigh(g, x, part)", outputs=2, batch=_LAST,
                     tile="eigh"),
        _of_matrices("linalg.qr", 45, "unqr(g, x, part, attrs)", outputs=2, batch=_LAST,
                     tile="qr"),
        Library("linalg.qr_r", _call("linalg.qr"), vjp=("unqr_r(g, x)",), batch=_LAST,
                parts=Parts("matrices", 25), tile="qr"),
        _of_matrices("linalg.svd", 130, "unsvd(g, x, part, attrs)", outputs=3, batch=_LAST),
        # Indices along an axis
        Library("take_along_axis", _take_along_axis, vjp=("untaken(g, x, y, attrs)", ""),
                batch="call.again(behind(attrs, x), call.spread())", parts=lines(6.0)),
    )
}  # fmt: skip
