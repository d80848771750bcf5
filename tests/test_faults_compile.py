"""Faults of the compiler, injected: it is missing, hangs, is killed, lies, or is interrupted."""

import ctypes
import gc
import os
import shutil
import signal
import stat
import subprocess
import sys
import textwrap
import threading
import time
import weakref
from collections import OrderedDict
from contextlib import suppress
from pathlib import Path

import numpy
import pytest

import tiledarray as ta
from tiledarray import config
from tiledarray.devices import threads
from tiledarray.errors import CompilerError, TiledArrayWarning
from tiledarray.execution import background, evaluate, executable
from tiledarray.execution.loaded import Loaded
from tiledarray.graph.program import trace
from tiledarray.kernels.compile import cache, cuda, host
from tiledarray.kernels.compile.elf import incomplete

pytestmark = pytest.mark.skipif(host.available() is not None, reason="no C++ compiler")
ROOT = Path(__file__).parents[1]
EMPTY = 'extern "C" long k() { return 1; }'


@pytest.fixture(autouse=True)
def folder(tmp_path):
    with config.override(cache_dir=tmp_path / "cache"):
        yield tmp_path / "cache"


@pytest.fixture
def script(tmp_path):
    """Write a shell script that stands for the compiler; ``REAL`` in it is the real one."""
    real = host.compiler().command[0]
    place = tmp_path / "bin"
    place.mkdir()

    def write(text, name="fake-c++"):
        path = place / name
        path.write_text("#!/bin/sh\n" + textwrap.dedent(text).replace("REAL", real))
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return path

    return write


@pytest.fixture
def fake(script, monkeypatch):
    """Let a script be the compiler of this process."""
    def use(text):
        monkeypatch.setenv("CXX", str(script(text)))
        host._command.cache_clear()
        host.compiler.cache_clear()

    yield use
    host._command.cache_clear()
    host.compiler.cache_clear()


