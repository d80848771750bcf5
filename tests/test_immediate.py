"""What is small is computed when it is recorded: loops over elements, and many small parts."""

import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tiledarray as ta
from tiledarray import config
from tiledarray.arrays import shaping
from tiledarray.devices.pool import host_pool
from tiledarray.execution import evaluate as evaluation
from tiledarray.execution.spans import counters
from tiledarray.recording.stretch import local


@pytest.fixture
def plans():
    """Return a function that says how many plans were made since the test began."""
    local.recorder.flush()
    before = counters["plans made"]
    return lambda: counters["plans made"] - before


def evaluated(values):
    array = ta.array(values)
    ta.evaluate(array)
    return array


def products(lib, x):
    total = 0.0
    for i in range(len(x)):
        for j in range(len(x)):
            total += x[i] * x[j]
    return total


def recurrence(lib, x):
    a = lib.zeros((len(x), 4))
    a[0] = x[:4]
    for i in range(1, len(x)):
        for j in range(4):
            a[i, j] = a[i - 1, j] * 0.5 + x[i]
    return a


def rows(lib, x):
    a = lib.zeros((len(x), 2))
    for i in range(len(x)):
        a[i][0] = x[i]
        row = a[i]
        row[1] = -x[i]
    return a


def collected(lib, x):
    found = [lib.sqrt(x[i]) if x[i] > 0.5 else x[i] for i in range(len(x))]
    return lib.array([*found, sum(found), max(found), min(found)])


def sieve(lib, x):
    is_prime = lib.ones(len(x) + 2, bool)
    is_prime[:2] = False
    for i in range(2, len(x) + 2):
        for j in range(2 * i, len(x) + 2, i):
            is_prime[j] = False
    return is_prime


LOOPS = [products, recurrence, rows, collected, sieve]


@pytest.mark.parametrize("loop", LOOPS, ids=lambda loop: loop.__name__)
def test_loops_over_elements(loop, plans):
    values = np.random.default_rng(3).random(40)
    expected = loop(np, values)
    found = loop(ta, evaluated(values))
    np.testing.assert_array_equal(np.asarray(found), expected)
    assert np.asarray(found).dtype == np.asarray(expected).dtype
    # What is pending when the loop begins is planned at most once, not once a stretch.
    assert plans() <= 1, "a loop over elements is planned"


def test_a_loop_over_a_pending_array_evaluates_it(plans):
    x = ta.arange(100_000) * 2.0
    total = 0.0
    for k in range(1000):
        total += x[k]
    assert x.node.buffer is not None and total.node.buffer is not None
    assert float(total) == 999_000
    assert plans() <= 1


def test_many_small_results_of_large_arrays():
    x = evaluated(np.arange(1000.0))
    out = ta.zeros(3000)
    before = counters["plans made"]
    used = []
    for k in range(len(out)):
        out[k] = (x * k).mean()
        used.append((host_pool.statistics().in_use, local.recorder.noted))
    at_most = [max(column) for column in zip(*used[:1000], strict=True)]
    assert all(now <= most for pair in used for now, most in zip(pair, at_most, strict=True))
    np.testing.assert_allclose(np.asarray(out), np.arange(3000) * 499.5)
    assert counters["plans made"] - before <= 4


@given(
    st.sampled_from("?bhiqBHIQefdFD"), st.sampled_from("?bhiqBHIQefdFD"),
    st.sampled_from(["add", "multiply", "subtract", "divide", "hypot", "floor_divide", "power",
                     "maximum", "less", "logical_and", "arctan2", "copysign"]),
    st.sampled_from([2, 0, 1.5, True, None]),
)
def test_dtypes_and_values_of_elements(first, second, name, scalar):
    a, b = np.array([3], first), np.array([2], second)
    x, y = evaluated(a)[0], evaluated(b)[0] if scalar is None else scalar
    p, q = a[0], b[0] if scalar is None else scalar
    with np.errstate(all="ignore"):
        try:
            expected = getattr(np, name)(p, q)
        except TypeError:
            with pytest.raises(TypeError):
                getattr(ta, name)(x, y)
            return
    found = getattr(ta, name)(x, y)
    assert found.node.buffer is not None
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(np.asarray(found), expected)


