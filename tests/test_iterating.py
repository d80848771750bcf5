"""`ndenumerate` gives what is there; `nditer`: the order of NumPy's, and what it writes."""

import numpy
import pytest

import tiledarray
from tiledarray import config
from tiledarray.errors import HistoryLost

MAKE = [
    lambda np: np.arange(6.0).reshape(2, 3), lambda np: np.array(3.0),
    lambda np: np.arange(24).reshape(2, 3, 4).transpose(2, 0, 1), lambda np: np.arange(20)[::-2],
    lambda np: np.arange(24, dtype="i2").reshape(4, 6)[::-1, 1::2].T,
    lambda np: np.arange(5) * (1 + 2j), lambda np: np.array([1, "x", None], dtype=object)[::-1],
    lambda np: np.arange(8.0).reshape(2, 2, 2)[:, None, ::-1, 1],
]
FLAGS = [
    ([], {}), (["external_loop"], {}), (["buffered"], {}), (["multi_index"], {}), (["c_index"], {}),
    (["buffered", "external_loop"], {"buffersize": 2}), (["external_loop"], {"order": "F"}),
    ([], {"order": "C"}), (["f_index", "reduce_ok"], {}),
]


@pytest.fixture(autouse=True, params=[0, 1000])
def at_once(request):
    with config.override(at_once=request.param, compile="wait"):
        yield


def both(program):
    """Run a program with both libraries; what it says has to be the same."""
    ours, theirs = program(tiledarray), program(numpy)
    assert len(ours) == len(theirs)
    for found, wanted in zip(ours, theirs, strict=True):
        numpy.testing.assert_array_equal(numpy.asarray(found), numpy.asarray(wanted))


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("flags", "options"), FLAGS, ids=str)
@pytest.mark.parametrize("make", MAKE)
def test_what_is_written_is_in_the_array(make, flags, options):
    def program(np):
        x = make(np)
        if x.dtype == object:
            if "buffered" in flags:
                return []
            step, flags_ = (lambda v: "new"), [*flags, "refs_ok"]
        else:
            step, flags_ = (lambda v: v * 2 + 1), flags
        found = []
        with np.nditer(x, flags_, ["readwrite"], **options) as it:
            for v in it:
                found.append(v.copy())
                v[...] = step(v)
        found.append(numpy.asarray(x).copy())
        for number, v in enumerate(np.nditer(x, flags_, op_flags=[["readwrite"]], **options)):
            if "buffered" not in flags:
                found.append(numpy.asarray(x).copy())
            if number % 2:
                v[...] = step(v)
            if number == 3:
                break
        found.append(numpy.asarray(x).copy())
        it = np.nditer(x, flags_, ["readwrite"], **options)
        while not it.finished:
            it[0] = step(it[0])
            if "multi_index" in flags:
                found.append(it.multi_index)
            it.iternext()
        it.close()
        return [*found, numpy.asarray(x).copy()]

    both(program)


@pytest.mark.parametrize("make", MAKE[:-2])
def test_what_is_read_comes_in_numpys_order(make):
    both(lambda np: [numpy.array([v.item() for v in np.nditer(make(np))])])


def test_several_operands():
    def square(np, x, out=None):
        it = np.nditer([x, out], flags=["external_loop", "buffered"],
                       op_flags=[["readonly"], ["writeonly", "allocate", "no_broadcast"]])
        with it:
            for a, b in it:
                b[...] = a * a
            return it.operands[1]

    def program(np):
        a, b = np.arange(6).reshape(2, 3), np.zeros((2, 3))
        with np.nditer([a, b, None], op_flags=[["readonly"], ["writeonly"],
                                               ["writeonly", "allocate"]]) as it:
            for p, q, r in it:
                q[...], r[...] = p * 2, p * 3
            made, same = it.operands[2], it.operands[1] is b
        sums = np.zeros(2)
        with np.nditer([a, sums], ["reduce_ok", "external_loop"], [["readonly"], ["readwrite"]],
                       op_axes=[None, [0, -1]]) as it:
            for p, q in it:
                q[...] += p
        out = np.zeros(3, int)
        return [made, same, b, sums, square(np, np.arange(3)),
                square(np, np.arange(3), out) is out, out]

    both(program)


def test_the_loop_goes_outside_in_the_middle():
    def program(np):
        x = np.arange(12).reshape(3, 4)
        it = np.nditer(x, ["multi_index"], ["readwrite"])
        it[0] = 5
        it.remove_multi_index()
        it.enable_external_loop()
        found = [numpy.asarray(x).copy()]
        while not it.finished:
            it[0][::2] += 7
            it.iternext()
            found.append(numpy.asarray(x).copy())
        it.reset()
        it[0][...] = 1
        it.close()
        return [*found, x]

    both(program)


def test_one_array_twice_and_values_that_are_kept():
    def program(np):
        x, y = np.arange(6.0), np.zeros(6)
        kept = []
        it = np.nditer([x, x, y], [], [["readonly"], ["readwrite"], ["writeonly"]])
        for a, b, c in it:
            b[...] = a + 1
            c[...] = a * b
            kept.append(c)
        kept[1][...] = -1
        it.close()
        return [x, y]

    both(program)


