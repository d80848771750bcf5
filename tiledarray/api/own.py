"""What NumPy's namespace does not have."""

from __future__ import annotations

from typing import Any

import numpy as np

from tiledarray.api.arguments import is_ours
from tiledarray.arrays.handle import Handle
from tiledarray.recording.stretch import look


def evaluate(*arrays: Any) -> Any:
    """Compute several arrays in one plan, so that they share what they have in common.

    Parameters
    ----------
    *arrays : TiledArray

    Returns
    -------
    TiledArray or tuple of TiledArray
        The arrays themselves, computed.
    """
    look([array.node for array in arrays if isinstance(array, Handle)])
    return arrays[0] if len(arrays) == 1 else arrays


def asnumpy(array: Any) -> np.ndarray[Any, Any]:
    """Return the value as a NumPy array: a new one, which may be written."""
    return array.numpy() if is_ours(array) else np.asarray(array)
