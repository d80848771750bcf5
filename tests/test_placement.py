"""Where arrays are that nobody put anywhere, with another device beside the host (`sides.py`)."""

import ctypes

import numpy as np
import pytest

import tiledarray as ta
from tests.sides import FarBackend, two_sides
from tiledarray import config
from tiledarray.core import kind, run_known
from tiledarray.devices import device as devices
from tiledarray.devices.device import Device
from tiledarray.errors import OutOfMemory
from tiledarray.execution import instructions, placement
from tiledarray.execution.executable import Executable
from tiledarray.graph.program import trace

pytestmark = pytest.mark.compiler
LARGE = 200_000


@pytest.fixture(autouse=True)
def settings():
    with config.override(at_once=1000, compile="wait"):
        yield


@pytest.fixture
def far():
    """All that is large is computed there."""

    def is_large(traced, targets):
        return max(node.form.kind.size for node in traced.nodes) > 1000

    with two_sides(is_large) as to:
        yield to


@pytest.fixture
def copies(monkeypatch):
    """How many elements were brought to the far device and home again, in a list."""
    found = []
    wrap, to_host = FarBackend.wrap, FarBackend.to_host

    def wrapped(self, array, copy=False, given=False):
        found.append(("there", array.size))
        return wrap(self, array, copy, given)

    def brought(self, buffer):
        found.append(("home", buffer.array.size))
        return to_host(self, buffer)

    monkeypatch.setattr(FarBackend, "wrap", wrapped)
    monkeypatch.setattr(FarBackend, "to_host", brought)
    for name in ("far", "far:0"):  # its methods may have been looked up before
        devices._interned.pop(name, None)
    return found


def lies(x):
    """Where the value lies: its device's kind."""
    return x.origin()._node.buffer.device.kind


def test_arrays_are_born_on_the_host_and_small_ones_stay(far):
    x = ta.arange(10.0)
    y = (x * 2 + 1)[2:]
    y[0] = 7
    assert x._array is not None and y._array is not None
    assert x.device is y.device is ta.ones(3).device is Device("auto") and str(x.device) == "auto"
    assert y.tolist() == [7, 7, 9, 11, 13, 15, 17, 19]


def test_large_work_is_done_there_and_stays_there(copies, far):
    x = ta.asarray(np.arange(float(LARGE)))
    y = x * 2 + 1
    ta.evaluate(y)
    assert lies(y) == "far" and copies == [("there", LARGE)]
    z = np.sqrt(y) + x  # neither has to be brought
    ta.evaluate(z)
    assert lies(z) == "far" and len(copies) == 1
    total = z.sum()
    assert float(total) == pytest.approx(float(np.sqrt(np.arange(LARGE) * 2 + 1.0).sum()
                                               + np.arange(float(LARGE)).sum()))
    assert copies[1:] == [("home", 1)]
    assert float(total * 2) == 2 * float(total) and len(copies) == 2  # it is here now
    assert total._array is not None
    np.testing.assert_array_equal(y.numpy(), np.arange(LARGE) * 2 + 1.0)
    np.testing.assert_array_equal(y.numpy()[:3], [1, 3, 5])
    assert copies[2:] == [("home", LARGE)]  # once


def test_a_write_keeps_one_side(copies, far):
    x = ta.asarray(np.zeros(LARGE))
    ta.evaluate(x + 1)
    for turn in range(3):
        x[1:-1] += 1  # there, in place
        ta.evaluate(x)
        assert lies(x) == "far" and x._node.buffer.elsewhere is None
        assert len(copies) == 1, turn
    expected = np.zeros(LARGE)
    expected[1:-1] = 3
    np.testing.assert_array_equal(x.numpy(), expected)
    x[3] = 9  # here: what lies there is not the value any more
    expected[3] = 9
    np.testing.assert_array_equal((x * 2).numpy(), expected * 2)
    np.testing.assert_array_equal(x.numpy(), expected)


def test_what_was_lent_is_not_remembered_elsewhere(far):
    x = ta.asarray(np.zeros(LARGE))
    ta.evaluate(x + 1)
    lent = np.from_dlpack(x)
    shared = x.__dlpack__(copy=False)
    assert shared is not None and not lent[0]
    assert (x + 1)[:2].tolist() == [1, 1]


def test_elements_of_what_lies_there_bring_it_home_when_that_pays(copies, far):
    x = ta.asarray(np.arange(float(LARGE))) + 1  # 1.6 MB: seven looks
    ta.evaluate(x)
    total = 0.0
    for k in range(100):
        total += float(x[k])
    assert total == sum(range(1, 101))
    homeward = [size for way, size in copies if way == "home"]
    assert homeward.count(LARGE) == 1 and len(homeward) <= 1 + LARGE * 8 // placement.LOOK_BYTES
    assert x._array is not None


