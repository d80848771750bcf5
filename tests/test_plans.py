"""Plans of ordinary code: kernels, launches, bytes, memory; the values are tested elsewhere too."""

import os
from collections import OrderedDict
from pathlib import Path

import numpy
import pytest

import tiledarray as np
from tests.plans import (
    DEVICE,
    HOST,
    TARGETS,
    address,
    counted,
    describe,
    filled,
    kinds,
    moved,
    nbytes,
    one_kernel,
    peak_of,
    plan_of,
    planned,
)
from tiledarray import config
from tiledarray.core import forget_programs
from tiledarray.execution import executable, known
from tiledarray.recording.stretch import local

GOLDEN = Path(__file__).parent / "golden"
WORD = 8


@pytest.fixture(autouse=True)
def clean():
    """Nothing pending from elsewhere; kernels are waited for."""
    local.recorder.reset()
    with config.override(compile="wait", cut=400):
        yield
    local.recorder.reset()


@pytest.fixture
def fresh(monkeypatch):
    """A process that has planned and compiled nothing yet (the disk still remembers)."""
    monkeypatch.setattr(known, "executables", OrderedDict())
    forget_programs()
    monkeypatch.setattr(executable, "_compiled", {})


def close(ours, theirs, rtol=1e-12):
    numpy.testing.assert_allclose(numpy.asarray(ours), theirs, rtol=rtol)


# ---- programs: each is one kernel that reads its inputs once and writes its outputs once --------


def chain(np, x, y):
    z = x
    for k in range(15):
        z = (z + y) * (0.5 + k)
    return z


def softmax(np, x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def layer_norm(np, x):
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(np.var(x, -1, keepdims=True) + 1e-5)


def layer_norm_of_squares(np, x):
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred * centred).mean(-1, keepdims=True) + 1e-5)


def log_sum_exp(np, x):
    top = x.max(-1, keepdims=True)
    return np.log(np.exp(x - top).sum(-1)) + top[:, 0]


def three(axis):
    return lambda np, x: (x.sum(axis), x.max(axis), x.min(axis))


def five(axis):
    return lambda np, x: (x.mean(axis), x.var(axis), x.max(axis), x.min(axis), (x * x).sum(axis))


def variance(axis):
    return lambda np, x: np.var(x, axis=axis)


def with_its_sum(axis):
    def program(np, x):
        z = np.sin(x) + x
        return z, z.sum(axis)

    return program


def two_that_share(np, x, y):
    z = np.exp(x) * y
    return z + 1, z * 2


def same_twice(np, x):
    return np.sin(x + 1) + np.sin(x + 1)


def stencil(np, x):
    return 0.25 * (x[:-2, 1:-1] + x[2:, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:])


def broadcast(np, x, row, column):
    return x * row + column[:, None]


def strides(np, x):
    return x[::2, ::-1] + x[1::2]


def cross_product_lengths(np, points):
    x, y, z = points[:, 0], points[:, 1], points[:, 2]
    return np.sqrt(x * x + y * y + z * z)


def columns_normalised(np, x):
    return x / x.sum(0)


def complex_modulus(np, x):
    return abs(np.exp(x * 1j)).sum(1)


