"""`TiledArray` against ndarray: attributes, methods, reductions, protocols, conversions."""

import copy
import math
import operator
import pickle
import statistics
import sys
import warnings

import numpy as np
import pytest

import tiledarray
import tiledarray as ta
from tiledarray.arrays.tiledarray import TiledArray, _in_front, from_host
from tiledarray.core import kind

X = np.arange(24.0).reshape(2, 3, 4) - 7
DTYPES = ["?", "i1", "u2", "i8", "f2", "f4", "f8", "c8", "c16"]


def same(found, expected, **tolerance):
    expected = np.asarray(expected)
    assert isinstance(found, TiledArray)
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    if tolerance:
        np.testing.assert_allclose(found.numpy(), expected, **tolerance)
    else:
        np.testing.assert_array_equal(found.numpy(), expected)


def check(function, *arrays, **tolerance):
    """Compare what a function of arrays does: value, or exception and its text."""
    try:
        with np.errstate(all="ignore"):
            expected = function(*(x.copy() for x in arrays))
    except Exception as error:
        with pytest.raises(type(error)) as found:
            function(*(from_host(x) for x in arrays))
        assert str(found.value) == str(error)
        return
    result = function(*(from_host(x) for x in arrays))
    if isinstance(expected, (np.ndarray, np.generic)):
        same(result, expected, **tolerance)
    else:
        assert result == expected


# Attributes and conversions ---------------------------------------------------------------------


@pytest.mark.parametrize("name", [
    "shape", "dtype", "ndim", "size", "nbytes", "itemsize", "real", "imag", "T", "mT",
])
@pytest.mark.parametrize("dtype", ["f4", "c16", "?"])
def test_attributes(name, dtype):
    x = X.astype(dtype)
    for view in (lambda a: a, lambda a: a.T, lambda a: a[:, ::-2], lambda a: a[0, 0, 0:1]):
        check(lambda a, view=view: getattr(view(a), name), x)
        assert view(from_host(x)).strides == view(x).strides


@pytest.mark.parametrize("function", [
    bool, float, int, complex, operator.index, len, list, hash, repr, str, format,
    lambda a: format(a, ".2f"), lambda a: a.item(), lambda a: a.item(0), lambda a: a.tolist(),
    lambda a: a.tobytes(), lambda a: f"{a}", lambda a: round(a.real.sum(), 1).item(),
    lambda a: [10, 20, 30][a], lambda a: "x" * (a + 0.5), lambda a: range(a),
    lambda a: a == None, lambda a: a != "x", lambda a: a < None, lambda a: a in (1, 2),  # noqa: E711
], ids=range(25))
@pytest.mark.parametrize("value", [
    np.zeros(0), np.zeros(1), np.ones((1, 1), int), np.ones(3), np.array(1), np.array(2.5),
    np.array(True), np.array(1 + 2j),
], ids=repr)
def test_conversions(function, value):
    if function is hash and value.ndim == 0:
        assert hash(from_host(value)) == hash(value[()])
        return
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", DeprecationWarning)
            expected = function(value.copy())
    except Exception as error:
        with pytest.raises(type(error)) as found:
            function(from_host(value))
        text = str(error).replace("numpy.ndarray", "TiledArray")
        if "__index__" not in text and "multiply sequence" not in text:
            assert str(found.value) == text or "not supported" in text
        return
    found = function(from_host(value))
    if isinstance(expected, (np.ndarray, np.generic)):
        assert np.asarray(found) == expected if np.size(expected) == 1 else True
        assert np.array_equal(np.asarray(found), expected)
    else:
        assert found == expected


