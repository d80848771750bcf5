"""Every elementwise op, by name and by ufunc.

A ufunc with several outputs is several ops: ``OUTPUTS_BY_UFUNC`` has them in order.
"""

from __future__ import annotations

import functools
from types import ModuleType

import numpy as np

from tiledarray.ops import arithmetic, bitwise, comparison, selection, transcendental
from tiledarray.ops.op import Elementwise
from tiledarray.ops.ufunc import loop_dtypes

__all__ = ["BY_NAME", "BY_UFUNC", "KERNEL_DTYPES", "OUTPUTS_BY_UFUNC", "has_kernel", "loop_dtypes"]

_FAMILIES: tuple[ModuleType, ...] = (
    arithmetic, transcendental, comparison, bitwise, selection,
)

BY_NAME: dict[str, Elementwise] = {
    op.name: op
    for family in _FAMILIES
    for op in vars(family).values()
    if isinstance(op, Elementwise)
}

BY_UFUNC: dict[np.ufunc, Elementwise] = {
    op.ufunc: op for op in BY_NAME.values() if op.ufunc is not None and op.ufunc.nout == 1
}

OUTPUTS_BY_UFUNC: dict[np.ufunc, tuple[Elementwise, ...]] = {
    np.divmod: (arithmetic.floor_divide, arithmetic.remainder),
    np.frexp: (arithmetic.frexp_mantissa, arithmetic.frexp_exponent),
    np.modf: (arithmetic.modf_fraction, arithmetic.modf_integer),
}

# Names, so that bfloat16 is recognised without importing ml_dtypes.
KERNEL_DTYPES = frozenset({
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float16", "bfloat16", "float32", "float64", "complex64", "complex128",
})


def has_kernel(*dtypes: np.dtype) -> bool:
    """Whether kernels can compute in all of these dtypes."""
    return all(map(_has_kernel, dtypes))


@functools.lru_cache(256)
def _has_kernel(dtype: np.dtype) -> bool:
    return dtype.name in KERNEL_DTYPES and dtype.isnative
