"""Reads at computed places in kernels for a GPU: run by emulation, and compiled."""

import shutil

import numpy
import pytest

import tiledarray as ta
from tests.emulation import emulated
from tests.plans import DEVICE, planned
from tests.test_gathers import PROGRAMS, compare_all, gathers, places, table
from tiledarray import config
from tiledarray.execution import executable
from tiledarray.kernels.compile import cuda
from tiledarray.kernels.text.program import print_kernel


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("emulated")


@pytest.fixture(autouse=True)
def recorded():
    with config.override(at_once=0):
        yield


def run(folder, program, w, i):
    expected = program(numpy, w, i)
    plan, (found,) = emulated(program, w, i, folder=folder)
    compare_all(found, expected)
    return plan


@pytest.mark.sampled(12)
@pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ to emulate with")
@pytest.mark.parametrize("shape", [(40,), (9, 5)], ids=str)
@pytest.mark.parametrize("name", PROGRAMS)
def test_values(folder, name, shape):
    run(folder, PROGRAMS[name], table(11, 20, dtype="f4"), places(11, *shape))


@pytest.mark.sampled(6)
@pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ to emulate with")
@pytest.mark.parametrize("columns", [16, 33, 64, 130])
@pytest.mark.parametrize("dtype", ["i8", "i4", "u1"])
def test_rows(folder, columns, dtype):
    w, i = table(90, columns, dtype="f4"), places(90, 300, 4, dtype=dtype)
    plan = run(folder, lambda np, w, i: w[i].sum(1) * 2, w, i)
    assert gathers(plan) == 4
    plan = run(folder, lambda np, w, i: np.exp(w[i[:, 0]] / 99).sum(-1), w, i)
    assert gathers(plan) == 1


@pytest.mark.sampled(6)
@pytest.mark.skipif(cuda.available() is not None, reason="no CUDA compiler")
@pytest.mark.parametrize("name", [
    "pooled", "softmax", "a mean over all places", "scanned", "of a view", "of one column", "twice",
    "the place of the least",
])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_compiles_into_registers(name, dtype):
    w, i = table(5000, 128, dtype=dtype), places(5000, 3000, 8)
    plan = planned(PROGRAMS[name](ta, ta.array(w), ta.array(i)), target=DEVICE)
    assert gathers(plan)
    sources = [
        (executable.source_of(kernel, program), executable.program_name(kernel))
        for kernel in plan.kernels for program in (print_kernel(kernel, device=True),)]
    for arch in ("sm_80", "sm_90"):
        for (_, kernel), binary in zip(sources, cuda.compile_many(sources, arch), strict=True):
            assert binary.reports[kernel].clean, f"{arch}: {binary.reports[kernel]}"
