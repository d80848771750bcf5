"""What the core does of recording, looking a plan up and running it, on the core that is in use."""

import gc
import signal
import sys
import threading
import time
import weakref

import numpy as np
import pytest

import tiledarray as ta
from tests.leaks import assert_nothing_is_left, refused
from tiledarray import config
from tiledarray.core import Key, kind, parts_of, run_known, trace
from tiledarray.execution.executable import observers
from tiledarray.execution.spans import counters
from tiledarray.graph.node import location
from tiledarray.recording.stretch import local

written_in_c = pytest.mark.skipif(kind != "c", reason="the twin leaves it to Python")


@pytest.fixture(autouse=True)
def recorded():
    local.recorder.reset()
    with config.override(at_once=0, compile="wait", device="cpu"):
        yield
    local.recorder.reset()


def pair(size=1000):
    x, y = ta.array(np.linspace(1, 2, size)), ta.array(np.linspace(3, 5, size))
    ta.evaluate(x, y)
    return x, y


# Recording ---------------------------------------------------------------------------------------

CALLS = [
    lambda lib, x, y: x + y, lambda lib, x, y: 2 - x, lambda lib, x, y: x * 3, lambda lib, x, y: -x,
    lambda lib, x, y: abs(x), lambda lib, x, y: x**2, lambda lib, x, y: x**-1.0,
    lambda lib, x, y: x**0.5, lambda lib, x, y: x**3, lambda lib, x, y: 2.0**x,
    lambda lib, x, y: x ** -(10**30), lambda lib, x, y: (x - 1) ** 2**63,
    lambda lib, x, y: x < y, lambda lib, x, y: x <= 1.5, lambda lib, x, y: x % y,
    lambda lib, x, y: np.exp(x), lambda lib, x, y: lib.hypot(x, 2.0), lambda lib, x, y: x + True,
    lambda lib, x, y: x * (1 + 2j), lambda lib, x, y: x[1:-1] * y[2:],
    lambda lib, x, y: x[::-2] + 1,
    lambda lib, x, y: (x > 1.5) + 300, lambda lib, x, y: (x > 1.5) * True,
    lambda lib, x, y: (x * 10).astype("i1") + 7, lambda lib, x, y: (x * 10).astype("u8") - 7,
    lambda lib, x, y: (x * 10).astype("i4") ** 2, lambda lib, x, y: (x * 10).astype("i4") < 2**40,
    lambda lib, x, y: x * np.float64(3.5), lambda lib, x, y: np.float64(3.5) - x,
    lambda lib, x, y: x.astype("f4") * np.float64(3.5), lambda lib, x, y: x < np.float64(1.25),
    lambda lib, x, y: x.reshape(10, -1)[2] - 1, lambda lib, x, y: x[None, 3:][0] + y[3:],
]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("call", CALLS)
def test_calls_are_numpys(call):
    x, y = pair()
    for _ in range(3):  # asked, remembered, run
        ours, theirs = np.asarray(call(ta, x, y)), call(np, np.asarray(x), np.asarray(y))
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
        np.testing.assert_allclose(ours, theirs, rtol=1e-14)


@pytest.mark.parametrize("call", [
    lambda x: x + "a", lambda x: x + ta.ones(7), lambda x: (x > 1) - (x > 1),
    lambda x: (x * 9).astype("i1") + 300, lambda x: (x * 9).astype("i8") ** -2, lambda x: x[5000],
    lambda x: x[1:, 2], lambda x: x.__setitem__(slice(1, 3), ta.ones(7)),
    lambda x: x.__iadd__(1j),
])
def test_errors_are_numpys(call):
    x, _ = pair()
    for _ in range(2):
        with pytest.raises((TypeError, ValueError, OverflowError, IndexError)) as ours:
            call(x)
        with pytest.raises(type(ours.value)) as theirs:
            call(np.asarray(x).copy())
        assert str(ours.value) == str(theirs.value)


