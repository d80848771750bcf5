"""Every live array is NumPy's after every move, on every tier (`tests/machine.py`).

``MACHINE_STEPS=1000000 pytest tests/test_machine.py`` makes that many steps, of all tiers together.
"""

import contextlib
import os

import numpy
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

import tiledarray
from tests import moves
from tests.machine import (
    EVALUATE,
    TIERS,
    Failure,
    Game,
    play,
    replayed,
    runnable,
    setting,
    shortest,
    tame,
)
from tests.scene import NotNow, Scene, moves_of, namespace
from tiledarray import config
from tiledarray.recording.stretch import local

STEPS = int(os.environ.get("MACHINE_STEPS", "30000"))
FIRST = int(os.environ.get("MACHINE_SEED", "0"))
PIECES = 8  # of a tier's steps, so that processes can share them


@pytest.mark.sampled(12)
@pytest.mark.parametrize("piece", range(PIECES))
@pytest.mark.parametrize("tier", TIERS)
def test_every_live_array_is_numpys(tier, piece):
    played = play(tier, int(STEPS * TIERS[tier].share / PIECES), FIRST + 100_000 * piece)
    if played.failures:
        pytest.fail(f"after {played.steps} steps\n{played.failures[0]}", pytrace=False)


# ---- the same moves, chosen and shrunk by hypothesis ----------------------------------------


class Arrays(RuleBasedStateMachine):
    """Live arrays with us and with NumPy."""

    tier = "op_by_op"

    def __init__(self):
        super().__init__()
        self.stack = contextlib.ExitStack()
        self.stack.enter_context(setting(TIERS[self.tier], "cpu"))
        self.game = Game()
        self.scene = None
        self.broken = False

    @initialize(data=st.data(), each=st.booleans())
    def begin(self, data, each):
        self.each = each
        self.scene = Scene(self.below(data), self.game.theirs, TIERS[self.tier].few)
        for _ in range(2):
            self.move(data, moves.MAKING)

    def below(self, data):
        return lambda n: data.draw(st.integers(0, n - 1))

    def move(self, data, group):
        """Make a move of the group, or call a function under jit; look if this is such a run."""
        self.scene.below = self.below(data)
        try:
            lines = self.scene.call() if group is None else self.scene.of(group[1])
        except NotNow:
            return
        for line in lines:
            if not self.scene.tried(line, tame):
                return
            self.held(line)
            if self.each:
                self.held(EVALUATE)

    def held(self, line):
        complaint = self.game.run(line)
        if complaint:
            self.broken = True
            failure = Failure(self.tier, 0, complaint, self.game.lines)
            raise AssertionError(f"{complaint}\n{runnable(failure)}")

    def teardown(self):
        try:
            if not self.broken:
                self.held(EVALUATE)
        finally:
            self.stack.close()


def _rule(name, group):
    def made(self, data):
        self.move(data, group)

    made.__name__ = made.__qualname__ = name
    return rule(data=st.data())(made)


for _name in ("MAKING", "ALIKE", "VIEWING", "COPYING", "COMPUTING", "DECIDING", "WRITING",
              "WRITING_WHERE", "NAMING", "FORGETTING", "LOOKING", "CUTTING", "TOGETHER"):
    setattr(Arrays, _name.lower(), _rule(_name.lower(), getattr(moves, _name)))
Arrays.calling = _rule("calling", None)
Arrays.writing_again = _rule("writing_again", moves.WRITING)  # half of all moves write or look
Arrays.writing_more = _rule("writing_more", moves.WRITING)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("tier", ["op_by_op", "at_once", "blocks", "kernels"])
def test_hypothesis_finds_no_array_that_is_not_numpys(tier):
    machine = type("Arrays", (Arrays,), {"tier": tier})
    examples = 20 if tier == "kernels" else 40
    run_state_machine_as_test(machine, settings=settings(
        max_examples=examples, stateful_step_count=25, deadline=None,
        suppress_health_check=list(HealthCheck)))


# ---- the machine itself ----------------------------------------------------------------------


