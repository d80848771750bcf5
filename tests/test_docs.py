"""Documents are executed: Python blocks, docstring examples, and the README's commands."""

import doctest
import importlib
import inspect
import os
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

import tiledarray


def as_users_have_it():
    """The environment without the settings that the suite makes."""
    return {name: value for name, value in os.environ.items()
            if name not in ("TILEDARRAY_AT_ONCE", "TILEDARRAY_FIRST_SECONDS")}


ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```\n?(?:```text\n(.*?)^```)?", re.MULTILINE | re.DOTALL)
NEEDS_MORE = ("tiledarray.devices.cuda", "tiledarray.devices.cublas", "tiledarray.command.ipython",
              "tiledarray.__main__")


def blocks(language):
    """Return (document, line, text, excerpt of what it prints) of each block in `language`."""
    return [
        (path.relative_to(ROOT), text.count("\n", 0, found.start()) + 2, found.group(2),
         found.group(3))
        for path in DOCUMENTS
        for text in [path.read_text()]
        for found in BLOCK.finditer(text)
        if found.group(1) == language
    ]


def modules():
    """Return the names of the package's modules that import anywhere."""
    found = pkgutil.walk_packages(tiledarray.__path__, "tiledarray.", onerror=lambda name: None)
    names = [module.name for module in found if not module.name.startswith(NEEDS_MORE)]
    return ["tiledarray", *names]


@pytest.mark.parametrize(
    ("document", "line", "text", "excerpt"),
    [pytest.param(*b, id=f"{b[0]}:{b[1]}") for b in blocks("python")],
)
def test_python_block_runs(document, line, text, excerpt, tmp_path):
    # In a process of its own, and from a file, as a reader would run it.
    script = tmp_path / "block.py"
    script.write_text("\n" * (line - 1) + text)
    done = subprocess.run(
        [sys.executable, str(script)], cwd=ROOT, capture_output=True, text=True, timeout=120,
        env={**as_users_have_it(), "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, f"{document}, line {line}:\n{done.stderr}"
    rest = done.stdout
    for part in excerpt.split("…\n") if excerpt else ():
        _, found, rest = rest.partition(part)
        assert found == part, f"{document}, line {line} prints no more\n{part}"


def own_examples(module):
    """Return the module's doctests, without those that came with a docstring of NumPy's."""
    tests = doctest.DocTestFinder().find(module)
    if inspect.getsourcefile(module) is None:  # compiled: all that it says is its own
        return tests
    source = Path(module.__file__).read_text()
    return [
        test
        for test in tests
        if all(example.source.splitlines()[0] in source for example in test.examples)
    ]


@pytest.mark.parametrize("name", modules())
def test_docstring_examples(name):
    runner = doctest.DocTestRunner(
        optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE, verbose=False
    )
    for test in own_examples(importlib.import_module(name)):
        runner.run(test)
    assert runner.summarize().failed == 0


def test_ci_runs_the_test_command_of_the_readme():
    (command,) = [text.strip() for _, _, text, _ in blocks("bash") if "pytest" in text]
    assert command in (ROOT / ".ci" / "run").read_text().splitlines()


def test_examples_of_the_readme_exist():
    table = re.findall(r"^\| `(\w+)` \|", (ROOT / "README.md").read_text(), re.MULTILINE)
    files = {path.stem for path in (ROOT / "examples").glob("*.py")} - {"__init__", "harness"}
    assert set(table) == files


def test_links_of_the_documents_lead_somewhere():
    for path in DOCUMENTS:
        for target in re.findall(r"\]\((?!http)([^)#]+)", path.read_text()):
            assert (path.parent / target).exists(), f"{path.name} links to {target}"