def test_what_others_hold_keeps_its_value():
    a = evaluated(np.zeros(5))
    view, pending, copied, exported = a[1:3], a + 1, a.copy(), a.numpy()
    taken, base = a[1], a[:]
    iterator = iter(a)
    a[1] = 7.0
    assert view.tolist() == [7, 0] and base.tolist() == [0, 7, 0, 0, 0] == a.tolist()
    assert pending.tolist() == [1] * 5 and copied.tolist() == [0] * 5 == exported.tolist()
    assert float(taken) == 0.0 and list(iterator) == [0, 7, 0, 0, 0]  # as NumPy's
    reshaped = a.reshape(5, 1)
    a[2] = 8.0
    view[0] = 9.0
    reshaped[4, 0] = 3.0
    assert a.tolist() == [0, 9, 8, 0, 3] and reshaped[:, 0].tolist() == a.tolist()


def test_an_element_is_written_in_place():
    a = evaluated(np.zeros(100_000))
    array = a.node.buffer.array
    address = array.__array_interface__["data"][0]
    del array
    for k in range(100):
        a[k] = k
        a[k] += a[k - 1]
    assert a.node.buffer.array.__array_interface__["data"][0] == address
    assert a[99] == 4950


def test_errors_are_those_of_numpy():
    a, reference = evaluated(np.arange(3)), np.arange(3)
    for wrong in (3, -4, (0, 0), (1.5,), 2**70):
        with pytest.raises(IndexError) as theirs:
            reference[wrong]
        with pytest.raises(IndexError) as ours:
            a[wrong]
        assert str(ours.value) == str(theirs.value)
    for value in (2**70, "text", 1j, float("nan")):
        with pytest.raises((OverflowError, ValueError, TypeError)) as theirs:
            reference[0] = value
        with pytest.raises(theirs.type):
            a[0] = value
    with pytest.raises(IndexError):
        a[3] = 1
    assert a.tolist() == [0, 1, 2]
    with pytest.raises(ValueError, match="read-only"):
        ta.broadcast_to(a, (2, 3))[0, 0] = 1


@pytest.mark.parametrize("at_once", [0, 1000])
def test_an_error_that_comes_with_the_value_is_told_at_once(at_once):
    a = evaluated(np.array([2, -1]))
    with ta.config.override(at_once=at_once):
        with pytest.raises(ValueError, match="negative integer powers"):
            a[0] ** a[1]
        assert int(a[1] ** a[0]) == 1


