"""Rows of products that are used up as they are made: values in two tiers, plans, and texts."""

from dataclasses import replace
from pathlib import Path

import numpy
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests import stream_cases as cases
from tests import tiles
from tests.plans import HOST
from tiledarray import config
from tiledarray.devices import device
from tiledarray.execution.executable import Executable
from tiledarray.fusion.streams import kernel as shapes
from tiledarray.fusion.streams.verify import verify_stream
from tiledarray.fusion.target import Target
from tiledarray.fusion.verify import InvalidPlan
from tiledarray.insight.facts import Reporter
from tiledarray.kernels.compile import cuda
from tiledarray.kernels.text.program import print_kernel

H200 = Target("cuda", 132, contract=True, shared_bytes=227 << 10, wgmma=True)
A100 = Target("cuda", 108, contract=True, shared_bytes=163 << 10)
SMALL = Target("cuda", 84, contract=True, shared_bytes=99 << 10)
LARGE = [((4, 16), 4096, 4096, 64, 64), ((2, 16), 8192, 8192, 128, 128), ((), 262144, 128, 64, 64),
         ((32,), 2048, 2048, 256, 256)]


@pytest.fixture(autouse=True)
def few(monkeypatch):
    """A few rows are worth a kernel."""
    monkeypatch.setattr(shapes, "BUSY_BLOCKS", 0)


def agree(tier, program, arguments, target=H200, folder=None):
    plan, found = tiles.through(tier, program, *arguments, target=target, folder=folder)
    for mine, theirs in zip(found, cases.exact(program, arguments), strict=True):
        cases.assert_close(mine, theirs, arguments[0].dtype)
    return plan


@pytest.mark.parametrize("dtype", [*cases.DTYPES])
@pytest.mark.parametrize("sizes", [
    ((), 3, 100, 16, 24), ((2, 3), 20, 33, 5, 8), ((2,), 130, 16, 64, 64)])
@pytest.mark.parametrize("program", cases.CASES)
def test_the_interpreter_agrees_with_numpy(program, sizes, dtype):
    plan = agree("interpreter", program, cases.inputs(*sizes, dtype))
    assert is_stream(plan, program, dtype), plan.refusals


def is_stream(plan, program, dtype):
    """Whether a program has become one, if it can be: sums may be beyond float32, not a half."""
    assert len(tiles.stream_kernels(plan)) < 2
    return bool(tiles.stream_kernels(plan)) != (dtype == "f4" and program is cases.unscaled)


@pytest.mark.sampled(24)
@pytest.mark.parametrize("dtype", ["bf16", "f4"])
@pytest.mark.parametrize("sizes", [((), 130, 100, 64, 64), ((2,), 20, 65, 24, 40)])
@pytest.mark.parametrize("program", cases.CASES)
def test_texts_agree_with_numpy(program, sizes, dtype, tmp_path_factory):
    folder = tmp_path_factory.getbasetemp()
    plan = agree("emulated", program, cases.inputs(*sizes, dtype), folder=folder)
    assert is_stream(plan, program, dtype), plan.refusals


@pytest.mark.parametrize("program", [cases.attention, cases.by_weights])
def test_products_of_tf32_where_asked_for(program, tmp_path_factory):
    """One product instead of three, which has ten bits; and they have those of float32."""
    arguments = cases.inputs((), 70, 130, 40, 72, "f4")[:3]
    (want,) = cases.exact(program, arguments)

    def off():
        plan, (found,) = tiles.through("emulated", program, *arguments, target=H200,
                                       folder=tmp_path_factory.getbasetemp())
        assert len(tiles.stream_kernels(plan)) == 1
        return abs(found - want).max() / abs(want).max()

    assert off() < 5e-7
    with config.override(tf32=True):
        assert 2e-5 < off() < 2e-3


def test_the_largest_floats_are_no_infinities(tmp_path_factory):
    """They are near enough to them to be rounded to one."""
    most = numpy.finfo("f4").max
    q, k, v = cases.inputs((), 20, 70, 16, 16, "f4")[:3]
    v[3:9, 1], v[5, 2] = most / 16, -most
    q[4, 0], k[:, 0] = most, 1e-36
    _, (found,) = tiles.through("emulated", cases.attention, q, k, v, target=H200,
                                folder=tmp_path_factory.getbasetemp())
    (want,) = cases.exact(cases.attention, [q, k, v])
    assert numpy.isfinite(found).all()
    numpy.testing.assert_allclose(found / abs(want).max(axis=0), want / abs(want).max(axis=0),
                                  atol=2e-4)


