"""A transformer of one block that learns which letter comes next.

Data: Python's own documentation of its language, the text that ``help("...")`` shows and every
Python ships (``pydoc_data.topics``).  The block is that of Vaswani et al. (2017) with its norms in
front (Xiong et al. 2020): causal attention in four heads, then two layers, each added to what came
in.  The loss is ordinary NumPy.  tiledarray differentiates it; for NumPy its gradient is written
out by hand.  The weights follow it by Adam (Kingma and Ba 2015).
"""

from __future__ import annotations

import numpy

from examples.harness import Example, main

LENGTH, WIDTH, HEADS, HIDDEN = 64, 64, 4, 192
SAMPLES = 8
STEPS = 8  # for a size of 1
RATE, MEAN, SQUARE = 3e-3, 0.9, 0.99
ALPHABET = "\n" + "".join(map(chr, range(32, 127)))
NAMES = ("letters", "places", "queries", "keys", "values", "joined", "wide", "narrow", "scores")


def text():
    """Return the documentation, whatever is not on a keyboard left out."""
    from pydoc_data.topics import topics

    return "".join(letter for topic in sorted(topics) for letter in topics[topic]
                   if letter in ALPHABET)


def load(size):
    """Return stretches of text for each step, letters as numbers, and the first weights."""
    letters = numpy.frombuffer(text().encode(), numpy.uint8).astype(numpy.int64)
    letters = numpy.maximum(letters, 31) - 31
    random = numpy.random.default_rng(0)
    starts = random.integers(len(letters) - LENGTH, size=(STEPS * size, SAMPLES, 1))
    sizes = {"letters": (len(ALPHABET), WIDTH), "places": (LENGTH, WIDTH),
             "queries": (WIDTH, WIDTH), "keys": (WIDTH, WIDTH), "values": (WIDTH, WIDTH),
             "joined": (WIDTH, WIDTH), "wide": (WIDTH, HIDDEN), "narrow": (HIDDEN, WIDTH),
             "scores": (WIDTH, len(ALPHABET))}
    weights = (random.normal(size=sizes[name]) / sizes[name][0] ** 0.5 for name in NAMES)
    return letters[starts + numpy.arange(LENGTH + 1)], *weights


def norm(np, x):
    """Return `x` with mean 0 and variance 1 along the last axis."""
    x = x - x.mean(axis=-1, keepdims=True)
    return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + 1e-5)


def softmax(np, scores):
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def in_heads(x):
    """Return samples × heads × letters × features of samples × letters × features."""
    return x.reshape(*x.shape[:2], HEADS, -1).transpose(0, 2, 1, 3)


def side_by_side(x):
    """Undo `in_heads`."""
    return x.transpose(0, 2, 1, 3).reshape(x.shape[0], x.shape[2], -1)


def attention(np, queries, keys, values):
    """Return what each letter finds in those before it."""
    place = np.arange(queries.shape[-2])
    scores = queries @ keys.mT / queries.shape[-1] ** 0.5
    scores = np.where(place[:, None] >= place, scores, -np.inf)
    return softmax(np, scores) @ values


def block(np, weights, x):
    """Return features in which letters have seen those before them: samples × letters × width."""
    y = norm(np, x)
    found = attention(np, *(in_heads(y @ weights[name]) for name in ("queries", "keys", "values")))
    x = x + side_by_side(found) @ weights["joined"]
    return x + np.maximum(norm(np, x) @ weights["wide"], 0) @ weights["narrow"]


def loss_of(np, weights, stretch):
    """Return how surprising each letter is after those before it, in bits, on average."""
    x = weights["letters"][stretch[:, :-1]] + weights["places"]
    chances = softmax(np, norm(np, block(np, weights, x)) @ weights["scores"])
    seen = np.take_along_axis(chances, stretch[:, 1:, None], axis=-1)
    return -np.log2(seen).mean()


