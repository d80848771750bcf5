"""What others write into the memory of an array, and see there."""

import contextlib
import ctypes
import gc
import hashlib
import io
import operator
import sys
import threading
import weakref

import ml_dtypes
import numpy as np
import pytest

import tiledarray as ta
from tiledarray import config
from tiledarray.arrays.handle import shown
from tiledarray.core import is_lent, kind
from tiledarray.execution.spans import counters

SIZES = [1, 7, 5_000, 400_000]
GIVES_BUFFERS = kind == "c" or sys.version_info >= (3, 12)
needs_buffers = pytest.mark.skipif(not GIVES_BUFFERS, reason="a class in Python offers no buffer")

# An array of so many elements: computed, a constant, or still to be computed.
MADE = {
    "asarray": lambda n: ta.asarray(np.arange(float(n))),
    "arange": lambda n: ta.arange(float(n)),
    "zeros": lambda n: ta.zeros(n) if n % 2 else ta.zeros((n, 1))[:, 0],
    "pending": lambda n: ta.arange(float(n)) * 2 + 1,
    "in a view": lambda n: (ta.arange(2.0 * n) + 1)[::-2],
    "turned": lambda n: (ta.arange(float(n)).reshape(1, n) + 1).T[:, 0],
}


@pytest.fixture(params=[0, 1, 100_000], ids="at_once={}".format, autouse=True)
def either_state(request):
    with config.override(at_once=request.param):
        yield


def is_numpys(x, expected):
    found = np.asarray(x)
    assert found.dtype == expected.dtype and np.array_equal(found, expected, equal_nan=True)
    assert np.array_equal(shown(x * 1), expected * 1, equal_nan=True)


# ---- numpy.asarray -------------------------------------------------------------------------------


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("made", MADE)
def test_numpys_array_has_the_memory(made, size):
    x = MADE[made](size)
    expected = x.numpy()
    others = np.asarray(x)
    assert others.flags.writeable and not others.flags.owndata
    assert others.strides == x.strides or size == 1
    others[0] = expected[0] = 50
    is_numpys(x, expected)
    x[-1] = expected[-1] = 60  # small, and at once
    assert np.array_equal(others, expected)
    x += 1  # as a whole
    expected += 1
    assert np.array_equal(others, expected)
    x[...] = ta.sqrt(x)
    expected[...] = np.sqrt(expected)
    assert np.array_equal(others, expected)
    others *= 3
    expected *= 3
    is_numpys(x, expected)
    part = x[1::2]
    part -= 2
    expected[1::2] -= 2
    assert np.array_equal(others, expected)
    is_numpys(x, expected)


@pytest.mark.parametrize("size", SIZES)
def test_what_is_recorded_has_the_values_of_then(size):
    x = ta.arange(float(size)) + 1
    before = x * 2  # may wait, and reads the same memory
    others = np.asarray(x)
    again = x + 1
    others[...] = -1
    assert np.array_equal(before.numpy(), np.arange(size) * 2.0 + 2)
    assert np.array_equal(again.numpy(), np.arange(size) + 2.0)
    after = x * 2 + x
    others[...] = 3
    assert set(after.tolist()) == {-3.0} and set((x * 2).tolist()) == {6.0}
    copied = x.copy()
    others[0] = 0
    assert copied[0] == 3 and x[0] == 0


def test_nothing_is_copied_again_where_nothing_changed():
    x = ta.arange(100_000.0) + 1
    others = np.asarray(x)
    node = x.node
    assert x.node is node
    others[77] = 0
    assert x.node is not node


@pytest.mark.parametrize("size", [7, 400_000])
def test_a_loan_ends_with_the_last_view(size):
    x = ta.arange(float(size))
    others = np.asarray(x)
    part = others[2:5].reshape(3, 1).T
    assert is_lent(x) and is_lent(x[1:])
    del others
    gc.collect()
    part[0, 0] = 9
    assert is_lent(x) and x[2] == 9
    y = x + 1
    del part
    gc.collect()
    assert not is_lent(x)
    x[2] = 4
    assert y[2] == 10 and (x + 1)[2] == 5


