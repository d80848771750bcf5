"""What becomes of library calls in a tile program."""

from __future__ import annotations

from collections.abc import Callable
from math import log2, prod, sqrt
from typing import Any

import numpy as np

from tiledarray.fusion.along import transformed
from tiledarray.fusion.ir import Affine, Index, Value, broadcast_index
from tiledarray.fusion.tiles.build import CONJUGATE, Maker, NoTile, whole
from tiledarray.fusion.tiles.ir import Apply, DType, Expression, Matrix, Number, Read, Shape, Tile
from tiledarray.fusion.tiles.teams import pitch_of_transform
from tiledarray.ops import elementwise
from tiledarray.ops.failures import FAILURES
from tiledarray.ops.op import AxisView, Item, Library

MULTIPLY: Any = elementwise.BY_NAME["multiply"]
SINGULAR = FAILURES["linalg.solve"]
INDEFINITE = FAILURES["linalg.cholesky"]


def primitive(maker: Maker, value: Value) -> None:
    """Add a library call's statements.

    Raises
    ------
    NoTile
    """
    op = value.op
    assert isinstance(op, Library)
    if op.tile not in _FORMS:
        raise NoTile(f"{op.name} has no form for tiles")
    _FORMS[op.tile](maker, value)


def _square(value: Value) -> int:
    return value.shape[-1]


