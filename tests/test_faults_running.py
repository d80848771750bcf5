"""Signals, and memory that runs out, while programs run: nothing is lost or done twice."""

import dis
import functools
import importlib
import itertools
import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import numpy
import pytest

import tiledarray as np
from tests.plans import planned
from tiledarray import config
from tiledarray.arrays import tracing
from tiledarray.config import override
from tiledarray.core import Block, forget_programs, kind
from tiledarray.devices import device
from tiledarray.devices.pool import HostPool
from tiledarray.errors import OutOfMemory
from tiledarray.execution import evaluate, plans
from tiledarray.execution.executable import Executable
from tiledarray.gradients import again
from tiledarray.recording import history, segments, stretch
from tiledarray.transforms import trees

ROOT = Path(__file__).parents[1]
MANY = 400_000
TIERS = [pytest.param("wait", marks=pytest.mark.compiler), "never"]


class TimeOut(Exception):
    """What a program's own handler raises."""


@pytest.fixture
def interrupted():
    """Return what does work while a handler raises after so many seconds, and whether it did."""
    raised = [KeyboardInterrupt]

    def handler(*_):
        raise raised[0]

    def interrupted(work, seconds, error):
        raised[0] = error
        try:
            try:
                signal.setitimer(signal.ITIMER_REAL, seconds)
                work()
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
        except error:
            return True
        return False

    before = signal.signal(signal.SIGALRM, handler)
    yield interrupted
    signal.signal(signal.SIGALRM, before)


def seconds_of(work):
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