def test_iteration_and_hashes_as_of_scalars():
    x = from_host(np.array([3.0, 1.0, 3.0], "f4"))
    assert [type(v) for v in x] == [np.float32] * 3
    assert set(x) == {1.0, 3.0} and statistics.mean(x) == np.float32(7 / 3)
    assert [type(v) for v in reversed(x)] == [np.float32] * 3 and list(reversed(x)) == [3, 1, 3]
    assert {x[0]: "a"}[3.0] == "a" and x[1] in {1: 2} and x[0] in {3.0}
    assert all(isinstance(row, TiledArray) for row in from_host(X))
    for array in (x, from_host(X)):
        with pytest.raises(TypeError, match="unhashable type: 'TiledArray'"):
            hash(array)


def test_arrays_without_axes_in_place_of_scalars():
    x = from_host(np.array([1.5, 2.5, 3.25]))
    total, count = x.sum(), from_host(np.arange(4)).max()
    assert f"{total:.3f} {total:>8.1f}" == "7.250      7.2" and round(total, 1) == 7.2
    assert math.sqrt(total) == math.sqrt(7.25) and int(total) == 7
    assert math.floor(total) == math.trunc(total) == 7
    template = "%d %.2f"
    assert template % (count, total) == "3 7.25" and "a" * count == "aaa"
    assert list(range(count)) == [0, 1, 2] and [5, 6, 7, 8][count] == 8
    assert count in (1, 3) and count not in [1, 2] and max(count, 5) == 5 and max(count, 2) == 3
    assert divmod(count, 2) == (1, 1) and divmod(7, count) == (2, 1) and pow(count, 2) == 9
    assert sum([total, count]) == 10.25 and sorted([count, 1, total]) == [1, 3, 7.25]
    assert complex(total) == 7.25 and abs(-count) == 3 and bool(total) and -count == -3
    assert bytes(count) == bytes(3) and hex(count) == "0x3" and isinstance(count.item(), int)


def test_text_is_numpys():
    for x in (X, X.astype("f4"), X > 0, np.array(1.5), np.zeros((0, 3)), np.arange(3, dtype="u1")):
        assert repr(from_host(x)) == repr(x) and str(from_host(x)) == str(x)
    assert repr(from_host(X).sum()) == repr(X.sum()) and repr(from_host(X)[0, 0, 0]) == repr(
        X[0, 0, 0])
    assert str(from_host(np.array(0.1, "f4"))) == str(np.float32(0.1))


# Methods ----------------------------------------------------------------------------------------

METHODS = {
    "reshape": lambda a: a.reshape(4, -1),
    "reshape tuple": lambda a: a.reshape((6, 4)),
    "reshape F": lambda a: a.reshape(4, 6, order="F"),
    "reshape wrong": lambda a: a.reshape(5, 5),
    "reshape wrong -1": lambda a: a.reshape(5, -1),
    "reshape two unknown": lambda a: a.reshape(-1, -1),
    "transpose": lambda a: a.transpose(2, 0, 1),
    "transpose tuple": lambda a: a.transpose((1, 0, -1)),
    "transpose repeated": lambda a: a.transpose(0, 0, 1),
    "transpose too few": lambda a: a.transpose(0, 1),
    "transpose out of bounds": lambda a: a.transpose(0, 1, 3),
    "swapaxes": lambda a: a.swapaxes(0, -1),
    "swapaxes out of bounds": lambda a: a.swapaxes(0, 3),
    "squeeze": lambda a: a[:, :1, None].squeeze(),
    "squeeze axis": lambda a: a[:, :1, None].squeeze(2),
    "squeeze wrong": lambda a: a.squeeze(0),
    "diagonal": lambda a: a.diagonal(1, 1, 2),
    "trace": lambda a: a.trace(),
    "astype": lambda a: a.astype("i4"),
    "astype casting": lambda a: a.astype("i4", casting="safe"),
    "copy": lambda a: a.copy(),
    "conj": lambda a: (a * 1j).conj(),
    "clip": lambda a: a.clip(-1, 5),
    "clip low": lambda a: a.clip(min=0),
    "clip none": lambda a: a.clip(),
    "argsort": lambda a: (a % 5).argsort(axis=1, kind="stable"),
    "argsort flat": lambda a: (-a).argsort(axis=None),
    "cumsum": lambda a: a.cumsum(),
    "cumsum axis": lambda a: a.cumsum(1),
    "cumprod dtype": lambda a: a.astype("i2").cumprod(axis=-1),
    "take": lambda a: a.take([1, 5]),
    "repeat": lambda a: a.repeat(2, axis=0),
    "round": lambda a: (a / 7).round(2),
    "view same": lambda a: a.view(),
    "view int": lambda a: a.view("i8"),
    "view smaller": lambda a: a.view("f4"),
    "view larger": lambda a: a.view("c16"),
    "view wrong": lambda a: a[..., :3].copy().view("c16"),
    "ptp": lambda a: np.ptp(a, axis=1),
}


