"""Writing arrays to files: what is evaluated is written where it lies."""

from __future__ import annotations

from typing import Any

import numpy as np

from tiledarray.api.arguments import host
from tiledarray.api.registry import implements

__all__ = ["save"]


@implements(np.save, "host")
def save(file: Any, arr: Any, *args: Any, **kwargs: Any) -> None:
    np.save(file, host(arr), *args, **kwargs)