def test_who_has_the_memory_keeps_it():
    x = ta.arange(400_000.0) * 2
    others = np.asarray(x)[5:]
    seen = weakref.ref(x)
    del x
    gc.collect()
    assert seen() is None
    kept = [np.full(400_000, 7.0) for _ in range(8)]  # takes what is free
    assert np.array_equal(others, np.arange(5, 400_000) * 2.0) and kept


def test_conversions_and_copies():
    x = ta.arange(5)
    assert np.asarray(x, "f4").dtype == np.float32
    for copied in (np.array(x), x.numpy(), np.asarray(x, "f8"), np.array(x, copy=True),
                   np.asarray(x, x.dtype)):
        copied[...] = -1
    assert x.tolist() == [0, 1, 2, 3, 4]
    others = np.array(x, copy=False)
    assert np.shares_memory(others, x) and np.may_share_memory(x[1:], others[:3])
    assert not np.shares_memory(x[2:], others[:2]) and not np.shares_memory(x, np.arange(5))
    with pytest.raises(ValueError, match="Unable to avoid copy"):
        np.array(x, "f8", copy=False)
    assert type(x.numpy()) is np.ndarray and ta.ones((3, 2)).T.numpy().flags.c_contiguous
    scalar = np.asarray(x.sum())
    scalar[...] = 7
    assert x.sum() == 10
    assert np.asarray(ta.zeros(0)).shape == (0,) and np.asarray(ta.zeros((2, 0)).T).shape == (0, 2)


def test_dtypes():
    for dtype in "?bhilqBHILQefdFD":
        x = ta.zeros(4, dtype)
        others = np.asarray(x)
        assert others.dtype == np.dtype(dtype)
        others[1] = 1
        assert x.tolist() == [0, 1, 0, 0], dtype


def test_what_cannot_be_written_is_not():
    for x in (ta.broadcast_to(ta.arange(3.0), (2, 3)), ta.arange(3.0)):
        x.flags.writeable = False
        with pytest.raises(ValueError, match="read-only"):
            np.asarray(x)[0] = 1
    x = ta.arange(3.0)
    others = np.asarray(x)
    x.flags.writeable = False
    others[1] = 8
    assert x[1] == 8 and not np.asarray(x).flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        x[0] = 1


def test_without_axes():
    x = ta.array(3.0)
    others = np.asarray(x)
    others[...] = 4
    y = x + 1
    others[...] = 6
    assert float(y) == 5 and float(x) == 6
    x[...] = 7
    assert others[()] == 7
    x += 0.5
    assert others[()] in (7, 7.5)  # `x` may be a new one, as README says


def test_shapes_and_dtypes_that_are_assigned():
    x = ta.arange(6.0)
    others = np.asarray(x)
    view = x[1:3]
    x.shape = (2, 3)
    others[1] = 50
    assert x[0, 1] == 50 == view[0]
    x[1, 2] = 60
    assert others[5] == 60
    x.dtype = "i8"
    x[0, 0] = 0
    assert others[0] == 0 and x.shape == (2, 3)
    x.view("f8")[0, 2] = 3
    assert others[2] == 3


def test_resizing():
    x = ta.arange(4.0)
    others = np.asarray(x)
    with pytest.raises(ValueError, match="cannot resize an array that references"):
        x.resize(6)
    x.resize(6, refcheck=False)
    others[0] = 9
    assert x.tolist() == [0, 1, 2, 3, 0, 0] and others.tolist() == [9, 1, 2, 3]


@pytest.mark.parametrize("size", [7, 400_000])
def test_under_jit(size):
    @ta.jit
    def step(x, y):
        x += y
        x[1:] *= 2
        return (x * y).sum()

    x, y = ta.arange(float(size)), ta.ones(size)
    a, b = x.numpy(), y.numpy()
    others, those = np.asarray(x), np.asarray(y)
    for k in range(4):
        found = step(x, y)
        a += b
        a[1:] *= 2
        assert np.isclose(float(found), (a * b).sum()) and np.array_equal(others, a)
        others[0] = a[0] = k
        those[-1] = b[-1] = -k


