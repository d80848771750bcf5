"""`tiledarray.jit`: recorded once, run many times."""

import numpy as np
import pytest

import tiledarray as ta
from tiledarray.execution.executable import counters, observers


@pytest.fixture(autouse=True)
def compiled():
    with ta.config.override(compile="wait"):
        yield


def heat(u, steps=5):
    for _ in range(steps):
        u[1:-1] += 0.1 * (u[2:] - 2 * u[1:-1] + u[:-2])
    return u


def test_writes_into_its_argument_and_returns_it():
    start = np.random.default_rng(0).random(50)
    jitted = ta.jit(heat)
    u = ta.array(start)
    assert jitted(u) is u
    expected = heat(start.copy())
    np.testing.assert_array_equal(np.asarray(u), expected)
    jitted(u)
    np.testing.assert_array_equal(np.asarray(u), heat(expected))


@pytest.mark.compiler
def test_plans_once_for_a_shape():
    jitted = ta.jit(lambda x, y: np.sqrt(x * x + y).sum())
    x = ta.arange(10.0)
    jitted(x, x)
    arrays = [ta.array(np.arange(10.0) + k) for k in range(3)]
    before = counters["plans made"]
    for k, y in enumerate(arrays):
        expected = np.sqrt(np.arange(10.0) ** 2 + np.arange(10.0) + k).sum()
        assert float(jitted(x, y)) == pytest.approx(expected)
    assert counters["plans made"] == before
    assert jitted(ta.arange(3.0), ta.arange(3.0)).shape == ()


def test_nested_arguments_and_results():
    jitted = ta.jit(lambda d, k: {"a": d["x"] + k, "b": [d["x"].sum(), k], "c": d["x"]})
    x = ta.arange(4.0)
    result = jitted({"x": x}, 2)
    np.testing.assert_array_equal(np.asarray(result["a"]), np.arange(4.0) + 2)
    assert float(result["b"][0]) == 6.0
    assert result["b"][1] == 2
    assert result["c"] is x
    assert float(jitted({"x": x}, 3)["a"][0]) == 3.0


def test_captured_arrays_and_several_kernels():
    weights = ta.array([1.0, 2.0, 3.0])

    @ta.jit
    def centred(x):
        x = x - x.mean()
        return x * weights, np.linalg.norm(x)

    for values in ([3.0, 4.0, 8.0], [1.0, 1.0, 7.0]):
        scaled, length = centred(ta.array(values))
        expected = np.array(values) - np.mean(values)
        np.testing.assert_allclose(np.asarray(scaled), expected * [1, 2, 3])
        assert float(length) == pytest.approx(np.linalg.norm(expected))


def test_views_and_numpy_arrays_as_arguments():
    jitted = ta.jit(lambda x: x * 2)
    x = ta.arange(12.0).reshape(3, 4)
    np.testing.assert_array_equal(np.asarray(jitted(x.T[1:])), np.asarray(x).T[1:] * 2)
    np.testing.assert_array_equal(np.asarray(jitted(np.arange(3))), [0, 2, 4])


def test_results_of_different_calls_are_independent():
    jitted = ta.jit(lambda x: (x + 1).cumsum() * 2)
    first, second = jitted(ta.zeros(3)), jitted(ta.ones(3))
    np.testing.assert_array_equal(np.asarray(first), [2, 4, 6])
    np.testing.assert_array_equal(np.asarray(second), [4, 8, 12])


@pytest.mark.compiler
def test_looking_inside_is_refused():
    jitted = ta.jit(lambda x: x if float(x.sum()) > 0 else -x)
    with pytest.raises(TypeError, match="looked at a value"):
        jitted(ta.ones(3))


def test_without_kernels_the_function_just_runs():
    with ta.config.override(compile="never"):
        np.testing.assert_array_equal(np.asarray(ta.jit(lambda x: x + 1)(ta.zeros(2))), [1, 1])


@pytest.mark.compiler
def test_runs_are_seen_and_results_explained():
    jitted = ta.jit(lambda x: np.sqrt(x * x + 1).sum())
    x = ta.arange(1000.0)
    jitted(x)
    seen = []

    def watch(executable, step, seconds):
        seen.append(step)

    observers.append(watch)
    try:
        result = jitted(x)
    finally:
        observers.remove(watch)
    assert len(seen) > 0
    assert float(result) == pytest.approx(np.sqrt(np.arange(1000.0) ** 2 + 1).sum())
    assert result.node.buffer.plan is not None
    assert "kernel" in str(ta.explain(result))


@pytest.mark.compiler
def test_other_dtypes_are_refused():
    with pytest.raises(TypeError, match="only dtypes that kernels have"):
        ta.jit(lambda x: x[1:])(np.array([1, 2], np.longdouble))


def test_equal_arguments_of_other_types_are_other_calls():
    jitted = ta.jit(lambda x, k: x * k)
    x = ta.arange(3)
    for k in (1, True, 1.0, 1 + 0j, 1):
        expected = np.arange(3) * k
        assert jitted(x, k).dtype == expected.dtype
        assert jitted(x, k=k).dtype == expected.dtype


def test_arguments_by_name_and_nested_ones_are_told_apart():
    jitted = ta.jit(lambda *args, **kwargs: (len(args), sorted(kwargs), [type(a) for a in args]))
    x = ta.ones(2)
    assert jitted(x, x) == (2, [], [ta.TiledArray] * 2)
    assert jitted((x, x)) == (1, [], [tuple])
    assert jitted([x, x]) == (1, [], [list])
    assert jitted(x, y=x) == (1, ["y"], [ta.TiledArray])
    assert jitted({"y": x}) == (1, [], [dict])
    assert jitted() == (0, [], [])


@pytest.mark.compiler
def test_replayed_kernels_with_offsets_and_scalars():
    def smooth(u):
        n = u.shape[0]
        for start in (1, 2):
            u[start:-start] = 0.25 * u[start - 1:-start - 1] + 0.75 * u[start + 1:n - start + 1]
            u = u - u.mean()
        return u, u[3:].sum()

    jitted = ta.jit(smooth)
    kept = []  # so that every call gets other memory
    for seed in range(4):
        values = np.random.default_rng(seed).random(5000)
        arrays = ta.array(values)
        kept.append((arrays, *jitted(arrays)))
        expected, total = smooth(values)
        np.testing.assert_allclose(np.asarray(kept[-1][1]), expected)
        assert float(kept[-1][2]) == pytest.approx(total)
        np.testing.assert_allclose(np.asarray(arrays), values)


@pytest.mark.compiler
def test_scalar_arguments_are_told_apart_by_their_bits():
    made = []

    def work(x, scalar):
        made.append(scalar)
        return ta.copysign(x, scalar)

    jitted = ta.jit(work)
    x = ta.ones(3)
    with ta.config.override(compile="wait"):
        for scalar in (0.0, -0.0, float("nan"), float("nan"), 0.0, complex(0.0, -0.0).imag):
            expected = np.copysign(np.ones(3), scalar)
            np.testing.assert_array_equal(jitted(x, scalar).numpy(), expected)
    assert len(made) == 3