@pytest.mark.parametrize("where", ["far", "cpu"])
def test_what_was_put_somewhere_stays_and_draws_the_rest(where, far):
    placed = ta.asarray(np.arange(3.0), device=where)
    device = Device(where)
    assert placed.device is device
    for result in (placed + 1, placed + ta.arange(3.0), ta.arange(3.0) * placed,
                   np.where(placed > 1, ta.ones(3) * 2, placed), placed @ ta.ones((3, 2)),
                   placed[ta.array([0, 2])]):
        assert result.device is device, result
    large = ta.asarray(np.ones(LARGE)) * 2
    result = placed[:1] + large
    assert result.device is device and result[:2].tolist() == [2, 2]
    assert large.device is Device("auto")
    placed[1:] = ta.ones(2) * 5
    placed += ta.ones(3)
    assert placed.device is device and placed.tolist() == [1, 6, 6]
    anywhere = ta.zeros(3)
    anywhere[:2] = placed[1:]
    assert anywhere.device is Device("auto") and anywhere.tolist() == [6, 6, 0]
    out = ta.zeros(3)
    np.add(placed, 1, out=out)
    assert out.device is Device("auto") and out.tolist() == [2, 7, 7]
    assert placed.to("auto").device is Device("auto")


def test_different_devices_are_refused(far):
    with pytest.raises(ValueError, match="different devices, far:0 and cpu"):
        ta.ones(3, device="far") + ta.ones(3, device="cpu")
    with pytest.raises(ValueError, match="cannot write an array on cpu into one on far:0"):
        ta.ones(3, device="far")[:] = ta.ones(3, device="cpu")


def test_what_numpy_does_and_what_depends_on_data(far):
    x = ta.asarray(np.arange(float(LARGE)) % 7) + 0
    ta.evaluate(x)
    expected = np.arange(float(LARGE)) % 7
    np.testing.assert_array_equal(np.nonzero(x > 3)[0].numpy(), np.nonzero(expected > 3)[0])
    np.testing.assert_array_equal(x[x > 5].numpy(), expected[expected > 5])
    x[x > 5] = -1
    expected[expected > 5] = -1
    np.testing.assert_array_equal(x.numpy(), expected)
    np.testing.assert_array_equal(ta.unique(x * 2).numpy(), np.unique(expected * 2))
    np.testing.assert_array_equal(
        ta.concatenate([x[:2], ta.ones(2), x[-1:]]).numpy(),
        np.concatenate([expected[:2], np.ones(2), expected[-1:]]))
    np.testing.assert_array_equal(np.median(x + 1).numpy(), np.median(expected + 1))
    assert x.tolist()[:3] == expected.tolist()[:3]


def test_jit(copies, far):
    @ta.jit
    def step(u, rate):
        u[1:-1] += rate * (u[2:] - 2 * u[1:-1] + u[:-2])
        return u.sum(), u * 2

    start = np.arange(float(LARGE)) % 11
    u, expected = ta.asarray(start.copy()), start.copy()
    for _ in range(3):
        total, doubled = step(u, ta.array(0.25))
        expected[1:-1] += 0.25 * (expected[2:] - 2 * expected[1:-1] + expected[:-2])
    np.testing.assert_allclose(u.numpy(), expected)
    np.testing.assert_allclose(doubled.numpy(), 2 * expected)
    assert float(total) == pytest.approx(expected.sum())
    assert lies(doubled) in ("cpu", "auto")  # it has been looked at
    assert sum(size == LARGE for way, size in copies if way == "there") == 1


def test_what_fails_there_is_lost_nowhere(far, monkeypatch):
    x = ta.asarray(np.arange(float(LARGE)))
    x[1:-1] += 1
    run = Executable.run

    def failing(self, *args, **kwargs):
        run(self, *args, **kwargs)
        raise MemoryError("later")

    monkeypatch.setattr(Executable, "run", failing)
    with pytest.raises(MemoryError):
        ta.evaluate(x)
    monkeypatch.setattr(Executable, "run", run)
    assert x[:3].tolist() == [0, 2, 3]


def test_small_work_is_done_at_home_and_what_is_met_once_too():
    with two_sides() as to:
        x = ta.asarray(np.ones(LARGE))
        with config.override(at_once=0, compile="background", first_seconds=0.02):
            y = x * 2
            ta.evaluate(y)
            assert lies(y) in ("cpu", "auto")  # nobody knows whether it comes again
        y = np.exp(np.sin(x) + np.cos(x)) ** 0.3 + np.tanh(x)
        for _ in range(20):
            y = np.exp(-y) * np.sin(y)
        ta.evaluate(y)
        assert lies(y) == to.kind
        with config.override(at_once=0):
            small = ta.asarray(np.ones(100))
            for _ in range(3):
                z = small * 2 + 1
                ta.evaluate(z)
                assert lies(z) in ("cpu", "auto")


