"""Launches in a row done together on a CUDA device.  Run with ``-m gpu``."""

import threading
from dataclasses import replace

import numpy
import pytest
from hypothesis import HealthCheck, given, settings

import tiledarray as np
from tests.chain_programs import (
    IN_ROUNDS,
    IN_SPACE,
    PROGRAMS,
    heat,
    programs,
    random_values,
    stencils,
)
from tiledarray import config
from tiledarray.fusion import limits
from tiledarray.fusion.chains import resident, tiles
from tiledarray.recording.stretch import local

pytestmark = pytest.mark.gpu

LARGE = {1: (300_001,), 2: (1000, 711), 3: (60, 70, 90)}


@pytest.fixture(autouse=True)
def on_device(a_device):
    local.recorder.reset()
    with config.override(device="cuda", compile="wait", at_once=0):
        yield
    local.recorder.reset()


def agrees(program, given, lib_program=None):
    wanted = program(numpy, *(x.copy() for x in given))
    found = (lib_program or (lambda *arrays: program(np, *arrays)))(*map(np.array, given))
    wanted, found = (x if isinstance(x, tuple) else (x,) for x in (wanted, found))
    for x, y in zip(found, wanted, strict=True):
        epsilon = 3e-6 if y.dtype in ("f4", "c8") else 1e-13
        numpy.testing.assert_allclose(numpy.asarray(x), y, rtol=epsilon, atol=8 * epsilon)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_steps_are_numpys(name, dtype):
    program, small = PROGRAMS[name]
    arrays = small(dtype)
    large = [random_values(*LARGE[x.ndim] if x.ndim == arrays[0].ndim else LARGE[2][:1],
                           dtype=x.dtype.str[1:], seed=k) / (1 if x.dtype.kind == "i" else 5)
             for k, x in enumerate(arrays)]
    jitted = np.jit(lambda *arrays: program(np, *arrays))
    for given_arrays in (arrays, [x.astype(y.dtype) for x, y in zip(large, arrays, strict=True)]):
        agrees(program, given_arrays)
        for _ in range(4):  # by a graph, of which there are some
            agrees(program, given_arrays, jitted)


@pytest.mark.parametrize("dtype", ["f4", "f8", "c8"])
@pytest.mark.parametrize("name", IN_SPACE)
def test_steps_in_space_are_numpys(name, dtype, always):
    program, count = IN_SPACE[name]
    for shape in ((70, 61, 90), (33, 150, 129)):
        arrays = [random_values(*shape, dtype=dtype, seed=k) / 3 for k in range(count)]
        agrees(program, arrays)
        jitted = np.jit(lambda *given: program(np, *given))
        for _ in range(4):
            agrees(program, arrays, jitted)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(stencils(((40, 33, 70), (19, 64, 65), (90, 20, 33))))
def test_any_stencils_in_space_are_numpys(in_planes, case):
    agrees(*case)


@pytest.fixture(params=[(16, 64), (32, 64), (24, 96)], ids=str)
def in_planes(request, always, monkeypatch):
    """Three dimensions are gone through plane after plane."""
    monkeypatch.setattr(tiles, "planes", lambda: [request.param])
    monkeypatch.setattr(tiles, "shapes", {1: [(512,)], 2: [(64, 128)], 3: []}.__getitem__)


def test_gradients_of_steps():
    u, seen = (random_values(200, 300, seed=k) for k in range(2))

    def misfit(u):
        return ((heat(np, u, 20) - seen_here) ** 2).sum()

    seen_here = np.array(seen)
    value, slope = np.value_and_grad(misfit)(np.array(u))
    direction = random_values(200, 300, seed=5)
    epsilon = 1e-6
    ahead, behind = (((heat(numpy, u + by * direction, 20) - seen) ** 2).sum()
                     for by in (epsilon, -epsilon))
    numpy.testing.assert_allclose(
        float((numpy.asarray(slope) * direction).sum()), (ahead - behind) / 2 / epsilon, rtol=1e-7)
    numpy.testing.assert_allclose(float(value), ((heat(numpy, u, 20) - seen) ** 2).sum())


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(programs())
def test_any_steps_are_numpys(always, case):
    agrees(*case)


# ---- tiles that stay on chip for several rounds ------------------------------------------------


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("name", IN_ROUNDS)
@pytest.mark.parametrize("core", [(48, 64, 4), (64, 128, 8), (96, 128, 4), None], ids=str)
def test_tiles_that_stay_on_chip_are_numpys(name, dtype, core, monkeypatch):
    program, count, _ = IN_ROUNDS[name]
    monkeypatch.setattr(limits, "GPU", replace(
        limits.GPU, chain_gain=1e-9, chain_stages=4, chain_launch=1.0))
    if core is not None:
        for what, value in zip(("ROWS", "LANES", "LENGTHS"), core, strict=True):
            monkeypatch.setattr(resident, what, [value])
    jitted = np.jit(lambda *arrays: program(np, *arrays))
    for shape in ((300, 417), (64, 128), (513, 95)):
        given = [random_values(*shape, dtype="i4" if name == "numbers" else dtype, seed=k)
                 for k in range(count)]
        with config.override(cut=10_000):
            agrees(program, given)
        for _ in range(4):
            agrees(program, given, jitted)


@pytest.mark.parametrize("steps", [25, 100, 101])
def test_a_hundred_steps_of_a_large_array(steps):
    given = [random_values(1024, 1024, dtype="f4")]
    jitted = np.jit(lambda u: heat(np, u, steps))
    for _ in range(5):
        agrees(lambda np, u: heat(np, u, steps), given, jitted)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(stencils(((300, 417), (130, 700), (64, 128)), steps=(5, 40)))
def test_any_stencils_in_rounds_are_numpys(dear_launches, case):
    with config.override(cut=10_000):
        agrees(*case)


@pytest.fixture
def dear_launches(monkeypatch):
    monkeypatch.setattr(limits, "GPU", replace(
        limits.GPU, chain_gain=1e-9, chain_stages=4, chain_launch=1.0))


def test_blocks_that_wait_for_one_another_run_beside_others():
    """Launches of several threads, each of which takes the whole device: none waits for ever."""
    given = [random_values(1024, 1024, dtype="f4", seed=k) for k in range(4)]
    wanted = [heat(numpy, u.copy(), 60) for u in given]
    jitted = np.jit(lambda u: heat(np, u, 60))
    failed = []

    def work(u, w):
        import cupy

        try:
            with cupy.cuda.Stream(non_blocking=True):
                for _ in range(30):
                    numpy.testing.assert_allclose(
                        numpy.asarray(jitted(np.array(u))), w, rtol=3e-6, atol=2e-5)
        except BaseException as error:  # told below
            failed.append(error)

    threads = [threading.Thread(target=work, args=pair) for pair in zip(given, wanted, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed, failed


@pytest.fixture
def always(monkeypatch):
    """Whatever can be a chain is one."""
    monkeypatch.setattr(limits, "GPU", replace(limits.GPU, chain_gain=1e-9))
