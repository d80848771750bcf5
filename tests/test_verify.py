"""The verifier looks at what each pass leaves, before the next one runs."""

import dataclasses

import numpy
import pytest

import tiledarray as np
from tests.plans import DEVICE, HOST, filled, planned
from tiledarray import config
from tiledarray.fusion import passes
from tiledarray.fusion.group import Grouper
from tiledarray.fusion.loops import in_blocks
from tiledarray.fusion.rewrite import rewrite
from tiledarray.fusion.verify import InvalidPlan, verify_groups, verify_steps, verify_values
from tiledarray.graph.program import trace
from tiledarray.recording.stretch import local


@pytest.fixture(autouse=True)
def clean():
    local.recorder.reset()
    with config.override(compile="wait", cut=400, at_once=0):
        yield
    local.recorder.reset()


def program():
    x = np.evaluate(filled(20, 30))
    y = np.sin(x) * 2 + x.T[:20, :20].sum(axis=0, keepdims=True).T
    z = np.zeros((20, 30))
    z[2:, 3:] = y[2:, 3:] - y.mean(axis=1, keepdims=True)[2:]
    return z, y.reshape(-1) * 3


def grouped():
    """Values, outputs and groups of the program, as the passes before the groups' left them."""
    traced = trace([array.origin().node for array in program()])
    builder, outputs = rewrite(in_blocks(traced.signature, HOST), HOST)
    return builder.values, outputs


def of_op(values, name):
    return next(value for value in values if value.op.name == name)


BROKEN = {
    "user first": lambda values: values.reverse(),
    "twice": lambda values: values.append(values[-1]),
    "shape of an op": lambda values: setattr(of_op(values, "multiply"), "shape", (20, 31)),
    "shape of a sum": lambda values: setattr(of_op(values, "sum"), "shape", (7,)),
    "dtype of a view": lambda values: setattr(
        of_op(values, "view"), "dtype", numpy.dtype("f4")),
    "size of a reshape": lambda values: setattr(of_op(values, "reshape"), "shape", (599,)),
    "region of an update": lambda values: setattr(
        of_op(values, "update"), "attrs", ((0, 1), (1, 1), (18, 28))),
    "loops of an op": lambda values: setattr(of_op(values, "sin"), "attrs", ()),
}


@pytest.mark.parametrize("name", BROKEN)
def test_values_that_do_not_follow_are_found(name):
    values, outputs = grouped()
    verify_values(values, outputs)
    BROKEN[name](values)
    with pytest.raises(InvalidPlan):
        verify_values(values, outputs)


def test_an_output_that_is_no_value_is_found():
    values, outputs = grouped()
    with pytest.raises(InvalidPlan, match="no value of the plan"):
        verify_values(values, [*outputs, dataclasses.replace(outputs[0])])


def test_groups_that_do_not_wait_are_found():
    values, outputs = grouped()
    grouper = Grouper(values, outputs, HOST)
    grouper.run()
    verify_groups(grouper)
    waiting = next(group for group in grouper.groups if group.depends)
    grouper._before[waiting.number] = 0
    with pytest.raises(InvalidPlan, match="does not wait"):
        verify_groups(grouper)
    grouper._before[waiting.number] = -1
    with pytest.raises(InvalidPlan, match="before itself"):
        verify_groups(grouper)


def test_cells_out_of_order_are_found():
    values, outputs = grouped()
    grouper = Grouper(values, outputs, HOST)
    grouper.run()
    max(grouper.groups, key=lambda group: len(group.cells)).cells.reverse()
    with pytest.raises(InvalidPlan, match="cell"):
        verify_groups(grouper)


@pytest.mark.parametrize("target", [HOST, DEVICE], ids=["cpu", "cuda"])
def test_loop_nests_that_leave_something_out_are_found(target):
    plan = planned(*program(), target=target)
    verify_steps(plan.steps)
    schedule = plan.kernels[0].schedule
    axes, threads = schedule.axes, schedule.threads
    for wrong, complaint in [
        ((*axes[:-1], dataclasses.replace(axes[-1], size=axes[-1].size - 1)), "not the domain"),
        ((axes[-1], *axes), "twice"),
    ]:
        schedule.axes = wrong
        with pytest.raises(InvalidPlan, match=complaint):
            verify_steps(plan.steps)
    schedule.axes, schedule.threads = axes, (2048, 1)
    with pytest.raises(InvalidPlan, match="tile"):
        verify_steps(plan.steps)
    schedule.threads = threads
    verify_steps(plan.steps)


def test_a_pass_that_breaks_something_is_found_before_the_next_runs(monkeypatch):
    def broken(builder, outputs, regions):
        of_op(builder.values, "multiply").shape = (1, 2, 3)

    def never(*args, **options):
        raise AssertionError("the next pass ran")

    monkeypatch.setattr(passes, "uncover", broken)
    monkeypatch.setattr(passes, "Grouper", never)
    arrays = program()
    with pytest.raises(InvalidPlan, match="does not follow"):
        planned(*arrays)
