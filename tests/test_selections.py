"""What a mask selects, where nobody knows how much that is: under `jit`, `vmap`, in gradients."""

import random
import sys
import threading

import numpy
import pytest

import tiledarray as ta
from tests.plans import counted, peak_of
from tests.sides import two_sides
from tiledarray.arrays import recorded, selections
from tiledarray.core import kind as core_kind

X = numpy.random.default_rng(5).normal(size=(60, 4))
Y = numpy.random.default_rng(6).normal(size=(60, 4))

# Each is a body of a function of x and y, which returns something.
PROGRAMS = {
    "add": "x[x > 0] += 1; return x",
    "newton": "m = x * x + y * y < 4; x[m] = x[m] ** 2 + y[m]; return x",
    "functions": "x[x > 0] = np.exp(-x[x > 0]) * 2 + abs(y[x > 0]) ** 0.5; return x",
    "sums": "return x[x > 0].sum(), x[y > 0].mean(), np.sum(x[(x > 0) & (y < 0)] ** 2)",
    "spread": "return np.std(x[x > .1]), x[x > 0].var(), np.var(x[y > 0], ddof=1)",
    "products": "return np.prod(x[x > 1]), np.add.reduce(x[x > 0]), np.mean(x[x > 0], dtype='f4')",
    "truth": "return (x[x > 0] > 2).any(), np.all(x[y > 0] < 1), np.count_nonzero(x[y > 0] > 0)",
    "initial": "return x[x > 0].max(initial=0), np.min(x[y > 0], initial=-3.0)",
    "rows": "m = x[:, 0] > 0; c = x[m].mean(axis=0); x[m] = x[m] - c; return x, c",
    "row_sums": """m = x[:, 0] > 0; s = x[m].sum(axis=1)
return s.mean(), (s * s).sum(), x[m].sum(-1).std()""",
    "row_maxima": """m = x[:, 0] > 0
return x[m].max(axis=1).sum(), (x[m] / abs(x[m]).max(1, keepdims=True)).sum()""",
    "row_wise": """m = y[:, 1] < .3; x[m] -= x[m].mean(axis=0); x[~m] *= np.sqrt(abs(x[~m]))
return x""",
    "one_row": "m = y[:, 1] < .3; x[m] = y.mean(axis=0); x[~m] += y[:1]; return x",
    "clusters": """labels = (y[:, 0] * 3).astype(int) % 3
return [x[labels == k].mean(axis=0) for k in range(3)]""",
    "clip": "x[x > 0] = np.clip(x[x > 0], .2, .7); x[x < 0] = x[x < 0].clip(-1); return x",
    "where": "x[x < 0] = np.where(x[x < 0] > -1, y[x < 0], -1.0); return x",
    "maximum": "m = x < y; x[m] = np.maximum(x[m], 0.5 - y[m]); return x",
    "narrower": """a = x[x > 0]; a[a > 1] = 1; a *= 2; x[x > 0] = a
return x, a.sum(), a[a > 1].sum()""",
    "narrower_array": """a = x[x > 0]; a[a > 1] -= a[a > 1] / 3; x[x > 0] = a
return x, (a < 1).sum()""",
    "swap": "m, k = x > 0, y < 0; x[m], y[k] = y[m], x[k]; return x, y",
    "names": "a = x[x > 0]; b = a; b += 1; x[x > 0] = 0; return x, a.sum(), b.sum()",
    "later": "m = x > 0; a = x[m]; x[:] = 5; z = y.copy(); z[m] = a; return x, z",
    "mask_changes": "m = x > 0; a = x[m]; k = m.copy(); m[:] = False; x[k] = a * 2; return x, m",
    "nothing": "m = x > 100; x[m] = x[m] / 0; return x, x[m].sum(), (x[m] > 0).any()",
    "integers": """k = (x * 10).astype(int); k[k > 3] //= 2; k[k < 0] = -k[k < 0] % 7
k[k == 2] <<= 1; k[k > 5] = (k[k > 5] * 0.5).astype(int)
return k, k[k > 2].sum(), k[k > 2].mean(), k[k < 3].prod()""",
    "powers": "m = x > 0; x[m] = x[m] ** y[m] + 2 ** y[m]; return x",
    "squares": "k = (x * 10).astype(int); k[k > 3] = k[k > 3] ** 2; return k",
    "float32": "z = x.astype('f4'); z[z > 0] += y[z > 0]; z[y > 0] *= 3; return z, z[z > 0].mean()",
    "complex": "z = x + 1j * y; m = abs(z) < 1; z[m] = np.conj(z[m]) * 1j; return z, z[m].sum()",
    "booleans": "m = x > 0; m[y > 0] = False; m[x > 1] ^= True; return m",
    "dtype": "a = x[x > 0]; return a.astype(a.dtype).sum(), np.zeros(3, a.dtype) + a.ndim",
    "ufunc": "return numpy.add(x[x > 0], 1).sum(), numpy.sqrt(abs(x[y > 0])).mean()",
    "reflected": "x[x > 0] = 2 - x[x > 0]; x[y > 0] = 1 / (3 + x[y > 0]); return x",
    "scalar_of_numpy": "x[x > 0] *= np.float64(2) - x.sum(); return x",
    "part": "x[1:, ::2][y[1:, ::2] > 0] -= 2; return x",
    "view": "z = x.T; z[y.T > 0] += z[y.T > 0]; return x",
    "ellipsis": "x[..., 0][x[:, 0] > 0] *= 3; return x",
    "list": "m = x[:, 0] > 0; x[m] = [1, 2, 3, 4]; return x",
    "list_of_ours": "m = x[:, 0] > 0; x[m] = [x.sum(), 0, y.mean(), 1]; return x",
    "loop": "for k in range(5): x[x < k / 4] += .3; x[x > 1] = x[x > 1] - y[x > 1]\nreturn x",
}
REFUSED = {  # what asks how many elements there are
    "returned": "return x[x > 0]",
    "shape": "return x.sum() * x[x > 0].size",
    "length": "return x.sum() * len(x[x > 0])",
    "maximum": "return x[x > 0].max()",
    "sorted": "return np.sort(x[x > 0]).sum()",
    "other_mask": "return (x[x > 0] + x[x > 1]).sum()",
    "other_axis": "return (x[x[:, 0] > 0] + y[:, :1]).sum()",
    "element": "return x[x > 0][0]",
    "exponents": "k = (x * 4).astype(int); return (k[k > 0] ** k[k > 0]).sum()",
    "exponents_of_numbers": "k = (x * 4).astype(int); return (2 ** k[k > 0]).sum()",
}


