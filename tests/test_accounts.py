"""Where the time of a run goes, as `--explain` tells it, and what is made of it."""

import gc
import signal
import threading
import time
from collections import Counter
from textwrap import dedent

import numpy
import pytest

import tiledarray as np
from tiledarray import config
from tiledarray.core import kind as core_kind
from tiledarray.execution import evaluate, executable, spans
from tiledarray.insight.clock import TICK, Accounts, Clock, Look
from tiledarray.insight.session import Session
from tiledarray.insight.verdicts import Facts, first_run
from tiledarray.recording.stretch import fallbacks, local

NAMED = 0.95


@pytest.fixture(autouse=True)
def as_users_run():
    local.recorder.reset()
    fallbacks.clear()
    with config.override(device="cpu", verify=False, at_once=1 << 16, first_seconds=0.2):
        yield
    local.recorder.reset()


def explained(program, *, file="program.py", usual=lambda accounts: True, **names):
    """Run a program under a session; its accounts add up to the time that it took.

    A moment in which the machine did something else is some call's, and may not be told apart:
    then, or where that call has more than is ``usual``, the program is run again.
    """
    return told_apart((_explained(program, file, names) for _ in range(5)), usual)


def told_apart(sessions, usual=lambda accounts: True):
    """Return the first session whose time has its names."""
    for session in sessions:
        accounts = session.accounts
        if accounts.named >= NAMED and accounts.beyond < 0.02 * accounts.wall and usual(accounts):
            return session
    pytest.fail(str(accounts))


def _explained(program, file, names):
    code = compile(dedent(program), file, "exec")
    variables = {"__name__": "__main__", "np": np, **names}
    session = Session(file)
    with session:
        started = time.perf_counter()
        exec(code, variables)
        took = time.perf_counter() - started
    accounts = session.accounts
    assert sum(accounts.seconds.values()) == pytest.approx(accounts.wall)
    assert took <= accounts.wall < took + 0.1
    assert min(accounts.seconds.values()) >= 0, accounts.seconds
    return session


def only_verdict(session):
    assert len(session.verdicts) == 1, str(session)
    verdict = session.verdicts[0]
    assert verdict.text in str(session).replace("\n    ", " ")
    return verdict.text


def test_loops_over_elements():
    session = explained("""
        x = np.linspace(0, 1, 200)
        total = 0.0
        for _ in range(300):
            for k in range(200):
                total += float(x[k])
                x[k] = 0.5
    """, usual=lambda accounts: accounts.share("elements", "reads", "Python", "telling") > 0.9)
    accounts = session.accounts
    assert sum(place.count for place in accounts.places["elements"]) == 2 * 300 * 200
    assert sum(place.count for place in accounts.places["reads"]) == 300 * 200
    assert accounts.share("elements") > 0
    text = only_verdict(session)
    assert text.startswith("120,000 elements read or written one by one on ")
    assert "program.py:6, 7" in text or "program.py:7, 6" in text
    assert "done by NumPy itself: nothing" in str(session)


def test_times_of_elements_are_about_what_they_are_alone():
    x = np.linspace(0, 1, 200)
    empty = least(lambda: [None for _ in range(1000)])
    alone = (least(lambda: [x[7] for _ in range(1000)]) - empty) / 1000
    places = explained("for _ in range(20000): x[7]", x=x).accounts.places["elements"]
    each = sum(place.seconds for place in places) / 20000
    assert alone / 5 < each < alone * 5


def least(work):
    times = []
    for _ in range(100):  # short ones: nothing else may run meanwhile
        started = time.perf_counter()
        work()
        times.append(time.perf_counter() - started)
    return min(times)


def test_many_small_operations():
    session = explained("""
        def step(x):
            return np.exp(x * 0.5) - x[::-1]

        x = np.linspace(0, 1, 300)
        for _ in range(5000):
            y = step(x)
    """)
    accounts = session.accounts
    assert 15_000 <= sum(place.count for place in accounts.places["at once"]) <= 21_000
    assert accounts.share("at once") > 0.25
    assert accounts.share("at once", "Python", "telling") > 0.9
    text = only_verdict(session)
    assert "operations on arrays of about 300 elements on program.py:3" in text
    assert "`jit` this loop" in text


def test_many_small_looks():
    with config.override(at_once=1, compile="never"):
        session = explained("""
            x = np.linspace(0, 1, 500)
            for k in range(200):
                s = float((x * k).sum())
        """)
    text = session.verdicts[0].text
    assert text.startswith("200 looks at arrays of about 500 elements from program.py:4, ")
    assert "NumPy would be as fast; `jit` this loop" in text
    looks = session.accounts.looks
    assert sum(look.count for look in looks) == 200 and all(look.asked for look in looks)


