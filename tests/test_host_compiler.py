"""Compiling C++ for this machine."""

import ctypes
import math
import os
import stat
import threading
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest

from tiledarray import config
from tiledarray.errors import CompilerError
from tiledarray.kernels.compile import beginnings, host, process

pytestmark = pytest.mark.skipif(host.available() is not None, reason="no C++ compiler")


@pytest.fixture(autouse=True)
def folder(tmp_path):
    with config.override(cache_dir=tmp_path / "cache"):
        yield tmp_path / "cache"


@pytest.fixture
def fresh():
    """Forget the compiler before and after."""
    host._command.cache_clear()
    host.compiler.cache_clear()
    yield
    host._command.cache_clear()
    host.compiler.cache_clear()


def call(kernel, result, *arguments):
    """Call the kernel with doubles or integers."""
    kinds = [ctypes.c_double if isinstance(a, float) else ctypes.c_int64 for a in arguments]
    return ctypes.CFUNCTYPE(result, *kinds)(kernel.address)(*arguments)


def add(number):
    return f'extern "C" long add(long x) {{ return x + {number}; }}', "add"


def test_compiles_and_runs_and_remembers(monkeypatch):
    kernel = host.compile_source(*add(3))
    assert (kernel.name, kernel.path.suffix) == ("add", ".so")
    assert call(kernel, ctypes.c_int64, 4) == 7
    monkeypatch.setattr(host, "_compile", lambda *_: pytest.fail("compiled again"))
    again = host.compile_source(*add(3))
    assert (again.address, again.path) == (kernel.address, kernel.path)


def test_a_damaged_entry_is_compiled_again():
    kernel = host.compile_source(*add(30))
    host._libraries.clear()
    kernel.path.rename(kernel.path.with_suffix(".old"))
    kernel.path.write_bytes(b"\x7fELF and then nothing")
    assert call(host.compile_source(*add(30)), ctypes.c_int64, 4) == 34


def test_several_at_once():
    kernels = host.compile_many([add(n) for n in range(4)])
    assert [call(kernel, ctypes.c_int64, 10) for kernel in kernels] == [10, 11, 12, 13]
    assert host.compile_many([]) == []


def test_threads_compiling_the_same_get_the_same():
    found = []
    work = [
        threading.Thread(target=lambda: found.append(host.compile_source(*add(77))))
        for _ in range(3)
    ]
    for thread in work:
        thread.start()
    for thread in work:
        thread.join()
    assert len(found) == 3 and len({kernel.address for kernel in found}) == 1


def test_a_refused_source_is_kept_and_explained():
    source = 'extern "C" int broken() {\n  return nothing_of_that_name;\n}'
    with pytest.raises(CompilerError) as caught:
        host.compile_source(source, "broken")
    error = caught.value
    assert "broken.cpp:2" in str(error) and "nothing_of_that_name" in error.log
    assert error.path.read_text() == error.source == source
    assert "-ffp-contract=off" in str(error) and error.remedy in str(error)


def test_a_missing_function_is_named():
    with pytest.raises(CompilerError, match="no extern \"C\" function other"):
        host.compile_source(add(1)[0], "other")


PRODUCT = 'extern "C" double k(double a, double b, double c) { return a * b + c; }'


def test_contraction_only_where_asked_for():
    a, b, c = 1 + 2.0**-30, 1 - 2.0**-30, -1.0
    assert call(host.compile_source(PRODUCT, "k"), ctypes.c_double, a, b, c) == a * b + c == 0
    with config.override(contract=True):
        assert "-ffp-contract=fast" in host.flags()
        fused = host.compile_source(PRODUCT, "k")
    if "fma" in host._processor():
        assert call(fused, ctypes.c_double, a, b, c) == -(2.0**-60)


