"""The end of a program, forks and signals while kernels compile."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest

from tests.faults import PRELUDE, ROOT, VERSION, begin, begun, ended, gone, wait_until
from tiledarray import config
from tiledarray.devices import threads
from tiledarray.kernels.compile import host

pytestmark = pytest.mark.skipif(host.available() is not None, reason="no C++ compiler")
pytest_plugins = ["tests.faults_fixtures"]


@pytest.fixture(autouse=True)
def folder(tmp_path):
    with config.override(cache_dir=tmp_path / "cache"):
        yield tmp_path / "cache"


EXITS = """
    x = np.array(numpy.arange(500_000.0))
    for _ in range(3):
        y = np.sqrt(x) + 1
        float((y[::-1] * y.sum() * (x * 2).max()).min())
    while not os.path.exists("begun"):
        time.sleep(0.01)
    {end}
"""


@pytest.mark.parametrize("end, status", [
    ("sys.exit(3)", 3), ("os.kill(os.getpid(), signal.SIGINT)", -signal.SIGINT),
    ("import atexit; atexit.register(check)", 0),
])
def test_the_interpreter_exits_while_kernels_compile(end, status, hangs, tmp_path, folder):
    child = begin(EXITS.format(end=end), folder, CXX=str(hangs))
    wait_until(lambda: begun(tmp_path) or child.poll() is not None)
    started = time.monotonic()
    found, _, messages = ended(child)
    assert time.monotonic() - started < 5
    assert found == status and (messages == "" or status < 0), messages
    wait_until(lambda: all(map(gone, begun(tmp_path))))
    assert not list((folder / "work").iterdir())


LATE = """
    from tiledarray.kernels.compile import cache

    def late(size, drawn=cache.secrets.token_hex):
        if threading.current_thread() is not threading.main_thread():
            open("begun_late", "w").close()
            time.sleep(0.3)
        return drawn(size)

    x = np.array(numpy.arange(500_000.0))
    float(np.sqrt(x).sum())
    cache.secrets = type("Late", (), {"token_hex": staticmethod(late)})
    for _ in range(3):
        float((np.cos(x) + 1).sum())
    while not os.path.exists("begun_late"):
        time.sleep(0.01)
"""


def test_the_interpreter_exits_as_a_compiler_is_about_to_start(tmp_path, folder, script):
    slow = script(f"{VERSION}echo $$ >> {tmp_path}/begun; sleep 0.3; exec REAL \"$@\"")
    lingering = "import atexit, time; atexit.register(time.sleep, 0.6)"  # its handlers end last
    child = begin(LATE, folder, first=lingering, CXX=str(slow))
    assert ended(child)[0::2] == (0, "")
    wait_until(lambda: all(map(gone, begun(tmp_path))))
    assert not list((folder / "work").iterdir())


def test_sigterm_while_a_kernel_compiles(script, tmp_path, folder):
    slow = script(f"{VERSION}echo $$ >> {tmp_path}/begun; sleep 0.3; exec REAL \"$@\"")
    child = begin("check()", folder, CXX=str(slow), TILEDARRAY_COMPILE="wait")
    wait_until(lambda: begun(tmp_path))
    child.terminate()
    assert ended(child)[0] == -signal.SIGTERM
    child = begin("check()", folder, CXX=str(slow), TILEDARRAY_COMPILE="wait")
    assert ended(child)[::2] == (0, "")


def test_other_threads_evaluate_while_one_waits_for_the_compiler(hangs, tmp_path, folder):
    child = begin("""
        def work():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                check()
            print("at last", flush=True)

        thread = threading.Thread(target=work)
        thread.start()
        while not os.path.exists("begun"):
            time.sleep(0.01)
        with config.override(compile="never"):
            check(2.0)
            if os.fork() == 0:
                check(3.0)
                os._exit(0)
            assert os.waitstatus_to_exitcode(os.wait()[1]) == 0
            print("meanwhile", flush=True)
        thread.join()
    """, folder, CXX=str(hangs), TILEDARRAY_COMPILE="wait", TILEDARRAY_COMPILE_SECONDS="3")
    status, out, messages = ended(child)
    assert (status, messages) == (0, "")
    assert out.split("\n")[:2] == ["meanwhile", "at last"]


def test_ctrl_c_at_the_terminal_leaves_the_background_compiler_alone(script, tmp_path, folder):
    program = script(f"{VERSION}echo $$ >> {tmp_path}/begun; sleep 0.5; : > {tmp_path}/lived")
    child = subprocess.Popen(
        [sys.executable, "-c", PRELUDE + textwrap.dedent("""
            while not os.path.exists("begun"):
                check()
            try:
                time.sleep(10)
            except KeyboardInterrupt:
                time.sleep(0.8)
        """)], cwd=tmp_path, start_new_session=True, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TILEDARRAY_CACHE_DIR": str(folder),
             "TILEDARRAY_DEVICE": "cpu", "CXX": str(program)},
    )  # fmt: skip
    wait_until(lambda: begun(tmp_path))
    time.sleep(0.1)
    os.killpg(child.pid, signal.SIGINT)  # as the terminal does
    assert ended(child)[::2] == (0, "")
    assert (tmp_path / "lived").exists()


@pytest.mark.parametrize("end", ["os._exit(0)", "sys.exit(0)"])
def test_a_fork_while_kernels_compile(end, script, tmp_path, folder):
    program = script(f"{VERSION}echo $$ >> {tmp_path}/begun; sleep 3; : > {tmp_path}/lived")
    child = begin(f"""
        while not os.path.exists("begun"):
            check()
        if os.fork() == 0:
            check(7.0)
            {end}
        assert os.wait()[1] == 0
        assert not os.path.exists("lived")
        while not os.path.exists("lived"):
            time.sleep(0.05)
    """, folder, CXX=str(program))
    assert ended(child) == (0, "", "")
    assert (tmp_path / "lived").exists()


AT_EXIT = """
    import atexit
    import os

    def evaluate():
        for _ in range(3):
            check()
            x = np.array(numpy.arange(400_000.0))
            assert float((np.sqrt(x) + x * 2 - np.exp(-x)).sum()) > 0  # by several threads
        print("right", flush=True)

    atexit.register(evaluate)
    {before}
