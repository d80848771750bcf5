"""``python -m tiledarray --doctor``: what was found of all that the library makes use of."""

from __future__ import annotations

import importlib.util
import os
import platform
import shlex
import shutil
import sys
import sysconfig
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy

import tiledarray
from tiledarray import config
from tiledarray.core import kind, problem
from tiledarray.devices.device import Device, cuda_count, cuda_problem
from tiledarray.devices.threads import available_cpus
from tiledarray.kernels.compile import cache, cuda, host

LONGEST = 400  # characters of one answer: compilers can say very much


def report() -> str:
    """Return what was found, one line for each thing; whatever is wrong is told, never raised."""
    return "\n".join(f"{name:<15}{_answer(find)}" for name, find in QUESTIONS)


def _answer(find: Callable[[], str]) -> str:
    """What was found, with the warnings that came with it, or why that could not be found out."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            found = find()
        except Exception as error:  # a doctor that fails is of no use, whatever the reason
            found = f"cannot be told: {error or type(error).__name__}"
    text = "; ".join([found, *(str(warning.message) for warning in told)])
    # Paths and compilers may say what the terminal has no letters for.
    line = "; ".join(text.splitlines()).encode("ascii", "backslashreplace").decode()
    return line if len(line) <= LONGEST else f"{line[:LONGEST]} ..."


def _library() -> str:
    return f"{tiledarray.__version__}, {Path(str(tiledarray.__file__)).parent}"


def _python() -> str:
    return (f"{platform.python_version()}, {platform.python_implementation()}, "
            f"{sys.platform} {platform.machine()}, {sys.executable}")


def _numpy() -> str:
    return f"{numpy.__version__}, {Path(numpy.__file__).parent}"


def _core() -> str:
    if kind == "c":
        spec = importlib.util.find_spec("tiledarray.core._core")
        return f"in use, {spec.origin if spec else 'built in'}"
    text = f"not in use, Python stands in for it: {problem}"
    return text if os.environ.get("TILEDARRAY_CORE") == "python" else f"{text}; remedy: {_again()}"


def _again() -> str:
    """How the C core is built where this was imported from: a source tree, or an installation."""
    package = Path(str(tiledarray.__file__)).parent
    command = "pip install --force-reinstall --no-cache-dir tiledarray"
    if (package / "core" / "_core.c").exists():
        command = f"pip install -e {shlex.quote(str(package.parent))}"
    return f"'TILEDARRAY_CORE=c {command}' builds it or tells why not"


def _c_compiler() -> str:
    """The compiler that `pip install` calls for the C core; nothing else wants it."""
    command = os.environ.get("CC") or sysconfig.get_config_var("CC")
    if command is None:
        return "left to setuptools (MSVC)" if sys.platform == "win32" else "this Python names none"
    path = shutil.which(shlex.split(command)[0])
    return path or f"none ({command} is not on the PATH): pip install leaves the C core out"


def _python_headers() -> str:
    header = Path(sysconfig.get_path("include"), "Python.h")
    if header.exists():
        return str(header.parent)
    return f"none (there is no {header}): pip install leaves the C core out"


def _cpp_compiler() -> str:
    """The compiler of kernels, which compiles what every kernel needs unless the cache has it."""
    reason = host.available()
    if reason is not None:
        return f"none, everything runs op by op: {reason}; remedy: {host.INSTALL}"
    found = host.compiler()
    assert found is not None
    named = f"{' '.join(found.command)}, {found.version}"
    try:
        host.pool()
    except Exception as error:
        return f"{named}, does not work, everything runs op by op: {error}"
    return f"{named}, works"


def _gpu() -> str:
    reason = cuda_problem()
    if reason is not None:
        return f"none: {reason}"
    found = [Device(f"cuda:{index}").properties for index in range(cuda_count())]
    return ", ".join(f"{gpu.name} ({gpu.arch}, {gpu.memory_bytes / 2**30:.0f} GiB)"
                     for gpu in found)


def _nvrtc() -> str:
    reason = cuda.available()
    return f"none: {reason}" if reason is not None else cuda.nvrtc_version().removeprefix("nvrtc ")


def _cache_folder() -> str:
    writable = "writable" if cache.has_room() else "without room"
    entries, size = cache.content()
    return (f"{cache.folder()}, {writable}, {entries} files, {size / 1e6:.1f} of at most "
            f"{config.cache_bytes / 1e6:.0f} MB")


def _threads() -> str:
    usable = available_cpus()
    used = f"{config.threads} (config.threads)" if config.threads else str(usable)
    return f"{used}; this process may use {usable} of {os.cpu_count()} processors"


# The cache comes before what is compiled into it, and tells what is wrong with it.
QUESTIONS: tuple[tuple[str, Callable[[], str]], ...] = (
    ("tiledarray", _library),
    ("Python", _python),
    ("NumPy", _numpy),
    ("C core", _core),
    ("C compiler", _c_compiler),
    ("Python headers", _python_headers),
    ("cache folder", _cache_folder),
    ("C++ compiler", _cpp_compiler),
    ("threads", _threads),
    ("GPU", _gpu),
    ("NVRTC", _nvrtc),
)
