"""What the array API standard lets a library ask about this namespace."""

from __future__ import annotations

from typing import Any

import numpy as np

from tiledarray.devices.device import Device, cuda_count, cuda_problem, resolve


class _Information:
    """See https://data-apis.org/array-api/latest/API_specification/inspection.html."""

    __module__ = "tiledarray"
    _numpy: Any = np.__array_namespace_info__()

    def capabilities(self) -> dict[str, Any]:
        """Return what of the optional parts of the standard is here: all of it."""
        return dict(self._numpy.capabilities())

    def default_device(self) -> Device:
        """Return the device of new arrays."""
        return resolve()

    def default_dtypes(self, *, device: Any = None) -> dict[str, Any]:
        """Return the dtypes of arrays made without one."""
        resolve(device)
        return dict(self._numpy.default_dtypes())

    def dtypes(self, *, device: Any = None, kind: Any = None) -> dict[str, Any]:
        """Return the standard's dtypes, of one kind or several."""
        resolve(device)
        return dict(self._numpy.dtypes(kind=kind))

    def devices(self) -> list[Device]:
        """Return the devices that arrays can be on."""
        count = 0 if cuda_problem() else cuda_count()
        return [Device("cpu"), *(Device(f"cuda:{index}") for index in range(count))]


def __array_namespace_info__() -> _Information:  # noqa: N807  the standard's name
    """Return the inspection functions of the array API standard."""
    return _Information()
