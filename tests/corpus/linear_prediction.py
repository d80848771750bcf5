"""Autocorrelation, Levinson-Durbin recursion, pitch by frames, spectrogram with a Hann window."""

import numpy as np

SIZES = {
    "test": {"frames": 3, "size": 32, "order": 3},
    "tiny": {"frames": 20, "size": 128, "order": 8},
    "middle": {"frames": 150, "size": 512, "order": 10},
    "large": {"frames": 2000, "size": 1024, "order": 12},
}


def make(frames, size, order):
    n = (frames + 1) * size // 2
    t = np.arange(n)
    pulses = (t % 40 == 0).astype(float)
    envelope = np.exp(-np.arange(60) / 12.0) * np.cos(0.7 * np.arange(60))
    voice = np.convolve(pulses, envelope)[:n]
    return voice + 0.01 * np.random.RandomState(4).randn(n), size, order


def autocorrelate(x, lags):
    return np.array([np.dot(x[: len(x) - k], x[k:]) for k in range(lags)])


def levinson(r, order):
    a = np.zeros(order + 1)
    a[0] = 1.0
    error = r[0]
    reflections = np.zeros(order)
    for i in range(1, order + 1):
        k = -np.dot(a[:i], r[i:0:-1]) / error
        a[1 : i + 1] += k * a[i - 1 :: -1][:i]
        error *= 1 - k * k
        reflections[i - 1] = k
    return a, error, reflections


def run(signal, size, order):
    window = np.hanning(size)
    starts = range(0, len(signal) - size + 1, size // 2)
    models, pitches = [], []
    for s in starts:
        frame = signal[s : s + size] * window
        r = autocorrelate(frame, order + 1)
        a, error, reflections = levinson(r, order)
        assert np.all(np.abs(reflections) < 1)
        models.append(np.append(a, error))
        whole = np.fft.irfft(np.abs(np.fft.rfft(frame, 2 * size)) ** 2)[:size]
        pitches.append(10 + np.argmax(whole[10 : size // 2]))
    index = np.arange(size)[None, :] + (size // 2) * np.arange(len(models))[:, None]
    spectrogram = np.abs(np.fft.rfft(signal[index] * window, axis=1)) ** 2
    centroid = spectrogram @ np.arange(size // 2 + 1) / spectrogram.sum(axis=1)
    return np.array(models), np.array(pitches), np.median(pitches), centroid
