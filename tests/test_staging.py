"""Loads that a GPU's kernels stage in shared memory: which, where, and that values stay right.

The tile programs that are planned for a GPU run here through the host's compiler, whose primitives
read what is staged where it lies: rows, steps, tails and merges are walked as on the device.
"""

import numpy
import pytest

import tiledarray as np
from tests.plans import DEVICE, filled, planned
from tiledarray.devices import device
from tiledarray.execution import known
from tiledarray.execution.executable import Executable
from tiledarray.fusion import passes
from tiledarray.fusion.schedule.stage import COPY_BYTES, LINE_BYTES
from tiledarray.graph.program import trace
from tiledarray.insight.facts import Reporter
from tiledarray.kernels.text.program import print_kernel
from tiledarray.ops.op import Leaf


def layer_norm(xp, x):
    centred = x - x.mean(axis=-1, keepdims=True)
    return centred / xp.sqrt((centred * centred).mean(axis=-1, keepdims=True) + 1e-5)


def softmax(xp, x, axis=-1):
    e = xp.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


def kernel_of(*arrays):
    """The only kernel that computes the arrays on a GPU."""
    (kernel,) = planned(*arrays, target=DEVICE).kernels
    return kernel


def by_device_plan(array):
    """Compute an array on the host by the tile programs that a GPU would run."""
    traced = trace([array.origin().node])
    plan = passes.plan(traced.signature, frozenset(), DEVICE, check=True)
    assert not any(cell.held for kernel in plan.kernels for cell in kernel.cells)
    executable = Executable(plan, device.resolve("cpu"))
    executable.compile()
    leaves = {value: traced.nodes[value.attrs].buffer for value in plan.values
              if isinstance(value.op, Leaf)}
    with known.lock:
        (buffer,) = executable.run(leaves, traced.params)
    return plan, numpy.array(buffer.array)


@pytest.mark.sampled(2)
@pytest.mark.compiler
@pytest.mark.parametrize("shape", [(7, 4096), (1000, 20), (301, 1000), (33, 1001), (3, 10_000)])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_staged_rows_have_the_values_of_numpy(shape, dtype):
    x = filled(*shape, dtype=dtype)
    plan, found = by_device_plan(layer_norm(np, x))
    assert [list(kernel.staged) != [] for kernel in plan.kernels] == [True]
    wanted = layer_norm(numpy, x.numpy().astype("f8"))
    assert numpy.abs(found - wanted).max() < (1e-4 if dtype == "f4" else 1e-11)


@pytest.mark.sampled(3)
@pytest.mark.compiler
@pytest.mark.parametrize("shape", [(60, 64), (50, 8), (12, 1024), (64, 260), (9, 100_000)])
@pytest.mark.parametrize("name", ["sum", "max", "var"])
def test_staged_columns_have_the_values_of_numpy(shape, name):
    x = filled(*shape, dtype="f4")
    plan, found = by_device_plan(getattr(x, name)(axis=0))
    assert [len(kernel.staged) for kernel in plan.kernels] == [1]
    wanted = getattr(x.numpy().astype("f8"), name)(axis=0)
    assert found == pytest.approx(wanted, rel=5e-6, abs=1e-7)


@pytest.mark.compiler
def test_staged_columns_of_several_passes_have_the_values_of_numpy():
    x = filled(100, 64, dtype="f4")
    plan, found = by_device_plan(softmax(np, x, axis=0))
    assert [len(kernel.staged) for kernel in plan.kernels] == [1]
    assert found == pytest.approx(softmax(numpy, x.numpy().astype("f8"), axis=0), rel=1e-5)


def test_a_row_of_several_passes_is_staged_once_and_not_held():
    x = filled(400, 4096, dtype="f4")
    scale, shift = filled(4096, dtype="f4", seed=1), filled(4096, dtype="f4", seed=2)
    kernel = kernel_of(layer_norm(np, x) * scale + shift)
    assert [kernel.loads[cell].value.shape for cell in kernel.staged] == [(400, 4096)]
    assert not any(cell.held for cell in kernel.cells)
    assert kernel.schedule.shared_bytes == 4096 * 4
    text = print_kernel(kernel, device=True).text
    assert text.count(".fetch(") == 1
    assert text.count("load<V>(") == 2  # what all rows share comes through the cache


def test_vectors_that_rows_share_are_left_room_in_the_cache():
    x, y = filled(400, 4096, dtype="f4"), filled(4096, dtype="f4", seed=1)
    assert kernel_of(layer_norm(np, x)).schedule.shared_limit == 0
    shared = kernel_of(layer_norm(np, x) * y).schedule
    assert 2 * shared.shared_bytes <= shared.shared_limit


