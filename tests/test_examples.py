"""Every example runs both ways, agrees with itself and draws its picture."""

import importlib

import pytest

harness = importlib.import_module("examples.harness")
NAMES = ("terrain", "image_filter", "options", "kmeans", "density", "nbody", "digits")


@pytest.mark.parametrize("name", NAMES)
def test_example(name, tmp_path, capsys):
    example = importlib.import_module(f"examples.{name}").EXAMPLE
    harness.main(example, ["--size", "1", "--repeats", "1", "--save", str(tmp_path)])
    assert "speed-up" in capsys.readouterr().out
    assert (tmp_path / f"{name}.png").stat().st_size > 10_000
