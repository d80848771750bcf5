"""Settled handles, on the core that is in use; some checks in a process of each core."""

import copy
import gc
import inspect
import operator as o
import os
import pickle
import subprocess
import sys
import threading
import warnings
import weakref
from functools import partial

import numpy as np
import pytest

import tiledarray as ta
from tests.leaks import assert_nothing_is_left, refused
from tiledarray import config
from tiledarray.arrays import settled
from tiledarray.arrays.handle import Handle
from tiledarray.core import AtOnce, kind, set_beside_gpu
from tiledarray.devices.storage import address_of
from tiledarray.execution.spans import counters


@pytest.fixture(autouse=True)
def at_once():
    with config.override(at_once=8192, device="cpu", compile="never"):
        ta.zeros(1)
        yield


def both(program):
    """Run a program with us and with NumPy; what it returns is equal."""
    found, expected = program(ta), program(np)
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_array_equal(np.asarray(ours), np.asarray(theirs), strict=True)


# Aliasing ----------------------------------------------------------------------------------------


def test_views_of_views_see_every_kind_of_write():
    def program(lib):
        x = lib.arange(24.0).reshape(4, 6)
        rows = x[1:]
        column = rows[:, 2]
        turned = rows.T[::-1]
        x[2, 2] = 50  # at once
        column += 1
        with config.override(at_once=4):
            x[...] = x * 2  # recorded
            rows[0] = -1
        turned[0, 0] = 9  # back again
        column[-1] = 7
        return x, rows, column, turned, x[1:][:, 2]

    both(program)


def test_shape_is_assigned_while_views_are_out():
    def program(lib):
        x = lib.arange(12.0)
        tail, pair = x[6:], x[2:4][::-1]
        x.shape = 3, 4
        x[1] = 100
        tail.shape = 2, 3
        tail[0, 0] = -5
        inner = tail[1]
        tail.shape = 6
        inner += 1
        return x, tail, pair, inner

    both(program)


@pytest.mark.parametrize("size", [5, 20_000])
def test_what_is_pending_keeps_the_old_value(size):
    def program(lib):
        with config.override(at_once=size):
            x = lib.zeros(size)
            x[1] = 3.0
        with config.override(at_once=1):
            pending = x + 1
            view = x[1:4]
            also = view * 2
        with config.override(at_once=size):
            x[1] = 4.0
            view[1] = 5.0
            np.add.at(x, [0], 1.0)
            x.fill(8.0)
        return pending, also, x, view

    both(program)


@pytest.mark.parametrize("write", [
    lambda lib, x: lib.copyto(x, 9.0), lambda lib, x: lib.put(x, [1], 9.0),
    lambda lib, x: lib.place(x, np.arange(6) > 3, [9.0]),
    lambda lib, x: lib.putmask(x, np.arange(6) > 3, 9.0),
    lambda lib, x: lib.fill_diagonal(x.reshape(2, 3), 9.0), lambda lib, x: lib.add.at(x, [1], 9.0),
    lambda lib, x: x.sort(), lambda lib, x: x.put([2], 9.0), lambda lib, x: x.partition(2),
    lambda lib, x: lib.sum(lib.ones((6, 2)), 1, None, x), lambda lib, x: lib.add(x, x, x),
    lambda lib, x: x.clip(1, 3, x), lambda lib, x: lib.negative(x, x),
    lambda lib, x: x.cumsum(0, None, x),
    lambda lib, x: lib.add.reduce(lib.ones((6, 2)), 1, None, x),
])
def test_functions_that_write(write):
    def program(lib):
        x = lib.arange(6.0)[::-1].copy()
        view = x[1:4]
        with config.override(at_once=0):
            pending = x + view.sum()
        write(lib, x)
        return x, view, pending

    both(program)


def test_results_that_are_views_and_results_that_are_copies():
    views = [
        lambda lib, x: x.reshape(3, 2), lambda lib, x: lib.ravel(x), lambda lib, x: x.transpose(),
        lambda lib, x: lib.squeeze(x[None]), lambda lib, x: lib.atleast_2d(x),
        lambda lib, x: lib.expand_dims(x, 0), lambda lib, x: lib.swapaxes(x, 0, 1),
        lambda lib, x: lib.split(x, 2)[1], lambda lib, x: x.T, lambda lib, x: x.view(),
        lambda lib, x: lib.diagonal(x), lambda lib, x: lib.broadcast_to(x, (2, 2, 3)),
        lambda lib, x: x.flatten(), lambda lib, x: x[[0, 1]], lambda lib, x: x + 0,
        lambda lib, x: lib.copy(x), lambda lib, x: x.T.copy(), lambda lib, x: x[x > -1],
        lambda lib, x: x.T.ravel(), lambda lib, x: lib.tile(x, 2),
        lambda lib, x: lib.where(x, x, x),
    ]
    for take in views:
        def program(lib, take=take):
            x = lib.arange(6.0).reshape(2, 3)
            part = take(lib, x)
            x[0, 0] = 10
            writeable = part.flags.writeable
            if writeable:
                part[...] = part * 2
            else:
                with pytest.raises(ValueError, match="read-only"):
                    part[...] = 1
            return x, part, [writeable]

        both(program)


