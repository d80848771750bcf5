"""A NumPy-compatible lazy array library with fused, tiled kernels.

``import tiledarray as np``: all of NumPy's namespace is here.  Operations are recorded, and
computed by a few fused kernels when a value is looked at.  What no kernel can do, NumPy does.
"""

import sys as _sys
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

import numpy as _numpy

from tiledarray import config
from tiledarray.api import equations as _equations
from tiledarray.api import fft, linalg, random
from tiledarray.api.creation import *
from tiledarray.api.differences import *
from tiledarray.api.files import *
from tiledarray.api.indexing import *
from tiledarray.api.information import __array_namespace_info__
from tiledarray.api.joining import *
from tiledarray.api.manipulation import *
from tiledarray.api.namespace import MethodOnFirstUse as _MethodOnFirstUse
from tiledarray.api.namespace import keep_packages_out as _keep_packages_out
from tiledarray.api.namespace import namespace_getattr as _namespace_getattr
from tiledarray.api.own import asnumpy, evaluate
from tiledarray.api.pointwise import *
from tiledarray.api.products import *
from tiledarray.api.progressions import *
from tiledarray.api.reductions import *
from tiledarray.api.sorting import *
from tiledarray.api.strides import *
from tiledarray.api.types import isscalar, ndarray, ufunc
from tiledarray.api.ufuncs import BY_NAME as _UFUNCS
from tiledarray.arrays.tiledarray import TiledArray
from tiledarray.devices.device import device
from tiledarray.fork import import_part as _import_part
from tiledarray.recording.pace import begin as _begin_pace

if _TYPE_CHECKING:
    from tiledarray.gradients.public import *
    from tiledarray.insight.explain import explain

# Imported when they are first asked for: most programs never do.
_ON_FIRST_USE = {
    "explain": "tiledarray.insight.explain",
    **dict.fromkeys((
        "checkpoint", "custom_jvp", "custom_vjp", "fori_loop", "grad", "hessian", "hvp", "jacobian",
        "jit", "jvp", "stop_gradient", "value_and_grad", "variable", "vjp", "vmap", "while_loop",
    ), "tiledarray.gradients.public"),
}

__all__ = [
    *_numpy.__all__, "TiledArray", "asnumpy", "config", "device", "evaluate", *_ON_FIRST_USE,
]  # fmt: skip
__version__ = "0.1.0"
__array_api_version__ = _numpy.__array_api_version__

_other = _namespace_getattr(_numpy, __name__)
for _module in (fft, linalg, random):
    # So that `from tiledarray.fft import fft` works as it does with NumPy.
    _sys.modules[f"{__name__}.{_module.__name__.rpartition('.')[2]}"] = _module


def __getattr__(name: str) -> _Any:
    # The module keeps what was found, so that this runs once for each name.
    if name in _ON_FIRST_USE:
        value = getattr(_import_part(_ON_FIRST_USE[name]), name)
    else:
        value = _UFUNCS[name] if name in _UFUNCS else _other(name)
    globals()[name] = value
    return value


def load_ipython_extension(ipython: _Any) -> None:
    """Do what ``%load_ext tiledarray`` asks for: see `tiledarray.command.ipython`."""
    _import_part("tiledarray.command.ipython").load(ipython)


def unload_ipython_extension(ipython: _Any) -> None:
    """Do what ``%unload_ext tiledarray`` asks for."""
    _import_part("tiledarray.command.ipython").unload(ipython)


def __dir__() -> list[str]:
    theirs = (name for name in dir(_numpy) if not name.startswith("__"))
    return sorted({*globals(), *_ON_FIRST_USE, *theirs})


# The class knows nothing of gradients, which are made of its methods.
setattr(TiledArray, "grad", _MethodOnFirstUse(_ON_FIRST_USE["grad"], "grad"))  # noqa: B010
_begin_pace()
_keep_packages_out(_sys.modules[__name__])
