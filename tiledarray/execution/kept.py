"""Plans on disk, beside their kernels: what was planned is not planned again in another process.

An entry's name is a digest of everything that a plan depends on: the signature with names in place
of identities, which leaves may be overwritten, the device, how products are rounded, what others of
the signature assume, and this library's own files.  Like a kernel's it is sealed, written whole or
not at all, and goes when it has not been used for long (`kernels.compile.cache`).  It holds plain
data, and reading it runs nothing; what is damaged or of another version is planned anew.
"""

from __future__ import annotations

import functools
import hashlib
import io
import os
import pickle
import secrets
import sys
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tiledarray.errors import TiledArrayWarning, raised_outside, suppress_own
from tiledarray.execution.packing import packed, unpacked
from tiledarray.fusion.plan import Kernel, Plan
from tiledarray.fusion.regions import Assumption
from tiledarray.fusion.target import Target
from tiledarray.graph.dtypes import canonical
from tiledarray.graph.node import Form, Kind
from tiledarray.kernels.compile import cache
from tiledarray.kernels.text.program import Program
from tiledarray.ops.names import name_of

SUFFIX = ".plan"
MOST = 512  # written by a process: a program whose shapes always differ would fill the folder
REMEMBERED = 1 << 12
EXACT = 32  # lengths up to which arrays of one class have them alike
# What plans and the texts of kernels are made by, with all folders in them.
_PARTS = ("devices", "execution", "fusion", "graph", "kernels", "ops")
_PLAIN = (bool, int, float, complex, str, bytes, type(None))
_TYPES = {("builtins", kind.__name__): kind for kind in (bool, int, float, complex)}

_written = [0]

Found = tuple[Plan, dict[Kernel, Program], dict[Kernel, str], list[Any] | None]


class _Unkept(Exception):
    """Something has no text that means the same in another process."""


# ---- names -------------------------------------------------------------------------------------


def version_of(root: Path) -> str:
    """What tells a library from one that might plan otherwise: its files, as last written."""
    files = [f"{sys.version} {np.__version__}"]
    try:
        for part in _PARTS:
            for file in _files(root / part):
                status = file.stat()
                files.append(f"{file.path[len(str(root)):]} {status.st_size} {status.st_mtime_ns}")
    except OSError as error:  # imported from an archive: nobody can tell, so it is like no other
        if raised_outside(error):
            raise
        files.append(secrets.token_hex())
    return cache.key(*files)


def _files(folder: Path | os.DirEntry[str]) -> Iterator[os.DirEntry[str]]:
    """What lies in a folder and in those in it, but for what Python compiled."""
    with os.scandir(folder) as found:
        for entry in sorted(found, key=lambda entry: entry.name):
            if entry.is_file():
                yield entry
            elif entry.is_dir() and entry.name != "__pycache__":
                yield from _files(entry)


# Of what has been imported: the files may change while this process runs.
VERSION = version_of(Path(__file__).parents[1])


def name(key: Sequence[Any], donatable: Collection[int], target: Target,
         assumed: Sequence[Sequence[Assumption]]) -> str | None:
    """Return the name of a plan's entry; ``None`` if it cannot be told in words.

    Parameters
    ----------
    key : tuple
        See `Trace.parts`.
    donatable : frozenset of int
    target : Target
    assumed : sequence of tuple of Assumption
        What each plan assumes that was found for the signature, and does not suit.
    """
    total = hashlib.sha256()
    try:
        total.update("\n".join([
            VERSION, str(target), str(sorted(donatable)), str(assumed), *map(_told, key),
        ]).encode())
    except _Unkept:
        return None
    return total.hexdigest()


def class_name(key: Sequence[Any], donatable: Collection[int], target: Target,
               device: str) -> str | None:
    """Return the name of a class of plans: of the same operations, on arrays of such lengths.

    Of lengths the first three bits count, rounded up: what is best for 8192 columns is not for
    4224.  A device is told by its maker's name.  Else see `name`.
    """
    try:
        told = [_told(part) if part is None else _class_of(part) for part in key]
    except (_Unkept, LookupError):
        return None
    return cache.key("class", VERSION, str(target), device, str(sorted(donatable)),
                     "\n".join(told))


