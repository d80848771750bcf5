"""CUDA C++ to machine code, through NVRTC: no driver and no GPU are needed.

A kernel is always compiled to a cubin for one exact architecture and never to PTX: an NVRTC newer
than the driver emits PTX that the driver refuses, while its cubins load.  The headers beside this
file (``tile.h`` ...) are given to the compiler from memory: source needs no include path.

The resource report (registers, shared memory, spills) comes from the assembler's own log, and is
kept on disk beside the cubin.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import re
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from types import ModuleType
from typing import Any

from tiledarray import config, errors
from tiledarray.devices.threads import all_of
from tiledarray.fork import hold_at_fork
from tiledarray.kernels import HEADERS
from tiledarray.kernels.compile import cache
from tiledarray.kernels.compile.signals import Guard, leave_to_us

LOG_LINES_SHOWN = 12
MOST_AT_ONCE = 8
EXIT_SECONDS = 30.0
INSTALL = "pip install 'tiledarray[cuda13]' (or [cuda12]), or compute on the CPU (device='cpu')"

_ENTRY = re.compile(r"Compiling entry function '([^']+)'")
_FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")
_STACK = re.compile(r"(\d+) bytes cumulative stack size")
_LOCAL = re.compile(r"(\d+) bytes lmem")
# Tried in turn where a kernel spills: by itself the assembler sometimes keeps more blocks on a
# multiprocessor than there are registers for.
_MORE_REGISTERS = (["--ptxas-options=--register-usage-level=10"], ["-DTA_BLOCKS_RESIDENT=1"])
# Before those, where the source itself asks for more blocks than these.
FEWER_BLOCKS = (4, 2)
_RESIDENT = re.compile(r"#define TA_RESIDENT (\d+)")
_NO_CACHE = "--no-cache"
_TRAILER = b"\ntiledarray-report:"


@dataclass(frozen=True, slots=True)
class ResourceReport:
    """What the assembler gave one kernel.  Sizes in bytes; per thread, but for ``shared_bytes``.

    ``shared_bytes`` is static shared memory only.  ``local_bytes`` is the stack: arrays indexed at
    run time and spilled registers, both in (slow) local memory.
    """

    kernel: str
    registers: int
    shared_bytes: int
    spill_stores: int
    spill_loads: int
    local_bytes: int

    @property
    def clean(self) -> bool:
        """Whether everything is in registers: no spills, no local memory."""
        return not (self.spill_stores or self.spill_loads or self.local_bytes)


@dataclass(frozen=True, slots=True)
class CudaBinary:
    """Machine code of the kernels of one source, for one architecture."""

    name: str
    arch: str
    cubin: bytes
    reports: Mapping[str, ResourceReport]


class _UnderWay:
    """Counts compiles, so that the process does not end in the middle of one.

    A thread that nobody waits for any more may be at it; the library's memory goes when the
    process exits, and the process would crash.  Signal handlers are looked after meanwhile.
    Once the process ends, none begins.
    """

    def __init__(self) -> None:
        self._count = 0
        self._ended = False
        self._guard = Guard()
        self._changed = threading.Condition(threading.Lock())
        hold_at_fork(self._changed)
        atexit.register(self._wait)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._begin_anew)

    def __enter__(self) -> None:
        with self._changed:
            if self._ended:
                raise errors.CompilerError("the process ends", passing=True)
            if not self._count and not _installs_no_handlers():
                self._guard.begin()
            self._count += 1

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._count -= 1
            if not self._count:
                self._guard.end()
            self._changed.notify_all()

    def _wait(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not self._count, EXIT_SECONDS)
            self._ended = True

    def _begin_anew(self) -> None:
        self._count = 0  # a forked child has none of its parent's threads


_under_way = _UnderWay()


@functools.cache
def available() -> str | None:
    """Why NVRTC cannot be used, or ``None`` where it can."""
    try:
        nvrtc_version()
    except ImportError:
        return "the Python package cuda-bindings is missing"
    except Exception as error:  # cuda.bindings raises its loader's own types
        first_line = str(error).strip().splitlines()[:1] or [type(error).__name__]
        return f"NVRTC could not be loaded: {first_line[0]}"
    return None


def compile_source(
    source: str, name: str, arch: str, *, contract: bool | None = None
) -> CudaBinary:
    """Compile CUDA C++17 to a cubin, or take it from the disk cache.

    Parameters
    ----------
    source : str
        The whole translation unit.  It may include ``tile.h``, and CUDA's own
        ``<cuda_fp16.h>`` and ``<cuda_bf16.h>``.
    name : str
        Names the source in messages; the kernels keep the names that the source gives them.
    arch : str
        ``"sm_80"``, ``"sm_90a"`` ...
    contract : bool, optional
        Whether ``a * b + c`` may become one fused multiply-add, which rounds once where NumPy
        rounds twice, wherever the compiler likes.  Default: whether ``config.contract`` is true.

    Raises
    ------
    CompilerError
        The source does not compile, or there is no compiler.  Holds the source and the log.

    Notes
    -----
    Any number of threads may compile at once; the work runs without the interpreter lock.
    """
    reason = available()
    if reason is not None:
        raise errors.CompilerError(f"no CUDA compiler: {reason}", source=source, remedy=INSTALL)
    options = _options(source, arch, config.contract is True if contract is None else contract)
    headers = _headers()
    key = cache.key("cuda", name, source, *headers.values(), *options,
                    str((FEWER_BLOCKS, *_MORE_REGISTERS)),
                    nvrtc_version())

    def build() -> bytes:
        with _under_way:
            return _best(source, name, headers, options)

    artefact = cache.get_or_build(key, ".cubin", build)
    cubin, reports = _unpack(artefact.data)
    return CudaBinary(name, arch, cubin, reports)


def compile_many(
    sources: Sequence[tuple[str, str]], arch: str, *, contract: bool | None = None
) -> list[CudaBinary]:
    """Compile several ``(source, name)`` at the same time; results in the same order.

    Whoever interrupts the wait (Ctrl-C) is let go at once.  A compile that was begun goes on, since
    the compiler is a library of this process, and what it makes is in the cache.

    Raises
    ------
    CompilerError
        The first that fails, as for `compile_source`; or all of them take longer than
        ``config.compile_seconds``.
    """
    try:
        return all_of(lambda pair: compile_source(*pair, arch, contract=contract), sources,
                      min(MOST_AT_ONCE, len(sources)), config.compile_seconds)
    except TimeoutError:
        raise errors.CompilerError(
            f"NVRTC did not compile within {config.compile_seconds:g} seconds", passing=True,
            remedy="set tiledarray.config.compile_seconds (or TILEDARRAY_COMPILE_SECONDS) higher",
        ) from None


def resources(
    source: str, name: str, archs: Iterable[str] = ("sm_80", "sm_90")
) -> dict[str, ResourceReport]:
    """Resource report of the kernel ``name`` of ``source`` on each architecture.

    The tests call this on a machine without a GPU, to see that nothing spills.
    """
    return {arch: compile_source(source, name, arch).reports[name] for arch in archs}


def parse_log(log: str) -> dict[str, ResourceReport]:
    """Read the assembler's verbose log into one report for each kernel."""
    parts = _ENTRY.split(log)[1:]
    return {
        kernel: _parse_entry(kernel, text)
        for kernel, text in zip(parts[::2], parts[1::2], strict=True)
    }


