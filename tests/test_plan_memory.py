"""Who may write where: updates in place, outputs that share memory, and the verifier of both."""

import numpy
import pytest

import tiledarray as np
from tests.plans import TARGETS, kinds, planned
from tiledarray import config
from tiledarray.fusion.verify import InvalidPlan, verify
from tiledarray.ops.op import Leaf
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


# ---- which outputs share memory ------------------------------------------------------------------


def test_a_plan_says_which_outputs_share_memory():
    x = np.evaluate(np.array(values()))
    one, other, apart = x * 2, x * 2, x * 3
    turned = one.reshape(-1).copy()
    copy = x.reshape(-1).copy()
    plan = planned(one, other, apart, turned, copy)
    shared = {tuple(plan.outputs[place].shape for place in places)
              for places in plan.shared.values()}
    assert shared == {(SHAPE, SHAPE, (6400,)), ((6400,),)}
    assert all(isinstance(base.op, Leaf) == (len(places) == 1)
               for base, places in plan.shared.items())


def test_the_memory_of_a_dead_leaf_is_its_updates_own():
    x = np.evaluate(np.array(values()))
    x[1:] += 10
    assert planned(x).shared == {}
    y = x[:]
    assert planned(x, y).shared == {}


# ---- the verifier finds what is wrong -----------------------------------------------------------


def verified(plan, donated=(0, 1, 2)):
    """What the verifier says of a plan: the complaint, or nothing."""
    try:
        verify(plan, donated)
    except InvalidPlan as complaint:
        return str(complaint)
    return None


def test_sharing_that_the_plan_does_not_tell_is_found():
    x = np.evaluate(np.array(values()))
    plan = planned(x * 2, x * 2, x.reshape(-1).copy())
    assert verified(plan) is None
    for base in [*plan.shared]:
        places = plan.shared.pop(base)
        assert "does not say so" in verified(plan)
        plan.shared[base] = places


def test_a_read_after_its_value_is_overwritten_is_found():
    x = np.evaluate(np.array(values()))
    y = x.sum(0) + 1
    x[1:] += 10
    plan = planned(x, y)
    assert choices(plan) == ["in place"]
    assert verified(plan) is None
    plan.steps.reverse()
    assert "overwritten" in verified(plan) or "before" in verified(plan)


def test_an_update_of_what_is_a_result_is_found():
    x = np.evaluate(np.array(values()))
    y = x[:] + 0.5
    x[1:] += 10
    plan = planned(x, y)
    assert verified(plan) is None
    plan.outputs.append(next(value for value in plan.values if isinstance(value.op, Leaf)))
    assert "overwritten" in verified(plan)


def test_an_update_of_a_leaf_that_others_hold_is_found():
    x = np.evaluate(np.array(values()))
    x[1:] += 10
    plan = planned(x)
    assert verified(plan) is None
    assert "not the plan's own" in verified(plan, donated=())


def test_a_pass_that_reads_what_an_earlier_one_overwrote_is_found():
    plan = planned(*normalised_beside(np, np.evaluate(np.array(values()))))
    assert verified(plan) is None
    for sink in plan.kernels[0].group.sinks:
        sink.earliest = 1
    assert "has overwritten it" in verified(plan)


def test_parts_of_a_launch_that_only_an_assumption_keeps_apart_are_found():
    x = np.evaluate(np.array(values()))
    for k in (3, 40):
        x[k:k + 5] = x[k:k + 5] * 2
    plan = planned(x)
    assert kinds(plan) == ["map"]
    assert len(plan.kernels[0].parts) == 2
    assert verified(plan) is None
    assert plan.assumed
    plan.assumed = ()
    assert "is written in step 0" in verified(plan)
