"""Programs as people write them, each with a number as its result: what a gradient must get right.

Each is given a module, NumPy or ours, and an array of five numbers.  One that is refused, by an
error that says why, may be written so that it is not; none may have a wrong gradient.
"""

import copy
import math
import statistics

import numpy

import tiledarray

TEXT = """
swap:
    x = x * 1.0
    x[0], x[1] = x[1], x[0]
    return (x * np.arange(5.)).sum()
swap_in_arg:
    x[0], x[1] = x[1], x[0]
    return (x * x * np.arange(5.)).sum()
swap_slices:
    x = x.copy()
    x[:2], x[2:4] = x[2:4].copy(), x[:2].copy()
    return (x * x * np.arange(5.)).sum()
swap_index:
    x = x.copy()
    x[[0, 3]] = x[[3, 0]]
    return (x * x * np.arange(5.)).sum()
full_assign:
    a = np.zeros(5); a[:] = x; a *= a
    return (a * np.arange(5.)).sum()
ellipsis_assign:
    a = np.zeros(5); a[...] = x * 2; return (a ** 3).sum()
view_iadd:
    a = np.zeros((5, 2)); v = a[1:, 0]; v += x[1:] ; v *= v; a[:, 1] += a[:, 0]
    return (a * a).sum()
view_of_view:
    a = x * 1.0; v = a[::-1][1:][::2]; v[...] *= 3.0; v += a[0]
    return (a ** 2).sum()
out_arg:
    a = np.empty(5); np.multiply(x, x, out=a); np.exp(a[:2], out=a[2:4]); np.add(a, x, a)
    return (a * np.arange(5.)).sum()
where_arg:
    a = x * 2; np.sin(x, out=a, where=x > 0.5); return (a * a).sum()
where_sum:
    return np.sum(x * x, where=x > 0) + np.max(x, where=x < 2, initial=-9.)
mean_where:
    return np.mean(x ** 2, where=x > 0) + np.var(x, where=x > 0)
copyto:
    a = np.zeros(5); np.copyto(a, x * x); np.copyto(a, 2 * x, where=x > 1); return (a * a).sum()
copyto_mask:
    a = np.zeros(5); np.copyto(a, x, where=numpy.array([True, False, True, True, False]))
    return (a ** 3).sum()
put:
    a = np.zeros(5); np.put(a, [0, 2, 4], x[:3] ** 2); a.put([1], x[4]); return (a * a).sum()
put_own:
    a = x ** 2; np.put(a, [0, 2], [3.0, 4.0]); return (a * a).sum()
place:
    a = x ** 2; np.place(a, x > 0.5, x[1:3] * 2); return (a * a).sum()
putmask:
    a = x ** 2; np.putmask(a, x > 0.5, x * 3); return (a * a).sum()
fill_diagonal:
    a = np.outer(x, x) ; np.fill_diagonal(a, x[2]); return (a * a).sum()
fill_diagonal_array:
    a = np.outer(x, x) ; np.fill_diagonal(a, x ** 3); b = np.ones((9, 3)) * x[0]
    np.fill_diagonal(b, x[1:3] * 2, wrap=True); return (a * a).sum() + (b * b).sum()
fill_diagonal_const:
    a = x[:, None] * x; np.fill_diagonal(a, 0.0); return (a * a * a).sum()
fill:
    a = x ** 2; a[1:3].fill(2.0); b = np.zeros(3); b.fill(x[0])
    return (a * a).sum() + (b ** 2).sum()
sort_method:
    a = x ** 2; a.sort(); return (a * np.arange(5.)).sum()
sort_view:
    a = x.copy(); a[1:4].sort(); return (a * a * np.arange(5.)).sum()
partition:
    a = x.copy(); a.partition(2); return a[2] ** 2
flat_assign:
    a = np.zeros((5, 2)); a.flat[::2] = x; a.flat[1] = x[0] * x[1]; return (a ** 2).sum()
flat_read:
    a = np.outer(x, x) ; return sum(v * v for v in a.flat[:3])
flat_iter:
    s = 0.0
    for v in x.flat: s = s + v * v
    return s
flat_set_all:
    a = np.zeros((2, 2)); a.flat = x[:4]; return (a ** 2).sum()
add_at:
    a = np.zeros(3); np.add.at(a, [0, 0, 1, 2, 1], x * x); return (a * a).sum()
add_at_hist:
    a = x[:3] * 2; np.add.at(a, numpy.array([0, 0, 1, 2, 1]), x * x); return (a * a).sum()
add_at_scalar:
    a = x * x; np.add.at(a, [0, 0, 1], 1.5); return (a * a).sum()
subtract_at:
    a = x[:3] * 2; np.subtract.at(a, numpy.array([0, 0, 1, 2, 1]), x * x); return (a * a).sum()
multiply_at:
    a = x[:3] * 2; np.multiply.at(a, [0, 1], x[3]); return (a * a).sum()
append:
    return (np.append(x, x[0] * x[1]) ** 2 * np.arange(6.)).sum()
insert:
    return (np.insert(x, 2, x[0] * x[1]) ** 2 * np.arange(6.)).sum()
delete:
    return (np.delete(x * x, 1) * np.arange(4.)).sum()
array_of_elements:
    a = np.array([x[0], x[1] * 2, 3.0]); return (a * a).sum()
array_nested:
    a = np.array([[x[0], x[1] * 2], [1.0, x[2] * x[0]]]); return (a * a).sum()
array_rows:
    a = np.array([x, x * 2]); return (a * a).sum()
asarray_rows:
    a = np.asarray([x, [1., 2., 3., 4., 5.]]); return (a * a).sum()
array_comprehension:
    a = np.array([v * v for v in x]); return (a * a).sum()
array_mixed:
    a = np.array([x[0], numpy.float64(2.0), 3, x[1]]) ; return (a * a).sum()
array_dtype:
    return (np.array([x[0], x[1]], dtype=float) ** 2).sum()
array_f32:
    return (np.array([x[0] * 1, x[1] * 2], dtype=complex) ** 2).sum().real
list_index_assign:
    a = np.zeros(3); a[:] = [x[0], x[1], x[2] ** 2]; return (a * a).sum()
list_index_assign_fancy:
    a = np.zeros(3); a[[0, 2]] = [x[0], x[2] ** 2]; return (a * a).sum()
list_index_assign_mask:
    a = np.zeros(3); a[numpy.array([True, False, True])] = [x[0], x[2] ** 2]; return (a * a).sum()
list_rows_assign:
    a = np.zeros((2, 5)); a[:] = [x, x ** 2]; return (a * a).sum()
tuple_assign:
    a = np.zeros((2, 2)); a[0] = x[0], x[1] ** 2; return (a * a).sum()
list_arith:
    return (np.ones(2) * [x[0], x[1]]).sum() + ([x[2], 2.0] * np.ones(2)).sum() ** 2
list_ufunc:
    return np.exp([x[0], x[1]]).sum() + np.add([x[0], 1.0], [2.0, x[1]]).sum() + \\
        np.hypot(x[0], [1.0, 2.0]).sum()
list_functions:
    return np.sum([x[0], x[1] ** 2]) + np.mean([x[2], x[3] ** 2]) + np.max([x[0], x[4]]) + \\
        np.prod([x[0], x[1]])
list_where:
    return np.where([True, False], [x[0] ** 2, 1.0], [2.0, x[1] ** 2]).sum()
list_maximum:
    return np.maximum([x[0] ** 2, 1.0], 0.2).sum() + np.clip([x[1], x[0] ** 2], -9, 9).sum()
stack:
    return (np.stack([x[0], x[1] * x[2], 3.0]) ** 2).sum()
stack_rows:
    return (np.stack([x, x * x], axis=1) ** 2).sum()
concatenate:
    return (np.concatenate([x, [1.0, 2.0], x[:2] ** 2]) ** 2).sum()
concatenate_lists:
    return (np.concatenate([[x[0], 1.0], [x[1] ** 2]]) ** 2).sum()
block:
    return (np.block([[x[0], x[1]], [1.0, x[2] ** 2]]) ** 2).sum()
block_arrays:
    return (np.block([[x[:2][:, None] * x, np.ones((2, 1))], [x[None, :] ** 2, np.ones((1, \\
        1))]]) ** 2).sum()
hstack_etc:
    return (np.hstack([x[0], x[1] ** 2]) ** 2).sum() + (np.vstack([x, x * x]) ** 2).sum() + \\
        (np.column_stack([x, x]) ** 3).sum() + (np.r_[x, x[0], 1.0] ** 2).sum() + \\
        (np.c_[x, x * 2] ** 2).sum()
iterate:
    s = 0.0
    for v in x: s = s + v * v * v
    return s
iterate_rows:
    s = 0.0
    for i, r in enumerate(np.outer(x, x) if False else x[:, None] * x): s = s + (i + \\
        1) * (r * r).sum()
    return s
iterate_write:
    a = x[:, None] * x
    for r in a: r *= r[0]
    return a.sum()
zipped:
    return sum(a * b for a, b in zip(x, np.arange(5.) * x))
enumerated:
    s = 0
    for i, v in enumerate(x): s += i * v ** 2
    return s
python_sum:
    return sum(x * x)
python_max:
    return max(x) ** 2 + min(x * x)
python_sorted:
    s = sorted(x); return s[0] * s[4] ** 2 + s[2]
unpack:
    a, b, *c = x; return a * b + c[0] ** 2 + c[-1]
reversed_:
    s = 1.0
    for k, v in enumerate(reversed(x)): s = s * (v + k)
    return s
tolist:
    l = x.tolist(); return np.sum(x) * l[0]
math_exp:
    return x.sum() * math.exp(x[0])
float_:
    return x.sum() * float(x[0])
int_:
    return x.sum() * int(x[2])
complex_:
    return x.sum() * complex(x[0], 1).real
divmod_:
    q, r = divmod(x, 0.6); return (q * r ** 2).sum()
divmod_scalar:
    q, r = divmod(x[2], 0.6); return q * r ** 2
pow3:
    return pow(x, 3).sum() + (2 ** x).sum() + (x ** 2.0).sum()
round_:
    return (x * round(x[0], 1)).sum()
abs_:
    return abs(x).sum() ** 2
vectorize:
    f = np.vectorize(lambda a: a * a if a > 0 else -a); return f(x).sum()
vectorize_two:
    f = np.vectorize(lambda a, b: a * b); return f(x, x[0]).sum()
apply_along:
    return np.apply_along_axis(lambda r: r * r.sum(), 0, x[:, None] * x).sum()
apply_over:
    return np.apply_over_axes(np.sum, x[:, None] * x, [0, 1]).sum()
piecewise:
    return np.piecewise(x, [x < 0, x >= 0], [lambda v: v ** 2, lambda v: v * 3]).sum()
select:
    return np.select([x < 0, x < 1], [x ** 2, x ** 3], default=x[0] * 2).sum()
choose:
    return np.choose([0, 1, 0, 1, 1], [x, x ** 2]).sum()
interp:
    return np.interp(x, numpy.array([-2., 0., 3.]), numpy.array([1., 3., 2.])).sum()
interp_fp:
    return np.interp(numpy.array([0.5, 1.5]), numpy.array([0., 1., 2., 3., 4.]), x * x).sum()
astype_complex:
    return abs((x.astype(complex) * (1 + 2j)) ** 2).sum()
astype_int:
    return (x.astype(int) * x).sum()
real_imag:
    z = x * (1 + 2j); z = z * z; return (z.real * z.imag).sum()
imag_write:
    z = np.zeros(5, complex); z.real = x; z.imag = x * x; z.real += z.imag
    return (z * z).real.sum()
real_view_write:
    z = x * (1 + 1j); z.real[1:3] = x[0] ** 2; z.imag[...] *= x; return abs(z).sum()
transposed_write:
    a = x[:, None] * x; a.T[0] = x ** 2; a.T[1, :] += 1; return (a * a).sum()
ndenumerate:
    s = 0.
    for i, v in np.ndenumerate(x): s = s + v * v * i[0]
    return s
nan_to_num:
    return np.nan_to_num(x * x).sum() + np.nan_to_num(x, copy=False).sum()
bool_arith:
    return ((x > 0) * x * x).sum() + (~(x > 1) * x).sum() + x[x > 0].sum()
bool_minus:
    return (x * (1.0 - (x > 0))).sum()
zeros_loop:
    a = np.zeros(5)
    for i in range(5): a[i] = x[i] * x[(i + 1) % 5]
    return (a * a).sum()
zeros_loop2:
    a = np.zeros((5, 5))
    for i in range(5):
        for j in range(i): a[i, j] = x[i] - x[j]; a[j, i] = -a[i, j]
    return (a ** 4).sum()
zeros_views_first:
    a = np.zeros((3, 5)); r = a[1]; c = a[:, 2]; r[:] = x; c[0] = x[0] * x[1]; c += 1.0
    return (r * r).sum() + (c ** 3).sum() + a.sum()
zeros_before_hist:
    a = np.zeros(5); a += 1; v = a[1:]; v *= 2; w = v[::2]; w += x[:2]; a *= x
    return (v * v).sum() + w[0]
ones_imul:
    a = np.ones(5); a *= x; a -= x[::-1]; a /= 2 + x * x; a **= 2; return a.sum()
recurrence:
    a = np.empty(20); a[0] = x[0]
    for k in range(1, 20): a[k] = 0.9 * a[k - 1] + 0.1 * x[k % 5] ** 2
    return a.sum()
outside_written:
    a = np.zeros(5);
    def f(): a[1:] += x[1:] ** 2
    f(); return (a * a).sum()
closure_state:
    class S:
        def __init__(self): self.u = np.zeros(5); self.t = 0
        def step(self): self.u += 0.1 * (x - self.u ** 2); self.t += 1
    s = S()
    for _ in range(10): s.step()
    return (s.u ** 2).sum()
generator:
    def g():
        u = x.copy()
        for _ in range(5):
            u[1:-1] += 0.2 * (u[2:] - 2 * u[1:-1] + u[:-2]); yield u.sum()
    return sum(g()) ** 2
recursion:
    def rec(v): return v[0] ** 2 if len(v) == 1 else rec(v[:len(v) // 2]) * 2 + rec(v[len(v) // 2:])
    return rec(x)
branch:
    if x[0] > 0: return (x ** 2).sum()
    return x.sum()
while_:
    s = x.sum()
    while s < 100: s = s * 1.5 + x[0]
    return s
exception_inside:
    try:
        x[10] = 3
    except IndexError:
        pass
    a = x * 2
    try: a[:3] = x[:2]
    except ValueError: pass
    return (a * x).sum()
zero_d:
    a = np.array(0.0); a += x[0]; a *= x[1]; a[...] = a + 1; b = np.zeros(()); b[()] = x[2]
    return a * b
np_scalars:
    return (numpy.float64(2.0) * x + x * numpy.float32(3)).sum() + numpy.float64(2) ** x[0]
dot_free:
    return (x * x[::-1]).sum() + (x[:, None] * x[None, :]).sum(axis=0).max()
reshape_write:
    a = np.zeros((2, 5)); b = a.reshape(10); b[3:8] = x; c = a.ravel(); c[0] = x[0] ** 2
    d = a.reshape(5, 2)[1:]; d *= 2
    return (a ** 3).sum()
shape_assign:
    a = x[:4] ** 2; a.shape = (2, 2); a[0] *= x[4]; return (a * a).sum()
resize:
    a = np.resize(x, (2, 4)); return (a ** 2).sum()
resize_method:
    a = x ** 2; a.resize(3, refcheck=False); return (a * a).sum()
broadcast_read:
    a = np.broadcast_to(x, (3, 5)); return (a ** 2 * np.arange(15.).reshape(3, 5)).sum()
diag_write:
    a = x[:, None] * x; a[range(5), range(5)] = x ** 3; d = a.diagonal()
    return (a * a).sum() + (d * d).sum()
diag:
    return (np.diag(x) ** 2 * 3 + np.diag(x[1:], 1)[:5, :5]).sum() + np.trace(x[:, None] * x)
ix_write:
    a = np.zeros((5, 5)); a[np.ix_([0, 2], [1, 3])] = x[0] * x[1]
    a[np.ix_([0, 2], [1, 3])] += x[:2]; return (a * a).sum()
repeated_index_write:
    a = np.zeros(3); a[[0, 0, 1]] = x[:3] ** 2; a[[1, 1, 2]] += x[2:]; return (a * a).sum()
mask_write:
    a = x ** 2; a[x > 0.5] = 0.0; a[x < 0] *= x[0]; a[a == 0] = x[4]; return (a * a).sum()
mask_write_array:
    a = x ** 2; m = x > 0.5; a[m] = x[m] * 2; a[~m] += x[~m] ** 3; return (a * a).sum()
take_ops:
    return (np.take(x, [0, 0, 3]) ** 2).sum() + (x.take([1, 2]) ** 3).sum() + \\
        np.take_along_axis(x, np.argsort(x), 0)[1] + (np.compress([1, 0, 1], x) ** 2).sum() + \\
        (np.extract(x > 0, x) ** 2).sum()
put_along:
    a = (x[:, None] * x).copy()
    np.put_along_axis(a, numpy.array([[0], [1], [2], [3], [4]]), x[:, None], 1)
    return (a * a).sum()
random_normal:
    numpy.random.seed(0)
    if np is not numpy: tiledarray.random.seed(0)
    return np.random.normal(x, 1.0).sum() * x[0]
random_uniform:
    np.random.seed(0)
    return (np.random.uniform(0, 2, 5) * x ** 2).sum()
random_shuffle:
    np.random.seed(0); a = x ** 2; np.random.shuffle(a); return (a * np.arange(5.)).sum()
random_permutation:
    np.random.seed(0); return (np.random.permutation(x ** 2) * np.arange(5.)).sum()
random_choice:
    np.random.seed(0); return (np.random.choice(x ** 2, 5) * np.arange(5.)).sum()
generator_normal:
    g = np.random.default_rng(0); return (g.normal(x, x ** 2)).sum()
generator_shuffle:
    g = np.random.default_rng(0); a = x ** 2; g.shuffle(a); return (a * np.arange(5.)).sum()
generator_standard:
    g = np.random.default_rng(0); return (g.standard_normal(5) * x ** 2).sum()
roll_flip:
    return (np.roll(x, 2) * x * np.flip(x) * np.arange(5.)).sum() + \\
        (np.rot90(x[:, None] * x) * np.arange(5.)).sum()
pad:
    return (np.pad(x, 2) ** 2).sum() + (np.pad(x, 2, mode='edge') ** 2).sum() + \\
        (np.pad(x, 1, mode='reflect') ** 2).sum() + \\
        (np.pad(x, 1, constant_values=(x[0], 2.0)) ** 2).sum()
tile_repeat:
    return (np.tile(x, 3) ** 2).sum() + (np.repeat(x, [1, 2, 0, 1, 3]) ** 2).sum() + \\
        (x.repeat(2) ** 2).sum()
split:
    a, b = np.split(x, [2]); a *= 2; return (a ** 2).sum() + (b ** 3).sum() + x[0] * x[2]
array_split:
    return sum((p ** (k + 1)).sum() for k, p in enumerate(np.array_split(x, 3)))
meshgrid:
    a, b = np.meshgrid(x, x[:3]); return (a * b ** 2).sum()
diff_etc:
    return (np.diff(x) ** 2).sum() + (np.ediff1d(x, to_end=x[0]) ** 2).sum() + \\
        (np.gradient(x) ** 2).sum() + np.trapezoid(x ** 2, x)
stats:
    return np.std(x) + np.var(x, ddof=1) + np.ptp(x) + np.average(x, weights=x ** 2) + \\
        np.mean(x) ** 2
median:
    return np.median(x) ** 2 + np.percentile(x, 30) + np.quantile(x, 0.7) ** 2
nanstats:
    return np.nansum(x ** 2) + np.nanmean(x) ** 2 + np.nanmax(x) + np.nanstd(x) + np.nanprod(x)
cum:
    return (np.cumsum(x) ** 2).sum() + (np.cumprod(x) ** 2).sum()
cum_out:
    a = np.zeros(5); np.cumsum(x, out=a); return (a * a).sum()
reduce_out:
    a = np.zeros(()); np.sum(x * x, out=a); b = np.zeros(3)
    np.mean(x[:, None] * np.ones(3) * x[0], axis=0, out=b); return a * b.sum()
ufunc_reduce:
    return np.add.reduce(x ** 2) + np.multiply.reduce(x) + np.maximum.reduce(x) ** 2 + \\
        np.logaddexp.reduce(x)
ufunc_accumulate:
    return (np.add.accumulate(x) ** 2).sum() + (np.multiply.accumulate(x)).sum()
ufunc_max_accumulate:
    return (np.maximum.accumulate(x) ** 2).sum()
ufunc_outer:
    return (np.multiply.outer(x, x) ** 2).sum() + np.subtract.outer(x, x[:2]).max()
ufunc_reduceat:
    return (np.add.reduceat(x, [0, 2, 3]) ** 2).sum()
bincount:
    return (np.bincount([0, 1, 1, 2, 0], weights=x * x) ** 2).sum()
histogram:
    return (np.histogram(numpy.array([0., 1, 1, 2, 0]), bins=3, weights=x * x)[0] ** 2).sum()
polyval:
    return np.polyval(x, 1.5) ** 2 + (np.polyval([1., 2., 3.], x)).sum()
poly_class:
    return numpy.polynomial.Polynomial([1., 2.])(x).sum()
tri:
    return (np.tril(x[:, None] * x) ** 2).sum() + (np.triu(x[:, None] * x, 1) ** 3).sum()
frompyfunc:
    f = np.frompyfunc(lambda a: a * a, 1, 1); return f(x).sum() * 1.0
fromiter:
    return (np.fromiter((v * v for v in x), float) ** 2).sum()
fromfunction:
    return (np.fromfunction(lambda i, j: (i + j) * x, (5, 5)) ** 2).sum()
full_hist:
    return (np.full(3, x[0]) ** 2).sum() + (np.full((2, 5), x) ** 2).sum() + \\
        (np.full_like(x, x[1]) ** 2).sum()
linspace_hist:
    return (np.linspace(x[0], x[2], 7) ** 2).sum()
arange_hist:
    return (np.arange(x[0], x[0] + 3.2, 1.0) ** 2).sum()
logspace_hist:
    return (np.logspace(x[0], x[2], 4)).sum() + (np.geomspace(abs(x[0]) + 1, 9.0, 4) ** 2).sum()
vander:
    return (np.vander(x, 4) ** 2).sum()
isclose_etc:
    if np.allclose(x, \\
        x) and np.all(x < 5) and not np.any(x > 9) and np.isfinite(x).all(): return (x ** 2).sum()
    return x.sum()
searchsorted:
    return x[np.searchsorted(numpy.array([0., 1.]), 0.5)] ** 2 + x[np.argmax(x)] ** 2 + \\
        x[x.argmin()] ** 3
digitize:
    return (x * np.digitize(x, [0., 1.])).sum()
where3:
    return (np.where(x > 0, x ** 2, np.where(x > -1, 3.0, -x))).sum()
where1:
    return (x[np.where(x > 0)] ** 2).sum() + (x[np.nonzero(x > 1)[0]] ** 2).sum() + \\
        (x[np.flatnonzero(x)]).sum()
clip_out:
    a = x * 2; np.clip(a, 0, 2, out=a); a.clip(0.1, 1.5, out=a); return (a * a).sum()
round_out:
    return (np.round(x, 1) * x).sum()
view_dtype:
    z = x[:4].copy().view(complex); return abs(z * z).sum()
view_plain:
    v = x.view(); v *= 2; return (x * v).sum()
as_strided:
    a = x * x; s = a.strides[0]
    return (np.lib.stride_tricks.as_strided(a, (3, 3), (s, s)) ** 2).sum()
sliding:
    return (np.lib.stride_tricks.sliding_window_view(x, 3) ** 2 * np.arange(3.)).sum()
copy_flags:
    a = np.copy(x); b = np.ascontiguousarray(x); c = np.array(x, copy=True); d = np.asarray(x)
    e = x.__copy__() ; a *= 2; b = b * 3
    g = copy.deepcopy(x); h = copy.copy(x)
    return (a * b * c * d * e * g * h).sum()
asfortran:
    return (np.asfortranarray(x[:, None] * x) ** 2).sum() + (x[:, None] * x).flatten('F')[3] + \\
        np.ravel(x[:, None] * x, order='F')[7]
squeeze_etc:
    return (x[None, :, None].squeeze() ** 2).sum() + \\
        (np.swapaxes(x[:, None] * x, 0, 1)[0] ** 2).sum() + \\
        (np.moveaxis((x[:, None] * x)[None], 0, 2) ** 2).sum() + np.atleast_2d(x).sum() * x[0]
einsum_sum:
    return np.einsum('i->', x * x)
matmul_:
    return x @ x + np.dot(x, x) + (np.outer(x, x) @ x).sum()
convolve:
    return (np.convolve(x, [1., 2.]) ** 2).sum()
correlate:
    return (np.correlate(x, x[:2], 'full') ** 2).sum()
cross:
    return (np.cross(x[:3], x[2:]) ** 2).sum()
unwrap:
    return (np.unwrap(x * 3) ** 2).sum() + (np.angle(x + 1j) ** 2).sum() + np.sinc(x).sum() + \\
        np.i0(x).sum()
unique:
    return (np.unique(x * x) * np.arange(5.)).sum()
unique_inv:
    u, i = np.unique(x * x, return_inverse=True); return (u[i] * np.arange(5.)).sum()
frexp_modf:
    m, e = np.frexp(x); f, i = np.modf(x); return (np.ldexp(m, e) * x).sum() + (f * i * x).sum()
hypot_etc:
    return np.hypot(x, x[0]).sum() + np.arctan2(x, 1 + x ** 2).sum() + np.logaddexp(x, 0).sum() + \\
        np.fmax(x, 0.5).sum() ** 2 + np.heaviside(x, x[0]).sum() + np.copysign(x, -1).sum() ** 2
memo_dict:
    d = {}
    for k in range(5): d[k] = x[k] ** 2
    d2 = dict(sorted(d.items())); return sum(d2.values())
array_of_objects:
    a = np.array([x[0], x[1]], dtype=object); return (a[0] * a[1]) * 1.0
hash_eq:
    return (x ** 2).sum() if x[0] in x else x.sum()
index_scalar:
    return x[int(np.floor(x[2]))] ** 2
loop_scalar_array:
    s = x[0]
    for k in range(1, 5): s += x[k] ** 2; s *= 1.1
    return s
chained_where_out:
    r = np.zeros(5); np.divide(1.0, x, out=r, where=x != 0); np.log(r, out=r, where=r > 0)
    return (r * r).sum()
maximum_out_int:
    a = np.zeros(5); a[1::2] = np.maximum(x[1::2], 0); a[::2] -= x[::2] * 3; return (a * a).sum()
set_real:
    a = np.zeros(5); a.real = x * x; a.real[1] = x[0]; return (a * a).sum()
itemset:
    a = x * 2; a[2] = x[0].item() if False else x[0]; return (a * a).sum()
setfield:
    a = np.zeros(5); a.setfield(x, float); return (a * a).sum()
from_numpy_outside:
    a = numpy.zeros(5); a[:] = x; return (a * x).sum()
numpy_function:
    return numpy.sin(x).sum() + numpy.add(numpy.ones(5), x).sum() + \\
        (numpy.ones(5) * x * x).sum() + numpy.concatenate([x, x * x]).sum()
numpy_array_iadd:
    a = numpy.ones(5); a += x; return (a * x).sum()
numpy_asarray:
    return (numpy.asarray(x) * x).sum()
numpy_out:
    a = numpy.ones(5); numpy.multiply(x, 2, out=a); return (a * x).sum()
bool_to_float:
    return (x * float(x[0] > 0)).sum()
scalar_minmax:
    return max(0.0, x[0]) ** 2 + min(x[1], x[2], 0.5) + abs(x[1])
sum_start:
    return sum([x[0], x[1] * 2], 0.0) + sum([x, x], np.zeros(5)).sum()
math_fsum:
    return x.sum() * math.fsum(x)
statistics_mean:
    return statistics.fmean(x) * x[0]
mask_arith_write:
    a = x.copy(); a[a > 1] -= 1; a[(a < 0) & (x > -2)] = -x[1] ** 2; return (a ** 2).sum()
augmented_getitem:
    a = np.zeros((3, 5)); a[1] += x; a[1][2] *= x[0]; a[:, 1] -= x[0]; a[0, 0] += x[1]
    a[2, [0, 0, 1]] += x[:3]; return (a ** 2).sum()
lists_of_arrays:
    h = [x]
    for _ in range(4): h.append(h[-1] * 0.5 + h[0] ** 2)
    return (np.array(h) ** 2).sum() + np.stack(h)[2, 1] + np.sum(h)
mean_list:
    return np.mean([x, x ** 2]) + np.std([x[0], x[1]])
nested_tuple_array:
    return (np.array(((x[0], 1), (x[1], 2.5))) ** 2).sum()
eye_write:
    a = np.eye(3); a[0, 1] = -x[0]; a[1, 0] = x[0] ** 2; return (a * a[::-1]).sum()
rot_matrix:
    c, s = np.cos(x[0]), np.sin(x[0]); m = np.array([[c, -s], [s, c]])
    return (m * m.T * np.arange(4.).reshape(2, 2)).sum()
identity_like:
    a = np.zeros_like(x); b = np.empty_like(x); a[2] = x[1] ** 2; b[:] = a; b[0] += x[0]
    return (b ** 2).sum()
"""

# What looks at values, or has its values in Python's or NumPy's hands.
REFUSED = frozenset("""
arange_hist array_of_objects complex_ float_ from_numpy_outside frompyfunc math_exp
math_fsum numpy_array_iadd numpy_asarray numpy_out poly_class resize_method setfield
statistics_mean tolist unique_inv vectorize vectorize_two
""".split())  # noqa: SIM905


def _programs(text):
    """The functions of the text, by their names."""
    variables = {
        "numpy": numpy, "tiledarray": tiledarray, "copy": copy, "math": math,
        "statistics": statistics}
    found = {}
    bodies = {}
    for line in text.strip().splitlines():
        if not line.startswith(" "):
            name = line.rstrip(":")
            bodies[name] = [f"def {name}(np, x):"]
        else:
            bodies[name].append(line)
    for name, lines in bodies.items():
        exec("\n".join(lines), variables)
        found[name] = variables[name]
    return found


PROGRAMS = _programs(TEXT)