def begin(code, folder, **environment):
    """Start a Python program with a cache of its own."""
    names = {"PYTHONPATH": str(ROOT), "TILEDARRAY_CACHE_DIR": str(folder),
             "TILEDARRAY_DEVICE": "cpu", **environment}
    return subprocess.Popen(
        [sys.executable, "-c", PRELUDE + textwrap.dedent(code)], cwd=folder.parent, text=True,
        env={**os.environ, **names}, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def ended(child, seconds=20):
    """Wait for a program; return its exit status, output and messages."""
    try:
        out, messages = child.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        child.kill()
        child.communicate()
        raise
    return child.returncode, out, messages


def wait_until(true, seconds=15):
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


PRELUDE = """
import os, signal, sys, threading, time, warnings
warnings.filterwarnings("ignore", ".*multi-threaded", DeprecationWarning)  # Python's, of forks
import numpy
import tiledarray as np
from tiledarray import config

def check(k=1.0):
    x = np.array(numpy.arange(5000.0))
    found = float((np.sqrt(x) * k + 1).sum())
    assert abs(found - (numpy.sqrt(numpy.arange(5000.0)) * k + 1).sum()) < 1e-6 * abs(found), found

"""


# ---- what is compiled ------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", "CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH"])
def test_headers_of_the_user_are_not_compiled_into_kernels(name, tmp_path, monkeypatch):
    for header in ("tile.h", "types.h", "math.h", "cstdint"):
        (tmp_path / header).write_text("#error foreign")
    if name:
        monkeypatch.setenv(name, f"{tmp_path}:")
    else:
        monkeypatch.chdir(tmp_path)
    host.compile_source(f'using idx = long long;\n#include "tile.h"\n{EMPTY}', "k")


def test_a_compiler_of_the_working_directory_is_named_in_full(script, monkeypatch, tmp_path):
    script("exec REAL \"$@\"", "mine")
    monkeypatch.chdir(tmp_path / "bin")
    monkeypatch.setenv("CXX", "./mine -DANY=1")
    host._command.cache_clear()
    try:
        assert host._command() == (str(tmp_path / "bin" / "mine"), "-DANY=1")
    finally:
        host._command.cache_clear()


@pytest.mark.parametrize("planned, compiled", [("auto", True), (True, False), (False, True)])
def test_contraction_is_settled_when_the_plan_is_made(planned, compiled):
    if "fma" not in host._processor():
        pytest.skip("this processor rounds products")
    with config.override(contract=planned, device="cpu", compile="wait"):
        x, y, z = (ta.array([value] * 100) for value in (1 + 2.0**-30, 1 - 2.0**-30, -1.0))
        node = (x * y + z).node
        made = evaluate.executable_for(trace([node]), node.device)
        with config.override(contract=compiled):
            made.compile()  # as the background does, later
        value = float((x * y + z).numpy()[0])
    assert value == (-(2.0**-60) if planned is True else 0.0)


# ---- a compiler that leaves half a file ------------------------------------------------------


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    with config.override(cache_dir=tmp_path_factory.mktemp("cache")):
        return host.compile_source(EMPTY, "k").path.read_bytes()


def test_what_is_cut_off_anywhere_is_not_whole(whole):
    assert incomplete(whole) is None
    for size in range(0, len(whole), 97):
        assert incomplete(whole[:size]), size
        assert incomplete(whole[:size] + bytes(len(whole) - size)) or size > len(whole) - 64, size
    assert incomplete(whole[:-1])
    assert "another machine" in incomplete(whole[:18] + b"\x02\x00" + whole[20:])
    assert incomplete(os.urandom(len(whole)))


LIES = {
    "empty": ": > \"$out\"",
    "garbage": "echo garbage > \"$out\"",
    "nothing": "true",
    "half": "REAL \"$@\" && size=$(stat -c %s \"$out\") && truncate -s $((size / 2)) \"$out\"",
    "zeros": "REAL \"$@\" && size=$(stat -c %s \"$out\") && truncate -s $((size / 2)) \"$out\""
             " && truncate -s $size \"$out\"",
    "another machine": "printf '\\177ELF\\001\\001' > $out; head -c 9000 /dev/zero >> $out",
}


@pytest.mark.parametrize("lie", LIES)
def test_a_compiler_that_lies_of_its_success(fake, folder, lie):
    fake(f"""
        case "$*" in *--version*) echo fake 1; exit 0;; esac
        for word; do test "$last" = -o && out=$word; last=$word; done
        {LIES[lie]}
        exit 0
    """)
    with pytest.raises(CompilerError, match="left half of it") as caught:
        host.compile_source(EMPTY, "k")
    assert caught.value.passing
    assert not list(folder.glob("*/*.so")) and not list((folder / "work").iterdir())


# ---- a compiler that hangs -------------------------------------------------------------------

VERSION = 'case "$*" in *--version*) echo fake 1; exit 0;; esac\n'


@pytest.fixture
def hangs(script, tmp_path):
    """A compiler that hangs with a child of its own, and notes its process."""
    return script(f"{VERSION}echo $$ >> {tmp_path}/begun\nsleep 1000 & wait")


def begun(tmp_path):
    """Processes of the compilers that were started."""
    found = tmp_path / "begun"
    return [int(line) for line in found.read_text().split()] if found.exists() else []


def gone(process):
    """Whether nothing of a process group is left (but what nobody has waited for)."""
    try:
        os.killpg(process, 0)
    except ProcessLookupError:
        return True
    states = subprocess.run(["ps", "-o", "stat=", "-g", str(process)], capture_output=True,
                            text=True, check=False).stdout.split()  # fmt: skip
    return all(state.startswith("Z") for state in states)


TOLD_ONCE = """
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for k in range(5):
            check()
            check(k + 0.5)
            time.sleep({pause})
    assert len(told) == 1, list(map(str, told))
    print(told[0].message)
"""


@pytest.mark.parametrize("compile", ["wait", "background"])
def test_a_compiler_that_hangs_is_given_up(compile, hangs, tmp_path, folder):
    child = begin(TOLD_ONCE.format(pause=0.15), folder, CXX=str(hangs),
                  TILEDARRAY_COMPILE=compile, TILEDARRAY_COMPILE_SECONDS="0.4")  # fmt: skip
    status, out, messages = ended(child)
    assert (status, messages) == (0, "")
    assert "did not end within 0.4 seconds" in out and "report this" not in out
    assert len(begun(tmp_path)) == 1 and gone(begun(tmp_path)[0])
    assert not list((folder / "work").iterdir())


@pytest.mark.parametrize("compile", ["wait", "background"])
def test_a_compiler_that_hangs_over_its_version(compile, script, folder):
    program = script("sleep 1000")
    child = begin(TOLD_ONCE.format(pause=0.15), folder, CXX=str(program),
                  TILEDARRAY_COMPILE=compile, TILEDARRAY_COMPILE_SECONDS="0.4")  # fmt: skip
    status, out, messages = ended(child)
    assert (status, messages) == (0, "")
    assert "did not end within" in out


def test_a_short_limit_is_no_limit_for_what_ends(fake):
    fake(f"{VERSION}sleep 0.1; exec REAL \"$@\"")
    with config.override(compile_seconds=30):
        assert host.compile_source(EMPTY, "k").address


INTERRUPTED = """
    x, z = np.array(numpy.arange(5000.0)), np.array(numpy.arange(400.0).reshape(20, 20))
    arrays = [np.sqrt(x) + 1, (z * 3).sum(axis=0)][:{kernels}]
    try:
        np.evaluate(*arrays)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    config.compile_seconds = 0.4
    warnings.simplefilter("ignore")
    assert numpy.allclose(arrays[0].numpy(), numpy.sqrt(numpy.arange(5000.0)) + 1)
"""


@pytest.mark.parametrize("kernels", [1, 2])
def test_ctrl_c_reaches_a_wait_for_the_compiler(kernels, hangs, tmp_path, folder):
    child = begin(INTERRUPTED.format(kernels=kernels), folder, CXX=str(hangs),
                  TILEDARRAY_COMPILE="wait")  # fmt: skip
    wait_until(lambda: len(begun(tmp_path)) >= kernels)
    interrupted = time.monotonic()
    child.send_signal(signal.SIGINT)
    assert child.stdout.readline() == "interrupted\n"
    assert time.monotonic() - interrupted < 1
    first = begun(tmp_path)[:kernels]
    wait_until(lambda: all(map(gone, first)))
    status, _, messages = ended(child)
    assert (status, messages) == (0, "")
    assert len(begun(tmp_path)) > kernels  # the later look tried again


EXITS = """
    x = np.array(numpy.arange(500_000.0))
    for _ in range(3):
        y = np.sqrt(x) + 1
        float((y[::-1] * y.sum() * (x * 2).max()).min())
    while not os.path.exists("begun"):
        time.sleep(0.01)
    {end}
"""


@pytest.mark.parametrize("end, status", [
    ("sys.exit(3)", 3), ("os.kill(os.getpid(), signal.SIGINT)", -signal.SIGINT),
    ("import atexit; atexit.register(check)", 0),
])
def test_the_interpreter_exits_while_kernels_compile(end, status, hangs, tmp_path, folder):
    child = begin(EXITS.format(end=end), folder, CXX=str(hangs))
    wait_until(lambda: begun(tmp_path) or child.poll() is not None)
    started = time.monotonic()
    found, _, messages = ended(child)
    assert time.monotonic() - started < 1.5
    assert found == status and (messages == "" or status < 0), messages
    wait_until(lambda: all(map(gone, begun(tmp_path))))
    assert not list((folder / "work").iterdir())


def test_sigterm_while_a_kernel_compiles(script, tmp_path, folder):
    slow = script(f"{VERSION}echo $$ >> {tmp_path}/begun; sleep 0.3; exec REAL \"$@\"")
    child = begin("check()", folder, CXX=str(slow), TILEDARRAY_COMPILE="wait")
    wait_until(lambda: begun(tmp_path))
    child.terminate()
    assert ended(child)[0] == -signal.SIGTERM
    child = begin("check()", folder, CXX=str(slow), TILEDARRAY_COMPILE="wait")
    assert ended(child)[::2] == (0, "")


def test_other_threads_evaluate_while_one_waits_for_the_compiler(hangs, tmp_path, folder):
    child = begin("""
        def work():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                check()
            print("at last", flush=True)

        thread = threading.Thread(target=work)
        thread.start()
        while not os.path.exists("begun"):
            time.sleep(0.01)
        with config.override(compile="never"):
            started = time.monotonic()
            check(2.0)
            if os.fork() == 0:
                check(3.0)
                os._exit(0)
            assert os.waitstatus_to_exitcode(os.wait()[1]) == 0
            print(time.monotonic() - started < 1, flush=True)
        thread.join()
    """, folder, CXX=str(hangs), TILEDARRAY_COMPILE="wait", TILEDARRAY_COMPILE_SECONDS="2")
    status, out, messages = ended(child)
    assert (status, messages) == (0, "")
    assert out.split("\n")[:2] == ["True", "at last"]


# ---- a compiler that fails -------------------------------------------------------------------


def test_a_passing_failure_stands_longer_each_time(monkeypatch):
    now = 1000.0
    monkeypatch.setattr(background, "monotonic", lambda: now)
    trouble, stood = background.Trouble(), []
    for seconds in (0.1, 0.1, 0.1, 60.0, 0.1, 0.1):
        error = OSError("no room")
        trouble.note(error, seconds)
        first = now
        while trouble.standing() is error:
            now += 1.0
        stood.append(now - first)
    assert stood == [2.0, 4.0, 8.0, 600.0, 32.0, 64.0]
    assert trouble.error is error
    trouble.clear()
    trouble.note(error, 0.1)
    now += 2.0
    assert trouble.standing() is None
    trouble.note(CompilerError("refused"), 0.1)
    now += 1e9
    assert trouble.standing() is trouble.error
    assert [background.passing(error) for error in (
        OSError(), MemoryError(), CompilerError("", passing=True), CompilerError(""), KeyError())
    ] == [True, True, True, False, False]


AGAIN = """
    from tiledarray.execution import background
    background.FIRST_REST = 0.2
    config.compile = "{compile}"
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        end = time.monotonic() + {seconds}
        while time.monotonic() < end:
            check()
            time.sleep(0.02)
    assert len(told) == 1, list(map(str, told))
    print(told[0].message)
"""
REFUSES = 'echo "k.cpp:3:7: error: no" >&2; exit 1'
PASSING = {
    "killed": "kill -9 $$",
    "its child killed": 'echo "c++: fatal error: Killed signal terminated program cc1plus" >&2; '
                        "exit 1",
    "no room": 'echo "k.cpp:9:1: fatal error: error writing to /x: No space left" >&2; exit 4',
    "silent": "exit 1",
    "says that it worked": "exit 0",
}


@pytest.mark.parametrize("fault, compile", list(zip(PASSING, ["wait", "background"] * 3)))  # noqa: B905
def test_what_may_pass_is_tried_again_after_a_rest(fault, compile, script, tmp_path, folder):
    program = script(f"{VERSION}echo $$ >> {tmp_path}/begun\n{PASSING[fault]}")
    child = begin(AGAIN.format(compile=compile, seconds=0.75), folder, CXX=str(program))
    status, out, messages = ended(child)
    assert (status, messages) == (0, "")
    assert "report this" not in out
    assert 2 <= len(begun(tmp_path)) <= 3  # at once, after 0.2 seconds, and after 0.4 more


def test_what_is_refused_stays_refused(script, tmp_path, folder):
    program = script(f"{VERSION}echo $$ >> {tmp_path}/begun\n{REFUSES}")
    child = begin(AGAIN.format(compile="wait", seconds=0.5), folder, CXX=str(program))
    status, out, messages = ended(child)
    assert (status, messages) == (0, "")
    assert "report this with the source kept in" in out
    assert len(begun(tmp_path)) == 1


def test_a_plan_gets_its_kernels_once_the_compiler_works(script, tmp_path, folder):
    program = script(f"{VERSION}test -e {tmp_path}/mended || kill -9 $$; exec REAL \"$@\"")
    child = begin("""
        from tiledarray.execution import background
        background.FIRST_REST = 0.2
        warnings.simplefilter("ignore")
        x = np.array(numpy.arange(5000.0))

        def plan():
            y = np.sqrt(x) * 3
            y.numpy()
            return y.node.buffer.plan

        assert not plan().ready
        open("mended", "w").close()
        time.sleep(0.25)
        assert plan().ready and plan().failure is None
    """, folder, CXX=str(program), TILEDARRAY_COMPILE="wait")
    assert ended(child) == (0, "", "")


def test_a_compiler_killed_when_asked_for_its_version(fake, tmp_path):
    fake(f"test -e {tmp_path}/asked || {{ : > {tmp_path}/asked; kill -9 $$; }}; echo fake clang 7")
    with pytest.raises(CompilerError, match="killed") as caught:
        host.compiler()
    assert caught.value.passing
    assert host.compiler().version == "fake clang 7"


def test_a_compiler_that_cannot_be_started(script, monkeypatch, fake):
    fake(f"{VERSION}exit 0")
    host.compiler()
    Path(os.environ["CXX"]).unlink()
    with pytest.raises(CompilerError, match="cannot be run") as caught:
        host.compile_source(EMPTY, "k")
    assert caught.value.passing


@pytest.mark.parametrize("text", ['a "b"" c', "'"])
def test_quotes_that_do_not_match(text, folder):
    child = begin("""
        for _ in range(3):
            with warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always")
                check()
                print([str(warning.message) for warning in told])
    """, folder, CXX=text)
    status, out, messages = ended(child)
    assert (status, messages) == (0, "")
    first, *later = out.splitlines()
    assert "op by op" in first and "cannot be read as a command" in first
    assert later == ["[]", "[]"]


def test_ctrl_c_at_the_terminal_leaves_the_background_compiler_alone(script, tmp_path, folder):
    program = script(f"{VERSION}echo $$ >> {tmp_path}/begun; sleep 0.5; : > {tmp_path}/lived")
    child = subprocess.Popen(
        [sys.executable, "-c", PRELUDE + textwrap.dedent("""
            while not os.path.exists("begun"):
                check()
            try:
                time.sleep(10)
            except KeyboardInterrupt:
                time.sleep(0.8)
        """)], cwd=tmp_path, start_new_session=True, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TILEDARRAY_CACHE_DIR": str(folder),
             "TILEDARRAY_DEVICE": "cpu", "CXX": str(program)},
    )  # fmt: skip
    wait_until(lambda: begun(tmp_path))
    time.sleep(0.1)
    os.killpg(child.pid, signal.SIGINT)  # as the terminal does
    assert ended(child)[::2] == (0, "")
    assert (tmp_path / "lived").exists()


