"""History that could be lost on the way to a result: gradients of each, or an error."""

import numpy
import pytest

import tiledarray as np
from tiledarray.errors import HistoryLost, NoDerivative
from tiledarray.recording.stretch import local

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


def test_complex_numbers_read_as_pairs_of_real_ones():
    def written(np, x):
        y = np.concatenate([x, x[:1] * 2])
        z = y.view(complex)
        z *= 1 + 2j
        z[1:] = z[2] * z[:2]
        z.view(float)[::2] += y[0]
        return (y * y * np.arange(6.0)).sum() + (y.view(float) * y).sum()

    check(written)
    z = np.variable([1 + 2j, 3.0])
    assert (z.view(float) * np.arange(4.0)).sum().grad(z).tolist() == [-1j, 2 - 3j]
    with pytest.raises(NoDerivative, match="float64 read as float32 has no derivative"):
        np.grad(lambda x: (x.view(numpy.float32) ** 2).sum())(np.array(X))


def test_indices_with_numbers_that_are_bools():
    def written(np, x):
        y = x * 1
        y[True] = y * 2
        y[False] = 7.0
        y[np.sum(x) > -9] *= x
        y[1:][True] *= x[0]
        y[True, 1] = y[0] * 2
        return (y * y).sum() + y[True].sum() ** 2 + y[False].sum() + y[None, True, [0, 1]].sum()

    check(written)


# ---- jit ---------------------------------------------------------------------------------------


def test_a_traced_function_is_recorded_where_its_argument_has_a_history():
    cubes = np.jit(lambda x: (x ** 3).sum())
    wanted = differences(lambda x: (x ** 3).sum() * x[0])
    for _ in range(3):
        found = np.grad(lambda x: cubes(x) * x[0])(np.array(X))
        numpy.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-6)
        assert float(cubes(np.array(X))) == pytest.approx((X ** 3).sum())
    x = np.variable(X)
    numpy.testing.assert_allclose(cubes(x).grad(x), 3 * X ** 2)


def test_a_traced_function_is_recorded_where_an_array_behind_a_name_has_a_history():
    held = {"x": np.array(X)}
    cubes = np.jit(lambda y: (held["x"] ** 3 * y).sum())

    def through_a_dict(x):
        held["x"] = x
        return cubes(np.ones(5)) * x[0]

    def through_a_closure(x):
        return np.jit(lambda y: (x ** 3 * y).sum())(np.ones(5)) * x[0]

    cubes(np.ones(5))
    wanted = differences(lambda x: (x ** 3).sum() * x[0])
    for function in (through_a_dict, through_a_closure) * 2:
        found = np.grad(function)(np.array(X))
        numpy.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-6)


def test_what_a_traced_function_writes_has_a_history():
    def step(u):
        u[1:-1] += 0.1 * (u[2:] - 2 * u[1:-1] + u[:-2])

    def steps(step, u):
        for _ in range(4):
            step(u)
        return (u ** 2).sum()

    traced = np.jit(step)
    outside = np.zeros(5)
    doubled = np.jit(lambda x: outside.__setitem__(..., 2 * x))

    def into_outside(x):
        doubled(x)
        return (outside ** 2).sum()

    wanted = differences(lambda x: steps(step, x.copy()))
    for _ in range(2):
        found = np.grad(lambda x: steps(traced, x.copy()))(np.array(X))
        numpy.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-6)
        traced(np.array(X))
        numpy.testing.assert_allclose(np.grad(into_outside)(np.array(X)), 8 * X)


def test_a_traced_gradient_records_nothing_on_its_second_call():
    def energy(x):
        u = x.copy()
        for _ in range(5):
            u[1:-1] += 0.1 * (u[2:] - 2 * u[1:-1] + u[:-2]) ** 2
        return (u ** 2).sum()

    calls = []

    def counted(x):
        calls.append(1)
        return energy(x)

    both = np.jit(np.value_and_grad(counted))
    both(np.array(X))
    traced = len(calls)
    for k in range(1, 4):
        before = local.recorder.count
        value, slope = both(np.array(X + k))
        assert local.recorder.count == before
        assert float(value) == pytest.approx(energy(X + k))
        numpy.testing.assert_allclose(slope, differences(energy, X + k), rtol=1e-5)
    assert len(calls) == traced


