"""Export rules for Phi-3, Phi-3.5 and Phi-4: stacked projections, often longrope and partly rotated heads."""

from __future__ import annotations

from typing import Any

import torch

from burnish_engine.contract.facts.facts import DecoderSpec
from burnish_engine.export.gguf.families.base import GgufFamily, Metadata, PlannedTensor
from burnish_engine.export.gguf.families.dense import constant, dense_metadata, dense_tensors
from burnish_engine.export.weights.merge import MergedWeights

_PARTS = ("attn_qkv", "attn_output", "attn_norm", "ffn_up", "ffn_down", "ffn_norm")


def _metadata(spec: DecoderSpec, config: dict[str, Any]) -> Metadata:
    rope, rotated = spec.rope, int(spec.head_dim * spec.rope.partial)
    original = rope.original_context or config.get("original_max_position_embeddings") or spec.max_context
    keys: Metadata = {"rope.freq_base": float(rope.theta), "rope.scaling.original_context_length": int(original)}
    if rope.scaling == "longrope":
        keys["rope.scaling.attn_factor"] = float(rope.attention_factor)
    keys = dense_metadata(spec, config, rope=keys)
    keys["rope.dimension_count"] = rotated
    # Programs recognize Phi-4 by a window of 0. llama.cpp computes no window: the file equals the model only within it.
    keys["attention.sliding_window"] = spec.sliding_window or 0
    if spec.sliding_window:
        keys["context_length"] = min(spec.max_context, spec.sliding_window)
    return keys


def _tensors(spec: DecoderSpec, weights: MergedWeights) -> list[PlannedTensor]:
    planned = dense_tensors(PHI3, spec, weights, lambda _layer: _PARTS)
    if spec.rope.scaling != "longrope":
        return planned
    factors = {"long": spec.rope.long_factor, "short": spec.rope.short_factor}
    return [
        *planned,
        *(constant(f"rope_factors_{name}.weight", torch.tensor(values)) for name, values in factors.items()),
    ]


PHI3: GgufFamily = GgufFamily(
    architecture="phi3",
    pre_tokenizers=("gpt-4o", "dbrx", "gpt-2", "llama-bpe"),
    metadata=_metadata,
    tensors=_tensors,
)