def _class_of(part: Any) -> str:
    """A part of a trace's key in words, lengths rounded up to three bits."""
    if isinstance(part, Form):
        return f"form {name_of(part.op)} {_class_of(part.attrs)} {_class_of(part.kind)}"
    if isinstance(part, Kind):
        return f"kind {_class_of(part.shape)} {_text(part.dtype)}"
    if type(part) is tuple:
        return f"({' '.join(map(_class_of, part))})"
    if type(part) is int:
        unit = 1 << max(0, abs(part).bit_length() - 3)
        return str(part) if abs(part) <= EXACT else str(-(-part // unit) * unit)
    return _text(part)


def _told(part: Any) -> str:
    """A part of a trace's key in words."""
    if type(part) is int or part is None:
        return str(part)
    if isinstance(part, (Form, Kind)):
        return _told_once(part)
    return _text(part)


@functools.lru_cache(REMEMBERED)
def _told_once(part: Form | Kind) -> str:
    if isinstance(part, Kind):
        return f"kind {part.shape} {_text(part.dtype)} {part.device.kind}"
    try:
        op = name_of(part.op)
    except LookupError as error:
        raise _Unkept from error
    return f"form {op} {_text(part.attrs)} {_told_once(part.kind)}"


def _text(x: Any) -> str:
    """A static argument of an op in words: equal ones alike, others not."""
    if isinstance(x, tuple):
        return f"({' '.join(map(_text, x))})"
    if type(x) in _PLAIN:
        return f"{type(x).__name__} {x!r}"
    if isinstance(x, np.dtype) and x.fields is None and x.subdtype is None:
        return f"dtype {x.str}"
    if x in _TYPES.values():
        return f"type {x.__name__}"
    raise _Unkept


# ---- entries -----------------------------------------------------------------------------------


def find(name: str) -> Found | None:
    """Return a plan that was kept: to be run, with programs and names of its kernels.

    Last comes what its parameters were when it was made, if it assumes something of them.
    """
    entry = _entry(name)
    if entry is None:
        return None
    try:
        params, data = _Reader(io.BytesIO(entry.data)).load()
        return *unpacked(data), params
    except (pickle.UnpicklingError, LookupError, TypeError, ValueError, AttributeError, EOFError):
        return None  # of a version that wrote something else


def has(name: str) -> bool:
    """Whether a plan was kept."""
    return _entry(name) is not None


def _entry(name: str) -> cache.Entry | None:
    with suppress_own(OSError, TiledArrayWarning):
        return cache.get(name, SUFFIX)
    return None


def keep(name: str, plan: Plan, programs: dict[Kernel, Program], names: dict[Kernel, str],
         params: Sequence[Any] | None) -> None:
    """Keep a plan, if there is room: without, it is made again."""
    if _written[0] >= MOST:
        return
    _written[0] += 1
    data = io.BytesIO()
    with suppress_own(OSError, LookupError, pickle.PicklingError):
        _Writer(data, 5).dump((params and [*params], packed(plan, programs, names)))
        cache.put(name, SUFFIX, data.getvalue(), small=True)


class _Writer(pickle.Pickler):
    """Writes plain data; dtypes of numbers by their letters, or they would come back as copies."""

    def persistent_id(self, part: Any) -> Any:
        if isinstance(part, np.dtype) and canonical(part) is part and part.kind in "biufc":
            return part.char
        return None


class _Reader(pickle.Unpickler):
    """Reads plain data: of all that a pickle might name, only dtypes and the types of scalars."""

    def persistent_load(self, pid: Any) -> Any:
        return np.dtype(pid)

    def find_class(self, module: str, name: str) -> Any:
        if name == "dtype" and module == "numpy":
            return np.dtype
        kind = _TYPES.get((module, name))
        if kind is None:
            raise pickle.UnpicklingError(f"{module}.{name} is no part of a plan")
        return kind
