"""What the rules of products are written with: of matrices, along axes, of subscripts."""

from __future__ import annotations

import math
import string
from collections.abc import Sequence
from typing import Any

import numpy as np

from tiledarray.arrays.handle import wrap
from tiledarray.errors import NoDerivative
from tiledarray.gradients.notation import unview, xp
from tiledarray.recording import record


def turned(x: Any) -> Any:
    """Return the transposes of matrices."""
    return x.swapaxes(-1, -2)


def conjugated(x: Any) -> Any:
    """Return the complex conjugate; of real numbers the array itself."""
    return x.conj() if x.dtype.kind == "c" else x


def real_dtype(x: Any) -> np.dtype[Any]:
    """Return the dtype of the real parts."""
    found: np.dtype[Any] = np.empty(0, x.dtype).real.dtype
    return found


def reinterpreted(g: Any, x: Any) -> Any:
    """Return what belongs to complex numbers read as pairs of real ones, or to such pairs.

    Raises
    ------
    NoDerivative
        If the memory was read as anything else.
    """
    if g.dtype == x.dtype:
        return g.reshape(x.shape)
    if g.dtype.kind + x.dtype.kind not in ("fc", "cf") or real_dtype(g) != real_dtype(x):
        raise NoDerivative(
            f"{x.dtype} read as {g.dtype} has no derivative",
            remedy="say that it is a constant: stop_gradient(x)")
    node = conjugated(g).node
    return conjugated(wrap(record.reinterpret(node, x.shape, x.dtype)))


def column(x: Any) -> Any:
    """Return vectors as matrices of one column."""
    return x[..., None]


def row(x: Any) -> Any:
    """Return vectors as matrices of one row."""
    return x[..., None, :]


# Matrices ----------------------------------------------------------------------------------------


def matmul_left(g: Any, x: Any, y: Any) -> Any:
    """Return what belongs to the left factor of a matrix product."""
    if y.ndim == 1:
        return g * y if x.ndim == 1 else column(g) * y
    if x.ndim == 1:
        return y @ g if y.ndim == 2 else (y @ column(g))[..., 0]
    return g @ turned(y)


def matmul_right(g: Any, x: Any, y: Any) -> Any:
    """Return what belongs to the right factor of a matrix product."""
    if x.ndim == 1:
        return g * x if y.ndim == 1 else column(x) * row(g)
    if y.ndim > 2:
        return turned(x) @ g
    count = math.prod(x.shape[:-1])  # one right factor for all: one product adds them up
    rows = x.reshape(count, x.shape[-1])
    if y.ndim == 1:
        return g.reshape(count) @ rows
    return turned(rows) @ g.reshape(count, g.shape[-1])


def dot_left(g: Any, x: Any, y: Any) -> Any:
    """Return what belongs to the left factor of `numpy.dot`."""
    if y.ndim == 1:
        return column(g) * y
    ahead = x.ndim - 1
    others = [axis for axis in range(y.ndim) if axis != y.ndim - 2]
    return xp.tensordot(g, y, ([*range(ahead, g.ndim)], others))


def dot_right(g: Any, x: Any, y: Any) -> Any:
    """Return what belongs to the right factor of `numpy.dot`."""
    places = [*range(x.ndim - 1)]
    found = xp.tensordot(x, g, (places, places))
    return found if y.ndim == 1 else xp.moveaxis(found, 0, -2)


def inner_left(g: Any, x: Any, y: Any) -> Any:
    """Return what belongs to the left factor of `numpy.inner`."""
    ahead = x.ndim - 1
    return xp.tensordot(g, y, ([*range(ahead, g.ndim)], [*range(y.ndim - 1)]))


def inner_right(g: Any, x: Any, y: Any) -> Any:
    """Return what belongs to the right factor of `numpy.inner`."""
    places = [*range(x.ndim - 1)]
    return xp.tensordot(g, x, (places, places))


# Subscripts --------------------------------------------------------------------------------------


def einsum_term(g: Any, inputs: Sequence[Any], attrs: Any, k: int) -> Any:
    """Return what belongs to one operand of `numpy.einsum`.

    It is the sum with the result's cotangent in its place.  Letters that only this operand has are
    summed: every element of them gets the same.  Of a letter that it has twice only the diagonal
    takes part.
    """
    x = inputs[k]
    terms, result = letters_of(dict(attrs)["subscripts"], [part.ndim for part in inputs], g.ndim)
    own = terms[k]
    sizes = _sizes([own], [x.shape])
    full = _sizes([*terms, result], [*(part.shape for part in inputs), g.shape])
    others = [place for place in range(len(inputs)) if place != k]
    known = {*result}.union(*(terms[place] for place in others))
    once = "".join(dict.fromkeys(own))
    kept = "".join(x for x in once if x in known and sizes[x] == full[x])
    text = f"{','.join([result, *(terms[place] for place in others)])}->{kept}"
    found = xp.einsum(text, g, *(inputs[place] for place in others), optimize=True)
    shape = tuple(sizes[letter] for letter in once)
    aligned = found.reshape(tuple(
        size for size in (found.shape[kept.index(x)] if x in kept else 1 for x in once)))
    spread = wrap(record.broadcast_to(aligned.node, shape))
    if len(once) == len(own):
        return spread
    axes = tuple(once.index(letter) for letter in own)
    steps = tuple(int(sizes[letter] == size) for letter, size in zip(own, x.shape, strict=True))
    return unview(spread, [x, *(0,) * x.ndim], (axes, steps))


def _sizes(terms: Sequence[str], shapes: Sequence[tuple[int, ...]]) -> dict[str, int]:
    """Return how far each letter counts: an axis of length 1 is repeated."""
    found: dict[str, int] = {}
    for term, shape in zip(terms, shapes, strict=True):
        for letter, size in zip(term, shape, strict=True):
            if size != 1 or letter not in found:
                found[letter] = size
    return found


def letters_of(subscripts: str, ndims: Sequence[int], ndim: int) -> tuple[list[str], str]:
    """Return a letter for each axis of the operands and of the result, also of the ellipsis."""
    text = subscripts.replace(" ", "")
    given, arrow, result = text.partition("->")
    terms = given.split(",")
    if not arrow:
        plain = given.replace(".", "").replace(",", "")
        result = "..." * ("." in given) + "".join(
            letter for letter in sorted({*plain}) if plain.count(letter) == 1)
    spare = [letter for letter in string.ascii_letters if letter not in text]

    def whole(term: str, ndim: int) -> str:
        before, dots, after = term.partition("...")
        count = ndim - len(before) - len(after) if dots else 0
        return before + "".join(spare[:count][::-1]) + after

    return [whole(*pair) for pair in zip(terms, ndims, strict=True)], whole(result, ndim)
