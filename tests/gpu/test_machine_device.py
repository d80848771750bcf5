"""Every live array is NumPy's after every move, on a CUDA device.  Run with ``-m gpu``."""

import os
import time

import pytest

from tests.machine import DEVICE_TIERS, play
from tests.test_machine import FIRST, WRITTEN_IN_LOOPS, check_written_in_loops
from tiledarray.recording.stretch import local

pytestmark = pytest.mark.gpu

STEPS = int(os.environ.get("MACHINE_STEPS", "100000"))
PIECES = 8


@pytest.fixture(autouse=True)
def on_device(a_device):
    local.recorder.reset()
    yield
    local.recorder.reset()


@pytest.mark.parametrize("piece", range(PIECES))
@pytest.mark.parametrize("tier", DEVICE_TIERS)
def test_every_live_array_is_numpys(tier, piece):
    started = time.perf_counter()
    played = play(tier, int(STEPS * DEVICE_TIERS[tier] / PIECES), FIRST + 100_000 * piece, "cuda")
    print(f"{played.steps} steps, {time.perf_counter() - started:.1f} s")
    if played.failures:
        pytest.fail(f"after {played.steps} steps\n{played.failures[0]}", pytrace=False)


@pytest.mark.parametrize("piece", range(PIECES))
def test_on_both_sides(piece):
    """What nobody put anywhere, computed on the host and on the device by chance."""
    played = play("two_sides", STEPS // 20 // PIECES, FIRST + 100_000 * piece, "auto")
    if played.failures:
        pytest.fail(f"after {played.steps} steps\n{played.failures[0]}", pytrace=False)


@pytest.mark.parametrize("cut", [5, 17, 400])
@pytest.mark.parametrize("program", WRITTEN_IN_LOOPS)
def test_arrays_made_alike_and_written_in_loops(program, cut):
    check_written_in_loops(program, cut, compile="wait", device="cuda")
