"""Creation functions against NumPy's."""

from __future__ import annotations

from typing import Any

import numpy
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import tiledarray
from tests.strategies import DTYPES, agree, agree_on, arrays, same
from tiledarray.api import creation
from tiledarray.errors import DeviceNotFound, OutOfMemory

VALUES = {
    "a": numpy.arange(12.0).reshape(3, 4),
    "v": numpy.arange(5),
    "c": numpy.array([1 + 2j, 3j]),
    "m": numpy.array([True, False, True]),
}
EXPRESSIONS = [
    "np.array([1, 2, 3])", "np.array([[1, 2.5], [3, 4]])", "np.array(5)", "np.array(2.5)",
    "np.array([True])", "np.array(1j)", "np.array([])", "np.array(a, dtype='f')",
    "np.array(a, ndmin=3)", "np.array([a, a])", "np.array([a[0, 0], 2.0])", "np.array([1, a[0]])",
    "np.array([[1, 2], [3]])", "np.array(v, dtype=complex)", "np.array(['a', 'bc'])",
    "np.array([1, None])", "np.array('2020-01-01', dtype='M8[D]')", "np.array([v.sum(), 2])",
    "np.asarray(a)", "np.asarray([1, 2], float)", "np.asanyarray(v)", "np.ascontiguousarray(a.T)",
    "np.ascontiguousarray(3.0)", "np.asfortranarray(a)", "np.copy(a)", "np.asarray(v, dtype='i1')",
    "np.asarray_chkfinite(a)", "np.asarray_chkfinite([np.nan])",
    "np.zeros(3)", "np.zeros((2, 3), int)", "np.zeros(())", "np.ones([2, 2], 'f')", "np.zeros(-1)",
    "np.zeros((2, -3))", "np.zeros(2.5)", "np.zeros('a')", "np.zeros(3, 'U2')", "np.ones(0)",
    "np.zeros(np.int64(3))", "np.zeros((np.int8(2), 2))", "np.empty(3).shape", "np.zeros(v)",
    "np.full(3, 7)", "np.full((2, 2), 1.5)", "np.full(3, 7, 'f')", "np.full((2, 3), [1, 2, 3])",
    "np.full(2, a[0, 1])", "np.full(2, True)", "np.full(2, 1j)", "np.full(2, 'ab')",
    "np.full(2, np.float32(3))", "np.full(3, 300, 'B')", "np.full(2, 2.5, int)",
    "np.full((2, 2), [1, 2, 3])", "np.full(2, np.nan)", "np.full(2, 2**70)",
    "np.zeros_like(a)", "np.ones_like(v, float)", "np.full_like(v, 2.7)", "np.full_like(a, 2)",
    "np.zeros_like([1, 2])", "np.ones_like(a, shape=(2,))", "np.zeros_like(3.0)",
    "np.full_like(v, np.nan)", "np.empty_like(a).shape", "np.full_like(a, [1, 2, 3, 4])",
    "np.arange(5)", "np.arange(5.0)", "np.arange(1, 8, 2)", "np.arange(0, 1, 0.1)",
    "np.arange(10, 0, -3)", "np.arange(5, dtype='f')", "np.arange(5, dtype='e')",
    "np.arange(0, 5, dtype='B')", "np.arange(0.5, 5, dtype=int)", "np.arange(3, 0)",
    "np.arange(0)", "np.arange(0, 5, 0)", "np.arange(np.nan)", "np.arange(np.inf)",
    "np.arange(1j, 5)", "np.arange(np.float32(3))", "np.arange(np.int8(3))",
    "np.arange(np.int8(1), np.int16(9))", "np.arange(2**63, 2**63 + 3)", "np.arange('a')",
    "np.arange(-0.5, 3, 0.7)", "np.arange(3, dtype=bool)", "np.arange(2, dtype=bool)",
    "np.arange(0, 1, 1e-3)[-1]", "np.arange(1e-3, 5e-3, 1e-3)", "np.arange(3, dtype=complex)",
    "np.arange(v[3])", "np.arange(start=2, stop=5)", "np.arange(5, step=2)", "np.arange()",
    "np.arange('2020-01', '2020-05', dtype='M8[M]')", "np.arange(4, None, 1)",
    "np.linspace(0, 1)", "np.linspace(0, 1, 5)", "np.linspace(-1, 0, 7)", "np.linspace(2, 2, 3)",
    "np.linspace(0, 10, 5, endpoint=False)", "np.linspace(0, 10, 5, dtype=int)",
    "np.linspace(0, 1, 5, retstep=True)", "np.linspace(0, 1, 1)", "np.linspace(0, 1, 0)",
    "np.linspace(0, 1, -1)", "np.linspace(0, 1, 2.5)", "np.linspace(0, 1, 4, dtype='f')",
    "np.linspace(np.float32(0), np.float32(1), 7)", "np.linspace(v, 3, 4)", "np.linspace(0, 1j, 4)",
    "np.linspace([0, 1], [2, 5], 3, axis=1)", "np.linspace(-3.5, 3.5, 7, dtype='i')",
    "np.linspace(np.float32(0), 1, 5)", "np.linspace(1, 1, 1, retstep=True)",
    "np.linspace(0, 5e-324, 3)", "np.linspace(5, 0, 11)", "np.linspace(0, np.inf, 3)",
    "np.logspace(0, 3, 4)", "np.geomspace(1, 1000, 4)", "np.logspace(0, 1, 3, base=2)",
    "np.eye(3)", "np.eye(2, 4)", "np.eye(3, k=1)", "np.eye(3, 4, -1, int)", "np.eye(0)",
    "np.eye(-1)", "np.eye(2.5)", "np.identity(3)", "np.identity(2, int)", "np.eye(3, k=7)",
    "np.diag(a)", "np.diag(v)", "np.diag(v, 1)", "np.diag(v, -2)", "np.diag(a, 1)", "np.diag(3)",
    "np.diagflat(a)", "np.diagflat([[1, 2], [3, 4]], 1)", "np.diag(a[None])", "np.diag([])",
    "np.tri(3)", "np.tri(3, 4, 1)", "np.tri(2, 5, -1, bool)", "np.tril(a)", "np.tril(a, 1)",
    "np.triu(a)", "np.triu(a, -1)", "np.triu(v)", "np.tril(np.array([a, a]))", "np.triu(m)",
    "np.tri(-1)", "np.tril(3)",
    "np.vander(v)", "np.vander(v, 3, increasing=True)",
    "np.meshgrid(v, a[0])", "np.meshgrid(v, a[0], indexing='ij')",
    "np.meshgrid(v, a[0], sparse=True)",
    "np.meshgrid(v)", "np.meshgrid(v, [1, 2], [3])", "np.meshgrid(v, indexing='x')",
    "np.meshgrid()",
    "np.mgrid[0:3]", "np.mgrid[0:3, 1:5:2]", "np.mgrid[0:1:4j]", "np.mgrid[-1:1:3j, 0:2]",
    "np.ogrid[0:3, 0:2]", "np.ogrid[-1:1:5j]", "np.mgrid[0:2.5, :3]", "np.ogrid[0:1:0.25]",
    "np.mgrid[0:5:-1]", "np.mgrid[:3, :2, :4]", "np.ogrid[0:2, 0:1:3j]",
    "np.indices((2, 3))", "np.indices((2,), dtype=float)", "np.indices((2, 3), sparse=True)",
    "np.indices(())", "np.fromfunction(lambda i, j: i * 2 + j, (2, 3))",
    "np.fromfunction(lambda i: i > 1, (4,), dtype=int)",
    "np.frombuffer(b'abcdefgh', 'i4')", "np.frombuffer(b'ab', 'u1').flags.writeable",
    "np.fromiter(range(4), float)",
    "np.fromstring('1 2', sep=' ')",
    "np.hanning(5)", "np.kaiser(4, 2.0)", "np.hamming(0)",
    "np.from_dlpack(v)", "np.diagonal(a)", "np.diagonal(a, 1)", "np.diagonal(v)",
]


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_as_numpy(expression: str) -> None:
    agree_on(expression, ulps=1, **VALUES)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(-50, 50) | st.floats(-50, 50), st.integers(-50, 50) | st.floats(-50, 50),
    st.sampled_from([1, 2, -1, -3, 0.1, 0.7, -0.3, 1e-2]),
    st.sampled_from([None, *DTYPES[1:]]),
)
def test_arange(start: float, stop: float, step: float, dtype: str | None) -> None:
    agree("arange", start, stop, step, dtype=dtype, ulps=1)


