"""Scripts as they are, with tiledarray in NumPy's place: ``python -m tiledarray script.py``.

Only the user's own modules see the exchange.  An ``import numpy`` runs through a hook in
``builtins.__import__`` that looks at who imports: a module whose file belongs to the user's project
gets tiledarray; every other gets NumPy, and ``sys.modules`` is left alone.  The user's code is
compiled from its own text, so tracebacks, debuggers and byte code caches are what they always are.

What the hook does not reach: worker processes that multiprocessing *spawns* import plain NumPy
(forked ones do not), and what reads ``sys.modules`` itself.
"""

from __future__ import annotations

import argparse
import builtins
import functools
import importlib
import importlib.machinery
import importlib.util
import io
import json
import os
import subprocess
import sys
import sysconfig
import tempfile
import timeit
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import perf_counter
from types import CodeType, FrameType, ModuleType, TracebackType
from typing import Any

import numpy

import tiledarray
from tiledarray import config
from tiledarray.command import timing
from tiledarray.devices.device import resolve
from tiledarray.errors import TiledArrayError
from tiledarray.recording.site import INSTALLED

PROJECT_MARKS = ("pyproject.toml", "setup.py", "setup.cfg", ".git", ".hg")

Namespace = dict[str, Any]


# ---- who gets tiledarray ----------------------------------------------------------------------


class Replacement:
    """Puts tiledarray in NumPy's place in what the user's modules import.

    Parameters
    ----------
    folders : sequence of Path
        Modules in or below them are the user's, apart from installed packages.
    namespaces : sequence of dict
        Globals that are the user's too, such as those of a prompt.
    """

    def __init__(
        self, folders: Sequence[Path], namespaces: Sequence[Namespace] = ()
    ) -> None:
        self.folders = tuple(_prefix(folder) for folder in folders)
        self.namespaces = namespaces
        self._foreign = tuple(map(_prefix, _foreign_folders()))
        self._known: dict[str, bool] = {}
        self._import: Any = builtins.__import__
        self._import_module: Any = importlib.import_module

    def install(self) -> None:
        """Begin."""
        self._import = builtins.__import__
        self._import_module = importlib.import_module
        builtins.__import__ = self._import_for_caller  # type: ignore[assignment]
        importlib.import_module = self._import_module_for_caller

    def remove(self) -> None:
        """End; what was imported stays."""
        builtins.__import__ = self._import
        importlib.import_module = self._import_module

    def is_users(self, file: str) -> bool:
        """Whether a module's file belongs to the user's project."""
        known = self._known.get(file)
        if known is None:
            path = os.path.realpath(file)
            known = self._known[file] = (
                path.startswith(self.folders) and not path.startswith(self._foreign)
                and INSTALLED.isdisjoint(Path(path).parts)
            )
        return known

    def _serves(self, namespace: Namespace | None, frame: FrameType | None) -> bool:
        """Whether the code with these globals is the user's; ``exec`` counts as who called it."""
        while frame is not None:
            variables = frame.f_globals if namespace is None else namespace
            if any(variables is own for own in self.namespaces):
                return True
            if "__name__" in variables:
                file = variables.get("__file__")
                return isinstance(file, str) and self.is_users(file)
            frame, namespace = frame.f_back, None
        return False

    def _import_for_caller(
        self, name: str, globals: Namespace | None = None, locals: Any = None,
        fromlist: Any = (), level: int = 0,
    ) -> Any:
        module = self._import(name, globals, locals, fromlist, level)
        if (
            level == 0 and name.partition(".")[0] == "numpy"
            and self._serves(globals, sys._getframe(1))
        ):
            return stand_in(name if fromlist else "numpy", fromlist or ())
        return module

    def _import_module_for_caller(self, name: str, package: str | None = None) -> Any:
        module = self._import_module(name, package)
        if name.partition(".")[0] == "numpy" and self._serves(None, sys._getframe(1)):
            return stand_in(name)
        return module


def stand_in(name: str, wanted: Sequence[str] = ()) -> Any:
    """Return what stands for a module of NumPy's: ours, or NumPy's own where there is none."""
    if name == "numpy":
        return _namespace()
    module: Any = tiledarray
    for part in name.split(".")[1:]:
        module = getattr(module, part, None)
    if module is None:
        return sys.modules[name]
    if "*" in wanted:
        return _starred(name, module)
    return module


@functools.cache
def _namespace() -> ModuleType:
    """Return tiledarray's namespace with NumPy's version, which scripts ask for."""
    module = ModuleType("tiledarray", tiledarray.__doc__)
    variables = vars(module)
    variables.update(vars(tiledarray))
    variables.update(__version__=numpy.__version__, __all__=numpy.__all__)

    def find(name: str) -> Any:
        variables[name] = getattr(tiledarray, name)
        return variables[name]

    variables["__getattr__"] = find
    return module


