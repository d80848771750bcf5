"""Functions that record the same again for arguments of the same kinds."""

import sys
import threading
import warnings

import numpy as np
import pytest

import tiledarray as ta
from tests.leaks import assert_nothing_is_left
from tiledarray import config
from tiledarray.core import kind
from tiledarray.graph.node import location
from tiledarray.recording.stretch import local

written_in_c = pytest.mark.skipif(kind != "c", reason="the twin leaves it to Python")


@pytest.fixture(autouse=True)
def recorded():
    local.recorder.reset()
    with config.override(at_once=0, compile="never", device="cpu"):
        yield
    local.recorder.reset()


def arrays(lib, seed=1, dtype=float, shape=(30, 40)):
    draw = np.random.default_rng(seed)
    found = [lib.array((draw.random(shape) * 9).astype(dtype)) for _ in range(2)]
    return [ta.evaluate(x) for x in found] if lib is ta else found


CALLS = {
    "sum": lambda lib, x, y: x.sum(),
    "sum of rows": lambda lib, x, y: x.sum(axis=1),
    "sum by position": lambda lib, x, y: lib.sum(x, 0),
    "sum of both": lambda lib, x, y: x.sum(axis=(0, -1), keepdims=True),
    "sum as": lambda lib, x, y: x.sum(dtype=np.float32),
    "sum as text": lambda lib, x, y: x.sum(0, "f4"),
    "sum from": lambda lib, x, y: lib.sum(x, axis=0, initial=2.5),
    "sum where": lambda lib, x, y: lib.sum(x, where=y > 4),
    "prod": lambda lib, x, y: lib.prod(x, -1),
    "mean": lambda lib, x, y: x.mean(),
    "mean of columns": lambda lib, x, y: lib.mean(x, axis=0),
    "mean kept": lambda lib, x, y: x.mean(axis=[1][0], keepdims=True),
    "max": lambda lib, x, y: x.max(axis=1, keepdims=True),
    "min": lambda lib, x, y: lib.min(x),
    "amax": lambda lib, x, y: lib.amax(x, axis=0),
    "argmax": lambda lib, x, y: x.argmax(axis=1),
    "argmin": lambda lib, x, y: lib.argmin(x),
    "any": lambda lib, x, y: (x > 8).any(axis=0),
    "all": lambda lib, x, y: lib.all(x > 0.01),
    "count": lambda lib, x, y: lib.count_nonzero(x > 4, 0),
    "where": lambda lib, x, y: lib.where(x > y, x, y),
    "where 0": lambda lib, x, y: lib.where(x > y, x, 0),
    "where same": lambda lib, x, y: lib.where(x > y, x, x),
    "astype": lambda lib, x, y: x.astype("f4"),
    "astype int": lambda lib, x, y: x.astype(int),
    "astype same": lambda lib, x, y: x.astype(x.dtype),
    "clip": lambda lib, x, y: lib.clip(x, 2, 5),
    "clip by arrays": lambda lib, x, y: lib.clip(x, y, 8),
    "roll": lambda lib, x, y: lib.roll(x, 3, axis=0),
    "roll back": lambda lib, x, y: lib.roll(x, -2, 1),
    "roll both": lambda lib, x, y: lib.roll(x, (1, 2), (0, 1)),
    "roll by a scalar": lambda lib, x, y: lib.roll(x, np.int64(-3), axis=np.int32(1)),
    "where scalar": lambda lib, x, y: lib.where(x > y, x, np.int8(3)),
    "roll all": lambda lib, x, y: lib.roll(x, 7),
    "roll a row": lambda lib, x, y: lib.roll(x[3], 4),
    "join": lambda lib, x, y: lib.concatenate((x, y)),
    "join columns": lambda lib, x, y: lib.concatenate([x, y, x[:, :3]], axis=1),
    "stack": lambda lib, x, y: lib.stack((x, y), axis=-1),
    "vstack": lambda lib, x, y: lib.vstack((x, y[0])),
    "hstack": lambda lib, x, y: lib.hstack([x, y]),
    "zeros like": lambda lib, x, y: lib.zeros_like(x),
    "ones like": lambda lib, x, y: lib.ones_like(x[1:], int),
    "full like": lambda lib, x, y: lib.full_like(x, 3),
    "product": lambda lib, x, y: x[:, :5] @ y[:5],
    "product with a vector": lambda lib, x, y: x @ y[2],
    "product of one array": lambda lib, x, y: x[:5, :5] @ x[:5, :5],
    "product by name": lambda lib, x, y: lib.matmul(x[:, :5], y[:5]),
    "product of rows": lambda lib, x, y: lib.vecdot(x, y),
}


@pytest.mark.parametrize("dtype", [float, np.float32, int, complex])
@pytest.mark.parametrize("name", CALLS)
def test_what_is_recorded_again_is_numpys(name, dtype):
    if dtype is complex and name in ("argmax", "argmin", "clip", "clip by arrays", "any", "max"):
        pytest.skip("NumPy orders complex numbers otherwise, or refuses")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for seed in (1, 2, 3):  # recorded, looked at, recorded again
            for shape in ((30, 40), (7, 50)):
                ours = CALLS[name](ta, *arrays(ta, seed, dtype, shape))
                theirs = CALLS[name](np, *arrays(np, seed, dtype, shape))
                np.testing.assert_allclose(np.asarray(ours), theirs, rtol=1e-5, strict=True)