def test_no_unsafe_mathematics():
    assert not [flag for flag in host.flags() if "fast-math" in flag or "Ofast" in flag]
    source = """
    extern "C" long k(double x) { return (x != x) + 2 * (__builtin_isnan(x) ? 1 : 0); }
    extern "C" long wraps(long x) { return x + 1 < x; }
    """
    assert call(host.compile_source(source, "k"), ctypes.c_int64, math.nan) == 3
    assert call(host.compile_source(source, "wraps"), ctypes.c_int64, 2**63 - 1) == 1
    assert np.float64(5e-324) * 1.0 == 5e-324  # denormals survive the loading


def test_vector_functions_are_those_of_the_macro():
    level = host.compiler().libmvec
    assert f"-DTA_LIBMVEC={level}" in host.flags()
    if level < 2:
        pytest.skip("this C library has no tanh for vectors")
    source = """
    extern "C" __attribute__((const, simd("notinbranch"))) double tanh(double);
    extern "C" void k(double* x, long n) {
        #pragma omp simd
        for (long i = 0; i < n; ++i) x[i] = tanh(x[i]);
    }
    """
    kernel = host.compile_source(source, "k")
    assert b"_ZGV" in kernel.path.read_bytes()
    x = np.linspace(-3, 3, 100)
    expected = np.tanh(x)
    call(kernel, None, x.ctypes.data, len(x))
    np.testing.assert_allclose(x, expected, rtol=1e-15, atol=0)


def test_headers_are_found_and_part_of_the_key(tmp_path, monkeypatch):
    (tmp_path / "tile.h").write_text("constexpr long number = 5;")
    monkeypatch.setattr(host, "HEADERS", tmp_path)
    host._header_text.cache_clear()
    source = '#include <math.h>\n#include "tile.h"\nextern "C" long k() { return number; }'
    try:
        assert call(host.compile_source(source, "k"), ctypes.c_int64) == 5
        (tmp_path / "tile.h").write_text("constexpr long number = 6;")
        host._header_text.cache_clear()
        assert call(host.compile_source(source, "k"), ctypes.c_int64) == 6
    finally:
        host._header_text.cache_clear()


def long_ones(count, first=0):
    """Kernels that begin alike."""
    return [(f'using idx = long;\n#include "tile.h"\nextern "C" idx k() {{ return {n}; }}', "k")
            for n in range(first, first + count)]


def commands(monkeypatch):
    """Note how compilers are called."""
    noted, run = [], host.Compilers.run

    def noting(self, command, *rest):
        noted.append([*command])
        return run(self, command, *rest)

    monkeypatch.setattr(host.Compilers, "run", noting)
    return noted


@pytest.mark.skipif("host.compiler().clang", reason="clang reads headers quickly, or otherwise")
class TestBeginnings:
    """What kernels begin with is compiled once, when some have begun so."""

    def test_it_is_compiled_for_many(self, monkeypatch):
        noted = commands(monkeypatch)
        for number, kernel in enumerate(long_ones(beginnings.MET + 2)):
            assert call(host.compile_source(*kernel), ctypes.c_int64) == number
        headers = [k for k, command in enumerate(noted) if "c++-header" in command]
        included = [k for k, command in enumerate(noted) if "-include" in command]
        assert (headers, included) == ([beginnings.MET], [beginnings.MET + 1, beginnings.MET + 2])

    def test_another_process_finds_it(self, monkeypatch):
        for kernel in long_ones(beginnings.MET + 1):
            host.compile_source(*kernel)
        beginnings._found.clear()
        noted = commands(monkeypatch)
        assert call(host.compile_source(*long_ones(1, 77)[0]), ctypes.c_int64) == 77
        assert len(noted) == 1 and "-include" in noted[0]

    @pytest.mark.parametrize("damage", [
        lambda path: path.unlink(), lambda path: path.write_bytes(b"gpch and nothing else"),
        lambda path: path.write_bytes(path.read_bytes()[:-4096] + bytes(4096)),
    ], ids=["gone", "short", "zeros"])
    def test_what_is_damaged_is_read_again(self, damage, folder, monkeypatch):
        for kernel in long_ones(beginnings.MET + 1):
            host.compile_source(*kernel)
        (compiled,) = folder.rglob(f"*{beginnings.SUFFIX}")
        damage(compiled)
        for number, kernel in enumerate(long_ones(2, 50), 50):
            assert call(host.compile_source(*kernel), ctypes.c_int64) == number

    def test_a_compiler_without_such_headers(self, monkeypatch):
        run = host.Compilers.run

        def refusing(self, command, *rest):
            if "c++-header" in command:
                return SimpleNamespace(status=1, output="unrecognized language")
            return run(self, command, *rest)

        monkeypatch.setattr(host.Compilers, "run", refusing)
        for number, kernel in enumerate(long_ones(beginnings.MET + 3)):
            assert call(host.compile_source(*kernel), ctypes.c_int64) == number

    def test_errors_are_at_the_lines_of_the_source(self):
        for kernel in long_ones(beginnings.MET + 1):
            host.compile_source(*kernel)
        wrong = 'using idx = long;\n#include "tile.h"\nlong x;\nnonsense here;\n'
        with pytest.raises(CompilerError, match=r"k\.cpp:4:1: error: .nonsense. does not name"):
            host.compile_source(wrong, "k")


