"""Backtest of a crossing of moving averages: returns, drawdown, Sharpe, RSI and Bollinger bands."""

import numpy as np

SIZES = {
    "test": {"days": 40, "window": 4, "repeats": 1},
    "tiny": {"days": 180, "window": 10, "repeats": 20},
    "middle": {"days": 60_000, "window": 30, "repeats": 1},
    "large": {"days": 1_000_000, "window": 50, "repeats": 1},
}


def make(days, window, repeats):
    rng = np.random.RandomState(24)
    returns = 0.0003 + 0.01 * rng.standard_t(5, size=(repeats, days))
    return 100 * np.cumprod(1 + returns, axis=1), window


def moving_average(x, n):
    c = np.cumsum(np.insert(x, 0, 0.0))
    return (c[n:] - c[:-n]) / n


def exponential_average(x, span):
    """As pandas' ewm(adjust=False), a loop."""
    alpha = 2 / (span + 1)
    out = np.empty(len(x))
    out[0] = x[0]
    for i in range(1, len(x)):
        out[i] = alpha * x[i] + (1 - alpha) * out[i - 1]
    return out


def rsi(prices, n):
    delta = np.diff(prices)
    gains = moving_average(np.where(delta > 0, delta, 0), n)
    losses = moving_average(np.where(delta < 0, -delta, 0), n)
    return 100 - 100 / (1 + gains / (losses + 1e-9))


def bollinger(prices, n):
    windows = np.lib.stride_tricks.sliding_window_view(prices, n)
    mean, std = windows.mean(axis=1), windows.std(axis=1)
    outside = (prices[n - 1 :] > mean + 2 * std) | (prices[n - 1 :] < mean - 2 * std)
    return outside.mean()


def backtest(prices, n):
    fast = moving_average(prices, n)[2 * n :]
    slow = moving_average(prices, 3 * n)
    fast = fast[-len(slow) :]
    position = np.where(fast > slow, 1.0, -1.0)
    log_returns = np.diff(np.log(prices[-len(slow) :]))
    earned = position[:-1] * log_returns
    wealth = np.exp(np.cumsum(earned))
    drawdown = 1 - wealth / np.maximum.accumulate(wealth)
    trades = np.count_nonzero(np.diff(position))
    sharpe = np.sqrt(252) * earned.mean() / earned.std()
    return wealth[-1], drawdown.max(), float(trades), sharpe


def run(prices, n):
    summary = [backtest(p, n) for p in prices]
    smooth = exponential_average(prices[0][:2000], n)
    strength = np.array([rsi(p, n)[[0, -1]] for p in prices])
    return np.array(summary), smooth, strength, bollinger(prices[0], n)
