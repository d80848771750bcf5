"""Several steps of a stencil at once: the bits of one by one, and only where that holds."""

from dataclasses import replace
from math import prod

import numpy
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import tiledarray as np
from tests.plans import DEVICE, HOST, planned
from tiledarray import config, explain
from tiledarray.devices.device import Device
from tiledarray.execution import tiled_steps
from tiledarray.execution.op_by_op.run import by_reference
from tiledarray.execution.spans import counters
from tiledarray.fusion import limits, time_tiles
from tiledarray.fusion.time_tiles import TimeTiles
from tiledarray.kernels.compile import host
from tiledarray.recording.stretch import local

pytestmark = pytest.mark.skipif(host.available() is not None, reason="no C++ compiler")


@pytest.fixture(autouse=True)
def clean():
    local.recorder.reset()
    yield
    local.recorder.reset()


@pytest.fixture
def small(monkeypatch):
    """Tiles of some thousand elements, whatever they cost; how many steps were done so."""
    done = []
    whole = tiled_steps.TiledSteps.__call__

    def counted(self, *args):
        done.append(self._steps)
        return whole(self, *args)

    monkeypatch.setattr(tiled_steps.TiledSteps, "__call__", counted)
    monkeypatch.setattr(limits, "HOST", replace(
        limits.HOST, time_least=0, time_gain=0.0, time_bytes=1 << 18))
    return done


def drawn(*shape, dtype="f8", seed=0):
    return numpy.random.default_rng(seed).normal(size=shape).astype(dtype)


def heat(np, i, u):
    u[1:-1, 1:-1] += 0.2 * (
        u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] - 4 * u[1:-1, 1:-1])
    return u


def upwind(np, i, u):
    """It reaches far to one side, and is left alone at one edge."""
    v = u.copy()
    v[:, 4:] = u[:, 4:] - 0.3 * (u[:, 4:] - u[:, :-4])
    return v


def with_edges(np, i, u):
    u[1:-1, 1:-1] = 0.25 * (u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2])
    u[0] = u[1]
    u[-1, :] = 0.5 * u[-2] + 0.1
    u[:, :2] = u[:, 2:4]
    u[:, -1] = 1.0
    return u


def behind_an_edge(np, i, u):
    """What is left alone at an edge is read from further in."""
    v = u.copy()
    v[5:] = 0.5 * u[5:] + 1
    w = v.copy()
    w[2:, :-3] = v[:-2, 3:] - u[2:, :-3]
    return w


def by_number(np, i, u):
    return np.where(u > 0, u * 0.5 + i, -u)


def waves(np, i, state):
    u, v = state
    w = 2 * v - u
    w[1:-1, 1:-1] += 0.1 * (
        v[2:, 1:-1] + v[:-2, 1:-1] + v[1:-1, 2:] + v[1:-1, :-2] - 4 * v[1:-1, 1:-1])
    return v, w


def leapfrog(np, i, state):
    u, v = state
    u[2:-2] = u[2:-2] + 0.1 * (v[4:] - v[:-4])
    return v, u


def line(np, i, u):
    u[1:-1] += 0.25 * (u[2:] - 2 * u[1:-1] + u[:-2])
    return u


def solid(np, i, u):
    u[1:-1, 1:-1, 1:-1] += 0.1 * (
        u[2:, 1:-1, 1:-1] + u[:-2, 1:-1, 1:-1] + u[1:-1, 2:, 1:-1] + u[1:-1, :-2, 1:-1]
        + u[1:-1, 1:-1, 2:] + u[1:-1, 1:-1, :-2] - 6 * u[1:-1, 1:-1, 1:-1])
    return u