def function_of(body, library):
    lines = "\n".join(f"    {line}" for line in body.split("\n"))
    names = {"np": library, "numpy": numpy}
    exec(f"def function(x, y):\n{lines}", names)
    return names["function"]


def expected(body, x=X, y=Y):
    x, y = x.copy(), y.copy()
    with numpy.errstate(all="ignore"):
        found = function_of(body, numpy)(x, y)
    return found, x, y


def check(found, wanted):
    if isinstance(wanted, (tuple, list)):
        assert len(found) == len(wanted)
        for one, other in zip(found, wanted, strict=True):
            check(one, other)
        return
    found = numpy.asarray(found)
    assert found.dtype == numpy.asarray(wanted).dtype
    tolerance = 1e-4 if found.dtype in (numpy.float32, numpy.complex64) else 1e-10
    numpy.testing.assert_allclose(found, wanted, tolerance, tolerance / 100)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_under_jit_is_numpys(name):
    jitted = ta.jit(function_of(PROGRAMS[name], ta))
    for rows in (60, 0, 60):
        x, y = ta.array(X[:rows]), ta.array(Y[:rows])
        found = jitted(x, y)
        check((found, x, y), expected(PROGRAMS[name], X[:rows], Y[:rows]))


@pytest.mark.sampled(3)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("compile", ["never", "wait"])
@pytest.mark.parametrize("name", PROGRAMS | REFUSED)
def test_a_program_of_recorded_arrays_is_numpys(name, compile):
    body = (PROGRAMS | REFUSED)[name]
    with ta.config.override(at_once=8, compile=compile):
        for _ in range(2):
            x, y = ta.array(X), ta.array(Y)
            if name in ("other_mask", "other_axis"):
                for library, arrays in (numpy, (X, Y)), (ta, (x, y)):
                    with pytest.raises(ValueError, match="could not be broadcast together"):
                        function_of(body, library)(*arrays)
            else:
                check((function_of(body, ta)(x, y), x, y), expected(body))


