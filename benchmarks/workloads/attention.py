"""Products on tensor cores whose rows are used up as they are made: attention, two layers."""

import ml_dtypes
import numpy as np

from benchmarks.workload import Sizes, Workload

HALF = np.dtype(ml_dtypes.bfloat16)
PRODUCTS_PER_SECOND = 685e12  # of cuBLAS on an H200, bfloat16 (shared/workloads.md)
TF32_PER_SECOND = 384e12  # of TF32 (results/tf32-h200-2026-11-28.json)
TF32_PRODUCTS = 3  # in the place of one of float32
CHECKED = 64  # rows of the first product
_HEADS, _DEPTH = (4, 16), 64
_SINGLE_HEADS = (1, 16)
_CAUSAL_HEADS, _CAUSAL_DEPTH = (2, 16), 128
_LAYERS = 64, 128, 64


def drawn(random, *shape):
    return random.standard_normal(shape, dtype=np.float32).astype(HALF)


def setup_attention(size, seed):
    """Return queries, keys and values: batches × heads × rows × features."""
    random = np.random.default_rng(seed)
    return tuple(drawn(random, *_HEADS, size, _DEPTH) for _ in range(3))


def setup_single(size, seed):
    """Return the same in float32, for fewer heads."""
    random = np.random.default_rng(seed)
    return tuple(random.standard_normal((*_SINGLE_HEADS, size, _DEPTH), dtype=np.float32)
                 for _ in range(3))


def setup_causal(size, seed):
    """Return the same, and what is added to the scores of all heads."""
    random = np.random.default_rng(seed)
    shape = (*_CAUSAL_HEADS, size, _CAUSAL_DEPTH)
    return (*(drawn(random, *shape) for _ in range(3)), drawn(random, size, size))


def setup_layers(size, seed):
    """Return samples, and the weights of two layers."""
    random = np.random.default_rng(seed)
    first, hidden, last = _LAYERS
    return (drawn(random, size, first), drawn(random, first, hidden) / HALF.type(8),
            drawn(random, hidden, last) / HALF.type(8))


def softmax(np, scores):
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def scores(np, queries, keys):
    return queries @ np.swapaxes(keys, -1, -2) * np.asarray(queries.shape[-1] ** -0.5,
                                                           queries.dtype)


def attention(np, queries, keys, values):
    return softmax(np, scores(np, queries, keys)) @ values


def causal(np, queries, keys, values, bias):
    places = np.arange(bias.shape[0])
    nothing = np.asarray(-np.inf, queries.dtype)
    return softmax(np, np.where(places[:, None] >= places, scores(np, queries, keys) + bias,
                                nothing)) @ values


def layers(np, x, first, last):
    return np.maximum(x @ first, np.asarray(0, x.dtype)) @ last


def first_rows(program):
    """Return a reference of the first head, in double precision: only rows that are checked."""
    def reference(inputs):
        queries, keys, values, *bias = (x.astype(np.float64) for x in (
            *(x[0, 0] for x in inputs[:3]), *inputs[3:]))
        count = min(CHECKED, len(queries))
        if bias:  # of a causal mask, rows see the same number of columns
            keys, values, bias = keys[:count], values[:count], [bias[0][:count, :count]]
        return [((0, 0, slice(0, count)), (program(np, queries[:count], keys, values, *bias),))]

    return reference


def first_samples(inputs):
    x, *weights = (array.astype(np.float64) for array in (inputs[0][:CHECKED], *inputs[1:]))
    return [(slice(0, len(x)), (layers(np, x, *weights),))]


def attention_torch():
    import torch

    def run(queries, keys, values):
        found = queries @ keys.transpose(-1, -2) * queries.shape[-1] ** -0.5
        return torch.softmax(found, -1) @ values

    return run


def attention_library():
    from torch.nn.functional import scaled_dot_product_attention

    return scaled_dot_product_attention


def causal_torch():
    import torch

    def run(queries, keys, values, bias):
        found = queries @ keys.transpose(-1, -2) * queries.shape[-1] ** -0.5 + bias
        places = torch.arange(bias.shape[0], device=bias.device)
        return torch.softmax(
            torch.where(places[:, None] >= places, found, -torch.inf), -1) @ values

    return run


def causal_library():
    import torch
    from torch.nn.functional import scaled_dot_product_attention

    def run(queries, keys, values, bias):
        places = torch.arange(bias.shape[0], device=bias.device)
        mask = torch.where(places[:, None] >= places, bias, -torch.inf)
        return scaled_dot_product_attention(queries, keys, values, attn_mask=mask)

    return run


def layers_torch():
    import torch

    return lambda x, first, last: torch.relu(x @ first) @ last


def flops(inputs):
    """Of both products."""
    queries, keys, values = inputs[:3]
    return 2 * queries.size * keys.shape[-2] + 2 * values.size * queries.shape[-2]


def on_tensor_cores(count):
    """The floor of so many flops on an H200, in seconds."""
    return {"cuda": count / PRODUCTS_PER_SECOND, "cpu": None}


_REFUSALS = {"numexpr": "no products", "CuPy": "has no bfloat16",
             "numba": "has no bfloat16"}

ATTENTION = Workload(
    name="attention",
    title="attention, 4×16 heads of 64, bfloat16",
    sizes=Sizes(cpu=128, cuda=4096, quick=64),
    setup=setup_attention,
    program=attention,
    reference=first_rows(attention),
    tolerance=0.03,
    traffic=lambda inputs: 4 * inputs[0].nbytes,
    fixed_floor=on_tensor_cores(4 * 64 * 4096**2 * 64),
    variants={"torch": attention_torch, "torch library": attention_library},
    refusals=_REFUSALS,
    bulky=True,
)
SINGLE = Workload(
    name="single_attention",
    title="attention, 16 heads of 64, float32",
    sizes=Sizes(cpu=256, cuda=4096, quick=64),
    setup=setup_single,
    program=attention,
    reference=first_rows(attention),
    tolerance=2e-5,
    traffic=lambda inputs: 4 * inputs[0].nbytes,
    fixed_floor={"cuda": TF32_PRODUCTS * 4 * 16 * 4096**2 * 64 / TF32_PER_SECOND, "cpu": None},
    variants={"torch": attention_torch, "torch library": attention_library},
    refusals={"numexpr": "no products", "numba": "no products of batches"},
    bulky=True,
)
CAUSAL = Workload(
    name="causal_attention",
    title="attention with a causal mask and a bias, 2×16 heads of 128, bfloat16",
    sizes=Sizes(cpu=128, cuda=8192, quick=64),
    setup=setup_causal,
    program=causal,
    reference=first_rows(causal),
    tolerance=0.03,
    traffic=lambda inputs: 4 * inputs[0].nbytes + inputs[3].nbytes,
    fixed_floor=on_tensor_cores(2 * 32 * 8192**2 * 128),  # what is masked is not counted
    variants={"torch": causal_torch, "torch library": causal_library},
    refusals=_REFUSALS,
    bulky=True,
)
LAYERS = Workload(
    name="two_layers",
    title="relu(x @ first) @ last, 64 to 128 to 64, bfloat16",
    sizes=Sizes(cpu=4096, cuda=262_144, quick=256),
    setup=setup_layers,
    program=layers,
    reference=first_samples,
    tolerance=0.03,
    traffic=lambda inputs: 2 * inputs[0].nbytes,
    variants={"torch": layers_torch},
    refusals=_REFUSALS,
)
