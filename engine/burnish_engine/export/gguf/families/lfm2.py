"""Export rules for LFM2, LFM2.5 and LFM2-MoE: short convolutions in most layers, attention with QK norm in others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from burnish_engine.contract.facts.facts import DecoderSpec, LayerSpec
from burnish_engine.export.gguf.families.base import GgufFamily, Metadata, PlannedTensor
from burnish_engine.export.gguf.families.dense import dense_metadata, dense_tensors
from burnish_engine.export.gguf.families.experts import MIXTURE, mixture_metadata, mixture_tensors
from burnish_engine.export.weights.merge import MergedWeights

_CONVOLUTION = ("shortconv.conv", "shortconv.in_proj", "shortconv.out_proj")
_ATTENTION = ("attn_q", "attn_k", "attn_v", "attn_output", "attn_q_norm", "attn_k_norm")
_NORMS = ("attn_norm", "ffn_norm")
_FEED_FORWARD = ("ffn_gate", "ffn_up", "ffn_down")
_FINAL_NORM = "token_embd_norm"  # llama.cpp's name for the norm before the head
_SIGMOID = 2  # LLAMA_EXPERT_GATING_FUNC_TYPE_SIGMOID, llama-hparams.h


def _metadata(spec: DecoderSpec, config: dict[str, Any]) -> Metadata:
    keys = dense_metadata(spec, config)
    if spec.experts is not None:
        keys = mixture_metadata(spec, config)
        keys["expert_gating_func"] = _SIGMOID
        keys["leading_dense_block_count"] = sum(not layer.is_mixture for layer in spec.layers)
    # A layer without key heads is a convolution; llama.cpp has no other key for it.
    keys["attention.head_count_kv"] = [0 if _convolves(layer) else spec.num_kv_heads for layer in spec.layers]
    keys["shortconv.l_cache"] = spec.conv_width
    return keys


def _convolves(layer: LayerSpec) -> bool:
    return layer.kind == "short_convolution"


def _parts(layer: LayerSpec) -> tuple[str, ...]:
    mixer = _CONVOLUTION if _convolves(layer) else _ATTENTION
    return (*_NORMS, *(MIXTURE if layer.is_mixture else _FEED_FORWARD), *mixer)


def _tensors(spec: DecoderSpec, weights: MergedWeights) -> list[PlannedTensor]:
    if spec.experts is not None:
        planned = mixture_tensors(LFM2_MOE, spec, weights, _parts, _FINAL_NORM)
    else:
        planned = dense_tensors(LFM2, spec, weights, _parts, _FINAL_NORM)
    return [_flat(tensor) if tensor.name.endswith("shortconv.conv.weight") else tensor for tensor in planned]


def _flat(tensor: PlannedTensor) -> PlannedTensor:
    """Flatten the convolution's kernel [hidden, 1, width] to [hidden, width]; llama.cpp expects it in F32."""
    hidden, _, width = tensor.shape

    def made() -> torch.Tensor:
        kernel = tensor.make()
        assert isinstance(kernel, torch.Tensor)
        return kernel.squeeze(1)

    return replace(tensor, shape=(hidden, width), make=made, full_precision=True)


LFM2: GgufFamily = GgufFamily(
    architecture="lfm2",
    pre_tokenizers=("lfm2", "llama-bpe"),
    metadata=_metadata,
    tensors=_tensors,
)
LFM2_MOE: GgufFamily = replace(
    LFM2, architecture="lfm2moe", parameters={"feed_forward.expert_bias": "exp_probs_b.bias"}
)