@pytest.mark.parametrize("function", METHODS.values(), ids=METHODS.keys())
def test_methods(function):
    check(function, X)


def test_methods_in_place():
    for change in (
        lambda a: a.sort(), lambda a: a.sort(axis=0), lambda a: a.fill(3),
        lambda a: a[0].sort(axis=0), lambda a: a.T.fill(2), lambda a: a.put([1, 3], [5, 6]),
    ):
        ours, expected = from_host(-X), -X
        change(ours)
        change(expected)
        same(ours, expected)


# Reductions -------------------------------------------------------------------------------------

AXES = [None, 0, 1, -1, (0, 2), (), (2, 1, 0), 3, (0, 0), -4]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", ["sum", "prod", "min", "max", "all", "any", "mean", "var", "std"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_reductions(name, dtype):
    x = (X / 9).astype(dtype) if np.dtype(dtype).kind in "fc" else (X % 3).astype(dtype)
    tolerance = {"rtol": 4e-3 if dtype == "f2" else 1e-5, "atol": 1e-3 if dtype == "f2" else 1e-6}
    for axis in AXES:
        check(lambda a, axis=axis: getattr(a, name)(axis=axis), x, **tolerance)
        check(lambda a, axis=axis: getattr(a, name)(axis, keepdims=True), x, **tolerance)


@pytest.mark.parametrize("name", ["argmin", "argmax"])
def test_index_reductions(name):
    x = X % 5
    for axis in (None, 0, 1, -1, 3):
        check(lambda a, axis=axis: getattr(a, name)(axis), x)
        check(lambda a, axis=axis: getattr(a, name)(axis, keepdims=True), x)


OPTIONS = {
    "sum dtype": lambda a, m: a.sum(dtype="f4"),
    "sum int dtype": lambda a, m: a.sum(dtype="i4"),
    "sum where": lambda a, m: a.sum(axis=1, where=m),
    "sum initial": lambda a, m: a.sum(axis=0, initial=5),
    "prod where": lambda a, m: a.prod(axis=-1, where=m),
    "max where": lambda a, m: a.max(axis=1, where=m, initial=-3),
    "max where alone": lambda a, m: a.max(where=m),
    "min initial": lambda a, m: a.min(axis=0, initial=-100),
    "all where": lambda a, m: a.all(axis=1, where=m),
    "any where": lambda a, m: a.any(axis=1, where=m),
    "mean where": lambda a, m: a.mean(axis=0, where=m),
    "mean dtype": lambda a, m: a.mean(dtype="f4"),
    "mean int": lambda a, m: a.astype(int).mean(0),
    "var ddof": lambda a, m: a.var(axis=1, ddof=1),
    "var correction": lambda a, m: np.var(a, axis=1, correction=1),
    "var where": lambda a, m: a.var(axis=0, where=m),
    "std where ddof": lambda a, m: a.std(axis=(0, 1), where=m, ddof=1, keepdims=True),
    "var mean": lambda a, m: a.var(axis=1, mean=a.mean(axis=1, keepdims=True)),
    "add.reduce": lambda a, m: np.add.reduce(a),
    "maximum.reduce": lambda a, m: np.maximum.reduce(a, axis=(0, 1)),
    "logical_or.reduce": lambda a, m: np.logical_or.reduce(a > 5, axis=None),
    "bitwise_or.reduce": lambda a, m: np.bitwise_or.reduce(a.astype(int)),
    "add.accumulate": lambda a, m: np.add.accumulate(a, axis=1),
    "maximum.accumulate": lambda a, m: np.maximum.accumulate(a, axis=2),
    "subtract.outer": lambda a, m: np.subtract.outer(a[0, 0], a[1]),
    "add.reduceat": lambda a, m: np.add.reduceat(a, [0, 1], axis=1),
}


