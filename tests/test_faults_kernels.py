"""Compiled kernels: unloading them, faults of where they are kept, and NVRTC."""

import ctypes
import gc
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import weakref
from collections import OrderedDict
from contextlib import suppress
from pathlib import Path

import numpy
import pytest

import tiledarray as ta
from tests.faults import EMPTY, VERSION, begin, ended, wait_until
from tiledarray import config
from tiledarray.core import forget_programs
from tiledarray.errors import CompilerError, TiledArrayWarning
from tiledarray.execution import executable, known
from tiledarray.execution.background import passing
from tiledarray.execution.loaded import Loaded
from tiledarray.kernels.compile import cache, cuda, host
from tiledarray.kernels.compile.signals import leave_to_us

pytestmark = pytest.mark.skipif(host.available() is not None, reason="no C++ compiler")
pytest_plugins = ["tests.faults_fixtures"]


@pytest.fixture(autouse=True)
def folder(tmp_path):
    with config.override(cache_dir=tmp_path / "cache"):
        yield tmp_path / "cache"


# ---- kernels that nobody needs any more ------------------------------------------------------


def mappings():
    """How many parts of files and memory the process has mapped."""
    return len(Path("/proc/self/maps").read_text().splitlines())


@pytest.fixture
def variants():
    """Kernels of one another's text but for a number, as fast as they can be loaded."""
    magic = 0x1234_5678_9ABC_DEF1
    source = f'extern "C" long k() {{ volatile long n = {magic}; return n; }}'
    data = host.compile_source(source, "k").path.read_bytes()
    old = magic.to_bytes(8, "little")
    assert data.count(old) == 1

    def make(number):
        entry = cache.put(cache.key(str(number)), ".so",
                          data.replace(old, number.to_bytes(8, "little")))  # fmt: skip
        library = host._load(entry)
        entry.path.unlink()
        address = ctypes.cast(library.handle.k, ctypes.c_void_p).value
        return host.HostKernel("k", address, entry.path, library)

    return make


@pytest.mark.skipif(sys.platform != "linux", reason="mappings are counted in /proc")
def test_thousands_of_kernels_leave_the_mappings_flat(variants):
    loaded = Loaded(recent=50)
    held, counts = [], []
    for number in range(1000):
        loaded[number] = variants(number)
        if number % 100 == 0:
            held.append(loaded.get(number))  # as a launch does
        if number in (99, 999):
            counts.append(mappings())
    assert counts[1] - counts[0] <= 5 * len(held) + 10, counts
    function = ctypes.CFUNCTYPE(ctypes.c_int64)
    assert [function(kernel.address)() for kernel in held] == list(range(0, 1000, 100))
    assert [loaded.get(n) is not None for n in (949, 950, 999, 0, 1, 500, 501)] == [
        False, True, True, True, False, True, False]


def test_a_plan_that_is_forgotten_lets_its_kernels_go(monkeypatch, shared):
    monkeypatch.setattr(known, "PLANS_REMEMBERED", 2)
    monkeypatch.setattr(known, "executables", OrderedDict())
    forget_programs()
    monkeypatch.setattr(executable, "_compiled", Loaded(recent=1))
    with config.override(compile="wait", device="cpu", cache_dir=shared):
        x = ta.array(numpy.arange(2000.0))
        first = ta.sqrt(x) + 1
        first.numpy()
        made = first.node.buffer.plan
        kernel = weakref.ref(next(iter(made.launches.values()))._kernel)
        twice = ta.jit(lambda x: ta.sqrt(x) * 2)
        expected = twice(x).numpy().copy()
        for number in range(3):
            x.reshape(2, 1000)[:, number:].sum(axis=number % 2).numpy()
        gc.collect()
        assert not made.ready and kernel() is None
        numpy.testing.assert_array_equal(twice(x).numpy(), expected)
        assert len(str(ta.explain(first))) > 100
        numpy.testing.assert_array_equal((ta.sqrt(x) + 1).numpy(), first.numpy())


# ---- the folder of compiled kernels, meanwhile -----------------------------------------------


def test_cold_processes_build_each_kernel_once(script, tmp_path, shared):
    program = script(f"{VERSION}case \"$*\" in *kernel.so*) echo x >> {tmp_path}/built;; esac\n"
                     "exec REAL \"$@\"")  # fmt: skip
    cold = tmp_path / "cold"
    children = [begin("check()", cold, CXX=str(program), TILEDARRAY_COMPILE="wait")
                for _ in range(4)]
    assert [ended(child, 60) for child in children] == [(0, "", "")] * 4
    kernels = list(cold.glob("*/*.so"))
    built = (tmp_path / "built").read_text().split()
    assert len(kernels) == len(built) >= 2


