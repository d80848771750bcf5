"""Arrays of other libraries, in and out, without a copy where the device allows.

NumPy and CuPy implement the protocol; here is only which of the two is asked.
Reference: https://dmlc.github.io/dlpack/latest/python_spec.html
"""

from __future__ import annotations

from typing import Any

import numpy as np

# DLDeviceType of dlpack.h: the kinds of memory that NumPy, and that CuPy, can look at.
CPU, CUDA, CUDA_HOST, CUDA_MANAGED = 1, 2, 3, 13


def device_name(source: Any) -> str:
    """Return where an object's data is, in our names: ``"cpu"`` or ``"cuda:<index>"``.

    Raises
    ------
    BufferError
        It is on a kind of device that is neither.
    """
    kind, index = source.__dlpack_device__()
    if kind in (CPU, CUDA_HOST):
        return "cpu"
    if kind in (CUDA, CUDA_MANAGED):
        return f"cuda:{int(index)}"
    raise BufferError(
        f"{type(source).__name__} is on DLPack device type {int(kind)}; only the CPU and CUDA "
        "devices are supported: copy it there first"
    )


def import_array(source: Any, copy: bool | None = None) -> Any:
    """View any object with ``__dlpack__`` as an array of the module that owns its device.

    Parameters
    ----------
    source : object
        Has ``__dlpack__`` and ``__dlpack_device__``, or only ``__cuda_array_interface__``.
    copy : bool, optional
        ``True`` copies, ``False`` raises ``BufferError`` where sharing memory is impossible.

    Returns
    -------
    numpy.ndarray or cupy.ndarray
        Of any strides; ``device.wrap`` makes a dense buffer of it.
    """
    array: Any
    if not hasattr(source, "__dlpack_device__"):
        import cupy  # only a CUDA array needs it

        array = cupy.asarray(source)
    elif device_name(source) == "cpu":
        array = np.from_dlpack(source)
    else:
        import cupy  # only a CUDA array needs it

        with cupy.cuda.Device(int(source.__dlpack_device__()[1])):
            array = cupy.from_dlpack(source)
    return array.copy() if copy else array


def export_array(array: Any, **requests: Any) -> Any:
    """Return the DLPack capsule of a buffer's array.

    ``requests`` are the protocol's keywords (``stream``, ``max_version``, ``dl_device``,
    ``copy``).  Those at their default are left out, which older NumPy and CuPy do not know.
    """
    return array.__dlpack__(**{key: value for key, value in requests.items() if value is not None})


def export_device(array: Any) -> tuple[int, int]:
    """Return the DLPack device of a buffer's array."""
    kind, index = array.__dlpack_device__()
    return int(kind), int(index)