@pytest.mark.parametrize("function", OPTIONS.values(), ids=OPTIONS.keys())
def test_reduction_options(function):
    check(function, X, X % 2 == 0, rtol=1e-6)


@pytest.mark.parametrize("name", [
    "sum", "prod", "min", "max", "all", "any", "argmin", "argmax", "mean", "var",
])
@pytest.mark.filterwarnings("ignore:.*empty slice:RuntimeWarning")
@pytest.mark.filterwarnings("ignore:Degrees of freedom:RuntimeWarning")
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_empty_reductions(name):
    for shape in ((0,), (0, 3), (3, 0)):
        for axis in (None, 0, -1):
            check(lambda a, axis=axis: getattr(a, name)(axis=axis), np.zeros(shape))


def test_warnings_name_the_users_line():
    with pytest.warns(RuntimeWarning, match="Mean of empty slice") as caught:
        from_host(np.zeros(0)).mean()
    # The core in Python calls NumPy itself, and cannot tell cheaply that NumPy has warned.
    twin = sys.modules.get("tiledarray.core.twin_calls")
    assert caught[0].filename == (__file__ if kind == "c" else twin.__file__)
    with pytest.warns(RuntimeWarning, match="Degrees of freedom <= 0 for slice"):
        from_host(np.zeros(1)).var(ddof=1)
    x, z = from_host(np.zeros(4)), from_host(np.arange(4) * 1j)

    def write_part():
        x[1:] = z[1:]

    def write_chosen():
        x[[0, 2]] = z[:2]

    def write_real():
        x.real = z

    for function in (
        lambda: z.astype(float), write_part, write_chosen, write_real, lambda: z.sum(dtype=float),
        lambda: np.copyto(x, z, casting="unsafe"), lambda: x.flat.__setitem__(slice(2), z[:2]),
    ):
        for _ in range(4):
            with pytest.warns(np.exceptions.ComplexWarning) as caught:
                function()
            assert [warning.filename for warning in caught] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        from_host(np.zeros(4, bool))[:] = z
        from_host(np.zeros(4, "c8"))[:] = z


def test_reduction_out():
    for dtype in ("f8", "f4"):
        ours, expected = from_host(np.zeros(3, dtype)), np.zeros(3, dtype)
        result = from_host(X).sum(axis=(0, 2), out=ours)
        assert result is ours
        X.sum(axis=(0, 2), out=expected)
        same(ours, expected)
    with pytest.raises(ValueError):
        from_host(X).sum(axis=0, out=from_host(np.zeros(2)))


def test_half_precision_accumulates_in_single():
    x = np.full(4096, 1.0009765625, np.float16)
    assert from_host(x).mean().item() == x.mean()
    assert from_host(x).sum().dtype == np.float16


# Protocols --------------------------------------------------------------------------------------

