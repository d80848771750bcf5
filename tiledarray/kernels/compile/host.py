"""C++ to machine code for this very processor, through the system's compiler.

``-ffast-math`` is never used: loading such a library flushes denormals to zero for the whole
process, and ``isnan`` folds to false.  glibc's vector functions come from our own declarations
(``math.h`` here); ``TA_LIBMVEC`` says which there are.
"""

from __future__ import annotations

import _ctypes
import ctypes
import functools
import os
import platform
import re
import shlex
import shutil
import sys
import threading
import weakref
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tiledarray import config
from tiledarray.devices import threads
from tiledarray.devices.threads import ThreadPool, available_cpus, host_threads
from tiledarray.errors import CompilerError, raised_outside
from tiledarray.fork import hold_at_fork
from tiledarray.kernels import HEADERS
from tiledarray.kernels.compile import beginnings, cache
from tiledarray.kernels.compile.elf import incomplete
from tiledarray.kernels.compile.process import Compilers

LOG_LINES_SHOWN = 12
INSTALL = "install one ('apt install g++', 'dnf install gcc-c++', 'conda install gxx'), or set CXX"

_POOL_SOURCE = Path(threads.__file__).with_name("threads.cpp")
_OUTPUT = "kernel.so"
# How gcc and clang begin what they say of a place in the source that they read.
_REFUSAL = re.compile(r":\d+(:\d+)?: (fatal )?error: (?!error writing)")
_lock = threading.RLock()
hold_at_fork(_lock)
_libraries: weakref.WeakValueDictionary[str, Library] = weakref.WeakValueDictionary()
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


class Library:
    """A loaded shared library, which is unloaded when nothing refers to it any more.

    Raises
    ------
    OSError
        The system's loader refuses it.
    """

    __slots__ = ("handle", "__weakref__")

    def __init__(self, path: str) -> None:
        self.handle = ctypes.CDLL(path)
        weakref.finalize(self, _ctypes.dlclose, self.handle._handle).atexit = False


@dataclass(frozen=True, slots=True, weakref_slot=True)
class HostKernel:
    """A compiled, loaded function.  ``library`` keeps it loaded."""

    name: str
    address: int
    path: Path
    library: Library


def available() -> str | None:
    """Why the host's kernels cannot be compiled, or ``None`` where they can."""
    if sys.platform == "win32":
        return "compiling host kernels is not supported on Windows"
    if isinstance(_command(), tuple):
        return None
    wanted = os.environ.get("CXX")
    if _command() is not None:
        return f"CXX={wanted} cannot be read as a command: {_command()}"
    named = f"CXX={wanted} is not a program, and " if wanted else ""
    return f"{named}there is no c++, g++ or clang++ on the PATH"


@functools.cache
def _command() -> tuple[str, ...] | str | None:
    """Return what calls the compiler: ``$CXX``, else the first of c++, g++, clang++ there is.

    ``CXX`` may hold a command with arguments, such as ``ccache g++``; a text tells what is wrong
    with it.  The program is named by its full path, since it runs in another folder.
    """
    for wanted in (os.environ.get("CXX", ""), "c++", "g++", "clang++"):
        try:
            program, *arguments = shlex.split(wanted) or [""]
        except ValueError as error:
            return str(error)
        path = shutil.which(program) if program else None
        if path is not None:
            return os.path.abspath(path), *arguments
    return None


@functools.cache
def compiler() -> Compiler | None:
    """Return the compiler in use; the first call runs it, to ask for its version."""
    found = _command()
    return _probe(found) if isinstance(found, tuple) else None


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


def compile_source(
    source: str, name: str, *, contract: bool | None = None, compilers: Compilers | None = None
) -> HostKernel:
    """Compile C++17 and load it, or take it from the disk cache.

    Parameters
    ----------
    source : str
        The whole translation unit; it may include ``"tile.h"`` and ``"math.h"``.
    name : str
        The ``extern "C"`` function to look up; also names the source in messages.
    contract : bool, optional
        Whether ``a * b + c`` may be rounded once.  Default: whether ``config.contract`` is true.
    compilers : Compilers, optional
        Among which the compiler runs, to be stopped with them.

    Raises
    ------
    CompilerError
        There is no compiler, it refuses the source, or it fails or takes too long (``passing``).
    OSError
        The system has no room for another file or process.
    """
    entry = _built(source, name, flags(contract), _header_text(), compilers)
    library = _load(entry)
    try:
        function = getattr(library.handle, name)
    except AttributeError:
        message = f'the source has no extern "C" function {name}'
        raise CompilerError(message, source=source) from None
    address = ctypes.cast(function, ctypes.c_void_p).value
    assert address is not None
    return HostKernel(name, address, entry.path, library)


