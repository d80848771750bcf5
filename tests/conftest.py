"""Options of the test suite."""

import os

import pytest

from tiledarray.kernels import host


def pytest_addoption(parser):
    parser.addoption("--update-golden", action="store_true",
                     help="write the texts under tests/golden anew (or set UPDATE_GOLDEN=1)")


def pytest_configure(config):
    if config.getoption("--update-golden"):
        os.environ["UPDATE_GOLDEN"] = "1"


def pytest_runtest_setup(item):
    if item.get_closest_marker("compiler") and host.available() is not None:
        pytest.skip(f"needs a C++ compiler: {host.available()}")
