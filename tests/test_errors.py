"""Errors: what they say, what to do about them, and that nothing is lost."""

import os
import subprocess
import sys
import time
import warnings

import numpy
import pytest

import tiledarray as np
from tests.plans import forget_plans
from tiledarray import config
from tiledarray.core import forget_programs
from tiledarray.devices import device as devices
from tiledarray.devices.pool import host_pool
from tiledarray.errors import (
    CompilerError,
    DeviceNotFound,
    OutOfMemory,
    TiledArrayWarning,
    UnknownSetting,
)
from tiledarray.execution import doing_without, known, running
from tiledarray.execution import executable as execution
from tiledarray.kernels.compile import host
from tiledarray.recording.stretch import local

TIERS = ["wait", "never"]


@pytest.fixture(autouse=True)
def clean(monkeypatch):
    local.recorder.reset()
    monkeypatch.setattr(doing_without, "_told", set())
    monkeypatch.setattr(known, "executables", type(known.executables)())
    forget_programs()
    with config.override(device="cpu"):
        yield
    local.recorder.reset()


def data(*shape):
    return np.asarray(numpy.random.default_rng(0).random(shape))


def line_of(function, offset):
    return function.__code__.co_firstlineno + offset


def assert_recorded_at(error, name, line):
    notes = getattr(error, "__notes__", [])
    expected = f"while computing {name}, recorded at {__file__}:{line}"
    assert any(expected in note for note in notes), notes


# ---- values that turn out wrong ---------------------------------------------------------------


@pytest.mark.parametrize("tier", TIERS)
def test_a_singular_matrix_names_the_line_that_inverts_it(tier):
    with config.override(compile=tier):
        singular = np.asarray(numpy.zeros((3, 3)))
        other = data(3) * 2
        with pytest.raises(numpy.linalg.LinAlgError, match="Singular matrix") as caught:
            np.linalg.inv(singular) + 1  # looked at here, as NumPy would
        line = line_of(test_a_singular_matrix_names_the_line_that_inverts_it, 6)
        assert_recorded_at(caught.value, "linalg.inv", line)
        numpy.testing.assert_array_equal(other.numpy(), data(3).numpy() * 2)


@pytest.mark.parametrize("tier", TIERS)
def test_an_index_out_of_range_names_the_line_that_reads_it(tier):
    with config.override(compile=tier):
        x = data(4)
        where = np.arange(3) * 2
        taken = x[where] + 1
        with pytest.raises(IndexError, match="index 4 is out of bounds for axis 0") as caught:
            taken.numpy()
        line = line_of(test_an_index_out_of_range_names_the_line_that_reads_it, 5)
        assert_recorded_at(caught.value, "take", line)
        assert where.tolist() == [0, 2, 4]


@pytest.mark.parametrize("tier", TIERS)
def test_a_failed_write_leaves_the_rest_to_be_computed(tier):
    with config.override(compile=tier):
        x = data(4)
        before = x.numpy().copy()
        kept = x + 1
        x[np.arange(2) * 9] = 0
        with pytest.raises(IndexError, match="index 9 is out of bounds") as caught:
            x.numpy()
        assert "recorded at" in caught.value.__notes__[0]
        numpy.testing.assert_array_equal(kept.numpy(), before + 1)


WRITES = {
    "put": lambda x, bad: x.__setitem__(bad, 0),
    "put of a view": lambda x, bad: x[1:][1:].__setitem__(bad, 0),
    "add": lambda x, bad: x.__setitem__(bad, x[bad] + 1),
    "read": lambda x, bad: x[1:3].__setitem__(slice(None), (x + 1)[bad]),
    "rows": lambda x, bad: x.reshape(5, 2).__setitem__((bad, 1), 7),
}


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("look", ["array", "sum", "view"])
def test_a_failed_write_is_told_once(tier, write, look):
    with config.override(compile=tier, at_once=0):
        x = data(10)
        wanted = x.numpy().copy()
        looks = {"array": lambda: float(x[3]), "sum": lambda: float((x * 2).sum()),
                 "view": lambda: x[1:].tolist()}
        for _ in range(2):
            x += 1
            bad = np.arange(2) + 9
            WRITES[write](x, bad)
            x[4] = 3  # recorded after it
            other = x * 2
            with pytest.raises(IndexError, match="out of bounds") as caught:
                looks[look]()
            assert "recorded at" in caught.value.__notes__[0]
            wanted += 1
            wanted[4] = 3
            numpy.testing.assert_array_equal(x.numpy(), wanted)
            numpy.testing.assert_array_equal(other.numpy(), wanted * 2)