@settings(max_examples=60, deadline=None)
@given(
    st.floats(-1e6, 1e6) | st.integers(-9, 9), st.floats(-1e6, 1e6) | st.integers(-9, 9),
    st.integers(0, 40), st.booleans(), st.sampled_from([None, "f", "d", "i", "e"]),
)
def test_linspace(start: float, stop: float, num: int, endpoint: bool, dtype: str | None) -> None:
    agree("linspace", start, stop, num, endpoint, dtype=dtype, ulps=1)


@pytest.mark.parametrize("compile", ["never", "wait"])
@pytest.mark.parametrize("name, arguments", [
    ("linspace", (0, -1, 5)), ("linspace", (-0.0, -1, 5)), ("arange", (0, -1, -0.25)),
    ("arange", (-0.0, -3, -1.0)), ("arange", (-0.0, True)),
    ("arange", (-0.0, 3.0, 1.0)), ("linspace", (0.0, 1.0, 3)), ("linspace", (1.0, -1.0, 5)),
])
def test_the_sign_of_zero_in_progressions(name: str, arguments: Any, compile: str) -> None:
    with tiledarray.config.override(compile=compile, at_once=0):
        found = numpy.asarray(getattr(tiledarray, name)(*arguments))
    expected = getattr(numpy, name)(*arguments)
    numpy.testing.assert_array_equal(numpy.signbit(found), numpy.signbit(expected))


