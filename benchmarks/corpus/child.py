"""Times one program in a process of its own: ``python -m benchmarks.corpus.child``.

``warm NAME SIZE DEVICE ROUNDS``: NumPy before and after tiledarray, results checked first.  Not in
turn: a program runs with one of them, and how fast it goes is weighed while it runs.
``first NAME SIZE DEVICE LIBRARY``: arguments and first run in this process, after the import.
The last line printed is JSON.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import statistics
import sys
import time
from typing import Any

import numpy

from benchmarks.corpus.programs import Program, differences, leaves

SECONDS = 2.0  # of both libraries' timed runs, where they are shorter than that
FEWEST_ROUNDS = 3
WARM = 12.0  # seconds and runs beforehand: kernels are compiled, and which way is faster is known
MOST_WARM = 1000
LOADED_AT_FIRST_USE = ("fft", "linalg", "ma", "polynomial", "random")


def finish(library: Any, values: Any) -> None:
    """Wait until all arrays among the values are there."""
    if library is numpy:
        return
    pending = [item for _, item in leaves("", values) if isinstance(item, library.ndarray)]
    library.evaluate(*pending)
    if "cupy" in sys.modules:
        sys.modules["cupy"].cuda.get_current_stream().synchronize()


def seconds_of_run(program: Program, library: Any, size: str) -> float:
    """Return the seconds of one run with new arguments."""
    arguments = program.arguments(size)
    finish(library, arguments)
    start = time.perf_counter()
    returned = program.module.run(*arguments)
    finish(library, (returned, arguments))
    return time.perf_counter() - start


def warm(name: str, size: str, device: str, rounds: int) -> dict[str, Any]:
    """Check one program, then time it; tiledarray has compiled what it will."""
    import tiledarray
    from tiledarray.execution.background import background

    tiledarray.config.device = device
    reference, ours = Program(name, numpy), Program(name, tiledarray)
    expected = reference.results(reference.arguments(size))
    wrong = differences(expected, ours.results(ours.arguments(size)))
    once = min(seconds_of_run(reference, numpy, size) for _ in range(2))
    before = [seconds_of_run(reference, numpy, size)
              for _ in range(max(FEWEST_ROUNDS, min(rounds, int(SECONDS / 2 / once))))]

    def checked() -> None:
        nonlocal wrong
        wrong = wrong or differences(expected, ours.results(ours.arguments(size)))

    # What is looked at, and when, is part of a program: half of the time is for what will be timed.
    for run in (checked, lambda: seconds_of_run(ours, tiledarray, size)):
        spent, runs = 0.0, 0
        while runs < 2 or (spent < WARM / 2 and runs < MOST_WARM):
            while background.unfinished():
                time.sleep(0.01)
            begun = time.perf_counter()
            run()
            runs, spent = runs + 1, spent + time.perf_counter() - begun
    both = seconds_of_run(ours, tiledarray, size) + once
    rounds = max(FEWEST_ROUNDS, min(rounds, int(SECONDS / both)))
    found: dict[str, list[float]] = {"numpy": before[:rounds], "tiledarray": []}
    for key, library, program in (("tiledarray", tiledarray, ours), ("numpy", numpy, reference)):
        for _ in range(rounds):
            gc.collect()
            found[key].append(seconds_of_run(program, library, size))
    checked()
    if wrong:
        return {"failure": f"wrong: {'; '.join(wrong)}"[:400]}
    return {
        "numpy": statistics.median(found["numpy"]),
        "tiledarray": statistics.median(found["tiledarray"]),
        "runs": found,
    }


def first(name: str, size: str, device: str, library_name: str) -> dict[str, Any]:
    """Time everything after the import of the library: arguments and one run."""
    start = time.perf_counter()
    library = importlib.import_module(library_name)
    for part in LOADED_AT_FIRST_USE:  # by NumPy; tiledarray's import has them
        importlib.import_module(f"numpy.{part}")
    imported = time.perf_counter()
    if library is not numpy:
        library.config.device = device
    program = Program(name, library)
    arguments = program.arguments(size)
    returned = program.module.run(*arguments)
    finish(library, (returned, arguments))
    return {"seconds": time.perf_counter() - imported, "import": imported - start}


def main(arguments: list[str]) -> None:
    """Do as the command says."""
    kind, name, size, device, last = arguments
    if kind == "warm":
        found = warm(name, size, device, int(last))
    else:
        found = first(name, size, device, last)
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
    os._exit(0)  # background compilers need not be waited for
