"""Spheres over a checkered floor: one pixel at a time with small vectors, and all rays at once."""

import numpy as np

SIZES = {
    "test": {"width": 4, "pixels": 4},
    "tiny": {"width": 12, "pixels": 12},
    "middle": {"width": 120, "pixels": 6},
    "large": {"width": 500, "pixels": 4},
}
LIGHT = np.array([5.0, 5.0, -10.0])
SPHERES = [
    (np.array([0.75, 0.1, 1.0]), 0.6, np.array([0.0, 0.0, 1.0])),
    (np.array([-0.75, 0.1, 2.25]), 0.6, np.array([0.5, 0.223, 0.5])),
    (np.array([-2.75, 0.1, 3.5]), 0.6, np.array([1.0, 0.572, 0.184])),
]


def make(width, pixels):
    return width, pixels


def normalize(x):
    return x / np.linalg.norm(x)


def intersect_sphere(origin, D, S, R):
    a = np.dot(D, D)
    OS = origin - S
    b = 2 * np.dot(D, OS)
    c = np.dot(OS, OS) - R * R
    disc = b * b - 4 * a * c
    if disc > 0:
        root = np.sqrt(disc)
        q = (-b - root) / 2.0 if b < 0 else (-b + root) / 2.0
        t0, t1 = min(q / a, c / q), max(q / a, c / q)
        if t1 >= 0:
            return t1 if t0 < 0 else t0
    return np.inf


def trace_ray(origin, direction):
    distances = [intersect_sphere(origin, direction, S, R) for S, R, _ in SPHERES]
    t = min(distances)
    if t == np.inf:
        return None
    center, _, color = SPHERES[distances.index(t)]
    M = origin + direction * t
    N = normalize(M - center)
    toL, toO = normalize(LIGHT - M), normalize(origin - M)
    for S, R, _ in SPHERES:
        if S is not center and intersect_sphere(M + N * 1e-4, toL, S, R) < np.inf:
            return None
    col = 0.05 + 0.7 * max(np.dot(N, toL), 0) * color
    col += max(np.dot(N, normalize(toL + toO)), 0) ** 50
    reflected = normalize(direction - 2 * np.dot(direction, N) * N)
    return M + N * 1e-4, reflected, col


def one_by_one(size):
    image = np.zeros((size, size, 3))
    for i, x in enumerate(np.linspace(-1, 1, size)):
        for j, y in enumerate(np.linspace(-0.6, 0.6, size)):
            color, reflection = np.zeros(3), 1.0
            origin = np.array([0.0, 0.35, -1.0])
            direction = normalize(np.array([x, y, 0.0]) - origin)
            for _ in range(3):
                traced = trace_ray(origin, direction)
                if traced is None:
                    break
                origin, direction, col = traced
                color += reflection * col
                reflection *= 0.5
            image[size - j - 1, i, :] = np.clip(color, 0, 1)
    return image


def all_at_once(width):
    x, y = np.meshgrid(np.linspace(-1, 1, width), np.linspace(0.6, -0.6, width))
    D = np.stack([x, y - 0.35, np.ones_like(x)], axis=-1)
    D /= np.linalg.norm(D, axis=-1, keepdims=True)
    eye = np.array([0.0, 0.35, -1.0])
    nearest = np.full(x.shape, np.inf)
    image = np.zeros((*x.shape, 3))
    floor = (-0.5 - eye[1]) / np.where(D[..., 1] < -1e-9, D[..., 1], -1e-9)
    ground = eye + floor[..., None] * D
    checker = (np.floor(2 * ground[..., 0]) + np.floor(2 * ground[..., 2])) % 2 == 0
    hit = (D[..., 1] < -1e-9) & (floor < 20)
    image[hit] = np.where(checker[hit], 0.9, 0.2)[:, None]
    nearest[hit] = floor[hit]
    for S, R, color in SPHERES:
        b = np.einsum("ijk,k->ij", D, eye - S)
        disc = b * b - (np.sum((eye - S) ** 2) - R * R)
        t = -b - np.sqrt(np.maximum(disc, 0))
        hit = (disc > 0) & (t > 0) & (t < nearest)
        M = eye + t[..., None] * D
        N = (M - S) / R
        toL = LIGHT - M
        toL /= np.sqrt(np.sum(toL * toL, axis=-1))[..., None]
        diffuse = np.maximum(np.sum(N * toL, axis=-1), 0)
        shade = 0.05 + 0.7 * diffuse[..., None] * color
        image[hit] = shade[hit]
        nearest = np.where(hit, t, nearest)
    return image.clip(0, 1)


def run(width, pixels):
    image = all_at_once(width)
    return one_by_one(pixels), image, (255 * image).mean(axis=(0, 1))
