"""Faults of the compiler, injected: it is missing, hangs, is killed, lies, or is interrupted."""

import os
import signal
import stat
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from tiledarray import config
from tiledarray.errors import CompilerError
from tiledarray.kernels.compile import host
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
import numpy
import tiledarray as np
from tiledarray import config
from tiledarray.execution import evaluate

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
    ("", 0), ("sys.exit(3)", 3), ("os.kill(os.getpid(), signal.SIGINT)", -signal.SIGINT),
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
    child = begin("check(); check()", folder, CXX=str(slow), TILEDARRAY_COMPILE="wait")
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
