"""Value and gradient of losses: logistic regression, cross-entropy, Gaussian processes, a density.

``program`` is the value in plain NumPy; what NumPy runs is the gradient by hand, which is also the
reference, in float64.
"""

from benchmarks.workload import Sizes, Workload, by_hand_in_double

FEATURES = 64
POINTS = 64
SCALE = -0.5 / 0.25**2
CHUNK = 512  # rows of the table of pairs at a time, for the reference


def setup_logistic(size, seed):
    import numpy as np

    generator = np.random.default_rng(seed)
    x = generator.standard_normal((size, FEATURES), dtype=np.float32)
    w = generator.standard_normal(FEATURES, dtype=np.float32)
    signs = np.where(generator.random(size) < 0.5, -1, 1).astype(np.float32)
    return x, signs, np.float32(0.1) * w


def logistic(np, x, signs, w):
    return np.logaddexp(0, -signs * (x @ w)).mean()


def logistic_by_hand(x, signs, w):
    import numpy as np

    margins = signs * (x @ w)
    small = np.exp(-np.abs(margins))
    value = (np.maximum(-margins, 0) + np.log1p(small)).mean()
    wrong = np.where(margins > 0, small, 1) / (1 + small)
    return value, (-signs * wrong / x.dtype.type(len(x))) @ x


def logistic_torch(x, signs, w):
    import torch

    return torch.nn.functional.softplus(-signs * (x @ w)).mean()


def setup_entropy(size, seed):
    import numpy as np

    generator = np.random.default_rng(seed)
    classes = 4096 if size >= 1024 else 100
    logits = generator.standard_normal((size, classes), dtype=np.float32)
    return logits, generator.integers(0, classes, size)


def entropy(np, logits, labels):
    top = logits.max(axis=1, keepdims=True)
    total = np.log(np.exp(logits - top).sum(axis=1)) + top[:, 0]
    return (total - logits[np.arange(len(labels)), labels]).mean()


def entropy_by_hand(logits, labels):
    import numpy as np

    rows = np.arange(len(labels))
    top = logits.max(axis=1, keepdims=True)
    share = np.exp(logits - top)
    total = share.sum(axis=1, keepdims=True)
    value = (np.log(total) + top)[:, 0] - logits[rows, labels]
    share /= total
    share[rows, labels] -= 1
    share /= share.dtype.type(len(labels))
    return value.mean(), share


def entropy_torch(logits, labels):
    import torch

    return torch.nn.functional.cross_entropy(logits, labels)


def setup_density(size, seed):
    import numpy as np

    generator = np.random.default_rng(seed)
    return tuple(generator.random(size, dtype=np.float32) for _ in range(3))


def density(np, x, y, z):
    dx, dy, dz = x[:, None] - x[None, :], y[:, None] - y[None, :], z[:, None] - z[None, :]
    return np.log(np.exp(SCALE * (dx * dx + dy * dy + dz * dz)).sum(axis=1)).sum()


def density_by_hand(*points):
    import numpy as np

    size = points[0].size
    parts = [slice(start, start + CHUNK) for start in range(0, size, CHUNK)]

    def near(part):
        return np.exp(SCALE * sum((p[part, None] - p[None, :]) ** 2 for p in points))

    totals = np.concatenate([near(part).sum(axis=1) for part in parts])
    slopes = [np.empty_like(p) for p in points]
    for part in parts:
        weights = near(part)
        weights *= 1 / totals[part, None] + 1 / totals
        for slope, p in zip(slopes, points, strict=True):
            slope[part] = 2 * SCALE * (p[part] * weights.sum(axis=1) - weights @ p)
    return np.log(totals).sum(), *slopes


def setup_process(size, seed):
    import numpy as np

    generator = np.random.default_rng(seed)
    x = np.sort(generator.random((size, POINTS)), axis=1) * 10
    y = np.sin(x) + 0.1 * generator.standard_normal(x.shape)
    logs = np.log([1.0, 1.0, 0.1]) + 0.1 * generator.standard_normal((size, 3))
    return x, y, logs


