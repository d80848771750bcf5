"""Kernels for a GPU run on a machine without one: their text, compiled by g++ with stand-ins.

Every thread of a block is a fiber that waits for the others at barriers and shuffles; blocks go
one after the other, or each in a thread of the system where they wait for one another.  Vectors at
addresses that are not aligned trap.  Instructions in assembly are replaced by what they do; a
kernel that has others is refused.
"""

from __future__ import annotations

import ctypes
import hashlib
import re
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy

import tiledarray as ta
from tests.plans import DEVICE
from tiledarray.devices import device
from tiledarray.execution.arguments import Arguments, Binding, Workspace
from tiledarray.execution.executable import Executable, program_name, source_of
from tiledarray.fusion import passes
from tiledarray.fusion.plan import Kernel, Plan
from tiledarray.graph.program import trace
from tiledarray.kernels import HEADERS
from tiledarray.kernels.text.program import Program, print_kernel
from tiledarray.ops.op import Leaf

OPTIONS = ["-std=c++17", "-O0", "-ffp-contract=off", "-shared", "-fPIC", "-w",
           "-fno-strict-aliasing", "-fsanitize=bounds,alignment",
           "-fsanitize-undefined-trap-on-error"]

HEAD = r"""
#ifdef AT_ONCE  // blocks run side by side, and each has its own of what is marked so
#include <sched.h>
#include <thread>
#include <vector>
#define OF_A_BLOCK thread_local
#define OTHERS_GO_ON sched_yield()
#else
#define OF_A_BLOCK
#define OTHERS_GO_ON
#endif
#include <stdlib.h>
#include <ucontext.h>
#define __CUDACC__ 1
#define __global__
#define __grid_constant__
#define __device__
#define __forceinline__ inline
#define __noinline__
#define __launch_bounds__(...)
#define __shared__ thread_local  // extern or static, and one for all fibers
#define alignas(...) __attribute__((aligned(__VA_ARGS__)))
struct Place { int x; };
static OF_A_BLOCK Place blockIdx, threadIdx, blockDim;
struct alignas(8) uint2 { unsigned x, y; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
template <class T> static inline T __ldg(const T* at) {
  if ((unsigned long)at % sizeof(T)) __builtin_trap();
  return *at;
}
static inline unsigned __float_as_uint(float x) { return __builtin_bit_cast(unsigned, x); }
static inline int __double2hiint(double x) { return __builtin_bit_cast(long, x) >> 32; }
extern "C" double frexp(double, int*);
extern "C" double scalbn(double, int);
static inline unsigned long __cvta_generic_to_shared(void*) { return 0; }
static inline unsigned atomicAdd(unsigned* at, unsigned x) {
  return __atomic_fetch_add(at, x, __ATOMIC_SEQ_CST);
}
static inline void __threadfence() {}
static OF_A_BLOCK ucontext_t scheduler, fibers[1024];  // as many as a block may have threads
struct Barrier {  // of a block, or of a warp
  int alive, arrived, turn;
  void leave() {
    if (--alive == arrived && alive) open();
  }
  void open() { arrived = 0; ++turn; }
  void wait() {
    const int me = threadIdx.x, now = turn;
    if (++arrived == alive) { open(); return; }
    while (turn == now) {
      swapcontext(&fibers[me], &scheduler);
      threadIdx.x = me;
    }
  }
};
static OF_A_BLOCK Barrier whole, warps[32], named[16];
static void wait_named(int number, int threads) {
  named[number].alive = threads;
  named[number].wait();
}
static OF_A_BLOCK unsigned offered[1024];
static void __syncthreads() { whole.wait(); }
static OF_A_BLOCK int some;
static int __syncthreads_or(int holds) {
  whole.wait();
  some = 0;
  whole.wait();
  some |= holds;
  whole.wait();
  const int found = some;
  whole.wait();
  return found;
}
static void __syncwarp() { warps[threadIdx.x / 32].wait(); }
static unsigned exchanged_with(unsigned x, int from) {
  offered[threadIdx.x] = x;
  __syncwarp();
  const unsigned found = offered[from];
  __syncwarp();
  return found;
}
static unsigned __shfl_xor_sync(unsigned, unsigned x, int mask) {
  return exchanged_with(x, threadIdx.x ^ mask);
}
static unsigned __shfl_up_sync(unsigned, unsigned x, int distance, int width) {
  const int place = threadIdx.x % width;
  return exchanged_with(x, threadIdx.x - (place >= distance ? distance : 0));
}
static unsigned __shfl_sync(unsigned, unsigned x, int thread, int width) {
  return exchanged_with(x, threadIdx.x / width * width + (thread & width - 1));
}
static unsigned __ballot_sync(unsigned, bool holds) {
  unsigned found = 0;
  const int first = threadIdx.x / 32 * 32;
  offered[threadIdx.x] = holds;
  __syncwarp();
  for (int k = 0; k < 32; ++k) found |= offered[first + k] << k;
  __syncwarp();
  return found;
}
static bool __any_sync(unsigned all, bool holds) { return __ballot_sync(all, holds) != 0; }
static unsigned long long atomicMin(unsigned long long* at, unsigned long long x) {
  const unsigned long long before = *at;
  if (x < before) *at = x;
  return before;
}
static int __ffs(int x) { return __builtin_ffs(x); }
// Matrices of a warp: of eight rows of 16 bytes at the places of eight threads each, a thread has
// two neighbours of a row, or of a column.
static OF_A_BLOCK void* places[1024];
static void four_of(unsigned* r, void* from, bool transposed) {
  places[threadIdx.x] = from;
  __syncwarp();
  const int first = threadIdx.x / 32 * 32, lane = threadIdx.x % 32;
  for (int k = 0; k < 4; ++k) {
    unsigned short found[2];
    for (int half = 0; half < 2; ++half) {
      const int row = transposed ? lane % 4 * 2 + half : lane / 4;
      const int column = transposed ? lane / 4 : lane % 4 * 2 + half;
      found[half] = static_cast<unsigned short*>(places[first + k * 8 + row])[column];
    }
    r[k] = found[0] | (unsigned)found[1] << 16;
  }
  __syncwarp();
}
static OF_A_BLOCK float (*as_float)(unsigned short);
static OF_A_BLOCK unsigned lefts[1024][4], rights[1024][2];
static float as_single(unsigned x) { return __builtin_bit_cast(float, x); }
static void multiplied_tf32(float* c, const unsigned* a, unsigned b0, unsigned b1) {
  const unsigned kept = 0xffffe000u;
  for (int k = 0; k < 4; ++k) lefts[threadIdx.x][k] = a[k] & kept;
  rights[threadIdx.x][0] = b0 & kept;
  rights[threadIdx.x][1] = b1 & kept;
  __syncwarp();
  const int first = threadIdx.x / 32 * 32, lane = threadIdx.x % 32;
  for (int v = 0; v < 4; ++v) {
    const int row = lane / 4, upper = v / 2, column = lane % 4 * 2 + v % 2;
    double total = c[v];
    for (int k = 0; k < 8; ++k)
      total += (double)as_single(lefts[first + row * 4 + k % 4][upper + k / 4 * 2]) *
               as_single(rights[first + column * 4 + k % 4][k / 4]);
    c[v] = total;
  }
  __syncwarp();
}
static void multiplied(float* c, const unsigned* a, unsigned b0, unsigned b1) {
  for (int k = 0; k < 4; ++k) lefts[threadIdx.x][k] = a[k];
  rights[threadIdx.x][0] = b0;
  rights[threadIdx.x][1] = b1;
  __syncwarp();
  const int first = threadIdx.x / 32 * 32, lane = threadIdx.x % 32;
  for (int v = 0; v < 4; ++v) {
    const int row = lane / 4, upper = v / 2, column = lane % 4 * 2 + v % 2;
    double total = c[v];
    for (int k = 0; k < 16; ++k) {
      const unsigned x = lefts[first + row * 4 + k % 8 / 2][upper + k / 8 * 2];
      const unsigned y = rights[first + column * 4 + k % 8 / 2][k / 8];
      total += (double)as_float(x >> k % 2 * 16) * as_float(y >> k % 2 * 16);
    }
    c[v] = total;
  }
  __syncwarp();
}
"""
TAIL = r"""
thread_local Line shared_memory[1 << 11];  // 256 KiB
static Args arguments;
static OF_A_BLOCK char finished[1024];
static void fiber(int thread) {
  threadIdx.x = thread;
  NAME(arguments);
  finished[thread] = 1;
  whole.leave();
  warps[thread / 32].leave();
}
// Whether nothing was written behind the bytes of shared memory that a launch asks for.
static bool blocks_of(int first, int end, int threads, int shared) {
  const size_t size = 1 << 16;
  unsigned char* const bytes = reinterpret_cast<unsigned char*>(shared_memory);
  for (size_t k = shared; k < sizeof(shared_memory); ++k) bytes[k] = 0x5a;
  char* stacks = static_cast<char*>(malloc(threads * size));
  blockDim.x = threads;
  for (blockIdx.x = first; blockIdx.x < end; ++blockIdx.x) {
    whole = Barrier{threads, 0, 0};
    for (int k = 0; k < 32; ++k)
      warps[k] = Barrier{threads - 32 * k < 32 ? threads - 32 * k : 32, 0, 0};
    for (int k = 0; k < threads; ++k) {
      finished[k] = 0;
      getcontext(&fibers[k]);
      fibers[k].uc_stack.ss_sp = &stacks[k * size];
      fibers[k].uc_stack.ss_size = size;
      fibers[k].uc_link = &scheduler;
      makecontext(&fibers[k], (void (*)())fiber, 1, k);
    }
    for (bool waiting = true; waiting;) {
      waiting = false;
      for (int k = 0; k < threads; ++k) {
        if (finished[k]) continue;
        threadIdx.x = k;
        swapcontext(&scheduler, &fibers[k]);
        waiting |= !finished[k];
      }
    }
  }
  free(stacks);
  bool kept = true;
  for (size_t k = shared; k < sizeof(shared_memory); ++k) kept &= bytes[k] == 0x5a;
  return kept;
}
extern "C" bool emulate(const Args* args, int blocks, int threads, int shared) {
  arguments = *args;
#ifndef AT_ONCE
  return blocks_of(0, blocks, threads, shared);
#else
  std::vector<std::thread> running;
  std::vector<char> kept(blocks);
  for (int k = 0; k < blocks; ++k)
    running.emplace_back([&, k] { kept[k] = blocks_of(k, k + 1, threads, shared); });
  bool all = true;
  for (int k = 0; k < blocks; ++k) {
    running[k].join();
    all &= kept[k];
  }
  return all;
#endif
}
"""


