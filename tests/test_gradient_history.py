"""History that could be lost on the way to a result: gradients of each, or an error."""

import numpy

import tiledarray as np

X = numpy.array([0.7, -1.3, 2.1, 0.4, 1.9])


def differences(function, x=X, h=1e-6):
    return numpy.array([(float(function(x + h * e)) - float(function(x - h * e))) / (2 * h)
                        for e in numpy.eye(len(x))])


def check(function, x=X):
    """`function` is given a module as well, NumPy or ours."""
    wanted = differences(lambda x: function(numpy, x.copy()), x)
    found = np.grad(lambda x: function(np, x))(np.array(x))
    numpy.testing.assert_allclose(numpy.asarray(found), wanted, rtol=1e-6, atol=1e-6)


def test_a_ufunc_of_a_list_of_elements_takes_them_all():
    x = np.array([0.5, 2.0]) + np.zeros(2)
    numpy.testing.assert_allclose(np.exp([x[0], x[1]]), numpy.exp([0.5, 2.0]))
    check(lambda np, x: np.exp([x[0], x[1]]).sum())


def test_diagonals():
    check(lambda np, x: (np.diag(x) ** 2).sum() + np.trace(x[:, None] * x))

    def written(np, x):
        a = x[:, None] * x
        a[range(5), range(5)] = x ** 3
        d = a.diagonal()
        return (a * a).sum() + (d * d).sum()

    check(written)