@pytest.mark.parametrize("dtype", ["f4", "f8", "c16", "i4"])
def test_products_of_vectors(far, dtype):
    x, y = (np.random.default_rng(k).random((400, 500)).astype(dtype) + k for k in (1, 2))
    for lib in (np, ta):
        a, b = lib.asarray(x), lib.asarray(y)
        found = [lib.vdot(a, b), lib.dot(a.ravel(), b.ravel()), a.ravel() @ b.ravel(),
                 lib.vdot(a, 2 * b), lib.vdot(a, b.ravel())]
        if lib is np:
            wanted = found
    for ours, theirs in zip(found, wanted, strict=True):
        assert ours.dtype == theirs.dtype and ours.shape == ()
        assert complex(ours) == pytest.approx(complex(theirs), rel=1e-5 if dtype == "f4" else 1e-12)


def test_each_result_of_an_operation_with_several_goes_where_it_is_used(far):
    x, y = ta.asarray(np.arange(3.0)), ta.asarray(np.ones(5))
    results = tuple(array.evaluated() for array in (x, y))
    there = placement.on_one_side(results, Device("far"))
    assert [each.device.kind for each in there] == ["far", "far"]
    back = placement.on_one_side(there, results[0].device)
    assert [each.array.tolist() for each in back] == [[0, 1, 2], [1] * 5]
    with config.override(at_once=1):  # a function that has one of them from outside
        _, r = np.linalg.qr(ta.asarray(np.arange(12.0).reshape(4, 3)) + 0)
        assert ta.jit(lambda x: x + r)(ta.zeros((3, 3))).numpy() == pytest.approx(r.numpy())


# ---- when the GPU pays -----------------------------------------------------------------------


def places(step, times):
    """Where the results of so many steps lay when they were computed."""
    found = []
    for k in range(times):
        y = step(k)
        ta.evaluate(y)
        found.append(lies(y))
    return found


def test_what_comes_again_goes_there_once_the_host_has_lost_enough():
    with two_sides() as to, config.override(at_once=0, first_seconds=0.02):
        x = ta.asarray(np.random.default_rng(0).random((1000, 1000)))
        found = places(lambda k: np.sqrt(x + 1) * x, 30)
        assert found[0] != to.kind and found[-1] == to.kind
        assert sorted(found, key=lambda kind: kind == to.kind) == found  # and stays there


def test_what_is_copied_and_written_is_brought_there_once(copies):
    with two_sides() as to, config.override(at_once=0, first_seconds=0.0):
        wanted = np.random.default_rng(0).random((1000, 1000))
        start = ta.array(wanted)
        for step in range(4):
            if step == 2:
                copies.clear()  # nobody knows it yet when it is planned
            u, v = start.copy(), wanted.copy()
            for _ in range(3):
                heated(u)
                heated(v)
            ta.evaluate(u)
        assert lies(u) == to.kind
        np.testing.assert_array_equal(u.numpy(), v)
        np.testing.assert_array_equal(start.numpy(), wanted)
        assert not [size for way, size in copies if way == "there" and size > 1000]


def test_shapes_that_change_stay_on_the_host():
    with two_sides() as to, config.override(at_once=0, first_seconds=0.02):
        x = ta.asarray(np.random.default_rng(0).random((1000, 1000)))
        assert to.kind not in places(lambda k: x[k:, k:] * 2 + x[k:, :1], 40)


@pytest.mark.parametrize("looks", [True, False])
def test_loops_over_masks_that_are_looked_at_stay_on_the_host(looks):
    with two_sides() as to, config.override(at_once=1000, first_seconds=0.02):
        d = ta.asarray(np.random.default_rng(0).random((450, 450)))
        expected = d.numpy()
        for k in range(60):
            through = d[:, k][:, None] + d[k][None, :]
            shorter = through < d
            if looks and not shorter.any():
                continue
            d[shorter] = through[shorter]
            if looks:
                assert lies(d) != to.kind
            else:
                assert d.origin()._node.buffer is None  # nothing waits for the mask
            through = expected[:, k][:, None] + expected[k][None, :]
            shorter = through < expected
            expected[shorter] = through[shorter]
        np.testing.assert_array_equal(d.numpy(), expected)


def test_small_parts_of_a_mask_that_lies_there_are_looked_at_here(copies, far):
    x = ta.asarray(np.random.default_rng(0).random((400, 500)))
    mask = x < 0.5
    ta.evaluate(mask)
    assert lies(mask) == "far"
    small, wanted = ta.arange(500.0), np.arange(500.0)
    for k in range(20):
        assert small[mask[k]].tolist() == wanted[x.numpy()[k] < 0.5].tolist()


