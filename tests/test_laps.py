"""Many steps of a loop as launch graphs: laps and their values, by launches of this machine."""

import ctypes
from types import SimpleNamespace
from typing import ClassVar

import numpy
import pytest

import tiledarray as np
from tests.plans import forget_plans, fresh_recorder
from tests.test_time_loops import BODIES, by_loop, by_numpy, check, drawn, same
from tiledarray.devices import device
from tiledarray.execution import executable
from tiledarray.execution.laps import WORTH_IT, Laps

HOST = device.resolve("cpu")


clean = fresh_recorder(compile="wait", at_once=0)


class HostGraph:
    """Launches on the host that start together, with whatever arguments they were given last."""

    def __init__(self, launches):
        self.launches = [[launch, packed] for launch, *_, packed in launches]

    def bound(self, new):
        for number, packed in new.items():
            self.launches[number][1] = packed
        return self.start

    def start(self):
        for launch, packed in self.launches:
            args = launch.arguments()
            ctypes.memmove(args.memory, packed, len(packed))
            launch.start(args)

    def check(self, status):
        assert status is None


class HostLaps(Laps):
    """Laps of steps that are run on the host as a GPU's are."""

    made: ClassVar = []

    def __init__(self, step, executable, first, kinds):
        shim = SimpleNamespace(
            allocate=HOST.allocate, wrap=HOST.wrap, synchronize=lambda: None, graph=HostGraph,
            backend=SimpleNamespace(stream=lambda: 0),
            copy_bytes=lambda to, source, nbytes: ctypes.memmove(to, source, nbytes))
        launches = {kernel: SimpleNamespace(
                        function=launch, program=launch.program, binding=launch.binding,
                        arguments=launch.arguments, start=launch.start)
                    for kernel, launch in executable.launches.items()}
        super().__init__(step, SimpleNamespace(
            plan=executable.plan, leaves=executable.leaves, places=executable.places,
            programs=executable.programs, launches=launches, device=shim), first, kinds)
        self.made.append(self)


@pytest.fixture
def made(monkeypatch):
    monkeypatch.setattr(executable, "Laps", HostLaps)
    monkeypatch.setattr(executable.Executable, "_tiled", lambda self, value: self._laps(
        value.attrs, self.bodies[value]))
    monkeypatch.setattr(HostLaps, "made", [])
    forget_plans(monkeypatch)
    return HostLaps.made


LENGTHS = {"elementwise": 0, "stencil": 0, "twice_the_same": 0,  # they ask for their number
           "in_place": 2, "swapped": 3, "old_and_new": 6, "views": 2, "reduced": 2, "with_nan": 2}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("body", BODIES)
def test_is_the_loop(body, made):
    start = drawn(30, 20), drawn(30, 20, seed=1)
    given = *map(np.array, start),
    for count in (2, WORTH_IT, WORTH_IT + 1, 150, 150):
        check(body, by_loop(body, "f8", range(count), *given),
              by_numpy(body, "f8", range(count), *start))
    lengths = {len(laps.lap) for laps in made}  # of none where nothing is computed
    assert lengths == ({LENGTHS[body.__name__]} if body.__name__ in LENGTHS else set())


def test_scalars_and_what_stays_may_change(made):
    def run(np, u, still, k, factor):
        def body(i, u):
            return u * factor + still

        if np is numpy:
            for i in range(k):
                u = body(i, u)
            return u
        return np.fori_loop(k, body, u)

    looped = np.jit(lambda u, still, factor: run(np, u, still, 70, factor))
    for seed in range(3):
        u, still = drawn(50, seed=seed), drawn(50, seed=seed + 9)
        for factor in (0.5, -0.25, numpy.nan):
            same(looped(np.array(u), np.array(still), factor), run(numpy, u, still, 70, factor))
    assert {len(laps.lap) for laps in made} == {2}


def test_steps_that_lead_nowhere_soon_go_one_by_one(made):
    state = [drawn(9, seed=k) for k in range(3)]

    def body(i, state):
        u, v, w = state
        return [v + 0.0, w, u * 0.5]

    wanted = state
    for i in range(40):
        wanted = body(i, wanted)
    found = np.fori_loop(40, body, [np.array(x) for x in state])
    for x, y in zip(found, wanted, strict=True):
        same(x, y)
    assert made[0].lap == []
