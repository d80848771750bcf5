"""`as_strided` is a view, which may be written; and memory of others is shared, or read-only."""

import array
import ctypes
import math
import mmap
import multiprocessing

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tiledarray
from tiledarray import config

as_strided = tiledarray.lib.stride_tricks.as_strided


@st.composite
def layouts(draw, size, before=0):
    """A shape and strides in elements that stay in ``size`` elements, ``before`` of them behind."""
    shape, strides, low, high = [], [], -before, size - before - 1
    for _ in range(draw(st.integers(0, 4))):
        length = draw(st.integers(1, 4))
        most, least = high // max(length - 1, 1), -(-low // max(length - 1, 1))
        stride = draw(st.sampled_from([0, most, least]) | st.integers(least, most))
        reach = stride * (length - 1)
        low, high = low - min(reach, 0), high - max(reach, 0)
        shape.append(length)
        strides.append(stride)
    order = draw(st.permutations(range(len(shape))))
    return tuple(shape[axis] for axis in order), tuple(strides[axis] for axis in order)


CHANGES = {
    "all": lambda v, x, np: v.__setitem__(..., 7),
    "each": lambda v, x, np: v.__setitem__(
        ..., np.arange(v.size).reshape(v.shape).astype(v.dtype)),
    "first": lambda v, x, np: v.__setitem__(0, 5) if v.ndim else None,
    "every second": lambda v, x, np: v.__setitem__((..., slice(None, None, 2)), 9),
    "in place": lambda v, x, np: v.__imul__(v.dtype.type(2)),
    "the array": lambda v, x, np: x.__iadd__(x.dtype.type(1)),
    "the array's part": lambda v, x, np: x.__setitem__(0, 3),
}


