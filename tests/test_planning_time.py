"""Planning takes time in proportion to what is planned, counted in calls of Python functions."""

from cProfile import Profile

import numpy
import pytest

import tiledarray as np
from tests.plans import DEVICE, HOST, filled
from tiledarray import config
from tiledarray.fusion import passes
from tiledarray.graph.program import trace
from tiledarray.recording.stretch import local


@pytest.fixture(autouse=True)
def clean():
    with config.override(cut=10**9, at_once=0):
        local.recorder.reset()
        yield
    local.recorder.reset()


def in_pairs(arrays):
    while len(arrays) > 1:
        arrays = [a + b for a, b in zip(arrays[::2], arrays[1::2], strict=True)]
    return arrays[0]


def small_arrays(n):
    return in_pairs([np.evaluate(filled(3, 5, seed=k)) for k in range(n)])


def sums_of_small_arrays(n):
    return in_pairs([np.evaluate(filled(3, 5, seed=k)).sum() for k in range(n)])


def normalised_again_and_again(n):
    y = filled(50, 40)
    for _ in range(n // 4):
        y = y - y.max(axis=1, keepdims=True)
        y = np.exp(y) / np.exp(y).sum(axis=1, keepdims=True)
    return y


def sums_of_one_array(n):
    x = filled(50, 40)
    total = x.sum(axis=1)
    for k in range(n):
        total = total + (x * (k + 0.5)).sum(axis=1)
    return total


def sums_that_wait(n):
    y = filled(50, 40)
    for k in range(n // 4):
        y = y + (y * (k + 0.5)).sum(axis=k % 2, keepdims=True)
    return y


def independent(n):
    return [np.evaluate(filled(3 + k % 7, 5, seed=k)) * 2 for k in range(n)]


def sums_of_all(n):
    x = filled(50, 40)
    return [np.sqrt(np.abs(x - k * 1.1)).sum() for k in range(n)]


def one_group_joined_by_many(n):
    x = filled(50, 40)
    y = np.sin(x)
    for k in range(n // 4):
        y = np.cos(y) + (x * (k + 0.5)).sum(axis=1, keepdims=True)
    return y


def elements_written(n):
    u, total = np.evaluate(filled(3 * n), filled(7).sum())
    for k in range(n):
        u[k] = total * (k + 0.5)
    return u


def rows_written(n):
    u = np.evaluate(filled(2 * n, 5))
    for k in range(n):
        u[k] = u[k] * 2.0
    return u


def columns_from_one_another(n):
    u = np.evaluate(filled(5, 2 * n))
    for k in range(1, n):
        u[:, k] = u[:, k - 1] * 2.0 + 1
    return u


def inner_points_again_and_again(n):
    u = np.evaluate(filled(20, 30))
    for _ in range(n // 9):
        u[1:-1, 1:-1] = 0.25 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:])
    return u


def joined_in_pairs(n):
    parts = [np.evaluate(filled(4, 5, seed=k)) for k in range(n)]
    while len(parts) > 1:
        parts = [np.concatenate(pair) for pair in zip(parts[::2], parts[1::2], strict=True)]
    return parts[0]


def columns_of_reductions(n):
    x, u = filled(3, n), np.zeros((2, n))
    for k in range(n):
        u[:, k] = x[:, k].max()
    return u


def of_many_shapes(n):
    total = filled(7).sum()
    return [np.evaluate(filled(3 + k, seed=k)) * total for k in range(n)]


# How long a program is, so that both need more kernels than one: grouping begins anew for that.
PROGRAMS = {small_arrays: 128, sums_of_small_arrays: 128, sums_that_wait: 300, independent: 128,
            normalised_again_and_again: 400, sums_of_one_array: 400, sums_of_all: 100,
            one_group_joined_by_many: 1200, elements_written: 80, rows_written: 80,
            columns_from_one_another: 80, inner_points_again_and_again: 180,
            joined_in_pairs: 64, of_many_shapes: 64, columns_of_reductions: 160}


def calls_to_plan(program, n, target):
    """How many calls of Python functions it takes to plan a program of that length."""
    made = program(n)
    arrays = made if isinstance(made, list) else [made]
    traced = trace([array.origin().node for array in arrays])
    calls = Profile(builtins=False)
    with calls:
        plan = passes.plan(
            traced.signature, frozenset(), target, params=traced.params, check=True)
    return sum(entry.callcount for entry in calls.getstats()), plan


@pytest.mark.sampled(12)
@pytest.mark.parametrize("target", [HOST, DEVICE], ids=["cpu", "cuda"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_planning_is_linear(program, target):
    few, _ = calls_to_plan(program, PROGRAMS[program], target)
    many, _ = calls_to_plan(program, 4 * PROGRAMS[program], target)
    assert many < 5.5 * few


def test_a_thousand_small_arrays_are_read_by_few_kernels():
    _, plan = calls_to_plan(small_arrays, 1024, HOST)
    assert len(plan.kernels) == 17  # each reads at most 64
    assert sum(kernel.bytes_moved for kernel in plan.kernels) < 1100 * numpy.prod((3, 5)) * 8
