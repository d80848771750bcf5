"""Plans with library calls that were met before: run by the core, or step by step by the twin."""

import gc
import signal
import threading
import time

import numpy as np
import pytest

import tiledarray as ta
from tests.leaks import assert_nothing_is_left
from tiledarray import config
from tiledarray.core import kind
from tiledarray.execution import evaluate
from tiledarray.execution.executable import observers
from tiledarray.execution.spans import counters
from tiledarray.fusion.plan import Call
from tiledarray.recording.stretch import local

written_in_c = pytest.mark.skipif(kind != "c", reason="the twin leaves it to Python")
SIDE = 12


@pytest.fixture(autouse=True)
def recorded():
    local.recorder.reset()
    with config.override(at_once=0, compile="wait", device="cpu"):
        yield
    local.recorder.reset()


def matrix(seed=0, shape=(SIDE, SIDE), dtype=float):
    values = np.random.default_rng(seed).standard_normal(shape)
    return (values * 5).astype(dtype) if np.dtype(dtype).kind == "i" else values.astype(dtype)


def ours(values):
    array = ta.array(values)
    ta.evaluate(array)
    return array


# What is computed ---------------------------------------------------------------------------------

CALLS = [
    lambda lib, x, k: ((x * k) @ x + 1,),
    lambda lib, x, k: ((x * k).T @ x.T * 2, x @ x),
    lambda lib, x, k: (x[k:k + 4] @ x[:, k::2] - 1,),
    lambda lib, x, k: (x[::-1] @ x[:, ::-1][2:5].T * k,),
    lambda lib, x, k: (x.reshape(6, -1) @ (x + k).reshape(-1, 6),),
    lambda lib, x, k: ((x + k).reshape(3, 4, SIDE) @ x,),
    lambda lib, x, k: (x[k] @ x[:, k] + 1, (x + k)[k] @ x, x @ x[k]),
    lambda lib, x, k: (lib.broadcast_to(x[k], (4, SIDE)) @ x + k,),
    lambda lib, x, k: (x[:, :0] @ x[:0] + k, x[:0] @ (x * k)),
    lambda lib, x, k: (lib.vecdot(x * k, x), lib.dot(x + k, x), lib.inner(x, x + k)),
    lambda lib, x, k: (lib.einsum("ij,kj->ik", x + k, x) + 1,),
    lambda lib, x, k: (lib.sort(x * k, axis=0)[1:] - 1, lib.argsort(x + k)),
    lambda lib, x, k: (lib.take(x * k, [2, 0, k], axis=1) + 1, x[[1, k, 5]] * 2),
    lambda lib, x, k: (lib.sort(lib.cumsum(x * k, axis=1)) * 2, lib.cumprod(x + k)),
]
OF_REALS = [
    lambda lib, x, k: (lib.fft.fft(x * k)[1:] * 2, lib.fft.irfft(lib.fft.rfft(x + k)).real),
    lambda lib, x, k: (lib.linalg.solve(x + k, x[k]) * 2, lib.linalg.inv(x + k)),
    lambda lib, x, k: (lib.linalg.qr(x + k)[1] * 2,),
    lambda lib, x, k: tuple(lib.linalg.slogdet(x + k)),
    lambda lib, x, k: (lib.linalg.svd(x + k)[1] * 2, lib.linalg.svd(x * k)[1].sum()),
    lambda lib, x, k: (lib.linalg.eigh(x @ x.T + k)[0] * 2,),
    lambda lib, x, k: (
        lib.linalg.eigh((x + k) @ (x + k).T)[1] ** 2, lib.linalg.cholesky(x @ x.T + 20)[k:] * 2),
    lambda lib, x, k: (lib.median(x * k, axis=1), lib.quantile(x + k, 0.25)),
    lambda lib, x, k: (lib.interp(x[0] * k, lib.sort(x[1]), x[2]) + 1,),
]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("jitted", [False, True])
@pytest.mark.parametrize("dtype", ["f8", "f4", "c16", "i8"])
@pytest.mark.parametrize("call", CALLS)
def test_values_are_those_of_the_first_run_and_of_numpy(call, dtype, jitted):
    compare(call, matrix(dtype=dtype), jitted, rtol=2e-4 if dtype == "f4" else 1e-9)


