"""Reads at computed places: in the kernels that use them, with NumPy's values and errors."""

import numpy
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import tiledarray as np
from tests.plans import DEVICE, HOST, forget_plans, kinds, moved, nbytes, planned
from tiledarray import config
from tiledarray.fusion import gathers as fusing
from tiledarray.fusion.plan import Call


@pytest.fixture(autouse=True)
def compiled():
    with config.override(compile="wait", at_once=0, first_seconds=0):
        yield


def ours(x):
    return np.array(x)


def table(*shape, dtype="f8"):
    x = numpy.random.default_rng(1).normal(size=shape) * 9
    return (x + 1j * x[::-1] if numpy.dtype(dtype).kind == "c" else x).astype(dtype)


def places(size, *shape, dtype="i8"):
    least = 0 if numpy.dtype(dtype).kind == "u" else -size
    return numpy.random.default_rng(2).integers(least, size, shape).astype(dtype)


def gathers(plan):
    """How many reads at computed places the kernels of a plan have."""
    assert all(step.value.op.name == "check_places" for step in plan.steps
               if isinstance(step, Call))
    return sum(cell.kind == "gather" for kernel in plan.kernels for part in kernel.parts
               for cell in part.cells)


# ---- plans -----------------------------------------------------------------------------------


@pytest.mark.parametrize("target", [HOST, DEVICE], ids=["cpu", "cuda"])
def test_an_embedding_with_pooling_is_one_kernel(target):
    w, i = ours(table(5000, 64, dtype="f4")), ours(places(5000, 3000, 8))
    result = w[i].sum(1)
    plan = planned(result, target=target)
    assert kinds(plan) == ["call", "map"] and gathers(plan) == 8
    assert moved(plan) == nbytes(w, i, result)


@pytest.mark.parametrize("target", [HOST, DEVICE], ids=["cpu", "cuda"])
def test_rows_with_weights_are_one_kernel(target):
    w, i, s = ours(table(300, 50)), ours(places(300, 400)), ours(table(400, 1))
    result = np.take(w, i, axis=0) * s
    plan = planned(result, target=target)
    assert kinds(plan) == ["call", "map"] and gathers(plan) == 1
    assert moved(plan) == nbytes(w, i, s, result)


def test_a_long_pooling_is_a_reduction():
    w, i = ours(table(500, 64)), ours(places(500, 30, 100))
    plan = planned((w[i] * 2).sum(1))
    assert kinds(plan) == ["call", "column"] and gathers(plan) == 1


def test_what_is_not_computed_with_stays_a_call():
    w, i = ours(table(500, 64)), ours(places(500, 300))
    assert kinds(planned(w[i])) == ["call"]
    taken = w[i]
    assert "map" in kinds(planned(taken, taken + 1))
    plan = planned(np.sort(w[i], axis=0))
    assert [step.value.op.name for step in plan.steps if isinstance(step, Call)] == ["take", "sort"]


def test_what_is_used_many_times_stays_a_call():
    w, i, x = ours(table(500, 64)), ours(places(500, 30)), ours(table(20, 1, 64))
    plan = planned((w[i] * x).sum())
    assert any(isinstance(step, Call) and step.value.op.name == "take" for step in plan.steps)


# ---- values ----------------------------------------------------------------------------------