def wider(np, q, k, v, *_):
    return cases.softmax(np, cases.scaled(np, q, k).astype("f8")).astype("f4") @ v


def narrower(np, q, k, v, *_):
    return cases.softmax(np, cases.scaled(np, q, k).astype("f2")).astype("f4") @ v


@pytest.mark.parametrize("program", [wider, narrower, cases.unscaled])
def test_what_is_not_float32_alone(program):
    """What is more is not computed in float32, what is less is not left out."""
    arguments = cases.inputs((2,), 40, 50, 16, 16, "f4")[:3]
    plan, _ = tiles.through("interpreter", program, *arguments, target=H200)
    assert not tiles.stream_kernels(plan)
    assert any("float32" in text for text in plan.refusals)


@pytest.mark.parametrize("program", [cases.causal, cases.capped, cases.extremes])
def test_texts_of_wide_rows(program, tmp_path_factory):
    """What scores are combined with is read by two, before they are there."""
    agree("emulated", program, cases.inputs((), 130, 260, 72, 80, "bf16"),
          folder=tmp_path_factory.getbasetemp())


@pytest.mark.sampled(4)
@pytest.mark.parametrize("dtype", ["bf16", "f4"])
@pytest.mark.parametrize("depth, extent", [(20, 12), (24, 40), (7, 9)])
@pytest.mark.parametrize("columns", [96, 100, 7])
def test_what_lies_behind_rows(columns, depth, extent, dtype, tmp_path_factory):
    """Places in shared memory that no column of an operand fills are zero."""
    folder = tmp_path_factory.getbasetemp()
    wide = cases.inputs((), 40, columns, 32, 48, dtype)[:3]

    def program(np, q, k, v):
        return cases.attention(np, q[:, :depth], k[:, :depth], v[:, :extent])

    agree("emulated", program, wide, folder=folder)

    def turned(np, q, k, v):
        return cases.attention(np, q[:, :depth], k[:depth].T, v[:extent].T)

    q, k, v = wide
    agree("emulated", turned, [q, k.T.copy(), v.T.copy()], folder=folder)


@settings(max_examples=60, deadline=None, suppress_health_check=[*HealthCheck])
@given(st.integers(0, 10**6))
def test_random_programs(seed):
    made = cases.Made(seed)
    agree("interpreter", made, made.inputs)


def test_recordings_that_live_on():
    """What others have recorded, and still hold, does not cut a program in two."""
    made = cases.Made(304)
    held = [tiles.traced_of(made, *made.inputs) for _ in range(20)]
    assert {len(tiles.stream_kernels(tiles.planned_for(traced, H200))) for traced in held} == {1}


@pytest.mark.sampled(6)
@pytest.mark.parametrize("seed", range(12))
def test_texts_of_random_programs(seed, tmp_path_factory):
    made = cases.Made(1000 + seed)
    agree("emulated", made, made.inputs, folder=tmp_path_factory.getbasetemp())


@pytest.mark.sampled(4)
@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("tier", ["interpreter", "emulated"])
def test_random_programs_of_float32(seed, tier, tmp_path_factory):
    made = cases.Made(2000 + seed, "f4")
    agree(tier, made, made.inputs, folder=tmp_path_factory.getbasetemp())


@pytest.mark.parametrize("dtype, extent", [("f2", 130), ("f4", 70)])
@pytest.mark.parametrize("target", [A100, SMALL])
def test_less_shared_memory(target, dtype, extent, tmp_path_factory):
    arguments = cases.inputs((2,), 40, 130, 100, extent, dtype)
    plan = agree("emulated", cases.attention, arguments, target, tmp_path_factory.getbasetemp())
    assert len(tiles.stream_kernels(plan)) == 1


@pytest.mark.sampled(6)
@pytest.mark.parametrize("dtype, blocks", [("bf16", 7), ("f4", 13)])
@pytest.mark.parametrize("columns", [60, 64, 130])
@pytest.mark.parametrize("program", [cases.attention, cases.layers, cases.with_statistics,
                                     cases.by_weights, cases.extremes])
