"""Names in kernels' texts collide with nothing, however long the kernels are."""

import re
import subprocess

import ml_dtypes
import numpy
import pytest

import tiledarray as np
from tests.plans import DEVICE, HOST, filled, planned
from tiledarray import config
from tiledarray.kernels import HEADERS
from tiledarray.kernels.compile import cuda, host
from tiledarray.kernels.text.names import GENERATED, NUMBERED, SINGLE
from tiledarray.kernels.text.program import print_kernel
from tiledarray.recording.stretch import local

DTYPES = [*map(numpy.dtype, "?bBhHiIlLefdFD"), numpy.dtype(ml_dtypes.bfloat16)]
KEYWORDS = {
    "alignas", "auto", "bool", "const", "continue", "decltype", "enum", "false", "for", "if", "int",
    "long", "return", "static_cast", "struct", "template", "true", "unsigned", "using", "value",
    "void", "while", "include", "define",
}
WORD = re.compile(r"(?<![\w.])[A-Za-z_]\w*")  # but for fields
HEADER_TEXT = "\n".join(path.read_text() for path in HEADERS.glob("*.h"))
HEADER_WORDS = set(re.findall(r"[A-Za-z_]\w*", HEADER_TEXT))
GLOBALS = {
    *re.findall(r"#\s*define\s+(\w+)", HEADER_TEXT),
    *re.findall(r"\b(?:struct|union)\s+(\w+)", HEADER_TEXT),
    *re.findall(r"^(?:template.*)?\busing\s+(\w+)\s*=", HEADER_TEXT, re.M),
    *re.findall(r"\b(?:TA_FN|static inline)\s[^;{}()]*?(\w+)\s*\(", HEADER_TEXT),
    *re.findall(r"^TA_[A-Z_0-9]+\((m_\w+)", HEADER_TEXT, re.M),  # functions that macros make
}


@pytest.fixture(autouse=True)
def clean():
    with config.override(cut=10_000):
        local.recorder.reset()
        yield
    local.recorder.reset()


def chain(dtype, length):
    """Some hundred cells of one kernel: the same two arrays over and over."""
    x, y = filled(90, 70, dtype=dtype), filled(90, 70, dtype=dtype, seed=1)
    for _ in range(length // 2):
        x = np.bitwise_xor(x * y, y) if numpy.dtype(dtype).kind in "biu" else x * y + y
    return x


def of_many_axes(dtype, count):
    """Pairs of axes exchanged, so that none of them merge."""
    x = filled(*(2,) * count, dtype=dtype)
    return x.transpose([k + 1 - 2 * (k % 2) for k in range(count)]) + x


def of_many_passes(dtype, length):
    x = filled(90, 70, dtype=dtype)
    for _ in range(length // 6):
        x = x - x.max(axis=1, keepdims=True)
        x = np.exp(x) / np.exp(x).sum(axis=1, keepdims=True)
    return x, x.sum(axis=0), x.var(axis=0)


def texts(*arrays):
    return [print_kernel(kernel, device=target is DEVICE).text
            for target in (HOST, DEVICE) for kernel in planned(*arrays, target=target).kernels]


def check(text):
    """Every name is the headers', a keyword, or ours; ours are no header's."""
    fields = set(re.findall(r"[\s*](\w+);", " ".join(re.findall(r"struct \w+ {.*", text))))
    fields |= set(re.findall(r"(\w+)\[\d+\]", " ".join(re.findall(r"struct \w+ {.*", text))))
    words = set(WORD.findall(re.sub(r'"[^"]*"', "", text))) - fields
    ours = {word for word in words if GENERATED.fullmatch(word)} | (words & SINGLE)
    unknown = words - ours - HEADER_WORDS - KEYWORDS - {"NAME"}
    assert not unknown
    assert not ours & GLOBALS
    assert not fields & GLOBALS
    return ours


def test_headers_have_no_names_like_ours():
    assert len(GLOBALS) > 200
    assert {"c64", "i8", "TA_EACH", "m_exp", "Range", "load"} <= GLOBALS
    assert not [word for word in HEADER_WORDS if GENERATED.fullmatch(word)]
    assert not SINGLE & GLOBALS
    assert not SINGLE & KEYWORDS
    assert not set(NUMBERED) & KEYWORDS


@pytest.mark.sampled(2)
@pytest.mark.parametrize("length", [20, 66, 130, 600])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_names_of_long_kernels(dtype, length):
    found = set().union(*map(check, texts(chain(dtype, length))))
    assert {f"c_{k}" for k in range(4, length - 20)} <= {
        name.removesuffix("_0") if name.count("_") > 1 else name for name in found}


@pytest.mark.parametrize("dtype", "bhif")
def test_names_of_many_axes(dtype):
    found = set().union(*map(check, texts(of_many_axes(dtype, 20))))
    assert {"i_8", "i_16"} <= found


@pytest.mark.parametrize("dtype", "efd")
def test_names_of_many_passes(dtype):
    found = set().union(*map(check, texts(*of_many_passes(dtype, 150))))
    assert {"r_64", "total_64", "d_64"} & found


# ---- they compile -------------------------------------------------------------------------------

LONG = {
    **{f"chain-{dtype}": lambda dtype=dtype: [chain(dtype, 150)] for dtype in DTYPES},
    "chain-600": lambda: [chain("F", 600)],
    **{f"axes-{dtype}": lambda dtype=dtype: [of_many_axes(dtype, 20)] for dtype in "bhi"},
    "passes": lambda: of_many_passes("f", 150),
    "fewer-passes": lambda: of_many_passes("f", 12),  # NVRTC takes a minute for the others
}


@pytest.mark.sampled(3)
@pytest.mark.skipif(host.available() is not None, reason="needs a C++ compiler")
@pytest.mark.parametrize("name", LONG)
def test_long_texts_compile_for_the_host(name):
    for kernel in planned(*LONG[name](), target=HOST).kernels:
        text = print_kernel(kernel, device=False).text.replace("NAME", "named")
        subprocess.run([*host.compiler().command, "-fsyntax-only", "-std=c++17", "-w", "-iquote",
                        str(HEADERS), "-x", "c++", "-"], input=text.encode(), check=True)


@pytest.mark.sampled(3)
@pytest.mark.skipif(cuda.available() is not None, reason=f"no CUDA compiler: {cuda.available()}")
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("name", ["chain-complex64", "chain-complex128", "axes-b",
                                  "fewer-passes"])
def test_long_texts_compile_for_a_gpu(name, arch):
    for kernel in planned(*LONG[name](), target=DEVICE).kernels:
        text = print_kernel(kernel, device=True).text.replace("NAME", "named")
        assert cuda.compile_source(text, "named", arch).reports["named"].registers > 0
