"""The scalar functions of kernels/math.h against NumPy: every op on every dtype of its loops.

One file of C++ a family is compiled for the host and run; the same text goes through NVRTC.
"""

from __future__ import annotations

import ctypes
import itertools
import pathlib
import platform
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass

import ml_dtypes
import numpy as np
import pytest

import tiledarray as ta
from tiledarray.kernels import HEADERS
from tiledarray.kernels.text.expression import ctype, render
from tiledarray.ops import arithmetic, bitwise, comparison, selection, transcendental
from tiledarray.ops.elementwise import (
    BY_NAME,
    BY_UFUNC,
    OUTPUTS_BY_UFUNC,
    has_kernel,
    loop_dtypes,
)
from tiledarray.ops.op import Elementwise

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
REALS = [np.dtype(code) for code in "efd"] + [BFLOAT16]
DTYPES = [np.dtype(code) for code in "?bBhHiIlL"] + REALS + [np.dtype(code) for code in "FD"]
FAMILIES = {
    "arithmetic": arithmetic,
    "transcendental": transcendental,
    "comparison": comparison,
    "bitwise": bitwise,
    "selection": selection,
}


@dataclass(frozen=True)
class Loop:
    """One op on operands of given dtypes."""

    op: Elementwise
    inputs: tuple[np.dtype, ...]
    output: np.dtype
    symbol: str

    def __str__(self) -> str:
        return f"{self.op.name}({', '.join(map(str, self.inputs))}) -> {self.output}"

    def signature(self) -> str:
        operands = "".join(
            f"const {ctype(dtype)}* x{k}, " for k, dtype in enumerate(self.inputs)
        )
        return f"({operands}{ctype(self.output)}* out, i64 n)"

    def body(self) -> str:
        names = [f"x{k}[i]" for k in range(len(self.inputs))]
        return f"out[i] = {render(self.op, self.inputs, self.output, names)};"

    def host(self) -> str:
        """A C++ function over arrays."""
        return (
            f'extern "C" void {self.symbol}{self.signature()} {{\n'
            f"    #pragma omp simd\n    for (i64 i = 0; i < n; i++) {self.body()}\n}}\n"
        )

    def device(self) -> str:
        """A CUDA kernel, one element a thread."""
        return (
            f'extern "C" __global__ void {self.symbol}{self.signature()} {{\n'
            f"    i64 i = blockIdx.x * (i64)blockDim.x + threadIdx.x;\n"
            f"    if (i < n) {self.body()}\n}}\n"
        )


def loops_of(op: Elementwise) -> Iterator[tuple[tuple[np.dtype, ...], np.dtype]]:
    """All loops of an op that kernels can do: operand dtypes and result dtype."""
    if op is selection.cast:
        yield from (((source,), target) for source in DTYPES for target in DTYPES)
    elif op.ufunc is None:
        yield from _uniform_loops(op)
    else:
        yield from _ufunc_loops(op)


def _uniform_loops(op: Elementwise) -> Iterator[tuple[tuple[np.dtype, ...], np.dtype]]:
    count = {"where": 3, "clip": 3, "make_complex": 2, "scaled": 2,
             **dict.fromkeys(FUSED, 3)}.get(op.name, 1)
    seen = set()
    for dtype in DTYPES:
        if op.name == "make_complex" and dtype.kind == "c":
            continue
        if op.name in FUSED and dtype not in (np.float32, np.float64):
            continue
        inputs, output = loop_dtypes(op, (dtype,) * count)
        if inputs not in seen:
            seen.add(inputs)
            yield inputs, output


def _ufunc_loops(op: Elementwise) -> Iterator[tuple[tuple[np.dtype, ...], np.dtype]]:
    seen = set()
    candidates = [
        tuple(np.dtype(code) for code in signature.split("->")[0])
        for signature in op.ufunc.types
        if not set(signature) & set("gGOmM")
    ]
    if op is not arithmetic.ldexp:
        candidates.append((BFLOAT16,) * op.ufunc.nin)
    for operands in candidates:
        try:
            inputs, output = loop_dtypes(op, operands)
        except TypeError:
            continue
        if inputs not in seen and has_kernel(*inputs, output):
            seen.add(inputs)
            yield inputs, output