def test_operands_that_stay_on_chip(program, columns, dtype, blocks, tmp_path_factory):
    """A block takes rows several times, the last of them ragged; operands come once."""
    one = Target("cuda", 1, contract=True, shared_bytes=227 << 10, wgmma=True)
    plan = agree("emulated", program, cases.inputs((), 798, columns, 64, 64, dtype), one,
                 tmp_path_factory.getbasetemp())
    (kernel,) = tiles.stream_kernels(plan)
    assert kernel.stays == (dtype == "bf16" or columns < 65)
    assert shapes.blocks_of(kernel.program, kernel.shape) == blocks
    assert kernel.schedule.blocks == (2 if kernel.stays else blocks)


@pytest.mark.parametrize("program, sizes", [
    (cases.attention, ((2,), 798, 60, 64, 64)),  # a batch has its own
    (cases.attention, ((), 798, 300, 64, 64)),  # they do not fit
    (cases.causal, ((), 798, 798, 64, 64)),  # which tiles are needed depends on the rows
    (cases.attention, ((), 600, 60, 64, 64)),  # few rows
])
def test_operands_that_do_not_stay(program, sizes):
    one = Target("cuda", 1, contract=True, shared_bytes=227 << 10, wgmma=True)
    arguments = cases.inputs(*sizes, "bf16")
    traced = tiles.traced_of(program, *arguments[:4 if program is cases.causal else 3])
    (kernel,) = tiles.stream_kernels(tiles.planned_for(traced, one))
    assert not kernel.stays


def special(arguments):
    """Infinite numbers, and those that are none, in some rows of each operand."""
    q, k, v, bias = (x.copy() for x in arguments)
    bias[:] = 0
    bias[0] = -numpy.inf
    bias[1, ::2] = -numpy.inf
    bias[2, 5] = numpy.inf
    bias[3, 7] = numpy.nan
    bias[4, :40] = -numpy.inf
    return [q, k, v, bias]


def added(np, q, k, v, bias):
    return cases.softmax(np, cases.scaled(np, q, k) + bias) @ v


@pytest.mark.parametrize("dtype", ["bf16", "f4"])
@pytest.mark.parametrize("tier", ["interpreter", "emulated"])
def test_what_is_not_finite(tier, dtype, tmp_path_factory):
    arguments = special(cases.inputs((), 20, 70, 16, 16, dtype))
    agree(tier, added, arguments, folder=tmp_path_factory.getbasetemp())
    q, k, v, _ = arguments
    v[0, 3], v[69, 4], q[5], k[6] = numpy.inf, numpy.nan, numpy.inf, numpy.nan
    agree(tier, added, arguments, folder=tmp_path_factory.getbasetemp())


@pytest.mark.sampled(4)
@pytest.mark.parametrize("dtype", ["bf16", "f4"])
@pytest.mark.parametrize("view", [
    lambda x: numpy.asfortranarray(x), lambda x: x[::-1], lambda x: x[:, ::-1],
    lambda x: numpy.concatenate([x, x], 1)[:, ::2], lambda x: numpy.concatenate([x, x])[1::2],
    lambda x: numpy.pad(x, 1)[1:-1, 1:-1]])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_views_of_operands(view, place, dtype, tmp_path_factory):
    arguments = cases.inputs((), 30, 70, 16, 24, dtype)

    def program(np, *given):
        given = [*given]
        given[place] = np.array(given[place])
        return cases.attention(np, *given)

    arguments[place] = view(arguments[place])
    agree("emulated", program, arguments, folder=tmp_path_factory.getbasetemp())

    def inside(np, *given):
        given = [*given]
        x = given[place]
        given[place] = x.T.copy().T if place == 0 else x[::-1] if place == 1 else x[:, ::-1]
        return cases.attention(np, *given)

    agree("emulated", inside, arguments, folder=tmp_path_factory.getbasetemp())


OF_SINGLES = [case for case in LARGE if case[-1] <= 128]
KINDS = [*(("bf16", sizes, False) for sizes in LARGE),
         *(("f4", sizes, tf32) for sizes in OF_SINGLES for tf32 in (False, True))]


@pytest.mark.sampled(16)
@pytest.mark.parametrize("dtype, sizes, tf32", KINDS)
@pytest.mark.parametrize("program", [cases.attention, cases.causal, cases.layers,
                                     cases.with_statistics])
