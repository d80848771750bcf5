"""Schroedinger equation by the split-step Fourier method: tunnelling, and a soliton of the NLS."""

import numpy as np

SIZES = {
    "test": {"n": 16, "steps": 3},
    "tiny": {"n": 128, "steps": 100},
    "middle": {"n": 32_768, "steps": 12},
    "large": {"n": 524_288, "steps": 2},
}


def make(n, steps):
    x = np.linspace(-40, 40, n, endpoint=False)
    psi = np.exp(-((x + 10) ** 2) / 8) * np.exp(2j * x)
    psi /= np.sqrt(np.trapezoid(np.abs(psi) ** 2, x))
    barrier = np.where(np.abs(x) < 1.0, 2.2, 0.0)
    return x, psi, barrier, steps


def run(x, psi, barrier, steps):
    n, dt = len(x), 0.02
    dx = x[1] - x[0]
    k = 2 * np.pi * np.fft.fftfreq(n, dx)
    half = np.exp(-0.5j * barrier * dt)
    kinetic = np.exp(-0.5j * k**2 * dt)
    for _ in range(steps):
        psi *= half
        psi[:] = np.fft.ifft(kinetic * np.fft.fft(psi))
        psi *= half
    norm = np.sum(np.abs(psi) ** 2) * dx
    through = np.sum(np.abs(psi[x > 1]) ** 2) * dx
    mean_x = np.sum(x * np.abs(psi) ** 2) * dx

    q = (1 / np.cosh(x)).astype(complex)
    for _ in range(steps):
        q = np.fft.ifft(kinetic * np.fft.fft(q))
        q = q * np.exp(1j * np.abs(q) ** 2 * dt)
    deviation = np.abs(np.abs(q) - 1 / np.cosh(x)).max()
    return np.angle(q[n // 2]), deviation, norm, through, mean_x
