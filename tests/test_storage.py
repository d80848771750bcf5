"""Buffers and the host memory pool."""

import subprocess
import sys
import threading

import ml_dtypes
import numpy as np
import pytest

from tiledarray import config
from tiledarray.devices import pool as pool_module
from tiledarray.devices import storage
from tiledarray.devices.pool import ALIGNMENT, HostPool
from tiledarray.devices.storage import Buffer
from tiledarray.errors import OutOfMemory

F4 = np.dtype(np.float32)


@pytest.fixture
def pool():
    return HostPool()


def make(pool, shape=(10, 10), dtype=F4):
    return Buffer(*pool.array(shape, np.dtype(dtype)), None)


@pytest.mark.parametrize("dtype", ["?", "i1", "u8", "f2", "f8", "c16", ml_dtypes.bfloat16, "U7"])
@pytest.mark.parametrize("shape", [(), (0,), (1,), (3, 5), (2, 0, 4), (1000, 3)])
def test_arrays_are_dense_aligned_and_writable(pool, shape, dtype):
    made = make(pool, shape, dtype)
    assert made.array.shape == shape and made.array.dtype == dtype
    assert made.array.flags.c_contiguous and made.array.flags.writeable
    assert type(made.array) is np.ndarray
    assert made.pointer == made.array.ctypes.data or not made.array.size
    assert made.pointer % ALIGNMENT == 0
    assert made.nbytes == made.array.size * np.dtype(dtype).itemsize
    made.array[...] = made.array.dtype.type(1)
    assert (made.array == made.array.dtype.type(1)).all()


@pytest.mark.parametrize("nbytes", [0, 1, 63, 64, 65, 1000, 4097, 10**6, 123456789, 2**40 + 1])
def test_block_sizes_waste_little(nbytes):
    size = pool_module._rounded(nbytes)
    assert size >= nbytes and size % ALIGNMENT == 0
    assert size <= max(ALIGNMENT, nbytes + ALIGNMENT, nbytes * 1.125 + ALIGNMENT)


def test_memory_is_reused_after_the_last_reference(pool):
    first = make(pool)
    address = first.pointer
    other = make(pool)
    assert other.pointer != address
    del first
    assert make(pool, (100,), "i4").pointer == address
    assert pool.statistics().in_use == 448  # `other`


def test_an_exported_view_keeps_the_memory(pool):
    made = make(pool)
    made.array[...] = 7
    view = made.array[2:][:, ::2]
    sight = memoryview(view)
    address = made.pointer
    del made
    assert pool.statistics().in_use == 448
    assert make(pool).pointer != address
    assert (view == 7).all()
    del view
    assert pool.statistics().in_use == 448
    sight.release()
    del sight
    assert pool.statistics().in_use == 0


def test_another_hold_shares_memory_and_keeps_it(pool):
    made = make(pool)
    flat = made.another((100,))
    assert flat.pointer == made.pointer and flat.array.shape == (100,)
    flat.array[3] = 5
    assert made.array[0, 3] == 5
    del made
    assert pool.statistics().in_use == 448
    del flat
    assert pool.statistics().in_use == 0


def test_owners_are_counted(pool):
    made = make(pool)
    assert made.alone() and made.storage.owners == 1 and made.alone()
    flat = made.another((100,))
    third = flat.another()
    assert made.storage is flat.storage is third.storage and made.storage.owners == 3
    assert not (made.alone() or flat.alone() or third.alone())
    del made, third
    assert flat.storage.owners == 1 and flat.alone()


def test_what_is_handed_out_is_a_lease(pool):
    made = make(pool)
    lent = made.lend()
    assert lent.base is not None and made.storage.leases == 1 and not made.alone()
    part = lent[2:]
    del lent
    assert made.storage.leases == 1 and not made.alone()
    del part
    assert made.storage.leases == 0 and made.alone()
    assert not made.lent_for_ever().alone()


def test_owners_that_come_and_go_in_threads_are_counted(pool):
    made = make(pool)

    def work():
        for _ in range(2000):
            one = made.another()
            other = one.another()
            assert not one.alone()
            del one, other

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made.storage.owners == 1 and made.alone()


def test_shared_memory_is_found(pool):
    storage.watch(True)
    try:
        first, second = make(pool), make(pool)
        storage.check()
        alias = Buffer(first.array, first.pointer, None)
        with pytest.raises(storage.MemoryShared):
            storage.check()
        del alias
        counted = second.another()
        storage.check()
        assert counted.pointer == second.pointer
    finally:
        storage.watch(False)


def test_a_loop_needs_flat_memory(pool):
    value = make(pool, (1000,))
    for _ in range(50):
        value = make(pool, (1000,))
    assert value.array.shape == (1000,)
    found = pool.statistics()
    assert found.peak == 2 * found.in_use == found.in_use + found.cached
    pool.reset_peak()
    assert pool.statistics().peak == found.in_use


def test_what_is_kept_is_bounded(pool):
    with config.override(pool_bytes=10_000):
        kept = [make(pool, (1024,), "u1") for _ in range(20)]
        del kept
        assert pool.statistics().cached <= 10_000
        large = make(pool, (9000,), "u1")
        del large  # its size makes room for itself
        assert 9000 <= pool.statistics().cached <= 10_000
        larger = make(pool, (20_000,), "u1")
        before = pool.statistics().cached
        del larger
        assert pool.statistics().cached == before
    pool.clear()
    assert pool.statistics() == pool_module.PoolStatistics(0, 0, pool.peak)


def test_out_of_memory_clears_the_pool_and_says_how_much(pool, monkeypatch):
    make(pool)
    assert pool.statistics().cached

    numpys = {"__name__": "numpy"}  # what others raise is the program's own
    exec("def empty(*_): raise MemoryError", numpys)
    monkeypatch.setattr(pool_module.np, "empty", numpys["empty"])
    with pytest.raises(OutOfMemory, match="4,000,000 bytes") as caught:
        make(pool, (1_000_000,))
    assert isinstance(caught.value, MemoryError) and caught.value.nbytes == 4_000_000
    assert "Remedy" in str(caught.value)
    assert pool.statistics().cached == pool.statistics().in_use == 0


@pytest.mark.parametrize("exponent", [52, 63, 80])
def test_absurd_sizes_are_out_of_memory(pool, exponent):
    with pytest.raises(OutOfMemory):
        make(pool, (2**exponent,))


def test_memory_is_retried_after_clearing(pool, monkeypatch):
    calls = []
    numpys = {"__name__": "numpy", "real": np.empty, "calls": calls}
    exec("""def empty(*arguments):
        calls.append(arguments)
        if len(calls) == 1:
            raise MemoryError
        return real(*arguments)""", numpys)
    monkeypatch.setattr(pool_module.np, "empty", numpys["empty"])
    assert make(pool).array.shape == (10, 10)
    assert len(calls) == 2


def test_threads_never_get_the_same_block(pool):
    wrong = []

    def work(number):
        for turn in range(300):
            made = make(pool, (64,), "i8")
            made.array[...] = number * 1000 + turn
            again = make(pool, (64,), "i8")
            again.array[...] = -1
            if (made.array != number * 1000 + turn).any():
                wrong.append(number)

    workers = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong


def test_arrays_alive_at_exit_are_no_trouble():
    code = (
        "import numpy as np; from tiledarray.devices.pool import host_pool;"
        "a = [host_pool.array((10, 10), np.dtype('f4')) for _ in range(5)]; a.append(a)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (0, "")
