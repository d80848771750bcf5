"""Plans that write into leaves' memory, run by the core: only where nobody else looks at it."""

import signal
import threading

import numpy as np
import pytest

import tiledarray as ta
from tests.leaks import assert_nothing_is_left
from tiledarray import config
from tiledarray.core import KEEPS, forget_programs, kind, run_known
from tiledarray.devices.pool import HostPool
from tiledarray.errors import OutOfMemory
from tiledarray.execution import evaluate
from tiledarray.recording.stretch import local

pytestmark = pytest.mark.compiler
written_in_c = pytest.mark.skipif(kind != "c", reason="the twin leaves it to Python")


@pytest.fixture(autouse=True)
def recorded():
    local.recorder.reset()
    forget_programs()
    with config.override(at_once=0, compile="wait", device="cpu"):
        yield
    local.recorder.reset()


@pytest.fixture
def by_python(monkeypatch):
    """Return a list that grows with every evaluation that Python has made."""
    seen, taken = [], evaluate._evaluate_taken

    def noted(*arguments):
        seen.append("evaluation")
        return taken(*arguments)

    monkeypatch.setattr(evaluate, "_evaluate_taken", noted)
    return seen


def array(size=2000, seed=1):
    return ta.evaluate(ta.array(np.random.default_rng(seed).random(size)))


def pointer(x):
    return x._node.buffer.pointer


# What is run by the core -------------------------------------------------------------------------


def every_other(x, y):
    x[::2] = y[::2]


def tail(x, y):
    x[5:] = 1.5
    x[:3] *= 2.0


def shifted(x, y):
    x[1:] += 0.5 * y[:-1] - x[1:]


def through_a_view(x, y):
    x.reshape(40, 50)[3:7, ::5] -= 0.25


def windows(x, y):
    for k in (3, 500):
        x[k:k + 300] = x[k:k + 300] * 2.0 - y[k + 1:k + 301]


def two(x, y):
    x[10:] += 1.0
    y[:10] = x[10:20]
    y[20:30] -= 1.0


WRITES = [every_other, tail, shifted, through_a_view, windows, two]


@written_in_c
@pytest.mark.parametrize("write", WRITES, ids=lambda write: write.__name__)
def test_a_loop_of_writes_in_place_is_run_by_the_core_in_the_same_memory(write, by_python):
    x, y = array(), array(seed=2)
    theirs = np.array(x), np.array(y)
    for step in range(6):
        write(x, y)
        write(*theirs)
        before = len(by_python)
        ta.evaluate(x, y)
        assert len(by_python) == before or step < 3
        if step == 2:
            places = pointer(x), pointer(y)
    assert places == (pointer(x), pointer(y)) or write is through_a_view
    np.testing.assert_array_equal(x, theirs[0])
    np.testing.assert_array_equal(y, theirs[1])


@written_in_c
def test_what_a_plan_assumed_of_its_windows_is_looked_at():
    x = array()
    theirs = np.array(x)
    by_core = []
    for first, second in [(0, 900), (10, 800), (20, 700), (30, 600), (40, 90), (40, 90), (40, 90),
                          (600, 30), (5, 5), (5, 5), (5, 900)]:
        for values in (x, theirs):
            values[first:first + 200] = values[second:second + 200] * 2.0
            values[second:second + 200] += 1.0
        by_core.append(run_known([x._node]))
        ta.evaluate(x)
        np.testing.assert_array_equal(np.array(x), theirs)
    assert by_core[3] and by_core[-1] and not by_core[4]


def swapped(lib, steps):
    u, v = (lib.array(np.random.default_rng(k).random((30, 40))) for k in (3, 4))
    for step in range(steps):
        v[1:-1, 1:-1] = 2 * u[1:-1, 1:-1] - v[1:-1, 1:-1] + 0.1 * (u[2:, 1:-1] - u[:-2, 1:-1])
        v[0] = u[1]
        u, v = v, u
        if step % 5 == 4:
            v = u.copy()
        assert float(u[2, 2]) == float(u[2, 2])
    return u, v


