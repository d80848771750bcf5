"""Several writes in one launch, and plans that assume where they lie."""

from dataclasses import replace

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tiledarray as np
from tests.plans import DEVICE, HOST, counted, filled, kinds, moved, nbytes, planned
from tiledarray import config
from tiledarray.arrays.handle import wrap
from tiledarray.fusion.ir import Affine
from tiledarray.fusion.regions import Regions, region_of
from tiledarray.kernels.compile import cuda
from tiledarray.kernels.text.program import print_kernel
from tiledarray.ops.library import BY_NAME, options
from tiledarray.recording import record
from tiledarray.recording.stretch import local

MATRIX = (96, 160)
# Launches that a GPU would do together, tile by tile, stay apart: `test_chains.py` is about those.
TARGETS = {"cpu": HOST, "cuda": replace(DEVICE, choice=(("chain_stages", 1),))}


@pytest.fixture(autouse=True)
def clean():
    local.recorder.reset()
    with config.override(compile="wait", cut=400):
        yield
    local.recorder.reset()


def rows(np, x):
    out = np.zeros(x.shape)
    out[0] = np.sqrt(x[0])
    out[1] = x[1] * 2
    out[2:] = x[2:] + 1
    return out


def edges(np, x):
    out = x + 0
    out[0] = out[1]
    out[-1] = out[-2]
    return out


def every_second(np, x):
    out = np.empty(x.shape)
    out[::2] = x[::2] * 2
    out[1::2] = x[1::2] + 1
    return out


def filled_around(np, x):
    out = np.full(x.shape, 2.5)
    out[1:-1, 3:-3] = x[1:-1, 3:-3] * 2
    return out


def padded(mode):
    return lambda np, x: np.pad(x * 2, 3, mode=mode)


def test_a_kernel_reads_one_of_several_results_of_a_call():
    x = numpy.random.default_rng(0).normal(size=(4, 3))
    node = np.asarray(x).node
    op, shapes = BY_NAME["linalg.svd"], [(4, 3), (3,), (3, 3)]
    call = record.library(op, (node,), options(full_matrices=False), shapes[0], x.dtype)
    u, s, v = (wrap(record.item(call, k, shape, x.dtype)) for k, shape in enumerate(shapes))
    whole = (u * s) @ (v * 2)
    kept = s * 3
    numpy.testing.assert_allclose(whole, 2 * x, rtol=1e-13)
    numpy.testing.assert_allclose(kept, 3 * numpy.linalg.svd(x)[1], rtol=1e-13)
    numpy.testing.assert_allclose(u, numpy.linalg.svd(x)[0][:, :3], rtol=1e-13)


# Program, launches, parts, and the bytes beyond reading x and writing the result once.
WRITES = {
    "rows of zeros": (rows, [3], 0),
    "every second row": (every_second, [2], 0),
    "filled around": (filled_around, [1], -8 * (96 * 160 - 94 * 154)),
    "pad": (padded("constant"), [1], 0),
    "edges of a copy": (edges, [1, 2], 4 * 8 * 160),
}


@pytest.mark.parametrize("name", WRITES)
@pytest.mark.compiler
def test_writes_of_different_regions_share_a_launch(name):
    program, parts, beyond = WRITES[name]
    x = filled(*MATRIX)
    expected = program(numpy, numpy.asarray(x))
    for target in TARGETS.values():
        result = program(np, x)
        plan = planned(result, target=target)
        assert [len(kernel.parts) for kernel in plan.kernels] == parts
        assert kinds(plan) == ["map"] * len(parts)
        assert moved(plan) == nbytes(x, result) + beyond
    numpy.testing.assert_allclose(numpy.asarray(result), expected, rtol=1e-12)


