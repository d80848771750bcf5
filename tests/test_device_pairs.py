"""All pairs on a GPU, by value: points of a thread, vectors of features, exponents; emulated."""

import shutil

import numpy
import pytest

from tests.emulation import emulated
from tests.test_short_axes import BODIES, CENTRES, inputs_of
from tiledarray.recording.stretch import local

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ to emulate with")

CASES = [(program, "f4") for program in (*CENTRES[:4], *BODIES[:2])] + [(CENTRES[1], "f8")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("emulated")


@pytest.mark.parametrize("program, dtype", CASES)
def test_values(program, dtype, folder):
    for n in (37, 300):  # one text for both
        local.recorder.reset()
        inputs = inputs_of(program, n, dtype)
        _, found = emulated(program, *inputs, folder=folder)
        expected = program(numpy, *(x.astype("f8") for x in inputs))
        tolerance = 2e-3 if dtype == "f4" else 1e-9
        numpy.testing.assert_allclose(found[0], expected, rtol=tolerance, atol=tolerance)
