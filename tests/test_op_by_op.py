"""The op-by-op tier at sizes where it works in blocks: NumPy's bits, little memory, no copies."""

import tracemalloc
from collections import OrderedDict

import numpy
import pytest

import tiledarray as np
from tests.plans import forget_plans
from tiledarray import config
from tiledarray.devices import threads
from tiledarray.devices.pool import host_pool
from tiledarray.errors import NodeFailed
from tiledarray.execution import evaluate, known, running
from tiledarray.execution.executable import Executable
from tiledarray.execution.op_by_op import chain, parts
from tiledarray.execution.op_by_op import run as steps
from tiledarray.execution.spans import counters
from tiledarray.graph.program import trace

SHAPE = (700, 333)  # four blocks, the last one shorter
MANY = 3 * chain.BLOCK + 17


@pytest.fixture(autouse=True, params=[1, 2])
def op_by_op(request):
    with config.override(compile="never", threads=request.param):
        yield


def data(shape, dtype="f8", seed=0):
    generator = numpy.random.default_rng(seed)
    return (8 * generator.random(shape) - 4).astype(dtype)


def same(program, *inputs):
    """Run a program with NumPy and as ours; every result must be the same to the bit."""
    with numpy.errstate(all="ignore"):
        expected = program(numpy, *(x.copy() for x in inputs))
    actual = program(np, *map(np.array, inputs))
    for ours, theirs in zip(actual, expected, strict=True):
        assert ours.dtype == theirs.dtype
        numpy.testing.assert_array_equal(ours.numpy(), theirs, strict=True)


def parts_below(*arrays):
    nodes = [x.node for x in arrays]
    return parts.parts_of(trace(nodes).nodes, nodes)


# ---- values -----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "u1", "f2", "c8"])
def test_a_chain(dtype):
    def program(np, x, y):
        z = x * y + 2
        return z - x, np.where(z == y, x, z), (z * z).astype("f4" if dtype != "c8" else "c16"), z

    same(program, data(SHAPE, dtype), data(SHAPE, dtype, 1))


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_functions(dtype):
    def program(np, x):
        return np.exp(x) / (1 + np.exp(-x * x)), np.log(abs(x)), np.sin(x) + np.hypot(x, 1)

    same(program, data(MANY, dtype))


def test_operands_that_are_broadcast_strided_and_of_other_dtypes():
    def program(np, x, row, column, whole):
        y = x[::2, ::-1] + row[::-1]
        return y * column[::2, None], y.T + whole, np.full(SHAPE, 3.5) * y, np.minimum(y, 2)

    same(program, data((1400, 333)), data(333, "f4"), data(1400, "i2"), data((333, 700), "i4"))


@pytest.mark.parametrize("dtype", ["f4", "f8", "i4"])
def test_rows_and_columns_reduced(dtype):
    def program(np, x):
        scaled = x * 2
        row = scaled - scaled.max(axis=1, keepdims=True)
        total = row.sum(axis=1, keepdims=True)
        return (row / total, scaled.sum(axis=0), scaled.var(axis=0), scaled.var(axis=1),
                scaled.argmax(axis=1), scaled.argmin(axis=0), scaled.sum(), (row > 1).any(axis=-1))

    same(program, data(SHAPE, dtype))


def test_rows_of_several_axes_and_rows_too_long_for_a_block():
    def program(np, x, long):
        return (x * 2).sum(axis=(1, 2)), (x + 1).sum(axis=(0, 2)), (long * long).sum(axis=1)

    same(program, data((700, 37, 9)), data((2, 2 * chain.BLOCK)))


def test_division_by_zero_and_overflow_warn_of_nothing():
    def program(np, x):
        return 1 / (x - x), np.exp(x * 1000), (x * 1e300) * (x * 1e300)

    same(program, data(SHAPE))


# ---- updates ----------------------------------------------------------------------------------


def test_stencils_written_in_place():
    def program(np, u):
        before = u[3:5] + 0
        for _ in range(5):
            u[1:-1, 1:-1] += 0.2 * (u[:-2, 1:-1] + u[2:, 1:-1] - 2 * u[1:-1, 1:-1])
            u[0] = u[-1]
            u[:, ::2] *= 0.5
        return u, before

    same(program, data(SHAPE))


def test_an_update_leaves_what_others_still_see():
    def program(np, x):
        first = x * 2
        second = first.copy()
        second[5:] = x[5:] - 1
        third = second.copy()
        third[0] = first[1]
        window = third[10:20] + 0
        third[12:14] = 7
        return first, second, third, window

    same(program, data(SHAPE))


def test_a_new_value_that_fills_the_array_is_read_as_written():
    def program(np, x):
        x[:, ::-1] = x + 1
        return (x - 0.5 * x,)

    same(program, data(SHAPE))


