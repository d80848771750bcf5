"""The disk cache: sharing, damage, size, unusable folders."""

import hashlib
import os
import stat
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

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


# ---- what others may have written ------------------------------------------------------------

NOBODY = 65534
as_root = pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0,
                             reason="only root can give files to another user")
posix = pytest.mark.skipif(sys.platform == "win32", reason="modes of files")
PLANTED = b"planted"


def old_name(name, data):
    """As entries were called before they were sealed: anybody can compute it."""
    return f"{name}-{hashlib.sha256(data).hexdigest()[:32]}.bin"


def rebuilt():
    """Get the entry; say whether it had to be built, and that it is right."""
    built = []
    entry = cache.get_or_build(cache.key("x"), ".bin", lambda: built.append(1) or b"ours")
    with entry.opened() as place, open(place, "rb") as file:
        assert file.read() == entry.data == b"ours"
    return bool(built)


@posix
@pytest.mark.parametrize("name", [old_name, lambda name, data: f"{name}-{'0' * 32}.bin"])
def test_an_entry_that_others_could_have_named_is_not_loaded(folder, name):
    assert rebuilt() and not rebuilt()
    ours = cache.get(cache.key("x"), ".bin").path
    ours.unlink()
    planted = ours.with_name(name(cache.key("x"), PLANTED))
    planted.write_bytes(PLANTED)
    planted.chmod(0o600)
    assert rebuilt() and not planted.exists()


@posix
def test_an_entry_under_another_key_is_not_loaded():
    other = cache.put(cache.key("y"), ".bin", b"another kernel").path
    place = cache.put(cache.key("x"), ".bin", b"ours").path
    place.write_bytes(other.read_bytes())
    other.rename(place.with_name(place.name[:64] + other.name[64:]))
    assert cache.get(cache.key("x"), ".bin") is None
    assert rebuilt()


@posix
@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_file_that_others_may_write_is_built_again(mode):
    assert rebuilt()
    cache.get(cache.key("x"), ".bin").path.chmod(mode)
    assert rebuilt() and not rebuilt()


@as_root
def test_a_file_of_another_user_is_built_again():
    assert rebuilt()
    os.chown(cache.get(cache.key("x"), ".bin").path, NOBODY, NOBODY)
    assert rebuilt() and not rebuilt()


@posix
def test_a_link_in_place_of_an_entry_is_not_followed(tmp_path):
    assert rebuilt()
    path = cache.get(cache.key("x"), ".bin").path
    path.rename(tmp_path / "moved")
    path.symlink_to(tmp_path / "moved")
    assert rebuilt() and not path.is_symlink() and (tmp_path / "moved").exists()


def spoil_mode(path):
    path.chmod(0o777)


def spoil_link(path):
    path.rename(path.with_name("moved"))
    path.symlink_to("moved")


def spoil_owner(path):
    os.chown(path, NOBODY, NOBODY)


def spoil_kind(path):
    path.rename(path.with_name("moved"))
    path.write_text("")


@posix
@pytest.mark.parametrize("spoil", [
    spoil_mode, spoil_link, spoil_kind, pytest.param(spoil_owner, marks=as_root)])
@pytest.mark.parametrize("inside", ["shard", "locks", "work", "failed"])
def test_a_folder_that_is_not_ours_alone_is_not_used(folder, inside, spoil):
    assert rebuilt()
    shard = cache.get(cache.key("x"), ".bin").path.parent
    cache.keep_failed("x", "source")
    spoil(shard if inside == "shard" else folder / inside)
    cache._usable.clear()  # as in the next process
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        rebuilt()
        assert cache.keep_failed("x", "source").read_text() == "source"
        assert cache.get_or_build(cache.key("z"), ".bin", lambda: b"z").data == b"z"
        assert not rebuilt()
    assert len(told) == 1 and str(folder) in str(told[0].message)
    assert folder not in cache.folder().parents and cache.folder() != folder


@as_root
def test_a_folder_of_another_user_is_not_used(folder):
    assert rebuilt()
    os.chown(folder, NOBODY, NOBODY)
    cache._usable.clear()
    with pytest.warns(TiledArrayWarning, match="another user"):
        assert rebuilt()
    assert not list(folder.glob("tiledarray-*"))


@posix
@pytest.mark.parametrize("mode", [0o1777, 0o777, 0o2775, 0o755, 0o700])
def test_a_folder_that_was_there_keeps_its_mode(tmp_path, mode):
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(mode)
    with config.override(cache_dir=shared), warnings.catch_warnings():
        warnings.simplefilter("error")
        assert rebuilt() and not rebuilt()
        used = cache.folder()
    assert stat.S_IMODE(shared.stat().st_mode) == mode
    if mode & 0o022:
        assert used == shared / f"tiledarray-{os.geteuid()}"
        assert stat.S_IMODE(used.stat().st_mode) & 0o777 == 0o700
    else:
        assert used == shared


@posix
@pytest.mark.parametrize("spoil", [
    spoil_mode, spoil_link, spoil_kind, pytest.param(spoil_owner, marks=as_root)])
def test_what_others_put_in_place_of_our_folder_in_a_shared_one(tmp_path, spoil):
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    ours = shared / f"tiledarray-{os.geteuid()}"
    ours.mkdir(mode=0o700)
    spoil(ours)
    with config.override(cache_dir=shared):
        with pytest.warns(TiledArrayWarning, match="TILEDARRAY_CACHE_DIR"):
            assert rebuilt()
        assert shared not in cache.folder().parents
    assert not (shared / "moved").exists() or not list((shared / "moved").iterdir())


