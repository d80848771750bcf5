"""What the library costs beside the arithmetic: import, recording, plan look-up, small calls.

    python -m benchmarks.overheads [--json FILE]

Times are medians, on the CPU.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import machine
from benchmarks.workloads import dispatch
from tiledarray.core import trace

REPEATS = 30
IMPORTS = 7
SHORT, LONG = 20, 220
ELEMENTS = 1000
TIMES_NUMPY = 1


@dataclass(frozen=True)
class Overhead:
    """One figure, and the figure it should not exceed."""

    name: str
    value: float
    target: float
    unit: str


def main() -> None:
    """Measure, print and store."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.overheads")
    parser.add_argument("--json", type=Path, help="write the figures there")
    options = parser.parse_args()

    import tiledarray

    tiledarray.config.device = "cpu"
    found = [import_seconds(), *recording(tiledarray), *small_calls(tiledarray)]
    for one in found:
        verdict = "ok" if one.value <= one.target else "OVER"
        print(f"{one.name:58}{one.value:9.3f} {one.unit:9} target {one.target:.4g}  {verdict}")
    if options.json:
        document = {**machine.describe("cpu"), "overheads": [asdict(one) for one in found]}
        options.json.write_text(json.dumps(document, indent=1) + "\n")


def import_seconds() -> Overhead:
    """Time ``import tiledarray`` in fresh processes, less that of a bare Python."""

    def start(statement: str) -> float:
        begin = time.perf_counter()
        subprocess.run([sys.executable, "-c", statement], check=True)
        return time.perf_counter() - begin

    start("import tiledarray")  # files into the page cache, byte code compiled
    pairs = [(start("import tiledarray"), start("pass")) for _ in range(IMPORTS)]
    seconds = statistics.median(full - bare for full, bare in pairs)
    return Overhead("import tiledarray (NumPy included)", seconds, 0.3, "s")


def recording(library: Any) -> list[Overhead]:
    """Time recording one operation, and evaluating one more node of a remembered plan.

    Small arrays would be computed at once: here everything is recorded.
    """
    x = library.asarray(np.ones(16, np.float32))
    y = library.asarray(np.ones(16, np.float32))
    library.evaluate(x, y)
    with library.config.override(compile="wait", cut=10 * LONG, at_once=0, first_seconds=0.0):
        for count in (SHORT, LONG):
            for _ in range(2):
                library.evaluate(chain(x, y, count))
        short = [evaluation(library, x, y, SHORT) for _ in range(REPEATS)]
        long = [evaluation(library, x, y, LONG) for _ in range(REPEATS)]
        record = [recorded(x, y) for _ in range(REPEATS)]
        look = [walk(x, y, LONG) - walk(x, y, SHORT) for _ in range(REPEATS)]
    small = np.ones(3)
    beside = [median_of(lambda: small + small, 100) for _ in range(REPEATS)]
    per_node = (statistics.median(long) - statistics.median(short)) / (LONG - SHORT)
    return [
        Overhead("for comparison: NumPy adds 3 elements", statistics.median(beside) * 1e6,
                 float("inf"), "us"),
        Overhead("record an operation", statistics.median(record) * 1e6, 0.1, "us"),
        Overhead("look a plan up, each node more",
                 statistics.median(look) / (LONG - SHORT) * 1e6, 0.03, "us"),
        Overhead("evaluate a remembered plan, each node more", per_node * 1e6, 0.1, "us"),
        Overhead(f"evaluate a remembered plan of {SHORT} nodes", statistics.median(short) * 1e6,
                 4, "us"),
    ]  # fmt: skip


def recorded(x: Any, y: Any) -> float:
    """Return the seconds of one operation of a recorded chain, which is dropped."""
    start = time.perf_counter()
    chain(x, y, LONG)
    return (time.perf_counter() - start) / LONG


def walk(x: Any, y: Any, count: int) -> float:
    """Return the seconds that it takes to walk over a recorded chain and make its key."""
    node = chain(x, y, count).node
    start = time.perf_counter()
    trace([node])
    return time.perf_counter() - start


def chain(x: Any, y: Any, count: int) -> Any:
    """Record `count` operations, each on the result of the one before."""
    for _ in range(count // 2):
        x = x * y
        x = x + y
    return x


def evaluation(library: Any, x: Any, y: Any, count: int) -> float:
    """Return the seconds to evaluate a recorded chain."""
    result = chain(x, y, count)
    start = time.perf_counter()
    library.evaluate(result)
    return time.perf_counter() - start


def small_calls(library: Any) -> list[Overhead]:
    """Time whole small programs, recorded and evaluated at each call, beside NumPy."""
    found = [
        *beside_numpy(library, "10 operations on 1,000 elements", ten_operations),
        *beside_numpy(library, "150 dependent operations on 1,000 elements", dispatch.program),
    ]
    with library.config.override(at_once=0, first_seconds=0.0):
        return [
            *found,
            *beside_numpy(library, "1 recorded operation on 1,000 elements", one_operation)[1:],
            *beside_numpy(library, "10 recorded on 1,000 elements", ten_operations)[1:],
            *beside_numpy(library, "150 recorded on 1,000 elements", dispatch.program)[1:],
        ]


def beside_numpy(library: Any, name: str, program: Callable[..., Any]) -> list[Overhead]:
    """Time one program as NumPy and as tiledarray, in turn."""
    values = np.random.default_rng(1).random(ELEMENTS, dtype=np.float32)
    array = library.asarray(values)

    def ours() -> None:
        library.evaluate(program(library, array))

    with library.config.override(compile="wait"):
        ours()
        ours()
    pairs = [
        (median_of(lambda: program(np, values), 20), median_of(ours, 20)) for _ in range(REPEATS)
    ]
    numpy_time, our_time = (statistics.median(column) * 1e6 for column in zip(*pairs, strict=True))
    return [
        Overhead(f"{name}: NumPy", numpy_time, float("inf"), "us"),
        Overhead(f"{name}: tiledarray", our_time, TIMES_NUMPY * numpy_time, "us"),
    ]


def one_operation(np: Any, x: Any) -> Any:
    """Return a sum."""
    return x + x


def ten_operations(np: Any, x: Any) -> Any:
    """Return an expression of ten operations."""
    return np.sqrt(x * 2.0 + 1.0) * np.exp(-x) - np.tanh(x * x) / (x + 1.0)


def median_of(work: Callable[[], Any], runs: int) -> float:
    """Return the median seconds of `work`."""
    seconds = []
    for _ in range(runs):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


if __name__ == "__main__":
    main()
