"""Every example runs both ways, agrees with itself and draws its picture."""

import importlib
import re

import numpy
import pytest

import tiledarray
from tiledarray import config

harness = importlib.import_module("examples.harness")
NAMES = ("terrain", "image_filter", "options", "kmeans", "density", "nbody", "digits", "plucked",
         "restore", "letters", "kriging", "sunspots")
# What is to be said of the numbers that an example tells.
FOUND = {
    "restore": lambda taken, calm, sharp: sharp < 0.7 * calm < 0.7 * taken,
    "letters": lambda first, last: last < first - 2,
    "kriging": lambda before, after, *_: after < before - 4,
    "sunspots": lambda spectrum, likelihood: 10 < spectrum < 12 and 10 < likelihood < 12,
}


@pytest.fixture(autouse=True)
def as_users_run_them():
    with config.override(at_once=65_536, first_seconds=0.02):
        yield


# The kernels of this one's gradient take longer to compile than all other examples together: that
# they are right is for the tests of gradients to say.
FIRST_RUN_ALONE = ("letters",)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", NAMES)
def test_example(name, tmp_path, capsys):
    example = importlib.import_module(f"examples.{name}").EXAMPLE
    repeats = "-1" if name in FIRST_RUN_ALONE else "0"
    harness.main(example, ["--size", "1", "--repeats", repeats, "--save", str(tmp_path)])
    told = capsys.readouterr().out
    assert "speed-up" in told
    if name in FOUND:
        line = told.partition("results agree")[2].splitlines()[1]
        assert FOUND[name](*map(float, re.findall(r"[\d.]*\d", line)))
    assert (tmp_path / f"{name}.png").stat().st_size > 10_000


def test_the_plucked_string_is_found():
    example = importlib.import_module("examples.plucked")
    inputs = example.load(1)
    laws, shape, seen = harness.force(
        tiledarray, example.program(tiledarray, *map(tiledarray.asarray, inputs)))
    numpy.testing.assert_allclose(laws, example.TRUE, rtol=0.2)
    numpy.testing.assert_allclose(shape, example.shapes()[0], atol=0.06)
    assert numpy.std(seen - inputs[0]) == pytest.approx(example.NOISE, rel=0.2)
    assert "true: 21.000" in example.tell((laws, shape, seen))
