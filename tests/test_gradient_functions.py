"""Gradients of whole programs, against differences of the same program under NumPy.

Each is ordinary NumPy code of somebody's: simulations that write into arrays, fits, nets, prices.
"""

import numpy
import pytest

import tiledarray

STEP = 1e-4


def real(*shape, seed=0, low=-1.0, high=1.0):
    return numpy.random.default_rng(seed).uniform(low, high, shape)


PROGRAMS = {}


def program(*arrays, name=None):
    def enter(function):
        PROGRAMS[name or function.__name__] = function, arrays
        return function

    return enter


# ---- time steps that write into arrays ---------------------------------------------------------


@program(real(12, 13), real(1, low=0.05, high=0.2))
def heat_in_place(np, u, rate):
    u = u.copy()
    for _ in range(30):
        u[1:-1, 1:-1] += rate[0] * (
            u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4 * u[1:-1, 1:-1])
    return (u ** 2).sum()


@program(real(40), real(40, seed=1))
def wave_with_swaps(np, u, v):
    before, now = u.copy(), v.copy()
    for _ in range(25):
        after = np.empty_like(now)
        after[1:-1] = 2 * now[1:-1] - before[1:-1] + 0.3 * (now[2:] - 2 * now[1:-1] + now[:-2])
        after[0], after[-1] = now[1], now[-2]
        before, now = now, after
    return (now * before).sum()


@program(real(3, 8, 9, low=0.5, high=1.5))
def shallow_water(np, state):
    h, u, v = state[0].copy(), state[1].copy(), state[2].copy()
    for _ in range(8):
        u[:, 1:] -= 0.1 * (h[:, 1:] - h[:, :-1])
        v[1:] -= 0.1 * (h[1:] - h[:-1])
        h[:, :-1] -= 0.1 * (u[:, 1:] - u[:, :-1])
        h[:-1] -= 0.1 * (v[1:] - v[:-1])
    return np.mean(h ** 2 + u * v)


@program(real(20, low=0.5, high=1.5), real(1, low=0.02, high=0.1))
def burgers_upwind(np, u, dt):
    for _ in range(15):
        u = u.copy()
        u[1:] = u[1:] - dt[0] * u[1:] * (u[1:] - u[:-1])
    return np.sum(u * np.arange(20))


@program(real(6, 6), real(2, low=0.02, high=0.08))
def gray_scott(np, start, rates):
    u, v = 1 - 0.5 * start, 0.25 * start + 0.3
    for _ in range(10):
        lu = np.roll(u, 1, 0) + np.roll(u, -1, 0) + np.roll(u, 1, 1) + np.roll(u, -1, 1) - 4 * u
        lv = np.roll(v, 1, 0) + np.roll(v, -1, 0) + np.roll(v, 1, 1) + np.roll(v, -1, 1) - 4 * v
        uvv = u * v * v
        u, v = u + 0.16 * lu - uvv + rates[0] * (1 - u), v + 0.08 * lv + uvv - rates[1] * v
    return (u * v).sum()


@program(real(9, low=0.2, high=0.8))
def logistic_maps_written_one_by_one(np, r):
    x = np.zeros((12, 9))
    x[0] = 0.4
    for k in range(1, 12):
        for j in range(0, 9, 4):
            x[k, j] = 3 * r[j] * x[k - 1, j] * (1 - x[k - 1, j])
        x[k, 1:4] = x[k - 1, 1:4] + r[1:4] * 0.1
    return x[-1].sum() + x.mean()


@program(real(15))
def sandpile_of_masks(np, h):
    h = h * 2
    for _ in range(4):
        steep = h > 0.7
        h[steep] *= 0.5
        h[~steep] += 0.05
        h[1:][steep[:-1]] += 0.1 * h[:-1][steep[:-1]]
    return (h ** 3).sum()