def test_arrays_without_axes_and_scalars():
    x = ta.array(5.0)
    other = x
    x += 1
    assert other is x and float(other) == 6
    total = ta.arange(3.0).sum()
    before = total
    total += 1
    assert float(before) == 3 and float(total) == 4
    assert hash(before) == hash(3.0) and {3.0: 1}[before] == 1
    with pytest.raises(TypeError):
        hash(ta.zeros(3))
    with pytest.raises((TypeError, IndexError)):
        before[0] = 1


def test_views_of_views_without_end():
    x = ta.zeros(20_000)
    start = weakref.ref(x[1:])
    for _ in range(10_000):
        x = x[1:]
    assert x.shape == (10_000,) and start() is None
    x[0] = 3.0
    x.base[...] = x.base + 1
    assert float(x[0]) == 4.0


def test_iterators_see_what_is_there_by_then():
    def program(lib):
        x = lib.arange(6.0)
        found = []
        for k, value in enumerate(x):
            found.append(float(value))
            if k == 0:
                x[1] = 10
            elif k == 1:
                with config.override(at_once=0):
                    x *= 2
            elif k == 3:
                float(x.sum())
                x[4] = -1
        rows = [row for row in lib.arange(6).reshape(3, 2)]
        rows[0][0] = 5
        return found, rows[0], [isinstance(value, np.float64) for value in lib.ones(2)]

    both(program)
    with pytest.raises(TypeError, match="0-d"):
        iter(ta.array(1.0))


# Warnings and errors -----------------------------------------------------------------------------


def test_warnings_and_errstate():
    x = ta.zeros(3)
    with pytest.warns(RuntimeWarning, match="invalid value") as caught:
        x / x
    assert kind == "python" or caught[0].filename == __file__
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("error")
        1 / x
    with np.errstate(all="raise"), pytest.raises(FloatingPointError):
        1 / x


@pytest.mark.parametrize("wrong", [
    lambda x: x[9], lambda x: x + np.zeros(4), lambda x: x.reshape(7), lambda x: int(x),
    lambda x: np.add(x, np.zeros(4)), lambda x: ta.concatenate([x, ta.zeros((2, 2))]),
    lambda x: x.__setitem__(9, 1), lambda x: bool(x),
    lambda x: x.__delitem__(0), lambda x: x.sum(axis=3), lambda x: x.__iadd__(np.zeros((2, 3))),
])
def test_errors_are_numpys_and_unchained(wrong):
    with pytest.raises(Exception) as theirs:
        wrong(np.zeros(3))
    with pytest.raises(theirs.type) as ours:
        wrong(ta.zeros(3))
    chained = ours.value.__cause__ or ours.value.__context__
    assert (chained is None) == (
        (theirs.value.__cause__ or theirs.value.__context__) is None), chained
    assert any(entry.path.name == "test_core.py" for entry in ours.traceback)


# Functions ---------------------------------------------------------------------------------------


def test_functions_are_like_numpys():
    assert inspect.signature(ta.sum) == inspect.signature(np.sum)
    assert ta.sum.__doc__ == np.sum.__doc__ and ta.sum.__name__ == "sum"
    assert isinstance(ta.add, ta.ufunc) and ta.add.__name__ == "add"
    assert ta.sum == ta.sum.fallback and hash(ta.sum) == hash(ta.sum.fallback)
    assert ta.sum != ta.mean and repr(ta.add) == "<ufunc 'add'>"
    x = ta.arange(3.0)
    assert float(x.sum()) == 3 == float(ta.TiledArray.sum(x)) and x.sum.__self__ is x
    assert ta.TiledArray.sum.__name__ == "sum"


def test_functions_are_pickled_and_copied():
    checked = 0
    for name, function in vars(ta).items():
        if type(function) is AtOnce:
            assert pickle.loads(pickle.dumps(function)) is function, name
            assert copy.deepcopy(function) is function is copy.copy(function)
            checked += 1
    assert checked > 100
    # What is NumPy's own, wrapped when it is first asked for, is found by name too.
    for function in (ta.TiledArray.sum, ta.add.reduce, ta.linalg.solve, ta.poly):
        assert pickle.loads(pickle.dumps(function)) is function


def test_arrays_are_pickled_and_copied():
    x = ta.arange(6.0).reshape(2, 3)
    view = x[:, 1]
    for make in (copy.copy, copy.deepcopy, lambda a: pickle.loads(pickle.dumps(a))):
        twin, part = make(x), make(view)
        twin[0, 1] = 9
        part[0] = 8
        assert x.tolist() == [[0, 1, 2], [3, 4, 5]] and part.tolist() == [8, 4]


@pytest.mark.compiler
def test_under_jit_nothing_is_at_once():
    x, seen = ta.arange(4.0), []

    @ta.jit
    def double(a):
        seen.append(a._array)
        return a * 2 + x[1]

    with config.override(compile="wait"):
        assert double(x).tolist() == [1, 3, 5, 7] == double(x).tolist()
    assert seen == [None]
    assert x._array is not None


# Life and death ----------------------------------------------------------------------------------


class Slotless(ta.TiledArray):
    pass


class Slotted(ta.TiledArray):
    __slots__ = ("mark",)