@pytest.mark.parametrize("limits", [
    (numpy.int64(-5), True, 0.1), (True, True - numpy.int64(500), numpy.int64(-5)), (-5, 3)])
def test_unsigned_progressions_from_below_zero(limits: Any) -> None:
    with tiledarray.config.override(at_once=0):
        agree("arange", *limits, dtype="u4")


@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")
@pytest.mark.parametrize("limits, dtype", [
    ((100_000, 0, -1), "e"), ((1e39, 2e39, 1e38), "f"), ((0, 200_000, 70_000), "e")])
def test_progressions_that_begin_beyond_the_dtype(limits: Any, dtype: str) -> None:
    with tiledarray.config.override(at_once=0):
        found = numpy.asarray(tiledarray.arange(*limits, dtype=dtype))
    numpy.testing.assert_array_equal(found, numpy.arange(*limits, dtype=dtype))


@settings(max_examples=60, deadline=None)
@given(arrays(), st.sampled_from([None, *DTYPES]))
def test_from_arrays(array: numpy.ndarray, dtype: str | None) -> None:
    into = "" if dtype is None else numpy.dtype(dtype).kind
    if array.dtype.kind + into in ("ci", "cu", "fu"):
        assume(numpy.isfinite(array).all())  # else C leaves open what NumPy's loop gives
    agree("array", array, dtype)
    same(numpy.asarray(tiledarray.asarray(array)), array)
    agree("zeros_like", array, dtype)
    agree("full_like", array, 3, dtype)
    agree("tril", array, 0)
    agree("triu", array, 1)


@pytest.mark.parametrize("at_once", [0, 1000])
@pytest.mark.parametrize("dtype", [object, "O", [("a", "O"), ("b", "i4")]], ids=str)
def test_what_has_any_content_has_no_objects(at_once, dtype) -> None:
    """NumPy fills arrays of objects with ``None``; all others are of zeros here."""
    with tiledarray.config.override(at_once=at_once):
        for _ in range(3):  # a place is done at once from the second time on
            made = tiledarray.empty(3, dtype)
            like = tiledarray.empty_like(made, shape=2)
            for found in (made, like, tiledarray.empty_like(made), tiledarray.ndarray(3, dtype)):
                wanted = numpy.empty(found.shape, dtype)
                assert numpy.asarray(found).tolist() == wanted.tolist()
            assert tiledarray.empty((2, 2)).tolist() == [[0, 0], [0, 0]]


def test_array_copies_and_asarray_does_not() -> None:
    source = tiledarray.arange(3.0)
    copied, taken = tiledarray.array(source), tiledarray.asarray(source)
    source[0] = 7
    assert copied[0] == 0
    assert taken is source


def test_device_and_like() -> None:
    cpu = tiledarray.zeros(2, device="cpu").device
    assert tiledarray.ones(2, like=tiledarray.zeros(1)).device is cpu
    with pytest.raises(DeviceNotFound):
        tiledarray.zeros(2, device="moon")
    with pytest.raises(ValueError, match="copy"):
        tiledarray.asarray(numpy.zeros(2), copy=False)


