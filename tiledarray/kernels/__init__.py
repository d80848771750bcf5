"""Kernels: `text` prints them over the primitives in ``headers``, `compile` makes them run."""

from pathlib import Path

HEADERS = Path(__file__).parent / "headers"