def test_a_program_is_the_same_everywhere():
    texts = []
    for _ in range(2):
        with setting(TIERS["op_by_op"], "cpu"):
            from_seed = iter(range(10**6))
            game = Game()
            scene = Scene(lambda n, draws=from_seed: next(draws) * 7919 % n, game.theirs)
            for _ in range(30):
                with contextlib.suppress(NotNow):
                    for line in scene.next():
                        if scene.tried(line, tame):
                            game.lines.append(line)
        texts.append(list(game.lines))
    assert texts[0] == texts[1] and len(texts[0]) > 10


def test_every_move_can_be_made(monkeypatch):
    """A move that NumPy never takes tests nothing."""
    monkeypatch.setattr("tests.scene.AVOID", "")
    missing = []
    for group in moves.ALL:
        for text in moves_of(group):
            if not any(_made(text, seed) for seed in range(80)):
                missing.append(text)
    assert not missing


def _made(text, seed):
    random = numpy.random.default_rng(seed)
    scene = Scene(lambda n: int(random.integers(n)), namespace(numpy))
    for line in ("v100 = np.arange({length}.0) % 5", "v101 = np.arange({length}).reshape({shape})",
                 "v102 = np.zeros({shape})", "v103 = np.zeros({shape}, 'c16')",
                 "v104 = np.zeros(())", "v105 = np.ones({shape})",
                 "h0 = numpy.asarray(v100)[1:]"):
        scene.tried(scene.line(line), tame)
    with contextlib.suppress(NotNow):
        return all(scene.tried(line, tame) for line in scene.of(text))
    return False


def test_a_wrong_value_is_found_and_its_program_shortened(monkeypatch):
    fill = tiledarray.TiledArray.fill
    monkeypatch.setattr(tiledarray.TiledArray, "fill", lambda self, value: fill(self, 7))
    lines = ["v0 = np.zeros((3, 4))", "v1 = np.ones(5)", "v2 = v0 + 1", EVALUATE, "v2.fill(2)",
             "v1 += 1", "v3 = v2 * 2"]
    complaint = replayed(lines, TIERS["op_by_op"], "cpu")
    assert "not np.float64(2.0)" in complaint
    found = shortest(Failure("op_by_op", 0, complaint, lines))
    assert found.lines == ["v2 = np.zeros((3, 4), 'f8')", "v2.fill(2)"]


# ---- programs that were wrong ----------------------------------------------------------------


def forward_and_back_substitution(np, n=24):
    """Two vectors made alike, each written in a loop of its own."""
    lower = np.eye(n) + np.eye(n, k=-1) * 2
    upper = np.eye(n) + np.eye(n, k=1)
    b = np.arange(float(n)) % 3
    x = np.zeros_like(b)
    y = np.zeros_like(b)
    for i in range(n):
        y[i] = (b[i] - lower[i, :i] @ y[:i]) % 8
    for i in reversed(range(n)):
        x[i] = (y[i] - upper[i, i + 1:] @ x[i + 1:]) % 8
    return x, y, b


def energies(np, n=40):
    """Two arrays of any content, filled in one loop."""
    kinetic = np.ndarray(n)
    potential = np.ndarray(n)
    position, velocity = np.arange(30.0) % 4, np.zeros(30)
    for k in range(n):
        velocity -= position
        velocity %= 8
        position += velocity
        position %= 8
        kinetic[k] = 0.5 * (velocity * velocity).sum()
        potential[k] = 0.5 * (position * position).sum()
    return kinetic, potential, position, velocity


WRITTEN_IN_LOOPS = [forward_and_back_substitution, energies]


def check_written_in_loops(program, cut, **values):
    wanted = program(numpy)
    with config.override(verify=True, cut=cut, **values):
        local.recorder.reset()  # or the first stretch were as long as stretches were before
        for _ in range(3):
            found = program(tiledarray)
            for ours, theirs in zip(found, wanted, strict=True):
                numpy.testing.assert_array_equal(numpy.asarray(ours), theirs)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("at_once", [0, 30])
@pytest.mark.parametrize(("cut", "compile"), [
    (5, "never"), (5, "wait"), (5, "background"), (40, "never"), (40, "wait"), (40, "background"),
    (400, "never"),  # as one plan of a hundred kernels, which take 40 seconds to compile
])
@pytest.mark.parametrize("program", WRITTEN_IN_LOOPS)
def test_arrays_made_alike_and_written_in_loops(program, cut, compile, at_once):
    check_written_in_loops(program, cut, compile=compile, at_once=at_once)
