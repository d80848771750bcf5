"""Scans for a GPU, by value: tiles, look-back over blocks, columns, several at once; emulated."""

import shutil
from dataclasses import replace

import numpy
import pytest

import tiledarray as np
from tests.emulation import emulated
from tests.plans import DEVICE, planned
from tests.test_scans import PROGRAMS, drawn
from tiledarray import config
from tiledarray.fusion import limits
from tiledarray.fusion.schedule import scans
from tiledarray.recording.stretch import local

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ to emulate with")
EPSILON = {"f": 1e-6, "F": 1e-6, "d": 1e-12, "D": 1e-12}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("emulated")


@pytest.fixture(autouse=True)
def clean():
    local.recorder.reset()
    with config.override(at_once=0), numpy.errstate(all="ignore"):
        yield
    local.recorder.reset()


@pytest.fixture
def short_tiles(monkeypatch):
    """Tiles of a few hundred elements, so that few threads wait for one another."""
    monkeypatch.setattr(scans, "SPLIT_THREADS", 64)
    monkeypatch.setattr(limits, "GPU", replace(
        limits.GPU, scanned_lanes=512, shared_lanes=512))


def agrees(folder, function, *arrays):
    """Emulated kernels give NumPy's values in float64; return the schedules."""
    wide = {"f": "f8", "F": "c16"}
    expected = function(numpy, *(x.astype(wide.get(x.dtype.char, x.dtype)) for x in arrays))
    plan, results = emulated(function, *arrays, folder=folder)
    for found, wanted in zip(results, expected if isinstance(expected, tuple) else (expected,),
                             strict=True):
        assert found.shape == wanted.shape
        epsilon = EPSILON.get(found.dtype.char, 0)
        scale = numpy.max(numpy.abs(wanted), initial=0, where=numpy.isfinite(wanted))
        numpy.testing.assert_allclose(found, wanted, rtol=epsilon, atol=epsilon * float(scale))
    return [kernel.schedule for kernel in plan.kernels]


@pytest.mark.parametrize("columns", [3, 31, 128, 1000, 4096])
def test_rows_of_any_length(columns, folder):
    (schedule,) = agrees(
        folder, lambda np, x: np.cumsum(x, 1) * 2 - x, drawn((9, columns), "f4", columns))
    assert schedule.form == "scan" and schedule.splits == 1


def test_tile_after_tile(folder):
    """Of a row that several passes walk over, a block has all."""
    (schedule,) = agrees(
        folder, lambda np, x: np.cumsum(x - x.mean(1, keepdims=True), 1), drawn((2, 5000), "f8"))
    assert schedule.splits == 1 and schedule.chunks * schedule.width * schedule.threads[0] < 5000


def test_blocks_look_back(folder, short_tiles):
    """Over more than one block of 32 tiles, and two rows of them."""
    (schedule,) = agrees(folder, lambda np, x: np.cumsum(x, 1), drawn((2, 18_000), "c16"))
    assert schedule.splits > 33


def test_a_scan_of_a_scan_looks_back_twice(folder, short_tiles):
    def function(np, x):
        twice = np.cumsum(np.cumsum(x) * 0.01)
        return np.maximum.accumulate(twice) - twice, (np.maximum.accumulate(x) - x).max()

    (schedule,) = agrees(folder, function, drawn((19_000,), "f8"))
    assert schedule.splits > 33


def test_columns_are_a_threads_each(folder):
    (schedule,) = agrees(folder, lambda np, x: np.cumsum(x * 2, 0) + x, drawn((21, 9000), "f4"))
    assert schedule.form == "column"


@pytest.mark.sampled(2)
@pytest.mark.parametrize("program", [
    "largest drawdown of rows", "where it is", "scan of scan", "from the end", "from both ends",
    "beside", "of what is the same along it", "shifted",
])
def test_with_what_stands_around_them(program, folder):
    agrees(folder, PROGRAMS[program], drawn((7, 700), "f8", 1), drawn((7, 700), "f8", 2))


def test_products_of_parts_that_are_out_of_range(folder):
    """Not a product up to an element is: nor may those of tiles be."""
    up, down = numpy.full(1000, 10.0), numpy.full(1000, 0.1)
    x = numpy.concatenate([numpy.tile(down, 1)[:300], *[numpy.r_[up[:300], down[:300]]] * 20])
    agrees(folder, lambda np, x: np.cumprod(x), x)
    zeros = numpy.full(9000, 10.0)
    zeros[0] = 0.0
    agrees(folder, lambda np, x: np.cumprod(x), zeros)
    agrees(folder, lambda np, x: np.cumprod(x), drawn((5000,), "c16"))
    agrees(folder, lambda np, x: np.cumprod(x, 0), drawn((30, 9000), "c8"))


@pytest.mark.parametrize("shape, lanes", [
    ((1 << 22,), 8192), ((8, 1 << 19), 8192), ((1 << 19,), 4096), ((1024, 8192), None)])
def test_blocks_that_share_a_row_take_more_of_it(shape, lanes):
    plan = planned(np.cumsum(np.zeros(shape, "f4"), -1), target=DEVICE)
    schedule = plan.kernels[0].schedule
    threads, _ = schedule.threads
    shares = threads * schedule.width * schedule.chunks if schedule.splits > 1 else None
    assert shares == lanes
