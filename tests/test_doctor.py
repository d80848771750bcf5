"""`python -m tiledarray --doctor` tells what was found, and why the rest was not."""

import importlib
import os
import subprocess
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace

import pytest

import tiledarray
from tiledarray.command import doctor, script
from tiledarray.devices.threads import available_cpus
from tiledarray.kernels.compile import cuda, host

ROOT = Path(tiledarray.__file__).resolve().parent.parent
NAMES = ["tiledarray", "Python", "NumPy", "C core", "C compiler", "Python headers", "cache folder",
         "C++ compiler", "threads", "GPU", "NVRTC"]


@pytest.fixture
def told(tmp_path):
    """Run the command in a process of its own; return what it says of each thing."""
    def run(**variables):
        path = os.pathsep.join([str(ROOT), *filter(None, sys.path)])
        environment = {**os.environ, "PYTHONPATH": path,
                       "TILEDARRAY_CACHE_DIR": str(tmp_path / "cache"), **variables}
        done = subprocess.run(
            [sys.executable, "-m", "tiledarray", "--doctor"], cwd=tmp_path, env=environment,
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert done.returncode == 0 and not done.stderr, done.stderr
        return answers(done.stdout)
    return run


def answers(text):
    width = max(map(len, NAMES)) + 1
    lines = {line[:width].rstrip(): line[width:] for line in text.splitlines()}
    assert list(lines) == NAMES and len(text.splitlines()) == len(NAMES)
    return lines


def test_every_thing_has_its_line(told, tmp_path):
    lines = told()
    core = importlib.import_module("tiledarray.core")
    assert lines["C core"].startswith("in use, " if core.kind == "c" else "not in use, ")
    assert lines["tiledarray"] == f"{tiledarray.__version__}, {ROOT / 'tiledarray'}"
    assert lines["cache folder"].startswith(f"{tmp_path / 'cache'}, writable, 0 files, 0.0 of")
    assert lines["threads"].startswith(str(available_cpus()))
    assert ("none, " in lines["C++ compiler"]) == (host.available() is not None)
    assert ("none: " in lines["NVRTC"]) == (cuda.available() is not None)


@pytest.mark.compiler
def test_what_was_compiled_is_counted(told):
    assert told()["C++ compiler"].endswith("works")
    assert "writable, 2 files" in told()["cache folder"]  # the compiler's version, the threads


def test_without_compilers(told, tmp_path):
    lines = told(PATH=str(tmp_path), CC="/nonexistent", CXX="/nonexistent")
    assert lines["C++ compiler"].startswith("none, everything runs op by op: CXX=/nonexistent is")
    assert "Remedy" not in lines["C++ compiler"] and "apt install g++" in lines["C++ compiler"]
    assert lines["C compiler"].startswith("none (/nonexistent is not on the PATH)")


@pytest.mark.skipif(os.name == "nt", reason="wants a program that fails")
def test_compiler_that_does_not_work(told):
    line = told(CXX="false")["C++ compiler"]
    assert "does not work" in line and "could not compile threads" in line


def test_twin_that_was_asked_for(told):
    line = told(TILEDARRAY_CORE="python")["C core"]
    assert line.startswith("not in use, ") and "TILEDARRAY_CORE" in line and "remedy" not in line


def test_folder_that_cannot_be_written(told, tmp_path):
    (tmp_path / "file").write_text("")
    line = told(TILEDARRAY_CACHE_DIR=str(tmp_path / "file" / "cache"))["cache folder"]
    assert "cannot be kept in" in line and "Not a directory" in line


def test_no_driver_and_no_nvrtc(monkeypatch):
    monkeypatch.setattr(doctor, "cuda_problem", lambda: ValueError("no driver"))
    monkeypatch.setattr(cuda, "available", lambda: "no package")
    monkeypatch.setattr(doctor, "Device", lambda spec: pytest.fail("a GPU was looked for"))
    lines = answers(doctor.report())
    assert lines["GPU"] == "none: no driver" and lines["NVRTC"] == "none: no package"


def test_gpus_are_named(monkeypatch):
    properties = SimpleNamespace(name="H200", arch="sm_90a", memory_bytes=140 << 30)
    monkeypatch.setattr(doctor, "cuda_problem", lambda: None)
    monkeypatch.setattr(doctor, "cuda_count", lambda: 2)
    monkeypatch.setattr(doctor, "Device", lambda spec: SimpleNamespace(properties=properties))
    assert answers(doctor.report())["GPU"] == ", ".join(["H200 (sm_90a, 140 GiB)"] * 2)


def test_nothing_is_raised_and_every_answer_is_one_short_line(monkeypatch, capsys):
    def broken():
        warnings.warn("beware", stacklevel=1)
        raise RuntimeError("Pfad\nfür\udcff" + "x" * 9999)

    monkeypatch.setattr(doctor, "QUESTIONS", [(name, broken) for name in NAMES])
    assert script.main(["--doctor", "no-such-script.py"]) == 0
    for line in answers(capsys.readouterr().out).values():
        assert line.startswith(r"cannot be told: Pfad; f\xfcr\udcffxxx") and len(line) < 500


def test_command_still_wants_a_script(capsys):
    with pytest.raises(SystemExit):
        script.main([])
    assert "name a script" in capsys.readouterr().err
