"""Kernels bound by their instructions: what is contracted, tried quickly, unrolled."""

from dataclasses import replace

import pytest

import tiledarray as np
from tests.plans import DEVICE, HOST, filled, planned
from tiledarray import config
from tiledarray.execution import executable, plans
from tiledarray.kernels.compile import cuda
from tiledarray.kernels.text.program import print_kernel
from tiledarray.recording.stretch import local

FUSED = {"multiply_add", "multiply_subtract", "subtract_product"}


@pytest.fixture(autouse=True)
def fresh_recorder():
    local.recorder.reset()
    yield
    local.recorder.reset()


def arrays(count=4, dtype="f4", shape=(70, 33)):
    return [filled(*shape, dtype=dtype, seed=seed) for seed in range(count)]


def kernel_of(function, *inputs, target=DEVICE):
    """The one kernel of what a function of arrays returns; no temporary outlives the call."""
    found = function(*inputs)
    (kernel,) = planned(*(found if isinstance(found, tuple) else (found,)), target=target).kernels
    return kernel


def ops(function, *inputs, target=DEVICE):
    """Names of its elementwise ops."""
    return [cell.value.op.name for cell in kernel_of(function, *inputs, target=target).cells
            if cell.kind == "apply"]


# ---- contraction -----------------------------------------------------------------------------

@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize(("function", "expected"), [
    (lambda x, y, z: x * y + z, ["multiply_add"]),
    (lambda x, y, z: z + x * y, ["multiply_add"]),
    (lambda x, y, z: x * y - z, ["multiply_subtract"]),
    (lambda x, y, z: z - 2 * y, ["subtract_product"]),
    (lambda x, y, z: np.square(x) + z, ["multiply_add"]),
    (lambda x, y, z: x * x + y * y + z * z, ["multiply", "multiply_add", "multiply_add"]),
])
def test_a_product_is_rounded_with_the_sum_that_alone_uses_it(function, expected, dtype):
    assert ops(function, *arrays(3, dtype)) == expected


def twice(x, y, z, w):
    product = x * y
    return product + z, product - z


def kept(x, y, z, w):
    product = x * y
    return product, product + z


@pytest.mark.parametrize("function", [
    lambda x, y, z, w: x * y - z * w, lambda x, y, z, w: x * y + z * w,
    lambda x, y, z, w: x * x - y * y, lambda x, y, z, w: x * y - y * x,
    lambda x, y, z, w: x * x + y * z, twice, kept,
])
def test_what_may_cancel_or_is_used_twice_is_rounded_twice(function):
    assert not FUSED & set(ops(function, *arrays()))


def axpy(x, y, z):
    return x * y + z


@pytest.mark.parametrize("dtype", ["f2", "i4", "F"])
def test_only_real_floats_are_contracted(dtype):
    assert not FUSED & set(ops(axpy, *arrays(3, dtype)))


def test_a_product_of_another_dtype_or_shape_is_no_factor():
    x, y, z = arrays(3)
    assert not FUSED & set(ops(lambda x, y, z: (x * y).astype("f8") + z, x, y, z))
    assert not FUSED & set(ops(lambda x, row: x + row * row, x, filled(33, dtype="f4")))


def test_the_host_rounds_as_numpy_does():
    assert ops(axpy, *arrays(3), target=HOST) == ["multiply", "add"]


def test_the_setting_decides():
    class Properties:
        multiprocessors = 132
        shared_bytes_per_block = 227 << 10
        capability = (9, 0)

    class Device:
        kind, properties = "cuda", Properties

    for setting, planner, compiler in [("auto", True, False), (True, True, True),
                                       (False, False, False)]:
        with config.override(contract=setting):
            assert plans.target_of(Device).contract is planner
            assert ("--fmad=true" in cuda._options("", "sm_90", config.contract is True)) \
                is compiler


# ---- quick texts -----------------------------------------------------------------------------


def text(function, *inputs, target=DEVICE):
    return print_kernel(kernel_of(function, *inputs, target=target),
                        device=target is DEVICE).text


def divisions(x, y, z):
    return np.log(x / y) / np.sqrt(z) + 1 / x


def test_many_divisions_are_tried_quickly_and_done_again_where_rare():
    found = text(divisions, *arrays(3))
    quick, exact = found.split("if (rare)")
    assert quick.count("quick_divide(") == 3
    assert quick.count("quick_sqrt(") == quick.count("quick_log(") == 1
    assert "quick_" not in exact
    assert exact.count(" / ") == 3


