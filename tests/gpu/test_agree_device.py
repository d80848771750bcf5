"""Extrema are elements of what they are taken of, on a CUDA device too.  Run with ``-m gpu``."""

import numpy
import pytest

import tiledarray as np
from tests.test_agree import FUNCTIONS, PROGRAMS, positive
from tiledarray import config

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("a_device")]

POWERS = {"root": lambda x: x ** -0.5, "power": lambda x: x ** -1.5, "divided": lambda x: 1 / x}


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("shape", [(1, 4), (50, 5), (3, 1000), (400, 1300)], ids=str)
def test_extrema_are_elements(program, dtype, shape):
    x = positive(*shape).astype(dtype)
    functions = {name: getattr(numpy, name) for name in FUNCTIONS} | POWERS
    with np.device("cuda"), config.override(compile="wait", verify=True):
        for name, function in functions.items():
            values = function(np.array(x))
            same = PROGRAMS[program](values)
            # Of these very values: of NumPy's own, one more may be the largest one.
            expected = PROGRAMS[program](function(np.array(x)).numpy())
            assert (numpy.asarray(same) == numpy.asarray(expected)).all(), name
