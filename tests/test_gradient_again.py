"""A function that is differentiated again and again: its backward pass is planned once."""

import numpy
import pytest

import tiledarray as np
from tiledarray.errors import CompilerError, HistoryLost, TiledArrayWarning
from tiledarray.execution import doing_without, executable
from tiledarray.gradients import again, functions
from tiledarray.recording.stretch import local

T = numpy.linspace(0.0, 1.0, 7)
X = numpy.array([0.3, -1.2, 2.0, 0.7, 1.1, -0.4, 0.9])


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    """Functions are recorded as a whole from their first call on; every kernel is waited for."""
    monkeypatch.setattr(again, "PATIENCE", 0.0)
    monkeypatch.setattr(again, "_functions", again.OrderedDict())
    monkeypatch.setattr(again, "_plans", again.OrderedDict())
    monkeypatch.setattr(np.config, "at_once", 65_536)
    with np.config.override(compile="wait"):
        yield


@pytest.fixture
def passes(monkeypatch):
    """Counts the backward passes that are recorded."""
    found = []
    for module in (again, functions):
        plain = module.backward
        monkeypatch.setattr(
            module, "backward",
            lambda *args, plain=plain, **options: found.append(1) or plain(*args, **options))
    return found


def misfit(x, t):
    u = x.copy()
    u[1:-1] += 0.3 * (u[2:] - 2 * u[1:-1] + u[:-2])
    return ((np.exp(-u * t) - t) ** 2).sum()


def by_differences(function, x, step=1e-6):
    slope = numpy.empty_like(x)
    for k in numpy.ndindex(x.shape):
        moved = x.copy()
        moved[k] += step
        above = float(function(np.array(moved)))
        moved[k] -= 2 * step
        slope[k] = (above - float(function(np.array(moved)))) / (2 * step)
    return slope


def check(function, x, *others):
    value, slope = np.value_and_grad(function)(np.array(x), *others)
    numpy.testing.assert_allclose(value, function(np.array(x), *others), rtol=1e-12)
    numpy.testing.assert_allclose(
        slope, by_differences(lambda x: function(x, *others), x), rtol=1e-6, atol=1e-7)


def test_it_is_recorded_once_for_all_values(passes):
    for k in range(5):
        check(misfit, X * (1 + k), np.array(T + k))
    assert len(passes) == 1


def test_other_shapes_dtypes_and_numbers_are_other_plans(passes):
    check(misfit, X, np.array(T))
    check(misfit, X[:5], np.array(T[:5]))
    assert len(passes) == 2
    slope = np.grad(misfit)(np.array(X, "f4"), np.array(T, "f4"))
    assert slope.dtype == "f4" and len(passes) == 3
    for power in (2, 3, 2.0, -0.0, 0.0):
        check(lambda x, power=power: (np.abs(x) ** power * x).sum() + power, X)
    assert len(passes) > 5


def test_a_function_that_is_another_every_time_is_given_up(passes):
    for k in range(2 * again.MOST_MISSES):
        check(lambda x, k=k: (np.sin(x) * (k + 0.5)).sum(), X)
    (known,) = again._functions.values()
    assert known.misses == again.MOST_MISSES and not known.is_due()
    assert len(again._plans) == again.MOST_MISSES and not known.hits // again.HITS_A_MISS


def grown(x, times):
    for _ in range(times):
        x = x + 1e-3 * x
    return x.sum()


def test_long_histories_go_on_as_without(passes, monkeypatch):
    monkeypatch.setattr(again, "PATIENCE", 1e-9)
    monkeypatch.setattr(again, "MOST_NODES", 700)
    for k in range(1, 6):
        numpy.testing.assert_allclose(
            np.grad(grown)(np.array(X), 400), numpy.full(7, 1.001**400), rtol=1e-12)
        assert len(passes) == k
    (known,) = again._functions.values()
    assert known.nodes > again.MOST_NODES and not known.misses and not again._plans


@pytest.mark.compiler
def test_kernels_of_a_long_history_are_not_long(passes, monkeypatch):
    monkeypatch.setattr(again, "PATIENCE", 1e-9)
    for _ in range(3):
        numpy.testing.assert_allclose(
            np.grad(grown)(np.array(X), 700), numpy.full(7, 1.001**700), rtol=1e-12)
    (known,), (plan,) = again._functions.values(), again._plans.values()
    assert known.hits == 2 and len(plan.executable.plan.kernels) > 2
    assert max(len(kernel.cells) for kernel in plan.executable.plan.kernels) <= 700


