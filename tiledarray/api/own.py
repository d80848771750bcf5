"""What NumPy's namespace does not have."""

from __future__ import annotations

from typing import Any

import numpy as np

from tiledarray.api.arguments import is_ours
from tiledarray.arrays.handle import Handle
from tiledarray.arrays.tracing import is_tracing
from tiledarray.recording.stretch import look


def evaluate(*arrays: Any) -> Any:
    """Compute several arrays in one plan, so that they share what they have in common.

    Parameters
    ----------
    *arrays : TiledArray
        Anything else is passed through.

    Returns
    -------
    TiledArray or tuple of TiledArray
        The arrays themselves, computed.

    Raises
    ------
    TypeError
        Under `jit`, which cannot look at values.
    MemoryError
        If there is no room for a result.

    Examples
    --------
    >>> import tiledarray as np
    >>> x = np.arange(5.0)
    >>> low, high = np.evaluate(x.min(), x.max())
    >>> float(high - low)
    4.0
    """
    traced = is_tracing()
    look([array.node for array in arrays
          if isinstance(array, Handle) and (traced or not array.is_computed())])
    return arrays[0] if len(arrays) == 1 else arrays


def asnumpy(array: Any) -> np.ndarray[Any, Any]:
    """Return a value as a NumPy array.

    Parameters
    ----------
    array : TiledArray or array_like

    Returns
    -------
    numpy.ndarray
        A new one, which may be written; what is not an array of ours comes as `numpy.asarray`
        gives it.

    Raises
    ------
    TypeError
        Under `jit`, which cannot look at values.

    Examples
    --------
    >>> import tiledarray as np
    >>> np.asnumpy(np.arange(3) + 1)
    array([1, 2, 3])
    """
    return array.numpy() if is_ours(array) else np.asarray(array)
