"""Gradients of what all pairs give: both ends of a pair in one sum over the pairs."""

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tiledarray as np
from tests.gradients import differences
from tests.plans import TARGETS, fresh_recorder, planned
from tiledarray.fusion import both_ends, rewrite

clean = fresh_recorder(at_once=0)
N = 9


def distances(x):
    return sum((a[:, None] - a[None]) ** 2 for a in x)


def density(x):
    return np.log(np.exp(-3.0 * distances(x)).sum(axis=1)).sum()


def density_by_columns(x):
    return np.log(np.exp(-3.0 * distances(x)).sum(axis=0)).sum()


def energy(x):
    r = np.sqrt(distances(x) + 0.1)
    return (1 / r + np.exp(-r)).sum()


def without_its_own(x):
    pairs = np.where(np.eye(len(x[0]), dtype=bool), 1.0, distances(x))
    return (np.log(pairs) * pairs).sum()


def of_differences(x):
    d = x[0][:, None] - x[0][None]
    return (np.sin(d) * d + np.abs(d) * np.tanh(d) ** 2).sum()


def one_sided(x):
    d = x[0][:, None] - x[0]
    return np.where(d > 0, d ** 3, 0.1 * d).sum()


def with_weights(x):
    d = x[0][:, None] - x[1]
    return (np.exp(-d * d) * (x[1][:, None] * x[0])).sum()


def inverse_of_differences(x):
    d = x[0][:, None] - x[0][None] + 3
    return (x[1] / d).sum()


def of_sums(x):
    return (x[0][:, None] * x[0] / (x[0][:, None] + x[0])).sum()


def with_a_matrix(x):
    m = np.array(numpy.arange(N * N, dtype=float).reshape(N, N) % 5)
    return (m * distances(x)).sum() + (np.exp(-distances(x)) * m.T).sum()


def of_components(x):
    p = np.stack(x, axis=1)
    d = p[:, None] - p[None]
    return ((d * d).sum(-1) + 0.2).sum() + (np.exp(-(d * d).sum(-1)) * d[..., 0] ** 2).sum()


def of_three(x):
    a, b, c = x[0][:, None, None], x[0][:, None], x[0]
    return np.exp(-(a - b) ** 2 - (b - c) ** 2 + a * c).sum()


def of_three_by_sums(x):
    a, b, c = x[0][:, None, None], x[1][:, None], x[0]
    return (np.exp(-(a - c) ** 2) * b).sum()


def of_parts(x):
    d = x[0][:-1, None] - x[0][1:]
    return np.exp(-d * d).sum()


FUNCTIONS = [density, density_by_columns, energy, without_its_own, of_differences, one_sided,
             with_weights, inverse_of_differences, of_sums, with_a_matrix, of_components,
             of_three, of_three_by_sums, of_parts]


def points(n, seed=0, dtype=float):
    return [a.astype(dtype) for a in numpy.random.default_rng(seed).random((3, n))]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_gradients_are_those_of_separate_sums(function, monkeypatch):
    x = points(N)
    found = np.grad(function)([np.array(a) for a in x])
    monkeypatch.setitem(rewrite.RULES, rewrite.Elementwise, tuple(
        rule for rule in rewrite.RULES[rewrite.Elementwise]
        if rule is not both_ends.sums_over_either_axis))
    wanted = np.grad(function)([np.array(a) * 1.0 for a in x])
    for one, other in zip(found, wanted, strict=True):
        if one is not None:
            numpy.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_gradients_are_those_by_differences(function):
    x, v = points(N), points(N, seed=1)
    found = np.grad(function)([np.array(a) for a in x])

    def by_numpy(t):
        return float(function([np.array(a + t * b) for a, b in zip(x, v, strict=True)]))

    wanted = differences(by_numpy, 0.0, 1.0)
    total = sum(float((g * b).sum()) for g, b in zip(found, v, strict=True))
    assert total == pytest.approx(float(wanted.real), rel=1e-6)


def sums_of(plan):
    return sum(cell.kind == "reduce" for kernel in plan.kernels for cell in kernel.cells)


