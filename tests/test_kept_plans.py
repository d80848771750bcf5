"""Plans on disk: another process runs them without planning, and what is wrong is planned anew."""

import io
import json
import os
import pickle
import subprocess
import sys
import threading
from collections import Counter, OrderedDict
from pathlib import Path

import numpy
import pytest

import tiledarray as np
from tests.plans import counted
from tiledarray import config, jit
from tiledarray.core import forget_programs
from tiledarray.errors import TiledArrayWarning
from tiledarray.execution import kept, known, plans, spans
from tiledarray.insight.explain import explain
from tiledarray.insight.session import Session
from tiledarray.kernels.compile import cache, host
from tiledarray.recording.stretch import local

pytestmark = pytest.mark.compiler


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(kept, "_written", [0])
    local.recorder.reset()
    with config.override(cache_dir=tmp_path / "cache", compile="wait", at_once=0, device="cpu",
                         verify=False):
        yield tmp_path / "cache"
    local.recorder.reset()


@pytest.fixture
def forget(monkeypatch):
    """What makes this process one that has planned nothing yet."""
    def anew():
        monkeypatch.setattr(known, "executables", OrderedDict())
        forget_programs()

    anew()
    return anew


def entries(folder):
    return sorted(folder.glob("*/*.plan"))


def data(*shape):
    return 1 + numpy.random.default_rng(0).random(shape)


# ---- another process --------------------------------------------------------------------------

SCRIPT = """
import json
import numpy
import tiledarray as np
from tiledarray.execution import executable, known, spans

x = np.array(1 + numpy.random.default_rng(0).random((40, 300)))
y = (x - x.mean(axis=1, keepdims=True)) / x.std(axis=1, keepdims=True)
results = [float(y[3, 4]), float((y * 2.5).sum())]
u = np.zeros((50, 60))
u[0] = 1.0
for _ in range(10):
    u[1:-1, 1:-1] = 0.25 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:])
results += [float(u.max()), float((u @ u.T).sum()), float(np.sort(y, axis=1)[:, 7].mean())]
kernels = sorted(text for made in known.executables.values()
                 if isinstance(made, executable.Executable) for text, _ in made.sources())
print(json.dumps([results, kernels, spans.counters]))
"""


def run(script, folder, **settings):
    environment = {**os.environ, "TILEDARRAY_CACHE_DIR": str(folder), "TILEDARRAY_COMPILE": "wait",
                   "TILEDARRAY_DEVICE": "cpu", "TILEDARRAY_AT_ONCE": "0", **settings}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True,
                          text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_second_process_plans_nothing_and_runs_the_same_kernels(folder):
    results, kernels, counts = json.loads(run(SCRIPT, folder))
    assert counts["plans made"] >= 4 and "plans read" not in counts
    again, loaded, others = json.loads(run(SCRIPT, folder))
    assert again == results and loaded == kernels
    assert "plans made" not in others and others["plans read"] == counts["plans made"]
    for name in ("launches", "kernels compiled", "library calls"):
        assert others[name] == counts[name]


def test_nothing_is_read_where_plans_are_to_be_verified_or_kernels_never_compiled(folder):
    run(SCRIPT, folder)
    for setting in ({"TILEDARRAY_VERIFY": "1"}, {"TILEDARRAY_COMPILE": "never"}):
        _, _, counts = json.loads(run(SCRIPT, folder, **setting))
        assert "plans read" not in counts


def test_processes_at_the_same_time_and_forks(folder):
    forking = SCRIPT + """
import os, sys, threading
def work(k):
    ours = np.evaluate(np.exp(x[k]) + x * k).numpy()
    assert numpy.allclose(ours, numpy.exp(x.numpy()[k]) + x.numpy() * k)
    done.append(k)
done = []
threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
for thread in threads: thread.start()
child = os.fork()
if child == 0:
    np.evaluate(np.tanh(x) * 3.0 + x)
    os._exit(0)
for thread in threads: thread.join()
assert os.waitpid(child, 0)[1] == 0
np.evaluate(np.tanh(x) * 3.0 + x)
assert sorted(done) == [0, 1, 2, 3]
print(json.dumps(spans.counters))
"""
    both = [threading.Thread(target=run, args=(forking, folder)) for _ in range(2)]
    for each in both:
        each.start()
    for each in both:
        each.join()
    counts = json.loads(run(forking, folder).splitlines()[-1])
    assert "plans made" not in counts and counts["plans read"] > 4


def test_a_folder_that_cannot_be_used(tmp_path):
    (tmp_path / "file").write_text("")
    results, _, counts = json.loads(run(SCRIPT, tmp_path / "file" / "cache"))
    assert counts["plans made"] >= 4
    assert len(results) == 5


