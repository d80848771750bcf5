"""Transforms of real arrays, and the real parts of inverse ones, on a real CUDA device."""

import numpy
import pytest

import tiledarray as np
from tiledarray import config
from tiledarray.recording.stretch import local

pytestmark = pytest.mark.gpu

CASES = [((8,), None), ((9,), None), ((1,), None), ((2,), None), ((6, 7), (0, 1)), ((7, 6), (0, 1)),
         ((7, 6), (1, 0)), ((1, 5), (0, 1)), ((5, 1), (0, 1)), ((3, 4, 5), (0, 2)),
         ((3, 4, 5), (1,)), ((4, 3, 6), (2, 0, 1)), ((2, 5, 4, 3), (-1, 1)), ((300, 1000), (0,)),
         ((257, 513), (0, 1)), ((0, 4), (1,))]


@pytest.fixture(autouse=True)
def on_device(a_device):
    local.recorder.reset()
    with np.device("cuda"), config.override(compile="wait", at_once=0):
        yield
    local.recorder.reset()


def drawn(shape, dtype, seed=0):
    values = numpy.random.default_rng(seed)
    if numpy.dtype(dtype).kind == "c":
        return (values.normal(size=shape) + 1j * values.normal(size=shape)).astype(dtype)
    return (8 * values.normal(size=shape)).astype(dtype)


def agree(program, *inputs):
    # NumPy divides the spectrum of half precision by a length that it has rounded to that.
    want = program(numpy, *(x.astype("f4") if x.dtype.char == "e" else x for x in inputs))
    found = program(np, *map(np.array, inputs))
    assert (found.dtype, found.shape) == (want.dtype, want.shape)
    unit = numpy.finfo(want.dtype).eps * max(abs(want).max(initial=0), 1)
    assert abs(found.numpy() - want).max(initial=0) <= 64 * unit


@pytest.mark.parametrize("norm", [None, "ortho", "forward"])
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i4", "?"])
@pytest.mark.parametrize("shape, axes", CASES)
def test_of_real_arrays(shape, axes, dtype, norm):
    x = drawn(shape, dtype)
    if axes is None or len(axes) == 1:
        axis = -1 if axes is None else axes[0]
        agree(lambda np, x: np.fft.fft(x, axis=axis, norm=norm), x)
    agree(lambda np, x: np.fft.fftn(x, axes=axes, norm=norm), x)


@pytest.mark.parametrize("norm", [None, "ortho", "forward"])
@pytest.mark.parametrize("dtype", ["c8", "c16", "f4"])
@pytest.mark.parametrize("shape, axes", CASES)
def test_real_parts(shape, axes, dtype, norm):
    x = drawn(shape, dtype)
    if axes is None or len(axes) == 1:
        axis = -1 if axes is None else axes[0]
        agree(lambda np, x: np.fft.ifft(x * 2, axis=axis, norm=norm).real + 1, x)
    agree(lambda np, x: np.fft.ifftn(x, axes=axes, norm=norm).real, x)
    agree(lambda np, x: np.fft.irfftn(x, axes=axes, norm=norm) * 3 if shape[(axes or (-1,))[-1]] > 1
          else x.real, x)


@pytest.mark.parametrize("s", [(4, 9), (9, 4), (5, 6)])
def test_lengths(s):
    x, z = drawn((5, 6), "f4"), drawn((5, 6), "c8")
    agree(lambda np, x: np.fft.fft2(x, s=s), x)
    agree(lambda np, x: np.fft.fft(x, n=s[0], axis=0), x)
    agree(lambda np, z: np.fft.ifft2(z, s=s).real, z)
    agree(lambda np, z: np.fft.irfft2(z, s=s) * 2 - 1, z)


def test_views_and_what_is_read_twice():
    x, z = drawn((60, 50), "f4"), drawn((60, 50), "c8")
    agree(lambda np, x: np.fft.fft2(x.T), x)
    agree(lambda np, x: np.fft.fft2(x[::-2, 3:]), x)
    agree(lambda np, z: np.fft.ifft2(z.T).real, z)

    def both(np, z):
        found = np.fft.ifft2(z)
        return found.real + 2 * found.imag + abs(found)

    agree(both, z)

    def source_stays(np, z):
        twice = z * 2
        return np.fft.irfft2(twice[:, :26], s=(60, 50)) + np.fft.ifft2(twice).real + twice.real

    agree(source_stays, z)


def test_what_is_not_finite():
    x = drawn((6, 8), "f4")
    x[2, 3] = numpy.nan
    assert numpy.isnan(np.fft.fft2(np.array(x)).numpy()).all()
    assert numpy.isnan(np.fft.ifft2(np.array(x + 0j)).real.numpy()).all()


K = numpy.fft.fftfreq(60).astype("f4")[:, None]
H = (K**2 + 1j * numpy.fft.fftfreq(50)).astype("c8")


@pytest.mark.parametrize("program", [
    lambda np, x: np.fft.ifft2(np.fft.fft2(x) * K).real,
    lambda np, x: np.fft.ifft2(np.fft.fft2(x) * 2.0).real,
    lambda np, x: np.fft.ifft2(2j * np.fft.fft2(x) * K).real,
    lambda np, x: np.fft.ifft2(np.fft.fft2(x) * H / (1 + K * K) * 3.0).real,
    lambda np, x: np.fft.ifft2(-np.fft.fft2(x, norm="ortho") / (3 + H)).real,
    lambda np, x: np.fft.ifft(np.fft.fft(x, axis=0) * H, axis=0).real * 2,
    lambda np, x: np.fft.ifft(np.fft.fft(x[:, :37]) * H[:, :37]).real,
    lambda np, x: np.fft.ifft2(np.fft.fft2(x, s=(59, 33)) * H[:59, :33]).real,
    lambda np, x: np.fft.ifft2(np.fft.fft2(x, axes=(1, 0)) * H, axes=(1, 0)).real,
    lambda np, x: np.fft.ifftn(np.fft.fftn(x.reshape(4, 15, 50), axes=(2, 0)) * H[0],
                               axes=(2, 0)).real])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_filters(program, dtype):
    agree(program, drawn((60, 50), dtype))


def test_equal_halves_have_one_inverse():
    z = np.array(drawn((1, 50), "c8"))
    found = [np.fft.ifftn(z, axes=axes).real for axes in ((0, 1), (1,), (1, 0))]
    np.evaluate(*found)
    for each in found:
        assert abs(each.numpy() - numpy.fft.ifft(z.numpy()).real).max() < 1e-5


def test_what_an_inverse_overwrites_is_read_by_nobody_else():
    z = drawn((60, 26), "c8")
    agree(lambda np, z: np.fft.irfft2(z * 2), z)
    agree(lambda np, z: np.fft.irfft(z * 2, axis=0), z)
    agree(lambda np, z: np.fft.irfft2(z * 2) + abs(z * 2).sum(), z)
    kept = np.array(z)
    for _ in range(3):
        found = np.fft.irfft2(kept * 1) - np.fft.irfft2(kept)
        assert abs(found.numpy()).max() < 1e-5
    assert (kept.numpy() == z).all()
