"""Factorizations that fail: NumPy says that one did, and here it is said which of a batch."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

# NumPy's words where LAPACK says that it failed.
FAILURES = {
    **dict.fromkeys(("linalg.inv", "linalg.solve"), "Singular matrix"),
    "linalg.cholesky": "Matrix is not positive definite",
    **dict.fromkeys(("linalg.eigh", "linalg.eigvalsh", "linalg.eig", "linalg.eigvals"),
                    "Eigenvalues did not converge"),
    **dict.fromkeys(("linalg.svd", "linalg.svdvals"), "SVD did not converge"),
}
_OF_ONE_MATRIX = frozenset((*FAILURES.values(), "Array must not contain infs or NaNs"))


def name_matrix(error: np.linalg.LinAlgError, call: Callable[[Any], Any], matrices: Any) -> None:
    """Add to NumPy's message the first matrix that a call fails for, if there are several.

    Parameters
    ----------
    error : LinAlgError
        Its message is changed.
    call : callable
        Fails for a batch in which one of these matrices is.
    matrices : array
        Of any number of axes.
    """
    if str(error) not in _OF_ONE_MATRIX or getattr(matrices, "ndim", 0) < 3:
        return
    *batch, rows, columns = matrices.shape
    flat = matrices.reshape(math.prod(batch), rows, columns)
    low, high = 0, len(flat)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _fails(call, flat[low:middle]) else (middle, high)
    if _fails(call, flat[low:high]):
        error.args = (of_matrix(str(error), low, batch),)


def of_matrix(message: str, number: int, batch: Sequence[int]) -> str:
    """Return a message with the place of a matrix in a batch, given its row-major number."""
    place = tuple(map(int, np.unravel_index(number, batch)))
    return f"{message} (matrix {place[0] if len(place) == 1 else place} of the batch)"


def _fails(call: Callable[[Any], Any], matrices: Any) -> bool:
    try:
        call(matrices)
    except np.linalg.LinAlgError:
        return True
    return False