@pytest.mark.parametrize("at_once", [0, 524288])
@given(data=st.data())
@settings(deadline=None)
def test_layouts_are_views_as_numpys_are(data, at_once):
    shape = data.draw(st.sampled_from([(1,), (7,), (12,), (3, 4), (4, 1), (2, 3, 2)]))
    dtype = data.draw(st.sampled_from(["f8", "f4", "i4", "u1", "c16"]))
    with config.override(at_once=at_once):
        numpys = numpy.arange(math.prod(shape)).reshape(shape).astype(dtype)
        ours = tiledarray.asarray(numpys)
        part = data.draw(st.sampled_from([
            lambda z: z[len(z) // 2:], lambda z: z[..., z.shape[-1] // 2:], lambda z: z[::-1],
            lambda z: z.T[1:] if z.shape[-1] > 1 else z, lambda z: z.reshape(-1)[::2]]))
        a, x = part(numpys), part(ours)
        before = (a.ctypes.data - numpys.ctypes.data) // a.itemsize
        reach, strides = data.draw(layouts(numpys.size, before))
        strides = tuple(stride * a.itemsize for stride in strides)
        u = numpy.lib.stride_tricks.as_strided(a, reach, strides)
        v = as_strided(x, reach, strides)
        assert isinstance(v, tiledarray.TiledArray)
        assert (v.shape, v.strides) == (u.shape, u.strides) or 1 in u.shape
        numpy.testing.assert_array_equal(v.numpy(), u)
        numpy.testing.assert_allclose((v * 2 + 1).sum().numpy(), (u * 2 + 1).sum(), 1e-5)
        for name in data.draw(st.lists(st.sampled_from(sorted(CHANGES)), max_size=3)):
            if name == "every second" and not u.ndim:
                continue
            CHANGES[name](u, a, numpy)
            CHANGES[name](v, x, tiledarray)
            for mine, theirs in ((v, u), (ours, numpys)):
                numpy.testing.assert_array_equal(mine.numpy(), theirs)


def test_a_diagonal_and_blocks_are_written_without_windows():
    with config.override(at_once=0):
        x = tiledarray.zeros((6, 6))
        as_strided(x, (6,), (7 * 8,))[:] = 1
        as_strided(x[1:, 1:], (2, 2), (6 * 8, 8))[:] += 5
        blocks = as_strided(x, (3, 3, 2, 2), (12 * 8, 2 * 8, 6 * 8, 8))
        blocks[2, 0] = 8
        assert "Overlapping" not in repr(blocks.steps)
    expected = numpy.eye(6)
    expected[1:3, 1:3] += 5
    expected[4:, :2] = 8
    numpy.testing.assert_array_equal(x, expected)


def test_a_part_has_the_memory_around_it():
    numpys = numpy.arange(24.).reshape(4, 6)
    x = tiledarray.asarray(numpys)
    for part in (numpy.s_[1:, ::2], numpy.s_[1:3, 1:], numpy.s_[::-1, 2]):
        a, v = numpys[part], x[part]
        assert v.strides == a.strides
        for memory, as_one in ((a, numpy.lib.stride_tricks.as_strided), (v, as_strided)):
            as_one(memory, (2, 2), (8, -16))[:] = [[-1, -2], [-3, -4]]
        numpy.testing.assert_array_equal(x, numpys)


@pytest.mark.parametrize("part", [
    lambda z: z.real[1:], lambda z: z.imag[::2], lambda z: z[1:].view(float), lambda z: z.T[:, 1:],
    lambda z: z.reshape(3, 2, 2)[1]])
def test_parts_of_other_dtypes_have_the_memory_around_them(part):
    numpys = numpy.arange(12.).reshape(3, 4) * (1 - 2j)
    a, v = part(numpys), part(tiledarray.asarray(numpys))
    assert v.strides == a.strides
    step = a.itemsize
    numpy.testing.assert_array_equal(
        as_strided(v, (2, 3), (-step, step)),
        numpy.lib.stride_tricks.as_strided(a, (2, 3), (-step, step)))


def test_memory_is_shared_where_numpys_is():
    def shared(np):
        z = np.ones((3, 4), complex)
        flat = z.reshape(-1)
        pairs = [(z, z.real), (z.imag, z.real), (z[::2], z[1::2]), (z.view(float), z[1:]),
                 (z.view("i4")[:, :4], z.T[1:]), (z, z.copy()),
                 (np.lib.stride_tricks.as_strided(z, (3,), (80,)), flat[5:6])]
        return [(np.shares_memory(*pair), np.may_share_memory(*pair)) for pair in pairs]

    assert shared(tiledarray) == shared(numpy)


@pytest.mark.parametrize("at_once", [0, 524288])
def test_what_lies_column_by_column(at_once):
    with config.override(at_once=at_once):
        x = tiledarray.ones((2, 3))
        assert tiledarray.isfortran(x.T) and not tiledarray.isfortran(x)


def test_numpys_own_function_gets_memory_with_these_strides():
    x = tiledarray.arange(24.).reshape(4, 6)
    found = numpy.lib.stride_tricks.as_strided(x[1:, ::2], (2, 2), x.strides)
    assert found.tolist() == [[6, 7], [12, 13]]
    found[1, 0] = -1
    assert x[2, 0] == -1


def test_no_layout_reaches_outside():
    x = tiledarray.zeros((4, 6))
    for view, strides in ((x, (80, 8)), (x, (-8, 8)), (x[2:], (-48, -48)), (x[1:, 1:], (48, 8))):
        with pytest.raises(ValueError, match="as_strided would reach from element"):
            as_strided(view, (4, 6), strides)
    with pytest.raises(ValueError, match="mismatch in length of strides and shape"):
        as_strided(x, (4,), (8, 8))
    assert not as_strided(x, (3, 0), (80, 8)).size
    assert not as_strided(x, writeable=False).flags.writeable


def test_elements_across_elements_are_numpys():
    x = tiledarray.arange(4, dtype="u2")
    across = as_strided(x, (5,), (1,))
    assert across.tolist() == [0, 256, 1, 512, 2]
    across[1] = 3
    assert x.tolist() == [768, 0, 2, 3]
    assert not as_strided(x, (5,), (1,), writeable=False).flags.writeable


def test_gradients_pass_through_layouts():
    def windows(x):
        return (as_strided(x, (6, 3), (8, 8)) ** 2).sum()

    x = numpy.arange(8.)
    counts = [1, 2, 3, 3, 3, 3, 2, 1]
    numpy.testing.assert_allclose(tiledarray.grad(windows)(tiledarray.asarray(x)), 2 * x * counts)
    turned = numpy.arange(8.).reshape(2, 4).T
    numpy.testing.assert_array_equal(
        tiledarray.grad(lambda x: as_strided(x, (3,), x.strides[:1]).sum())(turned),
        [[1, 0], [1, 0], [1, 0], [0, 0]])
    numpy.testing.assert_allclose(
        tiledarray.jit(lambda x: as_strided(x, (6, 3), (8, 8)).sum(1))(x),
        [3, 6, 9, 12, 15, 18])


# ---- memory of others ----------------------------------------------------------------------------


def _file():
    return mmap.mmap(-1, 32)


@pytest.mark.parametrize("make", [
    lambda: bytearray(32), lambda: array.array("d", [0] * 4), lambda: (ctypes.c_double * 4)(),
    lambda: multiprocessing.RawArray("d", 4), _file,
    lambda: memoryview(bytearray(32)).cast("d")],
    ids=["bytearray", "array", "ctypes", "multiprocessing", "mmap", "memoryview"])
@pytest.mark.parametrize("taken", [
    tiledarray.frombuffer, tiledarray.asarray, tiledarray.asanyarray,
    lambda memory: tiledarray.array(memory, copy=False), tiledarray.ascontiguousarray])
def test_memory_that_others_write_is_shared(make, taken):
    memory = make()
    x = taken(memory)
    bytes_of = memoryview(memory).cast("B")
    x[1] = 3
    assert any(bytes_of)
    assert bytes_of.tobytes() == numpy.asarray(x).tobytes()
    bytes_of[:] = bytes(len(bytes_of))
    assert not numpy.asarray(x).any()
    (x * tiledarray.ones(x.shape)).numpy()  # it computes with ours


def test_copies_of_memory_that_others_write_are_ours():
    memory = bytearray(range(8))
    for x in (tiledarray.array(memory), tiledarray.asarray(memory, float),
              tiledarray.frombuffer(memory, "u1", device="cpu"),
              tiledarray.frombuffer(b"12", "u1")):
        assert isinstance(x, tiledarray.TiledArray)


def test_an_arrays_own_buffer_is_a_view_of_it():
    x = tiledarray.arange(4.)
    octets = tiledarray.frombuffer(x, numpy.uint8)
    octets[8:16] = 0
    assert x.tolist() == [0, 0, 2, 3]
    part = tiledarray.frombuffer(x, count=2, offset=16)
    assert part.base is x and part.tolist() == [2, 3]
    assert not tiledarray.frombuffer(x, "S8").flags.writeable  # a copy
    for wrong, words in (
            ({"count": 5}, "buffer is smaller"), ({"offset": 3}, "multiple of element"),
            ({"offset": 40}, "no greater than buffer length")):
        with pytest.raises(ValueError, match=words):
            tiledarray.frombuffer(x, **wrong)
    with pytest.raises(ValueError, match="not C-contiguous"):
        tiledarray.frombuffer(x.reshape(2, 2).T)
