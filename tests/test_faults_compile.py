"""Faults of the compiler, injected: it reads, lies, hangs, is interrupted, fails."""

import os
import signal
import time
import warnings
from pathlib import Path
from unittest import mock

import numpy
import pytest

import tiledarray as ta
from tests.faults import EMPTY, VERSION, begin, begun, ended, gone, wait_until
from tiledarray import config
from tiledarray.errors import CompilerError, TiledArrayWarning
from tiledarray.execution import background, plans
from tiledarray.execution.executable import Executable
from tiledarray.graph.program import trace
from tiledarray.kernels.compile import cache, host
from tiledarray.kernels.compile.elf import incomplete
from tiledarray.kernels.compile.folder import Folder

pytestmark = pytest.mark.skipif(host.available() is not None, reason="no C++ compiler")
pytest_plugins = ["tests.faults_fixtures"]


@pytest.fixture(autouse=True)
def folder(tmp_path):
    with config.override(cache_dir=tmp_path / "cache"):
        yield tmp_path / "cache"
    background.everywhere.clear()  # other tests compile at once


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
        made = plans.executable_for(trace([node]), node.device)
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
    assert "first segment" in incomplete(whole[:64] + bytes(64) + whole[128:])
    assert "another machine" in incomplete(whole[:18] + b"\x02\x00" + whole[20:])
    assert incomplete(os.urandom(len(whole)))


LIES = {
    "empty": ": > \"$out\"",
    "garbage": "echo garbage > \"$out\"",
    "nothing": "true",
    "half": "REAL \"$@\" && size=$(stat -c %s \"$out\") && truncate -s $((size / 2)) \"$out\"",
    "zeros": "REAL \"$@\" && size=$(stat -c %s \"$out\") && truncate -s $((size / 2)) \"$out\""
             " && truncate -s $size \"$out\"",
    "a pipe": "mkfifo \"$out\"",
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
    assert time.monotonic() - interrupted < 5
    first = begun(tmp_path)[:kernels]
    wait_until(lambda: all(map(gone, first)))
    status, _, messages = ended(child)
    assert (status, messages) == (0, "")
    assert len(begun(tmp_path)) > kernels  # the later look tried again


TIMED_OUT = """
    import signal

    def on_alarm(*_):
        raise TimeoutError("time is up")

    signal.signal(signal.SIGALRM, on_alarm)
    x = np.array(numpy.arange(5000.0))
    signal.setitimer(signal.ITIMER_REAL, 0.5)
    try:
        (np.sqrt(x) + 1).numpy()
        print("lost")
    except TimeoutError as error:
        print(error)
"""


@pytest.mark.parametrize("takes", ["sleep 1000", 'sleep 1.5; exec REAL "$@"'])
def test_a_time_out_of_the_program_s_reaches_a_wait_for_the_compiler(takes, script, folder):
    """What its handler raises, of a kind that a compiler may fail with, is none of its failures."""
    program = script(f"{VERSION}{takes}")
    child = begin(TIMED_OUT, folder, CXX=str(program), TILEDARRAY_COMPILE="wait")
    assert ended(child) == (0, "time is up\n", "")


@pytest.mark.parametrize("step", ["read", "touch", "write"])
def test_what_a_handler_raises_while_the_cache_is_read_is_no_fault_of_the_disk_s(
        step, tmp_path, monkeypatch):
    """The entry and the folder stay in use."""
    class TimeOut(TimeoutError):
        pass

    def raising(*_, **__):
        exec("raise TimeOut", {"__name__": "a_program", "TimeOut": TimeOut})

    with config.override(cache_dir=tmp_path / "cache"):
        key = cache.key("some")
        cache.put(key, ".txt", b"what it holds")
        root = cache.folder()
        with monkeypatch.context() as patch:
            patch.setattr(Folder if step != "touch" else os, {
                "read": "read", "touch": "utime", "write": "write"}[step], raising)
            with pytest.raises(TimeOut):
                cache.put(cache.key("more"), ".txt", b"") if step == "write" else cache.get(
                    key, ".txt")
        assert cache.folder() == root
        assert cache.get(key, ".txt").data == b"what it holds"


# ---- a compiler that fails -------------------------------------------------------------------


def test_want_of_stack_says_nothing_of_the_plan():
    """It is the caller's that was deep."""
    with config.override(at_once=0):
        node = (ta.arange(5000.0) * 2 + 1).node
    made = plans.executable_for(trace([node]), node.device)
    failing = mock.patch.object(Executable, "_prepare", side_effect=RecursionError)
    with failing, pytest.raises(RecursionError):
        made.compile()
    made.compile()
    assert made.ready


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
    from tiledarray.execution import background, running  # which takes a while
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


@pytest.mark.sampled(3)
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


def test_plans_of_calls_alone_run_where_nothing_compiles(tmp_path):
    """Their programs ask for the host's threads, which are compiled, too."""
    fake = tmp_path / "fake"
    fake.write_text(f"#!/bin/sh\n{VERSION}exit 1\n")
    fake.chmod(0o755)
    child = begin("""
        warnings.simplefilter("ignore")
        np.config.compile, np.config.at_once = "wait", 0
        a, b = np.array(numpy.eye(6) * 2), np.ones((6, 2))
        for _ in range(4):
            assert (np.linalg.solve(a, b) == 0.5).all() and (np.sort(a, axis=0)[-1] == 2).all()
        print("done")
    """, tmp_path / "cache", CXX=str(fake))
    assert ended(child) == (0, "done\n", "")


def test_memory_that_lacks_for_a_moment_is_no_error_of_jitted_functions(folder, monkeypatch):
    """The plan runs op by op; so does that of another function, as long as there is a rest."""
    # Raised in a module of Python's: in one of ours it would be a signal handler's.
    effects = [MemoryError("none"), *[mock.DEFAULT] * 9]
    once = mock.Mock(wraps=host.compile_many, side_effect=effects)
    monkeypatch.setattr(host, "compile_many", once)
    first, second = ta.jit(lambda x: (x * 3 + 1).sum()), ta.jit(lambda x: ta.sin(x).max())
    x = numpy.arange(7000.0)
    with config.override(compile="wait", at_once=0), warnings.catch_warnings():
        warnings.simplefilter("ignore", TiledArrayWarning)
        for _ in range(3):
            assert float(first(ta.array(x))) == (x * 3 + 1).sum()
            numpy.testing.assert_allclose(float(second(ta.array(x))), numpy.sin(x).max())
