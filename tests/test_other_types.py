"""Types with ``__array_ufunc__`` beside arrays of ours, and outputs: whatever NumPy's arrays do.

Each program runs with NumPy and with tiledarray; what it returns is compared as text.
"""

import operator
import sqlite3
import warnings
from decimal import Decimal
from fractions import Fraction

import numpy
import pytest

import tiledarray
from tests.plans import fresh_recorder
from tiledarray import config
from tiledarray.core import kind

clean = fresh_recorder(compile="wait")


@pytest.fixture(params=[1 << 14, 0], ids=["at once", "recorded"], autouse=True)
def tier(request):
    with config.override(at_once=request.param):
        yield request.param


class Wrapped(numpy.lib.mixins.NDArrayOperatorsMixin):
    """NumPy's own example of such a type, which writes into outputs."""

    def __init__(self, value):
        self.value = value

    def __array_ufunc__(self, ufunc, method, *inputs, out=None, **kwargs):
        inputs = [x.value if isinstance(x, Wrapped) else x for x in inputs]
        if out is not None:
            kwargs["out"] = tuple(x.value if isinstance(x, Wrapped) else x for x in out)
        return Wrapped(getattr(ufunc, method)(*inputs, **kwargs))


class Told:
    """It tells how it was asked."""

    def __array_ufunc__(self, ufunc, method, *inputs, **kwargs):
        return method, sorted(kwargs)


class Refusing:
    def __array_ufunc__(self, ufunc, method, *inputs, **kwargs):
        return NotImplemented


class Unwilling:
    __array_ufunc__ = None

    def __radd__(self, other):
        return "by itself"