def test_texts_compile_without_spills(program, dtype, sizes, tf32):
    """For both kinds of tensor cores; the largest with a bias are the only ones to spill."""
    batch, rows, columns, depth, extent = sizes
    if program is cases.causal and rows != columns:
        pytest.skip("a causal mask is of a square")
    half = cases.DTYPES[dtype]
    shapes_of = ((*batch, rows, depth), (*batch, columns, depth), (*batch, columns, extent),
                 (rows, columns))
    arguments = [numpy.broadcast_to(numpy.zeros((), half), shape) for shape in shapes_of]
    for arch, target in (("sm_90a", H200), ("sm_80", A100)):
        with config.override(tf32=tf32):
            traced = tiles.traced_of(program, *arguments[:4 if program is cases.causal else 3])
        (kernel,) = tiles.stream_kernels(tiles.planned_for(traced, target))
        text = print_kernel(kernel, device=True).text.replace("NAME", "stream")
        report = cuda.compile_source(text, "stream", arch).reports["stream"]
        assert report.clean, (arch, report)
        if arch == "sm_90a" and kernel.copiers:
            workers, copiers = kernel.shape.threads, kernel.copiers
            later = workers * kernel.worker_registers + copiers * shapes.COPIER_REGISTERS
            assert later <= report.registers * (workers + copiers)  # else they wait for ever


def test_one_kernel_and_its_bytes():
    """Attention reads its operands and writes its result: nothing has rows times columns."""
    traced = tiles.traced_of(cases.attention, *cases.inputs((2, 2), 512, 512, 64, 64, "bf16")[:3])
    plan = tiles.planned_for(traced, H200)
    (kernel,) = tiles.stream_kernels(plan)
    assert len(plan.steps) == 1
    assert kernel.bytes_moved == 4 * (2 * 2 * 512 * 64 * 2)
    assert kernel.program.mask is None


def test_a_mask_leaves_out_tiles():
    traced = tiles.traced_of(cases.causal, *cases.inputs((2,), 256, 256, 64, 64, "bf16"))
    (kernel,) = tiles.stream_kernels(tiles.planned_for(traced, H200))
    assert kernel.program.mask is not None and kernel.program.mask.taken
    assert "__syncthreads_or" in print_kernel(kernel, device=True).text


def normed(np, q, k, v, *_):
    """Scores relative to their mean: that is known at the end alone."""
    scores = cases.scaled(np, q, k)
    return np.exp(scores - scores.mean(-1, keepdims=True)) @ v


def twice(np, q, k, v, *_):
    return cases.softmax(np, cases.softmax(np, cases.scaled(np, q, k))) @ v


def squared(np, q, k, v, *_):
    """The square of an exponential grows by the square of its factor."""
    scores = cases.scaled(np, q, k)
    e = np.exp(scores - scores.max(-1, keepdims=True))
    return (e * e) @ v


def kept(np, q, k, v, *_):
    weights = cases.softmax(np, cases.scaled(np, q, k))
    return weights, weights @ v


def beyond_halves(np, q, k, v, *_):
    """Powers that a float32 holds, and of which weights are made that a float16 holds."""
    scores = (cases.scaled(np, q, k)).astype("f4") * numpy.float32(40)
    e = np.exp(scores - scores.min(-1, keepdims=True))
    return (e / e.sum(-1, keepdims=True)).astype(v.dtype) @ v


def backwards(np, q, k, v, *_):
    return cases.softmax(np, cases.scaled(np, q, k)[..., ::-1]) @ v


@pytest.mark.parametrize("program", [normed, twice, squared, kept, backwards, beyond_halves])
def test_what_has_no_stream_is_done_otherwise(program):
    arguments = cases.inputs((2,), 40, 50, 16, 16, "f2")[:3]
    plan = agree("interpreter", program, arguments)
    assert not tiles.stream_kernels(plan)
    assert any(text.startswith("no stream of a product's rows: ") for text in plan.refusals)


