"""Scripts as they are: `python -m tiledarray`."""

import os
import subprocess
import sys
from pathlib import Path

import numpy
import pytest

import tiledarray
from tiledarray.command import script
from tiledarray.kernels.compile import host

ROOT = Path(tiledarray.__file__).resolve().parent.parent

SOFT = """
from numpy import *
from numpy.linalg import norm
import numpy.fft, numpy.linalg as la

def soft(x):
    import numpy as np
    e = exp(x - np.max(x, axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)

def fail(x):
    return x + ones(7)
"""

MAIN = """
import importlib, sys
try:
    import no_such_module as np
except ImportError:
    import numpy as np
import numpy
from numpy import fft
from scipy import ndimage
from lib import soft as module
from lib.soft import soft

def kind(x):
    return type(x).__module__.split(".")[0]

x = np.linspace(0, 1, 30000).reshape(300, 100)
y = soft(x)
print("mine", kind(x), kind(y), kind(module.norm(x)), numpy is np, fft is numpy.fft)
print("late", importlib.import_module("numpy") is np, __import__("numpy") is np)
exec("import numpy as q; print('exec', q is np)")
exec("import numpy as q; print('exec', q is np)", {"np": np})
print("theirs", kind(ndimage.gaussian_filter(y, 1.0)), sys.modules["numpy"] is np)
print("value", round(float(y.sum()), 6), isinstance(y, np.ndarray), np.__version__)
print("argv", sys.argv[1:], __name__, __file__.endswith("main.py"))
if "unique" in sys.argv:
    print(len(np.unique(np.arange(5))))
if "fail" in sys.argv:
    module.fail(y)
if "exit" in sys.argv:
    sys.exit(3)
"""


@pytest.fixture
def project(tmp_path):
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "__init__.py").write_text("")
    (tmp_path / "lib" / "soft.py").write_text(SOFT)
    (tmp_path / "main.py").write_text(MAIN)
    return tmp_path


def run(project, *arguments, **settings):
    path = os.pathsep.join([str(ROOT), *filter(None, sys.path)])
    environment = {**os.environ, "PYTHONPATH": path, "TILEDARRAY_DEVICE": "cpu", **settings}
    if host.available() is not None:
        environment["TILEDARRAY_COMPILE"] = "never"  # else a warning says that it does not compile
    return subprocess.run(
        [sys.executable, "-m", "tiledarray", *arguments], cwd=project, env=environment,
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


def test_the_users_modules_get_tiledarray_and_no_others(project):
    done = run(project, "main.py", "--explain", "a b", "exit")
    assert done.stdout.splitlines() == [
        "mine tiledarray tiledarray tiledarray True True",
        "late True True",
        "exec True",
        "exec True",
        "theirs numpy False",
        f"value 300.0 True {numpy.__version__}",
        "argv ['--explain', 'a b', 'exit'] __main__ True",
    ], done.stderr
    assert done.returncode == 3
    assert done.stderr == ""  # --explain after the script is the script's


def test_a_script_brings_no_more_along_than_it_needs(project):
    (project / "small.py").write_text(
        "import sys, numpy as np\n"
        "print(np.ones(3).sum(), [name for name in ('fusion.passes', 'insight.facts', "
        "'kernels.compile.host') if 'tiledarray.' + name in sys.modules])\n")
    assert run(project, "small.py").stdout == "3.0 []\n"


WHERE = "import sys; print(__file__, sys.path[0], sys.argv, sys._getframe().f_code.co_filename)"


def test_a_script_knows_where_it_is_as_under_python(project):
    for name in "where.py", "lib/__main__.py":
        (project / name).write_text(WHERE)
    (project / "lib" / "link.py").symlink_to(project / "where.py")
    for target in "where.py", "lib/../where.py", "lib", "lib/link.py", project / "where.py":
        python = subprocess.run([sys.executable, target], cwd=project, capture_output=True,
                                text=True, check=True)
        assert run(project, str(target)).stdout == python.stdout


def test_explain_tells_at_the_end_and_errors_show_the_users_lines(project):
    # What NumPy computes at once is not in the report.
    done = run(project, "--explain", "main.py", "unique", "fail", TILEDARRAY_AT_ONCE="1")
    assert done.returncode == 1
    frames = [line for line in done.stderr.splitlines() if line.startswith("  File")]
    assert "main.py" in frames[0] and "soft.py" in frames[1]
    assert "script.py" not in done.stderr
    assert "ValueError: operands could not be broadcast together" in done.stderr
    report = done.stderr[done.stderr.index("tiledarray: main.py"):]
    line = MAIN.splitlines().index("    print(len(np.unique(np.arange(5))))") + 1
    assert f"main.py:{line}" in report and "unique" in report
    assert "memory: at most" in report


def test_a_module_and_the_comparison(project):
    (project / "lib" / "job.py").write_text(
        "import sys\nfrom . import soft\nimport numpy as np\nprint(np.ones(3) * 2, sys.argv[1:])\n"
    )
    done = run(project, "--compare", "--device", "cpu", "-m", "lib.job", "x")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[2. 2. 2.] ['x']\n"
    assert "NumPy" in done.stderr and "times as fast" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere.py"], "there is no file nowhere.py"),
        (["-m", "nowhere_at_all"], "there is no module nowhere_at_all"),
        (["--device", "tpu", "main.py"], "must be 'auto', 'cpu', 'cuda' or 'cuda:N'"),
        (["--explian", "main.py"], "unrecognized arguments: --explian"),
        ([], "name a script, or a module with -m"),
    ],
)
def test_wrong_commands_say_what_is_wrong(project, arguments, message, capsys, monkeypatch):
    monkeypatch.chdir(project)
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    try:
        status = script.main(arguments)
    except SystemExit as request:
        status = request.code
    assert status not in (0, None)
    assert message in capsys.readouterr().err