UFUNC_CALLS = {
    "out": lambda a, b: np.add(a, b, out=b),
    "out view": lambda a, b: (np.add(a[:, 1:], 1, out=b[:, 1:]), b)[1],
    "out casting": lambda a, b: np.add(a, 1.5, out=b.astype("f4")),
    "out wrong casting": lambda a, b: np.add(a, 1.5, out=b.astype("i4")),
    "out wrong shape": lambda a, b: np.add(a, b, out=b[0]),
    "where out": lambda a, b: np.multiply(a, b, out=b, where=a > 0),
    "dtype": lambda a, b: np.add(a, b, dtype="f4"),
    "dtype of ints": lambda a, b: np.add(a.astype("i1"), 100, dtype="i8"),
    "dtype refused": lambda a, b: np.add(a, b, dtype="i4"),
    "casting": lambda a, b: np.add(a, b, dtype="i4", casting="unsafe"),
    "casting refused": lambda a, b: np.add(a, b.astype("f4"), casting="no"),
    "list": lambda a, b: np.add(a, [[1], [2], [3]]),
    "reflected list": lambda a, b: [1, 2, 3, 4] - a,
    "numpy scalar": lambda a, b: np.float32(2) * a.astype("f4"),
    "numpy float64 scalar": lambda a, b: a.astype("f4") * np.float64(2),
    "modf": lambda a, b: np.modf(a / 3)[1],
    "divmod": lambda a, b: divmod(a, 3)[1],
    "frexp": lambda a, b: np.frexp(a)[1],
    "comparison": lambda a, b: np.greater(a, b),
    "isfinite": lambda a, b: np.isfinite(a),
    "in place ufunc on view": lambda a, b: np.negative(a.T, out=a.T),
    "text": lambda a, b: a + "x",
    "none": lambda a, b: a + None,
}


@pytest.mark.parametrize("function", UFUNC_CALLS.values(), ids=UFUNC_CALLS.keys())
def test_ufunc_calls(function):
    check(function, X, X[::-1] * 2, rtol=1e-6)


def test_where_without_out_changes_nothing_elsewhere():
    found = np.sqrt(from_host(X), where=X >= 0).numpy()
    np.testing.assert_array_equal(found[X >= 0], np.sqrt(X[X >= 0]))


def test_numpy_outputs_and_operands():
    a, target = from_host(X), np.zeros_like(X)
    assert np.add(a, 1, out=target) is target
    np.testing.assert_array_equal(target, X + 1)
    target += a
    np.testing.assert_array_equal(target, 2 * X + 1)
    assert type(X + a) is TiledArray and type(a + X) is TiledArray
    same(X - a, X - X)


@pytest.mark.parametrize(("call", "warns"), [
    (lambda x: np.add(x, 1, where=x > 2), True), (lambda x: np.sqrt(x, where=x > 2), True),
    (lambda x: ta.add(x, 1, where=x > 2), True), (lambda x: ta.modf(x, where=x > 2), True),
    (lambda x: ta.add.outer(x, x, where=x > 2), True), (lambda x: ta.add(x, 1, out=x), False),
    (lambda x: ta.add(x, 1, where=x > 2, out=None), False),
    (lambda x: ta.add(x, 1, where=x > 2, out=...), False),
    (lambda x: ta.add(x, 1, where=x > 2, casting="unsafe", out=None), False),
    (lambda x: ta.add(x, 1, where=True), False), (lambda x: x.sum(where=x > 2), False),
])
def test_where_without_out_is_warned_of(call, warns):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call(from_host(np.arange(4.0)))
    assert [each.category for each in caught] == [UserWarning] * warns
    assert all("'where' used without 'out'" in str(each.message) for each in caught)


def test_ufunc_at():
    ours, expected = from_host(np.zeros(4)), np.zeros(4)
    np.add.at(ours, [0, 0, 2], [1, 2, 3])
    np.add.at(expected, [0, 0, 2], [1, 2, 3])
    same(ours, expected)


def test_other_types_keep_their_operators():
    class Other:
        __array_ufunc__ = None

        def __radd__(self, other):
            return "other"

        __rmatmul__ = __radd__

    assert from_host(X) + Other() == "other" and from_host(X) @ Other() == "other"
    for a in (X.copy(), from_host(X)):
        for name in ("__iadd__", "__imul__", "__imatmul__"):
            with pytest.raises(TypeError, match="does not support ufuncs"):
                getattr(a, name)(Other())