def test_a_failed_write_of_a_large_array():
    x = np.arange(1_000_000) * 1.0
    x[np.arange(1_000_000) + 1] = 5
    total = x.sum()
    with pytest.raises(IndexError):
        float(total)
    assert float(total) == float(x.numpy().sum()) == 999_999 * 500_000.0


def test_each_failed_write_is_told():
    with config.override(at_once=0):
        x = data(4)
        wanted = x.numpy().copy()
        x[np.arange(2) + 3] = 0
        x[1] = 5
        x[np.arange(2) + 7] = 1
        for words in ("index 4 ", "index 7 "):
            with pytest.raises(IndexError, match=words):
                x.numpy()
        wanted[1] = 5
        numpy.testing.assert_array_equal(x.numpy(), wanted)
        y = x[np.arange(2) + 3] + 1
        for _ in range(2):  # nothing stands for what was not read
            with pytest.raises(IndexError, match="index 4 "):
                y.numpy()


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("part", [slice(None), slice(2, 5)])
def test_a_negative_power_of_integers_is_told_before_anything_is_written(tier, part):
    with config.override(compile=tier, at_once=0):
        x = np.arange(8)
        x += 1
        exponents = np.arange(8)[part] - 4
        with pytest.raises(ValueError, match="to negative integer powers"):
            np.power(x[part], exponents, out=x[part])
        with pytest.raises(ValueError, match="to negative integer powers"):
            x[part] **= exponents
        numpy.testing.assert_array_equal(x.numpy(), numpy.arange(8) + 1)
        with pytest.raises(ValueError, match="to negative integer powers"):
            np.jit(lambda x, y: x ** y)(x[part], exponents)


REFUSED = {
    "argmax": lambda np, a: a.argmax(axis=True),
    "cumsum": lambda np, a: a.cumsum(axis=False),
    "sorter": lambda np, a: np.searchsorted(a[0], 2.5, sorter=[0]),
    "no sorter": lambda np, a: np.searchsorted(a[0], 2.5, sorter=[True, False, True]),
    "choose": lambda np, a: np.choose(np.array([0, 1], "u8"), [[1, 2], [3, 4]]),
    "beyond": lambda np, a: a.astype("u4") + 2**63,
    "far beyond": lambda np, a: a.astype("u4") + 2**64,
    "below": lambda np, a: a.astype("i4") * -2**63,
}


@pytest.mark.parametrize("at_once", [0, 1000])
@pytest.mark.parametrize("call", REFUSED)
def test_numpy_refuses_it_in_these_words(call, at_once):
    with pytest.raises((TypeError, ValueError, OverflowError)) as wanted:
        REFUSED[call](numpy, numpy.ones((2, 3)))
    with config.override(at_once=at_once), pytest.raises(type(wanted.value)) as found:
        REFUSED[call](np, np.ones((2, 3)))
    assert str(found.value) == str(wanted.value)


def test_what_the_shape_alone_tells_is_told_at_once():
    with pytest.raises(ValueError, match=r"could not be broadcast together with shapes"):
        data(3) + data(4)
    with pytest.raises(IndexError, match="out of bounds"):
        data(3)[7]
    with pytest.raises(numpy.exceptions.AxisError, match="axis 2 is out of bounds"):
        data(3).sum(axis=2)
    with pytest.raises(TypeError):
        data(3) << 1


# ---- compilers --------------------------------------------------------------------------------


def refuse(sources, **_):
    raise CompilerError("the compiler is broken", remedy="mend it")