def test_no_file_may_be_as_large_as_a_kernel(folder):
    child = begin("""
        import resource
        resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
        for compile in ("wait", "background"):
            config.compile = compile
            with warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always")
                for k in range(3):
                    check(k + 0.5)
                print(sum("op by op" in str(warning.message) for warning in told))
    """, folder)
    status, out, messages = ended(child)
    assert (status, out, messages) == (0, "1\n0\n", "")


def test_no_file_can_be_opened(folder):
    child = begin("""
        import resource
        from tiledarray.execution import background, evaluate, running  # later none can be read
        from tiledarray.kernels.compile import cache
        background.FIRST_REST = 0.2
        warnings.simplefilter("ignore")
        config.compile = "wait"
        x = np.array(numpy.arange(5000.0))
        files = []
        most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (60, most[1]))
        try:
            while True:
                files.append(os.open("/dev/null", os.O_RDONLY))
        except OSError:
            y = np.sqrt(x) + 1
            total = float(y.sum())
        made = y.node.buffer.plan
        assert not made.ready
        for file in files:
            os.close(file)
        time.sleep(0.25)
        z = np.sqrt(x) + 1
        assert numpy.isclose(float(z.sum()), total)
        assert cache.folder() == config.cache_dir
        assert list(config.cache_dir.glob("*/*.so"))
    """, folder)
    assert ended(child) == (0, "", "")


def test_the_planner_cannot_be_read(folder):
    child = begin("""
        import resource, sys
        from tiledarray.execution import evaluate
        config.compile, config.first_seconds = "wait", 0
        x = np.array(numpy.arange(5000.0))
        files = []
        most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (60, most[1]))
        with warnings.catch_warnings(record=True) as told:
            try:
                while True:
                    files.append(os.open("/dev/null", os.O_RDONLY))
            except OSError:
                totals = [float((np.sqrt(x) + 1).sum()) for _ in range(2)]
        assert len(told) == 1 and "could not be loaded" in str(told[0].message)
        for file in files:
            os.close(file)
        y = np.evaluate(np.sqrt(x) + 1)
        assert numpy.isclose(float(y.sum()), totals[0]) and totals[0] == totals[1]
        assert y.node.buffer.plan.ready
    """, folder)
    assert ended(child) == (0, "", "")


def test_a_cache_that_is_deleted_again_and_again(folder, script):
    stop = threading.Event()

    def delete():
        while not stop.wait(0.003):
            shutil.rmtree(folder, ignore_errors=True)

    def kernel(number):
        return host.compile_source(f'extern "C" long k() {{ return {number}; }}', "k")

    deleting = threading.Thread(target=delete)
    deleting.start()
    made = []
    try:
        for number in range(12):
            try:
                made.append((number, kernel(number)))
            except (CompilerError, OSError) as error:  # its folder went while it compiled
                assert passing(error)
    finally:
        stop.set()
        deleting.join()
    function = ctypes.CFUNCTYPE(ctypes.c_int64)
    assert all(function(found.address)() == number for number, found in made)
    assert function(kernel(77).address)() == 77


@pytest.fixture
def disk(tmp_path):
    """A file system of half a megabyte, and a way to mount it anew with other options."""
    place = tmp_path / "disk"
    place.mkdir()

    def mount(*options):
        return subprocess.run(
            ["mount", *options, "-o", "size=500k,mode=700", "-t", "tmpfs", "none", str(place)],
            capture_output=True, check=False).returncode == 0  # fmt: skip

    if sys.platform != "linux" or os.geteuid() != 0 or not mount():
        pytest.skip("only root can mount a small disk")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.mark.parametrize("fault", ["full", "read-only"])
def test_a_compiler_whose_disk_fails_after_the_start(fault, disk):
    with config.override(cache_dir=disk / "cache"):
        assert host.compile_source(EMPTY, "k").path.is_relative_to(disk)
        if fault == "full":
            with suppress(OSError), open(disk / "large", "wb", buffering=0) as file:
                while file.write(bytes(4096)):
                    pass
        else:
            subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        with pytest.warns(TiledArrayWarning, match="TILEDARRAY_CACHE_DIR"):
            kernel = host.compile_source(EMPTY.replace("1", "2"), "k")
        assert not kernel.path.is_relative_to(disk)
        assert ctypes.CFUNCTYPE(ctypes.c_int64)(kernel.address)() == 2


