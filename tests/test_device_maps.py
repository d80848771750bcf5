"""Map kernels for a GPU, by value: stencils, transposes and short rows, run by emulation."""

import shutil

import numpy
import pytest

import tiledarray as ta
from tests.emulation import emulated
from tests.plans import DEVICE, HOST, planned
from tiledarray import config

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ to emulate with")


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("emulated")


def array(*shape, dtype="f4", seed=0):
    return (numpy.random.default_rng(seed).random(shape) * 50).astype(dtype)


def run(folder, program, *inputs):
    """Compare with NumPy; return the only kernel of the plan."""
    expected = program(numpy, *(x.copy() for x in inputs))
    plan, (result,) = emulated(program, *inputs, folder=folder)
    assert result.shape == expected.shape
    numpy.testing.assert_allclose(result, expected, rtol=1e-6, atol=1e-4)
    (kernel,) = plan.kernels
    return kernel


def around(u):
    return (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]) - 4 * u[1:-1, 1:-1]


def inside(np, u):
    return around(u)


def step(np, u):
    new = u.copy()
    new[1:-1, 1:-1] += around(u)
    return new


def corners(np, u):
    return u[2:, 2:] + 2 * u[2:, 1:-1] - u[:-2, 2:] - 2 * u[:-2, :-2]


def wide(np, u):
    return u[2:-2, 2:-2] + u[:-4, :-4] + u[4:, 4:] + u[:-4, 4:] + u[4:, :-4]


def scaled_rows(np, u):
    return (u[1:] - u[:-1]) * u[0]


SHAPES = [(64, 128), (67, 132), (66, 129), (131, 66), (6, 64), (5, 40), (300, 9)]


@pytest.mark.sampled(6)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("program", [inside, step, corners, wide, scaled_rows])
def test_stencils(folder, program, shape):
    run(folder, program, array(*shape))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("dtype", ["f8", "i2", "u1", "c8", "?"])
def test_stencils_of_every_width(folder, dtype):
    run(folder, corners if dtype != "?" else lambda np, u: u[1:, 1:] != u[:-1, :-1],
        array(37, 128, dtype=dtype))


@pytest.mark.parametrize("shape", [(9, 10, 64), (6, 5, 66), (4, 3, 130)], ids=str)
def test_stencils_in_space(folder, shape):
    kernel = run(folder, lambda np, u: (
        6 * u[1:-1, 1:-1, 1:-1] - u[2:, 1:-1, 1:-1] - u[:-2, 1:-1, 1:-1] - u[1:-1, 2:, 1:-1]
        - u[1:-1, :-2, 1:-1] - u[1:-1, 1:-1, 2:] - u[1:-1, 1:-1, :-2]), array(*shape))
    assert len(kernel.windows) == 3  # planes


def spread_in_space(np, u):
    new = u.copy()
    i = slice(1, -1)
    new[i, i, i] += u[2:, i, i] + u[:-2, i, i] + u[i, 2:, i] + u[i, :-2, i] - 4 * u[i, i, i]
    return new


def far_in_space(np, u):
    new = u + 0
    new[1:-2, 20:-3, 18:-1] = u[:-3, 20:-3, 18:-1] * 2 - u[3:, 17:-6, 17:-2]
    return new


def in_four_dimensions(np, u):
    return u[1:, :, 1:, 1:] - u[:-1, :, :-1, :-1] + u[1:, :, :-1, 1:]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("program", [spread_in_space, far_in_space])
@pytest.mark.parametrize("shape", [(5, 37, 70), (4, 71, 131), (7, 66, 132), (4, 24, 64)], ids=str)
def test_planes_of_several_tiles_with_borders(folder, program, shape):
    kernel = run(folder, program, array(*shape))
    if program is spread_in_space:
        assert kernel.border is not None and kernel.schedule.plane == (kernel.schedule.width > 1)


@pytest.mark.parametrize("shape", [(4, 3, 70, 66), (3, 2, 9, 129)], ids=str)
def test_stencils_in_four_dimensions(folder, shape):
    run(folder, in_four_dimensions, array(*shape))