# ---- NumPy's functions ---------------------------------------------------------------------------


def lost(function, error=HistoryLost, match=None):
    with pytest.raises(error, match=match):
        np.grad(function)(np.array(X))


def test_arrays_of_objects_have_no_history():
    lost(lambda x: x.sum() * x.astype(object).sum(), match="astype")
    lost(lambda x: x.sum() * np.array([x[0], x[1]], dtype=object).sum())
    lost(lambda x: x.sum() * np.poly1d(x)(2.0))


def test_what_numpy_writes_is_marked_also_if_it_was_there_before():
    def set_field(x):
        a = np.zeros(2)
        a.setfield(x[:2] * 0, float)
        return (a + x[:2]).sum()

    lost(set_field, NoDerivative, "setfield")


def test_a_function_that_only_looks_leaves_history_as_it_is(tmp_path):
    def looking(x):
        np.savetxt(tmp_path / "x.txt", x)
        np.testing.assert_allclose(x, X)
        assert np.array2string(x) == numpy.array2string(X)
        return (x ** 2).sum()

    numpy.testing.assert_allclose(np.grad(looking)(np.array(X)), 2 * X)


# ---- lists ---------------------------------------------------------------------------------------


def test_lists_of_elements_are_written():
    def written(np, x):
        a = np.zeros((4, 3))
        a[0] = [x[0], x[1], x[2] ** 2]
        a[1, [0, 2]] = [x[0], x[2] ** 2]
        a[2, numpy.array([True, False, True])] = x[3], 2.0
        a[3:] = [[x[4], 1, x[0] * x[1]]]
        b = np.zeros((2, 5))
        b[:] = [x, x ** 2]
        return (a * a).sum() + (b * b).sum()

    check(written)


def test_lists_of_elements_are_operands():
    check(lambda np, x: (np.ones(2) * [x[0], x[1]]).sum() + ([x[2], 2.0] * np.ones(2)).sum() ** 2)
    check(lambda np, x: (x[:2] * [x[0], 1]).sum() + ((x[0], 3) - x[1:3]).prod())


# ---- when history ends ---------------------------------------------------------------------------


def test_what_a_function_puts_aside_has_no_history_once_the_gradient_is_there():
    aside = []

    def function(x):
        aside.extend((x, x * 2, x * 3))
        aside.append(aside[1][1:])
        return (aside[1] ** 2).sum()

    np.grad(function)(np.array(X))
    assert not any(array.node.keeps for array in aside)
    aside[2].partition(1)  # NumPy does that
    numpy.testing.assert_allclose(aside[2], numpy.partition(3 * X, 1))


def test_no_history_is_left_after_an_exception():
    aside = []

    def function(x):
        aside.append(x * 2)
        raise KeyError

    for differentiate in (np.grad, np.jacobian):
        with pytest.raises(KeyError):
            differentiate(function)(np.array(X))
    with pytest.raises(KeyError):
        np.vjp(function, np.array(X))

    def without_derivative(x):
        aside.append(x * 2)
        aside[-1].setfield(x * 3, float)
        return aside[-1].sum()

    with pytest.raises(NoDerivative):
        np.grad(without_derivative)(np.array(X))
    assert not any(array.node.keeps for array in aside)


def test_a_pull_that_outlives_the_outer_gradient_stays_right():
    held = {}

    def function(x):
        value, held["pull"] = np.vjp(lambda y: y ** 3 * x[0], x)
        return value.sum()

    found = np.grad(function)(np.array(X))
    numpy.testing.assert_allclose(
        found, differences(lambda x: (x ** 3 * x[0]).sum()), rtol=1e-6, atol=1e-6)
    numpy.testing.assert_allclose(held["pull"](np.ones(5))[0], 3 * X ** 2 * X[0])


