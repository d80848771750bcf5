"""Random programs with views and writes: gradients against differences of NumPy's run."""

import random

import numpy
import pytest

import tiledarray
from tests.gradient_corpus import PROGRAMS, REFUSED
from tests.gradient_programs import FIRST, MOVES, SCALARS, SIZE, arrays_in, is_legal, names, result
from tiledarray.errors import HistoryLost, NoDerivative

X = numpy.array([0.7, -1.3, 2.1, 0.4, 1.9])
SETTINGS = {
    "recorded": {"at_once": 1}, "all recorded": {"at_once": 0}, "at once": {"at_once": 65536},
    "cut": {"at_once": 1, "cut": 20},
}


@pytest.fixture(params=SETTINGS)
def setting(request, monkeypatch):
    """Op by op: what is met once is not worth compiling."""
    for name, value in {"first_seconds": 100.0, **SETTINGS[request.param]}.items():
        monkeypatch.setattr(tiledarray.config, name, value)


def differences(function, x, h=1e-6):
    return numpy.array([(float(function(x + h * e)) - float(function(x - h * e))) / (2 * h)
                        for e in numpy.eye(len(x))])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("setting", ["recorded", "at once"], indirect=True)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_has_its_gradient_or_is_refused(name, setting):
    function = PROGRAMS[name]
    wanted = differences(lambda x: function(numpy, x.copy()), X)
    try:
        found = tiledarray.grad(lambda x: function(tiledarray, x))(tiledarray.array(X))
    except (HistoryLost, NoDerivative):
        assert name in REFUSED
    else:
        numpy.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


# ---- random programs -----------------------------------------------------------------------------


def written(seed, length, moves=MOVES):
    """A random program."""
    choose = random.Random(seed)
    x = numpy.random.default_rng(seed).normal(size=SIZE) * 0.8
    lines, new = list(FIRST), 0
    for _ in range(20 * length):
        if len(lines) >= length + len(FIRST):
            break
        variables = names(numpy, x.copy())
        for line in lines:
            exec(line, variables)
        known = [name for name, value in sorted(arrays_in(variables).items()) if value.ndim]
        if len(known) < 2:
            break
        a, b = choose.choice(known), choose.choice(known)
        line = choose.choice(moves).format(
            a=a, b=b, k=choose.choice(SCALARS), n=f"n{new}", m=f"m{new}")
        if is_legal([*lines, line], x):
            lines.append(line)
            new += 1
    return lines, x


def complaint(lines, x, seed):
    """What is wrong with the gradient of a program; ``None`` where it is right or not defined."""
    v = numpy.random.default_rng(seed + 1).normal(size=SIZE)
    h = 1e-6

    def at(t):
        return float(result(numpy, x + t * v, lines))

    if any(not is_legal(lines, x + t * v) for t in (h, -h)):
        return None
    ahead, behind = (at(h) - at(0)) / h, (at(0) - at(-h)) / h
    try:
        slope = tiledarray.grad(lambda x: result(tiledarray, x, lines))(tiledarray.array(x))
    except NoDerivative:
        return None
    except Exception as error:
        return f"raises {type(error).__name__}: {error}"
    if abs(ahead - behind) > 1e-3 * (1 + abs(ahead)):
        return None  # it is not smooth here
    found = float((slope * v).sum())
    if abs(found - (ahead + behind) / 2) > 1e-4 * (1 + abs(found)):
        return f"the slope is {found}, not {(ahead + behind) / 2}"
    return None


def shortest(lines, x, seed):
    """The program with as few lines as go wrong."""
    k = len(lines)
    while k > 0:
        k -= 1
        fewer = lines[:k] + lines[k + 1:]
        if is_legal(fewer, x) and complaint(fewer, x, seed) is not None:
            lines = fewer
    return lines


@pytest.mark.sampled(4)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", range(20))
def test_random_programs(seed, setting):
    lines, x = written(seed, 14)
    wrong = complaint(lines, x, seed)
    if wrong is not None:
        lines = shortest(lines, x, seed)
        pytest.fail(f"{wrong}\nshortest, {complaint(lines, x, seed)}:\n" + "\n".join(lines))