def family_loops(family: str) -> list[Loop]:
    """Every loop of the ops declared in one file."""
    found = [op for op in vars(FAMILIES[family]).values() if isinstance(op, Elementwise)]
    pairs = itertools.chain.from_iterable(
        ((op, inputs, output) for inputs, output in loops_of(op)) for op in found
    )
    return [Loop(*pair, f"k{number}") for number, pair in enumerate(pairs)]


# One rounding of a product and a sum: made by the planner, for floats only.
FUSED = ("multiply_add", "multiply_subtract", "subtract_product")
FLAGS = [
    "-O3", "-march=native", "-std=c++17", "-fopenmp-simd", "-fno-math-errno",
    "-fno-trapping-math", "-ffp-contract=off", "-fwrapv", "-fno-strict-aliasing",
    "-shared", "-fPIC",
]
# The macros of each build: libmvec, scalar libm, and the device's complex functions on the host.
VARIANTS = {
    "libmvec": ["-DTA_LIBMVEC=2"],
    "libm": ["-DTA_LIBMVEC=0"],
    "own_complex": ["-DTA_LIBMVEC=0", "-DTA_OWN_COMPLEX", "-DTA_OWN_TRIGONOMETRY"],
}
CASES = [(family, "libmvec") for family in FAMILIES]
CASES += [("transcendental", "libm"), ("transcendental", "own_complex")]
CASES += [("arithmetic", "own_complex")]
if platform.machine() == "x86_64":  # processors that round products and sums apart
    VARIANTS["without_fma"] = ["-DTA_LIBMVEC=2", "-mno-fma"]
    CASES += [("transcendental", "without_fma")]

POWERS = {"power", "power_constant", "float_power"}
ULPS = 4
# Errors in units of the last place of the result's modulus.
COMPLEX_ULPS = {"expm1": 16, "log1p": 16}
# NumPy's own vector loops leave open which zero comes out.
EITHER_ZERO = {"maximum", "minimum", "fmax", "fmin", "clip"}

needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")


# ---- operands ----


