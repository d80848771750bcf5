"""C++ to machine code for this very processor, through the system's compiler.

``-ffast-math`` is never used: loading such a library flushes denormals to zero for the whole
process, and ``isnan`` folds to false.  glibc's vector functions come from our own declarations
(``math.h`` here); ``TA_LIBMVEC`` says which there are.
"""

from __future__ import annotations

import ctypes
import functools
import os
import platform
import shlex
import shutil
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tiledarray import config
from tiledarray.devices import threads
from tiledarray.devices.threads import ThreadPool, available_cpus
from tiledarray.errors import CompilerError
from tiledarray.fork import hold_at_fork
from tiledarray.kernels import HEADERS
from tiledarray.kernels.compile import cache

LOG_LINES_SHOWN = 12
INSTALL = "install one ('apt install g++', 'dnf install gcc-c++', 'conda install gxx'), or set CXX"

_POOL_SOURCE = Path(threads.__file__).with_name("threads.cpp")
_lock = threading.Lock()
hold_at_fork(_lock)
_libraries: dict[str, ctypes.CDLL] = {}
_pools: list[ThreadPool] = []


@dataclass(frozen=True, slots=True)
class Compiler:
    """A C++ compiler and what it compiles for.

    ``libmvec`` is 2 where glibc has all its vector functions, 1 where it has only exp, log, sin,
    cos and pow, 0 where there are none that this compiler can call.
    """

    command: tuple[str, ...]
    version: str
    libmvec: int
    identity: str

    @property
    def clang(self) -> bool:
        """Whether it is clang, whatever its name."""
        return "clang" in self.version


@dataclass(frozen=True, slots=True)
class HostKernel:
    """A compiled, loaded function.  ``library`` keeps it loaded."""

    name: str
    address: int
    path: Path
    library: ctypes.CDLL


def available() -> str | None:
    """Why the host's kernels cannot be compiled, or ``None`` where they can."""
    if sys.platform == "win32":
        return "compiling host kernels is not supported on Windows"
    if _command() is None:
        wanted = os.environ.get("CXX")
        named = f"CXX={wanted} is not a program, and " if wanted else ""
        return f"{named}there is no c++, g++ or clang++ on the PATH"
    return None


@functools.cache
def _command() -> tuple[str, ...] | None:
    """Return what calls the compiler: ``$CXX``, else the first of c++, g++, clang++ there is.

    ``CXX`` may hold a command with arguments, such as ``ccache g++``.
    """
    for wanted in (os.environ.get("CXX", ""), "c++", "g++", "clang++"):
        program, *arguments = shlex.split(wanted) or [""]
        path = shutil.which(program) if program else None
        if path is not None:
            return path, *arguments
    return None


@functools.cache
def compiler() -> Compiler | None:
    """Return the compiler in use; the first call runs it, to ask for its version."""
    found = _command()
    return None if found is None else _probe(found)


def flags(contract: bool | None = None) -> tuple[str, ...]:
    """Compiler options for kernels; products are contracted where ``config.contract`` is true."""
    found = _required("")
    if contract is None:
        contract = config.contract is True
    machine = ("-mcpu=native",) if platform.machine() in ("arm64", "aarch64") else (
        "-march=native", "-mprefer-vector-width=512",
    )  # fmt: skip
    vector_library = ("-fveclib=libmvec",) if found.clang and _glibc() else ()
    return (
        "-O3", *machine, "-std=c++17", "-fPIC", "-shared", "-fopenmp-simd", "-w", "-pipe",
        "-fno-math-errno", "-fno-trapping-math", f"-ffp-contract={'fast' if contract else 'off'}",
        "-fwrapv", "-fno-strict-aliasing", "-fno-semantic-interposition",
        "-fvisibility-inlines-hidden", *vector_library, f"-DTA_LIBMVEC={found.libmvec}",
    )  # fmt: skip


def compile_source(source: str, name: str, *, contract: bool | None = None) -> HostKernel:
    """Compile C++17 and load it, or take it from the disk cache.

    Parameters
    ----------
    source : str
        The whole translation unit; it may include ``"tile.h"`` and ``"math.h"``.
    name : str
        The ``extern "C"`` function to look up; also names the source in messages.
    contract : bool, optional
        Whether ``a * b + c`` may be rounded once.  Default: whether ``config.contract`` is true.

    Raises
    ------
    CompilerError
        There is no compiler, or it refuses the source.
    """
    path = _built(source, name, flags(contract), _header_text())
    library = _load(path)
    try:
        function = getattr(library, name)
    except AttributeError:
        message = f'the source has no extern "C" function {name}'
        raise CompilerError(message, source=source) from None
    address = ctypes.cast(function, ctypes.c_void_p).value
    assert address is not None
    return HostKernel(name, address, path, library)


def compile_many(
    sources: Sequence[tuple[str, str]], *, contract: bool | None = None
) -> list[HostKernel]:
    """Compile several ``(source, name)`` at the same time; results in the same order."""
    workers = min(len(sources), available_cpus())
    if workers <= 1:
        return [compile_source(*pair, contract=contract) for pair in sources]
    with ThreadPoolExecutor(workers) as executor:
        return list(executor.map(lambda pair: compile_source(*pair, contract=contract), sources))


