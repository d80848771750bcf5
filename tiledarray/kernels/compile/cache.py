"""Disk cache of compiled artefacts, shared safely between processes.

An entry is the file ``<root>/<key[:2]>/<key>-<seal><suffix>``: it is written beside its place and
renamed, so it is either whole or absent.  The seal is a keyed digest (HMAC-SHA256) of key and
content under a secret that lies in the folder and that only its user can read: what a crash
damaged, what somebody else put there while the folder was open to others, and what was renamed
from another key has no valid seal, and is thrown away and built again.

Entries are machine code that will be loaded, so the folder, each folder in it and each file must
belong to the user, and nobody else may write them (`Folder`).  A folder that is there already keeps
its mode: where it is shared, ours is a folder of its own inside it.  Where no folder can be used
(any more), a temporary one serves for the life of the process.
"""

from __future__ import annotations

import errno
import hashlib
import hmac
import os
import random
import re
import secrets
import shutil
import stat
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar

from tiledarray import config
from tiledarray.errors import TiledArrayWarning, raised_outside, suppress_own
from tiledarray.fork import at_exit, hold_at_fork, leaves_something
from tiledarray.kernels.compile.folder import Folder, not_ours

if sys.platform != "win32":
    import fcntl

LOCK_TIMEOUT = 5.0  # a hung owner; building twice is harmless
HURRY = 60.0  # after a lock was waited for in vain, none is waited for so long
LOCK_POLL = 0.02  # seconds between two attempts
KEPT_AFTER_EVICTION = 0.9
SECRET_BYTES = 32
ROOM = 1 << 20  # bytes that a usable folder has room for
LOOKED_EVERY = 1 << 19  # bytes of small entries between two looks at how full the folder is
LEAVING_SECONDS = 1.0  # for which the end of the process waits for folders to be empty
FORGOTTEN = 3600.0  # seconds after which a compiler's folder is taken for left behind
_FOLDERS = ("failed", "locks", "work")
_NOT_ITS_FAULT = {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EINTR}

_lock = threading.RLock()  # whoever is warned may compute arrays
hold_at_fork(_lock)
_usable: dict[Path, Path] = {}
_sizes: dict[Path, int] = {}
_in_hurry_until: list[float] = [0.0]

_workplaces: dict[Path, int] = {}  # and the process

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Entry:
    """An artefact: its file, and the content that was checked."""

    key: str
    suffix: str
    path: Path
    data: bytes = field(repr=False)

    @contextmanager
    def opened(self) -> Iterator[str]:
        """Path by which the very file can be loaded inside the block.

        Its folder is held open meanwhile, where only its user can put anything.

        Raises
        ------
        OSError
            It is not there any more.
        """
        with Folder(self.path.parent.parent) as root, _shard(root, self.key) as shard:
            if shard.status(self.path.name).st_size != len(self.data):
                raise FileNotFoundError(errno.ENOENT, "another file lies in its place")
            yield shard.place(self.path.name)


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


def get(key: str, suffix: str) -> Entry | None:
    """Return the entry, or ``None`` if there is none or it is damaged."""
    return _in_root(lambda root: _found(root, key, suffix))


def put(key: str, suffix: str, data: bytes, *, small: bool = False) -> Entry:
    """Store an entry.

    Parameters
    ----------
    key, suffix : str
    data : bytes
    small : bool
        It is one of many that take less time to make than it takes to see how full the folder is:
        that is done once in so many bytes, as chance has it.
    """
    return _in_root(lambda root: _stored(root, key, suffix, data, small=small))


def get_or_build(key: str, suffix: str, build: Callable[[], bytes]) -> Entry:
    """Return the entry, building it where it is missing.

    Parameters
    ----------
    key : str
        From `key`.
    suffix : str
        How the file's name ends, such as ``".so"``.
    build : callable
        Returns the artefact's content.  Of several processes (or threads) that ask for the same
        entry, one builds and the others wait for it, if that does not take too long.
    """
    found = get(key, suffix)
    if found is not None:
        return found
    with _building(key):
        return get(key, suffix) or put(key, suffix, build())


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
    def remove_all(root: Folder) -> None:
        for shard, name, _ in _all_entries(root):
            shard.remove(name)

    _in_root(remove_all)
    _sizes.pop(folder(), None)


