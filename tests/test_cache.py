"""The disk cache: sharing, damage, size, unusable folders."""

import os
import stat
import subprocess
import sys
import threading
import time
import warnings

import pytest

from tiledarray import config
from tiledarray.errors import TiledArrayWarning
from tiledarray.kernels.compile import cache


@pytest.fixture(autouse=True)
def folder(tmp_path):
    with config.override(cache_dir=tmp_path / "cache"):
        yield tmp_path / "cache"


def test_keys_depend_on_every_part_and_on_where_they_end():
    assert cache.key("a", b"b") == cache.key(b"a", "b")
    parts = [("ab",), ("a", "b"), ("", "ab"), ("b", "a"), ("ab", "")]
    assert len({cache.key(*each) for each in parts}) == len(parts)


def test_get_put_and_build_once(folder):
    name = cache.key("x")
    assert cache.get(name, ".bin") is None
    entry = cache.put(name, ".bin", b"hello")
    assert entry.path.read_bytes() == entry.data == b"hello" and entry.path.suffix == ".bin"
    assert cache.get(name, ".bin") == entry
    assert cache.get(name, ".txt") is None
    assert cache.get_or_build(name, ".bin", lambda: pytest.fail("built again")) == entry
    cache.clear()
    assert cache.get(name, ".bin") is None


def test_folder_is_private(folder):
    path = cache.put(cache.key("x"), ".bin", b"1").path
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    for place in (folder, path.parent):
        assert stat.S_IMODE(place.stat().st_mode) == 0o700


@pytest.mark.parametrize("damage", [b"", b"hell", b"hellO", b"hello!"])
def test_damaged_entries_are_built_again(damage):
    name = cache.key("x")
    cache.put(name, ".bin", b"hello").path.write_bytes(damage)
    assert cache.get(name, ".bin") is None
    again = cache.get_or_build(name, ".bin", lambda: b"hello")
    assert again.path.read_bytes() == b"hello"
    assert cache.get(name, ".bin") == again


def test_a_failing_build_leaves_nothing_and_frees_the_lock(folder):
    name = cache.key("x")

    def fail():
        with cache.workplace() as place:
            place.write("half", b"half")
            raise KeyError("no")

    with pytest.raises(KeyError):
        cache.get_or_build(name, ".bin", fail)
    assert list((folder / "work").iterdir()) == [] and not (folder / name[:2]).exists()
    assert cache.get_or_build(name, ".bin", lambda: b"1").path.read_bytes() == b"1"


def test_least_recently_used_entries_go_first():
    names = [cache.key(str(i)) for i in range(6)]
    with config.override(cache_bytes=5000):
        for i, name in enumerate(names[:5]):
            path = cache.put(name, ".bin", bytes(1000)).path
            os.utime(path, ns=(i, i))
        assert cache.get(names[0], ".bin") is not None  # used: no longer the oldest
        cache.put(names[5], ".bin", bytes(1000))
        left = [cache.get(name, ".bin") is not None for name in names]
    assert left == [True, False, False, True, True, True]


def test_the_newest_entry_survives_any_limit():
    with config.override(cache_bytes=0):
        assert cache.put(cache.key("x"), ".bin", bytes(1000)).path.exists()


RACE = """
import sys, time
from pathlib import Path
from tiledarray.kernels.compile import cache
log = Path(sys.argv[1])
def build():
    with log.open("a") as file:
        file.write("built ")
    time.sleep(0.3)
    return b"result"
print(cache.get_or_build(cache.key("race"), ".bin", build).path.read_bytes())
"""


def test_two_processes_build_once(tmp_path, folder):
    log = tmp_path / "log"
    environment = {**os.environ, "TILEDARRAY_CACHE_DIR": str(folder)}
    children = [
        subprocess.Popen([sys.executable, "-c", RACE, str(log)], env=environment,
                         stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]  # fmt: skip
    assert [child.communicate()[0] for child in children] == ["b'result'\n"] * 2
    assert log.read_text() == "built "


def test_two_threads_build_once():
    built = []

    def build():
        built.append(1)
        time.sleep(0.05)
        return b"result"

    work = [
        threading.Thread(target=cache.get_or_build, args=(cache.key("t"), ".bin", build))
        for _ in range(4)
    ]
    for thread in work:
        thread.start()
    for thread in work:
        thread.join()
    assert built == [1]


def test_unusable_folder_warns_once_and_works(tmp_path):
    (tmp_path / "file").write_text("")
    unusable = tmp_path / "file" / "cache"
    with config.override(cache_dir=unusable):
        with pytest.warns(TiledArrayWarning, match="TILEDARRAY_CACHE_DIR") as caught:
            entry = cache.put(cache.key("x"), ".bin", b"1")
        assert str(unusable) in str(caught[0].message)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert cache.get(cache.key("x"), ".bin") == entry
            assert cache.folder() != unusable


def test_a_folder_of_another_user_is_not_trusted(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    theirs = tmp_path / "theirs"
    with (
        config.override(cache_dir=theirs),
        pytest.warns(TiledArrayWarning, match="another user"),
    ):
        assert cache.folder() != theirs


def test_the_folder_may_vanish_meanwhile(folder):
    cache.put(cache.key("x"), ".bin", b"1")
    subprocess.run(["rm", "-r", str(folder)], check=True)
    assert cache.get(cache.key("x"), ".bin") is None
    entry = cache.get_or_build(cache.key("x"), ".bin", lambda: b"2")
    assert entry.path.read_bytes() == b"2"