PROGRAMS = {
    "pooled": lambda xp, w, i: w[i].sum(1) if i.ndim > 1 else w[i] * 2,
    "a mean over all places": lambda xp, w, i: w[i].mean(tuple(range(i.ndim))),
    "with what stands beside": lambda xp, w, i: w[i] * 2 + w[i],
    "softmax": lambda xp, w, i: softmax(xp, w[i]),
    "along the last axis": lambda xp, w, i: xp.take(w, i % 20, axis=-1) * 2,
    "of a view": lambda xp, w, i: w[::-1, ::2][i] + 1,
    "of a transpose": lambda xp, w, i: xp.take(w.T, i, axis=1) - 1,
    "of one column": lambda xp, w, i: w[:, 0][i] * 3,
    "of what is computed": lambda xp, w, i: (w * 2 + 1)[i] * 3,
    "computed places": lambda xp, w, i: w[(i + 1) % len(w)] * 2,
    "a view of places": lambda xp, w, i: w[i[..., ::-1] if i.ndim else i] * 2,
    "turned afterwards": lambda xp, w, i: w[i].T * 2,
    "scanned": lambda xp, w, i: xp.cumsum(w[i] * 2, axis=0),
    "scanned along the last axis": lambda xp, w, i: xp.cumsum(w[i] * 2, axis=-1) / 3,
    "the place of the least": lambda xp, w, i: (w[i] * 2).argmin(-1),
    "of a table by a table": lambda xp, w, i: xp.arange(len(w))[i] * 2.5,
    "twice": lambda xp, w, i: w[i] * 2 + w[(i + 1) % len(w)],
    "one-hot": lambda xp, w, i: (xp.eye(len(w))[i] * 2).sum(0),
    "wrapped": lambda xp, w, i: xp.take(w, i + 3, axis=0, mode="wrap") * 2,
    "along the rows": lambda xp, w, i: xp.take_along_axis(w, rows(w, i), 1) * 2,
    "along the columns": lambda xp, w, i: xp.take_along_axis(w, rows(w, i).T[:, :1], 0) * 2,
    "along by one": lambda xp, w, i: xp.take_along_axis(w, (w * 1).argmax(1, keepdims=True), 1) - w,
    "along and summed": lambda xp, w, i: (xp.take_along_axis(w, rows(w, i), 1) * w[:, :3]).sum(1),
    "clipped": lambda xp, w, i: xp.take(w, i * 2, axis=0, mode="clip") * 2,
}


def rows(w, i):
    """Three places for each row, wherever they come from."""
    return (i.reshape(-1)[:1] + numpy.arange(3 * len(w)).reshape(-1, 3)) % w.shape[1] - 2


def softmax(xp, x):
    e = xp.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def compare(program, w, i):
    compare_all(program(np, ours(w), ours(i)), program(numpy, w, i))


def compare_all(found, wanted):
    assert found.shape == wanted.shape and found.dtype == wanted.dtype
    close = (1e-12, 1e-10) if wanted.dtype.char in "dD" else (1e-5, 1e-4)
    numpy.testing.assert_allclose(found, wanted, *close)


@pytest.mark.sampled(12)
@pytest.mark.parametrize("shape", [(40,), (7, 5), (3, 2, 4), (1,), (1, 6), ()], ids=str)
@pytest.mark.parametrize("name", PROGRAMS)
def test_values(name, shape):
    compare(PROGRAMS[name], table(11, 20), places(11, *shape))


@pytest.mark.parametrize("name", PROGRAMS)
def test_values_of_short_rows(always, name):
    compare(PROGRAMS[name], table(11, 6 if "last" not in name else 20), places(11, 9, 5))


@pytest.mark.parametrize("dtype", ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"])
def test_places_of_any_dtype(dtype):
    compare(PROGRAMS["pooled"], table(90, 20), places(90, 30, 4, dtype=dtype))


@pytest.mark.parametrize("dtype", ["f4", "f2", "c16", "c8", "i4", "u1", "?"])
def test_tables_of_any_dtype(dtype):
    compare(lambda xp, w, i: w[i] * w.dtype.type(2), table(90, 20, dtype=dtype), places(90, 30))


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 4)])
def test_no_places(shape):
    compare(PROGRAMS["with what stands beside"], table(11, 20), places(11, *shape))


def test_a_table_of_one_row_and_rows_of_one():
    compare(PROGRAMS["pooled"], table(1, 6), places(1, 30, 4))
    compare(PROGRAMS["pooled"], table(6, 1), places(6, 30, 4))
    compare(lambda xp, w, i: w[:, i] * 2, table(6, 1, 5), places(1, 30, 4))


@pytest.fixture
def always(monkeypatch):
    """Rows of any length are gathered by kernels, however wide what they are used in is."""
    forget_plans(monkeypatch)
    monkeypatch.setattr(fusing, "SHORT", 0)
    monkeypatch.setattr(fusing, "SHORT_SUMS", 0)
    monkeypatch.setattr(fusing, "WIDER", 1000)


quickly = settings(max_examples=35, deadline=None,
                   suppress_health_check=[HealthCheck.function_scoped_fixture])


