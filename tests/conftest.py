"""Options of the test suite."""

import gc
import os
from collections import Counter
from datetime import date

import pytest
from hypothesis import settings

import tiledarray
from tests.plans import leave_uncompiled
from tiledarray.gradients import again
from tiledarray.kernels.compile import host
from tiledarray.recording.pace import pace
from tiledarray.recording.stretch import local

RECORDED = {"at_once": 1, "first_seconds": 0.0}


def pytest_addoption(parser):
    parser.addoption("--update-golden", action="store_true",
                     help="write the texts under tests/golden anew (or set UPDATE_GOLDEN=1)")
    parser.addoption("--every", action="store_true",
                     help="run every case of the tests that are sampled: before an issue is done")


def pytest_configure(config):
    gc.set_threshold(20_000, 10, 20)  # a tenth of the time was spent on looking for garbage
    tiledarray.config.verify = True  # plans are checked, and after every evaluation all live memory
    # Tests are of small arrays, and most of what is recorded, planned and run, also by processes
    # that they start; what NumPy does at once has its own (test_core, test_corpus, the machine's
    # tiers), and examples run as users run them.
    for name, value in RECORDED.items():
        os.environ.setdefault(f"TILEDARRAY_{name.upper()}", str(value))
        setattr(tiledarray.config, name, type(value)(os.environ[f"TILEDARRAY_{name.upper()}"]))
    os.environ.setdefault("TILEDARRAY_COMPILE_AFTERWARDS", "0")  # by processes that tests start
    again.PATIENCE = float("inf")  # `test_gradient_again` is of what is differentiated often
    settings.register_profile("ci", derandomize=True)
    if os.environ.get("CI"):  # the same examples every time; elsewhere new ones
        settings.load_profile("ci")
    if config.getoption("--update-golden"):
        os.environ["UPDATE_GOLDEN"] = "1"


def pytest_collection_modifyitems(config, items):
    """Of the cases of a test that is ``sampled(n)`` run one in n, on each day others.

    What is asked for by name runs all the same.
    """
    if config.getoption("--every") or any("::" in str(each) for each in config.args):
        return
    met, kept, left = Counter(), [], []
    for item in items:
        mark = item.get_closest_marker("sampled")
        function = item.nodeid.partition("[")[0]
        met[function] += mark is not None
        others = mark is not None and (met[function] + date.today().toordinal()) % mark.args[0]
        (left if others else kept).append(item)
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = kept


def pytest_collection_finish():
    gc.freeze()  # what all tests are made of: benchmarks look for garbage before every batch


@pytest.fixture(autouse=True)
def _small_gradients_at_once(request):
    """Have gradients in the tests of them computed as users' are, or each would compile kernels.

    Those of the rules themselves are recorded.
    """
    name = request.path.name
    if name.startswith("test_gradient_") and name != "test_gradient_rules.py":
        with tiledarray.config.override(at_once=1 << 16, first_seconds=0.2):
            yield
    else:
        yield


def pytest_runtest_setup(item):
    local.recorder.reset()  # what the tests before have recorded does not cut this one's recording
    pace.begin()  # nor does their speed have this one's arrays of middle size recorded
    leave_uncompiled()  # nor does this one wait for what those have left to the compiler
    if item.get_closest_marker("compiler") and host.available() is not None:
        pytest.skip(f"needs a C++ compiler: {host.available()}")