def by_hand(np):
    """Return the function that a gradient took before one could ask for it."""

    def normed(x):
        x = x - x.mean(axis=-1, keepdims=True)
        scale = np.sqrt((x * x).mean(axis=-1, keepdims=True) + 1e-5)
        return x / scale, scale

    def norm_back(g, y, scale):
        return (g - g.mean(axis=-1, keepdims=True)
                - y * (g * y).mean(axis=-1, keepdims=True)) / scale

    def product_back(x, g):
        return x.reshape(-1, x.shape[-1]).T @ g.reshape(-1, g.shape[-1])

    def both(weights, stretch):
        w, slopes = weights, {}
        before, after = stretch[:, :-1], stretch[:, 1:]
        x = w["letters"][before] + w["places"]
        first, first_scale = normed(x)
        queries, keys, values = (
            in_heads(first @ w[name]) for name in ("queries", "keys", "values"))
        place, root = np.arange(LENGTH), queries.shape[-1] ** 0.5
        scores = np.where(place[:, None] >= place, queries @ keys.mT / root, -np.inf)
        share = softmax(np, scores)
        found = side_by_side(share @ values)
        x = x + found @ w["joined"]
        second, second_scale = normed(x)
        wide = second @ w["wide"]
        hidden = np.maximum(wide, 0)
        last, last_scale = normed(x + hidden @ w["narrow"])
        chances = softmax(np, last @ w["scores"])
        seen = np.take_along_axis(chances, after[..., None], axis=-1)

        g = chances - (after[..., None] == np.arange(len(ALPHABET)))
        g = g / (after.size * np.log(2))
        slopes["scores"] = product_back(last, g)
        g = norm_back(g @ w["scores"].T, last, last_scale)
        slopes["narrow"] = product_back(hidden, g)
        inner = np.where(wide > 0, g @ w["narrow"].T, 0)
        slopes["wide"] = product_back(second, inner)
        g = g + norm_back(inner @ w["wide"].T, second, second_scale)
        slopes["joined"] = product_back(found, g)
        heads = in_heads(g @ w["joined"].T)
        shared = heads @ values.mT
        shared = share * (shared - (shared * share).sum(axis=-1, keepdims=True)) / root
        inner = 0
        for name, slope in (("values", share.mT @ heads), ("queries", shared @ keys),
                            ("keys", shared.mT @ queries)):
            slope = side_by_side(slope)
            slopes[name] = product_back(first, slope)
            inner = inner + slope @ w[name].T
        g = g + norm_back(inner, first, first_scale)
        slopes["places"] = g.sum(axis=0)
        slopes["letters"] = np.zeros_like(w["letters"])
        np.add.at(slopes["letters"], before, g)
        return -np.log2(seen).mean(), slopes

    return both


def asked_for(np):
    """Return the function that gives loss and gradient, recorded once."""
    return np.jit(np.value_and_grad(lambda weights, stretch: loss_of(np, weights, stretch)))


def program(np, stretches, *weights):
    """Return the loss before each step, and the weights that give letters their features."""
    gradient = by_hand(np) if np is numpy else asked_for(np)
    weights = dict(zip(NAMES, weights, strict=True))
    means = {name: np.zeros_like(weight) for name, weight in weights.items()}
    squares = {name: np.zeros_like(weight) for name, weight in weights.items()}
    losses = []
    for step, stretch in enumerate(stretches, 1):
        loss, slopes = gradient(weights, stretch)
        losses.append(loss)
        for name in NAMES:
            means[name] = MEAN * means[name] + (1 - MEAN) * slopes[name]
            squares[name] = SQUARE * squares[name] + (1 - SQUARE) * slopes[name] ** 2
            speed = means[name] / (1 - MEAN**step)
            weights[name] = weights[name] - RATE * speed / (
                np.sqrt(squares[name] / (1 - SQUARE**step)) + 1e-8)
    return np.stack(losses), weights["letters"], weights["scores"]


def tell(outputs):
    losses = outputs[0]
    return f"bits a letter: {losses[0]:.2f} at first, {losses[-5:].mean():.2f} in the end"


def draw(inputs, outputs):
    from matplotlib.figure import Figure

    losses, letters, _ = outputs
    figure = Figure(figsize=(12, 5), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.plot(losses)
    left.set(xlabel="step", ylabel="bits a letter", title=tell(outputs))
    kept = [k for k, letter in enumerate(ALPHABET) if letter.isalnum()]
    likeness = letters[kept] / numpy.sqrt((letters[kept] ** 2).sum(axis=1, keepdims=True))
    right.imshow(likeness @ likeness.T, cmap="RdBu", vmin=-1, vmax=1)
    names = [ALPHABET[k] for k in kept]
    right.set_xticks(range(len(kept)), names, fontsize=6)
    right.set_yticks(range(len(kept)), names, fontsize=6)
    right.set_title("how alike letters are")
    return figure


EXAMPLE = Example("letters", load, program, draw, default_size=20, rtol=1e-4, atol=1e-4, tell=tell)

if __name__ == "__main__":
    main(EXAMPLE)
