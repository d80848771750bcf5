"""Long and deep recordings: no chain of ops is too deep for Python's stack."""

from __future__ import annotations

import threading
import weakref

import numpy
import pytest

import tiledarray as np
from tests.plans import planned
from tiledarray import config
from tiledarray.recording.stretch import local


@pytest.mark.parametrize("length", [390, 1700, 20_000])
def test_a_chain_that_nobody_looks_at(length: int) -> None:
    x = np.ones(3)
    for _ in range(length):
        x = x + 1
    assert x.tolist() == [length + 1.0] * 3


def test_a_chain_of_ops_of_many_lines_and_sums() -> None:
    x, expected = np.linspace(0, 1, 50), numpy.linspace(0, 1, 50)
    for _ in range(150):
        x = np.sin(x) + x.sum() / 100
        x = x * 0.5 - 1
        expected = numpy.sin(expected) + expected.sum() / 100
        expected = expected * 0.5 - 1
    numpy.testing.assert_allclose(x.numpy(), expected, rtol=1e-9)


@pytest.mark.compiler
def test_a_chain_as_one_kernel() -> None:
    with config.override(compile="wait"):
        x = np.arange(1000.0)
        for step in range(180):
            x = x * 1.0 + step
        assert float(x.sum()) == numpy.arange(1000.0).sum() + 1000 * sum(range(180))


def test_chains_in_threads() -> None:
    totals = []

    def run(step: int) -> None:
        x = np.arange(1000.0)
        for _ in range(190):
            x = x * 1.0 + step
        totals.append(float(x.sum()))

    threads = [threading.Thread(target=run, args=(step,)) for step in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(totals) == [numpy.arange(1000.0).sum() + 190_000 * step for step in range(4)]


def test_a_deep_chain_of_views() -> None:
    x = numpy.arange(3000)
    ours = np.array(x)
    while len(ours) > 1:
        ours = ours[1:]
    assert ours.tolist() == [2999]
    matrix = np.arange(12).reshape(3, 4)
    for _ in range(300):
        matrix = matrix.T.ravel().reshape(3, 4)[::-1]
    expected = numpy.arange(12).reshape(3, 4)
    for _ in range(300):
        expected = expected.T.ravel().reshape(3, 4)[::-1]
    assert matrix.tolist() == expected.tolist()


def test_many_axes() -> None:
    x = np.ones((1,) * 64)
    assert (x + x).shape == (1,) * 64
    assert float((x + x).sum()) == 2.0
    assert (x * 3).T[(0,) * 63].tolist() == [3.0]


def test_many_elements_joined() -> None:
    x = np.arange(600.0) * 2
    assert np.array([x[place] for place in range(600)]).tolist() == x.tolist()
    assert float(np.stack([np.ones(2) * place for place in range(300)]).sum()) == 300 * 299


def _lines(x):
    for _ in range(2500):
        x = x * 0.999 + 0.001
    return x


def _reversed(x):
    y = x
    for _ in range(2500):
        y = y[::-1] * 0.5 + x
    return y


def _written(x):
    y = x * 1
    for _ in range(1250):
        y[1:-1] = (y[2:] + y[:-2]) * 0.5
    return y


@pytest.mark.parametrize("work", [_lines, _reversed, _written])
def test_thousands_of_dependent_ops_are_one_plan(work) -> None:
    x = numpy.linspace(0, 1, 1000)
    with config.override(cut=10**9, compile="never"):
        result = work(np.array(x))
        values = len(planned(result).values)  # apart: a plan of this depth has no repr
        assert values > 3000
        numpy.testing.assert_allclose(result.numpy(), work(x), rtol=1e-9)


def test_a_million_operations_that_nobody_looks_at_are_dropped() -> None:
    with config.override(cut=10**9, at_once=0):
        x = np.ones(3)
        for _ in range(1_000_000):
            x = x + 1
        first = weakref.ref(x.node)
        del x
        assert first() is None
        local.recorder.reset()