@program(real(10), real(10, seed=3))
def scattered(np, charge, weight):
    grid = np.zeros(6)
    at = np.array([0, 1, 1, 2, 5, 5, 5, 3, 0, 4])
    np.add.at(grid, at, charge * weight)
    grid[[1, 2]] = grid[[2, 1]]
    return (grid * grid[::-1]).sum() + grid[at].sum()


@program(real(7, 2, low=0.0, high=2.0), real(7, 2, seed=5))
def leapfrog_of_particles(np, x, v):
    x, v = x.copy(), v.copy()
    for _ in range(6):
        apart = x[:, None] - x[None]
        distance = np.sqrt((apart ** 2).sum(-1) + 0.3)
        force = -(apart / distance[..., None] ** 3).sum(axis=1)
        v += 0.02 * force
        x += 0.02 * v
    return 0.5 * (v ** 2).sum() + x[:, 0].max()


@program(real(4, low=0.5, high=1.5))
def lotka_volterra_by_runge_kutta(np, p):
    def rate(y):
        return np.stack([p[0] * y[0] - p[1] * y[0] * y[1], p[2] * y[0] * y[1] - p[3] * y[1]])

    y = np.array([1.0, 0.5])
    for _ in range(20):
        k1 = rate(y)
        k2 = rate(y + 0.05 * k1)
        k3 = rate(y + 0.05 * k2)
        k4 = rate(y + 0.1 * k3)
        y = y + 0.1 / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    return y[0] * y[1]


@program(real(3), real(5, 3, seed=1))
def pendulum_chain(np, start, torque):
    angle, speed = start.copy(), np.zeros(3)
    for t in range(5):
        speed += 0.1 * (-np.sin(angle) + torque[t])
        speed[:-1] += 0.05 * (angle[1:] - angle[:-1])
        angle += 0.1 * speed
    return np.cos(angle).sum()


# ---- learning ------------------------------------------------------------------------------------


@program(real(5), real(30, 5, seed=1), name="logistic_regression")
def _logistic_regression(np, w, x):
    y = np.where(x[:, 0] > 0, 1.0, -1.0)
    return np.mean(np.log1p(np.exp(-y * (x * w).sum(axis=1)))) + 0.1 * (w ** 2).sum()


@program(real(4, 6), real(6, seed=2), real(6, 3, seed=3))
def two_layers(np, w, b, out):
    x = real(9, 4, seed=8)
    hidden = np.maximum((x[:, :, None] * w[None]).sum(axis=1) + b, 0)
    scores = (hidden[:, :, None] * out[None]).sum(axis=1)
    scores = scores - scores.max(axis=1, keepdims=True)
    logs = scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
    return -logs[np.arange(9), np.arange(9) % 3].mean()


@program(real(6, 5), real(5, seed=1), real(5, seed=2))
def layer_norm(np, x, scale, shift):
    centred = x - x.mean(axis=-1, keepdims=True)
    y = centred / np.sqrt(np.var(x, axis=-1, keepdims=True) + 1e-5)
    return np.sum(np.tanh(y * scale + shift) ** 2)


@program(real(8, 2), real(3, 2, seed=4))
def soft_kmeans(np, points, centres):
    apart = ((points[:, None] - centres[None]) ** 2).sum(-1)
    return -np.log(np.exp(-3 * apart).sum(axis=1)).sum()


@program(real(5, 4), real(5, 4, seed=1), real(5, 4, seed=2))
def attention(np, q, k, v):
    scores = (q[:, None] * k[None]).sum(-1) / 2
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    return ((weights[..., None] * v[None]).sum(axis=1) ** 2).sum()


@program(real(3, 3), real(3, seed=1))
def recurrent_net(np, w, h):
    for t in range(6):
        h = np.tanh((w * h).sum(axis=1) + 0.1 * t)
    return (h * h).sum()


