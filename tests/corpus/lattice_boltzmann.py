"""Lattice Boltzmann (D2Q9, single relaxation time) flow around a cylinder, bounce-back walls."""

import numpy as np

SIZES = {
    "test": {"ny": 8, "nx": 14, "steps": 2},
    "tiny": {"ny": 8, "nx": 16, "steps": 30},
    "middle": {"ny": 50, "nx": 130, "steps": 25},
    "large": {"ny": 300, "nx": 400, "steps": 5},
}
CX = np.array([0, 0, 1, 1, 1, 0, -1, -1, -1])
CY = np.array([0, 1, 1, 0, -1, -1, -1, 0, 1])
WEIGHTS = np.array([4 / 9, 1 / 9, 1 / 36, 1 / 9, 1 / 36, 1 / 9, 1 / 36, 1 / 9, 1 / 36])
OPPOSITE = [0, 5, 6, 7, 8, 1, 2, 3, 4]


def make(ny, nx, steps):
    X, Y = np.meshgrid(range(nx), range(ny))
    F = np.ones((ny, nx, 9)) + 0.01 * np.sin(np.arange(ny * nx * 9)).reshape(ny, nx, 9)
    F[:, :, 3] += 2 * (1 + 0.2 * np.cos(2 * np.pi * X / nx * 4))
    rho = np.sum(F, 2)
    for i in range(9):
        F[:, :, i] *= 100.0 / rho
    cylinder = (X - nx / 4) ** 2 + (Y - ny / 2) ** 2 < (ny / 4) ** 2
    return F, cylinder, steps


def equilibrium(rho, ux, uy):
    Feq = np.zeros((*rho.shape, 9))
    square = ux**2 + uy**2
    for i, cx, cy, w in zip(range(9), CX, CY, WEIGHTS):
        cu = cx * ux + cy * uy
        Feq[:, :, i] = rho * w * (1 + 3 * cu + 9 * cu**2 / 2 - 3 * square / 2)
    return Feq


def run(F, cylinder, steps):
    tau = 0.6
    mass = [F.sum()]
    for _ in range(steps):
        for i, cx, cy in zip(range(9), CX, CY):
            F[:, :, i] = np.roll(F[:, :, i], cx, axis=1)
            F[:, :, i] = np.roll(F[:, :, i], cy, axis=0)
        boundary = F[cylinder, :]
        boundary = boundary[:, OPPOSITE]
        rho = np.sum(F, 2)
        ux = np.sum(F * CX, 2) / rho
        uy = np.sum(F * CY, 2) / rho
        F += -(1.0 / tau) * (F - equilibrium(rho, ux, uy))
        F[cylinder, :] = boundary
        mass.append(F.sum())
    ux[cylinder] = 0
    uy[cylinder] = 0
    vorticity = (np.roll(ux, -1, axis=0) - np.roll(ux, 1, axis=0)) - (
        np.roll(uy, -1, axis=1) - np.roll(uy, 1, axis=1)
    )
    vorticity[cylinder] = np.nan
    assert np.allclose(mass, mass[0])
    return rho, vorticity, np.nanmax(np.abs(vorticity))