@pytest.mark.sampled(3)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_beside_another_device_is_numpys(name):
    with two_sides(), ta.config.override(at_once=8, first_seconds=0):
        for _ in range(2):
            x, y = ta.array(X), ta.array(Y)
            found = function_of(PROGRAMS[name], ta)(x, y)
            check((found, x, y), expected(PROGRAMS[name]))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_under_vmap_is_numpys_of_each_sample(name):
    body = PROGRAMS[name]
    function = function_of(body, ta)
    found = ta.vmap(lambda x, y: function(x.copy(), y.copy()))(
        ta.array([X[:20], Y[:20], X[20:40]]), ta.array([Y[:20], X[:20], X[30:50]]))
    wanted = [expected(body, x, y)[0]
              for x, y in ((X[:20], Y[:20]), (Y[:20], X[:20]), (X[20:40], X[30:50]))]
    if isinstance(wanted[0], (tuple, list)):
        check(list(found), [numpy.stack(each) for each in zip(*wanted, strict=True)])
    else:
        check(found, numpy.stack(wanted))


@pytest.mark.parametrize("name", REFUSED)
def test_what_asks_how_many_elements_there_are_is_a_look(name):
    jitted = ta.jit(function_of(REFUSED[name], ta))
    with pytest.raises(TypeError, match="looked at a value"):
        jitted(ta.array(X), ta.array(Y))


@pytest.mark.parametrize("body", [
    "x[y[:, 0] > 0] **= 2; return (x * y).sum()", "return x[x > 0].mean() * x[y < 0].std()",
    "x[x > .1] = np.log(x[x > .1]) * y[x > .1]; return (x * x).sum()"])
def test_gradients_under_jit_are_those_of_finite_differences(body):
    def value(x):
        return float(expected(body, x)[0])

    found = numpy.asarray(ta.jit(ta.grad(lambda x: function_of(body, ta)(x.copy(), ta.array(Y))))(
        ta.array(X)))
    assert numpy.isfinite(found).all()
    for place in ((0, 0), (7, 2), (33, 1), (59, 3)):
        step = numpy.zeros_like(X)
        step[place] = 1e-6
        slope = (value(X + step) - value(X - step)) / 2e-6
        assert found[place] == pytest.approx(slope, rel=1e-5, abs=1e-8)


@pytest.mark.parametrize("body", ["x[y[1:] > 0] += 1; return x", "return x[y.sum(0) > 0].sum()",
                                  "return x[(x > 0)[None]].sum()"])
def test_a_mask_of_another_shape_is_numpys_error(body):
    with pytest.raises(IndexError) as wanted:
        expected(body)
    with pytest.raises(IndexError) as found:
        ta.jit(function_of(body, ta))(ta.array(X), ta.array(Y))
    assert str(found.value) == str(wanted.value)


@pytest.mark.skipif(core_kind == "python", reason="launches are counted by the core in C")
def test_a_masked_update_is_one_kernel():
    def step(x, y):
        inside = x * x + y * y < 4
        x[inside] = x[inside] ** 2 + y[inside]
        x[x > 1] *= 0.5

    jitted = ta.jit(step)
    with ta.config.override(compile="wait"):
        jitted(ta.array(X), ta.array(Y))
        with counted() as found:
            jitted(ta.array(X), ta.array(Y))
    assert found["launches"] == 1


MASKS = ["x > {k}", "(x < {k}) & (y > 0)", "~(y > {k})", "abs(x) < abs(y)", "m"]
VALUES = ["x[{m}] * {k} + y[{m}]", "np.exp(-y[{m}] ** 2)", "-x[{m}]", "{k}", "x.mean() - x[{m}]",
          "np.clip(y[{m}], -1, {k})", "np.where(x[{m}] > 0, y[{m}], {k})", "np.float32({k})",
          "np.minimum(x[{m}], y[{m}] + x[{m}])", "y[{m}].sum() / 60", "x[{m}].mean() + y[{m}]"]