def test_writes_through_slices_are_seen_by_views():
    found = []
    for lib in (np, ta):
        u = lib.zeros((30, 40))
        rows, corner = u[2:5], u[1:, 1:][::2, 0]
        for step in range(3):
            u[1:-1, 1:-1] += 0.5 * (u[2:, 1:-1] + u[:-2, 1:-1]) + step
            u[0, :] = 1.5
            u[:, 3] = 2
            rows *= 2
            u[4:6] = rows[:2]
            corner[1:] -= rows[0, :14]
        found.append([np.asarray(v) for v in (u, rows, corner, u[:, 3:9][3])])
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_lines_of_operators_functions_and_slices():
    x, y = pair()
    first = sys._getframe().f_lineno
    nodes = [
        (x + y)._node,
        np.exp(x)._node,
        ta.sqrt(x)._node,
        x[1:].node,
        (x < y)._node,
    ]
    assert [location(node.site)[1] - first for node in nodes] == [2, 3, 4, 5, 6]


def test_recorders_of_threads():
    x, _ = pair()
    kept, mine = [], x + 1

    def work():
        kept.append(x * 2)
        kept.append(len(local.recorder.pending()))
        kept.append(weakref.ref(local.recorder))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    theirs, pending, recorder = kept
    gc.collect()
    assert pending == 1 and recorder() is None  # it died with its thread
    assert local.recorder.pending() == [mine._node]
    theirs += 1
    assert local.recorder.pending() == [mine._node, theirs._node]
    np.testing.assert_array_equal(np.asarray(theirs), np.asarray(x) * 2 + 1)


def test_handles_that_die_are_forgotten():
    x, _ = pair()
    kept = [x + k for k in range(5)]
    wanted = [kept[1]._node, kept[3]._node]
    del kept[4], kept[2], kept[0]
    assert local.recorder.pending() == wanted and local.recorder.noted == 5