# ---- NVRTC, which is a library of the process ------------------------------------------------

NVRTC = """
    from tiledarray.kernels.compile import cuda

    def sources(k):
        # The front end is at it for long: that is when it handles signals itself.
        lines = "".join(f"template <int N> int f{j}() {{ return {j + k}; }}" for j in range(600))
        return [(lines + f'extern "C" __global__ void k{n}(int* x) {{ *x = {n}; }}', f"k{n}")
                for n in range(3)]

    interrupted = 0
    for k in range(4):
        timer = threading.Timer(0.02 * (k + 1), os.kill, (os.getpid(), signal.SIGINT))
        try:
            timer.start()  # on a busy machine it may have rung before this returns
            cuda.compile_many(sources(k), "sm_90")
            timer.join()
            time.sleep(0.01)
        except KeyboardInterrupt:
            interrupted += 1
        timer.join()
    print(interrupted, flush=True)
"""


@pytest.mark.skipif(cuda.available() is not None, reason="no NVRTC")
def test_ctrl_c_while_nvrtc_compiles_and_an_exit_right_after_it(folder):
    assert ended(begin(NVRTC, folder)) == (0, "4\n", "")


@pytest.mark.skipif(cuda.available() is not None, reason="no NVRTC")
def test_sigterm_while_nvrtc_compiles(folder):
    child = begin(NVRTC.replace("SIGINT", "SIGTERM"), folder)
    assert ended(child)[0] == -signal.SIGTERM


TAKES_OVER = """
    #include <signal.h>
    extern "C" void (*take_over())(int) {
      struct sigaction mine = {};
      mine.sa_handler = SIG_IGN;
      sigaction(SIGUSR2, &mine, nullptr);
      return signal(SIGUSR1, SIG_IGN);
    }
"""


@pytest.mark.compiler
@pytest.mark.skipif(sys.platform != "linux", reason="the loader's tables are Linux's")
@pytest.mark.parametrize("binding", ["lazy", "now"])
def test_a_library_that_would_handle_signals(binding, tmp_path):
    source, library = tmp_path / "k.cpp", tmp_path / f"lib{binding}_{os.getpid()}.so"
    source.write_text(textwrap.dedent(TAKES_OVER))
    subprocess.run([host.compiler().command[0], "-shared", "-fPIC", f"-Wl,-z,{binding},-z,relro",
                    source, "-o", library], check=True)
    loaded = ctypes.CDLL(str(library))
    assert leave_to_us(library.name) == (binding == "lazy")  # the other table is not to be written
    before = [signal.signal(number, signal.SIG_DFL) for number in (signal.SIGUSR1, signal.SIGUSR2)]
    try:
        loaded.take_over()
        # What Python knows does not change: it is asked what a child inherits.
        ignored = subprocess.run(["grep", "SigIgn", "/proc/self/status"], check=True,
                                 capture_output=True, text=True, restore_signals=False).stdout
        mask = int(ignored.split()[1], 16)
        both = 1 << (signal.SIGUSR1 - 1) | 1 << (signal.SIGUSR2 - 1)
        assert mask & both == (0 if binding == "lazy" else both)
    finally:
        for number, handler in zip((signal.SIGUSR1, signal.SIGUSR2), before, strict=True):
            signal.signal(number, handler)


@pytest.mark.skipif(cuda.available() is not None, reason="no NVRTC")
@pytest.mark.skipif(sys.platform != "linux", reason="the loader's tables are Linux's")
def test_nvrtc_installs_no_signal_handlers():
    assert cuda._installs_no_handlers()


@pytest.mark.skipif(cuda.available() is not None, reason="no NVRTC")
def test_nvrtc_has_a_time_limit(folder):
    source = 'extern "C" __global__ void k(int* x) { *x = 1; }'
    with (config.override(compile_seconds=0.001),
          pytest.raises(CompilerError, match=r"0\.001 seconds") as caught):
        cuda.compile_many([(source, "k")], "sm_90")
    assert caught.value.passing
    wait_until(lambda: not cuda._under_way._count)
    with config.override(compile_seconds=0):
        assert cuda.compile_many([(source, "k")], "sm_90")[0].cubin