@pytest.mark.parametrize("size", [7, 400_000])
def test_arrays_that_a_jitted_function_finds(size):
    x = ta.zeros(size)
    others = np.asarray(x)

    @ta.jit
    def add(y):
        x[...] = x + y
        return x.sum()

    for k in range(3):
        others[0] = 1
        assert add(ta.full(size, float(k))) == x.sum()
        assert np.array_equal(others, x) and others[0] == 1 + k


def test_in_gradients():
    w = ta.arange(5.0)
    others = np.asarray(w)

    def loss(x):
        return (x * x * w).sum()

    for k in range(3):
        others[...] = k
        x = ta.arange(5.0)
        given = np.asarray(x)
        assert ta.grad(loss)(x).tolist() == (2.0 * k * np.arange(5)).tolist()
        given[...] = 1
        assert ta.grad(loss)(x).tolist() == [2.0 * k] * 5


def test_what_has_a_history_is_a_copy_that_is_not_written():
    x = ta.variable(ta.arange(3.0))
    y = x * 2
    for array in (x, y):
        found = np.asarray(array)
        with pytest.raises(ValueError, match="read-only"):
            found[0] = 1
    with pytest.raises(ValueError, match="Unable to avoid copy"):
        np.array(y, copy=False)
    assert y.sum().grad(x).tolist() == [2, 2, 2]


def test_a_history_that_begins_later():
    buffer = ta.zeros(3)
    others = np.asarray(buffer)

    def loss(x):
        buffer[...] = x * 2
        return (buffer * buffer).sum()

    assert ta.grad(loss)(ta.arange(3.0)).tolist() == [0, 8, 16]
    assert others.tolist() in ([0, 0, 0], [0, 2, 4])  # it is another's memory by then


def test_threads():
    x = ta.zeros(300_000)
    others = np.asarray(x)
    wrong = []

    def read():
        for _ in range(20):
            y = x[:10] * 1
            if not set(y.tolist()) <= set(map(float, range(21))):
                wrong.append(y)

    threads = [threading.Thread(target=read) for _ in range(2)]
    for thread in threads:
        thread.start()
    for k in range(20):
        others[...] = k + 1
        x[5] = 3
    for thread in threads:
        thread.join()
    assert not wrong and x[6] == 20 and x[5] == 3


# ---- other libraries -----------------------------------------------------------------------------


@pytest.mark.parametrize("size", [20, 700])
def test_what_libraries_write(size):
    ndimage = pytest.importorskip("scipy.ndimage")
    linalg = pytest.importorskip("scipy.linalg")
    x = ta.asarray(np.random.default_rng(0).random((size, size)))
    out = ta.zeros((size, size))
    ndimage.gaussian_filter(x, 1, output=out)
    assert np.array_equal(out, ndimage.gaussian_filter(x.numpy(), 1))
    b, expected = out + 1, out.numpy() + 1
    linalg.blas.dscal(2.0, np.asarray(b).reshape(-1))
    assert np.array_equal(b, expected * 2)
    linalg.inv(np.asarray(b).T, overwrite_a=True)
    masked = np.ma.array(x, mask=x.numpy() > 0.5)
    masked[0, :] = 9
    assert (x[0] == 9).all()
    viewed = x.view(np.recarray)
    viewed[2] = 7
    assert (x[2] == 7).all()
    matrix = np.asmatrix(x)
    matrix[1, 1] = 8
    assert x[1, 1] == 8
    np.random.default_rng(1).random(out=np.asarray(x).reshape(-1))
    assert np.array_equal(x, np.random.default_rng(1).random((size, size)))


def test_sparse_matrices():
    sparse = pytest.importorskip("scipy.sparse")
    matrix = sparse.csr_matrix(np.eye(4))
    data = ta.arange(4.0)
    matrix.data = data
    matrix *= 2
    assert matrix.toarray().diagonal().tolist() == [0, 2, 4, 6]


# ---- buffers -------------------------------------------------------------------------------------


