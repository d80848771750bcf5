"""Two sides on a machine that has one: a device that is the host's again, with memory of its own.

What lies there is copied to be seen, as it is from a GPU, so that all of ``Device("auto")`` but the
GPU itself runs here.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from random import Random
from typing import Any
from unittest import mock

import numpy as np

from tiledarray import config
from tiledarray.core import set_beside_gpu
from tiledarray.devices import device as devices
from tiledarray.devices.device import Device, HostBackend
from tiledarray.devices.storage import Buffer
from tiledarray.execution import placement


class _Module:
    """What CuPy is to a GPU."""

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)

    @staticmethod
    def asnumpy(array: np.ndarray) -> np.ndarray:
        return np.array(array)


class FarBackend(HostBackend):
    """A device of its own in the host's memory."""

    xp: Any = _Module()

    def wrap(self, array: Any, copy: bool = False, given: bool = False) -> Buffer:
        return super().wrap(array, copy=copy or not given, given=given)

    def to_host(self, buffer: Buffer) -> np.ndarray:
        return np.array(buffer.array)


@contextlib.contextmanager
def two_sides(choose: Callable[..., bool] | None = None) -> Iterator[Device]:
    """Let ``Device("auto")`` stand for the host and a device beside it, which is given.

    ``choose`` says of a trace and its targets whether they are computed there, in place of
    `placement.chosen`.
    """
    devices.register_backend("far", f"{__name__}:FarBackend")
    far, auto = Device("far"), devices._intern("auto", "auto", 0)
    with contextlib.ExitStack() as stack:
        for module, name, value in (
            (devices, "_automatic", lambda: auto), (devices, "accelerator", lambda: far),
            (placement, "accelerator", lambda: far),
        ):
            stack.enter_context(mock.patch.object(module, name, value))
        if choose is not None:
            stack.enter_context(chosen_by(choose, far))
        stack.enter_context(config.override(device="auto"))
        stack.callback(placement._choices.clear)
        stack.callback(placement._lost.clear)
        stack.callback(set_beside_gpu, False)
        yield far
    devices._interned.pop("auto", None)


def chosen_by(choose: Callable[..., bool], there: Device) -> Any:
    """Let ``choose`` say what is computed there, and not on the host."""

    def chosen(traced: Any, targets: Any, threads: int, **known: bool) -> Device:
        return there if choose(traced, targets) else Device("cpu")

    return mock.patch.object(placement, "chosen", chosen)


def by_chance(seed: int) -> Callable[..., bool]:
    """Choose either side, the same way each time the program runs."""
    random = Random(seed)
    return lambda traced, targets: random.random() < 0.5
