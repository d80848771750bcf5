"""Medians of few elements, by networks of minima and maxima: elementwise work, which fuses.

A median along a short axis (a filter of 3x3, the middle of some runs) sorts each line by itself in
NumPy. Here the elements that lie side by side in other lines go through the same comparisons, whose
order does not depend on them: Batcher's odd-even merge sort, of which only that is kept which leads
to the middle.

A NaN goes through minima and maxima, and what a median is of leads to it: so it is NaN where one of
its elements is, as NumPy's is.

References
----------
K. E. Batcher, "Sorting networks and their applications", AFIPS 32 (1968).
"""

from __future__ import annotations

from functools import cache
from itertools import product
from math import prod
from typing import Any

import numpy as np

from tiledarray.fusion.ir import Size, Value
from tiledarray.ops import elementwise, movement
from tiledarray.ops.library import BY_NAME

MOST = 25  # elements of a network: some 250 minima and maxima
LEAST_MEDIANS = 64  # else a call is as good

_ADD, _CAST, _DIVIDE = (elementwise.BY_NAME[name] for name in ("add", "cast", "divide"))
_MINIMUM, _MAXIMUM = (elementwise.BY_NAME[name] for name in ("minimum", "maximum"))


def median_of_few(builder: Any, op: Any, attrs: Any, args: Any, shape: tuple[int, ...],
                  dtype: Any) -> Value | None:
    """A median of few elements is computed by a network."""
    if op is not BY_NAME["median"]:
        return None
    x, axis = args[0], dict(attrs)["axis"]
    axes = range(len(x.shape)) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    kept = [d for d in range(len(x.shape)) if d not in axes]
    inner = tuple(x.shape[d] for d in kept)
    count = prod(x.shape[d] for d in axes)
    if x.dtype.kind not in "iuf" or not 1 < count <= MOST or prod(inner) < LEAST_MEDIANS:
        return None
    wires = [_element(builder, x, dict(zip(axes, at, strict=True)), kept, inner)
             for at in product(*(range(x.shape[d]) for d in axes))]
    middle = sorted({(count - 1) // 2, count // 2})
    for low, high, wanted in comparisons(count, tuple(middle)):
        pair = wires[low], wires[high]
        for wire, combine in zip((low, high), (_MINIMUM, _MAXIMUM), strict=True):
            if wire in wanted:
                wires[wire] = builder.make(combine, (x.dtype, x.dtype), pair, inner, x.dtype)
    return builder.make(movement.reshape, None, (
        _mean(builder, [wires[wire] for wire in middle], dtype),), shape, dtype)


def _element(builder: Any, x: Value, at: dict[int, int], kept: list[int],
             inner: tuple[int, ...]) -> Value:
    """One element of each line that a median is of."""
    axes = tuple(kept.index(d) if d in kept else -1 for d in range(len(x.shape)))
    steps = tuple(int(d in kept) for d in range(len(x.shape)))
    starts = tuple(at.get(d) or None for d in range(len(x.shape)))
    return builder.make(movement.view, (axes, steps), (x, *starts), inner, x.dtype)


def _mean(builder: Any, middle: list[Value], dtype: Any) -> Value:
    """The mean as NumPy takes it: of integers in float64, of float16 in float32."""
    loop = np.dtype(np.float32) if dtype == np.float16 else dtype
    inner = middle[0].shape
    terms = [_cast(builder, value, loop) for value in middle]
    if len(terms) > 1:
        total = builder.make(_ADD, (loop, loop), terms, inner, loop)
        terms = [builder.make(_DIVIDE, (loop, loop), (total, Size(2)), inner, loop)]
    return _cast(builder, terms[0], dtype)


def _cast(builder: Any, value: Value, dtype: Any) -> Value:
    return builder.make(_CAST, (value.dtype,), (value,), value.shape, dtype)


@cache
def comparisons(count: int, wanted: tuple[int, ...]) -> tuple[tuple[int, int, frozenset[int]], ...]:
    """Which wires are compared one after the other, and which of both are wanted afterwards.

    Parameters
    ----------
    count : int
        How many wires there are.
    wanted : tuple of int
        Which of them must have, in the end, what sorting would leave there.
    """
    needed, found = {*wanted}, []
    for low, high in reversed(_sorting(count)):
        here = frozenset((low, high)) & needed
        if here:
            found.append((low, high, here))
            needed |= {low, high}
    return tuple(reversed(found))


def _sorting(count: int) -> list[tuple[int, int]]:
    """Pairs of wires in the order in which an odd-even merge sort compares them."""
    pairs = []
    size = 1
    while size < count:
        step = size
        while step:
            for begin in range(step % size, count - step, 2 * step):
                for low in range(begin, min(begin + step, count - step)):
                    if low // (2 * size) == (low + step) // (2 * size):
                        pairs.append((low, low + step))
            step //= 2
        size *= 2
    return pairs
