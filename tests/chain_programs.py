"""Time steps written out, as programs take them: what a GPU does several of at a time."""

from __future__ import annotations

import numpy
from hypothesis import strategies as st


def heat(np, u, steps=6):
    u = u.copy()
    for _ in range(steps):
        u[1:-1, 1:-1] += 0.2 * (
            u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] - 4 * u[1:-1, 1:-1])
    return u


def wave(np, u, v):
    """Two states, of which the older one is read where the new one is written."""
    for _ in range(5):
        w = 2 * u - v
        w[1:-1, 1:-1] += 0.1 * (
            u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] - 4 * u[1:-1, 1:-1])
        u, v = w, u
    return u, v


def insulated(np, u):
    """Edges are written after each step, in the array that the step has made."""
    u = u.copy()
    for _ in range(4):
        u[1:-1, 1:-1] += 0.2 * (
            u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] - 4 * u[1:-1, 1:-1])
        u[0] = u[1]
        u[-1] = u[-2]
        u[:, 0] = u[:, 1]
        u[:, -1] = 0.5
    return u


def rod(np, u, c):
    """An array that stays the same is read at each step."""
    u = u.copy()
    for _ in range(9):
        u[1:-1] += c[1:-1] * (u[2:] - 2 * u[1:-1] + u[:-2])
    return u


def cube(np, u, steps=3):
    u = u.copy()
    for _ in range(steps):
        u[1:-1, 1:-1, 1:-1] += 0.1 * (
            u[2:, 1:-1, 1:-1] + u[:-2, 1:-1, 1:-1] + u[1:-1, 2:, 1:-1] + u[1:-1, :-2, 1:-1]
            + u[1:-1, 1:-1, 2:] + u[1:-1, 1:-1, :-2] - 6 * u[1:-1, 1:-1, 1:-1])
    return u


def reaction(np, u, v):
    """Two states that need one another."""
    u, v = u.copy(), v.copy()
    for _ in range(4):
        reacted = u[1:-1, 1:-1] * v[1:-1, 1:-1] ** 2
        du = 0.1 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]
                    - 4 * u[1:-1, 1:-1]) - reacted + 0.03 * (1 - u[1:-1, 1:-1])
        dv = 0.05 * (v[:-2, 1:-1] + v[2:, 1:-1] + v[1:-1, :-2] + v[1:-1, 2:]
                     - 4 * v[1:-1, 1:-1]) + reacted - 0.09 * v[1:-1, 1:-1]
        u[1:-1, 1:-1] += du
        v[1:-1, 1:-1] += dv
    return u, v


def smoothed(np, u, rows):
    """Rows of another array are spread over all; the last value of each step is kept."""
    seen = []
    for _ in range(4):
        w = u.copy()
        w[2:-1] = (u[:-3] + u[2:-1] + u[3:]) / 3 + 0.01 * rows[2:-1, None]
        u = w
        seen.append(u)
    return u, seen[1]


def life(np, u):
    """Integers and comparisons, beyond whose edges nothing is."""
    for _ in range(4):
        around = np.zeros_like(u)
        around[1:-1, 1:-1] = (u[:-2, :-2] + u[:-2, 1:-1] + u[:-2, 2:] + u[1:-1, :-2]
                              + u[1:-1, 2:] + u[2:, :-2] + u[2:, 1:-1] + u[2:, 2:])
        u = ((around == 3) | ((u == 1) & (around == 2))).astype(u.dtype)
    return u


def rings(np, u, v):
    """Beyond one end of an array lies the other."""
    for _ in range(4):
        around = (np.roll(u, 1, 0) + np.roll(u, -1, 0) + np.roll(u, 1, 1) + np.roll(u, -1, 1))
        u, v = u + 0.1 * (around - 4 * u) - 0.05 * u * v * v, v + 0.02 * (np.roll(v, 2, 1) - v)
    return u, v


