"""Reductions over short axes, and short axes that are kept: one kernel, and nothing between."""

import itertools

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tiledarray as np
from tests.plans import (
    DEVICE,
    HOST,
    TARGETS,
    fresh_recorder,
    kinds,
    moved,
    nbytes,
    one_kernel,
    peak_of,
    planned,
)
from tiledarray import explain
from tiledarray.kernels.text.program import print_kernel

N = 700


clean = fresh_recorder(compile="wait")


def points(*shape, dtype="f8", seed=0):
    random = numpy.random.default_rng(seed)
    if numpy.dtype(dtype).kind in "iub":
        return random.integers(0, 7, shape).astype(dtype)
    values = random.normal(size=shape)
    if numpy.dtype(dtype).kind == "c":
        values = values + 1j * random.normal(size=shape)
    return values.astype(dtype)


def squares(np, x, c):
    return ((x[:, None] - c[None]) ** 2).sum(-1)


def nearest(np, x, c):
    return squares(np, x, c).argmin(1)


def least(np, x, c):
    return squares(np, x, c).min(1)


def soft(np, x, c):
    d = -squares(np, x, c)
    top = d.max(1)
    return top + np.log(np.exp(d - top[:, None]).sum(1))


def of_features_first(np, x, c):
    return ((x.T[:, :, None] - c.T[:, None]) ** 2).sum(0).argmin(1)


def of_features_between(np, x, c):
    return abs(x[:, :, None] - c.T[None]).max(1).argmax(0)


def potential(np, d, axis):
    return (d * d).sum(axis, keepdims=True) + 1e-3


def forces(np, p):
    d = p[None] - p[:, None]
    return (d * potential(np, d, -1) ** -1.5).sum(1)


def forces_of_columns(np, p):
    d = p[None] - p[:, None]
    return (d * potential(np, d, -1) ** -1.5).sum(0)


def forces_with_axis_first(np, p):
    d = p.T[:, None] - p.T[:, :, None]
    return (d * potential(np, d, 0) ** -1.5).sum(2)


def forces_with_axis_between(np, p):
    d = p.T[None] - p[:, :, None]
    return (d * potential(np, d, 1) ** -1.5).sum(2)


def largest(np, p):
    d = p[None] - p[:, None]
    return (d * potential(np, d, -1) ** -1.5).max(1)


def where_largest(np, p):
    d = p[None] - p[:, None]
    return (d * np.exp(-potential(np, d, -1))).argmax(1)


def step(np, p):
    return p + 0.01 * forces(np, p) - 0.5


def lengths(np, p):
    f = forces(np, p)
    return np.sqrt((f * f).sum(-1))


def stress(np, p):
    d = p[None] - p[:, None]
    pairs = d[..., None] * d[..., None, :] * np.exp(-potential(np, d, -1))[..., None]
    return pairs.sum(1)


def all_pairs(np, p):
    d = p[None] - p[:, None]
    return (d * potential(np, d, -1) ** -1.5).sum((0, 1))


CENTRES = (nearest, least, soft, of_features_first, of_features_between)
BODIES = (forces, forces_of_columns, forces_with_axis_first, forces_with_axis_between, largest,
          where_largest, step, lengths, stress)


def inputs_of(program, n=N, dtype="f8"):
    if program in CENTRES:
        return [points(n, 16, dtype=dtype), points(40, 16, dtype=dtype, seed=1)]
    return [points(n, 3, dtype=dtype)]


def same(ours, theirs, tolerance=1e-10):
    ours = numpy.asarray(ours)
    assert ours.dtype == theirs.dtype
    assert ours.shape == theirs.shape
    if theirs.dtype.kind in "iub":
        numpy.testing.assert_array_equal(ours, theirs)
    else:
        scale = abs(theirs[numpy.isfinite(theirs)]).max(initial=1)
        numpy.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance * scale)


# ---- plans -------------------------------------------------------------------------------------


@pytest.mark.parametrize("program", [*CENTRES, *BODIES])
def test_one_kernel_reads_the_inputs_and_writes_the_result(program):
    inputs = [np.asarray(x) for x in inputs_of(program)]
    one_kernel(program(np, *inputs), reads=inputs)


