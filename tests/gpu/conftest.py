"""What tests on a GPU share."""

import pytest


@pytest.fixture
def a_device():
    """Leave the test out where there is no GPU."""
    cupy = pytest.importorskip("cupy")
    if not cupy.cuda.is_available():
        pytest.skip("no CUDA device")
