"""A real CUDA device: memory, copies, launches, graphs, DLPack.  Run with ``-m gpu``."""

import gc
import struct
import threading
import time
import weakref

import numpy as np
import pytest

from tiledarray import errors
from tiledarray.devices import dlpack
from tiledarray.devices.device import Device
from tiledarray.kernels.compile import cuda as compiler

pytestmark = pytest.mark.gpu

SCALE = """
struct Args { double* data; long long size; double factor; };
extern "C" __global__ void scale(const Args args) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < args.size) args.data[i] = args.data[i] * args.factor;
}
"""
REVERSE = """
struct Args { int* data; long long size; };
extern "C" __global__ void reverse(const Args args) {
    extern __shared__ int tile[];
    for (int i = threadIdx.x; i < args.size; i += blockDim.x) tile[i] = args.data[i];
    __syncthreads();
    for (int i = threadIdx.x; i < args.size; i += blockDim.x)
        args.data[i] = tile[args.size - 1 - i];
}
"""
COUNT = """
struct Args { unsigned* counter; unsigned* last; };
extern "C" __global__ void count(const Args args) {
    if (threadIdx.x == 0 && atomicInc(args.counter, gridDim.x - 1) == gridDim.x - 1)
        atomicAdd(args.last, 1);
}
"""


@pytest.fixture(scope="module")
def runtime():
    """The CUDA half of the runtime, which imports CuPy."""
    pytest.importorskip("cupy")
    from tiledarray.devices import cuda

    if cuda.device_count() == 0:
        pytest.skip("no CUDA device")
    return cuda


@pytest.fixture(scope="module")
def backend(runtime):
    return Device("cuda:0").backend


def load(backend, source, name):
    return backend.load(compiler.compile_source(source, name, backend.properties.arch), name)


def scale_args(pointer, size, factor):
    return struct.pack("qqd", pointer, size, factor)


def test_properties(backend):
    found = backend.properties
    assert found.multiprocessors > 0
    assert found.shared_bytes_per_block >= 48 * 1024
    assert found.l2_bytes > 0
    assert found.arch.startswith("sm_")
    if found.capability == (9, 0):
        assert found.arch == "sm_90a"
    free, total = backend.memory()
    assert 0 < free <= total


@pytest.mark.parametrize("shape", [(), (0,), (7,), (3, 0, 2), (1000, 1001), (5_000_011,)])
@pytest.mark.parametrize("dtype", ["?", "i1", "u8", "f4", "f8", "c16"])
def test_copies_are_exact(backend, shape, dtype):
    host = (np.random.default_rng(1).random(shape) * 100).astype(dtype)
    buffer = backend.wrap(host)
    assert buffer.array.shape == shape
    assert buffer.pointer == buffer.array.data.ptr
    back = backend.to_host(buffer)
    assert back.dtype == host.dtype
    assert back.flags.writeable
    np.testing.assert_array_equal(back, host)


def test_staged_upload_may_change_its_source_at_once(backend):
    host = np.arange(20_000_000, dtype=np.int32)
    expected = host.copy()
    buffer = backend.wrap(host)
    host[:] = -1
    np.testing.assert_array_equal(backend.to_host(buffer), expected)


def test_copies_from_several_threads(backend):
    failures = []

    def work(seed):
        host = np.random.default_rng(seed).random(4_000_000)
        if not np.array_equal(backend.to_host(backend.wrap(host)), host):
            failures.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_wrap_makes_dense(backend):
    cupy = backend.xp
    strided = cupy.arange(12).reshape(3, 4).T
    buffer = backend.wrap(strided)
    assert buffer.array.flags.c_contiguous
    np.testing.assert_array_equal(buffer.array.get(), strided.get())
    dense = cupy.arange(12)
    shared = backend.wrap(dense, copy=False)
    assert shared.pointer == dense.data.ptr
    assert not shared.alone()
    assert backend.wrap(dense).alone()
    assert backend.wrap(dense).pointer != dense.data.ptr
    swapped = np.arange(12, dtype=">i4")
    np.testing.assert_array_equal(backend.to_host(backend.wrap(swapped)), swapped)
    host_view = np.arange(12).reshape(3, 4)[:, ::-2]
    np.testing.assert_array_equal(backend.to_host(backend.wrap(host_view)), host_view)


