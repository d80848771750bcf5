"""Whether a compiler has written a shared library to its end.

Loading half a library can end the process (SIGBUS: its pages are mapped, and are not there), and
a compiler whose disk is full does not always say so.  What was cut off is seen by the tables,
which name every part of the file and lie at both its ends.
"""

from __future__ import annotations

import functools
import struct
from pathlib import Path

_SHARED_LIBRARY = 3
_LOADED = 1  # type of a program header
_WITHOUT_CONTENT = 8  # type of a section: zeros, not in the file


def incomplete(data: bytes) -> str | None:
    """What is wrong with an ELF library of this very machine; ``None`` if it is whole."""
    if data[:4] != b"\x7fELF":
        return "it is no ELF file" if data else "it is empty"
    own = _own_start()
    if own and (data[4:6] != own[4:6] or data[18:20] != own[18:20]):
        return "it is for another machine"
    try:
        return _cut_off(data)
    except struct.error:
        return "its tables are cut off"


def _cut_off(data: bytes) -> str | None:
    order = "<" if data[5] == 1 else ">"
    wide = data[4] == 2
    word = "Q" if wide else "I"
    kind, _, _, _, segments_at, sections_at, _, _, *sizes = struct.unpack_from(
        f"{order}HHI{word}{word}{word}IHHHHH", data, 16)
    segment_bytes, segments, section_bytes, sections = sizes
    if kind != _SHARED_LIBRARY or not segments or not sections:
        return "it is no shared library"
    segment = struct.Struct(order + ("IIQQQQ" if wide else "IIIII"))
    section = struct.Struct(order + ("IIQQQQ" if wide else "IIIIII"))
    begins = False
    for number in range(segments):
        kind, *fields = segment.unpack_from(data, segments_at + number * segment_bytes)
        at, size = (fields[1], fields[4]) if wide else (fields[0], fields[3])
        if kind == _LOADED and at + size > len(data):
            return "a segment is cut off"
        begins |= kind == _LOADED and at == 0  # linkers have the header loaded
    if not begins:
        return "its first segment is missing"
    for number in range(1, sections):
        _, kind, _, _, at, size = section.unpack_from(data, sections_at + number * section_bytes)
        if kind == 0:
            return "its table of sections is not filled in"
        if kind != _WITHOUT_CONTENT and at + size > len(data):
            return "a section is cut off"
    if sections_at + sections * section_bytes > len(data):
        return "its table of sections is cut off"
    return None


@functools.cache
def _own_start() -> bytes:
    """The running program's own ELF header; empty where there is no such thing."""
    try:
        with Path("/proc/self/exe").open("rb") as file:
            start = file.read(20)
    except OSError:
        return b""
    return start if start[:4] == b"\x7fELF" else b""
