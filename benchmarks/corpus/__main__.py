"""Time the programs of ``tests/corpus`` against NumPy.

    python -m benchmarks.corpus                                    # warm, tiny
    python -m benchmarks.corpus --size all --json FILE
    python -m benchmarks.corpus --first --only lu_crout life       # cold cache, cold process

Each program has a process of its own, in which NumPy runs before and after tiledarray; results and
arguments written in place are compared first.  With ``--first`` each run has a new process and an
empty cache folder, and what is timed is all that follows the import: arguments and one run.
Rows go to the standard error as they are found, and sorted to the standard output.
"""

from __future__ import annotations

import argparse
import compileall
import json
import math
import statistics
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks import machine
from benchmarks.corpus.programs import SIZES, TIMED_SIZES, names
from benchmarks.first_call import empty_caches
from benchmarks.report import duration

Target = tuple[float | None, float | None]  # of the geometric mean, of each program

TARGETS: dict[str, Target] = {
    "test": (None, None), "tiny": (1.15, 1.5), "middle": (0.7, 1.2), "large": (0.4, None),
}  # fmt: skip
TARGETS_WITH_GPU: dict[str, Target] = {**TARGETS, "tiny": (1.25, 2.0), "large": (0.25, None)}
FIRST_TARGET: Target = (1.3, 2.0)
FIRST_RUNS = 3


@dataclass
class Row:
    """What was found for one program at one size.  Times in seconds."""

    program: str
    size: str
    numpy: float | None = None
    tiledarray: float | None = None
    runs: dict[str, list[float]] | None = None
    failure: str | None = None

    @property
    def ratio(self) -> float:
        """tiledarray's time by NumPy's; infinite without a time."""
        if self.numpy is None or self.tiledarray is None:
            return math.inf
        return self.tiledarray / self.numpy


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.corpus",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--size", choices=(*SIZES, "all"), default="tiny")
    add("--only", nargs="+", choices=names(), metavar="NAME", default=names())
    add("--first", action="store_true", help="cold processes with an empty cache folder")
    add("--device", choices=("cpu", "auto"), default="cpu")
    add("--rounds", type=int, default=15, help="most timed runs of each library")
    add("--limit", type=float, default=60, help="seconds for the process of a program")
    add("--json", type=Path, help="write all numbers there")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """Measure, print and store; the exit status is 1 if a program failed."""
    options = parse(arguments)
    rows: list[Row] = []
    for size in TIMED_SIZES if options.size == "all" else (options.size,):
        target = target_of(size, options.first, options.device)
        of_size = []
        for name in options.only:
            measure = first if options.first else warm
            of_size.append(measure(name, size, options))
            print(line(of_size[-1], target[1]), file=sys.stderr, flush=True)
        print(table(size, of_size, target))
        rows += of_size
    if options.json:
        options.json.write_text(json.dumps(document(rows, options), indent=1) + "\n")
    return int(any(row.failure for row in rows))


def warm(name: str, size: str, options: argparse.Namespace) -> Row:
    """Time one program in one process."""
    found = child(["warm", name, size, options.device, str(options.rounds)], options.limit)
    return Row(name, size, **found)


def first(name: str, size: str, options: argparse.Namespace) -> Row:
    """Time first runs of both libraries in turn, each in a process with an empty cache."""
    library_folder = find_spec("tiledarray").submodule_search_locations[0]
    compileall.compile_dir(library_folder, quiet=1)  # as installing it does
    runs: dict[str, list[float]] = {"numpy": [], "tiledarray": []}
    for _ in range(FIRST_RUNS):
        for library, seconds in runs.items():
            found = child(["first", name, size, options.device, library], options.limit)
            if "failure" in found:
                return Row(name, size, runs=runs, failure=f"{library}: {found['failure']}")
            seconds.append(found["seconds"])
    medians = {library: statistics.median(seconds) for library, seconds in runs.items()}
    return Row(name, size, **medians, runs=runs)


def child(arguments: list[str], limit: float) -> dict[str, Any]:
    """Return what ``benchmarks.corpus.child`` prints, or its failure."""
    command = [sys.executable, "-m", "benchmarks.corpus.child", *arguments]
    with tempfile.TemporaryDirectory(
            prefix="corpus-", ignore_cleanup_errors=True) as folder:
        try:
            done = subprocess.run(
                command, env=empty_caches(folder), capture_output=True, text=True, timeout=limit
            )
        except subprocess.TimeoutExpired:
            return {"failure": f"stopped after {limit:g} s"}
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        return {"failure": lines[-1][:400]}
    return json.loads(done.stdout.splitlines()[-1])


def target_of(size: str, first_run: bool, device: str) -> Target:
    """Return what the geometric mean and each program should not exceed."""
    if first_run:
        return FIRST_TARGET
    return (TARGETS if device == "cpu" or not has_gpu() else TARGETS_WITH_GPU)[size]


def has_gpu() -> bool:
    """Tell whether CuPy finds a GPU."""
    try:
        import cupy
    except ImportError:
        return False
    return bool(cupy.cuda.is_available())


def table(size: str, rows: list[Row], target: Target) -> str:
    """Return the rows, slowest first, and what they come to."""
    most_mean, most = target
    lines = [f"{size:28}{'NumPy':>11}{'tiledarray':>13}{'ratio':>8}"]
    lines += [line(row, most) for row in sorted(rows, key=lambda row: -row.ratio)]
    mean = geometric_mean(rows)
    if mean is not None:
        verdict = "" if most_mean is None else f" (target {most_mean:g})"
        timed = sum(row.failure is None for row in rows)
        lines.append(f"geometric mean of {timed}: {mean:.3f}{verdict}")
    if most is not None:
        lines.append(f"above {most:g}: {sum(row.ratio > most for row in rows)} of {len(rows)}")
    lines.append(f"failed: {sum(row.failure is not None for row in rows)}")
    return "\n".join(lines) + "\n"


def line(row: Row, most: float | None) -> str:
    """Return one row as text."""
    times = f"{row.program:28}{duration(row.numpy):>11}{duration(row.tiledarray):>13}"
    mark = "  OVER" if most and row.ratio > most else ""
    return f"{times}{row.ratio:8.2f}{mark}  {row.failure or ''}".rstrip()


def geometric_mean(rows: list[Row]) -> float | None:
    """Return the geometric mean of the ratios of those that were timed."""
    logarithms = [math.log(row.ratio) for row in rows if row.failure is None]
    return math.exp(statistics.fmean(logarithms)) if logarithms else None


def document(rows: list[Row], options: argparse.Namespace) -> dict[str, Any]:
    """Return everything that is stored."""
    device = "cuda" if options.device == "auto" and has_gpu() else "cpu"
    summary = {}
    for size in dict.fromkeys(row.size for row in rows):
        of_size = [row for row in rows if row.size == size]
        most_mean, most = target_of(size, options.first, options.device)
        summary[size] = {
            "geometric_mean": geometric_mean(of_size),
            "target_mean": most_mean,
            "target_each": most,
            "above": None if most is None else sum(row.ratio > most for row in of_size),
            "failed": sum(row.failure is not None for row in of_size),
        }
    return {
        **machine.describe(device),
        "device": options.device,
        "what": "first run" if options.first else "warm",
        "summary": summary,
        "rows": [asdict(row) for row in rows],
    }


if __name__ == "__main__":
    sys.exit(main())