@pytest.mark.parametrize("error", [KeyboardInterrupt, TimeOut])
@pytest.mark.parametrize("compile", TIERS)
def test_an_interrupted_write_in_place_is_done_once_or_not_yet(compile, error, interrupted):
    def written(n=10 * MANY):  # kernels long enough to be hit
        array = np.evaluate(np.array(numpy.zeros(n)))
        array[: n // 2] += 5.0
        return array

    with override(compile=compile):
        usual = min(seconds_of(lambda array=array: np.evaluate(array))
                    for array in [written() for _ in range(4)])
        hits = 0
        for k in range(30):
            array = written()
            hits += interrupted(lambda array=array: np.evaluate(array), usual * (0.1 + k / 30),
                                error)
            assert float(array[0]) == 5.0 and float(array[5 * MANY]) == 0.0
        assert hits


def writes(np, array):
    """Views, writes in place and values that lie between them."""
    half = array[: MANY // 2] * 2
    array[: MANY // 2] += 5
    high = np.sqrt(np.sort(array)[::-1] + 1)
    total = half + array[MANY // 2:]
    array[1:] += array[:-1] * 0 + 1
    return array, half, high, total, array.copy(), array.sum()


@pytest.mark.parametrize("error", [KeyboardInterrupt, TimeOut])
@pytest.mark.parametrize("compile", TIERS)
def test_interrupts_at_any_moment_lose_nothing_and_are_never_swallowed(compile, error, interrupted):
    start = numpy.arange(float(MANY)) % 97
    wanted = writes(numpy, start.copy())
    draw = random.Random(7)
    with override(compile=compile):
        for _ in range(3):
            usual = seconds_of(lambda: np.evaluate(*writes(np, np.array(start))))
        for _ in range(12):
            found = []

            def work(found=found):
                found += writes(np, np.array(start))  # recording, planning and running
                np.evaluate(*found)
                found.append("done")

            fired = interrupted(work, draw.random() * usual, error)
            assert fired == (found[-1:] != ["done"])
            for ours, theirs in zip(found[:len(wanted)], wanted if found else (), strict=True):
                numpy.testing.assert_array_equal(numpy.asarray(ours), theirs)


def test_a_time_out_during_a_look_is_seen(interrupted):
    other = np.arange(float(MANY))[::-1] * 1.0
    slow = np.sort(np.sin(np.arange(20.0 * MANY)))
    assert interrupted(lambda: float(slow[5]), 0.02, TimeOut)
    numpy.testing.assert_array_equal(numpy.asarray(other), numpy.arange(float(MANY))[::-1])


@pytest.mark.parametrize("compile", TIERS)
def test_memory_that_runs_out_anywhere_leaves_all_arrays_intact(compile, monkeypatch):
    start = numpy.arange(float(MANY)) % 97
    wanted = writes(numpy, start.copy())
    take = HostPool.array
    with override(compile=compile):
        for _ in range(3):
            np.evaluate(*writes(np, np.array(start)))
        failed = 0
        for allowed in range(12):
            found = writes(np, np.array(start))
            left = [allowed]

            def scarce(pool, shape, dtype, left=left):
                left[0] -= 1
                if left[0] < 0:
                    raise OutOfMemory("no host memory", nbytes=1)
                return take(pool, shape, dtype)

            with monkeypatch.context() as patch:
                patch.setattr(HostPool, "array", scarce)
                try:
                    np.evaluate(*found)
                except MemoryError:
                    failed += 1
            for ours, theirs in zip(found, wanted, strict=True):
                numpy.testing.assert_array_equal(numpy.asarray(ours), theirs)
        assert failed


def test_plans_that_could_lose_what_they_overwrite_are_known():
    x = np.evaluate(np.array(numpy.arange(40_000.0).reshape(200, 200)))
    before = np.sort(x * 2, axis=0)  # stored, before `x` is overwritten
    x[1:] += 1
    after = np.sort(before * x, axis=0)  # computed from it afterwards
    plan = planned(x, after)
    leaves = [base for value, base in plan.memory.items() if base is not value]
    assert leaves, "the update is done in place"
    for values in map(plans.written, plan.steps):
        for value in values:
            plan.entry.setdefault(value, [0])
    assert not plans._loses_on_failure(plan)
    plan.entry.clear()  # as if the planner had made all of it for itself
    assert plans._loses_on_failure(plan)


def test_an_update_of_one_thread_is_not_seen_by_what_another_has_pending():
    for compile in ("never", "wait", "background"):
        with override(compile=compile):
            array = np.evaluate(np.arange(4200.0))
            view = array[1:]
            pending = view * 2

            def work(view=view):
                np.add(view, 5, out=view)
                np.evaluate(view)

            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
            numpy.testing.assert_array_equal(numpy.asarray(pending), 2 * numpy.arange(1, 4200.0))
            numpy.testing.assert_array_equal(numpy.asarray(view), numpy.arange(6, 4205.0))


def test_what_is_pending_behind_a_failure_is_not_overwritten():
    array = np.evaluate(np.arange(4200.0))
    view = array[1:]
    quotient = np.divmod(view, 3, out=(view, np.zeros(4199)))
    numpy.testing.assert_array_equal(numpy.asarray(quotient[1]), numpy.arange(1, 4200.0) % 3)
    numpy.testing.assert_array_equal(numpy.asarray(view), numpy.arange(1, 4200.0) // 3)


def run(script, *arguments, seconds=120):
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), *arguments], cwd=ROOT, timeout=seconds,
        capture_output=True, text=True, check=False,
    )


def test_sigterm_ends_a_program_by_its_own_handler():
    done = run("""
        import signal, sys, os, threading, numpy, tiledarray as np
        def handler(*_): raise SystemExit(7)
        signal.signal(signal.SIGTERM, handler)
        threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGTERM)).start()
        x = np.array(numpy.arange(3e6))
        while True:
            x[1:] += x[:-1] * 1e-9
            float(x.sum())
    """)
    assert done.returncode == 7 and not done.stderr, done.stderr


@pytest.mark.slow
def test_memory_is_flat_over_many_shapes():
    done = run("""
        import resource, sys, numpy, tiledarray as np
        np.config.compile = "never"
        def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        def rounds(first, last):
            for k in range(first, last):
                x = np.arange(float(20 + k % 97))
                x[1:] += x[:-1] * 0.5
                assert x.sum() >= 0
        rounds(0, 200)
        before = peak()
        rounds(200, 600)
        print(peak() - before)
    """)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 20_000  # KiB


def whole(frame):
    """Every byte code of the function that takes the graph over."""
    return frame.f_code is evaluate._evaluate.__code__, None


# Where CPython runs signal handlers: after these, and nowhere else.
CHECKED = {dis.opmap[name] for name in ("CALL", "RESUME", "JUMP_BACKWARD", "CALL_FUNCTION_EX")}


def checked(frame):
    """Where handlers run, anywhere in the library."""
    return "/tiledarray/" in frame.f_code.co_filename, CHECKED


told_for_311 = pytest.mark.skipif(
    sys.version_info[:2] != (3, 11), reason="byte codes differ from version to version; where they "
    "are checked is told for 3.11")


def interrupted_at(at, work, where):
    """Interrupt work before the byte code of that number; return how many came before the end."""
    passed, before = 0, {}

    def each(frame, event, _):
        nonlocal passed
        frame.f_trace_opcodes = True
        if event == "opcode":
            _, only_after = where(frame)
            last = before.get(id(frame))
            before[id(frame)] = frame.f_code.co_code[frame.f_lasti]
            if only_after is None or last in only_after:
                passed += 1
                if passed == at:
                    raise KeyboardInterrupt
        elif event == "return":
            before.pop(id(frame), None)
        return each

    tracing = sys.gettrace()
    sys.settrace(lambda frame, event, _: each(frame, event, _) if where(frame)[0] else None)
    try:
        work()
        assert not 0 < at <= passed, "nobody was told"
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(tracing)
    return passed


@pytest.mark.sampled(2)
@told_for_311
@pytest.mark.parametrize(("where", "known"), [(whole, False), (checked, False), (checked, True)])
@pytest.mark.parametrize("compile", TIERS)
def test_an_evaluation_interrupted_between_any_two_byte_codes_loses_nothing(compile, where, known):
    def run(at):
        """Interrupt before the byte code of that number; return whether there was one."""
        x = np.zeros(MANY)
        float(x[0])
        x[5:] += 1.0
        if not known:
            forget_programs()  # else the core runs it, and few byte codes are left
        passed = interrupted_at(at, lambda: float(x[7]), where)
        numpy.testing.assert_array_equal(x, numpy.r_[numpy.zeros(5), numpy.ones(MANY - 5)])
        return passed >= at

    with override(compile=compile):
        run(0)
        run(0)  # planned and compiled
        at = 1
        while run(at):
            at += 1
    assert at > 11


@pytest.mark.compiler
@told_for_311
def test_a_jit_call_writes_all_of_its_arguments_or_none():
    def step(*many):
        for u in many:
            u += 1

    with override(compile="wait", at_once=0):
        jitted = np.jit(step)
        arrays = [np.array(numpy.zeros(300)) for _ in range(5)]
        jitted(*arrays)
        written, place = 0, 1
        while True:
            before = [float(u[0]) for u in arrays]
            passed = interrupted_at(place, lambda: jitted(*arrays), checked)
            done = [float(u[0]) - x for u, x in zip(arrays, before, strict=True)]
            assert done in ([0] * 5, [1] * 5), place
            if passed < place:
                break
            written, place = written + (done[0] > 0), place + 1
        assert 0 < written < place - 1


@pytest.mark.compiler
@pytest.mark.parametrize("error", [TimeOut, TimeoutError])
def test_what_a_handler_raises_is_no_failure_of_the_compiler(error, monkeypatch):
    forget_programs()
    prepare, raised = Executable._prepare, []

    def interrupted(executable):
        if not raised:
            raised.append(error("a handler's"))
            raise raised[0]
        prepare(executable)

    monkeypatch.setattr(Executable, "_prepare", interrupted)
    x = numpy.linspace(0.1, 2, 1237 + len(error.__name__))  # a plan of its own
    with override(compile="wait", at_once=0):
        jitted = np.jit(lambda x: np.sin(x) / (x + 0.37) ** 2)
        with pytest.raises(error, match="a handler's"):
            jitted(np.array(x))
        numpy.testing.assert_allclose(jitted(np.array(x)), numpy.sin(x) / (x + 0.37) ** 2)
        raised.clear()
        forget_programs()
        y = np.cos(np.array(x)) / (np.array(x) + 0.73) ** 3
        with pytest.raises(error, match="a handler's"):
            y.numpy()
        numpy.testing.assert_allclose(y.numpy(), numpy.cos(x) / (x + 0.73) ** 3)


NO_MEMORY = """
    import numpy, tiledarray as np, _testcapi

    np.config.compile, np.config.at_once, np.config.first_seconds = "wait", 0, 0
    for _ in range(300):  # numbers beyond those that Python has ready
        a = np.array(numpy.zeros(2000))
        a[1:-1] += 1.0
        np.evaluate(a)
    for allocation in range(1, 60):
        a = np.array(numpy.zeros(2000))
        np.evaluate(a)
        a[1:-1] += 1.0
        _testcapi.set_nomemory(allocation, allocation + 1)
        try:
            np.evaluate(a)
        except (MemoryError, SystemError):
            pass
        finally:
            _testcapi.remove_mem_hooks()
        assert float(a[5]) == 1.0, allocation
"""


@pytest.mark.compiler
def test_no_memory_for_the_account_of_a_run_does_not_repeat_it():
    pytest.importorskip("_testcapi")
    done = run(NO_MEMORY)  # not in here: other threads would have no memory either
    assert done.returncode == 0, done.stderr


@pytest.mark.compiler
@told_for_311
def test_a_jit_call_changes_its_arrays_and_dicts_or_neither():
    def step(held, u):
        u += 1
        held["k"] = held["k"] * 2

    with override(compile="wait", at_once=0):
        jitted = np.jit(step)
        ones = np.evaluate(np.array(numpy.ones(300)))
        jitted({"k": ones}, np.array(numpy.zeros(300)))
        for place in itertools.count(1):
            held, u = {"k": ones}, np.evaluate(np.array(numpy.zeros(300)))
            passed = interrupted_at(place, functools.partial(jitted, held, u), checked)
            assert (float(held["k"][0]), float(u[0])) in ((1, 0), (2, 1)), place
            if passed < place:
                break
    assert place > 20


@told_for_311
def test_several_results_are_stored_in_all_outputs_or_in_none():
    with override(at_once=0):
        x = np.array(numpy.arange(300.0) + 0.5)
        for place in itertools.count(1):
            parts, wholes = np.zeros(300), np.zeros(300)
            work = functools.partial(np.modf, x, out=(parts, wholes))
            passed = interrupted_at(place, work, checked)
            assert (float(parts[1]), float(wholes[1])) in ((0, 0), (0.5, 1)), place
            if passed < place:
                break
    assert place > 20


def checked_outside_of_the_twins_limits(frame):
    """The twin's blocks have a beginning of their end; Python swallows what callbacks raise."""
    inside, after = checked(frame)
    of_twin = kind == "python" and (
        frame.f_code is Block.__exit__.__code__
        or frame.f_code.co_qualname == "Node.keep.<locals>.<lambda>")
    return inside and not of_twin, after


@pytest.mark.sampled(3)
@told_for_311
@pytest.mark.parametrize("way", ["jit", "grad", "vmap", "loop", "settings", "device"])
def test_nothing_is_traced_or_differentiated_any_more_after_an_interrupt(way):
    def step(u):
        return (u * u).sum()

    def inside(block):
        with block:
            return np.evaluate(np.sqrt(x).sum())

    def work():
        return {"settings": lambda: inside(override(threads=1, device="cpu", grad_memory=10**6)),
                "device": lambda: inside(np.device("cpu")),
                "jit": lambda: np.jit(step)(x), "grad": lambda: np.grad(step)(x),
                "vmap": lambda: np.vmap(step)(x[None]),
                "loop": lambda: np.fori_loop(2, lambda i, u: u * 2, x)}[way]()

    x = np.array(numpy.arange(300.0))
    work()
    for place in itertools.count(1):
        passed = interrupted_at(place, work, checked_outside_of_the_twins_limits)
        assert not tracing._under_way and not history._inside.depth, place
        assert not config._layers and not device._blocks and device._chosen.get() is None, place
        assert not segments._passing.depth and config.grad_memory is None, place
        assert not again._wholes and type(stretch.local.recorder) is stretch.Recorder, place
        assert float(x.sum()) == 300 * 299 / 2
        with (override(at_once=1000), numpy.errstate(divide="raise"),
              pytest.raises(FloatingPointError)):
            np.ones(3) / np.zeros(3)
        if passed < place:
            break
    assert place > 100


# ---- what a handler raises is not lost -----------------------------------------------------------

STORM = """
import random, signal, sys, time
import numpy, tiledarray as np

class TimeOut({kind}):
    pass

fired = []

def handler(*_):
    fired.append(1)
    raise TimeOut

signal.signal(signal.SIGALRM, handler)
x = np.array(numpy.arange(400.0))

{work}

for _ in range(100):
    work()
numbers, lost, seen, until = random.Random(1), 0, 0, time.time() + 2
while time.time() < until:
    before = len(fired)
    try:
        try:
            signal.setitimer(signal.ITIMER_REAL, numbers.uniform(1e-6, 2e-4))
            work()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        lost += len(fired) > before
    except TimeOut:
        seen += 1
print(seen > 100, lost)
"""


OF_ARRAYS = """
def work():
    v = np.sqrt(x) * 0.5
    y = v / (np.abs(x) + 1)
    z = y.sum() * 1e-3
    y[2] = 3.5
    y *= np.tanh(z)
    y -= 0.5
    str(y[:2])
"""
JITTED = """
scales = {"first": 2.0, "second": [3.0]}

@np.jit
def f(a, b):
    return a * scales["first"] + b * scales["second"][0]

def work():
    for _ in range(4):
        f(x, x)
"""
FAILING = """
matrices = numpy.random.default_rng(0).standard_normal((40, 5, 5)) + 6 * numpy.eye(5)
matrices[15] = 0
a, b, o = np.array(matrices), np.ones((40, 5, 2)), np.zeros((40, 5, 2))

@np.jit
def f(a, b, o):
    for k in range(4):
        o[k::4] = a[k::4, :, :2] + o[k::4]
    o[...] = o + np.linalg.solve(a, b)

def work():
    try:
        f(a, b, o)
    except np.linalg.LinAlgError:
        pass
"""


@pytest.mark.sampled(12)
@pytest.mark.compiler
@pytest.mark.parametrize("core", ["c", "python"])
@pytest.mark.parametrize(("work", "kind"), [
    (OF_ARRAYS, "Exception"), (OF_ARRAYS, "MemoryError"), (OF_ARRAYS, "OSError"),
    (OF_ARRAYS, "RuntimeError"), (JITTED, "RuntimeError"), (JITTED, "LookupError"),
    (FAILING, "BaseException"), (FAILING, "ValueError")])
def test_what_a_handler_raises_is_never_lost(core, work, kind):
    """Be it what the library has its own way to go on after."""
    root = str(Path(__file__).parents[1])
    result = subprocess.run(
        [sys.executable, "-c", STORM.replace("{kind}", kind).replace("{work}", work)],
        capture_output=True, text=True, timeout=100, cwd=root,
        env={**os.environ, "PYTHONPATH": root, "TILEDARRAY_CORE": core, "TILEDARRAY_AT_ONCE": "1",
             "TILEDARRAY_FIRST_SECONDS": "0.0", "TILEDARRAY_COMPILE": "wait"})
    assert result.stdout.split() == ["True", "0"], result.stdout + result.stderr[-2000:]


def test_optree_is_imported_where_no_handler_runs(monkeypatch):
    """One that raises while it registers its types would leave it broken for good."""
    threads = []

    def imported(name):
        threads.append(threading.current_thread())
        return importlib.import_module(name)

    monkeypatch.setattr(trees, "import_part", imported)
    trees._optree.cache_clear()
    assert trees._optree() is importlib.import_module("optree")
    assert len(threads) == 1 and threads[0] is not threading.main_thread()


LEAKED = """
import _imp, sys, threading
import numpy, tiledarray as np
x = np.ones(5000)
_imp.acquire_lock()  # what an import leaves that was interrupted (CPython 3.11)
assert np.grad(lambda u: (u * u).sum())(x)[0] == 2
_imp.acquire_lock()
assert ((np.sqrt(x) + 1).numpy() == 2).all()
print(_imp.lock_held())

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "rightly_held":
            np.array([1.0])
            free_imports()
            print(_imp.lock_held())

from tiledarray.fork import free_imports
sys.meta_path.insert(0, Finder())
try:
    import rightly_held
except ModuleNotFoundError:
    print("not found")
"""


@pytest.mark.compiler
def test_an_interrupted_import_does_not_stop_other_threads_for_ever(tmp_path):
    root = str(Path(__file__).parents[1])
    result = subprocess.run(
        [sys.executable, "-c", LEAKED], capture_output=True, text=True, timeout=60, cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": root, "TILEDARRAY_COMPILE": "wait",
             "TILEDARRAY_CACHE_DIR": str(tmp_path / "cache")})
    held = sys.version_info < (3, 12)  # by the finder's import; later ones lock modules alone
    assert result.stdout.split("\n")[:1] == ["False"], result.stdout + result.stderr[-2000:]
    assert result.stdout.split("\n")[-2] == "not found"
    assert not held or result.stdout.split("\n")[1] == "True"


# ---- nothing left to restore with ----------------------------------------------------------------

DEEP = """
import sys, numpy
import tiledarray as np

def work():
    a = np.array(numpy.arange(4000.0))
    np.evaluate(a)
    a[1:-1] += 1
    a *= 0.5
    return a

def look(a, depth):
    return numpy.asarray(a) if depth == 0 else look(a, depth - 1)

wanted = numpy.arange(4000.0)
wanted[1:-1] += 1
wanted *= 0.5
for _ in range(4):
    np.evaluate(work())
failed = 0
for depth in range(sys.getrecursionlimit() - 60, sys.getrecursionlimit()):
    a = work()
    try:
        look(a, depth)
    except Exception:
        failed += 1
    assert numpy.array_equal(numpy.asarray(a), wanted), depth
assert failed
"""

WITHOUT_MEMORY = """
import os, numpy, _testcapi
import tiledarray as np

start = np.array(numpy.ones(4000))

@np.jit
def change(x, y):
    x[1:] += 0.25 * y[:-1]
    y *= 0.5

def work():
    c = np.array(numpy.arange(4000.0))
    a = c * 1.0
    change(start[180:2180], c[112:2112])
    a[1:-1] += 1
    a *= 0.5
    return a

wanted = numpy.arange(4000.0)
wanted[1:-1] += 1
wanted *= 0.5
for _ in range(5):
    work().numpy()
failed, lost = 0, []
for first, many in [(k, 8) for k in range(60, 260, 4)] + [(k, 400) for k in range(60, 260, 10)]:
    child = os.fork()
    if not child:
        a = work()
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        raised = 0
        try:
            _testcapi.set_nomemory(first, first + many)
            try:
                a.numpy()
            finally:
                _testcapi.remove_mem_hooks()
        except MemoryError:
            raised = 1
        except BaseException:
            os._exit(4)
        try:
            os._exit(raised if numpy.array_equal(a.numpy(), wanted) else 2)
        except BaseException:
            os._exit(3)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    failed += status == 1
    if status not in (0, 1):
        lost.append((first, many, status))
assert failed and not lost, (failed, lost)
"""


@pytest.mark.parametrize("core", ["c", "python"])
@pytest.mark.parametrize("code", [
    pytest.param(DEEP, id="frames", marks=pytest.mark.compiler),
    pytest.param(WITHOUT_MEMORY, id="memory", marks=pytest.mark.skipif(
        not hasattr(os, "fork") or importlib.util.find_spec("_testcapi") is None,
        reason="the system has no fork, or this Python cannot be made to fail")),
])
@pytest.mark.sampled(2)
def test_an_evaluation_that_has_nothing_left_to_restore_with_loses_nothing(code, core, tmp_path):
    if core == "c" and kind != "c":
        pytest.skip("the extension may not be built")
    settings = {"TILEDARRAY_COMPILE": "wait", "TILEDARRAY_FIRST_SECONDS": "0.0"}
    if code == WITHOUT_MEMORY:
        settings = {"TILEDARRAY_COMPILE": "never", "TILEDARRAY_FIRST_SECONDS": "0.2"}
    child = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", code], text=True,
        capture_output=True, timeout=120, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TILEDARRAY_CACHE_DIR": str(tmp_path),
             "TILEDARRAY_AT_ONCE": "0", "TILEDARRAY_CORE": core, **settings})
    assert child.returncode == 0, child.stderr[-3000:]
