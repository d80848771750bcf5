"""Many-armed bandits: epsilon-greedy, upper confidence bounds and gradient, step by step."""

import numpy as np

SIZES = {
    "test": {"arms": 4, "runs": 3, "steps": 8},
    "tiny": {"arms": 10, "runs": 8, "steps": 250},
    "middle": {"arms": 50, "runs": 1000, "steps": 80},
    "large": {"arms": 400, "runs": 2500, "steps": 30},
}


def make(arms, runs, steps):
    rng = np.random.RandomState(20)
    return rng.randn(runs, arms), rng.randn(steps, runs), rng.rand(steps), steps


def epsilon_greedy(true, noise, coins, epsilon):
    """One bandit, with optimistic first values."""
    Q = np.full(len(true), 5.0)
    N = np.zeros(len(true))
    rewards = []
    for t in range(len(noise)):
        if coins[t] < epsilon:
            a = int(coins[t] / epsilon * len(true))
        else:
            a = np.argmax(Q)
        reward = true[a] + noise[t]
        N[a] += 1
        Q[a] += (reward - Q[a]) / N[a]
        rewards.append(reward)
    return Q, N, np.mean(rewards)


def ucb(true, noise):
    """All bandits beside each other."""
    runs, arms = true.shape
    rows = np.arange(runs)
    Q, N = np.zeros((runs, arms)), np.zeros((runs, arms))
    best = np.argmax(true, axis=1)
    right = []
    for t, shocks in enumerate(noise):
        bound = Q + 2.0 * np.sqrt(np.log(t + 1) / (N + 1e-5))
        a = np.argmax(bound, axis=1)
        reward = true[rows, a] + shocks
        N[rows, a] += 1
        Q[rows, a] += (reward - Q[rows, a]) / N[rows, a]
        right.append(np.mean(a == best))
    return Q, N, np.array(right)


def gradient_bandit(true, noise, coins):
    H = np.zeros(len(true))
    baseline = 0.0
    for t, u in enumerate(coins):
        p = np.exp(H - H.max())
        p /= p.sum()
        a = np.searchsorted(np.cumsum(p), u * 0.999999)
        reward = true[a] + noise[t]
        baseline += (reward - baseline) / (t + 1)
        one_hot = np.arange(len(H)) == a
        H += 0.1 * (reward - baseline) * (one_hot - p)
    return H


def run(true, noise, coins, steps):
    greedy = epsilon_greedy(true[0], noise[:, 0], coins, 0.1)
    return greedy, ucb(true, noise), gradient_bandit(true[1], noise[:, 1], coins), steps
