"""Disk cache of compiled artefacts, shared safely between processes.

An entry is the file ``<root>/<key[:2]>/<key>-<digest of its content><suffix>``: it is written
beside its place and renamed, so it is either whole or absent, and a file whose content no longer
has the digest in its name is thrown away and built again.  Entries are machine code that will be
loaded, so the folder belongs to the user alone (mode 0700).

Where the folder cannot be used, a temporary one serves for the life of the process.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import secrets
import shutil
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tiledarray import config
from tiledarray.errors import TiledArrayWarning
from tiledarray.fork import hold_at_fork

if sys.platform != "win32":
    import fcntl

LOCK_TIMEOUT = 180.0
LOCK_POLL = 0.02  # seconds between two attempts
KEPT_AFTER_EVICTION = 0.9

_lock = threading.Lock()
hold_at_fork(_lock)
_usable: dict[Path, Path] = {}
_sizes: dict[Path, int] = {}


def key(*parts: str | bytes) -> str:
    """Name of an artefact: SHA-256 of everything that it depends on.

    Each part is hashed with its length, so parts cannot run into each other.
    """
    total = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        total.update(len(data).to_bytes(8, "little"))
        total.update(data)
    return total.hexdigest()


def get(key: str, suffix: str) -> Path | None:
    """Return the entry's file, or ``None`` if there is none or it is damaged."""
    for path in _entries(key, suffix):
        if path.stem.rpartition("-")[2] == _digest(path):
            _touch(path)
            return path
        path.unlink(missing_ok=True)
    return None


def put(key: str, suffix: str, data: bytes) -> Path:
    """Store an entry and return its file."""
    temporary = _temporary(key, suffix)
    temporary.write_bytes(data)
    return _store(key, suffix, temporary)


def get_or_build(key: str, suffix: str, build: Callable[[Path], None]) -> Path:
    """Return the entry's file, building it where it is missing.

    Parameters
    ----------
    key : str
        From `key`.
    suffix : str
        How the file's name ends, such as ``".so"``.
    build : callable
        Writes the artefact to the path it is given.  Of several processes (or threads) that ask
        for the same entry, one builds and the others wait for it.
    """
    found = get(key, suffix)
    if found is not None:
        return found
    with _building(key):
        found = get(key, suffix)
        if found is not None:
            return found
        temporary = _temporary(key, suffix)
        try:
            build(temporary)
            return _store(key, suffix, temporary)
        finally:
            temporary.unlink(missing_ok=True)


def folder() -> Path:
    """Return the folder in use: ``config.cache_dir``, or a temporary one where that is unusable."""
    wanted = config.cache_dir
    root = _usable.get(wanted)
    if root is None:
        with _lock:
            root = _usable.get(wanted)
            if root is None:
                root = _usable[wanted] = _prepare(wanted)
    return root


def clear() -> None:
    """Delete every entry."""
    for path in _all_entries(folder()):
        path.unlink(missing_ok=True)
    _sizes.pop(folder(), None)


def _prepare(wanted: Path) -> Path:
    """Create the folder, see that it is ours and can be written, or warn and use another."""
    try:
        wanted.mkdir(parents=True, exist_ok=True, mode=0o700)
        if hasattr(os, "geteuid") and wanted.stat().st_uid != os.geteuid():
            raise PermissionError("it belongs to another user")
        wanted.chmod(0o700)
        with tempfile.NamedTemporaryFile(dir=wanted):
            pass
        return wanted
    except OSError as error:
        warnings.warn(
            f"compiled kernels cannot be kept in {wanted} ({error.strerror or error}) and will be "
            "compiled again in the next process. Remedy: set TILEDARRAY_CACHE_DIR (or "
            "tiledarray.config.cache_dir) to a folder that you own and may write.",
            TiledArrayWarning,
            stacklevel=2,
        )
    root = Path(tempfile.mkdtemp(prefix="tiledarray-"))
    atexit.register(_remove_temporary, root, os.getpid())
    return root


def _remove_temporary(root: Path, owner: int) -> None:
    if os.getpid() == owner:  # a forked child runs its parent's exit handlers too
        shutil.rmtree(root, ignore_errors=True)


@contextmanager
def _building(key: str) -> Iterator[None]:
    """Hold the lock of the key (shared by 1/256 of all keys) across processes and threads.

    The lock goes with the open file, so it excludes threads too, and it is given up explicitly: a
    child forked meanwhile has the file open as well, and would keep it.  Nothing else survives
    from one build to the next, and a fork waits for none.
    """
    locks = folder() / "locks"
    locks.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    locks.mkdir(exist_ok=True, mode=0o700)
    with (locks / f"{key[:2]}.lock").open("ab") as file:
        _wait_for_lock(file.fileno())
        try:
            yield
        finally:
            _give_up_lock(file.fileno())


def _wait_for_lock(file: int) -> None:
    """Take the lock; go on without it where that takes too long or the system has none.

    A hung owner, or a file system without locks: building twice is harmless.
    """
    if sys.platform == "win32":
        return
    deadline = time.monotonic() + LOCK_TIMEOUT
    while time.monotonic() < deadline:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            time.sleep(LOCK_POLL)
        except OSError:
            return


def _give_up_lock(file: int) -> None:
    if sys.platform != "win32":
        with suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_UN)


def _shard(key: str) -> Path:
    return folder() / key[:2]


def _entries(key: str, suffix: str) -> list[Path]:
    shard = _shard(key)
    try:
        names = os.listdir(shard)
    except OSError:
        return []
    return [shard / name for name in names if name.startswith(key) and name.endswith(suffix)]


def _all_entries(root: Path) -> Iterator[Path]:
    return (path for path in root.glob("[0-9a-f][0-9a-f]/*-*") if path.is_file())


def _temporary(key: str, suffix: str) -> Path:
    shard = _shard(key)
    shard.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    shard.mkdir(exist_ok=True, mode=0o700)
    return shard / f".{key[:16]}-{os.getpid()}-{secrets.token_hex(4)}{suffix}"


def _store(key: str, suffix: str, temporary: Path) -> Path:
    place = _shard(key) / f"{key}-{_digest(temporary)}{suffix}"
    size = temporary.stat().st_size
    os.replace(temporary, place)
    for other in _entries(key, suffix):
        if other != place:
            other.unlink(missing_ok=True)
    _evict(place, size)
    return place


def _digest(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()[:32]
    except OSError:
        return "unreadable"


def _touch(path: Path) -> None:
    with suppress(OSError):
        os.utime(path)  # eviction goes by the time of last use


def _evict(newest: Path, size: int) -> None:
    """Keep the folder under ``config.cache_bytes``: drop what was used longest ago."""
    root = folder()
    with _lock:
        known = _sizes.get(root)
        if known is not None and known + size <= config.cache_bytes:
            _sizes[root] = known + size
            return
        files = []
        for path in _all_entries(root):
            try:
                files.append((path.stat(), path))
            except OSError:
                continue  # another process dropped it
        total = sum(status.st_size for status, _ in files)
        if total > config.cache_bytes:
            for status, path in sorted(files, key=lambda item: item[0].st_mtime_ns):
                if total <= config.cache_bytes * KEPT_AFTER_EVICTION:
                    break
                if path != newest:
                    path.unlink(missing_ok=True)
                    total -= status.st_size
        _sizes[root] = total
