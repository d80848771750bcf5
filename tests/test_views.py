"""Views alias as NumPy's do: random chains of views and writes, compared after every step."""

import numpy
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tiledarray
from tests.plans import kinds, moved, nbytes, planned
from tiledarray import config
from tiledarray.arrays.tiledarray import TiledArray, from_host


def same(ours, numpys):
    assert ours.shape == numpys.shape
    assert ours.dtype == numpys.dtype
    np.testing.assert_array_equal(ours.numpy(), numpys)


@st.composite
def basic_indices(draw, shape):
    key = []
    for size in shape:
        kind = draw(st.sampled_from(["slice", "slice", "int", "new", "all"]))
        if kind == "int" and size:
            key.append(draw(st.integers(-size, size - 1)))
        elif kind == "new":
            key.append(None)
            key.append(slice(None))
        elif kind == "slice":
            bound = st.none() | st.integers(-size - 1, size + 1)
            step = draw(st.sampled_from([None, 1, 2, -1, -2, 3]))
            key.append(slice(draw(bound), draw(bound), step))
        else:
            key.append(slice(None))
    if draw(st.booleans()):
        cut = draw(st.integers(0, len(key)))
        while len(key) > cut and key[-1] == slice(None):
            key.pop()
    if draw(st.booleans()):
        key.append(Ellipsis)
    return tuple(key)


