"""What the planner makes of transforms for a GPU: the calls, and what divides by the length."""

import numpy
import pytest

from tests import tiles
from tests.plans import HOST
from tests.test_streams import H200

X = numpy.random.default_rng(0).random((96, 200)).astype("f4")
Z = (X + 1j * X[::-1]).astype("c8")


def calls(plan):
    return [step.value.op.name for step in plan.steps if hasattr(step, "value")]


def agree(program, x, target=H200):
    """The plan, whose values are NumPy's when it is run here."""
    traced = tiles.traced_of(program, x)
    plan = tiles.planned_for(traced, target)
    want = program(numpy, x)
    for mine, theirs in zip(tiles.run(plan, traced),
                            want if isinstance(want, tuple) else (want,), strict=True):
        assert (mine.dtype, mine.shape) == (theirs.dtype, theirs.shape)
        numpy.testing.assert_allclose(mine, theirs, atol=2e-5 * abs(theirs).max())
    return plan


@pytest.mark.parametrize("program", [
    lambda np, x: np.fft.ifft2(np.fft.fft2(x) * 2.0).real,
    lambda np, x: np.real(np.fft.ifftn(np.fft.fftn(x) * 2.0, norm="backward")) - 1,
    lambda np, x: np.fft.ifft(np.fft.fft(x, axis=0) * 2.0, axis=0).real,
    lambda np, x: np.fft.ifft2(np.fft.fft2(x, s=(40, 300)) * 2.0).real])
def test_real_parts_of_inverses(program):
    plan = agree(program, X)
    assert calls(plan)[1] == "fft.real_inverse"
    assert dict(next(step.value for step in plan.steps if hasattr(step, "value")
                     and step.value.op.name == "fft.real_inverse").attrs)["norm"] == "forward"
    assert "fft.real_inverse" not in calls(agree(program, X, HOST))


def test_inverses_of_halves_are_divided_where_they_are_used():
    plan = agree(lambda np, x: np.fft.irfft2(np.fft.rfft2(x) * 2.0, s=x.shape) * 3 + 1, X)
    assert plan.fired["inverse_scaled_later"] == 1 and len(plan.kernels) == 2


@pytest.mark.parametrize("program", [
    lambda np, z: (lambda w: (w.real + 1, w.imag))(np.fft.ifft2(z)),
    lambda np, z: np.fft.ifft2(z, norm="ortho").real, lambda np, z: np.fft.ifft2(z).imag,
    lambda np, z: np.fft.ifft2(z, s=(40, 300)).real, lambda np, z: np.fft.ifft2(z.real).real,
    lambda np, z: np.fft.irfft2(z), lambda np, z: np.fft.irfft2(z, norm="forward") + 1])
def test_other_inverses_stay(program):
    plan = agree(program, Z)
    assert not {"real_part_of_inverse", "inverse_scaled_later"} & {*plan.fired}
