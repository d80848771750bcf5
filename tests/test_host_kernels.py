"""The host's own texts: streamed stores, vectorised complex loops and divisions, extreme places."""

import platform
import re
import subprocess
from collections import OrderedDict
from dataclasses import replace

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tiledarray as np
from tests.plans import fresh_recorder, planned
from tiledarray import config
from tiledarray.core import forget_programs
from tiledarray.execution import executable, known
from tiledarray.fusion import limits
from tiledarray.kernels import HEADERS
from tiledarray.kernels.compile import host
from tiledarray.kernels.text.program import print_kernel
from tiledarray.ops.op import Update

pytestmark = pytest.mark.skipif(host.available() is not None, reason="needs a C++ compiler")
EDGES = [0, 1, -1, 2, -2, 7, 2**53, 2**53 + 1, -(2**53) - 1, 2**63 - 1, 2**63 - 2, -(2**63)]

WORDS = st.one_of(st.sampled_from(EDGES), st.integers(-(2**63), 2**63 - 1))
SHIFTS = st.integers(0, 62)


clean = fresh_recorder(compile="wait")


@pytest.fixture
def streaming(monkeypatch):
    """Everything that a map stores is streamed; nothing has been planned before."""
    monkeypatch.setattr(limits, "HOST", replace(limits.HOST, streamed_bytes=0, streamed_lanes=1))
    monkeypatch.setattr(known, "executables", OrderedDict())
    forget_programs()
    monkeypatch.setattr(config, "at_once", 0)


@pytest.mark.sampled(12)
@pytest.mark.parametrize("dtype", ["bool", "u1", "i2", "f2", "f4", "f8", "c8", "c16"])
@pytest.mark.parametrize("shape", [(1,), (63,), (3001,), (5, 257), (7, 1000), (40, 3, 131)])
def test_streamed_stores_equal_numpy(streaming, shape, dtype):
    """Rows that begin anywhere in a line, chunks that are not full."""
    x = (numpy.arange(numpy.prod(shape)) % 91).reshape(shape).astype(dtype)
    ours = np.asarray(x)
    result = np.where(ours[..., ::-1] == ours, ours, ours[..., ::-1])
    assert planned(result).kernels[0].schedule.streamed
    expected = numpy.where(x[..., ::-1] == x, x, x[..., ::-1])
    numpy.testing.assert_array_equal(result.numpy(), expected)


def test_large_results_are_streamed_and_updates_are_not():
    side = 2048  # 32 MiB of float64
    x = np.asarray(numpy.ones((side, side)))
    assert planned(x + 1).kernels[0].schedule.streamed
    assert not planned(x[:64] + 1).kernels[0].schedule.streamed
    assert not planned((x + 1).sum()).kernels[0].schedule.streamed
    x[1:-1, 1:-1] *= 2.0
    updates = [kernel for kernel in planned(x).kernels
               if any(isinstance(store.sink.value.op, Update) for store in kernel.stores)]
    assert updates
    assert not any(kernel.schedule.streamed for kernel in updates)


@pytest.mark.parametrize("line", [
    "np.abs(z)", "z * z", "np.exp(z)", "z / (z + 1)",
    "i // i[::-1]", "i // 7", "i % i[::-1]", "i % 7",
])  # fmt: skip
def test_lanes_vectorise(line, tmp_path):
    """Complex numbers and 64-bit divisions included."""
    if "i" in line and "avx512dq" not in host._processor():
        pytest.skip("64-bit integers become floats one by one on this processor")
    if host.compiler().clang:
        pytest.skip("reads the notes of g++")
    z = np.asarray(numpy.ones(2**12, complex))
    i = np.asarray(numpy.ones(2**12, int))
    kernel = planned(eval(line, {"np": np, "z": z, "i": i})).kernels[0]
    source = executable.source_of(kernel, print_kernel(kernel, device=False))
    (tmp_path / "kernel.cpp").write_text(source)
    command = [*host.compiler().command, *host.flags(), "-iquote", str(host.HEADERS),
               str(tmp_path / "kernel.cpp"), "-o", str(tmp_path / "kernel.so"), "-fopt-info-vec"]
    notes = subprocess.run(command, check=True, capture_output=True, text=True).stderr
    assert re.search(r"kernel\.cpp:.*loop vectorized", notes)