def carried(np, u, c):
    """The array that stays the same is read around its ends, too; one axis is no ring."""
    for _ in range(5):
        u = u - 0.2 * (c * (u - np.roll(u, 1, 0)) + np.roll(c, 1, 0) * (u - np.roll(u, -1, 0)))
    return u


def ring(np, u):
    for _ in range(7):
        u = 0.5 * u + 0.25 * (np.roll(u, 1) + np.roll(u, -1))
    return u


def random_values(*shape, dtype="f8", seed=0):
    random = numpy.random.default_rng(seed)
    if numpy.dtype(dtype).kind in "iu":
        return random.integers(0, 2, shape).astype(dtype)
    values = random.random(shape)
    return (values + 1j * random.random(shape) if dtype[0] == "c" else values).astype(dtype)


PROGRAMS = {
    "heat": (heat, lambda dtype: (random_values(90, 130, dtype=dtype),)),
    "wave": (wave, lambda dtype: tuple(
        random_values(60, 100, dtype=dtype, seed=k) for k in range(2))),
    "insulated": (insulated, lambda dtype: (random_values(70, 80, dtype=dtype),)),
    "rod": (rod, lambda dtype: (
        random_values(5000, dtype=dtype), random_values(5000, dtype=dtype, seed=1) / 5)),
    "cube": (cube, lambda dtype: (random_values(20, 30, 40, dtype=dtype),)),
    "reaction": (reaction, lambda dtype: tuple(
        random_values(50, 90, dtype=dtype, seed=k) / 2 for k in range(2))),
    "smoothed": (smoothed, lambda dtype: (
        random_values(40, 50, dtype=dtype), random_values(40, dtype=dtype, seed=1))),
    "rings": (rings, lambda dtype: tuple(
        random_values(41, 52, dtype=dtype, seed=k) for k in range(2))),
    "carried": (carried, lambda dtype: tuple(
        random_values(61, 47, dtype=dtype, seed=k) for k in range(2))),
    "ring": (ring, lambda dtype: (random_values(3001, dtype=dtype),)),
    "life": (life, lambda dtype: (random_values(50, 70, dtype="i4"),)),
}

# ---- arrays in registers -----------------------------------------------------------------------


def source(np, u, f, steps=6):
    """Another array is added where it lies, and one a little away."""
    u = u.copy()
    for _ in range(steps):
        u[1:-1, 1:-1] = 0.24 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]) + (
            f[1:-1, 1:-1] - 0.5 * f[2:, 1:-1])
    return u


def wide(np, u, steps=5):
    """Two places away, and across corners; the edges differ."""
    u = u.copy()
    for _ in range(steps):
        u[2:-1, 1:-2] = 0.5 * u[2:-1, 1:-2] + 0.1 * (
            u[:-3, 1:-2] + u[3:, :-3] + u[1:-2, 3:] + u[1:-2, :-3] + u[2:-1, 2:-1])
    return u


def numbers(np, u, steps=6):
    """The game of life, dead at its edges."""
    u = u.copy()
    for _ in range(steps):
        near = sum(u[1 + i:u.shape[0] - 1 + i, 1 + j:u.shape[1] - 1 + j]
                   for i in (-1, 0, 1) for j in (-1, 0, 1) if i or j)
        u[1:-1, 1:-1] = np.where((near == 3) | ((near == 2) & (u[1:-1, 1:-1] == 1)), 1, 0)
    return u


def drifting(np, u, steps=7):
    """Everything is computed, along rings."""
    for _ in range(steps):
        u = 0.5 * u + 0.2 * np.roll(u, 1, 0) + 0.3 * np.roll(u, -1, 1)
    return u


def warmer(np, u, steps=20):
    """Each step has a number of its own."""
    u = u.copy()
    for k in range(steps):
        u[1:-1, 1:-1] += 0.2 * (u[:-2, 1:-1] + u[2:, 1:-1] - 2 * u[1:-1, 1:-1]) + 0.01 * k
    return u


