"""Poisson's equation in a periodic box by FFT, and with fixed edges by sine transforms."""

import numpy as np

SIZES = {
    "test": {"n": 8, "repeats": 1},
    "tiny": {"n": 12, "repeats": 40},
    "middle": {"n": 200, "repeats": 6},
    "large": {"n": 1024, "repeats": 1},
}


def make(n, repeats):
    x = np.arange(n) / n
    X, Y = np.meshgrid(x, x, indexing="ij")
    density = np.array([
        np.exp(-40 * ((X - 0.3 - 0.4 * s) ** 2 + (Y - 0.5) ** 2))
        for s in np.linspace(0, 1, repeats)
    ])  # fmt: skip
    return (density,)


def solve_periodic(rho):
    n = rho.shape[0]
    k = 2 * np.pi * np.fft.fftfreq(n, d=1 / n)
    k2 = k[:, None] ** 2 + k[None, :] ** 2
    k2[0, 0] = 1.0
    phi_hat = -np.fft.fft2(rho) / k2
    phi_hat[0, 0] = 0.0
    phi = np.real(np.fft.ifft2(phi_hat))
    Ex = -np.fft.ifft2(1j * k[:, None] * phi_hat).real
    Ey = -np.fft.ifft2(1j * k[None, :] * phi_hat).real
    return phi, Ex, Ey


def sine_transform(a):
    n = a.shape[-1]
    odd = np.zeros((*a.shape[:-1], 2 * (n + 1)))
    odd[..., 1 : n + 1] = a
    odd[..., n + 2 :] = -a[..., ::-1]
    return -np.fft.rfft(odd, axis=-1).imag[..., 1 : n + 1]


def solve_dirichlet(rho):
    n = rho.shape[0]
    h = 1 / (n + 1)
    j = np.arange(1, n + 1)
    eigenvalues = (2 - 2 * np.cos(np.pi * j * h)) / h**2
    hat = sine_transform(sine_transform(rho).T).T
    hat /= -(eigenvalues[:, None] + eigenvalues[None, :])
    return sine_transform(sine_transform(hat).T).T / (2 * (n + 1)) ** 2


def run(density):
    energies = []
    for rho in density:
        rho = rho - rho.mean()
        phi, Ex, Ey = solve_periodic(rho)
        energies.append(0.5 * np.mean(Ex**2 + Ey**2))
        u = solve_dirichlet(rho)
    h = 1 / (len(u) + 1)
    p = np.pad(u, 1)
    lap = (p[2:, 1:-1] + p[:-2, 1:-1] + p[1:-1, 2:] + p[1:-1, :-2] - 4 * u) / h**2
    assert np.abs(lap - rho).max() < 1e-7
    return phi, Ex, Ey, u, np.array(energies)
