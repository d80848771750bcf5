"""Transforms of real arrays, and real ones of spectra, on a GPU: half of a spectrum says all.

The spectrum of a real array has at ``-k`` the conjugate of what it has at ``k``.  NumPy's library
makes use of that; CuPy computes as if the array were complex, which takes twice the time.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib import import_module
from itertools import product
from typing import Any

import numpy as np

from tiledarray.ops.op import Elementwise, Library


def of_real(xp: Any, array: Any, attrs: Any) -> Any:
    """The `fft` or `fftn` of a real array of CuPy's."""
    lengths, axes, norm = options_of(attrs, array.ndim)
    half = xp.ascontiguousarray(
        xp.fft.rfftn(xp.ascontiguousarray(array), s=lengths, axes=axes, norm=norm))
    shape = list(half.shape)
    shape[axes[-1]] = lengths[-1]
    whole = xp.empty(shape, half.dtype)
    if whole.size:
        _kernel(xp, "spread", axes, axes[-1], "c", whole.size, half.ndim)(half, *shape, whole)
    return whole


def _fold(xp: Any, array: Any, *, attrs: Any, shape: Any, dtype: Any) -> Any:
    axes, halved = attrs
    if xp.__name__ == "numpy":
        half = xp.array(array[tuple(map(slice, shape))])
        for beyond in product((False, True), repeat=len(axes)):  # whether an index is not 0
            here, there = ([slice(n) for n in shape] for _ in range(2))
            for axis, rest in zip(axes, beyond, strict=True):
                n, kept = array.shape[axis], shape[axis]
                here[axis] = slice(1, kept) if rest else slice(1)
                there[axis] = slice(n - 1, n - kept, -1) if rest else slice(1)
            half[tuple(here)] += array[tuple(there)].conj()
        return half
    array, half = xp.ascontiguousarray(array), xp.empty(shape, dtype)
    if half.size:
        _kernel(xp, "fold", axes, halved, array.dtype.kind, array.size, array.ndim)(
            array, *array.shape, half)
    return half


def _real_inverse(xp: Any, half: Any, *, attrs: Any, shape: Any, dtype: Any) -> Any:
    given = dict(attrs)
    if xp.__name__ == "numpy":
        return xp.fft.irfftn(half, **given).astype(dtype, copy=False)
    return import_module("cupyx.scipy.fft").irfftn(half, **given, overwrite_x=True)


# What the planner makes of the real part of an inverse transform (`fusion/spectra.py`): what an
# array has at `k` and the conjugate of what it has at `-k`, added, of which half says all; and
# `irfftn`, which on a GPU leaves anything in its argument.  ``attrs`` of the first: the axes, and
# the one of them that is halved, if one is.
fold = Library("fft.fold", _fold)
real_inverse = Library("fft.real_inverse", _real_inverse)


@cache
def root_of_one(order: int, sign: int) -> Elementwise:
    """Return the op that gives ``exp(sign 2 pi i x y / order)``; ``x`` times ``y`` is less."""
    index = "i32" if order < 1 << 28 else "i64"  # which eight times it fits in
    root = f"unit_root<part_of<T>>({index}(x * y), {index}({order}))"

    def reference(xp: Any, x: Any, y: Any, *, attrs: Any, shape: Any, dtype: Any) -> Any:
        turns = (x * y).astype(np.float64) / order
        return xp.exp(sign * 2j * np.pi * turns).astype(dtype)

    return Elementwise(f"root_of_one_{order}_{'m' if sign < 0 else 'p'}", reference,
                       f"m_conjugate({root})" if sign < 0 else root, cost=30)


def options_of(attrs: Any, ndim: int) -> tuple[Sequence[int], tuple[int, ...], Any]:
    """Lengths, axes and norm of a transform along one axis or several."""
    given = dict(attrs)
    lengths, axes = (given["s"], given["axes"]) if "s" in given else (
        (given["n"],), (given["axis"],))
    return lengths, tuple(axis % ndim for axis in axes), given["norm"]


def _kernel(xp: Any, name: str, axes: tuple[int, ...], halved: int | None, kind: str, size: int,
            ndim: int) -> Any:
    """Return what copies between half a spectrum and a whole one, of so many elements."""
    index = "long long" if size >= 1 << 31 else "unsigned"
    return _made(xp, name, axes, halved, kind, ndim, index)


@cache
def _made(xp: Any, name: str, axes: tuple[int, ...], halved: int | None, kind: str, ndim: int,
          index: str) -> Any:
    """Return the kernel: an element of the half for a thread, and where it stands twice over."""
    text = [f"{index} rest = ({index})i, step = 1, here = 0, there = 0;"]
    for axis in reversed(range(ndim)):
        count = f"({index})" + (f"(n{axis} / 2 + 1)" if axis == halved else f"n{axis}")
        text.append(f"const {index} k{axis} = rest % {count};")
        text.append(f"rest /= {count}; here += k{axis} * step;")
        mirrored = f"(k{axis} ? ({index})n{axis} - k{axis} : 0)" if axis in axes else f"k{axis}"
        text.append(f"there += {mirrored} * step; step *= ({index})n{axis};")
    if name == "spread":
        text.append("const T x = half; whole[here] = x;")
        text.append(f"if (k{halved} && 2 * k{halved} != ({index})n{halved})")
        text.append("  whole[there] = conj(x);")
    else:
        text.append(f"half = whole[here] + {'conj' if kind == 'c' else ''}(whole[there]);")
    lengths = "".join(f", int64 n{axis}" for axis in range(ndim))
    given, made = (("T half", "raw T whole") if name == "spread" else ("raw T whole", "T half"))
    return xp.ElementwiseKernel(given + lengths, made, "\n".join(text), f"ta_{name}_spectrum")