@pytest.mark.parametrize("subclass", [Slotless, Slotted])
def test_a_users_subclass(subclass):
    x = subclass.__new__(subclass)
    x._node = ta.arange(4.0)._node
    x.mark = 5
    view = x[1:]
    view[0] = 7
    x += 1
    assert type(x) is subclass and x.mark == 5 and x.tolist() == [1, 8, 3, 4]
    assert (x + x).tolist() == [2, 16, 6, 8] and isinstance(view, ta.TiledArray)
    gone = weakref.ref(x)
    del x, view
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("subclass", [ta.TiledArray, Slotless, Slotted])
@pytest.mark.parametrize("arguments", [(3,), ([1, 2],), (np.ones(2),)])
def test_arrays_are_not_made_by_calling_the_class(subclass, arguments):
    words = "is not called" if kind == "c" else "takes no arguments"
    with pytest.raises(TypeError, match=rf"{subclass.__name__}(\(\))? {words}"):
        subclass(*arguments)


@pytest.mark.skipif(kind != "c", reason="the twin makes its handles so")
def test_the_class_is_not_called_without_arguments_either():
    with pytest.raises(TypeError, match="TiledArray is not called: arrays are made by"):
        ta.TiledArray()


OPERATIONS = {
    "operators": lambda x, y: (x + y, x * 2.0, -x, x < y, x @ y),
    "in place": lambda x, y: (x.__iadd__(y), x.__setitem__(slice(1, 3), 1.0), x.fill(0)),
    "views": lambda x, y: (x[1:][2:].T, x[3], x[None], x[1:].reshape(1, -1), x[x > 5], iter(x)),
    "functions": lambda x, y: (ta.exp(y), ta.where(x > 0, x, y), x.sum(), ta.concatenate([x, y])),
    "snapshots": lambda x, y: (x._node, x.__setitem__(0, 1.0), x[1:]._steps, x.shape, len(x)),
    "errors": lambda x, y: (refused(lambda: x[99]), refused(lambda: x + y[1:]),
                            refused(lambda: ta.exp(x, 1, 2, 3))),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_nothing_is_left_behind(name):
    x, y = ta.ones(10), ta.ones(10)
    assert_nothing_is_left(lambda: OPERATIONS[name](x, y))


def test_threads_with_arrays_of_their_own_and_one_that_is_shared():
    shared, problems = ta.arange(50.0), []

    def work(seed):
        own, plain = ta.zeros(50), np.zeros(50)
        for k in range(400):
            place = (k * 7 + seed) % 50
            own[place] = shared[place] + k
            own[1:9] += shared[2:10]
            plain[place] = place + k
            plain[1:9] += np.arange(2.0, 10.0)
        if own.tolist() != plain.tolist():
            problems.append(seed)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems


@pytest.mark.parametrize("how", ["made", "constant"])
def test_a_value_that_is_replaced_while_it_is_looked_up(how, monkeypatch):
    """What another thread writes meanwhile is not lost."""
    with config.override(at_once=0):
        x = ta.ones(3)
    assert isinstance(x, Handle)
    if how == "constant":
        monkeypatch.setattr(settled, "MOST_FILLED", 0)
    newer, found = ta.full(3, 7.0)._node, getattr(settled.at_once, how)

    def replacing(node):
        monkeypatch.setattr(settled.at_once, how, found)
        x._node = newer
        return found(node)

    monkeypatch.setattr(settled.at_once, how, replacing)
    assert x.shape == (3,)
    assert x.tolist() == [7, 7, 7]


def test_functions_of_the_namespace_are_jitted():
    x = ta.arange(3.0)
    for function, rest in [(ta.sin, ()), (ta.add, (x,)), (ta.matmul, (x,)), (ta.isnan, ()),
                           (ta.sum, ()), (ta.where, (x, 1.0)), (ta.clip, (0, 1))]:
        with config.override(compile="background"):  # else nothing is traced
            found = ta.jit(function)(x, *rest)
        assert np.allclose(found, function(x, *rest))


# Both cores --------------------------------------------------------------------------------------


@pytest.mark.parametrize("core", ["c", "python"])
def test_the_other_core_too(core):
    if core == "c" and kind != "c":
        pytest.skip("the extension may not be built")
    chosen = ["see_every", "functions_that_write", "results_that_are",
              "are_like_numpys", "pickled", "iterators", "looked_up", "are_jitted"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__, "-k",
         " or ".join(name for name in chosen)],
        env={**os.environ, "TILEDARRAY_CORE": core}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:]


def test_resizing_to_as_many_elements_leaves_views_where_they_are():
    for lib in (np, ta):
        a = lib.zeros((3, 4))
        a[:] = np.arange(12.0).reshape(3, 4)
        row = a[1]
        a.resize((4, 3))
        row[0] = 99
        assert row.tolist() == [99, 5, 6, 7]
        assert a.shape == (4, 3) and a.ravel()[4] == 99


def test_an_array_with_views_is_not_resized_otherwise():
    for lib in (np, ta):
        a = lib.arange(6)
        end = a[4:]
        with pytest.raises(ValueError, match="references or is referenced"):
            a.resize(3)
        assert end.tolist() == [4, 5]