@program(real(6, 7), real(3, 3, seed=2))
def convolution_written_out(np, image, kernel):
    out = np.zeros((4, 5))
    for i in range(3):
        for j in range(3):
            out += image[i:i + 4, j:j + 5] * kernel[i, j]
    return (np.maximum(out, 0.1 * out) ** 2).sum()


@program(real(6), real(20, 6, seed=1))
def huber_and_quantile_losses(np, w, x):
    r = (x * w).sum(axis=1) - 0.3
    huber = np.where(np.abs(r) < 0.5, 0.5 * r ** 2, 0.5 * (np.abs(r) - 0.25))
    return huber.sum() + np.maximum(0.3 * r, -0.7 * r).sum()


@program(real(8, low=0.1, high=0.9))
def dirichlet_and_entropy(np, p):
    p = p / p.sum()
    return -(p * np.log(p)).sum() + np.prod(p * 8)


@program(real(2, low=0.5, high=1.0))
def adam_by_hand_differentiated(np, w):
    m, v = np.zeros(2), np.zeros(2)
    for t in range(1, 5):
        g = 2 * w * np.array([1.0, 3.0])
        m = 0.9 * m + 0.1 * g
        v = 0.99 * v + 0.01 * g * g
        w = w - 0.1 * (m / (1 - 0.9 ** t)) / (np.sqrt(v / (1 - 0.99 ** t)) + 1e-3)
    return (w ** 2).sum()


# ---- finance, signals, pictures ----------------------------------------------------------------


@program(real(3, low=0.5, high=1.5))
def option_price_by_a_tree(np, p):
    spot, volatility, rate = p[0], 0.3 * p[1], 0.05 * p[2]
    steps, dt = 12, 1 / 12
    up = np.exp(volatility * np.sqrt(dt))
    chance = (np.exp(rate * dt) - 1 / up) / (up - 1 / up)
    value = np.maximum(spot * up ** (2.0 * np.arange(steps + 1) - steps) - 1, 0)
    for _ in range(steps):
        value = np.exp(-rate * dt) * (chance * value[1:] + (1 - chance) * value[:-1])
    return value[0]


@program(real(4, low=0.2, high=1.0))
def asian_option_paths(np, p):
    noise = real(20, 10, seed=7)
    logs = np.cumsum((0.05 - 0.5 * p[1] ** 2) * 0.1 + p[1] * 0.3 * noise, axis=1)
    paths = p[0] * np.exp(logs)
    return np.maximum(paths.mean(axis=1) - p[2], 0).mean() * np.exp(-p[3])


@program(real(30))
def moving_average_and_autocorrelation(np, x):
    total = np.cumsum(x)
    average = (total[5:] - total[:-5]) / 5
    return (average[:-3] * average[3:]).sum() / np.sqrt((average ** 2).sum())


@program(real(8, 8), real(2, seed=1, low=0.3, high=0.7))
def bilinear_warp(np, image, shift):
    y = np.arange(6) + shift[0]
    x = np.arange(6) + shift[1]
    i, j = np.floor(y).astype(int), np.floor(x).astype(int)
    a, b = (y - i)[:, None], (x - j)[None]
    rows = image[i][:, j] * (1 - a) + image[i + 1][:, j] * a
    shifted = image[i][:, j + 1] * (1 - a) + image[i + 1][:, j + 1] * a
    return ((rows * (1 - b) + shifted * b) ** 2).sum()


@program(real(3, low=0.3, high=0.6))
def sphere_tracing(np, centre):
    across = np.linspace(-0.3, 0.3, 5)
    rays = np.stack([*np.meshgrid(across, across), np.ones((5, 5))], axis=-1)
    rays = rays / np.sqrt((rays ** 2).sum(-1, keepdims=True))
    depth = np.zeros((5, 5))
    for _ in range(12):
        at = depth[..., None] * rays - np.stack([0 * centre[0], 0 * centre[1], 2 + centre[2]])
        depth = depth + np.sqrt((at ** 2).sum(-1)) - (0.5 + centre[0])
        depth = np.minimum(depth, 3.0)
    return (depth * np.exp(-depth)).mean()