def outcome(np, program):
    """What a program returns or raises, and of what it warns."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            result = repr(program(np))
        except Exception as error:
            result = f"{type(error).__name__}: {error}"
    return result, sorted(str(each.message) for each in told)


def alike(program):
    assert outcome(tiledarray, program) == outcome(numpy, program)


def changed_by_a_wrapper(np, n=4):
    a = np.arange(n) * 1.0
    alias, row = a, a[1:3]
    a += Wrapped(np.full(n, 10.0))
    row *= Wrapped(np.full(2, 2.0))
    return type(a).__name__, type(row).__name__, alias.tolist(), a.value is alias


def changed_by_lists(np):
    u = np.zeros((3, 4))
    row = u[1]
    row -= Wrapped([1.0, 2, 3, 4])
    u[:, ::2] **= Wrapped(numpy.full((3, 2), 2.0))
    return u.tolist()


def large(np):
    return changed_by_a_wrapper(np, 600_000)[2][:5]


def scalar(np):
    x = np.full(3, 5.0).sum()
    x += Wrapped(np.ones(1))
    return type(x).__name__


@pytest.mark.parametrize("program", [
    changed_by_a_wrapper, changed_by_lists, large, scalar,
    lambda np: np.add.reduce(Told()), lambda np: np.add.reduce(Told(), axis=1),
    lambda np: np.add.accumulate(Told()), lambda np: np.add.reduceat(Told(), [0]),
    lambda np: np.add.at(Told(), [0], 1), lambda np: np.add.outer(Told(), np.arange(3)),
    lambda np: np.arange(3) + Told(),
], ids=lambda program: program.__name__)
def test_other_types_say_what_comes_of_it(program):
    alike(program)


@pytest.mark.parametrize("other", [Refusing, Unwilling])
def test_nothing_is_changed_by_what_refuses(other):
    for np in (numpy, tiledarray):
        x = np.full(3, 5.0)
        with pytest.raises(TypeError, match="__array_ufunc__"):
            x += other()
        assert x.tolist() == [5.0] * 3


OUTPUTS = {
    "divide": lambda np, a, b: np.divide(1, a, out=(b,)),
    "positional": lambda np, a, b: np.divide(1, a, b),
    "log": lambda np, a, b: np.log(a, out=(b,)),
    "divmod": lambda np, a, b: np.divmod(a, 0.0, out=(b, None)),
    "divmod by place": lambda np, a, b: np.divmod(a, 0.0, b, np.zeros(3)),
    "matmul": lambda np, a, b: np.matmul(a[:1, None] + 1e200, a[:1, None] + 1e200,
                                         out=(np.zeros((1, 1)),)),
    "none": lambda np, a, b: np.add(a, b, out=(None,)),
    "two": lambda np, a, b: np.add(a, b, out=(a, b)),
    "shape": lambda np, a, b: np.add(a, b, out=(np.zeros(2),)),
    "dtype": lambda np, a, b: np.add(a, b, out=(np.zeros(3, int),)),
}


@pytest.mark.parametrize("name", OUTPUTS)
def test_outputs_in_tuples_warn_and_raise_as_others(name, tier):
    def program(np):
        a, b = np.array([0.0, 1.0, 2.0]), np.ones(3)
        result = OUTPUTS[name](np, a, b)
        kept = result[0] if isinstance(result, tuple) else result
        return kept is b, numpy.asarray(kept).tolist(), numpy.asarray(b).tolist()

    def raising(np):
        with np.errstate(all="raise"):
            return program(np)

    if tier:
        alike(program)
        alike(raising)
    else:  # computed later, nothing is told of: README
        assert outcome(tiledarray, program)[0] == outcome(numpy, program)[0]


@pytest.mark.parametrize("tier", [1 << 14], indirect=True)  # later nothing is told
def test_a_warning_of_an_output_in_a_tuple_is_of_the_users_line(tier):
    a, b = tiledarray.array([0.0, 1.0]), tiledarray.ones(2)
    with pytest.warns(RuntimeWarning, match="divide by zero") as told:
        tiledarray.divide(1, a, out=(b,))
    if kind == "c":
        assert told[0].filename == __file__


def test_what_flat_gives_is_the_arrays_memory():
    for np in (numpy, tiledarray):
        a = np.arange(4.0)
        x = np.asarray(a.flat)
        x[0] = 9
        assert a.tolist() == [9, 1, 2, 3]
        turned = np.asarray(np.arange(4.0).reshape(2, 2).T.flat)
        assert turned.tolist() == [0, 2, 1, 3]
        with pytest.raises(ValueError, match="read-only"):
            turned[1] = 9


@pytest.mark.parametrize("program", [
    lambda np, a: np.add.accumulate(a, axis=None), lambda np, a: np.add.accumulate(a, axis=(0, 1)),
    lambda np, a: np.maximum.accumulate(a, axis=None), lambda np, a: np.add.accumulate(a, (1,)),
    lambda np, a: np.multiply.accumulate(a[0], axis=None),
    lambda np, a: np.add.accumulate(np.array(3.0)), lambda np, a: np.add.accumulate(a, axis=5),
    lambda np, a: round(a, 1), lambda np, a: round(float(a.sum()), 1),
])
def test_what_numpy_refuses_is_refused(program):
    alike(lambda np: numpy.asarray(program(np, np.arange(6.0).reshape(2, 3))).tolist())


class Term:
    """Of a modelling language: its comparisons make constraints."""

    def __init__(self, text):
        self.text = text

    def __le__(self, other):
        return f"{self.text} <= {float(other):g}"

    def __ge__(self, other):
        return f"{self.text} >= {float(other):g}"

    def __eq__(self, other):
        return f"{self.text} == {float(other):g}"

    __hash__ = None


def test_scalars_leave_comparisons_to_other_types():
    def compared(np):
        x = np.array([0.5, 2.0])
        others = (Term("a"), Fraction(1, 2), Decimal("0.5"), None, object, {}, {1}, slice(1))
        return [str(operation(scalar, other)) for scalar in (x[0], x.sum()) for other in others
                for operation in (operator.eq, operator.ne, operator.ge, operator.le)
                if operation in (operator.eq, operator.ne) or type(other) in (
                    Term, Fraction, Decimal)]

    assert compared(tiledarray) == compared(numpy)


def test_a_database_gets_numbers():
    prices = tiledarray.array([1.5, 2.25, 9.0])
    database = sqlite3.connect(":memory:")
    database.execute("create table prices(price)")
    database.executemany("insert into prices values (?)", [
        (prices[0],), (prices.mean(),), (tiledarray.arange(3)[2],)])
    assert database.execute("select price, typeof(price) from prices").fetchall() == [
        (1.5, "real"), (4.25, "real"), (2, "integer")]
    assert database.execute(
        "select count(*) from prices where price > ?", (prices[0],)).fetchone() == (2,)
    database.close()


@pytest.mark.parametrize(("dtype", "values"), [
    ("M8[D]", ["2000-01-01", numpy.datetime64("1999-12-31"), "NaT"]), ("m8[s]", [5, -1]),
    ([("a", "i4"), ("b", "f4")], [(1, 2.5), numpy.void((3, 4.5), "i4,f4")]), ("S8", [b"ab"])])
def test_views_of_numbers_as_something_else_are_written(dtype, values):
    def written(np):
        a = np.array([0, 1, -5, 7], dtype=np.int64)
        v = a.view(dtype)
        for k, value in enumerate(values):
            v[k] = value
        v[3] = v[0]
        v[1:3] = v[2:0:-1]
        return a.tolist(), str(v)

    assert written(tiledarray) == written(numpy)


def test_fields_of_packed_bytes_are_views():
    def parsed(np):
        octets = np.arange(1, 29, dtype="u1")
        records = octets.view([("a", "u1"), ("b", "<u2"), ("c", "<f4")])
        read = [str(records[name]) for name in "abc"]
        records["b"][1] = 7
        records["c"] = 2.5
        return read, octets.tolist(), str(records[1])

    assert parsed(tiledarray) == parsed(numpy)