def relaxed(np, f, steps=18):
    """What is read first is read again at each step."""
    u = f.copy()
    for _ in range(steps):
        u[1:-1, 1:-1] = (f[1:-1, 1:-1] + 0.2 * (
            u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:])) / 1.8
    return u


def falling_rows(np, u, f, steps=20):
    """From above and the left alone; a column of another array everywhere in its row."""
    u = u.copy()
    for _ in range(steps):
        u[1:, 2:] = 0.4 * u[:-1, 2:] + 0.3 * u[1:, :-2] + 0.1 * f[1:, :1]
    return u


def waiting(np, u, steps=7):
    """The array between two steps is asked for as well."""
    v = heat(np, u, steps)
    return v, heat(np, v, steps)


IN_REGISTERS = {
    "heat": (lambda np, u: heat(np, u, 7), 1), "source": (source, 2), "wide": (wide, 1),
    "numbers": (numbers, 1), "drifting": (drifting, 1), "waiting": (waiting, 1),
}

# As many steps as are several rounds: with how many arrays, and how many kernels go in rounds.
IN_ROUNDS = {
    "heat": (lambda np, u: heat(np, u, 22), 1, 1),
    "source": (lambda np, u, f: source(np, u, f, 17), 2, 1),
    "wide": (lambda np, u: wide(np, u, 18), 1, 1),
    "numbers": (lambda np, u: numbers(np, u, 20), 1, 1),
    "falling": (falling_rows, 2, 1),
    "waiting": (lambda np, u: waiting(np, u, 12), 1, 2),
    "relaxed": (relaxed, 1, 0), "warmer": (warmer, 1, 0),
    "drifting": (lambda np, u: drifting(np, u, 12), 1, 0),
}


# ---- in three dimensions, plane after plane --------------------------------------------------


def exchange(np, u, v):
    """Two states that are written where the other one has been read, then edges in place."""
    u, v = u.copy(), v.copy()
    for _ in range(3):
        u[1:-1, 1:-1, 1:-1] += 0.1 * (v[2:, 1:-1, 1:-1] - v[:-2, 1:-1, 1:-1]) - (
            0.05 * u[1:-1, 1:-1, 1:-1])
        v[1:-1, 1:-1, 1:-1] += 0.1 * (u[1:-1, 2:, 1:-1] - u[1:-1, 1:-1, :-2])
        u[0] = u[1]
        u[-1] = u[-2]
        u[:, 0] = 0.5
    return u, v


def torus(np, u):
    for _ in range(3):
        u = u + 0.1 * (np.roll(u, 1, 0) + np.roll(u, -1, 0) + np.roll(u, 1, 1)
                       + np.roll(u, -1, 2) - 4 * u)
    return u


def wave_in_space(np, u, v):
    for _ in range(4):
        w = 2 * u - v
        w[1:-1, 1:-1, 1:-1] += 0.1 * (
            u[:-2, 1:-1, 1:-1] + u[2:, 1:-1, 1:-1] + u[1:-1, 1:-1, :-2]
            - 3 * u[1:-1, 1:-1, 1:-1])
        u, v = w, u
    return u, v


def falling(np, u):
    """From three planes above alone."""
    for _ in range(4):
        w = u.copy()
        w[3:] = 0.5 * (u[:-3] + u[3:])
        u = w
    return u


def heated(np, u, source):
    """With a source that is the same in all planes, and what was asked for in between."""
    first = cube(np, u, 2)
    u = first
    for _ in range(3):
        w = u.copy()
        w[1:-2] += 0.1 * (u[2:-1] - u[3:]) + 0.01 * source[0]
        u = w
    return u, first


IN_SPACE = {"cube": (cube, 1), "exchange": (exchange, 2), "torus": (torus, 1),
            "wave": (wave_in_space, 2), "falling": (falling, 1), "heated": (heated, 2)}