@pytest.mark.parametrize("at_once", [0, 1 << 16])
@pytest.mark.parametrize("view", [
    lambda a: a[1:], lambda a: a.reshape(2, 3), lambda a: a[1:][::2], lambda a: a[::-1].T,
])
def test_nor_is_a_recorded_one(view, at_once):
    with ta.config.override(at_once=at_once):
        for lib in (np, ta):
            a = lib.arange(6.0) * 2.0
            part = view(a)
            with pytest.raises(ValueError, match="references or is referenced"):
                a.resize(3)
            assert part.sum() == view(np.arange(6.0) * 2.0).sum()
            del part
            b = lib.arange(6.0) + 0.0
            view(b)
            b.resize(3)
            assert b.tolist() == [0, 1, 2]


def test_a_part_of_what_is_read_only_is_not_written_by_itself():
    for lib in (np, ta):
        a = lib.arange(6)
        a.flags.writeable = False
        with pytest.raises(ValueError, match="read-only"):
            a[0:2] = a[0:2]


def test_times_stay_numpys():
    times = ta.array(np.array([1, 2], "m8[s]"))
    assert isinstance(times, np.ndarray)


@pytest.mark.parametrize("compute", [
    lambda lib, x, y, out: lib.add(x, y, out=out), lambda lib, x, y, out: x.clip(1, 3, out=out),
    lambda lib, x, y, out: lib.multiply(x, 2, out=out), lambda lib, x, y, out: out.cumsum(out=out),
    lambda lib, x, y, out: lib.add(out[:-1], out[1:], out=out[1:]),
])
def test_outputs_given_by_name(compute):
    found = []
    for lib in (np, ta):
        x, y = lib.arange(5.0), lib.ones(5)
        out = lib.arange(5.0) * 3
        alias, pending = out[1:], lib.sqrt(out)
        result = compute(lib, x, y, out)
        assert result is out or result.shape == (4,)
        found.append([np.asarray(v).tolist() for v in (x, y, out, alias, pending)])
    assert found[0] == found[1]


def test_elements_of_what_is_pending_are_read_and_written_where_it_lies():
    for make in (lambda lib: lib.zeros(20_000), lambda lib: lib.arange(20_000.0),
                 lambda lib: lib.full(20_000, 2.5)):
        found = []
        for lib in (np, ta):
            x = make(lib)
            part = x[5:9]
            for k in range(10):
                x[k] += 1
            x[[1, 2]] += 3
            found.append([np.asarray(v).tolist() for v in (x[:20], part)])
        assert found[0] == found[1]
        assert x._array is not None


def test_one_result_given_twice_is_one_array():
    for lib in (np, ta):
        rows, columns = lib.diag_indices(3)
        assert rows is columns
        rows[0] = 2
        assert columns.tolist() == [2, 1, 2]


def test_what_numpy_has_written_is_not_written_again():
    """A function that returns a part of what it wrote has done it, whatever becomes of that."""

    def doubled(x, out=None):
        np.multiply(x, 2, out=out)
        return out[1:]

    function = AtOnce(doubled, lambda x, out=None: pytest.fail("it is done already"))
    x = ta.arange(3.0)
    found = function(x, out=x)
    assert x.tolist() == [0, 2, 4] and found.tolist() == [2, 4]


def test_questions_about_dtypes_compute_nothing():
    x = ta.ones(20_000) * 2
    assert ta.result_type(x, np.float32) == np.float64
    assert ta.common_type(x, ta.ones(2, dtype=np.complex64)) is np.complex128
    assert (ta.shape(x), ta.ndim(x), ta.size(x), ta.isscalar(x)) == ((20_000,), 1, 20_000, False)
    assert x._recorded.buffer is None


def test_recording_does_not_ask_what_is_pending_and_large_for_its_value():
    x, y = ta.ones(20_000), ta.ones(20_000)
    ta.evaluate(x, y)
    assert x.shape == y.shape  # known to be settled from here on
    z = x + y
    called = []
    sys.setprofile(lambda frame, event, _: called.append(frame.f_code))
    try:
        z = z * 2 + y
        z -= 1
    finally:
        sys.setprofile(None)
    assert settled.value.__code__ not in called
    assert z[:2].tolist() == [4, 4]


def test_a_few_elements_of_a_large_array_are_had_by_their_places():
    values = np.arange(40_000.0).reshape(200, 200)
    places = np.array([3, 5, 199])
    keys = [(places, places), places, (places, 4), (..., places), (slice(2), places),
            (None, places, 3), ([1, 2], [3, 4]), (places[:, None], places), places[:1]]
    with config.override(at_once=1000):
        for key in keys:
            x, expected = ta.asarray(values.copy()), values.copy()
            assert x._array is not None
            ours = tuple(ta.asarray(k) if isinstance(k, np.ndarray) else k for k in (
                key if isinstance(key, tuple) else (key,)))
            found = x[ours]
            np.testing.assert_array_equal(found.numpy(), expected[key], strict=True)
            assert (found._recorded is None) == (expected[key].size <= 1000), key
            x[ours] = 7
            expected[key] = 7
            np.testing.assert_array_equal(x.numpy(), expected)
            with pytest.raises(IndexError):
                x[ta.array([200, 0]), ta.array([0, 0])]