def test_constants_and_progressions_are_recorded() -> None:
    for made in (tiledarray.zeros(4), tiledarray.arange(4), tiledarray.linspace(0, 1, 4),
                 tiledarray.eye(3), tiledarray.meshgrid([1, 2], [3])[0]):
        assert made.node.pending


def test_list_of_arrays_is_stacked_without_looking() -> None:
    array = tiledarray.arange(4.0)
    joined = tiledarray.array([array.sum(), array.mean(), 1.0])
    assert joined.node.pending
    assert joined.tolist() == [6.0, 1.5, 1.0]


@pytest.mark.parametrize("expression", [
    "np.zeros((1 << 40, 1 << 20))", "np.ones(1 << 63)", "np.full((1 << 62, 4, 0), 1.0)",
    "np.zeros((1 << 63, 2), 'i1')", "np.zeros(np.array([2, 3])).shape",
    "np.ones(np.array([[2, 3]])[0] + 1).shape",
])
def test_shapes_that_numpy_refuses_and_arrays_as_shapes(expression: str) -> None:
    agree_on(expression)


def test_virtual_arrays_may_be_larger_than_the_memory() -> None:
    assert tiledarray.zeros(1 << 43).shape == (1 << 43,)
    with pytest.raises(ValueError, match=r"too large|too big"):
        tiledarray.zeros((1 << 40, 1)) + tiledarray.zeros((1, 1 << 40))
    with pytest.raises(OutOfMemory, match="Remedy"):
        tiledarray.asnumpy(tiledarray.ones((1 << 22, 1 << 22)))


class OnGpu:
    """An array of CuPy's as NumPy sees it: it refuses to be copied silently."""

    def __init__(self, array: numpy.ndarray) -> None:
        self.array = array

    def __array__(self, *args: object, **kwargs: object) -> None:
        raise TypeError("Implicit conversion to a NumPy array is not allowed")

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0


def test_arrays_on_a_gpu_come_by_dlpack(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(creation, "import_array", lambda source, copy: source.array)
    for make in (tiledarray.asarray, tiledarray.array):
        assert make(OnGpu(numpy.arange(3))).tolist() == [0, 1, 2]
        assert make(OnGpu(numpy.arange(3)), "f4").dtype == "f4"


@pytest.mark.parametrize("shape", [(5, 1), (1, 5), (1, 5, 1), (0, 3), (4,)])
def test_asfortranarray_of_what_lies_so_is_the_array_itself(shape: tuple[int, ...]) -> None:
    a = tiledarray.zeros(shape)
    assert tiledarray.asfortranarray(a) is a
    assert numpy.asfortranarray(b := numpy.zeros(shape)) is b


@pytest.mark.parametrize("shape", [(4, 6), (700, 600)])
def test_in_row_major_order_what_lies_otherwise_is_copied(shape: tuple[int, ...]) -> None:
    for lib in (numpy, tiledarray):
        a = lib.zeros(shape)
        for view in (a[:, :3], a.T):
            for made in (lib.asarray(view, order="C"), lib.array(view, copy=None, order="C")):
                made += 1
        b = lib.asarray(a[1:], order="C")
        b += 1
        assert float(a.sum()) == (shape[0] - 1) * shape[1]


@pytest.mark.parametrize("requirements", ["C", "F", ["C_CONTIGUOUS", "W"], "O", ["A"], None, "FO"])
@pytest.mark.parametrize("shape", [(4, 6), (700, 600)])
def test_require_copies_where_numpy_does(shape: tuple[int, ...], requirements: object) -> None:
    sums = []
    for lib in (numpy, tiledarray):
        a = lib.zeros(shape)
        for view in (a[:, :3], a.T, a[1:], a):
            made = lib.require(view, requirements=requirements)
            made += 1
            sums.append(float(a.sum()))
    assert sums[:4] == sums[4:]
    for lib in (numpy, tiledarray):
        with pytest.raises(ValueError, match='both "C" and "F"'):
            lib.require(lib.zeros(3), requirements="CF")
        with pytest.raises(KeyError):
            lib.require(lib.zeros(3), requirements="X")


def test_a_copy_that_is_needed_is_told_of() -> None:
    for lib in (numpy, tiledarray):
        with pytest.raises(ValueError, match="Unable to avoid copy"):
            lib.asarray(lib.zeros((700, 600)).T, order="C", copy=False)