@quickly
@given(st.data())
def test_values_by_property(always, data):
    shape = tuple(data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=3), label="table"))
    shape = (*shape, 1) if data.draw(st.booleans()) else shape
    axis = data.draw(st.integers(0, len(shape) - 1), label="axis")
    at = tuple(data.draw(st.lists(st.integers(0, 5), max_size=3), label="places"))
    order = tuple(data.draw(st.permutations(range(len(shape))), label="order"))
    w, i = table(*shape), places(shape[axis], *at, dtype=data.draw(st.sampled_from(["i8", "i4"])))
    rank = len(shape) + len(at) - 1
    axes = tuple(data.draw(st.lists(st.integers(0, rank - 1), unique=True)) if rank else ())

    def program(xp, w, i):
        turned = w.transpose(order).transpose(numpy.argsort(order)) * 1
        taken = xp.take(turned, i, axis=axis) * 2 + 1
        return (xp.exp(taken / 50).sum(axes) if axes else taken), taken.sum()

    assume(w.size)
    for one, other in zip(program(np, ours(w), ours(i)), program(numpy, w, i), strict=True):
        numpy.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)


@quickly
@given(st.data())
def test_values_along_an_axis_by_property(always, data):
    shape = tuple(data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=3), label="table"))
    axis = data.draw(st.integers(0, len(shape) - 1), label="axis")
    at = [data.draw(st.sampled_from([1, n])) for n in shape]
    at[axis] = data.draw(st.integers(0, 6))
    taken = tuple(1 if data.draw(st.booleans()) and k != axis else n for k, n in enumerate(shape))
    w, i = table(*taken), places(taken[axis], *at)

    def program(xp, w, i):
        found = xp.take_along_axis(w, i, axis) * 2 + 1
        return found, xp.exp(found / 50).sum(axis)

    for one, other in zip(program(np, ours(w), ours(i)), program(numpy, w, i), strict=True):
        assert one.shape == other.shape
        numpy.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("axis", [0, 1])
def test_elements_of_lines_are_one_kernel(axis):
    w, i = ours(table(300, 200)), ours(places(200, 300, 200))
    result = np.take_along_axis(w, i, axis) * 2 + w
    plan = planned(result)
    assert kinds(plan) == ["call", "map"] and gathers(plan) == 1
    assert moved(plan) == nbytes(w, i, result)


# ---- errors ----------------------------------------------------------------------------------


@pytest.mark.parametrize("place, wrong", [
    (0, 11), (39, 11), (0, -12), (39, -12), (20, 2**40), (5, -2**63),
])
@pytest.mark.parametrize("axis", [0, 1])
def test_a_place_that_is_beyond_raises_numpys_error(place, wrong, axis):
    w, i = table(11, 11, 20), places(11, 40)
    i[place] = wrong
    with pytest.raises(IndexError) as theirs:
        w[(slice(None),) * axis + (i,)]
    for _ in range(3):
        taken = ours(w)[(slice(None),) * axis + (ours(i) + 0,)] * 2  # not known yet
        with pytest.raises(IndexError) as failure:
            taken.tolist()
        assert str(failure.value) == str(theirs.value)
        assert "while computing take, recorded at" in failure.value.__notes__[0]
        assert __file__ in failure.value.__notes__[0]


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("place", [(0, 0), (6, 8), (3, 2)])
def test_a_place_in_a_line_that_is_beyond_raises_numpys_error(place, axis):
    w, i = table(7, 9), places(7, 7, 9)
    i[place] = 9
    with pytest.raises(IndexError) as theirs:
        numpy.take_along_axis(w, i, axis)
    taken = np.take_along_axis(ours(w), ours(i) + 0, axis) * 2
    with pytest.raises(IndexError) as failure:
        taken.tolist()
    assert str(failure.value) == str(theirs.value)


def test_unsigned_places_that_no_signed_number_holds():
    w = table(11, 3)
    for place in (2**64 - 1, 2**64 - 11):  # NumPy takes them for negative ones
        i = numpy.array([1, place], "u8")
        compare_all(numpy.asarray(ours(w)[ours(i)] * 2), w[i] * 2)
    for place in (2**64 - 12, 2**63):
        i = numpy.array([1, place], "u8")
        with pytest.raises(IndexError) as theirs:
            w[i]
        with pytest.raises(IndexError) as failure:
            (ours(w)[ours(i)] * 2).tolist()
        assert str(failure.value) == str(theirs.value)