INSTRUCTIONS = {
    "rsqrt.approx.ftz.f32":
        "r = 1 / __builtin_sqrtf(__builtin_fabsf(x) < 0x1p-126f ? 0 * x : x);",
    "max.NaN.f32": "r = x != x ? x : y != y ? y : x < y ? y : x;",
    "min.NaN.f32": "r = x != x ? x : y != y ? y : y < x ? y : x;",
    "atom.add.acq_rel.gpu.u32": "before = __atomic_fetch_add(counter, 1, __ATOMIC_ACQ_REL);",
    "ld.acquire.gpu.global.u32":
        "found = __atomic_load_n(flag, __ATOMIC_ACQUIRE); if (!found) OTHERS_GO_ON;",
    "st.release.gpu.global.u32": "__atomic_store_n(flag, value, __ATOMIC_RELEASE);",
    "cp.async.cg.shared.global": "(void)place; __builtin_memcpy(to, from, 16);",
    "cp.async.ca.shared.global": "(void)place; __builtin_memcpy(to, from, BYTES);",
    "barrier.sync": "wait_named(number, G);",
    "cvt.rn.bf16.f32":
        "u32 word = bits_of(x); "
        "r = x != x ? 0x7fff : (word + 0x7fffu + ((word >> 16) & 1u)) >> 16;",
    "cvt.rn.bf16x2.f32": "r = (unsigned)round_bf16(low) | (unsigned)round_bf16(high) << 16;",
    "cvt.rn.f16x2.f32": "r = (unsigned)round_f16(low) | (unsigned)round_f16(high) << 16;",
    "ldmatrix.sync.aligned.m8n8.x4.shared.b16":
        "(void)place; four_of(r, const_cast<void*>(from), false);",
    "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16":
        "(void)place; four_of(r, const_cast<void*>(from), true);",
    "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32":
        "as_float = [](unsigned short x) { return widen((bf16)x); }; multiplied(c, a, b0, b1);",
    "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32":
        "as_float = [](unsigned short x) { return widen((f16)x); }; multiplied(c, a, b0, b1);",
    "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32": "multiplied_tf32(c, a, b0, b1);",
    "ex2.approx.ftz.f32": "r = __builtin_exp2f(x); if (r < 0x1p-126f) r = 0;",
    "cp.async.wait_all": "", "cp.async.wait_group": "", "cp.async.commit_group": "",
}
_ASSEMBLY = re.compile(r'\basm(?: volatile)?\("([\w.]+)[^;]*;?[^"]*"[^;]*\);')