def compile_many(
    sources: Sequence[tuple[str, str]], *, contract: bool | None = None
) -> list[HostKernel]:
    """Compile several ``(source, name)`` at the same time; results in the same order.

    Whoever interrupts the wait (Ctrl-C) has the compilers killed.

    Raises
    ------
    CompilerError, OSError
        The first that fails, as for `compile_source`; the others are stopped.
    """
    compilers = Compilers()
    try:
        return threads.all_of(
            lambda pair: compile_source(*pair, contract=contract, compilers=compilers),
            sources, min(len(sources), available_cpus()), apart=True)
    except BaseException:
        compilers.stop()
        raise


def on_disk(sources: Sequence[tuple[str, str]], *, contract: bool | None = None) -> bool:
    """Whether all of several ``(source, name)`` were compiled before, and are in the disk cache.

    No compiler is run to tell.
    """
    command = _command()
    if not isinstance(command, tuple):
        return False
    asked = compiler.cache_info().currsize or cache.get(_version_key(_binary(command)), ".txt")
    if not asked:
        return False
    options, headers = flags(contract), _header_text()
    return all(cache.get(_entry(*pair, options, headers), ".so") for pair in sources)


def pool() -> ThreadPool:
    """Return the host thread pool, made at the first call, with ``config.threads`` threads."""
    threads = host_threads()
    if not _pools:
        entry = _built(_POOL_SOURCE.read_text(), "threads", (*flags(False), "-pthread"), "")
        with entry.opened() as path, _lock:
            if not _pools:
                try:
                    _pools.append(ThreadPool(path, threads))
                except AttributeError as error:  # the compiler has made something else
                    raise CompilerError(f"the thread pool is no thread pool: {error}") from None
    if _pools[0].threads != threads:
        _pools[0].resize(threads)
    return _pools[0]


def _required(source: str) -> Compiler:
    reason = available()
    found = compiler()
    if reason is not None or found is None:
        raise CompilerError(f"no C++ compiler: {reason}", source=source, remedy=INSTALL)
    return found


def _built(source: str, name: str, options: tuple[str, ...], headers: str,
           compilers: Compilers | None = None) -> cache.Entry:
    entry = _entry(source, name, options, headers)
    workers = compilers or Compilers()
    return cache.get_or_build(
        entry, ".so", lambda: _compile(source, name, options, workers)
    )


def _entry(source: str, name: str, options: tuple[str, ...], headers: str) -> str:
    """Return the name of a kernel in the cache."""
    return cache.key("host", _required(source).identity, name, source, headers, *options)


def _compile(source: str, name: str, options: tuple[str, ...], compilers: Compilers) -> bytes:
    """Compile; again in another folder if it failed for want of room in this one."""
    try:
        return _compile_once(source, name, options, compilers)
    except (CompilerError, OSError) as error:
        passing = getattr(error, "passing", True) and not compilers.stopped
        if not passing or cache.has_room():
            raise
    return _compile_once(source, name, options, compilers)


def _compile_once(source: str, name: str, options: tuple[str, ...], compilers: Compilers) -> bytes:
    begins, rest = beginnings.split(source)
    if not begins or _required(source).clang:
        return _compiled(source, name, options, compilers)
    key = cache.key("begins", _required(source).identity, begins, _header_text(), *options)
    try:
        header = beginnings.compiled(
            key, lambda: _compiled_beginning(begins, options, compilers))
        if header is not None:
            rest = "\n" * begins.count("\n") + rest
            return _compiled(rest, name, ("-include", str(header), *options), compilers)
    except (CompilerError, OSError) as error:
        timed_out = isinstance(error, CompilerError) and error.passing and not error.log
        if compilers.stopped or timed_out:
            raise
        beginnings.give_up(key)  # the source, the compiled header, or the room: see which
    return _compiled(source, name, options, compilers)


def _compiled(source: str, name: str, options: tuple[str, ...], compilers: Compilers) -> bytes:
    libraries = ("-lmvec", "-lm") if _libmvec_level() else ("-lm",)
    built, output = _made(
        f'#line 1 "{name}.cpp"\n{source}', name, source,
        (*options, "-iquote", str(HEADERS), "-x", "c++", f"{name}.cpp", "-o", _OUTPUT,
         "-x", "none", *libraries), compilers)
    problem = incomplete(built) if sys.platform == "linux" else None if built else "it is empty"
    if problem is not None:
        raise CompilerError(
            f"{_required(source).command[0]} says that it compiled {name}, but left half of it: "
            f"{problem}", source=source, log=output, passing=True,
            remedy="see whether there is room on the disk, and whether the compiler is sound",
        )  # fmt: skip
    return built


def _compiled_beginning(begins: str, options: tuple[str, ...], compilers: Compilers) -> bytes:
    """Compile what kernels begin with; `CompilerError` where the compiler leaves nothing."""
    built, output = _made(
        begins, "begins", begins, (
            *(option for option in options if option != "-shared"), "-iquote", str(HEADERS),
            "-x", "c++-header", "begins.cpp", "-o", _OUTPUT), compilers)
    if not built:
        raise CompilerError("there is no compiled header", source=begins, log=output, passing=True)
    return built


