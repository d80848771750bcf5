"""Tabular Q-learning and SARSA on a grid with cliffs, and value iteration to compare."""

import numpy as np

SIZES = {
    "test": {"side": 4, "episodes": 2, "most": 12},
    "tiny": {"side": 6, "episodes": 20, "most": 60},
    "middle": {"side": 40, "episodes": 30, "most": 150},
    "large": {"side": 500, "episodes": 40, "most": 150},
}


def make(side, episodes, most):
    rewards = np.full((side, side), -1.0)
    rewards[-1, 1:-1] = -100.0
    rewards[-1, -1] = 10.0
    return rewards, episodes, most


def step(rewards, state, action):
    side = rewards.shape[0]
    moves = ((-1, 0), (0, 1), (1, 0), (0, -1))
    row = min(max(state[0] + moves[action][0], 0), side - 1)
    col = min(max(state[1] + moves[action][1], 0), side - 1)
    reward = rewards[row, col]
    return (row, col), reward, reward == -100.0 or reward == 10.0


def choose(Q, state, epsilon, rng):
    if rng.rand() < epsilon:
        return rng.randint(4)
    return int(np.argmax(Q[state]))


def learn(rewards, episodes, most, on_policy):
    rng = np.random.RandomState(0)
    Q = np.zeros((*rewards.shape, 4))
    totals = np.zeros(episodes)
    alpha, gamma = 0.5, 0.95
    for episode in range(episodes):
        state = (rewards.shape[0] - 1, 0)
        action = choose(Q, state, 0.1, rng)
        for _ in range(most):
            new_state, reward, done = step(rewards, state, action)
            new_action = choose(Q, new_state, 0.1, rng)
            ahead = Q[new_state][new_action] if on_policy else np.max(Q[new_state])
            target = reward + gamma * ahead * (not done)
            Q[state][action] += alpha * (target - Q[state][action])
            totals[episode] += reward
            state, action = new_state, new_action
            if done:
                break
    return Q, totals


def value_iteration(rewards, sweeps):
    ends = (rewards == -100.0) | (rewards == 10.0)
    V = np.zeros_like(rewards)
    for _ in range(sweeps):
        gain = rewards + 0.95 * np.where(ends, 0.0, V)
        up = np.vstack([gain[:1], gain[:-1]])
        down = np.vstack([gain[1:], gain[-1:]])
        left = np.hstack([gain[:, :1], gain[:, :-1]])
        right = np.hstack([gain[:, 1:], gain[:, -1:]])
        choices = np.stack([up, right, down, left])
        V = choices.max(axis=0)
    return V, choices.argmax(axis=0)


def run(rewards, episodes, most):
    Q, totals = learn(rewards, episodes, most, on_policy=False)
    sarsa, _ = learn(rewards, episodes // 2, most, on_policy=True)
    V, policy = value_iteration(rewards, episodes)
    return Q, totals, sarsa.max(axis=-1), V, policy