@program(real(6), real(7, seed=1))
def soft_time_warping(np, x, y):
    cost = (x[:, None] - y[None]) ** 2
    table = np.full((7, 8), 1e3)
    table[0, 0] = 0.0
    for i in range(6):
        for j in range(7):
            near = np.stack([table[i, j], table[i, j + 1], table[i + 1, j]])
            least = near.min()
            table[i + 1, j + 1] = cost[i, j] + least - 0.5 * np.log(
                np.exp(-(near - least) / 0.5).sum())
    return table[-1, -1]


@program(real(5, 5))
def total_variation_and_padding(np, image):
    padded = np.pad(image, 1, mode="edge")
    across, down = np.diff(padded, axis=1), np.diff(padded, axis=0)
    return np.sqrt(across[:-1] ** 2 + down[:, :-1] ** 2 + 1e-3).sum()


@program(real(4, low=0.5, high=1.0), real(4, seed=1))
def complex_response(np, r, phase):
    z = r * np.exp(1j * phase)
    response = (1 + 0.5 * z) / (2 - z * z)
    return (np.abs(response) ** 2).sum() + np.angle(response).sum() + (z * z.conj()).real.sum()


@program(real(11))
def order_statistics(np, x):
    low, high = np.min(x), np.max(x)
    scaled = (x - low) / (high - low)
    return (np.clip(scaled, 0.2, 0.8) ** 2).sum() + np.std(x) * np.ptp(x)


@program(real(6, low=0.5, high=2.0))
def numbers_that_become_arrays(np, x):
    total = 0.0
    for k, value in enumerate(x):
        total = total + value ** k
    first, *rest = x
    return total * first + sum(rest) + np.array([x[0] * x[1], x[2]]).sum()


@program(real(5, low=0.2, high=0.9))
def branches_and_loops(np, x):
    y = x * 2
    while y.sum() > 2.0:
        y = y * 0.8
    if y[0] > y[1]:
        return (y ** 2).sum() * x[0]
    return (y ** 3).sum() * x[1]


@program(real(7), real(4, seed=1))
def polynomials_and_outer_products(np, x, c):
    value = np.zeros_like(x)
    for each in c[::-1]:
        value = value * x + each
    return np.outer(value, c).sum()


@program(real(3, 4), real(4, 2, seed=1))
def views_of_views(np, a, b):
    w = np.zeros((4, 6))
    top = w[:3]
    top[:, :4] = a
    top.T[4:] = (b[:3] * 2).T
    w[3] = top[0] * top[2]
    line = w.reshape(-1)
    line[::5] *= 3
    w[:, ::-1][:, 0] += w[:, 1]
    return (w[1:, 1:] * w[:-1, :-1]).sum()


# Recorded stretch by stretch they take seconds, most of it planning.
LONG = {"lotka_volterra_by_runge_kutta", "gray_scott", "soft_time_warping", "heat_in_place",
        "option_price_by_a_tree"}


@pytest.mark.parametrize("name", PROGRAMS)
def test_whole_programs_as_users_run_them(name):
    check(*PROGRAMS[name])


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", [name for name in PROGRAMS if name not in LONG])
def test_whole_programs_recorded(name):
    with tiledarray.config.override(at_once=1, first_seconds=0.0):
        check(*PROGRAMS[name])


def check(function, arrays):
    numbers = tuple(range(len(arrays)))
    value, gradients = tiledarray.value_and_grad(
        lambda *given: function(tiledarray, *given), numbers)(*map(tiledarray.array, arrays))
    assert float(value) == pytest.approx(float(function(numpy, *arrays)), rel=1e-10)
    for k, (array, gradient) in enumerate(zip(arrays, gradients, strict=True)):
        assert gradient.shape == array.shape and gradient.dtype == array.dtype
        v = real(*array.shape, seed=11)

        def along(t, k=k, array=array, v=v):
            return float(function(numpy, *arrays[:k], array + t * v, *arrays[k + 1:]))

        wanted = (8 * (along(STEP) - along(-STEP)) - (along(2 * STEP) - along(-2 * STEP))) / (
            12 * STEP)
        found = float((numpy.asarray(gradient) * v).sum())
        assert found == pytest.approx(wanted, rel=2e-6, abs=1e-7)