@pytest.mark.parametrize("jitted", [False, True])
@pytest.mark.parametrize("call", OF_REALS)
def test_values_of_linear_algebra_and_transforms(call, jitted):
    compare(call, matrix(), jitted, rtol=1e-8)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("jitted", [False, True])
@pytest.mark.parametrize("call", [CALLS[1], CALLS[3], CALLS[11], OF_REALS[5]])
def test_values_where_temporary_memory_is_large(call, jitted):
    compare(call, matrix(shape=(400, 400)) / 20, jitted, rtol=1e-7)


def compare(call, values, jitted, rtol):
    expected = {k: call(np, values, k) for k in (1, 2)}
    functions = {k: ta.jit(lambda x, k=k: call(ta, x, k)) for k in expected} if jitted else {
        k: lambda x, k=k: call(ta, x, k) for k in expected}
    x, kept = ours(values), []
    for k in (1, 2, 1, 1, 2, 2, 1):
        found = functions[k](x)
        ta.evaluate(*found)
        kept.append((k, found))
    for k, found in kept:  # also of those that others were computed after
        for mine, theirs in zip(found, expected[k], strict=True):
            assert mine.dtype == theirs.dtype and mine.shape == theirs.shape
            scale = float(np.abs(theirs).max()) if theirs.size else 1.0
            np.testing.assert_allclose(mine, theirs, rtol=rtol, atol=rtol * max(scale, 1e-300))


@written_in_c
@pytest.mark.parametrize("call", [*CALLS, *OF_REALS])
def test_what_is_met_again_is_run_by_the_core(call, monkeypatch):
    by_python, usual = [], evaluate._evaluate_all
    monkeypatch.setattr(
        evaluate, "_evaluate_all", lambda *given: by_python.append(True) or usual(*given))
    x, found = ours(matrix()), []
    for _ in range(4):
        by_python.clear()
        launches, calls = counters["launches"], counters["library calls"]
        ta.evaluate(*call(ta, x, 2))
        found.append((counters["launches"] - launches, counters["library calls"] - calls,
                      bool(by_python)))
    assert found[0][2] and found[2:] == [(*found[1][:2], False)] * 2
    assert found[0][1] == found[3][1] > 0 and found[0][0] >= found[3][0]


def test_results_of_several_that_are_asked_for_and_that_are_not():
    x = ours(matrix())
    for _ in range(4):
        w, v = ta.linalg.eigh(x @ x.T)
        u, s, vh = ta.linalg.svd(x)
        del u, vh
        found = (v * w) @ v.T, s, v
        ta.evaluate(*found)
        values = np.asarray(x)
        np.testing.assert_allclose(found[0], values @ values.T, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(s, np.linalg.svd(values)[1])
        np.testing.assert_allclose(found[2].T @ found[2], np.eye(SIDE), atol=1e-9)


# Writes ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", [
    lambda u, a: u.__setitem__(slice(1, None), u[1:] + (a @ u)[:-1] * 0.1),
    lambda u, a: u.__iadd__((a @ (u * 0.1))[::-1]),
    lambda u, a: (u.__imul__(0.5), u.__iadd__(a @ u)),
])
def test_calls_beside_writes_in_place(step):
    start, weights = matrix(1, (SIDE,)), matrix(2) * 0.1
    u, v, a = ours(start), start.copy(), ours(weights)
    kept = []
    for turn in range(8):
        step(u, a)
        step(v, weights)
        if turn in (3, 6):  # somebody else has the value: nothing may be written there
            kept.append((u * 1.0, u[2:], v.copy()))
        ta.evaluate(u)
        np.testing.assert_allclose(u, v, rtol=1e-9)
    for copy, _, wanted in kept:
        np.testing.assert_allclose(copy, wanted, rtol=1e-9)


def test_a_call_that_fails_leaves_what_would_have_been_overwritten():
    start = matrix(3)
    for bad in (False, False, False, True, False):
        u = ours(start)
        singular = ours(np.zeros((SIDE, SIDE)) if bad else np.eye(SIDE))
        u[:5] *= 2.0
        expected = start.copy()
        expected[:5] *= 2.0
        if bad:
            with pytest.raises(np.linalg.LinAlgError):
                u[1:] += ta.linalg.inv(singular)[1:] * 2
        else:
            u[1:] += ta.linalg.inv(singular)[1:] * 2
            expected[1:] += np.eye(SIDE)[1:] * 2
        np.testing.assert_array_equal(u, expected)


