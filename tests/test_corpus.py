"""The corpus: every program gives as tiledarray what it gives as NumPy, in place too."""

import importlib
import json
import os

import numpy
import pytest

import tiledarray

main = importlib.import_module("benchmarks.corpus.__main__")
programs = importlib.import_module("benchmarks.corpus.programs")
SIZE = os.environ.get("CORPUS_SIZE", "test")
COMPILED = ("heat_equation", "kmeans", "logistic_regression", "gray_scott", "nbody")


def check(name, size=SIZE):
    reference, ours = (programs.Program(name, library) for library in (numpy, tiledarray))
    expected = reference.results(reference.arguments(size))
    found = ours.results(ours.arguments(size))
    assert programs.differences(expected, found) == []


@pytest.mark.parametrize("at_once", [1, 16, 16384])
@pytest.mark.parametrize("name", programs.names())
def test_results_and_arguments_are_numpys(name, at_once):
    # What compiles meanwhile nobody waits for: no program of this size runs until it is there.
    with tiledarray.config.override(at_once=at_once, compile="never"):
        check(name)


@pytest.mark.sampled(2)
@pytest.mark.compiler
@pytest.mark.parametrize("compile", ["background", "wait"])
@pytest.mark.parametrize("name", COMPILED)
def test_compiled_results_and_arguments_are_numpys(name, compile):
    with tiledarray.config.override(compile=compile):
        check(name)


@pytest.mark.sampled(18)
@pytest.mark.compiler
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", programs.names())
def test_middle_results_are_numpys(name):
    """Of more elements than a tile has: two faults showed in these sizes alone."""
    with tiledarray.config.override(at_once=1000, compile="wait", first_seconds=0.0):
        check(name, "middle")


@pytest.mark.parametrize("name", programs.names())
def test_a_program_has_every_size_and_repeats_itself(name):
    program = programs.Program(name, numpy)
    assert set(program.module.SIZES) == set(programs.SIZES)
    assert program.module.__doc__
    first, second = (program.results(program.arguments(SIZE)) for _ in range(2))
    assert programs.differences(first, second) == []
    assert any(label.startswith("result") for label in first)


def test_differences_are_seen():
    expected = {"a": numpy.arange(3), "b": 2.0, "c": numpy.ones(2)}
    found = {"a": numpy.array([0, 1, 5]), "b": numpy.float64(2), "c": numpy.ones(2, "f4")}
    assert programs.differences(expected, expected) == []
    assert programs.differences(expected, found) == [
        "a: 1 of 3 values differ",
        "b: is a float64, not a float",
        "c: is float32 of shape (2,), not float64 of (2,)",
    ]
    near = {"c": numpy.array([1.0, 1.0 + 1e-6])}
    (line,) = programs.differences({"c": expected["c"]}, near)
    assert line.startswith("c: 1 of 2 values differ, such as np.float64(1.000001)")


@pytest.fixture
def as_users_have_it(monkeypatch):
    """The programs that are timed run without the settings that the suite makes."""
    for name in ("TILEDARRAY_AT_ONCE", "TILEDARRAY_FIRST_SECONDS"):
        monkeypatch.delenv(name, raising=False)


def test_programs_are_timed_and_stored(tmp_path, capsys, as_users_have_it):
    results = tmp_path / "results.json"
    arguments = ["--size", "test", "--only", "knapsack", "sudoku", "--rounds", "3"]
    assert main.main([*arguments, "--json", str(results)]) == 0
    found = json.loads(results.read_text())
    assert [row["program"] for row in found["rows"]] == ["knapsack", "sudoku"]
    assert all(row["numpy"] > 0 and row["tiledarray"] > 0 for row in found["rows"])
    assert found["summary"]["test"]["geometric_mean"] > 0 and found["commit"]
    assert "geometric mean of 2" in capsys.readouterr().out


def test_first_runs_are_timed(capsys, as_users_have_it):
    assert main.main(["--size", "test", "--only", "knapsack", "--first"]) == 0
    assert "geometric mean of 1" in capsys.readouterr().out


def test_what_takes_too_long_is_stopped_and_told(capsys):
    assert main.main(["--size", "test", "--only", "knapsack", "--limit", "0.05"]) == 1
    shown = capsys.readouterr().out
    assert "stopped after 0.05 s" in shown and "failed: 1" in shown


def test_a_table_is_sorted_and_counts_what_is_over_its_target():
    rows = [main.Row("a", "tiny", 1.0, 2.0), main.Row("b", "tiny", 1.0, 8.0),
            main.Row("c", "tiny", failure="wrong"), main.Row("d", "tiny", 1.0, 0.5)]  # fmt: skip
    lines = main.table("tiny", rows, (1.15, 1.5)).splitlines()
    assert [line.split()[0] for line in lines[1:5]] == ["c", "b", "a", "d"]
    assert [line.endswith("OVER") for line in lines[2:5]] == [True, True, False]
    assert lines[5:] == ["geometric mean of 3: 2.000 (target 1.15)", "above 1.5: 3 of 4",
                         "failed: 1"]  # fmt: skip