def test_what_is_computed_at_once_warns_as_numpy_does_and_the_rest_does_not(recwarn):
    a = evaluated(np.array([0.0, 1e308, np.inf]))
    with ta.config.override(at_once=0):
        assert np.isnan(float(a[0] / a[0])) and float(a[1] * 10) == np.inf
        assert np.isnan(float(a[2] - a[2]))
        threads = [threading.Thread(target=lambda: a[1] / a[0]) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not recwarn.list
    assert np.isnan(float(a[0] / a[0]))
    assert [str(one.message) for one in recwarn.list] == [
        "invalid value encountered in scalar divide"]
    with np.errstate(all="raise"), pytest.raises(FloatingPointError):
        a[1] * 10


@pytest.mark.compiler
def test_under_jit_everything_is_recorded():
    fixed = evaluated(np.arange(4.0))

    @ta.jit
    def step(x):
        x[0] = x[1] + fixed[2]
        fixed_part = fixed[3] * 2
        return x * fixed_part

    for start in (1.0, 5.0):
        x = evaluated(np.full(3, start))
        assert step(x).tolist() == [6 * (start + 2), 6 * start, 6 * start]
        assert x.tolist() == [start + 2, start, start]
    assert fixed.tolist() == [0, 1, 2, 3]


def test_nothing_is_done_at_once_where_a_setting_says_so():
    a = evaluated(np.arange(4.0))
    with config.override(at_once=0):
        element = a[1]
        product = a[2] * 3.0
        a[0] = 5.0
        joined = ta.stack([element, product])
        assert all(x.node.pending for x in (element, product, a, joined))
    assert a.tolist() == [5, 1, 2, 3] and joined.tolist() == [1, 6]


# Joining ---------------------------------------------------------------------------------------


@pytest.mark.sampled(2)
@pytest.mark.parametrize("count", [2, 5, 33, 700])
@pytest.mark.parametrize("pending", [False, True])
def test_many_small_parts(count, pending, plans):
    values = [np.arange(3.0) + k for k in range(count)]
    parts = [evaluated(x) for x in values]
    if pending:
        parts = [part * 2 for part in parts]
        values = [x * 2 for x in values]
    for join in (np.stack, np.concatenate, np.vstack, np.hstack, np.column_stack, np.array):
        found = (ta.array if join is np.array else join)(parts)
        np.testing.assert_array_equal(np.asarray(found), join(values), strict=True)
    mixed = [ta.asarray(k, ["f4", "i2"][k % 2]) for k in range(count)]
    found = ta.array(mixed)
    assert found.dtype == np.float32 and found.tolist() == list(range(count))
    assert np.stack([parts[0], parts[1]], axis=-1, dtype="f4").dtype == np.float32
    found[0] = -1  # what was joined is the result's own
    parts[0][0] = 100
    assert found[0] == -1 and np.stack(parts)[0, 0] == 100
    assert plans() <= 12  # whatever the count


def test_many_parts_are_no_operation_each(monkeypatch):
    sizes = []
    evaluate = evaluation.evaluate

    def watching(targets, *options, **named):
        sizes.append(len(targets))
        evaluate(targets, *options, **named)

    monkeypatch.setattr(evaluation, "evaluate", watching)
    parts = [ta.zeros(2) + k for k in range(5000)]
    joined = np.concatenate(parts)
    assert joined.node.buffer is not None and sum(sizes) <= 5100
    assert float(joined.sum()) == 2 * sum(range(5000))


def test_large_parts_are_stored_by_the_kernel_that_computes_them():
    parts = [ta.arange(5000.0) * k for k in range(40)]
    assert np.stack(parts).node.pending


@pytest.mark.parametrize("at_once", [0, 1, 30])
@pytest.mark.parametrize("compile", ["never", "wait"])
def test_a_view_that_is_written_again_and_again_is_read_anew(at_once, compile):
    def program(np):
        params = np.arange(5.0)
        float(params[4])
        bias, rows = params[4:], np.arange(6.0).reshape(2, 3) + 1
        for _ in range(3):
            bias += 1.0
            bias[:] = bias * 0.5
            bias[:] = bias - 0.125 * (bias * bias)
        for row in rows:
            row -= row.min()
            row[:] = np.cumsum(row)
            row *= 2
        return params, bias + 0, rows

    with ta.config.override(at_once=at_once, compile=compile):
        for found, expected in zip(program(ta), program(np), strict=True):
            np.testing.assert_array_equal(np.asarray(found), expected)


LARGE = {
    "reshape": lambda np, x: x.reshape(-1, 4), "ravel": lambda np, x: x.ravel(),
    "np.reshape": lambda np, x: np.reshape(x, (-1,)), "transpose": lambda np, x: x.transpose(),
    "swapaxes": lambda np, x: x.swapaxes(0, 1), "moveaxis": lambda np, x: np.moveaxis(x, 0, 1),
    "squeeze": lambda np, x: x[None].squeeze(), "expand_dims": lambda np, x: np.expand_dims(x, 0),
    "view": lambda np, x: x.view("i8"), "flip": lambda np, x: np.flip(x), "rot90":
    lambda np, x: np.rot90(x), "atleast_3d": lambda np, x: np.atleast_3d(x),
    "of a part": lambda np, x: x[10:].reshape(-1), "and a part": lambda np, x: x.ravel()[::-3],
}


@pytest.mark.parametrize("name", LARGE)
def test_views_of_what_lies_row_after_row_are_had_at_once_whatever_the_size(name, monkeypatch):
    def facts(np):
        x = np.zeros((1100, 1000))
        x[1] = 1  # it is written, so it is there
        x += 0.5
        assert float(x[0, 0]) == 0.5
        v = LARGE[name](np, x)
        on_diagonal = np.trace(x), x.diagonal().sum()
        assert not recorded
        v[1:3] = 3
        x[5] *= 2
        w = v[-1]
        w += 1
        return x, v, w, *on_diagonal

    recorded = []
    for made_by in ("_view", "view_of"):
        monkeypatch.setattr(shaping, made_by, lambda *_: recorded.append(name))
    with ta.config.override(at_once=1 << 14):
        for mine, theirs in zip(facts(ta), facts(np), strict=True):
            np.testing.assert_array_equal(np.asarray(mine), theirs)
