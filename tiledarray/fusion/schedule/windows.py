"""How a map kernel on the device reads memory: vectors, alignment, and what neighbours share.

Loads of one array that differ by constant shifts are one *window*: a stencil.  A thread reads each
line of a window once for all the rows that it computes together, in vectors that are aligned as
the vectors it writes are.
"""

from __future__ import annotations

from math import gcd

from tiledarray.fusion.ir import ONE, Terms
from tiledarray.fusion.plan import Kernel, Strided, Window

VECTOR_BYTES = 16
LINE = 32  # elements of a memory line, for the most common element of four bytes
REACH = 4  # rows or lanes from the middle of a window to its sides
ROWS_TOGETHER = (4, 2)
POINTS = 8  # of a stencil, by one thread


def map_width(kernel: Kernel) -> int:
    """Lanes a thread handles: at most 16 bytes, with all rows and accesses aligned alike."""
    unit = _unit_accesses(kernel)
    if not unit:
        return 1
    width = min(VECTOR_BYTES // access.value.dtype.itemsize for access in unit)
    start, first = _split(unit[0].offset)
    parts = [stride for access in unit for stride in _row_strides(kernel, access)]
    written = [store.access for store in kernel.stores]
    for access in unit[1:]:
        constant, moving = _split(access.offset)
        parts += [coefficient for _, coefficient in _difference(moving, first)]
        if access in written:  # what is read may begin elsewhere: it is a window
            parts.append(constant - start)
    while width > 1 and any(part % width for part in parts):
        width //= 2
    return max(1, width)


def find_windows(kernel: Kernel, width: int) -> None:
    """Group the loads at stride one along the lanes, and choose the rows computed together.

    Of the row axes along which neighbours read the same lines the outermost is taken: lines of the
    others are shared by the threads of a block.  Scalars gain nothing from it (nor do turned tiles,
    which are read by scalars).
    """
    schedule = kernel.schedule
    rows = [k for k, axis in enumerate(schedule.axes) if axis.role == "row"]
    vectors = width > 1 and all(store.access.strides[-1] == 1 for store in kernel.stores)
    for axis in rows if vectors else ():
        windows = _windows(kernel, width, axis)
        together = next((n for n in ROWS_TOGETHER
                         if n * width <= POINTS and n <= schedule.axes[axis].size), 1)
        if together > 1 and any(len(window.lines(1)) > 1 for window in windows):
            kernel.windows = windows
            schedule.unroll, schedule.unrolled = together, axis
            return
    kernel.windows = _windows(kernel, width, rows[-1] if rows else None)


def _windows(kernel: Kernel, width: int, axis: int | None) -> list[Window]:
    """Group the loads by shifts along one row axis and the lanes."""
    unit = _unit_accesses(kernel)
    found: list[Window] = []
    for cell, access in kernel.loads.items():
        if cell.kind != "load" or access.strides[-1] != 1:
            continue
        pitch = access.strides[axis] if axis is not None else 0
        for window in found:
            shift = _shift(window.access, access, pitch)
            if shift is not None:
                window.shifts[cell] = shift
                break
        else:
            constant, moving = _split(access.offset)
            lane = (constant - _split(unit[0].offset)[0] + width // 2) % width - width // 2
            middle = _joined(moving, constant - lane)
            found.append(Window(Strided(access.value, access.strides, middle), {cell: (0, lane)}))
    return found


def has_halo(kernel: Kernel) -> bool:
    """Whether neighbouring rows or chunks of lanes read the same elements."""
    return kernel.schedule.width > 1 and any(
        len(window.shifts) > 1 for window in kernel.windows)


def phase(kernel: Kernel, width: int) -> tuple[int, Terms] | None:
    """By how much the first row of what is written (or read) is off a line of memory."""
    unit = _unit_accesses(kernel)
    if not unit:
        return None
    modulus = gcd(LINE, *_row_strides(kernel, unit[0]))
    if all(coefficient % modulus == 0 for _, coefficient in unit[0].offset):
        return None
    worth = width > 1 or (modulus == LINE and kernel.schedule.lane.size >= 8 * LINE)
    return (modulus, unit[0].offset) if worth else None


def _unit_accesses(kernel: Kernel) -> list[Strided]:
    """What is written, then read, at stride one along the lanes; the first one is aligned to."""
    accesses = [store.access for store in kernel.stores]
    accesses += [access for cell, access in kernel.loads.items() if cell.kind == "load"]
    return [access for access in accesses if access.strides[-1] == 1]


def _row_strides(kernel: Kernel, access: Strided) -> list[int]:
    return [stride for stride, axis in zip(access.strides, kernel.schedule.axes, strict=True)
            if axis.role == "row" and axis.size > 1]


def _shift(middle: Strided, access: Strided, pitch: int) -> tuple[int, int] | None:
    """Rows and lanes from one access to another, where both are few and constant."""
    constant, moving = _split(access.offset)
    start, along = _split(middle.offset)
    if access.value is not middle.value or access.strides != middle.strides or moving != along:
        return None
    lane = constant - start
    row = (lane + pitch // 2) // pitch if pitch > 2 * REACH else 0
    lane -= row * pitch
    return (row, lane) if max(abs(row), abs(lane)) <= REACH else None


def _split(terms: Terms) -> tuple[int, Terms]:
    """The constant of a linear form, and the rest of it."""
    moving = tuple(term for term in terms if term[0] != ONE)
    return dict(terms).get(ONE, 0), moving


def _joined(moving: Terms, constant: int) -> Terms:
    return tuple(sorted((*moving, *([(ONE, constant)] if constant else []))))


def _difference(some: Terms, other: Terms) -> Terms:
    numbers = {number for number, _ in (*some, *other)}
    return tuple((number, dict(some).get(number, 0) - dict(other).get(number, 0))
                 for number in numbers)
