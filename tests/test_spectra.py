"""What the planner makes of transforms for a GPU: the calls, and what divides by the length."""

import random

import numpy
import pytest

import tiledarray as ta
from tests import tiles
from tests.plans import HOST
from tests.test_streams import H200
from tiledarray import config
from tiledarray.fusion.stored import reachable
from tiledarray.ops.spectra import real_inverse

X = numpy.random.default_rng(0).random((96, 200)).astype("f4")
Z = (X + 1j * X[::-1]).astype("c8")


def calls(plan):
    return [step.value.op.name for step in plan.steps if hasattr(step, "value")]


def agree(program, x, target=H200, *, folder=None):
    """The plan, whose values are NumPy's when it is run here, or its texts emulated."""
    traced = tiles.traced_of(program, x)
    plan = tiles.planned_for(traced, target)
    want = program(numpy, x.astype(x.dtype.char.replace("f", "d").replace("F", "D")))
    for mine, theirs in zip(tiles.run(plan, traced, folder=folder),
                            want if isinstance(want, tuple) else (want,), strict=True):
        assert (mine.dtype.kind, mine.itemsize) == (theirs.dtype.kind, theirs.itemsize // 2)
        assert mine.shape == theirs.shape
        assert abs(mine - theirs).max() <= 2e-6 * (1 + abs(theirs).max())
    return plan


K = numpy.fft.fftfreq(96).astype("f4")[:, None]
L = numpy.fft.fftfreq(200).astype("f4")
H = (K**2 + 1j * L).astype("c8")

FILTERS = [
    lambda np, x: np.fft.ifft2(-(np.fft.fft2(x) / (1 + K**2 + L**2))).real * 2,
    lambda np, x: np.fft.ifft2(2j * np.fft.fft2(x)).real,
    lambda np, x: np.fft.ifft2(np.fft.fft2(x) * K).real,
    lambda np, x: np.fft.ifft2(L * np.fft.fft2(x)).real,
    lambda np, x: np.fft.ifft2(np.fft.fft2(x) * H).real,
    lambda np, x: np.fft.ifft2(np.fft.fft2(x) * 2.0).real,
    lambda np, x: np.real(np.fft.ifftn(np.fft.fftn(x, norm="ortho") * (1j * L))) - 1,
    lambda np, x: np.fft.ifft(np.fft.fft(x[:83], axis=0) * H[:83], axis=0).real,
    lambda np, x: np.fft.ifft(np.fft.fft(x[:, :79]) * (L[:79] + 1j)).real,
    lambda np, x: np.fft.ifft2(np.fft.fft2(x, s=(95, 301)) * (K[:95] + 2j)).real,
    lambda np, x: np.fft.ifft2(np.fft.fft2(x, axes=(1, 0)) * H, axes=(1, 0)).real,
    lambda np, x: np.fft.ifftn(np.fft.fftn(x.reshape(4, 24, 200), axes=(2, 0)) * L,
                               axes=(2, 0)).real]
OTHERS = [
    lambda np, x: np.fft.ifft2(2j * np.fft.fft2(x) * K).real,
    lambda np, x: np.fft.ifft2(np.fft.fft2(x) * H / (1 + K * K) * 3.0).real,
    lambda np, x: np.fft.ifft2(-(np.fft.fft2(x) / (1 + K**2 + L**2)) * H / 2).real * 2,
    lambda np, x: np.fft.ifft2(np.fft.fft2(x)).real,
    lambda np, x: np.fft.ifft2(np.fft.fft2(x + 1j * x) * K).real,
    lambda np, x: np.fft.ifft2(np.fft.fft2(x) * K + 1).real,
    lambda np, x: np.fft.ifft2(np.fft.fft2(x, axes=(1, 0)) * K).real,
    lambda np, x: np.fft.ifft2(1 / (np.fft.fft2(x) * K + 9)).real,
    lambda np, x: np.fft.ifft(np.fft.fft(x[:, :199], axis=0) * K).real,
    lambda np, x: (lambda z: np.fft.ifft2(z * K).real + abs(z))(np.fft.fft2(x)),
    lambda np, x: (lambda z: np.fft.ifft2(z * K * L).real + z.real)(np.fft.fft2(x) * 2.0)]


def check_inverse(plan):
    (inverse,) = [step.value for step in plan.steps
                  if hasattr(step, "value") and step.value.op.name == "fft.real_inverse"]
    assert dict(inverse.attrs)["norm"] == "forward"
    assert not {"fft.ifft", "fft.ifftn"} & {*calls(plan)}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("program", FILTERS)
def test_a_real_array_filtered_by_halves(program, tmp_path_factory):
    plan = agree(program, X, folder=tmp_path_factory.getbasetemp())
    check_inverse(plan)
    assert not {"fft.fft", "fft.fftn"} & {*calls(plan)}
    on_host = {*calls(agree(program, X, HOST))}
    assert on_host & {"fft.irfft", "fft.irfftn"} and on_host & {"fft.rfft", "fft.rfftn"}
    assert not on_host & {"fft.real_inverse", "fft.fft", "fft.fftn", "fft.ifft", "fft.ifftn"}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("program", OTHERS)
def test_real_parts_of_other_spectra(program, tmp_path_factory):
    plan = agree(program, X, folder=tmp_path_factory.getbasetemp())
    check_inverse(plan)
    assert not {"fft.rfft", "fft.rfftn"} & {*calls(plan)}
    assert not {"fft.irfft", "fft.irfftn"} & {*calls(agree(program, X, HOST))}


def test_on_chip_there_are_no_calls():
    """What a kernel of tiles computes stays one kernel."""
    x = numpy.zeros((20_000, 64), "c8")
    for program in (lambda np, x: np.fft.ifft(np.fft.fft(x) * 2.0).real,
                    lambda np, x: np.fft.irfft(x[:, :33] * 2.0) * 3 + 1):
        plan = tiles.planned_for(tiles.traced_of(program, x), H200)
        assert len(tiles.kernels(plan)) == len(plan.steps) == 1 and not plan.fired
    plan = tiles.planned_for(tiles.traced_of(
        lambda np, x: np.fft.ifft(np.fft.fft(x) * 2.0).real, x), HOST)
    assert len(tiles.kernels(plan)) == len(plan.steps) == 1 and not plan.fired


def test_axes_of_length_one(tmp_path_factory):
    """Equal halves have one inverse: it overwrites what it is given."""
    def program(np, z):
        return (np.fft.ifftn(z, axes=(0, 1)).real, np.fft.ifftn(z, axes=(1,)).real,
                np.fft.ifft2(z, axes=(1, 0)).real, np.fft.ifft(z, axis=0).real)

    plan = agree(program, Z[:1], folder=tmp_path_factory.getbasetemp())
    assert calls(plan).count("fft.real_inverse") == 2 == calls(plan).count("fft.fold")


def test_inverses_of_halves_are_divided_where_they_are_used(tmp_path_factory):
    plan = agree(lambda np, x: np.fft.irfft2(np.fft.rfft2(x) * 2.0, s=x.shape) * 3 + 1, X,
                 folder=tmp_path_factory.getbasetemp())
    assert plan.fired["inverse_scaled_later"] == 1 and len(plan.kernels) == 2


@pytest.mark.parametrize("program", [
    lambda np, z: (lambda w: (w.real + 1, w.imag))(np.fft.ifft2(z)),
    lambda np, z: np.fft.ifft2(z, norm="ortho").real, lambda np, z: np.fft.ifft2(z).imag,
    lambda np, z: np.fft.ifft2(z, s=(40, 300)).real, lambda np, z: np.fft.ifft2(z.real).real,
    lambda np, z: np.fft.irfft2(z), lambda np, z: np.fft.irfft2(z, norm="forward") + 1])
def test_other_inverses_stay(program, tmp_path_factory):
    plan = agree(program, Z, folder=tmp_path_factory.getbasetemp())
    assert not {"real_part_of_inverse", "inverse_scaled_later"} & {*plan.fired}


@pytest.mark.parametrize("program, overwrites", [
    (lambda np, z: np.fft.irfft2(z * 2), True), (lambda np, z: np.fft.irfft(z.T * 2) + 1, True),
    (lambda np, z: np.fft.irfft(z * 2, n=199, axis=0), False),
    (lambda np, z: np.fft.irfft2(z), False), (lambda np, z: np.fft.irfft2(z[::-1]), False),
    (lambda np, z: (lambda w: (np.fft.irfft2(w), w))(z * 2), False),
    (lambda np, z: (np.fft.irfft2(z * 2), np.exp(z * 2)), False),  # recorded twice, computed once
    (lambda np, z: (np.fft.irfft2(z * 2), np.fft.irfft2(z * 2, norm="ortho")), False)])
def test_what_may_be_overwritten(program, overwrites, tmp_path_factory):
    z = Z[:, :97] * numpy.float32(0.1)
    plan = agree(program, z, folder=tmp_path_factory.getbasetemp())
    assert ("fft.real_inverse" in calls(plan)) == overwrites == ("half_overwritten" in plan.fired)


@pytest.fixture
def spoilt(monkeypatch):
    """Halves that were overwritten, as CuPy's inverse leaves them: nobody may read them."""
    found, compute = [], real_inverse.reference

    def spoil(xp, half, **attrs):
        found.append(half)
        result = compute(xp, half, **attrs)
        half[...] = numpy.nan
        return result

    object.__setattr__(real_inverse, "reference", spoil)
    yield found
    object.__setattr__(real_inverse, "reference", compute)


@pytest.mark.parametrize("program", [
    lambda np, x: (np.fft.ifft2(np.fft.fft2(x) * K).real, np.fft.ifft2(-np.fft.fft2(x) * K).real),
    lambda np, x: (np.fft.ifft2(-np.fft.fft2(x) * K).real, np.fft.ifft2(np.fft.fft2(x) * K).real)])
def test_halves_of_which_others_are_made(program, spoilt, tmp_path_factory):
    """The spectrum is recorded twice and computed once; so is its half, which is negated."""
    plan = agree(program, X, folder=tmp_path_factory.getbasetemp())
    needed = reachable(plan.values, plan.outputs)
    for inverse in needed:
        if inverse.op is real_inverse:
            assert sum(value.args.count(inverse.args[0]) for value in needed) == 1


def test_factors_stay_apart(tmp_path_factory):
    """Their product may be too small to be a number, where that with the spectrum is not."""
    tiny = numpy.full((96, 1), 1e-30, "f4")
    x = X * numpy.float32(1e25)
    traced = tiles.traced_of(lambda np, x: np.fft.ifft2(np.fft.fft2(x) * tiny * tiny).real, x)
    (found,) = tiles.run(tiles.planned_for(traced, H200), traced,
                         folder=tmp_path_factory.getbasetemp())
    numpy.testing.assert_allclose(found, X * 1e-35, rtol=1e-3, atol=1e-38)


STEPS = [
    lambda np, x, y, axes, norm: np.fft.fftn(x, axes=axes, norm=norm),
    lambda np, x, y, axes, norm: np.fft.ifftn(x, axes=axes, norm=norm),
    lambda np, x, y, axes, norm: np.fft.ifftn(np.fft.fftn(x.real, axes=axes) * y, axes=axes).real,
    lambda np, x, y, axes, norm: np.fft.ifftn(
        np.fft.fftn(x.real, axes=axes, norm=norm) / (2 + abs(y)), axes=axes).real,
    lambda np, x, y, axes, norm: np.real(x), lambda np, x, y, axes, norm: x * y,
    lambda np, x, y, axes, norm: -x * 2j, lambda np, x, y, axes, norm: x / (2 + abs(y)),
    lambda np, x, y, axes, norm: np.fft.irfftn(
        x[:, :x.shape[1] // 2 + 1] * 2, s=x.shape, axes=(0, 1), norm=norm),
    lambda np, x, y, axes, norm: np.fft.ifft(x, axis=axes[0]).real * y[:1]]


def made(np, inputs, seed):
    """Some results of a random program of transforms, real parts, products and quotients."""
    chance, pool = random.Random(seed), [*inputs]
    for _ in range(chance.randint(3, 8)):
        axes = chance.choice([(0, 1), (1, 0), (1,), (0,), (-2, -1)])
        norm = chance.choice([None, None, None, "ortho", "forward"])
        step, x, y = chance.choice(STEPS), chance.choice(pool[-4:]), chance.choice(inputs)
        pool.append(step(np, x, y, axes, norm))
    return tuple(pool[-chance.randint(1, 3):])


@pytest.mark.sampled(3)
@pytest.mark.parametrize("first", range(3))
def test_random_programs(spoilt, tmp_path_factory, first):
    for seed in range(first, 30, 3):
        shape = random.Random(seed).choice([(6, 7), (7, 6), (1, 5), (5, 1), (8, 11), (4, 4)])
        values = numpy.random.default_rng(seed)
        inputs = [values.normal(size=shape), values.normal(size=(*shape, 2)) @ [1, 1j],
                  values.normal(size=(shape[0], 1)) + numpy.zeros(shape)]
        traced = tiles.traced_of(lambda np, *x, seed=seed: made(np, x, seed), *inputs)
        plan = tiles.planned_for(traced, H200)
        found = tiles.run(plan, traced, folder=tmp_path_factory.getbasetemp())
        for mine, theirs in zip(found, made(numpy, inputs, seed), strict=True):
            assert (mine.dtype, mine.shape) == (theirs.dtype, theirs.shape), seed
            assert abs(mine - theirs).max() <= 1e-10 * (1 + abs(theirs).max()), seed
    assert len(spoilt) > 3


@pytest.mark.parametrize("n", [4, 5])
@pytest.mark.parametrize("name", ["rfft", "ihfft", "rfftn"])
def test_complex_numbers_have_no_real_transform(name, n):
    """The error names the loop that NumPy has for such a length."""
    x = numpy.ones((n, n), "D")
    with pytest.raises(TypeError) as theirs:
        getattr(numpy.fft, name)(x)
    with pytest.raises(TypeError) as ours, config.override(at_once=0):
        getattr(ta.fft, name)(ta.array(x))
    assert str(ours.value) == str(theirs.value)
