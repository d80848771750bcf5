"""Products of float32 matrices in TF32, where it is asked for."""

import numpy
import pytest

import tiledarray as np
from tiledarray import config

pytestmark = pytest.mark.gpu

CASES = {
    "matrices": ((300, 512), (512, 200), lambda x, y: x @ y),
    "stacks": ((4, 300, 512), (4, 512, 200), lambda x, y: x @ y),
    "a stack and a matrix": ((4, 300, 512), (512, 200), lambda x, y: x @ y),
    "transposed": ((512, 300), (200, 512), lambda x, y: x.T @ y.T),
    "with work around": ((300, 512), (512, 200), lambda x, y: np.maximum(2 * x @ y + 1, 0)),
    "chained": ((300, 512), (512, 200), lambda x, y: (x @ y) @ y.T),
}


def error(found, expected):
    return float(numpy.linalg.norm(found - expected) / numpy.linalg.norm(expected))


@pytest.mark.parametrize(("name", "dtype"), [
    *((name, "f4") for name in CASES),
    *((name, "F") for name in CASES if "around" not in name)])  # complex numbers have no order
def test_factors_are_rounded_where_it_is_asked_for(name, dtype):
    left, right, program = CASES[name]
    random = numpy.random.default_rng(0)
    x, y = random.standard_normal(left), random.standard_normal(right)
    if dtype == "F":
        x, y = x + 1j * random.standard_normal(left), y + 1j * random.standard_normal(right)
    x, y = x.astype(dtype), y.astype(dtype)
    wide = "D" if dtype == "F" else "f8"
    expected = np.asarray(program(np.array(x.astype(wide), device="cpu"),
                                  np.array(y.astype(wide), device="cpu"))).numpy()
    jitted = np.jit(program)
    for asked, least, most in ((False, 0, 2e-6), (True, 2e-5, 2e-3), (False, 0, 2e-6)):
        with config.override(tf32=asked, compile="wait", at_once=0, first_seconds=0.0), (
                np.device("cuda")):
            a, b = np.array(x), np.array(y)
            for _ in range(5):  # the last ones are launches of a graph
                assert least <= error(jitted(a, b).numpy(), expected) <= most
                assert least <= error(program(a, b).numpy(), expected) <= most