@pytest.mark.sampled(12)
@pytest.mark.parametrize("program", [*CENTRES, *BODIES])
@pytest.mark.compiler
def test_nothing_of_the_size_of_all_pairs_is_stored(program):
    inputs = inputs_of(program)
    ours = [np.asarray(x) for x in inputs]
    result, peak = peak_of(lambda: np.evaluate(program(np, *ours)))
    pairs = N * (40 if program in CENTRES else N) * 8
    assert peak < pairs / 2, peak
    same(result, program(numpy, *inputs))


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_sums_over_all_pairs_are_components_too(target):
    p = np.asarray(points(N, 3))
    plan = planned(all_pairs(np, p), target=target)
    assert moved(plan) == p.nbytes + 3 * 8
    assert len(plan.kernels) == 1


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_the_mean_of_a_row_statistic_stores_rows_alone(target):
    x, c = (np.asarray(a) for a in inputs_of(soft))
    plan = planned(soft(np, x, c).mean(), target=target)
    assert len(plan.kernels) == 2
    assert moved(plan) <= nbytes(x, c) + 4 * N * 8 + 8


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_forces_by_gradient_store_nothing_of_all_pairs(target):
    def energy(p):
        d = p[None] - p[:, None]
        return (potential(np, d, -1) ** -0.5).sum()

    p = np.asarray(points(N, 3))
    plan = planned(*np.value_and_grad(energy)(p), target=target)
    assert len(plan.kernels) == 2  # the energy; and all pairs once more, for both ends of each
    assert moved(plan) < 10 * p.nbytes


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_long_work_on_components_is_no_kernel_beyond_its_limits(target):
    p, q = np.asarray(points(300, 4)), np.asarray(points(300, 4, seed=1))
    d = p[None, :, :, None] - q[:, None, None, :]
    for k in range(30):
        d = d * k + np.exp(-potential(np, p[None] - q[:, None], -1))[..., None]
    plan = planned(d.sum(1), target=target)
    assert all(len(kernel.cells) <= target.limits.cells for kernel in plan.kernels)


def test_stored_rows_are_read_as_they_lie():
    """What really is in memory is reduced by a loop, as it always was."""
    x = np.asarray(points(5000, 16))
    for target in (HOST, DEVICE):
        plan = planned((x * x).sum(-1).max(), target=target)
        assert "unroll_small_reduction" not in plan.fired
    pixels, weights = np.asarray(points(60, 50, 3)), np.asarray(points(60, 50))
    for target in (HOST, DEVICE):
        plan = planned((pixels * np.exp(weights)[..., None]).sum((0, 1)), target=target)
        assert all(len(sinks) == 1 for kernel in plan.kernels
                   for sinks in kernel.group.members.values())


def test_distances_that_are_returned_are_no_longer_free():
    x, c = (np.asarray(a) for a in inputs_of(nearest))
    apart = (x[:, None] - c[None]) ** 2
    plan = planned(apart, apart.sum(-1))
    assert "unroll_small_reduction" not in plan.fired
    assert kinds(plan) == ["row"] or kinds(plan) == ["column"]


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_the_terms_of_a_short_axis_share_an_address(target):
    inputs = [np.asarray(x) for x in inputs_of(nearest)]
    (kernel,) = planned(nearest(np, *inputs), target=target).kernels
    assert len(kernel.group.loads) == 2 * 16
    program = print_kernel(kernel, device=target.kind == "cuda")
    assert sum(slot.name.startswith("p_") for slot in program.slots) == 2
    assert sum(slot.name.startswith("sp_") for slot in program.slots) == 2


def test_long_axes_are_reduced_by_a_loop():
    x, c = np.asarray(points(500, 200)), np.asarray(points(40, 200))
    assert "unroll_small_reduction" not in planned(squares(np, x, c)).fired


def test_explain_names_an_array_of_components_once():
    p = np.asarray(points(N, 3))
    result = forces(np, p)
    steps = str(explain(result)).partition("step 1:")[2]  # what other tests left to NumPy is above
    assert steps.count("writes") == 1
    assert steps.count("(a live array holds") == 1


# ---- values ------------------------------------------------------------------------------------