MATRIX = (96, 160)
PROGRAMS = {
    "30 operations": (chain, [MATRIX, MATRIX]),
    "softmax": (softmax, [MATRIX]),
    "layer norm with var": (layer_norm, [MATRIX]),
    "layer norm with squares": (layer_norm_of_squares, [MATRIX]),
    "log-sum-exp": (log_sum_exp, [MATRIX]),
    "complex modulus": (complex_modulus, [MATRIX]),
    "two that share": (two_that_share, [MATRIX, MATRIX]),
    "same twice": (same_twice, [MATRIX]),
    "stencil": (stencil, [MATRIX]),
    "broadcast": (broadcast, [MATRIX, MATRIX[1:], MATRIX[:1]]),
    "strides": (strides, [MATRIX]),
    "columns of points": (cross_product_lengths, [(500, 3)]),
    **{f"variance along {axis}": (variance(axis), [(24, 40, 56)])
       for axis in (0, 1, 2, None, (0, 1), (1, 2), (0, 2))},
    **{f"three reductions along {axis}": (three(axis), [MATRIX]) for axis in (0, 1, None)},
    **{f"five reductions along {axis}": (five(axis), [MATRIX]) for axis in (0, 1, None)},
    **{f"values and their sum along {axis}": (with_its_sum(axis), [MATRIX])
       for axis in (0, 1, None)},
}


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.compiler
def test_one_kernel_reads_once_and_writes_once(name):
    program, shapes = PROGRAMS[name]
    inputs = [filled(*shape, seed=k) for k, shape in enumerate(shapes)]
    outputs = program(np, *inputs)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    one_kernel(*outputs, reads=inputs)
    with counted() as counts:
        np.evaluate(*outputs)
    assert counts["launches"] == 1
    expected = program(numpy, *[numpy.asarray(x) for x in inputs])
    expected = expected if isinstance(expected, tuple) else (expected,)
    for ours, theirs in zip(outputs, expected, strict=True):
        close(ours, theirs, rtol=1e-11)


# ---- all pairs ---------------------------------------------------------------------------------


def gaussians(np, x):
    return np.exp(-((x[:, None] - x[None, :]) ** 2)).sum(1)


def distances(np, points):
    return np.sqrt(((points[:, None] - points[None, :]) ** 2).sum(-1) + 1e-3).sum(1)


def forces(np, points):
    apart = points[None, :] - points[:, None]
    return (apart * ((apart**2).sum(-1) + 1e-3)[:, :, None] ** -1.5).sum(1)


def accelerations(np, x, y):
    dx, dy = x[None, :] - x[:, None], y[None, :] - y[:, None]
    inverse = 1 / np.sqrt(dx * dx + dy * dy + 0.1) ** 3
    return (dx * inverse).sum(1), (dy * inverse).sum(1)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("program", "shapes"), [
    (gaussians, [(700,)]), (distances, [(700, 3)]), (forces, [(700, 3)]),
    (accelerations, [(700,), (700,)]),
])  # fmt: skip
def test_all_pairs_never_exist(program, shapes):
    inputs = [filled(*shape, seed=k) for k, shape in enumerate(shapes)]
    outputs = program(np, *inputs)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    one_kernel(*outputs, reads=inputs)
    _, peak = peak_of(lambda: np.evaluate(*outputs))
    assert peak < 700 * WORD * 64, peak  # the pairs would be 700 * 700
    expected = program(numpy, *[numpy.asarray(x) for x in inputs])
    expected = expected if isinstance(expected, tuple) else (expected,)
    for ours, theirs in zip(outputs, expected, strict=True):
        numpy.testing.assert_allclose(numpy.asarray(ours), theirs, rtol=1e-10, atol=1e-10)


# ---- what is shared, and what is not -----------------------------------------------------------


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_what_is_dead_is_never_written(target):
    x = filled(*MATRIX)
    z = np.exp(x)
    total = (z * 2).sum()
    assert moved(planned(target=target)) == nbytes(x, z, total)
    del z
    plan = planned(target=target)
    assert kinds(plan) == ["row"]
    assert moved(plan) == nbytes(x, total)


def test_what_was_kept_is_not_computed_again():
    x = filled(*MATRIX)
    z = np.exp(x)
    first = z + 1
    np.evaluate(first)
    assert not z.origin().node.pending  # it was computed beside what was looked at
    second = z * 2
    plan = planned(second)
    assert moved(plan) == nbytes(z, second)
    assert not any(cell.value.op.name == "exp" for cell in plan.kernels[0].cells
                   if cell.kind == "apply")


def test_reductions_along_different_axes_are_separate_for_a_reason():
    x = filled(*MATRIX)
    outputs = x.sum(0), x.sum(1)
    for target in TARGETS.values():
        plan = planned(*outputs, target=target)
        assert len(plan.kernels) == 2
        assert any("it reduces axes (1,), not (0,)" in refusal for refusal in plan.refusals)