def _starred(name: str, module: Any) -> ModuleType:
    """Return a module from which ``import *`` takes NumPy's public names."""
    original = sys.modules[name]
    public = ModuleType(name)
    names = getattr(original, "__all__", None) or [n for n in dir(original) if n[0] != "_"]
    vars(public).update(
        __all__=[n for n in names if hasattr(module, n)],
        __getattr__=lambda attribute: getattr(module, attribute),
    )
    return public


def _prefix(folder: Path) -> str:
    return os.path.join(os.path.realpath(folder), "")


def _foreign_folders() -> list[Path]:
    """Folders of the standard library, and of NumPy and this package wherever they are."""
    paths = sysconfig.get_paths()
    packages = [Path(str(package.__file__)).parent for package in (tiledarray, numpy)]
    return [Path(paths["stdlib"]), Path(paths["platstdlib"]), *packages]


def project_folders(start: Path) -> list[Path]:
    """Return the folder, and the project that it is part of if some file marks one."""
    start = start.resolve()
    for folder in (start, *start.parents):
        if any((folder / mark).exists() for mark in PROJECT_MARKS):
            return [start, folder]
    return [start]


# ---- running ----------------------------------------------------------------------------------


class Program:
    """The user's program: a file, or a module as for ``python -m``."""

    def __init__(self, target: str, arguments: Sequence[str], *, module: bool) -> None:
        self.target = target
        self.arguments = arguments
        self.is_module = module
        self.code: CodeType | None = None

    @property
    def folders(self) -> list[Path]:
        """Where the user's modules are."""
        if self.is_module:
            return project_folders(Path.cwd())
        return project_folders(Path(self.target).resolve().parent)

    def run(self) -> None:
        """Run it as ``__main__``."""
        if self.is_module and self.target == "timeit":  # the one that has been told to finish runs
            sys.argv[:] = [timeit.__file__, *self.arguments]
            main: Any = timeit.main
            sys.exit(main(self.arguments))
        module = self._module_main() if self.is_module else self._file_main()
        sys.modules["__main__"] = module
        assert self.code is not None
        exec(self.code, vars(module))

    def missing(self) -> str | None:
        """What there is not, so that nothing can be run."""
        if not self.is_module:
            return None if os.path.exists(self.target) else f"there is no file {self.target}"
        try:
            spec = self._spec()
        except ImportError as error:
            return str(error)
        runnable = spec is not None and hasattr(spec.loader, "get_code")
        return None if runnable else f"there is no module {self.target} that can be run"

    def _spec(self) -> importlib.machinery.ModuleSpec | None:
        spec = importlib.util.find_spec(self.target)
        if spec is not None and spec.submodule_search_locations is not None:
            return importlib.util.find_spec(f"{self.target}.__main__")
        return spec

    def _file_main(self) -> ModuleType:
        path = os.path.join(os.getcwd(), self.target)  # as Python tells it, ".." and links included
        if os.path.isdir(path):
            path = os.path.join(path, "__main__.py")
        sys.argv[:] = [self.target, *self.arguments]
        if not sys.flags.safe_path:
            sys.path[0] = os.path.dirname(os.path.realpath(path))
        with io.open_code(path) as file:
            self.code = compile(file.read(), path, "exec", dont_inherit=True)
        return _main(__file__=path, __loader__=importlib.machinery.SourceFileLoader(
            "__main__", path))

    def _module_main(self) -> ModuleType:
        sys.argv[:] = ["-m", *self.arguments]
        spec = self._spec()
        assert spec is not None
        self.code = spec.loader.get_code(spec.name)  # type: ignore[union-attr]
        sys.argv[0] = str(spec.origin)
        return _main(__file__=spec.origin, __loader__=spec.loader, __spec__=spec,
                     __package__=spec.parent, __cached__=spec.cached)


def _main(**variables: Any) -> ModuleType:
    module = ModuleType("__main__")
    vars(module).update({"__builtins__": builtins, "__cached__": None, **variables})
    return module


def _without_ours(traceback: TracebackType | None) -> TracebackType | None:
    """Return the traceback without the frames of this file."""
    if traceback is None:
        return None
    traceback.tb_next = _without_ours(traceback.tb_next)
    return traceback.tb_next if traceback.tb_frame.f_code.co_filename == __file__ else traceback


@contextmanager
def replaced(replacement: Replacement) -> Iterator[None]:
    """Keep a replacement installed inside a ``with`` block."""
    replacement.install()
    try:
        yield
    finally:
        replacement.remove()


