"""Indices of a device's kernel have 32 bits only where all that is counted fits."""

import numpy
import pytest

import tiledarray as np
from tests.plans import DEVICE, filled, planned
from tiledarray import config
from tiledarray.kernels.compile import cuda
from tiledarray.kernels.text.program import print_kernel
from tiledarray.recording.stretch import local

FAR = 2**31


@pytest.fixture(autouse=True)
def clean():
    local.recorder.reset()
    with config.override(cut=400):
        yield
    local.recorder.reset()


def one():
    return np.evaluate(np.array(numpy.ones(1, "f4")))


LONG = {
    "lanes of a constant": lambda: np.ones((50_000, 50_000)).sum(),
    "lanes of one element": lambda: np.broadcast_to(one(), (3_000_000_000,)).sum(),
    "rows of one element": lambda: np.broadcast_to(one(), (3_000_000_000, 7)).max(axis=0),
    "rows of several axes": lambda: np.ones((3000, 1000, 1000, 7)).max(axis=(0, 1, 2)),
    "steps": lambda: np.broadcast_to(filled(64), (2_500_000_000, 64)).sum(axis=0),
    "places": lambda: (np.arange(3_000_000_000) % 7 == 0).sum(),
    "a part of many places": lambda: np.arange(5_000_000_000)[4_000_000_000:][:100] * 2.5,
}
SHORT = {
    "a matrix": lambda: filled(300, 400).sum(axis=1),
    "many points, no long axis": lambda: np.ones((60_000, 60_000)).sum(axis=1),
    "just below": lambda: np.ones(2_000_000_000).sum(),
}


def texts(make):
    return [print_kernel(kernel, device=True) for kernel in planned(make(), target=DEVICE).kernels]


@pytest.mark.parametrize("name", LONG)
def test_long_axes_have_wide_indices(name):
    programs = texts(LONG[name])
    assert any("using idx = long long;" in program.text for program in programs)
    for program in programs:
        counts = [slot.number for slot in program.slots if slot.kind == "size"]
        assert "using idx = long long;" in program.text or max(counts) < FAR


@pytest.mark.parametrize("name", SHORT)
def test_what_fits_has_narrow_indices(name):
    for program in texts(SHORT[name]):
        assert "using idx = int;" in program.text
        for slot in program.slots:
            assert slot.kind != "size" or slot.number < FAR


@pytest.mark.sampled(3)
@pytest.mark.skipif(cuda.available() is not None, reason=f"no CUDA compiler: {cuda.available()}")
@pytest.mark.parametrize("name", LONG)
def test_wide_indices_compile_without_spilling(name):
    for program in texts(LONG[name]):
        text = program.text.replace("NAME", "wide")
        assert cuda.compile_source(text, "wide", "sm_90a").reports["wide"].clean