@pytest.mark.parametrize("end", ["os._exit(0)", "sys.exit(0)"])
def test_a_fork_while_kernels_compile(end, script, tmp_path, folder):
    program = script(f"{VERSION}echo $$ >> {tmp_path}/begun; sleep 0.4; : > {tmp_path}/lived")
    child = begin(f"""
        while not os.path.exists("begun"):
            check()
        if os.fork() == 0:
            check(7.0)
            {end}
        assert os.wait()[1] == 0
        assert not os.path.exists("lived")
        time.sleep(0.6)
    """, folder, CXX=str(program))
    assert ended(child) == (0, "", "")
    assert (tmp_path / "lived").exists()


AT_EXIT = """
    import atexit
    import os

    def evaluate():
        for _ in range(3):
            check()
            x = np.array(numpy.arange(400_000.0))
            assert float((np.sqrt(x) + x * 2 - np.exp(-x)).sum()) > 0  # by several threads
        print("right", flush=True)

    atexit.register(evaluate)
    {before}
"""


@pytest.mark.parametrize("compile, before", [
    ("never", ""), ("wait", ""), ("wait", "check()"), ("background", "evaluate()")])
def test_arrays_are_evaluated_in_exit_handlers(compile, before, folder, shared):
    child = begin(AT_EXIT.format(before=before), shared, TILEDARRAY_COMPILE=compile,
                  TILEDARRAY_THREADS="3")  # fmt: skip
    status, out, messages = ended(child)
    assert (status, out.split(), messages) == (0, ["right"] * (1 + (before == "evaluate()")), "")


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """A cache that the tests of this module share."""
    return tmp_path_factory.mktemp("shared") / "cache"