# Failures ----------------------------------------------------------------------------------------


def inverted(matrix):
    return ta.linalg.inv(matrix + 1 - 1) + 1  # the line that is told


def test_an_error_is_told_at_the_users_line_and_the_rest_is_computed():
    line = inverted.__code__.co_firstlineno + 1
    for factor in (2.0, 2.0, 4.0, 0.0, 0.0, 2.0):
        matrix = ours(np.eye(3) * factor)
        doubled = matrix * 2 + matrix
        if factor:
            np.testing.assert_array_equal(inverted(matrix), np.eye(3) / factor + 1)
        else:
            with pytest.raises(np.linalg.LinAlgError, match="Singular matrix") as failure:
                inverted(matrix)
            note = f"while computing linalg.inv, recorded at {__file__}:{line}"
            assert failure.value.__notes__ == [note] and failure.value.__context__ is None
        np.testing.assert_array_equal(doubled, np.eye(3) * factor * 3)


def test_an_error_for_an_index_is_told_and_the_rest_is_computed():
    x, places = ours(np.arange(5.0)), ours(np.arange(3))
    for stride in (1, 1, 2, 9, 9, 1):
        kept, taken = x + stride, (x * 2)[places * stride] + 1
        if stride < 9:
            np.testing.assert_array_equal(taken, np.arange(5.0)[np.arange(3) * stride] * 2 + 1)
        else:
            for _ in range(2):
                with pytest.raises(IndexError, match="out of bounds for axis 0") as failure:
                    ta.evaluate(taken)
                assert "while computing take, recorded at" in failure.value.__notes__[0]
        np.testing.assert_array_equal(kept, np.arange(5.0) + stride)


def test_an_error_under_jit():
    inverse = ta.jit(lambda x: ta.linalg.inv(x @ x) * 2)
    for _ in range(3):
        np.testing.assert_array_equal(inverse(ours(np.eye(3))), np.eye(3) * 2)
        with pytest.raises(np.linalg.LinAlgError, match="Singular matrix"):
            inverse(ours(np.zeros((3, 3))))


def test_warnings_of_floating_point_are_silent_in_a_plan_and_as_before_behind_it():
    product = ta.jit(lambda x, y: (x @ y) * 2)
    x = ours(np.full((4, 4), 1e200))
    for _ in range(4):
        with np.errstate(all="raise"):
            for found in (product(x, x), (x @ x) * 2):
                ta.evaluate(found)
                assert np.isinf(np.asarray(found)).all()
            with pytest.raises(np.linalg.LinAlgError):
                ta.linalg.inv(ours(np.zeros((3, 3))))
            with pytest.raises(FloatingPointError):
                np.float64(1e200) * np.array([1e200])


class TimeOut(Exception):
    pass


@pytest.mark.parametrize("jitted", [False, True])
@pytest.mark.parametrize("error", [TimeOut, KeyboardInterrupt])
@config.override(verify=False)  # its finalisers would swallow what a handler raises in them
def test_what_a_handler_raises_in_a_call_is_seen_and_nothing_is_lost(error, jitted):
    def handler(*_):
        raise error

    def program(x, k):
        return ta.median(x * k, axis=0) + ta.linalg.solve(x + 9, x[0]) @ x

    values = matrix()
    quick = ta.jit(program) if jitted else program
    wanted = np.median(values * 2.0, axis=0) + np.linalg.solve(values + 9, values[0]) @ values
    x, raised, warns = ours(values), 0, np.geterr()
    for _ in range(3):
        ta.evaluate(quick(x, 2.0))
    before = signal.signal(signal.SIGALRM, handler)
    gc.collect()
    gc.disable()  # so would hypothesis' callback of it, where a signal comes while it collects
    try:
        for k in range(150):
            found = None
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.0004 + 3e-6 * k)
                for _ in range(100):
                    found = quick(x, 2.0)
                    ta.evaluate(found)
                time.sleep(0.1)
            except error:
                raised += 1
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
            if found is not None:
                np.testing.assert_allclose(found, wanted, rtol=1e-9)
        left = np.geterr()
    finally:
        gc.enable()
        signal.signal(signal.SIGALRM, before)
        np.seterr(**warns)
    assert raised == 150
    if jitted and kind == "c":  # what NumPy itself leaves where it is interrupted is its own
        assert left == warns