# ---- directions through rules that look into their cotangents ----------------------------------

N = 400  # so many that zeros of a rule's result are not computed at once
LONG = {
    "windows": lambda np, x: (np.lib.stride_tricks.sliding_window_view(x, 4) ** 2).sum(),
    "largest of windows": lambda np, x: np.lib.stride_tricks.sliding_window_view(
        x, 5).max(-1).sum(),
    "windows of planes": lambda np, x: (np.lib.stride_tricks.sliding_window_view(
        x.reshape(20, 20), (3, 3)) ** 3).sum(),
    "a product with windows": lambda np, x: (
        np.lib.stride_tricks.sliding_window_view(x, 3) @ x[:3]).sum(),
    "many windows": lambda np, x: (
        np.lib.stride_tricks.sliding_window_view(x, 90) * x[:90]).sum(),
    "some of a part": lambda np, x: (x * x).sum() + (
        np.lib.stride_tricks.sliding_window_view(x * x, 6)[7] * x[:6]).sum(),
    "diagonals": lambda np, x: (np.diagonal(np.outer(x, x[::-1])) ** 2).sum(),
    "sorted": lambda np, x: (np.sort(x) * np.arange(1.0, N + 1)).sum(),
    "running": lambda np, x: (np.cumsum(x) ** 2).sum() / N,
    "taken": lambda np, x: (x[np.arange(N) % 37] ** 2).sum(),
    "spectrum": lambda np, x: (abs(np.fft.rfft(x)) ** 2).sum() / N,
    "padded": lambda np, x: (np.pad(x, 3, mode="reflect") ** 2).sum(),
    "convolved": lambda np, x: (np.convolve(x, x[:5]) ** 2).sum(),
    "interpolated": lambda np, x: (np.interp(
        np.linspace(0.0, N - 1.0, 2 * N), np.arange(float(N)), x) ** 2).sum(),
    "written": lambda np, x: _written(np, x),
}


def _written(np, x):
    y = np.zeros((N, 3))
    y[:, 0] = x
    y[1:, 1] += y[:-1, 0] * y[1:, 0]
    return (y ** 2).sum()


@pytest.mark.parametrize("name", LONG)
def test_directions_of_long_arrays_are_those_of_gradients(name):
    def f(x):
        return LONG[name](tiledarray, x)

    x, t = (numpy.random.default_rng(k).standard_normal(N) for k in range(2))
    slope = numpy.asarray(tiledarray.grad(f)(x))
    assert float(tiledarray.jvp(f, (x,), (t,))[1]) == pytest.approx(float(slope @ t), rel=1e-9)
    step = 1e-6
    ahead, behind = (float(f(tiledarray.array(x + by * t))) for by in (step, -step))
    assert float(slope @ t) == pytest.approx((ahead - behind) / (2 * step), rel=1e-5, abs=1e-5)
    along = numpy.asarray(tiledarray.hvp(f, x, t))
    slopes = [numpy.asarray(tiledarray.grad(f)(x + by * t)) for by in (step, -step)]
    numpy.testing.assert_allclose(
        along, (slopes[0] - slopes[1]) / (2 * step), rtol=1e-4, atol=1e-4)


def test_zeros_with_which_a_history_begins_are_no_constant():
    """A look at an element of them makes constants real arrays, whose history would be lost."""
    x = tiledarray.variable(tiledarray.zeros((257, 5)))
    assert numpy.asarray((x[0] * 2.0 + x[0, 1]).sum().grad(x)).sum() == 15.0