def test_small_writes_do_not_copy_the_array(monkeypatch):
    def refuse(*_):
        raise AssertionError("the array was copied")

    x = np.zeros(SHAPE) + 1
    for k in range(20):
        x[k] = k
        x[k, 3] += 1
    expected = numpy.zeros(SHAPE) + 1
    for k in range(20):
        expected[k] = k
        expected[k, 3] += 1
    monkeypatch.setattr(steps, "updated", refuse)
    numpy.testing.assert_array_equal(x.numpy(), expected)


def test_an_evaluated_array_is_written_where_it_lies():
    x = np.array(data(SHAPE)) + 1
    np.evaluate(x)
    pointer = x.node.buffer.pointer
    x[2] = 4
    x[3] = 5
    x[3] += 0
    np.evaluate(x)
    assert x.node.buffer.pointer == pointer
    copy = x.copy()
    x[4] = 6
    np.evaluate(x, copy)
    expected = data(SHAPE) + 1
    expected[2:4] = [[4], [5]]
    numpy.testing.assert_array_equal(copy.numpy(), expected)
    expected[4] = 6
    numpy.testing.assert_array_equal(x.numpy(), expected)


def test_a_failure_after_a_write_in_place_loses_nothing():
    x = np.array(data(SHAPE)) + 1
    np.evaluate(x)
    before = x * 2
    small = x[3, :4] * 2
    x[3] += 5
    after = x[3] * 2
    late = small + np.arange(4)[np.arange(4) + 2]
    with pytest.raises(IndexError, match="out of bounds"):
        np.evaluate(x, before, after, late)
    numpy.testing.assert_array_equal(small.numpy(), (data(SHAPE) + 1)[3, :4] * 2)
    expected = data(SHAPE) + 1
    numpy.testing.assert_array_equal(before.numpy(), expected * 2)
    expected[3] += 5
    numpy.testing.assert_array_equal(after.numpy(), expected[3] * 2)
    numpy.testing.assert_array_equal(x.numpy(), expected)


# ---- parts and memory -------------------------------------------------------------------------


def test_what_is_computed_together():
    x = np.array(data(SHAPE))
    y = np.exp(x * 2 - 1)
    z = y / y.sum(axis=1)[:, None]
    found = [([node.op.name for node in part.nodes], part.space, [x.op.name for x in part.stored])
             for part in parts_below(z)]
    assert found == [
        (["multiply", "subtract", "exp", "sum"], SHAPE, ["exp"]),
        (["view"], None, []),
        (["divide"], SHAPE, ["divide"]),
    ]


def test_small_arrays_are_no_chains():
    assert all(part.space is None for part in parts_below(np.array(data(50)) * 2 + 1))


def test_temporaries_of_a_chain_are_never_written_to_memory():
    x = np.array(data(64 * chain.BLOCK))
    np.evaluate(x)
    nbytes = 8 * x.size
    host_pool.clear()
    tracemalloc.start()
    y = np.sqrt(x * x + 1) * 3 - x / 2 + np.exp(-x)
    np.evaluate(y)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert nbytes < peak < 1.25 * nbytes


def test_a_table_of_all_pairs_is_never_built():
    x, y = np.array(data(6000)), np.array(data(5000))
    total = np.exp(-((x[:, None] - y[None, :]) ** 2)).sum(axis=1)
    cut = parts_below(total)
    seconds, largest = parts.cost(cut, 1)
    assert largest <= 6000 * 8
    assert 0.01 < seconds < 10


def test_dear_functions_cost_more():
    x = np.array(data(MANY))
    cheap, _ = parts.cost(parts_below(x + 1), 1)
    dear, _ = parts.cost(parts_below(np.logaddexp(x, 1)), 1)
    assert dear > 5 * cheap


# ---- errors -----------------------------------------------------------------------------------


def test_an_error_in_a_block_names_its_line():
    x = np.array(data(MANY, "i8"))
    power = np.jit(lambda x: (x + 1) ** (x - 5))  # without it, it is computed where it stands
    with pytest.raises(ValueError, match="negative integer powers") as caught:
        power(x)
    assert any("test_op_by_op.py" in note for note in caught.value.__notes__)
    assert not isinstance(caught.value, NodeFailed)
    numpy.testing.assert_array_equal((x + 1).numpy(), x.numpy() + 1)


def test_threads_wait_for_each_other_and_tell_the_first_error():
    done = []

    def work(number):
        if number:
            done.append(number)
        else:
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        threads.together(work, range(4))
    assert sorted(done) == [1, 2, 3]


def test_the_compiler_starts_when_the_answer_is_there(monkeypatch):
    forget_plans(monkeypatch)
    events = []
    run = evaluate._run_parts
    monkeypatch.setattr(evaluate, "_run_parts",
                        lambda *args: (run(*args), events.append("answer")))
    monkeypatch.setattr(Executable, "compile_in_background", lambda self: events.append("compile"))
    monkeypatch.setattr(running, "compiler_problem", lambda device: None)
    with config.override(compile="background"):
        x = np.array(data(10 * MANY))
        (np.tanh(x * 1.2345) - np.arctan(x) ** 3).numpy()   # that no other test has a kernel of
    assert events == ["answer", "compile"]