@pytest.mark.parametrize("n, start, blocks", [(512, 1, 4), (512, 2, 4), (1024, 1, 8)])
def test_blocks_along_lanes_are_no_more_than_needed(n, start, blocks):
    u = ta.array(numpy.zeros((64, n), "f4"))
    u[1:-1, start:-1] += u[2:, start:-1] - u[:-2, start:-1] + u[1:-1, start - 1:-2]
    kernel = planned(u, target=DEVICE).kernels[0]
    assert kernel.schedule.blocks == blocks * 4  # two rows of each of eight threads


@pytest.mark.sampled(2)
@pytest.mark.parametrize("n", [1024, 1023, 257, 5, 4])
def test_differences(folder, n):
    kernel = run(folder, lambda np, x: x[1:] - x[:-1], array(n))
    assert kernel.schedule.width == 4
    assert len(kernel.windows) == 1
    assert run(folder, lambda np, x: x * 2 + 1, array(n)).schedule.width == 4


@pytest.mark.parametrize("start", [3, 4, 7])
def test_windows_that_move_share_what_they_read(folder, start):
    kernel = run(folder, lambda np, x: x[:, start + 1:start + 65] - x[:, start:start + 64],
                 array(20, 128))
    (window,) = kernel.windows
    assert sorted(window.shifts.values()) in ([(0, 0), (0, 1)], [(0, -1), (0, 0)])


def test_updates_in_place_read_another_array_around(folder):
    def update(np, a, w):
        a[1:-1, 1:-1] = a[1:-1, 1:-1] + w[:-2, 1:-1] + w[2:, 1:-1]
        return a

    for shape in [(33, 64), (34, 129), (37, 130)]:
        run(folder, update, array(*shape), array(*shape, seed=1))


def test_a_line_is_read_once(folder):
    kernel = run(folder, step, array(64, 128))
    (window,) = kernel.windows
    assert kernel.schedule.unroll == 2
    assert window.lines(2) == {-1: (0, 0), 0: (-1, 1), 1: (-1, 1), 2: (0, 0)}


TRANSPOSES = {
    "plain": lambda np, x: x.T * 2,
    "and itself": lambda np, x: x.T[:60, :60] + x[:60, :60],
    "shifted": lambda np, x: x[1:, 2:].T * x[:-1, :-2].T,
    "beside a stencil": lambda np, x: x.T[:40, 1:50] + x[1:41, :49] - x[:40, 1:50],
    "several": lambda np, x: x.T + x[::-1].T * 2,
}


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", TRANSPOSES)
@pytest.mark.parametrize("shape", [(64, 128), (70, 131)], ids=str)
@pytest.mark.parametrize("dtype", ["f4", "f8", "u1", "c16"])
def test_transposes(folder, name, shape, dtype):
    assert run(folder, TRANSPOSES[name], array(*shape, dtype=dtype)).turned


@pytest.mark.parametrize("dtype", ["f4", "f8", "c8"])
def test_what_is_read_turned_is_written_in_place(folder, dtype):
    def clipped(np, x):
        doubled = x * 2
        turned = np.moveaxis(doubled, 0, -1)
        more = turned + 1  # along the lanes: axes of 7 and 3 are too short to be lanes
        turned[turned.real > 30] = 1
        return more, doubled

    x = array(130, 7, 3, dtype=dtype)
    for target in (HOST, DEVICE):
        plan = planned(*clipped(ta, ta.array(x)), target=target)
        assert plan.kernels[1].turned
        assert [choice for choice, _ in plan.updates.values()] == ["in place"]
    ours = clipped(ta, ta.array(x))
    _, emulation = emulated(clipped, x, folder=folder)
    with config.override(compile="wait"):
        for mine, device, theirs in zip(ours, emulation, clipped(numpy, x), strict=True):
            numpy.testing.assert_array_equal(mine.numpy(), theirs)
            numpy.testing.assert_array_equal(device, theirs)
            assert mine.origin().node.buffer.plan.failure is None