def _cholesky(maker: Maker, value: Value) -> None:
    n = _square(value)
    matrix = maker.own(value.args[0], value.dtype)
    maker.call("cholesky", (matrix,), (matrix,), n ** 3 // 3, failure=INDEFINITE)
    maker.known(value, matrix.tile)


def triangle(value: Value) -> str:
    """Which triangle alone of a matrix is not zero: ``"lower"``, ``"upper"`` or ``""``."""
    if isinstance(value.op, Library) and value.op.tile == "cholesky":
        return "lower"
    factored = value.args[0] if isinstance(value.op, Item) and value.attrs == 1 else value
    if isinstance(factored.op, Library) and factored.op.tile == "qr" and (
            factored is not value or factored.op.outputs == 1):
        return "upper"
    if value.op is CONJUGATE:
        return triangle(value.args[0])
    if isinstance(value.op, AxisView):
        inner = value.args[0]
        axes, steps = value.attrs
        ends = tuple(axes[-2:])
        last = len(value.shape) - 1
        plain = len(axes) >= 2 and steps[-2:] == (1, 1) and (
            inner.shape[-2:] == value.shape[-2:]
            and all(start in (None, 0) for start in value.args[-2:]))
        found = triangle(inner) if plain else ""
        if ends == (last - 1, last):
            return found
        if ends == (last, last - 1):
            return {"lower": "upper", "upper": "lower", "": ""}[found]
    return ""


def _solve(maker: Maker, value: Value) -> None:
    left, right = value.args
    kind = triangle(left)
    matrix = maker.matrix(left, value.dtype) if kind else maker.own(left, value.dtype)
    x, columns = _right_side(maker, value, right)
    if kind:
        _triangular(maker, columns, matrix, lower=(kind == "lower") ^ (matrix.transposed > 0))
    else:
        symmetric = isinstance(value.op, Library) and value.op.tile == "solve_symmetric"
        pivots = _factored(maker, matrix, SINGULAR, symmetric=symmetric)
        maker.call("lu_solve", (columns,), (columns, matrix, pivots),
                   2 * matrix.rows ** 2 * columns.columns)
    maker.known(value, x)


def _solve_by_factor(maker: Maker, value: Value) -> None:
    factor, right = value.args
    lower = maker.matrix(factor, value.dtype)
    x, columns = _right_side(maker, value, right)
    for matrix in (lower, lower.transpose()):
        _triangular(maker, columns, matrix, lower=not lower.transposed)
    maker.known(value, x)


def _right_side(maker: Maker, value: Value, right: Value) -> tuple[Tile, Matrix]:
    """A tile for the solutions, with the right side in it, and the matrix that it is."""
    vector = len(right.shape) == 1
    x = maker.taken(right, value.shape, value.dtype) if not vector else None
    if x is None:
        x = maker.tile(value.shape, value.dtype, padded=not vector)
        maker.fill(x, right, broadcast_index(right.shape, whole(value.shape)), value.shape)
    return x, maker.as_matrix(x, vector=vector)


def _triangular(maker: Maker, columns: Matrix, matrix: Matrix, *, lower: bool) -> None:
    maker.call("triangular", (columns,), (columns, matrix), matrix.rows ** 2 * columns.columns,
               (int(lower),), SINGULAR)


def _factored(maker: Maker, matrix: Matrix, failure: str, *, symmetric: bool = False) -> Matrix:
    n = matrix.rows
    pivots = Matrix(maker.tile((n,), np.dtype(np.int32)), n, 1)
    maker.call("lu", (matrix, pivots), (matrix,), 2 * n ** 3 // 3, (1,) if symmetric else (),
               failure)
    return pivots


def _inverse_of_lower(maker: Maker, value: Value) -> None:
    n = _square(value)
    matrix = maker.matrix(value.args[0], value.dtype)
    tile = maker.tile(value.shape, value.dtype, padded=True)
    maker.map(tile, tile.shape, Number(0.0, tile.dtype))
    stack = whole(tile.shape)[:-2]
    maker.map(tile, (n,), Number(1.0, tile.dtype), (*stack, Affine(0), Affine(0)))
    _triangular(maker, maker.as_matrix(tile), matrix, lower=not matrix.transposed)
    maker.known(value, tile)


def _inverse(maker: Maker, value: Value) -> None:
    n = _square(value)
    matrix = maker.own(value.args[0], value.dtype)
    pivots = Matrix(maker.tile((n,), np.dtype(np.int32)), n, 1)
    out = maker.as_matrix(maker.tile(value.shape, value.dtype, padded=True))
    maker.call("inverse", (out, matrix, pivots), (matrix,), 2 * n ** 3, failure=SINGULAR)
    maker.known(value, out.tile)


def _det(maker: Maker, value: Value) -> None:
    source = value.args[0]
    matrix = maker.own(source, value.dtype)
    pivots = _factored(maker, matrix, "")
    tile = maker.tile(value.shape, value.dtype)
    maker.call("lu_det", (Matrix(tile, 1, 1),), (matrix, pivots), 4 * matrix.rows)
    maker.known(value, tile)


def _slogdet(maker: Maker, value: Value) -> None:
    matrix = maker.own(value.args[0], value.dtype)
    pivots = _factored(maker, matrix, "")
    sign = maker.tile(value.shape, value.dtype)
    size = maker.tile(value.shape, value.dtype.type(0).real.dtype)
    maker.call("lu_slogdet", (Matrix(sign, 1, 1), Matrix(size, 1, 1)), (matrix, pivots),
               20 * matrix.rows)
    for place, item in _items(maker, value).items():
        maker.known(item, (sign, size)[place])


def _items(maker: Maker, value: Value) -> dict[int, Value]:
    """The results of a call that are asked for, by their places."""
    return {item.attrs: item for item in maker.values
            if isinstance(item.op, Item) and item.args[0] is value}


def _qr(maker: Maker, value: Value) -> None:
    """Both factors, or R alone where nobody asks for the other."""
    source: Value = value.args[0]
    rows, columns = source.shape[-2:]
    short = min(rows, columns)
    alone = isinstance(value.op, Library) and value.op.outputs == 1
    items = {1: value} if alone else _items(maker, value)
    q = maker.own(source, value.dtype)
    upper = maker.tile((*value.shape[:-2], short, columns), value.dtype, padded=True)
    work = maker.tile((short,), value.dtype)
    flops = 2 * short * short * (max(rows, columns) - short // 3) * (2 if 0 in items else 1)
    maker.call("qr", (q, maker.as_matrix(upper), Matrix(work, short, 1)), (q,), flops,
               (int(0 in items),))
    for place, item in items.items():
        maker.known(item, (q.tile, upper)[place])


def _eigh(maker: Maker, value: Value) -> None:
    """Eigenvalues of Hermitian matrices, and vectors where somebody asks for them."""
    source: Value = value.args[0]
    alone = isinstance(value.op, Library) and value.op.outputs == 1
    items = {0: value} if alone else _items(maker, value)
    vectors = items.get(1)
    kind = np.complex64 if source.dtype.kind == "c" else value.dtype
    matrix = maker.own(source, np.result_type(value.dtype, kind))
    n = matrix.rows
    w = maker.tile(value.shape, value.dtype)
    out = [matrix, Matrix(w, n, 1)]
    if vectors is not None:
        tile = maker.tile(source.shape, matrix.tile.dtype, padded=True)
        out.append(maker.as_matrix(tile))
        maker.known(vectors, tile)
    upper = dict(value.attrs)["UPLO"] == "U"
    maker.call("eigenvalues", tuple(out), (matrix,), (30 if vectors else 15) * n ** 3,
               (int(upper),), FAILURES["linalg.eigh"])
    if 0 in items:
        maker.known(items[0], w)


def _product(maker: Maker, value: Value) -> None:
    left, right = value.args
    cores = {"matvec": (2, 1), "vecmat": (1, 2)}.get(
        value.op.name, (min(len(left.shape), 2), min(len(right.shape), 2)))
    if value.dtype.kind not in "fc":
        raise NoTile("products of integers have no form for tiles")
    a = _factor(maker, left, value.dtype, cores[0], row=True)
    if value.op.name == "vecmat" and value.dtype.kind == "c":
        raise NoTile("vecmat of complex numbers has no form for tiles")
    b = _factor(maker, right, value.dtype, cores[1], row=False)
    tile = maker.tile(value.shape, value.dtype, padded=sum(cores) == 4)
    rows, columns = a.rows, b.columns
    if prod(value.shape) != rows * columns:
        raise NoTile("a problem has several matrices")
    maker.product(a, b, Matrix(tile, rows, columns))
    maker.known(value, tile)


def _factor(maker: Maker, value: Value, dtype: Any, core: int, *, row: bool) -> Matrix:
    if core == 2:
        return maker.matrix(value, dtype)
    tile = maker.fresh(value, dtype)
    n = value.shape[-1]
    if prod(value.shape) != n:
        raise NoTile("a problem has several matrices")
    return Matrix(tile, 1, n) if row else Matrix(tile, n, 1)


# ---- Fourier transforms --------------------------------------------------------------------------


def _fourier(maker: Maker, value: Value) -> None:
    """A transform along any axes; of a real one the last of them has a half.

    On a device they go last, where threads side by side have elements side by side; on the host
    problems are, and so a tile is loaded and stored as it lies in memory.
    """
    name = value.op.name.removeprefix("fft.").removesuffix("n")
    attrs = dict(value.attrs)
    source: Value = value.args[0]
    rank = len(value.shape)
    axes = transformed(value.attrs, rank)
    lengths: tuple[int, ...] = attrs["s"] if "s" in attrs else (attrs["n"],)
    order = (*range(rank),)
    if maker.target.kind == "cuda":
        order = (*(k for k in order if k not in axes), *axes)
    *others, last = (order.index(axis) for axis in axes)
    shape = dict(zip(axes, lengths, strict=True))
    whole_shape = tuple(shape.get(k, source.shape[k]) for k in order)
    half = (*whole_shape[:last], lengths[-1] // 2 + 1, *whole_shape[last + 1:])
    dtype = np.result_type(value.dtype, np.complex64)
    from_half, to_half = name in ("irfft", "hfft"), name in ("rfft", "ihfft")
    apart = pitch_of_transform(whole_shape[-1]) if maker.padded else 0
    if not from_half and whole_shape == tuple(source.shape[k] for k in order):
        tile = maker.fresh(source, dtype, order, apart)
    else:
        tile = maker.tile(whole_shape, dtype, padded=True, apart=apart)
        _fill(maker, tile, source, order, half if from_half else whole_shape)
    forward = name in ("fft", "rfft", "hfft")
    if from_half:
        for axis in others[::-1]:
            _transform(maker, tile, axis, half, forward=forward)
        _mirror(maker, tile, last)
    _transform(maker, tile, last, whole_shape, forward=forward)
    if not from_half:
        for axis in others[::-1]:
            _transform(maker, tile, axis, half if to_half else whole_shape, forward=forward)
    norm = attrs.get("norm") or "backward"
    count = prod(lengths)
    by = 1 / sqrt(count) if norm == "ortho" else 1 / count if (
        norm == "backward") != forward else 1.0
    maker.known(value, tile, order, _scaling(by, value.dtype))


def _transform(maker: Maker, tile: Tile, axis: int, extents: Shape, *, forward: bool) -> None:
    """Transform what lies in the first ``extents`` of a tile along one of its axes."""
    n = tile.shape[axis]
    lines = prod(extents) // n
    out = [Matrix(tile, lines, n)]
    if maker.target.kind == "cpu":  # on a device it is in registers
        out.append(Matrix(maker.tile((n,), tile.dtype), 1, n))
    maker.call("fourier", tuple(out), tuple(out[:1]), int(5 * lines * n * max(log2(n), 1)),
               (-1 if forward else 1, axis, *extents))


def _scaling(by: float, dtype: DType) -> Callable[[Read], Expression] | None:
    """What makes an element of a transform from one of its tile."""
    if by == 1 and dtype.kind == "c":
        return None

    def scaled(read: Read) -> Expression:
        part: Expression = read
        if dtype != read.dtype:
            part = Apply(None, (dtype,), dtype, (read,))
        return part if by == 1 else Apply(MULTIPLY, (dtype, dtype), dtype,
                                          (part, Number(by, dtype)))

    return scaled


def _fill(maker: Maker, tile: Tile, source: Value, order: tuple[int, ...], region: Shape) -> None:
    """Fill the first ``region`` of a tile, with zeros where the source ends."""
    given = tuple(min(source.shape[k], n) for k, n in zip(order, region, strict=True))
    found = whole(given)
    index = tuple(found[order.index(k)] for k in range(len(order)))
    maker.fill(tile, source, index, given, None if given == tile.shape else found)
    for axis, (has, n) in enumerate(zip(given, region, strict=True)):
        if has < n:
            behind = (*given[:axis], n - has, *region[axis + 1:])
            at = _with(whole(behind), axis, _at(axis, 1, has, n - has))
            maker.map(tile, behind, Number(0.0, tile.dtype), at)


def _mirror(maker: Maker, tile: Tile, axis: int) -> None:
    """Fill what lies along an axis from its first half: the second is the conjugate, turned."""
    n = tile.shape[axis]
    half = n // 2 + 1
    # The first number and, of an even length, the middle one are taken to be real.
    for place in {0, n // 2} if n % 2 == 0 else {0}:
        one = (*tile.shape[:axis], 1, *tile.shape[axis + 1:])
        here = _with(whole(one), axis, Affine(-1, 0, ((-1, place),) if place else ()))
        real = Apply(None, (tile.dtype.type(0).real.dtype,), tile.dtype.type(0).real.dtype,
                     (Read(tile, here),))
        maker.map(tile, one, real, here)
    count = n - half
    if not count:
        return
    behind = (*tile.shape[:axis], count, *tile.shape[axis + 1:])
    to = _with(whole(behind), axis, _at(axis, 1, half, count))
    from_ = _with(whole(behind), axis, _at(axis, -1, n - half, count))
    conjugate: Any = CONJUGATE
    maker.map(tile, behind, Apply(conjugate, (tile.dtype,), tile.dtype, (Read(tile, from_),)), to)


def _with(index: Index, axis: int, at: Affine) -> Index:
    return (*index[:axis], at, *index[axis + 1:])


def _at(axis: int, step: int, start: int, count: int) -> Affine:
    terms = ((-1, start),) if start else ()
    return Affine(axis, step, terms) if count > 1 else Affine(-1, 0, terms)


_FORMS: dict[str, Callable[[Maker, Value], None]] = {
    "cholesky": _cholesky, "solve": _solve, "solve_symmetric": _solve,
    "solve_by_factor": _solve_by_factor,
    "inv": _inverse, "inv_of_lower": _inverse_of_lower, "det": _det, "slogdet": _slogdet,
    "qr": _qr, "eigh": _eigh,
    "product": _product, "fourier": _fourier,
}
