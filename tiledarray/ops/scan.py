"""Scans: running totals along an axis, each element from the one before it."""

from __future__ import annotations

from typing import Any

import numpy as np

from tiledarray.ops.op import Rules, Scan


def _scan(name: str, ufunc: np.ufunc, accumulator: str, *vjp: Any) -> Scan:
    def reference(xp: Any, array: Any, *, attrs: Any, shape: Any, dtype: Any) -> Any:
        if xp is np:
            return ufunc.accumulate(array, attrs, dtype)
        if name in ("cumsum", "cumprod"):
            return getattr(xp, name)(array, axis=attrs, dtype=dtype)
        return xp.asarray(ufunc.accumulate(xp.asnumpy(array), attrs, dtype))  # CuPy has no other

    rules: Rules = vjp
    return Scan(name, reference, accumulator, ufunc, vjp=rules)


# A gradient goes to where the running extremum was met, of equal elements the last.
_EXTREMUM = "extremes_from(g, x, of_now(out, x, {name}.accumulate, attrs), attrs)"

BY_UFUNC: dict[np.ufunc, Scan] = {
    op.ufunc: op
    for op in (
        _scan("cumsum", np.add, "RunningSum", "sums_from(g, attrs)"),
        _scan("cumprod", np.multiply, "RunningProduct", "products_from(g, x, attrs)"),
        _scan("running_max", np.maximum, "RunningMax", _EXTREMUM.format(name="maximum")),
        _scan("running_min", np.minimum, "RunningMin", _EXTREMUM.format(name="minimum")),
        _scan("running_and", np.logical_and, "RunningAnd"),
        _scan("running_or", np.logical_or, "RunningOr"),
        _scan("running_bit_and", np.bitwise_and, "RunningAnd"),
        _scan("running_bit_or", np.bitwise_or, "RunningOr"),
        _scan("running_bit_xor", np.bitwise_xor, "RunningXor"),
    )
    if op.ufunc is not None
}
cumsum, cumprod = BY_UFUNC[np.add], BY_UFUNC[np.multiply]
BY_NAME = {op.name: op for op in BY_UFUNC.values()}
