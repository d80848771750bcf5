"""The corpus: every program gives as tiledarray what it gives as NumPy, in place too."""

import importlib
import os

import numpy
import pytest

import tiledarray

programs = importlib.import_module("benchmarks.corpus.programs")
SIZE = os.environ.get("TILEDARRAY_CORPUS_SIZE", "test")
COMPILED = ("heat_equation", "kmeans", "logistic_regression", "gray_scott", "nbody")


def check(name):
    reference, ours = (programs.Program(name, library) for library in (numpy, tiledarray))
    expected = reference.results(reference.arguments(SIZE))
    found = ours.results(ours.arguments(SIZE))
    assert programs.differences(expected, found) == []


@pytest.mark.parametrize("name", programs.names())
def test_results_and_arguments_are_numpys(name):
    check(name)


@pytest.mark.compiler
@pytest.mark.parametrize("name", COMPILED)
def test_compiled_results_and_arguments_are_numpys(name):
    with tiledarray.config.override(compile="wait"):
        check(name)


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