@pytest.mark.parametrize("size", [8, 100_000, 300_000])
def test_ndarray_over_an_array(size):
    for array in (np, ta):
        x = array.arange(size) * 1.0
        view = array.ndarray((3,), dtype=float, buffer=x, offset=8)
        view[0] = 77
        assert x[1] == 77 and view.tolist() == [77, 2, 3]
        x[2] = 5
        assert view[1] == 5
        assert array.ndarray((2, 2), "f4", x, 12).shape == (2, 2)
        assert array.ndarray((2,), "i8", x[4:6]).tolist() == (x[4:6].view("i8")).tolist()
        assert array.ndarray((), buffer=x, offset=16) == 5
        with pytest.raises(TypeError, match=r"too small|bytes-like"):
            array.ndarray((size + 1,), float, x)


def test_partition_in_place():
    x = from_host(np.array([[3, 1, 2], [0, 5, 4]]))
    assert x.T.partition(1, axis=0) is None
    assert x.numpy()[:, 1].tolist() == [2, 4]


@pytest.mark.parametrize("function", [
    lambda a, s: a.reshape(s), lambda a, s: a.reshape(s).transpose(s - 2),
])
def test_arrays_as_shapes(function):
    a, s = np.arange(6), np.array([2, 3])
    for given in (s, from_host(s)):
        same(function(from_host(a), given), function(a, s))
    check(lambda a: a ** -1, np.zeros(0, int))


def test_dlpack():
    a = from_host(X)
    np.testing.assert_array_equal(np.from_dlpack(a), X)
    np.testing.assert_array_equal(np.from_dlpack(a[:, ::2].T), X[:, ::2].T)
    assert a.__dlpack_device__() == (1, 0)


def test_copies_and_pickles():
    a = from_host(X)
    for made in (copy.copy(a), copy.deepcopy(a), pickle.loads(pickle.dumps(a[:, 1:])), a.copy()):
        made += 1
    same(a, X)
    same(pickle.loads(pickle.dumps(a.T)), X.T)
    for function in (lambda a: a.sum(), lambda a: a[0, 1, 2], lambda a: a.max() > 3,
                     lambda a: np.array(2.0) if isinstance(a, np.ndarray) else from_host(
                         np.array(2.0)), lambda a: a.sum().imag, lambda a: (a * 1j).sum().imag):
        for again in (lambda x: x, lambda x: pickle.loads(pickle.dumps(x)), copy.deepcopy):
            check(lambda a, f=function, again=again: repr(again(f(a))), X)


def test_functions_without_a_kernel_fall_back():
    same(np.trim_zeros(from_host(np.array([0.0, 1, 0]))), np.array([1.0]))
    x = np.array(["a", "b"])
    a = from_host(x)
    assert (a == "a").tolist() == [True, False] and repr(a) == repr(x)
    days = from_host(np.array(["2020-01-01", "2020-01-03"], "M8[D]"))
    assert (days[1] - days[0]).item().days == 2
    assert days.max().item().day == 3


def test_devices():
    a = from_host(X)
    assert a.to("cpu") is a and str(a.device) == "cpu" and a.to_device("cpu") is a


def test_shape_changes_in_place():
    a = from_host(X)
    a.resize(2, 2)
    same(a, np.array([[-7.0, -6], [-5, -4]]))


@pytest.mark.parametrize("how", [
    lambda x: x[:], lambda x: x[2:8], lambda x: x.reshape(3, 4), lambda x: x[::2],
    lambda x: x.reshape(2, 6)[:, ::2], lambda x: x.reshape(3, 4)[1],
])
@pytest.mark.parametrize("large", [False, True])
def test_views_may_be_resized_to_their_own_size(how, large):
    def attempt(lib, shape):
        x = lib.arange(12.0)
        if large:
            x = lib.tile(x, 1) + 0
        view = how(x)
        shape = (view.size,) if shape == "line" else shape
        try:
            view.resize(shape)
            view.flat[0] = 9
        except ValueError as error:
            return str(error)
        return view.tolist(), x.tolist()

    with tiledarray.config.override(at_once=0 if large else 1 << 16):
        for shape in ("line", (2, 3), (6, 2), (5,), (13,)):
            assert attempt(tiledarray, shape) == attempt(np, shape)


