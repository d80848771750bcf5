"""Tables of all pairs of the same points on a GPU, of which each pair is met once; emulated."""

import shutil
from dataclasses import replace

import numpy
import pytest

from tests.emulation import emulated
from tiledarray.fusion import limits
from tiledarray.recording.stretch import local

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ to emulate with")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("emulated")


def density(np, x, w):
    return np.exp(-3 * ((x[:, None] - x[None]) ** 2).sum(-1)).sum(1)


def log_density(np, x, w):
    return np.log(np.exp(-((x[:, None] - x[None]) ** 2).sum(-1)).mean(1)) * w


def over_the_other(np, x, w):
    return np.exp(-((x[:, None] - x[None]) ** 2).sum(-1)).sum(0)


def forces(np, x, w):
    d = x[None] - x[:, None]
    r2 = (d * d).sum(-1) + 0.01
    return ((w[None] * r2 ** -1.5)[:, :, None] * d).sum(1)


def energies(np, x, w):
    d = x[:, None] - x[None]
    return (w[:, None] * w[None] / np.sqrt((d * d).sum(-1) + 0.01)).sum(1)


def weighted(np, x, w):
    k = np.exp(-abs(x[:, None, 0] - x[None, :, 0]))
    return (k * w[None]).sum(1) / k.sum(1)


def of_differences(np, x, w):
    d = x[:, None, 0] - x[None, :, 0]
    return (d ** 3 + d).sum(1) + (d * w[None]).sum(1)


def heaviest(np, x, w):
    d = x[:, None, 0] - x[None, :, 0]
    return np.where(d > 0, np.exp(d), d * d * d + w[None]).sum(1)


def before(np, x, w):
    n = len(x)
    later = np.arange(n)[:, None] < np.arange(n)
    d = ((x[:, None] - x[None]) ** 2).sum(-1)
    return np.where(later, np.exp(-d), 0.25 * d).sum(1)


def divided(np, x, w):
    d = x[:, None, 0] - x[None, :, 0]
    return (1 / (d + np.where(d == 0, 2, 0))).sum(1)


PROGRAMS = [density, log_density, over_the_other, forces, energies, weighted, of_differences,
            heaviest, before, divided]


@pytest.fixture(params=[64, 128], ids=["tiles of 64", "tiles of 128"])
def small_tiles(request, monkeypatch):
    monkeypatch.setattr(limits, "GPU", replace(
        limits.GPU, mirror_tiles=(request.param,), mirror_blocks=1e-6))


def checked(program, n, dtype, folder, *, seed=0, tolerance=None):
    random = numpy.random.default_rng(seed)
    x, w = random.random((n, 3)).astype(dtype), random.random(n).astype(dtype)
    with numpy.errstate(all="ignore"):
        expected = program(numpy, x.astype("f8"), w.astype("f8"))
    local.recorder.reset()
    plan, found = emulated(program, x, w, folder=folder)
    tolerance = tolerance or (1e-4 if dtype == "f4" else 1e-11)
    numpy.testing.assert_allclose(
        found[0], expected, rtol=tolerance, atol=tolerance * abs(expected).max())
    return plan


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_values(program, dtype, small_tiles, folder):
    for n in (256, 150):  # whole tiles, and others
        plan = checked(program, n, dtype, folder)
    if program in (density, log_density, over_the_other):
        (kernel,) = plan.kernels
        assert len(kernel.mirrors) == 1