def test_a_shifted_read_of_a_sum_is_separate_for_a_reason():
    x = filled(*MATRIX)
    total = x.sum(1)
    outputs = total, x[1:] - total[:-1, None]
    plan = planned(*outputs)
    assert len(plan.kernels) == 2
    assert any("kernel" in refusal for refusal in plan.refusals)


def test_lanes_follow_the_arrays_with_most_bytes_not_most_arrays():
    x, others = filled(300, 400), [filled(300, seed=k) for k in range(4)]
    top = x.max(1)
    shares = np.exp(x - top[:, None])
    total = shares.sum(1)
    result = shares * (others[0] / total * others[1] + others[2] - others[3])[:, None]
    for target in TARGETS.values():
        plan = planned(result, top, total, target=target)
        assert kinds(plan) == ["row"]
        (kernel,) = plan.kernels
        assert kernel.schedule.axes[-1].domain == (1,)


@pytest.mark.parametrize(("target", "length", "reason"), [
    (HOST, 1 << 19, "does not stay in a core's cache"),
    (DEVICE, 1 << 15, "is too long for one block of threads"),
])
def test_rows_too_long_to_keep_are_refused_with_the_numbers(target, length, reason):
    x = np.zeros((4, length))
    np.evaluate(x)
    plan = planned(softmax(np, x), target=target)
    assert len(plan.kernels) > 1
    found = [refusal for refusal in plan.refusals if reason in refusal]
    assert found, plan.refusals
    assert str(length) in found[0] or str(length * WORD) in found[0]


def test_a_library_call_reads_what_kernels_stored():
    x, y = filled(40, 50), filled(50, 30, seed=1)
    product = (x + 1) @ (y * 2)
    result = np.maximum(product, 0) + 1
    del product
    plan = planned(result)
    assert kinds(plan).count("call") == 1
    assert kinds(plan)[-1] == "map"
    assert moved(plan) == 2 * nbytes(x) + 2 * nbytes(y) + 2 * nbytes(result)


# ---- updates -----------------------------------------------------------------------------------


@pytest.mark.compiler
def test_a_region_is_written_in_place():
    x, y = filled(*MATRIX), filled(*MATRIX, seed=1)
    expected = numpy.array(x)
    expected[1:-1, ::2] = numpy.asarray(y)[1:-1, ::2] * 2
    before = address(x)
    x[1:-1, ::2] = y[1:-1, ::2] * 2
    written = nbytes(x[1:-1, ::2])
    np.evaluate(x)
    assert address(x) == before
    plan = plan_of(x)
    assert [choice for choice, _ in plan.updates.values()] == ["in place"]
    assert moved(plan) == 2 * written
    close(x, expected)


@pytest.mark.compiler
def test_every_element_read_where_it_is_written_is_in_place():
    x = filled(*MATRIX)
    before = address(x)
    expected = numpy.array(x)
    for _ in range(3):
        x[2:-2] *= 1.5
        x += 1
        expected[2:-2] *= 1.5
        expected += 1
        np.evaluate(x)
    close(x, expected)
    x[3:5] = x[3:5] * 2
    expected[3:5] *= 2
    here = address(x)
    x[3:5] += 1
    expected[3:5] += 1
    assert address(x) == here
    assert before
    close(x, expected)


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_old_neighbours_are_read_while_the_border_is_copied(target):
    u = filled(*MATRIX)
    before = numpy.array(u)
    u[1:-1, 1:-1] = stencil(np, u)
    plan = planned(u, target=target)
    assert kinds(plan) == ["map"]
    assert [choice for choice, _ in plan.updates.values()] == ["border"]
    assert moved(plan) == 2 * nbytes(u)
    if target is HOST:
        expected = before.copy()
        expected[1:-1, 1:-1] = stencil(numpy, before)
        close(u, expected)