def test_history_ends_with_the_pull():
    value, pull = np.vjp(lambda x: x ** 2, np.array(X))
    assert value.node.keeps
    (found,) = pull(np.ones(5))
    numpy.testing.assert_allclose(found, 2 * X)
    del pull
    assert not value.node.keeps
    value, _ = np.vjp(lambda x: x ** 2, np.array(X))
    del _
    assert not (value + 1).node.keeps


# ---- elements that NumPy moves -------------------------------------------------------------------


def put_by_numpy(np, x):
    a = np.zeros((2, 3))
    np.put(a, [0, 2, 4], x[:3] ** 2)
    a.put([1, 1], [x[4], 2.0])
    b = x ** 2
    np.put(b, [0, 9, -1], [3.0, 4.0], mode="clip")
    return (a * a).sum() + (b * b).sum()


def placed(np, x):
    a, b = x ** 2, x * 2
    np.place(a, x > 0.5, x[1:3] * 2)
    np.putmask(b, x > 0.5, x * 3)
    np.putmask(b, x < -1, x[4])
    return (a * b).sum()


def put_along(np, x):
    a = x[:, None] * x
    np.put_along_axis(a, numpy.array([[0], [1], [2], [3], [4]]), x[:, None], 1)
    a[1:3].put(3, x[0])
    return (a * a).sum()


def added_at(np, x):
    a, b, c = x[:3] * 2, np.zeros((2, 3)), x * x
    np.add.at(a, [0, 0, 1, 2, 1], x * x)
    np.subtract.at(a, numpy.array([0, 2, 0]), x[2])
    np.add.at(b, ([0, 1, 0], [2, 2, 2]), x[1:4])
    np.add.at(b[1], slice(1, None), x[:2])
    np.add.at(c, [0, 0, 1], 1.5)
    np.multiply.at(c, [0, 3], x[3])
    np.negative.at(c, [1])
    return (a * a).sum() + (b ** 3).sum() + (c * c).sum()


def moved_at_random(np, x):
    random = np.random.default_rng(0)
    a, b = x ** 2, x[:, None] * x
    random.shuffle(a)
    random.shuffle(b)
    c = random.permutation(x ** 2) * random.choice(x, 5)
    d = random.choice(x) * random.permuted(b, axis=1)[0]
    return (a * c * d * b[1] * numpy.arange(5)).sum()


@pytest.mark.parametrize("function", [put_by_numpy, placed, put_along, added_at, moved_at_random])
def test_elements_that_numpy_moves_keep_their_history(function):
    check(function)
    hessian = np.hessian(lambda x: function(np, x))(np.array(X))
    rows = [differences(lambda x, k=k: np.grad(lambda x: function(np, x))(np.array(x))[k])
            for k in range(5)]
    numpy.testing.assert_allclose(hessian, rows, rtol=1e-5, atol=1e-5)


def test_what_moves_within_one_array_is_read_as_numpy_does():
    def function(np, x):
        a = x * 2
        np.place(a, a > 0.5, a[::-1])
        np.put(a[1:], [0, 1, 2], a[:3])
        return (a * a * numpy.arange(5)).sum()

    check(function)


def test_a_product_at_places_that_come_twice():
    def function(np, x):
        a = x * 2
        np.multiply.at(a, [0, 3, 0], x[1:4])
        np.multiply.at(a[::2], [1, 1], a[0])
        return (a * a).sum()

    check(function)


# ---- arrays without axes -------------------------------------------------------------------------


def without_axes(np, x):
    z = np.zeros(())
    z[...] = x[1]
    v = z[...]
    v *= x[0]
    w = x[2:3].reshape(())
    w += z
    total = np.array(1.0)
    same = total
    for k in range(3):
        same += x[k] * w
    return z * w * total + x[2]