def factorizations(size):
    return [shape for shape in [
        (size,), (1, size), (size, 1), (2, size // 2), (size // 2, 2), (3, size // 3),
        (size // 4, 2, 2),
    ] if np.prod(shape) == size]


def step(data, ours, numpys):
    """Apply the same random view (or write) to both and return the pair of results."""
    kind = data.draw(st.sampled_from(
        ["index", "index", "index", "T", "reshape", "swap", "part", "squeeze", "ravel", "view"]
    ))
    if kind == "index":
        key = data.draw(basic_indices(numpys.shape))
        result = numpys[key]
        if not isinstance(result, np.ndarray):
            assert ours[key].item() == result
            return ours, numpys
        return ours[key], result
    if kind == "T":
        return ours.T, numpys.T
    if kind == "reshape":
        shape = data.draw(st.sampled_from(factorizations(numpys.size)))
        order = data.draw(st.sampled_from("CCF"))
        return ours.reshape(shape, order=order), numpys.reshape(shape, order=order)
    if kind == "ravel":
        return ours.ravel(), numpys.ravel()
    if kind == "swap" and numpys.ndim > 1:
        return ours.swapaxes(0, -1), numpys.swapaxes(0, -1)
    if kind == "part" and numpys.dtype.kind == "c":
        name = data.draw(st.sampled_from(["real", "imag"]))
        return getattr(ours, name), getattr(numpys, name)
    if kind == "squeeze":
        return ours.squeeze(), numpys.squeeze()
    return ours.view(), numpys.view()


def write(data, ours, numpys, k):
    kind = data.draw(st.sampled_from(["fill", "set", "add", "self", "flat", "mask"]))
    if kind == "fill":
        ours[...] = k
        numpys[...] = k
    elif kind == "set":
        key = data.draw(basic_indices(numpys.shape))
        shape = numpys[key].shape
        value = (np.arange(np.prod(shape, dtype=int)).reshape(shape) + k).astype(numpys.dtype)
        ours[key] = from_host(value) if data.draw(st.booleans()) else value
        numpys[key] = value
    elif kind == "add" and numpys.ndim:
        ours += k
        numpys += k
    elif kind == "self" and numpys.ndim and numpys.shape[0] > 1:
        ours[1:] += ours[:-1]
        numpys[1:] += numpys[:-1]
    elif kind == "flat":
        ours.flat[: numpys.size // 2] = k
        numpys.flat[: numpys.size // 2] = k
    elif kind == "mask":
        ours[ours == k] = k + 1
        numpys[numpys == k] = k + 1


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_views_and_writes_mirror_numpy(data):
    shape = data.draw(st.sampled_from([(24,), (4, 6), (2, 3, 4), (12, 1, 2)]))
    dtype = data.draw(st.sampled_from([np.int64, np.float64, np.complex128]))
    root = np.arange(24).reshape(shape).astype(dtype)
    if dtype is np.complex128:
        root += 1j * root[::-1]
    pairs = [(from_host(root), root.copy())]
    for k in range(data.draw(st.integers(1, 6))):
        ours, numpys = pairs[data.draw(st.integers(0, len(pairs) - 1))]
        if data.draw(st.booleans()):
            pairs.append(step(data, ours, numpys))
        else:
            write(data, ours, numpys, k + 100)
        for left, right in pairs:
            same(left, right)


def test_old_values_live_on():
    a = from_host(np.arange(4.0))
    old = a + 0
    copy = a.copy()
    a[1:3] = 9
    np.testing.assert_array_equal(old.numpy(), np.arange(4.0))
    np.testing.assert_array_equal(copy.numpy(), np.arange(4.0))


def test_a_fully_indexed_element_is_a_copy():
    a = from_host(np.arange(4.0))
    element = a[2]
    a[2] = 50
    assert float(element) == 2
    view = a[2, ...]
    a[2] = 60
    assert float(view) == 60
    assert element.base is None and view.base is a


def test_in_place_on_a_scalar_makes_a_new_one():
    total = from_host(np.arange(4.0)).sum()
    before = total
    total += 1
    assert float(before) == 6 and float(total) == 7


@pytest.mark.parametrize("order", "CFAK")
def test_ravel_orders(order):
    x = np.arange(24.0).reshape(2, 3, 4)
    for view in (lambda a: a, lambda a: a.T, lambda a: a[:, ::2], lambda a: a.swapaxes(0, 1)):
        ours, numpys = view(from_host(x)), view(x.copy())
        same(ours.ravel(order), numpys.ravel(order))
        same(ours.flatten(order), numpys.flatten(order))


def test_reshape_is_a_view_exactly_where_numpys_is():
    x = np.arange(24.0).reshape(4, 6)
    a = from_host(x)
    for part in (np.s_[:, :3], np.s_[::2], np.s_[:, None], np.s_[1:3, ::-1], np.s_[:2]):
        for shape in ((-1,), (2, -1), (-1, 3)):
            ours, numpys = a[part].reshape(shape), x[part].reshape(shape)
            assert (ours.base is a) == np.shares_memory(numpys, x)
            assert ours.strides == numpys.strides
    with pytest.raises(ValueError, match="Unable to avoid creating a copy"):
        a[:, :3].reshape(-1, copy=False)


def test_assigning_a_shape_keeps_the_views():
    x = np.arange(6.0)
    a = from_host(x)
    ours, numpys = a[1:3], x[1:3]
    a.shape = (2, 3)
    x = x.reshape(2, 3)
    a[0] = -1
    numpys.base.reshape(2, 3)[0] = -1
    same(ours, numpys)
    ours += 5
    numpys += 5
    same(a, numpys.base.reshape(2, 3))
    transposed = a.T
    with pytest.raises(AttributeError, match="Incompatible shape"):
        transposed.shape = (6,)


def test_parts_of_complex_arrays_alias():
    x = np.arange(4.0) + 1j
    a = from_host(x)
    a.real[1:] = 7
    x.real[1:] = 7
    a.imag += 2
    x.imag += 2
    same(a, x)
    a.real = 3
    x.real = 3
    same(a, x)
    with pytest.raises(TypeError, match="does not have imaginary part"):
        from_host(np.ones(3)).imag = 1


def test_read_only_views():
    a = from_host(np.arange(9.0).reshape(3, 3))
    same(a.diagonal(1), np.arange(9.0).reshape(3, 3).diagonal(1))
    with pytest.raises(ValueError, match="assignment destination is read-only"):
        a.diagonal()[0] = 1
    with pytest.raises(ValueError, match="output array is read-only"):
        diagonal = a.diagonal()
        diagonal += 1
    for ufunc, *values in ((np.add, 1), (np.maximum, 9), (np.negative,)):
        with pytest.raises(ValueError, match="output array is read-only"):
            ufunc.at(a.diagonal(), [0], *values)
    same(a, np.arange(9.0).reshape(3, 3))
    assert not a.diagonal().flags.writeable and a.flags.writeable


@pytest.mark.parametrize("offset", [-4, -3, -1, 0, 2, 3, 5])
def test_diagonals(offset):
    x = np.arange(24.0).reshape(2, 3, 4)
    a = from_host(x)
    for axes in ((0, 1), (1, 2), (2, 0)):
        same(a.diagonal(offset, *axes), x.diagonal(offset, *axes))
        same(a.trace(offset, *axes), np.asarray(x.trace(offset, *axes)))


def test_setting_through_reshape_of_a_slice():
    x = np.arange(24.0).reshape(4, 6)
    a = from_host(x)
    ours, numpys = a[1:3].reshape(3, 4)[::2].T, x[1:3].reshape(3, 4)[::2].T
    ours[1:, 0] *= -1
    numpys[1:, 0] *= -1
    same(a, x)
    assert isinstance(ours, TiledArray)


PARTS = st.one_of(
    st.integers(-4, 4), st.sampled_from([None, Ellipsis, True, 1.0, np.int8(1), np.float64(1)]),
    st.builds(slice, *[st.sampled_from([None, 0, 1, -1, 2, 1.0, True, np.int16(1)])] * 3),
)


@given(st.lists(st.tuples(PARTS, PARTS), min_size=2, max_size=4))
def test_an_index_is_not_taken_for_an_equal_one_of_other_types(keys):
    x = np.arange(12).reshape(3, 4)
    ours = from_host(x)
    for key in [*keys, *reversed(keys)]:  # the second time from memory
        try:
            expected = x[key]
        except (IndexError, TypeError, ValueError):
            with pytest.raises((IndexError, TypeError, ValueError)):  # of two, either
                ours[key]
        else:
            np.testing.assert_array_equal(np.asarray(ours[key]), expected)


REINTERPRETED = {
    "same size": lambda x: x.view("i8"),
    "smaller": lambda x: x.view("i4"),
    "smaller, some": lambda x: x.view("u1")[..., ::8],
    "of a slice": lambda x: x[1:, 1:3].view("u4"),
    "of a transpose": lambda x: x.T.view("u8"),
    "twice": lambda x: x.view("u2").view("i8")[0],
}


@pytest.mark.parametrize("view", REINTERPRETED.values(), ids=REINTERPRETED)
def test_writes_through_another_dtype_reach_the_base(view):
    expected = np.arange(12.0).reshape(3, 4)
    ours = from_host(expected.copy())
    for x in (expected, ours):
        part = view(x)
        part += 3
        x[2] *= 2
        x += part.sum() / 1e300
    np.testing.assert_array_equal(ours.numpy(), expected)
    assert ours.view("i4").strides == expected.view("i4").strides


@pytest.mark.parametrize("make", [
    lambda xp: xp.arange(3.0)[::-1].view("u1"),
    lambda xp: xp.arange(6.0).reshape(2, 3).T.view("u1"),
    lambda xp: xp.arange(6.0).reshape(2, 3).T.view("i8"),
    lambda xp: xp.zeros((3, 1))[::-1].view("u1"),
    lambda xp: xp.arange(8.0)[::2].view("c16"), lambda xp: xp.arange(8.0)[::2][:1].view("u1"),
    lambda xp: xp.zeros((2, 0)).T.view("u1"), lambda xp: xp.arange(3.0).view("c16"),
    lambda xp: xp.broadcast_to(xp.arange(3.0)[:, None], (3, 2)).view("u1"),
    lambda xp: xp.array(3.0).view("u1"), lambda xp: xp.arange(4.0).view("c16"),
], ids=range(11))  # fmt: skip
def test_views_of_other_dtypes_are_refused_where_numpy_refuses(make):
    def outcome(module):
        try:
            return np.asarray(make(module)).tolist()
        except ValueError as error:
            return str(error)

    assert outcome(tiledarray) == outcome(np)


SCALARS_MADE = {
    "sum": lambda x: x.sum(), "element": lambda x: x[3], "of two": lambda x: x.max() * 2 - x.min(),
}
VIEWED = {
    "reshape": lambda x: x.reshape(1), "None": lambda x: x[None], "dots": lambda x: x[...],
    "T": lambda x: x.T, "view": lambda x: x.view(), "itself": lambda x: x,
}


@pytest.mark.parametrize("at_once", [0, 100])
@pytest.mark.parametrize("view", VIEWED)
@pytest.mark.parametrize("make", SCALARS_MADE)
@pytest.mark.parametrize("function", ["array", "asarray", "asanyarray", "copy"])
def test_an_array_that_is_made_of_a_scalar_is_written_through_its_views(
    function, make, view, at_once,
):
    def program(lib):
        scalar = SCALARS_MADE[make](lib.arange(8.0))
        whole = getattr(lib, function)(scalar)
        part = VIEWED[view](whole)
        part[...] = 5
        part += 1
        return np.asarray(whole), np.asarray(part), np.asarray(scalar)

    with tiledarray.config.override(at_once=at_once):
        for ours, theirs in zip(program(tiledarray), program(np), strict=True):
            np.testing.assert_array_equal(ours, theirs, strict=True)


OVERLAPS = [
    "y.flat[1:4] = y[:3]", "y.flat[[1, 2, 3]] = y[:3]", "y.flat = y[::-1]", "y[1:].flat = y[:-1]",
    "y[::2].flat = y[::-2]", "y[1:].flat[...] = y[:2]", "y.flat[::-1] = y",
    "y.flat[numpy.array([0, 1, 1, 1, 0, 1], bool)] = y[:3]",
    "y.view('i8').flat[1:] = y.view('i8')[:3]", "y.flat[1:] = y", "y.flat[1:4] = y[:3] + 0",
    "y.flat[1:4] = y[:3].astype('f4')", "y.reshape(2, 3).T.flat[2:] = y[:4]",
    "y.flat[1:] = y.view('i8')", "y[:5].flat[1:] = y[1:3]",
]


@pytest.mark.parametrize("statement", OVERLAPS)
@pytest.mark.parametrize("way", ["settled", "recorded", "jit", "vmap"])
def test_flat_reads_what_it_has_just_written(statement, way):
    code = compile(statement, "statement", "exec")

    def run(y):
        exec(code, {"numpy": numpy, "y": y})
        return y

    plain = np.random.default_rng(0).random((2, 6))
    wanted = np.stack([run(row.copy()) for row in plain])
    with tiledarray.config.override(at_once=0 if way == "recorded" else 1 << 16):
        x = tiledarray.array(plain)
        if way == "vmap":
            found = tiledarray.vmap(lambda row: run(row.copy()))(x)
        else:
            function = lambda row: run(row.copy())  # noqa: E731
            function = tiledarray.jit(function) if way == "jit" else function
            found = tiledarray.stack([function(row) for row in x])
        np.testing.assert_array_equal(np.asarray(found), wanted)


def test_flat_of_parts_that_overlap():
    for lib in (np, tiledarray):
        z = lib.arange(6.0) + 1j
        z.real.flat[1:] = z.real[:3]
        z.imag.flat[1:] = z.real[:3] + 2
        assert z.tolist() == [1j] + [2j] * 5


# What has no axes, and is an array in NumPy: a view of it shares its memory.
WITHOUT_AXES = [
    "s.astype('f4')", "s.astype('f8')", "s.copy()", "s.__copy__()", "s.__deepcopy__({})",
    "np.array(s)", "np.array(s, dtype='f4')", "np.asarray(s, dtype='f4')", "np.copy(s)", "s[...]",
    "np.where(s > 0, s, 1)", "np.where(True, s, s)", "np.select([s > 0], [s])",
    "np.astype(s, 'f4')",
    "np.median(s, keepdims=True)", "np.percentile(s, 50, keepdims=True)",
    "np.nanmedian(s, keepdims=True)", "np.tensordot(s, s, 0)", "np.tile(s, ())", "np.resize(s, ())",
    "np.pad(s, 1)", "np.pad(s, 1, mode='wrap')", "np.full_like(s, 3.0)", "np.zeros_like(s)",
    "s.reshape(())", "s.squeeze()", "x[:1].squeeze()", "x[3, ...]", "x[3, ...].copy()",
    "np.array(x.sum()).astype('f4')", "np.where(x.max() > 0, x.max(), 1.0)", "s.T", "s.view()",
    "np.add(s, 1, out=np.empty(()))", "np.copy(x.sum())", "np.array(x.max())", "s.real",
    "np.moveaxis(s, [], [])", "np.broadcast_arrays(s + 0, x[:1].reshape(()))[1].copy()",
]
# And what is a scalar there, of which a view is a copy.
SCALARS = [
    "x.sum()", "x.max().astype('f4')", "x.sum().copy()", "s + 1", "np.sqrt(s)", "x[3]",
    "np.median(x)", "np.percentile(x, 50)", "np.dot(x, x)", "np.clip(s, 0, 1)", "s.sum()",
]


def _written_through_a_view(np, expression):
    def function(x):
        s = (x[:1] * 2).reshape(())
        y = eval(expression, {"np": np, "s": s, "x": x})
        view = y[None]
        view[0] = 7
        return y + 0, view

    return function


@pytest.mark.parametrize("expression", WITHOUT_AXES + SCALARS)
@pytest.mark.parametrize("way", ["at once", "recorded", "jit"])
def test_views_of_what_has_no_axes(expression, way):
    x = numpy.arange(1.0, 7)
    wanted = [float(y.sum()) for y in _written_through_a_view(numpy, expression)(x)]
    assert wanted == [7.0, 7.0] if expression in WITHOUT_AXES else wanted[0] != 7.0
    function = _written_through_a_view(tiledarray, expression)
    with tiledarray.config.override(**({"at_once": 0} if way == "recorded" else {})):
        found = (tiledarray.jit(function) if way == "jit" else function)(tiledarray.array(x) * 1.0)
        assert [float(y.sum()) for y in found] == wanted


@pytest.mark.parametrize("change", ["s[None] += 5", "t = s[None]; t += 5", "s[None][0] = 5"])
@pytest.mark.parametrize("again", ["s[...]", "s.view('i8')", "s[None]"])
@pytest.mark.parametrize("at_once", [0, 65536])
def test_what_has_no_axes_stays_an_array_when_it_is_written(change, again, at_once):
    found = []
    with tiledarray.config.override(at_once=at_once):
        for library in (numpy, tiledarray):
            names = {"s": library.array(1.0)}
            exec(f"{change}; y = {again}; {change}", names)
            found.append([float(names[name].sum()) for name in "sy"])
    assert found[0] == found[1]


@pytest.mark.parametrize("make", [
    lambda np: np.broadcast_to(np.arange(3.0), (2, 3)),
    lambda np: np.broadcast_to(np.arange(12.0).reshape(4, 3)[::-1], (2, 4, 3)),
    lambda np: np.broadcast_to(np.arange(3.0), (2, 3))[0:1],
    lambda np: np.broadcast_to(np.arange(3.0), (2, 3)).T,
])
@pytest.mark.parametrize("text", [
    "x[()] = x", "x[:-1] = x[1:]", "x[...] = x", "x[0] = x[0]", "x[:] = x[::1]", "x[0] = 1"])
@pytest.mark.parametrize("at_once", [0, 65536])
def test_what_is_read_only_is_not_written_with_itself_either(text, make, at_once):
    with tiledarray.config.override(at_once=at_once):
        for library in (numpy, tiledarray):
            with pytest.raises(ValueError, match="read-only"):
                exec(text, {"x": make(library)})


@pytest.mark.parametrize("value", [[], numpy.zeros((0, 5)), numpy.zeros(0)], ids=str)
@pytest.mark.parametrize("at_once", [0, 65536])
def test_nothing_written_through_flat_is_nothing(value, at_once):
    with tiledarray.config.override(at_once=at_once):
        x = tiledarray.ones((2, 3))
        x.flat = value
        assert x.tolist() == numpy.ones((2, 3)).tolist()


@pytest.mark.parametrize("large", [False, True])
def test_fields_of_numbers_are_views(large):
    def facts(lib):
        x = lib.arange(12.0).reshape(3, 4)
        v = x.view([("re", "f8"), ("im", "f8")])
        yield v["re"].tolist(), v["im"].shape, v["im"].dtype
        v["im"] = 7
        v["re"][1:] += 100
        x[0, 2] = -1
        yield x.tolist(), v["re"].tolist()
        w = lib.arange(6, dtype="i4").view("i2, u1, u1")
        w["f0"] *= 2
        yield w["f0"].tolist(), w["f1"].tolist(), w["f2"].tolist(), w["f1"][::-1].tolist()
        for wrong in ("x", ""):
            with pytest.raises(ValueError, match=r"^no field of name"):
                v[wrong]
            with pytest.raises(ValueError, match=r"^no field of name"):
                v[wrong] = 1
        for plain in (x, x[0]):
            with pytest.raises(IndexError, match=r"only integers, slices"):
                plain["re"]
        yield x.tolist()

    with tiledarray.config.override(at_once=0 if large else 1 << 16):
        assert [*facts(tiledarray)] == [*facts(numpy)]


@pytest.mark.filterwarnings("ignore::numpy.exceptions.ComplexWarning")
@pytest.mark.parametrize("at_once", [0, 100_000])
def test_parts_of_complex_numbers_are_set_as_numpys(at_once):
    def program(np):
        z = np.array(numpy.arange(4) + 1j)
        view, one, real = z[::2], np.array(3 + 4j), np.arange(3.0)
        view.imag = 5
        z.real *= 2
        view.real = [7, 8]
        z[1:].imag += z[:-1].imag
        z.real, z.imag = z.imag.copy(), z.real.copy()
        one.real = 9
        one.imag -= 1
        real.real = [4, 5, 6]
        z[:1].real = 1j
        failed = []
        for array, part, value in (
                (real, "imag", 3), (z, "real", [1, 2, 3]), (real, "real", [1, 2]),
                (np.broadcast_to(z, (2, 4)), "real", 1)):
            with pytest.raises((TypeError, ValueError)) as error:
                setattr(array, part, value)
            failed.append((error.type, str(error.value)))
        return z, one, real, failed

    with config.override(at_once=at_once):
        *found, failed = program(tiledarray)
        *expected, failures = program(numpy)
        assert failed == failures
        for one, other in zip(found, expected, strict=True):
            numpy.testing.assert_array_equal(one, other)


# Bits ---------------------------------------------------------------------------------------------

BITS = {"f8": ("i8", "u8"), "f4": ("i4", "u4"), "i8": ("f8", "u8"), "u4": ("f4", "i4"),
        "u2": ("i2",), "i1": ("u1",), "f2": ("u2",), "?": ("u1",), "c8": ("f8", "i8")}


@pytest.mark.sampled(4)
@pytest.mark.compiler
@pytest.mark.parametrize("settings", [
    {"compile": "wait", "first_seconds": 0.0, "at_once": 0}, {"compile": "never", "at_once": 0},
    {"at_once": 1 << 16}])
@pytest.mark.parametrize("source", BITS)
def test_bits_are_read_and_written_as_other_numbers(source, settings):
    size = numpy.dtype(source).itemsize
    octets = numpy.random.default_rng(0).integers(0, 2 if source == "?" else 256, (7, 9 * size))
    x = octets.astype("u1").view(source)
    x[0] = 0 if source in "?i1u1i8u4u2" else [numpy.nan, -numpy.nan, numpy.inf] * 3
    for target in BITS[source]:
        def program(np, x, target=target):
            bits = x.view(target)
            turned = x[::2, ::-1].view(target)
            shifted = (bits if target[0] == "f" else bits >> 3).copy()
            if target[0] != "f":
                bits ^= 1
                x[1:].view(target)[:, 2] |= 4
            return x, bits, turned.T.copy(), shifted, x.T.view(target).copy()

        with config.override(**settings):
            found = [numpy.asarray(each) for each in program(tiledarray, tiledarray.array(x))]
        for mine, theirs in zip(found, program(numpy, x.copy()), strict=True):
            assert (mine.dtype, mine.shape) == (theirs.dtype, theirs.shape)
            assert mine.tobytes() == theirs.tobytes()


def test_bits_are_changed_in_place_by_one_kernel():
    with config.override(at_once=0):
        x = tiledarray.array(numpy.random.default_rng(0).random((500, 1000)))
        bits = x.view("i8")
        bits &= -2
        x *= 2
        plan = planned(x)
        assert kinds(plan) == ["map"] and moved(plan) == 2 * nbytes(x)


@pytest.mark.parametrize("at_once", [0, 1 << 16])
def test_bits_are_constants_to_gradients(at_once):
    def program(x):
        bits = x.view("i8")
        return ((bits ^ 1).view("f8") * x).sum()

    with config.override(at_once=at_once):
        x = numpy.array([1.5, -2.0, 3.0])
        found = tiledarray.grad(program)(tiledarray.array(x))
        assert found.tolist() == (x.view("i8") ^ 1).view("f8").tolist()


@pytest.mark.parametrize("settings", [{}, {"at_once": 0}, {"at_once": 0, "compile": "never"}])
def test_a_dtype_is_assigned_to_memory(settings):
    def program(np):
        def refused(change):
            with pytest.raises((TypeError, ValueError, AttributeError)) as raised:
                change()
            return type(raised.value).__name__, str(raised.value)

        c = np.arange(4.0)
        v = c[1:]
        c.dtype = "i8"
        yield c.tolist(), c.dtype, v.tolist(), c.base is None, c.flags.owndata
        c[0] = 1
        c ^= 1
        yield c.tolist(), v.tolist()
        c.dtype = "u1"
        yield c.shape, int(c.sum())
        c[3] = 9
        yield c.view("f8").tolist(), v.tolist()
        yield refused(lambda: setattr(c, "dtype", "no such")), refused(lambda: delattr(c, "dtype"))
        d = np.arange(6).reshape(2, 3).T
        yield refused(lambda: setattr(d, "dtype", "i4"))
        d.dtype = np.uint64
        yield d.tolist()
        z = np.ones((2, 4), "f4")
        z.dtype = "c8"
        yield z.tolist()
        z.dtype = "f4"
        z.shape = (8,)
        z.resize((3, 3), refcheck=False)
        yield z.tolist(), z.base is None

    with config.override(**settings):
        assert [*map(str, program(tiledarray))] == [*map(str, program(numpy))]