@pytest.mark.sampled(6)
@pytest.mark.parametrize("dtype", ["f4", "f8", "c8", "c16"])
@pytest.mark.parametrize("program", [forces, forces_with_axis_first, step, lengths])
@pytest.mark.compiler
def test_forces_in_every_kind_of_number(program, dtype):
    if program is lengths and numpy.dtype(dtype).kind == "c":
        pytest.skip("the same kernels as forces, and a root that may lie on either side of a cut")
    p = points(61, 3, dtype=dtype)
    wide = p.astype(numpy.result_type(dtype, "f8"))
    ours = np.evaluate(program(np, np.asarray(p)))
    expected = program(numpy, wide)
    assert ours.dtype == program(numpy, p).dtype
    tolerance = 1e-3 if dtype in ("f4", "c8") else 1e-9
    same(numpy.asarray(ours).astype(expected.dtype), expected, tolerance)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("dtype", ["i1", "i4", "u2", "i8", "?"])
@pytest.mark.parametrize("reduce", ["argmin", "argmax", "min", "max", "sum"])
@pytest.mark.compiler
def test_whole_numbers_are_exact_and_the_first_of_equals_wins(reduce, dtype):
    x, c = points(90, 12, dtype=dtype), points(33, 12, dtype=dtype, seed=1)

    def program(np, x, c):
        return getattr(abs(x[:, None] ^ c[None]).sum(-1), reduce)(1)

    same(np.evaluate(program(np, np.asarray(x), np.asarray(c))), program(numpy, x, c))


@pytest.mark.parametrize("value", [numpy.nan, numpy.inf, -numpy.inf])
@pytest.mark.parametrize("reduce", ["argmin", "argmax", "min", "max"])
@pytest.mark.compiler
def test_what_is_no_number_is_found_where_numpy_finds_it(reduce, value):
    x, c = points(90, 12), points(33, 12, seed=1)
    x[3, 4] = c[7, 11] = c[9, 0] = value

    def program(np, x, c):
        with numpy.errstate(invalid="ignore"):
            return getattr(((x[:, None] - c[None]) ** 2).sum(-1), reduce)(1)

    same(np.evaluate(program(np, np.asarray(x), np.asarray(c))), program(numpy, x, c))


@settings(max_examples=25, deadline=None)
@given(n=st.integers(0, 300), m=st.integers(1, 70), strided=st.booleans(), reverse=st.booleans(),
       program=st.sampled_from(CENTRES))
@pytest.mark.compiler
def test_centres_of_any_number(n, m, strided, reverse, program):
    x, c = points(2 * n, 16), points(m, 32, seed=1)[:, ::2]
    x = x[::2] if strided else x[:n]
    c = c[::-1] if reverse else c
    if n == 0 and program is of_features_between:
        return  # NumPy refuses the largest of nothing
    same(np.evaluate(program(np, np.asarray(x), np.asarray(c))), program(numpy, x, c))


@settings(max_examples=25, deadline=None)
@given(n=st.integers(1, 200), strided=st.booleans(), program=st.sampled_from(BODIES))
@pytest.mark.compiler
def test_bodies_of_any_number(n, strided, program):
    p = points(2 * n, 3)
    p = p[::2] if strided else p[:n]
    same(np.evaluate(program(np, np.asarray(p))), program(numpy, p), 1e-9)


@pytest.mark.parametrize("program", [forces, forces_of_columns, forces_with_axis_first])
@pytest.mark.compiler
def test_no_bodies_feel_no_forces(program):
    p = points(0, 3)
    same(np.evaluate(program(np, np.asarray(p))), program(numpy, p))


@pytest.mark.parametrize(("length", "other"), [*itertools.product([2, 3, 4, 5], [2, 9])])
@pytest.mark.compiler
def test_components_of_any_number(length, other):
    p, q = points(50, length), points(other, length, seed=1)

    def program(np, p, q):
        d = p[:, None] - q[None]
        return (d / np.exp(potential(np, d, -1))).sum(1)

    same(np.evaluate(program(np, np.asarray(p), np.asarray(q))), program(numpy, p, q))


@pytest.mark.compiler
def test_gradients_of_all_pairs():
    def energy(np, p):
        d = p[None] - p[:, None]
        return (potential(np, d, -1) ** -0.5).sum()

    p = points(80, 3)
    value, gradient = np.value_and_grad(lambda p: energy(np, p))(np.asarray(p))
    d = p[None] - p[:, None]
    expected = -2 * (d * potential(numpy, d, -1) ** -1.5).sum(0)
    numpy.testing.assert_allclose(float(value), energy(numpy, p), rtol=1e-12)
    same(np.evaluate(gradient), expected, 1e-9)
