"""`timeit` and ``%timeit`` measure the work, not its recording alone."""

import ast
import timeit

import pytest

import tiledarray as np
from tiledarray import config
from tiledarray.command import timing
from tiledarray.execution.spans import counters
from tiledarray.recording.stretch import local

TOLD = "what each run recorded was computed in it"


@pytest.fixture(autouse=True)
def timers_of_the_library(monkeypatch):
    local.recorder.reset()
    monkeypatch.setattr(timeit.Timer, "__init__", timeit.Timer.__init__)
    monkeypatch.setattr(timeit.Timer, "timeit", timeit.Timer.timeit)
    with config.override(device="cpu", compile="never", at_once=1000, first_seconds=0.0):
        timing.install()
        yield
    local.recorder.reset()
    vars(timing.builtins).pop(timing.NAME)


@pytest.fixture
def x():
    return computed(np.ones(3000))


def computed(array):
    array.numpy()
    return array


def evaluations(work):
    before = counters["op by op"]
    work()
    return counters["op by op"] - before


@pytest.mark.parametrize("statement", [
    "x + y", "z = x + y", "(x + y, [x * 2])", "x + y; z = x * 2", "for _ in range(2): z = x + y",
    "if True:\n    z = x * y\nz - 1",
])
def test_each_run_is_computed(statement, x, capsys):
    names = {"x": x, "y": computed(x * 2)}
    assert evaluations(lambda: timeit.timeit(statement, globals=names, number=5)) == 5
    assert TOLD in capsys.readouterr().err


def test_functions_too(x, capsys):
    calls = []

    def setup():
        calls.append(x * 3)

    # Twice five runs, and twice what the setup leaves.
    assert evaluations(lambda: timeit.repeat(lambda: x + 1, setup, number=5, repeat=2)) == 12
    assert len(calls) == 2
    assert capsys.readouterr().err.count(TOLD) == 1


@pytest.mark.parametrize("statement", ["x[:50] + 1", "float((x + 1).sum())", "pass", "k = 1"])
def test_what_leaves_nothing_is_timed_as_it_is(statement, x, capsys):
    calls = []

    class Counted(timing.Finish):
        def __call__(self, value=None):
            calls.append(value)
            super().__call__(value)

    code = ast.unparse(timing.finished(ast.parse(statement)))
    finish = Counted()
    for _ in range(4):
        exec(code, {"x": x, timing.NAME: finish})
    assert len(calls) == 1
    timeit.timeit(statement, globals={"x": x}, number=5)
    assert capsys.readouterr().err == ""


def test_what_the_setup_leaves_is_not_in_the_time(capsys):
    count = evaluations(lambda: timeit.timeit(
        "x[0]", setup="import tiledarray as np; x = np.ones(3000) * 2", number=5))
    assert count == 1
    assert capsys.readouterr().err == ""


def test_names_that_a_statement_sets_are_the_callers(x):
    names = {"x": x}
    timeit.timeit("global z; z = x + 1", globals=names, number=2)
    assert names["z"].shape == (3000,) and float(names["z"][0]) == 2.0
    assert timing.NAME not in names


def test_what_is_no_python_is_told_as_ever():
    with pytest.raises(SyntaxError):
        timeit.timeit("x ++")