CASES = [
    (heat, 1, (300, 90), "f4"), (heat, 1, (97, 700), "f8"), (upwind, 1, (210, 300), "f8"),
    (with_edges, 1, (200, 531), "f4"), (behind_an_edge, 1, (330, 540), "f8"),
    (by_number, 1, (300, 80), "f8"),
    (waves, 2, (130, 300), "f8"), (leapfrog, 2, (400, 70), "f4"), (line, 1, (70_001,), "f4"),
    (solid, 1, (70, 64, 66), "f4"),
]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("body", "count", "shape", "dtype"), CASES)
def test_bits_are_those_of_steps_one_by_one(small, body, count, shape, dtype):
    start = [drawn(*shape, dtype=dtype, seed=k) for k in range(count)]
    numbers = range(5, 5 + 2 * 29, 2)
    state = [array.copy() for array in start] if count > 1 else start[0].copy()
    for i in numbers:
        state = body(numpy, i, state)
    with config.override(compile="wait"):
        got = np.jit(lambda *arrays: np.fori_loop(
            numbers, lambda i, s: cast(body(np, i, s), dtype), arrays if count > 1 else arrays[0],
        ))(*map(np.array, start))
    assert sum(small) >= 28, "it went step by step"
    for x, y in zip(got if count > 1 else [got], state if count > 1 else [state], strict=True):
        numpy.testing.assert_array_equal(numpy.asarray(x), y)


def cast(state, dtype):
    """`by_number` adds an int64."""
    return state if isinstance(state, tuple) or state.dtype == dtype else state.astype(dtype)


def test_constants_scalars_and_more_steps_than_one_tile_does(small):
    rate, field = drawn(150, 300, seed=3), drawn(150, 300)

    def step(i, u):
        u[1:-1] += coefficient * rate_[1:-1] * (u[2:] - u[:-2]) * scale
        return u

    rate_, scale = np.array(rate), np.array(0.5)
    for coefficient, n in ((0.1, 2), (0.2, 31), (0.1, 1), (0.3, 0)):
        wanted = field.copy()
        for _ in range(n):
            wanted[1:-1] += coefficient * rate[1:-1] * (wanted[2:] - wanted[:-2]) * 0.5
        with config.override(compile="wait"):
            before = counters["kernels compiled"]
            got = np.fori_loop(n, step, field)
            numpy.testing.assert_array_equal(numpy.asarray(got), wanted)
            assert counters["kernels compiled"] <= before + (2 if n == 2 else 0)
    assert small


# Steps of random writes, tile by tile without kernels.

_shift = st.integers(-3, 3)
_region = st.tuples(st.integers(0, 4), st.integers(0, 4))
_write = st.one_of(
    st.tuples(st.just("inside"), st.integers(0, 1), _region, _region, st.lists(
        st.tuples(st.integers(0, 1), _shift, _shift), min_size=1, max_size=3)),
    st.tuples(st.just("edge"), st.integers(0, 1), st.integers(0, 1), st.integers(-3, 2),
              st.integers(-3, 2)),
)


def written(state, writes):
    """Do random writes into two arrays: inside, from what is around; or a row near an edge."""
    n = state[0].shape
    for kind, which, *rest in writes:
        u = state[which]
        if kind == "edge":
            axis, to, of = rest
            of = of if (of < 0) == (to < 0) else -1 - of
            at = [(slice(None),) * axis + (k,) for k in (to, of)]
            u[at[0]] = 0.5 * u[at[1]] + 1
            continue
        region, parts = rest[:2], rest[2]
        value = 0.0
        for source, *shift in parts:
            start = [max(0, a + d) for (a, _), d in zip(region, shift, strict=True)]
            size = [m - 8 for m in n]
            index = tuple(slice(k, k + m) for k, m in zip(start, size, strict=True))
            value = value + 0.3 * state[source][index]
        target = tuple(slice(a, a + m - 8) for (a, _), m in zip(region, n, strict=True))
        u[target] = value
    return state


@settings(max_examples=60, deadline=None)
@given(st.lists(_write, min_size=1, max_size=4), st.sampled_from([(2, 66, 40), (4, 90, 64)]),
       st.booleans())
