"""Kernels for a GPU run on a machine without one: their text, compiled by g++ with stand-ins.

Every thread of a block is a fiber, and a barrier hands over to the next.  Vectors at
addresses that are not aligned trap.  Warp shuffles have no stand-in, so this runs maps alone.
"""

from __future__ import annotations

import ctypes
import hashlib
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
#include <stdlib.h>
#include <ucontext.h>
#define __CUDACC__ 1
#define __global__
#define __grid_constant__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__ thread_local  // extern or static, and one for all fibers
#define alignas(...) __attribute__((aligned(__VA_ARGS__)))
struct Place { int x; };
static Place blockIdx, threadIdx;
struct alignas(8) uint2 { unsigned x, y; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
template <class T> static inline T __ldg(const T* at) {
  if ((unsigned long)at % sizeof(T)) __builtin_trap();
  return *at;
}
static inline unsigned __shfl_xor_sync(unsigned, unsigned, int) { __builtin_trap(); }
static inline unsigned long __cvta_generic_to_shared(void*) { __builtin_trap(); }
static inline unsigned atomicAdd(unsigned*, unsigned) { __builtin_trap(); }
static inline void __threadfence() {}
static ucontext_t scheduler, fibers[1024];  // as many as a block may have threads
static void __syncthreads() {
  const int me = threadIdx.x;
  swapcontext(&fibers[me], &scheduler);
  threadIdx.x = me;
}
"""
TAIL = r"""
static Args arguments;
static char finished[1024];
static void fiber(int thread) {
  threadIdx.x = thread;
  NAME(arguments);
  finished[thread] = 1;
}
extern "C" void emulate(const Args* args, int blocks, int threads) {
  const size_t size = 1 << 16;
  char* stacks = static_cast<char*>(malloc(threads * size));
  arguments = *args;
  for (blockIdx.x = 0; blockIdx.x < blocks; ++blockIdx.x) {
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
}
"""


class EmulatedLaunch:
    """A kernel's device text, compiled for this machine."""

    def __init__(self, kernel: Kernel, program: Program, plan: Plan, folder: Path) -> None:
        self.program = program
        self.binding = Binding.of(program.slots, plan.memory)
        self.args = Arguments((), self.binding.fields)
        text = HEAD + source_of(kernel, program) + TAIL.replace("NAME", program_name(kernel))
        path = folder / f"{hashlib.sha1(text.encode()).hexdigest()}.cpp"
        library = path.with_suffix(".so")
        if not library.exists():
            path.write_text(text)
            subprocess.run(["g++", *OPTIONS, f"-I{HEADERS}", "-o", library, path], check=True)
        self.emulate = ctypes.CDLL(str(library)).emulate

    def bound(self, place: device.Device, buffers: Any, params: Sequence[Any]) -> Any:
        workspace = Workspace(place)
        self.binding.locate(self.args.slots, buffers, params)
        self.binding.fill(self.args.slots, params, workspace, lambda _: 0)

        def start() -> int:
            self.emulate(self.args.memory, self.program.blocks, self.program.threads)
            return 0

        return start, workspace

    def free(self, kept: Any) -> None:
        """Take back what `bound` gave; nothing here is used again."""


def emulated(program: Callable[..., Any], *inputs: numpy.ndarray, folder: Path) -> tuple[
        Plan, list[numpy.ndarray]]:
    """Record a program, plan it for a GPU, run its kernels here; return the plan and results."""
    result = program(ta, *(ta.array(x) for x in inputs))
    outputs = result if isinstance(result, tuple) else (result,)
    traced = trace([array.origin().node for array in outputs])
    plan = passes.plan(
        traced.signature, frozenset(), DEVICE, params=traced.params, check=True)
    executable = Executable(plan, device.resolve("cpu"))
    launches: Any = executable.launches
    for kernel in plan.kernels:
        printed = executable.programs[kernel] = print_kernel(kernel, device=True)
        launches[kernel] = EmulatedLaunch(kernel, printed, plan, folder)
    leaves = {value: traced.nodes[value.attrs].buffer for value in plan.values
              if isinstance(value.op, Leaf)}
    buffers = executable.run(leaves, traced.params)
    return plan, [numpy.asarray(buffer.array) for buffer in buffers]