MOVES = [
    "x[{m}] = {v}", "y[{m}] = {v}", "x[{m}] += {v}", "x[{m}] *= .5", "x[{m}] -= x[{m}].mean()",
    "m = {m}", "m = m ^ ({m})", "s = s + y[{m}].sum()", "s = s + (x[{m}] > {k}).sum()",
    "t = x[{m}]; t[t > {k}] = .3; t += 1; y[{m}] = t",
    "t = y[{m}] + 1; x[{m}] = t * t; s = s + t.sum()", "x, y = y, x", "x = x.copy()",
    "r = x[:, 1] > {k}; x[r] -= y[r]; y[r] = x[r] / (1 + x[r] ** 2)",
    "r = x.sum(1) > {k}; x[r] = x[r] - x[r].sum(axis=0) / 60", "x.T[y.T > {k}] += {k}",
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.sampled(20)
@pytest.mark.parametrize("seed", range(60))
def test_random_programs(seed):
    chosen = random.Random(seed)

    def filled(text):
        while "{" in text:
            mask = chosen.choice(MASKS)
            text = text.replace("{v}", chosen.choice(VALUES)).replace("{m}", mask)
            text = text.replace("{k}", str(chosen.choice([-0.5, 0, 0.25, 1, 2])))
        return text

    looks = ["", "float(x.sum())", "len(x[m])", "bool(m.any())", "k = x[m].copy(); k.sort()"]
    lines = ["m, s = x > y, 0.0", *(filled(chosen.choice(MOVES)) for _ in range(8)),
             "return x, y, m, s"]
    body = "\n".join(lines)
    wanted = expected(body)
    x, y = ta.array(X), ta.array(Y)
    check((ta.jit(function_of(body, ta))(x, y), x, y), wanted)
    with ta.config.override(at_once=8, compile="wait" if seed % 5 == 0 else "never"):
        for between in looks:
            body = "\n".join([lines[0], *(f"{line}; {between}" for line in lines[1:-1]), lines[-1]])
            x, y = ta.array(X), ta.array(Y)
            check((function_of(body, ta)(x, y), x, y), wanted)


def test_what_was_selected_stays_what_it_was():
    with ta.config.override(at_once=8):
        x, row = ta.array(X), numpy.arange(4.0)
        chosen = x[x[:, 0] > 0] - row
        doubled = chosen * 2
        kept = [x[x > k / 40] for k in range(40)]
        x[:] = 7
        row[:] = 5
        chosen += 1
        wanted = X[X[:, 0] > 0] - numpy.arange(4)
        numpy.testing.assert_array_equal(doubled.numpy(), wanted * 2)
        numpy.testing.assert_array_equal(chosen.numpy(), wanted + 1)
        for k, each in enumerate(kept):
            numpy.testing.assert_array_equal(each.numpy(), X[k / 40 < X])


def test_parts_that_are_kept_do_not_keep_all_arrays_that_they_are_of():
    def events():
        x, found = ta.zeros(20_000), []
        for k in range(300):
            x = x * 0.5 + k
            x[k] = -1
            found.append(x[x < 0])
        assert [len(each) for each in found[:3]] == [1, 1, 1]

    with ta.config.override(at_once=1000, device="cpu"):
        _, most = peak_of(events)
    assert most < 60 * 20_000 * 8


WRITES = ["np.copyto(t, 1)", "np.copyto(t, 1, where=t > .5)", "t[...] = 2", "t[:] = t[::-1]",
          "t.fill(3)", "t.sort()", "t[0] = 9", "t[2:5] += 1", "t[[0, 1]] = 7", "t.put([0], 4)",
          "np.add(t, 1, out=t)", "np.multiply(t, 2, out=t, where=t > 0)", "t.shape = (-1, 1)",
          "np.put(t, [1], 3)", "np.place(t, t > 1, [5])", "np.putmask(t, t > 1, 6)",
          "t.flat[1] = 3", "t.real = 1", "t.partition(3)", "np.add.at(t, [0, 0], 1)",
          "t.resize(3, refcheck=False)",
          "t[t > 1] = t[t > 1] + 1", "t[~(t > 1)] -= 1", "t %= 2", "t /= 3", "t **= 2",
          "x[x > .5] = None", "x[x > .5] = '3'", "x[x > .5] = [.25]",
          "x[x[:, 0] > 0] = [1, 2, 3, 4]",
          "t = (t.sum(), t.mean(), t.std(), t.min(), t.sum())",
          "t @= np.eye(len(t))", "np.fill_diagonal(t.reshape(1, -1), 5)"]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("line", WRITES)
def test_what_writes_into_what_was_selected(line):
    body = f"m = x > 0; t = x[m]; u = t; {line}; return x, t, u, m"
    with ta.config.override(at_once=8):
        check(function_of(body, ta)(ta.array(X), ta.array(Y)), expected(body)[0])


def test_an_array_that_gets_its_value_while_it_is_changed_is_changed():
    for kept in range(12, 20):
        selections._live.clear()
        with ta.config.override(at_once=8):
            x = ta.array(X)
            chosen = x[x > 0]
            held = [x[x > k / 20] for k in range(kept)]
            chosen += 1
            chosen[chosen > 2] = 0
            wanted = X[X > 0] + 1
            wanted[wanted > 2] = 0
            numpy.testing.assert_array_equal(chosen.numpy(), wanted)
            assert len(held) == kept


@pytest.mark.parametrize("line", ["x[x[:, 0] > 0] + numpy.ones(3)", "x[x > 0] @ 3", "x[x > 0] << 1",
                                  "x[x[:, 0] > 0].sum(axis=5)", "x[x > 0] + 'a'",
                                  "x.__setitem__(x[:, 0] > 0, np.arange(3.0))",
                                  "x.__setitem__(x[:, 0] > 0, 'a')",
                                  "np.broadcast_to(x, (2, 60, 4)).__setitem__(y[:2, 0] > 0, 1)"])
def test_errors_are_those_of_what_is_selected(line):
    with ta.config.override(at_once=8):
        with pytest.raises(Exception) as wanted:
            expected(f"return {line}")
        with pytest.raises(type(wanted.value)) as found:
            function_of(f"return {line}", ta)(ta.array(X), ta.array(Y))
        if "TiledArray" not in str(found.value):
            assert str(found.value) == str(wanted.value)


@pytest.mark.parametrize("how", ["argument", "closure", "grad", "vmap", "loop", "in_place"])
def test_what_was_deferred_outside_of_a_trace_has_its_value_in_it(how):
    wanted = X[X[:, 0] > 0] * 2 + 1
    with ta.config.override(at_once=8):
        x = ta.array(X)
        chosen = x[x[:, 0] > 0] * 2 + 1
        assert selections.selection(chosen) is not None
        if how == "argument":
            pair = ta.jit(lambda a: a.sum(axis=0) * 2)(chosen), wanted.sum(0) * 2
        elif how == "closure":
            pair = ta.jit(lambda a: a + chosen.sum())(x), X + wanted.sum()
        elif how == "grad":
            pair = ta.grad(lambda a: (a[0] * chosen).sum())(x)[0], wanted.sum(0)
        elif how == "vmap":
            pair = ta.vmap(lambda a: (a * chosen).sum())(x), (X[:, None] * wanted).sum((1, 2))
        elif how == "loop":
            pair = ta.fori_loop(3, lambda k, s: s + chosen.sum(), x), X + 3 * wanted.sum()
        else:
            def changing(a):
                chosen[...] = chosen + 1
                return a + chosen.mean()

            pair = ta.jit(changing)(x), X + (wanted + 1).mean()
            wanted = wanted + 1
        check(*pair)
        check(chosen, wanted)


def test_threads_write_into_parts_of_what_was_selected():
    wanted = X[X > 0] * 2
    for k in range(4):
        wanted[k * 10:(k + 1) * 10] = k
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ta.config.override(at_once=8):
            for _ in range(100):
                x = ta.array(X)
                chosen = x[x > 0] * 2
                barrier = threading.Barrier(4)

                def work(k, chosen=chosen, barrier=barrier):
                    barrier.wait()
                    chosen[k * 10:(k + 1) * 10] = k

                threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
                numpy.testing.assert_array_equal(chosen.numpy(), wanted)
    finally:
        sys.setswitchinterval(before)


@pytest.mark.skipif(core_kind != "python", reason="the C core asks under Python's lock")
def test_another_thread_gives_the_value_while_this_one_asks_for_it(monkeypatch):
    from tiledarray.core import twin_state

    asked = twin_state.is_deferred

    def after_the_other_thread(handle):
        if handle is chosen:
            recorded.resolve(handle)
        return asked(handle)

    with ta.config.override(at_once=8):
        x = ta.array(X)
        chosen = x[x > 0] * 2
        monkeypatch.setattr(twin_state, "is_deferred", after_the_other_thread)
        chosen[:10] = 1
        monkeypatch.undo()
        wanted = X[X > 0] * 2
        wanted[:10] = 1
        numpy.testing.assert_array_equal(chosen.numpy(), wanted)


@pytest.mark.parametrize("times", [1, 30])
def test_the_code_of_an_operand_runs_once(times):
    class Counted:
        calls = 0

        def __array__(self, dtype=None, copy=None):
            Counted.calls += 1
            return numpy.array(2.0)

    with ta.config.override(at_once=8):
        x = ta.array(X)
        chosen = x[x > 0]
        for _ in range(times):
            chosen += Counted()
        assert Counted.calls == times
        numpy.testing.assert_allclose(chosen.numpy(), X[X > 0] + 2 * times)