def content() -> tuple[int, int]:
    """Return the number of entries, and the bytes that they take."""
    sizes = _in_root(lambda root: [status.st_size for _, _, status in _all_entries(root)])
    return len(sizes), sum(sizes)


def keep_failed(name: str, source: str) -> Path | None:
    """Write the source of a failed compile where it can be looked at."""
    def write(root: Folder) -> Path:
        with root.folder("failed") as failed:
            failed.write(name, source.encode())
            return failed.path / name

    try:
        return _in_root(write)
    except OSError as error:
        if raised_outside(error):
            raise
        return None


@contextmanager
def workplace(check: Callable[[], None] = lambda: None) -> Iterator[Folder]:
    """An empty folder for a compiler to run in; it goes with all that it then holds.

    Parameters
    ----------
    check : callable, optional
        Raises where none is wanted any more; what it looks at, an exit changes before it removes
        the folders of those that work in the background.
    """
    def make(root: Folder) -> Folder:
        with root.folder("work") as work:
            return work.folder(f"{os.getpid()}-{secrets.token_hex(6)}")

    with _lock:
        check()
        place = _in_root(make)
        _workplaces[place.path] = os.getpid()
    try:
        yield place
    finally:
        place.close()
        shutil.rmtree(place.path, ignore_errors=True)
        _workplaces.pop(place.path, None)


def lasts() -> bool:
    """Whether the folder in use is there after the process has ended."""
    return folder() not in _temporary


def has_room() -> bool:
    """Whether the folder still has room; if not, a temporary one has taken over."""
    before = folder()
    _in_root(_write_something)
    return folder() == before


# ---- the folder --------------------------------------------------------------------------------


def _in_root(work: Callable[[Folder], _T]) -> _T:
    """Do something in the folder in use; where that fails, in a temporary one."""
    for _ in range(3):
        root = folder()
        try:
            with Folder(root) as opened:
                return work(opened)
        except OSError as error:
            if error.errno in _NOT_ITS_FAULT or raised_outside(error):
                raise
            if isinstance(error, FileNotFoundError):  # deleted meanwhile: it is made again
                _forget(root)
                continue
            _abandon(root, error)
            if folder() == root:
                raise
    with Folder(folder()) as opened:
        return work(opened)


def _forget(root: Path) -> None:
    with _lock:
        for wanted in [wanted for wanted, used in _usable.items() if used == root]:
            del _usable[wanted]
        _sizes.pop(root, None)


def _abandon(root: Path, error: OSError) -> None:
    """Let a temporary folder take the place of one that fails."""
    with _lock:
        for wanted, used in list(_usable.items()):
            if used == root and root not in _temporary:
                _usable[wanted] = _take_temporary(wanted, error)


def _prepare(wanted: Path) -> Path:
    """Create the folder, see that it is ours and can be written, or warn and use another."""
    tries = 3
    while True:
        tries -= 1
        try:
            return _own_root(wanted)
        except OSError as error:
            if error.errno in _NOT_ITS_FAULT or raised_outside(error):
                raise
            if not tries or error.errno != errno.ENOENT:  # that is: deleted meanwhile
                return _take_temporary(wanted, error)


def _own_root(wanted: Path) -> Path:
    """Return the folder, or where others may write it, a folder of our own inside it.

    Its mode is left as it is: whoever made it may want others to use it.
    """
    wanted.mkdir(parents=True, exist_ok=True, mode=0o700)
    if hasattr(os, "geteuid") and wanted.is_symlink():
        if wanted.lstat().st_uid not in (0, os.geteuid()):
            raise PermissionError(errno.EPERM, "it is a link that another user made")
        wanted = wanted.resolve()
    status = wanted.stat()
    reason = not_ours(status)
    if reason is not None:
        if not status.st_mode & 0o022:
            raise PermissionError(errno.EPERM, reason)
        wanted = wanted / f"tiledarray-{os.geteuid()}"
        wanted.mkdir(exist_ok=True, mode=0o700)
    with Folder(wanted) as root:
        for name in _FOLDERS:
            root.folder(name).close()
        root.write(f".{os.getpid()}", b"")
        root.remove(f".{os.getpid()}")
        _sweep(root)
    return wanted