def test_an_element_of_what_is_pending_has_it_computed():
    for make in (lambda lib: lib.linspace(0, 1, 20_000) * 3.0,
                 lambda lib: lib.linspace(0, 1, 20_000).reshape(100, 200) + 1):
        found = []
        for lib in (np, ta):
            x = make(lib)
            place = (1,) * x.ndim
            total = 0.0
            x[place] = 5
            for _ in range(10):
                total += x[place]
                x[place] = total
            found.append((np.asarray(x).tolist(), float(total)))
        assert found[0] == found[1]
        assert x._array is not None


@pytest.mark.parametrize("places", [
    lambda i: np.ix_(i, i), lambda i: (i[:, None], i), lambda i: (i, i[:, None])],
    ids=["ix_", "column", "row"])
def test_what_index_arrays_name_together_decides_whether_it_is_at_once(places):
    x = np.arange(300.0 * 300).reshape(300, 300)
    large = ta.asarray(x) * 1
    ta.evaluate(large)
    few, many = np.arange(9), np.arange(200)  # at once are 4 times 8,192 elements
    assert large[places(few)]._array is not None
    assert large[places(many)]._array is None
    np.testing.assert_array_equal(large[places(many)].numpy(), x[places(many)])


def test_a_nested_list_names_more_than_its_length():
    large = ta.asarray(np.arange(300.0 * 300).reshape(300, 300)) * 1
    ta.evaluate(large)
    assert large[[0, 1] * 10]._array is not None
    assert large[[[0, 1]] * 60]._array is None


def test_each_operand_of_a_function_decides_alone_whether_it_is_small():
    x, y = ta.ones(8000), ta.ones(8000) * 2
    for made in (np.maximum(x, y), np.where(x > y, x, y), np.clip(x, y, 3.0), ta.isclose(x, y)):
        assert made._recorded is None


@pytest.mark.skipif(kind != "c", reason="the twin leaves memory to NumPy")
def test_memory_of_what_died_is_used_again_and_nothing_is_in_use_twice():
    from tiledarray.core import _core

    if not _core.MOST_KEPT:
        pytest.skip("under AddressSanitizer nothing is kept")
    with config.override(at_once=65_536):
        _core.forget_memory()
        x = ta.arange(40_000.0)
        place = address_of((x * 2)._array)
        assert _core.kept_memory() >= 320_000
        y = x + 1  # in the memory of x * 2
        assert address_of(y._array) == place and place % 64 == 0
        rng, arrays, expected = np.random.default_rng(1), [], []
        for step in range(400):
            size = int(rng.integers(4000, 60_000))
            values = rng.random(size)
            arrays.append(ta.asarray(values) * 2 + step)
            expected.append(values * 2 + step)
            if len(arrays) > 5:
                k = int(rng.integers(len(arrays)))
                np.testing.assert_array_equal(arrays.pop(k).numpy(), expected.pop(k))
        for found, wanted in zip(arrays, expected, strict=True):
            np.testing.assert_array_equal(found.numpy(), wanted)
        del arrays, found, y
        assert 0 < _core.kept_memory() <= 1 << 25
        _core.forget_memory()
        assert _core.kept_memory() == 0
        z = ta.zeros(40_000) * 1
        z.resize((50_000,), refcheck=False)
        assert z.tolist() == [0.0] * 50_000


@pytest.mark.skipif(kind != "c", reason="the twin leaves memory to NumPy")
def test_arrays_of_numpys_own_and_other_threads_are_left_alone():
    with config.override(at_once=65_536):
        x = ta.ones(40_000) + 1
        assert np._core.multiarray.get_handler_name(x._array) == "tiledarray"
        assert np._core.multiarray.get_handler_name(np.ones(40_000) + 1) == "default_allocator"
        with pytest.raises(ValueError, match="broadcast"):
            x + ta.ones(39_999)
        assert np._core.multiarray.get_handler_name() == "default_allocator"
        found = []

        def work():
            for _ in range(300):
                values = ta.ones(30_000) * 3
                found.append(float((values + 1).sum()) == 120_000)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == [True] * 1200


@pytest.mark.parametrize("name", ["svd", "eigh", "eig", "qr", "slogdet"])
def test_results_with_names_are_had_at_once(name):
    values = np.random.default_rng(4).random((6, 6))
    values += values.T
    x = ta.asarray(values) + 0
    found, expected = getattr(np.linalg, name)(x), getattr(np.linalg, name)(values)
    assert x._recorded is None  # else it would have been computed once more
    assert type(found) is type(expected)
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_array_equal(np.asarray(ours), theirs)


def test_arrays_in_a_list_are_joined_at_once_if_all_are_no_large_array():
    parts = [ta.ones(8000) * k for k in range(4)]
    assert ta.maximum.reduce(parts)._recorded is None and parts[0]._recorded is None
    assert ta.concatenate(parts)._recorded is None


def _positional(lib):
    z, c = lib.arange(6.0), lib.full(6, 2.0)
    results = [lib.multiply(z, z, z), lib.add(z, c, z), lib.sqrt(z, z)]
    m = lib.arange(6) % 2 == 0
    results.append(lib.logical_not(m, m))
    assert results[0] is results[1] is results[2] is z
    return z, m