@pytest.mark.parametrize("write", [False, True])
def test_views_and_writes_cost_what_they_touch(write):
    x = ta.asarray(np.ones((2000, 2000)))

    def step():
        if write:
            x[5, 10:20] = x[7, 10:20] * 2
            return x
        return x[3:, 5:][:, 7] * 2

    with config.override(at_once=0, device="cpu"):
        y = step()
        node = y.origin().node
        traced = trace([node])
        assert placement.host_seconds(traced.nodes, [node], 2) < 1e-4
    assert np.asarray(y).size


# What the core runs -------------------------------------------------------------------------------

written_in_c = pytest.mark.skipif(kind != "c", reason="the twin leaves it to Python")


def heated(u):
    u[1:-1, 1:-1] += 0.1 * (u[2:, 1:-1] + u[:-2, 1:-1] - 2 * u[1:-1, 1:-1])
    u[0] = 1.0
    return u


def run_by_core(x):
    """Evaluate an array; whether the core did so by itself."""
    by_core = run_known([x.origin()._node])
    ta.evaluate(x)
    return by_core


@written_in_c
@pytest.mark.parametrize("size, there", [(1200, True), (24, False)])
def test_what_stays_on_one_side_is_run_by_the_core(size, there):
    with two_sides() as to, config.override(at_once=0, first_seconds=0.02):
        wanted = np.random.default_rng(0).random((size, size))
        u = ta.array(wanted)
        by_core = []
        for _ in range(30):
            by_core.append(run_by_core(heated(u)))
            heated(wanted)
            assert not by_core[-1] or (lies(u) == to.kind) == there
        assert not by_core[0] and all(by_core[-5:])
        np.testing.assert_array_equal(u.numpy(), wanted)
        assert there != run_by_core(heated(u))  # there is a copy on the host, if it lay there
        heated(wanted)
        np.testing.assert_array_equal(u.numpy(), wanted)


@written_in_c
def test_what_was_run_on_one_side_is_not_run_by_the_core_on_the_other():
    with two_sides() as to, config.override(at_once=0, first_seconds=0.02):
        x = ta.array(np.random.default_rng(0).random(50))
        for step in range(4):
            y = 2.0 * x + 1.0
            assert run_by_core(y) == (step > 0)
        moved = ta.array(x)
        moved.origin()._node.buffer = x.origin()._node.buffer.on(to)
        y = 2.0 * moved + 1.0
        assert not run_by_core(y)
        np.testing.assert_array_equal(y.numpy(), 2.0 * x.numpy() + 1.0)


@written_in_c
def test_what_the_host_asks_for_is_not_run_there_by_the_core():
    with two_sides() as to, config.override(at_once=0, first_seconds=0.02):
        x = ta.array(np.random.default_rng(0).random((1200, 1200)))
        for _ in range(30):
            u = np.sqrt(np.exp(x + 1.0))
            by_core = run_by_core(u)
            x = u * 1.0
            ta.evaluate(x)
        assert by_core and lies(x) == to.kind
        u = np.sqrt(np.exp(x + 1.0))
        np.testing.assert_allclose(u.numpy(), np.sqrt(np.exp(x.numpy() + 1.0)), rtol=1e-14)


@written_in_c
@pytest.mark.parametrize("fails_at", [1, 2])
def test_launches_that_fail_before_or_after_a_leaf_is_overwritten(monkeypatch, fails_at):
    """On a GPU any launch may: what is lost then is not computed with."""
    started, bad = [], []
    real = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(instructions._start_of_pool())

    @ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
    def start(arguments):
        started.append(arguments)
        return 1 if len(started) in bad else real(arguments)

    monkeypatch.setattr(instructions, "_start_of_pool", lambda: ctypes.cast(
        start, ctypes.c_void_p).value)
    with config.override(at_once=0, device="cpu"):
        u, v = ta.array(np.linspace(1, 2, 5000)), ta.array(np.linspace(1, 2, 70))

        def change():
            u[1:-1] *= 2.0
            v[1:-1] += u.sum()

        for _ in range(3):
            change()
            ta.evaluate(u, v)
        assert len(started) > 1
        before = u.numpy().copy(), v.numpy().copy()
        change()
        started.clear()
        bad.append(fails_at)
        targets = [u.origin()._node, v.origin()._node]
        if fails_at == 1:
            assert not run_known(targets)
            before[0][1:-1] *= 2.0
            before[1][1:-1] += before[0].sum()
            np.testing.assert_array_equal(u.numpy(), before[0])
            np.testing.assert_allclose(v.numpy(), before[1])
        else:
            with pytest.raises(OutOfMemory) as raised:
                run_known(targets)
            assert "lost" in raised.value.__notes__[0]
            for x in (u, v):
                with pytest.raises(RuntimeError, match="lost what it was made of"):
                    x.numpy()
