"""What the rules of transforms and of sliding products are written with."""

from __future__ import annotations

from typing import Any

import numpy as np

from tiledarray.api import fft
from tiledarray.gradients.notation import xp
from tiledarray.gradients.products import conjugated, real_dtype

# Fourier transforms ------------------------------------------------------------------------------


def transformed(name: str, g: Any, attrs: Any) -> Any:
    """Return another transform with the same options."""
    return getattr(fft, name)(g, **dict(attrs))


def from_half(name: str, g: Any, attrs: Any, *, conjugate: bool) -> Any:
    """Return what belongs to half a spectrum: frequencies that stand for two count twice.

    Parameters
    ----------
    name : {"rfft", "rfftn"}
    g : TiledArray
        Real.
    attrs : tuple
    conjugate : bool
        Whether the transform was an inverse one; then the factor is the inverse one's, too.
    """
    keywords = dict(attrs)
    if conjugate:
        keywords["norm"] = {"ortho": "ortho", "forward": "backward"}.get(
            keywords["norm"], "forward")
    found = getattr(fft, name)(g, **keywords)
    several = "s" in keywords
    size = keywords["s"][-1] if several else keywords["n"]
    axis = (keywords["axes"][-1] if several else keywords["axis"]) % g.ndim
    twice = np.full(size // 2 + 1, 2, real_dtype(found))
    twice[0] = 1
    if size % 2 == 0:
        twice[-1] = 1
    twice = twice.reshape(tuple(-1 if place == axis else 1 for place in range(g.ndim)))
    return (found.conj() if conjugate else found) * twice


def cut(g: Any, x: Any) -> Any:
    """Return what belongs to an array that was cut or filled with zeros to a shape."""
    common = tuple(slice(0, min(pair)) for pair in zip(g.shape, x.shape, strict=True))
    if any(have < want for have, want in zip(g.shape, x.shape, strict=True)):
        whole = xp.zeros(x.shape, g.dtype, device=g.device)
        whole[common] = g[common]
        return whole
    return g if g.shape == x.shape else g[common]


# Sliding products --------------------------------------------------------------------------------


def slid_left(g: Any, x: Any, y: Any, attrs: Any) -> Any:
    """Return what belongs to the first operand of `numpy.convolve`."""
    return _against(g, y, x, _first(g, x, y, attrs, turned=False))


def slid_right(g: Any, x: Any, y: Any, attrs: Any) -> Any:
    """Return what belongs to the second operand of `numpy.convolve`."""
    return _against(g, x, y, _first(g, x, y, attrs, turned=False))


def matched_left(g: Any, x: Any, y: Any, attrs: Any) -> Any:
    """Return what belongs to the first operand of `numpy.correlate`."""
    return _against(g, conjugated(y[::-1]), x, _first(g, x, y, attrs, turned=True))


def matched_right(g: Any, x: Any, y: Any, attrs: Any) -> Any:
    """Return what belongs to the second operand of `numpy.correlate`."""
    return conjugated(_against(g, x, y, _first(g, x, y, attrs, turned=True))[::-1])


def _against(g: Any, other: Any, like: Any, first: int) -> Any:
    """Return the sums over ``k`` of ``whole[i + k] * other[k]``: as many as ``like`` is long.

    ``whole`` is the cotangent of the full product: ``g`` from its place ``first`` on, else 0; where
    that is mostly zeros, they are not multiplied.
    """
    count, length = like.shape[0], other.shape[0]
    if g.shape[0] < count:
        begin = length - 1 - first
        return xp.convolve(g, other[::-1])[begin:begin + count]
    size = count + length - 1
    whole = g
    if g.shape[0] < size:
        whole = xp.zeros((size,), g.dtype, device=g.device)
        whole[first:first + g.shape[0]] = g
    return xp.correlate(whole, conjugated(other), "valid")


def _first(g: Any, x: Any, y: Any, attrs: Any, *, turned: bool) -> int:
    """Return with which element of the full product the result begins.

    NumPy slides the shorter operand along the longer one; ``correlate`` turns the result round if
    that is the first one.
    """
    mode = dict(attrs)["mode"]
    if mode == "full":
        return 0
    short = min(x.shape[0], y.shape[0])
    first = short - 1 - short // 2 if mode == "same" else short - 1
    if turned and x.shape[0] < y.shape[0]:
        first = x.shape[0] + y.shape[0] - 1 - g.shape[0] - first
    return first
