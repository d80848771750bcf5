"""Runs one program as NumPy and as tiledarray, compares, times and draws.

An example is a function ``program(np, *inputs)`` written in plain NumPy.  Handing it ``numpy`` or
``tiledarray`` is the only difference between the two runs, and the time of each includes turning
the inputs into its arrays and its results back into NumPy's.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy

import tiledarray

Arrays = tuple[numpy.ndarray, ...]


@dataclass(frozen=True)
class Example:
    """A program, where its input comes from, and how to show what came out.

    Attributes
    ----------
    load : callable
        ``load(size)`` returns the inputs; `size` multiplies the amount of work.
    program : callable
        ``program(np, *inputs)`` returns a tuple of arrays.
    draw : callable
        ``draw(inputs, outputs)`` returns a matplotlib figure.
    default_size : int
    rtol, atol : float
        How far tiledarray's results may be from NumPy's.
    tell : callable, optional
        ``tell(outputs)`` returns what there is to say of them.
    """

    name: str
    load: Callable[[int], Arrays]
    program: Callable[..., tuple[Any, ...]]
    draw: Callable[[Arrays, Arrays], Any]
    default_size: int
    rtol: float = 1e-6
    atol: float = 1e-9
    tell: Callable[[Arrays], str] | None = None


@dataclass(frozen=True)
class Timing:
    """Seconds: the first run in this process, and the median of those that follow."""

    first: float
    steady: float


def main(example: Example, arguments: Sequence[str] | None = None) -> None:
    """Run `example` from the command line."""
    options = parse(example, arguments)
    inputs = example.load(options.size)
    shapes = ", ".join(f"{value.dtype}{list(value.shape)}" for value in inputs)
    print(f"{example.name}: inputs {shapes}")

    (expected, _), plain = measure(example.program, numpy, inputs, options.repeats)
    (results, last), fused = measure(example.program, tiledarray, inputs, options.repeats)

    for found in (results, last):
        for ours, theirs in zip(found, expected, strict=True):
            numpy.testing.assert_allclose(ours, theirs, rtol=example.rtol, atol=example.atol)
    print(f"results agree within rtol={example.rtol:g}, atol={example.atol:g}")
    if example.tell is not None:
        print(example.tell(results))

    print(f"{'':12}{'first run':>12}{'steady':>12}")
    print(f"{'NumPy':12}{plain.first:11.3f}s{plain.steady:11.3f}s")
    print(f"{'tiledarray':12}{fused.first:11.3f}s{fused.steady:11.3f}s")
    print(f"{'speed-up':12}{plain.first / fused.first:11.1f}x{plain.steady / fused.steady:11.1f}x")

    path = save(example, options.save, inputs, results)
    print(f"picture: {path}")


def parse(example: Example, arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog=f"python -m examples.{example.name}")
    parser.add_argument("--size", type=int, default=example.default_size, help="work to do")
    parser.add_argument("--repeats", type=int, default=3, help="runs after the first")
    parser.add_argument("--save", type=Path, default=Path("pictures"), help="folder for pictures")
    return parser.parse_args(arguments)


def measure(
    program: Callable[..., tuple[Any, ...]], library: ModuleType, inputs: Arrays, repeats: int
) -> tuple[tuple[Arrays, Arrays], Timing]:
    """Run `program` once and `repeats` times more; return the first and last results, and times.

    In between the kernels are waited for that compile in the background, by one more run; with -1
    repeats there is the first run alone.
    """
    def run() -> tuple[Arrays, float]:
        start = time.perf_counter()
        outputs = program(library, *(library.asarray(value) for value in inputs))
        return force(library, outputs), time.perf_counter() - start

    runs = [run()]
    with tiledarray.config.override(compile="wait"):
        waits = library is not numpy
        runs += [run() for _ in range(repeats + waits)]
    (outputs, first), *others = runs
    steady = [seconds for _, seconds in others[waits:]]
    return (outputs, runs[-1][0]), Timing(first, statistics.median(steady or [first]))


def force(library: ModuleType, outputs: tuple[Any, ...]) -> Arrays:
    """Return `outputs` as NumPy arrays, evaluating all of them together."""
    if library is not numpy:
        tiledarray.evaluate(*outputs)
    return tuple(numpy.asarray(output) for output in outputs)


def save(example: Example, folder: Path, inputs: Arrays, outputs: Arrays) -> Path:
    """Draw the results into ``folder/NAME.png``."""
    import matplotlib

    matplotlib.use("Agg")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{example.name}.png"
    example.draw(inputs, outputs).savefig(path, dpi=110)
    return path


def enlarge(picture: numpy.ndarray, factor: int) -> numpy.ndarray:
    """Return `picture` with `factor` times as many samples on its first two axes (bilinear)."""
    for axis in (0, 1):
        length = picture.shape[axis]
        positions = numpy.linspace(0, length - 1, factor * (length - 1) + 1)
        below = numpy.minimum(positions.astype(int), length - 2)
        shape = [1] * picture.ndim
        shape[axis] = -1
        weight = (positions - below).reshape(shape)
        lower, upper = numpy.take(picture, below, axis), numpy.take(picture, below + 1, axis)
        picture = lower * (1 - weight) + upper * weight
    return picture
