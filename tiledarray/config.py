"""Settings.  The module is the singleton: ``ta.config.threads = 4``.

Each setting is read once, at import, from the environment variable ``TILEDARRAY_<NAME>``, and may
be set later; both are checked.  Reading one is a plain attribute access.  ``override`` changes
settings for a while::

    with ta.config.override(compile="wait"):
        ...

Settings hold for the whole process, not for one thread.
"""

from __future__ import annotations

import functools
import os
import re
import sys
import threading
from collections.abc import Callable, Collection, Mapping
from contextlib import ContextDecorator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import platformdirs

from tiledarray import core
from tiledarray.block import Block
from tiledarray.errors import UnknownSetting
from tiledarray.fork import hold_at_fork

PREFIX = "TILEDARRAY_"

device: str
compile: str
compile_seconds: float
compile_afterwards: bool
threads: int
cache_dir: Path
cache_bytes: int
pool_bytes: int
contract: bool | str
tf32: bool
verify: bool
at_once: int
at_once_least: int
first_seconds: float
cut: int
grad_memory: int | None
linalg_errors: str
tune: bool
deterministic: bool


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting: ``parse`` checks a value (or text of the environment) and gives the real one."""

    name: str
    parse: Callable[[Any], Any]
    default: Callable[[], Any]
    doc: str

    def checked(self, value: Any, origin: str) -> Any:
        """Return the value as the setting's type; ``origin`` names it in the error.

        Raises
        ------
        ValueError
            If it is none; the message says what is.
        """
        try:
            return self.parse(value)
        except (ValueError, TypeError) as error:
            raise ValueError(f"{origin} = {value!r}: {error}. {self.doc}") from None


def _device(value: Any) -> str:
    if isinstance(value, str) and re.fullmatch(r"auto|cpu|cuda(:\d+)?", value):
        return value
    raise ValueError("must be 'auto', 'cpu', 'cuda' or 'cuda:N'")


def _one_of(*choices: str) -> Callable[[Any], str]:
    def parse(value: Any) -> str:
        if value in choices:
            return str(value)
        raise ValueError(f"must be one of {', '.join(map(repr, choices))}")

    return parse


def _whole(least: int) -> Callable[[Any], int]:
    def parse(value: Any) -> int:
        number = int(value) if isinstance(value, str) else value
        if isinstance(number, int) and not isinstance(number, bool) and number >= least:
            return number
        raise ValueError(f"must be a whole number, {least} or more")

    return parse


def _seconds(value: Any) -> float:
    number = float(value) if isinstance(value, str) else value
    if isinstance(number, int | float) and not isinstance(number, bool) and 0 <= number <= 1e9:
        return float(number)
    raise ValueError("must be a number of seconds, 0 or more")


def most_threads() -> int:
    """Upper limit of ``threads``: beyond it they only wait, and each takes a stack and scratch."""
    return max(1024, 4 * (os.cpu_count() or 1))


def _threads(value: Any) -> int:
    number, most = _whole(0)(value), most_threads()
    if number > most:
        raise ValueError(f"must be at most {most} (each thread takes a stack and scratch memory)")
    return number


def _bytes(value: Any) -> int:
    if isinstance(value, str):
        found = re.fullmatch(r"(\d+) *(?:([KMGT])i?B?)?", value.strip(), re.IGNORECASE)
        if found is None:
            raise ValueError("must be a number of bytes, such as 1073741824 or '1GiB'")
        power = " KMGT".index(found.group(2).upper()) if found.group(2) else 0
        value = int(found.group(1)) << (10 * power)
    return _whole(0)(value)


def _bytes_or_none(value: Any) -> int | None:
    if value is None or (isinstance(value, str) and value.strip().lower() in ("", "none")):
        return None
    return _bytes(value)


def _flag(value: Any) -> bool:
    words = {"1": True, "true": True, "yes": True, "on": True,
             "0": False, "false": False, "no": False, "off": False}
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in words:
        return words[value.lower()]
    raise ValueError("must be True or False")


def _contraction(value: Any) -> bool | str:
    if value == "auto":
        return "auto"
    try:
        return _flag(value)
    except ValueError:
        raise ValueError("must be 'auto', True or False") from None


def _folder(value: Any) -> Path:
    if isinstance(value, (str, os.PathLike)) and str(value):
        try:
            return Path(value).expanduser().absolute()
        except (OSError, RuntimeError) as error:  # no working folder, or no home
            raise ValueError(f"must be a path that can be told: {error}") from None
    raise ValueError("must be the path of a folder")


def _usual_folder() -> Path:
    """Return the user's folder for what can be made again; a temporary one of who has no home."""
    try:
        return Path(platformdirs.user_cache_dir("tiledarray")).absolute()
    except (OSError, RuntimeError):
        import tempfile  # seldom needed, and slow to import
        owner = os.geteuid() if hasattr(os, "geteuid") else ""
        return Path(tempfile.gettempdir(), f"tiledarray-{owner}").absolute()


