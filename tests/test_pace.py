"""Whether arrays of middle size are computed at once or recorded (`recording/pace.py`)."""

import os
import subprocess
import sys
import warnings
from pathlib import Path

import numpy
import pytest

import tiledarray as np
from tiledarray import config
from tiledarray.core import kind, small
from tiledarray.execution.spans import counters
from tiledarray.recording import pace as pacing
from tiledarray.recording.pace import AHEAD, FIRST, NEW, PATIENCE, TRIES, WINDOW, WORTH, Pace

MOST, LEAST = 4096, 1024
only_in_c = pytest.mark.skipif(kind != "c", reason="in Python all is computed at once")


@pytest.fixture(autouse=True)
def _limits():
    with config.override(at_once=MOST, at_once_least=LEAST, first_seconds=0.0):
        yield
        pacing.pace.begin()
    pacing.pace.begin()


class Program:
    """A program that does so many elements by the second, with a clock of its own."""

    def __init__(self, monkeypatch, at_once, recorded, others=0.0, known=0):
        self.speeds, self.others = {0: at_once, LEAST: recorded}, others
        self.own = 0.0  # its processor time: while it records, others take the processor too
        self.now, self.done, self.low, self.due, self.until = 100.0, 0.0, 0, 0.0, 0.0
        self.told, self.noted = [], []
        monkeypatch.setattr(pacing, "perf_counter", lambda: self.now)
        monkeypatch.setattr(pacing, "thread_time", lambda: self.own)
        monkeypatch.setattr(pacing.core, "paced", lambda: self.done)
        monkeypatch.setattr(pacing.core, "pace", self.go_on)
        monkeypatch.setattr(pacing.core, "small", lambda: self.low or MOST)
        monkeypatch.setattr(pacing.core, "set_cut", lambda cut: None)
        monkeypatch.setattr(pacing, "_new", lambda: ())  # other tests' compilers may be at work
        monkeypatch.setattr(pacing.background, "unfinished", lambda: 0)
        monkeypatch.setattr(pacing, "was_faster", lambda: known)
        monkeypatch.setattr(pacing, "note_faster", self.noted.append)
        monkeypatch.setattr(pacing.core, "wait_for_place", lambda within: self.go_on(0, 0, 0))
        self.pace = Pace()

    def go_on(self, low, due, within):
        self.low, self.due, self.until = low, due, self.now + within
        self.told.append((self.now, low))

    def run(self, seconds, step=0.001):
        """Return the share of the time in which arrays were recorded."""
        end, low = self.now + seconds, 0.0
        while self.now < end:
            self.now += step * (1 + self.others * bool(self.low))
            self.own += step
            self.done += step * self.speeds[self.low]
            low += step * bool(self.low)
            if self.done >= self.due or (self.low and self.now >= self.until):
                self.pace.turn()
        return low / seconds


def test_what_is_faster_recorded_is_recorded(monkeypatch):
    program = Program(monkeypatch, 5 * WORTH, 15 * WORTH)
    assert program.run(FIRST) < 0.05
    program.run(10 * WINDOW)
    assert program.pace.preferred
    assert program.run(60.0) > 0.95


@pytest.mark.parametrize(("higher", "lower", "preferred"), [
    (15, 2, 2048), (2, 15, 512), (20, 15, 512), (15, 5, 2048), (4, 4, 0)])
