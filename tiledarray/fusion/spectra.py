"""Rules of `rewrite` by which half of a spectrum is computed where that says all.

Libraries transform what is real as if it were complex.  CuPy's also reads what an inverse gives
once more, to divide it by its length; NumPy's does not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tiledarray.fusion.ir import Size, Value, value_args
from tiledarray.fusion.stored import reachable
from tiledarray.ops import arithmetic, movement, selection
from tiledarray.ops.library import BY_NAME
from tiledarray.ops.op import Elementwise, Op
from tiledarray.ops.spectra import fold, options_of, real_inverse

if TYPE_CHECKING:
    from tiledarray.fusion.rewrite import Args, Builder, DType, Shape

_HALVES: dict[Op, Op] = {
    BY_NAME["fft.fft"]: BY_NAME["fft.rfft"], BY_NAME["fft.fftn"]: BY_NAME["fft.rfftn"]}
_INVERSES = {BY_NAME[f"fft.{name}"] for name in ("ifft", "ifftn")}
_REAL_INVERSES = {BY_NAME[f"fft.{name}"] for name in ("irfft", "irfftn")}
_FACTORS = (arithmetic.multiply, arithmetic.divide, arithmetic.negative)


class _Transform(NamedTuple):
    """Lengths and axes of a transform, whose last axis is that which half is taken of."""

    lengths: tuple[int, ...]
    axes: tuple[int, ...]

    def needed(self) -> _Transform:
        """The same without axes of length 1: equal halves are of equal transforms, mostly."""
        pairs = [pair for pair in zip(self.lengths, self.axes, strict=True) if pair[0] > 1]
        lengths, axes = zip(*(pairs or [(1, self.axes[-1])]), strict=True)
        return _Transform(lengths, axes)

    def half(self, shape: Shape) -> Shape:
        """The shape of the half of an array."""
        last = self.axes[-1]
        return (*shape[:last], shape[last] // 2 + 1, *shape[last + 1:])


def _transform_of(value: Value) -> _Transform:
    lengths, axes, _ = options_of(value.attrs, len(value.shape))
    return _Transform(tuple(lengths), axes)


def real_part_of_inverse(builder: Builder, op: Any, attrs: Any, args: Args, shape: Shape,
                         dtype: DType) -> Value | None:
    """The real part of an inverse transform is one of the half that its symmetric part has.

    On the host only where that is the spectrum of a real array, which has but half of it: to add
    the mirror image of another takes as long as is saved, along rows twice as long.
    """
    if not builder.calls or op is not selection.real or (
            not _is_divided_later(builder, args[0], _INVERSES)):
        return None
    inner = args[0]
    (source,) = inner.args
    if (source.shape, source.dtype) != (inner.shape, inner.dtype) or inner.shape != shape:
        return None
    transform = _transform_of(inner).needed()
    half = _filtered(builder, source, transform)
    if half is None:
        if not _calls_cupy(builder):
            return None
        half = _folded(builder, source, transform, shape)
    options = (("axes", transform.axes), ("norm", "forward"), ("s", transform.lengths))
    found = builder.make(BY_NAME["fft.irfftn"], options, (half,), shape, dtype)
    twice = Size(2 * prod(transform.lengths))
    return builder.make(arithmetic.divide, (dtype, dtype), (found, twice), shape, dtype)


def inverse_scaled_later(builder: Builder, op: Any, attrs: Any, args: Args, shape: Shape,
                         dtype: DType) -> Value | None:
    """A real inverse transform is divided by its length where it is used."""
    if not _calls_cupy(builder) or not any(
            _is_divided_later(builder, arg, _REAL_INVERSES) for arg in args):
        return None
    return builder.make(op, attrs, [
        _divided(builder, arg) if _is_divided_later(builder, arg, _REAL_INVERSES) else arg
        for arg in args], shape, dtype)


def _calls_cupy(builder: Builder) -> bool:
    return builder.calls and builder.target.kind == "cuda"


def _is_divided_later(builder: Builder, arg: Any, ops: Collection[Op]) -> bool:
    """Whether an argument is an inverse that is divided by its length, and nobody else's."""
    return (isinstance(arg, Value) and arg.op in ops and arg.number not in builder.shared
            and dict(arg.attrs)["norm"] in (None, "backward"))