def process(np, x, y, logs):
    scale, length, noise = (np.exp(logs[:, k])[:, None, None] for k in range(3))
    square = (x[:, :, None] - x[:, None, :]) ** 2
    k = scale * np.exp(-0.5 * square / length**2) + noise * np.eye(POINTS)
    factor = np.linalg.cholesky(k)
    weights = np.linalg.solve(k, y[:, :, None])[:, :, 0]
    diagonal = np.diagonal(factor, axis1=1, axis2=2)
    return 0.5 * (y * weights).sum() + np.log(diagonal).sum()


def process_by_hand(x, y, logs):
    import numpy as np

    scale, length, noise = np.exp(logs.T)[:, :, None, None]
    square = (x[:, :, None] - x[:, None, :]) ** 2
    smooth = scale * np.exp(-0.5 * square / length**2)
    k = smooth + noise * np.eye(POINTS)
    weights = np.linalg.solve(k, y[:, :, None])
    slope = 0.5 * (np.linalg.inv(k) - weights * weights.mT)
    by_noise = noise[:, 0, 0] * np.trace(slope, axis1=1, axis2=2)
    inner = slope * smooth
    by_length = (inner * square / length**2).sum(axis=(1, 2))
    value = 0.5 * (y * weights[:, :, 0]).sum() + 0.5 * np.linalg.slogdet(k)[1].sum()
    return value, np.stack([inner.sum(axis=(1, 2)), by_length, by_noise], axis=1)


def process_torch(x, y, logs):
    import torch

    scale, length, noise = (torch.exp(logs[:, k])[:, None, None] for k in range(3))
    square = (x[:, :, None] - x[:, None, :]) ** 2
    k = scale * torch.exp(-0.5 * square / length**2) + noise * torch.eye(POINTS).to(x)
    factor = torch.linalg.cholesky(k)
    weights = torch.linalg.solve(k, y[:, :, None])[:, :, 0]
    return 0.5 * (y * weights).sum() + torch.log(factor.diagonal(dim1=1, dim2=2)).sum()


LOGISTIC = Workload(
    name="logistic_gradient",
    title=f"logistic regression, value and gradient, {FEATURES} features, float32",
    sizes=Sizes(cpu=1 << 18, cuda=4 << 20, quick=500),
    setup=setup_logistic,
    program=logistic,
    gradient=(2,),
    reference=by_hand_in_double(logistic_by_hand),
    tolerance=2e-5,
    traffic=lambda inputs: inputs[0].nbytes + inputs[1].nbytes,
    variants={"NumPy": lambda: logistic_by_hand, "torch": lambda: logistic_torch},
)

ENTROPY = Workload(
    name="entropy_gradient",
    title="softmax cross-entropy of 4096 classes, value and gradient, float32",
    sizes=Sizes(cpu=4096, cuda=65536, quick=50),
    setup=setup_entropy,
    program=entropy,
    gradient=(0,),
    reference=by_hand_in_double(entropy_by_hand),
    tolerance=2e-5,
    traffic=lambda inputs: 3 * inputs[0].nbytes,
    variants={"NumPy": lambda: entropy_by_hand, "torch": lambda: entropy_torch},
)

DENSITY = Workload(
    name="density_gradient",
    title="log density of points in 3-D, value and gradient, all pairs, float32",
    sizes=Sizes(cpu=4096, cuda=65536, quick=300),
    setup=setup_density,
    program=density,
    gradient=(0, 1, 2),
    reference=by_hand_in_double(density_by_hand),
    tolerance=5e-5,
    traffic=lambda inputs: 6 * inputs[0].nbytes,
    variants={"NumPy": lambda: density_by_hand},
    flops=lambda inputs: 20.0 * inputs[0].size ** 2,
    bulky=True,
)

PROCESS = Workload(
    name="process_gradient",
    title=f"Gaussian processes of {POINTS} points, likelihood and gradient, float64",
    sizes=Sizes(cpu=512, cuda=4096, quick=8),
    setup=setup_process,
    program=process,
    gradient=(2,),
    reference=by_hand_in_double(process_by_hand),
    tolerance=1e-9,
    traffic=lambda inputs: sum(array.nbytes for array in inputs) + inputs[2].nbytes,
    variants={"NumPy": lambda: process_by_hand, "torch": lambda: process_torch},
)
