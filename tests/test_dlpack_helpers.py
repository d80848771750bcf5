"""Which of NumPy and CuPy owns a foreign array."""

import numpy as np
import pytest

from tiledarray.devices import dlpack


class Foreign:
    """An array of another library, on any kind of device."""

    def __init__(self, array, device):
        self.array, self.device = array, device

    def __dlpack__(self, **keywords):
        return self.array.__dlpack__(**keywords)

    def __dlpack_device__(self):
        return self.device


@pytest.mark.parametrize(
    ("device", "name"),
    [((1, 0), "cpu"), ((3, 0), "cpu"), ((2, 0), "cuda:0"), ((2, 3), "cuda:3"), ((13, 1), "cuda:1")],
)
def test_device_names(device, name):
    assert dlpack.device_name(Foreign(np.ones(2), device)) == name


def test_unknown_devices_are_refused():
    with pytest.raises(BufferError, match="device type 8"):
        dlpack.device_name(Foreign(np.ones(2), (8, 0)))


def test_host_arrays_share_memory_unless_copied():
    array = np.arange(6.0).reshape(2, 3).T
    shared = dlpack.import_array(Foreign(array, (1, 0)))
    assert np.shares_memory(shared, array)
    copied = dlpack.import_array(Foreign(array, (1, 0)), copy=True)
    assert not np.shares_memory(copied, array)
    np.testing.assert_array_equal(copied, array)
    assert copied.flags.writeable


def test_export():
    array = np.arange(3)
    assert dlpack.export_device(array) == (1, 0)
    capsule = dlpack.export_array(array, stream=None, max_version=(1, 0), copy=None)
    assert "dltensor" in repr(capsule)
