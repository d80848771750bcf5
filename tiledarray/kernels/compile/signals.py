"""Keeping the process's signal handlers while a library would have its own.

NVRTC's front end handles SIGINT and SIGTERM itself while it reads a source: either then ends the
whole process, with status 4 and whatever was not saved; and of several compiles at a time one can
leave its handlers there for good.  There is no option against it.  So its calls of ``signal`` and
``sigaction`` are led elsewhere, in the table by which the loader binds them.  Where that table is
not to be found or not to be written, what was in place is put back as soon as it is seen to be
gone: a signal may still come before that.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from tiledarray.devices.threads import in_background

LOOK_SECONDS = 0.002
GUARDED = (signal.SIGINT, signal.SIGTERM)
_BYTES = 512  # more than any system's `struct sigaction`, which begins with the handler's address

# Of <link.h>, <dlfcn.h> and the ELF format of 64 bits.
_LINK_MAP = 2  # request of `dlinfo`
_TEXTS, _SYMBOLS, _BINDINGS_BYTES, _BINDINGS = 5, 6, 2, 23  # tags of the dynamic section
_BINDING_BYTES, _SYMBOL_BYTES = 24, 24


class _LinkMap(ctypes.Structure):
    """Where the loader has put a library, and where the library's own tables lie."""

    _fields_ = (("base", ctypes.c_uint64), ("name", ctypes.c_char_p), ("dynamic", ctypes.c_uint64))


class _Mapped(NamedTuple):
    """A part of this process's memory."""

    begin: int
    end: int
    writable: bool
    path: str


def leave_to_us(library: str) -> bool:
    """Have a loaded library install no signal handlers; whether that could be done.

    Parameters
    ----------
    library : str
        How the name of its file begins.
    """
    if sys.platform != "linux" or ctypes.sizeof(ctypes.c_void_p) != 8:
        return False
    try:
        mapped = [*_memory()]
        path = next(part.path for part in mapped
                    if os.path.basename(part.path).startswith(library))
        slots = [*_slots(path, (b"signal", b"sigaction"))]
    except (OSError, StopIteration, AttributeError):
        return False
    if len(slots) != 2 or not all(
            any(part.writable and part.begin <= slot < part.end for part in mapped)
            for slot in slots):
        return False
    # It returns 0 for the number of every signal, and does nothing else: to the library, all is
    # done.  A function of Python's would be called by threads that may outlive the interpreter.
    nothing = ctypes.cast(ctypes.CDLL(None).isalpha, ctypes.c_void_p).value
    for slot in slots:
        ctypes.c_void_p.from_address(slot).value = nothing
    return True


def _memory() -> Iterator[_Mapped]:
    with open("/proc/self/maps") as file:
        for line in file:
            place, rights, _, _, _, *path = line.rstrip("\n").split(None, 5)
            begin, end = (int(text, 16) for text in place.split("-"))
            yield _Mapped(begin, end, "w" in rights, path[0] if path else "")


def _slots(path: str, names: tuple[bytes, ...]) -> Iterator[int]:
    """The places of a loaded library that hold the addresses of functions it calls by name."""
    handle = ctypes.CDLL(path, mode=os.RTLD_NOLOAD | os.RTLD_NOW)._handle
    found = ctypes.POINTER(_LinkMap)()
    if ctypes.CDLL(None).dlinfo(ctypes.c_void_p(handle), _LINK_MAP, ctypes.byref(found)):
        return
    base, at = found.contents.base, found.contents.dynamic
    tables: dict[int, int] = {}
    while _word(at):
        tables[_word(at)] = _word(at + 8)
        at += 16
    if not {_TEXTS, _SYMBOLS, _BINDINGS, _BINDINGS_BYTES} <= tables.keys():
        return
    texts, symbols, bindings = (  # some loaders leave them relative
        tables[tag] + (0 if tables[tag] >= base else base)
        for tag in (_TEXTS, _SYMBOLS, _BINDINGS))
    for binding in range(bindings, bindings + tables[_BINDINGS_BYTES], _BINDING_BYTES):
        symbol = symbols + (_word(binding + 8) >> 32) * _SYMBOL_BYTES
        if ctypes.string_at(texts + (_word(symbol) & 0xFFFFFFFF)) in names:
            yield base + _word(binding)


def _word(address: int) -> int:
    return ctypes.c_uint64.from_address(address).value


class Guard:
    """Puts handlers back that were replaced, from `begin` to `end`."""

    def __init__(self) -> None:
        self._sigaction: Callable[..., int] | None = None
        if sys.platform == "linux":
            self._sigaction = ctypes.CDLL(None).sigaction
        self._kept: dict[int, tuple[Any, Any]] = {}
        self._ended = threading.Event()

    def begin(self) -> None:
        """Remember the handlers, and look after them from now on."""
        if self._sigaction is None:
            return
        self._kept = {number: self._now(number) for number in GUARDED}
        self._ended = ended = threading.Event()
        in_background(lambda: self._watch(ended))

    def end(self) -> None:
        """Look after them no longer."""
        self._ended.set()
        self._put_back()

    def _watch(self, ended: threading.Event) -> None:
        while not ended.wait(LOOK_SECONDS):
            self._put_back()

    def _put_back(self) -> None:
        """Undo what was not done through Python: of that, Python knows."""
        for number, (action, known) in list(self._kept.items()):
            now = self._now(number)
            if now[1] is not known:
                self._kept[number] = now
            elif now[0].raw[:8] != action.raw[:8] and self._sigaction is not None:
                self._sigaction(number, action, None)

    def _now(self, number: int) -> tuple[Any, Any]:
        """What the system does about a signal, and what Python knows of that."""
        memory = ctypes.create_string_buffer(_BYTES)
        if self._sigaction is not None:
            self._sigaction(number, None, memory)
        return memory, signal.getsignal(number)