def test_arrays_that_change_places():
    for ours, theirs in zip(swapped(ta, 20), swapped(np, 20), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@written_in_c
def test_arrays_that_change_places_are_run_by_the_core(by_python):
    swapped(ta, 12)
    before = len(by_python)
    swapped(ta, 12)
    assert len(by_python) - before <= 3


@written_in_c
def test_results_that_share_memory_or_copy_are_run_by_the_core(by_python):
    x = array()
    for step in range(4):
        before = len(by_python)
        largest = x.reshape(40, 50).max(axis=1, keepdims=True)
        joined = ta.concatenate((x, x[:7]))
        ta.evaluate(largest, joined)
        old = x.copy()
        old[3:9] = x[4:10]
        ta.evaluate(old)
        assert len(by_python) == before or step < 2
        np.testing.assert_array_equal(largest, np.array(x).reshape(40, 50).max(1, keepdims=True))
        np.testing.assert_array_equal(joined, np.concatenate((np.array(x), np.array(x)[:7])))
        wanted = np.array(x)
        wanted[3:9] = wanted[4:10]
        np.testing.assert_array_equal(old, wanted)


# Who else looks ----------------------------------------------------------------------------------


def written(x):
    x[5:] += 1.0
    return x


def known(x, times=4):
    """Write so often that the core knows how."""
    for _ in range(times):
        ta.evaluate(written(x))
    return x


HOLDERS = {
    "node": lambda x: x._node,
    "buffer": lambda x: x._node.buffer,
    "pending": lambda x: (x * 2.0)._node,
    "pending view": lambda x: x[2:9].node,
    "pending with three": lambda x: ta.where(x > 0.5, x, 0.0)._node,
    "inputs": lambda x: (x * 2.0)._node.inputs,
    "another hold": lambda x: x._node.buffer.another(),
    "lease": lambda x: x._node.buffer.lend(),
    "copy": lambda x: x.copy()._node,
}


@pytest.mark.parametrize("name", HOLDERS)
def test_a_value_that_somebody_holds_is_kept(name):
    x = known(array())
    values, place = np.array(x), pointer(x)
    held = HOLDERS[name](x)
    ta.evaluate(written(x))
    assert pointer(x) != place
    values[5:] += 1.0
    np.testing.assert_array_equal(np.array(x), values)
    del held
    for _ in range(3):
        place = pointer(x)
        ta.evaluate(written(x))
    assert pointer(x) == place


@pytest.mark.parametrize("name", sorted({*HOLDERS} - {"buffer"}))  # who holds that is seen last
@written_in_c
def test_the_core_writes_elsewhere_once_that_is_known(name):
    x = known(array())
    for step in range(4):
        held, values = HOLDERS[name](x), np.array(x)
        by_core = run_known([written(x)._node])
        ta.evaluate(x)
        assert by_core or step < 2
        values[5:] += 1.0
        np.testing.assert_array_equal(np.array(x), values)
    assert held is not None


def test_intermediate_values_that_somebody_holds_are_kept():
    x, kept, wanted = known(array()), [], []
    for step in range(6):
        values = np.array(x)
        written(x)
        middle = x._node  # pending: the old value can be had through it
        x[1] = step
        wanted.append(values + np.r_[np.zeros(5), np.ones(1995)])
        ta.evaluate(x)
        kept.append(middle)
    for node, values in zip(kept, wanted, strict=True):
        evaluate.evaluate([node])
        np.testing.assert_array_equal(node.buffer.array, values)


def views(lib):
    x = lib.array(np.arange(60.0))
    grid, tail, every = x.reshape(6, 10), x[20:], x[::3]
    inner = grid[1:-1, 2:5]
    found = []
    for step in range(7):
        before = tail * 2.0
        inner += every[:12].reshape(4, 3)
        found.append(inner[0, 0] + 0.0)
        tail[::2] = before[1::2] - step
        x[3:9] = inner[0, 2]
        every[1:] -= tail[:19]
        found += [before + 0.0, grid[2] * 1.0, every.sum()]
        if step % 2:
            found.append(float(x[7]))
    return [*found, x, grid, inner]


def test_views_of_views_that_are_written_while_old_values_are_pending():
    for ours, theirs in zip(views(ta), views(np), strict=True):
        np.testing.assert_allclose(np.asarray(ours), theirs, rtol=1e-12)


def test_what_a_gradient_will_ask_for_is_kept():
    x = known(array())
    for _ in range(3):
        x._node.keep(KEEPS)
        values = np.array(x)
        ta.evaluate(written(x))
        old = x._node.inputs[0]
        np.testing.assert_array_equal(old.buffer.array, values)
        x._node.keep(0)
        x._node.forget_inputs()
        del old


def test_a_view_that_has_read_does_not_keep_its_array_from_being_written():
    x = known(array())
    inside, theirs = x[5:], np.array(x)
    for _ in range(5):
        place = pointer(x)
        inside += 1.0
        theirs[5:] += 1.0
        ta.evaluate(inside)
    assert pointer(x) == place
    np.testing.assert_array_equal(np.array(x), theirs)


def test_what_another_thread_has_recorded_of_the_old_value_is_kept():
    x = known(array())
    values, kept = np.array(x), []
    recorded, written_to = threading.Event(), threading.Event()

    def work():
        total = x * 2.0
        recorded.set()
        written_to.wait(10)
        kept.append(np.array(total))

    thread = threading.Thread(target=work)
    thread.start()
    recorded.wait(10)
    ta.evaluate(written(x))
    written_to.set()
    thread.join()
    np.testing.assert_array_equal(kept[0], values * 2.0)


def test_threads_that_write_by_the_same_plan():
    problems = []

    def work(seed):
        x = array(40_000, seed)
        theirs, copies = np.array(x), []
        for step in range(60):
            if step % 7 == 0:
                copies.append((x * 1.0, theirs.copy()))
            x[1:-1] += 0.5 * (x[2:] - x[:-2])
            theirs[1:-1] += 0.5 * (theirs[2:] - theirs[:-2])
            if float(x[5]) != theirs[5]:
                problems.append((seed, step))
        for ours, wanted in (*copies, (x, theirs)):
            if not (np.asarray(ours) == wanted).all():
                problems.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems


# What goes wrong in the middle -------------------------------------------------------------------


def test_memory_that_runs_out_leaves_what_was_to_be_written():
    def recorded(x):
        old = x[:9000] * 3.0  # too large for an array of NumPy's own
        x[5:] += old.sum()
        return x, old, x.sum()

    x, theirs = array(20_000), None
    for _ in range(4):
        ta.evaluate(*recorded(x))
    failed, take = 0, HostPool.array
    for allowed in range(8):
        theirs = np.array(x)
        wanted = [np.array(values) for values in recorded(theirs)]
        left = [allowed]

        def scarce(pool, shape, dtype, left=left):
            left[0] -= 1
            if left[0] < 0:
                raise OutOfMemory("no host memory", nbytes=1)
            return take(pool, shape, dtype)

        found = recorded(x)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(HostPool, "array", scarce)
            try:
                ta.evaluate(*found)
            except MemoryError:
                failed += 1
        for ours, values in zip(found, wanted, strict=True):
            np.testing.assert_allclose(np.asarray(ours), values, rtol=1e-12)
    assert failed


def test_a_handler_that_looks_in_the_middle_sees_no_half_of_it(monkeypatch):
    monkeypatch.setattr(config, "verify", False)  # that looks at all memory, byte code by byte code
    x = known(array(400_000))
    theirs, seen = np.array(x), []

    def handler(*_):
        try:
            seen.append(float(x[7]))
        except RuntimeError as error:
            seen.append(str(error))

    before = signal.signal(signal.SIGALRM, handler)
    wanted = {theirs[7]}
    try:
        for step in range(400):
            signal.setitimer(signal.ITIMER_REAL, 0.00005 + 1e-6 * step)
            ta.evaluate(written(x))
            theirs[5:] += 1.0
            wanted.add(theirs[7])
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    np.testing.assert_array_equal(np.array(x), theirs)
    assert seen and {value for value in seen if not isinstance(value, str)} <= wanted


@pytest.mark.parametrize("write", WRITES, ids=lambda write: write.__name__)
def test_writes_leave_nothing_behind(write):
    x, y = array(), array(seed=2)

    def work():
        write(x, y)
        ta.evaluate(x, y)

    assert_nothing_is_left(work, local.recorder.reset)


@pytest.mark.parametrize("name", HOLDERS)
def test_looking_who_holds_leaves_nothing_behind(name):
    x = known(array())

    def work():
        held = HOLDERS[name](x)
        ta.evaluate(written(x))
        del held

    assert_nothing_is_left(work, local.recorder.reset)
