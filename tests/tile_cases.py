"""Tile primitives called alone: texts for the host, the emulated device and NVRTC, from one list.

A case has tiles and statements; its tiles are loaded, the statements run, the tiles are stored.
Many cases go into one translation unit, so that a test file compiles a few of them.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from pathlib import Path

import numpy

from tests import emulation
from tiledarray.fusion.tiles import teams
from tiledarray.kernels.compile import host

TYPES = {"f": "f32", "d": "f64", "F": "c64", "D": "c128", "i": "i32"}
PARTS = 4  # translation units that are compiled at the same time


@dataclass
class Case:
    """``tiles`` maps names to (rows, columns, type code); LD of tile x is written ``{x}``.

    On the device ``group`` threads work on a problem, ``together`` of them in a block.
    """

    name: str
    tiles: dict[str, tuple[int, int, str]]
    statements: str
    group: int = 32
    together: int = 0

    def __post_init__(self) -> None:
        self.together = self.together or max(1, 32 // self.group)

    def filled(self, inputs: dict[str, numpy.ndarray], problems: int) -> list[numpy.ndarray]:
        """One array (problems, rows, columns) a tile; what is no input holds rubbish."""
        return [
            numpy.array(inputs[name], code).reshape(problems, rows, columns) if name in inputs
            else numpy.full((problems, rows, columns), 77, code)
            for name, (rows, columns, code) in self.tiles.items()
        ]


# ---- host ------------------------------------------------------------------------------------


def host_text(cases: list[Case], width: int) -> str:
    parts = ['using idx = long long;\n#include "tile.h"\n#include "matrices.h"\n'
             '#include "fourier.h"\n#include "orthogonal.h"\n']
    for number, case in enumerate(cases):
        tiles = "".join(f"  {TYPES[code]}* {name} = ({TYPES[code]}*)memory[{k}];\n"
                        for k, (name, (_, _, code)) in enumerate(case.tiles.items()))
        body = case.statements.format(**{name: tile[1] for name, tile in case.tiles.items()})
        parts.append(
            f'extern "C" __attribute__((visibility("default"))) void case_{number}'
            f"(void** memory, int* failed) {{\n  Team<{width}> team;\n{tiles}  {body}\n}}\n")
    return "".join(parts)


class Host:
    """The cases compiled for this machine, ``width`` problems side by side."""

    def __init__(self, cases: list[Case], width: int) -> None:
        self.cases, self.width = cases, width
        parts = [cases[k::PARTS] for k in range(PARTS)]
        self.kernels = host.compile_many([(host_text(part, width), "case_0") for part in parts])
        self.functions = {case.name: getattr(kernel.library.handle, f"case_{k}")
                          for part, kernel in zip(parts, self.kernels, strict=True)
                          for k, case in enumerate(part)}

    def run(self, case: Case, inputs: dict[str, numpy.ndarray]) -> dict[str, numpy.ndarray]:
        problems = len(next(iter(inputs.values())))
        arrays = case.filled(inputs, problems)
        function = self.functions[case.name]
        failed = numpy.zeros(problems, numpy.int32)
        for first in range(0, problems, self.width):
            at = numpy.minimum(numpy.arange(first, first + self.width), problems - 1)
            tiles = [numpy.ascontiguousarray(x[at].reshape(self.width, -1).T) for x in arrays]
            fails = numpy.zeros(self.width, numpy.int32)
            pointers = (ctypes.c_void_p * len(tiles))(*(x.ctypes.data for x in tiles))
            function(pointers, ctypes.c_void_p(fails.ctypes.data))
            count = min(self.width, problems - first)
            for x, tile in zip(arrays, tiles, strict=True):
                x[first:first + count] = tile.T[:count].reshape(count, *x.shape[1:])
            failed[first:first + count] = fails[:count]
        return dict(zip(case.tiles, arrays, strict=True)) | {"failed": failed}


# ---- device ----------------------------------------------------------------------------------


def kernel_text(case: Case, function: str) -> str:
    """A kernel (or, for the emulator, a function) that runs a case, a problem a team."""
    itemsize = {name: numpy.dtype(code).itemsize for name, (_, _, code) in case.tiles.items()}
    pitch = {name: teams.pitch(columns, itemsize[name])
             for name, (_, columns, _) in case.tiles.items()}
    together = case.together
    declared, loads, stores = [], [], []
    for k, (name, (rows, columns, code)) in enumerate(case.tiles.items()):
        kind, size, ld = TYPES[code], rows * pitch[name], pitch[name]
        declared.append(f"  __shared__ alignas(16) {kind} {name}_all[{together * size}];\n"
                        f"  {kind}* const {name} = {name}_all + threadIdx.x / G * {size};\n"
                        f"  {kind}* const {name}_global = ({kind}*)args.p[{k}] + "
                        f"(long long)at * {rows * columns};\n")
        loop = f"  for (int e = team.rank; e < {rows * columns}; e += G)"
        element = f"{name}[e / {columns} * {ld} + e % {columns}]"
        loads.append(f"{loop} {element} = {name}_global[e];\n")
        stores.append(f"{loop} if (problem < args.problems) {name}_global[e] = {element};\n")
    return (
        f"{function} {{\n  enum {{ G = {case.group}, TEAMS = {together} }};\n  Team<G> team;\n"
        "  const int problem = blockIdx.x * TEAMS + threadIdx.x / G;\n"
        "  const int at = problem < args.problems ? problem : args.problems - 1;\n"
        "  int failed = 0;\n"
        f"{''.join(declared)}{''.join(loads)}  {case.statements.format(**pitch)}\n"
        f"{''.join(stores)}"
        "  if (team.rank == 0 && problem < args.problems) args.failed[problem] = failed;\n}\n")


def prologue() -> str:
    return ('using idx = int;\nenum { TX = 1024, TY = 1, V = 1, C = 1 };\n'
            '#include "tile.h"\n#include "matrices.h"\n#include "fourier.h"\n'
            '#include "orthogonal.h"\n'
            "struct Args { void* p[8]; int* failed; int problems, which; };\n")


def cuda_text(case: Case) -> str:
    threads = case.together * case.group
    return prologue() + kernel_text(
        case, f'extern "C" __global__ void __launch_bounds__({threads}) '
        f"{case.name}(const __grid_constant__ Args args)")


class _Arguments(ctypes.Structure):
    _fields_ = [("p", ctypes.c_void_p * 8), ("failed", ctypes.c_void_p),
                ("problems", ctypes.c_int), ("which", ctypes.c_int)]


class Emulated:
    """The device text of the cases, compiled for this machine."""

    def __init__(self, cases: list[Case], folder: Path) -> None:
        self.cases = cases
        functions = "".join(kernel_text(case, f"static void case_{k}(const Args& args)")
                            for k, case in enumerate(cases))
        chosen = "".join(f"  if (args.which == {k}) case_{k}(args);\n" for k in range(len(cases)))
        text = (emulation.HEAD + prologue() + functions
                + f"static void chosen(const Args& args) {{\n{chosen}}}\n"
                + emulation.TAIL.replace("NAME", "chosen"))
        self.emulate = emulation.compiled(text, folder).emulate

    def run(self, case: Case, inputs: dict[str, numpy.ndarray]) -> dict[str, numpy.ndarray]:
        problems = len(next(iter(inputs.values())))
        arrays = case.filled(inputs, problems)
        failed = numpy.full(problems, -1, numpy.int32)
        arguments = _Arguments((ctypes.c_void_p * 8)(*(x.ctypes.data for x in arrays)),
                               failed.ctypes.data, problems, self.cases.index(case))
        self.emulate(ctypes.byref(arguments), -(-problems // case.together),
                     case.together * case.group)
        return dict(zip(case.tiles, arrays, strict=True)) | {"failed": failed}