# ---- the command ------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status."""
    options = _parse(sys.argv[1:] if arguments is None else list(arguments))
    if options.doctor:
        from tiledarray.command import doctor
        print(doctor.report())
        return 0
    program = Program(options.target, options.arguments, module=options.module)
    missing = program.missing()
    if missing is not None:
        print(f"tiledarray: {missing}", file=sys.stderr)
        return 2
    session = None
    with ExitStack() as stack:
        try:
            if options.device is not None:
                stack.enter_context(config.override(device=options.device))
            resolve()
        except (TiledArrayError, ValueError) as error:
            print(f"tiledarray: {error}", file=sys.stderr)
            return 2
        if not options.plain:
            # Left installed at the end: what the script leaves to exit handlers still imports.
            # What `timeit` is given is the user's too.
            Replacement(program.folders, [vars(timeit)]).install()
            timing.install()
        if options.explain:
            from tiledarray.insight.session import Session  # which brings the planner along
            session = stack.enter_context(Session(options.target))
        started = perf_counter()
        status = _run(program)
        seconds = perf_counter() - started
    sys.stdout.flush()
    if options.plain:
        Path(options.plain).write_text(json.dumps({"seconds": seconds}))
    if session is not None:
        print(session, file=sys.stderr)
    if options.compare:
        print(_comparison(options, seconds), file=sys.stderr)
    return status


def _run(program: Program) -> int:
    """Run the program; tell an error as Python does, without frames of ours."""
    try:
        program.run()
    except SystemExit as request:
        if request.code is None or isinstance(request.code, int):
            return request.code or 0
        print(request.code, file=sys.stderr)
        return 1
    except BaseException as error:
        traceback = _without_ours(error.__traceback__)
        sys.excepthook(type(error), error.with_traceback(traceback), traceback)
        return 130 if isinstance(error, KeyboardInterrupt) else 1
    return 0


def _comparison(options: argparse.Namespace, seconds: float) -> str:
    """Run the program with NumPy in a process of its own, and compare the times."""
    from tiledarray.insight.facts import time_text
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "seconds.json"
        what = ["-m", options.target] if options.module else [options.target]
        command = [sys.executable, "-m", "tiledarray", "--plain", str(answer), *what,
                   *options.arguments]
        path = os.pathsep.join(filter(None, [str(Path(tiledarray.__file__).parent.parent),
                                             os.environ.get("PYTHONPATH", "")]))
        done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                              env={**os.environ, "PYTHONPATH": path}, check=False)
        if not answer.exists() or done.returncode != 0:
            return f"tiledarray: the run with NumPy failed:\n{done.stderr}"
        plain = json.loads(answer.read_text())["seconds"]
    return (f"tiledarray: {time_text(seconds)}, NumPy {time_text(plain)}: "
            f"{plain / seconds:.2f} times as fast (the whole script)")


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tiledarray",
        usage="%(prog)s [options] (script.py | -m module) [arguments ...]",
        description="Run a script as it is, with tiledarray in NumPy's place in its own modules.",
        epilog="What follows the script or module is passed on to it.",
    )
    parser.add_argument("--device", metavar="DEVICE",
                        help="where arrays live: auto, cpu, cuda or cuda:N")
    parser.add_argument("--explain", action="store_true",
                        help="at the end, tell where the time went, what was fused, what NumPy "
                        "did itself and where, the time of each kernel, and a verdict")
    parser.add_argument("--compare", action="store_true",
                        help="run it once more with NumPy, and tell both times (files that it "
                        "writes are written again)")
    parser.add_argument("--doctor", action="store_true",
                        help="run nothing: tell what was found of all that tiledarray makes use of")
    parser.add_argument("--plain", metavar="FILE", help=argparse.SUPPRESS)
    parser.add_argument("-m", dest="module", metavar="module", help="run a module")
    ahead = _options_ahead(arguments)
    options = parser.parse_args(arguments[:ahead])
    rest = arguments[ahead:]
    if options.module is not None:
        options.target, options.module = options.module, True
    elif rest:
        options.target, *rest = rest
        options.module = False
    elif not options.doctor:
        parser.error("name a script, or a module with -m")
    options.arguments = rest
    return options


def _options_ahead(arguments: Sequence[str]) -> int:
    """How many of the arguments are our own options: those ahead of the script or module."""
    number = 0
    while number < len(arguments) and arguments[number].startswith("-"):
        takes_value = arguments[number] in ("--device", "--plain", "-m")
        number += 1 + takes_value
        if arguments[number - 2:number - 1] == ["-m"]:
            break
    return min(number, len(arguments))
