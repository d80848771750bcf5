"""Library calls of many small matrices by several threads; NumPy takes one after the other."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tiledarray.devices.threads import together
from tiledarray.ops.library import BY_NAME
from tiledarray.ops.op import Op

Reference = Callable[..., Any]
Shape = tuple[int, ...]

SMALL = 128  # rows and columns up to which BLAS and LAPACK leave a matrix to one thread
WORTH_SHARING = 1 << 23  # multiplications, of some milliseconds
SHARED = frozenset(BY_NAME[name] for name in (
    "matmul", "linalg.inv", "linalg.solve", "linalg.cholesky", "linalg.det", "linalg.slogdet",
    "linalg.cofactors", "linalg.eigh", "linalg.eigvalsh", "linalg.svd", "linalg.svdvals",
    "linalg.eig", "linalg.eigvals", "linalg.pinv", "linalg.qr",
))


def shared_out(op: Op, reference: Reference, shapes: Sequence[Shape], threads: int) -> Reference:
    """Return what computes the same, where it pays by several threads.

    Parameters
    ----------
    op : Op
    reference : callable
        As `Op.reference`; of whole arrays.
    shapes : sequence of tuple
        Of its inputs.
    threads : int
        Each takes a part of the leading axis.
    """
    if not shares(op, shapes, threads):
        return reference
    spans = _spans(shapes, threads)
    rank, length = max(map(len, shapes)), spans[-1].stop
    parted = [len(shape) == rank and shape[0] == length for shape in shapes]

    def shared(xp: Any, *inputs: Any, **others: Any) -> Any:
        found: list[Any] = [None] * len(spans)

        def compute(number: int) -> None:
            part = [x[spans[number]] if each else x
                    for x, each in zip(inputs, parted, strict=True)]
            with np.errstate(all="ignore"):  # each thread has its own
                found[number] = reference(xp, *part, **others)

        together(compute, range(len(spans)))
        if isinstance(found[0], tuple):
            return tuple(map(np.concatenate, zip(*found, strict=True)))
        return np.concatenate(found)

    return shared


def shares(op: Op, shapes: Sequence[Shape], threads: int) -> bool:
    """Whether it pays to compute with several threads."""
    return op in SHARED and len(_spans(shapes, threads)) > 1


def _spans(shapes: Sequence[Shape], threads: int) -> list[slice]:
    """Return the part of the leading axis that each thread takes; none if one does it all."""
    rank = max(map(len, shapes))
    length = max(shape[0] for shape in shapes if len(shape) == rank) if rank > 2 else 0
    if not length or any(max(shape[-2:]) > SMALL for shape in shapes if len(shape) > 1):
        return []
    work = max(math.prod(shape) * math.isqrt(math.prod(shape[-2:])) for shape in shapes)
    count = min(threads, length) if work >= WORTH_SHARING else 1
    places = [length * k // count for k in range(count + 1)]
    return [slice(*pair) for pair in itertools.pairwise(places)]