# ---- programs of every kind of step -----------------------------------------------------------


def in_place(np, a):
    b = np.array(a)
    b[2:5] += b[7:10] * 2.0
    b[:, 1] = b[:, 2] - 1.0
    return b, b[::2].sum()


def borders(np, a):
    b = np.array(a)
    kept = b + 1
    c = b * 2
    c[3:9, 2:8] = kept[3:9, 2:8]
    return b, c, c.T.copy()


def filled(np, a):
    z = np.full((60, 70), 2.5)
    z[3:40, 5:50] = np.array(a)[:37, :45]
    return z, z.reshape(70, 60) + 1


def library(np, a):
    b = np.array(a)
    q, r = np.linalg.qr(b[:30, :30] + 1)
    return q @ r, np.sort(b.T[::-1] * 2, axis=0), np.linalg.solve(b[:20, :20], b[:20, 3])


def complex_scalars(np, a):
    z = np.array(a) * (1 + 2j) - 3j
    return abs(z), z.real.max(axis=0), (z * z.conj()).sum()


def reductions(np, a):
    b = np.array(a)
    return (b.argmax(axis=1), b.var(axis=0), np.where(b > 1.5, b, -b).min(),
            (b - b.mean(axis=1, keepdims=True)) / b.std(axis=1, keepdims=True), b.any())


def reshaped(np, a):
    b = np.array(a) + 1
    flat = (b * 2).reshape(-1)
    return flat, flat.reshape(-1, 2).sum(axis=1), flat[5:].astype("f4"), b[None]


def joined(np, a):
    b = np.array(a)
    return np.concatenate([b, b[::-1] * 2, b + 1]), np.roll(b, 3, axis=0) + np.roll(b, -1, axis=1)


def windows(np, a):
    w = np.lib.stride_tricks.sliding_window_view(np.array(a), (3, 4))
    weights = np.array([[1.0, 2, 0, 1], [0, -4, 1, 1], [1, 0, 2, 3]])
    return (np.einsum("ijkl,kl->ij", w, weights), np.sort(w[::7, 3:5], axis=-1), w.max((-1, -2)),
            np.matmul(w[5], weights.T))


PROGRAMS = [in_place, borders, filled, library, complex_scalars, reductions, reshaped, joined,
            windows]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_plan_from_disk_does_the_same(program, forget):
    a = data(50, 60)
    first = [x.numpy() for x in np.evaluate(*program(np, a))]
    forget()
    with counted() as counts:
        again = [x.numpy() for x in np.evaluate(*program(np, a))]
    assert counts["plans made"] == 0 and counts["plans read"] > 0
    for mine, read, theirs in zip(first, again, program(numpy, a), strict=True):
        numpy.testing.assert_array_equal(mine, read)
        numpy.testing.assert_allclose(read, theirs, rtol=1e-6, atol=1e-9)


def test_what_a_plan_assumes_is_asked_of_one_from_disk(forget):
    a = data(400)

    def moved(start):
        b = np.array(a)
        b[start:start + 50] = b[100:150] * 2
        return b.numpy()

    def expected(start):
        b = a.copy()
        b[start:start + 50] = b[100:150] * 2
        return b

    for order in ((10, 120, 300, 70), (300, 70, 10, 120), (120, 10, 70, 300)):
        for start in order:
            numpy.testing.assert_array_equal(moved(start), expected(start))
        forget()
    with counted() as counts:
        for start in (70, 300, 120, 10, 200):
            numpy.testing.assert_array_equal(moved(start), expected(start))
    assert counts["plans made"] == 0


def test_a_jitted_function_runs_plans_from_disk(forget):
    def step(x, y):
        return np.tanh(x) * y + x.sum(axis=0), y - x

    a, b = np.array(data(30, 40)), np.array(data(30, 40))
    first = [x.numpy() for x in jit(step)(a, b)]
    forget()
    with counted() as counts:
        again = jit(step)
        found = [[x.numpy() for x in again(a, a * k)] for k in (1, 2)]
    assert counts["plans made"] == 1 and counts["plans read"] >= 1  # a * 2 is one of its own
    for mine, read in zip(first, found[0], strict=True):
        numpy.testing.assert_array_equal(mine, read)


def test_a_library_call_that_fails_leaves_what_was_computed(forget):
    a = data(20, 20)
    for made in (True, False):
        b = np.array(a)
        b[3:5] = b[6:8] * 2
        c = b + 1
        with counted() as counts, pytest.raises(numpy.linalg.LinAlgError) as failed:
            np.linalg.inv(c * 0.0)
        assert bool(counts["plans made"]) == made
        assert any("while computing linalg.inv" in note for note in failed.value.__notes__)
        expected = a.copy()
        expected[3:5] = expected[6:8] * 2
        numpy.testing.assert_array_equal(c.numpy(), expected + 1)
        numpy.testing.assert_array_equal(b.numpy(), expected)
        forget()