OPERATIONS = {
    "operators": lambda x, y: (x + y, x * 2.0, 1 - x, -x, x < y, x**2, x**3, abs(x)),
    "functions": lambda x, y: (np.exp(x), ta.sin(x), np.hypot(x, y), ta.where(x > 1, x, y)),
    "in place": lambda x, y: ((x + 0).__iadd__(y), (x + 0).__imul__(2)),
    "reads": lambda x, y: (x[1:-1] * 2, x[::2][3:] + 1, x[None], (x + 1)[5:9]),
    "writes": lambda x, y: ((x + 0).__setitem__(slice(1, 9), y[1:9]),
                            (x + 0).__setitem__(slice(3, 4), 2.0)),
    "errors": lambda x, y: (refused(lambda: x + y[1:]), refused(lambda: x[1, 2]),
                            refused(lambda: x.__setitem__(slice(2), y))),
    "values": lambda x, y: (ta.evaluate(x + y), ta.evaluate(x * 2.5 - y, x[2:] * 2.5)),
    "keys": lambda x, y: Key(parts_of(trace([(x * 2 + y)._node])[0])),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_nothing_is_left_behind(name):
    x, y = pair(50)
    assert_nothing_is_left(lambda: OPERATIONS[name](x, y), local.recorder.reset)


# Looking up --------------------------------------------------------------------------------------


def key_of(*arrays):
    return trace([array.node for array in arrays])[0]


def test_keys_are_of_structure_not_of_values():
    x, y = pair()
    assert key_of(x * 2.0 + y) == key_of(y * 3.0 + x)
    assert hash(key_of(x * 2.0)) == hash(key_of(y * 5.0))
    different = [
        key_of(x * 2.0 + y), key_of(x * 2.0 + x), key_of(y + x), key_of(x * 2.0, y),
        key_of(x * 2.0 + 3.0), key_of(x * 2.0 + 2.0), key_of(x[1:] * 2.0), key_of(x[:-1] * 2.0),
        key_of(x[9:90] + x[10:91]), key_of(x[9:90] + x[8:89]), key_of(x[9:90] + x[14:95]),
    ]
    assert len(set(different)) == len(different)
    for key in different:
        assert Key(parts_of(key)) == key and hash(Key(parts_of(key))) == hash(key)


def test_windows_that_move_together_have_one_key():
    x, _ = pair()
    assert key_of(x[3:9] + x[4:10]) == key_of(x[500:506] + x[501:507])
    assert key_of(x[3:9] + x[4:10]) != key_of(x[500:506] + x[503:509])


# Running -----------------------------------------------------------------------------------------


def looked(x, y, scale):
    return ta.evaluate(x * scale + y, (x - y).reshape(10, -1).sum(axis=0) * scale)


@written_in_c
def test_what_is_met_again_is_run_by_the_core():
    x, y = pair()
    for scale in (2.0, 3.0, 4.0, 5.0):
        product, total = x * scale + y, (x - y) * scale
        launches = counters["launches"]
        targets = [product._node, total._node]
        by_core = run_known(targets)
        assert by_core == (scale > 2.0)
        if not by_core:
            ta.evaluate(product, total)
        assert counters["launches"] > launches
        assert not any(node.inputs or node.pending for node in targets)
        np.testing.assert_array_equal(product, np.asarray(x) * scale + np.asarray(y))
        np.testing.assert_array_equal(total, (np.asarray(x) - np.asarray(y)) * scale)


def heated(u):
    u[1:-1, 1:-1] += 0.1 * (u[2:, 1:-1] + u[:-2, 1:-1] - 2 * u[1:-1, 1:-1])
    u[0] = 1.0
    return u


def test_writes_of_programs():
    start = np.random.default_rng(5).random((60, 70))
    u, v = ta.array(start), start.copy()
    kept = []
    for step in range(8):
        if step in (2, 5):
            kept.append((u + 0.0, v + 0.0, u, u[3:]))
            u, v = u * 1.0, v * 1.0
        assert float(heated(u)[1, 1]) == heated(v)[1, 1]
        if step > 3:
            u[5] *= 2.0
            v[5] *= 2.0
    np.testing.assert_array_equal(u, v)
    for copy, wanted, before, _ in kept:
        np.testing.assert_array_equal(copy, wanted)
        np.testing.assert_array_equal(before, wanted)


@written_in_c
def test_a_stencil_that_writes_is_run_by_the_core():
    u = ta.evaluate(ta.array(np.random.default_rng(5).random((60, 70))))
    by_core = []
    for _ in range(4):
        heated(u)
        by_core.append(run_known([u._node]))
        ta.evaluate(u)
    assert by_core == [False, False, True, True] or by_core == [False, True, True, True]


@pytest.mark.parametrize("scales", [(2.0, 3.0), (2.5, 2.5), (0.0, -0.0), (1e300, 7.0), (2, 3)])
def test_scalars_of_programs(scales):
    x, y = pair()
    for one, other in (scales, scales[::-1], scales):
        result = (x * one + y * other).astype("f4") * one
        wanted = (np.asarray(x) * one + np.asarray(y) * other).astype("f4") * one
        np.testing.assert_allclose(np.asarray(result), wanted, rtol=1e-6)


@pytest.mark.parametrize("dtype", ["i4", "i8", "u8", "c16", "f4", "?", "i2"])
def test_dtypes_of_programs(dtype):
    x = ta.evaluate(ta.array(np.arange(2000).astype(dtype)))
    for scale in (1, 3, 2, 5):
        np.testing.assert_array_equal(
            np.asarray((x * scale)[5:] + (x + scale)[:-5]),
            (np.asarray(x) * scale)[5:] + (np.asarray(x) + scale)[:-5], strict=True)


def test_scalars_that_are_a_start_by_chance():
    x = ta.evaluate(ta.array(np.arange(2000)))
    values = np.asarray(x)
    for scale in (1, 3, 2, 5, 7):  # of those, 5 is written in this code as well
        np.testing.assert_array_equal(
            (x * scale)[5:] + (x + scale)[:-5], (values * scale)[5:] + (values + scale)[:-5])


def test_windows_of_programs():
    x, _ = pair()
    for start in (3, 20, 500, 7):
        window = x[start:start + 6] * x[start + 1:start + 7] + start
        values = np.asarray(x)
        np.testing.assert_array_equal(
            window, values[start:start + 6] * values[start + 1:start + 7] + start)


def test_sums_of_programs():
    x = ta.evaluate(ta.array(np.random.default_rng(3).random((300, 400))))
    values = np.asarray(x)
    for scale in (2.0, 3.0, 4.0):
        total = (x * scale).sum(axis=1) - (x + scale).mean(axis=0).sum()
        np.testing.assert_allclose(
            total, (values * scale).sum(axis=1) - (values + scale).mean(axis=0).sum(), rtol=1e-12)


def test_an_observer_sees_what_is_met_again():
    x, y = pair()
    seen = []
    for _ in range(3):
        looked(x, y, 2.0)
    observers.append(lambda executable, step, seconds: seen.append(step))
    try:
        looked(x, y, 2.0)
    finally:
        observers.clear()
    assert seen


def test_settings_are_heeded_by_what_is_met_again():
    x, y = pair()
    for threads in (1, 2, 1):
        with config.override(threads=threads):
            for _ in range(3):
                product, _ = looked(x, y, 2.0)
            np.testing.assert_array_equal(product, np.asarray(x) * 2.0 + np.asarray(y))


def test_threads_that_meet_the_same_plan():
    problems = []

    def work(seed):
        values = np.random.default_rng(seed).random(40_000)
        x = ta.array(values)
        for scale in range(60):
            if not (np.asarray(x * float(scale) + 1.0) == values * float(scale) + 1.0).all():
                problems.append((seed, scale))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems


class TimeOut(Exception):
    pass


def test_what_a_handler_raises_is_seen_and_nothing_is_lost(monkeypatch):
    # Its weak references would swallow what is raised while one of them is dropped.
    monkeypatch.setattr(config, "verify", False)
    x, y = pair(300_000)
    values, raised = np.asarray(x) * 2.0 + np.asarray(y), 0

    def handler(*_):
        raise TimeOut

    before = signal.signal(signal.SIGALRM, handler)
    try:
        for k in range(200):
            result = None
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.0002 + 1e-6 * k)
                for _ in range(200):
                    result = x * 2.0 + y
                    ta.evaluate(result)
                time.sleep(0.1)
            except TimeOut:
                raised += 1
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
            if result is not None:
                np.testing.assert_array_equal(result, values)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert raised == 200


