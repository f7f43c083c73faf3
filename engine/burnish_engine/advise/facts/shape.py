"""Counts parameters, adapter parameters and cache sizes from a model's shape. Loads no torch."""

from __future__ import annotations

import math
from collections import Counter

from burnish_engine.advise.facts.gguf_size import spec_shapes
from burnish_engine.contract.facts.coverage import Matrix
from burnish_engine.contract.facts.facts import DecoderSpec, LayerSpec
from burnish_engine.contract.recipe.recipe_train import AdapterSection
from burnish_engine.models.families import layer_matrices
from burnish_engine.models.families.adapter_targets import StartedSection, expert_rank, is_target
from burnish_engine.models.families.matrices import is_in_4_bits, tables

GIB, MIB = 2**30, 2**20
BYTES_OF = {"fp32": 4, "bf16": 2, "fp16": 2}
"""Bytes of a number in each precision of a recipe."""
NF4_BYTES = 0.5 + 1 / 64 + 4 / (64 * 256)
"""Bytes of a weight in NF4: four bits, a byte of scale for 64 weights, and an fp32 scale for 256 of those."""
MXFP4_BYTES = 0.5 + 1 / 32
"""Bytes of a weight in MXFP4: four bits, and a byte of scale for 32 weights."""
UNPACKED_PER_S_AND_CORE = 500e6
"""NF4 weights that a processor's core dequantizes a second."""


def parameters(spec: DecoderSpec) -> int:
    """Count all weights of a model; tied embeddings count once."""
    if spec.weights:
        return spec.weights
    outside = _weights(spec, [])
    # Layers of a kind are alike; ranking a catalog asks thousands of times.
    total = outside + sum(count * (_weights(spec, [one]) - outside) for one, count in Counter(spec.layers).items())
    if not spec.num_experts:
        return total
    # One expert of each mixture is counted up to here.
    others = (spec.num_experts - 1) * 3 * spec.hidden_size * spec.intermediate_size
    beside = spec.hidden_size * spec.num_experts + _shared_expert(spec) + _mixture_vectors(spec)
    return total + sum(layer.is_mixture for layer in spec.layers) * (others + beside)


def embedding_parameters(spec: DecoderSpec) -> int:
    """Count the weights of the embedding, or of the head: hidden size x vocabulary."""
    return spec.hidden_size * spec.vocab_size


def projection_parameters(spec: DecoderSpec) -> int:
    """Count the weights that a token is multiplied by inside the layers; of a mixture only the experts it visits."""
    return sum(
        matrix.rows * matrix.columns * visited(spec, matrix)
        for layer in spec.layers
        for matrix in layer_matrices(spec, layer)
        if matrix.form != "other"
    )


def active_parameters(spec: DecoderSpec) -> int:
    """Count the weights that a token passes: all but the experts that it does not visit."""
    stacked = stored_in_layers(spec, "stacked")
    return parameters(spec) - stacked + stacked * spec.experts_per_token // max(spec.num_experts, 1)


def stored_in_layers(spec: DecoderSpec, form: str) -> int:
    """Count the weights of all matrices of a form in the layers, such as "stacked" for experts."""
    by_kind = Counter(spec.layers).items()
    return sum(
        count * sum(matrix.weights for matrix in layer_matrices(spec, layer) if matrix.form == form)
        for layer, count in by_kind
    )


def parameters_in_4_bits(spec: DecoderSpec) -> list[int]:
    """List the weights of each matrix that the plain engine keeps in 4 bits with model.quantize = "nf4"."""
    return [matrix.weights for layer in spec.layers for matrix in layer_matrices(spec, layer) if is_in_4_bits(matrix)]


def frozen_bytes(spec: DecoderSpec, precision: str, *, nf4: bool, fast: bool = False, eight_bits: bool = False) -> int:
    """Count the bytes of all weights, the linear ones of the layers in 4 bits where that is so.

    Args:
        spec: shape of the model.
        precision: precision of the other weights.
        nf4: whether the linear ones are in NF4.
        fast: whether the fast engine holds them: it has experts in NF4 too, or in MXFP4 where they are published so.
        eight_bits: whether the linear ones are in 8 bits, where not in NF4.
    """
    experts = stored_in_layers(spec, "stacked") if fast and spec.experts is not None else 0
    linear = sum(parameters_in_4_bits(spec)) if nf4 else 0
    in_nf4 = linear + (experts if nf4 and not spec.has_mxfp4_experts else 0)
    in_mxfp4 = experts if spec.has_mxfp4_experts else 0
    packed = math.ceil(in_nf4 * NF4_BYTES + in_mxfp4 * MXFP4_BYTES)
    in_8_bits = sum(parameters_in_4_bits(spec)) if eight_bits and not nf4 else 0
    return packed + in_8_bits + (parameters(spec) - in_nf4 - in_mxfp4 - in_8_bits) * BYTES_OF[precision]