@pytest.mark.parametrize("mode", ["edge", "wrap", "reflect", "symmetric"])
def test_a_pad_by_elements_is_one_launch(mode):
    x = filled(*MATRIX)
    result = padded(mode)(np, x)
    for target in TARGETS.values():
        plan = planned(result, target=target)
        assert kinds(plan) == ["map"]
        assert moved(plan) <= 1.05 * nbytes(x, result)
    numpy.testing.assert_allclose(
        numpy.asarray(result), padded(mode)(numpy, numpy.asarray(x)), rtol=1e-12)


def test_writes_that_overlap_stay_in_order():
    def program(np, x):
        out = x * 1
        out[2:40] = x[2:40] * 2
        out[30:60] = x[30:60] * 3
        return out

    x = filled(*MATRIX)
    result = program(np, x)
    for target in TARGETS.values():
        assert [len(kernel.parts) for kernel in planned(result, target=target).kernels] == [1, 1, 1]
    numpy.testing.assert_allclose(numpy.asarray(result), program(numpy, numpy.asarray(x)))


def test_a_read_of_what_the_launch_writes_waits():
    def program(np, x):
        out = np.empty(x.shape)
        out[:10] = x[:10] * 2
        out[10:20] = out[:10] + 1
        out[20:] = x[20:]
        return out

    x = filled(*MATRIX)
    result = program(np, x)
    plan = planned(result)
    assert len(plan.kernels) == 2
    numpy.testing.assert_allclose(numpy.asarray(result), program(numpy, numpy.asarray(x)))


def test_the_plan_of_a_moving_copy_is_used_only_where_what_it_assumes_holds():
    x = filled(50, 6)
    expected = numpy.array(x)
    with counted() as counts:
        for to, source in [(5, 9), (9, 5), (7, 7), (20, 3), (8, 9), (9, 9)]:
            x[to:to + 3] = x[source:source + 3] * 2
            expected[to:to + 3] = expected[source:source + 3] * 2
            np.evaluate(x)
    numpy.testing.assert_array_equal(numpy.asarray(x), expected)
    assert counts["plans made"] >= 2


def test_small_results_share_a_launch_on_a_gpu():
    x = filled(1000)
    outputs = [np.sin(x[:40 * k + 50]) * k for k in range(1, 21)]
    plan = planned(*outputs, target=DEVICE)
    assert len(plan.kernels) < 20
    assert sum(len(kernel.parts) for kernel in plan.kernels) == 20
    assert len(planned(*outputs, target=HOST).kernels) == 20


def test_blocks_of_different_size_are_refused_with_the_numbers():
    x = filled(*MATRIX)
    plan = planned(np.sin(x[:5]), x.sum(1), target=DEVICE)
    assert len(plan.kernels) == 2
    assert any("its blocks have" in refusal for refusal in plan.refusals), plan.refusals


@pytest.mark.skipif(
    cuda.available() is not None, reason=f"no CUDA compiler: {cuda.available()}"
)
@pytest.mark.parametrize("program", [rows, edges, every_second, filled_around, padded("reflect")])
def test_several_parts_compile_for_a_gpu_without_local_memory(program):
    result = program(np, filled(*MATRIX))
    for kernel in planned(result, target=DEVICE).kernels:
        text = print_kernel(kernel, device=True).text.replace("NAME", "several")
        for arch in ("sm_80", "sm_90a"):
            report = cuda.compile_source(text, "several", arch).reports["several"]
            assert report.spill_stores == report.local_bytes == 0


@given(st.data())
def test_regions_said_to_be_apart_have_no_element_in_common(data):
    size = data.draw(st.integers(1, 12))

    def drawn(params):
        count = data.draw(st.integers(1, size))
        step = data.draw(st.sampled_from([1, 2, 3, -1, -2]))
        reach = abs(step) * (count - 1)
        if reach >= size:
            count, reach = 1, 0
        first = data.draw(st.integers(0, size - 1 - reach)) + (reach if step < 0 else 0)
        params.append(first)
        region = region_of((size,), (Affine(0, step, ((len(params) - 1, 1),)),), (count,))
        return region, {first + step * k for k in range(count)}

    params = []
    (one, first), (other, second) = drawn(params), drawn(params)
    regions = Regions(params)
    if regions.apart(one, other):
        assert not first & second
        assert regions.assumed
    if regions.cover([one, other]):
        assert first | second == set(range(size))
    assert not Regions(None).apart(one, other)