def test_numbers_are_those_of_the_call():
    x, y = arrays(ta)
    a, b = np.asarray(x), np.asarray(y)
    for number in (0.0, -0.0, 2.5, np.inf, 7.25):
        for ours, theirs in [
            (ta.where(x > y, x, number), np.where(a > b, a, number)),
            (ta.where(x > y, number, -1.5), np.where(a > b, number, -1.5)),
            (ta.clip(x, number, 8.5), np.clip(a, number, 8.5)),
            (ta.full_like(x, number), np.full_like(a, number)),
            (x.sum(initial=number), a.sum(initial=number)),
            (ta.where(x.astype("f4") > 1, x.astype("f4"), number),
             np.where(a.astype("f4") > 1, a.astype("f4"), number)),
        ]:
            np.testing.assert_allclose(np.asarray(ours), theirs, rtol=1e-13, strict=True)
            np.testing.assert_array_equal(np.signbit(np.asarray(ours)), np.signbit(theirs))
    for number in (1, 2, True, 3):
        np.testing.assert_array_equal(np.asarray(ta.where(x > y, x, number)),
                                      np.where(a > b, a, number), strict=True)


@written_in_c
@pytest.mark.parametrize("name", sorted({*CALLS} - {
    "sum from", "sum where", "where same", "astype same", "roll all", "vstack"}))
def test_what_is_recorded_again_runs_no_python(name):
    x, y = arrays(ta)
    called = []

    def note(frame, event, _):
        if event == "call" and "/tiledarray/" in frame.f_code.co_filename:
            called.append(frame.f_code.co_name)

    for _ in range(3):
        called.clear()
        sys.setprofile(note)
        try:
            result = CALLS[name](ta, x, y)
        finally:
            sys.setprofile(None)
    assert result is not None and not called


def test_lines_are_those_of_the_call():
    x, y = arrays(ta)
    first = sys._getframe().f_lineno
    for _ in range(3):
        nodes = [
            x.sum(axis=0)._node,
            ta.where(x > y, x, y)._node,
            x.mean()._node,
        ]
        assert [location(node.site)[1] - first for node in nodes] == [3, 4, 5]


def test_outputs_errors_and_warnings_stay():
    x, y = arrays(ta)
    a = np.asarray(x)
    for step in range(3):
        total = ta.zeros(40)
        assert ta.sum(x + step, 0, None, total) is total
        np.testing.assert_allclose(np.asarray(total), (a + step).sum(0))
        assert x.max(axis=1, out=ta.zeros(30)).shape == (30,)
        for call in (lambda: x.sum(axis=2), lambda: ta.zeros((0, 3)).max(), lambda: x.astype("no"),
                     lambda: ta.where(x > y, x, y[0, :3]), lambda: ta.concatenate((x, y[0]))):
            with pytest.raises((TypeError, ValueError)):
                call()
        with pytest.warns(np.exceptions.ComplexWarning):
            (x + 1j).astype(float)
        with pytest.warns(RuntimeWarning, match="Mean of empty slice"):
            ta.zeros((0, 3)).mean(axis=0)


def test_results_are_arrays_of_their_own():
    x, y = arrays(ta)
    found = []
    for _ in range(4):
        joined, like = ta.concatenate((x, y)), ta.zeros_like(x)
        joined[0] = 1.0
        like += 2.0
        like[1] = x[1]
        found.append((joined, like))
    x += 1.0
    for joined, like in found:
        np.testing.assert_array_equal(np.asarray(joined)[30:], np.asarray(y))
        assert float(joined[0, 5]) == 1.0 and float(like[0, 0]) == 2.0


def test_what_was_recorded_before_the_call_is_no_part_of_it():
    x, _ = arrays(ta)
    for number in (1.0, 2.0, 3.0, 4.0):
        y = ta.zeros((30, 40)) + number  # pending, and made of constants alone
        z = ta.full((30, 40), number)
        for ours, row in ((ta.vstack((x, y[0])), 30), (ta.roll(z[1:], 1, 0), 4),
                          (ta.where(x > 0, z, x), 3), (y[1:].sum(axis=0) / 29, 2)):
            assert float(ours.reshape(-1, 40)[row % len(ours.reshape(-1, 40)), 3]) == number


def test_small_values_are_computed_at_once_or_recorded_as_ever():
    with config.override(at_once=100):
        x, y = arrays(ta)
        a = np.asarray(x)
        for _ in range(5):
            row = x.sum(axis=1)
            np.testing.assert_allclose(np.asarray(row.mean()), a.sum(axis=1).mean())
            np.testing.assert_allclose(np.asarray(ta.where(row > 1, row, 0.0)), a.sum(axis=1))
            np.testing.assert_allclose(
                np.asarray(ta.stack((row, y[:, 0]))),
                np.stack((a.sum(axis=1), np.asarray(y)[:, 0])))


def test_traced_functions_record_for_themselves():
    x, y = arrays(ta)
    function = ta.jit(lambda x, y: ta.where(x > y, x, y).sum(axis=0))
    for _ in range(3):
        expected = np.where(np.asarray(x) > np.asarray(y), x, y).sum(axis=0)
        np.testing.assert_allclose(np.asarray(function(x, y)), expected)
        np.testing.assert_allclose(np.asarray(ta.where(x > y, x, y).sum(axis=0)), expected)


def test_threads_that_learn_the_same():
    problems = []

    def work(seed):
        x, y = arrays(ta, seed)
        a, b = np.asarray(x), np.asarray(y)
        for axis in (0, 1, None) * 5:
            if not np.allclose(np.asarray(ta.where(x > y, x, y).sum(axis=axis)),
                               np.where(a > b, a, b).sum(axis=axis)):
                problems.append((seed, axis))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems


@pytest.mark.parametrize("name", CALLS)
def test_nothing_is_left_behind(name):
    x, y = arrays(ta)
    assert_nothing_is_left(lambda: CALLS[name](ta, x, y), local.recorder.reset)
