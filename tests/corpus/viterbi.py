"""Hidden Markov model: Viterbi path and forward-backward probabilities."""

import numpy as np

SIZES = {
    "test": {"states": 3, "symbols": 4, "length": 10},
    "tiny": {"states": 5, "symbols": 8, "length": 250},
    "middle": {"states": 120, "symbols": 30, "length": 300},
    "large": {"states": 1000, "symbols": 50, "length": 40},
}


def make(states, symbols, length):
    rng = np.random.default_rng(33)
    A = rng.random((states, states)) + 2 * np.eye(states)
    A /= A.sum(axis=1, keepdims=True)
    B = rng.random((states, symbols)) ** 3
    B /= B.sum(axis=1, keepdims=True)
    pi = np.full(states, 1 / states)
    return A, B, pi, rng.integers(0, symbols, length)


def viterbi(A, B, pi, obs):
    logA, logB = np.log(A), np.log(B)
    T, n = len(obs), len(pi)
    delta = np.zeros((T, n))
    psi = np.zeros((T, n), dtype=int)
    delta[0] = np.log(pi) + logB[:, obs[0]]
    for t in range(1, T):
        scores = delta[t - 1][:, np.newaxis] + logA
        psi[t] = np.argmax(scores, axis=0)
        delta[t] = np.max(scores, axis=0) + logB[:, obs[t]]
    path = np.zeros(T, dtype=int)
    path[-1] = np.argmax(delta[-1])
    for t in range(T - 2, -1, -1):
        path[t] = psi[t + 1, path[t + 1]]
    return path, np.max(delta[-1])


def forward_backward(A, B, pi, obs):
    T, n = len(obs), len(pi)
    alpha, beta, scale = np.zeros((T, n)), np.ones((T, n)), np.zeros(T)
    alpha[0] = pi * B[:, obs[0]]
    for t in range(T):
        if t > 0:
            alpha[t] = (alpha[t - 1] @ A) * B[:, obs[t]]
        scale[t] = alpha[t].sum()
        alpha[t] /= scale[t]
    for t in range(T - 2, -1, -1):
        beta[t] = (A @ (B[:, obs[t + 1]] * beta[t + 1])) / scale[t + 1]
    return alpha * beta, np.log(scale).sum()


def run(A, B, pi, obs):
    path, score = viterbi(A, B, pi, obs)
    gamma, loglik = forward_backward(A, B, pi, obs)
    return path, score, gamma, loglik, np.mean(gamma.argmax(axis=1) == path)
