"""Transforms of real arrays, and real ones of spectra, on a GPU: half of a spectrum says all.

The spectrum of a real array has at ``-k`` the conjugate of what it has at ``k``.  NumPy's library
makes use of that; CuPy computes as if the array were complex, which takes twice the time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from typing import Any

from tiledarray.ops.op import Library


def of_real(xp: Any, array: Any, attrs: Any) -> Any:
    """The `fft` or `fftn` of a real array of CuPy's."""
    lengths, axes, norm = _options(attrs, array.ndim)
    half = xp.ascontiguousarray(
        xp.fft.rfftn(xp.ascontiguousarray(array), s=lengths, axes=axes, norm=norm))
    shape = list(half.shape)
    shape[axes[-1]] = lengths[-1]
    whole = xp.empty(shape, half.dtype)
    if whole.size:
        _kernel(xp, "spread", half.ndim, axes, math.prod(shape))(half, *shape, whole)
    return whole


def _real_inverse(xp: Any, array: Any, *, attrs: Any, shape: Any, dtype: Any) -> Any:
    lengths, axes, norm = _options(attrs, array.ndim)
    if xp.__name__ == "numpy":
        return xp.fft.ifftn(array, s=lengths, axes=axes, norm=norm).real.astype(dtype, copy=False)
    array, folded = xp.ascontiguousarray(array), list(shape)
    folded[axes[-1]] = lengths[-1] // 2 + 1
    half = xp.empty(folded, array.dtype)
    if half.size:
        _kernel(xp, "fold", half.ndim, axes, array.size)(array, *shape, half)
    inverse = import_module("cupyx.scipy.fft").irfftn
    return inverse(half, s=lengths, axes=axes, norm=norm, overwrite_x=True)


# The real part of `ifftn`, or of `ifft`: what the planner makes of the two (`fusion/rewrite.py`).
real_inverse = Library("fft.real_inverse", _real_inverse)


def _options(attrs: Any, ndim: int) -> tuple[Sequence[int], tuple[int, ...], Any]:
    """Lengths, axes and norm of a transform along one axis or several."""
    given = dict(attrs)
    lengths, axes = (given["s"], given["axes"]) if "s" in given else (
        (given["n"],), (given["axis"],))
    return lengths, tuple(axis % ndim for axis in axes), given["norm"]


def _kernel(xp: Any, name: str, ndim: int, axes: tuple[int, ...], size: int) -> Any:
    """Return what copies between half a spectrum and a whole one, of so many elements."""
    wide = size >= 1 << 31
    return _made(xp, name, ndim, axes, "long long" if wide else "unsigned")


@cache
def _made(xp: Any, name: str, ndim: int, axes: tuple[int, ...], index: str) -> Any:
    """Return the kernel: an element of the half for a thread, and where it stands twice over."""
    last = axes[-1]
    half = [f"(n{last} / 2 + 1)" if axis == last else f"n{axis}" for axis in range(ndim)]
    text = [f"{index} rest = ({index})i, step = 1, here = 0, there = 0;"]
    for axis in reversed(range(ndim)):
        text.append(f"const {index} k{axis} = rest % ({index}){half[axis]};")
        text.append(f"rest /= ({index}){half[axis]}; here += k{axis} * step;")
        mirrored = f"(k{axis} ? ({index})n{axis} - k{axis} : 0)" if axis in axes else f"k{axis}"
        text.append(f"there += {mirrored} * step; step *= ({index})n{axis};")
    if name == "spread":
        text.append("const T x = half; whole[here] = x;")
        text.append(f"if (k{last} && 2 * k{last} != ({index})n{last}) whole[there] = conj(x);")
    else:
        text.append("const T x = whole[here], y = conj(whole[there]);")
        text.append("half = (x + y) * T(0.5);")
    lengths = "".join(f", int64 n{axis}" for axis in range(ndim))
    given, made = (("T half", "raw T whole") if name == "spread" else ("raw T whole", "T half"))
    return xp.ElementwiseKernel(given + lengths, made, "\n".join(text), f"ta_{name}_spectrum")