def _divided(builder: Builder, inverse: Value) -> Value:
    options = {**dict(inverse.attrs), "norm": "forward"}
    length = prod(options["s"]) if "s" in options else options["n"]
    shape, dtype = inverse.shape, inverse.dtype
    found = builder.make(inverse.op, tuple(sorted(options.items())), inverse.args, shape, dtype)
    return builder.make(arithmetic.divide, (dtype, dtype), (found, Size(length)), shape, dtype)


def overwrite_halves(builder: Builder, outputs: list[Value]) -> None:
    """Let real inverses overwrite what is computed for them alone: CuPy would copy it."""
    if builder.target.kind != "cuda":
        return
    live = reachable(builder.values, outputs)
    uses = Counter(arg for value in live for arg in value_args(value))
    uses.update(outputs)
    for value in live:
        if value.op not in _REAL_INVERSES:
            continue
        (half,) = value.args
        transform = _transform_of(value)
        if uses[half] == 1 and (isinstance(half.op, Elementwise) or half.op is fold) and (
                half.shape == transform.half(value.shape)):
            norm = dict(value.attrs)["norm"]
            value.op = real_inverse
            value.attrs = (("axes", transform.axes), ("norm", norm), ("s", transform.lengths))
            builder.fired["half_overwritten"] += 1


def _folded(builder: Builder, value: Value, transform: _Transform, shape: Shape) -> Value:
    """A value that is broadcast to a shape, and its mirror image's conjugate, added."""
    before = len(shape) - len(value.shape)
    axes = [axis - before for axis in transform.axes]
    last = axes[-1]
    axes = [axis for axis in axes if axis >= 0 and value.shape[axis] > 1]
    halved = last if last in axes else None
    kept = tuple(n // 2 + 1 if axis == halved else n for axis, n in enumerate(value.shape))
    return builder.make(fold, (tuple(axes), halved), (value,), kept, value.dtype)


def _filtered(builder: Builder, value: Value, transform: _Transform) -> Value | None:
    """The folded product of a real array's spectrum and another, as that of half the spectrum.

    At ``-k`` the spectrum is the conjugate of what it is at ``k``, so only the other is folded.
    Several stay apart: a product of theirs may be too large or small to be a number.
    """
    dtype, spectrum, negated = value.dtype, value, False
    other: Value | None = None
    while spectrum.op not in _HALVES:
        if spectrum.op not in _FACTORS or spectrum.number in builder.shared:
            return None
        first, *rest = spectrum.args
        if spectrum.op is arithmetic.multiply and not _may_hold(first, spectrum):
            first, rest = rest[0], [first]
        if not _may_hold(first, spectrum) or (rest and other is not None):
            return None
        negated ^= not rest
        if rest:
            other = _factor(builder, rest[0], spectrum.op, dtype)
            if other is None:
                return None
        spectrum = first
    if (other is None or spectrum.number in builder.shared or spectrum.args[0].dtype.kind == "c"
            or _transform_of(spectrum) != transform):
        return None
    shape = transform.half(value.shape)
    half = builder.make(_HALVES[spectrum.op], spectrum.attrs, spectrum.args, shape, dtype)
    folded = _folded(builder, other, transform, value.shape)
    half = builder.make(arithmetic.multiply, (dtype, dtype), (half, folded), shape, dtype)
    if negated:
        half = builder.make(arithmetic.negative, (dtype,), (half,), shape, dtype)
    return half


def _may_hold(value: Any, product: Value) -> bool:
    """Whether a factor may be, or hold, the spectrum."""
    return (isinstance(value, Value) and (value.shape, value.dtype) == (
        product.shape, product.dtype) and (value.op in _HALVES or value.op in _FACTORS))


def _factor(builder: Builder, factor: Any, op: Op, dtype: DType) -> Value | None:
    """What a spectrum is multiplied by, or the reciprocal of what it is divided by."""
    if not isinstance(factor, Value):
        factor = builder.make(movement.full, None, (factor,), (), dtype)
    if factor.dtype not in (np.empty(0, dtype).real.dtype, dtype):
        return None
    if op is arithmetic.multiply:
        return factor
    return builder.make(
        arithmetic.reciprocal, (factor.dtype,), (factor,), factor.shape, factor.dtype)