# ---- what is computed from joined arrays --------------------------------------------------------


def diffusion(np, u):
    return u + 0.1 * (np.roll(u, 1, 0) + np.roll(u, -1, 0)
                      + np.roll(u, 1, 1) + np.roll(u, -1, 1) - 4 * u)


def three_steps(np, u):
    for _ in range(3):
        u = diffusion(np, u)
    return u


def in_place(np, u):
    u = u * 1
    u[...] = u + np.roll(u, 3, 0)
    u[...] = u - np.roll(u, -2, 1)
    return u


def in_place_reversed(np, u):
    u = u * 1
    u[::-1] = u + np.roll(u, 3, 0)
    u[:, ::-1] -= np.concatenate([u[:5], u[:-5]])
    return u


def in_place_transposed(np, u):
    u = u[:, :u.shape[0]] * 1
    u.T[...] = u + np.roll(u, 3, 0)
    return u


def rolled_and_broadcast(np, u):
    return np.roll(u, 5, 1) * u[0] + u[:, :1] * np.roll(u, 7, (0, 1))


def joined(np, u):
    return np.concatenate([u * 2, u[:5] + 1]) / 3 + np.concatenate([u[:5], u])


def of_an_expensive_array(np, u):
    e = np.exp(u)
    return e + np.roll(e, 1, 0) - np.roll(e, -1, 0)


# Program, parts of each kernel, and the most bytes, in arrays of the result's size.
IN_PIECES = {
    "roll and more": (lambda np, u: np.roll(u * 2, 5, 0) + 1, [2], 2),
    "diffusion": (diffusion, [9], 2.2),
    "three steps": (three_steps, [9, 9, 9], 6.6),
    "in place": (in_place, [2, 2], 4.2),
    "broadcast": (rolled_and_broadcast, [6], 2.3),
    "joined": (joined, [3], 2.2),
    "expensive": (of_an_expensive_array, [1, 3], 4.2),
}


@pytest.mark.parametrize("name", IN_PIECES)
@pytest.mark.compiler
def test_joined_arrays_need_not_exist(name):
    program, parts, most = IN_PIECES[name]
    x = filled(*MATRIX)
    for target in TARGETS.values():
        result = program(np, x)
        plan = planned(result, target=target)
        assert [len(kernel.parts) for kernel in plan.kernels] == parts
        assert moved(plan) <= most * nbytes(result)
    numpy.testing.assert_allclose(
        numpy.asarray(result), program(numpy, numpy.asarray(x)), rtol=1e-12)


def test_a_joined_array_that_is_kept_is_stored_once():
    x = filled(*MATRIX)
    rolled = np.roll(x, 3, 0)
    result = rolled * 2
    plan = planned(rolled, result)
    assert moved(plan) <= 4 * nbytes(x)
    numpy.testing.assert_array_equal(
        numpy.asarray(result), numpy.roll(numpy.asarray(x), 3, 0) * 2)


@pytest.mark.parametrize("program", [in_place_reversed, in_place_transposed])
@pytest.mark.compiler
def test_what_is_written_in_another_order_is(program):
    x = filled(*MATRIX)
    result = program(np, x)
    assert any(len(kernel.parts) > 1 for kernel in planned(result).kernels)
    numpy.testing.assert_array_equal(numpy.asarray(result), program(numpy, numpy.asarray(x)))


def test_a_roll_by_another_distance_is_right():
    u = filled(40, 30)
    seen = numpy.array(u)
    for shift in (1, 5, -7, 39, 0, 41):
        numpy.testing.assert_array_equal(
            numpy.asarray(np.roll(u, shift, 0) + u * 2), numpy.roll(seen, shift, 0) + seen * 2)
