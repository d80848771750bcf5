"""Who may write where: updates in place, outputs that share memory, and the verifier of both."""

import numpy
import pytest

import tiledarray as np
from tests.plans import TARGETS, planned
from tiledarray import config
from tiledarray.recording.stretch import local

SHAPE = (64, 100)
EACH_TARGET = pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)


@pytest.fixture(autouse=True)
def clean():
    """Nothing pending from elsewhere; kernels are waited for, however small the arrays."""
    local.recorder.reset()
    with config.override(compile="wait", cut=400, at_once=0):
        yield
    local.recorder.reset()


def values(*shape):
    return numpy.random.default_rng(3).random(shape or SHAPE)


def choices(plan):
    return [choice for choice, _ in plan.updates.values()]


# ---- an array that is also a result is not overwritten ------------------------------------------

COPIES = {
    "reshape": lambda np, x: x.reshape(-1, 4).copy(),
    "array of a reshape": lambda np, x: np.array(x.reshape(2, -1)),
    "new axis": lambda np, x: x[None].copy(),
    "broadcast": lambda np, x: np.broadcast_to(x, (1, *x.shape)).copy(),
    "reshape back": lambda np, x: x.flatten().reshape(x.shape).copy(),
    "reshape of a reshape": lambda np, x: x.reshape(-1).copy().reshape(2, -1),
}


@pytest.mark.parametrize("name", COPIES)
def test_a_copy_keeps_its_values(name):
    def program(np):
        x = np.array(values())
        getattr(np, "evaluate", lambda x: None)(x)
        copy = COPIES[name](np, x)
        x[1:] += 10
        return x, copy

    for ours, theirs in zip(program(np), program(numpy), strict=True):
        numpy.testing.assert_array_equal(numpy.asarray(ours), theirs)


@EACH_TARGET
def test_an_update_beside_a_copy_of_the_old_value_is_made_elsewhere(target):
    x = np.evaluate(np.array(values()))
    copy = x.reshape(-1, 4).copy()
    x[1:] += 10
    assert choices(planned(x, copy, target=target)) == ["border"]
    del copy
    assert choices(planned(x, target=target)) == ["in place"]


# ---- a kernel of several passes overwrites what it reads in its last ----------------------------


def normalised_beside(np, x):
    part = x[:, 2:98] * 1.5
    x[:, 2:98] += 1.0
    return x, np.abs(part - part.max(1, keepdims=True)).sum(1)


def columns_beside(np, x):
    part = x[2:60] * 1.5
    x[2:60] = x[2:60] - 3.0
    return x, np.abs(part - part.max(0)).sum(0)


def three_passes_beside(np, x):
    part = x[1:, 1:] + 1.0
    x[1:, 1:] *= 2.0
    gap = part - part.max(1, keepdims=True)
    return x, (gap - gap.mean(1, keepdims=True)).min(1)


@pytest.mark.parametrize("program", [normalised_beside, columns_beside, three_passes_beside])
def test_what_every_pass_reads_is_overwritten_in_the_last(program):
    x = np.evaluate(np.array(values()))
    ours = program(np, x)
    for target in TARGETS.values():
        plan = planned(*ours, target=target)
        assert choices(plan) == ["in place"]
        assert len(plan.kernels) == 1
        assert plan.kernels[0].group.phases > 1
    for mine, theirs in zip(ours, program(numpy, values()), strict=True):
        numpy.testing.assert_allclose(mine.numpy(), theirs, rtol=1e-12)
