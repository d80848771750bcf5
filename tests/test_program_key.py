"""What recordings have in common: their scalars, by value and by kind, down to the sign of zero."""

import struct

import numpy
import pytest

import tiledarray as np
from tests.plans import fresh_recorder
from tiledarray.graph.program import trace

ZEROS = [complex(re, im) for re in (0.0, -0.0) for im in (0.0, -0.0)]
SIGNED = [complex(-4.0, 0.0), complex(-4.0, -0.0), complex(0.0, 3.0), complex(-0.0, 3.0), *ZEROS]


def nan(payload):
    return struct.unpack("d", struct.pack("Q", 0x7FF8_0000_0000_0000 | payload))[0]


clean = fresh_recorder(compile="wait", at_once=0)


def params(*scalars):
    x = np.evaluate(np.array(numpy.ones(5, complex)))
    arrays = [np.where(x.real > 0, scalar, x) for scalar in scalars]
    found = trace([array.origin().node for array in arrays]).params
    return [struct.pack("dd", scalar.real, scalar.imag) for scalar in found
            if type(scalar) is complex]


def test_complex_scalars_that_differ_in_a_zeros_sign_are_two():
    assert len(params(*SIGNED)) == len(SIGNED)
    assert len(params(*SIGNED, *map(complex, map(str, SIGNED)))) == len(SIGNED)
    assert len(params(2 + 1j, complex("2+1j"))) == 1


def test_nans_that_differ_are_two():
    one, other = complex(nan(1), 2), complex(nan(2), 2)
    assert len(params(one, other, complex(nan(1), 2))) == 2
    assert len(params(complex(1, nan(0)), complex(1, -nan(0)))) == 2


@pytest.mark.parametrize("function", ["sqrt", "log", "arctan"])
def test_the_sign_of_a_complex_zero_chooses_the_side_of_a_cut(function):
    def program(np, x):
        return [getattr(np, function)(np.where(x.real > 0, scalar, x))
                for scalar in (*SIGNED[:4], complex(-0.0, 2.0), complex(0.0, 2.0))]

    ours = np.evaluate(*program(np, np.array(numpy.ones(5, complex))))
    for mine, theirs in zip(ours, program(numpy, numpy.ones(5, complex)), strict=True):
        numpy.testing.assert_allclose(mine.numpy(), theirs, rtol=1e-14)
        assert (numpy.signbit(mine.numpy().imag) == numpy.signbit(theirs.imag)).all()
        assert (numpy.signbit(mine.numpy().real) == numpy.signbit(theirs.real)).all()