def placement(array):
    """What `explain` says of where the values of an array's only kernel live on a GPU."""
    executable = Executable(planned(array, target=DEVICE), device.resolve("cpu"))
    sites = [None] * (max(executable.plan.origin.values()) + 1)
    (step,) = Reporter(executable, sites).run().steps
    return step.notes["values"]


def test_explain_says_what_is_staged():
    x = filled(60, 4096, dtype="f4")
    row = placement(layer_norm(np, x))
    assert "copied into shared memory once for all passes (16.4 KB a block)" in row
    assert "read again" not in row
    assert "copied into shared memory 7 steps ahead (32.8 KB a block)" in placement(x.sum(axis=0))


def test_two_arrays_of_a_row_lie_side_by_side():
    x, y = filled(300, 1000, dtype="f4"), filled(300, 1000, dtype="f4", seed=1)
    kernel = kernel_of(softmax(np, x) - y)
    first, second = kernel.staged.values()
    assert first == 0
    assert second >= 1000 * 4
    assert second % LINE_BYTES == 0
    assert kernel.schedule.shared_bytes >= second + 1000 * 4


@pytest.mark.parametrize(("columns", "place"), [
    (1000, "shared"), (20_000, "shared"), (32_768, "registers"), (100_000, "nowhere"),
])
def test_rows_are_staged_or_held_or_read_again(columns, place):
    x = np.zeros((300, columns), "f4")
    np.evaluate(x)
    kernel = kernel_of(layer_norm(np, x))
    held = any(cell.held for cell in kernel.cells)
    assert (bool(kernel.staged), held) == (place == "shared", place == "registers")
    assert kernel.schedule.shared_bytes < DEVICE.shared_bytes


def test_chunks_that_no_copy_can_bring_are_loaded():
    odd = kernel_of(layer_norm(np, filled(300, 1001, dtype="f2")))
    assert odd.schedule.width * 2 not in COPY_BYTES
    assert not odd.staged
    assert any(cell.held for cell in odd.cells)


def test_a_column_asks_for_steps_ahead():
    x, y = filled(60_000, 256, dtype="f4"), filled(60_000, 256, dtype="f4", seed=1)
    one, two = kernel_of(x.sum(axis=0)), kernel_of((x * y).sum(axis=0))
    assert (one.schedule.stages, two.schedule.stages) == (8, 4)
    assert one.schedule.shared_bytes == two.schedule.shared_bytes == 8 * 16 * 256
    assert "staged_steps<TX, TY, V, S>" in print_kernel(one, device=True).text
    narrow = kernel_of(filled(60_000, 255, dtype="f4").sum(axis=0))
    assert not narrow.staged
    assert narrow.schedule.stages == narrow.schedule.shared_bytes == 0


def test_what_many_columns_need_ahead_is_limited():
    arrays = [filled(4000, 256, dtype="f4", seed=k) for k in range(9)]
    kernel = kernel_of(sum(arrays).sum(axis=0))
    assert 1 < len(kernel.staged) < len(arrays)
    assert kernel.schedule.stages == 2
    assert kernel.schedule.shared_bytes <= DEVICE.limits.ahead_room
    text = print_kernel(kernel, device=True).text
    assert text.count(".fetch(") == len(kernel.staged)
    assert text.count("load<V>(") == len(arrays) - len(kernel.staged)


def test_a_pass_over_many_long_rows_reads_them_again():
    x = filled(300, 40_000, dtype="f4")
    assert len(planned(softmax(np, x), target=DEVICE).kernels) == 1
    few = planned(softmax(np, x[:8]), target=DEVICE)
    assert len(few.kernels) > 1
    assert any("at most 32768 where there are 8 rows" in refusal for refusal in few.refusals)


@pytest.mark.parametrize("dtype, longest", [("f2", 1 << 15), ("f4", 1 << 15), ("f8", 1 << 14)])
def test_a_block_holds_rows_up_to_its_registers(dtype, longest):
    for length, kernels in [(longest, 1), (longest + 8, 2)]:
        plan = planned(softmax(np, filled(8, length, dtype=dtype)), target=DEVICE)
        assert min(len(plan.kernels), 2) == kernels
    held = planned(softmax(np, filled(300, longest, dtype=dtype)), target=DEVICE).kernels[0]
    assert any(cell.held for cell in held.cells)


@pytest.mark.parametrize("staged_first", [False, True])
def test_parts_of_a_launch_have_the_room_of_the_largest(staged_first):
    x, y = filled(6, 40), filled(8)
    outputs = [y.sum(), x - x.max(axis=-1, keepdims=True)]
    plan = planned(*outputs[::-1 if staged_first else 1], target=DEVICE)
    (kernel,) = plan.kernels
    sizes = [part.schedule.shared_bytes for part in kernel.parts]
    assert len(sizes) == 2 and min(sizes) == 0 < max(sizes)
    assert print_kernel(kernel, device=True).shared_bytes == max(sizes)