def test_powers_of_float32_are_brought_to_size_first():
    """Relative to the largest, they are at most one; bfloat16 holds all that float32 does."""
    def relative(np, q, k, v, *_):
        scores = (cases.scaled(np, q, k)).astype("f4") * numpy.float32(40)
        e = np.exp(scores - scores.max(-1, keepdims=True))
        return (e / e.sum(-1, keepdims=True)).astype(v.dtype) @ v

    for program, dtype in ((relative, "f2"), (relative, "bf16"), (beyond_halves, "bf16")):
        plan = agree("interpreter", program, cases.inputs((2,), 40, 50, 16, 16, dtype)[:3])
        assert tiles.stream_kernels(plan), plan.refusals


def test_few_rows_are_left_to_the_library(monkeypatch):
    monkeypatch.undo()
    traced = tiles.traced_of(cases.attention, *cases.inputs((), 200, 4096, 64, 64, "bf16")[:3])
    plan = tiles.planned_for(traced, H200)
    assert not tiles.stream_kernels(plan)
    assert any("too few" in text for text in plan.refusals)


def test_double_precision_and_the_host_are_left_alone():
    half = cases.inputs((8,), 512, 512, 64, 64, "bf16")[:3]
    double = [x.astype("f8") for x in half]
    assert not tiles.stream_kernels(tiles.planned_for(
        tiles.traced_of(cases.attention, *double), H200))
    assert not tiles.stream_kernels(tiles.planned_for(
        tiles.traced_of(cases.attention, *half), HOST))


def test_the_verifier_refuses_what_is_wrong():
    traced = tiles.traced_of(cases.attention, *cases.inputs((2,), 40, 50, 16, 16, "bf16")[:3])
    (kernel,) = tiles.stream_kernels(tiles.planned_for(traced, H200))
    program = kernel.program
    (product,) = program.products
    program.products[0] = replace(product, growth=None)
    with pytest.raises(InvalidPlan, match="is scaled by"):
        verify_stream(program)
    program.products[0] = product
    most, total = program.totals
    program.totals[:] = [replace(most, expression=total.expression), total]
    with pytest.raises(InvalidPlan, match="before it is known"):
        verify_stream(program)
    program.totals[:] = [most, total]
    verify_stream(program)
    program.right = replace(program.right, value=program.left.value)
    with pytest.raises(InvalidPlan):
        verify_stream(program)


def report_of(program, arguments):
    """What `explain` would say of a plan for a GPU."""
    plan = tiles.planned_for(tiles.traced_of(program, *arguments), H200)
    executable = Executable(plan, device.resolve("cpu"))
    for each in (executable, *executable._of_loops()):
        for kernel in each.plan.kernels:
            each.programs[kernel] = print_kernel(kernel, device=True)
    return Reporter(executable, []).run()


def test_explain_says_what_is_done_with_a_tile():
    (step,) = report_of(cases.causal, cases.inputs((2,), 200, 300, 16, 24, "bf16")).steps
    assert step.form == "stream" and "softmax" not in step.name
    assert step.notes["blocks"] == "4 of 128 rows each, by tiles of 64 columns"
    assert step.program.splitlines()[:3] == [
        "for each of 2 products, 128 of 200 rows at a time:",
        "  for each 64 of 300 columns, 3 tiles in turn:",
        "    leave out where nowhere greater_equal(b1, i0), if s1 is infinite"]
    assert "    t3 = t3 * exp(negative(new t2 - old t2)) + sum x2\n" in step.program
    assert step.source.startswith("using idx = int;")


@pytest.mark.parametrize("tf32, products", [(False, "three products"), (True, "one product")])
def test_explain_says_how_float32_is_multiplied(tf32, products):
    with config.override(tf32=tf32):
        (step,) = report_of(cases.attention, cases.inputs((2,), 200, 300, 16, 24, "f4")[:3]).steps
    assert step.notes["blocks"] == (
        f"4 of 128 rows each, by tiles of 64 columns; {products} of TF32 for each")


def test_explain_says_what_stays_on_chip():
    (step,) = report_of(cases.layers, cases.inputs((), 262144, 128, 64, 64, "bf16")).steps
    assert step.notes["blocks"].endswith(
        " rows at a time; the other operands stay on chip, by tiles of 64 columns")


