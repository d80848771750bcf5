"""What a program may do next to the arrays it holds: one table, for every writer of programs.

A move is a line (or a few that belong together) with fields in it: ``{a}`` is some array, ``{n}`` a
new name.  `tests.scene.Scene` fills them in for the arrays there are; NumPy then says whether the
line is legal.  Values are to stay exact: small multiples of 1/8, which every order of the same
additions and every width of float give alike.  So results can be compared by ``==``.
"""

# Which arrays of a program there are, small or in several blocks, decides what is met: elements
# at once, chains, kernels with borders.  Few shapes, so that plans and kernels come again.
PALETTES = [(5, 3), (5, 3), (12, 4), (12, 4), (20, 20), (64, 20), (71, 60), (2100, 2)]
DTYPES = ["'f8'", "'f8'", "'f8'", "'f4'", "'i8'", "'i8'", "'i4'", "'u1'", "'i2'", "'?'", "'c8'",
          "'c16'", "'i1'", "'u4'", "'u8'"]
FEW_DTYPES = ["'f8'", "'f8'", "'f8'", "'i8'", "'f4'", "'?'", "'c16'"]
SCALARS = ["0", "1", "2", "3", "-1", "-2", "5", "0.5", "1.5", "True", "4.0"]

# Weight of a group of moves, and its moves; each of a group is as likely as the others.
MAKING = (8, """
{n} = np.zeros({shape})
{n} = np.zeros({shape}, {dtype})
{n} = np.ones({shape}, {dtype})
{n} = np.full({shape}, {k})
{n} = np.full({shape}, {k}, {dtype})
{n} = np.empty({shape}, {dtype}); {n}.fill({k})
{n} = np.empty({shape}); {n}[...] = {k}
{n} = np.ndarray({shape}); {n}[:] = {k}
{n} = np.zeros_like({a})
{n} = np.ones_like({a})
{n} = np.full_like({a}, {k})
{n} = np.empty_like({a}); {n}[...] = {a}
{n} = np.arange({length}) % 7
{n} = np.arange({length}.0) % 5 - 2
{n} = np.array(numpy.arange({length}.0) % 9)
{n} = np.array((numpy.arange({length}) % 11).reshape({shape}).astype({dtype}))
{n} = np.asarray(numpy.arange({length}).reshape({shape}) % 9 > 4)
{n} = np.arange({length}).reshape({shape}) % 3
{n} = np.identity({side})
{n} = np.eye({side}) * 2
{n} = np.diag({line})
{n} = np.diag({line} * 2)
{n} = np.diagflat({line})
{n} = np.diag({line}, 1)
{n} = np.zeros(({side}, {side})); np.fill_diagonal({n}, {k})
{n} = np.tri({side})
h{serial} = numpy.arange({length}.0); {n} = np.array(h{serial}); h{serial} += 1
""")
ALIKE = (6, """
{n} = np.zeros({shape}); {m} = np.zeros({shape})
{n} = np.zeros_like({a}); {m} = np.zeros_like({a})
{n}, {m} = np.ones({shape}), np.ones({shape})
{n} = np.ndarray({shape}); {m} = np.ndarray({shape}); {n}.fill({k}); {m}.fill({k})
{n} = {a} * 2; {m} = {a} * 2
{n}, {m} = {a} + 1, {a} + 1
{n} = {a}.copy(); {m} = {a}.copy()
{n} = {a} + {b}; {m} = ({a} + {b}).reshape(-1)
{n} = np.identity({side}); {m} = np.identity({side})
{n} = {a} > 1; {m} = {a} > 1
{n} = np.full({shape}, {k}); {m} = {n} + 0
{n} = ({a} % 4).sum({axis}); {m} = ({a} % 4).sum({axis})
{n} = np.zeros({shape}); {m} = np.zeros({shape}).reshape(-1)
{n} = {a} - 1; {m} = {n}; {n} = {a} - 1
""")
VIEWING = (9, """
{n} = {x}[{key}]
{n} = {x}[{key}]
{n} = {x}[{slices}]
{n} = {x}.T
{n} = {x}[::-1]
{n} = {x}.reshape({factors}){copy}
{n} = {x}.reshape(-1){copy}
{n} = {x}.ravel(){copy}
{n} = np.reshape({x}, {factors}){copy}
{n} = {x}.diagonal()
{n} = np.diagonal({x})
{n} = np.diag({matrix})
{n} = {complex}.real
{n} = {complex}.imag
{n} = {x}.view()
{n} = {x}[...]
{n} = {x}[:]
{n} = np.broadcast_to({x}, (2, *{x}.shape))
{n} = {x}[None]
{n} = {x}[..., None]
{n} = {x}.swapaxes(0, -1)
{n} = np.squeeze({x})
{n} = np.moveaxis({x}, 0, -1)
{n} = np.expand_dims({x}, 0)
{n} = np.flip({x})
{n} = np.split({x}, 2)[0]
{n} = np.asarray({x})
{n} = {x}[0]
{n} = {x}[..., 0]
{n} = {x}[1, ...]
{n} = np.atleast_2d({x})
{n} = np.rot90({x})
{n} = np.transpose({x})
{n} = np.lib.stride_tricks.sliding_window_view({x}, 2, -1)
""")
COPYING = (7, """
{n} = {a}.copy()
{n} = np.array({a})
{n} = np.array({a}.reshape({factors})){copy}
{n} = {a}.reshape({factors}).copy()
{n} = np.array({a}.reshape(-1))
{n} = {a}[None].copy()
{n} = np.broadcast_to({a}, (1, *{a}.shape)).copy()
{n} = {a}.flatten()
{n} = {a}.flatten().reshape({a}.shape).copy()
{n} = np.ravel({a}.T.copy())
{n} = {a} + 0
{n} = {a} * 1
{n} = np.positive({number})
{n} = +{number}
{n} = copy.copy({a})
{n} = copy.deepcopy({a})
{n} = pickle.loads(pickle.dumps({a}))
{n}, {m} = copy.deepcopy([{a}, {b}])
{n} = {a}.astype({a}.dtype)
{n} = {a}.T.copy().T
{n} = np.ascontiguousarray({a}.T){copy}
{n} = np.concatenate([{a}])
{n} = np.copy({a})
{n} = {a}[{slices}].copy()
{n} = {a}.reshape({factors}) + 0
{n} = {a}{copy}.view('u1').copy()
{n} = np.where(True, {a}, {a})
{n} = {x}.flat[:]
h{serial} = numpy.asarray({a})[...]
h{serial} = numpy.array({a})
h{serial} = {a}.tolist()
""")
COMPUTING = (9, """
{n} = {a} + {b}
{n} = {a} - {b}
{n} = {a} * {b}
{n} = {a} * {k} + {b}
{n} = ({a} * {k} + {b}) % 8
{n} = np.maximum({a}, {b})
{n} = np.minimum({a}, {k})
{n} = -{a}
{n} = abs({a})
{n} = {a} + {k}
{n} = {a} * {k}
{n} = {a} / 2
{n} = {a}.T + 1
{n} = np.concatenate([{a}, {b}])
{n} = np.stack([{a}, {a}])
{n} = np.roll({a}, 1)
{n} = np.roll({a}, np.arange(4)[{k}])
{n} = np.roll({a}, np.asarray({k}), axis=0)
{n} = np.repeat({a}, 2, 0)
{n} = np.tile({a}, 2)
{n} = np.pad({a}, 1)
{n} = np.tril({a})
{n} = np.triu({a}, 1)
{n} = {a}[{index}]
{n} = np.take({a}, {index}, axis=0)
{n} = np.diff({a}, axis=0)
{n} = np.outer({line} % 3, {line} % 3)
{n} = np.hstack([{a}, {b}])
{n} = {a}[1:] - {a}[:-1]
{n} = {a}.max({axis}) - {a}.min({axis})
{n} = ({a} % 4).sum({axis})
{n} = ({a} % 4).sum({axis}, keepdims=True)
{n} = np.cumsum({a} % 4)
{n} = ({matrix} % 3) @ ({matrix} % 3).T
{n} = {a}.max({axis})
{n} = np.trace({matrix})
for _ in range(40): {a} = {a} % 5 + 1
for _ in range(70): {complex} = {complex} * 1j + 1
""")
DECIDING = (4, """
{n} = {a} % 4
{n} = {a} // 2
{n} = {a} > {b}
{n} = {a} == {b}
{n} = {a} <= {k}
{n} = np.where({a} > {k}, {a}, {b})
{n} = np.sign({a})
{n} = {a}.astype({dtype})
{n} = {a}.any({axis})
{n} = {a}.all({axis})
{n} = {a}.argmax({axis})
{n} = {a}.argmin({axis})
{n} = np.sort({a})
{n} = np.sort(np.lib.stride_tricks.sliding_window_view({a}, 2, -1), axis=0)
{n} = np.lib.stride_tricks.sliding_window_view({a}, 2, 0).sum(-1)
{n} = np.nonzero({a})[0]
{n} = np.unique({a})
{n} = {a}[{a} > {k}]
{n} = np.logical_not({a})
{n} = np.floor({a})
{n} = {a} & 3
{n} = ~{a}
{n} = ({a} > 0).sum({axis})
""")
WRITING = (20, """
for e in np.nditer({w}, op_flags=["readwrite"]): e[...] = e + {k}
with np.nditer({w}, ["external_loop"], ["readwrite"]) as i: i[0][...] = {k}
{w} += {k}
{w} += {b}
{w} -= {b}
{w} *= 2
{w} *= {b}
{w}[...] = {k}
{w}[...] = {b}
{w}[:] = {b}
{w}.fill({k})
{w}[{key}] = {k}
{w}[{key}] = {k}
{w}[{key}] = {b}
{w}[{key}] += {k}
{w}[{key}] -= 1
{w}[{slices}] += {b}
{w}[{slices}] *= 2
{w}[0] = {k}
{w}[1:] = {k}
{w}[1:] += {k}
{w}[1:-1] = {k}
{w}[:-1] += {k}
{w}[{key}] = {w}[{key}] + 1
{w}[1:] = {w}[:-1]
{w}[:-1] = {w}[1:]
{w}[1:] += {w}[:-1]
{w}[:-1] += {w}[1:]
{w}[1:-1] = {w}[:-2] + {w}[2:]
{w}[...] = {w}[::-1]
{w}[:] = {w}[::-1]
{w} += {w}[::-1]
{w}[...] = {w}.T
{w} += {w}.T
{w}[::-1] = {w} + np.roll({w}, 1, 0)
{w}[::-1] += np.concatenate([{w}[1:], {w}[:1]])
{w}[:, ::-1] = np.roll({w}, -1, 0) * 2
{w}.T[...] = {w} + np.roll({w}, 1)
{w}[...] = {w} + {w}.max()
{w}[0] = {w}[-1]
{w}[0], {w}[-1] = {w}[-1], {w}[0]
{w}[0], {w}[-1] = {w}[-1].copy(), {w}[0].copy()
{w}[..., 0] = {w}[..., -1]
{w}[{index}] = {k}
{w}[{index}] += {k}
{w}[{index}] = {w}[0]
np.add.at({w}, {index}, {k})
np.subtract.at({w}, {index}, {w}[0])
np.add({w}, {k}, out={w})
np.add({a}, {b}, out={w})
np.multiply({w}, 2, out={w})
np.add({w}, {w}[::-1], out={w})
np.add({w}, {w}[::-1], out={w}, casting='unsafe')
np.add({w}[:-1], {w}[1:], out={w}[1:])
np.multiply({w}[1:], 3, out={w}[:-1], casting='unsafe')
np.maximum({w}, {b}, out={w})
np.negative({w}, out={w})
np.sum({w} % 4, axis=0, out={w}[0])
np.copyto({w}, {b})
np.copyto({w}, {w}[::-1])
np.put({w}, {index}, {k})
{w}.put({index}, [{k}, {k}])
np.fill_diagonal({w}, {k})
np.fill_diagonal({w}, {w}[0])
{w}.flat[{i}] = {k}
{w}.flat[::2] = {k}
{w}.flat = {k}
{w}[{i}] = {k}
{w}[{i}] += {k}
{w}[{i}] = {w}[0]
for i in range(3): {w}[i] = {w}[i] + {k}
for i in range(min(12, len({w}))): {w}[i] += i % 3
for _ in range(4): {w}[1:-1] += 1
for i in range(1, min(9, len({w}))): {w}[i] = {w}[i - 1] + {k}
{complex}.real = {k}
{complex}.imag[...] = {k}
{complex}.real += 1
{complex}.imag = {complex}.real
np.nan_to_num({w}, copy=False)
{w}[{slices}][{slices2}] = {k}
{w}.T[{tkey}] = {k}
{w}.reshape(-1){copy}[1:] += 1
{w}.ravel(){copy}[0] = {k}
{w}[...][1:] = {k}
np.asarray({w})[1:] += {k}
np.asarray({w})[...] = {k}
np.diagonal({w})
{w}.shape = (-1,)
{w}[...] = np.zeros_like({w})
{w}[...] = np.ones({w}.shape)
{w}.real[...] = {k}
for row in {wide}: row += 1
for row in {wide}: row[1:] = {k}
for x, y in zip({wide}, {b}): x[...] = y + 0
{w} += 1; {w}[...] = {w} * 2; {n} = {w} + 0
{w}[...] = {w} * 2; {w}[...] = {w} - 1; {n} = {w} * 1
for i, x in enumerate({line}[:4]): {w}[i % len({w})] = x
{w}[int(({a} % 4).sum()) % len({w})] = {k}
np.copyto({w}[1:], {w}[:-1])
np.add({w}[1:], {w}[:-1], out={w}[::-1][1:])
np.subtract({w}, {w}.T, out={w})
np.add({w}, {b}, out={w}[::-1])
np.cumsum({w} % 2, axis=0, out={w})
np.matmul({wide} % 3, {wide} % 3, out={wide})
np.stack([{w}[0], {w}[1]], out={w}[:2])
np.take({w}, {index}, axis=0, out={w}[:len({index})])
{w}[{index}] = {b}[{index}]
{w}[{index}, ...] = {w}[{i}]
{w}[1:, ...] = {w}[:-1, ...] * 2
{w}[...] = {w}.reshape({w}.shape[::-1]).T
{w}.reshape({factors}){copy}[0] = {k}
{w}[:, None][...] = {k}
{w}[None][0, 1:] = {k}
{wide}[0][1:] = {k}
{wide}[:, 0] += {wide}[:, 1]
{wide}[0, :], {wide}[1, :] = {wide}[1, :], {wide}[0, :]
{wide}[[0, 1]] = {wide}[[1, 0]]
{wide}.diagonal().sum()
{w}.swapaxes(0, -1)[1:] = {k}
{zero}[...] = {k}
{zero}.fill({k})
{zero}[()] = {k}
""")
WRITING_WHERE = (4, """
{w}[{w} > 1] = {k}
{w}[{w} < 2] += {k}
{w}[{b} > 0] = {k}
{w}[{w} > 1] = {w}[{w} > 1] % 2
{w}[{w} > 0] *= 2
{w}[{w} > 1] = {b}[{w} > 1]
{w}[np.nonzero({w} > 1)] = {k}
{w}[({w} > 1) & ({w} < 4)] -= 1
np.where({w} > 1, {w}, 0).sum()
np.copyto({w}, {k}, where={w} > 0)
np.copyto({w}, {w}[::-1], where={w} > 1)
np.place({w}, {w} > 0, [{k}, {k}])
np.place({w}, {w}[:], [3])
np.place({w}, {w}[None] > 1, [3])
np.putmask({w}, {w} > 1, {k})
np.add({w}, 1, out={w}, where={w} > 0)
np.clip({w}, -2, 3, out={w})
{w} %= 4
{w}[...] = {w} % 5
for _ in range(5): {w}[1:-1] = ({w}[2:] + {w}[:-2]) % 8
{w}.sort()
{w}.sort(0)
{w}[...] = {w} > 1
np.put_along_axis({w}, np.argsort({w}[::-1], axis=0, kind='stable'), {w}[::-1], axis=0)
np.floor_divide({w}, 2, out={w})
""")
NAMING = (5, """
{a}, {b} = {b}, {a}
{a}, {b} = {b}, {a}
{n} = {a}
{a} = {a} + 1
{a} = {b}
{a} = {a}[::-1]
for _ in range(3): {w}[...] = {k}; {w}, {b} = {b}, {w}
for _ in range(4): {n} = {a} % 5 + 1; {a} = {n}
""")
OUTSIDE = (3, """
h{serial} = numpy.asarray({w})[...]
h{serial} = numpy.asarray({x})[...]
h{serial} = numpy.asarray({line})[1:]
{h}[...] = {k}
{h}[:1] = {k}
{h} += 1
numpy.asarray({w})[...] = {k}
numpy.asarray({w})[:1] += 1
numpy.asarray({w})[1:] = numpy.asarray({w})[:-1]
h = numpy.asarray({w})[...]; {n} = {w} + {a}; h[...] = {k}
h = numpy.asarray({w}); {n} = {w} * 2; {w}[...] = {k}; h[:1] = {k}; del h
h = numpy.asarray({w}); {n} = {w}.copy(); h[1:] = {k}; del h
h = numpy.asarray({w}); {w} += 1; h[:1] = {k}; del h
h = numpy.asarray({w}[::-1]); {n} = {w} + {w}; h[1:] = {k}; del h
numpy.add({w}, 1, out=numpy.asarray({w}), casting='unsafe')
numpy.copyto(numpy.asarray({w}), {k}, casting='unsafe')
""")
FORGETTING = (4, """
del {a}
del {a}
del {a}, {b}
""")
LOOKING = (5, """
seen = float({a}.sum())
seen = bool({a}.any())
seen = {a}.max().item()
seen = {a}.tolist()
seen = float({a}.max())
seen = [float(x) for x in {line}[:5]]
seen = float({w}[{i}].sum())
seen = numpy.array({a})
seen = numpy.asarray({a}).copy()
seen = (str({a}), 0)[1]
seen = len([x for x in {a}])
seen = {a}.numpy() if hasattr({a}, 'numpy') else {a}.copy()
seen = {a}[{i}].tolist()
if float({a}.max()) > 1: {w}[...] = {k}
if {a}.any(): {w}[1:] = {k}
h = numpy.asarray({x}); seen = (h.flags.writeable and h.fill(3), 0)[1]; del h
np.evaluate({a}, {b})
np.evaluate({a})
np.evaluate({a}, {b})
np.evaluate()
np.evaluate()
np.evaluate()
""")
CUTTING = (1.5, """
np.config.cut = 1
np.config.cut = 2
np.config.cut = 3
np.config.cut = 5
np.config.cut = 9
np.config.cut = 400
np.config.cut = 400
step = {k}
step = {k}
""")
TOGETHER = (1, """
def work(): {w} [...] = {w} + 1
def work(): {w} [1:] += {k}
def work(): {w} [...] = {k}; np.evaluate({w})
def work(): global {n}; {n} = {a} + 1
def work(): global {n}; {n} = {a} * 2; {n}[{i}] = {k}
def work(): global {n}, {m}; {n} = np.zeros({shape}); {m} = np.zeros({shape}); {n}[1:] = 1
def work(): np.add({w}, {k}, out={w}); np.evaluate({a})
""")
# Functions under jit: what they are, and how many arrays they take.  Called again and again, with
# the same array twice, with views of one another; `{o}` is some array outside, where it was made.
FUNCTIONS = """
def {f}(x): return x.copy()
def {f}(x): return x * 2, x * 2
def {f}(x): return x + 1, x + 1
def {f}(x): return np.positive(x)
def {f}(x): return x
def {f}(x): return x, x
def {f}(x): return x, x.copy()
def {f}(x): return x[1:]
def {f}(x): return x.T
def {f}(x): return x[::-1], x + 1
def {f}(x): return x.reshape(-1).copy(), x * 2
def {f}(x): return np.zeros_like(x), np.zeros_like(x)
def {f}(x): return np.zeros(4), np.zeros(4)
def {f}(x): y = x + 1; y[1:] += x[:-1]; return y, y
def {f}(x): y = x + 1; return y, y[1:]
def {f}(x): y = x * 2; z = y.copy(); y[1:] = 3; return y, z
def {f}(x): x += 1
def {f}(x): x += 1; return x
def {f}(x): x[1:] += 2; return x + 1
def {f}(x): y = x.copy(); x[1:] += 1; return y
def {f}(x): y = x + 0; x[...] = 3; return y, x
def {f}(x): x[...] = x[::-1]; return x[1:]
def {f}(x, y): x += 1; return x + y
def {f}(x, y): x[...] = 1; return y * 1
def {f}(x, y): x[1:] = y[:-1]; return x, y
def {f}(x, y): x += y; y += x
def {f}(x, y): return y, x
def {f}(x, y): x[...], y[...] = y, x
def {f}(x, y): return x + y, y + x
def {f}(x, y): x += y; return x.copy(), y
def {f}(x, y): y[1:] = x[1:]; x += 1; return x - y
def {f}(x): return x + {o}
def {f}(x): return {o}
def {f}(x): return {o}.copy(), {o} * 1
def {f}(x): {o}[...] = 2; return x + 1
def {f}(x): {o}[1:] += 1; return x * 2
def {f}(x): global {o}; {o} += 1; return 2 * x
def {f}(x): return {o}[1:], x + {o}[0]
def {f}(x): return x + step
def {f}(x): x[1:] *= step; return x
"""
CALLS = """
{f}({x})
{f}({w})
{f}({w}[1:])
{f}({w}[::-1])
{f}({w}.T)
"""
CALLS_OF_TWO = """
{f}({w}, {b})
{f}({x}, {w})
{f}({w}, {w})
{f}({w}, {w})
{f}({w}[1:], {w}[:-1])
{f}({w}, {w}[::-1])
{f}({w}[:2], {w}[1:3])
"""
RESULTS = ["", "{n} = ", "{n}, {m} = "]
JIT = 5  # the weight of its calls

# Results and what is written of arrays that rounding has touched: not these.
EXACT = [DECIDING, WRITING_WHERE]
ROUGH = [ALIKE, COPYING, WRITING, NAMING]  # for a writer that keeps tolerances
ALL = [MAKING, ALIKE, VIEWING, COPYING, COMPUTING, DECIDING, WRITING, WRITING_WHERE, NAMING,
       OUTSIDE, FORGETTING, LOOKING, CUTTING, TOGETHER]

# Where kernels are compiled for what is new: more of what shares memory, less of what computes.
FEW = [(5, MAKING), (9, ALIKE), (9, VIEWING), (10, COPYING), (5, COMPUTING), (2, DECIDING),
       (24, WRITING), (3, WRITING_WHERE), (6, NAMING), (4, OUTSIDE), (4, FORGETTING),
       (6, LOOKING), (1, CUTTING), (1, TOGETHER)]
