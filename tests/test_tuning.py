"""Tuning: plans take turns on real runs, no result depends on whose turn it is, the best stays.

There are choices for a GPU only; here the host has some, and a clock says what the test wants.
"""

import json
from collections import OrderedDict

import numpy
import pytest

import tiledarray as np
from tests.plans import let_compile, plan_of
from tiledarray import config, jit
from tiledarray.core import forget_programs
from tiledarray.errors import CompilerError
from tiledarray.execution import executable, kept, known, tuning
from tiledarray.execution.executable import Executable
from tiledarray.fusion import choices
from tiledarray.fusion.target import Target
from tiledarray.insight.explain import explain
from tiledarray.kernels.compile import cache
from tiledarray.recording.stretch import local

pytestmark = pytest.mark.compiler

TILES = {"tile": (1 << 9, 1 << 10), "lanes": (1 << 8,)}
HOST = {"map": TILES, "row": TILES, "column": TILES,
        "scan": {"scanned_chunk": (16, 32), "scanned_rows": (2,)}}


class Clock:
    """Stands for `perf_counter`: a run takes as long as ``seconds`` says of its choice."""

    def __init__(self, monkeypatch):
        self.now, self.seconds, self.tunings = 0.0, {}, []
        self.fails = None
        run, made = Executable.run, tuning.Tuning.__init__

        def watched(plan, *args, **options):
            for each in self.tunings:
                for choice, other in each._plans.items():
                    if other is plan:
                        self.now += self.seconds.get(choice, 1.0)
                        if choice == self.fails:
                            raise MemoryError("none left")
            return run(plan, *args, **options)

        def kept_in_mind(made_now, *args):
            made(made_now, *args)
            self.tunings.append(made_now)

        monkeypatch.setattr(Executable, "run", watched)
        monkeypatch.setattr(tuning.Tuning, "__init__", kept_in_mind)
        monkeypatch.setattr(tuning, "perf_counter", lambda: self.now)


@pytest.fixture
def clock(monkeypatch, tmp_path):
    monkeypatch.setitem(choices.BY_FORM, "cpu", HOST)
    monkeypatch.setattr(tuning, "LEAST_SECONDS", 0.0)
    monkeypatch.setattr(tuning, "WORTH_SECONDS", 0.0)
    monkeypatch.setattr(kept, "_written", [0])
    monkeypatch.setattr(known, "executables", OrderedDict())
    forget_programs()
    local.recorder.reset()
    with config.override(cache_dir=tmp_path / "cache", compile="wait", at_once=0, device="cpu",
                         verify=False, tune=True):
        yield Clock(monkeypatch)
    local.recorder.reset()


def forget(monkeypatch):
    """Have nothing planned, as in another process."""
    monkeypatch.setattr(known, "executables", OrderedDict())
    forget_programs()


def data(*shape):
    return numpy.random.default_rng(0).random(shape)


def running(x):
    return np.cumsum(x * 2.0 - 1.0, axis=-1)


def expected_of(x):
    return numpy.cumsum(x * 2.0 - 1.0, axis=-1)


def runs(count, compute, expected):
    """Compute again and again, look each time, and wait for the compiler after the first."""
    for number in range(count):
        result = compute()
        numpy.testing.assert_allclose(numpy.asarray(result), expected, rtol=1e-9, atol=1e-9)
        if number == 0:
            let_compile()
    return result


def the(clock):
    (only,) = clock.tunings
    return only


def test_plans_take_turns_and_the_fastest_stays(clock):
    x = data(60, 500)
    ours, expected = np.array(x), expected_of(x)
    best = (("scanned_chunk", 32),)
    clock.seconds[best] = 0.5
    result = runs(60, lambda: running(ours), expected)
    found = the(clock).found
    assert found.choice == best
    assert found.timed[0] == ((), 1.0)
    assert (best, 0.5) in found.timed and len(found.timed) >= 3
    assert plan_of(result) is the(clock).best.plan is not the(clock)._usual.plan
    text = str(explain(result))
    assert "scanned_chunk = 32 500 ms" in text
    assert "Taken: scanned_chunk = 32" in text


def test_what_several_gain_is_tried_together(clock):
    x = data(60, 500)
    ours, expected = np.array(x), expected_of(x)
    both = (("scanned_chunk", 16), ("scanned_rows", 2))
    clock.seconds.update({both[:1]: 0.8, both[1:]: 0.7, both: 0.4})
    for _ in range(3):
        runs(60, lambda: running(ours), expected)
    assert the(clock).found.choice == both


@pytest.mark.parametrize("seconds", [1.0, 0.98])
def test_the_usual_plan_stays_where_little_is_gained(clock, seconds):
    x = data(60, 500)
    ours, expected = np.array(x), expected_of(x)
    clock.seconds[("scanned_chunk", 32),] = seconds
    result = runs(60, lambda: running(ours), expected)
    assert the(clock).found.choice == ()
    assert plan_of(result) is the(clock)._usual.plan
    assert "None saves 3%, so it stays as planned" in " ".join(str(explain(result)).split())


def test_writes_in_place_are_applied_once_a_step(clock):
    u, ours = data(50, 60), np.array(data(50, 60))
    for number in range(60):
        for x in (u, ours):
            x[1:-1, 1:-1] += 0.1 * (x[:-2, 1:-1] + x[2:, 1:-1] - 2 * x[1:-1, 1:-1])
            x *= 1.01
        numpy.testing.assert_allclose(numpy.asarray(ours), u, rtol=1e-12)
        if number == 0:
            let_compile()
    assert any(each.found is not None for each in clock.tunings)


