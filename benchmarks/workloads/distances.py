"""Reductions inside reductions, float32: of points to centres, and of points to one another.

What is reduced, distances along 16 features or differences along 3 coordinates, is far larger than
the points; none of it needs memory.
"""

from benchmarks.workload import Sizes, Workload, both_ends

FEATURES, CENTRES = 16, 64
SOFTENING = 1e-3
CHECKED = 4096
BLOCK = 64  # bodies at a time, by hand
ROWS = 4096  # points at a time, by hand


def setup_centres(size, seed):
    import numpy as np

    generator = np.random.default_rng(seed)
    return (generator.random((size, FEATURES), dtype=np.float32),
            generator.random((CENTRES, FEATURES), dtype=np.float32))


def assignment(np, points, centres):
    return ((points[:, None] - centres[None]) ** 2).sum(-1).argmin(1)


def in_blocks(function, points, *others):
    import numpy as np

    return np.concatenate([function(np, points[start:start + ROWS], *others)
                           for start in range(0, len(points), ROWS)])


def assignment_by_hand(points, centres):
    return in_blocks(assignment, points, centres)


def reference_assignment(inputs):
    import numpy as np

    points, centres = (array.astype(np.float64) for array in inputs)
    return [(part, (assignment(np, points[part], centres),))
            for part in both_ends(CHECKED, len(points))]


def soft_distances(np, points, centres):
    near = -((points[:, None] - centres[None]) ** 2).sum(-1)
    top = near.max(1)
    return top + np.log(np.exp(near - top[:, None]).sum(1))


def soft_assignment(np, points, centres):
    return soft_distances(np, points, centres).mean()


def soft_assignment_by_hand(points, centres):
    return in_blocks(soft_distances, points, centres).mean()


def soft_assignment_torch(points, centres):
    import torch

    near = -((points[:, None] - centres[None]) ** 2).sum(-1)
    return torch.logsumexp(near, 1).mean()


def reference_soft_assignment(inputs):
    import numpy as np

    return [(..., (np.asarray(soft_assignment_by_hand(
        *(array.astype(np.float64) for array in inputs))),))]


def setup_bodies(size, seed):
    import numpy as np

    return (np.random.default_rng(seed).random((size, 3), dtype=np.float32),)


def forces(np, points):
    apart = points[None] - points[:, None]
    squares = (apart**2).sum(-1) + SOFTENING
    return (apart * (squares**-1.5)[..., None]).sum(1)


def forces_on(some, points):
    import numpy as np

    apart = points[None] - some[:, None]
    squares = (apart**2).sum(-1) + some.dtype.type(SOFTENING)
    return np.einsum("ijk,ij->ik", apart, squares ** some.dtype.type(-1.5))


def forces_by_hand(points):
    import numpy as np

    return np.concatenate([forces_on(points[start:start + BLOCK], points)
                           for start in range(0, len(points), BLOCK)])


def reference_forces(inputs):
    import numpy as np

    points = inputs[0].astype(np.float64)
    return [(part, (forces_on(points[part], points),)) for part in both_ends(BLOCK, len(points))]


ASSIGNMENT = Workload(
    name="assignment",
    title=f"k-means assignment, {FEATURES} features, {CENTRES} centres, float32",
    sizes=Sizes(cpu=200_000, cuda=2 << 20, quick=500),
    setup=setup_centres,
    program=assignment,
    reference=reference_assignment,
    tolerance=1e-9,
    traffic=lambda inputs: inputs[0].nbytes + 8 * len(inputs[0]),
    variants={"NumPy": lambda: assignment_by_hand},
    flops=lambda inputs: 3.0 * inputs[0].size * CENTRES,
    bulky=True,
)

SOFT_ASSIGNMENT = Workload(
    name="soft_assignment",
    title=f"mean log-sum-exp of distances, {FEATURES} features, {CENTRES} centres, float32",
    sizes=Sizes(cpu=100_000, cuda=1 << 20, quick=500),
    setup=setup_centres,
    program=soft_assignment,
    reference=reference_soft_assignment,
    tolerance=2e-5,
    traffic=lambda inputs: inputs[0].nbytes,
    variants={"NumPy": lambda: soft_assignment_by_hand, "torch": lambda: soft_assignment_torch},
    flops=lambda inputs: 3.0 * inputs[0].size * CENTRES,
    bulky=True,
)

FORCES = Workload(
    name="forces",
    title="forces of N bodies, coordinates as an axis of 3, float32",
    sizes=Sizes(cpu=4096, cuda=32768, quick=300),
    setup=setup_bodies,
    program=forces,
    reference=reference_forces,
    tolerance=5e-5,
    traffic=lambda inputs: 2 * inputs[0].nbytes,
    variants={"NumPy": lambda: forces_by_hand},
    flops=lambda inputs: 20.0 * len(inputs[0]) ** 2,
    bulky=True,
)
