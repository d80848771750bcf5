"""The CUDA compiler, which needs no GPU: machine code, resource reports, errors, threads."""

import struct
from concurrent.futures import ThreadPoolExecutor

import pytest

from tiledarray import config, errors
from tiledarray.execution import captured
from tiledarray.kernels.compile import cuda

pytestmark = pytest.mark.skipif(
    cuda.available() is not None, reason=f"no CUDA compiler: {cuda.available()}"
)


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory):
    with config.override(cache_dir=tmp_path_factory.mktemp("cache")):
        yield


CLEAN = """
struct Args { float* data; long long size; };
extern "C" __global__ void clean(const Args args) {
    __shared__ float tile[64];
    tile[threadIdx.x] = args.data[threadIdx.x];
    __syncthreads();
    args.data[threadIdx.x] = tile[63 - threadIdx.x];
}
"""
SPILLING = """
struct Args { float* data; };
extern "C" __global__ void __launch_bounds__(1024, 2) spilling(const Args args) {
    float held[96];
#pragma unroll
    for (int i = 0; i < 96; i++) held[i] = args.data[i * 1024 + threadIdx.x];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 96; i++) args.data[i * 1024 + threadIdx.x] = held[i] * held[95 - i];
}
"""
INDEXED = """
struct Args { float* data; const int* index; };
extern "C" __global__ void indexed(const Args args) {
    float held[64];
    for (int i = 0; i < 64; i++) held[args.index[i]] = args.data[i];
    for (int i = 0; i < 64; i++) args.data[i] = held[args.index[64 + i]];
}
"""


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_90a"])
def test_compiles_to_machine_code(arch):
    binary = cuda.compile_source(CLEAN, "clean", arch)
    assert binary.cubin.startswith(b"\x7fELF")
    assert b".target" not in binary.cubin  # no PTX
    report = binary.reports["clean"]
    assert 0 < report.registers < 32
    assert report.shared_bytes == 256
    assert report.clean


def test_cached_binary_is_the_same():
    first = cuda.compile_source(CLEAN, "clean", "sm_80")
    again = cuda.compile_source(CLEAN, "clean", "sm_80")
    assert first == again


def test_spills_are_reported():
    for report in cuda.resources(SPILLING, "spilling").values():
        assert report.spill_stores > 0
        assert report.spill_loads > 0
        assert not report.clean


def test_spills_are_seen_where_nvrtc_has_compiled_it_before(monkeypatch):
    """With a driver it has a cache, which keeps no reports: what spilled was taken for the best."""
    real, said = cuda._nvrtc(), []

    class Cached:
        def __getattr__(self, name):
            return getattr(real, name)

        def nvrtcCompileProgram(self, program, count, options):
            said.append(b"--no-cache" in options)
            return real.nvrtcCompileProgram(program, count, options)

        def nvrtcGetProgramLogSize(self, program):
            status, size = real.nvrtcGetProgramLogSize(program)
            return (status, size) if said[-1] else (status, 1)

        def nvrtcGetProgramLog(self, program, log):
            return real.nvrtcGetProgramLog(program, log) if said[-1] else (
                real.nvrtcResult.NVRTC_SUCCESS,)

    monkeypatch.setattr(cuda, "_nvrtc", Cached)
    headers, options = cuda._headers(), cuda._options(SPILLING, "sm_90", False)
    (report,) = cuda._unpack(cuda._build(SPILLING, "spilling", headers, options))[1].values()
    assert report.spill_stores > 0
    assert said == [False, True]


def test_fewer_blocks_are_tried_before_one_alone(monkeypatch):
    """That one would wait for memory with nothing to do meanwhile."""
    tried = []

    def build(source, name, headers, options):
        tried.append([option for option in options if "RESIDENT" in option])
        local = 0 if tried[-1] == ["-DTA_BLOCKS_RESIDENT=2"] else 8
        report = cuda.ResourceReport("k", 64, 0, local, local, local)
        return cuda._pack(b"", {"k": report})

    monkeypatch.setattr(cuda, "_build", build)
    cuda._best("#define TA_RESIDENT 3\n", "k", {}, [])
    assert tried == [[], ["-DTA_BLOCKS_RESIDENT=2"]]
    tried.clear()
    cuda._best("#define TA_RESIDENT 6\n", "k", {}, [])
    assert tried == [[], ["-DTA_BLOCKS_RESIDENT=4"], ["-DTA_BLOCKS_RESIDENT=2"]]


def test_run_time_indexing_is_reported_as_local_memory():
    for report in cuda.resources(INDEXED, "indexed").values():
        assert report.local_bytes >= 256
        assert not report.clean