def visited(spec: DecoderSpec, matrix: Matrix) -> int:
    """Count the matrices of a stack that a token is multiplied by; 1 for a single matrix."""
    return min(spec.experts_per_token or matrix.count, matrix.count)


def adapted(spec: DecoderSpec, layer: LayerSpec, adapter: AdapterSection) -> list[Matrix]:
    """List the matrices of a layer that get an adapter; none where every weight is trained."""
    if adapter.method == "full":
        return []
    return [matrix for matrix in layer_matrices(spec, layer) if is_target(matrix, adapter.targets)]


def adapted_everywhere(spec: DecoderSpec, adapter: AdapterSection) -> list[Matrix]:
    """List the matrices that get an adapter, in all layers and outside of them."""
    inside = [matrix for layer in spec.layers for matrix in adapted(spec, layer, adapter)]
    if adapter.method == "full":
        return []
    outside = (*spec.outside, *tables(spec))
    return [*inside, *(matrix for matrix in outside if is_target(matrix, adapter.targets, inside=False))]


def rank_of(spec: DecoderSpec, matrix: Matrix, adapter: AdapterSection) -> int:
    """Return the rank of a matrix's adapter; of a stack, that of each matrix in it."""
    return expert_rank(adapter, spec.experts_per_token) if matrix.form == "stacked" else adapter.rank


def adapter_parameters(spec: DecoderSpec, adapter: AdapterSection, *, form: str = "") -> int:
    """Count an adapter's weights: rank x (inputs + outputs) a matrix, and for DoRA one magnitude an output.

    Args:
        spec: shape of the base model.
        adapter: adapter section of the recipe.
        form: form of the matrices that count, such as "stacked" for experts; empty: all.
    """
    if isinstance(adapter, StartedSection) and not form:
        return adapter.weights
    magnitude = adapter.method == "dora"

    def weights(matrices: list[Matrix]) -> int:
        return sum(
            matrix.count * (rank_of(spec, matrix, adapter) * (matrix.columns + matrix.rows) + magnitude * matrix.rows)
            for matrix in matrices
            if not form or matrix.form == form
        )

    outside = adapted_everywhere(spec.model_copy(update={"layers": []}), adapter)
    by_kind = Counter(spec.layers).items()  # layers of a kind are alike
    return weights(outside) + sum(count * weights(adapted(spec, layer, adapter)) for layer, count in by_kind)


def kv_cache_bytes(spec: DecoderSpec, context: int) -> int:
    """The size of what a model that replies remembers of a context, bytes.

    That is keys and values in 16 bits, of sliding-window layers within their window, and the states of gated delta
    nets in fp32, which do not grow.
    """
    total = 0
    for layer in spec.layers:
        own = spec.of_layer(layer)
        per_token = 0 if layer.keys == "borrowed" else 2 * 2 * own.num_kv_heads * own.head_dim
        if layer.kind == "attention":
            total += context * per_token
        elif layer.kind == "sliding_attention":
            total += min(context, spec.sliding_window or context) * per_token
        elif layer.kind == "gated_delta" and spec.delta is not None:
            total += 4 * (spec.delta.state + spec.delta.convolved * (spec.conv_width - 1))
    return total


def _weights(spec: DecoderSpec, layers: list[LayerSpec]) -> int:
    alphas = 2 * len(layers) if spec.activation == "xielu" else 0  # of xIELU, which a GGUF has in its metadata
    return alphas + sum(math.prod(tensor.shape) for tensor in spec_shapes(spec.model_copy(update={"layers": layers})))


def _shared_expert(spec: DecoderSpec) -> int:
    """Count a mixture layer's weights of the expert that sees every token, and of its gate."""
    size = spec.experts.shared_size if spec.experts is not None else 0
    gate = 0 if spec.experts is not None and spec.experts.shared == "normed" else 1
    return spec.hidden_size * (3 * size + gate) if size else 0


def _mixture_vectors(spec: DecoderSpec) -> int:
    """Count a mixture layer's weights beside its matrices.

    gpt-oss has router and expert biases and a sink a head; Gemma 4 norms, and a number of each expert.
    """
    if spec.experts is not None and spec.experts.shared == "normed":
        return 4 * spec.hidden_size + spec.num_experts
    if spec.experts is None or not spec.experts.bias:
        return 0
    return spec.num_experts * (1 + 2 * spec.intermediate_size + spec.hidden_size) + spec.num_heads


def packed_width(spec: DecoderSpec) -> float:
    """Return the bytes of a packed linear weight: in NF4, or on average in the blocks of a model's GGUF."""
    if not any(layer.blocks for layer in spec.layers):
        return NF4_BYTES
    return sum(sum(layer.blocks) for layer in spec.layers) / stored_in_layers(spec, "linear")