# Several at once ---------------------------------------------------------------------------------


@pytest.mark.parametrize("jitted", [False, True])
def test_threads_run_the_same_plan_at_once(jitted):
    def program(x, k):
        return ta.tanh(ta.tanh(x @ x * 0.01) @ x.T + k).sum(axis=1), ta.sort(x @ x, axis=0)

    quick = ta.jit(program) if jitted else program
    problems = []

    def work(seed):
        values = matrix(seed, (40, 40))
        wanted = (np.tanh(np.tanh(values @ values * 0.01) @ values.T + 1.0).sum(axis=1),
                  np.sort(values @ values, axis=0))
        x = ours(values)
        try:
            for _ in range(150):
                for mine, theirs in zip(quick(x, 1.0), wanted, strict=True):
                    np.testing.assert_allclose(mine, theirs, rtol=1e-9)
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems


@pytest.mark.parametrize("jitted", [False, True])
def test_the_same_plan_is_run_in_the_middle_of_a_call(jitted, monkeypatch):
    def program(x):
        return ta.linalg.inv(x @ x) @ x

    nested, depth, real = [], [], np.linalg.inv

    def inverse(a):
        if len(depth) == 1:
            depth.append(True)
            nested.append(np.asarray(quick(other)))
        return real(a)

    monkeypatch.setattr(np.linalg, "inv", inverse)
    quick = ta.jit(program) if jitted else program
    values, others = matrix(1) + 5 * np.eye(SIDE), matrix(2) + 6 * np.eye(SIDE)
    x, other = ours(values), ours(others)
    for _ in range(4):
        ta.evaluate(quick(x))
    depth.append(True)
    found = quick(x)
    ta.evaluate(found)
    np.testing.assert_allclose(found, real(values @ values) @ values, rtol=1e-9)
    np.testing.assert_allclose(nested, [real(others @ others) @ others], rtol=1e-9)


def test_an_observer_sees_the_calls_of_what_is_met_again():
    x, seen = ours(matrix()), []
    product = ta.jit(lambda x: (x @ x) * 2)
    for _ in range(3):
        ta.evaluate(product(x), (x @ x) * 3)
    observers.append(lambda executable, step, seconds: seen.append(step))
    try:
        ta.evaluate(product(x))
        ta.evaluate((x @ x) * 3)
    finally:
        observers.clear()
    assert sum(isinstance(step, Call) for step in seen) == 2


@pytest.mark.sampled(2)
@pytest.mark.parametrize("operation", [
    lambda x, quick: ta.evaluate(ta.tanh(x @ x[1:].T) @ x[1:] + 1),
    lambda x, quick: ta.evaluate(quick(x)),
    lambda x, quick: failing(x * 0),
    lambda x, quick: failing(ta.zeros((3, 3)), ta.jit(lambda x: ta.linalg.inv(x) + 1)),
], ids=["recorded", "jitted", "failing", "failing jitted"])
def test_nothing_is_left_behind(operation):
    x = ours(matrix(shape=(3, 3)))
    quick = ta.jit(lambda x: ta.linalg.eigh(ta.tanh(x @ x[1:].T) @ x[1:])[1] + 1)
    assert_nothing_is_left(lambda: operation(x, quick))


def failing(x, call=lambda x: ta.linalg.inv(x) + 1):
    try:
        ta.evaluate(call(x))
    except np.linalg.LinAlgError:
        return
    raise AssertionError("not refused")


@pytest.mark.parametrize("function, expected", [
    (lambda x: ta.argsort(x * 2.0, axis=-1), lambda x: 0),
    (lambda x: ta.cumsum(x * 2.0, axis=0), lambda x: 2.0 * x),
    (lambda x: ta.sort((x * 2.0)[None]) + 1, lambda x: 2.0 * x + 1),
], ids=["argsort", "cumsum", "sort"])
def test_an_operand_without_axes_that_is_given_one(function, expected):
    with config.override(at_once=0, compile="wait"):
        for value in range(6):
            assert function(ta.array(float(value))).tolist() == [expected(value)]