@st.composite
def stencils(draw, shapes=((40, 70), (95, 33), (7, 200), (64, 128)), steps=(2, 8)):
    """Return steps of one array that read it nearby, and arrays."""
    shape = draw(st.sampled_from(shapes))
    margin = [(draw(st.integers(0, 3)), draw(st.integers(0, 3))) for _ in shape]
    inside = tuple(slice(a, n - b) for n, (a, b) in zip(shape, margin, strict=True))
    reach = [(max(-2, -a), min(2, b)) for a, b in margin]
    terms = draw(st.lists(
        st.tuples(*(st.integers(*each) for each in reach), st.sampled_from([0.1, -0.2, 0.25]),
                  st.booleans()), min_size=1, max_size=6))
    source = draw(st.booleans())
    count = draw(st.integers(*steps))

    def program(np, u, *others):
        u = u.copy()
        for _ in range(count):
            new = 0.5 * u[inside]
            for *moves, weight, squared in terms:
                there = u[tuple(slice(part.start + by, part.stop + by)
                                for part, by in zip(inside, moves, strict=True))]
                new = new + weight / len(terms) * (there * there if squared else there)
            for other in others:
                new = new - 0.125 * other[inside]
            u[inside] = new
        return u

    dtype = draw(st.sampled_from(["f4", "f8", "c8"]))
    return program, [random_values(*shape, dtype=dtype, seed=k) / 2 for k in range(1 + source)]


# ---- any steps -------------------------------------------------------------------------------


def boxes(draw, shape, margin):
    """A box of an array that leaves a margin, or reaches an edge."""
    found = []
    for n in shape:
        begin = draw(st.sampled_from([0, margin, min(n - 1, 3)]))
        end = draw(st.sampled_from([n, n - margin, max(1, n - 4)]))
        found.append((begin, max(begin + 1, end)))
    return found


@st.composite
def programs(draw):
    """Return a function of NumPy's (or ours) and some arrays, and those."""
    rank = draw(st.integers(1, 3))
    shape = tuple(draw(st.sampled_from(
        {1: [5, 40, 700], 2: [6, 19, 45], 3: [5, 9, 14]}[rank])) for _ in range(rank))
    dtype = draw(st.sampled_from(["f4", "f8", "c8"]))
    states = draw(st.integers(1, 3))
    steps = [draw(actions(shape, states)) for _ in range(draw(st.integers(1, 3)))]
    times = draw(st.integers(1, 4))
    kept = draw(st.booleans())

    def program(np, *arrays):
        arrays = [x.copy() for x in arrays]
        seen = []
        for _ in range(times):
            for action in steps:
                action(np, arrays)
            if kept:
                seen.append(arrays[0] + 0)
        return (*arrays, *seen[:2])

    given = [random_values(*shape, dtype=dtype, seed=k) for k in range(states)]
    return program, given


def swapping(draw, shape, to, other):
    def swap(np, arrays):
        arrays[to], arrays[other] = arrays[other], arrays[to]

    return swap


def rolling(draw, shape, to, other):
    moves = draw(st.lists(st.tuples(st.integers(0, 1), st.sampled_from([1, -1, 2, 3]),
                                    st.integers(0, len(shape) - 1)), min_size=1, max_size=3))

    def roll(np, arrays):
        total = sum(np.roll(arrays[(to, other)[k]], by, axis) for k, by, axis in moves)
        arrays[to] = 0.5 * (arrays[other] + total / len(moves))

    return roll


def copying_edges(draw, shape, to, other):
    at, source = draw(st.sampled_from([(0, 1), (-1, -2), (0, -1), (1, 0)]))
    before = (slice(None),) * draw(st.integers(0, len(shape) - 1))

    def edge(np, arrays):
        arrays[to][(*before, at)] = arrays[other][(*before, source)]

    return edge


def making_anew(draw, shape, to, other):
    row = draw(st.booleans())

    def new(np, arrays):
        more = arrays[other][(0,) * (len(shape) - 1)] if row else arrays[other] * arrays[to]
        arrays[to] = 0.5 * arrays[to] + 0.25 * more

    return new


