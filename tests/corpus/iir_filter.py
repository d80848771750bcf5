"""Digital filters: biquads sample by sample, a windowed sinc by convolution, an envelope."""

import numpy as np

SIZES = {
    "test": {"n": 60, "channels": 1},
    "tiny": {"n": 1200, "channels": 1},
    "middle": {"n": 2000, "channels": 64},
    "large": {"n": 6000, "channels": 500},
}


def make(n, channels):
    t = np.arange(n) / 8000.0
    tones = 440.0 * 2 ** (np.arange(channels) / 12)
    signal = np.sin(2 * np.pi * t[:, None] * tones[None, :])
    noise = np.random.default_rng(31).normal(0, 0.2, signal.shape)
    return np.squeeze(signal + noise), n


def lowpass(f0, fs, q):
    """Coefficients of the audio EQ cookbook."""
    w = 2 * np.pi * f0 / fs
    alpha = np.sin(w) / (2 * q)
    b = np.array([1 - np.cos(w), 2 - 2 * np.cos(w), 1 - np.cos(w)]) / 2
    a = np.array([1 + alpha, -2 * np.cos(w), 1 - alpha])
    return b / a[0], a / a[0]


def biquad(b, a, x):
    y = np.zeros_like(x)
    s1 = s2 = np.zeros_like(x[0])
    for n in range(len(x)):
        y[n] = b[0] * x[n] + s1
        s1 = b[1] * x[n] - a[1] * y[n] + s2
        s2 = b[2] * x[n] - a[2] * y[n]
    return y


def sinc_filter(x, cutoff, taps):
    k = np.arange(taps) - (taps - 1) / 2
    h = np.sinc(2 * cutoff * k) * np.hamming(taps)
    h /= h.sum()
    return np.convolve(x, h, mode="same"), h


def run(x, n):
    b, a = lowpass(600.0, 8000.0, 0.707)
    y = biquad(b, a, biquad(b, a, x))
    mono = x if x.ndim == 1 else x.mean(axis=1)
    smooth, h = sinc_filter(mono, 0.1, 31)
    response = np.abs(np.fft.rfft(h, 256))
    echo = mono.copy()
    delay = n // 8
    for k in range(1, 4):
        echo[k * delay :] += 0.5**k * mono[: n - k * delay]
    frames = np.abs(mono[: n - n % 20]).reshape(-1, 20)
    envelope = frames.max(axis=1)
    loud = 20 * np.log10(np.sqrt((frames**2).mean(axis=1)) + 1e-12)
    return y, smooth, response, echo, envelope, loud, np.sum(np.diff(np.sign(mono)) != 0)
