"""Devices: names, choice, context, and what the host's does."""

import copy
import pickle
import threading

import ml_dtypes
import numpy as np
import pytest

from tiledarray import config
from tiledarray.devices import device as devices
from tiledarray.devices.device import Device, current, device, resolve
from tiledarray.errors import DeviceNotFound, TiledArrayWarning


@pytest.fixture
def driver(monkeypatch):
    """Pretend that the driver answers so, and that the package cupy is (not) installed."""

    def pretend(status, count, cupy=True):
        monkeypatch.setattr(devices, "_ask_driver", lambda: (status, count))
        monkeypatch.setattr(devices.importlib.util, "find_spec", lambda _: cupy or None)

    def forget():
        devices.cuda_count.cache_clear()
        devices._automatic.cache_clear()
        for name in [name for name in devices._interned if name.startswith(("cuda", "auto"))]:
            del devices._interned[name]

    forget()
    yield pretend
    monkeypatch.undo()
    forget()


@pytest.fixture
def cpu():
    return Device("cpu")


def test_devices_are_interned(cpu):
    assert Device("cpu") is cpu is resolve("cpu") is resolve(cpu) is Device(cpu)
    assert pickle.loads(pickle.dumps(cpu)) is cpu is copy.deepcopy(cpu)
    assert (str(cpu), repr(cpu), cpu.kind, cpu.index) == ("cpu", "Device('cpu')", "cpu", 0)
    assert cpu.xp is np
    with pytest.raises(AttributeError, match="colour"):
        _ = cpu.colour


def test_a_backend_is_loaded_when_needed(driver, monkeypatch):
    driver(0, 1)
    gpu = Device("cuda")
    made = []

    class Backend(devices.HostBackend):
        properties = "limits"

        def __init__(self, index, device):
            super().__init__(index, device)
            made.append((index, device))

    monkeypatch.setattr(devices, "TestBackend", Backend, raising=False)
    monkeypatch.setitem(devices._backends, "cuda", f"{devices.__name__}:TestBackend")
    assert made == []
    assert gpu.properties == "limits"
    assert gpu.allocate((2,), np.dtype("f4")).device is gpu
    assert made == [(0, gpu)]


def test_cuda_names(driver):
    driver(0, 2)
    assert Device("cuda") is Device("cuda:0") is not Device("cuda:1")
    assert str(Device("cuda")) == "cuda:0"
    with pytest.raises(DeviceNotFound, match="sees 2 GPUs"):
        Device("cuda:2")


@pytest.mark.parametrize("name", ["tpu", "cpu:1", "", "cuda:x", "CPU"])
def test_unknown_names(name):
    with pytest.raises(DeviceNotFound, match="'cpu'"):
        Device(name)


@pytest.mark.parametrize("status, count, cupy, message", [
    (None, 0, True, "no NVIDIA driver"),
    (100, 0, True, "no GPU"),
    (0, 0, True, "CUDA_VISIBLE_DEVICES"),
    (803, 0, True, "error 803"),
    (0, 1, False, r"pip install tiledarray\[cuda12\]"),
])
def test_why_there_is_no_gpu(driver, status, count, cupy, message):
    driver(status, count, cupy)
    for _ in range(2):
        with pytest.raises(DeviceNotFound, match=message) as caught:
            Device("cuda")
    assert len(caught.traceback) < 8


def test_auto_takes_a_gpu_where_there_is_one(driver, cpu):
    driver(None, 0)
    assert resolve("auto") is cpu
    devices._automatic.cache_clear()
    devices.cuda_count.cache_clear()
    driver(0, 1)
    anywhere = resolve("auto")
    assert (str(anywhere), anywhere.on_host, anywhere.xp) == ("auto", True, np)
    assert str(devices.accelerator()) == "cuda:0"
    assert pickle.loads(pickle.dumps(anywhere)) is anywhere is Device("auto")


def test_auto_says_that_cupy_is_missing(driver, cpu):
    driver(0, 1, cupy=False)
    with pytest.warns(TiledArrayWarning, match="CuPy"):
        assert resolve("auto") is cpu
    assert resolve("auto") is cpu


def test_choice_by_setting_and_by_context(driver, cpu):
    driver(0, 2)
    with config.override(device="cuda:1"):
        assert str(current()) == str(resolve(None)) == "cuda:1"
        with device("cpu") as chosen:
            assert chosen is current() is cpu
            with device("cuda"):
                assert str(current()) == "cuda:0"
            assert current() is cpu
            seen = []
            thread = threading.Thread(target=lambda: seen.append(str(current())))
            thread.start()
            thread.join()
            assert seen == ["cuda:1"]
        assert str(current()) == "cuda:1"


def test_allocate_and_to_host(cpu):
    made = cpu.allocate((2, 3), np.dtype(ml_dtypes.bfloat16))
    assert made.device is cpu and made.alone()
    made.array[...] = 1.5
    seen = cpu.to_host(made)
    assert np.shares_memory(seen, made.array) and not made.alone()
    del seen
    assert made.alone()
    cpu.synchronize()


@pytest.mark.parametrize("array", [
    np.arange(12.0).reshape(3, 4), np.arange(12)[::-2], np.arange(6).reshape(2, 3).T, np.array(3),
    np.zeros((0, 2)), np.array(["a", "bc"]), np.array([None, 1]), np.arange(3, dtype=">f8"),
    np.array(["2020-01-01"], "M8[D]"), np.arange(3).astype(ml_dtypes.bfloat16), 5.0,
    np.frombuffer(bytes(17), np.uint8)[1:].view("f8"), np.ma.masked_array([1, 2], [0, 1]),
], ids=str)  # fmt: skip
@pytest.mark.parametrize("copied", [True, False])
def test_wrap(cpu, array, copied):
    made = cpu.wrap(array, copy=copied)
    given = np.asarray(array)
    assert made.array.shape == given.shape
    assert made.array.dtype == given.dtype.newbyteorder("=")
    assert made.array.flags.c_contiguous and made.array.flags.aligned
    assert type(made.array) is np.ndarray
    np.testing.assert_array_equal(made.array, given)
    if given.size:
        assert made.pointer == made.array.ctypes.data
    if np.shares_memory(made.array, given) if given.dtype != object else False:
        assert not copied and not made.alone()


def test_wrap_without_copy_sees_later_changes(cpu):
    array = np.zeros(4)
    made = cpu.wrap(array, copy=False)
    array[1] = 5
    assert made.array[1] == 5 and not made.alone()