def test_what_may_not_be_written_is_not():
    for np in (numpy, tiledarray):
        with pytest.raises(ValueError, match="read-only"):
            np.nditer(np.broadcast_to(np.arange(3), (2, 3)), op_flags=["readwrite"])
        x = np.arange(3)
        for v in np.nditer(x):
            with pytest.raises(ValueError, match="read-only"):
                v[...] = 1
        assert isinstance(np.nditer(x, op_flags=["readwrite"]), np.nditer)


# ndenumerate --------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", MAKE)
def test_ndenumerate_is_numpys(make):
    def told(np):
        x = make(np)
        it = np.ndenumerate(x)
        first = next(it)
        assert iter(it) is not None and isinstance(it, np.ndenumerate)
        pairs = [first, *it, *np.ndenumerate(x.tolist())]
        return [(place, type(place[-1] if place else 0).__name__, str(value))
                for place, value in pairs]

    assert told(tiledarray) == told(numpy)


def test_ndenumerate_sees_what_is_written_meanwhile():
    def program(np):
        a = np.ones(5)
        for (i,), x in np.ndenumerate(a):
            if i < 4:
                a[i + 1] += x
        filled = np.array([[1, 0, 0], [0, 0, 0]])
        for (i, j), x in np.ndenumerate(filled):
            if x and j < 2:
                filled[i, j + 1] = 1
        later = np.ones(3)
        it = np.ndenumerate(later)
        next(it)
        later[:] = 5
        return a, filled, next(it)[1]

    both(program)


@pytest.mark.parametrize("mode", ["readwrite", "readonly"])
def test_what_nditer_gave_lives_on(mode):
    """NumPy lets go of what it went through once it is closed."""
    def told(np):
        x = np.arange(1e4)
        with np.nditer(x, flags=["external_loop"], op_flags=[mode]) as it:
            for last in it:
                if mode == "readwrite":
                    last *= 2
        with pytest.raises(ValueError, match="Iterator is past the end"):
            it.value  # noqa: B018
        del it
        others = [numpy.full(10_000, 7.0) for _ in range(5)]
        return str(last.sum()), str(x.sum()), len(others)

    assert told(tiledarray) == told(numpy)


def test_nested_iterators():
    def told(np):
        x, y = np.arange(12).reshape(2, 3, 2), np.zeros((2, 3))
        outer, inner = np.nested_iters(x, [[0], [2, 1]])
        found = [[int(each) for each in inner] for _ in outer]
        outer, inner = np.nested_iters([x[..., 0], y], [[0], [1]], op_flags=[
            ["readonly"], ["readwrite"]])
        for _ in outer:
            for a, b in inner:
                b[...] = a + 1
        return found, y.tolist()

    assert told(tiledarray) == told(numpy)


def test_many_elements_of_a_buffer_are_written():
    def told(np):
        x, mask = np.zeros((3000, 15))[::2], np.empty((1500, 15), bool)
        mask[...] = [True, True, False] * 5
        with np.nditer([x, mask], ["buffered"], [["readwrite", "writemasked"],
                                                 ["readonly", "arraymask"]],
                       op_dtypes=["f4", None], casting="same_kind") as it:
            for element, chosen in it:
                if chosen:
                    element[...] = 2.5
        return x.tolist()

    assert told(tiledarray) == told(numpy)


@pytest.mark.parametrize("keeping", ["a loop", "what it gave", "its copy"])
def test_a_buffered_nditer_that_nobody_has_goes_on(keeping):
    def told(np):
        x = np.arange(20_000.0)

        def made():
            return np.nditer(x, ["buffered", "external_loop"], op_dtypes=["f4"],
                             casting="same_kind")

        if keeping == "a loop":
            return sum(float(part.sum()) for part in made())
        it = made()
        copied = it.copy()
        part = next(it)
        if keeping == "its copy":
            part = next(copied)
            del copied
        del it
        others = [numpy.full(10_000, 7.0) for _ in range(5)]
        return float(part.sum()), len(others)

    assert told(tiledarray) == told(numpy)


def test_what_a_buffer_holds_is_written_when_the_iterator_is_closed():
    def told(np):
        x = np.zeros(1000)
        it = np.nditer(x, ["buffered", "external_loop"], [["readwrite"]], op_dtypes=["f4"],
                       casting="same_kind", buffersize=100)
        part = next(it)
        part[...] = 7
        before = float(x.sum())
        it.close()
        return before, float(x.sum())

    assert told(tiledarray) == told(numpy)


def test_elements_that_nditer_has_left_are_written():
    def told(np):
        x = np.arange(10.0)
        elements = [*np.nditer(x, op_flags=["readwrite"])]
        for each in elements:
            each += 50
        with np.nditer(x, flags=["external_loop"], op_flags=["readwrite"]) as it:
            for last in it:
                last *= 2
        last *= 2
        x += 1
        last -= 1
        return x.tolist(), last.tolist()

    assert told(tiledarray) == told(numpy)


def test_a_history_is_not_lost():
    x = tiledarray.variable(tiledarray.arange(3.0))
    for iterate in (tiledarray.nditer, lambda x: tiledarray.nested_iters([x], [[0], []])):
        with pytest.raises(HistoryLost):
            iterate(x)