def test_every_kernel_of_a_source_is_reported():
    second = CLEAN.replace("struct Args", "struct Other").replace("const Args", "const Other")
    source = CLEAN + second.replace("void clean", "void other").replace("tile[64]", "tile[128]")
    reports = cuda.compile_source(source, "both", "sm_90").reports
    assert {name: report.shared_bytes for name, report in reports.items()} == {
        "clean": 256,
        "other": 512,
    }


def test_contraction_is_off_unless_asked_for():
    source = """
    struct Args { float* a; float* b; float* c; };
    extern "C" __global__ void axpy(const Args x) {
        x.a[threadIdx.x] = x.a[threadIdx.x] * x.b[threadIdx.x] + x.c[threadIdx.x];
    }
    """
    exact = cuda.compile_source(source, "axpy", "sm_80", contract=False)
    fused = cuda.compile_source(source, "axpy", "sm_80", contract=True)
    assert exact.cubin != fused.cubin


@pytest.mark.parametrize("form", ["x / y", "m_reciprocal(y)"])
def test_complex_quotients_are_never_contracted(form):
    source = f"""
    #include "math.h"
    struct Args {{ c128* a; c128* b; }};
    extern "C" __global__ void quotient(const Args args) {{
        const c128 x = args.a[threadIdx.x], y = args.b[threadIdx.x];
        args.a[threadIdx.x] = {form};
    }}
    """
    exact = cuda.compile_source(source, "quotient", "sm_90", contract=False)
    fused = cuda.compile_source(source, "quotient", "sm_90", contract=True)
    assert code_of(exact.cubin) == code_of(fused.cubin)


def code_of(cubin):
    """Return the machine code in a cubin, which is an ELF file of 64 bits."""
    at, = struct.unpack_from("<Q", cubin, 40)
    size, count, names = struct.unpack_from("<HHH", cubin, 58)
    sections = [struct.unpack_from("<IIQQQQ", cubin, at + size * i) for i in range(count)]
    text = sections[names][4]
    return [cubin[place : place + length] for name, _, _, _, place, length in sections
            if cubin[text + name :].startswith(b".text.")]


def test_half_precision_header():
    source = """
    #include <cuda_fp16.h>
    struct Args { __half* data; };
    extern "C" __global__ void halve(const Args args) {
        args.data[threadIdx.x] = __float2half(__half2float(args.data[threadIdx.x]) * 0.5f);
    }
    """
    if cuda._toolkit_headers() is None:
        pytest.skip("no CUDA headers here")
    assert cuda.compile_source(source, "halve", "sm_90").reports["halve"].clean


def test_error_keeps_source_and_log():
    source = 'extern "C" __global__ void broken(int* p) { *p = undeclared_name; }'
    with pytest.raises(errors.CompilerError, match="undeclared_name") as caught:
        cuda.compile_source(source, "broken", "sm_90")
    assert caught.value.source == source
    assert caught.value.path.read_text() == source
    assert "error" in caught.value.log
    assert "broken.cu" in str(caught.value)


def test_assembler_error():
    source = 'extern "C" __global__ void wrong() { asm volatile("wgmma.nonsense;"); }'
    with pytest.raises(errors.CompilerError, match="wrong"):
        cuda.compile_source(source, "wrong", "sm_90")


def test_unknown_architecture():
    with pytest.raises(errors.CompilerError, match="sm_12345"):
        cuda.compile_source(CLEAN, "clean", "sm_12345")


def test_many_threads_compile_at_once():
    def compile_one(number):
        source = CLEAN.replace("tile[64]", f"tile[{64 + number % 4}]")
        return cuda.compile_source(source, "clean", "sm_90").reports["clean"].shared_bytes

    with ThreadPoolExecutor(8) as pool:
        sizes = list(pool.map(compile_one, range(16)))
    assert sizes == [4 * (64 + number % 4) for number in range(16)]


def test_missing_compiler_says_what_to_install(monkeypatch):
    monkeypatch.setattr(cuda, "available", lambda: "cuda-bindings is missing")
    with pytest.raises(errors.CompilerError, match="cuda-bindings is missing"):
        cuda.compile_source(CLEAN, "clean", "sm_80")


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_copies_compile(arch):
    binary = cuda.compile_source(captured._SOURCE, "ta_copies", arch)
    report = binary.reports["ta_copies"]
    assert report.local_bytes == 0 and report.registers <= 64
    assert captured.MOST_COPIES * 24 <= 4096  # bytes that a kernel takes as arguments