def headers_without_assembly(folder: Path) -> Path:
    """Return a folder with the headers, instructions replaced by what they do."""
    copied = folder / "headers"
    if not copied.exists():
        copied.mkdir()
        for path in HEADERS.glob("*.h"):
            text = path.read_text()
            if path.name == "math.h":  # else only CUDA's compiler includes it
                text += ("TA_FN f32 any_power(f32 x, f32 y) { return m_power(x, y); }\n"
                         '#include "device_math.h"\n')
            (copied / path.name).write_text(_ASSEMBLY.sub(
                lambda found: f"{{ {INSTRUCTIONS[found[1]]} }}" if found[1] in INSTRUCTIONS
                else found[0], text))
    return copied


def compiled(text: str, folder: Path) -> ctypes.CDLL:
    """Load a source, compiled if it is new; what it begins with up to its last header is, once."""
    path = folder / f"{_name(text)}.cpp"
    library = path.with_suffix(".so")
    if not library.exists():
        options = [*OPTIONS, f"-I{headers_without_assembly(folder)}"]
        end = text.index("\n", text.rindex("#include")) + 1
        begins = folder / f"{_name(text[:end])}.h"
        if not begins.exists():
            begins.write_text(text[:end])
            subprocess.run(["g++", *options, "-x", "c++-header", "-o", f"{begins}.gch", begins],
                           check=True)
        path.write_text(f'#include "{begins.name}"\n{text[end:]}')
        subprocess.run(["g++", *options, "-o", library, path], check=True)
    return ctypes.CDLL(str(library))