@pytest.mark.compiler
def test_many_steps_in_place_have_one_plan(passes, monkeypatch):
    def stepped(u, np=np):
        u = u.copy()
        for _ in range(90):
            u[1:-1] += 0.1 * (u[2:] - 2 * u[1:-1] + u[:-2])
        return (u * u).sum()

    monkeypatch.setattr(again, "PATIENCE", 1e-9)
    u = numpy.random.default_rng(0).random(300)
    found = [np.grad(stepped)(np.array(u)).numpy() for _ in range(4)]
    (known,) = again._functions.values()
    assert known.hits == 3 and known.misses == 1 and len(passes) == 2
    step = numpy.zeros(300)
    step[137] = 1e-6
    slope = (stepped(u + step, numpy) - stepped(u - step, numpy)) / 2e-6
    for each in found:
        numpy.testing.assert_allclose(each, found[0], rtol=1e-12)
        numpy.testing.assert_allclose(each[137], slope, rtol=1e-6)


def test_branches_and_what_is_closed_over_count():
    factor = np.array(2.0)

    def branching(x):
        return (x * factor).sum() if len(taken) % 2 else (x**2 * factor).sum()

    taken = []
    for k in range(6):
        factor[...] = k + 1.0
        slope = np.grad(branching)(np.array(X))
        wanted = numpy.full(7, k + 1.0) if len(taken) % 2 else 2 * X * (k + 1)
        numpy.testing.assert_allclose(slope, wanted)
        taken.append(k)


def test_a_gradient_that_is_an_input_has_memory_of_its_own():
    y = np.array(T)
    for _ in range(3):
        value, slope = np.value_and_grad(lambda x: (x * y).sum())(np.array(X))
        slope[0] = 100.0
        numpy.testing.assert_array_equal(y, T)
    numpy.testing.assert_allclose(value, X @ T)


def test_constants_of_the_gradient_stay_constants():
    for _ in range(3):
        slope = np.grad(lambda x: (x * np.stop_gradient(x)).sum())(np.array(X))
        numpy.testing.assert_allclose(slope, X)
        slope = np.grad(lambda x: (x * x).sum())(np.array(X))
        numpy.testing.assert_allclose(slope, 2 * X)


def test_gradients_of_gradients():
    def second(x):
        return (np.grad(lambda y: (y**3 * x).sum())(x) * x).sum()

    for k in range(3):
        check(second, X + k)


def test_a_history_from_outside_goes_on():
    for k in range(3):
        w = np.variable(T + k)
        slope = np.grad(lambda x: (x**2 * w).sum())(np.array(X))  # noqa: B023
        numpy.testing.assert_allclose(slope.sum().grad(w), 2 * X)


def test_a_rule_of_the_users_is_called_every_time():
    calls = []
    plain = np.custom_vjp(np.sin)
    plain.defvjp(lambda x: (np.sin(x), x), lambda x, g: (calls.append(1) or 10 * g * np.cos(x),))
    for k in range(1, 4):
        slope = np.grad(lambda x: plain(x).sum())(np.array(X))
        numpy.testing.assert_allclose(slope, 10 * numpy.cos(X))
        assert len(calls) == k


def test_what_the_function_puts_aside_is_computed():
    aside, total = [], {"sum": np.array(0.0)}

    def loss(x):
        value = (x**2).sum()
        aside.append(x * 2)
        total["sum"] = total["sum"] + value
        return value

    for k in range(5):
        np.grad(loss)(np.array(X + k))
        assert not aside[-1].node.pending and not total["sum"].node.pending
        numpy.testing.assert_allclose(aside[-1], 2 * (X + k))
    numpy.testing.assert_allclose(total["sum"], sum(((X + k) ** 2).sum() for k in range(5)))


def test_aux_and_arguments_in_trees():
    def loss(weights, x):
        hidden = np.tanh(x @ weights["w"] + weights["b"])
        return (hidden**2).mean(), hidden

    rng = numpy.random.default_rng(0)
    for _ in range(3):
        weights = {"w": np.array(rng.random((7, 3))), "b": np.array(rng.random(3))}
        (_, hidden), slope = np.value_and_grad(loss, has_aux=True)(weights, np.array(X))
        plain = numpy.tanh(X @ numpy.asarray(weights["w"]) + numpy.asarray(weights["b"]))
        numpy.testing.assert_allclose(hidden, plain)
        back = 2 / 3 * plain * (1 - plain**2)
        numpy.testing.assert_allclose(slope["b"], back)
        numpy.testing.assert_allclose(slope["w"], numpy.outer(X, back))


def test_an_argument_that_nothing_depends_on_has_zeros():
    for _ in range(3):
        first, second = np.grad(lambda x, y: (x**2).sum(), (0, 1))(np.array(X), np.array(T))
        numpy.testing.assert_allclose(first, 2 * X)
        numpy.testing.assert_array_equal(second, numpy.zeros(7))