LOOKED_AT = {
    "roll by": lambda np, x, k: np.roll(x, k, axis=0),
    "roll all by": lambda np, x, k: np.roll(x, k),
    "roll along": lambda np, x, k: np.roll(x, 2, axis=k % 2),
    "roll by several": lambda np, x, k: np.roll(x, np.asarray([1, 2]) * k, axis=(0, 1)),
    "roll by a list": lambda np, x, k: np.roll(x, [k, 1], axis=(0, 1)),
    "roll by name": lambda np, x, k: np.roll(shift=k, a=x, axis=0),
    "sum": lambda np, x, k: np.sum(x, axis=k % 2),
    "sum by name": lambda np, x, k: np.sum(axis=k % 2, a=x),
    "argmax": lambda np, x, k: x.argmax(k % 2),
    "mean": lambda np, x, k: x.mean(axis=(k % 2,)),
    "count_nonzero": lambda np, x, k: np.count_nonzero(x > 0.5, axis=k % 2),
    "clip": lambda np, x, k: np.clip(x, k * 0.01, k * 0.1),
    "where": lambda np, x, k: np.where(x > 0.5, x, k),
    "concatenate": lambda np, x, k: np.concatenate([x, x], axis=k % 2),
    "stack": lambda np, x, k: np.stack([x, x + 1], axis=k % 2),
    "full_like": lambda np, x, k: np.full_like(x, k),
    "full_like of a product": lambda np, x, k: np.full_like(x, k * 0.5) + x,
    "zeros_like": lambda np, x, k: np.zeros_like(x) + k,
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", LOOKED_AT)
@pytest.mark.parametrize("make", [ta.array, np.int64, lambda k: ta.arange(10)[k]])
def test_values_that_are_looked_at_are_no_part_of_what_is_recorded_again(name, make):
    values = np.random.default_rng(5).random((300, 250))
    function = LOOKED_AT[name]
    x = ta.array(values)
    with ta.config.override(at_once=65_536, first_seconds=0.0):
        for k in (1, 2, 5, 8, 3, 3):
            found = function(ta, x + 0.0, make(k))
            wanted = function(np, values + 0.0, k)
            np.testing.assert_allclose(np.asarray(found), wanted, rtol=1e-12)