@functools.cache
def memory_bytes() -> int:
    """Memory that the process may use: of the machine, or of its control group if that is less."""
    try:
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        total = 8 << 30
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
    except OSError:
        return total
    return min(total, int(limit)) if limit.isdigit() else total


SETTINGS: Mapping[str, Setting] = {
    setting.name: setting
    for setting in (
        Setting("device", _device, lambda: "auto",
                "Where new arrays live: 'auto' (a GPU if there is one), 'cpu', 'cuda', 'cuda:N'."),
        Setting("compile", _one_of("background", "wait", "never"), lambda: "background",
                "Whether a first run goes on op by op while its kernels compile, waits for them, "
                "or never compiles."),
        Setting("compile_seconds", _seconds, lambda: 60.0,
                "Seconds after which a compiler that has not ended is given up; 0 means never."),
        Setting("compile_afterwards", _flag, lambda: True,
                "Whether what was being compiled in the background when the program ends is "
                "compiled by a process of its own, for the runs to come."),
        Setting("threads", _threads, lambda: 0,
                "Threads for host kernels; 0 means all processors that the process may use."),
        Setting("cache_dir", _folder, _usual_folder,
                "Folder that keeps compiled kernels between runs."),
        Setting("cache_bytes", _bytes, lambda: 1 << 30,
                "Size that the folder of compiled kernels may reach."),
        Setting("pool_bytes", _bytes, lambda: memory_bytes() // 4,
                "Host memory that may be kept for reuse after its arrays have died."),
        Setting("contract", _contraction, lambda: "auto",
                "Whether a * b + c may round once (fused multiply-add) where NumPy rounds twice: "
                "'auto' (on a GPU, and never where rounded products would cancel to zero), True "
                "(wherever the compiler likes) or False."),
        Setting("tf32", _flag, lambda: False,
                "Whether a GPU's tensor cores multiply matrices of float32 that are recorded "
                "meanwhile, which round what they multiply to TF32: 10 bits behind the point "
                "instead of 23."),
        Setting("verify", _flag, lambda: False,
                "Whether a plan that the verifier refuses is an error, and all live memory is "
                "looked at after each evaluation."),
        Setting("at_once", _whole(0), lambda: core.AT_ONCE,
                "Elements up to which an array on the host is computed when it is recorded, if "
                "its operands have been evaluated (beside a GPU at most 65,536); with 0 "
                "everything is recorded."),
        Setting("at_once_least", _whole(1), lambda: 4096,
                "Elements down to which at_once falls while a program is seen to run faster so, or "
                "to four times as many: with at_once itself, or more, it stays what it is."),
        Setting("first_seconds", _seconds, lambda: 0.02,
                "What is met for the first time is not planned if going op by op takes no longer; "
                "0 plans it."),
        Setting("cut", _whole(1), lambda: 400,
                "Operations recorded before a long recording is cut and evaluated."),
        Setting("grad_memory", _bytes_or_none, lambda: None,
                "Bytes that the values of histories may take, which gradients ask for; beyond it "
                "they are let go and computed again. None: all are kept."),
        Setting("linalg_errors", _one_of("raise", "deferred"), lambda: "raise",
                "When a factorization that fails (a singular matrix) is told of: 'raise' (where it "
                "is called, as NumPy does) or 'deferred' (it stays recorded, and the error comes "
                "where the result is looked at; on a GPU nobody waits for a jitted function, "
                "and the error of one comes where something there is looked at next)."),
        Setting("tune", _flag, lambda: True,
                "Whether a few other plans of what runs long on a GPU take turns with the usual "
                "one, and the fastest stays: sums may then be rounded otherwise."),
        Setting("deterministic", _flag, lambda: False,
                "Whether every run gives the same bits on a machine: nothing is chosen by the time "
                "that it takes (kernels are waited for; tune and at_once_least do nothing), and "
                "what is scattered on a GPU is added in order, which takes longer."),
    )
}  # fmt: skip

_HUNG_ON = ("compile", "tune", "at_once_least")  # `deterministic`

_lock = threading.RLock()
hold_at_fork(_lock)
_base: dict[str, Any] = {}
_layers: list[dict[str, Any]] = []


