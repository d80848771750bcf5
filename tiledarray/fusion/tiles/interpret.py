"""Tile programs run by NumPy: all problems at once, tiles where the planner has put them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tiledarray.fusion.ir import ONE, Affine, Index, Param, Size, Value
from tiledarray.fusion.tiles.ir import (
    Apply,
    Barrier,
    Call,
    Expression,
    Load,
    Map,
    Matrix,
    Number,
    Position,
    Product,
    Program,
    Read,
    Reduce,
    Scalar,
    Shape,
    Statement,
    Tile,
)
from tiledarray.ops.failures import of_matrix


def interpret(program: Program, arrays: Mapping[Value, Any], params: Sequence[Any]) -> None:
    """Run a program on arrays, those that it writes among them.

    Parameters
    ----------
    program : Program
        Its tiles have places.
    arrays : mapping
        The array of each leaf, and of what stores write (`Store.target`).
    params : sequence of scalar

    Raises
    ------
    numpy.linalg.LinAlgError
        With the message of the first call that fails, for the first problem.
    """
    with np.errstate(all="ignore"):
        _Run(program, arrays, params).run()


class Places:
    """Where each problem's elements are, and the values of expressions of them.

    Attributes
    ----------
    program : Program or StreamProgram
    arrays : mapping
    params : sequence of scalar
    places : tuple of array
        The index of each problem along each batch axis.
    """

    def __init__(self, program: Any, arrays: Mapping[Value, Any], params: Sequence[Any]) -> None:
        self.program = program
        self.arrays = arrays
        self.params = params
        self.places = np.unravel_index(np.arange(program.problems), program.lengths)

    def start(self, at: Affine) -> Any:
        """The part of an index that does not follow the domain, for each problem."""
        total: Any = 0
        for number, coefficient in at.terms:
            if number == ONE:
                total = total + coefficient
            elif number >= self.program.scalars:
                total = total + coefficient * self.places[number - self.program.scalars]
            else:
                total = total + coefficient * self.params[number]
        return total

    def on_chip(self, read: Read, domain: Shape) -> Any:
        """What a tile has at each point of a domain."""
        raise NotImplementedError

    def memory_index(self, index: Index, domain: Shape) -> tuple[Any, ...]:
        """An index into an array, for each problem and point of a domain."""
        return tuple(self.at(at, domain) for at in index)

    def at(self, at: Affine, domain: Shape) -> Any:
        """A place along a dimension, for each problem and point of a domain."""
        rank = len(domain)
        found = np.asarray(self.start(at)).reshape(-1, *(1,) * rank)
        if at.axis >= 0:
            shape = [1] * (rank + 1)
            shape[1 + at.axis] = -1
            found = found + at.step * np.arange(domain[at.axis]).reshape(shape)
        return np.broadcast_to(found, (self.program.problems, *domain))

    def array(self, value: Value, index: Index, domain: Shape) -> Any:
        """Elements of an array, for each problem and point of a domain."""
        return self.arrays[value][self.memory_index(index, domain)]

    # ---- values --------------------------------------------------------------------------------

    def value(self, expression: Expression, domain: Shape) -> Any:
        """An expression for each problem and point of a domain."""
        if isinstance(expression, Read):
            if isinstance(expression.source, Tile):
                return self.on_chip(expression, domain)
            return self.array(expression.source, expression.index, domain)
        if isinstance(expression, Scalar):
            return self.scalar(expression)
        if isinstance(expression, Number):
            return expression.dtype.type(expression.number)
        if isinstance(expression, Position):
            start, step = (self.scalar(x) for x in (expression.start, expression.step))
            at = self.at(expression.at, domain).astype(expression.loop)
            found = at * np.asarray(step, expression.loop) + np.asarray(start, expression.loop)
            return found.astype(expression.dtype)
        assert isinstance(expression, Apply)
        args = [self.value(arg, domain) for arg in expression.args]
        if expression.op is None:
            dtype = expression.dtype
            found = np.asarray(args[0])
            return (found.real if found.dtype.kind == "c" and dtype.kind != "c" else found).astype(
                dtype)
        cast = [x if isinstance(x, int | float | complex) and not isinstance(x, bool)
                else np.asarray(x).astype(loop, copy=False)
                for x, loop in zip(args, expression.loops, strict=False)]
        shape = np.broadcast_shapes(*(np.shape(x) for x in cast))
        return np.asarray(expression.op.reference(
            np, *cast, attrs=expression.loops, shape=shape, dtype=expression.dtype)).astype(
                expression.dtype, copy=False)

    def scalar(self, scalar: Scalar) -> Any:
        """A number of the recording."""
        param = scalar.param
        if isinstance(param, Param):
            return self.params[param.index] + param.shift if param.shift else (
                self.params[param.index])
        return param.count if isinstance(param, Size) else param or 0


class _Run(Places):
    program: Program

    def __init__(self, program: Program, arrays: Mapping[Value, Any],
                 params: Sequence[Any]) -> None:
        Places.__init__(self, program, arrays, params)
        # What nobody has written is no number.
        self.memory = np.full((program.problems, max(16, program.nbytes)), 0xFF, np.uint8)

    def run(self) -> None:
        for statement in self.program.singly():
            self.do(statement)

    def do(self, statement: Statement) -> None:
        """Run one statement alone."""
        if isinstance(statement, Load):
            domain = statement.tile.shape
            value = self.array(statement.source, statement.index, domain)
            self.tile(statement.tile)[...] = value
        elif isinstance(statement, Map):
            value = self.value(statement.expression, statement.domain)
            self.tile(statement.tile)[self.index(statement.index, statement.domain)] = value
        elif isinstance(statement, Reduce):
            self.reduce(statement)
        elif isinstance(statement, Product):
            out, left, right = (self.matrix(m) for m in (
                statement.out, statement.left, statement.right))
            out[...] = left @ right
        elif isinstance(statement, Call):
            CALLS[statement.name](self, statement)
        elif not isinstance(statement, Barrier):
            value = self.value(statement.expression, statement.domain)
            target = self.arrays[statement.target]
            at = self.memory_index(statement.index, statement.domain)
            target[at] = value

    # ---- places --------------------------------------------------------------------------------

    def tile(self, tile: Tile) -> Any:
        """A tile of all problems, as an array."""
        width = tile.dtype.itemsize
        strides = (self.memory.strides[0], *(width * step for step in tile.strides))
        shape = (self.memory.shape[0], *tile.shape)
        return np.ndarray(shape, tile.dtype, self.memory, self.program.offsets[tile], strides)

    def matrix(self, matrix: Matrix) -> Any:
        """The same as matrices."""
        tile = self.tile(matrix.tile)
        rows, columns = (matrix.columns, matrix.rows) if matrix.transposed else (
            matrix.rows, matrix.columns)
        width = matrix.tile.dtype.itemsize
        found = np.lib.stride_tricks.as_strided(
            tile, (len(tile), rows, columns), (tile.strides[0], matrix.pitch * width, width))
        if matrix.transposed:
            found = found.swapaxes(1, 2)
        return found.conj() if matrix.transposed == 2 else found

    def index(self, index: Index, domain: Shape) -> tuple[Any, ...]:
        problems = np.arange(self.program.problems).reshape(-1, *(1,) * len(domain))
        return problems, *self.memory_index(index, domain)

    def on_chip(self, read: Read, domain: Shape) -> Any:
        assert isinstance(read.source, Tile)
        return self.tile(read.source)[self.index(read.index, domain)]

    def reduce(self, statement: Reduce) -> None:
        shape = (self.program.problems, *statement.domain)
        value = np.broadcast_to(self.value(statement.expression, statement.domain), shape)
        axes = tuple(axis + 1 for axis in statement.axes)
        kept = tuple(n for axis, n in enumerate(shape) if axis not in axes)
        found = statement.op.reference(
            np, value, attrs=(axes, None if statement.op.positions else statement.accumulator),
            shape=kept, dtype=statement.tile.dtype)
        self.tile(statement.tile)[...] = np.asarray(found).reshape(
            self.tile(statement.tile).shape)

    def failed(self, call: Call, bad: Any) -> None:
        """Raise where NumPy would."""
        if call.failure and bad.any():
            raise np.linalg.LinAlgError(
                of_matrix(call.failure, int(bad.argmax()), self.program.lengths))


def _cholesky(run: _Run, call: Call) -> None:
    matrix = run.matrix(call.out[0])
    bad = np.zeros(len(matrix), bool)
    for k, one in enumerate(matrix):
        try:
            one[...] = np.linalg.cholesky(one)
        except np.linalg.LinAlgError:
            bad[k] = True
    run.failed(call, bad)


def _triangular(run: _Run, call: Call) -> None:
    x, a = run.matrix(call.out[0]), run.matrix(call.reads[1])
    upper = call.numbers[0] == int(call.reads[1].transposed > 0)
    a = np.triu(a) if upper else np.tril(a)
    bad = (np.diagonal(a, axis1=1, axis2=2) == 0).any(1)
    run.failed(call, bad)
    x[...] = np.linalg.solve(a, x)


def _lu(run: _Run, call: Call) -> None:
    matrix, pivots = run.matrix(call.out[0]), run.tile(call.out[1].tile)
    n = matrix.shape[-1]
    flat = pivots.reshape(len(matrix), -1)
    bad = np.zeros(len(matrix), bool)
    for p, a in enumerate(matrix):
        for k in range(n):
            row = k + int(np.argmax(abs(a[k:, k].real) + abs(a[k:, k].imag)))
            flat[p, k] = row
            a[[k, row]] = a[[row, k]]
            if a[k, k] == 0:
                bad[p] = True
                continue
            a[k + 1:, k] /= a[k, k]
            a[k + 1:, k + 1:] -= a[k + 1:, k, None] * a[k, None, k + 1:]
    pivots.reshape(flat.shape)[...] = flat
    run.failed(call, bad)


def _lu_solve(run: _Run, call: Call) -> None:
    x, a = run.matrix(call.out[0]), run.matrix(call.reads[1])
    pivots = run.tile(call.reads[2].tile).reshape(len(a), -1)
    n = a.shape[-1]
    for p in range(len(a)):
        for k, row in enumerate(pivots[p]):
            x[p][[k, row]] = x[p][[row, k]]
        lower = np.tril(a[p], -1) + np.eye(n)
        x[p] = np.linalg.solve(np.triu(a[p]), np.linalg.solve(lower, x[p]))


def _inverse(run: _Run, call: Call) -> None:
    out, a = run.matrix(call.out[0]), run.matrix(call.reads[0])
    bad = np.array([np.linalg.det(one) == 0 for one in a], bool)
    run.failed(call, bad)
    for place, one in enumerate(a):
        out[place] = np.nan if bad[place] else np.linalg.inv(one)


def _lu_parts(run: _Run, call: Call) -> tuple[Any, Any]:
    a = run.matrix(call.reads[0])
    pivots = run.tile(call.reads[1].tile).reshape(len(a), -1)
    n = a.shape[-1]
    sign = np.where((pivots != np.arange(n)).sum(1) % 2, -1.0, 1.0)
    return np.diagonal(a, axis1=1, axis2=2), sign


def _lu_det(run: _Run, call: Call) -> None:
    diagonal, sign = _lu_parts(run, call)
    tile = run.tile(call.out[0].tile)
    tile[...] = (diagonal.prod(1) * sign).reshape(tile.shape)


def _lu_slogdet(run: _Run, call: Call) -> None:
    diagonal, sign = _lu_parts(run, call)
    size = abs(diagonal)
    turned = np.where(size == 0, 0, diagonal / np.where(size == 0, 1, size)).prod(1) * sign
    signs, logs = (run.tile(matrix.tile) for matrix in call.out)
    signs[...] = turned.reshape(signs.shape)
    logs[...] = np.log(size).sum(1).reshape(logs.shape)


def _qr(run: _Run, call: Call) -> None:
    q, upper = (run.matrix(matrix) for matrix in call.out[:2])
    left, upper[...] = np.linalg.qr(q)
    q[...] = np.nan  # what is left of it there is no number
    if call.numbers[0]:
        q[..., :left.shape[-1]] = left


def _eigenvalues(run: _Run, call: Call) -> None:
    a, w = (run.matrix(matrix) for matrix in call.out[:2])
    bad = np.zeros(len(a), bool)
    for k, one in enumerate(a):
        try:
            found = np.linalg.eigh(one, "U" if call.numbers[0] else "L")
        except np.linalg.LinAlgError:
            bad[k] = True
            continue
        w[k] = found.eigenvalues[:, None]
        if len(call.out) > 2:
            run.matrix(call.out[2])[k] = found.eigenvectors
    a[...] = np.nan
    run.failed(call, bad)


def _fourier(run: _Run, call: Call) -> None:
    sign, axis, *extents = call.numbers
    part = run.tile(call.out[0].tile)[(slice(None), *map(slice, extents))]
    transform = np.fft.fft if sign < 0 else np.fft.ifft
    part[...] = transform(part, axis=axis + 1, norm="backward" if sign < 0 else "forward")


CALLS = {
    "cholesky": _cholesky, "triangular": _triangular, "lu": _lu, "lu_solve": _lu_solve,
    "inverse": _inverse,
    "lu_det": _lu_det, "lu_slogdet": _lu_slogdet, "qr": _qr,
    "eigenvalues": _eigenvalues, "fourier": _fourier,
}
