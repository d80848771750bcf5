"""Library calls by several threads, each of a part: NumPy's to the bit, and its errors."""

import numpy
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import tiledarray as np
from tests.plans import counted
from tiledarray import config
from tiledarray.execution import library_calls, shared_calls
from tiledarray.ops import indexing
from tiledarray.ops.library import BY_NAME, options


def matrices(*shape, dtype="f8"):
    random = numpy.random.default_rng(0)
    x = random.normal(size=shape)
    if dtype == "c16":
        x = x + 1j * random.normal(size=shape)
    return x + 5 * numpy.eye(shape[-1]) if shape[-1] == shape[-2] else x


def definite(x):
    return x @ x.conj().swapaxes(-1, -2)


@pytest.fixture
def small(monkeypatch, tmp_path):
    for name in ("WORTH_NANOSECONDS", "EACH"):
        monkeypatch.setattr(shared_calls, name, 1e-3)
    with config.override(cache_dir=tmp_path):  # plans made elsewhere know nothing of this
        yield


def memory(shape, dtype):
    return numpy.empty(shape, dtype)


def same_bits(found, wanted):
    assert found.dtype == wanted.dtype and found.shape == wanted.shape
    assert numpy.ascontiguousarray(found).tobytes() == numpy.ascontiguousarray(wanted).tobytes()


def in_parts(op, inputs, threads, attrs, dtype):
    """Compare a call that is shared out with the same in one; return how many parts it had."""
    parts = [0]
    wanted = op.reference(numpy, *inputs, attrs=attrs, shape=None, dtype=dtype)
    first = wanted[0] if isinstance(wanted, tuple) else wanted
    shared = shared_calls.shared_out(op, attrs, inputs, threads)
    assert shared is not None

    def noted(work, pieces, count):
        assert count <= threads
        parts.append(len(pieces))
        return in_turns(work, pieces, count)

    in_turns, shared_calls.in_turns = shared_calls.in_turns, noted
    try:
        found = shared(memory, *inputs, attrs=attrs, shape=first.shape, dtype=first.dtype)
    finally:
        shared_calls.in_turns = in_turns
    for one, other in zip(*((x if isinstance(x, tuple) else (x,)) for x in (found, wanted)),
                          strict=True):
        same_bits(one, other)
    return max(parts)


# ---- many matrices ---------------------------------------------------------------------------

CALLS = {
    "linalg.inv": [(7, 4, 4)], "linalg.det": [(7, 4, 4)], "linalg.slogdet": [(3, 2, 4, 4)],
    "linalg.cofactors": [(7, 4, 4)], "linalg.svdvals": [(7, 4, 3)], "linalg.pinv": [(7, 4, 3)],
    "linalg.eigvals": [(7, 4, 4)], "linalg.eig": [(2, 4, 4)], "linalg.qr": [(7, 4, 3)],
    "matmul": [(7, 4, 3), (7, 3, 5)],
}
TWO = [("matmul", (7, 4, 3), (3, 5)), ("matmul", (3,), (7, 3, 5)), ("matmul", (7, 4, 3), (3,)),
       ("matmul", (7, 4, 3), (1, 3, 5)), ("matmul", (2, 1, 4, 3), (5, 3, 2)),
       ("linalg.solve", (7, 4, 4), (7, 4, 2)), ("linalg.solve", (7, 4, 4), (4,)),
       ("linalg.solve", (7, 4, 4), (4, 2)), ("linalg.solve", (4, 4), (7, 4, 2)),
       ("linalg.solve", (1, 4, 4), (7, 4, 2)), ("linalg.solve", (3, 2, 4, 4), (2, 4, 1))]


def compare(name, inputs, threads, **keywords):
    dtype = numpy.result_type(*inputs, "c8" if "eig" in name and "h" not in name else "?")
    assert in_parts(BY_NAME[name], inputs, threads, options(**keywords), dtype) > 1


@pytest.mark.parametrize("threads", [2, 3, 16])
@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("dtype", ["f8", "c16"])
def test_parts_are_put_together(name, threads, dtype, small):
    compare(name, [matrices(*shape, dtype=dtype) for shape in CALLS[name]], threads)


@pytest.mark.parametrize("name, left, right", TWO, ids=str)
def test_two_inputs(name, left, right, small):
    compare(name, [matrices(*shape) if len(shape) > 1 else numpy.arange(1.0, 1 + shape[0])
                   for shape in (left, right)], 2)


def test_triangular_factors_alone(small):
    compare("linalg.qr_r", [matrices(7, 4, 3)], 2, mode="r")


@pytest.mark.parametrize("name", ["linalg.cholesky", "linalg.eigh", "linalg.eigvalsh"])
def test_of_definite_matrices(name, small):
    keywords = {} if name == "linalg.cholesky" else {"UPLO": "L"}
    compare(name, [definite(matrices(7, 4, 4))], 2, **keywords)


