"""A NumPy-compatible lazy array library with fused, tiled kernels.

``import tiledarray as np``: all of NumPy's namespace is here.  Operations are recorded, and
computed by a few fused kernels when a value is looked at.  What no kernel can do, NumPy does.
"""

import importlib as _importlib
import sys as _sys
from typing import Any as _Any

import numpy as _numpy

from tiledarray import config
from tiledarray.api import equations as _equations
from tiledarray.api import fft, linalg, random
from tiledarray.api.creation import *
from tiledarray.api.differences import *
from tiledarray.api.indexing import *
from tiledarray.api.information import __array_namespace_info__
from tiledarray.api.joining import *
from tiledarray.api.manipulation import *
from tiledarray.api.namespace import keep_packages_out as _keep_packages_out
from tiledarray.api.namespace import namespace_getattr as _namespace_getattr
from tiledarray.api.own import asnumpy, evaluate
from tiledarray.api.pointwise import *
from tiledarray.api.products import *
from tiledarray.api.reductions import *
from tiledarray.api.sorting import *
from tiledarray.api.types import isscalar, ndarray, ufunc
from tiledarray.api.ufuncs import BY_NAME as _UFUNCS
from tiledarray.arrays.tiledarray import TiledArray
from tiledarray.devices.device import device
from tiledarray.gradients import in_python as _in_python
from tiledarray.gradients.custom import *
from tiledarray.gradients.custom import __all__ as _own_rules
from tiledarray.gradients.functions import *
from tiledarray.gradients.functions import __all__ as _gradients
from tiledarray.gradients.variables import *
from tiledarray.gradients.variables import __all__ as _variables
from tiledarray.gradients.vmap import vmap
from tiledarray.insight.explain import explain
from tiledarray.recording.pace import begin as _begin_pace
from tiledarray.transforms.jit import jit

__all__ = [
    *_numpy.__all__,
    "TiledArray", "asnumpy", "config", "device", "evaluate", "explain", "jit", "vmap",
    *_gradients, *_own_rules, *_variables,
]  # fmt: skip
__version__ = "0.1.0"
__array_api_version__ = _numpy.__array_api_version__

_other = _namespace_getattr(_numpy, __name__)
for _module in (fft, linalg, random):
    # So that `from tiledarray.fft import fft` works as it does with NumPy.
    _sys.modules[f"{__name__}.{_module.__name__.rpartition('.')[2]}"] = _module


def __getattr__(name: str) -> _Any:
    # The module keeps what was found, so that this runs once for each name.
    value = _UFUNCS[name] if name in _UFUNCS else _other(name)
    globals()[name] = value
    return value


def load_ipython_extension(ipython: _Any) -> None:
    """Do what ``%load_ext tiledarray`` asks for: see `tiledarray.command.ipython`."""
    _importlib.import_module("tiledarray.command.ipython").load(ipython)


def unload_ipython_extension(ipython: _Any) -> None:
    """Do what ``%unload_ext tiledarray`` asks for."""
    _importlib.import_module("tiledarray.command.ipython").unload(ipython)


def __dir__() -> list[str]:
    return sorted({*globals(), *(name for name in dir(_numpy) if not name.startswith("__"))})


_begin_pace()
_keep_packages_out(_sys.modules[__name__])
