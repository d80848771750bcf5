"""Classes of the user's with NumPy's protocols, in modules where ``np`` is NumPy or ours."""

import textwrap

import numpy
import pytest
import scipy.special

import tiledarray
from tiledarray.arrays.told import ours_for

COMPARING = """
class Comparing(np.ndarray):
    def __array_ufunc__(self, ufunc, method, *inputs, **options):
        if ufunc is np.add and method == "__call__":
            return "my add"
        inputs = [np.asarray(x) if isinstance(x, Comparing) else x for x in inputs]
        return getattr(ufunc, method)(*inputs, **options)

    def __array_function__(self, func, types, args, kwargs):
        if func is np.concatenate:
            return "my concatenate"
        return super().__array_function__(func, types, args, kwargs)

v = np.arange(3.0).view(Comparing)
found = [v + 1, 1 + v, np.add(v, v), np.concatenate([v, v]), (v * 2).tolist(), float(np.sum(v)),
         np.cumsum(v).tolist()]
"""
TABLE = """
class Diagonal(np.lib.mixins.NDArrayOperatorsMixin):
    handled = {}

    def __array_ufunc__(self, ufunc, method, *inputs, **options):
        return "my add" if ufunc is np.add else ufunc.__name__

    def __array_function__(self, func, types, args, kwargs):
        return self.handled[func](*args, **kwargs) if func in self.handled else NotImplemented

def implements(function):
    return lambda ours: Diagonal.handled.setdefault(function, ours)

implements(np.sum)(lambda x: "my sum")
implements(np.interp)(lambda *x: "my interp")
implements(np.linalg.norm)(lambda x: "my norm")
implements(np.concatenate)(lambda x: "my concatenate")
d = Diagonal()
found = [d + 1, d * 2, np.add(d, 1), np.sum(d), np.interp(d, d, d), np.linalg.norm(d),
         np.concatenate([np.ones(3), d])]
"""
BARE = """
class Bare:
    def __array_ufunc__(self, ufunc, method, *inputs, **options):
        return ufunc is np.multiply, method

found = [np.multiply(Bare(), 2), np.ones(3) * Bare(), np.multiply.outer(np.ones(2), Bare())]
"""
GUIDE = """
class Info(np.ndarray):  # NumPy's guide to subclassing
    def __array_ufunc__(self, ufunc, method, *inputs, out=None, **options):
        inputs = [x.view(np.ndarray) if isinstance(x, Info) else x for x in inputs]
        outputs = out if out else (None,) * ufunc.nout
        if out:
            options["out"] = tuple(
                x.view(np.ndarray) if isinstance(x, Info) else x for x in outputs)
        results = super().__array_ufunc__(ufunc, method, *inputs, **options)
        if results is NotImplemented or method == "at":
            return None if method == "at" else NotImplemented
        results = (results,) if ufunc.nout == 1 else results
        results = tuple(np.asarray(result).view(Info) if output is None else output
                        for result, output in zip(results, outputs))
        return results[0] if len(results) == 1 else results

a = np.arange(5.0).view(Info)
b = np.exp(a) + 1
b += a
np.add.at(b, [0, 0], 1)
plain = np.zeros(5)
plain += a
found = [type(x).__name__ for x in (a, b, np.arange(5) + a, *np.modf(a))]
found += [b.tolist(), plain.tolist(), float(np.add.reduce(a)), float(a.mean()),
          np.add.outer(a, a).tolist(), np.multiply.accumulate(a).tolist()]
"""


def run(text: str, **names: object) -> list:
    exec(textwrap.dedent(text), names)
    return names["found"]


@pytest.mark.parametrize("text", [COMPARING, TABLE, BARE, GUIDE])
def test_protocols_are_handed_what_their_module_knows(text) -> None:
    assert repr(run(text, np=tiledarray)) == repr(run(text, np=numpy))


def test_a_module_that_has_numpy_too_is_handed_numpys() -> None:
    text = BARE.replace("np.multiply,", "numpy.multiply,")
    assert run(text, np=tiledarray, numpy=numpy) == run(text, np=numpy, numpy=numpy)


def test_only_numpys_own_functions_have_one_of_ours() -> None:
    assert ours_for(numpy.log1p) is tiledarray.log1p
    assert ours_for(scipy.special.log1p) is scipy.special.log1p
    assert ours_for(numpy.fft.fft) is tiledarray.fft.fft
