"""Windows that slide: views that kernels read through, of which nothing is stored."""

import functools
import shutil

import numpy
import pytest

import tiledarray as np
from tests.emulation import emulated
from tests.gradients import check, real
from tests.plans import DEVICE, HOST, kinds, moved, nbytes, planned
from tiledarray import config
from tiledarray.fusion.plan import Call
from tiledarray.gradients import notation

ours = np.lib.stride_tricks.sliding_window_view
numpys = numpy.lib.stride_tricks.sliding_window_view
WEIGHTS = numpy.arange(1.0, 6.0)


@pytest.fixture(params=["recorded", "at once", "op by op"])
def way(request):
    options = {"recorded": {"at_once": 0, "compile": "wait", "verify": True, "first_seconds": 0},
               "at once": {"at_once": 1 << 19}, "op by op": {"at_once": 0, "compile": "never"}}
    with config.override(**options[request.param]):
        yield


@pytest.fixture
def recorded():
    with config.override(at_once=0, compile="wait", first_seconds=0, verify=True):
        yield


def line(size, dtype="f8"):
    return numpy.random.default_rng(0).normal(size=size).astype(dtype)


PROGRAMS = {
    "mean": lambda np, view, x: view(x, 50).mean(-1),
    "maximum": lambda np, view, x: view(x, 7).max(axis=1),
    "deviation": lambda np, view, x: view(x, 20).std(-1),
    "variance of few": lambda np, view, x: view(x, 5).var(1, ddof=1),
    "weighted": lambda np, view, x: (view(x, 5) * WEIGHTS).sum(-1),
    "product": lambda np, view, x: view(x, 5) @ WEIGHTS,
    "product in front": lambda np, view, x: WEIGHTS @ view(x, 5).T,
    "matrix product": lambda np, view, x: view(x, 5) @ numpy.ones((5, 3)),
    "some of them": lambda np, view, x: view(x, 50)[::3].max(1),
    "backwards": lambda np, view, x: view(x, 9)[::-2, ::-1].cumsum(1),
    "one of them": lambda np, view, x: view(x, 50)[17],
    "a row of places": lambda np, view, x: view(x, 50)[:, 3] * 2,
    "themselves": lambda np, view, x: view(x, 3),
    "their elements": lambda np, view, x: view(x, 3).ravel(),
    "of a square": lambda np, view, x: view(x * x, 6).sum(1),
    "of a view": lambda np, view, x: view(x[::-3], 6).sum(1),
    "of windows": lambda np, view, x: view(view(x, 3), 4, axis=0).sum((1, 2)),
    "median": lambda np, view, x: np.median(view(x, 9), axis=-1),
    "sorted": lambda np, view, x: np.sort(view(x, 4), axis=1),
    "places of extrema": lambda np, view, x: view(x, 4).argmax(1),
    "centred": lambda np, view, x: view(x, 10) - view(x, 10).mean(-1, keepdims=True),
    "over windows": lambda np, view, x: view(x, 10).sum(0),
    "diagonal": lambda np, view, x: view(x, 10).diagonal(),
    "beside itself": lambda np, view, x: view(x, 4)[:, 0] * x[3:] + view(x, 4).sum(1),
    "with an axis more": lambda np, view, x: (view(x, 3)[:, None] * WEIGHTS[:, None]).sum((1, 2)),
    "image": lambda np, view, x: view(x.reshape(50, 80), (5, 5)).sum((-1, -2)),
    "image by weights": lambda np, view, x: np.einsum(
        "ijkl,k,l->ij", view(x.reshape(50, 80), (5, 5)), WEIGHTS, WEIGHTS),
    "pooling": lambda np, view, x: view(x.reshape(50, 80), (2, 2))[::2, ::2].max((2, 3)),
    "turned image": lambda np, view, x: view(x.reshape(50, 80).T, (5, 3))[1::2].sum((-1, -2)),
    "along an axis": lambda np, view, x: view(x.reshape(50, 80), 4, axis=0).prod(-1),
    "along an axis twice": lambda np, view, x: view(
        x.reshape(50, 80), (2, 3), axis=(0, 0)).prod((2, 3)),
    "along axes in turn": lambda np, view, x: view(
        x.reshape(50, 80), (2, 3), axis=(1, 0)).sum((2, 3)),
    "frames": lambda np, view, x: abs(np.fft.rfft(view(x, 64)[::16] * np.hanning(64))),
}


