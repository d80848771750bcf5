"""Arrays put together from pieces, with seams at different places, broadcast to one another."""

import random
from itertools import pairwise

import numpy
import pytest

import tiledarray as ta
from tests.plans import fresh_recorder
from tiledarray import config
from tiledarray.errors import TiledArrayWarning
from tiledarray.execution import doing_without
from tiledarray.fusion import pieces as pieces_of_arrays
from tiledarray.fusion.verify import InvalidPlan

clean = fresh_recorder(at_once=0, first_seconds=0)

SHAPES = [(6, 40), (6, 1), (1, 40), (40,), (6, 40), (1, 1), (1,)]
AXES = {6: 0, 40: 1}


def pieces(chosen, source, shape):
    """A line that makes an array of pieces of another one along one of its axes."""
    axis = chosen.choice([axis for axis, n in enumerate(shape) if n > 1] or [0])
    n = shape[axis]
    seams = sorted(chosen.sample(range(1, n), min(n - 1, chosen.choice([1, 1, 2, 3])))) if (
        n > 1) else []
    ahead = ":, " * axis
    ends = [0, *seams, n]
    parts = [f"{source}[{ahead}{a}:{b}]" for a, b in pairwise(ends)]
    changed = [part + chosen.choice(["", " * 2", " - 1", ""]) for part in parts]
    kind = chosen.choice(["concatenate", "write", "write", "pad", "where", "roll"])
    if kind == "concatenate":
        return f"np.concatenate([{', '.join(changed)}], axis={axis})"
    if kind == "roll":
        return f"np.roll({source}, {chosen.choice([-2, -1, 1, 2])}, axis={axis})"
    if kind == "pad":
        low, high = (seams or [0])[0], n - (seams or [n])[-1]
        width = ["(0, 0)"] * len(shape)
        width[axis] = f"({low}, {high})"
        return (f"np.pad({source}[{ahead}{low}:{n - high}], ({', '.join(width)},), "
                f"constant_values={chosen.choice([0, 3])})")
    if kind == "where":
        return f"np.where({source} > 1, {source}, {source} * 2)"
    place = chosen.randrange(len(parts))
    span = f"{ahead}{ends[place]}:{ends[place + 1]}"
    return f"written({source}, numpy.s_[{span}], {changed[place]} * 3)"


def program(seed):
    chosen = random.Random(seed)
    names = [f"x{k}" for k in range(4)]
    shapes = {name: chosen.choice(SHAPES) for name in names}
    shapes["x0"] = SHAPES[0]
    given, lines = dict(shapes), []
    for k in range(chosen.randint(4, 9)):
        name = f"y{k}"
        if k < 3 or chosen.random() < 0.5:
            source = chosen.choice([*shapes])
            lines.append(f"{name} = {pieces(chosen, source, shapes[source])}")
            shapes[name] = shapes[source]
        else:
            one, other = chosen.choice([*shapes]), chosen.choice([*shapes])
            op = chosen.choice(["+", "*", "-"])
            lines.append(f"{name} = {one} {op} {other}")
            shapes[name] = numpy.broadcast_shapes(shapes[one], shapes[other])
    last = " + ".join(chosen.sample([name for name in shapes if name[0] == "y"], 2))
    lines.append(f"result = ({last}) * x0 + {chosen.choice([*shapes])}")
    lines.append(chosen.choice(["", "result = result[::-1]", "result = result.sum(0)",
                                "result = result.sum(1)", "result = result.T * 2"]))
    return given, lines


def written(array, where, value):
    array = array.copy()
    array[where] = value
    return array


def run(lines, np, arrays):
    names = {**arrays, "np": np, "numpy": numpy, "written": written}
    for line in lines:
        exec(line, names)
    return names["result"]


@pytest.mark.sampled(8)
@pytest.mark.parametrize("seed", range(240))
def test_random_seams(seed):
    given, lines = program(seed)
    numbers = numpy.random.default_rng(seed)
    arrays = {name: numbers.integers(-4, 5, shape).astype(float) for name, shape in given.items()}
    expected = run(lines, numpy, arrays)
    with config.override(compile="wait" if seed % 4 == 0 else "never"):
        found = run(lines, ta, {name: ta.array(x) for name, x in arrays.items()})
        numpy.testing.assert_array_equal(numpy.asarray(found), expected, str(lines))


WRITTEN = [  # where a column, a row, or an array of one axis is written, and a matrix beside it
    ((4, 1), numpy.s_[1:-1], numpy.s_[1:]), ((4, 1), numpy.s_[1:-1], numpy.s_[:-1]),
    ((4, 1), numpy.s_[2:], numpy.s_[1:]), ((1000,), numpy.s_[1:-1], numpy.s_[:, 1:]),
    ((1, 1000), numpy.s_[:, 5:-1], numpy.s_[:, 1:]), ((4, 1), numpy.s_[1:], numpy.s_[1:]),
]


@pytest.mark.parametrize("shape, one, other", WRITTEN)
def test_a_seam_of_what_is_broadcast_lies_where_it_was_written(shape, one, other):
    def both(np, array):
        scale = np.ones(shape)
        scale[one] = 3
        made = np.zeros(array.shape)
        made[other] = array[other]
        return made * scale

    array = numpy.arange(4000.0).reshape(4, 1000)
    with config.override(compile="wait"):
        found = both(ta, ta.array(array))
        numpy.testing.assert_array_equal(numpy.asarray(found), both(numpy, array))
    jitted = ta.jit(lambda x: both(ta, x))
    with config.override(compile="wait"):
        numpy.testing.assert_array_equal(numpy.asarray(jitted(ta.array(array))), both(numpy, array))


def test_a_plan_that_the_verifier_refuses_is_not_run(monkeypatch):
    def faulty(join, wanted):
        return False

    def both(np, w, c):
        return np.concatenate([w[:1], w[1:] * 2]) + np.concatenate([c[:1], c[1:3] * 3, c[3:]])

    monkeypatch.setattr(pieces_of_arrays.Join, "has_seam", faulty)
    monkeypatch.setattr(pieces_of_arrays.Join, "part", lambda join, wanted: next(
        ((box, new) for box, new in join.boxes if box[0] <= wanted[0]), None))
    w, c = numpy.ones((4, 900)), numpy.arange(4.0)[:, None]
    with config.override(compile="wait", verify=True), pytest.raises(InvalidPlan):
        numpy.asarray(both(ta, ta.array(w), ta.array(c)))
    doing_without._told.clear()
    with config.override(compile="wait", verify=False), pytest.warns(
            TiledArrayWarning, match="a fault of its own"):
        found = both(ta, ta.array(w), ta.array(c))
        numpy.testing.assert_array_equal(numpy.asarray(found), both(numpy, w, c))
