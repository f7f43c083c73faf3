"""Counts that follow from a model's shape: parameters, adapter parameters, arithmetic. Loads no torch."""

from __future__ import annotations

import math
from collections import Counter

from burnish_engine.advise.gguf_size import spec_shapes
from burnish_engine.contract.facts import DecoderSpec, LayerSpec
from burnish_engine.contract.recipe_train import AdapterSection

GIB, MIB = 2**30, 2**20
BYTES_OF = {"fp32": 4, "bf16": 2, "fp16": 2}
"""Bytes of a number in each precision of a recipe."""

_FEED_FORWARD = {"gate_proj", "up_proj", "gate_up_proj", "down_proj"}


def parameters(spec: DecoderSpec) -> int:
    """All weights; tied embeddings count once."""
    outside = _weights(spec, [])
    # Layers of a kind are alike; ranking a catalog asks thousands of times.
    total = outside + sum(count * (_weights(spec, [one]) - outside) for one, count in Counter(spec.layers).items())
    if spec.num_experts:
        dense = 3 * spec.hidden_size * spec.intermediate_size
        router = spec.hidden_size * spec.num_experts
        total += sum((spec.num_experts - 1) * dense + router for layer in spec.layers if _is_mixture(layer))
    return total


def embedding_parameters(spec: DecoderSpec) -> int:
    """Weights of the embedding, or of the head: hidden size x vocabulary."""
    return spec.hidden_size * spec.vocab_size


def projection_parameters(spec: DecoderSpec) -> int:
    """Weights that every token is multiplied by inside the layers; of a mixture only the experts a token visits."""
    return sum(
        rows * columns * (spec.experts_per_token if _is_mixture(layer) and name in _FEED_FORWARD else 1)
        for layer in spec.layers
        for name, (columns, rows) in linear_shapes(spec, layer).items()
    )


def linear_shapes(spec: DecoderSpec, layer: LayerSpec) -> dict[str, tuple[int, int]]:
    """Inputs and outputs of a layer's linear maps by their name in the checkpoint.

    Short convolutions name theirs in_proj and out_proj; some families store q, k and v, and gate and up, as one.
    """
    hidden, query, key = spec.hidden_size, spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim
    wide = spec.intermediate_size
    down = {"down_proj": (wide, hidden)}
    if layer.kind == "short_convolution":
        mixer = {"in_proj": (hidden, 3 * hidden), "out_proj": (hidden, hidden)}
    elif spec.fused_projections:
        mixer = {"qkv_proj": (hidden, query + 2 * key), "o_proj": (query, hidden)}
        return {**mixer, "gate_up_proj": (hidden, 2 * wide), **down}
    else:
        mixer = {
            "q_proj": (hidden, query),
            "k_proj": (hidden, key),
            "v_proj": (hidden, key),
            "o_proj": (query, hidden),
        }
    return {**mixer, "gate_proj": (hidden, wide), "up_proj": (hidden, wide), **down}


def adapted(spec: DecoderSpec, layer: LayerSpec, adapter: AdapterSection) -> dict[str, tuple[int, int]]:
    """The linear maps of a layer that get an adapter; none where every weight is trained."""
    if adapter.method == "full":
        return {}
    shapes = linear_shapes(spec, layer)
    if "all-linear" in adapter.targets:
        return shapes
    return {name: shape for name, shape in shapes.items() if name in adapter.targets}


def adapter_parameters(spec: DecoderSpec, adapter: AdapterSection) -> int:
    """Trained weights: rank x (inputs + outputs) a linear map, and DoRA's magnitude of each output."""
    magnitude = adapter.method == "dora"
    return sum(
        adapter.rank * (columns + rows) + (rows if magnitude else 0)
        for layer in spec.layers
        for columns, rows in adapted(spec, layer, adapter).values()
    )


def kv_cache_bytes(spec: DecoderSpec, context: int, bytes_per_number: int = 2) -> int:
    """Keys and values of a context, bytes; sliding layers keep their window only."""
    per_token = 2 * spec.num_kv_heads * spec.head_dim * bytes_per_number
    total = 0
    for layer in spec.layers:
        if layer.kind == "attention":
            total += context * per_token
        elif layer.kind == "sliding_attention":
            total += min(context, spec.sliding_window or context) * per_token
    return total


def _weights(spec: DecoderSpec, layers: list[LayerSpec]) -> int:
    return sum(math.prod(tensor.shape) for tensor in spec_shapes(spec.model_copy(update={"layers": layers})))


def _is_mixture(layer: LayerSpec) -> bool:
    return layer.feed_forward == "mixture_of_experts"
