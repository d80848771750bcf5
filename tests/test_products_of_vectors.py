"""Products of long vectors fuse with what is around them; short ones, and matrices, are calls."""

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tiledarray as np
from tests.plans import DEVICE, HOST, filled, kinds, moved, nbytes, planned
from tiledarray import config
from tiledarray.recording.stretch import local

N = 1 << 15


@pytest.fixture(autouse=True)
def clean():
    local.recorder.reset()
    yield
    local.recorder.reset()


def drawn(dtype, *shape, seed=0):
    values = numpy.random.default_rng(seed).normal(size=shape)
    return (values + 1j * values[::-1] if dtype in "FD" else values).astype(dtype)


WAYS = {
    "matmul": lambda np, x, y: x @ y, "dot": lambda np, x, y: np.dot(x, y),
    "inner": lambda np, x, y: np.inner(x, y), "vdot": lambda np, x, y: np.vdot(x, y),
    "vecdot": lambda np, x, y: np.vecdot(x, y),
    "computed": lambda np, x, y: (x + 1) @ (y * 2 - x) + x @ x,
    "strided": lambda np, x, y: x[::-1] @ y[:], "of matrices": lambda np, x, y: np.vdot(
        x.reshape(128, -1), y.reshape(128, -1)),
    "raveled": lambda np, x, y: (x.reshape(128, -1) * 2).ravel() @ y,
}


@pytest.mark.sampled(3)
@pytest.mark.compiler
@pytest.mark.parametrize("dtype", "fdFD")
@pytest.mark.parametrize("way", WAYS)
def test_values(way, dtype):
    x, y = drawn(dtype, N), drawn(dtype, N, seed=1)
    with config.override(compile="wait"):
        found = WAYS[way](np, np.array(x), np.array(y))
        expected = WAYS[way](numpy, x, y)
        assert found.dtype == expected.dtype and found.shape == ()
        tolerance = {"f": 1e-3, "F": 1e-3, "d": 1e-10, "D": 1e-10}[dtype]
        numpy.testing.assert_allclose(numpy.asarray(found), expected, rtol=tolerance,
                                      atol=tolerance * numpy.sqrt(N))


@pytest.mark.compiler
@settings(max_examples=15, deadline=None)
@given(st.integers(1 << 14, 1 << 15), st.sampled_from([numpy.nan, numpy.inf, 0.0, 1e300]))
def test_special_values(n, special):
    x, y = drawn("d", n), drawn("d", n, seed=1)
    x[n // 2] = special
    with config.override(compile="wait"), numpy.errstate(all="ignore"):
        numpy.testing.assert_allclose(
            numpy.asarray(np.array(x) @ np.array(y)), x @ y, rtol=1e-9)


@pytest.mark.parametrize("way", WAYS)
def test_one_read(way):
    x, y = filled(N), filled(N, seed=1)
    found = WAYS[way](np, x, y)
    plan = planned(found, target=DEVICE)
    assert "call" not in kinds(plan)
    assert moved(plan) <= 1.2 * nbytes(x, y) + 100


@pytest.mark.parametrize("target", [HOST, DEVICE])
def test_a_conjugate_gradient_has_no_calls(target):
    """The operator and its product, and the residual and its square, are read once each."""
    p, r = filled(512, 512), filled(512, 512, seed=1)
    q = 4 * p
    q[1:] -= p[:-1]
    alpha = np.vdot(r, r) / np.vdot(p, q)
    left = r - alpha * q
    assert "call" not in kinds(planned(left, np.vdot(left, left), target=target))


def test_short_vectors_integers_and_matrices_are_calls():
    short, long = filled(100), filled(N)
    whole = filled(N, dtype="i8")
    matrix = filled(128, 256)
    for left, right in ((short, short), (whole, whole), (matrix, long[:256]), (long[:128], matrix)):
        assert kinds(planned(left @ right)) == ["call"]
    assert kinds(planned(long @ long)) == ["row"]
