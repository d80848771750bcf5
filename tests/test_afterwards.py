"""What a program leaves to be compiled is there for the next one."""

import json
import os

import pytest

from tests.faults import begin, ended, wait_until
from tiledarray import config
from tiledarray.kernels.compile import afterwards, cache, host

pytest_plugins = ["tests.faults_fixtures"]
pytestmark = pytest.mark.skipif(host.available() is not None, reason="no C++ compiler")

PROGRAM = """
    from tiledarray.execution.spans import counters

    x = np.array(numpy.arange(500_000.0))
    function = {wrap}(lambda x: (np.sqrt(x) + np.cos(x)).sum())
    for _ in range(3):
        float(function(x))
    print(counters["op by op"])
"""
SOURCE = 'extern "C" long k() { return 3; }'


@pytest.fixture
def folder(tmp_path):
    with config.override(cache_dir=tmp_path / "cache"):
        yield tmp_path / "cache"


def op_by_op(folder, wrap, **settings):
    status, out, messages = ended(begin(PROGRAM.format(wrap=wrap), folder, **settings))
    assert (status, messages) == (0, "")
    return int(out)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("wrap", ["", "np.jit"])
def test_a_short_program_finds_its_kernels_when_it_runs_again(wrap, folder):
    settings = {"TILEDARRAY_FIRST_SECONDS": "0.02"} if wrap else {}
    assert op_by_op(folder, wrap, TILEDARRAY_COMPILE_AFTERWARDS="1", **settings) == 3
    wait_until(lambda: list(folder.glob("*/*.so")) and not list((folder / "work").iterdir()), 30)
    assert op_by_op(folder, wrap, **settings) == 0


def test_one_process_at_a_time_compiles_afterwards(folder):
    with cache.alone("afterwards") as first:
        assert first
        afterwards.main(json.dumps([(SOURCE, "k", False)]))
        assert not host.on_disk([(SOURCE, "k")], contract=False)
    afterwards.main(json.dumps([("no C++", "bad", False), (SOURCE, "k", False)]))
    assert host.on_disk([(SOURCE, "k")], contract=False)
    assert not host.on_disk([(SOURCE, "k")], contract=True)


def test_nothing_is_left_where_it_is_not_wanted(folder, monkeypatch):
    started = []
    monkeypatch.setattr(afterwards.os, "posix_spawn", lambda *a, **k: started.append(a))
    with config.override(compile_afterwards=False):
        afterwards.leave([(SOURCE, "k", False)])
    assert not started
    monkeypatch.setattr(afterwards.sys, "executable", "/opt/bin/renderer")  # Python is embedded
    with config.override(compile_afterwards=True):
        afterwards.leave([(SOURCE, "k", False)])
        assert not started


def test_pipes_and_locks_of_a_shell_are_not_handed_on():
    kept, shared = os.pipe()
    try:
        os.set_inheritable(shared, True)
        found = afterwards._handed_on()
        assert shared in found and not {0, 1, 2, kept} & {*found}
    finally:
        os.close(kept)
        os.close(shared)


def test_who_waits_for_a_program_does_not_wait_for_what_it_leaves(folder, script):
    slow = script("case \"$*\" in *--version*) exec REAL \"$@\";; esac\nsleep 5")
    reading, writing = os.pipe()
    os.set_inheritable(writing, True)
    child = begin(PROGRAM.format(wrap=""), folder, CXX=str(slow), pass_fds=[writing],
                  TILEDARRAY_COMPILE_AFTERWARDS="1")
    os.close(writing)
    assert ended(child, 20)[0] == 0
    os.set_blocking(reading, False)
    assert os.read(reading, 1) == b""  # nobody holds the other end
    os.close(reading)
