"""Products of matrices by cuBLAS, as launches that a graph can hold: CuPy refuses to record them.

It also copies operands of stacks that are transposed, which cuBLAS takes as they lie.

Calls go through ``ctypes``, into memory that the caller gives, on the stream that it names.
"""

from __future__ import annotations

import ctypes
import functools
import threading
from collections.abc import Iterator, Sequence
from ctypes import byref, c_double, c_float, c_int, c_longlong, c_size_t, c_void_p
from itertools import product
from typing import Any, NamedTuple

import cupy
import numpy as np

from tiledarray.devices.cuda_launch import DeviceError

NORMAL, TRANSPOSED = 0, 1  # CUBLAS_OP_N, CUBLAS_OP_T
DEFAULT = -1  # CUBLAS_GEMM_DEFAULT
TF32 = 77  # CUBLAS_COMPUTE_32F_FAST_TF32
WORKSPACE = 8 << 20  # bytes
MOST_CALLS = 32  # for stacks of stacks


class _Type(NamedTuple):
    """cudaDataType and cublasComputeType_t of a dtype, and what its scale factors are.

    ``quick`` is the type of computation in TF32, where there is one.
    """

    data: int
    compute: int
    factor: Any
    parts: int = 1
    quick: int = 0


TYPES = {
    "float16": _Type(2, 68, c_float), "bfloat16": _Type(14, 68, c_float),
    "float32": _Type(0, 68, c_float, 1, TF32), "float64": _Type(1, 70, c_double),
    "complex64": _Type(4, 68, c_float, 2, TF32), "complex128": _Type(5, 70, c_double, 2),
}


class Matrices(NamedTuple):
    """Where a stack of row-major matrices lies: the strides are elements, of the last two axes."""

    pointer: int
    transposed: int
    leading: int
    stride: int


def library() -> ctypes.CDLL:
    """Return cuBLAS.

    Raises
    ------
    DeviceError
        If it is not there.
    """
    try:
        return _library()
    except Exception as error:  # pathfinder raises its own types
        raise DeviceError(f"cuBLAS was not found: {error}") from error


@functools.cache
def _library() -> ctypes.CDLL:
    from cuda.pathfinder import load_nvidia_dynamic_lib

    found = ctypes.CDLL(load_nvidia_dynamic_lib("cublas").abs_path)
    found.cublasSetStream_v2.argtypes = [c_void_p, c_void_p]
    found.cublasSetWorkspace_v2.argtypes = [c_void_p, c_void_p, c_size_t]
    of_matrices: list[Any] = [c_void_p, c_int, c_int, c_longlong]
    found.cublasGemmStridedBatchedEx.argtypes = [
        c_void_p, c_int, c_int, c_int, c_int, c_int, c_void_p, *of_matrices, *of_matrices, c_void_p,
        *of_matrices, c_int, c_int, c_int]
    return found


class _Handles(threading.local):
    """cuBLAS's state, for each thread and device."""

    def __init__(self) -> None:
        self.of: dict[int, c_void_p] = {}

    def here(self) -> c_void_p:
        device = cupy.cuda.runtime.getDevice()
        if device not in self.of:
            handle = c_void_p()
            _check(library().cublasCreate_v2(byref(handle)), "starting cuBLAS")
            self.of[device] = handle
        return self.of[device]


_handles = _Handles()


def _check(status: int, doing: str) -> None:
    if status:
        raise DeviceError(f"{doing}: cuBLAS says {status}")


def multiply(left: Any, right: Any, out: Any, workspace: int, *, tf32: bool = False) -> None:
    """Launch the product of two stacks of matrices into a third, on CuPy's current stream.

    Parameters
    ----------
    left, right, out : cupy.ndarray
        Of one dtype of `TYPES`, with two axes or more; all in ``out`` are dense and row-major.
    workspace : int
        Pointer to `WORKSPACE` bytes that nobody else uses meanwhile.
    tf32 : bool
        Whether factors of float32 may be rounded to TF32.

    Raises
    ------
    DeviceError
        If they lie in memory as cuBLAS does not take them, or it fails.
    """
    kind = TYPES[out.dtype.name]
    compute = (tf32 and kind.quick) or kind.compute
    rows, columns = out.shape[-2:]
    handle = _handles.here()
    one = (kind.factor * kind.parts)(1)
    nothing = (kind.factor * kind.parts)(0)
    _check(library().cublasSetStream_v2(handle, cupy.cuda.get_current_stream().ptr), "a stream")
    _check(library().cublasSetWorkspace_v2(handle, workspace, WORKSPACE), "a workspace")
    for a, b, c in _stacks(left, right, out):
        x, y, z = _lie(a), _lie(b), _lie(c)
        # Row-major: what cuBLAS sees are the transposes, so the product is the other way round.
        status = library().cublasGemmStridedBatchedEx(
            handle, y.transposed, x.transposed, columns, rows, a.shape[-1], one,
            y.pointer, kind.data, y.leading, y.stride, x.pointer, kind.data, x.leading, x.stride,
            nothing, z.pointer, kind.data, z.leading, z.stride, c.shape[0], compute, DEFAULT)
        _check(status, "a product of matrices")


def _stacks(left: Any, right: Any, out: Any) -> Iterator[tuple[Any, Any, Any]]:
    """Each with one axis of matrices; several for stacks of stacks."""
    outer = out.shape[:-2]
    left, right = (
        cupy.broadcast_to(x, (*outer, *x.shape[-2:])) if outer else x[None] for x in (left, right))
    out = out if outer else out[None]
    calls = int(np.prod(outer[:-1], dtype=np.int64))
    if calls > MOST_CALLS:
        raise DeviceError(f"{calls} products of stacks are too many to record")
    for at in product(*map(range, outer[:-1])):
        yield left[at], right[at], out[at]


def _lie(stack: Any) -> Matrices:
    """Where a stack with one axis of matrices lies."""
    count, rows, columns = stack.shape
    stride, down, along = (step // stack.dtype.itemsize for step in stack.strides)
    pointer = stack.data.ptr
    stride = 0 if count == 1 else stride
    if (along == 1 or columns == 1) and (rows == 1 or down >= columns):
        return Matrices(pointer, NORMAL, columns if rows == 1 else down, stride)
    if (down == 1 or rows == 1) and (columns == 1 or along >= rows):
        return Matrices(pointer, TRANSPOSED, rows if columns == 1 else along, stride)
    raise DeviceError("neither axis of a matrix lies side by side in memory")


def as_matrices(name: str, left: Any, right: Any, shape: Sequence[int]) -> tuple[Any, Any, Any]:
    """Return both operands of NumPy's product as stacks of matrices, and the result's shape as one.

    Raises
    ------
    DeviceError
        If that product is none of matrices.
    """
    if name == "dot" and max(left.ndim, right.ndim) > 2:
        raise DeviceError("a product over an axis in between")
    row = left.ndim == 1 or name in ("vecdot", "vecmat")
    column = right.ndim == 1 or name in ("vecdot", "matvec")
    if not left.ndim or not right.ndim or (
            left.dtype.kind == "c" and name in ("vecdot", "vecmat")):
        raise DeviceError(f"{name} is no product of matrices here")
    left = left[..., None, :] if row else left
    right = right[..., None] if column else right
    stacked = list(shape)
    if row:
        stacked.insert(len(stacked) - (not column), 1)
    if column:
        stacked.append(1)
    return left, right, tuple(stacked)