def test_plans_made_again_because_the_shape_changes():
    with config.override(first_seconds=0.0, compile="never"):
        session = explained("""
            total = 0.0
            for k in range(12):
                x = np.linspace(0, 1, 100_000 + 1000 * k)
                total += float((np.sin(x) * k).sum())
        """)
    assert session.counters["plans made"] == 12
    texts = [verdict.text for verdict in session.verdicts]
    assert any(text.startswith("a plan made 12 times because its shape changes: program.py:5;")
               for text in texts), texts
    assert session.accounts.seconds["planning"] > 0


def test_evaluations_of_which_none_comes_again():
    program = """
        total = 0.0
        for k in range(12):
            x = np.linspace(0, 1, start + 1000 * k)
            total += float((np.cos(x) / (k + 1)).sum())
    """
    session = told_apart(_explained(program, "program.py", {"start": start})
                         for start in (100_000, 200_000, 300_000))
    assert session.counters["plans made"] == 0
    assert only_verdict(session).startswith(
        "12 evaluations of other shapes each time, op by op, since none came again: program.py:5;")


@pytest.mark.compiler
def test_one_large_program_has_nothing_wrong():
    program = """
        for _ in range(5):
            y = np.exp(-(x ** 2)) * np.sin(5 * x) + np.tanh(x)
            m = float(y.max())
    """
    x = np.linspace(0, 1, 3_000_000)
    x.numpy()
    with config.override(compile="wait"):
        explained(program, x=x)
        session = explained(program, x=x)
    assert session.verdicts == []
    assert "nothing is wrong; most of the time goes to kernels" in str(session)
    assert session.accounts.share("kernels") > 0.6


def test_library_calls():
    session = explained("""
        a = np.ones((700, 700))
        for _ in range(4):
            b = a @ a
            b.sum()
        c = float(b[0, 0])
    """)
    assert session.accounts.share("library calls", "at once", "op by op") > 0.6


def test_python_alone():
    session = explained("""
        def count(n):
            total = 0
            for k in range(n):
                total += k % 7
            return total

        count(3_000_000)
    """)
    python = session.accounts.share("Python")  # the rest is Python that waits for a processor
    assert python > 0.5 and python == max(
        session.accounts.share(part) for part in session.accounts.seconds)
    text = only_verdict(session)
    assert "Python's own code" in text
    assert "program.py:5" in text or "program.py:4" in text
    assert max(session.accounts.lines, key=session.accounts.lines.get)[0] == "program.py"


def test_waiting_is_told_where_it_is():
    session = explained("""
        import time
        time.sleep(0.2)
    """)
    assert session.accounts.lines["program.py", 3] > 0.1


def test_what_numpy_does_itself():
    with config.override(at_once=1):
        session = explained("""
            for k in range(3):
                np.unique(x + k)
        """, x=np.linspace(0, 30, 300_000))
    assert session.accounts.seconds["NumPy"] > 0
    assert any(text.startswith("NumPy itself did unique 3 times on program.py:3")
               for _, text in session.verdicts), session.verdicts


def test_everything_is_put_back():
    before = (evaluate.evaluate, list(executable.observers), list(spans.watchers),
              signal.getsignal(TICK))
    x = np.linspace(0, 1, 10)
    with pytest.raises(ValueError, match="shapes"), Session("it"):
        x[0] + (x + x[:3])
    assert (evaluate.evaluate, executable.observers, spans.watchers,
            signal.getsignal(TICK)) == before
    assert not [thread for thread in threading.enumerate() if "explains" in thread.name]
    for _ in range(3):
        with Clock() as clock:
            x[0] + x
        assert [place.count for place in clock.found.places["elements"]] == [1]


def test_a_session_in_another_leaves_the_accounts_to_that():
    x = np.linspace(0, 1, 10)
    with Session("outer") as outer, Session("inner") as inner:
        x + 1
    assert inner.accounts is None and "where the time went" not in str(inner)
    assert len(outer.accounts.places["at once"]) == 1


def test_other_threads_are_not_in_the_accounts():
    x = np.linspace(0, 1, 10)
    results = []

    def work():
        results.append(sum(float(x[k]) for k in range(10)))

    with Session("it") as session:
        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert results == [pytest.approx(5.0)] * 3
    assert session.accounts.places["elements"] == []
    assert session.accounts.named >= NAMED


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no interval timer")
def test_a_handler_of_the_users_ends_what_it_interrupts():
    def expire(*_):
        raise TimeoutError("the user's")

    before = signal.signal(signal.SIGALRM, expire)
    x = np.linspace(0, 1, 100)
    named = []
    try:
        for _ in range(3):  # see `explained`
            session = Session("it")
            with pytest.raises(TimeoutError, match="the user's"), session:
                signal.setitimer(signal.ITIMER_REAL, 0.1)
                while True:
                    x[3] * x
            named.append(session.accounts.named)
            assert session.accounts.wall > 0.09
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert max(named) >= NAMED