@needs_buffers
@pytest.mark.parametrize("size", [6, 100_000, 300_000])
def test_memory_that_numpy_goes_on_looking_at_lives(size):
    x = ta.arange(size) * 1.0
    views = [np.frombuffer(x), np.ndarray((size,), float, x), np.ma.frombuffer(x).data,
             np.recarray((size,), [("a", float)], buf=x)["a"]]
    kept = [np.full(size, 7.0) for _ in range(8)]  # takes what is free
    expected = np.arange(size) * 1.0
    for k, view in enumerate(views):
        view[k] = expected[k] = -k
        assert np.array_equal(view, expected) and np.array_equal(x, expected)
    x[1] = expected[1] = 50
    x += 1
    expected += 1
    kept += [np.full(size, 7.0) for _ in range(8)]
    assert all(np.array_equal(view, expected) for view in views) and kept
    found = weakref.ref(x)
    del x
    gc.collect()
    assert found() is not None  # the views keep it
    del views, view
    gc.collect()
    assert found() is None


@needs_buffers
def test_buffers():
    for plain in (np.arange(6.0).reshape(2, 3), np.array([1.5, -2], "f4"), np.zeros(0)):
        x = ta.asarray(plain)
        assert bytes(x) == bytes(plain) == bytes(x.data)
        assert x.data.format == memoryview(plain).format
        for refused in (memoryview, bytearray):
            with pytest.raises(TypeError, match=r"x\.data"):
                refused(x)
    x = ta.arange(3.0)
    view = x.data
    view[1] = 20.0
    assert x[1] == 20 and not view.readonly
    x += 1
    assert view.tolist() == [1, 21, 3]
    view.release()
    assert hashlib.md5(x).digest() == hashlib.md5(x.numpy()).digest()
    file = io.BytesIO()
    assert file.write(x) == 24 and file.getvalue() == bytes(x)
    x[...] = 0
    file.seek(0)
    file.readinto(x)
    assert x.tolist() == [1, 21, 3]
    assert b"".join([x, x]) == bytes(x) * 2
    with pytest.raises((ValueError, BufferError), match="contiguous"):
        io.BytesIO().write(x[::-1])
    assert x.data.tolist() == [1, 21, 3]
    x.data[2] = 4
    assert x[2] == 4
    lends_none = ta.variable(ta.zeros(2))
    with pytest.raises(TypeError, match=r"x\.numpy\(\)|read-write"):
        io.BytesIO(bytes(16)).readinto(lends_none)
    assert hashlib.md5(lends_none).digest() == hashlib.md5(bytes(16)).digest()


@needs_buffers
def test_pointers_for_c():
    x = ta.arange(400_000.0) + 1
    pointer = x.ctypes.data_as(ctypes.POINTER(ctypes.c_double))
    y = x * 2
    pointer[3] = 77
    assert x[3] == 77 and y[3] == 8 and (x * 2)[3] == 154
    x += 1
    assert pointer[3] == 78
    assert not hasattr(ta.variable(x), "ctypes")


def test_the_interface_is_there_for_pil():
    x = ta.asarray(np.arange(12, dtype="u1").reshape(3, 4)).T
    image = pytest.importorskip("PIL.Image").fromarray(x)
    assert np.array_equal(np.asarray(image), x.numpy())


def test_the_interface_of_what_lends_nothing():
    x = ta.variable(ta.arange(3.0)) * 2
    as_pil_reads = eval("lambda x: x.__array_interface__", {"__name__": "PIL.Image"})
    told = as_pil_reads(x)
    assert told["shape"] == (3,) and np.array_equal(told["data"], [0, 2, 4])
    assert not hasattr(x, "__array_interface__")


def test_dtypes_that_no_protocol_can_name():
    x = ta.ones(3, ml_dtypes.bfloat16) * 2
    for found in (np.asarray(x), np.array(x)):
        assert found.dtype == ml_dtypes.bfloat16 and found.tolist() == [2, 2, 2]


def test_errors_are_told():
    for _ in range(2):
        with pytest.raises(np.linalg.LinAlgError):
            np.asarray(ta.linalg.cholesky(ta.full((40, 40), -1.0)))

    @ta.jit
    def look(x):
        return np.asarray(x)

    with pytest.raises(TypeError, match="jit"):
        look(ta.zeros(3))


def test_dlpack_shares_memory():
    x = ta.arange(5.0)
    others = np.from_dlpack(x)
    y = x + 1
    x[1] = 30
    assert others[1] == 30 and y[1] == 2
    torch = pytest.importorskip("torch")
    there = torch.from_dlpack(x)
    there[2] = 40
    assert x[2] == 40 == others[2]


