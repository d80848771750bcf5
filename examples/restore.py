"""A photograph that moved and was printed through a screen, restored by its spectrum.

Data: ``china.jpg``, a photograph that scikit-learn ships, shifted along its rows while it is
exposed, overlaid with the regular pattern of a print and with noise.  The pattern stands out from
the spectrum of the whole picture as peaks, which are taken out (a notch filter).  The motion is
undone row by row by Wiener's (1949) filter: of each frequency as much is brought back as rises
above the noise.
"""

from __future__ import annotations

import math

import numpy

from examples.harness import Example, enlarge, main

HEIGHT, WIDTH = 400, 600
SHIFT = 12  # pixels, during the exposure
PATTERN = ((0.06, 60, 81), (0.05, 75, -66))  # height, and cycles down and across the picture
NOISE = 0.01
PEAK = 12.0  # times what is around it
CALM = 20  # cycles: below this the picture itself has peaks
LAG = 3


def load(size):
    """Return the three colours as they were taken, the blur of a row, and the photograph."""
    from sklearn.datasets import load_sample_image

    photograph = enlarge(load_sample_image("china.jpg") / 255.0, size)
    photograph = photograph[: HEIGHT * size, : WIDTH * size].transpose(2, 0, 1)
    blur = numpy.zeros(WIDTH * size)
    blur[: SHIFT * size] = 1 / (SHIFT * size)
    taken = numpy.fft.ifft(numpy.fft.fft(photograph) * numpy.fft.fft(blur)).real
    down, across = numpy.indices(taken.shape[1:])
    for height, rows, columns in PATTERN:
        turns = rows * down / (HEIGHT * size) + columns * across / (WIDTH * size)
        taken += height * numpy.cos(2 * math.pi * turns)
    taken += NOISE * numpy.random.default_rng(0).standard_normal(taken.shape)
    return taken.astype("float32"), blur.astype("float32"), photograph.astype("float32")


def without_pattern(np, picture):
    """Return the picture without what stands out from the spectrum around it, and the spectrum."""
    spectrum = np.fft.fft2(picture)
    size = np.abs(spectrum)
    around = sum(np.roll(size, lag, axis) for lag in (-LAG, LAG) for axis in (1, 2)) / 4
    height, width = picture.shape[1:]
    down = np.abs(np.fft.fftfreq(height, 1 / height))[:, None]
    across = np.abs(np.fft.fftfreq(width, 1 / width))
    stands_out = (size > PEAK * around) & (np.maximum(down, across) > CALM)
    return np.fft.ifft2(np.where(stands_out, 0, spectrum)).real, size


def without_motion(np, picture, blur, noise):
    """Return the picture as sharp as the noise allows."""
    blurred = np.fft.fft(blur)
    inverse = np.conj(blurred) / (np.abs(blurred) ** 2 + noise)
    return np.clip(np.fft.ifft(np.fft.fft(picture) * inverse).real, 0, 1)


def program(np, taken, blur, photograph):
    """Return the picture without the pattern, that without the motion, and each one's error."""
    calm, size = without_pattern(np, taken)
    sharp = without_motion(np, calm, blur, 0.02)
    errors = [np.sqrt(((picture - photograph) ** 2).mean()) for picture in (taken, calm, sharp)]
    return calm, sharp, size, np.stack(errors)


def tell(outputs):
    return "root mean square error: taken {:.3f}, without pattern {:.3f}, sharp {:.3f}".format(
        *outputs[-1])


def draw(inputs, outputs):
    from matplotlib.figure import Figure

    calm, sharp, size, _ = outputs
    figure = Figure(figsize=(13, 9), layout="constrained")
    figure.suptitle(tell(outputs))
    spectrum = numpy.log(numpy.fft.fftshift(size, (1, 2)))
    spectrum = (spectrum - spectrum.min()) / (spectrum.max() - spectrum.min())
    for panel, picture, title in zip(
        figure.subplots(2, 2).ravel(), (inputs[0], spectrum, calm, sharp),
        ("taken", "its spectrum", "without the pattern", "without the motion"), strict=True,
    ):
        panel.imshow(numpy.clip(picture, 0, 1).transpose(1, 2, 0))
        panel.set_title(title)
        panel.set_axis_off()
    return figure


EXAMPLE = Example("restore", load, program, draw, default_size=2, rtol=1e-3, atol=1e-3, tell=tell)

if __name__ == "__main__":
    main(EXAMPLE)