def test_launch(backend):
    function = load(backend, SCALE, "scale")
    assert function.args_bytes in (0, 24)
    assert function.registers > 0
    assert function.local_bytes == 0
    assert function.blocks_per_multiprocessor(256) >= 1
    host = np.random.default_rng(2).random(100_003)
    buffer = backend.wrap(host)
    args = scale_args(buffer.pointer, host.size, 3.0)
    function.launch(((host.size + 255) // 256, 1, 1), (256, 1, 1), 0, args)
    np.testing.assert_array_equal(backend.to_host(buffer), host * 3.0)


def test_launch_on_another_stream(backend):
    function = load(backend, SCALE, "scale")
    with backend.xp.cuda.Stream(non_blocking=True) as stream:
        buffer = backend.wrap(np.ones(1000))
        function.launch((4, 1, 1), (256, 1, 1), 0, scale_args(buffer.pointer, 1000, 5.0))
        assert backend.stream() == stream.ptr
        assert np.all(backend.to_host(buffer) == 5.0)


def test_launch_from_a_new_thread(backend):
    function = load(backend, SCALE, "scale")
    buffer = backend.wrap(np.ones(1000))
    backend.synchronize()
    failures = []

    def work():
        try:
            with backend.active():
                function.launch((4, 1, 1), (256, 1, 1), 0, scale_args(buffer.pointer, 1000, 2.0))
                backend.synchronize()
        except Exception as error:
            failures.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert not failures
    assert np.all(backend.to_host(buffer) == 2.0)


def test_launch_is_cheap(backend):
    function = load(backend, SCALE, "scale")
    args = scale_args(backend.wrap(np.ones(1)).pointer, 1, 1.0)
    times = []
    for _ in range(20):
        backend.synchronize()
        start = time.perf_counter()
        for _ in range(100):
            function.launch((1, 1, 1), (32, 1, 1), 0, args)
        times.append((time.perf_counter() - start) / 100)
    print(f"launch: {min(times) * 1e6:.2f} us")
    assert min(times) < 20e-6


@pytest.mark.parametrize("kibibytes", [16, 48, 64, 99])
def test_much_shared_memory(backend, kibibytes):
    function = load(backend, REVERSE, "reverse")
    size = kibibytes * 256
    buffer = backend.wrap(np.arange(size, dtype=np.int32))
    args = struct.pack("qq", buffer.pointer, size)
    function.launch((1, 1, 1), (256, 1, 1), 4 * size, args)
    np.testing.assert_array_equal(backend.to_host(buffer), np.arange(size)[::-1])


def test_a_limit_of_shared_memory_gives_way_to_what_a_block_needs(backend):
    function = load(backend, REVERSE, "reverse")
    function.limit_shared(16 << 10, backend.properties.shared_bytes_per_multiprocessor)
    size = 64 * 256
    buffer = backend.wrap(np.arange(size, dtype=np.int32))
    function.launch((1, 1, 1), (256, 1, 1), 4 * size, struct.pack("qq", buffer.pointer, size))
    np.testing.assert_array_equal(backend.to_host(buffer), np.arange(size)[::-1])


def test_too_much_shared_memory_is_refused(backend):
    function = load(backend, REVERSE, "reverse")
    with pytest.raises(RuntimeError, match="shared memory"):
        function.launch((1, 1, 1), (256, 1, 1), 1 << 20, struct.pack("qq", 0, 0))


def test_short_arguments_are_refused(backend):
    function = load(backend, SCALE, "scale")
    if not function.args_bytes:
        pytest.skip("the driver does not tell the size of parameters")
    with pytest.raises(ValueError, match="24 bytes"):
        function.launch((1, 1, 1), (1, 1, 1), 0, b"\0" * 16)


def test_load_is_remembered(backend):
    assert load(backend, SCALE, "scale") is load(backend, SCALE, "scale")


def test_functions_that_nobody_holds_are_unloaded(backend):
    data = backend.wrap(np.ones(1))
    args = struct.pack("qqd", data.pointer, 1, 2.0)
    held, died = [], []
    for number in range(40):
        source = SCALE.replace("scale", f"scale{number}")
        function = load(backend, source, f"scale{number}")
        function.launch((1, 1, 1), (32, 1, 1), 0, args)
        if number % 10 == 0:
            held.append(function)
        died.append(weakref.ref(function))
        del function
        gc.collect()
        assert len(backend._dropped) <= 1
    assert [number for number in range(40) if died[number]() is not None] == [0, 10, 20, 30]
    held.append(load(backend, SCALE.replace("scale", "another"), "another"))
    assert not backend._dropped
    for function in held:
        function.launch((1, 1, 1), (32, 1, 1), 0, args)
    assert backend.to_host(data)[0] == 2.0**45


def test_counters_are_left_at_zero(backend):
    function = load(backend, COUNT, "count")
    last = backend.wrap(np.zeros(1, np.uint32))
    for _ in range(3):
        function.launch(
            (37, 1, 1), (32, 1, 1), 0, struct.pack("qq", backend.counters(1), last.pointer)
        )
    assert backend.to_host(last)[0] == 3


def test_graph_replays_with_new_arguments(backend):
    from tiledarray.devices.cuda_launch import Launch, LaunchGraph

    function = load(backend, SCALE, "scale")
    buffer, other = backend.wrap(np.ones(1000)), backend.wrap(np.ones(1000))
    first = [scale_args(buffer.pointer, 1000, factor) for factor in (2.0, 3.0, 5.0)]
    graph = LaunchGraph([Launch(function, (4, 1, 1), (256, 1, 1), 0, args) for args in first])
    graph.replay(first)
    assert np.all(backend.to_host(buffer) == 30.0)
    changed = [first[0], scale_args(other.pointer, 1000, 7.0), first[2]]
    graph.replay(changed)
    assert np.all(backend.to_host(buffer) == 300.0)
    assert np.all(backend.to_host(other) == 7.0)
    for _ in range(50):  # arguments change while earlier replays are under way
        graph.replay([scale_args(other.pointer, 1000, factor) for factor in (2.0, 0.5, 1.0)])
        graph.replay([scale_args(other.pointer, 1000, factor) for factor in (1.0, 1.0, 1.0)])
    assert np.all(backend.to_host(other) == 7.0)


def test_out_of_memory_names_a_remedy(backend):
    total = backend.memory()[1]
    with pytest.raises(errors.OutOfMemory, match="cuda:0 is out of memory") as caught:
        backend.allocate((2 * total,), np.dtype(np.int8))
    assert caught.value.nbytes == 2 * total
    assert caught.value.remedy
    assert backend.allocate((10,), np.dtype(float)).array.size == 10


def test_elapsed(backend):
    array = backend.xp.zeros(50_000_000)
    milliseconds = backend.elapsed(lambda: array.fill(1.0), repeats=3)
    assert 0.01 < milliseconds < 1000


def test_memory_has_one_owner_or_is_counted(backend):
    buffer = backend.allocate((10,), np.dtype(float))
    assert buffer.alone()
    other = buffer.another((2, 5))
    assert not buffer.alone() and not other.alone()
    del other
    assert buffer.alone()
    assert not backend.wrap(buffer.array, copy=False).alone()
    assert backend.wrap(buffer.array, copy=False, given=True).alone()
    buffer.lend()
    assert not buffer.alone()


def test_what_kernels_note_is_seen_by_the_host(backend):
    cupy = backend.xp
    noted = backend.notes(3)
    noted.array[...] = -1
    note = cupy.RawKernel(
        'extern "C" __global__ void f(unsigned long long* at) {'
        " atomicMin(at + 1, 1000 - threadIdx.x); }", "f")
    for _ in range(3):
        note((64,), (128,), (cupy.ndarray((3,), np.int64, cupy.cuda.MemoryPointer(
            cupy.cuda.UnownedMemory(noted.pointer, 24, noted), 0)),))
        backend.reach(backend.mark())
        assert noted.array.tolist() == [-1, 873, -1]
        noted.array[1] = -1


def test_dlpack_shares_memory(backend):
    cupy = backend.xp
    array = cupy.arange(10.0)
    assert dlpack.device_name(array) == "cuda:0"
    shared = dlpack.import_array(array)
    assert shared.data.ptr == array.data.ptr
    assert dlpack.import_array(array, copy=True).data.ptr != array.data.ptr
    assert dlpack.export_device(array) == (dlpack.CUDA, 0)
    assert dlpack.export_array(array) is not None


def test_dlpack_with_torch(backend):
    torch = pytest.importorskip("torch")
    tensor = torch.arange(6.0, device="cuda").reshape(2, 3)
    buffer = backend.wrap(dlpack.import_array(tensor), copy=False)
    assert buffer.pointer == tensor.data_ptr()
    back = torch.from_dlpack(buffer.array)
    assert back.data_ptr() == tensor.data_ptr()
    assert dlpack.device_name(torch.zeros(2)) == "cpu"


def test_second_device(runtime):
    if runtime.device_count() < 2:
        pytest.skip("one device")
    first, second = Device("cuda:0").backend, Device("cuda:1").backend
    host = np.random.default_rng(3).random(1_000_000)
    here = first.wrap(host)
    there = second.wrap(here.array)
    assert there.array.data.device_id == 1
    function = load(second, SCALE, "scale")
    with second.active():
        function.launch((4000, 1, 1), (256, 1, 1), 0, scale_args(there.pointer, host.size, 2.0))
    np.testing.assert_array_equal(second.to_host(there), host * 2.0)
    np.testing.assert_array_equal(first.to_host(here), host)
    assert first.xp.cuda.runtime.getDevice() == 0


def test_no_such_device(runtime):
    with pytest.raises(errors.DeviceNotFound, match="cuda:99"):
        runtime.CudaBackend(99)