def test_a_handler_registered_before_the_import_compiles(folder):
    code = """
        import atexit
        atexit.register(lambda: check())
        import tiledarray
    """
    child = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code) + PRELUDE], text=True, capture_output=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TILEDARRAY_CACHE_DIR": str(folder),
             "TILEDARRAY_DEVICE": "cpu", "TILEDARRAY_COMPILE": "wait"}, check=False,
    )  # fmt: skip
    assert (child.returncode, child.stderr) == (0, "")
    assert list(folder.glob("*/*.so"))


def test_threads_that_cannot_be_started(monkeypatch):
    def refuse(self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    monkeypatch.setattr(threads, "_helpers", threads._Helpers())
    done = []
    threads.together(done.append, range(4))
    assert sorted(done) == [0, 1, 2, 3]
    assert threads.all_of(lambda k: k * k, range(5), 3) == [0, 1, 4, 9, 16]


# ---- the end of a program --------------------------------------------------------------------

SILENT = """
    import json
    from tiledarray.devices import pool

    for compile in ("background", "wait", "never"):
        config.compile = compile
        check(compile == "wait")
    if os.fork() == 0:
        check()
        sys.exit(0)
    assert os.wait()[1] == 0
    x = np.array(numpy.arange(300_000.0))
    json.kept = [(x * k).numpy() for k in range(3)], x + 1, np.jit(lambda x: x * 2)(x)
    del x
    sys.kept = [{kept}]
"""


@pytest.mark.parametrize("kept, size", [("config, pool, json", "1GB"), ("pool, json", "0")])
def test_nothing_is_said_at_exit(kept, size, shared):
    child = begin(SILENT.format(kept=kept), shared, TILEDARRAY_POOL_BYTES=size,
                  PYTHONDEVMODE="1", PYTHONWARNINGS="error")  # fmt: skip
    assert ended(child) == (0, "", "")


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
    monkeypatch.setattr(evaluate, "PLANS_REMEMBERED", 2)
    monkeypatch.setattr(evaluate, "_executables", OrderedDict())
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
        from tiledarray.execution import background
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
            except CompilerError as error:  # its folder went while it compiled
                assert error.passing
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
        timer.start()
        try:
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
