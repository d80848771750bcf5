"""Settings: types, environment, overrides."""

import importlib
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tiledarray import config
from tiledarray.devices.device import _chosen, current, device
from tiledarray.errors import UnknownSetting


def child(code, **environment):
    return subprocess.run(
        [sys.executable, "-c", f"from tiledarray import config; {code}"],
        env={**os.environ, **environment}, capture_output=True, text=True,
    )


def test_every_setting_is_an_annotated_attribute_with_documentation():
    annotated = {name for name in config.__annotations__ if name.strip("_").islower()}
    assert set(config.SETTINGS) == {name for name in annotated if not name.startswith("_")}
    for name, setting in config.SETTINGS.items():
        assert setting.doc.endswith(".")
        assert setting.checked(getattr(config, name), name) == getattr(config, name)
        assert name in config.describe()
        assert name in dir(config)


def test_defaults():
    settings = config._read_environment({})
    assert settings["device"] == "auto"
    assert settings["compile"] == "background"
    assert settings["cache_bytes"] == 2**30
    assert settings["contract"] == "auto"
    assert 0 < settings["pool_bytes"] <= config.memory_bytes() // 4
    assert isinstance(settings["cache_dir"], Path)


def test_environment_is_parsed_to_the_settings_type():
    settings = config._read_environment({
        "TILEDARRAY_THREADS": "3", "TILEDARRAY_CONTRACT": "on", "TILEDARRAY_POOL_BYTES": "2 GiB",
        "TILEDARRAY_CACHE_DIR": "/x/y", "TILEDARRAY_DEVICE": "cuda:1", "HOME": "/root",
    })
    assert settings["threads"] == 3
    assert settings["contract"] is True
    assert settings["pool_bytes"] == 2 * 2**30
    assert settings["cache_dir"] == Path("/x/y")
    assert settings["device"] == "cuda:1"


def test_variable_that_chooses_the_core_is_known():
    variable = importlib.import_module("tiledarray.core").VARIABLE
    assert "core" not in config._read_environment({variable: "c"})
    with pytest.raises(UnknownSetting, match=variable + "S"):
        config._read_environment({variable + "S": "c"})


def test_environment_in_a_real_process():
    assert child("print(config.cut)", TILEDARRAY_CUT="17").stdout == "17\n"
    bad = child("", TILEDARRAY_THREDS="2")
    assert bad.returncode != 0
    assert "TILEDARRAY_THREDS" in bad.stderr and "TILEDARRAY_THREADS" in bad.stderr


@pytest.mark.parametrize("name, value", [
    ("device", "gpu"), ("compile", "maybe"), ("threads", -1), ("threads", "many"), ("cut", 0),
    ("cut", 1.5), ("contract", 2), ("pool_bytes", "1 parsec"), ("cache_dir", ""), ("verify", None),
    ("threads", True), ("threads", 10**9), ("threads", "5000000000"),
    ("threads", config.most_threads() + 1), ("compile_seconds", -1), ("compile_seconds", "soon"),
    ("compile_seconds", float("nan")), ("compile_seconds", float("inf")),
    ("compile_seconds", 10**400), ("compile_seconds", False),
])
def test_bad_values_are_refused_and_change_nothing(name, value):
    before = getattr(config, name)
    with pytest.raises(ValueError, match=name):
        setattr(config, name, value)
    assert getattr(config, name) == before


def test_threads_have_an_upper_limit_with_its_reason():
    assert config.most_threads() >= max(1024, 4 * os.cpu_count())
    with config.override(threads=1024):
        assert config.threads == 1024
    with pytest.raises(ValueError, match=r"threads = 1000000000: must be at most \d+ \(each"):
        config.threads = 10**9


def test_seconds_may_be_fractions():
    with config.override(compile_seconds=1):
        assert config.compile_seconds == 1.0 and type(config.compile_seconds) is float
        config.compile_seconds = "0.25"
        assert config.compile_seconds == 0.25
    assert config._read_environment({})["compile_seconds"] == 60


def test_unknown_names_are_refused_with_the_valid_ones():
    with pytest.raises(UnknownSetting, match="cache_dir"):
        config.colour = 1
    with pytest.raises(AttributeError, match="threads"):
        _ = config.colour
    with pytest.raises(UnknownSetting, match="threads"), config.override(colour=1):
        pass
    with pytest.raises(UnknownSetting):
        del config.threads
    assert not hasattr(config, "colour")


def test_setting_and_override_nest():
    before = config.cut
    with config.override(cut=10, threads=1):
        assert (config.cut, config.threads) == (10, 1)
        with config.override(cut=20):
            assert (config.cut, config.threads) == (20, 1)
            config.cut = 30
            assert config.cut == 30
        assert config.cut == 10
    assert config.cut == before
    with pytest.raises(ZeroDivisionError), config.override(cut=10):
        raise ZeroDivisionError
    assert config.cut == before


def test_overlapping_overrides_of_threads_restore():
    before = config.cut
    entered, leave = threading.Event(), threading.Event()

    def other():
        with config.override(cut=11):
            entered.set()
            leave.wait()

    thread = threading.Thread(target=other)
    thread.start()
    entered.wait()
    with config.override(cut=12):
        leave.set()
        thread.join()
        assert config.cut == 12
    assert config.cut == before


def test_deterministic_leaves_nothing_to_time():
    with config.override(compile="background", tune=True, at_once=1 << 16, at_once_least=100,
                         deterministic=False):
        with config.override(deterministic=True):
            assert (config.compile, config.tune, config.at_once_least) == ("wait", False, 1 << 16)
            with config.override(compile="never", tune=True):
                assert (config.compile, config.tune) == ("never", False)
            with config.override(compile="background", at_once=1 << 17):
                assert (config.compile, config.at_once_least) == ("wait", 1 << 17)
            with config.override(deterministic=False):
                assert (config.compile, config.tune, config.at_once_least) == (
                    "background", True, 100)
            assert config.compile == "wait"
        assert (config.compile, config.tune, config.at_once_least) == ("background", True, 100)


@pytest.mark.parametrize("make", [lambda: config.override(threads=1), lambda: device("cpu")])
def test_a_block_is_used_once(make) -> None:
    """A second use, inside of the first or after it, changes nothing and says so."""
    before, where = config.threads, current()
    block = make()
    with block:
        inside = config.threads, current()
        with pytest.raises(RuntimeError, match="one of its own"), block:
            pass
        assert (config.threads, current()) == inside
    assert (config.threads, current()) == (before, where)
    with pytest.raises(RuntimeError, match="one of its own"), block:
        pass
    assert (config.threads, current()) == (before, where)

    @make()
    def again(depth):
        return again(depth - 1) if depth else (config.threads, current())

    assert again(2) == inside == again(0)
    assert (config.threads, current()) == (before, where) and _chosen.get() is None


def test_who_has_no_home_keeps_kernels_in_a_folder_of_their_own(monkeypatch):
    def homeless(name):
        raise RuntimeError("could not determine the home directory")

    monkeypatch.setattr(config.platformdirs, "user_cache_dir", homeless)
    found = config._usual_folder()
    assert found.is_absolute() and found.name.startswith("tiledarray-")


def test_a_relative_folder_where_there_is_no_working_folder_is_refused(monkeypatch):
    def nowhere():
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr(os, "getcwd", nowhere)
    with pytest.raises(ValueError, match="a path that can be told"):
        config.cache_dir = "relative"
