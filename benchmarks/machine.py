"""What the numbers were measured on, and what that machine can do at best."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks import floor

LANES_PER_MULTIPROCESSOR = 128  # float32 lanes, on every architecture from sm_86 to sm_100


def rates(device: str) -> tuple[float, float]:
    """Return bytes a second of a copy and float32 flops a second outside of tensor cores."""
    if device == "cpu":
        return floor.cpu_copy_rate(), floor.cpu_matmul_rate(dtype="float32")
    return floor.gpu_copy_rate(), gpu_vector_rate()


def gpu_vector_rate() -> float:
    """Return lanes × 2 × clock: a product of matrices on those lanes reaches about 3/4 of it."""
    import cupy

    attributes = cupy.cuda.Device().attributes
    lanes = LANES_PER_MULTIPROCESSOR * attributes["MultiProcessorCount"]
    return 2.0 * lanes * attributes["ClockRate"] * 1e3


def describe(device: str) -> dict[str, Any]:
    """Return machine, commit and time."""
    found = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "python": platform.python_version(),
        "system": platform.platform(),
        "cpu": cpu_name(),
        "cpus": len(os.sched_getaffinity(0)),
    }
    if device == "cuda":
        import cupy

        found["gpu"] = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
        found["driver"] = cupy.cuda.runtime.driverGetVersion()
    return found


def commit() -> str:
    """Return the commit of the tree, with a + if it has changes, or 'unknown'.

    Where the tree travels without its history, ``BENCHMARK_COMMIT`` says it.
    """
    if "BENCHMARK_COMMIT" in os.environ:
        return os.environ["BENCHMARK_COMMIT"]
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty=+"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def cpu_name() -> str:
    """Return the processor's name."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor()