VECTOR_CALL = re.compile(r"call\s+_ZGV\w+_one_")  # of a loop; the wrappers call `_ZGV…_sin`
VECTOR_POWER = re.compile(r"\bv?psll[dq]\s+\$(23|52)")  # of two, of several exponents at a time
VECTOR_EXPONENT = re.compile(r"\bv?(cvtdq2ps|psrlq)\b")  # of the numbers in a logarithm


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(WORDS, WORDS, SHIFTS, SHIFTS), min_size=1, max_size=200))
def test_divisions_of_int64_equal_numpys(pairs):
    x = numpy.array([a >> k for a, _, k, _ in pairs])
    y = numpy.array([b >> k for _, b, _, k in pairs])
    near = numpy.where(numpy.arange(len(x)) % 2, x, x * y - 1)
    for values in (x, near):
        ours, by = np.asarray(values), np.asarray(y)
        with numpy.errstate(all="ignore"):
            for function in (numpy.floor_divide, numpy.remainder, numpy.fmod):
                numpy.testing.assert_array_equal(
                    getattr(np, function.__name__)(ours, by).numpy(), function(values, y))


@pytest.mark.sampled(32)
@pytest.mark.parametrize("dtype", ["?", "u1", "i1", "i4", "i8", "f2", "f4", "f8", "c8"])
@pytest.mark.parametrize("shape", [(1,), (5000,), (3, 700), (700, 3), (130, 200)])
@pytest.mark.parametrize("worst", [False, True])
def test_places_of_extremes_are_numpys(shape, dtype, worst):
    """The first of equal ones; also where every element is the worst there is."""
    random = numpy.random.default_rng(0)
    x = random.integers(0, 2 if dtype == "?" else 40, shape).astype(dtype)
    for name in ("argmax", "argmin"):
        if worst:
            x = numpy.full(shape, _worst(x.dtype, name))
        for axis in (None, 0, -1):
            expected = getattr(numpy, name)(x, axis=axis)
            numpy.testing.assert_array_equal(getattr(np, name)(np.asarray(x), axis=axis), expected)


def _worst(dtype, name):
    """The element that every other is ahead of."""
    if dtype.kind == "b":
        return name == "argmin"
    if dtype.kind in "iu":
        limits = numpy.iinfo(dtype)
        return dtype.type(limits.min if name == "argmax" else limits.max)
    size = -numpy.inf if name == "argmax" else numpy.inf
    return dtype.type(complex(size, size) if dtype.kind == "c" else size)


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
@pytest.mark.parametrize("place", [0, 1, 63, 64, 4095, 4096, 4999])
def test_the_first_nan_is_most_extreme(place, dtype):
    x = numpy.linspace(-1, 1, 5000).astype(dtype)
    x[place] = x[4999] = numpy.nan
    assert int(np.argmax(np.asarray(x))) == place == int(np.argmin(np.asarray(x)))


def near(x, y):
    d, e = x[:, None] - x[None, :], y[:, None] - y[None, :]
    return np.log(np.exp(-(d * d + e * e)).sum(axis=1)).sum()


@pytest.mark.parametrize("function", [
    near, lambda x, y: (np.maximum(x, 0) * np.exp(x * y)).sum(),
    lambda x, y: (abs(x) * np.exp(y) * np.log(x + y)).sum(),
], ids=["near", "relu", "abs"])
def test_gradients_vectorise(function, tmp_path):
    if platform.machine() != "x86_64" or host.compiler().libmvec < 2:
        pytest.skip("no vector functions of glibc's")
    x = np.array(numpy.linspace(0.1, 1, 600, dtype="f4"))
    plan = planned(*np.grad(function, (0, 1))(x, x * 2))
    for number, kernel in enumerate(plan.kernels):
        text = print_kernel(kernel, device=False).text.replace("NAME", "gradient")
        path = tmp_path / f"{number}.cpp"
        path.write_text(text)
        command = [*host.compiler().command, *host.flags(), "-iquote", str(HEADERS), "-S",
                   "-o", "-", str(path)]
        found = subprocess.run(command, check=True, capture_output=True, text=True)
        assert "m_exp" not in text or VECTOR_POWER.search(found.stdout), text


@pytest.mark.sampled(3)
@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize(("line", "pattern"), [
    *((line, VECTOR_CALL) for line in (
        "np.power(x, y)", "np.power(x, 1.7)", "x ** 5", "(x * x) ** -1.5", "np.exp2(x)",
        "np.sin(x)", "np.tan(x)", "np.arctan2(x, y)", "np.cbrt(x)", "np.tanh(x)", "np.log1p(x)",
        "np.float_power(x, y)", "np.hypot(x, y)")),
    ("np.exp(x)", VECTOR_POWER), ("np.log(x)", VECTOR_EXPONENT),
])
def test_functions_of_glibc_are_called_for_vectors(line, pattern, dtype, tmp_path):
    """And our own are made of vectors: exponentials and logarithms."""
    if platform.machine() != "x86_64" or host.compiler().libmvec < 2:
        pytest.skip("no vector functions of glibc's")
    x, y = (np.array(numpy.linspace(0.1, 1, 600, dtype=dtype)) for _ in range(2))
    (kernel,) = planned(eval(line, {"np": np, "x": x, "y": y})).kernels
    text = print_kernel(kernel, device=False).text.replace("NAME", "function")
    (tmp_path / "function.cpp").write_text(text)
    command = [*host.compiler().command, *host.flags(), "-iquote", str(HEADERS), "-S", "-o", "-",
               str(tmp_path / "function.cpp")]
    found = subprocess.run(command, check=True, capture_output=True, text=True)
    assert pattern.search(found.stdout), text


