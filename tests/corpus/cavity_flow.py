"""Lid-driven cavity flow: pressure Poisson equation and momentum, after Barba's 12 steps."""

import numpy as np

SIZES = {
    "test": {"n": 7, "steps": 2, "inner": 3},
    "tiny": {"n": 21, "steps": 10, "inner": 30},
    "middle": {"n": 161, "steps": 4, "inner": 40},
    "large": {"n": 1001, "steps": 1, "inner": 12},
}


def make(n, steps, inner):
    u, v, p = np.zeros((n, n)), np.zeros((n, n)), np.zeros((n, n))
    return u, v, p, steps, inner


def build_up_b(u, v, rho, dt, dx, dy):
    b = np.zeros_like(u)
    ux = (u[1:-1, 2:] - u[1:-1, 0:-2]) / (2 * dx)
    vy = (v[2:, 1:-1] - v[0:-2, 1:-1]) / (2 * dy)
    uy = (u[2:, 1:-1] - u[0:-2, 1:-1]) / (2 * dy)
    vx = (v[1:-1, 2:] - v[1:-1, 0:-2]) / (2 * dx)
    b[1:-1, 1:-1] = rho * (1 / dt * (ux + vy) - ux**2 - 2 * (uy * vx) - vy**2)
    return b


def pressure_poisson(p, dx, dy, b, inner):
    for _ in range(inner):
        pn = p.copy()
        p[1:-1, 1:-1] = (
            (pn[1:-1, 2:] + pn[1:-1, 0:-2]) * dy**2 + (pn[2:, 1:-1] + pn[0:-2, 1:-1]) * dx**2
        ) / (2 * (dx**2 + dy**2)) - dx**2 * dy**2 / (2 * (dx**2 + dy**2)) * b[1:-1, 1:-1]
        p[:, -1] = p[:, -2]
        p[0, :] = p[1, :]
        p[:, 0] = p[:, 1]
        p[-1, :] = 0
    return p


def advance(q, u, v, dt, dx, dy, nu):
    """One step of upwind convection and diffusion of q."""
    c = q[1:-1, 1:-1]
    return (
        c
        - u[1:-1, 1:-1] * dt / dx * (c - q[1:-1, 0:-2])
        - v[1:-1, 1:-1] * dt / dy * (c - q[0:-2, 1:-1])
        + nu * dt / dx**2 * (q[1:-1, 2:] - 2 * c + q[1:-1, 0:-2])
        + nu * dt / dy**2 * (q[2:, 1:-1] - 2 * c + q[0:-2, 1:-1])
    )


def run(u, v, p, steps, inner):
    ny, nx = u.shape
    dx, dy = 2 / (nx - 1), 2 / (ny - 1)
    rho, nu = 1.0, 0.1
    dt = 0.2 * dx * dx / nu
    for _ in range(steps):
        un, vn = u.copy(), v.copy()
        b = build_up_b(un, vn, rho, dt, dx, dy)
        p = pressure_poisson(p, dx, dy, b, inner)
        gx = dt / (2 * rho * dx) * (p[1:-1, 2:] - p[1:-1, 0:-2])
        gy = dt / (2 * rho * dy) * (p[2:, 1:-1] - p[0:-2, 1:-1])
        u[1:-1, 1:-1] = advance(un, un, vn, dt, dx, dy, nu) - gx
        v[1:-1, 1:-1] = advance(vn, un, vn, dt, dx, dy, nu) - gy
        u[0, :], u[:, 0], u[:, -1] = 0, 0, 0
        v[0, :], v[-1, :], v[:, 0], v[:, -1] = 0, 0, 0, 0
        u[-1, :] = 1
    speed = np.sqrt(u**2 + v**2)
    return speed, np.unravel_index(np.argmin(p), p.shape)
