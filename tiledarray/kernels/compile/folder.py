"""Folders that hold machine code: their user's alone, and reached by what was checked.

A folder is opened once and looked at through its descriptor; what lies in it is then found through
that descriptor and not by its path, so nobody who may rename a folder further up can put another
in its place between the check and the use.  Links are followed nowhere inside.
"""

from __future__ import annotations

import errno
import functools
import os
import secrets
import stat
from pathlib import Path
from typing import Any, Self

from tiledarray.errors import raised_outside, suppress_own

BY_DESCRIPTOR = os.open in os.supports_dir_fd
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)
_FOLDER = getattr(os, "O_DIRECTORY", 0) | _NO_LINK
_BINARY = getattr(os, "O_BINARY", 0)
_AT_ONCE = getattr(os, "O_NONBLOCK", 0)  # a pipe in a file's place is opened, and seen to be none
_DESCRIPTORS = "/proc/self/fd"


def not_ours(status: os.stat_result) -> str | None:
    """Why what has this status may hold what others wrote; ``None`` where it cannot."""
    if not hasattr(os, "geteuid"):
        return None
    if status.st_uid != os.geteuid():
        return "it belongs to another user"
    if stat.S_IMODE(status.st_mode) & 0o022:
        return "other users may write it"
    return None


@functools.cache
def _descriptors_have_paths() -> bool:
    """Whether the system lets a path lead through an open folder."""
    try:
        root = os.open("/", os.O_RDONLY)
        try:
            return os.path.samefile("/", f"{_DESCRIPTORS}/{root}/.")
        finally:
            os.close(root)
    except OSError:
        return False


class Folder:
    """An open folder that only its user may write.

    Attributes
    ----------
    path : Path
        Where it was found.

    Raises
    ------
    OSError
        It is not there, is a link or no folder, or (`PermissionError`) others may write it.
    """

    __slots__ = ("path", "_at")

    def __init__(self, path: Path, within: Folder | None = None) -> None:
        self.path = path
        self._at: int | None = None
        if not BY_DESCRIPTOR:
            return
        if within is None:
            at = os.open(path, os.O_RDONLY | _FOLDER)
        else:
            at = os.open(path.name, os.O_RDONLY | _FOLDER, dir_fd=within._at)
        reason = not_ours(os.fstat(at))
        if reason is not None:
            os.close(at)
            raise PermissionError(errno.EPERM, f"{reason}: {path}")
        self._at = at

    def close(self) -> None:
        """Let go of it."""
        if self._at is not None:
            os.close(self._at)
            self._at = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def folder(self, name: str, make: bool = True) -> Folder:
        """Open a folder inside, made if it is not there.

        Raises
        ------
        OSError
            As for `Folder`.
        """
        if make:
            with suppress_own(FileExistsError):
                os.mkdir(self._name(name), 0o700, **self._there())
        return Folder(self.path / name, self)

    def place(self, name: str) -> str:
        """Path by which a loader or another program started by this one finds a file inside.

        Through the descriptor where the system has a name for it, so valid while this is open.
        """
        if self._at is not None and _descriptors_have_paths():
            return f"{_DESCRIPTORS}/{self._at}/{name}"
        return str(self.path / name)

    def names(self) -> list[str]:
        """Names of all that lies inside."""
        return os.listdir(self.path if self._at is None else self._at)

    def status(self, name: str) -> os.stat_result:
        """Status of what lies inside; of a link, its own."""
        return os.stat(self._name(name), follow_symlinks=False, **self._there())

    def read(self, name: str, secret: bool = False) -> bytes:
        """Content of a file, which is ``secret`` if others may not even have read it.

        Raises
        ------
        OSError
            It cannot be read, is a link, or (`PermissionError`) others may have written it.
        """
        with os.fdopen(self.open(name, os.O_RDONLY | _AT_ONCE), "rb") as file:
            status = os.fstat(file.fileno())
            reason = not_ours(status)
            if secret and hasattr(os, "geteuid") and status.st_mode & 0o077:
                reason = reason or "other users may read it"
            if reason is not None or not stat.S_ISREG(status.st_mode):
                raise PermissionError(errno.EPERM, f"{reason or 'no file'}: {self.path / name}")
            return file.read()

    def write(self, name: str, data: bytes, new: bool = False) -> None:
        """Write a file, whole or not at all; if it has to be ``new``, only where there is none.

        Raises
        ------
        OSError
            There is no room, or the folder is gone.
        """
        beside = f".{os.getpid()}-{secrets.token_hex(8)}"
        try:
            with os.fdopen(self.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as file:
                file.write(data)
            if not new or not self._linked(beside, name):
                os.replace(self._name(beside), self._name(name), **self._both())
        finally:
            self.remove(beside)

    def _linked(self, old: str, new: str) -> bool:
        """Give a file a second name, if that is free; false where the system has no such thing."""
        try:
            os.link(self._name(old), self._name(new), **self._both())
        except OSError as error:
            if raised_outside(error):
                raise
            return isinstance(error, FileExistsError)
        return True

    def open(self, name: str, flags: int) -> int:
        """Open a file, which is its user's alone if this makes it; return the descriptor.

        Raises
        ------
        OSError
            It cannot be opened, or (`PermissionError`) is a link.
        """
        try:
            return os.open(self._name(name), flags | _NO_LINK | _BINARY, 0o600, **self._there())
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
            raise PermissionError(errno.EPERM, f"it is a link: {self.path / name}") from error

    def remove(self, name: str) -> None:
        """Remove a file or a link, if it is there."""
        with suppress_own(OSError):
            os.unlink(self._name(name), **self._there())

    def touch(self, name: str) -> None:
        """Note that a file was used now."""
        with suppress_own(OSError):
            os.utime(self._name(name), **self._there())

    def _name(self, name: str) -> str:
        return name if self._at is not None else str(self.path / name)

    def _there(self) -> dict[str, Any]:
        return {} if self._at is None else {"dir_fd": self._at}

    def _both(self) -> dict[str, Any]:
        return {} if self._at is None else {"src_dir_fd": self._at, "dst_dir_fd": self._at}