def test_another_holder_keeps_the_old_value():
    x = filled(*MATRIX)
    old = x.copy()
    kept = numpy.array(x)
    seen = x.numpy()
    x[5] = 0
    x[:, 3:7] *= 2
    expected = kept.copy()
    expected[5] = 0
    expected[:, 3:7] *= 2
    close(x, expected)
    close(old, kept)
    close(seen, kept)


def test_a_view_that_something_pending_needs_is_read_first():
    x = filled(*MATRIX)
    kept = numpy.array(x)
    total = x[:10].sum(0)
    x[:10] = 7
    np.evaluate(x, total)
    close(total, kept[:10].sum(0))
    assert numpy.all(numpy.asarray(x)[:10] == 7)


def test_an_update_of_something_held_names_the_reason():
    x = filled(*MATRIX)
    y = x + 1
    old = y.copy()
    y[2:4] = 0
    plan = planned(y, old)
    assert list(plan.updates.values()) == [("border", "something else holds the old value")]


# ---- parts put together ------------------------------------------------------------------------


JOINED = {
    "concatenate": lambda np, x, y: np.concatenate([x + 1, y * 2, np.sqrt(x)]),
    "concatenate along 1": lambda np, x, y: np.concatenate([x + 1, y * 2, np.sqrt(x)], axis=1),
    "stack": lambda np, x, y: np.stack([x + 1, y * 2, np.sqrt(x)]),
    "stack along the last": lambda np, x, y: np.stack([x + 1, y * 2, np.sqrt(x)], axis=-1),
    "vstack": lambda np, x, y: np.vstack([x + 1, y * 2, np.sqrt(x)]),
}


@pytest.mark.parametrize("name", JOINED)
def test_parts_are_stored_straight_from_their_kernels(name):
    x, y = filled(*MATRIX), filled(*MATRIX, seed=1)
    result = JOINED[name](np, x, y)
    for target in TARGETS.values():
        plan = planned(result, target=target)
        assert kinds(plan) == ["map"]
        assert len(plan.kernels[0].parts) == 3
        assert moved(plan) == 2 * nbytes(x) + nbytes(y) + nbytes(result)
    close(result, JOINED[name](numpy, numpy.asarray(x), numpy.asarray(y)))


def test_padding_stores_the_middle_straight_from_its_kernel():
    x = filled(*MATRIX)
    result = np.pad(x * 2, 3)
    one_kernel(result, reads=[x])  # the zeros around it are written by blocks of the same kernel
    close(result, numpy.pad(numpy.asarray(x) * 2, 3))


# ---- loops -------------------------------------------------------------------------------------


@pytest.mark.compiler
def test_a_stencil_loop_compiles_one_kernel_and_its_memory_is_flat(fresh):
    u = filled(64, 64)
    expected = numpy.array(u)
    sizes = []
    with counted() as counts:
        def steps(count):
            for _ in range(count):
                u[1:-1, 1:-1] = stencil(np, u)
            np.evaluate(u)

        sizes = [peak_of(lambda: steps(500))[1] for _ in range(2)]
    for _ in range(1000):
        expected[1:-1, 1:-1] = stencil(numpy, expected)
    close(u, expected)
    assert counts["kernels compiled"] == 1
    assert counts["plans made"] <= 3
    assert counts["launches"] == 1000
    assert counts["op by op"] == 0
    assert max(sizes) <= 3 * nbytes(u)
    assert sizes[1] <= sizes[0]


def test_small_values_do_not_wait_where_large_ones_need_them():
    """What is joined to a small kernel that waits for a sum would keep the other sum from it."""
    x, s = filled(4096, 64, 16), filled(4096)
    with np.config.override(at_once=0):
        placed = np.zeros((4096, 2))
        placed[:, 0] = x.sum(axis=(1, 2)) * s
        e = np.exp(s)
        weighted = (x * e[:, None, None]).sum(axis=(1, 2)) * e
    plan = planned(placed, weighted, e, target=DEVICE)
    assert [kernel.form for kernel in plan.kernels].count("row") == 1
    assert moved(plan) < 1.1 * nbytes(x)


