"""What tests on a GPU share.

Under ``compute-sanitizer`` give it ``--show-backtrace no``: it keeps the frames of Python functions
in which CUDA was called, and with them buffers that `config.verify` then takes for alive.
"""

import pytest

import tiledarray
from tiledarray import config
from tiledarray.recording.stretch import local


@pytest.fixture
def a_device():
    """Leave the test out where there is no GPU."""
    cupy = pytest.importorskip("cupy")
    if not cupy.cuda.is_available():
        pytest.skip("no CUDA device")


@pytest.fixture
def compiled_there(a_device):
    """Have what a test records computed on the GPU, by kernels."""
    local.recorder.reset()
    with tiledarray.device("cuda"), config.override(compile="wait", verify=True):
        yield
    local.recorder.reset()