"""


@pytest.mark.sampled(2)
@pytest.mark.parametrize("compile, before", [
    ("never", ""), ("wait", ""), ("wait", "check()"), ("background", "evaluate()")])
def test_arrays_are_evaluated_in_exit_handlers(compile, before, folder, shared):
    child = begin(AT_EXIT.format(before=before), shared, TILEDARRAY_COMPILE=compile,
                  TILEDARRAY_THREADS="3")  # fmt: skip
    status, out, messages = ended(child)
    assert (status, out.split(), messages) == (0, ["right"] * (1 + (before == "evaluate()")), "")


def test_compilers_that_are_stopped_at_exit_are_nobodys_failure(script, tmp_path, folder):
    """A handler that runs after they were stopped computes op by op, and is not warned."""
    program = script(f"{VERSION}: > {tmp_path}/begun; sleep 5")
    before = """
    evaluate()
    while not os.path.exists("begun"):
        check()
    evaluate = lambda: None"""
    code = AT_EXIT.format(before=before).replace(
        "for _ in range(3):", "__import__('time').sleep(0.7)\n        for _ in range(3):")
    child = begin(code, folder, CXX=str(program), TILEDARRAY_COMPILE="background",
                  TILEDARRAY_THREADS="3")
    status, out, messages = ended(child)
    assert (status, out.split(), messages) == (0, ["right"] * 2, "")


def test_a_handler_registered_before_the_import_compiles(folder):
    code = """
        import atexit
        atexit.register(lambda: check())
        import tiledarray
    """
    child = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code) + PRELUDE], text=True, capture_output=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TILEDARRAY_CACHE_DIR": str(folder),
             "TILEDARRAY_DEVICE": "cpu", "TILEDARRAY_COMPILE": "wait"}, check=False,
    )  # fmt: skip
    assert (child.returncode, child.stderr) == (0, "")
    assert list(folder.glob("*/*.so"))


def test_threads_that_cannot_be_started(monkeypatch):
    def refuse(self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    monkeypatch.setattr(threads, "_helpers", threads._Helpers())
    done = []
    threads.together(done.append, range(4))
    assert sorted(done) == [0, 1, 2, 3]
    assert threads.all_of(lambda k: k * k, range(5), 3) == [0, 1, 4, 9, 16]


# ---- the end of a program --------------------------------------------------------------------

SILENT = """
    import json
    from tiledarray.devices import pool

    for compile in ("background", "wait", "never"):
        config.compile = compile
        check(compile == "wait")
    if os.fork() == 0:
        check()
        sys.exit(0)
    assert os.wait()[1] == 0
    x = np.array(numpy.arange(300_000.0))
    json.kept = [(x * k).numpy() for k in range(3)], x + 1, np.jit(lambda x: x * 2)(x)
    del x
    sys.kept = [{kept}]
