"""Export rules for dense LFM2 and LFM2.5: short convolutions in most layers, attention with QK norm in the others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from burnish_engine.contract.facts.facts import DecoderSpec, LayerSpec
from burnish_engine.export.gguf.families.base import GgufFamily, Metadata, PlannedTensor
from burnish_engine.export.gguf.families.dense import dense_metadata, dense_tensors
from burnish_engine.export.weights.merge import MergedWeights

_CONVOLUTION = ("shortconv.conv", "shortconv.in_proj", "shortconv.out_proj")
_ATTENTION = ("attn_q", "attn_k", "attn_v", "attn_output", "attn_q_norm", "attn_k_norm")
_FEED_FORWARD = ("attn_norm", "ffn_norm", "ffn_gate", "ffn_up", "ffn_down")


def _metadata(spec: DecoderSpec, config: dict[str, Any]) -> Metadata:
    keys = dense_metadata(spec, config)
    # A layer without key heads is a convolution; llama.cpp has no other key for it.
    keys["attention.head_count_kv"] = [0 if _convolves(layer) else spec.num_kv_heads for layer in spec.layers]
    keys["shortconv.l_cache"] = spec.conv_width
    return keys


def _convolves(layer: LayerSpec) -> bool:
    return layer.kind == "short_convolution"


def _tensors(spec: DecoderSpec, weights: MergedWeights) -> list[PlannedTensor]:
    planned = dense_tensors(
        LFM2,
        spec,
        weights,
        lambda layer: (*_FEED_FORWARD, *(_CONVOLUTION if _convolves(layer) else _ATTENTION)),
        final_norm="token_embd_norm",  # llama.cpp's name for the norm before the head
    )
    return [_flat(tensor) if tensor.name.endswith("shortconv.conv.weight") else tensor for tensor in planned]


def _flat(tensor: PlannedTensor) -> PlannedTensor:
    """Flatten the convolution's kernel [hidden, 1, width] to [hidden, width]; llama.cpp expects it in F32."""
    hidden, _, width = tensor.shape
    return replace(tensor, shape=(hidden, width), make=lambda: tensor.make().squeeze(1), full_precision=True)


LFM2: GgufFamily = GgufFamily(
    architecture="lfm2",
    pre_tokenizers=("lfm2", "llama-bpe"),
    metadata=_metadata,
    tensors=_tensors,
)