@pytest.mark.parametrize("tier", ["wait", "background"])
@pytest.mark.compiler
def test_a_failing_compiler_is_told_once_and_done_without(monkeypatch, tier):
    monkeypatch.setattr(host, "compile_many", refuse)
    monkeypatch.setattr(execution, "_compiled", {})
    monkeypatch.setattr(running, "COMPILE_SECONDS", -1.0)
    x = data(20, 30)
    expected = numpy.exp(x.numpy()).sum(axis=1)
    with config.override(compile=tier):
        with pytest.warns(TiledArrayWarning, match="the compiler is broken") as told:
            first = np.exp(x).sum(axis=1)
            numpy.testing.assert_allclose(first.numpy(), expected)
        assert len(told) == 1 and "Remedy: mend it" in str(told[0].message)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            again = np.exp(x).sum(axis=1)
            numpy.testing.assert_allclose(again.numpy(), expected)
            numpy.testing.assert_allclose((x - 3).numpy(), x.numpy() - 3)
    assert "the compiler is broken" in str(np.explain(first))


@pytest.mark.compiler
def test_a_failure_in_the_background_is_told_by_the_next_look(monkeypatch):
    monkeypatch.setattr(host, "compile_many", refuse)
    monkeypatch.setattr(execution, "_compiled", {})
    x = data(20, 30)
    with config.override(compile="background"), warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for _ in range(4):
            y = np.cos(x) * 2
            numpy.testing.assert_allclose(y.numpy(), numpy.cos(x.numpy()) * 2)
            wait_for(y.node.buffer.plan)
    assert [str(warning.message).count("the compiler is broken") for warning in told] == [1]


def wait_for(executable):
    """Let the compiling thread reach the plan, if it was given it."""
    for _ in range(500):
        if not executable.queued or executable.failure is not None:
            return
        time.sleep(0.01)
    raise AssertionError("the compiling thread did not come")


def test_no_compiler_at_all(monkeypatch):
    monkeypatch.setattr(host, "available", lambda: "there is no c++, g++ or clang++ on the PATH")
    x = data(20, 30)
    with pytest.warns(TiledArrayWarning, match=r"op by op.*no c\+\+, g\+\+ or clang"):
        y = (x * 2).sum(axis=0)
        numpy.testing.assert_allclose(y.numpy(), (x.numpy() * 2).sum(axis=0))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (x * 3).numpy()


@pytest.mark.skipif(host.available() is not None, reason="needs a compiler")
def test_a_cache_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    x = data(9, 11)
    with config.override(cache_dir=tmp_path / "file" / "cache", compile="wait"):
        with pytest.warns(TiledArrayWarning, match="TILEDARRAY_CACHE_DIR"):
            y = np.sinh(x) * 1.5 - np.tanh(x)
            numpy.testing.assert_allclose(
                y.numpy(), numpy.sinh(x.numpy()) * 1.5 - numpy.tanh(x.numpy()), rtol=1e-14
            )
        assert y.node.buffer.plan.ready


# ---- memory -----------------------------------------------------------------------------------


@pytest.fixture
def full_memory(monkeypatch):
    """Let allocations of one size and above fail until further notice."""

    class Memory:
        limit = 1 << 62

    allocate = host_pool.array

    def array(shape, dtype):
        nbytes = int(numpy.prod(shape)) * dtype.itemsize
        if nbytes >= Memory.limit:
            raise OutOfMemory(f"no host memory for an array of {nbytes:,} bytes", nbytes=nbytes,
                              remedy="delete arrays")
        return allocate(shape, dtype)

    monkeypatch.setattr(host_pool, "array", array)
    return Memory


@pytest.mark.compiler
def test_out_of_memory_leaves_everything_pending(full_memory):
    x = data(100, 1000)
    expected = x.numpy() * 2 + 1
    with config.override(compile="wait"):
        y = x * 2 + 1
        small = x.sum()
        full_memory.limit = 800_000
        with pytest.raises(OutOfMemory, match="800,000 bytes") as caught:
            y.numpy()
        assert isinstance(caught.value, MemoryError)
        assert caught.value.remedy == "delete arrays" and "Remedy" in str(caught.value)
        assert y.node.buffer is None
        assert float(small) == pytest.approx(x.numpy().sum())
        full_memory.limit = 1 << 62
        numpy.testing.assert_array_equal(y.numpy(), expected)


