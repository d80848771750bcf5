"""The scalar functions of kernels/math.h on a real CUDA device, against NumPy.

The loops, operands and comparisons are those of ``tests/test_elementwise_kernels.py``.
"""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.gpu


def _load_sibling():
    path = Path(__file__).parents[1] / "test_elementwise_kernels.py"
    spec = importlib.util.spec_from_file_location("elementwise_kernels", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


host = _load_sibling()


@pytest.fixture(scope="module")
def cupy():
    cupy = pytest.importorskip("cupy")
    if not cupy.cuda.is_available():
        pytest.skip("no CUDA device")
    return cupy


@pytest.mark.parametrize("family", host.FAMILIES)
def test_device_functions_equal_numpy(cupy, family):
    loops = host.family_loops(family)
    source = '#include "math.h"\n' + "".join(loop.device() for loop in loops)
    capability = cupy.cuda.Device().compute_capability
    cubin, _ = host.nvrtc_compile(source, f"sm_{capability}")
    module = cupy.cuda.function.Module()
    module.load(cubin)
    complaints = []
    for loop in loops:
        arrays = host.operands(loop)
        expected = host.reference(loop, arrays)
        actual = launch(cupy, module.get_function(loop.symbol), loop, arrays)
        wrong = host.mismatches(loop, arrays, actual, expected, strict=False)
        if wrong.any():
            complaints.append(host.complaint(loop, arrays, actual, expected, wrong))
    assert not complaints, "\n".join(complaints)


def launch(cupy, kernel, loop, arrays):
    """Run a kernel over the arrays, which travel as bytes: CuPy has no bfloat16."""
    size = arrays[0].size
    inputs = [cupy.asarray(array.view(np.uint8)) for array in arrays]
    out = cupy.zeros(size * loop.output.itemsize, np.uint8)
    threads = 256
    kernel(((size + threads - 1) // threads,), (threads,), (*inputs, out, np.int64(size)))
    return cupy.asnumpy(out).view(loop.output)