@pytest.mark.parametrize("call", [
    lambda x, i: i + 0.5, lambda x, i: i * x, lambda x, i: np.where(i > 3, x, 0.0),
    lambda x, i: x.astype("f4"), lambda x, i: ((x - x.mean(1, keepdims=True)) ** 2).sum(1),
    lambda x, i: x.var(axis=1), lambda x, i: np.sqrt(x), lambda x, i: x.argmax(axis=1),
])
def test_temporaries_have_the_size_of_a_block(call):
    """Also of a single operation by a single thread."""
    values = numpy.random.default_rng(0).random((3000, 1000))
    x, i = np.array(values), np.array((values * 9).astype("i4"))
    with config.override(threads=1, compile="never"):
        np.evaluate(call(x, i))  # memory of the results is the pool's from now on
        tracemalloc.start()
        found = call(x, i)
        np.evaluate(found)
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert most < values.nbytes / 4
    numpy.testing.assert_allclose(found.numpy(), call(*map(numpy.asarray, (x, i))), rtol=1e-6)


@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "c16"])
def test_sums_of_selected_rows_read_these_alone(dtype, monkeypatch):
    x = numpy.arange(120_000).reshape(30_000, 4).astype(dtype)
    mask = x[:, 0].real % 7 == 3
    array, chosen = np.asarray(x), np.asarray(x)[:, 0].real % 7 == 3
    summed = []
    original = steps._summed_rows
    monkeypatch.setattr(
        steps, "_summed_rows", lambda *given: (summed.append(given), original(*given)))
    with config.override(at_once=0, compile="never"):
        total = np.sum(array, axis=0, where=chosen[:, None])
        mean = np.mean(array, axis=0, where=chosen[:, None])
        kept = np.where(chosen[:, None], array, 0)
        both = kept.sum(0), kept
        numpy.testing.assert_array_equal(total, x[mask].sum(0))
        numpy.testing.assert_allclose(mean, x[mask].mean(0), rtol=1e-5)
        numpy.testing.assert_allclose(both[0], x[mask].sum(0), rtol=1e-5)
        numpy.testing.assert_array_equal(both[1], numpy.where(mask[:, None], x, 0))
    assert len(summed) == 2  # what somebody has is summed as it is


@pytest.mark.parametrize("reduce", ["sum", "max", "argmin", "any", "prod"])
def test_what_is_broadcast_along_what_is_kept_is_reduced_once(reduce):
    x = numpy.arange(60.0).reshape(5, 1, 12) % 7
    with config.override(at_once=0, compile="never"):
        ours = np.broadcast_to(np.asarray(x), (5, 3, 12))
        for axis in (0, 2):
            numpy.testing.assert_array_equal(
                getattr(ours, reduce)(axis),
                getattr(numpy.broadcast_to(x, (5, 3, 12)), reduce)(axis))


def test_what_is_long_is_planned_only_when_it_has_come_again(monkeypatch):
    def steps_of(u):
        for _ in range(40):
            u = np.roll(u, 1) + np.roll(u, -1) - u * 2
        return u

    monkeypatch.setattr(known, "_met", OrderedDict())
    with config.override(at_once=0, compile="background", cut=2000, first_seconds=0.02):
        forget_plans(monkeypatch)
        before = counters["plans made"]
        for _ in range(evaluate.TIMES_OF_LONG):
            steps_of(np.ones(2000)).numpy()
        assert counters["plans made"] == before
        for _ in range(3):  # the first may have been done in parts
            steps_of(np.ones(2000)).numpy()
        assert counters["plans made"] == before + 1


def test_selected_rows_are_added_in_numpys_order():
    x = data((100_001, 3), "f8") * 10.0 ** numpy.arange(3)
    signs = numpy.full((70_000, 2), -0.0)
    with config.override(at_once=0, compile="never"):
        for rows in (x, x[:, ::-1], x[:, :1], numpy.asfortranarray(x), signs):
            chosen = numpy.arange(len(rows)) % 3 == 0
            ours = np.asarray(rows)
            kept = np.where(np.asarray(chosen)[:, None], ours, 0.0)
            expected = numpy.where(chosen[:, None], numpy.ascontiguousarray(rows), 0.0).sum(0)
            found = kept.sum(0)
            del kept
            assert found.numpy().tobytes() == expected.tobytes()
            turned = np.asarray(numpy.ascontiguousarray(rows.T)).T
            found = np.where(np.asarray(chosen)[:, None], turned, 0.0).sum(0)
            assert found.numpy().tobytes() == expected.tobytes()
