"""Equations of matrices that are factored as well are solved by the factor.

Cholesky's factorization needs half of the arithmetic of elimination, and no pivots: on a GPU a
fifth of the time.  NumPy's reads one triangle and takes the other for its mirror image, so this is
for matrices that are symmetric whatever their values, as a look at how they are made shows: with
rows and columns exchanged the formula is the same (Golub and Van Loan, Matrix Computations, 4.2).
A matrix times its transpose is one: a library may round its halves differently, by no more than the
product is off.

Equations of such matrices that nobody factors are eliminated without exchanges where a thread has a
problem, in half of the arithmetic: where all pivots come out positive the matrix is definite, and
that is as stable (4.1 there: L D L^T); of another matrix the thread eliminates again, with pivots.
"""

from __future__ import annotations

from math import prod
from typing import Any

from tiledarray.fusion.along import Entry, Graph, Looped
from tiledarray.fusion.bodies import exchanged
from tiledarray.fusion.target import Target
from tiledarray.fusion.tiles.teams import refusal
from tiledarray.fusion.tiles.threads import worth_threads
from tiledarray.ops import arithmetic, elementwise
from tiledarray.ops.library import BY_NAME
from tiledarray.ops.op import AxisView, Elementwise, Library, Source

Names = tuple[Any, ...]  # what each dimension of a value is called; 0 where its length is 1

DEEPEST = 64  # operations of a formula that is looked at
_CHOLESKY, _SOLVE, _MATMUL = BY_NAME["linalg.cholesky"], BY_NAME["linalg.solve"], BY_NAME["matmul"]
SOLVE_BY_FACTOR = BY_NAME["linalg.solve_by_factor"]
SOLVE_SYMMETRIC = BY_NAME["linalg.solve_symmetric"]
INSTEAD = (SOLVE_BY_FACTOR, SOLVE_SYMMETRIC)  # of a solve
_EVEN = tuple(elementwise.BY_NAME[name] for name in ("square", "absolute"))
_COMMUTATIVE = tuple(elementwise.BY_NAME[name] for name in (
    "add", "multiply", "equal", "not_equal", "hypot", "logical_and", "logical_or"))


def by_factors(looped: Looped, target: Target) -> Looped:
    """Have equations solved by factors that are computed anyway, where kernels of tiles do that.

    Or as those of a symmetric matrix, where threads have a problem each.
    """
    graph = Graph.of(looped)
    solves = [(number, entry) for number, entry in enumerate(graph.entries) if entry.op is _SOLVE]
    if not solves:
        return looped
    factors = [number for number, entry in enumerate(graph.entries)
               if entry.op is _CHOLESKY and _is_small(entry, target)]
    formulas = _Formulas(graph)
    instead = {}
    for number, entry in solves:
        left, right = entry.values
        for factor in factors:
            if entry.dtype == graph.entries[factor].dtype and (
                    formulas.are_one_symmetric(left, graph.entries[factor].values[0])):
                instead[number] = Entry(
                    SOLVE_BY_FACTOR, entry.attrs, entry.shape, entry.dtype, (factor, right))
                break
        else:
            matrices = graph.entries[left]
            if entry.dtype == matrices.dtype and _is_small(matrices, target) and (
                    worth_threads(matrices.shape[:-2], target) and formulas.is_symmetric(left)):
                instead[number] = Entry(
                    SOLVE_SYMMETRIC, entry.attrs, entry.shape, entry.dtype, (left, right))
    return exchanged(graph, looped, instead) if instead else looped


def _is_small(entry: Entry, target: Target) -> bool:
    """Whether a factorization is one of those that kernels of tiles do, of real numbers."""
    count, rows = prod(entry.shape[:-2]), entry.shape[-1]
    return (entry.dtype.kind == "f" and count >= target.limits.problems and refusal(
        "cholesky", (rows,), entry.dtype.itemsize, device=target.kind == "cuda") is None)