@pytest.mark.parametrize("shapes", [
    [(4, 4)], [(0, 4, 4)], [(7, 0, 0)], [(7, 400, 400)], [(1, 4, 4)], [(4,), (4,)], [(7, 4, 4)],
], ids=str)
def test_what_one_thread_does(shapes):
    inputs = [numpy.ones(shape) for shape in shapes]
    assert shared_calls.shared_out(BY_NAME["matmul"], (), inputs, 8) is None


@pytest.mark.parametrize("place", [0, 6])
def test_a_singular_matrix_among_them(place, small):
    x = matrices(7, 4, 4)
    x[place] = 0
    with config.override(threads=2, compile="wait"), pytest.raises(
            numpy.linalg.LinAlgError, match="Singular matrix"):
        np.linalg.inv(np.array(x)).tolist()


# ---- along axes ------------------------------------------------------------------------------

SHAPES = st.lists(st.integers(1, 9), min_size=2, max_size=4).map(tuple)
DTYPES = st.sampled_from(["f8", "f4", "c16", "c8", "i4", "u1", "?"])
THREADS = st.sampled_from([2, 3, 16])
quickly = settings(max_examples=80, deadline=None,
                   suppress_health_check=[HealthCheck.function_scoped_fixture])


@st.composite
def arrays(draw, shapes=SHAPES, dtypes=DTYPES):
    """Arrays as calls get them: dense, or views of others, or broadcast."""
    shape, dtype = draw(shapes), numpy.dtype(draw(dtypes))
    random = numpy.random.default_rng(draw(st.integers(0, 9)))
    how = draw(st.sampled_from(["dense", "turned", "strided", "broadcast"]))
    made = {"turned": shape[::-1], "strided": tuple(2 * n for n in shape),
            "broadcast": (1, *shape[1:])}.get(how, shape)
    x = random.normal(size=made) * 4
    x = (x + 1j * random.normal(size=made) if dtype.kind == "c" else abs(x)).astype(dtype)
    if how == "strided":
        return x[tuple(slice(None, None, -2) for _ in shape)]
    return x.T if how == "turned" else numpy.broadcast_to(x, shape)


def axis_of(data, x):
    return data.draw(st.integers(0, x.ndim - 1), label="axis")


def shares_or_is_short(op, inputs, threads, attrs, dtype):
    """Compare where there is an axis to cut; all of the other axes may be of length 1."""
    assume(shared_calls.shared_out(op, attrs, inputs, threads) is not None)
    assert in_parts(op, inputs, threads, attrs, dtype) > 1


@quickly
@given(st.data(), arrays(), THREADS,
       st.sampled_from(["fft", "ifft", "rfft", "irfft", "hfft", "ihfft"]),
       st.sampled_from([None, "ortho", "forward", "backward"]),
       st.sampled_from([None, 1, 2, 5, 16]))
def test_transforms_along_an_axis(small, data, x, threads, name, norm, n):
    axis = axis_of(data, x)
    if name in ("rfft", "ihfft"):
        x = x.real
    if n is None:
        n = 2 * (x.shape[axis] - 1) if name in ("irfft", "hfft") else x.shape[axis]
    assume(n > 0)
    wanted = getattr(numpy.fft, name)(x, n=n, axis=axis, norm=norm)
    op = BY_NAME[f"fft.{name}"]
    shares_or_is_short(op, [x], threads, options(n=n, axis=axis, norm=norm), wanted.dtype)


@quickly
@given(st.data(), arrays(), THREADS, st.sampled_from(["fftn", "ifftn", "rfftn", "irfftn"]),
       st.sampled_from([None, "ortho", "forward"]))
def test_transforms_along_axes(small, data, x, threads, name, norm):
    axes = tuple(data.draw(st.lists(st.integers(0, x.ndim - 1), min_size=1, unique=True)))
    axes = tuple(axis - x.ndim if data.draw(st.booleans()) else axis for axis in axes)
    s = tuple(data.draw(st.integers(1, 8)) for _ in axes)
    if name == "rfftn":
        x = x.real
    wanted = getattr(numpy.fft, name)(x, s=s, axes=axes, norm=norm)
    shares_or_is_short(BY_NAME[f"fft.{name}"], [x], threads, options(s=s, axes=axes, norm=norm),
                       wanted.dtype)


@quickly
@given(st.data(), arrays(), THREADS, st.sampled_from([None, "stable", "heapsort"]))
def test_sorting(small, data, x, threads, kind):
    attrs = axis_of(data, x), kind
    shares_or_is_short(indexing.sort, [x], threads, attrs, x.dtype)
    shares_or_is_short(indexing.argsort, [x], threads, attrs, numpy.intp)


