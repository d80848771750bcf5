"""The device's sine, cosine and tangent, compiled for the host, over the whole range of floats."""

import ctypes
import shutil
import subprocess

import numpy as np
import pytest

from tiledarray.kernels import HEADERS

FUNCTIONS = ("sin", "cos", "tan")
TYPES = {"f4": "f32", "f8": "f64"}
ULPS = 2
COUNT = 100_000
# Closest to a multiple of pi/2 of all floats: 62 leading bits cancel.
HARDEST = {"f4": 16367173.0 * 2.0**72, "f8": 6381956970095103.0 * 2.0**797}

pytestmark = [
    pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++"),
    pytest.mark.skipif(np.finfo(np.longdouble).nmant < 63, reason="needs a wider long double"),
]


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trigonometry")
    source, library = folder / "t.cpp", folder / "t.so"
    source.write_text('#include "math.h"\n' + "".join(
        f'extern "C" void {name}_{kind}(const {kind}* x, {kind}* y, i64 n) {{\n'
        f"    for (i64 i = 0; i < n; i++) y[i] = m_{name}(x[i]);\n}}\n"
        for name in FUNCTIONS for kind in TYPES.values()
    ))
    command = ["g++", "-O2", "-march=native", "-std=c++17", "-DTA_OWN_TRIGONOMETRY", "-fwrapv",
               "-ffp-contract=off", "-shared", "-fPIC", "-iquote", str(HEADERS), str(source),
               "-o", str(library), "-lm"]
    subprocess.run(command, check=True, capture_output=True, text=True)
    return ctypes.CDLL(str(library))


def run(library, name: str, x: np.ndarray) -> np.ndarray:
    y = np.empty_like(x)
    function = getattr(library, f"{name}_{TYPES[x.dtype.str[1:]]}")
    function(ctypes.c_void_p(x.ctypes.data), ctypes.c_void_p(y.ctypes.data),
             ctypes.c_longlong(x.size))
    return y


def angles(dtype: str, kind: str) -> np.ndarray:
    rng = np.random.default_rng(5)
    exponents = {"f4": (-149, 127), "f8": (-1074, 1023)}[dtype]
    turns = np.rint(10.0 ** rng.uniform(0, 15, COUNT))
    values = {
        "small": lambda: rng.uniform(-1, 1, COUNT),
        "moderate": lambda: rng.uniform(-1e4, 1e4, COUNT),
        "around the limit": lambda: rng.uniform(0.5, 2, COUNT) * {"f4": 1e5, "f8": 2.0**30}[dtype],
        "all": lambda: rng.choice([-1.0, 1.0], COUNT) * 2.0 ** rng.uniform(*exponents, COUNT),
        "near multiples of pi/2": lambda: turns * (np.pi / 2),
        "special": lambda: np.array([1e30, -1e30, 1e-40, 1e-310, 5e-324, HARDEST[dtype],
                                     1e300 if dtype == "f8" else 3.4e38]),
    }
    return values[kind]().astype(dtype)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("kind", ["small", "moderate", "around the limit", "all",
                                  "near multiples of pi/2", "special"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_within_two_ulps(library, name, kind, dtype):
    x = angles(dtype, kind)
    exact = getattr(np, name)(x.astype(np.longdouble))
    found = run(library, name, x)
    error = abs(found.astype(np.longdouble) - exact) / np.spacing(abs(exact.astype(dtype)))
    worst = int(np.argmax(error))
    assert error[worst] <= ULPS, f"{name}({x[worst]!r}): {found[worst]!r}, not {exact[worst]!r}"


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_special_values(library, name, dtype):
    assert np.isnan(run(library, name, np.array([np.inf, -np.inf, np.nan], dtype))).all()
    zeros = np.array([0.0, -0.0], dtype)
    expected = getattr(np, name)(zeros)
    found = run(library, name, zeros)
    assert (found == expected).all()
    assert (np.signbit(found) == np.signbit(expected)).all()