@pytest.mark.parametrize("size", [6, 600_000])
def test_who_owns_what_got_another_shape(size):
    def facts(lib):
        x = lib.arange(size) * 1.0
        before = x[1:]
        x.shape = 2, size // 2
        yield x.flags.owndata, x.base is None, x[0].base is x, before.base is x, x.T[0].base is x
        row = x[0]
        row.shape = size // 2, 1
        x.shape = size // 2, 2
        yield row.base is x, row.flags.owndata, x.base is None, x[0].base is x
        x.flags.writeable = False
        x.shape = 2, size // 2
        yield x.base is None, x[0].base is x, x.flags.writeable, x[0].flags.writeable
        view = (lib.arange(size) * 1.0).reshape(2, -1)
        base = view.base
        view.shape = (size,)
        yield view.base is base, base.base is None
        z = x * 1j
        yield [part.flags.writeable for part in (lib.imag(x), x.imag, lib.imag(z), z.imag)]
        yield lib.imag([1.0, 2.0]).flags.writeable, float(lib.imag(3.0)), float(lib.imag(z[1, 1]))
        yield type(lib.imag(3j)) is float, repr(lib.imag(np.float32(3)))

    before = len(_in_front)
    assert [*facts(tiledarray)] == [*facts(np)]
    assert len(_in_front) == before


def test_flat_of_what_is_read_only():
    for lib in (np, tiledarray):
        x = lib.broadcast_to(lib.arange(3.0), (2, 3))
        for key, value in ((0, 1), (slice(None), 2), (0, "x"), (slice(1, 3), [1, 2])):
            with pytest.raises(ValueError, match=r"^underlying array is read-only$"):
                x.flat[key] = value
        y = lib.arange(3.0)
        with pytest.raises(ValueError, match=r"^Error setting single item of array\.$"):
            y.flat[0] = "x"
        with pytest.raises(IndexError):
            y.flat[7] = 1.0


@pytest.mark.parametrize("at_once", [0, 1 << 16])
@pytest.mark.parametrize("make", [
    lambda np: np.arange(24).reshape(2, 3, 4), lambda np: np.arange(12.0).reshape(3, 4).T[::-1, 1:],
    lambda np: np.arange(5), lambda np: np.array(3.5), lambda np: np.zeros((0, 3))])
def test_elements_of_flat_are_those_of_the_array(make, at_once):
    def facts(lib):
        a = make(lib)
        for key in (*range(-a.size - 1, a.size + 1), np.int64(1), np.uint8(2), "x"):
            for change in (False, True):
                try:
                    if change:
                        a.flat[key] = 7
                    yield np.asarray(a.flat[key]).tolist()
                except Exception as error:
                    yield type(error).__name__, key if change else str(error)
        yield np.asarray(a).tolist()

    with tiledarray.config.override(at_once=at_once):
        assert [*facts(tiledarray)] == [*facts(np)]


@pytest.mark.parametrize("at_once", [0, 1 << 16])
def test_elements_index_as_ints_do(at_once):
    def facts(lib):
        a, places = lib.arange(12.0).reshape(3, 4), lib.arange(-5, 6)
        for i in (*places, np.int8(1), np.uint64(2), lib.array(1), lib.array([2])[0]):
            for j in (1, np.int64(-1), i):
                for key in ((i, j), (j, i), i, (i,), (..., i)):
                    for change in (False, True):
                        try:
                            if change:
                                a[key] = a[0, 0] + 1
                            yield np.asarray(a[key]).tolist()
                        except Exception as error:
                            yield type(error).__name__, str(error)

    with tiledarray.config.override(at_once=at_once):
        assert [*facts(tiledarray)] == [*facts(np)]