def _made(text: str, name: str, source: str, options: tuple[str, ...], compilers: Compilers
          ) -> tuple[bytes, str]:
    """Run the compiler on a file with a text; return what it made, and what it said."""
    found = _required(source)
    command = [*found.command, *options]
    with cache.workplace(compilers.check) as place:
        place.write(f"{name}.cpp", text.encode())
        try:
            result = compilers.run(command, place, config.compile_seconds)
        except OSError as error:
            raise CompilerError(f"{found.command[0]} cannot be run: {error}", passing=True,
                                remedy=INSTALL) from error
        if result.status != 0:
            raise _failed(source, name, command, result.status, result.output)
        made = place.path / _OUTPUT
        # No pipe that nobody writes into.
        return made.read_bytes() if made.is_file() else b"", result.output


def _failed(
    source: str, name: str, command: list[str], status: int, output: str
) -> CompilerError:
    """Return the error for a compiler that failed: over what it read, or for another reason."""
    lines = output.splitlines()
    shown = "\n".join(lines[:LOG_LINES_SHOWN]) or f"it ended with status {status}"
    more = len(lines) - LOG_LINES_SHOWN
    tail = f"\n... and {more} lines more (in the exception's .log)" if more > 0 else ""
    message = f"{command[0]} could not compile {name}:\n{shown}{tail}\nCommand: {' '.join(command)}"
    if status < 0 or not any(map(_REFUSAL.search, lines)):
        return CompilerError(
            message, source=source, log=output, passing=True,
            remedy="see whether the compiler works (it is tried again later), or set CXX to "
            "another; tiledarray.config.compile = 'never' does without kernels",
        )  # fmt: skip
    kept = cache.keep_failed(f"{name}-{cache.key(source)[:12]}.cpp", source)
    return CompilerError(
        message, source=source, log=output, path=kept,
        remedy=f"report this with the source kept in {kept}; "
        "tiledarray.config.compile = 'never' does without kernels",
    )  # fmt: skip


def _load(entry: cache.Entry) -> Library:
    with _lock:
        library = _libraries.get(entry.path.name)
        if library is None:
            library = _libraries[entry.path.name] = _opened(entry)
    return library


def _opened(entry: cache.Entry) -> Library:
    for _ in range(2):
        with suppress(FileNotFoundError), entry.opened() as path:
            try:
                return Library(path)
            except OSError as error:
                if raised_outside(error):
                    raise
                # A folder's rules stand, other causes (memory, descriptors) may pass.  The loader
                # says in words alone why, and of a mount not always.
                forbidden = _runs_nothing(path) or "denied" in str(error)
                raise CompilerError(
                    f"the compiled kernel cannot be loaded: {error}",
                    remedy="set TILEDARRAY_CACHE_DIR to a folder from which programs may run "
                    "(not mounted noexec)" if forbidden else "see whether there is memory left, "
                    "and whether files may still be opened",
                    passing=not forbidden,
                ) from error
        entry = cache.put(entry.key, entry.suffix, entry.data)  # it was deleted meanwhile
    raise CompilerError(f"the compiled kernel is gone from {entry.path}", passing=True)


def _runs_nothing(path: str) -> bool:
    """Whether no program may run from where the file lies."""
    try:
        return bool(os.statvfs(path).f_flag & os.ST_NOEXEC)
    except (AttributeError, OSError):  # the system does not say
        return False


@functools.cache
def _header_text() -> str:
    """Text of our own headers, on which every kernel depends."""
    return "\0".join(path.read_text() for path in sorted(HEADERS.glob("*.h")))


def _probe(command: tuple[str, ...]) -> Compiler:
    """Ask the compiler for its version: once for each binary, remembered on disk."""
    binary = _binary(command)

    def ask() -> bytes:
        compilers = Compilers()
        with cache.workplace(compilers.check) as place:
            answer = compilers.run([*command, "--version"], place, config.compile_seconds)
        if answer.status < 0:
            raise CompilerError(f"{command[0]} was killed when asked for its version", passing=True)
        return answer.output.encode()

    known = cache.get_or_build(_version_key(binary), ".txt", ask).data.decode()
    version = known.strip().partition("\n")[0] or "unknown"
    libmvec = 0 if "clang" in version else _libmvec_level()
    identity = cache.key(binary, version, _processor(), _glibc(), str(libmvec))
    return Compiler(command, version, libmvec, identity)


def _binary(command: tuple[str, ...]) -> str:
    real = Path(command[0]).resolve()
    status = real.stat()
    return f"{real} {status.st_mtime_ns} {status.st_size} {' '.join(command[1:])}"


def _version_key(binary: str) -> str:
    return cache.key("compiler", binary)


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