def _lists(lib):
    p = lib.arange(8.0).reshape(4, 2)
    p %= (3, 2)
    p += [1, 2.5]
    return (p, p - [1, 2], [1, 2] * p, p < [[1, 3]], lib.maximum(p, (1, 2)), (1, 2) - p,
            lib.arange(2) * [True, False], p == [1, 2])


def _places(lib):
    x = lib.arange(20.0).reshape(4, 5)
    x[range(3), [0, 1, 2]] = -1.0
    x[range(2)] += 1
    x[(1, 2), (3, 4)] *= 2
    return x, x[range(3), [1, 2, 4]], x[(0, 1), (2, 3)], x[range(0)], x[range(3, 0, -1), 0]


def _added(lib):
    x, k = lib.zeros((3, 4, 4)), lib.array([0, 1, 1])
    lib.add.at(x, (slice(None), k, [1, 2, 2]), lib.ones((3, 3)))
    lib.add.at(x, (0, slice(1, 3)), 2.0)
    return (x,)


def _grids(lib):
    x = lib.arange(3.0)
    joined = lib.r_[x]
    joined[0] = 9.0  # of its own
    return (lib.mgrid[0:4, 1:3], lib.mgrid[0:2:0.5], *lib.ogrid[0:3, 5:1:-2], x, joined,
            lib.r_[True, x], lib.r_[0:3, x], lib.c_[x, x])


@pytest.mark.parametrize("program", [_positional, _lists, _places, _added, _grids])
def test_other_forms_of_calls_are_at_once_too(program):
    for ours in program(ta):
        assert ours._array is not None and ours._recorded is None
    both(program)


def test_outputs_by_position_are_refused_as_numpys():
    for lib in (ta, np):
        x = lib.arange(4.0)
        x.flags.writeable = False
        with pytest.raises(ValueError, match="read-only"):
            lib.multiply(x, x, x)
        with pytest.raises(TypeError, match="out"):
            lib.multiply(x, x, lib.ones(4), out=lib.ones(4))
        with pytest.raises(TypeError, match="Cannot cast ufunc 'multiply' output"):
            lib.multiply(x, x, lib.ones(4, int))
        with pytest.raises(ValueError):
            lib.multiply(x, x, lib.ones(3))


@pytest.mark.parametrize("at_once", [0, 8192])
def test_the_first_of_several_outputs_may_be_given_alone(at_once):
    with config.override(at_once=at_once):
        values = np.array([1.25, -2.5, 3.0])
        x, first = ta.array(values), ta.empty(3)
        fraction, whole = np.modf(x, first)
        assert fraction is first
        for ours, theirs in zip((fraction, whole), np.modf(values), strict=True):
            np.testing.assert_array_equal(np.asarray(ours), theirs)


NUMBERS = [
    0.0, -0.0, 1.5, -3.25, 1e308, -1e308, 5e-324, 1e-200, np.inf, -np.inf, np.nan, 2.0**53 + 2,
    0, 1, -7, 2**31, -(2**31) - 1, 2**53 + 1, 2**62, 2**63 - 1, -(2**63), 2**63, 10**30, True,
]  # fmt: skip


def outcome(action, errors):
    """What comes of an action: bits and warnings, or an error."""
    with warnings.catch_warnings(record=True) as caught, np.errstate(all=errors):
        warnings.simplefilter("always")
        try:
            result = action()
        except (ArithmeticError, TypeError, ValueError) as error:
            return type(error), str(error)
    value = np.asarray(result)
    return str(value.dtype), value.tobytes(), [str(each.message) for each in caught]


@pytest.mark.parametrize("errors", ["warn", "raise"])
def test_scalars_compute_as_numpys_do(errors):
    """Each pair of an array's element with another's or with one of Python's numbers."""
    operations = [
        o.add, o.sub, o.mul, o.truediv, o.iadd, o.isub, o.imul, o.itruediv, o.lt, o.le, o.eq, o.ne,
        o.gt, o.ge]
    reals = np.array([float(x) for x in NUMBERS if x not in (2**63, 10**30)])
    wholes = np.array([x for x in NUMBERS if type(x) is int and -(2**63) <= x < 2**63])
    ours = [x for part in (reals, wholes) for x in ta.asarray(part)]
    theirs = [x for part in (reals, wholes) for x in part]
    for x, expected in zip(ours, theirs, strict=True):
        for y, plain in zip([*NUMBERS, *ours], [*NUMBERS, *theirs], strict=True):
            for operation in operations:
                assert outcome(partial(operation, x, y), errors) == outcome(
                    partial(operation, expected, plain), errors), (operation, expected, plain)
                assert outcome(partial(operation, y, x), errors) == outcome(
                    partial(operation, plain, expected), errors), (operation, plain, expected)


