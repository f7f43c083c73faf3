"""Export rules for Gemma 3's language model: norms around each half, local and global layers, QK norm."""

from __future__ import annotations

from typing import Any

import torch

from burnish_engine.contract.facts.facts import DecoderSpec
from burnish_engine.export.gguf.families.base import GgufFamily, Metadata
from burnish_engine.export.gguf.families.dense import dense_metadata, dense_tensors

_EVERY = 6  # interval of the global layers, where the file names none (load_swa_pattern)
_PARTS = (
    "attn_q", "attn_k", "attn_v", "attn_output", "attn_norm", "attn_q_norm", "attn_k_norm", "post_attention_norm",
    "ffn_gate", "ffn_up", "ffn_down", "ffn_norm", "post_ffw_norm",
)  # fmt: skip


def _metadata(spec: DecoderSpec, config: dict[str, Any]) -> Metadata:
    keys = dense_metadata(spec, config)
    local = [layer.kind == "sliding_attention" for layer in spec.layers]
    if spec.sliding_window:
        keys["attention.sliding_window"] = spec.sliding_window
        keys["rope.freq_base_swa"] = float((spec.local_rope or spec.rope).theta)
        if local != [(index + 1) % _EVERY != 0 for index in range(spec.num_layers)]:
            keys["attention.sliding_window_pattern"] = local
    if spec.logit_softcap:
        keys["final_logit_softcapping"] = float(spec.logit_softcap)
    return keys


def _one_plus(_spec: DecoderSpec, name: str, tensor: torch.Tensor) -> torch.Tensor:
    """Add 1 to a norm's weight: transformers multiplies by 1 + weight, llama.cpp by the weight."""
    return tensor + 1.0 if name.endswith("norm.weight") else tensor


GEMMA3: GgufFamily = GgufFamily(
    architecture="gemma3",
    pre_tokenizers=("default", "gpt-2", "llama-bpe"),
    metadata=_metadata,
    tensors=lambda spec, weights: dense_tensors(GEMMA3, spec, weights, lambda _layer: _PARTS),
    change=_one_plus,
)