def test_the_program_in_the_docs():
    """What docs/examples.md shows of attention of 4,096 letters in float16 on an H200."""
    def attention(np, queries, keys, values):
        place = np.arange(len(queries))
        scores = queries @ keys.T / queries.shape[1] ** 0.5
        scores = np.where(place[:, None] >= place, scores, -numpy.inf)
        powers = np.exp(scores - scores.max(axis=1, keepdims=True))
        return powers / powers.sum(axis=1, keepdims=True) @ values

    arguments = cases.inputs((), 4096, 4096, 64, 64, "f2")[:3]
    (step,) = report_of(attention, arguments).steps
    text = (Path(__file__).parents[1] / "docs" / "examples.md").read_text()
    assert step.program.rstrip("\n") in text, step.program


def weights_without_the_mask(np, q, k, v, *_):
    """The mask is in the maximum alone: what is left out there counts all the same."""
    scores = cases.scaled(np, q, k)
    place = np.arange(scores.shape[-1])
    most = np.where(place < 3, scores, -numpy.inf).astype(q.dtype).max(-1, keepdims=True)
    e = np.exp(scores - most)
    return e @ v / e.sum(-1, keepdims=True)


def falling_weights(np, q, k, v, *_):
    """What is infinitely far away has the largest weight."""
    scores = cases.scaled(np, q, k)
    place = np.arange(scores.shape[-1])
    scores = np.where(place < 3, scores, -numpy.inf).astype(q.dtype)
    e = np.exp(scores.max(-1, keepdims=True) - scores)
    return 1 / e.sum(-1)


def entropy(np, q, k, v, *_):
    """Zero times infinity is no number, wherever it stands."""
    scores = cases.scaled(np, q, k)
    place = np.arange(scores.shape[-1])
    scores = np.where(place < 3, scores, -numpy.inf).astype(q.dtype)
    e = np.exp(scores - scores.max(-1, keepdims=True))
    return (e * scores).sum(-1)


@pytest.mark.parametrize("tier", ["interpreter", "emulated"])
@pytest.mark.parametrize("program", [weights_without_the_mask, falling_weights, entropy])
def test_tiles_that_count_are_not_left_out(program, tier, tmp_path_factory):
    arguments = cases.inputs((), 20, 150, 16, 16, "bf16")[:3]
    agree(tier, program, arguments, folder=tmp_path_factory.getbasetemp())


@pytest.mark.parametrize("far", [-1e9, -3e30])
def test_large_finite_masks(far, tmp_path_factory):
    """Columns that do not count come first, and some rows have no others."""
    q, k, v = cases.inputs((), 20, 150, 16, 16, "bf16")[:3]
    bias = numpy.zeros((20, 150), q.dtype)
    bias[:, :100] = far
    bias[15:] = far

    def program(np, q, k, v, bias):
        return cases.softmax(np, cases.scaled(np, q, k) + bias) @ v

    _, (found,) = tiles.through("emulated", program, q, k, v, bias, target=H200,
                                folder=tmp_path_factory.getbasetemp())
    (want,) = cases.exact(program, [q, k, v, bias])
    cases.assert_close(found[:15], want[:15], q.dtype)
    assert (abs(found[15:].astype(float)) <= abs(v.astype(float)).max()).all()


def distances_of_others(np, q, k, v, bias):
    """The largest of some is infinite before the weights of others are made relative to it."""
    scores = cases.scaled(np, q, k)
    place = np.arange(scores.shape[-1])
    most = np.where(place < 3, scores, numpy.inf).astype(q.dtype).max(-1, keepdims=True)
    return np.exp(scores - most) @ v


def least_of_none(np, q, k, v, bias):
    scores = cases.scaled(np, q, k)
    place = np.arange(scores.shape[-1])
    most = np.where(place < 0, scores, -numpy.inf).astype(q.dtype).max(-1, keepdims=True)
    return np.exp(scores - most).sum(-1)


def infinite_bias(np, q, k, v, bias):
    scores = cases.scaled(np, q, k) + bias
    return np.exp(scores - scores.max(-1, keepdims=True)) @ v


@pytest.mark.parametrize("tier", ["interpreter", "emulated"])
@pytest.mark.parametrize("program", [distances_of_others, least_of_none, infinite_bias])
def test_infinite_extrema(program, tier, tmp_path_factory):
    arguments = cases.inputs((), 20, 150, 16, 16, "bf16")
    arguments[3][3, 5] = arguments[3][4, 140] = numpy.inf
    agree(tier, program, arguments, folder=tmp_path_factory.getbasetemp())
