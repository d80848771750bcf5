"""Equations solved by factors that are there: only where the matrices are symmetric for sure."""

import numpy
import pytest

import tiledarray as ta
from tests import tiles
from tests.plans import DEVICE, HOST
from tiledarray.fusion.along import Graph, looped_of
from tiledarray.fusion.tiles import find
from tiledarray.fusion.tiles.ir import Call

SIZE, COUNT = 6, 400


def _both(matrices, right):
    """The factor is asked for, and the solution."""
    return ta.linalg.cholesky(matrices), ta.linalg.solve(matrices, right)


def _plus(x, noise):
    return x + noise * ta.eye(SIZE)


SYMMETRIC = {
    "squared differences": lambda p, s: _plus(ta.exp(-(p[:, :, None] - p[:, None]) ** 2), s),
    "differences the other way": lambda p, s: _plus(
        ta.exp(-(p[:, None, :] - p[..., None]) ** 2 / s), s),
    "sizes of differences": lambda p, s: _plus(ta.exp(-abs(p[:, :, None] - p[:, None])), 2.0),
    "a difference times itself": lambda p, s: (
        lambda d: _plus(ta.exp(-0.5 * (d * d)), s))(p[:, :, None] - p[:, None]),
    "products": lambda p, s: _plus(p[:, :, None] * p[:, None], 1.5),
    "sums and masks": lambda p, s: ta.where(
        ta.eye(SIZE, dtype=bool), 9.0, ta.sin(p[:, :, None] + p[:, None])),
    "parts of a longer line": lambda p, s: _plus(
        ta.exp(-(p[:, 1:, None] - p[:, None, 1:]) ** 2), s),
}
OTHERS = {
    "a difference": lambda p, s: _plus(0.1 * (p[:, :, None] - p[:, None]), 2 * SIZE),
    "cubes": lambda p, s: _plus(0.1 * (p[:, :, None] - p[:, None]) ** 3, 2 * SIZE),
    "quotients": lambda p, s: _plus(0.1 * p[:, :, None] / (2 + p[:, None]), 2 * SIZE),
    "a triangle": lambda p, s: _plus(ta.tril(p[:, :, None] * p[:, None]), 2 * SIZE),
    "turned round": lambda p, s: _plus(p[:, :, None] * p[:, None, ::-1], 2 * SIZE),
    "two different lines": lambda p, s: _plus(p[:, 1:, None] * p[:, None, :-1], 2 * SIZE),
    "powers": lambda p, s: _plus(0.1 * (1 + abs(p[:, :, None])) ** p[:, None], 2 * SIZE),
}


def _drawn(name, dtype="f8"):
    random = numpy.random.default_rng(0)
    longer = name in ("parts of a longer line", "two different lines")
    return ((0.3 * random.normal(size=(COUNT, SIZE + longer))).astype(dtype),
            random.normal(size=(COUNT, SIZE, 2)).astype(dtype))


def _called(plan):
    return [each.name for kernel in tiles.kernels(plan)
            for each in kernel.program.statements if isinstance(each, Call)]


def _agrees(name, make, target, dtype):
    points, right = _drawn(name, dtype)
    traced = tiles.traced_of(lambda _, p, b: _both(make(p, ta.asarray(0.7, dtype)), b),
                             points, right)
    plan = tiles.planned_for(traced, target)
    with numpy.errstate(all="ignore"):
        matrices = numpy.asarray(make(ta.array(points), ta.asarray(0.7, dtype)))
    lower, solution = tiles.interpreted(traced, target)
    tolerance = 1e-9 if dtype == "f8" else 1e-3
    numpy.testing.assert_allclose(
        lower, numpy.linalg.cholesky(matrices), rtol=tolerance, atol=tolerance)
    numpy.testing.assert_allclose(
        solution, numpy.linalg.solve(matrices, right), rtol=tolerance, atol=tolerance)
    return plan


@pytest.mark.parametrize("target", [HOST, DEVICE], ids=["host", "device"])
@pytest.mark.parametrize("name", SYMMETRIC)
def test_symmetric_matrices_are_solved_by_their_factors(name, target):
    for dtype in ("f8", "f4"):
        plan = _agrees(name, SYMMETRIC[name], target, dtype)
        assert "cholesky" in _called(plan) and "lu" not in _called(plan), plan.refusals


@pytest.mark.sampled(2)
@pytest.mark.parametrize("target", [HOST, DEVICE], ids=["host", "device"])
@pytest.mark.parametrize("name", OTHERS)
def test_others_are_not(name, target):
    """Their factors are those of another matrix: one triangle is read."""
    plan = _agrees(name, OTHERS[name], target, "f8")
    assert "triangular" not in _called(plan)


def test_given_matrices_are_not_taken_for_symmetric():
    random = numpy.random.default_rng(0)
    matrices = random.normal(size=(COUNT, SIZE, SIZE)) + 9 * numpy.eye(SIZE)
    traced = tiles.traced_of(lambda _, x, b: _both(x, b), matrices, _drawn("")[1])
    assert "lu" in _called(tiles.planned_for(traced, DEVICE))


def test_both_triangles_of_a_mirrored_view_are_one_formula():
    points, right = _drawn("")

    def program(_, p, b):
        k = SYMMETRIC["squared differences"](p, 0.7)
        return ta.linalg.cholesky(k), ta.linalg.solve(k.mT, b)

    traced = tiles.traced_of(program, points, right)
    assert "lu" not in _called(tiles.planned_for(traced, DEVICE))


def test_long_formulas_are_looked_at_no_deeper():
    """Formulas in which every value is used twice are looked at once; very long ones are left."""
    points, right = _drawn("")

    def program(_, p, b):
        k = p[:, :, None] * p[:, None]
        for _ in range(100):
            k = k * 0.5 + k * 0.25 * k
        return _both(_plus(k, 9.0), b)

    traced = tiles.traced_of(program, points, right)
    assert "cholesky" in _called(tiles.planned_for(traced, DEVICE))


def test_what_decides_is_computed_once():
    """Beside a kernel that has no room, others compute again; not what a comparison is made of."""
    points, _ = _drawn("")

    def program(_, p):
        near = ta.exp(-(p[:, :, None] - p[:, None]) ** 2)
        factor = ta.linalg.cholesky(ta.where(near > 0.5, near, 0.0) + 9 * ta.eye(SIZE))
        return ta.where(near > 0.5, factor, ta.sin(p)[:, None])

    graph = Graph.of(looped_of(tiles.traced_of(program, points).signature), problems=True)
    again, _ = find._apart_from_calls(graph)
    names = {graph.entries[number].op.name for number in again if graph.entries[number].op}
    assert "greater" in names and "sin" in names and "exp" not in names