def test_what_jit_runs_is_told():
    @np.jit
    def step(u):
        return np.exp(u) * 2

    u = np.linspace(0, 1, 1_000_000)
    with config.override(compile="wait"):
        step(u)
    session = explained("""
        for _ in range(5):
            step(u).numpy()
    """, step=step, u=u)
    assert session.accounts.seconds["kernels"] > 0


def test_times_are_what_they_are():
    """Each of these ways to spend time has what the clock on the wall says that it took."""
    took = {}
    with config.override(compile="never"):
        session = explained("""
            def python():
                n = 0
                for _ in range(2_000_000):
                    n += 1

            def at_once():
                for _ in range(2500):
                    np.exp(small)

            def recorded():
                for k in range(5):
                    float(np.sin(large + k).sum())

            def numpy():
                for k in range(2):
                    np.unique(large)

            for work in (python, at_once, recorded, numpy):
                started = now()
                work()
                took[work.__name__] = now() - started
        """, now=time.perf_counter, took=took, small=np.linspace(0, 1, 20_000),
            large=np.asarray(numpy.random.default_rng(0).random(5_000_000)))
    found = session.accounts.seconds
    for name, accounts in (("python", ["Python"]), ("at_once", ["at once"]), ("numpy", ["NumPy"]),
                           ("recorded", ["op by op", "looks", "recording", "reads"])):
        spent = sum(found[account] for account in accounts)
        assert spent == pytest.approx(took[name], rel=0.25, abs=0.06), (name, found, took)


def test_what_gives_one_number_works_on_many():
    session = explained("""
        for _ in range(200):
            x.sum()
            np.median(x)
    """, x=np.linspace(0, 1, 3000))
    assert {round(place.size) for place in session.accounts.places["at once"]} == {3000}
    assert not any("elements read" in verdict.text for verdict in session.verdicts)


def test_random_numbers_are_drawn_by_numpy():
    session = explained("""
        for _ in range(10):
            rng.standard_normal(200_000)
    """, rng=np.random.default_rng(0))
    assert session.accounts.share("at once") > 0.8
    assert session.accounts.places["at once"][0].size == 200_000


def test_what_numpy_does_within_an_operation_is_its_own():
    """Where NumPy does the work of a function of ours in Python, samples tell."""
    if core_kind != "c":
        pytest.skip("the twin takes no samples within operations")
    session = explained("""
        for _ in range(3):
            np.apply_along_axis(slow, 0, x)
    """, x=np.ones((40, 5000)), slow=lambda column: float(sum(range(len(column) * 3))))
    assert session.accounts.share("recording") < 0.2
    assert session.accounts.share("at once", "NumPy", "Python") > 0.7


def test_operations_in_the_middle_of_another_account_are_not_counted_twice():
    session = explained("""
        def work():
            for _ in range(200):
                np.exp(x)

        with Spending("NumPy"):
            work()
        work()
    """, x=np.linspace(0, 1, 20_000), Spending=spans.Spending)
    accounts = session.accounts
    assert [place.count for place in accounts.places["at once"]] == [400]
    assert accounts.share("at once") > 0.5


def test_python_code_of_numpys_is_numpy_at_once():
    if core_kind != "c":
        pytest.skip("the twin takes no samples within operations")
    session = explained("""
        for _ in range(4):
            np.histogramdd(x, bins=20)
    """, x=np.asarray(numpy.random.default_rng(0).random((20_000, 3))))
    assert session.accounts.share("at once", "NumPy", "imports") > 0.8
    assert session.accounts.share("libraries") < 0.1


def test_what_ends_a_loop_over_elements_is_none():
    session = explained("""
        for v in x:
            pass
        a, b = y
    """, x=np.linspace(0, 1, 100), y=np.ones((2, 3)))
    counted = [place.count for place in session.accounts.places["elements"]]
    assert counted == ([100] if core_kind == "c" else [])


def test_a_few_elements_are_not_told_where_python_takes_long():
    session = explained("""
        for k in range(120):
            x[k] = sum(range(20_000))
    """, x=np.ones(120))
    assert sum(place.count for place in session.accounts.places["elements"]) == 120
    assert only_verdict(session).startswith("Python's own code")