def test_explain_tells_the_same_of_a_plan_from_disk(forget):
    a = np.array(data(60, 70))

    def told():
        y = np.exp(a - a.max(axis=1, keepdims=True))
        z = np.evaluate(y / y.sum(axis=1, keepdims=True))
        return str(explain(z)), z

    first, _ = told()
    forget()
    again, z = told()
    assert z.node.buffer.plan.again is not None
    assert again == first
    assert "exp" in first


def test_a_session_names_lines_of_plans_from_disk(forget):
    a = np.array(data(60, 71))
    np.evaluate(np.exp(a) * 2)
    forget()
    with Session("this") as session:
        np.evaluate(np.exp(a) * 2)
    assert "test_kept_plans.py" in str(session)
    assert "0 plans in" in str(session) and "1 more from disk" in str(session)


# ---- entries that are not to be used ----------------------------------------------------------


def computed():
    return np.evaluate(np.exp(np.array(data(33, 44))) * 2 + 1).numpy()


def damage(folder, change):
    for path in entries(folder):
        path.write_bytes(change(path.read_bytes()))


CHANGES = {
    "truncated": lambda data: data[:-7], "empty": lambda data: b"",
    "another byte": lambda data: data[:40] + bytes([data[40] ^ 1]) + data[41:],
    "another pickle": lambda data: pickle.dumps(print),
}


@pytest.mark.parametrize("change", CHANGES)
def test_damaged_entries_are_planned_anew(folder, forget, change):
    first = computed()
    damage(folder, CHANGES[change])
    forget()
    with counted() as counts:
        numpy.testing.assert_array_equal(computed(), first)
    assert counts["plans made"] == 1 and counts["plans read"] == 0
    forget()
    with counted() as counts:  # it was written again
        numpy.testing.assert_array_equal(computed(), first)
    assert counts["plans made"] == 0


@pytest.mark.parametrize("content", [b"", b"nothing", pickle.dumps(print), pickle.dumps(numpy.add),
                                     pickle.dumps((None, [1, 2])), pickle.dumps((None, None))])
def test_sealed_entries_of_other_content_are_planned_anew(folder, forget, content):
    first = computed()
    (path,) = entries(folder)
    cache.put(path.name[:64], kept.SUFFIX, content)
    forget()
    with counted() as counts:
        numpy.testing.assert_array_equal(computed(), first)
    assert counts["plans made"] == 1 and counts["plans read"] == 0


def test_an_entry_names_no_functions():
    class Evil:
        def __reduce__(self):
            return os.system, ("false",)

    for harmful in (Evil(), os.system, numpy.load):
        with pytest.raises(pickle.UnpicklingError, match="no part of a plan"):
            kept._Reader(io.BytesIO(pickle.dumps(harmful))).load()
    plain = (1, 2.5, "x", numpy.dtype("f4"), float, 1j, None)
    assert kept._Reader(io.BytesIO(pickle.dumps(plain, 5))).load() == plain


def test_an_entry_of_another_version_is_not_read(folder, forget, monkeypatch):
    first = computed()
    forget()
    monkeypatch.setattr(kept, "VERSION", "another")
    with counted() as counts:
        numpy.testing.assert_array_equal(computed(), first)
    assert counts["plans made"] == 1 and len(entries(folder)) == 2


def test_the_version_is_that_of_all_files_that_plan(tmp_path):
    package = Path(kept.__file__).parents[1]
    folders = [path.relative_to(package) for part in kept._PARTS
               for path in [package / part, *(package / part).rglob("*/")]
               if path.is_dir() and path.name != "__pycache__"]
    assert {"fusion/schedule", "kernels/headers"} < {path.as_posix() for path in folders}
    for part in folders:
        (tmp_path / part).mkdir(parents=True, exist_ok=True)
        (tmp_path / part / "a.py").write_text("x = 1")
    versions = [kept.version_of(tmp_path)]
    (tmp_path / "ops" / "__pycache__").mkdir()
    (tmp_path / "ops" / "__pycache__" / "a.pyc").write_text("")
    assert kept.version_of(tmp_path) == versions[0]
    for part in folders:
        (tmp_path / part / "a.py").write_text("x = 10")
        versions.append(kept.version_of(tmp_path))
    (tmp_path / "fusion" / "b.py").write_text("")
    versions.append(kept.version_of(tmp_path))
    assert len(set(versions)) == len(versions)
    assert kept.version_of(tmp_path / "none") != kept.version_of(tmp_path / "none")


