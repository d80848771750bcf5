"""Indices: results, errors and writes equal NumPy's."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import tiledarray as ta
from tiledarray.arrays.tiledarray import from_host
from tiledarray.core import kind

X = np.arange(24.0).reshape(2, 3, 4)
INTEGERS = np.array([[1, 0], [-1, 1]])
MASK = X % 3 == 0

READS = {
    "list": np.s_[[1, 0, 1]],
    "empty list": np.s_[[]],
    "array": np.s_[INTEGERS],
    "two arrays": np.s_[INTEGERS, [[2], [0]]],
    "apart": np.s_[[1, 0], :, [2, 3]],
    "apart by new axis": np.s_[[1, 0], None, [2, 1]],
    "with int": np.s_[1, :, [0, 2, 2]],
    "with slices": np.s_[::-1, [0, 2], 1:3],
    "with ellipsis": np.s_[..., [3, 0]],
    "with new axis": np.s_[None, [0, 1], ..., None],
    "mask": np.s_[MASK],
    "mask of leading axes": np.s_[MASK[..., 0]],
    "mask of last axis": np.s_[:, :, np.array([True, False, True, True])],
    "mask and array": np.s_[[0, 1], np.array([True, False, True])],
    "mask and slice": np.s_[1:, np.array([True, False, True]), ::2],
    "0-d bool": np.s_[True],
    "0-d False": np.s_[False, 1],
    "0-d array": np.s_[np.array(1), [0, 2]],
    "numpy int": np.s_[np.int8(1)],
    "all ints": np.s_[1, 2, 3],
    "bool list": np.s_[[True, False]],
}

ERRORS = {
    "int": np.s_[5],
    "negative int": np.s_[0, -4],
    "too many": np.s_[0, 0, 0, 0],
    "too many and ellipsis": np.s_[0, ..., 0, 0, 0],
    "two ellipses": np.s_[..., 0, ...],
    "float": np.s_[1.5],
    "text": np.s_["a"],
    "float array": np.s_[np.ones(2)],
    "array out of bounds": np.s_[[0, 2]],
    "array out of bounds below": np.s_[:, [-4, 0]],
    "mask of another shape": np.s_[np.ones((2, 2), bool)],
    "mask too deep": np.s_[np.ones((2, 3, 4, 1), bool)],
    "arrays that do not match": np.s_[[0, 1], [0, 1, 2]],
    "int beside array": np.s_[5, [0, 1]],
}


@pytest.mark.parametrize("key", READS.values(), ids=READS.keys())
def test_reads(key):
    ours = from_host(X)[key]
    expected = X[key]
    np.testing.assert_array_equal(ours.numpy(), expected)
    assert ours.dtype == expected.dtype


@pytest.mark.parametrize("key", READS.values(), ids=READS.keys())
def test_writes(key):
    part = X[key]
    for value in (7, np.arange(part.size, dtype=float).reshape(part.shape), from_host(part * 2)):
        ours, expected = from_host(X), X.copy()
        ours[key] = value
        expected[key] = value
        np.testing.assert_array_equal(ours.numpy(), expected)


@pytest.mark.parametrize("key", READS.values(), ids=READS.keys())
def test_writes_through_a_view(key):
    base = np.arange(48.0).reshape(4, 3, 4)
    ours, expected = from_host(base), base.copy()
    ours[::2, ::-1][key] += 100
    expected[::2, ::-1][key] += 100
    np.testing.assert_array_equal(ours.numpy(), expected)


@pytest.mark.parametrize("key", ERRORS.values(), ids=ERRORS.keys())
def test_errors_are_numpys(key):
    with pytest.raises(IndexError) as expected:
        X[key]
    with pytest.raises(IndexError) as found:
        from_host(X)[key]
    assert str(found.value) == str(expected.value)
    with pytest.raises(IndexError) as expected:
        X.copy()[key] = 1
    with pytest.raises(IndexError) as found:
        from_host(X)[key] = 1
    assert str(found.value) == str(expected.value)


def test_indices_of_ours():
    a = from_host(X)
    places, mask = from_host(INTEGERS), from_host(MASK)
    np.testing.assert_array_equal(a[places].numpy(), X[INTEGERS])
    np.testing.assert_array_equal(a[mask].numpy(), X[MASK])
    np.testing.assert_array_equal(a[places[0, 0]].numpy(), X[1])
    a[mask] = 0
    a[places[0], 1] = from_host(np.full(4, 5.0))
    expected = X.copy()
    expected[MASK] = 0
    expected[INTEGERS[0], 1] = 5
    np.testing.assert_array_equal(a.numpy(), expected)


def test_a_recorded_index_is_not_looked_at():
    a, places = from_host(X), from_host(INTEGERS) * 1
    result = a[places + 0]
    assert result.node.pending and result.shape == (2, 2, 3, 4)


def test_a_mask_with_a_scalar_is_a_where():
    a = from_host(X)
    a[a > 5] = 1
    assert a.node.op.name == "where"


@pytest.mark.parametrize("key", [
    lambda m: (..., m[0, 0]), lambda m: (..., m[0]), lambda m: (m[:, :, 0], slice(None)),
    lambda m: (slice(None), m[0]), lambda m: (slice(None), m[0, :, 0], ...),
    lambda m: (..., m[0, :, 0], slice(None)), lambda m: (m, ...), lambda m: (..., m[:, :, 0])])
def test_a_mask_of_some_axes_with_a_scalar_is_a_where(key):
    """It is not looked at, which would compute what is pending."""
    mask = X % 3 == 0
    expected = X.copy()
    a = from_host(X) * 1
    try:
        expected[key(mask)] = -1
    except IndexError as error:
        with pytest.raises(IndexError, match=re.escape(str(error))):
            a[key(mask)] = -1
        return
    a[key(from_host(mask) & True)] = -1
    assert a.node.op.name == "where" and a.node.pending
    np.testing.assert_array_equal(a.numpy(), expected)


@pytest.mark.parametrize("value", [1e300, -1, 3.7, True])
def test_scalars_are_cast_as_numpy_casts(value):
    for dtype in (np.float32, np.int64, bool):
        expected, ours = np.zeros(3, dtype), from_host(np.zeros(3, dtype))
        with np.errstate(all="ignore"):
            if value == 1e300 and dtype is np.int64:
                continue
            expected[1] = value
            ours[1] = value
        np.testing.assert_array_equal(ours.numpy(), expected)


@pytest.mark.parametrize("shape", [(0, 3), (2, 0), (0,), (3,)])
def test_writes_of_nothing_may_have_leading_axes_of_any_length(shape):
    key = [0, 1] if shape == (2, 0) else []
    for values in [(3, 1, 0), (2, 2, 0), (2, 0, 3), (2, 0), (0, 1, 3), (3, 2, 3), (1, 0, 1)]:
        found = []
        for of in (np.array, from_host):
            a, b = of(np.ones((4, *shape[1:]))), of(np.ones(values))
            try:
                a[key] = b
            except ValueError as error:
                found.append(str(error))
            else:
                found.append(a.tolist())
        assert found[0] == found[1], values


def test_write_errors():
    a = from_host(np.zeros((2, 3), np.uint8))
    with pytest.raises(OverflowError, match="Python integer 300 out of bounds for uint8"):
        a[0] = 300
    with pytest.raises(ValueError, match=r"from shape \(2,2\) into shape \(3,\)"):
        a[0] = np.ones((2, 2))
    with pytest.raises(TypeError):
        a[0] = None
    a[:] = np.ones((1, 1, 3))
    assert a.numpy().all()


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_random_array_indices(data):
    shape = data.draw(hnp.array_shapes(max_dims=3, min_side=1, max_side=5))
    x = np.arange(np.prod(shape)).reshape(shape)
    key = data.draw(hnp.integer_array_indices(shape))
    np.testing.assert_array_equal(from_host(x)[key].numpy(), x[key])
    ours, expected = from_host(x), x.copy()
    ours[key] = -1
    expected[key] = -1
    np.testing.assert_array_equal(ours.numpy(), expected)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_random_basic_indices(data):
    shape = data.draw(hnp.array_shapes(max_dims=3, min_side=0, max_side=5))
    x = np.arange(np.prod(shape)).reshape(shape)
    key = data.draw(hnp.basic_indices(shape, allow_newaxis=True))
    np.testing.assert_array_equal(from_host(x)[key].numpy(), x[key])


def test_flat():
    x = X.copy()
    a = from_host(x).T
    x = x.T
    assert a.flat[5].item() == x.flat[5] and len(a.flat) == 24
    np.testing.assert_array_equal(a.flat[3:9].numpy(), x.flat[3:9])
    np.testing.assert_array_equal(a.flat[[1, 4]].numpy(), x.flat[[1, 4]])
    a.flat[[1, 4]] = 50
    x.flat[[1, 4]] = 50
    a.flat[::5] = [1, 2]
    x.flat[::5] = [1, 2]
    np.testing.assert_array_equal(a.numpy(), x)
    a.flat = 3
    assert (a == 3).all() and [float(v) for v in a.flat][:2] == [3, 3]


def test_iteration_and_membership():
    a = from_host(X)
    assert [row.shape for row in a] == [(3, 4), (3, 4)]
    assert [v.item() for v in a[0, 0]] == [0, 1, 2, 3]
    assert 5 in a and 100 not in a and len(a) == 2
    for row in a:
        row[0] = -1
    assert (a[:, 0] == -1).all()
    with pytest.raises(TypeError, match="iteration over a 0-d array"):
        iter(a[0, 0, 0])
    with pytest.raises(TypeError, match="unsized"):
        len(a[0, 0, 0])


# Under `jit` --------------------------------------------------------------------------------------


@pytest.mark.parametrize("compile", ["never", "wait"])
def test_numbers_without_a_value_are_indices(compile):
    def indexed(xp, x, m, k):
        best, worst = x.argmax(), x.argmin()
        y, z = x * 2, m * 2
        y[best] = 7.0
        y[worst] += x[k]
        z[best % 3, k] = x[best]
        z[k] = m[k - 1] + x[:4]
        count = xp.zeros(5, int)
        count[k] += 1
        return x[best], m[k], m[best % 3, 1:], m[:, worst % 4], m[k, [0, 1]], y, z, count

    x, m = np.array([0.5, 3.0, -1.0, 2.0, 1.0]), np.arange(12.0).reshape(3, 4)
    with ta.config.override(compile=compile):
        replayed = ta.jit(lambda x, m, k: indexed(ta, x, m, k))
        for turn in range(3):
            wanted = indexed(np, x + turn, m, np.int64(turn))
            found = replayed(*map(ta.array, (x + turn, m, turn)))
            for ours, theirs in zip(found, wanted, strict=True):
                assert ours.dtype == theirs.dtype and ours.shape == np.shape(theirs)
                np.testing.assert_array_equal(ours, theirs)
        with pytest.raises(IndexError, match="out of bounds for axis 0 with size 3"):
            ta.evaluate(replayed(*map(ta.array, (x, m, 3))))


def test_ufuncs_add_at_places_without_a_value():
    def counted(xp, k, m, v):
        counts, sums, columns = xp.zeros(5, int), xp.ones(5, "f4"), xp.zeros((2, 5))
        xp.add.at(counts, k, 1)
        xp.subtract.at(sums, k - 1, v)
        xp.add.at(columns, (slice(None), k), m)
        xp.add.at(columns[1:, ::2], (0, k % 3), v)
        xp.add.at(columns, (1, k[0]), 2.0)
        return counts, sums, columns

    replayed = ta.jit(lambda k, m, v: counted(ta, k, m, v))
    samples = []
    for turn in range(3):
        given = (np.array([[0, 2, 2], [4, 1, 1], [3, 3, 3]][turn]), np.arange(6.0).reshape(2, 3),
                 np.array([0.5, 1.0, 2.0]) + turn)
        samples.append((given, counted(np, *given)))
        for ours, theirs in zip(replayed(*map(ta.array, given)), samples[-1][1], strict=True):
            assert ours.dtype == theirs.dtype
            np.testing.assert_array_equal(ours, theirs)
    stacked = [ta.array(np.stack(parts)) for parts in zip(*(given for given, _ in samples),
                                                          strict=True)]
    found = ta.vmap(lambda k, m, v: counted(ta, k, m, v))(*stacked)
    for ours, *theirs in zip(found, *(wanted for _, wanted in samples), strict=True):
        np.testing.assert_array_equal(ours, np.stack(theirs))
    slope = ta.vmap(ta.grad(lambda v, k: (counted(ta, k, v * ta.ones((2, 1)), v)[2] ** 2).sum()))
    one = ta.grad(lambda v, k: (counted(ta, k, v * ta.ones((2, 1)), v)[2] ** 2).sum())
    np.testing.assert_allclose(slope(stacked[2], stacked[0]), np.stack([
        np.asarray(one(ta.array(v), ta.array(k))) for (k, _, v), _ in samples]))


def test_what_is_a_view_with_numpy_is_not_written_in_vain():
    @ta.jit
    def adds(m, k):
        m = m.copy()
        row = m[k]
        row += 1
        return m

    with pytest.raises(ValueError, match=r"read-only: what an index names that has no value .*"
                                         r"instead of x\[i\] \+= y write x\[i\] = x\[i\] \+ y"):
        adds(ta.ones((3, 4)), ta.arange(2).max())
    assert (adds(ta.ones((3, 4)), ta.array(1)) == 1).all()  # an array names a copy
    m = ta.ones((3, 4))
    row = ta.jit(lambda m, k: m[k])(m, ta.array(1))
    row += 1  # as with NumPy, which copies what an array of one number names
    assert row.tolist() == [2.0] * 4 and (m == 1).all()


@pytest.mark.parametrize("part", [lambda x: x, lambda x: x.reshape(-1, 4), lambda x: x.flat])
def test_what_is_recorded_is_evaluated_once_and_then_iterated(part):
    with ta.config.override(at_once=1 << 10, first_seconds=1.0):
        x = ta.asarray(np.arange(20_000.0)) * 2
        assert x._array is None
        elements = iter(part(x))
        first = next(elements)
        assert x._array is not None
        assert type(elements).__module__ == "tiledarray.core._core" or kind != "c"
        x[4] = 7.0
        rest = [np.asarray(v) for v in elements]  # each is what it is by then
    expected = [np.asarray(v) for v in part(np.arange(20_000.0) * 2)]
    expected[4 if expected[0].shape == () else 1].flat[0] = 7.0
    np.testing.assert_array_equal([np.asarray(first), *rest], expected)


def test_a_flat_iterator_counts():
    with ta.config.override(at_once=1 << 10):
        flat = ta.arange(6.0).reshape(2, 3).T.flat
        found = [next(flat), next(flat)]
        assert flat.index == 2
        found += flat
        assert found == [0, 3, 1, 4, 2, 5] and flat.index == 6


NO_AXES = [
    (slice(2), [0, 1], ..., 1), (slice(3), [0, 1], ..., 1), (slice(None, None, -1), 2, ..., [0, 2]),
    ([0, 2], ..., 1, slice(2)), (1, ..., [0, 1], [1, 0]), ([0, 1], [1, 0], ..., 2),
    (slice(2), [[0], [1]], ..., [0, 2, 1]), (..., 1, [0, 1], slice(2)), (1, slice(2), [0, 1], ...),
    (slice(2), [True, False, True, True], ..., [0, 2, 1]),
]


@pytest.mark.parametrize("key", NO_AXES, ids=str)
def test_indices_on_both_sides_of_an_ellipsis_of_no_axes_are_no_neighbours(key):
    x = np.arange(60.0).reshape(3, 4, 5)
    expected = x[key]
    weights = np.arange(expected.size).reshape(expected.shape) + 0.5
    written, added = x.copy(), x.copy()
    written[key] = weights
    np.add.at(added, key, weights)
    def same(found, wanted):
        np.testing.assert_array_equal(np.asarray(found), wanted)

    with ta.config.override(at_once=0):
        same(ta.array(x)[key], expected)
        same(ta.jit(lambda v: v[key])(ta.array(x)), expected)
        same(ta.vmap(lambda v: v[key])(ta.array([x, -x])), np.array([expected, -expected]))
        ours = ta.array(x)
        ours[key] = weights
        same(ours, written)
        ours = ta.array(x)
        ta.add.at(ours, key, weights)
        same(ours, added)
        same(ta.grad(lambda v: (v[key] * weights).sum())(ta.array(x)), added - x)