def test_lines_of_python_are_of_pythons_own_code():
    code = compile("def work():\n    n = 0\n    for k in range(3_000_000):\n        n += k\n",
                   f"{numpy.__path__[0]}/made_up.py", "exec")
    names = {}
    exec(code, names)
    session = explained("work()", work=names["work"])
    accounts = session.accounts
    assert accounts.share("libraries") > 0.8
    assert sum(accounts.lines.values()) <= accounts.seconds.get("Python", 0.0) + 1e-9
    assert "the line program.py:1 most of all" in only_verdict(session)


def test_every_line_has_a_number():
    clock = Clock()
    clock._sample(_Frame("program.py", None), 1.0)
    assert list(clock._lines) == [("program.py", 1)]


def test_a_function_that_has_not_begun_takes_no_time():
    clock = Clock()
    clock._sample(_Frame("other.py", 1, last=0, back=_Frame("program.py", 7)), 1.0)
    assert list(clock._lines) == [("program.py", 7)]


class _Frame:
    """A frame of a program as a signal finds it."""

    def __init__(self, file, line, last=10, back=None):
        self.f_code = compile("pass", file, "exec")
        self.f_lineno, self.f_lasti, self.f_back = line, last, back


def test_the_time_told_is_the_one_that_adds_up():
    session = explained("for _ in range(500_000): x[3]", x=np.ones(10))
    assert session.seconds == session.accounts.wall


def test_what_there_is_one_of_is_told_so():
    with config.override(first_seconds=0.0, compile="never"):
        session = explained("float((np.sin(x) * 2).sum())", x=np.linspace(0, 1, 300_000))
    text = str(session)
    assert "planning: 1 plan in " in text and "op by op: 1 evaluation in " in text
    assert "memory: at most" in text


def test_a_program_without_memory_of_ours_is_not_told_of_any():
    session = explained("for _ in range(20_000): x + 1", x=np.ones(10))
    session.peak = 0  # other tests may have left some
    assert "of recorded arrays" not in str(session)


def test_a_handler_that_python_does_not_know_is_left_alone(monkeypatch):
    """A profiler in C has the signal: there are no samples, and no error."""
    exchanged = []
    with monkeypatch.context() as patched:
        patched.setattr(signal, "getsignal", lambda number: None)
        patched.setattr(signal, "signal", lambda *given: exchanged.append(given[0]))
        with Clock() as clock:
            np.ones(10) + 1
    assert clock.found.named >= NAMED and exchanged == []


def test_an_evaluation_that_cannot_be_told_fails_as_it_would(monkeypatch):
    class Interrupted(BaseException):
        pass

    def raising(*_):
        raise Interrupted

    with config.override(at_once=1), Session("it"):
        monkeypatch.setattr(Clock, "_look_at", raising)
        with pytest.raises(Interrupted) as found:
            float((np.ones(10) * 2).sum())
    assert found.value.__context__ is None


def test_memory_that_is_given_back_is_told():
    if core_kind != "c":
        pytest.skip("in the twin it is Python's")
    session = explained("for _ in range(300): x + 1", x=np.ones(50_000))
    assert 0 < session.accounts.seconds["allocation"] < session.accounts.wall
    gc.collect()   # what other tests left is not given back meanwhile
    gc.disable()
    try:
        small = explained("for _ in range(3000): x + 1", x=np.ones(50))
    finally:
        gc.enable()
    assert small.accounts.seconds["allocation"] == 0


@pytest.mark.compiler
def test_a_run_that_ends_before_its_kernels_are_there(monkeypatch):
    monkeypatch.setattr(executable.background, "compile", lambda plan: None)
    monkeypatch.setattr(executable.background, "_unfinished", {"a plan": None})
    with config.override(first_seconds=0.0, compile="background"):
        session = explained("""
            for k in range(30):
                total = float((np.sin(x) * k).sum())
        """, x=np.linspace(0, 1, 300_001))
    assert only_verdict(session).startswith(
        "op by op, for kernels of 1 plan were still being compiled when this ended")


def test_what_a_run_did_not_do_is_not_told():
    accounts = Accounts(1.0, {"compiling": 0.5}, {}, [], {}, {})
    found = first_run(Facts(accounts, Counter({"kernels compiled": 2}), Counter()))
    assert found.text.startswith("2 kernels compiled or loaded: they are kept on disk")
    found = first_run(Facts(accounts, Counter({"plans made": 1}), Counter()))
    assert found.text.startswith("1 plan made: they are kept on disk")


def test_looks_that_kernels_answer_wait_for_none():
    looks = [Look(None, count=500)]
    accounts = Accounts(1.0, {"op by op": 0.1, "looks": 0.4}, {}, looks, {}, {})
    counters = Counter({"kernels compiled": 2, "op by op": 50})
    assert first_run(Facts(accounts, counters, Counter())).share == pytest.approx(0.14)