@quickly
@given(st.data(), arrays(), THREADS)
def test_dividing(small, data, x, threads):
    axis = axis_of(data, x)
    kth = data.draw(st.integers(0, x.shape[axis] - 1))
    for name in ("partition", "argpartition"):
        attrs = options(axis=axis, kth=data.draw(st.sampled_from([kth, (kth, 0)])))
        dtype = x.dtype if name == "partition" else numpy.intp
        shares_or_is_short(BY_NAME[name], [x], threads, attrs, dtype)


@quickly
@given(st.data(), arrays(dtypes=st.sampled_from(["f8", "f4", "i4"])), THREADS, st.booleans())
def test_order_statistics(small, data, x, threads, keepdims):
    axis = axis_of(data, x)
    if data.draw(st.booleans()) and x.ndim > 2:
        axis = tuple(data.draw(st.permutations(range(x.ndim)))[:2])
    dtype = numpy.median(x).dtype
    attrs = options(axis=axis, keepdims=keepdims)
    shares_or_is_short(BY_NAME["median"], [x], threads, attrs, dtype)
    q = data.draw(st.sampled_from([0.3, (0.1, 0.5, 0.9), ()]))
    attrs = options(axis=axis, keepdims=keepdims, q=q, method="linear")
    shares_or_is_short(BY_NAME["quantile"], [x], threads, attrs, dtype)


@quickly
@given(st.data(), arrays(), THREADS)
def test_several_inputs_of_one_rank(small, data, x, threads):
    axis = axis_of(data, x)
    places = numpy.argsort(abs(x), axis=axis)
    for taken in (places, places.take([0], axis), places - x.shape[axis],
                  places.take([0], (axis + 1) % x.ndim)):
        attrs = options(axis=axis)
        shares_or_is_short(BY_NAME["take_along_axis"], [x, taken], threads, attrs, x.dtype)
    keys = [x, abs(x) > 2]
    shares_or_is_short(BY_NAME["lexsort"], keys, threads, options(axis=axis), numpy.intp)


# ---- elements, and places ----------------------------------------------------------------------


@quickly
@given(arrays(dtypes=st.sampled_from(["f8", "f4", "i4"])), THREADS)
def test_tables(small, x, threads):
    table = numpy.array([0.5, 1, 1, 2.5, 7])
    attrs = options(side="right")
    shares_or_is_short(BY_NAME["searchsorted"], [table, x], threads, attrs, numpy.intp)
    attrs = options(right=True)
    shares_or_is_short(BY_NAME["digitize"], [x, table[::-1]], threads, attrs, numpy.intp)
    attrs = options(left=None, right=-1.0, period=None)
    shares_or_is_short(BY_NAME["interp"], [x, table, table ** 2], threads, attrs, table.dtype)


@pytest.mark.parametrize("table", [[3.0, 1, 2], [1, numpy.nan, 2]])
def test_what_is_out_of_order_is_found_as_numpy_finds_it(small, table):
    x, table = numpy.linspace(0, 4, 64), numpy.array(table)
    attrs = options(side="left")
    assert in_parts(BY_NAME["searchsorted"], [table, x], 4, attrs, numpy.intp) == 0
    attrs = options(left=None, right=None, period=None)
    assert in_parts(BY_NAME["interp"], [x, table, table], 4, attrs, x.dtype) == 0


@quickly
@given(st.data(), arrays(), THREADS, st.sampled_from(["i8", "i4", "u1", "u8", "i2"]))
def test_gathering(small, data, x, threads, dtype):
    axis = axis_of(data, x)
    shape = data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=3))
    least = 0 if dtype[0] == "u" else -x.shape[axis]
    places = numpy.random.default_rng(0).integers(least, x.shape[axis], shape).astype(dtype)
    template = (*":" * axis, "at", *":" * (x.ndim - axis - 1))
    assume(places.shape != (1,) * places.ndim)
    index = (slice(None),) * axis + (places,)
    shared = shared_calls.shared_out(indexing.take, template, [x, places], threads)
    wanted = x[index]
    found = shared(memory, x, places, attrs=template, shape=wanted.shape, dtype=x.dtype)
    same_bits(found, wanted)
    same_bits(indexing.take.reference(numpy, x, places, attrs=template, shape=wanted.shape,
                                      dtype=x.dtype), wanted)