def test_tiles_give_the_bits_of_whole_arrays_for_random_steps(writes, how, swaps):
    depth, *tile = how
    shape = 130, 101
    start = [drawn(*shape), drawn(*shape, seed=1)]

    def step(state):
        u, v = written([*state], writes)
        return (v, u) if swaps else (u, v)

    with config.override(at_once=0):
        node = np.fori_loop(1, lambda i, s: step(s), (*start,))[0].node.inputs[0]
    steps = node.attrs
    try:
        tiles = time_tiles.found(steps, HOST, tile, depth)
    except time_tiles.Refused:
        tiles = None
    assume(tiles is not None)
    assume(all(size == n or size > 2 * depth * halo
               for n, size, halo in zip(shape, tile, tiles.halo, strict=True)))
    scalars = node.inputs[steps.header:steps.header + steps.scalars]
    params = tiles.step.filled([scalars[k] for k in tiles.picks])
    do = by_reference(tiles.step, steps.first, Device("cpu"), 1)(params)
    found = [numpy.full(shape, numpy.nan) for _ in start]
    for place in tiles.places():
        box = tuple(slice(begin, begin + n) for (begin, _, _), n in zip(place, tile, strict=True))
        arrays = [Device("cpu").wrap(x, copy=True)
                  for x in (numpy.int64(0), *(x[box] for x in start))]
        for _ in range(depth):
            outputs = do(arrays, lambda place: False)
            arrays[1:] = [outputs[k] if computed else arrays[k]
                          for computed, k in tiles.step.results]
        for whole, part in zip(found, arrays[1:], strict=True):
            core = tuple(slice(begin, end) for _, begin, end in place)
            inner = tuple(slice(begin - first, end - first) for first, begin, end in place)
            whole[core] = part.array[inner]
    state = [array.copy() for array in start]
    for _ in range(depth):
        state = step(state)
    for x, y in zip(found, state, strict=True):
        numpy.testing.assert_array_equal(x, y)


def rolled(np, i, u):
    return np.roll(u, 1, 0) * 0.5


def turned(np, i, u):
    return u[::-1] * 0.5


def periodic(np, i, u):
    u[1:] = u[1:] - 0.5 * (u[1:] - u[:-1])
    u[0] = u[-1]
    return u


def averaged(np, i, u):
    return u - u.mean()


def in_the_middle(np, i, u):
    u[40:60] = u[41:61] * 0.5
    return u


def by_columns(np, i, u):
    return u * np.linspace(0, 1, u.shape[1])


def strided(np, i, u):
    u[::2] *= 0.5
    return u


def table(np, i, u):
    u[i] = 1.0
    return u


@pytest.mark.parametrize(
    "body", [rolled, turned, periodic, averaged, in_the_middle, by_columns, strided, table])
def test_what_goes_from_one_edge_to_another_is_done_step_by_step(small, body):
    start = drawn(128, 100)
    wanted = start.copy()
    for i in range(6):
        wanted = body(numpy, i, wanted)
    with config.override(compile="wait"):
        got = np.fori_loop(6, lambda i, u: body(np, i, u), start)
        numpy.testing.assert_allclose(numpy.asarray(got), wanted, rtol=1e-12, atol=1e-12)
    assert not small


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(64, 300), st.integers(0, 3), st.integers(9, 90)),
                min_size=1, max_size=2), st.integers(1, 6))
def test_cores_of_tiles_cover_all_elements_once_and_lie_behind_the_halo(axes, depth):
    shape, halo = tuple(n for n, _, _ in axes), tuple(h for _, h, _ in axes)
    tile = tuple(min(n, 2 * depth * h + core) for n, h, core in axes)
    count = 0
    for place in TimeTiles(None, (), shape, tile, halo, depth).places():
        count += prod(end - begin for _, begin, end in place)
        for (start, begin, end), n, size, h in zip(place, shape, tile, halo, strict=True):
            assert 0 <= start <= begin < end <= start + size <= n
            assert start == 0 or begin - start >= depth * h
            assert start + size == n or start + size - end >= depth * h
    assert count == prod(shape)


def test_large_arrays_alone_are_worth_it_and_explain_tells():
    def told(shape, body):
        u = np.fori_loop(20, lambda i, u: body(np, i, u), np.zeros(shape, "f4"))
        return str(explain(u))

    assert "steps    8 at once, in tiles of 192 x 512 with a halo of 8 x 8" in told(
        (4096, 4096), heat)
    assert "one by one: arrays of 1,440,000 bytes stay in the cache" in told((600, 600), heat)
    assert "one by one: it would take" in told((512, 512, 512), solid)
    assert "one by one: view" not in told((600, 600), turned)


def test_on_a_gpu_steps_go_one_by_one():
    u = np.fori_loop(20, lambda i, u: heat(np, i, u), np.zeros((4096, 4096), "f4"))
    (bodies,) = planned(u, target=DEVICE).bodies.values()
    (body,) = bodies.values()
    assert [type(step).__name__ for step in body.steps] == ["Kernel"]
    assert "steps are done one by one: they are on a GPU" in body.refusals