@pytest.mark.parametrize("size", [6_000, 400_000])
def test_what_is_written_elsewhere_meanwhile_stays(size):
    """A part is written recorded, as a whole; others write other parts while that is computed."""
    x, half = ta.zeros(size), size // 2
    others = np.asarray(x)
    stop = threading.Event()

    def outside():
        k = 0
        while not stop.is_set():
            k += 1
            others[half:] = k
            if not (others[half:] == k).all():
                wrong.append(k)

    wrong = []
    thread = threading.Thread(target=outside)
    thread.start()
    for k in range(30):
        x[:half] = ta.full(half, float(k)) + 1
        assert x[0] == k + 1 == x[half - 1]
    stop.set()
    thread.join()
    assert not wrong


VIEWED = {
    "reversed": lambda x: x[::-1].view("i8"), "every other": lambda x: x[::2].view("i8"),
    "a part": lambda x: x.reshape(2, -1)[:, 1:3].view("u8"),
    "turned": lambda x: x.reshape(2, -1).T.view("i8"),
    "in halves": lambda x: x.reshape(2, -1)[::-1, 1:3].view("i4"),
    "real": lambda x: x.view("c16").real.view("i8"),
}


@pytest.mark.parametrize("size", [8, 600_000])
@pytest.mark.parametrize("seen_as", VIEWED)
def test_views_as_other_dtypes(seen_as, size):
    x, y = ta.arange(float(size)), np.arange(float(size))
    ours, theirs = VIEWED[seen_as](x), VIEWED[seen_as](y)
    others = np.asarray(ours)
    assert others.flags.writeable and np.array_equal(others, theirs)
    x[:4], y[:4] = 1.5, 1.5
    assert np.array_equal(others, theirs)
    others[0] = theirs[0] = 7
    assert np.array_equal(x, y)

    @ta.jit
    def last_first(u):
        u[1:] = u[:-1]
        return u[::-1]

    found = last_first(ours)
    theirs[1:] = theirs[:-1]
    found[0], theirs[-1] = 3, 3
    assert np.array_equal(x, y) and np.array_equal(others, theirs)


def test_an_array_without_axes_stays_one():
    x = ta.full((), 3, "int32")
    others = np.asarray(x)
    ta.jit(lambda u: u.__iadd__(1))(x)
    assert others[()] == 4
    del others
    x.real = 48
    assert x.dtype == np.int32 and x == 48
    x[...] = 5
    assert x == 5


def test_read_only_views_by_dlpack():
    x = ta.arange(6.0)
    for view in (ta.broadcast_to(x, (2, 6)), x.reshape(2, 3).diagonal()):
        found = np.from_dlpack(view)
        assert not found.flags.writeable
        x[0] += 1
        assert found.ravel()[0] == x[0]


@pytest.mark.parametrize("size", [5, 100_000, 400_000])
def test_arrays_of_numpys_are_written_into(size):
    x, plain = ta.arange(float(size)) + 1, np.arange(float(size))
    expected = plain.copy()
    kept = plain
    plain += x
    expected += np.arange(size) + 1.0
    np.multiply(x, x, out=plain)
    expected[...] = (np.arange(size) + 1.0) ** 2
    assert plain is kept and type(plain) is np.ndarray and np.array_equal(plain, expected)
    np.copyto(plain, x)
    assert np.array_equal(plain, x)
    np.copyto(plain, ta.variable(-x), where=x > 2)
    assert plain[0] == 1 and plain[-1] == -size
    found = np.divmod(x, 2, out=(plain, np.zeros(size)))
    assert found[0] is plain and plain[2] == 1 and found[1][2] == 1
    np.add(x, x, out=np.asarray(x))
    assert x[2] == 6


def test_nothing_is_recorded_of_what_is_lent():
    x, y = ta.arange(600_000.0) + 1, ta.ones(600_000)
    ta.evaluate(x, y)
    assert shown(x) is not None and shown(y) is not None
    others = np.asarray(x)
    before = counters["launches"], counters["op by op"]
    for _ in range(3):
        x += y
        x[1:] -= 1
        x[:-1] = y[1:]
    assert others[0] == 1 and others[-1] == 600_000 and others.sum() == 1_199_999
    if config.at_once:
        assert before == (counters["launches"], counters["op by op"])