def _sweep(root: Folder) -> None:
    """Remove what processes that were killed have left: folders of compilers, trial files."""
    with root.folder("work") as work:
        for folder, names in ((work, work.names()), (root, root.names())):
            for name in names if folder is work else filter(_TRIAL.match, names):
                with suppress_own(OSError):
                    status = folder.status(name)
                    if time.time() - status.st_mtime <= FORGOTTEN:
                        continue
                    if stat.S_ISDIR(status.st_mode):
                        shutil.rmtree(folder.path / name, ignore_errors=True)
                    else:  # perhaps a pipe, which nobody may wait for
                        folder.remove(name)


_TRIAL = re.compile(r"\.\d+(-[0-9a-f]+)?$")  # written to see whether that is possible
_temporary: set[Path] = set()


def _take_temporary(wanted: Path, error: OSError) -> Path:
    warnings.warn(
        f"compiled kernels cannot be kept in {wanted} ({error.strerror or error}) and will be "
        "compiled again in the next process. Remedy: set TILEDARRAY_CACHE_DIR (or "
        "tiledarray.config.cache_dir) to a folder that you own, that nobody else may write, and "
        "that has room.",
        TiledArrayWarning,
        stacklevel=2,
    )
    root = Path(tempfile.mkdtemp(prefix="tiledarray-"))
    _temporary.add(root)
    leaves_something()
    at_exit(partial(_remove_temporary, root, os.getpid()))
    return root


def _remove_workplaces() -> None:
    """At exit: what was being compiled in the background is left lying otherwise.

    The thread that works there may still write a file.
    """
    with _lock:
        places = list(_workplaces.items())
    deadline = time.monotonic() + LEAVING_SECONDS
    for path, owner in places:
        _remove_temporary(path, owner)
        while owner == os.getpid() and path.exists() and time.monotonic() < deadline:
            time.sleep(LOCK_POLL)
            _remove_temporary(path, owner)


at_exit(_remove_workplaces)


def _remove_temporary(root: Path, owner: int) -> None:
    if os.getpid() == owner:  # a forked child runs its parent's exit handlers too
        shutil.rmtree(root, ignore_errors=True)


def _write_something(root: Folder) -> None:
    name = f".{os.getpid()}-{secrets.token_hex(4)}"
    try:
        root.write(name, bytes(ROOM))
    finally:
        root.remove(name)


# ---- locks -------------------------------------------------------------------------------------


@contextmanager
def alone(name: str) -> Iterator[bool]:
    """Whether no other process does now, with this folder, what the name says."""
    def open_lock(root: Folder) -> int:
        with root.folder("locks") as locks:
            return locks.open(f"{name}.lock", os.O_RDWR | os.O_CREAT)

    file = _in_root(open_lock)
    try:
        yield _locked(file)
    finally:
        _give_up_lock(file)
        os.close(file)


def _locked(file: int) -> bool:
    """Take the lock, without waiting; false where somebody else has it."""
    if sys.platform != "win32":
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:  # the file system has none
            return True
    return True


@contextmanager
def _building(key: str) -> Iterator[None]:
    """Hold the lock of the key (shared by 1/256 of all keys) across processes and threads.

    The lock goes with the open file, so it excludes threads too, and it is given up explicitly: a
    child forked meanwhile has the file open as well, and would keep it.  Nothing else survives
    from one build to the next, and a fork waits for none.
    """
    def open_lock(root: Folder) -> int:
        with root.folder("locks") as locks:
            return locks.open(f"{key[:2]}.lock", os.O_RDWR | os.O_CREAT)

    file = _in_root(open_lock)
    try:
        _wait_for_lock(file)
        yield
    finally:
        _give_up_lock(file)
        os.close(file)