def special_values(dtype: np.dtype) -> np.ndarray:
    """Values at the edges of a dtype."""
    if dtype.kind == "b":
        return np.array([False, True])
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        values = [0, 1, 2, 3, 7, 8, 31, 32, 63, 64, 100, info.max, info.max - 1, info.min]
        values += [info.min + 1, -1, -2, -3, -7] if dtype.kind == "i" else [info.max // 2 + 1]
        return np.array([value for value in values if value <= info.max], dtype)
    if dtype.kind == "c":
        parts = np.array(
            [0.0, -0.0, 1, -1, 0.5, -3, 1e-20, 1e20, 30, np.inf, -np.inf, np.nan],
            dtype.char.lower(),
        )
        pairs = np.array(list(itertools.product(parts, parts)), parts.dtype)
        return pairs.view(dtype).ravel()
    wide = [0.0, -0.0, 1, -1, 0.5, -0.5, 1.5, -1.5, 2, -2, 2.5, 3, -3, 10, 1e-3, 100, -100.5,
            89, -89, 710, 1e4, 1e6, 2.0**31, -(2.0**31), 2.0**63, 3e9, 1e15,
            np.inf, -np.inf, np.nan]
    info = np.finfo(dtype) if dtype != BFLOAT16 else np.finfo(np.float32)
    edges = [info.max, -info.max, info.tiny, -info.tiny, info.smallest_subnormal,
             info.tiny / 2, info.eps, 1 + float(info.eps), 1 - float(info.eps)]
    with np.errstate(all="ignore"):
        return np.concatenate([np.array(wide), np.array(edges, np.float64)]).astype(dtype)


def random_values(dtype: np.dtype, count: int, rng: np.random.Generator) -> np.ndarray:
    """Values of all magnitudes."""
    if dtype.kind == "b":
        return rng.integers(0, 2, count).astype(bool)
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        values = rng.integers(info.min, info.max, count, dtype, endpoint=True)
        return np.where(rng.random(count) < 0.5, values, values % 11).astype(dtype)
    if dtype.kind == "c":
        part = np.dtype(dtype.char.lower())
        return random_values(part, 2 * count, rng).view(dtype)
    powers = rng.choice([0.0, 1.0, 3.0, 8.0], count)
    values = rng.normal(size=count) * 10.0 ** (rng.uniform(-1, 1, count) * powers)
    with np.errstate(all="ignore"):
        return values.astype(dtype)


def operands(loop: Loop) -> list[np.ndarray]:
    """Special values in all combinations, then random ones."""
    rng = np.random.default_rng(7)
    dtypes = loop.inputs
    special = [special_values(dtype) for dtype in dtypes]
    if len(dtypes) == 3:
        special = [values[::7] if values.dtype.kind == "c" else values[::2] for values in special]
    elif len(dtypes) == 2:
        special = [values[::3] if values.dtype.kind == "c" else values for values in special]
    grid = np.meshgrid(*special, indexing="ij")
    arrays = [
        np.concatenate([part.ravel(), random_values(dtype, 2000, rng)])
        for part, dtype in zip(grid, dtypes, strict=True)
    ]
    if loop.op.name in POWERS and dtypes[0].kind == "i":
        arrays[1] = np.where(arrays[1] < 0, ~arrays[1], arrays[1])
    return [np.ascontiguousarray(array) for array in arrays]


# ---- comparison ----


def reference(loop: Loop, arrays: list[np.ndarray]) -> np.ndarray:
    found = loop.op.reference(
        np, *arrays, attrs=loop.inputs, shape=arrays[0].shape, dtype=loop.output
    )
    if loop.op is arithmetic.power_constant and loop.output.char in "fd":
        half = arrays[1] == 0.5  # as if that were one number
        with np.errstate(all="ignore"):
            found[half] = np.power(arrays[0][half], 0.5)
    return found


def better_reference(loop: Loop, arrays: list[np.ndarray]) -> np.ndarray | None:
    """The result computed in a wider dtype, where that is more exact than NumPy's own."""
    wider = {"f": "d", "d": "g", "F": "D", "D": "G"}
    if loop.op.ufunc is None or loop.output.char not in wider or loop.inputs[0].kind not in "fc":
        return None
    if loop.op.name in {"nextafter", "spacing"}:
        return None
    widened = [
        array.astype(wider[array.dtype.char]) if array.dtype.char in wider else array
        for array in arrays
    ]
    function = log1p_of_complex if loop.op.name == "log1p" else loop.op.ufunc
    with np.errstate(all="ignore"):
        result = function(*widened)
    if loop.op.ufunc.nout > 1:
        result = result[loop.op.name in {"frexp_exponent", "modf_integer"}]
    return result


def log1p_of_complex(z: np.ndarray) -> np.ndarray:
    """The logarithm of ``1 + z``, near 0 without the cancellation of NumPy's own."""
    if z.dtype.kind != "c":
        return np.log1p(z)
    x, y = z.real.astype(np.longdouble), z.imag.astype(np.longdouble)
    near = np.maximum(abs(x), abs(y)) < 0.5
    real = np.where(near, np.log1p(x * (2 + x) + y * y) / 2, np.log(np.hypot(1 + x, y)))
    result = np.empty(z.shape, np.clongdouble)
    result.real, result.imag = real, np.arctan2(y, 1 + x)
    return result


def ordered(array: np.ndarray) -> np.ndarray:
    """Floats as integers one apart where the floats are neighbours."""
    signed = np.dtype(f"i{array.dtype.itemsize}")
    bits = array.view(signed).astype(np.int64)
    magnitude = bits & np.int64(np.iinfo(signed).max)
    return np.where(bits < 0, -magnitude, magnitude)


def ulps_apart(actual: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Distance in units of the last place; huge where only one is NaN."""
    with np.errstate(over="ignore"):
        distance = np.abs(ordered(actual).astype(np.float64) - ordered(expected))
    distance = np.where(np.abs(distance) < 1e4, np.abs(ordered(actual) - ordered(expected)),
                        distance)
    a, b = np.isnan(actual), np.isnan(expected)
    return np.where(a & b, 0, np.where(a | b, np.inf, distance))


def real_mismatch(loop: Loop, arrays, actual, expected, exact) -> np.ndarray:
    limit = 1 if loop.output.itemsize == 2 else ULPS
    with np.errstate(all="ignore"):
        distance = ulps_apart(actual, expected)
        if exact is not None:
            distance = np.minimum(distance, ulps_apart(actual, exact.astype(loop.output)))
    if loop.op.name.startswith("logaddexp"):
        # The logarithm of a sum near 1 keeps the absolute accuracy of its arguments only.
        with np.errstate(all="ignore"):
            largest = np.maximum(np.abs(arrays[0]), np.abs(arrays[1]))
            distance[np.abs(actual - expected) <= limit * np.spacing(largest)] = 0
    if loop.op.name in FUSED:
        # The reference itself rounds the product, of float64 to long double's 64 bits.
        with np.errstate(all="ignore"):
            product = np.abs(arrays[0].astype(np.longdouble) * arrays[1])
            distance[np.abs(actual - expected) <= product * 2.0**-64] = 0
    wrong_zero = (
        (actual == 0) & (expected == 0) & (np.signbit(actual) != np.signbit(expected))
    )
    if loop.op.name in EITHER_ZERO or (loop.op.name == "sign" and loop.output == BFLOAT16):
        wrong_zero[:] = False
    return (distance > limit) | wrong_zero


def complex_mismatch(loop: Loop, arrays, actual, expected, exact, *, strict: bool) -> np.ndarray:
    """Relative error of the modulus, and the same parts infinite or NaN."""
    part = np.dtype(loop.output.char.lower())
    limit = COMPLEX_ULPS.get(loop.op.name, 8) * float(np.finfo(part).eps)
    tiny = float(np.finfo(part).tiny)

    def relative(w: np.ndarray) -> np.ndarray:
        error = abs(actual.astype(np.clongdouble) - w)
        return np.where(error <= 16 * tiny, 0, error / np.maximum(abs(w), tiny))

    with np.errstate(all="ignore"):
        error = relative(expected)
        if exact is not None:
            error = np.fmin(error, relative(exact))
        if loop.op.name in POWERS:
            # exp(y log x): an error of the logarithm counts |y log x| times.
            base, exponent = (array.astype(np.complex128) for array in arrays)
            limit = limit * np.fmax(1, np.abs(exponent * np.log(base)))
    plain = np.isfinite(expected) & np.isfinite(actual)
    mismatch = plain & ~(error <= limit)
    odd = ~plain
    same = np.ones(len(actual), bool)
    for a, e in ((actual.real, expected.real), (actual.imag, expected.imag)):
        same &= (np.isnan(a) == np.isnan(e)) & (np.isinf(a) == np.isinf(e))
        same &= ~np.isinf(e) | (np.sign(a) == np.sign(e)) | (not strict)
    if loop.op.name in {"square", "multiply", "scaled"}:
        # inf - inf or not: with fused multiply-adds, as in NumPy's vector loops, it differs.
        odd &= np.max([np.abs(array) for array in arrays], axis=0) < np.sqrt(np.finfo(part).max)
    return mismatch | (odd & ~same)


def mismatches(loop: Loop, arrays, actual, expected, *, strict: bool) -> np.ndarray:
    """Which elements are wrong."""
    if loop.output.kind in "biu":
        wrong = actual != expected
        if loop.op.name == "cast":
            wrong &= in_range(arrays[0], loop.output)
        return wrong
    exact = better_reference(loop, arrays)
    if loop.output.kind == "c":
        return complex_mismatch(loop, arrays, actual, expected, exact, strict=strict)
    return real_mismatch(loop, arrays, actual, expected, exact)


def in_range(array: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """All, save floats out of range of uint32, where NumPy's scalar and vector loops differ."""
    if dtype != np.uint32 or array.dtype.kind in "biu":
        return np.ones(array.shape, bool)
    values = array.real.astype(np.float64)
    return (values > -(2.0**31)) & (values < 2.0**32)


# ---- host ----


@pytest.fixture(scope="session")
def build(tmp_path_factory):
    """Return a function that compiles the loops of a family and loads them."""
    folder = tmp_path_factory.mktemp("kernels")

    def compile_family(family: str, variant: str) -> tuple[ctypes.CDLL, list[Loop]]:
        loops = family_loops(family)
        if variant == "own_complex":
            loops = [loop for loop in loops if loop.inputs[0].kind == "c"]
        source, library = folder / f"{family}_{variant}.cpp", folder / f"{family}_{variant}.so"
        source.write_text('#include "math.h"\n' + "".join(loop.host() for loop in loops))
        command = ["g++", *FLAGS, *VARIANTS[variant], "-iquote", str(HEADERS), str(source),
                   "-o", str(library), "-lmvec", "-lm"]
        subprocess.run(command, check=True, capture_output=True, text=True)
        return ctypes.CDLL(str(library)), loops

    return compile_family


def run(library: ctypes.CDLL, loop: Loop, arrays: list[np.ndarray]) -> np.ndarray:
    out = np.empty(arrays[0].shape, loop.output)
    pointers = [ctypes.c_void_p(array.ctypes.data) for array in [*arrays, out]]
    getattr(library, loop.symbol)(*pointers, ctypes.c_longlong(out.size))
    return out


def complaint(loop: Loop, arrays, actual, expected, wrong: np.ndarray) -> str:
    places = np.flatnonzero(wrong)
    shown = "; ".join(
        f"{tuple(array[k] for array in arrays)}: {actual[k]!r}, not {expected[k]!r}"
        for k in places[:6]
    )
    return f"{loop}: {len(places)} wrong: {shown}"


@pytest.mark.sampled(6)
@needs_compiler
@pytest.mark.parametrize(("family", "variant"), CASES)
def test_host_functions_equal_numpy(build, family, variant):
    library, loops = build(family, variant)
    complaints = []
    for loop in loops:
        arrays = operands(loop)
        expected, actual = reference(loop, arrays), run(library, loop, arrays)
        wrong = mismatches(loop, arrays, actual, expected, strict=variant != "own_complex")
        if wrong.any():
            complaints.append(complaint(loop, arrays, actual, expected, wrong))
    assert not complaints, "\n".join(complaints)


VECTORISED = [
    "m_sin(x) * m_cos(x)",
    "m_where(x > 0, m_log(x), m_sin(y))",
    "m_minimum(m_maximum(x, y), m_maximum(y, z))",
    "m_tanh(x) + m_power(m_abs(y), z)",
    "cast<f32>(cast<i32>(x)) + cast<f32>(cast<f16>(y))",
    "m_where(m_and(x > y, m_or(y > z, is_nan(z))), x, m_sqrt(y))",
    "m_abs(m_exp(make_complex(x, y)) / make_complex(y, z))",
    "cast<f32>(m_floor_divide(cast<i32>(x), cast<i32>(y)))",
    "m_sign(x) * m_heaviside(y, z) + m_rint(x)",
    "m_where(x > 0, y, z) + m_where(x > 0, m_exp(y), z * y) * m_where(x > 0, z, y)",
    "m_scaled(m_scaled(m_exp(x), y), z - x) + m_scaled(m_exp(x), x - y)",
]


@needs_compiler
def test_expressions_vectorise(tmp_path):
    """Also where g++ would join, sink or branch around the calls (see the notes in the headers)."""
    source = '#include "math.h"\n'
    for number, text in enumerate(VECTORISED):
        source += (
            f'extern "C" void v{number}(const f32* a, const f32* b, const f32* c, f32* o, i64 n) '
            "{\n#pragma omp simd\nfor (i64 i = 0; i < n; i++) "
            f"{{ f32 x = a[i], y = b[i], z = c[i]; o[i] = {text}; }}\n}}\n"
        )
    path = tmp_path / "vectors.cpp"
    path.write_text(source)
    command = ["g++", *FLAGS, *VARIANTS["libmvec"], "-iquote", str(HEADERS), str(path), "-S",
               "-o", str(tmp_path / "vectors.s"), "-fopt-info-vec"]
    notes = subprocess.run(command, check=True, capture_output=True, text=True).stderr
    lines = {int(line) for line in re.findall(r"vectors\.cpp:(\d+):.*loop vectorized", notes)}
    scalar = [text for number, text in enumerate(VECTORISED) if 4 + 4 * number not in lines]
    assert not scalar


# ---- CUDA, compiled offline ----


def nvrtc_compile(source: str, arch: str) -> tuple[bytes, str]:
    """Compile with NVRTC and return the cubin and the log."""
    nvrtc = pytest.importorskip("cuda.bindings.nvrtc", reason="needs cuda-bindings")
    try:
        program = nvrtc.nvrtcCreateProgram(source.encode(), b"family.cu", 0, [], [])[1]
    except RuntimeError as error:
        pytest.skip(f"needs the NVRTC wheel: {error}")
    options = [f"-arch={arch}", "-std=c++17", "--fmad=false", "--ptxas-options=-v",
               f"-I{HEADERS}"]
    (status,) = nvrtc.nvrtcCompileProgram(program, len(options), [o.encode() for o in options])
    # Fresh bytes, which NVRTC writes into: `b" " * 1` is the b" " of the whole process.
    log = bytes(nvrtc.nvrtcGetProgramLogSize(program)[1])
    nvrtc.nvrtcGetProgramLog(program, log)
    text = log.decode()
    assert status == nvrtc.nvrtcResult.NVRTC_SUCCESS, text
    cubin = bytes(nvrtc.nvrtcGetCUBINSize(program)[1])
    nvrtc.nvrtcGetCUBIN(program, cubin)
    return cubin, text


@pytest.mark.sampled(6)
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize("family", FAMILIES)
def test_device_functions_compile_without_spills(family, arch):
    loops = family_loops(family)
    source = '#include "math.h"\n' + "".join(loop.device() for loop in loops)
    _, log = nvrtc_compile(source, arch)
    assert "error" not in log
    assert "warning" not in log
    spills = re.findall(r"(\d+) bytes spill stores, (\d+) bytes spill loads", log)
    assert len(spills) >= len(loops)
    assert set(spills) == {("0", "0")}


# ---- limits ----


@needs_compiler
def test_limits_and_nan(tmp_path):
    """`lowest` and `highest` are the identities of maximum and minimum; `is_nan` of every type."""
    source = '#include "math.h"\n'
    for number, dtype in enumerate(DTYPES):
        name = ctype(dtype)
        source += (
            f'extern "C" bool limits{number}({name}* out, const {name}* x) {{\n'
            f"    out[0] = lowest<{name}>();\n    out[1] = highest<{name}>();\n"
            f"    return is_nan(x[0]);\n}}\n"
        )
    path = tmp_path / "limits.cpp"
    path.write_text(source)
    command = ["g++", *FLAGS, "-iquote", str(HEADERS), str(path), "-o", str(tmp_path / "l.so")]
    subprocess.run([*command, "-lm"], check=True, capture_output=True, text=True)
    library = ctypes.CDLL(str(tmp_path / "l.so"))
    for number, dtype in enumerate(DTYPES):
        function = getattr(library, f"limits{number}")
        function.restype = ctypes.c_bool
        out = np.zeros(2, dtype)
        hole = np.array([np.nan if dtype.kind in "fcV" else 1]).astype(dtype)
        found = function(ctypes.c_void_p(out.ctypes.data), ctypes.c_void_p(hole.ctypes.data))
        assert found == (dtype.kind in "fcV"), dtype
        if dtype.kind in "iu":
            assert list(out) == [np.iinfo(dtype).min, np.iinfo(dtype).max]
        elif dtype.kind == "b":
            assert list(out) == [False, True]
        else:
            assert out[0].real == -np.inf
            assert out[1].real == np.inf


# ---- dtypes ----


def test_every_ufunc_has_an_op():
    ufuncs = {value for value in vars(np).values() if isinstance(value, np.ufunc)}
    ufuncs.add(np._core.umath.clip)  # that `np.clip` calls
    without = {np.matmul, np.vecdot, np.matvec, np.vecmat, np.isnat}
    assert ufuncs - without == set(BY_UFUNC) | set(OUTPUTS_BY_UFUNC)


@pytest.mark.parametrize("op", [op for op in BY_UFUNC.values() if op.ufunc.nin == 2],
                         ids=lambda op: op.name)
def test_loop_dtypes_are_those_numpy_uses(op):
    samples = [*DTYPES, int, float, complex, bool]
    for first, second in itertools.product(samples, samples):
        if isinstance(first, type) and isinstance(second, type):
            continue
        values = [kind(1) if isinstance(kind, type) else np.ones(2, kind)
                  for kind in (first, second)]
        try:
            expected = op.ufunc(*values).dtype
        except TypeError:
            with pytest.raises(TypeError):
                loop_dtypes(op, (first, second))
            continue
        assert loop_dtypes(op, (first, second))[1] == expected, (first, second)


def test_loop_dtypes_of_outputs():
    half = np.dtype(np.float16)
    assert loop_dtypes(BY_NAME["frexp_mantissa"], (half,)) == ((half,), half)
    assert loop_dtypes(BY_NAME["frexp_exponent"], (half,)) == ((half,), np.dtype(np.int32))


@pytest.mark.parametrize(
    ("operands", "expected"),
    [
        ((bool, np.dtype("f4"), float), "f4"),
        ((np.dtype("?"), int, float), "f8"),
        ((np.dtype("?"), np.dtype("i4"), float), "f8"),
        ((np.dtype("?"), np.dtype("u1"), np.dtype("i1")), "i2"),
    ],
)
def test_where_promotes_its_branches(operands, expected):
    assert loop_dtypes(BY_NAME["where"], operands)[1] == np.dtype(expected)


def test_reference_casts_broadcasts_and_keeps_zero_dimensions():
    op = BY_NAME["add"]
    loops, dtype = loop_dtypes(op, (np.dtype("f4"), float))
    result = op.reference(np, np.ones(3, "f4"), 0.5, attrs=loops, shape=(2, 3), dtype=dtype)
    assert result.shape == (2, 3)
    assert result.dtype == np.float32
    assert result.flags.c_contiguous
    scalar = op.reference(np, np.ones((), "f4"), 0.5, attrs=loops, shape=(), dtype=dtype)
    assert isinstance(scalar, np.ndarray)
    assert scalar.shape == ()


def test_clip_is_numpys():
    rng = np.random.default_rng(3)
    array, low, high = rng.choice([np.nan, np.inf, -np.inf, 0, 1, 2, -1.5], (3, 500))
    loops, dtype = loop_dtypes(BY_NAME["clip"], (array.dtype,) * 3)
    result = BY_NAME["clip"].reference(
        np, array, low, high, attrs=loops, shape=array.shape, dtype=dtype
    )
    np.testing.assert_array_equal(result, np.clip(array, low, high))


# ---- text ----


def test_render_casts_operands_and_result():
    add, half, single = BY_NAME["add"], np.dtype("f2"), np.dtype("f4")
    assert render(add, (single, single), single, ["a", "b"]) == (
        "cast<f32>(cast<f32>(a) + cast<f32>(b))"
    )
    assert render(add, (half, half), half, ["x", "y"]) == (
        "cast<f16>(cast<f32>(cast<f16>(x)) + cast<f32>(cast<f16>(y)))"
    )
    assert render(BY_NAME["spacing"], (half,), half, ["v"]) == (
        "cast<f16>(m_spacing(cast<f16>(v)))"
    )


def test_types_without_kernels_are_refused():
    with pytest.raises(KeyError):
        ctype(np.dtype(np.longdouble))
    with pytest.raises(KeyError):
        ctype(np.dtype("M8[s]"))
    assert not has_kernel(np.dtype(">f4"))
    assert has_kernel(BFLOAT16)


@pytest.mark.compiler
@pytest.mark.parametrize("dtype", ["c8", "c16"])
def test_complex_squares_are_numpys(dtype):
    """With fused products, where the machine has them, what overflows or cancels is NumPy's."""
    if "fma" not in machine_flags():
        pytest.skip("NumPy's loops have no fused products here")
    large = 1e300 if dtype == "c16" else 1e38
    parts = [709.9, 710.3, 1.0, -3.0, 1e-200, large, large / 1e10, np.inf, -np.inf, np.nan]
    z = np.array([complex(re, im) for re, im in itertools.product(parts, parts)], dtype)
    with ta.config.override(compile="wait", at_once=0), np.errstate(all="ignore"):
        for found in (ta.square(ta.array(z)), ta.array(z) ** 2):
            np.testing.assert_array_equal(np.asarray(found), np.square(z))


QUOTIENTS = {
    "z / z": lambda z, w: z / z,
    "z / w": lambda z, w: z / w,
    "1 / w": lambda z, w: 1 / w,
    "reciprocal": lambda z, w: np.reciprocal(w),
    "z / w * w": lambda z, w: z / w * w,
    "real": lambda z, w: (z / w).real + (z / w).imag,
    "cube": lambda z, w: w**3,
}
PRODUCTS = {
    "z w": lambda z, w: z * w,
    "conjugate": lambda z, w: np.multiply(z, np.conj(z)),
    "real": lambda z, w: (z * w).real + 1,
    "difference": lambda z, w: np.subtract(z * w, w * z),
}


@pytest.mark.sampled(2)
@pytest.mark.compiler
@pytest.mark.parametrize("dtype", ["c8", "c16"])
@pytest.mark.parametrize("name", QUOTIENTS)
def test_complex_quotients_are_numpys(name, dtype):
    """No product in Smith's algorithm is fused into a sum, so that z / z is 1 (g++ would)."""
    if name == "z / w * w" and "fma" not in machine_flags():
        pytest.skip("NumPy's loops have no fused products here")
    compare_complex(QUOTIENTS[name], dtype)


@pytest.mark.compiler
@pytest.mark.parametrize("dtype", ["c8", "c16"])
@pytest.mark.parametrize("name", PRODUCTS)
def test_complex_products_are_numpys(name, dtype):
    """NumPy's loops fuse the real part of the first operand: so do kernels, stored or not."""
    if "fma" not in machine_flags():
        pytest.skip("NumPy's loops have no fused products here")
    compare_complex(PRODUCTS[name], dtype)


def compare_complex(function, dtype):
    random = np.random.default_rng(5)
    z = (random.integers(-5, 6, 5000) / 2 + 0.5j * random.integers(1, 6, 5000)).astype(dtype)
    w = (random.standard_normal(5000) + 1j * random.standard_normal(5000)).astype(dtype)
    with ta.config.override(compile="wait", at_once=0):
        found = np.asarray(ta.jit(function)(ta.array(z), ta.array(w)))
    np.testing.assert_array_equal(found, function(z, w))


def machine_flags():
    path = pathlib.Path("/proc/cpuinfo")
    return path.read_text().split() if path.exists() else ()