def test_looks_and_errors_inside_are_as_ever():
    def looking(x):
        return (x**2).sum() if x[0] > 0 else (x**3).sum()

    def failing(x):
        (x * 2).sum()
        raise KeyError("mine")

    def losing(x):
        return np.array(float(x.sum()))

    for _ in range(3):
        numpy.testing.assert_allclose(np.grad(looking)(np.array(X)), 2 * X)
        numpy.testing.assert_allclose(np.grad(looking)(np.array(-X)), 3 * X**2)
        with pytest.raises(KeyError, match="mine"):
            np.grad(failing)(np.array(X))
        with pytest.raises(HistoryLost):
            np.grad(losing)(np.array(X))
    numpy.testing.assert_allclose(np.array(X) * 2, 2 * X)


def test_it_waits_for_its_kernels_elsewhere(monkeypatch):
    with np.config.override(compile="background"):
        for k in range(200):
            check(misfit, X + 1e-3 * k, np.array(T))
            (known,) = again._functions.values()
            if known.whole:
                break
    assert known.whole or known.waiting is not None


def test_what_does_not_compile_goes_on_as_without(monkeypatch):
    def refuses(self):
        raise CompilerError("no compiler today", remedy="install one")

    monkeypatch.setattr(executable.Executable, "_prepare", refuses)
    with pytest.warns(TiledArrayWarning, match="no compiler today"):
        monkeypatch.setattr(doing_without, "_told", set())
        for size in (23, 23, 24):  # that have no plan yet
            slope = np.grad(misfit)(np.ones(size), np.zeros(size))
            numpy.testing.assert_array_equal(slope, numpy.zeros(size))
    with np.config.override(compile="never"):
        check(misfit, X, np.array(T))


def test_an_interrupted_function_leaves_nothing_behind():
    def interrupted(x):
        (x * 2).sum()
        raise KeyboardInterrupt

    before = local.recorder
    with pytest.raises(KeyboardInterrupt):
        np.grad(interrupted)(np.array(X))
    assert local.recorder is before and not again._wholes


K = numpy.array([[2.0, 0.3, 0.1], [0.3, 1.5, -0.2], [0.1, -0.2, 1.0]])


def likelihood(x):
    lower = np.linalg.cholesky(np.exp(-x) * K + x**2 * np.eye(3))
    turned = np.linalg.solve(lower, np.arange(1.0, 4))
    return (turned**2).sum() + 2 * np.log(np.diagonal(lower)).sum()


def spectral(x):
    values, vectors = np.linalg.eigh(K * x[0] + np.diag(x[1:4]))
    return (values**3).sum() + (vectors[:, 0] ** 4).sum()


def looked(x):
    y = np.sin(x) * x
    scale = 2.0 if y.sum() > 0 else 3.0
    y[0] += scale * y[1]
    return (scale * y**2).sum() + (y[:3] * y[::-1][:3]).sum()


@pytest.mark.parametrize(
    ("function", "arguments"),
    [(likelihood, [numpy.array(v) for v in (0.2, 0.9, 0.5)]),
     (spectral, [X[:4], X[:4] * 1.1 - 0.05]),
     (looked, [X, -X, X + 1, X * 0.5, -X * 0.5, X])])
def test_what_is_computed_on_the_way_has_a_plan_too(function, arguments, passes):
    """Factorizations are computed at the call, for their errors; and so is what is looked at."""
    for _ in range(2):
        for argument in arguments:
            check(function, argument)
    assert len(passes) <= 2
    (known,) = again._functions.values()
    assert known.hits >= 2 * len(arguments) - 2


def test_errors_of_factorizations_are_raised_where_they_are_called(passes):
    def guarded(x):
        try:
            return np.log(np.diagonal(np.linalg.cholesky(x * K))).sum()
        except np.linalg.LinAlgError:
            return -x * x

    for x in (0.5, -2.0, 1.5, -3.0):
        expected = 1.5 / x if x > 0 else -2 * x
        numpy.testing.assert_allclose(np.grad(guarded)(np.array(x)), expected, rtol=1e-12)
    assert len(passes) == 2


def test_numbers_are_inputs_too(passes):
    def decay(rate, offset):
        return (np.exp(-rate * np.array(T)) + offset).sum() * offset

    for rate, offset in ((0.5, 1.0), (2.0, -1.0), (0.0, 0.5)):
        for of in (float, numpy.float64, numpy.array, np.array):
            slopes = np.grad(decay, (0, 1))(of(rate), of(offset))
            values = numpy.exp(-rate * T)
            numpy.testing.assert_allclose(slopes, (
                -(T * values).sum() * offset, values.sum() + 14 * offset), rtol=1e-12)
    assert len(passes) <= 3