def moving_inside(draw, shape, to, other):
    """What is computed inside is an array of its own, from which two others are changed."""
    inside = tuple(slice(1, -1) for _ in shape)
    axis = draw(st.integers(0, len(shape) - 1))
    ahead = tuple(slice(2, None) if d == axis else slice(1, -1) for d in range(len(shape)))

    def move(np, arrays):
        flux = 0.25 * (arrays[to][ahead] - arrays[other][inside])
        arrays[to][inside] += flux
        arrays[other][inside] -= 0.5 * flux

    return move


def updating(draw, shape, to, other):
    states = max(to, other) + 1
    box = boxes(draw, shape, draw(st.integers(0, 2)))
    reads = []
    for _ in range(draw(st.integers(1, 4))):
        by = [draw(st.integers(max(-2, -begin), min(2, n - end)))
              for (begin, end), n in zip(box, shape, strict=True)]
        reads.append((draw(st.integers(0, states - 1)), tuple(
            slice(begin + k, end + k) for (begin, end), k in zip(box, by, strict=True))))
    written = tuple(slice(*span) for span in box)
    adds = draw(st.booleans())

    def update(np, arrays):
        total = sum(arrays[k][where] for k, where in reads) / (len(reads) + 1)
        if adds:
            arrays[to][written] += 0.5 * (total - arrays[to][written])
        else:
            arrays[to][written] = total

    return update


def choosing(draw, shape, to, other):
    """What is compared with is an array without axes."""
    def choose(np, arrays):
        bound = arrays[other].reshape(-1)[0].real
        arrays[to] = np.where(arrays[to].real > bound, 0.5 * arrays[other], arrays[to])

    return choose


def scaling(draw, shape, to, other):
    """In place, all of an array or every second row of it."""
    step = draw(st.sampled_from([1, 2]))

    def scale(np, arrays):
        arrays[to][::step] *= 0.75
        arrays[to][::step] += 0.25 * arrays[other][::step]

    return scale


def turning(draw, shape, to, other):
    """Read from the other end, or along the other axis: by no fixed distance."""
    def turn(np, arrays):
        x = arrays[other]
        turned = x.T if x.ndim > 1 and x.shape == x.T.shape else x[::-1]
        arrays[to] = 0.5 * (arrays[to] + turned)

    return turn


def reshaping(draw, shape, to, other):
    """Read or written as a line, or with its axes the other way round."""
    way = draw(st.sampled_from(["line", "written line", "elements", "other shape", "from a line"]))

    def reshape(np, arrays):
        if way == "line":
            line = arrays[other].reshape(-1)
            arrays[to] = (0.5 * arrays[to].reshape(-1) + 0.25 * line).reshape(shape)
        elif way == "written line":
            line = arrays[to].reshape(-1)
            line[1:] += 0.25 * (line[:-1] - line[1:])
        elif way == "elements":
            line = arrays[to].copy().reshape(-1)
            for k in range(1, min(6, len(line))):
                line[k] = line[k - 1] + 0.25
            arrays[to] = line.reshape(shape)
        elif way == "other shape":
            turned = arrays[other].reshape(shape[::-1]) + 0
            turned[1:] = 0.5 * (turned[1:] + turned[:-1])
            arrays[to] = 0.5 * arrays[to] + 0.25 * turned.reshape(shape)
        else:
            made = (np.arange(arrays[to].size) % 3).reshape(shape)
            arrays[to] = 0.75 * arrays[to] + 0.0625 * made

    return reshape


ACTIONS = (updating, updating, updating, making_anew, copying_edges, rolling, swapping,
           moving_inside, choosing, scaling, turning, reshaping)


@st.composite
def actions(draw, shape, states):
    """Something that a step does with its arrays."""
    make = draw(st.sampled_from(ACTIONS))
    return make(draw, shape, draw(st.integers(0, states - 1)), draw(st.integers(0, states - 1)))