"""


@pytest.mark.parametrize("kept, size", [("config, pool, json", "1GB"), ("pool, json", "0")])
def test_nothing_is_said_at_exit(kept, size, shared):
    child = begin(SILENT.format(kept=kept), shared, TILEDARRAY_POOL_BYTES=size,
                  PYTHONDEVMODE="1", PYTHONWARNINGS="error")  # fmt: skip
    assert ended(child) == (0, "", "")


FINALISERS = {
    "a generator that nobody closes": """
        def totals():
            x = np.arange(3_000_000.0)
            try:
                while True:
                    x += np.sin(x)
                    yield float((x * 2 + np.cos(x)).sum())
            finally:
                print("found", float((np.ones(600_000) * 2 + 1).sum()))

        going = totals()
        for _ in range({before}):
            next(going)
        next(going)
    """,
    "a cycle": """
        class Log:
            def __init__(self):
                self.values = np.zeros(600_000)
                self.flush = lambda: print("found", float((self.values * 2 + 3).sum()))

            def __del__(self):
                self.flush()

        for _ in range({before}):
            float((np.sqrt(np.arange(2_000_000.0)) * 2).sum())
        Log()
    """,
    "a module's object": """
        class Log:
            def __init__(self):
                self.values = np.zeros(600_000)
                for _ in range({before}):
                    self.values += np.sqrt(np.arange(600_000.0))

            def __del__(self):
                print("found", float((self.values * 0 + 3).sum()))

        kept = Log()
    """,
    "beside a thread that computes": """
        class Log:
            def __init__(self):
                self.values, self.me = np.zeros(600_000), self

            def __del__(self):
                print("found", float((self.values * 2 + 3).sum()))

        def work():
            x = np.ones(600_000)
            for _ in range(10_000 * {before}):
                float((np.sqrt(x) * 2 + x).sum())

        threading.Thread(target=work, daemon=True).start()
        time.sleep(0.3)
        Log()
    """,
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("before", [1, 6])
@pytest.mark.parametrize("kind", FINALISERS)
def test_finalisers_that_compute_while_the_interpreter_exits(kind, before, folder):
    child = begin(FINALISERS[kind].format(before=before), folder)
    started = time.monotonic()
    assert ended(child) == (0, "found 1800000.0\n", "")
    assert time.monotonic() - started < 60


CHILDREN = """
    import multiprocessing

    def work(k):
        x = np.array(numpy.arange(500_000.0))
        for _ in range(3):
            y = np.sqrt(x) + k
            float((y[::-1] * y.sum() * (x * 2).max()).min())
        {wait}

    context = multiprocessing.get_context("fork")
    children = [context.Process(target=work, args=(k,)) for k in range(2)]
    for child in children:
        child.start()
    for child in children:
        child.join()
    assert [child.exitcode for child in children] == [0, 0]
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_children_of_multiprocessing_leave_no_compiler(hangs, tmp_path, folder):
    wait = "while not os.path.exists('begun'): time.sleep(0.01)"
    child = begin(CHILDREN.format(wait=wait), folder, CXX=str(hangs))
    assert ended(child)[0::2] == (0, "")
    wait_until(lambda: all(map(gone, begun(tmp_path))))
    assert not list((folder / "work").iterdir())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_children_of_multiprocessing_leave_no_temporary_folder(tmp_path, folder):
    (tmp_path / "temporary").mkdir()
    folder.write_text("no folder")
    child = begin(CHILDREN.format(wait=""), folder, TMPDIR=str(tmp_path / "temporary"),
                  TILEDARRAY_COMPILE="wait", TILEDARRAY_FIRST_SECONDS="0")
    status, _, messages = ended(child)
    assert status == 0 and "cannot be kept" in messages
    assert not list((tmp_path / "temporary").iterdir())