@pytest.mark.parametrize("errors", ["warn", "raise"])
@pytest.mark.parametrize("dtype", ["f8", "i8", "f4", "i4", "u8", "?", "c16"])
def test_numbers_beside_arrays_count_as_numpys_do(dtype, errors):
    """An array with one number by every operator and many a ufunc, on either side, and in place."""
    values = np.array([0, 1, 3, -7, 100]).astype(dtype)
    if dtype == "f8":
        values = np.array([0.0, -0.0, 1.5, -3.25, 1e308, 5e-324, np.inf, np.nan])
    numbers = [0, 1, -2, 3, 2**31, 2**53 + 1, 2**62, 2**63, 10**30, 2.5, -0.0, 1e-200, np.inf,
               0.1, 16_777_217, 1e39, -3.4028235e38, 3.4028236e38, 1e-40, -1.17549435e-38,
               np.nan, True, 1j, np.float64(0.5), np.int64(3), np.int64(2**60 + 1), np.float32(0.1),
               np.int8(5), np.bool_(True), np.array(2.5), np.array(7)]
    operators = [o.add, o.sub, o.mul, o.truediv, o.floordiv, o.mod, o.pow, o.lt, o.le, o.eq, o.ne,
                 o.gt, o.ge, o.and_, o.lshift, o.iadd, o.isub, o.imul, o.itruediv, o.ifloordiv,
                 o.imod]
    ufuncs = ["add", "maximum", "fmin", "power", "arctan2", "ldexp", "copysign", "remainder",
              "float_power", "logical_and", "less", "hypot", "bitwise_or"]
    for number in numbers:
        for function in operators:
            ours, theirs = (outcome(partial(function, make(values), number), errors)
                            for make in (ta.array, np.array))
            assert ours == theirs, (function, number)
            if not function.__name__.startswith("i"):
                ours, theirs = (outcome(partial(function, number, make(values)), errors)
                                for make in (ta.array, np.array))
                assert ours == theirs, (number, function)
        for name in ufuncs:
            theirs = [outcome(partial(getattr(np, name), x, y), errors)
                      for x, y in ((values, number), (number, values))]
            for lib in (ta, np):  # NumPy's ufuncs take arrays of ours as well
                array = ta.array(values)
                ours = [outcome(partial(getattr(lib, name), x, y), errors)
                        for x, y in ((array, number), (number, array))]
                assert ours == theirs, (name, number)


