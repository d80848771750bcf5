"""What is built and installed: with the C core where it can be compiled, else without."""

import importlib
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = ROOT / "tests" / "installed.py"
FOLDERS = ("tiledarray", "tests", "benchmarks", "docs", "examples")
FILES = ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "CHANGELOG.md", "LICENSE")
LEFT_BEHIND = shutil.ignore_patterns("*.so", "*.pyd", "__pycache__", ".*")
SDIST = "import sys; from setuptools import build_meta; build_meta.build_sdist(sys.argv[1])"
PIP = ("-m", "pip", "--disable-pip-version-check")
OURS = ("TILEDARRAY_", "CFLAGS", "LDFLAGS", "PYTHONPATH")

core = importlib.import_module("tiledarray.core")


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """What is kept of the working tree, without what was built in it."""
    tree = tmp_path_factory.mktemp("tree")
    for name in FOLDERS:
        shutil.copytree(ROOT / name, tree / name, ignore=LEFT_BEHIND)
    for name in FILES:
        shutil.copy(ROOT / name, tree)
    return tree


def cannot_compile():
    """Why no C core can be built on this machine."""
    command = os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"
    if sys.platform != "win32" and shutil.which(shlex.split(command)[0]) is None:
        return f"there is no C compiler ({command})"
    headers = Path(sysconfig.get_path("include"), "Python.h")
    return None if headers.exists() else f"there are no Python headers ({headers})"


def run(*arguments, folder, status=0, **variables):
    """Run Python in an environment that tells it nothing of this tree."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
    done = subprocess.run(
        [sys.executable, *map(str, arguments)], cwd=folder, env={**environment, **variables},
        capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


def install(what, place, **variables):
    """Install with the setuptools that are there: what the tests need is all there is."""
    run(*PIP, "install", "--no-deps", "--no-build-isolation", "--target", place, what,
        folder=place.parent, **variables)


def use(place, wanted, cache):
    """Run the small program, and the doctor, with what was installed; return what that says."""
    said = run(PROGRAM, wanted, folder=place.parent, PYTHONPATH=str(place),
               TILEDARRAY_CACHE_DIR=str(cache))
    assert str(place) in said
    return doctor(place, cache)


def doctor(place, cache):
    """Return what the doctor says of the core."""
    told = run("-m", "tiledarray", "--doctor", folder=cache.parent, PYTHONPATH=str(place),
               TILEDARRAY_CACHE_DIR=str(cache))
    return next(line for line in told.splitlines() if line.startswith("C core"))


@pytest.mark.slow
def test_wheel_of_the_tree_has_the_c_core_and_all_data(tree, tmp_path):
    if cannot_compile() is not None:
        pytest.skip(cannot_compile())
    run(*PIP, "wheel", ".", "--no-deps", "--no-build-isolation", "-w", tmp_path, folder=tree,
        CFLAGS="-O0")  # what is tested runs as it was installed: this need not be quick
    (wheel,) = tmp_path.glob("*.whl")
    built = f"tiledarray/core/_core{sysconfig.get_config_var('EXT_SUFFIX')}"
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    kept = {path.relative_to(tree).as_posix() for path in (tree / "tiledarray").rglob("*")
            if path.is_file() and not (path.parent.name == "core" and path.suffix in (".c", ".h"))}
    assert names == kept | {built}
    install(wheel, tmp_path / "place")
    assert "in use, " + str(tmp_path / "place") in use(tmp_path / "place", "c", tmp_path / "cache")


@pytest.mark.slow
def test_sdist_without_a_compiler_installs_the_twin(tree, tmp_path):
    run("-c", SDIST, tmp_path, folder=tree)
    (sdist,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    kept = {path.relative_to(tree).as_posix() for path in tree.rglob("*") if path.is_file()}
    assert {name for name in kept if ".egg-info/" not in name} <= names
    install(sdist, tmp_path / "place", CC="/nonexistent")
    told = use(tmp_path / "place", "python", tmp_path / "cache")
    assert "not in use" in told and "pip install --force-reinstall" in told
    assert f"pip install -e {tree}" in doctor(tree, tmp_path / "cache")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="setuptools finds MSVC without CC")
def test_core_that_was_asked_for_is_not_left_out_in_silence(tree, tmp_path):
    where = ("setup.py", "build_ext", "--build-lib", tmp_path, "--build-temp", tmp_path)
    told = run(*where, folder=tree, status=1, CC="/nonexistent", TILEDARRAY_CORE="c")
    assert "/nonexistent" in told
    told = run(*where, folder=tree, CC="/nonexistent", TILEDARRAY_CORE="python")
    assert "/nonexistent" not in told
    told = run(*where, folder=tree, CC="/nonexistent")
    assert "building extension \"tiledarray.core._core\" failed" in told


def test_tests_run_on_the_core_of_this_source():
    """What the README's test command installs is what is tested."""
    if os.environ.get("TILEDARRAY_CORE") == "python" or cannot_compile() is not None:
        pytest.skip("the tests run on the twin, which nobody builds")
    again = "install it (again): pip install -e '.[test]'"
    assert core.kind == "c", f"{core.problem}: {again}"
    built = Path(importlib.import_module("tiledarray.core._core").__file__)
    for source in built.parent.glob("*.[ch]"):
        age = source.stat().st_mtime - built.stat().st_mtime
        assert age <= 0, f"{source} was changed after it was compiled: {again}"