def test_other_threads_are_another_plan_and_rounding_is_the_compilers(folder, forget):
    computed()
    for settings, made in ({"threads": 3}, 1), ({"contract": True}, 0):
        forget()
        with config.override(**settings), counted() as counts:
            computed()
        assert counts["plans made"] == made
    assert len(entries(folder)) == 2


def test_names_tell_apart_what_differs():
    def name(**changes):
        given = {"key": (1, None, ~0, float), "donatable": frozenset(), "assumed": (),
                 "target": plans.target_of(np.array(1.0).node.device)}
        return kept.name(**given | changes)

    keys = [(1, None, ~0, float), (1, None, ~0, int), (1, ~0, None, float), (1, None, (None, 3)),
            (1, None, (~0, 3)), (1, None, ~0, complex)]
    assert len({name(key=key) for key in keys}) == len(keys)
    assert name() == name()
    assert name(donatable=frozenset({1})) != name() != name(assumed=[((),)])
    assert name(key=(object(),)) is None
    attrs = [(1,), (True,), (1.0,), ("1",), (b"1",), 1, None, ((1,),), (numpy.dtype("f4"),),
             (numpy.dtype("f8"),), (1, 1), ("f4",), ("a", "b"), ("a b",), ("a' str 'b",)]
    assert len({kept._text(each) for each in attrs}) == len(attrs)


def test_a_process_writes_so_many_and_no_more(folder, forget, monkeypatch):
    monkeypatch.setattr(kept, "MOST", 3)
    for n in range(6):
        np.evaluate(np.exp(np.array(data(10 + n))) * 2)
    assert len(entries(folder)) == 3


def test_plans_go_with_the_kernels_when_the_folder_is_full(folder, forget):
    computed()
    for path in entries(folder):
        os.utime(path, (1, 1))
    cache._sizes.clear()
    with config.override(cache_bytes=1 << 16):
        cache.put(cache.key("large"), ".bin", bytes(1 << 16))
    assert not entries(folder)


def test_a_full_folder_is_looked_at_now_and_then(folder, monkeypatch):
    looks = []
    monkeypatch.setattr(cache, "_evict", lambda root, name, size: looks.append(size))
    for k in range(1000):
        cache.put(cache.key(str(k)), ".plan", bytes(4096), small=True)
    assert 1 <= len(looks) < 40  # 8 are expected
    cache.put(cache.key("kernel"), ".so", bytes(10))
    assert looks[-1] == 10


def test_no_room_is_no_error(folder, forget, monkeypatch):
    as_os = {"__name__": "os"}  # what the program's own modules raise is a handler's
    exec('def full(*_, **__): raise OSError(28, "No space left on device")', as_os)
    monkeypatch.setattr(cache, "_stored", as_os["full"])
    config_with = config.override(compile="background")
    with config_with, pytest.warns(TiledArrayWarning, match="cannot be kept"):
        result = computed()
    numpy.testing.assert_allclose(result, numpy.exp(data(33, 44)) * 2 + 1)


def test_no_file_to_be_had_is_no_error(folder, forget, monkeypatch):
    """Where it is asked whether kernels lie on disk: what is missing is computed op by op."""
    as_os = {"__name__": "os", "found": cache.get, "asked": []}
    exec("""def get(key, suffix):
        if suffix != ".so":
            return found(key, suffix)
        asked.append(key)
        raise OSError(24, "Too many open files")""", as_os)
    monkeypatch.setattr(cache, "get", as_os["get"])
    values = data(37, 41)
    host.compiler()
    with config.override(compile="background", first_seconds=0.0):
        x = np.array(values)
        for _ in range(3):
            result = (np.exp(x) * 3 + x.sum(axis=0)).numpy()
    assert as_os["asked"]
    numpy.testing.assert_allclose(result, numpy.exp(values) * 3 + values.sum(axis=0))


def test_every_op_has_a_name_of_its_own():
    from tiledarray.ops import names
    from tiledarray.ops.op import Op

    counts = Counter(names.name_of(op) for op in names._named().values())
    assert counts and all(isinstance(names.op_named(name), Op) for name in counts)
    assert all(names.name_of(names.op_named(name)) == name for name in counts)


def test_dtypes_are_numpys_own_objects(forget):
    """An equal copy is another object to NumPy: `np.add.at` takes twenty times as long with it."""
    odd = pickle.loads(pickle.dumps(numpy.dtype("f8")))
    assert odd == numpy.dtype("f8") and odd is not numpy.dtype("f8")
    x = data(40, 300).astype(odd)
    assert x.dtype is odd
    for _ in range(2):
        for y in (np.array(x), np.array(x) * 2 + 1, np.array(x).sum(axis=0), np.sort(np.array(x))):
            assert y.numpy().dtype is y.dtype is numpy.dtype("f8")
        forget()
    assert spans.counters["plans read"] >= 3
