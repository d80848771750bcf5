"""A NumPy-compatible lazy array library with fused, tiled kernels.

``import tiledarray as np``: all of NumPy's namespace is here.  Operations are recorded, and
computed by a few fused kernels when a value is looked at.  What no kernel can do, NumPy does.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

import numpy as _numpy

from tiledarray import config
from tiledarray.api import fft, linalg, random
from tiledarray.api.creation import *
from tiledarray.api.differences import *
from tiledarray.api.fallback import namespace_getattr as _namespace_getattr
from tiledarray.api.indexing import *
from tiledarray.api.information import __array_namespace_info__
from tiledarray.api.joining import *
from tiledarray.api.manipulation import *
from tiledarray.api.own import asnumpy, evaluate
from tiledarray.api.pointwise import *
from tiledarray.api.products import *
from tiledarray.api.reductions import *
from tiledarray.api.sorting import *
from tiledarray.api.types import isscalar, ndarray, ufunc
from tiledarray.api.ufuncs import BY_NAME as _UFUNCS
from tiledarray.array import TiledArray
from tiledarray.explain import explain
from tiledarray.jit import jit
from tiledarray.runtime.device import device

__version__ = "0.1.0"
__array_api_version__ = _numpy.__array_api_version__

_other = _namespace_getattr(_numpy, __name__)
for _module in (fft, linalg, random):
    # So that `from tiledarray.fft import fft` works as it does with NumPy.
    sys.modules[f"{__name__}.{_module.__name__.rpartition('.')[2]}"] = _module


def __getattr__(name: str) -> Any:
    # The module keeps what was found, so that this runs once for each name.
    value = _UFUNCS[name] if name in _UFUNCS else _other(name)
    globals()[name] = value
    return value


def load_ipython_extension(ipython: Any) -> None:
    """Do what ``%load_ext tiledarray`` asks for: see `tiledarray.ipython`."""
    importlib.import_module("tiledarray.ipython").load(ipython)


def unload_ipython_extension(ipython: Any) -> None:
    """Do what ``%unload_ext tiledarray`` asks for."""
    importlib.import_module("tiledarray.ipython").unload(ipython)


def __dir__() -> list[str]:
    return sorted({*globals(), *(name for name in dir(_numpy) if not name.startswith("__"))})
