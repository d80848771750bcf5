"""Sums, extrema and questions about the same values, reduced in one loop: compiled for the host.

A compiler that takes other lanes' values shows where reductions of several widths are side by side.
"""

import random

import numpy
import pytest

import tiledarray as np
from tiledarray import config

VALUES = [
    *["numpy.cumsum(x * 0.025, axis=axis)"] * 5, *["numpy.maximum.accumulate(x, axis=axis)"] * 2,
    "numpy.exp(numpy.cumsum(x * 0.025, axis=axis))", "numpy.cumprod(1 + x * 0.01, axis=axis)",
    "x * 1", "abs(x) + 1", "x[:, ::-1] * y", "numpy.where(x > 0, x, y)",
]
QUESTIONS = [*["({0} < c).all(axis=axis)"] * 3, "({0} > c).any(axis=axis)",
             "({0} < c).sum(axis=axis)", "(({0} < c) & (y < 2 * c)).all(axis=axis)",
             "numpy.isfinite({0}).all(axis=axis)"]
OTHERS = [*["{0}.sum(axis=axis)", "{0}.mean(axis=axis)"] * 3,
          "{0}.max(axis=axis)", "{0}.min(axis=axis)",
          "{0}.var(axis=axis)", "{0}.argmin(axis=axis)", "({0} * {0}).sum(axis=axis)",
          "({0} * 1j).sum(axis=axis)", "{0}.astype('f4').sum(axis=axis)", "{0} * 1"]
SHAPES = [(40, 100), (300, 257), (1000, 64), (3000, 100), (500, 33), (130, 130), (900, 70)]


def near_a_limit(values, c):
    """Elements so near to what they are compared with that a last place decides."""
    return abs(values - c) < 1e-9


@pytest.mark.sampled(20)
@pytest.mark.compiler
@pytest.mark.parametrize("seed", range(80))
def test_answers_are_numpys(seed):
    draw = random.Random(seed)
    values, axis = draw.choice(VALUES), draw.choice((0, 1, 1, 1))
    asked = [draw.choice(OTHERS) for _ in range(draw.randint(1, 2))] + [draw.choice(QUESTIONS)]
    draw.shuffle(asked)
    generator, shape = numpy.random.default_rng(seed), draw.choice(SHAPES)
    x, y = generator.standard_normal(shape), generator.standard_normal(shape)
    c = draw.choice((0.1, 0.3, 0.3, 1.5, 3.2))

    def answers(library, x, y):
        names = {"numpy": library, "x": x, "y": y, "c": c, "axis": axis}
        names["v"] = eval(values, names)  # in memory or not
        return [eval(each.format("v"), names) for each in asked]

    expected, plain = answers(numpy, x, y), eval(values)
    with config.override(compile="wait", first_seconds=0.0):
        found = np.evaluate(*answers(np, np.array(x), np.array(y)))
    decided = not near_a_limit(plain, c).any()
    for text, one, other in zip(asked, found, expected, strict=True):
        assert one.dtype == other.dtype
        if other.dtype.kind in "bi":
            assert not decided or (one.numpy() == other).all(), text
        else:
            tolerance = 1e-5 if "f4" in text else 1e-11
            numpy.testing.assert_allclose(
                one, other, rtol=tolerance, atol=tolerance * abs(other).max(), err_msg=text)