class override(ContextDecorator, Block):  # noqa: N801  used as a function
    """Change settings inside a ``with`` block.

    Blocks may nest, and may overlap in several threads: the one entered last decides, and leaving
    one in any order restores what the others (or the plain settings) say.

    Parameters
    ----------
    **settings
        New values by the settings' names, which `describe` tells.

    Raises
    ------
    UnknownSetting
        If there is no setting of that name.
    ValueError
        If a value is none that the setting takes; nothing is changed then.
    RuntimeError
        If the object has been used: each ``with`` needs one of its own.

    Examples
    --------
    >>> from tiledarray import config
    >>> with config.override(threads=2):
    ...     config.threads
    2
    """

    def __init__(self, **settings: Any) -> None:
        self._layer = {
            name: _setting(name).checked(value, name) for name, value in settings.items()}

    def _recreate_cm(self) -> override:  # of functions that it decorates
        return override(**self._layer)

    def begin(self) -> None:
        """Have the settings hold."""
        with _lock:
            _layers.append(self._layer)
            _apply(self._layer)

    def end(self) -> None:
        """Have the others hold again."""
        with _lock:
            _layers[:] = [other for other in _layers if other is not self._layer]
            _apply(self._layer)


def describe() -> str:
    """Return every setting with its value, its meaning and its environment variable.

    Returns
    -------
    str
        One setting a paragraph.

    Examples
    --------
    >>> from tiledarray import config
    >>> print(config.describe())
    device = ...
        Where new arrays live: ...
    """
    return "\n".join(
        f"{setting.name} = {globals()[setting.name]!r}\n    {setting.doc} [{PREFIX}{name.upper()}]"
        for name, setting in SETTINGS.items()
    )


def _setting(name: str) -> Setting:
    if name not in SETTINGS:
        raise UnknownSetting(
            f"there is no setting {name!r}", remedy=f"the settings are {', '.join(SETTINGS)}"
        )
    return SETTINGS[name]


def _latest(name: str) -> Any:
    """What the layer entered last says of a setting that it has."""
    return [layer[name] for layer in (_base, *_layers) if name in layer][-1]


def _values() -> dict[str, Any]:
    """Every setting's value; where all is to be deterministic, nothing is left to time."""
    values = {name: _latest(name) for name in _base}
    if values["deterministic"]:
        values |= {"compile": "never" if values["compile"] == "never" else "wait", "tune": False,
                   "at_once_least": max(values["at_once"], values["at_once_least"])}
    return values


def _apply(names: Collection[str]) -> None:
    """Bring the module's attributes in line with the base and the layers over it."""
    names = {*names, *_HUNG_ON} if {"deterministic", "at_once"} & {*names} else names
    values = _values()
    for name in names:
        globals()[name] = values[name]
    core.forget_programs()  # they are of plans made, and of launches bound, by other settings
    if "at_once" in names:
        core.set_limit(globals()["at_once"])
    if "at_once_least" in names:
        core.set_least(globals()["at_once_least"])
    if "cut" in names:
        core.set_cut(globals()["cut"])
    if "grad_memory" in names:
        core.set_lets_go(globals()["grad_memory"] is not None)
    if "device" in names:
        core.set_births(False)  # `devices.device.current` finds out


def _assign(name: str, value: Any) -> None:
    checked = _setting(name).checked(value, name)
    with _lock:
        holders = [layer for layer in (_base, *_layers) if name in layer]
        holders[-1][name] = checked
        _apply({name: checked})


def _read_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    """Every setting's value: from the environment where it is given there."""
    names = {PREFIX + name.upper(): name for name in SETTINGS}
    known = {*names, core.VARIABLE}
    unknown = sorted(key for key in environment if key.startswith(PREFIX) and key not in known)
    if unknown:
        raise UnknownSetting(
            f"unknown environment variable {', '.join(unknown)}",
            remedy=f"unset it; the settings are {', '.join(names)}",
        )
    return {
        name: SETTINGS[name].checked(environment[key], key)
        if key in environment else SETTINGS[name].default()
        for key, name in names.items()
    }  # fmt: skip


def __getattr__(name: str) -> Any:
    if not name.startswith("__"):
        _setting(name)
    raise AttributeError(name)


class _Settings(ModuleType):
    """The module's class: checks what is set and names the settings when one is unknown."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("__"):
            super().__setattr__(name, value)
        else:
            _assign(name, value)

    def __delattr__(self, name: str) -> None:
        raise UnknownSetting(f"the setting {name!r} cannot be deleted", remedy="set it instead")

    def __dir__(self) -> list[str]:
        return [*SETTINGS, "override", "describe"]


_base.update(_read_environment(os.environ))
_apply(_base)
sys.modules[__name__].__class__ = _Settings
