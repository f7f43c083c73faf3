"""Export rules for Llama, Mistral, Mixtral (architecture `llama`), Ministral 3 and SmolLM3: permuted Q and K rows."""

from __future__ import annotations

import math
from typing import Any

import torch

from burnish_engine.contract.facts.facts import DecoderSpec
from burnish_engine.export.gguf.families.base import GgufFamily, Metadata
from burnish_engine.export.gguf.families.dense import dense_metadata, dense_tensors
from burnish_engine.export.gguf.families.experts import ATTENTION, MIXTURE, mixture_metadata, mixture_tensors


def permute_rows(weight: torch.Tensor, heads: int) -> torch.Tensor:
    """Reorder each head's rows from transformers' half-and-half rope to llama.cpp's interleaved pairs.

    Args:
        weight: Q or K weight [heads * head_dim, in], or bias [heads * head_dim].
        heads: number of query heads for Q, of key/value heads for K.

    Source: convert_hf_to_gguf.py of llama.cpp, `LlamaModel.permute`. Without it the file loads and generates nonsense.
    """
    pairs = weight.reshape(heads, 2, weight.shape[0] // heads // 2, *weight.shape[1:])
    return pairs.swapaxes(1, 2).reshape(weight.shape)


def interleaved(spec: DecoderSpec, name: str, tensor: torch.Tensor) -> torch.Tensor:
    """Reorder the rows of queries and keys: a `Change` for llama.cpp graphs whose rope turns neighboring rows."""
    if ".q_proj." in name:
        return permute_rows(tensor, spec.num_heads)
    if ".k_proj." in name:
        return permute_rows(tensor, spec.num_kv_heads)
    return tensor


def _mistral_metadata(spec: DecoderSpec, config: dict[str, Any]) -> Metadata:
    keys = mixture_metadata(spec, config) if spec.experts else dense_metadata(spec, config)
    if spec.sliding_window:
        # llama.cpp's llama graph attends to all tokens, so the file equals the trained model only within the window.
        keys["context_length"] = min(spec.max_context, spec.sliding_window)
    return keys


def _ministral3_metadata(spec: DecoderSpec, config: dict[str, Any]) -> Metadata:
    rope, keys = spec.rope, _mistral_metadata(spec, config)
    keys |= {
        "rope.scaling.yarn_beta_fast": rope.beta_fast,
        "rope.scaling.yarn_beta_slow": rope.beta_slow,
        "attention.temperature_scale": rope.query_scale,
    }
    # llama.cpp multiplies by (1 + s) / (1 + it * s) with s = 0.1 ln(factor); without the key, by 1 + s.
    stretch = 0.1 * math.log(rope.factor)
    if stretch:
        keys["rope.scaling.yarn_log_multiplier"] = ((1.0 + stretch) / rope.attention_factor - 1.0) / stretch
    return keys


LLAMA: GgufFamily = GgufFamily(
    architecture="llama",
    pre_tokenizers=("llama-bpe", "smollm", "gpt-2", "default"),
    metadata=dense_metadata,
    tensors=lambda spec, weights: dense_tensors(LLAMA, spec, weights),
    change=interleaved,
)
MISTRAL: GgufFamily = GgufFamily(
    architecture="llama",
    pre_tokenizers=("tekken", "llama-bpe", "gpt-2"),
    metadata=_mistral_metadata,
    tensors=lambda spec, weights: dense_tensors(MISTRAL, spec, weights),
    change=interleaved,
)
MIXTRAL: GgufFamily = GgufFamily(
    architecture="llama",
    pre_tokenizers=MISTRAL.pre_tokenizers,
    metadata=_mistral_metadata,
    tensors=lambda spec, weights: mixture_tensors(
        MIXTRAL, spec, weights, lambda _layer: (*ATTENTION, "ffn_norm", *MIXTURE)
    ),
    change=interleaved,
)
MINISTRAL3: GgufFamily = GgufFamily(
    architecture="mistral3",
    pre_tokenizers=("tekken", "llama-bpe", "gpt-2"),
    metadata=_ministral3_metadata,
    tensors=lambda spec, weights: dense_tensors(MINISTRAL3, spec, weights),
    change=interleaved,
)
SMOLLM3: GgufFamily = GgufFamily(
    architecture="smollm3",
    pre_tokenizers=("llama-bpe", "smollm"),
    metadata=dense_metadata,
    tensors=lambda spec, weights: dense_tensors(SMOLLM3, spec, weights),
    change=interleaved,
)