def test_installed_packages_in_a_project_are_not_the_users(tmp_path):
    (tmp_path / "pyproject.toml").write_text("")
    inner = tmp_path / "src" / "deep"
    inner.mkdir(parents=True)
    replacement = script.Replacement(script.project_folders(inner))
    assert replacement.is_users(str(inner / "a.py"))
    assert replacement.is_users(str(tmp_path / "tests" / "b.py"))
    assert not replacement.is_users(str(tmp_path / ".venv/lib/python3/site-packages/c/d.py"))
    assert not replacement.is_users(str(tmp_path.parent / "e.py"))
    assert not replacement.is_users(os.__file__)
    own = script.Replacement([ROOT])
    assert not own.is_users(tiledarray.__file__)
    assert own.is_users(__file__)


def test_the_hook_goes_away():
    import builtins

    before = builtins.__import__
    with script.replaced(script.Replacement([Path(__file__).parent])):
        import numpy as inside
    import numpy as after

    assert inside.__name__ == "tiledarray" and after is numpy
    assert builtins.__import__ is before


COMPUTED = "what each run recorded was computed in it"
SETUP = "import numpy as np; x = np.ones(200000); kind = type(x).__module__"


def test_timeit_as_a_command(project):
    done = run(project, "-m", "timeit", "-n", "3", "-s", SETUP, "x + 1; print(kind)")
    assert done.returncode == 0, done.stderr
    assert "tiledarray" in done.stdout and "3 loops, best of 5" in done.stdout
    done = run(project, "-m", "timeit", "-n", "3", "-s", SETUP, "x + 1")
    assert COMPUTED in done.stderr
    done = run(project, "-m", "timeit", "x ++")
    assert done.returncode == 1 and "SyntaxError" in done.stderr


def test_timeit_in_a_script(project):
    (project / "times.py").write_text(
        "import timeit\nimport numpy as np\nx = np.ones(200000)\n"
        "print(timeit.timeit('x + 1', globals=globals(), number=3) > 0)\n"
        "print(timeit.timeit('type(x).__module__', 'import numpy as np; x = np.ones(3)') > 0)\n"
    )
    done = run(project, "times.py")
    assert done.stdout == "True\nTrue\n" and done.stderr.count(COMPUTED) == 1