def _parse_entry(kernel: str, text: str) -> ResourceReport:
    def number(pattern: re.Pattern[str]) -> int:
        found = pattern.search(text)
        return int(found.group(1)) if found else 0

    frame = _FRAME.search(text)
    stack, stores, loads = (int(n) for n in frame.groups()) if frame else (0, 0, 0)
    return ResourceReport(
        kernel=kernel,
        registers=number(_USED),
        shared_bytes=number(_SHARED),
        spill_stores=stores,
        spill_loads=loads,
        local_bytes=max(stack, number(_STACK), number(_LOCAL)),
    )


def _options(source: str, arch: str, contract: bool) -> list[str]:
    options = [
        f"-arch={arch}",
        "-std=c++17",
        f"--fmad={'true' if contract else 'false'}",
        "-default-device",
        "--ptxas-options=-v",
    ]
    toolkit = _toolkit_headers()
    if toolkit is not None and any("<cuda_" in text for text in (source, *_headers().values())):
        options.append(f"-I{toolkit}")
    return options


@functools.cache
def _headers() -> dict[str, str]:
    """Text of our own headers by the name under which source includes them."""
    return {path.name: path.read_text() for path in sorted(HEADERS.glob("*.h"))}


@functools.cache
def _toolkit_headers() -> str | None:
    """Folder with CUDA's headers (``cuda_fp16.h`` ...), if some package brought them."""
    try:
        from cuda.pathfinder import find_nvidia_header_directory
    except ImportError:
        return None
    return find_nvidia_header_directory("cudart")


