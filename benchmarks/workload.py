"""What a workload is: a program in plain NumPy, its input, its floor, and how to check it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Arrays = tuple[np.ndarray, ...]
Builder = Callable[[], Callable[..., Any]]
Check = Sequence[tuple[Any, Arrays]]


@dataclass(frozen=True)
class Sizes:
    """The size for each device, and a small one to see that everything works."""

    cpu: int
    cuda: int
    quick: int

    def of(self, device: str, quick: bool) -> int:
        """Return the size to use."""
        return self.quick if quick else getattr(self, device)


@dataclass(frozen=True)
class Workload:
    """One program, measured with every peer.

    Attributes
    ----------
    name, title : str
    sizes : Sizes
    setup : callable
        ``setup(size, seed)`` returns the inputs as NumPy arrays.
    program : callable
        ``program(np, *inputs)`` in plain NumPy; returns an array or a tuple of arrays.  Peers with
        NumPy's names run this text.
    reference : callable
        ``reference(inputs)`` returns pairs (index, expected): the outputs at that index, computed
        in float64 or better.  Large workloads check a part of the rows.
    tolerance : float
        Largest error allowed, relative to the largest expected value.
    gradient : tuple of int
        Where it is a value and its gradient that are measured: by which inputs.  The program is
        the value, and so are the variants of peers that differentiate; NumPy's is written by hand.
    variants : mapping
        By peer, a builder of ``run(*inputs)``: the same arithmetic in the peer's own words.
    refusals : mapping
        By peer, why it cannot run this.
    traffic : callable
        ``traffic(inputs)``: the bytes of each input once and each output once.
    flops : callable or None
        ``flops(inputs)``, where arithmetic and not memory is the floor.
    fixed_floor : mapping
        By device, a floor in seconds where neither bytes nor flops say anything.
    bulky : bool
        Whether op-by-op peers need temporaries so large that they must not be kept side by side.
    """

    name: str
    title: str
    sizes: Sizes
    setup: Callable[[int, int], Arrays]
    program: Callable[..., Any]
    reference: Callable[[Arrays], Check]
    tolerance: float
    traffic: Callable[[Arrays], float]
    gradient: tuple[int, ...] = ()
    variants: Mapping[str, Builder] = field(default_factory=dict)
    refusals: Mapping[str, str] = field(default_factory=dict)
    flops: Callable[[Arrays], float] | None = None
    fixed_floor: Mapping[str, float | None] = field(default_factory=dict)
    bulky: bool = False

    def floor(
        self, device: str, inputs: Arrays, copy_rate: float, flop_rate: float
    ) -> float | None:
        """Return the least time possible, in seconds."""
        if device in self.fixed_floor:
            return self.fixed_floor[device]
        seconds = self.traffic(inputs) / copy_rate
        if self.flops:
            seconds = max(seconds, self.flops(inputs) / flop_rate)
        return seconds

    def error(self, outputs: Arrays, check: Check) -> float:
        """Return the largest error relative to the largest expected value (NaN counts)."""
        worst = 0.0
        for index, expected in check:
            for output, wanted in zip(outputs, expected, strict=True):
                difference = np.abs(output[index] - wanted).max() / np.abs(wanted).max()
                worst = max(worst, float(difference) if np.isfinite(difference) else np.inf)
        return worst


def as_tuple(result: Any) -> tuple[Any, ...]:
    """Return `result` as a tuple of outputs."""
    return tuple(result) if isinstance(result, tuple | list) else (result,)


def double(program: Callable[..., Any], *inputs: np.ndarray) -> Arrays:
    """Run `program` with NumPy in float64."""
    return as_tuple(program(np, *(array.astype(np.float64) for array in inputs)))


def by_hand_in_double(by_hand: Callable[..., Any]) -> Callable[[Arrays], Check]:
    """Return a reference of all values and gradients: `by_hand` on float64."""

    def reference(inputs: Arrays) -> Check:
        wide = [array.astype(np.float64) if array.dtype.kind == "f" else array for array in inputs]
        return [(..., tuple(np.asarray(found) for found in by_hand(*wide)))]

    return reference


def both_ends(count: int, length: int) -> list[slice]:
    """Return slices for the first and the last `count` of `length` items (or all of them)."""
    if 2 * count >= length:
        return [slice(0, length)]
    return [slice(0, count), slice(length - count, length)]
