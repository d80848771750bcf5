"""What pyproject.toml cannot say of the build: how the C core is compiled, or left out.

The environment variable ``TILEDARRAY_CORE`` means at build time what it means at run time: with
``c`` the build fails where the core cannot be compiled, with ``python`` it is left out, and
otherwise it is compiled where that works.
"""

import atexit
import os
import shutil
import tempfile

import numpy
from setuptools import Extension, setup
from setuptools.command.build import build
from setuptools.command.build_ext import build_ext

WANTED = os.environ.get("TILEDARRAY_CORE", "")
if WANTED not in ("", "c", "python"):
    raise SystemExit(f"TILEDARRAY_CORE is {WANTED!r}: set it to c or python")


class Build(build):
    """Works in an empty folder: nothing that an earlier build left gets into a wheel."""

    def initialize_options(self):
        """Choose the folder; ``--build-base`` may say another."""
        super().initialize_options()
        self.build_base = tempfile.mkdtemp(prefix="tiledarray-build-")
        atexit.register(shutil.rmtree, self.build_base, ignore_errors=True)


class BuildCore(build_ext):
    """Compiles with the options of the compiler that there is; ``CFLAGS`` may say more."""

    def build_extensions(self):
        """Build them, with options that this compiler knows."""
        if self.compiler.compiler_type == "msvc":
            options = ["/std:c11", "/O2"]
        else:
            # Aligned, or the speed of small functions depends on what is linked before them.
            options = ["-std=c11", "-fvisibility=hidden", "-falign-functions=64"]
            if "-O" not in os.environ.get("CFLAGS", ""):
                options.append("-O3")
        for extension in self.extensions:
            extension.extra_compile_args = options
        super().build_extensions()


CORE = Extension(
    "tiledarray.core._core",
    [f"tiledarray/core/{name}.c" for name in (
        "_core", "assign", "at_once", "block", "calls", "elements", "graph", "handle", "index",
        "library", "loans", "memory", "operators", "pace", "programs", "recipes", "record",
        "recorder", "run", "scalars", "sequences", "sites", "slices", "state", "taken", "values",
        "walk", "watch", "watched")],
    depends=[f"tiledarray/core/{name}.h" for name in (
        "calls", "core", "handle", "pace", "recorder", "running", "watch", "watching")],
    include_dirs=[numpy.get_include()],
    optional=WANTED != "c",
)

setup(
    ext_modules=[] if WANTED == "python" else [CORE],
    cmdclass={"build": Build, "build_ext": BuildCore},
)