OF_SCALARS = {
    "T": lambda np, s: s.T, "transpose": lambda np, s: np.transpose(s),
    "view": lambda np, s: s.view(),
    "reshape": lambda np, s: s.reshape(()), "bits": lambda np, s: s.view("i8"),
    "squeeze": lambda np, s: s.squeeze(), "real": lambda np, s: s.real, "itself": lambda np, s: s,
    "conj": lambda np, s: s.conj(), "permute_dims": lambda np, s: np.permute_dims(s),
    "moveaxis": lambda np, s: np.moveaxis(s, (), ()), "[()]": lambda np, s: s[()],
}


@pytest.mark.parametrize("n", [6, 800_000])
@pytest.mark.parametrize("at_once", [0, 1 << 16])
@pytest.mark.parametrize("of", OF_SCALARS)
def test_what_is_made_of_a_scalar_is_none_of_its_memory(of, at_once, n):
    def facts(np):
        s = np.ones(n).sum()
        t = OF_SCALARS[of](np, s)
        row, column = t.reshape(1), t[None]
        row[0] = 2
        column += 5
        same = t
        same += 1
        return [str(each) for each in (s, t, row, column, same)]

    with tiledarray.config.override(at_once=at_once):
        found, wanted = facts(tiledarray), facts(np)
        assert found == wanted


def test_a_running_sum_has_no_output_without_axes():
    with tiledarray.config.override(at_once=0):
        for total in (tiledarray.ones(3).sum(), tiledarray.array(1.0)):
            for call in (tiledarray.cumsum, tiledarray.cumprod, tiledarray.nancumsum):
                with pytest.raises((TypeError, ValueError)):
                    call(total, out=total)


def test_flat_is_compared_by_its_elements():
    def facts(lib):
        b = lib.arange(6.0).reshape(2, 3)
        for how in (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge):
            for other in (2, [0, 5, 1, 2, 3, 4], b.T.flat, b[::-1, ::-1].flat, lib.arange(6)):
                yield how(b.flat, other).tolist()
            yield how(3, b.flat).tolist()
        for shape in ((2, 3), (1, 2, 2), (4,), ()):
            flat = lib.zeros(shape).flat
            yield flat.coords
            for _ in flat:
                yield flat.coords
        with pytest.raises(TypeError, match="unhashable"):
            hash(b.flat)

    assert [*facts(tiledarray)] == [*facts(np)]


@pytest.mark.parametrize("large", [False, True])
def test_what_numpy_returns_as_an_array_without_axes_is_one(large):
    with tiledarray.config.override(at_once=0 if large else 1 << 16):
        for compute in (
                lambda lib, x: lib.cov(x),
                lambda lib, x: lib.piecewise(x[3:4].reshape(()), [True], [lambda t: t * 2])):
            found = compute(tiledarray, tiledarray.arange(60.0))
            wanted = compute(np, np.arange(60.0))
            assert type(wanted) is np.ndarray and repr(found) == repr(wanted)
            view = found[()], found.reshape(1)
            view[1][0] = 7
            wanted.reshape(1)[0] = 7
            assert repr(found) == repr(wanted) == "array(7.)"


@pytest.mark.parametrize("size", [4, 300_000])
def test_sequences_are_repeated_by_whole_numbers_alone(size):
    def facts(lib):
        x = lib.arange(size) + 0.5
        scalars = (x[0], x.sum(), lib.arange(size)[1], (x > 1)[1], x[1] + 1j, x[:1].reshape(()))
        for scalar in scalars:
            for sequence in ([1, 2], (3,), []):
                for how in (lambda a, b: a * b, lambda a, b: b * a, lambda a, b: a + b):
                    try:
                        yield np.asarray(how(scalar, sequence)).tolist()
                    except TypeError as error:
                        yield str(error)

    assert [*facts(tiledarray)] == [*facts(np)]
