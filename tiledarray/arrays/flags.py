"""``a.flags``: the memory layout that NumPy's array would have."""

from __future__ import annotations

from typing import Any

import numpy as np

from tiledarray.arrays import views


class Flags:
    """What `numpy.ndarray.flags` has; ``writeable`` can be assigned.

    Parameters
    ----------
    array : TiledArray
    """

    __slots__ = ("_array",)

    def __init__(self, array: Any) -> None:
        self._array = array

    def _numpys(self) -> Any:
        """Return the flags of an array of NumPy's that lies as ours would, and has no elements."""
        array = self._array
        stand_in = np.lib.stride_tricks.as_strided(
            np.empty(1, f"V{array.itemsize}"), array.shape, array.view_strides
        )
        if not self.writeable:
            stand_in.flags.writeable = False
        return stand_in.flags

    @property
    def writeable(self) -> bool:
        """Whether the elements can be assigned."""
        return not views.is_frozen(self._array.steps)

    @writeable.setter
    def writeable(self, value: Any) -> None:
        self._array.set_writable(bool(value))

    @property
    def owndata(self) -> bool:
        """Whether the array is no view of another."""
        return self._array.base is None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._numpys(), name)

    def __getitem__(self, key: str) -> Any:
        return self.owndata if key in ("O", "OWNDATA") else self._numpys()[key]

    def __setitem__(self, key: str, value: Any) -> None:
        if key not in ("W", "WRITEABLE"):
            raise KeyError("only WRITEABLE can be set")
        self.writeable = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Flags) and repr(self) == repr(other)

    __hash__ = None  # type: ignore[assignment]  # as NumPy's: it can change

    def __repr__(self) -> str:
        return repr(self._numpys()).replace("OWNDATA : False", f"OWNDATA : {self.owndata}")
