"""Kernels of tiles on a real CUDA device: values, random programs, transforms, failures."""

from dataclasses import replace

import numpy
import pytest

import tiledarray as np
from benchmarks.workloads import likelihoods
from tests import test_tile_programs as programs
from tests import test_tiles as cases
from tests.plans import forget_plans
from tiledarray import config
from tiledarray.fusion import limits
from tiledarray.fusion.tiles import find
from tiledarray.recording.stretch import local

pytestmark = pytest.mark.gpu

WIDE = {"f": "f8", "F": "c16"}
LENGTHS = [1, 2, 8, 15, 64, 77, 360, 1000, 1024, 2048]


@pytest.fixture(autouse=True)
def on_device(a_device, monkeypatch):
    local.recorder.reset()
    forget_plans(monkeypatch)
    monkeypatch.setattr(find, "_gain", lambda region: 1)
    monkeypatch.setattr(limits, "GPU", replace(limits.GPU, problems=2, problem_flops=1))
    with (np.device("cuda"), numpy.errstate(all="ignore"),
          config.override(compile="wait", verify=True, at_once=0, linalg_errors="deferred")):
        yield
    local.recorder.reset()


@pytest.fixture(params=["teams", "threads"])
def each(request, monkeypatch):
    """What has a problem, where it is small."""
    few = 0 if request.param == "threads" else 1 << 40
    monkeypatch.setattr(limits, "GPU", replace(limits.GPU, thread_problems=few))


def agree(program, *inputs, times=1):
    """The device is off by about as much as LAPACK is; ``times`` what is allowed beyond that."""
    exact = program(numpy, *(x.astype(WIDE.get(x.dtype.char, x.dtype)) for x in inputs))
    want = program(numpy, *inputs)
    found = program(np, *map(np.array, inputs))
    several = isinstance(want, tuple)
    results = found if several else (found,)
    np.evaluate(*results)
    for mine, theirs, best in zip(
            results, want if several else (want,), exact if several else (exact,), strict=True):
        assert (mine.dtype, mine.shape) == (theirs.dtype, theirs.shape)
        unit = numpy.finfo(theirs.dtype).eps * abs(best).max(initial=0)
        # NumPy computes these in double; what is exact to it is not to single precision.
        rounded = 256 if theirs.dtype.char in "fF" else 2048
        off = abs(theirs - best).max(initial=0)
        assert abs(mine.numpy() - best).max(initial=0) <= times * (2 * off + rounded * unit)


@pytest.mark.usefixtures("each")
@pytest.mark.parametrize("dtype", ["f4", "f8", "c8", "c16"])
@pytest.mark.parametrize("shape", [(37, 5), (300, 8), (3, 7, 33), (130, 16), (9, 64), (1000, 2)])
@pytest.mark.parametrize("program", cases.PROGRAMS)
def test_linear_algebra(program, shape, dtype):
    n = shape[-1]
    x = cases.drawn(*shape, n, dtype=dtype) / numpy.asarray(n ** 0.5, dtype)
    agree(program, x, cases.drawn(*shape, 2, dtype=dtype, seed=1))


@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("dtype", ["c8", "c16"])
def test_transforms(n, dtype):
    x, h = cases.drawn(50, n, dtype=dtype), cases.drawn(n, dtype=dtype, seed=1)
    agree(lambda np, x, h: np.fft.ifft(np.fft.fft(x) * h), x, h)
    agree(lambda np, x, h: abs(np.fft.fft(x * h)) ** 2, x, h)
    agree(lambda np, x, h: np.fft.irfft(np.fft.rfft(x.real * 2.0), n=n) * h.real, x, h)
    agree(lambda np, x, h: np.fft.fft(np.swapaxes(x, 0, 1) * 2, axis=0), x, h)


@pytest.mark.parametrize(("program", "n"), cases.TRANSFORMS)
def test_transforms_of_all_kinds(program, n):
    agree(program, cases.drawn(50, 3, n, dtype="c8"), cases.drawn(n, dtype="c8", seed=1))


@pytest.mark.usefixtures("each")
@pytest.mark.parametrize("seed", range(60))
def test_random_programs(seed):
    made = programs.Made(10_000 + seed)
    agree(made, *made.inputs, times=8)


@pytest.mark.usefixtures("each")
@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("count, n", [(300, 5), (40, 33), (300, 64), (20, 100)])
def test_equations_of_what_is_factored_too(count, n, dtype):
    def program(np, points, right):
        k = np.exp(-(points[:, :, None] - points[:, None]) ** 2)
        k = k + np.asarray(2.0, dtype) * np.eye(n, dtype=dtype)
        factor = np.linalg.cholesky(k)
        return factor, np.linalg.solve(k, right), np.linalg.solve(k.mT, 2 * right)[..., 0] + 1

    points, right = (cases.drawn(count, n, *k, dtype=dtype, seed=len(k)) for k in ((), (3,)))
    agree(program, points, right)


@pytest.mark.parametrize("traced", [False, True])
@pytest.mark.parametrize("count", [2, 500])
def test_the_gradient_of_gaussian_processes(count, traced):
    inputs = likelihoods.setup_process(count, 0)
    want = likelihoods.process_by_hand(*inputs)
    function = np.value_and_grad(
        lambda x, y, logs: likelihoods.process(np, x, y, logs), argnums=2)
    found = (np.jit(function) if traced else function)(*map(np.array, inputs))
    for mine, theirs in zip(found, want, strict=True):
        numpy.testing.assert_allclose(mine.numpy(), theirs, rtol=1e-9, atol=1e-9)


@pytest.mark.usefixtures("each")
@pytest.mark.parametrize("function, message", [
    ("cholesky", "Matrix is not positive definite"), ("inv", "Singular matrix")])
def test_failures_tell_the_matrix(function, message):
    x = numpy.eye(8) + numpy.zeros((3, 300, 1, 1))
    x[2, 123, 4, 4] = x[2, 124, 0, 0] = 0
    made = getattr(np.linalg, function)(np.array(x)) * 2
    with pytest.raises(numpy.linalg.LinAlgError, match=rf"^{message} \(matrix \(2, 123\) of"):
        np.evaluate(made)
    x[2, 123:125] = numpy.eye(8)
    numpy.testing.assert_allclose(
        (getattr(np.linalg, function)(np.array(x)) * 2).numpy(), 2 * x, rtol=1e-12)
