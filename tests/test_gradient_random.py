"""What is drawn with parameters that a gradient wants: stretched and moved, or refused."""

import numpy
import pytest

import tiledarray as np
from tests.gradients import differences
from tiledarray.errors import HistoryLost, NoDerivative

X = numpy.array([0.7, 1.3, 2.1])

DRAWS = {
    "written out": lambda np, r, x: x[0] + x[1] * r.standard_normal(50),
    "normal": lambda np, r, x: r.normal(x[0], x[1], 50),
    "normal by name": lambda np, r, x: r.normal(size=(2, 3), scale=x, loc=2.0),
    "normal of arrays": lambda np, r, x: r.normal(x[:, None], x * x),
    "normal of one": lambda np, r, x: r.normal(x[0], x[1]),
    "normal of a number": lambda np, r, x: r.normal(1.0, x, size=(2, 3)),
    "uniform": lambda np, r, x: r.uniform(x[0], x[1] + x[2], 50),
    "uniform upwards": lambda np, r, x: r.uniform(high=x),
    "exponential": lambda np, r, x: r.exponential(x, (4, 3)),
    "laplace": lambda np, r, x: r.laplace(x, 2.0), "rayleigh": lambda np, r, x: r.rayleigh(x),
    "gumbel": lambda np, r, x: r.gumbel(x[0], x[1:]), "logistic": lambda np, r, x: r.logistic(x, x),
}


@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize("at_once", [0, 65536])
@pytest.mark.parametrize("name", DRAWS)
def test_draws_follow_their_parameters(name, old, at_once, monkeypatch):
    monkeypatch.setattr(np.config, "at_once", at_once)

    def function(np, x):
        random = np.random.RandomState(3) if old else np.random.default_rng(3)
        drawn = DRAWS[name](np, random, x)
        return np.sum(drawn ** 2) + random.random() * x[0]  # the stream goes on as NumPy's

    value, slope = np.value_and_grad(lambda x: function(np, x))(X)
    assert float(value) == pytest.approx(float(function(numpy, X)), rel=1e-13)
    v = numpy.array([0.3, -0.5, 0.8])
    wanted = differences(lambda x: function(numpy, x), X, v).real
    assert float((slope * v).sum()) == pytest.approx(float(wanted), rel=1e-8)


def test_functions_of_the_module():
    def function(np, x):
        np.random.seed(5)
        return (np.random.normal(x, 2.0, (4, 3)) * np.random.uniform(0.0, x)).sum()

    v = numpy.ones(3)
    wanted = differences(lambda x: function(numpy, x), X, v).real
    found = np.grad(lambda x: function(np, x))(X)
    assert float(found.sum()) == pytest.approx(float(wanted), rel=1e-8)


def test_errors_are_numpys():
    for call in (lambda x: np.random.default_rng(0).normal(0.0, -x).sum(),
                 lambda x: np.random.default_rng(0).normal(x, size=2).sum(),
                 lambda x: np.random.default_rng(0).exponential(x, 3, 4).sum(),
                 lambda x: np.random.default_rng(0).uniform(x, width=3).sum(),
                 lambda x: np.random.default_rng(0).uniform(x, -x).sum(),
                 lambda x: np.random.default_rng(0).uniform(x, numpy.inf).sum(),
                 lambda x: np.random.RandomState(0).uniform(numpy.nan, x).sum(),
                 lambda x: np.random.default_rng(0).rayleigh(x * -0.0).sum()):
        with pytest.raises((TypeError, ValueError, OverflowError)) as wanted:
            call(numpy.asarray(X))
        with pytest.raises(type(wanted.value)) as found:
            np.grad(call)(X)
        assert str(found.value) == str(wanted.value)


def test_a_draw_that_is_refused_draws_nothing():
    found = []
    for library in (numpy, np):
        random = library.random.default_rng(0)

        def function(x, random=random):
            with pytest.raises(ValueError, match="scale < 0"):
                random.normal(0.0, -x)
            return (x * random.random(3)).sum()

        found.append(float(function(X) if library is numpy else np.value_and_grad(function)(X)[0]))
    assert found[0] == found[1]
    assert float(np.grad(lambda x: np.random.RandomState(0).uniform(x, -x).sum())(X).sum()) == (
        pytest.approx(3 - 2 * numpy.random.RandomState(0).random(3).sum()))  # which takes that


def test_others_are_refused():
    for name in ("gamma", "lognormal"):
        with pytest.raises((NoDerivative, HistoryLost), match=f"random.{name}"):
            np.grad(lambda x, name=name: getattr(np.random.default_rng(0), name)(
                x, *(2.0,) * (name == "gamma")).sum() * x.sum())(X)
    counts = np.grad(lambda x: np.random.default_rng(0).poisson(x).sum() * x.sum())(X)
    assert (counts == numpy.random.default_rng(0).poisson(X).sum()).all()  # integers: constants