def in_the_middle(step, act):
    """Trace where an array becomes a view of its value, and act at one of its opcodes."""
    left = [step]

    def trace(frame, event, arg):
        if frame.f_code.co_name not in ("become_view", "_look_otherwise"):
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            left[0] -= 1
            if not left[0]:
                sys.settrace(None)
                act()
                return None
        return trace

    return trace


@pytest.mark.parametrize("step", range(1, 50, 2))
@pytest.mark.parametrize("what", ["another shape", "an error"])
def test_a_shape_that_is_assigned_meanwhile_cuts_nothing_off(what, step):
    for size in (12, 600_000):
        x = ta.arange(float(size)) + 1
        others = np.asarray(x)

        def act(x=x, size=size):
            if what == "an error":
                raise KeyboardInterrupt
            x.shape = (3, size // 3)

        sys.settrace(in_the_middle(step, act))
        try:
            x.shape = (4, size // 4)
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(None)
        y = x * 2
        others[0] = 77
        assert y.reshape(-1)[0] == 2 and x.reshape(-1)[0] == 77
        x *= 1
        x.reshape(-1)[1] = 55
        assert others[0] == 77 and others[1] == 55


def test_very_many_lasting_loans_go_one_by_one():
    found = []

    def work():
        x = ta.arange(4.0)
        for k in range(30_000):
            assert x.ctypes.data
            x.resize(5 if k % 2 == 0 else 4, refcheck=False)
        del x
        found.append(1)

    before = threading.stack_size(256 * 1024)
    try:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    finally:
        threading.stack_size(before)
    assert found


def test_threads_that_assign_shapes_and_resize():
    """What they do is in no order; nothing is read that is gone."""
    x = ta.arange(60.0) * 1
    stop = threading.Event()

    def work(k):
        views = []
        while not stop.is_set():
            for act in (lambda: views.append(np.asarray(x)), views.clear,
                        lambda: setattr(x, "shape", (30, 2)), lambda: setattr(x, "shape", (60,)),
                        lambda: x.resize(60, refcheck=False), lambda: x.reshape(-1)[1:].sum(),
                        lambda: operator.iadd(x, 1)):
                with contextlib.suppress(Exception):
                    act()

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    switching = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        stop.wait(0.7)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
        sys.setswitchinterval(switching)
    x.shape = (60,)
    others = np.asarray(x)
    others[3] = -1
    assert x[3] == -1 and x.size == 60


def test_what_has_no_axes_is_lent_again():
    """Its node is a number: it has no memory that another could hold."""
    x = ta.array(3.0)
    for k in range(3):
        others = np.asarray(x)
        y = x + 1
        others[...] = k
        del others
        z = x + 1
        assert (float(y), float(z)) == ([4.0, 1.0, 2.0][k], k + 1.0)


def test_routines_that_take_what_they_convert_for_their_own():
    """f2py writes into what comes of no array of NumPy's: it names a dtype, so that is a copy."""
    lapack = pytest.importorskip("scipy.linalg.lapack")
    blas = pytest.importorskip("scipy.linalg.blas")
    for _ in range(2):
        a, b, d = ta.eye(3) * 4, ta.ones(3), ta.arange(3.0) + 4
        for _ in range(2):
            assert lapack.dgesv(a, b)[2].tolist() == [0.25] * 3
            assert np.allclose(lapack.dptsv(d, b[1:], b)[2], lapack.dptsv(
                np.arange(3.0) + 4, np.ones(2), np.ones(3))[2])
            lapack.dsyev(a.T)
            blas.dgemv(1.0, a, b, y=b)
        assert b.tolist() == [1, 1, 1] and d.tolist() == [4, 5, 6]
        assert np.array_equal(a, np.eye(3) * 4)


def test_what_pandas_keeps_is_its_own():
    pandas = pytest.importorskip("pandas")
    v = ta.arange(3.0)
    kept = [pandas.Series(v), pandas.Index(v), pandas.Series(v, index=[1, 2, 3])]
    v[:] = 77
    assert [each.tolist() for each in kept] == [[0, 1, 2]] * 3