def test_ten_thousand_steps_run_in_constant_memory_and_reuse_a_plan(fresh):
    x, v = filled(50), filled(50, seed=1)
    expected_x, expected_v = numpy.array(x), numpy.array(v)

    def run(steps):
        nonlocal x, v
        for _ in range(steps):
            v = v - 0.01 * x
            x = x + 0.01 * v
        np.evaluate(x, v)

    with counted() as counts:
        _, first = peak_of(lambda: run(1000))
        _, rest = peak_of(lambda: run(9000))
    for _ in range(10_000):
        expected_v = expected_v - 0.01 * expected_x
        expected_x = expected_x + 0.01 * expected_v
    close(x, expected_x, rtol=1e-9)
    close(v, expected_v, rtol=1e-9)
    assert rest <= first <= 8 * nbytes(x, v)
    assert counts["plans made"] <= 4


def test_a_changed_scalar_or_shape_compiles_nothing(fresh):
    def program(x, y, scale, shift):
        z = np.tanh(x * scale + y) - shift
        return numpy.asarray(z), numpy.asarray(softmax(np, z * z).sum(0))

    program(filled(96, 160), filled(160), 2.0, 1)
    with counted() as counts:
        program(filled(96, 160, seed=3), filled(160, seed=4), -0.5, 7)
    assert counts["plans made"] == counts["kernels compiled"] == 0
    with counted() as counts:
        program(filled(101, 163), filled(163), 0.25, 3)
        program(filled(1000, 200), filled(200), 0.25, 3)
    assert counts["plans made"] > 0
    assert counts["kernels compiled"] == 0, counts


def test_moving_windows_share_a_plan(fresh):
    x = filled(1000)
    results = []
    with counted() as counts:
        for start in range(1, 40):
            x[start:start + 50] += 1
            results.append(float(x[start:start + 30].sum()))
    assert counts["plans made"] <= 3
    assert counts["kernels compiled"] <= 3
    expected = numpy.array(filled(1000))
    for start, result in zip(range(1, 40), results, strict=True):
        expected[start:start + 50] += 1
        assert result == pytest.approx(expected[start:start + 30].sum())


def test_stencils_that_move_share_a_plan(fresh):
    x = filled(1000)
    with counted() as counts:
        results = [np.evaluate(x[k + 1:k + 50] - x[k:k + 49]) for k in range(40)]
    assert counts["plans made"] <= 2  # at 0, and elsewhere
    for k, result in enumerate(results):
        assert numpy.array_equal(result, numpy.array(x)[k + 1:k + 50] - numpy.array(x)[k:k + 49])


# ---- the whole plan as text --------------------------------------------------------------------


def text_of_softmax():
    return describe(planned(softmax(np, filled(96, 160))))


def text_of_stencil():
    u, y = filled(48, 64), filled(48, 64, seed=1)
    u[1:-1, 1:-1] = stencil(np, u) + y[1:-1, 1:-1]
    return describe(planned(u, u.sum(0), (u * y).sum(1), target=DEVICE))


def text_of_layer():
    a, b = filled(32, 20), filled(20, 24, seed=1)
    product = np.maximum((a - a.mean(0)) @ b, 0)
    return describe(planned(np.concatenate([product, product.reshape(24, 32).T]), product.max()))


@pytest.mark.parametrize("text_of", [text_of_softmax, text_of_stencil, text_of_layer])
def test_plans_as_text(text_of):
    text = text_of()
    path = GOLDEN / f"plan_{text_of.__name__.removeprefix('text_of_')}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert text == path.read_text(), "run with UPDATE_GOLDEN=1 if the new plan is meant"


def test_reductions_of_what_is_computed_from_nothing_share_a_kernel():
    """They read no memory in common, but each computes what the one before does, too."""
    with config.override(at_once=0):
        x, count = np.arange(300_000), 0
        for _ in range(10):
            x = np.where(x % 2 == 0, x // 2, 3 * x + 1)
            count += (x == 1).sum()
        assert kinds(planned(count)) == ["row"]
