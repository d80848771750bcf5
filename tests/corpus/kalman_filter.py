"""Kalman filter and smoother of a tracked vehicle, one after the other or all in one stack."""

import numpy as np

SIZES = {
    "test": {"steps": 8, "tracks": 3},
    "tiny": {"steps": 70, "tracks": 5},
    "middle": {"steps": 40, "tracks": 4000},
    "large": {"steps": 25, "tracks": 80_000},
}


def make(steps, tracks):
    rng = np.random.default_rng(44)
    velocity = rng.normal(1, 0.2, (tracks, 1, 2))
    truth = velocity * 0.1 * np.arange(steps)[None, :, None]
    return (truth + rng.normal(0, 0.3, truth.shape),)


def model(dt, noise):
    F = np.eye(4) + dt * np.eye(4, k=2)
    H = np.eye(2, 4)
    G = np.vstack([0.5 * dt**2 * np.eye(2), dt * np.eye(2)])
    return F, H, noise * G @ G.T, 0.09 * np.eye(2)


def kalman(z, F, H, Q, R):
    x, P = np.zeros(4), np.eye(4)
    xs, Ps, predicted = [], [], []
    loglik = 0.0
    for measurement in z:
        x = F @ x
        P = F @ P @ F.T + Q
        predicted.append((x, P))
        y = measurement - H @ x
        S = H @ P @ H.T + R
        K = P @ H.T @ np.linalg.inv(S)
        x = x + K @ y
        P = (np.eye(4) - K @ H) @ P
        loglik -= 0.5 * (y @ np.linalg.solve(S, y) + np.log(np.linalg.det(2 * np.pi * S)))
        xs.append(x)
        Ps.append(P)
    return xs, Ps, predicted, loglik


def smooth(xs, Ps, predicted, F):
    out = [xs[-1]]
    for k in range(len(xs) - 2, -1, -1):
        x_next, P_next = predicted[k + 1]
        C = Ps[k] @ F.T @ np.linalg.inv(P_next)
        out.append(xs[k] + C @ (out[-1] - x_next))
    return np.array(out[::-1])


def stacked(z, F, H, Q, R):
    """All tracks; they share their covariance."""
    x = np.zeros((len(z), 4))
    P = np.eye(4)
    means = np.zeros((len(z), z.shape[1], 4))
    for t in range(z.shape[1]):
        x = x @ F.T
        P = F @ P @ F.T + Q
        K = P @ H.T @ np.linalg.inv(H @ P @ H.T + R)
        x = x + np.einsum("ij,nj->ni", K, z[:, t] - x @ H.T)
        P = P - K @ H @ P
        means[:, t] = x
    return means, P


def run(z):
    F, H, Q, R = model(0.1, 0.05)
    means, P = stacked(z, F, H, Q, R)
    xs, Ps, predicted, loglik = kalman(z[0], F, H, Q, R)
    assert np.allclose(np.array(xs), means[0])
    return means, P, loglik, smooth(xs, Ps, predicted, F), np.trace(P), np.diag(Ps[0])