def test_a_jitted_function_is_tuned(clock):
    x = data(60, 500)
    ours, expected = np.array(x), expected_of(x)
    clock.seconds[("scanned_chunk", 16),] = 0.25
    quick = jit(running)
    result = runs(60, lambda: quick(ours), expected)
    assert the(clock).found.choice == (("scanned_chunk", 16),)
    assert "Taken: scanned_chunk = 16" in str(explain(result))


def test_a_jitted_function_that_writes(clock):
    @jit
    def step(u, v):
        v += 0.5 * (u - v.mean(axis=1, keepdims=True))
        return (u * v).sum(axis=0)

    u, v = data(40, 70), data(40, 70) + 1
    ours = np.array(u), np.array(v)
    for number in range(80):
        v += 0.5 * (u - v.mean(axis=1, keepdims=True))
        numpy.testing.assert_allclose(numpy.asarray(step(*ours)), (u * v).sum(axis=0), rtol=1e-10)
        numpy.testing.assert_allclose(numpy.asarray(ours[1]), v, rtol=1e-10)
        if number == 0:
            let_compile()
    assert any(each.found is not None for each in clock.tunings)


def test_another_process_finds_what_was_taken(clock, monkeypatch):
    x = data(60, 500)
    ours, expected = np.array(x), expected_of(x)
    clock.seconds[("scanned_chunk", 32),] = 0.5
    runs(60, lambda: running(ours), expected)
    forget(monkeypatch)
    result = runs(2, lambda: running(ours), expected)
    assert len(clock.tunings) == 1
    assert "Taken: scanned_chunk = 32" in str(explain(result))
    # Also for other lengths of its class, and not for others.
    y = data(58, 490)
    runs(1, lambda: running(np.array(y)), expected_of(y))
    assert len(clock.tunings) == 1
    y = data(58, 430)
    runs(1, lambda: running(np.array(y)), expected_of(y))
    assert len(clock.tunings) == 2


def test_what_is_damaged_counts_as_never_found(clock, monkeypatch):
    x = data(60, 500)
    ours, expected = np.array(x), expected_of(x)
    runs(60, lambda: running(ours), expected)
    name = the(clock)._name
    assert tuning.found(name) is not None
    for content in (b"", b"{}", b"[1]", json.dumps({"choice": 3, "timed": []}).encode(),
                    json.dumps({"choice": [["no_such_limit", 3]], "timed": [[[], 1.0]]}).encode()):
        cache.put(name, tuning.SUFFIX, content)
        assert tuning.found(name) is None
        forget(monkeypatch)
        runs(1, lambda: running(ours), expected)


def test_none_is_made_where_it_is_turned_off(clock):
    x = data(60, 500)
    ours, expected = np.array(x), expected_of(x)
    with config.override(tune=False):
        runs(10, lambda: running(ours), expected)
    assert not clock.tunings
    # Nor does one go on that has begun.
    forget_programs()
    known.executables.clear()
    runs(2, lambda: running(ours), expected)
    (only,) = clock.tunings
    with config.override(tune=False):
        runs(60, lambda: running(ours), expected)
    assert only.found is None and only.best is only._usual


def test_what_does_not_compile_is_left_out(clock, monkeypatch):
    x = data(60, 500)
    ours, expected = np.array(x), expected_of(x)
    compiled = Executable.compile

    def refuses(plan):
        if clock.tunings and plan is not the(clock)._usual:
            raise CompilerError("no", remedy="none")
        compiled(plan)

    monkeypatch.setattr(Executable, "compile", refuses)
    runs(60, lambda: running(ours), expected)
    assert the(clock).found.timed == [((), 1.0)]


def test_a_run_that_fails_takes_its_plan_out_and_loses_nothing(clock):
    x = data(60, 500)
    ours, expected = np.array(x), expected_of(x)
    clock.fails = (("scanned_chunk", 16),)
    failed = 0
    for number in range(60):
        y = running(ours)
        try:
            numpy.asarray(y)
        except MemoryError:
            failed += 1
        numpy.testing.assert_allclose(numpy.asarray(y), expected, rtol=1e-9, atol=1e-9)
        if number == 0:
            let_compile()
    assert failed == 1
    assert clock.fails not in dict(the(clock).found.timed)


def test_who_watches_sees_the_usual_plan(clock):
    x = data(60, 500)
    ours, expected = np.array(x), expected_of(x)
    runs(3, lambda: running(ours), expected)
    before = the(clock)._runs
    seen = []
    executable.observers.append(lambda plan, step, elapsed: seen.append(plan))
    try:
        runs(5, lambda: running(ours), expected)
    finally:
        executable.observers.pop()
    assert {*seen} == {the(clock)._usual}
    assert the(clock)._runs == before


def test_a_plan_that_is_let_go_begins_anew(clock):
    x = data(60, 500)
    ours, expected = np.array(x), expected_of(x)
    clock.seconds[("scanned_chunk", 32),] = 0.5
    runs(60, lambda: running(ours), expected)
    only = the(clock)
    winner = only.best
    only._usual.let_go()
    assert only.best is only._usual
    assert not winner.launches


def test_choices_are_of_the_kernels_forms():
    gpu = Target("cuda", 132)
    names = {name for by_form in choices.BY_FORM["cuda"].values() for name in by_form}
    for name in names:
        other = Target("cuda", 132, choice=((name, 7),))
        assert getattr(other.limits, name) == 7
        assert getattr(gpu.limits, name) != 7
    assert choices.joined([(("a", 1),), (("a", 2), ("b", 3))]) == (("a", 1), ("b", 3))