@as_root
def test_a_link_that_another_user_made_is_not_the_cache(tmp_path):
    (tmp_path / "ours").mkdir(mode=0o700)
    link = tmp_path / "link"
    link.symlink_to("ours")
    with config.override(cache_dir=link):
        assert cache.folder() == tmp_path / "ours"
        cache._usable.clear()
        os.chown(link, NOBODY, NOBODY, follow_symlinks=False)
        with pytest.warns(TiledArrayWarning, match="another user"):
            assert cache.folder() != tmp_path / "ours"


@posix
@pytest.mark.parametrize("spoil", [
    lambda path: path.chmod(0o644), lambda path: path.write_bytes(b"short"), spoil_link,
    Path.unlink, pytest.param(spoil_owner, marks=as_root)])
def test_without_the_secret_nothing_is_believed(folder, spoil):
    assert rebuilt()
    before = (folder / "secret").read_bytes()
    spoil(folder / "secret")
    assert rebuilt() and not rebuilt()
    assert (folder / "secret").read_bytes() != before
    assert stat.S_IMODE((folder / "secret").stat().st_mode) == 0o600


@posix
def test_open_modes_by_default_do_not_open_the_cache(folder):
    before = os.umask(0)
    try:
        assert rebuilt()
        cache.keep_failed("x", "source")
    finally:
        os.umask(before)
    for path in [folder, *folder.rglob("*")]:
        assert not stat.S_IMODE(path.lstat().st_mode) & 0o077, path


@as_root
def test_another_user_cannot_slip_in_a_kernel_between_check_and_use(tmp_path):
    """In a folder that all may write and rename in, ours is moved away while it is open."""
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    with config.override(cache_dir=shared):
        assert rebuilt()
        entry = cache.get(cache.key("x"), ".bin")
        with entry.opened() as place:
            cache.folder().rename(tmp_path / "moved")
            entry.path.parent.mkdir(parents=True)
            entry.path.write_bytes(PLANTED)
            with open(place, "rb") as file:
                assert file.read() == b"ours"


# ---- room, locks, and folders that vanish ----------------------------------------------------


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 300 KB."""
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=300k,mode=700", "none", str(place)]
    if sys.platform != "linux" or os.geteuid() != 0 or subprocess.run(
            command, capture_output=True, check=False).returncode:
        pytest.skip("only root can mount a small disk")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_disk_that_fills_up_after_the_start(small_disk):
    with config.override(cache_dir=small_disk / "cache"):
        assert rebuilt()
        assert cache.folder() == small_disk / "cache"
        with pytest.warns(TiledArrayWarning, match="No space left"):
            large = cache.put(cache.key("large"), ".bin", bytes(500_000))
        assert small_disk not in cache.folder().parents
        assert cache.get(cache.key("large"), ".bin") == large
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            rebuilt()


def test_a_compiler_without_room_is_given_another_folder(small_disk):
    with config.override(cache_dir=small_disk / "cache"):
        assert cache.folder() == small_disk / "cache"
        with pytest.warns(TiledArrayWarning, match="No space left"):
            assert not cache.has_room()  # a kernel needs less, but this is a disk that is full
        assert cache.has_room()


HOLDS = """
import fcntl, sys, time
files = [open(f"{sys.argv[1]}/{shard:02x}.lock", "ab") for shard in range(256)]
for file in files:
    fcntl.flock(file, fcntl.LOCK_EX)
print("held", flush=True)
time.sleep(60)
"""


@posix
def test_locks_of_a_hung_process_cost_a_few_seconds_in_all(folder, monkeypatch):
    assert cache.LOCK_TIMEOUT <= 5
    monkeypatch.setattr(cache, "LOCK_TIMEOUT", 0.3)
    monkeypatch.setattr(cache, "_in_hurry_until", [0.0])
    assert rebuilt()
    other = subprocess.Popen([sys.executable, "-c", HOLDS, str(folder / "locks")],
                             stdout=subprocess.PIPE, text=True)  # fmt: skip
    try:
        assert other.stdout.readline() == "held\n"
        started = time.monotonic()
        for number in range(20):
            cache.get_or_build(cache.key(str(number)), ".bin", lambda: b"built")
        assert 0.3 <= time.monotonic() - started < 1
    finally:
        other.kill()
        other.communicate()


def test_what_a_killed_process_left_is_swept_up(folder):
    assert rebuilt()
    for name in ("old", "new"):
        (folder / "work" / name).mkdir()
        (folder / "work" / name / "kernel.so").write_bytes(b"half")
    long_ago = time.time() - 2 * cache.FORGOTTEN
    left = [folder / ".123", folder / ".123-0a1b2c3d"]
    for path in (*left, folder / ".4"):
        path.write_bytes(b"")
    if hasattr(os, "mkfifo"):
        left.append(folder / "work" / "pipe")  # nobody may wait for it
        os.mkfifo(left[-1])
    for path in (*left, folder / "work" / "old"):
        os.utime(path, (long_ago, long_ago))
    cache._usable.clear()
    cache.folder()
    assert [path.name for path in (folder / "work").iterdir()] == ["new"]
    assert not any(path.exists() for path in left) and (folder / ".4").exists()