@pytest.mark.compiler
def test_an_update_in_place_is_not_applied_twice(full_memory):
    with config.override(compile="wait"):
        u = np.zeros((100, 1000)) + data(100, 1000)
        before = u.numpy().copy()
        u = np.asarray(before.copy()) + 0
        np.evaluate(u)  # nobody else holds this one: the next update may be in place
        u[10:20] += 1.0
        total = u.sum(axis=1)
        more = np.concatenate([u, u])
        full_memory.limit = 1_600_000
        with pytest.raises(MemoryError):
            more.numpy()
        full_memory.limit = 1 << 62
        before[10:20] += 1
        numpy.testing.assert_array_equal(u.numpy(), before)
        numpy.testing.assert_allclose(total.numpy(), before.sum(axis=1))
        numpy.testing.assert_array_equal(more.numpy(), numpy.concatenate([before, before]))


def test_more_memory_than_there_is():
    with pytest.raises(MemoryError, match=r"bytes\nRemedy: delete arrays"):
        (np.zeros(1 << 43) + np.arange(1 << 43)).numpy()


# ---- devices and settings ---------------------------------------------------------------------


def test_a_missing_gpu(monkeypatch):
    monkeypatch.setattr(devices, "_interned", {"cpu": devices.resolve("cpu")})
    monkeypatch.setattr(devices, "_driver_problem", lambda: ("there is no NVIDIA driver", "get it"))
    x = data(3) + 1
    for action in (lambda: x.to("cuda"), lambda: np.ones(3, device="cuda")):
        with pytest.raises(DeviceNotFound, match=r"no NVIDIA driver\nRemedy: get it"):
            action()
    with pytest.raises(DeviceNotFound, match="no NVIDIA driver"), np.device("cuda"):
        pass
    numpy.testing.assert_array_equal(x.numpy(), data(3).numpy() + 1)


def test_an_unknown_setting_lists_those_there_are():
    with pytest.raises(UnknownSetting, match=r"no setting 'thread'\nRemedy: .*threads"):
        np.config.thread = 3
    with pytest.raises(UnknownSetting, match="no setting 'tread'"):
        np.config.tread  # noqa: B018
    with pytest.raises(ValueError, match="threads = -1: must be a whole number"):
        np.config.threads = -1
    environment = {**os.environ, "TILEDARRAY_DEVISE": "cpu",
                   "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run([sys.executable, "-c", "import tiledarray"], capture_output=True,
                          text=True, env=environment, check=False)
    assert "TILEDARRAY_DEVISE" in done.stderr and "TILEDARRAY_DEVICE" in done.stderr


@pytest.mark.compiler
def test_a_failure_after_a_write_in_place_keeps_what_was_made_of_the_old_value(monkeypatch):
    start = numpy.arange(4900.0).reshape(70, 70)
    forget_plans(monkeypatch)  # the core would call NumPy's product, patched or not
    with config.override(compile="wait", at_once=0):
        x = np.array(start)
        np.evaluate(x)
        before = x.sum(axis=0)
        table = before[:, None] * x[0]  # stored, for a library's product
        x[1:] += 1
        product = table @ x
        with monkeypatch.context() as patch:
            patch.setattr(numpy, "matmul", failing(MemoryError("no room")))
            with pytest.raises(MemoryError):
                np.evaluate(product, before, x)
        changed = start + (numpy.arange(70) > 0)[:, None]
        numpy.testing.assert_array_equal(x.numpy(), changed)
        numpy.testing.assert_array_equal(before.numpy(), start.sum(axis=0))
        expected = (start.sum(axis=0)[:, None] * start[0]) @ changed
        numpy.testing.assert_allclose(product.numpy(), expected)


def failing(error):
    def fail(*arguments, **named):
        raise error

    return fail
