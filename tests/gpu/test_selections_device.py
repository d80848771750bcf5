"""What a mask selects of arrays on a GPU, which is not looked at for it."""

import numpy
import pytest

import tiledarray as ta
from tests.test_selections import PROGRAMS, X, Y, check, expected, function_of
from tiledarray.arrays.selections import selection

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def compiled(a_device):
    with ta.config.override(compile="wait"):
        yield


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("device", ["cuda", "auto"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_is_numpys(name, device):
    body = PROGRAMS[name]
    with ta.config.override(device=device, at_once=8):
        for jitted in (False, True):
            function = function_of(body, ta)
            function = ta.jit(function) if jitted else function
            for _ in range(2):
                x, y = ta.array(X), ta.array(Y)
                check((function(x, y), x, y), expected(body))


def test_a_mask_there_is_not_looked_at():
    with ta.config.override(device="cuda"):
        x = ta.array(X) * 2
        ta.evaluate(x)
        inside = x > 0
        ta.evaluate(inside)
        chosen = x[inside] + 1
        assert selection(chosen) is not None
        x[inside] = chosen
        assert x.origin()._node.buffer is None
        numpy.testing.assert_array_equal(x.numpy(), numpy.where(X > 0, X * 2 + 1, X * 2))
