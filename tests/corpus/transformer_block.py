"""One transformer block in float32: layer norm, causal attention with heads, GELU, generation."""

import numpy as np

SIZES = {
    "test": {"length": 5, "width": 8, "heads": 2, "new": 1},
    "tiny": {"length": 8, "width": 16, "heads": 2, "new": 20},
    "middle": {"length": 64, "width": 128, "heads": 4, "new": 4},
    "large": {"length": 256, "width": 512, "heads": 8, "new": 2},
}


def make(length, width, heads, new):
    rng = np.random.RandomState(50)

    def weight(rows, cols):
        return (rng.randn(rows, cols) / np.sqrt(rows)).astype(np.float32)

    params = {
        "embed": weight(40, width), "position": weight(length + new, width),
        "qkv": weight(width, 3 * width), "out": weight(width, width),
        "up": weight(width, 4 * width), "down": weight(4 * width, width),
        "g1": np.ones(width, np.float32), "g2": np.ones(width, np.float32),
    }  # fmt: skip
    return params, rng.randint(0, 40, length), heads, new


def gelu(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi).astype(x.dtype) * (x + 0.044715 * x**3)))


def softmax(x):
    exp_x = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return exp_x / np.sum(exp_x, axis=-1, keepdims=True)


def layer_norm(x, g, eps=1e-5):
    mean = np.mean(x, axis=-1, keepdims=True)
    variance = np.var(x, axis=-1, keepdims=True)
    return g * (x - mean) / np.sqrt(variance + eps)


def attention(q, k, v, mask):
    return softmax(q @ k.T / np.sqrt(q.shape[-1]).astype(q.dtype) + mask) @ v


def mha(x, params, n_head):
    qkv = np.split(x @ params["qkv"], 3, axis=-1)
    qkv_heads = [np.split(part, n_head, axis=-1) for part in qkv]
    causal_mask = (1 - np.tri(x.shape[0], dtype=x.dtype)) * np.float32(-1e10)
    out_heads = [attention(q, k, v, causal_mask) for q, k, v in zip(*qkv_heads)]
    return np.hstack(out_heads) @ params["out"]


def block(x, params, n_head):
    x = x + mha(layer_norm(x, params["g1"]), params, n_head)
    return x + gelu(layer_norm(x, params["g2"]) @ params["up"]) @ params["down"]


def run(params, tokens, heads, new):
    tokens = list(tokens)
    for _ in range(new):
        x = params["embed"][tokens] + params["position"][: len(tokens)]
        logits = block(x, params, heads) @ params["embed"].T
        tokens.append(int(np.argmax(logits[-1])))
    sequence = np.array(tokens)
    probabilities = softmax(logits)
    chosen = probabilities[np.arange(len(logits) - 1), sequence[1 : len(logits)]]
    return sequence, -np.log(chosen).mean(), probabilities[-1], logits.dtype == np.float32