def test_no_compiler_is_a_reason_and_an_error(fresh, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("CXX", "my-c++")
    assert "my-c++" in host.available() and "PATH" in host.available()
    with pytest.raises(CompilerError, match="set CXX"):
        host.compile_source(*add(5))


def test_a_compiler_named_by_cxx(fresh, monkeypatch, tmp_path):
    real = host.compiler().command[0]
    mine = tmp_path / "mine"
    mine.write_text(f'#!/bin/sh\nexec {real} "$@"\n')
    mine.chmod(mine.stat().st_mode | stat.S_IXUSR)
    host._command.cache_clear()
    host.compiler.cache_clear()
    monkeypatch.setenv("CXX", f"'{mine}' -DANY=1")
    assert host.compiler().command == (str(mine), "-DANY=1")
    assert host.compiler().version
    assert call(host.compile_source(*add(9)), ctypes.c_int64, 1) == 10


def test_other_platforms_degrade(fresh, monkeypatch):
    monkeypatch.setattr(host.sys, "platform", "win32")
    assert "Windows" in host.available()
    monkeypatch.undo()
    monkeypatch.setattr(os, "confstr", lambda _: None)
    host._libmvec_level.cache_clear()
    try:
        assert host._libmvec_level() == 0
    finally:
        host._libmvec_level.cache_clear()


@pytest.mark.parametrize(("why", "flags", "passing", "remedy"), [
    ("failed to map segment from shared object", 0, True, "memory left"),
    ("cannot open shared object file: Too many open files", 0, True, "files may still be opened"),
    ("failed to map segment from shared object", getattr(os, "ST_NOEXEC", 0), False, "noexec"),
    ("cannot open shared object file: Permission denied", 0, False, "noexec"),
])
def test_what_keeps_a_kernel_from_being_loaded_may_pass(monkeypatch, why, flags, passing, remedy):
    # What raises stands for the system: it is no function of the program's.
    monkeypatch.setattr(host, "Library", mock.Mock(side_effect=OSError(f"kernel.so: {why}")))
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(f_flag=flags), raising=False)
    with pytest.raises(CompilerError, match="cannot be loaded") as caught:
        host.compile_source(*add(40))
    assert caught.value.passing is passing and remedy in str(caught.value)
    monkeypatch.undo()
    with config.override(cache_dir=config.cache_dir):
        assert call(host.compile_source(*add(40)), ctypes.c_int64, 4) == 44


def test_a_compiler_that_is_found_without_a_path_finds_its_linker(monkeypatch):
    monkeypatch.delenv("PATH")
    assert process._environment()["PATH"] == os.defpath
