"""Finite elements: beams assembled element by element, and triangles assembled with np.add.at."""

import numpy as np

SIZES = {
    "test": {"beams": 4, "mesh": 4},
    "tiny": {"beams": 40, "mesh": 7},
    "middle": {"beams": 120, "mesh": 22},
    "large": {"beams": 350, "mesh": 34},
}


def make(beams, mesh):
    x = np.linspace(0, 1, mesh)
    X, Y = np.meshgrid(x, x)
    nodes = np.column_stack([X.ravel(), Y.ravel()])
    corner = (np.arange(mesh - 1)[:, None] * mesh + np.arange(mesh - 1)).ravel()
    lower = np.stack([corner, corner + 1, corner + mesh + 1], axis=1)
    upper = np.stack([corner, corner + mesh + 1, corner + mesh], axis=1)
    return nodes, np.vstack([lower, upper]), beams


def cantilever(n, load):
    """Euler-Bernoulli, unit stiffness and length; deflections and rotations."""
    h = 1.0 / n
    k = np.array([
        [12, 6 * h, -12, 6 * h],
        [6 * h, 4 * h**2, -6 * h, 2 * h**2],
        [-12, -6 * h, 12, -6 * h],
        [6 * h, 2 * h**2, -6 * h, 4 * h**2],
    ]) / h**3  # fmt: skip
    f = load * np.array([h / 2, h**2 / 12, h / 2, -(h**2) / 12])
    K = np.zeros((2 * n + 2, 2 * n + 2))
    F = np.zeros(2 * n + 2)
    for e in range(n):
        dofs = np.arange(2 * e, 2 * e + 4)
        K[np.ix_(dofs, dofs)] += k
        F[dofs] += f
    u = np.zeros(2 * n + 2)
    u[2:] = np.linalg.solve(K[2:, 2:], F[2:])
    return u.reshape(-1, 2)


def stiffness(nodes, triangles):
    a, b, c = nodes[triangles[:, 0]], nodes[triangles[:, 1]], nodes[triangles[:, 2]]
    edges = np.stack([c - b, a - c, b - a], axis=1)
    area = 0.5 * np.abs(edges[:, 0, 0] * edges[:, 1, 1] - edges[:, 0, 1] * edges[:, 1, 0])
    local = np.einsum("eik,ejk->eij", edges, edges) / (4 * area)[:, None, None]
    n = len(nodes)
    K = np.zeros((n, n))
    rows = np.repeat(triangles, 3, axis=1).ravel()
    cols = np.tile(triangles, (1, 3)).ravel()
    np.add.at(K, (rows, cols), local.ravel())
    load = np.zeros(n)
    np.add.at(load, triangles, np.repeat(area[:, None] / 3, 3, axis=1))
    return K, load, area


def run(nodes, triangles, beams):
    deflection = cantilever(beams, 1.0)
    assert np.isclose(deflection[-1, 0], 1 / 8) and np.isclose(deflection[-1, 1], 1 / 6)
    K, load, area = stiffness(nodes, triangles)
    assert np.isclose(area.sum(), 1) and np.allclose(K.sum(axis=1), 0)
    boundary = np.any((nodes == 0) | (nodes == 1), axis=1)
    free = np.flatnonzero(~boundary)
    u = np.zeros(len(nodes))
    u[free] = np.linalg.solve(K[np.ix_(free, free)], load[free])
    gradient = (u[triangles[:, 1]] - u[triangles[:, 0]]) / np.sqrt(2 * area)
    return deflection, u, u.max(), gradient, K.diagonal()