@pytest.mark.parametrize("at_once", [0, 1, 65536])
def test_arrays_without_axes_are_written_and_scalars_are_not(monkeypatch, at_once):
    monkeypatch.setattr(np.config, "at_once", at_once)
    x = X.copy()
    assert float(without_axes(np, np.array(X))) == pytest.approx(float(without_axes(numpy, x)))
    check(without_axes)
    assert float(np.jit(lambda x: without_axes(np, x))(np.array(X))) == pytest.approx(
        float(without_axes(numpy, X.copy())))

    def scalars(np, x):
        s = x[0]
        t = s
        t += 1
        return s * t * x[1]

    check(scalars)


# ---- variables -----------------------------------------------------------------------------------


def test_a_variable_inside_a_function_goes_on_with_its_history():
    def forces(x):
        y = np.variable(x * 2)
        force = (y ** 3).sum().grad(y)
        return (force * x).sum()

    found = np.grad(forces)(np.array(X))
    numpy.testing.assert_allclose(found, 36 * X ** 2)
    numpy.testing.assert_allclose(np.jit(np.grad(forces))(np.array(X)), 36 * X ** 2)


def test_a_variable_of_a_result_begins_anew():
    x = np.variable(X)
    y = np.variable(x * 2)
    numpy.testing.assert_allclose((y ** 2).sum().grad(y), 4 * X)
    numpy.testing.assert_allclose((y ** 2).sum().grad(x), 0 * X)


def test_progressions_between_ends_with_a_history():
    check(lambda np, x: (np.linspace(x[0], x[2], 7) ** 2).sum())
    check(lambda np, x: (np.linspace(x, x[::-1] * 2, 3, axis=1) ** 2)[1].sum())

    def step(np, x):
        values, step = np.linspace(1.0, x[1], 4, endpoint=False, retstep=True)
        return (values * step).sum()

    check(step)


@pytest.mark.parametrize("write", [
    lambda np, n, m: np.put(n, [0, 1], m[2:4]), lambda np, n, m: np.put(n, [3, 0], n[1:3]),
    lambda np, n, m: np.place(n, numpy.arange(6) % 2 == 0, m[::-1]),
    lambda np, n, m: np.put_along_axis(n, numpy.array([4, 1]), m[:2], 0)])
@pytest.mark.parametrize("turned", [False, True])
def test_places_in_parts_of_one_array(write, turned):
    """The parts of a complex array have its memory, but not its elements."""
    x = numpy.random.default_rng(0).normal(size=6)

    def function(np, x):
        z = (x + 2j) * x
        parts = z.imag, z.real
        write(np, *(parts[::-1] if turned else parts))
        return (z.real * x * x + z.imag * 3 * x).sum()

    def places(y):
        return float(function(numpy, y))

    value, slope = np.value_and_grad(lambda x: function(np, x))(np.array(x))
    assert abs(float(value) - places(x)) < 1e-12
    step = 1e-6 * numpy.eye(6)
    numpy.testing.assert_allclose(
        slope, [(places(x + h) - places(x - h)) / 2e-6 for h in step], rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(("dtype", "value"), [
    ("i8", 5), ("M8[s]", "2000-01-01"), ([("a", "f4"), ("b", "f4")], (1.0, 2.0))])
def test_writes_into_views_as_something_else_lose_no_history(dtype, value):
    """The other elements' gradients would be zeros."""
    def written(x):
        y = x * 1.0
        y.view(dtype)[0] = value
        return (y * y).sum()

    with pytest.raises(HistoryLost, match="what is written into a view as"):
        np.grad(written)(np.arange(3.0))

    def apart(x):
        y = np.zeros(3)
        y.view("i8")[0] = 4607182418800017408  # 1.0
        return (x * y).sum()

    assert np.grad(apart)(np.arange(3.0)).tolist() == [1, 0, 0]
