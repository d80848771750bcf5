"""Unions of masks: polygons by even-odd crossings, discs, boxes, merged intervals, morphology."""

import numpy as np

SIZES = {
    "test": {"n": 10, "shapes": 2, "intervals": 8},
    "tiny": {"n": 20, "shapes": 25, "intervals": 150},
    "middle": {"n": 200, "shapes": 12, "intervals": 20_000},
    "large": {"n": 1000, "shapes": 5, "intervals": 600_000},
}


def make(n, shapes, intervals):
    rng = np.random.RandomState(52)
    centres = rng.uniform(0.1, 0.9, (shapes, 2))
    angles = np.sort(rng.uniform(0, 2 * np.pi, (shapes, 5)), axis=1)
    polygons = centres[:, None, :] + 0.15 * np.stack([np.cos(angles), np.sin(angles)], axis=-1)
    start = rng.uniform(0, 1000, intervals)
    spans = np.column_stack([start, start + rng.exponential(1000 / intervals, intervals)])
    return n, polygons, centres, spans


def inside_polygon(x, y, polygon):
    inside = np.zeros(x.shape, dtype=bool)
    j = len(polygon) - 1
    for i in range(len(polygon)):
        (xi, yi), (xj, yj) = polygon[i], polygon[j]
        crosses = ((yi > y) != (yj > y)) & (x < (xj - xi) * (y - yi) / (yj - yi) + xi)
        inside ^= crosses
        j = i
    return inside


def shoelace(p):
    x, y = p[:, 0], p[:, 1]
    return 0.5 * abs(np.dot(x, np.roll(y, -1)) - np.dot(y, np.roll(x, -1)))


def merge(spans):
    spans = spans[np.argsort(spans[:, 0])]
    furthest = np.maximum.accumulate(spans[:, 1])
    new = np.concatenate([[True], spans[1:, 0] > furthest[:-1]])
    first = np.flatnonzero(new)
    last = np.append(first[1:], len(spans)) - 1
    return np.column_stack([spans[first, 0], furthest[last]])


def dilate(mask):
    out = mask.copy()
    out[1:] |= mask[:-1]
    out[:-1] |= mask[1:]
    out[:, 1:] |= mask[:, :-1]
    out[:, :-1] |= mask[:, 1:]
    return out


def run(n, polygons, centres, spans):
    x, y = np.meshgrid((np.arange(n) + 0.5) / n, (np.arange(n) + 0.5) / n)
    union = np.zeros((n, n), dtype=bool)
    overlap = np.zeros((n, n), dtype=np.uint8)
    areas = []
    for polygon, (cx, cy) in zip(polygons, centres):
        shape = inside_polygon(x, y, polygon)
        areas.append([shoelace(polygon), shape.mean()])
        disc = np.hypot(x - cx, y - cy) < 0.05
        box = np.logical_and(np.abs(x - cy) < 0.04, np.abs(y - cx) < 0.06)
        union |= shape & ~disc | box
        overlap[shape] += 1
    ring = dilate(dilate(union)) ^ union
    rows = np.any(union, axis=1)
    bounds = np.flatnonzero(rows)[[0, -1]]
    merged = merge(spans)
    covered = np.diff(merged, axis=1).sum()
    depth = np.max(np.cumsum(np.where(np.argsort(spans.T.ravel()) < len(spans), 1, -1)))
    return union, overlap, np.array(areas), ring.sum(), bounds, merged, covered, depth
