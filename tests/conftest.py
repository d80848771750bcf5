"""Options of the test suite."""

import os

import pytest
from hypothesis import settings

import tiledarray
from tiledarray.execution import evaluate
from tiledarray.kernels.compile import host


def pytest_addoption(parser):
    parser.addoption("--update-golden", action="store_true",
                     help="write the texts under tests/golden anew (or set UPDATE_GOLDEN=1)")


def pytest_configure(config):
    tiledarray.config.verify = True  # plans are checked, and after every evaluation all live memory
    if "TILEDARRAY_AT_ONCE" not in os.environ:
        # Tests are of small arrays, and most of what is recorded, planned and run; what NumPy does
        # at once has its own (test_core, test_corpus, the machine's tiers).
        tiledarray.config.at_once = 1
        evaluate.NEW_SECONDS = 0.0  # what is met for the first time is planned
    settings.register_profile("ci", derandomize=True)
    if os.environ.get("CI"):  # the same examples every time; elsewhere new ones
        settings.load_profile("ci")
    if config.getoption("--update-golden"):
        os.environ["UPDATE_GOLDEN"] = "1"


def pytest_runtest_setup(item):
    if item.get_closest_marker("compiler") and host.available() is not None:
        pytest.skip(f"needs a C++ compiler: {host.available()}")