@pytest.mark.sampled(6)
@pytest.mark.parametrize("dtype", ["f8", "f4"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_of_windows(name, dtype, way):
    x = line(4000, dtype)
    wanted = PROGRAMS[name](numpy, numpys, x)
    found = PROGRAMS[name](np, ours, np.array(x))
    assert found.dtype == wanted.dtype and found.shape == wanted.shape
    close = 1e-10 if found.dtype.itemsize >= 8 and dtype == "f8" else 2e-4
    numpy.testing.assert_allclose(numpy.asarray(found), wanted, rtol=close, atol=close)
    jitted = np.jit(functools.partial(PROGRAMS[name], np, ours))
    for _ in range(2):
        numpy.testing.assert_allclose(
            numpy.asarray(jitted(np.array(x))), wanted, rtol=close, atol=close)


@pytest.mark.parametrize("target", [HOST, DEVICE], ids=["cpu", "cuda"])
@pytest.mark.parametrize("name", [
    "mean", "maximum", "deviation", "weighted", "product", "some of them", "over windows",
    "beside itself", "image", "pooling", "along an axis", "turned image"])
def test_windows_are_read_and_not_stored(name, target, recorded):
    x = np.array(line(4000))
    result = PROGRAMS[name](np, ours, x)
    plan = planned(result, target=target)
    assert len(plan.steps) == 1 and "call" not in kinds(plan)
    assert moved(plan) <= nbytes(x, result) + WEIGHTS.nbytes


def test_what_windows_are_of_is_computed_once(recorded):
    x = np.array(line(4000))
    squares = ours(x * x, 6)
    plan = planned(squares.sum(1))
    assert len(plan.steps) == 2 and moved(plan) < 6 * x.nbytes


@pytest.mark.parametrize("call", [
    lambda windows: np.einsum("ij,jk->ik", windows, numpy.ones((5, 3))),
    lambda windows: np.sort(windows, axis=-1), lambda windows: windows @ numpy.ones((5, 3))])
def test_calls_are_given_views(call, recorded):
    result = call(ours(np.array(line(4000)), 5))
    assert [type(step) for step in planned(result).steps] == [Call]


def test_where_a_window_begins_is_no_part_of_the_plan(recorded):
    x = np.array(line(4000))
    forms = {ours(x, 50)[k:k + 9, ::2].sum(1).node.form for k in range(5)}
    assert len(forms) == 1
    for k in range(3):
        assert numpy.asarray(ours(x, 50)[k:k + 9].sum(1)) == pytest.approx(
            numpys(numpy.asarray(x), 50)[k:k + 9].sum(1))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("emulated")


@pytest.mark.sampled(6)
@pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ to emulate with")
@pytest.mark.parametrize("dtype", ["f8", "f4"])
@pytest.mark.parametrize("name", [
    "mean", "maximum", "deviation", "weighted", "product", "some of them", "backwards", "centred",
    "of a square", "of a view", "over windows", "their elements", "beside itself", "image",
    "pooling", "turned image", "along an axis twice", "places of extrema"])
def test_kernels_for_a_gpu(name, dtype, folder):
    def program(np, x):
        return PROGRAMS[name](np, np.lib.stride_tricks.sliding_window_view, x)

    x = line(4000, dtype)
    with config.override(at_once=0):
        _, (found,) = emulated(program, x, folder=folder)
    close = 1e-10 if dtype == "f8" else 2e-4
    numpy.testing.assert_allclose(found, program(numpy, x), rtol=close, atol=close)


# ---- views ---------------------------------------------------------------------------------------


def test_windows_are_views_that_nobody_writes_to(way):
    x = np.arange(24.0).reshape(2, 3, 4)
    expected = numpy.arange(24.0).reshape(2, 3, 4)
    windows, views = ours(x, (2, 2), axis=(1, 2)), numpys(expected, (2, 2), axis=(1, 2))
    row = windows[0]
    for part in (windows, row, windows.T):
        assert not part.flags.writeable and not part.flags.owndata
        with pytest.raises(ValueError, match="read-only"):
            part[0] = 7
        with pytest.raises(ValueError, match="read-only"):
            part += 7
    x += 1
    expected += 1
    x[1, 1] = -5
    expected[1, 1] = -5
    assert windows.strides == views.strides
    assert np.shares_memory(windows, x)
    numpy.testing.assert_array_equal(numpy.asarray(windows), views)
    with config.override(at_once=0):  # from here on what is computed of them is recorded
        numpy.testing.assert_array_equal(numpy.asarray(row * 2), views[0] * 2)
        with pytest.raises(ValueError, match="read-only"):
            windows[0] = 7


def write_over(windows, xp):
    windows[5] = 7.0
    windows[0:9] = xp.arange(27.0).reshape(9, 3)
    windows[3][1] = 99
    windows[windows > 20] = 0
    windows[:, 1][::2] = 4
    windows += 1
    windows.ravel()[:] = 5  # a copy


def test_windows_may_be_written_where_that_is_asked_for(way):
    x, expected = np.array(line(40)), line(40)
    write_over(ours(x, 3, writeable=True)[2:], np)
    write_over(numpys(expected, 3, writeable=True)[2:], numpy)
    numpy.testing.assert_array_equal(numpy.asarray(x), expected)


def test_parts_of_complex_windows_are_written(way):
    expected = line(40) + 1j
    x = np.array(expected)
    ours(x, 3, writeable=True).imag[4:6, 1:] = [[2, 3], [4, 5]]
    numpys(expected, 3, writeable=True).imag[4:6, 1:] = [[2, 3], [4, 5]]
    numpy.testing.assert_array_equal(numpy.asarray(x), expected)


def test_an_array_is_written_while_its_windows_are_read(way):
    @np.jit
    def smooth(x):
        x[1:-1] = ours(x, 3).mean(-1)
        return x

    x, expected = np.array(line(4000)), line(4000)
    for _ in range(3):
        smooth(x)
        x[1:-1] += ours(x, 3).max(-1)
        expected[1:-1] = numpys(expected, 3).mean(-1)
        expected[1:-1] += numpys(expected, 3).max(-1)
    numpy.testing.assert_allclose(numpy.asarray(x), expected, rtol=1e-12)


@pytest.mark.parametrize(("shape", "window", "axis"), [
    ((4,), 5, None), ((4, 4), 2, None), ((4,), -1, None), ((4,), 2, 1), ((4, 4), (2, 2), 0)])
def test_errors_are_numpys(shape, window, axis):
    with pytest.raises(Exception) as wanted:
        numpys(numpy.zeros(shape), window, axis)
    with pytest.raises(wanted.type) as found:
        ours(np.zeros(shape), window, axis)
    assert str(found.value) == str(wanted.value)


def test_windows_without_elements():
    assert ours(np.zeros((0, 3)), 0, axis=0).sum(-1).shape == (1, 3)
    assert ours(np.zeros((0, 3)), 2, axis=1).sum(-1).shape == (0, 2)


@pytest.mark.parametrize("at_once", [0, 1000])
@pytest.mark.parametrize("frozen", [
    lambda windows: np.broadcast_to(windows, (2, *windows.shape)),
    lambda windows: setattr(windows.flags, "writeable", False) or windows,
    lambda windows: np.broadcast_to(windows.real, (2, *windows.shape))])
def test_windows_that_were_made_read_only_are_not_written(frozen, at_once):
    with config.override(at_once=at_once):
        x = np.array(line(9)) * 1.0
        view = frozen(ours(x, 3, writeable=True))
        with pytest.raises(ValueError, match="read-only"):
            view[...] = 0
        numpy.testing.assert_array_equal(numpy.asarray(x), line(9))


# ---- gradients -----------------------------------------------------------------------------------

X, M = real(12), real(6, 7)
FUNCTIONS = {
    "products": (lambda x: ours(x * x, 3).prod(axis=1), X),
    "means": (lambda x: ours(x, 4).mean(-1) ** 2, X),
    "maxima": (lambda x: ours(x * x, 4).max(-1), X),
    "deviations": (lambda x: ours(x, 4).std(-1), X),
    "weighted": (lambda x, w: (ours(x, 5) * w).sum(-1), X, real(5)),
    "a product": (lambda x, w: ours(x, 5) @ w, X, real(5)),
    "few long windows": (lambda x: ours(x, 10) ** 2, X),
    "some of them": (lambda x: ours(x, 6)[::3].cumsum(1), X),
    "backwards": (lambda x: ours(x[::-1], 4)[::-2, ::-1].cumsum(1), X),
    "one of them": (lambda x: ours(x, 6)[2] ** 2, X),
    "their diagonal": (lambda x: ours(x, 4).diagonal() ** 2, X),
    "of windows": (lambda x: (ours(ours(x, 3), 4, axis=0) ** 2).sum((1, 2)), X),
    "broadcast": (lambda x: ours(x, 4)[:, None] * WEIGHTS[:, None], X),
    "image": (lambda m: (ours(m, (3, 2)) ** 2).sum((-1, -2)), M),
    "pooling": (lambda m: ours(m * m, (2, 2))[::2, ::2].max((2, 3)), M),
    "along an axis": (lambda m: ours(m, 4, axis=0).prod(-1), M),
    "along an axis twice": (lambda m: ours(m, (2, 3), axis=(0, 0)).prod((2, 3)), M),
    "along axes in turn": (lambda m: ours(m, (2, 3), axis=(1, 0)).prod((2, 3)), M),
    "complex": (lambda x: (ours(x * (1 + 2j), 3) ** 2).sum(1), X),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("few", [notation.FEW, 0], ids=["one by one", "at once"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_derivatives(name, few, monkeypatch):
    monkeypatch.setattr(notation, "FEW", few)
    function, *arrays = FUNCTIONS[name]
    check(function, *arrays)


def test_derivatives_through_what_is_written():
    def written(x):
        x = x.copy()
        windows = ours(x, 3, writeable=True)
        windows[4] = windows[0] ** 2
        windows[6:8] = x[0] * windows[2:4]  # the last counts where they overlap
        return x * x

    check(written, X)


def test_a_gradient_stores_no_windows(recorded):
    x = np.array(line(4000))
    slope = np.grad(lambda x: (ours(x, 50).mean(-1) ** 2).sum())(x)
    stored = [store.access.value.nbytes for kernel in planned(slope).kernels
              for part in kernel.parts for store in part.stores]
    assert max(stored) <= x.nbytes


def test_a_gradient_of_many_places_is_few_kernels(recorded):
    x = np.array(line(4000))
    slope = np.grad(lambda x: (ours(x, 500).mean(-1) ** 2).sum())(x)
    plan = planned(slope)
    assert len(plan.kernels) <= 4
    stored = [store.access.value.nbytes for kernel in plan.kernels
              for part in kernel.parts for store in part.stores]
    assert max(stored) <= 1.3 * x.nbytes


def test_windows_of_samples():
    samples = np.array(line(60).reshape(3, 20))
    found = np.vmap(lambda x: ours(x, 4)[1:].max(-1))(samples)
    wanted = numpys(numpy.asarray(samples), 4, axis=1)[:, 1:].max(-1)
    numpy.testing.assert_array_equal(numpy.asarray(found), wanted)
