"""Calls that NumPy (on the host) or CuPy (on a GPU) makes as a kernel of its own.

``attrs`` of a node: the call's keyword arguments, as sorted pairs.  What CuPy lacks is done on the
host and copied back.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np

from tiledarray.ops.op import Library

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
    function = _find(np, path)
    assert function is not None, path
    result = function(*(xp.asnumpy(x) if hasattr(x, "get") else x for x in inputs), **keywords)
    if isinstance(result, tuple):
        return tuple(xp.asarray(part) for part in result)
    return xp.asarray(result)


def _call(path: str) -> Callable[..., Any]:
    def reference(xp: Any, *inputs: Any, attrs: Attrs, shape: Any, dtype: Any) -> Any:
        function = _find(xp, path)
        keywords = dict(attrs)
        if function is None:
            result = _on_host(xp, path, inputs, keywords)
        else:
            result = function(*inputs, **keywords)
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


def _library(path: str, outputs: int = 1) -> Library:
    return Library(path, _call(path), outputs=outputs)


BY_NAME: dict[str, Library] = {
    op.name: op
    for op in (
        # Products
        _library("matmul"), _library("vecdot"), _library("matvec"), _library("vecmat"),
        _library("dot"), _library("inner"), Library("einsum", _einsum),
        # Sorting and searching
        _library("partition"), _library("argpartition"), _library("searchsorted"),
        _library("digitize"), Library("lexsort", _lexsort),
        _library("median"), _library("quantile"), _library("percentile"),
        _library("nanmedian"), _library("nanquantile"), _library("nanpercentile"),
        # Of integers, where an exponent may be negative: a kernel could not raise NumPy's error
        Library("power_of_integers", _power),
        # Signals
        _library("interp"), _library("convolve"), _library("correlate"),
        *(_library(f"fft.{name}") for name in (
            "fft", "ifft", "rfft", "irfft", "hfft", "ihfft", "fftn", "ifftn", "rfftn", "irfftn",
        )),
        # Linear algebra
        *(_library(f"linalg.{name}") for name in (
            "inv", "det", "cholesky", "solve", "eigvals", "eigvalsh", "pinv", "matrix_power",
            "matrix_rank", "svdvals", "cond",
        )),
        _library("linalg.slogdet", 2), _library("linalg.eig", 2), _library("linalg.eigh", 2),
        _library("linalg.qr", 2), _library("linalg.svd", 3),
        # Indices along an axis
        _library("take_along_axis"), _library("take"),
    )
}  # fmt: skip