def _name(text: str) -> str:
    return hashlib.sha1(text.encode()).hexdigest()


class EmulatedLaunch:
    """A kernel's device text, compiled for this machine."""

    def __init__(self, kernel: Kernel, program: Program, plan: Plan, folder: Path) -> None:
        self.program = program
        self.binding = Binding.of(program.slots, plan.memory)
        self.args = Arguments((), self.binding.fields)
        text = "#define AT_ONCE\n" if program.at_once else ""
        text += HEAD + source_of(kernel, program) + TAIL.replace("NAME", program_name(kernel))
        self.counters = numpy.zeros(0, numpy.uint32)
        self.emulate = compiled(text, folder).emulate
        self.emulate.restype = ctypes.c_bool

    def bound(self, place: device.Device, buffers: Any, params: Sequence[Any]) -> Any:
        workspace = Workspace(place)
        self.binding.locate(self.args.slots, buffers, params)
        self.binding.fill(self.args.slots, params, workspace, self._counters)

        def start() -> int:
            within = self.emulate(
                self.args.memory, self.program.blocks, self.program.threads,
                self.program.shared_bytes)
            assert within, "a block stays within its shared memory"
            assert not self.counters.any(), "counters are left at zero"
            return 0

        return start, workspace

    def _counters(self, count: int) -> int:
        if self.counters.size == 0:
            self.counters = numpy.zeros(count, numpy.uint32)
        assert self.counters.size == count
        return self.counters.ctypes.data

    def free(self, kept: Any) -> None:
        """Take back what `bound` gave; nothing here is used again."""


def emulate(executable: Executable, folder: Path) -> None:
    """Have a plan's kernels, and those in its loops, run emulated."""
    for each in (executable, *executable._of_loops()):
        launches: Any = each.launches
        for kernel in each.plan.kernels:
            printed = each.programs[kernel] = print_kernel(kernel, device=True)
            launches[kernel] = EmulatedLaunch(kernel, printed, each.plan, folder)


def emulated(program: Callable[..., Any], *inputs: numpy.ndarray, folder: Path) -> tuple[
        Plan, list[numpy.ndarray]]:
    """Record a program, plan it for a GPU, run its kernels here; return the plan and results."""
    result = program(ta, *(ta.array(x) for x in inputs))
    outputs = result if isinstance(result, tuple) else (result,)
    traced = trace([array.origin().node for array in outputs])
    plan = passes.plan(
        traced.signature, frozenset(), DEVICE, params=traced.params, check=True)
    executable = Executable(plan, device.resolve("cpu"))
    emulate(executable, folder)
    leaves = {value: traced.nodes[value.attrs].buffer for value in plan.values
              if isinstance(value.op, Leaf)}
    buffers = executable.run(leaves, traced.params)
    return plan, [numpy.asarray(buffer.array) for buffer in buffers]