def _best(source: str, name: str, headers: Mapping[str, str], options: list[str]) -> bytes:
    """Build, again with more registers where a kernel spills; the first with the least spilled.

    Some instructions want more registers than a number of blocks leaves: that is no build then.
    """
    best, least = b"", -1
    asked = _RESIDENT.search(source)
    fewer = [[f"-DTA_BLOCKS_RESIDENT={blocks}"] for blocks in FEWER_BLOCKS
             if asked and int(asked[1]) > blocks]
    deals_out = "take_registers<" in source  # threads that count on how many the kernel begins with
    for more in ([], *(() if deals_out else (*fewer, *_MORE_REGISTERS))):
        try:
            built = _build(source, name, headers, [*options, *more])
        except errors.CompilerError as failure:
            if asked and "Insufficient registers" in (failure.log or "") and (
                    best or (not deals_out and more is not _MORE_REGISTERS[-1])):
                continue
            raise
        local = sum(report.local_bytes for report in _unpack(built)[1].values())
        if least < 0 or local < least:
            best, least = built, local
        if local == 0:
            break
    return best


def _build(source: str, name: str, headers: Mapping[str, str], options: list[str]) -> bytes:
    nvrtc = _nvrtc()
    program = _checked(
        nvrtc,
        nvrtc.nvrtcCreateProgram(
            source.encode(),
            # What no header in memory is called is looked for where the source lies.
            str(HEADERS / f"{name}.cu").encode(),
            len(headers),
            [text.encode() for text in headers.values()],
            [header.encode() for header in headers],
        ),
    )
    try:
        (status,) = nvrtc.nvrtcCompileProgram(
            program, len(options), [option.encode() for option in options]
        )
        # NVRTC writes into these fresh bytes objects: the bindings take no other buffer.
        log = bytes(_checked(nvrtc, nvrtc.nvrtcGetProgramLogSize(program)))
        _checked(nvrtc, nvrtc.nvrtcGetProgramLog(program, log))
        log_text = log.rstrip(b"\0 \n").decode(errors="replace")
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            raise _compile_error(source, name, options, status.name, log_text)
        cubin = bytes(_checked(nvrtc, nvrtc.nvrtcGetCUBINSize(program)))
        _checked(nvrtc, nvrtc.nvrtcGetCUBIN(program, cubin))
    finally:
        nvrtc.nvrtcDestroyProgram(program)
    reports = parse_log(log_text)
    if not reports and _NO_CACHE not in options:
        # NVRTC took it from a cache of its own, which keeps what it made and not what it said.
        return _build(source, name, headers, [*options, _NO_CACHE])
    return _pack(cubin, reports)


def _compile_error(
    source: str, name: str, options: list[str], status: str, log: str
) -> errors.CompilerError:
    lines = log.splitlines()
    shown = "\n".join(lines[:LOG_LINES_SHOWN])
    more = len(lines) - LOG_LINES_SHOWN
    tail = f"\n... and {more} lines more (in the exception's .log)" if more > 0 else ""
    return errors.CompilerError(
        f"NVRTC could not compile {name} ({status}, {options[0]}):\n{shown}{tail}",
        source=source,
        log=log,
        path=cache.keep_failed(f"{name}-{cache.key(source)[:12]}.cu", source),
        remedy="this is a defect of the generator: please report it with the source",
    )


def _pack(cubin: bytes, reports: Mapping[str, ResourceReport]) -> bytes:
    """Join a cubin and its reports in one file: tools read an ELF file and ignore what follows."""
    return cubin + _TRAILER + json.dumps([asdict(report) for report in reports.values()]).encode()


def _unpack(artefact: bytes) -> tuple[bytes, dict[str, ResourceReport]]:
    cubin, _, text = artefact.rpartition(_TRAILER)
    reports = [ResourceReport(**fields) for fields in json.loads(text)]
    return cubin, {report.kernel: report for report in reports}


@functools.cache
def _nvrtc() -> ModuleType:
    from cuda.bindings import nvrtc

    return nvrtc


@functools.cache
def _installs_no_handlers() -> bool:
    return leave_to_us("libnvrtc.so")


@functools.cache
def nvrtc_version() -> str:
    """Return NVRTC's version, such as ``"nvrtc 13.0"``.

    Raises
    ------
    ImportError
        There is no package that has it; `available` tells why it cannot be used.
    """
    nvrtc = _nvrtc()
    return "nvrtc " + ".".join(str(n) for n in _checked(nvrtc, nvrtc.nvrtcVersion()))


def _checked(nvrtc: ModuleType, answer: tuple[Any, ...]) -> Any:
    """Return what an NVRTC call returns, without its status, which must be success."""
    status, *values = answer
    if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise errors.CompilerError(f"NVRTC failed: {status.name}")
    return values[0] if len(values) == 1 else tuple(values)
