"""What others write into the memory of an array that a GPU computes with."""

import numpy
import pytest

import tiledarray as ta
from tiledarray.core import is_lent

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def compiled(a_device):
    with ta.config.override(compile="wait"):
        yield


@pytest.mark.parametrize("jitted", [False, True])
def test_arrays_that_nobody_put_anywhere_lend_their_memory(jitted):
    def step(x, y):
        return ta.sqrt(x * x + y) + x[::-1]

    function = ta.jit(step) if jitted else step
    with ta.config.override(device="auto"):
        x, y = ta.arange(3_000_000.0), ta.ones(3_000_000)
        for _ in range(3):  # long enough to be on the GPU
            ta.evaluate(function(x, y))
        z = function(x, y)
        expected = z.numpy()
        others = numpy.asarray(z)
        for k in range(4):
            others[k] = expected[k] = -k
            numpy.testing.assert_array_equal((z * 2).numpy(), expected * 2)
            z += y
            expected += 1
            numpy.testing.assert_array_equal(others, expected)
            found = function(z, y).numpy()
            numpy.testing.assert_allclose(
                found, numpy.sqrt(expected * expected + 1) + expected[::-1], rtol=1e-14)
        part = numpy.asarray(z[10:20])
        part[...] = 5
        assert (others[10:20] == 5).all() and float((z[10:20] + 1).sum()) == 60
        del others, part
        assert not is_lent(z)


def test_what_is_put_there_is_copied_and_cannot_be_written():
    x = ta.arange(5.0).to("cuda")
    found = numpy.asarray(x)
    assert found.tolist() == [0, 1, 2, 3, 4]
    with pytest.raises(ValueError, match="read-only"):
        found[0] = 1
    numpy.array(x)[0] = x.numpy()[0] = 1
    with pytest.raises(ValueError, match="Unable to avoid copy"):
        numpy.array(x, copy=False)
    with pytest.raises(TypeError, match=r"x\.data"):
        memoryview(x)
    assert not hasattr(x, "ctypes") and x.data.readonly
    cupy = pytest.importorskip("cupy")
    assert cupy.from_dlpack(x).tolist() == [0, 1, 2, 3, 4]
