"""When a GPU tells that problems of a batch failed: behind a plan, or where somebody looks."""

import numpy
import pytest

import tiledarray as ta
from tiledarray import config

pytestmark = pytest.mark.gpu

NUMBER, SIZE, BAD = 500, 16, 321


def matrices(bad=None, seed=0):
    """Positive definite ones, but for one of them."""
    random = numpy.random.default_rng(seed)
    a = random.random((NUMBER, SIZE, SIZE))
    found = a @ a.swapaxes(-1, -2) + SIZE * numpy.eye(SIZE)
    if bad is not None:
        found[bad, 3, 3] = -1.0
    return found


def several(np):
    """A plan of several steps: what fails is not the last."""
    def function(a, b):
        factor = np.linalg.cholesky(a)
        z = np.linalg.solve(factor @ factor.swapaxes(-1, -2), b)
        return (z ** 2).sum(), np.log(np.diagonal(factor, axis1=-2, axis2=-1)).sum(-1)

    return function


def lone(np):
    return lambda a, b: np.linalg.cholesky(a)


def on_device(array):
    return ta.array(array, device="cuda")


RIGHT = numpy.random.default_rng(1).random((NUMBER, SIZE, 1))


@pytest.mark.parametrize("made", [several, lone])
def test_under_jit_the_call_raises(made):
    function = ta.jit(made(ta))
    right = on_device(RIGHT)
    for _ in range(4):
        function(on_device(matrices()), right)
        with pytest.raises(numpy.linalg.LinAlgError, match=str(BAD)):
            function(on_device(matrices(BAD)), right)
    found, wanted = function(on_device(matrices()), right), made(numpy)(matrices(), RIGHT)
    for ours, theirs in zip(found, wanted, strict=True):
        numpy.testing.assert_allclose(numpy.asarray(ours), theirs, rtol=1e-9)


@pytest.mark.parametrize("made", [several, lone])
def test_deferred_the_look_raises_once(made):
    function = ta.jit(made(ta))
    right = on_device(RIGHT)
    with config.override(linalg_errors="deferred"):
        for _ in range(4):
            function(on_device(matrices()), right)
        found = function(on_device(matrices(BAD)), right)
        last = found[-1] if made is several else found
        with pytest.raises(numpy.linalg.LinAlgError, match=str(BAD)) as caught:
            numpy.asarray(last)
        assert "deferred" in "".join(caught.value.__notes__)
        ours = numpy.asarray(last)
    wanted = made(numpy)(matrices(), RIGHT)
    wanted = wanted[-1] if made is several else wanted
    assert numpy.isnan(ours[BAD]).any()
    numpy.testing.assert_allclose(
        numpy.delete(ours, BAD, 0), numpy.delete(wanted, BAD, 0), rtol=1e-9)


def test_deferred_a_look_at_what_was_made_of_it_raises():
    function = ta.jit(lone(ta))
    right = on_device(RIGHT)
    with config.override(linalg_errors="deferred"):
        function(on_device(matrices()), right)
        total = (function(on_device(matrices(BAD)), right) * 2).sum()
        with pytest.raises(numpy.linalg.LinAlgError, match=str(BAD)):
            float(total)


def test_deferred_waiting_for_the_device_raises():
    function = ta.jit(lone(ta))
    right = on_device(RIGHT)
    with config.override(linalg_errors="deferred"):
        function(on_device(matrices()), right)
        function(on_device(matrices(BAD)), right)
        with pytest.raises(numpy.linalg.LinAlgError, match=str(BAD)):
            right.node.buffer.device.synchronize()


def test_deferred_many_calls_keep_few_outcomes():
    function = ta.jit(lone(ta))
    a, right = on_device(matrices()), on_device(RIGHT)
    with config.override(linalg_errors="deferred"):
        for _ in range(300):
            found = function(a, right)
        backend = a.node.buffer.device.backend
        assert 0 < len(backend._outcomes) <= 64
        numpy.asarray(found)
        assert not backend._outcomes


def test_recorded_every_look_raises_and_nothing_is_lost():
    a, right = on_device(matrices(BAD)), on_device(RIGHT)
    with config.override(linalg_errors="deferred"):
        total, logs = several(ta)(a, right)
        for _ in range(3):
            with pytest.raises(numpy.linalg.LinAlgError, match=str(BAD)) as caught:
                numpy.asarray(logs)
            assert "recorded at" in "".join(caught.value.__notes__)
        with pytest.raises(numpy.linalg.LinAlgError, match=str(BAD)):
            float(total)
    numpy.testing.assert_array_equal(numpy.asarray(a), matrices(BAD))


def test_what_would_be_written_stays_as_it_was():
    x = on_device(RIGHT[..., 0])
    with config.override(linalg_errors="deferred"):
        factor = ta.linalg.cholesky(on_device(matrices(BAD)))
        x += factor[..., 0]
        with pytest.raises(numpy.linalg.LinAlgError, match=str(BAD)):
            numpy.asarray(x)
        with pytest.raises(numpy.linalg.LinAlgError, match=str(BAD)):
            numpy.asarray(x)