def pool() -> ThreadPool:
    """Return the host thread pool, made at the first call, with ``config.threads`` threads."""
    threads = config.threads or available_cpus_remembered()
    if not _pools:
        path = _built(_POOL_SOURCE.read_text(), "threads", (*flags(False), "-pthread"), "")
        with _lock:
            if not _pools:
                _pools.append(ThreadPool(path, threads))
    if _pools[0].threads != threads:
        _pools[0].resize(threads)
    return _pools[0]


available_cpus_remembered = functools.cache(available_cpus)


def _required(source: str) -> Compiler:
    reason = available()
    found = compiler()
    if reason is not None or found is None:
        raise CompilerError(f"no C++ compiler: {reason}", source=source, remedy=INSTALL)
    return found


def _built(source: str, name: str, options: tuple[str, ...], headers: str) -> Path:
    identity = _required(source).identity
    entry = cache.key("host", identity, name, source, headers, *options)
    return cache.get_or_build(
        entry, ".so", lambda place: _compile(source, name, options, place)
    )


def _compile(source: str, name: str, options: tuple[str, ...], place: Path) -> None:
    found = _required(source)
    libraries = ("-lmvec", "-lm") if _libmvec_level() else ("-lm",)
    command = [
        *found.command, *options, "-iquote", str(HEADERS), "-x", "c++", "-", "-o", str(place),
        "-x", "none", *libraries,
    ]  # fmt: skip
    try:
        result = subprocess.run(
            command, input=f'#line 1 "{name}.cpp"\n{source}', capture_output=True, text=True,
            errors="replace", check=False,
        )  # fmt: skip
    except OSError as error:
        raise CompilerError(f"{found.command[0]} cannot be run: {error}", remedy=INSTALL) from error
    if result.returncode != 0:
        raise _refused(source, name, command, result)


def _refused(
    source: str, name: str, command: list[str], result: subprocess.CompletedProcess[str]
) -> CompilerError:
    log = result.stderr or result.stdout or f"it ended with status {result.returncode}"
    lines = log.splitlines()
    place = cache.folder() / "failed" / f"{name}-{cache.key(source)[:12]}.cpp"
    try:
        place.parent.mkdir(exist_ok=True, mode=0o700)
        place.write_text(source)
        kept = place
    except OSError:
        kept = None
    shown = "\n".join(lines[:LOG_LINES_SHOWN])
    more = len(lines) - LOG_LINES_SHOWN
    tail = f"\n... and {more} lines more (in the exception's .log)" if more > 0 else ""
    return CompilerError(
        f"{command[0]} could not compile {name}:\n{shown}{tail}\nCommand: {' '.join(command)}",
        source=source,
        log=log,
        path=kept,
        remedy=f"report this with the source kept in {kept}; "
        "tiledarray.config.compile = 'never' does without kernels",
    )


def _load(path: Path) -> ctypes.CDLL:
    library = _libraries.get(path.name)
    if library is None:
        try:
            library = ctypes.CDLL(str(path))
        except OSError as error:
            raise CompilerError(
                f"the compiled kernel cannot be loaded: {error}",
                remedy="set TILEDARRAY_CACHE_DIR to a folder from which programs may run "
                "(not mounted noexec)",
            ) from error
        library = _libraries.setdefault(path.name, library)
    return library


@functools.cache
def _header_text() -> str:
    """Text of our own headers, on which every kernel depends."""
    return "\0".join(path.read_text() for path in sorted(HEADERS.glob("*.h")))


def _probe(command: tuple[str, ...]) -> Compiler:
    """Ask the compiler for its version: once for each binary, remembered on disk."""
    real = Path(command[0]).resolve()
    status = real.stat()
    binary = f"{real} {status.st_mtime_ns} {status.st_size} {' '.join(command[1:])}"

    def ask(place: Path) -> None:
        answer = subprocess.run([*command, "--version"], capture_output=True, check=False)
        place.write_bytes(answer.stdout)

    known = cache.get_or_build(cache.key("compiler", binary), ".txt", ask)
    version = known.read_text(errors="replace").strip().partition("\n")[0] or "unknown"
    libmvec = 0 if "clang" in version else _libmvec_level()
    identity = cache.key(binary, version, _processor(), _glibc(), str(libmvec))
    return Compiler(command, version, libmvec, identity)


def _processor() -> str:
    """Return what ``-march=native`` depends on."""
    wanted = ("vendor_id", "cpu family", "model", "flags", "Features", "CPU part")
    try:
        first = Path("/proc/cpuinfo").read_text().split("\n\n")[0]
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    return platform.machine() + "".join(
        line for line in first.splitlines() if line.split("\t")[0].strip() in wanted
    )


def _glibc() -> str:
    """Version of glibc; empty where the C library is another."""
    try:
        return os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (AttributeError, ValueError, OSError):
        return ""


@functools.cache
def _libmvec_level() -> int:
    """Which vector functions the C library has; see `Compiler`."""
    prefix = {"x86_64": "_ZGVbN2v_", "aarch64": "_ZGVnN2v_"}.get(platform.machine())
    if prefix is None or not _glibc():
        return 0
    try:
        library = ctypes.CDLL("libmvec.so.1")
    except OSError:
        return 0
    if all(hasattr(library, prefix + name) for name in ("tanh", "erf", "log1p", "cbrt", "asinh")):
        return 2
    return int(hasattr(library, prefix + "exp"))