def test_two_limits_are_tried(monkeypatch, higher, lower, preferred):
    with config.override(at_once_least=512):
        program = Program(monkeypatch, 5 * WORTH, 0)
        program.speeds.update({2048: higher * WORTH, 512: lower * WORTH})
        program.run(FIRST + 10 * WINDOW + 2 * PATIENCE)
        assert program.pace.preferred == program.low == preferred
        assert program.noted == ([preferred // 512] if preferred else [])
        program.run(30.0)
        assert {low for _, low in program.told} == (
            {0, preferred} if preferred == 512 else {0, 512, 2048})
        assert program.run(60.0) > 0.95 if preferred else program.run(60.0) < 0.02
        again = Program(monkeypatch, 5 * WORTH, 0, known=preferred // 512)
        again.speeds.update({2048: higher * WORTH, 512: lower * WORTH})
        again.run(FIRST / 2)
        assert again.pace.preferred == preferred


def test_what_an_earlier_run_saw_to_be_faster_is_tried_soon(monkeypatch):
    program = Program(monkeypatch, 5 * WORTH, 15 * WORTH)
    program.run(FIRST / 2)
    assert not program.noted
    program.run(FIRST)
    assert program.noted
    again = Program(monkeypatch, 5 * WORTH, 15 * WORTH, known=1)
    again.run(FIRST / 2)
    assert again.pace.preferred


@only_in_c
@pytest.mark.compiler
def test_what_is_tried_is_planned(tmp_path):
    """Also where all that went op by op before has not been worth the planner."""
    (tmp_path / "script.py").write_text("""
import numpy, tiledarray as np
from tiledarray.execution import known
from tiledarray.recording.pace import pace

u, tried = np.array(numpy.random.default_rng(0).random((150, 200))), False
while pace.low or not tried:
    tried = tried or pace.low
    v = u * 0.5 + 1.0
    for _ in range(12):
        v = v * v * 0.25 + u - 0.125
    u[1:-1] = v[1:-1] * 0.1
    u[0, 0] = float(u[3, 3])
    if known.planner_is_loaded():
        break
print(known.planner_is_loaded())
""")
    done = subprocess.run(
        [sys.executable, str(tmp_path / "script.py")], capture_output=True, text=True,
        env={"PATH": os.environ["PATH"], "TILEDARRAY_CACHE_DIR": str(tmp_path / "cache"),
             "PYTHONPATH": str(Path(__file__).parents[1])})
    assert done.stdout == "True\n", done.stderr


def test_programs_are_known_by_their_file(tmp_path, monkeypatch):
    main = sys.modules["__main__"]
    with config.override(cache_dir=tmp_path / "cache"):
        monkeypatch.setattr(main, "__file__", str(tmp_path / "one.py"), raising=False)
        assert not pacing.was_faster() and not (tmp_path / "cache").exists()
        for level in pacing.LEVELS:
            pacing.note_faster(level)
            assert pacing.was_faster() == level
        monkeypatch.setattr(main, "__file__", str(tmp_path / "other.py"))
        assert not pacing.was_faster()
        monkeypatch.delattr(main, "__file__")
        pacing.note_faster(1)
        assert not pacing.was_faster()


def test_what_others_take_of_the_processor_does_not_count(monkeypatch):
    program = Program(monkeypatch, 5 * WORTH, 15 * WORTH, others=3.0)
    program.run(6)
    assert program.pace.preferred


def test_what_is_not_is_tried_later_and_later(monkeypatch):
    program = Program(monkeypatch, 5 * WORTH, 2 * WORTH)
    assert program.run(2.0) < 0.15
    assert program.run(60.0) < 0.02
    assert not program.pace.preferred


def test_a_little_faster_is_not_faster(monkeypatch):
    program = Program(monkeypatch, 5 * WORTH, 5 * (AHEAD - 0.05) * WORTH)
    program.run(20.0)
    assert not program.pace.preferred


def test_what_takes_no_time_is_not_tried(monkeypatch):
    program = Program(monkeypatch, 0.9 * WORTH, 100 * WORTH)
    assert program.run(20.0) == 0


def test_a_program_that_turns_slower_is_computed_at_once_again(monkeypatch):
    program = Program(monkeypatch, 5 * WORTH, 15 * WORTH)
    program.run(2.0)
    assert program.pace.preferred
    program.speeds = {0: 5 * WORTH, LEAST: WORTH}
    program.run(2.0)
    assert not program.pace.preferred and not program.low


def test_a_program_that_does_something_else_meanwhile_stays_recorded(monkeypatch):
    """What made it slow would make it slow at once, too."""
    program = Program(monkeypatch, 5 * WORTH, 15 * WORTH)
    program.run(2.0)
    for _ in range(5):
        program.speeds = {0: WORTH, LEAST: 3 * WORTH}
        program.run(1.0)
        program.speeds = {0: 5 * WORTH, LEAST: 15 * WORTH}
        program.run(1.0)
        assert program.pace.preferred
    assert program.run(20.0) > 0.9


def test_short_bursts_among_other_work_are_compared_with_each_other(monkeypatch):
    """Recorded, each takes less than a window: all windows have other work in them."""
    program = Program(monkeypatch, 5 * WORTH, 15 * WORTH)
    burst = 5 * WORTH * 2 * WINDOW  # elements, that take two windows at once
    for _ in range(60):
        until = program.done + burst
        while program.done < until:
            program.run(0.001)
        program.speeds = {0: 0.0, LEAST: 0.0}
        program.run(2 * WINDOW)
        program.speeds = {0: 5 * WORTH, LEAST: 15 * WORTH}
    assert program.pace.preferred and program.low


@pytest.mark.parametrize("seconds", [0.01, 0.1, 0.25, 1.0, 3.0])
@pytest.mark.parametrize(("slow", "fast"), [((5, 2), (50, 40)), ((5, 12), (50, 60))])
def test_parts_of_a_program_are_not_compared_with_each_other(monkeypatch, seconds, slow, fast):
    """The fastest windows of one way are of another part than those of the other."""
    program = Program(monkeypatch, slow[0] * WORTH, slow[1] * WORTH)
    for turn in range(int(40 / seconds)):
        for limit, speed in zip((0, LEAST), (slow, fast)[turn % 2], strict=True):
            program.speeds[limit] = speed * WORTH
        program.run(seconds)
    worth = slow[1] > slow[0]
    assert bool(program.pace.preferred) is worth
    recorded = 0.0
    for turn in range(int(40 / seconds)):
        for limit, speed in zip((0, LEAST), (slow, fast)[turn % 2], strict=True):
            program.speeds[limit] = speed * WORTH
        recorded += program.run(seconds) * seconds
    assert recorded > 35 if worth else recorded < 4


def test_a_clock_that_stands_still_tells_nothing(monkeypatch):
    """That of a thread moves by 16 ms on some systems."""
    program = Program(monkeypatch, 5 * WORTH, 15 * WORTH)
    monkeypatch.setattr(pacing, "thread_time", lambda: program.own // 0.016 * 0.016)
    program.run(5.0)
    assert program.pace.preferred
    program = Program(monkeypatch, 5 * WORTH, 4 * WORTH)
    monkeypatch.setattr(pacing, "thread_time", lambda: program.own // 0.016 * 0.016)
    program.run(5.0)
    assert not program.pace.preferred


def test_it_is_seen_that_at_once_has_become_faster(monkeypatch):
    program = Program(monkeypatch, 5 * WORTH, 15 * WORTH)
    program.run(2.0)
    program.speeds[0] = 40 * WORTH
    program.run(20.0)
    assert not program.pace.preferred


def test_a_try_in_which_much_is_new_tells_nothing(monkeypatch):
    program = Program(monkeypatch, 5 * WORTH, 15 * WORTH)
    fresh = iter(range(1, 1000))
    monkeypatch.setattr(pacing, "_new", lambda: (next(fresh),))
    program.speeds[LEAST] = WORTH
    program.run(FIRST + 10 * WINDOW)
    assert not program.pace.preferred
    monkeypatch.undo()


@pytest.mark.parametrize(("way", "soon"), [("background", True), ("wait", False)])
def test_what_sleeps_in_a_try_is_tried_again_soon(monkeypatch, way, soon):
    """While kernels compile, say; but a thread that waits for its own compilers loses that time."""
    program = Program(monkeypatch, 5 * WORTH, 4 * WORTH)
    monkeypatch.setattr(pacing, "_new", lambda: object())  # never the same
    program.run(FIRST)
    while not program.low:
        program.run(0.001)
    program.now += 3.0
    begun = program.now
    with config.override(compile=way):
        while program.low:
            program.run(0.001)
        program.run(20.0)
    again = next(now for now, low in program.told if low and now > begun + 1.0)
    assert (again - begun < 3.0) == soon


def test_tries_that_tell_nothing_end(monkeypatch):
    program = Program(monkeypatch, 5 * WORTH, WORTH)
    fresh = iter(range(1, 1 << 30))
    monkeypatch.setattr(pacing, "_new", lambda: (next(fresh),))
    program.run(10.0)
    tries = sum(one < other for (_, one), (_, other) in
                zip(program.told, program.told[1:], strict=False))
    assert TRIES <= tries <= TRIES + 3
    assert program.run(60.0) < 0.02


def test_nothing_is_tried_while_kernels_are_compiled(monkeypatch):
    program = Program(monkeypatch, 5 * WORTH, 15 * WORTH)
    monkeypatch.setattr(pacing.background, "unfinished", lambda: 1)
    assert program.run(5.0) == 0
    monkeypatch.setattr(pacing.background, "unfinished", lambda: 0)
    assert program.run(5.0) > 0.8


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_nothing_is_tried_where_warnings_raise(monkeypatch):
    program = Program(monkeypatch, 5 * WORTH, 15 * WORTH)
    assert program.run(5.0) == 0


@pytest.mark.parametrize(("filters", "raise_"), [
    ((), False),
    ((("error", "you are shuffling"),), False),
    ((("error", "invalid value encountered in sqrt$"),), True),
    ((("error", ""),), True),
    ((("error", "", DeprecationWarning),), False),
])
def test_warnings_raise_where_a_filter_is_for_those_of_arithmetic(filters, raise_):
    with warnings.catch_warnings():
        warnings.resetwarnings()
        for each in filters:
            warnings.filterwarnings(*each)
        assert pacing._warnings_raise() is raise_


def test_our_own_filters_keep_nothing_from_being_recorded():
    script = ("import tiledarray; from tiledarray.recording.pace import _warnings_raise; "
              "raise SystemExit(_warnings_raise())")
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_what_counts_as_new_is_counted():
    with config.override(compile="never"):
        before = [counters[name] for name in NEW]
        x = np.arange(MOST + 1.0)
        (x * 3.25 + x).sum().numpy()
        assert [counters[name] for name in NEW] != before


# ---- with arrays ---------------------------------------------------------------------------


def record():
    """Have arrays of middle size recorded from here on."""
    pacing.pace.preferred = LEAST
    pacing.pace._next = float("inf")
    pacing.pace._go(low=LEAST, work=float("inf"))


@only_in_c
def test_arrays_of_middle_size_are_recorded_and_settle_again():
    x = np.arange(2000.0)
    record()
    assert small() == LEAST
    y = x * 2 + 1
    assert y._array is None
    few = np.arange(10.0) * 2
    assert few._array is not None
    pacing.pace.begin()
    assert small() == MOST
    z = y + x
    assert (z == numpy.arange(2000.0) * 3 + 1).all()
    assert (z * 2)._array is not None


@only_in_c
@pytest.mark.parametrize("place", range(3))
def test_recording_begins_at_the_top_of_a_loop(place):
    """So runs that begin at any time find the same plans on disk."""
    def inner(x):
        x = x + 1
        told.append((step, "inner", small()))
        return x * 3

    x, told = np.arange(2000.0), []
    pacing.pace.begin()
    for step in range(8):
        y = x * 2
        told.append((step, "top", small()))
        y = inner(y)
        y = np.sqrt(y)
        told.append((step, "last", small()))
        if step == 2:
            pacing.pace._waits = True
            pacing.core.wait_for_place(60.0)
        if place == 1:
            y = y - x
        elif place == 2:
            inner(y)
    low = [entry for entry in told if entry[2] == LEAST]
    assert low and low[0][1] == "top" and low == told[-len(low):]


@only_in_c
def test_floating_point_errors_raise_at_the_line():
    x, zero = np.arange(2000.0), np.zeros(2000)
    record()
    y = x + 1  # pending
    assert y._array is None
    with np.errstate(divide="raise"), pytest.raises(FloatingPointError, match="divide by zero"):
        y / zero
    assert small() == MOST
    record()
    with numpy.errstate(invalid="raise"):
        with pytest.raises(FloatingPointError, match="invalid value"):
            np.sqrt(-(x + 1))
        with np.errstate(invalid="ignore"):
            assert numpy.isnan(numpy.asarray(np.sqrt(-(x + 1)))).all()
    record()
    with np.errstate(divide="ignore"):
        assert numpy.isinf(numpy.asarray((x + 1) / zero)).all()
    assert small() == LEAST


@only_in_c
def test_a_setting_for_a_while_forgets_what_was_measured():
    record()
    with config.override(at_once=MOST):
        assert small() == MOST
        assert (np.ones(2000) + 1)._array is not None
    with config.override(at_once_least=MOST):
        pacing.pace._go(low=LEAST, work=0.0)
        assert small() == MOST


@only_in_c
def test_loops_get_numpys_values_whatever_changes():
    def heat(np, steps):
        u = np.zeros((60, 60))
        u[20:30, 10:50] = 1.0
        sums = []
        for step in range(steps):
            if np is not numpy:
                pacing.pace._go(low=LEAST * (step % 7 < 3), work=float("inf"))
            u[1:-1, 1:-1] += 0.1 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]
                                    - 4 * u[1:-1, 1:-1])
            if step % 5 == 0:
                sums.append(float(u[::2].sum()))
        return u, sums

    (ours, sums), (theirs, wanted) = heat(np, 60), heat(numpy, 60)
    numpy.testing.assert_allclose(numpy.asarray(ours), theirs, rtol=1e-12, atol=1e-15)
    numpy.testing.assert_allclose(sums, wanted, rtol=1e-12)


@only_in_c
def test_small_and_large_arrays_are_not_weighed(monkeypatch):
    turns = []
    monkeypatch.setattr(pacing.pace, "turn", lambda: turns.append(1))
    pacing.begin()
    pacing.pace._go(low=0, work=0.0)
    x, y = np.ones(LEAST), np.ones(MOST + 1)
    for _ in range(100):
        x = x + 1
        y = np.sqrt(y) * 2
    y.sum().numpy()
    assert not turns
    monkeypatch.undo()
    pacing.begin()


@only_in_c
def test_results_are_counted_alike_either_way():
    from tiledarray.core import paced

    def count(low):
        pacing.pace._go(low=low, work=float("inf"))
        x = np.linspace(0, 1, 2000)
        before = paced()
        y = np.sin(x) * 2 + x
        y += np.where(y > 1, x, 0.5)
        y.sum().numpy()
        np.exp(y[:500])
        y[:1500] = -y[:1500]
        return paced() - before

    assert count(low=0) == count(low=LEAST) == count(low=1999) > 10_000