def written(target, x, y, z):
    target[:, ::2] = divisions(x, y, z)
    return target


def test_where_it_is_not_worth_it_or_not_possible_nothing_is_tried():
    inputs = arrays(3)
    assert "rare" not in text(lambda x, y, z: x / y, *inputs)
    assert "rare" not in text(divisions, *inputs, target=HOST)
    assert "rare" not in text(divisions, *arrays(3, "f8"))
    assert "rare" not in text(lambda *inputs: divisions(*inputs).sum(axis=1), *inputs)
    assert "rare" not in text(written, filled(70, 66, dtype="f4"), *inputs)


# ---- pairs -----------------------------------------------------------------------------------


def pairs(x, y):
    return np.exp(-((x[:, None] - x) ** 2 + (y[:, None] - y) ** 2)).sum(axis=1)


def test_steps_of_pairs_have_no_branch():
    inputs = arrays(2, shape=(4096,))
    found = text(pairs, *inputs)
    inside = found[found.index("if (w) {"):]
    assert inside.index("const Count<V> w{};") < inside.index("steps<TX, TY, 4>(")
    assert "Count" not in text(pairs, *inputs, target=HOST)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.skipif(cuda.available() is not None, reason=f"no CUDA compiler: {cuda.available()}")
def test_nothing_spills(arch):
    for function, inputs in [(divisions, arrays(3)), (pairs, arrays(2, shape=(4096,)))]:
        kernel = kernel_of(function, *inputs)
        name = executable.program_name(kernel)
        source = executable.source_of(kernel, print_kernel(kernel, device=True))
        report = cuda.compile_source(source, name, arch).reports[name]
        assert report.clean, report


def roots(function, *inputs, target=DEVICE):
    """Exponentials that are squares of roots, each with whether a sum adds the square itself."""
    found = function(*inputs)
    plan = planned(*(found if isinstance(found, tuple) else (found,)), target=target)
    return [root.added for kernel in plan.kernels for root in kernel.roots.values()]


def weighed(x, y):
    near = np.exp(-0.5 * (x[:, None] - y) ** 2)
    return (near * y).sum(axis=1), near.sum(axis=1)


@pytest.mark.parametrize(("function", "expected"), [
    (pairs, [True]),
    (lambda x, y: np.exp2((x[:, None] - y) / 3).mean(axis=0), [True]),
    (weighed, [False]),
    (lambda x, y: np.exp(x[:, None] - y).max(axis=1), []),
    (lambda x, y: (np.exp(x[:, None] - y) - 1).sum(axis=1), []),
    (lambda x, y: np.exp(x[:, None] - y).sum(axis=1, dtype="f8"), []),
    (lambda x, y: np.exp(x[:, None] - y.astype("f8")).sum(axis=1), []),
    (lambda x, y: np.exp(x), []),
    (lambda x, y: (np.exp(x)[:, None] * (x[:, None] - y) ** 2).sum(axis=1), []),
])
def test_what_only_sums_use_is_the_square_of_a_root(function, expected):
    inputs = arrays(2, shape=(4096,))
    assert roots(function, *inputs) == expected
    assert not roots(function, *inputs, target=HOST)
    assert not roots(function, *inputs, target=replace(DEVICE, contract=False))


@pytest.mark.parametrize(("function", "expected"), [
    (lambda x, y: np.exp(-(x[:, None] - y) ** 2).sum(axis=1), "-1.f"),
    (lambda x, y: np.exp(-3 * (x[:, None] - y)).sum(axis=1), "a.f32_0"),
    (lambda x, y: np.exp(-(x[:, None] - y) / 3).sum(axis=1), "-inverse_factor(a.f32_0)"),
    (lambda x, y: np.exp(x[:, None] - y).sum(axis=1), "1.f"),
])
def test_a_scalar_is_multiplied_once(function, expected):
    assert f", cast<f32>({expected}))" in text(function, *arrays(2, shape=(4096,)))


def test_two_scalars_are_not_multiplied():
    """Together they may be what float32 has not, where one after the other they are not."""
    kernel = kernel_of(lambda x, y: np.exp((x[:, None] - y) * 1e-25 * 1e-25).sum(axis=1),
                       *arrays(2, shape=(4096,)))
    (root,) = kernel.roots.values()
    assert root.cell.value.op.name == "multiply" and root.by is not None