UNUSUAL = [-numpy.inf, -1e9, -750, -744.9, -710, -200, -104.2, -103.9, -88, -87.2, -0.0, 0.0,
           1e-310, 1e-40, 88.6, 88.8, 89.5, 709.7, 709.9, 1e9, numpy.inf, numpy.nan]


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("name", ["exp", "log", "tanh"])
def test_unusual_arguments_are_as_others(name, dtype):
    """Masks are made of them; a library's vector functions do them one by one."""
    with numpy.errstate(all="ignore"):
        x = numpy.resize(numpy.array(UNUSUAL), 600).astype(dtype)
        expected = getattr(numpy, name)(x)
        with config.override(compile="wait", at_once=0, first_seconds=0.0):
            found = getattr(np, name)(np.array(x)).numpy()
    tiny = numpy.finfo(dtype).smallest_subnormal
    numpy.testing.assert_allclose(found, expected, rtol=4 * numpy.finfo(dtype).eps, atol=tiny)
    assert (numpy.signbit(found) == numpy.signbit(expected))[~numpy.isnan(expected)].all()
    text = (HEADERS / "exponentials.h").read_text()
    assert "TA_LIBRARY" not in text and " if (" not in text


def test_choices_by_one_mask_vectorise(tmp_path):
    x, y = (np.array(numpy.linspace(0.1, 1, 600, dtype="f4")) for _ in range(2))
    mask = np.array(numpy.arange(600) % 3 == 0)
    (kernel,) = planned(np.where(mask, x, y) + np.where(mask, y, 1.0) * x).kernels
    path = tmp_path / "choices.cpp"
    path.write_text(print_kernel(kernel, device=False).text.replace("NAME", "choices"))
    command = [*host.compiler().command, *host.flags(), "-iquote", str(HEADERS), "-c",
               "-o", str(tmp_path / "choices.o"), str(path), "-fopt-info-vec"]
    if host.compiler().clang:
        pytest.skip("clang reports otherwise")
    found = subprocess.run(command, check=True, capture_output=True, text=True)
    assert "tile_host.h" in found.stderr or "choices.cpp" in found.stderr, found.stderr


@pytest.mark.sampled(2)
@pytest.mark.parametrize("dtype", ["f8", "c16"])
@pytest.mark.parametrize("axis", [None, 0, 1])
@pytest.mark.parametrize("there", [0.0, numpy.inf, numpy.nan])
def test_squares_beyond_the_largest_number_are_infinite(dtype, axis, there):
    """And not NaN, which an infinite element leaves."""
    x = (numpy.random.default_rng(0).standard_normal((300, 400)) * 1e200).astype(dtype)
    x[3, 4] = there
    with numpy.errstate(all="ignore"):
        expected = x.var(axis=axis)
    with config.override(compile="wait", at_once=0, first_seconds=0.0):
        numpy.testing.assert_array_equal(np.array(x).var(axis=axis).numpy(), expected)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("name", ["exp", "log", "tanh"])
@pytest.mark.parametrize(("n", "m", "axis"), [(800, 2500, 1), (20000, 100, 0)])
def test_sums_over_tables_vectorise(name, dtype, n, m, axis, tmp_path):
    """Of several rows a turn g++ 12 makes branches of choices between floats."""
    if "fma" not in host._processor() or host.compiler().libmvec < 2:
        pytest.skip("counts multiply-adds, and calls of glibc's vector functions")
    x, y = (np.array(numpy.linspace(0.1, 1, k, dtype=dtype)) for k in (n, m))
    with config.override(at_once=0):
        (kernel,) = planned(getattr(np, name)(x[:, None] - y + 1).sum(axis)).kernels
    path = tmp_path / "table.cpp"
    path.write_text(print_kernel(kernel, device=False).text.replace("NAME", "table"))
    command = [*host.compiler().command, *host.flags(), "-iquote", str(HEADERS), "-S", "-o", "-",
               str(path)]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    # Of calls there are more for what is left of rows and lanes, the fewer lanes a vector has.
    vectors, singles, least = (
        (r"call\s+_ZGV\w+_one_", r"call\s+one_", 0.5) if name == "tanh" else
        (r"\bvf\w+p[sd]\b", r"\bvf\w+s[sd]\b", 2))
    assert len(re.findall(vectors, text)) >= least * len(re.findall(singles, text)) > 0
