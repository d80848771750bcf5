"""Handwritten digits: a net of one hidden layer, trained with exact gradients.

Data: the 1,797 digits of 8 × 8 pixels that scikit-learn ships; every fourth is kept for testing.
The loss is ordinary NumPy.  tiledarray differentiates it; for NumPy its gradient is written out by
hand, as one had to.  The weights follow it by gradient descent with momentum (Polyak 1964).
"""

from __future__ import annotations

import numpy

from examples.harness import Example, main

HIDDEN = 48
STEPS = 150  # for a size of 1
RATE, MOMENTUM, DECAY = 0.5, 0.9, 1e-4


def load(size):
    """Return what to learn from and be tested with, first weights, and room for the losses."""
    from sklearn.datasets import load_digits

    found = load_digits()
    pixels = (found.data - found.data.mean()) / found.data.std()
    tested = numpy.arange(len(pixels)) % 4 == 3
    random = numpy.random.default_rng(1)
    first = random.normal(size=(pixels.shape[1], HIDDEN)) / numpy.sqrt(pixels.shape[1])
    second = random.normal(size=(HIDDEN, 10)) / numpy.sqrt(HIDDEN)
    return (pixels[~tested], numpy.eye(10)[found.target[~tested]], pixels[tested],
            found.target[tested], first, second, numpy.zeros(STEPS * size))


def scores_of(np, weights, pixels):
    first, shift, second, bias = weights
    return np.tanh(pixels @ first + shift) @ second + bias


def loss_of(np, weights, pixels, wanted):
    scores = scores_of(np, weights, pixels)
    scores = scores - scores.max(axis=1, keepdims=True)
    logs = scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
    decay = (weights[0] ** 2).sum() + (weights[2] ** 2).sum()
    return -(wanted * logs).sum() / len(pixels) + DECAY * decay


def by_hand(np):
    """Return the function that a gradient took before one could ask for it."""

    def both(weights, pixels, wanted):
        first, shift, second, bias = weights
        hidden = np.tanh(pixels @ first + shift)
        scores = hidden @ second + bias
        powers = np.exp(scores - scores.max(axis=1, keepdims=True))
        chances = powers / powers.sum(axis=1, keepdims=True)
        back = (chances - wanted) / len(pixels)
        inner = (back @ second.T) * (1 - hidden**2)
        return loss_of(np, weights, pixels, wanted), [
            pixels.T @ inner + 2 * DECAY * first, inner.sum(axis=0),
            hidden.T @ back + 2 * DECAY * second, back.sum(axis=0)]

    return both


def asked_for(np):
    """Return the function that gives loss and gradient, recorded once."""
    return np.jit(np.value_and_grad(
        lambda weights, pixels, wanted: loss_of(np, weights, pixels, wanted)))


def program(np, pixels, wanted, tests, digits, first, second, losses):
    """Return the loss after each step, the digits read in the tests, and the weights."""
    gradient = by_hand(np) if np is numpy else asked_for(np)
    weights = [first.copy(), np.zeros(HIDDEN), second.copy(), np.zeros(10)]
    speeds = [np.zeros_like(weight) for weight in weights]
    losses = losses.copy()
    for step in range(len(losses)):
        losses[step], slopes = gradient(weights, pixels, wanted)
        for weight, speed, slope in zip(weights, speeds, slopes, strict=True):
            speed *= MOMENTUM
            speed -= RATE * slope
            weight += speed
    read = scores_of(np, weights, tests).argmax(axis=1)
    return losses, read, weights[0]


def draw(inputs, outputs):
    from matplotlib.figure import Figure

    losses, read, first = outputs
    digits = inputs[3]
    right = (read == digits).mean()
    figure = Figure(figsize=(10, 5), layout="constrained")
    left, middle = figure.subplots(1, 2, width_ratios=(3, 2))
    left.semilogy(losses)
    left.set(xlabel="step", ylabel="loss", title=f"{right:.1%} of {len(digits)} tests are right")
    tiles = numpy.concatenate([
        numpy.concatenate([first[:, 8 * row + k].reshape(8, 8) for k in range(8)], axis=1)
        for row in range(HIDDEN // 8)])
    middle.imshow(tiles, cmap="RdBu")
    middle.set(xticks=[], yticks=[], title="weights of the hidden layer")
    return figure


EXAMPLE = Example("digits", load, program, draw, default_size=4, rtol=1e-6, atol=1e-7)

if __name__ == "__main__":
    main(EXAMPLE)
