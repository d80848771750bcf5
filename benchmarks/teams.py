"""How many threads of a GPU should work on one problem: the workloads of small problems by team.

    python -m benchmarks.teams

`tiledarray.fusion.tiles.teams` says how large a team each primitive wants; here every such size is
halved, doubled and so on, each in a process of its own that remembers no other's plans, and each
workload's time is shown beside its floor.  Values are checked against NumPy before they are timed.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import tiledarray as ta
from benchmarks.machine import rates
from benchmarks.workload import Workload
from benchmarks.workloads import problems
from tiledarray.fusion.tiles import kernel, teams

FACTORS = (0.5, 1, 2, 4)
REPEATS = 20


def main(factors: Sequence[str]) -> None:
    """Measure one factor, or each."""
    if factors:
        measure(float(factors[0]))
        return
    for factor in FACTORS:
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([sys.executable, "-m", "benchmarks.teams", str(factor)], check=True,
                           env={**os.environ, "TILEDARRAY_CACHE_DIR": folder})


def measure(factor: float) -> None:
    """Print a line for each workload."""
    import cupy

    copy_rate, flop_rate = rates("cuda")
    kernel.team_of = _scaled(factor)  # type: ignore[assignment]
    for workload in (problems.FACTOR, problems.FILTER, problems.RIDGES, problems.LEAST_SQUARES):
        inputs = workload.setup(workload.sizes.cuda, 0)
        floor = workload.floor("cuda", inputs, copy_rate, flop_rate) or 1.0
        with ta.config.override(compile="wait"), ta.device("cuda"):
            seconds = _measured(workload, inputs, cupy)
        times = "wrong" if seconds is None else (
            f"{seconds * 1e3:8.3f} ms {seconds / floor:6.2f} x floor")
        print(f"{workload.name:20} teams x {factor:<4} {times}", flush=True)


def _scaled(factor: float) -> Callable[..., int]:
    def team_of(*asked: Any) -> int:
        return max(1, min(1024, int(teams.team_of(*asked) * factor)))

    return team_of


def _measured(workload: Workload, inputs: tuple[np.ndarray, ...], cupy: Any) -> float | None:
    """Median seconds of a call; nothing if its values are wrong."""
    put = [ta.array(x) for x in inputs]
    run = ta.jit(lambda *arrays: workload.program(ta, *arrays))
    found = run(*put).numpy()
    if workload.error((found,), workload.reference(inputs)) > workload.tolerance:
        return None
    times = []
    for _ in range(REPEATS):
        begun, ended = cupy.cuda.Event(), cupy.cuda.Event()
        begun.record()
        ta.evaluate(run(*put))
        ended.record()
        ended.synchronize()
        times.append(cupy.cuda.get_elapsed_time(begun, ended) * 1e-3)
    return statistics.median(times)


if __name__ == "__main__":
    main(sys.argv[1:])
