"""What the tile primitives want on the device: threads a problem, rows in shared memory, limits.

The primitives are those of ``kernels/headers/matrices.h`` and ``fourier.h``; there is one entry
here for whatever the planner must know of them before it prints a kernel.
"""

from __future__ import annotations

WARP = 32
# Beyond these shared memory (of 227 KiB) or the host's second cache does not hold the tiles.
LARGEST_MATRIX = 160
LARGEST_ON_HOST = 128
LARGEST_HERMITIAN = 32  # beyond, LAPACK wins
HERMITIAN_ROW_BYTES = 128  # and on the host beyond rows of these,
EIGENVALUES_ROW_BYTES = 96  # or, for eigenvalues without vectors, of these
LONGEST_TRANSFORM = 8192  # of 8 bytes an element


def pitch(columns: int, itemsize: int) -> int:
    """Elements from one row of a matrix in shared memory to the next: odd.

    Threads that read a column, one row each, then find every element in another bank, for
    elements of 4, 8 and 16 bytes alike.
    """
    del itemsize
    return columns | 1


def pitch_of_transform(length: int) -> int:
    """Elements from one row of a tile that is transformed to the next.

    Long rows have room for gaps: elements that change hands by way of them then lie at distances
    that are known, and no two that a wavefront touches are in one bank.
    """
    return (length + length // 8) | 1 if length % 64 == 0 else length


def team_of(primitive: str, sizes: tuple[int, ...], itemsize: int) -> int:
    """Threads that should work on one problem; a power of two.

    Parameters
    ----------
    primitive : str
        The name of the C++ function.
    sizes : tuple of int
        Its sizes as its template has them: (N,), (N, M), (M, N, K).
    itemsize : int
        Bytes of an element.
    """
    if primitive == "fourier":
        return _team_of_transform(sizes[0], itemsize)
    if primitive == "qr":  # of (rows, columns): a thread has whole columns
        return min(WARP, _power_of_two(sizes[-1]))
    if primitive == "eigenvalues":  # a thread turns a pair of rows
        return min(WARP, _power_of_two((sizes[0] + 1) // 2))
    largest = max(sizes[:1] if primitive != "product" else sizes[:2])
    if largest <= 4:
        return 1
    if largest <= WARP:
        rows = 4 if itemsize <= 4 else 2 if itemsize <= 8 else 1
        if primitive.startswith("lu") or primitive == "inverse":
            rows = max(1, rows // 2)
        return max(2, _power_of_two(-(-largest // rows)))
    return 2 * WARP if largest <= 2 * WARP else 4 * WARP


def _team_of_transform(length: int, itemsize: int) -> int:
    """As many threads as leave 16 elements of 8 bytes to each, or 32 if that saves a pass."""
    narrow = 16 if itemsize <= 8 else 8
    bits = (length & -length).bit_length() - 1
    each = min(narrow, 2 * narrow, key=lambda each: -(-bits // (each.bit_length() - 1)))
    return min(1024, _power_of_two(-(-length // each)))


def team_beside(length: int) -> int:
    """The same where teams lie side by side: 16 elements to each, so that two blocks have room."""
    return _power_of_two(-(-length // 16))


def registers_of_transform(length: int, itemsize: int, team: int) -> int:
    """What a thread of such a team may need of the 65,536 registers of a multiprocessor."""
    return 168 if -(-length // team) * itemsize > 128 else 80


def _power_of_two(least: int) -> int:
    return 1 << max(0, least - 1).bit_length()


def region(nbytes: int, group: int, itemsize: int) -> int:
    """Bytes of shared memory from one problem to the next, where teams are parts of a warp.

    With rows at an odd `pitch`, the teams of a warp then read from different banks: regions follow
    each other by what a team reads at once, beyond whole lines of the 32 banks.
    """
    line, at_once = 128, group * itemsize
    if at_once >= line:
        return -(-nbytes // 16) * 16
    return -(-(nbytes - at_once) // line) * line + at_once


def refusal(primitive: str, sizes: tuple[int, ...], itemsize: int, *, device: bool) -> str | None:
    """Why a primitive is not to be used for these sizes, or ``None`` where it is right.

    Whether the tiles fit into shared memory is for the planner to see: what is refused here has no
    code, or code that would take too long to compile.
    """
    if primitive == "fourier":
        length, most = sizes[0], LONGEST_TRANSFORM * 8 // max(itemsize, 8)
        rest = length
        for prime in (2, 3, 5, 7, 11, 13):
            while rest % prime == 0:
                rest //= prime
        if rest != 1:
            return f"a transform of length {length}, which has the factor {rest}"
        if length > most:
            return f"a transform of length {length}, {most} at most are done on chip"
        return None
    most = LARGEST_MATRIX if device else LARGEST_ON_HOST
    largest = min(sizes) if primitive == "qr" else max(sizes)  # columns may be of any length
    if primitive == "eigenvalues":
        most = LARGEST_HERMITIAN if device else HERMITIAN_ROW_BYTES // itemsize
    if largest > most:
        return f"a matrix of {largest} rows or columns, {most} at most are done on chip"
    return None


def workspace(primitive: str, sizes: tuple[int, ...], *, device: bool) -> int:
    """Elements of a problem's size and type that a primitive needs beside its operands."""
    if primitive == "qr":
        return sizes[1]
    return sizes[0] if primitive == "fourier" and not device else 0