def test_an_empty_axis():
    with pytest.raises(IndexError, match="index 0 is out of bounds for axis 0 with size 0"):
        (ours(table(0, 3))[ours(numpy.zeros(2, int))] * 2).tolist()
    compare(PROGRAMS["with what stands beside"], table(0, 3), numpy.zeros(0, int))


def test_an_error_leaves_the_rest_to_be_computed():
    w, i = table(11, 20), places(11, 40)
    i[7] = 99
    a, b = ours(w), ours(w)
    b += 1
    taken, fine = (b[ours(i) + 0] * 2), a * 3 + b
    with pytest.raises(IndexError, match="index 99 is out of bounds for axis 0 with size 11"):
        taken.tolist()
    numpy.testing.assert_allclose(fine, w * 3 + (w + 1))
    numpy.testing.assert_allclose(b, w + 1)


# ---- writes ----------------------------------------------------------------------------------


def test_the_table_is_written_afterwards():
    w, i = table(11, 20), places(11, 40)
    a = ours(w)
    a += 1
    taken = a[ours(i)] * 2
    a[2:5] = 0.0
    again = a[ours(i)] * 2
    numpy.testing.assert_allclose(taken, (w + 1)[i] * 2)
    written = w + 1
    written[2:5] = 0
    numpy.testing.assert_allclose(again, written[i] * 2)


def test_the_table_is_written_with_what_was_read_from_it():
    w = table(40, 20)
    i = places(40, 40)
    a, b = ours(w), w.copy()
    for _ in range(5):
        a[:] = a[ours(i)] * 0.5 + a
        b[:] = b[i] * 0.5 + b
        a[1:] += a[ours(i)][:-1] * 0.25
        b[1:] += b[i][:-1] * 0.25
    numpy.testing.assert_allclose(a, b)


def test_the_places_are_written_afterwards():
    w, i = table(11, 20), places(11, 40)
    a, at = ours(w), ours(i)
    at += 0
    taken = a[at] * 2
    at[:] = 0
    numpy.testing.assert_allclose(taken, w[i] * 2)
    numpy.testing.assert_array_equal(at, 0)


# ---- gradients, jit, tiers -------------------------------------------------------------------


def test_gradients():
    w, i, s = table(11, 20), places(11, 40, 3), table(40, 20)

    def loss(w, s):
        return (np.tanh(w[ours(i)].sum(1) / 9) * s).sum()

    found = np.grad(loss, (0, 1))(ours(w), ours(s))
    t = numpy.tanh(w[i].sum(1) / 9)
    numpy.testing.assert_allclose(found[1], t, rtol=1e-10)
    wanted = numpy.zeros_like(w)
    numpy.add.at(wanted, i, (s * (1 - t**2) / 9)[:, None, :].repeat(3, 1))
    numpy.testing.assert_allclose(found[0], wanted, rtol=1e-10, atol=1e-12)


def test_under_jit_and_vmap():
    w, i = table(11, 20), places(11, 40, 3)
    pooled = np.jit(lambda w, i: w[i].sum(1) * 2)
    for _ in range(3):
        numpy.testing.assert_allclose(pooled(ours(w), ours(i)), w[i].sum(1) * 2)
    with pytest.raises(IndexError, match="index 11 is out of bounds for axis 0 with size 11"):
        pooled(ours(w), ours(i * 0 + 11)).tolist()
    numpy.testing.assert_allclose(pooled(ours(w), ours(i)), w[i].sum(1) * 2)
    each = np.vmap(lambda one: (ours(w)[one] * 2).sum(0))
    numpy.testing.assert_allclose(each(ours(i)), (w[i] * 2).sum(1))


@pytest.mark.parametrize("compiling", ["never", "background", "wait"])
def test_all_tiers_again_and_again(compiling):
    w, i = table(300, 16), places(300, 2000, 5)
    with config.override(compile=compiling):
        for k in range(6):
            numpy.testing.assert_allclose(ours(w + k)[ours(i)].sum(1) * 2, (w + k)[i].sum(1) * 2)
            with pytest.raises(IndexError):
                (ours(w)[ours(i) + 300].sum(1) * 2).tolist()