@pytest.mark.parametrize("axes", [(0, 2, 3, 1), (0, 3, 1, 2), (3, 2, 1, 0), (2, 0, 1, 3)], ids=str)
def test_transposes_of_batches(folder, axes):
    kernel = run(folder, lambda np, x: x.transpose(axes) + 1, array(3, 40, 18, 33))
    assert bool(kernel.turned) == (axes[-1] == 1 or axes[1] == 3)


SHORT = {
    "channels": (lambda np, x, b, c: x * b, 4),
    "rows": (lambda np, x, b, c: x * c[:, None], 4),
    "both": (lambda np, x, b, c: x * c[:, None] + b, 4),
    "turned": (lambda np, x, b, c: x[:, ::-1] * b, 4),
    "places": (lambda np, x, b, c: x * np.arange(3, dtype="f4") - c[:, None], 4),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", SHORT)
@pytest.mark.parametrize("rows", [1000, 1001, 2])
def test_short_rows_are_joined(folder, name, rows):
    program, width = SHORT[name]
    kernel = run(folder, program, array(rows, 3), array(3, seed=1), array(rows, seed=2))
    assert kernel.schedule.width == width
    assert kernel.schedule.lane.size == 3 * rows
    assert kernel.schedule.lane.period == 3


def test_bytes_of_joined_rows(folder):
    x, b = array(1000, 3), array(3)
    kernel = run(folder, lambda np, x, b: x * b, x, b)
    assert kernel.bytes_moved == 2 * x.nbytes + b.nbytes


def test_channels_last(folder):
    kernel = run(folder, lambda np, x: x.transpose(0, 2, 3, 1) * 2, array(2, 3, 40, 50))
    assert kernel.schedule.lane.period == 3


@pytest.mark.sampled(3)
@pytest.mark.parametrize("dtype", ["f4", "u1", "f8"])
@pytest.mark.parametrize("width", [1, 2])
def test_results_that_are_stored_at_different_places(folder, dtype, width):
    """Two stores of one kernel, each a vector wide, need not be aligned alike."""
    def program(np, state):
        for _ in range(2):
            padded = np.pad(state, width, mode="wrap")
            state = padded[:-2 * width] + 2 * state + padded[2 * width:] * state
        return state

    (start,) = inputs = [array(2000).astype(dtype)]
    plan, (found,) = emulated(program, *inputs, folder=folder)
    numpy.testing.assert_allclose(found, program(numpy, start), rtol=1e-5)
    assert any(len(part.stores) == 2 for kernel in plan.kernels for part in kernel.parts)


def escaping(np, c, steps=5):
    z, n = c, np.zeros(c.shape, "i4")
    for _ in range(steps):
        inside = np.abs(z) < 2
        z, n = np.where(inside, z * z + c, z), n + inside
    return n


def test_sizes_of_complex_numbers_are_compared_by_squares(folder):
    rng = numpy.random.default_rng(0)
    c = (rng.uniform(-2, 1, (40, 50)) + 1j * rng.uniform(-1, 1, (40, 50))).astype("c8")
    plan, (found,) = emulated(escaping, c, folder=folder)
    numpy.testing.assert_array_equal(found, escaping(numpy, c))
    names = [value.op.name for value in plan.values]
    assert names.count("size_less") == 5 and "absolute" not in names


@pytest.mark.parametrize(("program", "target", "names"), [
    (lambda z: numpy.float32(2) < abs(z), DEVICE, {"size_greater"}),
    (lambda z: abs(z) >= abs(z[::-1]), DEVICE, {"size_greater_equal", "absolute"}),
    (lambda z: (lambda size: (size <= 2) * size)(abs(z)), DEVICE,
     {"absolute", "less_equal", "multiply"}),
    (lambda z: abs(z) < 2, HOST, {"absolute", "less"}),
    (lambda z: abs(z.astype("c16")) < 2, DEVICE, {"absolute", "less", "cast"}),
    (lambda z: abs(z.real) < 2, DEVICE, {"absolute", "less", "real"}),
])
def test_only_sizes_that_nothing_else_needs_are_left_out(program, target, names):
    plan = planned(program(ta.asarray(numpy.ones(300, "c8"))), target=target)
    assert {value.op.name for value in plan.values} - {"leaf", "view", "full"} == names