def _wait_for_lock(file: int) -> None:
    """Take the lock; go on without it where that takes too long or the system has none.

    A hung owner, or a file system without locks: building twice is harmless.
    """
    now = time.monotonic()
    deadline = now if now < _in_hurry_until[0] else now + LOCK_TIMEOUT
    while not _locked(file):
        if time.monotonic() >= deadline:
            _in_hurry_until[0] = max(_in_hurry_until[0], deadline + HURRY)
            return
        time.sleep(LOCK_POLL)


def _give_up_lock(file: int) -> None:
    if sys.platform != "win32":
        with suppress_own(OSError):
            fcntl.flock(file, fcntl.LOCK_UN)


# ---- entries -----------------------------------------------------------------------------------


def _secret(root: Folder) -> bytes:
    """Return what the folder's seals are made with; nobody else can ever have read it."""
    for _ in range(2):
        try:
            found = root.read("secret", secret=True)
            if len(found) == SECRET_BYTES:
                return found
            root.remove("secret")
        except FileNotFoundError:
            pass
        except PermissionError:  # nothing that it sealed is to be trusted
            root.remove("secret")
        root.write("secret", secrets.token_bytes(SECRET_BYTES), new=True)
    return root.read("secret", secret=True)


def _name(secret: bytes, key: str, suffix: str, data: bytes) -> str:
    """Name of the file that holds this entry."""
    seal = hmac.digest(secret, f"{key}{suffix}\n".encode() + data, "sha256")
    return f"{key}-{seal.hex()[:32]}{suffix}"


def _shard(root: Folder, key: str) -> Folder:
    return root.folder(key[:2], make=False)


def _found(root: Folder, key: str, suffix: str) -> Entry | None:
    try:
        shard = _shard(root, key)
    except FileNotFoundError:
        return None
    with shard:
        for name in shard.names():
            if not (name.startswith(key) and name.endswith(suffix)):
                continue
            try:
                data = shard.read(name)
            except OSError as error:
                if error.errno in _NOT_ITS_FAULT or raised_outside(error):
                    raise
                if isinstance(error, FileNotFoundError):
                    continue  # another process dropped it
            else:
                if hmac.compare_digest(name, _name(_secret(root), key, suffix, data)):
                    shard.touch(name)  # eviction goes by the time of last use
                    return Entry(key, suffix, shard.path / name, data)
            shard.remove(name)
    return None


def _stored(root: Folder, key: str, suffix: str, data: bytes, *, small: bool = False) -> Entry:
    name = _name(_secret(root), key, suffix, data)
    with root.folder(key[:2]) as shard:
        shard.write(name, data)
        for other in shard.names():
            if other != name and other.startswith(key) and other.endswith(suffix):
                shard.remove(other)
        entry = Entry(key, suffix, shard.path / name, data)
    if not small or root.path in _sizes or random.random() * LOOKED_EVERY < len(data):
        _evict(root, name, len(data))
    return entry


def _all_entries(root: Folder) -> Iterator[tuple[Folder, str, os.stat_result]]:
    for shard_name in root.names():
        if len(shard_name) != 2:
            continue
        with suppress_own(OSError), root.folder(shard_name, make=False) as shard:
            for name in shard.names():
                with suppress_own(OSError):  # another process dropped it
                    status = shard.status(name)
                    if "-" in name and stat.S_ISREG(status.st_mode):
                        yield shard, name, status


def _evict(root: Folder, newest: str, size: int) -> None:
    """Keep the folder under ``config.cache_bytes``: drop what was used longest ago."""
    with _lock:
        known = _sizes.get(root.path)
        if known is not None and known + size <= config.cache_bytes:
            _sizes[root.path] = known + size
            return
        files = [(status.st_mtime_ns, status.st_size, shard.path.name, name)
                 for shard, name, status in _all_entries(root)]
        total = sum(size for _, size, _, _ in files)
        if total > config.cache_bytes:
            for _, size, shard_name, name in sorted(files):
                if total <= config.cache_bytes * KEPT_AFTER_EVICTION:
                    break
                if name != newest:
                    with root.folder(shard_name) as shard:
                        shard.remove(name)
                    total -= size
        _sizes[root.path] = total