class _Formulas:
    """How the elements of values are computed, by names for their indices: a number for each way.

    Attributes
    ----------
    numbers : dict
        Those of the formulas that were met, each an operation with the numbers of its operands.
    """

    def __init__(self, graph: Graph) -> None:
        self.numbers: dict[Any, int] = {}
        self._entries = graph.entries
        self._known: dict[tuple[int, Names], int] = {}

    def are_one_symmetric(self, matrix: int, other: int) -> bool:
        """Whether two entries are one stack of matrices, symmetric whatever the values are."""
        shape = self._entries[matrix].shape
        if shape != self._entries[other].shape or not self.is_symmetric(other):
            return False
        names = (*range(len(shape) - 2), "i", "j")
        return self.of(other, names) == self.of(matrix, names)

    def is_symmetric(self, matrix: int) -> bool:
        """Whether an entry is a stack of matrices that are symmetric whatever the values are."""
        stack = range(len(self._entries[matrix].shape) - 2)
        return self.of(matrix, (*stack, "i", "j")) == self.of(matrix, (*stack, "j", "i"))

    def of(self, number: int, names: Names, depth: int = 0) -> int:
        """Return the number of a formula; beyond `DEEPEST` a value is one of its own."""
        entry = self._entries[number]
        names = tuple(0 if n == 1 else name for n, name in zip(entry.shape, names, strict=True))
        key = number, names
        if key not in self._known:
            formula = self._formula(entry, names, depth + 1) if depth < DEEPEST else None
            if isinstance(formula, int):
                self._known[key] = formula
            else:
                self._known[key] = self.numbers.setdefault(formula or key, len(self.numbers))
        return self._known[key]

    def _formula(self, entry: Entry, names: Names, depth: int) -> Any:
        """Return a formula, its number where a view has it, or ``None`` for a value of its own."""
        if isinstance(entry.op, AxisView):
            (source,) = entry.values
            return self.of(source, self._behind(entry, names), depth)
        if isinstance(entry.op, Source):
            return entry.op, entry.attrs, entry.dtype, entry.refs, names
        if isinstance(entry.op, Library) and entry.op.tile == "product":
            return self._product(entry, names, depth)
        if not isinstance(entry.op, Elementwise):
            return None
        operands = [self._operand(ref, names, depth) for ref in entry.refs]
        if entry.values and (entry.op in _EVEN or (
                entry.op is arithmetic.multiply and len({*entry.refs}) == 1)):
            inner = self._entries[entry.values[0]]
            if inner.op is arithmetic.subtract:
                sides = sorted(self._operand(ref, names, depth) for ref in inner.refs)
                return entry.op, entry.attrs, inner.attrs, "of a difference", *sides
        if entry.op in _COMMUTATIVE and len({*entry.attrs}) == 1:
            operands.sort()
        return entry.op, entry.attrs, entry.dtype, *operands

    def _product(self, entry: Entry, names: Names, depth: int) -> Any:
        """Return the formula of a product of matrices; ``None`` for another."""
        left, right = (self._entries[value] for value in entry.values)
        if entry.op is not _MATMUL or not len(left.shape) == len(right.shape) == len(names):
            return None
        *stack, row, column = names
        inner = "summed", depth
        sides = sorted((self.of(entry.values[0], (*stack, row, inner), depth),
                        self.of(entry.values[1], (*stack, inner, column), depth)))
        return entry.op, entry.attrs, entry.dtype, *sides

    def _operand(self, ref: Any, names: Names, depth: int) -> int:
        """The number of an operand, which is broadcast; a scalar's is negative."""
        if ref is None or ref < 0:
            return -1 if ref is None else ref - 1
        return self.of(ref, names[len(names) - len(self._entries[ref].shape):], depth)

    def _behind(self, view: Entry, names: Names) -> Names:
        """What the dimensions are called of what a view is of."""
        axes, steps = view.attrs
        source = self._entries[view.values[0]].shape
        found: list[Any] = []
        for axis, step, start, n in zip(axes, steps, view.refs[1:], source, strict=True):
            name = names[axis] if axis >= 0 else 0
            whole = axis >= 0 and step == 1 and start is None and n == view.shape[axis]
            found.append(name if whole else (name, step, start, n))
        return tuple(found)