def steps_of(function, target, n=1 << 17):  # so that views of points are recorded
    variables = [np.variable(np.array(a)) for a in points(n, dtype="f")]
    value = function(variables)
    return planned(value, *value.grad(variables), target=target)


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
@pytest.mark.parametrize("function", [density, density_by_columns])
def test_all_pairs_of_a_density_are_gone_through_twice(function, target):
    plan = steps_of(function, target)
    over_pairs = [kernel for kernel in plan.kernels if len(kernel.group.shape) == 2]
    assert len(over_pairs) == 2  # for the density, and for both ends of each pair
    assert plan.fired.get("sums_over_either_axis") == 3
    after = over_pairs[1]
    ops = [cell.value.op.name for cell in after.cells if cell.kind == "apply"]
    assert ops.count("exp") == 1 and ops.count("subtract") == 3 and ops.count("scaled") == 4


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_an_energy_and_its_forces_need_three_sums(target):
    plan = steps_of(energy, target)
    assert plan.fired.get("sums_over_either_axis") == 3 and sums_of(plan) == 4


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
@pytest.mark.parametrize("function", [one_sided, inverse_of_differences])
def test_what_is_something_else_when_turned_stays_apart(function, target):
    assert not steps_of(function, target).fired.get("sums_over_either_axis")


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_sums_that_are_no_gradients_stay_apart(target):
    x = np.array(points(50)[0])
    d = x[:, None] - x[None]
    plan = planned((d * np.exp(d * d)).sum(0) + (d * np.exp(d * d)).sum(1), target=target)
    assert not plan.fired.get("sums_over_either_axis")


def test_zeros_keep_their_signs_where_it_shows():
    # Divided by, a difference that is zero has the sign of its own order.
    x = np.variable(np.array([1.0, 1.0, 2.0]))
    d = x[:, None] - x[None]
    with numpy.errstate(all="ignore"):
        value = np.where(d == 0, np.arctan(1 / d), d * d).sum()
        found = value.grad(x).numpy()
    numpy.testing.assert_array_equal(numpy.isnan(found), [False] * 3)
    numpy.testing.assert_allclose(found, [-4.0, -4.0, 8.0])


LEAVES = ["d", "d * d", "abs(d)", "s", "s * d", "c"]
UNARY = ["np.exp(-({}) ** 2)", "np.sin({})", "-({})", "np.tanh({})", "np.sqrt(1 + ({}) ** 2)",
         "np.sign({})", "1 / (2 + abs({}))", "({}) ** 3"]
BINARY = ["({}) * ({})", "({}) + ({})", "({}) - ({})", "({}) / (3 + abs({}))",
          "np.where(({}) > 0.1, {}, 0.3 * d)", "np.maximum({}, {})"]
texts = st.recursive(
    st.sampled_from(LEAVES),
    lambda inner: st.builds(str.format, st.sampled_from(UNARY), inner)
    | st.builds(str.format, st.sampled_from(BINARY), inner, inner), max_leaves=6)


@settings(max_examples=60, deadline=None)
@given(texts, st.sampled_from([0, 1]), st.integers(1, 6))
def test_any_table_of_pairs(text, axis, n):
    def function(xp, x, y):
        d, s, c = x[:, None] - x[None], x[:, None] + x, x * y[:, None]
        table = eval(text, {"np": xp, "d": d, "s": s, "c": c, "abs": abs})
        return xp.sqrt(1 + xp.exp(xp.tanh(table)).sum(axis)).sum()

    x, y = numpy.random.default_rng(n).random((2, n)) + 0.05
    found = np.grad(lambda x, y: function(np, x, y), argnums=(0, 1))(np.array(x), np.array(y))
    rules = rewrite.RULES[rewrite.Elementwise]
    rewrite.RULES[rewrite.Elementwise] = tuple(
        rule for rule in rules if rule is not both_ends.sums_over_either_axis)
    try:
        wanted = np.grad(lambda x, y: function(np, x * 1, y * 1), argnums=(0, 1))(
            np.array(x), np.array(y))
    finally:
        rewrite.RULES[rewrite.Elementwise] = rules
    for one, other in zip(found, wanted, strict=True):
        numpy.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-10)