@pytest.mark.parametrize("wrong", [5, -6, 2**63 - 1])
@pytest.mark.parametrize("place", [0, 7, 31])
def test_places_that_are_beyond(small, wrong, place):
    x, places = numpy.zeros((5, 3)), numpy.arange(32) % 5
    places[place] = wrong
    shared = shared_calls.shared_out(indexing.take, ("at", ":"), [x, places], 4)
    with pytest.raises(IndexError) as ours:
        shared(memory, x, places, attrs=("at", ":"), shape=(32, 3), dtype=x.dtype)
    with pytest.raises(IndexError) as theirs:
        x[places]
    assert str(ours.value) == str(theirs.value)


# ---- what comes to be shared -------------------------------------------------------------------


def test_transforms_of_half_precision_stay_one_call(small):
    x, attrs = numpy.ones((9, 8), "f2"), options(n=8, axis=1, norm="ortho")
    wanted = numpy.fft.fft(x, norm="ortho").dtype
    assert in_parts(BY_NAME["fft.fft"], [x], 4, attrs, wanted) == 0


def test_order_statistics_of_all_axes_stay_one_call(small):
    attrs = options(axis=None, keepdims=False)
    assert shared_calls.shared_out(BY_NAME["median"], attrs, [numpy.ones((9, 8))], 4) is None


def test_what_is_not_worth_it():
    x, attrs = numpy.ones((64, 64)), options(n=64, axis=1, norm=None)
    assert shared_calls.shared_out(BY_NAME["fft.fft"], attrs, [x], 8) is None
    x, attrs = numpy.ones((1, 1 << 21)), options(n=1 << 21, axis=1, norm=None)
    assert shared_calls.shared_out(BY_NAME["fft.fft"], attrs, [x], 8) is None
    x, attrs = numpy.ones((1024, 1024)), options(n=1024, axis=1, norm=None)
    assert shared_calls.shared_out(BY_NAME["fft.fft"], attrs, [x], 1) is None
    assert shared_calls.shared_out(BY_NAME["fft.fft"], attrs, [x], 8) is not None


def solved(xp, x):
    turned = xp.fft.rfft2(x * 2)
    return xp.fft.irfft2(turned * 3, s=x.shape), xp.sort(x, 0) + 1, xp.take(x, [3, 1], 1) * 2


@pytest.mark.parametrize("compiling", ["wait", "never"])
def test_all_tiers_share_their_calls_out(monkeypatch, small, compiling):
    parts = []

    def noted(work, pieces, threads):
        parts.append(len(pieces))
        in_turns(work, pieces, threads)

    in_turns = shared_calls.in_turns
    monkeypatch.setattr(shared_calls, "in_turns", noted)
    x = matrices(40, 24)
    with config.override(threads=3, compile=compiling, at_once=0), counted() as counts:
        for _ in range(4):
            found = [numpy.array(y) for y in solved(np, np.array(x))]
            for one, other in zip(found, solved(numpy, x), strict=True):
                numpy.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)
            assert len(parts) == 6 and set(parts) <= {2, 9}
            parts.clear()
    if compiling == "wait":
        assert counts["library calls"] == 16


def test_a_plan_shares_its_calls_out(monkeypatch, small):
    made = []

    def noted(op, *others):
        found = shared_calls.shared_out(op, *others)
        made.append((op.name, found is not None))
        return found

    monkeypatch.setattr(library_calls, "shared_out", noted)
    x = matrices(9, 5, 5)
    with config.override(threads=3, compile="wait"), counted() as counts:
        found = np.sin(np.array(x) + 1) @ np.array(x) * 2
        numpy.testing.assert_allclose(found, numpy.sin(x + 1) @ x * 2, rtol=1e-12)
    assert ("matmul", True) in made and counts["library calls"] == 1


def test_results_are_in_memory_of_their_own(small):
    x = matrices(40, 24)
    with config.override(threads=3, compile="wait", at_once=0):
        a = np.array(x)
        first, second = np.sort(a, 0), np.fft.fftn(a)
        first[0] = 9.0
        second[0] = 9.0
        same_bits(numpy.array(a), x)
        same_bits(numpy.array(np.sort(a, 0)), numpy.sort(x, 0))
        assert first[0, 0] == 9.0 and numpy.array(second)[0, 0] == 9.0


@pytest.mark.parametrize("name, n, shared", [
    ("sort", 300, False), ("sort", 700, True), ("argsort", 700, True), ("median", 700, True),
])
def test_settled_arrays_of_some_size_are_recorded_to_be_shared(monkeypatch, name, n, shared):
    used = []
    in_turns = shared_calls.in_turns
    monkeypatch.setattr(
        shared_calls, "in_turns", lambda *given: (used.append(1), in_turns(*given)))
    x = numpy.random.default_rng(0).normal(size=(n, n))
    with config.override(threads=2):
        found = getattr(np, name)(np.array(x), axis=0)
        same_bits(numpy.array(found), getattr(numpy, name)(x, axis=0))
    assert bool(used) == shared