def test_threads_have_numbers_of_their_own():
    """NumPy lets others run in the middle of an operation on many elements."""
    problems = []

    def work(x, number):
        for _ in range(20):  # this loop reads the number at every element
            if not (np.asarray(x % number) == 100.0 % number).all():
                problems.append(number)

    with config.override(at_once=1 << 20):
        x = ta.array(np.full(100_000, 100.0))
        threads = [threading.Thread(target=work, args=(x, k + 6.5)) for k in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not problems


REDUCTIONS = ["sum", "prod", "min", "max", "any", "all", "amin", "amax"]


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions_along_any_axis_are_numpys(name):
    arrays = [np.arange(12.0).reshape(3, 4) - 3, np.array([[0.1, np.nan]]), np.array([True, False]),
              np.arange(6, dtype="i1").reshape(1, 2, 3), np.zeros((0, 3)), np.zeros(0, "f4"),
              np.array([[1 + 2j, 0]]), np.array([250, 9], "u1")]
    calls = [{}, {"axis": None}, {"axis": 0}, {"axis": -1}, {"axis": (0,)}, {"axis": 7},
             {"axis": "a"}, {"axis": 0, "keepdims": True}, {"axis": np.int64(0)}]
    for array in arrays:
        for options in calls:
            ways = [lambda lib, x, options=options: getattr(lib, name)(x, **options)]
            if not name.startswith("a") or name in ("any", "all"):
                ways.append(lambda lib, x, options=options: getattr(x, name)(**options))
                ways.append(lambda lib, x, given=options: getattr(x, name)(given.get("axis")))
            for way in ways:
                ours, theirs = (outcome(partial(way, lib, lib.array(array)), "warn")
                                for lib in (ta, np))
                assert ours == theirs, (array, options)


@pytest.mark.compiler
def test_masks_of_other_counts_do_not_make_other_plans():
    values = np.random.default_rng(4).random(1000)
    expected, steps = values.copy(), 30
    with ta.config.override(at_once=500, first_seconds=0.0, compile="wait"):
        x = ta.array(values)
        part = x[1:]
        for step in range(steps):
            if step == 5:
                before = counters["plans made"] + counters["plans read"]
            for y, rows in ((x, part), (expected, expected[1:])):
                y *= 1.1
                y[y > 1] -= 1.0
                rows[rows < 0.1] = 0.9 - rows[rows < 0.1]
            assert x.tolist() == expected.tolist()
        assert counters["plans made"] + counters["plans read"] - before <= 3
        mask = x > 0.5
        with pytest.raises(ValueError, match="cannot assign 2 input values"):
            x[mask] = [1.0, 2.0]
        frozen = x + 0.0
        frozen.flags.writeable = False
        with pytest.raises(ValueError, match="read-only"):
            frozen[mask] = frozen[mask] * 2.0
        with pytest.raises(IndexError, match="boolean index did not match"):
            x[mask[1:]]
        kept = x * 1.0
        x[mask] = x[mask] + 2.0
        assert kept.tolist() == expected.tolist()
        expected[expected > 0.5] += 2.0
        assert x.tolist() == expected.tolist()


def test_large_values_are_written_at_once_by_masks_and_index_arrays():
    x = ta.ones(20_000) * 1
    ta.evaluate(x)
    mask = x > 0
    ta.evaluate(mask)
    x[mask] = x[mask] * 0.5
    assert x._array is not None and x._array[0] == 0.5
    order = np.arange(20_000)[::-1]
    y = x * ta.arange(20_000)
    ta.evaluate(y)
    x[order] = y
    assert x._array is not None and x._array[:3].tolist() == [9999.5, 9999.0, 9998.5]


def test_an_array_of_ours_is_found_at_the_end_of_a_long_list():
    numbers = [0.5] * 100_000
    assert ta.array(numbers).sum() == 50_000
    numbers.append(ta.arange(3.0)[2])
    assert ta.array(numbers).sum() == 50_002


# Elements ----------------------------------------------------------------------------------------

LAYOUTS = {
    "dense": lambda x: x, "turned": lambda x: x.T, "backwards": lambda x: x[::-1, ::-2],
    "part": lambda x: x[1:, 2:], "row": lambda x: x[2], "element": lambda x: x[1, 2:3].reshape(()),
    "empty": lambda x: x[:0],
}
ALIKE = (np.float64, np.int64, np.bool_, np.float32, np.complex128, np.uint8, np.int32)
PLACES = (0, 2, -1, -3, 7, -9, 2**70, True, np.int64(1), np.uint8(1), (0, 1), (-1, -2), (2, 5),
          (1, True), (), (0,), (0, 1, 2), (2**70, 0), (np.int64(1), 2), (1, np.intp(-1)), (0, 1.5))
VALUES = (3, -2, 0.5, -0.0, np.nan, 2**62, 2**63, 2**70, -2**63, True, 1j, np.float64(2.5),
          np.int64(-7), np.float32(0.1), np.bool_(True), np.int8(-1), np.uint64(2**63), "x", None,
          [4], np.array(1.5), np.array([2.5]))


def told_of(step, *arguments):
    """What a step returns or raises, to be compared."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = step(*arguments)
    except Exception as error:
        return type(error), str(error)
    if found is None:
        return None
    return np.asarray(found).dtype, np.asarray(found).shape, np.asarray(found).tobytes()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ALIKE)
def test_elements_are_read_and_written_as_numpys(layout, dtype):
    def each(lib):
        whole = lib.asarray(np.arange(20).reshape(4, 5).astype(dtype))
        part = LAYOUTS[layout](whole)
        for place in PLACES:
            yield told_of(o.getitem, part, place)
            for value in VALUES:
                yield told_of(o.setitem, part, place, value)
                yield told_of(np.asarray, whole)

    for ours, theirs in zip(each(ta), each(np), strict=True):
        assert ours == theirs


def test_elements_that_are_read_only_or_shared():
    def program(lib):
        x, told = lib.arange(6.0), []
        frozen = lib.broadcast_to(x, (2, 6))
        told.append(told_of(o.setitem, frozen, (0, 1), 5.0))
        kept = x * 1  # at once, of x as it was
        with config.override(at_once=0):
            later = x * 2  # recorded, of x as it was
        x[1] = 50.0
        x[-1] += 1
        told += [told_of(np.asarray, y) for y in (x, kept, later, frozen)]
        x.flags.writeable = False
        return [*told, told_of(o.setitem, x, 0, 1.0)]

    assert program(ta) == program(np)


@pytest.mark.parametrize("name, arguments, options", [
    ("dot", 1, {}), ("dot", 2, {"foo": 1}), ("dot", 4, {}), ("where", 0, {}), ("where", 2, {}),
    ("concatenate", 0, {}), ("concatenate", 1, {"axs": 0}), ("sum", 1, {"foo": 1}),
    ("inner", 1, {}), ("copyto", 1, {}), ("sum", 0, {}), ("bincount", 1, {}), ("roll", 1, {}),
    ("zeros_like", 1, {"shpe": 3}), ("cumsum", 1, {"axis": 5}), ("add", 0, {}), ("add", 1, {}),
    ("add", 4, {}), ("sin", 0, {}), ("matmul", 0, {}), ("max", 0, {}), ("sort", 0, {}),
    ("stack", -1, {}), ("vstack", -1, {}), ("add", 7, {}), ("sin", 3, {}), ("sin", 7, {}),
])
def test_wrong_calls_have_the_dispatchers_words(name, arguments, options):
    def told(lib):
        arrays = [3] if arguments < 0 else [lib.arange(3.0) for _ in range(arguments)]
        return told_of(partial(getattr(lib, name), **options), *arrays)

    assert told(ta) == told(np)


@pytest.mark.parametrize("setting", [1 << 19, 1 << 14])
def test_beside_a_gpu_less_is_at_once(setting):
    """Whatever the setting, what a GPU would do is left to it; what it does not allow stays so."""
    with config.override(device="cpu", at_once=setting, at_once_least=setting):
        try:
            for beside, most in ((True, min(setting, 1 << 16)), (False, setting)):
                for size in (most, most + 1):
                    x = ta.array(np.ones(size))
                    set_beside_gpu(beside)  # making arrays asks which device it is
                    assert ((x + 1)._array is not None) is (size <= most)
        finally:
            set_beside_gpu(False)
