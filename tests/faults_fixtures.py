"""Fixtures of the tests of faults: compilers that are scripts, a cache that is shared."""

import stat
import textwrap

import pytest

from tests.faults import VERSION
from tiledarray.kernels.compile import host


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


@pytest.fixture
def hangs(script, tmp_path):
    """A compiler that hangs with a child of its own, and notes its process."""
    return script(f"{VERSION}echo $$ >> {tmp_path}/begun\nsleep 1000 & wait")


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """A cache that the tests of this module share."""
    return tmp_path_factory.mktemp("shared") / "cache"
